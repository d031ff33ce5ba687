package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// This file has what several test files share.

var (
	runAll = flag.Bool("all", false,
		"run every moment, manoeuvre and pilot, and the long tests at full length, not a sample")
	simSeed = flag.Uint64("sim-seed", 2,
		"seed of the simulators' times. A flight that needs a HEARTBEAT in a window of milliseconds fails with "+
			"another one: such a flight passes by luck")
	sampleSeed = flag.Uint64("sample-seed", 1,
		"seed of the samples; 0 takes a new seed each time, which a failed test prints")
)

// sampled returns n of the cases in a random order, with -all all of them. Every value of every
// dimension is in the sample, which may therefore have more than n cases. Each test has its own
// sample.
func sampled[T any](t *testing.T, cases []T, n int, dimensions ...func(T) any) []T {
	t.Helper()
	if *runAll || len(cases) <= n {
		return cases
	}
	seed := *sampleSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	var needed, others []T
	seen := map[[2]any]bool{}
	name := fnv.New64()
	io.WriteString(name, t.Name())
	for _, at := range rand.New(rand.NewPCG(seed, name.Sum64())).Perm(len(cases)) {
		c, isNew := cases[at], false
		for i, dimension := range dimensions {
			if value := [2]any{i, dimension(c)}; !seen[value] {
				seen[value], isNew = true, true
			}
		}
		if isNew {
			needed = append(needed, c)
		} else {
			others = append(others, c)
		}
	}
	some := append(needed, others[:max(0, n-len(needed))]...)
	t.Logf("%d of %d cases: -sample-seed %d takes the same ones, -all takes all", len(some), len(cases), seed)
	return some
}

func TestASampleHasEveryValueOfEveryDimension(t *testing.T) {
	defer func(all bool, seed uint64) { *runAll, *sampleSeed = all, seed }(*runAll, *sampleSeed)
	*runAll = false
	type moment struct{ manoeuvre, receiver, mode int }
	var cases []moment
	for i := range 19 * 4 * 8 {
		cases = append(cases, moment{i / 32, i / 8 % 4, i % 8})
	}
	for *sampleSeed = 1; *sampleSeed < 30; *sampleSeed++ {
		for _, n := range []int{0, 100} {
			seen := map[any]bool{} // the cases of the sample, and the values of both dimensions in it
			some := sampled(t, cases, n, func(m moment) any { return m.manoeuvre },
				func(m moment) any { return [2]int{m.receiver, m.mode} })
			for _, m := range some {
				seen[m], seen[m.manoeuvre], seen[[2]int{m.receiver, m.mode}] = true, true, true
			}
			if len(seen) != len(some)+19+4*8 || len(some) < n || len(some) > max(n, 19+4*8) {
				t.Fatalf("seed %d: %d cases with %d of %d values", *sampleSeed, len(some), len(seen)-len(some), 19+4*8)
			}
		}
	}
}

// walks is how many random walks are made: fewer with the race detector, which needs each line once and no more.
func walks(n int) int {
	if racing() {
		return n / 10
	}
	return n
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// atBaud returns the state of a line at a baud rate.
func atBaud(rate int64) *lineState {
	l := &lineState{}
	l.baud.Store(rate)
	return l
}

// crcExtras are the CRC_EXTRAs of the dialect's messages, from the MAVLink definitions. Replayed
// flights show that they are right.
var crcExtras = map[uint32]byte{
	0: 50, 1: 124, 2: 137, 20: 214, 22: 220, 24: 24, 30: 39, 33: 104, 65: 118, 69: 243, 70: 124, 74: 20,
	75: 158, 76: 152, 77: 143, 87: 150, 111: 34, 109: 185, 124: 87, 147: 154, 148: 178, 166: 21, 193: 71,
	242: 104, 245: 130, 253: 83, 436: 193,
}

// crcOf is MAVLink's CRC-16/MCRF4XX.
func crcOf(b []byte, extra byte) uint16 {
	crc := uint16(0xffff)
	for _, c := range append(slices.Clone(b), extra) {
		c ^= byte(crc)
		c ^= c << 4
		crc = crc>>8 ^ uint16(c)<<8 ^ uint16(c)<<3 ^ uint16(c)>>4
	}
	return crc
}

// wireFrame is a frame with the fields that it has on the line.
type wireFrame struct {
	v1                     bool
	incompat               byte
	seq, system, component byte
	id                     uint32
	payload                []byte
	extra                  byte // CRC_EXTRA of a message outside the dialect
	offset, end            int  // where checkedFrames found it
	claims                 int  // the wrong length in its header; 0 if the length is right
	signature              [13]byte
}

func (f wireFrame) bytes() []byte {
	n := byte(len(f.payload))
	if f.claims != 0 {
		n = byte(f.claims)
	}
	b := []byte{frame.V2MagicByte, n, f.incompat, 0, f.seq, f.system, f.component, byte(f.id), byte(f.id >> 8),
		byte(f.id >> 16)}
	if f.v1 {
		b = []byte{frame.V1MagicByte, n, f.seq, f.system, f.component, byte(f.id)}
	}
	b = append(b, f.payload...)
	extra, ok := crcExtras[f.id]
	if !ok {
		extra = f.extra
	}
	b = binary.LittleEndian.AppendUint16(b, crcOf(b[1:], extra))
	if f.incompat&1 != 0 {
		b = append(b, f.signature[:]...)
	}
	return b
}

// key returns a string that differs for different frames.
func (f wireFrame) key() string {
	return fmt.Sprintf("v1=%t seq %d of %d.%d #%d %s", f.v1, f.seq, f.system, f.component, f.id,
		hex.EncodeToString(f.payload))
}

// payloadOf is a message's payload; in version 2 without its trailing zeros.
func payloadOf(m message.Message, v2 bool) []byte {
	return dialectRW.GetMessage(m.GetID()).Write(m, v2).Payload
}

// packet is a message in a version 2 frame.
func packet(seq, system, component byte, m message.Message) []byte {
	return wireFrame{seq: seq, system: system, component: component, id: m.GetID(), payload: payloadOf(m, true)}.bytes()
}

// packet1 is a message in a version 1 frame.
func packet1(seq, system, component byte, m message.Message) []byte {
	return wireFrame{v1: true, seq: seq, system: system, component: component, id: m.GetID(),
		payload: payloadOf(m, false)}.bytes()
}

// unknownPacket is a message that is not in the dialect.
func unknownPacket(seq byte, size int) []byte {
	return wireFrame{seq: seq, system: 1, component: 1, id: 141, payload: bytes.Repeat([]byte{7}, size),
		extra: 47}.bytes()
}

// checkedFrames returns every frame in b, at any offset, that is in the dialect and has the right
// checksum.
func checkedFrames(b []byte) []wireFrame {
	var list []wireFrame
	for i := range b {
		f, header := wireFrame{offset: i}, 10
		switch rest := b[i:]; {
		case rest[0] == frame.V2MagicByte && len(rest) >= 12 && rest[2]&^1 == 0:
			f.incompat, f.seq, f.system, f.component = rest[2], rest[4], rest[5], rest[6]
			f.id = uint32(rest[7]) | uint32(rest[8])<<8 | uint32(rest[9])<<16
		case rest[0] == frame.V1MagicByte && len(rest) >= 8:
			header = 6
			f.v1, f.seq, f.system, f.component, f.id = true, rest[2], rest[3], rest[4], uint32(rest[5])
		default:
			continue
		}
		extra, ok := crcExtras[f.id]
		checksumAt := i + header + int(b[i+1])
		f.end = checksumAt + 2 + 13*int(f.incompat) // incompat is 1 with a signature, of 13 bytes
		if !ok || f.end > len(b) || binary.LittleEndian.Uint16(b[checksumAt:]) != crcOf(b[i+1:checksumAt], extra) {
			continue
		}
		f.payload = b[i+header : checksumAt]
		list = append(list, f)
	}
	return list
}

// beatOf is an autopilot's heartbeat.
func beatOf(autopilot common.MAV_AUTOPILOT, custom uint32, armed bool) *common.MessageHeartbeat {
	m := &common.MessageHeartbeat{
		Type: common.MAV_TYPE_QUADROTOR, Autopilot: autopilot, BaseMode: common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED,
		CustomMode: custom, SystemStatus: common.MAV_STATE_STANDBY, MavlinkVersion: 3,
	}
	if armed {
		m.BaseMode |= common.MAV_MODE_FLAG_SAFETY_ARMED
		m.SystemStatus = common.MAV_STATE_ACTIVE
	}
	return m
}

func px4Beat() *common.MessageHeartbeat {
	return beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(4, 3), false) // in AUTO.LOITER
}

