package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// What flights on a real PX4 showed, flown again.

// A stick that PX4 does not call moving leaves the pilot's return alone; so must
// the goto that waits 2 s for its sticks.
func TestPX4PilotsRTLAfterAGotoThatWaitedForItsSticksStands(t *testing.T) {
	for after := 300 * time.Millisecond; after <= 1800*time.Millisecond; after += 300 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				p := &pilotFlight{flight: f}
				f.aloft()
				f.accepted("/mode", `{"mode":"position"}`)
				f.accepted("/input", `{"pitch":0.15,"timeout":3}`)
				time.Sleep(300 * time.Millisecond)
				p.post("/goto", "{"+at(60, 0)+"}")
				time.Sleep(after)
				p.px4Taken(simPX4RTL, moment{}, func() { f.sim.pilotMode(simPX4RTL) })
			})
		})
	}
}

// The client's first stick comes in the instant of the 200.
func TestPX4AltitudeAnswered200AndTheFirstStickStaysAltitude(t *testing.T) {
	for _, mode := range []Mode{ModeAltitude, ModeManual} {
		fly(t, simPX4, nil, func(f *flight) {
			f.aloft()
			f.accepted("/goto", `{"altitude":60,"wait":120}`)
			for try := range 12 {
				time.Sleep(time.Second + time.Duration(try)*83*time.Millisecond) // any phase of the heartbeat
				f.accepted("/mode", fmt.Sprintf(`{"mode":%q}`, mode))
				f.wantTruth()
				f.accepted("/input", `{"pitch":0.5,"throttle":0.5,"timeout":1.5}`)
				for range 10 {
					time.Sleep(100 * time.Millisecond)
					f.wantMode(mode.String())
					f.wantTruth()
				}
				f.accepted("/mode", `{"mode":"hold"}`)
			}
		})
	}
}

// A GET in the instant of a 200 shows the new mode, and the vehicle's own name.
func TestPX4AnswerIsWhatTheVehicleShows(t *testing.T) {
	for phase := range 5 {
		fly(t, simPX4, nil, func(f *flight) {
			for _, c := range []struct{ path, body, mode, vehicle string }{
				{"/takeoff", "", "takeoff", "AUTO.TAKEOFF"},
				{"/goto", "{" + at(40, 0) + "}", "hold", "AUTO.LOITER"},
				{"/mode", `{"mode":"rtl"}`, "rtl", "AUTO.RTL"},
				{"/mode", `{"mode":"hold"}`, "hold", "AUTO.LOITER"},
				{"/mode", `{"mode":"rtgs"}`, "rtgs", "AUTO.RTL"},
				{"/mode", `{"mode":"position"}`, "position", "POSCTL"},
				{"/mode", `{"mode":"altitude"}`, "altitude", "ALTCTL"},
				{"/mode", `{"mode":"manual"}`, "manual", "MANUAL"},
				{"/land", "{" + at(20, 0) + "}", "land", "AUTO.LOITER"},
				{"/goto", "{" + at(40, 0) + "}", "hold", "AUTO.LOITER"},
				{"/land", "", "land", "AUTO.LAND"},
			} {
				f.accepted(c.path, c.body)
				_, o := f.call("GET", "/mode", "")
				if o["mode"] != c.mode || o["vehicle_mode"] != c.vehicle {
					t.Errorf("right after POST %s %s: %v", c.path, c.body, o)
				}
				time.Sleep(time.Second + time.Duration(phase)*200*time.Millisecond)
				if c.path == "/takeoff" {
					time.Sleep(20 * time.Second)
				}
			}
		})
	}
}

// Hold in the middle of a climb is the pilot's; the one that ends the climb is
// its end.
func TestPX4PilotsHoldInAClimbShows(t *testing.T) {
	for _, up := range []float64{1, 8, 20, 31} { // 40 m, and its end may come 8 m below
		fly(t, simPX4, nil, func(f *flight) {
			p := &pilotFlight{flight: f}
			p.post("/takeoff", `{"altitude":40,"wait":200}`)
			f.until("climbing", time.Minute, func() bool { return f.sim.truth().alt >= up })
			p.px4Taken(simPX4Loiter, moment{}, func() { f.sim.pilotMode(simPX4Loiter) })
			f.wantMode("hold")
		})
	}
	for _, altitude := range []string{"2.5", "10", "40"} {
		fly(t, simPX4, nil, func(f *flight) {
			f.accepted("/takeoff", `{"altitude":`+altitude+`,"wait":200}`)
			f.wantMode("takeoff")
			time.Sleep(10 * time.Second)
			f.wantMode("takeoff")
			if got := f.sim.truth().mode; got != simPX4Loiter {
				t.Errorf("the vehicle is in %#x", got)
			}
		})
	}
}

// stationBeats are the heartbeats that were sent as a ground station.
func (f *flight) stationBeats() (n int) {
	for _, r := range f.sim.received() {
		if hb, ok := r.msg.(*minimal.MessageHeartbeat); ok && hb.Type == minimal.MAV_TYPE_GCS {
			n++
		}
	}
	return n
}

// Where NAV_DLL_ACT is set, or is not told, nothing may make PX4 think that it
// has a ground station: its silence would bring the drone down.
func TestPX4HearsNoGroundStationWhereItsSilenceWouldBeAFailsafe(t *testing.T) {
	for _, act := range []float64{1, 2, 3, math.NaN()} {
		fly(t, simPX4, func(s *simulator) {
			s.params[simDataLink], s.foreignGCS = act, true
			if math.IsNaN(act) {
				delete(s.params, simDataLink)
			}
		}, func(f *flight) {
			f.accepted("/takeoff", `{"wait":60}`)
			f.accepted("/mode", `{"mode":"position"}`)
			f.accepted("/goto", "{"+at(30, 0)+`,"wait":60}`)
			f.sim.change(func() { f.sim.foreignGCS = false })
			time.Sleep(30 * time.Second) // what a heartbeat would have armed
			f.wantMode("hold")
			f.wantAt(30, 0, 10, 1)
			if n := f.stationBeats(); n > 0 {
				t.Errorf("NAV_DLL_ACT %g: %d heartbeats", act, n)
			}
		})
	}
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.sim.change(func() { f.sim.params[simDataLink], f.sim.foreignGCS = 2, true }) // while it flies
		time.Sleep(stationEvery + heartbeatEvery)
		before := f.stationBeats()
		time.Sleep(10 * time.Second)
		if n := f.stationBeats(); n != before {
			t.Errorf("%d heartbeats after NAV_DLL_ACT was set", n-before)
		}
		f.wantMode("takeoff")
		f.sim.change(func() { f.sim.params[simDataLink] = 0 })
		time.Sleep(stationEvery + 10*heartbeatEvery)
		if n := f.stationBeats(); n < before+10 {
			t.Errorf("%d heartbeats after NAV_DLL_ACT is 0 again", n-before)
		}
	})
}

// A ground station's heartbeat makes two texts of PX4's own, which tell the user nothing.
func TestPX4sGroundStationLeavesNoTraceInTheMessages(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		time.Sleep(30 * time.Second)
		f.accepted("/goto", "{"+at(30, 0)+`,"wait":60}`)
		if f.stationBeats() == 0 {
			t.Error("without a ground station there are no texts")
		}
		texts := fmt.Sprint(f.status()["messages"])
		for _, hidden := range []string{"ground station lost", "GCS connection regained"} {
			if strings.Contains(texts, hidden) {
				t.Errorf("%q is shown: %s", hidden, texts)
			}
		}
	})
}

// checks are when PX4 was asked for a report of its checks.
func (f *flight) checks() (list []time.Time) {
	for _, r := range f.sim.received() {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_RUN_PREARM_CHECKS {
			list = append(list, r.at)
		}
	}
	return list
}

