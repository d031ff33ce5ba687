package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func init() {
	brain := func(s *simulator) {
		s.simVehicle = simQuadPlaneVehicle
		s.brain = &simQuadPlaneBrain{simArduBrain: simArduBrain{simulator: s}}
	}
	simMore[simQuadPlane] = brain
	simMore[simPlane] = func(s *simulator) {
		brain(s)
		s.modes = slices.DeleteFunc(slices.Clone(s.modes), func(m simMode) bool { return m.name[0] == 'Q' })
		s.land, s.rtl = simPlaneRTL, simPlaneRTL
	}
}

// simWing is a mode that flies forward on the wing, and can do nothing else.
const simWing simFlying = -1

// ArduPlane's custom modes that the code below names.
const (
	simPlaneFBWA    = 5
	simPlaneRTL     = 11
	simPlaneTakeoff = 13
	simPlaneGuided  = 15
	simPlaneQHover  = 18
	simPlaneQLand   = 20
	simPlaneQRTL    = 21
)

var simQuadPlaneVehicle = simVehicle{
	autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA,
	version:   4<<24 | 5<<16 | 5<<8 | 255,
	volts:     12.6,
	first:     0, hold: simPlaneGuided, land: simPlaneQLand, rtl: simPlaneQRTL,
	landSpeed: 0.5, stickSpeed: 5, stickUp: 2.5, stickDown: 2.4,
	streams:  map[uint32]time.Duration{0: time.Second, 111: 10 * time.Second},
	defaults: map[string]float64{"SYSID_MYGCS": 255, "FS_GCS_ENABL": 0, "Q_GUIDED_MODE": 0, "Q_MAV_TYPE": 0, "TKOFF_ALT": 50, "WP_LOITER_RAD": simWingRadius},
	modes: []simMode{
		{custom: 0, name: "MANUAL", flying: simWing},
		{custom: 1, name: "CIRCLE", flying: simWing},
		{custom: 2, name: "STABILIZE", flying: simWing},
		{custom: 3, name: "TRAINING", flying: simWing},
		{custom: 4, name: "ACRO", flying: simWing},
		{custom: simPlaneFBWA, name: "FBWA", flying: simWing},
		{custom: 6, name: "FBWB", flying: simWing},
		{custom: 7, name: "CRUISE", flying: simWing},
		{custom: 8, name: "AUTOTUNE", flying: simWing},
		{custom: 10, name: "AUTO", flying: simWing, position: true, noArm: true},
		{custom: simPlaneRTL, name: "RTL", flying: simWing, position: true, noArm: true},
		{custom: 12, name: "LOITER", flying: simWing, position: true},
		{custom: simPlaneTakeoff, name: "TAKEOFF", flying: simWing, position: true},
		{custom: 14, name: "AVOID_ADSB", flying: simWing, position: true},
		{custom: simPlaneGuided, name: "GUIDED", position: true},
		{custom: 17, name: "QSTABILIZE", flying: simThrust},
		{custom: simPlaneQHover, name: "QHOVER", flying: simTilt},
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
	simWingLift   = 12.0 // m/s, below which it rolls
)

// simQuadPlaneBrain is ArduPlane, with lifting propellers or without. Hovering
// it is much like a Copter.
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
	case common.MAV_CMD_NAV_TAKEOFF:
		if b.flavour == simPlane {
			b.ack(c, common.MAV_RESULT_FAILED)
			return
		}
		b.simArduBrain.command(c)
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
	case b.flavour == simPlane:
		return common.MAV_VTOL_STATE_UNDEFINED
	case b.winged && speed > 0.8*simWingSpeed, !b.armed && b.flies():
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
	return b.flavour == simPlane || row.flying == simWing || row.flying == simHold && !b.climbing && !b.hovers()
}

// stay: on the wing it circles where it is.
func (b *simQuadPlaneBrain) stay() {
	b.simArduBrain.stay()
	switch b.mode {
	case simPlaneRTL:
		b.target.north, b.target.east, b.target.up = 0, 0, 100
	case simPlaneTakeoff: // it climbs ahead of where it stands, and circles there
		b.target.north += 200 * math.Cos(b.quad.heading)
		b.target.east += 200 * math.Sin(b.quad.heading)
		b.target.up = b.params["TKOFF_ALT"]
	}
}

func (b *simQuadPlaneBrain) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	if b.flavour == simPlane && b.armed && !b.airborne && b.mode == simPlaneTakeoff {
		b.airborne, b.quad.up = true, 0.1 // from the roll on it is in the air, as it believes
	}
	was := b.winged
	b.winged = b.armed && b.airborne && b.flies()
	if was != b.winged {
		b.still, b.level = false, false
		b.entry = [2]float64{}
	}
	if b.winged {
		vn, ve, vu, turn = b.circle(dt)
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

func simOnQuadPlane(t *testing.T, guided float64, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simQuadPlane, simWithReceiver, func(b *simBoard) {
		b.change(func() { b.params["Q_GUIDED_MODE"] = guided })
		time.Sleep(6 * time.Second)
		test(b)
	})
}

func (b *simBoard) vtolState() common.MAV_VTOL_STATE {
	b.forget()
	b.long(common.MAV_CMD_REQUEST_MESSAGE, 245)
	return simAll[*common.MessageExtendedSysState](b)[0].VtolState
}

func TestQuadPlaneIsAFixedWingWithAVtolState(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		b.want("type", simLast[*common.MessageHeartbeat](b).Type, common.MAV_TYPE_FIXED_WING)
		b.want("vtol_state of the first message", b.vtolState(), common.MAV_VTOL_STATE_FW)
		b.want("first mode", b.truth().mode, uint32(0))
		b.change(func() { b.params["Q_MAV_TYPE"] = 20 })
		b.want("another Q_MAV_TYPE", simLast[*common.MessageHeartbeat](b).Type, common.MAV_TYPE(20))
	})
}

