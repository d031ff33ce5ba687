package main

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"
)

// Times of the sticks (docs/design.md, "Who has the sticks").
const (
	// stickEvery is the time between two sticks: 25 Hz.
	stickEvery = 40 * time.Millisecond

	// stickLead is how long the stream runs before a stick mode is commanded.
	stickLead = 400 * time.Millisecond

	// stickArms is how long it runs before ArduPilot arms on it alone.
	stickArms = 2100 * time.Millisecond

	// stickLowers is the time from the stream's last change, or its end, to an arming, which a raised throttle forbids:
	// a low one goes out with the next frame, and the autopilot takes it in its own turn.
	stickLowers = 200 * time.Millisecond

	// stickStill is how long we keep the axes still before PX4 is to leave a stick mode. Up to 1.17 it calls them
	// moving for 1.6 s.
	stickStill = 2 * time.Second

	// stickTurn is the same for a PX4 that has MAN_OVERRIDE_SPD. Meanwhile they turn, five frames long.
	stickTurn = 200 * time.Millisecond

	// stickGone is the time from a stream's end to an arming. PX4 notices the loss after 0.6 s, and if it is armed by
	// then that is a failsafe.
	stickGone = time.Second

	// stickIdle is how long after the client's last request a disarmed vehicle's stream ends.
	stickIdle = 5 * time.Second

	// silentClient is how long after its last input or request a client is silent.
	silentClient = 3 * time.Second

	// othersPause is how long ours pause after another program's last sticks.
	othersPause = 500 * time.Millisecond

	// undoneIn is how long a pilot's mode may have shown that our sticks undid. It shows for 12 to 48 ms
	// (docs/autopilots.md).
	undoneIn = 500 * time.Millisecond
)

// Times and limits of other sticks than ours (docs/design.md, "Who has the sticks").
const (
	// overrideTimeout is how long ArduPilot remembers sticks that were not released.
	overrideTimeout = 3500 * time.Millisecond

	// othersFor is how long somebody else's sticks count after their last frame.
	othersFor = 3 * time.Second

	// actsFor is how long a stick that was sent may act on PX4. By default it lets go of one after 0.5 s.
	actsFor = time.Second

	// sentKept is how many sticks that were sent are kept: those of 4 s.
	sentKept = int(4 * time.Second / stickEvery)

	// axisSlack, of 1,000, is what an axis may lose on its way through PX4.
	axisSlack = 2

	// switchesIn is how long channels 5 to 16 may jump by themselves after they first had values.
	switchesIn = 3 * time.Second

	// idleBelow, in µs of RC_CHANNELS 3 (throttle): up to this the receiver counts as idle.
	idleBelow = 1350

	// switchJump, in µs between two successive RC_CHANNELS: a switch jumps, RSSI drifts.
	switchJump = 100
)

// stickPhase is what the stick stream does.
type stickPhase uint8

const (
	// stickOff: silence
	stickOff stickPhase = iota

	// stickClient: the client's sticks, until they expire
	stickClient

	// stickNobody: centred; on PX4 unmoved in a mode that flies without sticks
	stickNobody
)

// axes are MANUAL_CONTROL's: x forward, y right, r clockwise, ±1000; z thrust 0 to 1000, 500 holds the height.
type axes struct{ x, y, z, r int16 }

// sentAxes are axes that went out at a moment.
type sentAxes struct {
	axes
	at time.Time
}

// released gives ArduPilot's receiver its sticks back.
var released = axes{math.MaxInt16, math.MaxInt16, math.MaxInt16, math.MaxInt16}

// stickActs is what is to be done for the sticks: drone.actForSticks does it.
type stickActs struct {
	// send the axes now
	send bool

	// release: send released axes: the receiver gets its sticks back
	release bool

	// hold: command a hold: the client fell silent
	hold bool

	// takeover: somebody else took the sticks of a stick mode: end every task
	takeover bool

	// notice: for the user; "" if there is none
	notice string
}

// stickHolder is the client that has the sticks, and when it spoke last.
type stickHolder struct {
	// from: every other client's input is refused until its sticks expire
	from netip.Addr

	// came is when they came, and until is when they expire.
	came, until time.Time

	// kind is how the vehicle flew by sticks when it took them: they mean something else in another kind.
	kind kind

	// spoke: its last input or request; zero: its silence means nothing
	spoke time.Time

	// holdAsked is when a hold for a silent client was requested last; zero if none was.
	holdAsked time.Time

	// lost is when the link was still lost in its stick mode; zero: it was not, or a notice has said so.
	lost time.Time
}

