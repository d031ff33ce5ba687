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
						why := h.src.denied(h.v)
						if (why != "") != want {
							t.Fatalf("denied: %q, want %v", why, want)
						}
						name := map[string]string{
							"px4": "COM_RC_IN_MODE", "copter": "FS_GCS_ENABLE is", "quadplane": "FS_GCS_ENABL is", "plane": "FS_GCS_ENABL is",
						}[f]
						if want && !strings.Contains(why, name) {
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
						if got := h.src.denied(h.v); strings.Contains(got, "another program") == (f == "px4") {
							t.Errorf("during another program's sticks: %q", got)
						}
						h.pass(othersFor)
						if got := h.src.denied(h.v); (got != "") != want {
							t.Errorf("3 s after it: %q", got)
						}
					})
				}
			}
		}
	}
}

// stickFlight.play (sticks_test.go) explains the words of these scripts and of the next test's.
func TestTransmitterAndPX4ShareTheSticksByItsParameter(t *testing.T) {
	testSticks(t, []stickRule{
		{"with 3 the transmitter is first where our stick mode was not accepted", "px4 3", "asks position, fails, disarmed, +6s, = off, +4s, receiver live 1500, sets position, = off, by receiver"},
		{"with 3 a transmitter that only RC_CHANNELS shows is first too", "px4 3", "asks position, fails, channels 1500 1500 1500 1500, sets position, by receiver"},
		{"with 3 the transmitter that was first keeps them though it is lost", "px4 3 in-use", "receiver gone, +3s, sets position, = off, by"},
		{"with 3 ours are first until it restarts", "px4 3", "disarmed, sets position, +6s, = off, +4s, receiver live 1500, sets position, = nobody 0 0 0 0, by"},
		{"a restart forgets who was first", "px4 3 in-use", "restarted, +4s, sets position, = nobody 0 0 500 0"},
		{"with 2 a transmitter that was lost in this flight keeps them", "px4 2", "disarmed, channels 1500 1500 1500 1500, +1s, armed, flies, +9s, sets position, = off, by"},
		{"with 2 a transmitter that came on in this flight keeps them too", "px4 2", "disarmed, armed, flies, channels 1500 1500 1500 1500, +9s, sets position, = off, by"},
		{"with 2 a transmitter that came on while our stream ran keeps them too", "px4 2", "disarmed, armed, flies, sets position, channels 1500 1500 1500 1500, by receiver, +9s, by"},
		{"with 2 the transmitter keeps them until the vehicle is disarmed", "px4 2", "disarmed, channels 1500 1500 1500 1500, +1s, armed, flies, +9s, disarmed, +1s, armed, flies, sets position, = nobody 0 0 500 0"},
		{"with 5 a transmitter may come on later", "px4 5", "sets position, by, channels 1500 1500 1500 1500, by receiver, +2s, channels 1500 1500 1500 1500, +2s, by receiver, +2s, by"},
		{"with 7 a transmitter may come on while the client's sticks act", "px4 7", "sets position, input 300 0 500 0 5s, by client, channels 1500 1500 1500 1500, by receiver"},
		{"with 5 no hold is due while a transmitter flies", "px4 5", "sets altitude, channels 1500 1500 1500 1500, +2s, channels 1500 1500 1500 1500, +2s, channels 1500 1500 1500 1500, +2s, = nobody 0 0 500 0"},
		{"with 5 a hold is due when the transmitter is lost", "px4 5", "sets altitude, channels 1500 1500 1500 1500, +2900ms, = nobody 0 0 500 0, +200ms, = nobody 0 0 500 0 holds"},
		{"with 1 RC_CHANNELS mean nothing", "px4 1", "sets altitude, +2s, channels 1500 1500 1500 1500, by, +1s, = nobody 0 0 500 0 holds"},
	})
}

