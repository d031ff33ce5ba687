package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// On the ground a failed plan disarms what it armed or may have armed (rule 7). A refused arming
// has armed nothing.
func TestWhatAFailedPlanArmedIsDisarmed(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse bool
		armed  bool // by somebody else, before the plan
		state  common.MAV_LANDED_STATE
		sends  string // param1 of each arming and disarming
		code   errorCode
	}{
		{"refused: it armed nothing, and a pilot may arm now", true, false, common.MAV_LANDED_STATE_ON_GROUND, "1",
			codeRefused},
		{"not answered", false, false, common.MAV_LANDED_STATE_ON_GROUND, "1 1 1 1 1 1 1 0 0 0 0 0 0 0", codeNoAck},
		{"in the air it stays armed", false, false, common.MAV_LANDED_STATE_IN_AIR, "1 1 1 1 1 1 1", codeNoAck},
		{"what a pilot armed stays armed", false, true, common.MAV_LANDED_STATE_ON_GROUND, "1", codeNoAck},
	} {
		t.Run(c.name, func(t *testing.T) {
			onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
				b.shows(px4Custom(4, 3), c.armed)
				b.say(b.beat)
				landed := time.NewTicker(500 * time.Millisecond)
				defer landed.Stop()
				b.say(&common.MessageExtendedSysState{LandedState: c.state})
				time.Sleep(time.Millisecond)
				b.follow(func(id uint16, _ int) {
					if id == uint16(common.MAV_CMD_COMPONENT_ARM_DISARM) && c.refuse {
						b.ack(time.Millisecond, id, common.MAV_RESULT_DENIED)
					}
				})
				began, answer := time.Now(), b.command(armIt)
				time.AfterFunc(giveUp+100*time.Millisecond, func() { b.command(goHome) }) // must not end a disarming
				var o benchOutcome
				for waits := true; waits; {
					select {
					case o = <-answer:
						waits = false
					case <-landed.C:
						b.say(&common.MessageExtendedSysState{LandedState: c.state})
					}
				}
				lineEqual(t, "code", o.code(), c.code)
				sends := ""
				for _, m := range b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM) {
					if !m.at.Before(began) {
						sends += fmt.Sprint(" ", m.msg.(*common.MessageCommandLong).Param1)
					}
				}
				lineEqual(t, "sends", strings.TrimSpace(sends), c.sends)
			})
		})
	}
}

// A disarmed vehicle may leave these modes without a takeover (rule 3). Then mavrest must not
// arm it in the mode that it went to.
func TestAnArmingIsNotSentInAnotherModeThanTheOneThatWasSetForIt(t *testing.T) {
	for _, c := range []struct {
		name         string
		mode         Mode
		to           uint32
		streams, arm bool // our stream runs; the command arms, else it disarms
		code         errorCode
		sends        int // armings and disarmings
	}{
		{"return", ModeRTL, px4Custom(1, 0), false, true, codeInterrupted, 0},
		{"return; a disarming is sent", ModeRTL, px4Custom(1, 0), false, false, "", 1},
		{"hold, and PX4 goes to POSCTL because of our stream", ModeHold, px4Custom(3, 0), true, true, codeInterrupted,
			0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(1, 0), false)) // in manual mode
				b.settle()
				if c.streams {
					b.drone.mu.Lock()
					b.drone.sticks.phase, b.drone.sticks.client.spoke = stickNobody, time.Now()
					b.drone.mu.Unlock()
				}
				b.follow(func(id uint16, try int) {
					b.ack(0, id, ackAccepted)
					time.AfterFunc(5*time.Millisecond, func() { // between two requests of a report
						b.shows(entered[px4][c.mode], false)
						b.say(b.beat)
						b.shows(c.to, false)
					})
				})
				o := <-b.command(request{verb: entersMode, mode: c.mode, arm: &c.arm})
				lineEqual(t, "code", o.code(), c.code)
				lineEqual(t, "armings and disarmings", len(b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)), c.sends)
			})
		})
	}
}

// A takeover, another landing or the landing itself came before landThere had the mutex.
func TestTheSecondLegOfALandingThatHasEndedIsNotSent(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		lands := landingThere()
		lands.plan.second = nil
		for _, c := range []struct{ due, present *manoeuvre }{{landingThere(), nil}, {landingThere(), landingThere()},
			{lands, lands}} {
			d, began := newDrone(device{}, 0, false, slog.Default()), time.Now()
			d.online, d.cmd.clientActed = true, true
			d.cmd.manoeuvre = c.present
			d.changeMayWait(func(w waiter) { d.landThere(w, c.due) })
			lineEqual(t, "time that it waited to send the landing", time.Since(began), 0)
		}
	})
}

