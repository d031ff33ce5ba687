package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

const (
	simAltHold = 2
	simLoiter  = 5
)

// simOnArdu flies with a receiver whose throttle is low, as the measured ones had.
func simOnArdu(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simArduPilot, simWithReceiver, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		test(b)
	})
}

func simWithReceiver(s *simulator) { s.receiver = simReceiverIdle }

func simOnArduInAir(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simOnArdu(t, func(b *simBoard) {
		b.placeInAir(10)
		test(b)
	})
}

func TestArduPilotBootsWithStrayBytes(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		s := newSimulator(simArduPilot)
		p, _ := s.open()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		buf := make([]byte, 100)
		n, _ := p.Read(buf)
		if n < 6 || buf[0] == frame.V2MagicByte || bytes.IndexByte(buf[:n], frame.V2MagicByte) > 6 {
			t.Errorf("first bytes % x", buf[:n])
		}
		cancel()
		wg.Wait()
	})
}

func TestArduPilotFlies(t *testing.T) {
	const fast = ", +12s, vn "
	simFlies(t, []rule{
		{"takes sticks from the system of its parameter", "copter air SYSID_MYGCS=none MAV_GCS_SYSID=42: mode LOITER, as 42, sticks 0 0 500 0 for 2s, climb 0 ±0.05"},
		{"takes no throttle of a stranger for one that forbids arming", "copter: mode GUIDED, sticks 0 0 500 0 for 400ms, arm = accepted"},
		{"takes off in LOITER, and does not climb", "copter: mode LOITER, arm, NAV_TAKEOFF 0 0 0 0 0 0 10 = accepted, +8s, at 0 0 0 ±0.01"},
		{"dies of a speed that is no number", "copter air: DO_CHANGE_SPEED 1 nan =, mode LAND, +30s, in GUIDED, restart grounded, +3s, says ArduPilot Ready"},
		{"goes on 4 m out of a climb", "copter air: goto 0 0 60, until climb > 2.4 30s, note, {mode BRAKE→BRAKE|mode BRAKE, mode GUIDED→GUIDED}, +12s, climb 0 ±0.05, rose 4 ±0.6, in $1"},
		{"disarms by itself where a pilot ends its takeoff by BRAKE", "copter: mode GUIDED, arm, NAV_TAKEOFF 0 0 0 0 0 0 10, +1s, pilot BRAKE, +8700ms, armed, +600ms, disarmed, at 0 0 0 ±0.01"},
		{"is trapped by its pause", "copter air: DO_PAUSE_CONTINUE 0 = accepted, goto 60 0 10 = accepted, +20s, at 0 0 10 ±0.2"},
		{"forgets a speed before a goto, keeps one after it", "copter air: DO_CHANGE_SPEED 1 2 = accepted, goto 3000 0 10" + fast + "10 ±0.1, DO_CHANGE_SPEED 1 4, goto 3100 0 10" + fast + "4 ±0.1, mode GUIDED, goto 3200 0 10" + fast + "4 ±0.1, DO_CHANGE_SPEED 1 3, mode BRAKE, DO_CHANGE_SPEED 1 2 = failed, mode GUIDED, goto 3300 0 10" + fast + "10 ±0.1"},
		{"keeps a yaw until the next goto", "copter air: goto 0 400 10, +5s, heading 90 ±2, CONDITION_YAW 90 0 1 1 = accepted, +5s, heading 180 ±2, goto 400 400 10, +8s, not heading 180 ±90, mode LAND, CONDITION_YAW 90 = failed"},
		{"does not believe a landing at once", "copter air: mode LAND, until alt < 0.01 60s, disarm = failed"},
	})
}

