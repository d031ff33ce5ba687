package main

// The line side of the link: frames found in bytes, captured flights replayed,
// the serial path on a pseudo-terminal, UDP and TCP, and the command protocol
// against an autopilot that does what the test's script says.

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
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// quietLink keeps the link's log out of the test's output.
func quietLink() { slog.SetDefault(slog.New(slog.DiscardHandler)) }

// ---- Frames, written and checked here ----

// crcExtras are the CRC_EXTRA of the dialect's messages, from the MAVLink
// definitions; a flight that is replayed shows that they are right.
var crcExtras = map[uint32]byte{
	0: 50, 1: 124, 20: 214, 22: 220, 24: 24, 30: 39, 33: 104, 69: 243, 74: 20,
	75: 158, 76: 152, 77: 143, 148: 178, 242: 104, 245: 130, 253: 83,
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

// wireFrame is a frame as it goes over the line.
type wireFrame struct {
	v1                     bool
	incompat               byte
	seq, system, component byte
	id                     uint32
	payload                []byte
	extra                  byte // CRC_EXTRA of a message outside the dialect
	offset, end            int  // where it was found
	claims                 int  // the length it claims, where that is a lie
	signature              [13]byte
}

func (f wireFrame) bytes() []byte {
	n := byte(len(f.payload))
	if f.claims != 0 {
		n = byte(f.claims)
	}
	b := []byte{frame.V2MagicByte, n, f.incompat, 0, f.seq, f.system, f.component, byte(f.id), byte(f.id >> 8), byte(f.id >> 16)}
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

// key tells frames apart.
func (f wireFrame) key() string {
	return fmt.Sprintf("v1=%t seq %d of %d.%d #%d %s", f.v1, f.seq, f.system, f.component, f.id, hex.EncodeToString(f.payload))
}

// payloadOf is a message as payload, without the trailing zeros in version 2.
func payloadOf(m message.Message, v2 bool) []byte {
	return dialectRW.GetMessage(m.GetID()).Write(m, v2).Payload
}

// packet is a message in a version 2 frame.
func packet(seq, system, component byte, m message.Message) []byte {
	return wireFrame{seq: seq, system: system, component: component, id: m.GetID(), payload: payloadOf(m, true)}.bytes()
}

// packet1 is a message in a version 1 frame.
func packet1(seq, system, component byte, m message.Message) []byte {
	return wireFrame{v1: true, seq: seq, system: system, component: component, id: m.GetID(), payload: payloadOf(m, false)}.bytes()
}

// unknownPacket is a message that is not in the dialect.
func unknownPacket(seq byte, size int) []byte {
	return wireFrame{seq: seq, system: 1, component: 1, id: 147, payload: bytes.Repeat([]byte{7}, size), extra: 154}.bytes()
}

// checkedFrames finds every frame of the dialect in b whose checksum is right,
// wherever it starts.
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
		sum := i + header + int(b[i+1])
		f.end = sum + 2 + 13*int(f.incompat)
		if !ok || f.end > len(b) || binary.LittleEndian.Uint16(b[sum:]) != crcOf(b[i+1:sum], extra) {
			continue
		}
		f.payload = b[i+header : sum]
		list = append(list, f)
	}
	return list
}

// lineReader is a deframer and what came out of it.
type lineReader struct {
	in      deframer
	at      time.Time
	known   []string // keys
	unknown int
}

func newLineReader() *lineReader { return &lineReader{at: time.Unix(1000, 0)} }

// feed gives the deframer one burst.
func (r *lineReader) feed(b ...[]byte) *lineReader {
	for rest := bytes.Join(b, nil); len(rest) > 0; {
		n := copy(r.in.space(), rest)
		rest = rest[n:]
		r.in.filled(n, r.at)
		for {
			f, ok := r.in.next()
			if !ok {
				break
			}
			if f.known == nil {
				r.unknown++
				continue
			}
			w := wireFrame{v1: !f.v2, seq: f.seq, system: f.system, component: f.component, id: f.id, payload: f.payload}
			r.known = append(r.known, w.key())
		}
	}
	return r
}

// pause lets time pass before the next burst.
func (r *lineReader) pause(d time.Duration) *lineReader {
	r.at = r.at.Add(d)
	return r
}

// expect compares the frames of the dialect with those in these packets.
func (r *lineReader) expect(t *testing.T, packets ...[]byte) {
	t.Helper()
	var want []string
	for _, p := range packets {
		fs := checkedFrames(p)
		if len(fs) != 1 || fs[0].offset != 0 {
			t.Fatalf("the test's packet %x is not one frame", p)
		}
		want = append(want, fs[0].key())
	}
	if !slices.Equal(r.known, want) {
		t.Errorf("read %d frames:\n\t%s\nwant %d:\n\t%s", len(r.known), strings.Join(r.known, "\n\t"), len(want), strings.Join(want, "\n\t"))
	}
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
	return beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(4, 3), false)
}

func copterBeat() *common.MessageHeartbeat {
	return beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 4, false)
}

// attitudeAt is an ATTITUDE that a test can tell from another.
func attitudeAt(ms uint32) *common.MessageAttitude {
	return &common.MessageAttitude{TimeBootMs: ms, Roll: 0.1, Pitch: -0.2, Yaw: 1, Rollspeed: 3, Pitchspeed: 4, Yawspeed: 5}
}

func signedPacket(b []byte) []byte {
	f := checkedFrames(b)[0]
	f.incompat = 1
	f.signature = [13]byte{1, 0xfd, 3, 0xfe, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	return f.bytes()
}

func TestFramesOfBothVersionsAndSignedOnesAreReadInTheirOrder(t *testing.T) {
	a, b := packet(1, 1, 1, px4Beat()), packet1(2, 1, 1, attitudeAt(7))
	c, d := signedPacket(packet(3, 1, 1, attitudeAt(8))), packet(4, 9, 154, px4Beat())
	r := newLineReader().feed(a, b, c, d, a)
	r.expect(t, a, b, c, d, a)
	if r.in.errors != 0 {
		t.Errorf("%d errors on a clean line", r.in.errors)
	}
}

func TestHalfAFrameIsReadWhenItsOtherHalfComes(t *testing.T) {
	for _, p := range [][]byte{packet(1, 1, 1, attitudeAt(7)), packet1(1, 1, 1, attitudeAt(7)), signedPacket(packet(1, 1, 1, attitudeAt(7)))} {
		for cut := range p {
			r := newLineReader().feed(p[:cut])
			r.expect(t)
			r.pause(100*time.Millisecond).feed(p[cut:]).expect(t, p)
			if r.in.errors != 0 {
				t.Errorf("cut at %d: %d errors", cut, r.in.errors)
			}
		}
	}
}

func TestAFrameWithUnknownIncompatibilityFlagsIsNotReadAndTheNextIs(t *testing.T) {
	good := packet(2, 1, 1, px4Beat())
	for _, flags := range []byte{2, 3, 4, 0x80, 0xff} {
		odd := wireFrame{incompat: flags, seq: 1, system: 1, component: 1, id: 0, payload: payloadOf(px4Beat(), true)}.bytes()
		newLineReader().feed(odd, good).expect(t, good)
	}
}

func TestNoiseAroundFramesIsSkippedAndCounted(t *testing.T) {
	a, b := packet(1, 1, 1, attitudeAt(1)), packet1(2, 1, 1, px4Beat())
	for _, noise := range []string{
		"00", "ff", "41500d0a", "00ff41500d0a", "fe", "fd", "fdfd", "fefe", "fdfe00", "fd0900", "fe090000",
		"fd09000000010100000011", "fe0900010100", "fdff0200", strings.Repeat("fe", 40), strings.Repeat("fd", 40),
		strings.Repeat("fd09", 30),
	} {
		n, _ := hex.DecodeString(noise)
		for name, burst := range map[string][][]byte{
			"before": {n, a, b}, "between": {a, n, b}, "after": {a, b, n}, "everywhere": {n, a, n, b, n},
		} {
			r := newLineReader().feed(burst...)
			// What looks like the start of a frame may wait, but not for long.
			r.pause(time.Second).feed([]byte{0})
			r.expect(t, a, b)
			if name != "before" && r.in.errors == 0 {
				t.Errorf("noise %s %s the frames was not counted", noise, name)
			}
		}
	}
}

func TestAFrameThatNeverEndsDoesNotHoldBackTheNextHeartbeat(t *testing.T) {
	first, beat := packet(1, 1, 1, attitudeAt(1)), packet(2, 1, 1, px4Beat())
	claim := wireFrame{seq: 2, system: 1, component: 1, payload: []byte{1, 2, 3}, claims: 255}.bytes()
	claim1 := wireFrame{v1: true, seq: 2, system: 1, component: 1, payload: []byte{1, 2, 3}, claims: 255}.bytes()
	unknown := wireFrame{seq: 2, system: 1, component: 1, id: 147, payload: []byte{1, 2, 3}, claims: 255}.bytes()
	cut := packet(2, 1, 1, attitudeAt(1))
	cut = cut[:len(cut)-5]
	for name, end := range map[string][]byte{
		"a version 2 frame that claims 255 bytes": claim,
		"a version 1 frame that claims 255 bytes": claim1,
		"an unknown message":                      unknown,
		"the frame's first byte":                  {frame.V2MagicByte},
		"a frame cut short":                       cut,
		"two that claim 255 bytes":                slices.Concat(claim, claim),
		"three of both versions":                  slices.Concat(claim1, claim, claim1),
		"a header in a header":                    {frame.V1MagicByte, 255, frame.V1MagicByte, 255, 0, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			newLineReader().feed(first, end).pause(time.Second).feed(beat).expect(t, first, beat)
		})
	}
}

func TestATruncatedFrameCostsOnlyItself(t *testing.T) {
	whole, good, last := packet(1, 1, 1, attitudeAt(1)), packet(2, 1, 1, px4Beat()), packet(3, 1, 1, attitudeAt(2))
	for cut := range whole {
		r := newLineReader().feed(last, whole[:cut], good)
		r.pause(time.Second).feed(last).expect(t, last, good, last)
	}
}

func TestUnknownMessagesBetweenKnownOnesAreFramesAndNoErrors(t *testing.T) {
	a, b, c := packet(1, 1, 1, px4Beat()), packet(3, 1, 1, attitudeAt(1)), packet(6, 1, 1, attitudeAt(2))
	r := newLineReader().feed(a, unknownPacket(2, 30), b, unknownPacket(4, 255), unknownPacket(5, 1), c)
	r.expect(t, a, b, c)
	if r.unknown != 3 || r.in.errors != 0 {
		t.Errorf("%d unknown frames and %d errors, want 3 and 0", r.unknown, r.in.errors)
	}
	// The last of a burst is known to be whole when the next burst comes.
	r.feed(unknownPacket(7, 9)).pause(time.Second).feed(a).expect(t, a, b, c, a)
	if r.unknown != 4 || r.in.errors != 0 {
		t.Errorf("%d unknown frames and %d errors, want 4 and 0", r.unknown, r.in.errors)
	}
}

