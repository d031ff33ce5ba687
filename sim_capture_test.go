package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// The simulator flies the script of a captured flight of the real PX4, and what
// it sends is held against the capture. Not compared: the battery (the real one
// was drained fast), GPS quality, estimator noise, EVENT (410, which nobody
// here decodes) and the PARAM_VALUEs that PX4 sends by itself at boot.

// simCaptured returns the messages of a testdata file.
func simCaptured(t *testing.T, name string) (list []simHeard) {
	t.Helper()
	zero := time.Unix(0, 0)
	for _, e := range readTlog(t, name) {
		r := frame.Reader{ByteReader: bytes.NewReader(e.bytes), DialectRW: dialectRW}
		if err := r.Initialize(); err != nil {
			t.Fatal(err)
		}
		f, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, simHeard{zero.Add(e.at), f.GetSystemID(), f.GetComponentID(), f.GetMessage()})
	}
	return list
}

// simFact is something that a flight showed, and when (seconds).
type simFact struct {
	at   float64
	what string
}

// simFacts goes through a flight: every says of a message what it shows, ""
// for nothing. With changes only what differs from the one before is kept.
func simFacts(list []simHeard, zero time.Time, changes bool, every func(message.Message) string) (facts []simFact) {
	for _, h := range list {
		what := every(h.msg)
		if h.at.Before(zero) {
			continue
		}
		if n := len(facts); what == "" || changes && n > 0 && facts[n-1].what == what {
			continue
		}
		facts = append(facts, simFact{h.at.Sub(zero).Seconds(), what})
	}
	return facts
}

// simSameFacts wants the same facts in the same order, each as early or late as
// tolerance (seconds) says for it.
func simSameFacts(t *testing.T, about string, got, want []simFact, tolerance func(simFact) float64) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: %.2f %s is missing", about, want[i].at, want[i].what)
		case i >= len(want):
			t.Errorf("%s: %.2f %s was not captured", about, got[i].at, got[i].what)
		case got[i].what != want[i].what:
			t.Errorf("%s: number %d is %.2f %s, captured %.2f %s", about, i, got[i].at, got[i].what, want[i].at, want[i].what)
			return
		case math.Abs(got[i].at-want[i].at) > tolerance(want[i]):
			t.Errorf("%s: %s at %.3f, captured at %.3f", about, got[i].what, got[i].at, want[i].at)
		}
	}
}

// simSticks is a stream of sticks that runs beside a script.
type simSticks struct {
	x    atomic.Int32
	done chan struct{}
	wg   sync.WaitGroup
}

func simStickStreaming(b *simBoard) *simSticks {
	s := &simSticks{done: make(chan struct{})}
	w := simWriter(b.t, b.port)
	s.wg.Go(func() {
		for {
			if err := w.Write(&common.MessageManualControl{Target: 1, X: int16(s.x.Load()), Z: 500}); err != nil {
				b.t.Error(err)
			}
			select {
			case <-s.done:
				return
			case <-time.After(sim25Hz):
			}
		}
	})
	return s
}

func (s *simSticks) end() {
	close(s.done)
	s.wg.Wait()
}

