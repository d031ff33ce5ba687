package main

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

const simLoiter = 5

func TestArduPilotBootsWithStrayBytes(t *testing.T) {
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		p, _ := b.open()
		b.reboot(false)
		buf := make([]byte, 100)
		n, _ := p.Read(buf)
		if n < 6 || buf[0] == frame.V2MagicByte || bytes.IndexByte(buf[:n], frame.V2MagicByte) > 6 {
			t.Errorf("first bytes % x", buf[:n])
		}
	})
}

func TestArduPilotFlies(t *testing.T) {
	const flies = ", +12s, vn "
	simFlies(t, []rule{ // sim_test.go, simFlies, and flight_test.go explain the words of a script
		{"obeys sticks from the system that its parameter names",
			"copter air SYSID_MYGCS=none MAV_GCS_SYSID=42: mode LOITER, as 42, sticks 0 0 500 0 for 2s, climb 0 ±0.05"},
		{"arms whatever another system's throttle is",
			"copter: mode GUIDED, sticks 0 0 500 0 for 400ms, arm = accepted"},
		{"accepts a takeoff in LOITER, but does not climb",
			"copter: mode LOITER, arm, NAV_TAKEOFF 0 0 0 0 0 0 10 = accepted, +8s, at 0 0 0 ±0.01"},
		{"climbs 4 m further when BRAKE ends a climb",
			"copter air: goto 0 0 60, until climb > 2.4 30s, note, {mode BRAKE→BRAKE|mode BRAKE, mode " +
				"GUIDED→GUIDED}, +12s, climb 0 ±0.05, rose 4 ±0.6, in $1"},
		{"disarms by itself where a pilot ends its takeoff by BRAKE",
			"copter: mode GUIDED, arm, NAV_TAKEOFF 0 0 0 0 0 0 10, +1s, pilot BRAKE, +8700ms, armed, +600ms, " +
				"disarmed, at 0 0 0 ±0.01"},
		{"ignores every goto after a pause",
			"copter air: DO_PAUSE_CONTINUE 0 = accepted, goto 60 0 10 = accepted, +20s, at 0 0 10 ±0.2"},
		{"forgets a speed that comes before a goto, and keeps one that comes after it",
			"copter air: DO_CHANGE_SPEED 1 2 = accepted, goto 3000 0 10" + flies +
				"10 ±0.1, DO_CHANGE_SPEED 1 4, goto 3100 0 10" + flies + "4 ±0.1, mode GUIDED, goto 3200 0 10" + flies +
				"4 ±0.1, DO_CHANGE_SPEED 1 3, mode BRAKE, DO_CHANGE_SPEED 1 2 = failed, mode GUIDED, goto 3300 0 10" +
				flies + "10 ±0.1"},
		{"keeps a yaw until the next goto",
			"copter air: goto 0 400 10, +5s, heading 90 ±2, CONDITION_YAW 90 0 1 1 = accepted, +5s, heading 180 ±2, " +
				"goto 400 400 10, +8s, not heading 180 ±90, mode LAND, CONDITION_YAW 90 = failed"},
		{"refuses to disarm at the touch-down", "copter air: mode LAND, until alt < 0.01 60s, disarm = failed"},
	})
}