func TestPX4IsNotArmedOnAStreamThatEnds(t *testing.T) {
	// a stream ends 5 s after its client's last command
	for _, c := range []struct{ lineDelay, afterCommand time.Duration }{
		{0, 5000 * time.Millisecond}, {200 * time.Millisecond, 4600 * time.Millisecond},
		{200 * time.Millisecond, 4800 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				f.slowly(c.lineDelay, 0)
				f.accepted("/mode", `{"mode":"position"}`)
				f.accepted("/mode", `{"mode":"hold"}`)
				time.Sleep(time.Until(f.drone.sticks.client.spoke.Add(c.afterCommand)))
				f.accepted("/mode", `{"arm":true}`)
				time.Sleep(1200 * time.Millisecond)
				if f.sim.truth().failsafe {
					t.Errorf("a failsafe; the last sticks were %v", f.stream(time.Now().Add(-2*time.Second)))
				}
			})
		})
	}
}

// A pilot's switch crosses the landing over a place on the wire, then the vehicle shows the
// landing: it continues no manoeuvre.
func TestALandingOverAPlaceThatShowsAfterATakeoverContinuesNothing(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		d := toALandingPlace(f)
		d.mu.Lock()
		m := d.cmd.manoeuvre
		d.wg.Go(func() { d.changeMayWait(func(w waiter) { d.landThere(w, m) }) })
		d.mu.Unlock()
		reports := func(name string) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.hearMessage(onTime(flyingBeat(t, name, minimal.MAV_STATE_ACTIVE), time.Now()))
		}
		for range 10 {
			time.Sleep(10 * time.Millisecond)
			reports("AUTO.LOITER")
		}
		d.mu.Lock()
		lineEqual(t, "the landing is on the wire", d.cmd.current() != nil && d.cmd.current().onWire(), true)
		d.mu.Unlock()
		reports("POSCTL")
		time.Sleep(20 * time.Millisecond)
		reports("AUTO.LAND")
		time.Sleep(2 * time.Second)
		f.wantMode("land")
		d.mu.Lock()
		defer d.mu.Unlock()
		lineEqual(t, "a manoeuvre is watched", d.cmd.manoeuvre != nil, false)
	})
}

// A bug in a command is its own client's 500. The next command is carried out.
func TestAfterAPanicInACommandALandingIsCarriedOut(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		handler := newHandler(b.drone, admission{})
		post := func(path, body string) <-chan reply {
			answer := make(chan reply, 1)
			go func() { answer <- call(handler, "POST", path, strings.NewReader(body)) }()
			return answer
		}
		waitsForAcks := func(waiting map[common.MAV_CMD]*command) {
			b.drone.mu.Lock()
			defer b.drone.mu.Unlock()
			b.drone.cmd.acks.waiting = waiting
		}
		b.inTheAir()
		b.obeys(5*time.Millisecond, 4*time.Millisecond)

		waitsForAcks(nil) // the step that is sent next panics, under the mutex
		began := time.Now()
		(<-post("/api/drone/mode", `{"mode":"rtl"}`)).want(t, 500, "internal", "nothing was sent")
		time.Sleep(time.Second)
		lineEqual(t, "modes that were sent", len(b.copiesSince(began, common.MAV_CMD_DO_SET_MODE)), 0)
		waitsForAcks(make(map[common.MAV_CMD]*command))

		select {
		case r := <-post("/api/drone/land", ""):
			lineEqual(t, "status of the landing", r.status, 200)
		case <-time.After(time.Minute):
			t.Error("the landing was not answered for a minute")
		}
	})
}

// No message and no tick need come: what a command changed before it waits has its effect at once.
func TestTheStreamOfAStickModeBeginsWithItsCommand(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.change(func() { b.deaf = true; b.beat = nil })
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		b.command(request{verb: entersMode, mode: ModePosition})
		time.Sleep(stickLead)
		sent := b.messages(func(m lineMessage) bool { _, ok := m.msg.(*common.MessageManualControl); return ok })
		if len(sent) == 0 {
			t.Fatal("no stream")
		}
		lineEqual(t, "the first stick goes out after", sent[0].at.Sub(began), 0)
	})
}

