package main

import (
	"bytes"
	"io"
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

func TestSimReadTimesOutWithNothing(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.muted = true }, func(b *simBoard) {
		p, _ := b.open()
		_ = p.(*simPort).SetReadTimeout(100 * time.Millisecond)
		begin := time.Now()
		n, err := p.Read(make([]byte, 10))
		b.want("bytes", n, 0)
		b.want("error", err, error(nil))
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
