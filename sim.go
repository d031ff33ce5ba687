package main

// The built-in simulator (-device sim): an autopilot small enough to read. It
// speaks MAVLink over a cable in memory, as PX4 or as ArduPilot's Copter, and
// answers as AUTOPILOTS.md measured them, refusals and oddities included: a
// link that flies it has met what a real autopilot does. It takes nothing of
// the link's but the dialect.
//
// Tests meddle with it: its switches are fields, and sim_test.go adds the
// methods that only tests want.
//
// The file goes from the outside in: the simulator, the cable, messages out, messages in, the flight; then what only PX4 does, and
// what only ArduPilot does.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
	"github.com/bluenviron/gomavlib/v3/pkg/streamwriter"
)

const (
	simTick    = 20 * time.Millisecond
	simBuffer  = 4096 // bytes that the cable holds in each direction
	simSystem  = 1
	simHomeLat = 47.3977419
	simHomeLon = 8.5455937
	simHomeAlt = 488.3 // metres AMSL
)

type simFlavour int

const (
	simPX4 simFlavour = iota
	simArduPilot
)

// simFlying is how a mode flies.
type simFlying int

const (
	simHold     simFlying = iota // stays, or goes to the target
	simDescend                   // lands where it is
	simReturn                    // flies home and lands
	simVelocity                  // sticks are velocities: centred stands still
	simTilt                      // sticks are angles: centred drifts on
	simThrust                    // like simTilt, and the throttle is thrust
)

// simMode is one row of a flavour's table of modes.
type simMode struct {
	custom   uint32
	name     string
	flying   simFlying
	noArm    bool // can't be armed in
	ground   bool // accepted while disarmed only
	refused  bool // never accepted
	position bool // ArduPilot: wants a position estimate
}

// sticks tells whether the mode is flown by sticks.
func (m simMode) sticks() bool { return m.flying >= simVelocity }

// simVehicle is what differs between the flavours and is plain data.
type simVehicle struct {
	autopilot                      common.MAV_AUTOPILOT
	version                        uint32
	volts                          float64
	modes                          []simMode
	first, hold, land, rtl         uint32  // custom modes
	landSpeed                      float64 // m/s
	stickSpeed, stickUp, stickDown float64 // m/s at full deflection
	streams                        map[uint32]time.Duration
}

// simBrain is what differs between the flavours and is behaviour.
type simBrain interface {
	start() // power-on

	command(c simCommand) // acks it too
	sticks(fromSystem uint8, m *common.MessageManualControl)
	text(severity common.MAV_SEVERITY, text string)
	state() (base common.MAV_MODE_FLAG, status common.MAV_STATE) // for HEARTBEAT
	axes() (x, y, z, r float64)                                  // −1…1, z 0…1 with 0.5 in the middle
	canArm() bool

	step()    // each tick
	entered() // a mode
	climbed() // to where the takeoff ends
	disarmed(landed bool)
}

// simRecord is how many received messages are remembered; tests do.
var simRecord = 0

// simReceived is a message that came from the companion board.
type simReceived struct {
	at                time.Time
	system, component uint8
	msg               message.Message
}

// simAnswer is what the onAck hook makes of an ack. Zero ids are the autopilot's.
type simAnswer struct {
	after             time.Duration
	system, component uint8
	ack               *common.MessageCommandAck
}

// simFault is line noise, as probabilities per byte.
type simFault struct{ drop, repeat, flip, insert float64 }

// simulator is a vehicle with its autopilot. Its mutex guards everything in
// it, the cable included. Only run's goroutine moves it; others look and
// meddle through the methods.
type simulator struct {
	mu sync.Mutex

	// Switches: set them before run or inside change.
	armableAfter   time.Duration                                   // from boot; ArduPilot really takes 42 s
	onAck          func(ack *common.MessageCommandAck) []simAnswer // nil: acks go out as they are
	onMode         func(custom uint32)                             // sees every mode that is entered
	faultIn        simFault                                        // towards the autopilot
	faultOut       simFault                                        // towards the companion
	delay          time.Duration                                   // of every frame to the companion
	muted          bool                                            // sends nothing
	heartless      time.Time                                       // no heartbeats until then
	mavlink1       bool                                            // sends MAVLink 1
	idle           bool                                            // accepts flight commands, does nothing
	neverDone      map[common.MAV_CMD]bool                         // answers IN_PROGRESS for ever
	sysidMyGCS     uint8                                           // ArduPilot: whose sticks count
	gcsParam       string                                          // ArduPilot: name of that parameter, "" for none
	receiver       bool                                            // ArduPilot: an RC receiver, its throttle low
	fence          float64                                         // PX4: metres around home, 0 for none
	homeSteps      bool                                            // PX4: home's altitude wanders as measured
	batteryReading *common.MessageSysStatus                        // its battery fields are sent instead

	flavour simFlavour
	simVehicle
	brain     simBrain
	wake      chan struct{} // the companion wrote, or change was called
	port      *simPort      // nil while nothing is plugged in
	unplugged bool
	stall     chan struct{} // not nil: writes of the companion wait for it
	agenda    []simEvent
	streaming []*simStream
	record    []simReceived
	out       bytes.Buffer
	writer    *streamwriter.Writer
	noise     *rand.Rand
	textID    uint16

	booted    time.Time
	ticked    time.Time
	mode      uint32
	armed     bool
	armedAt   time.Time
	failsafe  bool
	airborne  bool
	landedAt  time.Time
	climbing  bool
	climbFrom time.Time // the propellers are up to speed
	climbTo   float64   // metres above home
	target    simTarget
	quad      simQuad
	used      float64 // of the battery, 0…1
}

// newSimulator makes a vehicle that stands at home, switched off until run.
// Both flavours can be armed 5 s after boot so that a newcomer need not wait;
// tests that want ArduPilot's real 42 s set armableAfter.
func newSimulator(flavour simFlavour) *simulator {
	s := &simulator{
		flavour:      flavour,
		armableAfter: 5 * time.Second,
		sysidMyGCS:   255,
		gcsParam:     "SYSID_MYGCS",
		neverDone:    map[common.MAV_CMD]bool{},
		wake:         make(chan struct{}, 1),
		noise:        rand.New(rand.NewPCG(1, 2)),
	}
	if flavour == simPX4 {
		s.simVehicle = simPX4Vehicle
		s.brain = &simPX4Brain{simulator: s}
	} else {
		s.simVehicle = simArduVehicle
		s.brain = &simArduBrain{simulator: s}
	}
	s.writer = &streamwriter.Writer{
		FrameWriter: &frame.Writer{ByteWriter: &s.out, DialectRW: dialectRW},
		Version:     streamwriter.V2,
		SystemID:    simSystem,
	}
	if err := errors.Join(s.writer.FrameWriter.Initialize(), s.writer.Initialize()); err != nil {
		panic(err) // only a mistake in the lines above
	}
	s.reset()
	return s
}

// run flies until ctx is done, then unplugs the cable.
func (s *simulator) run(ctx context.Context) {
	tick := time.NewTicker(simTick)
	defer tick.Stop()
	defer s.unplug()
	s.change(s.boot)
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-s.alarm():
		case <-tick.C:
			ticked = true
		}
		s.mu.Lock()
		s.receive()
		s.keepAgenda()
		if ticked {
			s.step()
		}
		s.mu.Unlock()
	}
}

// reset puts the vehicle on the ground at home, disarmed.
func (s *simulator) reset() {
	s.quad, s.target = simQuad{}, simTarget{yaw: math.NaN()}
	s.armed, s.airborne, s.climbing, s.failsafe = false, false, false, false
	s.armedAt, s.landedAt = time.Time{}, time.Time{}
	s.mode = s.first
}

// boot starts the autopilot's own clock and its streams.
func (s *simulator) boot() {
	s.booted, s.ticked = time.Now(), time.Now()
	s.agenda, s.streaming, s.textID = nil, nil, 0
	for id, every := range s.streams {
		s.stream(id, every)
	}
	s.brain.start()
}

