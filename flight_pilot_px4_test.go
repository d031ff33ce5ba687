package main

import (
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// px4Stick brings the flight into a stick mode, with the client's sticks over
// and standing for a while, so that PX4 does not call them moving.
func px4Stick(mode, input string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.aloft()
		p.accepted("/mode", `{"mode":"`+mode+`"}`)
		if input != "" {
			p.accepted("/input", input)
		}
		time.Sleep(then)
	}
}

// px4Holds takes off and holds.
func (p *pilotFlight) px4Holds() {
	p.Helper()
	p.aloft()
	p.accepted("/mode", `{"mode":"hold"}`)
	time.Sleep(time.Second)
}

// px4Entering brings the flight to a while after a stick mode was asked for.
func px4Entering(mode string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.px4Holds()
		p.post("/mode", `{"mode":"`+mode+`"}`)
		time.Sleep(then)
	}
}

// px4Entered brings the flight to 4 ms after the second ack of a stick mode,
// which is not in force yet.
func px4Entered(mode string) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.px4Holds()
		p.acked(common.MAV_CMD_DO_SET_MODE, 2, func() { p.post("/mode", `{"mode":"`+mode+`"}`) }, 4*time.Millisecond)
	}
}

// px4UnderWay brings the flight to a while into a manoeuvre that was accepted,
// and whose end the client waits for.
func px4UnderWay(path, body string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		if path != "/takeoff" {
			p.aloft()
		}
		p.post(path, body)
		time.Sleep(then)
	}
}

// px4Leaving brings the flight to a while after a command that leads out of a
// stick mode with moved sticks.
func px4Leaving(mode, path, body string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.aloft()
		p.accepted("/mode", `{"mode":"`+mode+`"}`)
		p.accepted("/input", `{"pitch":0.5,"throttle":0.5,"timeout":5}`)
		time.Sleep(500 * time.Millisecond)
		p.post(path, body)
		time.Sleep(then)
	}
}

