package main

// A line, a port and an autopilot with faults, and what a flight over them must keep to.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// sentValues are the groups of values that a vehicle sent, as the status shows them.
type sentValues map[string]bool

// shown returns a group of a status object as one string.
func shown(o any, names ...string) string {
	group, _ := o.(object)
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprint(group[name]))
	}
	return strings.Join(list, " ")
}

// values returns numbers as shown writes them. pairs are a number, then how many decimals it has.
func values(pairs ...float64) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		if n := float64(rounded(pairs[i], int(pairs[i+1]))); math.IsNaN(n) {
			list = append(list, "<nil>")
		} else {
			list = append(list, fmt.Sprint(n))
		}
	}
	return strings.Join(list, " ")
}

func (v sentValues) addMessage(m message.Message) {
	unless := func(x float64, unknown bool) float64 {
		if unknown {
			return math.NaN()
		}
		return x
	}
	put := func(group, text string) { v[group+": "+text] = true }
	switch m := m.(type) {
	case *minimal.MessageHeartbeat:
		put("custom mode", fmt.Sprint(m.CustomMode))
		put("heartbeat", fmt.Sprint(m.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0, " ",
			strings.ToLower(strings.TrimPrefix(m.SystemStatus.String(), "MAV_STATE_"))))
	case *common.MessageCurrentMode:
		put("custom mode", fmt.Sprint(m.CustomMode))
	case *common.MessageGlobalPositionInt:
		put("position", values(float64(m.Lat)/1e7, 7, float64(m.Lon)/1e7, 7, float64(m.RelativeAlt)/1000, 2,
			float64(m.Alt)/1000, 2, unless(float64(m.Hdg)/100, m.Hdg == 65535), 2))
		put("velocity", values(float64(m.Vx)/100, 2, float64(m.Vy)/100, 2, float64(m.Vz)/100, 2))
		put("climb", values(-float64(m.Vz)/100, 2))
	case *common.MessageVfrHud:
		put("air speed", values(float64(m.Airspeed), 2))
		put("climb", values(float64(m.Climb), 2))
	case *common.MessageAttitude:
		yaw := math.Mod(float64(m.Yaw)*180/math.Pi+360, 360)
		// the last bit may round either way
		for _, y := range []float64{yaw, math.Nextafter(yaw, 0), math.Nextafter(yaw, 999)} {
			put("attitude", values(float64(m.Roll)*180/math.Pi, 1, float64(m.Pitch)*180/math.Pi, 1, y, 1))
		}
	case *common.MessageSysStatus:
		put("battery", values(unless(float64(m.VoltageBattery)/1000, m.VoltageBattery == 65535), 2,
			unless(float64(m.CurrentBattery)/100, m.CurrentBattery < 0), 2, unless(float64(m.BatteryRemaining),
				m.BatteryRemaining < 0), 0))
	case *common.MessageBatteryStatus:
		// Shown where no SYS_STATUS has come. The simulator's first cell has the whole voltage.
		put("battery", values(float64(m.Voltages[0])/1000, 2, unless(float64(m.CurrentBattery)/100,
			m.CurrentBattery < 0), 2, unless(float64(m.BatteryRemaining), m.BatteryRemaining < 0), 0))
	case *common.MessageGpsRawInt:
		put("gps", values(float64(m.SatellitesVisible), 0, float64(m.Eph)/100, 2))
	case *common.MessageHomePosition:
		put("home", values(float64(m.Latitude)/1e7, 7, float64(m.Longitude)/1e7, 7, float64(m.Altitude)/1000, 2))
	case *common.MessageExtendedSysState:
		put("landed", fmt.Sprint(landedStates[landedState(m.LandedState)]))
	}
}

// neverSent returns what a status shows though the vehicle never sent it.
func (v sentValues) neverSent(o object, custom uint32) (list []string) {
	want := func(group, text string) {
		if !v[group+": "+text] {
			list = append(list, group+": "+text)
		}
	}
	group := func(name string, fields ...string) {
		if o[name] != nil {
			want(name, shown(o[name], fields...))
		}
	}
	if o["armed"] != nil {
		want("heartbeat", shown(o, "armed", "state"))
		want("custom mode", fmt.Sprint(custom))
	}
	group("position", "lat", "lon", "altitude", "altitude_msl", "heading")
	group("velocity", "north", "east", "down")
	if g, ok := o["velocity"].(object); ok {
		if g["air_speed"] != nil {
			want("air speed", shown(g, "air_speed"))
		}
		want("climb", shown(g, "climb"))
	}
	group("attitude", "roll", "pitch", "yaw")
	group("battery", "voltage", "current", "remaining")
	group("gps", "satellites", "hdop")
	group("home", "lat", "lon", "altitude_msl")
	if o["landed_state"] != nil {
		want("landed", shown(o, "landed_state"))
	}
	return list
}

// over returns a function that puts another port between a drone and its port.
func over(between func(port) port) (start func(*drone)) {
	return func(d *drone) {
		open := d.link.device.open
		d.link.device.open = func(ctx context.Context) (port, error) {
			p, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return between(p), nil
		}
	}
}

