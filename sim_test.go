package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

// ---- Both flavours ----

func TestSimOfBothFlavours(t *testing.T) {
	simFlies(t, []rule{
		{"PX4 sends without a request, and stops on request",
			"px4: SET_MESSAGE_INTERVAL 33 {0→5|10000→100|-1→0} = accepted, mark, +1s, count 33 $1"},
		{"CURRENT_MODE comes on request, until a restart",
			"px4: count 436 0, SET_MESSAGE_INTERVAL 436 10000, not count 436 0, restart, +10ms, mark, +3s, " +
				"count 436 0"},
		{"an interval that was set for HEARTBEAT ends with a restart",
			"copter: SET_MESSAGE_INTERVAL 0 50000, restart, +2500ms, mark, +10s, count 0 10"},
		{"a restart forgets all but the parameters",
			"{px4|copter}: +14s, SET_MESSAGE_INTERVAL 245 20000, air 10, failsafe, +20ms, restart, not failing, alt " +
				"10 ±0.1, mark, +2s, count 245 < 4, clock < 3"},
		{"it has a top speed, and drifts on with centred sticks",
			"{px4: air 200, as 255, sticks 0 0 500 0 for 400ms, mode ALTCTL→500|px4: air 200, as 255, sticks 0 0 " +
				"550 0 for 400ms, mode MANUAL→550|" +
				"copter: air 200, as 255, sticks 0 0 500 0 for 400ms, mode ALT_HOLD→500|copter: air 200, as 255, " +
				"sticks " +
				"0 0 500 0 for 400ms, mode STABILIZE→500}, " +
				"sticks 1000 0 $1 0 for 40s, speed 19.5 ±1, sticks 0 0 $1 0 for 1s, speed 17 ±4"},
	})
}