func TestArduPilotsSticksAndReceiver(t *testing.T) {
	const air = "as 255, air 10, "
	const stream = "sticks 0 0 500 0 for "
	simFlies(t, []rule{
		{"sticks fly LOITER as captured", "copter receiver=hand: " + air + stream +
			"400ms, mode LOITER, sticks 500 0 500 0 for 3s, vn 3.23 ±0.3, " + stream +
			"5s, sticks 1000 0 500 0 for 15s, vn 8.6 ±0.1, sticks -500 0 -1 0 for 1s, vn 8.6 ±0.2, sticks 32767 0 " +
			"500 0 for 10s, vn 0 ±0.1, sticks 0 0 1000 0 for 4s, climb 2.5 ±0.1"},
		{"centred sticks stop LOITER as captured", "copter receiver=hand: " + air + stream +
			"400ms, mode LOITER, sticks 500 0 500 0 for 3s, " + stream + "5s, north 9.65 ±1.5"},
		{"a failsafe comes 1 s after the last stick, in any mode", "copter receiver={none|lost}: " + air + stream +
			"400ms, mode {STABILIZE|GUIDED|LOITER|LAND}, " + stream +
			"2s, in $2, stick 0 0 500 0, +970ms, in $2, +60ms, in RTL, +10ms, says Radio Failsafe, state CRITICAL"},
		{"sticks prevent and clear the radio failsafe", "copter receiver=none: " + air + stream +
			"14s, in GUIDED, +1100ms, in RTL, mode GUIDED = accepted, +10s, in GUIDED, failing, " + stream +
			"1s, not failing, +1100ms, " + stream + "1s, in RTL, not failing"},
		{"a receiver prevents the radio failsafe too", "copter receiver=idle: " + air + stream +
			"1s, +20s, in GUIDED, receiver lost, +1100ms, in RTL, receiver hand, +100ms, not failing, in RTL"},
		{"a receiver acts where there is no stream",
			"copter {receiver=hand: as 255, air 60, mode LOITER→0|receiver=idle: as 255, air 60, mode " +
				"ALT_HOLD→-2.4|receiver=hand: as 255, air 60, mode ALT_HOLD→0|receiver=hand: as 255, air 60, mode " +
				"STABILIZE→3|receiver=idle: as 255, air 60, mode GUIDED→0}, +15s, climb $1 ±0.2"},
		{"STABILIZE falls under an idle receiver",
			"copter receiver=idle: as 255, air 28, mode STABILIZE, until climb < -13 60s, stays 5s climb > -15"},
		{"after a release the pilot's roll stick flies", "copter receiver=hand: " + air + stream +
			"1s, pilot LOITER, pilot sticks 0 500 500 0, " + stream +
			"8s, at 0 0 10 ±0.05, stick 32767 32767 32767 32767, stick 32767 32767 32767 32767, stick 32767 32767 " +
			"32767 32767, +15s, ve 4.3 ±0.1"},
		{"without a receiver it does not arm",
			"copter receiver={none|lost}: as 255, mode GUIDED, arm = failed, says Arm: RC not found"},
		{"without a receiver it arms after 2 s of a stream",
			"copter receiver=none: as 255, mode GUIDED, sticks 0 0 0 0 for {1s, arm = failed, says Arm: RC not " +
				"found|2100ms, arm = accepted}"},
		{"it does not arm with the throttle in the middle",
			"copter {receiver=none: as 255, mode GUIDED, sticks 0 0 500 0 for 2100ms|receiver=hand: as 255, pilot " +
				"sticks 0 0 500 0, mode GUIDED}, arm = failed, says Arm: Throttle (RC3) is not neutral"},
		{"sticks count as a ground station's heartbeat", "copter receiver=idle FS_GCS_ENABLE=1: " + air +
			"+10s, in GUIDED, " + stream + "3s, stick 32767 32767 32767 32767, +5050ms, in GUIDED, +100ms, in RTL, " +
			"+10ms, says GCS Failsafe, failing"},
		{"with FS_GCS_ENABLE 0 the end of sticks is no failsafe", "copter receiver=idle FS_GCS_ENABLE=0: " + air +
			stream + "3s, stick 32767 32767 32767 32767, +20s, in GUIDED"},
		{"in GUIDED sticks only turn the vehicle", "copter receiver=none: " + air +
			"sticks 1000 0 0 500 for 2s, at 0 0 10 ±0.1, heading > 30"},
		{"sticks shift a landing", "copter receiver=none: " + air + stream +
			"400ms, mode LAND, sticks 1000 0 500 0 for 3s, north > 2"},
	})
}

// simSlowBoot makes a boot take as long as a real ArduPilot's.
func simSlowBoot(s *simulator) { s.armableAfter = 42 * time.Second }

