package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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
	writeHangs     = 2 * time.Second        // a dead port
	backoffFirst   = 100 * time.Millisecond // before reopening, doubled each time
	backoffLast    = 2 * time.Second
	heartbeatEvery = time.Second
	staleAfter     = time.Second           // in the queue: nobody wants it any more
	readEvery      = 20 * time.Millisecond // a line on which much comes, if no answer is awaited
	noiseEvery     = 5 * time.Second       // between two lines of the log about it
)

// Our component ids: MAV_COMP_ID_ONBOARD_COMPUTER4 and, where somebody else has
// it, the two below. MAVROS has 191. knockID is the one that PX4 must hear a
// ground station from to send its texts.
const (
	componentID     = 194
	lastComponentID = 192
	knockID         = 190
	autopilotID     = 1 // MAV_COMP_ID_AUTOPILOT1
)

// outgoing is a message and who says it: a system and component id.
type outgoing struct {
	system, component byte
	msg               message.Message // nil is padding
	at                time.Time       // when it was queued; zero: it is never too old
}

// padding ends any frame that a receiver believes to be in the middle of: what a
// broken one claims is lost to it, up to 280 bytes, and a silent line never ends it.
var padding [280]byte

// heard is what the link hands on: a message of the vehicle, somebody else's
// sticks for it, or a notice of the link's own.
type heard struct {
	at      time.Time
	msg     message.Message
	system  byte // whose
	foreign bool // msg moves the vehicle's sticks, and is neither its own nor ours
	notice  string
}

// connection is one open port with the goroutine that owns its writing.
type connection struct {
	port    port
	queue   chan outgoing
	newest  chan struct{} // the newest sticks wait to be written
	opened  time.Time
	frameAt time.Time    // of the last valid frame
	writing atomic.Int64 // when the pending write began, in nanoseconds since opened; 0: none
	why     error        // the link's own reason to close the port
	again   bool         // there was a failure before: the first frame ends it
	close   func()       // ends the writer, which closes the port
	end     func()       // closes the port under a write that hangs
}

// counters are of the link's whole life.
type counters struct{ sent, received, errors, lost atomic.Uint64 }

// link is the connection to one vehicle: a port kept open, frames in, messages
// out, and our heartbeat. What it hears it hands to one function.
type link struct {
	device device
	only   byte // only this vehicle's system id; 0 takes the first
	gcs    bool // be its ground station
	hear   func(heard)
	counters

	mu       sync.Mutex // guards all below; hear is called without it
	conn     *connection
	vehicle  byte // its system id; 0 before its first heartbeat
	us       byte // our component id
	sequence sequence
	sticks   *outgoing // the latest
	station  byte      // the system that they came from: ArduPilot took them for its ground station's heartbeats
	attend   time.Time // until then an answer is awaited
	fault    error     // why the port is not open
	nextBeat time.Time
	noise    struct {
		logged uint64
		next   time.Time
	}
	echoes echoes
	hurry  chan struct{} // an answer is awaited from now on
}

// sequence counts the gaps in the vehicle's frames.
type sequence struct {
	last  byte
	known bool
}

// echoes are the last frames that we sent: a router or a radio may send them back.
type echoes struct {
	last [64]echo
	n    int
}

func (e *echoes) add(x echo) {
	e.last[e.n%len(e.last)] = x
	e.n++
}

func (e *echoes) has(x echo) bool {
	for _, o := range e.last[:min(e.n, len(e.last))] {
		if o == x {
			return true
		}
	}
	return false
}

// newLink makes the link that device opens; hear gets what comes, in the
// reader's goroutine.
func newLink(d device, only byte, gcs bool, hear func(heard)) *link {
	return &link{device: d, only: only, gcs: gcs, hear: hear, us: componentID, hurry: make(chan struct{}, 1)}
}

