package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Times of the link (docs/design.md, "The link").
const (
	// silentAfter is how long no valid frame may come before the port is reopened.
	silentAfter = 5 * time.Second

	// backoffFirst is the first wait before the port is reopened. Each next one is twice as long.
	backoffFirst = 100 * time.Millisecond

	// backoffLast is the longest of these waits.
	backoffLast = 2 * time.Second

	heartbeatEvery = time.Second

	// staleAfter is how long a message may wait in the queue. Then it is dropped, because a pilot may have switched
	// since.
	staleAfter = 300 * time.Millisecond

	// echoWithin is how long a router or a radio takes at most to send our frame back.
	echoWithin = 2 * time.Second

	// noiseEvery is the time between two log lines about noise.
	noiseEvery = 5 * time.Second

	// readWaits is how long a read of the port takes at least that found nothing to read.
	readWaits = time.Millisecond

	// seqFor is for how long the number of the vehicle's last frame tells whether the next one is late.
	seqFor = 500 * time.Millisecond

	// copyWithin is how long an equal ack counts as a copy.
	copyWithin = 150 * time.Millisecond
)

// outgoing is a message to send, the ids to send it with, and where it goes.
type outgoing struct {
	// system, component: zero ids are ours
	system, component byte

	// msg: nil for padding
	msg message.Message

	// at is when it was queued; zero: it is never stale.
	at time.Time

	// to: the vehicle's address when it was queued; invalid: the one when it is written
	to netip.AddrPort
}

// heard is an event of the link: a message of the vehicle, another program's sticks for
// the vehicle, a notice for the user, or that the vehicle was replaced. An event with none of them says
// that the port was opened.
type heard struct {
	at  time.Time
	msg message.Message

	// departed is when the vehicle sent it.
	departed

	// ordered: it came in the order in which the vehicle sent it
	ordered bool

	// system: the sender's id
	system byte

	// foreign: msg is another program's sticks for the vehicle
	foreign bool

	notice string

	// replaced: the vehicle has started again at another address, or is another one: sends to it from now on
	replaced func()
}

// link is the connection to one vehicle. It keeps the port open, sends our heartbeat and
// what is queued, and calls hear with each event.
type link struct {
	device device

	// only: the vehicle's system id (-system); 0 for the first vehicle heard
	only byte

	// gcs: -gcs: always send a ground station's heartbeat
	gcs bool

	log  *slog.Logger
	hear func(heard)

	// sent, received, lost: frames
	sent, received, lost atomic.Uint64

	// readFrom is when the newest read of the port began, idleFrom when the last one did that had to wait; Unix
	// nanoseconds.
	readFrom, idleFrom atomic.Int64

	// asStation: each second send a ground station's heartbeat, so that PX4 sends its texts
	asStation atomic.Bool

	// noise: only run's goroutine uses it
	noise struct {

		// logged: the total in the last log line
		logged uint64

		// next: no log line before this
		next time.Time
	}

	// mu: guards all below; hear is called without it
	mu sync.Mutex

	// writer: of the open port; nil if the port is not open
	writer *writer

	// vehicle: the vehicle's system id; 0 before its first heartbeat
	vehicle byte

	address vehicleAddress

	// lag is how far the line from the vehicle is behind.
	lag lineLag

	// beatAt: the vehicle's last heartbeat
	beatAt time.Time

	// framesFrom is when the first frame came since the port was opened; zero: none did.
	framesFrom time.Time

	// frameAt: the last frame
	frameAt time.Time

	// signed: the vehicle's last frame was signed
	signed bool

	// others is what else is heard.
	others neighbours

	// stickSystem: SYSID_MYGCS once sticks were sent to an ArduPilot, else 0
	stickSystem byte

	// recent: our last frames and the last acks
	recent recent

	// idsReported: another program with our ids was reported
	idsReported bool

	// autopilots: by system id: an autopilot's heartbeat was heard
	autopilots [256]bool

	// secondReported: a second vehicle was reported
	secondReported bool

	// fault is why the port is not open; nil if it is open.
	fault error
}

// newLink returns a link over a device. The link calls hear in run's goroutine.
func newLink(d device, only byte, gcs bool, log *slog.Logger, hear func(heard)) *link {
	if d.line == nil {
		d.line = new(lineState)
	}
	return &link{device: d, only: only, gcs: gcs, log: log, hear: hear}
}

