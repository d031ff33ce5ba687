package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func TestAStickModeIsCommandedOnceItsStreamHasRun(t *testing.T) {
	for _, r := range []struct {
		vehicle, script string
		streamed        bool
		arming          bool
		want            time.Duration // from now
	}{
		{"px4", "+1s", true, false, 0},
		{"px4", "arms", true, false, 400 * time.Millisecond},
		{"px4", "arms", true, true, stickLead},
		{"px4", "arms", false, false, 0},
		{"px4", "arms, +300ms", true, false, stickLead - 300*time.Millisecond},
		{"px4", "sets position", true, false, 0},
		{"px4", "sets position, axes 300 0 500 0 5s", true, false, 0}, // from one to another
		{"copter none", "arms", true, false, stickLead},
		{"copter none", "arms", true, true, 2100 * time.Millisecond},
		{"copter idle", "arms", true, true, stickLead},
		{"copter in-use", "arms", true, true, 0},
		{"px4", "sets position, becomes disarmed, +6s", false, true, 0},
		{"px4", "sets position, becomes disarmed, +5s, now off", false, true, time.Second},
		{"px4", "sets position, becomes disarmed, +5s, now off", true, false, 0},
		{"copter none", "sets position, becomes disarmed, +5s, now off", false, true, stickLowers},
	} {
		t.Run(r.vehicle+" "+r.script, func(t *testing.T) {
			h := parseStickFlight(t, r.vehicle)
			if wrong := h.play(t, r.script); wrong != "" {
				t.Fatal(wrong)
			}
			got := max(h.ready(r.streamed, h.v, r.arming).Sub(h.v.now), 0)
			if off := got - r.want; off < -10*time.Millisecond || off > 10*time.Millisecond {
				t.Errorf("a step may go in %v, want %v", got, r.want)
			}
		})
	}
}

// TestStreamIsSentAtItsRateAndNeverElse: at 25 Hz, a client's new sticks at once, and
// nothing where the vehicle needs no stream.
func TestStreamIsSentAtItsRateAndNeverElse(t *testing.T) {
	h := newStickFlight(copter, "none", 0)
	h.pass(time.Minute)
	if next := h.tick(h.v); len(h.frames) > 0 || !next.IsZero() {
		t.Errorf("%d frames, the next is due at %v", len(h.frames), next)
	}
	h.play(t, "sets position, +10s")
	if n := len(h.frames); n < 255 || n > 262 {
		t.Errorf("%d frames in 10.4 s", n)
	}
	if next := h.tick(h.v); !next.After(h.v.now) || next.Sub(h.v.now) > stickEvery {
		t.Errorf("the next is due in %v", next.Sub(h.v.now))
	}
	h.pass(30 * time.Millisecond)
	n := len(h.frames)
	h.play(t, "axes 300 0 500 0 1s")
	if len(h.frames) != n+1 || h.frames[n].axes.x != 300 || h.frames[n].at != h.v.now {
		t.Error("the client's sticks did not go out at once")
	}
	h.pass(30 * time.Millisecond)
	lineEqual(t, "frames in the next 30 ms", len(h.frames)-n-1, 0)
	for i := 1; i < len(h.frames); i++ {
		if gap := h.frames[i].at.Sub(h.frames[i-1].at); gap > stickEvery {
			t.Fatalf("%v between two frames", gap)
		}
	}
}

// Each walk begins with a client's sticks in a stick mode. Then anything happens, a pilot's switch most often.
func TestTheSticksKeepTheirRulesOnEveryWalk(t *testing.T) {
	for n := range walks(800) {
		dice := rand.New(rand.NewPCG(uint64(n), 1))
		mode := byte(dice.IntN(3))
		events := []byte{byte(n), 'e', mode, 'T', 30, 'g', mode, 'i', byte(dice.IntN(256)), 'T', byte(dice.IntN(200))}
		for range 12 {
			what := ("pppTTTTii" + stickEvents)[dice.IntN(9+len(stickEvents))]
			events = append(events, what, byte(dice.IntN(256)))
		}
		if wrong := sticksWalked(t, events); wrong != "" {
			t.Fatalf("walk %d: %s", n, wrong)
		}
	}
}

