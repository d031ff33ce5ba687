package main

// ArduPilot's Copter, as docs/autopilots.md describes it: its commands, arming, sticks and
// failsafes, its flight and its messages.

import (
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
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

// simArduPilot is ArduPilot's Copter (-device sim:ardupilot).
var simArduPilot = &simVehicle{
	equip: func(s *simulator) (simAutopilot, simFlier) {
		b := &simArduBrain{simulator: s}
		return b, b
	},
	autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA,
	version:   4<<24 | 5<<16 | 5<<8 | 255,
	volts:     12.6,
	first:     simArduStabilize, hold: simArduGuided, land: simArduLand, rtl: simArduRTL,
	landSpeed: 0.5, stickSpeed: 8.6, stickUp: 2.5, stickDown: 2.4,
	streams:  map[uint32]time.Duration{0: time.Second, 111: 10 * time.Second}, // the others start on request
	defaults: map[string]float64{"SYSID_MYGCS": 255, "FS_GCS_ENABLE": 0, "WPNAV_SPEED": 1000, "RTL_ALT": 1500},
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
	// simArduReady: from boot to "ArduPilot Ready"
	simArduReady = 2 * time.Second

	// simArduOverride: RC_OVERRIDE_TIME: how long the last MANUAL_CONTROL stays in force
	simArduOverride = 3 * time.Second

	// simArduRelease: from a release until the receiver's sticks act
	simArduRelease = 12 * time.Millisecond

	// simArduRadio: from the last MANUAL_CONTROL, or the receiver's last sign of life, to the radio failsafe
	simArduRadio = time.Second

	// simArduGCS: from the ground station's last sign of life to its failsafe
	simArduGCS = 5100 * time.Millisecond

	// simArduAnswer: from an ack to the requested message
	simArduAnswer = 4 * time.Millisecond

	// simArduGuard: two mode changes within this time are an internal error
	simArduGuard = 5 * time.Millisecond

	// simArduLanded: from the touch to landed_state on_ground
	simArduLanded = 1800 * time.Millisecond

	// From the loss of its GPS until the EKF has no place, until its failsafe, and until it stops computing one.
	simArduUnplaced = 7500 * time.Millisecond
	simArduVariance = 8500 * time.Millisecond
	simArduStops    = 15 * time.Second
)

// simArduBrain is ArduCopter.
type simArduBrain struct {
	*simulator

	// stick: x, y, z, r of MANUAL_CONTROL
	stick [4]int16

	// override is until when each axis is in force.
	override [4]time.Time

	// stickAt is when a MANUAL_CONTROL last overrode an axis; zero if none did.
	stickAt time.Time

	// streamAt is when the stream of MANUAL_CONTROLs began.
	streamAt time.Time

	// rcAt is when the receiver was last live.
	rcAt time.Time

	// channels: RC_CHANNELS 1 to 5, µs
	channels [5]uint16

	// gcsAt: last sign of life of system SYSID_MYGCS; zero if there was none
	gcsAt time.Time

	// radio failsafe
	radio bool

	// gcs: ground station failsafe
	gcs bool

	// ekf is the EKF's failsafe.
	ekf bool

	// remembers is the place that it reports.
	remembers simRemembered

	// obeyedAt is when it last accepted a mode.
	obeyedAt time.Time

	// broken: it has "Internal errors" until it reboots
	broken bool

	simArduFlight
}

// simRemembered is a place as GLOBAL_POSITION_INT has it, with its height above the sea.
type simRemembered struct{ lat, lon, alt int32 }

func (b *simArduBrain) start() {
	*b = simArduBrain{simulator: b.simulator}
	b.flight.stay()
	if b.receiver == simReceiverInHand && b.rc == [4]int16{} {
		b.rc[2] = 500
	}

	// Stray bytes of the boot loader.
	b.transmit([]byte{0x00, 0xff, 0x41, 0x50, 0x0d, 0x0a})
	b.after(simArduReady, func() {
		b.text(common.MAV_SEVERITY_INFO, "ArduPilot Ready")
		if !b.armed {
			// A mode that was set before this is lost.
			b.enter(b.first)
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
func (b *simArduBrain) positioned() bool { return b.bootedFor(42) && !b.withoutGPS(simArduUnplaced) }

// withoutGPS reports whether the GPS has had no fix for that long.
func (b *simArduBrain) withoutGPS(d time.Duration) bool {
	return !b.noGPS.IsZero() && time.Since(b.noGPS) >= d
}

// failing reports whether a failsafe lasts that another mode does not end.
func (b *simArduBrain) failing() bool { return b.radio || b.gcs || b.ekf }

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
	if b.failsafe || b.broken {
		return base, common.MAV_STATE_CRITICAL
	}
	if !b.grounded() || time.Since(b.booted) < simArduReady {
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
	switch c.id {
	case common.MAV_CMD_SET_MESSAGE_INTERVAL:
		b.setInterval(c)
	case common.MAV_CMD_REQUEST_MESSAGE:
		b.requestMessage(c)
	case common.MAV_CMD_DO_SET_MODE:
		// Without MAV_MODE_FLAG_CUSTOM_MODE_ENABLED.
		if int(c.p[0])&1 == 0 {
			b.ack(c, common.MAV_RESULT_FAILED)
			return
		}
		b.ack(c, b.obey(uint32(uint8(c.p[1]))))
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		b.ack(c, b.armDisarm(c.p[0] == 1))
	case common.MAV_CMD_NAV_TAKEOFF:
		b.ack(c, b.takeoff(c))
	case common.MAV_CMD_NAV_LAND:
		// Its place is ignored.
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
	if row.refused {
		b.text(common.MAV_SEVERITY_WARNING, "No such mode")
		return common.MAV_RESULT_FAILED
	}
	if b.armed && row.needsPosition && !b.positioned() {
		b.text(common.MAV_SEVERITY_WARNING, "Mode change to "+row.name+" failed: requires position")
		return common.MAV_RESULT_FAILED
	}
	if b.flavour == simArduPilot && custom != b.mode && time.Since(b.obeyedAt) <= simArduGuard {
		b.breakDown()
	}
	b.obeyedAt = time.Now()

	// Any other failsafe ends.
	b.failsafe = b.failing()
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

// reached makes the height of a climb that has ended the height to stay at.
func (b *simArduBrain) reached(p simPoint) {
	if p == simHeight {
		b.level = true
		b.rest.up = b.climbTo
	}
}

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
	b.flight.stay()
	b.climbing = true
	b.climbTo = b.home.up + c.alt

	// Until the propellers, which idle after the arming, are up to speed.
	b.climbFrom = time.Now().Add(time.Second)
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
		up = b.home.up + c.alt
	case common.MAV_FRAME_GLOBAL_TERRAIN_ALT, common.MAV_FRAME_GLOBAL_TERRAIN_ALT_INT:
		// accepted, and flown into the ground
		up = -5
	default:
		return common.MAV_RESULT_DENIED
	}
	switch {
	case c.long:
		return common.MAV_RESULT_UNSUPPORTED
	case c.lat == 0 && c.lon == 0, math.IsNaN(c.lat + c.lon + c.alt):
		return common.MAV_RESULT_DENIED
	case int(c.p[1])&1 == 0 && b.mode != b.hold:
		// Without the flag to change the mode.
		return common.MAV_RESULT_DENIED
	}
	north, east := simMetres(c.lat, c.lon)
	if b.fence > 0 && math.Hypot(north, east) > b.fence {
		// Without a text.
		return common.MAV_RESULT_FAILED
	}
	if b.mode != b.hold {
		if result := b.obey(b.hold); result != common.MAV_RESULT_ACCEPTED {
			return result
		}
	}

	// On the ground it ends a takeoff, and the vehicle stays.
	b.climbing = b.climbing && b.canFly()
	if b.canFly() {
		b.flyTo(north, east, up)
	}
	return common.MAV_RESULT_ACCEPTED
}

// changeSpeed is DO_CHANGE_SPEED, which works in GUIDED only. A speed that comes before a goto is
// lost. One that comes after a goto also holds for every later goto, until GUIDED is left.
func (b *simArduBrain) changeSpeed(c simCommand) {
	switch {
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

	// The yaw is relative; param3 is the direction.
	if c.p[3] == 1 {
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
	switch {
	case !b.row(b.mode).needsPosition:
	case b.withoutGPS(0):
		reasons = append(reasons, "GPS 1: Bad fix")
	case !b.positioned():
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
	reasons := b.prearm()
	row := b.row(b.mode)
	if len(reasons) == 0 && row.noArm {
		reasons = append(reasons, row.name+" mode not armable")
	}

	// A raised throttle forbids arming even in GUIDED.
	if len(reasons) == 0 && b.axis(2) > 0 {
		reasons = append(reasons, "Throttle (RC3) is not neutral")
	}
	for _, r := range reasons {
		b.text(common.MAV_SEVERITY_CRITICAL, "Arm: "+r)
	}
	if len(reasons) > 0 {
		return common.MAV_RESULT_FAILED
	}
	b.arm()
	b.home.up = b.ground()
	b.text(common.MAV_SEVERITY_INFO, "Arming motors")

	// home is set here
	b.after(time.Millisecond, func() { b.send(b.brain.message(242)) })
	return common.MAV_RESULT_ACCEPTED
}

// disarmed does not change the mode, not even LAND or RTL.
func (b *simArduBrain) disarmed(bool) {
	b.radio = false
	b.gcs = false
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
	return now.After(due)
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
	if from != b.mygcs() || m.Target != b.system || m.Z < 0 {
		return
	}
	now := time.Now()
	b.heardGCS(now)

	// Whether m overrides an axis.
	overrides := false
	for i, v := range [4]int16{m.X, m.Y, m.Z, m.R} {
		// This value releases the axis.
		if v == math.MaxInt16 {
			if soon := now.Add(simArduRelease); soon.Before(b.override[i]) {
				b.override[i] = soon
			}
			continue
		}
		overrides = true
		b.stick[i] = max(-1000, min(1000, v))
		b.override[i] = now.Add(simArduOverride)
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
	if time.Now().Before(b.override[i]) {
		return b.stick[i]
	}
	if b.receiver.live() {
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

	// Channels from 5 on are never overridden.
	if b.receiver.live() {
		b.channels[4] = b.rcSwitch
	}

	// x, pitch, is channel 2 and reversed
	for axis, channel := range [4]int{1, 0, 2, 3} {
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
		b.gcs = false
		b.failsafe = b.failing()
		b.text(common.MAV_SEVERITY_WARNING, "GCS Failsafe Cleared")
	}
}

// radioBack ends the radio failsafe, but not the mode that it set.
func (b *simArduBrain) radioBack() {
	if b.radio {
		b.radio = false
		b.failsafe = b.failing()
		b.text(common.MAV_SEVERITY_WARNING, "Radio Failsafe Cleared")
	}
}

// ---- What happens by itself ----

func (b *simArduBrain) step() {
	now := time.Now()
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

	// A plane has only the second.
	enabled := b.params["FS_GCS_ENABLE"] + b.params["FS_GCS_ENABL"]
	if b.armed && !b.gcs && enabled != 0 && !b.gcsAt.IsZero() && now.Sub(b.gcsAt) >= simArduGCS {
		b.gcs = true
		b.beginFailsafe("GCS Failsafe")
	}
	b.watchGPS()
}

// watchGPS is the EKF's failsafe, which lands from a mode that needs a place, and what the vehicle remembers.
func (b *simArduBrain) watchGPS() {
	if !b.withoutGPS(simArduStops) {
		lat, lon := simPlace(b.quad.north, b.quad.east)
		b.remembers = simRemembered{simE7(lat), simE7(lon), int32((simHomeAlt + b.quad.up) * 1000)}
	}
	switch lost := b.withoutGPS(simArduVariance); {
	case lost && !b.ekf:
		b.ekf = true
		b.failsafe = true
		b.text(common.MAV_SEVERITY_CRITICAL, "EKF variance")
		if b.row(b.mode).needsPosition {
			b.enter(b.land)
			b.text(common.MAV_SEVERITY_CRITICAL, "EKF Failsafe: changed to LAND Mode")
		}
	case !lost && b.ekf:
		b.ekf = false
		b.failsafe = b.failing()
		b.text(common.MAV_SEVERITY_INFO, "EKF Failsafe Cleared")
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

// How ArduPilot's multirotor flies, tuned until it stopped, sank and climbed as in
// docs/autopilots.md and in the captured flights.
const (
	// simArduSlow: m/s², the deceleration before a place
	simArduSlow = 1.5

	// simArduHard: m/s², the deceleration of a stop
	simArduHard = 2.5

	// simArduLift: m/s², vertically, without sticks
	simArduLift = 1.0

	// simArduGain: 1/s: steer accelerates by this times (the wanted speed − the present one)
	simArduGain = 2.0

	// simArduLag: s, until an acceleration acts
	simArduLag = 0.35

	// simArduBack: s: after a stop the vehicle comes back by this times its earlier speed
	simArduBack = 0.075

	// simArduLean: m/s² at full stick: 30°
	simArduLean = 5.66

	// simArduDrag: m: at full stick 19 m/s
	simArduDrag = 64.0

	// simArduLoiter: s, until LOITER reaches the speed of its stick
	simArduLoiter = 2.16

	// simArduSinking: m/s, above 10 m and in gotos
	simArduSinking = 1.5

	// simArduTop: a goto's top speed is this times √(1 + metres): 5.5 m/s for 20 m, 7.8 for 41 m
	simArduTop = 1.2
)

// simLeg is a phase of a return.
type simLeg int

const (
	simLegUp simLeg = iota
	simLegHome
	simLegWait
	simLegLand
)

// simArduFlight is the state of the flight. The target is a field of the simulator.
type simArduFlight struct {
	// going: it flies to target, in GUIDED
	going bool

	// topSpeed: m/s, for the way to the target
	topSpeed float64

	// paused: by DO_PAUSE_CONTINUE
	paused bool

	// entry: the velocity at which the stop began
	entry [2]float64

	// still: it has stopped, at the place rest
	still bool

	// rest is where it stopped; rest.up is the height of a return until level is set.
	rest simTarget

	// level: it has stopped climbing or sinking, at the height rest.up
	level bool

	// centredAt is when LOITER's stick was centred; zero while it is deflected.
	centredAt time.Time

	leg simLeg

	// legAt is when the leg began.
	legAt time.Time

	// push: the present acceleration: north, east, up
	push [3]float64

	// runaway: the height to which it climbs by itself
	runaway float64
}

// stay begins a stop. It forgets the target and its speed.
func (b *simArduBrain) stay() {
	q := &b.quad
	push := b.push
	runaway := b.runaway
	b.simArduFlight = simArduFlight{entry: [2]float64{q.vn, q.ve}, push: push, runaway: runaway, legAt: time.Now()}
	b.rest = simTarget{north: q.north, east: q.east, up: b.returnUp(), yaw: math.NaN(), speed: 1}
	b.target = simTarget{north: q.north, east: q.east, up: q.up, yaw: math.NaN(), speed: b.cruise()}
}

// returnUp is the height of a return from here: RTL_ALT, in cm above home, or from 4.7 on RTL_ALT_M, in m. Near home
// that is three times the distance. It never sinks.
func (b *simArduBrain) returnUp() float64 {
	q := &b.quad
	return max(q.up, min(max(b.params["RTL_ALT_M"], b.params["RTL_ALT"]/100), 3*math.Hypot(q.north, q.east)))
}

// cruise returns the default speed: WPNAV_SPEED, in cm/s, or WP_SPD, in m/s.
func (b *simArduBrain) cruise() float64 {
	if v := b.params["WP_SPD"]; v > 0 {
		return v
	}
	if v := b.params["WPNAV_SPEED"] / 100; v > 0 {
		return v
	}
	return 10
}

// flyTo begins a goto. The vehicle flies nose ahead, at the speed that was set since GUIDED was
// entered, else at cruise.
func (b *simArduBrain) flyTo(north, east, up float64) {
	yaw := math.NaN()
	q := &b.quad
	if n, e := north-q.north, east-q.east; math.Hypot(n, e) > 2 {
		yaw = math.Atan2(e, n)
	}
	b.climbing = false
	b.going = true

	// It may have to stop and turn round.
	way := math.Hypot(north-q.north, east-q.east) + (q.vn*q.vn+q.ve*q.ve)/4
	b.topSpeed = simArduTop * math.Sqrt(1+way)
	b.target = simTarget{north: north, east: east, up: up, yaw: yaw, speed: b.target.speed}
}

func (b *simArduBrain) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	q := &b.quad
	x, y, z, r := b.axes()
	sin, cos := math.Sincos(q.heading)

	// The stick's deflection to the north and east.
	stickN, stickE := x*cos-y*sin, x*sin+y*cos
	rise := max(z-0.5, 0)*2*b.stickUp - max(0.5-z, 0)*2*b.stickDown
	if q.up < b.runaway {
		rise = b.stickUp
	}
	switch flying := b.row(b.mode).flying; {
	case !b.armed:
		return 0, 0, -20, 0
	case b.climbing && now.Before(b.climbFrom):
		return 0, 0, 0, 0
	case b.climbing:
		t := b.target
		t.up = b.climbTo
		vn, ve, vu = b.towards(t)
	case flying == simHold:
		vn, ve, vu = b.guided()
		turn = q.turn(b.target.yaw)
		if r != 0 {
			// Of the sticks only yaw acts.
			turn = r
		}
	case flying == simDescend:
		vn, ve, _ = b.halt()
		vu = b.sink()

		// Pitch and roll shift a landing.
		if x != 0 || y != 0 {
			vn = stickN * 2
			ve = stickE * 2
			b.still = false
			b.entry = [2]float64{}
		}
	case flying == simReturn:
		vn, ve, vu = b.homeward(now)
	case flying == simVelocity:
		vn, ve = b.loiter(now, stickN, stickE)
		vu = rise
		turn = r
	default:
		// To accelerate by a, it wants the present speed + a/simArduGain.
		drag := math.Hypot(q.vn, q.ve) / simArduDrag
		vn = q.vn + (stickN*simArduLean-q.vn*drag)/simArduGain
		ve = q.ve + (stickE*simArduLean-q.ve*drag)/simArduGain
		vu = rise
		turn = r
		if flying == simThrust {
			vu = b.thrust(z)
		}
	}
	return vn, ve, vu, turn
}

// thrust returns the climb rate under STABILIZE's throttle: 3 m/s with the stick in the
// middle. With a closed throttle the vehicle falls (14 m/s after 28 m).
func (b *simArduBrain) thrust(z float64) float64 {
	if !b.airborne {
		// A thrust above the weight lifts the vehicle.
		return z - 0.45
	}
	return max(-20, min(20, b.quad.vu+(12*(z-0.45)-0.2*b.quad.vu)/simArduGain))
}

// guided flies to the target, if there is one; else it stops. BRAKE slows down to 0.05 m/s before it
// holds the place, and does not come back.
func (b *simArduBrain) guided() (vn, ve, vu float64) {
	switch {
	case b.going && !b.paused:
		b.still = false
		b.level = false
		b.entry = [2]float64{}
		t := b.target
		t.speed = min(t.speed, b.topSpeed)
		return b.towards(t)
	case b.row(b.mode).name == "BRAKE" && math.Hypot(b.quad.vn, b.quad.ve) > 0.05 && !b.still:
		// Only for vu.
		_, _, vu = b.halt()

		// halt sets it below 0.2 m/s: too early for BRAKE
		b.still = false

		// Decelerates by speed / 1.65 s: exponentially.
		const slower = 1 - 1/(1.65*simArduGain)
		return b.quad.vn * slower, b.quad.ve * slower, vu
	case b.row(b.mode).name == "BRAKE":
		// So halt does not come back.
		b.entry = [2]float64{}
	}
	return b.halt()
}

// halt stops the vehicle. It then comes back a little, and holds its place and height.
func (b *simArduBrain) halt() (vn, ve, vu float64) {
	q := &b.quad
	if !b.still && math.Hypot(q.vn, q.ve) < 0.2 {
		b.still = true
		b.rest.north, b.rest.east = q.north-b.entry[0]*simArduBack, q.east-b.entry[1]*simArduBack
	}
	if !b.level && math.Abs(q.vu) < 0.1 {
		b.level = true
		b.rest.up = q.up
	}
	vn, ve, vu = b.towards(b.rest)
	if !b.still {
		vn, ve = 0, 0
	}
	if !b.level {
		vu = 0
	}
	return vn, ve, vu
}

// towards returns the velocity to a place. The vehicle overshoots a little.
func (b *simArduBrain) towards(t simTarget) (vn, ve, vu float64) {
	q := &b.quad
	n, e := t.north-q.north, t.east-q.east
	if d := math.Hypot(n, e); d > 0.01 {
		near := 1.2
		if q.vn*n+q.ve*e < 0 {
			// After an overshoot it comes back slowly.
			near = 0.7
		}
		v := min(t.speed, math.Sqrt(2*simArduSlow*d), near*d)
		vn, ve = n/d*v, e/d*v
	}
	u := t.up - q.up
	vu = math.Copysign(min(math.Sqrt(math.Abs(u)), math.Abs(u)), u)
	return vn, ve, max(-simArduSinking, min(b.stickUp, vu))
}

// loiter returns LOITER's velocity, which follows the stick slowly. When the stick is centred
// the vehicle drifts on for a second, then stops.
func (b *simArduBrain) loiter(now time.Time, stickN, stickE float64) (vn, ve float64) {
	q := &b.quad
	var an, ae float64
	speed := math.Hypot(q.vn, q.ve)
	switch {
	case stickN != 0 || stickE != 0:
		b.centredAt = time.Time{}
		b.still = false
		an, ae = (stickN*b.stickSpeed-q.vn)/simArduLoiter, (stickE*b.stickSpeed-q.ve)/simArduLoiter
	case b.centredAt.IsZero():
		b.centredAt = now
		b.entry = [2]float64{}
		fallthrough
	case now.Sub(b.centredAt) < time.Second && speed > 0.5:
		an, ae = -q.vn/4.5, -q.ve/4.5
	default:
		vn, ve, _ = b.halt()
		return vn, ve
	}
	return q.vn + an/simArduGain, q.ve + ae/simArduGain
}

// sink returns LAND's speed, which is slower below 10 m.
func (b *simArduBrain) sink() float64 {
	return -max(b.landSpeed, min(simArduSinking, b.landSpeed+b.quad.up-b.ground()-10.3))
}

// returnTarget returns the place to which the present leg of a return flies. b.target is
// where the return began.
func (b *simArduBrain) returnTarget() simTarget {
	t := simTarget{up: b.rest.up, yaw: math.NaN()}
	t.speed = min(b.cruise(), simArduTop*math.Sqrt(1+math.Hypot(b.target.north, b.target.east)))
	if b.leg == simLegUp {
		t.north, t.east = b.target.north, b.target.east
	}
	return t
}

// homeward climbs, flies home, waits 5 s and lands.
func (b *simArduBrain) homeward(now time.Time) (vn, ve, vu float64) {
	q := &b.quad
	vn, ve, vu = b.towards(b.returnTarget())
	next := false
	switch b.leg {
	case simLegUp:
		next = q.up > b.rest.up-0.1
	case simLegHome:
		next = math.Hypot(q.north, q.east) < 1 && math.Hypot(q.vn, q.ve) < 0.3
	case simLegWait:
		next = now.Sub(b.legAt) > 5*time.Second
	case simLegLand:
		vu = b.sink()
	}
	if next {
		b.leg++
		b.legAt = now
	}
	return vn, ve, vu
}

// steer changes the velocity, with the lag of a multirotor that must lean first.
func (b *simArduBrain) steer(vn, ve, vu, dt float64) {
	q := &b.quad
	horizontal := simArduHard

	// The most acceleration.
	vertical := simArduLift
	switch flying := b.row(b.mode).flying; {
	case !b.armed || flying == simThrust:
		horizontal = 12
		vertical = 20
	case flying == simTilt:
		horizontal = 12
		vertical = 2.5
	case flying == simVelocity:
		vertical = 2.5
	case flying == simReturn:
		vertical = 0.8
	case math.Abs(q.vu) > 3:
		// Out of a fall.
		vertical = 5
	}
	if !b.airborne || q.up == b.ground() {
		b.push = [3]float64{}
	}
	an, ae := (vn-q.vn)*simArduGain, (ve-q.ve)*simArduGain
	if a := math.Hypot(an, ae); a > horizontal {
		an, ae = an*horizontal/a, ae*horizontal/a
	}
	au := max(-vertical, min(vertical, (vu-q.vu)*simArduGain))
	k := min(1, dt/simArduLag)
	for i, a := range [3]float64{an, ae, au} {
		b.push[i] += (a - b.push[i]) * k
	}
	q.an, q.ae = b.push[0], b.push[1]
	q.vn += q.an * dt
	q.ve += q.ae * dt
	q.vu += b.push[2] * dt
	q.north += q.vn * dt
	q.east += q.ve * dt
	q.up += q.vu * dt
}

// simArduKnown are the ids of the messages that ArduPilot has. Some have no content at times.
var simArduKnown = []uint32{0, 1, 24, 30, 33, 65, 74, 87, 111, 124, 147, 148, 193, 242, 245}

func (b *simArduBrain) setInterval(c simCommand) {
	id := uint32(c.p[0])
	if id == 0 && b.noLiveMode {
		b.ack(c, common.MAV_RESULT_FAILED)
		return
	}
	if !slices.Contains(simArduKnown, id) {
		b.ack(c, common.MAV_RESULT_DENIED)
		b.text(common.MAV_SEVERITY_INFO, "No ap_message for mavlink id")
		return
	}
	b.setStream(c, id)
}

// requestMessage accepts the request of a known message even if there is none to send now.
func (b *simArduBrain) requestMessage(c simCommand) {
	id := uint32(c.p[0])
	if !slices.Contains(simArduKnown, id) {
		b.ack(c, common.MAV_RESULT_FAILED)
		b.text(common.MAV_SEVERITY_INFO, "No ap_message for mavlink id")
		return
	}
	b.ack(c, common.MAV_RESULT_ACCEPTED)
	b.after(simArduAnswer, func() {
		if m := b.brain.message(id); m != nil {
			b.sendOn(c.fromGCS, m)
		}
	})
}

// message returns nil if there is nothing to send now.
func (b *simArduBrain) message(id uint32) message.Message {
	m := b.sharedMessage(id)
	boot := uint32(time.Since(b.booted).Milliseconds())
	switch m := m.(type) {
	case *common.MessageSysStatus:
		b.sensors(m)
	case *common.MessageGpsRawInt:
		b.gps(m)
	case *common.MessageGlobalPositionInt:
		b.place(m)
	case *common.MessageVfrHud:
		b.hud(m)
	case *common.MessageHomePosition:
		if !b.bootedFor(20) {
			return nil
		}
	case *common.MessageExtendedSysState:
		m.VtolState, m.LandedState = common.MAV_VTOL_STATE_MC, b.landedState()
	}
	switch id {
	case 65:
		b.readChannels()
		c := b.channels
		return &common.MessageRcChannels{
			TimeBootMs: boot, Chancount: 16, Rssi: 255,
			Chan1Raw: c[0], Chan2Raw: c[1], Chan3Raw: c[2], Chan4Raw: c[3],
			Chan5Raw: c[4], Chan6Raw: 1000, Chan7Raw: 1000, Chan8Raw: 1800,
		}
	case 87:
		return b.positionTarget(boot)
	case 24:
		if b.secondGPS {
			return &common.MessageGpsRawInt{Eph: math.MaxUint16, Epv: math.MaxUint16}
		}
	case 124:
		if b.secondGPS {
			m := b.sharedMessage(24).(*common.MessageGpsRawInt)
			b.gps(m)
			return &common.MessageGps2Raw{
				FixType: m.FixType, Lat: m.Lat, Lon: m.Lon, Alt: m.Alt, Eph: m.Eph, Epv: m.Epv, Vel: m.Vel, Cog: m.Cog,
				SatellitesVisible: m.SatellitesVisible,
			}
		}
	case 111:
		return &common.MessageTimesync{Ts1: time.Since(b.booted).Nanoseconds()}
	case 193:
		return &MessageEkfStatusReport{Flags: b.estimate()}
	}
	return m
}

// gps sets what the GPS sees: nothing in the first 10 s of a boot.
func (b *simArduBrain) gps(m *common.MessageGpsRawInt) {
	if !b.bootedFor(10) {
		*m = common.MessageGpsRawInt{Eph: math.MaxUint16, Epv: math.MaxUint16}
		return
	}
	m.FixType = common.GPS_FIX_TYPE_RTK_FIXED
	m.SatellitesVisible = 10
	m.Eph = 121
	m.Epv = 200

	if b.withoutGPS(0) {
		m.FixType = common.GPS_FIX_TYPE_NO_FIX
		m.SatellitesVisible = 3
	}
}

// place sets where it says that it is.
func (b *simArduBrain) place(m *common.MessageGlobalPositionInt) {
	// No position, and no height above the sea.
	if !b.bootedFor(10) {
		m.Lat = 0
		m.Lon = 0
		m.Alt = -20
		m.RelativeAlt = -27
	}

	// Its height above home is right all the same.
	if b.withoutGPS(simArduStops) {
		m.Lat = b.remembers.lat
		m.Lon = b.remembers.lon
		m.Alt = b.remembers.alt
	}
}

// estimate is the flags of EKF_STATUS_REPORT. Without a position bit 4 is clear; bit 7: it holds a constant one.
func (b *simArduBrain) estimate() uint16 {
	if b.positioned() {
		return 831
	}
	if b.bootedFor(42) && !b.withoutGPS(simArduStops) {
		return 39
	}
	return 167
}

func (b *simArduBrain) hud(m *common.MessageVfrHud) {
	if b.airborne {
		m.Throttle = 34
	} else if b.armed {
		m.Throttle = 18
	}
	if !b.bootedFor(10) {
		m.Alt = -0.02
	}
}

// sensors sets the bits as captured. docs/autopilots.md explains the bits of the receiver and
// of PREARM_CHECK.
func (b *simArduBrain) sensors(m *common.MessageSysStatus) {
	const (
		always = common.MAV_SYS_STATUS_SENSOR_3D_GYRO | common.MAV_SYS_STATUS_SENSOR_3D_ACCEL |
			common.MAV_SYS_STATUS_SENSOR_3D_MAG | common.MAV_SYS_STATUS_SENSOR_ABSOLUTE_PRESSURE |
			common.MAV_SYS_STATUS_SENSOR_ANGULAR_RATE_CONTROL | common.MAV_SYS_STATUS_SENSOR_ATTITUDE_STABILIZATION |
			common.MAV_SYS_STATUS_SENSOR_YAW_POSITION | common.MAV_SYS_STATUS_SENSOR_MOTOR_OUTPUTS |
			common.MAV_SYS_STATUS_TERRAIN | common.MAV_SYS_STATUS_SENSOR_BATTERY |
			common.MAV_SYS_STATUS_SENSOR_PROPULSION
		control = common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL | common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL
	)
	present := always | control | common.MAV_SYS_STATUS_GEOFENCE | common.MAV_SYS_STATUS_AHRS |
		common.MAV_SYS_STATUS_LOGGING | common.MAV_SYS_STATUS_PREARM_CHECK
	enabled := always | common.MAV_SYS_STATUS_PREARM_CHECK
	healthy := always | common.MAV_SYS_STATUS_GEOFENCE | common.MAV_SYS_STATUS_LOGGING |
		common.MAV_SYS_STATUS_SENSOR_PROXIMITY
	if b.bootedFor(10) {
		present |= common.MAV_SYS_STATUS_SENSOR_GPS
		enabled |= common.MAV_SYS_STATUS_SENSOR_GPS
		healthy |= common.MAV_SYS_STATUS_SENSOR_GPS
	}
	if b.bootedFor(22.5) {
		enabled |= common.MAV_SYS_STATUS_AHRS
		healthy |= common.MAV_SYS_STATUS_AHRS
	}
	if b.armed {
		enabled |= common.MAV_SYS_STATUS_LOGGING
	}
	if b.fence > 0 {
		enabled |= common.MAV_SYS_STATUS_GEOFENCE
	}
	switch row := b.row(b.mode); {
	case row.needsPosition || row.flying == simDescend:
		enabled |= control
		healthy |= control
	case row.flying == simTilt:
		enabled |= common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL
		healthy |= common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL
	}
	wings := b.flavour != simArduPilot
	if wings {
		// It has no map of the terrain.
		healthy &^= common.MAV_SYS_STATUS_TERRAIN
	}
	if b.canArm() && !(wings && b.row(b.mode).noArm) {
		healthy |= common.MAV_SYS_STATUS_PREARM_CHECK
	}
	if b.receiver != simReceiverNone || !b.stickAt.IsZero() || wings {
		present |= common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
		enabled |= common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	}
	if b.receiver.live() || (!b.stickAt.IsZero() && time.Since(b.stickAt) < simArduRadio) {
		healthy |= common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	}
	m.Load = 0
	m.OnboardControlSensorsPresent = present
	m.OnboardControlSensorsEnabled = enabled
	m.OnboardControlSensorsHealth = healthy
}

func (b *simArduBrain) landedState() common.MAV_LANDED_STATE {
	switch {
	case b.grounded():
		return common.MAV_LANDED_STATE_ON_GROUND
	case b.climbing:
		return common.MAV_LANDED_STATE_TAKEOFF
	case b.row(b.mode).flying == simDescend, b.row(b.mode).flying == simReturn && b.leg == simLegLand:
		return common.MAV_LANDED_STATE_LANDING
	}
	return common.MAV_LANDED_STATE_IN_AIR
}

// positionTarget returns the target of a goto in GUIDED, or of RTL before its landing;
// otherwise nil.
func (b *simArduBrain) positionTarget(boot uint32) message.Message {
	t := b.target
	switch returns := b.row(b.mode).flying == simReturn; {
	case !b.canFly(), returns && b.leg == simLegLand, !returns && (b.mode != b.hold || !b.going):
		return nil
	case returns:
		t = b.returnTarget()
	}
	lat, lon := simPlace(t.north, t.east)
	return &common.MessagePositionTargetGlobalInt{
		TimeBootMs: boot, CoordinateFrame: common.MAV_FRAME_GLOBAL, TypeMask: 0xfdf8,
		LatInt: simE7(lat), LonInt: simE7(lon), Alt: float32(simHomeAlt + t.up),
	}
}
