package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// componentID is ours: MAV_COMP_ID_ONBOARD_COMPUTER. knockComponentID is the
// one that PX4 must hear a ground station from to send its texts.
const (
	componentID      = 191
	knockComponentID = 190
	autopilotID      = 1 // MAV_COMP_ID_AUTOPILOT1
)

// outgoing is a message and who says it: a system and component id.
type outgoing struct {
	system, component byte
	msg               message.Message
}

// connection is one open port with the goroutine that owns its writing.
type connection struct {
	port    port
	queue   chan outgoing
	sticks  chan struct{} // the newest sticks wait to be written
	opened  time.Time
	frameAt time.Time    // of the last valid frame
	writing atomic.Int64 // when the pending write began, in nanoseconds since opened; 0: none
	why     error        // the link's own reason to close the port
	close   func()       // ends the writer, which closes the port
}

// link is the connection to one vehicle: it keeps the port open, knows the
// telemetry, runs the mode machine and carries out plans.
type link struct {
	device device
	system byte // only this vehicle's; 0 takes the first
	gcs    bool // be its ground station

	sent     atomic.Uint64
	received atomic.Uint64
	errors   atomic.Uint64
	lost     atomic.Uint64
	version  atomic.Uint64 // rises with what a status must show at once: all but telemetry
	beat     atomic.Int64  // when the link's clock last ran, for the watchdog; Unix nanoseconds

	mu       sync.Mutex // guards all below
	conn     *connection
	tel      telemetry
	machine  machine
	stick    sticks
	op       *operation // carrying out a plan, or on the way to a landing
	target   *place
	waiters  map[uint16]*waiter
	owed     map[uint16]owedAcks
	gcsID    byte // the system that ArduPilot takes sticks from
	gcsKnown bool // it said so itself
	stopped  bool // the link is shutting down

	wg       sync.WaitGroup // goroutines of link.run
	wake     chan struct{}  // the clock has something to do now
	hurry    chan struct{}  // an ack is awaited from now on
	done     chan struct{}  // closed when the link shuts down
	greeting bool           // a greet goroutine runs
	greet    bool           // it should begin again
	metAt    time.Time      // when one began
	nextBeat time.Time
	nextLog  time.Time
	logged   uint64
}

