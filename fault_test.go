package main

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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// A companion board meets faults of the line, the port, the vehicle and the clients. These tests
// check what docs/reliability.md promises. Tests of single parts are in the files of the parts.

// ---- The line ----

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

// oneOfEach has one of each command.
var oneOfEach = []struct{ path, body, mode string }{
	{"/mode", `{"mode":"hold"}`, "hold"},
	{"/takeoff", "", "takeoff"},
	{"/goto", `{"lat":47.3980,"lon":8.5460,"altitude":20,"heading":90}`, "hold"},
	{"/mode", `{"mode":"position"}`, "position"},
	{"/input", `{"pitch":0.5,"throttle":0.5,"timeout":2}`, ""},
	{"/mode", `{"mode":"rtl"}`, "rtl"},
	{"/land", `{"lat":47.3979,"lon":8.5457}`, "land"},
	{"/land", "", "land"},
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

func TestABadSerialLineNeverLies(t *testing.T) {
	t.Parallel()
	g := newFigures(t)
	for i, rate := range []float64{0.0001, 0.001, 0.01, 0.05, 0.2} {
		t.Run(fmt.Sprintf("%g%%", rate*100), func(t *testing.T) {
			t.Parallel()
			s, d := newPTYAutopilot(t, uint64(i))
			s.line.spoil(rate, anyDamage(1, 0))
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				for range 2 {
					before := s.line.acked(cmdSetMode)
					_, err := d.do(holdHere)
					if err == nil && s.line.acked(cmdSetMode) == before {
						t.Error("accepted, but no ack came over the line")
					}
					g.add(fmt.Sprintf("commands accepted: %t", err == nil), 1)
				}
			}()
			for n, done := 0, false; !done || n < 300; n++ {
				select {
				case <-answered:
					done = true
				default:
				}
				s.beat()
				if list := s.neverSent(d); len(list) > 0 {
					t.Fatalf("the status shows what the vehicle never sent: %q", list)
				}
				runtime.Gosched()
				if n > 300 { // only the answer is missing
					time.Sleep(2 * time.Millisecond) // a real line
				}
			}
			s.line.spoil(0, simFault{})
			received := d.snapped().link.received
			waitUntil(t, "frames come again, and the vehicle is online", func() bool {
				s.beat()
				return d.snapped().link.received > received && d.hearsVehicle()
			})
			// An ack proves nothing while late acks of earlier commands may come.
			waitUntil(t, "no late ack can come any more", func() bool {
				s.beat()
				d.mu.Lock()
				defer d.mu.Unlock()
				return !time.Now().Before(d.cmd.acks.lateUntil(common.MAV_CMD_DO_SET_MODE))
			})
			if _, err := d.do(holdHere); err != nil {
				t.Errorf("on a good line: %v", err)
			}
			s.line.mu.Lock()
			defer s.line.mu.Unlock()
			g.add("bytes", s.line.bytes)
		})
	}
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

func TestAMegabyteOfNoiseOnASerialLineChangesNothing(t *testing.T) {
	t.Parallel()
	s, d := newPTYAutopilot(t, 1)
	before := d.snapped()
	for part := range slices.Chunk(noiseBytes(t, 1<<20), 49_000) { // 22 parts
		for few := range slices.Chunk(part, 1000) {
			s.mu.Lock()
			s.master.Write(few)
			s.mu.Unlock()
		}
		s.beat() // three frames: 63 between the parts, and 3 after the last one
	}
	if list, n := s.neverSent(d), d.snapped().link.received-before.link.received; len(list) > 0 || n < 50 {
		t.Errorf("of 63 frames in the noise %d came through; the status shows what the vehicle never sent: %q", n, list)
	}
	waitUntil(t, "online after the noise", func() bool {
		s.beat()
		now := d.snapped()
		return now.online && now.link.errors > before.link.errors && now.tel.attitude.at.After(before.tel.attitude.at)
	})
	if _, err := d.do(holdHere); err != nil {
		t.Error(err)
	}
}

func TestHalfAFrameOnASerialLineCostsOnlyItself(t *testing.T) {
	t.Parallel()
	s, d := newPTYAutopilot(t, 2)
	full := packet(77, 1, 1, copterBeat())
	longer := wireFrame{claims: 255, system: 1, component: 1, id: 33, payload: make([]byte, 28)}.bytes()
	for _, half := range [][]byte{full[:1], full[:9], full[:len(full)-1], longer} {
		received := d.snapped().link.received
		s.mu.Lock()
		s.master.Write(half)
		s.mu.Unlock()
		for range 20 { // more bytes than the half frame claims
			s.say(copterBeat())
		}
		waitUntil(t, "every heartbeat after the half frame is read",
			func() bool { return d.snapped().link.received >= received+20 })
	}
}

func TestNoiseAndHalvesInFlightChangeNothing(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(40, 0)+"}")
		s := f.drone.snapped()
		texts := s.tel.texts.count
		for rest := noiseBytes(f.T, 1<<20); len(rest) > 0; rest = rest[512:] { // 51,200 bytes a second
			f.sim.inject(rest[:512])
			time.Sleep(10 * time.Millisecond)
			if f.status()["online"] != true {
				f.Fatal("offline in the noise")
			}
		}
		f.wantMode("hold")
		f.wantAt(40, 0, 10, 0.5)
		now := f.drone.snapped()
		if n := now.tel.texts.count; n != texts || now.link.errors == s.link.errors {
			f.Errorf("%d texts came out of the noise, %d bad frames", n-texts, now.link.errors-s.link.errors)
		}
		f.accepted("/land", "")

		// Half a frame comes, then silence for so long that the vehicle is offline.
		beat := packet(1, 1, 1, beatOf(map[firmware]common.MAV_AUTOPILOT{px4: common.MAV_AUTOPILOT_PX4,
			copter: common.MAV_AUTOPILOT_ARDUPILOTMEGA}[f.firmware], f.sim.truth().mode, true))
		for _, half := range [][]byte{beat[:5], wireFrame{claims: 255, system: 1, component: 1, id: 33}.bytes()} {
			f.sim.inject(half)
			f.sim.change(func() { f.sim.switches().muted = true })
			time.Sleep(3500 * time.Millisecond)
			if f.status()["online"] != false {
				f.Error("online after 3.5 s of silence")
			}
			f.sim.change(func() { f.sim.switches().muted = false; f.sim.transmit(beat) })
			time.Sleep(time.Second)
			if f.status()["online"] != true {
				f.Error("offline a second after the vehicle sends again")
			}
			time.Sleep(3 * time.Second)
			f.wantMode("land")
		}
	})
}