// sticks is who has the sticks, their latest value, and what is streamed when (docs/design.md,
// "Who has the sticks"). Its methods are given what happened; take returns what to do.
type sticks struct {
	src sources

	// taken: somebody else has the sticks. giveToClient ends that; so does streamForMode, in a mode without sticks
	taken bool

	phase stickPhase
	axes  axes

	// since is when the stream began, or ended.
	since time.Time

	// moved is when the axes last changed.
	moved time.Time

	// restsFrom is from when they rest, and turn to: since they moved, or since they left a client with whom they lay
	// still.
	restsFrom time.Time

	// next is when the next frame is due.
	next time.Time

	client stickHolder

	// switchedTo: the last mode without sticks that somebody else set, and when
	switchedTo shownMode

	// streamed: the axes that went out last; not axes while toSend holds a movement back
	streamed axes

	// sent: what went out in the last seconds, the oldest first
	sent []sentAxes

	acts stickActs
}

// receiverState is what is known of the vehicle's own RC receiver.
type receiverState uint8

const (
	// receiverNone: never there, lost or unknown
	receiverNone receiverState = iota

	// receiverIdle: live, its throttle low
	receiverIdle

	// receiverInUse: live, and somebody flies by it
	receiverInUse
)

// sources is what is known of who else may move the sticks. SYS_STATUS shows the receiver only
// while no stream of ours runs.
type sources struct {
	// validFrom is from when on SYS_STATUS shows the receiver: an earlier stream hides it until then.
	validFrom time.Time

	receiver receiverState

	// known: the receiver's state was heard
	known bool

	// oursFirst: PX4 accepted a stick mode with our stream before a transmitter was heard
	oursFirst bool

	// heardInFlight: a transmitter was heard since the arming; while disarmed: it is heard now
	heardInFlight bool

	// transmitterAt is when a transmitter was heard last, zero if none was; PX4 sends RC_CHANNELS only while it hears
	// one.
	transmitterAt time.Time

	// foreignAt is when another program's sticks came last, zero if none did; on PX4 when they acted last, and not
	// ours.
	foreignAt time.Time

	// foreignAxes: on PX4 these sticks
	foreignAxes axes

	// channels: the last RC_CHANNELS
	channels channels

	// switchesSince is when channels 5 to 16 first had values; zero if they had none.
	switchesSince time.Time
}

// held is the client that has the sticks; invalid if none has.
func (s *sticks) held(v situation) netip.Addr {
	if !v.mode.flownBySticks() || s.taken || !v.now.Before(s.client.until) || s.src.denied(v.view).given() {
		return netip.Addr{}
	}
	return s.client.from
}

// clientMoves takes the client's sticks, which go out when the change ends (actForSticks); the stream's next frame
// counts from then. While a number is kept they wait.
func (s *sticks) clientMoves(v situation, a axes, from netip.Addr, until time.Time) {
	s.begin(stickClient, v)
	s.set(a, v.now)
	s.client.from, s.client.until, s.client.kind = from, until, v.stickKind()
	s.client.spoke = v.now
	s.next = v.now.Add(stickEvery)
	s.acts.send = true
}

// mustRest reports whether the stream must come to rest before PX4 is sent another mode.
// toSticks means that the other mode is a stick mode. The vehicle leaves also one that it is only about to enter:
// an earlier command's, which is on its way.
func (s *sticks) mustRest(v situation, toSticks bool) bool {
	flies := v.sticks() != unsteered
	leaves := (flies || v.entering) && !toSticks
	offCentre := !flies && toSticks && s.axes != s.centred(v)
	return s.phase != stickOff && (leaves || offCentre)
}

// ready is when the sticks allow a step; zero: now. needsStream means that a stream, if one runs,
// must have run for a while before the step.
func (s *sticks) ready(needsStream bool, v situation, arming bool) (at time.Time) {
	switch {
	case s.phase == stickOff && arming && v.firmware == px4:
		return s.since.Add(stickGone)
	case s.phase == stickOff || !needsStream:
	case arming && v.firmware.ardupilot() && s.src.receiver == receiverNone:
		at = s.since.Add(stickArms)
	default:
		at = s.since.Add(stickLead)
	}

	// A client's throttle is the client's to lower.
	if arming && s.phase != stickClient {
		at = later(at, later(s.since, s.restsFrom).Add(stickLowers))
	}
	return at
}

// streamForArming is streamForMode where no stream runs. One that runs, even the client's, stays as it is.
func (s *sticks) streamForArming(v situation) {
	if s.phase == stickOff {
		s.streamForMode(v)
	}
	s.client.spoke = v.now
}

