package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	noiseEvery     = 5 * time.Second // between two lines of the log about it
	doubledWithin  = 150 * time.Millisecond
)

// outgoing is a message and who says it: a system and component id.
type outgoing struct {
	system, component byte
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

// connection is one open port.
type connection struct {
	port   port
	queue  chan outgoing
	newest chan struct{} // the newest sticks wait to be written
}

// counters are of the link's whole life.
type counters struct{ sent, received, errors, lost atomic.Uint64 }

// link is the connection to one vehicle: a port kept open, frames in, messages
// out, and our heartbeat. What it hears it hands to one function.
type link struct {
	device device
	gcs    bool // be its ground station
	hear   func(heard)
	counters
	noise struct { // that was logged; the reader's own
		logged uint64
		next   time.Time
	}

	mu     sync.Mutex // guards all below; hear is called without it
	conn   *connection
	ids    ourIDs
	sticks *outgoing // the latest
	fault  error     // why the port is not open
}

// newLink makes the link that device opens; hear gets what comes, in the
// reader's goroutine.
func newLink(d device, only byte, gcs bool, hear func(heard)) *link {
	return &link{device: d, gcs: gcs, hear: hear, ids: ourIDs{only: only}}
}

// run keeps the port open until ctx is done, writes what is queued then, and
// closes it.
func (l *link) run(ctx context.Context) {
	backoff := backoffFirst
	// A failure is logged once: that of an opening until the port is open, that of an
	// open port until a frame comes.
	failing, unopened := false, false
	for ctx.Err() == nil {
		p, err := l.device.open(ctx)
		l.logNoise(time.Now()) // of a search for the baud rate
		if err == nil && ctx.Err() != nil {
			p.Close()
			return
		}
		if err == nil {
			if !failing || unopened {
				failing, unopened = false, false
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
		l.waitFor(ctx, backoff, err)
		backoff = min(2*backoff, backoffLast)
	}
}

// waitFor waits until it is time to open the port again; fault is why it is not
// open.
func (l *link) waitFor(ctx context.Context, backoff time.Duration, fault error) {
	l.mu.Lock()
	l.fault = fault
	l.mu.Unlock()
	select {
	case <-time.After(backoff):
	case <-ctx.Done():
	}
}

func (l *link) tellOpen() {
	l.mu.Lock()
	l.fault = nil
	l.mu.Unlock()
	slog.Info("port open", "device", l.device.name, "baud", l.device.baud())
}

// serve reads a port until it fails or ctx is done, and closes it. It reports
// whether anything that reads as MAVLink came.
func (l *link) serve(ctx context.Context, p port) (any bool, err error) {
	c := &connection{port: p, queue: make(chan outgoing, 64), newest: make(chan struct{}, 1)}
	l.mu.Lock()
	again := l.fault != nil
	l.conn, l.fault = c, nil
	l.mu.Unlock()
	now := time.Now()
	l.hear(heard{at: now}) // the port is open

	broken, end := context.WithCancelCause(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		end(l.write(ctx, broken, c))
		p.Close() // ends the reader
	})
	r := &reader{link: l, port: p, again: again, frameAt: now}
	r.in.datagrams = l.device.kind == datagrams || l.device.kind == udpListening
	for err == nil {
		err = r.read()
	}
	l.mu.Lock()
	l.conn = nil
	l.mu.Unlock()
	end(err)
	writing.Wait()
	return r.any, context.Cause(broken) // what came first
}

// write writes what is queued, and our heartbeat, until the port is broken or a
// write fails. When the program ends it writes what is left.
func (l *link) write(ctx, broken context.Context, c *connection) (err error) {
	w := &writer{link: l, conn: c, senders: make(map[[2]byte]*sender)}
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
		case <-c.newest:
			err = w.putNewest()
		case o := <-c.queue:
			err = w.put(o)
		}
	}
	return err
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
	if l.device.kind == serialLine {
		l.put(0, 0, nil)
	}
}

