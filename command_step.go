package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// await waits for ok, at most until the deadline: then it is errTimeout. Whoever
// waits has the mutex, before and after. A nil ok waits for the deadline.
func (op *operation) await(until time.Time, ok func() bool) error {
	c := op.by
	for {
		switch {
		case c.stopped && !time.Now().Before(op.last):
			return errStopping
		case op.gone != nil && !op.cleaning:
			return op.gone
		case ok != nil && ok():
			return nil
		}
		left := time.Until(until)
		if left <= 0 {
			return errTimeout
		}
		if c.bell == nil {
			c.bell = make(chan struct{})
		}
		bell := c.bell
		c.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-bell:
		case <-timer.C:
		}
		timer.Stop()
		c.mu.Lock()
	}
}

// end ends an operation for a reason that is not its own.
func (op *operation) end(why error) {
	if op.gone == nil {
		op.gone = why
	}
	op.by.ring()
}

// ask asks for a heartbeat until one answers.
func (op *operation) ask(until time.Time) error {
	a := op.by.acks
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
		switch err := op.await(end, ok); {
		case err == nil && q != nil:
			return nil
		case err != nil && !errors.Is(err, errTimeout):
			return err
		case !time.Now().Before(until):
			return errTimeout
		}
	}
}

// transact sends one command, repeats it until it is answered, and returns the
// autopilot's MAV_RESULT.
func (op *operation) transact(s *step) (uint8, error) {
	c := op.by
	for s.enters && time.Now().Before(c.modeAt) { // also one that takes another back
		if err := op.await(c.modeAt, nil); !errors.Is(err, errTimeout) {
			return 0, err
		}
	}
	x := c.acks.open(s, c.machine.raw.custom)
	x.own = op.own
	defer c.acks.close(x)
	defer op.gap(x)
	began, every := time.Now(), c.acks.firstRepeat()
	for i, factor := range repeats {
		due := time.Duration(float64(every) * factor)
		if due >= giveUp || x.progress != (time.Time{}) {
			break
		}
		if i > 0 {
			c.acks.ask(0, time.Now()) // ahead of a repeat (rule 8a)
			if is, on := s.arms(); is && on && op.disarmed {
				break
			}
		}
		if err := op.send(x); errors.As(err, new(*commandError)) {
			return 0, err
		}
		end := giveUp - lastLook
		if i+1 < len(repeats) {
			end = min(end, time.Duration(float64(every)*repeats[i+1]))
		}
		if result, err := op.answer(x, began.Add(end)); !errors.Is(err, errTimeout) {
			return result, err
		}
	}
	if x.progress != (time.Time{}) {
		if result, err := op.answer(x, x.progress.Add(progressWait)); !errors.Is(err, errTimeout) {
			return result, err
		}
	}
	if x.copies == 0 {
		return 0, refuse(codeOffline, "the port to the autopilot is down: %s was not sent", commandName(s))
	}
	// The 504 tells with the freshest report (rule 8c).
	until := began.Add(giveUp)
	if !time.Now().Before(until) {
		until = time.Now().Add(lastLook)
	}
	if err := op.ask(until); err != nil && !errors.Is(err, errTimeout) {
		return 0, err
	}
	if x.answered() || x.refusal != nil { // it came in the last moment
		return op.answer(x, time.Now())
	}
	if x.accepted > 0 && x.stands(c.machine.raw.custom) {
		return uint8(common.MAV_RESULT_ACCEPTED), nil
	}
	return 0, &commandError{code: codeNoAck, command: uint16(s.cmd),
		text: fmt.Sprintf("%s was sent and never acknowledged; read the status to see whether it happened", commandName(s))}
}

// send sends a copy, unless the operation has ended: nothing of it may go out
// behind a newer command or a pilot's switch.
func (op *operation) send(x *exchange) error {
	c := op.by
	if err := op.await(time.Now(), func() bool { return true }); err != nil {
		return err
	}
	if op.cleaning && op.taken {
		return op.interrupted()
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
	if op.leg != nil {
		c.machine.also(x.step.number)
	}
	op.asked = op.asked || x.step.moves()
	if x.step.enters {
		c.modeAt = time.Now().Add(modeUnacked)
	}
	return nil
}

// gap lets the next mode change go a while after the ack of this one.
func (op *operation) gap(x *exchange) {
	if x.step.enters && !x.first.IsZero() {
		op.by.modeAt = time.Now().Add(modeGap)
	}
}

// answer waits for what answers a command: its ack; of a mode change also the
// heartbeat that shows it. Where PX4's second ack is missing it asks for one.
func (op *operation) answer(x *exchange, until time.Time) (uint8, error) {
	c := op.by
	for {
		switch {
		case x.proven(c.machine.raw.custom):
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		case x.refusal != nil:
			return op.refused(x)
		case x.answered():
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		}
		next, before := until, x.accepted
		if x.twice && x.accepted > 0 {
			c.acks.ask(0, time.Now())
			if soon := time.Now().Add(showEvery); soon.Before(until) {
				next = soon
			}
		}
		err := op.await(next, func() bool {
			return x.accepted != before || x.refusal != nil || x.proven(c.machine.raw.custom)
		})
		if err != nil && !errors.Is(err, errTimeout) {
			return 0, err
		}
		if err != nil && !time.Now().Before(until) {
			return 0, errTimeout
		}
	}
}

// refused is a refusal among the acks of a command's copies. It is the answer,
// but where the heartbeat shows the mode: then another copy was accepted.
func (op *operation) refused(x *exchange) (uint8, error) {
	if x.step.enters && x.copies > 1 {
		if err := op.ask(time.Now().Add(secondAck)); err != nil && !errors.Is(err, errTimeout) {
			return 0, err
		}
		if x.shows(op.by.machine.raw.custom) {
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		}
	}
	return *x.refusal, nil
}

// interrupted is the end of a plan that a pilot or a failsafe took the drone from.
func (op *operation) interrupted() error {
	c := op.by
	_, name := c.acks.vendor().reported(c.machine.raw.custom)
	return refuse(codeInterrupted, "a pilot or a failsafe took the drone: it is in %s; nothing more was sent", name)
}