// A pilot switches while a plan's first step is on the wire. The step is not repeated. If it
// is also the last step, mavrest waits to see whether the vehicle follows it: then the command
// came after the pilot's switch and wins.
func TestAPilotsSwitchEndsAPlanAndNothingMoreIsSent(t *testing.T) {
	const ms = time.Millisecond
	lat, lon := 47.398, 8.546
	for _, c := range []struct {
		name        string
		r           request
		at, follows time.Duration // when the switch comes; how long after it the step's mode shows, 0: never
		atOnce      bool          // a heartbeat shows the switch at once; else a requested one shows it
		code        errorCode
		took        time.Duration
		text        string // what the error says of the step
		sends       string
		mode        Mode
	}{
		{"not followed", goHome, 320 * ms, 0, true, codeInterrupted, 300*ms + showWithin,
			"the mode change was sent, and no report shows that the vehicle follows it", "[0s 300ms]", ModePosition},
		{"a switch that no heartbeat shows at once", goHome, 301 * ms, 0, false, codeInterrupted, 300*ms + showWithin,
			"the mode change was sent", "[0s 300ms]", ModePosition},
		{"before the command reached the vehicle", goHome, 20 * ms, 310 * ms, true, "", 330 * ms, "", "[0s]", ModeRTL},
		{"before it reached the vehicle, and it was not the last step",
			request{verb: entersMode, mode: ModeRTL, arm: &yes}, 20 * ms, 100 * ms, true, codeInterrupted, 20*ms +
				takenAfter,
			"the vehicle follows the mode change, which was sent before; nothing more was sent", "[0s]", ModeRTL},
		{"the way to a landing's place", request{verb: entersMode, mode: ModeLand, lat: &lat, lon: &lon}, 20 * ms,
			100 * ms, true, codeInterrupted, 20*ms + takenAfter,
			"the vehicle follows the goto, which was sent before; nothing more was sent", "[]", ModeHold},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *lineBench, v firmware) {
				b.inTheAir()
				shows := func(custom uint32) {
					if b.shows(custom, true); c.atOnce {
						b.say(b.beat)
					}
				}
				began := time.Now()
				answer := b.command(c.r)
				time.Sleep(c.at)
				shows(map[firmware]uint32{px4: px4Custom(3, 0), copter: 5}[v])
				if c.follows > 0 {
					time.Sleep(c.follows)
					shows(entered[v][c.mode])
					b.ack(0, uint16(common.MAV_CMD_DO_REPOSITION), ackAccepted)
				}
				o := <-answer
				lineEqual(t, "code", o.code(), c.code)
				lineEqual(t, "time until the answer", o.took.Round(ms), c.took)
				if name := map[firmware]string{px4: "POSCTL", copter: "LOITER"}[v]; c.text != "" {
					text := "a pilot, another program or a failsafe changed the mode to " + name + "; " + c.text
					lineEqual(t, "its error", o.err.Error()[:min(len(text), len(o.err.Error()))], text)
				}
				time.Sleep(5 * time.Second)
				lineEqual(t, "sends", fmt.Sprint(b.copiesSince(began, common.MAV_CMD_DO_SET_MODE)), c.sends)
				lineEqual(t, "armings sent", len(b.copiesSince(began, common.MAV_CMD_COMPONENT_ARM_DISARM)), 0)
				mode, _ := b.drone.mode()
				lineEqual(t, "mode", mode, c.mode)
			})
		})
	}
}

// The answer to a superseded command waits for the newer one's for two seconds at most, and
// says what was sent.
func TestASupersededCommandIsAnsweredAfterTwoSecondsWithWhatWasSent(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		older := b.command(request{verb: entersMode, mode: ModeHold, arm: &yes})
		time.Sleep(200 * time.Millisecond)
		newer := b.command(goHome)
		o := <-older
		lineEqual(t, "code", o.code(), codeSuperseded)
		lineEqual(t, "its error", o.err.Error(),
			"a newer command took this one's place; the mode change was sent before; nothing more was sent")
		lineEqual(t, "time until the answer", o.took, 200*time.Millisecond+giveUp)
		<-newer
	})
}

