package main

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What "wait" waits for (docs/design.md, rule 9), and what else ends it.

// waiting is a command whose client waits.
type waiting struct {
	asked, answered time.Time
	code            int
	answer          object
	over            chan struct{}
}

// waits posts a command from a client of its own.
func (f *flight) waits(path, body string) *waiting {
	w := &waiting{asked: time.Now(), over: make(chan struct{})}
	go func() {
		defer close(w.over)
		w.code, w.answer = f.call("POST", path, body)
		w.answered = time.Now()
	}()
	return w
}

// want checks what the client was told: a status and, of an error, its code and
// words of its sentence.
func (w *waiting) want(t *testing.T, code int, word string, says ...string) {
	t.Helper()
	<-w.over
	if w.code != code || word != "" && w.answer["code"] != word {
		t.Errorf("answered %d %v, want %d %s", w.code, w.answer, code, word)
		return
	}
	if done, took := w.answer["done"], w.answer["took"]; code == 200 {
		if seconds, _ := took.(float64); done != true || math.Abs(seconds-w.answered.Sub(w.asked).Seconds()) > 0.01 {
			t.Errorf("done is %v, took %v after %v", done, took, w.answered.Sub(w.asked))
		}
	} else if word != "not_done" && (done != nil || took != nil) {
		t.Errorf("an answer that is no end has done %v, took %v", done, took)
	}
	for _, s := range says {
		if text, _ := w.answer["error"].(string); !strings.Contains(text, s) {
			t.Errorf("%q does not say %q", text, s)
		}
	}
}

// waits checks that the client still waits.
func (w *waiting) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case <-w.over:
		t.Fatalf("does not wait: %d %v after %v", w.code, w.answer, w.answered.Sub(w.asked))
	default:
	}
}

// near reports whether the vehicle is where a goto is complete.
func (f *flight) near(north, east, up float64) bool {
	s := f.sim.truth()
	n, e := simMetres(s.lat, s.lon)
	return math.Hypot(n-north, e-east) <= 2.1 && math.Abs(s.alt-up) <= 1.1 && f.slower(1.1)
}

func (f *flight) slower(speed float64) bool {
	s := f.sim.truth()
	return math.Hypot(math.Hypot(s.vn, s.ve), s.vd) < speed
}

func TestAWaitIsAnsweredWhenTheManoeuvreIsComplete(t *testing.T) {
	climbed := func(up float64) func(*flight) bool {
		return func(f *flight) bool {
			s := f.sim.truth()
			return math.Abs(s.alt-up) <= max(min(1, up/2), up/20)+0.1 && math.Abs(s.vd) < 0.6
		}
	}
	fast := func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(200, 0)+"}")
		time.Sleep(10 * time.Second)
		if f.slower(4) {
			f.Fatal("it does not fly yet")
		}
	}
	for _, c := range []struct {
		name, path, body string
		from             func(*flight) // nil: on the ground
		complete         func(*flight) bool
		atOnce           bool
	}{
		{"takeoff", "/takeoff", `"altitude":10`, nil, climbed(10), false},
		{"a takeoff to half a metre", "/takeoff", `"altitude":0.5`, nil, climbed(0.5), false},
		{"a takeoff to 60 m", "/takeoff", `"altitude":60`, nil, climbed(60), false},
		{"takeoff as a mode", "/mode", `"mode":"takeoff"`, nil, climbed(10), false},
		{"goto", "/goto", at(60, 20) + `,"altitude":20`, (*flight).aloft, func(f *flight) bool { return f.near(60, 20, 20) }, false},
		{"a climb", "/goto", `"altitude":30`, (*flight).aloft, func(f *flight) bool { return f.near(0, 0, 30) }, false},
		{"a descent, above the sea", "/goto", `"altitude_msl":493.3`, (*flight).aloft, func(f *flight) bool { return f.near(0, 0, 5) }, false},
		{"a goto with a heading", "/goto", at(5, 0) + `,"heading":180`, (*flight).aloft, func(f *flight) bool {
			return f.near(5, 0, 10) && math.Abs(f.sim.truth().heading-180) <= 11
		}, false},
		{"a turn", "/goto", `"heading":90`, (*flight).aloft, func(f *flight) bool { return math.Abs(f.sim.truth().heading-90) <= 11 }, false},
		{"hold", "/mode", `"mode":"hold"`, fast, func(f *flight) bool { return f.slower(0.6) }, false},
		{"land", "/land", ``, (*flight).aloft, (*flight).disarmed, false},
		{"land as a mode", "/mode", `"mode":"land"`, (*flight).aloft, (*flight).disarmed, false},
		{"land at a place", "/land", at(40, 0), (*flight).aloft, (*flight).disarmed, false},
		{"rtl", "/mode", `"mode":"rtl"`, fast, (*flight).disarmed, false},
		{"rtgs", "/mode", `"mode":"rtgs"`, fast, (*flight).disarmed, false},
		{"arming", "/mode", `"arm":true`, nil, func(f *flight) bool { return !f.disarmed() }, true},
		{"disarming", "/mode", `"arm":false`, nil, (*flight).disarmed, true},
		{"a stick mode", "/mode", `"mode":"altitude"`, (*flight).aloft, func(f *flight) bool { return true }, true},
		{"a hold on the ground", "/mode", `"mode":"hold"`, nil, func(f *flight) bool { return true }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(f *flight) {
				if c.from != nil {
					c.from(f)
				}
				w := f.waits(c.path, waitFor(c.body, 300))
				var complete time.Time // since when it is, without a break
				doneEarly := false
				for over := false; !over; {
					select {
					case <-w.over:
						over = true
					case <-time.After(20 * time.Millisecond):
						if !c.complete(f) {
							complete = time.Time{}
						} else if complete.IsZero() {
							complete = time.Now()
						}
						if s := f.status(); time.Since(w.asked) > 4*time.Second && s["done"] == true && complete.IsZero() {
							doneEarly = true
						}
					}
				}
				w.want(t, 200, "")
				if !c.complete(f) || doneEarly {
					t.Errorf("answered after %v, and it is not complete: %+v", w.answered.Sub(w.asked), f.sim.truth())
				}
				if late := w.answered.Sub(complete); !c.atOnce && late > 1300*time.Millisecond {
					t.Errorf("answered %v after it was complete", late)
				}
				if took := w.answered.Sub(w.asked); c.atOnce && took > 3*time.Second {
					t.Errorf("answered after %v, want at once", took)
				}
				if s := f.status(); !c.atOnce && s["done"] != true {
					t.Errorf("answered as done, and the status has done %v", s["done"])
				}
				_, plain := f.call("GET", "/mode", "")
				if w.answer["status"] != "accepted" || w.answer["status_code"] != 0.0 || w.answer["mode"] != plain["mode"] {
					t.Errorf("answered %v in mode %v", w.answer, plain)
				}
			})
		})
	}
}

