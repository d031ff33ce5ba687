package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func TestFramesOfBothVersionsAndSignedOnesAreReadInTheirOrder(t *testing.T) {
	all := [][]byte{packet(1, 1, 1, px4Beat()), packet1(2, 7, 1, attitudeAt(7)),
		signedPacket(packet(3, 1, 1, attitudeAt(8))), packet(4, 9, 154, px4Beat())}
	for _, m := range dialectRW.Dialect.Messages { // which are all in crcExtras
		all = append(all, packet(5, 1, 1, m))
	}
	r := new(lineReader).feed(all...)
	r.expect(t, all...)
	lineEqual(t, "bytes of the frames, whole", r.bytes, len(bytes.Join(all, nil)))
	lineEqual(t, "one is signed", readFrame(t, all[2]).signed, true)
	lineEqual(t, "one that is not", readFrame(t, all[3]).signed, false)
	if r.in.errors != 0 {
		t.Errorf("%d errors on a clean line", r.in.errors)
	}
}

func TestAFrameWithUnknownIncompatibilityFlagsIsNotReadAndTheNextIs(t *testing.T) {
	good := packet(2, 1, 1, px4Beat())
	for _, flags := range []byte{2, 3, 4, 0x80, 0xff} {
		odd := wireFrame{incompat: flags, seq: 1, system: 1, component: 1, id: 0,
			payload: payloadOf(px4Beat(), true)}.bytes()
		new(lineReader).feed(odd, good).expect(t, good)
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
			r := new(lineReader)
			r.feedAndExpect(t, slices.Concat(burst...), a, b) // bytes that look like the start of a frame may wait
			if r.in.errors == 0 {
				t.Errorf("noise %s %s the frames was not counted", noise, name)
			}
		}
	}
	for size, want := range map[int]uint64{1: 1, 256: 1, 257: 2} {
		lineEqual(t, fmt.Sprint("errors in ", size, " bytes"), new(lineReader).feed(make([]byte, size)).in.errors, want)
	}
}

func TestAFrameThatNeverEndsDoesNotHoldBackTheNextHeartbeat(t *testing.T) {
	first, beat := packet(1, 1, 1, attitudeAt(1)), packet(2, 1, 1, px4Beat())
	claim := wireFrame{seq: 2, system: 1, component: 1, payload: []byte{1, 2, 3}, claims: 255}.bytes()
	claim1 := wireFrame{v1: true, seq: 2, system: 1, component: 1, payload: []byte{1, 2, 3}, claims: 255}.bytes()
	unknown := wireFrame{seq: 2, system: 1, component: 1, id: 141, payload: []byte{1, 2, 3}, claims: 255}.bytes()
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
			new(lineReader).feedAndExpect(t, slices.Concat(first, end, beat), first, beat)
		})
	}
}

// A broken frame delays the next ones until as many bytes have come as it claims.
func TestGoodFramesBehindABrokenOneWaitUntilItsClaimIsFilled(t *testing.T) {
	claim := wireFrame{seq: 2, system: 1, component: 1, payload: []byte{1, 2, 3}, claims: 255}.bytes()
	a, b := packet(1, 1, 1, attitudeAt(1)), packet(3, 1, 1, px4Beat())
	r := new(lineReader).feed(a, claim, b)
	r.expect(t, a)
	rest := 10 + 255 + 2 - len(claim) - len(b)
	r.feed(make([]byte, rest-1)).expect(t, a)
	r.feed(make([]byte, 1)).expect(t, a, b)
}

