package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func simOnPX4(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simPX4, nil, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		test(b)
	})
}

func simOnPX4InAir(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simOnPX4(t, func(b *simBoard) {
		b.placeInAir(10)
		test(b)
	})
}

func TestPX4SpeaksToGroundStationsOnly(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4RTGS)
		b.want("texts before the knock", b.texts(), "")
		b.knock()
		b.want("held-back text", b.texts(), "Unsupported auto mode\t")
		b.forget()
		time.Sleep(2400 * time.Millisecond)
		b.say(common.MAV_SEVERITY_INFO, "soon enough")
		time.Sleep(200 * time.Millisecond)
		b.say(common.MAV_SEVERITY_INFO, "too late")
		time.Sleep(time.Millisecond)
		b.want("texts", b.texts(), "soon enough\t")
	})
}

func TestPX4RefusalTextIsChunkedAndPrecedesItsAck(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4RTL)
		b.knock()
		b.want("arm", b.long(simArm, 1), simResults(simRejected))
		b.mu.Lock()
		defer b.mu.Unlock()
		var got []message.Message
		for _, h := range b.got {
			if id := h.msg.GetID(); id == 77 || id == 253 {
				got = append(got, h.msg)
			}
		}
		b.want("messages", len(got), 3)
		one, two := got[0].(*common.MessageStatustext), got[1].(*common.MessageStatustext)
		b.want("first", one.Text, "Arming denied: Resolve system health failures firs")
		b.want("second", two.Text, "t\t")
		b.want("chunks", [2]uint8{one.ChunkSeq, two.ChunkSeq}, [2]uint8{0, 1})
		b.want("same id", one.Id, two.Id)
	})
}

func TestPX4ModesAreAckedTwiceAndObeyTheTable(t *testing.T) {
	yes, no := simResults(simAccepted, simAccepted), simResults(simAccepted, simRejected)
	tests := []struct {
		name           string
		custom         uint32
		ground         []common.MAV_RESULT
		arms, armsWith bool // without and with sticks streaming
		air, airWith   []common.MAV_RESULT
	}{
		{"MANUAL", simPX4Manual, yes, false, true, no, yes},
		{"ALTCTL", simPX4Altctl, yes, false, true, no, yes},
		{"POSCTL", simPX4Posctl, yes, false, true, no, yes},
		{"ACRO", simPX4Acro, yes, false, true, no, yes},
		{"STABILIZED", simPX4Stabilized, yes, false, true, no, yes},
		{"AUTO.TAKEOFF", simPX4Takeoff, yes, true, true, yes, yes},
		{"AUTO.LOITER", simPX4Loiter, yes, true, true, yes, yes},
		{"AUTO.RTL", simPX4RTL, yes, false, false, yes, yes},
		{"AUTO.LAND", simPX4Land, yes, false, false, yes, yes},
		{"AUTO.RTGS", simPX4RTGS, no, true, true, no, no}, // stays in LOITER
		{"AUTO.MISSION", simPX4Mission, yes, false, false, no, no},
		{"OFFBOARD", simPX4Offboard, yes, false, false, no, no},
	}
	for _, tt := range tests {
		arm := func(ok bool) []common.MAV_RESULT {
			if ok {
				return simResults(simAccepted)
			}
			return simResults(simRejected)
		}
		simOnPX4(t, func(b *simBoard) {
			b.want(tt.name+" on the ground", b.setMode(tt.custom), tt.ground)
			b.want(tt.name+" armed", b.long(simArm, 1), arm(tt.arms))
		})
		simOnPX4(t, func(b *simBoard) {
			b.setMode(tt.custom)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 0, 0)
			b.want(tt.name+" armed with sticks", b.long(simArm, 1), arm(tt.armsWith))
		})
		for _, with := range []bool{false, true} {
			simOnPX4InAir(t, func(b *simBoard) {
				want, mode := tt.air, b.truth().mode
				if with {
					want = tt.airWith
					b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
				}
				b.want(tt.name+" in the air", b.setMode(tt.custom), want)
				if want[1] == simAccepted {
					mode = tt.custom
				}
				b.want("mode after "+tt.name, b.truth().mode, mode)
			})
		}
	}
}

func TestPX4ArmsWhenItMay(t *testing.T) {
	const z0, z500, z501 = 0, 500, 501
	tests := []struct {
		name  string
		mode  uint32
		z     int16
		force float64
		want  common.MAV_RESULT
		text  string
	}{
		{"POSCTL centre", simPX4Posctl, z500, 0, simAccepted, ""},
		{"POSCTL above", simPX4Posctl, z501, 0, simRejected, "throttle above center"},
		{"ALTCTL centre", simPX4Altctl, z500, 0, simAccepted, ""},
		{"ALTCTL above", simPX4Altctl, z501, 0, simRejected, "throttle above center"},
		{"MANUAL low", simPX4Manual, z0, 0, simAccepted, ""},
		{"MANUAL centre", simPX4Manual, z500, 0, simRejected, "high throttle"},
		{"STABILIZED centre", simPX4Stabilized, z500, 0, simRejected, "high throttle"},
		{"AUTO.LAND forced", simPX4Land, z0, 21196, simRejected, "Resolve system health failures first"},
	}
	for _, tt := range tests {
		simOnPX4(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, tt.z, 0)
			b.knock()
			b.want(tt.name, b.long(simArm, 1, tt.force), simResults(tt.want))
			b.wantText(tt.text)
		})
	}
	simFlight(t, simPX4, nil, func(b *simBoard) {
		time.Sleep(4 * time.Second)
		b.want("4 s after boot", b.long(simArm, 1), simResults(simRejected))
		healthy := func() bool {
			return simLast[*common.MessageSysStatus](b).OnboardControlSensorsHealth&common.MAV_SYS_STATUS_PREARM_CHECK != 0
		}
		b.want("healthy", healthy(), true)
		b.setMode(simPX4Posctl)
		b.want("healthy in POSCTL without sticks", healthy(), false)
		b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_UNINIT)
	})
}

