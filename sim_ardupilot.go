package main

// ArduPilot's Copter, as docs/autopilots.md describes it: its commands, arming, sticks and
// failsafes. Its flight and its messages are in sim_ardupilot_flight.go.

import (
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
	simArduBrake     = 17
)

// simCopterV47 is the first release that denies a speed of 0.
const simCopterV47 = 4<<24 | 7<<16

var simArduVehicle = simVehicle{
	autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA,
	version:   4<<24 | 5<<16 | 5<<8 | 255,
	volts:     12.6,
	first:     simArduStabilize, hold: simArduGuided, land: simArduLand, rtl: simArduRTL,
	landSpeed: 0.5, stickSpeed: 8.6, stickUp: 2.5, stickDown: 2.4,
	streams:  map[uint32]time.Duration{0: time.Second, 111: 10 * time.Second}, // the others start on request
	defaults: map[string]float64{"SYSID_MYGCS": 255, "FS_GCS_ENABLE": 0, "WPNAV_SPEED": 1000},
	modes: []simMode{
		{custom: simArduStabilize, name: "STABILIZE", flying: simThrust},
		{custom: 1, name: "ACRO", flying: simThrust},
		{custom: 2, name: "ALT_HOLD", flying: simTilt},
		{custom: 3, name: "AUTO", needsPosition: true, noArm: true},
		{custom: simArduGuided, name: "GUIDED", needsPosition: true},
		{custom: 5, name: "LOITER", flying: simVelocity, needsPosition: true},
		{custom: simArduRTL, name: "RTL", flying: simReturn, needsPosition: true, noArm: true},
		{custom: 7, name: "CIRCLE", needsPosition: true, noArm: true},
		{custom: simArduLand, name: "LAND", flying: simDescend, noArm: true},
		{custom: 11, name: "DRIFT", flying: simTilt, needsPosition: true},
		{custom: 13, name: "SPORT", flying: simTilt},
		{custom: 14, name: "FLIP", flying: simThrust, noArm: true},
		{custom: 15, name: "AUTOTUNE", flying: simTilt, noArm: true},
		{custom: 16, name: "POSHOLD", flying: simVelocity, needsPosition: true},
		{custom: simArduBrake, name: "BRAKE", needsPosition: true, noArm: true},
		{custom: 18, name: "THROW", needsPosition: true},
		{custom: 20, name: "GUIDED_NOGPS", flying: simTilt},
		{custom: 21, name: "SMART_RTL", flying: simReturn, needsPosition: true, noArm: true},
	},
}

const (
	simArduReady    = 2 * time.Second         // from boot to "ArduPilot Ready"
	simArduOverride = 3 * time.Second         // RC_OVERRIDE_TIME: how long the last MANUAL_CONTROL stays in force
	simArduRelease  = 12 * time.Millisecond   // from a release until the receiver's sticks act
	simArduRadio    = time.Second             // from the last MANUAL_CONTROL, or the receiver's last sign of life, to the radio failsafe
	simArduGCS      = 5100 * time.Millisecond // from the ground station's last sign of life to its failsafe
	simArduAnswer   = 4 * time.Millisecond    // from an ack to the requested message
	simArduGuard    = 5 * time.Millisecond    // two mode changes within this time are an internal error
	simArduLanded   = 1800 * time.Millisecond // from the touch to landed_state on_ground
)

// simArduBrain is ArduCopter.
type simArduBrain struct {
	*simulator

	stick    [4]int16     // x, y, z, r of MANUAL_CONTROL
	override [4]time.Time // until when each axis is in force
	stickAt  time.Time    // when a MANUAL_CONTROL last overrode an axis; zero if none did
	streamAt time.Time    // when the stream of MANUAL_CONTROLs began
	rcAt     time.Time    // when the receiver was last live
	channels [5]uint16    // RC_CHANNELS 1 to 5, µs
	gcsAt    time.Time    // last sign of life of system SYSID_MYGCS; zero if there was none
	radio    bool         // radio failsafe
	gcs      bool         // ground station failsafe

	obeyedAt time.Time // when it last accepted a mode
	broken   bool      // it has "Internal errors" until it reboots
	dead     bool      // it has crashed until it reboots

	simArduFlight
}

