package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// frameSent is what was streamed, and when.
type frameSent struct {
	at   time.Time
	axes axes
}

// handling is a vehicle's sticks that are told what happens, and their clock.
type handling struct {
	sticks
	f stickFacts

	frames  []frameSent
	acts    string // what was to be done since the last look at it
	notices string
}

// newHandling is a vehicle in the air that holds, its link open for long. It
// says of its receiver "none", "idle" or "hand", and of the parameter by which
// it takes sticks a number, or NaN where it did not answer.
func newHandling(f firmware, receiver string, param float64) *handling {
	now := time.Unix(1_700_000_000, 0)
	h := &handling{f: stickFacts{now: now, firmware: f, armed: true, aloft: true, hears: true}}
	h.src = sources{opened: now.Add(-time.Hour), rcIn: math.NaN(), gcsFailsafe: math.NaN(), gcsName: "FS_GCS_ENABLE"}
	if f == px4 {
		h.src.rcIn = param
	} else {
		h.src.gcsFailsafe = param
	}
	h.in("hold")
	h.hearReceiver(h.f, receiver != "none", map[string]uint16{"idle": 1000, "hand": 1500}[receiver])
	return h
}

// in sets the mode, by our name or the autopilot's.
func (h *handling) in(name string) {
	if i := slices.Index(modeNames[:], name); i >= 0 {
		h.f.mode, h.f.custom = Mode(i), entered[h.f.firmware][Mode(i)]
		return
	}
	list := ownModes[h.f.firmware]
	i := slices.IndexFunc(list, func(m autopilotMode) bool { return m.name == name })
	h.f.mode, h.f.custom = list[i].mode, list[i].custom
}

// act takes what is to be done.
func (h *handling) act() {
	acts := h.take()
	if acts.send && h.phase != stickOff {
		h.frames = append(h.frames, frameSent{h.f.now, h.axes})
		h.flown = h.flown || h.f.armed
	}
	if acts.release {
		h.acts += " released"
		h.frames = append(h.frames, frameSent{h.f.now, released})
	}
	if acts.hold {
		h.acts += " holds"
	}
	h.notices += acts.notice
}

// pass lets the time pass.
func (h *handling) pass(d time.Duration) {
	for end := h.f.now.Add(d); h.f.now.Before(end); {
		h.f.now = h.f.now.Add(10 * time.Millisecond)
		h.tick(h.f)
		h.act()
	}
}

// asks sets a stick mode up to its last ack: what conduct.prepare and the plan do.
func (h *handling) asks() {
	h.enter(h.f)
	h.act()
	h.waits(sticksLed)
}

// waits until the sticks let a step go.
func (h *handling) waits(need stickNeed) {
	for h.f.now.Before(h.ready(need, h.f, h.src.receiver, false)) {
		h.pass(10 * time.Millisecond)
	}
}

// state is what the sticks do, and what was to be done since the last look.
func (h *handling) state() string {
	s := [...]string{"off", "client", "centred", "parked"}[h.phase]
	if h.phase != stickOff {
		s += fmt.Sprintf(" %d %d %d %d", h.axes.x, h.axes.y, h.axes.z, h.axes.r)
	}
	s += h.acts
	h.acts = ""
	return s
}

// play tells the sticks a script, clauses with commas between:
//
//	sets altitude           the mode is set here, and acknowledged
//	asks altitude           its plan waits for an ack; then
//	gets altitude           … it comes, or
//	fails                   … the plan ends without one
//	leaves                  a plan out of the stick modes begins; then
//	waits                   … the sticks stand still
//	led POSCTL              … the mode that leads out is in force
//	left hold               … it is acknowledged, or fails
//	arms                    the vehicle is to be armed in the mode that it is in
//	input 300 0 700 0 500ms the client's sticks x y z r, and their timeout
//	pilot POSCTL            a report that nothing here explains
//	armed, disarmed, landed, flies
//	receiver live 1500, receiver gone
//	channels 1500 1500 1000 1500
//	foreign                 somebody else's MANUAL_CONTROL
//	deaf, hears             whether the vehicle answers us
//	lost, restarted         the link, the autopilot
//	+2s                     time passes
//	= centred 0 0 500 0     what the sticks do now, followed by what was to be
//	                        done since the last "=": released, holds
//	by client               who has them
//	told transmitter        a notice, since the last one
//	untold                  none
//
// It returns what is wrong with the flight, or "".
func (h *handling) play(t *testing.T, script string) string {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for clause := range strings.SplitSeq(script, ",") {
		w := strings.Fields(clause)
		switch w[0] {
		case "sets":
			h.asks()
			h.in(w[1])
			h.entered(h.f)
		case "asks":
			h.asks()
		case "gets":
			h.in(w[1])
			h.entered(h.f)
		case "fails":
			h.stayed(h.f)
		case "leaves":
			h.leave(h.f)
		case "waits":
			h.waits(sticksStill)
		case "led":
			h.sticks.led(h.f)
			h.f.custom = numberOf(t, h.f.firmware, w[1])
		case "left":
			h.in(w[1])
			h.left(h.f)
		case "arms":
			h.run(h.f)
		case "input":
			d, err := time.ParseDuration(w[5])
			if err != nil {
				t.Fatal(err)
			}
			h.input(h.f, axes{int16(number(w[1])), int16(number(w[2])), int16(number(w[3])), int16(number(w[4]))}, d)
		case "pilot":
			h.in(w[1])
			h.switched(h.f)
		case "armed", "flies", "landed":
			h.f.armed, h.f.aloft = true, w[0] == "flies"
		case "disarmed":
			h.f.armed, h.f.aloft = false, false
			h.disarmed(h.f)
		case "receiver":
			throttle := 0
			if w[1] == "live" {
				throttle = number(w[2])
			}
			h.hearReceiver(h.f, w[1] == "live", uint16(throttle))
		case "channels":
			h.hearChannels(h.f, [4]uint16{uint16(number(w[1])), uint16(number(w[2])), uint16(number(w[3])), uint16(number(w[4]))})
		case "foreign":
			h.foreigner(h.f)
		case "deaf", "hears":
			h.f.hears = w[0] == "hears"
		case "lost":
			h.lost()
		case "restarted":
			h.sticks = sticks{src: h.src}
			h.src.restarted(h.f.now)
		case "=":
			if got, want := h.state(), strings.Join(w[1:], " "); got != want {
				return fmt.Sprintf("%q is wanted, and it is %q", want, got)
			}
		case "by":
			if got := h.by(h.f); got != strings.Join(w[1:], "") {
				return fmt.Sprintf("%q: %q has the sticks", clause, got)
			}
		case "told":
			if !strings.Contains(h.notices, w[1]) {
				return fmt.Sprintf("%q: told is %q", clause, h.notices)
			}
			h.notices = ""
		case "untold":
			if h.notices != "" {
				return fmt.Sprintf("told is %q", h.notices)
			}
		default:
			d, err := time.ParseDuration(strings.TrimPrefix(w[0], "+"))
			if err != nil {
				t.Fatalf("no such clause: %q", clause)
			}
			h.pass(d)
		}
		h.act()
	}
	return ""
}