func TestADatagramBeginsWhereItsSendersLastOneEnded(t *testing.T) {
	a, b := addressed(1), addressed(2)
	claim := wireFrame{seq: 2, system: 1, component: 1, payload: []byte{1, 2, 3}, claims: 255}.bytes()
	one, two, beat := packet(1, 1, 1, attitudeAt(1)), packet(2, 1, 1, attitudeAt(2)), packet(3, 1, 1, px4Beat())
	unknown := unknownPacket(4, 20)
	carrier := wireFrame{seq: 5, system: 1, component: 1, id: 141, payload: slices.Concat(one, one)}.bytes()
	behind := len(carrier) - len(one)
	box := wireFrame{seq: 6, system: 1, component: 1, id: 141, payload: slices.Concat(unknown, one)}.bytes()
	lid := 10 + len(unknown)
	other := packet(7, 2, 1, px4Beat())
	for _, c := range []struct {
		name    string
		hear    func(d *datagrams)
		want    [][]byte
		unknown int
		errors  uint64
	}{
		{"a frame in two", func(d *datagrams) { d.hear(a, one[:20], one[20:]) }, [][]byte{one}, 0, 0},
		{"a frame in many", func(d *datagrams) { d.hear(a, slices.Collect(slices.Chunk(one, 1))...) }, [][]byte{one},
			0, 0},
		{"one ends and one begins", func(d *datagrams) {
			d.hear(a, one[:9], slices.Concat(one[9:], two[:5]),
				two[5:])
		}, [][]byte{one, two}, 0, 0},
		{"two senders at once", func(d *datagrams) {
			d.hear(a, one[:20]).hear(b, other[:7]).hear(a, one[20:]).hear(b,
				other[7:])
		}, [][]byte{one, other}, 0, 0},
		{"another sender's is not the end", func(d *datagrams) { d.hear(a, one[:20]).hear(b, one[20:]).hear(a, beat) },
			[][]byte{beat}, 0, 2},
		{"an unknown frame in two", func(d *datagrams) { d.hear(a, beat, unknown[:9], unknown[9:], one) },
			[][]byte{beat, one}, 1, 0},

		{"a whole frame behind a broken one", func(d *datagrams) { d.hear(a, slices.Concat(claim, one)) },
			[][]byte{one}, 0, 1},
		{"a whole one while one is not complete", func(d *datagrams) { d.hear(a, claim, one) }, [][]byte{one}, 0, 1},
		{"an unknown one while one is not complete", func(d *datagrams) { d.hear(a, claim, unknown) }, nil, 1, 1},
		{"known and unknown ones while one is not complete",
			func(d *datagrams) { d.hear(a, claim, slices.Concat(one, unknown, unknown)) }, [][]byte{one}, 2, 1},
		{"an end, and a whole one, while an earlier one is not complete",
			func(d *datagrams) { d.hear(a, claim, slices.Concat(one[20:], beat)) }, [][]byte{beat}, 0, 1},
		{"a broken one whose claim the next datagrams would fill",
			func(d *datagrams) { d.hear(a, slices.Concat(claim, one, two[:9]), two[9:]) }, [][]byte{one, two}, 0, 1},
		{"an unknown one that carries a frame, cut behind that",
			func(d *datagrams) { d.hear(a, carrier[:behind], carrier[behind:]) }, nil, 1, 0},
		{"an unknown one behind a broken one waits",
			func(d *datagrams) { d.hear(a, slices.Concat(claim, unknown), beat) }, [][]byte{beat}, 0, 1},
		{"an unknown one that is cut, behind one that is not complete",
			func(d *datagrams) { d.hear(a, claim, unknown[:12], unknown[12:], beat) }, [][]byte{beat}, 0, 1},
		{"an unknown one that carries an unknown one, cut behind that",
			func(d *datagrams) { d.hear(a, box[:lid], box[lid:]) }, nil, 1, 0},
		{"a byte behind a whole one", func(d *datagrams) { d.hear(a, slices.Concat(one, []byte("x"))) },
			[][]byte{one}, 0, 1},
		{"a byte ahead of an unknown one", func(d *datagrams) { d.hear(a, slices.Concat([]byte("x"), unknown)) },
			nil, 0, 1},
		{"a byte ahead of a whole and an unknown one",
			func(d *datagrams) { d.hear(a, slices.Concat([]byte("x"), one, unknown)) }, [][]byte{one}, 1, 1},
		{"a byte and a broken one ahead of them",
			func(d *datagrams) { d.hear(a, slices.Concat([]byte("x"), claim, one, unknown)) }, [][]byte{one}, 1, 1},
		{"noise, then an unknown one", func(d *datagrams) { d.hear(a, []byte("GET / HTTP/1.1"), unknown) }, nil, 1, 1},
		{"noise, then a whole one", func(d *datagrams) { d.hear(a, []byte("GET / HTTP/1.1"), beat) }, [][]byte{beat},
			0, 1},
		{"an empty one changes nothing", func(d *datagrams) { d.hear(a, one[:20], nil, one[20:]) }, [][]byte{one}, 0,
			0},
	} {
		d := newDatagrams()
		c.hear(d)
		t.Run(c.name, func(t *testing.T) {
			d.expect(t, c.want...)
			lineEqual(t, "unknown frames", d.unknown, c.unknown)
			lineEqual(t, "errors", d.in.errors, c.errors)
		})
	}
}

