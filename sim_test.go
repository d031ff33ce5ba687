package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
		s.failsafe = false
		s.enter(custom)
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
		s.enter(s.rtl)
		s.failsafe = true
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
		s.stay()
	})
}

// placeAt moves the vehicle to a latitude and longitude, in degrees.
func (s *simulator) placeAt(lat, lon float64) {
	s.change(func() {
		s.quad.north, s.quad.east = simMetres(lat, lon)
		s.stay()
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
	s.change(func() { s.sendFrom(system, component, msg) })
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
	t    *testing.T
	port port
	w    *streamwriter.Writer

	mu  sync.Mutex
	got []simHeard
}

// simFlight runs test with a simulator that has booted, in virtual time.
// prepare, if any, sets switches before the boot.
func simFlight(t *testing.T, flavour simFlavour, prepare func(*simulator), test func(*simBoard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(flavour)
		if prepare != nil {
			prepare(s)
		}
		b := &simBoard{simulator: s, t: t}
		var err error
		if b.port, err = s.open(); err != nil {
			t.Fatal(err)
		}
		b.w = &streamwriter.Writer{
			FrameWriter: &frame.Writer{ByteWriter: b.port, DialectRW: dialectRW},
			Version:     streamwriter.V2, SystemID: 1, ComponentID: 191,
		}
		if err := errors.Join(b.w.FrameWriter.Initialize(), b.w.Initialize()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		wg.Go(func() { b.listen(b.port) })
		defer wg.Wait()
		defer cancel()
		test(b)
	})
}

func (b *simBoard) listen(p port) {
	r := frame.Reader{ByteReader: p, DialectRW: dialectRW}
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

// ---- The cable ----

func TestSimCableReplacesAnOlderEnd(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		second, err := b.open()
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.port.Read(make([]byte, 1))
		b.want("read of the first end", err, io.EOF)
		b.unplug()
		_, err = second.Read(make([]byte, 1))
		b.want("read after unplug", err, io.EOF)
		_, err = b.open()
		b.want("open while unplugged", err, errSimUnplugged)
		b.plug()
		_, err = b.open()
		b.want("open after plug", err, error(nil))
	})
}

func TestSimReadTimesOutWithNothing(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.muted = true }, func(b *simBoard) {
		p, _ := b.open()
		_ = p.(*simPort).SetReadTimeout(100 * time.Millisecond)
		begin := time.Now()
		n, err := p.Read(make([]byte, 10))
		b.want("bytes", n, 0)
		b.want("error", err, error(nil))
		b.want("time", time.Since(begin), 100*time.Millisecond)
		b.want("close", p.Close(), error(nil))
		_, err = p.Read(make([]byte, 10))
		b.want("read after close", err, io.ErrClosedPipe)
	})
}

func TestSimStalledWriteWaits(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		b.stallWrites(true)
		done := make(chan error, 1)
		write := func() { _, err := b.port.Write([]byte{1}); done <- err }
		go write()
		synctest.Wait()
		b.want("finished", len(done), 0)
		b.stallWrites(false)
		b.want("error", <-done, error(nil))
		b.stallWrites(true)
		go write()
		synctest.Wait()
		b.port.Close()
		b.want("error of a closed port", <-done, io.ErrClosedPipe)
	})
}

func TestSimDropsWholeFramesWhenNobodyReads(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		p, _ := b.open() // ends the reader of the first
		time.Sleep(time.Minute)
		buf := make([]byte, 2*simBuffer)
		n, _ := p.Read(buf)
		if n > simBuffer || n < simBuffer-100 {
			t.Errorf("%d bytes were kept", n)
		}
		r := frame.Reader{ByteReader: bytes.NewReader(buf[:n]), DialectRW: dialectRW}
		_ = r.Initialize()
		for {
			if _, err := r.Read(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestSimSurvivesLineNoise(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		time.Sleep(time.Second)
		b.change(func() {
			b.faultIn = simFault{drop: 0.002, repeat: 0.002, flip: 0.002, insert: 0.002}
			b.faultOut = b.faultIn
		})
		b.forget()
		for range 20 {
			b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 4, Param3: 3})
		}
		if n := len(b.answers(simSetMode)); n < 10 || n >= 40 {
			t.Errorf("%d of 40 acks came through the noise", n)
		}
	})
}

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

// ---- PX4 ----

func simOnPX4(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simPX4, nil, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		test(b)
	})
}

func simOnPX4InAir(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simOnPX4(t, func(b *simBoard) {
		b.placeInAir(10)
		test(b)
	})
}

