package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Flight scripts: whole flights of mavrest beside a simulated vehicle, in words. testdata/README.md explains
// them, kit_flight_words_test.go has the words.

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

// arduPilotsModes are the Copter modes that a pilot's switch sets in these tests: STABILIZE,
// ALT_HOLD, LOITER, POSHOLD, GUIDED, BRAKE, RTL and LAND.
var arduPilotsModes = []uint32{simArduStabilize, 2, simLoiter, 16, simArduGuided, copterBrake, simArduRTL, simArduLand}

// arduShows is the time after which the simulator's heartbeat shows a new mode.
const arduShows = 100 * time.Microsecond

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

// flight is a whole mavrest beside a simulated vehicle, in virtual time.
type flight struct {
	*testing.T
	sim     *simulator
	drone   *drone
	handler http.Handler
	stop    context.CancelFunc // ends mavrest

	firmware firmware
	receiver simReceiver // the receiver's state at boot

	diary *diary
	at    func() string // where in its script the flight is; nil: no script
}

var firmwares = map[simFlavour]firmware{simPX4: px4, simArduPilot: copter, simQuadPlane: quadPlane, simPlane: plane,
	simPX4Plane: px4, simPX4VTOL: px4, simPX4Rover: px4, simArduRover: arduRover}

// object is a JSON object of an answer.
type object = map[string]any

// ofPX4 sets the release of a simulated PX4, simPX4v15 for example.
func ofPX4(release uint32) func(*simulator) {
	return func(s *simulator) {
		s.version = release | 255
		if release >= simPX4v18 {
			delete(s.params, simStickOverride)
			s.params[simStickSpeed] = 1
		}
	}
}

// newerCopter sets the release of a simulated Copter. 4.7 renamed parameters.
func newerCopter(r release) func(*simulator) {
	return func(s *simulator) {
		s.version = uint32(r.major)<<24 | uint32(r.minor)<<16
		rename := func(old, new string, factor float64) {
			s.params[new] = s.params[old] * factor
			delete(s.params, old)
		}
		if !r.before(release{4, 7}) {
			rename("SYSID_MYGCS", "MAV_GCS_SYSID", 1)
			rename("WPNAV_SPEED", "WP_SPD", 0.01)
			rename("RTL_ALT", "RTL_ALT_M", 0.01)
		}
	}
}

// fly runs a flight in a bubble of virtual time. prepare, which may be nil, sets
// the simulator's switches before it boots.
func fly(t *testing.T, flavour simFlavour, prepare func(*simulator), do func(*flight)) {
	t.Helper()
	flyWith(t, flavour, prepare, nil, do)
}

