package main

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

var noiseSeed = flag.Uint64("noise-seed", 1, "seed of TestNoiseAndSlowLines")

// TestNoiseAndSlowLines counts how single commands are answered on lines that
// damage bytes both ways, and on slow ones (docs/reliability.md has the table;
// -v prints it).
func TestNoiseAndSlowLines(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	lines := []struct {
		name    string
		damaged float64       // of the bytes, both ways
		trip    time.Duration // there and back
		least   float64       // of the commands that an ack must answer
	}{
		{"0.1 %", 0.001, 0, 0.99}, {"0.5 %", 0.005, 0, 0.97}, {"1 %", 0.01, 0, 0.95}, {"2 %", 0.02, 0, 0}, {"5 %", 0.05, 0, 0},
		{"20 ms", 0, 20 * time.Millisecond, 1}, {"300 ms", 0, 300 * time.Millisecond, 1}, {"600 ms", 0, 600 * time.Millisecond, 0.99},
	}
	t.Logf("seed %d", *noiseSeed)
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		for _, line := range lines {
			name := map[simFlavour]string{simPX4: "px4", simArduPilot: "ardupilot"}[flavour] + " " + line.name
			t.Run(name, func(t *testing.T) {
				fly(t, flavour, nil, func(f *flight) {
					c := answeredOn(f, n, line.damaged, line.trip)
					t.Logf("%s: %s", name, c)
					if c.falsely > 0 {
						t.Errorf("%d answers were false", c.falsely)
					}
					if got := float64(c.acked) / float64(n); got < line.least && !testing.Short() { // 100 are too few to count
						t.Errorf("%.3f of the commands were answered by an ack, want %.2f; repeat with -noise-seed %d", got, line.least, *noiseSeed)
					}
				})
			})
		}
	}
}

// answers counts how commands were answered.
type answers struct {
	acked, refused, interrupted, unanswered, offline, falsely int
	took                                                      []time.Duration // those that an ack answered
}

func (c answers) String() string {
	slices.Sort(c.took)
	at := func(p int) time.Duration {
		if len(c.took) == 0 {
			return 0
		}
		return c.took[min(len(c.took)*p/100, len(c.took)-1)].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d by an ack (p50 %v, p99 %v), %d interrupted, %d 504, %d 503, %d false", c.acked+c.refused, at(50), at(99), c.interrupted, c.unanswered, c.offline, c.falsely)
}

// answeredOn posts n commands one after another, each of one MAVLink command:
// returns, holds, and disarmings, which are refused in the air. A return that
// nobody answered and that the vehicle shows late ends the next command: it may
// be a failsafe's (docs/design.md, rule 5).
func answeredOn(f *flight, n int, damaged float64, trip time.Duration) (c answers) {
	f.aloft()
	lat, lon := simPlace(40000, 0) // far enough for every return that follows
	f.sim.placeAt(lat, lon)
	time.Sleep(time.Second)
	f.sim.change(func() {
		each := damaged / 4
		noise := simFault{drop: each, repeat: each, flip: each, insert: each, seed: 2 * *noiseSeed}
		f.sim.faultIn = noise
		noise.seed++
		f.sim.faultOut = noise
		f.sim.delay = trip
	})
	time.Sleep(5 * time.Second)
	var doubted time.Time // when a return was last left without an answer
	for i := range n {
		path, body, want := "/mode", `{"mode":"rtl"}`, ModeRTL
		switch i % 3 {
		case 1:
			body, want = `{"arm":false}`, ModeOther // refused
		case 2:
			body, want = `{"mode":"hold"}`, ModeHold
		}
		began := time.Now()
		code, o := f.call("POST", path, body)
		took := time.Since(began)
		time.Sleep(100 * time.Millisecond) // PX4 acknowledges before it flies
		mode := f.sim.truth()
		switch {
		case code == 200:
			c.acked++
			c.took = append(c.took, took)
			if mode.mode != entered[f.firmware][want] {
				c.falsely++
			}
		case code == 409 && o["code"] == "refused":
			c.refused++
			c.took = append(c.took, took)
			if want != ModeOther {
				c.falsely++
			}
		case code == 409 && o["code"] == "interrupted":
			c.interrupted++
			if mode.mode != entered[f.firmware][ModeRTL] || began.Sub(doubted) > followTime {
				c.falsely++
			}
		case code == 504:
			c.unanswered++
		case code == 503:
			c.offline++
		default:
			f.Fatalf("POST %s %s: %d %v", path, body, code, o)
		}
		if want == ModeRTL && code >= 500 {
			doubted = time.Now()
		}
		time.Sleep(2100 * time.Millisecond)
	}
	c.acked, c.refused = c.acked+c.refused, 0
	return c
}