// On the vehicle's line another autopilot, a gimbal and a third system send both versions of
// MAVLink, and unknown messages.
func TestTwoAutopilotsAndAGimbalOnOneLine(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		line := newBadLine(1)
		between := func(p port) port { return &badPort{port: p, line: line} }
		flyWith(t, flavour, nil, over(between), func(f *flight) {
			ended := make(chan struct{})
			var strangers sync.WaitGroup
			strangers.Go(func() {
				for n := 0; ; n++ {
					encode := packet1
					if n%2 == 1 {
						encode = packet
					}
					select {
					case <-ended:
						return
					case <-time.After(50 * time.Millisecond):
					}
					for _, who := range [][2]uint8{{2, 1}, {1, 154}, {9, 1}} {
						beat := beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(7, 0), n%2 == 0)
						if who[1] == 154 {
							beat.Type, beat.Autopilot = common.MAV_TYPE_GIMBAL, common.MAV_AUTOPILOT_INVALID
						}
						say := []message.Message{
							beat,
							&common.MessageGlobalPositionInt{TimeBootMs: 1, Lat: 1e7, Lon: 2e7, Alt: 3000,
								RelativeAlt: 4000, Hdg: 500, Vx: 600},
							&common.MessageAttitude{TimeBootMs: 1, Roll: 1.5, Pitch: 1.25, Yaw: 1},
							&common.MessageSysStatus{VoltageBattery: 1000, CurrentBattery: 100, BatteryRemaining: 1},
							&common.MessageHomePosition{Latitude: 1e7, Longitude: 1e7, Altitude: 1e6},
							&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_LANDING},
							&common.MessageStatustext{Severity: 2, Text: "a stranger's"},
							&common.MessageCommandAck{Command: common.MAV_CMD(cmdArm), Result: ackAccepted,
								TargetSystem: 1, TargetComponent: componentID},
							&common.MessageCommandAck{Command: common.MAV_CMD(cmdSetMode), Result: ackFailed,
								TargetSystem: 1, TargetComponent: componentID},
						}
						for i, m := range say {
							f.sim.inject(encode(byte(n+i), who[0], who[1], m))
						}
					}
					f.sim.inject(unknownPacket(byte(n), n%200))
					f.sim.change(func() { f.sim.switches().mavlink1 = n%20 < 10 })
				}
			})
			explained := map[string]bool{"manual": true}
			g := &figures{n: map[string]int{}}
			for _, c := range oneOfEach {
				explained[c.mode] = true
				f.commandOn(line, g, c.path, c.body)
				for range 10 {
					time.Sleep(500 * time.Millisecond)
					f.inspect(line, explained)
				}
			}
			if g.n["answered 200"] != len(oneOfEach) {
				f.Errorf("of %d commands on a good line: %v", len(oneOfEach), g.n)
			}
			f.until("landed", time.Minute, f.disarmed)
			time.Sleep(2 * time.Second) // until PX4 has left AUTO.LAND by itself
			// The strangers' heartbeats and acks say armed, but the vehicle is disarmed.
			f.sim.change(func() {
				f.sim.switches().idle = true
				f.sim.switches().onAck = func(*common.MessageCommandAck) []simAnswer { return nil }
			})
			f.refused("/mode", `{"arm":true}`, 409, "no_ack")
			for _, m := range f.status()["messages"].([]any) {
				if strings.Contains(m.(object)["text"].(string), "stranger") {
					f.Errorf("a stranger's text: %v", m)
				}
			}
			close(ended)
			strangers.Wait()
		})
	}
}

