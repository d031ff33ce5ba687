package main

import (
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
	for _, up := range []float64{1, 8, 20, 35} { // 40 m, and its end may come 4 m below
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

// knocks are the heartbeats that were sent as a ground station.
func (f *flight) knocks() (n int) {
	for _, r := range f.sim.received() {
		if hb, ok := r.msg.(*minimal.MessageHeartbeat); ok && hb.Type == minimal.MAV_TYPE_GCS {
			n++
		}
	}
	return n
}

// Where NAV_DLL_ACT is set, or is not told, nothing may make PX4 think that it
// has a ground station: its silence would bring the drone down.
func TestPX4IsNotKnockedWhereItsSilenceWouldBeAFailsafe(t *testing.T) {
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
			time.Sleep(30 * time.Second) // what a knock would have armed
			f.wantMode("hold")
			f.wantAt(30, 0, 10, 1)
			if n := f.knocks(); n > 0 {
				t.Errorf("NAV_DLL_ACT %g: %d knocks", act, n)
			}
		})
	}
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.sim.change(func() { f.sim.params[simDataLink] = 2 }) // while it flies
		f.accepted("/mode", `{"arm":true}`)
		before := f.knocks()
		f.accepted("/goto", "{"+at(30, 0)+"}")
		if n := f.knocks(); n != before {
			t.Error("it is knocked after NAV_DLL_ACT was set")
		}
	})
}

// The knock makes two texts of PX4's own, which tell the user nothing.
func TestPX4KnockLeavesNoTraceInTheMessages(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		time.Sleep(30 * time.Second)
		f.accepted("/goto", "{"+at(30, 0)+`,"wait":60}`)
		if f.knocks() == 0 {
			t.Error("without a knock there are no texts")
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

// A refusal alone has only "Resolve system health failures first"; the answer
// names every reason, the specific before the general.
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
		{"texts", grounded(0, simTrouble{0, gps}, simTrouble{0, compass}), []string{gps, compass, "Resolve system health failures first"}},
		{"a system without a text", grounded(0, simTrouble{common.MAV_SYS_STATUS_SENSOR_BATTERY, ""}), []string{"unhealthy: ", "battery"}},
		{"without a knock", grounded(2, simTrouble{common.MAV_SYS_STATUS_SENSOR_GPS, gps}), []string{"unhealthy: ", "gps"}},
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
			time.Sleep(500 * time.Millisecond)
		}
		checks := f.checks()
		for i := 1; i < len(checks); i++ {
			if d := checks[i].Sub(checks[i-1]); d < prearmEvery {
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
		p.wantAnswer(1100*time.Millisecond, "interrupted")
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
				default: // nobody's sticks: PX4 refuses the mode
					if o["code"] != "refused" {
						t.Errorf("position: %d %v", code, o)
					}
					f.wantStream(asked, nil)
				}
				told := strings.Contains(fmt.Sprint(f.status()["messages"]), "COM_RC_IN_MODE is 3")
				if want := c.in == 3 && c.ours; told != want {
					t.Errorf("the notice of the first source was told: %v", told)
				}
			})
		})
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

// A refused DO_SET_MODE that is repeated is acknowledged 0, 1, 0, 1: whichever of
// the acks are lost, it is no acceptance.
func TestPX4RefusedModeIsRefusedWhicheverAcksAreLost(t *testing.T) {
	for lost := 1; lost < 16; lost++ {
		fly(t, simPX4, func(s *simulator) { s.params[simStickSource] = 4 }, func(f *flight) {
			f.aloft()
			n := -1
			f.acks(common.MAV_CMD_DO_SET_MODE, func(a *common.MessageCommandAck) []simAnswer {
				if n++; lost>>n&1 == 1 {
					return nil
				}
				return []simAnswer{{ack: a}}
			})
			code, o := f.call("POST", "/mode", `{"mode":"position"}`)
			if code != 409 || o["code"] != "refused" {
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

// A line that brings everything and takes nothing: after 10 s the client is told.
func TestPX4LineThatOnlyHearsIsToldAfterTenSeconds(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		input := func() (int, object) { return f.call("POST", "/input", `{"pitch":0.1,"timeout":1}`) }
		f.sim.change(func() { f.sim.faultIn = simFault{drop: 1} })
		deaf := time.Now()
		for time.Since(deaf) < 9*time.Second {
			if code, o := input(); code != 200 && f.sim.truth().mode == simPX4Posctl {
				break
			} else if code != 200 && o["code"] != "wrong_mode" { // PX4's failsafe shows
				t.Fatalf("%v after it: %d %v", time.Since(deaf), code, o)
			}
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(time.Until(deaf.Add(12 * time.Second)))
		code, o := input()
		if code != 503 || o["code"] != "offline" || !strings.Contains(o["error"].(string), "hears us no more") {
			t.Errorf("12 s after it: %d %v", code, o)
		}
		if e := fmt.Sprint(f.status()["link"].(object)["error"]); !strings.Contains(e, "hears us no more") {
			t.Errorf("link.error is %v", e)
		}
		if !strings.Contains(fmt.Sprint(f.status()["messages"]), "hears us no more") {
			t.Error("no message tells it")
		}
		f.sim.change(func() { f.sim.faultIn = simFault{} })
		time.Sleep(2 * time.Second)
		if e := f.status()["link"].(object)["error"]; e != nil {
			t.Errorf("link.error stays %v", e)
		}
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":0.1}`)
	})
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
				if came := f.back(c.along); came > 1 {
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

// A velocity that is old tells no place to stop at, and the mode alone would fly
// on to the old target: it comes back to where it was last seen.
func TestPX4HoldOnTheWayWithoutAFreshVelocityStops(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(300, 0)+"}")
		time.Sleep(5 * time.Second)
		f.sim.change(func() {
			f.sim.streaming = slices.DeleteFunc(f.sim.streaming, func(s *simStream) bool { return s.id == 33 })
		})
		time.Sleep(700 * time.Millisecond)
		before, sent := f.sim.truth(), len(f.commands())
		f.accepted("/mode", `{"mode":"hold"}`)
		if got := f.commands()[sent:]; len(got) != 1 || !strings.HasPrefix(got[0], "192 ") {
			t.Errorf("sent %q", got)
		}
		time.Sleep(20 * time.Second)
		s := f.sim.truth()
		if off := distance(before.lat, before.lon, s.lat, s.lon); off > 6 || f.speed() > 0.1 {
			t.Errorf("%.1f m on, at %.1f m/s", off, f.speed())
		}
	})
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
