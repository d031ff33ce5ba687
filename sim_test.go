package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

	mu   sync.Mutex
	got  []simHeard
	came chan struct{} // there is more
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
		b := &simBoard{simulator: s, t: t, began: time.Now(), came: make(chan struct{}, 1)}
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
		select {
		case b.came <- struct{}{}:
		default:
		}
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
	late := time.After(most + 50*time.Microsecond) // what is sent at this moment is still on its way
	for from := 0; ; {
		b.mu.Lock()
		i := slices.IndexFunc(b.got[from:], func(h simHeard) bool { return is(h.msg) })
		if i >= 0 {
			defer b.mu.Unlock()
			return b.got[from+i].at
		}
		from = len(b.got)
		b.mu.Unlock()
		select {
		case <-b.came:
		case <-late:
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
		time.Sleep(10 * time.Millisecond) // what is on its way comes
		b.forget()
		time.Sleep(3 * time.Second)
		b.mu.Lock()
		b.want("messages while mute", len(b.got), 0)
		b.mu.Unlock()
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

// The simulator flies the script of a captured flight of the real PX4, and what
// it sends is held against the capture. Not compared: the battery (the real one
// was drained fast), GPS quality, estimator noise, EVENT (410, which nobody
// here decodes) and the PARAM_VALUEs that PX4 sends by itself at boot.

// simCaptured returns the messages of a testdata file.
func simCaptured(t *testing.T, name string) (list []simHeard) {
	t.Helper()
	zero := time.Unix(0, 0)
	for _, e := range readTlog(t, name) {
		r := frame.Reader{ByteReader: bytes.NewReader(e.bytes), DialectRW: dialectRW}
		if err := r.Initialize(); err != nil {
			t.Fatal(err)
		}
		f, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, simHeard{zero.Add(e.at), f.GetSystemID(), f.GetComponentID(), f.GetMessage()})
	}
	return list
}

// simFact is something that a flight showed, and when (seconds).
type simFact struct {
	at   float64
	what string
}

// simFacts goes through a flight: every says of a message what it shows, ""
// for nothing. With changes only what differs from the one before is kept.
func simFacts(list []simHeard, zero time.Time, changes bool, every func(message.Message) string) (facts []simFact) {
	for _, h := range list {
		what := every(h.msg)
		if h.at.Before(zero) {
			continue
		}
		if n := len(facts); what == "" || changes && n > 0 && facts[n-1].what == what {
			continue
		}
		facts = append(facts, simFact{h.at.Sub(zero).Seconds(), what})
	}
	return facts
}

// simSameFacts wants the same facts in the same order, each as early or late as
// tolerance (seconds) says for it.
func simSameFacts(t *testing.T, about string, got, want []simFact, tolerance func(simFact) float64) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: %.2f %s is missing", about, want[i].at, want[i].what)
		case i >= len(want):
			t.Errorf("%s: %.2f %s was not captured", about, got[i].at, got[i].what)
		case got[i].what != want[i].what:
			t.Errorf("%s: number %d is %.2f %s, captured %.2f %s", about, i, got[i].at, got[i].what, want[i].at, want[i].what)
			return
		case math.Abs(got[i].at-want[i].at) > tolerance(want[i]):
			t.Errorf("%s: %s at %.3f, captured at %.3f", about, got[i].what, got[i].at, want[i].at)
		}
	}
}

// simSticks is a stream of sticks that runs beside a script.
type simSticks struct {
	x    atomic.Int32
	done chan struct{}
	wg   sync.WaitGroup
}

func simStickStreaming(b *simBoard) *simSticks {
	s := &simSticks{done: make(chan struct{})}
	w := simWriter(b.t, b.port)
	s.wg.Go(func() {
		for {
			if err := w.Write(&common.MessageManualControl{Target: 1, X: int16(s.x.Load()), Z: 500}); err != nil {
				b.t.Error(err)
			}
			select {
			case <-s.done:
				return
			case <-time.After(sim25Hz):
			}
		}
	})
	return s
}