// Each bit of a frame is flipped in turn. The frames behind it are of each
// size, so that a wrong length may well end where another frame does.
func TestAFlippedBitCostsOnlyItsOwnFrame(t *testing.T) {
	before, after := packet(1, 1, 1, px4Beat()), packet(9, 1, 1, px4Beat())
	hud := &common.MessageVfrHud{Airspeed: 1, Groundspeed: 2, Heading: 3, Throttle: 0x404, Alt: 5, Climb: 6} // 32 bytes
	behind := [][]byte{
		packet(3, 1, 1, px4Beat()), packet(3, 1, 1, hud), packet1(3, 1, 1, hud), packet1(3, 1, 1, px4Beat()),
		packet(3, 1, 1, &common.MessageExtendedSysState{LandedState: 1}), packet(3, 1, 1, attitudeAt(2)),
	}
	for name, hit := range map[string][]byte{
		"version 2": packet(2, 1, 1, attitudeAt(1)), "version 1": packet1(2, 1, 1, attitudeAt(1)),
		"signed": signedPacket(packet(2, 1, 1, attitudeAt(1))), "unknown": unknownPacket(2, 30),
	} {
		t.Run(name, func(t *testing.T) {
			for bit := range len(hit) * 8 {
				broken := slices.Clone(hit)
				broken[bit/8] ^= 1 << (bit % 8)
				for _, next := range behind {
					r := newLineReader().feed(before, broken, next, after).pause(time.Second).feed(after)
					switch {
					case name == "signed" && bit/8 >= len(hit)-13:
						r.expect(t, before, broken, next, after, after) // nobody checks the signature
					case name == "unknown" && bit/8 == 1 && int(broken[1])-int(hit[1]) == len(next):
						// Nobody can check this one: it ends where the next frame does.
						r.expect(t, before, after, after)
					default:
						r.expect(t, before, next, after, after)
					}
					if t.Failed() {
						t.Fatalf("bit %d of byte %d was flipped; a frame of %d bytes followed", bit%8, bit/8, len(next))
					}
				}
			}
		})
	}
}

func TestBytesInAnyPortionsGiveTheSameFrames(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	l := noisyLineOf(random, 200_000, 300)
	whole := newLineReader().feed(l.bytes)
	single := newLineReader()
	for i := range l.bytes {
		single.feed(l.bytes[i : i+1])
	}
	pieces := newLineReader()
	for rest := l.bytes; len(rest) > 0; {
		n := min(len(rest), 1+random.IntN(700))
		pieces.feed(rest[:n])
		rest = rest[n:]
	}
	for name, other := range map[string]*lineReader{"byte by byte": single, "in pieces": pieces} {
		if !slices.Equal(whole.known, other.known) || whole.unknown != other.unknown {
			t.Errorf("%s: %d known frames and %d unknown; at once: %d and %d", name, len(other.known), other.unknown, len(whole.known), whole.unknown)
		}
		if whole.in.errors != other.in.errors {
			t.Errorf("%s: %d errors; at once: %d", name, other.in.errors, whole.in.errors)
		}
	}
}

// noisyLine is noise with good frames in it.
type noisyLine struct {
	bytes []byte
	good  []string // keys
}

// noisyLineOf makes a noisy line with a frame about each every bytes.
func noisyLineOf(random *rand.Rand, size, every int) noisyLine {
	var l noisyLine
	for seq := byte(0); len(l.bytes) < size; seq++ {
		for range random.IntN(2 * every) {
			l.bytes = append(l.bytes, byte(random.Uint32()))
		}
		var p []byte
		switch random.IntN(4) {
		case 0:
			p = packet(seq, 1, 1, attitudeAt(random.Uint32()))
		case 1:
			p = packet1(seq, 1, 1, attitudeAt(random.Uint32()))
		case 2:
			p = signedPacket(packet(seq, 1, 1, px4Beat()))
		case 3:
			p = packet(seq, 1, 1, px4Beat())
		}
		l.good = append(l.good, checkedFrames(p)[0].key())
		l.bytes = append(l.bytes, p...)
	}
	return l
}

func TestAMegabyteOfNoiseHidesNoFrameAndMakesNone(t *testing.T) {
	l := noisyLineOf(rand.New(rand.NewPCG(1, 2)), 1<<20, 600)
	r := newLineReader().feed(l.bytes).pause(time.Second).feed([]byte{0})
	if !slices.Equal(r.known, l.good) {
		lost := slices.DeleteFunc(slices.Clone(l.good), func(k string) bool { return slices.Contains(r.known, k) })
		t.Errorf("%d frames came out, %d went in; lost: %q", len(r.known), len(l.good), lost)
	}
	if r.in.errors == 0 {
		t.Error("the noise was not counted")
	}
}

// decodedPacket runs a packet through the deframer and a decoder.
func decodedPacket(t *testing.T, d *decoder, p []byte) (message.Message, error) {
	t.Helper()
	var in deframer
	in.filled(copy(in.space(), p), time.Unix(1, 0))
	f, ok := in.next()
	if !ok || f.known == nil {
		t.Fatalf("%x was not read", p)
	}
	return d.decode(f)
}

func TestATruncatedPayloadIsZeroWhereNothingWasSent(t *testing.T) {
	var d decoder
	full := &common.MessageAttitude{TimeBootMs: 1 << 30, Roll: 1, Pitch: 2, Yaw: 3, Rollspeed: 4, Pitchspeed: 5, Yawspeed: 6}
	short := &common.MessageAttitude{TimeBootMs: 5}
	for _, want := range []*common.MessageAttitude{full, short, full} { // short must not show what full left
		m, err := decodedPacket(t, &d, packet(1, 1, 1, want))
		if err != nil || *m.(*common.MessageAttitude) != *want {
			t.Errorf("decoded %+v, %v; want %+v", m, err, want)
		}
	}
	if n := len(payloadOf(short, true)); n >= 28 {
		t.Fatalf("the short payload is %d bytes: nothing is tested", n)
	}
}

func TestAVersion1MessageHasNoExtensionsAndMustHaveItsLength(t *testing.T) {
	var d decoder
	ack := &common.MessageCommandAck{Command: 400, Result: 4, Progress: 9, ResultParam2: 8, TargetSystem: 7, TargetComponent: 6}
	if _, err := decodedPacket(t, &d, packet(1, 1, 1, ack)); err != nil {
		t.Fatal(err)
	}
	m, err := decodedPacket(t, &d, packet1(1, 1, 1, ack))
	if want := (common.MessageCommandAck{Command: 400, Result: 4}); err != nil || *m.(*common.MessageCommandAck) != want {
		t.Errorf("decoded %+v, %v; want %+v", m, err, want)
	}
	for _, size := range []int{0, 2, 4, 10, 255} {
		odd := wireFrame{v1: true, system: 1, component: 1, id: 77, payload: make([]byte, size)}.bytes()
		if m, err := decodedPacket(t, &d, odd); err == nil {
			t.Errorf("a version 1 ack of %d bytes was read: %+v", size, m)
		}
	}
}

func TestAVersion2PayloadOfTheFutureIsReadAsFarAsItIsKnown(t *testing.T) {
	var d decoder
	payload := payloadOf(attitudeAt(5), true)
	longer := append(slices.Clone(payload), bytes.Repeat([]byte{0xaa}, 255-len(payload))...)
	m, err := decodedPacket(t, &d, wireFrame{system: 1, component: 1, id: 30, payload: longer}.bytes())
	if err != nil || *m.(*common.MessageAttitude) != *attitudeAt(5) {
		t.Errorf("decoded %+v, %v", m, err)
	}
}

// ---- A cable in memory ----

// lineMessage is a message that the link sent.
type lineMessage struct {
	at                     time.Time
	seq, system, component byte
	msg                    message.Message
}

// cable is a port whose other end the test holds.
type cable struct {
	toLink chan []byte
	rest   []byte // the reader's own
	heard  func(lineMessage)
	stall  chan struct{} // not nil: writes wait for it
	gone   chan struct{}
	once   sync.Once
}

func newCable(heard func(lineMessage)) *cable {
	return &cable{toLink: make(chan []byte, 10000), heard: heard, gone: make(chan struct{})}
}

func (c *cable) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case c.rest = <-c.toLink:
		case <-c.gone:
			return 0, io.EOF
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *cable) Write(b []byte) (int, error) {
	select {
	case <-c.gone:
		return 0, io.ErrClosedPipe
	default:
	}
	if c.stall != nil {
		select {
		case <-c.stall:
		case <-c.gone:
			return 0, io.ErrClosedPipe
		}
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

// serialCable is a cable whose reads give all that has come, and are counted.
type serialCable struct {
	*cable
	reads *atomic.Int64
}

func (c serialCable) Drain() error { return nil }

func (c serialCable) Read(b []byte) (int, error) {
	c.reads.Add(1)
	n, err := c.cable.Read(b)
	for err == nil && n < len(b) && len(c.toLink) > 0 {
		var more int
		more, err = c.cable.Read(b[n:])
		n += more
	}
	return n, err
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
		list = append(list, lineMessage{time.Now(), f.GetSequenceNumber(), f.GetSystemID(), f.GetComponentID(), f.GetMessage()})
	}
}

// lineBench is a link on a cable in virtual time, with an autopilot that beats and
// acknowledges the link's greeting, and for the rest does what its script says.
type lineBench struct {
	*drone
	t     *testing.T
	start time.Time

	mu     sync.Mutex // guards all below
	cable  *cable
	opens  []time.Time
	heard  []lineMessage
	beat   *common.MessageHeartbeat // each second; nil: silent
	system byte
	seq    byte
	boot   uint32                   // ms: of the attitude that comes with each beat; 0: none comes
	stall  bool                     // the next port takes no writes
	deaf   bool                     // the greeting is not acknowledged
	serial bool                     // the cable is a serial line
	reads  atomic.Int64             // of the serial line
	script func(id uint16, try int) // runs at each other command; try counts from 0
	tries  map[uint16]int
}

// newLineBench runs a link until the test ends. It must be called in a bubble.
func newLineBench(t *testing.T, beat *common.MessageHeartbeat, with ...func(*lineBench)) *lineBench {
	t.Helper()
	b := &lineBench{t: t, start: time.Now(), beat: beat, system: 1, tries: make(map[uint16]int)}
	b.link = newDrone(device{
		name: "cable",
		open: func(context.Context) (port, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.opens = append(b.opens, time.Now())
			b.cable = newCable(b.take)
			if b.stall {
				b.cable.stall = make(chan struct{})
			}
			if b.serial {
				return serialCable{b.cable, &b.reads}, nil
			}
			return b.cable, nil
		},
		baud: func() int { return 0 },
	}, 0, false)
	for _, f := range with {
		f(b)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.link.run(ctx) })
	running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			synctest.Wait()
			b.mu.Lock()
			beat, boot := b.beat, b.boot
			if beat != nil && boot > 0 {
				b.boot += 1000
			}
			b.mu.Unlock()
			if beat != nil {
				b.say(beat)
				if boot > 0 {
					b.say(attitudeAt(boot))
				}
			}
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

// take hears a message of the link.
func (b *lineBench) take(m lineMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = append(b.heard, m)
	var id uint16
	switch m := m.msg.(type) {
	case *common.MessageCommandLong:
		id = uint16(m.Command)
	case *common.MessageCommandInt:
		id = uint16(m.Command)
	default:
		return
	}
	try := b.tries[id]
	b.tries[id]++
	switch {
	case id == 511 || id == 512:
		if !b.deaf {
			b.feed(b.next(1, &common.MessageCommandAck{Command: common.MAV_CMD(id)}))
		}
	case b.script != nil:
		script := b.script
		time.AfterFunc(0, func() { script(id, try) })
	}
}

// next is the autopilot's next packet. b.mu is held.
func (b *lineBench) next(component byte, m message.Message) []byte {
	b.seq++
	return packet(b.seq, b.system, component, m)
}

// feed needs b.mu.
func (b *lineBench) feed(p []byte) {
	if b.cable != nil {
		b.cable.toLink <- p
	}
}

// say sends a message of the autopilot.
func (b *lineBench) say(m message.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.feed(b.next(1, m))
}

// sayFrom sends a message of somebody else.
func (b *lineBench) sayFrom(system, component byte, m message.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.feed(packet(0, system, component, m))
}

// ack answers a command after a while.
func (b *lineBench) ack(after time.Duration, id uint16, result common.MAV_RESULT) {
	time.AfterFunc(after, func() {
		b.say(&common.MessageCommandAck{Command: common.MAV_CMD(id), Result: result, TargetSystem: b.system, TargetComponent: componentID})
	})
}

// follow makes the autopilot answer commands by a script.
func (b *lineBench) follow(script func(id uint16, try int)) { b.change(func() { b.script = script }) }

// change alters the bench while nobody looks at it.
func (b *lineBench) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// messages returns what the link sent that f wants.
func (b *lineBench) messages(f func(lineMessage) bool) []lineMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.heard), func(m lineMessage) bool { return !f(m) })
}

