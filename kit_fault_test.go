package main

// A line, a port and an autopilot with faults, and what a flight over them must keep to.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// badLine damages the bytes on a line, and knows what was sent and what came through. It makes no
// damaged frame whose checksum is right by chance. So the status and the vehicle may only get what
// was sent.
type badLine struct {
	mu      sync.Mutex
	fault   simFault
	bytes   int
	towards struct{ companion, autopilot simWire }

	values     sentValues
	goodBeat   time.Time         // when the last undamaged heartbeat came through
	goodReport time.Time         // when the last undamaged heartbeat or CURRENT_MODE did
	acks       map[uint16]int    // ACCEPTED acks to us that came through
	written    map[string]bool   // what the companion wrote
	commands   func(f wireFrame) // is called with each command that came through; may be nil
}

func newBadLine(seed uint64) *badLine {
	return &badLine{fault: simFault{seed: seed}, acks: map[uint16]int{}, written: map[string]bool{},
		values: sentValues{}}
}

// spoil makes the line damage bytes at a rate.
func (l *badLine) spoil(rate float64, f simFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = simFault{drop: rate * f.drop, repeat: rate * f.repeat, flip: rate * f.flip, insert: rate * f.insert,
		seed: l.fault.seed}
}

// pass carries bytes over the line in one direction.
func (l *badLine) pass(w *simWire, b []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	toCompanion := w == &l.towards.companion
	fresh := func(tail, b []byte) (list []wireFrame) { // the frames that end in b and may begin in tail
		for _, f := range checkedFrames(slices.Concat(tail, b)) {
			if f.end > len(tail) {
				list = append(list, f)
			}
		}
		return list
	}
	for _, f := range fresh(w.before, b) { // w.before: as sent; w.after: as received
		if toCompanion {
			l.values.add(f)
		} else if m := f.message(); m != nil {
			l.written[sentKey(f.system, f.component, m)] = true
		}
	}
	fault, arrived := l.fault, w.after
	fault.seed = 2*fault.seed + uint64(b2i(toCompanion))
	out := w.carry(b, fault)
	l.bytes += len(b)
	for _, f := range fresh(arrived, out) {
		switch m := f.message().(type) {
		case *minimal.MessageHeartbeat:
			if toCompanion && f.component == 1 && f.system == 1 {
				l.goodBeat, l.goodReport = time.Now(), time.Now()
			}
		case *common.MessageCurrentMode:
			if toCompanion && f.component == 1 && f.system == 1 {
				l.goodReport = time.Now()
			}
		case *common.MessageCommandAck:
			if m.Result == common.MAV_RESULT_ACCEPTED && f.system == 1 && f.component == 1 &&
				(m.TargetComponent == componentID || f.v1) {
				l.acks[uint16(m.Command)]++
			}
		case *common.MessageCommandLong, *common.MessageCommandInt, *common.MessageParamRequestRead:
			if l.commands != nil {
				l.commands(f)
			}
		}
	}
	return out
}

func (l *badLine) acked(id uint16) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks[id]
}

// message is a frame's message; nil if it can't be read.
func (f wireFrame) message() message.Message {
	return rawFrame{v2: !f.v1, known: dialectRW.GetMessage(f.id), payload: f.payload}.decode()
}

func sentKey(system, component uint8, m message.Message) string {
	return fmt.Sprintf("%d/%d %T %+v", system, component, m, m)
}

// badPort is the companion's end of a bad line.
type badPort struct {
	port
	line *badLine
	rest []byte
}