// FuzzSticks gives the sticks everything that happens to them in any order. After
// a switch that no client commanded, until a client sets a stick mode or leaves one, only
// centred, unmoved or released sticks are streamed, and no hold is asked for. Nothing
// happens that "Who has the sticks" forbids.
func FuzzSticks(f *testing.F) {
	for vehicle := range stickVehicles {
		for _, seed := range []string{ // as a failure prints them
			"e0 g1 i49 T50 p3 T50", "e0 g1 i20 T200 T50 p5 T1 c0", "e0 g1 i1 T200 l0 f0 T60",
			"e0 g0 i49 l0 k0 T120 r0 T50 a0", "e0 g1 T200 l0 f0 T60", "e0 g2 i49 F0 T50 e0 g2",
			"d0 e0 a0 s0 T50 w0 g1 i49 L1 T250 L0 T50", "e0 g2 i49 T5 p5 T1 p2 T250", "e0 g2 i49 C200 T200 C25 T50 c0",
			"e0 g1 F0 F0 T100 c0 T50 c0 T50", "e0 o0 T50 O0 T50", "e0 o0 p7 T50",
		} {
			events := []byte{byte(vehicle)}
			for _, word := range strings.Fields(seed) {
				arg, _ := strconv.Atoi(word[1:])
				events = append(events, word[0], byte(arg))
			}
			f.Add(events)
		}
	}
	f.Fuzz(func(t *testing.T, events []byte) {
		if wrong := sticksWalked(t, events); wrong != "" {
			t.Fatal(wrong)
		}
	})
}

// TestWhoseSticksCount is the table of docs/design.md, "Who has the sticks": which
// parameter the refusal names where our sticks would be ignored, and why they are.
func TestWhoseSticksCount(t *testing.T) {
	const first = "the transmitter has the sticks; to fly by these sticks, land, switch the transmitter off and restart"
	const wins = "the transmitter has the sticks; to fly by these sticks, land and switch the transmitter off"
	denied := map[string]string{}
	for _, receiver := range []string{"idle", "in-use"} {
		for in, why := range map[string]string{"3": first, "NaN": first, "5": wins, "7": wins,
			"2": "was on in this flight: these sticks would take the drone and the kill switch from the pilot"} {
			denied["px4 "+receiver+" "+in] = why
		}
	}
	nobodyFlies := map[string]bool{"px4 none 0": true}
	for _, receiver := range []string{"none", "idle", "in-use"} {
		for _, in := range []string{"4", "9"} {
			nobodyFlies["px4 "+receiver+" "+in] = true
		}
		denied["px4 "+receiver+" 0"] = "PX4 obeys only a transmitter's sticks; set it to 5"
		for _, in := range []string{"4", "9"} { // our sticks are ignored
			denied["px4 "+receiver+" "+in] = "nobody's sticks act, nor a transmitter's kill switch; set it to 5"
		}
		for _, f := range []string{"copter", "quadplane", "plane"} {
			for _, fs := range []string{"1", "2", "5"} {
				denied[f+" "+receiver+" "+fs] = "the autopilot takes these sticks for a ground station's heartbeat; " +
					"set it to 0, or start mavrest with -gcs"
			}
		}
	}
	for _, f := range []string{"px4", "copter", "quadplane", "plane"} {
		for _, receiver := range []string{"none", "idle", "in-use"} {
			for _, param := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "NaN"} {
				if f != "px4" && strings.Contains("346789", param) {
					continue // no values of FS_GCS_ENABLE
				}
				vehicle := f + " " + receiver + " " + param
				for _, gcs := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s gcs=%v", vehicle, gcs), func(t *testing.T) {
						h := parseStickFlight(t, vehicle)
						if gcs { // as with -gcs
							h.v.gcsFailsafe = 0
						}
						want := denied[vehicle] != "" && !(gcs && f != "px4")
						why := h.src.denied(h.v.view)
						if why.given() != want {
							t.Fatalf("denied: %q, want %v", why, want)
						}
						name := map[string]string{
							"px4": "COM_RC_IN_MODE", "copter": "FS_GCS_ENABLE is", "quadplane": "FS_GCS_ENABL is",
							"plane": "FS_GCS_ENABL is",
						}[f]
						for _, says := range []string{name, denied[vehicle]} {
							if want && !strings.Contains(why.String(), says) {
								t.Errorf("%q does not say %s", why, says)
							}
						}
						// Without sticks of ours a stick mode that a client sets has no stream.
						h.asks()
						h.in("altitude")
						h.giveToClient(h.v, netip.Addr{})
						h.pass(20 * time.Second)
						receiverFlies := f != "px4" && receiver == "in-use" // on PX4 the parameter decides
						quiet := want || receiverFlies
						if (h.phase == stickOff) != quiet || quiet && len(h.frames) > 0 {
							t.Errorf("%s after %d frames", h.state(), len(h.frames))
						}
						if quiet && h.acts != "" {
							t.Errorf("the sticks asked for %s", h.acts)
						}
						hasSticks := receiverFlies || f == "px4" && want && !nobodyFlies[vehicle]
						by := map[bool]string{true: "receiver"}[hasSticks] // else ""
						if got := h.by(h.v); got != by {
							t.Errorf("%q has the sticks, want %q", got, by)
						}
						// Another program's sticks are named before a parameter; PX4 chooses itself.
						h.hearForeign(h.v)
						if got := h.src.denied(h.v.view); (got.kind == otherProgram) == (f == "px4") {
							t.Errorf("during another program's sticks: %q", got)
						}
						h.pass(othersFor)
						if got := h.src.denied(h.v.view); got.given() != want {
							t.Errorf("3 s after it: %q", got)
						}
					})
				}
			}
		}
	}
}

