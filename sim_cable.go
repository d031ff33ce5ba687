package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialect"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// simDialect has the link's dialect and the messages that only the simulator sends or reads. It is
// built on first use, so a mavrest without simulator does not pay for it.
var simDialect = sync.OnceValue(func() *dialect.ReadWriter {
	messages := slices.Clone(dialectRW.Dialect.Messages)
	for _, m := range []message.Message{
		&common.MessageTimesync{}, &common.MessageCurrentMode{}, &common.MessageParamSet{},
	} {
		if dialectRW.GetMessage(m.GetID()) == nil {
			messages = append(messages, m)
		}
	}
	return newDialect(messages...)
})

// simPort is the companion's or a ground station's end of a cable. Like a UART it has no flow
// control: a write waits only while stall is set, and bytes that do not fit into a buffer are lost.
type simPort struct {
	s           *simulator
	toCompanion []byte
	toAutopilot []byte
	gathered    []byte        // bytes to the autopilot that are not delivered yet
	gathering   bool          // deliver is scheduled
	readUntil   time.Time     // deadline of a Read; zero if there is none
	writeUntil  time.Time     // deadline of a Write; zero if there is none
	arrived     chan struct{} // signals that toCompanion has more bytes
	gone        chan struct{} // closed when the port is closed
	err         error         // why the port is closed; nil while it is open
}

var errSimUnplugged = errors.New("sim: the cable is unplugged")

// open plugs the cable in and returns the companion's end. An end that was plugged in
// before reads io.EOF from now on.
func (s *simulator) open() (port, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unplugged {
		return nil, errSimUnplugged
	}
	s.port.closeWith(io.EOF)
	s.port = newSimPort(s)
	return s.port, nil
}

func newSimPort(s *simulator) *simPort {
	return &simPort{s: s, arrived: make(chan struct{}, 1), gone: make(chan struct{})}
}

func (p *simPort) wake() {
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// unplug pulls the cables: open fails from now on.
func (s *simulator) unplug() {
	s.change(func() {
		s.port.closeWith(io.EOF)
		s.gcsPort.closeWith(io.EOF)
		s.port, s.unplugged = nil, true
	})
}

// closeWith closes the port, unless it is nil or closed already. The simulator's mutex must
// be held.
func (p *simPort) closeWith(err error) {
	if p == nil || p.err != nil {
		return
	}
	p.err = err
	close(p.gone)
}

func (p *simPort) Read(b []byte) (int, error) {
	var expired <-chan time.Time
	for {
		p.s.mu.Lock()
		n, until, err := copy(b, p.toCompanion), p.readUntil, p.err
		p.toCompanion = p.toCompanion[n:]
		p.s.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		if expired == nil && !until.IsZero() {
			expired = time.After(time.Until(until))
		}
		select {
		case <-p.arrived:
		case <-p.gone:
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func (p *simPort) Write(b []byte) (int, error) {
	p.s.mu.Lock()
	stall, until := p.s.stall, p.writeUntil
	p.s.mu.Unlock()
	if stall != nil {
		var expired <-chan time.Time
		if !until.IsZero() {
			expired = time.After(time.Until(until))
		}
		select {
		case <-stall:
		case <-p.gone:
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		}
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	n := min(max(0, simBuffer-len(p.toAutopilot)), len(b))
	p.gathered = append(p.gathered, p.s.noiseIn(b[:n])...)
	switch {
	case p.s.gathers == 0:
		p.deliver()
	case !p.gathering:
		p.gathering = true
		time.AfterFunc(p.s.gathers, func() { p.s.change(p.deliver) }) // a boot would empty the agenda
	}
	p.s.nudge()
	return len(b), nil
}

// deliver hands the gathered bytes to the autopilot.
func (p *simPort) deliver() {
	p.toAutopilot, p.gathered, p.gathering = append(p.toAutopilot, p.gathered...), nil, false
}

func (p *simPort) Close() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.port == p {
		p.deliver()
		p.s.receive() // bytes on the line still arrive
		p.s.port = nil
	}
	p.closeWith(io.ErrClosedPipe)
	return nil
}

func (p *simPort) SetReadDeadline(t time.Time) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.readUntil = t
	return nil
}

func (p *simPort) SetWriteDeadline(t time.Time) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.writeUntil = t
	return nil
}

// next returns the next whole frame to the autopilot with a good checksum; nil if there is none
// yet. It reads like the MAVLink C library, which both autopilots use: a broken frame is
// lost with all the bytes that its header claims, up to 280, however long these take to
// arrive.
func (p *simPort) next() frame.Frame {
	for p != nil && len(p.toAutopilot) > 2 {
		b, n := p.toAutopilot, 1
		switch {
		case b[0] == frame.V1MagicByte:
			n = 8 + int(b[1])
		case b[0] == frame.V2MagicByte && b[2]&^frame.V2FlagSigned != 0:
			n = 3 // flags that the MAVLink C library does not know
		case b[0] == frame.V2MagicByte:
			n = simFrameSize(b)
		}
		if n > len(b) {
			return nil
		}
		p.toAutopilot = b[n:]
		if n < 8 { // b does not begin with a frame
			continue
		}
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b[:n])), DialectRW: simDialect()}
		if f, err := r.Read(); err == nil {
			return f
		}
		if b[n-1] == frame.V2MagicByte { // the next frame begins with it
			p.toAutopilot = b[n-1:]
		}
	}
	return nil
}

// simFrameSize returns the size that a MAVLink 2 frame claims.
func simFrameSize(b []byte) int {
	n := 12 + int(b[1])
	if b[2]&frame.V2FlagSigned != 0 {
		n += 13 // the signature
	}
	return n
}

func (s *simulator) transmit(b []byte) { s.transmitOn(false, b) }

// transmitOn sends b on the companion's cable or on the ground station's. The caller must
// not change b afterwards. A full buffer loses the whole frame.
func (s *simulator) transmitOn(toGCS bool, b []byte) {
	put := func() {
		p := s.port
		if toGCS {
			p = s.gcsPort
		}
		if p == nil || len(p.toCompanion)+len(b) > simBuffer {
			return
		}
		if !toGCS {
			b = s.noiseOut(b)
		}
		p.toCompanion = append(p.toCompanion, b...)
		p.wake()
	}
	if s.muted {
		return
	}
	now := time.Now()
	if at := now.Add(s.delay); at.After(s.arrives) { // a line keeps the order of its frames
		s.arrives = at
	}
	if toGCS {
		put()
		return
	}
	s.soon(s.arrives.Sub(now), put)
}