func copterBeat() *common.MessageHeartbeat {
	return beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 4, false) // in GUIDED
}

// attitudeAt returns an ATTITUDE at this time of the boot clock, in ms.
func attitudeAt(ms uint32) *common.MessageAttitude {
	return &common.MessageAttitude{TimeBootMs: ms, Roll: 0.1, Pitch: -0.2, Yaw: 1, Rollspeed: 3, Pitchspeed: 4,
		Yawspeed: 5}
}

// signedPacket signs a packet, with both magic bytes in the signature.
func signedPacket(b []byte) []byte {
	f := checkedFrames(b)[0]
	f.incompat = 1
	f.signature = [13]byte{1, 0xfd, 3, 0xfe, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	return f.bytes()
}

// lineMessage is a message that the link sent.
type lineMessage struct {
	at                     time.Time
	seq, system, component byte
	msg                    message.Message
}

// noDeadlines makes a port ignore its deadlines.
type noDeadlines struct{}

func (noDeadlines) SetReadDeadline(time.Time) error  { return nil }
func (noDeadlines) SetWriteDeadline(time.Time) error { return nil }

// cable is a port whose other end the test holds.
type cable struct {
	toLink     chan []byte
	rest       []byte            // bytes that Read has not returned yet; only the reader uses it
	until      time.Time         // deadline of a read; only the reader uses it
	writeUntil time.Time         // deadline of a write; only the writer uses it
	heard      func(lineMessage) // is called with each message that the link writes
	stalled    atomic.Bool       // writes hang
	gone       chan struct{}
	once       sync.Once
}

func newCable(heard func(lineMessage)) *cable {
	return &cable{toLink: make(chan []byte, 10000), heard: heard, gone: make(chan struct{})}
}

func (c *cable) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		var expired <-chan time.Time
		if !c.until.IsZero() {
			expired = time.After(time.Until(c.until))
		}
		select {
		case c.rest = <-c.toLink:
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		case <-c.gone:
			return 0, io.EOF
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *cable) SetReadDeadline(t time.Time) error {
	c.until = t
	return nil
}

func (c *cable) SetWriteDeadline(t time.Time) error {
	c.writeUntil = t
	return nil
}

func (c *cable) Write(b []byte) (int, error) {
	select {
	case <-c.gone:
		return 0, io.EOF
	default:
	}
	if c.stalled.Load() {
		select {
		case <-time.After(time.Until(c.writeUntil)):
			return 0, os.ErrDeadlineExceeded
		case <-c.gone:
			return 0, io.EOF
		}
	}
	if bytes.Equal(b, padding[:]) {
		return len(b), nil
	}
	for _, f := range parseLine(b) {
		c.heard(f)
	}
	return len(b), nil
}

func (c *cable) Close() error {
	c.once.Do(func() { close(c.gone) })
	return nil
}

// parseLine reads what the link wrote, with gomavlib's own reader.
func parseLine(b []byte) []lineMessage {
	r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b)), DialectRW: dialectRW}
	var list []lineMessage
	for {
		f, err := r.Read()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			panic(fmt.Sprintf("the link wrote %x: %v", b, err))
		}
		list = append(list, lineMessage{time.Now(), f.GetSequenceNumber(), f.GetSystemID(), f.GetComponentID(),
			f.GetMessage()})
	}
}

