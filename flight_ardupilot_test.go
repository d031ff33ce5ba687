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

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Whole flights of ArduPilot with a pilot beside them: every manoeuvre, every
// state of the receiver, and what a pilot, a failsafe or the line does to it
// (docs/design.md, "Who has the sticks").

// ardu is a flight of a Copter whose receiver is known.
type ardu struct {
	*flight
	receiver simReceiver
}

// Copter's modes that a pilot's switch has.
var arduPilotsModes = []uint32{0, 2, 5, 16, 4, copterBrake, 6, 9}

// arduShows is when the simulator tells of a new mode.
const arduShows = 100 * time.Microsecond

// arduFly flies a Copter whose receiver is in a state from the boot on.
func arduFly(t *testing.T, receiver simReceiver, do func(*ardu)) {
	t.Helper()
	fly(t, simArduPilot, arduReceiver(receiver), func(f *flight) { do(&ardu{f, receiver}) })
}

func arduReceiver(to simReceiver) func(*simulator) {
	return func(s *simulator) { s.receiver = to }
}

// rise takes off. Without a receiver it arms on our stream alone; with a
// transmitter in hand the pilot gives throttle once it flies.
func (f *ardu) rise(altitude float64) {
	f.Helper()
	if f.receiver == simReceiverInHand {
		f.sim.pilotSticks(0, 0, 0, 0)
		defer f.sim.pilotSticks(0, 0, 500, 0)
	}
	if !f.receiver.live() {
		f.accepted("/mode", `{"mode":"manual","arm":true}`)
	}
	f.accepted("/takeoff", fmt.Sprintf(`{"altitude":%g}`, altitude))
}

func (f *ardu) hover() {
	f.Helper()
	f.rise(20)
	time.Sleep(20 * time.Second)
	f.wantAt(0, 0, 20, 0.5)
}

// sent lists what came since a time that commands or moves the vehicle, the
// centred, parked and released sticks beside it.
func (f *ardu) sent(since time.Time) (commands []string, sticks []axes) {
	for _, r := range f.sim.received() {
		if r.at.Before(since) {
			continue
		}
		switch m := r.msg.(type) {
		case *common.MessageCommandLong:
			if m.Command != common.MAV_CMD_SET_MESSAGE_INTERVAL && m.Command != common.MAV_CMD_REQUEST_MESSAGE {
				commands = append(commands, fmt.Sprintf("%d %g %g", m.Command, m.Param1, m.Param2))
			}
		case *common.MessageCommandInt:
			commands = append(commands, fmt.Sprintf("%d frame %d z %.1f", m.Command, m.Frame, m.Z))
		case *common.MessageManualControl:
			sticks = append(sticks, axes{m.X, m.Y, m.Z, m.R})
		}
	}
	return commands, sticks
}

type arduManoeuvre struct {
	name   string
	sticks bool // a stream of ours may run in it
	begin  func(f *ardu)
}

// arduManoeuvres bring the vehicle into the middle of something.
var arduManoeuvres = []arduManoeuvre{
	{"takeoff", false, func(f *ardu) { f.rise(40); time.Sleep(9 * time.Second) }},
	{"climb", false, func(f *ardu) { f.hover(); f.accepted("/goto", `{"altitude":60}`); time.Sleep(4 * time.Second) }},
	{"goto", false, func(f *ardu) { f.hover(); f.accepted("/goto", "{"+at(200, 0)+"}"); time.Sleep(6 * time.Second) }},
	{"hold", false, func(f *ardu) { f.hover(); f.accepted("/mode", `{"mode":"hold"}`); time.Sleep(4 * time.Second) }},
	{"stop", false, func(f *ardu) {
		f.hover()
		f.accepted("/goto", "{"+at(200, 0)+"}")
		time.Sleep(8 * time.Second)
		f.accepted("/mode", `{"mode":"hold"}`)
		time.Sleep(400 * time.Millisecond)
	}},
	{"land", false, func(f *ardu) { f.hover(); f.accepted("/land", ""); time.Sleep(4 * time.Second) }},
	{"way to a landing", false, func(f *ardu) { f.hover(); f.accepted("/land", "{"+at(200, 0)+"}"); time.Sleep(6 * time.Second) }},
	{"landing at a place", false, func(f *ardu) {
		f.hover()
		f.accepted("/land", "{"+at(8, 0)+"}")
		f.until("the second leg", 40*time.Second, func() bool { return f.sim.truth().mode == 9 })
		time.Sleep(2 * time.Second)
	}},
	{"rtl", false, func(f *ardu) {
		f.hover()
		f.accepted("/goto", "{"+at(60, 0)+"}")
		time.Sleep(15 * time.Second)
		f.accepted("/mode", `{"mode":"rtl"}`)
		time.Sleep(4 * time.Second)
	}},
	{"position", true, func(f *ardu) { f.hover(); f.accepted("/mode", `{"mode":"position"}`); time.Sleep(2 * time.Second) }},
	{"position, sticks moved", true, func(f *ardu) { f.moving("position", `{"pitch":0.5,"timeout":5}`); time.Sleep(time.Second) }},
	{"position, sticks expired", true, func(f *ardu) { f.moving("position", `{"pitch":0.5,"timeout":0.2}`); time.Sleep(2 * time.Second) }},
	{"altitude", true, func(f *ardu) { f.hover(); f.accepted("/mode", `{"mode":"altitude"}`); time.Sleep(2 * time.Second) }},
	{"altitude, sticks moved", true, func(f *ardu) { f.moving("altitude", `{"roll":-0.5,"timeout":5}`); time.Sleep(time.Second) }},
	{"altitude, sticks expired", true, func(f *ardu) { f.moving("altitude", `{"pitch":0.5,"timeout":0.2}`); time.Sleep(2 * time.Second) }},
	{"manual", true, func(f *ardu) { f.hover(); f.accepted("/mode", `{"mode":"manual"}`); time.Sleep(time.Second) }},
	{"manual, sticks moved", true, func(f *ardu) {
		f.moving("manual", `{"pitch":0.2,"throttle":0.45,"timeout":5}`)
		time.Sleep(time.Second)
	}},
	{"manual, sticks expired", true, func(f *ardu) {
		f.moving("manual", `{"pitch":0.2,"throttle":0.45,"timeout":0.2}`)
		time.Sleep(time.Second)
	}},
	{"a silent client's hold", true, func(f *ardu) { f.moving("altitude", `{"pitch":0.5,"timeout":0.2}`); time.Sleep(7 * time.Second) }},
}

func (f *ardu) moving(mode, sticks string) {
	f.Helper()
	f.hover()
	f.accepted("/mode", `{"mode":"`+mode+`"}`)
	f.accepted("/input", sticks)
}

// arduMoment is a manoeuvre, a receiver, and a mode that a pilot's switch sets.
type arduMoment struct {
	arduManoeuvre
	receiver simReceiver
	custom   uint32
}

// The whole product where a stream of ours may run; where none does, every mode
// with a transmitter in hand.
func TestCopterIsThePilotsFromHisSwitchOn(t *testing.T) {
	names := map[simReceiver]string{simReceiverNone: "none", simReceiverLost: "lost", simReceiverIdle: "idle", simReceiverInHand: "in hand"}
	var cases []arduMoment
	for _, m := range arduManoeuvres {
		for _, receiver := range []simReceiver{simReceiverNone, simReceiverLost, simReceiverIdle, simReceiverInHand} {
			modes := arduPilotsModes
			switch {
			case receiver == simReceiverLost: // to the wire what none is
				modes = []uint32{5}
			case receiver == simReceiverIdle && !m.sticks: // what in hand is
				modes = []uint32{5, copterBrake}
			}
			for _, custom := range modes {
				cases = append(cases, arduMoment{m, receiver, custom})
			}
		}
	}
	type pair struct{ one, other any }
	for _, m := range sampled(t, cases, 0,
		func(m arduMoment) any { return pair{m.name, m.receiver} },
		func(m arduMoment) any { return pair{m.receiver, m.custom} },
		func(m arduMoment) any { return pair{m.sticks, m.custom} },
	) {
		_, mode := copter.reported(m.custom)
		t.Run(m.name+"/"+names[m.receiver]+"/"+mode, func(t *testing.T) {
			arduFly(t, m.receiver, func(f *ardu) {
				m.begin(f)
				f.pilotSwitches(m.custom)
			})
		})
	}
}