// flyWith is fly with start, which changes mavrest before it runs and may be nil.
func flyWith(t *testing.T, flavour simFlavour, prepare func(*simulator), start func(*drone), do func(*flight)) {
	t.Helper()
	inLinkBubble(t, func(t *testing.T) {
		s := newTestSimulator(flavour)
		s.dice = rand.New(rand.NewPCG(1, *simSeed))
		if prepare != nil {
			prepare(s)
		}
		ctx, endSim := context.WithCancel(t.Context())
		droneCtx, stop := context.WithCancel(ctx)
		f := &flight{T: t, sim: s, firmware: firmwares[flavour], receiver: s.receiver}
		f.diary = &diary{began: time.Now(), firmware: f.firmware}
		dev := device{
			name: "sim", lossy: true,
			open: func(context.Context) (port, error) {
				p, err := s.open()
				if err != nil {
					return nil, err
				}
				return tap{p, f.diary}, nil
			},
		}
		d := newDrone(dev, 0, false, f.diary.log())
		if start != nil {
			start(d)
		}
		f.drone, f.handler, f.stop = d, newHandler(d, admission{}), stop
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		running.Go(func() { d.run(droneCtx) })
		defer func() { // also if the test ends early
			if f.Failed() && !f.diary.wasTold() { // by a helper that does not know the flight
				f.Error("this flight failed")
			}
			f.stop()
			endSim()
			running.Wait()
		}()
		time.Sleep(10 * time.Second) // then the vehicle has booted and can be armed
		do(f)
		if *everyDiary {
			t.Logf("the diary:\n%s", f.diary)
		}
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
	f.diary.asked(method, path, body)
	f.handler.ServeHTTP(w, r)
	var o object
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
		f.Fatalf("%s %s answered %q: %v", method, path, w.Body, err)
	}
	f.diary.answered(method, path, w.Code, o)
	return w.Code, o
}

// snapped is what a status is made of. A test reads it without the mutex: not the parameters.
func (d *drone) snapped() (s snapshot) {
	d.locked(func() {
		s = d.snapshot(time.Now())
		tel := d.tel // what is heard from now on does not change it
		s.tel = &tel
	})
	return s
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

// refused posts a command that must be refused with a status and an error code.
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
	if !differsLittle(n, north, within) || !differsLittle(e, east, within) || !differsLittle(s.alt, up, within) {
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

// since lists what the vehicle has received since a time.
func (f *flight) since(t time.Time) []simReceived {
	return slices.DeleteFunc(f.sim.received(), func(r simReceived) bool { return r.at.Before(t) })
}

// commands lists the commands that were sent to the vehicle, without requests for messages.
func (f *flight) commands() []string { return commandsOf(f.sim.received()) }

func commandsOf(received []simReceived) (list []string) {
	for _, r := range received {
		switch m := r.msg.(type) {
		case *common.MessageCommandLong:
			if m.Command != common.MAV_CMD_SET_MESSAGE_INTERVAL && m.Command != common.MAV_CMD_REQUEST_MESSAGE {
				list = append(list, fmt.Sprintf("%d %g %g", m.Command, m.Param1, m.Param2))
			}
		case *common.MessageCommandInt:
			list = append(list, fmt.Sprintf("%d frame %d z %.1f", m.Command, m.Frame, m.Z))
		case *common.MessageSetMode:
			list = append(list, "SET_MODE")
		}
	}
	return list
}

// sticksOf lists the sticks that were streamed.
func sticksOf(received []simReceived) (list []axes) {
	for _, r := range received {
		if m, ok := r.msg.(*common.MessageManualControl); ok {
			list = append(list, axes{m.X, m.Y, m.Z, m.R})
		}
	}
	return list
}

// sticksSince lists the MANUAL_CONTROLs that the vehicle has received since a time.
func (f *flight) sticksSince(since time.Time) []simReceived {
	return slices.DeleteFunc(f.since(since), func(r simReceived) bool {
		_, sticks := r.msg.(*common.MessageManualControl)
		return !sticks
	})
}

// fails makes the vehicle refuse a command. end lets it obey again.
func (f *flight) fails(id common.MAV_CMD) (end func()) {
	f.sim.change(func() { f.sim.switches().refuses[id] = true })
	return func() { f.sim.change(func() { delete(f.sim.switches().refuses, id) }) }
}

// acks replaces each ack of a command by what answers returns. It does not change other acks.
func (f *flight) acks(id common.MAV_CMD, answers func(a *common.MessageCommandAck) []simAnswer) {
	f.sim.change(func() {
		f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
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

// failAcks gives every ack of a command this result, whether the vehicle carries it out or not.
func (f *flight) failAcks(id common.MAV_CMD, result common.MAV_RESULT) {
	f.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		a.Result = result
		return []simAnswer{{ack: a}}
	})
}

// In whole flights somebody else than the client acts: a pilot, a failsafe, a restart, a lost
// link, a second client. A moment says how far the client's command has come when that happens.
// flight_test.go has the flights.
//
// One invariant holds in all of them. After a report that no command of ours explains, nothing
// is sent that commands or moves the vehicle until a client asks again. A stream may go on
// centred or unmoved, or be released.

// moment brings a flight to a moment of a manoeuvre.
type moment struct {
	name, mode  string // mode is the present mode, or the mode to which the command leads
	px4, copter string // the script that flies to the moment; "": not on this autopilot

	explained []uint32 // PX4's modes whose reports the command explains
	waiting   bool     // the command is not answered yet
	silent    bool     // the command is mavrest's own hold for a silent client
	disarmed  bool     // the vehicle is on the ground and not armed yet
	undone    []uint32 // a pilot's modes that are left out: our moving sticks would undo them
}

const (
	px4Hold = "aloft, mode hold, +1s, "
	// the mode is acknowledged, but not in force yet
	px4Entered = px4Hold + "watch DO_SET_MODE 1, post mode %s, acked, +1ms"
	px4Leaves  = "aloft, mode %s, input pitch 0.5 throttle 0.5 timeout 5, +500ms, post %s, +1800ms"
)

// moments cover everything that a client commands. In PX4's stick modes the client's sticks have
// been still for so long that PX4 does not count them as moving.
var moments = []moment{
	{name: "takeoff, before it is armed", mode: "takeoff", waiting: true, disarmed: true,
		explained: []uint32{simPX4Loiter, simPX4Manual},
		px4:       "pilot MANUAL, +1s, watch DO_SET_MODE 2, post takeoff, acked, +1ms"},
	{name: "takeoff, armed and on the ground", mode: "takeoff", explained: []uint32{simPX4Takeoff},
		px4: "watch COMPONENT_ARM_DISARM 1, post takeoff wait 60, acked, +500ms"},
	{name: "takeoff, in its climb", mode: "takeoff", explained: []uint32{simPX4Takeoff},
		px4: "post takeoff 40 wait 120, +10s", copter: "rise 40, +9s"},
	{name: "goto that climbs", mode: "hold", copter: "hover, goto altitude 60, +4s"},
	{name: "goto under way", mode: "hold", explained: []uint32{simPX4Loiter},
		px4: "aloft, post goto 60 0 wait 120, +4s", copter: "hover, goto 200 0, +6s"},
	{name: "goto, between its ack and its mode", mode: "hold", waiting: true,
		explained: []uint32{simPX4Loiter, simPX4RTL},
		px4:       "aloft, mode rtl, +1s, watch DO_REPOSITION 1, post goto 60 0, acked, +4ms"},
	{name: "hold", mode: "hold", explained: []uint32{simPX4Loiter},
		px4: px4Hold + "mark", copter: "hover, mode hold, +4s"},
	{name: "hold from speed", mode: "hold", explained: []uint32{simPX4Loiter},
		px4:    "aloft, goto 200 0, +5s, post mode hold wait 60, +500ms",
		copter: "hover, goto 200 0, +8s, mode hold, +400ms"},
	{name: "land here", mode: "land", explained: []uint32{simPX4Land},
		px4: "aloft, post land wait 120, +4s", copter: "hover, land, +4s"},
	{name: "land at a place, on the way", mode: "land", explained: []uint32{simPX4Loiter},
		px4: "aloft, post land 60 0 wait 200, +4s", copter: "hover, land 200 0, +6s"},
	{name: "land at a place, at the place", mode: "land", explained: []uint32{simPX4Loiter},
		// 0.1 s before the second leg may begin
		px4: "aloft, post land 30 0 wait 200, until north > 27.95 60s, until speed < 2.5 60s"},
	{name: "land at a place, landing", mode: "land", explained: []uint32{simPX4Land},
		px4:    "aloft, watch DO_SET_MODE 1, post land 10 0 wait 200, acked, +1s",
		copter: "hover, land 8 0, until in LAND 40s, +2s"},
	{name: "rtl", mode: "rtl", explained: []uint32{simPX4RTL},
		px4: "aloft, goto 60 0 wait 60, post mode rtl wait 200, +4s", copter: "hover, goto 60 0, +15s, mode rtl, +4s"},
	{name: "position, while its first sticks run", mode: "position", waiting: true, explained: []uint32{simPX4Loiter},
		px4: px4Hold + "post mode position, +200ms"},
	{name: "altitude, while its first sticks run", mode: "altitude", waiting: true, explained: []uint32{simPX4Loiter},
		px4: px4Hold + "post mode altitude, +200ms"},
	{name: "manual, while its first sticks run", mode: "manual", waiting: true, explained: []uint32{simPX4Loiter},
		px4: px4Hold + "post mode manual, +200ms"},
	{name: "position, between its ack and its mode", mode: "position", waiting: true,
		explained: []uint32{simPX4Posctl, simPX4Loiter}, px4: fmt.Sprintf(px4Entered, "position")},
	{name: "altitude, between its ack and its mode", mode: "altitude", waiting: true,
		explained: []uint32{simPX4Altctl, simPX4Loiter}, px4: fmt.Sprintf(px4Entered, "altitude")},
	{name: "manual, between its ack and its mode", mode: "manual", waiting: true,
		explained: []uint32{simPX4Manual, simPX4Loiter}, px4: fmt.Sprintf(px4Entered, "manual")},
	{name: "position, centred", mode: "position", explained: []uint32{simPX4Posctl},
		px4: "aloft, mode position, +4s", copter: "hover, mode position, +2s"},
	{name: "altitude, centred", mode: "altitude", copter: "hover, mode altitude, +2s"},
	{name: "manual, centred", mode: "manual", copter: "hover, mode manual, +1s"},
	{name: "position, its sticks deflected", mode: "position", explained: []uint32{simPX4Posctl},
		px4:    "aloft, mode position, input pitch 0.5 timeout 5, +2500ms",
		copter: "hover, mode position, input pitch 0.5 timeout 5, +1s"},
	{name: "altitude, its sticks deflected", mode: "altitude", explained: []uint32{simPX4Altctl},
		px4:    "aloft, mode altitude, input pitch 0.3 throttle 0.6 timeout 5, +2500ms",
		copter: "hover, mode altitude, input roll -0.5 timeout 5, +1s"},
	{name: "manual, its sticks deflected", mode: "manual", explained: []uint32{simPX4Manual},
		px4:    "aloft, mode manual, input pitch 0.3 throttle 0.55 timeout 5, +2500ms",
		copter: "hover, mode manual, input pitch 0.2 throttle 0.45 timeout 5, +1s"},
	{name: "position, its sticks expired", mode: "position",
		copter: "hover, mode position, input pitch 0.5 timeout 0.2, +2s"},
	{name: "altitude, its sticks expired", mode: "altitude", explained: []uint32{simPX4Altctl},
		px4:    "aloft, mode altitude, input pitch 0.3 timeout 0.5, +1500ms",
		copter: "hover, mode altitude, input pitch 0.5 timeout 0.2, +2s"},
	{name: "manual, its sticks expired", mode: "manual",
		copter: "hover, mode manual, input pitch 0.2 throttle 0.45 timeout 0.2, +1s"},
	{name: "goto after position, waiting for still sticks", mode: "hold", waiting: true,
		explained: []uint32{simPX4Posctl}, px4: fmt.Sprintf(px4Leaves, "position", "goto 60 0")},
	{name: "land after position, waiting for still sticks", mode: "land", waiting: true,
		explained: []uint32{simPX4Posctl}, px4: fmt.Sprintf(px4Leaves, "position", "land")},
	{name: "goto after altitude, in the POSCTL leg", mode: "hold", waiting: true, explained: []uint32{simPX4Posctl},
		px4: fmt.Sprintf(px4Leaves, "altitude", "goto 60 0")},
	{name: "hold after manual, before POSCTL is in force", mode: "hold", waiting: true,
		explained: []uint32{simPX4Posctl, simPX4Manual},
		undone:    []uint32{simPX4Loiter, simPX4RTL, simPX4Land},
		px4: "aloft, mode manual, input pitch 0.3 throttle 0.5 timeout 5, +500ms, watch DO_SET_MODE 2, post mode " +
			"hold, acked, +1ms"},
	// on PX4 in the POSCTL leg
	{name: "a silent client's hold", mode: "hold", silent: true, explained: []uint32{simPX4Posctl},
		px4:    "aloft, mode altitude, input pitch 0.3 timeout 5, until in POSCTL 10s, +1700ms",
		copter: "hover, mode altitude, input pitch 0.5 timeout 0.2, +7s"},
}

// sticks reports whether our stream may run at this moment.
func (m moment) sticks() bool {
	mode, _ := parseMode(m.mode)
	return mode.flownBySticks() || m.silent
}

// visit is a flight to a moment, with a receiver, and what happens there; custom is the mode that a pilot sets.
type visit struct {
	moment
	receiver simReceiver
	custom   uint32
	what     string
}

// receiverWords are the receivers in the names of tests.
var receiverWords = map[simReceiver]string{
	simReceiverNone: "no receiver", simReceiverLost: "a lost receiver", simReceiverIdle: "an idle receiver",
	simReceiverInHand: "a receiver in hand",
}

// String is the name of the visit's test.
func (v visit) String() string {
	name := v.name + "/" + receiverWords[v.receiver]
	if v.what != "" {
		name += ", " + v.what
	}
	return name
}

// wantAnswer checks how the oldest post, if any, was answered. Code "" means accepted, "any" allows all.
func (p *player) wantAnswer(limit time.Duration, code string) {
	p.Helper()
	if len(p.posts) > 0 {
		p.answered([]string{cmp.Or(code, "ok"), limit.String()})
	}
}

// report returns the last report that mavrest judged, and when the last HEARTBEAT came.
func (f *flight) report() (custom uint32, armed bool, at time.Time) {
	f.drone.mu.Lock()
	defer f.drone.mu.Unlock()
	last := f.drone.machine.last
	return last.custom, last.armed, f.drone.tel.beat.at
}

// reported waits for a heartbeat that shows a mode, and returns when it came.
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

// stream lists the axes that were streamed since a time, without repetitions.
func (f *flight) stream(since time.Time) []axes { return slices.Compact(sticksOf(f.since(since))) }

// streamed returns the axes that were streamed last. ok is false if none were streamed for 0.2 s.
func (f *flight) streamed() (last axes, ok bool) {
	list := f.stream(time.Now().Add(-200 * time.Millisecond))
	if len(list) == 0 {
		return last, false
	}
	return list[len(list)-1], true
}

// wantHandsOff checks that no command was sent since a time.
func (f *flight) wantHandsOff(since time.Time) {
	f.Helper()
	if list := commandsOf(f.since(since)); len(list) > 0 {
		f.Errorf("sent after a takeover: %q", list)
	}
}

// wantStream checks that only these axes were streamed, until now and without a gap that PX4
// would take for a loss. A nil want means that nothing may be streamed.
func (f *flight) wantStream(since time.Time, want *axes) {
	f.Helper()
	got := f.stream(since)
	switch {
	case want == nil && len(got) > 0:
		f.Errorf("streamed %v, want nothing", got)
	case want == nil:
		return
	case !slices.Equal(got, []axes{*want}):
		f.Errorf("streamed %v, want only %v", got, *want)
	}
	last := since
	for _, r := range append(f.sticksSince(since), simReceived{at: time.Now()}) {
		if gap := r.at.Sub(last); gap > 200*time.Millisecond {
			f.Errorf("a gap of %v in the stream", gap)
		}
		last = r.at
	}
}

// speed returns the vehicle's real speed over ground.
func (f *flight) speed() float64 {
	s := f.sim.truth()
	return math.Hypot(s.vn, s.ve)
}

// atMoments flies to each moment and there calls happens.
func atMoments(t *testing.T, flavour simFlavour, visits []visit, prepare func(*simulator),
	happens func(p *player, v visit)) {
	for _, v := range visits {
		prepared := func(s *simulator) {
			if s.receiver = v.receiver; prepare != nil {
				prepare(s)
			}
		}
		t.Run(v.String(), func(t *testing.T) {
			fly(t, flavour, prepared, func(f *flight) {
				p := &player{flight: f}
				p.plays(map[simFlavour]string{simPX4: v.px4, simArduPilot: v.copter}[flavour])
				happens(p, v)
				p.wantAnswer(10*time.Minute, "any")
			})
		})
	}
}

// waiting is a command whose client waits for the answer.
type waiting struct {
	asked, answered time.Time
	code            int
	answer          object
	over            chan struct{}
}

// post posts a command in a goroutine.
func (f *flight) post(path, body string) *waiting {
	w := &waiting{asked: time.Now(), over: make(chan struct{})}
	go func() {
		defer close(w.over)
		w.code, w.answer = f.call("POST", path, body)
		w.answered = time.Now()
	}()
	return w
}

// want checks the client's answer: its status and, if it is an error, its code and words of its
// text. An error after the acceptance has the status accepted, done false and took; no other has any.
func (w *waiting) want(t testing.TB, code int, word string, says ...string) {
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
	} else if accepted := w.answer["status"] == "accepted"; accepted != (done == false) || accepted != (took != nil) {
		t.Errorf("the status is %v, done is %v, took %v", w.answer["status"], done, took)
	}
	for _, s := range says {
		if text, _ := w.answer["error"].(string); !strings.Contains(text, s) {
			t.Errorf("%q does not say %q", text, s)
		}
	}
}

// stillWaits checks that the client still waits.
func (w *waiting) stillWaits(t testing.TB) {
	t.Helper()
	synctest.Wait()
	select {
	case <-w.over:
		t.Fatalf("does not wait: %d %v after %v", w.code, w.answer, w.answered.Sub(w.asked))
	default:
	}
}

// slowly delays what comes from the vehicle and what goes up to it, and gives mavrest time to measure it.
func (f *flight) slowly(down, up time.Duration) {
	f.sim.change(func() { f.sim.switches().delay, f.sim.switches().delayUp = down, up })
	time.Sleep(4 * time.Second)
}

// anew starts another mavrest beside a vehicle that flies already.
func (f *flight) anew() {
	d := newDrone(f.drone.link.device, 0, false, f.diary.log())
	if before := f.drone.link.signing; before != nil {
		d.link.signing = newSigning(before.key)
	}
	f.drone, f.handler = d, newHandler(d, admission{})
	ctx, end := context.WithCancel(f.Context())
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx) })
	f.stop = func() { end(); running.Wait() }
}

// forbids makes the vehicle refuse modes.
func (f *flight) forbids(modes ...uint32) {
	f.sim.change(func() {
		f.sim.switches().refusesModes = modes // ArduPilot's
		f.sim.modes = slices.Clone(f.sim.modes)
		for i := range f.sim.modes {
			m := &f.sim.modes[i]
			m.refused = m.refused || f.firmware == px4 && slices.Contains(modes, m.custom)
		}
	})
}

// pilots are the modes that a pilot sets.
var pilots = map[firmware]uint32{px4: entered[px4][ModePosition], copter: entered[copter][ModePosition]}