func TestPX4SpeaksToGroundStationsOnly(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4RTGS)
		b.want("texts before the knock", b.texts(), "")
		b.knock()
		b.want("held-back text", b.texts(), "Unsupported auto mode\t")
		b.forget()
		time.Sleep(2400 * time.Millisecond)
		b.say(common.MAV_SEVERITY_INFO, "soon enough")
		time.Sleep(200 * time.Millisecond)
		b.say(common.MAV_SEVERITY_INFO, "too late")
		time.Sleep(time.Millisecond)
		b.want("texts", b.texts(), "soon enough\t")
	})
}

func TestPX4RefusalTextIsChunkedAndPrecedesItsAck(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4RTL)
		b.knock()
		b.want("arm", b.long(simArm, 1), simResults(simRejected))
		b.mu.Lock()
		defer b.mu.Unlock()
		var got []message.Message
		for _, h := range b.got {
			if id := h.msg.GetID(); id == 77 || id == 253 {
				got = append(got, h.msg)
			}
		}
		b.want("messages", len(got), 3)
		one, two := got[0].(*common.MessageStatustext), got[1].(*common.MessageStatustext)
		b.want("first", one.Text, "Arming denied: Resolve system health failures firs")
		b.want("second", two.Text, "t\t")
		b.want("chunks", [2]uint8{one.ChunkSeq, two.ChunkSeq}, [2]uint8{0, 1})
		b.want("same id", one.Id, two.Id)
	})
}

func TestPX4ModesAreAckedTwiceAndObeyTheTable(t *testing.T) {
	yes, no := simResults(simAccepted, simAccepted), simResults(simAccepted, simRejected)
	tests := []struct {
		name           string
		custom         uint32
		ground         []common.MAV_RESULT
		arms, armsWith bool // without and with sticks streaming
		air, airWith   []common.MAV_RESULT
	}{
		{"MANUAL", simPX4Manual, yes, false, true, no, yes},
		{"ALTCTL", simPX4Altctl, yes, false, true, no, yes},
		{"POSCTL", simPX4Posctl, yes, false, true, no, yes},
		{"ACRO", simPX4Acro, yes, false, true, no, yes},
		{"STABILIZED", simPX4Stabilized, yes, false, true, no, yes},
		{"AUTO.TAKEOFF", simPX4Takeoff, yes, true, true, yes, yes},
		{"AUTO.LOITER", simPX4Loiter, yes, true, true, yes, yes},
		{"AUTO.RTL", simPX4RTL, yes, false, false, yes, yes},
		{"AUTO.LAND", simPX4Land, yes, false, false, yes, yes},
		{"AUTO.RTGS", simPX4RTGS, no, true, true, no, no}, // stays in LOITER
		{"AUTO.MISSION", simPX4Mission, yes, false, false, no, no},
		{"OFFBOARD", simPX4Offboard, yes, false, false, no, no},
	}
	for _, tt := range tests {
		arm := func(ok bool) []common.MAV_RESULT {
			if ok {
				return simResults(simAccepted)
			}
			return simResults(simRejected)
		}
		simOnPX4(t, func(b *simBoard) {
			b.want(tt.name+" on the ground", b.setMode(tt.custom), tt.ground)
			b.want(tt.name+" armed", b.long(simArm, 1), arm(tt.arms))
		})
		simOnPX4(t, func(b *simBoard) {
			b.setMode(tt.custom)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 0, 0)
			b.want(tt.name+" armed with sticks", b.long(simArm, 1), arm(tt.armsWith))
		})
		for _, with := range []bool{false, true} {
			simOnPX4InAir(t, func(b *simBoard) {
				want, mode := tt.air, b.truth().mode
				if with {
					want = tt.airWith
					b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
				}
				b.want(tt.name+" in the air", b.setMode(tt.custom), want)
				if want[1] == simAccepted {
					mode = tt.custom
				}
				b.want("mode after "+tt.name, b.truth().mode, mode)
			})
		}
	}
}

func TestPX4ForgetsUnknownModes(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		for _, p := range [][]float64{{1, 77, 0}, {0, 4, 5}, {1, 4, 99}} {
			b.want("acks", b.long(simSetMode, p...), simResults(simAccepted, simAccepted))
			b.want("mode", b.truth().mode, uint32(simPX4Loiter))
		}
		b.want("acks of COMMAND_INT", b.exact(simSetMode, 0, 1, 4, 0, 0, 0, 0), simResults(simAccepted, simAccepted))
	})
}