// lineBench is a drone in virtual time, on a cable to an autopilot that sends heartbeats and
// answers the handshake. A script answers every other command.
type lineBench struct {
	*drone
	t     *testing.T
	start time.Time

	mu     sync.Mutex // guards everything below
	cable  *cable
	opens  []time.Time
	heard  []lineMessage
	beat   *common.MessageHeartbeat // sent each second and when it is requested; nil: silent
	system byte
	seq    byte
	boot   uint32                     // the boot clock, in ms, of the ATTITUDEs that come with each beat; 0: none come
	stall  bool                       // writes to the next port hang
	deaf   bool                       // the handshake is not answered
	loses  *rand.Rand                 // half of all frames are lost, in both directions; nil: none is
	signs  bool                       // it signs its frames
	live   bool                       // an interval of CURRENT_MODE or HEARTBEAT is accepted, not denied
	lag    time.Duration              // delay of the handshake's answers
	params map[string]float64         // answers to PARAM_REQUEST_READ
	served map[uint32]message.Message // answers to REQUEST_MESSAGE, except for the heartbeat
	script func(id uint16, try int)   // is called with every other command; try counts from 0
	tries  map[uint16]int
}

// newLineBench runs a drone until the test ends. Call it in a bubble of virtual time.
func newLineBench(t *testing.T, beat *common.MessageHeartbeat, with ...func(*lineBench)) *lineBench {
	t.Helper()
	b := &lineBench{
		t: t, start: time.Now(), beat: beat, system: 1, tries: make(map[uint16]int),
		params: map[string]float64{"NAV_DLL_ACT": 0, "COM_RC_IN_MODE": 3, "SYSID_MYGCS": 255, "FS_GCS_ENABLE": 0,
			"WPNAV_SPEED": 1000, "RTL_ALT": 1500},
		served: make(map[uint32]message.Message),
	}
	b.drone = newDrone(device{
		name: "cable",
		open: func(context.Context) (port, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.opens = append(b.opens, time.Now())
			b.cable = newCable(b.hearLink)
			b.cable.stalled.Store(b.stall)
			return b.cable, nil
		},
	}, 0, false, slog.Default())
	b.drone.sticks.src.known, b.drone.sticks.src.receiver = true, receiverIdle // it arms without our sticks
	for _, f := range with {
		f(b)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.run(ctx) })
	running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			synctest.Wait() // the link first opens its port, or handles what is due at the same time
			b.change(func() {
				if b.beat == nil {
					return
				}
				b.feed(b.next(1, b.beat))
				if b.boot > 0 {
					for range 10 { // at 10 Hz, as requested
						b.feed(b.next(1, attitudeAt(b.boot)))
						b.boot += 100
					}
				}
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return b
}

// onLine runs a test on a bench whose handshake is over.
func onLine(t *testing.T, beat *common.MessageHeartbeat, test func(t *testing.T, b *lineBench)) {
	t.Helper()
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, beat)
		b.settle()
		test(t, b)
	})
}

// hearLink handles a message of the link as an autopilot does.
func (b *lineBench) hearLink(m lineMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = append(b.heard, m)
	if b.loses != nil && b.loses.IntN(2) == 0 {
		return
	}
	var id uint16
	var param1 float32
	switch m := m.msg.(type) {
	case *common.MessageCommandLong:
		id, param1 = uint16(m.Command), m.Param1
	case *common.MessageCommandInt:
		id = uint16(m.Command)
	case *common.MessageParamRequestRead:
		if v, ok := b.params[m.ParamId]; ok {
			b.reply(b.param(m.ParamId, v))
		}
		return
	case *common.MessageTimesync:
		b.reply(&common.MessageTimesync{Tc1: 1, Ts1: m.Ts1})
		return
	default:
		return
	}
	try := b.tries[id]
	b.tries[id]++
	switch ack := (&common.MessageCommandAck{Command: common.MAV_CMD(id)}); {
	case id == 511 && !b.live && (uint32(param1) == idCurrentMode || uint32(param1) == idHeartbeat):
		ack.Result = common.MAV_RESULT_DENIED
		b.reply(ack)
	case id == 511:
		b.reply(ack)
	case id == 512 && b.beat == nil:
	case id == 512 && param1 == 0 && b.beat.Autopilot == common.MAV_AUTOPILOT_PX4:
		b.reply(b.beat, ack)
	case id == 512 && param1 == 0:
		b.reply(ack, b.beat)
	case id == 512 && b.served[uint32(param1)] != nil:
		b.reply(b.served[uint32(param1)], ack)
	case id == 512:
		ack.Result = common.MAV_RESULT_DENIED
		b.reply(ack)
	case b.script != nil:
		script := b.script
		time.AfterFunc(0, func() { script(id, try) }) // without b.mu, which scripts lock
	}
}

// reply sends answers of the handshake. b.mu must be held.
func (b *lineBench) reply(list ...message.Message) {
	if b.deaf {
		return
	}
	if b.lag == 0 {
		for _, m := range list {
			b.feed(b.next(1, m))
		}
		return
	}
	time.AfterFunc(b.lag, func() {
		for _, m := range list {
			b.say(m)
		}
	})
}

// param returns a PARAM_VALUE of this autopilot. PX4 sends an integer's bits in the float.
func (b *lineBench) param(name string, v float64) message.Message {
	m := &common.MessageParamValue{ParamId: name, ParamValue: float32(v), ParamType: common.MAV_PARAM_TYPE_REAL32}
	real32 := strings.HasSuffix(name, "_RAD") || name == "RTL_RETURN_ALT"
	if b.beat != nil && b.beat.Autopilot == common.MAV_AUTOPILOT_PX4 && !real32 {
		m.ParamValue, m.ParamType = math.Float32frombits(uint32(int32(v))), common.MAV_PARAM_TYPE_INT32
	}
	return m
}