// A bridge cuts a serial line's stream where it likes: nothing is lost, whatever the size of its datagrams.
func TestAStreamThatABridgeCutsIsReadWhole(t *testing.T) {
	for _, size := range []int{1, 2, 7, 37, 64, 128, 200, 256, 300, 512, 1024, 1472, 5000, 60000} {
		var all [][]byte
		for i := range 400 {
			all = append(all, packet(byte(i), 1, 1, attitudeAt(uint32(i))))
			if i%3 == 0 {
				all = append(all, unknownPacket(byte(i), i%250), signedPacket(packet(byte(i), 1, 1, px4Beat())))
			}
		}
		d := newDatagrams().hear(addressed(1), slices.Collect(slices.Chunk(slices.Concat(all...), size))...)
		want := slices.DeleteFunc(slices.Clone(all), func(b []byte) bool { return len(checkedFrames(b)) == 0 })
		d.expect(t, want...)
		lineEqual(t, "bytes of the frames, whole", d.bytes, len(bytes.Join(all, nil)))
		lineEqual(t, fmt.Sprintf("unknown frames in datagrams of %d bytes", size), d.unknown, len(all)-len(want))
		lineEqual(t, "errors", d.in.errors, 0)
	}
}

func TestTheBeginningOfAFrameIsKeptHalfASecond(t *testing.T) {
	one, half := packet(1, 1, 1, attitudeAt(1)), 20
	for after, want := range map[time.Duration]int{pieceFor: 1, pieceFor + time.Millisecond: 0} {
		synctest.Test(t, func(t *testing.T) {
			d := newDatagrams().hear(addressed(1), one[:half])
			time.Sleep(after)
			d.hear(addressed(1), one[half:])
			lineEqual(t, fmt.Sprintf("frames %v later", after), len(d.known), want)
		})
	}
}

// Forged senders take no memory, and not the vehicle's piece.
func TestEightSendersKeepAPieceAndTheVehicleIsOneOfThem(t *testing.T) {
	one, half := packet(1, 1, 1, attitudeAt(1)), 20
	const others = 400
	for ahead := range uint16(keptPieces) {
		synctest.Test(t, func(t *testing.T) {
			d := newDatagrams()
			d.in.vehicle = addressed(1)
			for i := range uint16(others) {
				if i == ahead {
					d.hear(d.in.vehicle, one[:half])
					time.Sleep(time.Millisecond)
				}
				d.hear(addressed(2+i), one[:half])
				time.Sleep(time.Millisecond)
			}
			d.hear(addressed(1000), one, one)
			d.hear(d.in.vehicle, one[half:])
			d.expect(t, one, one, one)
			lineEqual(t, "senders that keep a piece", len(d.in.pieces), keptPieces)
			lineEqual(t, "pieces that were dropped", d.in.errors, others+1-keptPieces)
			for i := range uint16(keptPieces - 1) { // the newest ones' too
				d.hear(addressed(1+others-i), one[half:])
			}
			d.expect(t, slices.Repeat([][]byte{one}, 2+keptPieces)...)
			d.hear(addressed(1+others-keptPieces+1), one[half:])
			d.expect(t, slices.Repeat([][]byte{one}, 2+keptPieces)...)
		})
	}
}

