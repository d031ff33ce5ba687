package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Times of the link (docs/design.md, "The link").
const (
	// silentAfter is how long no valid frame may come before a line is searched again, or a name is looked up again.
	silentAfter = 5 * time.Second

	// backoffFirst is the first wait before the port is reopened. Each next one is twice as long.
	backoffFirst = 100 * time.Millisecond

	// backoffLast is the longest of these waits.
	backoffLast = 2 * time.Second

	heartbeatEvery = time.Second

	// staleAfter is how long a message may wait in the queue, unless it has no time (sticks, a heartbeat of ours). Then
	// it is dropped, because a pilot may have switched since.
	staleAfter = 300 * time.Millisecond

	// noiseEvery is the time between two log lines about noise.
	noiseEvery = 5 * time.Second

	// readLook is how long a port must be empty until all counts as read (hasReadSince), and when to look again.
	readLook = 2 * time.Millisecond
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

// heard is a message of the vehicle.
type heard struct {
	at time.Time

	// msg is valid until the next of its kind is read.
	msg message.Message

	// leaving is when the vehicle sent it.
	leaving

	// ordered: it came in the order in which the vehicle sent it
	ordered bool

	// system: the sender's id
	system byte
}

// events are what a link tells its drone, each by the drone's method of that name. It calls them in run's goroutine,
// without its own mutex.
type events struct {
	hearPortOpened func(at time.Time)

	// hear: the vehicle sent a message
	hear func(heard)

	// hearForeignSticks: another program sent the vehicle sticks
	hearForeignSticks func(at time.Time)

	// hearReplaced: the vehicle has started again at another address, or is another one. follow makes the link send to
	// it from then on.
	hearReplaced func(at time.Time, follow func())

	// hearNotice takes a sentence for the user.
	hearNotice func(text string)
}

// link is the connection to one vehicle. It keeps the port open, sends our heartbeat and
// what is queued, and tells its events.
type link struct {
	device device

	// only: the vehicle's system id (-system); 0 for the first vehicle heard
	only byte

	// gcs: -gcs: always send a ground station's heartbeat
	gcs bool

	log   *slog.Logger
	drone events

	// recorder: nil without -record
	recorder *recorder

	// sent, received, lost: frames
	sent, received, lost atomic.Uint64

	// asStation: each second send a ground station's heartbeat, so that PX4 sends its texts
	asStation atomic.Bool

	// noise: only run's goroutine uses it
	noise struct {

		// logged: the total in the last log line
		logged uint64

		// next: no log line before this
		next time.Time
	}

	// mu guards all below. Lock ordering: drone.mu may be held while it is locked, never the other way round. The
	// events are told without it.
	mu sync.Mutex

	// writer: of the open port; nil if the port is not open
	writer *writer

	// vehicle: the vehicle's system id; 0 before its first heartbeat
	vehicle byte

	// vehicleType is the vehicle's MAV_TYPE; one without a name is of a kind that MAVLink does not have yet.
	vehicleType minimal.MAV_TYPE

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

	// signing is by the key of -sign; nil without one.
	signing *signing

	// greeted is when a heartbeat went to another address than the vehicle's.
	greeted time.Time

	// others is what else is heard.
	others neighbours

	// stickSystem: SYSID_MYGCS once sticks were sent to an ArduPilot, else 0
	stickSystem byte

	// recent: our last frames
	recent recent

	// idsReported: another program with our ids was reported
	idsReported bool

	// autopilots is when an autopilot's heartbeat was last heard, by system id.
	autopilots [256]time.Time

	// secondReported: a second vehicle was reported
	secondReported bool

	// damage: of bytes that came over a network
	damage damage

	// fault is what was wrong with the port last; nil since a frame came.
	fault error

	// logged: the failures that were logged since a frame came
	logged []string

	// hung is that a write hung; nil since the vehicle acknowledged something.
	hung error
}

// newLink returns a link over a device, which tells its events.
func newLink(d device, only byte, gcs bool, log *slog.Logger, to events) *link {
	if d.line == nil {
		d.line = new(lineState)
	}
	return &link{device: d, only: only, gcs: gcs, log: log, drone: to}
}

// run keeps the port open until ctx is done. Then it writes what is queued and closes the port.
func (l *link) run(ctx context.Context) {
	backoff := backoffFirst

	// unopened is why the port could not be opened last.
	var unopened error
	for ctx.Err() == nil {
		p, err := l.device.open(ctx)

		// noise that a search for the baud rate met
		l.logNoise(time.Now())
		opened := err == nil
		if opened {
			l.mended(unopened)
			var hadFrame bool
			if hadFrame, err = l.serve(ctx, p); hadFrame {
				backoff = backoffFirst
			}
		}
		if ctx.Err() != nil {
			return
		}
		err = l.fail(err)
		if !opened {
			unopened = err
		}
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
	l.framesFrom = time.Time{}
	l.lag.moved()
	l.signing.opened()

	// A stream begins in a frame.
	l.damage = damage{}
	l.mu.Unlock()

	l.drone.hearPortOpened(now)

	broken, end := context.WithCancelCause(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		end(w.run(ctx, broken))

		// Makes the reader end.
		p.Close()
	})
	if p, ok := p.(namedPort); ok {
		writing.Go(func() { end(l.watchName(broken, p)) })
	}
	r := &reader{link: l, port: p, silentFrom: now}
	r.in.datagrams = l.device.datagrams
	if p, ok := p.(addressedPort); ok {
		r.in.sender = p.sender
	}
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

// namedPort is a port whose other end has a name, which may move to another address.
type namedPort interface {
	port
	moved(ctx context.Context) bool
}

// watchName returns an error when the name of a silent port's other end has moved: the port is to be opened again.
func (l *link) watchName(ctx context.Context, p namedPort) error {
	opened := time.Now()
	tick := time.NewTicker(silentAfter)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		l.mu.Lock()
		heardAt := l.frameAt
		l.mu.Unlock()
		if time.Since(later(opened, heardAt)) >= silentAfter && p.moved(ctx) {
			return errors.New("its name stands for another address now")
		}
	}
}

type reader struct {
	link *link
	port port

	// silentFrom is when the last valid frame came, or the port was opened, or last found to be silent.
	silentFrom time.Time

	hadFrame bool

	// numbers: of the vehicle's frames
	numbers sequence

	// order: of its checked frames
	order order

	messages decoder

	in deframer
}

// errSilent is no fault of a port that need not be searched: its vehicle may sleep.
var errSilent = errors.New("no MAVLink for 5 s")

// read reads the port once and handles the frames. It fails if the port is to be opened again.
func (r *reader) read() error {
	l := r.link
	err := r.in.read(r.port)
	now := r.in.at
	for f, ok := r.in.next(); ok; f, ok = r.in.next() {
		if f.known != nil {
			r.hearChecked(now)
			l.recorder.heard(f)
		}
		if r.takes(f, now) {
			r.handle(f, now)
		}
	}
	r.hearNoise(now)
	if says := r.in.babble.says(); says != nil {
		l.fail(says)
	}
	switch {
	case l.device.datagrams && errors.Is(err, syscall.ECONNREFUSED):
		// Nobody listens there yet.
		l.fail(err)
		return nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	if silent := r.silentFrom.Add(silentAfter); now.Before(silent) {
		// A frame came since the deadline was set. Setting it at each read would cost at each frame.
		return r.port.SetReadDeadline(silent)
	}
	return r.silent(now)
}

// hearChecked takes that a frame with the right checksum came.
func (r *reader) hearChecked(now time.Time) {
	l := r.link
	if !r.hadFrame {
		heard := []any{"device", l.device.port()}
		if baud := l.device.line.baud.Load(); baud != 0 {
			heard = append(heard, "baud", baud)
		}
		l.log.Info("MAVLink heard", heard...)
	}
	r.hadFrame = true
	r.silentFrom = now
	l.received.Add(1)
}

// takes reports whether a frame counts: with -sign only what is signed with its key. MAVLink came in any case.
func (r *reader) takes(f rawFrame, now time.Time) bool {
	l := r.link
	if l.signing == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	why := l.signing.hear(f, now)
	if why != notRefused && f.known != nil {
		l.hearFrameLocked(now)
	}
	if why == oldStamp && f.component == autopilotID && r.in.from != l.address.at {
		l.greetLocked(r.in.from, now)
	}
	return why == notRefused
}

// greetLocked sends our heartbeat to where a vehicle has started again whose stamps are behind: it counts on from ours,
// and what it sends then is taken. Its address is not followed before.
func (l *link) greetLocked(to netip.AddrPort, now time.Time) {
	if now.Sub(l.greeted) < heartbeatEvery {
		return
	}
	l.greeted = now

	// What can't be sent is due again in a second.
	l.enqueueLocked(outgoing{msg: heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER), to: to})
}

// handle hands on the vehicle's messages, and another program's sticks for the vehicle. It reads the vehicle and its
// address without the mutex: only this goroutine sets them.
func (r *reader) handle(f rawFrame, now time.Time) {
	l := r.link
	var m message.Message
	if f.component == autopilotID || f.id == idManualControl || f.id == idRCOverride {
		m = r.messages.decode(f)
	}
	if b, ok := m.(*minimal.MessageHeartbeat); ok && f.component == autopilotID {
		if f.system == 0 || !(isVehicle(b) || l.takesNewKind(f.system, b, now)) {
			l.hearOther(f, now)
			return
		}
		r.hearAutopilot(f.system, b, now)
	}
	own := f.component == autopilotID && f.system == l.vehicle && l.vehicle != 0
	switch {
	case f.known == nil:
		// Its checksum can't be checked, so it may be noise: it only fills its place among the vehicle's frames.
		if own && r.in.from == l.address.at {
			r.countNumber(f.header, now)
		}
	case !own:
		r.handleOther(f, m, now)
	case r.atItsAddress(m, now):
		r.handleOwn(f, m, now)
	}
}

// handleOwn hands on a frame of the vehicle, unless it came before; m is nil if its message can't be read. Its age
// counts from when its last byte came, also where a broken frame hid it until now.
func (r *reader) handleOwn(f rawFrame, m message.Message, now time.Time) {
	l := r.link
	repeated := r.countNumber(f.header, now)
	news := m != nil && !repeated
	h := heard{at: now, msg: m, system: f.system, ordered: news && r.order.hear(f.seq, now)}
	l.mu.Lock()
	l.hearFrameLocked(now)
	if !repeated {
		l.signed = f.signed
		if f.id == idHeartbeat {
			l.beatAt = now
		}
	}
	if news {
		h.leaving = l.lag.hear(m, h.ordered, f.came)
	}
	l.mu.Unlock()
	if news {
		l.drone.hear(h)
	}
}

// handleOther takes a frame that is not the vehicle's: another program's with our ids, unless a router or a radio sent
// ours back, or its sticks for the vehicle.
func (r *reader) handleOther(f rawFrame, m message.Message, now time.Time) {
	l := r.link
	l.hearOther(f, now)
	l.mu.Lock()
	repeated := l.recent.has(f.header, now)
	stranger := f.component == componentID && f.system == l.systemLocked() && !repeated && !l.idsReported
	l.idsReported = l.idsReported || stranger
	l.mu.Unlock()
	if stranger {
		l.sayStranger(f)
	}
	if !repeated && l.vehicle != 0 && sticksTarget(m) == l.vehicle {
		l.drone.hearForeignSticks(now)
	}
}

// takesNewKind reports whether a vehicle of a kind that MAVLink does not have yet is the one that is shown: while no
// vehicle of a known kind is heard. It is never commanded.
func (l *link) takesNewKind(system byte, b *minimal.MessageHeartbeat, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !isNewKind(b):
		return false
	case l.vehicle != 0:
		return l.vehicle == system && !hasName(l.vehicleType)
	}
	other := slices.ContainsFunc(l.autopilots[:], func(at time.Time) bool { return now.Sub(at) < neighbourFor })
	return !other && l.others.isTilted(system, now)
}

