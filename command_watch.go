package main

import (
	"math"
	"reflect"
	"time"
)

// When a manoeuvre is complete (docs/design.md, rule 9).
const (
	watchEvery = 200 * time.Millisecond
	atPlace    = 2.0 // m over ground
	atHeight   = 1.0 // m
	atHeading  = 10.0
	slowly     = 1.0 // m/s
	still      = 0.5 // m/s
	nearPlace  = 5.0 // m: the wind may keep it there
	nearFor    = 5 * time.Second
	targetOff  = 5.0 // m: then the autopilot's target is not ours
	landAgain  = time.Second
)

// sighting is what the vehicle shows of itself at a moment, and where it says that
// it flies to. What is not fresh is unknown.
type sighting struct {
	vehicle
	now time.Time
	to  point
}

// manoeuvre is what the last accepted command is doing, watched to its end.
type manoeuvre struct {
	request  request
	plan     plan
	at       time.Time // when it was accepted
	done     bool
	why      error // what else ended it
	over     chan struct{}
	failsafe bool // one that was there already
	armed    bool // the vehicle was, since

	near    time.Time // since when a landing's place is near
	second  bool      // its second leg is under way, or acknowledged
	tried   time.Time // when the second leg was sent last
	strange int       // targets in a row that are not ours
	target  time.Time // of the last one that was looked at
}

// doneAtOnce is the manoeuvre of a plan that has nothing to wait for.
func doneAtOnce() *manoeuvre {
	m := &manoeuvre{at: time.Now(), over: make(chan struct{}), done: true}
	close(m.over)
	return m
}

// replace makes an accepted operation's plan the manoeuvre. One that is equal
// goes on: those who wait for it wait on.
func (c *commander) replace(op *operation) {
	now := time.Now()
	if m := c.man; m != nil && !m.finished() && reflect.DeepEqual(m.request, op.request) {
		m.plan, m.at, m.second, m.near = op.plan, now, false, time.Time{}
		return
	} else if m != nil {
		m.finish(errSuperseded)
	}
	if op.request.mode.flownBySticks() {
		c.man = doneAtOnce()
		return
	}
	c.man = &manoeuvre{request: op.request, plan: op.plan, at: now, over: make(chan struct{})}
}

func (m *manoeuvre) finished() bool { return m.done || m.why != nil }

// finish ends it; a nil why is that it is complete.
func (m *manoeuvre) finish(why error) {
	if m.finished() {
		return
	}
	m.done, m.why = why == nil, why
	close(m.over)
}

// abandon ends the manoeuvre for a reason that a person can act on, and forgets
// it: the mode is no longer a commanded one.
func (c *commander) abandon(format string, args ...any) {
	if c.man != nil {
		c.man.finish(refuse(codeInterrupted, format, args...))
		c.man = nil
	}
}

// transit reports whether a landing is still on its way to its place.
func (c *commander) transit() bool {
	return c.man != nil && c.man.plan.second != nil && !c.man.second && !c.man.finished()
}

// watch looks at the manoeuvre, and tells what became of it: whether a landing
// is there and its second leg is due, and whether something took the drone.
func (m *manoeuvre) watch(s sighting) (land bool, taken string) {
	if m.finished() {
		return false, ""
	}
	if s.failsafe && !m.failsafe && s.armed {
		return false, "a failsafe ended it"
	}
	m.failsafe = s.failsafe
	if m.armed && !s.armed && (m.request.mode == ModeTakeoff || m.request.goTo) {
		return false, "the vehicle was disarmed"
	}
	m.armed = m.armed || s.armed
	if s.armed && m.strangeTarget(s) {
		return false, "the autopilot flies to another place"
	}
	switch {
	case m.plan.second != nil && !m.second:
		if !s.armed {
			return false, "it was disarmed on the way"
		}
		return m.arrived(s), ""
	case m.complete(s):
		m.finish(nil)
	}
	return false, ""
}

// strangeTarget reports whether the autopilot told twice in a row that it flies
// to a place that is not ours: a pilot's own Hold on PX4 changes nothing else.
func (m *manoeuvre) strangeTarget(s sighting) bool {
	t := m.plan.target
	if t == nil || math.IsNaN(t.lat) || m.second || !s.to.at.After(m.at) || s.to.at.Equal(m.target) {
		return false
	}
	m.target = s.to.at
	away := distance(s.to.lat, s.to.lon, t.lat, t.lon)
	if !(away > targetOff) && !(math.Abs(s.to.amsl-m.plan.amsl) > targetOff) {
		m.strange = 0
		return false
	}
	m.strange++
	return m.strange >= 2
}

func (m *manoeuvre) arrived(s sighting) bool {
	t := m.plan.target
	away := distance(s.at.lat, s.at.lon, t.lat, t.lon)
	if !(away <= nearPlace && s.speed() < slowly) { // NaN is not near
		m.near = time.Time{}
		return false
	}
	if m.near.IsZero() {
		m.near = s.now
	}
	return (away <= atPlace || s.now.Sub(m.near) >= nearFor) && s.now.Sub(m.tried) >= landAgain
}

func (s sighting) speed() float64 { return math.Hypot(s.velocity.north, s.velocity.east) }

// complete reports whether the manoeuvre is complete, by what came since it was
// accepted. An unknown number is never near.
func (m *manoeuvre) complete(s sighting) bool {
	t := m.plan.target
	switch m.request.mode {
	case ModeTakeoff:
		if !s.landed.inAir() || !(math.Abs(s.velocity.down) < still) {
			return false
		}
		if t == nil { // a fixed wing climbs to its own altitude
			return true
		}
		near := max(min(1, t.altitude/2), t.altitude/20)
		return m.height(s) <= near
	case ModeHold:
		if m.request.goTo {
			facing := math.IsNaN(m.plan.facing) || math.Abs(math.Remainder(s.heading-m.plan.facing, 360)) <= atHeading
			return distance(s.at.lat, s.at.lon, t.lat, t.lon) <= atPlace && m.height(s) <= atHeight &&
				math.Hypot(s.speed(), s.velocity.down) < slowly && facing
		}
		return !s.armed || math.Hypot(s.speed(), s.velocity.down) < still
	case ModeLand, ModeRTL, ModeRTGS:
		return !s.armed
	}
	return true
}

// height is how far the vehicle is from the target's height. Where the autopilot
// was told metres above the sea, home's later corrections change nothing.
func (m *manoeuvre) height(s sighting) float64 {
	if off := math.Abs(s.amsl - m.plan.amsl); !math.IsNaN(off) {
		return off
	}
	return math.Abs(s.at.altitude - m.plan.target.altitude)
}

// notDone is the answer to a wait whose time is over.
func notDone(m *manoeuvre, waited time.Duration) error {
	what := m.request.mode.String()
	if m.request.goTo {
		what = "goto"
	}
	return refuse(codeNotDone, "%s was accepted and is under way, but not complete after %.3g s", what, waited.Seconds())
}
