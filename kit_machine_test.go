package main

// The mode machine alone: the words of testdata/machine, and a witness that says in other words what a report means.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// allModes are the modes that can be reported; all but the last can be requested.
var allModes = []Mode{ModeManual, ModeAltitude, ModePosition, ModeTakeoff, ModeHold, ModeLand, ModeRTL, ModeRTGS,
	ModeOther}

var requestable = allModes[:len(allModes)-1]

func modeNamed(tb testing.TB, s string) Mode {
	tb.Helper()
	i := slices.Index(modeNames[:], s)
	if i < 0 {
		tb.Fatalf("no mode is called %q", s)
	}
	return Mode(i)
}

// modesOf is every named mode of an autopilot.
func modesOf(f firmware) []autopilotMode { return slices.Concat(ownModes[f], otherModes[f]) }

// numberOf is the number of the mode with this name: the autopilot's own, in capitals, or ours. For ours it is
// the number that our plans set. They never set "other" and "rtgs": for these it is the first in modesOf. One of PX4's
// that has no name is its main and sub mode: 12.0.
func numberOf(tb testing.TB, f firmware, name string) uint32 {
	tb.Helper()
	for _, m := range modesOf(f) {
		neverSet := m.mode == ModeOther || m.mode == ModeRTGS
		if m.name == name || neverSet && m.mode.String() == name {
			return m.custom
		}
	}
	var main, sub uint32
	if n, _ := fmt.Sscanf(name, "%d.%d", &main, &sub); n == 2 {
		return px4Custom(main, sub)
	}
	return entered[f][modeNamed(tb, name)]
}

// The takeoff of these tests climbs 10 m, to 510 m above mean sea level. It may end from 508 m on.
const highEnough, tooLow = 508.1, 507.9

// commanded is the order of a step that enters the mode; transit means a landing's way to its place.
func commanded(f firmware, m Mode, transit bool) goal {
	o := goal{mode: m, number: entered[f][m]}
	switch {
	case transit:
		o.number = entered[f][ModeHold]
	case m == ModeTakeoff && f == px4:
		o.end, o.endAMSL = entered[px4][ModeHold], 508
	}
	return o
}

// hearing is a machine that receives the events of a script, and its clock.
type hearing struct {
	machine
	t        testing.TB
	firmware firmware
	at       time.Time
	taken    bool    // the last report was a takeover
	steps    []*goal // of the plan that runs
}

func newHearing() *hearing { return &hearing{firmware: px4, at: time.Unix(1_700_000_000, 0)} }

// shows gives the machine a report.
func (f *hearing) shows(custom uint32, armed bool, with ...string) {
	r := report{shownMode: shownMode{custom: custom, armed: armed, at: f.at}, amsl: highEnough}
	r.mode, _ = f.firmware.reported(custom)
	for _, w := range with {
		switch w {
		case "low":
			r.amsl = tooLow
		case "somewhere":
			r.amsl = math.NaN()
		case "streamed":
			r.streamed = true
		}
	}
	f.taken = f.judge(r).means == meansTakeover
}

// sends begins a plan and sends its steps. A plan that still runs ends.
func (f *hearing) sends(orders ...goal) {
	f.steps = nil
	for _, o := range orders {
		f.sendsAlso(o)
	}
}

// sendsAlso sends one more step of the plan that runs.
func (f *hearing) sendsAlso(o goal) {
	f.steps = append(f.steps, &o)
	f.claim(&o, f.at)
}

// accepts ends the plan: its last step, o, was accepted.
func (f *hearing) accepts(o goal) {
	f.accepted(o)
	f.steps = nil
}

// orderNamed is the order of a step by our name of its mode, the autopilot's, or "transit"
// for a landing's way to its place.
func (f *hearing) orderNamed(t testing.TB, name string) goal {
	switch {
	case name == "transit":
		return commanded(f.firmware, ModeLand, true)
	case name == strings.ToUpper(name):
		n := numberOf(t, f.firmware, name)
		mode, _ := f.firmware.reported(n)
		return goal{mode: mode, number: n}
	}
	return commanded(f.firmware, modeNamed(t, name), false)
}