// An answer may take this long: the sticks before a plan, a takeoff's three commands or one
// landing, and the texts. The longest on these lines took 9.0 s.
const (
	longestAnswer = stickLead + stickStill + 3*(giveUp+copyEvery) + textsAfter
	longestLand   = stickLead + stickStill + giveUp + copyEvery + textsAfter
)

// cutAtAck unplugs the port when a command's ack is due.
func (f *flight) cutAtAck(id common.MAV_CMD) {
	f.sim.change(func() {
		f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
			if a.Command != id {
				return []simAnswer{{ack: a}}
			}
			f.sim.port.closeWith(io.EOF) // as unplug does; the simulator's mutex is held
			f.sim.port, f.sim.unplugged = nil, true
			return nil
		}
	})
}

// asksForStreams counts the requests of message intervals since a time.
func (f *flight) asksForStreams(since time.Time) (n int) {
	for _, r := range f.since(since) {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL {
			n++
		}
	}
	return n
}

// lands posts a landing on a new connection. It must be accepted within a time.
func (p *pipes) lands(limit time.Duration) {
	p.test.Helper()
	asked := time.Now()
	w := p.connect()
	defer w.Close()
	w.send("POST", "/api/drone/land", "")
	r, err := w.receive("POST")
	if err != nil || r.status != 200 {
		p.test.Errorf("land: %d %s, %v", r.status, r.body, err)
	}
	if took := time.Since(asked); took > limit {
		p.test.Errorf("land took %v", took)
	}
}

var noiseSeed = flag.Uint64("noise-seed", 1, "seed of TestNoiseAndSlowLines")

// answers counts how commands were answered.
type answers struct {
	accepted, interrupted, unanswered, offline int
	took                                       []time.Duration // of the accepted ones
	falsely                                    []string        // the answers that were false, and what was true
}

func (c answers) String() string {
	slices.Sort(c.took)
	at := func(p int) time.Duration {
		if len(c.took) == 0 {
			return 0
		}
		return c.took[min(len(c.took)*p/100, len(c.took)-1)].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d accepted (p50 %v, p99 %v, max %v), %d interrupted, %d no_ack, %d offline, %d false",
		c.accepted, at(50), at(99), at(100), c.interrupted, c.unanswered, c.offline, len(c.falsely))
}

// answeredOn posts n requests one after another: a return and a goto, each of them one MAVLink command on both
// autopilots. A goto behind a landing would be two: it climbs first. An accepted one must have come to the vehicle. If
// the vehicle shows an unanswered command late, that may end the next command (docs/design.md, rule 3).
func answeredOn(f *flight, n int, damaged float64, trip time.Duration) (c answers) {
	f.aloft()
	f.drone.change(func() { f.drone.ceiling, f.drone.reach = 3000, 100000 })
	f.sim.change(func() { f.sim.quad.up = 2000 }) // high and far enough for every landing and return that follows
	f.sim.placeAt(simPlace(40000, 0))
	time.Sleep(time.Second)
	f.sim.change(func() {
		seed := 2 * (*noiseSeed)
		f.sim.setNoise(anyDamage(damaged/4, seed), anyDamage(damaged/4, seed+1))
		f.sim.switches().delay = trip
	})
	time.Sleep(5 * time.Second)
	requests := []struct {
		path, body string
		mode       Mode
		cmd        string // its MAV_CMD
	}{
		{"/mode", `{"mode":"rtl"}`, ModeRTL, "176 "},
		{"/goto", "{" + at(40000, 0) + `,"altitude_msl":2500}`, ModeHold, "192 "}, // needs neither home nor a position
	}
	var doubted time.Time // when a request was last not answered
	for i := range n {
		r, began := requests[i%len(requests)], time.Now()
		code, o := f.call("POST", r.path, r.body)
		took := time.Since(began)
		time.Sleep(100 * time.Millisecond) // PX4 acknowledges before it flies
		isFalse := func() {
			c.falsely = append(c.falsely, fmt.Sprintf("%s %s: %d %v after %v; the mode is %d, sent: %q", r.path, r.body,
				code, o, took, f.sim.truth().mode, commandsOf(f.since(began))))
		}
		switch {
		case code == 200:
			c.accepted++
			c.took = append(c.took, took)
			came := slices.ContainsFunc(commandsOf(f.since(began)),
				func(s string) bool { return strings.HasPrefix(s, r.cmd) })
			if !came || f.sim.truth().mode != entered[f.firmware][r.mode] {
				isFalse()
			}
		case code == 409 && o["code"] == "interrupted":
			c.interrupted++
			if began.Sub(doubted) > followTime {
				isFalse()
			}
		case o["code"] == "no_ack":
			c.unanswered++
		case o["code"] == "offline":
			c.offline++
		default:
			f.Fatalf("POST %s %s: %d %v", r.path, r.body, code, o)
		}
		if o["code"] == "no_ack" || o["code"] == "offline" {
			doubted = time.Now()
		}
		time.Sleep(2100 * time.Millisecond)
	}
	return c
}
