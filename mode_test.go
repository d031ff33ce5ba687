package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// allModes are the modes that can be reported; all but the last can be requested.
var allModes = []Mode{ModeManual, ModeAltitude, ModePosition, ModeTakeoff, ModeHold, ModeLand, ModeRTL, ModeRTGS, ModeOther}

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
func modesOf(f firmware) []autopilotMode {
	list := slices.Clone(ownModes[f])
	for _, n := range slices.Sorted(maps.Keys(otherModes[f])) {
		list = append(list, autopilotMode{custom: n, name: otherModes[f][n], mode: ModeOther})
	}
	return list
}

// numberOf is the number of the mode with this name: the autopilot's own, in capitals, or ours. For ours it is
// the number that our plans set. They never set "other" and "rtgs": for these it is the first in modesOf.
func numberOf(tb testing.TB, f firmware, name string) uint32 {
	tb.Helper()
	for _, m := range modesOf(f) {
		neverSet := m.mode == ModeOther || m.mode == ModeRTGS
		if m.name == name || neverSet && m.mode.String() == name {
			return m.custom
		}
	}
	return entered[f][modeNamed(tb, name)]
}

// The takeoff of these tests climbs 10 m, to 510 m above mean sea level. It may end from 508 m on.
const highEnough, tooLow = 508.1, 507.9

// commanded is the order of a step that enters the mode; transit means a landing's way to its place.
func commanded(f firmware, m Mode, transit bool) order {
	o := order{mode: m, number: entered[f][m]}
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
	firmware firmware
	now      time.Time
	taken    bool     // the last report was a takeover
	steps    []*order // of the plan that runs
}

func newHearing() *hearing { return &hearing{firmware: px4, now: time.Unix(1_700_000_000, 0)} }

// shows gives the machine a report.
func (f *hearing) shows(custom uint32, armed bool, with ...string) {
	r := report{shownMode: shownMode{custom: custom, armed: armed}, amsl: highEnough}
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
	f.taken = f.judge(r, f.now)
}

// modeShows gives the machine a report of one of our modes.
func (f *hearing) modeShows(t *testing.T, m Mode, armed bool) {
	f.shows(numberOf(t, f.firmware, m.String()), armed)
}

// sends begins a plan and sends its steps. A plan that still runs ends.
func (f *hearing) sends(orders ...order) {
	f.steps = nil
	for _, o := range orders {
		f.sendsAlso(o)
	}
}

// sendsAlso sends one more step of the plan that runs.
func (f *hearing) sendsAlso(o order) {
	f.steps = append(f.steps, &o)
	f.claim(&o, f.now)
}

// accepts ends the plan: its last step, o, was accepted.
func (f *hearing) accepts(o order) {
	f.command(o)
	f.steps = nil
}

// orderNamed is the order of a step by our name of its mode, the autopilot's, or "transit"
// for a landing's way to its place.
func (f *hearing) orderNamed(t *testing.T, name string) order {
	switch {
	case name == "transit":
		return commanded(f.firmware, ModeLand, true)
	case name == strings.ToUpper(name):
		n := numberOf(t, f.firmware, name)
		mode, _ := f.firmware.reported(n)
		return order{mode: mode, number: n}
	}
	return commanded(f.firmware, modeNamed(t, name), false)
}

// hear plays a script to the machine, clauses with commas between:
//
//	on copter                   the autopilot; PX4 where none is named
//	hold armed, BRAKE disarmed  a report, by our name of a mode or the autopilot's
//	hold armed low              … below the height at which a takeoff ends
//	hold armed somewhere        … at an unknown height
//	position disarmed streamed  … while our sticks are streamed
//	taken, ours                 the last report was a takeover, or was not
//	asks hold takeoff           a new plan sends its steps; they lead to these modes
//	asks transit                … the first leg of a landing at a place
//	sends hold                  the plan sends one more step
//	again                       another copy of its last step
//	passed hold                 a step was accepted, and the plan goes on
//	accepted takeoff            the last step was accepted
//	refused                     the last step was refused
//	unanswered                  the plan ended without an answer to its last step
//	restarted                   the autopilot has restarted
//	abandoned                   something ended the way to the landing's place
//	+4.9s                       time passes
//	= hold                      the mode now is hold
//
// It returns what is wrong, or "".
func (f *hearing) hear(t *testing.T, script string) string {
	t.Helper()
	for clause := range strings.SplitSeq(script, ",") {
		w := strings.Fields(clause)
		switch {
		case w[0] == "taken" || w[0] == "ours":
			if f.taken != (w[0] == "taken") {
				return fmt.Sprintf("taken is %v, want %s", f.taken, w[0])
			}
		case w[0][0] == '+':
			d, err := time.ParseDuration(w[0][1:])
			if err != nil {
				t.Fatal(err)
			}
			f.now = f.now.Add(d)
		case w[0] == "=":
			if want := modeNamed(t, w[1]); f.mode != want {
				return fmt.Sprintf("mode %v, want %v", f.mode, want)
			}
		case len(w) >= 2 && (w[1] == "armed" || w[1] == "disarmed"):
			f.shows(numberOf(t, f.firmware, w[0]), w[1] == "armed", w[2:]...)
		case !f.hearPlan(t, w):
			t.Fatalf("no such clause: %q", clause)
		}
	}
	return ""
}

// hearPlan plays hear's other clauses, those of plans and of the autopilot. known is false for any other word.
func (f *hearing) hearPlan(t *testing.T, w []string) (known bool) {
	switch w[0] {
	case "on":
		f.firmware = map[string]firmware{"copter": copter, "quadplane": quadPlane, "plane": plane}[w[1]]
	case "asks":
		f.sends()
		for _, m := range w[1:] {
			f.sendsAlso(f.orderNamed(t, m))
		}
	case "sends":
		f.sendsAlso(f.orderNamed(t, w[1]))
	case "again":
		f.claim(f.steps[len(f.steps)-1], f.now)
	case "passed":
		f.command(f.orderNamed(t, w[1]))
	case "accepted":
		f.accepts(f.orderNamed(t, w[1]))
	case "refused":
		f.machine.refused(f.steps[len(f.steps)-1])
		f.steps = nil
	case "unanswered":
		f.steps = nil
	case "restarted":
		f.restart()
	case "abandoned":
		f.abandon()
	default:
		return false
	}
	return true
}

// rule is a sentence and the script that shows it.
type rule struct{ name, flight string }

func testRules(t *testing.T, rules []rule) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if wrong := newHearing().hear(t, r.flight); wrong != "" {
				t.Errorf("%s: %s", r.flight, wrong)
			}
		})
	}
}

func TestFirstContactOnlyCountsArmed(t *testing.T) {
	testRules(t, []rule{
		{"a drone that was never heard is in manual", "= manual"},
		{"a disarmed vehicle stays manual whatever its mode", "hold disarmed, = manual, hold disarmed, = manual"},
		{"disarmed in RTL it is manual too", "rtl disarmed, rtl disarmed, = manual"},
		{"a link that restarts in flight finds the mode", "hold armed, = hold"},
		{"a link that restarts in a failsafe shows it", "rtl armed, = rtl"},
		{"armed later, the mode is the reported one", "hold disarmed, hold armed, = hold"},
		{"a switch on the ground shows", "hold disarmed, position disarmed, taken, = position"},
		{"a vehicle that was disarmed at first contact is still manual after 10 s", "hold disarmed, +10s, hold disarmed, = manual"},
	})
	for _, m := range allModes {
		t.Run("disarmed in "+m.String(), func(t *testing.T) {
			f := newHearing()
			if f.modeShows(t, m, false); f.mode != ModeManual || f.taken {
				t.Errorf("mode %v, taken %v; want manual", f.mode, f.taken)
			}
		})
		t.Run("armed in "+m.String(), func(t *testing.T) {
			f := newHearing()
			if f.modeShows(t, m, true); f.mode != m {
				t.Errorf("mode %v, want %v", f.mode, m)
			}
		})
	}
}