// shows sets the vehicle's mode, and whether it is armed. The next heartbeat shows them, a
// regular or a requested one.
func (b *lineBench) shows(custom uint32, armed bool) {
	b.change(func() {
		next := beatOf(b.beat.Autopilot, custom, armed)
		next.Type = b.beat.Type
		b.beat = next
	})
}

// next returns a message as the autopilot's next packet. b.mu must be held.
func (b *lineBench) next(component byte, m message.Message) []byte {
	b.seq++
	if b.signs {
		return signedPacket(packet(b.seq, b.system, component, m))
	}
	return packet(b.seq, b.system, component, m)
}

// feed sends bytes to the link. b.mu must be held.
func (b *lineBench) feed(p []byte) {
	if b.cable != nil && (b.loses == nil || b.loses.IntN(2) == 0) {
		b.cable.toLink <- p
	}
}

// say sends a message of the autopilot.
func (b *lineBench) say(m message.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.feed(b.next(1, m))
}

// sayFrom sends a message from other ids than the autopilot's.
func (b *lineBench) sayFrom(system, component byte, m message.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.feed(packet(0, system, component, m))
}

// ack answers a command after some time.
func (b *lineBench) ack(after time.Duration, id uint16, result common.MAV_RESULT) {
	time.AfterFunc(after, func() {
		b.say(&common.MessageCommandAck{Command: common.MAV_CMD(id), Result: result, TargetSystem: b.system,
			TargetComponent: componentID})
	})
}

// follow makes a script answer the commands.
func (b *lineBench) follow(script func(id uint16, try int)) { b.change(func() { b.script = script }) }

// change runs f with b.mu held.
func (b *lineBench) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// messages returns the link's messages for which f is true.
func (b *lineBench) messages(f func(lineMessage) bool) []lineMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.heard), func(m lineMessage) bool { return !f(m) })
}

// commands returns all copies of a command that the link sent.
func (b *lineBench) commands(id common.MAV_CMD) []lineMessage {
	return b.messages(func(m lineMessage) bool {
		switch c := m.msg.(type) {
		case *common.MessageCommandLong:
			return c.Command == id
		case *common.MessageCommandInt:
			return c.Command == id
		}
		return false
	})
}

// settle waits until the handshake is over. It returns between two heartbeats.
func (b *lineBench) settle() {
	b.t.Helper()
	time.Sleep(4500 * time.Millisecond)
	if !b.snapped().online {
		b.t.Fatal("the vehicle is not online")
	}
}

// benchOutcome is how a command ended.
type benchOutcome struct {
	answer
	err  error
	took time.Duration
}

// code is the error's code, or its text if it has no code; "" if there is no error.
func (o benchOutcome) code() errorCode {
	if c := code(o.err); c != "" || o.err == nil {
		return c
	}
	return errorCode(o.err.Error())
}

// command starts a command and returns at once.
func (b *lineBench) command(r request) <-chan benchOutcome {
	began := time.Now()
	c := make(chan benchOutcome, 1)
	go func() {
		a, err := b.do(r)
		c <- benchOutcome{a, err, time.Since(began)}
	}()
	return c
}

var (
	yes, no    = true, false
	armIt      = request{arm: &yes}
	disarmIt   = request{arm: &no}
	holdHere   = request{verb: entersMode, mode: ModeHold}
	goHome     = request{verb: entersMode, mode: ModeRTL}
	landHere   = request{verb: entersMode, mode: ModeLand}
	cmdSetMode = uint16(common.MAV_CMD_DO_SET_MODE)
	cmdArm     = uint16(common.MAV_CMD_COMPONENT_ARM_DISARM)
)

const (
	ackAccepted   = common.MAV_RESULT_ACCEPTED
	ackRejected   = common.MAV_RESULT_TEMPORARILY_REJECTED
	ackFailed     = common.MAV_RESULT_FAILED
	ackInProgress = common.MAV_RESULT_IN_PROGRESS
)

// notParallel lists the tests that must not call Parallel: they have called it, or they run alone.
var notParallel sync.Map

// inLinkBubble runs f in virtual time, in parallel with other tests. The bubbles of one
// test run one after the other.
func inLinkBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if _, has := notParallel.LoadOrStore(t, true); !has {
		t.Cleanup(func() { notParallel.Delete(t) })
		t.Parallel()
	}
	synctest.Test(t, f)
}

// alone makes a test in a bubble run while no other test runs. A test that reads what all tests
// share, like the number of goroutines, must call it.
func alone(t *testing.T) {
	notParallel.Store(t, true)
	t.Cleanup(func() { notParallel.Delete(t) })
}

// tlogEntry is one frame of a .tlog.
type tlogEntry struct {
	at    time.Duration // since the first frame
	bytes []byte
}

// readTlog cuts a .tlog into its frames by their lengths.
func readTlog(t testing.TB, name string) []tlogEntry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	_, list := cutTlog(b)
	return list
}

// lineNear compares two values, rounded to some decimals.
func lineNear(t *testing.T, what string, got, want float64, decimals int) {
	t.Helper()
	if a, b := fmt.Sprintf("%.*f", decimals, got), fmt.Sprintf("%.*f", decimals, want); a != b {
		t.Errorf("%s is %s, want %s", what, a, b)
	}
}

// lineEqual compares two values. The error calls them what.
func lineEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// sentAfter returns when messages were sent, counted from the first.
func sentAfter(list []lineMessage) []time.Duration {
	var after []time.Duration
	for _, m := range list {
		after = append(after, m.at.Sub(list[0].at))
	}
	return after
}