var px4Moments = []moment{
	{
		name: "takeoff, before it is armed", mode: "takeoff", waiting: true, disarmed: true,
		bring: func(p *pilotFlight) {
			p.acked(common.MAV_CMD_NAV_TAKEOFF, 1, func() { p.post("/takeoff", "") }, 3*time.Millisecond)
		},
		explained: []uint32{simPX4Takeoff, simPX4Loiter},
	},
	{
		name: "takeoff, armed and on the ground", mode: "takeoff",
		bring: func(p *pilotFlight) {
			p.acked(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, func() { p.post("/takeoff", `{"wait":60}`) }, 500*time.Millisecond)
		},
		explained: []uint32{simPX4Takeoff},
	},
	{
		name: "climb", mode: "takeoff",
		bring:     px4UnderWay("/takeoff", `{"altitude":40,"wait":120}`, 10*time.Second),
		explained: []uint32{simPX4Takeoff},
	},
	{
		name: "goto under way", mode: "hold",
		bring:     px4UnderWay("/goto", "{"+at(60, 0)+`,"wait":120}`, 4*time.Second),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "goto, between its ack and its mode", mode: "hold", waiting: true, acked: true,
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/mode", `{"mode":"rtl"}`)
			time.Sleep(time.Second)
			p.acked(common.MAV_CMD_DO_REPOSITION, 1, func() { p.post("/goto", "{"+at(60, 0)+"}") }, 4*time.Millisecond)
		},
		explained: []uint32{simPX4Loiter, simPX4RTL},
	},
	{
		name: "hold", mode: "hold",
		bring:     func(p *pilotFlight) { p.px4Holds() },
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "hold from speed", mode: "hold",
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/goto", "{"+at(200, 0)+"}")
			time.Sleep(5 * time.Second)
			p.post("/mode", `{"mode":"hold","wait":60}`)
			time.Sleep(500 * time.Millisecond)
		},
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "land here", mode: "land",
		bring:     px4UnderWay("/land", `{"wait":120}`, 4*time.Second),
		explained: []uint32{simPX4Land},
	},
	{
		name: "land at a place, on the way", mode: "land",
		bring:     px4UnderWay("/land", "{"+at(60, 0)+`,"wait":200}`, 4*time.Second),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "land at a place, at the place", mode: "land",
		bring: func(p *pilotFlight) { // 0.1 s before the second leg may begin
			p.aloft()
			p.post("/land", "{"+at(30, 0)+`,"wait":200}`)
			p.until("at the place", time.Minute, func() bool {
				n, _ := simMetres(p.sim.truth().lat, p.sim.truth().lon)
				return n > 27.95 && p.speed() < 2.5
			})
		},
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "land at a place, landing", mode: "land",
		bring: func(p *pilotFlight) {
			p.aloft()
			p.acked(common.MAV_CMD_NAV_LAND, 1, func() { p.post("/land", "{"+at(10, 0)+`,"wait":200}`) }, time.Second)
		},
		explained: []uint32{simPX4Land},
	},
	{
		name: "rtl", mode: "rtl",
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/goto", "{"+at(60, 0)+`,"wait":60}`)
			p.post("/mode", `{"mode":"rtl","wait":200}`)
			time.Sleep(4 * time.Second)
		},
		explained: []uint32{simPX4RTL},
	},
	{
		name: "position, in its lead", mode: "position", waiting: true,
		bring:     px4Entering("position", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "altitude, in its lead", mode: "altitude", waiting: true,
		bring:     px4Entering("altitude", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "manual, in its lead", mode: "manual", waiting: true,
		bring:     px4Entering("manual", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "position, between its ack and its mode", mode: "position", waiting: true, acked: true, bring: px4Entered("position"),
		explained: []uint32{simPX4Posctl, simPX4Loiter},
	},
	{
		name: "altitude, between its ack and its mode", mode: "altitude", waiting: true, acked: true, bring: px4Entered("altitude"),
		explained: []uint32{simPX4Altctl, simPX4Loiter},
	},
	{
		name: "manual, between its ack and its mode", mode: "manual", waiting: true, acked: true, bring: px4Entered("manual"),
		explained: []uint32{simPX4Manual, simPX4Loiter},
	},
	{
		name: "position, its sticks over", mode: "position",
		bring:     px4Stick("position", `{"pitch":0.5,"timeout":5}`, 2500*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "altitude, its sticks over", mode: "altitude",
		bring:     px4Stick("altitude", `{"pitch":0.3,"throttle":0.6,"timeout":5}`, 2500*time.Millisecond),
		explained: []uint32{simPX4Altctl},
	},
	{
		name: "manual, its sticks over", mode: "manual",
		bring:     px4Stick("manual", `{"pitch":0.3,"throttle":0.55,"timeout":5}`, 2500*time.Millisecond),
		explained: []uint32{simPX4Manual},
	},
	{
		name: "position, centred", mode: "position", bring: px4Stick("position", "", 4*time.Second),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "altitude, its sticks expired", mode: "altitude",
		bring:     px4Stick("altitude", `{"pitch":0.3,"timeout":0.5}`, 3*time.Second),
		explained: []uint32{simPX4Altctl},
	},
	{
		name: "goto after position, sticks standing", mode: "hold", waiting: true,
		bring:     px4Leaving("position", "/goto", "{"+at(60, 0)+"}", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "land after position, sticks standing", mode: "land", waiting: true,
		bring:     px4Leaving("position", "/land", "", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "goto after altitude, in the POSCTL leg", mode: "hold", waiting: true,
		bring:     px4Leaving("altitude", "/goto", "{"+at(60, 0)+"}", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl, simPX4Altctl},
	},
	{
		name: "hold after manual, before POSCTL is in force", mode: "hold", waiting: true,
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/mode", `{"mode":"manual"}`)
			p.accepted("/input", `{"pitch":0.3,"throttle":0.5,"timeout":5}`)
			time.Sleep(500 * time.Millisecond)
			p.acked(common.MAV_CMD_DO_SET_MODE, 2, func() { p.post("/mode", `{"mode":"hold"}`) }, 4*time.Millisecond)
		},
		explained: []uint32{simPX4Posctl, simPX4Manual},
		without:   []uint32{simPX4Loiter, simPX4RTL, simPX4Land}, // the sticks that moved just now undo them
	},
	{
		name: "a silent client's hold, in the POSCTL leg", mode: "hold", silent: true,
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/mode", `{"mode":"altitude"}`)
			p.accepted("/input", `{"pitch":0.3,"timeout":5}`)
			p.until("leaving altitude", 10*time.Second, func() bool { return p.sim.truth().mode == simPX4Posctl })
			time.Sleep(1700 * time.Millisecond)
		},
		explained: []uint32{simPX4Posctl, simPX4Altctl},
	},
}

var px4PilotModes = []uint32{
	simPX4Manual, simPX4Altctl, simPX4Posctl, simPX4Loiter, simPX4RTL, simPX4Land, simPX4Stabilized,
}

// px4Except are the moments but those that a test leaves out.
func px4Except(out func(m moment) bool) []moment {
	return slices.DeleteFunc(slices.Clone(px4Moments), out)
}

// px4Taken is what must and must not follow when somebody takes the drone into a
// mode, before a client asks for anything again.
func (p *pilotFlight) px4Taken(custom uint32, m moment, take func()) {
	p.Helper()
	before, streaming := p.streamed()
	taken := time.Now()
	take()
	at := p.reported(custom, taken, 1100*time.Millisecond)
	p.wantTruth()
	soon := time.Millisecond
	switch {
	case m.disarmed: // it waits for the mode of its first step
		soon = stepShows + 100*time.Millisecond
	case custom == simPX4RTL && m.mode == "rtl": // only a look at the manoeuvre tells
		soon = watchEvery + time.Millisecond
	}
	p.wantAnswer(soon, "interrupted")
	p.wantNoInput()
	if done := p.status()["done"]; done != nil {
		p.Errorf("done is %v", done)
	}
	time.Sleep(12 * time.Second)
	p.wantHandsOff(at)
	p.wantTruth()
	if !streaming {
		p.wantStream(at.Add(time.Millisecond), nil)
		return
	}
	want := before
	if mode, _ := px4.reported(custom); mode == ModeManual {
		want = axes{z: before.z}
	} else if mode.flownBySticks() {
		want = axes{z: 500}
	}
	p.wantStream(at.Add(time.Millisecond), &want)
}

func TestPX4PilotsSwitchTakesTheDroneAtEveryMoment(t *testing.T) {
	for _, custom := range px4PilotModes {
		_, name := px4.reported(custom)
		t.Run(name, func(t *testing.T) {
			moments := px4Except(func(m moment) bool {
				return slices.Contains(m.explained, custom) || slices.Contains(m.without, custom)
			})
			atMoments(t, simPX4, moments, nil, func(p *pilotFlight, m moment) {
				p.px4Taken(custom, m, func() { p.sim.pilotMode(custom) })
			})
		})
	}
}

// A pilot who sets what is commanded anyway, or what it was before, can't be
// told from the command: it goes on.
func TestPX4PilotsSwitchToTheCommandedModeEndsNothing(t *testing.T) {
	for _, custom := range px4PilotModes {
		_, name := px4.reported(custom)
		t.Run(name, func(t *testing.T) {
			moments := px4Except(func(m moment) bool { return !slices.Contains(m.explained, custom) })
			atMoments(t, simPX4, moments, nil, func(p *pilotFlight, m moment) {
				p.sim.pilotMode(custom)
				p.wantAnswer(5*time.Minute, "")
				mode, _ := parseMode(m.mode)
				if mode.flownBySticks() && custom == entered[px4][mode] {
					time.Sleep(1100 * time.Millisecond) // and in a while comes a silent client's hold
					p.wantMode(m.mode)
					return
				}
				time.Sleep(followTime + 2*time.Second) // the autopilot does not follow what the pilot undid
				if m.waiting && p.sim.truth().mode == custom {
					p.wantTruth()
				} else {
					p.wantMode(m.mode)
				}
			})
		})
	}
}

func TestPX4FailsafeTakesTheDroneAtEveryMoment(t *testing.T) {
	moments := px4Except(func(m moment) bool {
		return m.disarmed || slices.Contains(m.without, simPX4RTL) || m.waiting && slices.Contains(m.explained, simPX4RTL)
	})
	atMoments(t, simPX4, moments, nil, func(p *pilotFlight, m moment) {
		p.px4Taken(simPX4RTL, m, p.sim.failsafeReturn)
		if o := p.status(); o["failsafe"] != o["armed"] {
			p.Errorf("failsafe is %v", o["failsafe"])
		}
	})
}

// After a restart in flight nothing that was commanded before stands.
func TestPX4RestartEndsEverythingAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Moments, nil, func(p *pilotFlight, m moment) {
		p.sim.reboot(true)
		time.Sleep(200 * time.Millisecond)
		at := time.Now()
		p.wantAnswer(stepShows, "interrupted")
		if m.disarmed {
			p.wantMode("manual")
		} else {
			p.wantTruth()
			p.wantNoInput()
		}
		time.Sleep(12 * time.Second)
		p.wantHandsOff(at)
		p.wantStream(at, nil)
	})
}

// The pilot moves his transmitter's sticks in a mode without sticks: PX4 gives
// him POSCTL.
func TestPX4TransmittersSticksTakeTheDroneAtEveryMoment(t *testing.T) {
	hand := func(s *simulator) {
		s.params[simStickSource] = 5
		s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0}
	}
	moments := px4Except(func(m moment) bool {
		mode, _ := parseMode(m.mode)
		return m.waiting || mode.flownBySticks() || m.silent
	})
	atMoments(t, simPX4, moments, hand, func(p *pilotFlight, m moment) {
		p.px4Taken(simPX4Posctl, m, func() { p.sim.pilotSticks(600, 0, 500, 0) })
	})
}

