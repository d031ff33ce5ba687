package main

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// When a manoeuvre is complete (docs/design.md, rule 8).
const (
	watchEvery = 200 * time.Millisecond

	// atPlace, in metres over ground, is how near a place is reached.
	atPlace = 2.0

	// atHeading is the same of a heading, in degrees.
	atHeading = 10.0

	// slowly, in m/s, is the speed below which a place is reached.
	slowly = 1.0

	// nearPlace, in metres: the wind may keep a drone this far off a place, for nearFor.
	nearPlace = 5.0

	nearFor = 5 * time.Second

	// targetOff, in metres: an autopilot's target further off than this is strange, so it is not ours.
	targetOff = 5.0

	// targetNew is how long the old target may still show. A strange one must last as long.
	targetNew = time.Second

	// targetEvery is the time between two questions for the vehicle's target.
	targetEvery = time.Second

	// targetGone is how long what the vehicle says of its target must have been old (targetEnded).
	targetGone = 3 * time.Second

	// standsFor is how long a vehicle must have stood elsewhere than at its place: some turn before they fly.
	standsFor = 5 * time.Second

	// targetSoon: a strange target this soon after the acceptance answers the plan.
	targetSoon = 3 * time.Second

	// wingRadii: a fixed wing within this many radii of its circle has arrived.
	wingRadii = 1.5

	// homeFar, in metres: home that has moved further is worth a word.
	homeFar = 3.0

	// wingStays is how long a fixed wing must be there, because it may pass a place by chance.
	wingStays = time.Second
)

// manoeuvre is what the last accepted plan leads to, watched to its end.
type manoeuvre struct {
	request request
	plan    plan

	// at is when it was accepted.
	at time.Time

	done bool

	// note is what is to be said about its completion; "" for nothing.
	note string

	// why is what ended it before it was complete; nil: nothing.
	why error

	// over: closed when it is finished: drone.awaitEnd waits for it
	over chan struct{}

	// anyHeading: a goto is complete with any heading: its own was refused
	anyHeading bool

	// near is since when a landing's place is near; zero while it is not.
	near time.Time

	// circles is since when a vehicle on its wing circles its place; zero while it does not.
	circles time.Time

	// tried is when the second leg was last begun; zero if it never was.
	tried time.Time

	// strange is since when the autopilot's target is another place; zero while it is not.
	strange time.Time

	// gone is since when the autopilot has no target any more; zero while it has one.
	gone time.Time

	// stands is since when the vehicle stands still elsewhere than where it is to fly to; zero while it does not.
	stands time.Time

	// glitched is when its GPS last said that it is elsewhere; zero if it has not.
	glitched time.Time
}

// newManoeuvre begins a manoeuvre now. It is complete at once where there is nothing to wait for.
func newManoeuvre(r request, p plan) *manoeuvre {
	m := &manoeuvre{request: r, plan: p, at: time.Now(), over: make(chan struct{})}
	if !r.setsMode() || r.entersSticks() {
		m.finish(nil)
	}
	return m
}

// watch judges the manoeuvre by what the vehicle shows. land means that the second leg of a
// landing is due; lost is why the manoeuvre is to be abandoned, "" if it is not.
func (m *manoeuvre) watch(v view) (land bool, lost string) {
	if v.glitches {
		m.glitched = v.now
	}
	moves := v.groundSpeed() >= still || math.Abs(v.velocity.down) >= still
	lasts(&m.stands, !moves && m.short(v) != "", v.placeAt)
	switch {
	case m.finished():
	case !v.armed && (m.request.enters(ModeTakeoff) || m.request.verb == goesTo || m.plan.second != nil):
		lost = "the vehicle was disarmed"
	case m.strangeTarget(v):
		lost = "the autopilot flies to another place"
	case m.targetEnded(v):
		lost = "the autopilot flies to no place any more: another program flies it"
		if v.landed == onGround && !v.drives() {
			lost = "the vehicle stands on the ground, and a goto does not lift it: take off"
		}
	case m.plan.second != nil && v.circle() > 0:
		lost = "the vehicle has gone over to its wing and circles the place"
	case m.plan.second != nil:
		land = m.arrived(v)
	case m.complete(v):
		m.note = cmp.Or(m.homeMoved(v), m.maybeElsewhere(v))
		m.finish(nil)
	}
	return land, lost
}

// strangeTarget reports whether the autopilot has reported another target than ours for
// targetNew. Right after the acceptance it may still report the old one.
func (m *manoeuvre) strangeTarget(v view) bool {
	ours := m.plan.destination
	its := v.target
	if ours == nil || math.IsNaN(ours.lat) || !its.at.After(m.at.Add(targetNew)) {
		return false
	}
	away := distance(its.lat, its.lon, ours.lat, ours.lon)
	strange := away > targetOff || math.Abs(its.amsl-ours.amsl) > targetOff
	return lasts(&m.strange, strange, its.at) >= targetNew
}