func TestPX4TakesOffToAMSL(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		name     string
		lat, alt float64
		up       float64
		text     string
	}{
		{"AMSL", nan, simHomeAlt + 10, 10, "Takeoff detected"},
		{"default altitude", nan, nan, 2.5, ""},
		{"metres above home", nan, 10, 0, "Already higher than takeoff altitude"},
		{"at 0, 0", 0, simHomeAlt + 10, 0, ""},
	}
	for _, tt := range tests {
		simOnPX4(t, func(b *simBoard) {
			b.knock()
			b.want("takeoff", b.long(simTakeoff, nan, nan, nan, nan, tt.lat, tt.lat, tt.alt), simResults(simAccepted))
			if tt.up == 0 {
				b.wantText(tt.text)
				tt.text = ""
			}
			b.want("armed by it", b.truth().armed, false)
			b.want("mode", b.truth().mode, uint32(simPX4Takeoff))
			b.want("arm", b.long(simArm, 1), simResults(simAccepted))
			if tt.up == 0 {
				d := b.until(tt.name, time.Minute, func(s simState) bool { return !s.armed })
				b.near("seconds until disarmed", d.Seconds(), 10, 0.1)
			} else {
				b.listenIn(4 * time.Second)
				d := 4*time.Second + b.until(tt.name, time.Minute, func(s simState) bool { return s.mode == simPX4Loiter })
				if tt.up == 10 {
					b.near("seconds to climb 10 m", d.Seconds(), 12, 1)
				}
				time.Sleep(5 * time.Second)
			}
			b.wantPlace(0, 0, tt.up, 0.1)
			b.wantText(tt.text)
		})
	}
	simOnPX4(t, func(b *simBoard) {
		b.long(simArm, 1)
		b.long(simTakeoff, nan, nan, nan, nan, nan, nan, 10)
		time.Sleep(9 * time.Second)
		b.wantPlace(0, 0, 0, 0) // armed before makes no difference
	})
	simOnPX4InAir(t, func(b *simBoard) {
		b.exact(simTakeoff, 6, 0, 0, nan, math.MaxInt32, math.MaxInt32, simHomeAlt+14)
		b.want("mode in the air", b.truth().mode, uint32(simPX4Takeoff))
		b.until("climb", time.Minute, func(s simState) bool { return s.mode == simPX4Loiter })
		b.near("altitude", b.truth().alt, 14-0.76, 0.05)
	})
}

func TestPX4LandsHereAndLeavesLand(t *testing.T) {
	for _, mode := range []uint32{simPX4Loiter, simPX4Posctl} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(mode)
			lat, lon := simPlace(25, 0)
			b.want("land", b.exact(common.MAV_CMD_NAV_LAND, 0, 0, 0, 0, simE7(lat), simE7(lon), 0), simResults(simAccepted))
			d := b.until("touch", time.Minute, func(s simState) bool { return s.landed == common.MAV_LANDED_STATE_ON_GROUND })
			b.near("seconds to land", d.Seconds(), 18, 5)
			d = b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
			b.near("seconds to disarm", d.Seconds(), 2, 0.1)
			b.want("mode", b.truth().mode, mode)
			b.wantPlace(0, 0, 0, 0.3)
			b.knock()
			time.Sleep(60 * time.Millisecond)
			b.wantText("Landing detected\tDisarmed by landing\t")
		})
	}
}

