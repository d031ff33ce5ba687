package main

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func TestInputIsRefusedUntilItsModeShowsAndWhileAnotherIsOnItsWay(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		input := func() errorCode {
			_, err := b.input(stickInput{pitch: 0.5, timeout: time.Second, came: time.Now()})
			return code(err)
		}
		b.obeys(5*time.Millisecond, -1)
		entering := b.command(request{verb: entersMode, mode: ModePosition})
		time.Sleep(500 * time.Millisecond)
		lineEqual(t, "the mode is acknowledged, but does not show yet", input(), codeWrongMode)
		b.shows(entered[copter][ModePosition], true)
		b.say(b.beat)
		lineEqual(t, "error", (<-entering).err, nil)
		lineEqual(t, "the mode shows", input(), "")
		b.follow(nil)
		away := b.command(goHome)
		time.Sleep(time.Millisecond)
		lineEqual(t, "a return is on its way", input(), codeWrongMode)
		<-away
	})
}

// While a number is kept no stick moves: an answer would say that they act, and a pilot has the drone.
func TestSticksWaitForTheHeartbeatThatShowsAPilotsSwitch(t *testing.T) {
	onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		b.obeys(5*time.Millisecond, -1)
		entering := b.command(request{verb: entersMode, mode: ModePosition})
		time.Sleep(500 * time.Millisecond)
		b.shows(entered[px4][ModePosition], true)
		b.say(b.beat)
		lineEqual(t, "error", (<-entering).err, nil)
		b.follow(nil)
		b.say(&common.MessageCurrentMode{CustomMode: entered[px4][ModeAltitude]})
		time.Sleep(time.Millisecond)
		answered := make(chan error, 1)
		go func() {
			_, err := b.input(stickInput{pitch: 0.5, timeout: time.Second, came: time.Now()})
			answered <- err
		}()
		time.Sleep(50 * time.Millisecond)
		b.shows(entered[px4][ModeAltitude], true)
		b.say(b.beat)
		lineEqual(t, "the pilot has the drone", code(<-answered), codeWrongMode)
	})
}

// The newest sticks win, also of those that waited until the mode was known.
func TestSticksOlderThanWhatCameSinceAreNotFlown(t *testing.T) {
	onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
		input := func(pitch float64, ago time.Duration) chan error {
			c := make(chan error, 1)
			in := stickInput{pitch: pitch, timeout: 5 * time.Second, came: time.Now().Add(-ago)}
			go func() {
				_, err := b.input(in)
				c <- err
			}()
			time.Sleep(time.Millisecond)
			return c
		}
		b.onTheGround()
		b.obeys(5*time.Millisecond, 0)
		lineEqual(t, "error", (<-b.command(request{verb: entersMode, mode: ModePosition})).err, nil)
		time.Sleep(time.Second)
		lineEqual(t, "older than the mode", code(<-input(0.5, 2*time.Second)), codeSuperseded)
		lineEqual(t, "alone", <-input(0.5, 30*time.Millisecond), nil)
		lineEqual(t, "the newest", <-input(0, 0), nil)
		lineEqual(t, "older than the newest", code(<-input(0.5, 20*time.Millisecond)), codeSuperseded)
		b.locked(func() { lineEqual(t, "pitch", b.drone.sticks.axes.x, 0) })

		// A pilot disarms: whoever arms next does not expect the vehicle to move.
		b.follow(nil)
		for _, armed := range []bool{true, false} {
			b.shows(entered[px4][ModePosition], armed)
			b.say(b.beat)
			time.Sleep(20 * time.Millisecond)
		}
		lineEqual(t, "from before the disarming", code(<-input(0.5, 25*time.Millisecond)), codeInterrupted)
	})
}

// It may be a pilot's switch: an answer would say that they act.
func TestSticksAreRefusedWhileTheModeStaysUnknown(t *testing.T) {
	onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		b.obeys(5*time.Millisecond, 0)
		lineEqual(t, "error", (<-b.command(request{verb: entersMode, mode: ModePosition})).err, nil)
		b.follow(nil)
		b.change(func() { b.beat = nil })
		b.say(&common.MessageCurrentMode{CustomMode: entered[px4][ModeRTL]})
		time.Sleep(time.Millisecond)
		_, err := b.input(stickInput{pitch: 0.5, timeout: time.Second, came: time.Now()})
		lineEqual(t, "code", code(err), codeWrongMode)
		b.locked(func() { lineEqual(t, "pitch", b.drone.sticks.axes.x, 0) })
	})
}

