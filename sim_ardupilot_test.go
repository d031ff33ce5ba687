package main

import (
	"bytes"
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

const (
	simAltHold = 2
	simLoiter  = 5
)

func simOnArdu(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		test(b)
	})
}

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
		b.want("home positions", b.count(242), 1)
		b.want("later", b.setMode(simArduGuided), simResults(simAccepted))
		b.want("heartbeats at once", b.count(0), 1)
		time.Sleep(2 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduGuided))
	})
}

func TestArduPilotKnowsItsMessages(t *testing.T) {
	simOnArdu(t, func(b *simBoard) {
		b.want("interval", b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 12345, 1e6), simResults(simDenied))
		b.want("request", b.long(common.MAV_CMD_REQUEST_MESSAGE, 12345), simResults(simFailed))
		b.wantText("No ap_message")
	})
}

func TestArduPilotTellsWhoseSticksCount(t *testing.T) {
	for _, param := range []string{"SYSID_MYGCS", "MAV_GCS_SYSID", ""} {
		simOnArdu(t, func(b *simBoard) {
			b.change(func() { b.params = map[string]float64{param: 42} })
			for _, ask := range []string{"SYSID_MYGCS", "MAV_GCS_SYSID"} {
				b.forget()
				b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: ask, ParamIndex: -1})
				time.Sleep(50 * time.Millisecond)
				if (b.count(22) == 1) != (ask == param) {
					t.Errorf("%q has %d answers to %q", param, b.count(22), ask)
				}
			}
			if param != "" {
				b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: param, ParamIndex: -1})
				b.want("value", simLast[*common.MessageParamValue](b).ParamValue, float32(42))
			}
		})
	}
}

func TestArduPilotModesAreAckedOnce(t *testing.T) {
	simFlight(t, simArduPilot, func(s *simulator) { s.armableAfter = 42 * time.Second }, func(b *simBoard) {
		time.Sleep(30 * time.Second)
		b.want("unknown", b.setMode(99), simResults(simFailed))
		b.want("base_mode 0", b.long(simSetMode, 0, 4), simResults(simFailed))
		for _, m := range b.modes {
			b.want(m.name+" disarmed", b.setMode(m.custom), simResults(simAccepted))
		}
		b.setMode(simArduGuided)
		b.want("GUIDED armed at 30 s", b.long(simArm, 1), simResults(simFailed))
		b.wantText("PreArm: ")
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
			b.near("seconds to climb", d.Seconds(), 12, 1.5)
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
				b.near("yaw is ignored", b.truth().heading, 0, 0.1)
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

func TestArduPilotSpeedAndYawAreCommandsOfTheirOwn(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.want("speed", b.long(common.MAV_CMD_DO_CHANGE_SPEED, 1, 2), simResults(simAccepted))
		b.fly(100, 0, 10)
		b.want("yaw", b.long(common.MAV_CMD_CONDITION_YAW, 90), simResults(simAccepted))
		time.Sleep(5 * time.Second)
		b.near("speed", b.truth().vn, 2, 0.1)
		b.near("heading", b.truth().heading, 90, 1)
		b.setMode(simArduGuided)
		time.Sleep(time.Second)
		b.near("a hold in GUIDED cancels no goto", b.truth().vn, 2, 0.1)
		b.setMode(17)
		b.want("speed outside GUIDED", b.long(common.MAV_CMD_DO_CHANGE_SPEED, 1, 2), simResults(simFailed))
		b.fly(200, 0, 10)
		time.Sleep(5 * time.Second)
		b.near("default speed after a mode change", b.truth().vn, 5, 0.1)
	})
}

func TestArduPilotLandStaysLand(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		lat, lon := simPlace(25, 0)
		b.want("land", b.long(common.MAV_CMD_NAV_LAND, 0, 0, 0, 0, lat, lon), simResults(simAccepted))
		d := b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds to disarm", d.Seconds(), 23, 1.5)
		time.Sleep(5 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduLand))
		b.wantPlace(0, 0, 0, 0.3)
	})
	simOnArduInAir(t, func(b *simBoard) {
		b.placeAt(simPlace(30, 0))
		b.want("RTL", b.setMode(simArduRTL), simResults(simAccepted))
		b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.want("mode", b.truth().mode, uint32(simArduRTL))
	})
}

func TestArduPilotSticks(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.as(255, 191)
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simLoiter)
		b.stick(4*time.Second, sim25Hz, 500, 0, 500, 0)
		b.near("LOITER x = 500", b.truth().vn, 4.3, 0.1)
		b.near("500 holds", b.truth().alt, 10, 0.1)
		b.stick(time.Second, sim25Hz, -500, 0, -1, 0)
		b.near("z < 0 drops the message", b.truth().vn, 4.3, 0.1)
		b.stick(time.Second, sim25Hz, 32767, 0, 500, 0)
		b.near("32767 releases the axis", b.truth().vn, 0.3, 0.4)
		b.stick(sim25Hz, sim25Hz, 500, 0, 500, 0)
		time.Sleep(2900 * time.Millisecond)
		b.near("the last stick stands", b.truth().vn, 4.3, 0.1)
		b.want("mode", b.truth().mode, uint32(simLoiter))
		d := b.until("radio failsafe", 5*time.Second, func(s simState) bool { return s.mode == simArduRTL })
		b.near("seconds of silence", d.Seconds()+2.94, 4, 0.05)
		b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
	})
	for _, ids := range [][2]uint8{{1, 1}, {255, 0}} { // sender's system, target
		simOnArduInAir(t, func(b *simBoard) {
			b.setMode(simAltHold)
			b.as(ids[0], 191)
			for range 50 {
				b.write(&common.MessageManualControl{Target: ids[1], Z: 500})
				time.Sleep(sim25Hz)
			}
			b.near("sinks at the receiver's low throttle", b.truth().vd, 2.4, 0.1)
		})
	}
	simOnArduInAir(t, func(b *simBoard) {
		b.change(func() { b.receiver = simReceiverIdle })
		b.as(255, 191)
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simLoiter)
		time.Sleep(5 * time.Second)
		b.want("with a receiver no failsafe", b.truth().failsafe, false)
		b.near("but its throttle", b.truth().vd, 2.4, 0.1)
	})
	simOnArduInAir(t, func(b *simBoard) {
		b.as(255, 191)
		b.stick(2*time.Second, sim25Hz, 1000, 0, 0, 500)
		b.wantPlace(0, 0, 10, 0.1)
		if h := b.truth().heading; h < 30 {
			t.Errorf("GUIDED: yaw does not act, heading %.0f", h)
		}
		time.Sleep(5 * time.Second)
		b.want("mode after silence in GUIDED", b.truth().mode, uint32(simArduGuided))
		b.setMode(simArduLand)
		b.stick(3*time.Second, sim25Hz, 1000, 0, 500, 0)
		if n, e, _ := b.place(); math.Hypot(n, e) < 2 {
			t.Errorf("LAND is not shifted: %.1f %.1f", n, e)
		}
	})
}