// longWays are commands that take a while from 10 m up.
var longWays = []struct{ name, path, body string }{
	{"goto", "/goto", at(300, 0)},
	{"land", "/land", ``},
	{"land at a place", "/land", at(300, 0)},
	{"rtl", "/mode", `"mode":"rtl"`},
}

func waitFor(body string, seconds float64) string {
	return "{" + strings.TrimPrefix(fmt.Sprintf(`%s,"wait":%g}`, body, seconds), ",")
}

func TestWhatElseEndsAManoeuvreIsTold(t *testing.T) {
	pilots := func(f *flight) uint32 {
		if f.firmware == px4 {
			return simPX4Altctl
		}
		return 2 // ALT_HOLD
	}
	for _, c := range []struct {
		name string
		ends func(f *flight)
		code int
		word string
		says string
	}{
		{"a newer command", func(f *flight) { f.accepted("/mode", `{"mode":"hold"}`) }, 409, "superseded", "newer command"},
		{"sticks", func(f *flight) { f.accepted("/mode", `{"mode":"position"}`) }, 409, "superseded", "newer command"},
		{"another goto", func(f *flight) { f.accepted("/goto", `{"altitude":12}`) }, 409, "superseded", "newer command"},
		{"the pilot's switch", func(f *flight) { f.sim.pilotMode(pilots(f)) }, 409, "interrupted", "it is in ALT"},
		{"a failsafe", func(f *flight) { f.sim.failsafeReturn() }, 409, "interrupted", "RTL"},
		{"a restart", func(f *flight) { f.sim.reboot(true) }, 409, "interrupted", ""},
		{"a lost link", func(f *flight) { f.sim.change(func() { f.sim.muted = true }) }, 503, "offline", ""},
		{"the end of the program", func(f *flight) { f.stop() }, 503, "offline", "shutting down"},
	} {
		for _, m := range longWays {
			t.Run(c.name+", "+m.name, func(t *testing.T) {
				both(t, func(f *flight) {
					f.aloft()
					w := f.waits(m.path, waitFor(m.body, 300))
					time.Sleep(5 * time.Second)
					w.waits(t)
					if s := f.status(); s["done"] != false {
						t.Errorf("done is %v on the way", s["done"])
					}
					c.ends(f)
					ended := time.Now()
					w.want(t, c.code, c.word, c.says)
					within := 1500 * time.Millisecond
					if c.name == "a lost link" || c.name == "a restart" { // ArduPilot forgets its streams, which is seen after 5 s
						within = 6 * time.Second
					}
					if late := w.answered.Sub(ended); late > within {
						t.Errorf("told %v after it ended", late)
					}
					if s := f.status(); c.word == "interrupted" && s["done"] != nil {
						t.Errorf("done is %v, and something else ended it", s["done"])
					}
				})
			})
		}
	}
}

