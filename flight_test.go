package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Flight scripts: whole flights of mavrest beside a simulated vehicle, in words. testdata/README.md explains
// them, flight_words_test.go has the words.

// player is a flight that plays a script.
type player struct {
	*flight
	board          *simBoard // nil: mavrest commands the vehicle, not a board
	script, clause string
	mark           time.Time
	seen           int // how many messages the vehicle received before the mark
	answer         object
	took           time.Duration
	posts          []*waiting // the posts whose answers the script has not checked yet
	acked          chan struct{}
	noted          float64 // the height at "note"
	past, strayed  float64 // in the last "comes back": metres to the furthest point, metres off the height
}

// variant is a script with one choice of each of its braces.
type variant struct{ name, script string }

// variants returns the scripts that a script with braces stands for. The choice of its first
// braces replaces $n.
func variants(script string, n int) (list []variant) {
	before, rest, found := strings.Cut(script, "{")
	choices, after, closed := strings.Cut(rest, "}")
	if !found || !closed {
		return []variant{{"", script}}
	}
	for _, choice := range scriptChoices(choices) {
		text, later, pair := strings.Cut(choice, "→")
		if !pair {
			later = choice
		}
		for _, v := range variants(before+text+strings.ReplaceAll(after, "$"+strconv.Itoa(n), later), n+1) {
			list = append(list, variant{strings.Trim(choice+", "+v.name, ", "), v.script})
		}
	}
	return list
}

// scriptChoices returns the choices in braces: a|b|c, or the times of from..to/step.
func scriptChoices(s string) (list []string) {
	from, rest, isRange := strings.Cut(s, "..")
	to, step, _ := strings.Cut(rest, "/")
	at, err1 := time.ParseDuration(from)
	end, err2 := time.ParseDuration(to)
	by, err3 := time.ParseDuration(step)
	if !isRange || cmp.Or(err1, err2, err3) != nil {
		return strings.Split(s, "|")
	}
	for ; at <= end; at += by {
		list = append(list, at.String())
	}
	return list
}

var scriptFlavours = map[string]simFlavour{
	"px4": simPX4, "copter": simArduPilot, "quadplane": simQuadPlane, "plane": simPlane,
	"px4-plane": simPX4Plane, "px4-vtol": simPX4VTOL, "px4-rover": simPX4Rover, "ardu-rover": simArduRover,
	"px4-1.14": simPX4, "px4-1.15": simPX4, "px4-1.16": simPX4, "px4-1.17": simPX4, "px4-1.18": simPX4,
	"px4-plane-1.18": simPX4Plane,
}

var scriptReceivers = map[string]simReceiver{"none": simReceiverNone, "lost": simReceiverLost, "idle": simReceiverIdle,
	"hand": simReceiverInHand}

// scriptVehicle returns a script's vehicle, and a function that makes its settings.
func scriptVehicle(t *testing.T, name string, has []string) (simFlavour, func(*simulator)) {
	t.Helper()
	flavour, known := scriptFlavours[name]
	if !known {
		t.Fatalf("no such vehicle: %q", name)
	}
	return flavour, func(s *simulator) {
		if _, minor, old := strings.Cut(name, "-1."); old {
			n, _ := strconv.Atoi(minor)
			ofPX4(1<<24 | uint32(n)<<16)(s)
		}
		for _, h := range has {
			key, value, _ := strings.Cut(h, "=")
			var err error
			switch key {
			case "receiver":
				if s.receiver = scriptReceivers[value]; s.receiver == simReceiverInHand && flavour == simPX4 {
					s.rc = [4]int16{0, 0, 500, 0}
				}
			case "armable":
				s.armableAfter, err = time.ParseDuration(value)
			case "live":
				s.noLiveMode = true
			case "trouble":
				s.trouble = []simTrouble{scriptTrouble(value, "")}
			case "station":
				s.foreignGCS = true
			case "gcs": // flies starts mavrest with -gcs
			case "slope":
				s.slope, err = strconv.ParseFloat(value, 64)
			case "fence":
				s.fence, err = strconv.ParseFloat(value, 64)
			default:
				if s.params[key], err = strconv.ParseFloat(value, 64); value == "none" {
					delete(s.params, key)
					err = nil
				}
			}
			if err != nil {
				t.Errorf("%q: %v", h, err)
			}
		}
	}
}

