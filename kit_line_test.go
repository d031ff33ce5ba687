package main

// One end of a cable in virtual time: frames are made and read, and a test plays the autopilot by hand.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
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

// connPort is a connection as a port.
type connPort struct {
	net.Conn
	emptied
}

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
	emptied
}

func newCable(heard func(lineMessage)) *cable {
	return &cable{toLink: make(chan []byte, 10000), heard: heard, gone: make(chan struct{})}
}

func (c *cable) Read(b []byte) (int, error) {
	select {
	case <-c.gone:
		// What was said before is not read any more.
		return 0, io.EOF
	default:
	}
	if len(c.rest) == 0 {
		if len(c.toLink) == 0 {
			c.found(time.Now())
		}
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
	r := frame.Reader{BufByteReader: bufio.NewReaderSize(bytes.NewReader(b), maxFrame), DialectRW: dialectRW}
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
	hollow bool                       // what it is asked for it acknowledges, and does not send
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
	case id == 512 && b.hollow:
		b.reply(ack)
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

// command starts a command that comes now, unless it says when, and returns at once.
func (b *lineBench) command(r request) <-chan benchOutcome {
	began := time.Now()
	if r.came.IsZero() {
		r.came = began
	}
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

// isBeat matches heartbeats of a type.
func isBeat(typ minimal.MAV_TYPE) func(lineMessage) bool {
	return func(m lineMessage) bool {
		h, ok := m.msg.(*common.MessageHeartbeat)
		return ok && h.Type == typ
	}
}

// onBoth runs a test on a lineBench of each autopilot.
func onBoth(t *testing.T, f func(t *testing.T, b *lineBench, v firmware)) {
	t.Helper()
	for name, v := range map[string]firmware{"px4": px4, "copter": copter} {
		beat := px4Beat
		if v == copter {
			beat = copterBeat
		}
		t.Run(name, func(t *testing.T) {
			onLine(t, beat(), func(t *testing.T, b *lineBench) {
				f(t, b, v)
			})
		})
	}
}

// wanted returns the mode and the armed state that the last command with this id leads to.
func (b *lineBench) wanted(id uint16) (custom uint32, armed bool) {
	list := b.commands(common.MAV_CMD(id))
	b.mu.Lock()
	defer b.mu.Unlock()
	v := copter
	if b.beat.Autopilot == common.MAV_AUTOPILOT_PX4 {
		v = px4
	}
	custom, armed = b.beat.CustomMode, b.beat.BaseMode&common.MAV_MODE_FLAG_SAFETY_ARMED != 0
	switch m, _ := list[len(list)-1].msg.(*common.MessageCommandLong); {
	case id == 176 && v == px4:
		custom = px4Custom(uint32(m.Param2), uint32(m.Param3))
	case id == 176:
		custom = uint32(m.Param2)
	case id == 400:
		armed = m.Param1 == 1
	case id == 192:
		custom = entered[v][ModeHold]
	}
	return custom, armed
}

// obeys makes the autopilot acknowledge a command after ack and carry it out after do; a
// negative do means never. PX4's second ack of a mode change comes a millisecond after its first.
func (b *lineBench) obeys(ack, do time.Duration) {
	b.follow(func(id uint16, _ int) {
		custom, armed := b.wanted(id)
		if do >= 0 {
			time.AfterFunc(do, func() { b.shows(custom, armed) })
		}
		b.ack(ack, id, ackAccepted)
		b.mu.Lock()
		twice := b.beat.Autopilot == common.MAV_AUTOPILOT_PX4 && id == 176
		b.mu.Unlock()
		if twice {
			b.ack(ack+time.Millisecond, id, ackAccepted)
		}
	})
}

// copiesSince returns the times at which copies of a command were sent, counted from began.
func (b *lineBench) copiesSince(began time.Time, id common.MAV_CMD) (after []time.Duration) {
	for _, m := range b.commands(id) {
		if !m.at.Before(began) {
			after = append(after, m.at.Sub(began))
		}
	}
	return after
}

// inTheAir makes the bench's vehicle fly 10 m above home.
func (b *lineBench) inTheAir() {
	b.change(func() { b.beat.BaseMode |= common.MAV_MODE_FLAG_SAFETY_ARMED })
	b.say(&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR})
	b.say(&common.MessageHomePosition{Latitude: 473977420, Longitude: 85455940, Altitude: 488000})
	b.say(&common.MessageGlobalPositionInt{Lat: 473977420, Lon: 85455940, Alt: 498000, RelativeAlt: 10000, Hdg: 9000})
	time.Sleep(1500 * time.Millisecond)
}

// onTheGround makes it stand.
func (b *lineBench) onTheGround() {
	b.say(&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_ON_GROUND})
}

// toALandingPlace flies towards a landing's place. Then the vehicle falls silent.
func toALandingPlace(f *flight) *drone {
	f.aloft()
	f.accepted("/land", "{"+at(40, 0)+"}")
	time.Sleep(5 * time.Second)
	f.sim.change(func() { f.sim.switches().muted = true })
	return f.drone
}

// flyingBeat is the HEARTBEAT of a PX4 in flight.
func flyingBeat(t *testing.T, mode string, state minimal.MAV_STATE) *minimal.MessageHeartbeat {
	return &minimal.MessageHeartbeat{
		Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_PX4,
		BaseMode: 0xd9, CustomMode: numberOf(t, px4, mode), SystemStatus: state,
	}
}