// The simulated PX4 flies as the captured one. Not compared: the battery (the real one was
// drained fast), GPS quality, estimator noise, EVENT (410, which is not decoded here) and the
// PARAM_VALUEs that PX4 sends by itself at boot.
func TestSimFliesLikeTheCapturedPX4(t *testing.T) {
	real := readCapture(t, "px4-pilot.tlog")
	prepare := func(s *simulator) {
		s.armableAfter = 4150 * time.Millisecond // as captured
		s.homeSteps = true
	}
	simFlight(t, simPX4, prepare, func(b *simBoard) {
		simulated := flyCaptured(b, 494*time.Millisecond, px4Capture)
		kinds := func(heard []captureHeard) (ids []uint32) {
			for _, h := range heard {
				if id := h.msg.GetID(); id != 410 && id != 22 && !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			slices.Sort(ids)
			return ids
		}
		b.want("kinds of messages", kinds(simulated), kinds(real))
		// HEARTBEAT at 1 Hz and SYS_STATUS at 2 Hz show a change late. The estimator disturbed
		// the real landing; the climb is modelled in two pieces.
		within := func(most time.Duration) func(time.Duration) time.Duration {
			return func(at time.Duration) time.Duration {
				switch {
				case at > 90*time.Second:
					return 8 * time.Second
				case at > 28*time.Second && at < 31200*time.Millisecond:
					return 1500 * time.Millisecond
				}
				return most
			}
		}
		captureRules{bits: math.MaxUint32, late: map[string]func(time.Duration) time.Duration{
			"ack": func(time.Duration) time.Duration { return 20 * time.Millisecond },
			"text": func(at time.Duration) time.Duration { // with its cause, or 50 ms after the last text
				if at > 18*time.Second {
					return 500 * time.Millisecond // the propellers' run-up
				}
				return 30 * time.Millisecond
			},
			"heartbeat": within(1050 * time.Millisecond), "sensors": within(600 * time.Millisecond),
			"landed": within(500 * time.Millisecond),
		}}.compare(t, real, simulated)
		// In metres. The real vehicle flies up to 4.2 m/s, the simulated one 5; both climb 12 m in
		// 14 s and 11 m in the 5 s of the return. The target is not compared around its changes.
		for _, tenths := range []int{100, 160, 180, 250, 300, 320, 330, 370, 400, 425, 436, 450, 478, 490, 510, 530,
			560, 580, 700} {
			at := time.Duration(tenths)*100*time.Millisecond + 99*time.Millisecond // the end of that tenth
			got, want := fixAt(simulated, at), fixAt(real, at)
			if tenths < 570 {
				wantFix(t, at, "north", got.north, want.north, 9)
				wantFix(t, at, "height", got.up, want.up, 3)
			}
			if tenths != 370 && tenths != 425 {
				wantFix(t, at, "target's north", got.toNorth, want.toNorth, 5)
				wantFix(t, at, "target's height", got.toUp, want.toUp, 2) // in LAND 0 AMSL
			}
		}
	})
}

func TestSimFliesLikeTheCapturedArduPilot(t *testing.T) {
	real := readCapture(t, "ardupilot-pilot.tlog")
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		simulated := flyCaptured(b, 1036*time.Millisecond, arduPilotCapture)
		// A command's effect comes within 60 ms of the captured time: both answer within 10 ms,
		// and a stick adds 40 ms. A stream shows a change late by up to its period. The boot's
		// times depend on the sensors: 1 s. The return lands 2.5 s early.
		late := map[string]func(time.Duration) time.Duration{}
		for kind, ms := range map[string]time.Duration{
			"ack": 60, "text": 60, "heartbeat": 1060, "channels": 560, "gps": 560, "place": 300,
			"landed": 310, "sensors": 560, "target": 560, "home": 2060,
		} {
			late[kind] = func(at time.Duration) time.Duration {
				switch {
				case at < 30*time.Second:
					return ms*time.Millisecond + time.Second
				case at > 89*time.Second:
					return ms*time.Millisecond + 3*time.Second
				}
				return ms * time.Millisecond
			}
		}
		captureRules{
			bits: common.MAV_SYS_STATUS_PREARM_CHECK | common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER |
				common.MAV_SYS_STATUS_SENSOR_GPS |
				common.MAV_SYS_STATUS_SENSOR_BATTERY | common.MAV_SYS_STATUS_AHRS |
				common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL | common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL,
			texts: []string{"ArduPilot Ready", "Arm: Accels inconsistent", "Arming motors", "Disarming motors"},
			late:  late,
		}.compare(t, real, simulated)

		// The place is within 1 m along the way and 1.2 m in height. Only on the return, where
		// ArduPilot limits its jerk, the simulator is up to 8 m ahead, and so lands 2.5 s, or
		// 3 m of descent, early.
		for at := 20 * time.Second; at < 132*time.Second; at += 500 * time.Millisecond {
			want, got := fixAt(real, at), fixAt(simulated, at)
			level, height := 1.0, 1.2
			switch {
			case at > 88*time.Second && at < 99*time.Second:
				level = 9
			case at > 101*time.Second:
				height = 3.5
			}
			wantFix(t, at, "north", got.north, want.north, level)
			wantFix(t, at, "height", got.up, want.up, height)
		}

		last := map[uint32][2]reflect.Value{} // captured, simulated
		for i, heard := range [][]captureHeard{real, simulated} {
			for _, h := range heard {
				both := last[h.msg.GetID()]
				both[i] = reflect.ValueOf(h.msg).Elem()
				last[h.msg.GetID()] = both
			}
		}
		for id, fields := range captureSame {
			for _, name := range fields {
				want, got := last[id][0].FieldByName(name), last[id][1].FieldByName(name)
				// false if they are no numbers
				near := math.Abs(captureNumber(want)-captureNumber(got)) <= captureSlack[name]
				if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g && !near {
					t.Errorf("message %d: %s is %s, captured %s", id, name, g, w)
				}
			}
		}
	})
}

func TestSimCableReplacesAnOlderEnd(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		second, err := b.open()
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.link.port.Read(make([]byte, 1))
		b.want("read of the first end", err, io.EOF)
		b.unplug()
		_, err = second.Read(make([]byte, 1))
		b.want("read after unplug", err, io.EOF)
		_, err = b.open()
		b.want("open while unplugged", err, errSimUnplugged)
		b.plug()
		_, err = b.open()
		b.want("open after plug", err, error(nil))
	})
}

func TestSimReadEndsAtItsDeadline(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.switches().muted = true }, func(b *simBoard) {
		p, _ := b.open()
		begin := time.Now()
		_ = p.(*simPort).SetReadDeadline(begin.Add(100 * time.Millisecond))
		n, err := p.Read(make([]byte, 10))
		b.want("bytes", n, 0)
		b.want("error", err, os.ErrDeadlineExceeded)
		b.want("time", time.Since(begin), 100*time.Millisecond)
		b.want("close", p.Close(), error(nil))
		_, err = p.Read(make([]byte, 10))
		b.want("read after close", err, io.ErrClosedPipe)
	})
}