// change runs f while nothing else happens: the way to a switch.
func (s *simulator) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.nudge()
}

func (s *simulator) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// simEvent is something that happens between ticks.
type simEvent struct {
	at time.Time
	do func()
}

func (s *simulator) after(d time.Duration, do func()) {
	at := time.Now().Add(d)
	i := slices.IndexFunc(s.agenda, func(e simEvent) bool { return e.at.After(at) })
	if i < 0 {
		i = len(s.agenda)
	}
	s.agenda = slices.Insert(s.agenda, i, simEvent{at, do})
}

// alarm returns a channel that fires when the next event is due.
func (s *simulator) alarm() <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.agenda) == 0 {
		return nil
	}
	return time.After(time.Until(s.agenda[0].at))
}

func (s *simulator) keepAgenda() {
	for len(s.agenda) > 0 && !s.agenda[0].at.After(time.Now()) {
		e := s.agenda[0]
		s.agenda = s.agenda[1:]
		e.do()
	}
}

// ---- The cable ----

// simPort is the companion's end of the cable. Like a UART it has no flow
// control: a write never waits (but see stallWrites), and what doesn't fit
// into a buffer is lost.
type simPort struct {
	s           *simulator
	toCompanion []byte
	toAutopilot []byte
	timeout     time.Duration // of Read; negative waits for ever
	arrived     chan struct{} // toCompanion has more
	gone        chan struct{} // closed with the port
	err         error         // why it is gone
}

var errSimUnplugged = errors.New("sim: the cable is unplugged")

// open plugs the cable and returns the companion's end. An end that was
// plugged before reads io.EOF from now on.
func (s *simulator) open() (port, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unplugged {
		return nil, errSimUnplugged
	}
	s.port.closeWith(io.EOF)
	s.port = &simPort{
		s:       s,
		timeout: -1,
		arrived: make(chan struct{}, 1),
		gone:    make(chan struct{}),
	}
	return s.port, nil
}

// unplug pulls the cable: open fails until plug.
func (s *simulator) unplug() {
	s.change(func() {
		s.port.closeWith(io.EOF)
		s.port, s.unplugged = nil, true
	})
}

// closeWith needs the simulator's mutex. Closing nil or twice does nothing.
func (p *simPort) closeWith(err error) {
	if p == nil || p.err != nil {
		return
	}
	p.err = err
	close(p.gone)
}

// Read returns 0 and no error when the read timeout has passed.
func (p *simPort) Read(b []byte) (int, error) {
	var expired <-chan time.Time
	for {
		p.s.mu.Lock()
		n, timeout, err := copy(b, p.toCompanion), p.timeout, p.err
		p.toCompanion = p.toCompanion[n:]
		p.s.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		if expired == nil && timeout >= 0 {
			expired = time.After(timeout)
		}
		select {
		case <-p.arrived:
		case <-p.gone:
		case <-expired:
			return 0, nil
		}
	}
}

func (p *simPort) Write(b []byte) (int, error) {
	p.s.mu.Lock()
	stall := p.s.stall
	p.s.mu.Unlock()
	if stall != nil {
		select {
		case <-stall:
		case <-p.gone:
		}
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	noisy := p.s.garble(b, p.s.faultIn)
	room := simBuffer - len(p.toAutopilot)
	p.toAutopilot = append(p.toAutopilot, noisy[:min(room, len(noisy))]...)
	p.s.nudge()
	return len(b), nil
}

func (p *simPort) Close() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.port == p {
		p.s.receive() // what is on the line arrives
	}
	p.closeWith(io.ErrClosedPipe)
	if p.s.port == p {
		p.s.port = nil
	}
	return nil
}

func (p *simPort) SetReadTimeout(d time.Duration) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.timeout = d
	return nil
}

// next cuts the first whole and checked frame off what the companion wrote;
// nil if there is none yet. What is no frame is skipped byte by byte.
func (p *simPort) next() frame.Frame {
	for len(p.toAutopilot) > 2 {
		b, n := p.toAutopilot, 0
		switch b[0] {
		case frame.V1MagicByte:
			n = 8 + int(b[1])
		case frame.V2MagicByte:
			n = 12 + int(b[1])
			if b[2]&frame.V2FlagSigned != 0 {
				n += 13
			}
		}
		if n > len(b) {
			return nil
		}
		if n > 0 {
			r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b[:n])), DialectRW: dialectRW}
			if f, err := r.Read(); err == nil {
				p.toAutopilot = b[n:]
				return f
			}
		}
		p.toAutopilot = b[1:]
	}
	return nil
}

// garble returns b as it arrives over a bad line. Damage that a frame's 16 bit
// checksum does not see, one in 65,536, is not made: tests could not tell it
// from a mistake of the receiver.
func (s *simulator) garble(b []byte, f simFault) []byte {
	if f == (simFault{}) {
		return b
	}
	for {
		out := s.damage(b, f)
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(out)), DialectRW: dialectRW}
		if bytes.HasPrefix(out, b) {
			return out
		}
		if _, err := r.Read(); err != nil {
			return out
		}
	}
}

func (s *simulator) damage(b []byte, f simFault) []byte {
	hit := func(p float64) bool { return s.noise.Float64() < p }
	var out []byte
	for _, c := range b {
		if hit(f.insert) {
			out = append(out, byte(s.noise.Uint32()))
		}
		if hit(f.flip) {
			c ^= 1 << s.noise.IntN(8)
		}
		if !hit(f.drop) {
			out = append(out, c)
		}
		if hit(f.repeat) {
			out = append(out, c)
		}
	}
	return out
}

// transmit owns b. A buffer that is full loses the whole frame.
func (s *simulator) transmit(b []byte) {
	put := func() {
		b := s.garble(b, s.faultOut)
		p := s.port
		if p == nil || len(p.toCompanion)+len(b) > simBuffer {
			return
		}
		p.toCompanion = append(p.toCompanion, b...)
		select {
		case p.arrived <- struct{}{}:
		default:
		}
	}
	switch {
	case s.muted:
	case s.delay > 0:
		s.after(s.delay, put)
	default:
		put()
	}
}

// ---- Messages out ----

func (s *simulator) send(msg message.Message) { s.sendFrom(0, 0, msg) }

// sendFrom sends a message; zero ids are the autopilot's own.
func (s *simulator) sendFrom(system, component uint8, msg message.Message) {
	w := s.writer
	w.SystemID, w.ComponentID, w.Version = max(system, simSystem), max(component, 1), streamwriter.V2
	if s.mavlink1 {
		w.Version = streamwriter.V1
	}
	s.out.Reset()
	if err := w.Write(msg); err != nil {
		panic(err) // a message that is not in the dialect
	}
	s.transmit(bytes.Clone(s.out.Bytes()))
}

// ack answers a command, to the ids that asked.
func (s *simulator) ack(c simCommand, result common.MAV_RESULT) {
	ack := &common.MessageCommandAck{
		Command: c.id, Result: result, TargetSystem: c.system, TargetComponent: c.component,
	}
	answers := []simAnswer{{ack: ack}}
	if s.onAck != nil {
		answers = s.onAck(ack)
	}
	for _, a := range answers {
		if a.after > 0 {
			s.after(a.after, func() { s.sendFrom(a.system, a.component, a.ack) })
		} else {
			s.sendFrom(a.system, a.component, a.ack)
		}
	}
}

// sendText sends a STATUSTEXT, in chunks of 50 characters.
func (s *simulator) sendText(severity common.MAV_SEVERITY, text string, id uint16) {
	for chunk := uint8(0); text != "" || chunk == 0; chunk++ {
		n := min(50, len(text))
		s.send(&common.MessageStatustext{Severity: severity, Text: text[:n], Id: id, ChunkSeq: chunk})
		text = text[n:]
	}
}

// simStream is a message that is sent at an interval.
type simStream struct {
	id    uint32
	every time.Duration
	next  time.Time
}