func TestArduPilotsBootTakeoffAndGotos(t *testing.T) {
	modes := "STABILIZE"
	for _, m := range simArduPilot.modes[1:] {
		modes += "|" + m.name
	}
	const boot = "copter armable=42s: +24s, "
	simFlies(t, []rule{
		{"before the first fix VFR_HUD has no altitude", "copter armable=42s: hud -0.02"},
		{"without a position and disarmed it takes any mode", boot + "mode {" + modes + "} = accepted"},
		{"without a position and armed it takes no mode that needs one", boot +
			"mode STABILIZE, arm = accepted, mode {GUIDED|LOITER|RTL} = failed, says requires position, goto 10 0 " +
			"10 = failed"},
		{"a takeoff's height is above home, and it lifts once its propellers turn",
			"copter: mode GUIDED, arm, INT NAV_TAKEOFF 0 0 10 in 3 = accepted, +3s, at 0 0 0 ±0, until alt > 0 " +
				"400ms, +10s, at 0 0 10 ±0.15"},
		{"a takeoff in other frames is denied", "copter: mode GUIDED, arm, INT NAV_TAKEOFF 0 0 10 in {0|6} = denied"},
		{"a goto in a terrain frame flies into the ground",
			"copter air: INT DO_REPOSITION 20 5 15 in 11 = accepted, +30s, alt 0 ±0.3"},
		{"a return never sinks to RTL_ALT",
			"copter air RTL_ALT=2500: mode GUIDED, goto 40 0 30, +25s, mode RTL, +12s, alt 30 ±0.5"},
		{"a goto in a local frame is denied", "copter air: INT DO_REPOSITION 20 5 15 in 1 = denied, +30s, alt 10 ±0.3"},
		{"a goto on the ground is accepted, and does nothing",
			"copter: mode GUIDED, arm, goto 20 0 15 = accepted, +5s, at 0 0 0 ±0"},
	})
}

func TestArduPilotsInternalError(t *testing.T) {
	const changing = "copter: mode ALT_HOLD, ask mode STABILIZE, "
	simFlies(t, []rule{
		{"a mode change within 5 ms of another raises the error", changing +
			"+{1ms|5ms}, ask mode LOITER, +1s, mode GUIDED, arm = failed, says Arm: Internal errors 0x100000 l:297 " +
			"flow_of_ctrl, state CRITICAL, +1m, arm = failed, restart grounded, +6s, mode GUIDED, arm = accepted"},
		{"a mode change 7 ms after another does not raise the error", changing +
			"+{7ms|20ms}, ask mode LOITER, +1s, mode GUIDED, arm = accepted"},
		{"in the air the vehicle then climbs by itself",
			"copter air receiver=hand: ask mode STABILIZE, ask mode ALT_HOLD, +40s, says Internal Errors 0x100000, " +
				"alt 56 ±2"},
		{"a line that gathers bytes makes two mode changes arrive at once",
			"copter air: gathers 250ms, ask mode ALT_HOLD, +{200ms→CRITICAL|300ms→ACTIVE}, ask NAV_LAND, +1s, in " +
				"LAND, state $1"},
		{"bytes that a line gathers survive a restart",
			"copter air: gathers 250ms, ask mode ALT_HOLD, +100ms, restart, +1s, in ALT_HOLD"},
	})
}

func TestArduPilotStops(t *testing.T) {
	const runs = "copter air: goto 2000 0 10, DO_CHANGE_SPEED 1 "
	simFlies(t, []rule{
		{"BRAKE and then GUIDED comes back under 1 m", runs +
			"10.1, +15s, ask mode BRAKE, +20ms, ask mode GUIDED, comes back north 0.8 ±0.3, past 24.6 ±3.7, " +
			"alt 10 ±0.2"},
		{"a pilot's BRAKE stays and forgets the goto", runs +
			"4, +15s, pilot BRAKE, comes back north 0 ±0.1, past 6.9 ±0.7, in BRAKE, mode GUIDED, comes back north " +
			"0 ±0.1, past 0 ±0.1"},
	})
}

const simReleased = math.MaxInt16 // a released axis

func TestArduPilotObeysSticksForItsOwnSystemOnly(t *testing.T) {
	simFlight(t, simArduPilot, func(s *simulator) { s.system = 7 }, func(b *simBoard) {
		b.as(255, 191)
		for _, c := range []struct {
			target  uint8
			forward float64
		}{{1, 0}, {7, 1}} {
			b.write(&common.MessageManualControl{Target: c.target, X: 1000, Z: 500})
			time.Sleep(50 * time.Millisecond)
			b.change(func() { // under the simulator's mutex
				x, _, _, _ := b.obeyedAxes()
				b.want("the stick after a MANUAL_CONTROL", x, c.forward)
			})
		}
	})
}

