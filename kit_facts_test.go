package main

// The facts of docs/autopilots.md that the program relies on are tested by probes. A probe is
// an exchange of plain MAVLink over two links (the link that mavrest would have, and a ground
// station's), and an expectation: the measured range and a margin. go test runs all probes
// on the simulators, in virtual time. With -fly, -autopilot and -observer they are flown on a
// real autopilot (make facts).

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialect"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
	"github.com/bluenviron/gomavlib/v3/pkg/streamwriter"
)

var (
	flyFacts       flyFlag
	factsAutopilot = flag.String("autopilot", "", "the autopilot of TestFacts, a value of mavrest's -device")
	factsObserver  = flag.String("observer", "", "a second link to the same autopilot, a ground station's")
	factsRadio     = flag.String("transmitter", "", "ArduPilot's SITL: host:port of its receiver, 127.0.0.1:5501")
	factsSlack     = flag.Duration("slack", 0,
		"how much later than measured an answer may come on a loaded computer; such a run does not prove the times "+
			"in ms")
	factsOnly = flag.String("facts", "", "only facts whose name contains this")
)

func init() {
	flag.Var(&flyFacts, "fly", "arm and fly the vehicle of -autopilot, if it looks simulated; -fly=real flies any "+
		"vehicle")
}

// flyFlag is a boolean flag that also takes a word.
type flyFlag string

func (f *flyFlag) String() string     { return string(*f) }
func (f *flyFlag) Set(s string) error { *f = flyFlag(s); return nil }
func (f *flyFlag) IsBoolFlag() bool   { return true }

// craft is the class of a vehicle.
type craft string

const (
	onPX4       craft = "PX4"
	onCopter    craft = "Copter"
	onQuadPlane craft = "QuadPlane"
	onPlane     craft = "Plane"
	onPX4Plane  craft = "PX4 plane"
	onPX4VTOL   craft = "PX4 VTOL"
	onPX4Rover  craft = "PX4 rover"
)

func (c craft) isPX4() bool { return strings.HasPrefix(string(c), string(onPX4)) }

var craftFlavours = map[craft]simFlavour{
	onPX4: simPX4, onCopter: simArduPilot, onQuadPlane: simQuadPlane, onPlane: simPlane,
	onPX4Plane: simPX4Plane, onPX4VTOL: simPX4VTOL, onPX4Rover: simPX4Rover,
}

// startState is the state in which a probe begins.
type startState string

const (
	ground startState = "ground" // disarmed, ready to be armed, in the mode that holds
	air    startState = "air"    // 15 m above home in the mode that holds; no sticks in this flight
	handed startState = "handed" // like air, and a centred stream of sticks has run for 2.2 s
	boot   startState = "boot"   // just switched on
)

const probeHeight = 15.0

// probe is one fact.
type probe struct {
	heading string // in docs/autopilots.md
	on      craft
	since   release // the first release that the fact is about; zero: there is no first
	until   release // the last release that it is about; zero: there is no last
	from    startState
	fact    string
	run     func(v *probed)
}

// name is what -facts chooses by.
func (p probe) name() string { return string(p.on) + "/" + p.heading + "/" + p.fact }

// release is an autopilot's version without its patch level: 1.17, 4.6.
type release struct{ major, minor int }

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) before(other release) bool {
	return r.major < other.major || r.major == other.major && r.minor < other.minor
}

// about reports whether the fact is about a release.
func (p probe) about(r release) bool {
	return !r.before(p.since) && (p.until == release{} || !p.until.before(r))
}

// versions returns "since 1.17", "until 1.16", or both.
func (p probe) versions() string {
	var words []string
	if p.since != (release{}) {
		words = append(words, "since "+p.since.String())
	}
	if p.until != (release{}) {
		words = append(words, "until "+p.until.String())
	}
	return strings.Join(words, ", ")
}

// factHeard is a message and when it came.
type factHeard struct {
	at  time.Time
	msg message.Message
}

// factLink is one link to the vehicle.
type factLink struct {
	port              port
	w                 *streamwriter.Writer
	system, component uint8
	mu                sync.Mutex // guards w and everything below
	from              uint8      // the vehicle's system
	to                netip.AddrPort
	got               []factHeard
}

// Write sends a frame. On udpin it goes to the address from which a heartbeat came last.
func (l *factLink) Write(b []byte) (int, error) {
	if p, ok := l.port.(addressedPort); ok {
		return p.writeTo(b, l.to)
	}
	return l.port.Write(b)
}

// factDialect has the simulator's dialect, and the messages of missions and setpoints, which only a probe sends.
var factDialect = sync.OnceValue(func() *dialect.ReadWriter {
	return newDialect(append(slices.Clone(simDialect().Dialect.Messages), &common.MessageMissionCount{},
		&common.MessageMissionRequest{}, &common.MessageMissionRequestInt{}, &common.MessageMissionItemInt{},
		&common.MessageMissionAck{}, &common.MessageSetPositionTargetLocalNed{})...)
})

func newFactLink(p port, system, component uint8) *factLink {
	l := &factLink{port: p, system: system, component: component}
	l.w = &streamwriter.Writer{
		FrameWriter: &frame.Writer{ByteWriter: l, DialectRW: factDialect()},
		Version:     streamwriter.V2, SystemID: system, ComponentID: component,
	}
	if err := errors.Join(l.w.FrameWriter.Initialize(), l.w.Initialize()); err != nil {
		panic(err)
	}
	return l
}

func (l *factLink) listen() {
	r := frame.Reader{BufByteReader: bufio.NewReaderSize(l.port, 1<<16), DialectRW: factDialect()}
	if err := r.Initialize(); err != nil {
		panic(err)
	}
	for {
		f, err := r.Read()
		var noise frame.ReadError
		switch {
		case errors.As(err, &noise):
			continue
		case err != nil:
			return
		}
		if f.GetComponentID() != autopilotID {
			continue
		}
		l.mu.Lock()
		if p, ok := l.port.(addressedPort); ok && f.GetMessage().GetID() == 0 {
			l.to = p.sender()
		}
		l.got = append(l.got, factHeard{time.Now(), f.GetMessage()})
		l.from = f.GetSystemID()
		if len(l.got) > 20000 {
			l.got = slices.Clone(l.got[10000:])
		}
		l.mu.Unlock()
	}
}

