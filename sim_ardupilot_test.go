package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
	synctest.Test(t, func(t *testing.T) {
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

func TestArduPilotLosesAModeThatComesTooEarly(t *testing.T) {
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		b.want("early", b.setMode(simArduGuided), simResults(simAccepted))
		time.Sleep(2 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduStabilize))
		b.want("later", b.setMode(simArduGuided), simResults(simAccepted))
		b.want("heartbeats at once", b.count(0), 1)
		time.Sleep(2 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduGuided))
	})
}

func TestArduPilotKnowsItsMessages(t *testing.T) {
	simOnArdu(t, func(b *simBoard) {
		for _, id := range []float64{0, 1, 24, 30, 33, 65, 74, 87, 148, 193, 242, 245} {
			b.want(fmt.Sprint("interval of ", id), b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, id, 1e6), simResults(simAccepted))
		}
		b.want("interval", b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 12345, 1e6), simResults(simDenied))
		b.want("request", b.long(common.MAV_CMD_REQUEST_MESSAGE, 12345), simResults(simFailed))
		b.wantText("No ap_message")
	})
}

func TestArduPilotAnswersForItsParameters(t *testing.T) {
	ask := func(b *simBoard, name string) []float32 {
		b.forget()
		b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: name, ParamIndex: -1})
		time.Sleep(50 * time.Millisecond)
		var values []float32
		for _, m := range simAll[*common.MessageParamValue](b) {
			values = append(values, m.ParamValue)
		}
		return values
	}
	simOnArdu(t, func(b *simBoard) {
		for name, value := range map[string]float32{"SYSID_MYGCS": 255, "FS_GCS_ENABLE": 0, "WPNAV_SPEED": 1000} {
			b.want(name, ask(b, name), []float32{value})
		}
		for _, name := range []string{"MAV_GCS_SYSID", "FS_GCS_ENABL", "Q_GUIDED_MODE"} {
			b.want(name, ask(b, name), []float32(nil))
		}
		b.change(func() { // a newer firmware
			delete(b.params, "SYSID_MYGCS")
			b.params["MAV_GCS_SYSID"] = 42
		})
		b.want("the new name", ask(b, "MAV_GCS_SYSID"), []float32{42})
		b.want("the old name", ask(b, "SYSID_MYGCS"), []float32(nil))
		b.placeInAir(10)
		b.setMode(simLoiter)
		b.as(42, 191)
		b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
		b.near("sticks of system 42", b.truth().vd, 0, 0.05)
	})
}

// simSlowBoot takes the time that it really takes.
func simSlowBoot(s *simulator) {
	s.armableAfter = 42 * time.Second
	s.receiver = simReceiverIdle
}

func TestArduPilotModesAreAckedOnce(t *testing.T) {
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		time.Sleep(30 * time.Second)
		b.want("unknown", b.setMode(99), simResults(simFailed))
		b.want("base_mode 0", b.long(simSetMode, 0, 4), simResults(simFailed))
		for _, m := range b.modes {
			b.want(m.name+" disarmed", b.setMode(m.custom), simResults(simAccepted))
			b.want(m.name, b.truth().mode, m.custom)
		}
		b.setMode(simArduGuided)
		b.want("GUIDED armed at 30 s", b.long(simArm, 1), simResults(simFailed))
		b.wantText("Arm: Need Position Estimate")
		b.setMode(simArduStabilize)
		b.want("STABILIZE armed at 30 s", b.long(simArm, 1), simResults(simAccepted))
		for _, mode := range []uint32{simArduGuided, simLoiter, simArduRTL} {
			b.want("without position", b.setMode(mode), simResults(simFailed))
			b.wantText("requires position")
		}
		b.want("LAND on the ground", b.setMode(simArduLand), simResults(simAccepted))
		b.want("disarms at once", b.truth().armed, false)
		time.Sleep(15 * time.Second)
		b.setMode(simArduGuided)
		b.want("GUIDED armed at 45 s", b.long(simArm, 1), simResults(simAccepted))
	})
}

