package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// How a vehicle moves at a moment. Whatever differs between kinds of vehicles is asked here, of
// the vehicle, each time it matters (docs/autopilots.md, "Kinds of vehicle").

// kind is how a vehicle moves at a moment: a VTOL's may change at any time.
type kind uint8

const (
	// kindUnknown: a VTOL that does not say how it flies
	kindUnknown kind = iota

	// hovering: it stands still in the air
	hovering

	// onWing: it must fly on: it circles a place
	onWing

	driving

	// onlyRead: nothing is sent that commands it
	onlyRead
)

// kindNames are the kinds in the API. A kind that is not known has none.
var kindNames = [...]string{kindUnknown: "", hovering: "hover", onWing: "wing", driving: "wheels", onlyRead: ""}

// readOnly is why the vehicle can be read, not commanded; nil if it can be commanded.
func (v view) readOnly() error {
	switch {
	case v.kind() != onlyRead:
		return nil
	case v.isStranger():
		return v.doubt
	case v.drives() && v.version == 0:
		// Perhaps 1.17.
		return refuse(codeOffline, "this rover has not reported its version of PX4 yet; try again")
	case v.drives():
		return refuse(codeUnsupported, "a rover is commanded from PX4 1.17 on, and this one has %s: its state can "+
			"be read, not commanded", v.version)
	}
	isNone := "no multicopter, VTOL, plane or rover"
	if v.firmware.airframes() == airframeUnknown {
		isNone = "neither PX4 nor ArduPilot Copter or Plane"
	}
	name := strings.TrimSuffix(lowerName(v.autopilot.String(), "MAV_AUTOPILOT_"), "mega")
	likeness := ""
	if v.autopilot == common.MAV_AUTOPILOT_GENERIC {
		likeness = ", as INAV and Betaflight do"
	}
	return refuse(codeUnsupported, "this vehicle signs as autopilot %s, %s%s, and is %s: its state can be read, not "+
		"commanded", name, typeName(v.typ), likeness, isNone)
}

// isForeign reports whether the vehicle's autopilot is neither PX4 nor ArduPilot, or has shown that it is not what it
// calls itself: what its values mean is not known for certain.
func (v view) isForeign() bool {
	known := v.autopilot == common.MAV_AUTOPILOT_PX4 || v.autopilot == common.MAV_AUTOPILOT_ARDUPILOTMEGA
	return (!known && v.firmware == firmwareUnknown) || v.isStranger()
}

// kind is the one question: how does the vehicle move now? A transition to the wing counts as the wing: nothing
// stands still in it.
func (v view) kind() kind {
	if v.isStranger() {
		return onlyRead
	}
	switch v.airframe() {
	case multicopter:
		return hovering
	case fixedWing:
		return onWing
	case rover:
		if v.version >= px4Drives {
			return driving
		}

		// Until it has reported its version too.
		return onlyRead
	case vtol:
		switch v.vtol {
		case common.MAV_VTOL_STATE_FW, common.MAV_VTOL_STATE_TRANSITION_TO_FW:
			return onWing
		case common.MAV_VTOL_STATE_MC, common.MAV_VTOL_STATE_TRANSITION_TO_MC:
			return hovering
		}
		return kindUnknown
	}
	return onlyRead
}

// px4Drives is the first PX4 whose rovers were driven (docs/autopilots.md, "PX4: on wheels").
const px4Drives = firmwareVersion(1<<24 | 17<<16)

// isStranger reports whether the vehicle has shown that it is not what it calls itself.
func (v view) isStranger() bool { return v.doubt != nil && code(v.doubt) == codeUnsupported }

// stickKind is the kind whose meaning the sticks have. A QuadPlane hovers in each stick mode that is set here.
func (v view) stickKind() kind {
	if v.firmware == quadPlane {
		return hovering
	}
	return v.kind()
}

// mayDisarm reports whether a disarming drops nothing: the vehicle does not say that it is in the air. An
// unknown landed state is the autopilot's to judge.
func (v view) mayDisarm() bool { return !v.armed || !v.landed.inAir() || v.drives() }

// canEnter reports whether the vehicle's kind has a mode that stands for one of ours.
func (v view) canEnter(mode Mode) bool {
	custom, exists := entered[v.firmware][mode]
	return exists && slices.ContainsFunc(ownModes[v.firmware], func(row autopilotMode) bool {
		return row.custom == custom && row.on&v.airframe() != 0
	})
}

// mustClimb reports whether nothing lifts a vehicle in the air: it has landed almost, holds or flies by itself. A
// takeoff lifts it, and who flies it by sticks off the ground may.
func (v view) mustClimb(aim *aim) bool {
	byPilot := v.shown().flownBySticks() && !v.ground.assumed
	lifted := v.takesOff(aim) || v.shown() == ModeTakeoff || byPilot
	placed := !math.IsNaN(v.place.lat) && (v.firmware != px4 || !math.IsNaN(v.place.amsl))
	return placed && v.flying() && !lifted && (v.landed == inAir || v.lands())
}

// isClear reports whether the drone is so far from the ground that it may fly to a place. Where its height above
// the ground is not known, being in the air is enough. What drives never leaves it.
func (v view) isClear() bool {
	away := v.landed != onGround && !v.lands()
	return v.drives() || (away && (v.ground.clear || v.leftUnknownGround()))
}

// lands reports whether the vehicle lands: the ground may be just below it, however high it is above that of its
// takeoff.
func (v view) lands() bool { return v.shown() == ModeLand || v.landed == landing }

