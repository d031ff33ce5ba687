package main

import (
	"cmp"
	"fmt"
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
	clauses        map[string]func(*player)
	mark           time.Time
	seen           int // how many messages the vehicle received before the mark
	answer         object
	took           time.Duration
	posts          []*waiting // the posts whose answers the script has not checked yet
	acked          chan struct{}
	noted          float64 // the height at "note"
	past, strayed  float64 // in the last "comes back": metres to the furthest point, metres off the height
}

// flies plays each rule's script, in each of its variants, on each of its vehicles. clauses may be
// one map, of the clauses that only this test has.
func flies(t *testing.T, rules []rule, clauses ...map[string]func(*player)) {
	t.Helper()
	for _, r := range rules {
		for _, v := range variants(r.flight, 1) {
			head, script, found := strings.Cut(v.script, ": ")
			if !found {
				t.Fatalf("%s: no vehicle and colon before the script %q", r.name, v.script)
			}
			w := strings.Fields(head)
			vehicles := w[:1]
			if w[0] == "both" {
				vehicles = []string{"px4", "copter"}
			}
			for _, vehicle := range vehicles {
				name := strings.ReplaceAll(r.name+"/"+v.name+"/"+vehicle, "//", "/") // v.name may be ""
				t.Run(name, func(t *testing.T) {
					flavour, prepare := scriptVehicle(t, vehicle, w[1:])
					gcs := func(d *drone) { d.link.gcs = slices.Contains(w, "gcs") }
					flyWith(t, flavour, prepare, gcs, func(f *flight) {
						p := &player{flight: f}
						if len(clauses) > 0 {
							p.clauses = clauses[0]
						}
						p.plays(script)
					})
				})
			}
		}
	}
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

var scriptReceivers = map[string]simReceiver{"none": simReceiverNone, "lost": simReceiverLost, "idle": simReceiverIdle, "hand": simReceiverInHand}

// scriptVehicle returns a script's vehicle, and a function that makes its settings.
func scriptVehicle(t *testing.T, name string, has []string) (simFlavour, func(*simulator)) {
	t.Helper()
	flavour, known := map[string]simFlavour{
		"px4": simPX4, "copter": simArduPilot, "quadplane": simQuadPlane, "plane": simPlane,
		"px4-1.14": simPX4, "px4-1.15": simPX4, "px4-1.16": simPX4, "px4-1.17": simPX4,
	}[name]
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
			p.Errorf("%q of %q: %s", p.clause, p.script, wrong)
		}
	}
}

// bad ends a flight whose script can't be read.
func (p *player) bad() {
	p.Helper()
	p.Fatalf("no such clause: %q of %q", p.clause, p.script)
}

