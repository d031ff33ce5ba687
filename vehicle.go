package main

import "github.com/bluenviron/gomavlib/v3/pkg/dialects/common"

// airframe is what a vehicle is. It stays.
type airframe uint8

const (
	// multicopter: it hovers; a helicopter too
	multicopter airframe = 1 << iota

	// vtol: it hovers, or flies on its wing
	vtol

	// fixedWing: it flies on its wing
	fixedWing

	// rover: it drives
	rover

	// airframeUnknown: it can be read, not commanded
	airframeUnknown airframe = 0

	flies = multicopter | vtol | fixedWing
)

// firmware is a family of autopilots that share one table of modes.
type firmware uint8

// The families: a bit each, and firmwareUnknown.
const (
	px4 firmware = 1 << iota

	// copter: ArduPilot on a multirotor or helicopter
	copter

	// quadPlane: ArduPilot on a VTOL plane
	quadPlane

	// plane: ArduPilot on a fixed wing
	plane

	// arduRover: ArduPilot on a rover or boat, which is read, not commanded
	arduRover

	// arduSub: ArduPilot on a submarine, the same
	arduSub

	firmwareUnknown firmware = 0

	// planes are ArduPlane's families: one firmware.
	planes = plane | quadPlane

	// ardupilots are all of ArduPilot's families.
	ardupilots = copter | planes | arduRover | arduSub
)

func (f firmware) ardupilot() bool { return f&ardupilots != 0 }

// px4Airframes are the vehicles that PX4 flies or drives, by MAV_TYPE, which is a byte of the HEARTBEAT.
var px4Airframes = [256]airframe{
	common.MAV_TYPE_GENERIC:                   multicopter, // PX4 could not say what it is
	common.MAV_TYPE_QUADROTOR:                 multicopter,
	common.MAV_TYPE_COAXIAL:                   multicopter,
	common.MAV_TYPE_HEXAROTOR:                 multicopter,
	common.MAV_TYPE_OCTOROTOR:                 multicopter,
	common.MAV_TYPE_TRICOPTER:                 multicopter,
	common.MAV_TYPE_DODECAROTOR:               multicopter,
	common.MAV_TYPE_DECAROTOR:                 multicopter,
	common.MAV_TYPE_VTOL_TAILSITTER_DUOROTOR:  vtol,
	common.MAV_TYPE_VTOL_TAILSITTER_QUADROTOR: vtol,
	common.MAV_TYPE_VTOL_TILTROTOR:            vtol,
	common.MAV_TYPE_VTOL_FIXEDROTOR:           vtol,
	common.MAV_TYPE_VTOL_TAILSITTER:           vtol,
	common.MAV_TYPE_VTOL_TILTWING:             vtol,
	common.MAV_TYPE_VTOL_RESERVED5:            vtol,
	common.MAV_TYPE_FIXED_WING:                fixedWing,
	common.MAV_TYPE_GROUND_ROVER:              rover,
}

// arduPilots are ArduPilot's families, by the MAV_TYPE that they fly.
var arduPilots = [256]firmware{
	common.MAV_TYPE_QUADROTOR:                 copter,
	common.MAV_TYPE_COAXIAL:                   copter,
	common.MAV_TYPE_HELICOPTER:                copter,
	common.MAV_TYPE_HEXAROTOR:                 copter,
	common.MAV_TYPE_OCTOROTOR:                 copter,
	common.MAV_TYPE_TRICOPTER:                 copter,
	common.MAV_TYPE_DODECAROTOR:               copter,
	common.MAV_TYPE_DECAROTOR:                 copter,
	common.MAV_TYPE_FIXED_WING:                plane, // or a QuadPlane: see firmware
	common.MAV_TYPE_VTOL_TAILSITTER_DUOROTOR:  quadPlane,
	common.MAV_TYPE_VTOL_TAILSITTER_QUADROTOR: quadPlane,
	common.MAV_TYPE_VTOL_TILTROTOR:            quadPlane,
	common.MAV_TYPE_VTOL_FIXEDROTOR:           quadPlane,
	common.MAV_TYPE_VTOL_TAILSITTER:           quadPlane,
	common.MAV_TYPE_VTOL_TILTWING:             quadPlane,
	common.MAV_TYPE_VTOL_RESERVED5:            quadPlane,
	common.MAV_TYPE_GROUND_ROVER:              arduRover,
	common.MAV_TYPE_SURFACE_BOAT:              arduRover,
	common.MAV_TYPE_SUBMARINE:                 arduSub,
}

func (i identity) airframe() airframe { return airframeOf(i.firmware(), i.typ) }

// airframeOf is what a vehicle of a family and a type is.
func airframeOf(f firmware, typ common.MAV_TYPE) airframe {
	if f == px4 {
		return px4Airframes[byte(typ)]
	}
	return f.airframes()
}

// airframes are those that a family flies or drives.
func (f firmware) airframes() airframe {
	switch f {
	case px4:
		return flies | rover
	case copter:
		return multicopter
	case quadPlane:
		return vtol
	case plane:
		return fixedWing
	}
	return airframeUnknown
}

// firmware is the family, by a heartbeat and by EXTENDED_SYS_STATE's vtol_state: a QuadPlane calls
// itself a fixed wing (docs/autopilots.md, "QuadPlane"). PX4 has one table of modes for all.
func (i identity) firmware() firmware {
	switch i.autopilot {
	case common.MAV_AUTOPILOT_PX4:
		return px4
	case common.MAV_AUTOPILOT_ARDUPILOTMEGA:
		f := arduPilots[byte(i.typ)]
		if f == plane && i.vtol != 0 {
			return quadPlane
		}
		return f
	}
	return firmwareUnknown
}