// commands returns the sends of a command.
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

// settle waits until the greeting is over, between two heartbeats.
func (b *lineBench) settle() {
	b.t.Helper()
	time.Sleep(4500 * time.Millisecond)
	if !b.status().tel.online {
		b.t.Fatal("the vehicle is not online")
	}
}

// benchOutcome is how a command ended.
type benchOutcome struct {
	answer
	err  error
	took time.Duration
}

func (o benchOutcome) code() errorCode {
	var ce *commandError
	if errors.As(o.err, &ce) {
		return ce.code
	}
	if o.err != nil {
		return errorCode(o.err.Error())
	}
	return ""
}

// command gives a command and returns at once.
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
	holdHere   = request{setMode: true, mode: ModeHold}
	goHome     = request{setMode: true, mode: ModeRTL}
	landHere   = request{setMode: true, mode: ModeLand}
	cmdSetMode = uint16(common.MAV_CMD_DO_SET_MODE)
	cmdArm     = uint16(common.MAV_CMD_COMPONENT_ARM_DISARM)
)

const (
	ackAccepted   = common.MAV_RESULT_ACCEPTED
	ackRejected   = common.MAV_RESULT_TEMPORARILY_REJECTED
	ackFailed     = common.MAV_RESULT_FAILED
	ackInProgress = common.MAV_RESULT_IN_PROGRESS
)

// inLinkBubble runs f in virtual time.
func inLinkBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	quietLink()
	synctest.Test(t, f)
}

// ---- Captured flights ----

// tlogEntry is one frame of a .tlog.
type tlogEntry struct {
	at    time.Duration // from the first
	bytes []byte
}

// readTlog cuts a .tlog into its frames by their lengths.
func readTlog(t *testing.T, name string) []tlogEntry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var list []tlogEntry
	var first uint64
	for len(b) > 0 {
		us := binary.BigEndian.Uint64(b)
		if first == 0 {
			first = us
		}
		b = b[8:]
		size := 8 + int(b[1])
		if b[0] == frame.V2MagicByte {
			size = 12 + int(b[1]) + 13*int(b[2]&1)
		}
		list = append(list, tlogEntry{time.Duration(us-first) * time.Microsecond, b[:size]})
		b = b[size:]
	}
	return list
}

// replayedFlight is what a captured flight showed on the way.
type replayedFlight struct {
	snapshot
	modes    []string // "MODE NAME armed", each change
	answered []Mode   // what GET mode answered, each change
	highest  float64
	frames   int
	gaps     uint64 // in the file's own sequence
	unsure   int    // the last one, if nobody can tell whether it is whole
}

// replayTlog plays a file into a link at the file's own pace.
func replayTlog(t *testing.T, name string) replayedFlight {
	t.Helper()
	entries := readTlog(t, name)
	c := newCable(func(lineMessage) {})
	l := newDrone(device{name: name, open: func(context.Context) (port, error) { return c, nil }, baud: func() int { return 57600 }}, 0, false)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx) })
	r := replayedFlight{frames: len(entries)}
	start := time.Now()
	var seq byte
	heard := false
	for i, e := range entries {
		time.Sleep(time.Until(start.Add(e.at)))
		c.toLink <- e.bytes
		synctest.Wait()
		f := e.bytes
		s, id := f[4], uint32(f[7])|uint32(f[8])<<8|uint32(f[9])<<16
		if f[0] == frame.V1MagicByte {
			s, id = f[2], uint32(f[5])
		}
		_, known := crcExtras[id]
		if known && len(checkedFrames(f)) != 1 {
			t.Errorf("%v: frame %x does not check", e.at, f)
		}
		if heard {
			r.gaps += uint64(s - seq - 1)
		}
		seq, heard = s, heard || id == 0
		if !known && i == len(entries)-1 {
			r.unsure++
		}
		status := l.status()
		if status.tel.heartbeatAt.IsZero() {
			continue
		}
		mode := status.tel.modeName
		if status.tel.armed {
			mode += " armed"
		}
		if n := len(r.modes); n == 0 || r.modes[n-1] != mode {
			r.modes = append(r.modes, mode)
		}
		if n := len(r.answered); n == 0 || r.answered[n-1] != status.mode {
			r.answered = append(r.answered, status.mode)
		}
		if h := status.tel.position.relative; h > r.highest {
			r.highest = h
		}
	}
	r.snapshot = l.status()
	cancel()
	running.Wait()
	return r
}

// lineNear compares with as many decimals as a value is told with.
func lineNear(t *testing.T, what string, got, want float64, decimals int) {
	t.Helper()
	if a, b := fmt.Sprintf("%.*f", decimals, got), fmt.Sprintf("%.*f", decimals, want); a != b {
		t.Errorf("%s is %s, want %s", what, a, b)
	}
}

// lineEqual compares a thing by its name.
func lineEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// whole checks that nothing of the file was lost.
func (r *replayedFlight) whole(t *testing.T) {
	t.Helper()
	lineEqual(t, "errors", r.errors, 0)
	lineEqual(t, "frames received", r.received, uint64(r.frames-r.unsure))
	lineEqual(t, "frames lost", r.lost, r.gaps)
	lineEqual(t, "online", r.tel.online, true)
}

func (r *replayedFlight) texts() []string {
	var list []string
	for _, s := range r.tel.recent(time.Time{}) {
		list = append(list, s.text)
	}
	return list
}

func TestTheCapturedPX4FlightLeadsToItsStatus(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		r := replayTlog(t, "px4-flight.tlog")
		r.whole(t)
		lineEqual(t, "autopilot", r.tel.autopilot, "px4")
		lineEqual(t, "vehicle type", r.tel.vehicleType, "quadrotor")
		lineEqual(t, "mode", r.mode, ModeHold)
		lineEqual(t, "vehicle mode", r.tel.modeName, "AUTO.LOITER")
		lineEqual(t, "armed", r.tel.armed, false)
		lineEqual(t, "state", r.tel.state, "standby")
		lineEqual(t, "failsafe", r.tel.failsafe, false)
		lineEqual(t, "landed state", r.tel.landed, landedState(common.MAV_LANDED_STATE_ON_GROUND))
		lineNear(t, "latitude", r.tel.position.lat, 47.3977372, 7)
		lineNear(t, "longitude", r.tel.position.lon, 8.5456148, 7)
		lineNear(t, "height", r.tel.position.relative, 0.3, 1)
		lineNear(t, "highest", r.highest, 15.6, 1)
		lineNear(t, "voltage", r.tel.battery.voltage, 16.2, 1)
		lineNear(t, "current", r.tel.battery.current, math.NaN(), 0)
		lineNear(t, "remaining", r.tel.battery.remaining, 99, 0) // the file's last SYS_STATUS
		lineEqual(t, "fix", r.tel.gps.fix, "3d")
		lineNear(t, "satellites", r.tel.gps.satellites, 10, 0)
		lineNear(t, "hdop", r.tel.gps.hdop, 0.70, 2)
		lineEqual(t, "home is known", !r.tel.home.at.IsZero(), true)
		lineEqual(t, "modes", strings.Join(r.modes, ", "), "AUTO.LOITER, POSCTL, AUTO.LOITER, AUTO.TAKEOFF, AUTO.TAKEOFF armed, "+
			"AUTO.LOITER armed, POSCTL armed, AUTO.LOITER armed, AUTO.LAND armed, AUTO.LOITER")
		// Disarmed at first contact, so manual; then what the vehicle shows.
		lineEqual(t, "answers of GET mode", fmt.Sprint(r.answered), "[manual position hold takeoff hold position hold land hold]")
		lineEqual(t, "texts", strings.Join(r.texts(), "|"), "Arming denied: Resolve system health failures first|Armed by external command|"+
			"Takeoff detected|Landing detected|Disarmed by landing")
	})
}

func TestTheCapturedArduPilotFlightLeadsToItsStatus(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		r := replayTlog(t, "ardupilot-flight.tlog")
		r.whole(t)
		lineEqual(t, "autopilot", r.tel.autopilot, "ardupilot")
		lineEqual(t, "vehicle type", r.tel.vehicleType, "quadrotor")
		lineEqual(t, "mode", r.mode, ModeLand)
		lineEqual(t, "vehicle mode", r.tel.modeName, "LAND")
		lineEqual(t, "armed", r.tel.armed, false)
		lineEqual(t, "landed state", r.tel.landed, landedState(common.MAV_LANDED_STATE_ON_GROUND))
		lineNear(t, "latitude", r.tel.position.lat, 47.3977420, 7)
		lineNear(t, "longitude", r.tel.position.lon, 8.5455941, 7)
		lineNear(t, "height", math.Abs(r.tel.position.relative), 0, 1)
		lineNear(t, "highest", r.highest, 15.05, 2)
		lineNear(t, "voltage", r.tel.battery.voltage, 12.6, 1)
		lineNear(t, "remaining", r.tel.battery.remaining, 86, 0)
		lineEqual(t, "fix", r.tel.gps.fix, "rtk_fixed")
		lineNear(t, "satellites", r.tel.gps.satellites, 10, 0)
		lineNear(t, "hdop", r.tel.gps.hdop, 1.21, 2)
		lineEqual(t, "home is known", !r.tel.home.at.IsZero(), true)
		lineEqual(t, "modes", strings.Join(r.modes, ", "), "STABILIZE, LAND, GUIDED, GUIDED armed, LOITER armed, GUIDED armed, LAND armed, LAND")
		lineEqual(t, "answers of GET mode", fmt.Sprint(r.answered), "[manual land hold position hold land]")
		lineEqual(t, "a refusal's text is there", slices.Contains(r.texts(), "Arm: LAND mode not armable"), true)
	})
}

func TestChunksOfATextAreJoinedInAnyOrderAndAMissingOneShows(t *testing.T) {
	full := strings.Repeat("x", 50)
	type chunk = common.MessageStatustext
	for name, c := range map[string]struct {
		chunks []chunk
		want   []string
	}{
		"in order":     {[]chunk{{Text: full, Id: 5}, {Text: "end\t", Id: 5, ChunkSeq: 1}}, []string{full + "end"}},
		"out of order": {[]chunk{{Text: "end", Id: 5, ChunkSeq: 2}, {Text: full, Id: 5}, {Text: full, Id: 5, ChunkSeq: 1}}, []string{full + full + "end"}},
		"two mixed": {[]chunk{{Text: full, Id: 5}, {Text: full, Id: 6}, {Text: "six", Id: 6, ChunkSeq: 1}, {Text: "five", Id: 5, ChunkSeq: 1}},
			[]string{full + "six", full + "five"}},
		"PX4's first after its boot": {[]chunk{{Text: full, Id: 0}, {Text: "end\t", Id: 0, ChunkSeq: 1}}, []string{full + "end"}},
		"single ones":                {[]chunk{{Text: "one", Id: 0}, {Text: "two", Id: 0}}, []string{"one", "two"}},
		"first lost":                 {[]chunk{{Text: "end", Id: 5, ChunkSeq: 1}}, []string{"…end"}},
		"last lost":                  {[]chunk{{Text: full, Id: 5}}, []string{full}},
	} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, px4Beat())
				b.settle()
				for _, m := range c.chunks {
					b.say(&m)
				}
				time.Sleep(chunkWait + 200*time.Millisecond)
				var got []string
				s := b.status()
				for _, text := range s.tel.recent(time.Time{}) {
					got = append(got, text.text)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("texts %q, want %q", got, c.want)
				}
			})
		})
	}
}