// A broken frame that claims more bytes than came keeps what comes behind it, for as long as they take to come.
func TestAFrameTellsWhenItsLastByteCame(t *testing.T) {
	claim := wireFrame{seq: 1, system: 1, component: 1, payload: []byte{1, 2, 3}, claims: 150}.bytes()
	one, two, beat := packet(2, 1, 1, attitudeAt(1)), packet(3, 1, 1, attitudeAt(2)), packet(4, 1, 1, px4Beat())
	many := slices.Repeat(beat, 20)
	for _, c := range []struct {
		name      string
		datagrams bool
		reads     [][]byte
		want      []int
	}{
		{"each alone", false, [][]byte{one, two, beat}, []int{0, 1, 2}},
		{"in two", false, [][]byte{one[:20], one[20:]}, []int{1}},
		{"one ends and one begins", false, [][]byte{one, slices.Concat(two, beat[:5]), beat[5:]}, []int{0, 1, 2}},
		{"with many reads of nothing", false, slices.Concat([][]byte{one[:20]}, make([][]byte, 300),
			[][]byte{one[20:]}), []int{301}},
		{"behind a broken one", false, [][]byte{claim, one, slices.Concat(two, beat[:5]), beat[5:], many},
			[]int{1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4}},
		{"behind a broken one, byte by byte", false,
			slices.Collect(slices.Chunk(slices.Concat(claim, one, two, many), 1)),
			[]int{len(claim) + len(one) - 1, len(claim) + len(one) + len(two) - 1}},
		{"a datagram joins two", true, [][]byte{one[:20], slices.Concat(one[20:], two), beat}, []int{1, 1, 2}},
		{"a whole one in an earlier datagram", true, [][]byte{slices.Concat(claim, one, two[:9]), two[9:]},
			[]int{0, 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			in, began := deframer{datagrams: c.datagrams}, time.Now()
			var got []int
			for _, b := range c.reads {
				in.read(bytes.NewReader(b))
				for f, ok := in.next(); ok; f, ok = in.next() {
					got = append(got, int(f.came.Sub(began)/(pieceFor/2)))
				}
				time.Sleep(pieceFor / 2)
			}
			if n := len(c.want); len(got) < n || !slices.Equal(got[:n], c.want) {
				t.Errorf("%s: the frames came with reads %v, want %v", c.name, got, c.want)
			}
			if len(in.arrivals) > maxFrame {
				t.Errorf("%s: %d arrivals are kept", c.name, len(in.arrivals))
			}
		})
	}
}

func TestUnknownMessagesBetweenKnownOnesAreFramesAndNoErrors(t *testing.T) {
	a, b, c := packet(1, 1, 1, px4Beat()), packet1(3, 1, 1, attitudeAt(1)), packet(6, 1, 1, attitudeAt(2))
	r := new(lineReader).feed(a, unknownPacket(2, 30), b, unknownPacket(4, 255), unknownPacket(5, 1), c)
	r.expect(t, a, b, c)
	if r.unknown != 3 || r.in.errors != 0 {
		t.Errorf("%d unknown frames and %d errors, want 3 and 0", r.unknown, r.in.errors)
	}
	// Only the next burst shows that the last frame of a burst is whole.
	lineEqual(t, "unknown frames before it", r.feed(unknownPacket(7, 9)).unknown, 3)
	r.feed(a).expect(t, a, b, c, a)
	if r.unknown != 4 || r.in.errors != 0 {
		t.Errorf("%d unknown frames and %d errors, want 4 and 0", r.unknown, r.in.errors)
	}
}

func TestAnIdThatNoMessageHasIsUnknown(t *testing.T) {
	for _, id := range []uint32{511, 512, 1<<24 - 1} {
		odd, next := wireFrame{system: 1, component: 1, id: id}.bytes(), packet(1, 1, 1, px4Beat())
		d := deframer{rest: slices.Concat(odd, next)}
		f, ok := d.next()
		lineEqual(t, fmt.Sprint("a frame with the id ", id, " is one"), ok && f.id == id, true)
		lineEqual(t, "its message", f.decode(), nil)
	}
}

