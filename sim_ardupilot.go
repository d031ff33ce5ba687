package main

import (
	"cmp"
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// ArduPilot's custom modes that the code below names.
const (
	simArduStabilize = 0
	simArduGuided    = 4
	simArduRTL       = 6
	simArduLand      = 9
)

var simArduVehicle = simVehicle{
	autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA,
	version:   4<<24 | 5<<16 | 5<<8 | 255,
	volts:     12.6,
	first:     simArduStabilize, hold: simArduGuided, land: simArduLand, rtl: simArduRTL,
	landSpeed: 0.5, stickSpeed: 8.6, stickUp: 2.5, stickDown: 2.4,
	brake: 2, early: 0.2, returnUp: 15,
	streams:  map[uint32]time.Duration{0: time.Second}, // nothing else until asked
	defaults: map[string]float64{"SYSID_MYGCS": 255},
	modes: []simMode{
		{custom: simArduStabilize, name: "STABILIZE", flying: simThrust},
		{custom: 1, name: "ACRO", flying: simThrust},
		{custom: 2, name: "ALT_HOLD", flying: simTilt},
		{custom: 3, name: "AUTO", position: true, noArm: true},
		{custom: simArduGuided, name: "GUIDED", position: true},
		{custom: 5, name: "LOITER", flying: simVelocity, position: true},
		{custom: simArduRTL, name: "RTL", flying: simReturn, position: true, noArm: true},
		{custom: 7, name: "CIRCLE", position: true, noArm: true},
		{custom: simArduLand, name: "LAND", flying: simDescend, noArm: true},
		{custom: 11, name: "DRIFT", flying: simTilt, position: true},
		{custom: 13, name: "SPORT", flying: simTilt},
		{custom: 14, name: "FLIP", flying: simThrust, noArm: true},
		{custom: 15, name: "AUTOTUNE", flying: simTilt, noArm: true},
		{custom: 16, name: "POSHOLD", flying: simVelocity, position: true},
		{custom: 17, name: "BRAKE", position: true, noArm: true},
		{custom: 18, name: "THROW", position: true},
		{custom: 20, name: "GUIDED_NOGPS", flying: simTilt},
		{custom: 21, name: "SMART_RTL", flying: simReturn, position: true, noArm: true},
	},
}

const (
	simArduReady    = 2 * time.Second // "ArduPilot Ready"
	simArduOverride = 3 * time.Second // RC_OVERRIDE_TIME: how long a stick stands
	simArduRadio    = time.Second     // from there to the radio failsafe
)

// simArduBrain is ArduCopter as measured in AUTOPILOTS.md.
type simArduBrain struct {
	*simulator
	stick     [4]int16  // x, y, z, r
	stickAt   time.Time // zero: never, or given up
	overrides [4]bool   // axes that the sticks hold
	speed     float64   // of DO_CHANGE_SPEED
}

func (b *simArduBrain) start() {
	*b = simArduBrain{simulator: b.simulator, speed: simCruise}
	b.transmit([]byte{0x00, 0xff, 0x41, 0x50, 0x0d, 0x0a}) // stray bytes of the boot loader
	b.after(simArduReady, func() {
		b.text(common.MAV_SEVERITY_INFO, "ArduPilot Ready")
		b.send(b.message(242))
		if !b.armed {
			b.enter(simArduStabilize) // a mode that was set before this is lost
		}
	})
}

// text follows the ack that it explains.
func (b *simArduBrain) text(severity common.MAV_SEVERITY, text string) {
	b.after(5*time.Millisecond, func() { b.sendText(severity, text, 0) })
}

func (b *simArduBrain) state() (common.MAV_MODE_FLAG, common.MAV_STATE) {
	base := common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | common.MAV_MODE_FLAG_STABILIZE_ENABLED |
		common.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
	if b.row(b.mode).position {
		base |= common.MAV_MODE_FLAG_GUIDED_ENABLED
	}
	if b.armed {
		base |= common.MAV_MODE_FLAG_SAFETY_ARMED
	}
	switch {
	case b.failsafe:
		return base, common.MAV_STATE_CRITICAL
	case b.airborne:
		return base, common.MAV_STATE_ACTIVE
	}
	return base, common.MAV_STATE_STANDBY
}

func (b *simArduBrain) command(c simCommand) {
	switch c.id {
	case common.MAV_CMD_DO_SET_MODE:
		if int(c.p[0])&1 == 0 {
			b.ack(c, common.MAV_RESULT_FAILED)
			return
		}
		b.ack(c, b.obey(uint32(uint8(c.p[1]))))
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		b.ack(c, b.armDisarm(c.p[0] == 1))
	case common.MAV_CMD_NAV_TAKEOFF:
		b.ack(c, b.takeoff(c))
	case common.MAV_CMD_NAV_LAND: // its place is ignored
		b.ack(c, b.obey(simArduLand))
	case common.MAV_CMD_NAV_RETURN_TO_LAUNCH:
		b.ack(c, b.obey(simArduRTL))
	case common.MAV_CMD_DO_REPOSITION:
		b.ack(c, b.reposition(c))
	case common.MAV_CMD_DO_CHANGE_SPEED, common.MAV_CMD_CONDITION_YAW:
		b.ack(c, b.adjust(c))
	default:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	}
}

func (b *simArduBrain) positioned() bool { return time.Since(b.booted) >= b.armableAfter }

// obey enters a mode. While disarmed any will do; one that doesn't exist fails.
func (b *simArduBrain) obey(custom uint32) common.MAV_RESULT {
	row := b.row(custom)
	switch {
	case row.refused:
		b.text(common.MAV_SEVERITY_WARNING, "No such mode")
		return common.MAV_RESULT_FAILED
	case b.armed && row.position && !b.positioned():
		b.text(common.MAV_SEVERITY_WARNING, "Mode change to "+row.name+" failed: requires position")
		return common.MAV_RESULT_FAILED
	}
	b.failsafe = false
	b.enter(custom)
	if custom == simArduLand && b.armed && !b.airborne {
		b.disarm()
	}
	return common.MAV_RESULT_ACCEPTED
}

// entered: a new mode flies at the default speed, and is told at once.
func (b *simArduBrain) entered() {
	b.speed = simCruise
	b.send(b.message(0))
}

func (b *simArduBrain) climbed() {}

// takeoff wants GUIDED and armed, and takes metres above home. In LOITER it is
// accepted and nothing turns.
func (b *simArduBrain) takeoff(c simCommand) common.MAV_RESULT {
	switch {
	case !c.long && c.frame != common.MAV_FRAME_GLOBAL_RELATIVE_ALT:
		return common.MAV_RESULT_DENIED
	case !b.armed || b.airborne || math.IsNaN(c.alt) || c.alt <= 0:
		return common.MAV_RESULT_FAILED
	case b.row(b.mode).name == "LOITER":
		return common.MAV_RESULT_ACCEPTED
	case b.mode != simArduGuided:
		return common.MAV_RESULT_FAILED
	}
	b.climb(c.alt)
	return common.MAV_RESULT_ACCEPTED
}

// reposition ignores speed and yaw, and what it accepts on the ground.
func (b *simArduBrain) reposition(c simCommand) common.MAV_RESULT {
	var up float64
	switch c.frame {
	case common.MAV_FRAME_GLOBAL, common.MAV_FRAME_GLOBAL_INT:
		up = c.alt - simHomeAlt
	case common.MAV_FRAME_GLOBAL_RELATIVE_ALT, common.MAV_FRAME_GLOBAL_RELATIVE_ALT_INT:
		up = c.alt
	case common.MAV_FRAME_GLOBAL_TERRAIN_ALT, common.MAV_FRAME_GLOBAL_TERRAIN_ALT_INT:
		up = -5 // accepted, and flown into the ground
	default:
		return common.MAV_RESULT_DENIED
	}
	switch {
	case c.long:
		return common.MAV_RESULT_UNSUPPORTED
	case c.lat == 0 && c.lon == 0, math.IsNaN(c.lat + c.lon + c.alt):
		return common.MAV_RESULT_DENIED
	case int(c.p[1])&1 == 0 && b.mode != simArduGuided:
		return common.MAV_RESULT_DENIED
	}
	if b.mode != simArduGuided {
		if result := b.obey(simArduGuided); result != common.MAV_RESULT_ACCEPTED {
			return result
		}
	}
	if b.canFly() {
		north, east := simMetres(c.lat, c.lon)
		b.climbing = false
		b.target = simTarget{north: north, east: east, up: up, yaw: math.NaN(), speed: b.speed}
	}
	return common.MAV_RESULT_ACCEPTED
}

// adjust is DO_CHANGE_SPEED and CONDITION_YAW: in GUIDED only.
func (b *simArduBrain) adjust(c simCommand) common.MAV_RESULT {
	switch {
	case b.mode != simArduGuided:
		return common.MAV_RESULT_FAILED
	case c.id == common.MAV_CMD_CONDITION_YAW:
		yaw := c.p[0] * math.Pi / 180
		if c.p[3] == 1 { // relative, param3 tells which way
			yaw = b.quad.heading + math.Copysign(yaw, c.p[2])
		}
		b.target.yaw = yaw
	case c.p[0] != 1 || !(c.p[1] > 0):
		return common.MAV_RESULT_FAILED
	default:
		b.speed, b.target.speed = c.p[1], c.p[1]
	}
	return common.MAV_RESULT_ACCEPTED
}

func (b *simArduBrain) canArm() bool {
	row := b.row(b.mode)
	return !row.noArm && (!row.position || b.positioned())
}

func (b *simArduBrain) armDisarm(arm bool) common.MAV_RESULT {
	denied := func(text string) common.MAV_RESULT {
		b.text(common.MAV_SEVERITY_CRITICAL, text)
		return common.MAV_RESULT_FAILED
	}
	row := b.row(b.mode)
	switch {
	case arm == b.armed:
	case !arm && b.airborne:
		return common.MAV_RESULT_FAILED
	case !arm:
		b.disarm()
	case row.noArm:
		return denied("Arm: " + row.name + " mode not armable")
	case !b.canArm():
		return denied("PreArm: Need Position Estimate")
	case b.axis(2) > 0: // even in GUIDED
		return denied("Arm: Throttle (RC3) is not neutral")
	default:
		b.arm()
		b.text(common.MAV_SEVERITY_INFO, "Arming motors")
	}
	return common.MAV_RESULT_ACCEPTED
}

// disarmed stays in its mode, LAND and RTL included.
func (b *simArduBrain) disarmed(bool) { b.text(common.MAV_SEVERITY_INFO, "Disarming motors") }

// sticks count from SYSID_MYGCS only, and only to exactly this system.
func (b *simArduBrain) sticks(from uint8, m *common.MessageManualControl) {
	if float64(from) != cmp.Or(b.params["SYSID_MYGCS"], b.params["MAV_GCS_SYSID"], 255) || m.Target != b.system || m.Z < 0 {
		return
	}
	b.stickAt = time.Now()
	for i, v := range [4]int16{m.X, m.Y, m.Z, m.R} {
		b.overrides[i] = v != math.MaxInt16
		b.stick[i] = max(-1000, min(1000, v))
	}
}

// axis is what the sticks say, for 3 s after they were heard; then, and for a
// released axis, the receiver's: centred, with the throttle low.
func (b *simArduBrain) axis(i int) int16 {
	if b.stickAt.IsZero() || time.Since(b.stickAt) > simArduOverride || !b.overrides[i] {
		return 0
	}
	return b.stick[i]
}

func (b *simArduBrain) axes() (x, y, z, r float64) {
	return float64(b.axis(0)) / 1000, float64(b.axis(1)) / 1000, float64(b.axis(2)) / 1000, float64(b.axis(3)) / 1000
}

// step is the radio failsafe (FS_THR_ENABLE): the sticks are silent, no
// receiver has any, and the mode is flown by them.
func (b *simArduBrain) step() {
	silent := !b.stickAt.IsZero() && time.Since(b.stickAt) >= simArduOverride+simArduRadio
	if silent && b.armed && !b.receiver.live() && b.row(b.mode).sticks() {
		b.stickAt = time.Time{}
		b.enter(simArduRTL)
		b.failsafe = true
		b.text(common.MAV_SEVERITY_WARNING, "Radio Failsafe")
	}
}