// sendAs sends a message with these ids.
func (l *factLink) sendAs(system, component uint8, msg message.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.SystemID, l.w.ComponentID = system, component
	_ = l.w.Write(msg) // if the link is gone, a missing answer shows it
}

func (l *factLink) send(msg message.Message) { l.sendAs(l.system, l.component, msg) }

// since returns the messages that came since a moment.
func (l *factLink) since(t time.Time) []factHeard {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.got)
	for i > 0 && !l.got[i-1].at.Before(t) {
		i--
	}
	return slices.Clone(l.got[i:])
}

// factSince returns the messages of one type that came since a moment.
func factSince[M message.Message](l *factLink, t time.Time) (all []M) {
	for _, h := range l.since(t) {
		if m, ok := h.msg.(M); ok {
			all = append(all, m)
		}
	}
	return all
}

// probed is the vehicle of a probe and its two links.
type probed struct {
	craft
	system      uint8
	ours, pilot *factLink
	sim         *simulator // nil for a real autopilot
	radio       net.Conn   // to the receiver of ArduPilot's SITL; nil without -transmitter
	sticks      *factSticks
	release     release
	polling     func() // ends the polling of a PX4 without CURRENT_MODE; nil while it does not run
	setpoints   func() // ends a stream of them; nil while it does not run
	homeAtFirst *common.MessageHomePosition
	hadSticks   bool     // sticks were sent in this flight
	report      []string // what was measured
	faults      []string
	skipped     string
}

// factSticks is a stream of MANUAL_CONTROL at 20 Hz.
type factSticks struct {
	mu   sync.Mutex
	axes [4]int16
	end  func()
}

type factStop struct{} // a panic with it ends a probe

func (v *probed) fail(format string, a ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, a...))
}

func (v *probed) must(ok bool, format string, a ...any) {
	if !ok {
		v.fail(format, a...)
		panic(factStop{})
	}
}

func (v *probed) skip(why string) {
	v.skipped = why
	panic(factStop{})
}

// within expects a number in the measured range, widened by a margin on both sides.
func (v *probed) within(what string, got, low, high, margin float64) {
	v.report = append(v.report, fmt.Sprintf("%s %.4g", what, got))
	if !(got >= low-margin && got <= high+margin) {
		v.fail("%s: %.4g, measured %.4g to %.4g, margin %.4g", what, got, low, high, margin)
	}
}

func (v *probed) ms(what string, d time.Duration, low, high, margin float64) {
	v.within(what+" ms", float64(d.Microseconds())/1000, low, high+float64(factsSlack.Milliseconds()), margin)
}

func (v *probed) equal(what string, got, want any) {
	v.report = append(v.report, fmt.Sprintf("%s %v", what, got))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		v.fail("%s: %v, want %v", what, got, want)
	}
}

// await waits for a message that came after since, and returns when it came.
func (v *probed) await(l *factLink, since time.Time, most time.Duration, is func(message.Message) bool) (time.Time,
	bool) {
	for end := time.Now().Add(most); ; time.Sleep(500 * time.Microsecond) {
		for _, h := range l.since(since) {
			if is(h.msg) {
				return h.at, true
			}
		}
		if time.Now().After(end) {
			return time.Time{}, false
		}
	}
}

// first waits for a message on our link, which must come. It returns when the message came.
func (v *probed) first(what string, since time.Time, most time.Duration, is func(message.Message) bool) time.Time {
	at, ok := v.await(v.ours, since, most, is)
	v.must(ok, "%s: it does not come within %v", what, most)
	return at
}

// ---- Exchanges ----

func factLong(system uint8, id common.MAV_CMD, p ...float64) *common.MessageCommandLong {
	p = append(p, make([]float64, 7-len(p))...)
	return &common.MessageCommandLong{
		TargetSystem: system, TargetComponent: 1, Command: id,
		Param1: float32(p[0]), Param2: float32(p[1]), Param3: float32(p[2]), Param4: float32(p[3]),
		Param5: float32(p[4]), Param6: float32(p[5]), Param7: float32(p[6]),
	}
}

// factAnswer has the acks of a command: their results, and their times after the command.
type factAnswer struct {
	sent    time.Time
	results []common.MAV_RESULT
	after   []time.Duration
}

// last returns the result of the last ack; MaxUint8 if no ack came. PX4 acknowledges DO_SET_MODE
// twice, and the second ack counts.
func (a factAnswer) last() common.MAV_RESULT {
	if len(a.results) == 0 {
		return math.MaxUint8
	}
	return a.results[len(a.results)-1]
}

// exchange sends a command and collects its acks for 0.3 s. If none came it waits on, for 1.5 s
// in all, because a simulated autopilot on a loaded computer may be late.
func (v *probed) exchange(l *factLink, id common.MAV_CMD, msg message.Message) (a factAnswer) {
	v.must(v.craft.isPX4() || isFinite(msg), "the probe sends %v a number that is not finite", v.craft)
	a.sent = time.Now()
	l.send(msg)
	time.Sleep(300 * time.Millisecond)
	v.await(l, a.sent, 1200*time.Millisecond, factAck(id))
	for _, h := range l.since(a.sent) {
		if ack, ok := h.msg.(*common.MessageCommandAck); ok && ack.Command == id {
			a.results = append(a.results, ack.Result)
			a.after = append(a.after, h.at.Sub(a.sent))
		}
	}
	return a
}

// isFinite reports whether each number of a command is: no probe sends an ArduPilot another.
func isFinite(m message.Message) bool {
	var numbers []float32
	switch m := m.(type) {
	case *common.MessageCommandLong:
		numbers = []float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Param5, m.Param6, m.Param7}
	case *common.MessageCommandInt:
		numbers = []float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Z}
	}
	return !slices.ContainsFunc(numbers, func(x float32) bool {
		return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0)
	})
}

