package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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

// hearing is a machine that is told what happens, and its clock.
type hearing struct {
	machine
	now time.Time
}

func newHearing() *hearing { return &hearing{now: time.Unix(1_700_000_000, 0)} }

// hear tells the machine a script, clauses with commas between:
//
//	hold armed, hold disarmed   a report
//	asks hold takeoff           a plan is sent; its steps explain these modes
//	accepted takeoff            every step was acknowledged
//	accepted transit            so was a land's, which flies to its place first
//	over the place              the landing itself was acknowledged
//	refused                     a step was refused
//	arms, disarms               a plan was accepted that does only that
//	lost                        the link was lost
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
		case w[0] == "asks":
			var explains []Mode
			for _, s := range w[1:] {
				explains = append(explains, modeNamed(t, s))
			}
			f.begin(explains)
		case w[0] == "accepted" && w[1] == "transit":
			f.accept(ModeLand, true, f.now)
		case w[0] == "accepted":
			f.accept(modeNamed(t, w[1]), false, f.now)
		case w[0] == "over":
			f.accept(ModeLand, false, f.now)
		case w[0] == "refused":
			f.refuse(f.now)
		case w[0] == "arms" || w[0] == "disarms":
			f.acceptArm(w[0] == "arms")
		case w[0] == "lost":
			f.lose()
		case w[0] == "abandoned":
			f.abandon()
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
		case len(w) == 2 && (w[1] == "armed" || w[1] == "disarmed"):
			f.report(report{modeNamed(t, w[0]), w[1] == "armed"})
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
			if f.report(report{m, false}); f.mode != ModeManual {
				t.Errorf("mode %v, want manual", f.mode)
			}
		})
		t.Run("armed in "+m.String(), func(t *testing.T) {
			f := newHearing()
			if f.report(report{m, true}); f.mode != m {
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
				f.report(report{from, true})
				f.begin([]Mode{to, from})
				if f.mode != from {
					t.Errorf("before the ack: mode %v, want %v", f.mode, from)
				}
				f.accept(to, false, f.now)
				if f.mode != to {
					t.Errorf("accepted: mode %v, want %v", f.mode, to)
				}
				f.report(report{from, true}) // its last heartbeat before the change
				if f.mode != to {
					t.Errorf("after a report that is not new: mode %v, want %v", f.mode, to)
				}
				f.report(report{to, true})
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
				f.report(report{from, true})
				f.begin([]Mode{to, from})
				f.report(report{to, true}) // the first step worked
				f.refuse(f.now)
				f.report(report{to, true})
				f.report(report{from, true}) // the link took it back
				f.now = f.now.Add(time.Minute)
				if f.tick(f.now) || f.mode != from {
					t.Errorf("mode %v, want %v", f.mode, from)
				}
			})
		}
	}
}

// belongs is rule 4: the reports, beside its own, that belong to a commanded
// mode. RTL never belongs to a landing: a failsafe always shows.
func belongs(commanded Mode, transit bool, r report) bool {
	switch commanded {
	case r.mode:
		return true
	case ModeTakeoff:
		return r.mode == ModeHold
	case ModeLand:
		return transit && r.mode == ModeHold || !r.armed && r.mode != ModeRTL
	case ModeRTGS:
		return r.mode == ModeRTL
	}
	return false
}