// targetEnded reports whether the vehicle has said since the acceptance where it flies to, and says so no more. A
// Copter in GUIDED is so once another program flies it by velocities.
func (m *manoeuvre) targetEnded(v view) bool {
	its := v.target.at
	onWay := m.request.toPlace() && m.plan.destination != nil && v.shown() == ModeHold
	gone := onWay && its.After(m.at) && v.at.Sub(its) >= 2*targetEvery
	return lasts(&m.gone, gone, v.at) >= targetGone
}

// arrived reports whether the second leg of a landing is due: over the place, or near it for
// nearFor, and not tried a moment ago.
func (m *manoeuvre) arrived(v view) bool {
	t := m.plan.destination
	away := distance(v.place.lat, v.place.lon, t.lat, t.lon)

	// NaN is not near
	stayed := lasts(&m.near, away <= nearPlace && v.groundSpeed() < slowly, v.now)
	return ((stayed >= 0 && away <= atPlace) || stayed >= nearFor) && v.now.Sub(m.tried) >= ownAgain
}

// complete reports whether the manoeuvre is complete, by what came since it was accepted. An
// unknown number (NaN) completes nothing.
func (m *manoeuvre) complete(v view) bool {
	t := m.plan.destination
	speed := math.Hypot(v.groundSpeed(), v.velocity.down)
	switch m.request.leadsTo() {
	case ModeTakeoff:
		// A plane is reported in the air on its ground roll already, so its height decides.
		if v.onWing() {
			return v.leftGround() && m.below(v) <= m.heightSlack(v)
		}
		return v.leftGround() && math.Abs(v.velocity.down) < still && math.Abs(m.below(v)) <= m.heightSlack(v)
	case ModeHold:
		there := t == nil || distance(v.place.lat, v.place.lon, t.lat, t.lon) <= atPlace

		// Slow is not enough: a QuadPlane overshoots its place, and is slow where it turns back.
		if m.request.verb != goesTo {
			return m.atRest(v) || v.circle() > 0 || (speed < still && there)
		}
		if v.circle() > 0 {
			return m.circling(v, *t, v.circle())
		}
		heading := m.request.heading
		facing := heading == nil || m.anyHeading || math.Abs(math.Remainder(v.heading-*heading, 360)) <= atHeading
		return there && (v.drives() || math.Abs(m.below(v)) <= m.heightSlack(v)) && speed < slowly && facing
	case ModeRTL, ModeRTGS:
		// A plane circles over home, at the height of its own target.
		home := place{v.home.lat, v.home.lon, math.NaN(), v.target.amsl}
		if v.airframe() == fixedWing && v.landed.inAir() && m.circling(v, home, v.homeCircle()) {
			return true
		}
	}
	return m.atRest(v)
}

// circling reports whether a vehicle on its wing has circled a place for wingStays: it is as near as it ever gets,
// and its own target is that place. Without the target a place that is near by chance would count at once.
func (m *manoeuvre) circling(v view, at place, radius float64) bool {
	its := v.target
	aims := its.at.After(m.at) &&
		distance(its.lat, its.lon, at.lat, at.lon) <= targetOff &&
		math.Abs(its.amsl-at.amsl) <= targetOff

	near := distance(v.place.lat, v.place.lon, at.lat, at.lon) <= wingRadii*radius &&
		math.Abs(v.place.amsl-at.amsl) <= wingHeight

	return lasts(&m.circles, aims && near, v.now) >= wingStays
}

// atRest reports whether the vehicle is disarmed and stands. What drives may roll on. What flew is shown on the ground:
// it may have started again in flight, and its clock, which says so, comes before its landed state.
func (m *manoeuvre) atRest(v view) bool {
	stands := v.landed == onGround || !v.landedAt.After(m.at)
	if v.drives() {
		stands = v.groundSpeed() < still
	}
	return !v.armed && stands
}

// homeMoved says how far home has moved since a height above it was commanded, and how high above home the vehicle
// is now; "" if that is not far: PX4 corrects home by 1 to 2.2 m. The height that was sent is one above the sea.
// Both heights of the place are of one moment; PX4's HOME_POSITION may be 2 s older than they are.
func (m *manoeuvre) homeMoved(v view) string {
	if !m.request.enters(ModeTakeoff) && m.request.altitude == nil {
		return ""
	}
	home := v.place.amsl - v.place.altitude
	before := m.plan.destination.amsl - m.plan.destination.altitude
	moved := math.Abs(home - before)
	if math.IsNaN(moved) || moved <= homeFar {
		return ""
	}
	return fmt.Sprintf("home moved by %.1f m meanwhile: %.1f m above home", moved, v.place.altitude)
}