// handRule is a sentence about the sticks, the vehicle and its receiver, and the
// flight that shows it.
type handRule struct{ name, vehicle, flight string }

// testHands plays rules. A vehicle is "px4", "px4 5", "copter hand",
// "copter idle 1": the autopilot, its receiver (none), its parameter (0 on
// ArduPilot, 3 on PX4).
func testHands(t *testing.T, rules []handRule) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if wrong := parseHandling(t, r.vehicle).play(t, r.flight); wrong != "" {
				t.Errorf("%s: %s: %s", r.vehicle, r.flight, wrong)
			}
		})
	}
}

func parseHandling(t *testing.T, s string) *handling {
	t.Helper()
	w := strings.Fields(s)
	f := map[string]firmware{"px4": px4, "copter": copter, "quadplane": quadPlane, "plane": plane}[w[0]]
	receiver, param := "none", map[bool]float64{true: 3}[f == px4]
	for _, word := range w[1:] {
		if x, err := strconv.ParseFloat(word, 64); err == nil {
			param = x
		} else {
			receiver = word
		}
	}
	return newHandling(f, receiver, param)
}

// TestWhoseSticksCount is the table of DESIGN's "Where our sticks can't be the
// ones": what stands in their way, by the parameter that is named.
func TestWhoseSticksCount(t *testing.T) {
	no := map[string]bool{}
	for _, receiver := range []string{"idle", "hand"} {
		for _, in := range []string{"2", "3", "5", "7", "9", "NaN"} { // a source that was there first
			no["px4 "+receiver+" "+in] = true
		}
	}
	for _, receiver := range []string{"none", "idle", "hand"} {
		for _, in := range []string{"0", "4"} { // ignored
			no["px4 "+receiver+" "+in] = true
		}
		for _, f := range []string{"copter", "quadplane", "plane"} {
			for _, fs := range []string{"1", "2", "5"} {
				no[f+" "+receiver+" "+fs] = true
			}
		}
	}
	for _, f := range []string{"px4", "copter", "quadplane", "plane"} {
		for _, receiver := range []string{"none", "idle", "hand"} {
			for _, param := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "NaN"} {
				if f != "px4" && strings.Contains("346789", param) {
					continue
				}
				vehicle := f + " " + receiver + " " + param
				for _, alone := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s alone=%v", vehicle, alone), func(t *testing.T) {
						h := parseHandling(t, vehicle)
						h.src.alone = alone
						want := no[vehicle] && !(alone && f != "px4")
						why := h.src.denied(h.f.firmware, h.f.now)
						if (why != "") != want {
							t.Fatalf("denied: %q, want %v", why, want)
						}
						name := map[bool]string{true: "COM_RC_IN_MODE", false: "FS_GCS_ENABLE"}[f == "px4"]
						if want && !strings.Contains(why, name) {
							t.Errorf("%q does not name %s", why, name)
						}
						// A stick mode set here then starts no stream, and never gets one.
						h.asks()
						h.in("altitude")
						h.entered(h.f)
						h.pass(20 * time.Second)
						quiet := want || f != "px4" && receiver == "hand"
						if (h.phase == stickOff) != quiet || quiet && len(h.frames) > 0 {
							t.Errorf("%s after %d frames", h.state(), len(h.frames))
						}
						if quiet && h.acts != "" {
							t.Errorf("done: %s", h.acts)
						}
						by := map[bool]string{true: "receiver"}[quiet]
						if got := h.by(h.f); got != by {
							t.Errorf("%q has the sticks, want %q", got, by)
						}
						// A foreign source comes before everything.
						h.foreigner(h.f)
						if h.src.denied(h.f.firmware, h.f.now) == "" {
							t.Error("somebody else's sticks are no reason")
						}
						h.pass(foreignFor)
						if got := h.src.denied(h.f.firmware, h.f.now); (got != "") != want {
							t.Errorf("3 s after it: %q", got)
						}
					})
				}
			}
		}
	}
}

