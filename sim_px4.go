package main

import (
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// PX4's custom modes that the code below names: main<<16 | sub<<24.
const (
	simPX4Manual     = 1 << 16
	simPX4Altctl     = 2 << 16
	simPX4Posctl     = 3 << 16
	simPX4Acro       = 5 << 16
	simPX4Offboard   = 6 << 16
	simPX4Stabilized = 7 << 16
	simPX4Auto       = 4 << 16
	simPX4Takeoff    = simPX4Auto | 2<<24
	simPX4Loiter     = simPX4Auto | 3<<24
	simPX4Mission    = simPX4Auto | 4<<24
	simPX4RTL        = simPX4Auto | 5<<24
	simPX4Land       = simPX4Auto | 6<<24
	simPX4RTGS       = simPX4Auto | 7<<24
)

var simPX4Vehicle = simVehicle{
	autopilot: common.MAV_AUTOPILOT_PX4,
	version:   1<<24 | 17<<16 | 255,
	volts:     16.2,
	first:     simPX4Loiter, hold: simPX4Loiter, land: simPX4Land, rtl: simPX4RTL,
	landSpeed: 0.65, stickSpeed: 5, stickUp: 3, stickDown: 1.5,
	// The rates of a telemetry port in Normal mode, as captured.
	streams: map[uint32]time.Duration{
		0: time.Second, 1: time.Second, 24: time.Second / 5, 30: time.Second / 15,
		33: time.Second / 5, 74: time.Second / 4, 242: 2 * time.Second, 245: time.Second,
	},
	modes: []simMode{
		{custom: simPX4Manual, name: "Manual", flying: simThrust},
		{custom: simPX4Altctl, name: "Altitude", flying: simTilt},
		{custom: simPX4Posctl, name: "Position", flying: simVelocity},
		{custom: simPX4Acro, name: "Acro", flying: simThrust},
		{custom: simPX4Stabilized, name: "Stabilized", flying: simThrust},
		{custom: simPX4Takeoff, name: "Takeoff"},
		{custom: simPX4Loiter, name: "Hold"},
		{custom: simPX4RTL, name: "Return", flying: simReturn, noArm: true},
		{custom: simPX4Land, name: "Land", flying: simDescend, noArm: true},
		{custom: simPX4RTGS, refused: true},
		{custom: simPX4Mission, name: "Mission", ground: true, noArm: true},
		{custom: simPX4Offboard, name: "Offboard", ground: true, noArm: true},
	},
}

// Times of PX4's stick handling (AUTOPILOTS.md, "Sticks: MANUAL_CONTROL").
const (
	simStickGap    = 450 * time.Millisecond  // a gap this long ends the stream: 2.5 Hz passes, 2 Hz doesn't
	simStickProof  = 250 * time.Millisecond  // a stream this long counts
	simStickLoss   = 150 * time.Millisecond  // after the gap: the failsafe, 0.6 s after the last stick
	simStickMoving = 1600 * time.Millisecond // a change counts as moving for so long
	simStickStep   = 200                     // counts of ±1000 that are a change
	simTakeOver    = 30 * time.Millisecond
	simFailsafe    = 5 * time.Second // in Hold, then RTL
)

// simStick is a MANUAL_CONTROL as it came: x, y, z, r.
type simStick struct {
	at   time.Time
	axis [4]int16
}

// simPX4Brain is PX4 as measured in AUTOPILOTS.md.
type simPX4Brain struct {
	*simulator
	textUntil time.Time     // STATUSTEXT passes until then
	held      []simHeldText // texts that wait for a ground station's heartbeat
	window    []simStick    // the last 1.6 s, and what was in force at their start
	since     time.Time     // the stick stream runs without a gap since then
	lostAt    time.Time     // it ended, while it was needed
	seen      bool          // it ran in this flight
	takingAt  time.Time     // a takeover is due then
	holdUntil time.Time     // of the failsafe
	climbUp   float64       // of the takeoff to come, metres above home
	lifts     bool          // that takeoff will lift
	armable   uint32        // last mode that could be armed in
}

type simHeldText struct {
	severity common.MAV_SEVERITY
	text     string
	id       uint16
}

func (b *simPX4Brain) start() {
	*b = simPX4Brain{simulator: b.simulator, climbUp: math.NaN(), lifts: true, armable: simPX4Loiter}
}

// text is heard only while a ground station's heartbeat is on the link.
func (b *simPX4Brain) text(severity common.MAV_SEVERITY, text string) {
	t := simHeldText{severity, text + "\t", b.textID}
	b.textID++
	b.held = append(b.held, t)
	b.held = b.held[max(0, len(b.held)-20):]
	b.release()
}

func (b *simPX4Brain) release() {
	if time.Now().After(b.textUntil) {
		return
	}
	for _, t := range b.held {
		b.sendText(t.severity, t.text, t.id)
	}
	b.held = nil
}

// knock is a heartbeat of MAV_TYPE_GCS.
func (b *simPX4Brain) knock() {
	b.textUntil = time.Now().Add(2500 * time.Millisecond)
	b.release()
}

func (b *simPX4Brain) state() (common.MAV_MODE_FLAG, common.MAV_STATE) {
	base := common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | common.MAV_MODE_FLAG_STABILIZE_ENABLED
	if simPX4IsAuto(b.mode) {
		base |= common.MAV_MODE_FLAG_GUIDED_ENABLED | common.MAV_MODE_FLAG_AUTO_ENABLED
	} else {
		base |= common.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
	}
	switch {
	case b.armed && b.failsafe:
		return base | common.MAV_MODE_FLAG_SAFETY_ARMED, common.MAV_STATE_CRITICAL
	case b.armed:
		return base | common.MAV_MODE_FLAG_SAFETY_ARMED, common.MAV_STATE_ACTIVE
	case b.canArm():
		return base, common.MAV_STATE_STANDBY
	}
	return base, common.MAV_STATE_UNINIT
}

func simPX4IsAuto(custom uint32) bool { return custom&0xff0000 == simPX4Auto }

func (b *simPX4Brain) command(c simCommand) {
	switch c.id {
	case common.MAV_CMD_DO_SET_MODE:
		b.setMode(c)
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		b.ack(c, b.armDisarm(c.p[0] == 1))
	case common.MAV_CMD_NAV_TAKEOFF:
		b.ack(c, b.takeoff(c))
	case common.MAV_CMD_NAV_LAND: // its place is ignored
		b.ack(c, b.obey(b.row(simPX4Land)))
	case common.MAV_CMD_NAV_RETURN_TO_LAUNCH:
		b.ack(c, b.obey(b.row(simPX4RTL)))
	case common.MAV_CMD_DO_REPOSITION:
		b.ack(c, b.reposition(c))
	default:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	}
}

// setMode acks twice: ACCEPTED at once whatever happens, then the truth. A
// mode that PX4 doesn't know, or base_mode without bit 0, is ACCEPTED twice
// and forgotten.
func (b *simPX4Brain) setMode(c simCommand) {
	b.ack(c, common.MAV_RESULT_ACCEPTED)
	mode := uint32(uint8(c.p[1]))<<16 | uint32(uint8(c.p[2]))<<24
	row := b.row(mode)
	result := common.MAV_RESULT_ACCEPTED
	if known := row.name != "" || mode == simPX4RTGS; known && int(c.p[0])&1 != 0 {
		result = b.obey(row)
	}
	b.after(8*time.Millisecond, func() { b.ack(c, result) })
}

// obey enters a mode if the table of modes in AUTOPILOTS.md lets it.
func (b *simPX4Brain) obey(row simMode) common.MAV_RESULT {
	switch {
	case row.refused:
		b.text(common.MAV_SEVERITY_CRITICAL, "Unsupported auto mode")
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	case b.armed && (row.ground || row.sticks() && !b.streaming()):
		b.text(common.MAV_SEVERITY_CRITICAL, "Switching to mode '"+row.name+"' is currently not possible")
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	b.failsafe, b.lostAt = false, time.Time{}
	b.seen = b.armed && b.streaming() // the order stands, sticks or not, until sticks come again
	if row.custom == simPX4Takeoff && b.mode != simPX4Takeoff {
		b.climbUp, b.lifts = math.NaN(), true
		b.enter(row.custom)
		b.beginClimb()
	}
	b.enter(row.custom)
	return common.MAV_RESULT_ACCEPTED
}

func (b *simPX4Brain) entered() {
	if row := b.row(b.mode); !row.noArm {
		b.armable = b.mode
	}
}

// takeoff takes param7 as AMSL whatever the frame says. It does not arm.
func (b *simPX4Brain) takeoff(c simCommand) common.MAV_RESULT {
	b.obey(b.row(simPX4Takeoff))
	b.climbUp, b.lifts, b.climbing = c.alt-simHomeAlt, c.lat != 0 || c.lon != 0, false
	if b.climbUp <= b.quad.up {
		b.text(common.MAV_SEVERITY_CRITICAL, "Already higher than takeoff altitude")
	}
	b.beginClimb()
	return common.MAV_RESULT_ACCEPTED
}

// beginClimb is for an armed vehicle in AUTO.TAKEOFF. One that has nothing to
// climb sits armed on the ground, or holds in the air.
func (b *simPX4Brain) beginClimb() {
	to := b.climbUp
	if math.IsNaN(to) {
		to = b.quad.up + 2.5 // MIS_TAKEOFF_ALT
	}
	switch {
	case !b.armed:
	case b.lifts && to > b.quad.up:
		b.climb(to)
	case b.airborne:
		b.enter(simPX4Loiter)
	}
}

func (b *simPX4Brain) climbed() {
	up := b.target.up
	b.enter(simPX4Loiter)
	b.target.up = up
}

// reposition wants param2 = 1, else it is UNSUPPORTED, and flown in
// AUTO.LOITER all the same. z is AMSL in every frame, yaw in radians.
func (b *simPX4Brain) reposition(c simCommand) common.MAV_RESULT {
	result := common.MAV_RESULT_ACCEPTED
	if c.p[1] != 1 {
		result = common.MAV_RESULT_UNSUPPORTED
		if b.mode != simPX4Loiter {
			return result
		}
	}
	b.stay()
	t := b.target
	if !math.IsNaN(c.lat) && !math.IsNaN(c.lon) {
		if c.long {
			c.lat += 1e-5 // float32 misses by a metre
		}
		t.north, t.east = simMetres(c.lat, c.lon)
	}
	if b.fence > 0 && math.Hypot(t.north, t.east) > b.fence {
		b.text(common.MAV_SEVERITY_CRITICAL, "Reposition is outside geofence")
		return result
	}
	if !math.IsNaN(c.alt) {
		t.up = c.alt - simHomeAlt
	}
	if c.p[0] > 0 {
		t.speed = c.p[0]
	}
	t.yaw = c.p[3]
	b.obey(b.row(simPX4Loiter))
	if b.canFly() {
		b.target = t
	}
	return result
}

func (b *simPX4Brain) canArm() bool {
	row := b.row(b.mode)
	return time.Since(b.booted) >= b.armableAfter && !row.noArm && (!row.sticks() || b.streaming())
}

func (b *simPX4Brain) armDisarm(arm bool) common.MAV_RESULT {
	denied := func(text string) common.MAV_RESULT {
		b.text(common.MAV_SEVERITY_CRITICAL, text)
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	flying, z := b.row(b.mode).flying, b.stick(2)
	switch {
	case arm == b.armed:
	case !arm && b.airborne:
		return denied("Disarming denied: not landed")
	case !arm:
		b.disarm()
	case !b.canArm():
		return denied("Arming denied: Resolve system health failures first")
	case flying == simThrust && z > 0:
		return denied("Arming denied: high throttle")
	case (flying == simTilt || flying == simVelocity) && z > 500:
		return denied("Arming denied: throttle above center")
	default:
		b.arm()
		b.seen = b.streaming()
		b.text(common.MAV_SEVERITY_INFO, "Armed by external command")
		if b.mode == simPX4Takeoff {
			b.beginClimb()
		}
	}
	return common.MAV_RESULT_ACCEPTED
}

// disarmed never stays in AUTO.LAND or AUTO.RTL.
func (b *simPX4Brain) disarmed(landed bool) {
	b.seen, b.lostAt = false, time.Time{}
	if landed {
		b.text(common.MAV_SEVERITY_INFO, "Disarmed by landing")
	}
	switch {
	case b.mode == simPX4Land && b.armable == simPX4Posctl:
		b.enter(simPX4Posctl)
	case b.row(b.mode).flying == simDescend || b.row(b.mode).flying == simReturn:
		b.enter(simPX4Loiter)
	}
}

// sticks takes a MANUAL_CONTROL. An axis out of range stays as it was.
func (b *simPX4Brain) sticks(_ uint8, m *common.MessageManualControl) {
	if m.Target != simSystem {
		return
	}
	now := time.Now()
	stick := simStick{now, [4]int16{m.X, m.Y, m.Z, m.R}}
	for i, v := range stick.axis {
		if v < -1000 || v > 1000 || i == 2 && v < 0 {
			stick.axis[i] = b.stick(i)
		}
	}
	if n := len(b.window); n == 0 || now.Sub(b.window[n-1].at) > simStickGap {
		b.window, b.since = nil, now
	}
	b.window = append(b.window, stick)
	for len(b.window) > 1 && now.Sub(b.window[1].at) >= simStickMoving {
		b.window = b.window[1:]
	}
}

// stick returns an axis as it was last heard; centred before that.
func (b *simPX4Brain) stick(axis int) int16 {
	if len(b.window) == 0 {
		return [...]int16{0, 0, 500, 0}[axis]
	}
	return b.window[len(b.window)-1].axis[axis]
}

func (b *simPX4Brain) axes() (x, y, z, r float64) {
	return float64(b.stick(0)) / 1000, float64(b.stick(1)) / 1000, float64(b.stick(2)) / 1000, float64(b.stick(3)) / 1000
}

// streaming tells whether sticks come, often enough and long enough.
func (b *simPX4Brain) streaming() bool {
	n := len(b.window)
	return n > 0 && time.Since(b.window[n-1].at) <= simStickGap && time.Since(b.since) >= simStickProof
}

// moving tells whether an axis changed by 200 or more within the last 1.6 s,
// at once or little by little. A constant value never moves.
func (b *simPX4Brain) moving() bool {
	for axis := range 4 {
		low, high := int16(math.MaxInt16), int16(math.MinInt16)
		for i, st := range b.window {
			if i+1 < len(b.window) && time.Since(b.window[i+1].at) >= simStickMoving {
				continue // was over before
			}
			low, high = min(low, st.axis[axis]), max(high, st.axis[axis])
		}
		if int(high)-int(low) >= simStickStep {
			return true
		}
	}
	return false
}

func (b *simPX4Brain) step() {
	now := time.Now()
	comingDown := b.mode == simPX4Land || b.mode == simPX4RTL
	switch {
	case !b.armed || b.failsafe || comingDown:
		b.lostAt = time.Time{}
	case b.streaming():
		b.seen, b.lostAt = true, time.Time{}
	case !b.seen:
	case b.lostAt.IsZero():
		b.lostAt = now
	case now.Sub(b.lostAt) >= simStickLoss-simTick:
		b.stickLoss(now)
	}
	// Sticks that come back don't end a failsafe, nor do they take over.
	if b.failsafe && b.mode == simPX4Loiter && !now.Before(b.holdUntil) {
		b.enter(simPX4RTL)
	}
	if b.armed && !b.failsafe && simPX4IsAuto(b.mode) && b.streaming() && b.moving() && !now.Before(b.takingAt) {
		b.takingAt = now.Add(simTakeOver)
		b.after(simTakeOver, b.takeOver)
	}
}

func (b *simPX4Brain) stickLoss(now time.Time) {
	b.enter(simPX4Loiter)
	b.stay()
	b.failsafe, b.seen, b.lostAt, b.holdUntil = true, false, time.Time{}, now.Add(simFailsafe)
	b.text(common.MAV_SEVERITY_CRITICAL, "Failsafe activated: entering Hold for 5 seconds")
}

func (b *simPX4Brain) takeOver() {
	if !b.armed || b.failsafe || !simPX4IsAuto(b.mode) {
		return
	}
	b.text(common.MAV_SEVERITY_INFO, "Pilot took over using sticks")
	b.enter(simPX4Posctl)
}