// maybeElsewhere says that a place is uncertain where the vehicle's GPS has contradicted it; "" if it does not.
func (m *manoeuvre) maybeElsewhere(v view) string {
	if !m.request.toPlace() || m.glitched.IsZero() {
		return ""
	}
	return "the autopilot reported a GPS glitch: it may be elsewhere than it says"
}

// lostAt is the time of the interruption, for a manoeuvre that is abandoned now. A target that was strange
// from the start is the autopilot's answer to the plan: then it is the time of the acceptance.
func (m *manoeuvre) lostAt(now time.Time) time.Time {
	if !m.strange.IsZero() && m.strange.Sub(m.at) < targetSoon {
		return m.at
	}
	return now
}

// notDone is the answer to a wait that is over before its manoeuvre is. unseen is why its
// progress is unknown; nil if it is known.
func (m *manoeuvre) notDone(v view, waited time.Duration, unseen error) error {
	what := m.request.name()
	seconds := math.Round(waited.Seconds()*100) / 100
	if unseen == errQuitting && m.plan.second != nil {
		return refuse(codeNotDone, "%s was accepted, and is on the way to its place after %.3g s; mavrest is "+
			"shutting down: %s", what, seconds, m.landsWithout())
	}
	if unseen != nil {
		return refuse(codeNotDone, "%s was accepted; whether it is complete after %.3g s is not known, because %s",
			what, seconds, unseen)
	}
	if !m.stands.IsZero() && v.placeAt.Sub(m.stands) >= standsFor {
		return refuse(codeNotDone, "%s was accepted, but not complete after %.3g s: the vehicle stands %s; "+
			"another program may have paused it: set hold, and send it again", what, seconds, m.short(v))
	}
	return refuse(codeNotDone, "%s was accepted and is under way, but not complete after %.3g s", what, seconds)
}

// landsWithout says what becomes of a landing at a place that mavrest leaves.
func (m *manoeuvre) landsWithout() string {
	if m.tried.IsZero() {
		return "the drone will stay over the place, and nothing lands it"
	}
	return "it has tried to land the drone there; look whether it lands"
}

// short says how far the vehicle is from where it is to fly to; "" if it is there, or that is not known.
func (m *manoeuvre) short(v view) string {
	t := m.plan.destination
	if t == nil || !m.request.toPlace() {
		return ""
	}
	if away := distance(v.place.lat, v.place.lon, t.lat, t.lon); away > atPlace {
		return fmt.Sprintf("%.1f m from its place", away)
	}
	if below := m.below(v); math.Abs(below) > m.heightSlack(v) {
		return fmt.Sprintf("%.1f m from its height", math.Abs(below))
	}
	return ""
}

// aim is nil where the manoeuvre has no destination, has been ended, or is complete and the vehicle is at another
// height now: somebody else changed that. Once it is reached its height counts from the present one, since home may
// move.
func (m *manoeuvre) aim(v view) *aim {
	if m.why != nil || m.plan.destination == nil {
		return nil
	}
	to := *m.plan.destination
	if m.done {
		below := m.below(v)

		// NaN is not there.
		if !(math.Abs(below) <= m.heightSlack(v)) {
			return nil
		}
		to.altitude = v.place.altitude + below
		to.amsl = v.place.amsl + below
	}
	return &aim{to, m.done}
}

// below is how far the vehicle is below its destination's height. It compares metres above the sea if
// both are known: later corrections of home then change nothing.
func (m *manoeuvre) below(v view) float64 {
	if low := m.plan.destination.amsl - v.place.amsl; !math.IsNaN(low) {
		return low
	}
	return m.plan.destination.altitude - v.place.altitude
}

// heightSlack is how far a vehicle may be from its destination's height, in metres, and still be there.
func (m *manoeuvre) heightSlack(v view) float64 {
	height := m.plan.destination.altitude
	switch takesOff := m.request.enters(ModeTakeoff); {
	case takesOff && v.onWing():
		return max(2, height/10)
	case takesOff:
		// Where home has moved the vehicle may have stood above it.
		if climb := m.plan.destination.amsl - v.ground.amsl; climb > 0 {
			height = min(height, climb)
		}

		// This is 5 %, at least 1 m; below 4 m a quarter of the climb.
		return max(min(1, height/4), height/20)
	case v.circle() > 0:
		return wingHeight
	}
	return atHeight
}

// lasts is how long a condition has been true at now, −1 if it is false. since remembers when it
// became true; it is zero while the condition is false.
func lasts(since *time.Time, is bool, now time.Time) time.Duration {
	if !is {
		*since = time.Time{}
		return -1
	}
	if since.IsZero() {
		*since = now
	}
	return now.Sub(*since)
}

// finish ends the manoeuvre; a nil why says that it is complete.
func (m *manoeuvre) finish(why error) {
	if m.finished() {
		return
	}
	m.done = why == nil
	m.why = why
	close(m.over)
}

func (m *manoeuvre) finished() bool { return m.done || m.why != nil }
