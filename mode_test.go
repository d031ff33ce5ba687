package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// allModes are the modes that can be reported; all but the last can be
// requested.
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

// numberOf is the autopilot's number of a mode: by its own name, which is in
// capitals, or by ours, for the mode that our own plans use.
func numberOf(tb testing.TB, f firmware, name string) uint32 {
	tb.Helper()
	list := ownModes[f]
	if i := slices.IndexFunc(list, func(m autopilotMode) bool { return m.name == name }); i >= 0 {
		return list[i].custom
	}
	m := modeNamed(tb, name)
	if m == ModeOther || m == ModeRTGS {
		i := slices.IndexFunc(list, func(a autopilotMode) bool { return a.mode == m })
		return list[max(i, 0)].custom
	}
	return entered[f][m]
}

// The takeoff of these tests climbs to 510 m above mean sea level, 20 m.
const highEnough, tooLow = 508.1, 507.9

// commanded is the order of a plan that enters the mode.
func commanded(f firmware, m Mode, transit bool) order {
	o := order{mode: m, numbers: []uint32{entered[f][m]}}
	switch {
	case transit:
		o.numbers, o.transit = []uint32{entered[f][ModeHold]}, true
	case m == ModeTakeoff && f == px4:
		o.end, o.endAMSL = entered[px4][ModeHold], 508
	}
	return o
}

// hearing is a machine that is told what happens, and its clock.
type hearing struct {
	machine
	firmware firmware
	now      time.Time
	taken    bool // by the last report
}

func newHearing() *hearing { return &hearing{firmware: px4, now: time.Unix(1_700_000_000, 0)} }

// report tells of a heartbeat.
func (f *hearing) shows(custom uint32, armed bool, with ...string) {
	r := report{custom: custom, armed: armed, amsl: highEnough}
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
	f.taken = f.report(r)
}

// modeShows is shows by one of our modes.
func (f *hearing) modeShows(t *testing.T, m Mode, armed bool) {
	f.shows(numberOf(t, f.firmware, m.String()), armed)
}

// accepts says that a plan was acknowledged.
func (f *hearing) accepts(m Mode, transit bool) { f.accept(commanded(f.firmware, m, transit), f.now) }

// asks begins a plan whose steps are sent and lead to these modes.
func (f *hearing) asks(t *testing.T, modes ...string) {
	f.begin(nil)
	for _, m := range modes {
		if n := numberOf(t, f.firmware, m); n != f.raw.custom {
			f.expect(n)
		}
	}
}

// hear tells the machine a script, clauses with commas between:
//
//	on copter                   the autopilot; PX4 where none is named
//	hold armed, BRAKE disarmed  a report, by our name of a mode or the autopilot's
//	hold armed low              … under the height at which a takeoff ends, or
//	hold armed somewhere        at an unknown height
//	position disarmed streamed  … while our sticks are streamed
//	taken, ours                 the last report took the mode, or did not
//	waits                       a plan begins, and nothing was sent yet
//	asks hold takeoff           a plan is sent; its steps lead to these modes
//	accepted takeoff            every step was acknowledged
//	accepted transit            so was a land's, which flies to its place first
//	over the place              the landing itself was acknowledged
//	refused                     a step was refused
//	unanswered                  a step was never acknowledged
//	arms, disarms               a plan was accepted that does only that
//	lost                        the link was lost
//	restarted                   the autopilot has started again
//	abandoned                   a failsafe ended what was commanded
//	+4.9s                       time passes
//	+5s unfollowed              … and the machine says that nothing followed
//	= hold                      the mode now is hold
//
// It returns what is wrong with the flight, or "".
func (f *hearing) hear(t *testing.T, script string) string {
	t.Helper()
	for clause := range strings.SplitSeq(script, ",") {
		w := strings.Fields(clause)
		switch {
		case w[0] == "on":
			f.firmware = map[string]firmware{"copter": copter, "quadplane": quadPlane, "plane": plane}[w[1]]
		case w[0] == "waits":
			f.begin(nil)
		case w[0] == "asks":
			f.asks(t, w[1:]...)
		case w[0] == "accepted" && w[1] == "transit":
			f.accepts(ModeLand, true)
		case w[0] == "accepted":
			f.accepts(modeNamed(t, w[1]), false)
		case w[0] == "over":
			f.accepts(ModeLand, false)
		case w[0] == "refused":
			f.refuse(f.now)
		case w[0] == "unanswered":
			f.doubt(f.now)
		case w[0] == "arms" || w[0] == "disarms":
			f.acceptArm(w[0] == "arms")
		case w[0] == "lost":
			f.lose()
		case w[0] == "restarted":
			f.restart()
		case w[0] == "abandoned":
			f.abandon()
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
			if got, want := f.tick(f.now), len(w) > 1; got != want {
				return fmt.Sprintf("%q: unfollowed %v, want %v", clause, got, want)
			}
		case w[0] == "=":
			if want := modeNamed(t, w[1]); f.mode != want {
				return fmt.Sprintf("mode %v, want %v", f.mode, want)
			}
		case len(w) >= 2 && (w[1] == "armed" || w[1] == "disarmed"):
			f.shows(numberOf(t, f.firmware, w[0]), w[1] == "armed", w[2:]...)
		default:
			t.Fatalf("no such clause: %q", clause)
		}
	}
	return ""
}

