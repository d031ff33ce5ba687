package main

// The built-in simulator (-device sim): an autopilot small enough to read. It speaks MAVLink over a cable in memory, as
// PX4 or as ArduPilot's Copter. It answers as docs/autopilots.md says, refusals and oddities included. It shares only
// the codec, and what a port is, with the program: what it shared, it could not find wrong.
//
// This file is what all flavours share: the vehicle, its messages out and in, the moving point, the cable. What PX4
// says, obeys and how it flies is in sim_px4.go; sim_ardupilot.go has the same of ArduPilot. Tests meddle with a
// simulator by a simMeddler of their own (simSwitches in kit_sim_test.go).

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialect"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
	"github.com/bluenviron/gomavlib/v3/pkg/streamwriter"
)

const (
	simTick = 20 * time.Millisecond

	// simBuffer is how many bytes the cable holds in each direction.
	simBuffer = 4096

	simSystem  = 1
	simHomeLat = 47.3977419
	simHomeLon = 8.5455937

	// simHomeAlt is in metres AMSL.
	simHomeAlt = 488.3
)

// simFlavour is a vehicle as it is built: its data, and the autopilot that flies it. Tests have more than two.
type simFlavour = *simVehicle

// simFlying is how a mode flies.
type simFlying int

const (
	// simHold: stays, or flies to the target
	simHold simFlying = iota

	// simDescend: lands where it is
	simDescend

	// simReturn: flies home and lands
	simReturn

	// simCourse: flies straight on
	simCourse

	// simOrbit: circles; sticks change the circle
	simOrbit

	// simVelocity: sticks are velocities: centred sticks stop it
	simVelocity

	// simTilt: sticks are angles: with centred sticks it drifts on
	simTilt

	// simTrim: sticks change the angle, which stays when they are centred
	simTrim

	// simThrust: like simTilt, but the throttle is thrust
	simThrust
)

// simReceiver is the state of the vehicle's own RC receiver.
type simReceiver int

const (
	// simReceiverNone: never there
	simReceiverNone simReceiver = iota

	// simReceiverLost: was there; its transmitter is out of reach
	simReceiverLost

	// simReceiverIdle: live, its throttle low: a transmitter on a table
	simReceiverIdle

	// simReceiverInHand: live, its throttle in the middle: a pilot
	simReceiverInHand
)

// live reports whether the receiver hears a transmitter.
func (r simReceiver) live() bool { return r >= simReceiverIdle }

// simMode is one row of a flavour's table of modes.
type simMode struct {
	custom uint32
	name   string
	flying simFlying

	// since: the first release that has it; 0: each has
	since uint32

	// noArm: the vehicle can't be armed in it
	noArm bool

	// disarmedOnly: accepted only while disarmed
	disarmedOnly bool

	// refused: never accepted
	refused bool

	// needsPosition: ArduPilot: needs a position estimate
	needsPosition bool
}

// sticks reports whether the mode is flown by sticks.
func (m simMode) sticks() bool { return m.flying >= simVelocity }

// simVehicle is what differs between the flavours.
type simVehicle struct {
	// equip: gives s its autopilot
	equip func(s *simulator) (simAutopilot, simFlier)

	autopilot common.MAV_AUTOPILOT

	// typ: 0 for a quadrotor
	typ common.MAV_TYPE

	version uint32
	volts   float64
	modes   []simMode

	// first, hold, land, rtl: custom modes; first is the mode after boot
	first, hold, land, rtl uint32

	// landSpeed: m/s
	landSpeed float64

	// brake: m/s², the deceleration of a stop in a mode without sticks
	brake float64

	// soft is how long a takeoff climbs slowly at first.
	soft time.Duration

	// early: a climb ends this many metres below its height; 0 for 0.2
	early float64

	// stickSpeed, stickUp, stickDown: m/s at full deflection
	stickSpeed, stickUp, stickDown float64

	streams map[uint32]time.Duration

	// defaults: of the parameters
	defaults map[string]float64
}

// simAutopilot is what an autopilot says and obeys.
type simAutopilot interface {
	// start is called at each boot, also in flight.
	start()

	// step is called each tick, before the vehicle moves.
	step()

	// command obeys a command and acknowledges it.
	command(c simCommand)

	// sticks takes a MANUAL_CONTROL, from any sender.
	sticks(fromSystem uint8, m *common.MessageManualControl)

	// hear takes another program's heartbeat.
	hear(system uint8, fromGCS bool, m *common.MessageHeartbeat)

	// message makes a message; nil if there is none to send now.
	message(id uint32) message.Message

	// state is what HEARTBEAT says beside the mode.
	state() (base common.MAV_MODE_FLAG, status common.MAV_STATE)

	// text sends a STATUSTEXT.
	text(severity common.MAV_SEVERITY, text string)

	// entered is called when a new mode is in force.
	entered()

	// disarmed is called after a disarming. landed: the vehicle has landed since it was armed.
	disarmed(landed bool)
}