func TestPX4ArmsWhenItMay(t *testing.T) {
	const z0, z500, z501 = 0, 500, 501
	tests := []struct {
		name  string
		mode  uint32
		z     int16
		force float64
		want  common.MAV_RESULT
		text  string
	}{
		{"POSCTL centre", simPX4Posctl, z500, 0, simAccepted, ""},
		{"POSCTL above", simPX4Posctl, z501, 0, simRejected, "throttle above center"},
		{"ALTCTL centre", simPX4Altctl, z500, 0, simAccepted, ""},
		{"ALTCTL above", simPX4Altctl, z501, 0, simRejected, "throttle above center"},
		{"MANUAL low", simPX4Manual, z0, 0, simAccepted, ""},
		{"MANUAL centre", simPX4Manual, z500, 0, simRejected, "high throttle"},
		{"STABILIZED centre", simPX4Stabilized, z500, 0, simRejected, "high throttle"},
		{"AUTO.LAND forced", simPX4Land, z0, 21196, simRejected, "Resolve system health failures first"},
	}
	for _, tt := range tests {
		simOnPX4(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, tt.z, 0)
			b.knock()
			b.want(tt.name, b.long(simArm, 1, tt.force), simResults(tt.want))
			b.wantText(tt.text)
		})
	}
	simFlight(t, simPX4, nil, func(b *simBoard) {
		time.Sleep(4 * time.Second)
		b.want("4 s after boot", b.long(simArm, 1), simResults(simRejected))
		healthy := func() bool {
			return simLast[*common.MessageSysStatus](b).OnboardControlSensorsHealth&common.MAV_SYS_STATUS_PREARM_CHECK != 0
		}
		b.want("healthy", healthy(), true)
		b.setMode(simPX4Posctl)
		b.want("healthy in POSCTL without sticks", healthy(), false)
		b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_UNINIT)
	})
}

func TestPX4DisarmsItselfAndNotInTheAir(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.long(simArm, 1)
		d := b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds armed", d.Seconds(), 10, 0.1)
		b.placeInAir(10)
		b.knock()
		b.want("disarm in the air", b.long(simArm, 0), simResults(simRejected))
		b.wantText("Disarming denied: not landed")
	})
}

func TestPX4TakesOffToAMSL(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		name     string
		lat, alt float64
		up       float64
		text     string
	}{
		{"AMSL", nan, simHomeAlt + 10, 10, "Takeoff detected"},
		{"default altitude", nan, nan, 2.5, ""},
		{"metres above home", nan, 10, 0, "Already higher than takeoff altitude"},
		{"at 0, 0", 0, simHomeAlt + 10, 0, ""},
	}
	for _, tt := range tests {
		simOnPX4(t, func(b *simBoard) {
			b.want("takeoff", b.long(simTakeoff, nan, nan, nan, nan, tt.lat, tt.lat, tt.alt), simResults(simAccepted))
			b.want("armed by it", b.truth().armed, false)
			b.want("mode", b.truth().mode, uint32(simPX4Takeoff))
			b.want("arm", b.long(simArm, 1), simResults(simAccepted))
			if tt.up == 0 {
				d := b.until(tt.name, time.Minute, func(s simState) bool { return !s.armed })
				b.near("seconds until disarmed", d.Seconds(), 10, 0.1)
			} else {
				d := b.until(tt.name, time.Minute, func(s simState) bool { return s.mode == simPX4Loiter })
				if tt.up == 10 {
					b.near("seconds to climb 10 m", d.Seconds(), 12, 1)
				}
				time.Sleep(5 * time.Second)
			}
			b.wantPlace(0, 0, tt.up, 0.1)
			b.knock()
			b.wantText(tt.text)
		})
	}
	simOnPX4(t, func(b *simBoard) {
		b.long(simArm, 1)
		b.long(simTakeoff, nan, nan, nan, nan, nan, nan, 10)
		time.Sleep(9 * time.Second)
		b.wantPlace(0, 0, 0, 0) // armed before makes no difference
	})
	simOnPX4InAir(t, func(b *simBoard) {
		b.exact(simTakeoff, 6, 0, 0, nan, math.MaxInt32, math.MaxInt32, simHomeAlt+14)
		b.want("mode in the air", b.truth().mode, uint32(simPX4Takeoff))
		b.until("climb", time.Minute, func(s simState) bool { return s.mode == simPX4Loiter })
		b.near("altitude", b.truth().alt, 14, 0.3)
	})
}

func TestPX4LandsHereAndLeavesLand(t *testing.T) {
	for _, mode := range []uint32{simPX4Loiter, simPX4Posctl} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(mode)
			lat, lon := simPlace(25, 0)
			b.want("land", b.exact(common.MAV_CMD_NAV_LAND, 0, 0, 0, 0, simE7(lat), simE7(lon), 0), simResults(simAccepted))
			d := b.until("touch", time.Minute, func(s simState) bool { return s.landed == common.MAV_LANDED_STATE_ON_GROUND })
			b.near("seconds to land", d.Seconds(), 18, 5)
			d = b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
			b.near("seconds to disarm", d.Seconds(), 2, 0.1)
			b.want("mode", b.truth().mode, mode)
			b.wantPlace(0, 0, 0, 0.3)
			b.knock()
			b.wantText("Landing detected\t")
			b.wantText("Disarmed by landing\t")
		})
	}
}