func TestARefusalNamesWhatTheAutopilotSaid(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.sim.change(func() { hf.sim.armableAfter = time.Hour })
		hf.sim.say(common.MAV_SEVERITY_CRITICAL, "An old story")
		hf.post("/api/drone/mode", `{"mode":"hold"}`).wantOK(hf.T) // by now the old text has come
		time.Sleep(time.Second)
		r := hf.post("/api/drone/mode", `{"arm":true}`)
		const text = "Arming denied: Resolve system health failures first"
		r.want(hf.T, 409, "refused", text)
		f := r.failure(hf.T)
		if *f.Status != "temporarily_rejected" || *f.StatusCode != 1 || *f.Command != 400 {
			hf.Errorf("got %s", r.body)
		}
		if len(f.Messages) != 1 || f.Messages[0].Severity != "critical" || f.Messages[0].Text != text {
			hf.Errorf("messages of %s", r.body)
		}
		hf.wantMode("hold")
	})
	flyHTTP(t, simArduPilot, func(hf *httpFlight) {
		hf.sim.change(func() { hf.sim.armableAfter = time.Hour })
		r := hf.post("/api/drone/takeoff", ``)
		r.want(hf.T, 409, "refused", "Arm: Accels inconsistent; Arm: Need Position Estimate")
		f := r.failure(hf.T)
		if *f.Status != "failed" || *f.StatusCode != 4 || *f.Command != 400 || len(f.Messages) != 2 {
			hf.Errorf("got %s", r.body)
		}
	})
}

// A refusal names the texts of severity warning or worse that come until 0.7 s after it, and
// pre-arm texts of any severity.
func TestARefusalNamesOnlyTheTextsThatExplainIt(t *testing.T) {
	texts := []struct {
		after    time.Duration // from the answer
		severity common.MAV_SEVERITY
		text     string
		named    bool
	}{
		{0, common.MAV_SEVERITY_EMERGENCY, "worst", true},
		{0, common.MAV_SEVERITY_WARNING, "just bad enough", true},
		{0, common.MAV_SEVERITY_NOTICE, "a notice", false},
		{0, common.MAV_SEVERITY_INFO, "PreArm: gyros", true},
		{0, common.MAV_SEVERITY_DEBUG, "debug", false},
		{650 * time.Millisecond, common.MAV_SEVERITY_ERROR, "late", true},
		{850 * time.Millisecond, common.MAV_SEVERITY_ERROR, "too late", false},
	}
	flyHTTP(t, simArduPilot, func(hf *httpFlight) {
		hf.sim.emit(1, 1, &common.MessageStatustext{Severity: common.MAV_SEVERITY_CRITICAL, Text: "before the command"})
		time.Sleep(100 * time.Millisecond)
		hf.acks(simArm, func(ack *common.MessageCommandAck) []simAnswer {
			ack.Result = common.MAV_RESULT_DENIED
			for _, text := range texts {
				hf.sim.after(text.after, func() {
					hf.sim.send(&common.MessageStatustext{Severity: text.severity, Text: text.text})
				})
			}
			return []simAnswer{{ack: ack}}
		})
		r := hf.post("/api/drone/mode", `{"arm":false}`)
		r.want(hf.T, 409, "refused")
		var want, got []string
		for _, text := range texts {
			if text.named {
				want = append(want, text.text)
			}
		}
		for _, m := range r.failure(hf.T).Messages {
			got = append(got, m.Text)
		}
		if !slices.Equal(got, want) {
			hf.Errorf("got %q, want %q", got, want)
		}
	})
}

// What "wait" waits for, and what else ends it (docs/design.md, rule 8).

// near reports whether the vehicle is so near to a place that a goto to it is complete.
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
	climbed := func(up float64) func(*flight) bool { // 1 m off at most; below 2 m half the height, above 20 m 5 %
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
		{"goto", "/goto", at(60, 20) + `,"altitude":20`, (*flight).aloft,
			func(f *flight) bool { return f.near(60, 20, 20) }, false},
		{"a climb", "/goto", `"altitude":30`, (*flight).aloft, func(f *flight) bool { return f.near(0, 0, 30) }, false},
		{"a descent, above the sea", "/goto", `"altitude_msl":493.3`, (*flight).aloft,
			func(f *flight) bool { return f.near(0, 0, 5) }, false},
		{"a goto with a heading", "/goto", at(5, 0) + `,"heading":180`, (*flight).aloft, func(f *flight) bool {
			return f.near(5, 0, 10) && math.Abs(f.sim.truth().heading-180) <= 11
		}, false},
		{"a turn", "/goto", `"heading":90`, (*flight).aloft,
			func(f *flight) bool { return math.Abs(f.sim.truth().heading-90) <= 11 }, false},
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
				w := f.post(c.path, waitFor(c.body, 300))
				var complete time.Time // since when the manoeuvre is complete without a break
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
						// until then done may be that of the manoeuvre before
						accepted := time.Since(w.asked) > 4*time.Second
						if done := f.drone.snapped().done; accepted && done != nil && *done && complete.IsZero() {
							doneEarly = true
						}
					}
				}
				w.want(t, 200, "")
				if !c.complete(f) || doneEarly {
					t.Errorf("answered after %v, but the manoeuvre is not complete: %+v", w.answered.Sub(w.asked),
						f.sim.truth())
				}
				if late := w.answered.Sub(complete); !c.atOnce && !complete.IsZero() && late > 1300*time.Millisecond {
					t.Errorf("answered %v after the manoeuvre was complete", late)
				}
				if took := w.answered.Sub(w.asked); c.atOnce && took > 3*time.Second {
					t.Errorf("answered after %v, want at once", took)
				}
				if s := f.status(); !c.atOnce && s["done"] != true {
					t.Errorf("answered as done, but the status has done %v", s["done"])
				}
				_, plain := f.call("GET", "/mode", "")
				if w.answer["status"] != "accepted" || w.answer["status_code"] != 0.0 ||
					w.answer["mode"] != plain["mode"] {
					t.Errorf("answered %v in mode %v", w.answer, plain)
				}
			})
		})
	}
}