// ---- The command protocol ----

// sentAfter are the times of sends, from the first.
func sentAfter(list []lineMessage) []time.Duration {
	var after []time.Duration
	for _, m := range list {
		after = append(after, m.at.Sub(list[0].at))
	}
	return after
}

func TestACommandIsSentThreeTimesAtMostWithItsConfirmationRising(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		o := <-b.command(armIt)
		lineEqual(t, "code", o.code(), codeNoAck)
		lineEqual(t, "time until the answer", o.took, 2*time.Second)
		sends := b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)
		lineEqual(t, "sends", fmt.Sprint(sentAfter(sends)), "[0s 500ms 1.2s]")
		for i, m := range sends {
			c := m.msg.(*common.MessageCommandLong)
			lineEqual(t, "confirmation", c.Confirmation, uint8(i))
			lineEqual(t, "target", [2]byte{c.TargetSystem, c.TargetComponent}, [2]byte{1, 1})
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{1, 191})
		}
	})
}

// inTheAir makes the bench's vehicle fly 10 m above home.
func (b *lineBench) inTheAir() {
	b.change(func() { b.beat.BaseMode |= common.MAV_MODE_FLAG_SAFETY_ARMED })
	b.say(&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR})
	b.say(&common.MessageHomePosition{Latitude: 473977420, Longitude: 85455940, Altitude: 488000})
	b.say(&common.MessageGlobalPositionInt{Lat: 473977420, Lon: 85455940, Alt: 498000, RelativeAlt: 10000, Hdg: 9000})
	time.Sleep(1500 * time.Millisecond)
}

func TestAPlaceGoesOutAsCommandIntAndIsRepeatedUnchanged(t *testing.T) {
	for name, beat := range map[string]*common.MessageHeartbeat{"px4": px4Beat(), "copter": copterBeat()} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, beat)
				b.settle()
				b.inTheAir()
				lat, lon := 47.3979216, 8.5456789
				o := <-b.command(request{setMode: true, mode: ModeHold, goTo: true, lat: &lat, lon: &lon})
				lineEqual(t, "code", o.code(), codeNoAck)
				sends := b.commands(common.MAV_CMD_DO_REPOSITION)
				lineEqual(t, "sends", fmt.Sprint(sentAfter(sends)), "[0s 500ms 1.2s]")
				for _, m := range sends {
					c, ok := m.msg.(*common.MessageCommandInt)
					if !ok || c.X != 473979216 || c.Y != 85456789 {
						t.Errorf("sent %+v", m.msg)
					}
				}
			})
		})
	}
}

func TestAnAckEndsTheRepeats(t *testing.T) {
	for try := range 3 {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, copterBeat())
			b.settle()
			b.follow(func(id uint16, n int) {
				if n == try {
					b.ack(100*time.Millisecond, id, ackAccepted)
				}
			})
			o := <-b.command(armIt)
			lineEqual(t, "error", o.err, nil)
			lineEqual(t, "command", o.command, cmdArm)
			lineEqual(t, "time until the answer", o.took, [...]time.Duration{100, 600, 1300}[try]*time.Millisecond)
			time.Sleep(3 * time.Second)
			lineEqual(t, "sends", len(b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)), try+1)
		})
	}
}

// An ack may be there before the send has returned.
func TestAnAckAtOnceIsNotMissed(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.follow(func(id uint16, _ int) { b.ack(0, id, ackAccepted) })
		o := <-b.command(armIt)
		lineEqual(t, "error", o.err, nil)
		lineEqual(t, "time until the answer", o.took, 0)
	})
}

// A serial line on which much comes is read 50 times a second, but at once when
// an ack is awaited.
func TestABusySerialLineIsReadSeldomAndAnAckAtOnce(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat(), func(b *lineBench) { b.serial = true })
		b.settle()
		b.follow(func(id uint16, _ int) { b.ack(3*time.Millisecond, id, ackAccepted) })
		quiet := b.reads.Load()
		time.Sleep(time.Second)
		if n := b.reads.Load() - quiet; n > 5 {
			t.Errorf("%d reads in a second that brings a heartbeat", n)
		}
		stop := make(chan struct{})
		go func() {
			for ms := uint32(1); ; ms++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				b.say(attitudeAt(ms))
			}
		}()
		time.Sleep(time.Second)
		busy, received := b.reads.Load(), b.received.Load()
		time.Sleep(time.Second)
		if reads, frames := b.reads.Load()-busy, b.received.Load()-received; reads > 51 || frames < 980 {
			t.Errorf("%d reads in a second that brings 1,000 messages, of which %d were taken", reads, frames)
		}
		s := b.status()
		if age := s.now.Sub(s.tel.attitude.at); age > readEvery {
			t.Errorf("the attitude is %v old", age)
		}
		for i := range 7 {
			time.Sleep(time.Duration(100*i+11*i) * time.Millisecond) // anywhere between two reads
			o := <-b.command(armIt)
			lineEqual(t, "error", o.err, nil)
			lineEqual(t, "time until the answer", o.took, 3*time.Millisecond)
		}
		close(stop)
	})
}

func TestACommandInProgressIsNeverRepeatedAndHasTenSeconds(t *testing.T) {
	for _, c := range []struct {
		name  string
		on    int           // the send that is answered IN_PROGRESS
		done  time.Duration // from then; 0 never
		again bool          // IN_PROGRESS each second
		code  errorCode
		took  time.Duration
	}{
		{"done after 9.9 s", 0, 9900 * time.Millisecond, false, "", 9950 * time.Millisecond},
		{"never done", 0, 0, false, codeNoAck, 10050 * time.Millisecond},
		{"in progress for ever", 0, 0, true, codeNoAck, 10050 * time.Millisecond},
		{"the second send is answered", 1, 3 * time.Second, false, "", 3550 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, copterBeat())
				b.settle()
				b.follow(func(id uint16, try int) {
					if try != c.on {
						return
					}
					const first = 50 * time.Millisecond
					b.ack(first, id, ackInProgress)
					if c.again {
						for i := range 30 {
							b.ack(first+time.Duration(i+1)*time.Second, id, ackInProgress)
						}
					}
					if c.done > 0 {
						b.ack(first+c.done, id, ackAccepted)
					}
				})
				o := <-b.command(armIt)
				lineEqual(t, "code", o.code(), c.code)
				lineEqual(t, "time until the answer", o.took, c.took)
				lineEqual(t, "sends", len(b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)), c.on+1)
			})
		})
	}
}

func TestOnlyTheVehiclesOwnAckOfThisCommandToUsCounts(t *testing.T) {
	for _, c := range []struct {
		name              string
		system, component byte
		ack               common.MessageCommandAck
		counts            bool
	}{
		{"to us", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: 191}, true},
		{"to nobody in particular", 1, 1, common.MessageCommandAck{Command: 400}, true},
		{"from another system", 2, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: 191}, false},
		{"from another component", 1, 154, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: 191}, false},
		{"of another command", 1, 1, common.MessageCommandAck{Command: 176, TargetSystem: 1, TargetComponent: 191}, false},
		{"to a ground station", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 255, TargetComponent: 190}, false},
		{"to another component", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: 190}, false},
		{"to another system's companion", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 2, TargetComponent: 191}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, copterBeat())
				b.settle()
				b.follow(func(uint16, int) { b.sayFrom(c.system, c.component, &c.ack) })
				want := codeNoAck
				if c.counts {
					want = ""
				}
				o := <-b.command(armIt)
				lineEqual(t, "code", o.code(), want)
			})
		})
	}
}

func TestALateAckOfASupersededCommandDoesNotAnswerTheNextOfItsID(t *testing.T) {
	for name, late := range map[string]common.MAV_RESULT{"accepted": ackAccepted, "refused": ackFailed} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, copterBeat())
				b.settle()
				truth := ackAccepted + ackFailed - late
				b.follow(func(id uint16, try int) {
					b.ack(300*time.Millisecond, id, [...]common.MAV_RESULT{late, truth}[min(try, 1)])
				})
				first := b.command(goHome)
				time.Sleep(200 * time.Millisecond)
				second := b.command(request{setMode: true, mode: ModeHold})
				o := <-first
				lineEqual(t, "the first command's code", o.code(), codeSuperseded)
				o = <-second
				want := codeRefused
				if truth == ackAccepted {
					want = ""
				}
				lineEqual(t, "the second command's code", o.code(), want)
			})
		})
	}
}

// A command that lost its place before its first step was sent leaves the acks
// to the one that took it.
func TestASupersededCommandDoesNotTakeTheAcksOfTheNewer(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.follow(func(id uint16, _ int) { b.ack(20*time.Millisecond, id, ackAccepted) })
		older, err := b.begin(holdHere)
		if err != nil {
			t.Fatal(err)
		}
		newer := b.command(goHome)
		time.Sleep(5 * time.Millisecond)
		_, err = b.transact(older, &older.plan.steps[0])
		lineEqual(t, "error of the older", benchOutcome{err: err}.code(), codeSuperseded)
		o := <-newer
		lineEqual(t, "error of the newer", o.err, nil)
		lineEqual(t, "time until the answer", o.took, 20*time.Millisecond)
		lineEqual(t, "sends", len(b.commands(common.MAV_CMD_DO_SET_MODE)), 1)
	})
}

// An unknown place is not near.
func TestNowhereIsNoArrival(t *testing.T) {
	l := newDrone(device{name: "none", baud: func() int { return 0 }}, 0, false)
	op := &operation{plan: plan{target: &place{47.4, 8.5, 10}}}
	l.op, l.machine.mode, l.tel.armed = op, ModeLand, true
	now := time.Now()
	var a arrival
	for ms := uint32(0); ms < 20_000; ms += 200 {
		now = now.Add(200 * time.Millisecond)
		l.hear(&common.MessageGlobalPositionInt{TimeBootMs: ms}, now)
		if l.arrived(op, &a, now) {
			t.Fatalf("arrived at %v, %v", l.tel.position.lat, l.tel.position.lon)
		}
	}
}

// The climb and the air speed of VFR_HUD do not outlive it under the age of the
// other velocities.
func TestAnOldVFRHUDIsNotTold(t *testing.T) {
	l := newDrone(device{name: "none", baud: func() int { return 0 }}, 0, false)
	now := time.Now()
	l.hear(&common.MessageVfrHud{Airspeed: 7, Climb: 3}, now)
	l.hear(&common.MessageGlobalPositionInt{Lat: 1, Vz: -50}, now.Add(freshPosition))
	lineEqual(t, "climb", l.tel.velocity.climb, 3)
	lineEqual(t, "air speed", l.tel.velocity.air, 7)
	l.hear(&common.MessageGlobalPositionInt{Lat: 1, Vz: -50}, now.Add(freshPosition+time.Millisecond))
	lineEqual(t, "climb", l.tel.velocity.climb, 0.5)
	lineEqual(t, "the air speed is unknown", math.IsNaN(l.tel.velocity.air), true)
}