func (s *simSticks) end() {
	close(s.done)
	s.wg.Wait()
}

// simPX4Script flies px4-pilot.tlog's script; at waits until a time of it.
func simPX4Script(b *simBoard, at func(seconds float64)) {
	nan := math.NaN()
	keep := math.MaxInt32
	// As in the capture: nothing else in these rates matters.
	for id, hz := range map[uint32]float64{1: 2, 24: 2, 30: 10, 33: 10, 74: 4, 87: 2, 245: 4} {
		b.write(&common.MessageCommandLong{
			TargetSystem: 1, TargetComponent: 1, Command: common.MAV_CMD_SET_MESSAGE_INTERVAL, Param1: float32(id), Param2: float32(1e6 / hz),
		})
	}
	long := func(seconds float64, id common.MAV_CMD, p ...float32) {
		at(seconds)
		p = append(p, make([]float32, 3)...)
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: id, Param1: p[0], Param2: p[1], Param3: p[2]})
	}
	at(8.24)
	b.change(func() { b.params[simDataLink] = 2 })
	long(10.745, simArm, 1)
	long(10.975, simPrearm)
	at(12.239)
	b.knock()
	long(12.2405, simPrearm)
	at(13.506)
	b.change(func() { b.params[simDataLink] = 0 })
	at(16.5)
	b.knock()
	at(16.506)
	b.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simTakeoff, X: int32(keep), Y: int32(keep), Z: simHomeAlt + 12,
	})
	long(16.764, simArm, 1)
	for i := range 5 {
		at(31.006 + 0.253*float64(i))
		b.request(0)
	}
	at(32.285)
	lat, lon := simPlace(40, 0)
	b.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param1: -1, Param2: 1, Param4: float32(nan), X: simE7(lat), Y: simE7(lon), Z: float32(nan),
	})
	long(37.279, simSetMode, 1, 4, 3)
	at(42.5)
	stop := simStickStreaming(b)
	long(43.034, simSetMode, 1, 2)
	at(43.4)
	stop.x.Store(300) // how far is not in the capture: this gives its speed
	at(45.4)
	stop.x.Store(0)
	long(45.897, simSetMode, 1, 3)
	long(48.353, simSetMode, 1, 4, 3)
	at(51.7)
	b.pilotMode(simPX4RTL) // by a second client: its acks go elsewhere
	long(56.619, common.MAV_CMD_NAV_LAND)
	at(106) // the simulator comes down a little later
	stop.end()
}

func TestSimFliesLikeTheCapturedPX4(t *testing.T) {
	real := simCaptured(t, "px4-pilot.tlog")
	epoch := real[0].at
	prepare := func(s *simulator) {
		s.armableAfter = 4150 * time.Millisecond // as captured
		s.homeSteps = true
	}
	simFlight(t, simPX4, prepare, func(b *simBoard) {
		zero := b.began.Add(494 * time.Millisecond) // the capture begins so long after boot
		simPX4Script(b, func(seconds float64) {
			time.Sleep(time.Until(zero.Add(time.Duration(seconds * float64(time.Second)))))
		})
		b.mu.Lock()
		defer b.mu.Unlock()
		simHoldAgainst(t, b.got, zero, real, epoch)
	})
}

