package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// flight is a whole mavrest beside a simulated vehicle, in virtual time.
type flight struct {
	*testing.T
	sim     *simulator
	link    *drone
	handler http.Handler
	stop    context.CancelFunc // of the link

	firmware firmware
}

// object is a JSON object of an answer.
type object = map[string]any

// fly runs a flight in a bubble of virtual time. prepare, which may be nil, sets
// the simulator's switches before it boots.
func fly(t *testing.T, flavour simFlavour, prepare func(*simulator), do func(*flight)) {
	t.Helper()
	flyWith(t, flavour, prepare, nil, do)
}

// flyWith is fly with a mavrest that start, which may be nil, has had in hand
// before it runs.
func flyWith(t *testing.T, flavour simFlavour, prepare func(*simulator), start func(*drone), do func(*flight)) {
	t.Helper()
	inLinkBubble(t, func(t *testing.T) {
		s := newSimulator(flavour)
		if prepare != nil {
			prepare(s)
		}
		ctx, land := context.WithCancel(t.Context())
		linkCtx, stop := context.WithCancel(ctx)
		dev := device{
			name: "sim", kind: serialLine,
			open: func(context.Context) (port, error) { return s.open() },
			baud: func() int { return 0 },
		}
		l := newDrone(dev, 0, false)
		if start != nil {
			start(l)
		}
		f := &flight{t, s, l, newHandler(l, admission{}), stop, px4}
		switch flavour {
		case simArduPilot:
			f.firmware = copter
		case simQuadPlane:
			f.firmware = quadPlane
		case simPlane:
			f.firmware = plane
		}
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		running.Go(func() { l.run(linkCtx) })
		time.Sleep(10 * time.Second) // booted, and armable
		do(f)
		stop()
		land()
		running.Wait()
	})
}

// both runs a flight on each flavour.
func both(t *testing.T, do func(f *flight)) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		name := map[simFlavour]string{simPX4: "px4", simArduPilot: "ardupilot"}[flavour]
		t.Run(name, func(t *testing.T) { fly(t, flavour, nil, do) })
	}
}

// call makes a request and returns the status code and the answer.
func (f *flight) call(method, path, body string) (int, object) {
	f.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/api/drone"+path, strings.NewReader(body))
	r.Host = "localhost"
	f.handler.ServeHTTP(w, r)
	var o object
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
		f.Fatalf("%s %s answered %q: %v", method, path, w.Body, err)
	}
	return w.Code, o
}

func (f *flight) status() object {
	f.Helper()
	_, o := f.call("GET", "/status", "")
	return o
}

// accepted posts a command that must be accepted.
func (f *flight) accepted(path, body string) object {
	f.Helper()
	code, o := f.call("POST", path, body)
	if code != 200 {
		f.Fatalf("%v: POST %s %s: %d %v", time.Now(), path, body, code, o)
	}
	return o
}

// refused posts a command that must be refused with a code.
func (f *flight) refused(path, body string, code int, word string) object {
	f.Helper()
	got, o := f.call("POST", path, body)
	if got != code || o["code"] != word {
		f.Fatalf("POST %s %s: %d %v, want %d %s", path, body, got, o, code, word)
	}
	return o
}

func (f *flight) wantMode(want string) {
	f.Helper()
	if _, o := f.call("GET", "/mode", ""); o["mode"] != want {
		f.Errorf("mode is %v (vehicle %v), want %s", o["mode"], o["vehicle_mode"], want)
	}
}

// wantAt checks where the vehicle really is: metres from home and above it.
func (f *flight) wantAt(north, east, up, within float64) {
	f.Helper()
	s := f.sim.truth()
	n, e := simMetres(s.lat, s.lon)
	if math.Abs(n-north) > within || math.Abs(e-east) > within || math.Abs(s.alt-up) > within {
		f.Errorf("vehicle is %.1f m north, %.1f m east, %.1f m up; want %.1f, %.1f, %.1f", n, e, s.alt, north, east, up)
	}
}