// simFlier is how an autopilot flies.
type simFlier interface {
	// wanted is the velocity and the turn rate that the mode asks for, in m/s and rad/s.
	wanted(now time.Time, dt float64) (vn, ve, vu, turn float64)

	// steer changes the velocity towards the wanted one, and moves the vehicle.
	steer(vn, ve, vu, dt float64)

	// stay makes the place where the vehicle can stop the target.
	stay()

	// reached is called when the flight has come to a point.
	reached(p simPoint)

	// disarms reports whether the vehicle disarms by itself now. It is asked on the ground.
	disarms(now time.Time) bool
}

// simPoint is a point of a flight.
type simPoint int

const (
	simLiftOff simPoint = iota
	simTouchDown

	// simHeight is the end of a climb, a little below its height (see simVehicle.early).
	simHeight
)

// simMeddler meddles with a simulator. The program's does nothing (simAlone); that of the tests has their switches
// (simSwitches in kit_sim_test.go). It is called with the simulator's mutex locked.
type simMeddler interface {
	// line is what the companion's cable is like now.
	line() *simLine

	// heard is told of each message that came from the companion.
	heard(system, component uint8, msg message.Message)

	// entering is told of each mode that is entered, also the present one.
	entering(custom uint32)

	// obeyed reports whether a command has been dealt with: the autopilot does not see it.
	obeyed(c simCommand) bool

	// acked returns what is sent to the companion in place of an ack.
	acked(ack *common.MessageCommandAck) []simAnswer

	// withholds reports whether a message is not sent now.
	withholds(id uint32) bool
}

// simLine is a cable. The zero value loses nothing and takes no time.
type simLine struct {
	// They damage bytes to the autopilot and to the companion; nil: nothing does.
	noiseIn, noiseOut func([]byte) []byte

	// delay is that of every frame to the companion, delayUp that of what it writes.
	delay, delayUp time.Duration

	// behind is how much later a frame comes that leaves at a moment, as from a radio that buffers; nil: no later.
	behind func(at time.Time) time.Duration

	// gathers is how long bytes to the autopilot are gathered, as a packet radio does.
	gathers time.Duration

	// muted: nothing goes to the companion.
	muted bool

	// mavlink1: the autopilot sends MAVLink 1 on it.
	mavlink1 bool

	// noTime: a router passes no TIMESYNC on.
	noTime bool

	// Writes to the autopilot wait until stall is closed; nil: they don't wait.
	stall chan struct{}
}

// simAlone meddles with nothing.
type simAlone struct{ cable simLine }

func (a *simAlone) line() *simLine { return &a.cable }

func (a *simAlone) heard(uint8, uint8, message.Message) {}

func (a *simAlone) entering(uint32) {}

func (a *simAlone) obeyed(simCommand) bool { return false }

func (a *simAlone) acked(ack *common.MessageCommandAck) []simAnswer { return []simAnswer{{ack: ack}} }

func (a *simAlone) withholds(uint32) bool { return false }

// simAnswer is an ack that a simMeddler sends in place of the autopilot's. Zero ids are the autopilot's.
type simAnswer struct {
	after             time.Duration
	system, component uint8
	ack               *common.MessageCommandAck
}

// simSetup is one vehicle among those of its flavour: what its owner has set, and where it is. It is changed before
// run or inside change.
type simSetup struct {
	// system is its id; instance N of a simulated PX4 is N+1.
	system uint8

	// uid is in AUTOPILOT_VERSION; all simulated PX4 with one id have the same.
	uid uint64

	// params are the parameters that it has.
	params map[string]float64

	// uptime is for how long it has been on when it runs first.
	uptime time.Duration

	// armableAfter is the time from boot; ArduPilot really takes 42 s.
	armableAfter time.Duration

	// receiver is the state of its RC receiver, rc its x, y, z, r, as in MANUAL_CONTROL.
	receiver simReceiver
	rc       [4]int16

	// rcSwitch is the transmitter's mode switch, channel 5, in µs.
	rcSwitch uint16

	// foreignGCS: a real ground station (255, 1 Hz) is on another link.
	foreignGCS bool

	// trouble are the faults that keep a PX4 from arming.
	trouble []simTrouble

	// noGPS is since when an ArduPilot's GPS has no fix; zero: it has one.
	noGPS time.Time

	// secondGPS: an ArduPilot's receiver is plugged in as the second one.
	secondGPS bool

	// fence is its radius around home in metres; 0 for no fence.
	fence float64

	// slope is how much the ground rises to the north, in metres a metre.
	slope float64

	// homeSteps: PX4 corrects home's altitude again and again.
	homeSteps bool

	// homeUp: another program moved home up on a PX4, until the next takeoff.
	homeUp float64

	// noLiveMode: PX4 has no CURRENT_MODE, ArduPilot refuses HEARTBEAT's interval.
	noLiveMode bool
}