// stream starts, changes or (every < 0) ends a stream.
func (s *simulator) stream(id uint32, every time.Duration) {
	s.streaming = slices.DeleteFunc(s.streaming, func(st *simStream) bool { return st.id == id })
	if every > 0 {
		s.streaming = append(s.streaming, &simStream{id, every, time.Now()})
	}
	slices.SortFunc(s.streaming, func(a, b *simStream) int { return int(a.id) - int(b.id) })
}

// sendStreams keeps the average rate exact, though it looks once a tick only.
func (s *simulator) sendStreams(now time.Time) {
	for _, st := range s.streaming {
		for !st.next.After(now) {
			st.next = st.next.Add(st.every)
			if st.id != 0 || now.After(s.heartless) {
				s.send(s.message(st.id))
			}
		}
	}
}

// message says how things are; nil for a message that the autopilot hasn't.
func (s *simulator) message(id uint32) message.Message {
	boot := time.Since(s.booted)
	lat, lon := simPlace(s.quad.north, s.quad.east)
	q := &s.quad
	switch id {
	case 0:
		base, status := s.brain.state()
		return &common.MessageHeartbeat{
			Type: common.MAV_TYPE_QUADROTOR, Autopilot: s.autopilot, BaseMode: base,
			CustomMode: s.mode, SystemStatus: status, MavlinkVersion: 3,
		}
	case 1:
		return s.sysStatus()
	case 24:
		return &common.MessageGpsRawInt{
			TimeUsec: uint64(boot.Microseconds()), FixType: common.GPS_FIX_TYPE_3D_FIX,
			Lat: simE7(lat), Lon: simE7(lon), Alt: int32((simHomeAlt + q.up) * 1000),
			Eph: 70, Epv: 110, Vel: uint16(math.Hypot(q.vn, q.ve) * 100), Cog: math.MaxUint16, SatellitesVisible: 12,
		}
	case 30:
		sin, cos := math.Sincos(q.heading)
		return &common.MessageAttitude{
			TimeBootMs: uint32(boot.Milliseconds()),
			Pitch:      float32(-math.Atan((q.an*cos + q.ae*sin) / 9.81)),
			Roll:       float32(math.Atan((q.ae*cos - q.an*sin) / 9.81)),
			Yaw:        float32(math.Remainder(q.heading, 2*math.Pi)),
		}
	case 33:
		return &common.MessageGlobalPositionInt{
			TimeBootMs: uint32(boot.Milliseconds()), Lat: simE7(lat), Lon: simE7(lon),
			Alt: int32((simHomeAlt + q.up) * 1000), RelativeAlt: int32((simHomeAlt + q.up - s.homeAlt()) * 1000),
			Vx: int16(q.vn * 100), Vy: int16(q.ve * 100), Vz: int16(-q.vu * 100),
			Hdg: uint16(q.degrees()*100) % 36000,
		}
	case 74:
		hud := &common.MessageVfrHud{
			Groundspeed: float32(math.Hypot(q.vn, q.ve)), Heading: int16(q.degrees()) % 360,
			Alt: float32(simHomeAlt + q.up), Climb: float32(q.vu),
		}
		if s.airborne {
			hud.Throttle = 49
		}
		return hud
	case 148:
		return &common.MessageAutopilotVersion{FlightSwVersion: s.version}
	case 242:
		return &common.MessageHomePosition{
			Latitude: simE7(simHomeLat), Longitude: simE7(simHomeLon), Altitude: int32(s.homeAlt() * 1000),
			Q: [4]float32{float32(math.NaN()), float32(math.NaN()), float32(math.NaN()), float32(math.NaN())},
		}
	case 245:
		return &common.MessageExtendedSysState{LandedState: s.landed()}
	}
	return nil
}

func (s *simulator) sysStatus() message.Message {
	amps := 0.5
	if s.airborne {
		amps = 11
	}
	m := &common.MessageSysStatus{
		Load:             80,
		VoltageBattery:   uint16((s.volts - 2.4*s.used) * 1000),
		CurrentBattery:   int16(amps * 100),
		BatteryRemaining: int8(math.Ceil(100 * (1 - s.used))),
	}
	const sensors = common.MAV_SYS_STATUS_SENSOR_3D_GYRO | common.MAV_SYS_STATUS_SENSOR_3D_ACCEL |
		common.MAV_SYS_STATUS_SENSOR_GPS | common.MAV_SYS_STATUS_SENSOR_BATTERY
	m.OnboardControlSensorsPresent = sensors | common.MAV_SYS_STATUS_PREARM_CHECK
	m.OnboardControlSensorsEnabled = sensors | common.MAV_SYS_STATUS_PREARM_CHECK
	m.OnboardControlSensorsHealth = sensors
	if s.brain.canArm() {
		m.OnboardControlSensorsHealth |= common.MAV_SYS_STATUS_PREARM_CHECK
	}
	if r := s.batteryReading; r != nil {
		m.VoltageBattery, m.CurrentBattery, m.BatteryRemaining = r.VoltageBattery, r.CurrentBattery, r.BatteryRemaining
	}
	return m
}

// homeAlt is home's altitude as PX4 reports it: with homeSteps it is corrected
// each 2 s by a metre or so for two minutes, as captured.
func (s *simulator) homeAlt() float64 {
	boot := time.Since(s.booted)
	if !s.homeSteps || boot > 2*time.Minute {
		return simHomeAlt
	}
	steps := [...]float64{0, 1.3, -0.1, 1.1, -0.6, 0.6, 0.9}
	return simHomeAlt + steps[int(boot/(2*time.Second))%len(steps)]
}

func (s *simulator) landed() common.MAV_LANDED_STATE {
	switch {
	case !s.airborne:
		return common.MAV_LANDED_STATE_ON_GROUND
	case s.climbing:
		return common.MAV_LANDED_STATE_TAKEOFF
	case s.row(s.mode).flying == simDescend:
		return common.MAV_LANDED_STATE_LANDING
	}
	return common.MAV_LANDED_STATE_IN_AIR
}

// ---- Messages in ----

// simCommand is a COMMAND_LONG or a COMMAND_INT.
type simCommand struct {
	id                common.MAV_CMD
	long              bool
	frame             common.MAV_FRAME
	p                 [4]float64
	lat, lon, alt     float64 // degrees; NaN also where a COMMAND_INT says INT32_MAX
	system, component uint8   // who asked
}

// receive takes in everything that the companion wrote.
func (s *simulator) receive() {
	if s.port == nil {
		return
	}
	for f := s.port.next(); f != nil; f = s.port.next() {
		system, component := f.GetSystemID(), f.GetComponentID()
		if simRecord > 0 {
			if len(s.record) == simRecord {
				s.record = slices.Clone(s.record[simRecord/2:])
			}
			s.record = append(s.record, simReceived{time.Now(), system, component, f.GetMessage()})
		}
		// A sender with the autopilot's own ids is taken for an echo.
		if system != simSystem || component != 1 {
			s.take(system, component, f.GetMessage())
		}
		if s.port == nil {
			return // a hook pulled the cable
		}
	}
}

func (s *simulator) take(system, component uint8, msg message.Message) {
	addressed := func(sys, comp uint8) bool { return sys == simSystem && comp <= 1 }
	switch m := msg.(type) {
	case *common.MessageHeartbeat:
		if px4, ok := s.brain.(*simPX4Brain); ok && m.Type == common.MAV_TYPE_GCS {
			px4.knock()
		}
	case *common.MessageManualControl:
		s.brain.sticks(system, m)
	case *common.MessageParamRequestRead:
		known := s.flavour == simArduPilot && s.gcsParam != "" && m.ParamId == s.gcsParam
		if known && addressed(m.TargetSystem, m.TargetComponent) {
			s.send(&common.MessageParamValue{
				ParamId: m.ParamId, ParamValue: float32(s.sysidMyGCS),
				ParamType: common.MAV_PARAM_TYPE_INT16, ParamCount: 1390, ParamIndex: math.MaxUint16,
			})
		}
	case *common.MessageCommandLong:
		if addressed(m.TargetSystem, m.TargetComponent) {
			s.command(simCommand{
				id: m.Command, long: true, system: system, component: component,
				p:   [4]float64{float64(m.Param1), float64(m.Param2), float64(m.Param3), float64(m.Param4)},
				lat: float64(m.Param5), lon: float64(m.Param6), alt: float64(m.Param7),
			})
		}
	case *common.MessageCommandInt:
		if addressed(m.TargetSystem, m.TargetComponent) {
			s.command(simCommand{
				id: m.Command, frame: m.Frame, system: system, component: component,
				p:   [4]float64{float64(m.Param1), float64(m.Param2), float64(m.Param3), float64(m.Param4)},
				lat: simDegrees(m.X), lon: simDegrees(m.Y), alt: float64(m.Z),
			})
		}
	}
}