// isBeat matches heartbeats of a type.
func isBeat(typ minimal.MAV_TYPE) func(lineMessage) bool {
	return func(m lineMessage) bool {
		h, ok := m.msg.(*common.MessageHeartbeat)
		return ok && h.Type == typ
	}
}

// waitUntil waits for a condition in real time. Its deadline is so long that only a test that
// fails reaches it.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(30 * time.Second)
	for !is() {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("waited half a minute until %s", what)
		}
	}
}

const metresPerDegree = earthRadius * math.Pi / 180

// moved returns the place some metres north and east of another.
func moved(lat, lon, north, east float64) (float64, float64) {
	return lat + north/metresPerDegree, lon + east/(metresPerDegree*math.Cos(lat*math.Pi/180))
}

// flight is a whole mavrest beside a simulated vehicle, in virtual time.
type flight struct {
	*testing.T
	sim     *simulator
	drone   *drone
	handler http.Handler
	stop    context.CancelFunc // ends mavrest

	firmware firmware
	receiver simReceiver // the receiver's state at boot

	diary *diary
	at    func() string // where in its script the flight is; nil: no script
}

var firmwares = map[simFlavour]firmware{simPX4: px4, simArduPilot: copter, simQuadPlane: quadPlane, simPlane: plane,
	simPX4Plane: px4, simPX4VTOL: px4, simPX4Rover: px4, simArduRover: arduRover}

// object is a JSON object of an answer.
type object = map[string]any

// ofPX4 sets the release of a simulated PX4, simPX4v15 for example.
func ofPX4(release uint32) func(*simulator) {
	return func(s *simulator) {
		s.version = release | 255
		if release >= simPX4v18 {
			delete(s.params, simStickOverride)
			s.params[simStickSpeed] = 1
		}
	}
}

// newerCopter sets the release of a simulated Copter. 4.7 renamed parameters.
func newerCopter(r release) func(*simulator) {
	return func(s *simulator) {
		s.version = uint32(r.major)<<24 | uint32(r.minor)<<16
		rename := func(old, new string, factor float64) {
			s.params[new] = s.params[old] * factor
			delete(s.params, old)
		}
		if !r.before(release{4, 7}) {
			rename("SYSID_MYGCS", "MAV_GCS_SYSID", 1)
			rename("WPNAV_SPEED", "WP_SPD", 0.01)
			rename("RTL_ALT", "RTL_ALT_M", 0.01)
		}
	}
}

// fly runs a flight in a bubble of virtual time. prepare, which may be nil, sets
// the simulator's switches before it boots.
func fly(t *testing.T, flavour simFlavour, prepare func(*simulator), do func(*flight)) {
	t.Helper()
	flyWith(t, flavour, prepare, nil, do)
}

// flyWith is fly with start, which changes mavrest before it runs and may be nil.
func flyWith(t *testing.T, flavour simFlavour, prepare func(*simulator), start func(*drone), do func(*flight)) {
	t.Helper()
	inLinkBubble(t, func(t *testing.T) {
		s := newTestSimulator(flavour)
		s.dice = rand.New(rand.NewPCG(1, *simSeed))
		if prepare != nil {
			prepare(s)
		}
		ctx, endSim := context.WithCancel(t.Context())
		droneCtx, stop := context.WithCancel(ctx)
		f := &flight{T: t, sim: s, firmware: firmwares[flavour], receiver: s.receiver}
		f.diary = &diary{began: time.Now(), firmware: f.firmware}
		dev := device{
			name: "sim", lossy: true,
			open: func(context.Context) (port, error) {
				p, err := s.open()
				if err != nil {
					return nil, err
				}
				return tap{p, f.diary}, nil
			},
		}
		d := newDrone(dev, 0, false, f.diary.log())
		if start != nil {
			start(d)
		}
		f.drone, f.handler, f.stop = d, newHandler(d, admission{}), stop
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		running.Go(func() { d.run(droneCtx) })
		defer func() { // also if the test ends early
			if f.Failed() && !f.diary.wasTold() { // by a helper that does not know the flight
				f.Error("this flight failed")
			}
			f.stop()
			endSim()
			running.Wait()
		}()
		time.Sleep(10 * time.Second) // then the vehicle has booted and can be armed
		do(f)
		if *everyDiary {
			t.Logf("the diary:\n%s", f.diary)
		}
	})
}

// both runs a flight on each flavour.
func both(t *testing.T, do func(f *flight)) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		name := map[simFlavour]string{simPX4: "px4", simArduPilot: "ardupilot"}[flavour]
		t.Run(name, func(t *testing.T) { fly(t, flavour, nil, do) })
	}
}

// call makes a request and returns the status code and the answer.
func (f *flight) call(method, path, body string) (int, object) {
	f.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/api/drone"+path, strings.NewReader(body))
	r.Host = "localhost"
	f.diary.asked(method, path, body)
	f.handler.ServeHTTP(w, r)
	var o object
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
		f.Fatalf("%s %s answered %q: %v", method, path, w.Body, err)
	}
	f.diary.answered(method, path, w.Code, o)
	return w.Code, o
}

// snapped is what a status is made of. A test reads it without the mutex: not the parameters.
func (d *drone) snapped() (s snapshot) {
	d.locked(func() { s = d.snapshot(time.Now()) })
	return s
}

func (f *flight) status() object {
	f.Helper()
	_, o := f.call("GET", "/status", "")
	return o
}

// accepted posts a command that must be accepted.
func (f *flight) accepted(path, body string) object {
	f.Helper()
	code, o := f.call("POST", path, body)
	if code != 200 {
		f.Fatalf("%v: POST %s %s: %d %v", time.Now(), path, body, code, o)
	}
	return o
}

// refused posts a command that must be refused with a status and an error code.
func (f *flight) refused(path, body string, code int, word string) object {
	f.Helper()
	got, o := f.call("POST", path, body)
	if got != code || o["code"] != word {
		f.Fatalf("POST %s %s: %d %v, want %d %s", path, body, got, o, code, word)
	}
	return o
}