func TestArduPilotArmsWhenItMay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mode   uint32
		system uint8
		z      int16
		want   common.MAV_RESULT
		text   string
	}{
		{"GUIDED", simArduGuided, 1, 0, simAccepted, ""},
		{"GUIDED, sticks low", simArduGuided, 255, 0, simAccepted, ""},
		{"GUIDED, sticks centred", simArduGuided, 255, 500, simFailed, "Arm: Throttle (RC3) is not neutral"},
		{"sticks of a stranger", simArduGuided, 1, 500, simAccepted, ""},
		{"LAND", simArduLand, 1, 0, simFailed, "Arm: LAND mode not armable"},
		{"RTL", simArduRTL, 1, 0, simFailed, "Arm: RTL mode not armable"},
	} {
		simOnArdu(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.as(tt.system, 191)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, tt.z, 0)
			b.want(tt.name, b.long(simArm, 1), simResults(tt.want))
			b.wantText(tt.text)
			if tt.want == simAccepted {
				d := b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
				b.near("seconds armed", d.Seconds(), 10, 0.1)
			}
		})
	}
	simOnArduInAir(t, func(b *simBoard) {
		b.want("disarm in the air", b.long(simArm, 0), simResults(simFailed))
	})
}

func TestArduPilotTakesOffFromGuided(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode uint32
		arm  bool
		alt  float64
		want common.MAV_RESULT
		up   float64
	}{
		{"GUIDED", simArduGuided, true, 10, simAccepted, 10},
		{"disarmed", simArduGuided, false, 10, simFailed, 0},
		{"STABILIZE", simArduStabilize, true, 10, simFailed, 0},
		{"nowhere", simArduGuided, true, 0, simFailed, 0},
		{"LOITER", simLoiter, true, 10, simAccepted, 0},
	} {
		simOnArdu(t, func(b *simBoard) {
			nan := math.NaN()
			b.setMode(tt.mode)
			if tt.arm {
				b.long(simArm, 1)
			}
			b.want(tt.name, b.long(simTakeoff, nan, nan, nan, nan, nan, nan, tt.alt), simResults(tt.want))
			if tt.up == 0 {
				time.Sleep(15 * time.Second)
				b.wantPlace(0, 0, 0, 0)
				return
			}
			d := b.until("climb", time.Minute, func(s simState) bool { return s.landed == common.MAV_LANDED_STATE_IN_AIR })
			b.near("seconds to climb", d.Seconds(), 10.5, 1) // as captured
			time.Sleep(3 * time.Second)
			b.near("altitude", b.truth().alt, 10, 0.1)
			b.want("mode", b.truth().mode, tt.mode)
			b.want("again in the air", b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 20), simResults(simFailed))
		})
	}
	for f, want := range map[common.MAV_FRAME]common.MAV_RESULT{0: simDenied, 3: simAccepted, 6: simDenied} {
		simOnArdu(t, func(b *simBoard) {
			b.setMode(simArduGuided)
			b.long(simArm, 1)
			b.want("frame "+f.String(), b.exact(simTakeoff, f, 0, 0, 0, 0, 0, 10), simResults(want))
		})
	}
}