// pilotSwitches sets a mode by the pilot's switch and holds what follows against
// the rules.
func (f *ardu) pilotSwitches(custom uint32) {
	f.Helper()
	before, was := f.sim.truth(), f.status()
	_, streamed := f.sent(time.Now().Add(-200 * time.Millisecond))
	began := time.Now()
	f.sim.pilotMode(custom)
	mode, name := copter.reported(custom)
	if before.mode == custom { // the vehicle shows nothing: nothing changes
		time.Sleep(500 * time.Millisecond)
		f.wantMode(was["mode"].(string))
		if sent, _ := f.sent(began); len(sent) > 0 {
			f.Errorf("sent %q", sent)
		}
		return
	}
	time.Sleep(2 * arduShows)
	if _, o := f.call("GET", "/mode", ""); o["mode"] != mode.String() || o["vehicle_mode"] != name {
		f.Errorf("after the report of %s it is %v", name, o)
	}
	if o := f.status(); o["done"] != nil || o["target"] != nil {
		f.Errorf("done is %v, the target %v after a pilot's %s", o["done"], o["target"], name)
	}
	time.Sleep(20 * time.Second)
	f.wantMode(mode.String())
	if now := f.sim.truth(); now.mode != custom {
		f.Errorf("the vehicle is in mode %d", now.mode)
	}
	sent, sticks := f.sent(began.Add(arduShows))
	if len(sent) > 0 {
		f.Errorf("sent after the pilot's switch: %q", sent)
	}
	f.wantStream(streamed, sticks, custom)
	if mode.flownBySticks() {
		f.refused("/input", `{"pitch":1,"throttle":0.5}`, 409, "wrong_mode")
	}
}

// wantStream checks what became of the stream that ran before a pilot's switch.
func (f *ardu) wantStream(before, after []axes, custom uint32) {
	f.Helper()
	free := 0 // of our sticks, from there on
	switch {
	case len(before) == 0:
		if len(after) > 0 {
			f.Errorf("%d sticks, from %+v on, where nobody would fall without them", len(after), after[0])
		}
		return
	case f.receiver == simReceiverInHand:
		free = min(3, len(after))
		if !slices.Equal(after[:free], []axes{released, released, released}) {
			f.Fatalf("the sticks are not released: %+v", slices.Compact(after))
		}
		if len(after) > free {
			f.Errorf("%d sticks after the release", len(after)-free)
		}
		return
	case f.receiver == simReceiverIdle:
		f.told("moving any switch of the transmitter frees its sticks", 1)
	}
	if n := len(after) - free; n < 19*25 {
		f.Errorf("%d sticks in 20 s: the vehicle would fall", n)
	}
	for _, a := range after[free:] {
		if last := before[len(before)-1].z; a != (axes{z: 500}) && (custom != 0 || a != (axes{z: last})) {
			f.Fatalf("the sticks after a pilot's switch are %+v", a)
		}
	}
}

// ArduPilot without a receiver arms after 2 s of a stream: also where the mode is
// asked for in the same request.
func TestCopterWithoutAReceiverArmsInTheModeThatIsAskedForWithIt(t *testing.T) {
	for _, mode := range []string{"manual", "altitude", "position"} {
		arduFly(t, simReceiverNone, func(f *ardu) {
			f.accepted("/mode", `{"mode":"`+mode+`","arm":true}`)
			f.wantMode(mode)
			if f.disarmed() {
				f.Error("it is not armed")
			}
		})
	}
}

// ignores makes the vehicle hear our commands and neither carry them out nor
// acknowledge them; questions are answered.
func (f *ardu) ignores() {
	f.sim.change(func() {
		f.sim.idle = true
		f.sim.onAck = func(a *common.MessageCommandAck) []simAnswer {
			if a.Command == common.MAV_CMD_REQUEST_MESSAGE {
				return []simAnswer{{ack: a}}
			}
			return nil
		}
	})
}

func (f *ardu) slow() { f.sim.change(func() { f.sim.delay = 60 * time.Millisecond }) }

// What a command is told that waits while somebody takes the drone, and that
// nothing more of it is sent.
func TestCopterInterruptsWhatWaitsWhenAPilotTakesIt(t *testing.T) {
	const idle, hand, none = simReceiverIdle, simReceiverInHand, simReceiverNone
	slow := func(f *ardu) { f.hover(); f.slow() }
	ignored := func(f *ardu) { f.hover(); f.ignores() }
	to := func(custom uint32) func(f *ardu) { return func(f *ardu) { f.sim.pilotMode(custom) } }
	rtl := func(f *ardu) { f.sim.failsafeReturn() }
	const there = "192 frame 3 z 20.0"
	for _, c := range []struct {
		name       string
		receiver   simReceiver
		before     func(f *ardu)
		path, body string
		sent       string        // the last command before it happens
		after      time.Duration // from there on
		happens    func(f *ardu)
		mode       string
	}{
		{"position, before its sticks are led", idle, (*ardu).hover, "/mode", `{"mode":"position"}`, "", 200 * time.Millisecond, to(copterBrake), "hold"},
		{"position, and the pilot sets the same", idle, (*ardu).hover, "/mode", `{"mode":"position"}`, "", 200 * time.Millisecond, to(5), "position"},
		{"manual, a failsafe", idle, (*ardu).hover, "/mode", `{"mode":"manual"}`, "", 200 * time.Millisecond, rtl, "rtl"},
		{"altitude that nobody hears, no receiver", none, ignored, "/mode", `{"mode":"altitude"}`, "176 1 2", 500 * time.Millisecond, to(6), "rtl"},
		{"position that nobody hears", hand, ignored, "/mode", `{"mode":"position"}`, "176 1 5", 500 * time.Millisecond, to(copterBrake), "hold"},
		{"hold, between BRAKE and GUIDED", hand, slow, "/mode", `{"mode":"hold"}`, "176 1 17", 30 * time.Millisecond, to(5), "position"},
		{"hold, between BRAKE and GUIDED, a failsafe", idle, slow, "/mode", `{"mode":"hold"}`, "176 1 17", 30 * time.Millisecond, rtl, "rtl"},
		{"goto with a speed, before the speed", hand, slow, "/goto", "{" + at(100, 0) + `,"speed":2}`, there, 30 * time.Millisecond, to(2), "altitude"},
		{"goto with a heading, before the turn", idle, slow, "/goto", "{" + at(100, 0) + `,"heading":90}`, there, 30 * time.Millisecond, to(copterBrake), "hold"},
		{"goto that nobody hears", hand, ignored, "/goto", "{" + at(100, 0) + "}", there, 500 * time.Millisecond, to(copterBrake), "hold"},
		{"land that nobody hears", hand, ignored, "/land", "", "176 1 9", 500 * time.Millisecond, to(5), "position"},
		{"land that nobody hears, a failsafe", hand, ignored, "/land", "", "176 1 9", 500 * time.Millisecond, rtl, "rtl"},
		{"land at a place that nobody hears", hand, ignored, "/land", "{" + at(50, 0) + "}", there, 500 * time.Millisecond, to(copterBrake), "hold"},
		{"rtl that nobody hears, and the pilot lands", hand, ignored, "/mode", `{"mode":"rtl"}`, "176 1 6", 500 * time.Millisecond, to(9), "land"},
		{"takeoff, before it is armed", idle, (*ardu).slow, "/takeoff", "", "176 1 4", 30 * time.Millisecond, to(5), "position"},
		{"takeoff, between arming and the climb", idle, (*ardu).slow, "/takeoff", "", "400 1 0", 30 * time.Millisecond, to(2), "altitude"},
		{"takeoff that the pilot disarms", idle, (*ardu).slow, "/takeoff", "", "400 1 0", 30 * time.Millisecond, func(f *ardu) {
			f.sim.pilotArm(false)
			f.sim.pilotMode(5)
		}, "position"},
	} {
		t.Run(c.name, func(t *testing.T) {
			arduFly(t, c.receiver, func(f *ardu) {
				c.before(f)
				time.Sleep(2 * time.Second)
				asked := time.Now()
				var client sync.WaitGroup
				client.Go(func() { f.refused(c.path, c.body, 409, "interrupted") })
				f.until(c.sent, 5*time.Second, func() bool {
					sent, _ := f.sent(asked)
					return c.sent == "" || slices.Contains(sent, c.sent)
				})
				time.Sleep(c.after)
				c.happens(f)
				time.Sleep(2*arduShows + f.sim.delay)
				shown := time.Now()
				client.Wait()
				if late := time.Since(shown); late > showWithin && !f.disarmed() {
					t.Errorf("the answer came %v after the report", late)
				}
				f.wantMode(c.mode)
				f.sim.change(func() { f.sim.idle, f.sim.onAck = false, nil })
				time.Sleep(15 * time.Second)
				f.wantMode(c.mode)
				if sent, _ := f.sent(shown); len(sent) > 0 {
					t.Errorf("sent after the report: %q", sent)
				}
			})
		})
	}
}