// simHoldAgainst compares two flights.
func simHoldAgainst(t *testing.T, sim []simHeard, zero time.Time, real []simHeard, epoch time.Time) {
	t.Helper()
	compare := func(about string, changes bool, every func(message.Message) string, tolerance func(simFact) float64) {
		t.Helper()
		simSameFacts(t, about, simFacts(sim, zero, changes, every), simFacts(real, epoch, changes, every), tolerance)
	}
	within := func(seconds float64) func(simFact) float64 { return func(simFact) float64 { return seconds } }
	// The landing of the real one was disturbed by its estimator; the climb is
	// modelled in two pieces.
	loosely := func(seconds float64) func(simFact) float64 {
		return func(f simFact) float64 {
			switch {
			case f.at > 90:
				return 8
			case f.at > 28 && f.at < 31.2:
				return 1.5
			}
			return seconds
		}
	}
	kind := func(m message.Message) string { return fmt.Sprint(m.GetID()) }
	kinds := func(list []simHeard, at time.Time) (ids []string) {
		for _, f := range simFacts(list, at, false, kind) {
			if f.what != "410" && f.what != "22" && !slices.Contains(ids, f.what) {
				ids = append(ids, f.what)
			}
		}
		slices.Sort(ids)
		return ids
	}
	if got, want := kinds(sim, zero), kinds(real, epoch); !slices.Equal(got, want) {
		t.Errorf("kinds of messages %v, captured %v", got, want)
	}
	// Acks come within 20 ms of the command; their number and results are exact.
	compare("acks", false, func(m message.Message) string {
		a, ok := m.(*common.MessageCommandAck)
		if !ok || a.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL {
			return ""
		}
		return fmt.Sprint(a.Command, a.Result)
	}, within(0.02))
	// A text comes with its cause, or 50 ms after the one before.
	compare("texts", false, func(m message.Message) string {
		s, ok := m.(*common.MessageStatustext)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%v %d %q", s.Severity, s.ChunkSeq, s.Text)
	}, func(f simFact) float64 {
		if f.at > 18 {
			return 0.5 // the propellers' run-up
		}
		return 0.03
	})
	// Heartbeats and SYS_STATUS show a change when they come: 1 and 2 Hz.
	compare("heartbeats", true, func(m message.Message) string {
		h, ok := m.(*common.MessageHeartbeat)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%02x %d,%d %v", uint(h.BaseMode), h.CustomMode>>16&0xff, h.CustomMode>>24, h.SystemStatus)
	}, loosely(1.05))
	compare("sensors", true, func(m message.Message) string {
		s, ok := m.(*common.MessageSysStatus)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%08x %08x %08x", uint32(s.OnboardControlSensorsPresent), uint32(s.OnboardControlSensorsEnabled), uint32(s.OnboardControlSensorsHealth))
	}, loosely(0.6))
	compare("landed", true, func(m message.Message) string {
		e, ok := m.(*common.MessageExtendedSysState)
		if !ok {
			return ""
		}
		return e.LandedState.String()
	}, loosely(0.5))
	simHoldPlaces(t, sim, zero, real, epoch)
}