// run keeps the port open until ctx is done. Then it writes what is queued and closes the port. It logs the
// first failure of an outage. If that was to open, opening ends the outage; if of an open port, a frame does.
func (l *link) run(ctx context.Context) {
	backoff := backoffFirst
	openLogged := false

	// Of this outage: a failure to open, or of an open port.
	failureLogged := false
	for ctx.Err() == nil {
		p, err := l.device.open(ctx)

		// noise that a search for the baud rate met
		l.logNoise(time.Now())
		opened := err == nil
		if opened {
			openLogged = false
			var hadFrame bool
			if hadFrame, err = l.serve(ctx, p); hadFrame {
				backoff = backoffFirst
				failureLogged = false
			}
		}

		// udpout:// opens though nobody listens; a write then fails.
		if !opened || errors.As(err, new(*net.OpError)) {
			err = fmt.Errorf("-device %s: %w", l.device.name, openFault(l.device.name, err))
		}
		if ctx.Err() != nil {
			return
		}
		if !openLogged && !failureLogged {
			openLogged = !opened
			failureLogged = opened
			l.log.Warn("no link to the autopilot; trying again", "device", l.device.name, "error", err)
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

// serve reads and writes a port until it fails or ctx is done, and closes it. It
// reports whether a valid frame came.
func (l *link) serve(ctx context.Context, p port) (hadFrame bool, err error) {
	w, now := newWriter(l, p), time.Now()
	l.mu.Lock()
	l.writer = w
	l.fault = nil
	l.framesFrom = time.Time{}
	l.lag.moved()
	l.mu.Unlock()

	// The port is open.
	l.hear(heard{at: now})

	broken, end := context.WithCancelCause(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		end(w.run(ctx, broken))

		// Makes the reader end.
		p.Close()
	})
	r := &reader{link: l, port: p, frameAt: now}
	r.in.datagrams = l.device.datagrams
	p.SetReadDeadline(now.Add(silentAfter))
	for err == nil {
		err = r.read()
	}
	l.mu.Lock()
	l.writer = nil
	l.mu.Unlock()
	end(err)
	writing.Wait()

	// The first error.
	return r.hadFrame, context.Cause(broken)
}

var errQueueFull = errors.New("the queue to the port is full")

// send queues a message with our own ids. It never waits.
func (l *link) send(m message.Message) error { return l.sendAs(0, 0, m) }

// sendAs queues a message with the ids that it is to be sent with; zero ids are ours.
func (l *link) sendAs(system, component byte, m message.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer == nil {
		return errors.New("the port is not open")
	}
	select {
	case l.writer.queue <- outgoing{system, component, m, time.Now(), l.address.at}:
		return nil
	default:
		return errQueueFull
	}
}

// pad queues padding, if bytes may be lost on this device.
func (l *link) pad() {
	if l.device.lossy {
		l.send(nil)
	}
}

// setSticks makes o the sticks that are written next; nil clears them.
func (l *link) setSticks(o *outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o != nil {
		l.stickSystem = cmp.Or(o.system, l.stickSystem)
	}
	if l.writer == nil {
		return
	}
	select {
	case <-l.writer.sticks:
	default:
	}
	if o != nil {
		sticks := *o
		sticks.to = l.address.at
		l.writer.sticks <- sticks
	}
}

// system returns our system id, which is the vehicle's. It needs l.mu.
func (l *link) system() byte { return cmp.Or(l.vehicle, l.only, 1) }

// addressed reports whether an ack is for us. A target of 0 may be for us: not every
// autopilot fills it in.
func (l *link) addressed(system, component byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (system == 0 || system == l.system()) && (component == 0 || component == componentID)
}

// logNoise logs how much noise came since its last line, at most once in noiseEvery.
func (l *link) logNoise(now time.Time) {
	if n := l.device.line.noise.Load(); n != l.noise.logged && !now.Before(l.noise.next) {
		l.log.Warn("bytes that are not MAVLink", "device", l.device.port(), "since_last", n-l.noise.logged, "total", n)
		l.noise.logged = n
		l.noise.next = now.Add(noiseEvery)
	}
}

// linkState is a snapshot of the link for the status.
type linkState struct {
	device                       string
	baud                         int
	received, lost, errors, sent uint64

	// fault is why the port is not open, or what is heard instead of the vehicle.
	fault error

	// lag is how far the line is behind; lagKnown is false where nothing tells.
	lag      time.Duration
	lagKnown bool

	// silentAboutTime: the vehicle answers no question for its time
	silentAboutTime bool

	// signed, lossy: the vehicle's frames are signed; the line is a serial one
	signed, lossy bool
}

func (l *link) state() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	fault := l.fault
	if fault == nil {
		fault = l.missing(time.Now())
	}
	lag, lagKnown := l.lag.now(time.Now())
	return linkState{
		lag: lag, lagKnown: lagKnown, silentAboutTime: l.lag.silent(time.Now()),
		device: l.device.port(), signed: l.signed, lossy: l.device.lossy,
		baud: int(l.device.line.baud.Load()), fault: fault,
		received: l.received.Load(), lost: l.lost.Load(), errors: l.device.line.noise.Load(), sent: l.sent.Load(),
	}
}

// unanswered is what to say of a vehicle that answers nothing.
func (s linkState) unanswered() error {
	do := "check that the router or the bridge passes on to the autopilot what mavrest sends"
	if s.signed {
		do = "its frames are signed: it ignores those that are not, and mavrest can't sign; turn signing off on " +
			"this link"
	} else if s.lossy {
		do = "check the wire from the board's TX to the autopilot's RX, and that its port is not half duplex"
	}
	return fmt.Errorf("this vehicle is heard, and answers nothing that mavrest sends: it can be read, not "+
		"commanded; %s", do)
}

// lateFrom is how far behind the line is from when on the status says so.
const lateFrom = time.Second

// late says that what the status shows is old, or that nothing proves how old it is; nil if neither is so. answers says
// that the vehicle answers other questions.
func (s linkState) late(answers bool) error {
	switch {
	case s.lagKnown && s.lag >= lateFrom:
		return fmt.Errorf("the line from the autopilot is %.1f s behind: all that is shown is that old; send fewer "+
			"streams on it, set a faster baud rate, or bring the radio nearer", s.lag.Seconds())
	case s.silentAboutTime && answers:
		return errors.New("this autopilot answers no TIMESYNC: how old its reports are can't be proven; check that " +
			"the router or the bridge passes TIMESYNC on in both directions")
	}
	return nil
}

// missing says that MAVLink comes and the vehicle does not, and what is heard instead; nil where it is heard, or
// may be soon. It needs l.mu.
func (l *link) missing(now time.Time) error {
	wrongSystem := l.vehicle == 0 && slices.Contains(l.autopilots[:], true)
	switch {
	case wrongSystem:
		other := slices.Index(l.autopilots[:], true)
		return fmt.Errorf("system %d is heard on this line, but -system %d was asked for; start mavrest with "+
			"-system %d", other, l.only, other)
	case l.framesFrom.IsZero(), now.Sub(l.framesFrom) < offlineAfter, now.Sub(l.frameAt) >= offlineAfter:
		// It may come yet, or nothing comes.
		return nil
	case !l.beatAt.IsZero() && now.Sub(l.beatAt) < offlineAfter:
		return nil
	}
	words := l.others.words(l.system(), now)
	if words == "" {
		words = "no heartbeat of anybody"
	}
	if l.vehicle != 0 {
		return fmt.Errorf("MAVLink is heard, but not the autopilot, system %d, for %.0f s: %s",
			l.vehicle, now.Sub(l.beatAt).Seconds(), words)
	} else if l.only != 0 {
		return fmt.Errorf("MAVLink is heard, but not system %d, which -system asks for: %s", l.only, words)
	}
	return fmt.Errorf("MAVLink is heard, but no autopilot: %s; check that the autopilot is on, and sends MAVLink "+
		"on this line", words)
}

type reader struct {
	link *link
	port port

	// frameAt: of the last valid frame
	frameAt time.Time

	hadFrame bool

	// seq: of the vehicle's next frame
	seq byte

	// hadSeq: a frame of the vehicle came
	hadSeq bool

	// seqAt is when the vehicle's last frame came.
	seqAt time.Time

	in deframer
}

// read reads the port once and handles the frames. It fails if no valid frame came for silentAfter.
func (r *reader) read() error {
	l := r.link
	from := time.Now()
	l.readFrom.Store(from.UnixNano())
	err := r.in.read(r.port)
	now := time.Now()
	if now.Sub(from) >= readWaits && !r.in.full() {
		l.idleFrom.Store(from.UnixNano())
	}
	for f, ok := r.in.next(); ok; f, ok = r.in.next() {
		if !r.hadFrame {
			heard := []any{"device", l.device.port()}
			if baud := l.device.line.baud.Load(); baud != 0 {
				heard = append(heard, "baud", baud)
			}
			l.log.Info("MAVLink heard", heard...)
		}
		r.hadFrame = true
		r.frameAt = now
		l.received.Add(1)
		r.handle(f, now)
	}
	l.device.line.noise.Add(r.in.errors)
	r.in.errors = 0
	l.logNoise(now)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if silent := r.frameAt.Add(silentAfter); now.Before(silent) {
		// A frame came since the deadline was set. Setting it at each read would cost at each frame.
		return r.port.SetReadDeadline(silent)
	}
	return errors.New("no MAVLink for 5 s")
}

// handle hands on the vehicle's messages, and another program's sticks for the vehicle.
func (r *reader) handle(f rawFrame, now time.Time) {
	l := r.link
	var m message.Message
	if f.component == autopilotID || f.id == idManualControl || f.id == idRCOverride {
		m = f.decode()
	}
	if b, ok := m.(*minimal.MessageHeartbeat); ok && f.component == autopilotID {
		if !isVehicle(b) || f.system == 0 {
			l.hearOther(f, now)
			return
		}
		r.hearAutopilot(f.system, b, now)
	}
	l.mu.Lock()
	vehicle := l.vehicle
	l.mu.Unlock()
	own := f.component == autopilotID && f.system == vehicle && vehicle != 0
	if !own {
		l.hearOther(f, now)
	} else if !r.atItsAddress(m, now) {
		return
	}
	l.mu.Lock()
	l.hearFrame(now)
	if own {
		l.signed = f.signed
	}
	if own && f.id == idHeartbeat {
		l.beatAt = now
	}
	repeated := l.repeats(f.header, now)

	// What looks like an unknown message may be noise.
	stranger := f.component == componentID && f.system == l.system() && f.known != nil && !repeated && !l.idsReported
	l.idsReported = l.idsReported || stranger
	l.mu.Unlock()
	if stranger {
		l.hear(heard{at: now, notice: fmt.Sprintf("another program uses mavrest's MAVLink ids, %d/%d, and each "+
			"takes the other's acks for its own; give that program another component id (MAVROS: component_id, "+
			"MAVSDK: its Configuration, pymavlink: source_component), or, if it is a second mavrest, stop one of them",
			f.system, f.component)})
	}
	switch {
	case repeated || vehicle == 0:
	case own:
		r.hearOwn(f, m, now)
	case sticksTarget(m) == vehicle:
		l.hear(heard{at: now, msg: m, system: f.system, foreign: true})
	}
}

// hearOwn hands on a message of the vehicle; m is nil if it is not known.
func (r *reader) hearOwn(f rawFrame, m message.Message, now time.Time) {
	l := r.link
	ordered := r.countLost(f.seq, now)
	l.mu.Lock()
	left := l.lag.hear(m, ordered, now)
	l.mu.Unlock()
	if m != nil {
		l.hear(heard{at: now, msg: m, departed: left, ordered: ordered, system: f.system})
	}
}

// askTime asks the vehicle for its time, if that is due. waits: a step waits for the answer.
func (l *link) askTime(waits bool, now time.Time) {
	l.mu.Lock()
	due := l.lag.askDue(waits, now)
	question := l.lag.questions.question(now)
	l.mu.Unlock()
	if !due || l.send(question) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag.questions.sent(now)
}

// hasFallen reports whether the line has fallen behind: mavrest by itself then sends only a hold, and that late.
func (l *link) hasFallen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lag.fallen() >= fallenBy
}