func (f *flight) wantMode(want string) {
	f.Helper()
	if _, o := f.call("GET", "/mode", ""); o["mode"] != want {
		f.Errorf("mode is %v (vehicle %v), want %s", o["mode"], o["vehicle_mode"], want)
	}
}

// wantAt checks where the vehicle really is: metres from home and above it.
func (f *flight) wantAt(north, east, up, within float64) {
	f.Helper()
	s := f.sim.truth()
	n, e := simMetres(s.lat, s.lon)
	if math.Abs(n-north) > within || math.Abs(e-east) > within || math.Abs(s.alt-up) > within {
		f.Errorf("vehicle is %.1f m north, %.1f m east, %.1f m up; want %.1f, %.1f, %.1f", n, e, s.alt, north, east, up)
	}
}

// until waits up to limit for a condition.
func (f *flight) until(what string, limit time.Duration, ok func() bool) {
	f.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("not within %v: %s; status %v", limit, what, f.status())
		}
	}
}

func (f *flight) disarmed() bool { return !f.sim.truth().armed }

// aloft takes off to 10 m.
func (f *flight) aloft() {
	f.Helper()
	f.accepted("/takeoff", "")
	time.Sleep(15 * time.Second)
	f.wantAt(0, 0, 10, 0.4)
}

// at returns a place in metres from home as the fields of a body.
func at(north, east float64) string {
	lat, lon := simPlace(north, east)
	return fmt.Sprintf(`"lat":%.7f,"lon":%.7f`, lat, lon)
}

// since lists what the vehicle has received since a time.
func (f *flight) since(t time.Time) []simReceived {
	return slices.DeleteFunc(f.sim.received(), func(r simReceived) bool { return r.at.Before(t) })
}

// commands lists the commands that were sent to the vehicle, without requests for messages.
func (f *flight) commands() []string { return commandsOf(f.sim.received()) }

func commandsOf(received []simReceived) (list []string) {
	for _, r := range received {
		switch m := r.msg.(type) {
		case *common.MessageCommandLong:
			if m.Command != common.MAV_CMD_SET_MESSAGE_INTERVAL && m.Command != common.MAV_CMD_REQUEST_MESSAGE {
				list = append(list, fmt.Sprintf("%d %g %g", m.Command, m.Param1, m.Param2))
			}
		case *common.MessageCommandInt:
			list = append(list, fmt.Sprintf("%d frame %d z %.1f", m.Command, m.Frame, m.Z))
		case *common.MessageSetMode:
			list = append(list, "SET_MODE")
		}
	}
	return list
}

// sticksOf lists the sticks that were streamed.
func sticksOf(received []simReceived) (list []axes) {
	for _, r := range received {
		if m, ok := r.msg.(*common.MessageManualControl); ok {
			list = append(list, axes{m.X, m.Y, m.Z, m.R})
		}
	}
	return list
}

// sticksSince lists the MANUAL_CONTROLs that the vehicle has received since a time.
func (f *flight) sticksSince(since time.Time) []simReceived {
	return slices.DeleteFunc(f.since(since), func(r simReceived) bool {
		_, sticks := r.msg.(*common.MessageManualControl)
		return !sticks
	})
}

// fails makes the vehicle refuse a command. end lets it obey again.
func (f *flight) fails(id common.MAV_CMD) (end func()) {
	f.sim.change(func() { f.sim.switches().refuses[id] = true })
	return func() { f.sim.change(func() { delete(f.sim.switches().refuses, id) }) }
}

// acks replaces each ack of a command by what answers returns. It does not change other acks.
func (f *flight) acks(id common.MAV_CMD, answers func(a *common.MessageCommandAck) []simAnswer) {
	f.sim.change(func() {
		f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
			if a.Command == id {
				return answers(a)
			}
			return []simAnswer{{ack: a}}
		}
	})
}

// loseAcks loses the acks of a command; the vehicle carries it out.
func (f *flight) loseAcks(id common.MAV_CMD) {
	f.acks(id, func(*common.MessageCommandAck) []simAnswer { return nil })
}

// failAcks gives every ack of a command this result, whether the vehicle carries it out or not.
func (f *flight) failAcks(id common.MAV_CMD, result common.MAV_RESULT) {
	f.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		a.Result = result
		return []simAnswer{{ack: a}}
	})
}

// In whole flights somebody else than the client acts: a pilot, a failsafe, a restart, a lost
// link, a second client. A moment says how far the client's command has come when that happens.
// flight_test.go has the flights.
//
// One invariant holds in all of them. After a report that no command of ours explains, nothing
// is sent that commands or moves the vehicle until a client asks again. A stream may go on
// centred or unmoved, or be released.

// moment brings a flight to a moment of a manoeuvre.
type moment struct {
	name, mode  string // mode is the present mode, or the mode to which the command leads
	px4, copter string // the script (flight_test.go) that flies to the moment; "": not on this autopilot

	explained []uint32 // PX4's modes whose reports the command explains
	waiting   bool     // the command is not answered yet
	silent    bool     // the command is mavrest's own hold for a silent client
	disarmed  bool     // the vehicle is on the ground and not armed yet
	undone    []uint32 // a pilot's modes that are left out: our moving sticks would undo them
}

const (
	px4Hold = "aloft, mode hold, +1s, "
	// the mode is acknowledged, but not in force yet
	px4Entered = px4Hold + "watch DO_SET_MODE 1, post mode %s, acked, +1ms"
	px4Leaves  = "aloft, mode %s, input pitch 0.5 throttle 0.5 timeout 5, +500ms, post %s, +1800ms"
)