// ---- The port ----

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

func TestEveryAnswerIsTrueAndInTimeWhileThePortFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin func(f *flight)
		later func(f *flight) // 0.3 s into the command
		code  string          // the answer to the command during which the port fails
	}{
		{"unplugged while it reads", func(f *flight) {
			f.sim.unplug()
			time.Sleep(time.Millisecond)
		}, nil, "offline"},
		{"unplugged while it writes", func(f *flight) { f.sim.stallWrites(true) }, func(f *flight) {
			f.sim.unplug()
			f.sim.stallWrites(false)
		}, "no_ack"},
		{"unplugged between send and ack", func(f *flight) { f.cutAtAck(common.MAV_CMD_DO_REPOSITION) }, nil, "no_ack"},
		{"a write that blocks", func(f *flight) { f.sim.stallWrites(true) }, nil, "no_ack"},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(f *flight) {
				f.aloft()
				c.begin(f)
				sent := len(f.commands())
				if c.later != nil {
					time.AfterFunc(300*time.Millisecond, func() { c.later(f) })
				}
				asked := time.Now()
				code, o := f.call("POST", "/goto", "{"+at(30, 0)+"}")
				if took := time.Since(asked); code != 409 || o["code"] != c.code || took > giveUp {
					f.Errorf("goto answered %d %v after %v, want %s within 2 s", code, o, took, c.code)
				}
				if c.code == "offline" && len(f.commands()) > sent {
					f.Errorf("answered %v, but the vehicle received %q", o, f.commands()[sent:])
				}
				for range 60 { // for a minute there is no line
					for _, path := range []string{"", "/mode", "/status"} {
						asked := time.Now()
						if code, _ := f.call("GET", path, ""); code != 200 || time.Since(asked) > 0 {
							f.Errorf("GET %s answered %d after %v", path, code, time.Since(asked))
						}
					}
					asked := time.Now()
					code, o := f.call("POST", "/land", "")
					lost := o["code"] == "offline" || o["code"] == "no_ack"
					if took := time.Since(asked); code != 409 || !lost || took > giveUp+answerWait {
						f.Errorf("land answered %d %v after %v", code, o, took)
					}
					time.Sleep(time.Second)
				}
				f.sim.change(func() { f.sim.switches().onAck = nil })
				f.sim.stallWrites(false)
				f.sim.plug()
				// The port is opened 2 s later at most, and a heartbeat comes each second.
				f.until("online", 3200*time.Millisecond,
					func() bool { return f.status()["online"] == true && f.drone.snapped().tel.beat.at.After(asked) })
				time.Sleep(2500 * time.Millisecond)
				asked = time.Now()
				f.accepted("/land", "")
				if took := time.Since(asked); took > 2500*time.Millisecond {
					f.Errorf("land on the new port took %v", took)
				}
				f.wantMode("land")
				f.until("landed", time.Minute, f.disarmed)
			})
		})
	}
}

