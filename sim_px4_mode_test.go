package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func simShows(custom uint32) func(message.Message) bool {
	return func(m message.Message) bool {
		h, ok := m.(*common.MessageHeartbeat)
		return ok && h.CustomMode == custom
	}
}

// simAckOf matches the nth ack of a command, from 1.
func simAckOf(id common.MAV_CMD, nth int) func(message.Message) bool {
	var seen []message.Message
	return func(m message.Message) bool {
		if a, ok := m.(*common.MessageCommandAck); !ok || a.Command != id {
			return false
		}
		if !slices.Contains(seen, m) {
			seen = append(seen, m)
		}
		return slices.Index(seen, m) == nth-1
	}
}

func TestPX4AnswersARequestedHeartbeatBeforeItsAck(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		for range 30 {
			time.Sleep(137 * time.Millisecond)
			b.forget()
			asked := time.Now()
			b.request(0)
			heard := b.await("heartbeat", 5*time.Millisecond, simShows(simPX4Loiter))
			acked := b.await("ack", 10*time.Millisecond, simAckOf(common.MAV_CMD_REQUEST_MESSAGE, 1))
			if d := heard.Sub(asked); d > 1100*time.Microsecond {
				t.Errorf("heartbeat after %v", d)
			}
			if d := acked.Sub(heard); d < 100*time.Microsecond || d > 3500*time.Microsecond {
				t.Errorf("ack %v after it", d)
			}
		}
		b.want("another rate of heartbeats", b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 0, 100000), simResults(simFailed))
		b.forget()
		time.Sleep(3 * time.Second)
		b.want("heartbeats in 3 s", b.count(0), 3)
	})
}

// heartbeatsEach asks for heartbeats at a fine pace from now on.
func (b *simBoard) heartbeatsEach(every, d time.Duration) {
	b.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		b.request(0)
	}
}

func TestPX4ShowsAModeAWhileAfterItsLastAck(t *testing.T) {
	const ms = time.Millisecond
	nan := math.NaN()
	lat, lon := simPlace(30, 0)
	x, y := simE7(lat), simE7(lon)
	keep := int32(math.MaxInt32)
	tests := []struct {
		name        string
		id          common.MAV_CMD
		acks        int
		to          uint32
		first, last time.Duration
		send        func(b *simBoard) message.Message
	}{
		{"DO_SET_MODE", simSetMode, 2, simPX4RTL, 12 * ms, 18 * ms, func(*simBoard) message.Message {
			return &common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 4, Param3: 5}
		}},
		{"takeoff", simTakeoff, 1, simPX4Takeoff, 13 * ms, 16 * ms, func(*simBoard) message.Message {
			return &common.MessageCommandInt{TargetSystem: 1, TargetComponent: 1, Command: simTakeoff, X: keep, Y: keep, Z: simHomeAlt + 30}
		}},
		{"land", common.MAV_CMD_NAV_LAND, 1, simPX4Land, 13 * ms, 16 * ms, func(*simBoard) message.Message {
			return &common.MessageCommandInt{TargetSystem: 1, TargetComponent: 1, Command: common.MAV_CMD_NAV_LAND}
		}},
		{"reposition", simGoto, 1, simPX4Loiter, 13 * ms, 16 * ms, func(b *simBoard) message.Message {
			b.pilotMode(simPX4RTL)
			return &common.MessageCommandInt{TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param2: 1, Param4: float32(nan), X: x, Y: y, Z: float32(nan)}
		}},
	}
	for _, tt := range tests {
		for range 8 {
			simOnPX4InAir(t, func(b *simBoard) {
				m := tt.send(b)
				old := b.truth().mode
				time.Sleep(time.Duration(b.dice.IntN(20)) * ms)
				b.forget()
				sent := time.Now()
				b.write(m)
				b.heartbeatsEach(500*time.Microsecond, 45*ms)
				acked := b.await("ack", 0, simAckOf(tt.id, tt.acks))
				shown := b.await("mode", 0, simShows(tt.to)).Sub(acked)
				if shown < tt.first || shown > tt.last+ms {
					t.Errorf("%s: shown %v after the last ack", tt.name, shown)
				}
				if d := acked.Sub(sent); tt.acks == 2 && (d < 8*ms || d > 10*ms) {
					t.Errorf("%s: second ack after %v", tt.name, d)
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, h := range b.got {
					if simShows(old)(h.msg) && h.at.After(acked.Add(shown)) {
						t.Errorf("%s: the old mode again, %v after the ack", tt.name, h.at.Sub(acked))
					}
				}
			})
		}
	}
}