// A takeoff is under way for a few seconds only.
func TestWhatElseEndsATakeoffIsTold(t *testing.T) {
	both(t, func(f *flight) {
		w := f.waits("/takeoff", `{"altitude":50,"wait":100}`)
		time.Sleep(8 * time.Second)
		w.waits(t)
		f.sim.failsafeReturn()
		w.want(t, 409, "interrupted", "RTL")
	})
	both(t, func(f *flight) {
		w := f.waits("/takeoff", `{"altitude":50,"wait":100}`)
		time.Sleep(8 * time.Second)
		f.accepted("/land", "")
		w.want(t, 409, "superseded")
	})
}

func TestARefusedCommandAndArmingLeaveTheWait(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		w := f.waits("/goto", waitFor(at(40, 0), 100))
		time.Sleep(2 * time.Second)
		f.accepted("/mode", `{"arm":true}`)
		if code, o := f.call("POST", "/mode", `{"arm":false}`); code != 409 {
			t.Errorf("disarming in the air: %d %v", code, o)
		}
		f.refused("/takeoff", `{"altitude":5}`, 409, "refused")
		w.waits(t)
		w.want(t, 200, "")
		f.wantAt(40, 0, 10, 2.5)
	})
}

func TestAWaitWhoseTimeIsUpTellsAndTheManoeuvreGoesOn(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		n := len(f.commands())
		w := f.waits("/goto", waitFor(at(60, 0), 3))
		w.want(t, 504, "not_done", "goto", "3 s")
		if took := w.answered.Sub(w.asked); took != 3*time.Second {
			t.Errorf("answered after %v, want 3 s", took)
		}
		command := 192.0
		if f.firmware == copter {
			command = 115 // the heading that is kept
		}
		for name, want := range (object{"status": "accepted", "status_code": 0.0, "command": command, "mode": "hold", "done": false, "took": 3.0}) {
			if w.answer[name] != want {
				t.Errorf("%s is %v, want %v", name, w.answer[name], want)
			}
		}
		sent := len(f.commands())
		f.until("there", time.Minute, func() bool { return f.near(60, 0, 10) })
		time.Sleep(time.Second)
		if s := f.status(); s["done"] != true {
			t.Errorf("done is %v at the place", s["done"])
		}
		if got := f.commands(); len(got) != sent || sent == n {
			t.Errorf("after the answer the vehicle was told %v", got[sent:])
		}
	})
	both(t, func(f *flight) { // as much as nothing
		f.aloft()
		f.waits("/land", `{"wait":0.001}`).want(t, 504, "not_done", "land")
		f.waits("/land", `{"wait":0.4}`).want(t, 504, "not_done", "not complete after 0.4 s")
		if _, o := f.call("POST", "/land", `{"wait":0}`); o["done"] != nil || o["took"] != nil {
			t.Errorf("no wait, and the answer is %v", o)
		}
		w := f.waits("/mode", `{"mode":"altitude","wait":0.001}`)
		w.want(t, 200, "") // its time is over when it is acknowledged, and it is complete
		if took := w.answered.Sub(w.asked); took <= time.Millisecond {
			t.Errorf("answered after %v: its time was not over", took)
		}
	})
}

func TestAClientThatGoesAwayEndsItsWaitingAndNothingElse(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		ctx, leave := context.WithCancel(context.Background())
		r := httptest.NewRequestWithContext(ctx, "POST", "/api/drone/goto", strings.NewReader(waitFor(at(60, 0), 100)))
		gone := make(chan struct{})
		go func() { f.handler.ServeHTTP(httptest.NewRecorder(), r); close(gone) }()
		stays := f.waits("/goto", waitFor(at(60, 0), 100)) // an equal one
		time.Sleep(2 * time.Second)
		sent := len(f.commands())
		left := time.Now()
		leave()
		<-gone
		if waited := time.Since(left); waited != 0 {
			t.Errorf("its handler ended %v later", waited)
		}
		stays.want(t, 200, "")
		if got := f.commands(); len(got) != sent {
			t.Errorf("the vehicle was told %v", got[sent:])
		}
		f.wantAt(60, 0, 10, 2.5)
	})
}