func newLink(d device, system byte, gcs bool) *link {
	return &link{
		device: d, system: system, gcs: gcs,
		tel:     newTelemetry(),
		waiters: make(map[uint16]*waiter),
		owed:    make(map[uint16]owedAcks),
		gcsID:   255,
		wake:    make(chan struct{}, 1),
		hurry:   make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
}

// run keeps the link until ctx is done, then centres the sticks and closes the
// port. It returns when every goroutine of the link has ended.
func (l *link) run(ctx context.Context) {
	clockStop := make(chan struct{})
	var clock sync.WaitGroup
	clock.Go(func() { l.runClock(clockStop) })
	defer clock.Wait()
	defer close(clockStop)

	stop := context.AfterFunc(ctx, l.shutDown)
	defer stop()
	backoff := backoffFirst
	complained := ""
	for {
		p, err := l.device.open(ctx)
		if ctx.Err() != nil {
			if err == nil {
				p.Close()
			}
			break
		}
		if err == nil {
			slog.Info("port open", "device", l.device.name, "baud", l.device.baud())
			complained = ""
			var heard bool
			if heard, err = l.serve(ctx, p); heard {
				backoff = backoffFirst
			}
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil && err.Error() != complained {
			complained = err.Error()
			slog.Warn("port lost; trying again until it is back", "device", l.device.name, "error", err)
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		backoff = min(2*backoff, backoffLast)
	}
	l.shutDown()
	l.wg.Wait()
}

// shutDown ends everything that waits, and lets nothing new begin.
func (l *link) shutDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.stopped = true
		close(l.done)
	}
}

// serve reads a port until it fails or ctx is done, and closes it.
func (l *link) serve(ctx context.Context, p port) (heard bool, err error) {
	now := time.Now()
	c := &connection{
		port: p, queue: make(chan outgoing, 64), sticks: make(chan struct{}, 1),
		opened: now, frameAt: now,
	}
	broken, cancel := context.WithCancel(ctx)
	c.close = cancel
	var writer sync.WaitGroup
	writer.Go(func() { l.write(ctx, broken, c) })
	l.mu.Lock()
	l.conn = c
	l.tel.seqKnown = false
	l.mu.Unlock()
	l.pokeClock()

	var in deframer
	var dec decoder
	var n int
	var last time.Time
	_, in.datagrams = p.(interface {
		ReadFromUDP([]byte) (int, *net.UDPAddr, error)
	})
	_, line := p.(interface{ Drain() error })
	for err == nil {
		space := in.space()
		n, err = p.Read(space)
		now := time.Now()
		in.filled(n, now)
		for {
			f, ok := in.next()
			if !ok {
				break
			}
			heard = true
			l.received.Add(1)
			l.take(c, &dec, f, now)
		}
		if in.errors > 0 {
			l.errors.Add(in.errors)
			in.errors = 0
		}
		if n == 0 && err == nil && !in.datagrams {
			err = io.ErrUnexpectedEOF
		}
		if line && now.Sub(last) < 2*readEvery && n < len(space) {
			l.gather(broken)
		}
		last = now
	}
	l.mu.Lock()
	l.conn = nil
	if c.why != nil {
		err = c.why
	}
	l.mu.Unlock()
	cancel()
	// The clock no longer sees a write that hangs.
	hung := time.AfterFunc(writeHangs, func() { p.Close() })
	defer hung.Stop()
	writer.Wait()
	return heard, err
}

// gather lets bytes come for readEvery: to be woken for every few of them costs
// ten times what decoding them does. An ack is not kept waiting.
func (l *link) gather(broken context.Context) {
	l.mu.Lock()
	awaited := len(l.waiters) > 0
	l.mu.Unlock()
	if awaited {
		return
	}
	timer := time.NewTimer(readEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.hurry:
	case <-broken.Done():
	}
}

// write owns the writing of a port until it is broken. When the link shuts down
// it writes the last sticks. It closes the port.
func (l *link) write(ctx, broken context.Context, c *connection) {
	defer c.port.Close()
	senders := make(map[[2]byte]*sender)
	put := func(o outgoing) bool {
		who := [2]byte{o.system, o.component}
		s := senders[who]
		if s == nil {
			s = newSender(o.system, o.component)
			senders[who] = s
		}
		b, err := s.encode(o.msg)
		if err != nil {
			slog.Error("a message can't be encoded", "message", fmt.Sprintf("%T", o.msg), "error", err)
			return true
		}
		c.writing.Store(int64(max(time.Since(c.opened), 1)))
		_, err = c.port.Write(b)
		if err != nil {
			slog.Debug("write failed", "device", l.device.name, "error", err)
			c.close()
			return false
		}
		c.writing.Store(0)
		l.sent.Add(1)
		return true
	}
	var manual common.MessageManualControl
	for {
		select {
		case <-broken.Done():
			if ctx.Err() == nil {
				return
			}
			l.mu.Lock()
			o, ok := l.lastSticks(&manual)
			l.mu.Unlock()
			if ok && put(o) {
				if p, ok := c.port.(interface{ Drain() error }); ok {
					c.writing.Store(int64(time.Since(c.opened)))
					p.Drain()
				}
			}
			return
		case <-c.sticks:
			l.mu.Lock()
			o, ok := l.stickMessage(&manual)
			l.mu.Unlock()
			if ok && !put(o) {
				return
			}
		case o := <-c.queue:
			if !put(o) {
				return
			}
		}
	}
}

var (
	errNoPort    = errors.New("the port is not open")
	errQueueFull = errors.New("the port takes no more messages")
	errWriteHung = errors.New("a write hung for 2 s")
	errSilent    = errors.New("nothing that reads as MAVLink for 5 s")
)

// send queues a message from our own system; it never waits. l.mu is held.
func (l *link) send(component byte, m message.Message) error {
	if l.conn == nil {
		return errNoPort
	}
	select {
	case l.conn.queue <- outgoing{l.ourSystem(), component, m}:
		return nil
	default:
		return errQueueFull
	}
}

// ourSystem is the vehicle's system id: we are a part of it.
func (l *link) ourSystem() byte {
	switch {
	case l.tel.system != 0:
		return l.tel.system
	case l.system != 0:
		return l.system
	}
	return 1
}

// badPlaces counts the places on the line where bytes were no frame.
func (l *link) badPlaces() uint64 {
	n := l.errors.Load()
	if l.device.noise != nil {
		n += l.device.noise()
	}
	return n
}

// take takes one checked frame.
func (l *link) take(c *connection, dec *decoder, f rawFrame, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.frameAt = now
	if f.component != autopilotID {
		return
	}
	if f.id == 0 {
		if f.known == nil || !l.latch(c, dec, f, now) {
			return
		}
	} else if f.system != l.tel.system {
		return
	}
	l.countLost(f.seq)
	if f.known == nil || f.id == 0 {
		return
	}
	m, err := dec.decode(f)
	if err != nil { // a version 1 frame of another length
		l.errors.Add(1)
		return
	}
	l.hear(m, now)
}

// countLost counts the gaps in the vehicle's sequence. A step back is a frame
// that UDP delivered late.
func (l *link) countLost(seq byte) {
	gap := seq - l.tel.seq - 1
	if l.tel.seqKnown && gap > 127 {
		return
	}
	if l.tel.seqKnown {
		l.lost.Add(uint64(gap))
	}
	l.tel.seq, l.tel.seqKnown = seq, true
}

// latch takes a heartbeat, and the vehicle it is of if there is none yet. It
// reports whether the frame is the vehicle's.
func (l *link) latch(c *connection, dec *decoder, f rawFrame, now time.Time) bool {
	m, err := dec.decode(f)
	if err != nil {
		l.errors.Add(1)
		return false
	}
	hb, ok := m.(*minimal.MessageHeartbeat)
	if !ok || hb.Autopilot == minimal.MAV_AUTOPILOT_INVALID || f.system == 0 {
		return false
	}
	switch {
	case l.tel.system != 0:
		if f.system != l.tel.system {
			return false
		}
	case l.system != 0 && f.system != l.system:
		return false
	default:
		l.tel.system = f.system
		slog.Info("vehicle found", "system", f.system, "autopilot", hb.Autopilot, "type", hb.Type)
	}
	if p, ok := c.port.(*udpPort); ok {
		p.heard()
	}
	l.hearHeartbeat(hb, now)
	return true
}
