package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
	"github.com/bluenviron/gomavlib/v3/pkg/streamwriter"
)

const (
	simAccepted    = common.MAV_RESULT_ACCEPTED
	simRejected    = common.MAV_RESULT_TEMPORARILY_REJECTED
	simDenied      = common.MAV_RESULT_DENIED
	simUnsupported = common.MAV_RESULT_UNSUPPORTED
	simFailed      = common.MAV_RESULT_FAILED

	simSetMode = common.MAV_CMD_DO_SET_MODE
	simArm     = common.MAV_CMD_COMPONENT_ARM_DISARM
	simTakeoff = common.MAV_CMD_NAV_TAKEOFF
	simGoto    = common.MAV_CMD_DO_REPOSITION
)

// ---- What tests do to a simulator ----

// simState is the truth about the vehicle, for tests.
type simState struct {
	lat, lon, alt float64 // degrees, metres above home
	vn, ve, vd    float64 // m/s
	heading       float64 // degrees, 0…360
	armed         bool
	mode          uint32
	landed        common.MAV_LANDED_STATE
	failsafe      bool
}

// reboot restarts the autopilot: on the ground at home, or, inFlight, going
// on as it was, which is what a watchdog reset looks like.
func (s *simulator) reboot(inFlight bool) {
	s.change(func() {
		if !inFlight {
			s.reset()
		}
		s.boot()
	})
}

// pilotMode is the pilot's mode switch: no checks, no ack.
func (s *simulator) pilotMode(custom uint32) {
	s.change(func() {
		s.failsafe, s.coming = false, nil
		s.enter(custom)
	})
}

// pilotSticks moves the pilot's own sticks: x, y, r ±1000, z 0…1000.
func (s *simulator) pilotSticks(x, y, z, r int16) {
	s.change(func() { s.rc = [4]int16{x, y, z, r} })
}

// pilotSwitch is the transmitter's mode switch: PX4 obeys it while the
// transmitter's sticks are its source, ArduPilot while it hears it.
func (s *simulator) pilotSwitch(us uint16, custom uint32) {
	s.change(func() {
		s.rcSwitch = us
		px4, isPX4 := s.brain.(*simPX4Brain)
		if s.receiver.live() && (!isPX4 || px4.source == &px4.transmitter) {
			s.failsafe, s.coming = false, nil
			s.enter(custom)
		}
	})
}

// setReceiver changes the state of the vehicle's receiver. A transmitter that
// comes on is centred, its throttle low where nobody has it in hand.
func (s *simulator) setReceiver(to simReceiver) {
	s.change(func() {
		s.receiver = to
		switch to {
		case simReceiverIdle:
			s.rc = [4]int16{}
		case simReceiverInHand:
			s.rc = [4]int16{0, 0, 500, 0}
		}
	})
}

// pilotArm arms or disarms without asking anybody.
func (s *simulator) pilotArm(arm bool) {
	s.change(func() {
		if arm {
			s.arm()
		} else {
			s.disarm()
		}
	})
}

// failsafeReturn is a failsafe (battery, say) that flies home.
func (s *simulator) failsafeReturn() {
	s.change(func() {
		s.coming, s.failsafe = nil, true
		s.enter(s.rtl)
		s.brain.text(common.MAV_SEVERITY_CRITICAL, "Failsafe: returning home")
	})
}

// placeInAir puts the vehicle over home at alt metres, armed and holding.
func (s *simulator) placeInAir(alt float64) {
	s.change(func() {
		s.reset()
		s.mode = s.hold
		s.quad.up = alt
		s.armed, s.armedAt, s.airborne = true, time.Now(), true
		s.brain.stay()
	})
}

// placeAt moves the vehicle to a latitude and longitude, in degrees.
func (s *simulator) placeAt(lat, lon float64) {
	s.change(func() {
		s.quad.north, s.quad.east = simMetres(lat, lon)
		s.brain.stay()
	})
}

// setBattery sends these fields of SYS_STATUS from now on: mV, cA and percent.
func (s *simulator) setBattery(millivolts uint16, centiamps int16, percent int8) {
	s.change(func() {
		s.batteryReading = &common.MessageSysStatus{
			VoltageBattery: millivolts, CurrentBattery: centiamps, BatteryRemaining: percent,
		}
	})
}

// inject sends bytes to the companion as they are.
func (s *simulator) inject(b []byte) { s.change(func() { s.transmit(bytes.Clone(b)) }) }

