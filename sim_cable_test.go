package main

import (
	"bytes"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

func TestSimCableReplacesAnOlderEnd(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		second, err := b.open()
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.port.Read(make([]byte, 1))
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
	simFlight(t, simPX4, func(s *simulator) { s.muted = true }, func(b *simBoard) {
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
		write := func() { _, err := b.port.Write([]byte{1}); done <- err }
		go write()
		synctest.Wait()
		b.want("finished", len(done), 0)
		b.stallWrites(false)
		b.want("error", <-done, error(nil))
		b.stallWrites(true)
		go write()
		synctest.Wait()
		b.port.Close()
		b.want("error of a closed port", <-done, io.ErrClosedPipe)
	})
}

func TestSimDropsWholeFramesWhenNobodyReads(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		p, _ := b.open() // ends the reader of the first
		time.Sleep(time.Minute)
		buf := make([]byte, 2*simBuffer)
		n, _ := p.Read(buf)
		if n > simBuffer || n < simBuffer-100 {
			t.Errorf("%d bytes were kept", n)
		}
		r := frame.Reader{ByteReader: bytes.NewReader(buf[:n]), DialectRW: dialectRW}
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

func TestSimSurvivesLineNoise(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		time.Sleep(time.Second)
		b.change(func() {
			b.faultIn = simFault{drop: 0.002, repeat: 0.002, flip: 0.002, insert: 0.002}
			b.faultOut = b.faultIn
		})
		b.forget()
		for range 20 {
			b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 4, Param3: 3})
		}
		if n := len(b.answers(simSetMode)); n < 10 || n >= 40 {
			t.Errorf("%d of 40 acks came through the noise", n)
		}
	})
}

// The two moments are ones in which the first roll of the dice makes a frame
// that checks: of one damaged frame, and of two that ran together.
func TestSimNoiseMakesNoFrameThatNobodySent(t *testing.T) {
	const frames = 256
	for seed, from := range map[uint64]int{3: 6 * 256, 20: 37 * 256} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(seed)*time.Minute + time.Duration(from)*time.Millisecond)
			s := newSimulator(simPX4)
			var w simWire
			var line []byte
			sent := map[string]bool{}
			for n := from; n < from+frames; n++ {
				time.Sleep(time.Millisecond)
				s.out.Reset()
				_ = s.writer.Write(&common.MessageCommandAck{
					Command: simArm, Result: common.MAV_RESULT((n+1)%5 + 1), TargetSystem: 1, TargetComponent: uint8(n+1) | 1,
				})
				b := bytes.Clone(s.out.Bytes())
				sent[string(b)] = true
				line = append(line, w.carry(b, simFault{drop: 0.03, repeat: 0.01, flip: 0.03, insert: 0.01, seed: seed})...)
			}
			found := 0
			for i, c := range line {
				r := frame.Reader{ByteReader: bytes.NewReader(line[i:]), DialectRW: dialectRW}
				_ = r.Initialize()
				f, err := r.Read()
				if c != frame.V2MagicByte && c != frame.V1MagicByte || err != nil || dialectRW.GetMessage(f.GetMessage().GetID()) == nil {
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
	synctest.Test(t, func(t *testing.T) {
		f := simFault{drop: 0.05, repeat: 0.05, flip: 0.05, insert: 0.05, seed: 1}
		b := bytes.Repeat([]byte{7}, 100)
		var one, other simWire
		one.carry(b, f)
		time.Sleep(time.Millisecond)
		first := one.carry(b, f)
		if !bytes.Equal(first, other.carry(b, f)) {
			t.Error("what was before changed the noise")
		}
		if bytes.Equal(first, one.carry(b, f)) {
			t.Error("two writes of one moment have the same noise")
		}
		f.seed = 2
		if other = (simWire{}); bytes.Equal(first, other.carry(b, f)) {
			t.Error("another seed makes the same noise")
		}
	})
}

func TestSimLosesAllThatABrokenFrameClaims(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		b.forget()
		_, _ = b.port.Write([]byte{frame.V2MagicByte, 255, 0, 0})
		hold := &common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 4, Param3: 3}
		time.Sleep(time.Minute) // it has no end by itself
		for range 6 {
			b.write(hold)
		}
		b.want("acks of commands inside of it", len(b.answers(simSetMode)), 0)
		b.forget()
		for range 6 {
			b.write(hold)
		}
		if n := len(b.answers(simSetMode)); n < 2 {
			t.Errorf("%d acks behind it", n)
		}
	})
}

// simStaleFrames opens a port on a line that nobody read for a while, and
// returns how many frames of at least 5 s of age it then delivers. The
// vehicle's mode changed 4 s before the opening. flush is called at the times.
func simStaleFrames(t *testing.T, flushes ...time.Duration) (old, oldModes, frames int) {
	t.Helper()
	simFlight(t, simPX4, func(s *simulator) { s.stale = 300 }, func(b *simBoard) {
		b.port.Close()
		time.Sleep(16 * time.Second)
		b.pilotMode(simPX4Land)
		time.Sleep(4 * time.Second)
		opened := uint32(time.Since(b.booted).Milliseconds())
		p, err := b.open()
		if err != nil {
			t.Fatal(err)
		}
		last := time.Duration(0)
		for _, at := range flushes {
			time.Sleep(at - last)
			_ = p.(*simPort).ResetInputBuffer()
			last = at
		}
		b.forget()
		go b.listen(p)
		time.Sleep(2 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, h := range b.got {
			switch m := h.msg.(type) {
			case *common.MessageAttitude:
				if m.TimeBootMs+5000 <= opened {
					old++
				}
			case *common.MessageHeartbeat:
				if m.CustomMode != simPX4Land {
					oldModes++
				}
			}
		}
		frames = len(b.got)
	})
	return old, oldModes, frames
}

func TestSimLineHoldsStaleFramesAtTheOpening(t *testing.T) {
	old, modes, frames := simStaleFrames(t)
	if old < 50 || modes < 5 || frames < 300 {
		t.Errorf("%d old attitudes, %d heartbeats of an old mode in %d frames", old, modes, frames)
	}
	once, modes, _ := simStaleFrames(t, 0)
	if once == 0 || once >= old || modes == 0 {
		t.Errorf("one flush leaves %d of %d, %d heartbeats of an old mode", once, old, modes)
	}
	if soon, _, _ := simStaleFrames(t, 0, 20*time.Millisecond); soon == 0 {
		t.Errorf("a second flush after 20 ms is enough")
	}
	if twice, modes, _ := simStaleFrames(t, 0, 55*time.Millisecond); twice != 0 || modes != 0 {
		t.Errorf("two flushes leave %d, %d heartbeats of an old mode", twice, modes)
	}
}