func TestPX4Repositions(t *testing.T) {
	nan := math.NaN()
	lat, lon := simPlace(20, 5)
	x, y := simE7(lat), simE7(lon)
	tests := []struct {
		name             string
		frame            common.MAV_FRAME
		p2, yaw          float64
		x, y             int32
		z                float64
		result           common.MAV_RESULT
		north, east, alt float64
	}{
		{"AMSL", 0, 1, nan, x, y, simHomeAlt + 15, simAccepted, 20, 5, 15},
		{"frame 3 is AMSL too", 3, 1, nan, x, y, simHomeAlt + 15, simAccepted, 20, 5, 15},
		{"keeps the altitude", 0, 1, nan, x, y, nan, simAccepted, 20, 5, 10},
		{"keeps the place", 0, 1, nan, math.MaxInt32, math.MaxInt32, simHomeAlt + 15, simAccepted, 0, 0, 15},
		{"stays", 0, 1, nan, math.MaxInt32, math.MaxInt32, nan, simAccepted, 0, 0, 10},
		{"param2 = 0", 0, 0, nan, x, y, simHomeAlt + 15, simUnsupported, 20, 5, 15},
		{"frame 6 into the ground", 6, 1, nan, x, y, 20, simAccepted, 20, 5, 0},
		{"yaw in radians", 0, 1, math.Pi / 2, x, y, nan, simAccepted, 20, 5, 10},
	}
	for _, tt := range tests {
		simOnPX4InAir(t, func(b *simBoard) {
			b.want(tt.name, b.exact(simGoto, tt.frame, -1, tt.p2, tt.yaw, tt.x, tt.y, tt.z), simResults(tt.result))
			time.Sleep(25 * time.Second)
			n, e, up := b.place()
			b.near(tt.name+" alt", up, tt.alt, 0.3)
			if tt.alt > 0 {
				b.near(tt.name+" place", math.Hypot(n-tt.north, e-tt.east), 0, 0.3)
			}
			if !math.IsNaN(tt.yaw) {
				b.near("heading", b.truth().heading, 90, 1)
			}
		})
	}
}

func TestPX4RepositionOddities(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4Takeoff)
		b.want("disarmed", b.fly(20, 0, 15), simResults(simAccepted))
		b.want("mode", b.truth().mode, uint32(simPX4Loiter))
		b.placeInAir(10)
		time.Sleep(5 * time.Second)
		b.wantPlace(0, 0, 10, 0.1) // that target is dropped

		lat, lon := simPlace(20, 0)
		b.want("COMMAND_LONG", b.long(simGoto, -1, 1, 0, math.NaN(), lat, lon, math.NaN()), simResults(simAccepted))
		time.Sleep(20 * time.Second)
		n, e, _ := b.place()
		b.near("COMMAND_LONG misses", math.Hypot(n-20, e), 1.1, 0.5)

		b.change(func() { b.fence = 50 })
		b.knock()
		b.want("outside the fence", b.fly(100, 0, 10), simResults(simAccepted))
		b.wantText("geofence")
		time.Sleep(10 * time.Second)
		b.near("not flown", b.truth().vn, 0, 0.1)
		b.change(func() { b.fence = 0 })

		lat, lon = simPlace(100, 0)
		b.exact(simGoto, 0, 3, 1, math.NaN(), simE7(lat), simE7(lon), math.NaN())
		time.Sleep(5 * time.Second)
		b.near("speed of 3", b.truth().vn, 3, 0.3)
		b.setMode(simPX4Loiter)
		time.Sleep(3 * time.Second)
		b.near("a hold in LOITER cancels no goto", b.truth().vn, 3, 0.3)
		b.want("degE7 in a COMMAND_LONG", b.long(simGoto, -1, 1, 0, math.NaN(), lat*1e7, lon*1e7, math.NaN()), simResults(simAccepted))
		time.Sleep(30 * time.Second)
		b.near("flies away", math.Hypot(b.truth().vn, b.truth().ve), 5, 0.3)
	})
}

func TestPX4SticksFly(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simPX4Posctl)
		b.stick(4*time.Second, sim25Hz, 1000, 32767, 500, 0)
		b.near("POSCTL forward", b.truth().vn, 5, 0.2)
		b.near("500 holds", b.truth().alt, 10, 0.1)
		b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		b.near("POSCTL centred", b.truth().vn, 0, 0.1)
		b.stick(time.Second, sim25Hz, 0, 0, 1000, 500)
		if s := b.truth(); s.vd > -1 || s.heading < 20 {
			t.Errorf("climbs %.1f m/s, turned to %.0f°", -s.vd, s.heading)
		}
		b.setMode(simPX4Altctl)
		b.stick(2*time.Second, sim25Hz, 500, 0, 500, 0)
		speed := math.Hypot(b.truth().vn, b.truth().ve)
		b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		b.near("ALTCTL drifts on", math.Hypot(b.truth().vn, b.truth().ve), speed, 0.1)
		b.setMode(simPX4Manual)
		b.stick(time.Second, sim25Hz, 0, 0, 700, 0)
		if s := b.truth(); s.vd > -1 {
			t.Errorf("MANUAL thrust climbs %.1f m/s", -s.vd)
		}
		b.setMode(simPX4Posctl)
		b.stick(30*time.Second, sim25Hz, 0, 0, 0, 0)
		b.want("lands and disarms by sticks", b.truth().armed, false)
	})
}