// lately is a request that came a while ago, and waited for the program.
func lately(r request, ago time.Duration) request {
	r.came = time.Now().Add(-ago)
	r.due = r.came
	return r
}

// Nothing was due in a short standstill: what was read late tells of it.
func TestWhatIsReadLongAfterItCameBeginsInTheOrderInWhichItCame(t *testing.T) {
	onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		b.obeys(5*time.Millisecond, 0)
		newer := b.command(lately(landHere, 60*time.Millisecond))
		time.Sleep(time.Millisecond)
		older := b.command(lately(goHome, 70*time.Millisecond))
		<-older
		lineEqual(t, "error", (<-newer).err, nil)
		list := b.commands(common.MAV_CMD_DO_SET_MODE)
		custom, _ := b.wanted(cmdSetMode)
		lineEqual(t, "modes set", len(list), 2)
		lineEqual(t, "the last one", custom, entered[px4][ModeLand])

		lineEqual(t, "error", (<-b.command(request{verb: entersMode, mode: ModePosition})).err, nil)
		time.Sleep(time.Second)
		var taken sync.WaitGroup
		for _, in := range []stickInput{
			{pitch: 0, timeout: time.Second, came: time.Now().Add(-60 * time.Millisecond)},
			{pitch: 0.5, timeout: time.Second, came: time.Now().Add(-70 * time.Millisecond)},
		} {
			taken.Go(func() {
				in.due = in.came
				_, err := b.input(in)
				lineEqual(t, "error", err, nil)
			})
			time.Sleep(time.Millisecond)
		}
		taken.Wait()
		b.locked(func() { lineEqual(t, "pitch", b.drone.sticks.axes.x, 0) })

		// Their timeout counts from when they came.
		short := stickInput{timeout: 50 * time.Millisecond, came: time.Now().Add(-40 * time.Millisecond)}
		short.from = netip.IPv6Loopback()
		_, err := b.input(short)
		lineEqual(t, "error", err, nil)
		time.Sleep(11 * time.Millisecond)
		b.locked(func() { lineEqual(t, "held by", b.drone.sticks.held(b.situation(time.Now())), netip.Addr{}) })
		_, err = b.input(short)
		lineEqual(t, "of sticks that have expired", code(err), codeRefused)
	})
}

// Somebody may be at the propellers.
func TestADisarmingEndsATakeoffThatWaitedForTheProgram(t *testing.T) {
	onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
		b.shows(entered[px4][ModeHold], true)
		b.say(b.beat)
		b.onTheGround()
		time.Sleep(time.Second)
		takeoff := b.command(lately(request{verb: entersMode, mode: ModeTakeoff}, time.Second))
		time.Sleep(time.Millisecond)
		b.shows(entered[px4][ModeHold], false)
		b.say(b.beat)
		o := <-takeoff
		lineEqual(t, "code", o.code(), codeInterrupted)
		lineEqual(t, "error", fmt.Sprint(o.err), "the vehicle was disarmed; nothing was sent")
	})
}

// A takeoff that says no length waits for its body: what was asked meanwhile is newer.
func TestATakeoffThatWaitedForItsBodyEndsNothingThatWasAskedMeanwhile(t *testing.T) {
	onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
		b.onTheGround()
		b.obeys(5*time.Millisecond, 0)
		takeoff := lately(request{verb: entersMode, mode: ModeTakeoff}, 0)
		time.Sleep(kernelTick + time.Millisecond)
		lineEqual(t, "error", (<-b.command(landHere)).err, nil)
		lineEqual(t, "asked before the landing", (<-b.command(takeoff)).code(), codeSuperseded)
		takeoff = lately(takeoff, 0)
		if code := (<-b.command(takeoff)).code(); code == codeSuperseded {
			t.Error("asked behind the landing: it is superseded too")
		}
	})
}

