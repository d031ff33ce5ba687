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

// px4Entering brings the flight to a while after a stick mode was asked for.
func px4Entering(mode string, then time.Duration) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.aloft()
		p.post("/mode", `{"mode":"`+mode+`"}`)
		time.Sleep(then)
	}
}

// px4Entered brings the flight to 4 ms after the second ack of a stick mode,
// which is not in force yet.
func px4Entered(mode string) func(p *pilotFlight) {
	return func(p *pilotFlight) {
		p.aloft()
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
		name: "takeoff, before it is armed", mode: "takeoff", disarmed: true,
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
		name: "goto, between its ack and its mode", mode: "hold",
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
		bring: func(p *pilotFlight) {
			p.aloft()
			p.accepted("/mode", `{"mode":"hold"}`)
			time.Sleep(4 * time.Second)
		},
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
		name: "position, in its lead", mode: "position",
		bring:     px4Entering("position", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "altitude, in its lead", mode: "altitude",
		bring:     px4Entering("altitude", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "manual, in its lead", mode: "manual",
		bring:     px4Entering("manual", 200*time.Millisecond),
		explained: []uint32{simPX4Loiter},
	},
	{
		name: "position, between its ack and its mode", mode: "position", bring: px4Entered("position"),
		explained: []uint32{simPX4Posctl, simPX4Loiter},
	},
	{
		name: "altitude, between its ack and its mode", mode: "altitude", bring: px4Entered("altitude"),
		explained: []uint32{simPX4Altctl, simPX4Loiter},
	},
	{
		name: "manual, between its ack and its mode", mode: "manual", bring: px4Entered("manual"),
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
		name: "goto after position, sticks standing", mode: "hold",
		bring:     px4Leaving("position", "/goto", "{"+at(60, 0)+"}", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "land after position, sticks standing", mode: "land",
		bring:     px4Leaving("position", "/land", "", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl},
	},
	{
		name: "goto after altitude, in the POSCTL leg", mode: "hold",
		bring:     px4Leaving("altitude", "/goto", "{"+at(60, 0)+"}", 1800*time.Millisecond),
		explained: []uint32{simPX4Posctl, simPX4Altctl},
	},
	{
		name: "hold after manual, before POSCTL is in force", mode: "hold",
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
		name: "a silent client's hold, in the POSCTL leg", mode: "hold",
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

func TestPX4PilotsSwitchTakesTheDroneAtEveryMoment(t *testing.T) {
	for _, custom := range px4PilotModes {
		_, name := px4.reported(custom)
		t.Run(name, func(t *testing.T) {
			var moments []moment
			for _, m := range px4Moments {
				if !slices.Contains(m.explained, custom) && !slices.Contains(m.without, custom) {
					moments = append(moments, m)
				}
			}
			atMoments(t, simPX4, moments, nil, func(p *pilotFlight, m moment) {
				p.px4PilotTakes(custom, m)
			})
		})
	}
}

// px4PilotTakes is a pilot's switch, and what must and must not follow.
func (p *pilotFlight) px4PilotTakes(custom uint32, m moment) {
	p.Helper()
	before, streaming := p.streamed()
	switched := time.Now()
	p.sim.pilotMode(custom)
	at := p.reported(custom, switched, 1100*time.Millisecond)
	p.wantTruth()
	soon := time.Millisecond
	if m.disarmed { // it waits for the mode of its first step
		soon = stepShows + 100*time.Millisecond
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