// simPX4Script flies px4-pilot.tlog's script; at waits until a time of it.
func simPX4Script(b *simBoard, at func(seconds float64)) {
	nan := math.NaN()
	keep := math.MaxInt32
	// As in the capture: nothing else in these rates matters.
	for id, hz := range map[uint32]float64{1: 2, 24: 2, 30: 10, 33: 10, 74: 4, 87: 2, 245: 4} {
		b.write(&common.MessageCommandLong{
			TargetSystem: 1, TargetComponent: 1, Command: common.MAV_CMD_SET_MESSAGE_INTERVAL, Param1: float32(id), Param2: float32(1e6 / hz),
		})
	}
	long := func(seconds float64, id common.MAV_CMD, p ...float32) {
		at(seconds)
		p = append(p, make([]float32, 3)...)
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: id, Param1: p[0], Param2: p[1], Param3: p[2]})
	}
	at(8.24)
	b.change(func() { b.params[simDataLink] = 2 })
	long(10.745, simArm, 1)
	long(10.975, simPrearm)
	at(12.239)
	b.knock()
	long(12.2405, simPrearm)
	at(13.506)
	b.change(func() { b.params[simDataLink] = 0 })
	at(16.5)
	b.knock()
	at(16.506)
	b.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simTakeoff, X: int32(keep), Y: int32(keep), Z: simHomeAlt + 12,
	})
	long(16.764, simArm, 1)
	for i := range 5 {
		at(31.006 + 0.253*float64(i))
		b.request(0)
	}
	at(32.285)
	lat, lon := simPlace(40, 0)
	b.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param1: -1, Param2: 1, Param4: float32(nan), X: simE7(lat), Y: simE7(lon), Z: float32(nan),
	})
	long(37.279, simSetMode, 1, 4, 3)
	at(42.5)
	stop := simStickStreaming(b)
	long(43.034, simSetMode, 1, 2)
	at(43.4)
	stop.x.Store(300) // how far is not in the capture: this gives its speed
	at(45.4)
	stop.x.Store(0)
	long(45.897, simSetMode, 1, 3)
	long(48.353, simSetMode, 1, 4, 3)
	at(51.7)
	b.pilotMode(simPX4RTL) // by a second client: its acks go elsewhere
	long(56.619, common.MAV_CMD_NAV_LAND)
	at(106) // the simulator comes down a little later
	stop.end()
}

func TestSimFliesLikeTheCapturedPX4(t *testing.T) {
	real := simCaptured(t, "px4-pilot.tlog")
	epoch := real[0].at
	prepare := func(s *simulator) {
		s.armableAfter = 4150 * time.Millisecond // as captured
		s.homeSteps = true
	}
	simFlight(t, simPX4, prepare, func(b *simBoard) {
		zero := b.began.Add(494 * time.Millisecond) // the capture begins so long after boot
		simPX4Script(b, func(seconds float64) {
			time.Sleep(time.Until(zero.Add(time.Duration(seconds * float64(time.Second)))))
		})
		b.mu.Lock()
		defer b.mu.Unlock()
		simHoldAgainst(t, b.got, zero, real, epoch)
	})
}

// simHoldAgainst compares two flights.
func simHoldAgainst(t *testing.T, sim []simHeard, zero time.Time, real []simHeard, epoch time.Time) {
	t.Helper()
	compare := func(about string, changes bool, every func(message.Message) string, tolerance func(simFact) float64) {
		t.Helper()
		simSameFacts(t, about, simFacts(sim, zero, changes, every), simFacts(real, epoch, changes, every), tolerance)
	}
	within := func(seconds float64) func(simFact) float64 { return func(simFact) float64 { return seconds } }
	// The landing of the real one was disturbed by its estimator; the climb is
	// modelled in two pieces.
	loosely := func(seconds float64) func(simFact) float64 {
		return func(f simFact) float64 {
			switch {
			case f.at > 90:
				return 8
			case f.at > 28 && f.at < 31.2:
				return 1.5
			}
			return seconds
		}
	}
	kind := func(m message.Message) string { return fmt.Sprint(m.GetID()) }
	kinds := func(list []simHeard, at time.Time) (ids []string) {
		for _, f := range simFacts(list, at, false, kind) {
			if f.what != "410" && f.what != "22" && !slices.Contains(ids, f.what) {
				ids = append(ids, f.what)
			}
		}
		slices.Sort(ids)
		return ids
	}
	if got, want := kinds(sim, zero), kinds(real, epoch); !slices.Equal(got, want) {
		t.Errorf("kinds of messages %v, captured %v", got, want)
	}
	// Acks come within 20 ms of the command; their number and results are exact.
	compare("acks", false, func(m message.Message) string {
		a, ok := m.(*common.MessageCommandAck)
		if !ok || a.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL {
			return ""
		}
		return fmt.Sprint(a.Command, a.Result)
	}, within(0.02))
	// A text comes with its cause, or 50 ms after the one before.
	compare("texts", false, func(m message.Message) string {
		s, ok := m.(*common.MessageStatustext)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%v %d %q", s.Severity, s.ChunkSeq, s.Text)
	}, func(f simFact) float64 {
		if f.at > 18 {
			return 0.5 // the propellers' run-up
		}
		return 0.03
	})
	// Heartbeats and SYS_STATUS show a change when they come: 1 and 2 Hz.
	compare("heartbeats", true, func(m message.Message) string {
		h, ok := m.(*common.MessageHeartbeat)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%02x %d,%d %v", uint(h.BaseMode), h.CustomMode>>16&0xff, h.CustomMode>>24, h.SystemStatus)
	}, loosely(1.05))
	compare("sensors", true, func(m message.Message) string {
		s, ok := m.(*common.MessageSysStatus)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%08x %08x %08x", uint32(s.OnboardControlSensorsPresent), uint32(s.OnboardControlSensorsEnabled), uint32(s.OnboardControlSensorsHealth))
	}, loosely(0.6))
	compare("landed", true, func(m message.Message) string {
		e, ok := m.(*common.MessageExtendedSysState)
		if !ok {
			return ""
		}
		return e.LandedState.String()
	}, loosely(0.5))
	simHoldPlaces(t, sim, zero, real, epoch)
}

