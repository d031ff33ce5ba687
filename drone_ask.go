package main

import "time"

// asked is when the vehicle was asked for what does not come by itself.
type asked struct {
	beat, target, look time.Time
	streamed           time.Time // since when a stream runs, as far as hearing us goes
	deaf               bool      // it hears us no more
}

// askDue asks for what does not come by itself, and tells when the next question
// is due.
func (d *drone) askDue(now time.Time) (next time.Time) {
	a := &d.asked
	streams := d.sticks.phase != stickOff
	if !streams {
		a.streamed, a.deaf = time.Time{}, false
	} else if a.streamed.IsZero() {
		a.streamed = now
	}
	if !d.online {
		return time.Time{}
	}
	due := func(last *time.Time, every time.Duration, id uint32) {
		at := last.Add(every)
		if !now.Before(at) {
			at = now.Add(askAgain)
			if d.cmd.acks.ask(id, now) != nil {
				*last, at = now, now.Add(every)
			}
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	mode := d.machine.mode
	if d.tel.beat.armed && (mode == ModeHold || mode == ModeTakeoff || d.cmd.transit()) {
		due(&a.target, askEvery, 87) // POSITION_TARGET_GLOBAL_INT
	}
	if now.Before(d.sticks.watch.until) {
		due(&a.look, lookFor/5, 1) // SYS_STATUS: is there a receiver
	}
	if streams {
		due(&a.beat, askEvery, 0)
		if last := d.cmd.acks.heard; now.Sub(last) >= deafAfter && now.Sub(a.streamed) >= deafAfter && !a.deaf {
			a.deaf = true
			d.tell("the autopilot hears us no more: it has not answered for 10 s")
		} else if now.Sub(last) < deafAfter {
			a.deaf = false
		}
	} else if d.tel.beat.at.Add(askAfter).After(now) {
		at := d.tel.beat.at.Add(askAfter)
		if next.IsZero() || at.Before(next) {
			next = at
		}
	} else {
		due(&a.beat, askEvery/2, 0)
	}
	return next
}
