package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

// simFault is line noise, as probabilities per byte.
type simFault struct {
	drop, repeat, flip, insert float64
	seed                       uint64
}

func (f simFault) bad() bool { return f.drop+f.repeat+f.flip+f.insert > 0 }

// simPort is the companion's end of the cable. Like a UART it has no flow
// control: a write never waits (but see stallWrites), and what doesn't fit
// into a buffer is lost.
type simPort struct {
	s           *simulator
	toCompanion []byte
	toAutopilot []byte
	waiting     []byte        // old bytes in the sender's buffer, behind toCompanion
	until       time.Time     // of a Read; zero waits for ever
	arrived     chan struct{} // toCompanion has more
	gone        chan struct{} // closed with the port
	err         error         // why it is gone
	in, out     simWire       // to the autopilot, to the companion
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
		arrived: make(chan struct{}, 1),
		gone:    make(chan struct{}),
	}
	s.port.age()
	return s.port, nil
}

// simOld is a frame that was sent, whether anybody listened or not.
type simOld struct {
	at    time.Time
	bytes []byte
}

const (
	simStaleFrom = 15 * time.Second // how old the frames are that wait in a line
	simStaleTo   = 5 * time.Second
	simRefill    = 50 * time.Millisecond // the sender's buffer is empty so long after a flush
)

// age fills a fresh port with stale frames, as a line that nobody read has
// them: a buffer full, and more in the sender's.
func (p *simPort) age() {
	var old []byte
	frames := p.s.history
	for len(frames) > 0 && time.Since(frames[len(frames)-1].at) < simStaleTo {
		frames = frames[:len(frames)-1]
	}
	for _, f := range frames[max(0, len(frames)-p.s.stale):] {
		old = append(old, f.bytes...)
	}
	n := min(simBuffer, len(old))
	p.toCompanion, p.waiting = old[:n:n], old[n:]
	if n > 0 {
		p.arrived <- struct{}{}
	}
}

// remember keeps what may be stale one day.
func (s *simulator) remember(b []byte) {
	if s.stale == 0 {
		return
	}
	s.history = append(s.history, simOld{time.Now(), b})
	for time.Since(s.history[0].at) > simStaleFrom {
		s.history = s.history[1:]
	}
}

// ResetInputBuffer is a serial port's flush. The sender's buffer refills the
// line at once and for 50 ms, so that one flush is not enough.
func (p *simPort) ResetInputBuffer() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	half := len(p.waiting) / 2
	p.toCompanion, p.waiting = p.waiting[:half:half], p.waiting[half:]
	p.s.after(simRefill, func() {
		p.toCompanion, p.waiting = append(p.toCompanion, p.waiting...), nil
		p.wake()
	})
	p.s.nudge()
	p.wake()
	return p.err
}

func (p *simPort) wake() {
	select {
	case p.arrived <- struct{}{}:
	default:
	}
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

func (p *simPort) Read(b []byte) (int, error) {
	var expired <-chan time.Time
	for {
		p.s.mu.Lock()
		n, until, err := copy(b, p.toCompanion), p.until, p.err
		p.toCompanion = p.toCompanion[n:]
		if len(p.toCompanion) == 0 { // the line takes what waits for it
			p.toCompanion, p.waiting = p.waiting, nil
		}
		p.s.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if n > 0 || len(b) == 0 {
			return n, nil
		}
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
	room := max(0, simBuffer-len(p.toAutopilot))
	p.toAutopilot = append(p.toAutopilot, p.in.carry(b[:min(room, len(b))], p.s.faultIn)...)
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

func (p *simPort) SetReadDeadline(t time.Time) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.until = t
	return nil
}

// next cuts the first whole and checked frame off what the companion wrote;
// nil if there is none yet. It reads as the parser of the MAVLink C library
// does, which both autopilots have: a frame that does not check is lost with
// all that it claimed, up to 280 bytes, however long they take to come.
func (p *simPort) next() frame.Frame {
	for len(p.toAutopilot) > 2 {
		b, n := p.toAutopilot, 1
		switch {
		case b[0] == frame.V1MagicByte:
			n = 8 + int(b[1])
		case b[0] == frame.V2MagicByte && b[2]&^frame.V2FlagSigned != 0:
			n = 3 // flags that it does not know
		case b[0] == frame.V2MagicByte:
			n = simFrameSize(b)
		}
		if n > len(b) {
			return nil
		}
		p.toAutopilot = b[n:]
		if n < 8 {
			continue
		}
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b[:n])), DialectRW: dialectRW}
		if f, err := r.Read(); err == nil {
			return f
		}
		if b[n-1] == frame.V2MagicByte {
			p.toAutopilot = b[n-1:]
		}
	}
	return nil
}