func TestArduPilotsSticksAndReceiver(t *testing.T) {
	const air = "as 255, air 10, "
	const stream = "sticks 0 0 500 0 for "
	simFlies(t, []rule{
		{"fly LOITER as captured", "copter receiver=hand: " + air + stream + "400ms, mode LOITER, sticks 500 0 500 0 for 3s, vn 3.23 ±0.3, " + stream + "5s, sticks 1000 0 500 0 for 15s, vn 8.6 ±0.1, sticks -500 0 -1 0 for 1s, vn 8.6 ±0.2, sticks 32767 0 500 0 for 10s, vn 0 ±0.1, sticks 0 0 1000 0 for 4s, climb 2.5 ±0.1"},
		{"stop in 4.8 m", "copter receiver=hand: " + air + stream + "400ms, mode LOITER, sticks 500 0 500 0 for 3s, " + stream + "5s, north 9.65 ±1.5"},
		{"their end is a failsafe 1 s later, in any mode", "copter receiver={none|lost}: " + air + stream + "400ms, mode {STABILIZE|GUIDED|LOITER|LAND}, " + stream + "2s, in $2, stick 0 0 500 0, +970ms, in $2, +60ms, in RTL, +10ms, says Radio Failsafe, state CRITICAL, climb > 0.3"},
		{"prevent the radio failsafe and clear it", "copter receiver=none: " + air + stream + "14s, in GUIDED, +1100ms, in RTL, mode GUIDED = accepted, +10s, in GUIDED, failing, " + stream + "1s, not failing, +1100ms, " + stream + "1s, in RTL, not failing"},
		{"a receiver does too", "copter receiver=idle: " + air + stream + "1s, +20s, in GUIDED, receiver lost, +1100ms, in RTL, receiver hand, +100ms, not failing, in RTL"},
		{"a receiver acts where there is no stream", "copter {receiver=hand: as 255, air 60, mode LOITER→0|receiver=idle: as 255, air 60, mode ALT_HOLD→-2.4|receiver=hand: as 255, air 60, mode ALT_HOLD→0|receiver=hand: as 255, air 60, mode STABILIZE→3|receiver=idle: as 255, air 60, mode GUIDED→0}, +15s, climb $1 ±0.2"},
		{"STABILIZE falls under an idle one", "copter receiver=idle: as 255, air 28, mode STABILIZE, until climb < -13 60s, stays 5s climb > -15"},
		{"released, the pilot's roll flies", "copter receiver=hand: " + air + stream + "1s, pilot LOITER, pilot sticks 0 500 500 0, " + stream + "8s, at 0 0 10 ±0.05, stick 32767 32767 32767 32767, stick 32767 32767 32767 32767, stick 32767 32767 32767 32767, +15s, ve 4.3 ±0.1"},
		{"it wants a receiver to arm", "copter receiver={none|lost}: as 255, mode GUIDED, arm = failed, says Arm: RC not found"},
		{"or 2 s of a stream", "copter receiver=none: as 255, mode GUIDED, sticks 0 0 0 0 for {1s, arm = failed, says Arm: RC not found|2100ms, arm = accepted}"},
		{"a throttle in the middle forbids it", "copter {receiver=none: as 255, mode GUIDED, sticks 0 0 500 0 for 2100ms|receiver=hand: as 255, pilot sticks 0 0 500 0, mode GUIDED}, arm = failed, says Arm: Throttle (RC3) is not neutral"},
		{"an idle one does not", "copter receiver=idle: as 255, mode GUIDED, arm = accepted"},
		{"are a ground station's heartbeat", "copter receiver=idle FS_GCS_ENABLE=1: " + air + "+10s, in GUIDED, " + stream + "3s, stick 32767 32767 32767 32767, +5050ms, in GUIDED, +100ms, in RTL, +10ms, says GCS Failsafe, failing"},
		{"which may be none", "copter receiver=idle FS_GCS_ENABLE=0: " + air + stream + "3s, stick 32767 32767 32767 32767, +20s, in GUIDED"},
		{"in GUIDED they turn, and nothing else", "copter receiver=none: " + air + "sticks 1000 0 0 500 for 2s, at 0 0 10 ±0.1, heading > 30"},
		{"shift a landing", "copter receiver=none: " + air + stream + "400ms, mode LAND, sticks 1000 0 500 0 for 3s, north > 2"},
	})
}

// simSlowBoot takes the time that it really takes.
func simSlowBoot(s *simulator) {
	s.armableAfter = 42 * time.Second
	s.receiver = simReceiverIdle
}

func TestArduPilotWithoutAPositionTakesNoModeThatWantsOne(t *testing.T) {
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		time.Sleep(5 * time.Second)
		b.near("altitude of VFR_HUD before the first fix", float64(b.says(74).(*common.MessageVfrHud).Alt), -0.02, 0.001)
		time.Sleep(25 * time.Second)
		for _, m := range b.modes {
			b.want(m.name+" disarmed", b.setMode(m.custom), simResults(simAccepted))
		}
		b.setMode(simArduStabilize)
		b.want("STABILIZE armed", b.long(simArm, 1), simResults(simAccepted))
		for _, mode := range []uint32{simArduGuided, simLoiter, simArduRTL} {
			b.want("mode", b.setMode(mode), simResults(simFailed))
			b.wantText("requires position")
		}
		b.want("goto", b.fly(10, 0, 10), simResults(simFailed))
	})
}