// arduEach flies into each manoeuvre, and with each of the receivers.
func arduEach(t *testing.T, receivers []simReceiver, do func(f *ardu, name string)) {
	t.Helper()
	var cases []arduMoment
	for _, m := range arduManoeuvres {
		for _, receiver := range receivers {
			cases = append(cases, arduMoment{arduManoeuvre: m, receiver: receiver})
		}
	}
	for _, m := range sampled(t, cases, len(cases)/2,
		func(m arduMoment) any { return m.name },
		func(m arduMoment) any { return [2]any{m.sticks, m.receiver} },
	) {
		t.Run(fmt.Sprintf("%s/%d", m.name, m.receiver), func(t *testing.T) {
			arduFly(t, m.receiver, func(f *ardu) {
				m.begin(f)
				do(f, m.name)
			})
		})
	}
}

func (f *ardu) streams() bool {
	_, sticks := f.sent(time.Now().Add(-200 * time.Millisecond))
	return len(sticks) > 0
}

func TestCopterIsItsFailsafesInEveryManoeuvre(t *testing.T) {
	arduEach(t, []simReceiver{simReceiverNone, simReceiverIdle, simReceiverInHand}, func(f *ardu, _ string) {
		_, streamed := f.sent(time.Now().Add(-200 * time.Millisecond))
		began := time.Now()
		f.sim.failsafeReturn()
		time.Sleep(1300 * time.Millisecond) // where it was in RTL already, only the next heartbeat tells
		if o := f.status(); o["mode"] != "rtl" || o["failsafe"] != true || o["done"] != nil {
			f.Errorf("mode %v, failsafe %v, done %v", o["mode"], o["failsafe"], o["done"])
		}
		time.Sleep(19 * time.Second)
		f.wantMode("rtl")
		sent, sticks := f.sent(began.Add(arduShows))
		if len(sent) > 0 {
			f.Errorf("sent after the failsafe: %q", sent)
		}
		f.wantStream(streamed, sticks, 6)
	})
}

// The transmitter of a live receiver goes out of reach: ArduPilot's own failsafe
// comes where no stream of ours prevents it, and nothing is sent against it.
func TestCopterThatLosesItsReceiverIsItsFailsafes(t *testing.T) {
	arduEach(t, []simReceiver{simReceiverIdle, simReceiverInHand}, func(f *ardu, name string) {
		streamed := f.streams()
		began := time.Now()
		f.sim.setReceiver(simReceiverLost)
		time.Sleep(1500 * time.Millisecond)
		if name == "rtl" { // only the next heartbeat tells
			time.Sleep(600 * time.Millisecond)
		}
		o := f.status()
		if streamed != (o["failsafe"] == false) || !streamed && o["mode"] != "rtl" {
			f.Errorf("streamed %v: mode %v, failsafe %v", streamed, o["mode"], o["failsafe"])
		}
		if streamed {
			return
		}
		time.Sleep(18 * time.Second)
		f.wantMode("rtl")
		if sent, sticks := f.sent(began.Add(time.Second + 2*simTick)); len(sent) > 0 || len(sticks) > 0 {
			f.Errorf("sent after the failsafe: %q, %d sticks", sent, len(sticks))
		}
	})
}

func TestCopterThatRestartsDisarmedIsManual(t *testing.T) {
	arduEach(t, []simReceiver{simReceiverNone, simReceiverIdle, simReceiverInHand}, func(f *ardu, _ string) {
		f.sim.reboot(false)
		time.Sleep(streamLost + time.Second) // its streams are gone: then it is asked how old it is
		again := time.Now()
		for range 30 {
			time.Sleep(time.Second)
			if o := f.status(); o["mode"] != "manual" || o["armed"] != false || o["done"] != nil || o["target"] != nil {
				f.Fatalf("mode %v, armed %v, done %v, target %v", o["mode"], o["armed"], o["done"], o["target"])
			}
		}
		if sent, sticks := f.sent(again); len(sent) > 0 || len(sticks) > 0 {
			f.Errorf("sent to it: %q, %d sticks", sent, len(sticks))
		}
	})
}

// A refused command leaves everything as it was, the stream too.
func TestCopterThatRefusesIsLeftAsItWas(t *testing.T) {
	arduEach(t, []simReceiver{simReceiverNone, simReceiverIdle, simReceiverInHand}, func(f *ardu, name string) {
		was, before, streamed := f.status(), f.sim.truth(), f.streams()
		for _, id := range []common.MAV_CMD{common.MAV_CMD_NAV_LAND, common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_DO_REPOSITION} {
			defer f.fails(id)()
		}
		f.refused("/goto", "{"+at(0, 80)+"}", 409, "refused")
		if before.mode != 4 { // else BRAKE is asked for first
			f.refused("/mode", `{"mode":"hold"}`, 409, "refused")
		}
		if before.mode != 9 {
			f.refused("/land", "", 409, "refused")
		}
		o := f.status()
		if name == "way to a landing" {
			was["mode"] = "hold"
		}
		if o["mode"] != was["mode"] || o["vehicle_mode"] != was["vehicle_mode"] || o["done"] != nil {
			f.Errorf("mode %v, %v, done %v; before %v, %v", o["mode"], o["vehicle_mode"], o["done"], was["mode"], was["vehicle_mode"])
		}
		if lent := f.receiver == simReceiverInHand; f.streams() != (streamed && !lent) {
			f.Errorf("streams %v, before %v", f.streams(), streamed)
		}
	})
}

// The vehicle can't be heard for 5 s, or nothing goes either way. Meanwhile
// nothing is commanded, and after it the mode is the vehicle's: it has flown home
// where only our stream kept it from that. No hold is owed any more to a client that
// fell silent.
func TestCopterThatIsOutOfReachForFiveSeconds(t *testing.T) {
	for name, cut := range map[string]func(f *ardu) (end func()){
		"unplugged": func(f *ardu) func() { f.sim.unplug(); return f.sim.plug },
		"deaf": func(f *ardu) func() {
			f.sim.change(func() { f.sim.muted = true })
			return func() { f.sim.change(func() { f.sim.muted = false }) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			arduEach(t, []simReceiver{simReceiverNone, simReceiverIdle, simReceiverInHand}, func(f *ardu, _ string) {
				was, streamed := f.status()["mode"].(string), f.streams()
				lost := time.Now()
				end := cut(f)
				time.Sleep(5 * time.Second)
				f.refused("/mode", `{"mode":"hold"}`, 503, "offline")
				if sent, _ := f.sent(lost.Add(offlineAfter)); len(sent) > 0 {
					f.Errorf("sent to a vehicle that is not heard: %q", sent)
				}
				end()
				f.until("online", 5*time.Second, func() bool { return f.status()["online"] == true })
				back := time.Now()
				mode, _ := copter.reported(f.sim.truth().mode)
				if mode != ModeRTL {
					f.wantMode(was)
				}
				if failed := streamed && !f.receiver.live() && name == "unplugged"; failed && mode != ModeRTL {
					f.Errorf("no failsafe of lost sticks: %v", mode)
				}
				time.Sleep(silentClient + time.Second)
				if sent, _ := f.sent(back); len(sent) > 0 && mode != ModeLand && mode != ModeHold {
					f.Errorf("sent when it was back: %q", sent)
				}
				if lent := f.receiver == simReceiverInHand; mode.flownBySticks() && f.streams() != (streamed && !lent) {
					f.Errorf("streams %v, before %v; %v", f.streams(), streamed, f.status()["messages"])
				}
			})
		})
	}
}

// What the first version did on real flights (docs/autopilots.md), each as it was
// flown.