// hearAutopilot handles an autopilot's heartbeat. Without -system the first autopilot is the vehicle.
func (r *reader) hearAutopilot(system byte, b *minimal.MessageHeartbeat, now time.Time) {
	l := r.link
	l.mu.Lock()

	// One of a kind that is known takes the place of one that is not.
	replaces := l.vehicle != 0 && system != l.vehicle && isVehicle(b) && !hasName(l.vehicleType)
	found := (l.vehicle == 0 || replaces) && (l.only == 0 || l.only == system)
	if found {
		l.vehicle = system
		l.address = vehicleAddress{at: r.in.from}
		r.numbers = sequence{}
		r.order = order{}
	}
	if system == l.vehicle {
		l.vehicleType = b.Type
	}
	vehicle := l.vehicle

	// One heartbeat of a second vehicle may be a damaged frame.
	again := now.Sub(l.autopilots[system]) < neighbourFor
	second := vehicle != system && l.only == 0 && again && !l.secondReported
	l.autopilots[system] = now
	l.secondReported = l.secondReported || second
	l.mu.Unlock()
	if found && replaces {
		l.drone.hearReplaced(now, func() {})
	}
	if found {
		l.log.Info("vehicle found", "system", system, "autopilot", b.Autopilot, "type", b.Type)
	}
	if second {
		l.drone.hearNotice(fmt.Sprintf("a second vehicle is on this line, system %d; mavrest flies "+
			"system %d, which it heard first; start mavrest with -system %d or -system %d to choose",
			system, vehicle, vehicle, system))
	}
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
		l.drone.hearNotice(fmt.Sprintf("system %d is heard from two addresses, %s and %s: two vehicles "+
			"with one id, or one on two links; %s is ignored", system, was, other, other))
	}
	if asks {
		l.askWho(system, other)
	}
	if from == ofMoved || from == ofReplaced {
		l.log.Info("the vehicle's address", "system", system, "address", r.in.from, "before", was, "same_vehicle",
			from == ofMoved)
		r.numbers = sequence{}
		r.order = order{}
		l.mu.Lock()
		l.lag.moved()
		l.mu.Unlock()
	}
	if from == ofReplaced {
		l.drone.hearReplaced(now, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.address.adoptOther()
		})
	}
	return from != ofOther
}