func TestSimStalledWriteWaits(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		b.stallWrites(true)
		done := make(chan error, 1)
		write := func() { _, err := b.link.port.Write([]byte{1}); done <- err }
		go write()
		synctest.Wait()
		b.want("finished", len(done), 0)
		b.stallWrites(false)
		b.want("error", <-done, error(nil))
		b.stallWrites(true)
		go write()
		synctest.Wait()
		b.link.port.Close()
		b.want("error of a closed port", <-done, io.ErrClosedPipe)
	})
}

func TestSimDropsWholeFramesWhenNobodyReads(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		p, _ := b.open() // ends the reader of the first port
		time.Sleep(time.Minute)
		buf := make([]byte, 2*simBuffer)
		n, _ := p.Read(buf)
		if n > simBuffer || n < simBuffer-100 {
			t.Errorf("%d bytes were kept", n)
		}
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(buf[:n])), DialectRW: dialectRW}
		_ = r.Initialize()
		for {
			if _, err := r.Read(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Frame n goes out n ms after as many minutes as the seed. Time and seed set simWire.carry's dice. At these times
// the dice make a frame that nobody sent, by damaging one or by running two together: carry must roll them again.
func TestSimNoiseMakesNoFrameThatNobodySent(t *testing.T) {
	const frames = 256
	for seed, before := range map[uint64]int{3: 6 * 256, 20: 37 * 256} {
		inLinkBubble(t, func(t *testing.T) {
			time.Sleep(time.Duration(seed)*time.Minute + time.Duration(before)*time.Millisecond)
			s := newTestSimulator(simPX4)
			var w simWire
			var line []byte
			sent := map[string]bool{}
			for n := before + 1; n <= before+frames; n++ {
				time.Sleep(time.Millisecond)
				s.out.Reset()
				_ = s.writer.Write(&common.MessageCommandAck{
					Command: simArm, Result: common.MAV_RESULT(n%5 + 1), TargetSystem: 1, TargetComponent: uint8(n) | 1,
				})
				b := bytes.Clone(s.out.Bytes())
				sent[string(b)] = true
				line = append(line, w.carry(b, simFault{drop: 0.03, repeat: 0.01, flip: 0.03, insert: 0.01,
					seed: seed})...)
			}
			found := 0
			for i, c := range line {
				r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(line[i:])), DialectRW: dialectRW}
				_ = r.Initialize()
				f, err := r.Read()
				if c != frame.V2MagicByte && c != frame.V1MagicByte || err != nil ||
					dialectRW.GetMessage(f.GetMessage().GetID()) == nil {
					continue
				}
				if end := i + 12 + int(line[i+1]); end > len(line) || !sent[string(line[i:end])] {
					t.Errorf("seed %d: nobody sent %+v", seed, f)
				}
				found++
			}
			if found < frames/10 || found > frames/2 {
				t.Errorf("seed %d: %d of %d frames came through", seed, found, frames)
			}
		})
	}
}

func TestSimNoiseDependsOnTheMomentAndTheSeedOnly(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		f := anyDamage(0.05, 1)
		b := bytes.Repeat([]byte{7}, 100)
		var one, other simWire
		one.carry(b, f)
		time.Sleep(time.Millisecond)
		first := one.carry(b, f)
		if !bytes.Equal(first, other.carry(b, f)) {
			t.Error("earlier bytes changed the noise")
		}
		if bytes.Equal(first, one.carry(b, f)) {
			t.Error("two writes of one moment have the same noise")
		}
		f.seed = 2
		if other = (simWire{}); bytes.Equal(first, other.carry(b, f)) {
			t.Error("another seed makes the same noise")
		}
		for _, d := range damages {
			if bytes.Equal(b, new(simWire).carry(b, d.fault)) {
				t.Errorf("nothing is %s", d.name)
			}
		}
	})
}

func TestSimLosesAllThatABrokenFrameClaims(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		_, _ = b.link.port.Write([]byte{frame.V2MagicByte, 255, 0, 0})
		time.Sleep(time.Minute) // the broken frame does not time out
		b.want("acks of commands inside of it", b.ackedHolds(6), 0)
		if n := b.ackedHolds(6); n < 2 {
			t.Errorf("%d acks of commands after it", n)
		}
	})
}
