package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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
	gcs    bool // be its ground station
	hear   func(heard)
	poke   func()        // makes the clock run
	retry  chan struct{} // the port is to be opened again
	counters

	mu       sync.Mutex // guards all below; hear is called without it
	conn     *connection
	who      ourIDs
	sticks   *outgoing // the latest
	attend   time.Time // until then an answer is awaited
	fault    error     // why the port is not open
	nextBeat time.Time
	retryAt  time.Time // when the port is opened again; zero: nobody waits for that
	noise    struct {
		logged uint64
		next   time.Time
	}
}

// newLink makes the link that device opens; hear gets what comes, in the
// reader's goroutine, and poke has tick called.
func newLink(d device, only byte, gcs bool, hear func(heard), poke func()) *link {
	return &link{device: d, gcs: gcs, hear: hear, poke: poke, retry: make(chan struct{}, 1), who: ourIDs{only: only, us: componentID}}
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

// waitFor waits until the clock says that it is time to open the port again;
// fault is why it is not open.
func (l *link) waitFor(ctx context.Context, backoff time.Duration, fault error) {
	l.mu.Lock()
	l.fault, l.retryAt = fault, time.Now().Add(backoff)
	l.mu.Unlock()
	l.poke()
	select {
	case <-l.retry:
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
	broken, cancel := context.WithCancel(ctx)
	defer cancel()
	var writer sync.WaitGroup
	now := time.Now()
	c := &connection{
		port: p, queue: make(chan outgoing, 64), newest: make(chan struct{}, 1),
		opened: now, frameAt: now,
		close: cancel,
		end:   sync.OnceFunc(func() { writer.Go(func() { p.Close() }) }), // a close may wait for the reader
	}
	l.mu.Lock()
	c.again = l.fault != nil
	l.conn, l.fault = c, nil
	l.mu.Unlock()
	l.hear(heard{at: now}) // the clock has a heartbeat to send

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

	r := &reader{link: l, conn: c}
	_, r.in.datagrams = p.(interface{ whole() })
	if g, ok := p.(gatherer); ok {
		g.gather(l.awaited)
	}
	for err == nil {
		err = r.read()
	}
	l.mu.Lock()
	l.conn = nil // from here on nobody ends it
	if c.why != nil {
		err = c.why
	}
	l.mu.Unlock()
	cancel()
	writer.Wait()
	return r.any, err
}

// awaited reports whether an answer is.
func (l *link) awaited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.attend)
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
			if !w.putNewest() {
				return
			}
		case o := <-c.queue:
			if !w.put(o) {
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
		l.put(0, 0, nil)
	}
}

// put is sendAs with l.mu held.
func (l *link) put(system, component byte, m message.Message) error {
	if l.conn == nil {
		return errNoPort
	}
	system, component = l.who.sender(system, component)
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
		l.who.station = o.system
	}
	o.system, o.component = l.who.sender(o.system, o.component)
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
	defer l.mu.Unlock()
	l.attend = time.Now().Add(d)
	if l.conn == nil {
		return
	}
	if p, ok := l.conn.port.(gatherer); ok {
		p.hurry()
	}
}

func (l *link) addressed(system, component byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.who.addressed(system, component)
}

// tick does what is due and returns when it is to be called next; zero: nothing
// is due.
func (l *link) tick(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logNoise(now)
	c := l.conn
	if c == nil {
		if !l.retryAt.IsZero() && !now.Before(l.retryAt) {
			l.retryAt = time.Time{}
			l.retry <- struct{}{}
		}
		return l.retryAt
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
	if c.why != nil {
		c.end()
		return now.Add(silentAfter)
	}
	if !now.Before(l.nextBeat) {
		l.nextBeat = now.Add(heartbeatEvery)
		l.put(0, 0, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		if l.gcs {
			l.put(l.who.station, knockID, heartbeat(minimal.MAV_TYPE_GCS)) // it would miss the sticks' own
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