func (b *simArduBrain) start() {
	b.muted = b.muted && !b.dead // a reboot ends the silence of a crash
	*b = simArduBrain{simulator: b.simulator}
	b.brain.stay()
	if b.receiver == simReceiverInHand && b.rc == [4]int16{} {
		b.rc[2] = 500
	}
	b.transmit([]byte{0x00, 0xff, 0x41, 0x50, 0x0d, 0x0a}) // stray bytes of the boot loader
	b.after(simArduReady, func() {
		b.text(common.MAV_SEVERITY_INFO, "ArduPilot Ready")
		if !b.armed {
			b.enter(b.first) // a mode that was set before this is lost
		}
	})
	b.after(b.sinceBoot(20), func() { b.send(b.brain.message(242)) })
}

// sinceBoot scales a time of the real boot by armableAfter. A real ArduPilot has a GPS fix at
// 10 s and a home at 20 s. It can be armed in STABILIZE at 24 s, in GUIDED at 42 s.
func (b *simArduBrain) sinceBoot(seconds float64) time.Duration {
	return time.Duration(float64(b.armableAfter) * seconds / 42)
}

// bootedFor reports whether that many seconds of the real boot have passed.
func (b *simArduBrain) bootedFor(seconds float64) bool {
	return time.Since(b.booted) >= b.sinceBoot(seconds)
}

// positioned reports whether the EKF has a position, which takes longer than the GPS fix.
func (b *simArduBrain) positioned() bool { return b.bootedFor(42) }

// text sends a text 5 ms later, after the ack that it explains.
func (b *simArduBrain) text(severity common.MAV_SEVERITY, text string) {
	b.after(5*time.Millisecond, func() { b.sendText(severity, text, 0) })
}

func (b *simArduBrain) state() (common.MAV_MODE_FLAG, common.MAV_STATE) {
	base := common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | common.MAV_MODE_FLAG_STABILIZE_ENABLED |
		common.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
	if b.row(b.mode).needsPosition {
		base |= common.MAV_MODE_FLAG_GUIDED_ENABLED
	}
	if b.armed {
		base |= common.MAV_MODE_FLAG_SAFETY_ARMED
	}
	switch {
	case b.failsafe || b.broken:
		return base, common.MAV_STATE_CRITICAL
	case !b.grounded() || time.Since(b.booted) < simArduReady:
		return base, common.MAV_STATE_ACTIVE
	}
	return base, common.MAV_STATE_STANDBY
}

// grounded reports whether ArduPilot knows that it is on the ground. It notices a landing
// simArduLanded after the touch.
func (b *simArduBrain) grounded() bool {
	landing := b.armed && b.landedAt.After(b.armedAt) && time.Since(b.landedAt) < simArduLanded
	return !b.airborne && !landing
}

// ---- Commands ----