func factAck(id common.MAV_CMD) func(message.Message) bool {
	return func(m message.Message) bool {
		ack, ok := m.(*common.MessageCommandAck)
		return ok && ack.Command == id
	}
}

func (v *probed) command(id common.MAV_CMD, p ...float64) factAnswer {
	return v.exchange(v.ours, id, factLong(v.system, id, p...))
}

// repositionTo sends a goto to a place in degE7.
func (v *probed) repositionTo(f common.MAV_FRAME, speed, p2, yaw float64, lat, lon int32, z float64) factAnswer {
	return v.exchange(v.ours, simGoto, &common.MessageCommandInt{
		TargetSystem: v.system, TargetComponent: 1, Command: simGoto, Frame: f,
		Param1: float32(speed), Param2: float32(p2), Param4: float32(yaw), X: lat, Y: lon, Z: float32(z),
	})
}

// reposition sends a goto to a place in metres from home.
func (v *probed) reposition(f common.MAV_FRAME, speed, p2, yaw, north, east, z float64) factAnswer {
	lat, lon := v.e7(north, east)
	return v.repositionTo(f, speed, p2, yaw, lat, lon, z)
}

func (v *probed) modeMessage(mode uint32) message.Message {
	if v.craft.isPX4() {
		return factLong(v.system, simSetMode, 1, float64(mode>>16&0xff), float64(mode>>24))
	}
	return factLong(v.system, simSetMode, 1, float64(mode))
}

func (v *probed) setMode(mode uint32) factAnswer {
	return v.exchange(v.ours, simSetMode, v.modeMessage(mode))
}

// pilotSets sets a mode as a pilot does, over the second link.
func (v *probed) pilotSets(mode uint32) factAnswer {
	return v.exchange(v.pilot, simSetMode, v.modeMessage(mode))
}

// ask requests a message, up to three times if it does not come.
func (v *probed) ask(id uint32) (m message.Message) {
	for try := 0; try < 3 && m == nil; try++ {
		sent := time.Now()
		v.ours.send(factLong(v.system, common.MAV_CMD_REQUEST_MESSAGE, float64(id)))
		v.await(v.ours, sent, 300*time.Millisecond, func(got message.Message) bool {
			if got.GetID() == id {
				m = got
			}
			return m != nil
		})
	}
	return m
}

// mustAsk requests a message that must come.
func mustAsk[M message.Message](v *probed) M {
	var m M
	m, ok := v.ask(m.GetID()).(M)
	v.must(ok, "no %T comes", m)
	return m
}

func (v *probed) beat() *common.MessageHeartbeat {
	for range 5 {
		if m, ok := v.ask(0).(*common.MessageHeartbeat); ok {
			return m
		}
	}
	v.must(false, "no heartbeat comes")
	return nil
}

func (v *probed) mode() uint32 { return v.beat().CustomMode }

func (v *probed) armed() bool { return beatIsArmed(true)(v.beat()) }

// beatIsArmed matches a heartbeat that says armed, or that says disarmed.
func beatIsArmed(armed bool) func(message.Message) bool {
	return func(m message.Message) bool {
		h, ok := m.(*common.MessageHeartbeat)
		return ok && (h.BaseMode&common.MAV_MODE_FLAG_SAFETY_ARMED != 0) == armed
	}
}

// spot is a place, in metres north of, east of and above home, and a speed in m/s.
type spot struct{ north, east, up, speed float64 }

// off is the distance to another spot, over ground.
func (s spot) off(other spot) float64 { return math.Hypot(s.north-other.north, s.east-other.east) }

// place returns where the vehicle is. Its height is computed from AMSL, by which it flies.
func (v *probed) place() spot {
	m := mustAsk[*common.MessageGlobalPositionInt](v)
	north, east := v.metres(m.Lat, m.Lon)
	return spot{north, east, float64(m.Alt)/1000 - v.homeAlt(), math.Hypot(float64(m.Vx), float64(m.Vy)) / 100}
}

// home returns the home that the vehicle had when the probe first requested it. PX4 moves home by
// a metre or two now and then.
func (v *probed) home() *common.MessageHomePosition {
	if v.homeAtFirst == nil {
		v.homeAtFirst = mustAsk[*common.MessageHomePosition](v)
	}
	return v.homeAtFirst
}

func (v *probed) homeAlt() float64 { return float64(v.home().Altitude) / 1000 }

func (v *probed) metres(lat, lon int32) (north, east float64) {
	h := v.home()
	return float64(lat-h.Latitude) / 1e7 * simDegree,
		float64(lon-h.Longitude) / 1e7 * simDegree * math.Cos(float64(lat)/1e7*math.Pi/180)
}

// e7 is a place in metres from home.
func (v *probed) e7(north, east float64) (lat, lon int32) {
	h := v.home()
	return h.Latitude + int32(north/simDegree*1e7),
		h.Longitude + int32(east/simDegree/math.Cos(float64(h.Latitude)/1e7*math.Pi/180)*1e7)
}

// flyTo sends a goto to a height AMSL that keeps the heading, as mavrest does.
func (v *probed) flyTo(north, east, up float64) factAnswer {
	yaw := 0.0
	if v.craft.isPX4() {
		yaw = math.NaN()
	}
	return v.reposition(common.MAV_FRAME_GLOBAL, -1, 1, yaw, north, east, v.homeAlt()+up)
}