func TestPX4LosesSlowOrSilentSticks(t *testing.T) {
	for every, lost := range map[time.Duration]bool{400 * time.Millisecond: false, 500 * time.Millisecond: true} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
			b.stick(5*time.Second, every, 0, 0, 500, 0)
			b.want("lost at "+every.String(), b.truth().failsafe, lost)
		})
	}
	for _, mode := range []uint32{simPX4Posctl, simPX4Loiter} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(mode)
			b.fly(100, 0, 10)
			b.setMode(mode)
			b.stick(4*time.Second, sim25Hz, 0, 0, 500, 0)
			b.knock()
			d := b.until("failsafe", 5*time.Second, func(s simState) bool { return s.failsafe })
			b.near("seconds of silence", (d + sim25Hz).Seconds(), 0.6, 0.05)
			b.want("mode", b.truth().mode, uint32(simPX4Loiter))
			b.stick(4900*time.Millisecond, sim25Hz, 0, 0, 500, 0) // coming back cancels nothing
			b.wantText("Failsafe activated: entering Hold for 5 seconds\t")
			b.near("brakes", b.truth().vn, 0, 0.1)
			b.want("still in hold", b.truth().mode, uint32(simPX4Loiter))
			b.stick(200*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.want("then returns", b.truth().mode, uint32(simPX4RTL))
			b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
			b.setMode(simPX4Loiter)
			time.Sleep(10 * time.Second)
			b.want("DO_SET_MODE cancels", b.truth().failsafe, false)
			b.want("mode stays", b.truth().mode, uint32(simPX4Loiter))
		})
	}
	simOnPX4InAir(t, func(b *simBoard) {
		time.Sleep(20 * time.Second)
		b.want("failsafe without sticks ever", b.truth().failsafe, false)
	})
}

func TestPX4PilotTakesOverWhileSticksMove(t *testing.T) {
	tests := []struct {
		name  string
		quiet time.Duration // between the last change and the command
		taken bool
	}{
		{"at once", 0, true}, {"0.2 s", 200 * time.Millisecond, true}, {"1 s", time.Second, true},
		{"1.5 s", 1500 * time.Millisecond, true}, {"2 s", 2 * time.Second, false},
	}
	for _, tt := range tests {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(simPX4Posctl)
			b.stick(2*time.Second, sim25Hz, 1000, 0, 500, 0)
			b.stick(sim25Hz+tt.quiet, sim25Hz, 0, 0, 500, 0)
			b.knock()
			b.want("hold", b.setMode(simPX4Loiter), simResults(simAccepted, simAccepted))
			b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
			b.want(tt.name, b.truth().mode == simPX4Posctl, tt.taken)
			if tt.taken {
				b.wantText("Pilot took over using sticks\t")
			}
		})
	}
	for x, taken := range map[int16]bool{100: false, 199: false, 200: true} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
			b.stick(100*time.Millisecond, sim25Hz, x, 0, 500, 0)
			b.want("a step", b.truth().mode == simPX4Posctl, taken)
		})
	}
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(5*time.Second, sim25Hz, 700, 0, 500, 0)
		b.want("a constant value takes over", b.truth().mode, uint32(simPX4Loiter))
		for x := int16(700); x > 0; x -= 10 {
			b.stick(sim25Hz, sim25Hz, x, 0, 500, 0)
		}
		b.want("after a slow ramp", b.truth().mode, uint32(simPX4Posctl))
	})
}

func TestPX4HomeMayStep(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.homeSteps = true }, func(b *simBoard) {
		seen := map[int32]bool{}
		for range 10 {
			p := simLast[*common.MessageGlobalPositionInt](b)
			seen[p.RelativeAlt] = true
			b.want("AMSL", p.Alt, int32(488300))
		}
		if len(seen) < 4 {
			t.Errorf("relative_alt takes %d values", len(seen))
		}
	})
}

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
			time.Sleep(50 * ms) // until HEARTBEAT shows it
			return &common.MessageCommandInt{TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param2: 1, Param4: float32(nan), X: x, Y: y, Z: float32(nan)}
		}},
	}
	for _, tt := range tests {
		for range 8 {
			simOnPX4InAir(t, func(b *simBoard) {
				m := tt.send(b)
				old := b.truth().mode
				time.Sleep(time.Duration(rand.IntN(20)) * ms)
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
					time.Sleep(time.Duration(rand.IntN(40)) * ms)
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
		b.near("past the present place", far-from, 15.2, 2.2) // the target takes effect up to 0.6 s late
		b.near("and back", to-from, 0, 0.5)
	})
	for _, v := range []float64{4.3, 6.75, 10} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.cruise(v)
			from, far, to := hold(b, v*v/3.5)
			b.near("at the place v²/3.5 ahead", to-from, v*v/3.5, 0.5)
			b.near("no way back", far-to, 0, 2.5)
		})
		simOnPX4InAir(t, func(b *simBoard) {
			b.cruise(v)
			_, far, to := hold(b, v*v/6)
			b.near("v²/6 comes back", far-to, v*v/3.5-v*v/6, 2.5)
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
		for range 1400 {
			b.request(87)
			time.Sleep(500 * time.Microsecond)
		}
		d := b.await("new target", 0, func(m message.Message) bool {
			p, ok := m.(*common.MessagePositionTargetGlobalInt)
			return ok && p.LatInt == simE7(lat)
		}).Sub(sent)
		if d < 3*time.Millisecond || d > 620*time.Millisecond {
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

const simPrearm = common.MAV_CMD_RUN_PREARM_CHECKS

// statusNow asks for SYS_STATUS.
func (b *simBoard) statusNow() *common.MessageSysStatus {
	b.t.Helper()
	return b.ask(1).(*common.MessageSysStatus)
}

// textTimes returns when the first chunk of each STATUSTEXT came.
func (b *simBoard) textTimes() (at []time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.got {
		if m, ok := h.msg.(*common.MessageStatustext); ok && m.ChunkSeq == 0 {
			at = append(at, h.at)
		}
	}
	return at
}

func TestPX4TextsComeOneInFiftyMilliseconds(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		for range 12 {
			b.say(common.MAV_SEVERITY_INFO, "text")
		}
		b.knock()
		b.want("at once", len(b.textTimes()), 1)
		time.Sleep(2 * time.Second)
		at := b.textTimes()
		b.want("of twelve that were held", len(at), 10)
		for i := 1; i < len(at); i++ {
			b.near("ms between", float64(at[i].Sub(at[i-1]).Milliseconds()), 50, 1)
		}
		time.Sleep(3 * time.Second)
		b.say(common.MAV_SEVERITY_INFO, "old")
		time.Sleep(5100 * time.Millisecond)
		b.forget()
		b.knock()
		time.Sleep(time.Second)
		b.want("older than 5 s", b.texts(), "")
	})
}

func TestPX4LoneKnockMakesTwoTexts(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.knock()
		time.Sleep(11900 * time.Millisecond)
		b.knock() // within the time: nothing is lost
		b.want("texts in time", b.texts(), "")
		time.Sleep(13 * time.Second)
		b.knock()
		time.Sleep(100 * time.Millisecond)
		b.want("texts", b.texts(), "Connection to ground station lost\tGCS connection regained\t")
		b.want("armable all the same", b.long(simArm, 1), simResults(simAccepted))
	})
	simFlight(t, simPX4, func(s *simulator) { s.foreignGCS = true }, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		b.knock()
		time.Sleep(13 * time.Second)
		b.knock()
		time.Sleep(100 * time.Millisecond)
		b.want("texts beside a ground station", b.texts(), "")
	})
}

