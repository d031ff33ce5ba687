package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
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
	simPX4Ready      = simPX4Auto | 1<<24
	simPX4Takeoff    = simPX4Auto | 2<<24
	simPX4Loiter     = simPX4Auto | 3<<24
	simPX4Mission    = simPX4Auto | 4<<24
	simPX4RTL        = simPX4Auto | 5<<24
	simPX4Land       = simPX4Auto | 6<<24
	simPX4RTGS       = simPX4Auto | 7<<24
	simPX4Follow     = simPX4Auto | 8<<24
	simPX4Precland   = simPX4Auto | 9<<24
	simPX4VTOLUp     = simPX4Auto | 10<<24
	simPX4External1  = simPX4Auto | 11<<24
	simPX4External8  = simPX4Auto | 18<<24
	simPX4Course     = simPX4Auto | 19<<24
	simPX4Orbit      = simPX4Posctl | 1<<24
	simPX4Slow       = simPX4Posctl | 2<<24
	simPX4Cruise     = 11 << 16
)

// simPX4 is PX4's quadrotor (-device sim).
var simPX4 = &simVehicle{
	equip: func(s *simulator) (simAutopilot, simFlier) {
		b := &simPX4Brain{simulator: s}
		return b, b
	},
	autopilot: common.MAV_AUTOPILOT_PX4,
	version:   simPX4v17 | 255,
	volts:     16.2,
	first:     simPX4Loiter, hold: simPX4Loiter, land: simPX4Land, rtl: simPX4RTL,
	landSpeed: 0.65, stickSpeed: 5, stickUp: 3, stickDown: 1.5,
	brake: 1.75, soft: 1500 * time.Millisecond, early: 0.76,
	defaults: map[string]float64{simDataLink: 0, simStickSource: 3, simStickOverride: 1, simReturnUp: 30},
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
		{custom: simPX4Precland, name: "Precision Land", flying: simDescend, noArm: true},
		{custom: simPX4Ready, name: "Ready", refused: true},
		{custom: simPX4VTOLUp, name: "VTOL Takeoff", refused: true},
		{custom: simPX4RTGS, name: "RTGS", refused: true},
		{custom: simPX4Mission, name: "Mission", disarmedOnly: true, noArm: true},
		{custom: simPX4Offboard, name: "Offboard", disarmedOnly: true, noArm: true},
		{custom: simPX4Slow, name: "Position Slow", flying: simVelocity},
		{custom: simPX4Orbit, name: "Orbit", flying: simOrbit, noArm: true},
		{custom: simPX4Follow, name: "Follow Target", flying: simOrbit, noArm: true},
		{custom: simPX4External1, name: "External 1", flying: simOrbit, noArm: true},
		{custom: simPX4Cruise, name: "Altitude Cruise", flying: simTrim, since: simPX4v17},
		{custom: simPX4Course, name: "Guided Course", flying: simCourse, since: simPX4v18},
	},
}

// Releases of PX4 that differ, as AUTOPILOT_VERSION reports them. -device sim is 1.17; a test
// sets version to fly another release.
const (
	// simPX4v15: the first with CURRENT_MODE
	simPX4v15 = 1<<24 | 15<<16

	// simPX4v16: the first that acks DO_SET_MODE twice
	simPX4v16 = 1<<24 | 16<<16

	// simPX4v17: the first with COM_RC_IN_MODE 5 to 8
	simPX4v17 = 1<<24 | 17<<16

	// simPX4v18: the first in which the speed of sticks counts, and no DO_SET_MODE is acked twice
	simPX4v18 = 1<<24 | 18<<16
)

// The parameters that the simulated PX4 obeys.
const (
	// simDataLink is what PX4 does when the ground station is lost; 0: nothing.
	simDataLink = "NAV_DLL_ACT"

	// simStickSource: whose sticks act
	simStickSource = "COM_RC_IN_MODE"

	// simStickOverride: bit 0: sticks that move take over from AUTO; up to 1.17
	simStickOverride = "COM_RC_OVERRIDE"

	// simStickSpeed: sticks that are faster do, in half ranges a second; below 0 none do; from 1.18 on
	simStickSpeed = "MAN_OVERRIDE_SPD"

	// simReturnUp: metres above home, the height of a return
	simReturnUp = "RTL_RETURN_ALT"
)

// simPX4Reals are the parameters that are no integers.
var simPX4Reals = []string{"NAV_LOITER_RAD", "RTL_LOITER_RAD", simReturnUp, simStickSpeed}

const (
	// simPX4Late: a new target acts in AUTO.LOITER after at most this time
	simPX4Late = 600 * time.Millisecond

	// simFailsafeHold is how long a failsafe holds before it enters its own mode.
	simFailsafeHold = 5 * time.Second

	// simRaced: for so long after a ground station's first heartbeat an arming does not know it
	simRaced = 10 * time.Millisecond
)

// simPX4Brain is PX4, as docs/autopilots.md describes it: what it obeys, its texts, reports, targets and sticks.
type simPX4Brain struct {
	*simulator
	simPX4Sticks
	simPX4Words
	simPX4Live

	// thenEnter: the failsafe's mode after Hold
	thenEnter uint32

	// holdUntil is when that Hold ends.
	holdUntil time.Time

	// climbUp: height of the next takeoff, metres above home
	climbUp float64

	// lifts: the next takeoff will leave the ground
	lifts bool

	// caught: a return began before its takeoff was detected: it stays just above the ground
	caught bool

	// lastArmable: the last entered mode in which PX4 can be armed
	lastArmable uint32

	// tiltX, tiltY: the angle that sticks have left in simTrim, of ±1
	tiltX, tiltY float64

	// orbit: metres, the radius of simOrbit
	orbit float64
}