func TestArduPilotReportsItsReceiver(t *testing.T) {
	const free = "stick 32767 32767 32767 32767, "
	simFlies(t, []rule{
		{"a lost receiver's channels freeze",
			"copter air receiver=idle: as 255, stick 500 200 600 -400, pilot sticks -1000 0 500 0, +1s, channels " +
				"1600 1250 1600 1300, " + free +
				"+18ms, channels 1500 2000 1500 1500, receiver lost, pilot sticks 0 0 0 0, +10s, channels 1500 2000 " +
				"1500 1500, stick 0 0 500 0, +1ms, channels 1500 1500 1500 1500"},
		{"SYS_STATUS counts a stream as a receiver",
			"copter receiver={none→000|lost→110|idle→111|hand→111}: sensor SENSOR_RC_RECEIVER $1, as 255, sticks 0 " +
				"0 0 0 for 1s, sensor SENSOR_RC_RECEIVER 111"},
		{"a QuadPlane reports a receiver that was never there",
			"quadplane receiver=none: sensor SENSOR_RC_RECEIVER 110"},
	})
}

// simPlane is ArduPilot's Plane without lifting propellers.
var simPlane = func() *simVehicle {
	v := *simQuadPlane
	v.modes = slices.DeleteFunc(slices.Clone(v.modes), func(m simMode) bool { return m.name[0] == 'Q' })
	v.land = simPlaneRTL
	v.rtl = simPlaneRTL
	return &v
}()

// simArduRover is ArduPilot on wheels. It stands: nothing drives it here.
var simArduRover = func() *simVehicle {
	v := *simArduPilot
	v.typ = common.MAV_TYPE_GROUND_ROVER
	v.modes = simArduRoverModes
	v.first = 0
	v.hold = 4
	v.land = 4
	v.rtl = 11
	return &v
}()

// simArduRoverModes are ArduRover's.
var simArduRoverModes = []simMode{
	{custom: 0, name: "MANUAL"},
	{custom: 1, name: "ACRO"},
	{custom: 3, name: "STEERING"},
	{custom: 4, name: "HOLD"},
	{custom: 5, name: "LOITER", needsPosition: true},
	{custom: 7, name: "SIMPLE"},
	{custom: 10, name: "AUTO", needsPosition: true},
	{custom: 11, name: "RTL", needsPosition: true},
	{custom: 12, name: "SMART_RTL", needsPosition: true},
	{custom: 15, name: "GUIDED", needsPosition: true},
}

// simWing is a mode that only flies forward on the wing.
const simWing simFlying = -1

// ArduPlane's custom modes that the code below names.
const (
	simPlaneFBWA    = 5
	simPlaneCruise  = 7
	simPlaneRTL     = 11
	simPlaneTakeoff = 13
	simPlaneGuided  = 15
	simPlaneQHover  = 18
	simPlaneQLoiter = 19
	simPlaneQLand   = 20
	simPlaneQRTL    = 21
)

// simQuadPlane is ArduPilot's Plane with lifting propellers.
var simQuadPlane = &simVehicle{
	equip: func(s *simulator) (simAutopilot, simFlier) {
		b := &simQuadPlaneBrain{simArduBrain: simArduBrain{simulator: s}}
		return b, b
	},
	autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA,
	version:   4<<24 | 5<<16 | 5<<8 | 255,
	volts:     12.6,
	first:     0, hold: simPlaneGuided, land: simPlaneQLand, rtl: simPlaneQRTL,
	landSpeed: 0.5, stickSpeed: 5, stickUp: 2.5, stickDown: 2.4,
	streams: map[uint32]time.Duration{0: time.Second, 111: 10 * time.Second},
	defaults: map[string]float64{"SYSID_MYGCS": 255, "FS_GCS_ENABL": 0, "Q_GUIDED_MODE": 0, "Q_MAV_TYPE": 0,
		"TKOFF_ALT": 50, "WP_LOITER_RAD": simWingRadius, "Q_RTL_ALT": 15, "RTL_ALTITUDE": 100,
		"AIRSPEED_MIN": 9, "AIRSPEED_MAX": 22, "MIN_GROUNDSPEED": 0},
	modes: []simMode{
		{custom: 0, name: "MANUAL", flying: simWing},
		{custom: 1, name: "CIRCLE", flying: simWing},
		{custom: 2, name: "STABILIZE", flying: simWing},
		{custom: 3, name: "TRAINING", flying: simWing},
		{custom: 4, name: "ACRO", flying: simWing},
		{custom: simPlaneFBWA, name: "FBWA", flying: simWing},
		{custom: 6, name: "FBWB", flying: simWing},
		{custom: simPlaneCruise, name: "CRUISE", flying: simWing},
		{custom: 8, name: "AUTOTUNE", flying: simWing},
		{custom: 10, name: "AUTO", flying: simWing, needsPosition: true, noArm: true},
		{custom: simPlaneRTL, name: "RTL", flying: simWing, needsPosition: true, noArm: true},
		{custom: 12, name: "LOITER", flying: simWing, needsPosition: true},
		{custom: simPlaneTakeoff, name: "TAKEOFF", flying: simWing, needsPosition: true},
		{custom: 14, name: "AVOID_ADSB", flying: simWing, needsPosition: true},
		{custom: simPlaneGuided, name: "GUIDED", needsPosition: true},
		{custom: 17, name: "QSTABILIZE", flying: simThrust},
		{custom: simPlaneQHover, name: "QHOVER", flying: simTilt},
		{custom: simPlaneQLoiter, name: "QLOITER", flying: simVelocity, needsPosition: true},
		{custom: simPlaneQLand, name: "QLAND", flying: simDescend, needsPosition: true, noArm: true},
		{custom: simPlaneQRTL, name: "QRTL", flying: simReturn, needsPosition: true, noArm: true},
		{custom: 22, name: "QAUTOTUNE", flying: simTilt},
		{custom: 23, name: "QACRO", flying: simThrust},
		{custom: 24, name: "THERMAL", flying: simWing, needsPosition: true},
		{custom: 25, name: "LOITER_ALT_QLAND", flying: simWing, needsPosition: true, noArm: true},
	},
}