func TestPilotsBRAKEEndsALandingAtAPlace(t *testing.T) {
	arduFly(t, simReceiverInHand, func(f *ardu) {
		f.hover()
		f.accepted("/land", "{"+at(60, 0)+"}")
		time.Sleep(5 * time.Second)
		f.sim.pilotMode(copterBrake)
		began := time.Now()
		time.Sleep(2 * time.Minute)
		if sent, _ := f.sent(began); len(sent) > 0 || f.sim.truth().mode != copterBrake || f.sim.truth().alt < 19 {
			f.Errorf("sent %q; %+v", sent, f.sim.truth())
		}
		f.wantMode("hold")
		if text := fmt.Sprint(f.status()["messages"]); strings.Contains(text, "landing") {
			f.Errorf("told of a pilot's own doing: %v", text)
		}
	})
}

func TestPilotsBRAKEInAClimbAndInAGotoShows(t *testing.T) {
	for _, begin := range []func(f *ardu){arduManoeuvres[0].begin, arduManoeuvres[1].begin, arduManoeuvres[2].begin} {
		arduFly(t, simReceiverInHand, func(f *ardu) {
			begin(f)
			var waits sync.WaitGroup
			waits.Go(func() { f.refused("/goto", "{"+at(300, 0)+`,"wait":100}`, 409, "interrupted") })
			time.Sleep(3 * time.Second)
			f.sim.pilotMode(copterBrake)
			time.Sleep(2 * arduShows)
			waits.Wait()
			if o := f.status(); o["mode"] != "hold" || o["vehicle_mode"] != "BRAKE" || o["target"] != nil || o["done"] != nil {
				f.Errorf("mode %v, vehicle %v, target %v, done %v", o["mode"], o["vehicle_mode"], o["target"], o["done"])
			}
		})
	}
}

// A pilot's own LOITER or ALT_HOLD is his 50 ms after the report, though our
// sticks flew a moment ago.
func TestPilotsLOITERAndALTHOLDAreHisAtOnce(t *testing.T) {
	for from, switches := range map[string][]uint32{"position": {2, 16}, "altitude": {5, 16}, "manual": {2, 5, 16}} {
		for _, custom := range switches {
			arduFly(t, simReceiverInHand, func(f *ardu) {
				f.moving(from, `{"roll":1,"throttle":0.5,"timeout":5}`)
				time.Sleep(time.Second)
				f.sim.pilotSticks(1000, 0, 500, 0)
				f.sim.pilotMode(custom)
				time.Sleep(50*time.Millisecond + arduShows)
				f.sim.change(func() {
					if x, y, _, _ := f.sim.brain.axes(); x != 1 || y != 0 {
						f.Errorf("50 ms after the report the vehicle's sticks are %g forward, %g right, and not the pilot's", x, y)
					}
				})
				if o := f.status()["input"].(object); o["by"] != "receiver" || o["active"] != false {
					f.Errorf("input %v", o)
				}
			})
		}
	}
}

// Nobody's hand is on the receiver, and nobody's on the API's sticks.
func TestIdleReceiverDropsNothingInStickModesOfTheAPI(t *testing.T) {
	for _, receiver := range []simReceiver{simReceiverNone, simReceiverIdle} {
		for _, mode := range []string{"manual", "altitude", "position"} {
			arduFly(t, receiver, func(f *ardu) {
				f.hover()
				f.accepted("/mode", `{"mode":"`+mode+`"}`)
				for range 60 {
					time.Sleep(time.Second)
					if alt := f.sim.truth().alt; alt < 19 || alt > 28 {
						f.Fatalf("%s: %.1f m", mode, alt)
					}
				}
				f.wantMode(map[string]string{"manual": "hold", "altitude": "hold", "position": "position"}[mode])
				if f.sim.truth().failsafe {
					f.Error("a failsafe")
				}
			})
		}
	}
}

// fastest is the highest speed over ground in a time.
func (f *ardu) fastest(d time.Duration) (most float64) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		now := f.sim.truth()
		most = max(most, math.Hypot(now.vn, now.ve))
	}
	return most
}

func TestCoptersGotoHasItsOwnSpeedAndTheNextTheDefault(t *testing.T) {
	for name, next := range map[string]func(f *ardu){
		"goto":                func(f *ardu) { f.accepted("/goto", "{"+at(0, 300)+"}") },
		"land":                func(f *ardu) { f.accepted("/land", "{"+at(0, 300)+"}") },
		"goto with a heading": func(f *ardu) { f.accepted("/goto", "{"+at(0, 300)+`,"heading":0}`) },
	} {
		for _, between := range []string{"", "hold", "position"} {
			t.Run(name+" after "+between, func(t *testing.T) {
				arduFly(t, simReceiverIdle, func(f *ardu) {
					f.hover()
					f.accepted("/goto", "{"+at(0, 100)+`,"speed":2}`)
					if v := f.fastest(10 * time.Second); math.Abs(v-2) > 0.3 {
						f.Errorf("asked for 2 m/s, flew %.1f", v)
					}
					f.accepted("/goto", "{"+at(0, 200)+`,"speed":4}`)
					if v := f.fastest(10 * time.Second); math.Abs(v-4) > 0.3 {
						f.Errorf("asked for 4 m/s, flew %.1f", v)
					}
					if between != "" {
						f.accepted("/mode", `{"mode":"`+between+`"}`)
						time.Sleep(3 * time.Second)
					}
					next(f)
					if v := f.fastest(15 * time.Second); math.Abs(v-10) > 0.5 {
						f.Errorf("the next one flew %.1f m/s, and not the default", v)
					}
				})
			})
		}
	}
}

// A hold out of each speed: it comes back a metre at most, and loses no height.
func TestCoptersHoldFliesBackAMetreAtMost(t *testing.T) {
	for _, speed := range []float64{2, 5, 8, 10} {
		t.Run(fmt.Sprint(speed), func(t *testing.T) {
			arduFly(t, simReceiverInHand, func(f *ardu) {
				f.hover()
				f.accepted("/goto", "{"+at(400, 0)+fmt.Sprintf(`,"speed":%g}`, speed))
				time.Sleep(15 * time.Second)
				f.accepted("/mode", `{"mode":"hold"}`)
				f.comesBack(1, 20, 1)
			})
		})
	}
	t.Run("out of a climb", func(t *testing.T) {
		arduFly(t, simReceiverInHand, func(f *ardu) {
			f.hover()
			f.accepted("/goto", `{"altitude":80}`)
			time.Sleep(6 * time.Second)
			f.accepted("/mode", `{"mode":"hold"}`)
			f.comesBack(1, f.sim.truth().alt+4, 4)
		})
	})
	for _, mode := range []string{"position", "altitude", "manual"} { // of a client, and of one that fell silent
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprint("out of ", mode, silent), func(t *testing.T) {
				arduFly(t, simReceiverIdle, func(f *ardu) {
					f.moving(mode, `{"pitch":0.3,"throttle":0.45,"timeout":2}`)
					time.Sleep(1900 * time.Millisecond)
					if !silent {
						f.accepted("/mode", `{"mode":"hold"}`)
					} else if mode != "position" {
						time.Sleep(6 * time.Second)
						f.wantMode("hold")
					}
					f.comesBack(1, f.sim.truth().alt, 1.5)
				})
			})
		}
	}
}

// comesBack watches the drone stop: how far it flies back, and at which height.
func (f *ardu) comesBack(most, height, within float64) {
	f.Helper()
	farthest := math.Inf(-1)
	for range 300 {
		now := f.sim.truth()
		n, _ := simMetres(now.lat, now.lon)
		farthest = max(farthest, n)
		if math.Abs(now.alt-height) > within {
			f.Fatalf("%.1f m up, want %.1f", now.alt, height)
		}
		time.Sleep(100 * time.Millisecond)
	}
	now := f.sim.truth()
	if n, _ := simMetres(now.lat, now.lon); farthest-n > most || math.Hypot(now.vn, now.ve) > 0.2 {
		f.Errorf("it came back %.1f m, and flies %.1f m/s", farthest-n, math.Hypot(now.vn, now.ve))
	}
}