func (b *simPX4Brain) start() {
	*b = simPX4Brain{simulator: b.simulator, climbUp: math.NaN(), lifts: true, lastArmable: simPX4Loiter}
	b.shows = simPX4Status{mode: b.mode}
	b.wish = b.mode
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

// taken reports whether sticks that move take the drone from the present mode: from AUTO, but for the modes that
// sticks shift; from 1.18 on from OFFBOARD too.
func (b *simPX4Brain) taken() bool {
	shifted := b.mode == simPX4Follow || (b.mode >= simPX4External1 && b.mode <= simPX4External8)
	return (simPX4IsAuto(b.mode) && !shifted) || (b.mode == simPX4Offboard && b.version >= simPX4v18)
}

func (b *simPX4Brain) command(c simCommand) {
	switch c.id {
	case common.MAV_CMD_SET_MESSAGE_INTERVAL:
		b.setInterval(c)
	case common.MAV_CMD_REQUEST_MESSAGE:
		b.requestMessage(c)
	case common.MAV_CMD_DO_SET_MODE:
		b.setMode(c)
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		b.ack(c, b.armDisarm(c.p[0] == 1))
	case common.MAV_CMD_NAV_TAKEOFF:
		b.after(b.between(4*time.Millisecond, 7*time.Millisecond), func() { b.ack(c, b.takeoff(c)) })
	case common.MAV_CMD_NAV_LAND:
		// Its place is ignored.
		b.ack(c, b.obey(b.row(simPX4Land), 0))
	case common.MAV_CMD_NAV_RETURN_TO_LAUNCH:
		b.ack(c, b.obey(b.row(simPX4RTL), 0))
	case common.MAV_CMD_RUN_PREARM_CHECKS:
		// Brings a report at once.
		b.after(b.between(4*time.Millisecond, 17*time.Millisecond), func() { b.ack(c, common.MAV_RESULT_ACCEPTED) })
		b.after(b.between(8*time.Millisecond, 31*time.Millisecond), b.report)
	case common.MAV_CMD_DO_REPOSITION:
		// It refuses Hold, as without a position.
		if b.row(simPX4Loiter).refused {
			b.ack(c, common.MAV_RESULT_TEMPORARILY_REJECTED)
			return
		}
		b.ack(c, b.reposition(c))
	default:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	}
}

// setMode sends two acks: the first at once, always ACCEPTED, the second with the true result.
// Up to 1.15, and from 1.18 on, it sends only the second. An unknown mode, or base_mode without bit 0, is ACCEPTED
// and ignored, from 1.18 on refused.
func (b *simPX4Brain) setMode(c simCommand) {
	if b.version >= simPX4v16 && b.version < simPX4v18 {
		b.ack(c, common.MAV_RESULT_ACCEPTED)
	}
	row := b.row(uint32(uint8(c.p[1]))<<16 | uint32(uint8(c.p[2]))<<24)
	result := common.MAV_RESULT_ACCEPTED
	if b.version >= simPX4v18 {
		result = common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	ackAfter := b.between(8*time.Millisecond, 10*time.Millisecond)
	if known := row.name != "" && row.since <= b.version; known && int(c.p[0])&1 != 0 {
		result = b.obey(row, ackAfter)
	}
	b.after(ackAfter, func() { b.ack(c, result) })
}

// obey enters a mode if the table of docs/autopilots.md, "PX4: modes" allows it. ackAfter is
// the time until the last ack of a DO_SET_MODE; zero for any other command, which is acked at once.
// The mode comes into force, and is shown, some time after that ack.
func (b *simPX4Brain) obey(row simMode, ackAfter time.Duration) common.MAV_RESULT {
	if row.refused {
		b.text(common.MAV_SEVERITY_CRITICAL, "Unsupported auto mode")
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	if b.armed && (row.disarmedOnly || (row.sticks() && !b.streaming())) {
		b.text(common.MAV_SEVERITY_CRITICAL, "Switching to mode '"+row.name+"' is currently not possible")
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	b.follow(row.custom, ackAfter, func() {
		begins := row.custom == simPX4Takeoff && b.mode != simPX4Takeoff
		b.caught = row.custom == simPX4RTL && b.climbing && !b.airborne
		b.airborne = b.airborne || b.caught
		b.enter(row.custom)
		if begins {
			b.climbUp = math.NaN()
			b.lifts = true
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
	wait := b.between(11500*time.Microsecond, 14*ms)
	lag := b.between(1500*time.Microsecond, 2*ms)

	// Until CURRENT_MODE shows the mode.
	live := wait - 2500*time.Microsecond
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
		b.failsafe = false
		b.lostAt = time.Time{}
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
	b.tiltX, b.tiltY, b.orbit = 0, 0, simOrbitRadius
	b.sendMode(b.mode)
}

// takeoff is NAV_TAKEOFF. Its param7 is AMSL in every frame. It does not arm. With latitude and
// longitude 0 it never lifts before 1.18.
func (b *simPX4Brain) takeoff(c simCommand) common.MAV_RESULT {
	up := c.alt - simHomeAlt
	lifts := c.lat != 0 || c.lon != 0 || b.version >= simPX4v18
	if up <= b.quad.up {
		b.text(common.MAV_SEVERITY_CRITICAL, "Already higher than takeoff altitude")
	}
	b.follow(simPX4Takeoff, 0, func() {
		b.enter(simPX4Takeoff)
		b.climbUp = up
		b.lifts = lifts
		b.climbing = false
		b.beginClimb()
	})
	return common.MAV_RESULT_ACCEPTED
}

// beginClimb starts the climb of an armed vehicle in AUTO.TAKEOFF. A vehicle that is already
// high enough stays armed on the ground, or holds in the air.
func (b *simPX4Brain) beginClimb() {
	to := b.climbUp
	if math.IsNaN(to) {
		// MIS_TAKEOFF_ALT
		to = b.quad.up + 2.5
	}
	switch {
	case !b.armed:
	case b.lifts && to > b.quad.up:
		b.climb(to)
	case b.airborne:
		b.enter(simPX4Loiter)
	}
}

// reached says that the vehicle took off or landed. 0.76 m below the height of a climb it climbs on in
// AUTO.LOITER.
func (b *simPX4Brain) reached(p simPoint) {
	switch p {
	case simLiftOff:
		b.text(common.MAV_SEVERITY_INFO, "Takeoff detected")
	case simTouchDown:
		b.text(common.MAV_SEVERITY_INFO, "Landing detected")
	case simHeight:
		t := b.target
		b.enter(simPX4Loiter)
		b.target = t
	}
}

// reposition is DO_REPOSITION. It needs param2 = 1. With another param2 it is UNSUPPORTED, but
// AUTO.LOITER flies it all the same; from 1.18 on it is ACCEPTED there and DENIED elsewhere. z is AMSL in every
// frame, yaw is in radians. Without a place GUIDED_COURSE stays, and goes on.
func (b *simPX4Brain) reposition(c simCommand) common.MAV_RESULT {
	result := common.MAV_RESULT_ACCEPTED
	if c.p[1] != 1 {
		switch {
		case b.version < simPX4v18:
			result = common.MAV_RESULT_UNSUPPORTED
		case b.mode != simPX4Loiter:
			result = common.MAV_RESULT_DENIED
		}
		if b.mode != simPX4Loiter {
			return result
		}
	}
	if b.mode == simPX4Course && (math.IsNaN(c.lat) || math.IsNaN(c.lon)) {
		return result
	}
	t := b.stopping()
	pauses := c.long && math.IsNaN(c.p[3]) && math.IsNaN(c.lat) && math.IsNaN(c.lon) && math.IsNaN(c.alt)
	if !math.IsNaN(c.lat) && !math.IsNaN(c.lon) {
		if c.long {
			// float32 misses by a metre
			c.lat += 1e-5
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
		if b.canFly() && pauses {
			b.target = b.pausing()
		} else if b.canFly() {
			b.target = t
		}
	}
	if b.intended() != simPX4Loiter {
		b.follow(simPX4Loiter, 0, fly)
	} else {
		// Only the target is new, and PX4's Navigator waits for the next vehicle status.
		b.enterLater(simPX4Loiter, b.between(3*time.Millisecond, simPX4Late), 0, func() { b.overrule(); fly() })
	}
	return result
}

// pausing returns the place where PX4's own pause stops. PX4 computes it from the
// velocity setpoint: the vehicle comes back 0.4 m from 1.7 m/s, 1.6 from 4, 3.5 to 4
// from 6.8 and 7 to 8 from 9.8.
func (b *simPX4Brain) pausing() simTarget {
	// s²/m
	const back = 0.08
	t := b.stopping()
	v := math.Hypot(b.quad.vn, b.quad.ve)
	t.north, t.east = t.north-back*b.quad.vn*v, t.east-back*b.quad.ve*v

	// It lifts off all the same, and hovers just above the ground.
	if b.stands(time.Now()) {
		t.up = b.ground() + 0.3
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
	flying := b.row(b.intended()).flying
	z := b.stick(2)
	switch {
	case arm == b.armed:
	case !arm && b.airborne:
		return denied("Disarming denied: not landed")
	case !arm:
		b.disarm()
	case !b.canArm():
		return denied("Arming denied: Resolve system health failures first")
	case flying == simThrust && z > 0 && b.typ != common.MAV_TYPE_GROUND_ROVER:
		// A rover stands with half a throttle.
		return denied("Arming denied: high throttle")
	case (flying == simTilt || flying == simVelocity) && z > 500:
		return denied("Arming denied: throttle above center")
	default:
		b.arm()
		b.seen = b.streaming()
		b.moveHome()
		b.text(common.MAV_SEVERITY_INFO, "Armed by external command")
		if b.dataLinkAct() != 0 && !b.foreignGCS && time.Since(b.gcsFrom) <= simRaced {
			b.dataLinkLoss()
		} else if b.mode == simPX4Takeoff {
			b.beginClimb()
		}
	}
	return common.MAV_RESULT_ACCEPTED
}

// disarmed changes AUTO.LAND, AUTO.RTL and AUTO.TAKEOFF to AUTO.LOITER, with exceptions: AUTO.LAND becomes
// POSCTL if that was the last armable mode. Before 1.17 AUTO.TAKEOFF stays, and AUTO.LAND becomes
// AUTO.TAKEOFF if that was the last armable mode.
func (b *simPX4Brain) disarmed(landed bool) {
	b.seen = false
	b.lostAt = time.Time{}
	if landed {
		b.text(common.MAV_SEVERITY_INFO, "Disarmed by landing")
		b.moveHome()
	}
	switch {
	case b.mode == simPX4Land && b.lastArmable == simPX4Posctl:
		b.enter(simPX4Posctl)
	case b.version < simPX4v17 && (b.mode == simPX4Takeoff || (b.mode == simPX4Land && b.lastArmable == simPX4Takeoff)):
		b.climbUp = math.NaN()

		// The next arming climbs.
		b.lifts = true
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
	spinUp, detectedAfter := b.liftsOff()
	detected := b.climbFrom.Add(detectedAfter - spinUp)
	if b.climbing && !b.airborne && !time.Now().Before(detected) {
		b.airborne = true

		// home is where it lifts off
		b.homeUp = 0
		b.text(common.MAV_SEVERITY_INFO, "Takeoff detected")
	}
}

// beginFailsafe begins a failsafe: 5 s of Hold, then the given mode.
func (b *simPX4Brain) beginFailsafe(then uint32) {
	b.pending = nil
	b.failsafe = true
	b.enter(simPX4Loiter)
	b.stay()
	b.thenEnter = then
	b.holdUntil = time.Now().Add(simFailsafeHold)
	b.text(common.MAV_SEVERITY_CRITICAL, "Failsafe activated: entering Hold for 5 seconds")
}

const (
	// simTextOpen is how long texts pass after a ground station's heartbeat.
	simTextOpen = 2500 * time.Millisecond

	// simTextGap: between two texts
	simTextGap = 50 * time.Millisecond

	// simTextOld: a text that waited longer is dropped
	simTextOld = 5 * time.Second

	// simTextMost: texts that may wait
	simTextMost = 10

	// simReportGap: between two reports that nobody requested
	simReportGap = 2 * time.Second
)

// simTrouble is a fault that keeps PX4 from arming.
type simTrouble struct {
	// sensor: the system that the fault makes unhealthy; 0 if there is none
	sensor common.MAV_SYS_STATUS_SENSOR

	// text: the reason that a report names; "" if it names none
	text string
}

// simPX4Words is the state of PX4's texts, of its reports and of its ground station.
type simPX4Words struct {
	// textUntil: texts pass until then
	textUntil time.Time

	// textNext: the next text is not sent before then
	textNext time.Time

	// texting: a timer for the next text runs
	texting bool

	// held: texts that wait
	held []simHeldText

	// gcsFrom: a ground station's first heartbeat on our link, or first after its loss; or zero
	gcsFrom time.Time

	// gcsUntil is when that station counts as lost.
	gcsUntil time.Time

	// gcsLost: that station is lost
	gcsLost bool

	reported simReport

	// reportAt: last report; zero before the first one after boot
	reportAt time.Time

	// glimpses: in this boot PREARM_CHECK is healthy for 0.9 s before the first report
	glimpses bool
}

type simHeldText struct {
	at       time.Time
	severity common.MAV_SEVERITY
	text     string
}

// simReport is what a report says. SYS_STATUS and HEARTBEAT show the last report.
type simReport struct {
	ready, located, sticks, hadSticks bool
	broken                            common.MAV_SYS_STATUS_SENSOR
}

// ---- Texts ----

func (b *simPX4Brain) text(severity common.MAV_SEVERITY, text string) {
	b.queueText(severity, text+"\t")
}

// queueText queues a text. PX4 sends it only while a ground station's heartbeats come on the
// link, and drops it when it is 5 s old.
func (b *simPX4Brain) queueText(severity common.MAV_SEVERITY, text string) {
	b.held = append(b.held, simHeldText{time.Now(), severity, text})
	b.held = b.held[max(0, len(b.held)-simTextMost):]
	b.sendNextText()
}

// sendNextText sends the first text that waits, if a ground station hears it.
func (b *simPX4Brain) sendNextText() {
	now := time.Now()
	b.held = slices.DeleteFunc(b.held, func(t simHeldText) bool { return now.Sub(t.at) > simTextOld })
	if b.texting || len(b.held) == 0 || now.After(b.textUntil) {
		return
	}
	if !now.Before(b.textNext) {
		t := b.held[0]
		b.held = b.held[1:]
		b.textNext = now.Add(simTextGap)
		b.sendText(t.severity, t.text, b.textID)
		b.textID++
	}
	b.texting = true
	b.after(b.textNext.Sub(now), func() {
		b.texting = false
		b.sendNextText()
	})
}

// ---- The ground station ----

func (b *simPX4Brain) hear(_ uint8, fromGCS bool, m *common.MessageHeartbeat) {
	switch {
	case m.Type != common.MAV_TYPE_GCS:
	case fromGCS:
		b.foreignGCS = true
	default:
		b.heardStation()
	}
}

// heardStation handles a ground station's heartbeat on our link. With a real station on another
// link dataLink is always true; then the heartbeat only opens our link for texts.
func (b *simPX4Brain) heardStation() {
	b.textUntil, b.gcsUntil = time.Now().Add(simTextOpen), time.Now().Add(b.between(12*time.Second, 13*time.Second))
	if b.gcsFrom.IsZero() || b.gcsLost {
		b.gcsFrom = time.Now()
	}
	if b.gcsLost {
		b.gcsLost = false
		b.text(common.MAV_SEVERITY_INFO, "GCS connection regained")
	}
	b.sendNextText()
}

func (b *simPX4Brain) dataLinkAct() float64 { return b.params[simDataLink] }

// dataLink reports whether PX4 believes that it has a ground station.
func (b *simPX4Brain) dataLink() bool {
	return b.foreignGCS || (!b.gcsFrom.IsZero() && time.Now().Before(b.gcsUntil))
}

func (b *simPX4Brain) stepDataLink() {
	if b.gcsFrom.IsZero() || b.gcsLost || b.dataLink() {
		return
	}
	b.gcsLost = true
	b.text(common.MAV_SEVERITY_INFO, "Connection to ground station lost")
	if b.dataLinkAct() != 0 && b.armed && b.mode != simPX4RTL && b.mode != simPX4Land {
		b.dataLinkLoss()
	}
}

// dataLinkLoss begins the failsafe that NAV_DLL_ACT names: 1 holds, 2 returns, 3 lands.
func (b *simPX4Brain) dataLinkLoss() {
	then := map[float64]uint32{1: simPX4Loiter, 3: simPX4Land}[b.dataLinkAct()]
	b.beginFailsafe(cmp.Or(then, simPX4RTL))
}

// ---- Reports ----

// stepReport makes a report when its content has changed, at most every 2 s.
func (b *simPX4Brain) stepReport() {
	now := time.Now()
	switch first := b.reportAt.IsZero(); {
	case first && now.Sub(b.booted) < simReportGap:
	case first, b.nextReport() != b.reported && now.Sub(b.reportAt) >= simReportGap:
		b.report()
	}
}

func (b *simPX4Brain) nextReport() simReport {
	r := simReport{ready: b.canArm(), located: b.located(), sticks: b.streaming()}
	r.hadSticks = r.sticks || b.reported.hadSticks
	for _, t := range b.trouble {
		r.broken |= t.sensor
	}
	return r
}

// report makes a report: it updates SYS_STATUS and sends the reasons against arming. Missing
// sticks, a missing position and the mode have no text.
func (b *simPX4Brain) report() {
	b.reported, b.reportAt = b.nextReport(), time.Now()
	if b.armed {
		return
	}
	for _, t := range b.trouble {
		if t.text != "" {
			b.queueText(common.MAV_SEVERITY_WARNING, t.text)
		}
	}
	if b.dataLinkAct() != 0 && !b.dataLink() {
		b.queueText(common.MAV_SEVERITY_WARNING, "Preflight Fail: No connection to the GCS")
	}
}

// sensors returns the bits as captured. PREARM_CHECK is a bit of health only.
func (b *simPX4Brain) sensors() (present, enabled, health common.MAV_SYS_STATUS_SENSOR) {
	const (
		gps   = common.MAV_SYS_STATUS_SENSOR_GPS
		place = common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL
		rc    = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	)
	const simGlimpse = 900 * time.Millisecond
	if b.reportAt.IsZero() && b.glimpses && time.Since(b.booted) >= simReportGap-simGlimpse {
		// PX4 can't be armed yet
		return 0x0300400f, 0x0301400f, 0x0320883f | common.MAV_SYS_STATUS_PREARM_CHECK
	}
	if b.reportAt.IsZero() {
		return 0, 0, 0x0321c83f
	}
	present = 0x0300400f
	enabled = 0x0301400f
	health = 0x0320883f
	r := b.reported
	if r.located {
		present = present | gps
		enabled = enabled | gps
		health = health | place
	}
	if r.hadSticks {
		present |= rc
	}
	if r.sticks {
		health |= rc
	}
	if r.ready {
		health |= common.MAV_SYS_STATUS_PREARM_CHECK
	}
	return present | r.broken, enabled | r.broken, health &^ r.broken
}

// ---- CURRENT_MODE ----

// from one CURRENT_MODE to the next where nothing changes
const simPX4Again = 500 * time.Millisecond

// simPX4Live is the state of CURRENT_MODE. Once requested, CURRENT_MODE comes with every change
// of the vehicle's status, before the mode is in force and before a heartbeat shows it.
type simPX4Live struct {
	// every: the requested interval; zero if none was requested
	every time.Duration

	// wish: the mode that the user wants; a failsafe does not change it
	wish uint32

	// shows is what the last CURRENT_MODE shows.
	shows simPX4Status

	// sentAt is when it was sent.
	sentAt time.Time

	// due: a CURRENT_MODE waits until its interval is over
	due bool
}

type simPX4Status struct {
	mode            uint32
	armed, failsafe bool
}

func (b *simPX4Brain) stepLive() {
	status := simPX4Status{b.shows.mode, b.armed, b.failsafe}
	if b.pending == nil {
		status.mode = b.mode
	}
	if status != b.shows || time.Since(b.sentAt) >= simPX4Again-simTick/2 {
		b.sendMode(status.mode)
	}
}

// sendMode sends CURRENT_MODE at once, or when its interval is over.
func (b *simPX4Brain) sendMode(mode uint32) {
	b.shows = simPX4Status{mode, b.armed, b.failsafe}
	if b.every <= 0 || b.due {
		return
	}
	b.due = true
	b.after(max(0, b.every-time.Since(b.sentAt)), func() {
		b.due = false
		b.sentAt = time.Now()
		if b.every > 0 {
			b.sendOn(false, b.message(436))
		}
	})
}

// ---- Messages of PX4's own ----

// message returns nil if there is nothing to send now.
func (b *simPX4Brain) message(id uint32) message.Message {
	switch id {
	case 1:
		m := b.sysStatus()
		m.OnboardControlSensorsPresent, m.OnboardControlSensorsEnabled, m.OnboardControlSensorsHealth = b.sensors()
		return m
	case 65:
		if !b.receiver.live() {
			return nil
		}
		pwm := func(axis int) uint16 { return uint16(1500 + int(b.rc[axis])/2) }
		none := uint16(math.MaxUint16)
		return &common.MessageRcChannels{
			TimeBootMs: uint32(time.Since(b.booted).Milliseconds()), Chancount: 16, Rssi: 255,
			Chan1Raw: pwm(1), Chan2Raw: pwm(0), Chan3Raw: uint16(1000 + int(b.rc[2])), Chan4Raw: pwm(3),
			Chan5Raw: b.rcSwitch, Chan6Raw: none, Chan7Raw: none, Chan8Raw: none,
		}
	case 69:
		return b.stickReport()
	case 87:
		return b.flyingTo()
	case 245:
		m := b.sharedMessage(id).(*common.MessageExtendedSysState)
		if b.airborne && b.lastLeg() {
			m.LandedState = common.MAV_LANDED_STATE_LANDING
		}
		return m
	case 436:
		if b.noLiveMode || b.version < simPX4v15 {
			return nil
		}
		return &common.MessageCurrentMode{CustomMode: b.shows.mode, IntendedCustomMode: b.wish}
	}
	return b.sharedMessage(id)
}

// setInterval refuses any interval for HEARTBEAT. It accepts messages 65, 69, 87 and 124 even
// if there is nothing to send now.
func (b *simPX4Brain) setInterval(c simCommand) {
	switch id := uint32(c.p[0]); {
	case id == 0, id == 436 && b.version < simPX4v15:
		b.ack(c, common.MAV_RESULT_FAILED)
	case id != 65 && id != 69 && id != 87 && id != 124 && b.message(id) == nil:
		b.ack(c, common.MAV_RESULT_DENIED)
	case id == 436:
		b.every = time.Duration(c.p[1]) * time.Microsecond
		b.ack(c, common.MAV_RESULT_ACCEPTED)
		b.sendMode(b.shows.mode)
	default:
		b.setStream(c, id)
	}
}

// requestMessage sends the message after 1 ms and then the ack.
func (b *simPX4Brain) requestMessage(c simCommand) {
	id := uint32(c.p[0])
	if b.message(id) == nil {
		b.ack(c, common.MAV_RESULT_DENIED)
		return
	}
	b.after(time.Millisecond, func() {
		if m := b.message(id); m != nil && !b.meddler.withholds(id) {
			b.sendOn(c.fromGCS, m)
		}
		b.after(b.between(100*time.Microsecond, 3500*time.Microsecond), func() { b.ack(c, common.MAV_RESULT_ACCEPTED) })
	})
}

// flyingTo returns PX4's target, in AMSL; nil unless PX4 is armed in an AUTO mode.
func (b *simPX4Brain) flyingTo() message.Message {
	if !b.armed || !simPX4IsAuto(b.mode) {
		return nil
	}
	t := b.target
	alt := simHomeAlt + t.up
	switch far := math.Hypot(b.quad.north-b.home.north, b.quad.east-b.home.east) > 1; {
	case b.mode == simPX4Takeoff && b.climbing:
		alt = simHomeAlt + b.climbTo
	case b.mode == simPX4RTL && far:
		home := b.returning()
		alt = simHomeAlt + home.up
		if b.quad.up >= home.up-0.5 {
			t = home
		}
	case b.mode == simPX4RTL:
		t, alt = b.returning(), 0
	case b.mode == simPX4Land:
		// At sea level, some 500 m below home.
		t.north = b.quad.north
		t.east = b.quad.east
		alt = 0
	}
	lat, lon := simPlace(t.north, t.east)
	m := &common.MessagePositionTargetGlobalInt{
		TimeBootMs: uint32(time.Since(b.booted).Milliseconds()), CoordinateFrame: common.MAV_FRAME_GLOBAL_INT,
		LatInt: simE7(lat), LonInt: simE7(lon), Alt: float32(alt),
		Vx: float32(b.quad.vn), Vy: float32(b.quad.ve), Vz: float32(-b.quad.vu), Yaw: float32(b.quad.heading),
	}
	if !b.airborne {
		nan := float32(math.NaN())
		m.Vx = nan
		m.Vy = nan
		m.Vz = nan
		m.Afz = 100
	}
	return m
}

// Times of PX4's stick handling (docs/autopilots.md, "PX4: sticks").
const (
	// simStickGap: a longer gap ends the stream, so 2.5 Hz is enough and 2 Hz is not
	simStickGap = 450 * time.Millisecond

	// simStickProof: a stream counts from this age on
	simStickProof = 250 * time.Millisecond

	// simStickLoss: from the end of the stream to the failsafe, 0.6 s after the last stick
	simStickLoss = 150 * time.Millisecond

	// simStickMoving: for how long a stick that changed counts as moving
	simStickMoving = 1600 * time.Millisecond

	// simStickStep: of ±1000; a smaller change does not count
	simStickStep = 200

	// simUndoCommand: moving sticks undo a commanded mode after this time
	simUndoCommand = 16 * time.Millisecond

	// simUndoFrom: moving sticks undo a pilot's switch after at least this time
	simUndoFrom = 12 * time.Millisecond

	// simUndoTo: they undo it after at most this time and a tick
	simUndoTo = 28 * time.Millisecond
)

// simPX4Sticks is what PX4 knows about sticks.
type simPX4Sticks struct {
	// mavlink: the companion's; station: a ground station's, whose link has the lower number
	mavlink, station simStickStream

	transmitter simStickStream

	// source: the stream that acts; nil before any has acted
	source *simStickStream

	// seen: sticks came in this flight
	seen bool

	// lostAt is when the sticks ended; zero if they did not end, or are not needed.
	lostAt time.Time

	// undoAt is when moving sticks undo the present mode; in the past if they do not.
	undoAt time.Time

	// grabs: in this boot a stream with z = 0 changes LOITER to POSCTL
	grabs bool

	// grabTried: the present stream has had its chance to do that
	grabTried bool
}

// simStick is one MANUAL_CONTROL: x, y, z, r.
type simStick struct {
	at   time.Time
	axis [4]int16
}

// simStickStream is one source of sticks.
type simStickStream struct {
	// window: the MANUAL_CONTROLs of the last 1.6 s, and the last one before
	window []simStick

	// since is when the stream began.
	since time.Time

	// paces: of the axes
	paces [4]simPace
}

// simPace is how fast an axis moves, as a PX4 from 1.18 on counts it.
type simPace struct {
	// speed: half ranges a second, low-passed
	speed float64

	// run: how many changes in a row went one way; below 0: the other way
	run int
}

// add takes a change of an axis, in half ranges, after a time in seconds. A frame without a change neither counts nor
// resets.
func (p *simPace) add(change, dt float64) {
	const filter = 0.05 // s
	p.speed += (change/dt - p.speed) * dt / (filter + dt)
	switch {
	case change > 0:
		p.run = max(p.run, 0) + 1
	case change < 0:
		p.run = min(p.run, 0) - 1
	}
}

// faster reports whether an axis moves faster than that, the third time in a row one way.
func (s *simStickStream) faster(than float64) bool {
	return slices.ContainsFunc(s.paces[:], func(p simPace) bool {
		return math.Abs(p.speed) > than && (p.run >= 3 || p.run <= -3)
	})
}

func (s *simStickStream) add(now time.Time, axis [4]int16) {
	if n := len(s.window); n == 0 || now.Sub(s.window[n-1].at) > simStickGap {
		s.window = nil
		s.since = now
		s.paces = [4]simPace{}
	} else {
		last := s.window[n-1]
		for i := range s.paces {
			halfRange := 1000.0
			if i == 2 {
				halfRange = 500
			}
			s.paces[i].add(float64(axis[i]-last.axis[i])/halfRange, max(0.001, now.Sub(last.at).Seconds()))
		}
	}
	s.window = append(s.window, simStick{now, axis})
	for len(s.window) > 1 && now.Sub(s.window[1].at) >= simStickMoving {
		s.window = s.window[1:]
	}
}

// axis returns the last value of an axis; the centre if there is none.
func (s *simStickStream) axis(i int) int16 {
	if s == nil || len(s.window) == 0 {
		return [...]int16{0, 0, 500, 0}[i]
	}
	return s.window[len(s.window)-1].axis[i]
}

// live reports whether sticks come often enough, and have come for long enough.
func (s *simStickStream) live() bool {
	if s == nil || len(s.window) == 0 {
		return false
	}
	return time.Since(s.window[len(s.window)-1].at) <= simStickGap && time.Since(s.since) >= simStickProof
}

// moving reports whether an axis changed by 200 or more within the last 1.6 s, at once
// or gradually.
func (s *simStickStream) moving() bool {
	now := time.Now()
	for axis := range 4 {
		low := int16(math.MaxInt16)
		high := int16(math.MinInt16)
		for i, st := range s.window {
			if i+1 < len(s.window) && now.Sub(s.window[i+1].at) >= simStickMoving {
				// It was replaced over 1.6 s ago.
				continue
			}
			low = min(low, st.axis[axis])
			high = max(high, st.axis[axis])
		}
		if int(high)-int(low) >= simStickStep {
			return true
		}
	}
	return false
}

// sticks handles a MANUAL_CONTROL, from any sender. An axis out of range keeps its value. A sender with another
// system is a ground station, on a link of its own.
func (b *simPX4Brain) sticks(from uint8, m *common.MessageManualControl) {
	if m.Target != b.system {
		return
	}
	stream := &b.mavlink
	if from != b.system {
		stream = &b.station
	}
	axis := [4]int16{m.X, m.Y, m.Z, m.R}
	for i, v := range axis {
		if v < -1000 || v > 1000 || (i == 2 && v < 0) {
			axis[i] = stream.axis(i)
		}
	}
	stream.add(time.Now(), axis)
	b.choose()
	b.undo(b.between(simUndoFrom, simUndoTo))
}

// choose sets source as COM_RC_IN_MODE says.
func (b *simPX4Brain) choose() {
	mode, ok := b.params[simStickSource]
	radio, low, high := &b.transmitter, &b.station, &b.mavlink
	var order []*simStickStream
	switch {
	case ok && mode == 0:
		order = []*simStickStream{radio}
	case mode == 4, mode > 4 && b.version < simPX4v17:
		// A PX4 before 1.17 does not know 5 to 8: no sticks act.
		b.source = nil
	case (mode == 1 || mode == 2) && b.source.live() && !(mode == 1 && b.source == radio):
		// The present source acts until it is lost.
	case mode == 1:
		order = []*simStickStream{low, high}
	case mode == 5:
		order = []*simStickStream{radio, low, high}
	case mode == 6:
		order = []*simStickStream{low, high, radio}
	case mode == 7:
		order = []*simStickStream{radio, high, low}
	case mode == 8:
		order = []*simStickStream{high, low, radio}
	case mode == 2 || b.source == nil:
		// 3, or no parameter: the first source, until the next boot
		order = []*simStickStream{radio, low, high}
	}
	if i := slices.IndexFunc(order, (*simStickStream).live); i >= 0 {
		b.source = order[i]
	}
}

func (b *simPX4Brain) streaming() bool { return b.source.live() }

// stickReport is MANUAL_CONTROL, which has the sticks that act, whosever they are; nil while none do. An axis may
// lose a thousandth on its way, and up to 1.16 the throttle is ±1000.
func (b *simPX4Brain) stickReport() message.Message {
	if !b.streaming() {
		return nil
	}
	thousandths := func(axis int) int16 { return int16(float32(b.stick(axis)) / 1000 * 1000) }
	throttle := float32(b.stick(2))/1000*2 - 1
	m := &common.MessageManualControl{Target: b.system, X: thousandths(0), Y: thousandths(1), R: thousandths(3),
		Z: int16((throttle + 1) * 500)}
	if b.version < simPX4v17 {
		m.Z = 2*m.Z - 1000
	}
	return m
}

func (b *simPX4Brain) stick(axis int) int16 { return b.source.axis(axis) }

func (b *simPX4Brain) axes() (x, y, z, r float64) {
	of := func(axis int) float64 { return float64(b.stick(axis)) / 1000 }
	return of(0), of(1), of(2), of(3)
}

func (b *simPX4Brain) stepSticks() {
	now := time.Now()
	if b.receiver.live() {
		b.transmitter.add(now, b.rc)
	}
	b.choose()
	b.grab()
	switch {
	case !b.armed || b.failsafe || b.mode == simPX4RTL:
		b.lostAt = time.Time{}
	case b.streaming():
		b.seen = true
		b.lostAt = time.Time{}
	case !b.seen:
	case b.lostAt.IsZero():
		b.lostAt = now
	case now.Sub(b.lostAt) < simStickLoss-simTick:
	case b.mode == simPX4Land:
		// Only a warning; PX4 goes on landing.
		b.failsafe = b.version < simPX4v15
		b.text(common.MAV_SEVERITY_CRITICAL, "Failsafe activated")
		b.seen = false
		b.lostAt = time.Time{}
	default:
		b.beginFailsafe(simPX4RTL)
		b.seen = false
		b.lostAt = time.Time{}
	}
	b.undo(b.between(simUndoFrom, simUndoTo))
}

// overrides reports whether the sticks move so that PX4 gives them the drone.
func (b *simPX4Brain) overrides() bool {
	if b.version >= simPX4v18 {
		speed := b.params[simStickSpeed]
		return speed >= 0 && b.source.faster(speed)
	}
	return int(b.params[simStickOverride])&1 != 0 && b.source.moving()
}

// undo makes sticks that move in an AUTO mode change it to POSCTL after the given time. A
// pilot's switch stays in force for 12 to 48 ms: up to a tick until undo is called, then the
// given time. During a failsafe sticks undo nothing.
func (b *simPX4Brain) undo(after time.Duration) {
	now := time.Now()
	overrides := b.streaming() && b.overrides()
	if !overrides || !b.armed || b.failsafe || !b.taken() || now.Before(b.undoAt) {
		return
	}
	b.undoAt = now.Add(after)
	b.after(after, func() {
		if b.armed && !b.failsafe {
			b.text(common.MAV_SEVERITY_INFO, "Pilot took over using sticks")
			b.enter(simPX4Posctl)
		}
	})
}

// grab is an oddity of some boots. A stream with z = 0 that starts while PX4 is disarmed in
// AUTO.LOITER changes the mode to POSCTL.
func (b *simPX4Brain) grab() {
	if !b.mavlink.live() {
		b.grabTried = false
		return
	}
	if b.grabs && !b.grabTried && !b.armed && b.source == &b.mavlink && b.mode == simPX4Loiter && b.stick(2) == 0 {
		b.enter(simPX4Posctl)
	}
	b.grabTried = true
}

// ---- The flight ----

// How PX4 flies, tuned until it flew as in the captured flights.
const (
	// simSpinUp: from the arming to a takeoff's lift-off
	simSpinUp = 3500 * time.Millisecond

	// simDetected: from the arming until PX4 calls itself in the air; it still stands
	simDetected = 2000 * time.Millisecond

	// simSpinUp18, simDetected18: the same from 1.18 on
	simSpinUp18   = 1900 * time.Millisecond
	simDetected18 = 1600 * time.Millisecond

	// simOrbitRadius: metres
	simOrbitRadius = 10.0

	// simAccel: m/s², horizontally
	simAccel = 4.0

	// simLift: m/s², vertically
	simLift = 2.0

	// simNear: m/s², the deceleration before a goto's place
	simNear = 0.9

	// simCruise: m/s
	simCruise = 5.0

	// simTop: m/s, the highest speed over ground
	simTop = 20.0

	// simClimb: m/s
	simClimb = 1.25

	// simSink: m/s
	simSink = 1.5

	// simSoft: m/s, the climb at the beginning of a takeoff
	simSoft = 0.2

	// simLevel: 1/s: PX4 ends a climb 0.76 m below its height, at 0.88 m/s
	simLevel = 0.88 / 0.76
)

// liftsOff is when, after the arming, a takeoff lifts off, and when PX4 calls itself in the air.
func (b *simPX4Brain) liftsOff() (spinUp, detected time.Duration) {
	if b.version >= simPX4v18 {
		return simSpinUp18, simDetected18
	}
	return simSpinUp, simDetected
}

// climb takes off to a height above home, or climbs to it in the air.
func (b *simPX4Brain) climb(to float64) {
	b.climbing = true
	b.climbTo = to
	b.climbFrom = time.Now()
	if !b.airborne {
		spinUp, detected := b.liftsOff()
		b.climbFrom = b.armedAt.Add(spinUp)
		if soonest := time.Now().Add(spinUp - detected); soonest.After(b.climbFrom) {
			b.climbFrom = soonest
		}
	} else {
		// It does not begin slowly.
		b.climbFrom = b.climbFrom.Add(-b.soft)
	}
}

// stay sets the target to the place where the quad can stop.
func (b *simPX4Brain) stay() { b.target = b.stopping() }

// stopping returns the place where PX4's quad can stop: v²/(2·brake) ahead.
func (b *simPX4Brain) stopping() simTarget {
	q := &b.quad
	t := math.Hypot(q.vn, q.ve) / (2 * b.brake)
	return simTarget{
		north: q.north + q.vn*t, east: q.east + q.ve*t,
		up: q.up, yaw: math.NaN(), speed: simCruise,
	}
}

// disarms reports whether PX4 disarms by itself now, 2 s after a landing, else 10 s
// after the arming.
func (b *simPX4Brain) disarms(now time.Time) bool {
	if b.landedAt.After(b.armedAt) {
		return now.After(b.landedAt.Add(2 * time.Second))
	}
	return now.After(b.armedAt.Add(10 * time.Second))
}

// steer changes the velocity. Modes that sticks fly brake as hard as they accelerate.
func (b *simPX4Brain) steer(vn, ve, vu, dt float64) {
	brake := b.brake
	if b.row(b.mode).sticks() {
		brake = simAccel
	}
	b.quad.steer(vn, ve, vu, brake, dt)
}

// wanted returns the velocity (m/s) and the turn rate (rad/s) that the mode asks for.
func (b *simPX4Brain) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	q := &b.quad
	t := b.target
	x, y, z, r := b.axes()
	sin, cos := math.Sincos(q.heading)

	// The stick's deflection to the north and east.
	stickN, stickE := x*cos-y*sin, x*sin+y*cos
	rise := max(z-0.5, 0)*2*b.stickUp - max(0.5-z, 0)*2*b.stickDown
	flying := b.row(b.mode).flying
	switch {
	case !b.armed:
		return 0, 0, -5, 0
	case b.climbing && now.Before(b.climbFrom):
		return 0, 0, 0, 0
	case b.climbing:
		t.up = b.climbTo
		vn, ve, _ = q.towards(t)
		vu = max(-simSink, min(simClimb, simLevel*(t.up-q.up)))
		if now.Before(b.climbFrom.Add(b.soft)) {
			vu = min(vu, simSoft)
		}
	case flying == simHold:
		vn, ve, vu = q.towards(t)
		turn = q.turn(t.yaw)
	case flying == simDescend:
		vn, ve, _ = q.towards(t)
		vu = -b.landSpeed
	case flying == simReturn:
		vn, ve, vu = b.homeward()
	case flying == simCourse:
		vn = simCruise * cos
		ve = simCruise * sin
	case flying == simOrbit:
		vn, ve = b.circles(x, dt)
	case flying == simTrim:
		vn, ve = b.trim(x, y, dt)
		vu = rise
		turn = r
	case flying == simVelocity:
		vn = stickN * b.stickSpeed
		ve = stickE * b.stickSpeed
		vu = rise
		turn = r
	case flying == simTilt:
		vn, ve = simTopSpeed(q.vn+stickN*3*dt, q.ve+stickE*3*dt)
		vu = rise
		turn = r
	case flying == simThrust:
		vn, ve = simTopSpeed(q.vn+stickN*3*dt, q.ve+stickE*3*dt)
		turn = r
		vu = max(-b.stickDown, min(5, q.vu+(z-0.5)*10*dt))
		if !b.airborne {
			// A thrust above the weight lifts the drone.
			vu = z - 0.55
		}
	}
	return vn, ve, vu, turn
}

// trim changes the tilt by the sticks, which keep none.
func (b *simPX4Brain) trim(x, y, dt float64) (vn, ve float64) {
	q := &b.quad
	b.tiltX = max(-1, min(1, b.tiltX+2*x*dt))
	b.tiltY = max(-1, min(1, b.tiltY+2*y*dt))
	sin, cos := math.Sincos(q.heading)
	return simTopSpeed(q.vn+(b.tiltX*cos-b.tiltY*sin)*3*dt, q.ve+(b.tiltX*sin+b.tiltY*cos)*3*dt)
}

// circles flies round the target. A pitch forward makes the circle smaller.
func (b *simPX4Brain) circles(pitch, dt float64) (vn, ve float64) {
	b.orbit = max(1, b.orbit-pitch*simCruise*dt)
	n, e := b.quad.north-b.target.north, b.quad.east-b.target.east
	way := max(0.1, math.Hypot(n, e))
	n, e = n/way, e/way
	outwards := max(-1, min(1, b.orbit-way))
	return n*outwards - 2*e, e*outwards + 2*n
}

// simTopSpeed limits a velocity, as drag does.
func simTopSpeed(vn, ve float64) (n, e float64) {
	if v := math.Hypot(vn, ve); v > simTop {
		return vn * simTop / v, ve * simTop / v
	}
	return vn, ve
}

// homeward climbs to the return height, flies home and lands.
func (b *simPX4Brain) homeward() (vn, ve, vu float64) {
	q := &b.quad
	home := b.returning()
	vn, ve, vu = q.towards(home)
	if b.caught {
		return 0, 0, b.ground() + 0.2 - q.up
	}
	switch far := math.Hypot(q.north-b.home.north, q.east-b.home.east) > 1; {
	case far && q.up < home.up-0.5:
		return 0, 0, min(b.stickUp, home.up-q.up)
	case far:
		return vn, ve, vu
	case q.up > 10:
		return vn, ve, -2 * b.landSpeed
	}
	return vn, ve, -b.landSpeed
}

// lastLeg reports whether a return lands, as landed_state says.
func (b *simPX4Brain) lastLeg() bool {
	return b.row(b.mode).flying == simReturn && math.Hypot(b.quad.north-b.home.north, b.quad.east-b.home.east) <= 1
}

// returning returns the place over home to which PX4's return flies. It flies at the higher of two heights: the one
// where it began, and the return height. Nearer than 10 m (RTL_MIN_DIST) that is its distance, at least 4 m.
func (b *simPX4Brain) returning() simTarget {
	t := b.target
	away := math.Hypot(t.north-b.home.north, t.east-b.home.east)
	up := b.params[simReturnUp]
	if away <= 10 {
		up = min(up, max(4, away))
	}
	return simTarget{
		north: b.home.north, east: b.home.east, yaw: math.NaN(), speed: simCruise,
		up: max(t.up, up),
	}
}

// towards returns PX4's velocity to a target. It falls with the distance, so the quad
// stops without overshoot.
func (q *simQuad) towards(t simTarget) (vn, ve, vu float64) {
	n, e := t.north-q.north, t.east-q.east
	if d := math.Hypot(n, e); d > 0.01 {
		v := min(t.speed, 0.7*d, math.Sqrt(2*simNear*d))
		vn, ve = n/d*v, e/d*v
	}
	return vn, ve, max(-simSink, min(simClimb, t.up-q.up))
}

// steer changes the velocity and moves the quad, as PX4 does. brake limits the deceleration, in m/s².
func (q *simQuad) steer(vn, ve, vu, brake, dt float64) {
	an, ae := (vn-q.vn)/dt, (ve-q.ve)/dt
	most := simAccel
	if an*q.vn+ae*q.ve < 0 {
		most = brake
	}
	if a := math.Hypot(an, ae); a > most {
		an, ae = an*most/a, ae*most/a
	}
	q.an, q.ae = an, ae
	q.vn += an * dt
	q.ve += ae * dt
	q.vu += max(-simLift*dt, min(simLift*dt, vu-q.vu))
	q.north += q.vn * dt
	q.east += q.ve * dt
	q.up += q.vu * dt
}