// emit sends a message to the companion as if from these ids.
func (s *simulator) emit(system, component uint8, msg message.Message) {
	s.change(func() { s.sendFrom(system, component, false, msg) })
}

// say sends a STATUSTEXT as the autopilot would.
func (s *simulator) say(severity common.MAV_SEVERITY, text string) {
	s.change(func() { s.brain.text(severity, text) })
}

// received returns what came from the companion, oldest first.
func (s *simulator) received() []simReceived {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.record)
}

// truth returns what the vehicle really does.
func (s *simulator) truth() simState {
	s.mu.Lock()
	defer s.mu.Unlock()
	lat, lon := simPlace(s.quad.north, s.quad.east)
	return simState{
		lat: lat, lon: lon, alt: s.quad.up,
		vn: s.quad.vn, ve: s.quad.ve, vd: -s.quad.vu, heading: s.quad.degrees(),
		armed: s.armed, mode: s.mode, landed: s.landed(), failsafe: s.failsafe,
	}
}

func (s *simulator) plug() { s.change(func() { s.unplugged = false }) }

// stallWrites makes the companion's writes hang until it is called with false
// or the port is closed.
func (s *simulator) stallWrites(on bool) {
	s.change(func() {
		if s.stall != nil {
			close(s.stall)
			s.stall = nil
		}
		if on {
			s.stall = make(chan struct{})
		}
	})
}

// ---- The companion board of a test ----

// simHeard is a message that the autopilot sent.
type simHeard struct {
	at                time.Time
	system, component uint8
	msg               message.Message
}

// simBoard is the companion's end of a simulated flight.
type simBoard struct {
	*simulator
	t     *testing.T
	port  port
	w     *streamwriter.Writer
	began time.Time // of the boot

	mu  sync.Mutex
	got []simHeard
}

// simFlight runs test with a simulator that has booted, in virtual time.
// prepare, if any, sets switches before the boot.
func simFlight(t *testing.T, flavour simFlavour, prepare func(*simulator), test func(*simBoard)) {
	t.Helper()
	inLinkBubble(t, func(t *testing.T) {
		s := newSimulator(flavour)
		if prepare != nil {
			prepare(s)
		}
		b := &simBoard{simulator: s, t: t, began: time.Now()}
		var err error
		if b.port, err = s.open(); err != nil {
			t.Fatal(err)
		}
		b.w = simWriter(t, b.port)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		wg.Go(func() { b.listen(b.port) })
		defer wg.Wait()
		defer cancel()
		test(b)
	})
}

// simWriter sends as 1/191.
func simWriter(t *testing.T, p port) *streamwriter.Writer {
	t.Helper()
	w := &streamwriter.Writer{
		FrameWriter: &frame.Writer{ByteWriter: p, DialectRW: simDialect()},
		Version:     streamwriter.V2, SystemID: 1, ComponentID: 191,
	}
	if err := errors.Join(w.FrameWriter.Initialize(), w.Initialize()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (b *simBoard) listen(p port) {
	r := frame.Reader{ByteReader: p, DialectRW: simDialect()}
	if err := r.Initialize(); err != nil {
		b.t.Error(err)
	}
	for {
		f, err := r.Read()
		var noise frame.ReadError
		if errors.As(err, &noise) {
			continue
		}
		if err != nil {
			return
		}
		b.mu.Lock()
		b.got = append(b.got, simHeard{time.Now(), f.GetSystemID(), f.GetComponentID(), f.GetMessage()})
		b.mu.Unlock()
	}
}

// count returns how many messages with this id came so far.
func (b *simBoard) count(id uint32) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.got {
		if h.msg.GetID() == id {
			n++
		}
	}
	return n
}

// forget drops what was heard so far.
func (b *simBoard) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = nil
}

func (b *simBoard) write(msg message.Message) {
	b.t.Helper()
	if err := b.w.Write(msg); err != nil {
		b.t.Fatal(err)
	}
}

// simLast returns the newest message of type M, waiting 2.5 s for it first.
func simLast[M message.Message](b *simBoard) (m M) {
	b.t.Helper()
	time.Sleep(2500 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range slices.Backward(b.got) {
		if m, ok := h.msg.(M); ok {
			return m
		}
	}
	b.t.Fatalf("no %T", m)
	return m
}

// simAll returns the messages of type M that came so far, oldest first.
func simAll[M message.Message](b *simBoard) (all []M) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.got {
		if m, ok := h.msg.(M); ok {
			all = append(all, m)
		}
	}
	return all
}