const (
	simWingSpeed  = 26.0 // m/s
	simWingRadius = 75.0 // m
	simWingBank   = 0.6  // rad/s
	simWingLift   = 12.0 // m/s; a slower plane rolls on the ground
)

// simQuadPlaneBrain is ArduPlane, with lifting propellers or without. While it hovers it flies
// much like a Copter.
type simQuadPlaneBrain struct {
	simArduBrain
	winged   bool    // it flies on its wing; the propellers do not lift it
	tookOff  bool    // NAV_TAKEOFF was accepted in this GUIDED, which hovers until it is sent a place
	airSpeed float64 // m/s, of a DO_CHANGE_SPEED since its mode was entered; 0: its own
}

func (b *simQuadPlaneBrain) start() {
	b.winged, b.tookOff, b.airSpeed = false, false, 0
	b.simArduBrain.start()
}

func (b *simQuadPlaneBrain) entered() {
	b.tookOff, b.airSpeed = false, 0
	b.simArduBrain.entered()
}

// changeSpeed is DO_CHANGE_SPEED in GUIDED. An air speed (param1 0) holds for every later place, until GUIDED is
// entered anew; −2 is the vehicle's own. A ground speed (1) sets MIN_GROUNDSPEED.
func (b *simQuadPlaneBrain) changeSpeed(c simCommand) common.MAV_RESULT {
	speed := c.p[1]
	switch {
	case b.mode != simPlaneGuided:
		return common.MAV_RESULT_FAILED
	case c.p[0] == 1:
		b.params["MIN_GROUNDSPEED"] = speed
	case c.p[0] == 0 && speed == -2:
		b.airSpeed = 0
	case c.p[0] == 0 && speed >= b.params["AIRSPEED_MIN"] && speed <= b.params["AIRSPEED_MAX"]:
		b.airSpeed = speed
	default:
		return common.MAV_RESULT_FAILED
	}
	return common.MAV_RESULT_ACCEPTED
}

// cruising is the speed that it flies on its wing.
func (b *simQuadPlaneBrain) cruising() float64 {
	return max(cmp.Or(b.airSpeed, simWingSpeed), b.params["MIN_GROUNDSPEED"])
}

func (b *simQuadPlaneBrain) command(c simCommand) {
	switch c.id {
	case common.MAV_CMD_NAV_TAKEOFF:
		if b.flavour == simPlane {
			b.ack(c, common.MAV_RESULT_FAILED)
			return
		}
		b.simArduBrain.command(c)
		b.tookOff = b.tookOff || b.climbing
	case common.MAV_CMD_NAV_LAND, common.MAV_CMD_CONDITION_YAW, common.MAV_CMD_DO_PAUSE_CONTINUE:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	case common.MAV_CMD_NAV_RETURN_TO_LAUNCH:
		b.ack(c, b.obey(simPlaneRTL))
	case common.MAV_CMD_DO_CHANGE_SPEED:
		b.ack(c, b.changeSpeed(c))
	default:
		b.simArduBrain.command(c)
	}
}