// until waits up to limit for a condition.
func (f *flight) until(what string, limit time.Duration, ok func() bool) {
	f.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("not within %v: %s; status %v", limit, what, f.status())
		}
	}
}

func (f *flight) disarmed() bool { return !f.sim.truth().armed }

// aloft takes off to 10 m.
func (f *flight) aloft() {
	f.Helper()
	f.accepted("/takeoff", "")
	time.Sleep(15 * time.Second)
	f.wantAt(0, 0, 10, 0.4)
}

// at is a place in metres from home, as the fields of a body.
func at(north, east float64) string {
	lat, lon := simPlace(north, east)
	return fmt.Sprintf(`"lat":%.7f,"lon":%.7f`, lat, lon)
}

// commands lists what was sent to command the vehicle, without the questions.
func (f *flight) commands() []string {
	var list []string
	for _, r := range f.sim.received() {
		switch m := r.msg.(type) {
		case *common.MessageCommandLong:
			if m.Command != common.MAV_CMD_SET_MESSAGE_INTERVAL && m.Command != common.MAV_CMD_REQUEST_MESSAGE {
				list = append(list, fmt.Sprintf("%d %g %g", m.Command, m.Param1, m.Param2))
			}
		case *common.MessageCommandInt:
			list = append(list, fmt.Sprintf("%d frame %d z %.1f", m.Command, m.Frame, m.Z))
		}
	}
	return list
}

// sticksSince lists the MANUAL_CONTROLs that came after a time.
func (f *flight) sticksSince(since time.Time) []simReceived {
	return slices.DeleteFunc(f.sim.received(), func(r simReceived) bool {
		_, sticks := r.msg.(*common.MessageManualControl)
		return !sticks || r.at.Before(since)
	})
}