// A refusal alone has only "Resolve system health failures first".
func TestPX4RefusedArmingNamesEveryReason(t *testing.T) {
	const (
		gps     = "Preflight Fail: GPS fix too low"
		compass = "Preflight Fail: Compass needs calibration before it can be used for flight"
	)
	grounded := func(act float64, trouble ...simTrouble) func(*simulator) {
		return func(s *simulator) { s.trouble, s.params[simDataLink] = trouble, act }
	}
	for _, c := range []struct {
		name    string
		prepare func(*simulator)
		want    []string // in this order
	}{
		{"texts", grounded(0, simTrouble{0, gps}, simTrouble{0, compass}), []string{"Resolve system health failures first", gps, compass}},
		{"a system without a text", grounded(0, simTrouble{common.MAV_SYS_STATUS_SENSOR_BATTERY, ""}), []string{"Resolve system health failures first"}},
		{"without a ground station", grounded(2, simTrouble{common.MAV_SYS_STATUS_SENSOR_GPS, gps}), []string{"unhealthy: ", "gps"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fly(t, simPX4, c.prepare, func(f *flight) {
				for _, command := range []struct{ path, body string }{{"/takeoff", ""}, {"/mode", `{"arm":true}`}} {
					time.Sleep(20 * time.Second)
					asked := time.Now()
					o := f.refused(command.path, command.body, 409, "refused")
					if took := time.Since(asked); took > 2500*time.Millisecond {
						t.Errorf("it took %v", took)
					}
					text := o["error"].(string)
					for _, want := range c.want {
						_, rest, found := strings.Cut(text, want)
						if !found {
							t.Fatalf("%q does not name %q in its order", o["error"], want)
						}
						text = rest
					}
				}
				if n := len(f.checks()); n != 2 {
					t.Errorf("asked %d times for a report, want 2", n)
				}
			})
		})
	}
}

// A report goes to every ground station's messages too.
func TestPX4IsAskedForItsChecksSeldomAndNeverWhileArmed(t *testing.T) {
	fly(t, simPX4, func(s *simulator) { s.trouble = []simTrouble{{0, "Preflight Fail: GPS fix too low"}} }, func(f *flight) {
		for range 20 { // a client that insists
			o := f.refused("/mode", `{"arm":true}`, 409, "refused")
			if !strings.Contains(o["error"].(string), "GPS fix too low") {
				t.Errorf("no reason in %q", o["error"])
			}
			if strings.Contains(o["error"].(string), "Gimbal") {
				t.Errorf("a text of before the command is a reason: %q", o["error"])
			}
			f.sim.say(common.MAV_SEVERITY_CRITICAL, "Gimbal lost")
			time.Sleep(500 * time.Millisecond)
		}
		checks := f.checks()
		for i := 1; i < len(checks); i++ {
			if d := checks[i].Sub(checks[i-1]); d < checksEvery {
				t.Errorf("two reports %v apart", d)
			}
		}
		if len(checks) < 2 {
			t.Errorf("%d reports", len(checks))
		}
		f.sim.change(func() { f.sim.trouble = nil })
		time.Sleep(5 * time.Second)
		f.aloft()
		n := len(f.checks())
		f.failAcks(common.MAV_CMD_COMPONENT_ARM_DISARM)
		f.refused("/mode", `{"arm":true}`, 409, "refused")
		f.refused("/mode", `{"arm":false}`, 409, "refused")
		if len(f.checks()) != n {
			t.Error("asked for a report while armed")
		}
	})
}

func TestPX4RestartDisarmedIsManual(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(f *flight)
		mode   string
	}{
		{"after a landing", func(f *flight) {
			f.aloft()
			f.accepted("/land", `{"wait":60}`)
			time.Sleep(3 * time.Second)
		}, "land"},
		{"after a return", func(f *flight) {
			f.aloft()
			f.accepted("/mode", `{"mode":"rtl","wait":60}`)
			time.Sleep(3 * time.Second)
		}, "rtl"},
		{"after a takeoff that never flew", func(f *flight) {
			f.accepted("/takeoff", "")
			f.sim.pilotArm(false)
		}, "takeoff"},
		{"in a climb, and found on the ground", func(f *flight) {
			f.accepted("/takeoff", "")
			time.Sleep(5 * time.Second)
		}, "takeoff"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				c.before(f)
				f.wantMode(c.mode)
				f.sim.reboot(false)
				time.Sleep(1100 * time.Millisecond)
				for range 10 {
					f.wantMode("manual")
					time.Sleep(time.Second)
				}
				f.aloft() // and it flies as before
			})
		})
	}
}

// A failsafe may hold in the mode that the drone is in: what waits ends then too.
func TestPX4FailsafeThatHoldsEndsAGotoThatNobodyHears(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		p := &pilotFlight{flight: f}
		p.px4Holds()
		f.loseAcks(common.MAV_CMD_DO_REPOSITION)
		f.sim.change(func() { f.sim.idle = true })
		p.post("/goto", "{"+at(60, 0)+"}")
		time.Sleep(300 * time.Millisecond)
		f.sim.change(func() { f.sim.brain.(*simPX4Brain).failSafe(simPX4RTL) })
		p.wantAnswer(1100*time.Millisecond+takenAfter, "interrupted")
		since := time.Now()
		time.Sleep(10 * time.Second)
		f.wantHandsOff(since)
		f.wantMode("rtl")
	})
}

// The second leg of a landing is a landing also where none of its acks came.
func TestPX4LandingAtAPlaceThatNobodyAcknowledgesIsDoneOnTheGround(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.loseAcks(common.MAV_CMD_NAV_LAND)
		if o := f.accepted("/land", "{"+at(10, 0)+`,"wait":120}`); o["done"] != true {
			t.Errorf("answered %v", o)
		}
		f.wantMode("land")
		f.wantAt(10, 0, 0, 2)
	})
}

// ---- Whose sticks count ----

// COM_RC_IN_MODE with and without a transmitter that was on before.
func TestPX4SticksAreOursOnlyWhereTheParameterSaysSo(t *testing.T) {
	for _, c := range []struct {
		in          float64
		transmitter bool
		ours        bool
	}{
		{0, false, false}, {0, true, false}, {4, false, false}, {4, true, false},
		{1, false, true}, {1, true, true}, {6, true, true}, {8, true, true},
		{2, false, true}, {2, true, false}, {3, false, true}, {3, true, false},
		{5, false, true}, {5, true, false}, {7, false, true}, {7, true, false},
	} {
		t.Run(fmt.Sprintf("%g, transmitter %v", c.in, c.transmitter), func(t *testing.T) {
			fly(t, simPX4, func(s *simulator) {
				s.params[simStickSource] = c.in
				if c.transmitter {
					s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0}
				}
			}, func(f *flight) {
				f.aloft()
				asked := time.Now()
				code, o := f.call("POST", "/mode", `{"mode":"position"}`)
				if c.ours || c.transmitter && c.in != 4 {
					if code != 200 || f.sim.truth().mode != simPX4Posctl {
						t.Fatalf("position: %d %v", code, o)
					}
				}
				switch {
				case c.ours:
					f.accepted("/input", `{"pitch":0.5,"timeout":3}`)
					if by := f.status()["input"].(object)["by"]; by != "client" {
						t.Errorf("by %v", by)
					}
					time.Sleep(3 * time.Second)
					if f.speed() < 1 {
						t.Error("the sticks do not fly it")
					}
				case code == 200:
					o := f.refused("/input", `{"pitch":0.5}`, 409, "wrong_mode")
					if !strings.Contains(o["error"].(string), "COM_RC_IN_MODE") {
						t.Errorf("the parameter is not named: %v", o)
					}
					if by := f.status()["input"].(object)["by"]; by != "receiver" {
						t.Errorf("by %v", by)
					}
					time.Sleep(10 * time.Second)
					f.wantMode("position")
					f.wantStream(asked, nil)
				default: // nobody's sticks
					if o["code"] != "unsupported" || !strings.Contains(o["error"].(string), fmt.Sprintf("COM_RC_IN_MODE is %g", c.in)) {
						t.Errorf("position: %d %v", code, o)
					}
					if o := f.refused("/input", `{"pitch":0.5}`, 409, "wrong_mode"); !strings.Contains(o["error"].(string), "COM_RC_IN_MODE") {
						t.Errorf("the parameter is not named: %v", o)
					}
					f.wantStream(asked, nil)
				}
			})
		})
	}
}