func TestArduPilotTakesOffOnceItsPropellersTurn(t *testing.T) {
	for frame, want := range map[common.MAV_FRAME]common.MAV_RESULT{0: simDenied, 3: simAccepted, 6: simDenied} {
		simOnArdu(t, func(b *simBoard) {
			b.setMode(simArduGuided)
			b.long(simArm, 1)
			b.want("frame "+frame.String(), b.exact(simTakeoff, frame, 0, 0, 0, 0, 0, 10), simResults(want))
			if want == simDenied {
				return
			}
			b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_STANDBY)
			d := b.until("lift", 10*time.Second, func(s simState) bool { return s.alt > 0 })
			b.near("seconds from arming", d.Seconds()+2.6, 3.3, 0.2)
			b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_ACTIVE)
			b.want("landed_state", b.says(245).(*common.MessageExtendedSysState).LandedState, common.MAV_LANDED_STATE_TAKEOFF)
			time.Sleep(10 * time.Second)
			b.wantPlace(0, 0, 10, 0.15)
		})
	}
	simOnArdu(t, func(b *simBoard) {
		b.setMode(simLoiter)
		b.long(simArm, 1)
		b.want("LOITER", b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 10), simResults(simAccepted))
		time.Sleep(8 * time.Second)
		b.wantPlace(0, 0, 0, 0)
	})
}

func TestArduPilotRepositions(t *testing.T) {
	lat, lon := simPlace(20, 5)
	for _, tt := range []struct {
		name  string
		frame common.MAV_FRAME
		mode  uint32
		want  common.MAV_RESULT
		up    float64
	}{
		{"above home", 3, simArduGuided, simAccepted, 15},
		{"terrain", 11, simArduGuided, simAccepted, 0},
		{"from LAND", 6, simArduLand, simAccepted, 15},
		{"local", 1, simArduGuided, simDenied, 10},
	} {
		simOnArduInAir(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.want(tt.name, b.exact(simGoto, tt.frame, 1, 1, 1.5, simE7(lat), simE7(lon), 15), simResults(tt.want))
			time.Sleep(30 * time.Second)
			b.near(tt.name+" alt", b.truth().alt, tt.up, 0.3)
			if tt.up == 15 {
				b.wantPlace(20, 5, 15, 0.3)
				b.near("yaw is ignored, it looks ahead", b.truth().heading, 14, 1)
			}
		})
	}
	simOnArdu(t, func(b *simBoard) {
		b.setMode(simArduGuided)
		b.long(simArm, 1)
		b.want("on the ground", b.fly(20, 0, 15), simResults(simAccepted))
		time.Sleep(5 * time.Second)
		b.wantPlace(0, 0, 0, 0)
	})
}

// says is what a message would say now.
func (b *simBoard) says(id uint32) (m message.Message) {
	b.change(func() { m = b.brain.message(id) })
	return m
}

// askMode asks for a mode and waits for nothing.
func (b *simBoard) askMode(custom uint32) {
	b.t.Helper()
	b.write(&common.MessageCommandLong{
		TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: float32(custom),
	})
}

func TestArduPilotBreaksDownWhenStabilizeIsLeftAtOnce(t *testing.T) {
	for _, tt := range []struct {
		gap    time.Duration
		broken bool
	}{{time.Millisecond, true}, {5 * time.Millisecond, true}, {7 * time.Millisecond, false}, {20 * time.Millisecond, false}} {
		simOnArdu(t, func(b *simBoard) {
			b.setMode(simAltHold)
			b.askMode(simArduStabilize)
			time.Sleep(tt.gap)
			b.askMode(simLoiter)
			time.Sleep(time.Second)
			b.setMode(simArduGuided)
			arm := b.long(simArm, 1)
			if !tt.broken {
				b.want("armed", arm, simResults(simAccepted))
				return
			}
			b.want("armed", arm, simResults(simFailed))
			b.wantText("Arm: Internal errors 0x100000 l:297 flow_of_ctrl")
			b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
			time.Sleep(time.Minute)
			b.want("armed a minute later", b.long(simArm, 1), simResults(simFailed))
			b.reboot(false)
			time.Sleep(6 * time.Second)
			b.setMode(simArduGuided)
			b.want("armed after a restart", b.long(simArm, 1), simResults(simAccepted))
		})
	}
	simOnArduInAir(t, func(b *simBoard) {
		b.setReceiver(simReceiverInHand)
		b.askMode(simArduStabilize)
		b.askMode(simAltHold)
		time.Sleep(40 * time.Second)
		b.wantText("Internal Errors 0x100000")
		b.near("it climbs with centred sticks", b.truth().alt, 56, 2)
	})
}