// everyReport calls f with every commanded mode and report.
func everyReport(t *testing.T, test func(t *testing.T, f *hearing, commanded Mode, transit bool, r report)) {
	for _, c := range requestable {
		for _, transit := range []bool{false, true}[:1+b2i(c == ModeLand)] {
			for _, m := range allModes {
				for _, armed := range []bool{true, false} {
					name := fmt.Sprintf("%v transit=%v reports %v armed=%v", c, transit, m, armed)
					t.Run(name, func(t *testing.T) {
						f := newHearing()
						f.report(report{ModeAltitude, true})
						f.accept(c, transit, f.now)
						f.report(report{c, true})
						test(t, f, c, transit, report{m, armed})
					})
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
	everyReport(t, func(t *testing.T, f *hearing, commanded Mode, transit bool, r report) {
		want := r.mode
		if belongs(commanded, transit, r) {
			want = commanded
		}
		f.report(r)
		if f.mode != want {
			t.Errorf("mode %v, want %v", f.mode, want)
		}
		f.report(r)
		f.now = f.now.Add(time.Minute)
		if f.tick(f.now); f.mode != want {
			t.Errorf("the same again, a minute later: mode %v, want %v", f.mode, want)
		}
	})
}

func TestLinkThatComesBackKeepsWhatTheReportExplains(t *testing.T) {
	everyReport(t, func(t *testing.T, f *hearing, commanded Mode, transit bool, r report) {
		want := commanded // a disarmed vehicle changes nothing
		if r.armed && !belongs(commanded, transit, r) {
			want = r.mode
		}
		f.lose()
		f.report(r)
		if f.mode != want {
			t.Errorf("mode %v, want %v", f.mode, want)
		}
		f.report(r)
		if f.mode != want {
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
		{"a return that ends in hold shows", "hold armed, accepted rtgs, rtl armed, hold disarmed, = hold"},
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
				f.report(report{ModeAltitude, true})
				f.accept(c, c == ModeLand, f.now)
				f.report(report{c, true})
				f.report(report{ModeRTL, armed})
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
					f.report(report{ModeAltitude, true})
					f.report(report{m, armed})
					f.accept(c, false, f.now)
					for range 4 {
						f.report(report{m, armed})
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
		{"still in a step's mode after 5 s it is the reported one", "hold armed, asks position hold, refused, position armed, +5s, = position"},
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

// TestReportedModesAreTheAutopilotsOwn is AUTOPILOTS.md, "The modes, side by
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
		{16, ModeOther, "MODE 16"}, {17, ModeManual, "QSTABILIZE"}, {18, ModeAltitude, "QHOVER"}, {19, ModePosition, "QLOITER"},
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
		if got, want := firmwareOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, typ), ardupilot[typ]; got != want {
			t.Errorf("ArduPilot on MAV_TYPE %d is %d, want %d", typ, got, want)
		}
		if got := firmwareOf(common.MAV_AUTOPILOT_PX4, typ); got != px4 {
			t.Errorf("PX4 on MAV_TYPE %d is %d, want %d", typ, got, px4)
		}
		for _, other := range []common.MAV_AUTOPILOT{common.MAV_AUTOPILOT_GENERIC, common.MAV_AUTOPILOT_INVALID, 200} {
			if got := firmwareOf(other, typ); got != firmwareUnknown {
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

// The vehicle of the plans: 10 m over a home at 488.5 m AMSL when it flies.
const (
	testLat, testLon = 47.3977421, 8.5455938
	testHome         = 488.5
)

// parseVehicle reads a vehicle: its firmware, its mode, and what is the case.
func parseVehicle(t *testing.T, s string) vehicle {
	t.Helper()
	nan := math.NaN()
	w := strings.Fields(s)
	v := vehicle{lat: testLat, lon: testLon, amsl: testHome, heading: 90, homeAMSL: testHome, landed: landedState(common.MAV_LANDED_STATE_ON_GROUND)}
	v.firmware = map[string]firmware{"px4": px4, "copter": copter, "quadplane": quadPlane, "plane": plane, "rover": firmwareUnknown}[w[0]]
	tables := map[firmware][]autopilotMode{px4: px4Modes, copter: copterModes, quadPlane: planeModes, plane: planeModes}
	if i := slices.IndexFunc(tables[v.firmware], func(m autopilotMode) bool { return m.name == w[1] }); i >= 0 {
		v.custom = tables[v.firmware][i].custom
	} else if w[0] != "rover" {
		t.Fatalf("%s: no such mode", s)
	}
	for _, flag := range w[2:] {
		switch flag {
		case "landed": // and disarmed
		case "armed":
			v.armed = true
		case "flying":
			v.armed, v.landed, v.amsl, v.relative = true, landedState(common.MAV_LANDED_STATE_IN_AIR), testHome+10, 10
		case "climbing":
			v.landed = landedState(common.MAV_LANDED_STATE_TAKEOFF)
		case "landing":
			v.landed = landedState(common.MAV_LANDED_STATE_LANDING)
		case "undefined": // whether it is on the ground
			v.landed = landedState(common.MAV_LANDED_STATE_UNDEFINED)
		case "failsafe":
			v.failsafe = true
		case "uphill": // of its home
			v.amsl, v.relative = testHome+6.5, 6.5
		case "homeless":
			v.homeAMSL = nan
		case "headless":
			v.heading = nan
		case "blind": // without GPS
			v.lat, v.lon, v.amsl, v.relative, v.heading = nan, nan, nan, nan, nan
		default:
			t.Fatalf("%s: what is %q?", s, flag)
		}
	}
	return v
}

// parseRequest reads a request: "takeoff", "goto" or "land" for those routes,
// "set" for POST mode, and its fields.
func parseRequest(t *testing.T, s string) request {
	t.Helper()
	w := strings.Fields(s)
	var r request
	switch w[0] {
	case "takeoff":
		r.setMode, r.mode = true, ModeTakeoff
	case "goto":
		r.setMode, r.mode, r.goTo = true, ModeHold, true
	case "land":
		r.setMode, r.mode = true, ModeLand
	case "set":
	default:
		t.Fatalf("no such request: %q", s)
	}
	numbers := map[string]**float64{"lat": &r.lat, "lon": &r.lon, "altitude": &r.altitude, "altitude_msl": &r.altitudeMSL, "heading": &r.heading, "speed": &r.speed}
	for _, field := range w[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "mode":
			r.setMode, r.mode = true, modeNamed(t, value)
		case "arm":
			arm := value == "true"
			r.arm = &arm
		default:
			x, err := strconv.ParseFloat(value, 64)
			if err != nil || numbers[key] == nil {
				t.Fatalf("%s: %q: %v", s, field, err)
			}
			*numbers[key] = &x
		}
	}
	return r
}

// describe writes a step as the tables have it: "INT" or "LONG", the MAV_CMD
// number, the parameters. "…0" and "…NaN" say that all the others are that.
func describe(s *step) string {
	params := func(p []float32) string {
		end := len(p)
		for end > 0 && fmt.Sprint(p[end-1]) == fmt.Sprint(p[len(p)-1]) {
			end--
		}
		var words []string
		if rest := p[end:]; len(rest) > 1 {
			words = append(words, "…"+fmt.Sprint(rest[0]))
			p = p[:end]
		}
		all := ""
		for _, x := range p {
			all += fmt.Sprint(x) + " "
		}
		return "[" + strings.TrimSpace(all+strings.Join(words, "")) + "]"
	}
	var text string
	if s.asInt {
		words := make([]string, 4)
		for i := range words {
			words[i] = fmt.Sprint(s.p[i])
		}
		text = fmt.Sprintf("INT %d frame=%d [%s] x=%d y=%d z=%v", s.cmd, s.frame, strings.Join(words, " "), s.x, s.y, s.p[6])
	} else {
		text = fmt.Sprintf("LONG %d %s", s.cmd, params(s.p[:]))
	}
	if s.undo != nil {
		text += " undo " + describe(s.undo)
	}
	return text
}

// describeSteps writes a plan's commands, or why there is none.
func describeSteps(p plan, err error) []string {
	var ce *commandError
	switch {
	case errors.As(err, &ce):
		return []string{string(ce.code) + ": " + ce.text}
	case err != nil:
		return []string{err.Error()}
	}
	var lines []string
	for i := range p.steps {
		lines = append(lines, describe(&p.steps[i]))
	}
	if p.landed != nil {
		lines = append(lines, "over it: "+describe(p.landed))
	}
	return lines
}

// planRow is a vehicle, a request, and the commands that carry it out.
type planRow struct {
	vehicle, request string
	want             []string
}

func testPlans(t *testing.T, rows []planRow) {
	for _, r := range rows {
		t.Run(r.vehicle+": "+r.request, func(t *testing.T) {
			got := describeSteps(parseRequest(t, r.request).plan(parseVehicle(t, r.vehicle)))
			if !slices.Equal(got, r.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(r.want, "\n\t"))
			}
		})
	}
}

const (
	notFlying   = "refused: not flying: take off first"
	fixedWing   = "unsupported: land: a fixed wing lands by a mission, not by a command"
	unknownKind = "unsupported: this autopilot is neither PX4 nor ArduPilot Copter or Plane: its state can be read, not commanded"
)

// TestPX4Plans: places and heights in DO_REPOSITION and NAV_TAKEOFF are AMSL
// whatever the frame says, yaw is in radians, unset is NaN.
func TestPX4Plans(t *testing.T) {
	const (
		back    = " undo LONG 176 [1 1 0 …NaN]" // MANUAL
		backPos = " undo LONG 176 [1 3 0 …NaN]" // POSCTL
		backRTL = " undo LONG 176 [1 4 5 …NaN]"
	)
	testPlans(t, []planRow{
		{"px4 MANUAL landed", "set mode=manual", []string{"LONG 176 [1 1 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN]" + back}},
		{"px4 MANUAL landed", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]" + back}},
		{"px4 MANUAL landed", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]" + back}},
		{"px4 MANUAL landed", "set mode=rtl", []string{"LONG 176 [1 4 5 …NaN]" + back}},
		{"px4 MANUAL landed", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]" + back}}, // it refuses 4,7
		{"px4 MANUAL landed", "set mode=land", []string{"LONG 21 […NaN]" + back}},
		{"px4 MANUAL landed", "set mode=takeoff", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=manual", []string{"LONG 176 [1 1 0 …NaN]" + backPos}},
		{"px4 POSCTL flying", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN]" + backPos}},
		{"px4 POSCTL flying", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]" + backPos}},
		{"px4 POSCTL flying", "set mode=rtl", []string{"LONG 176 [1 4 5 …NaN]" + backPos}},
		{"px4 POSCTL flying", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]" + backPos}},
		{"px4 AUTO.RTL flying", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]"}},
		{"px4 POSCTL.SLOW flying", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN] undo LONG 176 [1 3 2 …NaN]"}},

		{"px4 MANUAL landed", "set arm=true", []string{"LONG 400 [1 0 …NaN]"}},
		{"px4 MANUAL armed", "set arm=false", []string{"LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=position arm=true", []string{"LONG 176 [1 3 0 …NaN]" + back, "LONG 400 [1 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=hold arm=false", []string{"LONG 176 [1 4 3 …NaN]" + back, "LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=takeoff arm=true", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=land arm=false", []string{"refused: arm: not while flying; the mode was not set either"}},

		{"px4 MANUAL landed", "takeoff", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "takeoff altitude=25", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 513.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL armed", "takeoff", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back}},
		{"px4 POSCTL flying", "takeoff altitude=30", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 518.5]" + backPos}},
		{"px4 POSCTL flying", "takeoff", []string{"refused: altitude: the vehicle is already 10.0 m above home"}},
		{"px4 MANUAL landed uphill", "takeoff altitude=5", []string{"refused: altitude: the vehicle is already 6.5 m above home"}},
		{"px4 MANUAL landed uphill", "takeoff", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed homeless", "takeoff altitude=20", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 508.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 POSCTL flying homeless", "takeoff altitude=20", []string{"refused: takeoff: the autopilot has no home position yet; wait for its GPS"}},
		{"px4 MANUAL landed homeless blind", "takeoff", []string{"refused: takeoff: the autopilot has no home position yet; wait for its GPS"}},

		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=508.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude_msl=600", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=600" + backPos}},
		{"px4 POSCTL flying", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5" + backPos}},
		{"px4 POSCTL flying", "goto altitude=-3", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=485.5" + backPos}},
		{"px4 POSCTL flying", "goto altitude_msl=0", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=0" + backPos}},
		{"px4 POSCTL flying", "goto heading=0", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto heading=180", []string{"INT 192 frame=0 [-1 1 0 3.1415927] x=473977421 y=85455938 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto heading=270", []string{"INT 192 frame=0 [-1 1 0 -1.5707964] x=473977421 y=85455938 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto heading=360", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=-33.8688 lon=151.2093 altitude=20 heading=45 speed=5", []string{"INT 192 frame=0 [5 1 0 0.7853982] x=-338688000 y=1512093000 z=508.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=-90 lon=-180", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=-900000000 y=-1800000000 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=32.8 lon=8.5460009", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=328000000 y=85460009 z=498.5" + backPos}},
		{"px4 POSCTL flying headless", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5" + backPos}},
		{"px4 POSCTL armed climbing", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5" + backPos}},
		{"px4 POSCTL armed undefined", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5" + backPos}},
		{"px4 POSCTL flying homeless", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=498.5" + backPos}},
		{"px4 POSCTL flying homeless", "goto altitude_msl=520", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=520" + backPos}},
		{"px4 POSCTL flying homeless", "goto altitude=20", []string{"refused: altitude: the autopilot has no home position yet; give altitude_msl, or wait for its GPS"}},
		{"px4 POSCTL flying blind", "goto altitude=20", []string{"refused: the autopilot has no position yet: give lat and lon, or wait for its GPS"}},
		{"px4 POSCTL flying blind", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=508.5" + backPos}},
		{"px4 MANUAL landed", "goto lat=47.398 lon=8.546 altitude=20", []string{notFlying}},
		{"px4 POSCTL armed", "goto lat=47.398 lon=8.546 altitude=20", []string{notFlying}},

		// Only DO_SET_MODE ends a failsafe.
		{"px4 AUTO.LOITER flying failsafe", "goto altitude=20", []string{"LONG 176 [1 4 3 …NaN]", "INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5 undo LONG 176 [1 4 3 …NaN]"}},
		{"px4 AUTO.RTL flying failsafe", "goto altitude=20", []string{"LONG 176 [1 4 3 …NaN]" + backRTL, "INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5" + backRTL}},
		{"px4 AUTO.RTL flying failsafe", "land lat=47.398 lon=8.546", []string{"LONG 176 [1 4 3 …NaN]" + backRTL, "INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5" + backRTL, "over it: LONG 21 […NaN]"}},
		{"px4 AUTO.RTL flying failsafe", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]" + backRTL}},

		{"px4 POSCTL flying", "land", []string{"LONG 21 […NaN]" + backPos}},
		{"px4 AUTO.LAND flying landing", "land", []string{"LONG 21 […NaN] undo LONG 176 [1 4 6 …NaN]"}},
		{"px4 POSCTL flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5" + backPos, "over it: LONG 21 […NaN]"}},
		{"px4 POSCTL flying homeless", "land lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5" + backPos, "over it: LONG 21 […NaN]"}},
		{"px4 MANUAL landed", "land lat=47.398 lon=8.546", []string{notFlying}},

		// Asking again for the mode it is in would leave a goto's target standing.
		{"px4 AUTO.LOITER flying", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]", "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=498.5"}},
		{"px4 AUTO.LOITER flying blind", "set mode=hold", []string{"refused: hold: the autopilot sends no position to hold; land and rtl need none"}},
		{"px4 AUTO.LOITER landed", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]"}},
		{"px4 AUTO.LOITER armed", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]"}},
	})
}

// TestCopterPlans: heights are above home in frame 3 unless told AMSL, NAV_TAKEOFF
// is a COMMAND_LONG in GUIDED after arming, speed goes before a goto and yaw
// after it, unset is 0.
func TestCopterPlans(t *testing.T) {
	const (
		back    = " undo LONG 176 [1 …0]"   // STABILIZE
		backPos = " undo LONG 176 [1 5 …0]" // LOITER
		yaw     = "LONG 115 [90 …0]"        // as it is
	)
	testPlans(t, []planRow{
		{"copter STABILIZE landed", "set mode=manual", []string{"LONG 176 [1 …0]"}},
		{"copter STABILIZE landed", "set mode=altitude", []string{"LONG 176 [1 2 …0]" + back}},
		{"copter STABILIZE landed", "set mode=position", []string{"LONG 176 [1 5 …0]" + back}},
		{"copter STABILIZE landed", "set mode=hold", []string{"LONG 176 [1 4 …0]" + back}},
		{"copter STABILIZE landed", "set mode=rtl", []string{"LONG 176 [1 6 …0]" + back}},
		{"copter STABILIZE landed", "set mode=rtgs", []string{"LONG 176 [1 6 …0]" + back}},
		{"copter STABILIZE landed", "set mode=land", []string{"LONG 21 […0]" + back}},
		{"copter STABILIZE landed", "set mode=takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter LOITER flying", "set mode=manual", []string{"LONG 176 [1 …0]" + backPos}},
		{"copter LOITER flying", "set mode=altitude", []string{"LONG 176 [1 2 …0]" + backPos}},
		{"copter LOITER flying", "set mode=position", []string{"LONG 176 [1 5 …0]"}},
		{"copter POSHOLD flying", "set mode=position", []string{"LONG 176 [1 5 …0] undo LONG 176 [1 16 …0]"}},
		{"copter LOITER flying", "set mode=hold", []string{"LONG 176 [1 4 …0]" + backPos}},
		{"copter LOITER flying", "set mode=rtl", []string{"LONG 176 [1 6 …0]" + backPos}},
		{"copter RTL flying", "set mode=rtgs", []string{"LONG 176 [1 6 …0]"}},

		{"copter STABILIZE landed", "set arm=true", []string{"LONG 400 [1 …0]"}},
		{"copter STABILIZE armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"copter STABILIZE landed", "set mode=position arm=true", []string{"LONG 176 [1 5 …0]" + back, "LONG 400 [1 …0]"}},
		{"copter STABILIZE armed", "set mode=hold arm=false", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 […0]"}},

		{"copter STABILIZE landed", "takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE landed", "takeoff altitude=25.5", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 25.5]"}},
		{"copter STABILIZE armed", "takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE armed undefined", "takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter GUIDED landed", "takeoff", []string{"LONG 176 [1 4 …0]", "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE landed homeless blind", "takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter LOITER flying", "takeoff altitude=30", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"copter GUIDED armed climbing", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},

		{"copter LOITER flying", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backPos, yaw}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20" + backPos, yaw}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510" + backPos, yaw}},
		{"copter LOITER flying", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backPos, yaw}},
		{"copter LOITER flying", "goto altitude=0", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=0" + backPos, yaw}},
		{"copter LOITER flying", "goto altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=510" + backPos, yaw}},
		{"copter LOITER flying", "goto heading=270", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10" + backPos, "LONG 115 [270 …0]"}},
		{"copter LOITER flying", "goto heading=0", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10" + backPos, "LONG 115 […0]"}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 speed=5", []string{"LONG 176 [1 4 …0]" + backPos, "LONG 178 [1 5 -1 …0]", "INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backPos, yaw}},
		{"copter GUIDED flying", "goto lat=-33.8688 lon=151.2093 altitude=20 heading=45 speed=2.5", []string{"LONG 176 [1 4 …0]", "LONG 178 [1 2.5 -1 …0]", "INT 192 frame=3 [-1 1 0 0] x=-338688000 y=1512093000 z=20 undo INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10", "LONG 115 [45 …0]"}},
		{"copter LOITER flying headless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backPos}},
		{"copter RTL flying failsafe headless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20 undo LONG 176 [1 6 …0]"}},
		{"copter LOITER flying homeless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backPos, yaw}},
		{"copter LOITER flying homeless blind", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510" + backPos}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20" + backPos}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510" + backPos}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546", []string{"refused: altitude: the autopilot's own height is not known yet; give altitude or altitude_msl"}},
		{"copter LOITER flying blind", "goto altitude=20", []string{"refused: the autopilot has no position yet: give lat and lon, or wait for its GPS"}},
		{"copter STABILIZE landed", "goto altitude=20", []string{notFlying}},
		{"copter GUIDED armed", "goto altitude=20", []string{notFlying}},

		{"copter LOITER flying", "land", []string{"LONG 21 […0]" + backPos}},
		{"copter LOITER flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backPos, "over it: LONG 21 […0]"}},
		{"copter GUIDED flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10 undo INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10", "over it: LONG 21 […0]"}},
		{"copter LOITER flying blind", "land lat=47.398 lon=8.546", []string{"refused: altitude: the autopilot's own height is not known yet; give altitude or altitude_msl"}},
		{"copter STABILIZE landed", "land lat=47.398 lon=8.546", []string{notFlying}},

		{"copter GUIDED flying", "set mode=hold", []string{"LONG 176 [1 4 …0]", "INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10"}},
		{"copter BRAKE flying", "set mode=hold", []string{"LONG 176 [1 4 …0] undo LONG 176 [1 17 …0]"}},
		{"copter GUIDED flying blind", "set mode=hold", []string{"refused: hold: the autopilot sends no position to hold; land and rtl need none"}},
		{"copter GUIDED landed", "set mode=hold", []string{"LONG 176 [1 4 …0]"}},
	})
}

func TestPlanePlans(t *testing.T) {
	const (
		backQ = " undo LONG 176 [1 19 …0]" // QLOITER
		backP = " undo LONG 176 [1 6 …0]"  // FBWB
	)
	testPlans(t, []planRow{
		{"quadplane QLOITER flying", "set mode=manual", []string{"LONG 176 [1 17 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=altitude", []string{"LONG 176 [1 18 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=position", []string{"LONG 176 [1 19 …0]"}},
		{"quadplane QLOITER flying", "set mode=hold", []string{"LONG 176 [1 15 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=rtl", []string{"LONG 176 [1 21 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=rtgs", []string{"LONG 176 [1 21 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=land", []string{"LONG 176 [1 20 …0]" + backQ}},
		{"quadplane QLAND flying", "land", []string{"LONG 176 [1 20 …0]"}},
		{"quadplane QLOITER landed", "set mode=takeoff", []string{"LONG 176 [1 15 …0]" + backQ, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"quadplane QLOITER landed", "takeoff altitude=25", []string{"LONG 176 [1 15 …0]" + backQ, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 25]"}},
		{"quadplane QLOITER armed", "takeoff", []string{"LONG 176 [1 15 …0]" + backQ, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"quadplane QLOITER flying", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"quadplane QLOITER landed", "set arm=true", []string{"LONG 400 [1 …0]"}},
		{"quadplane QLOITER armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"quadplane QSTABILIZE landed", "set mode=altitude arm=true", []string{"LONG 176 [1 18 …0] undo LONG 176 [1 17 …0]", "LONG 400 [1 …0]"}},
		{"quadplane QLOITER flying", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20" + backQ}},
		{"quadplane QLOITER flying", "goto lat=47.398 lon=8.546 altitude_msl=510 speed=5 heading=90", []string{"LONG 176 [1 15 …0]" + backQ, "LONG 178 [1 5 -1 …0]", "INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510" + backQ, "LONG 115 [90 …0]"}},
		{"quadplane QLOITER landed", "goto altitude=20", []string{notFlying}},
		{"quadplane QLOITER flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backQ, "over it: LONG 176 [1 20 …0]"}},
		{"quadplane GUIDED flying", "set mode=hold", []string{"LONG 176 [1 15 …0]", "INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10"}},

		{"plane FBWB flying", "set mode=manual", []string{"LONG 176 [1 …0]" + backP}},
		{"plane FBWB flying", "set mode=altitude", []string{"LONG 176 [1 6 …0]"}},
		{"plane FBWB flying", "set mode=position", []string{`unsupported: mode: this vehicle has no mode for "position"`}},
		{"plane FBWB flying", "set mode=position arm=true", []string{`unsupported: mode: this vehicle has no mode for "position"`}},
		{"plane FBWB flying", "set mode=hold", []string{"LONG 176 [1 15 …0]" + backP}},
		{"plane FBWB flying", "set mode=rtl", []string{"LONG 176 [1 11 …0]" + backP}},
		{"plane FBWB flying", "set mode=rtgs", []string{"LONG 176 [1 11 …0]" + backP}},
		{"plane FBWB flying", "set mode=land", []string{fixedWing}},
		{"plane FBWB flying", "land", []string{fixedWing}},
		{"plane FBWB flying", "land lat=47.398 lon=8.546", []string{fixedWing}},
		{"plane FBWB landed", "takeoff", []string{"LONG 176 [1 13 …0]" + backP, "LONG 400 [1 …0] undo LONG 400 […0]"}},
		{"plane FBWB landed", "set mode=takeoff", []string{"LONG 176 [1 13 …0]" + backP, "LONG 400 [1 …0] undo LONG 400 […0]"}},
		{"plane FBWB armed", "takeoff", []string{"LONG 176 [1 13 …0]" + backP}},
		{"plane FBWB landed", "takeoff altitude=30", []string{"unsupported: altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out"}},
		{"plane FBWB flying", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"plane FBWB landed", "set arm=true", []string{"LONG 400 [1 …0]"}},
		{"plane FBWB armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"plane FBWB flying", "goto lat=47.398 lon=8.546 altitude=60", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=60" + backP}},
		{"plane FBWB flying", "goto altitude_msl=600 speed=20", []string{"LONG 176 [1 15 …0]" + backP, "LONG 178 [1 20 -1 …0]", "INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=600" + backP}},
		{"plane FBWB flying", "goto lat=47.398 lon=8.546 heading=90", []string{"unsupported: heading: a fixed wing can't keep one at a place; leave it out"}},
		{"plane FBWB landed", "goto altitude=60", []string{notFlying}},
		{"plane GUIDED flying", "set mode=hold", []string{"LONG 176 [1 15 …0]", "INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10"}},

		{"rover MANUAL landed", "set mode=hold", []string{unknownKind}},
		{"rover MANUAL landed", "set arm=true", []string{unknownKind}},
		{"rover MANUAL landed", "takeoff", []string{unknownKind}},
		{"rover MANUAL armed", "goto altitude=20", []string{unknownKind}},
		{"rover MANUAL armed", "land", []string{unknownKind}},
	})
}

// TestPlanTellsMachineAndSticksWhatItMeans: the mode that the plan enters, what
// its steps may show meanwhile, what it needs of the sticks, where it goes.
func TestPlanTellsMachineAndSticksWhatItMeans(t *testing.T) {
	for _, r := range []struct{ vehicle, request, want string }{
		{"px4 AUTO.LOITER flying", "set mode=manual", "manual explains hold manual position, sticks enter"},
		{"px4 AUTO.LOITER flying", "set mode=altitude", "altitude explains altitude hold position, sticks enter"},
		{"px4 AUTO.LOITER flying", "set mode=position", "position explains hold position, sticks enter"},
		{"px4 AUTO.LOITER landed", "set mode=position arm=true", "position explains hold position, sticks enter"},
		{"px4 POSCTL flying", "set mode=hold", "hold explains hold position, sticks leave"},
		{"px4 POSCTL flying", "set mode=rtl", "rtl explains position rtl, sticks leave"},
		{"px4 POSCTL flying", "set mode=rtgs", "rtgs explains position rtgs rtl, sticks leave"},
		{"px4 POSCTL flying", "land", "land explains land position, sticks leave"},
		{"px4 POSCTL flying", "land lat=47.398 lon=8.546", "land explains hold land position, sticks leave, to 47.398 8.546 10"},
		{"px4 MANUAL landed", "takeoff", "takeoff explains hold manual takeoff, sticks leave"},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude=20", "hold explains hold position, sticks leave, to 47.398 8.546 20"},
		{"px4 POSCTL flying", "goto altitude_msl=508.5", "hold explains hold position, sticks leave, to 47.3977421 8.5455938 20"},
		{"px4 POSCTL flying homeless", "goto altitude_msl=508.5", "hold explains hold position, sticks leave, to 47.3977421 8.5455938 NaN"},
		{"px4 POSCTL flying", "goto heading=0", "hold explains hold position, sticks leave, to 47.3977421 8.5455938 10"},
		{"px4 AUTO.RTL flying failsafe", "goto altitude=20", "hold explains hold rtl, sticks leave, to 47.3977421 8.5455938 20"},
		{"px4 AUTO.LOITER landed", "set arm=true", "arms explains hold, sticks as they are"},
		{"px4 MANUAL landed", "set arm=true", "arms explains manual, sticks run"},
		{"px4 ALTCTL landed", "set arm=true", "arms explains altitude, sticks run"},
		{"px4 POSCTL landed", "set arm=true", "arms explains position, sticks run"},
		{"px4 POSCTL armed", "set arm=false", "disarms explains position, sticks as they are"},
		{"px4 AUTO.MISSION flying", "set mode=hold", "hold explains hold other, sticks leave"},

		{"copter GUIDED flying", "set mode=manual", "manual explains hold manual, sticks enter"},
		{"copter GUIDED flying", "set mode=altitude", "altitude explains altitude hold, sticks enter"},
		{"copter GUIDED flying", "set mode=position", "position explains hold position, sticks enter"},
		{"copter LOITER flying", "set mode=hold", "hold explains hold position, sticks leave"},
		{"copter LOITER flying", "set mode=rtl", "rtl explains position rtl, sticks leave"},
		{"copter LOITER flying", "set mode=rtgs", "rtgs explains position rtgs rtl, sticks leave"},
		{"copter LOITER flying", "land", "land explains land position, sticks leave"},
		{"copter LOITER flying", "land lat=47.398 lon=8.546", "land explains hold land position, sticks leave, to 47.398 8.546 10"},
		{"copter STABILIZE landed", "takeoff", "takeoff explains hold manual takeoff, sticks leave"},
		{"copter LOITER flying", "goto altitude=20", "hold explains hold position, sticks leave, to 47.3977421 8.5455938 20"},
		{"copter LOITER landed", "set arm=true", "arms explains position, sticks run"},
		{"copter GUIDED landed", "set arm=true", "arms explains hold, sticks as they are"},
		{"copter GUIDED armed", "set arm=false", "disarms explains hold, sticks as they are"},

		{"quadplane QHOVER flying", "set mode=position", "position explains altitude position, sticks enter"},
		{"quadplane QHOVER flying", "land lat=47.398 lon=8.546", "land explains altitude hold land, sticks leave, to 47.398 8.546 10"},
		{"plane FBWB flying", "set mode=manual", "manual explains altitude manual, sticks enter"},
		{"plane MANUAL landed", "takeoff", "takeoff explains hold manual takeoff, sticks leave"},
	} {
		t.Run(r.vehicle+": "+r.request, func(t *testing.T) {
			p, err := parseRequest(t, r.request).plan(parseVehicle(t, r.vehicle))
			if err != nil {
				t.Fatal(err)
			}
			got := map[bool]string{true: "arms", false: "disarms"}[p.arm]
			if p.setsMode {
				got = p.mode.String()
			}
			var explains []string
			for _, m := range p.explains {
				explains = append(explains, m.String())
			}
			slices.Sort(explains)
			got += " explains " + strings.Join(slices.Compact(explains), " ")
			got += ", sticks " + [...]string{"as they are", "enter", "run", "leave"}[p.sticks]
			if p.target != nil {
				got += fmt.Sprintf(", to %v %v %v", p.target.lat, p.target.lon, p.target.altitude)
			}
			if got != r.want {
				t.Errorf("\ngot  %s\nwant %s", got, r.want)
			}
		})
	}
}

func TestOnlyAReturnExplainsRTL(t *testing.T) {
	requests := []string{"takeoff altitude=50", "goto altitude=20", "land", "land lat=47.398 lon=8.546", "set arm=true", "set arm=false"}
	for _, m := range requestable {
		if m != ModeRTL && m != ModeRTGS && m != ModeTakeoff {
			requests = append(requests, "set mode="+m.String(), "set mode="+m.String()+" arm=true")
		}
	}
	for _, v := range []string{"px4 POSCTL flying", "copter LOITER flying", "copter STABILIZE landed", "quadplane QLOITER flying", "plane FBWB flying"} {
		for _, r := range requests {
			p, err := parseRequest(t, r).plan(parseVehicle(t, v))
			if err == nil && (slices.Contains(p.explains, ModeRTL) || slices.Contains(p.explains, ModeRTGS)) {
				t.Errorf("%s: %s would hide a failsafe", v, r)
			}
		}
	}
}

// What no reader of a table would notice: PX4 arms and stays on the ground at
// latitude and longitude 0, and flies degrees as radians.
func TestNoPX4PlanAsksForPlaceZeroOrDegrees(t *testing.T) {
	for _, altitude := range []string{"2.5", "10", "120"} {
		p, err := parseRequest(t, "takeoff altitude="+altitude).plan(parseVehicle(t, "px4 AUTO.LOITER landed"))
		if err != nil {
			t.Fatal(err)
		}
		if s := p.steps[0]; s.cmd != common.MAV_CMD_NAV_TAKEOFF || s.asInt || !math.IsNaN(float64(s.p[4])) || !math.IsNaN(float64(s.p[5])) || s.p[6] <= testHome {
			t.Errorf("takeoff to %s m: %s", altitude, describe(&s))
		}
	}
	for heading := range 361 {
		p, err := parseRequest(t, fmt.Sprintf("goto heading=%d", heading)).plan(parseVehicle(t, "px4 POSCTL flying"))
		if err != nil {
			t.Fatal(err)
		}
		yaw := float64(p.steps[0].p[3])
		if math.Abs(yaw) > math.Pi+1e-6 || math.Abs(math.Remainder(yaw*180/math.Pi-float64(heading), 360)) > 1e-4 {
			t.Errorf("heading %d is sent as %v", heading, yaw)
		}
	}
}

// TestStepNamesTheModeItAsksFor: the link compares it with the heartbeat's.
func TestStepNamesTheModeItAsksFor(t *testing.T) {
	for _, f := range []firmware{px4, copter, quadPlane, plane} {
		for m, custom := range entered[f] {
			s := f.setMode(custom)
			if got := s.custom(f); got != custom {
				t.Errorf("firmware %d, %v: asks for %d, want %d", f, m, got, custom)
			}
			shows, _ := f.reported(custom)
			switch {
			case m == ModeRTGS && shows == ModeRTL, m == ModeTakeoff && shows == ModeHold: // as it is called there
			case shows != m:
				t.Errorf("firmware %d: what enters %v is reported as %v", f, m, shows)
			}
		}
	}
}

// witness watches a machine from outside: it remembers what the machine was
// told, and says what no rule of the design allows.
type witness struct {
	machine
	now time.Time

	last     report        // given last
	heard    bool          // last is set
	lost     bool          // the link, since then
	said     map[Mode]bool // every mode that was ever given
	accepted Mode          // by the last command
	transit  bool          // of an accepted land
	pending  []Mode        // explained by the plan that waits
	settling []Mode        // explained by the plan that was refused
	waiting  bool          // for a report that explains the accepted mode

	ackedAt, refusedAt time.Time

	// Where a plan's steps explained a report, or arming was accepted, the report
	// that the next one must differ from is one of several.
	before []report
}

// late reports whether 5 s have passed since the given time.
func (w *witness) late(since time.Time) bool { return w.now.Sub(since) >= followTime }

func (w *witness) seeReport(r report) string {
	mode, last := w.mode, w.last
	met, first := w.heard, !w.heard || w.lost
	ours := belongs(mode, w.transit, r)
	lag := slices.Contains(w.settling, r.mode) && !w.late(w.refusedAt) // of a refused plan
	explained := slices.Contains(w.pending, r.mode) || lag
	other := func(b report) bool { return b != last }
	sure := !slices.ContainsFunc(w.before, other) // that last is the one to differ from
	guessed := slices.Contains(w.before, r)       // by an accepted arming

	w.report(r)

	if w.mode != mode {
		w.settling = nil
	}
	if w.mode != mode || belongs(w.mode, w.transit, r) && (w.mode != ModeTakeoff || r.armed) {
		w.waiting = false
	}
	if !explained || !met {
		w.before = nil
	}
	w.before = append(w.before, r)
	w.last, w.heard, w.lost = r, true, false
	w.said[r.mode] = true

	returns := w.mode == ModeRTL || w.mode == ModeRTGS && w.accepted == ModeRTGS
	switch {
	case w.mode != mode && w.mode != r.mode:
		return "a mode that was not reported"
	case first && !r.armed && w.mode != mode:
		return "a disarmed first contact changed the mode"
	case first && r.armed && !explained && !ours && w.mode != r.mode:
		return "an armed first contact is hidden"
	case !first && r == last && sure && w.mode != mode:
		return "an equal report changed the mode"
	case r.mode == ModeRTL && r != last && !explained && !guessed && (r.armed || !first) && !returns:
		return "a return is hidden"
	}
	return ""
}

func (w *witness) seeBegin(m Mode) string {
	mode := w.mode
	w.pending, w.settling = []Mode{m, mode}, nil // every plan explains the mode it comes from
	w.begin(slices.Clone(w.pending))
	if w.mode != mode {
		return "a command that waits changed the mode"
	}
	return ""
}

func (w *witness) seeAccept(m Mode, transit bool) string {
	w.accept(m, transit, w.now)
	w.accepted, w.transit, w.pending, w.settling = m, transit, nil, nil
	w.waiting, w.ackedAt = true, w.now
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
	w.settling, w.pending, w.refusedAt = w.pending, nil, w.now
	if w.mode != mode {
		return "a refused command changed the mode"
	}
	return ""
}

func (w *witness) seeArm(arm bool) string {
	if w.pending == nil || w.lost {
		return ""
	}
	mode, waited := w.mode, w.waiting
	w.acceptArm(arm)
	w.pending = nil
	w.before = append(w.before, report{w.last.mode, arm})
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
	acked, refused := w.late(w.ackedAt), w.late(w.refusedAt)
	due := w.waiting && acked && refused && w.pending == nil && !w.lost
	if due || unfollowed {
		w.waiting = false
	}
	w.before = append(w.before, w.last)
	switch {
	case (unfollowed || w.mode != mode) && !acked && !refused:
		return "it did not wait 5 s"
	case (unfollowed || w.mode != mode) && w.pending != nil:
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

func (w *witness) seeAbandon() string {
	w.abandon()
	w.waiting, w.settling = false, nil
	w.before = append(w.before, w.last)
	if w.mode != w.last.mode {
		return "a failsafe entered a mode that was not reported last"
	}
	return ""
}

// FuzzMachine gives the machine commands, reports, time and link loss in any
// order. An event is two letters, what and which mode: "Rh" is an armed report
// of hold.
func FuzzMachine(f *testing.F) {
	const whats = "RrbatxDdTLA" // the cases below, in their order
	const which = "mapthlrso"   // manual, altitude, position, takeoff, hold, land, rtl, rtgs, other
	for _, flight := range []string{
		"rh bt rt at Rt Tz Rh bh ah Rh Tz bl al Rl rl rh Tz", // a takeoff, a goto, a landing
		"Rp bh t. Rh Tz Rh t. Rl rl rh",                      // a landing at a place
		"Rp bh t. Rh Tz Rr Tz A. rr rh",                      // the same, and a failsafe
		"rm bt at Rt Rm Rh bp ap Rp",                         // the pilot takes over in a takeoff
		"Rh bp Rp x. Rp Tz Tz Tz Rh ba aa Rh Tz Tz Tz",       // refused half-way; then not followed
		"Rh bs as Rr L. Tz Rr L. Rm",                         // lost in a return, and back
		"rh bh D. Rh bp bm am Rm bm d. rm L. ro Ro",          // armed and disarmed, one command over another
	} {
		var events []byte
		for e := range strings.FieldsSeq(flight) {
			arg := max(strings.IndexByte(which, e[1]), 0)
			if e[0] == 'T' {
				arg = 25
			}
			events = append(events, byte(strings.IndexByte(whats, e[0])), byte(arg))
		}
		f.Add(events)
	}

	f.Fuzz(func(t *testing.T, events []byte) {
		w := &witness{now: time.Unix(1_700_000_000, 0), said: map[Mode]bool{}}
		w.ackedAt, w.refusedAt = w.now.Add(-followTime), w.now.Add(-followTime)
		for story := ""; len(events) > 1; events = events[2:] {
			what, arg := whats[events[0]%byte(len(whats))], int(events[1])
			m, requested := allModes[arg%len(allModes)], requestable[arg%len(requestable)]
			var wrong string
			switch {
			case what == 'R', what == 'r':
				wrong = w.seeReport(report{m, what == 'R'})
			case !w.heard && what != 'T' && what != 'L': // the link commands nobody
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
			}
			if strings.IndexByte("ba", what) >= 0 {
				m = requested
			}
			story += fmt.Sprintf(" %c%c", what, which[m])
			if wrong == "" && w.mode != ModeManual && w.mode != w.accepted && !w.said[w.mode] {
				wrong = "a mode from nowhere"
			}
			if wrong != "" {
				t.Fatalf("%s: mode %v after%s", wrong, w.mode, story)
			}
		}
	})
}