// run keeps the port open until ctx is done, writes what is queued then, and
// closes it.
func (l *link) run(ctx context.Context) {
	backoff := backoffFirst
	// A failure is told once: one to open until the port is open, one of an open
	// port until a frame comes.
	failing, unopened := false, false
	for ctx.Err() == nil {
		p, err := l.device.open(ctx)
		if err == nil && ctx.Err() != nil {
			p.Close()
			return
		}
		if err == nil {
			if !failing || unopened {
				failing, unopened = false, false
				l.setFault(nil)
				l.tellOpen()
			}
			var any bool
			if any, err = l.serve(ctx, p); any {
				backoff, failing = backoffFirst, false
			}
		} else {
			err = l.device.explain(err)
			unopened = !failing || unopened
		}
		if ctx.Err() != nil {
			return
		}
		if !failing {
			failing = true
			slog.Warn("no link to the autopilot; trying again until there is", "device", l.device.name, "error", err)
		}
		l.setFault(err)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		backoff = min(2*backoff, backoffLast)
	}
}

func (l *link) setFault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = err
}

func (l *link) tellOpen() {
	slog.Info("port open", "device", l.device.name, "baud", l.device.baud())
}

// serve reads a port until it fails or ctx is done, and closes it. It reports
// whether anything that reads as MAVLink came.
func (l *link) serve(ctx context.Context, p port) (any bool, err error) {
	c, broken, cancel := l.connect(ctx, p)
	defer cancel()
	var writer sync.WaitGroup
	written := make(chan struct{})
	writer.Go(func() { defer close(written); l.write(ctx, broken, c) })
	writer.Go(func() {
		<-broken.Done()
		select { // the clock no longer sees a write that hangs
		case <-time.After(writeHangs):
			p.Close()
		case <-written:
		}
	})
	l.mu.Lock()
	c.end = sync.OnceFunc(func() { writer.Go(func() { p.Close() }) }) // a close may wait for the reader
	l.mu.Unlock()

	r := &reader{link: l, conn: c}
	_, r.in.datagrams = p.(interface {
		ReadFromUDP([]byte) (int, *net.UDPAddr, error)
	})
	for err == nil {
		err = r.read(broken)
	}
	l.mu.Lock()
	l.conn = nil
	if c.why != nil {
		err = c.why
	}
	l.mu.Unlock()
	cancel()
	writer.Wait()
	return r.any, err
}

func (l *link) connect(ctx context.Context, p port) (*connection, context.Context, func()) {
	now := time.Now()
	c := &connection{
		port: p, queue: make(chan outgoing, 64), newest: make(chan struct{}, 1),
		opened: now, frameAt: now,
	}
	broken, cancel := context.WithCancel(ctx)
	c.close = cancel
	l.mu.Lock()
	c.again = l.fault != nil
	l.conn, l.fault = c, nil
	l.sequence.known = false
	l.mu.Unlock()
	l.hear(heard{at: now}) // the clock has a heartbeat to send
	return c, broken, cancel
}

// reader reads one port.
type reader struct {
	link *link
	conn *connection
	in   deframer
	dec  decoder
	last time.Time // of the last read
	due  time.Time // the port's read deadline
	any  bool
}

// read takes what one read of the port brings.
func (r *reader) read(broken context.Context) error {
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
	_, gathers := r.conn.port.(interface{ gathers() })
	if gathers && err == nil && now.Sub(r.last) < 2*readEvery && n < len(space) {
		l.gather(broken)
	}
	r.last = now
	return err
}

// setDeadline ends a read when the rest of a frame is overdue: what is behind one
// that claims too much must not wait until the line speaks again.
func (r *reader) setDeadline() {
	p, ok := r.conn.port.(interface{ SetReadDeadline(time.Time) error })
	var due time.Time
	if r.in.begun() {
		due = r.in.overdue()
	}
	if ok && !due.Equal(r.due) && p.SetReadDeadline(due) == nil {
		r.due = due
	}
}