// hear plays a script to the machine, clauses with commas between. It returns what is wrong, or "".
func (f *hearing) hear(t *testing.T, script string) string {
	t.Helper()
	if err := machineWords().checkScript(script); err != nil {
		t.Fatal(err)
	}
	for clause := range strings.SplitSeq(script, ",") {
		if wrong := f.does(t, clauseWords(clause)); wrong != "" {
			return wrong
		}
	}
	return ""
}

func (f *hearing) clock() time.Time { return f.at }

func (f *hearing) now() string {
	commanded := "nothing"
	if f.commanded != nil {
		commanded = f.commanded.mode.String()
	}
	return fmt.Sprintf("mode %v, commanded %s, taken %v, %d claims", f.mode, commanded, f.taken, len(f.claims))
}

// does plays one clause. It returns what is wrong, or "".
func (f *hearing) does(t *testing.T, clause []string) string {
	t.Helper()
	f.t = t
	return machineWords().plays(t, f, clause)
}

type machineWord = scriptWord[*hearing]

// machineWords are the words of testdata/machine.
var machineWords = sync.OnceValue(func() *vocabulary[*hearing] {
	plan := func(do func(f *hearing, a []string)) func(*hearing, []string) string {
		return func(f *hearing, a []string) string {
			do(f, a)
			return ""
		}
	}
	return newVocabulary("machine",
		section[*hearing]{"What the vehicle reports, and time", false, []machineWord{
			{"reports MODE ARMED [WORD...]", "a report of a mode, by our name or the autopilot's, armed or disarmed; " +
				"low: below the height at which a takeoff ends; somewhere: at an unknown height; " +
				"streamed: while our sticks are streamed",
				"reports hold armed low", plan(func(f *hearing, a []string) {
					f.shows(numberOf(f.t, f.firmware, a[0]), a[1] == "armed", a[2:]...)
				})},
			{"restarted", "the autopilot has restarted", "restarted",
				plan(func(f *hearing, _ []string) { f.restart() })},
			{"+TIME", "time passes", "+4.9s", plan(func(f *hearing, a []string) {
				d, _ := time.ParseDuration(a[0])
				f.at = f.at.Add(d)
			})},
		}},
		section[*hearing]{"What a plan sends", false, []machineWord{
			{"plan asks MODE...", "a new plan begins; its steps lead to these modes (transit: to a landing's place)",
				"plan asks hold takeoff", plan(func(f *hearing, a []string) {
					f.sends()
					for _, m := range a {
						f.sendsAlso(f.orderNamed(f.t, m))
					}
				})},
			{"plan sends MODE", "the plan sends one more step",
				"plan sends hold", plan(func(f *hearing, a []string) { f.sendsAlso(f.orderNamed(f.t, a[0])) })},
			{"plan repeats", "the plan sends another copy of its last step",
				"plan repeats", plan(func(f *hearing, _ []string) { f.claim(f.steps[len(f.steps)-1], f.at) })},
			{"plan passes MODE", "a step was accepted, and the plan goes on",
				"plan passes hold", plan(func(f *hearing, a []string) { f.accepted(f.orderNamed(f.t, a[0])) })},
			{"plan accepted MODE", "the plan ends: its last step was accepted",
				"plan accepted takeoff", plan(func(f *hearing, a []string) { f.accepts(f.orderNamed(f.t, a[0])) })},
			{"plan refused", "the plan ends: its last step was refused", "plan refused",
				plan(func(f *hearing, _ []string) {
					f.machine.refused(f.steps[len(f.steps)-1])
					f.steps = nil
				})},
			{"plan unanswered", "the plan ends: its last step was not answered, and its mode may still show",
				"plan unanswered", plan(func(f *hearing, _ []string) { f.steps = nil })},
			{"plan abandoned", "something ended the way to the landing's place",
				"plan abandoned", plan(func(f *hearing, _ []string) { f.abandon() })},
		}},
		section[*hearing]{"Checks", true, []machineWord{
			{"is MODE", "the mode that is answered", "is hold", func(f *hearing, a []string) string {
				return unless(f.mode == modeNamed(f.t, a[0]), "the mode", f.mode)
			}},
			{"takeover", "the last report was a takeover", "takeover",
				func(f *hearing, _ []string) string { return unless(f.taken, "", "it was no takeover") }},
			{"no takeover", "the last report was no takeover", "no takeover",
				func(f *hearing, _ []string) string { return unless(!f.taken, "", "it was a takeover") }},
		}},
	)
})