// rule is a sentence about the machine, and the flight that shows it.
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
		{"time alone changes nothing", "+1h, = manual"},
		{"a disarmed vehicle stays manual whatever its mode", "hold disarmed, = manual, hold disarmed, = manual"},
		{"disarmed in RTL it is manual too", "rtl disarmed, rtl disarmed, = manual"},
		{"a link that restarts in flight finds the mode", "hold armed, = hold"},
		{"a link that restarts in a failsafe shows it", "rtl armed, = rtl"},
		{"armed later it is no longer manual because nobody asked", "hold disarmed, hold armed, = hold"},
		{"a switch on the ground shows", "hold disarmed, position disarmed, = position"},
		{"what a disarmed first contact left alone is still left alone after 5 s", "hold disarmed, +10s, hold disarmed, = manual"},
	})
	for _, m := range allModes {
		t.Run("disarmed in "+m.String(), func(t *testing.T) {
			f := newHearing()
			if f.modeShows(t, m, false); f.mode != ModeManual {
				t.Errorf("mode %v, want manual", f.mode)
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

func TestAcceptedCommandIsTheModeFromEveryMode(t *testing.T) {
	for _, from := range allModes {
		for _, to := range requestable {
			t.Run(fmt.Sprintf("%v to %v", from, to), func(t *testing.T) {
				f := newHearing()
				f.modeShows(t, from, true)
				f.asks(t, to.String())
				if f.mode != from {
					t.Errorf("before the ack: mode %v, want %v", f.mode, from)
				}
				f.accepts(to, false)
				if f.mode != to {
					t.Errorf("accepted: mode %v, want %v", f.mode, to)
				}
				f.modeShows(t, from, true) // its last heartbeat before the change
				if f.mode != to {
					t.Errorf("after a report that is not new: mode %v, want %v", f.mode, to)
				}
				f.shows(entered[px4][to], true)
				f.now = f.now.Add(time.Minute)
				if f.tick(f.now) || f.mode != to {
					t.Errorf("followed: mode %v, want %v", f.mode, to)
				}
			})
		}
	}
}

func TestRefusedCommandChangesNothingInAnyMode(t *testing.T) {
	for _, from := range allModes {
		for _, to := range requestable {
			t.Run(fmt.Sprintf("%v to %v", from, to), func(t *testing.T) {
				f := newHearing()
				f.modeShows(t, from, true)
				f.asks(t, to.String())
				f.shows(entered[px4][to], true) // the first step worked
				f.refuse(f.now)
				f.shows(entered[px4][to], true)
				f.modeShows(t, from, true) // the link took it back
				f.now = f.now.Add(time.Minute)
				if f.tick(f.now) || f.mode != from {
					t.Errorf("mode %v, want %v", f.mode, from)
				}
			})
		}
	}
}

// belongs is rule 4: the reports that belong to a commanded mode, by the
// autopilot's own number. RTL only belongs to a return: a failsafe always shows.
func belongs(o order, r report) bool {
	switch {
	case slices.Contains(o.numbers, r.custom):
		return true
	case followsStream(r):
		return true
	case o.mode == ModeTakeoff && o.end != 0:
		return r.custom == o.end && r.armed && r.amsl >= o.endAMSL
	case o.mode == ModeLand || o.mode == ModeRTL || o.mode == ModeRTGS:
		return !r.armed && r.mode != ModeRTL
	}
	return false
}

// everyReport calls f with every commanded mode and every report of the
// autopilot, near the height at which a takeoff ends and below it.
func everyReport(t *testing.T, test func(t *testing.T, f *hearing, o order, r report)) {
	for _, fw := range []firmware{px4, copter, quadPlane} {
		for _, c := range requestable {
			for _, transit := range []bool{false, true}[:1+b2i(c == ModeLand)] {
				for _, m := range append(ownModes[fw], autopilotMode{custom: 99, mode: ModeOther}) {
					for i := range 8 {
						r := report{custom: m.custom, mode: m.mode, armed: i&1 != 0, amsl: highEnough, streamed: i&4 != 0}
						if i&2 != 0 {
							r.amsl = tooLow
						}
						f := newHearing()
						f.firmware = fw
						f.modeShows(t, ModeAltitude, true)
						o := commanded(fw, c, transit)
						f.accept(o, f.now)
						f.shows(o.numbers[0], true)
						if f.mode != c || f.taken {
							t.Fatalf("firmware %d: commanded %v is %v, taken %v", fw, c, f.mode, f.taken)
						}
						test(t, f, o, r)
						if t.Failed() {
							t.Fatalf("firmware %d: %v transit=%v reports %+v", fw, c, transit, r)
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

// followsStream: PX4 on the ground goes to POSCTL by itself where sticks are sent.
func followsStream(r report) bool {
	return !r.armed && r.streamed && r.custom == px4Custom(3, 0)
}

func TestNewReportShowsUnlessItBelongsToTheCommand(t *testing.T) {
	everyReport(t, func(t *testing.T, f *hearing, o order, r report) {
		want, taken := r.mode, true
		if belongs(o, r) {
			want, taken = o.mode, false
		}
		if f.taken = f.report(r); f.mode != want || f.taken != taken {
			t.Errorf("mode %v, taken %v; want %v, %v", f.mode, f.taken, want, taken)
		}
		again := f.report(r)
		f.now = f.now.Add(time.Minute)
		if f.tick(f.now) || again || f.mode != want {
			t.Errorf("the same again, a minute later: mode %v, taken %v; want %v", f.mode, again, want)
		}
	})
}

func TestLinkThatComesBackKeepsWhatTheReportExplains(t *testing.T) {
	everyReport(t, func(t *testing.T, f *hearing, o order, r report) {
		want, taken := o.mode, false // a disarmed vehicle changes nothing
		if r.armed && !belongs(o, r) {
			want, taken = r.mode, true
		}
		f.lose()
		if f.taken = f.report(r); f.mode != want || f.taken != taken {
			t.Errorf("mode %v, taken %v; want %v, %v", f.mode, f.taken, want, taken)
		}
		if f.report(r) || f.mode != want {
			t.Errorf("the same again: mode %v, want %v", f.mode, want)
		}
	})
	testRules(t, []rule{
		{"the mode stands while nobody is heard", "hold armed, accepted takeoff, takeoff armed, lost, +1m, = takeoff"},
		{"a takeoff that ended meanwhile is kept", "hold armed, accepted takeoff, takeoff armed, lost, hold armed, = takeoff"},
		{"a landing that ended meanwhile is kept", "hold armed, accepted land, land armed, lost, hold disarmed, = land"},
		{"a failsafe that began meanwhile shows", "hold armed, accepted takeoff, takeoff armed, lost, rtl armed, = rtl"},
		{"a failsafe shows though the vehicle was in RTL before the command", "rtl armed, accepted hold, lost, rtl armed, = rtl"},
		{"a takeoff that the pilot began is not kept", "takeoff armed, lost, hold armed, = hold"},
		{"a reboot on the ground changes nothing", "hold disarmed, accepted position, position disarmed, lost, manual disarmed, = position"},
		{"armed after the reboot it shows", "hold disarmed, accepted position, position disarmed, lost, manual disarmed, manual armed, = manual"},
		{"after that first report the rules are the old ones", "hold armed, accepted takeoff, takeoff armed, lost, hold armed, position armed, = position, position disarmed, hold disarmed, = hold"},
		{"a loss before the first contact is none", "lost, hold disarmed, = manual, hold armed, = hold"},
		{"while the link is lost nobody can have followed", "hold armed, accepted position, +1s, lost, +9s, = position, position armed, = position"},
	})
}

func TestManoeuvreThatEndsByItselfNeverShows(t *testing.T) {
	testRules(t, []rule{
		{"after a takeoff a report of hold changes nothing", "hold disarmed, accepted takeoff, takeoff armed, hold armed, = takeoff"},
		{"a takeoff stays until a new command, however long", "hold disarmed, accepted takeoff, takeoff armed, hold armed, +1h, hold armed, = takeoff"},
		{"after the climb another climb is still the takeoff", "hold disarmed, accepted takeoff, takeoff armed, hold armed, takeoff armed, hold armed, = takeoff"},
		{"a takeoff in GUIDED is never reported as one", "manual disarmed, accepted takeoff, hold armed, +1m, = takeoff"},
		{"a new command ends the takeoff", "hold disarmed, accepted takeoff, takeoff armed, accepted hold, = hold, hold armed, = hold"},
		{"a takeoff that the pilot began ends as reported", "position armed, takeoff armed, = takeoff, hold armed, = hold"},
		{"a takeoff that the pilot interrupted is his", "hold disarmed, accepted takeoff, takeoff armed, position armed, = position, takeoff armed, = takeoff, hold armed, = hold"},

		{"a landing stays land through touch-down and disarming", "hold armed, accepted land, land armed, land disarmed, = land"},
		{"PX4 falls back to hold once disarmed", "hold armed, accepted land, land armed, land disarmed, hold disarmed, +1m, = land"},
		{"PX4 falls back to position once disarmed", "hold armed, accepted land, land armed, position disarmed, = land"},
		{"any fall-back after disarming is the landing's end", "hold armed, accepted land, land armed, land disarmed, position disarmed, manual disarmed, other disarmed, = land"},
		{"armed again after a landing it is what it reports", "hold armed, accepted land, land armed, hold disarmed, hold armed, = hold"},
		{"hold before disarming is no landing", "position armed, accepted land, land armed, hold armed, = hold"},
		{"a landing that the pilot began ends as reported", "position armed, land armed, = land, land disarmed, = land, hold disarmed, = hold"},

		{"on the way to the place hold is the landing", "position armed, accepted transit, hold armed, +1m, hold armed, = land"},
		{"the landing over the place is the same landing", "position armed, accepted transit, hold armed, over the place, = land, land armed, = land"},
		{"over the place hold is no longer explained", "position armed, accepted transit, hold armed, over the place, land armed, hold armed, = hold"},
		{"the last heartbeat of the way is not new over the place", "position armed, accepted transit, hold armed, over the place, hold armed, = land, land armed, +1m, = land"},
		{"a landing over the place that does not begin was not followed", "position armed, accepted transit, hold armed, over the place, hold armed, +5s unfollowed, = hold"},
		{"the place is reached, landed on and left disarmed", "position armed, accepted transit, hold armed, over the place, land armed, land disarmed, hold disarmed, = land"},
		{"a landing that is asked for here has no transit", "position armed, accepted transit, hold armed, accepted land, land armed, hold armed, = hold"},
		{"a new command ends the way to the place", "position armed, accepted transit, hold armed, accepted position, = position, position armed, hold armed, = hold"},

		{"PX4 returns to its ground station in RTL", "hold armed, accepted rtgs, rtl armed, +1m, rtl armed, = rtgs"},
		{"a return that ends in hold is still the return", "hold armed, accepted rtgs, rtl armed, hold disarmed, = rtgs"},
		{"rtl does not explain rtgs", "hold armed, accepted rtl, rtl armed, rtgs armed, = rtgs"},
		{"hold explains nothing but hold", "position armed, accepted hold, hold armed, takeoff armed, = takeoff"},
	})
}

func TestPilotsSwitchAlwaysShows(t *testing.T) {
	testRules(t, []rule{
		{"in a takeoff", "hold disarmed, accepted takeoff, takeoff armed, position armed, = position"},
		{"after a takeoff", "hold disarmed, accepted takeoff, takeoff armed, hold armed, position armed, = position"},
		{"in a goto", "position armed, accepted hold, hold armed, manual armed, = manual"},
		{"in a landing", "hold armed, accepted land, land armed, altitude armed, = altitude"},
		{"on the way to the place", "position armed, accepted transit, hold armed, position armed, = position"},
		{"in a return", "hold armed, accepted rtl, rtl armed, position armed, = position"},
		{"in position mode, which the API asked for", "hold armed, accepted position, position armed, hold armed, = hold"},
		{"to a mode that the spec has no word for", "hold armed, accepted position, position armed, other armed, = other"},
		{"there and back", "hold armed, accepted hold, hold armed, position armed, hold armed, = hold"},
		{"to takeoff's hold after he took over once", "hold disarmed, accepted takeoff, takeoff armed, manual armed, hold armed, = hold"},
		{"right after an ack, to a third mode", "hold armed, accepted position, manual armed, = manual"},
		{"right after an ack, back to where it was", "hold armed, asks position hold, position armed, accepted position, position armed, hold armed, = hold"},
		{"back to where it was, when its one report came before the last ack", "hold armed, asks position hold, position armed, accepted position, hold armed, = hold"},
		{"disarming is no switch of mode", "hold armed, accepted position, position armed, position disarmed, = position"},
	})
}

func TestFailsafeAlwaysShows(t *testing.T) {
	for _, c := range requestable {
		t.Run("RTL in commanded "+c.String(), func(t *testing.T) {
			for _, armed := range []bool{true, false} {
				f := newHearing()
				f.modeShows(t, ModeAltitude, true)
				f.accepts(c, c == ModeLand)
				f.shows(f.order.numbers[0], true)
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
		{"after a climb", "hold disarmed, accepted takeoff, takeoff armed, hold armed, rtl armed, = rtl"},
		{"on the way to the place", "position armed, accepted transit, hold armed, rtl armed, = rtl"},
		{"between an ack and the report of its mode", "hold armed, accepted position, rtl armed, = rtl"},
		{"while a plan waits for its acks", "hold armed, asks position hold, rtl armed, = rtl"},
		{"after a refused plan", "hold armed, asks position hold, position armed, refused, rtl armed, = rtl"},
		{"a return that the refused plan did not enter", "rtl armed, asks hold rtl, hold armed, refused, rtl armed, hold armed, rtl armed, = rtl"},
		{"a second time", "rtl armed, accepted hold, hold armed, = hold, rtl armed, = rtl"},
		{"a second time, when the report of hold came before the last ack", "rtl armed, asks hold rtl, hold armed, accepted hold, rtl armed, = rtl"},
		{"it ends as the autopilot reports", "hold armed, accepted hold, rtl armed, land armed, = land, hold disarmed, = hold"},
		{"a failsafe in hold ends the way to the place", "position armed, accepted transit, hold armed, abandoned, = hold, hold armed, +1m, = hold"},
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
					f.accepts(c, false)
					for range 4 {
						f.modeShows(t, m, armed)
						f.now = f.now.Add(time.Second)
						if f.tick(f.now) || f.mode != c {
							t.Errorf("mode %v, want %v", f.mode, c)
						}
					}
				})
			}
		}
	}
	testRules(t, []rule{
		{"the last heartbeat before the change is not new", "hold armed, accepted position, hold armed, = position, position armed, = position"},
		{"nor is it with a plan between", "hold armed, asks position hold, hold armed, accepted position, hold armed, = position"},
		{"nor after a plan that took another one's place", "hold armed, asks position hold, position armed, asks manual position, accepted manual, position armed, = manual"},
	})
}

func TestPlanThatWaitsExplainsItsSteps(t *testing.T) {
	testRules(t, []rule{
		{"a step's report changes nothing before the last ack", "manual disarmed, asks hold takeoff manual, hold disarmed, = manual, hold armed, = manual, accepted takeoff, = takeoff"},
		{"nor does a report of the mode it came from", "hold armed, asks position hold, position armed, hold armed, = hold"},
		{"sticks that PX4 takes for a take-over are explained", "hold armed, asks position altitude hold, position armed, = hold, accepted altitude, altitude armed, = altitude"},
		{"however long the acks take", "hold armed, asks position hold, position armed, +20s, = hold, accepted position, position armed, = position"},
		{"a pilot's switch that no step explains shows", "hold armed, asks position hold, manual armed, = manual"},
		{"and the ack comes after it", "hold armed, asks position hold, manual armed, accepted position, = position, manual armed, = position, position armed, = position"},
		{"and stays where the plan is refused", "hold armed, asks position hold, manual armed, refused, +1m, = manual"},
		{"a report that belongs to the mode so far changes nothing either", "hold disarmed, accepted takeoff, takeoff armed, asks position takeoff, hold armed, = takeoff, refused, +1m, = takeoff"},
		{"a new plan takes the waiting one's place", "hold armed, asks position hold, asks manual hold, manual armed, = hold, position armed, = position"},
		{"a plan that is over explains nothing", "hold armed, asks position hold, accepted hold, hold armed, position armed, = position"},
	})
}

func TestRefusedHalfWayKeepsTheMode(t *testing.T) {
	testRules(t, []rule{
		{"at once", "hold armed, asks position hold, refused, = hold"},
		{"after its first step was reported", "hold armed, asks position hold, position armed, refused, = hold"},
		{"a late report of its steps changes nothing", "hold armed, asks position hold, refused, position armed, = hold"},
		{"nor do three of them", "hold armed, asks position hold, refused, position armed, +1s, position armed, +1s, position armed, +1s, = hold"},
		{"put back by the link it stays", "hold armed, asks position hold, position armed, refused, position armed, hold armed, +1m, = hold"},
		{"put back, the steps' modes show again", "hold armed, asks position hold, position armed, refused, hold armed, position armed, = position"},
		{"still in a step's mode after 4.9 s it is kept", "hold armed, asks position hold, refused, position armed, +4.9s, = hold"},
		{"still in a step's mode after 5 s it is the reported one", "hold armed, asks position hold, refused, position armed, +5s unfollowed, = position"},
		{"a report of another mode shows at once", "hold armed, asks position hold, refused, manual armed, = manual"},
		{"without any report nothing changes", "hold armed, asks position hold, refused, +5s, = hold, +1m, = hold"},
		{"the first mode is kept though nobody commanded it", "hold disarmed, asks position hold, position disarmed, refused, hold disarmed, +1m, = manual"},
		{"a takeoff whose arming is refused leaves no takeoff", "manual disarmed, asks hold takeoff manual, takeoff disarmed, refused, takeoff disarmed, manual disarmed, +1m, = manual"},
		{"a landing keeps its way to the place", "position armed, accepted transit, hold armed, asks position hold land, refused, hold armed, +1m, = land"},
		{"a takeoff keeps its hold", "hold disarmed, accepted takeoff, takeoff armed, hold armed, asks land hold, refused, hold armed, +1m, = takeoff"},
		{"a return to the ground station keeps its RTL", "hold armed, accepted rtgs, rtl armed, asks hold rtl, hold armed, refused, rtl armed, +1m, = rtgs"},
		{"after a pilot's switch the steps' modes show too", "hold armed, asks position hold, refused, manual armed, position armed, = position"},
		{"a climb that ends meanwhile is still the takeoff", "hold disarmed, accepted takeoff, takeoff armed, asks hold takeoff, refused, hold armed, +5s, = takeoff, hold armed, = takeoff"},
		{"the landing over the place ends the wait", "position armed, accepted transit, hold armed, asks manual land, refused, over the place, land armed, manual armed, = manual"},
		{"back to what it was before the last accepted command", "position armed, accepted hold, asks hold, hold armed, refused, +1s, position armed, = position"},
		{"the same, shown first after the refusal", "position armed, accepted hold, asks hold, refused, hold armed, +1s, position armed, = position"},
		{"a failsafe back to RTL", "rtl armed, accepted hold, asks hold, refused, hold armed, +1s, rtl armed, = rtl"},
		{"a return that it asked for may be a failsafe", "hold armed, asks rtl, refused, rtl armed, taken, = rtl"},
		{"refused while the link is lost, it says nothing of what comes back", "hold armed, asks position, lost, refused, hold armed, position armed, taken, = position"},
		{"a new plan ends the wait", "hold armed, asks position hold, refused, asks manual hold, position armed, = position"},
		{"a new accepted command ends the wait", "hold armed, asks position hold, refused, asks manual hold, accepted manual, manual armed, +1m, = manual"},
		{"the link lost meanwhile, the vehicle is asked again", "hold armed, asks position hold, refused, lost, position armed, = position"},
	})
}

func TestAutopilotThatDoesNotFollowIsBelieved(t *testing.T) {
	testRules(t, []rule{
		{"after 5 s without a report that explains", "hold armed, accepted position, hold armed, +5s unfollowed, = hold"},
		{"not after 4.9 s", "hold armed, accepted position, hold armed, +4.9s, = position"},
		{"once", "hold armed, accepted position, hold armed, +5s unfollowed, +5s, hold armed, = hold"},
		{"on the ground too", "hold disarmed, accepted position, hold disarmed, +5s unfollowed, = hold"},
		{"not when it followed in the last moment", "hold armed, accepted position, hold armed, +4.9s, position armed, +1m, = position"},
		{"not when the report is one that the mode explains", "position armed, accepted takeoff, hold armed, +1m, = takeoff"},
		{"a takeoff that stays disarmed was not followed", "hold disarmed, accepted takeoff, hold disarmed, +5s unfollowed, = hold"},
		{"a return to the ground station in RTL was followed", "hold armed, accepted rtgs, rtl armed, +1m, = rtgs"},
		{"a landing on the ground was followed", "hold disarmed, accepted land, hold disarmed, +1m, = land"},
		{"the mode of the second command counts from its own ack", "hold armed, accepted position, +3s, accepted manual, hold armed, +4.9s, = manual, +0.1s unfollowed, = hold"},
		{"a later report shows as it did before", "hold armed, accepted position, hold armed, +5s unfollowed, position armed, = position"},
		{"what was not followed explains nothing", "position armed, accepted takeoff, position armed, +5s unfollowed, = position, takeoff armed, = takeoff, hold armed, = hold"},
		{"though the next command was refused", "hold armed, accepted position, hold armed, +3s, asks altitude hold, refused, hold armed, +2s unfollowed, = hold"},
		{"though it was armed meanwhile", "position armed, hold armed, accepted position, hold armed, +1s, asks hold, arms, hold armed, +4s unfollowed, = hold"},
	})
}

func TestArmingAloneLeavesTheMode(t *testing.T) {
	testRules(t, []rule{
		{"a drone that waited in manual is then what it reports", "hold disarmed, asks hold, arms, hold armed, = hold"},
		{"in the mode that was asked for", "hold disarmed, accepted position, position disarmed, asks position, arms, = position, position armed, = position"},
		{"a refused arming changes nothing", "hold disarmed, asks hold, refused, hold disarmed, +1m, = manual"},
		{"disarming keeps the mode", "position armed, asks position, disarms, = position, position disarmed, = position"},
		{"disarming after a landing keeps land", "hold armed, accepted land, land armed, asks land, disarms, = land, hold disarmed, = land"},
		{"a pilot's switch while it arms shows", "hold disarmed, asks hold, position armed, arms, = position, position armed, = position"},
		{"a failsafe while it arms shows", "hold disarmed, asks hold, rtl armed, arms, = rtl"},
		{"arming is no command to follow", "hold disarmed, asks hold, arms, hold armed, +1m, = hold"},
		{"a disarmed drone that is disarmed stays manual", "hold disarmed, asks hold, disarms, hold disarmed, = manual"},
		{"right after a mode was accepted, before its first report", "hold disarmed, asks position hold, accepted position, asks hold, arms, = position"},
		{"right after a mode was accepted that was reported before its ack", "hold disarmed, asks position hold, position disarmed, accepted position, asks position, arms, = position"},
	})
}

// TestReportedModesAreTheAutopilotsOwn is docs/autopilots.md, "The modes, side by
// side" and "Mode numbers".
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

func TestHeartbeatTellsTheFirmware(t *testing.T) {
	ardupilot := map[common.MAV_TYPE]firmware{
		1: plane, 2: copter, 3: copter, 4: copter, 13: copter, 14: copter, 15: copter, 29: copter, 35: copter,
		19: quadPlane, 20: quadPlane, 21: quadPlane, 22: quadPlane, 23: quadPlane, 24: quadPlane, 25: quadPlane,
	}
	for typ := common.MAV_TYPE(0); typ < 50; typ++ { // 10 is a rover, 12 a submarine: unknown here
		if got, want := firmwareOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, typ, 0), ardupilot[typ]; got != want {
			t.Errorf("ArduPilot on MAV_TYPE %d is %d, want %d", typ, got, want)
		}
		if got := firmwareOf(common.MAV_AUTOPILOT_PX4, typ, 0); got != px4 {
			t.Errorf("PX4 on MAV_TYPE %d is %d, want %d", typ, got, px4)
		}
		for _, other := range []common.MAV_AUTOPILOT{common.MAV_AUTOPILOT_GENERIC, common.MAV_AUTOPILOT_INVALID, 200} {
			if got := firmwareOf(other, typ, 0); got != firmwareUnknown {
				t.Errorf("autopilot %d on MAV_TYPE %d is %d, want unknown", other, typ, got)
			}
		}
	}
}

func TestModesAreReadInAnyCaseAndOtherIsNone(t *testing.T) {
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

// Rule 4 goes by the autopilot's own number: a pilot's mode that has our name
// for it is still the pilot's.
func TestModeBelongsByTheAutopilotsOwnNumber(t *testing.T) {
	testRules(t, []rule{
		{"BRAKE in a goto", "on copter, position armed, accepted hold, hold armed, ours, BRAKE armed, taken, = hold"},
		{"BRAKE in a takeoff", "on copter, hold disarmed, accepted takeoff, hold armed, ours, BRAKE armed, taken, = hold"},
		{"BRAKE on the way to a landing's place, and GUIDED after it", "on copter, position armed, accepted transit, hold armed, ours, BRAKE armed, taken, = hold, GUIDED armed, taken, = hold"},
		{"17 on a QuadPlane", "on quadplane, position armed, accepted hold, hold armed, QSTABILIZE armed, taken, = manual"},
		{"POSHOLD in position mode", "on copter, hold armed, accepted position, LOITER armed, ours, POSHOLD armed, taken, = position"},
		{"SMART_RTL in a return", "on copter, hold armed, accepted rtl, RTL armed, ours, SMART_RTL armed, taken, = rtl"},
		{"STABILIZED in manual mode", "hold armed, accepted manual, MANUAL armed, ours, STABILIZED armed, taken, = manual"},
		{"precision landing in a landing", "hold armed, accepted land, AUTO.LAND armed, ours, AUTO.PRECLAND armed, taken, = land"},
	})
}

// PX4 ends a climb 0.8 m below its end, still climbing; a pilot's Hold in the
// middle of it is lower.
func TestTakeoffEndsAtItsHeight(t *testing.T) {
	testRules(t, []rule{
		{"near it hold is the takeoff's end", "hold disarmed, accepted takeoff, takeoff armed low, hold armed, ours, = takeoff"},
		{"lower down it is the pilot's", "hold disarmed, accepted takeoff, takeoff armed low, hold armed low, taken, = hold"},
		{"so it is at a height that nobody knows", "hold disarmed, accepted takeoff, takeoff armed low, hold armed somewhere, taken, = hold"},
		{"sinking after its end it is the same hold", "hold disarmed, accepted takeoff, takeoff armed, hold armed, hold armed low, ours, = takeoff"},
		{"it ends while the link is lost", "hold disarmed, accepted takeoff, takeoff armed low, lost, hold armed, ours, = takeoff"},
		{"a pilot's hold while the link is lost", "hold disarmed, accepted takeoff, takeoff armed low, lost, hold armed low, taken, = hold"},
		{"GUIDED is Copter's takeoff at any height", "on copter, hold disarmed, accepted takeoff, hold armed low, ours, = takeoff"},
		{"disarmed it is no takeoff's end", "hold disarmed, accepted takeoff, takeoff armed, hold disarmed, taken, = hold"},
	})
}

func TestRestartedVehicleIsInItsInitialState(t *testing.T) {
	testRules(t, []rule{
		{"disarmed, whatever was commanded", "hold armed, accepted land, land armed, restarted, hold disarmed, ours, = manual"},
		{"in the mode that was commanded", "hold disarmed, accepted position, position disarmed, restarted, position disarmed, ours, = manual"},
		{"after a lost link", "hold armed, accepted takeoff, takeoff armed, lost, restarted, hold disarmed, ours, = manual"},
		{"armed, it is what it reports", "hold armed, accepted takeoff, takeoff armed, restarted, hold armed, taken, = hold"},
		{"what was still to be followed is forgotten", "hold armed, accepted position, restarted, hold disarmed, +10s, = manual"},
		{"later it is what it reports", "hold armed, accepted land, restarted, hold disarmed, hold armed, taken, = hold"},
		{"and is commanded as ever", "hold armed, accepted land, restarted, hold disarmed, asks takeoff, takeoff disarmed, accepted takeoff, takeoff armed, ours, = takeoff"},
		{"an arming acknowledged before it is heard says nothing", "hold disarmed, accepted position, position disarmed, restarted, waits, disarms, = position, hold disarmed, = manual"},
		{"one that was never heard has not restarted", "restarted, hold armed, taken, = hold"},
	})
}

// PX4 goes to POSCTL by itself when a stream starts while it is disarmed.
func TestStickModeOfOurOwnStreamIsOursWhileDisarmed(t *testing.T) {
	testRules(t, []rule{
		{"with the stream", "hold disarmed, accepted hold, hold disarmed, position disarmed streamed, ours, = hold"},
		{"without it", "hold disarmed, accepted hold, hold disarmed, position disarmed, taken, = position"},
		{"armed it is the pilot's", "hold armed, accepted hold, hold armed, position armed streamed, taken, = position"},
		{"RTL is none", "hold disarmed, accepted hold, hold disarmed, rtl disarmed streamed, taken, = rtl"},
	})
}

func TestStepExplainsItsModeFromWhenItIsSent(t *testing.T) {
	testRules(t, []rule{
		{"before that the same mode is a pilot's", "hold armed, waits, position armed, taken, = position"},
		{"the mode that the plan began in changes nothing", "hold armed, waits, hold armed, ours, = hold"},
		{"a pilot's return while it waits", "position armed, waits, rtl armed, taken, = rtl"},
		{"the way out of a stick mode", "altitude armed, asks position hold, position armed, ours, = altitude, hold armed, ours, accepted hold, = hold"},
	})
}

func TestUnansweredPlanShowsWhatItDid(t *testing.T) {
	testRules(t, []rule{
		{"what it did before", "hold armed, asks position, position armed, ours, = hold, unanswered, = position"},
		{"put back, and asked again at once", "hold disarmed, asks takeoff, takeoff disarmed, ours, refused, asks takeoff, hold disarmed, ours, takeoff disarmed, ours"},
		{"what it does after is nobody else's", "hold armed, asks position, unanswered, position armed, ours, = position"},
		{"for 5 s", "hold armed, asks position, unanswered, +5s, position armed, taken, = position"},
		{"not where it began", "hold armed, asks position, position armed, unanswered, = position, hold armed, taken, = hold"},
		{"not after somebody took the drone", "hold armed, asks position, unanswered, altitude armed, taken, position armed, taken, = position"},
		{"not after a restart", "hold armed, asks position, restarted, unanswered, hold armed, taken, position armed, taken, = position"},
		{"a return always is", "hold armed, asks rtl, unanswered, rtl armed, taken, = rtl"},
		{"where it did nothing", "hold armed, accepted hold, asks position, unanswered, hold armed, ours, = hold"},
		{"in what was commanded before", "hold armed, accepted takeoff, takeoff armed, asks position, unanswered, hold armed, ours, = takeoff"},
	})
}

// pilotsMoment is a moment of a manoeuvre, up to which the machine is led.
type pilotsMoment uint8

const (
	momentWaits   pilotsMoment = iota // nothing of the plan was sent
	momentSent                        // its steps were, none is acknowledged
	momentStepped                     // the vehicle is in its last mode, and an ack is missing
	momentAcked                       // it was accepted, and no report shows it
	momentShown                       // one did
)

// everyPilot calls f with a machine at every moment of every manoeuvre, the
// numbers that are explained there, and every mode that the pilot has: each of
// the autopilot's own list, BRAKE and the present one among them.
func everyPilot(t *testing.T, test func(t *testing.T, f *hearing, p plan, explained []uint32, pilot autopilotMode)) {
	for _, v := range []string{"px4 ALTCTL", "px4 POSCTL", "px4 AUTO.MISSION", "copter ALT_HOLD", "copter LOITER", "copter AUTO", "quadplane QHOVER hovers", "plane FBWA"} {
		for _, r := range []string{
			"takeoff altitude=20", "goto altitude=20", "set mode=hold", "land", "land lat=47.398 lon=8.546", "set mode=rtl", "set mode=rtgs",
			"set mode=manual", "set mode=altitude", "set mode=position", "set mode=hold arm=true",
		} {
			state := " flying streams"
			if strings.HasPrefix(r, "takeoff") {
				state = " landed"
			}
			veh := parseVehicle(t, v+state)
			p, err := parseRequest(t, r).plan(veh)
			if err != nil {
				continue // plan_test.go says which
			}
			for moment := momentWaits; moment <= momentShown; moment++ {
				for _, pilot := range ownModes[veh.firmware] {
					t.Run(fmt.Sprintf("%s %s %d %s", v, r, moment, pilot.name), func(t *testing.T) {
						f, explained := momentOf(veh, p, moment)
						test(t, f, p, explained, pilot)
					})
				}
			}
		}
	}
}

// momentOf leads a machine to the moment, and tells what is explained there.
func momentOf(v vehicle, p plan, moment pilotsMoment) (f *hearing, explained []uint32) {
	f = newHearing()
	f.firmware = v.firmware
	f.shows(v.custom, true)
	f.begin(nil)
	explained = []uint32{v.custom}
	if moment == momentWaits {
		return f, explained
	}
	for _, s := range p.steps {
		if s.enters {
			f.expect(s.number)
			explained = append(explained, s.number)
		}
		if moment >= momentStepped && s.enters {
			f.shows(s.number, true)
		}
	}
	if moment >= momentAcked {
		if moment == momentAcked {
			f.shows(v.custom, true)
		}
		f.accept(p.order, f.now)
		explained = append(slices.Clone(p.order.numbers), f.raw.custom)
	}
	if moment == momentShown {
		f.shows(p.order.numbers[0], true)
		explained = p.order.numbers
	}
	return f, explained
}

// TestPilotsSwitchShowsAtEveryMomentOfEveryManoeuvre is the product of rules 4
// and 5: what the plan explains is ours, and everything else takes the drone.
func TestPilotsSwitchShowsAtEveryMomentOfEveryManoeuvre(t *testing.T) {
	everyPilot(t, func(t *testing.T, f *hearing, p plan, explained []uint32, pilot autopilotMode) {
		before := f.mode
		ends := f.order != nil && p.order.end != 0 && pilot.custom == p.order.end
		f.shows(pilot.custom, true) // high enough for a takeoff's end
		switch ours := ends || slices.Contains(explained, pilot.custom); {
		case ours && (f.taken || f.mode != before):
			t.Errorf("explained, but taken is %v and the mode %v, before %v", f.taken, f.mode, before)
		case !ours && (!f.taken || f.mode != pilot.mode):
			t.Errorf("taken is %v and the mode %v, want %v", f.taken, f.mode, pilot.mode)
		}
	})
}

// TestReturnShowsAtEveryMomentOfEveryManoeuvre: a failsafe in the middle of
// anything but a return is never hidden, also after the plan was refused.
func TestReturnShowsAtEveryMomentOfEveryManoeuvre(t *testing.T) {
	everyPilot(t, func(t *testing.T, f *hearing, p plan, explained []uint32, pilot autopilotMode) {
		if pilot.mode != ModeRTL || p.order.mode == ModeRTL || p.order.mode == ModeRTGS {
			return
		}
		if f.order == nil {
			f.refuse(f.now)
		}
		f.shows(pilot.custom, true)
		if !f.taken || f.mode != ModeRTL {
			t.Errorf("taken is %v and the mode %v", f.taken, f.mode)
		}
	})
}

// witness watches a machine from outside: it remembers what the machine was
// told, and says what no rule of the design allows.
type witness struct {
	machine
	firmware firmware
	now      time.Time

	last     report        // given last
	heard    bool          // last is set
	lost     bool          // the link, since then
	again    bool          // the autopilot has started again, since then
	said     map[Mode]bool // every mode that was ever given
	accepted *order        // the last command's, until something took the mode
	pending  []uint32      // explained by the plan that waits; nil: none
	settling []uint32      // explained by the plan that was refused
	late     []uint32      // what a plan that was never answered may lead to
	waiting  bool          // for a report that explains the accepted mode

	ackedAt, refusedAt, doubtedAt time.Time

	// Where a plan's steps explained a report, or arming was accepted, the report
	// that the next one must differ from is one of several.
	before []report
}

// overdue reports whether 5 s have passed since the given time.
func (w *witness) overdue(since time.Time) bool { return w.now.Sub(since) >= followTime }

// forget is that the mode is the reported one.
func (w *witness) forget() { w.accepted, w.waiting, w.settling = nil, false, nil }

func (w *witness) seeReport(r report) string {
	mode, last := w.mode, w.last
	again, nobodys := w.again, slices.Contains(w.late, r.custom)
	if w.lost || again {
		w.settling = nil
	}
	if slices.Contains(w.settling, last.custom) && !slices.Contains(w.settling, r.custom) {
		w.settling = nil // taken back
	}
	streamed := followsStream(r)
	ours := streamed || w.accepted != nil && belongs(*w.accepted, r)
	explained := ours || slices.Contains(w.pending, r.custom) ||
		slices.Contains(w.settling, r.custom) && !w.overdue(w.refusedAt) && r.mode != ModeRTL
	first := !w.heard || w.lost && !ours && !slices.Contains(w.pending, r.custom)
	sure := !slices.ContainsFunc(w.before, func(b report) bool { return !b.same(last) }) // that last is the one to differ from
	known := slices.ContainsFunc(w.before, r.same)

	taken := w.report(r)
	if taken || again {
		w.late = nil
	}

	if taken || again || nobodys && !explained && w.mode == r.mode && !r.same(last) { // a late report shows, and ends what was commanded
		w.forget()
	}
	if taken && w.plan != nil {
		w.pending = []uint32{r.custom} // until the plan has ended, this is the mode that it finds
	}
	if ours && (w.accepted == nil || w.accepted.mode != ModeTakeoff || r.armed) {
		w.waiting = false
	}
	if !explained || first {
		w.before = nil
	}
	if first {
		w.settling = nil
	}
	w.before = append(w.before, r)
	w.last, w.heard, w.lost, w.again = r, true, false, false
	w.said[r.mode] = true

	switch {
	case again && !r.armed:
		if w.mode != ModeManual || taken {
			return "a restarted vehicle is not in its initial state"
		}
	case again && (!taken || w.mode != r.mode):
		return "a restart in the air is hidden"
	case taken && w.mode != r.mode:
		return "a report took the mode and is not shown"
	case !taken && w.mode != mode && !(nobodys && w.mode == r.mode):
		return "a mode changed that no report took"
	case again:
	case first && !r.armed && taken:
		return "a disarmed first contact changed the mode"
	case first && r.armed && !explained && !known && !taken && !(nobodys && w.mode == r.mode):
		return "an armed first contact is hidden"
	case !first && r.same(last) && sure && taken:
		return "an equal report took the mode"
	case !first && ours && taken:
		return "a report took the mode that belongs to it"
	case !first && !explained && !known && !taken && !(nobodys && w.mode == r.mode):
		return "a report that nothing explains is hidden"
	}
	return ""
}

// seeBegin begins a plan and sends its step.
func (w *witness) seeBegin(m Mode) string {
	mode := w.mode
	w.pending = []uint32{w.last.custom, entered[w.firmware][m]}           // every plan explains the mode it comes from
	if w.machine.settle != nil && w.raw.custom != w.machine.last.custom { // and the one that it is put back to
		w.pending = append(w.pending, w.machine.last.custom)
	}
	w.settling = nil
	w.begin(nil)
	w.expect(entered[w.firmware][m])
	if w.mode != mode {
		return "a command that waits changed the mode"
	}
	return ""
}

func (w *witness) seeAccept(m Mode, transit bool) string {
	o := commanded(w.firmware, m, transit)
	w.accept(o, w.now)
	w.accepted, w.pending, w.settling, w.late = &o, nil, nil, nil
	w.waiting, w.ackedAt = w.last.custom != o.numbers[0] || m == ModeTakeoff && !w.last.armed, w.now
	w.before = append(w.before, w.last)
	if w.mode != m {
		return "the accepted mode is not the mode"
	}
	return ""
}

func (w *witness) seeRefuse() string {
	if w.pending == nil {
		return ""
	}
	mode := w.mode
	w.refuse(w.now)
	w.settling, w.pending, w.refusedAt = w.pending[1:], nil, w.now
	if w.mode != mode {
		return "a refused command changed the mode"
	}
	return ""
}

// seeDoubt is a plan that nobody answered.
func (w *witness) seeDoubt() string {
	if w.pending == nil {
		return ""
	}
	mode := w.mode
	w.doubt(w.now)
	w.late, w.doubtedAt = w.pending[1:], w.now
	w.pending, w.settling = nil, nil
	if w.mode != mode || w.machine.order == nil {
		w.forget()
		w.before = append(w.before, w.last)
	}
	if w.mode != mode && w.mode != w.last.mode {
		return "an unanswered command entered a mode that was not reported last"
	}
	return ""
}

func (w *witness) seeArm(arm bool) string {
	if w.pending == nil || w.lost || w.again {
		return ""
	}
	mode, waited := w.mode, w.waiting
	w.acceptArm(arm)
	w.pending = nil
	if w.machine.order == nil {
		w.forget()
	}
	w.last.armed = w.raw.armed
	w.before = append(w.before, w.last)
	switch {
	case w.mode != mode && waited:
		return "arming ended a command that is still to be followed"
	case w.mode != mode && w.mode != w.last.mode:
		return "arming entered a mode that was not reported last"
	}
	return ""
}

func (w *witness) seeTime(d time.Duration) string {
	mode := w.mode
	w.now = w.now.Add(d)
	unfollowed := w.tick(w.now)
	if w.overdue(w.doubtedAt) && w.overdue(w.refusedAt) {
		w.late = nil
	}
	acked, refused := w.overdue(w.ackedAt), w.overdue(w.refusedAt)
	due := w.waiting && acked && refused && w.pending == nil && !w.lost && !w.again
	if due || unfollowed {
		w.forget()
	}
	w.before = append(w.before, w.last)
	switch {
	case w.mode != mode && !unfollowed:
		return "time changed the mode and nobody was told"
	case unfollowed && !acked && !refused:
		return "it did not wait 5 s"
	case unfollowed && w.pending != nil:
		return "it did not wait for the acks"
	case w.mode != mode && w.mode != w.last.mode:
		return "time entered a mode that was not reported last"
	case due && w.mode != w.last.mode:
		return "a mode that was not followed stands"
	}
	return ""
}

func (w *witness) seeLoss() string {
	mode := w.mode
	w.lose()
	w.lost, w.waiting, w.settling = w.heard, false, nil
	if w.mode != mode {
		return "a lost link changed the mode"
	}
	return ""
}

// seeRestart is the autopilot's own: what was commanded is over.
func (w *witness) seeRestart() string {
	mode := w.mode
	w.restart()
	w.forget()
	w.again = w.heard
	if w.pending != nil {
		w.late, w.doubtedAt = w.pending[1:], w.now
	}
	w.pending = nil
	w.said[w.mode] = true // until the vehicle is heard
	w.doubt(w.now)
	if w.mode != mode {
		w.before = append(w.before, w.last)
	}
	return ""
}

func (w *witness) seeAbandon() string {
	w.abandon()
	w.forget()
	w.before = append(w.before, w.last)
	if w.mode != w.last.mode {
		return "a failsafe entered a mode that was not reported last"
	}
	return ""
}

// FuzzMachine gives the machine commands, reports, time and link loss in any
// order. The first byte is the autopilot, 0 for PX4 and 1 for Copter; then an
// event is two bytes, what and which: a mode of the autopilot's list, with 64
// added low, with 128 added while our sticks are streamed.
func FuzzMachine(f *testing.F) {
	const whats = "RrbatxDdTLANU" // the cases below, in their order
	const which = "mapthlrso"     // manual, altitude, position, takeoff, hold, land, rtl, rtgs, other
	for _, flight := range []string{
		"rh bt rt at Rt Tz Rh bh ah Rh Tz bl al Rl rl rh Tz", // a takeoff, a goto, a landing
		"Rp bh t. Rh Tz Rh t. Rl rl rh",                      // a landing at a place
		"Rp bh t. Rh Tz Rr Tz A. rr rh",                      // the same, and a failsafe
		"rm bt at Rt Rm Rh bp ap Rp",                         // the pilot takes over in a takeoff
		"Rh bp Rp x. Rp Tz Tz Tz Rh ba aa Rh Tz Tz Tz",       // refused half-way; then not followed
		"Rh bp Rp x. Rh Rp",                                  // refused, taken back, and the pilot's own
		"Rh bs as Rr L. Tz Rr L. Rm",                         // lost in a return, and back
		"rh bh D. Rh bp bm am Rm bm d. rm L. ro Ro",          // armed and disarmed, one command over another
		"Rh bp Rp U. Rp bl al N. rh Rh",                      // unanswered; restarted
	} {
		for fw, list := range map[byte][]autopilotMode{0: px4Modes, 1: copterModes} {
			events := []byte{fw}
			for e := range strings.FieldsSeq(flight) {
				arg := 0
				if i := strings.IndexByte(which, e[1]); i >= 0 && strings.IndexByte("Rr", e[0]) >= 0 {
					n := numberOf(f, firmware(fw+1), allModes[i].String())
					arg = slices.IndexFunc(list, func(m autopilotMode) bool { return m.custom == n })
				} else if i >= 0 {
					arg = i
				}
				if e[0] == 'T' {
					arg = 25
				}
				events = append(events, byte(strings.IndexByte(whats, e[0])), byte(arg))
			}
			f.Add(events)
		}
	}

	f.Fuzz(func(t *testing.T, events []byte) {
		if len(events) == 0 {
			return
		}
		w := &witness{firmware: px4 + firmware(events[0]&1), now: time.Unix(1_700_000_000, 0), said: map[Mode]bool{}}
		w.ackedAt, w.refusedAt = w.now.Add(-followTime), w.now.Add(-followTime)
		list := ownModes[w.firmware]
		story := ""
		for events = events[1:]; len(events) > 1; events = events[2:] {
			what, arg := whats[events[0]%byte(len(whats))], int(events[1])
			mode := list[arg&63%len(list)]
			requested := requestable[arg%len(requestable)]
			amsl := []float64{highEnough, tooLow}[arg>>6&1]
			var wrong string
			switch {
			case what == 'R', what == 'r':
				wrong = w.seeReport(report{custom: mode.custom, mode: mode.mode, armed: what == 'R', amsl: amsl, streamed: arg>>7 == 1})
				story += fmt.Sprintf(" %c:%s", what, mode.name)
			case !w.heard && what != 'T' && what != 'L' && what != 'N': // the link commands nobody
			case what == 'b':
				wrong = w.seeBegin(requested)
			case what == 'a':
				wrong = w.seeAccept(requested, false)
			case what == 't':
				wrong = w.seeAccept(ModeLand, true)
			case what == 'x':
				wrong = w.seeRefuse()
			case what == 'D', what == 'd':
				wrong = w.seeArm(what == 'D')
			case what == 'T':
				wrong = w.seeTime(time.Duration(arg) * 100 * time.Millisecond)
			case what == 'L':
				wrong = w.seeLoss()
			case what == 'A':
				wrong = w.seeAbandon()
			case what == 'N':
				wrong = w.seeRestart()
			case what == 'U':
				wrong = w.seeDoubt()
			}
			if what != 'R' && what != 'r' {
				story += fmt.Sprintf(" %c:%v", what, requested)
			}
			if wrong == "" && w.mode != ModeManual && (w.accepted == nil || w.mode != w.accepted.mode) && !w.said[w.mode] {
				wrong = "a mode from nowhere"
			}
			if wrong != "" {
				t.Fatalf("%s: mode %v after%s", wrong, w.mode, story)
			}
		}
	})
}
