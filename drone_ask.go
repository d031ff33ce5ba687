package main

import "time"

// Times of the questions (docs/design.md, "The vehicle" and "A link that only
// hears").
const (
	askAfter  = 1500 * time.Millisecond // without a heartbeat
	askEvery  = time.Second             // for a target; and with a stream, whether it hears us
	askAgain  = 20 * time.Millisecond
	deafAfter = 10 * time.Second // without an ack, with a stream
)

// What is said of a vehicle that hears us no more, and what a person can do.
const (
	deafText   = "the autopilot hears us no more: it has not answered for 10 s"
	deafAdvice = deafText + "; check the wire from the board's TX"
)

// asked is when the vehicle was asked for what does not come by itself, and
// whether it hears us at all.
type asked struct {
	craft *aircraft
	acks  *acks

	beat, target, look time.Time
	streamed           time.Time // since when a stream runs, as far as hearing us goes
	deaf               bool      // it hears us no more
}

// tick asks what is due, and tells when the next question is. streams says that
// sticks are sent, flies that it flies to a place of its own, looks that the
// receiver is looked at.
func (a *asked) tick(now time.Time, streams, flies, looks bool) (next time.Time) {
	a.listen(now, streams)
	if !a.craft.online {
		return time.Time{}
	}
	due := func(last *time.Time, every time.Duration, id uint32) {
		at := last.Add(every)
		if !now.Before(at) {
			at = now.Add(askAgain)
			if a.acks.ask(id, now) != nil {
				*last, at = now, now.Add(every)
			}
		}
		next = sooner(next, at)
	}
	if flies {
		due(&a.target, askEvery, 87) // POSITION_TARGET_GLOBAL_INT
	}
	if looks {
		due(&a.look, lookFor/5, 1) // SYS_STATUS: is there a receiver
	}
	switch missed := a.craft.tel.beat.at.Add(askAfter); {
	case streams:
		due(&a.beat, askEvery, 0)
	case missed.After(now):
		next = sooner(next, missed)
	default:
		due(&a.beat, askEvery/2, 0)
	}
	return next
}

// listen notices whether the vehicle that our sticks go to hears us.
func (a *asked) listen(now time.Time, streams bool) {
	switch {
	case !streams:
		a.streamed, a.deaf = time.Time{}, false
	case a.streamed.IsZero():
		a.streamed = now
	case !a.craft.online:
	case now.Sub(a.acks.heard) < deafAfter:
		a.deaf = false
	case now.Sub(a.streamed) >= deafAfter && !a.deaf:
		a.deaf = true
		a.craft.tell(deafText)
	}
}

// kind waits until a fixed wing has told whether it is a QuadPlane, or has no word
// for that.
func (a *asked) kind(t *talk, r request) error {
	known := func() bool { return !r.setMode || a.craft.firmware != plane || !a.craft.tel.landed.at.IsZero() }
	var asked *question
	for until := time.Now().Add(giveUp); !known() && time.Now().Before(until); {
		if q := a.acks.ask(245, time.Now()); q != nil { // EXTENDED_SYS_STATE
			asked = q
		}
		if err := unlessLate(t.await(time.Now().Add(askAgain), known)); err != nil {
			return err
		}
		if asked != nil && asked.answer {
			return nil
		}
	}
	if !known() {
		return refuse(codeNoAck, "this vehicle has not told yet whether it is a QuadPlane; nothing was sent")
	}
	return nil
}

// sooner is the earlier of two times; the zero time is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