// quietGoroutines counts the goroutines after 20 s in which the test does nothing.
func quietGoroutines() int {
	time.Sleep(20 * time.Second)
	synctest.Wait()
	return runtime.NumGoroutine()
}

func TestAThousandUnpluggingsOfTheSimulatorsCableLeaveNothing(t *testing.T) {
	alone(t)
	cycles := 1000
	if testing.Short() {
		cycles = 100
	}
	var opens atomic.Int64
	between := func(p port) port {
		opens.Add(1)
		return p
	}
	flyWith(t, simArduPilot, nil, over(between), func(f *flight) {
		f.sim.unplug()
		f.sim.plug()
		before, files := quietGoroutines(), descriptors(f.T)
		for i := range cycles {
			if i%3 == 0 {
				f.sim.stallWrites(true)
				time.Sleep(time.Second)
			}
			answered := make(chan int, 1)
			if i%5 == 0 {
				go func() {
					code, _ := f.call("POST", "/mode", `{"mode":"hold"}`)
					answered <- code
				}()
			} else {
				answered <- 503 // no command waits
			}
			time.Sleep(time.Duration(i%7) * time.Millisecond)
			f.sim.unplug()
			f.sim.stallWrites(false)
			synctest.Wait() // later frames come from a new port
			if code := <-answered; code != 200 && code != 503 && code != 409 {
				f.Fatalf("a command while the cable is pulled: %d", code)
			}
			received := f.drone.snapped().link.received
			f.sim.plug()
			f.until("frames come again", 4*time.Second,
				func() bool { return f.drone.snapped().link.received > received })
		}
		after := quietGoroutines()
		if n := opens.Load(); n < int64(cycles) {
			f.Errorf("the port was opened %d times", n)
		}
		if n := descriptors(f.T); after != before || n != files {
			f.Errorf("%d goroutines and %d descriptors, at first %d and %d", after, n, before, files)
		}
		f.accepted("/mode", `{"mode":"hold"}`)
	})
}

