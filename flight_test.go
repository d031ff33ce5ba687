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
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// Flight scripts: whole flights of mavrest beside a simulated vehicle, in words.
//
//	px4 NAV_DLL_ACT=2: aloft, goto 60 0, +2s, pilot RTL, hands off, truth
//
// Before the colon stand the vehicle (px4, px4-1.14, copter, quadplane or plane; "both" flies
// PX4 and a Copter) and its settings at boot: parameters; receiver=none, lost, idle or hand (in
// hand); armable=1h: it can be armed from then on; fence=50; trouble=BATTERY; live=no: it sends
// no live reports; station=yes: a QGroundControl is connected; gcs: mavrest runs with -gcs. After
// the colon stand the clauses, with commas between them. "copter? is hold" is for a Copter only.
//
// {takeoff|arm} flies the script once with each choice, {300ms..1s/100ms} once with each
// time. $1 repeats the choice of the first braces; for {land→disarmed} it is "disarmed".
//
// A client:
//
//	takeoff 40, goto 60 0 wait 90, land, mode rtl, arm, disarm, input pitch 0.5
//	                      posts a command, which must be accepted; places are metres
//	                      north and east of home, other pairs are fields of the body
//	refused no_ack goto 60 0     posts a command that must be answered with the error code
//	                      no_ack; so "refused refused goto 60 0" expects the code "refused"
//	says COM_RC_IN_MODE, says not: fence     the last error contains these words; the
//	                      last answer does not
//	post goto 60 0        posts a command without waiting for the answer
//	waits                 the last post is not answered yet
//	answer superseded 2s  the oldest post is answered with this code, within 2 s; with
//	                      "ok" it must be accepted, with "any" any answer is right
//	took < 2s             how long the last answer took
//	entering manual       posts a mode, and waits until the vehicle enters it
//	moves 2s              moves the sticks at 10 Hz, until an input is refused
//	aloft                 takes off to 10 m, and waits there
//	rise 40, hover        take off with the receiver in any state: rise to 40 m; hover to 20 m, and waits
//	stop, start           mavrest ends; another one starts
//
// Everybody else. "hands off", "sent", "sends" and "stream" check what came since the last clause
// of this list, "stop", "start" or "mark":
//
//	pilot RTL             a pilot sets a mode, by the autopilot's name or by ours
//	pilot sticks 0 300 500 0, pilot arms, pilot disarms, pilot switch 1100 ALT_HOLD
//	failsafe, restart (in flight), restart grounded (on the ground at home), receiver idle
//	reported              waits until a report shows the vehicle's mode
//	unplug, plug, mute, unmute, delay 60ms     the line
//	slow 60ms             as delay, and mavrest has the time to measure it
//	param COM_RC_IN_MODE 4, text Battery failsafe
//	trouble BATTERY and a text     PX4 can't be armed: this system is unhealthy (with 0 none is),
//	                      and PX4 names the text as the reason. "trouble none" ends all
//
// The vehicle misbehaves:
//
//	fails DO_REPOSITION   refuses this command
//	nacks DO_REPOSITION   carries it out, and refuses it in the ack; "unknowns" acks UNSUPPORTED
//	loses DO_REPOSITION DO_SET_MODE 1     carries these commands out; their acks are lost, here
//	                      only the first one
//	watch DO_SET_MODE 2, acked     "acked" waits for the second ack since "watch"
//	forbids POSCTL        refuses these modes
//	silent 2s             sends nothing for 2 s after each mode that it enters
//	stops 245             stops sending the message with this id
//	heartless 2500ms      sends no heartbeats for 2.5 s
//	only acks             acknowledges commands and does not carry them out
//	deaf                  neither acknowledges commands nor carries them out
//	recovers              ends all of these except "forbids" and "stops"
//	recovers DO_REPOSITION     ends the refusal of this command
//
// Time and checks:
//
//	+300ms
//	until disarmed 60s    waits until a check passes, for 60 s at most
//	stays 10s is manual   repeats the check each 100 ms
//	is hold, in AUTO.LOITER     the mode that mavrest answers; the vehicle's real mode
//	truth                 the answered mode and vehicle_mode are the real ones
//	at 60 0 10 ±1         metres north, east and up; ±0.5 if none is given
//	alt > 10, alt 10 ±0.1, north …, east …, climb …, speed …, vn …, ve …, heading …
//	armed, disarmed, failing, done, not …
//	status input.by client, status target.distance < 2     a field of the status; or null
//	its command 400       a field of the last answer; or null
//	messages 1 undid      one message of the status contains these words
//	hands off             no command was sent to the vehicle
//	sent 176 1 4 | 400 1 0     these are all commands that were sent: the MAV_CMD's number
//	                      (176 DO_SET_MODE, 400 COMPONENT_ARM_DISARM), then its first two
//	                      parameters, or "frame 3 z 20.0" if it went out as COMMAND_INT
//	sends 400 1 0         this is one of the commands that were sent
//	note, kept 0.3, rose 4 ±0.6     "note" remembers the height; the vehicle is within 0.3 m
//	                      of that height; it rose by 4 m since
//	comes back north < 6  in 30 s the vehicle comes back by less than 6 m from its furthest
//	                      point to the north, south or up
//	past 12 ±1, strayed < 1     in the last "comes back": how far it first went on, and its largest
//	                      difference in height
//	fastest 10s 4 ±0.3    the highest speed over ground in 10 s, m/s
//	sideways 10s < 0.1    how far it flies sideways in 10 s, while it is below 2 m
//	stream 0 0 500 0, stream nothing     the only sticks that were streamed
//	sticks 0 0 500 0, streams     these sticks are streamed now; some sticks are
//	no input              the client's sticks are refused
//
// Each test may have more clauses, which are functions.

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

