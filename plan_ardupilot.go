package main

import (
	"math"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// checkHover returns an error for a QuadPlane that hovers now but would circle in GUIDED, 75 m off,
// as it does by default (docs/autopilots.md, "QuadPlane"). what names the request.
func (v view) checkHover(what string) error {
	if v.firmware == quadPlane && !v.onWing() && v.param("Q_GUIDED_MODE", 0) != 1 {
		return refuse(codeUnsupported, "%s: this QuadPlane circles in GUIDED instead of hovering; set Q_GUIDED_MODE to 1", what)
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
func planHoldArduPilot(v view) (plan, error) {
	hold := v.firmware.enter(ModeHold)
	p := plan{steps: []step{hold}}
	switch {
	case !v.armed:
		return p, nil
	case v.firmware == copter:
		p.steps = []step{copter.setMode(ModeHold, copterBrake), hold}
	case !math.IsNaN(v.place.lat):
		here := request{}.reposition(v, v.place).leadingTo(ModeHold, hold.to.number)
		here.holds = true
		p.steps, p.target = []step{here}, &v.place
	}
	return p, v.checkHover("hold")
}

// adjust is the speed and heading, which ArduPilot's DO_REPOSITION ignores. They go out after its
// ack: a speed sent before it is lost. A Copter keeps a speed for every later goto, so each goto
// sends one (docs/autopilots.md, "ArduPilot: goto").
func (r request) adjust(v view) (steps []step) {
	speed := or(r.speed, math.NaN())
	if r.speed == nil && v.firmware == copter {
		speed = v.cruise()
	}
	if !math.IsNaN(speed) {
		s := v.firmware.step(common.MAV_CMD_DO_CHANGE_SPEED, 1, float32(speed), -1)
		s.optional = r.speed == nil
		steps = append(steps, s)
	}
	if r.heading != nil {
		steps = append(steps, v.firmware.step(common.MAV_CMD_CONDITION_YAW, float32(*r.heading)))
	}
	return steps
}