func TestPX4KnockArmsTheDataLinkFailsafe(t *testing.T) {
	dataLink := func(act float64, foreign bool, test func(b *simBoard)) {
		t.Helper()
		simFlight(t, simPX4, func(s *simulator) { s.params[simDataLink], s.foreignGCS = act, foreign }, func(b *simBoard) {
			time.Sleep(6 * time.Second)
			test(b)
		})
	}
	dataLink(2, false, func(b *simBoard) {
		b.want("arming without a ground station", b.long(simArm, 1), simResults(simRejected))
		b.knock()
		time.Sleep(11900 * time.Millisecond)
		b.want("arming 11.9 s after a knock", b.long(simArm, 1), simResults(simAccepted))
		b.long(simArm, 0)
		b.knock()
		time.Sleep(13100 * time.Millisecond)
		b.want("arming 13.1 s after a knock", b.long(simArm, 1), simResults(simRejected))
	})
	for act, mode := range map[float64]uint32{1: simPX4Loiter, 2: simPX4RTL, 3: simPX4Land} {
		dataLink(act, false, func(b *simBoard) {
			b.placeInAir(20)
			lat, lon := simPlace(500, 0)
			b.exact(simGoto, 0, 5, 1, math.NaN(), simE7(lat), simE7(lon), math.NaN())
			time.Sleep(15 * time.Second)
			b.want("never knocked", b.truth().failsafe, false)
			b.knock()
			d := b.until("failsafe", 14*time.Second, func(s simState) bool { return s.failsafe })
			if d < 12*time.Second || d > 13100*time.Millisecond {
				t.Errorf("failsafe %v after the knock", d)
			}
			b.want("mode", b.truth().mode, uint32(simPX4Loiter))
			b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
			time.Sleep(3 * time.Second)
			b.want("5 s later", b.truth().mode, mode)
			// A hold that knocks first cancels it, and arms it again.
			b.knock()
			b.setMode(simPX4Loiter)
			b.want("cancelled", b.truth().failsafe, false)
			d = b.until("failsafe again", 14*time.Second, func(s simState) bool { return s.failsafe })
			b.near("seconds until it is back", d.Seconds(), 12.5, 0.6)
		})
	}
	dataLink(2, false, func(b *simBoard) { // the knock of a takeoff
		nan := math.NaN()
		b.write(&common.MessageHeartbeat{Type: common.MAV_TYPE_GCS, Autopilot: common.MAV_AUTOPILOT_INVALID})
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simTakeoff, Param5: float32(nan), Param6: float32(nan), Param7: simHomeAlt + 10})
		time.Sleep(8 * time.Millisecond)
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simArm, Param1: 1})
		b.want("arming", b.answers(simArm), simResults(simAccepted))
		b.want("failsafe at once", b.truth().failsafe, true)
		time.Sleep(200 * time.Millisecond)
		b.wantText("Failsafe activated")
		b.until("return", 6*time.Second, func(s simState) bool { return s.mode == simPX4RTL })
		b.until("disarm", 6*time.Second, func(s simState) bool { return !s.armed })
		b.wantPlace(0, 0, 0, 0)
	})
	dataLink(2, false, func(b *simBoard) {
		b.knock()
		time.Sleep(15 * time.Millisecond)
		b.long(simArm, 1)
		b.want("failsafe of an arming 15 ms later", b.truth().failsafe, false)
	})
	dataLink(2, true, func(b *simBoard) { // a real ground station is there
		b.want("arming", b.long(simArm, 1), simResults(simAccepted))
		b.placeInAir(20)
		b.knock()
		time.Sleep(20 * time.Second)
		b.want("failsafe beside a ground station", b.truth().failsafe, false)
	})
}