// timeDue is when the vehicle is to be asked for its time next, if no step waits for it.
func (l *link) timeDue(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	every := timeEvery
	if l.lag.silent(now) {
		every = timeSilent
	}
	if due := l.lag.questions.asked.Add(every); due.After(now) {
		return due
	}

	// It could not be sent.
	return now.Add(timeEvery)
}

// hasReadSince reports whether all that had come by a moment was read: since then a read began that had to wait.
func (l *link) hasReadSince(at, now time.Time) bool {
	waits := now.UnixNano()-l.readFrom.Load() >= int64(readWaits)
	return l.idleFrom.Load() >= at.UnixNano() || (l.readFrom.Load() >= at.UnixNano() && waits)
}

// hearFrame records that a frame came. It needs l.mu.
func (l *link) hearFrame(now time.Time) {
	if l.framesFrom.IsZero() {
		l.framesFrom = now
	}
	l.frameAt = now
}

// hearOther takes a frame that is not the vehicle's.
func (l *link) hearOther(f rawFrame, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hearFrame(now)
	l.others.hear(f, now)
}

// atItsAddress reports whether a frame with the vehicle's ids came from the vehicle's address. It follows the
// vehicle to another one, and says that two are heard.
func (r *reader) atItsAddress(m message.Message, now time.Time) bool {
	l := r.link
	l.mu.Lock()
	a := &l.address
	was := a.at
	a.behind = l.lag.behind
	r.in.vehicle = was
	from := a.hear(r.in.from, m, now)
	if from == ofVehicle && !a.other.at.IsValid() {
		// Nobody else is heard.
		l.mu.Unlock()
		return true
	}
	system := l.vehicle
	both := a.bothHeard(now)
	other := a.other.at
	asks := from == ofOther && a.mustAsk(now)
	l.mu.Unlock()
	if both {
		l.hear(heard{at: now, notice: fmt.Sprintf("system %d is heard from two addresses, %s and %s: two vehicles "+
			"with one id, or one on two links; %s is ignored", system, was, other, other)})
	}
	if asks {
		l.askWho(system, other)
	}
	if from == ofMoved || from == ofReplaced {
		l.log.Info("the vehicle's address", "system", system, "address", r.in.from, "before", was, "same_vehicle",
			from == ofMoved)
		r.hadSeq = false
		l.mu.Lock()
		l.lag.moved()
		l.mu.Unlock()
	}
	if from == ofReplaced {
		l.hear(heard{at: now, replaced: func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.address.follow()
		}})
	}
	return from != ofOther
}

