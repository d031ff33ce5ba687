package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

const simInterval = common.MAV_CMD_SET_MESSAGE_INTERVAL

// simFault is line noise, as probabilities per byte.
type simFault struct {
	drop, repeat, flip, insert float64
	seed                       uint64
}

func (f simFault) bad() bool { return f.drop+f.repeat+f.flip+f.insert > 0 }

// anyDamage has every kind of damage at one rate.
func anyDamage(rate float64, seed uint64) simFault {
	return simFault{drop: rate, repeat: rate, flip: rate, insert: rate, seed: seed}
}

// setNoise damages bytes from now on: in is towards the autopilot, out is from it.
func (s *simulator) setNoise(in, out simFault) {
	s.noiseIn = bytes.Clone
	s.noiseOut = bytes.Clone
	if !in.bad() && !out.bad() {
		return
	}
	var there, back simWire
	s.noiseIn = func(b []byte) []byte { return there.carry(b, in) }
	s.noiseOut = func(b []byte) []byte { return back.carry(b, out) }
}

// simWire is one direction of a line.
type simWire struct {
	before, after []byte // the last bytes, as sent and as received
	dice          rand.PCG
	rolledAt      time.Time // when bytes were last damaged at random
}

// carry returns b as it arrives. It makes no damage that a frame's 16 bit checksum would miss (1 in 65,536):
// a test would take it for a mistake of the receiver. Such a frame may span several writes.
func (w *simWire) carry(b []byte, f simFault) []byte {
	// The damage depends on the time alone, so that a flight can be repeated though its
	// goroutines take turns in another order.
	if now := time.Now(); !now.Equal(w.rolledAt) {
		w.rolledAt = now
		w.dice.Seed(f.seed, uint64(now.UnixNano()))
	}
	w.before = lastBytes(w.before, b)
	for tries := 0; ; tries++ {
		out := b
		if f.bad() {
			out = f.damage(b, rand.New(&w.dice))
		}
		if !w.forges(out) {
			w.after = lastBytes(w.after, out)
			return out
		}
		if !f.bad() || tries > 20 { // no dice help: b completes a frame that earlier damage began
			b = append([]byte{byte(w.dice.Uint64())}, b...) // one more byte, as noise may add it, breaks that frame
		}
	}
}

// lastBytes appends b to tail and keeps the last bytes, more than two frames can have.
func lastBytes(tail, b []byte) []byte {
	all := slices.Concat(tail, b)
	return all[max(0, len(all)-600):]
}

// forges reports whether these bytes contain a frame that was not sent and whose checksum is
// right. A signature is ignored: it may not have arrived yet, and damage to it changes nothing.
func (w *simWire) forges(out []byte) bool {
	const longest, signature = 267, 13 // bytes: of the longest frame without its signature; of the signature
	if bytes.Equal(lastBytes(w.after, out), w.before) {
		return false // no byte was damaged lately
	}
	tail := w.after[max(0, len(w.after)-longest):]
	line := slices.Concat(tail, out, make([]byte, signature))
	for _, f := range checkedFrames(line) {
		end := f.end - signature*int(f.incompat) // incompat is 1 with a signature, else 0
		if end > len(tail) && end <= len(line)-signature && !bytes.Contains(w.before, line[f.offset:end]) {
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