// A QuadPlane calls itself a fixed wing; its vtol_state tells what else it is.
// GUIDED is no hover by default, and then the refusal names the parameter.
func TestQuadPlaneInTheAir(t *testing.T) {
	for _, hovers := range []float64{0, 1} {
		for _, typ := range []float64{0, 20} {
			prepare := func(s *simulator) { s.params["Q_GUIDED_MODE"], s.params["Q_MAV_TYPE"] = hovers, typ }
			t.Run(fmt.Sprintf("Q_GUIDED_MODE %g, type %g", hovers, typ), func(t *testing.T) {
				fly(t, simQuadPlane, prepare, func(f *flight) {
					f.accepted("/mode", `{"mode":"position"}`)
					f.wantMode("position")
					if got := f.sim.truth().mode; got != 19 {
						t.Fatalf("it is in mode %d, and not in QLOITER", got)
					}
					f.accepted("/mode", `{"arm":true}`)
					f.accepted("/input", `{"throttle":1,"timeout":5}`)
					f.until("10 m", 20*time.Second, func() bool {
						f.accepted("/input", `{"throttle":1,"timeout":5}`)
						return f.sim.truth().alt > 10
					})
					f.accepted("/input", `{"timeout":0.5}`)
					time.Sleep(3 * time.Second)
					for path, body := range map[string]string{"/mode": `{"mode":"hold"}`, "/goto": "{" + at(40, 0) + "}", "/land": "{" + at(40, 0) + "}"} {
						if hovers == 1 {
							f.accepted(path, body)
							time.Sleep(2 * time.Second)
							f.accepted("/mode", `{"mode":"position"}`)
							continue
						}
						sent := len(f.commands())
						if o := f.refused(path, body, 501, "unsupported"); !strings.Contains(o["error"].(string), "Q_GUIDED_MODE") {
							t.Errorf("%s: %v", path, o["error"])
						}
						if got := f.commands()[sent:]; len(got) > 0 {
							t.Errorf("%s: sent %q", path, got)
						}
					}
					f.accepted("/land", "")
					f.wantMode("land")
					f.until("landed", 2*time.Minute, f.disarmed)
				})
			})
		}
	}
}

// hovering puts a QuadPlane into the air on its propellers, by the API's sticks.
func hovering(f *flight) {
	f.Helper()
	f.accepted("/mode", `{"mode":"position","arm":true}`)
	f.until("15 m", 20*time.Second, func() bool {
		f.accepted("/input", `{"throttle":1,"timeout":5}`)
		return f.sim.truth().alt > 15
	})
	f.accepted("/input", `{"timeout":0.1}`)
	time.Sleep(3 * time.Second)
}

func TestSilentClientsQuadPlaneLandsWhereItCanNotHover(t *testing.T) {
	for hovers, want := range map[float64]string{0: "land", 1: "hold"} {
		for mode, after := range map[string]time.Duration{"altitude": silentClient, "manual": silentClient} {
			fly(t, simQuadPlane, func(s *simulator) { s.params["Q_GUIDED_MODE"] = hovers }, func(f *flight) {
				hovering(f)
				f.accepted("/mode", `{"mode":"`+mode+`"}`)
				f.accepted("/input", `{"throttle":0.45,"timeout":0.5}`)
				time.Sleep(after + 500*time.Millisecond)
				f.wantMode(want)
				if now := f.sim.truth(); now.mode != map[string]uint32{"land": 20, "hold": 15}[want] {
					f.Errorf("%s, Q_GUIDED_MODE %g: the vehicle is in mode %d", mode, hovers, now.mode)
				}
				time.Sleep(5 * time.Second)
				if now := f.sim.truth(); math.Hypot(now.vn, now.ve) > 0.5 {
					f.Errorf("it flies %.1f m/s", math.Hypot(now.vn, now.ve))
				}
			})
		}
	}
}

func TestQuadPlaneIsThePilotsFromHisSwitchOn(t *testing.T) {
	type switched struct {
		from   string
		custom uint32
	}
	var cases []switched
	for _, custom := range []uint32{17, 18, 19, 15, 20, 21, 5} {
		for _, from := range []string{"position", "altitude", "hold", "land"} {
			cases = append(cases, switched{from, custom})
		}
	}
	for _, c := range sampled(t, cases, len(cases)/2, func(c switched) any { return c.from }, func(c switched) any { return c.custom }) {
		t.Run(fmt.Sprint(c.from, c.custom), func(t *testing.T) {
			fly(t, simQuadPlane, func(s *simulator) { s.params["Q_GUIDED_MODE"] = 1 }, func(q *flight) {
				hovering(q)
				q.accepted("/mode", `{"mode":"`+c.from+`"}`)
				time.Sleep(1500 * time.Millisecond)
				f := &ardu{q, simReceiverIdle}
				if f.sim.truth().mode == c.custom {
					return
				}
				_, streamed := f.sent(time.Now().Add(-200 * time.Millisecond))
				began := time.Now()
				f.sim.pilotMode(c.custom)
				time.Sleep(2 * arduShows)
				mode, name := quadPlane.reported(c.custom)
				if _, o := f.call("GET", "/mode", ""); o["mode"] != mode.String() || o["vehicle_mode"] != name {
					f.Errorf("after the report of %s it is %v", name, o)
				}
				time.Sleep(10 * time.Second)
				sent, sticks := f.sent(began.Add(arduShows))
				if len(sent) > 0 || len(streamed) > 0 != (len(sticks) > 200) {
					f.Errorf("sent %q and %d sticks", sent, len(sticks))
				}
			})
		})
	}
}

// Before the first fix ArduPilot tells a height above the sea that is none.
func TestCopterWithoutAFixHasNoHeightAboveTheSea(t *testing.T) {
	fly(t, simArduPilot, func(s *simulator) { s.armableAfter = 84 * time.Second }, func(f *flight) { // the fix comes at 20 s
		p := f.status()["position"].(object)
		if p["altitude_msl"] != nil || p["lat"] != nil {
			f.Errorf("before the first fix: %v", p)
		}
		time.Sleep(12 * time.Second)
		if p := f.status()["position"].(object); p["altitude_msl"] == nil {
			f.Errorf("after it: %v", p)
		}
	})
}

// A ground station's failsafe is on: our sticks would be its heartbeat, so they
// are none, and a stick mode wants a hand on the receiver. With -gcs they fly, and
// their end is no failsafe.
func TestGroundStationsFailsafeForbidsOurSticksUnlessWeAreIt(t *testing.T) {
	names := map[simFlavour]string{simArduPilot: "FS_GCS_ENABLE", simQuadPlane: "FS_GCS_ENABL"}
	for flavour, name := range names {
		for _, receiver := range []simReceiver{simReceiverNone, simReceiverIdle, simReceiverInHand} {
			for _, gcs := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, receiver %d, -gcs %v", name, receiver, gcs), func(t *testing.T) {
					prepare := func(s *simulator) { s.receiver, s.params[name] = receiver, 1 }
					start := func(d *drone) { d.link.gcs, d.sticks.src.alone = gcs, gcs }
					flyWith(t, flavour, prepare, start, func(f *flight) {
						f.sim.placeInAir(20)
						time.Sleep(2 * time.Second)
						began := time.Now()
						switch {
						case gcs:
							f.accepted("/mode", `{"mode":"position"}`)
							f.accepted("/input", `{"pitch":0.5,"timeout":1}`)
							time.Sleep(2 * time.Second)
							f.accepted("/mode", `{"mode":"rtl"}`)
							time.Sleep(4 * time.Second)
							f.accepted("/mode", `{"mode":"position"}`)
							time.Sleep(20 * time.Second)
							if now := f.sim.truth(); now.failsafe || now.mode != entered[f.firmware][ModePosition] {
								t.Errorf("our sticks' end is a failsafe: mode %d", now.mode)
							}
							return
						case receiver == simReceiverInHand:
							f.accepted("/mode", `{"mode":"position"}`)
							if o := f.status()["input"].(object); o["by"] != "receiver" {
								t.Errorf("input %v", o)
							}
							if o := f.refused("/input", `{"pitch":1}`, 409, "wrong_mode"); !strings.Contains(o["error"].(string), name) {
								t.Errorf("the refusal: %v", o["error"])
							}
						default:
							if o := f.refused("/mode", `{"mode":"position"}`, 501, "unsupported"); !strings.Contains(o["error"].(string), name) {
								t.Errorf("the refusal: %v", o["error"])
							}
							f.refused("/input", `{"pitch":1}`, 409, "wrong_mode")
						}
						time.Sleep(10 * time.Second)
						if sticks := f.sticksSince(began); len(sticks) > 0 {
							t.Errorf("%d sticks", len(sticks))
						}
						if f.sim.truth().failsafe {
							t.Error("a failsafe")
						}
					})
				})
			}
		}
	}
}

