package main

// ArduPilot's planes, QuadPlanes and rovers, as docs/autopilots.md describes them.

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

const simLoiter = 5

// simSlowBoot makes a boot take as long as a real ArduPilot's.
func simSlowBoot(s *simulator) { s.armableAfter = 42 * time.Second }

const simReleased = math.MaxInt16 // a released axis

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
