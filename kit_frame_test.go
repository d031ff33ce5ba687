package main

// A reader of frames out of a stream of bytes, datagrams of many senders, and noise.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// lineReader is a deframer and what came out of it.
type lineReader struct {
	in      deframer
	known   []string // keys
	unknown int
	bytes   int // of all frames
}

// feed gives the deframer one burst.
func (r *lineReader) feed(b ...[]byte) *lineReader {
	for rest := bytes.NewReader(bytes.Join(b, nil)); rest.Len() > 0; {
		r.in.read(rest)
		r.take()
	}
	return r
}

// take takes the frames of the last read.
func (r *lineReader) take() {
	for f, ok := r.in.next(); ok; f, ok = r.in.next() {
		r.bytes += len(f.whole)
		if f.known == nil {
			r.unknown++
			continue
		}
		r.known = append(r.known, keyOf(f))
	}
}

// keyOf is the key of a frame that was read.
func keyOf(f rawFrame) string {
	return wireFrame{v1: !f.v2, seq: f.seq, system: f.system, component: f.component, id: f.id,
		payload: f.payload}.key()
}

// traffic is what follows on a working line: more bytes than a broken frame can claim.
var traffic = slices.Repeat([][]byte{packet(200, 99, 1, attitudeAt(99)), packet(200, 99, 1, px4Beat()),
	packet(200, 99, 1, &common.MessageExtendedSysState{LandedState: 1})}, 10)

// feedAndExpect feeds a burst and then the traffic, and expects these packets ahead of the traffic.
func (r *lineReader) feedAndExpect(t *testing.T, burst []byte, packets ...[]byte) {
	t.Helper()
	r.feed(burst).feed(traffic...).expect(t, slices.Concat(packets, traffic)...)
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
		t.Errorf("read %d frames:\n\t%s\nwant %d:\n\t%s", len(r.known), strings.Join(r.known, "\n\t"), len(want),
			strings.Join(want, "\n\t"))
	}
}

// datagrams reads datagrams as a port does at which these senders are heard.
type datagrams struct {
	lineReader
	from netip.AddrPort
	noDeadlines
	emptied
	rest []byte
}

func newDatagrams() *datagrams {
	d := &datagrams{from: addressed(1)}
	d.in.datagrams, d.in.sender = true, d.sender
	return d
}

func (d *datagrams) Read(b []byte) (int, error) { return copy(b, d.rest), nil }

func (d *datagrams) Write(b []byte) (int, error) { return len(b), nil }

func (d *datagrams) Close() error { return nil }

func (d *datagrams) sender() netip.AddrPort { return d.from }

func (d *datagrams) writeTo(b []byte, to netip.AddrPort) (int, error) { return len(b), nil }

// hear reads datagrams of a sender.
func (d *datagrams) hear(from netip.AddrPort, list ...[]byte) *datagrams {
	for _, b := range list {
		d.from, d.rest = from, b
		d.in.read(d)
		d.take()
	}
	return d
}

// noisyLine is noise with good frames in it.
type noisyLine struct {
	bytes []byte
	good  []string // keys
}

// noisyLineOf makes a noisy line with about gap bytes of noise before each frame.
func noisyLineOf(random *rand.Rand, size, gap int) noisyLine {
	var l noisyLine
	for seq := byte(0); len(l.bytes) < size; seq++ {
		for range random.IntN(2 * gap) {
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

// decode is the frame's message, one of its own.
func (f rawFrame) decode() message.Message { return new(decoder).decode(f) }

// readFrame runs a packet through the deframer.
func readFrame(t *testing.T, p []byte) rawFrame {
	t.Helper()
	var in deframer
	in.read(bytes.NewReader(p))
	f, ok := in.next()
	if !ok || f.known == nil {
		t.Fatalf("%x was not read", p)
	}
	return f
}

func fuzzFrames(t *testing.T, portion byte, data []byte) {
	d := newDrone(device{name: "fuzz"}, 0, false, slog.Default())
	d.cmd.quitting = true // no handshake
	x := &command{step: &step{cmd: common.MAV_CMD_COMPONENT_ARM_DISARM}}
	d.cmd.acks.waiting[x.step.cmd] = x
	r := &reader{link: d.link}
	now := time.Unix(1000, 0)
	var taken []wireFrame
	burst := func(b []byte) {
		for rest := bytes.NewReader(b); rest.Len() > 0; {
			left := rest.Len()
			if r.in.read(rest); rest.Len() == left {
				t.Fatal("no space for more bytes: a port would read nothing and be closed")
			}
			for f, ok := r.in.next(); ok; f, ok = r.in.next() {
				if f.known != nil {
					taken = append(taken, wireFrame{v1: !f.v2, seq: f.seq, system: f.system, component: f.component,
						id: f.id, payload: bytes.Clone(f.payload)})
				}
				r.handle(f, now)
			}
		}
	}
	for rest := data; len(rest) > 0; now = now.Add(time.Millisecond) {
		n := min(len(rest), 1+int(portion))
		burst(rest[:n])
		rest = rest[n:]
	}

	// Every frame that was read is in the data, in this order.
	good, at := checkedFrames(data), 0
	expect := telemetryOf{places: []string{"NaN NaN"}}
	for _, f := range taken {
		i := slices.IndexFunc(good, func(g wireFrame) bool { return g.offset >= at && g.key() == f.key() })
		if i < 0 {
			t.Fatalf("a frame was read that is not there: %s", f.key())
		}
		at = good[i].end
		expect.take(f)
	}
	s := d.snapped()
	lineEqual(t, "vehicle", s.tel.id.system, expect.system)
	if is := fmt.Sprintf("%.7f %.7f", s.tel.position.lat, s.tel.position.lon); !slices.Contains(expect.places, is) {
		t.Errorf("the place is %s, sent were %v", is, expect.places)
	}
	if len(taken) == 0 && (d.changes.Load() != 0 || len(s.tel.texts.kept) != 0) {
		t.Error("the status changed without a frame")
	}
	if !x.ackedAt.IsZero() && expect.acks == 0 {
		t.Error("an ack was read that is not there")
	}
	for _, v := range []float64{s.tel.position.lat, s.tel.position.lon, s.tel.home.lat, s.tel.home.lon} {
		if math.IsInf(v, 0) {
			t.Error("a place is infinite")
		}
	}
	for _, misfit := range misfits("Status", encode(d.status(netip.Addr{}))) {
		t.Error(misfit)
	}

	burst(bytes.Join(traffic, nil))
	last := packet(201, 99, 1, px4Beat())
	burst(last)
	if n := len(taken); n == 0 || taken[n-1].key() != checkedFrames(last)[0].key() {
		t.Error("the heartbeat behind the traffic was not read")
	}
}

// telemetryOf is the part of the telemetry that the fuzzer works out by itself.
type telemetryOf struct {
	system byte
	places []string // telemetry believes one of them
	acks   int
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
		if lat != 0 || lon != 0 {
			e.places = append(e.places, fmt.Sprintf("%.7f %.7f", float64(lat)/1e7, float64(lon)/1e7))
		}
	case 77:
		if binary.LittleEndian.Uint16(p) == cmdArm {
			e.acks++
		}
	}
}