// The line was dead for two seconds, so that no ack came; then it is well.
func TestAcksThatWereLostDoNotCostTheNextCommandItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		beat *common.MessageHeartbeat
		r    request
		acks int
	}{
		"copter arms":       {copterBeat(), armIt, 1},
		"copter flies home": {copterBeat(), goHome, 1},
		"px4 flies home":    {px4Beat(), goHome, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, c.beat)
				b.settle()
				b.follow(func(id uint16, try int) {
					for i := range c.acks {
						if try >= len(ackWaits) {
							b.ack(time.Duration(5+5*i)*time.Millisecond, id, ackAccepted)
						}
					}
				})
				o := <-b.command(c.r)
				lineEqual(t, "code while no ack comes", o.code(), codeNoAck)
				o = <-b.command(c.r)
				lineEqual(t, "code when each send is acknowledged again", o.code(), "")
			})
		})
	}
}

func TestPX4sSecondAckOfAModeChangeDecides(t *testing.T) {
	for _, c := range []struct {
		name   string
		second common.MAV_RESULT
		after  time.Duration // of the second ack; 0: it never comes
		shown  time.Duration // a heartbeat in the mode; 0: none
		code   errorCode
		took   time.Duration // 0: not looked at
	}{
		{"refused", ackRejected, 10 * time.Millisecond, 0, codeRefused, 0},
		{"refused late", ackRejected, 250 * time.Millisecond, 0, codeRefused, 0},
		{"accepted", ackAccepted, 10 * time.Millisecond, 0, "", 11 * time.Millisecond},
		{"a heartbeat is as good", 0, 0, 100 * time.Millisecond, "", 100 * time.Millisecond},
		{"it never comes", 0, 0, 0, "", 301 * time.Millisecond},
		{"in progress is none", ackInProgress, 10 * time.Millisecond, 0, "", 301 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, px4Beat())
				b.settle()
				b.follow(func(id uint16, try int) {
					const first = time.Millisecond
					b.ack(first, id, ackAccepted)
					if c.after > 0 {
						b.ack(first+c.after, id, c.second)
					}
					if c.shown > 0 {
						time.AfterFunc(c.shown, func() { b.say(beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(4, 5), false)) })
					}
				})
				o := <-b.command(goHome)
				lineEqual(t, "code", o.code(), c.code)
				if c.took > 0 {
					lineEqual(t, "time until the answer", o.took, c.took)
				}
				lineEqual(t, "sends", len(b.commands(common.MAV_CMD_DO_SET_MODE)), 1)
				want := ModeRTL
				if c.code != "" {
					want = ModeManual
				}
				mode, _ := b.link.mode()
				lineEqual(t, "mode", mode, want)
			})
		})
	}
}

func TestAFullQueueIsAnErrorAndNoWait(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil, func(b *lineBench) { b.stall = true })
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		var errs []error
		b.link.mu.Lock()
		for range 100 {
			errs = append(errs, b.send(componentID, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)))
		}
		b.link.mu.Unlock()
		lineEqual(t, "the first message's error", errs[0], nil)
		lineEqual(t, "the last message's error", errs[99], errQueueFull)
		lineEqual(t, "time that it took", time.Since(began), 0)
	})
}

// isBeat wants heartbeats of a type; component 0 is any.
func isBeat(typ minimal.MAV_TYPE) func(lineMessage) bool {
	return func(m lineMessage) bool {
		h, ok := m.msg.(*common.MessageHeartbeat)
		return ok && h.Type == typ
	}
}

func TestTheLinkBeatsEachSecondAsThePartOfTheVehicleThatItIs(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil, func(b *lineBench) { b.system = 42 })
		time.Sleep(3500 * time.Millisecond)
		b.say(px4Beat())
		time.Sleep(7 * time.Second)
		all := b.messages(func(m lineMessage) bool { _, ok := m.msg.(*common.MessageHeartbeat); return ok })
		want := common.MessageHeartbeat{
			Type: common.MAV_TYPE_ONBOARD_CONTROLLER, Autopilot: common.MAV_AUTOPILOT_INVALID,
			SystemStatus: common.MAV_STATE_ACTIVE, MavlinkVersion: 3,
		}
		// The port is reopened once in this time: nobody beats.
		if n := len(all); n < 10 || n > 12 {
			t.Errorf("%d heartbeats in 10.5 s", n)
		}
		for i, m := range all {
			system := byte(1)
			if m.at.Sub(b.start) > 3500*time.Millisecond {
				system = 42
			}
			lineEqual(t, "heartbeat", *m.msg.(*common.MessageHeartbeat), want)
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{system, 191})
			if i > 0 && m.at.Sub(all[i-1].at) > 1100*time.Millisecond {
				t.Errorf("%v between two heartbeats", m.at.Sub(all[i-1].at))
			}
		}
	})
}

func TestTheKnockComesRightBeforeAPX4CommandAndNeverOnArduPilot(t *testing.T) {
	for name, c := range map[string]struct {
		beat   *common.MessageHeartbeat
		knocks int
	}{"px4": {px4Beat(), 1}, "copter": {copterBeat(), 0}} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, c.beat)
				b.settle()
				b.follow(func(id uint16, _ int) { b.ack(time.Millisecond, id, ackAccepted) })
				before := len(b.messages(isBeat(minimal.MAV_TYPE_GCS)))
				lineEqual(t, "knocks without a command", before, 0)
				o := <-b.command(armIt)
				lineEqual(t, "error", o.err, nil)
				all := b.messages(func(lineMessage) bool { return true })
				knocks := b.messages(isBeat(minimal.MAV_TYPE_GCS))
				lineEqual(t, "knocks", len(knocks), c.knocks)
				first := slices.IndexFunc(all, func(m lineMessage) bool {
					l, ok := m.msg.(*common.MessageCommandLong)
					return ok && uint16(l.Command) == cmdArm
				})
				if c.knocks > 0 {
					m := all[first-1]
					lineEqual(t, "the message before the command is a knock", isBeat(minimal.MAV_TYPE_GCS)(m), true)
					lineEqual(t, "its sender", [2]byte{m.system, m.component}, [2]byte{1, 190})
				}
			})
		})
	}
}

func TestGCSMakesTheLinkAGroundStationEachSecond(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.gcs = true })
		time.Sleep(10500 * time.Millisecond)
		own, station := b.messages(isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)), b.messages(isBeat(minimal.MAV_TYPE_GCS))
		lineEqual(t, "own heartbeats", len(own), 11)
		lineEqual(t, "ground station's heartbeats", len(station), 11)
		for _, m := range station {
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{1, 190})
		}
	})
}

// ---- The vehicle ----

func TestTheFirstAutopilotIsTheVehicleAndOthersAreIgnored(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil)
		time.Sleep(100 * time.Millisecond)
		gimbal := &common.MessageHeartbeat{Type: common.MAV_TYPE_GIMBAL, Autopilot: common.MAV_AUTOPILOT_INVALID, MavlinkVersion: 3}
		station := &common.MessageHeartbeat{Type: common.MAV_TYPE_GCS, Autopilot: common.MAV_AUTOPILOT_INVALID, MavlinkVersion: 3}
		b.sayFrom(3, 154, gimbal)
		b.sayFrom(255, 190, station)
		b.sayFrom(255, 1, station)
		b.sayFrom(4, 2, px4Beat())     // not the autopilot's component
		b.sayFrom(0, 1, px4Beat())     // nobody's system
		b.sayFrom(5, 1, attitudeAt(1)) // not a heartbeat
		time.Sleep(100 * time.Millisecond)
		s := b.status()
		lineEqual(t, "vehicle after heartbeats of no autopilot", s.tel.system, 0)
		lineEqual(t, "online", s.tel.online, false)
		if !s.tel.attitude.at.IsZero() {
			t.Error("an attitude came from nobody")
		}

		b.sayFrom(7, 1, copterBeat())
		b.sayFrom(7, 1, &common.MessageGlobalPositionInt{Lat: 70000000, Lon: 80000000, RelativeAlt: 9000})
		b.sayFrom(8, 1, beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(4, 5), true))
		b.sayFrom(8, 1, &common.MessageGlobalPositionInt{Lat: 10000000, Lon: 10000000})
		b.sayFrom(7, 154, gimbal)
		b.sayFrom(7, 154, &common.MessageGlobalPositionInt{Lat: 20000000, Lon: 10000000})
		b.sayFrom(7, 154, &common.MessageStatustext{Text: "gimbal"})
		time.Sleep(100 * time.Millisecond)
		s = b.status()
		lineEqual(t, "vehicle", s.tel.system, 7)
		lineEqual(t, "autopilot", s.tel.autopilot, "ardupilot")
		lineEqual(t, "armed", s.tel.armed, false)
		lineNear(t, "latitude", s.tel.position.lat, 7, 7)
		lineEqual(t, "texts", s.tel.count, 0)
	})
}

func TestTheSystemFlagChoosesTheVehicle(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.link.system = 7 })
		time.Sleep(2500 * time.Millisecond)
		s := b.status()
		lineEqual(t, "vehicle", s.tel.system, 0)
		b.sayFrom(7, 1, copterBeat())
		time.Sleep(100 * time.Millisecond)
		s = b.status()
		lineEqual(t, "vehicle", s.tel.system, 7)
		lineEqual(t, "autopilot", s.tel.autopilot, "ardupilot")
		for _, m := range b.messages(func(m lineMessage) bool { return m.component == 191 }) {
			lineEqual(t, "our system", m.system, 7)
		}
	})
}

func TestTheVehicleIsOfflineAfterThreeSecondsWithoutAHeartbeat(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil)
		time.Sleep(50 * time.Millisecond)
		online := func() bool { s := b.status(); return s.tel.online }
		for range 20 {
			b.say(px4Beat())
			for range 29 { // other messages don't count
				time.Sleep(100 * time.Millisecond)
				b.say(attitudeAt(1))
				synctest.Wait()
				if !online() {
					t.Fatal("offline within 2.9 s")
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		lineEqual(t, "online 3.1 s after the last heartbeat", online(), false)
		o := <-b.command(armIt)
		lineEqual(t, "a command's code while offline", o.code(), codeOffline)
		lineEqual(t, "its time", o.took, 0)
		b.say(px4Beat())
		synctest.Wait()
		lineEqual(t, "online at the next heartbeat", online(), true)
	})
}

// asked counts what the greeting asked for: message intervals, and messages.
func (b *lineBench) asked() map[string]int {
	count := make(map[string]int)
	for _, id := range []common.MAV_CMD{common.MAV_CMD_SET_MESSAGE_INTERVAL, common.MAV_CMD_REQUEST_MESSAGE} {
		for _, m := range b.commands(id) {
			count[fmt.Sprintf("%d of %g", id, m.msg.(*common.MessageCommandLong).Param1)]++
		}
	}
	return count
}

func TestTheVehicleIsAskedAgainWhenItComesBackAndWhenItRestarted(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.boot = 1000 })
		want := func(when string, n int) {
			t.Helper()
			asked := b.asked()
			for _, what := range []string{"511 of 33", "511 of 30", "511 of 245", "511 of 74", "511 of 24", "511 of 1", "511 of 242", "512 of 242", "512 of 148"} {
				if asked[what] != n {
					t.Errorf("%s: asked %s %d times, want %d; all: %v", when, what, asked[what], n, asked)
				}
			}
			if len(asked) != 9 {
				t.Errorf("%s: asked %v", when, asked)
			}
		}
		b.settle()
		want("at first", 1)
		time.Sleep(20 * time.Second)
		want("later", 1)

		b.change(func() { b.beat = nil })
		for range 35 {
			time.Sleep(100 * time.Millisecond)
			b.say(attitudeAt(90_000)) // the port is not silent
		}
		want("while offline", 1)
		b.change(func() { b.beat, b.boot = px4Beat(), 91_000 })
		time.Sleep(2 * time.Second)
		want("back online", 2)

		b.say(attitudeAt(95_000))
		b.say(attitudeAt(94_200)) // late on UDP
		b.change(func() { b.boot = 96_000 })
		time.Sleep(time.Second)
		want("a frame that came late", 2)
		b.change(func() { b.boot = 3000 })
		time.Sleep(2 * time.Second)
		want("the clock ran backwards", 3)
		time.Sleep(20 * time.Second)
		want("later still", 3)
		b.change(func() { b.boot = 0 })
		time.Sleep(12 * time.Second)
		want("the streams ended", 4)
	})
}

