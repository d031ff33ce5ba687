package main

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// Why a command was not carried out, in whole flights (docs/design.md, "Reasons of
// a refusal").

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

func TestInputWaitsUntilItsModeShowsAndNoOtherIsOnItsWay(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
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