func TestTransmitterAndPX4ShareTheSticksByItsParameter(t *testing.T) {
	testHands(t, []handRule{
		{"with 3 and ours first a notice tells that a transmitter is dead, once", "px4 3", "sets position, told 5, pilot AUTO.LOITER, disarmed, armed, flies, sets position, untold"},
		{"so it does where the parameter is unknown", "px4 NaN", "sets position, told COM_RC_IN_MODE"},
		{"and again after a restart", "px4 3", "sets position, told COM_RC_IN_MODE, restarted, +4s, sets position, told COM_RC_IN_MODE"},
		{"not with 5", "px4 5", "sets position, untold"},
		{"not where the transmitter was first", "px4 3 hand", "sets position, untold, by receiver"},
		{"with 3 the transmitter that was first keeps them though it is lost", "px4 3 hand", "receiver gone, sets position, = off, by receiver"},
		{"with 3 ours are first until it restarts", "px4 3", "disarmed, sets position, +6s, = off, +4s, receiver live 1500, sets position, = centred 0 0 0 0, by"},
		{"a restart forgets who was first", "px4 3 hand", "restarted, +4s, sets position, = centred 0 0 500 0, told COM_RC_IN_MODE"},
		{"with 2 a lost transmitter gives way", "px4 2 hand", "sets position, = off, receiver gone, sets position, = centred 0 0 500 0"},
		{"with 5 a transmitter may come on later", "px4 5", "sets position, by, channels 1500 1500 1500 1500, by receiver, +2s, channels 1500 1500 1500 1500, +2s, by receiver, +2s, by"},
		{"also under the client's sticks", "px4 7", "sets position, input 300 0 500 0 5s, by client, channels 1500 1500 1500 1500, by receiver"},
		{"whoever flies by it never falls silent", "px4 5", "sets altitude, channels 1500 1500 1500 1500, +2s, channels 1500 1500 1500 1500, +2s, channels 1500 1500 1500 1500, +2s, = centred 0 0 500 0"},
		{"and falls silent when it is lost", "px4 5", "sets altitude, channels 1500 1500 1500 1500, +4s, = centred 0 0 500 0, +1s, = centred 0 0 500 0 holds"},
		{"with 1 RC_CHANNELS mean nothing", "px4 1", "sets altitude, +4s, channels 1500 1500 1500 1500, by, +1s, = centred 0 0 500 0 holds"},
	})
}

func TestReceiversStateCountsOnlyWithoutAStreamOfOurs(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, r := range []struct {
		name   string
		script string
		want   receiverState
	}{
		{"never told", "", receiverNone},
		{"live and low", "receiver live 1000", receiverIdle},
		{"live at an unknown throttle", "receiver live 0", receiverIdle},
		{"live up to 1350", "receiver live 1350", receiverIdle},
		{"live and over it", "receiver live 1351", receiverInHand},
		{"lost", "receiver live 1500, receiver gone", receiverNone},
		{"landed again", "receiver live 1500, receiver live 1000", receiverIdle},
		{"while our stream runs it tells nothing", "sets position, receiver live 1500", receiverNone},
		{"nor after it, until a stream is forgotten", "disarmed, sets position, +5100ms, = off, +3300ms, receiver live 1500", receiverNone},
		{"3.5 s after it", "disarmed, sets position, +5100ms, = off, +3500ms, receiver live 1500", receiverInHand},
		{"at once after a release", "receiver live 1000, sets position, leaves, left hold, +50ms, receiver live 1500", receiverInHand},
		{"a restart forgets it", "receiver live 1500, restarted", receiverNone},
		{"and tells nothing for 3.5 s", "restarted, +3s, receiver live 1500", receiverNone},
	} {
		t.Run(r.name, func(t *testing.T) {
			h := newHandling(copter, "none", 0)
			if r.script != "" {
				if wrong := h.play(t, r.script); wrong != "" {
					t.Error(wrong)
				}
			}
			if h.src.receiver != r.want {
				t.Errorf("receiver %d, want %d", h.src.receiver, r.want)
			}
		})
	}
	// An earlier process' sticks stand for 3 s and would look like a receiver.
	h := newHandling(copter, "none", 0)
	h.src.opened, h.src.told = now.Add(-3*time.Second), false
	if h.hearReceiver(h.f, true, 1500); h.src.told || h.src.receiver != receiverNone {
		t.Error("it counts 3 s after the link opened")
	}
	h.pass(500 * time.Millisecond)
	if h.hearReceiver(h.f, true, 1500); !h.src.told || h.src.receiver != receiverInHand {
		t.Error("it does not count 3.5 s after the link opened")
	}
}

func TestReceiverInHandKeepsTheSticks(t *testing.T) {
	testHands(t, []handRule{
		{"a stick mode starts no stream", "copter hand", "sets altitude, +10s, = off, by receiver"},
		{"nor does arming in one", "copter hand", "disarmed, sets altitude, arms, armed, +1s, = off"},
		{"until the client takes over", "copter hand", "sets altitude, input 300 0 700 0 500ms, = client 300 0 700 0, by client"},
		{"whose timeout gives them back", "copter hand", "sets altitude, input 300 0 700 0 500ms, +600ms, = off released, by receiver, +20s, = off"},
		{"and who may take them again", "copter hand", "sets altitude, input 300 0 700 0 500ms, +1s, input 0 0 400 0 500ms, = client 0 0 400 0 released, +1s, = off released"},
		{"setting a mode gives them back too", "copter hand", "sets altitude, input 300 0 700 0 5s, sets position, = off released, +20s, = off"},
		{"so does a plan out that was not carried out", "copter hand", "sets altitude, input 300 0 700 0 5s, leaves, = parked 0 0 500 0, fails, = off released, +20s, = off"},
		{"nobody's hand in an altitude mode brings a stream back", "copter hand", "sets altitude, input 300 0 700 0 500ms, +600ms, = off released, channels 1500 1500 1000 1500, = centred 0 0 500 0, told nobody's"},
		{"which is a silent client's", "copter hand", "sets altitude, input 300 0 700 0 500ms, +600ms, channels 1500 1500 1000 1500, = centred 0 0 500 0 released, +5s, = centred 0 0 500 0 holds"},
		{"and enters the next stick mode", "copter hand", "sets altitude, input 300 0 700 0 500ms, +600ms, channels 1500 1500 1000 1500, sets position, = centred 0 0 500 0 released"},
		{"the look takes half a second", "copter hand", "sets altitude, input 300 0 700 0 500ms, +1100ms, channels 1500 1500 1000 1500, = off released"},
		{"on a QuadPlane as well", "quadplane hand", "sets altitude, input 300 0 700 0 500ms, +600ms, channels 1500 1500 1000 1500, = centred 0 0 500 0 released"},
		{"in manual mode a low throttle is the pilot's own", "copter hand", "sets manual, input 300 0 700 0 500ms, +600ms, channels 1500 1500 1000 1500, = off released"},
		{"a receiver that is gone brings a stream back in any mode", "copter hand", "sets manual, input 300 0 450 0 500ms, +600ms, receiver gone, = centred 0 0 450 0 released"},
		{"disarmed nobody falls", "copter hand", "disarmed, sets altitude, input 0 0 0 0 500ms, +600ms, channels 1500 1500 1000 1500, = off released"},
		{"an idle receiver keeps nothing", "copter idle", "sets altitude, = centred 0 0 500 0, by"},
		{"PX4 keeps its own order", "px4 1 hand", "sets altitude, = centred 0 0 500 0, by"},
	})
}