func (s *simulator) command(c simCommand) {
	switch {
	case s.neverDone[c.id]:
		s.ack(c, common.MAV_RESULT_IN_PROGRESS)
	case c.id == common.MAV_CMD_SET_MESSAGE_INTERVAL:
		s.setInterval(c)
	case c.id == common.MAV_CMD_REQUEST_MESSAGE:
		s.requestMessage(c)
	case s.idle:
		s.ack(c, common.MAV_RESULT_ACCEPTED)
	default:
		s.brain.command(c)
	}
}

func (s *simulator) setInterval(c simCommand) {
	id := uint32(c.p[0])
	if s.message(id) == nil {
		s.ack(c, common.MAV_RESULT_DENIED)
		s.noSuchMessage()
		return
	}
	every := time.Duration(c.p[1]) * time.Microsecond
	if every == 0 {
		every = s.streams[id] // the default; none ends it
	}
	s.stream(id, every)
	s.ack(c, common.MAV_RESULT_ACCEPTED)
}

func (s *simulator) requestMessage(c simCommand) {
	m := s.message(uint32(c.p[0]))
	switch {
	case m != nil:
		s.ack(c, common.MAV_RESULT_ACCEPTED)
		s.send(m)
	case s.flavour == simArduPilot:
		s.ack(c, common.MAV_RESULT_FAILED)
		s.noSuchMessage()
	default:
		s.ack(c, common.MAV_RESULT_DENIED)
	}
}

func (s *simulator) noSuchMessage() {
	if s.flavour == simArduPilot {
		s.brain.text(common.MAV_SEVERITY_INFO, "No ap_message for mavlink id")
	}
}

// ---- The flight ----

// row returns a mode's row in the flavour's table, or a mode that holds.
func (s *simulator) row(custom uint32) simMode {
	i := slices.IndexFunc(s.modes, func(m simMode) bool { return m.custom == custom })
	if i < 0 {
		return simMode{custom: custom, refused: true, noArm: true}
	}
	return s.modes[i]
}

// enter changes the mode. A mode that it is in already keeps its target: a
// goto is not cancelled by asking for the hold that it is.
func (s *simulator) enter(custom uint32) {
	if s.onMode != nil {
		s.onMode(custom)
	}
	if s.mode == custom {
		return
	}
	s.mode, s.climbing = custom, false
	s.stay()
	s.brain.entered()
}

func (s *simulator) arm() {
	s.armed, s.armedAt = true, time.Now()
}

func (s *simulator) disarm() {
	landed := s.landedAt.After(s.armedAt)
	s.armed, s.climbing, s.failsafe = false, false, false
	s.brain.disarmed(landed)
}

// climb takes off, or climbs on, to a height above home.
func (s *simulator) climb(to float64) {
	s.climbing, s.climbTo, s.climbFrom = true, to, time.Now()
	if !s.airborne {
		s.climbFrom = s.climbFrom.Add(2 * time.Second)
	}
}

// canFly tells whether a goto would be flown.
func (s *simulator) canFly() bool { return s.armed && s.airborne }

// stay makes the target the place where the quad can stop.
func (s *simulator) stay() {
	q := &s.quad
	const brake = 1 / (2 * simAccel)
	speed := math.Hypot(q.vn, q.ve)
	s.target = simTarget{
		north: q.north + q.vn*speed*brake, east: q.east + q.ve*speed*brake,
		up: q.up, yaw: math.NaN(), speed: simCruise,
	}
}

// step is one tick.
func (s *simulator) step() {
	now := time.Now()
	dt := max(0.001, min(0.1, now.Sub(s.ticked).Seconds())) // a computer that slept does not fly on
	s.ticked = now
	s.brain.step()
	s.fly(now, dt)
	if s.armed && !s.airborne {
		idle := s.armedAt.Add(10 * time.Second)
		if s.landedAt.After(s.armedAt) {
			idle = s.landedAt.Add(2 * time.Second)
		}
		if now.After(idle) {
			s.disarm()
		}
	}
	amps := 0.5
	if s.airborne {
		amps = 11
	}
	s.used = min(1, s.used+amps*dt/3600/5) // 5 Ah
	s.sendStreams(now)
}

func (s *simulator) fly(now time.Time, dt float64) {
	q := &s.quad
	vn, ve, vu, turn := s.wanted(now, dt)
	if !s.airborne {
		lifts := s.armed && vu > 0.1 && (s.climbing || s.row(s.mode).sticks())
		if !lifts {
			return
		}
		s.airborne = true
		if s.flavour == simPX4 {
			s.brain.text(common.MAV_SEVERITY_INFO, "Takeoff detected")
		}
	}
	q.steer(vn, ve, vu, dt)
	q.heading = math.Mod(q.heading+turn*dt+2*math.Pi, 2*math.Pi)
	if q.up <= 0 && q.vu <= 0 {
		*q = simQuad{north: q.north, east: q.east, heading: q.heading}
		s.airborne, s.climbing, s.landedAt = false, false, now
		if s.flavour == simPX4 {
			s.brain.text(common.MAV_SEVERITY_INFO, "Landing detected")
		}
		return
	}
	if s.climbing && q.up > s.climbTo-0.2 {
		s.climbing = false
		s.target.up = s.climbTo
		s.brain.climbed()
	}
}

// wanted returns the velocity (m/s) and turn rate (rad/s) that the mode asks for.
func (s *simulator) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	q, t := &s.quad, s.target
	x, y, z, r := s.brain.axes()
	sin, cos := math.Sincos(q.heading)
	bodyN, bodyE := x*cos-y*sin, x*sin+y*cos
	rise := max(z-0.5, 0)*2*s.stickUp - max(0.5-z, 0)*2*s.stickDown
	flying := s.row(s.mode).flying
	switch {
	case !s.armed:
		return 0, 0, -5, 0
	case s.climbing && now.Before(s.climbFrom):
		return 0, 0, 0, 0
	case s.climbing:
		t.up = s.climbTo
		vn, ve, vu = q.towards(t)
	case flying == simHold:
		vn, ve, vu = q.towards(t)
		turn = q.turn(t.yaw)
		if s.flavour == simArduPilot && r != 0 {
			turn = r // GUIDED: of the sticks only yaw acts
		}
	case flying == simDescend:
		vn, ve, _ = q.towards(t)
		vu = -s.landSpeed
		if s.flavour == simArduPilot && (x != 0 || y != 0) {
			vn, ve = bodyN*2, bodyE*2 // LAND is shifted by pitch and roll
			s.target.north, s.target.east = q.north, q.east
		}
	case flying == simReturn:
		vn, ve, vu = s.homeward()
	case flying == simVelocity:
		vn, ve, vu, turn = bodyN*s.stickSpeed, bodyE*s.stickSpeed, rise, r
	case flying == simTilt:
		vn, ve, vu, turn = q.vn+bodyN*3*dt, q.ve+bodyE*3*dt, rise, r
	case flying == simThrust:
		vn, ve, turn = q.vn+bodyN*3*dt, q.ve+bodyE*3*dt, r
		vu = max(-s.stickDown, min(5, q.vu+(z-0.5)*10*dt))
		if !s.airborne {
			vu = z - 0.55 // thrust above the weight lifts it
		}
	}
	return vn, ve, vu, turn
}