// It waited behind another on its connection, or for one of the places.
func TestAnOlderRequestThatBeginsBehindANewerOneIsSuperseded(t *testing.T) {
	stick := request{verb: entersMode, mode: ModePosition}
	armHold := request{verb: entersMode, mode: ModeHold, arm: &yes}
	for _, c := range []struct {
		older, newer request
		inTheAir     bool
		want         errorCode
	}{
		{stick, landHere, true, codeSuperseded},
		{goHome, landHere, true, ""},
		{armIt, disarmIt, false, codeSuperseded},
		{armHold, disarmIt, false, codeSuperseded},
	} {
		onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
			stands := b.onTheGround
			if c.inTheAir {
				stands = b.inTheAir
			}
			stands()
			b.obeys(5*time.Millisecond, 0)
			lineEqual(t, "error", (<-b.command(holdHere)).err, nil)
			if !c.inTheAir {
				lineEqual(t, "error", (<-b.command(armIt)).err, nil)
			}
			stands()
			older := lately(c.older, 0)
			older.due = time.Time{}
			time.Sleep(300 * time.Millisecond)
			lineEqual(t, "error", (<-b.command(c.newer)).err, nil)
			lineEqual(t, "code", (<-b.command(older)).code(), c.want)
		})
	}
}

func TestATakeoffIsNotSupersededByAnOlderHoldThatWaitedWithIt(t *testing.T) {
	onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
		b.onTheGround()
		b.obeys(5*time.Millisecond, 0)
		time.Sleep(2 * time.Second)
		hold := b.command(lately(holdHere, time.Second))
		takeoff := b.command(lately(request{verb: entersMode, mode: ModeTakeoff}, 500*time.Millisecond))
		lineEqual(t, "error", (<-hold).err, nil)
		if o := <-takeoff; o.code() == codeSuperseded {
			t.Error(o.err)
		}
	})
}

func TestWhatIsAskedBehindATakeoverThatWasShownIsCarriedOut(t *testing.T) {
	onLine(t, px4Beat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		b.obeys(5*time.Millisecond, 0)
		lineEqual(t, "error", (<-b.command(holdHere)).err, nil)
		b.follow(nil)
		time.Sleep(100 * time.Millisecond)
		b.shows(entered[px4][ModePosition], true)
		b.say(b.beat)
		time.Sleep(100 * time.Millisecond)
		b.obeys(5*time.Millisecond, 0)
		before := b.command(lately(landHere, 300*time.Millisecond))
		time.Sleep(time.Millisecond)
		lineEqual(t, "it came behind that", (<-b.command(lately(landHere, 0))).err, nil)
		lineEqual(t, "it came before that", (<-before).code(), codeInterrupted)
	})
}

// A drone that was at rest before a hold was accepted has not finished the hold.
func TestOnlyReportsAfterTheAcceptanceEndAManoeuvre(t *testing.T) {
	d := newDrone(device{name: "none"}, 0, false, slog.Default())
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
	hold := request{verb: entersMode, mode: ModeHold}
	m := &manoeuvre{request: hold, at: now, over: make(chan struct{})}
	d.online, d.machine.last.armed, d.cmd.manoeuvre = true, true, m
	d.watch(d.view(now.Add(time.Second)))
	lineEqual(t, "done by earlier messages", m.done, false)
	lineEqual(t, "its landed state", d.view(now).since(m.at).landed, 0)
	hear(now.Add(time.Millisecond))
	d.watch(d.view(now.Add(time.Second)))
	lineEqual(t, "done by later messages", m.done, true)
}

