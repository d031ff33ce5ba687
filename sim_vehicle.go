package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// row returns a mode's row in the flavour's table. For an unknown mode it returns a row
// that is refused.
func (s *simulator) row(custom uint32) simMode {
	i := slices.IndexFunc(s.modes, func(m simMode) bool { return m.custom == custom })
	if i < 0 {
		return simMode{custom: custom, refused: true, noArm: true}
	}
	return s.modes[i]
}

// enter changes the mode. Entering the present mode again keeps the target: a goto
// goes on if its own mode is requested.
func (s *simulator) enter(custom uint32) {
	if s.onMode != nil {
		s.onMode(custom)
	}
	if s.mode == custom {
		return
	}
	s.mode, s.climbing, s.veilUntil = custom, false, time.Time{}
	s.brain.stay()
	s.brain.entered()
}

// simPending is a mode that was acknowledged and is not in force yet.
type simPending struct{ mode uint32 }

// enterLater waits, then calls do, which brings a mode into force. From then on heartbeats
// show the old mode for lag. A newer call replaces this one.
func (s *simulator) enterLater(mode uint32, wait, lag time.Duration, do func()) *simPending {
	pending := &simPending{mode}
	s.pending = pending
	s.after(wait, func() {
		if s.pending != pending {
			return
		}
		s.pending = nil
		old := s.mode
		if do(); s.mode != old {
			s.veiled, s.veilUntil = old, time.Now().Add(lag)
		}
	})
	return pending
}

// intended returns the mode that is in force, or will be in a few ms.
func (s *simulator) intended() uint32 {
	if s.pending != nil {
		return s.pending.mode
	}
	return s.mode
}

func (s *simulator) arm() {
	s.armed, s.armedAt = true, time.Now()
}

func (s *simulator) disarm() {
	landed := s.landedAt.After(s.armedAt)
	s.armed, s.climbing, s.failsafe = false, false, false
	s.brain.disarmed(landed)
}

// climb takes off to a height above home, or climbs to it in the air.
func (s *simulator) climb(to float64) {
	s.climbing, s.climbTo, s.climbFrom = true, to, time.Now()
	if !s.airborne {
		s.climbFrom = s.armedAt.Add(simSpinUp)
		if soonest := time.Now().Add(simSpinUp - simDetected); soonest.After(s.climbFrom) {
			s.climbFrom = soonest
		}
	} else {
		s.climbFrom = s.climbFrom.Add(-s.soft) // it does not begin slowly
	}
}

// stands reports whether it is still on the ground because its propellers are not up to speed yet. PX4 already
// calls itself in the air then.
func (s *simulator) stands(now time.Time) bool {
	return s.quad.up <= 0 && now.Before(s.climbFrom)
}

// canFly reports whether a goto would be flown.
func (s *simulator) canFly() bool { return s.armed && s.airborne }

// stay is PX4's: it sets the target to the place where the quad can stop.
func (s *simulator) stay() { s.target = s.stopping() }

// stopping returns the place where PX4's quad can stop: v²/(2·brake) ahead.
func (s *simulator) stopping() simTarget {
	q := &s.quad
	t := math.Hypot(q.vn, q.ve) / (2 * s.brake)
	return simTarget{
		north: q.north + q.vn*t, east: q.east + q.ve*t,
		up: q.up, yaw: math.NaN(), speed: simCruise,
	}
}

// step is one tick.
func (s *simulator) step() {
	now := time.Now()
	dt := max(0.001, min(0.1, now.Sub(s.ticked).Seconds())) // a computer that slept must not move the drone far
	s.ticked = now
	s.brain.step()
	s.fly(now, dt)
	if s.armed && !s.airborne && s.brain.disarms(now) {
		s.disarm()
	}
	s.used = min(1, s.used+s.amps()*dt/3600/5) // 5 Ah
	s.sendStreams(now)
}

// disarms is PX4's: it reports whether PX4 disarms by itself now, 2 s after a landing, else 10 s
// after the arming.
func (s *simulator) disarms(now time.Time) bool {
	if s.landedAt.After(s.armedAt) {
		return now.After(s.landedAt.Add(2 * time.Second))
	}
	return now.After(s.armedAt.Add(10 * time.Second))
}