// askWho asks the vehicle at another address than the one that is heard for its clock and its uid.
func (l *link) askWho(system byte, to netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range []uint32{idAttitude, idVersion} {
		question := &common.MessageCommandLong{
			TargetSystem: system, TargetComponent: autopilotID,
			Command: common.MAV_CMD_REQUEST_MESSAGE, Param1: float32(id),
		}

		// What can't be sent is asked again.
		l.enqueueLocked(outgoing{msg: question, at: time.Now(), to: to})
	}
}

// countNumber counts the vehicle's lost frames by a frame's number, and reports whether the frame came before.
func (r *reader) countNumber(h header, now time.Time) (repeated bool) {
	lost, repeated := r.numbers.hear(h, now)
	r.link.lost.Add(uint64(lost))
	return repeated
}

// sayStranger says that another program has our ids.
func (l *link) sayStranger(f rawFrame) {
	l.drone.hearNotice(fmt.Sprintf("another program uses mavrest's MAVLink ids, %d/%d, and each "+
		"takes the other's acks for its own; give that program another component id (MAVROS: component_id, "+
		"MAVSDK: its Configuration, pymavlink: source_component), or, if it is a second mavrest, stop one of them",
		f.system, f.component))
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

// hearOther takes a frame that is not the vehicle's.
func (l *link) hearOther(f rawFrame, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hearFrameLocked(now)
	l.others.hear(f, now)
}

// hearFrameLocked records that a frame came: the port is not at fault.
func (l *link) hearFrameLocked(now time.Time) {
	l.fault = nil
	l.logged = nil
	if l.framesFrom.IsZero() {
		l.framesFrom = now
	}
	l.frameAt = now
}

// hearNoise takes what the last read brought beside frames.
func (r *reader) hearNoise(now time.Time) {
	l := r.link
	n := r.in.errors
	r.in.errors = 0
	l.device.line.noise.Add(n)
	l.logNoise(now)
	if n == 0 || l.device.lossy {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()

	// Strangers may send anything.
	if r.in.from == l.address.at {
		l.damage.add(n, now)
	}
}

// silent is called when no valid frame came for silentAfter. A port that is searched fails, and is searched again.
func (r *reader) silent(now time.Time) error {
	if r.link.device.searches {
		return errSilent
	}
	r.link.mu.Lock()
	r.link.logFailureLocked(errSilent)
	r.link.mu.Unlock()
	r.silentFrom = now
	if p, ok := r.port.(interface{ wake() error }); ok {
		if err := p.wake(); err != nil {
			return err
		}
	}
	return r.port.SetReadDeadline(now.Add(silentAfter))
}

// askTime asks the vehicle for its time, if that is due. waits: a step waits for the answer.
func (l *link) askTime(waits bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lag.askDue(waits, now) {
		return
	}
	if l.sendAsLocked(0, 0, l.lag.questions.question(now)) == nil {
		l.lag.questions.sent(now)
	}
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

// answersTime reports whether the vehicle answers questions for its time.
func (l *link) answersTime(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lag.proves.IsZero() && !l.lag.silent(now)
}

// measured takes a round trip that an ack has shown.
func (l *link) measured(trip time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag.measured(trip, now)
}

// hasReadSince reports whether all that had come by a moment was read, and handled: since then a read has found the
// port empty, readLook ago or more. A sender that the full port held back goes on within that. Where the port is away
// nothing comes.
func (l *link) hasReadSince(at, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer == nil {
		return true
	}
	empty := l.writer.port.emptyAt()
	return !empty.Before(at) && now.Sub(empty) >= readLook
}

// hasFallen reports whether the line has fallen behind. Then the landing over a place waits, and so does each copy that
// is not blind.
func (l *link) hasFallen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lag.fallen() >= fallenBy
}

// pad queues padding, if bytes may be lost on this device.
func (l *link) pad() {
	if l.device.lossy {
		l.send(nil)
	}
}

// send queues a message with our own ids. It never waits.
func (l *link) send(m message.Message) error { return l.sendAs(0, 0, m) }

// sendAs queues a message with the ids that it is to be sent with; zero ids are ours.
func (l *link) sendAs(system, component byte, m message.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sendAsLocked(system, component, m)
}

func (l *link) sendAsLocked(system, component byte, m message.Message) error {
	return l.enqueueLocked(outgoing{system, component, m, time.Now(), l.address.at})
}

// setSticks makes o the sticks that are written as soon as the writer takes them; nil clears them.
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

// enqueueLocked queues what is to be sent. It never waits.
func (l *link) enqueueLocked(o outgoing) error {
	if l.writer == nil {
		return errors.New("the port is not open")
	}
	select {
	case l.writer.queue <- o:
		return nil
	default:
		return errQueueFull
	}
}

var errQueueFull = errors.New("the queue to the port is full")

type writer struct {
	link  *link
	port  port
	queue chan outgoing

	// sticks: the newest only
	sticks chan outgoing

	// senders: by system and component id
	senders map[[2]byte]*sender

	// quiet sends the quiet heartbeats: two programs with our ids would have few numbers to be told apart by.
	quiet *sender
}

func newWriter(l *link, p port) *writer {
	return &writer{
		link: l, port: p, queue: make(chan outgoing, 64), sticks: make(chan outgoing, 1),
		senders: make(map[[2]byte]*sender), quiet: newSender(quietSystem, componentID),
	}
}

// run writes our heartbeat and what is queued, until a write fails or broken is done. If
// ctx is done too, the program ends: run then writes what is left in the queue.
func (w *writer) run(ctx, broken context.Context) (err error) {
	beat := time.Tick(heartbeatEvery)

	// On any other port it listens first.
	if w.link.device.datagrams {
		err = w.beat()
	}
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

// beat writes our heartbeat and, if it is wanted, a ground station's. Where no MAVLink was heard yet since the port was
// opened it is a quiet one. An ArduPilot gets one only with -gcs: from the first sticks on as its own ground station,
// SYSID_MYGCS/190: there is no other.
func (w *writer) beat() error {
	w.link.mu.Lock()
	heard := !w.link.framesFrom.IsZero() || w.link.device.datagrams
	w.link.mu.Unlock()
	if !heard {
		return w.pass(w.quietFrame(), netip.AddrPort{}, true)
	}
	err := w.put(outgoing{msg: heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)})
	w.link.mu.Lock()
	stickSystem := w.link.stickSystem
	w.link.mu.Unlock()
	if err == nil && (w.link.gcs || w.link.asStation.Load()) {
		err = w.put(outgoing{system: stickSystem, component: stationID, msg: heartbeat(minimal.MAV_TYPE_GCS)})
	}
	return err
}

// quietFrame is frame of a quiet heartbeat.
func (w *writer) quietFrame() []byte {
	w.link.mu.Lock()
	defer w.link.mu.Unlock()
	b, h := quietBeat(w.quiet)
	w.link.recent.add(h, time.Now())
	return b
}

// put writes a message, unless it is stale. An error means that the port is broken.
func (w *writer) put(o outgoing) error {
	// The line was blocked for so long that a pilot may have switched since.
	if !o.at.IsZero() && time.Since(o.at) > staleAfter {
		return nil
	}
	if o.msg == nil {
		return w.pass(padding[:], o.to, false)
	}
	b := w.frame(o)
	if b == nil {
		return nil
	}
	err := w.pass(b, o.to, true)
	if p, ok := w.port.(hurrier); ok && awaitsAnswer(o.msg) {
		p.hurry()
	}
	return err
}

// awaitsAnswer reports whether what a message may bring about is awaited: an answer, or what sticks make the vehicle
// report. A HEARTBEAT brings nothing, and what only begins a stream or brings a message for the status has time.
func awaitsAnswer(m message.Message) bool {
	switch m := m.(type) {
	case *minimal.MessageHeartbeat:
		return false
	case *common.MessageCommandLong:
		switch m.Command {
		case common.MAV_CMD_SET_MESSAGE_INTERVAL:
			return false
		case common.MAV_CMD_REQUEST_MESSAGE:
			return uint32(m.Param1) == idHeartbeat
		}
	}
	return true
}

// frame encodes a message, and remembers the frame to know its echo; nil if it can't be signed yet.
func (w *writer) frame(o outgoing) []byte {
	l := w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.signing.holds(o.msg) {
		return nil
	}
	ids := [2]byte{cmp.Or(o.system, l.systemLocked()), cmp.Or(o.component, componentID)}
	s := w.senders[ids]
	if s == nil {
		s = newSender(ids[0], ids[1])
		if l.signing != nil {
			s.flags = frame.V2FlagSigned
		}
		w.senders[ids] = s
	}
	b, h := s.encode(o.msg)
	now := time.Now()
	l.recent.add(h, now)
	if l.signing != nil {
		b = l.signing.sign(b, now)
	}
	return b
}

// pass writes bytes, of which a frame counts as sent.
func (w *writer) pass(b []byte, to netip.AddrPort, isFrame bool) error {
	w.port.SetWriteDeadline(time.Now().Add(writeTimeout))
	err := w.write(b, to)
	switch {
	case err == errNoPeer:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errWriteHung
	case w.link.device.datagrams && errors.Is(err, syscall.ECONNREFUSED):
		// Nobody listens there yet.
		w.link.fail(err)
		return nil
	case err == nil && isFrame:
		w.link.sent.Add(1)
		w.link.recorder.sent(b)
	}
	return err
}

// errWriteHung says that the line takes nothing: that is not a wire that is not connected.
var errWriteHung = errors.New("a write to the port hung for 2 s: what mavrest sends does not leave the board; start " +
	"the autopilot, or the bridge at the other end, again")

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

// linkState is a snapshot of the link for the status.
type linkState struct {
	device                       string
	baud                         int
	received, lost, errors, sent uint64

	// fault is what is wrong with the port or its bytes, or what is heard instead of the vehicle.
	fault error

	// lag is how far the line is behind; lagKnown is false where nothing tells.
	lag      time.Duration
	lagKnown bool

	// silentAboutTime: the vehicle answers no question for its time
	silentAboutTime bool

	// keyless, lossy: the vehicle's frames are signed, and mavrest has no key (-sign); the line is a serial one
	keyless, lossy bool
}

func (l *link) state() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	lag, lagKnown := l.lag.now(now)
	errors := l.device.line.noise.Load()
	if l.signing != nil {
		errors += l.signing.refused
	}
	return linkState{
		lag: lag, lagKnown: lagKnown, silentAboutTime: l.lag.silent(now),
		device: l.device.port(), keyless: l.signed && l.signing == nil, lossy: l.device.lossy,
		baud:     int(l.device.line.baud.Load()),
		fault:    cmp.Or(l.fault, l.hung, l.signing.fault(now), l.missingLocked(now), l.damagedLocked(now)),
		received: l.received.Load(), lost: l.lost.Load(), errors: errors, sent: l.sent.Load(),
	}
}

// missingLocked says that MAVLink comes and the vehicle does not, and what is heard instead; nil where it is heard, or
// may be soon.
func (l *link) missingLocked(now time.Time) error {
	other := slices.IndexFunc(l.autopilots[:], func(at time.Time) bool { return now.Sub(at) < neighbourFor })
	beats := !l.beatAt.IsZero() && now.Sub(l.beatAt) < offlineAfter
	switch {
	case l.vehicle == 0 && other >= 0:
		return fmt.Errorf("system %d is heard on this line, but -system %d was asked for; start mavrest with "+
			"-system %d", other, l.only, other)
	case !beats && l.address.scattered(now):
		return fmt.Errorf("each datagram of system %d comes from another address, the last one from %s: nothing can "+
			"be sent to it; give its sender, a bridge or a script, one port that it keeps", l.vehicle, l.address.last())
	case l.framesFrom.IsZero(), now.Sub(l.framesFrom) < offlineAfter, now.Sub(l.frameAt) >= offlineAfter:
		// It may come yet, or nothing comes.
		return nil
	case beats:
		return nil
	}
	words := l.others.words(l.systemLocked(), now)
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

// damagedLocked says that a network brings bytes that are no frames; nil where it brings few. Nothing on a network
// damages bytes on their way: whoever puts them there does.
func (l *link) damagedLocked(now time.Time) error {
	if !l.damage.lasts(now) {
		return nil
	}
	return errors.New("frames come damaged, which a network does not do, but the bridge at its other end: set it to " +
		"raw, not telnet, and without software flow control (XON/XOFF); else check its own serial line")
}

// unanswered is what to say of a vehicle that answers nothing. readOnly: it has not shown what it is, or is never
// commanded.
func (s linkState) unanswered(readOnly bool) error {
	do := "check that the router or the bridge passes on to the autopilot what mavrest sends"
	if s.keyless {
		do = signedWords
	} else if s.lossy {
		do = "check the wire from the board's TX to the autopilot's RX, and that its port is not half duplex"
	}
	so := "commands go out all the same"
	if readOnly {
		so = "it can be read, not commanded"
	}
	return fmt.Errorf("this vehicle is heard, and answers nothing that mavrest sends: %s; %s", so, do)
}

// late says that what the status shows is old, or that nothing proves how old it is; nil if neither is so. answers says
// that the vehicle answers other questions.
func (s linkState) late(answers bool) error {
	switch {
	case s.lagKnown && s.lag >= lateFrom:
		return fmt.Errorf("the line from the autopilot is %.1f s behind: all that is shown is that old; send fewer "+
			"streams on it, set a faster baud rate, or bring the radio nearer", s.lag.Seconds())
	case s.lacksKey():
		return errors.New("this vehicle does not answer any more: " + signedWords)
	case s.silentAboutTime && answers:
		return errors.New("this autopilot answers no TIMESYNC: how old its reports are can't be proven; check that " +
			"the router or the bridge passes TIMESYNC on in both directions")
	}
	return nil
}

// lateFrom is how far behind the line is from when on the status says so.
const lateFrom = time.Second

// signedWords is what to do about a vehicle that signs, where there is no key.
const signedWords = "its frames are signed, and it ignores what is not: start mavrest with -sign and a file with the " +
	"vehicle's key (docs/install.md, Signing)"

// lacksKey reports whether the vehicle ignores what mavrest sends because it is not signed.
func (s linkState) lacksKey() bool { return s.keyless && s.silentAboutTime }

// fail takes what is wrong with the port, and returns it in words. It stays until a frame comes.
func (l *link) fail(err error) error {
	said := fmt.Errorf("-device %s: %w", l.device.name, openFault(l.device.name, err))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = said
	hung := errors.Is(err, errWriteHung)

	// Frames may come all the while: it is still the same failure.
	if !hung || l.hung == nil {
		l.logFailureLocked(said)
	}
	if hung {
		l.hung = said
	}
	return said
}

// logFailureLocked logs a failure once until a frame comes.
func (l *link) logFailureLocked(err error) {
	if len(l.logged) < mostLogged && !slices.Contains(l.logged, err.Error()) {
		l.logged = append(l.logged, err.Error())
		l.log.Warn("no link to the autopilot; trying again", "device", l.device.name, "error", err)
	}
}

// mostLogged is how many kinds of failure an outage logs.
const mostLogged = 8

// mended takes that the port is open: what kept it from opening is over.
func (l *link) mended(unopened error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == unopened {
		l.fault = nil
	}
}

// acknowledged takes that the vehicle has acknowledged something: what is written arrives.
func (l *link) acknowledged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung = nil
}

// logNoise logs how much noise came since its last line, at most once in noiseEvery.
func (l *link) logNoise(now time.Time) {
	if n := l.device.line.noise.Load(); n != l.noise.logged && !now.Before(l.noise.next) {
		l.log.Warn("bytes that are not MAVLink", "device", l.device.port(), "since_last", n-l.noise.logged, "total", n)
		l.noise.logged = n
		l.noise.next = now.Add(noiseEvery)
	}
}

// addressed reports whether an ack is for us. A target of 0 may be for us: not every
// autopilot fills it in.
func (l *link) addressed(system, component byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (system == 0 || system == l.systemLocked()) && (component == 0 || component == componentID)
}

// systemLocked returns our system id, which is the vehicle's.
func (l *link) systemLocked() byte { return cmp.Or(l.vehicle, l.only, 1) }