func TestAWholeFlight(t *testing.T) {
	wire := map[firmware][]string{
		px4: {
			"400 1 0", "22 NaN NaN", // takeoff
			"192 frame 0 z 503.3",               // goto
			"176 1 3",                           // position
			"192 frame 0 z 503.3", "21 NaN NaN", // land at a place
		},
		copter: {
			"176 1 4", "400 1 0", "22 0 0",
			"192 frame 3 z 15.0", "115 0 0",
			"176 1 5",
			"192 frame 3 z 15.0", "21 0 0",
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
	after := map[string]time.Duration{"altitude": silentAt, "manual": silentHand}
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
					if forget != nil {
						forget(f.sim)
						time.Sleep(liveAfter + 100*time.Millisecond)
					}
					for range 10 {
						time.Sleep(1237 * time.Millisecond)
						f.sim.pilotMode(stabilized[f.firmware])
						time.Sleep(pollEvery + 50*time.Millisecond)
						f.wantMode("manual")
						f.accepted("/mode", `{"mode":"hold"}`)
						f.wantMode("hold")
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

func TestRefusedTakeoffChangesNothing(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		fly(t, flavour, func(s *simulator) { s.armableAfter = time.Hour }, func(f *flight) {
			before := f.sim.truth().mode
			o := f.refused("/takeoff", "", 409, "refused")
			if o["command"] != 400.0 || len(o["messages"].([]any)) == 0 || !strings.Contains(o["error"].(string), "rm") {
				f.Errorf("the refusal does not say why: %v", o)
			}
			if got := f.sim.truth(); got.mode != before || got.armed {
				f.Errorf("the vehicle is left in mode %#x, armed %v", got.mode, got.armed)
			}
			for range 8 {
				time.Sleep(time.Second)
				f.wantMode("manual")
			}
		})
	}
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

// On the wing it circles 75 m round every place.
func TestAQuadPlaneOnTheWingHoldsAndArrives(t *testing.T) {
	fly(t, simQuadPlane, nil, func(f *flight) {
		f.accepted("/takeoff", `{"altitude":30,"wait":60}`)
		f.sim.pilotMode(5) // FBWA
		f.until("on the wing", time.Minute, func() bool { return f.status()["velocity"].(object)["ground_speed"].(float64) > 24 })
		time.Sleep(time.Second)
		f.waits("/mode", `{"mode":"hold","wait":5}`).want(t, 200, "")
		f.waits("/goto", waitFor(at(600, 0)+`,"altitude":30`, 120)).want(t, 200, "")
		s := f.sim.truth()
		if n, e := simMetres(s.lat, s.lon); math.Hypot(n-600, e) > 1.5*simWingRadius+1 {
			t.Errorf("done %.0f m from the place", math.Hypot(n-600, e))
		}
	})
}

// It rolls in the air, as it believes, and circles ever after.
func TestAFixedWingTakesOffHoldsArrivesAndReturns(t *testing.T) {
	fly(t, simPlane, nil, func(f *flight) {
		f.waits("/takeoff", `{"wait":100}`).want(t, 200, "")
		if up := f.sim.truth().alt; up < 44 {
			t.Errorf("the takeoff is done at %.1f m", up)
		}
		w := f.waits("/mode", `{"mode":"hold","wait":5}`)
		w.want(t, 200, "")
		if took := w.answered.Sub(w.asked); took > time.Second {
			t.Errorf("the hold took %v", took)
		}
		near := func(what string, north float64) {
			s := f.sim.truth()
			n, e := simMetres(s.lat, s.lon)
			if away := math.Hypot(n-north, e); away > 1.5*simWingRadius+1 {
				t.Errorf("%s is done %.0f m away", what, away)
			}
		}
		f.waits("/goto", waitFor(at(900, 0)+`,"altitude":60`, 200)).want(t, 200, "")
		near("the goto", 900)
		f.waits("/mode", `{"mode":"rtl","wait":200}`).want(t, 200, "")
		near("the return", 0)
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

func TestSticksComeFromTheSystemThatArduPilotListensTo(t *testing.T) {
	fly(t, simArduPilot, func(s *simulator) { delete(s.params, "SYSID_MYGCS"); s.params["MAV_GCS_SYSID"] = 42 }, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":1,"timeout":5}`)
		time.Sleep(5 * time.Second)
		if n, _ := simMetres(f.sim.truth().lat, f.sim.truth().lon); n < 5 {
			f.Errorf("the sticks did not fly it: %.1f m", n)
		}
		for _, r := range f.sim.received() {
			_, sticks := r.msg.(*common.MessageManualControl)
			if sticks != (r.system == 42) || r.component != componentID {
				f.Fatalf("%T came from %d/%d", r.msg, r.system, r.component)
			}
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

// fails makes the vehicle refuse a command, and do nothing of it.
func (f *flight) fails(id common.MAV_CMD) (end func()) {
	f.sim.change(func() { f.sim.refuses[id] = true })
	return func() { f.sim.change(func() { delete(f.sim.refuses, id) }) }
}

func TestRefusedCommandDoesNotEndTheWayToALanding(t *testing.T) {
	for _, c := range []struct {
		name  string
		order func(f *flight)
	}{
		{"disarming", func(f *flight) { f.refused("/mode", `{"arm":false}`, 409, "refused") }},
		{"unreadable", func(f *flight) { f.refused("/goto", `{"lat":1}`, 422, "out_of_range") }},
		{"an arming without an answer", func(f *flight) {
			f.loseAcks(common.MAV_CMD_COMPONENT_ARM_DISARM)
			f.refused("/mode", `{"arm":true}`, 504, "no_ack")
			f.sim.change(func() { f.sim.onAck = nil })
		}},
		{"goto", func(f *flight) {
			defer f.fails(common.MAV_CMD_DO_REPOSITION)()
			f.refused("/goto", "{"+at(0, 60)+"}", 409, "refused")
		}},
		{"goto with a speed", func(f *flight) {
			defer f.fails(common.MAV_CMD_DO_REPOSITION)()
			f.refused("/goto", "{"+at(0, 60)+`,"speed":5}`, 409, "refused")
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
			f.refused("/mode", `{"arm":false}`, 409, "refused")
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

func TestArmingDoesNotEndTheWayToALanding(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/land", "{"+at(40, 0)+"}")
		time.Sleep(2 * time.Second)
		f.accepted("/mode", `{"arm":true}`)
		f.wantMode("land")
		f.until("landed", 90*time.Second, f.disarmed)
		f.wantMode("land")
		f.wantAt(40, 0, 0, 2)
	})
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

func TestHoldDoesNotFlyBackToAnOldPosition(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(200, 0)+"}")
		time.Sleep(3 * time.Second)
		f.sim.change(func() {
			f.sim.streaming = slices.DeleteFunc(f.sim.streaming, func(s *simStream) bool { return s.id == 33 })
		})
		time.Sleep(4 * time.Second)
		sent := len(f.commands())
		f.accepted("/mode", `{"mode":"hold"}`)
		if got, want := f.commands()[sent:], []string{"176 1 17", "176 1 4"}; !slices.Equal(got, want) {
			f.Errorf("sent %q, want %q", got, want)
		}
	})
}

func TestRefusedTurnKeepsTheGotoThatNobodyAskedToTurn(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.failAcks(common.MAV_CMD_CONDITION_YAW)
		f.accepted("/goto", "{"+at(30, 0)+"}")
		time.Sleep(15 * time.Second)
		f.wantAt(30, 0, 10, 0.5)
	})
}

// acks makes of the acks of a command what answers says, from now on; the others
// go out as they are.
func (f *flight) acks(id common.MAV_CMD, answers func(a *common.MessageCommandAck) []simAnswer) {
	f.sim.change(func() {
		f.sim.onAck = func(a *common.MessageCommandAck) []simAnswer {
			if a.Command == id {
				return answers(a)
			}
			return []simAnswer{{ack: a}}
		}
	})
}

// loseAcks loses the acks of a command; the vehicle carries it out.
func (f *flight) loseAcks(id common.MAV_CMD) {
	f.acks(id, func(*common.MessageCommandAck) []simAnswer { return nil })
}

// failAcks makes every ack of a command a refusal.
func (f *flight) failAcks(id common.MAV_CMD) {
	f.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		a.Result = common.MAV_RESULT_FAILED
		return []simAnswer{{ack: a}}
	})
}

// A takeoff that nobody acknowledged may have happened: what refuses to be
// disarmed flies, and is not put back into the mode it stood in.
func TestVehicleThatMayFlyKeepsItsMode(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		flies := false
		f.sim.change(func() {
			f.sim.onAck = func(a *common.MessageCommandAck) []simAnswer {
				switch {
				case a.Command == common.MAV_CMD_NAV_TAKEOFF:
					flies = true
					return nil
				case a.Command == common.MAV_CMD_COMPONENT_ARM_DISARM && flies:
					a.Result = common.MAV_RESULT_FAILED
				}
				return []simAnswer{{ack: a}}
			}
		})
		f.refused("/takeoff", "", 504, "no_ack")
		sent := f.commands()
		if last := sent[len(sent)-1]; last != "400 0 0" {
			f.Errorf("sent %q; the last should be the disarming", sent)
		}
		if mode := f.sim.truth().mode; mode != entered[copter][ModeTakeoff] {
			f.Errorf("the vehicle is in mode %d", mode)
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

// In manual mode the throttle carries the vehicle.
func TestRefusedCommandLeavesTheThrottleOfManualMode(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"manual"}`)
		f.accepted("/input", `{"throttle":0.7,"timeout":5}`)
		began := time.Now()
		defer f.fails(common.MAV_CMD_DO_REPOSITION)()
		f.refused("/goto", "{"+at(60, 0)+"}", 409, "refused")
		f.wantMode("manual")
		time.Sleep(time.Second)
		sticks := f.sticksSince(began.Add(time.Millisecond))
		if len(sticks) < 25 {
			f.Errorf("%d sticks in %v", len(sticks), time.Since(began))
		}
		for _, s := range sticks {
			if m := s.msg.(*common.MessageManualControl); m.Z != 700 {
				f.Fatalf("throttle %d, %v after the command", m.Z, s.at.Sub(began))
			}
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

// An arming that waits for its ack does not keep the link from seeing that the
// pilot left the stick modes.
func TestPilotsSwitchTakesTheSticksAlsoWhileAnArmingWaits(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":1,"timeout":5}`)
		f.loseAcks(common.MAV_CMD_COMPONENT_ARM_DISARM)
		var arming sync.WaitGroup
		arming.Go(func() { f.refused("/mode", `{"arm":true}`, 409, "interrupted") })
		time.Sleep(100 * time.Millisecond)
		f.sim.pilotMode(entered[copter][ModeRTL])
		time.Sleep(1100 * time.Millisecond)
		f.wantMode("rtl")
		seen := time.Now()
		time.Sleep(500 * time.Millisecond)
		if sticks := f.sticksSince(seen); len(sticks) > 0 {
			f.Errorf("sticks after the pilot took them: %+v", sticks[0].msg)
		}
		arming.Wait()
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

// Whole flights with somebody else beside the client: a pilot, a failsafe, a
// restart, a lost link, a second client. A moment is where the client's command
// is when it happens; flight_px4_test.go and flight_ardupilot_test.go
// have the tables of them.
//
// The invariant of all: after a report that no command of ours explains, nothing
// is sent that commands or moves the vehicle until a client asks again, but for
// a stream that is centred, parked unmoved or released.

// pilotFlight is a flight with a client's command under way.
type pilotFlight struct {
	*flight
	order *pilotOrder // nil: none waits, nor is watched
}

// pilotOrder is a command that a client waits for.
type pilotOrder struct {
	ended chan struct{}
	at    time.Time // when the answer came
	code  int
	body  object
}

// moment brings a flight to a moment of a manoeuvre.
type moment struct {
	name  string
	bring func(p *pilotFlight)
	mode  string // that the flight has or comes to where nothing ends the command

	explained []uint32 // modes that nobody can tell from what was commanded
	waiting   bool     // the command is not answered yet
	acked     bool     // nor shown, but acknowledged
	silent    bool     // the command is mavrest's own, for a silent client
	disarmed  bool     // the vehicle stands on the ground, and is not armed yet
	without   []uint32 // modes that the vehicle itself does not stay in here
}

// post sends a command and does not wait for its answer.
func (p *pilotFlight) post(path, body string) {
	o := &pilotOrder{ended: make(chan struct{})}
	p.order = o
	go func() {
		o.code, o.body = p.call("POST", path, body)
		o.at = time.Now()
		close(o.ended)
	}()
}

// answered waits for the command's answer.
func (p *pilotFlight) answered(limit time.Duration) *pilotOrder {
	p.Helper()
	select {
	case <-p.order.ended:
	case <-time.After(limit):
		p.Fatalf("no answer in %v; status %v", limit, p.status())
	}
	return p.order
}

// wantAnswer checks how the command was answered; code "" is accepted.
func (p *pilotFlight) wantAnswer(limit time.Duration, code string) {
	p.Helper()
	if p.order == nil {
		return
	}
	if o := p.answered(limit); fmt.Sprint(o.body["code"]) != code && (code != "" || o.code != 200) {
		p.Errorf("answered %d %v, want %q", o.code, o.body, code)
	}
}

// acked waits until so many acks of a command went out from now on, and then a
// while.
func (p *pilotFlight) acked(id common.MAV_CMD, n int, begin func(), then time.Duration) {
	p.Helper()
	came := make(chan struct{})
	p.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		if n--; n == 0 {
			close(came)
		}
		return []simAnswer{{ack: a}}
	})
	begin()
	select {
	case <-came:
	case <-time.After(30 * time.Second):
		p.Fatalf("no ack of %v; status %v", id, p.status())
	}
	time.Sleep(then)
}

// report is the last report that came, and when.
func (f *flight) report() (custom uint32, armed bool, at time.Time) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	b := &f.link.tel.beat
	return b.custom, b.armed, b.at
}

// reported waits until a heartbeat shows a mode, and tells when it came.
func (f *flight) reported(custom uint32, since time.Time, limit time.Duration) time.Time {
	f.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		if c, _, at := f.report(); c == custom && at.After(since) {
			return at
		}
		if time.Now().After(end) {
			f.Fatalf("no heartbeat shows %#x within %v; truth %+v", custom, limit, f.sim.truth())
		}
	}
}

// commandsSince lists what commanded the vehicle from a time on.
func (f *flight) commandsSince(since time.Time) (list []string) {
	for _, r := range f.sim.received() {
		if r.at.Before(since) {
			continue
		}
		var id common.MAV_CMD
		switch m := r.msg.(type) {
		case *common.MessageCommandLong:
			id = m.Command
		case *common.MessageCommandInt:
			id = m.Command
		case *common.MessageSetMode:
			list = append(list, "SET_MODE")
			continue
		default:
			continue
		}
		if id != common.MAV_CMD_SET_MESSAGE_INTERVAL && id != common.MAV_CMD_REQUEST_MESSAGE {
			list = append(list, fmt.Sprintf("%v %v after", id, r.at.Sub(since)))
		}
	}
	return list
}

// stream lists the different axes that were streamed from a time on, in their
// order.
func (f *flight) stream(since time.Time) (list []axes) {
	for _, r := range f.sticksSince(since) {
		m := r.msg.(*common.MessageManualControl)
		a := axes{m.X, m.Y, m.Z, m.R}
		if len(list) == 0 || list[len(list)-1] != a {
			list = append(list, a)
		}
	}
	return list
}

// streamed are the axes that were streamed last; ok: less than 0.2 s ago.
func (f *flight) streamed() (last axes, ok bool) {
	list := f.stream(time.Now().Add(-200 * time.Millisecond))
	if len(list) == 0 {
		return last, false
	}
	return list[len(list)-1], true
}

// wantHandsOff checks the invariant from a time on.
func (f *flight) wantHandsOff(since time.Time) {
	f.Helper()
	if list := f.commandsSince(since); len(list) > 0 {
		f.Errorf("commanded after somebody else took the drone: %q", list)
	}
}

// wantStream checks that nothing but these axes was streamed, without a gap that
// PX4 would call a loss; nil: nothing at all.
func (f *flight) wantStream(since time.Time, want *axes) {
	f.Helper()
	got := f.stream(since)
	switch {
	case want == nil && len(got) > 0:
		f.Errorf("streamed %v, want nothing", got)
	case want != nil && !slices.Equal(got, []axes{*want}):
		f.Errorf("streamed %v, want %v alone", got, *want)
	}
	for last := since; want != nil; {
		for _, r := range f.sticksSince(since) {
			if gap := r.at.Sub(last); gap > 200*time.Millisecond {
				f.Errorf("a gap of %v in the stream", gap)
			}
			last = r.at
		}
		return
	}
}

// wantTruth checks that mode and vehicle_mode are the vehicle's own.
func (f *flight) wantTruth() {
	f.Helper()
	mode, name := f.firmware.reported(f.sim.truth().mode)
	if _, o := f.call("GET", "/mode", ""); o["mode"] != mode.String() || o["vehicle_mode"] != name {
		f.Errorf("mode is %v, vehicle_mode %v; the vehicle is in %s (%s)", o["mode"], o["vehicle_mode"], name, mode)
	}
}

// wantNoInput checks that the client can't move the sticks.
func (f *flight) wantNoInput() {
	f.Helper()
	f.refused("/input", `{"pitch":1,"throttle":0.5}`, 409, "wrong_mode")
}

// speed is how fast the vehicle really is, over ground.
func (f *flight) speed() float64 {
	s := f.sim.truth()
	return math.Hypot(s.vn, s.ve)
}

// atMoments flies to each moment and has something happen there.
func atMoments(t *testing.T, flavour simFlavour, moments []moment, prepare func(*simulator), happens func(p *pilotFlight, m moment)) {
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			fly(t, flavour, prepare, func(f *flight) {
				p := &pilotFlight{flight: f}
				m.bring(p)
				happens(p, m)
				if p.order != nil {
					p.answered(10 * time.Minute)
				}
			})
		})
	}
}

