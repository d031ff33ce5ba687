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
			noise := simFault{drop: 0.002, repeat: 0.002, flip: 0.002, insert: 0.002}
			b.setNoise(noise, noise)
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
		inLinkBubble(t, func(t *testing.T) {
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
	inLinkBubble(t, func(t *testing.T) {
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
		_, _ = b.link.port.Write([]byte{frame.V2MagicByte, 255, 0, 0})
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
