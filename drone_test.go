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

// Why a command was not carried out, in whole flights (docs/design.md,
// "Reasons").

// says checks the sentence of an error: what it must and must not say.
func says(t *testing.T, answer object, want string, not ...string) {
	t.Helper()
	text, _ := answer["error"].(string)
	if !strings.Contains(text, want) {
		t.Errorf("%q does not say %q", text, want)
	}
	for _, n := range not {
		if strings.Contains(text, n) {
			t.Errorf("%q says %q", text, n)
		}
	}
}

// Its text goes to ground stations only, of which there is none.
func TestPX4sMissingGroundStationIsNamed(t *testing.T) {
	for _, act := range []float64{1, 2, 3} {
		fly(t, simPX4, func(s *simulator) { s.params[simDataLink] = act }, func(f *flight) {
			for _, command := range []struct{ path, body string }{{"/takeoff", ""}, {"/mode", `{"arm":true}`}} {
				o := f.refused(command.path, command.body, 409, "refused")
				says(t, o, fmt.Sprintf("NAV_DLL_ACT is %g: PX4 arms only while it hears a ground station", act))
				time.Sleep(6 * time.Second)
			}
		})
	}
	fly(t, simPX4, func(s *simulator) { s.armableAfter = time.Hour }, func(f *flight) {
		says(t, f.refused("/takeoff", "", 409, "refused"), "Resolve system health failures first", "NAV_DLL_ACT", "COM_RC_IN_MODE")
	})
}

// Where PX4 ignores our sticks and nobody else has them, a stick mode is not set.
func TestPX4sParameterThatIgnoresOurSticksIsNamed(t *testing.T) {
	for _, in := range []float64{0, 4} {
		fly(t, simPX4, func(s *simulator) { s.params[simStickSource] = in }, func(f *flight) {
			name := fmt.Sprintf("COM_RC_IN_MODE is %g", in)
			says(t, f.refused("/mode", `{"mode":"position"}`, 501, "unsupported"), name)
			f.aloft()
			for _, mode := range []string{"position", "altitude", "manual"} {
				says(t, f.refused("/mode", `{"mode":"`+mode+`"}`, 501, "unsupported"), name)
				says(t, f.refused("/input", `{"roll":0.1,"throttle":0.5}`, 409, "wrong_mode"), name, "set mode", "set manual, altitude")
			}
		})
	}
}

func TestATextOfBeforeTheCommandIsNoReason(t *testing.T) {
	both(t, func(f *flight) {
		say := func(words string) {
			f.sim.change(func() { f.sim.sendText(common.MAV_SEVERITY_CRITICAL, words, 0) })
		}
		say("PreArm: Compass not calibrated")
		time.Sleep(time.Second) // and it is mended
		f.fails(common.MAV_CMD_COMPONENT_ARM_DISARM)
		f.acks(common.MAV_CMD_COMPONENT_ARM_DISARM, func(a *common.MessageCommandAck) []simAnswer {
			f.sim.after(100*time.Millisecond, func() { f.sim.sendText(common.MAV_SEVERITY_CRITICAL, "Arm: Battery 1 low", 0) })
			return []simAnswer{{ack: a}}
		})
		o := f.refused("/mode", `{"arm":true}`, 409, "refused")
		says(f.T, o, "Arm: Battery 1 low", "Compass", "unhealthy")
		if list := fmt.Sprint(o["messages"]); strings.Contains(list, "Compass") {
			f.Errorf("its messages are %s", list)
		}
	})
}

func TestARefusedModeWithoutATextNamesTheUnhealthySystems(t *testing.T) {
	fly(t, simPX4, func(s *simulator) { s.trouble = []simTrouble{{common.MAV_SYS_STATUS_SENSOR_BATTERY, ""}} }, func(f *flight) {
		f.fails(common.MAV_CMD_DO_SET_MODE)
		says(t, f.refused("/mode", `{"mode":"hold"}`, 409, "refused"), "unhealthy: ")
		says(t, f.refused("/mode", `{"mode":"hold"}`, 409, "refused"), "battery")
	})
}

// PX4 accepts it, says why not, and stays.
func TestAGotoOutsidePX4sFenceTellsOfTheFence(t *testing.T) {
	fly(t, simPX4, func(s *simulator) { s.fence = 50 }, func(f *flight) {
		f.aloft()
		w := f.waits("/goto", waitFor(at(100, 0), 100))
		w.want(t, 409, "interrupted", "Reposition is outside geofence")
		says(t, w.answer, "the autopilot says: ", "unhealthy")
	})
}

