package main

import (
	"errors"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// talk is a talk with the autopilot: one command after the other is said to it,
// and the answer awaited. A plan is one, the greeting another.
type talk struct {
	by       *commander
	own      bool       // no client asks for it at this moment: a second leg, mavrest's own hold
	leg      *manoeuvre // that it is the second leg of
	last     time.Time  // the end of one that goes on while the program ends
	asked    bool       // a step that moves the vehicle was sent and is not answered
	cleaning bool       // it takes its steps back: what ended it does not end that

	// What others did to it.
	gone     error // what ended it: a newer command, a pilot, a failsafe
	taken    bool  // a report came that it does not explain
	strayed  bool  // it came disarmed
	disarmed bool  // a report went from armed to disarmed
	replaced bool  // a newer plan began that sets a mode
}

var (
	errTimeout  = errors.New("in time nothing came")
	errDisarmed = refuse(codeInterrupted, "the vehicle was disarmed; nothing more was sent")
)

// unlessLate is err, and nil where only the time was over.
func unlessLate(err error) error {
	if errors.Is(err, errTimeout) {
		return nil
	}
	return err
}

// end ends a talk for a reason that is not its own.
func (t *talk) end(why error) {
	if t.gone == nil {
		t.gone = why
	}
	t.by.bell.ring()
}

// over is why nothing more may be said; nil where it may.
func (t *talk) over() error {
	switch {
	case t.by.stopped && !time.Now().Before(t.last):
		return errStopping
	case t.gone != nil && !t.cleaning:
		return t.gone
	}
	return nil
}

// await waits for ok, at most until the deadline: then it is errTimeout. Whoever
// waits has the mutex, before and after. A nil ok waits for the deadline.
func (t *talk) await(until time.Time, ok func() bool) error {
	c := t.by
	for {
		if err := t.over(); err != nil || ok != nil && ok() {
			return err
		}
		left := time.Until(until)
		if left <= 0 {
			return errTimeout
		}
		rings := c.bell.wait()
		c.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-rings:
		case <-timer.C:
		}
		timer.Stop()
		c.mu.Lock()
	}
}

// sleep waits for a time, unless the talk ends before.
func (t *talk) sleep(until time.Time) error { return unlessLate(t.await(until, nil)) }

// ask asks for a heartbeat until one answers.
func (t *talk) ask(until time.Time) error {
	a := t.by.acks
	for {
		q := a.ask(0, time.Now())
		end, ok := until, func() bool { return a.question == nil }
		if q != nil {
			ok = func() bool { return q.answer }
		}
		if o := a.question; o != nil && o.until.Before(end) {
			end = o.until
		} else if o == nil && q == nil { // the port takes nothing
			ok = nil
			end = time.Now().Add(showEvery)
		}
		switch err := t.await(end, ok); {
		case err == nil && q != nil:
			return nil
		case unlessLate(err) != nil:
			return err
		case !time.Now().Before(until):
			return errTimeout
		}
	}
}

// transact sends one command, repeats it until it is answered, and returns the
// autopilot's MAV_RESULT.
func (t *talk) transact(s *step) (uint8, error) {
	c := t.by
	for s.enters && time.Now().Before(c.acks.modeAt) { // also one that takes another back
		if err := t.sleep(c.acks.modeAt); err != nil {
			return 0, err
		}
	}
	if err := t.letAnswer(s.cmd); err != nil {
		return 0, err
	}
	x := c.acks.open(s, c.machine.raw.custom)
	x.own = t.own
	defer c.acks.close(x)
	began, every := time.Now(), max(firstRepeat, c.acks.trip*3/2)
	for i, factor := range repeats {
		due := time.Duration(float64(every) * factor)
		if due >= giveUp || x.progress != (time.Time{}) {
			break
		}
		first := x.copies == 0
		if err := t.try(x, i); errors.Is(err, errTimeout) {
			break
		} else if errors.As(err, new(*commandError)) {
			return 0, err
		}
		if first && x.copies > 0 { // the repeats count from the first copy
			began = time.Now().Add(-due)
		}
		end := giveUp - lastLook
		if i+1 < len(repeats) {
			end = min(end, time.Duration(float64(every)*repeats[i+1]))
		}
		if result, err := t.answer(x, began.Add(end)); !errors.Is(err, errTimeout) {
			return result, err
		}
	}
	if x.progress != (time.Time{}) {
		if result, err := t.answer(x, x.progress.Add(progressWait)); !errors.Is(err, errTimeout) {
			return result, err
		}
	}
	if x.copies == 0 {
		return 0, refuse(codeOffline, "the port to the autopilot was down: %s was not sent", commandName(s))
	}
	// The 504 tells with the freshest report (rule 8c).
	until := began.Add(giveUp)
	if !time.Now().Before(until) {
		until = time.Now().Add(lastLook)
	}
	if err := unlessLate(t.ask(until)); err != nil {
		return 0, err
	}
	if x.answered() || x.proven(c.machine.raw.custom) { // it came in the last moment
		return t.answer(x, time.Now())
	}
	if x.accepted > 0 && x.stands(c.machine.raw.custom) {
		return uint8(common.MAV_RESULT_ACCEPTED), nil
	}
	return 0, refuse(codeNoAck, "%s was sent and never acknowledged; read the status to see whether it happened", commandName(s))
}

