package main

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of a plan (docs/design.md, rule 8 and "The newest command wins").
const (
	planEvery   = 100 * time.Millisecond // at most one plan begins in it
	modeGap     = 20 * time.Millisecond  // after the ack of the mode change before
	modeUnacked = 100 * time.Millisecond // after its last copy, where none came
	lookWithin  = time.Second            // the heartbeat before what nobody asked for at this moment
	landWithin  = 100 * time.Millisecond // the same before a landing
	stepShows   = 300 * time.Millisecond // the mode of a step, before the next one
	showWithin  = 500 * time.Millisecond // the mode, after the last ack; or three round trips
	showEvery   = 20 * time.Millisecond  // between two looks
)

// commander carries plans out, one at a time: sends their steps, waits for the
// acks, repeats, takes back; the newest plan wins. Everything in it happens
// under the mutex of the one who has it, which await gives up while it waits.
type commander struct {
	mu      sync.Locker
	acks    *acks
	machine *machine
	owner

	op      *operation    // is carried out
	running []*operation  // it, older ones that take their steps back, and disarmings
	next    *operation    // waits for its turn
	begun   time.Time     // when the last plan began
	modeAt  time.Time     // not before it another mode change
	man     *manoeuvre    // what the last accepted plan is doing
	bell    chan struct{} // closed when something came that one may wait for
	stopped bool          // the program ends
}

// owner is what only the commander's owner knows.
type owner struct {
	ready   func(s *step) time.Time      // when the sticks let a step go
	prepare func(op *operation) error    // before the first step of a plan
	knock   func()                       // right before its first command
	follow  func(op *operation, s *step) // after an accepted step
	closing func(op *operation, err error)
	refusal func(op *operation, s *step, result uint8, at time.Time) error
}

// ring wakes those who wait.
func (c *commander) ring() {
	if c.bell != nil {
		close(c.bell)
		c.bell = nil
	}
}

// operation is a plan on its way.
type operation struct {
	by      *commander
	request request
	make    func() (plan, error) // plans anew, when it is its turn
	plan    plan
	own     bool       // nobody asks for it at this moment: a second leg, mavrest's own hold
	leg     *manoeuvre // that it is the second leg of
	last    time.Time  // the end of one that goes out while the program ends
	came    time.Time
	began   time.Time // when its first step was due

	gone     error // what ended it: a newer command, a pilot, a failsafe
	cleaning bool  // it takes its steps back
	taken    bool  // a report came that it does not explain
	strayed  bool  // it came disarmed
	disarmed bool  // a report went from armed to disarmed
	through  *step // the way out of a stick mode that it led through
	accepted uint16
	moved    bool // a step was accepted that moves the vehicle
	asked    bool // one was sent and is not answered: it may have been carried out
	ended    chan struct{}
	result   outcome // once ended
}

// outcome is what a command is told.
type outcome struct {
	answer answer
	err    error
}

// answer is what an accepted command is told: the number of the last command
// acknowledged, the mode it led to, and what is to be watched to its end.
type answer struct {
	command   uint16
	mode      Mode
	manoeuvre *manoeuvre
}

var (
	errStopping = &commandError{code: codeOffline, text: "mavrest is shutting down"}
	errTimeout  = errors.New("in time nothing came")
)

// superseded is what the loser of two commands is told.
func superseded() error {
	return refuse(codeSuperseded, "a newer command took this one's place")
}

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

// unstoppable reports whether nothing supersedes it: disarming.
func (op *operation) unstoppable() bool {
	return !op.plan.setsMode && op.plan.arm != nil && !*op.plan.arm
}

// do carries a request out and returns when the autopilot has acknowledged every
// step of it and shows its mode, or has refused one: then the error is a
// *commandError. A landing like one that is not acknowledged yet joins it.
func (c *commander) do(r request, make_ func() (plan, error)) outcome {
	for _, other := range []*operation{c.op, c.next} {
		if other != nil && r.setMode && r.mode == ModeLand && !other.own && other.gone == nil && reflect.DeepEqual(other.request, r) {
			c.mu.Unlock()
			<-other.ended
			c.mu.Lock()
			return other.result
		}
	}
	op := &operation{by: c, request: r, make: make_, came: time.Now(), ended: make(chan struct{})}
	return op.run()
}

// doOwn carries out what no client asks for at this moment, unless one does. leg
// is the manoeuvre that it is the second leg of, or nil.
func (c *commander) doOwn(p plan, r request, leg *manoeuvre) outcome {
	if c.op != nil || c.next != nil || c.stopped {
		return outcome{err: superseded()}
	}
	op := &operation{
		by: c, request: r, own: true, leg: leg, came: time.Now(), ended: make(chan struct{}),
		make: func() (plan, error) { return p, nil },
	}
	return op.run()
}