// simHoldPlaces compares where two flights were and where they said they went.
func simHoldPlaces(t *testing.T, sim []simHeard, zero time.Time, real []simHeard, epoch time.Time) {
	t.Helper()
	type sample struct{ north, up, toNorth, toUp float64 }
	// track has each tenth of a second: NaN where there is no target.
	track := func(list []simHeard, zero time.Time) []sample {
		var ground float64
		samples := make([]sample, 1000)
		for i := range samples {
			samples[i] = sample{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
		}
		for _, h := range list {
			i := int(h.at.Sub(zero).Seconds() * 10)
			if i < 0 || i >= len(samples) {
				continue
			}
			switch m := h.msg.(type) {
			case *common.MessageGlobalPositionInt:
				if i < 160 {
					ground = float64(m.Alt) / 1000
				}
				samples[i].north, _ = simMetres(float64(m.Lat)/1e7, simHomeLon)
				samples[i].up = float64(m.Alt)/1000 - ground
			case *common.MessagePositionTargetGlobalInt:
				north, _ := simMetres(float64(m.LatInt)/1e7, simHomeLon)
				for j := i; j < min(i+6, len(samples)); j++ { // it comes at 2 Hz
					samples[j].toNorth, samples[j].toUp = north, float64(m.Alt)-ground
				}
			}
		}
		return samples
	}
	got, want := track(sim, zero), track(real, epoch)
	near := func(i int, what string, g, w, tolerance float64) {
		if math.IsNaN(g) != math.IsNaN(w) || math.Abs(g-w) > tolerance {
			t.Errorf("%.1f s: %s is %.1f, captured %.1f", float64(i)/10, what, g, w)
		}
	}
	// Metres. The real one accelerates to 4.2 m/s, the simulated one to 5; both
	// climb 12 m in 14 s and 11 m in the 5 s of the return.
	for _, i := range []int{100, 250, 310, 322, 350, 370, 400, 420, 425, 445, 480, 510, 530, 560} {
		near(i, "north", got[i].north, want[i].north, 9)
		near(i, "height", got[i].up, want[i].up, 3)
	}
	// A target is there, and is the same, in the same tenths of a second but
	// around the changes.
	for _, i := range []int{100, 160, 180, 250, 300, 320, 330, 400, 420, 436, 450, 478, 490, 510, 530, 560, 580, 700} {
		near(i, "target's north", got[i].toNorth, want[i].toNorth, 5)
		tolerance := 1.0
		if i >= 570 && i < 980 { // the height in LAND is 0 AMSL
			tolerance = 2
		}
		near(i, "target's height", got[i].toUp, want[i].toUp, tolerance)
	}
}

// captureHeard is a message of a flight, since the boot.
type captureHeard struct {
	at  time.Duration
	msg message.Message
}

// readCapture reads a .tlog: 8 bytes of big-endian microseconds before each frame.
func readCapture(t *testing.T, path string) (heard []captureHeard) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var first uint64
	for len(b) > 8 {
		at := binary.BigEndian.Uint64(b)
		if first == 0 {
			first = at
		}
		n := 12 + int(b[9])
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b[8 : 8+n])), DialectRW: simDialect()}
		f, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, captureHeard{time.Duration(at-first) * time.Microsecond, f.GetMessage()})
		b = b[8+n:]
	}
	return heard
}

// captureEvent is what changed in a flight, with all that matters of it.
type captureEvent struct {
	at   time.Duration
	what string
}

// captureBits are the bits of SYS_STATUS that the flight is about.
const captureBits = common.MAV_SYS_STATUS_PREARM_CHECK | common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER |
	common.MAV_SYS_STATUS_SENSOR_GPS | common.MAV_SYS_STATUS_SENSOR_BATTERY | common.MAV_SYS_STATUS_AHRS |
	common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL | common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL

// captureEvents tells a flight in its changes.
func captureEvents(heard []captureHeard) (events []captureEvent) {
	last := map[string]string{}
	changed := func(at time.Duration, kind, what string) {
		if last[kind] != what {
			last[kind] = what
			events = append(events, captureEvent{at, kind + " " + what})
		}
	}
	var targetAt time.Duration
	for _, h := range heard {
		if targetAt != 0 && h.at-targetAt > 900*time.Millisecond { // at 2 Hz: it has ended
			changed(targetAt, "target", "none")
			targetAt = 0
		}
		switch m := h.msg.(type) {
		case *common.MessageHeartbeat:
			// On the ground again there are 0.3 s of armed standby, in which none of 1 Hz need fall.
			if m.SystemStatus == common.MAV_STATE_STANDBY && m.BaseMode&common.MAV_MODE_FLAG_SAFETY_ARMED != 0 && m.CustomMode == simArduRTL {
				continue
			}
			changed(h.at, "heartbeat", fmt.Sprint(m.Type, m.Autopilot, m.BaseMode, m.CustomMode, m.SystemStatus))
		case *common.MessageCommandAck:
			if m.Command != common.MAV_CMD_SET_MESSAGE_INTERVAL {
				events = append(events, captureEvent{h.at, fmt.Sprint("ack ", m.Command, m.Result, m.TargetSystem, m.TargetComponent)})
			}
		case *common.MessageStatustext:
			for _, text := range []string{"ArduPilot Ready", "Arm: Accels inconsistent", "Arming motors", "Disarming motors"} {
				if m.Text == text {
					events = append(events, captureEvent{h.at, fmt.Sprint("text ", m.Severity, m.Text)})
				}
			}
		case *common.MessageSysStatus:
			changed(h.at, "sensors", fmt.Sprintf("%x %x %x", uint32(m.OnboardControlSensorsPresent&captureBits),
				uint32(m.OnboardControlSensorsEnabled&captureBits), uint32(m.OnboardControlSensorsHealth&captureBits)))
		case *common.MessageRcChannels:
			changed(h.at, "channels", fmt.Sprint(m.Chancount, m.Rssi, m.Chan1Raw, m.Chan2Raw, m.Chan3Raw, m.Chan4Raw, m.Chan5Raw))
		case *common.MessageExtendedSysState:
			changed(h.at, "landed", fmt.Sprint(m.VtolState, m.LandedState))
		case *common.MessageGpsRawInt:
			if m.FixType != common.GPS_FIX_TYPE_NO_FIX { // one message long, with a place that is not one
				changed(h.at, "gps", fmt.Sprint(m.FixType, m.SatellitesVisible, m.Eph, m.Epv, m.Lat == 0))
			}
		case *common.MessageGlobalPositionInt:
			changed(h.at, "place", fmt.Sprint(m.Lat != 0 && m.Lon != 0, m.Alt > 480000))
		case *common.MessageHomePosition:
			changed(h.at, "home", fmt.Sprint(math.IsNaN(float64(m.Q[0])), m.Altitude > 480000))
		case *common.MessagePositionTargetGlobalInt:
			north, _ := simMetres(float64(m.LatInt)/1e7, float64(m.LonInt)/1e7)
			changed(h.at, "target", fmt.Sprint(m.CoordinateFrame, uint16(m.TypeMask), 5*math.Round(north/5), math.Round(float64(m.Alt)-simHomeAlt)))
			targetAt = h.at
		}
	}
	return events
}

// captureBoot is how long before its first message the captured one booted.
const captureBoot = 1036 * time.Millisecond

// flyCaptured does to the simulator what was done to the captured one, at the
// same times; what was asked for between two messages is taken for their middle.
func flyCaptured(b *simBoard) {
	booted := time.Now()
	at := func(seconds float64) {
		time.Sleep(time.Until(booted.Add(captureBoot + time.Duration(seconds*float64(time.Second)))))
	}
	command := func(id common.MAV_CMD, p ...float32) {
		p = append(p, make([]float32, 7-len(p))...)
		b.write(&common.MessageCommandLong{
			TargetSystem: 1, TargetComponent: 1, Command: id,
			Param1: p[0], Param2: p[1], Param3: p[2], Param4: p[3], Param5: p[4], Param6: p[5], Param7: p[6],
		})
	}
	b.as(1, 194)
	time.Sleep(time.Second) // it boots
	at(2.2)
	for id, hz := range map[float32]float32{1: 2, 24: 2, 33: 10, 65: 2, 74: 4, 87: 2, 242: 0.5, 245: 4} {
		command(common.MAV_CMD_SET_MESSAGE_INTERVAL, id, 1e6/hz)
	}
	at(5.49)
	command(simArm, 1)
	at(49.85)
	command(simSetMode, 1, simArduGuided)
	at(50.1)
	command(simArm, 1)
	at(50.36)
	command(simTakeoff, 0, 0, 0, 0, 0, 0, 12)
	at(59.61)
	lat, lon := simPlace(40.1, 0)
	b.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simGoto, Frame: common.MAV_FRAME_GLOBAL, Param1: -1, Param2: 1,
		Param4: float32(math.NaN()), X: simE7(lat), Y: simE7(lon), Z: simHomeAlt + 12,
	})
	at(59.81)
	command(common.MAV_CMD_DO_CHANGE_SPEED, 1, 4, -1)
	at(66.06)
	command(simSetMode, 1, simArduBrake)
	at(71.32)
	command(simSetMode, 1, simArduGuided)
	flyCapturedSticks(b, booted, at, func() { command(simSetMode, 1, simLoiter) })
	at(84.98)
	command(simSetMode, 1, simArduRTL)
	at(135)
}