// try sends a copy, and ahead of it what rule 8a wants; errTimeout is that it may
// not go.
func (t *talk) try(x *exchange, i int) error {
	if err := t.ahead(x, i); err != nil {
		return err
	}
	return t.send(x)
}

// ahead is what goes ahead of try i but the first.
func (t *talk) ahead(x *exchange, i int) error {
	switch {
	case i == 0:
		return nil
	case x.copies == 0: // the port was away: it is no repeat
		if land, ok := entered[t.by.acks.vendor()][ModeLand]; ok && x.step.enters && x.step.number == land {
			return unlessLate(t.ask(time.Now().Add(landWithin)))
		}
		err := t.ask(time.Now().Add(lookWithin))
		switch {
		case err == nil && x.step.arms() && t.disarmed:
			return errDisarmed
		case err == nil && x.step.arms() && t.strayed:
			return t.by.interrupted()
		}
		return err
	case x.step.arms() && t.disarmed:
		return errTimeout
	}
	t.by.acks.ask(0, time.Now())
	return nil
}

// letAnswer waits, where steps are taken back, until the same command of a client
// beside them is answered: its acks are its own.
func (t *talk) letAnswer(cmd common.MAV_CMD) error {
	if !t.cleaning {
		return nil
	}
	free := func() bool { return t.by.acks.waiting[cmd] == nil }
	return unlessLate(t.await(time.Now().Add(giveUp), free))
}

// send sends a copy, unless the talk is over: nothing of it may go out
// behind a newer command or a pilot's switch.
func (t *talk) send(x *exchange) error {
	c := t.by
	if err := t.over(); err != nil {
		return err
	}
	switch {
	case t.cleaning && t.taken:
		return c.interrupted()
	case t.cleaning && t.replaced:
		return errSuperseded
	}
	if err := c.acks.send(x); err != nil {
		return err
	}
	if x.step.enters {
		if c.op == nil { // the plan that this one made way for has ended already
			c.machine.begin(nil)
		}
		c.machine.expect(x.step.number)
	}
	if t.leg != nil {
		c.machine.also(x.step.number)
	}
	t.asked = t.asked || x.step.moves()
	return nil
}

// answer waits for what answers a command: its ack; of a mode change also the
// heartbeat that shows it. Where PX4's second ack is missing it asks for one.
func (t *talk) answer(x *exchange, until time.Time) (uint8, error) {
	c := t.by
	for {
		switch proven := x.proven(c.machine.raw.custom); {
		case !proven && x.refusal != nil:
			return t.refused(x)
		case proven || x.answered():
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		}
		next, before := until, x.accepted
		if x.twice && x.accepted > 0 {
			c.acks.ask(0, time.Now())
			if soon := time.Now().Add(showEvery); soon.Before(until) {
				next = soon
			}
		}
		err := t.await(next, func() bool {
			return x.accepted != before || x.refusal != nil || x.proven(c.machine.raw.custom)
		})
		if unlessLate(err) != nil || err != nil && !time.Now().Before(until) {
			return 0, err
		}
	}
}

// refused is a refusal among the acks of a command's copies. It is the answer,
// but where the heartbeat shows the mode: then another copy was accepted.
func (t *talk) refused(x *exchange) (uint8, error) {
	if x.step.enters && x.copies > 1 {
		if err := unlessLate(t.ask(time.Now().Add(secondAck))); err != nil {
			return 0, err
		}
		if x.shows(t.by.machine.raw.custom) {
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		}
	}
	return *x.refusal, nil
}