// Before 1.17 the values 5 to 8 switch every stick off, a transmitter's and its kill
// switch included: that is told at once, and no sticks are sent.
func TestPX4BeforeOneSeventeenIsToldThatFiveToEightLeaveNoSticks(t *testing.T) {
	for _, release := range []uint32{simPX4v14, simPX4v15, simPX4v16, simPX4v17} {
		for _, in := range []float64{0, 5, 8} {
			fly(t, simPX4, func(s *simulator) {
				olderPX4(release)(s)
				s.params[simStickSource] = in
				s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0}
			}, func(f *flight) {
				dead := in >= 5 && release < simPX4v17
				told := strings.Contains(fmt.Sprint(f.status()["messages"]), "before PX4 1.17 no sticks act then, a transmitter's and its kill switch included; set it to 0")
				if told != dead {
					f.Errorf("%#x, %g: told is %v", release, in, told)
				}
				f.aloft()
				asked := time.Now()
				if dead {
					f.refused("/mode", `{"mode":"position"}`, 501, "unsupported")
					f.sim.pilotMode(simPX4Posctl) // a ground station's
					time.Sleep(time.Second)
				}
				if o := f.refused("/input", `{"pitch":0.5}`, 409, "wrong_mode"); dead && !strings.Contains(o["error"].(string), "before PX4 1.17") {
					f.Errorf("%#x, %g: %v", release, in, o)
				}
				if by := f.status()["input"].(object)["by"]; dead && by != nil {
					f.Errorf("%#x, %g: %v has the sticks", release, in, by)
				}
				f.wantStream(asked, nil)
			})
		}
	}
}

// What a transmitter's pilot loses to our sticks is told before he needs it.
func TestPX4ThatIsDeafToATransmitterWhileOurSticksComeIsToldOf(t *testing.T) {
	for in, want := range map[float64]string{1: "always", 2: "while these sticks come", 3: "until PX4 restarts", 5: "", 6: "while these sticks come"} {
		fly(t, simPX4, func(s *simulator) { s.params[simStickSource] = in }, func(f *flight) {
			deaf := func() int {
				return strings.Count(fmt.Sprint(f.status()["messages"]), "ignores a transmitter's sticks, its mode switch and its kill switch "+want)
			}
			if n := deaf(); n != 0 {
				f.Errorf("%g: told %d times before there are sticks", in, n)
			}
			f.accepted("/mode", `{"mode":"altitude"}`)
			time.Sleep(10 * time.Second)
			f.accepted("/mode", `{"mode":"altitude"}`)
			if n := deaf(); n != b2i(want != "") {
				f.Errorf("%g: told %d times", in, n)
			}
		})
	}
}

// With 2 one dropout of the transmitter would give the drone to a client, and leave the
// pilot neither sticks nor kill switch.
func TestPX4KeepsItsSticksForATransmitterThatWasOnInTheFlight(t *testing.T) {
	fly(t, simPX4, func(s *simulator) {
		s.params[simStickSource] = 2
		s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0}
	}, func(f *flight) {
		f.aloft()
		f.sim.setReceiver(simReceiverLost)
		time.Sleep(5 * time.Second)
		asked := time.Now()
		if o := f.refused("/mode", `{"mode":"position"}`, 501, "unsupported"); !strings.Contains(o["error"].(string), "was on in this flight") {
			f.Errorf("position: %v", o)
		}
		f.wantStream(asked, nil)
		f.accepted("/land", `{"wait":60}`)
		time.Sleep(2 * time.Second)
		f.accepted("/mode", `{"mode":"position"}`)
	})
}

// A refused stick mode does not make our sticks PX4's first source.
func TestPX4FirstSourceIsATransmitterWhereOurStickModeWasRefused(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.fails(common.MAV_CMD_DO_SET_MODE)
		f.refused("/mode", `{"mode":"altitude"}`, 409, "refused")
		f.sim.change(func() { f.sim.brain.(*simPX4Brain).source = nil }) // PX4 took none of them
		time.Sleep(10 * time.Second)
		f.sim.setReceiver(simReceiverInHand)
		time.Sleep(5 * time.Second)
		if o := f.refused("/input", `{"pitch":0.5}`, 409, "wrong_mode"); !strings.Contains(o["error"].(string), "COM_RC_IN_MODE is 3, and the transmitter has the sticks") {
			f.Errorf("%v", o)
		}
	})
}

// After a takeoff that was ended early PX4 stands disarmed in AUTO.TAKEOFF before
// 1.17, where it would climb as soon as it is armed.
func TestPX4IsNotArmedInAutoTakeoff(t *testing.T) {
	for _, release := range []uint32{simPX4v14, simPX4v16, simPX4v17} {
		for end, want := range map[string]string{"/land": "land", "/mode": "hold"} {
			fly(t, simPX4, olderPX4(release), func(f *flight) {
				f.accepted("/takeoff", "")
				if end == "/land" {
					time.Sleep(4 * time.Second)
					f.accepted(end, `{"wait":60}`)
				} else {
					f.accepted(end, `{"arm":false}`)
				}
				time.Sleep(time.Second)
				stays := release < simPX4v17
				if stays {
					want = "takeoff"
				}
				f.wantMode(want)
				if in := f.sim.truth().mode == simPX4Takeoff; in != stays {
					f.Fatalf("%#x: after %s in AUTO.TAKEOFF: %v", release, end, in)
				}
				f.accepted("/mode", `{"arm":true}`)
				f.wantMode("hold")
				time.Sleep(8 * time.Second)
				if s := f.sim.truth(); s.alt > 0.5 || !s.armed {
					f.Errorf("%#x: after %s an arming leads to %+v", release, end, s)
				}
			})
		}
	}
}

// Under 5 and 7 the transmitter has the first place at any moment: from then on
// the pilot flies, and a client's silence means nothing.
func TestPX4TransmitterThatComesOnLaterHasTheSticks(t *testing.T) {
	for _, in := range []float64{5, 7} {
		fly(t, simPX4, func(s *simulator) { s.params[simStickSource] = in }, func(f *flight) {
			f.aloft()
			f.accepted("/mode", `{"mode":"altitude"}`)
			f.accepted("/input", `{"pitch":0.2,"timeout":5}`)
			time.Sleep(time.Second)
			f.sim.setReceiver(simReceiverInHand)
			f.sim.pilotSticks(0, 300, 500, 0)
			time.Sleep(1100 * time.Millisecond) // RC_CHANNELS comes at 1 Hz
			o := f.refused("/input", `{"pitch":0.2}`, 409, "wrong_mode")
			if !strings.Contains(o["error"].(string), fmt.Sprintf("COM_RC_IN_MODE is %g", in)) {
				t.Errorf("the parameter is not named: %v", o)
			}
			if by := f.status()["input"].(object)["by"]; by != "receiver" {
				t.Errorf("by %v", by)
			}
			since := time.Now()
			time.Sleep(15 * time.Second)
			f.wantMode("altitude")
			f.wantHandsOff(since)
		})
	}
}

// Its first source of sticks is the first one since it started.
func TestPX4ThatRestartedHasItsFirstSourceOfSticksAnew(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		for n := 1; n <= 2; n++ {
			f.accepted("/mode", `{"mode":"altitude"}`)
			if texts := fmt.Sprint(f.status()["messages"]); strings.Count(texts, "COM_RC_IN_MODE is 3") != n {
				f.Errorf("after %d starts: %s", n, texts)
			}
			f.sim.reboot(false)
			time.Sleep(10 * time.Second)
		}
	})
}

// PX4 may start again with older firmware: until it has told its version, nobody's
// sticks act by COM_RC_IN_MODE 5.
func TestAVersionIsUnknownFromARestartOn(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.sim.change(func() { f.sim.params[simStickSource] = 5 })
		f.sim.reboot(false)
		time.Sleep(10 * time.Second)
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.fails(common.MAV_CMD_REQUEST_MESSAGE)
		f.sim.reboot(false)
		time.Sleep(10 * time.Second)
		says(t, f.refused("/mode", `{"mode":"altitude"}`, 501, "unsupported"), "before PX4 1.17")
		if v := f.status()["vehicle"].(object)["version"]; v != nil {
			t.Errorf("its version is %v", v)
		}
	})
}

// PX4 1.14 calls a failsafe that only warns CRITICAL: the landing goes on, and is done.
func TestAWarningOfAnOldPX4EndsNoLanding(t *testing.T) {
	fly(t, simPX4Old, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		w := f.waits("/land", `{"wait":60}`)
		f.until("it lands", 5*time.Second, func() bool { return f.status()["mode"] == "land" })
		f.link.mu.Lock()
		f.link.sticks.phase = stickOff // as where the board stalls
		f.link.link.move(nil)
		f.link.mu.Unlock()
		f.until("CRITICAL", 5*time.Second, func() bool { return f.status()["failsafe"] == true })
		w.want(t, 200, "")
	})
}