// put is sendAs with l.mu held.
func (l *link) put(system, component byte, m message.Message) error {
	if l.conn == nil {
		return errNoPort
	}
	system, component = l.ids.sender(system, component)
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
	if o.system != 0 {
		l.ids.station = o.system
	}
	o.system, o.component = l.ids.sender(o.system, o.component)
	if l.conn == nil {
		return
	}
	select {
	case l.conn.newest <- struct{}{}:
	default: // the writer has not taken the last one: it will write the newest
	}
}

func (l *link) addressed(system, component byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids.addressed(system, component)
}

// logNoise tells of bytes that were no frames, at most once in noiseEvery.
func (l *link) logNoise(now time.Time) {
	if n := l.badPlaces(); n != l.noise.logged && !now.Before(l.noise.next) {
		slog.Warn("bytes that are no MAVLink frame", "device", l.device.name, "since_last", n-l.noise.logged, "in_all", n)
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
		device: l.device.name, baud: l.device.baud(), fault: l.fault,
		received: l.received.Load(), lost: l.lost.Load(), errors: l.badPlaces(), sent: l.sent.Load(),
	}
}

// ourIDs are who we are on the line: a part of the vehicle that the link has.
// The link's mutex guards them.
type ourIDs struct {
	only    byte // only this vehicle's system id; 0 takes the first
	vehicle byte // its system id; 0 before its first heartbeat
	station byte // the system that the sticks go out as; 0 before the first
	told    bool // that somebody else has our ids
	echoes  echoes
}

// system is the vehicle's system id: we are a part of it.
func (i *ourIDs) system() byte { return cmp.Or(i.vehicle, i.only, 1) }

// sender is from whom a message goes out; zero ids are ours.
func (i *ourIDs) sender(system, component byte) (byte, byte) {
	return cmp.Or(system, i.system()), cmp.Or(component, componentID)
}

// addressed reports whether an ack is for us. An autopilot that does not fill the
// target in says 0.
func (i *ourIDs) addressed(system, component byte) bool {
	return (system == 0 || system == i.system()) && (component == 0 || component == componentID)
}

// find takes the vehicle whose heartbeat came, if there is none yet; ours reports
// whether it is the one that the link has, found that it is new.
func (i *ourIDs) find(system byte) (ours, found bool) {
	if i.vehicle == 0 && (i.only == 0 || i.only == system) {
		i.vehicle, found = system, true
	}
	return i.vehicle == system, found
}

// meets looks at a frame with our own ids that we did not send: somebody else has
// them, and the acks that he gets look like ours. It says so once. A frame whose
// checksum nobody can check may be noise.
func (i *ourIDs) meets(f rawFrame) (notice string) {
	if i.told || f.known == nil || f.system != i.system() || f.component != componentID || i.echoes.has(f.echo()) {
		return ""
	}
	i.told = true
	return fmt.Sprintf("another program uses our MAVLink ids %d/%d: an answer to it may be taken for one to us", f.system, f.component)
}

// reader reads one open port.
type reader struct {
	link     *link
	port     port
	frameAt  time.Time // of the last valid frame
	again    bool      // there was a failure before: the first frame ends it
	sequence sequence
	in       deframer
	dec      decoder
	any      bool        // a frame came
	acks     [8]struct { // the last
		echo
		at time.Time
	}
}

