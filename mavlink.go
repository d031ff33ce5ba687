package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Times of the link (docs/design.md, "The link").
const (
	silentAfter    = 5 * time.Second        // without a valid frame: reopen
	backoffFirst   = 100 * time.Millisecond // before reopening, doubled each time
	backoffLast    = 2 * time.Second
	heartbeatEvery = time.Second
	staleAfter     = time.Second     // in the queue: nobody wants it any more
	echoWithin     = 2 * time.Second // a router or a radio sends a frame back
	noiseEvery     = 5 * time.Second // between two lines of the log about it
	doubledWithin  = 150 * time.Millisecond
)

// outgoing is a message and who says it.
type outgoing struct {
	system, component byte            // 0 is our own
	msg               message.Message // nil is padding
	at                time.Time       // when it was queued; zero: it is never too old
}

// heard is what the link hands on: a message of the vehicle, somebody else's
// sticks for it, or a notice of the link's own.
type heard struct {
	at      time.Time
	msg     message.Message
	system  byte // whose
	foreign bool // msg moves the vehicle's sticks, and is neither its own nor ours
	notice  string
}

// link is the connection to one vehicle: a port kept open, frames in, messages
// out, and our heartbeat. What it hears it hands to one function.
type link struct {
	device device
	only   byte // only this system id is the vehicle; 0 takes the first one heard
	gcs    bool // be its ground station
	hear   func(heard)

	sent, received, lost atomic.Uint64 // frames
	noise                struct {      // that was logged; the reader's own
		logged uint64
		next   time.Time
	}

	mu      sync.Mutex // guards all below; hear is called without it
	writer  *writer    // of the open port; nil where none is
	vehicle byte       // the vehicle's system id; 0 before its first heartbeat
	station byte       // the system that the sticks go out as; 0 before the first
	texts   bool       // a ground station's heartbeat goes out, so that PX4 sends its texts
	written recent     // frames, which a router may send back
	told    bool       // that somebody else has our ids
	beside  [256]bool  // other vehicles' system ids that were heard
	crowd   bool       // a second vehicle was told
	fault   error      // why the port is not open
}

// newLink makes the link that device opens; hear gets what comes, in the
// reader's goroutine.
func newLink(d device, only byte, gcs bool, hear func(heard)) *link {
	if d.line == nil {
		d.line = new(lineState)
	}
	return &link{device: d, only: only, gcs: gcs, hear: hear}
}

// run keeps the port open until ctx is done, writes what is queued then, and
// closes it.
func (l *link) run(ctx context.Context) {
	backoff := backoffFirst
	// A failure is told once: one to open until the port is open, one of an open
	// port until a frame comes.
	told, unopened := false, false
	for ctx.Err() == nil {
		p, err := l.device.open(ctx)
		l.logNoise(time.Now()) // of a search for the baud rate
		opened, hadFrame := err == nil, false
		if opened {
			told, unopened = told && !unopened, false
			hadFrame, err = l.serve(ctx, p)
		} else {
			unopened = unopened || !told
		}
		if !opened || networkFault(err) != "" { // udpout:// to nobody opens, and is refused then
			err = l.device.explain(err)
		}
		if ctx.Err() != nil {
			return
		}
		if hadFrame {
			backoff, told = backoffFirst, false
		}
		if !told {
			told = true
			slog.Warn("no link to the autopilot; trying again until there is", "device", l.device.name, "error", err)
		}
		l.mu.Lock()
		l.fault = err
		l.mu.Unlock()
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		backoff = min(2*backoff, backoffLast)
	}
}

// serve reads a port until it fails or ctx is done, and closes it. It reports
// whether anything that reads as MAVLink came.
func (l *link) serve(ctx context.Context, p port) (hadFrame bool, err error) {
	w, now := newWriter(l, p), time.Now()
	l.mu.Lock()
	l.writer, l.fault = w, nil
	l.mu.Unlock()
	l.hear(heard{at: now}) // the port is open

	broken, end := context.WithCancelCause(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		end(w.run(ctx, broken))
		p.Close() // ends the reader
	})
	r := &reader{link: l, port: p, frameAt: now}
	r.in.datagrams = l.device.datagrams
	for err == nil {
		err = r.read()
	}
	l.mu.Lock()
	l.writer = nil
	l.mu.Unlock()
	end(err)
	writing.Wait()
	return r.hadFrame, context.Cause(broken) // what came first
}

var (
	errNoPort    = errors.New("the port is not open")
	errQueueFull = errors.New("the port takes no more messages")
	errWriteHung = errors.New("a write hung for 2 s")
	errSilent    = errors.New("nothing that reads as MAVLink for 5 s")
)

// send queues a message from our own ids; it never waits.
func (l *link) send(m message.Message) error { return l.sendAs(0, 0, m) }

// sendAs queues a message from other ids than ours; zero ids are ours.
func (l *link) sendAs(system, component byte, m message.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer == nil {
		return errNoPort
	}
	select {
	case l.writer.queue <- outgoing{system, component, m, time.Now()}:
		return nil
	default:
		return errQueueFull
	}
}