func TestPilotsSwitchTakesTheSticks(t *testing.T) {
	const client = "sets position, input 300 -200 700 100 5s, "
	testHands(t, []handRule{
		{"ArduPilot with a live receiver: released", "copter idle", client + "pilot LOITER, = off released, by receiver"},
		{"and looked at: nobody's hand", "copter idle", client + "pilot ALT_HOLD, = off released, +100ms, channels 1500 1500 1000 1500, = centred 0 0 500 0, told nobody's"},
		{"in POSHOLD", "copter idle", client + "pilot POSHOLD, +100ms, channels 1500 1500 1349 1500, = centred 0 0 500 0 released"},
		{"a hand", "copter idle", client + "pilot ALT_HOLD, +100ms, channels 1500 1500 1350 1500, = off released"},
		{"what is frozen from our own stream is none", "copter idle", client + "pilot ALT_HOLD, channels 1500 1500 1000 1500, = off released"},
		{"too late", "copter idle", client + "pilot ALT_HOLD, +500ms, channels 1500 1500 1000 1500, = off released"},
		{"a receiver that is gone", "copter idle", client + "pilot LOITER, +100ms, receiver gone, = centred 0 0 500 0 released"},
		{"gone, in a mode without sticks", "copter idle", client + "pilot AUTO, +100ms, receiver gone, = parked 0 0 500 0 released"},
		{"in BRAKE nobody looks at the throttle", "copter idle", client + "pilot BRAKE, +100ms, channels 1500 1500 1000 1500, = off released"},
		{"without a receiver: centred", "copter none", client + "pilot ALT_HOLD, = centred 0 0 500 0, +20s, = centred 0 0 500 0"},
		{"out of the stick modes too", "copter none", client + "pilot RTL, = parked 0 0 500 0, +20s, = parked 0 0 500 0"},
		{"in manual mode with the throttle as it was", "copter none", "sets manual, input 300 0 430 0 5s, pilot ACRO, = centred 0 0 430 0, +20s, = centred 0 0 430 0"},
		{"PX4 in an AUTO mode: unmoved", "px4", client + "pilot AUTO.RTL, = parked 300 -200 700 100, +20s, = parked 300 -200 700 100"},
		{"in a stick mode: centred at once", "px4", client + "pilot ALTCTL, = centred 0 0 500 0, +20s, = centred 0 0 500 0"},
		{"in MANUAL with the throttle as it was", "px4", "sets manual, input 300 0 430 0 5s, pilot STABILIZED, = centred 0 0 430 0, +20s, = centred 0 0 430 0"},
		{"from an AUTO mode back into a stick mode: centred", "px4", client + "pilot AUTO.LOITER, +1s, pilot POSCTL, = centred 0 0 500 0"},
		{"until a stick mode is set here again", "px4", client + "pilot ALTCTL, sets altitude, input 100 0 500 0 1s, = client 100 0 500 0"},
		{"where nothing is streamed nothing begins", "px4", "pilot POSCTL, +20s, = off"},
	})
}

// TestPilotsSwitchAtEveryMoment is the product: what the sticks do × what the
// pilot sets × whose receiver it is. Afterwards nothing moves, and no hold is
// commanded.
func TestPilotsSwitchAtEveryMoment(t *testing.T) {
	moments := []struct{ name, script string }{
		{"nothing was streamed", "+1s"},
		{"a stick mode is asked for", "asks position"},
		{"nobody's", "sets altitude"},
		{"the client's", "sets altitude, input 300 -200 700 100 5s"},
		{"the client's, in manual mode", "sets manual, input 300 -200 430 100 5s"},
		{"a silent client's", "sets altitude, input 300 -200 700 100 500ms, +4s"},
		{"a hold is wished", "sets altitude, input 300 -200 700 100 500ms, +5s"},
		{"its plan waits", "sets altitude, input 300 -200 700 100 500ms, +5s, leaves, +1s"},
		{"it was not acknowledged", "sets altitude, input 300 -200 700 100 500ms, +5s, leaves, +1s, fails"},
		{"a way out waits", "sets manual, input 300 -200 430 100 5s, leaves, +1s"},
		{"it leads through", "sets manual, input 300 -200 430 100 5s, leaves, led position, +1s"},
		{"it is left", "sets position, input 300 -200 700 100 5s, leaves, waits, left hold"},
		{"a stick mode was refused", "asks position, fails"},
	}
	for _, vehicle := range []string{
		"px4 none", "px4 1 hand", "px4 3 hand", "px4 5 none", "copter none", "copter idle", "copter hand", "quadplane none", "quadplane idle", "plane none", "plane hand",
	} {
		for _, m := range moments {
			f := parseHandling(t, vehicle).f.firmware
			for _, pilot := range ownModes[f] {
				t.Run(vehicle+" "+m.name+" "+pilot.name, func(t *testing.T) {
					h := parseHandling(t, vehicle)
					if f == plane && strings.Contains(m.script, "position") {
						return // it has no such mode
					}
					if wrong := h.play(t, m.script); wrong != "" {
						t.Fatal(wrong)
					}
					before, ran := h.axes, h.phase != stickOff
					h.state()
					n := len(h.frames)
					h.in(pilot.name)
					h.switched(h.f)
					h.act()
					stood := h.axes
					h.pass(8 * time.Second)

					want := "off released"
					switch level := (axes{z: 500}); {
					case !ran:
						want = "off"
					case f.ardupilot() && h.src.receiver != receiverNone:
					case pilot.mode.flownBySticks() || f.ardupilot():
						if pilot.mode == ModeManual {
							level.z = before.z
						}
						want = fmt.Sprintf("%s 0 0 %d 0", map[bool]string{true: "centred", false: "parked"}[pilot.mode.flownBySticks()], level.z)
					default:
						want = fmt.Sprintf("parked %d %d %d %d", before.x, before.y, before.z, before.r)
					}
					if got := h.state(); got != want {
						t.Errorf("%s, want %s", got, want)
					}
					for _, sent := range h.frames[n:] {
						if sent.axes != stood && sent.axes != released {
							t.Fatalf("%v after the switch", sent.axes)
						}
					}
					if h.by(h.f) == "client" || !h.taken {
						t.Error("the client has the sticks")
					}
					if h.entered(h.f); h.taken {
						t.Error("a stick mode set here does not give them back")
					}
				})
			}
		}
	}
}