// Each bit of a frame is flipped in turn. Frames of several sizes follow, so that a wrong
// length may end where another frame does.
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
					r := new(lineReader).feed(before, broken, next, after, make([]byte, 300), after)
					switch {
					case name == "signed" && bit/8 >= len(hit)-13:
						r.expect(t, before, broken, next, after, after) // the signature is not checked
					case name == "unknown" && bit/8 == 1 && int(broken[1])-int(hit[1]) == len(next):
						// Its wrong length ends where the next frame does, and it can't be checked.
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

func TestAMegabyteOfNoiseInAnyPortionsHidesNoFrameAndMakesNone(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	l := noisyLineOf(random, 1<<20, 600)
	l.bytes = append(l.bytes, make([]byte, 300)...) // more than a broken frame can claim
	whole := new(lineReader).feed(l.bytes)
	if !slices.Equal(whole.known, l.good) {
		lost := slices.DeleteFunc(slices.Clone(l.good), func(k string) bool { return slices.Contains(whole.known, k) })
		t.Errorf("%d frames came out, %d went in; lost: %q", len(whole.known), len(l.good), lost)
	}
	if whole.in.errors == 0 {
		t.Error("the noise was not counted")
	}
	single := new(lineReader)
	for i := range l.bytes {
		single.feed(l.bytes[i : i+1])
	}
	pieces := new(lineReader)
	for rest := l.bytes; len(rest) > 0; {
		n := min(len(rest), 1+random.IntN(700))
		pieces.feed(rest[:n])
		rest = rest[n:]
	}
	for name, other := range map[string]*lineReader{"byte by byte": single, "in pieces": pieces} {
		if !slices.Equal(whole.known, other.known) || whole.unknown != other.unknown {
			t.Errorf("%s: %d known frames and %d unknown; at once: %d and %d", name, len(other.known), other.unknown,
				len(whole.known), whole.unknown)
		}
		if whole.in.errors != other.in.errors {
			t.Errorf("%s: %d errors; at once: %d", name, other.in.errors, whole.in.errors)
		}
	}
}

func TestATruncatedPayloadIsZeroWhereNothingWasSent(t *testing.T) {
	full := &common.MessageAttitude{TimeBootMs: 1 << 30, Roll: 1, Pitch: 2, Yaw: 3, Rollspeed: 4, Pitchspeed: 5,
		Yawspeed: 6}
	short := &common.MessageAttitude{TimeBootMs: 5}
	for _, want := range []*common.MessageAttitude{full, short, full} { // short must not show full's values
		if m, ok := readFrame(t, packet(1, 1, 1, want)).decode().(*common.MessageAttitude); !ok || *m != *want {
			t.Errorf("decoded %+v, want %+v", m, want)
		}
	}
	if n := len(payloadOf(short, true)); n >= 28 {
		t.Fatalf("the short payload is %d bytes: nothing is tested", n)
	}
}

func TestAVersion1MessageHasNoExtensionsAndMustHaveItsLength(t *testing.T) {
	ack := &common.MessageCommandAck{Command: 400, Result: 4, Progress: 9, ResultParam2: 8, TargetSystem: 7,
		TargetComponent: 6}
	if m := readFrame(t, packet(1, 1, 1, ack)).decode(); m == nil {
		t.Fatal("an ack of version 2 was not read")
	}
	m, ok := readFrame(t, packet1(1, 1, 1, ack)).decode().(*common.MessageCommandAck)
	if want := (common.MessageCommandAck{Command: 400, Result: 4}); !ok || *m != want {
		t.Errorf("decoded %+v, want %+v", m, want)
	}
	for _, size := range []int{0, 1, 2} {
		odd := wireFrame{v1: true, system: 1, component: 1, id: 77, payload: make([]byte, size)}.bytes()
		if m := readFrame(t, odd).decode(); m != nil {
			t.Errorf("a version 1 ack of %d bytes was read: %+v", size, m)
		}
	}
}

// pymavlink and node-mavlink send such frames. A length that no definition has is read as far as it is known, as in
// version 2.
func TestAVersion1MessageWithExtensionsIsRead(t *testing.T) {
	all := &common.MessageCommandAck{Command: 400, Result: 4, Progress: 9, ResultParam2: 8, TargetSystem: 7,
		TargetComponent: 6}
	battery := &common.MessageBatteryStatus{Id: 1, BatteryRemaining: 40, TimeRemaining: 77,
		VoltagesExt: [4]uint16{5, 6, 7, 8}}
	for _, want := range []message.Message{all, battery} {
		payload := payloadOf(want, true)
		for _, longer := range []int{0, 1, 200} {
			f := wireFrame{v1: true, system: 1, component: 1, id: want.GetID(),
				payload: append(slices.Clone(payload), make([]byte, longer)...)}
			if m := readFrame(t, f.bytes()).decode(); !reflect.DeepEqual(m, want) {
				t.Errorf("decoded %+v, want %+v", m, want)
			}
		}
	}
	some := &common.MessageCommandAck{Command: 400, Result: 4, Progress: 9}
	f := wireFrame{v1: true, system: 1, component: 1, id: 77, payload: payloadOf(some, true)}
	lineEqual(t, "bytes of one with the first extension only", len(f.payload), 4)
	if m := readFrame(t, f.bytes()).decode(); !reflect.DeepEqual(m, some) {
		t.Errorf("decoded %+v, want %+v", m, some)
	}
}

func TestALongerVersion2PayloadIsReadAsFarAsItIsKnown(t *testing.T) {
	payload := payloadOf(attitudeAt(5), true)
	longer := append(slices.Clone(payload), bytes.Repeat([]byte{0xaa}, 255-len(payload))...)
	m, ok := readFrame(t, wireFrame{system: 1, component: 1, id: 30,
		payload: longer}.bytes()).decode().(*common.MessageAttitude)
	if !ok || *m != *attitudeAt(5) {
		t.Errorf("decoded %+v", m)
	}
}

func TestWhatIsSentIsReadAsItWasMeant(t *testing.T) {
	s := newSender(7, componentID)
	for _, m := range []message.Message{
		&common.MessageCommandAck{Command: 400, Progress: 9, TargetSystem: 7},
		&common.MessageCurrentMode{StandardMode: 1}, // its id has two bytes
		&common.MessageHeartbeat{Type: 18, Autopilot: 8, SystemStatus: 4, MavlinkVersion: 3},
	} {
		if is, ok := m.(*common.MessageHeartbeat); ok {
			lineEqual(t, "our heartbeat", *heartbeat(is.Type), *is)
		}
		b, h := s.encode(m)
		f := readFrame(t, b)
		lineEqual(t, "header", f.header, h)
		lineEqual(t, "who it is from", fmt.Sprint(h.system, h.component), fmt.Sprint(7, componentID))
		lineEqual(t, "compatibility flags", b[3], 0)
		lineEqual(t, fmt.Sprint("reads ", m), reflect.DeepEqual(f.decode(), m), true)
	}
	first := map[byte]bool{}
	for range 50 {
		first[newSender(7, componentID).seq] = true
	}
	lineEqual(t, "all programs begin with the same number", len(first) == 1, false)
}

func TestAFrameThatIsSentBackIsKnownAsAnEcho(t *testing.T) {
	s := newSender(1, componentID)
	var sent recent
	var frames [][]byte
	const most = 250 // in echoWithin: sticks, heartbeats and questions are fewer
	now := time.Unix(1000, 0)
	for i := range most {
		b, h := s.encode(&common.MessageManualControl{Target: 1, X: int16(i % 3), Z: 500})
		frames = append(frames, b)
		sent.add(h, now)
		now = now.Add(echoWithin / most)
	}
	for i, b := range frames {
		lineEqual(t, fmt.Sprintf("frame %d of %d is ours", i, most), sent.has(readFrame(t, b).header, now), i > 0)
	}
	s.encode(attitudeAt(1))
	sent.add(header{}, now.Add(time.Hour))
	lineEqual(t, "frames that are remembered an hour later", len(sent.sent), 1)
	sent = recent{}
	sent.add(readFrame(t, frames[69]).header, now)
	last := checkedFrames(frames[69])[0]
	for name, change := range map[string]func(f *wireFrame){
		"sequence":  func(f *wireFrame) { f.seq-- },
		"system":    func(f *wireFrame) { f.system++ },
		"component": func(f *wireFrame) { f.component-- },
		"message":   func(f *wireFrame) { f.id = 76 },
		"payload":   func(f *wireFrame) { f.payload = slices.Concat([]byte{9}, f.payload[1:]) },
	} {
		other := last
		change(&other)
		lineEqual(t, "a frame of another "+name+" is ours", sent.has(readFrame(t, other.bytes()).header, now), false)
	}
}

func TestWhateverItsNumberBeginsWithAQuietHeartbeatIsFound(t *testing.T) {
	for seq := range 256 {
		b, h := quietBeat(&sender{system: quietSystem, component: componentID, seq: byte(seq)})
		beat := &common.MessageHeartbeat{Type: 18, Autopilot: 8, MavlinkVersion: 3}
		lineEqual(t, "it is a heartbeat", reflect.DeepEqual(readFrame(t, b).decode(), beat), true)
		lineEqual(t, "its header", readFrame(t, b).header, h)
		lineEqual(t, fmt.Sprint("bytes beside the allowed ones, from ", seq), loud(b), 0)
	}
}

func TestWhatAPortSpeaksInsteadOfMAVLinkIsNamed(t *testing.T) {
	for _, c := range []struct {
		name, says string
		parts      []string
	}{
		{"MSP", "MSP, not MAVLink", []string{"$M>\x03\x01\x00\x01\x2e", "\x02$M>\x00\x02\x02"}},
		{"MSP, cut anywhere", "MSP, not MAVLink", []string{"$M", ">\x00$", "M", ">"}},
		{"MSP 2", "MSP 2, not MAVLink", []string{"$X>\x00$X>"}},
		{"a configurator", "MSP, and it asks", []string{"$M<\x00", "$M<\x00"}},
		{"a prompt", "text, and shows a prompt", []string{"\r\n# ", "help\r\n# "}},
		{"PX4's shell", "text, and shows PX4's prompt", []string{"\x1b[Knsh> ", "\r\nnsh> "}},
		{"a login", "text, and asks for a login", []string{"raspberrypi login: ", "\r\nraspberrypi login: "}},
		{"once in noise", "", []string{"a1$M>9", "qqqqqqqq"}},
		{"once, and its end again in short reads", "", []string{"$M>", "1", "2"}},
		{"MAVLink and an unknown message beside it", "", []string{"$M>$M>" +
			string(packet(1, 1, 1, px4Beat())) + string(unknownPacket(2, 9)) + "\xfd"}},
		{"MAVLink beside it", "", []string{"$M>$M>", string(packet(1, 1, 1, px4Beat()))}},
	} {
		var in deframer
		for _, part := range c.parts {
			in.read(strings.NewReader(part))
			for _, ok := in.next(); ok; _, ok = in.next() {
			}
		}
		got := fmt.Sprint(in.babble.says())
		if c.says == "" {
			lineEqual(t, c.name, in.babble.says(), nil)
		} else if !strings.HasPrefix(got, "the port speaks "+c.says) {
			t.Errorf("%s: says %q, want %q", c.name, got, c.says)
		}
	}
}

// FuzzFrames gives the link any bytes in any portions. Only frames with the right checksum
// may be read, and the last of the frames that follow must be read whatever came before.
func FuzzFrames(f *testing.F) {
	for _, name := range []string{"px4-flight.tlog", "ardupilot-flight.tlog", "px4-pilot.tlog",
		"ardupilot-pilot.tlog"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(255), b[:400]) // the times in it are noise
	}
	place := &common.MessageGlobalPositionInt{TimeBootMs: 1, Lat: 473977420, Lon: 85455940, Alt: 1, Hdg: 1}
	ack := &common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: componentID}
	text := &common.MessageStatustext{Text: strings.Repeat("x", 50), Id: 3, ChunkSeq: 2}
	flight := slices.Concat(packet(1, 1, 1, px4Beat()), packet(2, 1, 1, place), unknownPacket(3, 20),
		packet(4, 1, 1, ack), packet(5, 1, 1, text))
	f.Add(byte(255), flight)
	f.Add(byte(10), flight)
	f.Add(byte(0), slices.Concat(packet1(1, 1, 1, copterBeat()), packet1(2, 1, 1, place), packet1(3, 1, 1, ack),
		signedPacket(packet(4, 1, 1, place))))
	f.Add(byte(200), slices.Concat(flight, wireFrame{claims: 255}.bytes(), wireFrame{v1: true, claims: 255}.bytes()))
	// A frame whose end and checksum are the next heartbeat's first bytes.
	found, _ := hex.DecodeString("fd2c00004b010118000060c68300000000004152401c47f4170004030" +
		"20c1d0303f4cc00fd0200005c0101f500000001ceb0")
	f.Add(byte(163), found)
	f.Fuzz(fuzzFrames)
}