// simulator is a vehicle with its autopilot. Its mutex guards everything in it, and
// the cable. Only run's goroutine moves the vehicle; others use the methods.
type simulator struct {
	mu sync.Mutex

	meddler simMeddler

	simSetup
	flavour simFlavour
	simVehicle
	brain  simAutopilot
	flight simFlier

	// signature: nil: it does not sign
	signature *simSignature

	// wake: the companion wrote, or change was called
	wake chan struct{}

	// port: nil while nothing is plugged in
	port *simPort

	// gcsPort: the cable of a ground station; nil if there is none
	gcsPort *simPort

	unplugged bool

	agenda []simEvent

	// arrives is when the last delayed frame arrives.
	arrives time.Time

	streaming []*simStream
	out       bytes.Buffer
	writer    *streamwriter.Writer
	textID    uint16

	// dice: draws times from the measured ranges
	dice *rand.Rand

	booted time.Time
	ticked time.Time
	mode   uint32

	// pending: an acknowledged mode that is not in force yet
	pending *simPending

	// veiled: the old mode, which heartbeats show until veilUntil
	veiled uint32

	veilUntil time.Time

	// home: metres from the first home
	home struct{ north, east, up float64 }

	armed    bool
	armedAt  time.Time
	failsafe bool

	// vtol: of a PX4 that is a VTOL
	vtol common.MAV_VTOL_STATE

	airborne bool
	landedAt time.Time
	climbing bool

	// climbFrom is when the propellers are up to speed.
	climbFrom time.Time

	// climbTo: metres above home
	climbTo float64

	target simTarget
	quad   simQuad

	// used: the part of the battery that is used, 0…1
	used float64
}

// newSimulator returns a vehicle at home. It is switched off until run. Every flavour can be
// armed 5 s after boot, so that a newcomer need not wait. A test that needs ArduPilot's
// real 42 s sets armableAfter.
func newSimulator(flavour simFlavour) *simulator {
	s := &simulator{
		meddler: new(simAlone),
		flavour: flavour,
		wake:    make(chan struct{}, 1),
		dice:    rand.New(rand.NewPCG(1, 2)),
	}
	s.system = simSystem
	s.armableAfter = 5 * time.Second
	s.rcSwitch = 1800
	s.simVehicle = *flavour
	s.brain, s.flight = flavour.equip(s)
	s.params = maps.Clone(s.defaults)
	if !s.isPX4() {
		// ArduPilot's own simulator also has a receiver, and arms with it
		s.receiver = simReceiverIdle
	}
	s.writer = &streamwriter.Writer{
		FrameWriter: &frame.Writer{ByteWriter: &s.out, DialectRW: simDialect()},
		Version:     streamwriter.V2,
		SystemID:    simSystem,
	}
	if err := errors.Join(s.writer.FrameWriter.Initialize(), s.writer.Initialize()); err != nil {
		// A mistake in the lines above.
		panic(err)
	}
	s.reset()
	return s
}

func (s *simulator) isPX4() bool { return s.autopilot == common.MAV_AUTOPILOT_PX4 }

// run flies until ctx is done, then unplugs the cable.
func (s *simulator) run(ctx context.Context) {
	tick := time.NewTicker(simTick)
	defer tick.Stop()
	defer s.unplug()
	s.change(func() {
		s.boot()
		s.booted = s.booted.Add(-s.uptime)
	})
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
		s.runAgenda()
		if ticked {
			s.advance()
		}
		s.mu.Unlock()
	}
}

// reset puts the vehicle on the ground at home, disarmed.
func (s *simulator) reset() {
	s.quad = simQuad{}
	s.target = simTarget{yaw: math.NaN()}
	s.armed = false
	s.airborne = false
	s.climbing = false
	s.failsafe = false
	s.armedAt = time.Time{}
	s.landedAt = time.Time{}
	s.home.north, s.home.east, s.home.up = 0, 0, 0
	s.mode = s.first
	s.pending = nil
	s.veilUntil = time.Time{}
}

// boot starts the autopilot's clock and its streams. The parameters survive, and the flight goes on
// in its mode unless reset has ended it.
func (s *simulator) boot() {
	s.booted = time.Now()
	s.ticked = time.Now()
	s.agenda = nil
	s.streaming = nil
	s.textID = 0
	s.failsafe = false
	s.pending = nil
	s.veilUntil = time.Time{}
	s.signature.restart()
	for id, every := range s.streams {
		s.stream(id, every)
		if s.gcsPort != nil {
			s.streamOn(true, id, every)
		}
	}
	s.brain.start()
}

// change runs f under the mutex, to change switches.
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

// simEvent is something to do between two ticks.
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

// soon calls do after d, at once if d is 0.
func (s *simulator) soon(d time.Duration, do func()) {
	if d <= 0 {
		do()
		return
	}
	s.after(d, do)
}

// between draws a time from a measured range.
func (s *simulator) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.dice.Int64N(int64(high-low)))
}

// alarm returns a channel that fires when the next event is due; nil without an event.
func (s *simulator) alarm() <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.agenda) == 0 {
		return nil
	}
	return time.After(time.Until(s.agenda[0].at))
}

func (s *simulator) runAgenda() {
	for len(s.agenda) > 0 && !s.agenda[0].at.After(time.Now()) {
		e := s.agenda[0]
		s.agenda = s.agenda[1:]
		e.do()
	}
}