// askWho asks the vehicle at another address than the one that is heard for its clock and its uid.
func (l *link) askWho(system byte, to netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer == nil {
		return
	}
	for _, id := range []uint32{idAttitude, idVersion} {
		question := &common.MessageCommandLong{
			TargetSystem: system, TargetComponent: autopilotID,
			Command: common.MAV_CMD_REQUEST_MESSAGE, Param1: float32(id),
		}
		select {
		case l.writer.queue <- outgoing{msg: question, at: time.Now(), to: to}:
		default:
			// It is asked again.
		}
	}
}

// repeats reports whether a frame is an echo of ours or a copy of an ack, and remembers a new ack.
// After copyWithin an equal ack is a new one: at 1,200 frames a second the sequence numbers wrap in
// 0.2 s. After echoWithin an equal frame is another program's with our ids. It needs l.mu.
func (l *link) repeats(h header, now time.Time) bool {
	if h.id != idCommandAck {
		// No id of ours has that component.
		mayBeOurs := h.component != autopilotID
		return mayBeOurs && l.recent.has(h, now.Add(-echoWithin))
	}
	copied := l.recent.has(h, now.Add(-copyWithin))
	if !copied {
		l.recent.add(h, now)
	}
	return copied
}

// countLost counts the vehicle's frames that are missing before this one, and reports whether it came in the order in
// which it was sent. A frame whose number steps back was delivered late by UDP: none is missing. After seqFor the
// numbers tell nothing.
func (r *reader) countLost(seq byte, now time.Time) (ordered bool) {
	told := r.hadSeq && now.Sub(r.seqAt) < seqFor
	r.seqAt = now
	switch gap := seq - r.seq; {
	case told && gap > 127:
		return false
	case r.hadSeq && gap <= 127:
		r.link.lost.Add(uint64(gap))
	}
	r.seq = seq + 1
	r.hadSeq = true
	return true
}