// streamForMode starts the stream that a stick mode or an arming needs, or centres the one that runs. Where
// our sticks can't act it does neither. Another program's sticks alone are no reason: they only pause
// the stream. A receiver in use gets its sticks back.
func (s *sticks) streamForMode(v situation) {
	s.client.spoke = v.now

	// Somebody else's stick mode stays his until the new one shows.
	s.taken = s.taken && v.mode.flownBySticks()
	onlyForeign := s.src.foreign(v.now) && v.gcsFailsafe <= 0
	switch {
	case s.src.denied(v.view).given() && !onlyForeign:
	case s.src.inUse(v.firmware):
		s.end(v)
	default:
		s.set(s.centred(v), v.now)
		s.begin(stickNobody, v)
	}
}

// giveToClient records that a client's stick mode is in force. The client has the sticks for 3 s.
func (s *sticks) giveToClient(v situation, client netip.Addr) {
	s.taken = false
	s.client.spoke = v.now
	s.client.from, s.client.until, s.client.kind = client, v.now.Add(silentClient), v.stickKind()
	s.src.oursFirst = s.src.oursFirst || s.src.transmitterAt.IsZero()
}

// switched ends the client's sticks: a pilot or a failsafe has the drone. A switch that PX4 leaves
// again at once, for a stick mode, was undone by our moving sticks.
func (s *sticks) switched(v situation) {
	s.taken = true
	moving := s.phase != stickOff && v.movementOverrides() && v.now.Sub(s.moved) < v.movesFor()
	if v.sticks() == unsteered {
		s.switchedTo = shownMode{custom: v.custom, at: v.now}
	} else if moving && v.now.Sub(s.switchedTo.at) <= undoneIn {
		_, name := px4.reported(s.switchedTo.custom)
		s.acts.notice = fmt.Sprintf("the client's moving sticks undid the pilot's switch to %s. The client's "+
			"sticks have ended: %g s from now a switch will stay in force. With %s every switch does",
			name, v.stickRest().Seconds(), v.neverOverrides())
	}

	// What went out last: a movement that toSend held back never goes out.
	s.set(s.streamed, v.now)
	s.park(v)
	if s.src.inUse(v.firmware) {
		s.end(v)
	} else if s.phase != stickOff && s.src.live(v.firmware) && v.flying() {
		s.acts.notice = "centred sticks go on, lest the drone sink under a transmitter that nobody holds; moving " +
			"any switch of the transmitter frees its sticks"
	}
}

// hearForeign is called when another program moves the sticks. Ours pause, unreleased: the other
// program's are in force for 3 s, and a release would end them.
func (s *sticks) hearForeign(v situation) {
	if !v.firmware.ardupilot() {
		return
	}
	s.src.foreignAt = v.now
	s.src.hide(v.now.Add(overrideTimeout))
	if s.phase != stickOff && !s.taken {
		s.taken, s.acts.takeover = true, v.mode.flownBySticks()
		s.acts.notice = "another program moves the sticks of this vehicle: the client's sticks have ended; set the " +
			"mode again to take the sticks back"
	}
	s.park(v)
	if s.src.inUse(v.firmware) {
		s.end(v)
		s.acts.release = false
	}
}

// hearActing takes PX4's own MANUAL_CONTROL, which has the sticks that act: of several programs' one, by
// COM_RC_IN_MODE and the number of its link. It left the vehicle at a moment.
func (s *sticks) hearActing(v situation, report axes, left time.Time) {
	ended := s.phase == stickOff && v.now.Sub(s.since) < actsFor+v.trip
	if v.firmware != px4 || ended || s.src.transmits(v.now) {
		return
	}
	from := left.Add(-actsFor - v.trip)
	ours := slices.ContainsFunc(s.sent, func(a sentAxes) bool { return a.at.After(from) && a.shows(report) })
	switch {
	case !ours:
		s.src.foreignAt, s.src.foreignAxes = v.now, report
		if s.phase == stickClient {
			s.client.until = v.now
			s.acts.notice = s.src.denied(v.view).String() + ": the client's sticks have ended"
		}
	case report != s.src.foreignAxes:
		s.src.foreignAt = time.Time{}
	}
}

// shows reports whether PX4's report of the sticks that act has these axes. Up to 1.16 its throttle is ±1000.
func (a axes) shows(report axes) bool {
	near := func(x, y int16) bool { return max(x, y)-min(x, y) <= axisSlack }
	throttle := near(a.z, report.z) || near(a.z, (report.z+1000)/2)
	return near(a.x, report.x) && near(a.y, report.y) && near(a.r, report.r) && throttle
}

// hearChannels takes RC_CHANNELS. A switch of the transmitter that moves gives the pilot his sticks.
func (s *sticks) hearChannels(v situation, c channels) {
	if v.firmware == px4 {
		s.src.hearTransmitter(v.now)
	} else if s.src.switchMoves(c, v.now) && s.phase != stickOff {
		// It may have come on under our stream.
		s.src.receiver = max(s.src.receiver, receiverIdle)
		s.taken, s.acts.takeover = true, s.flies(v)
		s.end(v)
		s.acts.notice = "a switch of the transmitter moved: the pilot has the sticks; set the mode again to take " +
			"them back"
	}
}

