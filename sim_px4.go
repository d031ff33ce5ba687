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
	version:   simPX4v17 | 255,
	volts:     16.2,
	first:     simPX4Loiter, hold: simPX4Loiter, land: simPX4Land, rtl: simPX4RTL,
	landSpeed: 0.65, stickSpeed: 5, stickUp: 3, stickDown: 1.5,
	brake: 1.75, soft: 1500 * time.Millisecond, early: 0.76, returnUp: 30,
	defaults: map[string]float64{simDataLink: 0, simStickSource: 3, simStickOverride: 1},
	// The rates of a telemetry port in Normal mode, as captured.
	streams: map[uint32]time.Duration{
		0: time.Second, 1: time.Second, 24: time.Second / 5, 30: time.Second / 15,
		33: time.Second / 5, 74: time.Second / 4, 87: time.Second, 242: 2 * time.Second, 245: time.Second,
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
		{custom: simPX4RTGS, name: "RTGS", refused: true},
		{custom: simPX4Mission, name: "Mission", disarmedOnly: true, noArm: true},
		{custom: simPX4Offboard, name: "Offboard", disarmedOnly: true, noArm: true},
	},
}

// Releases of PX4 that differ, as AUTOPILOT_VERSION reports them. -device sim is 1.17; a test
// sets version to fly an older release.
const (
	simPX4v14 = 1<<24 | 14<<16
	simPX4v15 = 1<<24 | 15<<16 // the first with CURRENT_MODE
	simPX4v16 = 1<<24 | 16<<16 // the first that acks DO_SET_MODE twice
	simPX4v17 = 1<<24 | 17<<16 // the first with COM_RC_IN_MODE 5 to 8
)

// The parameters that the simulated PX4 obeys.
const (
	simDataLink      = "NAV_DLL_ACT"     // what PX4 does when the ground station is lost; 0: nothing
	simStickSource   = "COM_RC_IN_MODE"  // whose sticks act
	simStickOverride = "COM_RC_OVERRIDE" // bit 0: sticks that move take over from AUTO
)

// simPX4Reals are the parameters that are no integers.
var simPX4Reals = []string{"NAV_LOITER_RAD", "RTL_LOITER_RAD"}

const (
	simPX4Late      = 600 * time.Millisecond // a new target acts in AUTO.LOITER after at most this time
	simFailsafeHold = 5 * time.Second        // how long a failsafe holds before it enters its own mode
	simRaced        = 10 * time.Millisecond  // for so long after a ground station's first heartbeat an arming does not know it
)

// simPX4Brain is PX4, as docs/autopilots.md describes it. Its texts, reports, targets and
// sticks are in sim_px4_report.go.
type simPX4Brain struct {
	*simulator
	simPX4Sticks
	simPX4Words
	simPX4Live
	thenEnter   uint32    // the failsafe's mode after Hold
	holdUntil   time.Time // when that Hold ends
	climbUp     float64   // height of the next takeoff, metres above home
	lifts       bool      // the next takeoff will leave the ground
	lastArmable uint32    // the last entered mode in which PX4 can be armed
}

func (b *simPX4Brain) start() {
	*b = simPX4Brain{simulator: b.simulator, climbUp: math.NaN(), lifts: true, lastArmable: simPX4Loiter}
	b.shows, b.wish = simPX4Status{mode: b.mode}, b.mode
	b.grabs, b.glimpses = b.dice.IntN(3) > 0, b.dice.IntN(7) < 2
}