func TestAnInterruptedCommandTellsOfTheFailsafe(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		w := f.waits("/goto", waitFor(at(300, 0), 100))
		time.Sleep(5 * time.Second)
		f.sim.change(func() { f.sim.sendText(common.MAV_SEVERITY_CRITICAL, "Battery failsafe", 0) })
		time.Sleep(50 * time.Millisecond)
		f.sim.failsafeReturn()
		w.want(f.T, 409, "interrupted", "RTL", "the autopilot says: Battery failsafe")
	})
}

func TestAWholeFlight(t *testing.T) {
	wire := map[firmware][]string{
		px4: {
			"400 1 0", "22 NaN NaN", // takeoff
			"192 frame 0 z 503.3",            // goto
			"176 1 3",                        // position
			"192 frame 0 z 503.3", "176 1 4", // land at a place
		},
		copter: {
			"176 1 4", "400 1 0", "22 0 0",
			"192 frame 3 z 15.0", "178 1 10", "115 0 0",
			"176 1 5",
			"192 frame 3 z 15.0", "178 1 10", "176 1 9",
		},
	}
	both(t, func(f *flight) {
		f.wantMode("manual")
		if o := f.accepted("/takeoff", ""); o["mode"] != "takeoff" || o["status"] != "accepted" {
			f.Errorf("takeoff answered %v", o)
		}
		f.wantMode("takeoff")
		time.Sleep(15 * time.Second)
		f.wantMode("takeoff")
		f.wantAt(0, 0, 10, 0.4)

		f.accepted("/goto", "{"+at(20, 0)+`,"altitude":15,"heading":0}`)
		f.wantMode("hold")
		time.Sleep(15 * time.Second)
		f.wantMode("hold")
		f.wantAt(20, 0, 15, 0.4)

		f.accepted("/mode", `{"mode":"position"}`)
		f.wantMode("position")
		for range 20 { // a script at 5 Hz
			f.accepted("/input", `{"pitch":0.5}`)
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		s := f.sim.truth()
		if n, _ := simMetres(s.lat, s.lon); n < 24 || math.Hypot(s.vn, s.ve) > 0.2 || math.Abs(s.alt-15) > 0.5 {
			f.Errorf("after sticks forward: %.1f m north, %.1f m up, %.1f m/s", n, s.alt, math.Hypot(s.vn, s.ve))
		}
		f.wantMode("position")

		f.accepted("/land", "{"+at(5, 5)+"}")
		f.wantMode("land")
		time.Sleep(3 * time.Second)
		f.wantMode("land")
		if f.sim.truth().alt < 14 {
			f.Error("it lands before it is at the place")
		}
		f.until("landed", 90*time.Second, f.disarmed)
		time.Sleep(5 * time.Second)
		f.wantMode("land")
		f.wantAt(5, 5, 0, 2)

		got := f.commands()
		for i, c := range got { // the height it kept was measured
			got[i] = strings.NewReplacer("z 503.2", "z 503.3", "z 503.4", "z 503.3", "z 14.9", "z 15.0", "z 15.1", "z 15.0").Replace(c)
		}
		if want := wire[f.firmware]; !slices.Equal(got, want) {
			f.Errorf("sent\n%q\nwant\n%q", got, want)
		}
	})
}

func TestStatusTellsTheTruth(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		o, truth := f.status(), f.sim.truth()
		position := o["position"].(object)
		for name, want := range map[string]float64{"lat": truth.lat, "lon": truth.lon} {
			if got := position[name].(float64); math.Abs(got-want) > 1e-6 {
				f.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if got := position["altitude"].(float64); math.Abs(got-truth.alt) > 0.1 {
			f.Errorf("altitude is %v, want %v", got, truth.alt)
		}
		for name, want := range map[string]any{"online": true, "armed": true, "in_air": true, "landed_state": "in_air", "failsafe": false, "state": "active"} {
			if o[name] != want {
				f.Errorf("%s is %v, want %v", name, o[name], want)
			}
		}
		for _, group := range []string{"position", "velocity", "attitude", "battery", "gps"} {
			if age := o[group].(object)["age"].(float64); age > 0.6 {
				f.Errorf("%s is %v s old", group, age)
			}
		}
	})
}

func TestGotoAfterSticksIsNotTakenBack(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		for _, command := range []struct{ path, body, mode string }{
			{"/goto", "{" + at(20, 0) + "}", "hold"},
			{"/mode", `{"mode":"hold"}`, "hold"},
			{"/mode", `{"mode":"rtl"}`, "rtl"},
			{"/mode", `{"mode":"rtgs"}`, "rtgs"},
			{"/land", "{" + at(0, 0) + "}", "land"},
			{"/land", "", "land"},
		} {
			f.accepted("/input", `{"pitch":1,"roll":-1,"timeout":5}`)
			time.Sleep(300 * time.Millisecond)
			f.accepted(command.path, command.body)
			time.Sleep(4 * time.Second)
			f.wantMode(command.mode)
			if f.sim.truth().failsafe {
				f.Errorf("%s after sticks is a failsafe", command.path)
			}
			f.accepted("/mode", `{"mode":"position"}`)
		}
	})
}