// does plays one clause. It returns what is wrong, or "".
func (p *player) does(w []string) string {
	p.Helper()
	if do, own := p.clauses[strings.Join(w, " ")]; own {
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
		p.posts[len(p.posts)-1].stillWaits(p.T)
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
			p.Fatalf("%q of %q: no ack; status %v", p.clause, p.script, p.status())
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
		p.Fatalf("%q of %q: no answer in %v; status %v", p.clause, p.script, limit, p.status())
	}
	p.answer, p.took = post.answer, post.answered.Sub(post.asked)
	switch code, _ := p.answer["code"].(string); {
	case w[0] != "any" && cmp.Or(code, "ok") != w[0]:
		p.Errorf("%q of %q: answered %d %v", p.clause, p.script, post.code, p.answer)
	case code != "":
		post.want(p.T, errorStatus[errorCode(code)], code)
	case p.answer["done"] != nil:
		post.want(p.T, 200, "")
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
				p.Fatalf("%q of %q: %s; truth %+v", p.clause, p.script, wrong, p.sim.truth())
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

// An answer says why a command was not carried out (docs/design.md, "Reasons").
func TestARefusalNamesItsReason(t *testing.T) {
	flies(t, []rule{
		{"NAV_DLL_ACT, where PX4 has no ground station", "px4 NAV_DLL_ACT={1|2|3}: refused refused takeoff, says NAV_DLL_ACT is $1: PX4 arms only while it hears a ground station, +6s, refused refused arm, says NAV_DLL_ACT is $1: PX4 arms only while it hears a ground station"},
		{"NAV_DLL_ACT only where it stands in the way", "px4 {NAV_DLL_ACT=2: fails DO_SET_MODE, refused refused mode hold|gcs NAV_DLL_ACT=2 armable=1h: refused refused arm}, says not: NAV_DLL_ACT"},
		{"no parameter, where none is the reason", "px4 armable=1h: refused refused takeoff, says Resolve system health failures first, says not: NAV_DLL_ACT, says not: COM_RC_IN_MODE"},
		{"a text that came after the command, once, and not an earlier one", "both: text PreArm: Compass not calibrated, +1s, fails COMPONENT_ARM_DISARM, mark, post arm, until sent 400 1 0 5s, +100ms, text Arm: Battery 1 is too low: it has less than 14.4 V, text Arm: Battery 1 is too low: it has less than 14.4 V, answer refused 2s, says Arm: Battery 1 is too low: it has less than 14.4 V, says not: V; Arm, says not: Compass, says not: unhealthy"},
		{"the unhealthy systems where there is no text", "px4 trouble=BATTERY: fails DO_SET_MODE, refused refused mode hold, says unhealthy:, says battery, says not: rc_receiver, receiver hand, +2s, receiver lost, +2s, refused refused mode hold, says rc_receiver, recovers, fails COMPONENT_ARM_DISARM, refused refused disarm, says not: unhealthy"},
		{"PX4's fence, whose text comes after the ack", "px4 fence=50: aloft, post goto 100 0 wait 100, answer interrupted, says the autopilot says:, says Reposition is outside geofence, says not: unhealthy"},
		{"a failsafe's text", "both: aloft, post goto 300 0 wait 100, +5s, text Old, +200ms, text Battery failsafe, +900ms, failsafe, +400ms, text Low voltage, answer interrupted, says RTL, says the autopilot says: Battery failsafe, says Low voltage, says not: Old"},
		{"no text that came over 0.5 s after an interruption, and no info", "{both: aloft, only acks, post mode rtl, +100ms, pilot altitude, +700ms, text Too late→Too late|px4: post takeoff 40 wait 60, until armed 5s, +100ms, pilot altitude→Armed}, answer interrupted, says not: $1"},
		{"a goto or a landing at a place on the ground, where both autopilots drop a goto that they acknowledge", "both: mark, refused refused {goto|land} 10 0, says take off, its status null, hands off"},
		{"a hold that PX4 or a plane is sent as a goto", "{px4: aloft, goto altitude 90|plane: takeoff, until alt > 20 60s}, fails DO_REPOSITION, refused refused mode hold, says refused the hold, refused refused goto altitude 80, says refused the goto"},
		{"a disarming in the air", "both: aloft, refused refused disarm, says arm: the vehicle is in the air; land first"},
		{"a takeoff that can't arm, and the mode that the vehicle is left in", "both armable=1h: refused refused takeoff, its command 400, says refused arming, not its messages [], in hold, disarmed, copter? says ; the vehicle is in GUIDED, copter? stays 8s is hold, px4? stays 8s is manual"},
		{"the pilot after his mode, but not after the client's own mode", "both: aloft, pilot rtl, +2s, refused wrong_mode input, says a pilot, says took the drone, goto 40 0, refused wrong_mode input, says input: the drone is in mode hold; set manual"},
		{"the parameter by which PX4 ignores our sticks", "px4 COM_RC_IN_MODE={0|4}: refused unsupported mode position, says COM_RC_IN_MODE is $1, aloft, refused unsupported mode {position|altitude|manual}, says COM_RC_IN_MODE is $1, refused wrong_mode input roll 0.1 throttle 0.5, says COM_RC_IN_MODE is $1, says not: set mode, says not: set manual"},
	})
}

func TestATakeoffIsAcceptedAsSoonAsTheStatusSaysArmable(t *testing.T) {
	flies(t, []rule{
		{"after a boot, though ArduPilot arms in STABILIZE long before", "both armable=42s: until status armable true 60s, takeoff 10 wait 60"},
		{"a Copter without a receiver", "copter receiver=none: until status armable true 60s, takeoff wait 60"},
		{"PX4 after a flight that ended in a stick mode", "px4: aloft, mode position, land wait 60, +15s, in POSCTL, status armable true, trouble BATTERY, until status armable false 5s, trouble none, until status armable true 5s, takeoff"},
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
	flies(t, []rule{{"sends these commands", "both: is manual, takeoff, its mode takeoff, its status accepted, is takeoff, +15s, is takeoff, at 0 0 10 ±0.4," +
		"goto 20 0 altitude 15 heading 0, is hold, +15s, is hold, at 20 0 15 ±0.4," +
		"mode position, is position" + strings.Repeat(", input pitch 0.5, +200ms", 20) + ", +3s, north > 24, speed < 0.2, alt > 14.5, alt < 15.5, is position," +
		"land 5 5, is land, +3s, is land, alt > 14, until disarmed 90s, +5s, is land, at 5 5 0 ±2, the wire"}},
		map[string]func(*player){"the wire": func(p *player) {
			got := p.commands()
			for i, c := range got { // the height was measured, and varies
				got[i] = strings.NewReplacer("z 503.2", "z 503.3", "z 503.4", "z 503.3", "z 14.9", "z 15.0", "z 15.1", "z 15.0").Replace(c)
			}
			if want := wire[p.firmware]; !slices.Equal(got, want) {
				p.Errorf("sent\n%q\nwant\n%q", got, want)
			}
		}})
}

// These flights show what follows a client's sticks (docs/design.md, "Who has the sticks").
func TestAfterAClientsSticks(t *testing.T) {
	flies(t, []rule{
		{"a command stays in force, and no failsafe follows", "both: aloft, mode position, input pitch 1 roll -1 timeout 5, +300ms, {goto 20 0→hold|mode hold→hold|mode rtl→rtl|mode rtgs→rtgs|land 0 0→land|land→land}, +4s, is $1, status failsafe false"},
		{"in position mode a centred stream holds the drone when the client falls silent", "both: aloft, goto altitude 40 wait 60, mode position, input pitch 0.3, +1450ms, sticks 0 0 500 0, +25s, is position, sticks 0 0 500 0, speed < 0.2, alt > 38.5, status failsafe false"},
		{"in altitude and manual mode mavrest commands a hold, and says so", "both: aloft, goto altitude 40 wait 60, mode {altitude|manual}, mark, input pitch 0.3 throttle 0.5, +450ms, steady, +1s, sticks 0 0 500 0, +1510ms, is $1, +3s, is hold, messages 1 mavrest: no sticks from the client for 3 s: holding, +20s, speed < 0.2, alt > 38.5, status failsafe false"},
		{"the sticks are centred when they expire", "both: aloft, mode altitude, input pitch 1 timeout {0.05→50ms|4.9→4900ms|5→5s}, +$1, +1ms, mark, +10s, centred, is hold"},
		{"an arming in a stick mode begins the stream again", "both: mode position, +8s, not streams, arm, streams"},
		{"a command out of a stick mode ends the client's sticks", "copter receiver={idle→not streams|none→sticks 0 0 500 0}: hover, mode position, input pitch 0.5 timeout 5, +1s, mode hold, +200ms, $1"},
		{"the stream ends where the vehicle is disarmed outside a stick mode", "both receiver=none: aloft, mode position, mode hold, +1s, streams, pilot disarms, +500ms, not streams"},
		{"lost heartbeats after an arming do not change when a constant throttle expires", "both: mode position, arm, heartless 2500ms, input throttle 1 timeout 1.5, +1600ms, mark, +800ms, stream 0 0 500 0"},
	}, map[string]func(*player){
		"steady": func(p *player) {
			if n := len(p.sticksSince(p.mark)); n < 10 {
				p.Errorf("%d stick messages in 0.45 s, want 25 a second", n)
			}
		},
		"centred": func(p *player) {
			if list := p.stream(p.mark); len(list) == 0 || slices.ContainsFunc(list, func(a axes) bool { return a.x != 0 && a.x != math.MaxInt16 }) {
				p.Errorf("streamed %v", list)
			}
		},
	})
}

// These flights show what ends the way to a landing's place (docs/design.md, rule 8).
func TestTheWayToALanding(t *testing.T) {
	flies(t, []rule{
		{"goes on when a client arms, or a request is refused", "both: aloft, land 40 0, +2s, {arm|refused refused disarm|bad}, is land, until disarmed 90s, is land, at 40 0 0 ±2"},
		{"goes on during an arming that is not acknowledged", "both: aloft, land 40 0, +2s, loses COMPONENT_ARM_DISARM, refused no_ack arm, recovers, is land, until disarmed 90s, is land, at 40 0 0 ±2"},
		{"is ended by a goto, though the goto is refused", "both: aloft, post land 40 0 wait 100, +2s, fails DO_REPOSITION, refused refused goto 0 60, answer superseded, +60s, is hold, at 40 0 10 ±2"},
		{"is ended by a goto that is flown and not acknowledged", "both: aloft, land 60 0, +2s, loses DO_REPOSITION, refused no_ack goto 0 60, +40s, is hold, at 0 60 10 ±1, status target.distance < 1"},
		{"is ended by a goto that a refused command supersedes", "both: aloft, land 60 0, +2s, delay 150ms, post goto 0 60, +50ms, fails COMPONENT_ARM_DISARM, refused refused arm, answer superseded, says not: before it, +40s, is hold, at 0 60 10 ±1, status target.distance < 1"},
		{"is ended by a pilot who goes back to the mode before the landing", "both: aloft, mode position, +4s, land 200 0, fails COMPONENT_ARM_DISARM, refused refused arm, recovers, +2s, receiver idle, pilot position, +1100ms, is position, mark, +60s, is position, hands off"},
		{"is given up with a message where PX4's fence forbids it", "px4 fence=50: aloft, post {land→1|goto→0} 100 0 wait 100, answer interrupted, messages $1 mavrest: the landing at the place was given up"},
		{"is tried again each second where the landing is refused", "both: aloft, fails DO_SET_MODE, land 10 0, until not hands off 60s, until at 10 0 10 ±2 60s, +5s, mark, +2900ms, px4? sent 176 1 4 | 176 1 4 | 176 1 4, copter? sent 176 1 9 | 176 1 9 | 176 1 9"},
		{"ends on the ground though no command is acknowledged", "both: aloft, land 10 0, loses everything, until disarmed 90s, +5s, mark, +60s, hands off"},
		{"is reported as land also after a refused arming", "both: aloft, mode position, +{1s..1800ms/200ms}, land 40 0, bad, nacks COMPONENT_ARM_DISARM, refused refused arm, recovers, stays 7s is land, until disarmed 200s, at 40 0 0 ±2"},
	}, map[string]func(*player){
		"bad": func(p *player) { p.refused("/goto", `{"lat":1}`, 422, "out_of_range") },
		"loses everything": func(p *player) {
			p.sim.change(func() { p.sim.onAck = func(*common.MessageCommandAck) []simAnswer { return nil } })
		},
	})
}

func TestTheModeOfAnAcceptedOrUnansweredCommandShows(t *testing.T) {
	flies(t, []rule{
		{"an accepted mode still shows after a refused arming", "both: aloft, mode position, +{1s..1800ms/200ms}, {mode rtgs→rtgs|goto 200 0→hold}, nacks COMPONENT_ARM_DISARM, refused refused arm, recovers, stays 7s is $2"},
		{"an accepted takeoff still shows after a refused arming", "both: +{1s..1800ms/200ms}, takeoff 40, nacks COMPONENT_ARM_DISARM, refused refused arm, recovers, stays 7s is takeoff"},
		{"in the air an accepted mode stays when its arming is refused", "both: aloft, mode manual, land, nacks COMPONENT_ARM_DISARM, refused refused mode hold arm true, is hold, truth"},
		{"a disarming in the air is refused before the mode is set", "both: aloft, goto 60 0, mark, refused refused mode hold arm false, hands off"},
		{"a goto that was flown and not acknowledged shows its target", "both: aloft, mode position, +1100ms, loses DO_REPOSITION, refused no_ack goto 30 0, is hold, +100ms, status target.distance > 22, status target.distance < 38"},
		{"a goto's target is its own, though PX4 reports the last target for 0.6 s more", "both: aloft, goto 30 0 wait 60, goto 60 0, stays 1500ms status target.distance > 10"},
		{"a damaged clock ends nothing", "both: aloft, mode position, input roll 0.1 timeout 5, +1s, clock {3|4000000000}, +200ms, is position, status input.by client, streams, post goto 60 0 wait 60, +5s, clock $1, answer ok"},
	}, map[string]func(*player){
		"clock 3":          func(p *player) { p.sim.change(func() { p.sim.send(attitudeAt(3)) }) },
		"clock 4000000000": func(p *player) { p.sim.change(func() { p.sim.send(attitudeAt(4_000_000_000)) }) },
	})
}

// A pilot's mode shows on a vehicle that refuses to send live reports, and on a vehicle that
// forgot the request for them.
func TestAPilotShowsWithoutLiveReports(t *testing.T) {
	begins := "takeoff wait 60, goto 30 0 wait 60, mode rtl, is rtl, goto 60 0, is hold, "
	shows := strings.Repeat("+1237ms, pilot manual, +250ms, is manual, mode hold, is hold, ", 10)
	flies(t, []rule{
		{"the vehicle refuses to send them", "both live=no: " + begins + shows + "land wait 60, disarmed"},
		{"the vehicle forgot the request", "both: " + begins + "forgets, +1600ms, asked again, " + shows + "land wait 60, disarmed"},
	}, map[string]func(*player){
		"forgets": func(p *player) {
			p.mark = time.Now()
			p.sim.change(func() {
				if b, ok := p.sim.brain.(*simPX4Brain); ok {
					b.every = -1
					return
				}
				p.sim.streamOn(false, 0, time.Second)
			})
		},
		"asked again": func(p *player) {
			if p.asksForStreams(p.mark) == 0 {
				p.Error("it was not asked for live reports again")
			}
		},
	})
}

// Several clients command at once, on lines so slow that the next command begins before the
// last one is answered (docs/design.md, rules 5 and 6).
func TestOneCommandAtATime(t *testing.T) {
	flies(t, []rule{
		{"an arming that waits its turn does not count as the newest command", "copter: aloft, mode position, +1s, slow 300ms, nacks CONDITION_YAW, post goto 60 0 heading 90, +{650ms|800ms|1s|1300ms}, post arm, +20ms, {land|mode altitude}, truth, answer any 5s, answer any 5s, truth"},
		{"a hold ends a goto that is not answered yet", "both: aloft, mode position, slow 150ms, post goto 200 0, until in hold 5s, mode hold wait 60, answer any 1s, +20s, is hold, at 0 0 10 ±12"},
		{"after a refused command the mode of the command before it shows", "both: aloft, mode position, slow 150ms, +2s, mark, post goto 200 0, until not hands off 5s, refused refused disarm, answer any 1s, +1200ms, truth, no input"},
		{"an accepted step ends the last manoeuvre, though the next step is refused", "copter: aloft, post goto 200 0 wait 60, +5s, accepts only BRAKE, refused refused mode hold, answer superseded 1ms, status mode hold, status done null"},
		{"another client's disarming ends a takeoff's wait", "both: post takeoff 40 wait 60, until armed 10s, +300ms, disarm, answer interrupted 2s"},
		{"a takeover in the last step ends a command that led to another mode, with a wait and without one", "copter: aloft, slow 150ms, {a switch at the yaw, post goto 60 0 heading 90→interrupted|a switch at the arming, post mode rtl arm true→interrupted|a switch at the arming, post arm→ok}{| wait 60}, answer $1 5s"},
		{"a goto's speed ends with the goto, also when it is not acknowledged", "copter: aloft, goto 10 0, +10s, loses DO_CHANGE_SPEED, refused no_ack goto 100 0 speed 2, recovers, +5s, goto 200 0, +10s, speed > 3"},
		{"a goto's speed ends with the goto, also when the goto is superseded", "copter: aloft, goto 10 0, +10s, slow 300ms, mark, post goto 100 0 speed 2, until sends 178 1 2 5s, goto 200 0, answer any 1s, +10s, speed > 3"},
		{"a disarming is answered by its own ack while mavrest disarms after a failed takeoff", "copter: delay 20ms, +3s, post takeoff, +{70ms|80ms|90ms|100ms|120ms}, loses COMPONENT_ARM_DISARM 1, disarm, answer any 5s"},
		{"a takeoff waits for the disarming before it", "both: arm, delay 100ms, post {disarm|mode hold arm false}, +20ms, takeoff, is takeoff, answer any 1s"},
		{"a goto that waits is interrupted by a disarming, not refused", "copter: hover, slow 300ms, post mode hold, +20ms, post goto 60 0, +20ms, pilot disarms, answer any, answer interrupted"},
		{"a landing at a place is answered by its own ack after a goto whose ack was lost", "both: aloft, loses DO_REPOSITION 1, goto 60 0, land 20 0 wait 120, its done true, at 20 0 0 ±2"},
		{"a report proves a second landing after one whose ack was lost", "px4: aloft, loses DO_SET_MODE 1, land, land, is land"},
		{"a mode that was just refused to a client is a takeover when a pilot sets it", "both: aloft, post land 30 0 wait 100, until north > {26|26.5|27|27.25|27.5} 60s, fails DO_SET_MODE, refused refused mode position, recovers, copter? receiver hand, pilot position, reported, +2ms, truth, +12s, hands off, truth"},
		{"no late report counts as ours after a pilot's switch while an arming waits", "copter receiver=hand: hover, mode position, +1s, slow 300ms, nacks CONDITION_YAW, post goto 60 0 heading 90, +{850ms..1s/50ms}, post arm, +30ms, pilot RTL, +2200ms, answer any 5s, answer any 5s, no report is claimed"},
	}, map[string]func(*player){
		"accepts only BRAKE": func(p *player) {
			p.acks(common.MAV_CMD_DO_SET_MODE, func(a *common.MessageCommandAck) []simAnswer {
				p.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true
				return []simAnswer{{ack: a}}
			})
		},
		"a switch at the yaw":    func(p *player) { p.pilotSwitchesAt(common.MAV_CMD_CONDITION_YAW) },
		"a switch at the arming": func(p *player) { p.pilotSwitchesAt(common.MAV_CMD_COMPONENT_ARM_DISARM) },
		"no report is claimed": func(p *player) {
			p.drone.mu.Lock()
			defer p.drone.mu.Unlock()
			if sent := p.drone.machine.sent; sent != nil {
				p.Errorf("modes %v are still expected after a pilot's switch", sent)
			}
		},
	})
}

// pilotSwitchesAt makes a pilot switch to LOITER 0.1 s before a command's ack comes.
func (p *player) pilotSwitchesAt(id common.MAV_CMD) {
	p.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		p.sim.after(0, func() { p.sim.enter(simLoiter); p.sim.send(p.sim.brain.message(0)) })
		return []simAnswer{{ack: a, after: 100 * time.Millisecond}}
	})
}

// A part of each command is refused or not answered (docs/design.md, rule 7).
func TestWhatRemainsInForceOfACommandThatFailed(t *testing.T) {
	const goes = "copter: aloft, post {goto|land} 40 0 wait 60, +2s, "
	flies(t, []rule{
		{"the goto flies on without its speed", goes + "fails DO_CHANGE_SPEED, refused refused goto 0 60 speed 3{| heading 200}, says it flies there at its own speed: the speed was refused, recovers, answer superseded 1s, is hold, +60s, is hold, at 0 60 10 ±2, done"},
		{"the goto flies on without its heading", goes + "fails CONDITION_YAW, refused refused goto 0 60{| speed 3} heading 200, says it flies there with a heading of its own: the heading was refused, recovers, answer superseded 1s, is hold, +60s, is hold, at 0 60 10 ±2, done"},
		{"the answer names the failsafe's return that was ended", "px4: aloft, goto 60 0, +12s, failsafe, +3s, fails DO_REPOSITION, refused refused goto 30 30, says ; the failsafe's AUTO.RTL was ended; the vehicle is in AUTO.LOITER, +3s, in AUTO.LOITER"},
		{"a mode that PX4 acknowledged but never reported ends the way to a landing", "px4: aloft, land 60 0, +2s, only acks, refused no_ack mode position, recovers, is hold, status done null, +60s, is hold"},
		{"the answer names POSCTL, into which PX4 went before mavrest refused the plan", "px4: aloft, mode altitude, input pitch 0.3 timeout 5, +1s, stops 33, +1500ms, refused refused goto heading 90, says ; the vehicle is in POSCTL"},
		{"a takeoff that is refused disarms what it armed", "both: fails NAV_TAKEOFF, {nacks→refused|unknowns→unsupported} NAV_TAKEOFF, refused $1 takeoff, sends 400 0 0, disarmed"},
		{"a takeoff on PX4 is answered when its mode is reported", "px4: aloft, goto 10 0, +10s, takeoff {40|12}, status vehicle_mode AUTO.TAKEOFF"},
		{"a takeoff that ends at once is answered by the mode in which it ends", "px4 live=no: aloft, mode position, +3s, takeoff 10.5, in AUTO.LOITER"},
		{"the answer says where the vehicle stays armed", "copter: mode hold, stops 245, +4s, fails NAV_TAKEOFF, refused refused takeoff, says ; the vehicle is in GUIDED, armed"},
		{"the answer says that the vehicle is armed where it could not be disarmed", "px4: mode hold, +1s, fails NAV_TAKEOFF, watch COMPONENT_ARM_DISARM 1, post takeoff, acked, fails COMPONENT_ARM_DISARM, answer refused, says ; the vehicle is in AUTO.LOITER, armed"},
		{"a takeoff is interrupted where PX4 has just disarmed itself", "px4: mode hold, arm, until disarmed 20s, refused interrupted takeoff, takeoff wait 60"},
		{"PX4 lands though it refuses POSCTL on the way out of a stick mode", "px4: aloft, mode {manual|altitude}, input pitch 0.1 throttle 0.5 timeout 1, +300ms, forbids POSCTL AUTO.LOITER, {land|+15s}, is land"},
		{"the way to a landing is flown at the height at which the sticks came to rest", "px4: aloft, mode position, input throttle 1 timeout 5, +3s, land 60 0, note, +4s, kept 0.3"},
		{"a goto without a height ends a takeoff, and keeps its height", "{both|quadplane Q_GUIDED_MODE=1}: takeoff 30, until alt > 1 20s, {goto|land} 200 0, +25s, alt 30 ±1.5"},
		{"a goto that only turns ends a takeoff too, and keeps its height", "both: {takeoff 30, until alt > 1 20s|aloft, goto altitude 30, +1s}, goto heading 90, +1s, goto heading 180, +25s, at 0 0 30 ±1"},
		{"a fixed wing's goto keeps the height that its takeoff climbs to", "plane: takeoff, until alt > 5 30s, goto 300 0, +40s, alt 50 ±5"},
		{"a goto without a place keeps the present place", "px4: aloft, mode {position|altitude}, input pitch 1 throttle 0.5 timeout 5, +4s, goto heading 90, comes back north < 6"},
		{"the refusal of an arming in LAND or RTL says what to post", "copter: aloft, {land→LAND|mode rtl→RTL} wait 100, refused refused arm, says $1 mode not armable; it does not arm in $1: set another mode with it, says {\"mode\":\"hold\", fails DO_SET_MODE, refused refused mode position, says not: arm, recovers, mode hold arm true"},
		{"stopped, mavrest answers that the drone may be doing what was sent", "both: delay 20ms, +3s, mark, post takeoff, until sends 400 1 0 5s, stop, answer no_ack, says was sent before; nothing more was sent"},
		{"a stick mode is accepted while a parked stream is off centre", "px4: mode position, aloft, slow {0s|50ms|150ms|300ms}, mode altitude{| arm true}"},
	})
}

// In each of these flights the vehicle would fall, or fly without a pilot, if mavrest were wrong
// about who has the sticks (docs/design.md, "Who has the sticks").
func TestNoVehicleFallsOrFliesWithoutAPilot(t *testing.T) {
	flies(t, []rule{
		{"a stick mode that was never answered keeps its stream", "copter: hover, silent {2600ms|4s}, refused no_ack mode position, +4s, is position, +6s, alt > 18, streams"},
		{"a stick mode that shows 5 s after its last copy is still the client's", "copter: hover, silent 6s, refused no_ack mode position, +4500ms, input pitch 0.1, is position"},
		{"a stick mode that a refused goto superseded keeps its stream", "copter: hover, slow 200ms, fails DO_REPOSITION, entering {manual|altitude|position}, refused refused goto 50 0, answer any 10s, +1s, is $1, +10s, alt > 15"},
		{"a silent client gets a hold in a stick mode that a refused goto superseded", "copter: hover, slow 200ms, fails DO_REPOSITION, entering {manual|altitude}, refused refused goto 50 0, recovers, answer any 10s, +15s, in hold"},
		{"a silent client gets a hold in an unanswered stick mode that shows during a refused plan", "copter: hover, silent {2100ms|2500ms|3s|3500ms}, refused no_ack mode {altitude|manual}, recovers, fails DO_REPOSITION, fails DO_SET_MODE, post {goto 50 0 altitude 20|mode position}, answer any, recovers, +15s, in hold"},
		{"a silent client's hold ends where the vehicle is disarmed before its last step", "both: aloft, mode altitude, input pitch 0.3 timeout 0.2, px4? until in POSCTL 10s, copter? until in BRAKE 10s, +{1ms|30ms}, pilot disarms, +10s, hands off"},
		{"the stream of an unanswered stick mode that the vehicle never enters ends", "copter: hover, fails DO_SET_MODE, loses DO_SET_MODE, refused no_ack mode position, +8s, not streams"},
		{"a stick mode after a refused one has its stream", "copter: hover, fails DO_SET_MODE, refused refused mode position, recovers, mode {manual|altitude}, +3s, alt > 17"},
		{"a stick mode after an unanswered one has its stream", "copter: hover, fails DO_SET_MODE, loses DO_SET_MODE, refused no_ack mode position, recovers, delay 200ms, +{4400ms..5s/100ms}, mode manual, +3s, alt > 17"},
		{"when an older unanswered mode is given up the sticks are not released", "copter: hover, fails DO_SET_MODE, loses DO_SET_MODE, refused no_ack mode position, recovers, delay 200ms, +{4500ms..4950ms/50ms}, fails DO_REPOSITION, entering manual, refused refused goto 50 0, answer any 10s, +10s, alt > 15"},
		{"sticks of ours that a slow line reports late are not read as the receiver's", "copter receiver=hand: hover, slow {0s|60ms|150ms}, mode position, input throttle 0.2 timeout 3, +{1s..1200ms/50ms}, pilot sticks 0 300 500 0, pilot ALT_HOLD, +3s, not streams"},
		{"a stick mode that follows at once does not read our sticks as the receiver's", "copter receiver=idle: hover, slow {0s|150ms}, mode position, input throttle 0.8 timeout 3, +{500ms..1s/50ms}, mode hold, +300ms, mode position, +1s, streams"},
		{"a receiver in hand gets the sticks back after many short inputs", "copter receiver=hand: hover, mode position, +3s" + strings.Repeat(", input throttle 0.3 timeout 0.3, +420ms", 20) + ", +3s, not streams"},
		{"a landed state that stops coming is unknown, and requested again", "both: mode altitude, arm, stops 245" + strings.Repeat(", input throttle 1, +200ms", 15) + ", status landed_state null, status in_air null, +4s, alt > 5, until status landed_state in_air 20s"},
		{"a position that stops coming is requested again", "both: aloft, land 60 0, +2s, stops 33, stops 1, until disarmed 180s, at 60 0 0 ±2"},
		{"a Copter that restarts in the air keeps its stream", "copter receiver={idle|none}: hover, mode position, +2s, restart, +20s, alt > 18, status failsafe false"},
		{"the pilot of a Copter that restarts in the air gets his sticks", "copter receiver={hand|idle}: hover, mode position, +2s, input pitch 0.1 timeout 5, restart" + strings.Repeat(", post input pitch 0.1 timeout 1, answer any, +200ms", 60) + ", +5s, receiver hand, pilot sticks 0 300 500 0, pilot switch 1100 ALT_HOLD, +5s, not streams"},
		{"a failsafe of a disarmed vehicle takes nobody's sticks", "copter: mode position, is in a failsafe, +2s, status failsafe true, input pitch 0.1"},
		{"a mode that a pilot sets on the ground shows on a Copter", "copter: mode position, +1s, pilot {STABILIZE|ALT_HOLD}, +1500ms, truth, no input, +20s, truth"},
		{"a mode that a pilot sets on the ground shows on PX4", "px4: mode position, +1s, pilot {MANUAL|ALTCTL|STABILIZED}, +1500ms, truth, no input, +20s, truth"},
		{"a receiver in hand is heard before our first stick", "copter receiver=hand: hover, stop, +{5s..5480ms/20ms}, start, +2s, mode position, +1s, not streams"},
		{"the client of a Copter that restarts in the air may take the sticks back at once", "copter: hover, mode position, +2s, restart, until status input.by mavrest 5s, mode altitude, took < 2s, input throttle 0.6 timeout 2, +1s, status input.by client"},
		{"an input is refused until the receiver is known, or until SYS_STATUS has not come for seconds", "copter: stop, {|stops 1, fails SET_MESSAGE_INTERVAL, }start, until status online true 5s, refused wrong_mode input throttle 0, says not known yet, +6s, input throttle 0"},
		{"an arming starts no stream before the receiver is known", "both receiver=hand: {pilot position→arm|pilot hold→takeoff|copter? hover, pilot position→arm}, +1s, stop, +2s, start, until status online true 5s, mark, post $1, answer any, +1s, stream nothing"},
		{"a receiver in hand is heard before our first stick on PX4", "px4 receiver=hand: restart grounded, +{3s..3900ms/100ms}, post mode position, answer any, refused wrong_mode input pitch 1"},
		{"on PX4 input is refused until it is known whose sticks count", "px4 receiver=hand: restart grounded, +1500ms, refused wrong_mode input throttle 0, +20s, aloft, mode altitude, refused wrong_mode input pitch 0.5 timeout 2, pilot sticks 0 300 500 0, +10s, hands off"},
		{"a handshake in the air forgets no parameter, and a lost link no version", "copter receiver=none SYSID_MYGCS=250: hover, mode position, +2s, stops 245, +4600ms, {mute, +2s|fails REQUEST_MESSAGE, mute, +4s}, unmute, +3s, in LOITER, status failsafe false, not status vehicle.version null"},
		{"a failsafe on the way out of a pilot's stick mode does not give a client the sticks", "px4: takeoff, +25s, mode altitude, +1s, pilot MANUAL, slow 200ms, no input, entering rtl, +{0s|100ms|250ms|500ms|1s|2200ms|2500ms}, is in a failsafe, answer any 60s, +1s, no input"},
		{"a QuadPlane is not commanded as a plane before its type is known", "quadplane Q_GUIDED_MODE=1: takeoff 20, +20s, mode position, +2s, receiver hand, stop, +5s, pilot QLOITER, +1s, param Q_GUIDED_MODE 0, delay {0s|200ms}, stops 245{|, fails SET_MESSAGE_INTERVAL}, start, until status online true 5s, post mode {manual|altitude|hold|rtl}, answer any, +5s, it hovers"},
		{"a QuadPlane is not refused as a plane, and not commanded before it says that it is one", "quadplane: mode altitude arm true, stop, stops 245, start, until status online true 5s, land, stop, stops 245, fails SET_MESSAGE_INTERVAL, fails REQUEST_MESSAGE, start, until status online true 5s, refused offline mode hold, says whether it is a QuadPlane, hands off, disarm"},
	}, map[string]func(*player){
		"is in a failsafe": func(p *player) { p.sim.change(func() { p.sim.failsafe = true }) },
		"it hovers": func(p *player) {
			onTheWing := []uint32{0, 6, simPlaneGuided, simPlaneRTL, simPlaneTakeoff} // 0: MANUAL, 6: FBWB
			mode, code := p.sim.truth().mode, p.answer["code"]
			if code == "no_ack" || code == nil && slices.Contains(onTheWing, mode) {
				p.Errorf("%v; it is in mode %d at %.0f m/s", p.answer, mode, p.speed())
			}
		},
	})
}

func TestTheHoldAtSIGTERM(t *testing.T) {
	flies(t, []rule{
		{"holds a vehicle that just entered a stick mode", "copter: hover, slow {0s→0s|100ms→30ms}, entering {manual|altitude|position}, +$1, stop, +6s, alt > 18"},
		{"lands where a hold is refused", "copter: hover, mode manual, input throttle 0.45 timeout 5, +1s, forbids GUIDED BRAKE, stop, +3s, climb > -3, in LAND"},
		{"is given up after a second", "copter: hover, mode altitude, +1s, deaf, stop, +900ms, streams, +350ms, not streams"},
		{"holds on a slow line", "copter receiver={idle|hand|none}: hover, mode position, slow {300ms|450ms|600ms}, input pitch 0.3 timeout 5, +1s, stop, +1s, held"},
	}, map[string]func(*player){"held": func(p *player) {
		if s := p.sim.truth(); s.mode != simArduGuided && s.mode != copterBrake { // without a receiver a failsafe follows later
			p.Errorf("%.1f m up, mode %d", s.alt, s.mode)
		}
	}})
}

func TestAPortThatComesBack(t *testing.T) {
	flies(t, []rule{
		{"no command is sent after a pilot's switch", "both: aloft, mode hold, +{3s..3900ms/100ms}, unplug, +1ms, post goto 60 0, +300ms, pilot rtl, plug, answer any 10s, hands off, until status online true 10s, mode hold"},
		{"a landing is sent though the vehicle does not answer", "both: aloft, mode hold, +3s, {unplug, +1ms, post land, +200ms, mute, plug|slow 30ms, mute, +300ms, post land, +95ms, unplug, +20ms, plug, +300ms}, +1300ms, unmute, answer any 10s, +10s, in land"},
		{"no goto is sent while the vehicle does not answer", "both: aloft, mode hold, +3s, unplug, +1ms, post goto 30 0, +200ms, mute, plug, answer no_ack 3s, hands off"},
		{"no landing is sent after a pilot's switch", "both: aloft, mode hold, +3s, unplug, +1ms, post land, +300ms, pilot rtl, plug, answer interrupted 10s, hands off"},
		{"no landing is sent while the port is away and a number is kept", "px4: aloft, heartless 5s, pilot POSCTL, +20ms, unplug, refused offline land"},
		{"the answer says no_ack where an earlier step was sent", "copter: delay 20ms, +3s, watch DO_SET_MODE 1, post takeoff, acked, +{25ms|40ms}, unplug, answer no_ack 5s, says arming was not sent"},
		{"a dead line does not make home's height unknown", "px4: aloft, {mute→no_ack|unplug→offline}, refused $1 goto 60 0 altitude 20"},
		{"copies of a command are 20 ms apart", "both: slow 60ms, aloft, mode hold, +3s, unplug, +1ms, post mode rtl, +300ms, plug, answer any 10s, copies are apart"},
	}, map[string]func(*player){"copies are apart": func(p *player) {
		var last time.Time
		for _, r := range p.sim.received()[p.seen:] {
			if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_SET_MODE {
				if r.at.Sub(last) < 20*time.Millisecond {
					p.Errorf("copies %v apart", r.at.Sub(last))
				}
				last = r.at
			}
		}
	}})
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

func TestNewestCommandWins(t *testing.T) {
	crowd := "both: aloft, delay 300ms" // a slow line, so that commands wait for their acks while others come
	for i := range 10 {
		crowd += fmt.Sprintf(", +10ms, post goto %d 0 altitude 20", 10*i)
	}
	flies(t, []rule{
		{"a landing does not wait for a goto that is not acknowledged", "px4: aloft, loses DO_REPOSITION, post goto 60 0, +1s, land, took < 501ms, its command 176, its mode land, answer superseded, is land"},
		{"the newest of ten gotos is flown", crowd + strings.Repeat(", answer superseded", 9) + ", answer ok, +60s, at 90 0 20"},
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
	m := &manoeuvre{request: hold, at: now, over: make(chan struct{})}
	d.online, d.machine.last.armed, d.cmd.manoeuvre = true, true, m
	d.watch(now.Add(time.Second))
	lineEqual(t, "done by earlier messages", m.done, false)
	lineEqual(t, "its landed state", d.viewSince(m.at, now).landed, 0)
	hear(now.Add(time.Millisecond))
	d.watch(now.Add(time.Second))
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