// silentHoldIsRefused flies a copter whose client fell silent, to 60 ms after the
// refusal of the hold that mavrest asked for.
func silentHoldIsRefused(f *flight) {
	f.aloft()
	f.accepted("/mode", `{"mode":"altitude"}`)
	f.accepted("/input", `{"pitch":0.3}`)
	f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true })
	time.Sleep(4 * time.Second)
	f.until("the hold was sent", 10*time.Second, func() bool {
		return len(f.commandsSince(time.Now().Add(-50*time.Millisecond))) > 0
	})
	time.Sleep(60 * time.Millisecond)
}

func TestARefusedHoldForASilentClientIsNoLandingOverAPilot(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		silentHoldIsRefused(f)
		f.sim.pilotMode(16) // POSHOLD
		f.sim.change(func() { f.sim.send(f.sim.brain.message(0)) })
		taken := f.reported(16, time.Now().Add(-time.Millisecond), 200*time.Millisecond)
		f.wantMode("position")
		time.Sleep(10 * time.Second)
		f.wantHandsOff(taken)
	})
}

func TestARefusedHoldForASilentClientIsNoLandingOverANewCommand(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		silentHoldIsRefused(f)
		f.accepted("/goto", "{"+at(60, 0)+"}")
		time.Sleep(time.Millisecond) // the goto's own heading
		since := time.Now()
		time.Sleep(5 * time.Second)
		f.wantHandsOff(since)
		f.wantMode("hold")
	})
}