// rule is a sentence and the script that shows it.
type rule struct{ name, flight string }

// belongs is rule 3's table: which reports belong to a commanded mode. It goes by the
// autopilot's own numbers. RTL belongs to a return only, so that a failsafe always shows.
func belongs(o goal, r report) bool {
	switch {
	case r.custom == o.number, followsStream(r):
		return true
	case endsTakeoff(o, r):
		return true
	case o.mode == ModeLand || o.mode == ModeRTL || o.mode == ModeRTGS:
		return !r.armed && r.mode != ModeRTL && r.mode != ModeTakeoff
	}
	return false
}

// endsTakeoff reports whether PX4 ended a takeoff: at its height AUTO.LOITER follows.
func endsTakeoff(o goal, r report) bool {
	return o.end != 0 && r.custom == o.end && r.armed && r.amsl >= o.endAMSL
}

// followsStream reports whether PX4 set this mode because of our stream: on the ground it
// goes to POSCTL by itself while sticks are sent.
func followsStream(r report) bool {
	return !r.armed && r.streamed && r.custom == px4Custom(3, 0)
}

// witness holds the machine under test, and works out by rules 1, 2 and 3 what it must answer.
type witness struct {
	machine  // its last and sent are hidden by the witness's own
	firmware firmware
	now      time.Time

	wants     Mode   // the right mode
	heard     bool   // there was a report, and last is set
	last      report // the last one
	commanded *goal  // nil: the mode is the reported one
	restarted bool   // the vehicle restarted after the last report and the last accepted step

	// Every step that was ever sent. The claims of the first ones, up to closed, have ended.
	sent   []*witnessStep
	closed int
}

// witnessStep is a step that was sent.
type witnessStep struct {
	to      goal
	at      time.Time
	refused bool
}

// openClaim returns the index of the first step that still claims this report, or -1.
func (w *witness) openClaim(r report) int {
	for i := w.closed; i < len(w.sent); i++ {
		s := w.sent[i]
		if (s.to.number == r.custom || endsTakeoff(s.to, r)) && !s.refused && w.now.Sub(s.at) < 5*time.Second {
			return i
		}
	}
	return -1
}

// forgets makes the mode the reported one.
func (w *witness) forgets() { w.wants, w.commanded = w.last.mode, nil }

// judges says what a report is, in the words of the rules.
func (w *witness) judges(r report) string {
	first := !w.heard || w.restarted
	another := r.custom != w.last.custom
	switch {
	case first && !r.armed && w.heard:
		return "initial"
	case first && !r.armed:
		return "nothing"
	case !first && (followsStream(r) || w.commanded != nil && belongs(*w.commanded, r)):
		return "belongs"
	case !first && !another && r.armed == w.last.armed:
		return "equal"
	case !first && !another:
		return "arms"
	case w.openClaim(r) >= 0:
		return "claimed"
	case first:
		return "takeover"
	case w.last.armed && !r.armed:
		return "falls back"
	}
	return "takeover"
}

// seeReport gives the machine a report. It returns what the machine judged wrongly, or "".
func (w *witness) seeReport(r report) string {
	r.at = w.now
	kind := w.judges(r)
	w.heard, w.last, w.restarted = true, r, false
	switch kind {
	case "initial":
		w.wants = ModeManual
	case "arms", "falls back":
		w.forgets()
	case "claimed":
		w.closed = w.openClaim(r) + 1
		w.forgets()
		w.commanded = &w.sent[w.closed-1].to
	case "takeover":
		w.closed = len(w.sent)
		w.forgets()
	}
	if taken := w.judge(r).means == meansTakeover; taken != (kind == "takeover") {
		return fmt.Sprintf("takeover is %v, and the report is: %s", taken, kind)
	}
	return ""
}

// sends notes that a copy of a step is sent.
func (w *witness) sends(o goal) {
	s := &witnessStep{to: o, at: w.now}
	w.sent = append(w.sent, s)
	w.claim(&s.to, w.now)
}