// moments cover everything that a client commands. In PX4's stick modes the client's sticks have
// been still for so long that PX4 does not count them as moving.
var moments = []moment{
	{name: "takeoff, before it is armed", mode: "takeoff", waiting: true, disarmed: true,
		explained: []uint32{simPX4Loiter, simPX4Manual},
		px4:       "pilot MANUAL, +1s, watch DO_SET_MODE 2, post takeoff, acked, +1ms"},
	{name: "takeoff, armed and on the ground", mode: "takeoff", explained: []uint32{simPX4Takeoff},
		px4: "watch COMPONENT_ARM_DISARM 1, post takeoff wait 60, acked, +500ms"},
	{name: "takeoff, in its climb", mode: "takeoff", explained: []uint32{simPX4Takeoff},
		px4: "post takeoff 40 wait 120, +10s", copter: "rise 40, +9s"},
	{name: "goto that climbs", mode: "hold", copter: "hover, goto altitude 60, +4s"},
	{name: "goto under way", mode: "hold", explained: []uint32{simPX4Loiter},
		px4: "aloft, post goto 60 0 wait 120, +4s", copter: "hover, goto 200 0, +6s"},
	{name: "goto, between its ack and its mode", mode: "hold", waiting: true,
		explained: []uint32{simPX4Loiter, simPX4RTL},
		px4:       "aloft, mode rtl, +1s, watch DO_REPOSITION 1, post goto 60 0, acked, +4ms"},
	{name: "hold", mode: "hold", explained: []uint32{simPX4Loiter},
		px4: px4Hold + "mark", copter: "hover, mode hold, +4s"},
	{name: "hold from speed", mode: "hold", explained: []uint32{simPX4Loiter},
		px4:    "aloft, goto 200 0, +5s, post mode hold wait 60, +500ms",
		copter: "hover, goto 200 0, +8s, mode hold, +400ms"},
	{name: "land here", mode: "land", explained: []uint32{simPX4Land},
		px4: "aloft, post land wait 120, +4s", copter: "hover, land, +4s"},
	{name: "land at a place, on the way", mode: "land", explained: []uint32{simPX4Loiter},
		px4: "aloft, post land 60 0 wait 200, +4s", copter: "hover, land 200 0, +6s"},
	{name: "land at a place, at the place", mode: "land", explained: []uint32{simPX4Loiter},
		// 0.1 s before the second leg may begin
		px4: "aloft, post land 30 0 wait 200, until north > 27.95 60s, until speed < 2.5 60s"},
	{name: "land at a place, landing", mode: "land", explained: []uint32{simPX4Land},
		px4:    "aloft, watch DO_SET_MODE 1, post land 10 0 wait 200, acked, +1s",
		copter: "hover, land 8 0, until in LAND 40s, +2s"},
	{name: "rtl", mode: "rtl", explained: []uint32{simPX4RTL},
		px4: "aloft, goto 60 0 wait 60, post mode rtl wait 200, +4s", copter: "hover, goto 60 0, +15s, mode rtl, +4s"},
	{name: "position, while its first sticks run", mode: "position", waiting: true, explained: []uint32{simPX4Loiter},
		px4: px4Hold + "post mode position, +200ms"},
	{name: "altitude, while its first sticks run", mode: "altitude", waiting: true, explained: []uint32{simPX4Loiter},
		px4: px4Hold + "post mode altitude, +200ms"},
	{name: "manual, while its first sticks run", mode: "manual", waiting: true, explained: []uint32{simPX4Loiter},
		px4: px4Hold + "post mode manual, +200ms"},
	{name: "position, between its ack and its mode", mode: "position", waiting: true,
		explained: []uint32{simPX4Posctl, simPX4Loiter}, px4: fmt.Sprintf(px4Entered, "position")},
	{name: "altitude, between its ack and its mode", mode: "altitude", waiting: true,
		explained: []uint32{simPX4Altctl, simPX4Loiter}, px4: fmt.Sprintf(px4Entered, "altitude")},
	{name: "manual, between its ack and its mode", mode: "manual", waiting: true,
		explained: []uint32{simPX4Manual, simPX4Loiter}, px4: fmt.Sprintf(px4Entered, "manual")},
	{name: "position, centred", mode: "position", explained: []uint32{simPX4Posctl},
		px4: "aloft, mode position, +4s", copter: "hover, mode position, +2s"},
	{name: "altitude, centred", mode: "altitude", copter: "hover, mode altitude, +2s"},
	{name: "manual, centred", mode: "manual", copter: "hover, mode manual, +1s"},
	{name: "position, its sticks deflected", mode: "position", explained: []uint32{simPX4Posctl},
		px4:    "aloft, mode position, input pitch 0.5 timeout 5, +2500ms",
		copter: "hover, mode position, input pitch 0.5 timeout 5, +1s"},
	{name: "altitude, its sticks deflected", mode: "altitude", explained: []uint32{simPX4Altctl},
		px4:    "aloft, mode altitude, input pitch 0.3 throttle 0.6 timeout 5, +2500ms",
		copter: "hover, mode altitude, input roll -0.5 timeout 5, +1s"},
	{name: "manual, its sticks deflected", mode: "manual", explained: []uint32{simPX4Manual},
		px4:    "aloft, mode manual, input pitch 0.3 throttle 0.55 timeout 5, +2500ms",
		copter: "hover, mode manual, input pitch 0.2 throttle 0.45 timeout 5, +1s"},
	{name: "position, its sticks expired", mode: "position",
		copter: "hover, mode position, input pitch 0.5 timeout 0.2, +2s"},
	{name: "altitude, its sticks expired", mode: "altitude", explained: []uint32{simPX4Altctl},
		px4:    "aloft, mode altitude, input pitch 0.3 timeout 0.5, +1500ms",
		copter: "hover, mode altitude, input pitch 0.5 timeout 0.2, +2s"},
	{name: "manual, its sticks expired", mode: "manual",
		copter: "hover, mode manual, input pitch 0.2 throttle 0.45 timeout 0.2, +1s"},
	{name: "goto after position, waiting for still sticks", mode: "hold", waiting: true,
		explained: []uint32{simPX4Posctl}, px4: fmt.Sprintf(px4Leaves, "position", "goto 60 0")},
	{name: "land after position, waiting for still sticks", mode: "land", waiting: true,
		explained: []uint32{simPX4Posctl}, px4: fmt.Sprintf(px4Leaves, "position", "land")},
	{name: "goto after altitude, in the POSCTL leg", mode: "hold", waiting: true, explained: []uint32{simPX4Posctl},
		px4: fmt.Sprintf(px4Leaves, "altitude", "goto 60 0")},
	{name: "hold after manual, before POSCTL is in force", mode: "hold", waiting: true,
		explained: []uint32{simPX4Posctl, simPX4Manual},
		undone:    []uint32{simPX4Loiter, simPX4RTL, simPX4Land},
		px4: "aloft, mode manual, input pitch 0.3 throttle 0.5 timeout 5, +500ms, watch DO_SET_MODE 2, post mode " +
			"hold, acked, +1ms"},
	// on PX4 in the POSCTL leg
	{name: "a silent client's hold", mode: "hold", silent: true, explained: []uint32{simPX4Posctl},
		px4:    "aloft, mode altitude, input pitch 0.3 timeout 5, until in POSCTL 10s, +1700ms",
		copter: "hover, mode altitude, input pitch 0.5 timeout 0.2, +7s"},
}