func TestReceiversStateCountsOnlyWithoutAStreamOfOurs(t *testing.T) {
	for _, r := range []struct {
		name   string
		script string
		want   receiverState
	}{
		{"live and low", "hears receiver 1000", receiverIdle},
		{"live at 0 µs", "hears receiver 0", receiverIdle},
		{"live up to 1350", "hears receiver 1350", receiverIdle},
		{"live over 1350", "hears receiver 1351", receiverInUse},
		{"lost", "hears receiver 1500, hears no receiver", receiverNone},
		{"throttle down again", "hears receiver 1500, hears receiver 1000", receiverIdle},
		{"not counted while our stream runs", "sets position, hears receiver 1500", receiverNone},
		{"not counted for 3.5 s after our stream",
			"becomes disarmed, sets position, +5100ms, now off, +3300ms, hears receiver 1500", receiverNone},
		{"not counted for 3.5 s after another program's sticks", "foreign, +3400ms, hears receiver 1500", receiverNone},
		{"counted 3.5 s after our stream",
			"becomes disarmed, sets position, +5100ms, now off, +3500ms, hears receiver 1500", receiverInUse},
		{"not counted as a release goes out",
			"hears receiver 1000, sets position, leaves, left hold, hears receiver 1500", receiverIdle},
		{"not counted for a round trip after it",
			"round trip 500ms, hears receiver 1000, sets position, leaves, left hold, +500ms, hears receiver 1500",
			receiverIdle},
		{"counted at once after a release",
			"hears receiver 1000, sets position, leaves, left hold, +50ms, hears receiver 1500", receiverInUse},
		{"not counted for 3.5 s after another program's sticks, though ours were released since",
			"hears receiver 1000, foreign, sets position, leaves, left hold, +50ms, hears receiver 1500", receiverIdle},
		{"forgotten at a restart", "hears receiver 1500, restarted", receiverNone},
		{"not counted for 3.5 s after a restart", "restarted, +3s, hears receiver 1500", receiverNone},
	} {
		t.Run(r.name, func(t *testing.T) {
			h := newStickFlight(copter, "none", 0)
			if wrong := h.play(t, r.script); wrong != "" {
				t.Error(wrong)
			}
			if h.src.receiver != r.want {
				t.Errorf("receiver %d, want %d", h.src.receiver, r.want)
			}
		})
	}
	// An earlier process' sticks may hide the receiver until 3.5 s after the link's opening. It opened 3 s ago.
	h := newStickFlight(copter, "none", 0)
	h.src.known = false
	h.src.hide(h.v.now.Add(overrideTimeout - 3*time.Second))
	if h.hearReceiver(h.v.now, true, 1500); h.src.known || h.src.receiver != receiverNone {
		t.Error("it counts 3 s after the link opened")
	}
	h.pass(500 * time.Millisecond)
	if h.hearReceiver(h.v.now, true, 1500); !h.src.known || h.src.receiver != receiverInUse {
		t.Error("it does not count 3.5 s after the link opened")
	}
}