func TestPX4ARefusedModeRepeatedAnswersTwiceEach(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.forget()
		m := &common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 3}
		b.write(m)
		time.Sleep(20 * time.Millisecond)
		m.Confirmation = 1
		b.write(m)
		b.want("acks", b.answers(simSetMode), simResults(simAccepted, simRejected, simAccepted, simRejected))
		b.want("mode", b.truth().mode, uint32(simPX4Loiter))
	})
}

func TestPX4TheNewestOrderWins(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 4, Param3: 5})
		time.Sleep(5 * time.Millisecond)
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: common.MAV_CMD_NAV_LAND})
		time.Sleep(100 * time.Millisecond)
		b.want("the later command", b.truth().mode, uint32(simPX4Land))
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 4, Param3: 5})
		time.Sleep(15 * time.Millisecond)
		b.pilotMode(simPX4Loiter)
		time.Sleep(100 * time.Millisecond)
		b.want("the pilot after a command", b.truth().mode, uint32(simPX4Loiter))
	})
}

func TestPX4SticksThatMoveBeforeTheModeIsInForceTakeOver(t *testing.T) {
	const ms = time.Millisecond
	for _, mode := range []uint32{simPX4Altctl, simPX4Manual} {
		for after, taken := range map[time.Duration]bool{0: true, 5 * ms: true, 10 * ms: true, 15 * ms: false, 30 * ms: false} {
			for range 6 {
				simOnPX4InAir(t, func(b *simBoard) {
					time.Sleep(time.Duration(b.dice.IntN(40)) * ms)
					b.stick(400*ms, sim25Hz, 0, 0, 500, 0)
					b.forget()
					b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: float32(mode >> 16)})
					b.await("second ack", 20*ms, simAckOf(simSetMode, 2))
					time.Sleep(after)
					b.stick(200*ms, sim25Hz, 500, 0, 500, 0)
					want := mode
					if taken {
						want = simPX4Posctl
					}
					b.want("mode after moving "+after.String()+" after the ack", b.truth().mode, want)
				})
			}
		}
	}
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(400*ms, sim25Hz, 0, 0, 500, 0)
		b.forget()
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 2})
		b.heartbeatsEach(500*time.Microsecond, 30*ms)
		b.await("mode", 0, simShows(simPX4Altctl))
		b.stick(200*ms, sim25Hz, 500, 0, 500, 0)
		b.want("moved after the heartbeat", b.truth().mode, uint32(simPX4Altctl))
	})
}

func TestPX4MovingSticksUndoAnOrderThirtyMillisecondsAfterItsAck(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		for range 10 {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(simPX4Posctl)
			b.stick(time.Second, sim25Hz, 1000, 0, 500, 0)
			b.write(&common.MessageManualControl{Target: 1, Z: 500})
			b.forget()
			b.write(&common.MessageCommandInt{
				TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param1: -1, Param2: 1, X: math.MaxInt32, Y: math.MaxInt32, Z: simHomeAlt + 10,
			})
			acked := b.await("ack", time.Millisecond, simAckOf(simGoto, 1))
			b.until("hold", 20*time.Millisecond, func(s simState) bool { return s.mode == simPX4Loiter })
			for b.truth().mode != simPX4Posctl && time.Since(acked) < time.Second {
				time.Sleep(200 * time.Microsecond)
			}
			if d := time.Since(acked); d < 26*time.Millisecond || d > 34*time.Millisecond {
				t.Errorf("undone %v after the ack", d)
			}
			b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		}
	})
}

func TestPX4LeavingThroughPositionModeHolds(t *testing.T) {
	for _, from := range []uint32{simPX4Altctl, simPX4Manual} {
		for _, x := range []int16{0, 200, 500, 1000} {
			simOnPX4InAir(t, func(b *simBoard) {
				b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
				b.setMode(from)
				b.stick(2*time.Second, sim25Hz, x, 0, 500, 0)
				b.write(&common.MessageManualControl{Target: 1, Z: 500})
				b.setMode(simPX4Posctl)
				b.stick(150*time.Millisecond, sim25Hz, 0, 0, 500, 0)
				b.want("within 0.2 s", b.truth().mode, uint32(simPX4Posctl))
				b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
				b.setMode(simPX4Loiter)
				b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
				b.want("AUTO.LOITER stays", b.truth().mode, uint32(simPX4Loiter))
				b.near("stands", math.Hypot(b.truth().vn, b.truth().ve), 0, 0.2)
				b.near("height", b.truth().alt, 10, 0.8)
			})
		}
	}
}