// Another program's sticks, seen on our line or only in RC_CHANNELS, end ours.
func TestForeignSticksPauseOursOnCopter(t *testing.T) {
	foreign := &common.MessageManualControl{Target: 1, Y: 300, Z: 500}
	for name, seen := range map[string]message.Message{ // on our line
		"MANUAL_CONTROL":       foreign,
		"RC_CHANNELS_OVERRIDE": &common.MessageRcChannelsOverride{TargetSystem: 1, TargetComponent: 1, Chan1Raw: 1600},
	} {
		t.Run(name, func(t *testing.T) {
			for _, receiver := range []simReceiver{simReceiverNone, simReceiverIdle, simReceiverInHand} {
				arduFly(t, receiver, func(f *ardu) {
					f.moving("position", `{"timeout":5}`)
					time.Sleep(4 * time.Second)
					if !f.streams() {
						t.Fatal("there is no stream")
					}
					for range 100 { // a joystick at 50 Hz
						f.sim.change(func() { f.sim.brain.sticks(255, foreign) })
						f.sim.emit(255, 190, seen)
						time.Sleep(20 * time.Millisecond)
					}
					f.told("another program", 1)
					f.wantMode("position")
					f.refused("/input", `{"pitch":1}`, 409, "wrong_mode")
					began := time.Now()
					time.Sleep(400 * time.Millisecond)
					if sent, sticks := f.sent(began); len(sent)+len(sticks) > 0 {
						t.Errorf("sent %q and %d sticks", sent, len(sticks))
					}
					time.Sleep(time.Second)
					if want := receiver != simReceiverInHand; f.streams() != want {
						t.Errorf("1.4 s later our stream goes on: %v", !want)
					}
				})
			}
		})
	}
}

// The program ends in the air (docs/design.md, "SIGTERM in the air").
func TestCopterThatTheProgramLeavesInTheAir(t *testing.T) {
	const none, idle, hand = simReceiverNone, simReceiverIdle, simReceiverInHand
	manoeuvre := func(name string) func(f *ardu) {
		return func(f *ardu) {
			for _, m := range arduManoeuvres {
				if m.name == name {
					m.begin(f)
				}
			}
		}
	}
	for _, c := range []struct {
		begin    string
		receiver simReceiver
		sent     []string
		last     []axes // sticks, without repetitions
		mode     uint32 // 10 s later
	}{
		{"position, sticks moved", idle, []string{"176 1 17", "176 1 4"}, []axes{released}, 4},
		{"position, sticks moved", hand, []string{"176 1 17", "176 1 4"}, []axes{released}, 4},
		{"position, sticks moved", none, []string{"176 1 17", "176 1 4"}, []axes{{z: 500}}, 6},
		{"altitude, sticks expired", idle, []string{"176 1 17", "176 1 4"}, []axes{released}, 4},
		{"altitude, sticks expired", none, []string{"176 1 17", "176 1 4"}, []axes{{z: 500}}, 6},
		{"manual, sticks moved", idle, []string{"176 1 17", "176 1 4"}, []axes{released}, 4},
		{"manual, sticks moved", hand, []string{"176 1 17", "176 1 4"}, []axes{released}, 4},
		{"manual, sticks moved", none, []string{"176 1 17", "176 1 4"}, []axes{{z: 500}}, 6},
		{"position", hand, nil, nil, 5},
		{"position, sticks expired", hand, nil, nil, 5},
		{"goto", none, nil, []axes{{z: 500}}, 6},
		{"goto", idle, nil, nil, 4},
		{"land", none, nil, []axes{{z: 500}}, 6},
		{"land", hand, nil, nil, 9},
		{"way to a landing", idle, nil, nil, 4},
		{"a silent client's hold", idle, nil, nil, 4},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.begin, c.receiver), func(t *testing.T) {
			arduFly(t, c.receiver, func(f *ardu) {
				manoeuvre(c.begin)(f)
				time.Sleep(7 * time.Millisecond)
				began := time.Now()
				f.stop()
				time.Sleep(10 * time.Second)
				sent, sticks := f.sent(began)
				if !slices.Equal(sent, c.sent) {
					t.Errorf("sent %q, want %q", sent, c.sent)
				}
				if last := slices.Compact(sticks); len(c.last) == 0 && len(last) > 0 || len(c.last) > 0 && (len(last) == 0 || last[len(last)-1] != c.last[0]) {
					t.Errorf("the last sticks %+v, want %+v", last, c.last)
				}
				if now := f.sim.truth(); now.mode != c.mode || now.alt < 5 {
					t.Errorf("it is in mode %d at %.1f m", now.mode, now.alt)
				}
			})
		})
	}
	t.Run("the pilot has it", func(t *testing.T) {
		arduFly(t, idle, func(f *ardu) {
			manoeuvre("position, sticks moved")(f)
			f.sim.pilotMode(2)
			time.Sleep(2 * time.Second)
			began := time.Now()
			f.stop()
			time.Sleep(time.Second)
			if sent, _ := f.sent(began); len(sent) > 0 || f.sim.truth().mode != 2 {
				t.Errorf("sent %q; mode %d", sent, f.sim.truth().mode)
			}
		})
	})
	t.Run("it stands on the ground", func(t *testing.T) {
		arduFly(t, idle, func(f *ardu) {
			f.accepted("/mode", `{"mode":"position","arm":true}`)
			f.accepted("/input", `{"throttle":0,"timeout":5}`)
			began := time.Now()
			f.stop()
			time.Sleep(time.Second)
			if sent, _ := f.sent(began); len(sent) > 0 || f.sim.truth().mode != 5 {
				t.Errorf("sent %q; mode %d", sent, f.sim.truth().mode)
			}
		})
	})
	for hovers, want := range map[float64]uint32{0: 20, 1: 15} {
		fly(t, simQuadPlane, func(s *simulator) { s.params["Q_GUIDED_MODE"] = hovers }, func(f *flight) {
			hovering(f)
			f.accepted("/input", `{"pitch":0.5,"timeout":5}`)
			time.Sleep(time.Second)
			f.stop()
			time.Sleep(5 * time.Second)
			if now := f.sim.truth(); now.mode != want || math.Hypot(now.vn, now.ve) > 0.5 {
				t.Errorf("Q_GUIDED_MODE %g: mode %d, %.1f m/s", hovers, now.mode, math.Hypot(now.vn, now.ve))
			}
		})
	}
}

// Ten clients command at full speed for a while.
func TestTenClientsAtFullSpeedBreakNothing(t *testing.T) {
	type ended struct {
		at   time.Time
		mode string
	}
	for seed := range uint64(4) {
		arduFly(t, simReceiverIdle, func(f *ardu) {
			f.hover()
			f.sim.change(func() { f.sim.delay = time.Duration(seed) * 3 * time.Millisecond })
			time.Sleep(time.Second)
			began := time.Now()
			var mu sync.Mutex
			var last ended
			acked := map[time.Time]bool{}
			f.sim.change(func() {
				f.sim.onAck = func(a *common.MessageCommandAck) []simAnswer {
					if a.Command == common.MAV_CMD_DO_SET_MODE || a.Command == common.MAV_CMD_NAV_LAND || a.Command == common.MAV_CMD_DO_REPOSITION {
						mu.Lock()
						acked[time.Now()] = true
						mu.Unlock()
					}
					return []simAnswer{{ack: a}}
				}
			})
			var clients sync.WaitGroup
			for i := range 10 {
				dice := rand.New(rand.NewPCG(seed, uint64(i)))
				clients.Go(func() {
					for time.Since(began) < 10*time.Second {
						mode := []string{"manual", "altitude", "position", "hold", "goto"}[dice.IntN(5)]
						path, body := "/mode", `{"mode":"`+mode+`"}`
						if mode == "goto" {
							path, body, mode = "/goto", "{"+at(30, float64(i))+"}", "hold"
						}
						code, o := f.call("POST", path, body)
						switch {
						case code == 200:
							mu.Lock()
							last = ended{time.Now(), mode}
							mu.Unlock()
						case code != 409 || o["code"] != "superseded":
							f.Errorf("%s: %d %v", body, code, o)
						}
						time.Sleep(time.Duration(dice.IntN(10)) * time.Millisecond)
					}
				})
			}
			clients.Wait()
			f.wantMode(last.mode)
			if mode, _ := copter.reported(f.sim.truth().mode); mode.String() != last.mode {
				f.Errorf("the vehicle is in %v, the last accepted command %s", mode, last.mode)
			}
			f.crowdOf(began, acked)
			if f.sim.brain.(*simArduBrain).broken || math.Abs(f.sim.truth().alt-20) > 8 {
				f.Errorf("an internal error: at %.1f m", f.sim.truth().alt)
			}
			landed := time.Now()
			f.accepted("/land", "")
			for _, r := range f.sim.received() {
				if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_NAV_LAND && r.at.Sub(landed) > 150*time.Millisecond {
					f.Errorf("the first copy of a land came after %v", r.at.Sub(landed))
				}
			}
			f.until("landed", time.Minute, f.disarmed)
		})
	}
}