// sticksTarget returns the system that sticks are for; 0 if m is another message.
func sticksTarget(m message.Message) byte {
	switch m := m.(type) {
	case *common.MessageManualControl:
		return m.Target
	case *common.MessageRcChannelsOverride:
		return m.TargetSystem
	}
	return 0
}

// hearAutopilot handles an autopilot's heartbeat. Without -system the first autopilot is the vehicle.
func (r *reader) hearAutopilot(system byte, b *minimal.MessageHeartbeat, now time.Time) {
	l := r.link
	l.mu.Lock()
	found := l.vehicle == 0 && (l.only == 0 || l.only == system)
	if found {
		l.vehicle = system
		l.address.at = r.in.from
	}
	vehicle := l.vehicle

	// One heartbeat of a second vehicle may be a damaged frame.
	second := vehicle != system && l.only == 0 && l.autopilots[system] && !l.secondReported
	l.autopilots[system] = true
	l.secondReported = l.secondReported || second
	l.mu.Unlock()
	if found {
		l.log.Info("vehicle found", "system", system, "autopilot", b.Autopilot, "type", b.Type)
	}
	if second {
		l.hear(heard{at: now, notice: fmt.Sprintf("a second vehicle is on this line, system %d; mavrest flies "+
			"system %d, which it heard first; start mavrest with -system %d or -system %d to choose",
			system, vehicle, vehicle, system)})
	}
}