// until waits for a condition, which it checks ten times a second.
func (v *probed) until(most time.Duration, done func() bool) (took time.Duration, ok bool) {
	began := time.Now()
	for !done() {
		if time.Since(began) > most {
			return most, false
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(began), true
}

// disarms waits until the vehicle is disarmed, and returns how long that took.
func (v *probed) disarms(most time.Duration) time.Duration {
	took, ok := v.until(most, func() bool { return !v.armed() })
	v.must(ok, "it is still armed after %v", most)
	return took
}

func (v *probed) arrives(north, east, up, near float64) {
	distance := func(s spot) float64 { return math.Hypot(s.off(spot{north: north, east: east}), s.up-up) }
	_, ok := v.until(time.Minute, func() bool {
		s := v.place()
		return distance(s) < near && s.speed < 0.7
	})
	s := v.place()
	v.report = append(v.report, fmt.Sprintf("off by %.2g m", distance(s)))
	v.must(ok, "at %.1f %.1f %.1f, want %.1f %.1f %.1f", s.north, s.east, s.up, north, east, up)
}

// readParam asks for a parameter.
func (v *probed) readParam(name string) (value float64, ok bool) {
	sent := time.Now()
	v.ours.send(&common.MessageParamRequestRead{TargetSystem: v.system, TargetComponent: 1, ParamId: name,
		ParamIndex: -1})
	_, ok = v.await(v.ours, sent, 2*time.Second, func(m message.Message) bool {
		p, answers := m.(*common.MessageParamValue)
		if answers = answers && p.ParamId == name; answers {
			value = float64(p.ParamValue)
		}
		return answers
	})
	return value, ok
}

// highestInRTL returns the height that a return reaches before it sinks, or in 40 s.
func (v *probed) highestInRTL(rtl uint32) (highest float64) {
	v.must(v.setMode(rtl).last() == simAccepted, "no return")
	v.until(40*time.Second, func() bool {
		up := v.place().up
		highest = max(highest, up)
		return up < highest-1
	})
	return highest
}

func (v *probed) setParam(name string, value float64) {
	m := &common.MessageParamSet{
		TargetSystem: v.system, TargetComponent: 1, ParamId: name,
		ParamValue: float32(value), ParamType: common.MAV_PARAM_TYPE_REAL32,
	}
	if v.craft.isPX4() && name != simStickSpeed {
		m.ParamValue, m.ParamType = math.Float32frombits(uint32(int32(value))), common.MAV_PARAM_TYPE_INT32
	}
	sent := time.Now()
	v.pilot.send(m)
	_, ok := v.await(v.pilot, sent, 2*time.Second, func(m message.Message) bool {
		p, ok := m.(*common.MessageParamValue)
		return ok && p.ParamId == name
	})
	v.must(ok, "parameter %s is not answered", name)
}

// stick starts the stream with these axes, or changes its axes.
func (v *probed) stick(x, y, z, r int16) {
	if v.sticks != nil {
		v.sticks.mu.Lock()
		defer v.sticks.mu.Unlock()
		v.sticks.axes = [4]int16{x, y, z, r}
		return
	}
	v.hadSticks = true
	s := &factSticks{axes: [4]int16{x, y, z, r}}
	v.sticks = s
	system := v.system
	if !v.craft.isPX4() {
		system = 255 // SYSID_MYGCS: ArduPilot obeys only its sticks
	}
	s.end = repeat(50*time.Millisecond, func() {
		s.mu.Lock()
		a := s.axes
		s.mu.Unlock()
		v.ours.sendAs(system, componentID, &common.MessageManualControl{Target: v.system, X: a[0], Y: a[1], Z: a[2],
			R: a[3]})
	})
}

// keepSticks streams these axes, and returns after d while the stream goes on.
func (v *probed) keepSticks(d time.Duration, x, y, z, r int16) {
	v.stick(x, y, z, r)
	time.Sleep(d)
}

func (v *probed) centre(d time.Duration) { v.keepSticks(d, 0, 0, 500, 0) }

// silence ends the stream.
func (v *probed) silence() {
	if v.sticks != nil {
		v.sticks.end()
		v.sticks = nil
	}
}

// repeat calls do at once and after each interval. end stops that, and returns when do will not be
// called again.
func repeat(every time.Duration, do func()) (end func()) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			do()
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(stop)
		running.Wait()
	}
}

// live requests live reports of the mode on our link. From a PX4 without CURRENT_MODE it requests
// HEARTBEAT 250 times a second until the probe ends.
func (v *probed) live() {
	if v.craft.isPX4() && v.release.before(release{1, 15}) {
		if v.polling == nil {
			v.polling = repeat(4*time.Millisecond, func() {
				v.ours.send(factLong(v.system, common.MAV_CMD_REQUEST_MESSAGE, 0))
			})
		}
		return
	}
	id, every := 436.0, 10000.0
	if !v.craft.isPX4() {
		id, every = 0, 50000
	}
	a := v.command(simInterval, id, every)
	v.must(a.last() == simAccepted, "the request of live reports is answered %v", a.results)
}

// shows matches a live report of a mode.
func (v *probed) shows(mode uint32) func(message.Message) bool {
	return func(m message.Message) bool {
		switch m := m.(type) {
		case *common.MessageCurrentMode:
			return v.craft.isPX4() && m.CustomMode == mode
		case *common.MessageHeartbeat:
			return (!v.craft.isPX4() || v.polling != nil) && m.CustomMode == mode
		}
		return false
	}
}

// shown waits for a live report of a mode, which must come. It returns when the report came.
func (v *probed) shown(mode uint32, since time.Time, most time.Duration) time.Time {
	return v.first(fmt.Sprintf("the report of mode %#x", mode), since, most, v.shows(mode))
}

// rate counts messages with an id, over some seconds.
func (v *probed) rate(l *factLink, id uint32, seconds int) float64 {
	began := time.Now()
	time.Sleep(time.Duration(seconds) * time.Second)
	n := 0
	for _, h := range l.since(began) {
		if h.msg.GetID() == id {
			n++
		}
	}
	return float64(n) / float64(seconds)
}

func (v *probed) texts(since time.Time) string {
	var s strings.Builder
	for _, m := range factSince[*common.MessageStatustext](v.ours, since) {
		s.WriteString(m.Text + "\n")
	}
	return s.String()
}