// flies reports whether the stream flies the drone: in a stick mode, or in one that is being
// entered or may have been.
func (s *sticks) flies(v situation) bool {
	return s.phase != stickOff && (v.mode.flownBySticks() || v.entering)
}

// hearReceiver takes what SYS_STATUS says about the receiver, which our stream hides; throttle is
// that of RC_CHANNELS, in µs.
func (s *sticks) hearReceiver(now time.Time, live bool, throttle uint16) {
	if s.phase != stickOff || now.Before(s.src.validFrom) {
		return
	}
	s.src.known = true
	s.src.receiver = receiverNone
	if live {
		s.src.hearTransmitter(now)
		s.src.receiver = receiverIdle
		if throttle > idleBelow {
			s.src.receiver = receiverInUse
		}
	}
}

// disarmed ends what a client held: nobody who arms the vehicle expects it to move. Outside a stick mode the stream
// ends too: there it only kept the vehicle from falling.
func (s *sticks) disarmed(v situation) {
	s.client.until = v.now
	s.park(v)
	if !v.mode.flownBySticks() {
		s.end(v)
	}
}

// restarted forgets everything: the autopilot has started again. ArduPilot may have done so in the air:
// a stream that kept it from falling goes on without its client, with what went out last, as after any takeover.
func (s *sticks) restarted(v situation) {
	was := *s
	*s = sticks{}
	if v.armed && was.phase != stickOff && v.firmware.ardupilot() {
		*s = sticks{taken: true, phase: stickNobody, axes: was.streamed, streamed: was.streamed}
		s.src.receiver = was.src.receiver
	}
	s.src.hide(v.now.Add(overrideTimeout))
}

// tick does what is due, and returns when it is to be called next; zero: there is no stream.
func (s *sticks) tick(v situation) (next time.Time) {
	if !v.armed {
		s.src.heardInFlight = s.src.transmits(v.now)
	}
	askedHold := s.client.holdAsked.After(s.client.spoke)
	if !v.online {
		// When the link is back somebody else may fly.
		s.client.spoke = time.Time{}
		s.client.lost = v.now
	} else if v.busy && !askedHold {
		// With a task under way no client is silent; after askedHold it may be our hold.
		s.client.spoke = v.now
	}
	if s.phase == stickClient && s.otherKind(v) {
		s.client.until = v.now
		s.acts.notice = fmt.Sprintf("the vehicle has gone over to %s, where sticks mean something else: the "+
			"client's sticks have ended; set the mode again to take them back", kindNames[v.stickKind()])
	}
	if s.phase != stickClient || !v.now.Before(s.client.until) {
		s.park(v)
		if s.mayEnd(v) {
			s.end(v)
		}
	}
	if s.phase == stickOff {
		return time.Time{}
	}
	if s.silent(v) && v.now.Sub(s.client.holdAsked) >= ownAgain {
		s.client.holdAsked = v.now
		s.acts.hold = true
	}
	if s.driftsSinceOutage(v) {
		s.client.lost = time.Time{}
		s.acts.notice = fmt.Sprintf("the link to the autopilot was lost: nobody has the sticks in %s mode, the "+
			"drone drifts, and mavrest does not hold it; set a mode (hold), or send sticks", v.mode)
	}
	if !v.now.Before(s.next) {
		s.next = v.now.Add(stickEvery)
		s.acts.send = v.firmware == px4 || v.now.Sub(s.src.foreignAt) >= othersPause
	}
	return s.next
}

// otherKind reports whether the vehicle has gone over to another kind since the client took the sticks: forward
// is down on a wing.
func (s *sticks) otherKind(v situation) bool {
	now := v.stickKind()
	return s.client.kind != kindUnknown && now != kindUnknown && now != s.client.kind
}

// mayEnd reports whether the stream that no client moves may end, for one of three reasons: ArduPilot's
// receiver is in use; it is live and a mode without sticks was set here; the vehicle is disarmed and
// the client silent for stickIdle. It may end offline too: perhaps only we hear nothing.
func (s *sticks) mayEnd(v situation) bool {
	toReceiver := s.src.inUse(v.firmware) || (s.src.live(v.firmware) && !v.shown().flownBySticks() && !s.taken)
	idle := !v.armed && v.now.Sub(s.client.spoke) >= stickIdle
	return !v.entering && (toReceiver || idle)
}