// texts returns the STATUSTEXTs, chunks joined.
func (b *simBoard) texts() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	for _, h := range b.got {
		if m, ok := h.msg.(*common.MessageStatustext); ok {
			text.WriteString(m.Text)
		}
	}
	return text.String()
}

// answers returns the results of the acks that came within 50 ms.
func (b *simBoard) answers(id common.MAV_CMD) (results []common.MAV_RESULT) {
	time.Sleep(50 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.got {
		if m, ok := h.msg.(*common.MessageCommandAck); ok && m.Command == id {
			results = append(results, m.Result)
		}
	}
	return results
}

// long sends a COMMAND_LONG and returns its acks; so does exact a COMMAND_INT.
func (b *simBoard) long(id common.MAV_CMD, p ...float64) []common.MAV_RESULT {
	b.t.Helper()
	p = append(p, make([]float64, 7-len(p))...)
	b.forget()
	b.write(&common.MessageCommandLong{
		TargetSystem: 1, TargetComponent: 1, Command: id,
		Param1: float32(p[0]), Param2: float32(p[1]), Param3: float32(p[2]), Param4: float32(p[3]),
		Param5: float32(p[4]), Param6: float32(p[5]), Param7: float32(p[6]),
	})
	return b.answers(id)
}

func (b *simBoard) exact(id common.MAV_CMD, f common.MAV_FRAME, p1, p2, p4 float64, x, y int32, z float64) []common.MAV_RESULT {
	b.t.Helper()
	b.forget()
	b.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: id, Frame: f,
		Param1: float32(p1), Param2: float32(p2), Param4: float32(p4), X: x, Y: y, Z: float32(z),
	})
	return b.answers(id)
}

// fly sends a goto to metres from home.
func (b *simBoard) fly(north, east, alt float64) []common.MAV_RESULT {
	b.t.Helper()
	lat, lon := simPlace(north, east)
	return b.exact(simGoto, common.MAV_FRAME_GLOBAL, -1, 1, math.NaN(), simE7(lat), simE7(lon), simHomeAlt+alt)
}

// stick sends sticks at a rate for a time.
func (b *simBoard) stick(d, every time.Duration, x, y, z, r int16) {
	b.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		b.write(&common.MessageManualControl{Target: 1, X: x, Y: y, Z: z, R: r})
	}
}

const sim25Hz = 40 * time.Millisecond

// as sends as these ids from now on.
func (b *simBoard) as(system, component uint8) { b.w.SystemID, b.w.ComponentID = system, component }

func (b *simBoard) knock() {
	b.t.Helper()
	b.write(&common.MessageHeartbeat{Type: common.MAV_TYPE_GCS, Autopilot: common.MAV_AUTOPILOT_INVALID})
	time.Sleep(time.Millisecond)
}

// listenIn is a ground station's heartbeat each second for a time.
func (b *simBoard) listenIn(d time.Duration) {
	b.t.Helper()
	for ; d > 0; d -= time.Second {
		b.knock()
		time.Sleep(min(d, time.Second) - time.Millisecond)
	}
}

// await waits for a message and returns when it came.
func (b *simBoard) await(what string, most time.Duration, is func(message.Message) bool) time.Time {
	b.t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(50 * time.Microsecond) {
		b.mu.Lock()
		i := slices.IndexFunc(b.got, func(h simHeard) bool { return is(h.msg) })
		var at time.Time
		if i >= 0 {
			at = b.got[i].at
		}
		b.mu.Unlock()
		if i >= 0 {
			return at
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s: not within %v", what, most)
		}
	}
}

// request asks for a message once, without waiting; ask also waits for it and
// returns nil if it is denied.
func (b *simBoard) request(id uint32) {
	b.t.Helper()
	b.write(&common.MessageCommandLong{
		TargetSystem: b.system, TargetComponent: 1, Command: common.MAV_CMD_REQUEST_MESSAGE, Param1: float32(id),
	})
}

