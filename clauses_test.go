package main

import (
	"math"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The clauses that are functions of their own.

var clauses = map[string]func(*player){}

func moreClauses(more map[string]func(*player)) {
	for words, do := range more {
		if clauses[words] != nil {
			panic("two clauses: " + words)
		}
		clauses[words] = do
	}
}

func init() {
	moreClauses(px4Clauses)
	moreClauses(arduClauses)
	moreClauses(map[string]func(*player){
		"shows its heartbeat": func(p *player) {
			p.sim.change(func() { p.sim.send(p.sim.message(0)) })
			synctest.Wait()
		},
		"its streams": func(p *player) {
			if n := p.asksForStreams(p.mark); n < len(streams) {
				p.Errorf("%d streams were asked for", n)
			}
		},
		"fresh": func(p *player) {
			for _, group := range []string{"position", "attitude", "battery"} {
				if age := p.status()[group].(object)["age"].(float64); age > 0.6 {
					p.Errorf("%s is %v s old", group, age)
				}
			}
		},
		"online and as it is": func(p *player) {
			o, truth := p.status(), p.sim.truth()
			reported, name := p.firmware.reported(truth.mode)
			if o["vehicle_mode"] != name || o["armed"] != truth.armed || o["online"] != true {
				p.Errorf("the status shows %v, armed %v, online %v; the vehicle is in %s, armed %v", o["vehicle_mode"], o["armed"], o["online"], name, truth.armed)
			}
			if manual := !truth.armed && o["mode"] == "manual"; o["mode"] != reported.String() && !manual { // docs/design.md, rule 1
				p.Errorf("mode is %v; %v is reported", o["mode"], reported)
			}
		},
	})
	moreClauses(map[string]func(*player){
		"forgets": func(p *player) {
			p.mark = time.Now()
			p.sim.change(func() {
				if b, ok := p.sim.brain.(*simPX4Brain); ok {
					b.every = -1
					return
				}
				p.sim.streamOn(false, 0, time.Second)
			})
		},
		"asked again": func(p *player) {
			if p.asksForStreams(p.mark) == 0 {
				p.Error("it was not asked for live reports again")
			}
		},
	})
	moreClauses(map[string]func(*player){"copies are apart": func(p *player) {
		var last time.Time
		for _, r := range p.sim.received()[p.seen:] {
			if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_SET_MODE {
				if r.at.Sub(last) < 20*time.Millisecond {
					p.Errorf("copies %v apart", r.at.Sub(last))
				}
				last = r.at
			}
		}
	}})
	wire := map[firmware][]string{
		px4: {
			"400 1 0", "22 NaN NaN", // takeoff
			"192 frame 0 z 503.3",            // goto
			"176 1 3",                        // position
			"192 frame 0 z 503.3", "176 1 4", // land at a place
		},
		copter: {
			"176 1 4", "400 1 0", "22 0 0",
			"192 frame 3 z 15.0", "178 1 10", "115 0 0",
			"176 1 5",
			"192 frame 3 z 15.0", "178 1 10", "176 1 9",
		},
	}
	moreClauses(map[string]func(*player){"the wire": func(p *player) {
		got := p.commands()
		for i, c := range got { // the height was measured, and varies
			got[i] = strings.NewReplacer("z 503.2", "z 503.3", "z 503.4", "z 503.3", "z 14.9", "z 15.0", "z 15.1", "z 15.0").Replace(c)
		}
		if want := wire[p.firmware]; !slices.Equal(got, want) {
			p.Errorf("sent\n%q\nwant\n%q", got, want)
		}
	}})
	moreClauses(map[string]func(*player){
		"steady": func(p *player) {
			if n := len(p.sticksSince(p.mark)); n < 10 {
				p.Errorf("%d stick messages in 0.45 s, want 25 a second", n)
			}
		},
		"centred": func(p *player) {
			if list := p.stream(p.mark); len(list) == 0 || slices.ContainsFunc(list, func(a axes) bool { return a.x != 0 && a.x != math.MaxInt16 }) {
				p.Errorf("streamed %v", list)
			}
		},
	})
	moreClauses(map[string]func(*player){
		"is in a failsafe": func(p *player) { p.sim.change(func() { p.sim.failsafe = true }) },
		"it hovers": func(p *player) {
			onTheWing := []uint32{0, 6, simPlaneGuided, simPlaneRTL, simPlaneTakeoff} // 0: MANUAL, 6: FBWB
			mode, code := p.sim.truth().mode, p.answer["code"]
			if code == "no_ack" || code == nil && slices.Contains(onTheWing, mode) {
				p.Errorf("%v; it is in mode %d at %.0f m/s", p.answer, mode, p.speed())
			}
		},
	})
	moreClauses(map[string]func(*player){
		"accepts only BRAKE": func(p *player) {
			p.acks(common.MAV_CMD_DO_SET_MODE, func(a *common.MessageCommandAck) []simAnswer {
				p.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true
				return []simAnswer{{ack: a}}
			})
		},
		"a switch at the yaw":    func(p *player) { p.pilotSwitchesAt(common.MAV_CMD_CONDITION_YAW) },
		"a switch at the arming": func(p *player) { p.pilotSwitchesAt(common.MAV_CMD_COMPONENT_ARM_DISARM) },
		"no report is claimed": func(p *player) {
			p.drone.mu.Lock()
			defer p.drone.mu.Unlock()
			if sent := p.drone.machine.sent; sent != nil {
				p.Errorf("modes %v are still expected after a pilot's switch", sent)
			}
		},
	})
	moreClauses(map[string]func(*player){"held": func(p *player) {
		if s := p.sim.truth(); s.mode != simArduGuided && s.mode != copterBrake { // without a receiver a failsafe follows later
			p.Errorf("%.1f m up, mode %d", s.alt, s.mode)
		}
	}})
	moreClauses(map[string]func(*player){
		"clock 3":          func(p *player) { p.sim.change(func() { p.sim.send(attitudeAt(3)) }) },
		"clock 4000000000": func(p *player) { p.sim.change(func() { p.sim.send(attitudeAt(4_000_000_000)) }) },
	})
	moreClauses(map[string]func(*player){
		"bad": func(p *player) { p.refused("/goto", `{"lat":1}`, 422, "out_of_range") },
		"loses everything": func(p *player) {
			p.sim.change(func() { p.sim.onAck = func(*common.MessageCommandAck) []simAnswer { return nil } })
		},
	})
}