// everyChange calls test with a machine in each mode and each mode to ask for.
func everyChange(t *testing.T, test func(t *testing.T, f *hearing, from Mode, to order)) {
	for _, from := range allModes {
		for _, to := range requestable {
			t.Run(fmt.Sprintf("%v to %v", from, to), func(t *testing.T) {
				f := newHearing()
				f.modeShows(t, from, true)
				test(t, f, from, commanded(px4, to, false))
			})
		}
	}
}

func TestAcceptedCommandIsTheModeFromEveryMode(t *testing.T) {
	everyChange(t, func(t *testing.T, f *hearing, from Mode, to order) {
		f.sends(to)
		if f.mode != from {
			t.Errorf("before the ack: mode %v, want %v", f.mode, from)
		}
		f.accepts(to)
		if f.mode != to.mode {
			t.Errorf("accepted: mode %v, want %v", f.mode, to.mode)
		}
		f.modeShows(t, from, true) // its last report before the change
		if f.mode != to.mode || f.taken {
			t.Errorf("after an old report: mode %v, want %v", f.mode, to.mode)
		}
		f.shows(to.number, true)
		if f.mode != to.mode || f.taken {
			t.Errorf("followed: mode %v, want %v", f.mode, to.mode)
		}
	})
}

// TestReportBeforeTheAckIsOursAndIsTheMode: until the step is accepted the mode is the reported one.
func TestReportBeforeTheAckIsOursAndIsTheMode(t *testing.T) {
	everyChange(t, func(t *testing.T, f *hearing, from Mode, to order) {
		was := f.last.custom
		f.sends(to)
		f.shows(to.number, true)
		shown, _ := px4.reported(to.number)
		if f.taken || was != to.number && f.mode != shown {
			t.Errorf("before the ack: mode %v, taken %v; want %v", f.mode, f.taken, shown)
		}
		if f.accepts(to); f.mode != to.mode {
			t.Errorf("accepted: mode %v, want %v", f.mode, to.mode)
		}
	})
}

func TestRefusedCommandChangesNothingInAnyMode(t *testing.T) {
	everyChange(t, func(t *testing.T, f *hearing, from Mode, to order) {
		f.sends(to)
		f.machine.refused(f.steps[0])
		f.modeShows(t, from, true)
		if f.mode != from || f.taken {
			t.Errorf("mode %v, want %v", f.mode, from)
		}
	})
}