func TestForeignSticksEndOurs(t *testing.T) {
	const still = "channels 1500 1500 1500 1500, "
	testHands(t, []handRule{
		{"somebody's MANUAL_CONTROL", "px4", "sets position, input 300 0 500 0 5s, told COM, foreign, = off, told another, +20s, = off"},
		{"on ArduPilot", "copter none", "sets position, input 300 0 500 0 5s, foreign, = off, by receiver"},
		{"where nothing is ours nothing is told", "copter none", "foreign, = off, untold"},
		{"a stick mode gets no stream in the 3 s after", "copter none", "foreign, sets altitude, = off, +3s, sets altitude, = centred 0 0 500 0"},
		{"nor does a way out on PX4", "px4", "sets position, +1s, foreign, leaves, = off"},
		{"3 s later it does: their end would be a failsafe", "px4", "sets position, input 300 0 700 0 5s, foreign, +4s, leaves, = parked 0 0 500 0"},
		{"channels that move while ours stand", "copter none", "sets position, +2s, " + still + "channels 1500 1551 1500 1500, = off, told another"},
		{"channels of a vehicle that does not hear us", "copter idle", "sets position, +2s, " + still + "deaf, channels 1500 1500 1000 1500, hears, channels 1500 1500 1500 1500, = centred 0 0 500 0, +2s, channels 1500 1500 1500 1500, = centred 0 0 500 0, untold"},
		{"a little is noise", "copter none", "sets position, +2s, " + still + "channels 1550 1450 1500 1500, = centred 0 0 500 0"},
		{"slowly too", "copter none", "sets position, +2s, " + still + "channels 1500 1500 1540 1500, channels 1500 1500 1570 1500, = off"},
		{"channels that follow our own sticks", "copter none", "sets position, +2s, " + still + "input 300 0 500 0 1s, channels 1500 1650 1500 1500, = client 300 0 500 0"},
		{"and are looked at anew when these stand", "copter none", "sets position, +2s, " + still + "input 300 0 500 0 5s, +1600ms, channels 1500 1650 1500 1500, +1s, channels 1500 1650 1500 1500, = client 300 0 500 0, channels 1500 1500 1500 1500, = off"},
		{"a stream that has just begun", "copter none", "sets position, +1s, " + still + "channels 1500 1900 1500 1500, = centred 0 0 500 0"},
		{"one that begins anew knows nothing of the last", "copter idle", "sets position, +2s, " + still + "pilot GUIDED, = off released, +1s, sets position, +2s, channels 1500 1900 1500 1500, = centred 0 0 500 0"},
		{"PX4's channels are its transmitter's", "px4 1", "sets position, +2s, " + still + "channels 1500 1900 1500 1500, = centred 0 0 500 0"},
		{"a stick mode set here takes them back", "copter none", "sets position, foreign, +4s, sets position, input 100 0 500 0 1s, = client 100 0 500 0"},
	})
}

func TestSilentClientLeavesAHold(t *testing.T) {
	rules := []handRule{
		{"in altitude mode 5 s after its last command", "px4", "sets altitude, input 300 0 700 0 500ms, +4900ms, = centred 0 0 500 0, +100ms, = centred 0 0 500 0 holds, told holding"},
		{"in manual mode after 2 s", "px4", "sets manual, input 300 0 430 0 500ms, +1900ms, = centred 0 0 430 0, +100ms, = centred 0 0 430 0 holds"},
		{"setting the mode is a command too", "copter none", "sets altitude, +4900ms, = centred 0 0 500 0, +100ms, = centred 0 0 500 0 holds"},
		{"so is arming", "copter none", "sets altitude, +3s, arms, +4900ms, = centred 0 0 500 0, +100ms, = centred 0 0 500 0 holds"},
		{"never before its sticks' timeout", "px4", "sets manual, input 300 0 430 0 4s, +3900ms, = client 300 0 430 0, +100ms, = centred 0 0 430 0 holds"},
		{"in position mode never", "px4", "sets position, input 300 0 700 0 500ms, +1m, = centred 0 0 500 0"},
		{"again each second until it is acknowledged", "px4", "sets altitude, +5s, = centred 0 0 500 0 holds, +900ms, = centred 0 0 500 0, +100ms, = centred 0 0 500 0 holds, +1s, = centred 0 0 500 0 holds"},
		{"also where its plan was tried meanwhile", "px4", "sets altitude, +5s, leaves, +500ms, fails, +500ms, = centred 0 0 500 0 holds holds"},
		{"it is told once", "px4 1", "sets altitude, +5s, told holding, +5s, untold"},
		{"acknowledged it is left", "px4", "sets altitude, +5s, leaves, waits, left hold, = parked 0 0 500 0 holds, +20s, = parked 0 0 500 0"},
		{"acknowledged, an idle receiver has its sticks", "copter idle", "sets altitude, +5s, leaves, left hold, = off holds released, +20s, = off"},
		{"the client that comes back is heard", "px4", "sets altitude, +5s, = centred 0 0 500 0 holds, input 100 0 500 0 500ms, +4900ms, = centred 0 0 500 0"},
		{"not in a mode that somebody else set", "px4", "sets position, pilot ALTCTL, +20s, = centred 0 0 500 0"},
		{"not after a pilot's switch there and back", "px4", "sets altitude, pilot POSCTL, +1s, pilot ALTCTL, +20s, = centred 0 0 500 0"},
		{"not on the ground", "px4", "landed, sets altitude, +20s, = centred 0 0 0 0"},
		{"not disarmed: the stream ends", "px4", "disarmed, sets altitude, +5s, = off"},
		{"a lost link cancels it", "px4", "sets altitude, +4s, lost, +20s, = centred 0 0 500 0"},
		{"one that is being asked for too", "px4", "sets altitude, +5s, = centred 0 0 500 0 holds, lost, leaves, fails, +20s, = centred 0 0 500 0"},
		{"until the client is heard again", "px4", "sets altitude, lost, +20s, input 100 0 500 0 500ms, +5s, = centred 0 0 500 0 holds"},
		{"a command that failed is one", "copter none", "sets altitude, +4s, leaves, fails, +4900ms, = centred 0 0 500 0, +100ms, = centred 0 0 500 0 holds"},
	}
	testHands(t, rules)
}

