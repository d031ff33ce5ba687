package main

import (
	"errors"
	"reflect"
	"sync"
	"time"
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