func TestPX4RefusesWithoutAReasonUntilAReport(t *testing.T) {
	low := simTrouble{common.MAV_SYS_STATUS_SENSOR_BATTERY, "Preflight Fail: low battery"}
	mute := simTrouble{}
	simOnPX4(t, func(b *simBoard) {
		b.change(func() { b.trouble = []simTrouble{low, mute} })
		time.Sleep(6 * time.Second) // the report of the change is over, its text too old
		b.knock()
		for range 3 {
			b.forget()
			b.want("arm", b.long(simArm, 1), simResults(simRejected))
			time.Sleep(2100 * time.Millisecond)
			b.want("texts of an unchanged state", b.texts(), "Arming denied: Resolve system health failures first\t")
			b.knock()
		}
		b.forget()
		sent := time.Now()
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simPrearm})
		acked := b.await("ack", 20*time.Millisecond, simAckOf(simPrearm, 1)).Sub(sent)
		if acked < 4*time.Millisecond || acked > 17*time.Millisecond {
			t.Errorf("ack after %v", acked)
		}
		time.Sleep(200 * time.Millisecond)
		b.want("texts of a report", b.texts(), "Preflight Fail: low battery")
		b.want("result", b.answers(simPrearm), simResults(simAccepted))
		h := b.statusNow()
		broken := h.OnboardControlSensorsEnabled &^ h.OnboardControlSensorsHealth
		b.want("unhealthy", broken, common.MAV_SYS_STATUS_SENSOR_BATTERY|common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER)

		b.change(func() { b.trouble = nil })
		b.long(simPrearm)
		b.want("arm when it is mended", b.long(simArm, 1), simResults(simAccepted))
		b.forget()
		b.want("a report while armed", b.long(simPrearm), simResults(simAccepted))
	})
	simOnPX4(t, func(b *simBoard) { // a report's texts wait for a knock up to 5 s
		b.change(func() { b.trouble = []simTrouble{low} })
		time.Sleep(10 * time.Second)
		b.long(simPrearm)
		time.Sleep(4500 * time.Millisecond)
		b.want("before the knock", b.texts(), "")
		b.knock()
		b.want("after it", b.texts(), "Preflight Fail: low battery")
	})
}

func TestPX4SysStatusIsAsOldAsItsReport(t *testing.T) {
	const prearm = common.MAV_SYS_STATUS_PREARM_CHECK
	ready := func(b *simBoard) bool { return b.statusNow().OnboardControlSensorsHealth&prearm != 0 }
	for range 10 {
		simOnPX4(t, func(b *simBoard) {
			time.Sleep(3 * time.Second)
			b.setMode(simPX4RTL) // a change, and a report
			b.until("report", time.Second, func(simState) bool { return !ready(b) })
			b.setMode(simPX4Loiter)
			time.Sleep(1500 * time.Millisecond)
			b.want("within 2 s of a report", ready(b), false)
			time.Sleep(600 * time.Millisecond)
			b.want("after 2 s", ready(b), true)
			b.setMode(simPX4RTL)
			time.Sleep(300 * time.Millisecond)
			b.want("state, too", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_UNINIT)

			b.setMode(simPX4Loiter)
			time.Sleep(200 * time.Millisecond)
			b.forget()
			sent := time.Now()
			b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simPrearm})
			for range 80 {
				b.request(1)
				time.Sleep(500 * time.Microsecond)
			}
			d := b.await("healthy", 0, func(m message.Message) bool {
				s, ok := m.(*common.MessageSysStatus)
				return ok && s.OnboardControlSensorsHealth&prearm != 0
			}).Sub(sent)
			if d < 8*time.Millisecond || d > 32500*time.Microsecond {
				t.Errorf("right %v after a 401", d)
			}
		})
	}
}

func TestPX4SysStatusBits(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		bits := func() [3]uint32 {
			m := b.statusNow()
			return [3]uint32{uint32(m.OnboardControlSensorsPresent), uint32(m.OnboardControlSensorsEnabled), uint32(m.OnboardControlSensorsHealth)}
		}
		b.want("before the first report", bits(), [3]uint32{0, 0, 0x0321c83f})
		time.Sleep(2100 * time.Millisecond)
		b.want("no position", bits(), [3]uint32{0x0300400f, 0x0301400f, 0x0320883f})
		time.Sleep(4 * time.Second)
		b.want("armable, no RC", bits(), [3]uint32{0x0300402f, 0x0301402f, 0x1320c83f})
		b.want("arm without RC", b.long(simArm, 1), simResults(simAccepted))
		b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("sticks of anybody", bits(), [3]uint32{0x0301402f, 0x0301402f, 0x1321c83f})
		b.change(func() { b.params[simDataLink] = 2 })
		time.Sleep(10 * time.Second)
		b.want("no ground station", bits(), [3]uint32{0x0301402f, 0x0301402f, 0x0320c83f})
		b.reboot(false)
		b.want("after a restart", bits(), [3]uint32{0, 0, 0x0321c83f})
	})
}

