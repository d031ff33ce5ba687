package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// In whole flights of ArduPilot a pilot, a failsafe or the line interferes, in every manoeuvre
// and with every receiver (docs/design.md, "Who has the sticks"). flight_test.go explains the words.

// arduPilotsModes are the Copter modes that a pilot's switch sets in these tests: STABILIZE,
// ALT_HOLD, LOITER, POSHOLD, GUIDED, BRAKE, RTL and LAND.
var arduPilotsModes = []uint32{simArduStabilize, 2, simLoiter, 16, simArduGuided, copterBrake, simArduRTL, simArduLand}

// arduShows is the time after which the simulator's heartbeat shows a new mode.
const arduShows = 100 * time.Microsecond

// flyCopter flies a Copter whose receiver is in this state.
func flyCopter(t *testing.T, receiver simReceiver, do func(*flight)) {
	t.Helper()
	fly(t, simArduPilot, func(s *simulator) { s.receiver = receiver }, do)
}

// rise takes off. A Copter without a receiver arms with our stream. A pilot with a transmitter
// in hand opens the throttle after the takeoff.
func (f *flight) rise(altitude float64) {
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

func (f *flight) hover() {
	f.Helper()
	f.rise(20)
	time.Sleep(20 * time.Second)
	f.wantAt(0, 0, 20, 0.5)
}

// sent lists the commands and the sticks that the vehicle has received since a time.
func (f *flight) sent(since time.Time) (commands []string, sticks []axes) {
	list := f.since(since)
	return commandsOf(list), sticksOf(list)
}

// copterVisits returns a Copter's moments with each of these receivers; without -all only half of them.
func copterVisits(t *testing.T, receivers ...simReceiver) (visits []visit) {
	for _, m := range moments {
		for _, receiver := range receivers {
			if m.copter != "" {
				visits = append(visits, visit{moment: m, receiver: receiver})
			}
		}
	}
	return sampled(t, visits, len(visits)/2,
		func(v visit) any { return v.name },
		func(v visit) any { return [2]any{v.sticks(), v.receiver} },
	)
}

// With -all every moment is flown with every mode twice: with no receiver, and with one in hand. A lost
// receiver looks like none, so fewer modes are flown with it. An idle one looks like one in hand while no
// stream of ours can run: at such moments fewer modes are flown with it, else every mode.
func TestACopterObeysThePilotFromHisSwitchOn(t *testing.T) {
	var cases []visit
	for _, m := range moments {
		for _, receiver := range []simReceiver{simReceiverNone, simReceiverLost, simReceiverIdle, simReceiverInHand} {
			modes := arduPilotsModes
			switch {
			case m.copter == "":
				modes = nil
			case receiver == simReceiverLost: // looks like no receiver
				modes = []uint32{simLoiter}
			case receiver == simReceiverIdle && !m.sticks(): // looks like one in hand: no stream of ours can run
				modes = []uint32{simLoiter, copterBrake}
			}
			for _, custom := range modes {
				cases = append(cases, visit{m, receiver, custom})
			}
		}
	}
	some := sampled(t, cases, 0,
		func(v visit) any { return [2]any{v.name, v.receiver} },
		func(v visit) any { return [2]any{v.receiver, v.custom} },
		func(v visit) any { return [2]any{v.sticks(), v.custom} },
	)
	atMoments(t, simArduPilot, some, nil, func(p *player, v visit) { p.pilotSwitches(v.custom) })
}

// pilotSwitches sets a mode as a pilot's switch does, and checks what follows.
func (f *flight) pilotSwitches(custom uint32) {
	f.Helper()
	before, was := f.sim.truth(), f.status()
	_, streamed := f.sent(time.Now().Add(-200 * time.Millisecond))
	began := time.Now()
	f.sim.pilotMode(custom)
	mode, name := copter.reported(custom)
	if before.mode == custom { // no report shows the switch: nothing changes
		time.Sleep(500 * time.Millisecond)
		f.wantMode(was["mode"].(string))
		if sent, _ := f.sent(began); len(sent) > 0 {
			f.Errorf("sent %q", sent)
		}
		return
	}
	time.Sleep(2 * arduShows)
	if _, o := f.call("GET", "/mode", ""); o["mode"] != mode.String() || o["vehicle_mode"] != name {
		f.Errorf("after the report of %s the mode is %v", name, o)
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
	f.wantStreamAfterSwitch(streamed, sticks, custom)
	if mode.flownBySticks() {
		f.refused("/input", `{"pitch":1,"throttle":0.5}`, 409, "wrong_mode")
	}
}

// wantStreamAfterSwitch checks the sticks after a pilot's switch, by the sticks before it.
func (f *flight) wantStreamAfterSwitch(before, after []axes, custom uint32) {
	f.Helper()
	switch {
	case len(before) == 0:
		if len(after) > 0 {
			f.Errorf("%d sticks, the first %+v, though the vehicle needs none", len(after), after[0])
		}
		return
	case f.receiver == simReceiverInHand:
		releases := min(3, len(after)) // the first three free the receiver's sticks
		if !slices.Equal(after[:releases], []axes{released, released, released}) {
			f.Fatalf("the sticks are not released: %+v", slices.Compact(after))
		}
		if len(after) > releases {
			f.Errorf("%d sticks after the release", len(after)-releases)
		}
		return
	case f.receiver == simReceiverIdle:
		f.wantMessages("moving any switch of the transmitter frees its sticks", 1)
	}
	if n := len(after); n < 19*25 {
		f.Errorf("%d sticks in 20 s: the vehicle would fall", n)
	}
	last := before[len(before)-1].z
	for _, a := range after {
		keepsThrottle := custom == simArduStabilize && a == axes{z: last}
		if a != (axes{z: 500}) && !keepsThrottle {
			f.Fatalf("the sticks after a pilot's switch are %+v", a)
		}
	}
}

// streams reports whether sticks came in the last 0.2 s.
func (f *flight) streams() bool {
	_, sticks := f.sent(time.Now().Add(-200 * time.Millisecond))
	return len(sticks) > 0
}

func TestACopterObeysItsFailsafeInEveryManoeuvre(t *testing.T) {
	atMoments(t, simArduPilot, copterVisits(t, simReceiverNone, simReceiverIdle, simReceiverInHand), nil,
		func(f *player, _ visit) {
			_, streamed := f.sent(time.Now().Add(-200 * time.Millisecond))
			began := time.Now()
			f.sim.failsafeReturn()
			// if the mode was RTL already, only the next heartbeat shows the failsafe
			time.Sleep(1300 * time.Millisecond)
			if o := f.status(); o["mode"] != "rtl" || o["failsafe"] != true || o["done"] != nil {
				f.Errorf("mode %v, failsafe %v, done %v", o["mode"], o["failsafe"], o["done"])
			}
			time.Sleep(19 * time.Second)
			f.wantMode("rtl")
			sent, sticks := f.sent(began.Add(arduShows))
			if len(sent) > 0 {
				f.Errorf("sent after the failsafe: %q", sent)
			}
			f.wantStreamAfterSwitch(streamed, sticks, simArduRTL)
		})
}

// The transmitter of a live receiver goes out of reach. ArduPilot's failsafe follows, unless our
// stream prevents it. mavrest sends nothing against the failsafe.
func TestACopterThatLosesItsReceiverObeysItsFailsafe(t *testing.T) {
	atMoments(t, simArduPilot, copterVisits(t, simReceiverIdle, simReceiverInHand), nil, func(f *player, v visit) {
		streamed := f.streams()
		began := time.Now()
		f.sim.setReceiver(simReceiverLost)
		time.Sleep(1500 * time.Millisecond)
		if v.name == "rtl" { // only the next heartbeat shows the failsafe
			time.Sleep(600 * time.Millisecond)
		}
		o := f.status()
		if failed := o["failsafe"] != false; failed == streamed || failed && o["mode"] != "rtl" {
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

func TestAfterACopterRestartsDisarmedTheModeIsManual(t *testing.T) {
	atMoments(t, simArduPilot, copterVisits(t, simReceiverNone, simReceiverIdle, simReceiverInHand), nil,
		func(f *player, _ visit) {
			f.sim.reboot(false)
			// its streams are gone, and requests for them show mavrest that it restarted
			time.Sleep(streamLost + time.Second)
			again := time.Now()
			for range 30 {
				time.Sleep(time.Second)
				if o := f.status(); o["mode"] != "manual" || o["armed"] != false || o["done"] != nil ||
					o["target"] != nil {
					f.Fatalf("mode %v, armed %v, done %v, target %v", o["mode"], o["armed"], o["done"], o["target"])
				}
			}
			if sent, sticks := f.sent(again); len(sent) > 0 || len(sticks) > 0 {
				f.Errorf("sent after the restart: %q, %d sticks", sent, len(sticks))
			}
		})
}

// A refused command changes no mode, and ends a stream only where a receiver is in hand. A goto still
// ends the way to a landing.
func TestARefusedCommandLeavesACopterAsItWas(t *testing.T) {
	atMoments(t, simArduPilot, copterVisits(t, simReceiverNone, simReceiverIdle, simReceiverInHand), nil,
		func(f *player, v visit) {
			was, before, streamed := f.status(), f.sim.truth(), f.streams()
			for _, id := range []common.MAV_CMD{common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_DO_REPOSITION} {
				defer f.fails(id)()
			}
			f.refused("/goto", "{"+at(0, 80)+"}", 409, "refused")
			if before.mode != simArduGuided { // in GUIDED a hold begins with BRAKE
				f.refused("/mode", `{"mode":"hold"}`, 409, "refused")
			}
			if before.mode != simArduLand {
				f.refused("/land", "", 409, "refused")
			}
			o := f.status()
			if v.name == "land at a place, on the way" {
				was["mode"] = "hold"
			}
			if o["mode"] != was["mode"] || o["vehicle_mode"] != was["vehicle_mode"] || o["done"] != nil {
				f.Errorf("mode %v, %v, done %v; before %v, %v", o["mode"], o["vehicle_mode"], o["done"], was["mode"],
					was["vehicle_mode"])
			}
			if inHand := f.receiver == simReceiverInHand; f.streams() != (streamed && !inHand) {
				f.Errorf("streams %v, before %v", f.streams(), streamed)
			}
		})
}

// For 5 s the vehicle can't be heard, or the line is unplugged. Meanwhile nothing is commanded.
// Then the vehicle's own mode shows: a vehicle that needed our stream flies home. A client that
// fell silent no longer gets a hold.
func TestACopterThatIsNotHeardForFiveSeconds(t *testing.T) {
	for name, cut := range map[string]func(f *flight) (end func()){
		"unplugged": func(f *flight) func() { f.sim.unplug(); return f.sim.plug },
		"muted": func(f *flight) func() {
			f.sim.change(func() { f.sim.muted = true })
			return func() { f.sim.change(func() { f.sim.muted = false }) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			atMoments(t, simArduPilot, copterVisits(t, simReceiverNone, simReceiverIdle, simReceiverInHand), nil,
				func(f *player, _ visit) {
					was, streamed := f.status()["mode"].(string), f.streams()
					lost := time.Now()
					end := cut(f.flight)
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
					if lostSticks := streamed && !f.receiver.live() && name == "unplugged"; lostSticks &&
						mode != ModeRTL {
						f.Errorf("no failsafe of lost sticks: %v", mode)
					}
					time.Sleep(silentClient + time.Second)
					if sent, _ := f.sent(back); len(sent) > 0 {
						f.Errorf("sent after the vehicle was heard again: %q", sent)
					}
					if inHand := f.receiver == simReceiverInHand; mode.flownBySticks() &&
						f.streams() != (streamed && !inHand) {
						f.Errorf("streams %v, before %v; %v", f.streams(), streamed, f.status()["messages"])
					}
				})
		})
	}
}

var joystickSticks = &common.MessageManualControl{Target: 1, Y: 300, Z: 500}

// joystick sends another program's sticks to the vehicle, for 5 s at 50 Hz. Each time the
// message `forwarded` comes over our line, as if the vehicle forwarded these sticks.
func (p *player) joystick(forwarded message.Message) {
	for range 250 {
		p.sim.change(func() { p.sim.brain.sticks(255, joystickSticks) })
		p.sim.emit(255, 190, forwarded)
		time.Sleep(20 * time.Millisecond)
	}
}

// circles checks that a fixed wing circles round a place north of home.
func (p *player) circles(north float64) {
	p.Helper()
	s := p.sim.truth()
	n, e := simMetres(s.lat, s.lon)
	if away := math.Hypot(n-north, e); away > 1.5*simWingRadius+1 {
		p.Errorf("it is %.0f m away", away)
	}
}

// quadHovers lifts a QuadPlane on its propellers, by the API's sticks.
const quadHovers = "mode position arm true, input throttle 1 timeout 5, +4s, input throttle 1 timeout 5, +4s, input " +
	"timeout 0.1, +3s, alt > 10, "

// ignores makes the vehicle neither carry out nor acknowledge our commands. It still answers
// requests for messages.
func (f *flight) ignores() {
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

// Ten clients send commands at full speed for 10 s.
func TestTenClientsAtFullSpeedBreakNothing(t *testing.T) {
	for seed := range uint64(4) {
		flyCopter(t, simReceiverIdle, func(f *flight) {
			f.hover()
			f.sim.change(func() { f.sim.delay = time.Duration(seed) * 3 * time.Millisecond })
			time.Sleep(time.Second)
			began := time.Now()
			var mu sync.Mutex
			var lastMode string // of the command that was accepted last
			acked := map[time.Time]bool{}
			f.sim.change(func() {
				f.sim.onAck = func(a *common.MessageCommandAck) []simAnswer {
					if a.Command == common.MAV_CMD_DO_SET_MODE || a.Command == common.MAV_CMD_DO_REPOSITION {
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
							lastMode = mode
							mu.Unlock()
						case code != 409 || o["code"] != "superseded":
							f.Errorf("%s: %d %v", body, code, o)
						}
						time.Sleep(time.Duration(dice.IntN(10)) * time.Millisecond)
					}
				})
			}
			clients.Wait()
			f.wantMode(lastMode)
			if mode, _ := copter.reported(f.sim.truth().mode); mode.String() != lastMode {
				f.Errorf("the vehicle is in %v, the last accepted command %s", mode, lastMode)
			}
			f.wantModeChangesApart(began, acked)
			if f.sim.brain.(*simArduBrain).broken || math.Abs(f.sim.truth().alt-20) > 8 {
				f.Errorf("an internal error: at %.1f m", f.sim.truth().alt)
			}
			landed := time.Now()
			f.accepted("/land", "")
			for _, r := range f.sim.received() {
				if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_SET_MODE &&
					m.Param2 == simArduLand && r.at.Sub(landed) > 150*time.Millisecond {
					f.Errorf("LAND was sent %v after the request", r.at.Sub(landed))
				}
			}
			f.until("landed", time.Minute, f.disarmed)
		})
	}
}

// wantModeChangesApart checks that few mode changes were sent since began, and each of them at least
// modeGap after mavrest received the ack of another. acked has the times at which the acks were sent.
func (f *flight) wantModeChangesApart(began time.Time, acked map[time.Time]bool) {
	f.Helper()
	var changes []time.Time
	for _, r := range f.sim.received() {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_SET_MODE &&
			r.at.After(began) {
			changes = append(changes, r.at)
		}
	}
	for _, at := range changes {
		for ack := range acked {
			if d := at.Sub(ack.Add(f.sim.delay)); d > 0 && d < modeGap {
				f.Errorf("a mode change was sent %v after the ack of the last one", d)
				return
			}
		}
	}
	if n := len(changes); n > int(10*time.Second/modeGap) {
		f.Errorf("%d mode changes in 10 s", n)
	}
}

// Another program, with MAVROS's ids, gets acks of its own commands. These acks answer none of
// ours.
func TestAnotherProgramsAcksAreNotOurs(t *testing.T) {
	const component = 191
	flyCopter(t, simReceiverIdle, func(f *flight) {
		f.hover()
		// The program's commands come over another line. Our line has its heartbeats and acks.
		say := func() {
			f.sim.emit(1, component, &common.MessageHeartbeat{Type: common.MAV_TYPE_ONBOARD_CONTROLLER,
				Autopilot: common.MAV_AUTOPILOT_INVALID})
			f.sim.emit(1, 1, &common.MessageCommandAck{Command: common.MAV_CMD_DO_SET_MODE, TargetSystem: 1,
				TargetComponent: component})
			f.sim.emit(1, 1, &common.MessageCommandAck{Command: common.MAV_CMD_DO_REPOSITION, TargetSystem: 1,
				TargetComponent: component})
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
			t.Errorf("a message warns of MAVLink ids: %v", texts)
		}
	})
}

func TestNoHoldForASilentClientIsSentWhereAPilotOrTheClientActedFirst(t *testing.T) {
	for name, first := range map[string]func(d *drone, now time.Time){
		"a pilot": func(d *drone, now time.Time) {
			d.hearMessage(beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 16, true), now)
		},
		"the client": func(d *drone, now time.Time) {
			d.sticks.input(d.situation(now), axes{z: 500}, netip.Addr{}, 5*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				(&player{flight: f}).plays("aloft, mode altitude, input pitch 0.3, +2500ms")
				d := f.drone
				d.mu.Lock()
				since := time.Now()
				d.sticks.client.spoke = since.Add(-silentClient) // half a second early
				d.sticks.tick(d.situation(since))                // as drone.tick does
				due := d.act().hold && d.cmd.idle()
				d.wg.Go(func() { d.changeMayWait(d.holdForSilent) })
				first(d, since) // has the mutex before that goroutine
				d.mu.Unlock()
				lineEqual(t, "the hold was due", due, true)
				time.Sleep(3 * time.Second)
				f.wantHandsOff(since)
			})
		})
	}
}