type writer struct {
	link  *link
	port  port
	queue chan outgoing

	// sticks: the newest only
	sticks chan outgoing

	// senders: by system and component id
	senders map[[2]byte]*sender
}

func newWriter(l *link, p port) *writer {
	return &writer{
		link: l, port: p, queue: make(chan outgoing, 64), sticks: make(chan outgoing, 1),
		senders: make(map[[2]byte]*sender),
	}
}

// run writes our heartbeat and what is queued, until a write fails or broken is done. If
// ctx is done too, the program ends: run then writes what is left in the queue.
func (w *writer) run(ctx, broken context.Context) (err error) {
	beat := time.Tick(heartbeatEvery)
	err = w.beat()
	for err == nil {
		select {
		case <-broken.Done():
			if ctx.Err() != nil {
				w.drain()
			}
			return nil
		case <-beat:
			err = w.beat()
		case o := <-w.sticks:
			err = w.put(o)
		case o := <-w.queue:
			err = w.put(o)
		}
	}
	return err
}

// drain writes the sticks, then all that is queued.
func (w *writer) drain() {
	var err error
	select {
	case o := <-w.sticks:
		err = w.put(o)
	default:
	}

	// Only this goroutine receives from it.
	for err == nil && len(w.queue) > 0 {
		err = w.put(<-w.queue)
	}
}

// beat writes our heartbeat and, if it is wanted, a ground station's. An ArduPilot gets one only with -gcs:
// from the first sticks on as its own ground station, SYSID_MYGCS/190: there is no other.
func (w *writer) beat() error {
	err := w.put(outgoing{msg: heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)})
	w.link.mu.Lock()
	stickSystem := w.link.stickSystem
	w.link.mu.Unlock()
	if err == nil && (w.link.gcs || w.link.asStation.Load()) {
		err = w.put(outgoing{system: stickSystem, component: stationID, msg: heartbeat(minimal.MAV_TYPE_GCS)})
	}
	return err
}

// put writes a message, unless it is stale. An error means that the port is broken.
func (w *writer) put(o outgoing) error {
	// The line was blocked for so long that a pilot may have switched since.
	if !o.at.IsZero() && time.Since(o.at) > staleAfter {
		return nil
	}
	b := padding[:]
	if o.msg != nil {
		b = w.frame(o)
	}
	w.port.SetWriteDeadline(time.Now().Add(writeTimeout))
	err := w.write(b, o.to)
	switch {
	case err == errNoPeer:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("a write to the port hung for 2 s")
	case err == nil && o.msg != nil:
		w.link.sent.Add(1)
	}
	return err
}

// write writes bytes to an address where the port has many, else to the one at the line's end.
func (w *writer) write(b []byte, to netip.AddrPort) (err error) {
	p, ok := w.port.(addressedPort)
	if !ok {
		_, err = w.port.Write(b)
		return err
	}
	if !to.IsValid() {
		w.link.mu.Lock()
		to = w.link.address.at
		w.link.mu.Unlock()
	}
	_, err = p.writeTo(b, to)
	return err
}

// frame encodes a message, and remembers the frame to know its echo.
func (w *writer) frame(o outgoing) []byte {
	l := w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := [2]byte{cmp.Or(o.system, l.system()), cmp.Or(o.component, componentID)}
	if w.senders[ids] == nil {
		w.senders[ids] = newSender(ids[0], ids[1])
	}
	b, h := w.senders[ids].encode(o.msg)
	l.recent.add(h, time.Now())
	return b
}
