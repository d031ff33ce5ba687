package main

import (
	"fmt"
	"math"
	"math/rand/v2"
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

// TestUnansweredPlansDoNotPileUp: a client may repeat a command for hours.
func TestUnansweredPlansDoNotPileUp(t *testing.T) {
	f := newHearing()
	f.hear(t, "reports hold armed")
	for range 1000 {
		f.hear(t, "plan asks position, plan repeats, plan repeats, plan repeats, plan repeats, +2s, plan unanswered")
	}
	if len(f.claims) > 4 {
		t.Errorf("%d steps are remembered", len(f.claims))
	}
}

// TestTheMachineKnowsWhichModesAreClaimed: the sticks need to know whether a stick mode may still show.
func TestTheMachineKnowsWhichModesAreClaimed(t *testing.T) {
	for flight, want := range map[string]bool{
		"reports hold armed":                                             false,
		"reports hold armed, plan asks position":                         true,
		"reports hold armed, plan asks position, +4.9s":                  true,
		"reports hold armed, plan asks position, +5s":                    false,
		"reports hold armed, plan asks altitude":                         false,
		"reports hold armed, plan asks position, reports position armed": false,
		"reports hold armed, plan asks position, plan refused":           false,
		"reports hold armed, plan asks position, plan passes position":   false,
		"reports hold armed, plan asks position, plan accepted position": false,
	} {
		f := newHearing()
		f.hear(t, flight)
		position := numberOf(t, px4, "position")
		if claimed := f.claimed(f.at, func(to *goal) bool { return to.number == position }) >= 0; claimed != want {
			t.Errorf("%s: claimed is %v", flight, claimed)
		}
	}
}

// TestReportedModesAreTheAutopilotsOwn checks docs/autopilots.md, "The modes, side by
// side" and "ArduPilot: mode numbers".
func TestReportedModesAreTheAutopilotsOwn(t *testing.T) {
	type row struct {
		custom uint32
		mode   Mode
		name   string
	}
	px := func(main, sub uint32) uint32 { return main<<16 | sub<<24 }
	planes := []row{
		{0, ModeManual, "MANUAL"}, {1, ModeOther, "CIRCLE"}, {2, ModeOther, "STABILIZE"}, {3, ModeOther, "TRAINING"},
		{4, ModeOther, "ACRO"}, {5, ModeOther, "FBWA"}, {6, ModeAltitude, "FBWB"}, {7, ModeOther, "CRUISE"},
		{8, ModeOther, "AUTOTUNE"}, {9, ModeOther, "MODE 9"}, {10, ModeOther, "AUTO"}, {11, ModeRTL, "RTL"},
		{12, ModeOther, "LOITER"}, {13, ModeTakeoff, "TAKEOFF"}, {14, ModeOther, "AVOID_ADSB"},
		{15, ModeHold, "GUIDED"},
		{16, ModeOther, "INITIALISING"}, {17, ModeManual, "QSTABILIZE"}, {18, ModeAltitude, "QHOVER"},
		{19, ModePosition, "QLOITER"},
		{20, ModeLand, "QLAND"}, {21, ModeRTL, "QRTL"}, {22, ModeOther, "QAUTOTUNE"}, {23, ModeOther, "QACRO"},
		{24, ModeOther, "THERMAL"}, {25, ModeOther, "LOITER_ALT_QLAND"}, {26, ModeLand, "AUTOLAND"},
		{27, ModeOther, "MODE 27"}, {1 << 31, ModeOther, "MODE 2147483648"},
	}
	for _, table := range []struct {
		name string
		f    firmware
		rows []row
	}{
		{"PX4", px4, []row{
			{px(1, 0), ModeManual, "MANUAL"},
			{px(2, 0), ModeAltitude, "ALTCTL"},
			{px(3, 0), ModePosition, "POSCTL"},
			{px(3, 1), ModeOther, "POSCTL.ORBIT"},
			{px(3, 2), ModePosition, "POSCTL.SLOW"},
			{px(4, 2), ModeTakeoff, "AUTO.TAKEOFF"},
			{px(4, 3), ModeHold, "AUTO.LOITER"},
			{px(4, 4), ModeOther, "AUTO.MISSION"},
			{px(4, 5), ModeRTL, "AUTO.RTL"},
			{px(4, 6), ModeLand, "AUTO.LAND"},
			{px(4, 7), ModeRTGS, "AUTO.RTGS"},
			{px(4, 8), ModeOther, "AUTO.FOLLOW_TARGET"},
			{px(4, 9), ModeLand, "AUTO.PRECLAND"},
			{px(4, 10), ModeTakeoff, "AUTO.VTOL_TAKEOFF"},
			{px(5, 0), ModeManual, "ACRO"},
			{px(6, 0), ModeOther, "OFFBOARD"},
			{px(7, 0), ModeManual, "STABILIZED"},
			{px(8, 0), ModeManual, "RATTITUDE"},
			{px(10, 0), ModeOther, "TERMINATION"},
			{0, ModeOther, "MODE 0.0"},
			{px(3, 9), ModeOther, "MODE 3.9"},
			{px(4, 0), ModeOther, "MODE 4.0"},
			{px(4, 255), ModeOther, "MODE 4.255"},
			{px(77, 3), ModeOther, "MODE 77.3"},
		}},
		{"Copter", copter, []row{
			{0, ModeManual, "STABILIZE"}, {1, ModeManual, "ACRO"}, {2, ModeAltitude, "ALT_HOLD"},
			{3, ModeOther, "AUTO"},
			{4, ModeHold, "GUIDED"}, {5, ModePosition, "LOITER"}, {6, ModeRTL, "RTL"}, {7, ModeOther, "CIRCLE"},
			{8, ModeOther, "MODE 8"}, {9, ModeLand, "LAND"}, {10, ModeOther, "MODE 10"}, {11, ModeOther, "DRIFT"},
			{12, ModeOther, "MODE 12"}, {13, ModeOther, "SPORT"}, {14, ModeOther, "FLIP"}, {15, ModeOther, "AUTOTUNE"},
			{16, ModePosition, "POSHOLD"}, {17, ModeHold, "BRAKE"}, {18, ModeOther, "THROW"},
			{19, ModeOther, "AVOID_ADSB"},
			{20, ModeOther, "GUIDED_NOGPS"}, {21, ModeRTL, "SMART_RTL"}, {22, ModeOther, "FLOWHOLD"},
			{23, ModeOther, "FOLLOW"},
			{24, ModeOther, "ZIGZAG"}, {25, ModeOther, "SYSTEMID"}, {26, ModeOther, "AUTOROTATE"},
			{27, ModeRTL, "AUTO_RTL"},
			{28, ModeOther, "TURTLE"}, {29, ModeOther, "MODE 29"}, {196608, ModeOther, "MODE 196608"},
		}},
		{"Plane", plane, planes},
		{"QuadPlane", quadPlane, planes},
		{"ArduRover", arduRover, []row{
			{0, ModeManual, "MANUAL"}, {1, ModeManual, "ACRO"}, {2, ModeOther, "MODE 2"}, {3, ModeOther, "STEERING"},
			{4, ModeHold, "HOLD"}, {5, ModeHold, "LOITER"}, {6, ModeOther, "FOLLOW"}, {7, ModeOther, "SIMPLE"},
			{8, ModeOther, "DOCK"}, {9, ModeOther, "CIRCLE"}, {10, ModeOther, "AUTO"}, {11, ModeRTL, "RTL"},
			{12, ModeRTL, "SMART_RTL"}, {13, ModeOther, "MODE 13"}, {15, ModeHold, "GUIDED"},
			{16, ModeOther, "INITIALISING"},
		}},
		{"ArduSub", arduSub, []row{
			{0, ModeManual, "STABILIZE"}, {1, ModeManual, "ACRO"}, {2, ModeAltitude, "ALT_HOLD"},
			{3, ModeOther, "AUTO"}, {4, ModeHold, "GUIDED"}, {5, ModeOther, "MODE 5"},
			{7, ModeOther, "CIRCLE"}, {9, ModeOther, "SURFACE"},
			{16, ModePosition, "POSHOLD"}, {19, ModeManual, "MANUAL"}, {20, ModeOther, "MOTOR_DETECT"},
			{21, ModeOther, "SURFTRAK"},
		}},
		{"an unknown autopilot", firmwareUnknown, []row{{0, ModeOther, "MODE 0"}, {4, ModeOther, "MODE 4"},
			{196608, ModeOther, "MODE 196608"}}},
	} {
		for _, r := range table.rows {
			t.Run(table.name+" "+r.name, func(t *testing.T) {
				if mode, name := table.f.reported(r.custom); mode != r.mode || name != r.name {
					t.Errorf("%d is %v, %q; want %v, %q", r.custom, mode, name, r.mode, r.name)
				}
			})
		}
	}
}

func TestModesAreReadInAnyCaseAndOtherIsRefused(t *testing.T) {
	for _, m := range requestable {
		for _, s := range []string{m.String(), strings.ToUpper(m.String()), strings.ToUpper(m.String()[:1]) +
			m.String()[1:]} {
			if got, ok := parseMode(s); !ok || got != m {
				t.Errorf("%q is read as %v, %v; want %v", s, got, ok, m)
			}
		}
		if want := m == ModeManual || m == ModeAltitude || m == ModePosition; m.flownBySticks() != want {
			t.Errorf("%v flown by sticks: %v, want %v", m, !want, want)
		}
	}
	for _, s := range []string{"other", "Other", "", " hold", "auto", "AUTO.LOITER", "guided"} {
		if m, ok := parseMode(s); ok {
			t.Errorf("%q is read as %v, want no mode", s, m)
		}
	}
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

// Each walk commands a few modes, and most of its reports show these: so reports meet claims, and the modes that
// were commanded, again and again.
func TestTheMachineAndItsWitnessAgreeOnEveryWalk(t *testing.T) {
	for n := range uint64(walks(1500)) {
		dice := rand.New(rand.NewPCG(n, 1))
		is := []firmware{px4, copter}[n&1]
		few := []byte{byte(dice.IntN(len(requestable))), byte(dice.IntN(len(requestable))), byte(ModeHold)}
		events := []byte{byte(n & 1)}
		for range 30 {
			what := "RRRRRRrratxddddTTAN"[dice.IntN(19)]
			arg := few[dice.IntN(len(few))]
			switch what {
			case 'R', 'r':
				arg = showsMode(t, is, Mode(arg))
				if dice.IntN(4) == 0 {
					arg = byte(dice.IntN(64))
				}
				if dice.IntN(3) == 0 {
					arg |= byte(dice.IntN(4)) << 6
				}
			case 'T':
				arg = byte(dice.IntN(60))
			}
			events = append(events, byte(strings.IndexByte(machineEvents, what)), arg)
		}
		if wrong := walked(events); wrong != "" {
			t.Fatalf("walk %d: %s", n, wrong)
		}
	}
}

// FuzzMachine gives the machine commands, reports, restarts and time in any order.
func FuzzMachine(f *testing.F) {
	const which = "mapthlrso" // manual, altitude, position, takeoff, hold, land, rtl, rtgs, other
	for _, flight := range []string{
		"rh dh ah dt rt at Rt Tz Rh dh ah Rh Tz dl al Rl rl rh Tz", // a takeoff, a goto, a landing
		"Rp dh t. Rh Tz Rh dl Rl al rl rh",                         // a landing at a place
		"Rp dh t. Rh Tz Rr Tz A. rr rh",                            // the same, and a failsafe
		"rm dt at Rt Rm Rh dp ap Rp",                               // the pilot takes over in a takeoff
		"Rh dp Rp x. Rp Tz Tz Tz Rh da aa Rh Tz Tz Tz",             // refused half-way; then not followed
		"Rh dp Rp x. dh Rh ah Rp",                                  // refused, and the pilot's own
		"rh dh ah dp Rh dp dm Rp am Rm dm ro Ro",                   // two steps; one command over another
		"Rh dp Rp dp Rp dl al N. rh Rh",                            // unanswered; restarted
		// a return whose claim has ended, and one whose claim lasts
		"Rh dr Tz Tz Rr Rh dr dp Rr Rp",
		"N. Rh N. dp ap rp", // accepted before the restarted vehicle is heard
	} {
		for fw, autopilot := range []firmware{px4, copter} {
			events := []byte{byte(fw)}
			for e := range strings.FieldsSeq(flight) {
				arg := byte(0)
				if i := strings.IndexByte(which, e[1]); i >= 0 && strings.IndexByte("Rr", e[0]) >= 0 {
					arg = showsMode(f, autopilot, allModes[i])
				} else if i >= 0 {
					arg = byte(i)
				}
				if e[0] == 'T' {
					arg = 25 // 2.5 s
				}
				events = append(events, byte(strings.IndexByte(machineEvents, e[0])), arg)
			}
			f.Add(events)
		}
	}
	f.Fuzz(func(t *testing.T, events []byte) {
		if wrong := walked(events); wrong != "" {
			t.Fatal(wrong)
		}
	})
}

// A landing is repeated while it is not acknowledged.
func TestAStepIsOursFor5sAfterItsLastCopy(t *testing.T) {
	at := time.Now()
	m := machine{known: true, mode: ModeLand, report: report{shownMode: shownMode{custom: px4Custom(4, 3), armed: true},
		mode: ModeHold}}
	m.commanded = &goal{mode: ModeLand, number: px4Custom(4, 3)}
	land := &goal{mode: ModeLand, number: px4Custom(4, 6)}
	m.claim(land, at)
	m.claim(land, at.Add(3*time.Second))
	shown := shownMode{custom: px4Custom(4, 6), armed: true, at: at.Add(followTime + 2*time.Second)}
	if m.judge(report{shownMode: shown, mode: ModeLand}).means == meansTakeover {
		t.Error("the landing that was sent is taken for a pilot's")
	}
}

// The scripts have commas between their clauses. "mode 5" is a CURRENT_MODE, "beat 5 armed" a HEARTBEAT (an armed
// one also shows a failsafe), "restart" a restart of the autopilot. The character '5' is the custom mode.
// "trip 300ms" sets the round trip, "+20ms" lets time pass. "= 5 6 armed" checks the reports that the last
// HEARTBEAT made; "keeps" checks that a number is kept, "empty" that none is.
func TestAReportIsMadeOfAHeartbeatAndOfTheNumbersThatCameBeforeIt(t *testing.T) {
	for name, script := range map[string]string{
		"a HEARTBEAT is a report": "beat 5 armed, = 5 armed, " +
			"empty, beat 5 armed, = 5 armed",
		"before the first HEARTBEAT nothing is kept": "mode 6, empty, beat 5 armed, " +
			"= 5 armed",
		"a new number is kept until a HEARTBEAT shows it": "beat 5 armed, mode 6, keeps, " +
			"beat 6 armed, = 6 armed, empty",
		"an older HEARTBEAT is no report": "beat 5 armed, mode 6, +15ms, " +
			"beat 5 armed, =, keeps, +5ms, beat 6 armed, = 6 armed",
		"the same number again is not new": "beat 5 armed, mode 5, empty, " +
			"mode 6, mode 6, beat 6 armed, = 6 armed",
		"a mode that stood for 12 ms is a report": "beat 5 armed, mode 6, +12ms, " +
			"mode 5, keeps, beat 5 armed, = 6 5 armed",
		"all kept numbers are reports, in their order": "beat 5 armed, mode 6, mode 7, " +
			"mode 8, beat 7 armed, =, beat 8 armed, = 6 7 8 armed",
		"a HEARTBEAT over 320 ms after a kept number is a report": "beat 5 armed, mode 6, +321ms, " +
			"beat 7 armed, = 6 7 armed, empty",
		"a HEARTBEAT over 320 ms later that shows the earlier mode is a report too": "beat 5 armed, mode 6, +321ms, " +
			"beat 5 armed, = 6 5 armed",
		"within 320 ms another mode is no report": "beat 5 armed, mode 6, +320ms, " +
			"beat 7 armed, =",
		"a HEARTBEAT that disarms shows the newest number": "beat 6 armed, mode 5, beat 6 " +
			"disarmed, = 5 disarmed, empty",
		"one that disarms over 320 ms after a kept number shows its own": "beat 6 armed, mode 5, +321ms, " +
			"beat 7 disarmed, = 5 7 disarmed, empty",
		"a HEARTBEAT that disarms while nothing is kept is a report": "beat 6 armed, beat 6 " +
			"disarmed, = 6 disarmed",
		"an older HEARTBEAT that was disarmed already is no report": "beat 6 disarmed, mode 5, beat " +
			"6 disarmed, =, keeps",
		"a restart forgets": "beat 5 armed, mode 6, " +
			"restart, empty, beat 0 disarmed, = 0 disarmed",
	} {
		t.Run(name, func(t *testing.T) {
			var r reports
			var last shownMode
			now, shown := time.Unix(1_700_000_000, 0), ""
			for clause := range strings.SplitSeq(script, ", ") {
				w := strings.Fields(clause)
				switch w[0] {
				case "mode":
					r.hearMode(uint32(w[1][0]), last, now, now)
				case "beat":
					shown = ""
					beat := shownMode{custom: uint32(w[1][0]), armed: w[2] == "armed", failsafe: w[2] == "armed"}
					for _, b := range r.hearHeartbeat(beat, last, departed{left: now, latest: now}, now) {
						last = b
						shown += " " + string(rune(b.custom))
						if b.armed != (w[2] == "armed") || b.failsafe != b.armed {
							t.Errorf("%q: armed %v, failsafe %v", clause, b.armed, b.failsafe)
						}
					}
				case "=":
					if want := strings.TrimSuffix(strings.TrimSuffix(clause, " armed"),
						" disarmed"); "="+shown != want {
						t.Errorf("%s: reports%s, want %s", script, shown, clause)
					}
				case "keeps", "empty":
					if r.keeps() != (w[0] == "keeps") {
						t.Errorf("%s: a number is kept: %v", script, r.keeps())
					}
				case "restart":
					r.restart()
				default:
					d, err := time.ParseDuration(w[0])
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(d)
				}
			}
		})
	}
}

// While a number is kept or a command waits it is requested at once and then every round trip, at least each 20 ms
// and at most each 100 ms.
func TestAHeartbeatIsRequestedByTheAgeOfTheLastAndAtOnceWhereOneIsAwaited(t *testing.T) {
	const ms = time.Millisecond
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		armed, awaited, keeps bool
		trip                  time.Duration
		asked, want           time.Duration // after the last report
	}{
		{false, false, false, 0, -10 * time.Second, 1500 * ms},
		{true, false, false, 0, -10 * time.Second, 200 * ms},
		{true, false, false, 0, 150 * ms, 350 * ms},
		{false, true, false, 300 * ms, -10 * time.Second, -10*time.Second + 100*ms},
		{false, true, false, 0, 5 * ms, 25 * ms},
		{true, true, false, 80 * ms, 5 * ms, 85 * ms},
		{true, false, true, 0, 5 * ms, 25 * ms},
	} {
		r := reports{at: at, asked: at.Add(c.asked)}
		if c.keeps {
			r.kept = []shownMode{{custom: 5}}
		}
		got := r.due(c.armed, c.trip)
		if c.awaited {
			got = r.dueAwaited(c.trip)
		}
		if got.Sub(at) != c.want {
			t.Errorf("%+v: due after %v", c, got.Sub(at))
		}
	}
}