func TestPX4ReturnsHomeAndDisarms(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.placeAt(simPlace(40, 10))
		b.want("RTL", b.long(common.MAV_CMD_NAV_RETURN_TO_LAUNCH), simResults(simAccepted))
		b.until("disarm", 2*time.Minute, func(s simState) bool { return !s.armed })
		b.wantPlace(0, 0, 0, 1.2)
		b.want("mode", b.truth().mode, uint32(simPX4Loiter))
	})
}

func TestPX4Repositions(t *testing.T) {
	nan := math.NaN()
	lat, lon := simPlace(20, 5)
	x, y := simE7(lat), simE7(lon)
	tests := []struct {
		name             string
		frame            common.MAV_FRAME
		p2, yaw          float64
		x, y             int32
		z                float64
		result           common.MAV_RESULT
		north, east, alt float64
	}{
		{"AMSL", 0, 1, nan, x, y, simHomeAlt + 15, simAccepted, 20, 5, 15},
		{"frame 3 is AMSL too", 3, 1, nan, x, y, simHomeAlt + 15, simAccepted, 20, 5, 15},
		{"keeps the altitude", 0, 1, nan, x, y, nan, simAccepted, 20, 5, 10},
		{"keeps the place", 0, 1, nan, math.MaxInt32, math.MaxInt32, simHomeAlt + 15, simAccepted, 0, 0, 15},
		{"stays", 0, 1, nan, math.MaxInt32, math.MaxInt32, nan, simAccepted, 0, 0, 10},
		{"param2 = 0", 0, 0, nan, x, y, simHomeAlt + 15, simUnsupported, 20, 5, 15},
		{"frame 6 into the ground", 6, 1, nan, x, y, 20, simAccepted, 20, 5, 0},
		{"yaw in radians", 0, 1, math.Pi / 2, x, y, nan, simAccepted, 20, 5, 10},
	}
	for _, tt := range tests {
		simOnPX4InAir(t, func(b *simBoard) {
			b.want(tt.name, b.exact(simGoto, tt.frame, -1, tt.p2, tt.yaw, tt.x, tt.y, tt.z), simResults(tt.result))
			time.Sleep(25 * time.Second)
			n, e, up := b.place()
			b.near(tt.name+" alt", up, tt.alt, 0.3)
			if tt.alt > 0 {
				b.near(tt.name+" place", math.Hypot(n-tt.north, e-tt.east), 0, 0.3)
			}
			if !math.IsNaN(tt.yaw) {
				b.near("heading", b.truth().heading, 90, 1)
			}
		})
	}
}

func TestPX4RepositionOddities(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4Takeoff)
		b.want("disarmed", b.fly(20, 0, 15), simResults(simAccepted))
		b.want("mode", b.truth().mode, uint32(simPX4Loiter))
		b.placeInAir(10)
		time.Sleep(5 * time.Second)
		b.wantPlace(0, 0, 10, 0.1) // that target is dropped

		lat, lon := simPlace(20, 0)
		b.want("COMMAND_LONG", b.long(simGoto, -1, 1, 0, math.NaN(), lat, lon, math.NaN()), simResults(simAccepted))
		time.Sleep(20 * time.Second)
		n, e, _ := b.place()
		b.near("COMMAND_LONG misses", math.Hypot(n-20, e), 1.1, 0.5)

		b.change(func() { b.fence = 50 })
		b.knock()
		b.want("outside the fence", b.fly(100, 0, 10), simResults(simAccepted))
		b.wantText("geofence")
		time.Sleep(10 * time.Second)
		b.near("not flown", b.truth().vn, 0, 0.1)
		b.change(func() { b.fence = 0 })

		lat, lon = simPlace(100, 0)
		b.exact(simGoto, 0, 3, 1, math.NaN(), simE7(lat), simE7(lon), math.NaN())
		time.Sleep(5 * time.Second)
		b.near("speed of 3", b.truth().vn, 3, 0.3)
		b.setMode(simPX4Loiter)
		time.Sleep(3 * time.Second)
		b.near("a hold in LOITER cancels no goto", b.truth().vn, 3, 0.3)
		b.want("degE7 in a COMMAND_LONG", b.long(simGoto, -1, 1, 0, math.NaN(), lat*1e7, lon*1e7, math.NaN()), simResults(simAccepted))
		time.Sleep(30 * time.Second)
		b.near("flies away", math.Hypot(b.truth().vn, b.truth().ve), 5, 0.3)
	})
}