// Another program switched HOME_POSITION off and moved home. The remembered home would make a
// goto fly at a wrong height.
func TestHomeIsRequestedAgainBeforeAGotoToAHeightAboveIt(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		defer f.fails(common.MAV_CMD_SET_MESSAGE_INTERVAL)()
		f.sim.change(func() { f.sim.stream(idHome, -1) })
		stale := func() {
			f.drone.mu.Lock()
			defer f.drone.mu.Unlock()
			f.drone.tel.home.amsl -= 8
		}
		for _, path := range []string{"/goto", "/takeoff"} {
			stale()
			want := f.sim.truth().alt + 12
			f.accepted(path, fmt.Sprintf(`{"altitude":%g,"wait":60}`, want))
			if s := f.sim.truth(); math.Abs(s.alt-want) > 2 {
				t.Errorf("%s: it is at %.1f m", path, s.alt)
			}
		}
		stale()
		defer f.fails(common.MAV_CMD_REQUEST_MESSAGE)()
		asked := time.Now()
		says(t, f.refused("/goto", `{"altitude":14}`, 409, "refused"), "home")
		// for home, then for a report: both requests fail
		if took := time.Since(asked); took < answerWait || took > 2*answerWait {
			t.Errorf("answered after %v", took)
		}
	})
}

func TestStreamsThatAnotherProgramSlowedOrEndedAreRequestedAgain(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		for _, s := range []struct {
			id    uint32
			every time.Duration
		}{
			{idGPS, -1},
			{idHUD, -1},
			{idHome, -1},
			{idPosition, time.Second},
			{idAttitude, time.Second},
			{idExtendedState, time.Second},
		} {
			f.sim.change(func() { f.sim.stream(s.id, s.every) })
			time.Sleep(25 * time.Second)
			n := 0
			f.sim.change(func() {
				for _, st := range f.sim.streaming {
					if st.id == s.id && !st.toGCS {
						n++
						tooRare := st.every > time.Second && s.id != idHome // home comes every 2 s
						stillSlow := s.every > 0 && st.every == s.every
						if tooRare || stillSlow {
							t.Errorf("message %d comes every %v", s.id, st.every)
						}
					}
				}
			})
			if n == 0 {
				t.Errorf("message %d was not asked for again", s.id)
			}
		}
		if brain, ok := f.sim.brain.(*simPX4Brain); ok {
			f.sim.change(func() { brain.every = time.Second })
			time.Sleep(20 * time.Second)
			f.sim.change(func() { lineEqual(t, "CURRENT_MODE's interval", brain.every, 10*time.Millisecond) })
		}
	})
}

// These flights repeat what flights with PX4's own firmware showed.

func TestAVersionThatWasNeverFlownIsLoggedOnce(t *testing.T) {
	for v, want := range map[uint32]int{1<<24 | 13<<16: 1, 1<<24 | 14<<16: 0, 1<<24 | 18<<16 | 5<<8: 0,
		1<<24 | 19<<16: 1} {
		fly(t, simPX4, func(s *simulator) { s.version = v }, func(f *flight) {
			before := len(f.diary.logged())
			f.sim.reboot(false)
			time.Sleep(20 * time.Second)
			log := strings.Join(f.diary.logged()[before:], "\n")
			if n := strings.Count(log, "never flown on this version"); n != want {
				f.Errorf("%#x is logged %d times, want %d", v, n, want)
			}
		})
	}
}

func TestWhoeverTakesAPX4KeepsItAtEveryMoment(t *testing.T) {
	type taken struct {
		moment
		by px4Taker
	}
	var cases []taken
	for _, by := range px4Takers() {
		for _, v := range px4Visits(by.not) {
			cases = append(cases, taken{v.moment, by})
		}
	}
	some := sampled(t, cases, 0,
		func(c taken) any { return c.name },
		func(c taken) any { return [2]any{c.sticks(), c.by.name} },
		func(c taken) any { return [2]any{c.waiting, c.by.name} },
	)
	for _, c := range some {
		t.Run(c.name+"/"+c.by.name, func(t *testing.T) {
			// This one hears a transmitter only if its sticks shall act.
			hears := func(s *simulator) {
				if c.by.name == "a pilot's sticks" {
					s.params[simStickSource] = 5
					s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0}
				}
			}
			fly(t, simPX4, hears, func(f *flight) {
				p := &player{flight: f}
				p.plays(c.px4)
				p.px4Takeover(c.by.custom, c.moment, func() { c.by.takes(p) })
				if o := p.status(); c.by.name == aFailsafe && o["failsafe"] != o["armed"] {
					p.Errorf("failsafe is %v", o["failsafe"])
				}
				p.wantAnswer(10*time.Minute, "any")
			})
		})
	}
}