// A client that dies with the stick held over: in position mode the centred
// stream is the hold, in altitude and manual mode mavrest commands one, and says so.
func TestDeadClientLeavesAHold(t *testing.T) {
	after := map[string]time.Duration{"altitude": silentClient, "manual": silentClient}
	for _, mode := range []string{"position", "altitude", "manual"} {
		t.Run(mode, func(t *testing.T) {
			both(t, func(f *flight) {
				f.aloft()
				f.accepted("/goto", `{"altitude":40}`)
				time.Sleep(40 * time.Second)
				f.accepted("/mode", `{"mode":"`+mode+`"}`)
				f.accepted("/input", `{"pitch":0.3,"throttle":0.5}`)
				died := time.Now()
				time.Sleep(450 * time.Millisecond)
				if s := f.sticksSince(died); len(s) < 10 {
					f.Errorf("%d stick messages in 0.45 s, want 25 a second", len(s))
				}
				time.Sleep(time.Second)
				last := f.sticksSince(died)
				m := last[len(last)-1].msg.(*common.MessageManualControl)
				if m.X != 0 || m.Y != 0 || m.R != 0 || m.Z != 500 {
					f.Errorf("sticks of a dead client are %d %d %d %d", m.X, m.Y, m.R, m.Z)
				}
				if mode != "position" {
					time.Sleep(time.Until(died.Add(after[mode] - stickEvery)))
					f.wantMode(mode)
					time.Sleep(3 * time.Second) // on PX4 the sticks stand for 2 s on the way
					f.wantMode("hold")
					if texts := fmt.Sprint(f.status()["messages"]); !strings.Contains(texts, "mavrest: ") {
						f.Errorf("nothing is told of it: %v", texts)
					}
				}
				time.Sleep(20 * time.Second)
				s := f.sim.truth()
				if math.Hypot(s.vn, s.ve) > 0.2 || s.alt < 38.5 || s.failsafe {
					f.Errorf("it does not hold: %+v", s)
				}
			})
		})
	}
}

func TestPilotsSwitchShowsInEveryManoeuvre(t *testing.T) {
	stabilized := map[firmware]uint32{px4: px4Custom(7, 0), copter: 0}
	for _, command := range []struct{ path, body string }{
		{"/takeoff", ""},
		{"/goto", "{" + at(60, 0) + "}"},
		{"/mode", `{"mode":"hold"}`},
		{"/mode", `{"mode":"rtl"}`},
		{"/mode", `{"mode":"position"}`},
		{"/land", ""},
		{"/land", "{" + at(60, 0) + "}"},
	} {
		t.Run(command.path+command.body, func(t *testing.T) {
			both(t, func(f *flight) {
				if command.path != "/takeoff" {
					f.aloft()
				}
				f.accepted(command.path, command.body)
				time.Sleep(4 * time.Second)
				f.sim.setReceiver(simReceiverIdle) // a pilot has a transmitter
				f.sim.pilotMode(stabilized[f.firmware])
				time.Sleep(1100 * time.Millisecond)
				f.wantMode("manual")
				landings := len(f.commands())
				time.Sleep(20 * time.Second)
				if n := len(f.commands()); n != landings {
					f.Errorf("the link goes on commanding after the pilot took over: %q", f.commands()[landings:])
				}
			})
		})
	}
}