// silent reports whether a client that flew by our stream has fallen silent in the air: a hold is due.
func (s *sticks) silent(v situation) bool {
	return s.drifts(v) && !s.client.spoke.IsZero() && v.now.Sub(s.client.spoke) >= silentClient
}

// driftsSinceOutage reports whether the drone drifts because a lost link has cancelled the hold, and
// nobody was told yet. It waits for a landed state, which comes a moment after the link.
func (s *sticks) driftsSinceOutage(v situation) bool {
	cancelled := v.online && s.client.spoke.IsZero() && !s.client.lost.IsZero()
	landedKnown := v.landed != 0 || v.now.Sub(s.client.lost) >= freshFor
	return cancelled && landedKnown && s.drifts(v)
}

// drifts reports whether the drone flies by our stream and nobody moves it. Not in position mode, where the
// centred stream holds unless the vehicle is on its wing, nor where PX4 may obey a transmitter.
func (s *sticks) drifts(v situation) bool {
	byStream := s.phase == stickNobody && !s.taken && !(v.firmware == px4 && s.src.denied(v.view).given())
	drifts := v.mode == ModeManual || v.mode == ModeAltitude || (v.mode == ModePosition && v.onWing())
	return byStream && drifts && v.flying()
}

// take returns what the sticks ask for, and forgets it.
func (s *sticks) take() stickActs {
	acts := s.acts
	s.acts = stickActs{}
	return acts
}

// toSend is the axes that go out now. While numbers are kept the sticks do not move: the mode is about to change.
// But from one mode that sticks fly to another they are centred at once: they would fly the drone on.
func (s *sticks) toSend(v situation, kept []shownMode) axes {
	flies := v.sticks() != unsteered
	for _, k := range kept {
		v.custom = k.custom
		flies = flies && v.sticks() != unsteered
	}
	switch {
	case len(kept) == 0:
		s.streamed = s.turned(v)
	case v.firmware == px4 && flies:
		z := s.streamed.z
		s.streamed = s.centred(v)
		if v.sticks() == thrust {
			s.streamed.z = z
		}
	}
	s.sent = append(s.sent[max(0, len(s.sent)-sentKept):], sentAxes{s.streamed, v.now})
	return s.streamed
}

// turned is the axes or, in every other frame of a turn, what is a thousandth beside them. A PX4 that has
// MAN_OVERRIDE_SPD calls sticks moving after three changes one way, and with 0 for ever: until they turn.
func (s *sticks) turned(v situation) axes {
	a := s.axes
	turns := s.phase == stickNobody && v.armed && v.turnsSticks() && v.now.Sub(s.restsFrom) < stickTurn
	if !turns || v.sticks() == unsteered || v.leavesSticks || s.streamed != a || a != s.centred(v) {
		return a
	}
	beside := axes{a.x + 1, a.y + 1, a.z + 1, a.r + 1}
	beside.z = min(beside.z, 1000)
	return beside
}

// farewell leaves the sticks for the program's end: released to a live receiver, else parked
// (docs/design.md, "SIGTERM in the air").
func (s *sticks) farewell(v situation) {
	if s.src.live(v.firmware) {
		s.end(v)
	}
	s.park(v)
	s.acts.send = true
}

// by is who has the sticks in a stick mode: "client", "receiver" (on ArduPilot also another program),
// "mavrest" if it sends centred ones after somebody else took the drone, or "" if nobody has.
func (s *sticks) by(v situation) string {
	switch {
	case !v.mode.flownBySticks(), s.src.whyNobodyFlies(v.view).given():
	case s.src.denied(v.view).given(), s.phase == stickOff && s.src.receiver != receiverNone:
		return "receiver"
	case s.phase == stickClient:
		return "client"
	case s.phase == stickNobody && s.taken:
		return "mavrest"
	}
	return ""
}

// begin starts the stream if it does not run, and sets its phase.
func (s *sticks) begin(phase stickPhase, v situation) {
	if s.phase == stickOff {
		s.since, s.next, s.streamed = v.now, v.now, axes{z: ownThrottle(v.view)}
	}
	s.phase = phase
}

// park takes the stream from the client, and keeps it going if it runs. On PX4 the axes stay as they are where moving
// them would make PX4 leave a mode: in one that ignores sticks, or may be in force already, and once the plan
// under way has centred them.
func (s *sticks) park(v situation) {
	if s.phase == stickOff {
		return
	}
	if s.phase == stickClient && v.turnsSticks() {
		// The client may have come to the centre by itself, and never turned.
		s.restsFrom = v.now
	}
	s.phase = stickNobody
	if v.firmware != px4 || (v.sticks() != unsteered && !v.leavesSticks && !v.resting) {
		s.set(s.centred(v), v.now)
	}
}