// TestSilenceIsAnsweredWhereOurStreamFlies: firmware × receiver × mode.
func TestSilenceIsAnsweredWhereOurStreamFlies(t *testing.T) {
	for _, f := range []string{"px4 1", "px4 5", "copter", "quadplane", "plane"} {
		for _, receiver := range []string{"none", "idle", "hand"} {
			for _, mode := range []string{"manual", "altitude", "position"} {
				for _, clients := range []bool{false, true} {
					if f == "plane" && mode == "position" {
						continue
					}
					t.Run(fmt.Sprintf("%s %s %s client=%v", f, receiver, mode, clients), func(t *testing.T) {
						h := parseHandling(t, f+" "+receiver)
						script := "sets " + mode
						if clients && h.src.denied(h.f.firmware, h.f.now) == "" {
							script += ", input 300 0 500 0 500ms"
						}
						if wrong := h.play(t, script); wrong != "" {
							t.Fatal(wrong)
						}
						h.pass(30 * time.Second)
						ours := receiver == "none" || f == "px4 1" || receiver == "idle" && f != "px4 5"
						want := ours && mode != "position"
						if got := strings.Contains(h.acts, "holds"); got != want {
							t.Errorf("holds %v, want %v", got, want)
						}
						if (h.phase != stickOff) != ours {
							t.Errorf("it is %s", h.state())
						}
					})
				}
			}
		}
	}
}

func TestEnteringStickMode(t *testing.T) {
	testHands(t, []handRule{
		{"centred sticks run ahead", "px4", "asks altitude, = centred 0 0 500 0"},
		{"at the throttle of the ground", "px4", "landed, asks altitude, = centred 0 0 0 0"},
		{"disarmed too, or it could not be armed", "copter none", "disarmed, asks manual, = centred 0 0 0 0"},
		{"the client's last sticks don't come along", "px4", "sets position, input 300 -200 700 100 5s, asks altitude, = centred 0 0 500 0"},
		{"manual mode begins at the throttle that holds", "px4", "sets altitude, input 0 0 1000 0 5s, asks manual, = centred 0 0 500 0, gets manual, +1s, = centred 0 0 500 0"},
		{"manual mode keeps its throttle until the next one is in force", "px4", "sets manual, input 100 0 430 0 5s, asks altitude, = centred 0 0 430 0, +300ms, = centred 0 0 430 0, gets altitude, +10ms, = centred 0 0 500 0"},
		{"on ArduPilot too", "copter none", "sets manual, input 100 0 430 0 5s, asks altitude, +300ms, = centred 0 0 430 0, gets altitude, +10ms, = centred 0 0 500 0"},
		{"refused in the air, PX4's stream stands unmoved", "px4", "asks altitude, fails, = parked 0 0 500 0, landed, +20s, = parked 0 0 500 0"},
		{"refused, an idle receiver has its sticks again", "copter idle", "asks altitude, fails, = off released"},
		{"refused without a receiver, the stream is parked: its end is a failsafe", "copter none", "asks altitude, fails, = parked 0 0 500 0, +20s, = parked 0 0 500 0"},
		{"refused disarmed, it ends", "px4", "disarmed, asks altitude, fails, +5s, = off"},
		{"unanswered and carried out, it is nobody's", "px4", "asks altitude, pilot ALTCTL, fails, +20s, = centred 0 0 500 0"},
	})
	for _, r := range []struct {
		vehicle, script string
		need            stickNeed
		arming          bool
		want            time.Duration // from now
	}{
		{"px4", "+1s", sticksLed, false, 0},
		{"px4", "arms", sticksLed, false, 400 * time.Millisecond},
		{"px4", "arms", sticksLed, true, stickLead},
		{"px4", "arms", sticksAnyhow, false, 0},
		{"px4", "arms, +300ms", sticksLed, false, stickLead - 300*time.Millisecond},
		{"px4", "sets position", sticksLed, false, 0},
		{"px4", "sets position, input 300 0 500 0 5s", sticksLed, false, 0}, // from one to another
		{"copter none", "arms", sticksLed, false, stickLead},
		{"copter none", "arms", sticksLed, true, 2100 * time.Millisecond},
		{"copter idle", "arms", sticksLed, true, stickLead},
		{"copter hand", "arms", sticksLed, true, 0},
		{"px4", "sets position, +3s, leaves", sticksStill, false, 0},
		{"px4", "sets position, input 300 0 500 0 5s, leaves", sticksStill, false, 2 * time.Second},
		{"px4", "sets position, input 300 0 500 0 5s, leaves, +1500ms", sticksStill, false, stickStill - 1500*time.Millisecond},
		{"px4", "sets manual, input 300 0 430 0 5s, leaves, +1s, led position", sticksStill, false, stickStill},
		{"px4", "+1s, leaves", sticksStill, false, 0},
		{"copter none", "sets position, input 300 0 500 0 5s, leaves", sticksStill, false, 0},
	} {
		t.Run(r.vehicle+" "+r.script, func(t *testing.T) {
			h := parseHandling(t, r.vehicle)
			if wrong := h.play(t, r.script); wrong != "" {
				t.Fatal(wrong)
			}
			got := max(h.ready(r.need, h.f, h.src.receiver, r.arming).Sub(h.f.now), 0)
			if off := got - r.want; off < -10*time.Millisecond || off > 10*time.Millisecond {
				t.Errorf("a step may go in %v, want %v", got, r.want)
			}
		})
	}
}

