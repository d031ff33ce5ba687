package main

import (
	"math"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// checkHover returns an error where a QuadPlane is to hover at a place, but would circle it in GUIDED, 75 m
// off, as it does by default (docs/autopilots.md, "QuadPlane"): where it hovers now, or is to land there.
func (v view) checkHover(r request) error {
	toHover := v.kind() == hovering || r.mode == ModeLand
	if v.firmware == quadPlane && toHover && v.param("Q_GUIDED_MODE", 0) != 1 {
		return refuse(codeUnsupported, "%s: this QuadPlane circles in GUIDED instead of hovering; set Q_GUIDED_MODE to 1", r.name())
	}
	return nil
}

// planTakeoffArduPilot is GUIDED, ARM, NAV_TAKEOFF in metres above home. A fixed wing takes off in
// its mode TAKEOFF, which is set last: whoever arms a plane in TAKEOFF starts the takeoff.
func (r request) planTakeoffArduPilot(v view) (p plan, err error) {
	f, altitude := v.firmware, or(r.altitude, defaultTakeoff)
	switch {
	case v.flying() && v.landed != 0: // if the landed state is unknown the autopilot decides
		return p, refuse(codeRefused, "takeoff: already flying; use goto to climb")
	case f == plane && r.altitude != nil:
		return p, refuse(codeUnsupported, "altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out")
	}
	p.steps = []step{f.enter(ModeHold)}
	if !v.armed {
		p.steps = append(p.steps, f.armDisarm(true))
	}
	climb := f.enter(ModeTakeoff)
	if f == plane {
		altitude = v.takeoffAltitude()
	} else {
		climb = f.step(common.MAV_CMD_NAV_TAKEOFF, 0, 0, 0, 0, 0, 0, float32(altitude))
		climb = climb.leadingTo(ModeTakeoff, entered[f][ModeTakeoff])
	}
	p.target = &place{math.NaN(), math.NaN(), altitude, v.home.amsl + altitude}
	p.steps = append(p.steps, climb)
	return p, nil
}

// planHoldArduPilot holds in GUIDED. An armed Copter is sent BRAKE first, which stops it: GUIDED
// alone would fly on to its old target. A plane or QuadPlane is sent the present place, which
// enters GUIDED; a plane circles round it.
func (r request) planHoldArduPilot(v view, aim *place) (plan, error) {
	hold := v.firmware.enter(ModeHold)
	p := plan{steps: []step{hold}}
	switch {
	case !v.armed:
		return p, nil
	case v.firmware == copter:
		p.steps = []step{copter.setMode(ModeHold, copterBrake), hold}
	case !math.IsNaN(v.place.lat):
		to := v.holdHere(aim)
		here := request{}.reposition(v, to).leadingTo(ModeHold, hold.to.number)
		here.holds = true
		p.steps, p.target = []step{here}, &to
		p.leaveGround(v, aim)
		p.steps = append(p.steps, r.changeSpeed(v)...)
	}
	return p, v.checkHover(r)
}

// adjust is the speed and heading, which ArduPilot's DO_REPOSITION ignores. They go out after its
// ack: a speed sent before it is lost (docs/autopilots.md, "ArduPilot: goto").
func (r request) adjust(v view) []step {
	steps := r.changeSpeed(v)
	if r.heading != nil {
		steps = append(steps, v.firmware.step(common.MAV_CMD_CONDITION_YAW, float32(*r.heading)))
	}
	return steps
}

// changeSpeed is the request's speed or, without one, the vehicle's own: GUIDED keeps a speed for every later
// place. On a Plane it is an air speed: a ground speed would change MIN_GROUNDSPEED for good, and a throttle
// above 0 THROTTLE_CRUISE (docs/autopilots.md, "Plane").
func (r request) changeSpeed(v view) []step {
	const airSpeed, groundSpeed, ownSpeed = 0, 1, -2
	speed, s := or(r.speed, math.NaN()), step{}
	switch {
	case v.circle() > 0:
		s = v.firmware.step(common.MAV_CMD_DO_CHANGE_SPEED, airSpeed, float32(or(r.speed, ownSpeed)))
	case v.firmware != copter: // a QuadPlane that hovers: see checkSpeed
		return nil
	default:
		if r.speed == nil {
			speed = v.cruise()
		}
		if math.IsNaN(speed) {
			return nil
		}
		s = v.firmware.step(common.MAV_CMD_DO_CHANGE_SPEED, groundSpeed, float32(speed), -1)
	}
	s.optional = r.speed == nil
	return []step{s}
}

// checkSpeed is why ArduPilot can't fly at the request's speed.
func (r request) checkSpeed(v view) error {
	slowest := v.param("AIRSPEED_MIN", v.param("ARSPD_FBW_MIN", math.NaN()))
	fastest := v.param("AIRSPEED_MAX", v.param("ARSPD_FBW_MAX", math.NaN()))
	switch {
	case r.speed == nil, v.firmware == copter, v.firmware == px4:
		return nil
	case v.circle() == 0:
		return refuse(codeUnsupported, "speed: a QuadPlane that hovers has only its own (Q_WP_SPEED); leave it out")
	case *r.speed < slowest, *r.speed > fastest:
		return refuse(codeOutOfRange, "speed: on its wing this vehicle flies %g to %g m/s through the air (AIRSPEED_MIN, AIRSPEED_MAX)", slowest, fastest)
	}
	return nil
}