// flyCapturedSticks is the part with sticks: our stream's, then the receiver's.
func flyCapturedSticks(b *simBoard, booted time.Time, at func(float64), loiter func()) {
	sticks := func(until float64, x int16) {
		b.as(255, 194)
		for ; time.Since(booted) < captureBoot+time.Duration(until*float64(time.Second)); time.Sleep(sim25Hz) {
			b.manual(x, 0, 500, 0)
		}
		b.as(1, 194)
	}
	at(72.6)
	sticks(73.09, 0)
	loiter()
	sticks(73.5, 0)
	sticks(76.5, 500)
	sticks(78.3, 0)
	b.pilotSticks(0, 0, 500, 0)
	sticks(78.8, 0)
	b.as(255, 194)
	for range 3 {
		b.manual(simLet, simLet, simLet, simLet)
	}
	b.as(1, 194)
	at(81)
	b.pilotSticks(200, 0, 500, 0)
	at(83)
	b.pilotSticks(0, 0, 500, 0)
}

func captureFlight(t *testing.T, test func(real, simulated []captureHeard)) {
	t.Helper()
	real := readCapture(t, "testdata/ardupilot-pilot.tlog")
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		booted := time.Now()
		flyCaptured(b)
		b.mu.Lock()
		defer b.mu.Unlock()
		var simulated []captureHeard
		for _, h := range b.got {
			simulated = append(simulated, captureHeard{h.at.Sub(booted) - captureBoot, h.msg})
		}
		test(real, simulated)
	})
}

// The same changes in the same order, message kind by message kind. What comes
// of a command comes within 60 ms of the captured time: both answer within 10,
// a stick's 40 ms come on top. A stream tells a change late by up to its
// period. The boot's times are of that boot's sensors: 1 s. The way home lands
// 2.5 s early, and sensors and the first streams were asked for one by one.
func TestArduPilotChangesAsCaptured(t *testing.T) {
	tolerance := map[string]time.Duration{
		"ack": 60, "text": 60, "heartbeat": 1060, "channels": 560, "gps": 560, "place": 300,
		"landed": 310, "sensors": 560, "target": 560, "home": 2060,
	}
	early := 3 * time.Second // after the return began
	captureFlight(t, func(real, simulated []captureHeard) {
		want, got := captureEvents(real), captureEvents(simulated)
		for kind, ms := range tolerance {
			of := func(e captureEvent) bool { return !strings.HasPrefix(e.what, kind+" ") }
			want, got := slices.DeleteFunc(slices.Clone(want), of), slices.DeleteFunc(slices.Clone(got), of)
			if len(got) != len(want) || len(want) == 0 {
				t.Errorf("%s: %d changes, captured %d\n%v\n%v", kind, len(got), len(want), got, want)
				continue
			}
			for i, w := range want {
				most := ms * time.Millisecond
				switch {
				case i == 0 && kind != "ack":
					most = 3 * time.Second // asked for at another moment
				case w.at < 30*time.Second:
					most += time.Second
				case w.at > 89*time.Second:
					most += early
				}
				if got[i].what != w.what {
					t.Errorf("%v %q, captured %q", got[i].at, got[i].what, w.what)
				}
				if d := (got[i].at - w.at).Abs(); d > most {
					t.Errorf("%q at %v, captured at %v", w.what, got[i].at, w.at)
				}
			}
		}
	})
}