var scriptReceivers = map[string]simReceiver{"none": simReceiverNone, "lost": simReceiverLost, "idle": simReceiverIdle, "hand": simReceiverInHand}

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

// plays does one clause of a script after the other.
func (p *player) plays(script string) {
	p.Helper()
	p.script = script
	for clause := range strings.SplitSeq(script, ",") {
		p.clause = strings.TrimSpace(clause)
		p.at = func() string { return fmt.Sprintf("%q of %q", p.clause, p.script) }
		p.diary.note("script", "%s", p.clause)
		w := strings.Fields(clause)
		if len(w) > 0 && (w[0] == "px4?" || w[0] == "copter?") {
			if (p.firmware == px4) != (w[0] == "px4?") {
				continue
			}
			w = w[1:]
		}
		if len(w) == 0 {
			p.bad()
		}
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
func (p *player) does(w []string) string {
	p.Helper()
	if do, own := clauses[strings.Join(w, " ")]; own {
		do(p)
		return ""
	}
	if p.board != nil {
		if wrong, known := p.companion(w); known {
			return wrong
		}
	} else if path, body, known := p.request(w); known {
		began := time.Now()
		p.answer = p.accepted(path, body)
		p.took = time.Since(began)
		return ""
	}
	if p.client(w) || p.happens(w) {
		return ""
	}
	return p.check(w)
}

// request returns the path and the body of a client's command.
func (p *player) request(w []string) (path, body string, known bool) {
	verb, rest := w[0], w[1:]
	var fields []string
	numbers := 0
	for numbers < len(rest) && strings.ContainsAny(rest[numbers][:1], "-.0123456789") {
		numbers++
	}
	switch {
	case verb == "takeoff" && numbers == 1:
		fields, rest = append(fields, `"altitude":`+rest[0]), rest[1:]
	case (verb == "goto" || verb == "land") && numbers == 2:
		fields, rest = append(fields, at(p.number(rest[0]), p.number(rest[1]))), rest[2:]
	case verb == "mode" && len(rest) > 0:
		fields, rest = append(fields, `"mode":"`+rest[0]+`"`), rest[1:]
	case verb == "arm" || verb == "disarm":
		fields = append(fields, fmt.Sprintf(`"arm":%v`, verb == "arm"))
		verb = "mode"
	case !slices.Contains([]string{"takeoff", "goto", "land", "input"}, verb):
		return "", "", false
	}
	if len(rest)%2 != 0 {
		p.bad()
	}
	for ; len(rest) > 0; rest = rest[2:] {
		fields = append(fields, fmt.Sprintf("%q:%s", rest[0], rest[1]))
	}
	return "/" + verb, "{" + strings.Join(fields, ",") + "}", true
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

// client plays what a client does, except commands that must be accepted. It also lets time pass.
func (p *player) client(w []string) (known bool) {
	p.Helper()
	switch w[0] {
	case "refused", "post":
		words := w[1:]
		if w[0] == "refused" && len(words) > 0 {
			words = words[1:]
		}
		if len(words) == 0 {
			p.bad()
		}
		path, body, known := p.request(words)
		if !known {
			p.bad()
		}
		if w[0] == "post" {
			p.posts = append(p.posts, p.flight.post(path, body))
			return true
		}
		began := time.Now()
		p.answer = p.refused(path, body, errorStatus[errorCode(w[1])], w[1])
		p.took = time.Since(began)
	case "waits":
		p.posts[len(p.posts)-1].stillWaits(p)
	case "entering":
		in := make(chan struct{})
		p.sim.change(func() { p.sim.onMode = func(uint32) { close(in); p.sim.onMode = nil } })
		p.posts = append(p.posts, p.flight.post("/mode", `{"mode":"`+w[1]+`"}`))
		<-in
	case "answer":
		p.answered(w[1:])
	case "note":
		p.noted = p.sim.truth().alt
	case "aloft":
		p.aloft()
	case "hover":
		p.hover()
	case "rise":
		p.rise(p.number(w[1]))
	case "moves":
		began := time.Now()
		p.answer = p.keepsMoving(p.duration(w[1]))
		p.took = time.Since(began)
	case "watch":
		p.watch(p.id(w[1:]), int(p.number(w[2])))
	case "acked":
		select {
		case <-p.acked:
		case <-time.After(30 * time.Second):
			p.Fatalf("wanted: %s\nseen:   no ack in 30 s", p.clause)
		}
	default:
		if w[0][0] != '+' {
			return false
		}
		time.Sleep(p.duration(w[0][1:]))
	}
	return true
}

// answered waits for the answer of the oldest post.
func (p *player) answered(w []string) {
	p.Helper()
	if len(w) == 0 || len(p.posts) == 0 {
		p.bad()
	}
	limit := 10 * time.Minute
	if len(w) > 1 {
		limit = p.duration(w[1])
	}
	post := p.posts[0]
	p.posts = p.posts[1:]
	select {
	case <-post.over:
	case <-time.After(limit):
		p.Fatalf("wanted: %s\nseen:   no answer in %v", p.clause, limit)
	}
	p.answer, p.took = post.answer, post.answered.Sub(post.asked)
	switch code, _ := p.answer["code"].(string); {
	case w[0] != "any" && cmp.Or(code, "ok") != w[0]:
		p.Errorf("wanted: %s\nseen:   %d %v", p.clause, post.code, p.answer)
	case code != "":
		post.want(p, errorStatus[errorCode(code)], code)
	case p.answer["done"] != nil:
		post.want(p, 200, "")
	}
}

// happens plays what others than the client do, and what happens to the line and the vehicle.
func (p *player) happens(w []string) (known bool) {
	p.Helper()
	s, mark := p.sim, time.Now()
	switch w[0] {
	case "mark":
	case "pilot":
		p.pilot(w[1:])
	case "transition": // to wing or hover, by another program
		to := map[string]common.MAV_VTOL_STATE{"wing": common.MAV_VTOL_STATE_FW, "hover": common.MAV_VTOL_STATE_MC}[w[1]]
		s.change(func() { s.brain.(*simPX4KindBrain).goOver(to) })
	case "failsafe":
		s.failsafeReturn()
	case "restart":
		s.reboot(len(w) == 1)
	case "receiver":
		s.setReceiver(scriptReceivers[w[1]])
	case "reported":
		mark = p.reported(s.truth().mode, mark.Add(-time.Millisecond), 1100*time.Millisecond)
	case "stop":
		p.stop()
	case "start":
		p.anew()
	case "unplug":
		s.unplug()
	case "plug":
		s.plug()
	case "mute", "unmute":
		s.change(func() { s.muted = w[0] == "mute" })
	case "delay":
		s.change(func() { s.delay = p.duration(w[1]) })
	case "slow":
		p.slowly(p.duration(w[1]))
	case "trouble":
		s.change(func() {
			s.trouble = append(s.trouble, scriptTrouble(w[1], strings.Join(w[2:], " ")))
			if w[1] == "none" {
				s.trouble = nil
			}
		})
	case "param":
		s.change(func() { s.params[w[1]] = p.number(w[2]) })
	case "text":
		s.change(func() { s.sendText(common.MAV_SEVERITY_CRITICAL, strings.Join(w[1:], " "), 0) })
	default:
		return p.breaks(w)
	}
	p.mark, p.seen = mark, len(s.received())
	if w[0] == "reported" { // the mark is the report, which may have come a moment ago
		p.seen = len(slices.DeleteFunc(s.received(), func(r simReceived) bool { return !r.at.Before(mark) }))
	}
	return true
}

// pilot plays what a pilot does.
func (p *player) pilot(w []string) {
	p.Helper()
	switch {
	case len(w) == 5 && w[0] == "sticks":
		a := p.axes(w[1:])
		p.sim.pilotSticks(a.x, a.y, a.z, a.r)
	case len(w) == 3 && w[0] == "switch":
		p.sim.pilotSwitch(uint16(p.number(w[1])), numberOf(p, p.firmware, w[2]))
	case len(w) == 1 && (w[0] == "arms" || w[0] == "disarms"):
		p.sim.pilotArm(w[0] == "arms")
	case len(w) == 1:
		p.sim.pilotMode(numberOf(p, p.firmware, w[0]))
	default:
		p.bad()
	}
}

// breaks makes the vehicle misbehave.
func (p *player) breaks(w []string) (known bool) {
	p.Helper()
	s := p.sim
	switch w[0] {
	case "fails":
		p.fails(p.id(w[1:]))
	case "nacks", "unknowns":
		p.failAcks(p.id(w[1:]), map[string]common.MAV_RESULT{"nacks": common.MAV_RESULT_FAILED, "unknowns": common.MAV_RESULT_UNSUPPORTED}[w[0]])
	case "loses":
		p.losesAcks(w[1:])
	case "heartless":
		s.change(func() { s.noBeatsUntil = time.Now().Add(p.duration(w[1])) })
	case "only":
		s.change(func() { s.idle = true })
	case "deaf":
		p.ignores()
	case "forbids":
		var modes []uint32
		for _, name := range w[1:] {
			modes = append(modes, numberOf(p, p.firmware, name))
		}
		p.forbids(modes...)
	case "silent":
		s.change(func() {
			s.onMode = func(uint32) {
				s.muted = true
				s.after(p.duration(w[1]), func() { s.muted = false })
			}
		})
	case "stops":
		s.change(func() { s.stream(uint32(p.number(w[1])), -1) })
	case "recovers":
		if len(w) == 2 {
			id := p.id(w[1:])
			s.change(func() { delete(s.refuses, id) })
			return true
		}
		s.change(func() { s.idle, s.onAck, s.onMode, s.noBeatsUntil = false, nil, nil, time.Time{}; clear(s.refuses) })
	default:
		return false
	}
	return true
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

// check plays a check. It returns what is wrong, or "".
func (p *player) check(w []string) string {
	p.Helper()
	expect := func(ok bool, what string, now any) string {
		if ok {
			return ""
		}
		return fmt.Sprintf("%s is %v", what, now)
	}
	truth := p.sim.truth()
	rest := strings.Join(w[1:], " ")
	if p.board != nil {
		if wrong, known := p.board.sees(p, w); known {
			return wrong
		}
	}
	switch w[0] {
	case "not":
		return expect(p.check(w[1:]) != "", rest, "so")
	case "until", "stays":
		return p.checkOverTime(w)
	case "kept":
		return expect(math.Abs(truth.alt-p.noted) <= p.number(rest), "the height", fmt.Sprint(truth.alt, ", noted ", p.noted))
	case "comes":
		return p.comesBack(w[2:])
	case "fastest":
		return p.fastest(w[1:])
	case "sideways":
		return p.sideways(w[1:])
	case "is":
		_, o := p.call("GET", "/mode", "")
		return expect(o["mode"] == rest, "the mode", fmt.Sprint(o["mode"], ", of the vehicle ", o["vehicle_mode"]))
	case "in":
		_, name := p.firmware.reported(truth.mode)
		return expect(truth.mode == numberOf(p, p.firmware, rest), "the vehicle's mode", name)
	case "failing":
		return expect(truth.failsafe, "the vehicle's failsafe", truth.failsafe)
	case "armed", "disarmed":
		return expect(truth.armed == (w[0] == "armed"), "armed", truth.armed)
	case "truth":
		mode, name := p.firmware.reported(truth.mode)
		_, o := p.call("GET", "/mode", "")
		return expect(o["mode"] == mode.String() && o["vehicle_mode"] == name, "the vehicle's mode "+name+", and the answer", o)
	case "done":
		return expect(p.status()["done"] == true, "done", p.status()["done"])
	case "status":
		return p.field(p.status(), w[1:])
	case "its":
		return p.field(p.answer, w[1:])
	case "at", "alt", "north", "east", "climb", "speed", "vn", "ve", "heading", "rose", "took", "past", "strayed":
		return p.measure(w, truth)
	}
	return p.checkWire(w, rest)
}

// field checks a field of an object: its value, or a bound with < or >.
func (p *player) field(o object, w []string) string {
	p.Helper()
	if len(w) < 2 {
		p.bad()
	}
	var v any = o
	for key := range strings.SplitSeq(w[0], ".") {
		group, _ := v.(object)
		v = group[key]
	}
	now := strings.Replace(fmt.Sprint(v), "<nil>", "null", 1)
	ok := now == strings.Join(w[1:], " ")
	if len(w) == 3 && (w[1] == "<" || w[1] == ">") {
		is, known := v.(float64)
		ok = known && p.bounded(is, w) == ""
	}
	if ok {
		return ""
	}
	return w[0] + " is " + now
}

// checkOverTime plays "until" and "stays".
func (p *player) checkOverTime(w []string) (wrong string) {
	p.Helper()
	if len(w) < 3 {
		p.bad()
	}
	if w[0] == "until" {
		limit := p.duration(w[len(w)-1])
		for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
			if wrong = p.check(w[1 : len(w)-1]); wrong == "" {
				return ""
			} else if time.Now().After(end) {
				p.Fatalf("wanted: %s\nseen:   %s", p.clause, wrong)
			}
		}
	}
	for end := time.Now().Add(p.duration(w[1])); time.Now().Before(end) && wrong == ""; time.Sleep(100 * time.Millisecond) {
		wrong = p.check(w[2:])
	}
	return wrong
}

// comesBack checks how far the vehicle comes back in 30 s from its furthest point to the
// north, to the south or up.
func (p *player) comesBack(w []string) string {
	p.Helper()
	if len(w) != 3 {
		p.bad()
	}
	along := func() float64 {
		s := p.sim.truth()
		n, _ := simMetres(s.lat, s.lon)
		return map[string]float64{"north": n, "south": -n, "up": s.alt}[w[0]]
	}
	from, height := along(), p.sim.truth().alt
	furthest := from
	p.strayed = 0
	for range 300 {
		time.Sleep(100 * time.Millisecond)
		p.strayed = max(p.strayed, math.Abs(p.sim.truth().alt-height))
		furthest = max(furthest, along())
	}
	p.past = furthest - from
	return p.bounded(furthest-along(), w)
}

// bounded checks a number by a clause: "x < 3", "x > 3" or "x 3 ±0.5".
func (p *player) bounded(is float64, w []string) string {
	p.Helper()
	ok := false
	switch bound := strings.TrimPrefix(w[2], "±"); w[1] {
	case "<":
		ok = is < p.number(bound)
	case ">":
		ok = is > p.number(bound)
	default:
		ok = math.Abs(is-p.number(w[1])) <= p.number(bound)
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("it is %.2f", is)
}

// fastest checks the highest speed over ground in a time.
func (p *player) fastest(w []string) string {
	most := 0.0
	for end := time.Now().Add(p.duration(w[0])); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		most = max(most, p.speed())
	}
	return p.bounded(most, w)
}

// sideways checks how far the vehicle flies sideways in a time, while it is below 2 m.
func (p *player) sideways(w []string) string {
	p.Helper()
	place := func() (n, e, up float64) {
		s := p.sim.truth()
		n, e = simMetres(s.lat, s.lon)
		return n, e, s.alt
	}
	n0, e0, _ := place()
	most := 0.0
	for end := time.Now().Add(p.duration(w[0])); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n, e, up := place(); up < 2 {
			most = max(most, math.Hypot(n-n0, e-e0))
		}
	}
	return p.bounded(most, w)
}

// measure checks where the vehicle is and how it moves.
func (p *player) measure(w []string, s simState) string {
	p.Helper()
	n, e := simMetres(s.lat, s.lon)
	if w[0] == "at" && len(w) >= 4 {
		within := 0.5
		if len(w) == 5 {
			within = p.number(strings.TrimPrefix(w[4], "±"))
		}
		for i, is := range []float64{n, e, s.alt} {
			if math.Abs(is-p.number(w[i+1])) > within {
				return fmt.Sprintf("it is %.1f m north, %.1f m east, %.1f m up", n, e, s.alt)
			}
		}
		return ""
	}
	if len(w) != 3 {
		p.bad()
	}
	if w[0] == "took" {
		w = []string{"took", w[1], fmt.Sprint(p.duration(w[2]).Seconds())}
	}
	is := map[string]float64{
		"alt": s.alt, "north": n, "east": e, "climb": -s.vd, "speed": math.Hypot(s.vn, s.ve), "vn": s.vn, "ve": s.ve, "heading": s.heading,
		"rose": s.alt - p.noted, "past": p.past, "strayed": p.strayed, "took": p.took.Seconds(),
	}
	return p.bounded(is[w[0]], w)
}

// checkWire checks what was answered, sent and streamed.
func (p *player) checkWire(w []string, rest string) string {
	p.Helper()
	failIf := func(wrong bool, what any) string {
		if wrong {
			return fmt.Sprint(what)
		}
		return ""
	}
	switch last, streams := p.streamed(); w[0] {
	case "says":
		words, not := strings.CutPrefix(rest, "not: ")
		text := fmt.Sprint(p.answer["error"])
		if not {
			text = fmt.Sprint(p.answer)
		}
		return failIf(strings.Contains(text, words) == not, text)
	case "messages":
		p.wantMessages(strings.Join(w[2:], " "), int(p.number(w[1])))
	case "hands", "sent":
		list, want := commandsOf(p.sim.received()[p.seen:]), rest
		if w[0] == "hands" {
			want = ""
		}
		return failIf(strings.Join(list, " | ") != want, list)
	case "streams":
		return failIf(!streams, "nothing is streamed")
	case "sticks":
		return failIf(!streams || last != p.axes(w[1:]), last)
	case "stream":
		got := p.stream(p.mark.Add(time.Millisecond))
		if rest == "nothing" {
			return failIf(len(got) > 0, got)
		}
		return failIf(!slices.Equal(got, []axes{p.axes(w[1:])}), got)
	case "sends":
		list := commandsOf(p.sim.received()[p.seen:])
		return failIf(!slices.Contains(list, rest), list)
	case "no":
		synctest.Wait()
		p.refused("/input", `{"pitch":1,"throttle":0.5}`, 409, "wrong_mode")
	default:
		p.bad()
	}
	return ""
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
		if took := time.Since(asked); took < answerWait || took > 2*answerWait { // for home, then for a report: both requests fail
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
		}{{idGPS, -1}, {idHUD, -1}, {idHome, -1}, {idPosition, time.Second}, {idAttitude, time.Second}, {idExtendedState, time.Second}} {
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