func TestAVersionThatWasNeverFlownIsLoggedOnce(t *testing.T) {
	for v, want := range map[uint32]int{1<<24 | 13<<16: 1, 1<<24 | 14<<16: 0, 1<<24 | 17<<16 | 5<<8: 0, 1<<24 | 18<<16: 1} {
		fly(t, simPX4, func(s *simulator) { s.version = v }, func(f *flight) {
			told := logLines(t)
			f.sim.reboot(false)
			time.Sleep(20 * time.Second)
			if n := strings.Count(told(), "never flown on this version"); n != want {
				t.Errorf("%#x is logged %d times, want %d", v, n, want)
			}
		})
	}
}

// A refused DO_SET_MODE that is repeated is acknowledged 0, 1, 0, 1: whichever of
// the acks are lost, it is never accepted.
func TestPX4RefusedModeIsNeverAcceptedWhicheverAcksAreLost(t *testing.T) {
	for lost := 1; lost < 16; lost++ {
		fly(t, simPX4, nil, func(f *flight) {
			f.aloft()
			f.sim.change(func() { f.sim.params[simStickSource] = 4 }) // mavrest has read 3
			n := -1
			f.acks(common.MAV_CMD_DO_SET_MODE, func(a *common.MessageCommandAck) []simAnswer {
				if n++; lost>>n&1 == 1 {
					return nil
				}
				return []simAnswer{{ack: a}}
			})
			code, o := f.call("POST", "/mode", `{"mode":"position"}`)
			if code != 409 && code != 504 { // one that was acknowledged is not repeated
				t.Errorf("lost %04b: %d %v", lost, code, o)
			}
			f.wantMode("takeoff")
		})
	}
}

// A mode that it is in already shows nothing new: its acks tell, though not all
// come.
func TestPX4ModeThatItIsInIsAcceptedThoughACopyIsLost(t *testing.T) {
	for lost := range 8 {
		fly(t, simPX4, nil, func(f *flight) {
			n := 0
			f.acks(common.MAV_CMD_DO_SET_MODE, func(a *common.MessageCommandAck) []simAnswer {
				if n++; n <= lost {
					return nil
				}
				return []simAnswer{{ack: a}}
			})
			asked := time.Now()
			f.accepted("/mode", `{"mode":"hold"}`)
			if took := time.Since(asked); lost < 5 && took > time.Second {
				t.Errorf("%d acks lost: it took %v", lost, took)
			}
		})
	}
}

// ---- The end of the program, and of the line ----

// The program ends in the air after sticks: what it leaves is what PX4's own
// failsafe is least surprised by.
func TestPX4SIGTERMAfterSticksLeavesTheAxesStanding(t *testing.T) {
	for _, c := range []struct {
		name  string
		bring func(f *flight)
		want  axes
	}{
		{"position", func(f *flight) {
			f.accepted("/mode", `{"mode":"position"}`)
			f.accepted("/input", `{"pitch":1,"timeout":5}`)
		}, axes{z: 500}},
		{"altitude", func(f *flight) {
			f.accepted("/mode", `{"mode":"altitude"}`)
			f.accepted("/input", `{"pitch":1,"throttle":0.7,"timeout":5}`)
		}, axes{z: 500}},
		{"manual", func(f *flight) {
			f.accepted("/mode", `{"mode":"manual"}`)
			f.accepted("/input", `{"pitch":0.4,"throttle":0.55,"timeout":5}`)
		}, axes{z: 550}},
		{"hold after position", func(f *flight) {
			f.accepted("/mode", `{"mode":"position"}`)
			f.accepted("/input", `{"pitch":1,"timeout":0.5}`)
			f.accepted("/mode", `{"mode":"hold"}`)
		}, axes{z: 500}},
		{"a pilot's hold over the client's sticks", func(f *flight) {
			f.accepted("/mode", `{"mode":"position"}`)
			f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
			time.Sleep(2500 * time.Millisecond)
			f.sim.pilotMode(simPX4Loiter)
			time.Sleep(1500 * time.Millisecond)
		}, axes{x: 300, z: 500}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				f.aloft()
				f.accepted("/goto", `{"altitude":40,"wait":100}`)
				c.bring(f)
				time.Sleep(500 * time.Millisecond)
				ends := time.Now()
				f.stop()
				time.Sleep(100 * time.Millisecond)
				if last, ok := f.streamed(); !ok || last != c.want {
					t.Errorf("the last sticks are %v, want %v", last, c.want)
				}
				f.wantHandsOff(ends)
				time.Sleep(2 * time.Second)
				if s := f.sim.truth(); s.mode != simPX4Loiter || !s.failsafe {
					t.Errorf("PX4 does not hold by its own failsafe: %+v", s)
				}
				time.Sleep(5 * time.Second)
				if s := f.sim.truth(); s.mode != simPX4RTL {
					t.Errorf("PX4 does not return after it: %+v", s)
				}
			})
		})
	}
}

// ---- Where a hold is ----

// back is how far the vehicle comes back in a while from the furthest that it
// came along its way, in metres, and whether it stands at the end.
func (f *flight) back(along func(s simState) float64) (metres float64) {
	furthest := along(f.sim.truth())
	for range 300 {
		time.Sleep(100 * time.Millisecond)
		furthest = max(furthest, along(f.sim.truth()))
	}
	return furthest - along(f.sim.truth())
}

func TestPX4HoldIsWhereItCanStop(t *testing.T) {
	north := func(s simState) float64 { n, _ := simMetres(s.lat, s.lon); return n }
	up := func(s simState) float64 { return s.alt }
	for _, c := range []struct {
		name  string
		bring func(f *flight)
		speed float64
		along func(s simState) float64
	}{
		{"2 m/s", func(f *flight) { f.accepted("/goto", "{"+at(300, 0)+`,"speed":2}`) }, 2, north},
		{"5 m/s", func(f *flight) { f.accepted("/goto", "{"+at(300, 0)+`,"speed":5}`) }, 5, north},
		{"8 m/s", func(f *flight) { f.accepted("/goto", "{"+at(300, 0)+`,"speed":8}`) }, 8, north},
		{"12 m/s", func(f *flight) { f.accepted("/goto", "{"+at(500, 0)+`,"speed":12}`) }, 12, north},
		{"a climb", func(f *flight) { f.accepted("/goto", `{"altitude":60}`) }, 0, up},
		{"a takeoff", func(f *flight) { f.accepted("/takeoff", `{"altitude":80}`) }, 0, up},
		{"a return", func(f *flight) {
			f.accepted("/goto", "{"+at(-200, 0)+`,"altitude":40,"wait":200}`)
			f.accepted("/mode", `{"mode":"rtl"}`)
		}, 5, north},
	} {
		t.Run(c.name, func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				f.aloft()
				c.bring(f)
				time.Sleep(8 * time.Second)
				if v := f.speed(); math.Abs(v-c.speed) > 0.3 {
					t.Fatalf("it flies %.1f m/s", v)
				}
				f.accepted("/mode", `{"mode":"hold"}`)
				if came := f.back(c.along); came > max(1, 0.085*c.speed*c.speed) { // as measured
					t.Errorf("it came back %.1f m", came)
				}
				if f.speed() > 0.1 {
					t.Errorf("it does not stand: %.1f m/s", f.speed())
				}
				f.wantMode("hold")
				if d := f.status()["done"]; d != true {
					t.Errorf("done is %v", d)
				}
			})
		})
	}
}

// PX4 misses the sticks of the flight before 0.6 s after they stop; armed before
// that, it is a failsafe.
func TestPX4TakeoffRightAfterAFlightWithSticksFlies(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.accepted("/takeoff", `{"altitude":5,"wait":30}`)
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":0.2}`)
		f.accepted("/mode", `{"mode":"hold","wait":20}`)
		f.accepted("/land", `{"wait":60}`)
		f.accepted("/takeoff", `{"altitude":5,"wait":30}`)
		time.Sleep(15 * time.Second)
		f.wantMode("takeoff")
		if s := f.status(); s["failsafe"] != false || s["in_air"] != true {
			f.Errorf("failsafe %v, in the air %v", s["failsafe"], s["in_air"])
		}
	})
}

// A goto that waits for its sticks is no answer for a vehicle that was disarmed
// meanwhile: it would accept it and not fly.
func TestPX4GotoOfAVehicleThatWasDisarmedIsInterrupted(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.accepted("/takeoff", `{"altitude":3,"wait":30}`)
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":0.5}`)
		sent := len(f.commands())
		var client sync.WaitGroup
		client.Go(func() { f.refused("/goto", "{"+at(30, 0)+"}", 409, "interrupted") })
		time.Sleep(800 * time.Millisecond)
		f.sim.pilotArm(false)
		client.Wait()
		if got := f.commands()[sent:]; len(got) != 0 {
			f.Errorf("sent %q", got)
		}
	})
}