// pad queues padding where bytes may be lost: on a serial line.
func (l *link) pad() {
	if l.device.lossy {
		l.send(nil)
	}
}

// move has the newest sticks written, and no older ones; nil has none written.
func (l *link) move(o *outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o != nil {
		l.station = cmp.Or(o.system, l.station)
	}
	if l.writer == nil {
		return
	}
	select {
	case <-l.writer.sticks:
	default:
	}
	if o != nil {
		l.writer.sticks <- *o
	}
}

// speakAsStation has a ground station's heartbeat go out each second, or not.
func (l *link) speakAsStation(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = on
}

// system is our system id: we are a part of the vehicle. l.mu is held.
func (l *link) system() byte { return cmp.Or(l.vehicle, l.only, 1) }

// addressed reports whether an ack is for us. An autopilot that does not fill the
// target in says 0.
func (l *link) addressed(system, component byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (system == 0 || system == l.system()) && (component == 0 || component == componentID)
}

// logNoise tells of bytes that were no frames, at most once in noiseEvery.
func (l *link) logNoise(now time.Time) {
	if n := l.device.line.noise.Load(); n != l.noise.logged && !now.Before(l.noise.next) {
		slog.Warn("bytes that are no MAVLink frame", "device", l.device.port(), "since_last", n-l.noise.logged, "in_all", n)
		l.noise.logged, l.noise.next = n, now.Add(noiseEvery)
	}
}

// linkState is the link at a moment, for the status.
type linkState struct {
	device                       string
	baud                         int
	received, lost, errors, sent uint64
	fault                        error
}

func (l *link) state() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return linkState{
		device: l.device.port(), baud: int(l.device.line.baud.Load()), fault: l.fault,
		received: l.received.Load(), lost: l.lost.Load(), errors: l.device.line.noise.Load(), sent: l.sent.Load(),
	}
}

// reader reads one open port.
type reader struct {
	link     *link
	port     port
	frameAt  time.Time // of the last valid frame
	hadFrame bool
	sequence sequence
	in       deframer
	acks     recent
}

// read takes what the port brings next. A port that brings no frame for
// silentAfter has failed.
func (r *reader) read() error {
	l := r.link
	r.port.SetReadDeadline(r.frameAt.Add(silentAfter))
	err := r.in.read(r.port)
	now := time.Now()
	for f, ok := r.in.next(); ok; f, ok = r.in.next() {
		if !r.hadFrame {
			slog.Info("MAVLink heard", "device", l.device.port(), "baud", l.device.line.baud.Load())
		}
		r.hadFrame, r.frameAt = true, now
		l.received.Add(1)
		r.take(f, now)
	}
	l.device.line.noise.Add(r.in.errors)
	r.in.errors = 0
	l.logNoise(now)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	return err
}

// take takes one checked frame, and hands it on if it concerns the vehicle.
func (r *reader) take(f rawFrame, now time.Time) {
	l := r.link
	l.mu.Lock()
	vehicle, echo := l.vehicle, l.written.has(f.header, time.Time{})
	// A frame whose checksum nobody can check may be noise. One that looks like an
	// older one of ours is no echo: all heartbeats with one number are equal.
	stranger := !l.told && f.known != nil && f.system == l.system() && f.component == componentID &&
		!l.written.has(f.header, now.Add(-echoWithin))
	l.told = l.told || stranger
	l.mu.Unlock()
	if stranger {
		l.hear(heard{at: now, notice: fmt.Sprintf("another program uses our MAVLink ids %d/%d: an answer to it may be taken for one to us", f.system, f.component)})
	}
	if echo || f.id == idCommandAck && r.doubled(f, now) {
		return
	}
	switch {
	case f.component == autopilotID && f.id == idHeartbeat:
		r.heartbeat(f, now)
	case vehicle == 0:
	case f.component == autopilotID && f.system == vehicle:
		l.lost.Add(r.sequence.lost(f.seq))
		if m := r.decode(f); m != nil {
			l.hear(heard{at: now, msg: m, system: f.system})
		}
	case f.id == idManualControl || f.id == idRcChannelsOverride:
		r.othersSticks(f, vehicle, now)
	}
}

// decode is the message of a frame; nil where it is not known or not readable.
func (r *reader) decode(f rawFrame) message.Message {
	if f.known == nil {
		return nil
	}
	m, err := f.decode()
	if err != nil {
		r.link.device.line.noise.Add(1)
		return nil
	}
	return m
}

// doubled reports whether an ack came before, a moment ago: a line may bring a frame
// twice. Later another one may look the same: at 1,200 frames a second the sequence
// begins anew after 0.2 s.
func (r *reader) doubled(f rawFrame, now time.Time) bool {
	if r.acks.has(f.header, now.Add(-doubledWithin)) {
		return true
	}
	r.acks.add(f.header, now)
	return false
}