func TestPX4EndsAClimbEarly(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		nan := math.NaN()
		b.long(simTakeoff, nan, nan, nan, nan, nan, nan, simHomeAlt+20)
		b.long(simArm, 1)
		b.until("climb", time.Minute, func(s simState) bool { return s.mode == simPX4Loiter })
		b.near("below its end", 20-b.truth().alt, 0.76, 0.03)
		b.near("still climbs", -b.truth().vd, 0.88, 0.05)
		time.Sleep(5 * time.Second)
		b.near("reaches it in AUTO.LOITER", b.truth().alt, 20, 0.1)
	})
	simOnPX4(t, func(b *simBoard) {
		nan := math.NaN()
		b.long(simTakeoff, nan, nan, nan, nan, nan, nan, simHomeAlt+40)
		b.long(simArm, 1)
		b.until("8 m", time.Minute, func(s simState) bool { return s.alt > 8 })
		b.pilotMode(simPX4Loiter)
		time.Sleep(10 * time.Second)
		b.near("a pilot's Hold in the climb stays there", b.truth().alt, 8, 1)
	})
}

// cruise brings a vehicle to a speed northwards, in AUTO.LOITER.
func (b *simBoard) cruise(speed float64) {
	b.t.Helper()
	lat, lon := simPlace(300, 0)
	b.exact(simGoto, 0, speed, 1, math.NaN(), simE7(lat), simE7(lon), math.NaN())
	b.until("speed", time.Minute, func(s simState) bool { return s.vn > speed-0.05 })
}

// northmost flies on for a time and returns how far north it came.
func (b *simBoard) northmost(d time.Duration) (north float64) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(simTick) {
		n, _, _ := b.place()
		north = max(north, n)
	}
	return north
}

func TestPX4NeedsRoomToStop(t *testing.T) {
	hold := func(b *simBoard, ahead float64) (from, farthest, to float64) {
		n, e, _ := b.place()
		lat, lon := simPlace(n+ahead, e)
		b.exact(simGoto, 0, -1, 1, math.NaN(), simE7(lat), simE7(lon), math.NaN())
		farthest = b.northmost(14 * time.Second)
		to, _, _ = b.place()
		return n, farthest, to
	}
	simOnPX4InAir(t, func(b *simBoard) {
		b.cruise(6.8)
		from, far, to := hold(b, 0)
		b.near("past the present place", far-from, 13.2, 1)
		b.near("and back", to-from, 0, 0.5)
	})
	for _, v := range []float64{4.3, 6.75, 10} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.cruise(v)
			from, far, to := hold(b, v*v/3.5)
			b.near("at the place v²/3.5 ahead", to-from, v*v/3.5, 0.5)
			b.near("no way back", far-to, 0, 1)
		})
		simOnPX4InAir(t, func(b *simBoard) {
			b.cruise(v)
			_, far, to := hold(b, v*v/6)
			b.near("v²/6 comes back", far-to, v*v/3.5-v*v/6, 1)
		})
	}
	simOnPX4InAir(t, func(b *simBoard) {
		b.cruise(6.8)
		from, _, _ := b.place()
		b.want("hold by the mode", b.setMode(simPX4Loiter), simResults(simAccepted, simAccepted))
		time.Sleep(14 * time.Second)
		if n, _, _ := b.place(); n < from+80 {
			t.Errorf("the mode alone stopped it after %.0f m", n-from)
		}
	})
}

