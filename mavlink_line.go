package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

const doubledWithin = 150 * time.Millisecond

// padding ends any frame that a receiver believes to be in the middle of: what a
// broken one claims is lost to it, up to 280 bytes, and a silent line never ends it.
var padding [280]byte

// sequence counts the gaps in the vehicle's frames.
type sequence struct {
	last  byte
	known bool
}

// lost counts the frames that are missing before one. A step back is a frame that
// UDP delivered late.
func (s *sequence) lost(seq byte) uint64 {
	gap := seq - s.last - 1
	if s.known && gap > 127 {
		return 0
	}
	if !s.known {
		gap = 0
	}
	s.last, s.known = seq, true
	return uint64(gap)
}

type reader struct {
	link     *link
	conn     *connection
	sequence sequence
	in       deframer
	dec      decoder
	due      time.Time // the port's read deadline
	any      bool
	acks     [8]struct { // the last
		echo
		at time.Time
	}
}

func (r *reader) read() error {
	l := r.link
	space := r.in.space()
	r.setDeadline()
	n, err := r.conn.port.Read(space)
	now := time.Now()
	r.in.filled(n, now)
	for {
		f, ok := r.in.next()
		if !ok {
			break
		}
		if r.conn.again && !r.any {
			l.tellOpen()
		}
		r.any = true
		l.received.Add(1)
		r.take(f)
	}
	if r.in.errors > 0 {
		l.errors.Add(r.in.errors)
		r.in.errors = 0
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case n == 0 && err == nil && !r.in.datagrams:
		err = io.ErrUnexpectedEOF
	}
	return err
}

// setDeadline ends a read when the rest of a frame is overdue: what is behind one
// that claims too much must not wait until the line speaks again.
func (r *reader) setDeadline() {
	p, ok := r.conn.port.(interface{ SetReadDeadline(time.Time) error })
	due := r.in.overdue()
	if ok && !due.Equal(r.due) && p.SetReadDeadline(due) == nil {
		r.due = due
	}
}

// take takes one checked frame, and hands it on if it concerns the vehicle.
func (r *reader) take(f rawFrame) {
	l := r.link
	l.mu.Lock()
	r.conn.frameAt = f.at
	notice := l.who.meets(f)
	vehicle := l.who.vehicle
	l.mu.Unlock()
	if notice != "" {
		slog.Warn(notice)
		l.hear(heard{at: f.at, notice: notice})
	}
	if f.id == 77 && r.doubled(f) { // COMMAND_ACK
		return
	}
	switch {
	case f.component == autopilotID && f.id == 0:
		r.heartbeat(f)
		return
	case f.component == autopilotID && f.system == vehicle && vehicle != 0:
		l.lost.Add(r.sequence.lost(f.seq))
	case vehicle != 0 && (f.id == 69 || f.id == 70): // MANUAL_CONTROL, RC_CHANNELS_OVERRIDE
		r.foreign(f, vehicle)
		return
	default:
		return
	}
	if m := r.decode(f); m != nil {
		l.hear(heard{at: f.at, msg: m, system: f.system})
	}
}

// decode is the message of a frame; nil where it is not known or not readable: a
// version 1 frame of another length.
func (r *reader) decode(f rawFrame) message.Message {
	if f.known == nil {
		return nil
	}
	m, err := r.dec.decode(f)
	if err != nil {
		r.link.errors.Add(1)
		return nil
	}
	return m
}

// doubled reports whether an ack came before, a moment ago: a line may bring a frame
// twice. Later another one may look the same: at 1,200 frames a second the sequence
// begins anew after 0.2 s.
func (r *reader) doubled(f rawFrame) bool {
	oldest := &r.acks[0]
	for i := range r.acks {
		a := &r.acks[i]
		if a.echo == f.echo() && f.at.Sub(a.at) < doubledWithin {
			return true
		}
		if a.at.Before(oldest.at) {
			oldest = a
		}
	}
	oldest.echo, oldest.at = f.echo(), f.at
	return false
}

// foreign takes sticks for our vehicle that somebody else sends.
func (r *reader) foreign(f rawFrame, vehicle byte) {
	l := r.link
	l.mu.Lock()
	echo := l.who.echoes.has(f.echo())
	l.mu.Unlock()
	if echo {
		return
	}
	var target byte
	m := r.decode(f)
	switch m := m.(type) {
	case *common.MessageManualControl:
		target = m.Target
	case *common.MessageRcChannelsOverride:
		target = m.TargetSystem
	}
	if target == vehicle {
		l.hear(heard{at: f.at, msg: m, system: f.system, foreign: true})
	}
}

// heartbeat takes an autopilot's heartbeat, and the vehicle it is of if there is
// none yet.
func (r *reader) heartbeat(f rawFrame) {
	l := r.link
	hb, ok := r.decode(f).(*minimal.MessageHeartbeat)
	if !ok || hb.Autopilot == minimal.MAV_AUTOPILOT_INVALID || f.system == 0 {
		return
	}
	l.mu.Lock()
	ours, found := l.who.find(f.system)
	l.mu.Unlock()
	if !ours {
		return
	}
	if found {
		slog.Info("vehicle found", "system", f.system, "autopilot", hb.Autopilot, "type", hb.Type)
	}
	if p, ok := r.conn.port.(interface{ heard() }); ok {
		p.heard()
	}
	l.lost.Add(r.sequence.lost(f.seq))
	l.hear(heard{at: f.at, msg: hb, system: f.system})
}

type writer struct {
	link    *link
	conn    *connection
	senders map[[2]byte]*sender
}

// put writes a message; false says that the port is broken.
func (w *writer) put(o outgoing) bool {
	l, c := w.link, w.conn
	if !o.at.IsZero() && time.Since(o.at) > staleAfter { // the line stood still
		return true
	}
	b := padding[:]
	if o.msg != nil {
		var err error
		if b, err = w.frame(o); err != nil {
			slog.Error("a message can't be encoded", "message", fmt.Sprintf("%T", o.msg), "error", err)
			return true
		}
	}
	c.writing.Store(int64(max(time.Since(c.opened), 1)))
	_, err := c.port.Write(b)
	if err != nil && err != errNobody {
		slog.Debug("write failed", "device", l.device.name, "error", err)
		c.close()
		return false
	}
	c.writing.Store(0)
	if err == nil && o.msg != nil {
		l.sent.Add(1)
	}
	return true
}

// putNewest is put of the newest sticks, if there are any.
func (w *writer) putNewest() bool {
	w.link.mu.Lock()
	o := w.link.sticks
	w.link.mu.Unlock()
	return o == nil || w.put(*o)
}

// frame is a message as it goes out; it is remembered, in case it comes back.
func (w *writer) frame(o outgoing) ([]byte, error) {
	who := [2]byte{o.system, o.component}
	s := w.senders[who]
	if s == nil {
		s = newSender(o.system, o.component)
		w.senders[who] = s
	}
	b, err := s.encode(o.msg)
	if err != nil {
		return nil, err
	}
	w.link.mu.Lock()
	w.link.who.echoes.add(echoOf(b))
	w.link.mu.Unlock()
	return b, nil
}

// rest writes what is queued, the newest sticks first, and waits until it is out.
func (w *writer) rest() {
	if len(w.conn.newest) > 0 && !w.putNewest() {
		return
	}
	for len(w.conn.queue) > 0 { // nobody else takes from it
		if !w.put(<-w.conn.queue) {
			return
		}
	}
	if p, ok := w.conn.port.(interface{ Drain() error }); ok {
		w.conn.writing.Store(int64(max(time.Since(w.conn.opened), 1)))
		p.Drain()
	}
}