// end ends the stream, if it runs. A live receiver has its sticks back at once.
func (s *sticks) end(v situation) {
	if s.phase == stickOff {
		return
	}
	s.phase = stickOff
	s.since = v.now
	if s.src.live(v.firmware) {
		s.acts.release = true

		// Our own still show in RC_CHANNELS until then.
		s.src.hide(v.now.Add(stickEvery + v.trip))
		return
	}
	s.src.hide(v.now.Add(overrideTimeout))
}

func (s *sticks) set(a axes, now time.Time) {
	if s.axes != a {
		s.axes = a
		s.moved, s.restsFrom = now, now
	}
}

// centred are the axes without a client. Where their throttle is the thrust, armed, they are level with the
// throttle as it was: a centred one would drop the vehicle or shoot it up. On wheels it stands. Disarmed the
// throttle is low: a raised one would forbid arming.
func (s *sticks) centred(v situation) axes {
	if v.sticks() == thrust && v.armed && s.phase != stickOff && !v.drives() {
		return axes{z: s.axes.z}
	}
	return axes{z: ownThrottle(v.view)}
}

// ownThrottle is the one that nobody gave: it holds the height in the air, stands on wheels, and is low on the ground.
func ownThrottle(v view) int16 {
	if v.flying() || v.drives() {
		return 500
	}
	return 0
}

// What makes PX4 leave a mode for sticks is one of two parameters, from 1.18 on the second one, which is a speed
// (docs/autopilots.md, "PX4: sticks that move"). The vehicle is asked for both.
const (
	stickOverride = "COM_RC_OVERRIDE"
	overrideSpeed = "MAN_OVERRIDE_SPD"
)

// movementOverrides reports whether moving sticks make PX4 leave a mode that flies without them.
func (v view) movementOverrides() bool {
	if speed, known := v.params[overrideSpeed]; known {
		return v.firmware == px4 && speed >= 0
	}
	return v.firmware == px4 && int(v.param(stickOverride, 1))&1 != 0
}

// movesFor is how long PX4 may call sticks moving after they moved, if nobody turns them.
func (v view) movesFor() time.Duration {
	switch speed, known := v.params[overrideSpeed]; {
	case !known:
		return stickStill
	case speed > 0:
		return undoneIn
	}
	return math.MaxInt64
}

// stickRest is how long sticks must rest before PX4 is sent a mode. Where it is not known which it has, it is the
// longer.
func (v view) stickRest() time.Duration {
	switch speed, known := v.params[overrideSpeed]; {
	case !known:
		return stickStill
	case speed < 0:
		return 0
	}
	return stickTurn
}

// turnsSticks reports whether sticks that rest must turn before: PX4 goes by the way that they move, or may.
func (v view) turnsSticks() bool {
	if speed, known := v.params[overrideSpeed]; known {
		return v.firmware == px4 && speed >= 0
	}
	return v.firmware == px4 && v.overrideUnknown()
}

// neverOverrides is the setting with which moving sticks undo no switch.
func (v view) neverOverrides() string {
	const older, newer = stickOverride + " 0", overrideSpeed + " -1"
	_, isNewer := v.params[overrideSpeed]
	switch {
	case isNewer:
		return newer
	case v.overrideUnknown():
		return older + " (or, from PX4 1.18 on, " + newer + ")"
	}
	return older
}

// overrideUnknown reports whether a vehicle that has not told MAN_OVERRIDE_SPD has not told COM_RC_OVERRIDE either.
func (v view) overrideUnknown() bool { return math.IsNaN(v.param(stickOverride, math.NaN())) }

// whyNobodyFlies is why a stick mode would have nobody's sticks: ours can't act, and there are
// no others. No reason if somebody's act.
func (s *sources) whyNobodyFlies(v view) reason {
	transmitter := !v.firmware.ardupilot() && s.transmits(v.now) && !v.noSticks().given()
	if transmitter || s.inUse(v.firmware) || s.foreign(v.now) {
		return reason{}
	}
	return s.denied(v)
}

// denied is why our sticks can't act; no reason if they can.
func (s *sources) denied(v view) reason {
	rcIn := v.rcIn()
	noSticks := v.noSticks()
	switch {
	case s.foreign(v.now) && v.firmware == px4:
		return v.aboutRcIn(othersAct)
	case s.foreign(v.now):
		return reason{kind: otherProgram}
	case v.gcsFailsafe > 0:
		return v.about(groundFailsafe, stickParams[v.firmware], v.gcsFailsafe)
	case v.firmware.ardupilot():
		return reason{}
	case noSticks.given():
		return noSticks
	case rcIn == 0:
		return v.aboutRcIn(onlyTransmitter)
	case rcIn == 2 && s.heardInFlight:
		return v.aboutRcIn(transmitterWasOn)
	case rcIn == 3 && !s.oursFirst && !s.transmitterAt.IsZero():
		// Until PX4 restarts.
		return v.aboutRcIn(transmitterFirst)
	case (rcIn == 5 || rcIn == 7) && s.transmits(v.now):
		return v.aboutRcIn(transmitterOn)
	}
	return reason{}
}