// A low takeoff does not excuse a pilot's Hold on the ground.
func TestPX4PilotsHoldInALowTakeoffShows(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.accepted("/takeoff", `{"altitude":2}`)
		time.Sleep(1500 * time.Millisecond)
		if h := f.sim.truth().alt; h > 0.9 {
			t.Fatalf("it is %.1f m high already", h)
		}
		f.sim.pilotMode(px4Custom(4, 3))
		time.Sleep(2 * time.Second)
		f.wantMode("hold")
	})
	fly(t, simPX4, nil, func(f *flight) {
		f.accepted("/takeoff", `{"altitude":2,"wait":30}`)
		time.Sleep(5 * time.Second)
		f.wantMode("takeoff") // its own hold at the end
		if name := f.status()["vehicle_mode"]; name != "AUTO.LOITER" {
			f.Errorf("it is in %v", name)
		}
	})
}

// A takeoff that is refused is taken back, and the next one is not told that
// somebody else did it: a script may try until it is accepted.
func TestPX4TakeoffIsTriedUntilItIsArmable(t *testing.T) {
	fly(t, simPX4, func(s *simulator) { s.armableAfter = time.Hour }, func(f *flight) {
		for range 10 {
			f.refused("/takeoff", "", 409, "refused")
			f.wantMode("manual")
		}
	})
}

// px4Stick brings the flight into a stick mode, with the client's sticks over
// and standing for a while, so that PX4 does not call them moving.
func px4Stick(mode, input string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.aloft()
		p.accepted("/mode", `{"mode":"`+mode+`"}`)
		if input != "" {
			p.accepted("/input", input)
		}
		time.Sleep(then)
	}
}

// px4Holds takes off and holds.
func (p *pilotFlight) px4Holds() {
	p.Helper()
	p.aloft()
	p.accepted("/mode", `{"mode":"hold"}`)
	time.Sleep(time.Second)
}

// px4Entering brings the flight to a while after a stick mode was asked for.
func px4Entering(mode string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.px4Holds()
		p.post("/mode", `{"mode":"`+mode+`"}`)
		time.Sleep(then)
	}
}

// px4Entered brings the flight to 1 ms after the second ack of a stick mode,
// which is not in force yet.
func px4Entered(mode string) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.px4Holds()
		p.acked(common.MAV_CMD_DO_SET_MODE, 2, func() { p.post("/mode", `{"mode":"`+mode+`"}`) }, time.Millisecond)
	}
}

// px4UnderWay brings the flight to a while into a manoeuvre that was accepted,
// and whose end the client waits for.
func px4UnderWay(path, body string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		if path != "/takeoff" {
			p.aloft()
		}
		p.post(path, body)
		time.Sleep(then)
	}
}

// px4Leaving brings the flight to a while after a command that leads out of a
// stick mode with moved sticks.
func px4Leaving(mode, path, body string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.aloft()
		p.accepted("/mode", `{"mode":"`+mode+`"}`)
		p.accepted("/input", `{"pitch":0.5,"throttle":0.5,"timeout":5}`)
		time.Sleep(500 * time.Millisecond)
		p.post(path, body)
		time.Sleep(then)
	}
}