func TestPX4AReportWithoutTexts(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4Posctl)
		b.knock()
		b.long(simPrearm)
		time.Sleep(500 * time.Millisecond)
		b.want("no sticks", b.texts(), "")
	})
	simFlight(t, simPX4, func(s *simulator) { s.armableAfter = time.Hour }, func(b *simBoard) {
		time.Sleep(5 * time.Second)
		b.knock()
		b.want("arm", b.long(simArm, 1), simResults(simRejected))
		b.long(simPrearm)
		time.Sleep(500 * time.Millisecond)
		b.want("no position", strings.Contains(b.texts(), "Preflight"), false)
		h := b.statusNow()
		if broken := h.OnboardControlSensorsEnabled &^ h.OnboardControlSensorsHealth; broken&common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL == 0 {
			t.Errorf("unhealthy: %08x", uint32(broken))
		}
	})
}

// What differs before 1.17.
func TestAnOlderPX4(t *testing.T) {
	tests := []struct {
		release   uint32
		liveMode  common.MAV_RESULT
		acks      []common.MAV_RESULT // of a mode that is refused
		disarmed  uint32              // mode after a disarming in AUTO.TAKEOFF
		thenArmed float64             // metres above home, 10 s after an ARM
	}{
		{simPX4v14, simFailed, simResults(simRejected), simPX4Takeoff, 2.5},
		{simPX4v15, simAccepted, simResults(simRejected), simPX4Takeoff, 2.5},
		{simPX4v16, simAccepted, simResults(simAccepted, simRejected), simPX4Takeoff, 2.5},
		{simPX4v17, simAccepted, simResults(simAccepted, simRejected), simPX4Loiter, 0},
	}
	for _, tt := range tests {
		simFlight(t, simPX4, olderPX4(tt.release), func(b *simBoard) {
			time.Sleep(6 * time.Second)
			b.want("version", b.version>>16, tt.release>>16)
			b.want("CURRENT_MODE's interval", b.long(simInterval, 436, 10000), simResults(tt.liveMode))
			b.want("AUTO.RTGS", b.setMode(simPX4RTGS), tt.acks)

			nan := math.NaN()
			b.long(simArm, 1)
			b.long(simTakeoff, nan, nan, nan, nan, nan, nan, simHomeAlt+10)
			time.Sleep(time.Second)
			b.want("disarming", b.long(simArm, 0), simResults(simAccepted))
			time.Sleep(time.Second)
			b.want("mode", b.truth().mode, tt.disarmed)
			b.want("arming", b.long(simArm, 1), simResults(simAccepted))
			time.Sleep(9 * time.Second)
			b.near("height", b.truth().alt, tt.thenArmed, 0.3)
		})
	}
}

// simWithSource flies in the air, with COM_RC_IN_MODE set.
func simWithSource(t *testing.T, flavour simFlavour, mode float64, test func(*simBoard)) {
	t.Helper()
	simFlight(t, flavour, func(s *simulator) { s.params[simStickSource] = mode }, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		b.placeInAir(10)
		test(b)
	})
}

func TestPX4ChoosesWhoseSticksCount(t *testing.T) {
	const none, ours, theirs = "nobody's", "ours", "the transmitter's"
	tests := []struct {
		flavour                                        simFlavour
		mode                                           float64
		oursAlone, theirsAlone, oursFirst, theirsFirst string
	}{
		{simPX4, 0, none, theirs, theirs, theirs},
		{simPX4, 1, ours, none, ours, ours},
		{simPX4, 2, ours, theirs, ours, theirs},
		{simPX4, 3, ours, theirs, ours, theirs},
		{simPX4, 4, none, none, none, none},
		{simPX4, 5, ours, theirs, theirs, theirs},
		{simPX4, 6, ours, theirs, ours, ours},
		{simPX4, 7, ours, theirs, theirs, theirs},
		{simPX4, 8, ours, theirs, ours, ours},
		{simPX4Old, 3, ours, theirs, ours, theirs},
		{simPX4Old, 4, none, none, none, none},
		{simPX4Old, 5, none, none, none, none},
		{simPX4Old, 6, none, none, none, none},
		{simPX4Old, 7, none, none, none, none},
		{simPX4Old, 8, none, none, none, none},
	}
	who := func(b *simBoard) string {
		b.simulator.mu.Lock()
		defer b.simulator.mu.Unlock()
		switch x, _, _, _ := b.brain.axes(); {
		case x > 0:
			return ours
		case x < 0:
			return theirs
		}
		return none
	}
	send := func(b *simBoard) { b.stick(time.Second, sim25Hz, 300, 0, 500, 0) }
	on := func(b *simBoard) { b.setReceiver(simReceiverInHand); b.pilotSticks(-300, 0, 500, 0) }
	for _, tt := range tests {
		check := func(what, want string, do ...func(*simBoard)) {
			simWithSource(t, tt.flavour, tt.mode, func(b *simBoard) {
				for _, f := range do {
					f(b)
				}
				if got := who(b); got != want {
					t.Errorf("COM_RC_IN_MODE %v, %s: %q, want %q", tt.mode, what, got, want)
				}
			})
		}
		second := func(*simBoard) { time.Sleep(time.Second) }
		check("ours alone", tt.oursAlone, send)
		check("theirs alone", tt.theirsAlone, on, second)
		check("ours first", tt.oursFirst, send, on, send)
		check("theirs first", tt.theirsFirst, on, second, send)
	}
	simWithSource(t, simPX4, 3, func(b *simBoard) {
		send(b)
		on(b)
		time.Sleep(5 * time.Second) // ours are silent
		b.want("locked for this boot", who(b), ours)
		b.reboot(true)
		time.Sleep(time.Second)
		b.want("after a restart", who(b), theirs)
	})
	simWithSource(t, simPX4, 2, func(b *simBoard) {
		send(b)
		on(b)
		time.Sleep(time.Second)
		b.want("2 falls back when ours are lost", who(b), theirs)
		send(b)
		b.want("and stays there", who(b), theirs)
	})
}