// A vehicle that sends no live reports is asked for them, and one that has
// forgotten what it was asked sends them again: either way a pilot shows.
func TestAPilotShowsWithoutLiveReports(t *testing.T) {
	stabilized := map[firmware]uint32{px4: px4Custom(7, 0), copter: 0}
	for name, forget := range map[string]func(*simulator){
		"refused": nil,
		"forgotten": func(s *simulator) {
			s.change(func() {
				if b, ok := s.brain.(*simPX4Brain); ok {
					b.every = -1
					return
				}
				s.streamOn(false, 0, time.Second)
			})
		},
	} {
		for _, flavour := range []simFlavour{simPX4, simArduPilot} {
			t.Run(fmt.Sprint(name, " ", flavour), func(t *testing.T) {
				refuse := func(s *simulator) { s.noLiveMode = forget == nil }
				fly(t, flavour, refuse, func(f *flight) {
					f.accepted("/takeoff", `{"wait":60}`)
					f.accepted("/goto", "{"+at(30, 0)+`,"wait":60}`)
					f.accepted("/mode", `{"mode":"rtl"}`)
					f.wantMode("rtl")
					f.accepted("/goto", "{"+at(60, 0)+`}`)
					f.wantMode("hold")
					forgotten := time.Now()
					if forget != nil {
						forget(f.sim)
						time.Sleep(1600 * time.Millisecond)
					}
					for range 10 {
						time.Sleep(1237 * time.Millisecond)
						f.sim.pilotMode(stabilized[f.firmware])
						time.Sleep(reportFresh + 50*time.Millisecond)
						f.wantMode("manual")
						f.accepted("/mode", `{"mode":"hold"}`)
						f.wantMode("hold")
					}
					if forget != nil && f.asksForStreams(forgotten) == 0 {
						f.Error("it was not asked for live reports again")
					}
					f.accepted("/land", `{"wait":60}`)
					if !f.disarmed() {
						f.Error("landed, and armed")
					}
				})
			})
		}
	}
}

// PX4 tells its old target for 0.6 s after the ack of a goto.
func TestAGotosTargetIsNotTheOneBefore(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(30, 0)+`,"wait":60}`)
		f.accepted("/goto", "{"+at(60, 0)+"}")
		for range 30 {
			target, _ := f.status()["target"].(object)
			if d, ok := target["distance"].(float64); !ok || d < 10 {
				f.Fatalf("the target is %v", target)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

func TestADisarmingInTheAirIsRefusedWithItsReason(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		o := f.refused("/mode", `{"arm":false}`, 409, "refused")
		if text := o["error"].(string); text != "arm: the vehicle is in the air; land first" {
			f.Errorf("it does not tell why: %q", text)
		}
	})
}

func TestFailsafeShowsInEveryManoeuvre(t *testing.T) {
	for _, command := range []struct{ path, body string }{
		{"/takeoff", ""},
		{"/goto", "{" + at(60, 0) + "}"},
		{"/mode", `{"mode":"position"}`},
		{"/land", ""},
		{"/land", "{" + at(60, 0) + "}"},
	} {
		t.Run(command.path+command.body, func(t *testing.T) {
			both(t, func(f *flight) {
				if command.path != "/takeoff" {
					f.aloft()
				}
				f.accepted(command.path, command.body)
				time.Sleep(4 * time.Second)
				f.sim.failsafeReturn()
				time.Sleep(1100 * time.Millisecond)
				f.wantMode("rtl")
				if o := f.status(); o["failsafe"] != true {
					f.Errorf("failsafe is %v", o["failsafe"])
				}
				sent := len(f.commands())
				time.Sleep(30 * time.Second)
				if got := f.commands()[sent:]; len(got) > 0 {
					f.Errorf("sent after the failsafe: %q", got)
				}
			})
		})
	}
}

func TestRefusedTakeoffLeavesTheModeThatItEntered(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		fly(t, flavour, func(s *simulator) { s.armableAfter = time.Hour }, func(f *flight) {
			o := f.refused("/takeoff", "", 409, "refused")
			if o["command"] != 400.0 || len(o["messages"].([]any)) == 0 || !strings.Contains(o["error"].(string), "rm") {
				f.Errorf("the refusal does not say why: %v", o)
			}
			if got := f.sim.truth(); got.mode != entered[f.firmware][ModeHold] || got.armed {
				f.Errorf("the vehicle is left in mode %#x, armed %v", got.mode, got.armed)
			}
			if f.firmware == copter {
				says(t, o, "; the vehicle is in GUIDED, disarmed")
			}
			want := "hold"
			if f.firmware == px4 { // it was in AUTO.LOITER before
				want = "manual"
			}
			for range 8 {
				time.Sleep(time.Second)
				f.wantMode(want)
			}
		})
	}
}

func TestARefusedArmingInLandSaysWhatToPost(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/land", `{"wait":100}`)
		o := f.refused("/mode", `{"arm":true}`, 409, "refused")
		says(t, o, `LAND mode not armable; set another mode with it ({"mode":"hold","arm":true}), or take off`)
		f.accepted("/mode", `{"mode":"hold","arm":true}`)
	})
}