var px4Moments = []moment{
	{
		name: "takeoff, before it is armed", mode: "takeoff", waiting: true, disarmed: true,
		bring: func(p *pilotFlight) {
			p.sim.pilotMode(simPX4Manual)
			time.Sleep(time.Second)
			p.acked(common.MAV_CMD_DO_SET_MODE, 2, func() { p.post("/takeoff", "") }, time.Millisecond)
		},
		explained: []uint32{simPX4Loiter, simPX4Manual},
	},
	{
		name: "takeoff, armed and on the ground", mode: "takeoff",
		bring: func(p *pilotFlight) {
			p.acked(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, func() { p.post("/takeoff", `{"wait":60}`) }, 500*time.Millisecond)
		},
		explained: []uint32{simPX4Takeoff},
	},
	{
		name: "climb", mode: "takeoff",
		bring:     px4UnderWay("/takeoff", `{"altitude":40,"wait":120}`, 10*time.Second),
		explained: []uint32{simPX4Takeoff},
	},
	{
		name: "goto under way", mode: "hold",
		bring:     px4UnderWay("/goto", "{"+at(60, 0)+`,"wait":120}`, 4*time.Second),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "goto, between its ack and its mode", mode: "hold", waiting: true, acked: true,
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/mode", `{"mode":"rtl"}`)
			time.Sleep(time.Second)
			p.acked(common.MAV_CMD_DO_REPOSITION, 1, func() { p.post("/goto", "{"+at(60, 0)+"}") }, 4*time.Millisecond)
		},
		explained: []uint32{simPX4Loiter, simPX4RTL},
	},
	{
		name: "hold", mode: "hold",
		bring:     func(p *pilotFlight) { p.px4Holds() },
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "hold from speed", mode: "hold",
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/goto", "{"+at(200, 0)+"}")
			time.Sleep(5 * time.Second)
			p.post("/mode", `{"mode":"hold","wait":60}`)
			time.Sleep(500 * time.Millisecond)
		},
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "land here", mode: "land",
		bring:     px4UnderWay("/land", `{"wait":120}`, 4*time.Second),
		explained: []uint32{simPX4Land},
	},
	{
		name: "land at a place, on the way", mode: "land",
		bring:     px4UnderWay("/land", "{"+at(60, 0)+`,"wait":200}`, 4*time.Second),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "land at a place, at the place", mode: "land",
		bring: func(p *pilotFlight) { // 0.1 s before the second leg may begin
			p.aloft()
			p.post("/land", "{"+at(30, 0)+`,"wait":200}`)
			p.until("at the place", time.Minute, func() bool {
				n, _ := simMetres(p.sim.truth().lat, p.sim.truth().lon)
				return n > 27.95 && p.speed() < 2.5
			})
		},
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "land at a place, landing", mode: "land",
		bring: func(p *pilotFlight) {
			p.aloft()
			p.acked(common.MAV_CMD_DO_SET_MODE, 1, func() { p.post("/land", "{"+at(10, 0)+`,"wait":200}`) }, time.Second)
		},
		explained: []uint32{simPX4Land},
	},
	{
		name: "rtl", mode: "rtl",
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/goto", "{"+at(60, 0)+`,"wait":60}`)
			p.post("/mode", `{"mode":"rtl","wait":200}`)
			time.Sleep(4 * time.Second)
		},
		explained: []uint32{simPX4RTL},
	},
	{
		name: "position, in its lead", mode: "position", waiting: true,
		bring:     px4Entering("position", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "altitude, in its lead", mode: "altitude", waiting: true,
		bring:     px4Entering("altitude", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "manual, in its lead", mode: "manual", waiting: true,
		bring:     px4Entering("manual", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "position, between its ack and its mode", mode: "position", waiting: true, acked: true, bring: px4Entered("position"),
		explained: []uint32{simPX4Posctl, simPX4Loiter},
	},
	{
		name: "altitude, between its ack and its mode", mode: "altitude", waiting: true, acked: true, bring: px4Entered("altitude"),
		explained: []uint32{simPX4Altctl, simPX4Loiter},
	},
	{
		name: "manual, between its ack and its mode", mode: "manual", waiting: true, acked: true, bring: px4Entered("manual"),
		explained: []uint32{simPX4Manual, simPX4Loiter},
	},
	{
		name: "position, its sticks over", mode: "position",
		bring:     px4Stick("position", `{"pitch":0.5,"timeout":5}`, 2500*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "altitude, its sticks over", mode: "altitude",
		bring:     px4Stick("altitude", `{"pitch":0.3,"throttle":0.6,"timeout":5}`, 2500*time.Millisecond),
		explained: []uint32{simPX4Altctl},
	},
	{
		name: "manual, its sticks over", mode: "manual",
		bring:     px4Stick("manual", `{"pitch":0.3,"throttle":0.55,"timeout":5}`, 2500*time.Millisecond),
		explained: []uint32{simPX4Manual},
	},
	{
		name: "position, centred", mode: "position", bring: px4Stick("position", "", 4*time.Second),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "altitude, its sticks expired", mode: "altitude",
		bring:     px4Stick("altitude", `{"pitch":0.3,"timeout":0.5}`, 1500*time.Millisecond),
		explained: []uint32{simPX4Altctl},
	},
	{
		name: "goto after position, sticks standing", mode: "hold", waiting: true,
		bring:     px4Leaving("position", "/goto", "{"+at(60, 0)+"}", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "land after position, sticks standing", mode: "land", waiting: true,
		bring:     px4Leaving("position", "/land", "", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "goto after altitude, in the POSCTL leg", mode: "hold", waiting: true,
		bring:     px4Leaving("altitude", "/goto", "{"+at(60, 0)+"}", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "hold after manual, before POSCTL is in force", mode: "hold", waiting: true,
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/mode", `{"mode":"manual"}`)
			p.accepted("/input", `{"pitch":0.3,"throttle":0.5,"timeout":5}`)
			time.Sleep(500 * time.Millisecond)
			p.acked(common.MAV_CMD_DO_SET_MODE, 2, func() { p.post("/mode", `{"mode":"hold"}`) }, time.Millisecond)
		},
		explained: []uint32{simPX4Posctl, simPX4Manual},
		without:   []uint32{simPX4Loiter, simPX4RTL, simPX4Land}, // the sticks that moved just now undo them
	},
	{
		name: "a silent client's hold, in the POSCTL leg", mode: "hold", silent: true,
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/mode", `{"mode":"altitude"}`)
			p.accepted("/input", `{"pitch":0.3,"timeout":5}`)
			p.until("leaving altitude", 10*time.Second, func() bool { return p.sim.truth().mode == simPX4Posctl })
			time.Sleep(1700 * time.Millisecond)
		},
		explained: []uint32{simPX4Posctl},
	},
}

var px4PilotModes = []uint32{
	simPX4Manual, simPX4Altctl, simPX4Posctl, simPX4Loiter, simPX4RTL, simPX4Land, simPX4Stabilized,
}

// px4Except are the moments but those that a test leaves out.
func px4Except(out func(m moment) bool) []moment {
	return slices.DeleteFunc(slices.Clone(px4Moments), out)
}

// px4Taken is what must and must not follow when somebody takes the drone into a
// mode, before a client asks for anything again.
func (p *pilotFlight) px4Taken(custom uint32, m moment, take func()) {
	p.Helper()
	before, streaming := p.streamed()
	taken := time.Now()
	take()
	at := p.reported(custom, taken, 1100*time.Millisecond)
	p.wantTruth()
	soon := time.Millisecond
	switch {
	case m.acked || m.waiting: // it waits for what the vehicle does with the step on the wire
		soon = showWithin + time.Millisecond
	case m.disarmed: // it waits for the mode of its first step
		soon = showWithin + 100*time.Millisecond
	case custom == simPX4RTL && m.mode == "rtl": // only a look at the manoeuvre tells
		soon = watchEvery + time.Millisecond
	}
	p.wantNoInput()
	p.wantAnswer(soon+takenAfter, "interrupted")
	if done := p.status()["done"]; done != nil {
		p.Errorf("done is %v", done)
	}
	time.Sleep(12 * time.Second)
	p.wantHandsOff(at)
	p.wantTruth()
	if !streaming {
		p.wantStream(at.Add(time.Millisecond), nil)
		return
	}
	want := before
	if mode, _ := px4.reported(custom); mode == ModeManual {
		want = axes{z: before.z}
	} else if mode.flownBySticks() {
		want = axes{z: 500}
	}
	p.wantStream(at.Add(time.Millisecond), &want)
}

func TestPX4PilotsSwitchTakesTheDroneAtEveryMoment(t *testing.T) {
	type switched struct {
		custom uint32
		moment
	}
	var cases []switched
	for _, custom := range px4PilotModes {
		for _, m := range px4Except(func(m moment) bool {
			return slices.Contains(m.explained, custom) || slices.Contains(m.without, custom)
		}) {
			cases = append(cases, switched{custom, m})
		}
	}
	for _, c := range sampled(t, cases, len(cases)/3,
		func(c switched) any { return c.name },
		func(c switched) any { return [2]any{c.mode, c.custom} },
	) {
		_, name := px4.reported(c.custom)
		t.Run(name, func(t *testing.T) {
			atMoments(t, simPX4, []moment{c.moment}, nil, func(p *pilotFlight, m moment) {
				p.px4Taken(c.custom, m, func() { p.sim.pilotMode(c.custom) })
			})
		})
	}
}

// A pilot who sets what is commanded anyway, or what it was before, can't be
// told from the command: it goes on.
func TestPX4PilotsSwitchToTheCommandedModeEndsNothing(t *testing.T) {
	for _, custom := range px4PilotModes {
		_, name := px4.reported(custom)
		t.Run(name, func(t *testing.T) {
			moments := px4Except(func(m moment) bool { return !slices.Contains(m.explained, custom) })
			atMoments(t, simPX4, moments, nil, func(p *pilotFlight, m moment) {
				p.sim.pilotMode(custom)
				if mode, _ := px4.reported(custom); (m.acked || m.disarmed && custom != simPX4Loiter) && mode.String() != m.mode { // it never came into force
					if p.answered(5 * time.Minute); p.order.code == 200 {
						p.Errorf("answered %v", p.order.body)
					}
					p.wantTruth()
					return
				}
				if p.order != nil && p.answered(5 * time.Minute).body["code"] == "interrupted" && strings.Contains(m.name, "is in force") { // CURRENT_MODE showed it before
					p.wantTruth()
					return
				}
				p.wantAnswer(5*time.Minute, "")
				mode, _ := parseMode(m.mode)
				if mode.flownBySticks() && custom == entered[px4][mode] {
					time.Sleep(1100 * time.Millisecond) // and in a while comes a silent client's hold
					p.wantMode(m.mode)
					return
				}
				time.Sleep(followTime + 2*time.Second) // the autopilot does not follow what the pilot undid
				if m.waiting && p.sim.truth().mode == custom {
					p.wantTruth()
				} else {
					p.wantMode(m.mode)
				}
			})
		})
	}
}

func TestPX4FailsafeTakesTheDroneAtEveryMoment(t *testing.T) {
	moments := px4Except(func(m moment) bool {
		return m.disarmed || slices.Contains(m.without, simPX4RTL) || m.waiting && slices.Contains(m.explained, simPX4RTL)
	})
	atMoments(t, simPX4, moments, nil, func(p *pilotFlight, m moment) {
		p.px4Taken(simPX4RTL, m, p.sim.failsafeReturn)
		if o := p.status(); o["failsafe"] != o["armed"] {
			p.Errorf("failsafe is %v", o["failsafe"])
		}
	})
}

// After a restart in flight nothing that was commanded before stands.
func TestPX4RestartEndsEverythingAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Moments, nil, func(p *pilotFlight, m moment) {
		p.sim.reboot(true)
		time.Sleep(200 * time.Millisecond)
		at := time.Now()
		p.wantAnswer(showWithin, "interrupted")
		if m.disarmed {
			p.wantMode("manual")
		} else {
			p.wantTruth()
			p.wantNoInput()
		}
		time.Sleep(12 * time.Second)
		p.wantHandsOff(at)
		p.wantStream(at, nil)
	})
}

// The pilot moves his transmitter's sticks in a mode without sticks: PX4 gives
// him POSCTL.
func TestPX4TransmittersSticksTakeTheDroneAtEveryMoment(t *testing.T) {
	hand := func(s *simulator) {
		s.params[simStickSource] = 5
		s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0}
	}
	moments := px4Except(func(m moment) bool {
		mode, _ := parseMode(m.mode)
		return m.waiting || mode.flownBySticks() || m.silent
	})
	atMoments(t, simPX4, moments, hand, func(p *pilotFlight, m moment) {
		p.px4Taken(simPX4Posctl, m, func() { p.sim.pilotSticks(600, 0, 500, 0) })
	})
}

// Arming ends no manoeuvre, and of what still waits no landing, return or hold. A
// disarming in the air ends nothing.
func TestPX4SecondClientEndsOnlyWhatWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		order func(p *pilotFlight)
	}{
		{"arming", func(p *pilotFlight) { p.accepted("/mode", `{"arm":true}`) }},
		{"refused disarming", func(p *pilotFlight) { p.refused("/mode", `{"arm":false}`, 409, "refused") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			moments := px4Except(func(m moment) bool {
				return m.disarmed || m.name == "takeoff, armed and on the ground" || // it is not refused there
					m.name == "goto, between its ack and its mode" // it is over before the arming has its turn
			})
			atMoments(t, simPX4, moments, nil, func(p *pilotFlight, m moment) {
				c.order(p)
				switch {
				case m.waiting && c.name == "arming" && !slices.ContainsFunc([]string{"hold", "land", "rtl"}, func(s string) bool { return strings.HasPrefix(m.name, s) }):
					p.wantAnswer(newerWait, "superseded")
					time.Sleep(7 * time.Second)
					p.wantTruth()
				case m.silent:
					time.Sleep(7 * time.Second)
					p.wantMode("hold")
				default:
					if !m.waiting {
						p.wantMode(m.mode)
					}
					p.wantAnswer(5*time.Minute, "")
					p.wantMode(m.mode)
				}
			})
		})
	}
}

