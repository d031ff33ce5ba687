package main

// The sticks alone: the words of testdata/sticks, and a witness that says in other words what is sent.

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// frameSent is one position of the sticks that was streamed, and when.
type frameSent struct {
	at   time.Time
	axes axes
}

// stickFlight is a vehicle's sticks, the facts that they go by, and their clock.
type stickFlight struct {
	sticks
	t testing.TB
	v situation

	frames  []frameSent
	acts    string // in words, what the sticks asked for since the last "="; it shadows sticks.acts
	notices string
	kept    []shownMode // what the machine keeps
}

// stickClientAt is the address of the scripts' client.
var stickClientAt = netip.MustParseAddr("192.0.2.1")

// newStickFlight is a vehicle that holds in the air and has been online for long. Its
// receiver is "none", "idle" or "in-use". param is the parameter that chooses whose sticks
// count; NaN: it was not answered. A PX4 is 1.17.0.
func newStickFlight(f firmware, receiver string, param float64) *stickFlight {
	now := time.Unix(1_700_000_000, 0)
	h := &stickFlight{v: situation{view: view{
		now: now, firmware: f, version: px4SourceOrder, shownMode: shownMode{armed: true}, online: true,
		params: make(map[string]float64),
	}}}
	if f == px4 {
		h.v.params[stickOverride] = 1
	}
	switch {
	case math.IsNaN(param):
	case f == px4:
		h.v.params["COM_RC_IN_MODE"] = param
	default:
		h.v.gcsFailsafe = param
	}
	h.in("hold")
	h.hearReceiver(h.v.now, receiver != "none", map[string]uint16{"idle": 1000, "in-use": 1500}[receiver])
	return h
}

// in sets the mode, by our name or the autopilot's.
func (h *stickFlight) in(name string) {
	if i := slices.Index(modeNames[:], name); i >= 0 {
		h.v.mode, h.v.custom = Mode(i), entered[h.v.firmware][Mode(i)]
		return
	}
	list := modesOf(h.v.firmware)
	i := slices.IndexFunc(list, func(m autopilotMode) bool { return m.name == name })
	if i < 0 {
		h.v.mode, h.v.custom = ModeOther, numberOf(h.t, h.v.firmware, name)
		return
	}
	h.v.mode, h.v.custom = list[i].mode, list[i].custom
}

// act notes the actions that the sticks ask for.
func (h *stickFlight) act() {
	acts := h.take()
	if acts.send && h.phase != stickOff {
		h.frames = append(h.frames, frameSent{h.v.now, h.toSend(h.v, h.kept)})
	}
	if acts.release {
		h.acts += " released"
		h.frames = append(h.frames, frameSent{h.v.now, released})
	}
	if acts.hold {
		h.acts += " holds"
	}
	if acts.takeover {
		h.notices += "takeover: "
	}
	h.notices += acts.notice
}

// pass lets the time pass.
func (h *stickFlight) pass(d time.Duration) {
	for end := h.v.now.Add(d); h.v.now.Before(end); {
		h.v.now = h.v.now.Add(10 * time.Millisecond)
		h.tick(h.v)
		h.act()
	}
}

// asks begins a plan that sets a stick mode, up to its last ack.
func (h *stickFlight) asks() {
	h.v.busy, h.v.entering = true, true
	h.streamForMode(h.v)
	h.act()
	h.untilReady()
}

// gets ends the plan: the vehicle reports the stick mode.
func (h *stickFlight) gets(mode string) {
	h.in(mode)
	h.giveToClient(h.v, stickClientAt)
	h.endPlan()
}

// endPlan ends the plan: its mode can no longer show.
func (h *stickFlight) endPlan() { h.v.own = own{mode: h.v.mode} }

// untilReady lets time pass until the sticks allow the next step of the plan.
func (h *stickFlight) untilReady() {
	for h.v.now.Before(h.ready(true, h.v, false)) {
		h.pass(10 * time.Millisecond)
	}
}

// state is what the sticks do, and the actions that they asked for since the last look.
func (h *stickFlight) state() string {
	s := [...]string{"off", "client", "nobody"}[h.phase]
	if h.phase != stickOff {
		s += fmt.Sprintf(" %d %d %d %d", h.axes.x, h.axes.y, h.axes.z, h.axes.r)
	}
	s += h.acts
	h.acts = ""
	return s
}