// crowdOf holds what was sent since a time against the limits of a crowd.
func (f *ardu) crowdOf(began time.Time, acked map[time.Time]bool) {
	f.Helper()
	var changes []time.Time
	for _, r := range f.sim.received() {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_SET_MODE && r.at.After(began) {
			changes = append(changes, r.at)
		}
	}
	for _, at := range changes {
		for ack := range acked {
			if d := at.Sub(ack.Add(f.sim.delay)); d > 0 && d < modeGap {
				f.Errorf("a mode change %v after the ack of the one before it", d)
				return
			}
		}
	}
	if n := len(changes); n > int(10*time.Second/modeGap) {
		f.Errorf("%d mode changes in 10 s", n)
	}
}

// A neighbour with MAVROS's ids gets acks of its own: none of them is an answer here.
func TestNeighboursAcksAreNotOurs(t *testing.T) {
	const component = 191
	arduFly(t, simReceiverIdle, func(f *ardu) {
		f.hover()
		// Its commands come over another line, its heartbeats and acks over ours too.
		say := func() {
			f.sim.emit(1, component, &common.MessageHeartbeat{Type: common.MAV_TYPE_ONBOARD_CONTROLLER, Autopilot: common.MAV_AUTOPILOT_INVALID})
			f.sim.emit(1, 1, &common.MessageCommandAck{Command: common.MAV_CMD_DO_SET_MODE, TargetSystem: 1, TargetComponent: component})
			f.sim.emit(1, 1, &common.MessageCommandAck{Command: common.MAV_CMD_DO_REPOSITION, TargetSystem: 1, TargetComponent: component})
		}
		say()
		time.Sleep(10 * time.Millisecond)
		f.ignores()
		for _, c := range []struct{ path, body string }{{"/mode", `{"mode":"rtl"}`}, {"/goto", "{" + at(30, 0) + "}"}} {
			var client sync.WaitGroup
			client.Go(func() { f.refused(c.path, c.body, 504, "no_ack") })
			for range 20 {
				time.Sleep(50 * time.Millisecond)
				say()
			}
			client.Wait()
		}
		f.sim.change(func() { f.sim.idle, f.sim.onAck = false, nil })
		f.accepted("/mode", `{"mode":"rtl"}`)
		f.wantMode("rtl")
		if texts := fmt.Sprint(f.status()["messages"]); strings.Contains(texts, "MAVLink ids") {
			t.Errorf("told: %v", texts)
		}
	})
}

// Commands without an answer excuse no RTL of a pilot, though the first of them
// began in one.
func TestPilotsRTLIsHisAfterCommandsWithoutAnAnswer(t *testing.T) {
	arduFly(t, simReceiverIdle, func(f *ardu) {
		f.hover()
		f.accepted("/mode", `{"mode":"rtl"}`)
		time.Sleep(time.Second)
		f.sim.change(func() {
			f.sim.onAck = func(a *common.MessageCommandAck) []simAnswer {
				if a.Command == common.MAV_CMD_DO_REPOSITION || a.Command == common.MAV_CMD_DO_SET_MODE {
					return nil
				}
				return []simAnswer{{ack: a}}
			}
		})
		var clients sync.WaitGroup
		clients.Go(func() { f.refused("/goto", "{"+at(30, 0)+"}", 409, "superseded") })
		time.Sleep(300 * time.Millisecond)
		f.accepted("/land", "")
		f.wantMode("land")
		clients.Go(func() { f.refused("/mode", `{"mode":"altitude"}`, 409, "interrupted") })
		time.Sleep(200 * time.Millisecond) // its sticks are not led yet
		f.sim.pilotMode(6)
		time.Sleep(2 * arduShows)
		f.wantMode("rtl")
		clients.Wait()
	})
}

// A failsafe that still stands when a command is accepted was there before it, and
// does not end it.
func TestGotoInAStandingFailsafeGoesOn(t *testing.T) {
	arduFly(t, simReceiverIdle, func(f *ardu) {
		f.hover()
		f.sim.setReceiver(simReceiverLost)
		time.Sleep(2 * time.Second)
		f.wantMode("rtl")
		f.accepted("/goto", "{"+at(20, 0)+`,"wait":60}`)
		if o := f.status(); o["mode"] != "hold" || o["failsafe"] != true || o["done"] != true {
			f.Errorf("mode %v, failsafe %v, done %v", o["mode"], o["failsafe"], o["done"])
		}
		f.accepted("/land", "{"+at(0, 0)+`,"wait":120}`)
		f.wantMode("land")
	})
}

// Without a receiver ArduPilot arms only while sticks are streamed.
func TestCopterWithoutAReceiverTakesOffAgainAndAgain(t *testing.T) {
	arduFly(t, simReceiverNone, func(f *ardu) {
		for range 2 {
			f.accepted("/takeoff", `{"altitude":10,"wait":60}`)
			f.accepted("/land", `{"wait":120}`)
			time.Sleep(8 * time.Second)
		}
	})
}

// On the wing it circles 75 m round every place.
func TestAQuadPlaneOnTheWingHoldsAndArrives(t *testing.T) {
	fly(t, simQuadPlane, nil, func(f *flight) {
		f.accepted("/takeoff", `{"altitude":30,"wait":60}`)
		f.sim.pilotMode(5) // FBWA
		f.until("on the wing", time.Minute, func() bool { return f.status()["velocity"].(object)["ground_speed"].(float64) > 24 })
		time.Sleep(time.Second)
		f.waits("/mode", `{"mode":"hold","wait":5}`).want(t, 200, "")
		f.waits("/goto", waitFor(at(600, 0)+`,"altitude":30`, 120)).want(t, 200, "")
		s := f.sim.truth()
		if n, e := simMetres(s.lat, s.lon); math.Hypot(n-600, e) > 1.5*simWingRadius+1 {
			t.Errorf("done %.0f m from the place", math.Hypot(n-600, e))
		}
	})
}

// It rolls in the air, as it believes, and circles ever after.
func TestAFixedWingTakesOffHoldsArrivesAndReturns(t *testing.T) {
	fly(t, simPlane, nil, func(f *flight) {
		f.waits("/takeoff", `{"wait":100}`).want(t, 200, "")
		if up := f.sim.truth().alt; up < 44 {
			t.Errorf("the takeoff is done at %.1f m", up)
		}
		w := f.waits("/mode", `{"mode":"hold","wait":5}`)
		w.want(t, 200, "")
		if took := w.answered.Sub(w.asked); took > time.Second {
			t.Errorf("the hold took %v", took)
		}
		near := func(what string, north float64) {
			s := f.sim.truth()
			n, e := simMetres(s.lat, s.lon)
			if away := math.Hypot(n-north, e); away > 1.5*simWingRadius+1 {
				t.Errorf("%s is done %.0f m away", what, away)
			}
		}
		f.waits("/goto", waitFor(at(900, 0)+`,"altitude":60`, 200)).want(t, 200, "")
		near("the goto", 900)
		f.waits("/mode", `{"mode":"rtl","wait":200}`).want(t, 200, "")
		near("the return", 0)
	})
}

func TestSticksComeFromTheSystemThatArduPilotListensTo(t *testing.T) {
	fly(t, simArduPilot, func(s *simulator) { delete(s.params, "SYSID_MYGCS"); s.params["MAV_GCS_SYSID"] = 42 }, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":1,"timeout":5}`)
		time.Sleep(5 * time.Second)
		if n, _ := simMetres(f.sim.truth().lat, f.sim.truth().lon); n < 5 {
			f.Errorf("the sticks did not fly it: %.1f m", n)
		}
		for _, r := range f.sim.received() {
			_, sticks := r.msg.(*common.MessageManualControl)
			if sticks != (r.system == 42) || r.component != componentID {
				f.Fatalf("%T came from %d/%d", r.msg, r.system, r.component)
			}
		}
	})
}