// transmit sets the channels of the pilot's transmitter, in µs and in ArduPilot's order.
func (v *probed) transmit(us [8]uint16) {
	switch {
	case v.sim != nil:
		v.sim.change(func() {
			v.sim.receiver, v.sim.rcSwitch = simReceiverInHand, us[4]
			v.sim.rc = [4]int16{2 * (1500 - int16(us[1])), 2 * (int16(us[0]) - 1500), int16(us[2]) - 1000,
				2 * (int16(us[3]) - 1500)}
		})
	case v.radio != nil:
		var b [16]byte
		for i, u := range us {
			binary.LittleEndian.PutUint16(b[2*i:], u)
		}
		_, _ = v.radio.Write(b[:])
	default:
		v.skip("no transmitter")
	}
}

var (
	radioIdle = [8]uint16{1500, 1500, 1000, 1500, 1800, 1000, 1000, 1800}
	radioHand = [8]uint16{1500, 1500, 1500, 1500, 1800, 1000, 1000, 1800}
)

// ---- Start states ----

func (v *probed) holdMode() uint32 {
	switch v.craft {
	case onPX4, onPX4Plane, onPX4VTOL, onPX4Rover:
		return simPX4Loiter
	case onCopter:
		return simArduGuided
	}
	return simPlaneGuided
}

// toGround lands, and waits until the vehicle can be armed.
func (v *probed) toGround() {
	v.silence()
	if v.armed() {
		land, ok := map[craft]uint32{onPX4: simPX4Land, onPX4Plane: simPX4Land, onPX4VTOL: simPX4Land,
			onPX4Rover: simPX4Land, onCopter: simArduLand, onQuadPlane: simPlaneQLand}[v.craft]
		if !ok {
			v.skip("a Plane does not land on command: it flies on in its mode")
		}
		v.setMode(land)
		v.disarms(3 * time.Minute)
	}
	if v.hadSticks && v.sim == nil {
		time.Sleep(2 * time.Second) // until earlier sticks are forgotten
	}
	v.hadSticks = false
	v.setMode(v.holdMode())
	_, ok := v.until(2*time.Minute, func() bool {
		m, ok := v.ask(1).(*common.MessageSysStatus)
		return ok && m.OnboardControlSensorsHealth&common.MAV_SYS_STATUS_PREARM_CHECK != 0
	})
	v.must(ok, "it can't be armed: %s", v.texts(time.Now().Add(-time.Minute)))
}

// takeOff climbs to a height and waits until it is there.
func (v *probed) takeOff(up float64) {
	v.setMode(v.holdMode())
	a := v.command(simArm, 1)
	v.must(a.last() == simAccepted, "arming: %v %s", a.results, v.texts(a.sent))
	if v.craft.isPX4() {
		a = v.takeOffHere(up + v.homeAlt())
	} else {
		a = v.command(simTakeoff, 0, 0, 0, 0, 0, 0, up)
	}
	v.must(a.last() == simAccepted, "takeoff: %v", a.results)
	_, ok := v.until(time.Minute, func() bool { return math.Abs(v.place().up-up) < 1 })
	v.must(ok, "it does not climb")
	time.Sleep(3 * time.Second)
}

// takeOffHere commands a takeoff without a place.
func (v *probed) takeOffHere(amsl float64) factAnswer {
	open := math.NaN()
	return v.command(simTakeoff, open, open, open, open, open, open, amsl)
}

// toAir brings the vehicle to 15 m above home. PX4 forgets sticks only on the ground.
func (v *probed) toAir() {
	v.silence()
	if v.craft == onPlane { // it circles
		v.toCircle()
		return
	}
	if v.craft.isPX4() && v.hadSticks || !v.armed() {
		v.toGround()
		v.takeOff(probeHeight)
	}
	v.setMode(v.holdMode())
	v.toHome(0.5)
}

// toCircle brings a Plane into the air, where it circles in GUIDED. It does not land on command.
func (v *probed) toCircle() {
	if !v.armed() {
		v.toGround()
		v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
		v.must(v.setMode(simPlaneTakeoff).last() == simAccepted, "no TAKEOFF")
		_, ok := v.until(time.Minute, func() bool { return v.place().up > 40 })
		v.must(ok, "it does not climb")
	}
	v.setMode(simPlaneGuided)
}

// toHome flies the vehicle over home if it is elsewhere or too fast.
func (v *probed) toHome(fastest float64) {
	if s := v.place(); s.off(spot{}) > 3 || math.Abs(s.up-probeHeight) > 1 || s.speed > fastest {
		v.flyTo(0, 0, probeHeight)
		v.arrives(0, 0, probeHeight, 1.5)
	}
}

// toHanded brings the vehicle into the air with a stream of sticks. The stream goes on from probe
// to probe, because PX4 returns home when it ends.
func (v *probed) toHanded() {
	if v.sim == nil && (v.sticks == nil || !v.armed()) {
		v.toAir()
	}
	v.centre(2200 * time.Millisecond)
	v.setMode(v.holdMode())
	v.toHome(math.Inf(1))
}

// fly runs one probe. begin brings the vehicle into the state that the probe begins in.
func (v *probed) fly(p probe, begin func()) {
	defer func() {
		if v.polling != nil {
			v.polling()
			v.polling = nil
		}
		if v.setpoints != nil {
			v.setpoints()
			v.setpoints = nil
		}
		if p.from == handed && v.sim == nil && v.sticks != nil {
			v.stick(0, 0, 500, 0)
		} else {
			v.silence()
		}
		if r := recover(); r != nil {
			if _, ours := r.(factStop); !ours {
				panic(r)
			}
		}
	}()
	v.homeAtFirst = nil
	begin()
	v.report = nil
	if p.run != nil {
		p.run(v)
	}
}

// ---- On the simulators ----