// read takes what the port brings next. A port that brings no frame for
// silentAfter has failed.
func (r *reader) read() error {
	l := r.link
	r.port.SetReadDeadline(r.frameAt.Add(silentAfter))
	n, err := r.port.Read(r.in.space())
	now := time.Now()
	r.in.filled(n)
	for f, ok := r.in.next(); ok; f, ok = r.in.next() {
		if r.again && !r.any {
			l.tellOpen()
		}
		r.any, r.frameAt = true, now
		l.received.Add(1)
		r.take(f, now)
	}
	if r.in.errors > 0 {
		l.errors.Add(r.in.errors)
		r.in.errors = 0
	}
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
	notice := l.ids.meets(f)
	vehicle := l.ids.vehicle
	l.mu.Unlock()
	if notice != "" {
		slog.Warn(notice)
		l.hear(heard{at: now, notice: notice})
	}
	if f.id == idCommandAck && r.doubled(f, now) {
		return
	}
	switch {
	case f.component == autopilotID && f.id == idHeartbeat:
		r.heartbeat(f, now)
		return
	case f.component == autopilotID && f.system == vehicle && vehicle != 0:
		l.lost.Add(r.sequence.lost(f.seq))
	case vehicle != 0 && (f.id == idManualControl || f.id == idRcChannelsOverride):
		r.othersSticks(f, vehicle, now)
		return
	default:
		return
	}
	if m := r.decode(f); m != nil {
		l.hear(heard{at: now, msg: m, system: f.system})
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
func (r *reader) doubled(f rawFrame, now time.Time) bool {
	oldest := &r.acks[0]
	for i := range r.acks {
		a := &r.acks[i]
		if a.echo == f.echo() && now.Sub(a.at) < doubledWithin {
			return true
		}
		if a.at.Before(oldest.at) {
			oldest = a
		}
	}
	oldest.echo, oldest.at = f.echo(), now
	return false
}

// othersSticks takes sticks for our vehicle that somebody else sends.
func (r *reader) othersSticks(f rawFrame, vehicle byte, now time.Time) {
	l := r.link
	l.mu.Lock()
	echo := l.ids.echoes.has(f.echo())
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
		l.hear(heard{at: now, msg: m, system: f.system, foreign: true})
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
	ours, found := l.ids.find(f.system)
	l.mu.Unlock()
	if !ours {
		return
	}
	if found {
		slog.Info("vehicle found", "system", f.system, "autopilot", hb.Autopilot, "type", hb.Type)
	}
	if l.device.kind == udpListening {
		r.port.(*udpPort).heard()
	}
	l.lost.Add(r.sequence.lost(f.seq))
	l.hear(heard{at: now, msg: hb, system: f.system})
}

// writer writes one open port.
type writer struct {
	link    *link
	conn    *connection
	senders map[[2]byte]*sender
}

// beat writes our heartbeat.
func (w *writer) beat() error {
	l := w.link
	l.mu.Lock()
	system, station := l.ids.system(), cmp.Or(l.ids.station, l.ids.system())
	l.mu.Unlock()
	err := w.put(outgoing{system: system, component: componentID, msg: heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)})
	if err == nil && l.gcs { // ArduPilot takes sticks as their system's heartbeat, and would miss it when they end
		err = w.put(outgoing{system: station, component: knockID, msg: heartbeat(minimal.MAV_TYPE_GCS)})
	}
	return err
}

// put writes a message; an error says that the port is broken.
func (w *writer) put(o outgoing) error {
	l, c := w.link, w.conn
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
	c.port.SetWriteDeadline(time.Now().Add(writeHangs))
	_, err := c.port.Write(b)
	switch {
	case err == errNobody:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errWriteHung
	case err == nil && o.msg != nil:
		l.sent.Add(1)
	}
	return err
}

// putNewest is put of the newest sticks, if there are any.
func (w *writer) putNewest() error {
	w.link.mu.Lock()
	o := w.link.sticks
	w.link.mu.Unlock()
	if o == nil {
		return nil
	}
	return w.put(*o)
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
	w.link.ids.echoes.add(echoOf(b))
	w.link.mu.Unlock()
	return b, nil
}

// rest writes what is left, the newest sticks first.
func (w *writer) rest() {
	var err error
	if len(w.conn.newest) > 0 {
		err = w.putNewest()
	}
	for err == nil && len(w.conn.queue) > 0 { // nobody else takes from it
		err = w.put(<-w.conn.queue)
	}
}
