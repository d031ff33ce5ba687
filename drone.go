package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// drone is the one vehicle: it handles its messages, requests what does not come by itself,
// does what is due, and answers the API. Only locked, change, changeQuietly and changeMayWait lock mu, and a waiter's
// pause, which releases it, takes it back.
type drone struct {
	log *slog.Logger

	// began is when the program began.
	began time.Time

	link  *link
	clock clock

	// reach: metres: how far away a place may be that a client names (-reach)
	reach float64

	// ceiling: metres above home: how high a client's height may be (-ceiling)
	ceiling float64

	// ended: closed when the program ends: whoever waits for a manoeuvre returns
	ended chan struct{}

	// changes: grows with each change that a status may show, and before each wait: streams (api.sendEvents) and
	// planAnew look at it
	changes atomic.Uint64

	// wg: every goroutine that run waits for, also landThere and holdForSilent
	wg sync.WaitGroup

	// mu guards all below. Lock ordering: before link.mu and recorder.mu.
	mu sync.Mutex

	tel       telemetry
	machine   machine
	sticks    sticks
	params    parameters
	cmd       *commander
	handshake handshake

	online bool

	// dueAt is when the next thing is due; zero at the start.
	dueAt time.Time

	// quitBy is when the farewell must be over: 1 s after the program began to end; zero: it is not ending.
	quitBy time.Time

	// restartedAt is when the message left that last showed a restart of the autopilot; zero if none has.
	restartedAt time.Time

	// warned: the warnings given since the autopilot started
	warned warnings

	// readBecause is why the vehicle can be read, not commanded, as the log said it last; "": it has not said it.
	readBecause string
}

// newDrone makes the drone on dev; only is its system id, 0 for the first autopilot heard. The drone, its
// link and its routes write to log.
func newDrone(dev device, only byte, gcs bool, log *slog.Logger) *drone {
	d := &drone{
		log: log, began: time.Now(), clock: clock{wake: make(chan struct{}, 1)}, reach: defaultReach,
		ceiling: defaultCeiling, ended: make(chan struct{}), tel: newTelemetry(),
	}
	d.link = newLink(dev, only, gcs, log, events{
		hearPortOpened: d.hearPortOpened, hear: d.hear, hearForeignSticks: d.hearForeignSticks,
		hearReplaced: d.hearReplaced, hearNotice: d.hearNotice,
	})
	acks := newAcks(d.link, &d.tel)
	d.cmd = &commander{queue: queue{machine: &d.machine}, acks: acks, stood: standstill{link: d.link}}
	d.params = parameters{tel: &d.tel, acks: acks, values: make(map[string]float64)}
	d.handshake.params = &d.params
	return d
}

// run serves the vehicle until ctx is done, says farewell, and returns when every goroutine has ended.
func (d *drone) run(ctx context.Context) {
	lineCtx, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	d.wg.Go(func() { d.link.run(lineCtx) })
	d.wg.Go(func() { d.clock.run(lineCtx, d.tick) })
	<-ctx.Done()
	d.quit()
	d.changeMayWait(d.farewell)
	cut()
	d.wg.Wait()
}

// quit ends every task and every wait. No client's request begins any more; the farewell's may.
func (d *drone) quit() {
	d.change(func() {
		if !d.cmd.quitting {
			close(d.ended)
			d.quitBy = time.Now().Add(time.Second)
		}
		d.cmd.quit()
	})
}

// farewell leaves the vehicle safe when the program ends after sticks: it may command a hold or a
// landing, and centres or releases the sticks (docs/design.md, "SIGTERM in the air").
func (d *drone) farewell(w waiter) {
	v := d.situation(time.Now())
	if v.online && v.firmware.ardupilot() && v.flying() && d.sticks.flies(v) && !d.sticks.taken {
		// quit has ended them
		w.wait(d.quitBy, func() bool { return len(d.cmd.tasks) == 0 })
		d.leaveSafe(w)
	}

	// leaveSafe has unlocked mu
	v = d.situation(time.Now())
	d.sticks.farewell(v)
	if d.sticks.phase != stickOff && v.flying() {
		d.log.Warn("stopping in the air after sticks: the autopilot's own failsafe for lost sticks may follow "+
			"(docs/install.md, 7)", "mode", v.mode)
	}
	if d.cmd.onWayToLand() {
		d.log.Warn("stopping amid a landing at a place: " + d.cmd.manoeuvre.landsWithout())
	}
}

// mode returns the mode and the autopilot's own name for its mode, "" before the first heartbeat.
func (d *drone) mode() (mode Mode, name string) {
	d.locked(func() {
		mode = d.machine.mode
		if !d.tel.beat.at.IsZero() {
			name = d.modeName()
		}
	})
	return mode, name
}