// sticks reports whether our stream may run at this moment.
func (m moment) sticks() bool {
	mode, _ := parseMode(m.mode)
	return mode.flownBySticks() || m.silent
}

// visit is a flight to a moment, with a receiver, and what happens there; custom is the mode that a pilot sets.
type visit struct {
	moment
	receiver simReceiver
	custom   uint32
	what     string
}

// receiverWords are the receivers in the names of tests.
var receiverWords = map[simReceiver]string{
	simReceiverNone: "no receiver", simReceiverLost: "a lost receiver", simReceiverIdle: "an idle receiver",
	simReceiverInHand: "a receiver in hand",
}

// String is the name of the visit's test.
func (v visit) String() string {
	name := v.name + "/" + receiverWords[v.receiver]
	if v.what != "" {
		name += ", " + v.what
	}
	return name
}

// wantAnswer checks how the oldest post, if any, was answered. Code "" means accepted, "any" allows all.
func (p *player) wantAnswer(limit time.Duration, code string) {
	p.Helper()
	if len(p.posts) > 0 {
		p.answered([]string{cmp.Or(code, "ok"), limit.String()})
	}
}

// report returns the last report that mavrest judged, and when the last HEARTBEAT came.
func (f *flight) report() (custom uint32, armed bool, at time.Time) {
	f.drone.mu.Lock()
	defer f.drone.mu.Unlock()
	last := f.drone.machine.report
	return last.custom, last.armed, f.drone.tel.beat.at
}

// reported waits for a heartbeat that shows a mode, and returns when it came.
func (f *flight) reported(custom uint32, since time.Time, limit time.Duration) time.Time {
	f.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		if c, _, at := f.report(); c == custom && at.After(since) {
			return at
		}
		if time.Now().After(end) {
			f.Fatalf("no heartbeat shows %#x within %v; truth %+v", custom, limit, f.sim.truth())
		}
	}
}

// stream lists the axes that were streamed since a time, without repetitions.
func (f *flight) stream(since time.Time) []axes { return slices.Compact(sticksOf(f.since(since))) }

// streamed returns the axes that were streamed last. ok is false if none were streamed for 0.2 s.
func (f *flight) streamed() (last axes, ok bool) {
	list := f.stream(time.Now().Add(-200 * time.Millisecond))
	if len(list) == 0 {
		return last, false
	}
	return list[len(list)-1], true
}

// wantHandsOff checks that no command was sent since a time.
func (f *flight) wantHandsOff(since time.Time) {
	f.Helper()
	if list := commandsOf(f.since(since)); len(list) > 0 {
		f.Errorf("sent after a takeover: %q", list)
	}
}

// wantStream checks that only these axes were streamed, until now and without a gap that PX4
// would take for a loss. A nil want means that nothing may be streamed.
func (f *flight) wantStream(since time.Time, want *axes) {
	f.Helper()
	got := f.stream(since)
	switch {
	case want == nil && len(got) > 0:
		f.Errorf("streamed %v, want nothing", got)
	case want == nil:
		return
	case !slices.Equal(got, []axes{*want}):
		f.Errorf("streamed %v, want only %v", got, *want)
	}
	last := since
	for _, r := range append(f.sticksSince(since), simReceived{at: time.Now()}) {
		if gap := r.at.Sub(last); gap > 200*time.Millisecond {
			f.Errorf("a gap of %v in the stream", gap)
		}
		last = r.at
	}
}

// speed returns the vehicle's real speed over ground.
func (f *flight) speed() float64 {
	s := f.sim.truth()
	return math.Hypot(s.vn, s.ve)
}

// atMoments flies to each moment and there calls happens.
func atMoments(t *testing.T, flavour simFlavour, visits []visit, prepare func(*simulator),
	happens func(p *player, v visit)) {
	for _, v := range visits {
		prepared := func(s *simulator) {
			if s.receiver = v.receiver; prepare != nil {
				prepare(s)
			}
		}
		t.Run(v.String(), func(t *testing.T) {
			fly(t, flavour, prepared, func(f *flight) {
				p := &player{flight: f}
				p.plays(map[simFlavour]string{simPX4: v.px4, simArduPilot: v.copter}[flavour])
				happens(p, v)
				p.wantAnswer(10*time.Minute, "any")
			})
		})
	}
}

// onTime is a message that comes at the moment at which the vehicle sends it.
func onTime(m message.Message, now time.Time) heard {
	return heard{at: now, departed: departed{left: now, latest: now, after: now}, ordered: true, msg: m, system: 1}
}