// othersSticks takes sticks for our vehicle that somebody else sends.
func (r *reader) othersSticks(f rawFrame, vehicle byte, now time.Time) {
	var target byte
	m := r.decode(f)
	switch m := m.(type) {
	case *common.MessageManualControl:
		target = m.Target
	case *common.MessageRcChannelsOverride:
		target = m.TargetSystem
	}
	if target == vehicle {
		r.link.hear(heard{at: now, msg: m, system: f.system, foreign: true})
	}
}

// heartbeat takes an autopilot's heartbeat, and the vehicle it is of if there is
// none yet.
func (r *reader) heartbeat(f rawFrame, now time.Time) {
	l := r.link
	hb, ok := r.decode(f).(*minimal.MessageHeartbeat)
	if !ok || hb.Autopilot == minimal.MAV_AUTOPILOT_INVALID || f.system == 0 {
		return
	}
	l.mu.Lock()
	found := l.vehicle == 0 && (l.only == 0 || l.only == f.system)
	if found {
		l.vehicle = f.system
	}
	ours, vehicle := l.vehicle == f.system, l.vehicle
	// One heartbeat alone may be a damaged frame.
	crowd := !ours && vehicle != 0 && l.only == 0 && l.beside[f.system] && !l.crowd
	l.beside[f.system], l.crowd = true, l.crowd || crowd
	l.mu.Unlock()
	if crowd {
		l.hear(heard{at: now, notice: fmt.Sprintf("a second vehicle is on this line: system %d beside system %d, which was heard first and is flown; -system %d or -system %d makes sure which", f.system, vehicle, vehicle, f.system)})
	}
	if !ours {
		return
	}
	if found {
		slog.Info("vehicle found", "system", f.system, "autopilot", hb.Autopilot, "type", hb.Type)
	}
	if p, ok := r.port.(*udpPort); ok {
		p.heard()
	}
	l.lost.Add(r.sequence.lost(f.seq))
	l.hear(heard{at: now, msg: hb, system: f.system})
}

// writer writes one open port.
type writer struct {
	link    *link
	port    port
	queue   chan outgoing
	sticks  chan outgoing // the newest
	senders map[[2]byte]*sender
}

func newWriter(l *link, p port) *writer {
	return &writer{
		link: l, port: p, queue: make(chan outgoing, 64), sticks: make(chan outgoing, 1),
		senders: make(map[[2]byte]*sender),
	}
}

// run writes what is queued, and our heartbeat, until the port is broken or a
// write fails. When the program ends it writes what is left.
func (w *writer) run(ctx, broken context.Context) (err error) {
	beat := time.NewTicker(heartbeatEvery)
	defer beat.Stop()
	err = w.beat()
	for err == nil {
		select {
		case <-broken.Done():
			if ctx.Err() != nil {
				w.rest()
			}
			return nil
		case <-beat.C:
			err = w.beat()
		case o := <-w.sticks:
			err = w.put(o)
		case o := <-w.queue:
			err = w.put(o)
		}
	}
	return err
}

// rest writes what is left, the newest sticks first.
func (w *writer) rest() {
	var err error
	select {
	case o := <-w.sticks:
		err = w.put(o)
	default:
	}
	for err == nil && len(w.queue) > 0 { // nobody else takes from it
		err = w.put(<-w.queue)
	}
}

// beat writes our heartbeat.
func (w *writer) beat() error {
	err := w.put(outgoing{msg: heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)})
	w.link.mu.Lock()
	station, speaks := w.link.station, w.link.gcs || w.link.texts
	w.link.mu.Unlock()
	if err == nil && speaks { // ArduPilot takes sticks as their system's heartbeat, and would miss it when they end
		err = w.put(outgoing{system: station, component: stationID, msg: heartbeat(minimal.MAV_TYPE_GCS)})
	}
	return err
}

// put writes a message; an error says that the port is broken.
func (w *writer) put(o outgoing) error {
	if !o.at.IsZero() && time.Since(o.at) > staleAfter { // the line stood still
		return nil
	}
	b := padding[:]
	if o.msg != nil {
		var err error
		if b, err = w.frame(o); err != nil {
			slog.Error("a message can't be encoded", "message", fmt.Sprintf("%T", o.msg), "error", err)
			return nil
		}
	}
	w.port.SetWriteDeadline(time.Now().Add(writeHangs))
	_, err := w.port.Write(b)
	switch {
	case err == errNobody:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errWriteHung
	case err == nil && o.msg != nil:
		w.link.sent.Add(1)
	}
	return err
}

// frame is a message as it goes out; it is remembered, in case it comes back.
func (w *writer) frame(o outgoing) ([]byte, error) {
	l := w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	who := [2]byte{cmp.Or(o.system, l.system()), cmp.Or(o.component, componentID)}
	if w.senders[who] == nil {
		w.senders[who] = newSender(who[0], who[1])
		// Two programs that begin with one number would take each other's frames
		// for their own, sent back.
		w.senders[who].seq = byte(rand.N(256))
	}
	b, err := w.senders[who].encode(o.msg)
	if err == nil {
		l.written.add(headerOf(b), time.Now())
	}
	return b, err
}
