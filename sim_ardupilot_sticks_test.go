package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

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

func TestArduPilotTakesSticksOfItsGroundStationOnly(t *testing.T) {
	for _, tt := range []struct {
		system, target uint8
		z              int16
		counts         bool
	}{{255, 1, 500, true}, {1, 1, 500, false}, {254, 1, 500, false}, {255, 0, 500, false}, {255, 2, 500, false}, {255, 1, -1, false}} {
		simWith(t, simReceiverIdle, func(b *simBoard) {
			b.setMode(simAltHold)
			b.as(tt.system, 191)
			for range 75 {
				b.write(&common.MessageManualControl{Target: tt.target, Z: tt.z})
				time.Sleep(sim25Hz)
			}
			want := 2.4
			if tt.counts {
				want = 0
			}
			b.near(fmt.Sprint(tt, ": sinks"), b.truth().vd, want, 0.1)
		})
	}
}

func TestArduPilotsSticksInLoiter(t *testing.T) {
	simWith(t, simReceiverInHand, func(b *simBoard) {
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simLoiter)
		b.stick(3*time.Second, sim25Hz, 500, 0, 500, 0)
		b.near("x = 500 for 3 s, as captured", b.truth().vn, 3.23, 0.3)
		b.stick(10*time.Second, sim25Hz, 500, 0, 500, 0)
		b.near("and for long", b.truth().vn, 4.3, 0.1)
		b.near("500 holds", b.truth().alt, 10, 0.1)
		b.stick(15*time.Second, sim25Hz, 1000, 0, 500, 0)
		b.near("x = 1000", b.truth().vn, 8.6, 0.1)
		b.stick(time.Second, sim25Hz, -500, 0, -1, 0)
		b.near("z < 0 drops the message", b.truth().vn, 8.6, 0.2)
		b.stick(10*time.Second, sim25Hz, simLet, 0, 500, 0)
		b.near("32767 releases the axis", b.truth().vn, 0, 0.1)
		b.stick(4*time.Second, sim25Hz, 0, 0, 1000, 0)
		b.near("climbs", b.truth().vd, -2.5, 0.1)
	})
}

func TestArduPilotsLoiterStopsAsCaptured(t *testing.T) {
	simWith(t, simReceiverNone, func(b *simBoard) {
		b.setMode(simLoiter)
		b.stick(3*time.Second, sim25Hz, 500, 0, 500, 0)
		from, _, _ := b.place()
		b.stick(5*time.Second, sim25Hz, 0, 0, 500, 0)
		n, _, _ := b.place()
		b.near("metres to the stop", n-from, 4.8, 1)
		b.near("speed", b.truth().vn, 0, 0.2)
	})
}

func TestArduPilotsTiltFliesNoFasterThanItsDrag(t *testing.T) {
	simWith(t, simReceiverNone, func(b *simBoard) {
		b.setMode(simAltHold)
		b.stick(60*time.Second, sim25Hz, 1000, 0, 500, 0)
		b.near("full stick", b.truth().vn, 19, 1)
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		if v := b.truth().vn; v < 10 {
			t.Errorf("centred it stops: %.1f m/s", v)
		}
	})
}

func TestArduPilotsRadioFailsafeComesOneSecondAfterTheLastStickInAnyMode(t *testing.T) {
	for _, mode := range []uint32{simArduStabilize, simAltHold, simArduGuided, simLoiter, simArduLand, simArduBrake} {
		for _, receiver := range []simReceiver{simReceiverNone, simReceiverLost} {
			simWith(t, receiver, func(b *simBoard) {
				b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
				b.setMode(mode)
				b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
				b.want("before", b.truth().mode, mode)
				b.manual(0, 0, 500, 0)
				d := b.until("failsafe", 5*time.Second, func(s simState) bool { return s.mode == simArduRTL })
				b.near(fmt.Sprint("seconds of silence in ", mode), d.Seconds(), 1, 0.03)
				time.Sleep(10 * time.Millisecond)
				b.wantText("Radio Failsafe")
				b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
				if vd := b.truth().vd; vd > -0.3 {
					t.Errorf("it does not climb first: %.1f m/s down", vd)
				}
			})
		}
	}
}