// PX4 stays in the last stick mode then, in which it can't be armed; a takeoff sets
// another one.
func TestPX4IsArmableAfterAFlightThatEndedInAStickMode(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/land", `{"wait":60}`)
		time.Sleep(15 * time.Second)
		if s := f.status(); s["vehicle_mode"] != "POSCTL" || s["armable"] != true {
			t.Errorf("armable is %v in %v", s["armable"], s["vehicle_mode"])
		}
		f.sim.change(func() { f.sim.trouble = []simTrouble{{common.MAV_SYS_STATUS_SENSOR_BATTERY, ""}} })
		f.until("it is not armable", 5*time.Second, func() bool { return f.status()["armable"] == false })
		f.sim.change(func() { f.sim.trouble = nil })
		f.until("it is again", 5*time.Second, func() bool { return f.status()["armable"] == true })
		f.accepted("/takeoff", "")
	})
}

// A script that waits for armable takes off at the first try, also right after
// a boot: ArduPilot can be armed in STABILIZE long before it can in GUIDED.
func TestATakeoffIsAcceptedAsSoonAsTheStatusSaysArmable(t *testing.T) {
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "ardupilot": simArduPilot} {
		t.Run(name, func(t *testing.T) {
			fly(t, flavour, func(s *simulator) { s.armableAfter = 42 * time.Second }, func(f *flight) {
				f.until("armable", time.Minute, func() bool { return f.status()["armable"] == true })
				f.accepted("/takeoff", `{"altitude":10,"wait":60}`)
			})
		})
	}
}