func (b *simBoard) ask(id uint32) (m message.Message) {
	b.t.Helper()
	b.forget()
	b.request(id)
	time.Sleep(10 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.got {
		if h.msg.GetID() == id {
			m = h.msg
		}
	}
	return m
}

// mode asks for a mode; on PX4 main and sub, on ArduPilot the number.
func (b *simBoard) setMode(custom uint32) []common.MAV_RESULT {
	b.t.Helper()
	if b.flavour == simPX4 {
		return b.long(simSetMode, 1, float64(custom>>16&0xff), float64(custom>>24))
	}
	return b.long(simSetMode, 1, float64(custom))
}

func (b *simBoard) want(what string, got, want any) {
	b.t.Helper()
	if !reflect.DeepEqual(got, want) {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (b *simBoard) wantText(want string) {
	b.t.Helper()
	if got := b.texts(); !strings.Contains(got, want) {
		b.t.Errorf("texts %q, want %q", got, want)
	}
}

func (b *simBoard) near(what string, got, want, tolerance float64) {
	b.t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		b.t.Errorf("%s: %.2f, want %.2f ± %.2f", what, got, want, tolerance)
	}
}

func (b *simBoard) place() (north, east, alt float64) {
	now := b.truth()
	north, east = simMetres(now.lat, now.lon)
	return north, east, now.alt
}

func (b *simBoard) wantPlace(north, east, alt, tolerance float64) {
	b.t.Helper()
	n, e, a := b.place()
	if d := math.Hypot(math.Hypot(n-north, e-east), a-alt); !(d <= tolerance) {
		b.t.Errorf("at %.1f %.1f %.1f, want %.1f %.1f %.1f ± %.1f", n, e, a, north, east, alt, tolerance)
	}
}

// until waits for something, at most a time, and returns how long it took.
func (b *simBoard) until(what string, most time.Duration, done func(simState) bool) time.Duration {
	b.t.Helper()
	begin := time.Now()
	for !done(b.truth()) {
		if time.Since(begin) > most {
			b.t.Fatalf("%s: not within %v", what, most)
		}
		time.Sleep(simTick)
	}
	return time.Since(begin)
}

func simResults(r ...common.MAV_RESULT) []common.MAV_RESULT { return r }

// ---- The switches for tests ----

func TestSimSwitches(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		b.change(func() {
			b.onAck = func(a *common.MessageCommandAck) []simAnswer {
				return []simAnswer{{component: 7, ack: a}, {after: 30 * time.Millisecond, ack: a}}
			}
			b.neverDone[simArm] = true
		})
		b.want("doubled acks", b.long(simTakeoff), simResults(simAccepted, simAccepted))
		b.mu.Lock()
		i := slices.IndexFunc(b.got, func(h simHeard) bool { return h.msg.GetID() == 77 })
		b.want("from component", b.got[i].component, uint8(7))
		b.mu.Unlock()
		b.change(func() { b.onAck, b.idle = nil, true })
		b.want("IN_PROGRESS", b.long(simArm, 1), simResults(common.MAV_RESULT_IN_PROGRESS))
		b.want("idle", b.long(common.MAV_CMD_NAV_LAND), simResults(simAccepted))
		b.want("mode of the idle", b.truth().mode, uint32(simPX4Takeoff))

		b.change(func() { b.heartless = time.Now().Add(3 * time.Second) })
		b.forget()
		time.Sleep(2900 * time.Millisecond)
		b.request(0)
		time.Sleep(10 * time.Millisecond)
		b.want("heartbeats while heartless", b.count(0), 0)
		time.Sleep(1200 * time.Millisecond)
		b.want("heartbeats after it", b.count(0), 1)
		b.change(func() { b.muted = true })
		b.forget()
		time.Sleep(3 * time.Second)
		b.want("messages while mute", len(b.got), 0)
		b.change(func() { b.muted, b.mavlink1 = false, true })
		b.setBattery(math.MaxUint16, -1, -1)
		b.want("battery", simLast[*common.MessageSysStatus](b).BatteryRemaining, int8(-1))
		b.inject([]byte("noise"))
		b.emit(2, 1, &common.MessageHeartbeat{})
		time.Sleep(10 * time.Millisecond)
		b.mu.Lock()
		defer b.mu.Unlock()
		stranger := func(h simHeard) bool { return h.system == 2 }
		b.want("heartbeat of another system", slices.ContainsFunc(b.got, stranger), true)
	})
}

func TestSimDelaysFrames(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.delay = 30 * time.Millisecond }, func(b *simBoard) {
		b.write(&common.MessageCommandLong{TargetSystem: 1, Command: simArm})
		time.Sleep(29 * time.Millisecond)
		b.want("acks before the delay", b.count(77), 0)
		time.Sleep(2 * time.Millisecond)
		b.want("acks after it", b.count(77), 1)
	})
}