// Arming, and what the autopilot refuses, ends no manoeuvre; of what still waits
// it takes the place.
func TestPX4SecondClientEndsOnlyWhatWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		order func(p *pilotFlight)
	}{
		{"arming", func(p *pilotFlight) { p.accepted("/mode", `{"arm":true}`) }},
		{"refused disarming", func(p *pilotFlight) { p.refused("/mode", `{"arm":false}`, 409, "refused") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			moments := px4Except(func(m moment) bool {
				return m.disarmed || m.name == "takeoff, armed and on the ground" || // it is not refused there
					m.name == "goto, between its ack and its mode" // it is over before the arming has its turn
			})
			atMoments(t, simPX4, moments, nil, func(p *pilotFlight, m moment) {
				c.order(p)
				switch {
				case m.waiting:
					p.wantAnswer(time.Second, "superseded")
					time.Sleep(7 * time.Second)
					p.wantTruth()
				case m.silent: // the POSCTL that its hold led through is one
					time.Sleep(7 * time.Second)
					p.wantMode("position")
				default:
					p.wantMode(m.mode)
					p.wantAnswer(5*time.Minute, "")
					p.wantMode(m.mode)
				}
			})
		})
	}
}

// The vehicle is not heard for 5 s. What it does goes on, and what waited is not
// sent blindly, but for a landing.
func TestPX4LostLinkAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Moments, nil, func(p *pilotFlight, m moment) {
		began := time.Now()
		p.sim.change(func() { p.sim.muted = true })
		time.Sleep(5 * time.Second)
		if p.status()["online"] != false {
			p.Error("still online")
		}
		p.sim.change(func() { p.sim.muted = false })
		blind := p.commandsSince(began)
		back := time.Now()
		time.Sleep(1100 * time.Millisecond)
		switch {
		case m.acked:
			p.wantAnswer(time.Millisecond, "")
			p.wantMode(m.mode)
		case m.waiting && m.mode == "land":
			p.wantAnswer(time.Millisecond, "no_ack")
			if len(blind) == 0 {
				p.Error("the landing was not sent")
			}
			blind = nil
			p.wantTruth()
		case m.waiting:
			p.wantAnswer(time.Millisecond, "no_ack")
			if p.sim.truth().armed { // else the first report changes nothing (docs/design.md, rule 2)
				p.wantTruth()
			}
		case m.silent:
			p.wantMode("position")
		default:
			p.wantAnswer(time.Millisecond, "offline")
			p.wantMode(m.mode)
		}
		if len(blind) > 0 {
			p.Errorf("sent to a vehicle that is not heard: %q", blind)
		}
		if list := p.commandsSince(back); len(list) > 0 && m.name != "land at a place, at the place" {
			p.Errorf("sent when it is back: %q", list)
		}
	})
}