func TestLeavingStickMode(t *testing.T) {
	testHands(t, []handRule{
		{"PX4: centred, then unmoved until disarmed", "px4", "sets position, input 300 0 700 0 5s, leaves, = parked 0 0 500 0, waits, left hold, +1m, = parked 0 0 500 0, landed, +20s, = parked 0 0 500 0, disarmed, = off"},
		{"in manual mode with the throttle as it was, until POSCTL is in force", "px4", "sets manual, input 300 0 430 0 5s, leaves, +100ms, = parked 0 0 430 0, led position, = parked 0 0 500 0, +20s, = parked 0 0 500 0"},
		{"not carried out, the sticks are nobody's", "px4", "sets position, input 300 0 700 0 5s, leaves, fails, = centred 0 0 500 0"},
		{"sticks that a pilot's switch left over stay so", "px4", "sets position, input 300 0 700 0 5s, pilot AUTO.RTL, leaves, waits, left hold, +20s, = parked 300 0 700 0"},
		{"a flight that had sticks never has silence again", "px4", "sets position, foreign, +4s, pilot AUTO.LOITER, leaves, left hold, +20s, = parked 0 0 500 0"},
		{"one that had none needs none", "px4", "leaves, left hold, +20s, = off"},
		{"a stream that was on the ground only either", "px4", "disarmed, sets position, +6s, = off, armed, flies, leaves, = off"},
		{"left on the ground it ends", "px4", "disarmed, sets position, leaves, waits, left hold, = parked 0 0 0 0, +5s, = off"},
		{"ArduPilot with a live receiver: released", "copter idle", "sets position, input 300 0 700 0 5s, leaves, = parked 0 0 500 0, left hold, = off released, by, +20s, = off"},
		{"which is gone: parked", "copter idle", "sets position, leaves, left hold, = off released, +100ms, receiver gone, = parked 0 0 500 0"},
		{"without one: parked", "copter none", "sets position, input 300 0 700 0 5s, leaves, left hold, +20s, = parked 0 0 500 0, landed, +1s, = parked 0 0 0 0, disarmed, = off"},
		{"in manual mode with the throttle as it was", "copter none", "sets manual, input 300 0 430 0 5s, leaves, +1s, = parked 0 0 430 0, left hold, +10ms, = parked 0 0 500 0"},
		{"an idle one that was parked is released at the end", "copter none", "sets position, leaves, left hold, disarmed, = off"},
	})
}

// TestStreamIsSentAtItsRateAndNeverElse: 25 Hz, the client's own at once, and
// none where nobody would fall.
func TestStreamIsSentAtItsRateAndNeverElse(t *testing.T) {
	h := newHandling(copter, "none", 0)
	h.pass(time.Minute)
	if len(h.frames) > 0 || !h.due().IsZero() {
		t.Errorf("%d frames, the next is due at %v", len(h.frames), h.due())
	}
	h.play(t, "sets position, +10s")
	if n := len(h.frames); n < 255 || n > 262 {
		t.Errorf("%d frames in 10.4 s", n)
	}
	if h.due().Sub(h.f.now) > stickEvery {
		t.Errorf("the next is due in %v", h.due().Sub(h.f.now))
	}
	h.pass(30 * time.Millisecond)
	n := len(h.frames)
	h.play(t, "input 300 0 500 0 1s")
	if len(h.frames) != n+1 || h.frames[n].axes.x != 300 || h.frames[n].at != h.f.now {
		t.Error("the client's sticks did not go out at once")
	}
	for i := 1; i < len(h.frames); i++ {
		if gap := h.frames[i].at.Sub(h.frames[i-1].at); gap > stickEvery {
			t.Fatalf("%v between two frames", gap)
		}
	}
}

// TestClientsSticksStandUntilTheirTimeout: then they are centred, not held over.
func TestClientsSticksStandUntilTheirTimeout(t *testing.T) {
	testHands(t, []handRule{
		{"half a second", "px4", "sets position, input 300 -200 700 100 500ms, +490ms, = client 300 -200 700 100, by client, +10ms, = centred 0 0 500 0, by"},
		{"each input counts from itself", "px4", "sets position, input 300 0 500 0 500ms, +400ms, input 200 0 500 0 500ms, +490ms, = client 200 0 500 0, +10ms, = centred 0 0 500 0"},
		{"in manual mode level, with the last throttle", "copter none", "sets manual, input 300 0 430 0 500ms, +600ms, = centred 0 0 430 0"},
		{"disarmed in manual mode without throttle", "copter none", "disarmed, sets manual, input 0 0 430 0 500ms, +600ms, = centred 0 0 0 0"},
		{"on the ground without throttle", "px4", "landed, sets position, input 300 0 500 0 500ms, +600ms, = centred 0 0 0 0"},
		{"a restart forgets them", "px4", "sets position, input 300 0 500 0 5s, restarted, = off"},
	})
}