// accepts notes that a step was accepted. That ends the claims of all steps.
func (w *witness) accepts(o goal) {
	w.sends(o)
	w.accepted(o)
	w.closed = len(w.sent)
	w.wants, w.commanded, w.restarted = o.mode, &o, false
}

// refuses notes that the step that was sent last was refused.
func (w *witness) refuses() {
	if n := len(w.sent); n > 0 {
		w.sent[n-1].refused = true
		if w.commanded == &w.sent[n-1].to {
			w.commanded = nil
		}
		w.machine.refused(&w.sent[n-1].to)
	}
}

// restarts notes that the autopilot restarted: no command is in force.
func (w *witness) restarts() {
	w.restart()
	w.restarted, w.commanded, w.closed = w.heard, nil, len(w.sent)
}

// wrong is what the machine answers wrongly now, or ""; modes are those of its autopilot.
func (w *witness) wrong(modes []autopilotMode) string {
	if w.mode != w.wants {
		return fmt.Sprintf("the mode is %v, want %v", w.mode, w.wants)
	}
	for _, m := range modes {
		claimed := w.claimed(w.now, func(to *goal) bool { return to.number == m.custom }) >= 0
		if claimed != (w.openClaim(report{shownMode: shownMode{custom: m.custom}}) >= 0) {
			return fmt.Sprintf("%s is claimed: %v", m.name, claimed)
		}
	}
	return ""
}

// walker is a machine beside its witness, and the events that they were given so far.
type walker struct {
	*witness
	modes []autopilotMode
	story strings.Builder
}

// machineEvents are the events of a walk: report armed, disarmed; accepted, accepted transit, refused, sent; time,
// abandoned, restarted.
const machineEvents = "RratxdTAN"

// walked gives a machine and its witness events, and returns where they disagree, or "". The first byte is the
// autopilot, 0 for PX4 and 1 for Copter. Each event is two bytes: what happens, and a mode of the autopilot's list.
// 64 is added to the mode when the vehicle is low, 128 while our sticks are streamed.
func walked(events []byte) (wrong string) {
	if len(events) == 0 || len(events) > 1000 {
		return ""
	}
	is := []firmware{px4, copter}[events[0]&1]
	w := walker{witness: &witness{firmware: is, now: time.Unix(1_700_000_000, 0)}, modes: modesOf(is)}
	for events = events[1:]; len(events) > 1; events = events[2:] {
		wrong = w.happens(machineEvents[events[0]%byte(len(machineEvents))], int(events[1]))
		if wrong == "" {
			wrong = w.wrong(w.modes)
		}
		if wrong != "" {
			return fmt.Sprintf("%s, after%s", wrong, w.story.String())
		}
	}
	return ""
}

// happens gives both one event. It returns what the machine judged wrongly, or "".
func (w *walker) happens(what byte, arg int) string {
	o := commanded(w.firmware, requestable[arg%len(requestable)], false)

	// the way to a landing's place
	if what == 't' {
		o = commanded(w.firmware, ModeLand, true)
	}
	if what == 'R' || what == 'r' {
		mode := w.modes[(arg&63)%len(w.modes)]
		fmt.Fprintf(&w.story, " %c:%s", what, mode.name)
		return w.seeReport(report{
			shownMode: shownMode{custom: mode.custom, armed: what == 'R'},
			mode:      mode.mode,
			amsl:      []float64{highEnough, tooLow}[arg>>6&1],
			streamed:  arg>>7 == 1,
		})
	}
	fmt.Fprintf(&w.story, " %c:%v", what, o.mode)
	switch {
	case !w.heard && what != 'T' && what != 'N': // there is no vehicle to command
	case what == 'a', what == 't':
		w.accepts(o)
	case what == 'x':
		w.refuses()
	case what == 'd':
		w.sends(o)
	case what == 'T':
		w.now = w.now.Add(time.Duration(arg) * 100 * time.Millisecond)
	case what == 'A':
		w.abandon()
		w.forgets()
	case what == 'N':
		w.restarts()
	}
	return ""
}

// showsMode is the argument of a report of one of our modes.
func showsMode(tb testing.TB, f firmware, m Mode) byte {
	n := numberOf(tb, f, m.String())
	return byte(slices.IndexFunc(modesOf(f), func(row autopilotMode) bool { return row.custom == n }))
}