// scriptTrouble makes a system of PX4 unhealthy; "0" is no system. text, which may be "", is the
// reason that PX4's checks name.
func scriptTrouble(system, text string) simTrouble {
	var is common.MAV_SYS_STATUS_SENSOR
	if is.UnmarshalText([]byte("MAV_SYS_STATUS_SENSOR_"+system)) != nil {
		is = 0
	}
	return simTrouble{is, text}
}

// plays plays a script, clauses with commas between. "px4? is hold" is for a PX4 only, "copter?" for a Copter.
func (p *player) plays(script string) {
	p.Helper()
	p.script = script
	p.at = func() string { return fmt.Sprintf("%q of %q", p.clause, p.script) }
	var clauses [][]string
	for clause := range strings.SplitSeq(script, ",") {
		w := clauseWords(clause)
		if len(w) > 0 && (w[0] == "px4?" || w[0] == "copter?") {
			if (p.firmware == px4) != (w[0] == "px4?") {
				continue
			}
			w = w[1:]
		}
		p.clause = strings.TrimSpace(clause)
		if err := flightWords().check(w, false); err != nil && p.board == nil {
			p.Fatal(err)
		}
		clauses = append(clauses, w)
	}
	for _, w := range clauses {
		p.clause = strings.Join(w, " ")
		p.diary.note("script", "%s", p.clause)
		if wrong := p.does(w); wrong != "" {
			p.Errorf("wanted: %s\nseen:   %s", p.clause, wrong)
		}
	}
}

// bad ends a flight whose script can't be read.
func (p *player) bad() {
	p.Helper()
	p.Fatalf("no such clause: %s", p.clause)
}

// does plays one clause. It returns what is wrong, or "".
func (p *player) does(clause []string) string {
	p.Helper()
	if p.board != nil {
		if wrong, known := p.companion(clause); known {
			return wrong
		}
	}
	return p.checks(clause)
}

// checks plays a check. It returns what is wrong, or "".
func (p *player) checks(clause []string) string {
	p.Helper()
	if p.board != nil {
		if wrong, known := p.board.sees(p, clause); known {
			return wrong
		}
	}
	return flightWords().plays(p, p, clause)
}

func (p *player) number(s string) float64 {
	p.Helper()
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		p.bad()
	}
	return n
}

func (p *player) duration(s string) time.Duration {
	p.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		p.bad()
	}
	return d
}

func (p *player) axes(w []string) axes {
	p.Helper()
	if len(w) != 4 {
		p.bad()
	}
	return axes{int16(p.number(w[0])), int16(p.number(w[1])), int16(p.number(w[2])), int16(p.number(w[3]))}
}

// id returns a command by its name in MAVLink, without MAV_CMD_.
func (p *player) id(w []string) (id common.MAV_CMD) {
	p.Helper()
	if len(w) == 0 || id.UnmarshalText([]byte("MAV_CMD_"+w[0])) != nil {
		p.bad()
	}
	return id
}

// losesAcks loses the acks of some commands: all acks, or the first n. The vehicle carries the
// commands out.
func (p *player) losesAcks(w []string) {
	p.Helper()
	n, last := -1, len(w)-1
	if count, err := strconv.Atoi(w[last]); err == nil {
		n, w = count, w[:last]
	}
	var ids []common.MAV_CMD
	for i := range w {
		ids = append(ids, p.id(w[i:]))
	}
	p.sim.change(func() {
		p.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
			if n != 0 && slices.Contains(ids, a.Command) {
				n--
				return nil
			}
			return []simAnswer{{ack: a}}
		}
	})
}

