package main

import (
	"math"
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

func TestPX4ForgetsUnknownModes(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		for _, p := range [][]float64{{1, 77, 0}, {0, 4, 5}, {1, 4, 99}} {
			b.want("acks", b.long(simSetMode, p...), simResults(simAccepted, simAccepted))
			b.want("mode", b.truth().mode, uint32(simPX4Loiter))
		}
		b.want("acks of COMMAND_INT", b.exact(simSetMode, 0, 1, 4, 0, 0, 0, 0), simResults(simAccepted, simAccepted))
	})
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

func TestPX4DisarmsItselfAndNotInTheAir(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.long(simArm, 1)
		d := b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds armed", d.Seconds(), 10, 0.1)
		b.placeInAir(10)
		b.knock()
		b.want("disarm in the air", b.long(simArm, 0), simResults(simRejected))
		b.wantText("Disarming denied: not landed")
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

func TestPX4ReturnsHomeAndDisarms(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.placeAt(simPlace(40, 10))
		b.want("RTL", b.long(common.MAV_CMD_NAV_RETURN_TO_LAUNCH), simResults(simAccepted))
		b.until("disarm", 2*time.Minute, func(s simState) bool { return !s.armed })
		b.wantPlace(0, 0, 0, 1.2)
		b.want("mode", b.truth().mode, uint32(simPX4Loiter))
	})
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

func TestPX4NeedsARunningStream(t *testing.T) {
	for ahead, want := range map[time.Duration]common.MAV_RESULT{100 * time.Millisecond: simRejected, 300 * time.Millisecond: simAccepted} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(ahead, sim25Hz, 0, 0, 500, 0)
			b.want(ahead.String(), b.setMode(simPX4Posctl), simResults(simAccepted, want))
		})
	}
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