// ---- What it sends ----

// runUp flies north until it is this fast.
func (b *simBoard) runUp(speed float64) {
	b.t.Helper()
	b.fly(2000, 0, b.truth().alt)
	b.long(common.MAV_CMD_DO_CHANGE_SPEED, 1, speed)
	time.Sleep(15 * time.Second)
	b.near("speed", b.truth().vn, speed, 0.1)
}

// farthest returns how far north it came from here, and how far it then came back.
func (b *simBoard) farthest(d time.Duration, do func()) (most, back float64) {
	from, _, _ := b.place()
	do()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(simTick) {
		n, _, _ := b.place()
		most = max(most, n-from)
	}
	n, _, _ := b.place()
	return most, most - (n - from)
}

func TestArduPilotStopsAsMeasured(t *testing.T) {
	for _, tt := range []struct {
		speed, most, back float64 // of BRAKE and then GUIDED
		repo              float64 // that a goto to the present place comes back
	}{{3, 3.1, 0.2, 2.9}, {10.1, 24.8, 0.8, 24.7}} {
		simOnArduInAir(t, func(b *simBoard) {
			b.runUp(tt.speed)
			_, back := b.farthest(40*time.Second, func() {
				n, _, _ := b.place()
				b.fly(n, 0, 10)
			})
			b.near("a goto to the present place comes back", back, tt.repo, 0.15*tt.repo)
			b.runUp(tt.speed)
			most, back := b.farthest(40*time.Second, func() {
				b.askMode(simArduBrake)
				time.Sleep(20 * time.Millisecond)
				b.askMode(simArduGuided)
			})
			b.near("BRAKE and GUIDED go on", most, tt.most, 0.15*tt.most)
			b.near("and come back", back, tt.back, 0.3)
			b.near("height", b.truth().alt, 10, 0.2)
		})
	}
}

func TestArduPilotsBrakeByAPilotStaysAndForgetsTheGoto(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.runUp(4)
		most, back := b.farthest(20*time.Second, func() { b.pilotMode(simArduBrake) })
		b.near("BRAKE alone, as captured", most, 6.9, 0.7)
		b.near("comes back", back, 0, 0.1)
		b.want("mode", b.truth().mode, uint32(simArduBrake))
		most, _ = b.farthest(20*time.Second, func() { b.setMode(simArduGuided) })
		b.near("GUIDED resumes no goto", most, 0, 0.1)
	})
}

// simWith flies at 10 m in GUIDED with a receiver in this state; the companion
// is system 255.
func simWith(t *testing.T, receiver simReceiver, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		b.setReceiver(receiver)
		time.Sleep(6 * time.Second)
		b.as(255, 191)
		b.placeInAir(10)
		test(b)
	})
}

const simLet = math.MaxInt16 // an axis that is released

func (b *simBoard) manual(x, y, z, r int16) {
	b.t.Helper()
	b.write(&common.MessageManualControl{Target: 1, X: x, Y: y, Z: z, R: r})
}