func waitFor(body string, seconds float64) string {
	return "{" + strings.TrimPrefix(fmt.Sprintf(`%s,"wait":%g}`, body, seconds), ",")
}

// mavrest ends some requests by itself, with the same code.
func TestARestartLongAgoEndsNoRequestOfToday(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDrone(device{name: "none"}, 0, false, slog.Default())
		d.change(func() { d.restartedAt = time.Now() })
		time.Sleep(time.Hour)
		for _, err := range []error{refuse(codeInterrupted, "it was ended"), interrupted(time.Now(), "it was ended")} {
			d.changeMayWait(func(w waiter) { lineEqual(t, "the answer", d.explained(w, err).Error(), "it was ended") })
		}
	})
}

func TestAClientThatDisconnectsEndsItsWaitAndNothingElse(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		ctx, leave := context.WithCancel(context.Background())
		r := httptest.NewRequestWithContext(ctx, "POST", "/api/drone/goto", strings.NewReader(waitFor(at(60, 0), 100)))
		r.Host = "localhost"
		gone := make(chan struct{})
		go func() { f.handler.ServeHTTP(httptest.NewRecorder(), r); close(gone) }()
		time.Sleep(2 * time.Second)
		sent := len(f.commands())
		left := time.Now()
		leave()
		<-gone
		if waited := time.Since(left); waited != 0 {
			t.Errorf("its handler ended %v later", waited)
		}
		f.until("there", time.Minute, func() bool { return f.status()["done"] == true })
		time.Sleep(time.Second)
		if got := f.commands(); len(got) != sent {
			t.Errorf("the vehicle received %v", got[sent:])
		}
		f.wantAt(60, 0, 10, 2.5)
	})
}

// The server's own time-outs are 10 s for reading and 60 s for writing.
func TestTheServersTimeOutsNeverCutAWait(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("hold") // 100 m up: a landing takes over two minutes
		p, end := serve(hf.T, hf.handler, maxConnections)
		defer end()
		w := p.connect()
		began := time.Now()
		r := w.ask("POST", "/api/drone/land", `{"wait":600}`)
		r.wantOK(hf.T)
		if took := time.Since(began); took < 100*time.Second || !strings.Contains(r.body, `"done":true`) {
			hf.Errorf("after %v: %s", took, r.body)
		}
		w.ask("GET", "/api/drone", "").wantOK(hf.T) // the connection still works
	})
}