// gather lets bytes come for readEvery: to be woken for every few of them costs
// ten times what decoding them does. An answer is not kept waiting.
func (l *link) gather(broken context.Context) {
	l.mu.Lock()
	awaited := time.Now().Before(l.attend)
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

// take takes one checked frame, and hands it on if it concerns the vehicle.
func (r *reader) take(f rawFrame) {
	l := r.link
	l.mu.Lock()
	r.conn.frameAt = f.at
	notice := l.ours(f)
	vehicle := l.vehicle
	l.mu.Unlock()
	if notice != "" {
		slog.Warn(notice)
		l.hear(heard{at: f.at, notice: notice})
	}
	switch {
	case f.component == autopilotID && f.id == 0:
		r.heartbeat(f)
		return
	case f.component == autopilotID && f.system == vehicle && vehicle != 0:
		l.countLost(f.seq)
	case vehicle != 0 && (f.id == 69 || f.id == 70): // MANUAL_CONTROL, RC_CHANNELS_OVERRIDE
		r.foreign(f, vehicle)
		return
	default:
		return
	}
	if f.known == nil {
		return
	}
	m, err := r.dec.decode(f)
	if err != nil { // a version 1 frame of another length
		l.errors.Add(1)
		return
	}
	l.hear(heard{at: f.at, msg: m, system: f.system})
}

// ours looks at a frame with our own ids that we did not send: somebody else has
// them, and his acks would be ours. Step aside. l.mu is held.
func (l *link) ours(f rawFrame) (notice string) {
	if f.system != l.ourSystem() || f.component != l.us || l.us == lastComponentID || l.echoes.has(f.echo()) {
		return ""
	}
	was := l.us
	l.us--
	return fmt.Sprintf("another program uses our MAVLink ids %d/%d: going on as component %d", f.system, was, l.us)
}

// foreign takes sticks for our vehicle that somebody else sends.
func (r *reader) foreign(f rawFrame, vehicle byte) {
	l := r.link
	l.mu.Lock()
	echo := l.echoes.has(f.echo())
	l.mu.Unlock()
	if echo {
		return
	}
	m, err := r.dec.decode(f)
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *common.MessageManualControl:
		if m.Target != vehicle {
			return
		}
	case *common.MessageRcChannelsOverride:
		if m.TargetSystem != vehicle {
			return
		}
	}
	l.hear(heard{at: f.at, msg: m, system: f.system, foreign: true})
}

// heartbeat takes an autopilot's heartbeat, and the vehicle it is of if there is
// none yet.
func (r *reader) heartbeat(f rawFrame) {
	l := r.link
	if f.known == nil {
		return
	}
	m, err := r.dec.decode(f)
	if err != nil {
		l.errors.Add(1)
		return
	}
	hb, ok := m.(*minimal.MessageHeartbeat)
	if !ok || hb.Autopilot == minimal.MAV_AUTOPILOT_INVALID || f.system == 0 {
		return
	}
	l.mu.Lock()
	switch {
	case l.vehicle == 0 && (l.only == 0 || l.only == f.system):
		l.vehicle = f.system
		slog.Info("vehicle found", "system", f.system, "autopilot", hb.Autopilot, "type", hb.Type)
	case l.vehicle != f.system:
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if p, ok := r.conn.port.(interface{ heard() }); ok {
		p.heard()
	}
	l.countLost(f.seq)
	l.hear(heard{at: f.at, msg: hb, system: f.system})
}

// countLost counts the gaps in the vehicle's sequence. A step back is a frame
// that UDP delivered late.
func (l *link) countLost(seq byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.sequence
	gap := seq - s.last - 1
	if s.known && gap > 127 {
		return
	}
	if s.known {
		l.lost.Add(uint64(gap))
	}
	s.last, s.known = seq, true
}

// write owns the writing of a port until it is broken. When the program ends it
// writes what is queued. It closes the port.
func (l *link) write(ctx, broken context.Context, c *connection) {
	defer c.port.Close()
	w := &writer{link: l, conn: c, senders: make(map[[2]byte]*sender)}
	for {
		select {
		case <-broken.Done():
			if ctx.Err() != nil {
				w.rest()
			}
			return
		case <-c.newest:
			l.mu.Lock()
			o := l.sticks
			l.mu.Unlock()
			if o != nil && !w.put(*o) {
				return
			}
		case o := <-c.queue:
			if !w.put(o) {
				return
			}
		}
	}
}

// writer writes to one port.
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
	if _, err := c.port.Write(b); err != nil {
		slog.Debug("write failed", "device", l.device.name, "error", err)
		c.close()
		return false
	}
	c.writing.Store(0)
	if o.msg != nil {
		l.sent.Add(1)
	}
	return true
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
	w.link.echoes.add(echoOf(b))
	w.link.mu.Unlock()
	return b, nil
}