// It is where the captured one was, within 1 m along the way and 1.2 m in
// height. Only the way home, where ArduPilot limits its jerk, is flown up to 8 m
// ahead, and its landing so 2.5 s, or 3 m of a descent, early.
func TestArduPilotFliesAsCaptured(t *testing.T) {
	captureFlight(t, func(real, simulated []captureHeard) {
		type fix struct{ north, up, speed float64 }
		last := func(heard []captureHeard, at time.Duration) (f fix) {
			for _, h := range heard {
				if m, ok := h.msg.(*common.MessageGlobalPositionInt); ok && h.at <= at && m.Lat != 0 {
					north, _ := simMetres(float64(m.Lat)/1e7, float64(m.Lon)/1e7)
					f = fix{north, float64(m.RelativeAlt) / 1000, float64(m.Vx) / 100}
				}
			}
			return f
		}
		for at := 20 * time.Second; at < 132*time.Second; at += 500 * time.Millisecond {
			want, got := last(real, at), last(simulated, at)
			level, height := 1.0, 1.2
			switch {
			case at > 88*time.Second && at < 99*time.Second:
				level = 9
			case at > 101*time.Second:
				height = 3.5
			}
			if d := math.Abs(got.north - want.north); d > level {
				t.Errorf("%v: %.1f m north, captured %.1f", at, got.north, want.north)
			}
			if d := math.Abs(got.up - want.up); d > height {
				t.Errorf("%v: %.1f m up, captured %.1f", at, got.up, want.up)
			}
		}
	})
}

// captureSame are the fields that are held against the captured ones; the rest
// are clocks, and what sensors make of standing still.
var captureSame = map[uint32][]string{
	0:   {"Type", "Autopilot", "MavlinkVersion"},
	24:  {"Lat", "Lon", "FixType", "SatellitesVisible", "Eph", "Epv", "Vel"},
	33:  {"Lat", "Lon", "RelativeAlt", "Vx", "Vy", "Vz"},
	65:  {"Chancount", "Rssi", "Chan5Raw", "Chan6Raw", "Chan7Raw", "Chan8Raw", "Chan9Raw", "Chan18Raw"},
	74:  {"Groundspeed", "Throttle", "Climb"},
	87:  {"CoordinateFrame", "TypeMask", "Alt", "Vx", "Afx", "Yaw", "YawRate"},
	242: {"Latitude", "Longitude", "Q"},
	245: {"VtolState", "LandedState"},
}

// captureSlack is how much a number of theirs may differ: 2 m in degE7, home's
// height and the climb that each flight began at, millimetres, cm/s, m/s.
var captureSlack = map[string]float64{
	"Lat": 200, "Lon": 200, "Latitude": 200, "Longitude": 200, "RelativeAlt": 100,
	"Alt": 0.5, "Vx": 10, "Vy": 10, "Vz": 10, "Vel": 10, "Groundspeed": 0.1, "Climb": 0.1,
}

// The last message of each kind says the same in all its fields that matter.
func TestArduPilotsMessagesHaveTheCapturedFields(t *testing.T) {
	captureFlight(t, func(real, simulated []captureHeard) {
		for id, fields := range captureSame {
			of := func(h captureHeard) bool { return h.msg.GetID() != id }
			real, simulated := slices.DeleteFunc(slices.Clone(real), of), slices.DeleteFunc(slices.Clone(simulated), of)
			if len(real) == 0 || len(simulated) == 0 {
				t.Errorf("message %d: %d captured, %d here", id, len(real), len(simulated))
				continue
			}
			want := reflect.ValueOf(real[len(real)-1].msg).Elem()
			got := reflect.ValueOf(simulated[len(simulated)-1].msg).Elem()
			for _, name := range fields {
				w, g := want.FieldByName(name), got.FieldByName(name)
				if ws, gs := fmt.Sprint(w), fmt.Sprint(g); ws != gs && math.Abs(captureNumber(w)-captureNumber(g)) > captureSlack[name] {
					t.Errorf("%s.%s is %s, captured %s", want.Type().Name(), name, gs, ws)
				}
			}
		}
	})
}

func captureNumber(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	}
	return math.NaN()
}