// watch makes "acked" wait for the n-th ack of a command, counted from now.
func (p *player) watch(id common.MAV_CMD, n int) {
	p.acked = make(chan struct{})
	p.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		if n--; n == 0 {
			close(p.acked)
		}
		return []simAnswer{{ack: a}}
	})
}

// keepsMoving sends a client's sticks at 10 Hz, always at another pitch, until an input is
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

// wantMessages checks how many messages of the status contain some words.
func (f *flight) wantMessages(words string, want int) {
	f.Helper()
	if texts := fmt.Sprint(f.status()["messages"]); strings.Count(texts, words) != want {
		f.Errorf("%q is in %d messages, want %d: %v", words, strings.Count(texts, words), want, texts)
	}
}

// pilotSwitchesAt makes a pilot switch to LOITER 0.1 s before a command's ack comes.
func (p *player) pilotSwitchesAt(id common.MAV_CMD) {
	p.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		p.sim.after(0, func() { p.sim.enter(simLoiter); p.sim.send(p.sim.brain.message(0)) })
		return []simAnswer{{ack: a, after: 100 * time.Millisecond}}
	})
}

// says checks that an error's text contains want, and none of not.
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
		for name, want := range map[string]any{"online": true, "armed": true, "in_air": true, "landed_state": "in_air",
			"failsafe": false, "state": "active"} {
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
				hb.SystemStatus != minimal.MAV_STATE_ACTIVE || r.component != 193 || r.system != 1 {
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

func TestInputIsRefusedUntilItsModeShowsAndWhileAnotherIsOnItsWay(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		input := func() errorCode {
			_, err := b.input(stickInput{pitch: 0.5, timeout: time.Second})
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
	d.online, d.machine.report.armed, d.cmd.manoeuvre = true, true, m
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

// stationBeats checks how many heartbeats mavrest sent as a ground station.
func (p *player) stationBeats(least, most int) string {
	n := 0
	for _, r := range p.sim.received()[p.seen:] {
		if hb, ok := r.msg.(*minimal.MessageHeartbeat); ok && hb.Type == minimal.MAV_TYPE_GCS {
			n++
		}
	}
	if n < least || n > most {
		return fmt.Sprintf("%d heartbeats as a ground station, want %d to %d", n, least, most)
	}
	return ""
}

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

var px4PilotModes = []uint32{
	simPX4Manual, simPX4Altctl, simPX4Posctl, simPX4Loiter, simPX4RTL, simPX4Land, simPX4Stabilized,
}

// px4Visits returns PX4's moments, except those that a test leaves out.
func px4Visits(leaveOut func(m moment) bool) (visits []visit) {
	for _, m := range moments {
		if m.px4 != "" && (leaveOut == nil || !leaveOut(m)) {
			visits = append(visits, visit{moment: m})
		}
	}
	return visits
}

// px4Takeover lets somebody other than the client set a mode. It checks what follows while no
// client asks for anything.
func (p *player) px4Takeover(custom uint32, m moment, setMode func()) {
	p.Helper()
	before, streaming := p.streamed()
	began := time.Now()
	setMode()
	at := p.reported(custom, began, 1100*time.Millisecond)
	p.plays("truth")
	soon := time.Millisecond
	if m.waiting { // the command waits for the vehicle to follow its last step
		soon = showWithin + time.Millisecond
	}
	p.plays("no input")
	p.wantAnswer(soon+takenAfter, "interrupted")
	if done := p.status()["done"]; done != nil {
		p.Errorf("done is %v", done)
	}
	time.Sleep(12 * time.Second)
	p.wantHandsOff(at)
	p.plays("truth")
	if !streaming {
		p.wantStream(at.Add(time.Millisecond), nil)
		return
	}
	want := before // unmoved where no sticks fly
	if mode, _ := px4.reported(custom); mode == ModeManual {
		want = axes{z: before.z} // centred, except for the throttle
	} else if mode.flownBySticks() {
		want = axes{z: 500}
	}
	p.wantStream(at.Add(time.Millisecond), &want)
}

// px4Taker is who takes a PX4 from its client: a pilot's mode switch, his sticks, or a failsafe.
type px4Taker struct {
	name   string
	custom uint32 // the mode that shows then
	takes  func(p *player)

	// not at these moments
	not func(m moment) bool
}

// px4Takers are all of them.
func px4Takers() (list []px4Taker) {
	for _, custom := range px4PilotModes {
		_, name := px4.reported(custom)
		list = append(list, px4Taker{"a pilot's " + name, custom,
			func(p *player) { p.sim.pilotMode(custom) },
			func(m moment) bool { return slices.Contains(m.explained, custom) || slices.Contains(m.undone, custom) },
		})
	}
	failsafe := px4Taker{aFailsafe, simPX4RTL,
		func(p *player) { p.sim.failsafeReturn() },
		func(m moment) bool {
			return m.disarmed || slices.Contains(m.undone, simPX4RTL) ||
				(m.waiting && slices.Contains(m.explained, simPX4RTL))
		},
	}
	// In a mode that flies without sticks PX4 then sets POSCTL.
	sticks := px4Taker{"a pilot's sticks", simPX4Posctl,
		func(p *player) { p.sim.pilotSticks(600, 0, 500, 0) },
		func(m moment) bool {
			mode, _ := parseMode(m.mode)
			return m.waiting || mode.flownBySticks() || m.silent
		},
	}
	return append(list, failsafe, sticks)
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

// arduPilotsModes are the Copter modes that a pilot's switch sets in these tests: STABILIZE,
// ALT_HOLD, LOITER, POSHOLD, GUIDED, BRAKE, RTL and LAND.
var arduPilotsModes = []uint32{simArduStabilize, 2, simLoiter, 16, simArduGuided, copterBrake, simArduRTL, simArduLand}

// arduShows is the time after which the simulator's heartbeat shows a new mode.
const arduShows = 100 * time.Microsecond

// flyCopter flies a Copter whose receiver is in this state.
func flyCopter(t *testing.T, receiver simReceiver, do func(*flight)) {
	t.Helper()
	fly(t, simArduPilot, func(s *simulator) { s.receiver = receiver }, do)
}

// rise takes off. A Copter without a receiver arms with our stream. A pilot with a transmitter
// in hand opens the throttle after the takeoff.
func (f *flight) rise(altitude float64) {
	f.Helper()
	if f.receiver == simReceiverInHand {
		f.sim.pilotSticks(0, 0, 0, 0)
		defer f.sim.pilotSticks(0, 0, 500, 0)
	}
	if !f.receiver.live() {
		f.accepted("/mode", `{"mode":"manual","arm":true}`)
	}
	f.accepted("/takeoff", fmt.Sprintf(`{"altitude":%g}`, altitude))
}

func (f *flight) hover() {
	f.Helper()
	f.rise(20)
	time.Sleep(20 * time.Second)
	f.wantAt(0, 0, 20, 0.5)
}

// sent lists the commands and the sticks that the vehicle has received since a time.
func (f *flight) sent(since time.Time) (commands []string, sticks []axes) {
	list := f.since(since)
	return commandsOf(list), sticksOf(list)
}

// copterVisits returns a Copter's moments with each of these receivers; without -all each moment once, and more
// where our sticks make a difference.
func copterVisits(t *testing.T, receivers ...simReceiver) (visits []visit) {
	for _, m := range moments {
		for _, receiver := range receivers {
			if m.copter != "" {
				visits = append(visits, visit{moment: m, receiver: receiver})
			}
		}
	}
	return sampled(t, visits, 0,
		func(v visit) any { return v.name },
		func(v visit) any { return [2]any{v.sticks(), v.receiver} },
	)
}

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

// aFailsafe is what happens at a moment where no pilot switches.
const aFailsafe = "a failsafe"

// pilotSwitches sets a mode as a pilot's switch does, and checks what follows.
func (f *flight) pilotSwitches(custom uint32) {
	f.Helper()
	before, was := f.sim.truth(), f.status()
	_, streamed := f.sent(time.Now().Add(-200 * time.Millisecond))
	began := time.Now()
	f.sim.pilotMode(custom)
	mode, name := copter.reported(custom)
	if before.mode == custom { // no report shows the switch: nothing changes
		time.Sleep(500 * time.Millisecond)
		f.wantMode(was["mode"].(string))
		if sent, _ := f.sent(began); len(sent) > 0 {
			f.Errorf("sent %q", sent)
		}
		return
	}
	time.Sleep(2 * arduShows)
	if _, o := f.call("GET", "/mode", ""); o["mode"] != mode.String() || o["vehicle_mode"] != name {
		f.Errorf("after the report of %s the mode is %v", name, o)
	}
	if o := f.status(); o["done"] != nil || o["target"] != nil {
		f.Errorf("done is %v, the target %v after a pilot's %s", o["done"], o["target"], name)
	}
	time.Sleep(20 * time.Second)
	f.wantMode(mode.String())
	if now := f.sim.truth(); now.mode != custom {
		f.Errorf("the vehicle is in mode %d", now.mode)
	}
	sent, sticks := f.sent(began.Add(arduShows))
	if len(sent) > 0 {
		f.Errorf("sent after the pilot's switch: %q", sent)
	}
	f.wantStreamAfterSwitch(streamed, sticks, custom)
	if mode.flownBySticks() {
		f.refused("/input", `{"pitch":1,"throttle":0.5}`, 409, "wrong_mode")
	}
}

// wantStreamAfterSwitch checks the sticks after a pilot's switch, by the sticks before it.
func (f *flight) wantStreamAfterSwitch(before, after []axes, custom uint32) {
	f.Helper()
	switch {
	case len(before) == 0:
		if len(after) > 0 {
			f.Errorf("%d sticks, the first %+v, though the vehicle needs none", len(after), after[0])
		}
		return
	case f.receiver == simReceiverInHand:
		releases := min(3, len(after)) // the first three free the receiver's sticks
		if !slices.Equal(after[:releases], []axes{released, released, released}) {
			f.Fatalf("the sticks are not released: %+v", slices.Compact(after))
		}
		if len(after) > releases {
			f.Errorf("%d sticks after the release", len(after)-releases)
		}
		return
	case f.receiver == simReceiverIdle:
		f.wantMessages("moving any switch of the transmitter frees its sticks", 1)
	}
	if n := len(after); n < 19*25 {
		f.Errorf("%d sticks in 20 s: the vehicle would fall", n)
	}
	last := before[len(before)-1].z
	for _, a := range after {
		keepsThrottle := custom == simArduStabilize && a == axes{z: last}
		if a != (axes{z: 500}) && !keepsThrottle {
			f.Fatalf("the sticks after a pilot's switch are %+v", a)
		}
	}
}

// streams reports whether sticks came in the last 0.2 s.
func (f *flight) streams() bool {
	_, sticks := f.sent(time.Now().Add(-200 * time.Millisecond))
	return len(sticks) > 0
}

// failsafeReturns begins a failsafe's return, and checks what follows.
func (f *flight) failsafeReturns() {
	f.Helper()
	_, streamed := f.sent(time.Now().Add(-200 * time.Millisecond))
	began := time.Now()
	f.sim.failsafeReturn()

	// If the mode was RTL already, only the next heartbeat shows the failsafe.
	time.Sleep(1300 * time.Millisecond)
	if o := f.status(); o["mode"] != "rtl" || o["failsafe"] != true || o["done"] != nil {
		f.Errorf("mode %v, failsafe %v, done %v", o["mode"], o["failsafe"], o["done"])
	}
	time.Sleep(19 * time.Second)
	f.wantMode("rtl")
	sent, sticks := f.sent(began.Add(arduShows))
	if len(sent) > 0 {
		f.Errorf("sent after the failsafe: %q", sent)
	}
	f.wantStreamAfterSwitch(streamed, sticks, simArduRTL)
}

// The transmitter of a live receiver goes out of reach. ArduPilot's failsafe follows, unless our
// stream prevents it. mavrest sends nothing against the failsafe.
func TestACopterThatLosesItsReceiverObeysItsFailsafe(t *testing.T) {
	atMoments(t, simArduPilot, copterVisits(t, simReceiverIdle, simReceiverInHand), nil, func(f *player, v visit) {
		streamed := f.streams()
		began := time.Now()
		f.sim.setReceiver(simReceiverLost)
		time.Sleep(1500 * time.Millisecond)
		if v.name == "rtl" { // only the next heartbeat shows the failsafe
			time.Sleep(600 * time.Millisecond)
		}
		o := f.status()
		if failed := o["failsafe"] != false; failed == streamed || failed && o["mode"] != "rtl" {
			f.Errorf("streamed %v: mode %v, failsafe %v", streamed, o["mode"], o["failsafe"])
		}
		if streamed {
			return
		}
		time.Sleep(18 * time.Second)
		f.wantMode("rtl")
		if sent, sticks := f.sent(began.Add(time.Second + 2*simTick)); len(sent) > 0 || len(sticks) > 0 {
			f.Errorf("sent after the failsafe: %q, %d sticks", sent, len(sticks))
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

// heardAgain checks what follows a lost link. Before it the mode was this, and our sticks were streamed or not.
func (f *flight) heardAgain(was string, streamed, unplugged bool) {
	f.Helper()
	back := time.Now()
	mode, _ := copter.reported(f.sim.truth().mode)
	if mode != ModeRTL {
		f.wantMode(was)
	}
	if lostSticks := streamed && !f.receiver.live() && unplugged; lostSticks && mode != ModeRTL {
		f.Errorf("no failsafe of lost sticks: %v", mode)
	}
	time.Sleep(silentClient + time.Second)
	if sent, _ := f.sent(back); len(sent) > 0 {
		f.Errorf("sent after the vehicle was heard again: %q", sent)
	}
	if inHand := f.receiver == simReceiverInHand; mode.flownBySticks() && f.streams() != (streamed && !inHand) {
		f.Errorf("streams %v, before %v; %v", f.streams(), streamed, f.status()["messages"])
	}
}

var joystickSticks = &common.MessageManualControl{Target: 1, Y: 300, Z: 500}

// joystick sends another program's sticks to the vehicle, for 5 s at 50 Hz. Each time the
// message `forwarded` comes over our line, as if the vehicle forwarded these sticks.
func (p *player) joystick(forwarded message.Message) {
	for range 250 {
		p.sim.change(func() { p.sim.brain.sticks(255, joystickSticks) })
		p.sim.emit(255, 190, forwarded)
		select {
		case <-p.Context().Done(): // the flight has failed
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// circles checks that a fixed wing circles round a place north of home.
func (p *player) circles(north float64) {
	p.Helper()
	s := p.sim.truth()
	n, e := simMetres(s.lat, s.lon)
	if away := math.Hypot(n-north, e); away > 1.5*simWingRadius+1 {
		p.Errorf("it is %.0f m away", away)
	}
}

// ignores makes the vehicle neither carry out nor acknowledge our commands. It still answers
// requests for messages.
func (f *flight) ignores() {
	f.sim.change(func() {
		f.sim.switches().idle = true
		f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
			if a.Command == common.MAV_CMD_REQUEST_MESSAGE {
				return []simAnswer{{ack: a}}
			}
			return nil
		}
	})
}

// Ten clients send commands at full speed for 10 s.
func TestTenClientsAtFullSpeedBreakNothing(t *testing.T) {
	for _, seed := range []uint64{0, 3} {
		flyCopter(t, simReceiverIdle, func(f *flight) {
			f.hover()
			f.sim.change(func() { f.sim.switches().delay = time.Duration(seed) * 3 * time.Millisecond })
			time.Sleep(time.Second)
			began := time.Now()
			var mu sync.Mutex
			var lastMode string // of the command that was accepted last
			acked := map[time.Time]bool{}
			f.sim.change(func() {
				f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
					if a.Command == common.MAV_CMD_DO_SET_MODE || a.Command == common.MAV_CMD_DO_REPOSITION {
						mu.Lock()
						acked[time.Now()] = true
						mu.Unlock()
					}
					return []simAnswer{{ack: a}}
				}
			})
			var clients sync.WaitGroup
			for i := range 10 {
				dice := rand.New(rand.NewPCG(seed, uint64(i)))
				clients.Go(func() {
					for time.Since(began) < 10*time.Second {
						mode := []string{"manual", "altitude", "position", "hold", "goto"}[dice.IntN(5)]
						path, body := "/mode", `{"mode":"`+mode+`"}`
						if mode == "goto" {
							path, body, mode = "/goto", "{"+at(30, float64(i))+"}", "hold"
						}
						code, o := f.call("POST", path, body)
						switch {
						case code == 200:
							mu.Lock()
							lastMode = mode
							mu.Unlock()
						case code != 409 || o["code"] != "superseded":
							f.Errorf("%s: %d %v", body, code, o)
						}
						time.Sleep(time.Duration(dice.IntN(10)) * time.Millisecond)
					}
				})
			}
			clients.Wait()
			f.wantMode(lastMode)
			if mode, _ := copter.reported(f.sim.truth().mode); mode.String() != lastMode {
				f.Errorf("the vehicle is in %v, the last accepted command %s", mode, lastMode)
			}
			f.wantModeChangesApart(began, acked)
			if f.sim.brain.(*simArduBrain).broken || math.Abs(f.sim.truth().alt-20) > 8 {
				f.Errorf("an internal error: at %.1f m", f.sim.truth().alt)
			}
			landed := time.Now()
			f.accepted("/land", "")
			for _, r := range f.sim.received() {
				if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_SET_MODE &&
					m.Param2 == simArduLand && r.at.Sub(landed) > 150*time.Millisecond {
					f.Errorf("LAND was sent %v after the request", r.at.Sub(landed))
				}
			}
			f.until("landed", time.Minute, f.disarmed)
		})
	}
}

// wantModeChangesApart checks that few mode changes were sent since began, and each of them at least
// modeGap after mavrest received the ack of another. acked has the times at which the acks were sent.
func (f *flight) wantModeChangesApart(began time.Time, acked map[time.Time]bool) {
	f.Helper()
	var changes []time.Time
	for _, r := range f.sim.received() {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_SET_MODE &&
			r.at.After(began) {
			changes = append(changes, r.at)
		}
	}
	for _, at := range changes {
		for ack := range acked {
			if d := at.Sub(ack.Add(f.sim.switches().delay)); d > 0 && d < modeGap {
				f.Errorf("a mode change was sent %v after the ack of the last one", d)
				return
			}
		}
	}
	if n := len(changes); n > int(10*time.Second/modeGap) {
		f.Errorf("%d mode changes in 10 s", n)
	}
}

func TestNoHoldForASilentClientIsSentWhereAPilotOrTheClientActedFirst(t *testing.T) {
	for name, first := range map[string]func(d *drone, now time.Time){
		"a pilot": func(d *drone, now time.Time) {
			d.hearMessage(onTime(beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 16, true), now))
		},
		"the client": func(d *drone, now time.Time) {
			d.sticks.input(d.situation(now), axes{z: 500}, netip.Addr{}, 5*time.Second)
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
				due := d.act().hold && d.cmd.idle()
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

// follows plays a script, up to its first failure.
func (p *player) follows(s script) {
	p.Helper()
	for _, l := range s.lines {
		p.script, p.clause = s.name, l.text
		p.at = l.String
		p.diary.note("script", "%s", strings.TrimPrefix(l.String(), "testdata/flights/"))
		if wrong := p.does(l.words); wrong != "" {
			p.Errorf("wanted: %s\nseen:   %s", l.text, wrong)
		}
		if p.Failed() {
			return
		}
	}
}
