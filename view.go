package main

import (
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// view is the vehicle at a moment, by what it reported. An unknown or stale number is NaN.
type view struct {
	now      time.Time
	firmware firmware

	// autopilot: as its heartbeat has it
	autopilot common.MAV_AUTOPILOT

	// doubt is why it is not commanded, though what it calls itself would be: it has not shown yet that it is that
	// (503), or has shown that it is something else (501); nil: it has shown it
	doubt error

	// version: 0 if unknown
	version firmwareVersion

	typ common.MAV_TYPE

	// vtol: 0 if it is no VTOL, or does not say how it flies now
	vtol common.MAV_VTOL_STATE

	// params: the parameters that it sent
	params map[string]float64

	// gcsFailsafe: ArduPilot's FS_GCS_ENABLE; 0 with -gcs, where there is no other ground station
	gcsFailsafe float64

	// trip: of the line, there and back
	trip time.Duration

	online bool

	// shownMode: of the last report
	shownMode

	// critical: its state is MAV_STATE_CRITICAL or worse: a failsafe or, before PX4 1.15, perhaps only a warning
	critical bool

	// glitches: its GPS says that it is elsewhere
	glitches bool

	landed landedState

	// landedAt is when it left the vehicle.
	landedAt time.Time

	// height: metres above the ground that it stood on last
	height float64

	ground lastGround

	// place is where it is.
	place place

	// heading: degrees
	heading float64

	// velocity: it comes with the place
	velocity motion

	// placeAt is when they left the vehicle, also where they are stale.
	placeAt time.Time

	// home, target: target: where the autopilot says that it flies to
	home, target point
}

// own is our own state at a moment.
type own struct {
	// mode is what GET mode answers.
	mode Mode

	// busy: a plan is under way
	busy bool

	// entering: a request to enter a stick mode is under way, or is a claim (rule 3)
	entering bool

	// resting: the plan under way has centred the sticks before it sends another mode. It ends with a takeover, at once
	resting bool

	// leavesSticks: a step to a mode without sticks is a claim. That outlives its plan
	leavesSticks bool
}

// situation is what the rules of the sticks go by: the vehicle and, beside it, our own state.
type situation struct {
	view
	own
}

// place is in degrees, metres above home and metres above mean sea level. NaN is unknown.
type place struct{ lat, lon, altitude, amsl float64 }

// aim is a destination whose height a plan keeps: see drone.aim.
type aim struct {
	place

	// reached says that the vehicle was there, and still has its height.
	reached bool
}

// motion is a velocity over ground, in metres a second.
type motion struct{ north, east, down float64 }

var (
	nowhere    = place{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	motionless = motion{math.NaN(), math.NaN(), math.NaN()}
)

// since is the view of a vehicle that was not heard before a time: its place, velocity and landed state are
// unknown where they did not come later. Its mode and armed bit stay: a step's report has shown them since.
func (v view) since(at time.Time) view {
	if !v.placeAt.After(at) {
		v.place = nowhere
		v.heading = math.NaN()
		v.velocity = motionless
	}
	if !v.landedAt.After(at) {
		v.landed = 0
	}
	return v
}

// leavesCheckedMode reports whether a takeoff leaves the mode that the autopilot's check before arming is about, for
// hold, which needs no receiver. PX4's present mode may need one; ArduPlane does not arm in one that has landed it.
func (v view) leavesCheckedMode() bool {
	switch {
	case v.firmware == px4:
		return v.shown() != ModeHold && v.shown() != ModeTakeoff
	case v.firmware&planes != 0:
		return v.shown() == ModeLand || v.shown() == ModeRTL
	}
	return false
}

// shown is the mode that the vehicle reports.
func (v view) shown() Mode {
	mode, _ := v.firmware.reported(v.custom)
	return mode
}

// sticks is what the mode that the vehicle reports does with sticks.
func (v view) sticks() stickUse {
	row, _ := v.firmware.row(v.custom)
	return row.sticks
}

// setsOff reports whether the vehicle may drive or climb off by itself when it is armed: it is disarmed in a mode that
// is none of ours and not known to be flown by sticks.
func (v view) setsOff() bool {
	row, listed := v.firmware.row(v.custom)
	return !v.armed && row.mode == ModeOther && (!listed || row.sticks == unsteered)
}

// flying reports whether the drone may be in the air: armed, and not reported on the ground.
func (v view) flying() bool { return v.armed && v.landed != onGround }

// still, in m/s, is the speed below which a hold holds.
const still = 0.5

func (v view) groundSpeed() float64 { return math.Hypot(v.velocity.north, v.velocity.east) }

// stickParams name the parameter that can forbid our sticks: on ArduPilot the ground station's failsafe.
var stickParams = map[firmware]string{
	px4: "COM_RC_IN_MODE", copter: "FS_GCS_ENABLE", quadPlane: "FS_GCS_ENABL", plane: "FS_GCS_ENABL",
}

// rcIn is PX4's COM_RC_IN_MODE.
func (v view) rcIn() float64 { return v.param("COM_RC_IN_MODE", 3) }

// takeoffAltitude is where a fixed wing takes off to, in metres above home; by default 50.
func (v view) takeoffAltitude() float64 { return v.param("TKOFF_ALT", 50) }

// cruise is a Copter's default speed of a goto, in m/s; NaN if unknown. WP_SPD, from 4.8-dev on,
// is in m/s, the older WPNAV_SPEED in cm/s.
func (v view) cruise() float64 { return v.param("WP_SPD", v.param("WPNAV_SPEED", math.NaN())/100) }

// param returns a parameter of the autopilot, or its second argument if that was not sent.
func (v view) param(name string, otherwise float64) float64 {
	if value, ok := v.params[name]; ok {
		return value
	}
	return otherwise
}
