package main

import (
	"math"
	"time"
)

// When a manoeuvre is complete (docs/design.md, rule 8).
const (
	watchEvery = 200 * time.Millisecond
	atPlace    = 2.0  // m over ground
	atHeight   = 1.0  // m
	atHeading  = 10.0 // degrees
	slowly     = 1.0  // m/s
	still      = 0.5  // m/s
	nearPlace  = 5.0  // m: the wind may keep a drone this far off, for nearFor
	nearFor    = 5 * time.Second
	targetOff  = 5.0             // m: an autopilot's target further off than this is strange: not ours
	targetNew  = time.Second     // for this long the old target may still show; a strange one must last as long
	targetSoon = 3 * time.Second // a strange target this soon after the acceptance answers the command
	wingRadii  = 1.5             // a fixed wing within this many radii of its circle has arrived
	wingHeight = 5.0             // m: TECS keeps a height less exactly than a hover
)

// manoeuvre is what the last accepted command leads to, watched to its end.
type manoeuvre struct {
	request request
	plan    plan
	at      time.Time // when it was accepted
	done    bool
	why     error         // what ended it before it was complete; nil: nothing
	over    chan struct{} // closed when it is finished

	anyHeading bool // a goto is complete with any heading: its own was refused

	near    time.Time // since when a landing's place is near
	tried   time.Time // when the second leg was last begun
	strange time.Time // since when the autopilot's target is another place
}

// newManoeuvre begins a manoeuvre now. It is complete at once where there is nothing to wait for.
func newManoeuvre(r request, p plan) *manoeuvre {
	m := &manoeuvre{request: r, plan: p, at: time.Now(), over: make(chan struct{})}
	if !r.setMode || r.entersSticks() {
		m.finish(nil)
	}
	return m
}

func (m *manoeuvre) finished() bool { return m.done || m.why != nil }

// finish ends it; a nil why says that it is complete.
func (m *manoeuvre) finish(why error) {
	if m.finished() {
		return
	}
	m.done, m.why = why == nil, why
	close(m.over)
}

// watch judges the manoeuvre by what the vehicle shows. land means that the second leg of a
// landing is due; lost is why the manoeuvre is to be abandoned, "" if it is not.
func (m *manoeuvre) watch(v view) (land bool, lost string) {
	switch {
	case m.finished():
	case !v.armed && (m.request.mode == ModeTakeoff || m.request.goTo || m.plan.second != nil):
		lost = "the vehicle was disarmed"
	case m.strangeTarget(v):
		lost = "the autopilot flies to another place"
	case m.plan.second != nil:
		land = m.arrived(v)
	case m.complete(v):
		m.finish(nil)
	}
	return land, lost
}

// strangeTarget reports whether the autopilot has reported another target than ours for
// targetNew. Right after the acceptance it may still report the old one.
func (m *manoeuvre) strangeTarget(v view) bool {
	ours, its := m.plan.target, v.target
	if ours == nil || math.IsNaN(ours.lat) || !its.at.After(m.at.Add(targetNew)) {
		return false
	}
	away := distance(its.lat, its.lon, ours.lat, ours.lon)
	strange := away > targetOff || math.Abs(its.amsl-ours.amsl) > targetOff
	return lasts(&m.strange, strange, its.at) >= targetNew
}

// lasts is how long a condition has been true at now, −1 if it is false. since remembers when it
// became true; it is zero while the condition is false.
func lasts(since *time.Time, is bool, now time.Time) time.Duration {
	switch {
	case !is:
		*since = time.Time{}
		return -1
	case since.IsZero():
		*since = now
	}
	return now.Sub(*since)
}

// lostAt is the time of the interruption, for a manoeuvre that is abandoned now. A target that was strange
// from the start is the autopilot's answer to the command: then it is the time of the acceptance.
func (m *manoeuvre) lostAt(now time.Time) time.Time {
	if !m.strange.IsZero() && m.strange.Sub(m.at) < targetSoon {
		return m.at
	}
	return now
}

// arrived reports whether the second leg of a landing is due: over the place, or near it for
// nearFor, and not tried a moment ago.
func (m *manoeuvre) arrived(v view) bool {
	t := m.plan.target
	away := distance(v.place.lat, v.place.lon, t.lat, t.lon)
	stayed := lasts(&m.near, away <= nearPlace && v.groundSpeed() < slowly, v.now) // NaN is not near
	return (stayed >= 0 && away <= atPlace || stayed >= nearFor) && v.now.Sub(m.tried) >= ownAgain
}

func (v view) groundSpeed() float64 { return math.Hypot(v.velocity.north, v.velocity.east) }

// complete reports whether the manoeuvre is complete, by what came since it was accepted. An
// unknown number (NaN) completes nothing.
func (m *manoeuvre) complete(v view) bool {
	t, speed := m.plan.target, math.Hypot(v.groundSpeed(), v.velocity.down)
	switch m.request.mode {
	case ModeTakeoff:
		if v.firmware == plane { // it is reported in the air on the ground roll already, so its height decides
			return v.landed.inAir() && v.place.altitude >= t.altitude-max(2, t.altitude/10)
		}
		allowed := max(min(1, t.altitude/2), t.altitude/20) // 5 %, at least 1 m; below 2 m half the height
		return v.landed.inAir() && math.Abs(v.velocity.down) < still && m.heightOff(v) <= allowed
	case ModeHold:
		there := t == nil || distance(v.place.lat, v.place.lon, t.lat, t.lon) <= atPlace
		if !m.request.goTo { // slow is not enough: a QuadPlane overshoots its place, and is slow where it turns back
			return !v.armed || v.circle() > 0 || speed < still && there
		}
		if v.circle() > 0 {
			return v.circlesAt(t.lat, t.lon) && m.heightOff(v) <= wingHeight
		}
		heading := m.request.heading
		facing := heading == nil || m.anyHeading || math.Abs(math.Remainder(v.heading-*heading, 360)) <= atHeading
		return there && m.heightOff(v) <= atHeight && speed < slowly && facing
	case ModeRTL, ModeRTGS: // a plane circles over home
		if v.firmware == plane && v.landed.inAir() && v.circlesAt(v.home.lat, v.home.lon) {
			return true
		}
	}
	return !v.armed
}

// circlesAt reports whether a fixed wing is at a place, as near as it ever gets.
func (v view) circlesAt(lat, lon float64) bool {
	return distance(v.place.lat, v.place.lon, lat, lon) <= wingRadii*v.circle()
}

// heightOff is how far the vehicle is from the target's height. It compares metres above the sea if
// both are known: later corrections of home then change nothing.
func (m *manoeuvre) heightOff(v view) float64 {
	if off := math.Abs(v.place.amsl - m.plan.target.amsl); !math.IsNaN(off) {
		return off
	}
	return math.Abs(v.place.altitude - m.plan.target.altitude)
}

// notDone is the answer to a wait that is over before its manoeuvre is. unseen is why its
// progress is unknown; nil if it is known.
func notDone(m *manoeuvre, waited time.Duration, unseen error) error {
	what := m.request.name()
	if unseen != nil {
		return refuse(codeNotDone, "%s was accepted; whether it is complete after %.3g s is not known, because %s", what, waited.Seconds(), unseen)
	}
	return refuse(codeNotDone, "%s was accepted and is under way, but not complete after %.3g s", what, waited.Seconds())
}