// belongs is rule 3's table: which reports belong to a commanded mode. It goes by the
// autopilot's own numbers. RTL belongs to a return only, so that a failsafe always shows.
func belongs(o order, r report) bool {
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
func endsTakeoff(o order, r report) bool {
	return o.end != 0 && r.custom == o.end && r.armed && r.amsl >= o.endAMSL
}

// followsStream reports whether PX4 set this mode because of our stream: on the ground it
// goes to POSCTL by itself while sticks are sent.
func followsStream(r report) bool {
	return !r.armed && r.streamed && r.custom == px4Custom(3, 0)
}

// everyReport calls test with each commanded mode, on an armed and a disarmed vehicle, and
// with each report of the autopilot, near the height at which a takeoff ends and below it.
func everyReport(t *testing.T, test func(t *testing.T, f *hearing, o order, r report)) {
	for _, fw := range []firmware{px4, copter, quadPlane} {
		for _, c := range requestable {
			for _, transit := range []bool{false, true} {
				for _, m := range append(modesOf(fw), autopilotMode{custom: 99, mode: ModeOther}) {
					for i := range 16 { // a bit for each fact: the report's armed, low, streamed; armed before it
						r := report{shownMode: shownMode{custom: m.custom, armed: i&1 != 0}, mode: m.mode, amsl: highEnough, streamed: i&4 != 0}
						if i&2 != 0 {
							r.amsl = tooLow
						}
						wasArmed := i&8 != 0
						if c == ModeTakeoff && !wasArmed || transit && c != ModeLand {
							continue // a takeoff has not begun; only a landing has a way to its place
						}
						f := newHearing()
						f.firmware = fw
						f.modeShows(t, ModeAltitude, wasArmed)
						o := commanded(fw, c, transit)
						f.accepts(o)
						f.shows(o.number, wasArmed)
						if f.mode != c || f.taken {
							t.Fatalf("firmware %d: commanded %v is %v, taken %v", fw, c, f.mode, f.taken)
						}
						test(t, f, o, r)
						if t.Failed() {
							t.Fatalf("firmware %d: %v transit=%v, armed=%v, reports %+v", fw, c, transit, wasArmed, r)
						}
					}
				}
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestNewReportShowsUnlessItBelongsToTheCommand(t *testing.T) {
	everyReport(t, func(t *testing.T, f *hearing, o order, r report) {
		want, taken := r.mode, r.armed || !f.last.armed // a report of disarming is no takeover
		if belongs(o, r) {
			want, taken = o.mode, false
		}
		if f.taken = f.judge(r, f.now); f.mode != want || f.taken != taken {
			t.Errorf("mode %v, taken %v; want %v, %v", f.mode, f.taken, want, taken)
		}
		if again := f.judge(r, f.now.Add(time.Minute)); again || f.mode != want {
			t.Errorf("the same a minute later: mode %v, taken %v; want %v", f.mode, again, want)
		}
	})
}

func TestManoeuvreThatEndsByItselfNeverShows(t *testing.T) {
	testRules(t, []rule{
		{"after a takeoff a report of hold changes nothing", "hold disarmed, accepted takeoff, takeoff armed, hold armed, = takeoff"},
		{"a takeoff stays until a new command, however long", "hold disarmed, accepted takeoff, takeoff armed, hold armed, +1h, hold armed, = takeoff"},
		{"after the climb another climb is still the takeoff", "hold disarmed, accepted takeoff, takeoff armed, hold armed, takeoff armed, hold armed, = takeoff"},
		{"a takeoff in GUIDED is never reported as one", "on copter, manual disarmed, accepted takeoff, hold armed, = takeoff"},
		{"a new command ends the takeoff", "hold disarmed, accepted takeoff, takeoff armed, accepted hold, = hold, hold armed, = hold"},
		{"a takeoff that the pilot began ends as reported", "position armed, takeoff armed, = takeoff, hold armed, = hold"},
		{"a takeoff that the pilot interrupted is not ours any more", "hold disarmed, accepted takeoff, takeoff armed, position armed, = position, takeoff armed, = takeoff, hold armed, = hold"},

		{"a landing stays land through touch-down and disarming", "hold armed, accepted land, land armed, land disarmed, = land"},
		{"PX4 falls back to hold once disarmed", "hold armed, accepted land, land armed, land disarmed, hold disarmed, ours, = land"},
		{"PX4 falls back to position once disarmed", "hold armed, accepted land, land armed, position disarmed, ours, = land"},
		{"any fall-back after disarming is the landing's end", "hold armed, accepted land, land armed, land disarmed, position disarmed, manual disarmed, other disarmed, ours, = land"},
		{"RTL is no fall-back", "hold armed, accepted land, land armed, land disarmed, rtl disarmed, taken, = rtl"},
		{"armed again after a landing it is what it reports", "hold armed, accepted land, land armed, hold disarmed, hold armed, ours, = hold"},
		{"hold before disarming is no landing", "position armed, accepted land, land armed, hold armed, taken, = hold"},
		{"a landing that the pilot began ends as reported", "position armed, land armed, = land, land disarmed, = land, hold disarmed, = hold"},

		{"on the way to the place hold is the landing", "position armed, accepted transit, hold armed, +1m, hold armed, = land"},
		{"the landing over the place is the same landing", "position armed, accepted transit, hold armed, accepted land, = land, land armed, = land"},
		{"over the place hold is no longer explained", "position armed, accepted transit, hold armed, accepted land, land armed, hold armed, taken, = hold"},
		{"the last report of the way is not new over the place", "position armed, accepted transit, hold armed, accepted land, hold armed, = land, land armed, = land"},
		{"the place is reached, landed on and left disarmed", "position armed, accepted transit, hold armed, asks land, land armed, ours, accepted land, land disarmed, hold disarmed, = land"},
		{"a new command ends the way to the place", "position armed, accepted transit, hold armed, accepted position, = position, position armed, hold armed, taken, = hold"},

		{"PX4 returns to its ground station in RTL", "hold armed, accepted rtgs, rtl armed, +1m, rtl armed, = rtgs"},
		{"a return that ends in hold is still the return", "hold armed, accepted rtgs, rtl armed, hold disarmed, ours, = rtgs"},
		{"rtl does not explain rtgs", "hold armed, accepted rtl, rtl armed, rtgs armed, taken, = rtgs"},
		{"a hold explains only a report of hold", "position armed, accepted hold, hold armed, takeoff armed, taken, = takeoff"},
	})
}

func TestPilotsSwitchAlwaysShows(t *testing.T) {
	testRules(t, []rule{
		{"in a takeoff", "hold disarmed, accepted takeoff, takeoff armed, position armed, taken, = position"},
		{"after a takeoff", "hold disarmed, accepted takeoff, takeoff armed, hold armed, position armed, taken, = position"},
		{"in a goto", "position armed, accepted hold, hold armed, manual armed, taken, = manual"},
		{"in a landing", "hold armed, accepted land, land armed, altitude armed, taken, = altitude"},
		{"on the way to the place", "position armed, accepted transit, hold armed, position armed, taken, = position"},
		{"in a return", "hold armed, accepted rtl, rtl armed, position armed, taken, = position"},
		{"in position mode, which the API asked for", "hold armed, accepted position, position armed, hold armed, taken, = hold"},
		{"to a mode that the API has no word for", "hold armed, accepted position, position armed, other armed, taken, = other"},
		{"there and back", "hold armed, accepted hold, hold armed, position armed, hold armed, taken, = hold"},
		{"to the takeoff's hold, after an earlier takeover", "hold disarmed, accepted takeoff, takeoff armed, manual armed, hold armed, taken, = hold"},
		{"right after an ack, to a third mode", "hold armed, accepted position, manual armed, taken, = manual"},
		{"right after an ack, back to where it was", "hold armed, asks position, position armed, accepted position, hold armed, taken, = hold"},
		{"to where it was, while the plan waits for its acks", "hold armed, asks position, position armed, ours, hold armed, taken, = hold"},
		{"while it arms", "hold disarmed, position armed, taken, = position"},
		{"disarmed", "hold disarmed, accepted position, position disarmed, hold disarmed, taken, = hold"},
	})
}

func TestFailsafeAlwaysShows(t *testing.T) {
	for _, c := range requestable {
		t.Run("RTL in commanded "+c.String(), func(t *testing.T) {
			for _, armed := range []bool{true, false} {
				f := newHearing()
				f.modeShows(t, ModeAltitude, true)
				o := commanded(px4, c, c == ModeLand)
				f.accepts(o)
				f.shows(o.number, true)
				f.modeShows(t, ModeRTL, armed)
				want := ModeRTL
				if c == ModeRTGS {
					want = ModeRTGS
				}
				if f.mode != want {
					t.Errorf("armed=%v: mode %v, want %v", armed, f.mode, want)
				}
			}
		})
	}
	testRules(t, []rule{
		{"after a climb", "hold disarmed, accepted takeoff, takeoff armed, hold armed, rtl armed, taken, = rtl"},
		{"on the way to the place", "position armed, accepted transit, hold armed, rtl armed, taken, = rtl"},
		{"between an ack and the report of its mode", "hold armed, accepted position, rtl armed, taken, = rtl"},
		{"while a plan waits for its acks", "hold armed, asks position, rtl armed, taken, = rtl"},
		{"while it arms", "hold disarmed, asks hold, rtl armed, taken, = rtl"},
		{"after a refused plan", "hold armed, asks position, position armed, refused, rtl armed, taken, = rtl"},
		{"a return that the refused plan ended", "rtl armed, asks hold, hold armed, refused, rtl armed, taken, hold armed, taken, rtl armed, taken, = rtl"},
		{"a second time", "rtl armed, accepted hold, hold armed, = hold, rtl armed, taken, = rtl"},
		{"a second time, when the report of hold came before the ack", "rtl armed, asks hold, hold armed, accepted hold, rtl armed, taken, = rtl"},
		{"it ends as the autopilot reports", "hold armed, accepted hold, rtl armed, land armed, = land, hold disarmed, = hold"},
		{"a failsafe that ended the way to the place in hold", "position armed, accepted transit, hold armed, abandoned, = hold, hold armed, = hold"},
		{"after that hold is no longer the landing", "position armed, accepted transit, hold armed, abandoned, land armed, = land, hold disarmed, = hold"},
	})
}

func TestEqualReportNeverChangesTheMode(t *testing.T) {
	for _, c := range requestable {
		for _, m := range allModes {
			for _, armed := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v commanded in %v armed=%v", c, m, armed), func(t *testing.T) {
					f := newHearing()
					f.modeShows(t, ModeAltitude, true)
					f.modeShows(t, m, armed)
					f.accepts(commanded(px4, c, false))
					for range 4 {
						f.modeShows(t, m, armed)
						f.now = f.now.Add(time.Second)
						if f.mode != c || f.taken {
							t.Errorf("mode %v, want %v", f.mode, c)
						}
					}
				})
			}
		}
	}
	testRules(t, []rule{
		{"the last report before the change is not new", "hold armed, accepted position, hold armed, = position, position armed, = position"},
		{"the last report before a plan is not new after the plan", "hold armed, asks position, hold armed, accepted position, hold armed, = position"},
		{"the last report before two plans is not new after them", "hold armed, asks position, position armed, asks manual, accepted manual, position armed, = manual"},
		{"the last report is not new when a goto leads to the same mode", "hold armed, accepted position, asks hold, hold armed, = position, refused, position armed, ours, = position"},
		{"the last report is not new when a landing at a place is refused in hold", "hold armed, asks transit, hold armed, = hold, refused, hold armed, = hold"},
		{"the last report is not new when a landing at a place is never answered", "hold armed, asks transit, hold armed, unanswered, hold armed, = hold"},
	})
}

// TestIntermediateModesShow is rule 2: the mode is the vehicle's also in the middle of a plan.
func TestIntermediateModesShow(t *testing.T) {
	testRules(t, []rule{
		{"step by step", "manual disarmed, asks hold, hold disarmed, ours, = hold, passed hold, sends takeoff, = hold, takeoff armed, ours, = takeoff, accepted takeoff, = takeoff"},
		{"the way out of a stick mode", "altitude armed, asks position, position armed, ours, = position, passed position, sends hold, hold armed, ours, = hold, accepted hold, = hold"},
		{"sticks that take PX4 to a mode of the plan", "hold armed, asks position altitude, position armed, ours, = position, altitude armed, ours, = altitude, accepted altitude, = altitude"},
		{"Copter stops in BRAKE", "on copter, position armed, accepted hold, GUIDED armed, asks BRAKE, BRAKE armed, ours, passed BRAKE, = hold, sends hold, GUIDED armed, ours, accepted hold, = hold"},
		{"a mode that was acknowledged and not shown counts for 5 s", "altitude armed, asks position, passed position, = position, sends hold, altitude armed, = position, position armed, ours, hold armed, ours, accepted hold, = hold"},
		{"rtgs shows when its step is accepted, until then rtl", "hold armed, asks rtgs, rtl armed, ours, = rtl, accepted rtgs, = rtgs"},
		{"land shows when its way is accepted, until then hold", "position armed, asks transit, hold armed, ours, = hold, accepted transit, = land"},
		{"takeoff shows when its step in GUIDED is accepted", "on copter, manual disarmed, asks hold, GUIDED disarmed, passed hold, GUIDED armed, sends takeoff, GUIDED armed, = hold, accepted takeoff, = takeoff"},
		{"a way to a landing that is never accepted shows as hold", "position armed, asks transit, hold armed, ours, unanswered, +1m, hold armed, = hold"},
		{"a pilot's switch that no step explains shows", "hold armed, asks position, manual armed, taken, = manual"},
		{"an ack that comes after a pilot's switch counts", "hold armed, asks position, manual armed, taken, accepted position, = position, manual armed, = position, position armed, = position"},
		{"a pilot's switch stays where the plan is then refused", "hold armed, asks position, manual armed, taken, refused, = manual"},
		{"a report that belongs to the mode so far changes nothing", "hold disarmed, accepted takeoff, takeoff armed, asks position, hold armed, ours, = takeoff, refused, = takeoff"},
	})
}

func TestRefusedPlanLeavesWhatTheVehicleShows(t *testing.T) {
	testRules(t, []rule{
		{"at once", "hold armed, asks position, refused, = hold"},
		{"after its first step", "hold armed, asks position, position armed, passed position, sends altitude, refused, = position"},
		{"a refused step explains no report", "hold armed, asks position, refused, position armed, taken, = position"},
		{"the copies of a refused step explain no report", "hold armed, asks position, again, again, refused, position armed, taken, = position"},
		{"the step before it explains its report", "hold armed, asks position, passed position, sends altitude, refused, position armed, ours, = position, altitude armed, taken, = altitude"},
		{"a plan back to the first mode", "hold armed, asks position, position armed, passed position, sends altitude, refused, asks hold, hold armed, ours, accepted hold, = hold"},
		{"after a plan back to the first mode the refused plan's mode is a takeover", "hold armed, asks position, position armed, passed position, sends altitude, refused, asks hold, hold armed, accepted hold, position armed, taken, = position"},
		{"a report of another mode shows at once", "hold armed, asks position, refused, manual armed, taken, = manual"},
		{"the first mode is kept though nobody commanded it", "hold disarmed, asks position, refused, hold disarmed, = manual"},
		{"a takeoff whose arming is refused", "manual disarmed, asks hold, hold disarmed, passed hold, unanswered, asks manual, manual disarmed, ours, accepted manual, = manual"},
		{"a landing keeps its way to the place", "position armed, accepted transit, hold armed, asks position, refused, hold armed, = land"},
		{"a takeoff keeps its hold", "hold disarmed, accepted takeoff, takeoff armed, hold armed, asks land, refused, hold armed, = takeoff"},
		{"a return to the ground station keeps its RTL", "hold armed, accepted rtgs, rtl armed, asks hold, refused, rtl armed, = rtgs"},
		{"a climb that ends meanwhile is still the takeoff", "hold disarmed, accepted takeoff, takeoff armed, asks altitude, refused, hold armed, ours, = takeoff"},
		{"a switch back to the mode before the last accepted command is a pilot's", "position armed, accepted hold, asks hold, hold armed, refused, +1s, position armed, taken, = position"},
		{"a change back to the RTL before the last accepted command is a failsafe", "rtl armed, accepted hold, asks hold, refused, hold armed, +1s, rtl armed, taken, = rtl"},
		{"RTL after a refused return may be a failsafe", "hold armed, asks rtl, refused, rtl armed, taken, = rtl"},
	})
}

// TestAStepExplainsItsModeWhileItsClaimLasts is rule 3: a report of a mode that was sent is ours
// once, and for a limited time.
func TestAStepExplainsItsModeWhileItsClaimLasts(t *testing.T) {
	testRules(t, []rule{
		{"before it is sent the same mode is a pilot's", "hold armed, position armed, taken, = position"},
		{"until a report shows it", "hold armed, asks position altitude, position armed, ours, altitude armed, ours, position armed, taken, = position"},
		{"until a report shows a later step", "hold armed, asks position altitude, altitude armed, ours, position armed, taken, = position"},
		{"until a report shows a step of the next plan", "hold armed, asks position, asks manual, manual armed, ours, position armed, taken, = position"},
		{"two plans that show one after the other", "hold armed, asks position, asks manual, position armed, ours, manual armed, ours, = manual"},
		{"two plans that lead to the same mode", "hold armed, asks position, asks manual, asks position, position armed, ours, manual armed, ours, position armed, ours"},
		{"a report of the last mode does not end the claim", "hold armed, accepted position, asks hold, hold armed, position armed, ours, hold armed, ours, = hold"},
		{"back to the first mode, and asked again at once", "hold disarmed, asks takeoff, takeoff disarmed, ours, unanswered, asks hold, asks takeoff, hold disarmed, ours, takeoff disarmed, ours"},

		{"for 5 s after an unanswered plan", "hold armed, asks position, unanswered, +4.9s, position armed, ours, = position"},
		{"no longer than 5 s", "hold armed, asks position, unanswered, +5s, position armed, taken, = position"},
		{"a newer plan does not lengthen the 5 s", "hold armed, asks position, unanswered, +3s, asks manual, unanswered, +2s, position armed, taken, = position"},
		{"a report of the present mode changes nothing", "hold armed, accepted hold, asks position, unanswered, hold armed, ours, = hold"},
		{"a report of the commanded mode keeps that mode", "hold armed, accepted takeoff, takeoff armed, asks position, unanswered, hold armed, ours, = takeoff"},
		{"a report of the claimed mode ends the commanded one", "hold armed, accepted takeoff, takeoff armed, asks position, unanswered, position armed, ours, = position, hold armed, taken, = hold"},

		{"until a newer command is accepted", "hold armed, asks position, unanswered, asks manual, manual armed, accepted manual, position armed, taken, = position"},
		{"until a newer command is accepted, though no report shows it yet", "hold armed, asks position, unanswered, asks manual, accepted manual, position armed, taken, = position"},
		{"until a step of a newer plan is accepted, though the plan goes on", "hold armed, asks position, unanswered, asks manual, passed manual, position armed, taken, = position"},
		{"until a newer command is accepted that had to send nothing", "hold armed, asks position, unanswered, accepted hold, position armed, taken, = position"},
		{"a refused newer command does not end the claim", "hold armed, asks position, unanswered, asks manual, refused, position armed, ours, = position"},
		{"an accepted plan ends the claims of its own earlier steps", "hold armed, asks position hold, accepted hold, position armed, taken, = position"},
		{"until a takeover", "hold armed, asks position, altitude armed, taken, position armed, taken, = position"},
		{"until a takeover after the plan has ended", "hold armed, asks position, unanswered, altitude armed, taken, position armed, taken, = position"},
		{"until a restart", "hold armed, asks position, restarted, unanswered, position armed, taken, = position"},

		{"a return", "hold armed, asks rtl, rtl armed, ours, = rtl"},
	})
}

// TestUnansweredPlansDoNotPileUp: a client may repeat a command for hours.
func TestUnansweredPlansDoNotPileUp(t *testing.T) {
	f := newHearing()
	f.hear(t, "hold armed")
	for range 1000 {
		f.hear(t, "asks position, again, again, again, again, +2s, unanswered")
	}
	if len(f.sent) > 4 {
		t.Errorf("%d steps are remembered", len(f.sent))
	}
}

// TestTheMachineKnowsWhichModesAreClaimed: the sticks need to know whether a stick mode may still show.
func TestTheMachineKnowsWhichModesAreClaimed(t *testing.T) {
	for flight, want := range map[string]bool{
		"hold armed":                                   false,
		"hold armed, asks position":                    true,
		"hold armed, asks position, +4.9s":             true,
		"hold armed, asks position, +5s":               false,
		"hold armed, asks altitude":                    false,
		"hold armed, asks position, position armed":    false,
		"hold armed, asks position, refused":           false,
		"hold armed, asks position, passed position":   false,
		"hold armed, asks position, accepted position": false,
	} {
		f := newHearing()
		f.hear(t, flight)
		position := numberOf(t, px4, "position")
		if claimed := f.claimed(f.now, func(to *order) bool { return to.number == position }) >= 0; claimed != want {
			t.Errorf("%s: claimed is %v", flight, claimed)
		}
	}
}

// TestReportThatOnlyArmsOrDisarmsIsNoTakeover: nor is the mode that an autopilot falls back
// to when it disarms.
func TestReportThatOnlyArmsOrDisarmsIsNoTakeover(t *testing.T) {
	testRules(t, []rule{
		{"arming a drone that is manual since first contact shows its reported mode", "hold disarmed, hold armed, ours, = hold"},
		{"arming keeps the mode that was asked for", "hold disarmed, accepted position, position disarmed, position armed, ours, = position"},
		{"disarming keeps the mode", "position armed, position disarmed, ours, = position"},
		{"disarming after a landing keeps land", "hold armed, accepted land, land armed, land disarmed, ours, = land, hold disarmed, ours, = land"},
		{"disarming after a takeoff's end shows the reported mode", "hold disarmed, accepted takeoff, takeoff armed, hold armed, hold disarmed, ours, = hold"},
		{"a mode that the vehicle falls back to shows", "position armed, accepted position, position armed, hold disarmed, ours, = hold"},
		{"a fall-back to RTL shows", "hold armed, accepted land, land armed, rtl disarmed, ours, = rtl"},
		{"a claim outlasts a disarming", "hold armed, asks position, altitude disarmed, ours, = altitude, position disarmed, ours, = position"},
		{"arming in another mode is a takeover", "hold disarmed, accepted hold, hold disarmed, altitude armed, taken, = altitude"},
	})
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
		{12, ModeOther, "LOITER"}, {13, ModeTakeoff, "TAKEOFF"}, {14, ModeOther, "AVOID_ADSB"}, {15, ModeHold, "GUIDED"},
		{16, ModeOther, "INITIALISING"}, {17, ModeManual, "QSTABILIZE"}, {18, ModeAltitude, "QHOVER"}, {19, ModePosition, "QLOITER"},
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
			{0, ModeManual, "STABILIZE"}, {1, ModeManual, "ACRO"}, {2, ModeAltitude, "ALT_HOLD"}, {3, ModeOther, "AUTO"},
			{4, ModeHold, "GUIDED"}, {5, ModePosition, "LOITER"}, {6, ModeRTL, "RTL"}, {7, ModeOther, "CIRCLE"},
			{8, ModeOther, "MODE 8"}, {9, ModeLand, "LAND"}, {10, ModeOther, "MODE 10"}, {11, ModeOther, "DRIFT"},
			{12, ModeOther, "MODE 12"}, {13, ModeOther, "SPORT"}, {14, ModeOther, "FLIP"}, {15, ModeOther, "AUTOTUNE"},
			{16, ModePosition, "POSHOLD"}, {17, ModeHold, "BRAKE"}, {18, ModeOther, "THROW"}, {19, ModeOther, "AVOID_ADSB"},
			{20, ModeOther, "GUIDED_NOGPS"}, {21, ModeRTL, "SMART_RTL"}, {22, ModeOther, "FLOWHOLD"}, {23, ModeOther, "FOLLOW"},
			{24, ModeOther, "ZIGZAG"}, {25, ModeOther, "SYSTEMID"}, {26, ModeOther, "AUTOROTATE"}, {27, ModeRTL, "AUTO_RTL"},
			{28, ModeOther, "TURTLE"}, {29, ModeOther, "MODE 29"}, {196608, ModeOther, "MODE 196608"},
		}},
		{"Plane", plane, planes},
		{"QuadPlane", quadPlane, planes},
		{"an unknown autopilot", firmwareUnknown, []row{{0, ModeOther, "MODE 0"}, {4, ModeOther, "MODE 4"}, {196608, ModeOther, "MODE 196608"}}},
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

func TestFirmwareByTheHeartbeat(t *testing.T) {
	ardupilot := map[common.MAV_TYPE]firmware{
		1: plane, 2: copter, 3: copter, 4: copter, 13: copter, 14: copter, 15: copter, 29: copter, 35: copter,
		19: quadPlane, 20: quadPlane, 21: quadPlane, 22: quadPlane, 23: quadPlane, 24: quadPlane, 25: quadPlane,
	}
	for typ := common.MAV_TYPE(0); typ < 50; typ++ { // 10 is a rover, 12 a submarine: unknown here
		if got, want := (identity{autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA, typ: typ}).firmware(), ardupilot[typ]; got != want {
			t.Errorf("ArduPilot on MAV_TYPE %d is %d, want %d", typ, got, want)
		}
		if got := (identity{autopilot: common.MAV_AUTOPILOT_PX4, typ: typ}).firmware(); got != px4 {
			t.Errorf("PX4 on MAV_TYPE %d is %d, want %d", typ, got, px4)
		}
		for _, other := range []common.MAV_AUTOPILOT{common.MAV_AUTOPILOT_GENERIC, common.MAV_AUTOPILOT_INVALID, 200} {
			if got := (identity{autopilot: other, typ: typ}).firmware(); got != firmwareUnknown {
				t.Errorf("autopilot %d on MAV_TYPE %d is %d, want unknown", other, typ, got)
			}
		}
	}
}

func TestModesAreReadInAnyCaseAndOtherIsRefused(t *testing.T) {
	for _, m := range requestable {
		for _, s := range []string{m.String(), strings.ToUpper(m.String()), strings.ToUpper(m.String()[:1]) + m.String()[1:]} {
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

// Rule 3 goes by the autopilot's own numbers: a pilot's POSHOLD is a takeover in our
// position mode, LOITER, though both are reported as position.
func TestAReportBelongsToACommandByTheAutopilotsOwnNumber(t *testing.T) {
	testRules(t, []rule{
		{"BRAKE in a goto", "on copter, position armed, accepted hold, hold armed, ours, BRAKE armed, taken, = hold"},
		{"BRAKE after our own hold", "on copter, hold armed, asks BRAKE, BRAKE armed, passed BRAKE, sends hold, GUIDED armed, ours, accepted hold, BRAKE armed, taken, = hold"},
		{"GUIDED while our own BRAKE is in force", "on copter, hold armed, asks BRAKE, BRAKE armed, ours, passed BRAKE, GUIDED armed, taken, = hold"},
		{"BRAKE in a takeoff", "on copter, hold disarmed, accepted takeoff, hold armed, ours, BRAKE armed, taken, = hold"},
		{"BRAKE on the way to a landing's place, and GUIDED after it", "on copter, position armed, accepted transit, hold armed, ours, BRAKE armed, taken, = hold, GUIDED armed, taken, = hold"},
		{"QSTABILIZE, which has BRAKE's number, in a QuadPlane's goto", "on quadplane, position armed, accepted hold, hold armed, QSTABILIZE armed, taken, = manual"},
		{"POSHOLD in position mode", "on copter, hold armed, accepted position, LOITER armed, ours, POSHOLD armed, taken, = position"},
		{"SMART_RTL in a return", "on copter, hold armed, accepted rtl, RTL armed, ours, SMART_RTL armed, taken, = rtl"},
		{"STABILIZED in manual mode", "hold armed, accepted manual, MANUAL armed, ours, STABILIZED armed, taken, = manual"},
		{"precision landing in a landing", "hold armed, accepted land, AUTO.LAND armed, ours, AUTO.PRECLAND armed, taken, = land"},
	})
}

// PX4 leaves AUTO.TAKEOFF 0.8 m below the takeoff's height, still climbing. A pilot's Hold
// in the middle of the climb comes lower.
func TestTakeoffEndsAtItsHeight(t *testing.T) {
	testRules(t, []rule{
		{"near that height hold is the takeoff's end", "hold disarmed, accepted takeoff, takeoff armed low, hold armed, ours, = takeoff"},
		{"a takeoff that is at its height at once may show only its end", "position armed, asks takeoff, hold armed, ours, = hold, accepted takeoff, = takeoff, takeoff armed, hold armed, ours"},
		{"lower down such an end is a takeover", "position armed, asks takeoff, hold armed low, taken, = hold"},
		{"lower down hold is a takeover", "hold disarmed, accepted takeoff, takeoff armed low, hold armed low, taken, = hold"},
		{"at an unknown height hold is a takeover", "hold disarmed, accepted takeoff, takeoff armed low, hold armed somewhere, taken, = hold"},
		{"a hold that sinks after the takeoff's end is the same hold", "hold disarmed, accepted takeoff, takeoff armed, hold armed, hold armed low, ours, = takeoff"},
		{"GUIDED is Copter's takeoff at any height", "on copter, hold disarmed, accepted takeoff, hold armed low, ours, = takeoff"},
		{"a hold while disarmed is no takeoff's end", "hold disarmed, accepted takeoff, takeoff armed, hold disarmed, = hold"},
	})
}

func TestRestartedVehicleIsInItsInitialState(t *testing.T) {
	testRules(t, []rule{
		{"disarmed, whatever was commanded", "hold armed, accepted land, land armed, restarted, hold disarmed, ours, = manual"},
		{"in the mode that was commanded", "hold disarmed, accepted position, position disarmed, restarted, position disarmed, ours, = manual"},
		{"in the mode that a stream leads to", "hold disarmed, accepted hold, hold disarmed, restarted, position disarmed streamed, ours, = manual"},
		{"armed, it is what it reports", "hold armed, accepted takeoff, takeoff armed, restarted, hold armed, taken, = hold"},
		{"an accepted mode that no report showed is forgotten", "hold armed, accepted position, restarted, hold disarmed, +10s, = manual"},
		{"armed later, it is what it reports", "hold armed, accepted land, restarted, hold disarmed, hold armed, = hold"},
		{"it takes commands as before", "hold armed, accepted land, restarted, hold disarmed, asks takeoff, takeoff disarmed, accepted takeoff, takeoff armed, ours, = takeoff"},
		{"a step that was sent after the restart is ours", "hold armed, restarted, asks position, position armed, ours, = position"},
		{"disarmed in the mode of a step sent after the restart it is manual", "hold armed, restarted, asks position, position disarmed, ours, = manual"},
		{"a command that was accepted after the restart counts", "hold disarmed, restarted, asks position, accepted position, position disarmed, ours, = position"},
		{"a vehicle that was never heard has not restarted", "restarted, hold armed, taken, = hold"},
		{"a disarmed vehicle that was never heard has not restarted", "restarted, hold disarmed, ours, = manual, hold armed, = hold"},
	})
}

// PX4 goes to POSCTL by itself when a stream starts while it is disarmed.
func TestStickModeOfOurOwnStreamIsOursWhileDisarmed(t *testing.T) {
	testRules(t, []rule{
		{"with the stream", "hold disarmed, accepted hold, hold disarmed, position disarmed streamed, ours, = hold"},
		{"before anything was commanded", "hold disarmed, position disarmed streamed, ours, = manual"},
		{"without the stream", "hold disarmed, accepted hold, hold disarmed, position disarmed, taken, = position"},
		{"armed, it is a takeover", "hold armed, accepted hold, hold armed, position armed streamed, taken, = position"},
		{"armed in that mode, it is what it reports", "hold disarmed, accepted hold, hold disarmed, position disarmed streamed, ours, position armed streamed, ours, = position"},
		{"another stick mode is a takeover", "hold disarmed, accepted hold, hold disarmed, altitude disarmed streamed, taken, = altitude"},
		{"RTL is no mode of our stream", "hold disarmed, accepted hold, hold disarmed, rtl disarmed streamed, taken, = rtl"},
	})
}

// pilotsMoment is a moment of a plan: a step, and what has become of it.
type pilotsMoment struct {
	state string // one of the constants below, or "waits"
	at    int    // index of the step; -1: the plan has not begun
}

const (
	stepSent  = "sent"  // neither acknowledged nor shown
	stepShown = "shown" // not acknowledged
	stepAcked = "acked" // not shown
	stepDone  = "done"  // acknowledged and shown
)

// pilotsCase is a moment of a manoeuvre of a vehicle, and the mode that the pilot sets
// there. There is one case for each mode of the autopilot, the present one included.
type pilotsCase struct {
	name   string
	from   view
	plan   plan
	moment pilotsMoment
	pilot  autopilotMode
}

// flyingVehicle is a vehicle in one of the autopilot's modes, 10 m up or on the ground.
func flyingVehicle(t *testing.T, f firmware, mode string, flying bool) view {
	v := view{
		firmware: f, shownMode: shownMode{custom: numberOf(t, f, mode), armed: flying}, landed: onGround, home: point{amsl: 488}, heading: 90,
		place: place{47.3977421, 8.5455938, 0, 488}, params: map[string]float64{"Q_GUIDED_MODE": 1, "WPNAV_SPEED": 1000},
	}
	if flying {
		v.landed, v.place.amsl, v.place.altitude = landedState(common.MAV_LANDED_STATE_IN_AIR), 498, 10
	}
	return v
}

// everyPilot returns every pilotsCase.
func everyPilot(t *testing.T) (cases []pilotsCase) {
	lat, lon, height, yes := 47.398, 8.546, 20.0, true
	requests := map[string]request{
		"takeoff": {setMode: true, mode: ModeTakeoff, altitude: &height},
		"goto":    {setMode: true, mode: ModeHold, goTo: true, altitude: &height},
		"landAt":  {setMode: true, mode: ModeLand, lat: &lat, lon: &lon},
		"holdArm": {setMode: true, mode: ModeHold, arm: &yes},
	}
	for _, m := range []Mode{ModeManual, ModeAltitude, ModePosition, ModeHold, ModeLand, ModeRTL, ModeRTGS} {
		requests[m.String()] = request{setMode: true, mode: m}
	}
	for _, name := range []string{
		"px4 ALTCTL", "px4 POSCTL", "px4 AUTO.LOITER", "px4 AUTO.MISSION", "copter ALT_HOLD", "copter LOITER", "copter GUIDED", "copter AUTO",
		"quadplane QHOVER", "plane FBWA",
	} {
		w := strings.Fields(name)
		fw := map[string]firmware{"px4": px4, "copter": copter, "quadplane": quadPlane, "plane": plane}[w[0]]
		for what, r := range requests {
			v := flyingVehicle(t, fw, w[1], what != "takeoff")
			p, err := r.plan(v)
			if err != nil {
				continue // plan_test.go has the refused ones
			}
			moments := []pilotsMoment{{"waits", -1}}
			for i, s := range p.steps {
				if s.to != nil {
					moments = append(moments, pilotsMoment{stepSent, i}, pilotsMoment{stepShown, i}, pilotsMoment{stepAcked, i}, pilotsMoment{stepDone, i})
				}
			}
			for _, m := range moments {
				for _, pilot := range modesOf(fw) {
					at := fmt.Sprintf("%s %s, step %d %s, %s", name, what, m.at, m.state, pilot.name)
					cases = append(cases, pilotsCase{at, v, p, m, pilot})
				}
			}
		}
	}
	slices.SortFunc(cases, func(a, b pilotsCase) int { return strings.Compare(a.name, b.name) })
	return cases
}

// leads brings a machine to the moment, and returns the numbers of the modes that are explained there.
func (c *pilotsCase) leads() (f *hearing, explained []uint32) {
	f = newHearing()
	f.firmware = c.from.firmware
	f.shows(c.from.custom, true)
	explained = []uint32{c.from.custom}
	for i, s := range c.plan.steps[:c.moment.at+1] {
		if s.to == nil {
			continue
		}
		state := stepDone
		if i == c.moment.at {
			state = c.moment.state
		}
		f.steps = append(f.steps, s.to)
		f.claim(s.to, f.now)
		if state == stepShown || state == stepDone {
			f.shows(s.to.number, true)
			explained = nil
		}
		explained = append(explained, s.to.number)
		if state == stepAcked || state == stepDone {
			f.command(*s.to)
			explained = []uint32{s.to.number, f.last.custom} // a repeated report is not new
			if s.to.end != 0 {
				explained = append(explained, s.to.end)
			}
			if s.to == c.plan.goal() {
				f.steps = nil
			}
		}
	}
	return f, explained
}

// TestPilotsSwitchShowsAtEveryMomentOfEveryManoeuvre is rules 2 and 3: a report that the
// plan explains is ours, and every other one is a takeover.
func TestPilotsSwitchShowsAtEveryMomentOfEveryManoeuvre(t *testing.T) {
	for _, c := range sampled(t, everyPilot(t), 1000) {
		f, explained := c.leads()
		before := f.mode
		f.shows(c.pilot.custom, true) // high enough for a takeoff's end
		switch ours := slices.Contains(explained, c.pilot.custom); {
		case ours && f.taken:
			t.Errorf("%s: explained, but it is a takeover", c.name)
		case ours && f.mode != before && f.mode != c.pilot.mode:
			t.Errorf("%s: the mode is %v, before %v", c.name, f.mode, before)
		case !ours && (!f.taken || f.mode != c.pilot.mode):
			t.Errorf("%s: taken is %v and the mode %v, want %v", c.name, f.taken, f.mode, c.pilot.mode)
		}
	}
}

// TestReturnShowsAtEveryMomentOfEveryManoeuvre: a failsafe's return is never hidden, except
// during a return of ours.
func TestReturnShowsAtEveryMomentOfEveryManoeuvre(t *testing.T) {
	var cases []pilotsCase
	for _, c := range everyPilot(t) {
		if c.pilot.mode == ModeRTL && c.plan.goal().mode != ModeRTL && c.plan.goal().mode != ModeRTGS {
			cases = append(cases, c)
		}
	}
	for _, c := range sampled(t, cases, 500) {
		f, _ := c.leads()
		f.shows(c.pilot.custom, true)
		if !f.taken || f.mode != ModeRTL {
			t.Errorf("%s: taken is %v and the mode %v", c.name, f.taken, f.mode)
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
	commanded *order // nil: the mode is the reported one
	restarted bool   // the vehicle restarted after the last report and the last accepted step

	// Every step that was ever sent. The claims of the first ones, up to closed, have ended.
	sent   []*witnessStep
	closed int
}

// witnessStep is a step that was sent.
type witnessStep struct {
	to      order
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
	case "takeover":
		w.closed = len(w.sent)
		w.forgets()
	}
	if taken := w.judge(r, w.now); taken != (kind == "takeover") {
		return fmt.Sprintf("takeover is %v, and the report is: %s", taken, kind)
	}
	return ""
}

// sends notes that a copy of a step is sent.
func (w *witness) sends(o order) {
	s := &witnessStep{to: o, at: w.now}
	w.sent = append(w.sent, s)
	w.claim(&s.to, w.now)
}

// accepts notes that a step was accepted. That ends the claims of all steps.
func (w *witness) accepts(o order) {
	w.sends(o)
	w.command(o)
	w.closed = len(w.sent)
	w.wants, w.commanded, w.restarted = o.mode, &o, false
}

// refuses notes that the step that was sent last was refused.
func (w *witness) refuses() {
	if n := len(w.sent); n > 0 {
		w.sent[n-1].refused = true
		w.machine.refused(&w.sent[n-1].to)
	}
}

// restarts notes that the autopilot restarted: no command is in force.
func (w *witness) restarts() {
	w.restart()
	w.restarted, w.commanded, w.closed = w.heard, nil, len(w.sent)
}

// wrong is what the machine answers wrongly now, or "".
func (w *witness) wrong() string {
	if w.mode != w.wants {
		return fmt.Sprintf("the mode is %v, want %v", w.mode, w.wants)
	}
	for _, m := range modesOf(w.firmware) {
		if claimed := w.claimed(w.now, func(to *order) bool { return to.number == m.custom }) >= 0; claimed != (w.openClaim(report{shownMode: shownMode{custom: m.custom}}) >= 0) {
			return fmt.Sprintf("%s is claimed: %v", m.name, claimed)
		}
	}
	return ""
}

// FuzzMachine gives the machine commands, reports, restarts and time in any order. The first byte
// is the autopilot, 0 for PX4 and 1 for Copter. Each event is two bytes: what happens, and a mode of
// the autopilot's list. 64 is added to the mode when the vehicle is low, 128 while our sticks are streamed.
func FuzzMachine(f *testing.F) {
	const whats = "RratxdTAN" // report armed, disarmed; accepted, accepted transit, refused, sent; time, abandoned, restarted
	const which = "mapthlrso" // manual, altitude, position, takeoff, hold, land, rtl, rtgs, other
	autopilots := []firmware{px4, copter}
	for _, flight := range []string{
		"rh dh ah dt rt at Rt Tz Rh dh ah Rh Tz dl al Rl rl rh Tz", // a takeoff, a goto, a landing
		"Rp dh t. Rh Tz Rh dl Rl al rl rh",                         // a landing at a place
		"Rp dh t. Rh Tz Rr Tz A. rr rh",                            // the same, and a failsafe
		"rm dt at Rt Rm Rh dp ap Rp",                               // the pilot takes over in a takeoff
		"Rh dp Rp x. Rp Tz Tz Tz Rh da aa Rh Tz Tz Tz",             // refused half-way; then not followed
		"Rh dp Rp x. dh Rh ah Rp",                                  // refused, and the pilot's own
		"rh dh ah dp Rh dp dm Rp am Rm dm ro Ro",                   // two steps; one command over another
		"Rh dp Rp dp Rp dl al N. rh Rh",                            // unanswered; restarted
		"Rh dr Tz Tz Rr Rh dr dp Rr Rp",                            // a return whose claim has ended, and one whose claim lasts
		"N. Rh N. dp ap rp",                                        // accepted before the restarted vehicle is heard
	} {
		for fw, autopilot := range autopilots {
			list, events := modesOf(autopilot), []byte{byte(fw)}
			for e := range strings.FieldsSeq(flight) {
				arg := 0
				if i := strings.IndexByte(which, e[1]); i >= 0 && strings.IndexByte("Rr", e[0]) >= 0 {
					n := numberOf(f, autopilot, allModes[i].String())
					arg = slices.IndexFunc(list, func(m autopilotMode) bool { return m.custom == n })
				} else if i >= 0 {
					arg = i
				}
				if e[0] == 'T' {
					arg = 25 // 2.5 s
				}
				events = append(events, byte(strings.IndexByte(whats, e[0])), byte(arg))
			}
			f.Add(events)
		}
	}

	f.Fuzz(func(t *testing.T, events []byte) {
		if len(events) == 0 || len(events) > 1000 {
			return
		}
		w := &witness{firmware: autopilots[events[0]&1], now: time.Unix(1_700_000_000, 0)}
		list := modesOf(w.firmware)
		story := ""
		for events = events[1:]; len(events) > 1; events = events[2:] {
			what, arg := whats[events[0]%byte(len(whats))], int(events[1])
			mode := list[(arg&63)%len(list)]
			o := commanded(w.firmware, requestable[arg%len(requestable)], false)
			if what == 't' { // the way to a landing's place
				o = commanded(w.firmware, ModeLand, true)
			}
			var wrong string
			switch {
			case what == 'R', what == 'r':
				amsl := []float64{highEnough, tooLow}[arg>>6&1]
				wrong = w.seeReport(report{shownMode: shownMode{custom: mode.custom, armed: what == 'R'}, mode: mode.mode, amsl: amsl, streamed: arg>>7 == 1})
				story += fmt.Sprintf(" %c:%s", what, mode.name)
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
			if what != 'R' && what != 'r' {
				story += fmt.Sprintf(" %c:%v", what, o.mode)
			}
			if wrong == "" {
				wrong = w.wrong()
			}
			if wrong != "" {
				t.Fatalf("%s, after%s", wrong, story)
			}
		}
	})
}

// A landing is repeated while it is not acknowledged.
func TestAStepIsOursFor5sAfterItsLastCopy(t *testing.T) {
	at := time.Now()
	m := machine{known: true, mode: ModeLand, last: report{shownMode: shownMode{custom: px4Custom(4, 3), armed: true}, mode: ModeHold}}
	m.order = &order{mode: ModeLand, number: px4Custom(4, 3)}
	land := &order{mode: ModeLand, number: px4Custom(4, 6)}
	m.claim(land, at)
	m.claim(land, at.Add(3*time.Second))
	if m.judge(report{shownMode: shownMode{custom: px4Custom(4, 6), armed: true}, mode: ModeLand}, at.Add(followTime+2*time.Second)) {
		t.Error("the landing that was sent is taken for a pilot's")
	}
}

// TestReports plays scripts, clauses with commas between. "mode 5" is a CURRENT_MODE, "beat 5 armed" a
// HEARTBEAT (an armed one also shows a failsafe), "restart" a restart of the autopilot. The character '5' is
// the custom mode. "trip 300ms" sets the round trip, "+20ms" lets time pass. "= 5 6 armed" checks the reports
// that the last HEARTBEAT made; "keeps" checks that a number is kept, "empty" that none is.
func TestReports(t *testing.T) {
	for name, script := range map[string]string{
		"a HEARTBEAT is a report":                                                   "beat 5 armed, = 5 armed, empty, beat 5 armed, = 5 armed",
		"before the first HEARTBEAT nothing is kept":                                "mode 6, empty, beat 5 armed, = 5 armed",
		"a new number is kept until a HEARTBEAT shows it":                           "beat 5 armed, mode 6, keeps, beat 6 armed, = 6 armed, empty",
		"an older HEARTBEAT is no report":                                           "beat 5 armed, mode 6, +15ms, beat 5 armed, =, keeps, +5ms, beat 6 armed, = 6 armed",
		"the same number again is not new":                                          "beat 5 armed, mode 5, empty, mode 6, mode 6, beat 6 armed, = 6 armed",
		"a mode that stood for 12 ms is a report":                                   "beat 5 armed, mode 6, +12ms, mode 5, keeps, beat 5 armed, = 6 5 armed",
		"all kept numbers are reports, in their order":                              "beat 5 armed, mode 6, mode 7, mode 8, beat 7 armed, =, beat 8 armed, = 6 7 8 armed",
		"a HEARTBEAT over 100 ms after a kept number is a report":                   "beat 5 armed, mode 6, +101ms, beat 7 armed, = 6 7 armed, empty",
		"a HEARTBEAT over 100 ms later that shows the earlier mode is a report too": "beat 5 armed, mode 6, +101ms, beat 5 armed, = 6 5 armed",
		"within 100 ms another mode is no report":                                   "beat 5 armed, mode 6, +100ms, beat 7 armed, =",
		"on a slow line another mode within two round trips is no report":           "trip 300ms, beat 5 armed, mode 6, +600ms, beat 5 armed, =, +1ms, beat 5 armed, = 6 5 armed",
		"a HEARTBEAT that disarms shows the newest number":                          "beat 6 armed, mode 5, beat 6 disarmed, = 5 disarmed, empty",
		"a HEARTBEAT that disarms while nothing is kept is a report":                "beat 6 armed, beat 6 disarmed, = 6 disarmed",
		"an older HEARTBEAT that was disarmed already is no report":                 "beat 6 disarmed, mode 5, beat 6 disarmed, =, keeps",
		"a restart forgets":                                                         "beat 5 armed, mode 6, restart, empty, beat 0 disarmed, = 0 disarmed",
	} {
		t.Run(name, func(t *testing.T) {
			var r reports
			now, trip, shown := time.Unix(1_700_000_000, 0), time.Duration(0), ""
			for clause := range strings.SplitSeq(script, ", ") {
				w := strings.Fields(clause)
				switch w[0] {
				case "mode":
					r.hearMode(uint32(w[1][0]), now)
				case "beat":
					shown = ""
					for _, b := range r.hearHeartbeat(shownMode{custom: uint32(w[1][0]), armed: w[2] == "armed", failsafe: w[2] == "armed"}, trip, now) {
						shown += " " + string(rune(b.custom))
						if b.armed != (w[2] == "armed") || b.failsafe != b.armed {
							t.Errorf("%q: armed %v, failsafe %v", clause, b.armed, b.failsafe)
						}
					}
				case "=":
					if want := strings.TrimSuffix(strings.TrimSuffix(clause, " armed"), " disarmed"); "="+shown != want {
						t.Errorf("%s: reports%s, want %s", script, shown, clause)
					}
				case "keeps", "empty":
					if r.keeps() != (w[0] == "keeps") {
						t.Errorf("%s: a number is kept: %v", script, r.keeps())
					}
				case "restart":
					r.restart()
				case "trip":
					trip, _ = time.ParseDuration(w[1])
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

// TestWhenHeartbeatIsRequested: while a number is kept or a command waits, at once and then
// every round trip, at least 20 ms and at most 100 ms. Otherwise the age of the last report decides.
func TestWhenHeartbeatIsRequested(t *testing.T) {
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
		r := reports{lastBeat: shownMode{armed: c.armed, at: at}, asked: at.Add(c.asked)}
		if c.keeps {
			r.kept = []shownMode{{custom: 5}}
		}
		if got := r.due(c.awaited, c.trip).Sub(at); got != c.want {
			t.Errorf("%+v: due after %v", c, got)
		}
	}
}