// homeward climbs to 15 m, flies home and lands.
func (s *simulator) homeward() (vn, ve, vu float64) {
	q := &s.quad
	home := simTarget{up: max(15, s.target.up), speed: simCruise}
	vn, ve, vu = q.towards(home)
	switch far := math.Hypot(q.north, q.east) > 1; {
	case far && q.up < home.up-0.5:
		return 0, 0, vu
	case far:
		return vn, ve, vu
	case q.up > 10:
		return vn, ve, -2 * s.landSpeed
	}
	return vn, ve, -s.landSpeed
}

const (
	simAccel  = 4.0 // m/s², horizontally
	simLift   = 2.0 // m/s², vertically
	simCruise = 5.0 // m/s
	simClimb  = 1.25
	simSink   = 1.5
)

// simTarget is a place to go to: metres from home, heading in radians or NaN,
// speed in m/s.
type simTarget struct{ north, east, up, yaw, speed float64 }

// simQuad is a point with a heading: metres from home, m/s, radians.
type simQuad struct {
	north, east, up float64
	vn, ve, vu      float64
	an, ae          float64
	heading         float64
}

func (q *simQuad) degrees() float64 { return math.Mod(q.heading*180/math.Pi+360, 360) }

// towards slows down in proportion to what is left, and so stops without overshoot.
func (q *simQuad) towards(t simTarget) (vn, ve, vu float64) {
	n, e := t.north-q.north, t.east-q.east
	if d := math.Hypot(n, e); d > 0.01 {
		v := min(t.speed, 0.7*d)
		vn, ve = n/d*v, e/d*v
	}
	return vn, ve, max(-simSink, min(simClimb, t.up-q.up))
}

// turn is the turn rate towards a heading: at most 1 rad/s.
func (q *simQuad) turn(yaw float64) float64 {
	if math.IsNaN(yaw) {
		return 0
	}
	return max(-1, min(1, 2*math.Remainder(yaw-q.heading, 2*math.Pi)))
}

// steer changes the velocity as fast as a quad can, and moves.
func (q *simQuad) steer(vn, ve, vu, dt float64) {
	an, ae := (vn-q.vn)/dt, (ve-q.ve)/dt
	if a := math.Hypot(an, ae); a > simAccel {
		an, ae = an*simAccel/a, ae*simAccel/a
	}
	q.an, q.ae = an, ae
	q.vn += an * dt
	q.ve += ae * dt
	q.vu += max(-simLift*dt, min(simLift*dt, vu-q.vu))
	q.north += q.vn * dt
	q.east += q.ve * dt
	q.up += q.vu * dt
}

const simDegree = 111319.5 // metres of latitude

func simMetres(lat, lon float64) (north, east float64) {
	return (lat - simHomeLat) * simDegree, (lon - simHomeLon) * simDegree * math.Cos(simHomeLat*math.Pi/180)
}

func simPlace(north, east float64) (lat, lon float64) {
	return simHomeLat + north/simDegree, simHomeLon + east/(simDegree*math.Cos(simHomeLat*math.Pi/180))
}

func simE7(degrees float64) int32 { return int32(math.Round(degrees * 1e7)) }

// simDegrees is NaN where a COMMAND_INT leaves a place open.
func simDegrees(e7 int32) float64 {
	if e7 == math.MaxInt32 {
		return math.NaN()
	}
	return float64(e7) / 1e7
}

// ---- PX4 ----

// PX4's custom modes that the code below names: main<<16 | sub<<24.
const (
	simPX4Manual     = 1 << 16
	simPX4Altctl     = 2 << 16
	simPX4Posctl     = 3 << 16
	simPX4Acro       = 5 << 16
	simPX4Offboard   = 6 << 16
	simPX4Stabilized = 7 << 16
	simPX4Auto       = 4 << 16
	simPX4Takeoff    = simPX4Auto | 2<<24
	simPX4Loiter     = simPX4Auto | 3<<24
	simPX4Mission    = simPX4Auto | 4<<24
	simPX4RTL        = simPX4Auto | 5<<24
	simPX4Land       = simPX4Auto | 6<<24
	simPX4RTGS       = simPX4Auto | 7<<24
)

var simPX4Vehicle = simVehicle{
	autopilot: common.MAV_AUTOPILOT_PX4,
	version:   1<<24 | 17<<16 | 255,
	volts:     16.2,
	first:     simPX4Loiter, hold: simPX4Loiter, land: simPX4Land, rtl: simPX4RTL,
	landSpeed: 0.65, stickSpeed: 5, stickUp: 3, stickDown: 1.5,
	// The rates of a telemetry port in Normal mode, as captured.
	streams: map[uint32]time.Duration{
		0: time.Second, 1: time.Second, 24: time.Second / 5, 30: time.Second / 15,
		33: time.Second / 5, 74: time.Second / 4, 242: 2 * time.Second, 245: time.Second,
	},
	modes: []simMode{
		{custom: simPX4Manual, name: "Manual", flying: simThrust},
		{custom: simPX4Altctl, name: "Altitude", flying: simTilt},
		{custom: simPX4Posctl, name: "Position", flying: simVelocity},
		{custom: simPX4Acro, name: "Acro", flying: simThrust},
		{custom: simPX4Stabilized, name: "Stabilized", flying: simThrust},
		{custom: simPX4Takeoff, name: "Takeoff"},
		{custom: simPX4Loiter, name: "Hold"},
		{custom: simPX4RTL, name: "Return", flying: simReturn, noArm: true},
		{custom: simPX4Land, name: "Land", flying: simDescend, noArm: true},
		{custom: simPX4RTGS, refused: true},
		{custom: simPX4Mission, name: "Mission", ground: true, noArm: true},
		{custom: simPX4Offboard, name: "Offboard", ground: true, noArm: true},
	},
}

// Times of PX4's stick handling (AUTOPILOTS.md, "Sticks: MANUAL_CONTROL").
const (
	simStickGap    = 450 * time.Millisecond  // a gap this long ends the stream: 2.5 Hz passes, 2 Hz doesn't
	simStickProof  = 250 * time.Millisecond  // a stream this long counts
	simStickLoss   = 150 * time.Millisecond  // after the gap: the failsafe, 0.6 s after the last stick
	simStickMoving = 1600 * time.Millisecond // a change counts as moving for so long
	simStickStep   = 200                     // counts of ±1000 that are a change
	simTakeOver    = 30 * time.Millisecond
	simFailsafe    = 5 * time.Second // in Hold, then RTL
)

// simStick is a MANUAL_CONTROL as it came: x, y, z, r.
type simStick struct {
	at   time.Time
	axis [4]int16
}

// simPX4Brain is PX4 as measured in AUTOPILOTS.md.
type simPX4Brain struct {
	*simulator
	textUntil time.Time     // STATUSTEXT passes until then
	held      []simHeldText // texts that wait for a ground station's heartbeat
	window    []simStick    // the last 1.6 s, and what was in force at their start
	since     time.Time     // the stick stream runs without a gap since then
	lostAt    time.Time     // it ended, while it was needed
	seen      bool          // it ran in this flight
	takingAt  time.Time     // a takeover is due then
	holdUntil time.Time     // of the failsafe
	climbUp   float64       // of the takeoff to come, metres above home
	lifts     bool          // that takeoff will lift
	armable   uint32        // last mode that could be armed in
}

type simHeldText struct {
	severity common.MAV_SEVERITY
	text     string
	id       uint16
}

func (b *simPX4Brain) start() {
	*b = simPX4Brain{simulator: b.simulator, climbUp: math.NaN(), lifts: true, armable: simPX4Loiter}
}

// text is heard only while a ground station's heartbeat is on the link.
func (b *simPX4Brain) text(severity common.MAV_SEVERITY, text string) {
	t := simHeldText{severity, text + "\t", b.textID}
	b.textID++
	b.held = append(b.held, t)
	b.held = b.held[max(0, len(b.held)-20):]
	b.release()
}