// simulate flies a probe on a simulator of a release that has the probe's fact. A PX4 is of the newest such
// release: the simulated one is new, and is made older. A Copter is of the oldest: it is old, and made newer.
func (p probe) simulate(t *testing.T, prepare func(*simulator)) *probed {
	s := newTestSimulator(craftFlavours[p.on])
	if !p.on.isPX4() {
		simSlowBoot(s)
	}
	s.params["Q_GUIDED_MODE"] = 1 // a QuadPlane hovers in GUIDED
	switch {
	case p.on == onPX4 && p.until != (release{}):
		ofPX4(uint32(p.until.major)<<24 | uint32(p.until.minor)<<16)(s)
	case p.on == onPX4 && !p.since.before(release{1, 18}):
		ofPX4(simPX4v18)(s)
	case p.on == onCopter && p.since != (release{}):
		newerCopter(p.since)(s)
	}
	if prepare != nil {
		prepare(s)
	}
	end, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	v := &probed{craft: p.on, system: simSystem, sim: s, release: releaseOf(s.version)}
	v.ours, v.pilot = newFactLink(end, simSystem, componentID), newFactLink(s.openGCS(), 255, 190)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx) })
	wg.Go(v.ours.listen)
	wg.Go(v.pilot.listen)
	defer wg.Wait()
	defer cancel()
	defer repeat(time.Second, v.companionBeat)()
	v.fly(p, func() {
		switch p.from {
		case ground:
			v.toReady()
		case air, handed:
			v.toReady()
			s.placeInAir(probeHeight)
			time.Sleep(time.Second)
			if p.from == handed {
				v.toHanded()
			}
		}
	})
	return v
}

// toReady waits until a simulator can be armed.
func (v *probed) toReady() {
	time.Sleep(v.sim.armableAfter + 2500*time.Millisecond)
	v.setMode(v.holdMode())
}

// companionBeat sends the heartbeat of a companion computer.
func (v *probed) companionBeat() {
	v.ours.send(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
}

// ---- On a real autopilot ----

func flyTheFacts(t *testing.T) {
	v, version := meet(t)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer table.Flush()
	counts := map[string]int{}
	otherVersions := 0
	for _, from := range []startState{ground, air, handed, boot} {
		for _, p := range allProbes() {
			name := p.heading + ": " + p.fact
			if p.on != v.craft || p.from != from || !strings.Contains(p.name(), *factsOnly) {
				continue
			}
			if !p.about(v.release) {
				otherVersions++
				fmt.Fprintf(table, "%s %s\t%s\t\tskip: %s\t\n", v.craft, version, name, p.versions())
				continue
			}
			began := time.Now()
			v.faults, v.skipped, v.report = nil, "", nil
			v.fly(p, func() {
				switch p.from {
				case ground:
					v.toGround()
				case air:
					v.toAir()
				case handed:
					v.toHanded()
				case boot:
					v.skip("needs a restart")
				}
			})
			result := "pass"
			switch {
			case v.skipped != "":
				result = "skip: " + v.skipped
			case len(v.faults) > 0:
				result = "FAIL: " + strings.Join(v.faults, "; ")
				t.Errorf("%s: %s", name, result)
			}
			counts[result[:4]]++ // pass, skip or FAIL
			fmt.Fprintf(table, "%s %s\t%s\t%s\t%s\t%.1f s\n", v.craft, version, name, strings.Join(v.report, ", "),
				result, time.Since(began).Seconds())
			table.Flush()
			if m, ok := v.ask(30).(*common.MessageAttitude); ok && math.Abs(float64(m.Roll)) > 1.2 {
				t.Fatalf("%s: the vehicle has CRASHED: it lies on its side", name)
			}
		}
	}
	if len(counts)+otherVersions == 0 {
		t.Fatalf("no fact of a %s has a name that contains %q", v.craft, *factsOnly)
	}
	v.faults = nil
	if v.fly(probe{}, v.toGround); len(v.faults) > 0 {
		t.Errorf("after the last fact: %v", v.faults)
	}
	table.Flush()
	fmt.Printf("%s %s: %d of %d passed, %d skipped, %d about other versions\n", v.craft, version,
		counts["pass"], counts["pass"]+counts["FAIL"], counts["skip"], otherVersions)
}

// releaseOf reads AUTOPILOT_VERSION's number.
func releaseOf(version uint32) release {
	return release{int(version >> 24), int(version >> 16 & 0xff)}
}

// meet opens both links and finds out which autopilot answers.
func meet(t *testing.T) (v *probed, version string) {
	open := func(name string) port {
		p, err := mustDevice(t, name, 0).open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	v = &probed{system: simSystem}
	v.ours, v.pilot = newFactLink(open(*factsAutopilot), simSystem, componentID), newFactLink(open(*factsObserver),
		255, 190)
	go v.ours.listen()
	go v.pilot.listen()
	var h *common.MessageHeartbeat
	for began := time.Now(); h == nil; time.Sleep(100 * time.Millisecond) {
		if all := factSince[*common.MessageHeartbeat](v.ours, began); len(all) > 0 {
			h = all[0]
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%s: no autopilot was heard in 10 s", *factsAutopilot)
		}
	}
	v.system = v.ours.heardSystem()
	v.ours.system = v.system
	t.Cleanup(repeat(time.Second, v.companionBeat))
	v.pilot.send(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
	v.craft = onPX4
	if kind, ok := px4Crafts[h.Type]; ok {
		v.craft = kind
	}
	if h.Autopilot == common.MAV_AUTOPILOT_ARDUPILOTMEGA {
		v.craft = onCopter
		if h.Type == common.MAV_TYPE_FIXED_WING {
			v.craft = onPlane
			if e, ok := v.ask(245).(*common.MessageExtendedSysState); ok && e.VtolState != 0 {
				v.craft = onQuadPlane
			}
		}
	}
	m, ok := v.ask(148).(*common.MessageAutopilotVersion)
	if !ok {
		t.Fatal("no AUTOPILOT_VERSION comes, so it is unknown which facts are about this release")
	}
	v.release = releaseOf(m.FlightSwVersion)
	version = fmt.Sprintf("%v.%d", v.release, m.FlightSwVersion>>8&0xff)
	if flyFacts != "real" && !v.looksSimulated() {
		t.Fatal("this does not look like a simulated vehicle; -fly=real flies it all the same. Take the propellers " +
			"off.")
	}
	if *factsRadio != "" {
		var err error
		if v.radio, err = net.Dial("udp", *factsRadio); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { v.radio.Close() })
	}
	return v, version
}

// looksSimulated reports whether the vehicle has a parameter of PX4's SIH or of ArduPilot's
// SITL, which no real vehicle has.
func (v *probed) looksSimulated() bool {
	names := []string{"SIH_MASS", "SIM_SPEEDUP"}
	for range 5 { // ArduPlane may still be starting
		sent := time.Now()
		for _, name := range names {
			v.ours.send(&common.MessageParamRequestRead{TargetSystem: v.system, TargetComponent: 1, ParamId: name,
				ParamIndex: -1})
		}
		if _, ok := v.await(v.ours, sent, 3*time.Second, func(m message.Message) bool {
			p, ok := m.(*common.MessageParamValue)
			return ok && slices.Contains(names, p.ParamId)
		}); ok {
			return true
		}
	}
	return false
}

func (l *factLink) heardSystem() uint8 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.from
}

// A probe that exists for each mode is on the page once, with the word MODE instead of the mode.
var modeInFront = regexp.MustCompile(`^[A-Z_.]+( disarmed| can| in the air| while)`) // becomes "MODE disarmed"
var modeOfPilot = regexp.MustCompile(`a pilot's \w+`)                                // becomes "a pilot's MODE"

var factsMutants = flag.Bool("mutants", false,
	"TestEachProbeCanFail: run each probe on wrong simulators, for a minute or two")

// mutants are simulators that are wrong in one respect.
var mutants = []struct {
	name string
	make func(s *simulator)
}{
	{"modes that can be armed can't, and the others can",
		func(s *simulator) { s.eachMode(func(m *simMode) { m.noArm = !m.noArm }) }},
	{"modes that are accepted only on the ground are accepted in the air",
		func(s *simulator) { s.eachMode(func(m *simMode) { m.disarmedOnly, m.refused = false, false }) }},
	{"every mode is refused", func(s *simulator) { s.eachMode(func(m *simMode) { m.refused = true }) }},
	{"it has no live reports", func(s *simulator) { s.noLiveMode = true }},
	{"its parameters choose other sticks", func(s *simulator) {
		s.params["COM_RC_OVERRIDE"], s.params["COM_RC_IN_MODE"], s.params["SYSID_MYGCS"] = 0, 1, simSystem
	}},
	{"it lands four times as fast and stops late", func(s *simulator) {
		s.landSpeed, s.brake, s.early, s.soft = 4*s.landSpeed, s.brake/4, 3, 0
		s.params["WPNAV_SPEED"], s.params["WP_SPD"] = 300, 3
	}},
	{"its sticks are slow and it falls slowly", func(s *simulator) {
		s.stickSpeed, s.stickUp,
			s.stickDown = s.stickSpeed/4, 0.2, 0.2
	}},
	{"it streams messages without a request", func(s *simulator) {
		s.streams = map[uint32]time.Duration{0: time.Second / 3, 33: time.Second / 10, 1: time.Second}
	}},
	{"frames are 100 ms late", func(s *simulator) { s.switches().delay = 100 * time.Millisecond }},
	{"it acknowledges commands and does nothing", func(s *simulator) { s.switches().idle = true }},
	{"it is ready too soon", func(s *simulator) { s.armableAfter = time.Second }},
	{"it refuses the commands of a flight", func(s *simulator) {
		for _, id := range []common.MAV_CMD{simGoto, simTakeoff, common.MAV_CMD_NAV_LAND,
			common.MAV_CMD_DO_CHANGE_SPEED, common.MAV_CMD_CONDITION_YAW} {
			s.switches().refuses[id] = true
		}
	}},
	{"its receiver is lost", func(s *simulator) { s.receiver = simReceiverLost }},
	{"it is another kind of vehicle", func(s *simulator) { s.typ, s.vtol = common.MAV_TYPE_QUADROTOR, 0 }},
	{"it has another system id", func(s *simulator) { s.system = 2 }},
	{"refused and accepted are exchanged", func(s *simulator) {
		s.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
			flipped := *a
			flipped.Result = simAccepted
			if a.Result == simAccepted {
				flipped.Result = simFailed
			}
			return []simAnswer{{ack: &flipped}}
		}
	}},
}