// After a restart in flight no earlier command is in force.
func TestPX4RestartEndsEverythingAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Visits(nil), nil, func(p *player, m visit) {
		p.sim.reboot(true)
		time.Sleep(200 * time.Millisecond)
		at := time.Now()
		p.wantAnswer(showWithin, "interrupted")
		if m.disarmed {
			p.wantMode("manual")
		} else {
			p.plays("truth")
			p.plays("no input")
		}
		time.Sleep(12 * time.Second)
		p.wantHandsOff(at)
		p.wantStream(at, nil)
	})
}

// In whole flights of ArduPilot a pilot, a failsafe or the line interferes, in every manoeuvre
// and with every receiver (docs/design.md, "Who has the sticks").

// With -all every moment is flown with every mode twice: with no receiver, and with one in hand. A lost
// receiver looks like none, so fewer modes are flown with it. An idle one looks like one in hand while no
// stream of ours can run: at such moments fewer modes are flown with it, else every mode. A failsafe is one more
// that sets a mode.
func TestACopterObeysThePilotAndItsFailsafeAtEveryMoment(t *testing.T) {
	var cases []visit
	for _, m := range moments {
		for _, receiver := range []simReceiver{simReceiverNone, simReceiverLost, simReceiverIdle, simReceiverInHand} {
			modes := arduPilotsModes
			switch {
			case m.copter == "":
				modes = nil
			case receiver == simReceiverLost: // looks like no receiver
				modes = []uint32{simLoiter}
			case receiver == simReceiverIdle && !m.sticks(): // looks like one in hand: no stream of ours can run
				modes = []uint32{simLoiter, copterBrake}
			}
			for _, custom := range modes {
				_, name := copter.reported(custom)
				cases = append(cases, visit{m, receiver, custom, "a pilot's " + name})
			}
			if modes != nil && receiver != simReceiverLost {
				cases = append(cases, visit{m, receiver, simArduRTL, aFailsafe})
			}
		}
	}
	some := sampled(t, cases, 0,
		func(v visit) any { return v.name },
		func(v visit) any { return [2]any{v.sticks(), v.receiver} },
		func(v visit) any { return [2]any{v.receiver, v.what} },
		func(v visit) any { return [2]any{v.sticks(), v.what} },
	)
	atMoments(t, simArduPilot, some, nil, func(p *player, v visit) {
		if v.what == aFailsafe {
			p.failsafeReturns()
		} else {
			p.pilotSwitches(v.custom)
		}
	})
}

func TestAfterACopterRestartsDisarmedTheModeIsManual(t *testing.T) {
	atMoments(t, simArduPilot, copterVisits(t, simReceiverNone, simReceiverIdle, simReceiverInHand), nil,
		func(f *player, _ visit) {
			f.sim.reboot(false)
			// its streams are gone, and requests for them show mavrest that it restarted
			time.Sleep(streamLost + time.Second)
			again := time.Now()
			for range 30 {
				time.Sleep(time.Second)
				if o := f.status(); o["mode"] != "manual" || o["armed"] != false || o["done"] != nil ||
					o["target"] != nil {
					f.Fatalf("mode %v, armed %v, done %v, target %v", o["mode"], o["armed"], o["done"], o["target"])
				}
			}
			if sent, sticks := f.sent(again); len(sent) > 0 || len(sticks) > 0 {
				f.Errorf("sent after the restart: %q, %d sticks", sent, len(sticks))
			}
		})
}

// A refused command changes no mode, and ends a stream only where a receiver is in hand. A goto still
// ends the way to a landing.
func TestARefusedCommandLeavesACopterAsItWas(t *testing.T) {
	atMoments(t, simArduPilot, copterVisits(t, simReceiverNone, simReceiverIdle, simReceiverInHand), nil,
		func(f *player, v visit) {
			was, before, streamed := f.status(), f.sim.truth(), f.streams()
			for _, id := range []common.MAV_CMD{common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_DO_REPOSITION} {
				defer f.fails(id)()
			}
			f.refused("/goto", "{"+at(0, 80)+"}", 409, "refused")
			if before.mode != simArduGuided { // in GUIDED a hold begins with BRAKE
				f.refused("/mode", `{"mode":"hold"}`, 409, "refused")
			}
			if before.mode != simArduLand {
				f.refused("/land", "", 409, "refused")
			}
			o := f.status()
			if v.name == "land at a place, on the way" {
				was["mode"] = "hold"
			}
			if o["mode"] != was["mode"] || o["vehicle_mode"] != was["vehicle_mode"] || o["done"] != nil {
				f.Errorf("mode %v, %v, done %v; before %v, %v", o["mode"], o["vehicle_mode"], o["done"], was["mode"],
					was["vehicle_mode"])
			}
			if inHand := f.receiver == simReceiverInHand; f.streams() != (streamed && !inHand) {
				f.Errorf("streams %v, before %v", f.streams(), streamed)
			}
		})
}