func TestForeignSticksPauseOurs(t *testing.T) {
	h := parseStickFlight(t, "copter idle")
	h.play(t, "sets position, +1s, foreign")
	n := len(h.frames)
	h.pass(480 * time.Millisecond)
	lineEqual(t, "sent while they come", len(h.frames), n)
	h.pass(200 * time.Millisecond)
	lineEqual(t, "sent 0.5 s later", len(h.frames) > n, true)
}

// Before PX4 1.17 the values 5 to 8 switch every stick off, a transmitter's too.
func TestPX4BeforeOneSeventeenHasNoSticksWithFiveToEight(t *testing.T) {
	for _, version := range []firmwareVersion{0, 1<<24 | 14<<16 | 255, 1<<24 | 16<<16 | 2<<8 | 255, 1<<24 | 17<<16 |
		255, 1<<24 | 18<<16, 2 << 24} {
		for _, in := range []float64{-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9} {
			h := newStickFlight(px4, "none", in)
			h.v.version = version
			old := version < 1<<24|17<<16 && in >= 5 && in <= 8
			dead := in < 0 || in == 4 || in > 8 || old
			for _, why := range []reason{h.v.noSticks(), h.src.denied(h.v.view), h.src.whyNobodyFlies(h.v.view)} {
				if strings.Contains(why.String(), "nor a transmitter's kill switch") != dead {
					t.Errorf("%s, %g: %q", version, in, why)
				}
			}
			on := "on PX4 " + cmp.Or(version.String(), "of unknown version") + ": before PX4 1.17 nobody's sticks act"
			if strings.Contains(h.v.noSticks().String(), on) != old {
				t.Errorf("%s, %g: %q", version, in, h.v.noSticks())
			}
			deaf := map[float64]string{1: "always", 2: "while these", 3: "until PX4 restarts", 6: "while these",
				8: "while these"}[in]
			why := h.v.deafens()
			if (why == reason{}) != (deaf == "") || deaf != "" && !strings.Contains(why.String(), "kill switch "+deaf) {
				t.Errorf("%s, %g: PX4 ignores a transmitter: %q", version, in, why)
			}
			for _, text := range []reason{h.v.noSticks(), h.src.denied(h.v.view), h.v.deafens()} {
				if version < px4SourceOrder && strings.Contains(text.String(), "to 5") {
					t.Errorf("%s, %g: %q recommends 5", version, in, text)
				}
				if strings.Contains(text.String(), fmt.Sprintf("to %g ", in)) {
					t.Errorf("%s, %g: %q recommends what it is", version, in, text)
				}
			}
			h.hearReceiver(h.v.now, true, 1500)
			h.src.transmitterAt = h.v.now
			if h.in("position"); dead && h.by(h.v) != "" {
				t.Errorf("%s, %g: %q has the sticks", version, in, h.by(h.v))
			}
		}
	}
	for r, want := range map[reason]string{
		{value: 0}: "set it to 1 for a drone without a transmitter",
		{value: 1}: "set it to 0 for a drone with a transmitter (POST input is refused then); 1 is for a drone " +
			"without a transmitter",
		{value: 4, version: px4SourceOrder}: "set it to 5 to let a transmitter come first and POST input act " +
			"while it is off, or to 1 for a drone without a transmitter",
	} {
		lineEqual(t, fmt.Sprintf("the advice for %g on %s", r.value, r.version), r.rcInAdvice(), want)
	}
}