func TestAHundredLinksOnPseudoTerminalsLeaveNothing(t *testing.T) {
	cycles := 100
	if *runAll {
		cycles = 1000
	}
	nothingLeft(t, func(t *testing.T) {
		var workers sync.WaitGroup
		for k := range 8 { // in parallel, because each opening waits for refillsIn
			workers.Go(func() {
				for i := k; i < cycles; i += 8 {
					onceOnATerminal(t, i%3)
				}
			})
		}
		workers.Wait()
	})
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

// ---- The vehicle ----

// asksForStreams counts the requests of message intervals since a time.
func (f *flight) asksForStreams(since time.Time) (n int) {
	for _, r := range f.since(since) {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL {
			n++
		}
	}
	return n
}

// Whatever happens to a command's acks, mavrest answers what the vehicle did.
func TestAnAnswerIsTrueWhateverHappensToTheAcks(t *testing.T) {
	type hook = func(a *common.MessageCommandAck, nth int) []simAnswer
	// one replaces an ack by an answer with a copy of the ack. change, which may be nil, changes
	// the copy.
	one := func(as simAnswer, change func(*common.MessageCommandAck)) hook {
		return func(a *common.MessageCommandAck, _ int) []simAnswer {
			answer, b := as, *a
			answer.ack = &b
			if change != nil {
				change(&b)
			}
			return []simAnswer{answer}
		}
	}
	// each becomes the other
	flip := func(b *common.MessageCommandAck) { b.Result = ackAccepted + ackFailed - b.Result }
	toAnotherTarget := func(b *common.MessageCommandAck) { b.TargetSystem, b.TargetComponent = 255, 190 }
	ofAnotherCommand := func(b *common.MessageCommandAck) { b.Command++ }
	inProgress := func(b *common.MessageCommandAck) { b.Result = ackInProgress }
	opposite := one(simAnswer{}, flip)
	then := func(first, second hook) hook {
		return func(a *common.MessageCommandAck, nth int) []simAnswer {
			return append(first(a, nth), second(a, nth)...)
		}
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		hook hook
		code string        // "": accepted
		took time.Duration // at most
	}{
		{"unchanged", one(simAnswer{}, nil), "", 100 * ms},
		{"0.4 s late", one(simAnswer{after: 400 * ms}, nil), "", 720 * ms},
		{"2.2 s late", one(simAnswer{after: 2200 * ms}, nil), "no_ack", 2 * time.Second},
		{"the first two lost", func(a *common.MessageCommandAck, nth int) []simAnswer {
			if nth < 2 {
				return nil
			}
			return []simAnswer{{ack: a}}
		}, "", 1300 * ms},
		{"all lost", func(*common.MessageCommandAck, int) []simAnswer { return nil }, "no_ack", 2 * time.Second},
		{"doubled ten times", func(a *common.MessageCommandAck, _ int) (list []simAnswer) {
			for i := range 10 {
				list = append(list, simAnswer{ack: a, after: time.Duration(i*i) * ms})
			}
			return list
		}, "", 100 * ms},
		{"accepted, then refused", then(one(simAnswer{}, nil), one(simAnswer{after: 50 * ms}, flip)), "", 100 * ms},
		{"refused, then accepted", then(opposite, one(simAnswer{after: 50 * ms}, nil)), "refused", time.Second},
		{"from another component", one(simAnswer{component: 154}, nil), "no_ack", 2 * time.Second},
		{"from another system", one(simAnswer{system: 9}, nil), "no_ack", 2 * time.Second},
		{"to another target", one(simAnswer{}, toAnotherTarget), "no_ack", 2 * time.Second},
		{"for another command", one(simAnswer{}, ofAnotherCommand), "no_ack", 2 * time.Second},
		{"in progress for ever", one(simAnswer{}, inProgress), "no_ack", 2 * time.Second},
		{"in progress, then accepted", then(one(simAnswer{}, inProgress), one(simAnswer{after: 1500 * ms}, nil)), "",
			1850 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(f *flight) {
				f.aloft()
				for _, command := range []struct {
					path, body string
					id         common.MAV_CMD
				}{
					{"/goto", `{"altitude":25}`, common.MAV_CMD_DO_REPOSITION},
					{"/land", "", common.MAV_CMD_DO_SET_MODE},
				} {
					acks := 0 // of this command
					f.sim.change(func() {
						f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
							if a.Command != command.id {
								return []simAnswer{{ack: a}}
							}
							acks++
							return c.hook(a, acks-1)
						}
					})
					asked := time.Now()
					_, o := f.call("POST", command.path, command.body)
					code, _ := o["code"].(string)
					want := c.code
					if command.id == common.MAV_CMD_DO_SET_MODE { // a report proves it
						want = ""
					}
					// 20 ms for the request of PX4's home
					if took := time.Since(asked); code != want || took > c.took+20*time.Millisecond {
						f.Errorf("%s answered %v after %v, want %q within %v", command.path, o, took, want, c.took)
					}
					time.Sleep(500 * time.Millisecond)
					f.sim.change(func() { f.sim.switches().onAck = nil })
					// The next command with this id is refused. A late ack must not answer it.
					if c.code == "no_ack" && command.path == "/goto" && f.firmware == px4 {
						f.sim.change(func() {
							f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
								return opposite(a, 0)
							}
						})
						f.refused("/goto", `{"altitude":30}`, 409, "refused")
						f.sim.change(func() { f.sim.switches().onAck = nil })
					}
					time.Sleep(4 * time.Second)
				}
				f.accepted("/mode", `{"mode":"rtl"}`)
				f.wantMode("rtl")
			})
		})
	}
}

// ---- The clients ----

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