func TestPX4SticksFly(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simPX4Posctl)
		b.stick(4*time.Second, sim25Hz, 1000, 32767, 500, 0)
		b.near("POSCTL forward", b.truth().vn, 5, 0.2)
		b.near("500 holds", b.truth().alt, 10, 0.1)
		b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		b.near("POSCTL centred", b.truth().vn, 0, 0.1)
		b.stick(time.Second, sim25Hz, 0, 0, 1000, 500)
		if s := b.truth(); s.vd > -1 || s.heading < 20 {
			t.Errorf("climbs %.1f m/s, turned to %.0f°", -s.vd, s.heading)
		}
		b.setMode(simPX4Altctl)
		b.stick(2*time.Second, sim25Hz, 500, 0, 500, 0)
		speed := math.Hypot(b.truth().vn, b.truth().ve)
		b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		b.near("ALTCTL drifts on", math.Hypot(b.truth().vn, b.truth().ve), speed, 0.1)
		b.setMode(simPX4Manual)
		b.stick(time.Second, sim25Hz, 0, 0, 700, 0)
		if s := b.truth(); s.vd > -1 {
			t.Errorf("MANUAL thrust climbs %.1f m/s", -s.vd)
		}
		b.setMode(simPX4Posctl)
		b.stick(30*time.Second, sim25Hz, 0, 0, 0, 0)
		b.want("lands and disarms by sticks", b.truth().armed, false)
	})
}

func TestPX4NeedsARunningStream(t *testing.T) {
	for ahead, want := range map[time.Duration]common.MAV_RESULT{100 * time.Millisecond: simRejected, 300 * time.Millisecond: simAccepted} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(ahead, sim25Hz, 0, 0, 500, 0)
			b.want(ahead.String(), b.setMode(simPX4Posctl), simResults(simAccepted, want))
		})
	}
}

func TestPX4LosesSlowOrSilentSticks(t *testing.T) {
	for every, lost := range map[time.Duration]bool{400 * time.Millisecond: false, 500 * time.Millisecond: true} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
			b.stick(5*time.Second, every, 0, 0, 500, 0)
			b.want("lost at "+every.String(), b.truth().failsafe, lost)
		})
	}
	for _, mode := range []uint32{simPX4Posctl, simPX4Loiter} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(mode)
			b.fly(100, 0, 10)
			b.setMode(mode)
			b.stick(4*time.Second, sim25Hz, 0, 0, 500, 0)
			b.knock()
			d := b.until("failsafe", 5*time.Second, func(s simState) bool { return s.failsafe })
			b.near("seconds of silence", (d + sim25Hz).Seconds(), 0.6, 0.05)
			b.want("mode", b.truth().mode, uint32(simPX4Loiter))
			b.stick(4900*time.Millisecond, sim25Hz, 0, 0, 500, 0) // coming back cancels nothing
			b.wantText("Failsafe activated: entering Hold for 5 seconds\t")
			b.near("brakes", b.truth().vn, 0, 0.1)
			b.want("still in hold", b.truth().mode, uint32(simPX4Loiter))
			b.stick(200*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.want("then returns", b.truth().mode, uint32(simPX4RTL))
			b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
			b.setMode(simPX4Loiter)
			time.Sleep(10 * time.Second)
			b.want("DO_SET_MODE cancels", b.truth().failsafe, false)
			b.want("mode stays", b.truth().mode, uint32(simPX4Loiter))
		})
	}
	simOnPX4InAir(t, func(b *simBoard) {
		time.Sleep(20 * time.Second)
		b.want("failsafe without sticks ever", b.truth().failsafe, false)
	})
}

func TestPX4PilotTakesOverWhileSticksMove(t *testing.T) {
	tests := []struct {
		name  string
		quiet time.Duration // between the last change and the command
		taken bool
	}{
		{"at once", 0, true}, {"0.2 s", 200 * time.Millisecond, true}, {"1 s", time.Second, true},
		{"1.5 s", 1500 * time.Millisecond, true}, {"2 s", 2 * time.Second, false},
	}
	for _, tt := range tests {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(simPX4Posctl)
			b.stick(2*time.Second, sim25Hz, 1000, 0, 500, 0)
			b.stick(sim25Hz+tt.quiet, sim25Hz, 0, 0, 500, 0)
			b.knock()
			b.want("hold", b.setMode(simPX4Loiter), simResults(simAccepted, simAccepted))
			b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
			b.want(tt.name, b.truth().mode == simPX4Posctl, tt.taken)
			if tt.taken {
				b.wantText("Pilot took over using sticks\t")
			}
		})
	}
	for x, taken := range map[int16]bool{100: false, 199: false, 200: true} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
			b.stick(100*time.Millisecond, sim25Hz, x, 0, 500, 0)
			b.want("a step", b.truth().mode == simPX4Posctl, taken)
		})
	}
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(5*time.Second, sim25Hz, 700, 0, 500, 0)
		b.want("a constant value takes over", b.truth().mode, uint32(simPX4Loiter))
		for x := int16(700); x > 0; x -= 10 {
			b.stick(sim25Hz, sim25Hz, x, 0, 500, 0)
		}
		b.want("after a slow ramp", b.truth().mode, uint32(simPX4Posctl))
	})
}