// The vehicle is not heard for 5 s. What it does goes on, and what waited is not
// sent blindly, but for a landing.
func TestPX4LostLinkAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Moments, nil, func(p *pilotFlight, m moment) {
		began := time.Now()
		p.sim.change(func() { p.sim.muted = true })
		time.Sleep(5 * time.Second)
		if p.status()["online"] != false {
			p.Error("still online")
		}
		p.sim.change(func() { p.sim.muted = false })
		blind := p.commandsSince(began)
		back := time.Now()
		time.Sleep(1100 * time.Millisecond)
		owed := strings.HasSuffix(m.name, "its sticks over") && m.mode != "position" // a hold, for its silent client
		if list := p.commandsSince(back); len(list) > 0 && !owed && m.name != "land at a place, at the place" {
			p.Errorf("sent when it is back: %q", list)
		}
		switch {
		case m.acked: // an ack alone is no answer
			p.wantAnswer(time.Millisecond, "no_ack")
			p.wantMode(m.mode)
		case m.waiting:
			p.wantAnswer(time.Millisecond, "no_ack")
			if p.sim.truth().armed { // else the first report changes nothing (docs/design.md, rule 1)
				p.wantTruth()
			}
		case m.silent:
			p.wantMode("position")
		case owed:
			p.wantTruth()
		default:
			p.wantMode(m.mode)
			p.wantAnswer(5*time.Minute, "") // its client waits on
		}
		if len(blind) > 0 {
			p.Errorf("sent to a vehicle that is not heard: %q", blind)
		}
	})
}

// Whole flights about whose the sticks are (docs/design.md, "Who has the sticks").

// told checks how many messages hold some words.
func (f *flight) told(words string, want int) {
	f.Helper()
	if texts := fmt.Sprint(f.status()["messages"]); strings.Count(texts, words) != want {
		f.Errorf("%q was told %d times, want %d: %v", words, strings.Count(texts, words), want, texts)
	}
}

// keepsMoving sends a client's sticks at 10 Hz, each a little further, until one is
// refused or the time is over. It returns the refusal.
func (f *flight) keepsMoving(d time.Duration) (refusal object) {
	f.Helper()
	for n := range int(d / (100 * time.Millisecond)) {
		pitch := 0.9 * math.Sin(float64(n))
		code, o := f.call("POST", "/input", fmt.Sprintf(`{"pitch":%.2f,"throttle":0.5,"timeout":1}`, pitch))
		if code != 200 {
			return o
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// A pilot switches the mode while a client moves the sticks, and PX4 takes his mode
// back within 50 ms. The sticks end, the drone hovers, and his next switch stands.
func TestPX4PilotsSwitchThatOurSticksUndidEndsThem(t *testing.T) {
	for _, from := range []string{"position", "altitude"} {
		for _, pilots := range []uint32{simPX4RTL, simPX4Land, simPX4Loiter} {
			_, name := px4.reported(pilots)
			t.Run(from+" "+name, func(t *testing.T) {
				fly(t, simPX4, nil, func(f *flight) {
					f.aloft()
					f.accepted("/mode", `{"mode":"`+from+`"}`)
					f.keepsMoving(2 * time.Second)
					f.sim.pilotMode(pilots)
					switched := time.Now()
					refusal := f.keepsMoving(time.Second)
					if stood := time.Since(switched); refusal["code"] != "wrong_mode" || stood > 200*time.Millisecond {
						t.Fatalf("%v after the switch the client's input was answered %v", stood, refusal)
					}
					time.Sleep(100 * time.Millisecond) // the input may have come before PX4 undid it
					if f.sim.truth().mode != simPX4Posctl {
						t.Fatalf("PX4 is in mode %#x", f.sim.truth().mode)
					}
					f.told("undid the pilot's switch to "+name, 1)
					f.told("COM_RC_OVERRIDE 0", 1)
					time.Sleep(time.Until(switched.Add(1900 * time.Millisecond)))
					f.wantHandsOff(switched)
					f.wantMode("position")
					if last, ok := f.streamed(); !ok || last != (axes{z: 500}) {
						t.Errorf("the sticks are %v", last)
					}
					time.Sleep(5 * time.Second)
					f.wantHandsOff(switched)
					f.wantMode("position")
					f.sim.pilotMode(pilots)
					time.Sleep(5 * time.Second)
					f.wantTruth()
					if mode := f.sim.truth().mode; mode != pilots {
						t.Errorf("later PX4 is in mode %#x", mode)
					}
				})
			})
		}
	}
}

// With COM_RC_OVERRIDE 0 nothing is undone. The sticks come to rest all the same.
func TestPX4ThatSticksDoNotOverrideIsLeftAsEveryOtherOne(t *testing.T) {
	fly(t, simPX4, func(s *simulator) { s.params["COM_RC_OVERRIDE"] = 0 }, func(f *flight) {
		f.aloft()
		for _, mode := range []string{"position", "altitude"} {
			f.accepted("/mode", `{"mode":"`+mode+`"}`)
			f.keepsMoving(time.Second)
			f.accepted("/mode", `{"mode":"hold"}`)
			time.Sleep(3 * time.Second)
			if f.sim.truth().mode != simPX4Loiter {
				t.Errorf("PX4 is in mode %#x", f.sim.truth().mode)
			}
		}
		f.accepted("/mode", `{"mode":"position"}`)
		f.keepsMoving(time.Second)
		f.sim.pilotMode(simPX4RTL)
		f.keepsMoving(time.Second)
		time.Sleep(3 * time.Second)
		if f.sim.truth().mode != simPX4RTL {
			t.Errorf("the pilot's RTL became %#x", f.sim.truth().mode)
		}
		f.told("undid", 0)
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":0.5,"timeout":5}`)
		f.sim.pilotMode(simPX4RTL)
		time.Sleep(time.Second)
		asked := time.Now()
		f.accepted("/mode", `{"mode":"altitude"}`)
		if sent := f.commandsSince(asked); strings.Count(fmt.Sprint(sent), "SET_MODE") != 2 || time.Since(asked) < stickStill {
			t.Errorf("from RTL, with sticks off centre, it does not come to rest in POSCTL: %q", sent)
		}
	})
}

// Another program's sticks that end leave the drone to an idle receiver: it would
// sink into the ground at 2.4 m/s.
func TestCopterDoesNotSinkWhenAnotherProgramsSticksEnd(t *testing.T) {
	foreign := &common.MessageManualControl{Target: 1, Y: 300, Z: 500}
	for _, mode := range []string{"position", "altitude"} {
		t.Run(mode, func(t *testing.T) {
			arduFly(t, simReceiverIdle, func(f *ardu) {
				f.moving(mode, `{"timeout":0.5}`)
				time.Sleep(2 * time.Second)
				if mode == "altitude" {
					f.accepted("/input", `{"timeout":5}`)
					time.Sleep(2 * time.Second)
				}
				for range 250 { // a joystick at 50 Hz
					f.sim.change(func() { f.sim.brain.sticks(255, foreign) })
					f.sim.emit(255, 190, foreign)
					time.Sleep(20 * time.Millisecond)
				}
				f.told("another program", 1)
				height := f.sim.truth().alt
				ended := time.Now()
				time.Sleep(20 * time.Second)
				if s := f.sim.truth(); s.alt < height-5 || !s.armed {
					t.Errorf("20 s later it is at %.1f m, of %.1f", s.alt, height)
				}
				f.told("another program", 1)
				if sent, _ := f.sent(ended); len(sent) > 0 {
					t.Errorf("commanded %q", sent)
				}
				f.refused("/input", `{"pitch":1}`, 409, "wrong_mode")
				f.accepted("/mode", `{"mode":"position"}`)
				f.accepted("/input", `{"pitch":1}`)
			})
		})
	}
}

// A stick mode is set while another program's sticks fly.
func TestAStickModeUnderAnotherProgramsSticksIsSafeWhenTheyEnd(t *testing.T) {
	foreign := &common.MessageManualControl{Target: 1, Y: 100, Z: 500}
	arduFly(t, simReceiverIdle, func(f *ardu) {
		f.hover()
		fly := func(times int) {
			for range times {
				f.sim.change(func() { f.sim.brain.sticks(255, foreign) })
				f.sim.emit(255, 190, foreign)
				time.Sleep(20 * time.Millisecond)
			}
		}
		done := make(chan struct{})
		go func() { fly(250); close(done) }()
		time.Sleep(time.Second)
		f.accepted("/mode", `{"mode":"position"}`)
		if o := f.refused("/input", `{"pitch":1}`, 409, "wrong_mode"); !strings.Contains(o["error"].(string), "another program") {
			t.Errorf("the refusal: %v", o)
		}
		<-done
		time.Sleep(20 * time.Second)
		if s := f.sim.truth(); s.alt < 15 {
			t.Errorf("it sank to %.1f m", s.alt)
		}
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":1}`) // nobody else has them any more
	})
}

// The pilot raises his throttle, and his mode switch leads to the mode that is in
// force already: no report changes. His switch shows in channel 5, though our stream
// hides his sticks.
func TestCoptersPilotTakesItByASwitchToTheModeInForce(t *testing.T) {
	for _, c := range []struct {
		name, mode, sticks string
		custom             uint32
	}{
		{"position, nobody's", "position", "", 5},
		{"position, the client's", "position", `{"roll":0.3,"timeout":5}`, 5},
		{"altitude, the client's", "altitude", `{"roll":0.3,"timeout":5}`, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			arduFly(t, simReceiverIdle, func(f *ardu) {
				f.hover()
				f.accepted("/mode", `{"mode":"`+c.mode+`"}`)
				if c.sticks != "" {
					f.accepted("/input", c.sticks)
				}
				time.Sleep(2 * time.Second)
				f.sim.pilotSticks(1000, 0, 500, 0)
				f.sim.pilotSwitch(1100, c.custom)
				began := time.Now()
				time.Sleep(400 * time.Millisecond) // RC_CHANNELS comes at 4 Hz
				if f.streams() {
					t.Fatal("our stream goes on")
				}
				f.told("a switch of the transmitter moved", 1)
				time.Sleep(4 * time.Second)
				if s := f.sim.truth(); s.vn < 1.5 || s.mode != c.custom {
					t.Errorf("the pilot's full stick flies %.1f m/s in mode %d", s.vn, s.mode)
				}
				if o := f.status()["input"].(object); o["by"] != "receiver" || o["active"] != false {
					t.Errorf("input %v", o)
				}
				f.refused("/input", `{"pitch":1}`, 409, "wrong_mode")
				sent, sticks := f.sent(began)
				for _, a := range sticks[min(len(sticks), 15):] { // of before the report
					if a != released {
						t.Errorf("sent %v", a)
					}
				}
				if len(sent) > 0 {
					t.Errorf("sent %q", sent)
				}
			})
		})
	}
}

// He flips his switch with the throttle down, and raises it then: his sticks are alive
// from his switch on. A switch by a ground station leaves our centred ones.
func TestCoptersPilotFliesFromHisSwitchOnWhateverHisThrottleIs(t *testing.T) {
	for _, transmitter := range []bool{true, false} {
		arduFly(t, simReceiverIdle, func(f *ardu) {
			f.hover()
			f.accepted("/mode", `{"mode":"position"}`)
			f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
			time.Sleep(4 * time.Second)
			if transmitter {
				f.sim.pilotSwitch(1100, 2)
			} else {
				f.sim.pilotMode(2)
			}
			time.Sleep(400 * time.Millisecond) // RC_CHANNELS comes at 4 Hz
			if f.streams() == transmitter {
				t.Fatalf("our stream goes on: %v", !transmitter)
			}
			want := map[bool]string{true: "receiver", false: "mavrest"}[transmitter]
			if o := f.status()["input"].(object); o["by"] != want {
				t.Errorf("input %v, want by %s", o, want)
			}
			if transmitter {
				f.sim.pilotSticks(1000, 0, 500, 0)
			}
			began := time.Now()
			time.Sleep(5 * time.Second)
			if s := f.sim.truth(); s.alt < 15 || transmitter && s.vn < 1.5 {
				t.Errorf("it is at %.1f m, %.1f m/s north", s.alt, s.vn)
			}
			if sent, _ := f.sent(began); len(sent) > 0 {
				t.Errorf("sent %q", sent)
			}
		})
	}
}

// A restarted PX4 may call its checks passed for 0.9 s before its first real report.
func TestArmableIsTrueAfterARestartWhenATakeoffIsAccepted(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		if f.status()["armable"] != true {
			t.Fatal("it is not armable before")
		}
		f.sim.reboot(false)
		f.sim.change(func() { f.sim.brain.(*simPX4Brain).glimpses = true })
		f.until("the restart is noticed", 2*time.Second, func() bool { return f.status()["armable"] == nil })
		if s := f.status(); s["unhealthy"] != nil {
			t.Errorf("unhealthy is %v", s["unhealthy"])
		}
		f.until("armable again", 10*time.Second, func() bool { return f.status()["armable"] == true })
		f.accepted("/takeoff", "")
	})
}