// noSticks is why nobody's sticks act on this PX4, not even a transmitter's; no reason if somebody's do.
func (v view) noSticks() reason {
	if v.rcIn() >= 5 && v.rcIn() <= 8 && v.version < px4SourceOrder {
		return v.aboutRcIn(nobodyBefore17)
	}
	if v.rcIn() < 0 || v.rcIn() == 4 || v.rcIn() > 8 {
		return v.aboutRcIn(nobody)
	}
	return reason{}
}

// px4SourceOrder is the first PX4 in which sticks act with COM_RC_IN_MODE 5 to 8
// (docs/autopilots.md, "PX4: source of sticks"). An unknown version counts as an older one.
const px4SourceOrder = firmwareVersion(1<<24 | 17<<16)

// foreign reports whether another program's sticks count.
func (s *sources) foreign(now time.Time) bool { return now.Sub(s.foreignAt) < othersFor }

// transmits reports whether PX4 hears a transmitter.
func (s *sources) transmits(now time.Time) bool {
	return s.receiver != receiverNone || now.Sub(s.transmitterAt) < othersFor
}

// live reports whether a receiver takes over when our stream releases the sticks. PX4 has no such release.
func (s *sources) live(f firmware) bool { return f.ardupilot() && s.receiver != receiverNone }

// inUse reports whether a pilot flies by ArduPilot's receiver.
func (s *sources) inUse(f firmware) bool { return f.ardupilot() && s.receiver == receiverInUse }

// hide records that our sticks or another program's may hide the receiver until a time.
func (s *sources) hide(until time.Time) { s.validFrom = later(s.validFrom, until) }

func (s *sources) hearTransmitter(now time.Time) {
	s.transmitterAt = now
	s.heardInFlight = true
}

// switchMoves reports whether one of the channels 5 to 16 jumps. Our stream does not move them.
func (s *sources) switchMoves(c channels, now time.Time) (moves bool) {
	for i := 4; i < len(c); i++ {
		if !plausible(c[i]) {
			continue
		}
		if s.switchesSince.IsZero() {
			s.switchesSince = now
		}
		jump := max(c[i], s.channels[i]) - min(c[i], s.channels[i])
		moves = moves || (plausible(s.channels[i]) && jump > switchJump)
	}
	s.channels = c
	return moves && now.Sub(s.switchesSince) > switchesIn
}

// plausible reports whether a channel has a value: 0 and 65535 mean that it has none.
func plausible(us uint16) bool { return us != 0 && us != math.MaxUint16 }

// deafens warns that PX4 ignores a transmitter once our sticks have come; no reason if a transmitter
// comes first, or if PX4 obeys nobody's sticks.
func (v view) deafens() reason {
	kind, deaf := deafUntil[v.rcIn()]
	if !deaf {
		return reason{}
	}
	return v.aboutRcIn(kind)
}

// deafUntil says, by COM_RC_IN_MODE, how long PX4 ignores a transmitter once our sticks have come.
var deafUntil = map[float64]reasonKind{
	1: deafAlways, 2: deafWhileSent, 3: deafUntilRestart, 6: deafWhileSent, 8: deafWhileSent,
}

// reason is why sticks do not act, or what their user must know. It is a value: its words are made when
// somebody reads them. The zero value is no reason.
type reason struct {
	kind reasonKind

	// param: the parameter's name
	param string

	value float64

	// unread: the value is the parameter's default
	unread bool

	// version: PX4's; the advice depends on it
	version firmwareVersion
}

type reasonKind uint8

const (
	noReason reasonKind = iota

	// otherProgram: another program moves ArduPilot's sticks
	otherProgram

	// othersAct: PX4 obeys another program's sticks
	othersAct

	// groundFailsafe: ArduPilot takes our sticks for a ground station's heartbeat
	groundFailsafe

	// onlyTransmitter: PX4 obeys only a transmitter
	onlyTransmitter

	// transmitterWasOn: PX4 heard a transmitter in this flight
	transmitterWasOn

	// transmitterFirst: PX4 heard a transmitter before our sticks
	transmitterFirst

	// transmitterOn: PX4 hears a transmitter, which comes first
	transmitterOn

	// nobodyBefore17: nobody's sticks act on a PX4 before 1.17
	nobodyBefore17

	// nobody: nobody's sticks act
	nobody

	// deafAlways: PX4 ignores a transmitter
	deafAlways

	// deafWhileSent: PX4 ignores a transmitter while our sticks come
	deafWhileSent

	// deafUntilRestart: PX4 ignores a transmitter until it restarts
	deafUntilRestart

	// switchNotLive: a pilot's switch that our sticks undo does not show
	switchNotLive

	// kindNotSaid: PX4 is a MAV_TYPE_GENERIC
	kindNotSaid

	// switchUnseen: a pilot's switch that our sticks undo may not show on a line so slow
	switchUnseen

	// landsOnWing: a VTOL of PX4 lands on its wing as a plane
	landsOnWing
)