// status is the status for a client. It is made with mu locked: the parameters, the texts and the batteries are the
// drone's own, and go on changing.
func (d *drone) status(client netip.Addr) (body *statusBody) {
	d.locked(func() {
		s := d.snapshot(time.Now())
		body = render(&s, client)
	})
	return body
}

// flying reports whether the vehicle may be in the air.
func (d *drone) flying() (flying bool) {
	d.locked(func() { flying = d.view(time.Now()).flying() })
	return flying
}

// summary is the vehicle's state in a line, for systemd.
func (d *drone) summary() (line string) {
	d.locked(func() { line = d.summaryLine() })
	return line
}

func (d *drone) summaryLine() string {
	if err := d.able(); err != nil {
		return err.Error()
	}
	id := &d.tel.id
	autopilot := autopilotName(id.autopilot)
	vehicle := lowerName(id.typ.String(), "MAV_TYPE_")
	armed := armedWord[d.machine.last.armed]
	return fmt.Sprintf("%s %s online, %s, mode %s", autopilot, vehicle, armed, d.machine.mode)
}

// armedWord is the armed bit in a sentence.
var armedWord = map[bool]string{false: "disarmed", true: "armed"}

// hear takes a message of the vehicle. Most of it is telemetry.
func (d *drone) hear(h heard) {
	if isTelemetry(h.msg) {
		d.changeQuietly(func() { d.hearMessage(h) })
		return
	}
	d.change(func() { d.hearMessage(h) })
}

// isTelemetry reports whether a message makes nothing due before its time. Each other one may.
func isTelemetry(m message.Message) bool {
	switch m.(type) {
	case *common.MessageAttitude, *common.MessageGlobalPositionInt, *common.MessageVfrHud,
		*common.MessageGpsRawInt, *common.MessageGps2Raw, *common.MessageSysStatus, *common.MessageExtendedSysState,
		*common.MessagePositionTargetGlobalInt, *common.MessageHomePosition, *common.MessageBatteryStatus,
		*common.MessageSystemTime, *MessageEkfStatusReport:
		return true
	}
	return false
}

// hearPortOpened takes that the port is open: an earlier process may have sent sticks.
func (d *drone) hearPortOpened(at time.Time) {
	d.change(func() { d.sticks.src.hide(at.Add(overrideTimeout)) })
}

// hearForeignSticks takes that another program sent the vehicle sticks.
func (d *drone) hearForeignSticks(at time.Time) {
	d.change(func() { d.sticks.hearForeign(d.situation(at)) })
}

// hearReplaced is restarted for a vehicle that may be another one: nothing that is known holds for it, and no stream of
// ours goes to it. follow makes the link send to it.
func (d *drone) hearReplaced(at time.Time, follow func()) {
	d.change(func() {
		d.tel.replace()
		d.sticks = sticks{}
		follow()
		d.restarted(at, "the vehicle was silent, and has started again meanwhile or is another one")
	})
}

// hearNotice takes what the link has to say to the user.
func (d *drone) hearNotice(text string) {
	d.change(func() { d.notify(text) })
}

// tick does what is due by time: settle does.
func (d *drone) tick() {
	d.change(func() {})
}