func TestLostSticksOfTheLinkNeverHappenInAGoto(t *testing.T) {
	// From the first stick until disarmed PX4 wants the stream, in a hold too.
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.2}`)
		time.Sleep(time.Second)
		f.accepted("/goto", "{"+at(30, 0)+`,"altitude":20}`)
		began := time.Now()
		time.Sleep(60 * time.Second)
		f.wantMode("hold")
		f.wantAt(30, 0, 20, 0.5)
		sticks := f.sticksSince(began)
		for i, s := range sticks {
			if i > 0 && s.at.Sub(sticks[i-1].at) > 100*time.Millisecond {
				f.Fatalf("the stream paused for %v", s.at.Sub(sticks[i-1].at))
			}
			if m := s.msg.(*common.MessageManualControl); *m != *sticks[0].msg.(*common.MessageManualControl) {
				f.Fatalf("the parked sticks moved: %+v", m)
			}
		}
		f.accepted("/land", "")
		f.until("landed", time.Minute, f.disarmed)
		time.Sleep(2 * time.Second)
		quiet := time.Now()
		time.Sleep(5 * time.Second)
		if s := f.sticksSince(quiet); len(s) > 0 {
			f.Errorf("%d stick messages after it was disarmed", len(s))
		}
	})
}

func TestLinkStartedInFlightKnowsTheMode(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		second := newDrone(f.link.link.device, 0, false)
		ctx, cancel := context.WithCancel(f.Context())
		f.stop() // the first link is gone: the process restarts
		time.Sleep(time.Second)
		var running sync.WaitGroup
		running.Go(func() { second.run(ctx) })
		time.Sleep(2 * time.Second)
		if mode, _ := second.mode(); mode != ModeHold {
			f.Errorf("mode is %v, want hold", mode)
		}
		cancel()
		running.Wait()
	})
}

func TestShutDownCentresPX4sSticks(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":1,"timeout":5}`)
		time.Sleep(time.Second)
		f.stop()
		time.Sleep(100 * time.Millisecond)
		s := f.sticksSince(time.Now().Add(-time.Second))
		if m := s[len(s)-1].msg.(*common.MessageManualControl); m.X != 0 || m.Z != 500 {
			f.Errorf("the last sticks are x %d z %d", m.X, m.Z)
		}
	})
}

// PX4's way out of manual mode leads through POSCTL; a command that is refused
// there leaves it there, and the mode says so.
func TestRefusedCommandLeavesPX4WhereTheWayOutLed(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"manual"}`)
		f.accepted("/input", `{"throttle":0.5,"pitch":1,"timeout":5}`)
		defer f.fails(common.MAV_CMD_DO_REPOSITION)()
		f.refused("/goto", "{"+at(60, 0)+"}", 409, "refused")
		f.wantMode("position")
		time.Sleep(3 * time.Second)
		f.wantMode("position")
		if s := f.sim.truth(); s.mode != entered[px4][ModePosition] || math.Hypot(s.vn, s.ve) > 0.2 {
			f.Errorf("the vehicle: %+v", s)
		}
	})
}