// One in 65,536 damaged frames has a checksum that fits.
func TestADamagedClockEndsNothing(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"roll":0.1,"timeout":5}`)
		time.Sleep(time.Second)
		for _, clock := range []uint32{3, 4_000_000_000} {
			f.sim.change(func() { f.sim.send(attitudeAt(clock)) })
			time.Sleep(200 * time.Millisecond)
			f.wantMode("position")
			if by := f.status()["input"].(object)["by"]; by != "client" {
				f.Errorf("clock %d: %v has the sticks", clock, by)
			}
			if len(f.sticksSince(time.Now().Add(-100*time.Millisecond))) == 0 {
				f.Errorf("clock %d: the stick stream has ended", clock)
			}
		}
		w := f.waits("/goto", waitFor(at(60, 0), 60))
		time.Sleep(5 * time.Second)
		f.sim.change(func() { f.sim.send(attitudeAt(3)) })
		w.want(f.T, 200, "")
	})
}

func TestNewestCommandWins(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		// A slow line, so that commands wait for their acks while others come.
		f.sim.change(func() { f.sim.delay = 300 * time.Millisecond })
		codes := make(map[int]int)
		var mu sync.Mutex
		var clients sync.WaitGroup
		for i := range 10 {
			time.Sleep(10 * time.Millisecond)
			clients.Go(func() {
				code, o := f.call("POST", "/goto", "{"+at(float64(10*i), 0)+`,"altitude":20}`)
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
				if code == 200 && i != 9 || code != 200 && o["code"] != "superseded" {
					f.Errorf("client %d got %d %v", i, code, o)
				}
			})
		}
		clients.Wait()
		if codes[200] != 1 || codes[409] != 9 {
			f.Errorf("answers: %v", codes)
		}
		time.Sleep(60 * time.Second)
		f.wantAt(90, 0, 20, 0.5)
	})
}

func TestHeartbeatsGoOutEverySecondAsAnOnboardController(t *testing.T) {
	both(t, func(f *flight) {
		var last time.Time
		n := 0
		for _, r := range f.sim.received() {
			hb, ok := r.msg.(*minimal.MessageHeartbeat)
			if !ok || hb.Type == minimal.MAV_TYPE_GCS {
				continue
			}
			n++
			if hb.Type != minimal.MAV_TYPE_ONBOARD_CONTROLLER || hb.Autopilot != minimal.MAV_AUTOPILOT_INVALID ||
				hb.SystemStatus != minimal.MAV_STATE_ACTIVE || r.component != 194 || r.system != 1 {
				f.Errorf("heartbeat %+v from %d/%d", hb, r.system, r.component)
			}
			if d := r.at.Sub(last); !last.IsZero() && d > 1100*time.Millisecond {
				f.Errorf("heartbeats %v apart", d)
			}
			last = r.at
		}
		if n < 9 {
			f.Errorf("%d heartbeats in 10 s", n)
		}
	})
}

// What leads nowhere else, or is refused, does not end it.
func TestTheWayToALandingGoesOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		order func(f *flight)
	}{
		{"arming", func(f *flight) { f.accepted("/mode", `{"arm":true}`) }},
		{"disarming", func(f *flight) { f.refused("/mode", `{"arm":false}`, 409, "refused") }},
		{"unreadable", func(f *flight) { f.refused("/goto", `{"lat":1}`, 422, "out_of_range") }},
		{"an arming without an answer", func(f *flight) {
			f.loseAcks(common.MAV_CMD_COMPONENT_ARM_DISARM)
			f.refused("/mode", `{"arm":true}`, 504, "no_ack")
			f.sim.change(func() { f.sim.onAck = nil })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(f *flight) {
				f.aloft()
				f.accepted("/land", "{"+at(40, 0)+"}")
				time.Sleep(2 * time.Second)
				c.order(f)
				f.wantMode("land")
				f.until("landed", 90*time.Second, f.disarmed)
				f.wantMode("land")
				f.wantAt(40, 0, 0, 2)
			})
		})
	}
}

// Whatever becomes of a step that sets a mode: what was before it has ended.
func TestARefusedGotoEndsTheWayToALanding(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		w := f.waits("/land", waitFor(at(40, 0), 100))
		time.Sleep(2 * time.Second)
		defer f.fails(common.MAV_CMD_DO_REPOSITION)()
		f.refused("/goto", "{"+at(0, 60)+"}", 409, "refused")
		w.want(t, 409, "superseded")
		time.Sleep(60 * time.Second)
		f.wantMode("hold")
		f.wantAt(40, 0, 10, 2)
	})
}

// A pilot who takes the vehicle back into the mode that it was in before the
// landing keeps it.
func TestPilotsSwitchBackEndsTheWayToALanding(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		time.Sleep(4 * time.Second)
		f.accepted("/land", "{"+at(200, 0)+"}")
		end := f.fails(common.MAV_CMD_COMPONENT_ARM_DISARM)
		f.refused("/mode", `{"arm":true}`, 409, "refused")
		end()
		time.Sleep(2 * time.Second)
		f.sim.setReceiver(simReceiverIdle)
		f.sim.pilotMode(entered[f.firmware][ModePosition])
		time.Sleep(1100 * time.Millisecond)
		f.wantMode("position")
		sent := len(f.commands())
		time.Sleep(60 * time.Second)
		f.wantMode("position")
		if got := f.commands()[sent:]; len(got) > 0 {
			f.Errorf("sent %q", got)
		}
	})
}

// The report that shows what was accepted may come while the next command
// waits, or in the time that a refused one's reports have to pass.
func TestRefusedCommandDoesNotHideThatTheOneBeforeItIsFollowed(t *testing.T) {
	for _, c := range []struct{ path, body, mode string }{
		{"/land", "{" + at(40, 0) + "}", "land"},
		{"/takeoff", `{"altitude":40}`, "takeoff"},
		{"/mode", `{"mode":"rtgs"}`, "rtgs"},
		{"/goto", "{" + at(200, 0) + "}", "hold"},
	} {
		t.Run(c.path, func(t *testing.T) {
			both(t, func(f *flight) {
				for phase := range 5 { // of the heartbeat
					if c.path != "/takeoff" {
						f.aloft()
						f.accepted("/mode", `{"mode":"position"}`)
					}
					time.Sleep(time.Second + time.Duration(phase)*200*time.Millisecond)
					f.accepted(c.path, c.body)
					f.refused("/goto", `{"lat":1}`, 422, "out_of_range")
					f.failAcks(common.MAV_CMD_COMPONENT_ARM_DISARM)
					f.refused("/mode", `{"arm":true}`, 409, "refused")
					f.sim.change(func() { f.sim.onAck = nil })
					for range 14 {
						time.Sleep(500 * time.Millisecond)
						f.wantMode(c.mode)
					}
					if c.path != "/land" {
						f.accepted("/land", "")
					}
					f.until("landed", 200*time.Second, f.disarmed)
					if c.path == "/land" {
						f.wantAt(40, 0, 0, 2)
						return // the next would start there
					}
					time.Sleep(10 * time.Second)
					if c.path != "/takeoff" {
						return
					}
				}
			})
		})
	}
}

// A goto that may have been carried out has ended the way to the landing: the
// status must not say land for a vehicle that flies elsewhere and stays there.
func TestGotoWithoutAnAnswerEndsTheWayToALanding(t *testing.T) {
	for _, c := range []struct {
		name string
		goTo func(f *flight)
	}{
		{"its acks are lost", func(f *flight) {
			f.loseAcks(common.MAV_CMD_DO_REPOSITION)
			f.refused("/goto", "{"+at(0, 60)+"}", 504, "no_ack")
		}},
		{"a refused command takes its place", func(f *flight) {
			f.sim.change(func() { f.sim.delay = 150 * time.Millisecond })
			var older sync.WaitGroup
			older.Go(func() { f.refused("/goto", "{"+at(0, 60)+"}", 409, "superseded") })
			time.Sleep(50 * time.Millisecond)
			defer f.fails(common.MAV_CMD_COMPONENT_ARM_DISARM)()
			f.refused("/mode", `{"arm":true}`, 409, "refused")
			older.Wait()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(f *flight) {
				f.aloft()
				f.accepted("/land", "{"+at(60, 0)+"}")
				time.Sleep(2 * time.Second)
				c.goTo(f)
				time.Sleep(40 * time.Second)
				f.wantMode("hold")
				f.wantAt(0, 60, 10, 1)
				// The vehicle itself says where it flies to.
				if target, ok := f.status()["target"].(object); !ok || target["distance"].(float64) > 1 {
					f.Errorf("the target is %v", f.status()["target"])
				}
			})
		})
	}
}

// The heartbeat that shows the accepted mode may be a second away; a refused
// command must not go back to the one before it.
func TestNothingIsTakenBackInTheAir(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"manual"}`)
		f.accepted("/land", "")
		f.failAcks(common.MAV_CMD_COMPONENT_ARM_DISARM)
		f.refused("/mode", `{"mode":"hold","arm":true}`, 409, "refused")
		f.wantMode("hold")
		f.wantTruth()
	})
}

