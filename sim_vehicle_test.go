package main

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

const simInterval = common.MAV_CMD_SET_MESSAGE_INTERVAL

// simFault is line noise, as probabilities per byte.
type simFault struct {
	drop, repeat, flip, insert float64
	seed                       uint64
}

func (f simFault) bad() bool { return f.drop+f.repeat+f.flip+f.insert > 0 }

// setNoise damages bytes from now on: towards the autopilot, and back.
func (s *simulator) setNoise(in, out simFault) {
	var there, back simWire
	s.noiseIn = func(b []byte) []byte { return there.carry(b, in) }
	s.noiseOut = func(b []byte) []byte { return back.carry(b, out) }
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