func TestQuadPlaneAnswersForItsParameters(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		for name, value := range map[string]float32{"SYSID_MYGCS": 255, "FS_GCS_ENABL": 0, "Q_GUIDED_MODE": 0} {
			b.forget()
			b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: name, ParamIndex: -1})
			b.want(name, simLast[*common.MessageParamValue](b).ParamValue, value)
		}
		b.forget()
		b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: "FS_GCS_ENABLE", ParamIndex: -1})
		time.Sleep(50 * time.Millisecond)
		b.want("Copter's name", b.count(22), 0)
	})
}

func TestQuadPlanesGuidedCirclesForEver(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		b.setMode(simPlaneGuided)
		b.want("arm", b.long(simArm, 1), simResults(simAccepted))
		b.want("takeoff", b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 20), simResults(simAccepted))
		time.Sleep(10 * time.Second)
		b.want("vtol_state in the climb", b.vtolState(), common.MAV_VTOL_STATE_MC)
		b.wantPlace(0, 0, b.truth().alt, 0.5)
		b.until("wing", time.Minute, func(s simState) bool { return math.Hypot(s.vn, s.ve) > 5 })
		b.want("vtol_state after it", b.vtolState(), common.MAV_VTOL_STATE_TRANSITION_TO_FW)
		time.Sleep(10 * time.Second)
		b.want("goto", b.fly(300, 0, 30), simResults(simAccepted))
		time.Sleep(time.Minute)
		b.want("vtol_state", b.vtolState(), common.MAV_VTOL_STATE_FW)
		for range 600 {
			if t.Failed() {
				return
			}
			time.Sleep(time.Second)
			n, e, alt := b.place()
			now := b.truth()
			b.near("metres off", math.Hypot(n-300, e), 75, 5)
			b.near("m/s", math.Hypot(now.vn, now.ve), 26, 0.1)
			b.near("height", alt, 30, 0.5)
		}
	})
}

func TestQuadPlanesGuidedHoversWhereItIsToldTo(t *testing.T) {
	simOnQuadPlane(t, 1, func(b *simBoard) {
		b.placeInAir(10)
		b.fly(60, 0, 10)
		time.Sleep(40 * time.Second)
		b.wantPlace(60, 0, 10, 0.1)
		b.want("vtol_state", b.vtolState(), common.MAV_VTOL_STATE_MC)
		b.want("QLAND", b.setMode(simPlaneQLand), simResults(simAccepted))
		d := b.until("disarmed", 2*time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds", d.Seconds(), 35, 2)
		b.wantPlace(60, 0, 0, 0.1)
		time.Sleep(5 * time.Second)
		b.want("mode", b.truth().mode, uint32(simPlaneQLand))
	})
}

func TestQuadPlaneLandsOutOfACircle(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		b.placeInAir(30)
		time.Sleep(30 * time.Second)
		b.setMode(simPlaneQLand)
		b.want("vtol_state", b.vtolState(), common.MAV_VTOL_STATE_TRANSITION_TO_MC)
		b.until("disarmed", 3*time.Minute, func(s simState) bool { return !s.armed })
	})
}

func TestQuadPlaneReturnsInTwoWays(t *testing.T) {
	simOnQuadPlane(t, 1, func(b *simBoard) {
		b.placeInAir(30)
		b.placeAt(simPlace(100, 0))
		b.want("command", b.long(common.MAV_CMD_NAV_RETURN_TO_LAUNCH), simResults(simAccepted))
		b.want("is RTL", b.truth().mode, uint32(simPlaneRTL))
		time.Sleep(3 * time.Minute)
		n, e, _ := b.place()
		b.near("which circles", math.Hypot(n, e), 75, 5)
		b.want("QRTL", b.setMode(simPlaneQRTL), simResults(simAccepted))
		b.until("lands", 4*time.Minute, func(s simState) bool { return !s.armed })
		b.wantPlace(0, 0, 0, 0.5)
		b.want("mode", b.truth().mode, uint32(simPlaneQRTL))
	})
}

func TestQuadPlanesModeNumbersAreAPlanes(t *testing.T) {
	simOnQuadPlane(t, 1, func(b *simBoard) {
		b.placeInAir(40)
		b.want("17", b.setMode(17), simResults(simAccepted))
		time.Sleep(2 * time.Second)
		if vd := b.truth().vd; vd < 3 {
			t.Errorf("17 is QSTABILIZE, which falls; %.1f m/s", vd)
		}
		b.want("9", b.setMode(9), simResults(simFailed))
		b.want("NAV_LAND", b.long(common.MAV_CMD_NAV_LAND), simResults(simUnsupported))
		for custom, name := range map[uint32]string{18: "QHOVER", 19: "QLOITER", 20: "QLAND", 6: "FBWB", 11: "RTL"} {
			b.want(name, b.row(custom).name, name)
		}
	})
}

func TestQuadPlaneClaimsAReceiverThatWasNeverThere(t *testing.T) {
	simFlight(t, simQuadPlane, func(s *simulator) { s.receiver = simReceiverNone }, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		b.long(common.MAV_CMD_REQUEST_MESSAGE, 1)
		m, bit := simAll[*common.MessageSysStatus](b)[0], common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
		b.want("present", m.OnboardControlSensorsPresent&bit, bit)
		b.want("enabled", m.OnboardControlSensorsEnabled&bit, bit)
		b.want("healthy", m.OnboardControlSensorsHealth&bit, common.MAV_SYS_STATUS_SENSOR(0))
	})
}