func (s *simulator) eachMode(do func(*simMode)) {
	s.modes = append([]simMode(nil), s.modes...)
	for i := range s.modes {
		do(&s.modes[i])
	}
}

// failedByHand are probes that pass on every mutant. They failed when the simulator's source was
// changed by hand: the check for echoes or for the component in handle(), the field `seen` in
// stepSticks(), the function moving(), or the field `going` in positionTarget().
var failedByHand = []string{
	"a sender with its own ids is ignored", "a command for another component is not answered",
	"a flight without sticks has no failsafe", "a constant stick never brings POSCTL",
	"no message 87 comes in BRAKE, or in GUIDED without a goto",
}

// px4Crafts are PX4's vehicles that have probes of their own, by MAV_TYPE.
var px4Crafts = map[common.MAV_TYPE]craft{
	common.MAV_TYPE_FIXED_WING:               onPX4Plane,
	common.MAV_TYPE_VTOL_FIXEDROTOR:          onPX4VTOL,
	common.MAV_TYPE_VTOL_TAILSITTER_DUOROTOR: onPX4VTOL,
	common.MAV_TYPE_GROUND_ROVER:             onPX4Rover,
}

const simTransition = common.MAV_CMD_DO_VTOL_TRANSITION

// vtolState waits for a vtol_state.
func (v *probed) vtolState(want common.MAV_VTOL_STATE, most time.Duration) {
	_, ok := v.until(most, func() bool {
		m, ok := v.ask(245).(*common.MessageExtendedSysState)
		return ok && m.VtolState == want
	})
	v.equal("comes to "+want.String(), ok, true)
}