// play plays a script to the sticks, clauses with commas between. It returns what is wrong, or "".
func (h *stickFlight) play(t *testing.T, script string) string {
	t.Helper()
	if err := stickWords().checkScript(script); err != nil {
		t.Fatal(err)
	}
	for clause := range strings.SplitSeq(script, ",") {
		if wrong := h.does(t, clauseWords(clause)); wrong != "" {
			return fmt.Sprintf("%q: %s", clause, wrong)
		}
	}
	return ""
}

func (h *stickFlight) clock() time.Time { return h.v.now }

func (h *stickFlight) now() string {
	acts := h.acts
	defer func() { h.acts = acts }() // state forgets them
	return fmt.Sprintf("%s; mode %v, taken %v", h.state(), h.v.mode, h.taken)
}

// stickKinds are the vehicles that the clause "becomes" names.
var stickKinds = map[string]struct {
	typ  common.MAV_TYPE
	vtol common.MAV_VTOL_STATE
}{
	"plane":  {common.MAV_TYPE_FIXED_WING, 0},
	"rover":  {common.MAV_TYPE_GROUND_ROVER, 0},
	"hover":  {common.MAV_TYPE_VTOL_FIXEDROTOR, common.MAV_VTOL_STATE_MC},
	"wing":   {common.MAV_TYPE_VTOL_FIXEDROTOR, common.MAV_VTOL_STATE_FW},
	"silent": {common.MAV_TYPE_VTOL_FIXEDROTOR, 0},
}

// does plays one clause. It returns what is wrong, or "".
func (h *stickFlight) does(t *testing.T, clause []string) string {
	t.Helper()
	h.t = t
	wrong := stickWords().plays(t, h, clause)
	if wrong == "" {
		h.act()
	}
	return wrong
}

type stickWord = scriptWord[*stickFlight]

// stickWords are the words of testdata/sticks.
var stickWords = sync.OnceValue(func() *vocabulary[*stickFlight] {
	return newVocabulary("sticks",
		section[*stickFlight]{"Clients and plans, and time", false, stickPlanWords()},
		section[*stickFlight]{"The vehicle, the pilot and other programs", false, stickEventWords()},
		section[*stickFlight]{"Checks", true, stickChecks()},
	)
})

// stickEvent makes a word of a function.
func stickEvent(do func(h *stickFlight, a []string)) func(*stickFlight, []string) string {
	return func(h *stickFlight, a []string) string {
		do(h, a)
		return ""
	}
}

