package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestWhoseSticksCount is the table of docs/design.md, "Who has the sticks": which
// parameter the refusal names where our sticks would be ignored.
func TestWhoseSticksCount(t *testing.T) {
	denied := map[string]bool{}
	for _, receiver := range []string{"idle", "in-use"} {
		for _, in := range []string{"2", "3", "5", "7", "NaN"} { // the transmitter was first (2, 3, NaN), or wins
			denied["px4 "+receiver+" "+in] = true
		}
	}
	nobodyFlies := map[string]bool{"px4 none 0": true}
	for _, receiver := range []string{"none", "idle", "in-use"} {
		for _, in := range []string{"4", "9"} {
			nobodyFlies["px4 "+receiver+" "+in] = true
		}
		for _, in := range []string{"0", "4", "9"} { // our sticks are ignored
			denied["px4 "+receiver+" "+in] = true
		}
		for _, f := range []string{"copter", "quadplane", "plane"} {
			for _, fs := range []string{"1", "2", "5"} {
				denied[f+" "+receiver+" "+fs] = true
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
						want := denied[vehicle] && !(gcs && f != "px4")
						why := h.src.denied(h.v.view)
						if why.given() != want {
							t.Fatalf("denied: %q, want %v", why, want)
						}
						name := map[string]string{
							"px4": "COM_RC_IN_MODE", "copter": "FS_GCS_ENABLE is", "quadplane": "FS_GCS_ENABL is",
							"plane": "FS_GCS_ENABL is",
						}[f]
						if want && !strings.Contains(why.String(), name) {
							t.Errorf("%q does not name %s", why, name)
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
		{"counted at once after a release",
			"hears receiver 1000, sets position, leaves, left hold, +50ms, hears receiver 1500", receiverInUse},
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
	if h.hearReceiver(h.v, true, 1500); h.src.known || h.src.receiver != receiverNone {
		t.Error("it counts 3 s after the link opened")
	}
	h.pass(500 * time.Millisecond)
	if h.hearReceiver(h.v, true, 1500); !h.src.known || h.src.receiver != receiverInUse {
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
		for _, in := range []float64{-1, 0, 1, 2, 3, 4, 5, 6, 7, 8} {
			h := newStickFlight(px4, "none", in)
			h.v.version = version
			old := version < 1<<24|17<<16
			dead := in < 0 || in == 4 || old && in >= 5
			for _, why := range []reason{h.v.noSticks(), h.src.denied(h.v.view), h.src.whyNobodyFlies(h.v.view)} {
				if strings.Contains(why.String(), "nor a transmitter's kill switch") != dead {
					t.Errorf("%s, %g: %q", version, in, why)
				}
			}
			if old && in >= 5 && !strings.Contains(h.v.noSticks().String(), "before PX4 1.17 nobody's sticks act") {
				t.Errorf("%s, %g: %q", version, in, h.v.noSticks())
			}
			for _, text := range []reason{h.v.noSticks(), h.src.denied(h.v.view), h.v.deafens()} {
				if old && strings.Contains(text.String(), "to 5") {
					t.Errorf("%s, %g: %q recommends 5", version, in, text)
				}
			}
			h.hearReceiver(h.v, true, 1500)
			h.src.transmitterAt = h.v.now
			if h.in("position"); dead && h.by(h.v) != "" {
				t.Errorf("%s, %g: %q has the sticks", version, in, h.by(h.v))
			}
		}
	}
}

// TestAStickModeThatNobodyWouldFlyIsUnsupported: the API answers 501.
func TestAStickModeThatNobodyWouldFlyIsUnsupported(t *testing.T) {
	for _, c := range []struct {
		vehicle, before string
		want            string // the parameter; "" if somebody flies it
	}{
		{"px4 none 0", "", "COM_RC_IN_MODE is 0"},
		{"px4 in-use 0", "", ""}, // the transmitter's
		{"px4 none 4", "", "COM_RC_IN_MODE is 4"},
		{"px4 in-use 4", "", "COM_RC_IN_MODE is 4"},
		{"px4 in-use 3", "", ""},
		{"px4 in-use 3", "hears no receiver, +3s", "COM_RC_IN_MODE is 3"},
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