func (b *simArduBrain) command(c simCommand) {
	if b.dead {
		return
	}
	switch c.id {
	case common.MAV_CMD_DO_SET_MODE:
		if int(c.p[0])&1 == 0 { // without MAV_MODE_FLAG_CUSTOM_MODE_ENABLED
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
	case common.MAV_CMD_DO_CHANGE_SPEED:
		b.changeSpeed(c)
	case common.MAV_CMD_CONDITION_YAW:
		b.ack(c, b.yaw(c))
	case common.MAV_CMD_DO_PAUSE_CONTINUE:
		if b.mode != b.hold {
			b.ack(c, common.MAV_RESULT_FAILED)
			return
		}
		b.paused = c.p[0] == 0
		b.ack(c, common.MAV_RESULT_ACCEPTED)
	default:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	}
}

// obey enters a mode. A disarmed vehicle accepts every mode that exists.
func (b *simArduBrain) obey(custom uint32) common.MAV_RESULT {
	row := b.row(custom)
	switch {
	case row.refused:
		b.text(common.MAV_SEVERITY_WARNING, "No such mode")
		return common.MAV_RESULT_FAILED
	case b.armed && row.needsPosition && !b.positioned():
		b.text(common.MAV_SEVERITY_WARNING, "Mode change to "+row.name+" failed: requires position")
		return common.MAV_RESULT_FAILED
	}
	if b.flavour == simArduPilot && custom != b.mode && time.Since(b.obeyedAt) <= simArduGuard {
		b.breakDown()
	}
	b.obeyedAt = time.Now()
	b.failsafe = b.radio || b.gcs // any other failsafe ends
	b.enter(custom)
	if row.flying == simDescend && b.armed && b.grounded() {
		b.disarm()
	}
	return common.MAV_RESULT_ACCEPTED
}

// breakDown raises the internal error that follows two mode changes at once. A real ArduPilot
// raises it in 3 to 7 of 50 pairs, the simulator in each. In the air the vehicle then climbs
// by itself (46 m were seen).
func (b *simArduBrain) breakDown() {
	if b.broken {
		return
	}
	b.broken = true
	if b.airborne {
		b.runaway = b.quad.up + 46
	}
	b.text(common.MAV_SEVERITY_CRITICAL, "Internal Errors 0x100000")
}

// entered sends the heartbeat of a new mode right after its ack.
func (b *simArduBrain) entered() {
	b.after(100*time.Microsecond, func() { b.send(b.brain.message(0)) })
}

func (b *simArduBrain) climbed() { b.level, b.rest.up = true, b.climbTo }

// takeoff is NAV_TAKEOFF, whose height is in metres above home. It needs GUIDED and an armed
// vehicle. In LOITER it is accepted, but the motors do not start.
func (b *simArduBrain) takeoff(c simCommand) common.MAV_RESULT {
	switch {
	case !c.long && c.frame != common.MAV_FRAME_GLOBAL_RELATIVE_ALT:
		return common.MAV_RESULT_DENIED
	case !b.armed || !b.grounded() || math.IsNaN(c.alt) || c.alt <= 0:
		return common.MAV_RESULT_FAILED
	case b.row(b.mode).name == "LOITER":
		return common.MAV_RESULT_ACCEPTED
	case b.mode != b.hold:
		return common.MAV_RESULT_FAILED
	}
	b.brain.stay()
	b.climb(c.alt)
	b.climbFrom = time.Now().Add(time.Second) // until the propellers, which idle after the arming, are up to speed
	if spun := b.armedAt.Add(3300 * time.Millisecond); spun.After(b.climbFrom) {
		b.climbFrom = spun
	}
	return common.MAV_RESULT_ACCEPTED
}

// reposition is DO_REPOSITION. Its speed and yaw are ignored. On the ground it is accepted and
// does nothing.
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
	case int(c.p[1])&1 == 0 && b.mode != b.hold: // without the flag to change the mode
		return common.MAV_RESULT_DENIED
	}
	north, east := simMetres(c.lat, c.lon)
	if b.fence > 0 && math.Hypot(north, east) > b.fence {
		return common.MAV_RESULT_FAILED // without a text
	}
	if b.mode != b.hold {
		if result := b.obey(b.hold); result != common.MAV_RESULT_ACCEPTED {
			return result
		}
	}
	b.climbing = b.climbing && b.canFly() // on the ground it ends a takeoff, and the vehicle stays
	if b.canFly() {
		b.flyTo(north, east, up)
	}
	return common.MAV_RESULT_ACCEPTED
}

// changeSpeed is DO_CHANGE_SPEED, which works in GUIDED only. A speed that comes before a goto is
// lost. One that comes after a goto also holds for every later goto, until GUIDED is left.
func (b *simArduBrain) changeSpeed(c simCommand) {
	switch {
	case math.IsNaN(c.p[1]):
		b.dead, b.muted = true, true // a floating-point exception, in any mode
	case c.p[1] <= 0 && b.version >= simCopterV47:
		b.ack(c, common.MAV_RESULT_DENIED)
	case b.mode != b.hold || c.p[0] != 1 || c.p[1] <= 0:
		b.ack(c, common.MAV_RESULT_FAILED)
	default:
		if b.going {
			b.target.speed = c.p[1]
		}
		b.ack(c, common.MAV_RESULT_ACCEPTED)
	}
}