func TestHoldDoesNotFlyBackToAnOldPosition(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(200, 0)+"}")
		time.Sleep(3 * time.Second)
		f.sim.change(func() {
			f.sim.streaming = slices.DeleteFunc(f.sim.streaming, func(s *simStream) bool { return s.id == 33 })
		})
		time.Sleep(4 * time.Second)
		sent := len(f.commands())
		f.accepted("/mode", `{"mode":"hold"}`)
		if got, want := f.commands()[sent:], []string{"176 1 17", "176 1 4"}; !slices.Equal(got, want) {
			f.Errorf("sent %q, want %q", got, want)
		}
	})
}

func TestRefusedTurnKeepsTheGotoThatNobodyAskedToTurn(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.failAcks(common.MAV_CMD_CONDITION_YAW)
		f.accepted("/goto", "{"+at(30, 0)+"}")
		time.Sleep(15 * time.Second)
		f.wantAt(30, 0, 10, 0.5)
	})
}

// A takeoff that nobody acknowledged may have happened: what refuses to be
// disarmed flies, and is not put back into the mode it stood in.
func TestVehicleThatMayFlyKeepsItsMode(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		flies := false
		f.sim.change(func() {
			f.sim.onAck = func(a *common.MessageCommandAck) []simAnswer {
				switch {
				case a.Command == common.MAV_CMD_NAV_TAKEOFF:
					flies = true
					return nil
				case a.Command == common.MAV_CMD_COMPONENT_ARM_DISARM && flies:
					a.Result = common.MAV_RESULT_FAILED
				}
				return []simAnswer{{ack: a}}
			}
		})
		f.refused("/takeoff", "", 504, "no_ack")
		sent := f.commands()
		if last := sent[len(sent)-1]; last != "400 0 0" {
			f.Errorf("sent %q; the last should be the disarming", sent)
		}
		if mode := f.sim.truth().mode; mode != entered[copter][ModeTakeoff] {
			f.Errorf("the vehicle is in mode %d", mode)
		}
	})
}

// In manual mode the throttle carries the vehicle.
func TestRefusedCommandLeavesTheThrottleOfManualMode(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"manual"}`)
		f.accepted("/input", `{"throttle":0.7,"timeout":5}`)
		began := time.Now()
		defer f.fails(common.MAV_CMD_DO_REPOSITION)()
		f.refused("/goto", "{"+at(60, 0)+"}", 409, "refused")
		f.wantMode("manual")
		time.Sleep(time.Second)
		sticks := f.sticksSince(began.Add(time.Millisecond))
		if len(sticks) < 25 {
			f.Errorf("%d sticks in %v", len(sticks), time.Since(began))
		}
		for _, s := range sticks {
			if m := s.msg.(*common.MessageManualControl); m.Z != 700 {
				f.Fatalf("throttle %d, %v after the command", m.Z, s.at.Sub(began))
			}
		}
	})
}

// An arming that waits for its ack does not keep the link from seeing that the
// pilot left the stick modes.
func TestPilotsSwitchTakesTheSticksAlsoWhileAnArmingWaits(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":1,"timeout":5}`)
		f.loseAcks(common.MAV_CMD_COMPONENT_ARM_DISARM)
		var arming sync.WaitGroup
		arming.Go(func() { f.refused("/mode", `{"arm":true}`, 409, "interrupted") })
		time.Sleep(100 * time.Millisecond)
		f.sim.pilotMode(entered[copter][ModeRTL])
		time.Sleep(1100 * time.Millisecond)
		f.wantMode("rtl")
		seen := time.Now()
		time.Sleep(500 * time.Millisecond)
		for _, r := range f.sticksSince(seen) {
			if m := r.msg.(*common.MessageManualControl); m.X != 0 || m.Z != 500 {
				f.Errorf("sticks after the pilot took them: %+v", m)
			}
		}
		arming.Wait()
	})
}

// silentHoldIsRefused flies a copter whose client fell silent, to 60 ms after the
// refusal of the hold that mavrest asked for.
func silentHoldIsRefused(f *flight) {
	f.aloft()
	f.accepted("/mode", `{"mode":"altitude"}`)
	f.accepted("/input", `{"pitch":0.3}`)
	f.sim.change(func() { f.sim.refusesModes = []uint32{4, copterBrake} })
	time.Sleep(2 * time.Second)
	f.until("the hold was sent", 10*time.Second, func() bool {
		return len(f.commandsSince(time.Now().Add(-50*time.Millisecond))) > 0
	})
	time.Sleep(60 * time.Millisecond)
}

func TestARefusedHoldForASilentClientBecomesALanding(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		silentHoldIsRefused(f)
		time.Sleep(500 * time.Millisecond)
		f.wantMode("land")
		f.wantTruth()
	})
}

func TestARefusedHoldForASilentClientIsNoLandingOverAPilot(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		silentHoldIsRefused(f)
		f.sim.pilotMode(16) // POSHOLD
		f.sim.change(func() { f.sim.send(f.sim.brain.message(0)) })
		taken := f.reported(16, time.Now().Add(-time.Millisecond), 200*time.Millisecond)
		f.wantMode("position")
		time.Sleep(10 * time.Second)
		f.wantHandsOff(taken)
	})
}

func TestARefusedHoldForASilentClientIsNoLandingOverANewCommand(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		silentHoldIsRefused(f)
		f.accepted("/goto", "{"+at(60, 0)+"}")
		time.Sleep(time.Millisecond) // the goto's own heading
		since := time.Now()
		time.Sleep(5 * time.Second)
		f.wantHandsOff(since)
		f.wantMode("hold")
	})
}

func TestAHoldForASilentClientIsNotSentOverAPilotWhoWasFirst(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3}`)
		time.Sleep(2500 * time.Millisecond)
		d := f.link
		f.sim.pilotMode(16)
		d.mu.Lock()
		since := time.Now()
		d.sticks.tick(d.facts(since.Add(time.Second))) // as drone.tick does, half a second early
		owed := d.act().hold && d.cmd.idle()
		d.wg.Go(d.holdForSilent)
		// The reader has the mutex before that goroutine.
		d.take(&minimal.MessageHeartbeat{
			Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA,
			BaseMode: 0xd9, CustomMode: 16, SystemStatus: minimal.MAV_STATE_ACTIVE,
		}, since)
		taken := d.sticks.taken()
		d.mu.Unlock()
		if !owed || !taken {
			t.Fatalf("the hold is owed: %v, the pilot has the sticks: %v", owed, taken)
		}
		time.Sleep(5 * time.Second)
		f.wantHandsOff(since)
	})
}

func TestTheFarewellIsNotRepeatedOverAPilot(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
		time.Sleep(time.Second)
		f.loseAcks(common.MAV_CMD_DO_SET_MODE)
		f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true }) // the first copy is lost
		stopping := time.Now()
		f.stop()
		time.Sleep(80 * time.Millisecond)
		if len(f.commandsSince(stopping)) == 0 {
			t.Fatal("no farewell was sent")
		}
		f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = false })
		f.sim.pilotMode(16)
		f.sim.change(func() { f.sim.send(f.sim.brain.message(0)) })
		since := time.Now()
		time.Sleep(3 * time.Second)
		f.wantHandsOff(since)
	})
}

func TestTheFarewellIsNotSentOverAPilotWhomNoHeartbeatHasTold(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
		time.Sleep(time.Second)
		since := time.Now()
		f.sim.pilotMode(16)
		f.stop()
		time.Sleep(3 * time.Second)
		f.wantHandsOff(since)
	})
}

// A takeoff that was disarmed has ended: GET mode says what the vehicle is in.
func TestCopterThatWasDisarmedBeforeItsClimbIsInHold(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.accepted("/takeoff", "")
		f.wantMode("takeoff")
		f.accepted("/mode", `{"arm":false}`)
		f.wantMode("hold")
		if o := f.accepted("/mode", `{"arm":true}`); o["mode"] != "hold" {
			f.Errorf("armed: %v", o)
		}
		time.Sleep(8 * time.Second)
		if s := f.sim.truth(); s.alt > 0.5 {
			f.Errorf("it climbed to %v m", s.alt)
		}
	})
}

// A goto that is refused has ended what was under way: the answer says so.
func TestCopterThatRefusesAGotoIsToldWhatItEnded(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/land", "{"+at(60, 0)+"}")
		o := f.refused("/goto", `{"lat":0,"lon":0}`, 409, "refused")
		if !strings.Contains(o["error"].(string), "; the land before it has ended; the vehicle is in GUIDED, armed") {
			f.Errorf("%v", o)
		}
	})
}