func TestArduPilotsChannelsFreezeWhenTheReceiverIsLost(t *testing.T) {
	channels := func(b *simBoard) [4]uint16 {
		m := b.says(65).(*common.MessageRcChannels)
		return [4]uint16{m.Chan1Raw, m.Chan2Raw, m.Chan3Raw, m.Chan4Raw}
	}
	simWith(t, simReceiverIdle, func(b *simBoard) {
		b.manual(500, 200, 600, -400)
		b.pilotSticks(-1000, 0, 500, 0)
		time.Sleep(time.Second)
		b.want("overridden", channels(b), [4]uint16{1600, 1250, 1600, 1300})
		b.manual(simLet, simLet, simLet, simLet)
		time.Sleep(18 * time.Millisecond)
		b.want("released", channels(b), [4]uint16{1500, 2000, 1500, 1500})
		b.setReceiver(simReceiverLost)
		b.pilotSticks(0, 0, 0, 0)
		time.Sleep(10 * time.Second)
		b.want("lost", channels(b), [4]uint16{1500, 2000, 1500, 1500})
		b.manual(0, 0, 500, 0)
		time.Sleep(time.Millisecond)
		b.want("but overrides show", channels(b), [4]uint16{1500, 1500, 1500, 1500})
	})
}

func TestArduPilotTellsOfItsReceiver(t *testing.T) {
	bit := common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	bits := func(b *simBoard) [3]bool {
		b.forget()
		b.long(common.MAV_CMD_REQUEST_MESSAGE, 1)
		m := simAll[*common.MessageSysStatus](b)[0]
		return [3]bool{m.OnboardControlSensorsPresent&bit != 0, m.OnboardControlSensorsEnabled&bit != 0, m.OnboardControlSensorsHealth&bit != 0}
	}
	for receiver, want := range map[simReceiver][3]bool{
		simReceiverNone: {}, simReceiverLost: {true, true, false},
		simReceiverIdle: {true, true, true}, simReceiverInHand: {true, true, true},
	} {
		simFlight(t, simArduPilot, nil, func(b *simBoard) {
			b.setReceiver(receiver)
			time.Sleep(6 * time.Second)
			b.want(fmt.Sprint(receiver), bits(b), want)
			b.as(255, 191)
			b.stick(time.Second, sim25Hz, 0, 0, 0, 0)
			b.want(fmt.Sprint(receiver, " with a stream"), bits(b), [3]bool{true, true, true})
		})
	}
}

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
		b.change(func() { b.params["Q_MAV_TYPE"] = 20 })
		b.want("another Q_MAV_TYPE", simLast[*common.MessageHeartbeat](b).Type, common.MAV_TYPE(20))
	})
}

// From a takeoff to its landing, with vtol_state on the way.
func TestQuadPlaneFliesOnItsWingAndHovers(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		circles := func(what string, north float64) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			n, e, _ := b.place()
			b.near(what+": metres off", math.Hypot(n-north, e), 75, 5)
			b.near(what+": m/s", math.Hypot(b.truth().vn, b.truth().ve), 26, 0.1)
			b.want(what, b.vtolState(), common.MAV_VTOL_STATE_FW)
		}
		b.setMode(simPlaneGuided)
		b.want("arm", b.long(simArm, 1), simResults(simAccepted))
		b.want("takeoff", b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 20), simResults(simAccepted))
		time.Sleep(10 * time.Second)
		b.want("the climb", b.vtolState(), common.MAV_VTOL_STATE_MC)
		b.wantPlace(0, 0, b.truth().alt, 0.5)
		b.until("wing", time.Minute, func(s simState) bool { return math.Hypot(s.vn, s.ve) > 5 })
		b.want("after it", b.vtolState(), common.MAV_VTOL_STATE_TRANSITION_TO_FW)
		b.want("goto", b.fly(300, 0, 30), simResults(simAccepted))
		circles("at its place", 300)
		b.near("height", b.truth().alt, 30, 0.5)
		b.want("command", b.long(common.MAV_CMD_NAV_RETURN_TO_LAUNCH), simResults(simAccepted))
		b.want("is RTL", b.truth().mode, uint32(simPlaneRTL))
		circles("which circles", 0)
		b.want("QRTL", b.setMode(simPlaneQRTL), simResults(simAccepted))
		b.want("out of a circle", b.vtolState(), common.MAV_VTOL_STATE_TRANSITION_TO_MC)
		b.until("lands", 4*time.Minute, func(s simState) bool { return !s.armed })
		b.wantPlace(0, 0, 0, 0.5)
		b.want("mode", b.truth().mode, uint32(simPlaneQRTL))
	})
	simOnQuadPlane(t, 1, func(b *simBoard) {
		b.placeInAir(10)
		b.setMode(simPlaneQLand)
		d := b.until("disarmed", 2*time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds of a QLAND", d.Seconds(), 35, 2)
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