// locked runs f with mu locked. f changes nothing.
func (d *drone) locked(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// change runs f with mu locked. What follows from what it changed is done when it unlocks: settle, doDue, actForSticks.
// So f itself sends no sticks.
func (d *drone) change(f func()) {
	d.mu.Lock()
	defer d.unlockChanged()
	f()
}

// changeQuietly is change for an f that makes nothing due before its time: the clock does what is due by then.
func (d *drone) changeQuietly(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	d.changes.Add(1)
	d.cmd.bell.ring()
}

// changeMayWait is change for an f that waits: then mu is unlocked, and what follows is done before.
func (d *drone) changeMayWait(f func(w waiter)) {
	d.mu.Lock()
	defer d.unlockChanged()
	f(waiter{mu: &d.mu, bell: &d.cmd.bell, settle: d.settle, stood: &d.cmd.stood})
}

func (d *drone) unlockChanged() {
	defer d.mu.Unlock()
	d.settle()

	// Whoever waits decides again.
	d.cmd.bell.ring()
}

// hearMessage takes a message of the vehicle. By when it left go ages, reports and their order; by when it came go
// that the vehicle is heard, acks, parameters, counts of streams and a transmitter's switches. Telemetry takes it
// first: what follows asks for the family and the state that it has.
func (d *drone) hearMessage(h heard) {
	now := h.at
	d.tel.id.system = h.system
	d.cmd.acks.behind = h.behind
	version := d.tel.id.version

	// A HEARTBEAT behind a newer message may show a state that has ended.
	_, beats := h.msg.(*minimal.MessageHeartbeat)
	if late := beats && !h.ordered; !late && d.tel.hear(h.msg, h.left) {
		d.restarted(now, restartedWhy)
	}

	// The vehicle was taken for another family of autopilots.
	if d.online && d.handshake.firmware != d.firmware() {
		clear(d.params.values)
		if d.params.family.shown&d.firmware() == 0 {
			d.params.family = family{}
		}
		d.beginHandshake(now)
	}
	d.handshake.countMessage(h.msg.GetID(), now)
	switch m := h.msg.(type) {
	case *minimal.MessageHeartbeat:
		d.hearHeartbeat(m, h)
	case *common.MessageCurrentMode:
		if h.ordered && d.machine.hearNumber(m.CustomMode, h.latest, now) {
			// Where the sticks are to be centred for it they are at once.
			d.sticks.next = now
		}
	case *common.MessageTimesync:
		d.hearTime(h)
	case *common.MessageCommandAck:
		d.hearAck(m, now)
	case *common.MessageParamValue:
		if ours := d.params.hear(m, now); ours {
			d.handshake.hearAnswer(now)
		}
	case *common.MessageSysStatus:
		d.hearSysStatus(h.left)
	case *common.MessageManualControl:
		d.sticks.hearActing(d.situation(now), axes{x: m.X, y: m.Y, z: m.Z, r: m.R}, h.left)
	case *common.MessageRcChannels:
		d.sticks.hearChannels(d.situation(now), d.tel.rc.channel)
	case *common.MessageAutopilotVersion:
		d.hearVersion(m, version, now)
	case *common.MessageExtendedSysState:
		d.tel.hearLanded(h.left)
	case *common.MessageGlobalPositionInt:
		d.tel.hearHeight(d.lands(h.left), func() float64 { return d.view(now).clearAt() }, h.left)
	}
}

// lands reports whether the vehicle lands, as view.lands does: it is asked at each position.
func (d *drone) lands(now time.Time) bool {
	return d.machine.last.mode == ModeLand || d.tel.landedNow(now) == landing
}

// hearHeartbeat judges the reports that a HEARTBEAT makes, and brings an offline vehicle online. One that comes behind
// a newer message does neither, and telemetry has not taken it: it may be older than the last report.
func (d *drone) hearHeartbeat(m *minimal.MessageHeartbeat, h heard) {
	now := h.at
	if !h.ordered {
		d.machine.reports.takeAlive(now)
		return
	}
	maybeWarning := d.firmware() == px4 && d.tel.id.version != 0 && d.tel.id.version < px4CriticalActs
	beat := shownMode{
		custom:   m.CustomMode,
		armed:    m.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0,
		failsafe: d.tel.beat.critical && !maybeWarning,
	}
	for _, shown := range d.machine.reports.takeHeartbeat(beat, d.machine.last.shownMode, h.leaving, now) {
		d.takeReport(d.machine.judge(d.reportOf(shown, now)), now)
	}
	if !d.online {
		d.online = true

		// A disarmed vehicle may be another one: request its version and parameters again.
		if !d.machine.last.armed {
			d.forget()
		}
		d.params.family.heardAgain(d.machine.last.armed, now)
		d.log.Info("vehicle online", "system", d.tel.id.system, "mode", d.machine.mode, "vehicle_mode", d.modeName())
		d.beginHandshake(now)
	}
}

// reportOf is a report with what else is known when it is judged: an earlier one of the same HEARTBEAT may have ended
// something.
func (d *drone) reportOf(shown shownMode, now time.Time) report {
	mode, _ := d.firmware().reported(shown.custom)
	streamed := d.sticks.phase != stickOff && d.firmware() == px4
	return report{shownMode: shown, mode: mode, amsl: d.tel.lastPosition(now).amsl, streamed: streamed}
}

// px4CriticalActs is the first PX4 whose MAV_STATE_CRITICAL is a failsafe that acts. In an older one it may be
// a warning; a new mode shows the failsafe (docs/autopilots.md, "PX4: modes"). An unknown version counts as new.
const px4CriticalActs = firmwareVersion(1<<24 | 15<<16)

// takeReport ends what the last report ends, by what it means.
func (d *drone) takeReport(is judgement, now time.Time) {
	shown := d.machine.last
	d.cmd.acks.hearReport(shown)
	d.link.recorder.setArmed(shown.armed)

	// What is only read may call much critical, and others command it.
	failsafeActs := is.failsafeActs && d.view(now).readOnly() == nil
	switch taken := is.means == meansTakeover; {
	case taken && is.first:
		d.takeover("the vehicle's first report shows it armed", failsafeActs, shown.at)
	case taken && failsafeActs:
		d.takeover("a failsafe changed the mode to "+d.modeName(), true, shown.at)
	case taken:
		d.takeover("a pilot, another program or a failsafe changed the mode to "+d.modeName(), false, shown.at)
	case shown.armed && is.failsafeBegins:
		d.takeover("a failsafe is active: the vehicle is in "+d.modeName(), true, shown.at)
	case d.machine.mode != is.modeBefore:
		d.logMode("the vehicle reports it")
	}
	if is.before.armed && !shown.armed {
		d.cmd.disarmed(shown.at)

		// It may have restarted: its clock will tell, once it sends that again.
		if d.tel.landedNow(shown.at).inAir() {
			d.beginHandshake(now)
		}

		// The takeoff has ended.
		if d.machine.mode == ModeTakeoff {
			d.machine.abandon()
		}
		d.sticks.disarmed(d.situation(now))
	}
}

// takeover is called when no command of ours explains a report, or a failsafe begins, which failsafe says; at is when
// the report left. It ends every task, the manoeuvre and then the client's sticks, which go by what is left of them.
func (d *drone) takeover(why string, failsafe bool, at time.Time) {
	taken := interrupted(at, why)
	taken.interruption.failsafe = failsafe
	d.cmd.endAll(taken)
	d.tel.target = unknownPoint
	d.handshake.targetChanges()
	d.sticks.switched(d.situation(time.Now()))
	d.logMode(why)
}

// hearTime takes the answer to a question for the vehicle's time. A report that comes now left after the question.
func (d *drone) hearTime(h heard) {
	if h.trip == 0 {
		return
	}
	d.cmd.acks.trip = h.trip
	d.cmd.acks.repeated = 0
	d.machine.reports.hearProof(h.after)
}

// hearAck takes an ack, if it is for us.
func (d *drone) hearAck(m *common.MessageCommandAck, now time.Time) {
	if !d.link.addressed(m.TargetSystem, m.TargetComponent) {
		return
	}
	d.cmd.acks.hear(m.Command, uint8(m.Result), now)
	d.handshake.hearAck(now)
	d.link.acknowledged()
	if m.Command == common.MAV_CMD_REQUEST_MESSAGE && m.Result == common.MAV_RESULT_ACCEPTED {
		d.machine.reports.takeAck()
	}
}

// hearVersion takes what the autopilot is; before is the version that was known.
func (d *drone) hearVersion(m *common.MessageAutopilotVersion, before firmwareVersion, now time.Time) {
	d.handshake.hearAnswer(now)
	d.params.family.hearUID(autopilotUID{m.Uid, m.Uid2})
	span, everFlown := flown[d.firmware()]
	v := d.tel.id.version
	if everFlown && v != before && (v < span[0] || v >= span[1]) {
		d.log.Warn("mavrest was never flown on this version of the firmware: see docs/autopilots.md", "version",
			v, "flown_from", span[0], "flown_before", span[1])
	}
}

// flown are the releases that were flown with mavrest: from the first one of each pair on, and
// before the second (docs/autopilots.md, "Which firmware was measured").
var flown = map[firmware][2]firmwareVersion{
	px4:       {1<<24 | 14<<16, 1<<24 | 19<<16},
	copter:    {4<<24 | 4<<16, 4<<24 | 9<<16},
	quadPlane: {4<<24 | 5<<16, 4<<24 | 7<<16},
	plane:     {4<<24 | 5<<16, 4<<24 | 7<<16},
}

// hearSysStatus takes the receiver's state from SYS_STATUS and its throttle from RC_CHANNELS. While
// a fresh RC_CHANNELS is from before validFrom it may show our own throttle: nothing is taken then.
func (d *drone) hearSysStatus(now time.Time) {
	tel := &d.tel
	throttle := uint16(math.MaxUint16)

	// An unknown throttle counts as raised.
	mayBeOurs := false
	if tel.rc.within(freshFor, now) {
		throttle = tel.rc.channel[2]
		mayBeOurs = !tel.rc.at.After(d.sticks.src.validFrom)
	}

	// PX4's SYS_STATUS means any source of sticks, a ground station's joystick too. It sends RC_CHANNELS only of a
	// transmitter.
	joystick := d.firmware() == px4 && !tel.rc.within(othersFor, now) && d.handshake.sends(idRCChannels, freshFor, now)
	if tel.health.received() && !mayBeOurs {
		d.sticks.hearReceiver(now, tel.health.receiverLive() && !joystick, throttle)
	}
}

// restarted ends and forgets what does not survive a restart of the autopilot, and begins the
// handshake anew: the firmware may be another one now. What is kept is what telemetry.restart, machine.restart,
// sticks.restarted and parameters.restart name, each for its own part, and that the vehicle is online.
func (d *drone) restarted(now time.Time, why string) {
	d.log.Warn(why)
	d.restartedAt = d.left(now)
	d.machine.restart()
	d.tel.restart()
	d.cmd.endAll(interrupted(d.restartedAt, why))
	d.sticks.restarted(d.situation(now))
	d.params.restart()
	d.warned = nil
	d.beginHandshake(now)
	d.cmd.acks.requestMessage(idHeartbeat)
}

// left is about when what comes now left the vehicle.
func (d *drone) left(now time.Time) time.Time { return now.Add(-d.cmd.acks.behind) }

// restartedWhy is what ends everything at a restart.
const restartedWhy = "the autopilot has started again"

// beginHandshake begins the questions to the vehicle over, at the clock's next tick: now. What calls for them may be
// seen in mere telemetry.
func (d *drone) beginHandshake(now time.Time) {
	d.handshake.begin(now)
	d.clock.runAt(now)
}

// forget clears the parameters and the version, so that the handshake requests them again.
func (d *drone) forget() {
	clear(d.params.values)
	d.tel.id.version = 0
}

// settle does what follows from a change, whatever was changed: what is due now, the sticks' acts among it.
func (d *drone) settle() {
	d.changes.Add(1)
	now := time.Now()
	d.cmd.stood.woke(d.dueAt, now)
	d.dueAt = now.Add(readLook)
	if !d.cmd.stood.reading(now) {
		d.dueAt = later(d.doDue(now), now)
	}
	d.clock.runAt(d.dueAt)
}

// doDue does what is due and returns when the next thing is. Its order counts: while the vehicle is offline no
// client counts as silent, the sticks go by what watch leaves of the manoeuvre, and actForSticks does what they ask.
func (d *drone) doDue(now time.Time) time.Time {
	// At the latest.
	next := now.Add(offlineAfter)

	// The farewell's time is over: end its hold or landing.
	switch ending := d.cmd.quitting; {
	case ending && now.Before(d.quitBy):
		next = sooner(next, d.quitBy)
	case ending:
		d.cmd.quit()
	}
	if d.online && now.Sub(d.machine.reports.alive) >= offlineAfter {
		d.online = false
		d.log.Warn("vehicle offline: no report of its mode for 3 s", "system", d.tel.id.system)
	}

	// The missing chunks come as late as the others.
	behind := d.cmd.acks.behind
	if due := d.tel.texts.flush(now.Add(-behind), chunkWait); !due.IsZero() {
		next = sooner(next, due.Add(behind))
	}
	d.logTexts()
	v := d.view(now)
	next = sooner(next, d.watch(v))
	next = sooner(next, d.sticks.tick(d.with(v)))
	d.warn(v)
	d.logReadOnly(v)
	if text := d.link.recorder.newComplaint(); text != "" {
		d.notify(text)
	}
	if acts := d.actForSticks(); acts.hold && d.cmd.idle() {
		d.wg.Go(func() { d.changeMayWait(d.holdForSilent) })
	}

	// PX4 sends its texts only to a ground station. Where NAV_DLL_ACT is set, the end of a ground
	// station's heartbeat would be a failsafe.
	act, known := d.params.values["NAV_DLL_ACT"]
	d.link.asStation.Store(d.online && known && act == 0)
	if d.online {
		next = sooner(next, d.machine.reports.alive.Add(offlineAfter))
		next = sooner(next, d.askDue(now))
	}
	return next
}

// watch looks at the manoeuvre, starts the landing whose place is reached, and returns when to look again.
func (d *drone) watch(v view) time.Time {
	m := d.cmd.manoeuvre
	now := v.now
	if m == nil || m.finished() || !d.online {
		return time.Time{}
	}

	// What came before its acceptance proves nothing.
	land, lost := m.watch(v.since(m.at))
	if lost != "" {
		if d.cmd.onWayToLand() {
			d.notify("the landing at the place was given up: " + lost)
		}
		d.cmd.endManoeuvre(interrupted(m.lostAt(d.left(now)), lost+"; the vehicle is in "+d.modeName()))
	} else if land && d.cmd.idle() {
		m.tried = now
		d.wg.Go(func() { d.changeMayWait(func(w waiter) { d.landThere(w, m) }) })
	}
	if m.note != "" {
		d.notify(m.request.name() + ": " + m.note)
	}

	// The drone is as high as it was told.
	if m.done && m.request.enters(ModeTakeoff) && v.height >= lowTakeoff {
		d.tel.ground.clear = true
	}
	return now.Add(watchEvery)
}

// actForSticks does what the sticks request, except a hold, which needs a plan: only doDue gets one, and begins it.
func (d *drone) actForSticks() stickActs {
	acts := d.sticks.take()
	if acts.notice != "" {
		d.notify(acts.notice)
	}
	if acts.takeover {
		d.cmd.endAll(interrupted(d.left(time.Now()), "somebody else moves the sticks"))
	}
	if d.sticks.phase == stickOff {
		d.link.setSticks(nil)
	} else if acts.send {
		o := d.outgoing(d.sticks.toSend(d.situation(time.Now()), d.machine.reports.kept))
		d.link.setSticks(&o)
	}
	if acts.release {
		o := d.outgoing(released)

		// There is no ack.
		for range 3 {
			d.link.sendAs(o.system, o.component, o.msg)
		}
	}
	return acts
}

// outgoing is the MANUAL_CONTROL of axes. ArduPilot accepts it only from its ground station's
// system id. The component id stays ours (docs/design.md, "Our ids").
func (d *drone) outgoing(a axes) outgoing {
	m := &common.MessageManualControl{Target: d.tel.id.system, X: a.x, Y: a.y, Z: a.z, R: a.r}
	if d.firmware().ardupilot() {
		return outgoing{system: d.params.groundStation(), msg: m}
	}
	return outgoing{msg: m}
}

// askDue asks the vehicle what is due, and returns when the next question is.
func (d *drone) askDue(now time.Time) (next time.Time) {
	again := d.handshake.questioned.Add(seldomEvery)
	if d.handshake.answersNothing(now) && now.Before(again) {
		return again
	}
	return sooner(d.poll(now), d.handshake.tick(now))
}

// poll requests the target and HEARTBEAT if they are due, and returns when the next one is.
func (d *drone) poll(now time.Time) (next time.Time) {
	mode := d.machine.mode

	// It circles home.
	returns := (mode == ModeRTL || mode == ModeRTGS) && d.tel.id.airframe() == fixedWing
	if d.machine.last.armed && (mode == ModeHold || mode == ModeTakeoff || returns || d.cmd.onWayToLand()) {
		next = d.handshake.askTarget(now)
	}
	armed := d.machine.last.armed
	trip := d.cmd.acks.roundTrip()
	due := d.machine.reports.due(armed, trip)
	if !now.Before(due) {
		d.handshake.lacks(idHeartbeat)
		d.cmd.askForReport(false, now)
		due = d.machine.reports.due(armed, trip)
	}
	d.link.askTime(false, now)
	return sooner(sooner(next, due), d.link.timeDue(now))
}

// warn gives the warnings that this PX4's parameters call for, each once until the autopilot
// restarts. It waits for the handshake. A parameter that is unanswered for long has its default, and
// an unknown version counts as old.
func (d *drone) warn(v view) {
	if v.firmware != px4 || !v.online || v.now.Sub(d.handshake.began) < warnAfter {
		return
	}
	d.warnOnce(v.noSticks())
	if v.typ == common.MAV_TYPE_GENERIC {
		d.warnOnce(reason{kind: kindNotSaid})
	}
	if v.landsOnWing() {
		d.warnOnce(v.about(landsOnWing, "NAV_FORCE_VT", 0))
	}
	if d.sticks.phase != stickOff && !d.handshake.awaits(v.now, stickParams[px4]) {
		d.warnOnce(v.deafens())
	}
	if !v.movementOverrides() || d.handshake.awaits(v.now, stickOverride, overrideSpeed) {
		return
	}

	// An undone switch lasts 12 to 48 ms (docs/autopilots.md, "PX4: moving sticks and a pilot").
	switch baud := d.link.device.line.baud.Load(); {
	case d.handshake.refusedLive():
		d.warnOnce(reason{kind: switchNotLive, param: v.neverOverrides()})
	case baud > 0 && baud < 921600:
		d.warnOnce(reason{kind: switchUnseen, param: v.neverOverrides(), value: float64(baud)})
	}
}

// warnOnce gives a warning that was not given since the autopilot started.
func (d *drone) warnOnce(why reason) {
	if d.warned.isNew(why) {
		d.notify(why.String())
	}
}

// warnings are those that were given already.
type warnings []reason

// isNew takes a warning, and reports whether it was not given yet.
func (w *warnings) isNew(why reason) bool {
	if !why.given() || slices.Contains(*w, why) {
		return false
	}
	*w = append(*w, why)
	return true
}

// logReadOnly logs once why a vehicle can be read, not commanded.
func (d *drone) logReadOnly(v view) {
	why := v.readOnly()
	if why == nil || !v.online || code(why) != codeUnsupported || why.Error() == d.readBecause {
		return
	}
	d.readBecause = why.Error()
	d.log.Warn("this vehicle can be read, not commanded", "because", why)
}

// logTexts logs what the autopilot said, each text once and whole.
func (d *drone) logTexts() {
	for _, s := range d.tel.texts.toLog {
		d.log.Debug("statustext", "severity", common.MAV_SEVERITY(s.severity), "text", s.text)
	}
	d.tel.texts.toLog = nil
}

// notify logs what mavrest did by itself, and adds it to the status's messages.
func (d *drone) notify(text string) {
	d.log.Warn(text)
	d.tel.texts.add(statusText{uint8(common.MAV_SEVERITY_NOTICE), ownTexts + text, time.Now()})
}

// ownTexts is the prefix of mavrest's own messages.
const ownTexts = "mavrest: "

// logMode logs a mode that nobody asked for here.
func (d *drone) logMode(why string) {
	d.log.Info("mode changed", "mode", d.machine.mode, "vehicle_mode", d.modeName(), "why", why)
}

// modeName is the autopilot's own name for its mode.
func (d *drone) modeName() string { return d.nameOf(d.machine.last.custom) }

// nameOf is the autopilot's own name for one of its modes.
func (d *drone) nameOf(custom uint32) string {
	_, name := d.firmware().reported(custom)
	return name
}

// withActed tells in an error whether the request may have acted, or a repeat of it would: sent says that something was
// sent. A vehicle that was armed when it was last heard may have a pilot once the line is back.
func (d *drone) withActed(err error, sent bool) error {
	e, ok := err.(*commandError)
	if !ok {
		return err
	}
	told := *e
	told.acted = sent || (e.code == codeOffline && d.machine.last.armed)
	return &told
}

// bug is the error of a panic, whose details go to the log. sent: something may have been sent.
func bug(log *slog.Logger, panicked any, sent bool) error {
	log.Error("panic", "panic", panicked, "stack", string(debug.Stack()))
	if sent {
		return refuse(codeNoAck, "a bug in mavrest, after something was sent; its log has the details; "+
			"read the status to see whether it happened")
	}
	return refuse(codeInternal, "a bug in mavrest; its log has the details; nothing was sent")
}

// able is why no command can be sent now; nil if one can.
func (d *drone) able() error {
	switch {
	case d.cmd.quitting:
		return errQuitting
	case d.link.device.mute != nil:
		return refuse(codeUnsupported, "%s", d.link.device.mute)
	case d.online:
		return nil
	}
	return refuse(codeOffline, "%s", d.linkState(d.view(time.Now())).fault)
}

// linkState is the link for the status. Its fault is nil when all is well; else the status says it, and each 503.
func (d *drone) linkState(v view) linkState {
	s := d.link.state()
	now := v.now
	switch {
	case s.fault != nil:
	case d.link.device.mute != nil:
		s.fault = d.link.device.mute
	case d.online && d.handshake.answersNothing(now):
		s.fault = s.unanswered(v.readOnly() != nil || v.doubt != nil)
	case d.online && v.doubt != nil && now.Sub(d.handshake.began) >= familyWait:
		s.fault = v.doubt
	case d.online:
		s.fault = s.late(d.handshake.answersFor(now) >= silentFor)
	case d.tel.beat.at.IsZero():
		s.fault = fmt.Errorf("no autopilot was heard yet on %s; check the wiring, the baud rate or address, "+
			"and the autopilot's MAVLink settings", s.device)
	default:
		silent := now.Sub(d.machine.reports.alive)
		s.fault = fmt.Errorf("the autopilot is offline: no heartbeat for %.0f s", silent.Seconds())
	}
	return s
}

// snapshot collects what a status shows. It is of use only while mu is locked.
func (d *drone) snapshot(now time.Time) snapshot {
	v := d.situation(now)
	s := snapshot{
		situation: v, began: d.began, tel: &d.tel, modeName: d.modeName(),
		target: d.target(now), by: d.sticks.by(v), from: d.sticks.held(v), link: d.linkState(v.view),
	}

	armsOnOurStream := v.firmware.ardupilot() && d.sticks.src.receiver == receiverNone
	if v.canEnter(ModeTakeoff) && v.doubt == nil {
		s.armable, s.lacks = d.tel.armable(now, v.armed, v.leavesCheckedMode() || armsOnOurStream)
	}
	if s.armable != nil && v.setsOff() {
		s.armable, s.lacks = new(bool), append(s.lacks, "mode")
	}
	if s.armable != nil && s.link.lacksKey() {
		s.armable, s.lacks = new(bool), append(s.lacks, "signature")
	}
	if m := d.cmd.manoeuvre; m != nil {
		done := m.done
		s.done = &done
	}
	if d.sticks.phase == stickClient {
		s.expires = d.sticks.client.until
	}
	return s
}

// target returns the place that a landing is on its way to, else the target that the
// autopilot reports, else the place of a new goto while it is commanded; nil if there is none.
func (d *drone) target(now time.Time) *place {
	switch m, to := d.cmd.manoeuvre, &d.tel.target; {
	case d.cmd.onWayToLand():
		return m.plan.destination
	case !d.machine.last.armed || (d.machine.mode != ModeHold && d.machine.mode != ModeTakeoff):
		return nil

	// For targetNew after the acceptance the autopilot may still report its old target.
	case to.within(offlineAfter, now) && (m == nil || to.at.After(m.at.Add(targetNew))):
		return &place{to.lat, to.lon, to.amsl - d.tel.home.amsl, to.amsl}
	case m != nil && m.request.verb == goesTo && now.Sub(m.at) < targetNew+targetEvery && d.machine.commanded != nil:
		return m.plan.destination
	}
	return nil
}

// situation is the vehicle and our own state now.
func (d *drone) situation(now time.Time) situation { return d.with(d.view(now)) }

// with is a view and, beside it, our own state at its time.
func (d *drone) with(v view) situation {
	current := d.cmd.current()
	entersSticks := func(to *goal) bool { return to.mode.flownBySticks() }
	leavesSticks := func(to *goal) bool { return !to.mode.flownBySticks() }
	return situation{v, own{
		mode: d.machine.mode,
		busy: d.cmd.busy(),
		entering: (current != nil && current.entersSticks()) ||
			d.machine.claimed(v.now, entersSticks) >= 0,
		resting:      current != nil && current.endedBy == nil && current.rests,
		leavesSticks: d.machine.claimed(v.now, leavesSticks) >= 0,
	}}
}

// view is the vehicle now. A position, velocity or landed state that is stale counts as unknown: a hold at
// a stale position would fly back there.
func (d *drone) view(now time.Time) view {
	t := &d.tel
	v := view{
		now: now, firmware: d.firmware(), autopilot: t.id.autopilot, doubt: d.doubt(now),
		version: t.id.version, typ: t.id.typ,
		params: d.params.values, trip: d.cmd.acks.trip,
		online: d.online, shownMode: d.machine.last.shownMode, critical: t.beat.critical, glitches: t.glitches(now),
		landed: t.landedNow(now), landedAt: t.landed.at, height: t.height(now), ground: t.ground,
		place: nowhere, heading: math.NaN(), velocity: motionless, home: t.home, target: t.target,
	}
	if v.firmware.ardupilot() && !d.link.gcs {
		// FS_GCS_ENABLE
		v.gcsFailsafe = v.param(stickParams[v.firmware], 0)
	}

	// Position and velocity come together.
	v.placeAt = t.position.at
	if p, m := &t.position, &t.velocity; p.within(freshFor, now) {
		v.place = place{p.lat, p.lon, p.relative, p.amsl}
		v.heading = p.heading
		v.velocity = motion{m.north, m.east, m.down}
	}

	// The landed state and vtol_state are both of EXTENDED_SYS_STATE.
	if t.landed.within(freshFor, now) {
		v.vtol = common.MAV_VTOL_STATE(t.id.vtol)
	}
	return v
}

// mustProve is why a task may send nothing more: the vehicle has not shown what it is; nil: it may. What makes it safe
// in the air goes out without that, and so does what disarms what the task has armed.
func (d *drone) mustProve(t *task) error {
	v := d.view(time.Now())
	exempt := t.continues != nil || t.state == disarmsAgain
	if v.doubt == nil || exempt || (!v.isStranger() && t.request.stays() && v.flying()) {
		return nil
	}
	return v.doubt
}

// doubt is why the vehicle is not commanded as what it calls itself (docs/design.md, "Who it is"); nil: it has
// shown that it is that.
func (d *drone) doubt(now time.Time) error {
	if d.link.device.mute != nil {
		return d.link.device.mute
	}
	return d.params.family.doubt(d.firmware(), d.tel.boot.at, d.online && d.handshake.answersNothing(now))
}

func (d *drone) firmware() firmware { return d.tel.id.firmware() }

// clock runs what happens by time. It sleeps until the next thing is due, 1 s at most: the
// watchdog wants to see it run.
type clock struct {
	// wake: a value makes run look at next again; it holds one
	wake chan struct{}

	// next is when something is due next; Unix nanoseconds.
	next atomic.Int64

	// beat is when tick was last called, for the watchdog; Unix nanoseconds.
	beat atomic.Int64
}

// runAt makes run call tick at a time, at the latest.
func (c *clock) runAt(next time.Time) {
	if was := c.next.Swap(next.UnixNano()); next.UnixNano() < was {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// run calls tick whenever it is due, until ctx is done.
func (c *clock) run(ctx context.Context, tick func()) {
	for {
		select {
		case <-time.After(min(max(time.Until(time.Unix(0, c.next.Load())), time.Millisecond), time.Second)):
		case <-c.wake:
			continue
		case <-ctx.Done():
			return
		}
		c.beat.Store(time.Now().UnixNano())
		tick()
	}
}