func TestConnectionsThatWaitAreClosedLastAndAnswered(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("hold")
		p, end := serve(hf.T, hf.handler, 4) // the error below names the program's 64 all the same
		defer end()
		idle := p.connect()
		idle.ask("GET", "/api/drone", "").wantOK(hf.T)
		time.Sleep(time.Second)
		wait := func() chan reply {
			w, answer := p.connect(), make(chan reply, 1)
			go func() {
				w.send("POST", "/api/drone/land", `{"wait":600}`)
				r, err := w.receive("POST")
				if err != nil {
					hf.Errorf("a client that waited was not answered: %v", err)
				}
				answer <- r
			}()
			time.Sleep(time.Second)
			return answer
		}
		first := wait()
		streams := []*watcher{watchStatus(p), watchStatus(p)}
		time.Sleep(time.Second)
		streams = append(streams, watchStatus(p)) // takes the place of the idle one
		time.Sleep(time.Second)
		idle.gone()
		ended := func() bool { return slices.ContainsFunc(streams, (*watcher).ended) }
		if ended() || len(first) > 0 {
			hf.Fatal("more than the idle one made way")
		}
		asked := time.Now()
		p.connect().ask("GET", "/api/drone", "").wantOK(hf.T) // on the place of the client that waits longest
		if took := time.Since(asked); took > closeAfter+50*time.Millisecond {
			hf.Errorf("answered after %v", took)
		}
		r := <-first
		r.want(hf.T, 409, "not_done", "land was accepted",
			"all 64 connections were in use, and another client needed one")
		if f := r.failure(hf.T); f.Done == nil || *f.Done || f.Took == nil || *f.Command != 176 || *f.Mode != "land" {
			hf.Errorf("got %s", r.body)
		}
		if ended() {
			hf.Error("more than one made way")
		}
	})
}

// The drone flies north at 5 m/s, and the acks of the goto in metres, or without a place, are lost, so copies go out.
// On a late line the step waits for its report, and the drone flies on: the place is that of the report. A plan's own
// place would be 2 to 5 m behind it, and where the drone really is is as far ahead.
func TestMetresAndAMissingPlaceCountFromTheReportThatTheirStepFollows(t *testing.T) {
	for body, east := range map[string]float64{`{"east":20,"up":4}`: 20, `{"altitude":14}`: 0} {
		t.Run(body, func(t *testing.T) { countsFromItsReport(t, body, east) })
	}
}

// countsFromItsReport checks that a goto leads so many metres east of where the drone was when its step went out.
func countsFromItsReport(t *testing.T, body string, east float64) {
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "copter": simArduPilot} {
		for _, late := range []time.Duration{0, 400 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("%s, %v late", name, late), func(t *testing.T) {
				fly(t, flavour, nil, func(f *flight) {
					f.aloft()
					f.accepted("/goto", `{"north":300,"speed":5}`)
					f.sim.change(func() { f.sim.switches().delay = late })
					time.Sleep(15 * time.Second)
					f.loseAcks(common.MAV_CMD_DO_REPOSITION)
					began := time.Now()
					var norths []float64
					passes := func(seconds int) {
						for range seconds * 100 {
							n, _ := simMetres(f.sim.truth().lat, f.sim.truth().lon)
							norths = append(norths, n)
							time.Sleep(10 * time.Millisecond)
						}
					}
					passes(2)
					w := f.post("/goto", body)
					passes(5)
					<-w.over
					at := func(t time.Time) float64 { return norths[int(t.Sub(began)/(10*time.Millisecond))] }
					f.wantOneCopiedPlace(w.asked, late, at, east)
				})
			})
		}
	}
}

// wantOneCopiedPlace checks that all copies of a goto went to one place, which counts from where the vehicle was when
// the last position left it that came before the first copy, and leads east of there. at is how far north it was.
func (f *flight) wantOneCopiedPlace(asked time.Time, late time.Duration, at func(time.Time) float64, east float64) {
	f.Helper()
	var copies []*common.MessageCommandInt
	var left time.Time
	for _, r := range f.since(asked) {
		if m, ok := r.msg.(*common.MessageCommandInt); ok && m.Command == common.MAV_CMD_DO_REPOSITION {
			if left.IsZero() {
				left = r.at.Add(-late)
			}
			copies = append(copies, m)
		}
	}
	if len(copies) == 0 || (len(copies) < 2 && late < time.Second) {
		f.Fatalf("%d copies went out", len(copies))
	}
	for _, m := range copies {
		if m.X != copies[0].X || m.Y != copies[0].Y || m.Z != copies[0].Z {
			f.Errorf("a copy goes to %d %d %v, the first one to %d %d %v", m.X, m.Y, m.Z, copies[0].X, copies[0].Y,
				copies[0].Z)
		}
	}
	north, eastwards := simMetres(float64(copies[0].X)/1e7, float64(copies[0].Y)/1e7)
	if north < at(left.Add(-250*time.Millisecond))-0.3 || north > at(left)+0.3 {
		f.Errorf("%v after the request it counts from %.1f m north, and the drone was at %.1f m then",
			left.Sub(asked)+late, north, at(left))
	}
	if !differsLittle(eastwards, east, 0.5) {
		f.Errorf("it goes to %.1f m east, want %g", eastwards, east)
	}
}
