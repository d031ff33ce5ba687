package main

import (
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// simWing is a mode that flies forward on the wing, and can do nothing else.
const simWing simFlying = -1

// ArduPlane's custom modes that the code below names.
const (
	simPlaneRTL    = 11
	simPlaneGuided = 15
	simPlaneQLand  = 20
	simPlaneQRTL   = 21
)

var simQuadPlaneVehicle = simVehicle{
	autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA,
	version:   4<<24 | 5<<16 | 5<<8 | 255,
	volts:     12.6,
	first:     0, hold: simPlaneGuided, land: simPlaneQLand, rtl: simPlaneQRTL,
	landSpeed: 0.5, stickSpeed: 5, stickUp: 2.5, stickDown: 2.4,
	streams:  map[uint32]time.Duration{0: time.Second, 111: 10 * time.Second},
	defaults: map[string]float64{"SYSID_MYGCS": 255, "FS_GCS_ENABL": 0, "Q_GUIDED_MODE": 0, "Q_MAV_TYPE": 0},
	modes: []simMode{
		{custom: 0, name: "MANUAL", flying: simWing},
		{custom: 1, name: "CIRCLE", flying: simWing},
		{custom: 2, name: "STABILIZE", flying: simWing},
		{custom: 3, name: "TRAINING", flying: simWing},
		{custom: 4, name: "ACRO", flying: simWing},
		{custom: 5, name: "FBWA", flying: simWing},
		{custom: 6, name: "FBWB", flying: simWing},
		{custom: 7, name: "CRUISE", flying: simWing},
		{custom: 8, name: "AUTOTUNE", flying: simWing},
		{custom: 10, name: "AUTO", flying: simWing, position: true, noArm: true},
		{custom: simPlaneRTL, name: "RTL", flying: simWing, position: true, noArm: true},
		{custom: 12, name: "LOITER", flying: simWing, position: true},
		{custom: 13, name: "TAKEOFF", flying: simWing, position: true},
		{custom: 14, name: "AVOID_ADSB", flying: simWing, position: true},
		{custom: simPlaneGuided, name: "GUIDED", position: true},
		{custom: 17, name: "QSTABILIZE", flying: simThrust},
		{custom: 18, name: "QHOVER", flying: simTilt},
		{custom: 19, name: "QLOITER", flying: simVelocity, position: true},
		{custom: simPlaneQLand, name: "QLAND", flying: simDescend, position: true, noArm: true},
		{custom: simPlaneQRTL, name: "QRTL", flying: simReturn, position: true, noArm: true},
		{custom: 22, name: "QAUTOTUNE", flying: simTilt},
		{custom: 23, name: "QACRO", flying: simThrust},
		{custom: 24, name: "THERMAL", flying: simWing, position: true},
		{custom: 25, name: "LOITER_ALT_QLAND", flying: simWing, position: true, noArm: true},
	},
}

const (
	simWingSpeed  = 26.0 // m/s
	simWingRadius = 75.0 // m
	simWingBank   = 0.6  // rad/s
)

// simQuadPlaneBrain is ArduPlane with lifting propellers. Hovering it is much
// like a Copter.
type simQuadPlaneBrain struct {
	simArduBrain
	winged bool // the propellers do not lift
}

func (b *simQuadPlaneBrain) start() {
	b.winged = false
	b.simArduBrain.start()
}

func (b *simQuadPlaneBrain) command(c simCommand) {
	switch c.id {
	case common.MAV_CMD_NAV_LAND, common.MAV_CMD_CONDITION_YAW, common.MAV_CMD_DO_PAUSE_CONTINUE:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	case common.MAV_CMD_NAV_RETURN_TO_LAUNCH:
		b.ack(c, b.obey(simPlaneRTL))
	default:
		b.simArduBrain.command(c)
	}
}

// hovers tells whether GUIDED does.
func (b *simQuadPlaneBrain) hovers() bool { return b.params["Q_GUIDED_MODE"] == 1 }

// message: by default it is a fixed wing, and only vtol_state tells what else.
func (b *simQuadPlaneBrain) message(id uint32) message.Message {
	m := b.simArduBrain.message(id)
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
	case b.winged && speed > 0.8*simWingSpeed:
		return common.MAV_VTOL_STATE_FW
	case b.winged:
		return common.MAV_VTOL_STATE_TRANSITION_TO_FW
	case speed > 12:
		return common.MAV_VTOL_STATE_TRANSITION_TO_MC
	}
	return common.MAV_VTOL_STATE_MC
}

// flies tells whether the mode flies on the wing: also GUIDED, once it has
// taken off.
func (b *simQuadPlaneBrain) flies() bool {
	row := b.row(b.mode)
	return row.flying == simWing || row.flying == simHold && !b.climbing && !b.hovers()
}

// stay: on the wing it circles where it is.
func (b *simQuadPlaneBrain) stay() {
	b.simArduBrain.stay()
	if b.mode == simPlaneRTL {
		b.target.north, b.target.east, b.target.up = 0, 0, 100
	}
}

func (b *simQuadPlaneBrain) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	was := b.winged
	b.winged = b.armed && b.airborne && b.flies()
	if was != b.winged {
		b.still, b.level = false, false
		b.entry = [2]float64{}
	}
	if b.winged {
		return b.circle(dt)
	}
	vn, ve, vu, turn = b.simArduBrain.wanted(now, dt)
	if b.armed && b.row(b.mode).flying == simDescend {
		vu = b.descend(now, vu)
	}
	return vn, ve, vu, turn
}

// descend: QLAND stands still for a while before it sinks, 35 s from 10 m.
func (b *simQuadPlaneBrain) descend(now time.Time, vu float64) float64 {
	if !b.still {
		b.legAt = now
	}
	if now.Sub(b.legAt) < 12*time.Second {
		return 0
	}
	return vu
}

// circle goes round the target for ever.
func (b *simQuadPlaneBrain) circle(dt float64) (vn, ve, vu, turn float64) {
	q := &b.quad
	n, e := q.north-b.target.north, q.east-b.target.east
	course := math.Atan2(e, n) + math.Pi/2 + math.Atan((math.Hypot(n, e)-simWingRadius)/40)
	speed := min(simWingSpeed, math.Hypot(q.vn, q.ve)+4*dt)
	turn = speed/simWingRadius + 2*math.Remainder(course-q.heading, 2*math.Pi)
	turn = max(-simWingBank, min(simWingBank, turn))
	sin, cos := math.Sincos(q.heading + turn*dt)
	return cos * speed, sin * speed, max(-3, min(3, b.target.up-q.up)), turn
}

func (b *simQuadPlaneBrain) steer(vn, ve, vu, dt float64) {
	if !b.winged || b.dead {
		b.simArduBrain.steer(vn, ve, vu, dt)
		return
	}
	q := &b.quad
	q.an, q.ae = (vn-q.vn)/dt, (ve-q.ve)/dt
	q.vn, q.ve = vn, ve
	q.vu += max(-2*dt, min(2*dt, vu-q.vu))
	q.north += q.vn * dt
	q.east += q.ve * dt
	q.up += q.vu * dt
}