func (b *simPX4Brain) release() {
	if time.Now().After(b.textUntil) {
		return
	}
	for _, t := range b.held {
		b.sendText(t.severity, t.text, t.id)
	}
	b.held = nil
}

// knock is a heartbeat of MAV_TYPE_GCS.
func (b *simPX4Brain) knock() {
	b.textUntil = time.Now().Add(2500 * time.Millisecond)
	b.release()
}

func (b *simPX4Brain) state() (common.MAV_MODE_FLAG, common.MAV_STATE) {
	base := common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | common.MAV_MODE_FLAG_STABILIZE_ENABLED
	if simPX4IsAuto(b.mode) {
		base |= common.MAV_MODE_FLAG_GUIDED_ENABLED | common.MAV_MODE_FLAG_AUTO_ENABLED
	} else {
		base |= common.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
	}
	switch {
	case b.armed && b.failsafe:
		return base | common.MAV_MODE_FLAG_SAFETY_ARMED, common.MAV_STATE_CRITICAL
	case b.armed:
		return base | common.MAV_MODE_FLAG_SAFETY_ARMED, common.MAV_STATE_ACTIVE
	case b.canArm():
		return base, common.MAV_STATE_STANDBY
	}
	return base, common.MAV_STATE_UNINIT
}

func simPX4IsAuto(custom uint32) bool { return custom&0xff0000 == simPX4Auto }

func (b *simPX4Brain) command(c simCommand) {
	switch c.id {
	case common.MAV_CMD_DO_SET_MODE:
		b.setMode(c)
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		b.ack(c, b.armDisarm(c.p[0] == 1))
	case common.MAV_CMD_NAV_TAKEOFF:
		b.ack(c, b.takeoff(c))
	case common.MAV_CMD_NAV_LAND: // its place is ignored
		b.ack(c, b.obey(b.row(simPX4Land)))
	case common.MAV_CMD_NAV_RETURN_TO_LAUNCH:
		b.ack(c, b.obey(b.row(simPX4RTL)))
	case common.MAV_CMD_DO_REPOSITION:
		b.ack(c, b.reposition(c))
	default:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	}
}

// setMode acks twice: ACCEPTED at once whatever happens, then the truth. A
// mode that PX4 doesn't know, or base_mode without bit 0, is ACCEPTED twice
// and forgotten.
func (b *simPX4Brain) setMode(c simCommand) {
	b.ack(c, common.MAV_RESULT_ACCEPTED)
	mode := uint32(uint8(c.p[1]))<<16 | uint32(uint8(c.p[2]))<<24
	row := b.row(mode)
	result := common.MAV_RESULT_ACCEPTED
	if known := row.name != "" || mode == simPX4RTGS; known && int(c.p[0])&1 != 0 {
		result = b.obey(row)
	}
	b.after(8*time.Millisecond, func() { b.ack(c, result) })
}