// leftGround reports whether the drone has left the ground: some vehicles call themselves in the air while their
// propellers speed up.
func (v view) leftGround() bool {
	return v.landed.inAir() && !v.drives() && (v.ground.left || v.leftUnknownGround())
}

// leftUnknownGround reports whether the drone is in the air, where its height above the ground is not known. While it
// says that it takes off it may still stand.
func (v view) leftUnknownGround() bool { return math.IsNaN(v.height) && v.landed != takingOff }

// knowsGround reports whether the vehicle says where it is, and it is known whether it has left the ground.
func (v view) knowsGround() bool {
	return v.landed != 0 && !(v.landed == takingOff && math.IsNaN(v.height))
}

// clearWithin is how long a step that flies to a place may wait until the drone is clear of the ground.
func (v view) clearWithin() time.Duration {
	// A helicopter's rotor takes longer to come up to speed.
	if v.typ == common.MAV_TYPE_HELICOPTER {
		return 30 * time.Second
	}
	return 10 * time.Second
}

// climbTo is where a vehicle climbs to before it flies to a place: straight up, a little higher than where it is clear
// of the ground. On its wing it circles there.
func (v view) climbTo() place {
	up := v.clearAt() + atHeight
	if v.onWing() {
		up = v.clearAt() + wingHeight
	}
	to := v.place
	to.altitude += up
	to.amsl += up
	return to
}

// How near a vehicle's height must be to one in metres to be there. On a wing TECS keeps a height less exactly than a
// hover.
const (
	atHeight   = 1.0
	wingHeight = 5.0
)

// clearAt is the height above the ground in metres where the drone is clear of it.
func (v view) clearAt() float64 {
	// On its wing a vehicle banks, and the wing is long.
	if v.onWing() {
		return 10
	}
	return 2
}

// holdHere is where a hold holds: here. On its wing a vehicle circles, so it holds at the height of a takeoff that
// is under way, and never lower than where it is clear of the ground.
func (v view) holdHere(aim *aim) place {
	here := v.place
	up := 0.0
	if v.onWing() && v.height < v.clearAt() {
		up = v.clearAt() - v.height
	}
	if v.onWing() && v.takesOff(aim) {
		climb := aim.amsl - here.amsl
		if math.IsNaN(climb) {
			climb = aim.altitude - here.altitude
		}
		if climb > up {
			up = climb
		}
	}
	here.altitude = here.altitude + up
	here.amsl = here.amsl + up
	return here
}

// takesOff reports whether a takeoff that was commanded here is under way, maybe still on the ground. A takeoff's
// aim has only a height.
func (v view) takesOff(aim *aim) bool { return aim != nil && !aim.reached && math.IsNaN(aim.lat) }

// homeCircle is circle round home after a return.
func (v view) homeCircle() float64 {
	if v.firmware == px4 {
		return cmp.Or(math.Abs(v.param("RTL_LOITER_RAD", 0)), 80)
	}
	return v.circle()
}

// circle is the radius in metres of the circle that the vehicle flies round a place (an autopilot's is negative
// where it circles to the left); 0: it stands still there.
func (v view) circle() float64 {
	if !v.onWing() || (v.firmware == quadPlane && v.param("Q_GUIDED_MODE", 0) == 1) {
		return 0
	}
	if v.firmware == px4 {
		// PX4's default
		return cmp.Or(math.Abs(v.param("NAV_LOITER_RAD", 0)), 80)
	}

	// ArduPlane's default
	return cmp.Or(math.Abs(v.param("WP_LOITER_RAD", 0)), 60)
}

// returnAltitude is the height in metres above home to which a return climbs first; NaN if it is not known, or if
// the return keeps the vehicle's height. Near home an autopilot climbs less (docs/autopilots.md).
func (v view) returnAltitude() float64 {
	unknown := math.NaN()
	altitude := unknown
	switch {
	case v.drives():
		return unknown
	case v.firmware == px4:
		altitude = v.param("RTL_RETURN_ALT", unknown)
	case v.firmware == copter:
		// RTL_ALT is in cm
		altitude = v.param("RTL_ALT_M", v.param("RTL_ALT", unknown)/100)
	case v.firmware == quadPlane && !v.onWing():
		// on its wing QRTL sinks on the way
		altitude = v.param("Q_RTL_ALT", unknown)
	case v.firmware == plane:
		// ALT_HOLD_RTL is in cm
		altitude = v.param("RTL_ALTITUDE", v.param("ALT_HOLD_RTL", unknown)/100)
	}
	// below 0 a plane keeps its height
	if altitude < 0 {
		return unknown
	}
	return altitude
}

// landsOnWing reports whether a VTOL that is told to land on its wing touches the ground so, as a plane does: PX4
// takes it to hover first, as it does for a return, unless NAV_FORCE_VT is 0.
func (v view) landsOnWing() bool {
	return v.firmware == px4 && v.airframe() == vtol && v.param("NAV_FORCE_VT", 1) == 0
}

// onWingNot refuses what a vehicle on its wing can't do: for good on a plane, until it hovers on a VTOL. what
// names the field and what is wrong with it, without is the way out that both have.
func (v view) onWingNot(what, without string) error {
	if v.airframe() == vtol {
		return refuse(codeWrongMode, "%s; bring it to hover first, or %s", what, without)
	}
	return refuse(codeUnsupported, "%s; %s", what, without)
}

func (v view) onWing() bool { return v.kind() == onWing }

// drives reports whether it is on wheels: half a throttle stands, and an armed vehicle calls itself in the air.
func (v view) drives() bool { return v.airframe() == rover }

func (v view) airframe() airframe { return airframeOf(v.firmware, v.typ) }