func TestDisarmingInTheAirIsRefusedBeforeTheModeIsSet(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(60, 0)+"}")
		sent := len(f.commands())
		f.refused("/mode", `{"mode":"hold","arm":false}`, 409, "refused")
		if got := f.commands()[sent:]; len(got) > 0 {
			f.Errorf("sent %q", got)
		}
	})
}

// What was sent may have happened: whatever the vehicle reports then shows.
func TestReportShowsAfterACommandWithoutAnAnswer(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		time.Sleep(1100 * time.Millisecond)
		f.loseAcks(common.MAV_CMD_DO_REPOSITION)
		f.refused("/goto", "{"+at(30, 0)+"}", 504, "no_ack")
		f.wantMode("hold") // as fresh as a heartbeat that was asked for
		time.Sleep(100 * time.Millisecond)
		target, ok := f.status()["target"].(object)
		if !ok || math.Abs(target["distance"].(float64)-30) > 8 {
			f.Errorf("the target after a goto that was flown: %v", f.status()["target"])
		}
	})
}

func TestInputWaitsUntilItsModeShowsAndNoOtherIsOnItsWay(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.inTheAir()
		input := func() errorCode {
			_, err := b.input(stickInput{pitch: 0.5, timeout: time.Second})
			return code(err)
		}
		b.obeys(5*time.Millisecond, -1)
		entering := b.command(request{setMode: true, mode: ModePosition})
		time.Sleep(500 * time.Millisecond)
		lineEqual(t, "acknowledged, and not shown yet", input(), codeWrongMode)
		b.shows(entered[copter][ModePosition], true)
		b.say(b.beat)
		lineEqual(t, "error", (<-entering).err, nil)
		lineEqual(t, "it shows", input(), "")
		b.follow(nil)
		away := b.command(goHome)
		time.Sleep(time.Millisecond)
		lineEqual(t, "a return is on its way", input(), codeWrongMode)
		<-away
	})
}

// Whatever the timeout, the sticks are centred when it is over.
func TestSticksAreCentredWhenTheyExpire(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		for _, timeout := range []float64{0.05, 4.9, 5} {
			f.accepted("/mode", `{"mode":"altitude"}`)
			f.accepted("/input", fmt.Sprintf(`{"pitch":1,"timeout":%g}`, timeout))
			over := time.Now().Add(time.Duration(timeout * float64(time.Second)))
			time.Sleep(10 * time.Second)
			sticks := f.sticksSince(over.Add(time.Millisecond))
			if len(sticks) == 0 {
				f.Fatalf("timeout %g: no sticks after it", timeout)
			}
			for _, s := range sticks {
				if m := s.msg.(*common.MessageManualControl); m.X != 0 && m.X != math.MaxInt16 {
					f.Fatalf("timeout %g: pitch %d, %v after it", timeout, m.X, s.at.Sub(over))
				}
			}
			f.wantMode("hold")
		}
	})
}

func TestThrottleThatStandsSurvivesALostHeartbeatAfterArming(t *testing.T) {
	both(t, func(f *flight) {
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/mode", `{"arm":true}`)
		f.sim.change(func() { f.sim.heartless = time.Now().Add(2500 * time.Millisecond) })
		armed := time.Now()
		f.accepted("/input", `{"throttle":1,"timeout":1.5}`)
		time.Sleep(2400 * time.Millisecond)
		for _, s := range f.sticksSince(armed.Add(1600 * time.Millisecond)) {
			if m := s.msg.(*common.MessageManualControl); m.Z != 500 {
				f.Fatalf("throttle %d in the air, %v after arming", m.Z, s.at.Sub(armed))
			}
		}
	})
}