func TestPX4TransmitterFliesAndTakesOver(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.want("POSCTL without any sticks", b.setMode(simPX4Posctl), simResults(simAccepted, simRejected))
		b.setReceiver(simReceiverInHand)
		time.Sleep(2 * time.Second)
		b.want("a transmitter that comes on takes nothing", b.truth().mode, uint32(simPX4Loiter))
		b.pilotSticks(199, 0, 500, 0)
		time.Sleep(200 * time.Millisecond)
		b.want("a small move", b.truth().mode, uint32(simPX4Loiter))
		time.Sleep(2 * time.Second)
		b.pilotSticks(500, 0, 500, 0)
		time.Sleep(100 * time.Millisecond)
		b.want("a move", b.truth().mode, uint32(simPX4Posctl))
		time.Sleep(4 * time.Second)
		b.near("its sticks fly", b.truth().vn, 2.5, 0.1)
		b.pilotSticks(0, 0, 500, 0)
		time.Sleep(3 * time.Second)
		b.setMode(simPX4Loiter)
		time.Sleep(3 * time.Second)
		b.setReceiver(simReceiverLost)
		b.until("failsafe", time.Second, func(s simState) bool { return s.failsafe })
		b.want("hold", b.truth().mode, uint32(simPX4Loiter))
	})
	simOnPX4InAir(t, func(b *simBoard) { // 3: ours came first
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.setReceiver(simReceiverInHand)
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.pilotSticks(1000, 0, 500, 0)
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("a locked-out transmitter", b.truth().mode, uint32(simPX4Loiter))
	})
}

func TestPX4TellsRCChannelsOnlyWithATransmitter(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.want("interval", b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 65, 1e6), simResults(simAccepted))
		b.forget()
		b.stick(3*time.Second, sim25Hz, 0, 0, 0, 0)
		b.want("with our sticks", b.count(65), 0)
		b.want("asked for", b.long(common.MAV_CMD_REQUEST_MESSAGE, 65), simResults(simDenied))
		b.setReceiver(simReceiverIdle)
		m := simLast[*common.MessageRcChannels](b)
		b.want("throttle of an idle one", m.Chan3Raw, uint16(1000))
		b.pilotSticks(1000, -1000, 500, 0)
		m = simLast[*common.MessageRcChannels](b)
		b.want("pitch, roll and throttle", [3]uint16{m.Chan2Raw, m.Chan1Raw, m.Chan3Raw}, [3]uint16{2000, 1000, 1500})
		b.setReceiver(simReceiverLost)
		b.forget()
		time.Sleep(3 * time.Second)
		b.want("when it is lost", b.count(65), 0)
	})
}

func TestPX4AnOrderIsNoPardonBeforeTheFailsafe(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		time.Sleep(450 * time.Millisecond)
		b.setMode(simPX4Loiter) // between the last stick and its failsafe
		b.until("failsafe", time.Second, func(s simState) bool { return s.failsafe })
	})
}

func TestPX4AStreamOfNoThrottleMayGrabTheModeOnTheGround(t *testing.T) {
	grabbed := 0
	simFlight(t, simPX4, nil, func(b *simBoard) {
		for range 60 {
			b.reboot(false)
			time.Sleep(6 * time.Second)
			b.stick(500*time.Millisecond, sim25Hz, 0, 0, 0, 0)
			if b.truth().mode == simPX4Posctl {
				grabbed++
				time.Sleep(time.Second)
				b.want("arm after the stream", b.long(simArm, 1), simResults(simRejected))
				b.setMode(simPX4Loiter)
			}
			b.want("arm in LOITER", b.long(simArm, 1), simResults(simAccepted))
		}
		if grabbed < 25 || grabbed > 55 {
			t.Errorf("%d of 60 boots, want two in three", grabbed)
		}
		b.reboot(false)
		time.Sleep(6 * time.Second)
		b.stick(500*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.want("with the throttle centred", b.truth().mode, uint32(simPX4Loiter))
	})
}