// obey enters a mode if the table of modes in AUTOPILOTS.md lets it.
func (b *simPX4Brain) obey(row simMode) common.MAV_RESULT {
	switch {
	case row.refused:
		b.text(common.MAV_SEVERITY_CRITICAL, "Unsupported auto mode")
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	case b.armed && (row.ground || row.sticks() && !b.streaming()):
		b.text(common.MAV_SEVERITY_CRITICAL, "Switching to mode '"+row.name+"' is currently not possible")
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	b.failsafe, b.lostAt = false, time.Time{}
	b.seen = b.armed && b.streaming() // the order stands, sticks or not, until sticks come again
	if row.custom == simPX4Takeoff && b.mode != simPX4Takeoff {
		b.climbUp, b.lifts = math.NaN(), true
		b.enter(row.custom)
		b.beginClimb()
	}
	b.enter(row.custom)
	return common.MAV_RESULT_ACCEPTED
}

func (b *simPX4Brain) entered() {
	if row := b.row(b.mode); !row.noArm {
		b.armable = b.mode
	}
}

// takeoff takes param7 as AMSL whatever the frame says. It does not arm.
func (b *simPX4Brain) takeoff(c simCommand) common.MAV_RESULT {
	b.obey(b.row(simPX4Takeoff))
	b.climbUp, b.lifts, b.climbing = c.alt-simHomeAlt, c.lat != 0 || c.lon != 0, false
	if b.climbUp <= b.quad.up {
		b.text(common.MAV_SEVERITY_CRITICAL, "Already higher than takeoff altitude")
	}
	b.beginClimb()
	return common.MAV_RESULT_ACCEPTED
}

// beginClimb is for an armed vehicle in AUTO.TAKEOFF. One that has nothing to
// climb sits armed on the ground, or holds in the air.
func (b *simPX4Brain) beginClimb() {
	to := b.climbUp
	if math.IsNaN(to) {
		to = b.quad.up + 2.5 // MIS_TAKEOFF_ALT
	}
	switch {
	case !b.armed:
	case b.lifts && to > b.quad.up:
		b.climb(to)
	case b.airborne:
		b.enter(simPX4Loiter)
	}
}

func (b *simPX4Brain) climbed() {
	up := b.target.up
	b.enter(simPX4Loiter)
	b.target.up = up
}

// reposition wants param2 = 1, else it is UNSUPPORTED, and flown in
// AUTO.LOITER all the same. z is AMSL in every frame, yaw in radians.
func (b *simPX4Brain) reposition(c simCommand) common.MAV_RESULT {
	result := common.MAV_RESULT_ACCEPTED
	if c.p[1] != 1 {
		result = common.MAV_RESULT_UNSUPPORTED
		if b.mode != simPX4Loiter {
			return result
		}
	}
	b.stay()
	t := b.target
	if !math.IsNaN(c.lat) && !math.IsNaN(c.lon) {
		if c.long {
			c.lat += 1e-5 // float32 misses by a metre
		}
		t.north, t.east = simMetres(c.lat, c.lon)
	}
	if b.fence > 0 && math.Hypot(t.north, t.east) > b.fence {
		b.text(common.MAV_SEVERITY_CRITICAL, "Reposition is outside geofence")
		return result
	}
	if !math.IsNaN(c.alt) {
		t.up = c.alt - simHomeAlt
	}
	if c.p[0] > 0 {
		t.speed = c.p[0]
	}
	t.yaw = c.p[3]
	b.obey(b.row(simPX4Loiter))
	if b.canFly() {
		b.target = t
	}
	return result
}

func (b *simPX4Brain) canArm() bool {
	row := b.row(b.mode)
	return time.Since(b.booted) >= b.armableAfter && !row.noArm && (!row.sticks() || b.streaming())
}

func (b *simPX4Brain) armDisarm(arm bool) common.MAV_RESULT {
	denied := func(text string) common.MAV_RESULT {
		b.text(common.MAV_SEVERITY_CRITICAL, text)
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	flying, z := b.row(b.mode).flying, b.stick(2)
	switch {
	case arm == b.armed:
	case !arm && b.airborne:
		return denied("Disarming denied: not landed")
	case !arm:
		b.disarm()
	case !b.canArm():
		return denied("Arming denied: Resolve system health failures first")
	case flying == simThrust && z > 0:
		return denied("Arming denied: high throttle")
	case (flying == simTilt || flying == simVelocity) && z > 500:
		return denied("Arming denied: throttle above center")
	default:
		b.arm()
		b.seen = b.streaming()
		b.text(common.MAV_SEVERITY_INFO, "Armed by external command")
		if b.mode == simPX4Takeoff {
			b.beginClimb()
		}
	}
	return common.MAV_RESULT_ACCEPTED
}

// disarmed never stays in AUTO.LAND or AUTO.RTL.
func (b *simPX4Brain) disarmed(landed bool) {
	b.seen, b.lostAt = false, time.Time{}
	if landed {
		b.text(common.MAV_SEVERITY_INFO, "Disarmed by landing")
	}
	switch {
	case b.mode == simPX4Land && b.armable == simPX4Posctl:
		b.enter(simPX4Posctl)
	case b.row(b.mode).flying == simDescend || b.row(b.mode).flying == simReturn:
		b.enter(simPX4Loiter)
	}
}

// sticks takes a MANUAL_CONTROL. An axis out of range stays as it was.
func (b *simPX4Brain) sticks(_ uint8, m *common.MessageManualControl) {
	if m.Target != simSystem {
		return
	}
	now := time.Now()
	stick := simStick{now, [4]int16{m.X, m.Y, m.Z, m.R}}
	for i, v := range stick.axis {
		if v < -1000 || v > 1000 || i == 2 && v < 0 {
			stick.axis[i] = b.stick(i)
		}
	}
	if n := len(b.window); n == 0 || now.Sub(b.window[n-1].at) > simStickGap {
		b.window, b.since = nil, now
	}
	b.window = append(b.window, stick)
	for len(b.window) > 1 && now.Sub(b.window[1].at) >= simStickMoving {
		b.window = b.window[1:]
	}
}

// stick returns an axis as it was last heard; centred before that.
func (b *simPX4Brain) stick(axis int) int16 {
	if len(b.window) == 0 {
		return [...]int16{0, 0, 500, 0}[axis]
	}
	return b.window[len(b.window)-1].axis[axis]
}

func (b *simPX4Brain) axes() (x, y, z, r float64) {
	return float64(b.stick(0)) / 1000, float64(b.stick(1)) / 1000, float64(b.stick(2)) / 1000, float64(b.stick(3)) / 1000
}

// streaming tells whether sticks come, often enough and long enough.
func (b *simPX4Brain) streaming() bool {
	n := len(b.window)
	return n > 0 && time.Since(b.window[n-1].at) <= simStickGap && time.Since(b.since) >= simStickProof
}

// moving tells whether an axis changed by 200 or more within the last 1.6 s,
// at once or little by little. A constant value never moves.
func (b *simPX4Brain) moving() bool {
	for axis := range 4 {
		low, high := int16(math.MaxInt16), int16(math.MinInt16)
		for i, st := range b.window {
			if i+1 < len(b.window) && time.Since(b.window[i+1].at) >= simStickMoving {
				continue // was over before
			}
			low, high = min(low, st.axis[axis]), max(high, st.axis[axis])
		}
		if int(high)-int(low) >= simStickStep {
			return true
		}
	}
	return false
}

func (b *simPX4Brain) step() {
	now := time.Now()
	comingDown := b.mode == simPX4Land || b.mode == simPX4RTL
	switch {
	case !b.armed || b.failsafe || comingDown:
		b.lostAt = time.Time{}
	case b.streaming():
		b.seen, b.lostAt = true, time.Time{}
	case !b.seen:
	case b.lostAt.IsZero():
		b.lostAt = now
	case now.Sub(b.lostAt) >= simStickLoss-simTick:
		b.stickLoss(now)
	}
	// Sticks that come back don't end a failsafe, nor do they take over.
	if b.failsafe && b.mode == simPX4Loiter && !now.Before(b.holdUntil) {
		b.enter(simPX4RTL)
	}
	if b.armed && !b.failsafe && simPX4IsAuto(b.mode) && b.streaming() && b.moving() && !now.Before(b.takingAt) {
		b.takingAt = now.Add(simTakeOver)
		b.after(simTakeOver, b.takeOver)
	}
}

func (b *simPX4Brain) stickLoss(now time.Time) {
	b.enter(simPX4Loiter)
	b.stay()
	b.failsafe, b.seen, b.lostAt, b.holdUntil = true, false, time.Time{}, now.Add(simFailsafe)
	b.text(common.MAV_SEVERITY_CRITICAL, "Failsafe activated: entering Hold for 5 seconds")
}

func (b *simPX4Brain) takeOver() {
	if !b.armed || b.failsafe || !simPX4IsAuto(b.mode) {
		return
	}
	b.text(common.MAV_SEVERITY_INFO, "Pilot took over using sticks")
	b.enter(simPX4Posctl)
}

// ---- ArduPilot ----

// ArduPilot's custom modes that the code below names.
const (
	simArduStabilize = 0
	simArduGuided    = 4
	simArduRTL       = 6
	simArduLand      = 9
)

var simArduVehicle = simVehicle{
	autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA,
	version:   4<<24 | 5<<16 | 5<<8 | 255,
	volts:     12.6,
	first:     simArduStabilize, hold: simArduGuided, land: simArduLand, rtl: simArduRTL,
	landSpeed: 0.5, stickSpeed: 8.6, stickUp: 2.5, stickDown: 2.4,
	streams: map[uint32]time.Duration{0: time.Second}, // nothing else until asked
	modes: []simMode{
		{custom: simArduStabilize, name: "STABILIZE", flying: simThrust},
		{custom: 1, name: "ACRO", flying: simThrust},
		{custom: 2, name: "ALT_HOLD", flying: simTilt},
		{custom: 3, name: "AUTO", position: true, noArm: true},
		{custom: simArduGuided, name: "GUIDED", position: true},
		{custom: 5, name: "LOITER", flying: simVelocity, position: true},
		{custom: simArduRTL, name: "RTL", flying: simReturn, position: true, noArm: true},
		{custom: 7, name: "CIRCLE", position: true, noArm: true},
		{custom: simArduLand, name: "LAND", flying: simDescend, noArm: true},
		{custom: 11, name: "DRIFT", flying: simTilt, position: true},
		{custom: 13, name: "SPORT", flying: simTilt},
		{custom: 14, name: "FLIP", flying: simThrust, noArm: true},
		{custom: 15, name: "AUTOTUNE", flying: simTilt, noArm: true},
		{custom: 16, name: "POSHOLD", flying: simVelocity, position: true},
		{custom: 17, name: "BRAKE", position: true, noArm: true},
		{custom: 18, name: "THROW", position: true},
		{custom: 20, name: "GUIDED_NOGPS", flying: simTilt},
		{custom: 21, name: "SMART_RTL", flying: simReturn, position: true, noArm: true},
	},
}

const (
	simArduReady    = 2 * time.Second // "ArduPilot Ready"
	simArduOverride = 3 * time.Second // RC_OVERRIDE_TIME: how long a stick stands
	simArduRadio    = time.Second     // from there to the radio failsafe
)

// simArduBrain is ArduCopter as measured in AUTOPILOTS.md.
type simArduBrain struct {
	*simulator
	stick     [4]int16  // x, y, z, r
	stickAt   time.Time // zero: never, or given up
	overrides [4]bool   // axes that the sticks hold
	speed     float64   // of DO_CHANGE_SPEED
}

func (b *simArduBrain) start() {
	*b = simArduBrain{simulator: b.simulator, speed: simCruise}
	b.transmit([]byte{0x00, 0xff, 0x41, 0x50, 0x0d, 0x0a}) // stray bytes of the boot loader
	b.after(simArduReady, func() {
		b.text(common.MAV_SEVERITY_INFO, "ArduPilot Ready")
		b.send(b.message(242))
		if !b.armed {
			b.enter(simArduStabilize) // a mode that was set before this is lost
		}
	})
}

// text follows the ack that it explains.
func (b *simArduBrain) text(severity common.MAV_SEVERITY, text string) {
	b.after(5*time.Millisecond, func() { b.sendText(severity, text, 0) })
}

func (b *simArduBrain) state() (common.MAV_MODE_FLAG, common.MAV_STATE) {
	base := common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | common.MAV_MODE_FLAG_STABILIZE_ENABLED |
		common.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
	if b.row(b.mode).position {
		base |= common.MAV_MODE_FLAG_GUIDED_ENABLED
	}
	if b.armed {
		base |= common.MAV_MODE_FLAG_SAFETY_ARMED
	}
	switch {
	case b.failsafe:
		return base, common.MAV_STATE_CRITICAL
	case b.airborne:
		return base, common.MAV_STATE_ACTIVE
	}
	return base, common.MAV_STATE_STANDBY
}

func (b *simArduBrain) command(c simCommand) {
	switch c.id {
	case common.MAV_CMD_DO_SET_MODE:
		if int(c.p[0])&1 == 0 {
			b.ack(c, common.MAV_RESULT_FAILED)
			return
		}
		b.ack(c, b.obey(uint32(uint8(c.p[1]))))
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		b.ack(c, b.armDisarm(c.p[0] == 1))
	case common.MAV_CMD_NAV_TAKEOFF:
		b.ack(c, b.takeoff(c))
	case common.MAV_CMD_NAV_LAND: // its place is ignored
		b.ack(c, b.obey(simArduLand))
	case common.MAV_CMD_NAV_RETURN_TO_LAUNCH:
		b.ack(c, b.obey(simArduRTL))
	case common.MAV_CMD_DO_REPOSITION:
		b.ack(c, b.reposition(c))
	case common.MAV_CMD_DO_CHANGE_SPEED, common.MAV_CMD_CONDITION_YAW:
		b.ack(c, b.adjust(c))
	default:
		b.ack(c, common.MAV_RESULT_UNSUPPORTED)
	}
}

func (b *simArduBrain) positioned() bool { return time.Since(b.booted) >= b.armableAfter }

// obey enters a mode. While disarmed any will do; one that doesn't exist fails.
func (b *simArduBrain) obey(custom uint32) common.MAV_RESULT {
	row := b.row(custom)
	switch {
	case row.refused:
		b.text(common.MAV_SEVERITY_WARNING, "No such mode")
		return common.MAV_RESULT_FAILED
	case b.armed && row.position && !b.positioned():
		b.text(common.MAV_SEVERITY_WARNING, "Mode change to "+row.name+" failed: requires position")
		return common.MAV_RESULT_FAILED
	}
	b.failsafe = false
	b.enter(custom)
	if custom == simArduLand && b.armed && !b.airborne {
		b.disarm()
	}
	return common.MAV_RESULT_ACCEPTED
}

// entered: a new mode flies at the default speed, and is told at once.
func (b *simArduBrain) entered() {
	b.speed = simCruise
	b.send(b.message(0))
}

func (b *simArduBrain) climbed() {}

// takeoff wants GUIDED and armed, and takes metres above home. In LOITER it is
// accepted and nothing turns.
func (b *simArduBrain) takeoff(c simCommand) common.MAV_RESULT {
	switch {
	case !c.long && c.frame != common.MAV_FRAME_GLOBAL_RELATIVE_ALT:
		return common.MAV_RESULT_DENIED
	case !b.armed || b.airborne || math.IsNaN(c.alt) || c.alt <= 0:
		return common.MAV_RESULT_FAILED
	case b.row(b.mode).name == "LOITER":
		return common.MAV_RESULT_ACCEPTED
	case b.mode != simArduGuided:
		return common.MAV_RESULT_FAILED
	}
	b.climb(c.alt)
	return common.MAV_RESULT_ACCEPTED
}

// reposition ignores speed and yaw, and what it accepts on the ground.
func (b *simArduBrain) reposition(c simCommand) common.MAV_RESULT {
	var up float64
	switch c.frame {
	case common.MAV_FRAME_GLOBAL, common.MAV_FRAME_GLOBAL_INT:
		up = c.alt - simHomeAlt
	case common.MAV_FRAME_GLOBAL_RELATIVE_ALT, common.MAV_FRAME_GLOBAL_RELATIVE_ALT_INT:
		up = c.alt
	case common.MAV_FRAME_GLOBAL_TERRAIN_ALT, common.MAV_FRAME_GLOBAL_TERRAIN_ALT_INT:
		up = -5 // accepted, and flown into the ground
	default:
		return common.MAV_RESULT_DENIED
	}
	switch {
	case c.long:
		return common.MAV_RESULT_UNSUPPORTED
	case c.lat == 0 && c.lon == 0, math.IsNaN(c.lat + c.lon + c.alt):
		return common.MAV_RESULT_DENIED
	case int(c.p[1])&1 == 0 && b.mode != simArduGuided:
		return common.MAV_RESULT_DENIED
	}
	if b.mode != simArduGuided {
		if result := b.obey(simArduGuided); result != common.MAV_RESULT_ACCEPTED {
			return result
		}
	}
	if b.canFly() {
		north, east := simMetres(c.lat, c.lon)
		b.climbing = false
		b.target = simTarget{north: north, east: east, up: up, yaw: math.NaN(), speed: b.speed}
	}
	return common.MAV_RESULT_ACCEPTED
}

// adjust is DO_CHANGE_SPEED and CONDITION_YAW: in GUIDED only.
func (b *simArduBrain) adjust(c simCommand) common.MAV_RESULT {
	switch {
	case b.mode != simArduGuided:
		return common.MAV_RESULT_FAILED
	case c.id == common.MAV_CMD_CONDITION_YAW:
		yaw := c.p[0] * math.Pi / 180
		if c.p[3] == 1 { // relative, param3 tells which way
			yaw = b.quad.heading + math.Copysign(yaw, c.p[2])
		}
		b.target.yaw = yaw
	case c.p[0] != 1 || !(c.p[1] > 0):
		return common.MAV_RESULT_FAILED
	default:
		b.speed, b.target.speed = c.p[1], c.p[1]
	}
	return common.MAV_RESULT_ACCEPTED
}

func (b *simArduBrain) canArm() bool {
	row := b.row(b.mode)
	return !row.noArm && (!row.position || b.positioned())
}

func (b *simArduBrain) armDisarm(arm bool) common.MAV_RESULT {
	denied := func(text string) common.MAV_RESULT {
		b.text(common.MAV_SEVERITY_CRITICAL, text)
		return common.MAV_RESULT_FAILED
	}
	row := b.row(b.mode)
	switch {
	case arm == b.armed:
	case !arm && b.airborne:
		return common.MAV_RESULT_FAILED
	case !arm:
		b.disarm()
	case row.noArm:
		return denied("Arm: " + row.name + " mode not armable")
	case !b.canArm():
		return denied("PreArm: Need Position Estimate")
	case b.axis(2) > 0: // even in GUIDED
		return denied("Arm: Throttle (RC3) is not neutral")
	default:
		b.arm()
		b.text(common.MAV_SEVERITY_INFO, "Arming motors")
	}
	return common.MAV_RESULT_ACCEPTED
}

// disarmed stays in its mode, LAND and RTL included.
func (b *simArduBrain) disarmed(bool) { b.text(common.MAV_SEVERITY_INFO, "Disarming motors") }

// sticks count from SYSID_MYGCS only, and only to exactly this system.
func (b *simArduBrain) sticks(from uint8, m *common.MessageManualControl) {
	if from != b.sysidMyGCS || m.Target != simSystem || m.Z < 0 {
		return
	}
	b.stickAt = time.Now()
	for i, v := range [4]int16{m.X, m.Y, m.Z, m.R} {
		b.overrides[i] = v != math.MaxInt16
		b.stick[i] = max(-1000, min(1000, v))
	}
}

// axis is what the sticks say, for 3 s after they were heard; then, and for a
// released axis, the receiver's: centred, with the throttle low.
func (b *simArduBrain) axis(i int) int16 {
	if b.stickAt.IsZero() || time.Since(b.stickAt) > simArduOverride || !b.overrides[i] {
		return 0
	}
	return b.stick[i]
}

func (b *simArduBrain) axes() (x, y, z, r float64) {
	return float64(b.axis(0)) / 1000, float64(b.axis(1)) / 1000, float64(b.axis(2)) / 1000, float64(b.axis(3)) / 1000
}

// step is the radio failsafe (FS_THR_ENABLE): the sticks are silent, no
// receiver has any, and the mode is flown by them.
func (b *simArduBrain) step() {
	silent := !b.stickAt.IsZero() && time.Since(b.stickAt) >= simArduOverride+simArduRadio
	if silent && b.armed && !b.receiver && b.row(b.mode).sticks() {
		b.stickAt = time.Time{}
		b.enter(simArduRTL)
		b.failsafe = true
		b.text(common.MAV_SEVERITY_WARNING, "Radio Failsafe")
	}
}
