package main

import (
	"cmp"
	"sync"
	"time"
)

// Times of a plan (docs/design.md, rule 8 and "The newest command wins").
const (
	planEvery  = 100 * time.Millisecond // at most one plan begins in it
	atOnce     = 10 * time.Millisecond  // a plan that goes out in it did not wait
	lookWithin = time.Second            // the heartbeat before what nobody asked for at this moment
	landWithin = 100 * time.Millisecond // the same before a landing
	stepShows  = 300 * time.Millisecond // the mode of a step, before the next one
	showWithin = 500 * time.Millisecond // the mode, after the last ack; or three round trips
	showEvery  = 20 * time.Millisecond  // between two looks
)

// commander carries plans out, one at a time: sends their steps, waits for the
// acks, repeats, takes back; the newest plan wins. Everything in it happens
// under the mutex of the one who has it, which await gives up while it waits.
type commander struct {
	mu      sync.Locker
	acks    *acks
	machine *machine
	owner   owner

	op      *operation   // is carried out
	running []*operation // it, older ones that take their steps back, and disarmings
	next    *operation   // waits for its turn
	begun   time.Time    // when the last plan began
	man     *manoeuvre   // what the last accepted plan is doing
	goodbye *talk        // when the program ends in the air after sticks
	bell    bell         // rings when something came that one may wait for
	stopped bool         // the program ends
}

// owner is whom a commander works for: it knows the sticks, the parameters and
// what the vehicle says.
type owner interface {
	ready(s *step) time.Time          // when the sticks let a step go
	prepare(op *operation) error      // before the first step of a plan
	sends(op *operation, i int)       // right before step i
	follow(op *operation, s *step)    // after an accepted step
	closing(op *operation, err error) // after a plan, accepted or not
	refusal(op *operation, s *step, result uint8, at time.Time) error
}

// bell wakes all that wait for it.
type bell struct{ rings chan struct{} }

// wait returns a channel that is closed when the bell rings next.
func (b *bell) wait() <-chan struct{} {
	if b.rings == nil {
		b.rings = make(chan struct{})
	}
	return b.rings
}

func (b *bell) ring() {
	if b.rings != nil {
		close(b.rings)
		b.rings = nil
	}
}

// answer is what an accepted command is told: the number of the last command
// acknowledged, the mode it led to, and what is to be watched to its end.
type answer struct {
	command   uint16
	mode      Mode
	manoeuvre *manoeuvre
}

var (
	errStopping   = refuse(codeOffline, "mavrest is shutting down")
	errSuperseded = refuse(codeSuperseded, "a newer command took this one's place")
)

// do carries a request out and returns when the autopilot has acknowledged every
// step of it and shows its mode, or has refused one: then the error is a
// *commandError. A landing joins the newest command if that is the same and not
// answered yet.
func (c *commander) do(r request, make_ func() (plan, error)) (answer, error) {
	if newest := cmp.Or(c.next, c.op); newest != nil && newest.takesIn(r) {
		c.mu.Unlock()
		<-newest.ended
		c.mu.Lock()
		return newest.answer, newest.err
	}
	op := &operation{talk: talk{by: c}, request: r, make: make_, came: time.Now(), ended: make(chan struct{})}
	return op.run()
}

// idle reports whether nothing is under way, and something may be.
func (c *commander) idle() bool { return c.op == nil && c.next == nil && !c.stopped }

// doOwn carries out what no client asks for at this moment, unless one does. leg
// is the manoeuvre that it is the second leg of, or nil.
func (c *commander) doOwn(p plan, r request, leg *manoeuvre) (answer, error) {
	if !c.idle() {
		return answer{}, errSuperseded
	}
	op := &operation{
		talk: talk{by: c, own: true, leg: leg}, request: r, came: time.Now(), ended: make(chan struct{}),
		make: func() (plan, error) { return p, nil },
	}
	return op.run()
}

// interrupted is the end of a plan that the drone was taken from: by a pilot, a
// failsafe, or a return that was asked for here and never answered.
func (c *commander) interrupted() error {
	_, name := c.acks.vendor().reported(c.machine.raw.custom)
	return refuse(codeInterrupted, "something else took the drone (a pilot, a failsafe, or a command that was never answered): it is in %s; nothing more was sent", name)
}

// took ends what is under way after a report that nothing here explains.
func (c *commander) took(armed bool) {
	stray := func(t *talk) {
		if armed {
			t.end(c.interrupted())
		} else {
			t.strayed = true
		}
	}
	for _, op := range c.running {
		op.taken = true
		stray(&op.talk)
	}
	if c.next != nil { // it is planned anew when it is its turn
		stray(&c.next.talk)
	}
	if c.goodbye != nil {
		stray(c.goodbye)
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
	c.bell.ring()
}