func TestLandingThatNobodyAcknowledgesEndsOnTheGround(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/land", "{"+at(10, 0)+"}")
		f.sim.change(func() {
			f.sim.onAck = func(a *common.MessageCommandAck) []simAnswer { return nil }
		})
		f.until("landed", 90*time.Second, f.disarmed)
		time.Sleep(5 * time.Second)
		sent := len(f.commands())
		time.Sleep(time.Minute)
		if got := f.commands()[sent:]; len(got) > 0 {
			f.Errorf("sent after the landing: %q", got)
		}
	})
}

// The pilot's mode is named as the pilot's, the client's own mode is not.
func TestInputBlamesAPilotOnlyForTheModeThatIsHis(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.sim.pilotMode(entered[f.firmware][ModeRTL])
		time.Sleep(2 * time.Second)
		says(t, f.refused("/input", "", 409, "wrong_mode"), "a pilot, a failsafe or another program took the drone, which is in mode rtl")
		f.accepted("/goto", "{"+at(40, 0)+"}")
		o := f.refused("/input", "", 409, "wrong_mode")
		if want := "input: the drone is in mode hold; set manual, altitude or position first"; o["error"] != want {
			t.Errorf("answered %v, want %s", o["error"], want)
		}
	})
}

func TestCopterWithoutAReceiverIsArmableAndTakesOff(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.until("armable", 60*time.Second, func() bool { return f.status()["armable"] == true })
		f.accepted("/takeoff", `{"wait":60}`)
	})
}

// A drone that moved before a hold was accepted is not at rest because of that.
func TestOnlyWhatCameAfterTheAcceptanceCountsForTheEndOfAManoeuvre(t *testing.T) {
	d := newDrone(device{name: "none"}, 0, false)
	now := time.Now()
	hear := func(at time.Time) {
		for _, m := range []any{
			&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR},
			&common.MessageGlobalPositionInt{Lat: 473977421, Lon: 85455938, Alt: 498300, RelativeAlt: 10020, Hdg: 9000},
		} {
			d.tel.hear(m, at)
		}
	}
	hear(now.Add(-time.Millisecond))
	hold := request{setMode: true, mode: ModeHold}
	m := &manoeuvre{request: hold, at: now, over: make(chan struct{}), plan: plan{facing: math.NaN()}}
	d.tel.beat.armed, d.cmd.manoeuvre = true, m
	m.watch(d.sighting(now.Add(time.Second)))
	lineEqual(t, "done by what came before", m.done, false)
	lineEqual(t, "its landed state", d.sighting(now).landed, 0)
	hear(now.Add(time.Millisecond))
	m.watch(d.sighting(now.Add(time.Second)))
	lineEqual(t, "done by what came after", m.done, true)
}

// Another program switched HOME_POSITION off and moved home: what is remembered would
// fly a goto at another height.
func TestAHeightAboveHomeIsOfTheHomeThatIsAskedForBefore(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.sim.change(func() { f.sim.stream(idHome, -1) })
		stale := func() {
			f.link.mu.Lock()
			defer f.link.mu.Unlock()
			f.link.tel.home.amsl -= 8
		}
		stale()
		f.accepted("/goto", `{"altitude":12,"wait":60}`)
		if s := f.sim.truth(); math.Abs(s.alt-12) > 1 {
			t.Errorf("it is at %.1f m", s.alt)
		}
		stale()
		defer f.fails(common.MAV_CMD_REQUEST_MESSAGE)()
		asked := time.Now()
		says(t, f.refused("/goto", `{"altitude":14}`, 409, "refused"), "home")
		if took := time.Since(asked); took != homeWait {
			t.Errorf("answered after %v", took)
		}
	})
}

// Another program slowed or ended what rules rest on.
func TestStreamsThatAnotherProgramSlowedOrEndedAreAskedForAgain(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		for _, s := range []struct {
			id    uint32
			every time.Duration
		}{{idGPS, -1}, {idHUD, -1}, {idHome, -1}, {idPosition, time.Second}, {idAttitude, time.Second}, {idExtendedState, time.Second}} {
			f.sim.change(func() { f.sim.stream(s.id, s.every) })
			time.Sleep(25 * time.Second)
			n := 0
			for _, st := range f.sim.streaming {
				if st.id == s.id && !st.beside {
					n++
					if st.every > time.Second && s.id != idHome || s.every > 0 && st.every == s.every {
						t.Errorf("message %d comes every %v", s.id, st.every)
					}
				}
			}
			if n == 0 {
				t.Errorf("message %d was not asked for again", s.id)
			}
		}
	})
}