func (h *stickFlight) number(s string) int {
	h.t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func stickPlanWords() []stickWord {
	return []stickWord{
		{"sets MODE", "a client sets a stick mode, and it shows", "sets altitude",
			stickEvent(func(h *stickFlight, a []string) {
				h.asks()
				h.gets(a[0])
			})},
		{"plan asks MODE...", "a new plan begins; its steps lead to these modes (transit: to a landing's place)",
			"plan asks altitude", stickEvent(func(h *stickFlight, _ []string) { h.asks() })},
		{"plan gets MODE", "the mode that the plan asks for shows, and the plan ends",
			"plan gets altitude", stickEvent(func(h *stickFlight, a []string) { h.gets(a[0]) })},
		{"plan refused", "the plan ends: its last step was refused",
			"plan refused", stickEvent(func(h *stickFlight, _ []string) { h.endPlan() })},
		{"plan unanswered", "the plan ends: its last step was not answered, and its mode may still show",
			"plan unanswered", stickEvent(func(h *stickFlight, _ []string) { h.v.busy = false })},
		{"plan over", "the mode of the unanswered plan can no longer show",
			"plan over", stickEvent(func(h *stickFlight, _ []string) { h.endPlan() })},
		{"busy", "a plan is under way that does not need the sticks",
			"busy", stickEvent(func(h *stickFlight, _ []string) { h.v.busy = true })},
		{"leaves", "a plan begins that leaves the stick modes", "leaves", stickEvent(func(h *stickFlight, _ []string) {
			h.v.busy = true
			h.park(h.v)
		})},
		{"rests", "time passes until the sticks have been still for long enough",
			"rests", stickEvent(func(h *stickFlight, _ []string) {
				h.v.resting = h.axes == h.centred(h.v)
				h.pass(h.restsFrom.Add(h.v.stickRest()).Sub(h.v.now))
			})},
		{"plan sends MODE", "the plan sends one more step",
			"plan sends hold", stickEvent(func(h *stickFlight, a []string) {
				h.v.leavesSticks = !slices.Contains([]string{"manual", "altitude", "position"}, a[0])
			})},
		{"led MODE", "the intermediate mode of a plan that leaves shows",
			"led POSCTL", stickEvent(func(h *stickFlight, a []string) {
				h.v.custom = numberOf(h.t, h.v.firmware, a[0])
				h.pass(10 * time.Millisecond)
			})},
		{"left MODE", "the last mode of a plan that leaves shows, and the plan ends",
			"left hold", stickEvent(func(h *stickFlight, a []string) {
				h.in(a[0])
				h.endPlan()
				h.pass(10 * time.Millisecond)
			})},
		{"arms", "a client arms the vehicle in its present mode",
			"arms", stickEvent(func(h *stickFlight, _ []string) { h.streamForArming(h.v) })},
		{"axes X Y Z R TIME", "the client's sticks, in thousandths, and their timeout",
			"axes 300 0 700 0 500ms", stickEvent(func(h *stickFlight, a []string) {
				d, _ := time.ParseDuration(a[4])
				part := func(i int) float64 { return float64(h.number(a[i])) / 1000 }
				throttle := part(2)
				in := stickInput{pitch: part(0), roll: part(1), yaw: part(3), throttle: &throttle}
				h.clientMoves(h.v, in.axes(0), stickClientAt, h.v.now.Add(d))
			})},
		{"program ends", "mavrest leaves the sticks for its end",
			"program ends", stickEvent(func(h *stickFlight, _ []string) { h.farewell(h.v) })},
		{"+TIME", "time passes", "+2s", stickEvent(func(h *stickFlight, a []string) {
			d, _ := time.ParseDuration(a[0])
			h.pass(d)
		})},
	}
}

func stickEventWords() []stickWord {
	becomes := func(landed landedState) func(*stickFlight, []string) string {
		return stickEvent(func(h *stickFlight, _ []string) {
			h.v.armed = true
			h.v.landed = landed
		})
	}
	return []stickWord{
		{"pilot MODE", "the pilot sets a mode, by the autopilot's name or by ours, or by PX4's numbers: 12.0",
			"pilot POSCTL", stickEvent(func(h *stickFlight, a []string) {
				h.in(a[0])
				h.switched(h.v)
				h.endPlan()
			})},
		{"becomes armed", "the vehicle is armed, on the ground", "becomes armed", becomes(onGround)},
		{"becomes landed", "the vehicle has landed, and is armed", "becomes landed", becomes(onGround)},
		{"becomes flying", "the vehicle is armed; its landed state is unknown, which counts as in the air",
			"becomes flying", becomes(0)},
		{"becomes airborne", "the vehicle is armed, and reports that it is in the air",
			"becomes airborne", becomes(inAir)},
		{"becomes disarmed", "the vehicle is disarmed", "becomes disarmed",
			stickEvent(func(h *stickFlight, _ []string) {
				h.v.armed = false
				h.disarmed(h.v)
			})},
		{"becomes KIND", "the vehicle is a PX4 of this kind from now on: wing, hover, silent (a VTOL), plane, rover",
			"becomes wing", stickEvent(func(h *stickFlight, a []string) {
				k, known := stickKinds[a[0]]
				if !known {
					h.t.Fatalf("no such kind: %s", a[0])
				}
				h.v.typ, h.v.vtol = k.typ, k.vtol
			})},
		{"becomes offline", "the link is lost", "becomes offline", stickEvent(func(h *stickFlight, _ []string) {
			h.v.online = false
			h.tick(h.v)
		})},
		{"becomes online", "the link is back",
			"becomes online", stickEvent(func(h *stickFlight, _ []string) { h.v.online = true })},
		{"round trip TIME", "the line takes so long, there and back", "round trip 500ms",
			stickEvent(func(h *stickFlight, a []string) { h.v.trip, _ = time.ParseDuration(a[0]) })},
		{"keeps [MODE...]", "numbers of these modes are kept from now on, the newest last", "keeps AUTO.RTL",
			stickEvent(func(h *stickFlight, a []string) {
				h.kept = nil
				for _, name := range a {
					h.kept = append(h.kept, shownMode{custom: numberOf(h.t, h.v.firmware, name)})
				}
			})},
		{"hears receiver N", "SYS_STATUS says that there is a receiver, and RC_CHANNELS have its throttle, in µs",
			"hears receiver 1500", stickEvent(func(h *stickFlight, a []string) {
				h.hearReceiver(h.v.now, true, uint16(h.number(a[0])))
			})},
		{"hears no receiver", "SYS_STATUS says that there is no receiver",
			"hears no receiver", stickEvent(func(h *stickFlight, _ []string) {
				h.hearReceiver(h.v.now, false,
					math.MaxUint16)
			})},
		{"channels N...", "RC_CHANNELS, in µs; the fifth stands for all switches",
			"channels 1500 1500 1000 1500 1800", stickEvent(func(h *stickFlight, a []string) {
				c := channels{4: 1500, 15: 1000}
				for i, v := range a {
					c[i] = uint16(h.number(v))
				}
				h.hearChannels(h.v, c)
			})},
		{"foreign", "another program's MANUAL_CONTROL comes",
			"foreign", stickEvent(func(h *stickFlight, _ []string) { h.hearForeign(h.v) })},
		{"acts N N N N", "PX4's own MANUAL_CONTROL has these sticks: x, y, z, r",
			"acts 0 0 500 0", stickEvent(func(h *stickFlight, a []string) {
				n := func(i int) int16 { return int16(h.number(a[i])) }
				h.hearActing(h.v, axes{x: n(0), y: n(1), z: n(2), r: n(3)}, h.v.now)
				h.act()
			})},
		{"joins", "another program's MANUAL_CONTROLs come at 50 Hz for half a second",
			"joins", stickEvent(func(h *stickFlight, _ []string) {
				for range 25 {
					h.hearForeign(h.v)
					h.act()
					h.pass(20 * time.Millisecond)
				}
			})},
		{"restarted", "the autopilot has restarted", "restarted", func(h *stickFlight, _ []string) string {
			aNumber := make([]shownMode, 1)
			if h.restarted(h.v); h.phase != stickOff && h.toSend(h.v, aNumber) != h.axes {
				return fmt.Sprintf("while a number is kept the old sticks still go out: %v", h.streamed)
			}
			return ""
		}},
		{"param PARAMETER N", "a parameter of the autopilot changes",
			"param COM_RC_OVERRIDE 0", stickEvent(func(h *stickFlight, a []string) {
				h.v.params[a[0]] = float64(h.number(a[1]))
				if h.v.firmware.ardupilot() && a[0] == stickParams[h.v.firmware] {
					h.v.gcsFailsafe = h.v.params[a[0]]
				}
			})},
	}
}

func stickChecks() []stickWord {
	return []stickWord{
		{"now PHASE [WORD...]", "what the sticks do: off, or whose they are (client, nobody) and the axes; " +
			"then what they asked for since the last now: released, holds",
			"now nobody 0 0 500 0 released", func(h *stickFlight, a []string) string {
				got := h.state()
				return unless(got == strings.Join(a, " "), "", got)
			}},
		{"goes out X Y Z R", "the sticks that were streamed last, in thousandths", "goes out 300 0 500 0",
			func(h *stickFlight, a []string) string {
				if len(h.frames) == 0 {
					return "nothing went out"
				}
				got := h.frames[len(h.frames)-1].axes
				return unless(fmt.Sprintf("{%s}", strings.Join(a, " ")) == fmt.Sprint(got), "went out", got)
			}},
		{"owned", "a client has the sticks: another's are refused", "owned",
			func(h *stickFlight, _ []string) string {
				return unless(h.held(h.v) == stickClientAt, "who has the sticks", h.held(h.v))
			}},
		{"not owned", "any client may send sticks", "not owned",
			func(h *stickFlight, _ []string) string {
				return unless(!h.held(h.v).IsValid(), "who has the sticks", h.held(h.v))
			}},
		{"by [WHO]", "whose sticks act; nobody's if nothing is said", "by client",
			func(h *stickFlight, a []string) string {
				got := h.by(h.v)
				return unless(got == strings.Join(a, ""), "who has the sticks", got)
			}},
		{"taken", "somebody else has the sticks until a stick mode is set here",
			"taken", func(h *stickFlight, _ []string) string { return unless(h.taken, "taken", false) }},
		{"not taken", "nobody else has the sticks",
			"not taken", func(h *stickFlight, _ []string) string { return unless(!h.taken, "taken", true) }},
		{"notice WORDS", "a notice since the last notice has these words",
			"notice transmitter", func(h *stickFlight, a []string) string {
				notices := h.notices
				h.notices = ""
				return unless(strings.Contains(notices, strings.Join(a, " ")), "the notices", notices)
			}},
		{"no notice [WORD...]", "there was no notice, or none with these words; a takeover is one too",
			"no notice takeover", func(h *stickFlight, a []string) string {
				some := h.notices != "" && strings.Contains(h.notices, strings.Join(a, " "))
				return unless(!some, "the notices", h.notices)
			}},
	}
}

func parseStickFlight(t *testing.T, s string) *stickFlight {
	t.Helper()
	w := strings.Fields(s)
	f := map[string]firmware{"px4": px4, "copter": copter, "quadplane": quadPlane, "plane": plane}[w[0]]
	receiver, param := "none", map[string]float64{"px4": 3}[w[0]] // 0 on ArduPilot
	for _, word := range w[1:] {
		if x, err := strconv.ParseFloat(word, 64); err == nil {
			param = x
		} else {
			receiver = word
		}
	}
	return newStickFlight(f, receiver, param)
}

// stickVehicles are the vehicles of the walks: a firmware, a parameter, a receiver.
var stickVehicles = []string{"px4 1 none", "px4 3 none", "px4 5 in-use", "px4 2 idle", "copter none", "copter idle",
	"copter in-use", "quadplane idle", "plane in-use"}

// sticksWalked gives the sticks events, and returns which rule they broke, or "". The first byte is the vehicle.
// Each event is two bytes: what happens, and its argument.
func sticksWalked(t *testing.T, events []byte) string {
	if len(events) == 0 {
		return ""
	}
	vehicle := stickVehicles[int(events[0])%len(stickVehicles)]
	w := &stickWitness{stickFlight: parseStickFlight(t, vehicle)}
	story := vehicle + ":"
	for events = events[1:]; len(events) > 1; events = events[2:] {
		what, arg := stickEvents[int(events[0])%len(stickEvents)], int(events[1])
		if strings.IndexByte(stickEvents, events[0]) >= 0 { // a seed has the letter itself
			what = events[0]
		}
		story += fmt.Sprintf(" %c%d", what, arg)
		w.happens(what, arg)
		w.goesOn = w.goesOn && (w.phase != stickOff || strings.IndexByte("pT", what) >= 0)
		if wrong := w.look(); wrong != "" {
			return fmt.Sprintf("%s: %s after %s", wrong, w.state(), story)
		}
	}
	return ""
}

// stickEvents are the letters of the events that FuzzSticks plays; happens says what each means.
const stickEvents = "eglrfoOkipadFswcCRLNT"

// stickWitness watches the sticks for FuzzSticks.
type stickWitness struct {
	*stickFlight
	seen  int       // how many frames look has checked
	pilot bool      // somebody else has taken the sticks; a client's plan or a restart ends it
	stood axes      // the sticks after the last event that may have taken them from the client
	until time.Time // when the client's sticks expire

	// goesOn: a stream ran when the pilot took the drone: it goes on, or the drone would fall
	goesOn bool
	asked  axes // the client's sticks
}

// happens plays one event to the sticks, if the drone could have it now.
func (w *stickWitness) happens(what byte, arg int) {
	v, src := &w.v, &w.src
	stickMode := Mode(arg % 3).String()
	_, hasMode := entered[v.firmware][Mode(arg%3)]
	switch what {
	case 'e': // a plan for a stick mode begins
		w.pilot = false
		w.asks()
	case 'g': // it ends: the mode is set; or the mode shows after the plan was given up
		switch {
		case !hasMode || !v.entering:
		case v.busy:
			w.pilot = false
			w.gets(stickMode)
		default:
			w.in(stickMode)
			v.entering = false
		}
	case 'l': // a plan that leaves begins
		w.pilot = false
		v.busy = true
		w.park(*v)
		w.stood = w.axes
	case 'k': // its intermediate mode shows
		if v.firmware == px4 && v.busy && v.mode.flownBySticks() {
			w.in("position")
		}
	case 'r': // it ends: its last mode shows, on PX4 when the sticks have rested
		rested := v.firmware != px4 || !w.mustRest(*v, false) || v.now.Sub(w.restsFrom) >= v.stickRest()
		if v.busy && !v.entering && rested {
			w.in("hold")
			w.endPlan()
		}
	case 'f': // it fails
		w.endPlan()
	case 'o': // it ends unanswered
		v.busy = false
	case 'O': // the time in which its mode may show is over
		v.entering = false
	case 'i': // the client's sticks
		if !v.busy && v.mode.flownBySticks() && !w.taken && !src.denied(v.view).given() {
			w.asked = axes{x: int16(arg * 3), z: 430}
			d := time.Duration(1+arg%50) * 100 * time.Millisecond
			w.until = v.now.Add(d)
			w.clientMoves(*v, w.asked, netip.Addr{}, v.now.Add(d))
		}
	case 'p': // a pilot's switch
		m := modesOf(v.firmware)[arg%len(modesOf(v.firmware))]
		w.goesOn = w.phase != stickOff
		w.in(m.name)
		w.switched(*v)
		w.endPlan()
		w.pilot, w.stood = true, w.axes
	case 'a': // it is armed
		if !v.armed {
			v.armed, v.landed = true, onGround
		}
	case 's': // it is on the ground, or flies
		v.landed = onGround
		if arg&1 != 0 {
			v.landed = 0 // unknown: it counts as in the air
		}
	case 'd': // it is disarmed
		v.armed = false
		w.disarmed(*v)
	case 'F': // another program's sticks
		w.hearForeign(*v)
		w.pilot, w.stood = w.pilot || w.taken, w.axes
	case 'w': // the receiver is live
		w.hearReceiver(v.now, true, uint16(1000+arg*4))
	case 'R': // the receiver is gone
		w.hearReceiver(v.now, false, 0)
	case 'c', 'C': // RC_CHANNELS: another throttle, with C another switch too
		c := channels{1500, 1500, uint16(1000 + arg*4), 1500, 1500}
		if what == 'C' {
			c[9] = uint16(1000 + arg*4)
		}
		w.hearChannels(*v, c)
		w.pilot, w.stood = w.pilot || w.taken, w.axes
	case 'L': // the link is back, or lost
		v.online = true
		if arg&1 != 0 {
			v.online = false
			w.tick(*v)
		}
	case 'N': // the autopilot restarts
		w.restarted(*v)
		w.pilot = false
	case 'T': // time passes
		w.act()
		w.pass(time.Duration(arg) * 20 * time.Millisecond)
	}
	w.act()
}

// px4LeavesForSticks reports whether moving sticks may make PX4 leave a mode: AUTO but for FOLLOW_TARGET and
// EXTERNAL1 to 8, and OFFBOARD and TERMINATION (read in its source, 1.17 and 1.18).
func px4LeavesForSticks(custom uint32) bool {
	main, sub := custom>>16&0xff, custom>>24
	auto := main == 4 && sub != 8 && (sub < 11 || sub > 18)
	return auto || main == 6 || main == 10
}

// look returns how the sticks broke a rule since the last look, or "".
func (w *stickWitness) look() string {
	acts, v := w.acts, w.v
	w.acts = ""
	first, sent := w.seen, w.frames[w.seen:]
	w.seen = len(w.frames)
	if strings.Contains(acts, "holds") {
		switch {
		case w.pilot:
			return "a hold after a pilot's switch"
		case !v.flying():
			return "a hold on the ground"
		case v.mode != ModeManual && v.mode != ModeAltitude && !(v.mode == ModePosition && v.onWing()):
			return "a hold in a mode that needs none"
		}
	}
	if strings.Contains(acts, "released") && !v.firmware.ardupilot() {
		return "PX4 can't release sticks"
	}
	for _, s := range sent {
		level := s.axes.x == 0 && s.axes.y == 0 && s.axes.r == 0
		switch {
		case s.axes == released: // allowed
		case w.pilot && !level && s.axes != w.stood:
			return fmt.Sprintf("%v after a pilot's switch", s.axes)
		case level || w.pilot || s.axes == w.stood: // allowed
		case s.axes != w.asked:
			return fmt.Sprintf("%v, which nobody asked for", s.axes)
		case s.at.After(w.until):
			return fmt.Sprintf("%v after their timeout", s.axes)
		}
	}
	mustRest := v.firmware == px4 && px4LeavesForSticks(v.custom) && !v.busy
	for i := max(first, 1); mustRest && i < len(w.frames); i++ {
		was, is := w.frames[i-1], w.frames[i]
		mayMove := i == first && !w.pilot // the event may have set the mode; a pilot's switch moves no stick
		if !mayMove && was.axes != is.axes && is.at.Sub(was.at) <= 2*stickEvery {
			return fmt.Sprintf("%v after %v in an AUTO mode", is.axes, was.axes)
		}
	}
	switch {
	case w.pilot && !w.taken:
		return "the client has the sticks again, without a command"
	case w.pilot && w.goesOn && w.phase == stickOff && v.armed && !w.src.inUse(v.firmware):
		return "the stream ended after a pilot's switch"
	case w.phase == stickClient && w.taken:
		return "the client has sticks that are not its own"
	case len(sent) > 0 && w.phase == stickNobody && !v.armed && !v.busy && !v.entering &&
		v.now.Sub(w.client.spoke) > stickIdle+stickEvery:
		return "a stream that nobody needs"
	}
	return ""
}