// rest writes what is queued, the newest sticks first, and waits until it is out.
func (w *writer) rest() {
	select {
	case <-w.conn.newest:
		w.link.mu.Lock()
		o := w.link.sticks
		w.link.mu.Unlock()
		if o != nil && !w.put(*o) {
			return
		}
	default:
	}
	for {
		select {
		case o := <-w.conn.queue:
			if !w.put(o) {
				return
			}
			continue
		default:
		}
		break
	}
	if p, ok := w.conn.port.(interface{ Drain() error }); ok {
		w.conn.writing.Store(int64(time.Since(w.conn.opened)))
		p.Drain()
	}
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
	return l.put(system, component, m)
}

// clear queues padding where bytes may be lost: on a serial line.
func (l *link) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return
	}
	if _, line := l.conn.port.(interface{ ResetInputBuffer() error }); line {
		select {
		case l.conn.queue <- outgoing{at: time.Now()}:
		default:
		}
	}
}

// put is sendAs with l.mu held.
func (l *link) put(system, component byte, m message.Message) error {
	if l.conn == nil {
		return errNoPort
	}
	if system == 0 {
		system = l.ourSystem()
	}
	if component == 0 {
		component = l.us
	}
	select {
	case l.conn.queue <- outgoing{system, component, m, time.Now()}:
		return nil
	default:
		return errQueueFull
	}
}

// move has the newest sticks written; nil forgets the last ones.
func (l *link) move(o *outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sticks = o
	if o == nil {
		return
	}
	if o.system == 0 {
		o.system, o.component = l.ourSystem(), l.us
	} else {
		l.station = o.system
	}
	if l.conn == nil {
		return
	}
	select {
	case l.conn.newest <- struct{}{}:
	default: // the writer has not taken the last one: it will write the newest
	}
}

// expect says that an answer is awaited for so long.
func (l *link) expect(d time.Duration) {
	l.mu.Lock()
	l.attend = time.Now().Add(d)
	l.mu.Unlock()
	select {
	case l.hurry <- struct{}{}:
	default:
	}
}

// ourSystem is the vehicle's system id: we are a part of it. l.mu is held.
func (l *link) ourSystem() byte {
	switch {
	case l.vehicle != 0:
		return l.vehicle
	case l.only != 0:
		return l.only
	}
	return 1
}

// addressed reports whether an ack is for us. An autopilot that does not fill the
// target in says 0.
func (l *link) addressed(system, component byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (system == 0 || system == l.ourSystem()) && (component == 0 || component == l.us)
}

// tick does what is due and returns when it is to be called next; zero: there is
// no port.
func (l *link) tick(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logNoise(now)
	c := l.conn
	if c == nil {
		return time.Time{}
	}
	silent := c.frameAt.Add(silentAfter)
	began := c.writing.Load()
	hangs := c.opened.Add(time.Duration(began)).Add(writeHangs)
	switch {
	case began != 0 && !now.Before(hangs):
		c.why = errWriteHung
	case !now.Before(silent):
		c.why = errSilent
	}
	if c.why != nil && c.end != nil {
		c.end()
		return now.Add(silentAfter)
	}
	if !now.Before(l.nextBeat) {
		l.nextBeat = now.Add(heartbeatEvery)
		l.put(0, 0, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		if l.gcs {
			l.put(l.station, knockID, heartbeat(minimal.MAV_TYPE_GCS)) // it would miss the sticks' own
		}
	}
	return l.nextBeat
}

// logNoise tells of bytes that were no frames, at most once in noiseEvery. l.mu
// is held.
func (l *link) logNoise(now time.Time) {
	if n := l.badPlaces(); n != l.noise.logged && !now.Before(l.noise.next) {
		slog.Warn("bytes that are no MAVLink", "device", l.device.name, "since_last", n-l.noise.logged, "in_all", n)
		l.noise.logged, l.noise.next = n, now.Add(noiseEvery)
	}
}

// badPlaces counts the places on the line where bytes were no frame.
func (l *link) badPlaces() uint64 {
	n := l.errors.Load()
	if l.device.noise != nil {
		n += l.device.noise()
	}
	return n
}

// state is the link at a moment, for the status.
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
		device: l.device.name, baud: l.device.baud(), fault: l.fault,
		received: l.received.Load(), lost: l.lost.Load(), errors: l.badPlaces(), sent: l.sent.Load(),
	}
}