func (b *simPX4Brain) state() (common.MAV_MODE_FLAG, common.MAV_STATE) {
	base := common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | common.MAV_MODE_FLAG_STABILIZE_ENABLED
	if simPX4IsAuto(b.shown()) {
		base |= common.MAV_MODE_FLAG_GUIDED_ENABLED | common.MAV_MODE_FLAG_AUTO_ENABLED
	} else {
		base |= common.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
	}
	switch {
	case b.armed && b.failsafe:
		return base | common.MAV_MODE_FLAG_SAFETY_ARMED, common.MAV_STATE_CRITICAL
	case b.armed:
		return base | common.MAV_MODE_FLAG_SAFETY_ARMED, common.MAV_STATE_ACTIVE
	case b.reported.ready:
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
		b.after(b.between(4*time.Millisecond, 7*time.Millisecond), func() { b.ack(c, b.takeoff(c)) })
	case common.MAV_CMD_NAV_LAND: // its place is ignored
		b.ack(c, b.obey(b.row(simPX4Land), 0))
	case common.MAV_CMD_NAV_RETURN_TO_LAUNCH:
		b.ack(c, b.obey(b.row(simPX4RTL), 0))
	case common.MAV_CMD_RUN_PREARM_CHECKS: // brings a report at once
		b.after(b.between(4*time.Millisecond, 17*time.Millisecond), func() { b.ack(c, common.MAV_RESULT_ACCEPTED) })
		b.after(b.between(8*time.Millisecond, 31*time.Millisecond), b.report)
	case common.MAV_CMD_DO_REPOSITION:
		if b.row(simPX4Loiter).refused { // without a position
			b.ack(c, common.MAV_RESULT_TEMPORARILY_REJECTED)
			return
		}
		b.ack(c, b.reposition(c))
	default:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	}
}

// setMode sends two acks: the first at once, always ACCEPTED, the second with the true result.
// Up to 1.15 it sends only the second. An unknown mode, or base_mode without bit 0, is ACCEPTED and ignored.
func (b *simPX4Brain) setMode(c simCommand) {
	if b.version >= simPX4v16 {
		b.ack(c, common.MAV_RESULT_ACCEPTED)
	}
	row := b.row(uint32(uint8(c.p[1]))<<16 | uint32(uint8(c.p[2]))<<24)
	result, ackAfter := common.MAV_RESULT_ACCEPTED, b.between(8*time.Millisecond, 10*time.Millisecond)
	if known := row.name != ""; known && int(c.p[0])&1 != 0 {
		result = b.obey(row, ackAfter)
	}
	b.after(ackAfter, func() { b.ack(c, result) })
}