func TestPX4HomeMayStep(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.homeSteps = true }, func(b *simBoard) {
		seen := map[int32]bool{}
		for range 10 {
			p := simLast[*common.MessageGlobalPositionInt](b)
			seen[p.RelativeAlt] = true
			b.want("AMSL", p.Alt, int32(488300))
		}
		if len(seen) < 4 {
			t.Errorf("relative_alt takes %d values", len(seen))
		}
	})
}

// ---- ArduPilot ----

const (
	simAltHold = 2
	simLoiter  = 5
)

func simOnArdu(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		test(b)
	})
}

func simOnArduInAir(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simOnArdu(t, func(b *simBoard) {
		b.placeInAir(10)
		test(b)
	})
}

func TestArduPilotBootsWithStrayBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(simArduPilot)
		p, _ := s.open()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		buf := make([]byte, 100)
		n, _ := p.Read(buf)
		if n < 6 || buf[0] == frame.V2MagicByte || bytes.IndexByte(buf[:n], frame.V2MagicByte) > 6 {
			t.Errorf("first bytes % x", buf[:n])
		}
		cancel()
		wg.Wait()
	})
}

func TestArduPilotLosesAModeThatComesTooEarly(t *testing.T) {
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		b.want("early", b.setMode(simArduGuided), simResults(simAccepted))
		time.Sleep(2 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduStabilize))
		b.want("home positions", b.count(242), 1)
		b.want("later", b.setMode(simArduGuided), simResults(simAccepted))
		b.want("heartbeats at once", b.count(0), 1)
		time.Sleep(2 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduGuided))
	})
}

func TestArduPilotKnowsItsMessages(t *testing.T) {
	simOnArdu(t, func(b *simBoard) {
		b.want("interval", b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 12345, 1e6), simResults(simDenied))
		b.want("request", b.long(common.MAV_CMD_REQUEST_MESSAGE, 12345), simResults(simFailed))
		b.wantText("No ap_message")
	})
}

func TestArduPilotTellsWhoseSticksCount(t *testing.T) {
	for _, param := range []string{"SYSID_MYGCS", "MAV_GCS_SYSID", ""} {
		simOnArdu(t, func(b *simBoard) {
			b.change(func() { b.gcsParam, b.sysidMyGCS = param, 42 })
			for _, ask := range []string{"SYSID_MYGCS", "MAV_GCS_SYSID"} {
				b.forget()
				b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: ask, ParamIndex: -1})
				time.Sleep(50 * time.Millisecond)
				if (b.count(22) == 1) != (ask == param) {
					t.Errorf("%q has %d answers to %q", param, b.count(22), ask)
				}
			}
			if param != "" {
				b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: param, ParamIndex: -1})
				b.want("value", simLast[*common.MessageParamValue](b).ParamValue, float32(42))
			}
		})
	}
}

func TestArduPilotModesAreAckedOnce(t *testing.T) {
	simFlight(t, simArduPilot, func(s *simulator) { s.armableAfter = 42 * time.Second }, func(b *simBoard) {
		time.Sleep(30 * time.Second)
		b.want("unknown", b.setMode(99), simResults(simFailed))
		b.want("base_mode 0", b.long(simSetMode, 0, 4), simResults(simFailed))
		for _, m := range b.modes {
			b.want(m.name+" disarmed", b.setMode(m.custom), simResults(simAccepted))
		}
		b.setMode(simArduGuided)
		b.want("GUIDED armed at 30 s", b.long(simArm, 1), simResults(simFailed))
		b.wantText("PreArm: ")
		b.setMode(simArduStabilize)
		b.want("STABILIZE armed at 30 s", b.long(simArm, 1), simResults(simAccepted))
		for _, mode := range []uint32{simArduGuided, simLoiter, simArduRTL} {
			b.want("without position", b.setMode(mode), simResults(simFailed))
			b.wantText("requires position")
		}
		b.want("LAND on the ground", b.setMode(simArduLand), simResults(simAccepted))
		b.want("disarms at once", b.truth().armed, false)
		time.Sleep(15 * time.Second)
		b.setMode(simArduGuided)
		b.want("GUIDED armed at 45 s", b.long(simArm, 1), simResults(simAccepted))
	})
}