// FuzzSticks gives the sticks everything that happens to them in any order. After
// a switch that nobody commanded here, until a client sets a stick mode or leaves
// one, nothing moves but centred, unmoved or released sticks, and no hold is
// wished; and at no time does what "Who has the sticks" forbids.
func FuzzSticks(f *testing.F) {
	const whats = "eglrfixpadFswcRrkLNT"
	for _, seed := range []string{
		"0e1g1i9T9p3T9", "1e1g1i9T9T9p5T1c0", "2e1g1i1T9T9l0f0T9", "3e0g0i5l0k0r0T9a0", "4e1g1T9T9T9l0f0T9", "5e2g2i9F0T9e2g2", "0d0e2a0s0T9w0i9L0T9",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, events []byte) {
		if len(events) == 0 {
			return
		}
		vehicles := []string{"px4 1 none", "px4 3 none", "px4 5 hand", "px4 2 idle", "copter none", "copter idle", "copter hand", "quadplane idle", "plane hand"}
		w := &stickWitness{handling: parseHandling(t, vehicles[int(events[0])%len(vehicles)])}
		story := vehicles[int(events[0])%len(vehicles)] + ":"
		for events = events[1:]; len(events) > 1; events = events[2:] {
			what, arg := whats[int(events[0])%len(whats)], int(events[1])
			if i := strings.IndexByte(whats, events[0]); i >= 0 { // as the seeds are written
				what = events[0]
			}
			story += fmt.Sprintf(" %c%d", what, arg)
			w.happens(what, arg)
			if what == 'T' && arg < 4 { // not long enough for a tick
				what = 'x'
			}
			if wrong := w.look(what); wrong != "" {
				t.Fatalf("%s: %s after %s", wrong, w.state(), story)
			}
		}
	})
}

// stickWitness is what FuzzSticks holds the sticks against.
type stickWitness struct {
	*handling
	seen   int       // frames
	pilot  bool      // has had them since a switch
	stood  axes      // the sticks at that switch
	until  time.Time // when the client's sticks expire
	asked  axes      // the client's sticks
	parked axes      // PX4's, out of the stick modes
	out    bool      // parked is set: a plan out was acknowledged
}

// happens tells the sticks of one event, where drone could.
func (w *stickWitness) happens(what byte, arg int) {
	f, src := &w.f, &w.src
	list := ownModes[f.firmware]
	sticky := Mode(arg % 3)
	switch what {
	case 'e': // a stick mode is asked for
		w.pilot, w.out = false, false
		w.asks()
	case 'g': // and set
		if _, has := entered[f.firmware][sticky]; has && !w.pilot {
			w.out = false
			w.in(sticky.String())
			w.entered(*f)
		}
	case 'l': // a plan out begins
		w.pilot = false
		w.leave(*f)
		if f.firmware == px4 && w.phase == stickParked && !f.mode.flownBySticks() { // a pilot's switch left them so
			w.parked = w.axes
		}
	case 'r': // is acknowledged
		if !w.pilot {
			w.in("hold")
			w.left(*f)
			w.out, w.parked = true, w.axes
		}
	case 'f':
		w.stayed(*f)
	case 'k': // leads through
		if f.firmware == px4 && w.phase == stickParked && f.mode.flownBySticks() {
			w.sticks.led(*f)
			w.in("position")
		}
	case 'i':
		if f.mode.flownBySticks() && !w.taken && src.denied(f.firmware, f.now) == "" {
			w.asked = axes{x: int16(arg * 3), z: 430}
			d := time.Duration(1+arg%50) * 100 * time.Millisecond
			w.until, w.out = f.now.Add(d), false
			w.input(*f, w.asked, d)
		}
	case 'p': // a pilot's switch
		m := list[arg%len(list)]
		w.in(m.name)
		w.switched(*f)
		w.pilot, w.stood, w.out = true, w.axes, false
	case 'a':
		f.armed = true
	case 's': // it is known to be on the ground, or flies
		f.aloft = f.armed && arg&1 != 0
	case 'd':
		f.armed, f.aloft = false, false
		w.disarmed(*f)
		w.out = false
	case 'F':
		w.foreigner(*f)
		w.pilot, w.stood = w.pilot || w.taken, w.axes
	case 'w':
		w.hearReceiver(*f, true, uint16(1000+arg*4))
	case 'R':
		w.hearReceiver(*f, false, 0)
	case 'c':
		w.hearChannels(*f, [4]uint16{1500, 1500, uint16(1000 + arg*4), 1500})
		w.pilot = w.pilot || w.taken
	case 'L':
		w.lost()
	case 'N':
		w.sticks = sticks{src: w.src}
		src.restarted(f.now)
		w.pilot, w.out = false, false
	case 'x', 'T':
		w.act()
		w.pass(time.Duration(arg) * 20 * time.Millisecond)
	}
	w.act()
}

// look says what no rule allows of what was sent and wished since the last look.
func (w *stickWitness) look(what byte) string {
	acts, f := w.acts, w.f
	w.acts = ""
	sent := w.frames[w.seen:]
	w.seen = len(w.frames)
	if strings.Contains(acts, "holds") {
		switch {
		case w.pilot:
			return "a hold after a pilot's switch"
		case !f.armed || !f.aloft:
			return "a hold on the ground"
		case f.mode != ModeManual && f.mode != ModeAltitude:
			return "a hold in no mode that needs one"
		}
	}
	if strings.Contains(acts, "released") && !f.firmware.ardupilot() {
		return "PX4 can't release sticks"
	}
	for _, s := range sent {
		level := s.axes.x == 0 && s.axes.y == 0 && s.axes.r == 0
		switch {
		case s.axes == released:
		case w.pilot && !level && s.axes != w.stood:
			return fmt.Sprintf("%v after a pilot's switch", s.axes)
		case w.out && f.firmware == px4 && s.axes != w.parked:
			return fmt.Sprintf("%v in an AUTO mode, where %v stood", s.axes, w.parked)
		case level || w.pilot || s.axes == w.parked:
		case s.axes != w.asked:
			return fmt.Sprintf("%v, which nobody asked for", s.axes)
		case s.at.After(w.until):
			return fmt.Sprintf("%v after their timeout", s.axes)
		}
	}
	switch {
	case w.phase == stickClient && (w.taken || !f.mode.flownBySticks()):
		return "the client has sticks that are not its own"
	case what == 'T' && w.phase != stickOff && w.phase != stickClient && !f.armed && w.f.now.Sub(w.client) > stickIdle+stickEvery:
		return "a stream that nobody needs"
	}
	return ""
}