// landedState is the one that it reports now.
func (v *probed) landedState() common.MAV_LANDED_STATE {
	return mustAsk[*common.MessageExtendedSysState](v).LandedState
}

var px4KindProbes = []probe{
	{heading: "PX4: on a wing", on: onPX4VTOL, from: ground, fact: "a VTOL's vtol_state is 3 on the ground",
		run: func(v *probed) {
			v.equal("vtol_state", mustAsk[*common.MessageExtendedSysState](v).VtolState, common.MAV_VTOL_STATE_MC)
		}},
	{heading: "PX4: on a wing", on: onPX4VTOL, from: air,
		fact: "vtol_state is 1 within 0.3 s of a transition's ack and 4 at its end, back 2 and 3",
		run: func(v *probed) {
			v.equal("to the wing", v.command(simTransition, 4).last(), simAccepted)
			v.vtolState(common.MAV_VTOL_STATE_TRANSITION_TO_FW, 300*time.Millisecond)
			v.vtolState(common.MAV_VTOL_STATE_FW, 30*time.Second)
			v.equal("back", v.command(simTransition, 3).last(), simAccepted)
			v.vtolState(common.MAV_VTOL_STATE_TRANSITION_TO_MC, 300*time.Millisecond)
			v.vtolState(common.MAV_VTOL_STATE_MC, 60*time.Second)
		}},
	{heading: "PX4: on a wing", on: onPX4VTOL, from: ground,
		fact: "DO_VTOL_TRANSITION is TEMPORARILY_REJECTED in AUTO.TAKEOFF and AUTO.LAND", run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			v.must(v.takeOffHere(v.homeAlt()+20).last() == simAccepted, "no takeoff")
			v.until(30*time.Second, func() bool { return v.place().up > 5 })
			v.equal("in AUTO.TAKEOFF", v.command(simTransition, 4).last(), simRejected)
			v.must(v.setMode(simPX4Land).last() == simAccepted, "no landing")
			time.Sleep(time.Second)
			v.equal("in AUTO.LAND", v.command(simTransition, 4).last(), simRejected)
			v.disarms(2 * time.Minute)
		}},
	{heading: "PX4: on a wing", on: onPX4VTOL, from: air,
		fact: "on its wing a goto circles 70 to 90 m round its place", run: func(v *probed) {
			v.must(v.command(simTransition, 4).last() == simAccepted, "no transition")
			v.vtolState(common.MAV_VTOL_STATE_FW, 30*time.Second)
			v.flyTo(300, 0, 40)
			time.Sleep(90 * time.Second)
			s := v.place()
			v.within("off by", s.off(spot{north: 300}), 70, 90, 20)
			v.within("m/s", s.speed, 5, 25, 0)
			v.setMode(simPX4RTL)
			v.disarms(5 * time.Minute)
		}},
	{heading: "PX4: on a wing", on: onPX4Plane, from: ground,
		fact: "a plane's takeoff reports landed_state 3 on the roll, takes its height and ends in AUTO.LOITER; " +
			"AUTO.LAND lands it", run: func(v *probed) {
			v.equal("vtol_state", mustAsk[*common.MessageExtendedSysState](v).VtolState,
				common.MAV_VTOL_STATE_UNDEFINED)
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			v.must(v.takeOffHere(v.homeAlt()+30).last() == simAccepted, "no takeoff")
			rolled := false
			v.until(15*time.Second, func() bool {
				rolled = rolled || v.landedState() == common.MAV_LANDED_STATE_TAKEOFF && v.place().up < 1
				return rolled
			})
			v.equal("landed_state 3 on the roll", rolled, true)
			_, ends := v.until(time.Minute, func() bool { return v.beat().CustomMode == simPX4Loiter })
			v.equal("ends in AUTO.LOITER", ends, true)
			time.Sleep(20 * time.Second)
			s := v.place()
			v.within("height", s.up, 27, 33, 3)
			v.within("m/s", s.speed, 8, 20, 0)
			v.must(v.setMode(simPX4Land).last() == simAccepted, "no landing")
			v.disarms(4 * time.Minute)
		}},
	{heading: "PX4: on wheels", on: onPX4Rover, from: ground,
		fact: "with half a throttle MANUAL arms and the rover stands, with a lower one it drives backwards",
		run: func(v *probed) {
			here := v.place()
			v.keepSticks(400*time.Millisecond, 0, 0, 500, 0)
			v.must(v.setMode(simPX4Manual).last() == simAccepted, "no MANUAL")
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			time.Sleep(5 * time.Second)
			v.within("moved", v.place().off(here), 0, 0.5, 0.5)
			here = v.place()
			v.keepSticks(2*time.Second, 0, 0, 200, 0)
			v.within("moved with 200", v.place().off(here), 1, 10, 0)
			v.keepSticks(3*time.Second, 0, 0, 500, 0)
			v.within("m/s in the middle again", v.place().speed, 0, 0.5, 0.3)
			v.equal("disarming", v.command(simArm, 0).last(), simAccepted)
		}},
	{heading: "PX4: on wheels", on: onPX4Rover, from: ground,
		fact: "an armed rover is IN_AIR, and disarms when it is told to", run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			time.Sleep(3 * time.Second)
			v.equal("landed_state", v.landedState(), common.MAV_LANDED_STATE_IN_AIR)
			v.equal("disarming", v.command(simArm, 0).last(), simAccepted)
			time.Sleep(2 * time.Second)
			v.equal("landed_state", v.landedState(), common.MAV_LANDED_STATE_ON_GROUND)
		}},
	{heading: "PX4: on wheels", on: onPX4Rover, from: ground, fact: "a goto arrives whatever its height is",
		run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			v.flyTo(15, 5, 20)
			_, ok := v.until(time.Minute, func() bool { return v.place().off(spot{north: 15, east: 5}) < 1.5 })
			v.equal("arrives", ok, true)
			v.within("height", math.Abs(v.place().up), 0, 2, 1)
			v.command(simArm, 0)
		}},
}