func TestAVehicleThatDoesNotAnswerTheGreetingIsAskedUntilItDoes(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat(), func(b *lineBench) { b.deaf, b.boot = true, 1000 })
		time.Sleep(time.Minute)
		n := len(b.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL))
		if n < 21 {
			t.Errorf("asked for intervals %d times in a minute", n)
		}
		b.change(func() { b.deaf = false })
		time.Sleep(time.Minute)
		n = len(b.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL))
		time.Sleep(time.Minute)
		lineEqual(t, "more questions after the answers", len(b.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL))-n, 0)
	})
}

// countedPort counts what comes in.
type countedPort struct {
	port
	n *atomic.Int64
}

func (p countedPort) Read(b []byte) (int, error) {
	n, err := p.port.Read(b)
	p.n.Add(int64(n))
	return n, err
}

func TestTheMessagesAskedForTakeLessThanHalfOfALinkAt57600(t *testing.T) {
	const half = 57600 / 10 / 2 // bytes a second
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		// The whole payload: a trailing zero is not sent, but who knows.
		sizes := map[uint32]float64{1: 43, 24: 52, 30: 28, 33: 28, 74: 20, 242: 60, 245: 2}
		sum := 1.0 * (9 + 12)
		for _, m := range b.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL) {
			c := m.msg.(*common.MessageCommandLong)
			size, ok := sizes[uint32(c.Param1)]
			if !ok || c.Param2 <= 0 {
				t.Fatalf("asked for message %g each %g µs", c.Param1, c.Param2)
			}
			sum += (size + 12) * 1e6 / float64(c.Param2)
		}
		if sum >= half || sum < 500 {
			t.Errorf("%.0f bytes a second were asked for, want less than %d", sum, half)
		}
	})
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "ardupilot": simArduPilot} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				var count atomic.Int64
				s := newSimulator(flavour)
				l := newDrone(device{name: "sim", open: func(context.Context) (port, error) {
					p, err := s.open()
					return countedPort{p, &count}, err
				}, baud: func() int { return 0 }}, 0, false)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { s.run(ctx) })
				running.Go(func() { l.run(ctx) })
				time.Sleep(10 * time.Second)
				before := count.Load()
				time.Sleep(20 * time.Second)
				if rate := (count.Load() - before) / 20; rate >= half || rate < 500 {
					t.Errorf("%d bytes a second, want less than %d", rate, half)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

// ---- The port ----

func TestAPortThatDoesNotOpenIsTriedAgainAfterMoreAndMoreTime(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		var tries []time.Duration
		start := time.Now()
		l := newDrone(device{name: "none", open: func(ctx context.Context) (port, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			tries = append(tries, time.Since(start))
			return nil, os.ErrNotExist
		}, baud: func() int { return 0 }}, 0, false)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l.run(ctx)
		want := "[0s 100ms 300ms 700ms 1.5s 3.1s 5.1s 7.1s 9.1s]"
		lineEqual(t, "tries", fmt.Sprint(tries), want)
	})
}

func TestASilentPortIsReopenedAfterFiveSecondsThoughNoiseComes(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil)
		for range 119 {
			time.Sleep(50 * time.Millisecond)
			b.change(func() { b.feed([]byte{frame.V2MagicByte, 9, 0, 1, 2, 3}) })
		}
		b.change(func() {
			if len(b.opens) != 2 {
				t.Fatalf("opened %d times in 6 s", len(b.opens))
			}
			if d := b.opens[1].Sub(b.opens[0]); d < 5*time.Second || d > 5300*time.Millisecond {
				t.Errorf("reopened after %v", d)
			}
		})
		// A heartbeat each 4.9 s is enough.
		for range 10 {
			b.say(px4Beat())
			time.Sleep(4900 * time.Millisecond)
		}
		b.change(func() { lineEqual(t, "opened", len(b.opens), 2) })
	})
}

func TestAWriteThatHangsIsADeadPortAfterTwoSeconds(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.change(func() { b.cable.stall = make(chan struct{}) })
		hung := time.Now()
		o := <-b.command(armIt)
		lineEqual(t, "code", o.code(), codeNoAck)
		lineEqual(t, "time until the answer", o.took, 2*time.Second)
		time.Sleep(time.Second)
		b.change(func() {
			if len(b.opens) != 2 {
				t.Fatalf("opened %d times", len(b.opens))
			}
			if d := b.opens[1].Sub(hung); d < 2*time.Second || d > 2300*time.Millisecond {
				t.Errorf("reopened %v after the write began to hang", d)
			}
		})
		b.follow(func(id uint16, _ int) { b.ack(time.Millisecond, id, ackAccepted) })
		time.Sleep(2 * time.Second)
		o = <-b.command(disarmIt)
		lineEqual(t, "code on the new port", o.code(), "")
	})
}

// halfDead is a port whose other end has ended and takes nothing more.
type halfDead struct {
	ended, closed chan struct{}
	once          sync.Once
}

func (p *halfDead) Read([]byte) (int, error)  { <-p.ended; return 0, io.EOF }
func (p *halfDead) Write([]byte) (int, error) { <-p.closed; return 0, io.ErrClosedPipe }
func (p *halfDead) Close() error              { p.once.Do(func() { close(p.closed) }); return nil }

func TestAPortThatEndsWhileAWriteHangsIsOpenedAgain(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		p := &halfDead{ended: make(chan struct{}), closed: make(chan struct{})}
		var opens atomic.Int64
		l := newDrone(device{name: "half", baud: func() int { return 0 }, open: func(context.Context) (port, error) {
			if opens.Add(1) == 1 {
				return p, nil
			}
			return nil, io.EOF
		}}, 0, false)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx) })
		time.Sleep(500 * time.Millisecond) // the first heartbeat hangs
		close(p.ended)
		time.Sleep(writeHangs + time.Second)
		if opens.Load() < 2 {
			t.Errorf("opened %d times", opens.Load())
		}
		cancel()
		running.Wait()
	})
}

func TestAPortLostBetweenSendAndAckIsNoAckAndTheNextCommandWorks(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.follow(func(uint16, int) { b.change(func() { b.cable.Close() }) })
		o := <-b.command(armIt)
		lineEqual(t, "code", o.code(), codeNoAck)
		lineEqual(t, "time until the answer", o.took, 2*time.Second)
		b.follow(func(id uint16, _ int) { b.ack(time.Millisecond, id, ackAccepted) })
		time.Sleep(5 * time.Second)
		o = <-b.command(landHere)
		lineEqual(t, "code on the new port", o.code(), "")
	})
}

// ---- A serial line: a pseudo-terminal ----

// waitUntil waits for what real time brings: the deadline only ends a test
// that has failed already.
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

// pty is a pseudo-terminal: the master is the autopilot's end of the line.
type pty struct {
	master *os.File
	keeper *os.File // an open slave, so that the master can be read before and after the link's
	path   string   // of the slave
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	if err := c.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
	}); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

func openPTY(t *testing.T) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var unlocked, number int32
	err = errors.Join(ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)), ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&number)))
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{master: master, path: fmt.Sprintf("/dev/pts/%d", number)}
	if p.keeper, err = os.OpenFile(p.path, os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	// As raw as a wire: nothing that comes before the link opens it is echoed.
	var raw syscall.Termios
	if err := ioctl(p.keeper, syscall.TCGETS, unsafe.Pointer(&raw)); err != nil {
		t.Fatal(err)
	}
	raw.Iflag, raw.Oflag, raw.Lflag = 0, 0, 0
	if err := ioctl(p.keeper, syscall.TCSETS, unsafe.Pointer(&raw)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.unplug)
	return p
}

// unplug ends the line. It may be called twice.
func (p *pty) unplug() {
	p.master.Close()
	p.keeper.Close()
}

// speeds are the baud rates of the search by their CBAUD bits.
var speeds = map[uint32]int{
	syscall.B57600: 57600, syscall.B115200: 115200, syscall.B230400: 230400, syscall.B460800: 460800,
	syscall.B500000: 500000, syscall.B921600: 921600, syscall.B1500000: 1500000,
}

// speed is the slave's, as the link set it.
func (p *pty) speed(t *testing.T) int {
	t.Helper()
	var line syscall.Termios
	if err := ioctl(p.master, syscall.TCGETS, unsafe.Pointer(&line)); err != nil {
		t.Fatal(err)
	}
	const cbaud = 0o10017
	return speeds[line.Cflag&cbaud]
}

// fly puts a simulated autopilot at the master's end, until the test ends.
func (p *pty) fly(t *testing.T, s *simulator) (end func()) {
	t.Helper()
	cable, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { io.Copy(p.master, struct{ io.Reader }{cable}) })
	running.Go(func() { io.Copy(struct{ io.Writer }{cable}, p.master) })
	end = func() {
		cable.Close()
		p.unplug()
		running.Wait()
	}
	t.Cleanup(end)
	return end
}

// runDevice runs a link on a device; end waits until it is all gone.
func runDevice(t *testing.T, d device) (l *drone, end func()) {
	t.Helper()
	quietLink()
	l = newDrone(d, 0, false)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("the link panicked: %v\n%s", r, debug.Stack())
			}
		}()
		l.run(ctx)
	})
	end = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(end)
	return l, end
}

