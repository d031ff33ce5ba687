package main

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// operation is a plan on its way.
type operation struct {
	talk
	request request
	make    func() (plan, error) // plans anew, when it is its turn
	plan    plan
	came    time.Time
	began   time.Time // when its first step was due
	from    uint32    // the mode's number then

	accepted uint16 // the last command
	through  *step  // the way out of a stick mode that it led through
	moved    bool   // an accepted step moves the vehicle
	heir     bool   // a step of an older plan that moves it was sent, and never answered
	undone   bool   // all that was accepted has been taken back

	ended  chan struct{}
	answer answer // once ended
	err    error
}

// takesIn reports whether a request like its own is answered with it: a landing
// that nothing has ended or answered yet.
func (op *operation) takesIn(r request) bool {
	return r.setMode && r.mode == ModeLand && !op.own && op.gone == nil && !op.cleaning && reflect.DeepEqual(op.request, r)
}

// unstoppable reports whether nothing supersedes it: disarming.
func (op *operation) unstoppable() bool {
	return !op.plan.setsMode && op.plan.arm != nil && !*op.plan.arm
}

// run is an operation from its turn to its end.
func (op *operation) run() (answer, error) {
	c := op.by
	if op.err = op.takeTurn(); op.err == nil {
		op.answer, op.err = op.carryOut()
		c.running = slices.DeleteFunc(c.running, func(o *operation) bool { return o == op })
		c.owner.closing(op, op.err)
		if c.op == op {
			c.op = nil
		}
	} else if c.next == op {
		c.next = nil
	}
	close(op.ended)
	c.bell.ring()
	return op.answer, op.err
}

// takeTurn waits until it may begin, and takes the place of the plan before it.
// At most one plan begins in planEvery, and the newest waits; what is urgent
// skips that.
func (op *operation) takeTurn() (err error) {
	c := op.by
	if op.plan, err = op.make(); err != nil {
		return err
	}
	if c.next != nil {
		c.next.end(errSuperseded)
	}
	c.next = op
	waits := func() bool { return c.op != nil && c.op.unstoppable() && !op.plan.urgent }
	if at := c.begun.Add(planEvery); !op.plan.urgent && time.Now().Before(at) {
		if err := op.sleep(at); err != nil {
			return err
		}
	}
	if waits() {
		if err := unlessLate(op.await(time.Now().Add(lookWithin), func() bool { return !waits() })); err != nil {
			return err
		}
	}
	if op.plan, err = op.make(); err != nil { // what was true when it came may not be now
		return err
	}
	c.next = nil
	op.begin()
	return nil
}

// begin takes the place of the older plan. What the older one's steps have done
// explains reports also to this one.
func (op *operation) begin() {
	c := op.by
	for _, older := range c.running {
		older.replaced = older.replaced || op.plan.setsMode
	}
	c.running = append(c.running, op)
	sent := slices.Clone(sentBy(c.machine.plan))
	if older := c.op; older != nil && !older.unstoppable() {
		older.end(errSuperseded)
		older.leadThrough()
		op.moved, op.heir = older.moved, older.asked || older.heir
		if !op.plan.setsMode && op.plan.arm != nil && *op.plan.arm {
			c.op = op // it replaces nothing: the older one takes its steps back first
			op.await(time.Now().Add(giveUp), func() bool { return !slices.Contains(c.running, older) })
			if op.gone != nil { // a newer one has come, or a pilot
				return
			}
		}
	}
	c.op, op.began, op.from = op, time.Now(), c.machine.raw.custom
	c.begun = op.began
	c.machine.begin(sent)
}

// leadThrough makes the stick mode that the plan led through the mode: a plan
// that ends after it leaves the drone there (rule 5), unless somebody took it.
func (op *operation) leadThrough() {
	if op.through == nil || code(op.gone) == codeInterrupted {
		return
	}
	mode, _ := op.by.acks.vendor().reported(op.through.number)
	op.by.machine.accept(order{mode: mode, numbers: []uint32{op.through.number}}, time.Now())
	op.through = nil
}

// carryOut sends the steps.
func (op *operation) carryOut() (answer, error) {
	c := op.by
	if err := op.over(); err != nil {
		return answer{}, op.fail(0, 0, err)
	}
	if err := c.owner.prepare(op); err != nil {
		return answer{}, op.fail(0, 0, err)
	}
	for i := range op.plan.steps {
		s := &op.plan.steps[i]
		if err := op.approach(i); err != nil {
			return answer{}, op.fail(i, 0, err)
		}
		c.owner.sends(op, i)
		before := len(c.machine.plan)
		result, err := op.transact(s)
		if err == nil {
			op.asked = false
		}
		refused := err != nil || result != uint8(common.MAV_RESULT_ACCEPTED)
		if refused && s.wish && (err == nil || isNoAck(err)) {
			slog.Warn("a goto goes on without one of its wishes", "what", commandName(s), "answer", inWords(result, err))
			continue
		}
		if refused && err == nil && s.through { // there is no position: it goes on, its sticks standing
			continue
		}
		if refused {
			if err == nil && s.enters {
				c.machine.refused(s.number, before)
			}
			return answer{}, op.fail(i, result, err)
		}
		op.accepted = uint16(s.cmd)
		op.moved = op.moved || s.moves()
		if s.through {
			op.through = s
		}
		c.owner.follow(op, s)
	}
	if err := op.show(); err != nil {
		return answer{}, op.fail(len(op.plan.steps), 0, err)
	}
	return op.accept(), nil
}