// simHoldPlaces compares where two flights were and where they said they went.
func simHoldPlaces(t *testing.T, sim []simHeard, zero time.Time, real []simHeard, epoch time.Time) {
	t.Helper()
	type sample struct{ north, up, toNorth, toUp float64 }
	// track has each tenth of a second: NaN where there is no target.
	track := func(list []simHeard, zero time.Time) []sample {
		var ground float64
		samples := make([]sample, 1000)
		for i := range samples {
			samples[i] = sample{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
		}
		for _, h := range list {
			i := int(h.at.Sub(zero).Seconds() * 10)
			if i < 0 || i >= len(samples) {
				continue
			}
			switch m := h.msg.(type) {
			case *common.MessageGlobalPositionInt:
				if i < 160 {
					ground = float64(m.Alt) / 1000
				}
				samples[i].north, _ = simMetres(float64(m.Lat)/1e7, simHomeLon)
				samples[i].up = float64(m.Alt)/1000 - ground
			case *common.MessagePositionTargetGlobalInt:
				north, _ := simMetres(float64(m.LatInt)/1e7, simHomeLon)
				for j := i; j < min(i+6, len(samples)); j++ { // it comes at 2 Hz
					samples[j].toNorth, samples[j].toUp = north, float64(m.Alt)-ground
				}
			}
		}
		return samples
	}
	got, want := track(sim, zero), track(real, epoch)
	near := func(i int, what string, g, w, tolerance float64) {
		if math.IsNaN(g) != math.IsNaN(w) || math.Abs(g-w) > tolerance {
			t.Errorf("%.1f s: %s is %.1f, captured %.1f", float64(i)/10, what, g, w)
		}
	}
	// Metres. The real one accelerates to 4.2 m/s, the simulated one to 5; both
	// climb 12 m in 14 s and 11 m in the 5 s of the return.
	for _, i := range []int{100, 250, 310, 322, 350, 370, 400, 420, 425, 445, 480, 510, 530, 560} {
		near(i, "north", got[i].north, want[i].north, 9)
		near(i, "height", got[i].up, want[i].up, 3)
	}
	// A target is there, and is the same, in the same tenths of a second but
	// around the changes.
	for _, i := range []int{100, 160, 180, 250, 300, 320, 330, 400, 420, 436, 450, 478, 490, 510, 530, 560, 580, 700} {
		near(i, "target's north", got[i].toNorth, want[i].toNorth, 5)
		tolerance := 1.0
		if i >= 570 && i < 980 { // the height in LAND is 0 AMSL
			tolerance = 2
		}
		near(i, "target's height", got[i].toUp, want[i].toUp, tolerance)
	}
}