// ---- Messages out ----

// send sends a message on both cables.
func (s *simulator) send(msg message.Message) {
	s.sendOn(false, msg)
	if s.gcsPort != nil {
		s.sendOn(true, msg)
	}
}

// sendOn sends a message on one cable.
func (s *simulator) sendOn(toGCS bool, msg message.Message) { s.sendFrom(0, 0, toGCS, msg) }

// sendFrom sends a message with these ids; zero ids are the autopilot's.
func (s *simulator) sendFrom(system, component uint8, toGCS bool, msg message.Message) {
	w := s.writer
	w.SystemID, w.ComponentID, w.Version = cmp.Or(system, s.system), cmp.Or(component, 1), streamwriter.V2
	if s.meddler.line().mavlink1 {
		// A MAVLink 1 id has one byte.
		if msg.GetID() > 255 {
			return
		}
		w.Version = streamwriter.V1
	}
	s.out.Reset()
	if err := w.Write(msg); err != nil {
		// A message that is not in the dialect.
		panic(err)
	}
	s.transmitOn(toGCS, s.signature.signed(bytes.Clone(s.out.Bytes()), toGCS))
}

// ack answers a command.
func (s *simulator) ack(c simCommand, result common.MAV_RESULT) {
	ack := &common.MessageCommandAck{
		Command: c.id, Result: result, TargetSystem: c.system, TargetComponent: c.component,
	}
	answers := []simAnswer{{ack: ack}}
	if !c.fromGCS {
		answers = s.meddler.acked(ack)
	}
	for _, a := range answers {
		s.soon(a.after, func() { s.sendFrom(a.system, a.component, c.fromGCS, a.ack) })
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

	// toGCS: it goes to the ground station's cable
	toGCS bool
}

func (s *simulator) stream(id uint32, every time.Duration) { s.streamOn(false, id, every) }

// streamOn starts or changes a stream. An interval of 0 or less ends the stream.
func (s *simulator) streamOn(toGCS bool, id uint32, every time.Duration) {
	s.streaming = slices.DeleteFunc(s.streaming, func(st *simStream) bool { return st.id == id && st.toGCS == toGCS })
	if every > 0 {
		s.streaming = append(s.streaming, &simStream{id, every, time.Now(), toGCS})
	}
	slices.SortFunc(s.streaming, func(a, b *simStream) int { return int(a.id) - int(b.id) })
}

// sendStreams sends the messages that are due. It runs once a tick; the average rates are exact.
func (s *simulator) sendStreams(now time.Time) {
	for _, st := range s.streaming {
		for !st.next.After(now) {
			st.next = st.next.Add(st.every)
			if m := s.brain.message(st.id); m != nil && !s.meddler.withholds(st.id) {
				s.sendOn(st.toGCS, m)
			}
		}
	}
}

// shown returns the mode that a heartbeat shows.
func (s *simulator) shown() uint32 {
	if time.Now().Before(s.veilUntil) {
		return s.veiled
	}
	return s.mode
}

// sharedMessage returns a message that both autopilots make in the same way; nil for any other.
func (s *simulator) sharedMessage(id uint32) message.Message {
	boot := time.Since(s.booted)
	lat, lon := simPlace(s.quad.north, s.quad.east)
	q := &s.quad
	switch id {
	case 0:
		base, status := s.brain.state()
		return &common.MessageHeartbeat{
			Type: cmp.Or(s.typ, common.MAV_TYPE_QUADROTOR), Autopilot: s.autopilot, BaseMode: base,
			CustomMode: s.shown(), SystemStatus: status, MavlinkVersion: 3,
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
	case 147:
		return s.batteryStatus()
	case 148:
		return &common.MessageAutopilotVersion{FlightSwVersion: s.version, Uid: s.uid}
	case 242:
		lat, lon := simPlace(s.home.north, s.home.east)
		return &common.MessageHomePosition{
			Latitude: simE7(lat), Longitude: simE7(lon), Altitude: int32(s.homeAlt() * 1000),
			Q: [4]float32{float32(math.NaN()), float32(math.NaN()), float32(math.NaN()), float32(math.NaN())},
		}
	case 245:
		return &common.MessageExtendedSysState{LandedState: s.landed(), VtolState: s.vtol}
	}
	return nil
}

func (s *simulator) sysStatus() *common.MessageSysStatus {
	return &common.MessageSysStatus{
		Load:             80,
		VoltageBattery:   uint16((s.volts - 2.4*s.used) * 1000),
		CurrentBattery:   int16(s.amps() * 100),
		BatteryRemaining: int8(math.Ceil(100 * (1 - s.used))),
	}
}

// batteryStatus has the whole voltage in the first cell, as captured of both autopilots.
func (s *simulator) batteryStatus() *common.MessageBatteryStatus {
	m := s.sysStatus()
	b := &common.MessageBatteryStatus{
		Temperature: math.MaxInt16, CurrentBattery: m.CurrentBattery, BatteryRemaining: m.BatteryRemaining,
	}
	for i := range b.Voltages {
		b.Voltages[i] = math.MaxUint16
	}
	b.Voltages[0] = m.VoltageBattery
	return b
}

// amps returns the battery's current.
func (s *simulator) amps() float64 {
	if s.airborne {
		return 11
	}
	return 0.5
}

// homeAlt returns home's altitude. With homeSteps the simulated PX4 corrects it by a metre or two: every 2 s
// in the first two minutes, and every 0.25 s in one second of each 30. A real PX4 1.17: every 0.5 s.
func (s *simulator) homeAlt() float64 {
	boot := time.Since(s.booted)
	every := 2 * time.Second
	switch {
	case !s.homeSteps:
		return simHomeAlt + s.home.up + s.homeUp
	case boot%(30*time.Second) < time.Second:
		every = 250 * time.Millisecond
	case boot > 2*time.Minute:
		return simHomeAlt + 0.6
	}
	steps := [...]float64{0, 1.3, -0.1, 1.1, -0.6, 0.6, 0.9}
	return simHomeAlt + steps[int(boot/every)%len(steps)]
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
	id    common.MAV_CMD
	long  bool
	frame common.MAV_FRAME

	// p: param1 to param4
	p [4]float64

	// lat, lon, alt: degrees, metres; a COMMAND_INT's INT32_MAX becomes NaN
	lat, lon, alt float64

	// system, component: the sender
	system, component uint8

	// fromGCS: it came on the ground station's cable
	fromGCS bool
}

// receive handles everything that was written to both cables.
func (s *simulator) receive() {
	for f := s.port.next(); f != nil; f = s.port.next() {
		system := f.GetSystemID()
		component := f.GetComponentID()
		if !s.signature.takes(f, false) {
			continue
		}
		s.meddler.heard(system, component, f.GetMessage())
		s.handle(system, component, false, f.GetMessage())
	}
	for f := s.gcsPort.next(); f != nil; f = s.gcsPort.next() {
		if s.signature.takes(f, true) {
			s.handle(f.GetSystemID(), f.GetComponentID(), true, f.GetMessage())
		}
	}
}

func (s *simulator) handle(system, component uint8, fromGCS bool, msg message.Message) {
	if system == s.system && component == 1 {
		// An autopilot takes frames with its own ids for echoes.
		return
	}
	addressed := func(sys, comp uint8) bool { return sys == s.system && comp <= 1 }
	c := simCommand{system: system, component: component, fromGCS: fromGCS}
	switch m := msg.(type) {
	case *common.MessageHeartbeat:
		s.brain.hear(system, fromGCS, m)
	case *common.MessageTimesync:
		if m.Tc1 == 0 && !s.meddler.line().noTime {
			s.sendOn(fromGCS, &common.MessageTimesync{
				Tc1: time.Since(s.booted).Nanoseconds(), Ts1: m.Ts1, TargetSystem: system, TargetComponent: component,
			})
		}
	case *common.MessageManualControl:
		s.brain.sticks(system, m)

		// ArduPilot forwards it.
		if fromGCS && !s.isPX4() {
			s.sendFrom(system, component, false, m)
		}
	case *common.MessageParamRequestRead:
		if _, known := s.params[m.ParamId]; known && addressed(m.TargetSystem, m.TargetComponent) {
			s.sendOn(fromGCS, s.param(m.ParamId))
		}
	case *common.MessageParamSet:
		if _, known := s.params[m.ParamId]; known && addressed(m.TargetSystem, m.TargetComponent) {
			s.params[m.ParamId] = float64(m.ParamValue)
			if m.ParamType == common.MAV_PARAM_TYPE_INT32 && s.isPX4() {
				s.params[m.ParamId] = float64(int32(math.Float32bits(m.ParamValue)))
			}
			s.sendOn(fromGCS, s.param(m.ParamId))
		}
	case *common.MessageCommandLong:
		c.id = m.Command
		c.long = true
		c.p = [4]float64{float64(m.Param1), float64(m.Param2), float64(m.Param3), float64(m.Param4)}
		c.lat = float64(m.Param5)
		c.lon = float64(m.Param6)
		c.alt = float64(m.Param7)
		s.obeyIfAddressed(c, addressed(m.TargetSystem, m.TargetComponent))
	case *common.MessageCommandInt:
		c.id = m.Command
		c.frame = m.Frame
		c.p = [4]float64{float64(m.Param1), float64(m.Param2), float64(m.Param3), float64(m.Param4)}
		c.lat, c.lon, c.alt = simDegrees(m.X), simDegrees(m.Y), float64(m.Z)
		s.obeyIfAddressed(c, addressed(m.TargetSystem, m.TargetComponent))
	}
}

// obeyIfAddressed obeys a command for this vehicle. Only a PX4 before 1.16 answers a command
// for another target.
func (s *simulator) obeyIfAddressed(c simCommand, addressed bool) {
	if addressed {
		s.take(c)
	} else if s.isPX4() && s.version < simPX4v16 {
		s.ack(c, common.MAV_RESULT_FAILED)
	}
}

// param returns a PARAM_VALUE. PX4 puts an integer's 32 bits into the float field,
// ArduPilot converts the value.
func (s *simulator) param(name string) message.Message {
	v := s.params[name]
	m := &common.MessageParamValue{
		ParamId: name, ParamValue: float32(v), ParamType: common.MAV_PARAM_TYPE_REAL32,
		ParamCount: 1390, ParamIndex: math.MaxUint16,
	}
	switch whole := v == math.Trunc(v) && !slices.Contains(simPX4Reals, name); {
	case whole && s.isPX4():
		m.ParamValue = math.Float32frombits(uint32(int32(v)))
		m.ParamType = common.MAV_PARAM_TYPE_INT32
	case whole:
		m.ParamType = common.MAV_PARAM_TYPE_INT16
	}
	return m
}

func (s *simulator) take(c simCommand) {
	if !s.meddler.obeyed(c) {
		s.brain.command(c)
	}
}

// setStream obeys SET_MESSAGE_INTERVAL.
func (s *simulator) setStream(c simCommand, id uint32) {
	every := time.Duration(c.p[1]) * time.Microsecond
	if every == 0 {
		// The default interval; a stream that has none ends.
		every = s.streams[id]
	}
	s.streamOn(c.fromGCS, id, every)
	s.ack(c, common.MAV_RESULT_ACCEPTED)
}

// row returns a mode's row in the flavour's table. For an unknown mode it returns a row
// that is refused.
func (s *simulator) row(custom uint32) simMode {
	i := slices.IndexFunc(s.modes, func(m simMode) bool { return m.custom == custom })
	if i < 0 {
		return simMode{custom: custom, refused: true, noArm: true}
	}
	return s.modes[i]
}

// enter changes the mode. Entering the present mode again keeps the target: a goto
// goes on if its own mode is requested.
func (s *simulator) enter(custom uint32) {
	s.meddler.entering(custom)
	if s.mode == custom {
		return
	}
	s.mode = custom
	s.climbing = false
	s.veilUntil = time.Time{}
	s.flight.stay()
	s.brain.entered()
}

// simPending is a mode that was acknowledged and is not in force yet.
type simPending struct{ mode uint32 }

// enterLater waits, then calls do, which brings a mode into force. From then on heartbeats
// show the old mode for lag. A newer call replaces this one.
func (s *simulator) enterLater(mode uint32, wait, lag time.Duration, do func()) *simPending {
	pending := &simPending{mode}
	s.pending = pending
	s.after(wait, func() {
		if s.pending != pending {
			return
		}
		s.pending = nil
		old := s.mode
		if do(); s.mode != old {
			s.veiled = old
			s.veilUntil = time.Now().Add(lag)
		}
	})
	return pending
}

// intended returns the mode that is in force, or will be in a few ms.
func (s *simulator) intended() uint32 {
	if s.pending != nil {
		return s.pending.mode
	}
	return s.mode
}

func (s *simulator) arm() {
	s.armed, s.armedAt = true, time.Now()
}

func (s *simulator) disarm() {
	landed := s.landedAt.After(s.armedAt)
	s.armed = false
	s.climbing = false
	s.failsafe = false
	s.brain.disarmed(landed)
}

// stands reports whether it is still on the ground because its propellers are not up to speed yet. PX4 already
// calls itself in the air then.
func (s *simulator) stands(now time.Time) bool {
	return s.quad.up <= s.ground() && now.Before(s.climbFrom)
}

// ground is the height of the ground below it, in metres above the first home.
func (s *simulator) ground() float64 { return s.slope * s.quad.north }

// moveHome makes the vehicle's place home.
func (s *simulator) moveHome() {
	s.home.north = s.quad.north
	s.home.east = s.quad.east
	s.home.up = s.ground()
}

// canFly reports whether a goto would be flown.
func (s *simulator) canFly() bool { return s.armed && s.airborne }

// advance is one tick.
func (s *simulator) advance() {
	now := time.Now()

	// A computer that slept must not move the drone far.
	dt := max(0.001, min(0.1, now.Sub(s.ticked).Seconds()))
	s.ticked = now
	s.brain.step()
	s.move(now, dt)
	if s.armed && !s.airborne && s.flight.disarms(now) {
		s.disarm()
	}

	// 5 Ah
	s.used = min(1, s.used+s.amps()*dt/3600/5)
	s.sendStreams(now)
}

func (s *simulator) move(now time.Time, dt float64) {
	q := &s.quad
	vn, ve, vu, turn := s.flight.wanted(now, dt)
	if !s.airborne {
		lifts := s.armed && vu > 0.1 && (s.climbing || s.row(s.mode).sticks())
		if !lifts {
			return
		}
		s.airborne = true
		s.flight.reached(simLiftOff)
	}
	if s.stands(now) {
		return
	}
	s.flight.steer(vn, ve, vu, dt)
	q.heading = math.Mod(q.heading+turn*dt+2*math.Pi, 2*math.Pi)
	if ground := s.ground(); q.up <= ground && q.vu <= 0 {
		*q = simQuad{north: q.north, east: q.east, up: ground, heading: q.heading}
		s.airborne = false
		s.climbing = false
		s.landedAt = now
		s.flight.reached(simTouchDown)
		return
	}
	if s.climbing && q.up > s.climbTo-cmp.Or(s.early, 0.2) {
		s.climbing = false
		s.target.up = s.climbTo
		s.flight.reached(simHeight)
	}
}

// simTarget is a place to go to: metres from the first home, heading in radians or NaN, speed in m/s.
type simTarget struct{ north, east, up, yaw, speed float64 }

// simQuad is a point with a heading: metres from the first home, m/s, m/s², radians.
type simQuad struct {
	north, east, up float64
	vn, ve, vu      float64
	an, ae          float64
	heading         float64
}

func (q *simQuad) degrees() float64 { return math.Mod(q.heading*180/math.Pi+360, 360) }

// turn returns the turn rate towards a heading: at most 1 rad/s.
func (q *simQuad) turn(yaw float64) float64 {
	if math.IsNaN(yaw) {
		return 0
	}
	return max(-1, min(1, 2*math.Remainder(yaw-q.heading, 2*math.Pi)))
}

// metres in a degree of latitude
const simDegree = 111319.5

func simMetres(lat, lon float64) (north, east float64) {
	return (lat - simHomeLat) * simDegree, (lon - simHomeLon) * simDegree * math.Cos(simHomeLat*math.Pi/180)
}

func simPlace(north, east float64) (lat, lon float64) {
	return simHomeLat + north/simDegree, simHomeLon + east/(simDegree*math.Cos(simHomeLat*math.Pi/180))
}

func simE7(degrees float64) int32 { return int32(math.Round(degrees * 1e7)) }

// simDegrees converts degE7 to degrees. INT32_MAX, which leaves a place open, becomes NaN.
func simDegrees(e7 int32) float64 {
	if e7 == math.MaxInt32 {
		return math.NaN()
	}
	return float64(e7) / 1e7
}

// simDialect has the link's dialect and the messages that only the simulator sends or reads. It is
// built on first use, so a mavrest without simulator does not pay for it.
var simDialect = sync.OnceValue(func() *dialect.ReadWriter {
	messages := slices.Clone(dialectRW.Dialect.Messages)
	for _, m := range []message.Message{
		&common.MessageTimesync{}, &common.MessageCurrentMode{}, &common.MessageParamSet{},
	} {
		if dialectRW.GetMessage(m.GetID()) == nil {
			messages = append(messages, m)
		}
	}
	return newDialect(messages...)
})

// simBytes are bytes that arrive at a moment.
type simBytes struct {
	b  []byte
	at time.Time
}

// simPort is the companion's or a ground station's end of a cable. Like a UART it has no flow
// control: a write waits only while stall is set, and bytes that do not fit into a buffer are lost.
type simPort struct {
	s           *simulator
	toCompanion []byte
	toAutopilot []byte

	// onTheWay: bytes to the autopilot that have not arrived, the oldest first
	onTheWay []simBytes

	// gathersUntil is when the line carries on what it gathers.
	gathersUntil time.Time

	// readUntil: deadline of a Read; zero if there is none
	readUntil time.Time

	// writeUntil: deadline of a Write; zero if there is none
	writeUntil time.Time

	// arrived: signals that toCompanion has more bytes
	arrived chan struct{}

	// gone: closed when the port is closed
	gone chan struct{}

	emptied

	// err is why the port is closed; nil while it is open.
	err error
}

var errSimUnplugged = errors.New("sim: the cable is unplugged")

// open plugs the cable in and returns the companion's end. An end that was plugged in
// before reads io.EOF from now on.
func (s *simulator) open() (port, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unplugged {
		return nil, errSimUnplugged
	}
	s.port.closeWith(io.EOF)
	s.port = newSimPort(s)
	return s.port, nil
}

func newSimPort(s *simulator) *simPort {
	return &simPort{s: s, arrived: make(chan struct{}, 1), gone: make(chan struct{})}
}

func (p *simPort) wake() {
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// unplug pulls the cables: open fails from now on.
func (s *simulator) unplug() {
	s.change(func() {
		s.port.closeWith(io.EOF)
		s.gcsPort.closeWith(io.EOF)
		s.port = nil
		s.unplugged = true
	})
}

// closeWith closes the port, unless it is nil or closed already. The simulator's mutex must
// be held.
func (p *simPort) closeWith(err error) {
	if p == nil || p.err != nil {
		return
	}
	p.err = err
	close(p.gone)
}

func (p *simPort) Read(b []byte) (int, error) {
	var expired <-chan time.Time
	for {
		tried := time.Now()
		p.s.mu.Lock()
		n, until, err := copy(b, p.toCompanion), p.readUntil, p.err
		p.toCompanion = p.toCompanion[n:]
		p.s.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		p.found(tried)
		if expired == nil && !until.IsZero() {
			expired = time.After(time.Until(until))
		}
		select {
		case <-p.arrived:
		case <-p.gone:
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func (p *simPort) Write(b []byte) (int, error) {
	p.s.mu.Lock()
	stall := p.s.meddler.line().stall
	until := p.writeUntil
	p.s.mu.Unlock()
	if stall != nil {
		var expired <-chan time.Time
		if !until.IsZero() {
			expired = time.After(time.Until(until))
		}
		select {
		case <-stall:
		case <-p.gone:
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		}
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	n := min(max(0, simBuffer-len(p.toAutopilot)), len(b))
	line := p.s.meddler.line()
	written := b[:n]
	if line.noiseIn != nil {
		written = line.noiseIn(written)
	}
	p.carry(written, line.gathers, line.delayUp)
	p.s.nudge()
	return len(b), nil
}

// carry takes bytes to the autopilot: at the end of the time for which they are gathered, and late by delay. They keep
// their order.
func (p *simPort) carry(b []byte, gathers, delay time.Duration) {
	now := time.Now()
	if !p.gathersUntil.After(now) {
		p.gathersUntil = now.Add(gathers)
	}
	at := p.gathersUntil.Add(delay)
	if n := len(p.onTheWay); n > 0 && p.onTheWay[n-1].at.After(at) {
		at = p.onTheWay[n-1].at
	}
	p.onTheWay = append(p.onTheWay, simBytes{bytes.Clone(b), at})
	if !at.After(now) {
		p.deliver(now)
		return
	}

	// A boot would empty the agenda.
	time.AfterFunc(at.Sub(now), func() { p.s.change(func() { p.deliver(time.Now()) }) })
}

// deliver hands the autopilot what has arrived by then.
func (p *simPort) deliver(by time.Time) {
	for len(p.onTheWay) > 0 && !p.onTheWay[0].at.After(by) {
		p.toAutopilot = append(p.toAutopilot, p.onTheWay[0].b...)
		p.onTheWay = p.onTheWay[1:]
	}
}

func (p *simPort) Close() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.port == p {
		// bytes on the line still arrive
		if n := len(p.onTheWay); n > 0 {
			p.deliver(p.onTheWay[n-1].at)
		}
		p.s.receive()
		p.s.port = nil
	}
	p.closeWith(io.ErrClosedPipe)
	return nil
}

func (p *simPort) SetReadDeadline(t time.Time) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.readUntil = t
	return nil
}

func (p *simPort) SetWriteDeadline(t time.Time) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.writeUntil = t
	return nil
}

// next returns the next whole frame to the autopilot with a good checksum; nil if there is none
// yet. It reads like the MAVLink C library, which both autopilots use: a broken frame is
// lost with all the bytes that its header claims, up to 280, however long these take to
// arrive.
func (p *simPort) next() frame.Frame {
	for p != nil && len(p.toAutopilot) > 2 {
		b := p.toAutopilot
		n := 1
		switch {
		case b[0] == frame.V1MagicByte:
			n = 8 + int(b[1])
		case b[0] == frame.V2MagicByte && b[2]&^frame.V2FlagSigned != 0:
			// flags that the MAVLink C library does not know
			n = 3
		case b[0] == frame.V2MagicByte:
			n = simFrameSize(b)
		}
		if n > len(b) {
			return nil
		}
		p.toAutopilot = b[n:]

		// b does not begin with a frame.
		if n < 8 {
			continue
		}
		r := frame.Reader{BufByteReader: bufio.NewReaderSize(bytes.NewReader(b[:n]), n), DialectRW: simDialect()}
		if f, err := r.Read(); err == nil {
			return f
		}

		// The next frame begins with it.
		if b[n-1] == frame.V2MagicByte {
			p.toAutopilot = b[n-1:]
		}
	}
	return nil
}

// simFrameSize returns the size that a MAVLink 2 frame claims.
func simFrameSize(b []byte) int {
	n := 12 + int(b[1])
	if b[2]&frame.V2FlagSigned != 0 {
		// The signature.
		n += 13
	}
	return n
}

func (s *simulator) transmit(b []byte) { s.transmitOn(false, b) }

// transmitOn sends b on the companion's cable or on the ground station's. The caller must
// not change b afterwards. A full buffer loses the whole frame.
func (s *simulator) transmitOn(toGCS bool, b []byte) {
	put := func() {
		p := s.port
		if toGCS {
			p = s.gcsPort
		}
		if p == nil || len(p.toCompanion)+len(b) > simBuffer {
			return
		}
		if noise := s.meddler.line().noiseOut; noise != nil && !toGCS {
			b = noise(b)
		}
		p.toCompanion = append(p.toCompanion, b...)
		p.wake()
	}
	if s.meddler.line().muted {
		return
	}
	now := time.Now()

	// A line keeps the order of its frames.
	at := now.Add(s.meddler.line().delay)
	if behind := s.meddler.line().behind; behind != nil {
		at = at.Add(behind(now))
	}
	if at.After(s.arrives) {
		s.arrives = at
	}
	if toGCS {
		put()
		return
	}
	s.soon(s.arrives.Sub(now), put)
}