func TestArduPilotRepositions(t *testing.T) {
	lat, lon := simPlace(20, 5)
	x, y := simE7(lat), simE7(lon)
	for _, tt := range []struct {
		name  string
		frame common.MAV_FRAME
		mode  uint32
		p2    float64
		x, y  int32
		z     float64
		want  common.MAV_RESULT
		up    float64
	}{
		{"AMSL", 0, simArduGuided, 1, x, y, simHomeAlt + 15, simAccepted, 15},
		{"AMSL int", 5, simArduGuided, 1, x, y, simHomeAlt + 15, simAccepted, 15},
		{"above home", 3, simArduGuided, 1, x, y, 15, simAccepted, 15},
		{"above home int", 6, simArduGuided, 1, x, y, 15, simAccepted, 15},
		{"terrain", 11, simArduGuided, 1, x, y, 15, simAccepted, 0},
		{"from LAND", 6, simArduLand, 1, x, y, 15, simAccepted, 15},
		{"from LAND, param2 = 0", 6, simArduLand, 0, x, y, 15, simDenied, 0},
		{"param2 = 0", 6, simArduGuided, 0, x, y, 15, simAccepted, 15},
		{"0, 0", 6, simArduGuided, 1, 0, 0, 15, simDenied, 10},
		{"INT32_MAX", 6, simArduGuided, 1, math.MaxInt32, math.MaxInt32, 15, simDenied, 10},
		{"no altitude", 6, simArduGuided, 1, x, y, math.NaN(), simDenied, 10},
		{"local", 1, simArduGuided, 1, x, y, 15, simDenied, 10},
	} {
		simOnArduInAir(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.want(tt.name, b.exact(simGoto, tt.frame, 1, tt.p2, 1.5, tt.x, tt.y, tt.z), simResults(tt.want))
			time.Sleep(30 * time.Second)
			b.near(tt.name+" alt", b.truth().alt, tt.up, 0.3)
			if tt.up == 15 {
				b.wantPlace(20, 5, 15, 0.3)
				b.near("yaw is ignored, it looks ahead", b.truth().heading, 14, 1)
			}
		})
	}
	simOnArdu(t, func(b *simBoard) {
		b.want("COMMAND_LONG", b.long(simGoto, -1, 1, 0, 0, lat, lon, 15), simResults(simUnsupported))
		b.want("disarmed", b.fly(20, 0, 15), simResults(simAccepted))
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

func TestArduPilotDiesOfASpeedThatIsNoNumber(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.want("ack", b.long(common.MAV_CMD_DO_CHANGE_SPEED, 1, math.NaN()), simResults())
		b.forget()
		b.setMode(simArduLand)
		time.Sleep(30 * time.Second)
		b.want("messages", len(simAll[message.Message](b)), 0)
		b.want("mode", b.truth().mode, uint32(simArduGuided))
		b.reboot(false)
		time.Sleep(3 * time.Second)
		b.wantText("ArduPilot Ready")
	})
}

// ---- What it sends ----

func TestArduPilotSendsNothingUnasked(t *testing.T) {
	simOnArdu(t, func(b *simBoard) {
		time.Sleep(30 * time.Second)
		for id, want := range map[uint32]int{1: 0, 24: 0, 30: 0, 33: 0, 65: 0, 74: 0, 87: 0, 148: 0, 193: 0, 242: 1, 245: 0} {
			b.want(fmt.Sprint("messages ", id), b.count(id), want)
		}
		b.near("heartbeats", float64(b.count(0)), 37, 1)
		b.near("TIMESYNCs", float64(b.count(111)), 4, 1)
		for _, id := range []float64{148, 245} {
			b.long(common.MAV_CMD_REQUEST_MESSAGE, id)
			b.want("asked for", b.count(uint32(id)), 1)
		}
	})
}

func TestArduPilotsHeartbeatOnRequestFollowsItsAckAndIsInTheNewMode(t *testing.T) {
	simOnArdu(t, func(b *simBoard) {
		b.forget()
		asked := time.Now()
		b.askMode(simLoiter)
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: common.MAV_CMD_REQUEST_MESSAGE})
		time.Sleep(10 * time.Millisecond)
		b.mu.Lock()
		defer b.mu.Unlock()
		acked := slices.IndexFunc(b.got, func(h simHeard) bool {
			ack, ok := h.msg.(*common.MessageCommandAck)
			return ok && ack.Command == common.MAV_CMD_REQUEST_MESSAGE
		})
		last := b.got[len(b.got)-1]
		b.want("acked before", acked >= 0 && acked < len(b.got)-1, true)
		b.want("its mode", last.msg.(*common.MessageHeartbeat).CustomMode, uint32(simLoiter))
		b.near("ms", float64(last.at.Sub(asked).Milliseconds()), 4.5, 1.5)
	})
}