func TestPX4TellsWhereItFlies(t *testing.T) {
	target := func(b *simBoard) *common.MessagePositionTargetGlobalInt {
		m, _ := b.ask(87).(*common.MessagePositionTargetGlobalInt)
		return m
	}
	simOnPX4(t, func(b *simBoard) {
		b.want("before the first flight", target(b) == nil, true)
		b.want("ack", b.long(common.MAV_CMD_REQUEST_MESSAGE, 87), simResults(simDenied))
		nan := math.NaN()
		b.long(simTakeoff, nan, nan, nan, nan, nan, nan, simHomeAlt+12)
		b.long(simArm, 1)
		m := target(b)
		b.want("frame", m.CoordinateFrame, common.MAV_FRAME_GLOBAL_INT)
		b.want("type mask", m.TypeMask, common.POSITION_TARGET_TYPEMASK(0))
		b.near("TAKEOFF's height", float64(m.Alt), simHomeAlt+12, 0.1)
		b.until("climb", time.Minute, func(s simState) bool { return s.mode == simPX4Loiter })
		b.near("LOITER's height", float64(target(b).Alt), simHomeAlt+12, 0.1)

		b.forget()
		sent := time.Now()
		lat, lon := simPlace(40, 0)
		b.write(&common.MessageCommandInt{
			TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param1: -1, Param2: 1, Param4: float32(nan),
			X: simE7(lat), Y: simE7(lon), Z: float32(nan),
		})
		for range 40 {
			b.request(87)
			time.Sleep(500 * time.Microsecond)
		}
		d := b.await("new target", 0, func(m message.Message) bool {
			p, ok := m.(*common.MessagePositionTargetGlobalInt)
			return ok && p.LatInt == simE7(lat)
		}).Sub(sent)
		if d < 3*time.Millisecond || d > 17500*time.Microsecond {
			t.Errorf("the new target came after %v", d)
		}
		time.Sleep(15 * time.Second)

		b.long(common.MAV_CMD_NAV_RETURN_TO_LAUNCH)
		b.near("RTL's height", float64(target(b).Alt), simHomeAlt+30, 0.1)
		time.Sleep(3 * time.Second)
		b.long(common.MAV_CMD_NAV_LAND)
		m = target(b)
		n, e := simMetres(float64(m.LatInt)/1e7, float64(m.LonInt)/1e7)
		b.wantPlace(n, e, b.truth().alt, 0.5)
		if m.Alt > 100 {
			t.Errorf("LAND's height is %.0f m AMSL", m.Alt)
		}
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simPX4Posctl)
		b.want("in POSCTL", target(b) == nil, true)
		b.forget()
		b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("streamed in POSCTL", b.count(87), 0)
		b.long(common.MAV_CMD_NAV_LAND)
		b.stick(60*time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("armed", b.truth().armed, false)
		b.want("after disarming", target(b) == nil, true)
	})
}

func TestPX4HomeIsWhereItLanded(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.placeAt(simPlace(40, 10))
		b.long(common.MAV_CMD_NAV_LAND)
		b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		h := simLast[*common.MessageHomePosition](b)
		n, e := simMetres(float64(h.Latitude)/1e7, float64(h.Longitude)/1e7)
		b.near("home", math.Hypot(n-40, e-10), 0, 0.3)
	})
}

func TestPX4InstancesHaveTheirOwnIds(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.system = 3 }, func(b *simBoard) {
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simArm})
		b.want("acks of another's command", len(b.answers(simArm)), 0)
		b.write(&common.MessageCommandLong{TargetSystem: 3, TargetComponent: 1, Command: simArm})
		b.want("acks of its own", len(b.answers(simArm)), 1)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.want("system", b.got[len(b.got)-1].system, uint8(3))
	})
}

func TestPX4AnswersParametersInTheFloatsBits(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.params["NAV_DLL_ACT"] = 2; s.params["MPC_XY_CRUISE"] = 4.5 }, func(b *simBoard) {
		ask := func(name string) *common.MessageParamValue {
			b.forget()
			b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: name, ParamIndex: -1})
			time.Sleep(10 * time.Millisecond)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, h := range b.got {
				if m, ok := h.msg.(*common.MessageParamValue); ok {
					return m
				}
			}
			return nil
		}
		for name, want := range map[string]uint32{"NAV_DLL_ACT": 2, "COM_RC_IN_MODE": 3} {
			m := ask(name)
			b.want(name, math.Float32bits(m.ParamValue), want)
			b.want("type", m.ParamType, common.MAV_PARAM_TYPE_INT32)
		}
		m := ask("MPC_XY_CRUISE")
		b.want("a float", m.ParamValue, float32(4.5))
		b.want("its type", m.ParamType, common.MAV_PARAM_TYPE_REAL32)
		b.want("no such name", ask("SYSID_MYGCS") == nil, true)
	})
}
