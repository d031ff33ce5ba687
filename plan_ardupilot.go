package main

import (
	"math"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// hovers reports whether GUIDED keeps a place. A QuadPlane that hovers circles
// 75 m off in it, by default (docs/autopilots.md, "QuadPlane").
func (v vehicle) hovers(what string) error {
	if v.firmware == quadPlane && !v.onWing() && v.guidedMode != 1 {
		return refuse(codeUnsupported, "%s: this QuadPlane circles in GUIDED instead of hovering; set Q_GUIDED_MODE to 1", what)
	}
	return nil
}

// planTakeoffArduPilot is GUIDED, ARM, NAV_TAKEOFF in metres above home. A fixed
// wing has a mode of its own for it.
func (r request) planTakeoffArduPilot(v vehicle) (plan, error) {
	f, altitude := v.firmware, or(r.altitude, defaultTakeoff)
	p := plan{target: &place{math.NaN(), math.NaN(), altitude, v.homeAMSL + altitude}}
	if v.flying() && v.landed != 0 {
		return p, refuse(codeRefused, "takeoff: already flying; use goto to climb")
	}
	if f == plane {
		p.target = nil
		if r.altitude != nil {
			return p, refuse(codeUnsupported, "altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out")
		}
		p.steps = []step{f.enter(ModeTakeoff)}
	} else {
		p.steps = []step{f.enter(ModeHold)}
	}
	if !v.armed {
		p.steps = append(p.steps, f.armDisarm(true))
	}
	if f != plane {
		climb := f.command(common.MAV_CMD_NAV_TAKEOFF, 0, 0, 0, 0, 0, 0, float32(altitude))
		p.steps = append(p.steps, climb.leadingTo(ModeTakeoff, entered[f][ModeTakeoff]))
	}
	return p, nil
}

// planHoldArduPilot holds by GUIDED. A Copter that flies to a place in GUIDED goes
// on to it; there BRAKE stops it first, without flying back. A plane circles round
// the present place instead.
func planHoldArduPilot(v vehicle) (plan, error) {
	f := v.firmware
	hold := f.enter(ModeHold)
	if !v.armed {
		return plan{steps: []step{hold}}, nil
	}
	if err := v.hovers("hold"); err != nil {
		return plan{}, err
	}
	switch again := v.custom == hold.to.number || v.toHold; {
	case again && f == copter:
		return plan{steps: []step{f.setMode(ModeHold, copterBrake), hold}}, nil
	case again && !math.IsNaN(v.at.lat):
		here := request{}.reposition(v, v.at).leadingTo(ModeHold, hold.to.number)
		return plan{steps: []step{here}, target: &v.at}, nil
	}
	return plan{steps: []step{hold}}, nil
}

// adjust is what ArduPilot's DO_REPOSITION ignores, told after its ack: before it
// the speed is lost. A speed stays for every later goto, so one that names none
// restores the default (docs/autopilots.md, "ArduPilot: goto").
func (r request) adjust(v vehicle, keep bool) (steps []step) {
	f := v.firmware
	fly := func(speed float64) step {
		return f.command(common.MAV_CMD_DO_CHANGE_SPEED, 1, float32(speed), -1)
	}
	switch {
	case r.speed != nil:
		steps = append(steps, fly(*r.speed))
	case f == copter && v.custom == entered[f][ModeHold] && v.spedUp:
		s := fly(v.cruise)
		s.optional = true
		steps = append(steps, s)
	}
	if r.heading != nil {
		s := f.command(common.MAV_CMD_CONDITION_YAW, float32(*r.heading))
		s.optional = keep
		steps = append(steps, s)
	}
	return steps
}
