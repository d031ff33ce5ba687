package main

import (
	"math"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// planTakeoffPX4 is AUTO.LOITER, ARM, NAV_TAKEOFF: a refusal on the way then leaves no disarmed
// AUTO.TAKEOFF, which would climb when anybody arms it.
func (r request) planTakeoffPX4(v view) (plan, error) {
	altitude := or(r.altitude, defaultTakeoff)
	amsl, err := v.takeoffAMSL(altitude)
	if err != nil {
		return plan{}, err
	}
	p := plan{target: &place{math.NaN(), math.NaN(), altitude, amsl}}
	if !v.armed {
		if v.custom != entered[px4][ModeHold] {
			p.steps = append(p.steps, px4.enter(ModeHold))
		}
		p.steps = append(p.steps, px4.armDisarm(true))
	}
	// Never 0 for latitude and longitude: PX4 then arms and stays.
	climb := px4.step(common.MAV_CMD_NAV_TAKEOFF).leadingTo(ModeTakeoff, entered[px4][ModeTakeoff])
	climb.p[6] = float32(amsl)
	climb.to.end, climb.to.endAMSL = entered[px4][ModeHold], amsl-max(altitude/5, 1)
	p.steps = append(p.steps, climb)
	return p, nil
}

// takeoffAMSL is the height of a takeoff as PX4 takes it: in metres above mean sea level,
// whatever the frame says. With a height below the present one PX4 would stay where it is, armed.
func (v view) takeoffAMSL(altitude float64) (float64, error) {
	home := v.home.amsl
	if math.IsNaN(home) && !v.flying() {
		home = v.place.amsl // arming makes this place home
	}
	amsl := home + altitude
	if math.IsNaN(amsl) {
		return 0, refuse(codeRefused, "takeoff: the autopilot has no home position yet; wait for its GPS")
	}
	if amsl <= v.place.amsl {
		return 0, refuse(codeRefused, "altitude: the vehicle is already %.1f m above home; give more, or use goto", v.place.amsl-home)
	}
	return amsl, nil
}

// planHoldPX4 holds by PX4's own pause, DO_REPOSITION without a place: PX4 knows where it can stop.
// A mode change alone flies on to the old target. An armed vehicle on the ground is paused too: its
// takeoff may be under way. A failsafe ends by a mode change only. On its wing a vehicle that is low is sent a
// height: its circle would be as low.
func (r request) planHoldPX4(v view, aim *place) (p plan) {
	if !v.armed || v.critical {
		p.steps = append(p.steps, px4.enter(ModeHold))
	}
	if v.armed {
		hold := px4.step(common.MAV_CMD_DO_REPOSITION, -1, 1, 0)
		if here := v.holdHere(aim); here.amsl > v.place.amsl {
			hold, p.target = r.reposition(v, here), &here
		}
		hold.holds = true
		p.steps = append(p.steps, hold.leadingTo(ModeHold, entered[px4][ModeHold]))
	}
	p.leaveGround(v, aim)
	return p
}