func (s *simulator) fly(now time.Time, dt float64) {
	q := &s.quad
	vn, ve, vu, turn := s.brain.wanted(now, dt)
	if !s.airborne {
		lifts := s.armed && vu > 0.1 && (s.climbing || s.row(s.mode).sticks())
		if !lifts {
			return
		}
		s.airborne = true
		if s.isPX4() {
			s.brain.text(common.MAV_SEVERITY_INFO, "Takeoff detected")
		}
	}
	if s.stands(now) {
		return
	}
	s.brain.steer(vn, ve, vu, dt)
	q.heading = math.Mod(q.heading+turn*dt+2*math.Pi, 2*math.Pi)
	if q.up <= 0 && q.vu <= 0 {
		*q = simQuad{north: q.north, east: q.east, heading: q.heading}
		s.airborne, s.climbing, s.landedAt = false, false, now
		if s.isPX4() {
			s.brain.text(common.MAV_SEVERITY_INFO, "Landing detected")
		}
		return
	}
	if s.climbing && q.up > s.climbTo-cmp.Or(s.early, 0.2) {
		s.climbing = false
		s.target.up = s.climbTo
		s.brain.climbed()
	}
}

// steer is PX4's. Modes that sticks fly brake as hard as they accelerate.
func (s *simulator) steer(vn, ve, vu, dt float64) {
	brake := s.brake
	if s.row(s.mode).sticks() {
		brake = simAccel
	}
	s.quad.steer(vn, ve, vu, brake, dt)
}

// wanted is PX4's: it returns the velocity (m/s) and the turn rate (rad/s) that the mode asks for.
func (s *simulator) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	q, t := &s.quad, s.target
	x, y, z, r := s.brain.axes()
	sin, cos := math.Sincos(q.heading)
	stickN, stickE := x*cos-y*sin, x*sin+y*cos // the stick's deflection to the north and east
	rise := max(z-0.5, 0)*2*s.stickUp - max(0.5-z, 0)*2*s.stickDown
	flying := s.row(s.mode).flying
	switch {
	case !s.armed:
		return 0, 0, -5, 0
	case s.climbing && now.Before(s.climbFrom):
		return 0, 0, 0, 0
	case s.climbing:
		t.up = s.climbTo
		vn, ve, _ = q.towards(t)
		vu = max(-simSink, min(simClimb, simLevel*(t.up-q.up)))
		if now.Before(s.climbFrom.Add(s.soft)) {
			vu = min(vu, simSoft)
		}
	case flying == simHold:
		vn, ve, vu = q.towards(t)
		turn = q.turn(t.yaw)
	case flying == simDescend:
		vn, ve, _ = q.towards(t)
		vu = -s.landSpeed
	case flying == simReturn:
		vn, ve, vu = s.homeward()
	case flying == simVelocity:
		vn, ve, vu, turn = stickN*s.stickSpeed, stickE*s.stickSpeed, rise, r
	case flying == simTilt:
		vn, ve = simTopSpeed(q.vn+stickN*3*dt, q.ve+stickE*3*dt)
		vu, turn = rise, r
	case flying == simThrust:
		vn, ve = simTopSpeed(q.vn+stickN*3*dt, q.ve+stickE*3*dt)
		turn = r
		vu = max(-s.stickDown, min(5, q.vu+(z-0.5)*10*dt))
		if !s.airborne {
			vu = z - 0.55 // a thrust above the weight lifts the drone
		}
	}
	return vn, ve, vu, turn
}

// simTopSpeed limits a velocity, as drag does.
func simTopSpeed(vn, ve float64) (n, e float64) {
	if v := math.Hypot(vn, ve); v > simTop {
		return vn * simTop / v, ve * simTop / v
	}
	return vn, ve
}

// homeward is PX4's: it climbs to the return height, flies home and lands.
func (s *simulator) homeward() (vn, ve, vu float64) {
	q := &s.quad
	home := s.returning()
	vn, ve, vu = q.towards(home)
	switch far := math.Hypot(q.north-s.home.north, q.east-s.home.east) > 1; {
	case far && q.up < home.up-0.5:
		return 0, 0, min(s.stickUp, home.up-q.up)
	case far:
		return vn, ve, vu
	case q.up > 10:
		return vn, ve, -2 * s.landSpeed
	}
	return vn, ve, -s.landSpeed
}