// approach waits until step i may be sent: for the sticks, for the gap between
// two mode changes and, where no client asked for it at this very moment, for a
// heartbeat that its plan explains (rule 8a).
func (op *operation) approach(i int) error {
	c, s := op.by, &op.plan.steps[i]
	waited := op.own || i > 0 || time.Since(op.came) > atOnce
	for {
		at := c.owner.ready(s)
		if s.enters && at.Before(c.acks.modeAt) {
			at = c.acks.modeAt
		}
		if !time.Now().Before(at) {
			break
		}
		waited = true
		if err := op.sleep(at); err != nil {
			return err
		}
	}
	if waited {
		if err := op.look(i); err != nil {
			return err
		}
		op.replan(i)
	}
	if op.disarmed && (s.arms() || op.plan.target != nil) {
		return errDisarmed
	}
	if op.strayed && (i > 0 || s.arms()) {
		return c.interrupted()
	}
	return op.over()
}

// replan plans a goto anew that waited for its sticks: the place that it may keep is
// where the vehicle is now, not where it was when it was asked.
func (op *operation) replan(i int) {
	if op.plan.steps[i].sticks != sticksStill || !op.request.goTo {
		return
	}
	if p, err := op.make(); err == nil && len(p.steps) == len(op.plan.steps)-i {
		copy(op.plan.steps[i:], p.steps)
		op.plan.target, op.plan.amsl = p.target, p.amsl
	}
}

// look asks for a heartbeat before step i, and waits until it shows the mode of
// the step before.
func (op *operation) look(i int) error {
	c, s := op.by, &op.plan.steps[i]
	began, within := time.Now(), lookWithin
	if s.enters && op.plan.order.mode == ModeLand && !op.plan.order.transit {
		within = landWithin
	}
	for {
		err := op.ask(began.Add(within))
		if errors.Is(err, errTimeout) {
			if within == landWithin {
				return nil
			}
			return refuse(codeNoAck, "the autopilot did not answer; %s was not sent", commandName(s))
		}
		if err != nil {
			return err
		}
		before := i > 0 && op.plan.steps[i-1].enters
		if !before || c.machine.raw.custom == op.plan.steps[i-1].number || time.Since(began) >= stepShows {
			return nil
		}
		if err := op.sleep(time.Now().Add(showEvery)); err != nil {
			return err
		}
	}
}

// show waits until the heartbeat shows what was acknowledged (rule 8b). Where it
// does not in time, the ack stands alone.
func (op *operation) show() error {
	c, p := op.by, &op.plan
	shown := func() bool {
		r := c.machine.raw
		// A takeoff may be over already, but for one that began in the mode it ends in.
		over := p.order.end != 0 && p.order.end == r.custom && r.amsl >= p.order.endAMSL && op.from != r.custom
		mode := !p.setsMode || over || slices.Contains(p.order.numbers, r.custom)
		return mode && (p.arm == nil || r.armed == *p.arm)
	}
	until := time.Now().Add(max(showWithin, 3*c.acks.trip))
	for !shown() && time.Now().Before(until) {
		next := time.Now().Add(showEvery)
		if err := unlessLate(op.ask(until)); err != nil {
			return err
		}
		if shown() {
			break
		}
		if err := unlessLate(op.await(next, shown)); err != nil {
			return err
		}
	}
	if op.disarmed && p.arm != nil && *p.arm {
		return errDisarmed
	}
	return op.over()
}

// accept makes the plan's mode the mode, and what it does the manoeuvre.
func (op *operation) accept() answer {
	c, p := op.by, &op.plan
	if !p.setsMode {
		switch taken := c.op == op && c.machine.acceptArm(*p.arm); {
		case taken && *p.arm: // the plan whose place it took has led there
			c.abandon("another command was carried out: it is in %s", c.machine.mode)
		case taken:
			c.abandon("the vehicle was disarmed")
		}
		return answer{op.accepted, c.machine.mode, doneAtOnce()}
	}
	c.machine.accept(p.order, time.Now())
	if op.leg != nil {
		op.leg.second = true
		return answer{op.accepted, c.machine.mode, op.leg}
	}
	c.replace(op)
	return answer{op.accepted, c.machine.mode, c.man}
}

// fail ends an operation whose step i was refused, never acknowledged or never
// sent: it takes the earlier steps back and says why.
func (op *operation) fail(i int, result uint8, err error) error {
	c := op.by
	op.leadThrough()
	switch {
	case c.stopped:
		return err
	case err == nil || isNoAck(err):
	case op.gone != nil: // nothing more is sent after a pilot's switch, nor before a mode that replaces this one
		if code(op.gone) != codeSuperseded || op.replaced {
			return err
		}
	}
	at := time.Now()
	op.takeBack(i, err)
	if err != nil {
		return err
	}
	return c.owner.refusal(op, &op.plan.steps[i], result, at)
}

// takeBack undoes the steps before step i, and i where it may have happened, in
// the reverse order, while the last report is one that the plan explains and no
// newer plan sets a mode.
func (op *operation) takeBack(i int, err error) {
	undo := op.plan.steps[:min(i, len(op.plan.steps))]
	if isNoAck(err) && i > 0 && i < len(op.plan.steps) && op.asked {
		undo = op.plan.steps[:i+1]
	}
	op.cleaning = true
	defer func() { op.cleaning = false }()
	lost := func() bool { return op.taken || op.replaced }
	for _, s := range slices.Backward(undo) {
		if s.undo == nil || s.through {
			continue
		}
		if lost() || op.ask(time.Now().Add(lookWithin)) != nil || lost() {
			return
		}
		if r, uerr := op.transact(s.undo); uerr != nil || r != 0 {
			slog.Warn("a refused command could not be taken back", "what", commandName(s.undo), "answer", inWords(r, uerr))
			if s.wish {
				continue
			}
			return // it may fly: the mode it has is better than the one before
		}
		op.by.owner.follow(op, s.undo)
	}
	op.undone, op.asked = true, false
}