// hovers reports whether it hovers in GUIDED.
func (b *simQuadPlaneBrain) hovers() bool { return b.params["Q_GUIDED_MODE"] == 1 }

// message makes a message. By default the vehicle's type is a fixed wing, so that only
// vtol_state distinguishes a QuadPlane from a plane.
func (b *simQuadPlaneBrain) message(id uint32) message.Message {
	m := b.simArduBrain.message(id)
	if id == 87 && b.winged { // its next place, in each mode but MANUAL
		lat, lon := simPlace(b.target.north, b.target.east)
		return &common.MessagePositionTargetGlobalInt{
			TimeBootMs: uint32(time.Since(b.booted).Milliseconds()), CoordinateFrame: common.MAV_FRAME_GLOBAL,
			TypeMask: 0xfff8,
			LatInt:   simE7(lat), LonInt: simE7(lon), Alt: float32(simHomeAlt + b.target.up),
		}
	}
	switch m := m.(type) {
	case *common.MessageHeartbeat:
		m.Type = common.MAV_TYPE_FIXED_WING
		if t := b.params["Q_MAV_TYPE"]; t > 0 {
			m.Type = common.MAV_TYPE(t)
		}
	case *common.MessageExtendedSysState:
		m.VtolState = b.vtol()
	}
	return m
}

func (b *simQuadPlaneBrain) vtol() common.MAV_VTOL_STATE {
	speed := math.Hypot(b.quad.vn, b.quad.ve)
	switch {
	case b.flavour == simPlane:
		return common.MAV_VTOL_STATE_UNDEFINED
	case b.winged && speed > 0.8*simWingSpeed, !b.armed && b.fliesWinged():
		return common.MAV_VTOL_STATE_FW
	case b.winged:
		return common.MAV_VTOL_STATE_TRANSITION_TO_FW
	case speed > 12:
		return common.MAV_VTOL_STATE_TRANSITION_TO_MC
	}
	return common.MAV_VTOL_STATE_MC
}

// fliesWinged reports whether the mode flies on the wing. GUIDED does so once it is sent a place, or entered in
// the air; after a takeoff it hovers.
func (b *simQuadPlaneBrain) fliesWinged() bool {
	row := b.row(b.mode)
	standsAfterTakeoff := b.tookOff && !b.going
	return b.flavour == simPlane || row.flying == simWing || row.flying == simHold && !standsAfterTakeoff && !b.hovers()
}

// stay makes the present place the target, except in RTL and TAKEOFF. On the wing the vehicle circles it.
func (b *simQuadPlaneBrain) stay() {
	b.simArduBrain.stay()
	switch b.mode {
	case simPlaneQRTL: // nearer than a circle and a half it climbs less, but to 10 m
		q := &b.quad
		away := math.Hypot(q.north, q.east)
		b.rest.up = max(q.up, 10, b.params["Q_RTL_ALT"]*min(1, away/(1.5*simWingRadius)))
	case simPlaneRTL:
		b.target.north, b.target.east, b.target.up = 0, 0, b.params["RTL_ALTITUDE"]
	case simPlaneTakeoff: // it climbs straight ahead and then circles
		b.target.north += 200 * math.Cos(b.quad.heading)
		b.target.east += 200 * math.Sin(b.quad.heading)
		b.target.up = b.params["TKOFF_ALT"]
	}
}

func (b *simQuadPlaneBrain) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	if b.flavour == simPlane && b.armed && !b.airborne && b.mode == simPlaneTakeoff {
		b.airborne, b.quad.up = true, 0.1 // landed_state is IN_AIR already while it rolls
	}
	was := b.winged
	b.winged = b.armed && b.airborne && b.fliesWinged()
	if was != b.winged {
		b.still, b.level = false, false
		b.entry = [2]float64{}
	}
	if b.winged {
		vn, ve, vu, turn = b.circle(dt)
		if b.row(b.mode).name == "FBWB" {
			vn, ve, vu, turn = b.flyByWire(dt)
		}
		if speed := math.Hypot(vn, ve); b.quad.up <= 0.1 && speed < simWingLift {
			sin, cos := math.Sincos(b.quad.heading)
			return cos * speed, sin * speed, 0, 0
		}
		return vn, ve, vu, turn
	}
	vn, ve, vu, turn = b.simArduBrain.wanted(now, dt)
	if b.armed && b.row(b.mode).flying == simDescend {
		vu = b.descend(now, vu)
	}
	return vn, ve, vu, turn
}