// run is an operation from its turn to its end.
func (op *operation) run() outcome {
	c := op.by
	ans, err := answer{}, op.takeTurn()
	if err == nil {
		ans, err = op.carryOut()
		c.running = slices.DeleteFunc(c.running, func(o *operation) bool { return o == op })
		c.closing(op, err)
		if c.op == op {
			c.op = nil
		}
	} else if c.next == op {
		c.next = nil
	}
	op.result = outcome{ans, err}
	close(op.ended)
	c.ring()
	return op.result
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
		c.next.end(superseded())
	}
	c.next = op
	waits := func() bool { return c.op != nil && c.op.unstoppable() && !op.plan.urgent }
	if at := c.begun.Add(planEvery); !op.plan.urgent && time.Now().Before(at) {
		if err := op.await(at, nil); !errors.Is(err, errTimeout) {
			return err
		}
	}
	if waits() {
		if err := op.await(time.Now().Add(lookWithin), func() bool { return !waits() }); err != nil && !errors.Is(err, errTimeout) {
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
	c.running = append(c.running, op)
	var sent []uint32
	if len(c.machine.plan) > 1 { // but not the mode that it began in
		sent = slices.Clone(c.machine.plan[1:])
	}
	if older := c.op; older != nil && !older.unstoppable() {
		older.end(superseded())
		older.leadThrough()
		op.moved, op.asked = older.moved, older.asked
		if !op.plan.setsMode && op.plan.arm != nil && *op.plan.arm {
			op.after(older)
		}
	}
	c.op, op.began = op, time.Now()
	c.begun = op.began
	c.machine.begin(sent)
}

// after waits until the older plan, which this one does not replace, has taken
// its steps back.
func (op *operation) after(older *operation) {
	op.by.op = op
	op.await(time.Now().Add(giveUp), func() bool {
		select {
		case <-older.ended:
			return true
		default:
			return false
		}
	})
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
	if err := c.prepare(op); err != nil {
		return answer{}, op.fail(0, 0, err)
	}
	for i := range op.plan.steps {
		s := &op.plan.steps[i]
		if err := op.approach(i); err != nil {
			return answer{}, op.fail(i, 0, err)
		}
		if i == 0 {
			c.knock()
		}
		result, err := op.transact(s)
		if err == nil {
			op.asked = false
		}
		refused := err != nil || result != uint8(common.MAV_RESULT_ACCEPTED)
		if refused && s.wish && (err == nil || isNoAck(err)) {
			slog.Warn("a goto goes on without one of its wishes", "what", commandName(s), "answer", inWords(result, err))
			continue
		}
		if refused {
			return answer{}, op.fail(i, result, err)
		}
		op.accepted = uint16(s.cmd)
		op.moved = op.moved || s.moves()
		if s.through {
			op.through = s
		}
		c.follow(op, s)
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
	waited := op.own || i > 0 || op.began.Sub(op.came) > 0
	for {
		at := c.ready(s)
		if s.enters && at.Before(c.modeAt) {
			at = c.modeAt
		}
		if !time.Now().Before(at) {
			break
		}
		waited = true
		if err := op.await(at, nil); !errors.Is(err, errTimeout) {
			return err
		}
	}
	if waited {
		if err := op.look(i); err != nil {
			return err
		}
	}
	arming, on := s.arms()
	arming = arming && on
	if op.strayed && i > 0 || arming && (op.strayed || op.disarmed) {
		return op.interrupted()
	}
	return op.await(time.Now(), func() bool { return true })
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
			return &commandError{code: codeNoAck, command: uint16(s.cmd),
				text: fmt.Sprintf("the autopilot did not answer; %s was not sent", commandName(s))}
		}
		if err != nil {
			return err
		}
		before := i > 0 && op.plan.steps[i-1].enters
		if !before || c.machine.raw.custom == op.plan.steps[i-1].number || time.Since(began) >= stepShows {
			return nil
		}
		if err := op.await(time.Now().Add(showEvery), nil); !errors.Is(err, errTimeout) {
			return err
		}
	}
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

// show waits until the heartbeat shows what was acknowledged (rule 8b). Where it
// does not in time, the ack stands alone.
func (op *operation) show() error {
	c, p := op.by, &op.plan
	shown := func() bool {
		r := c.machine.raw
		mode := !p.setsMode || slices.Contains(p.order.numbers, r.custom) || p.order.end != 0 && p.order.end == r.custom
		return mode && (p.arm == nil || r.armed == *p.arm)
	}
	until := time.Now().Add(max(showWithin, 3*c.acks.trip))
	for !shown() && time.Now().Before(until) {
		next := time.Now().Add(showEvery)
		if err := op.ask(until); err != nil && !errors.Is(err, errTimeout) {
			return err
		}
		if shown() {
			break
		}
		if err := op.await(next, shown); err != nil && !errors.Is(err, errTimeout) {
			return err
		}
	}
	return op.await(time.Now(), func() bool { return true })
}

// accept makes the plan's mode the mode, and what it does the manoeuvre.
func (op *operation) accept() answer {
	c, p := op.by, &op.plan
	if !p.setsMode {
		if c.op == op {
			c.machine.acceptArm(*p.arm)
		}
		return answer{op.accepted, c.machine.mode, doneAtOnce(p)}
	}
	c.machine.accept(p.order, time.Now())
	if op.leg != nil {
		op.leg.second = true
		return answer{op.accepted, c.machine.mode, op.leg}
	}
	c.replace(op)
	return answer{op.accepted, c.machine.mode, c.man}
}

// interrupted is the end of a plan that the drone was taken from: by a pilot, a
// failsafe, or a return that was asked for here and never answered.
func (op *operation) interrupted() error {
	c := op.by
	_, name := c.acks.vendor().reported(c.machine.raw.custom)
	return refuse(codeInterrupted, "something else took the drone (a pilot, a failsafe, or a command that was never answered): it is in %s; nothing more was sent", name)
}

// took ends what is under way after a report that nothing here explains.
func (c *commander) took(armed bool) {
	for _, op := range c.running {
		op.taken = true
		if armed {
			op.end(op.interrupted())
		} else {
			op.strayed = true
		}
	}
	if c.next != nil && armed {
		c.next.end(c.next.interrupted())
	}
}

// disarmed says that the vehicle was disarmed: what arms it must be asked for anew.
func (c *commander) disarmed() {
	for _, op := range append(c.running[:len(c.running):len(c.running)], c.next) {
		if op != nil {
			op.disarmed = true
		}
	}
}

// stop ends everything that waits, and lets nothing new begin.
func (c *commander) stop() {
	c.stopped = true
	if c.man != nil {
		c.man.finish(errStopping)
	}
	c.ring()
}