func (p *badPort) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		n, err := p.port.Read(b)
		if err != nil {
			return 0, err
		}
		p.rest = p.line.pass(&p.line.towards.companion, b[:n])
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func (p *badPort) Write(b []byte) (int, error) {
	if _, err := p.port.Write(p.line.pass(&p.line.towards.autopilot, b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

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

func (v sentValues) add(f wireFrame) {
	if f.system == 1 && f.component == 1 {
		v.addMessage(f.message())
	}
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

// figures are counts of a test and its subtests. They are logged when the test ends.
type figures struct {
	mu sync.Mutex
	n  map[string]int
}

func newFigures(t *testing.T) *figures {
	g := &figures{n: map[string]int{}}
	t.Cleanup(func() { t.Logf("figures: %v", g.n) })
	return g
}

func (g *figures) add(what string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n[what] += n
}

// An answer may take this long: the sticks before a plan, a takeoff's three commands or one
// landing, and the texts. The longest on these lines took 9.0 s.
const (
	longestAnswer = stickLead + stickStill + 3*(giveUp+copyEvery) + textsAfter
	longestLand   = stickLead + stickStill + giveUp + copyEvery + textsAfter
)

// commandOn sends a command over a bad line. It checks the answer by the acks that came through.
func (f *flight) commandOn(line *badLine, g *figures, path, body string) {
	f.Helper()
	line.mu.Lock()
	before := maps.Clone(line.acks)
	line.mu.Unlock()
	began := time.Now()
	code, o := f.call("POST", path, body)
	took := time.Since(began)
	g.add(fmt.Sprintf("answered %d", code), 1)
	switch code {
	case 200:
		// A heartbeat that shows the mode proves a mode change too.
		mode, _ := parseMode(fmt.Sprint(o["mode"]))
		modeShows := o["command"] == float64(cmdSetMode) && f.sim.truth().mode == entered[f.firmware][mode]
		if id, ok := o["command"].(float64); ok && !modeShows && line.acked(uint16(id)) <= before[uint16(id)] {
			f.Errorf("POST %s %s answered %v, but no such ack came over the line", path, body, o)
		}
	case 409, 501, 503:
	default:
		f.Errorf("POST %s %s: %d %v", path, body, code, o)
	}
	limit := longestAnswer
	if path == "/land" && body == "" {
		limit = longestLand
	}
	if took > limit {
		f.Errorf("POST %s %s took %v", path, body, took)
	}
}

// inspect checks a status against what was sent. explained has the modes that it may show; the
// vehicle's present mode is added.
func (f *flight) inspect(line *badLine, explained map[string]bool) {
	f.Helper()
	synctest.Wait()
	mode, _ := f.firmware.reported(f.sim.truth().mode)
	explained[mode.String()] = true
	o := f.status()
	s := f.drone.snapped()
	line.mu.Lock()
	neverSent := line.values.neverSent(o, s.custom)
	quiet, unreported := time.Since(line.goodBeat), time.Since(line.goodReport)
	line.mu.Unlock()
	if len(neverSent) > 0 {
		f.Errorf("%v: the status shows what the vehicle never sent: %q", time.Now(), neverSent)
	}
	// A broken frame may delay the next one until it turns out to be broken.
	if o["online"] != true && quiet > 300*time.Millisecond && quiet < offlineAfter-100*time.Millisecond {
		f.Errorf("%v: offline, %v after an undamaged heartbeat", time.Now(), quiet)
	}
	if o["online"] == true && unreported > offlineAfter+500*time.Millisecond {
		f.Errorf("%v: online, %v after the last report", time.Now(), unreported)
	}
	if m := o["mode"].(string); !explained[m] {
		f.Errorf("%v: mode %s was neither commanded nor reported", time.Now(), m)
	}
}

// ptyAutopilot is an autopilot in real time at the end of a pseudo-terminal. The line is bad in both
// directions. The autopilot acknowledges every command.
type ptyAutopilot struct {
	*pty
	line  *badLine
	mu    sync.Mutex
	seq   byte
	beats int32

	// began is when it started, for its boot clock.
	began time.Time
}

// say sends messages of the autopilot.
func (s *ptyAutopilot) say(messages ...message.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		s.seq++
		b := packet(s.seq, 1, 1, m)
		if s.seq%3 == 0 {
			b = packet1(s.seq, 1, 1, m)
		}
		s.master.Write(s.line.pass(&s.line.towards.companion, b))
	}
}

// beat sends a heartbeat, and a position and an attitude that differ each time.
func (s *ptyAutopilot) beat() {
	s.beats++
	boot := uint32(time.Since(s.began).Milliseconds())
	s.say(copterBeat(),
		&common.MessageGlobalPositionInt{TimeBootMs: boot, Lat: 473977420 + s.beats%1000, Lon: 85455940 +
			s.beats%777, Alt: 488000 + s.beats%999, RelativeAlt: s.beats % 999, Hdg: uint16(s.beats % 36000)},
		&common.MessageAttitude{TimeBootMs: boot, Roll: float32(s.beats%100) / 100,
			Yaw: float32(s.beats%600) / 100})
}

// newPTYAutopilot connects an autopilot and a drone by a pseudo-terminal.
func newPTYAutopilot(t *testing.T, seed uint64) (s *ptyAutopilot, d *drone) {
	s = &ptyAutopilot{pty: openPTY(t), line: newBadLine(seed), began: time.Now()}
	heard := make(chan wireFrame, 10000)
	s.line.commands = func(f wireFrame) { heard <- f }
	var running sync.WaitGroup
	running.Go(func() {
		defer close(heard)
		b := make([]byte, 4096)
		for {
			n, err := s.master.Read(b)
			if err != nil {
				return
			}
			s.line.pass(&s.line.towards.autopilot, b[:n])
		}
	})
	running.Go(func() {
		for f := range heard {
			ack := &common.MessageCommandAck{TargetSystem: 1, TargetComponent: componentID}
			switch m := f.message().(type) {
			case *common.MessageParamRequestRead:
				if m.ParamId == "RTL_ALT" {
					s.say(&common.MessageParamValue{ParamId: m.ParamId, ParamValue: 1500})
				}
				continue
			case *common.MessageCommandLong:
				ack.Command = m.Command
				if m.Command == common.MAV_CMD_REQUEST_MESSAGE && m.Param1 == 0 {
					s.say(ack, copterBeat())
					continue
				}
			case *common.MessageCommandInt:
				ack.Command = m.Command
			}
			s.say(ack)
		}
	})
	d, end := runDevice(t, mustDevice(t, s.path, 57600))
	t.Cleanup(func() {
		end()
		s.unplug()
		running.Wait()
	})
	waitUntil(t, "the link is online", func() bool {
		s.beat()
		return d.hearsVehicle()
	})
	return s, d
}

// neverSent returns what the status shows though it was never sent.
func (s *ptyAutopilot) neverSent(d *drone) []string {
	var o object
	json.Unmarshal(encode(d.status(netip.Addr{})), &o)
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	return s.line.values.neverSent(o, copterBeat().CustomMode)
}

// noiseBytes returns n bytes of noise that contain no frame.
func noiseBytes(t *testing.T, n int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(8, 9))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if fs := checkedFrames(b); len(fs) > 0 {
		t.Fatalf("this noise contains frames, choose another seed: %v", fs)
	}
	return b
}

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

// quietGoroutines counts the goroutines after 20 s in which the test does nothing.
func quietGoroutines() int {
	time.Sleep(20 * time.Second)
	synctest.Wait()
	return runtime.NumGoroutine()
}

// onceOnATerminal runs a drone until it hears its vehicle. It ends the drone in one of three ways.
func onceOnATerminal(t *testing.T, way int) {
	p := openPTY(t)
	d := newDrone(mustDevice(t, p.path, 57600), 0, false, slog.Default())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx) })
	// The heartbeat is repeated because the link drops the bytes that come before it flushes the line.
	for !d.hearsVehicle() {
		p.master.Write(packet(1, 1, 1, copterBeat()))
		time.Sleep(10 * time.Millisecond) // a real line
	}
	switch way {
	case 0: // stopped while it reads
	case 1: // unplugged during its handshake
		p.unplug()
	case 2: // unplugged while its output is full
		for d.link.send(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)) == nil {
		}
		p.unplug()
		for lost := false; !lost; runtime.Gosched() {
			d.link.mu.Lock()
			lost = d.link.writer == nil
			d.link.mu.Unlock()
		}
	}
	cancel()
	running.Wait()
	p.unplug()
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
	accepted, interrupted, unanswered, offline, falsely int
	took                                                []time.Duration // of the accepted ones
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
		c.accepted, at(50), at(99), at(100), c.interrupted, c.unanswered, c.offline, c.falsely)
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
		switch {
		case code == 200:
			c.accepted++
			c.took = append(c.took, took)
			came := slices.ContainsFunc(commandsOf(f.since(began)),
				func(s string) bool { return strings.HasPrefix(s, r.cmd) })
			if !came || f.sim.truth().mode != entered[f.firmware][r.mode] {
				c.falsely++
			}
		case code == 409 && o["code"] == "interrupted":
			c.interrupted++
			if began.Sub(doubted) > followTime {
				c.falsely++
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