func TestArduPilotsStreamPreventsAndClearsTheRadioFailsafe(t *testing.T) {
	simWith(t, simReceiverNone, func(b *simBoard) {
		b.stick(14*time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("mode with a parked stream", b.truth().mode, uint32(simArduGuided))
		time.Sleep(1100 * time.Millisecond)
		b.want("mode without it", b.truth().mode, uint32(simArduRTL))
		b.want("GUIDED in the failsafe", b.setMode(simArduGuided), simResults(simAccepted))
		time.Sleep(10 * time.Second)
		b.want("stays", b.truth().mode, uint32(simArduGuided))
		b.want("and so does the failsafe", b.truth().failsafe, true)
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("a stream clears it", b.truth().failsafe, false)
		time.Sleep(1100 * time.Millisecond)
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("but not the mode", b.truth().mode, uint32(simArduRTL))
		b.want("state", b.truth().failsafe, false)
	})
	simWith(t, simReceiverIdle, func(b *simBoard) {
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		time.Sleep(20 * time.Second)
		b.want("mode with a receiver", b.truth().mode, uint32(simArduGuided))
		b.setReceiver(simReceiverLost)
		time.Sleep(1100 * time.Millisecond)
		b.want("mode when it is lost", b.truth().mode, uint32(simArduRTL))
		b.setReceiver(simReceiverInHand)
		time.Sleep(100 * time.Millisecond)
		b.want("failsafe when it is back", b.truth().failsafe, false)
		b.want("mode", b.truth().mode, uint32(simArduRTL))
	})
}

func TestArduPilotsReceiverActsWhereNoStreamDoes(t *testing.T) {
	for _, tt := range []struct {
		mode     uint32
		receiver simReceiver
		vd       float64
	}{
		{simLoiter, simReceiverIdle, 2.4}, {simAltHold, simReceiverIdle, 2.4},
		{simLoiter, simReceiverInHand, 0}, {simAltHold, simReceiverInHand, 0},
		{simArduStabilize, simReceiverInHand, -3}, {simArduGuided, simReceiverIdle, 0},
	} {
		simWith(t, tt.receiver, func(b *simBoard) {
			b.placeInAir(60)
			b.setMode(tt.mode)
			time.Sleep(15 * time.Second)
			b.near(fmt.Sprint(tt), b.truth().vd, tt.vd, 0.2)
		})
	}
	simWith(t, simReceiverIdle, func(b *simBoard) {
		b.placeInAir(28)
		b.setMode(simArduStabilize)
		fastest := 0.0
		b.until("ground", time.Minute, func(s simState) bool {
			fastest = max(fastest, s.vd)
			return s.landed == common.MAV_LANDED_STATE_ON_GROUND
		})
		b.near("STABILIZE falls", fastest, 14, 1)
	})
	simWith(t, simReceiverIdle, func(b *simBoard) {
		b.setMode(simLoiter)
		b.until("sunk to the ground", 8*time.Second, func(s simState) bool {
			return s.landed == common.MAV_LANDED_STATE_ON_GROUND
		})
	})
	simWith(t, simReceiverInHand, func(b *simBoard) {
		b.setMode(simLoiter)
		b.pilotSticks(0, 500, 500, 0)
		time.Sleep(15 * time.Second)
		b.near("the pilot's roll", b.truth().ve, 4.3, 0.1)
	})
}

func TestArduPilotsOverridesStandForThreeSeconds(t *testing.T) {
	simWith(t, simReceiverIdle, func(b *simBoard) {
		b.placeInAir(40)
		b.setMode(simAltHold)
		b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
		time.Sleep(2950*time.Millisecond - sim25Hz)
		b.near("the last stick stands", b.truth().vd, 0, 0.05)
		time.Sleep(5 * time.Second)
		b.near("then the receiver's throttle", b.truth().vd, 2.4, 0.1)
		b.want("mode", b.truth().mode, uint32(simAltHold))
	})
}

func TestArduPilotsStreamOverridesThePilot(t *testing.T) {
	simWith(t, simReceiverInHand, func(b *simBoard) {
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.pilotMode(simLoiter)
		b.pilotSticks(1000, 0, 500, 0)
		b.stick(8*time.Second, sim25Hz, 0, 0, 500, 0)
		b.wantPlace(0, 0, 10, 0.05)
		for range 3 {
			b.manual(simLet, simLet, simLet, simLet)
		}
		time.Sleep(3 * time.Second)
		if vn := b.truth().vn; vn < 4 {
			t.Errorf("released, the pilot flies %.1f m/s", vn)
		}
	})
}

func TestArduPilotsChannelsShowOverridesElseTheReceiver(t *testing.T) {
	channels := func(b *simBoard) [4]uint16 {
		b.forget()
		b.long(common.MAV_CMD_REQUEST_MESSAGE, 65)
		m := simAll[*common.MessageRcChannels](b)[0]
		return [4]uint16{m.Chan1Raw, m.Chan2Raw, m.Chan3Raw, m.Chan4Raw}
	}
	simWith(t, simReceiverIdle, func(b *simBoard) {
		b.want("idle", channels(b), [4]uint16{1500, 1500, 1000, 1500})
		b.manual(500, 200, 600, -400)
		b.want("overridden", channels(b), [4]uint16{1600, 1250, 1600, 1300})
		b.pilotSticks(-1000, 0, 500, 0)
		b.want("the pilot's are hidden", channels(b), [4]uint16{1600, 1250, 1600, 1300})
		b.manual(simLet, simLet, simLet, simLet)
		b.near("µs before the release acts", float64(b.says(65).(*common.MessageRcChannels).Chan2Raw), 1250, 0)
		time.Sleep(9 * time.Millisecond)
		b.want("9 ms later", b.says(65).(*common.MessageRcChannels).Chan2Raw, uint16(1250))
		time.Sleep(9 * time.Millisecond)
		b.want("18 ms later", b.says(65).(*common.MessageRcChannels).Chan2Raw, uint16(2000))
		b.setReceiver(simReceiverLost)
		b.pilotSticks(0, 0, 0, 0)
		time.Sleep(10 * time.Second)
		b.want("lost: they freeze", channels(b), [4]uint16{1500, 2000, 1500, 1500})
		b.manual(0, 0, 500, 0)
		b.want("but show overrides", channels(b), [4]uint16{1500, 1500, 1500, 1500})
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

func TestArduPilotWantsAReceiverOrTwoSecondsOfAStreamToArm(t *testing.T) {
	for _, tt := range []struct {
		receiver simReceiver
		stream   time.Duration
		z        int16
		want     common.MAV_RESULT
		text     string
	}{
		{simReceiverNone, 0, 0, simFailed, "Arm: RC not found"},
		{simReceiverLost, 0, 0, simFailed, "Arm: RC not found"},
		{simReceiverNone, time.Second, 0, simFailed, "Arm: RC not found"},
		{simReceiverNone, 2100 * time.Millisecond, 0, simAccepted, ""},
		{simReceiverNone, 2100 * time.Millisecond, 500, simFailed, "Arm: Throttle (RC3) is not neutral"},
		{simReceiverIdle, 0, 0, simAccepted, ""},
		{simReceiverInHand, 0, 0, simFailed, "Arm: Throttle (RC3) is not neutral"},
	} {
		simFlight(t, simArduPilot, nil, func(b *simBoard) {
			b.setReceiver(tt.receiver)
			time.Sleep(6 * time.Second)
			b.as(255, 191)
			b.setMode(simArduGuided)
			b.stick(tt.stream, sim25Hz, 0, 0, tt.z, 0)
			b.want(fmt.Sprint(tt), b.long(simArm, 1), simResults(tt.want))
			b.wantText(tt.text)
		})
	}
}

func TestArduPilotTakesSticksForItsGroundStation(t *testing.T) {
	for _, enabled := range []float64{0, 1} {
		simWith(t, simReceiverIdle, func(b *simBoard) {
			b.change(func() { b.params["FS_GCS_ENABLE"] = enabled })
			time.Sleep(10 * time.Second)
			b.want("never heard", b.truth().mode, uint32(simArduGuided))
			b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
			b.manual(simLet, simLet, simLet, simLet)
			if enabled == 0 {
				time.Sleep(20 * time.Second)
				b.want("mode", b.truth().mode, uint32(simArduGuided))
				return
			}
			d := b.until("failsafe", 10*time.Second, func(s simState) bool { return s.mode == simArduRTL })
			b.near("seconds", d.Seconds(), 5.1, 0.05)
			time.Sleep(10 * time.Millisecond)
			b.wantText("GCS Failsafe")
			b.want("failsafe", b.truth().failsafe, true)
		})
	}
	simWith(t, simReceiverIdle, func(b *simBoard) {
		b.change(func() { b.params["FS_GCS_ENABLE"] = 1 })
		for range 20 { // of any type
			b.write(&common.MessageHeartbeat{Type: common.MAV_TYPE_ONBOARD_CONTROLLER, Autopilot: common.MAV_AUTOPILOT_INVALID})
			time.Sleep(time.Second)
		}
		b.want("mode while it is heard", b.truth().mode, uint32(simArduGuided))
		b.until("failsafe", 10*time.Second, func(s simState) bool { return s.mode == simArduRTL })
	})
}

func TestArduPilotsSticksOutsideStickModes(t *testing.T) {
	simWith(t, simReceiverNone, func(b *simBoard) {
		b.stick(2*time.Second, sim25Hz, 1000, 0, 0, 500)
		b.wantPlace(0, 0, 10, 0.1)
		if h := b.truth().heading; h < 30 {
			t.Errorf("GUIDED: yaw does not act, heading %.0f", h)
		}
		b.setMode(simArduLand)
		b.stick(3*time.Second, sim25Hz, 1000, 0, 500, 0)
		if n, e, _ := b.place(); math.Hypot(n, e) < 2 {
			t.Errorf("LAND is not shifted: %.1f %.1f", n, e)
		}
	})
}

func TestArduPilotsGuidedAtTheMomentOfSilenceHolds(t *testing.T) {
	for _, mode := range []uint32{simArduStabilize, simAltHold} {
		simWith(t, simReceiverIdle, func(b *simBoard) {
			b.placeInAir(30)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 450, 0)
			b.setMode(mode)
			for b.truth().vn < 2.6 {
				b.stick(sim25Hz, sim25Hz, 300, 0, 450, 0)
			}
			before := b.truth().alt
			climb := -b.truth().vd
			most, _ := b.farthest(20*time.Second, func() { b.setMode(simArduGuided) })
			if most > 3 {
				t.Errorf("it goes on for %.1f m", most)
			}
			b.near("height", b.truth().alt, before+climb*0.8, 0.4)
			b.want("mode", b.truth().mode, uint32(simArduGuided))
			b.near("vertical speed", b.truth().vd, 0, 0.01)
		})
	}
}
