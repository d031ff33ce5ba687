package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

// replayScheme begins a -device that plays a recorded flight: replay:FILE or replay:FILE?speed=4.
const replayScheme = "replay:"

// fastestReplay is how fast a recorded flight may be played. A slower one than it was would look like a line that
// falls behind.
const fastestReplay = 20

// playback is a recorded flight as a device: the vehicle's messages come at the pace of then, or faster. What is
// written goes nowhere.
type playback struct {
	frames []playedFrame
	speed  float64

	// began is when the first frame came; only the reader uses what follows.
	began time.Time

	next int

	// rest are bytes of the last frame that Read has not returned yet.
	rest []byte
}

// playedFrame is a frame and how long behind the first one it came.
type playedFrame struct {
	after time.Duration
	bytes []byte
}

// errPlayed is what a recorded flight ends with.
var errPlayed = errors.New("the recorded flight is over; to see it again, start mavrest again")

// newPlayback returns the device of a -device that begins with replayScheme.
func newPlayback(name string) (device, error) {
	file, speed, fast := strings.Cut(strings.TrimPrefix(name, replayScheme), "?speed=")
	r := &playback{speed: 1}
	if fast {
		var err error
		r.speed, err = strconv.ParseFloat(speed, 64)
		if err != nil || !(r.speed >= 1 && r.speed <= fastestReplay) {
			return device{}, fmt.Errorf("-device %s: speed: want 1 to %d times as fast as it was, got %q", name,
				fastestReplay, speed)
		}
	}
	if file == "" {
		return device{}, fmt.Errorf("-device %s: want the file of a recorded flight: replay:FILE", name)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return device{}, fmt.Errorf("-device %s: %w", name, err)
	}
	began, err := r.load(b)
	if err != nil {
		return device{}, fmt.Errorf("-device %s: %w", name, err)
	}
	mute := fmt.Errorf("this is a recorded flight, of %s: it can be looked at, not commanded",
		began.UTC().Format("2 January 2006, 15:04:05 UTC"))
	return device{name: name, open: r.open, mute: mute}, nil
}

// load takes the autopilot's messages of a telemetry log, to its end or to a record that is torn. It returns when the
// first one came.
func (r *playback) load(b []byte) (began time.Time, err error) {
	if len(b) == 0 {
		return began, errors.New("this file is empty: nothing was recorded")
	}

	// Of each system's autopilot.
	var numbers [256]byte
	for len(b) > stampBytes {
		at := time.UnixMicro(int64(binary.BigEndian.Uint64(b)))
		size := claimedSize(b[stampBytes:])
		if size <= 0 || len(b) < stampBytes+size {
			break
		}
		f, whole := new(deframer).candidate(b[stampBytes : stampBytes+size])
		b = b[stampBytes+size:]
		if whole != size || f.known == nil || f.component != autopilotID || isAnswer(f.id) {
			continue
		}
		if len(r.frames) == 0 {
			began = at
		}
		r.frames = append(r.frames, playedFrame{at.Sub(began), renumbered(f, numbers[f.system])})
		numbers[f.system]++
	}
	if len(r.frames) == 0 {
		return began, errors.New("want a telemetry log (.tlog): no message of an autopilot is in this file")
	}
	return began, nil
}

// isAnswer reports whether a message answers a question of then, which would prove something of what is asked now.
func isAnswer(id uint32) bool {
	return id == (*common.MessageCommandAck)(nil).GetID() || id == (*common.MessageTimesync)(nil).GetID()
}

// renumbered is a frame without a signature, with a number of its own: a log lacks frames, and not because the line
// lost them.
func renumbered(f rawFrame, number byte) []byte {
	b, _ := withoutSignature(f.whole)
	at := 4
	if b[0] == frame.V1MagicByte {
		at = 2
	}
	b = append([]byte(nil), b...)
	b[at] = number
	end := len(b) - 2
	return binary.LittleEndian.AppendUint16(b[:end], checksum(b[1:end], f.known))
}

// open opens the flight; where it was opened before it goes on.
func (r *playback) open(context.Context) (port, error) {
	if r.next == len(r.frames) {
		return nil, errPlayed
	}
	if r.began.IsZero() {
		r.began = time.Now()
	}
	return &replayPort{playback: r, gone: make(chan struct{})}, nil
}

// replayPort is the one port of a playback.
type replayPort struct {
	*playback

	// until is the deadline of a Read.
	until time.Time

	gone chan struct{}
	once sync.Once

	emptied
}

func (p *replayPort) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		if p.next == len(p.frames) {
			return 0, errPlayed
		}
		f := p.frames[p.next]
		due := p.began.Add(time.Duration(float64(f.after) / p.speed))
		late := !p.until.IsZero() && p.until.Before(due)
		p.found(time.Now())
		select {
		case <-time.After(time.Until(sooner(due, p.until))):
		case <-p.gone:
			return 0, io.EOF
		}
		if late {
			return 0, os.ErrDeadlineExceeded
		}
		p.rest = f.bytes
		p.next++
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Write writes nothing: nobody is there.
func (p *replayPort) Write([]byte) (int, error) { return 0, errNoPeer }

func (p *replayPort) Close() error {
	p.once.Do(func() { close(p.gone) })
	return nil
}

func (p *replayPort) SetReadDeadline(t time.Time) error {
	p.until = t
	return nil
}

func (p *replayPort) SetWriteDeadline(time.Time) error { return nil }