// yaw is CONDITION_YAW, which works in GUIDED only.
func (b *simArduBrain) yaw(c simCommand) common.MAV_RESULT {
	if b.mode != b.hold {
		return common.MAV_RESULT_FAILED
	}
	yaw := c.p[0] * math.Pi / 180
	if c.p[3] == 1 { // relative; param3 is the direction
		yaw = b.quad.heading + math.Copysign(yaw, c.p[2])
	}
	b.target.yaw = yaw
	return common.MAV_RESULT_ACCEPTED
}

// ---- Arming ----

// prearm returns why the vehicle can't be armed in the present mode. armDisarm checks more.
func (b *simArduBrain) prearm() (reasons []string) {
	if b.broken {
		reasons = append(reasons, "Internal errors 0x100000 l:297 flow_of_ctrl")
	}
	if !b.bootedFor(24) {
		reasons = append(reasons, "Accels inconsistent")
	}
	if !b.receiver.live() && !b.streaming2s() {
		reasons = append(reasons, "RC not found")
	}
	if b.row(b.mode).needsPosition && !b.positioned() {
		reasons = append(reasons, "Need Position Estimate")
	}
	return reasons
}

// streaming2s reports whether a stream of sticks has run for 2 s. It then counts as a
// receiver.
func (b *simArduBrain) streaming2s() bool {
	now := time.Now()
	return now.Sub(b.stickAt) < simArduRadio && now.Sub(b.streamAt) >= 2*time.Second
}

func (b *simArduBrain) canArm() bool { return len(b.prearm()) == 0 }

func (b *simArduBrain) armDisarm(arm bool) common.MAV_RESULT {
	if arm == b.armed {
		return common.MAV_RESULT_ACCEPTED
	}
	if !arm {
		if !b.grounded() {
			return common.MAV_RESULT_FAILED
		}
		b.disarm()
		return common.MAV_RESULT_ACCEPTED
	}
	reasons, row := b.prearm(), b.row(b.mode)
	if len(reasons) == 0 && row.noArm {
		reasons = append(reasons, row.name+" mode not armable")
	}
	if len(reasons) == 0 && b.axis(2) > 0 { // even in GUIDED
		reasons = append(reasons, "Throttle (RC3) is not neutral")
	}
	for _, r := range reasons {
		b.text(common.MAV_SEVERITY_CRITICAL, "Arm: "+r)
	}
	if len(reasons) > 0 {
		return common.MAV_RESULT_FAILED
	}
	b.arm()
	b.text(common.MAV_SEVERITY_INFO, "Arming motors")
	b.after(time.Millisecond, func() { b.send(b.brain.message(242)) }) // home is set here
	return common.MAV_RESULT_ACCEPTED
}

// disarmed does not change the mode, not even LAND or RTL.
func (b *simArduBrain) disarmed(bool) {
	b.radio, b.gcs = false, false
	b.text(common.MAV_SEVERITY_INFO, "Disarming motors")
}

// disarms reports whether the vehicle disarms by itself now: in LAND and RTL 2.1 s after the
// landing, in other modes after DISARM_DELAY.
func (b *simArduBrain) disarms(now time.Time) bool {
	due := b.armedAt.Add(10 * time.Second)
	if b.landedAt.After(b.armedAt) {
		due = b.landedAt.Add(10 * time.Second)
		if f := b.row(b.mode).flying; f == simDescend || f == simReturn {
			due = b.landedAt.Add(2100 * time.Millisecond)
		}
	}
	return !b.dead && now.After(due)
}

// ---- Sticks ----

// mygcs returns the system id whose sticks ArduPilot obeys.
func (b *simArduBrain) mygcs() uint8 {
	for _, name := range []string{"SYSID_MYGCS", "MAV_GCS_SYSID"} {
		if v, ok := b.params[name]; ok {
			return uint8(v)
		}
	}
	return 255
}