func TestArduPilotHasNoPlaceBeforeItsFirstFix(t *testing.T) {
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		time.Sleep(5 * time.Second)
		if simLast[*common.MessageHeartbeat](b).SystemStatus != common.MAV_STATE_STANDBY {
			t.Error("not in standby")
		}
		for _, id := range []float64{24, 33, 74, 242, 193} {
			b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, id, 1e6)
		}
		p := simLast[*common.MessageGlobalPositionInt](b)
		b.want("place", [4]int32{p.Lat, p.Lon, p.Alt, p.RelativeAlt}, [4]int32{0, 0, -20, -27})
		b.want("fix", simAll[*common.MessageGpsRawInt](b)[0].FixType, common.GPS_FIX_TYPE_NO_GPS)
		b.near("altitude of VFR_HUD", float64(simAll[*common.MessageVfrHud](b)[0].Alt), -0.02, 0.001)
		b.want("EKF flags", simLast[*MessageEkfStatusReport](b).Flags, uint16(167))
		b.want("home positions", b.count(242), 0)
		b.want("armed", b.long(simArm, 1), simResults(simFailed))
		b.wantText("Arm: Accels inconsistent")
		time.Sleep(time.Until(b.booted.Add(11 * time.Second)))
		b.near("height with a fix", float64(simLast[*common.MessageGlobalPositionInt](b).Alt), simHomeAlt*1000, 1)
		time.Sleep(time.Until(b.booted.Add(21 * time.Second)))
		if b.count(242) == 0 {
			t.Error("no home position when home is known")
		}
		time.Sleep(time.Until(b.booted.Add(43 * time.Second)))
		b.want("EKF flags", simLast[*MessageEkfStatusReport](b).Flags, uint16(831))
	})
}

func TestArduPilotIsActiveUntilItIsReady(t *testing.T) {
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		time.Sleep(2500 * time.Millisecond)
		var states []common.MAV_STATE
		for _, h := range simAll[*common.MessageHeartbeat](b) {
			states = append(states, h.SystemStatus)
		}
		b.want("states", states, []common.MAV_STATE{common.MAV_STATE_ACTIVE, common.MAV_STATE_ACTIVE, common.MAV_STATE_STANDBY})
	})
}

func TestArduPilotsTargetComesInGuidedToAPlaceAndInRTLOnly(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		target := func(what string, comes int) *common.MessagePositionTargetGlobalInt {
			t.Helper()
			b.want(what+": the request", b.long(common.MAV_CMD_REQUEST_MESSAGE, 87), simResults(simAccepted))
			b.want(what+": targets", b.count(87), comes)
			if comes == 0 {
				return nil
			}
			return simAll[*common.MessagePositionTargetGlobalInt](b)[0]
		}
		target("GUIDED without a goto", 0)
		b.fly(100, 0, 12)
		lat, lon := simPlace(100, 0)
		b.want("goto", *target("goto", 1), common.MessagePositionTargetGlobalInt{
			TimeBootMs: target("goto", 1).TimeBootMs - 50, CoordinateFrame: common.MAV_FRAME_GLOBAL, TypeMask: 0xfdf8,
			LatInt: simE7(lat), LonInt: simE7(lon), Alt: simHomeAlt + 12,
		})
		for _, mode := range []uint32{simArduBrake, simArduGuided, simLoiter, simArduLand} {
			b.setMode(mode)
			target(fmt.Sprint("mode ", mode), 0)
		}
		b.setMode(simArduRTL)
		b.near("the return's height", float64(target("RTL", 1).Alt), simHomeAlt+15, 0.01)
		b.until("landing", time.Minute, func(s simState) bool { return s.alt < 12 && s.vd > 0.4 })
		target("RTL's landing", 0)
		b.until("disarmed", time.Minute, func(s simState) bool { return !s.armed })
		target("on the ground", 0)
		b.setMode(simArduGuided)
		b.long(simArm, 1)
		b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 10)
		time.Sleep(6 * time.Second)
		target("takeoff", 0)
	})
}

func TestArduPilotsPrearmBitIsOfThePresentMode(t *testing.T) {
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		time.Sleep(3 * time.Second)
		b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 1, 1e5)
		bit := common.MAV_SYS_STATUS_PREARM_CHECK
		for _, tt := range []struct {
			at      time.Duration
			mode    uint32
			healthy bool
		}{
			{10, simArduStabilize, false}, {24, simArduStabilize, true}, {27, simArduGuided, false},
			{30, simArduStabilize, true}, {33, simArduRTL, false}, {45, simArduGuided, true},
		} {
			time.Sleep(time.Until(b.booted.Add(tt.at*time.Second - 2500*time.Millisecond)))
			b.setMode(tt.mode)
			m := simLast[*common.MessageSysStatus](b)
			b.want("present", m.OnboardControlSensorsPresent&bit, bit)
			b.want("enabled", m.OnboardControlSensorsEnabled&bit, bit)
			b.want(fmt.Sprint(tt), m.OnboardControlSensorsHealth&bit != 0, tt.healthy)
		}
	})
}