func TestLandIsInTimeWhile500DribbleAnd1000ASecondAskForTheStatus(t *testing.T) {
	seconds := 10
	if testing.Short() {
		seconds = 3
	}
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		p, end := serve(f.T, f.handler, maxConnections)
		ended := make(chan struct{})
		var clients sync.WaitGroup
		var bytes, answers, torn atomic.Int64
		for i := range 500 {
			clients.Go(func() { // sends a byte a second, never a whole request, and connects again when it is cut off
				request := "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: 2\r\n\r\n{}"
				time.Sleep(time.Duration(i) * 2 * time.Millisecond)
				var w *wire
				for n := i % 40; ; n++ {
					if w == nil {
						w = p.connect()
					}
					if _, err := io.WriteString(w, request[n%40:n%40+1]); err != nil {
						w.Close()
						w = nil
					} else {
						bytes.Add(1)
					}
					select {
					case <-ended:
						if w != nil {
							w.Close()
						}
						return
					case <-time.After(time.Second):
					}
				}
			})
		}
		for i := range 10 {
			clients.Go(func() { // asks a hundred times a second on one connection
				time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
				w := p.connect()
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for {
					w.send("GET", "/api/drone/status", "")
					if r, err := w.receive("GET"); err != nil {
						torn.Add(1)
						w.Close()
						w = p.connect()
					} else if r.status != 200 {
						f.Errorf("status answered %d", r.status)
					} else {
						answers.Add(1)
					}
					select {
					case <-ended:
						w.Close()
						return
					case <-tick.C:
					}
				}
			})
		}
		time.Sleep(2 * time.Second)
		for i := range seconds {
			// each landing at another phase of the clients' second
			time.Sleep(time.Second - time.Duration(37*i)*time.Millisecond)
			p.lands(longestLand)
		}
		close(ended)
		clients.Wait()
		end()
		f.wantMode("land")
		f.Logf("figures: %d bytes dribbled, %d status answered, %d torn, %d landings", bytes.Load(), answers.Load(),
			torn.Load(), seconds)
		if answers.Load() < int64(seconds*900) || torn.Load() > 0 {
			f.Errorf("%d answers in some %d s, %d connections torn", answers.Load(), seconds, torn.Load())
		}
	})
}