func TestArduPilotArmsWhenItMay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mode   uint32
		system uint8
		z      int16
		want   common.MAV_RESULT
		text   string
	}{
		{"GUIDED", simArduGuided, 1, 0, simAccepted, ""},
		{"GUIDED, sticks low", simArduGuided, 255, 0, simAccepted, ""},
		{"GUIDED, sticks centred", simArduGuided, 255, 500, simFailed, "Arm: Throttle (RC3) is not neutral"},
		{"sticks of a stranger", simArduGuided, 1, 500, simAccepted, ""},
		{"LAND", simArduLand, 1, 0, simFailed, "Arm: LAND mode not armable"},
		{"RTL", simArduRTL, 1, 0, simFailed, "Arm: RTL mode not armable"},
	} {
		simOnArdu(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.as(tt.system, 191)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, tt.z, 0)
			b.want(tt.name, b.long(simArm, 1), simResults(tt.want))
			b.wantText(tt.text)
			if tt.want == simAccepted {
				d := b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
				b.near("seconds armed", d.Seconds(), 10, 0.1)
			}
		})
	}
	simOnArduInAir(t, func(b *simBoard) {
		b.want("disarm in the air", b.long(simArm, 0), simResults(simFailed))
	})
}

func TestArduPilotTakesOffFromGuided(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode uint32
		arm  bool
		alt  float64
		want common.MAV_RESULT
		up   float64
	}{
		{"GUIDED", simArduGuided, true, 10, simAccepted, 10},
		{"disarmed", simArduGuided, false, 10, simFailed, 0},
		{"STABILIZE", simArduStabilize, true, 10, simFailed, 0},
		{"nowhere", simArduGuided, true, 0, simFailed, 0},
		{"LOITER", simLoiter, true, 10, simAccepted, 0},
	} {
		simOnArdu(t, func(b *simBoard) {
			nan := math.NaN()
			b.setMode(tt.mode)
			if tt.arm {
				b.long(simArm, 1)
			}
			b.want(tt.name, b.long(simTakeoff, nan, nan, nan, nan, nan, nan, tt.alt), simResults(tt.want))
			if tt.up == 0 {
				time.Sleep(15 * time.Second)
				b.wantPlace(0, 0, 0, 0)
				return
			}
			d := b.until("climb", time.Minute, func(s simState) bool { return s.landed == common.MAV_LANDED_STATE_IN_AIR })
			b.near("seconds to climb", d.Seconds(), 12, 1.5)
			time.Sleep(3 * time.Second)
			b.near("altitude", b.truth().alt, 10, 0.1)
			b.want("mode", b.truth().mode, tt.mode)
			b.want("again in the air", b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 20), simResults(simFailed))
		})
	}
	for f, want := range map[common.MAV_FRAME]common.MAV_RESULT{0: simDenied, 3: simAccepted, 6: simDenied} {
		simOnArdu(t, func(b *simBoard) {
			b.setMode(simArduGuided)
			b.long(simArm, 1)
			b.want("frame "+f.String(), b.exact(simTakeoff, f, 0, 0, 0, 0, 0, 10), simResults(want))
		})
	}
}

func TestArduPilotRepositions(t *testing.T) {
	lat, lon := simPlace(20, 5)
	x, y := simE7(lat), simE7(lon)
	for _, tt := range []struct {
		name  string
		frame common.MAV_FRAME
		mode  uint32
		p2    float64
		x, y  int32
		z     float64
		want  common.MAV_RESULT
		up    float64
	}{
		{"AMSL", 0, simArduGuided, 1, x, y, simHomeAlt + 15, simAccepted, 15},
		{"AMSL int", 5, simArduGuided, 1, x, y, simHomeAlt + 15, simAccepted, 15},
		{"above home", 3, simArduGuided, 1, x, y, 15, simAccepted, 15},
		{"above home int", 6, simArduGuided, 1, x, y, 15, simAccepted, 15},
		{"terrain", 11, simArduGuided, 1, x, y, 15, simAccepted, 0},
		{"from LAND", 6, simArduLand, 1, x, y, 15, simAccepted, 15},
		{"from LAND, param2 = 0", 6, simArduLand, 0, x, y, 15, simDenied, 0},
		{"param2 = 0", 6, simArduGuided, 0, x, y, 15, simAccepted, 15},
		{"0, 0", 6, simArduGuided, 1, 0, 0, 15, simDenied, 10},
		{"INT32_MAX", 6, simArduGuided, 1, math.MaxInt32, math.MaxInt32, 15, simDenied, 10},
		{"no altitude", 6, simArduGuided, 1, x, y, math.NaN(), simDenied, 10},
		{"local", 1, simArduGuided, 1, x, y, 15, simDenied, 10},
	} {
		simOnArduInAir(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.want(tt.name, b.exact(simGoto, tt.frame, 1, tt.p2, 1.5, tt.x, tt.y, tt.z), simResults(tt.want))
			time.Sleep(30 * time.Second)
			b.near(tt.name+" alt", b.truth().alt, tt.up, 0.3)
			if tt.up == 15 {
				b.wantPlace(20, 5, 15, 0.3)
				b.near("yaw is ignored", b.truth().heading, 0, 0.1)
			}
		})
	}
	simOnArdu(t, func(b *simBoard) {
		b.want("COMMAND_LONG", b.long(simGoto, -1, 1, 0, 0, lat, lon, 15), simResults(simUnsupported))
		b.want("disarmed", b.fly(20, 0, 15), simResults(simAccepted))
		b.long(simArm, 1)
		b.want("on the ground", b.fly(20, 0, 15), simResults(simAccepted))
		time.Sleep(5 * time.Second)
		b.wantPlace(0, 0, 0, 0)
	})
}