// aboutRcIn is a reason of PX4's COM_RC_IN_MODE.
func (v view) aboutRcIn(kind reasonKind) reason {
	r := v.about(kind, stickParams[px4], v.rcIn())
	_, read := v.params[r.param]
	r.unread = !read
	return r
}

// about is a reason of a parameter's value.
func (v view) about(kind reasonKind, param string, value float64) reason {
	return reason{kind: kind, param: param, value: value, version: v.version}
}

func (r reason) given() bool { return r.kind != noReason }

// String is the reason in words; "" if there is none.
func (r reason) String() string {
	is := fmt.Sprintf("%s is %g", r.param, r.value)
	if r.unread {
		is = fmt.Sprintf("%s was not read yet, and is %g by default", r.param, r.value)
	}
	deaf := ": PX4 ignores a transmitter's sticks, its mode switch and its kill switch "
	switch r.kind {
	case otherProgram:
		return "another program moves the sticks of this vehicle"
	case othersAct:
		return is + ", and PX4 obeys another program's sticks (a ground station's joystick), not these; to fly by " +
			"these, switch those off"
	case groundFailsafe:
		return is + ": the autopilot takes these sticks for a ground station's heartbeat; set it to 0, or start " +
			"mavrest with -gcs if there is no other ground station"
	case onlyTransmitter:
		return is + ": PX4 obeys only a transmitter's sticks; " + r.rcInAdvice()
	case transmitterWasOn:
		return is + ", and a transmitter was on in this flight: these sticks would take the drone and the kill " +
			"switch from the pilot; to fly by these sticks, land, switch the transmitter off and disarm"
	case transmitterFirst:
		return is + ", and the transmitter has the sticks; to fly by these sticks, land, switch the transmitter " +
			"off and restart PX4"
	case transmitterOn:
		return is + ", and the transmitter has the sticks; to fly by these sticks, land and switch the transmitter off"
	case nobodyBefore17:
		return is + fmt.Sprintf(" on PX4 %s: before PX4 1.17 nobody's sticks act then, nor a transmitter's kill "+
			"switch; %s", cmp.Or(r.version.String(), "of unknown version"), r.rcInAdvice())
	case nobody:
		return is + ": nobody's sticks act, nor a transmitter's kill switch; " + r.rcInAdvice()
	case deafAlways:
		return is + deaf + "always; " + r.rcInAdvice()
	case deafWhileSent:
		return is + deaf + "while these sticks come; " + r.rcInAdvice()
	case deafUntilRestart:
		return is + deaf + "until PX4 restarts; " + r.rcInAdvice()
	case kindNotSaid:
		return "this PX4 does not say what kind of vehicle it is: mavrest takes it for a multicopter"
	case landsOnWing:
		return is + ": on its wing this VTOL lands as a plane does, on its belly, up to a circle's width from " +
			"where it was told to; a return, or a transition before, lands it in hover. With 1 each landing does"
	case switchNotLive:
		return "this PX4 does not report its mode live: a pilot's switch that the client's moving sticks undo does " +
			"not show; with " + r.param + " none is undone"
	case switchUnseen:
		return fmt.Sprintf("at %.0f baud the client's moving sticks can undo a pilot's switch without mavrest "+
			"noticing: with %s none is undone; or set the line to 921600 baud", r.value, r.param)
	}
	return ""
}

// rcInAdvice says what to set COM_RC_IN_MODE to on this version of PX4: never to what it is.
func (r reason) rcInAdvice() string {
	// These values are for a drone with a transmitter, and for one without.
	with, without := 0.0, 1.0
	use := "for a drone with a transmitter (POST input is refused then)"
	if r.version >= px4SourceOrder {
		with = 5
		use = "to let a transmitter come first and POST input act while it is off"
	}

	switch r.value {
	case without:
		return fmt.Sprintf("set it to %g %s; 1 is for a drone without a transmitter", with, use)
	case with:
		return "set it to 1 for a drone without a transmitter"
	}
	return fmt.Sprintf("set it to %g %s, or to 1 for a drone without a transmitter", with, use)
}