// Clients send requests and never read the answers, over connections without buffers.
func TestLandIsInTimeWhileClientsNeverRead(t *testing.T) {
	for _, c := range []struct{ name, method, path, body string }{
		{"status", "GET", "/api/drone/status", ""},
		{"a bad body", "POST", "/api/drone/goto", "{"},
		{"hold", "POST", "/api/drone/mode", `{"mode":"hold"}`},
		{"sticks", "POST", "/api/drone/input", `{"roll":0.1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				f.aloft()
				p, end := serve(f.T, f.handler, maxConnections)
				var clients sync.WaitGroup
				for range maxConnections {
					w := p.connect()
					clients.Go(func() { // without waiting for answers
						for {
							if _, err := fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: drone.local\r\nContent-Length: "+
								"%d\r\n\r\n%s", c.method, c.path, len(c.body), c.body); err != nil {
								return
							}
						}
					})
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				p.lands(longestLand)
				end()
				clients.Wait()
			})
		})
	}
}

func TestEndlessBodiesAndIncompleteRequestsBlockNothing(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		before := len(f.commands())
		p, end := serve(f.T, f.handler, maxConnections)
		var clients sync.WaitGroup
		for i := range 200 {
			w := p.connect()
			// As a kernel does, while the client still writes: a pipe has no buffer for the answer.
			clients.Go(func() { io.Copy(io.Discard, w) })
			clients.Go(func() {
				switch i % 4 {
				case 0: // blanks for ever, in chunks
					io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nTransfer-Encoding: "+
						"chunked\r\n\r\n")
					for {
						if _, err := io.WriteString(w, "10\r\n                \r\n"); err != nil {
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
				case 1: // the rest of the body never comes
					io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: "+
						"4000\r\n\r\n{")
				case 2: // closed in the middle of the body
					io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: "+
						"2\r\n\r\n{")
					w.Close()
				case 3: // headers for ever
					io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\n")
					for {
						if _, err := io.WriteString(w, "X: y\r\n"); err != nil {
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		if got := f.commands()[before:]; len(got) > 0 {
			f.Errorf("an incomplete request was carried out: %q", got)
		}
		p.lands(longestLand)
		time.Sleep(time.Minute) // every time-out has passed
		closed := make(chan struct{})
		go func() { clients.Wait(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
		default:
			f.Error("a connection is still open after a minute")
		}
		if got := f.commands()[before:]; len(got) != 1 {
			f.Errorf("one landing was requested, and the vehicle received %q", got)
		}
		end()
		<-closed
	})
}

// malformed changes a good body into one that every route must refuse.
func malformed(r *rand.Rand, good string) string {
	for {
		b := []byte(good)
		switch r.IntN(8) {
		case 0: // cut off
			b = b[:1+r.IntN(len(b)-1)]
		case 1: // one byte changed
			b[r.IntN(len(b))] = byte(r.Uint32())
		case 2: // one more byte
			i := r.IntN(len(b))
			b = append(b[:i], append([]byte{byte(r.Uint32())}, b[i:]...)...)
		case 3: // one byte less
			i := r.IntN(len(b))
			b = append(b[:i], b[i+1:]...)
		case 4: // several bytes changed
			for range 1 + r.IntN(10) {
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
		case 5: // more after the end
			b = append(b, good[r.IntN(len(good)):]...)
		case 6: // an unknown field
			return strings.Replace(good, "{", fmt.Sprintf(`{"x%x":1,`, r.Uint32()), 1)
		case 7: // a value of another kind
			kinds := []string{`[]`, `{}`, `[[[]]]`, `{"a":1}`, `[1]`}
			i := strings.Index(good, ":")
			return good[:i+1] + kinds[r.IntN(len(kinds))] + "}"
		}
		if !json.Valid(b) && strings.TrimSpace(string(b)) != "" {
			return string(b)
		}
	}
}

func TestMalformedRequestsDoNotReachTheVehicle(t *testing.T) {
	requests := 10_000
	if *runAll {
		requests = 100_000
	}
	good := []struct{ path, body string }{
		{"/api/drone/mode", `{"mode":"position"}`}, {"/api/drone/mode", `{"mode":"rtl"}`},
		{"/api/drone/mode", `{"arm":true}`},
		{"/api/drone/mode", `{"mode":"hold","arm":false}`},
		{"/api/drone/input", `{"roll":0.1,"pitch":-0.5,"throttle":0.5,"timeout":1}`},
		{"/api/drone/takeoff", `{"altitude":30}`},
		{"/api/drone/goto", `{"lat":47.3980,"lon":8.5460,"altitude":20,"heading":90,"speed":3}`},
		{"/api/drone/goto", `{"altitude_msl":510.5}`}, {"/api/drone/land", `{"lat":47.3980,"lon":8.5460}`},
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("position")
		r := rand.New(rand.NewPCG(4, 4))
		hf.untouched(func() {
			for range requests {
				g := good[r.IntN(len(good))]
				body := malformed(r, g.body)
				a := hf.post(g.path, body)
				a.want(hf.T, 400, "bad_request")
				if hf.Failed() {
					hf.Fatalf("POST %s %q", g.path, body)
				}
			}
		})
		hf.wantMode("position")
		hf.post("/api/drone/land", "").wantOK(hf.T)
	})
}

var noiseSeed = flag.Uint64("noise-seed", 1, "seed of TestNoiseAndSlowLines")

// TestNoiseAndSlowLines counts how single MAVLink commands are answered on slow lines, and on lines
// that damage bytes in both directions. docs/reliability.md has the table, which -all -v prints.
func TestNoiseAndSlowLines(t *testing.T) {
	n := 200
	if *runAll {
		n = 1000
	}
	lines := []struct {
		name                   string
		damaged                float64       // the share of the bytes that are damaged, in each direction
		trip                   time.Duration // the round trip
		leastOfAll, leastOfFew float64       // the least share that must be accepted; of few it varies more
	}{
		{"0.1 %", 0.001, 0, 0.998, 0.99}, {"0.5 %", 0.005, 0, 0.996, 0.98}, {"1 %", 0.01, 0, 0.98, 0.95},
		{"2 %", 0.02, 0, 0.8, 0.74}, {"5 %", 0.05, 0, 0.11, 0.04},
		{"20 ms", 0, 20 * time.Millisecond, 1, 1}, {"300 ms", 0, 300 * time.Millisecond, 1, 1},
		{"600 ms", 0, 600 * time.Millisecond, 1, 1},
	}
	t.Logf("seed %d", *noiseSeed)
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		for _, line := range lines {
			name := map[simFlavour]string{simPX4: "px4", simArduPilot: "ardupilot"}[flavour] + " " + line.name
			t.Run(name, func(t *testing.T) {
				// a Copter's goto is then followed by no speed
				oneCommand := func(s *simulator) { delete(s.params, "WPNAV_SPEED") }
				fly(t, flavour, oneCommand, func(f *flight) {
					c := answeredOn(f, n, line.damaged, line.trip)
					t.Logf("%s: %s", name, c)
					if c.falsely > 0 {
						t.Errorf("%d answers were false", c.falsely)
					}
					least := map[bool]float64{false: line.leastOfFew, true: line.leastOfAll}[*runAll]
					if got := float64(c.accepted) / float64(n); got < least {
						t.Errorf("%.3f of the commands were accepted, want %.3f; -noise-seed was %d", got, least,
							*noiseSeed)
					}
				})
			})
		}
	}
}

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