// obey enters a mode if the table of docs/autopilots.md, "PX4: modes" allows it. ackAfter is
// the time until the last ack of a DO_SET_MODE; zero for any other command, which is acked at once.
// The mode comes into force, and is shown, some time after that ack.
func (b *simPX4Brain) obey(row simMode, ackAfter time.Duration) common.MAV_RESULT {
	switch {
	case row.refused:
		b.text(common.MAV_SEVERITY_CRITICAL, "Unsupported auto mode")
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	case b.armed && (row.disarmedOnly || row.sticks() && !b.streaming()):
		b.text(common.MAV_SEVERITY_CRITICAL, "Switching to mode '"+row.name+"' is currently not possible")
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	b.follow(row.custom, ackAfter, func() {
		begins := row.custom == simPX4Takeoff && b.mode != simPX4Takeoff
		b.enter(row.custom)
		if begins {
			b.climbUp, b.lifts = math.NaN(), true
			b.beginClimb()
		}
	})
	return common.MAV_RESULT_ACCEPTED
}

// follow brings a commanded mode into force, 10 to 15 ms after the ack. Sticks that move until then
// take over. CURRENT_MODE shows the mode before it is in force. Heartbeats show it 12–18 ms after
// DO_SET_MODE's last ack, 13–16 ms after any other command's.
func (b *simPX4Brain) follow(mode uint32, ackAfter time.Duration, do func()) {
	const ms = time.Millisecond
	wait, lag := b.between(11500*time.Microsecond, 14*ms), b.between(1500*time.Microsecond, 2*ms)
	live := wait - 2500*time.Microsecond // until CURRENT_MODE shows the mode
	if ackAfter > 0 {
		wait = ackAfter + b.between(10500*time.Microsecond, 14500*time.Microsecond)
		lag = b.between(1500*time.Microsecond, 3500*time.Microsecond)
		live = b.between(9*ms, 14*ms)
	}
	pending := b.enterLater(mode, wait, lag, func() { b.overrule(); do(); b.undo(simUndoCommand) })
	b.after(live, func() {
		if b.pending == pending {
			b.wish = mode
			b.sendMode(mode)
		}
	})
}

// overrule ends a failsafe because a command came. Until sticks come again, their absence
// begins no other failsafe.
func (b *simPX4Brain) overrule() {
	if b.failsafe {
		b.failsafe, b.lostAt = false, time.Time{}
		b.seen = b.armed && b.streaming()
	}
}

func (b *simPX4Brain) entered() {
	if row := b.row(b.mode); !row.noArm {
		b.lastArmable = b.mode
	}
	if !b.failsafe {
		b.wish = b.mode
	}
	b.sendMode(b.mode)
}

// takeoff is NAV_TAKEOFF. Its param7 is AMSL in every frame. It does not arm. With latitude and
// longitude 0 it never lifts.
func (b *simPX4Brain) takeoff(c simCommand) common.MAV_RESULT {
	up, lifts := c.alt-simHomeAlt, c.lat != 0 || c.lon != 0
	if up <= b.quad.up {
		b.text(common.MAV_SEVERITY_CRITICAL, "Already higher than takeoff altitude")
	}
	b.follow(simPX4Takeoff, 0, func() {
		b.enter(simPX4Takeoff)
		b.climbUp, b.lifts, b.climbing = up, lifts, false
		b.beginClimb()
	})
	return common.MAV_RESULT_ACCEPTED
}

// beginClimb starts the climb of an armed vehicle in AUTO.TAKEOFF. A vehicle that is already
// high enough stays armed on the ground, or holds in the air.
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

// climbed is called 0.76 m below the height: the vehicle climbs on in AUTO.LOITER.
func (b *simPX4Brain) climbed() {
	t := b.target
	b.enter(simPX4Loiter)
	b.target = t
}

// reposition is DO_REPOSITION. It needs param2 = 1. With another param2 it is UNSUPPORTED, but
// AUTO.LOITER flies it all the same. z is AMSL in every frame, yaw is in radians.
func (b *simPX4Brain) reposition(c simCommand) common.MAV_RESULT {
	result := common.MAV_RESULT_ACCEPTED
	if c.p[1] != 1 {
		result = common.MAV_RESULT_UNSUPPORTED
		if b.mode != simPX4Loiter {
			return result
		}
	}
	t := b.stopping()
	pauses := c.long && math.IsNaN(c.p[3]) && math.IsNaN(c.lat) && math.IsNaN(c.lon) && math.IsNaN(c.alt)
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
	fly := func() {
		b.enter(simPX4Loiter)
		switch {
		case b.canFly() && pauses:
			b.target = b.pausing()
		case b.canFly():
			b.target = t
		}
	}
	if b.intended() != simPX4Loiter {
		b.follow(simPX4Loiter, 0, fly)
	} else { // only the target is new, and PX4's Navigator waits for the next vehicle status
		b.enterLater(simPX4Loiter, b.between(3*time.Millisecond, simPX4Late), 0, func() { b.overrule(); fly() })
	}
	return result
}

// pausing returns the place where PX4's own pause stops. PX4 computes it from the
// velocity setpoint: the vehicle comes back 0.4 m from 1.7 m/s, 1.6 from 4, 3.5 to 4
// from 6.8 and 7 to 8 from 9.8.
func (b *simPX4Brain) pausing() simTarget {
	const back = 0.08 // s²/m
	t, v := b.stopping(), math.Hypot(b.quad.vn, b.quad.ve)
	t.north, t.east = t.north-back*b.quad.vn*v, t.east-back*b.quad.ve*v
	if b.stands(time.Now()) { // it lifts off all the same, and hovers just above the ground
		t.up = 0.3
	}
	return t
}

// located reports whether the estimator has a position.
func (b *simPX4Brain) located() bool { return time.Since(b.booted) >= b.armableAfter }

// canArm reports whether PX4 can be armed now. It does not check the mode of an armed PX4.
func (b *simPX4Brain) canArm() bool {
	row := b.row(b.intended())
	return b.located() && (!row.noArm || b.armed) && (!row.sticks() || b.streaming()) &&
		len(b.trouble) == 0 && (b.dataLinkAct() == 0 || b.dataLink())
}

func (b *simPX4Brain) armDisarm(arm bool) common.MAV_RESULT {
	denied := func(text string) common.MAV_RESULT {
		if b.version >= simPX4v15 {
			b.text(common.MAV_SEVERITY_CRITICAL, text)
		}
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	flying, z := b.row(b.intended()).flying, b.stick(2)
	switch {
	case arm == b.armed:
	case !arm && b.airborne:
		return denied("Disarming denied: not landed")
	case !arm:
		b.disarm()
	case !b.canArm():
		return denied("Arming denied: Resolve system health failures first")
	case flying == simThrust && z > 0 && b.typ != common.MAV_TYPE_GROUND_ROVER: // a rover stands with half a throttle
		return denied("Arming denied: high throttle")
	case (flying == simTilt || flying == simVelocity) && z > 500:
		return denied("Arming denied: throttle above center")
	default:
		b.arm()
		b.seen = b.streaming()
		b.home.north, b.home.east = b.quad.north, b.quad.east
		b.text(common.MAV_SEVERITY_INFO, "Armed by external command")
		switch {
		case b.dataLinkAct() != 0 && !b.foreignGCS && time.Since(b.gcsFrom) <= simRaced:
			b.dataLinkLoss()
		case b.mode == simPX4Takeoff:
			b.beginClimb()
		}
	}
	return common.MAV_RESULT_ACCEPTED
}

// disarmed changes AUTO.LAND, AUTO.RTL and AUTO.TAKEOFF to AUTO.LOITER, with exceptions: AUTO.LAND becomes
// POSCTL if that was the last armable mode. Before 1.17 AUTO.TAKEOFF stays, and AUTO.LAND becomes
// AUTO.TAKEOFF if that was the last armable mode.
func (b *simPX4Brain) disarmed(landed bool) {
	b.seen, b.lostAt = false, time.Time{}
	if landed {
		b.text(common.MAV_SEVERITY_INFO, "Disarmed by landing")
		b.home.north, b.home.east = b.quad.north, b.quad.east
	}
	switch {
	case b.mode == simPX4Land && b.lastArmable == simPX4Posctl:
		b.enter(simPX4Posctl)
	case b.version < simPX4v17 && (b.mode == simPX4Takeoff || b.mode == simPX4Land && b.lastArmable == simPX4Takeoff):
		b.climbUp, b.lifts = math.NaN(), true // the next arming climbs
		b.enter(simPX4Takeoff)
	case b.mode == simPX4Takeoff || b.row(b.mode).flying == simDescend || b.row(b.mode).flying == simReturn:
		b.enter(simPX4Loiter)
	}
}

func (b *simPX4Brain) step() {
	b.stepTakeoff()
	b.stepSticks()
	b.stepDataLink()
	b.stepReport()
	b.stepLive()
	if b.failsafe && b.mode == simPX4Loiter && !time.Now().Before(b.holdUntil) {
		b.enter(b.thenEnter)
	}
}

// stepTakeoff detects a takeoff by the thrust, before the lift-off: landed_state is takeoff while the vehicle
// stands. A goto from now on ends the takeoff, and the vehicle lifts off flying to its place.
func (b *simPX4Brain) stepTakeoff() {
	detected := b.climbFrom.Add(simDetected - simSpinUp)
	if b.climbing && !b.airborne && !time.Now().Before(detected) {
		b.airborne, b.homeUp = true, 0 // home is where it lifts off
		b.text(common.MAV_SEVERITY_INFO, "Takeoff detected")
	}
}

// beginFailsafe begins a failsafe: 5 s of Hold, then the given mode.
func (b *simPX4Brain) beginFailsafe(then uint32) {
	b.pending, b.failsafe = nil, true
	b.enter(simPX4Loiter)
	b.stay()
	b.thenEnter, b.holdUntil = then, time.Now().Add(simFailsafeHold)
	b.text(common.MAV_SEVERITY_CRITICAL, "Failsafe activated: entering Hold for 5 seconds")
}