// returning returns the place over home to which PX4's return flies. It flies at the higher of
// two heights: the one where it began, and the return height, which is lower near home.
func (s *simulator) returning() simTarget {
	t := s.target
	away := math.Hypot(t.north-s.home.north, t.east-s.home.east)
	return simTarget{
		north: s.home.north, east: s.home.east, yaw: math.NaN(), speed: simCruise,
		up: max(t.up, min(s.returnUp, max(15, away))),
	}
}

const ( // of PX4's flight
	simSpinUp   = 3500 * time.Millisecond // from the arming to a takeoff's lift-off
	simDetected = 2000 * time.Millisecond // from the arming until PX4 calls itself in the air; it still stands
	simAccel    = 4.0                     // m/s², horizontally
	simLift     = 2.0                     // m/s², vertically
	simNear     = 0.9                     // m/s², the deceleration before a goto's place
	simCruise   = 5.0                     // m/s
	simTop      = 20.0                    // m/s, the highest speed over ground
	simClimb    = 1.25                    // m/s
	simSink     = 1.5                     // m/s
	simSoft     = 0.2                     // m/s, the climb at the beginning of a takeoff
	simLevel    = 0.88 / 0.76             // 1/s: PX4 ends a climb 0.76 m below its height, at 0.88 m/s
)

// simTarget is a place to go to: metres from the first home, heading in radians or NaN, speed in m/s.
type simTarget struct{ north, east, up, yaw, speed float64 }

// simQuad is a point with a heading: metres from the first home, m/s, m/s², radians.
type simQuad struct {
	north, east, up float64
	vn, ve, vu      float64
	an, ae          float64
	heading         float64
}

func (q *simQuad) degrees() float64 { return math.Mod(q.heading*180/math.Pi+360, 360) }

// towards returns PX4's velocity to a target. It falls with the distance, so the quad
// stops without overshoot.
func (q *simQuad) towards(t simTarget) (vn, ve, vu float64) {
	n, e := t.north-q.north, t.east-q.east
	if d := math.Hypot(n, e); d > 0.01 {
		v := min(t.speed, 0.7*d, math.Sqrt(2*simNear*d))
		vn, ve = n/d*v, e/d*v
	}
	return vn, ve, max(-simSink, min(simClimb, t.up-q.up))
}

// turn returns the turn rate towards a heading: at most 1 rad/s.
func (q *simQuad) turn(yaw float64) float64 {
	if math.IsNaN(yaw) {
		return 0
	}
	return max(-1, min(1, 2*math.Remainder(yaw-q.heading, 2*math.Pi)))
}

// steer changes the velocity and moves the quad, as PX4 does. brake limits the deceleration, in m/s².
func (q *simQuad) steer(vn, ve, vu, brake, dt float64) {
	an, ae := (vn-q.vn)/dt, (ve-q.ve)/dt
	most := simAccel
	if an*q.vn+ae*q.ve < 0 {
		most = brake
	}
	if a := math.Hypot(an, ae); a > most {
		an, ae = an*most/a, ae*most/a
	}
	q.an, q.ae = an, ae
	q.vn += an * dt
	q.ve += ae * dt
	q.vu += max(-simLift*dt, min(simLift*dt, vu-q.vu))
	q.north += q.vn * dt
	q.east += q.ve * dt
	q.up += q.vu * dt
}

const simDegree = 111319.5 // metres in a degree of latitude

func simMetres(lat, lon float64) (north, east float64) {
	return (lat - simHomeLat) * simDegree, (lon - simHomeLon) * simDegree * math.Cos(simHomeLat*math.Pi/180)
}

func simPlace(north, east float64) (lat, lon float64) {
	return simHomeLat + north/simDegree, simHomeLon + east/(simDegree*math.Cos(simHomeLat*math.Pi/180))
}

func simE7(degrees float64) int32 { return int32(math.Round(degrees * 1e7)) }

// simDegrees converts degE7 to degrees. INT32_MAX, which leaves a place open, becomes NaN.
func simDegrees(e7 int32) float64 {
	if e7 == math.MaxInt32 {
		return math.NaN()
	}
	return float64(e7) / 1e7
}