func TestWhatAWarningSaysOfTheVehicleAndOfItsLine(t *testing.T) {
	for r, says := range map[reason]string{
		{kind: kindNotSaid}: "mavrest takes it for a multicopter",
		view{}.about(landsOnWing, "NAV_FORCE_VT", 0): "NAV_FORCE_VT is 0: on its wing this VTOL lands as a plane " +
			"does, on its belly, up to a circle's width from where it was told to; a return",
		{kind: switchUnseen, value: 57600, param: "X 0"}: "at 57600 baud the client's moving sticks can undo a " +
			"pilot's switch without mavrest noticing: with X 0 none is undone",
		{kind: otherProgram}: "another program moves the sticks",
	} {
		if !strings.Contains(r.String(), says) {
			t.Errorf("%q does not say %q", r, says)
		}
	}
}

// TestAStickModeThatNobodyWouldFlyIsUnsupported: the API answers 501.
func TestAStickModeThatNobodyWouldFlyIsUnsupported(t *testing.T) {
	for _, c := range []struct {
		vehicle, before string
		want            string // the parameter; "" if somebody flies it
	}{
		{"px4 none 0", "", "COM_RC_IN_MODE is 0: PX4 obeys only a transmitter's sticks; set it to 5 to let a transm"},
		{"px4 in-use 0", "", ""}, // the transmitter's
		{"px4 none 4", "", "COM_RC_IN_MODE is 4"},
		{"px4 in-use 4", "", "COM_RC_IN_MODE is 4"},
		{"px4 in-use 3", "", ""},
		{"px4 in-use 3", "hears no receiver, +3s", "COM_RC_IN_MODE is 3"},
		{"px4 in-use NaN", "hears no receiver, +3s", "COM_RC_IN_MODE was not read yet, and is 3 by default"},
		{"px4 none 3", "", ""},
		{"px4 none 5", "channels 1500 1500 1500 1500", ""},
		{"copter none 1", "", "FS_GCS_ENABLE is 1"},
		{"copter idle 1", "", "FS_GCS_ENABLE is 1"},
		{"copter in-use 1", "", ""},
		{"plane idle 1", "", "FS_GCS_ENABL is 1"},
		{"copter idle 0", "", ""},
		{"copter idle 0", "foreign", ""}, // another program's
	} {
		t.Run(c.vehicle+" "+c.before, func(t *testing.T) {
			h := parseStickFlight(t, c.vehicle)
			if c.before != "" {
				if wrong := h.play(t, c.before); wrong != "" {
					t.Fatal(wrong)
				}
			}
			if got := h.src.whyNobodyFlies(h.v.view).String(); !strings.HasPrefix(got, c.want) ||
				(got == "") != (c.want == "") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A request that takes another's place does not wait for the other's stick mode to show.
func TestTheSticksRestAlsoForAStickModeThatIsOnItsWay(t *testing.T) {
	off := axes{x: 300}
	for _, c := range []struct {
		name               string
		mode               Mode
		entering, toSticks bool
		phase              stickPhase
		axes               axes
		rest, flies        bool
	}{
		{"in hold", ModeHold, false, false, stickNobody, axes{}, false, false},
		{"in hold, and POSCTL is on its way", ModeHold, true, false, stickNobody, axes{}, true, true},
		{"in POSCTL", ModePosition, false, false, stickNobody, axes{}, true, true},
		{"in POSCTL, with no stream", ModePosition, false, false, stickOff, axes{}, false, false},
		{"from POSCTL to another stick mode", ModePosition, true, true, stickClient, off, false, true},
		{"from hold to a stick mode, off centre", ModeHold, false, true, stickNobody, off, true, false},
		{"from hold to a stick mode, centred", ModeHold, false, true, stickNobody, axes{}, false, false},
		{"from hold to a return, off centre", ModeHold, false, false, stickNobody, off, false, false},
	} {
		v := situation{view: view{firmware: px4, shownMode: shownMode{custom: entered[px4][c.mode]}}}
		v.mode, v.entering = c.mode, c.entering
		s := sticks{phase: c.phase, axes: c.axes}
		lineEqual(t, c.name+": they must rest", s.mustRest(v, c.toSticks), c.rest)
		lineEqual(t, c.name+": they fly the drone", s.flies(v), c.flies)
	}
}

// What docs/autopilots.md, "PX4: sticks that move", measured. NaN: the vehicle has not told it.
func TestWhichSticksUndoASwitchGoesByTheParameterThatThisPX4Has(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		override, speed   float64
		undo, turn        bool
		rest, moveFor     time.Duration
		prevents, vehicle string
	}{
		{1, nan, true, false, 2 * time.Second, 2 * time.Second, "COM_RC_OVERRIDE 0", "px4"},
		{0, nan, false, false, 2 * time.Second, 2 * time.Second, "COM_RC_OVERRIDE 0", "px4"},
		{2, nan, false, false, 2 * time.Second, 2 * time.Second, "COM_RC_OVERRIDE 0", "px4"},
		{nan, 1, true, true, 200 * time.Millisecond, 500 * time.Millisecond, "MAN_OVERRIDE_SPD -1", "px4"},
		{nan, 0, true, true, 200 * time.Millisecond, math.MaxInt64, "MAN_OVERRIDE_SPD -1", "px4"},
		{nan, -1, false, false, 0, math.MaxInt64, "MAN_OVERRIDE_SPD -1", "px4"},
		{nan, nan, true, true, 2 * time.Second, 2 * time.Second,
			"COM_RC_OVERRIDE 0 (or, from PX4 1.18 on, MAN_OVERRIDE_SPD -1)", "px4"},
		{nan, nan, false, false, 2 * time.Second, 2 * time.Second,
			"COM_RC_OVERRIDE 0 (or, from PX4 1.18 on, MAN_OVERRIDE_SPD -1)", "copter"},
		{1, nan, false, false, 2 * time.Second, 2 * time.Second, "COM_RC_OVERRIDE 0", "copter"},
		{nan, 1, false, false, 200 * time.Millisecond, 500 * time.Millisecond, "MAN_OVERRIDE_SPD -1", "copter"},
	} {
		v := parseStickFlight(t, c.vehicle).v
		v.params = map[string]float64{"COM_RC_OVERRIDE": c.override, "MAN_OVERRIDE_SPD": c.speed}
		maps.DeleteFunc(v.params, func(_ string, value float64) bool { return math.IsNaN(value) })
		is := fmt.Sprintf("%s, %v: ", c.vehicle, v.params)
		lineEqual(t, is+"moving sticks undo a switch", v.movementOverrides(), c.undo)
		lineEqual(t, is+"sticks turn", v.turnsSticks(), c.turn)
		lineEqual(t, is+"they rest for", v.stickRest(), c.rest)
		lineEqual(t, is+"they count as moving for", v.movesFor(), c.moveFor)
		lineEqual(t, is+"what prevents it", v.neverOverrides(), c.prevents)
	}
}

// At a takeoff the landed state may come before the report of AUTO.TAKEOFF, and the sticks rest elsewhere in the air.
func TestTheSticksStayWhileAModeWithoutSticksIsOnItsWay(t *testing.T) {
	s := sticks{phase: stickNobody}
	lifts := situation{view: view{firmware: px4, shownMode: shownMode{custom: entered[px4][ModePosition], armed: true},
		landed: landedState(common.MAV_LANDED_STATE_TAKEOFF)}}
	lifts.leavesSticks = true
	if s.park(lifts); s.axes != (axes{}) {
		t.Errorf("a takeoff is on its way, and the sticks moved to %+v", s.axes)
	}
	lifts.leavesSticks = false
	if s.park(lifts); s.axes != (axes{z: 500}) {
		t.Errorf("POSCTL in the air, and the sticks stand at %+v", s.axes)
	}

	// It touches the ground while they turn: their rest lies elsewhere now.
	lifts.params, lifts.resting, lifts.landed = map[string]float64{overrideSpeed: 1}, true, onGround
	lifts.now = epoch
	s.streamed, s.restsFrom = s.axes, lifts.now
	lineEqual(t, "the sticks that go out", s.turned(lifts), s.axes)

	// A PX4 that knows no turn need not wait for sticks that lay still with their client.
	lifts.params = map[string]float64{stickOverride: 1}
	s = sticks{phase: stickClient, axes: s.axes}
	s.park(lifts)
	lineEqual(t, "they rest from", s.restsFrom, time.Time{})
}