func TestSimPilotAndFailsafe(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		simFlight(t, flavour, nil, func(b *simBoard) {
			time.Sleep(3 * time.Second)
			b.placeInAir(12)
			b.placeAt(simPlace(30, 0))
			time.Sleep(time.Second)
			b.wantPlace(30, 0, 12, 0.1)
			b.pilotMode(b.land)
			b.want("mode", b.truth().mode, b.land)
			b.failsafeReturn()
			b.want("heartbeat", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
			b.until("home", time.Minute, func(s simState) bool { return !s.armed })
			b.wantPlace(0, 0, 0, 1.2)
			b.pilotArm(true)
			b.want("armed", b.truth().armed, true)
		})
	}
}

func TestSimRebootRestartsItsClock(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		b.placeInAir(12)
		time.Sleep(20 * time.Second)
		b.reboot(true)
		b.want("in the air", b.truth().landed, common.MAV_LANDED_STATE_IN_AIR)
		if ms := simLast[*common.MessageGlobalPositionInt](b).TimeBootMs; ms > 3000 {
			t.Errorf("time_boot_ms %d", ms)
		}
		b.reboot(false)
		b.want("armed", b.truth().armed, false)
		b.wantPlace(0, 0, 0, 0)
	})
}

func TestSimRecordsWhoSentWhat(t *testing.T) {
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		b.as(255, 190)
		b.stick(sim25Hz, sim25Hz, 1, 2, 3, 4)
		got := b.received()
		b.want("messages", len(got), 1)
		b.want("system", got[0].system, uint8(255))
		b.want("x", got[0].msg.(*common.MessageManualControl).X, int16(1))
	})
}

// ---- Both flavours ----

func TestSimAnswersTheAskerOnly(t *testing.T) {
	tests := []struct {
		name                              string
		system, component, targSys, targC uint8
		acks                              int
	}{
		{"companion", 1, 191, 1, 1, 1},
		{"ground station, whole vehicle", 255, 190, 1, 0, 1},
		{"its own ids", 1, 1, 1, 1, 0},
		{"another system", 1, 191, 2, 1, 0},
		{"another component", 1, 191, 1, 100, 0},
		{"all systems", 1, 191, 0, 0, 0},
	}
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		for _, tt := range tests {
			simFlight(t, flavour, nil, func(b *simBoard) {
				b.as(tt.system, tt.component)
				b.write(&common.MessageCommandLong{TargetSystem: tt.targSys, TargetComponent: tt.targC, Command: simArm})
				b.want(tt.name, len(b.answers(simArm)), tt.acks)
				if tt.acks == 1 {
					ack := simLast[*common.MessageCommandAck](b)
					b.want("target", [2]uint8{ack.TargetSystem, ack.TargetComponent}, [2]uint8{tt.system, tt.component})
				}
			})
		}
	}
}

func TestSimTellsWhoItIs(t *testing.T) {
	for flavour, version := range map[simFlavour]uint32{simPX4: 0x011100ff, simArduPilot: 0x040505ff} {
		simFlight(t, flavour, nil, func(b *simBoard) {
			time.Sleep(1500 * time.Millisecond)
			b.want("request", b.long(common.MAV_CMD_REQUEST_MESSAGE, 148), simResults(simAccepted))
			b.want("version", simLast[*common.MessageAutopilotVersion](b).FlightSwVersion, version)
			h := simLast[*common.MessageHeartbeat](b)
			b.want("type", h.Type, common.MAV_TYPE_QUADROTOR)
			b.want("autopilot", h.Autopilot, b.autopilot)
		})
	}
}

func TestSimLooksFreshOnlyWhereAskedTo(t *testing.T) {
	for flavour, unasked := range map[simFlavour]int{simPX4: 5, simArduPilot: 0} {
		simFlight(t, flavour, nil, func(b *simBoard) {
			time.Sleep(3500 * time.Millisecond)
			b.forget()
			time.Sleep(time.Second)
			b.want("positions unasked", b.count(33), unasked)
			b.want("heartbeats", b.count(0), 1)
			b.want("interval", b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 33, 10000), simResults(simAccepted))
			b.forget()
			time.Sleep(time.Second)
			b.want("positions at 100 Hz", b.count(33), 100)
			b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 33, -1)
			b.forget()
			time.Sleep(time.Second)
			b.want("positions switched off", b.count(33), 0)
		})
	}
}
