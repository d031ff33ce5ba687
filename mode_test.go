package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

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

// A landing is repeated while it is not acknowledged. On a line that falls behind its copy may go out while the report
// of its mode is on the way.
func TestAStepIsOursFromItsFirstCopyUntil5sAfterItsLast(t *testing.T) {
	at := time.Now()
	for left, taken := range map[time.Duration]bool{
		-claimSlack:                true,
		100 * time.Millisecond:     false,
		followTime + 2*time.Second: false,
		followTime + 3*time.Second: true,
	} {
		hold := shownMode{custom: px4Custom(4, 3), armed: true}
		m := machine{known: true, mode: ModeLand, last: report{shownMode: hold, mode: ModeHold}}
		m.commanded = &goal{mode: ModeLand, number: px4Custom(4, 3)}
		land := &goal{mode: ModeLand, number: px4Custom(4, 6)}
		m.claim(land, at)
		m.claim(land, at.Add(3*time.Second))
		shown := shownMode{custom: px4Custom(4, 6), armed: true, at: at.Add(left)}
		if got := m.judge(report{shownMode: shown, mode: ModeLand}).means == meansTakeover; got != taken {
			t.Errorf("the landing is taken for a pilot's %v after it was sent: %v", left, got)
		}
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
					r.takeNumber(uint32(w[1][0]), last, now, now)
				case "beat":
					shown = ""
					beat := shownMode{custom: uint32(w[1][0]), armed: w[2] == "armed", failsafe: w[2] == "armed"}
					for _, b := range r.takeHeartbeat(beat, last, leaving{left: now, latest: now}, now) {
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

// On PX4 sticks stay where they are in a mode that ignores them. In one that does not they would fly the drone on: so
// what counts as ignoring them stands here once more, and every other mode does not.
func TestOnlyTheseModesAreTrustedToIgnoreSticks(t *testing.T) {
	planeModes := "AUTO AUTOLAND AVOID_ADSB CIRCLE GUIDED INITIALISING LOITER LOITER_ALT_QLAND QRTL RTL TAKEOFF THERMAL"
	for f, want := range map[firmware]string{
		px4: "AUTO.GUIDED_COURSE AUTO.LAND AUTO.LOITER AUTO.MISSION AUTO.PRECLAND AUTO.READY AUTO.RTGS AUTO.RTL " +
			"AUTO.TAKEOFF AUTO.VTOL_TAKEOFF OFFBOARD TERMINATION",
		copter:    "AUTO AUTO_RTL AVOID_ADSB BRAKE FOLLOW GUIDED GUIDED_NOGPS RTL SMART_RTL THROW",
		quadPlane: planeModes,
		plane:     planeModes,
	} {
		var names []string
		for _, row := range modesOf(f) {
			if row.sticks == unsteered {
				names = append(names, row.name)
			}
		}
		slices.Sort(names)
		lineEqual(t, fmt.Sprint("family ", f), strings.Join(names, " "), want)
		if row, listed := f.row(1 << 30); listed || row.sticks != steered {
			t.Errorf("a mode that no list has: %+v", row)
		}
	}
}
