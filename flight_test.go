package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
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
	"px4-plane": simPX4Plane, "px4-vtol": simPX4VTOL, "px4-rover": simPX4Rover,
	"px4-1.14": simPX4, "px4-1.15": simPX4, "px4-1.16": simPX4, "px4-1.17": simPX4,
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
			olderPX4(map[string]uint32{"14": simPX4v14, "15": simPX4v15, "16": simPX4v16, "17": simPX4v17}[minor])(s)
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
		p.sim.onAck = func(a *common.MessageCommandAck) []simAnswer {
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
		entering := b.command(request{setMode: true, mode: ModePosition})
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
	hold := request{setMode: true, mode: ModeHold}
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