func TestReceiversStateCountsOnlyWithoutAStreamOfOurs(t *testing.T) {
	for _, r := range []struct {
		name   string
		script string
		want   receiverState
	}{
		{"live and low", "receiver live 1000", receiverIdle},
		{"live at 0 µs", "receiver live 0", receiverIdle},
		{"live up to 1350", "receiver live 1350", receiverIdle},
		{"live over 1350", "receiver live 1351", receiverInUse},
		{"lost", "receiver live 1500, receiver gone", receiverNone},
		{"throttle down again", "receiver live 1500, receiver live 1000", receiverIdle},
		{"not counted while our stream runs", "sets position, receiver live 1500", receiverNone},
		{"not counted for 3.5 s after our stream", "disarmed, sets position, +5100ms, = off, +3300ms, receiver live 1500", receiverNone},
		{"not counted for 3.5 s after another program's sticks", "foreign, +3400ms, receiver live 1500", receiverNone},
		{"counted 3.5 s after our stream", "disarmed, sets position, +5100ms, = off, +3500ms, receiver live 1500", receiverInUse},
		{"counted at once after a release", "receiver live 1000, sets position, leaves, left hold, +50ms, receiver live 1500", receiverInUse},
		{"forgotten at a restart", "receiver live 1500, restarted", receiverNone},
		{"not counted for 3.5 s after a restart", "restarted, +3s, receiver live 1500", receiverNone},
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

func TestReceiverInUseKeepsTheSticks(t *testing.T) {
	testSticks(t, []stickRule{
		{"arming in a stick mode starts no stream", "copter in-use", "disarmed, sets altitude, arms, armed, +1s, = off"},
		{"until the client sends sticks", "copter in-use", "sets altitude, input 300 0 700 0 500ms, = client 300 0 700 0, by client"},
		{"the client's timeout gives them back", "copter in-use", "sets altitude, input 300 0 700 0 500ms, +600ms, = off released, by receiver, +20s, = off"},
		{"after that the client may take them again", "copter in-use", "sets altitude, input 300 0 700 0 500ms, +1s, input 0 0 400 0 500ms, = client 0 0 400 0 released, +1s, = off released"},
		{"setting a mode gives them back too", "copter in-use", "sets altitude, input 300 0 700 0 5s, sets position, = off released, +20s, = off"},
		{"a refused plan out of the mode gives them back too", "copter in-use", "sets altitude, input 300 0 700 0 5s, leaves, = nobody 0 0 500 0, fails, +10ms, = off released, +20s, = off"},
		{"the client's timeout gives them back, also while the vehicle is offline", "copter in-use", "sets altitude, input 300 0 700 0 5s, lost, +4900ms, = client 300 0 700 0, +200ms, = off released, back, +1s, = off"},
		{"a restart in the air gives them back too", "copter in-use", "sets altitude, input 300 0 700 0 5s, restarted, +10ms, = off released, by receiver, +20s, = off"},
		{"a low throttle does not take them from the receiver", "copter in-use", "sets altitude, input 300 0 700 0 500ms, +600ms, = off released, channels 1500 1500 1000 1500, +20s, = off"},
	})
}

func TestForeignSticksPauseOurs(t *testing.T) {
	testSticks(t, []stickRule{
		{"the client's sticks end, and the stream ends without a release", "copter none", "sets position, input 300 0 500 0 5s, foreign, = nobody 0 0 500 0, by receiver, taken, notice takeover"},
		{"0.5 s after the last foreign stick our stream goes on, centred", "copter idle", "sets position, input 300 0 500 0 5s, joins, = nobody 0 0 500 0, +20s, = nobody 0 0 500 0, by mavrest"},
		{"no stream goes on where the receiver was in use", "copter in-use", "sets position, input 300 0 500 0 5s, joins, = off, +20s, = off"},
		{"no stream goes on where a switch moves", "copter idle", "channels 1500 1500 1000 1500 1800, +4s, sets position, joins, channels 1500 1500 1000 1500 1100, = off released, +20s, = off, taken"},
		{"PX4 chooses between them itself: ours go on", "px4", "sets position, input 300 0 500 0 5s, foreign, = client 300 0 500 0, no-notice"},
		{"a centred stream that we keep up for a pilot pauses too", "copter none", "sets position, pilot LOITER, foreign, = nobody 0 0 500 0, taken"},
		{"without a stream of ours there is no notice", "copter none", "foreign, = off, no-notice, not-taken"},
		{"outside the stick modes they take the sticks, which is no takeover", "copter none", "sets position, leaves, left hold, foreign, no-notice takeover, taken"},
		{"a stick mode set while they come has its stream after them", "copter none", "foreign, sets altitude, by receiver, +2900ms, = nobody 0 0 500 0, by"},
		{"a stick mode set while they come has no stream where the autopilot takes ours for a ground station's heartbeat", "copter none 1", "foreign, sets altitude, +4s, = off"},
		{"sticks that move in RC_CHANNELS do not pause ours", "copter idle", "sets position, +2s, channels 1500 1500 1500 1500, channels 1500 1900 1500 1500, = nobody 0 0 500 0, no-notice"},
		{"a client that sets a stick mode takes them back", "copter none", "sets position, foreign, +4s, sets position, input 100 0 500 0 1s, = client 100 0 500 0, not-taken"},
	})
	h := parseStickFlight(t, "copter idle")
	h.play(t, "sets position, +1s, foreign")
	n := len(h.frames)
	h.pass(480 * time.Millisecond)
	lineEqual(t, "sent while they come", len(h.frames), n)
	h.pass(200 * time.Millisecond)
	lineEqual(t, "sent 0.5 s later", len(h.frames) > n, true)
}

// TestAPilotsSwitchIsSeenInTheChannels: our stream moves only the channels 1 to 4, so a
// change in another one is the pilot's.
func TestAPilotsSwitchIsSeenInTheChannels(t *testing.T) {
	const before = "channels 1500 1500 1000 1500 1800, +3100ms, sets position, "
	testSticks(t, []stickRule{
		{"a switch that moves is a pilot's", "copter idle", before + "+2s, channels 1500 1500 1500 1500 1100, = off released, taken, by receiver, notice takeover"},
		{"a switch that moves is a pilot's, also where the receiver came on in this flight", "copter none", before + "+2s, channels 1500 1500 1500 1500 1100, = off released, taken, by receiver"},
		{"a switch that moves counts also under the client's sticks", "copter idle", before + "input 300 0 500 0 5s, channels 1500 1650 1500 1500 1100, = off released, taken"},
		{"a switch that moves counts at once, whatever our axes did", "copter idle", before + "+100ms, channels 1500 1500 1500 1500 1699, = off released"},
		{"a small change is noise", "copter idle", before + "channels 1500 1500 1500 1900 1900, channels 1500 1500 1500 1500 1800, = nobody 0 0 500 0, no-notice"},
		{"a slow change is RSSI", "copter idle", before + "channels 1500 1500 1500 1500 1860, channels 1500 1500 1500 1500 1920, = nobody 0 0 500 0, no-notice"},
		{"no change counts in the first 3 s of our stream", "copter none", "sets position, channels 1500 1500 1500 1500 1800, +2900ms, channels 1500 1500 1500 1500 1100, = nobody 0 0 500 0, +200ms, channels 1500 1500 1500 1500 1800, = off released"},
		{"a channel without a value does not move", "copter none", "channels 0 0 0 0 0, +4s, sets position, channels 1500 1500 1500 1500 65535, channels 1500 1500 1500 1500 0, channels 1500 1500 1500 1500 1800, channels 1500 1500 1500 1500 0, = nobody 0 0 500 0"},
		{"a switch that moved before our stream does not count", "copter idle", "channels 1500 1500 1000 1500 1800, +4s, channels 1500 1500 1000 1500 1100, no-notice, not-taken, sets position, channels 1500 1500 1500 1500 1100, = nobody 0 0 500 0"},
		{"after the switch the pilot's sticks fly", "copter idle", before + "+2s, channels 1500 1500 1500 1500 1100, +100ms, channels 1500 1500 1000 1500 1100, = off released, +20s, = off, by receiver"},
		{"a switch that moves counts also on the way out of the mode", "copter none", before + "leaves, left hold, = nobody 0 0 500 0, channels 1500 1500 1500 1500 1100, = off released, no-notice takeover"},
		{"a switch that moves counts also while a stick mode is being set", "copter idle", "channels 1500 1500 1000 1500 1800, +4s, asks position, channels 1500 1500 1500 1500 1100, notice takeover"},
		{"a client that sets a stick mode takes them back", "copter idle", before + "channels 1500 1500 1500 1500 1100, sets position, input 100 0 500 0 1s, = client 100 0 500 0 released"},
		{"PX4 chooses between them itself: ours go on", "px4 1", before + "channels 1500 1500 1500 1500 1100, = nobody 0 0 500 0"},
	})
}

// Before PX4 1.17 the values 5 to 8 switch every stick off, a transmitter's too.
func TestPX4BeforeOneSeventeenHasNoSticksWithFiveToEight(t *testing.T) {
	for _, version := range []firmwareVersion{0, 1<<24 | 14<<16 | 255, 1<<24 | 16<<16 | 2<<8 | 255, 1<<24 | 17<<16 | 255, 1<<24 | 18<<16, 2 << 24} {
		for _, in := range []float64{-1, 0, 1, 2, 3, 4, 5, 6, 7, 8} {
			h := newStickFlight(px4, "none", in)
			h.v.version = version
			old := version < 1<<24|17<<16
			dead := in < 0 || in == 4 || old && in >= 5
			for _, why := range []string{h.v.noSticks(), h.src.denied(h.v), h.src.whyNobodyFlies(h.v)} {
				if strings.Contains(why, "nor a transmitter's kill switch") != dead {
					t.Errorf("%s, %g: %q", version, in, why)
				}
			}
			if old && in >= 5 && !strings.Contains(h.v.noSticks(), "before PX4 1.17 nobody's sticks act") {
				t.Errorf("%s, %g: %q", version, in, h.v.noSticks())
			}
			for _, text := range []string{h.v.noSticks(), h.src.denied(h.v), h.v.deafens()} {
				if old && strings.Contains(text, "to 5") {
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
		{"px4 in-use 3", "receiver gone, +3s", "COM_RC_IN_MODE is 3"},
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
			if got := h.src.whyNobodyFlies(h.v); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