func TestAnEqualCommandSentAnewKeepsTheWait(t *testing.T) {
	for _, m := range longWays {
		t.Run(m.name, func(t *testing.T) {
			both(t, func(f *flight) {
				f.aloft()
				first := f.waits(m.path, waitFor(m.body, 300))
				time.Sleep(3 * time.Second)
				second := f.waits(m.path, waitFor(m.body, 290)) // how long it waits is no part of it
				time.Sleep(time.Second)
				first.waits(t)
				second.waits(t)
				second.want(t, 200, "")
				first.want(t, 200, "")
				if apart := second.answered.Sub(first.answered).Abs(); apart > 10*time.Millisecond {
					t.Errorf("two that wait for the same were answered %v apart", apart)
				}
			})
		})
	}
}

// The server's own time-outs are 10 s for reading and 60 s for writing.
func TestTheServersTimeOutsNeverCutAWait(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		st.fly("hold") // 100 m up: a landing takes over two minutes
		p, end := serve(st.T, st.handler, maxConnections)
		defer end()
		w := p.connect()
		began := time.Now()
		r := w.ask("POST", "/api/drone/land", `{"wait":600}`)
		r.wantOK(st.T)
		if took := time.Since(began); took < 100*time.Second || !strings.Contains(r.body, `"done":true`) {
			st.Errorf("after %v: %s", took, r.body)
		}
		w.ask("GET", "/api/drone", "").wantOK(st.T) // and the connection goes on
	})
}

func TestACrowdThatWaitsKeepsNoCommandWaiting(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		st.fly("hold")
		p, end := serve(st.T, st.handler, maxConnections)
		defer end()
		var clients sync.WaitGroup
		var mu sync.Mutex
		answers := map[int]int{}
		for range 60 {
			w := p.connect()
			clients.Go(func() {
				w.send("POST", "/api/drone/land", `{"wait":600}`)
				r, err := w.receive("POST")
				if err != nil {
					st.Errorf("a client that waited was not answered: %v", err)
				} else {
					r.checkForm(st.T)
				}
				mu.Lock()
				defer mu.Unlock()
				answers[r.status]++
			})
			time.Sleep(time.Millisecond)
		}
		for range maxStreams {
			watchStatus(p)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		asked := time.Now()
		for range 10 {
			p.lands(500 * time.Millisecond)
		}
		w := p.connect()
		w.ask("POST", "/api/drone/mode", `{"mode":"rtl"}`).wantOK(st.T)
		if took := time.Since(asked); took > time.Second {
			st.Errorf("eleven commands took %v", took)
		}
		time.Sleep(100 * time.Millisecond)
		clients.Wait()
		if answers[409] != 60 { // another command than theirs
			st.Errorf("those who waited were answered %v", answers)
		}
	})
}

func TestThoseThatWaitMakeWayLastAndAreAnswered(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		st.fly("hold")
		p, end := serve(st.T, st.handler, 4)
		defer end()
		idle := p.connect()
		idle.ask("GET", "/api/drone", "").wantOK(st.T)
		time.Sleep(time.Second)
		wait := func() chan reply {
			w, answer := p.connect(), make(chan reply, 1)
			go func() {
				w.send("POST", "/api/drone/land", `{"wait":600}`)
				r, err := w.receive("POST")
				if err != nil {
					st.Errorf("a client that waited was not answered: %v", err)
				}
				answer <- r
			}()
			time.Sleep(time.Second)
			return answer
		}
		first := wait()
		stream := watchStatus(p)
		time.Sleep(time.Second)
		second := wait()

		third := wait() // takes the place of the idle one
		idle.gone()
		if stream.ended() {
			st.Fatal("a stream made way, and another connection was idle")
		}
		fourth := wait() // of the stream
		if !stream.ended() || len(first)+len(second) > 0 {
			st.Fatal("the stream did not make way first")
		}
		asked := time.Now()
		p.connect().ask("GET", "/api/drone", "").wantOK(st.T) // of the one that waits longest
		if took := time.Since(asked); took > 50*time.Millisecond {
			st.Errorf("answered after %v", took)
		}
		r := <-first
		r.want(st.T, 504, "not_done", "land was accepted")
		if f := r.failure(st.T); f.Done == nil || *f.Done || f.Took == nil || *f.Command != 21 || *f.Mode != "land" {
			st.Errorf("got %s", r.body)
		}
		if len(second)+len(third)+len(fourth) > 0 {
			st.Errorf("more than one made way: %d %d %d", len(second), len(third), len(fourth))
		}
		st.sim.unplug() // nobody waits for ever
		for _, c := range []chan reply{second, third, fourth} {
			<-c
		}
	})
}