// simFrameSize is the size that a frame of MAVLink 2 claims.
func simFrameSize(b []byte) int {
	n := 12 + int(b[1])
	if b[2]&frame.V2FlagSigned != 0 {
		n += 13
	}
	return n
}

// simWire is one direction of the cable: what it knows of the bytes that went
// over it lately.
type simWire struct {
	tail  []byte // the last ones
	gone  int    // how many went before them
	hurt  []simHurt
	dice  rand.PCG
	rolls time.Time // when the dice were thrown last
}

// simHurt is a damaged part of the stream, from a byte to before another; it is
// empty where everything was dropped.
type simHurt struct{ from, to int }

const simLongest = 280 // bytes of a frame

// carry returns b as it arrives. Damage that a frame's 16 bit checksum does not
// see, one in 65,536, is not made: tests could not tell it from a mistake of
// the receiver. Such a frame may be of one write or joined of several, and the
// last of them may be a good one.
func (w *simWire) carry(b []byte, f simFault) []byte {
	if !f.bad() && len(w.hurt) == 0 {
		return b
	}
	// What is damaged depends on the moment and on nothing that was before, so
	// that a flight whose goroutines took turns in another order can be repeated.
	if now := time.Now(); !now.Equal(w.rolls) {
		w.rolls = now
		w.dice.Seed(f.seed, uint64(now.UnixNano()))
	}
	start := w.gone + len(w.tail)
	for {
		out := b
		if f.bad() {
			out = f.damage(b, rand.New(&w.dice))
		}
		hurt := append(w.hurt[:len(w.hurt):len(w.hurt)], hurts(b, out, start)...)
		tail := append(w.tail[:len(w.tail):len(w.tail)], out...)
		if !forged(tail, w.gone, start, hurt) {
			w.keep(tail, hurt)
			return out
		}
		if !f.bad() { // a stray byte in front is of the noise that was before
			b = append([]byte{byte(w.dice.Uint64())}, b...)
		}
	}
}

// keep remembers as much as a frame can be long.
func (w *simWire) keep(tail []byte, hurt []simHurt) {
	cut := max(0, len(tail)-simLongest)
	w.gone += cut
	w.tail = tail[cut:]
	w.hurt = slices.DeleteFunc(hurt, func(h simHurt) bool { return h.to < w.gone })
	if len(w.hurt) == 0 {
		w.tail = nil
	}
}

// hurts tells which parts of out, whose first byte has a number, are not b.
func hurts(b, out []byte, first int) []simHurt {
	if bytes.Equal(b, out) {
		return nil
	}
	end := first + len(out)
	i := bytes.Index(out, b)
	if i < 0 {
		return []simHurt{{first, end}}
	}
	return []simHurt{{first, first + i}, {first + i + len(b), end}}
}

// forged reports whether damage is part of a frame that checks and has its end
// behind a byte's number. The first byte of tail has a number too.
func forged(tail []byte, first, behind int, hurt []simHurt) bool {
	for i := range tail {
		b, n := tail[i:], 0
		switch {
		case len(b) < 8:
			return false
		case b[0] == frame.V1MagicByte:
			n = 8 + int(b[1])
		case b[0] == frame.V2MagicByte:
			n = simFrameSize(b)
		}
		from, to := first+i, first+i+n
		if n == 0 || n > len(b) || to <= behind {
			continue
		}
		if !slices.ContainsFunc(hurt, func(h simHurt) bool { return h.from < to && from < h.to }) {
			continue
		}
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b[:n])), DialectRW: dialectRW}
		if f, err := r.Read(); err == nil && dialectRW.GetMessage(f.GetMessage().GetID()) != nil {
			return true
		}
	}
	return false
}

// damage rolls dice for each byte.
func (f simFault) damage(b []byte, dice *rand.Rand) []byte {
	hit := func(p float64) bool { return dice.Float64() < p }
	out := []byte{}
	for _, c := range b {
		if hit(f.insert) {
			out = append(out, byte(dice.Uint32()))
		}
		if hit(f.flip) {
			c ^= 1 << dice.IntN(8)
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
	s.remember(b)
	put := func() {
		p := s.port
		if p == nil || len(p.toCompanion)+len(b) > simBuffer {
			return
		}
		b := p.out.carry(b, s.faultOut)
		if p.waiting != nil {
			p.waiting = append(p.waiting, b...) // behind the old ones
		} else {
			p.toCompanion = append(p.toCompanion, b...)
		}
		p.wake()
	}
	if s.muted {
		return
	}
	now := time.Now()
	if at := now.Add(s.delay); at.After(s.arrives) { // a line keeps the order of its frames
		s.arrives = at
	}
	if s.arrives.After(now) {
		s.after(s.arrives.Sub(now), put)
	} else {
		put()
	}
}