func TestAHoldForASilentClientIsNotSentOverAPilotWhoWasFirst(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3}`)
		time.Sleep(4500 * time.Millisecond)
		d := f.link
		f.sim.pilotMode(16)
		d.mu.Lock()
		since := time.Now()
		d.sticks.tick(d.sticks.facts(since.Add(time.Second))) // as drone.tick does, half a second early
		owed := d.sticks.act().hold && d.cmd.idle()
		d.wg.Go(d.conduct.holdForSilent)
		// The reader has the mutex before that goroutine.
		d.take(&minimal.MessageHeartbeat{
			Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA,
			BaseMode: 0xd9, CustomMode: 16, SystemStatus: minimal.MAV_STATE_ACTIVE,
		}, since)
		taken := d.sticks.taken()
		d.mu.Unlock()
		if !owed || !taken {
			t.Fatalf("the hold is owed: %v, the pilot has the sticks: %v", owed, taken)
		}
		time.Sleep(5 * time.Second)
		f.wantHandsOff(since)
	})
}

func TestTheFarewellIsNotRepeatedOverAPilot(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
		time.Sleep(time.Second)
		f.loseAcks(common.MAV_CMD_DO_SET_MODE)
		f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true }) // the first copy is lost
		stopping := time.Now()
		f.stop()
		time.Sleep(80 * time.Millisecond)
		if len(f.commandsSince(stopping)) == 0 {
			t.Fatal("no farewell was sent")
		}
		f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = false })
		f.sim.pilotMode(16)
		f.sim.change(func() { f.sim.send(f.sim.brain.message(0)) })
		since := time.Now()
		time.Sleep(3 * time.Second)
		f.wantHandsOff(since)
	})
}

func TestTheFarewellIsNotSentOverAPilotWhomNoHeartbeatHasTold(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
		time.Sleep(time.Second)
		since := time.Now()
		f.sim.pilotMode(16)
		f.stop()
		time.Sleep(3 * time.Second)
		f.wantHandsOff(since)
	})
}