// FuzzMessages reads any payload as each message of the dialect, of both versions: gomavlib's reader is the oracle.
func FuzzMessages(f *testing.F) {
	dice := rand.New(rand.NewPCG(1, 1))
	for length := range 256 {
		payload := make([]byte, length)
		for i := range payload {
			payload[i] = byte(dice.Uint32())
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 255 {
			t.Skip("no frame has such a payload")
		}
		whole := append(slices.Clone(payload), make([]byte, 255-len(payload))...)
		for _, sent := range dialectRW.Dialect.Messages {
			rw := dialectRW.GetMessage(sent.GetID())
			read, err := rw.Read(&message.MessageRaw{ID: sent.GetID(), Payload: whole}, true)
			if err != nil {
				t.Fatal(err)
			}
			want := rw.Write(read, true).Payload
			for _, v2 := range []bool{true, false} {
				m := rawFrame{header: header{id: sent.GetID()}, v2: v2, known: codecOf(sent.GetID()),
					payload: payload}.decode()
				short := !v2 && len(payload) < len(rw.Write(sent, false).Payload)
				if short != (m == nil) || (m != nil && !bytes.Equal(rw.Write(m, true).Payload, want)) {
					t.Errorf("%d bytes, version 2 %v: %#v, want %#v", len(payload), v2, m, read)
				}
			}
		}
	})
}