// sticks handles a MANUAL_CONTROL. ArduPilot obeys it only if it comes from SYSID_MYGCS and
// its target is exactly this system.
func (b *simArduBrain) sticks(from uint8, m *common.MessageManualControl) {
	if b.dead || from != b.mygcs() || m.Target != b.system || m.Z < 0 {
		return
	}
	now := time.Now()
	b.heardGCS(now)
	overrides := false // whether m overrides an axis
	for i, v := range [4]int16{m.X, m.Y, m.Z, m.R} {
		if v == math.MaxInt16 { // releases the axis
			if soon := now.Add(simArduRelease); soon.Before(b.override[i]) {
				b.override[i] = soon
			}
			continue
		}
		overrides = true
		b.stick[i], b.override[i] = max(-1000, min(1000, v)), now.Add(simArduOverride)
	}
	if !overrides {
		return
	}
	if now.Sub(b.stickAt) >= simArduRadio {
		b.streamAt = now
	}
	b.stickAt = now
	b.radioBack()
}

// axis returns the override while it is in force, else the receiver's stick. Without a
// receiver the sticks are centred and the throttle is low.
func (b *simArduBrain) axis(i int) int16 {
	switch {
	case time.Now().Before(b.override[i]):
		return b.stick[i]
	case b.receiver.live():
		return b.rc[i]
	}
	return 0
}

func (b *simArduBrain) axes() (x, y, z, r float64) {
	return float64(b.axis(0)) / 1000, float64(b.axis(1)) / 1000, float64(b.axis(2)) / 1000, float64(b.axis(3)) / 1000
}

// readChannels updates RC_CHANNELS. A channel shows its override, else the receiver's value.
// A channel that has neither keeps its last value.
func (b *simArduBrain) readChannels() {
	now := time.Now()
	if b.receiver.live() { // channels from 5 on are never overridden
		b.channels[4] = b.rcSwitch
	}
	for axis, channel := range [4]int{1, 0, 2, 3} { // x, pitch, is channel 2 and reversed
		if !b.receiver.live() && !now.Before(b.override[axis]) {
			continue
		}
		v := int(b.axis(axis))
		b.channels[channel] = uint16([4]int{1500 - v/2, 1500 + v/2, 1000 + v, 1500 + v/2}[axis])
	}
}

// hear handles a heartbeat. Any heartbeat from the ground station's system counts as one of the
// ground station.
func (b *simArduBrain) hear(system uint8, _ bool, _ *common.MessageHeartbeat) {
	if system == b.mygcs() {
		b.heardGCS(time.Now())
	}
}

func (b *simArduBrain) heardGCS(now time.Time) {
	b.gcsAt = now
	if b.gcs {
		b.gcs, b.failsafe = false, b.radio
		b.text(common.MAV_SEVERITY_WARNING, "GCS Failsafe Cleared")
	}
}

// radioBack ends the radio failsafe, but not the mode that it set.
func (b *simArduBrain) radioBack() {
	if b.radio {
		b.radio, b.failsafe = false, b.gcs
		b.text(common.MAV_SEVERITY_WARNING, "Radio Failsafe Cleared")
	}
}

// ---- What happens by itself ----

func (b *simArduBrain) step() {
	now := time.Now()
	if b.dead {
		return
	}
	b.readChannels()
	if b.receiver.live() {
		b.rcAt = now
		b.radioBack()
	}
	last := b.rcAt
	if b.stickAt.After(last) {
		last = b.stickAt
	}
	if b.armed && !b.radio && !last.IsZero() && now.Sub(last) >= simArduRadio {
		b.radio = true
		b.beginFailsafe("Radio Failsafe")
	}
	enabled := b.params["FS_GCS_ENABLE"] + b.params["FS_GCS_ENABL"] // a plane has only the second
	if b.armed && !b.gcs && enabled != 0 && !b.gcsAt.IsZero() && now.Sub(b.gcsAt) >= simArduGCS {
		b.gcs = true
		b.beginFailsafe("GCS Failsafe")
	}
}

// beginFailsafe begins a failsafe. In the air the vehicle flies home from any mode; on the
// ground it disarms.
func (b *simArduBrain) beginFailsafe(text string) {
	b.text(common.MAV_SEVERITY_WARNING, text)
	if b.grounded() {
		b.disarm()
		return
	}
	b.enter(b.rtl)
	b.failsafe = true
}