// runSimulator runs a simulator in real time until the test ends.
func runSimulator(t *testing.T, flavour simFlavour) *simulator {
	t.Helper()
	s := newSimulator(flavour)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

func mustDevice(t *testing.T, name string, baud int) device {
	t.Helper()
	d, err := newDevice(name, baud)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// hearsVehicle tells whether the link hears its vehicle.
func (l *drone) hearsVehicle() bool {
	s := l.status()
	return s.tel.online
}

func TestACommandGoesOverARealSerialLine(t *testing.T) {
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "ardupilot": simArduPilot} {
		t.Run(name, func(t *testing.T) {
			p := openPTY(t)
			p.fly(t, runSimulator(t, flavour))
			d := mustDevice(t, p.path, 57600)
			if err := d.check(); err != nil {
				t.Fatal(err)
			}
			l, _ := runDevice(t, d)
			waitUntil(t, "a heartbeat came", l.hearsVehicle)
			a, err := l.do(request{setMode: true, mode: ModeHold})
			if err != nil || a.mode != ModeHold || a.command != cmdSetMode {
				t.Errorf("answered %+v, %v", a, err)
			}
			lineEqual(t, "line speed", p.speed(t), 57600)
			s := l.status()
			lineEqual(t, "baud in the status", s.baud, 57600)
			lineEqual(t, "device in the status", s.device, p.path)
			waitUntil(t, "a position came", func() bool { s := l.status(); return !math.IsNaN(s.tel.position.lat) })
		})
	}
}

// drain reads what the link sent within a moment.
func (p *pty) drain(into *[]byte) {
	p.master.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	b := make([]byte, 4096)
	for {
		n, err := p.master.Read(b)
		*into = append(*into, b[:n]...)
		if err != nil {
			return
		}
	}
}

func TestTheBaudRateIsFoundAndNothingButAHeartbeatATurnIsSentBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial0")
	plug := func(p *pty) {
		t.Helper()
		if err := os.Symlink(p.path, path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	first := openPTY(t)
	plug(first)
	d := mustDevice(t, path, 0)
	l, _ := runDevice(t, d)
	// heard takes what the link sent so far.
	heard := func(p *pty, line *[]byte) (list []lineMessage) {
		p.drain(line)
		for _, f := range checkedFrames(*line) {
			list = append(list, parseLine((*line)[f.offset:f.end])...)
		}
		return list
	}
	// The autopilot speaks at 57600 baud; at another rate the link gets what a
	// receiver makes of that. 921600 is the first rate of the search.
	noise := rand.New(rand.NewPCG(5, 6))
	var line []byte
	var before []lineMessage // 57600 baud was set
	began := time.Now()
	waitUntil(t, "the link is at 57600 baud and has sent its heartbeat before that", func() bool {
		before = heard(first, &line)
		if first.speed(t) == 57600 && len(before) > 0 {
			return true
		}
		garbage := make([]byte, 40)
		for i := range garbage {
			garbage[i] = byte(noise.Uint32())
		}
		first.master.Write(garbage)
		return false
	})
	size := 0
	for _, f := range checkedFrames(line) {
		size += f.end - f.offset
	}
	lineEqual(t, "bytes that are no frame", len(line)-size, 0)
	if turns := int(time.Since(began) / baudListen); len(before) > turns {
		t.Errorf("%d messages in %d turns", len(before), turns)
	}
	for i, m := range before {
		lineEqual(t, "it is our heartbeat", isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)(m) && m.component == 191, true)
		lineEqual(t, "sequence", m.seq, byte(i))
	}
	var seq byte
	waitUntil(t, "the link is online", func() bool {
		heard(first, &line)
		if first.speed(t) == 57600 {
			seq++
			first.master.Write(packet(seq, 1, 1, copterBeat()))
		}
		return l.hearsVehicle()
	})
	s := l.status()
	lineEqual(t, "baud in the status", s.baud, 57600)

	// Plugged in again, the rate that was good is tried first: any would do now.
	second := openPTY(t)
	plug(second)
	received := s.received
	first.unplug()
	waitUntil(t, "frames come again", func() bool {
		seq++
		second.master.Write(packet(seq, 1, 1, copterBeat()))
		second.drain(&line)
		return l.status().link.received > received
	})
	s = l.status()
	lineEqual(t, "baud in the status, the second time", s.baud, 57600)
}

func TestAnUnpluggedLineIsReopenedWhenItIsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial0")
	s := runSimulator(t, simPX4)
	p := openPTY(t)
	end := p.fly(t, s)
	if err := os.Symlink(p.path, path); err != nil {
		t.Fatal(err)
	}
	d := mustDevice(t, path, 57600)
	var missed atomic.Int32
	open := d.open
	d.open = func(ctx context.Context) (port, error) {
		p, err := open(ctx)
		if err != nil {
			missed.Add(1)
		}
		return p, err
	}
	l, _ := runDevice(t, d)
	for range 3 {
		waitUntil(t, "the link is online", l.hearsVehicle)
		was := missed.Load()
		os.Remove(path)
		end()
		waitUntil(t, "the path was missed", func() bool { return missed.Load() > was })
		p = openPTY(t)
		end = p.fly(t, s)
		if err := os.Symlink(p.path, path); err != nil {
			t.Fatal(err)
		}
		received := l.status().link.received
		waitUntil(t, "frames come again", func() bool { return l.status().link.received > received })
	}
	waitUntil(t, "the link is online at the end", l.hearsVehicle)
	if _, err := l.do(holdHere); err != nil {
		t.Error(err)
	}
}

// descriptors counts this process's open files.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// nothingLeft calls f and checks that no goroutine and no descriptor stays.
func nothingLeft(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	openPTY(t).unplug()                              // the runtime's own poller opens with the first
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close what was forgotten
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	f(t)
	waitUntil(t, fmt.Sprintf("there are %d goroutines and %d descriptors again", goroutines, files), func() bool {
		return runtime.NumGoroutine() <= goroutines && descriptors(t) <= files
	})
}

func TestALineThatNobodyDrainsIsAbandonedAndLeavesNothing(t *testing.T) {
	nothingLeft(t, func(t *testing.T) {
		p := openPTY(t)
		d := mustDevice(t, p.path, 57600)
		var opens atomic.Int32
		open := d.open
		d.open = func(ctx context.Context) (port, error) {
			opens.Add(1)
			return open(ctx)
		}
		l, end := runDevice(t, d)
		var seq byte
		waitUntil(t, "the link has abandoned the port three times", func() bool {
			seq++
			p.master.Write(packet(seq, 1, 1, copterBeat())) // it is not silence that ends it
			l.mu.Lock()
			for l.send(componentID, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)) == nil {
			}
			l.mu.Unlock()
			return opens.Load() > 3
		})
		lineEqual(t, "the link hears its vehicle", l.hearsVehicle(), true)
		end()
		p.unplug()
	})
}

func TestALinkThatEndsWhileAWriteHangsLeavesNothing(t *testing.T) {
	nothingLeft(t, func(t *testing.T) {
		p := openPTY(t)
		l, end := runDevice(t, mustDevice(t, p.path, 57600))
		full := 0 // looks in a row at a queue that nobody takes from
		waitUntil(t, "a write hangs", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			full++
			for l.send(componentID, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)) == nil {
				full = 0
			}
			return full > 20 && l.conn != nil && l.conn.writing.Load() != 0
		})
		end()
		p.unplug()
	})
}

// Another program that reads the same line takes bytes that the link was told
// of: that is no end of the line, and holds nothing up.
func TestASecondReaderOfTheLineDoesNotHoldTheLink(t *testing.T) {
	for range 5 {
		p := openPTY(t)
		q, err := mustDevice(t, p.path, 57600).open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		thief, err := os.OpenFile(p.path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		var closing atomic.Bool
		var taken atomic.Int64
		var readers sync.WaitGroup
		for _, r := range []io.Reader{q, thief} {
			readers.Go(func() {
				b := make([]byte, 100)
				for {
					n, err := r.Read(b)
					taken.Add(int64(n))
					if err != nil {
						if !closing.Load() {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		for i := range int64(500) {
			if _, err := p.master.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
			for taken.Load() <= i && !t.Failed() { // then both wait again
				runtime.Gosched()
			}
		}
		closing.Store(true)
		q.Close()
		thief.Close()
		readers.Wait() // or the test times out
		p.unplug()
	}
}

// What the kernel does not take at once goes out when it does.
func TestALongWriteGoesOutWhole(t *testing.T) {
	p := openPTY(t)
	q, err := mustDevice(t, p.path, 57600).open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	long := make([]byte, 100_000)
	for i := range long {
		long[i] = byte(i % 251)
	}
	wrote := make(chan error, 1)
	go func() {
		n, err := q.Write(long)
		if n != len(long) && err == nil {
			err = fmt.Errorf("wrote %d of %d bytes", n, len(long))
		}
		wrote <- err
	}()
	got := make([]byte, len(long))
	if _, err := io.ReadFull(p.master, got); err != nil || !bytes.Equal(got, long) {
		t.Errorf("other bytes came, %v", err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestManyOpensLeaveNothing(t *testing.T) {
	nothingLeft(t, func(t *testing.T) {
		p := openPTY(t)
		for _, path := range []string{p.path, "/dev/null", "/nowhere"} {
			d := mustDevice(t, path, 57600)
			for range 1000 {
				q, err := d.open(t.Context())
				if path == p.path && err != nil {
					t.Fatal(err)
				}
				if err == nil {
					q.Close()
				}
			}
		}
		p.unplug()
	})
}

// refusedStart starts the built program and returns the line it dies with.
func refusedStart(t *testing.T, program string, as uint32, device string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // one that starts must be ended
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-device", device, "-baud", "57600", "-bind", "127.0.0.1", "-port", "0")
	cmd.Dir = "/"
	if as != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: as, Gid: as}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("-device %s: ended with %v, want exit code 1", device, err)
	}
	text := stderr.String()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Errorf("-device %s: said %q, want one line", device, text)
	}
	return strings.TrimSpace(text)
}

func TestADeviceThatCanNotBeOpenedEndsTheProgramWithOneLineThatSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "mavrest")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p, busy := openPTY(t), openPTY(t)
	held, err := mustDevice(t, busy.path, 57600).open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	var nobody uint32
	if os.Getuid() == 0 { // root may open everything
		nobody = 65534
		for d := dir; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(p.path, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		device string
		as     uint32
		says   string
	}{
		{"/dev/nowhere", 0, "there is no such device; check the wiring"},
		{"/dev/null", 0, "this is not a serial port"},
		{busy.path, 0, "in use by another program; stop it first (fuser " + busy.path},
		{p.path, nobody, "no permission; add this user to the device's group: sudo usermod -aG dialout "},
	} {
		got := refusedStart(t, program, c.as, c.device)
		if want := "mavrest: -device " + c.device + ": " + c.says; !strings.HasPrefix(got, want) {
			t.Errorf("said %q, want %q", got, want)
		}
	}
}

// ---- UDP and TCP ----

// vehicleSocket is a vehicle at the other end of a network link.
type vehicleSocket struct {
	net.Conn
	seq byte
}

func (v *vehicleSocket) say(t *testing.T, m message.Message) {
	t.Helper()
	v.seq++
	if _, err := v.Write(packet(v.seq, 1, 1, m)); err != nil {
		t.Fatal(err)
	}
}

// hears reads until the link's message that f wants.
func (v *vehicleSocket) hears(t *testing.T, f func(lineMessage) bool) {
	t.Helper()
	v.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 4096)
	for {
		n, err := v.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(parseLine(b[:n]), f) {
			return
		}
	}
}

// has tells whether a datagram waits at a socket.
func has(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	waits := false
	raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_DONTWAIT|syscall.MSG_PEEK)
		waits = err == nil && n > 0
	})
	return waits
}

// udpBench is a link that listens on UDP.
type udpBench struct {
	*drone
	address atomic.Pointer[string]
	opens   atomic.Int32
}

func listenForVehicles(t *testing.T) *udpBench {
	t.Helper()
	b := &udpBench{}
	d := mustDevice(t, "udpin://127.0.0.1:0", 0)
	open := d.open
	d.open = func(ctx context.Context) (port, error) {
		p, err := open(ctx)
		if err == nil {
			address := p.(*udpPort).LocalAddr().String()
			b.address.Store(&address)
			b.opens.Add(1)
		}
		return p, err
	}
	b.link, _ = runDevice(t, d)
	waitUntil(t, "the link listens", func() bool { return b.address.Load() != nil })
	return b
}

func (b *udpBench) dial(t *testing.T) *vehicleSocket {
	t.Helper()
	c, err := net.Dial("udp", *b.address.Load())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &vehicleSocket{Conn: c}
}

// seen waits until the link has heard everything that v sent so far.
func (b *udpBench) seen(t *testing.T, v *vehicleSocket, mark uint32) {
	t.Helper()
	v.say(t, &common.MessageAttitude{TimeBootMs: 1, Pitch: float32(mark)})
	waitUntil(t, fmt.Sprintf("mark %d came", mark), func() bool {
		s := b.status()
		return math.Round(s.tel.attitude.pitch*math.Pi/180) == float64(mark)
	})
}

// mark is a message of the link that a test can tell from all others.
func (b *udpBench) mark(n int16) func(lineMessage) bool {
	b.mu.Lock()
	b.link.send(componentID, &common.MessageManualControl{Target: 1, X: n})
	b.mu.Unlock()
	return func(m lineMessage) bool {
		c, ok := m.msg.(*common.MessageManualControl)
		return ok && c.X == n
	}
}

func TestStrangersOnUDPDoNotStealTheLink(t *testing.T) {
	beat := px4Beat()
	half := packet(9, 1, 1, attitudeAt(1))
	for name, datagrams := range map[string][][]byte{
		"noise":                          {[]byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{frame.V2MagicByte}, 1400)},
		"nothing":                        {{}, {}},
		"another vehicle":                {packet(1, 2, 1, beat)},
		"a ground station":               {packet(1, 255, 190, heartbeat(minimal.MAV_TYPE_GCS))},
		"a companion of the same system": {packet(1, 1, 191, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))},
		"the vehicle's other messages":   {packet(1, 1, 1, attitudeAt(1))},
		"a frame that claims 255 bytes":  {wireFrame{system: 1, component: 1, claims: 255}.bytes()},
		"half a frame":                   {half[:20]},
	} {
		t.Run(name, func(t *testing.T) {
			b := listenForVehicles(t)
			vehicle, stranger := b.dial(t), b.dial(t)
			stranger.Write(packet(1, 255, 190, heartbeat(minimal.MAV_TYPE_GCS)))
			vehicle.say(t, beat)
			b.seen(t, vehicle, 1)
			for range 3 {
				for _, d := range datagrams {
					stranger.Write(d)
					vehicle.say(t, beat)
				}
			}
			for _, d := range datagrams {
				stranger.Write(d)
			}
			b.seen(t, vehicle, 2)
			vehicle.hears(t, b.mark(77))
			lineEqual(t, "a datagram went to the stranger", has(t, stranger.Conn), false)
			lineEqual(t, "times that the port was opened", b.opens.Load(), 1)
		})
	}
}