func TestArduPilotSpeedAndYawAreCommandsOfTheirOwn(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.want("speed", b.long(common.MAV_CMD_DO_CHANGE_SPEED, 1, 2), simResults(simAccepted))
		b.fly(100, 0, 10)
		b.want("yaw", b.long(common.MAV_CMD_CONDITION_YAW, 90), simResults(simAccepted))
		time.Sleep(5 * time.Second)
		b.near("speed", b.truth().vn, 2, 0.1)
		b.near("heading", b.truth().heading, 90, 1)
		b.setMode(simArduGuided)
		time.Sleep(time.Second)
		b.near("a hold in GUIDED cancels no goto", b.truth().vn, 2, 0.1)
		b.setMode(17)
		b.want("speed outside GUIDED", b.long(common.MAV_CMD_DO_CHANGE_SPEED, 1, 2), simResults(simFailed))
		b.fly(200, 0, 10)
		time.Sleep(5 * time.Second)
		b.near("default speed after a mode change", b.truth().vn, 5, 0.1)
	})
}

func TestArduPilotLandStaysLand(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		lat, lon := simPlace(25, 0)
		b.want("land", b.long(common.MAV_CMD_NAV_LAND, 0, 0, 0, 0, lat, lon), simResults(simAccepted))
		d := b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds to disarm", d.Seconds(), 23, 1.5)
		time.Sleep(5 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduLand))
		b.wantPlace(0, 0, 0, 0.3)
	})
	simOnArduInAir(t, func(b *simBoard) {
		b.placeAt(simPlace(30, 0))
		b.want("RTL", b.setMode(simArduRTL), simResults(simAccepted))
		b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.want("mode", b.truth().mode, uint32(simArduRTL))
	})
}

func TestArduPilotSticks(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.as(255, 191)
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simLoiter)
		b.stick(4*time.Second, sim25Hz, 500, 0, 500, 0)
		b.near("LOITER x = 500", b.truth().vn, 4.3, 0.1)
		b.near("500 holds", b.truth().alt, 10, 0.1)
		b.stick(time.Second, sim25Hz, -500, 0, -1, 0)
		b.near("z < 0 drops the message", b.truth().vn, 4.3, 0.1)
		b.stick(time.Second, sim25Hz, 32767, 0, 500, 0)
		b.near("32767 releases the axis", b.truth().vn, 0.3, 0.4)
		b.stick(sim25Hz, sim25Hz, 500, 0, 500, 0)
		time.Sleep(2900 * time.Millisecond)
		b.near("the last stick stands", b.truth().vn, 4.3, 0.1)
		b.want("mode", b.truth().mode, uint32(simLoiter))
		d := b.until("radio failsafe", 5*time.Second, func(s simState) bool { return s.mode == simArduRTL })
		b.near("seconds of silence", d.Seconds()+2.94, 4, 0.05)
		b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
	})
	for _, ids := range [][2]uint8{{1, 1}, {255, 0}} { // sender's system, target
		simOnArduInAir(t, func(b *simBoard) {
			b.setMode(simAltHold)
			b.as(ids[0], 191)
			for range 50 {
				b.write(&common.MessageManualControl{Target: ids[1], Z: 500})
				time.Sleep(sim25Hz)
			}
			b.near("sinks at the receiver's low throttle", b.truth().vd, 2.4, 0.1)
		})
	}
	simOnArduInAir(t, func(b *simBoard) {
		b.change(func() { b.receiver = true })
		b.as(255, 191)
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simLoiter)
		time.Sleep(5 * time.Second)
		b.want("with a receiver no failsafe", b.truth().failsafe, false)
		b.near("but its throttle", b.truth().vd, 2.4, 0.1)
	})
	simOnArduInAir(t, func(b *simBoard) {
		b.as(255, 191)
		b.stick(2*time.Second, sim25Hz, 1000, 0, 0, 500)
		b.wantPlace(0, 0, 10, 0.1)
		if h := b.truth().heading; h < 30 {
			t.Errorf("GUIDED: yaw does not act, heading %.0f", h)
		}
		time.Sleep(5 * time.Second)
		b.want("mode after silence in GUIDED", b.truth().mode, uint32(simArduGuided))
		b.setMode(simArduLand)
		b.stick(3*time.Second, sim25Hz, 1000, 0, 500, 0)
		if n, e, _ := b.place(); math.Hypot(n, e) < 2 {
			t.Errorf("LAND is not shifted: %.1f %.1f", n, e)
		}
	})
}