// For 5 s the vehicle can't be heard, or the line is unplugged. Meanwhile nothing is commanded.
// Then the vehicle's own mode shows: a vehicle that needed our stream flies home. A client that
// fell silent no longer gets a hold.
func TestACopterThatIsNotHeardForFiveSeconds(t *testing.T) {
	visits := copterVisits(t, simReceiverNone, simReceiverIdle, simReceiverInHand)
	for i := range visits {
		visits[i].what = []string{"muted", "unplugged"}[i&1]
	}
	atMoments(t, simArduPilot, visits, nil, func(f *player, v visit) {
		unplugged := v.what == "unplugged"
		was, streamed := f.status()["mode"].(string), f.streams()
		lost := time.Now()
		mute := func(is bool) { f.sim.change(func() { f.sim.switches().muted = is }) }
		if unplugged {
			f.sim.unplug()
		} else {
			mute(true)
		}
		time.Sleep(5 * time.Second)
		status := map[bool]int{true: 409, false: 503}[f.sim.truth().armed]
		f.refused("/mode", `{"mode":"hold"}`, status, "offline")
		if sent, _ := f.sent(lost.Add(offlineAfter)); len(sent) > 0 {
			f.Errorf("sent to a vehicle that is not heard: %q", sent)
		}
		if unplugged {
			f.sim.plug()
		} else {
			mute(false)
		}
		f.until("online", 5*time.Second, func() bool { return f.status()["online"] == true })
		f.heardAgain(was, streamed, unplugged)
	})
}

func TestNoHoldForASilentClientIsSentWhereAPilotOrTheClientActedFirst(t *testing.T) {
	for name, first := range map[string]func(d *drone, now time.Time){
		"a pilot": func(d *drone, now time.Time) {
			d.hearMessage(onTime(beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 16, true), now))
		},
		"the client": func(d *drone, now time.Time) {
			d.sticks.clientMoves(d.situation(now), axes{z: 500}, netip.Addr{}, now.Add(5*time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				(&player{flight: f}).plays("aloft, mode altitude, input pitch 0.3, +2500ms")
				d := f.drone
				d.mu.Lock()
				since := time.Now()
				d.sticks.client.spoke = since.Add(-silentClient) // half a second early
				d.sticks.tick(d.situation(since))                // as drone.tick does
				due := d.actForSticks().hold && d.cmd.idle()
				d.wg.Go(func() { d.changeMayWait(d.holdForSilent) })
				first(d, since) // has the mutex before that goroutine
				d.mu.Unlock()
				lineEqual(t, "the hold was due", due, true)
				time.Sleep(3 * time.Second)
				f.wantHandsOff(since)
			})
		})
	}
}

// TestFlights plays testdata/flights: whole flights of mavrest beside a simulated vehicle.
func TestFlights(t *testing.T) {
	t.Parallel() // they take the processor while others wait in real time
	scripts := loadScripts(t, flightWords())
	if racing() { // which needs each line once: some of each file
		file := func(s script) any { return strings.SplitN(s.name, "/", 2)[0] }
		scripts = sampled(t, scripts, len(scripts)/6, file)
	}
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			flavour, prepare := scriptVehicle(t, s.vehicle, s.with)
			gcs := func(d *drone) { d.link.gcs = slices.Contains(s.with, "gcs") }
			flyWith(t, flavour, prepare, gcs, func(f *flight) { (&player{flight: f}).follows(s) })
		})
	}
}
