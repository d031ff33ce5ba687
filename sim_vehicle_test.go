package main

import (
	"bufio"
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

func TestSimQuadHasATopSpeed(t *testing.T) {
	for _, tt := range []struct {
		flavour simFlavour
		mode    uint32
		z       int16
	}{{simPX4, simPX4Altctl, 500}, {simPX4, simPX4Manual, 550}, {simArduPilot, simAltHold, 500}, {simArduPilot, simArduStabilize, 500}} {
		simFlight(t, tt.flavour, nil, func(b *simBoard) {
			time.Sleep(6 * time.Second)
			b.placeInAir(200)
			b.as(255, 190)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, tt.z, 0)
			b.setMode(tt.mode)
			b.stick(40*time.Second, sim25Hz, 1000, 0, tt.z, 0)
			b.near("speed", math.Hypot(b.truth().vn, b.truth().ve), 19.5, 1)
			b.stick(time.Second, sim25Hz, 0, 0, tt.z, 0)
			b.near("centred it drifts on", math.Hypot(b.truth().vn, b.truth().ve), 17, 4)
		})
	}
}

func TestPX4StopsInItsOwnTime(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		for _, v := range []float64{3, 8, 10} {
			b.placeInAir(10)
			b.change(func() { b.quad.vn = v; b.stay() })
			time.Sleep(20 * time.Second)
			n, _, _ := b.place()
			b.near("metres to the stop", n, v*v/3.5, 0.5)
		}
	})
}

func TestSimRestartForgetsAllButTheParameters(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		simFlight(t, flavour, nil, func(b *simBoard) {
			time.Sleep(20 * time.Second)
			b.change(func() { b.params["OWN"] = 7 })
			b.long(simInterval, 245, 20000)
			b.placeInAir(10)
			b.failsafeReturn()
			b.reboot(true)
			b.want("failsafe", b.truth().failsafe, false)
			b.want("in the air", b.truth().landed, common.MAV_LANDED_STATE_IN_AIR)
			b.forget()
			time.Sleep(2 * time.Second)
			if n := b.count(245); n > 3 {
				t.Errorf("%d messages at a rate of before", n)
			}
			if ms := b.ask(33).(*common.MessageGlobalPositionInt).TimeBootMs; ms > 3000 {
				t.Errorf("time_boot_ms %d", ms)
			}
			b.want("parameter", b.params["OWN"], 7.0)
			b.reboot(false)
			b.want("armed", b.truth().armed, false)
			b.want("mode", b.truth().mode, b.first)
			b.wantPlace(0, 0, 0, 0)
		})
	}
}

func TestPX4sPauseComesBackAsMeasured(t *testing.T) {
	for speed, back := range map[float64]float64{1.7: 0.35, 6.8: 3.75, 9.8: 7.5} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.change(func() { b.quad.vn = speed })
			_, came := b.farthest(30*time.Second, func() {
				nan := math.NaN()
				b.long(simGoto, -1, 1, 0, nan, nan, nan, nan)
			})
			b.near("metres back", came, back, max(0.3, back/6))
			b.near("height", b.truth().alt, 10, 0.2)
		})
	}
}

func TestPX4MayShowPrearmHealthyBeforeItsFirstReport(t *testing.T) {
	boots := 0
	simFlight(t, simPX4, nil, func(b *simBoard) {
		for range 840 {
			b.reboot(false)
			time.Sleep(1500 * time.Millisecond)
			m := b.ask(1).(*common.MessageSysStatus)
			if m.OnboardControlSensorsHealth&common.MAV_SYS_STATUS_PREARM_CHECK != 0 {
				boots++
				b.want("arm", b.long(simArm, 1), simResults(simRejected))
			}
		}
	})
	if boots < 160 || boots > 320 {
		t.Errorf("%d of 840 boots, want two in seven", boots)
	}
}

func TestPX4TransmittersModeSwitchIsDeadWhileOurSticksAreTheSource(t *testing.T) {
	for mode, dead := range map[float64]bool{1: true, 3: true, 5: false, 6: true} {
		simWithSource(t, mode, func(b *simBoard) {
			b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
			b.setReceiver(simReceiverInHand)
			b.stick(4*time.Second, sim25Hz, 0, 0, 500, 0)
			b.pilotSwitch(1100, simPX4RTL)
			b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
			b.want("dead", b.truth().mode == simPX4Loiter, dead)
		})
	}
}

func TestArduPilotsInternalErrorOverALineThatGathersBytes(t *testing.T) {
	for gap, broken := range map[time.Duration]bool{200 * time.Millisecond: true, 300 * time.Millisecond: false} {
		simOnArduInAir(t, func(b *simBoard) {
			b.change(func() { b.gathers = 250 * time.Millisecond })
			b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 2})
			time.Sleep(gap)
			b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: common.MAV_CMD_NAV_LAND})
			time.Sleep(time.Second)
			b.want("landing", b.truth().mode, uint32(simArduLand))
			b.change(func() { b.want("internal error", b.brain.(*simArduBrain).broken, broken) })
		})
	}
}

const simInterval = common.MAV_CMD_SET_MESSAGE_INTERVAL

func TestSimPX4TellsItsModeLive(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.want("unasked", b.count(436), 0)
		b.long(simInterval, 436, 10000)
		b.placeInAir(10)
		b.failsafeReturn()
		m := simLast[*common.MessageCurrentMode](b)
		b.want("failsafe", [2]uint32{m.CustomMode, m.IntendedCustomMode}, [2]uint32{simPX4RTL, simPX4Loiter})
		b.reboot(true)
		time.Sleep(10 * time.Millisecond) // what is on its way comes
		b.forget()
		time.Sleep(3 * time.Second)
		b.want("after a restart", b.count(436), 0)
	})
}

func TestSimArduPilotTellsItsModeLive(t *testing.T) {
	simOnArdu(t, func(b *simBoard) {
		b.long(simInterval, 0, 50000)
		b.forget()
		b.setMode(simArduGuided)
		acked := b.await("the ack", 0, simAckOf(simSetMode, 1))
		b.want("heartbeat after it", b.await("the mode", 0, simShows(simArduGuided)).Sub(acked), 100*time.Microsecond)
		b.reboot(true)
		time.Sleep(2500 * time.Millisecond)
		b.forget()
		time.Sleep(10 * time.Second)
		b.want("heartbeats in 10 s after a restart", b.count(0), 10)
	})
}

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