// descend returns QLAND's climb rate. The vehicle hovers for a while before it sinks: a landing
// from 10 m takes 35 s.
func (b *simQuadPlaneBrain) descend(now time.Time, vu float64) float64 {
	if !b.still {
		b.legAt = now
	}
	if now.Sub(b.legAt) < 12*time.Second {
		return 0
	}
	return vu
}

// circle returns the velocity of a circle round the target. Off the circle it turns towards it.
func (b *simQuadPlaneBrain) circle(dt float64) (vn, ve, vu, turn float64) {
	q := &b.quad
	n, e := q.north-b.target.north, q.east-b.target.east
	course := math.Atan2(e, n) + math.Pi/2 + math.Atan((math.Hypot(n, e)-simWingRadius)/40)
	speed := min(b.cruising(), math.Hypot(q.vn, q.ve)+4*dt)
	turn = speed/simWingRadius + 2*math.Remainder(course-q.heading, 2*math.Pi)
	turn = max(-simWingBank, min(simWingBank, turn))
	sin, cos := math.Sincos(q.heading + turn*dt)
	return cos * speed, sin * speed, max(-3, min(3, b.target.up-q.up)), turn
}

// flyByWire returns FBWB's velocity: the throttle is the air speed, pitch is the climb, roll turns.
func (b *simQuadPlaneBrain) flyByWire(dt float64) (vn, ve, vu, turn float64) {
	x, y, z, _ := b.axes()
	slowest, fastest := b.params["AIRSPEED_MIN"], b.params["AIRSPEED_MAX"]
	now := math.Hypot(b.quad.vn, b.quad.ve)
	speed := now + max(-dt, min(dt, slowest+z*(fastest-slowest)-now))
	turn = y * simWingBank
	sin, cos := math.Sincos(b.quad.heading + turn*dt)
	return cos * speed, sin * speed, -2 * x, turn
}

func (b *simQuadPlaneBrain) steer(vn, ve, vu, dt float64) {
	if !b.winged {
		b.simArduBrain.steer(vn, ve, vu, dt)
		return
	}
	b.quad.wing(vn, ve, vu, dt)
}

func TestQuadPlanes(t *testing.T) {
	simFlies(t, []rule{
		{"17 is QSTABILIZE, which falls",
			"quadplane Q_GUIDED_MODE=1: air 40, DO_SET_MODE 1 17 = accepted, +2s, climb < -3"},
		{"18 is QHOVER, which drifts on, and 19 QLOITER, which stops",
			"quadplane: air 40, as 255, DO_SET_MODE 1 {18→speed > 1|19→speed < 1} = accepted, sticks 500 0 500 0 " +
				"for 4s, sticks 0 0 500 0 for 8s, $1"},
		{"it refuses a Copter's LAND and NAV_LAND",
			"quadplane Q_GUIDED_MODE=1: air 40, DO_SET_MODE 1 9 = failed, NAV_LAND = unsupported"},
		{"Q_MAV_TYPE changes its type", "quadplane Q_MAV_TYPE=20: type 20"},
		{"QLAND takes over 33 s from 10 m",
			"quadplane Q_GUIDED_MODE=1: air 10, mode QLAND, +32950ms, armed, until disarmed 4s"},
		{"from a takeoff to its landing it flies on its wing and hovers",
			"quadplane: mode GUIDED, arm = accepted, NAV_TAKEOFF 0 0 0 0 0 0 20 = accepted, +1m, vtol MC, north 0 " +
				"±0.5, east 0 ±0.5, mode GUIDED = accepted, +1m, vtol MC, north 0 ±0.5, alt 20 ±0.5, " +
				"goto 300 0 30 = accepted, +3m, away 300 75 ±5, speed 26 ±0.1, vtol FW, alt 30 ±0.5, " +
				"NAV_RETURN_TO_LAUNCH = accepted, in RTL, +3m, away 0 75 ±5, speed 26 ±0.1, vtol FW, " +
				"mode QRTL = accepted, vtol TRANSITION_TO_MC, until disarmed 240s, at 0 0 0 ±0.5, in QRTL"},
	})
}