// A datagram holds whole frames: a half one must not make a stranger the
// sender of the frame that ends in the datagram before.
func TestAStrangersHalfFrameDoesNotMakeTheVehiclesHeartbeatHis(t *testing.T) {
	b := listenForVehicles(t)
	vehicle, stranger := b.dial(t), b.dial(t)
	vehicle.say(t, px4Beat())
	b.seen(t, vehicle, 1)
	stranger.Write(wireFrame{system: 1, component: 1, payload: make([]byte, 50), claims: 120}.bytes())
	vehicle.say(t, px4Beat())
	stranger.Write(make([]byte, 300))
	b.seen(t, vehicle, 2)
	vehicle.hears(t, b.mark(78))
	lineEqual(t, "a datagram went to the stranger", has(t, stranger.Conn), false)
}

// What waited behind a half frame is read when the port ends: by then there is
// no sender.
func TestAHeartbeatThatIsReadWhenAUDPPortEndsChangesNothing(t *testing.T) {
	opened, err := listenUDP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := opened.(*udpPort)
	vehicle, err := net.Dial("udp", p.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer vehicle.Close()
	vehicle.Write([]byte{1})
	b := make([]byte, 10)
	if _, err := p.Read(b); err != nil {
		t.Fatal(err)
	}
	p.heard()
	p.Close()
	if n, err := p.Read(b); err == nil {
		t.Fatalf("read %d bytes from a closed port", n)
	}
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panic: %v", r)
		}
	}()
	p.heard()
	lineEqual(t, "peer", (*p.peer.Load()).String(), vehicle.LocalAddr().String())
}

// Most autopilots put each frame into a datagram of its own.
func TestUnknownMessagesInDatagramsOfTheirOwnAreHeardAndNotLost(t *testing.T) {
	b := listenForVehicles(t)
	vehicle := b.dial(t)
	vehicle.say(t, px4Beat())
	for range 50 {
		vehicle.seq++
		vehicle.Write(unknownPacket(vehicle.seq, 20))
		vehicle.say(t, attitudeAt(1))
	}
	b.seen(t, vehicle, 1)
	s := b.status()
	lineEqual(t, "frames received", s.received, 102)
	lineEqual(t, "frames lost", s.lost, 0)
	lineEqual(t, "errors", s.errors, 0)
}

func TestAVehicleThatComesFromAnotherUDPPortIsFollowed(t *testing.T) {
	b := listenForVehicles(t)
	for i := range 3 {
		vehicle := b.dial(t)
		vehicle.say(t, px4Beat())
		b.seen(t, vehicle, uint32(i+1))
		vehicle.hears(t, b.mark(int16(100+i)))
	}
}

func TestUDPOutSpeaksFirstAndOutlivesAVehicleThatIsNotThere(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := c.LocalAddr().String()
	c.Close() // nobody is there yet
	d := mustDevice(t, "udpout://"+address, 0)
	var opens atomic.Int32
	open := d.open
	d.open = func(ctx context.Context) (port, error) {
		opens.Add(1)
		return open(ctx)
	}
	l, _ := runDevice(t, d)
	waitUntil(t, "the link tries again", func() bool { return opens.Load() > 2 })
	if c, err = net.ListenPacket("udp", address); err != nil {
		t.Skipf("the port was taken by somebody else: %v", err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 4096)
	n, from, err := c.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	heard := parseLine(b[:n])
	lineEqual(t, "the link's first message is its heartbeat", len(heard) == 1 && isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)(heard[0]), true)
	c.WriteTo(packet(1, 1, 1, px4Beat()), from)
	waitUntil(t, "the link is online", l.hearsVehicle)
}

func TestTCPIsConnectedAgainAfterThePeerHasClosed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l, end := runDevice(t, mustDevice(t, "tcp://"+listener.Addr().String(), 0))
	for range 3 {
		c, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		v := &vehicleSocket{Conn: c}
		received := l.status().link.received
		v.hears(t, isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		v.say(t, px4Beat())
		waitUntil(t, "the heartbeat came", func() bool { return l.status().link.received > received && l.hearsVehicle() })
		c.Close()
	}
	end()
}

func TestADeviceNameThatMakesNoSenseIsAnError(t *testing.T) {
	for _, name := range []string{"udpin://", "udpin://host", "udpout://1.2.3.4", "tcp://", "http://127.0.0.1:80", "serial:///dev/ttyS0:57600", "udp://:14540"} {
		if _, err := newDevice(name, 0); err == nil || !strings.HasPrefix(err.Error(), "-device "+name+": want ") {
			t.Errorf("-device %s: %v", name, err)
		}
	}
}

// ---- Anything at all ----

// FuzzFrames gives the link any bytes in any portions. Only frames whose
// checksum is right may reach it, and after a second of silence the next
// heartbeat must be read at once, whatever came before.
func FuzzFrames(f *testing.F) {
	quietLink()
	for _, name := range []string{"px4-flight.tlog", "ardupilot-flight.tlog"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(255), uint16(0), b[:400]) // the times in it are noise
	}
	place := &common.MessageGlobalPositionInt{TimeBootMs: 1, Lat: 473977420, Lon: 85455940, Alt: 1, Hdg: 1}
	ack := &common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: 191}
	text := &common.MessageStatustext{Text: strings.Repeat("x", 50), Id: 3, ChunkSeq: 2}
	flight := slices.Concat(packet(1, 1, 1, px4Beat()), packet(2, 1, 1, place), unknownPacket(3, 20), packet(4, 1, 1, ack), packet(5, 1, 1, text))
	f.Add(byte(255), uint16(0), flight)
	f.Add(byte(10), uint16(300), flight)
	f.Add(byte(0), uint16(1), slices.Concat(packet1(1, 1, 1, copterBeat()), packet1(2, 1, 1, place), packet1(3, 1, 1, ack), signedPacket(packet(4, 1, 1, place))))
	f.Add(byte(200), uint16(0), slices.Concat(flight, wireFrame{claims: 255}.bytes(), wireFrame{v1: true, claims: 255}.bytes()))
	// A frame whose missing end and checksum are the next heartbeat's first bytes.
	found, _ := hex.DecodeString("fd2c00004b010118000060c68300000000004152401c47f417000403020c1d0303f4cc00fd0200005c0101f500000001ceb0")
	f.Add(byte(163), uint16(58), found)
	f.Fuzz(fuzzFrames)
}

func fuzzFrames(t *testing.T, portion byte, pause uint16, data []byte) {
	l := newDrone(device{name: "fuzz", baud: func() int { return 0 }}, 0, false)
	l.stopped = true // no greeting
	acks := &waiter{acks: make(chan uint8, 1000), shown: make(chan struct{}, 1)}
	l.waiters[cmdArm] = acks
	c := &connection{}
	var in deframer
	var dec decoder
	now := time.Unix(1000, 0)
	var taken []wireFrame
	burst := func(b []byte) {
		for len(b) > 0 {
			n := copy(in.space(), b)
			if n == 0 {
				t.Fatal("no space for more bytes: a port would read nothing and be closed")
			}
			in.filled(n, now)
			b = b[n:]
			for f, ok := in.next(); ok; f, ok = in.next() {
				if f.known != nil {
					taken = append(taken, wireFrame{v1: !f.v2, seq: f.seq, system: f.system, component: f.component, id: f.id, payload: bytes.Clone(f.payload)})
				}
				l.take(c, &dec, f, now)
			}
		}
	}
	for rest := data; len(rest) > 0; now = now.Add(time.Duration(pause) * time.Millisecond) {
		n := min(len(rest), 1+int(portion))
		burst(rest[:n])
		rest = rest[n:]
	}

	// Every frame that was taken stands in the data, in this order.
	good, at := checkedFrames(data), 0
	expect := telemetryOf{lat: math.NaN(), lon: math.NaN()}
	for _, f := range taken {
		i := slices.IndexFunc(good, func(g wireFrame) bool { return g.offset >= at && g.key() == f.key() })
		if i < 0 {
			t.Fatalf("a frame was read that is not there: %s", f.key())
		}
		at = good[i].end
		expect.take(f)
	}
	s := l.status()
	lineEqual(t, "vehicle", s.tel.system, expect.system)
	lineNear(t, "latitude", s.tel.position.lat, expect.lat, 7)
	lineNear(t, "longitude", s.tel.position.lon, expect.lon, 7)
	if len(taken) == 0 && (l.version.Load() != 0 || s.tel.count != 0) {
		t.Error("the status changed without a frame")
	}
	if len(acks.acks) > expect.acks {
		t.Errorf("%d acks came out of %d", len(acks.acks), expect.acks)
	}
	for _, v := range []float64{s.tel.position.lat, s.tel.position.lon, s.tel.home.lat, s.tel.home.lon} {
		if math.IsInf(v, 0) {
			t.Error("a place is infinite")
		}
	}
	if _, err := encodeJSON(render(s)); err != nil {
		t.Errorf("the status can't be told: %v", err)
	}

	now = now.Add(time.Second)
	before := len(taken)
	beat := packet(1, 77, 1, px4Beat())
	burst(beat)
	if n := len(taken); n == before || taken[n-1].key() != checkedFrames(beat)[0].key() {
		t.Error("the heartbeat after a second of silence was not read")
	}
}

// telemetryOf is the little of the telemetry that the fuzzer works out itself.
type telemetryOf struct {
	system   byte
	lat, lon float64
	acks     int
}

func (e *telemetryOf) take(f wireFrame) {
	sizes := map[uint32]int{0: 9, 33: 28, 77: 3} // of version 1
	size, ok := sizes[f.id]
	if !ok || f.component != 1 || f.v1 && len(f.payload) != size {
		return
	}
	p := append(slices.Clone(f.payload), make([]byte, 30)...)
	if f.id == 0 && e.system == 0 && p[5] != 8 { // not MAV_AUTOPILOT_INVALID
		e.system = f.system
	}
	if e.system == 0 || f.system != e.system {
		return
	}
	switch f.id {
	case 33:
		lat, lon := int32(binary.LittleEndian.Uint32(p[4:])), int32(binary.LittleEndian.Uint32(p[8:]))
		e.lat, e.lon = float64(lat)/1e7, float64(lon)/1e7
		if lat == 0 && lon == 0 {
			e.lat, e.lon = math.NaN(), math.NaN()
		}
	case 77:
		if binary.LittleEndian.Uint16(p) == cmdArm {
			e.acks++
		}
	}
}
