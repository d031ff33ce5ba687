package main

import (
	"fmt"
	"math"
	"net/netip"
	"time"
)

// Times of the sticks (docs/design.md, "Who has the sticks").
const (
	stickEvery   = 40 * time.Millisecond   // 25 Hz
	stickLead    = 400 * time.Millisecond  // how long the stream runs before a stick mode is commanded
	stickArms    = 2100 * time.Millisecond // how long it runs before ArduPilot arms on it alone
	stickStill   = 2 * time.Second         // how long we keep the axes still before PX4 is to leave a stick mode: it calls them moving for 1.6 s
	stickGone    = time.Second             // from a stream's end to an arming: PX4 notices the loss after 0.6 s, which is a failsafe if it is armed by then
	stickIdle    = 5 * time.Second         // a disarmed vehicle's stream ends this long after the client's last command
	silentClient = 3 * time.Second         // after the client's last input or command it is silent
	othersPause  = 500 * time.Millisecond  // how long ours pause after another program's last sticks
	undoneIn     = 500 * time.Millisecond  // a pilot's mode that showed for no longer was undone by our sticks: it shows for 12 to 48 ms (docs/autopilots.md)
)

// stickPhase is what the stick stream does.
type stickPhase uint8

const (
	stickOff    stickPhase = iota // silence
	stickClient                   // the client's sticks, until they expire
	stickNobody                   // centred; on PX4 unmoved in a mode that flies without sticks
)

// axes are MANUAL_CONTROL's: x forward, y right, r clockwise, ±1000; z thrust 0 to 1000, 500 holds the height.
type axes struct{ x, y, z, r int16 }

// released gives ArduPilot's receiver its sticks back.
var released = axes{math.MaxInt16, math.MaxInt16, math.MaxInt16, math.MaxInt16}

// stickActs is what the caller is to do for the sticks.
type stickActs struct {
	send     bool   // send the axes now
	release  bool   // send released axes: the receiver gets its sticks back
	hold     bool   // command a hold: the client fell silent
	takeover bool   // somebody else took the sticks of a stick mode: end every task
	notice   string // for the user; "" if there is none
}

// stickHolder is the client that has the sticks, and when it spoke last.
type stickHolder struct {
	from      netip.Addr // every other client's input is refused until its sticks expire
	until     time.Time  // when its sticks expire
	kind      kind       // how the vehicle flew by sticks when it took them: they mean something else in another kind
	spoke     time.Time  // its last input or command; zero: its silence means nothing
	holdAsked time.Time  // when a hold for a silent client was requested last
	lost      time.Time  // when the link was still lost in its stick mode; zero: it was not, or a notice has said so
}

// sticks is who has the sticks, their latest value, and what is streamed when (docs/design.md,
// "Who has the sticks"). Its methods are given what happened; take returns what to do.
type sticks struct {
	src   sources
	taken bool // somebody else has the sticks. giveToClient ends that; so does enter, in a mode without sticks
	phase stickPhase
	axes  axes
	since time.Time // when the stream began, or ended
	moved time.Time // when the axes last changed
	next  time.Time // when the next frame is due

	client     stickHolder
	switchedTo shownMode // the last mode without sticks that somebody else set, and when
	sent       axes      // the axes that went out last
	acts       stickActs
}

func (s *sticks) take() stickActs {
	acts := s.acts
	s.acts = stickActs{}
	return acts
}

// toSend is the axes that go out now. While a number is kept the sticks do not move: the mode is
// about to change.
func (s *sticks) toSend(kept bool) axes {
	if !kept {
		s.sent = s.axes
	}
	return s.sent
}

func (s *sticks) set(a axes, now time.Time) {
	if s.axes != a {
		s.axes, s.moved = a, now
	}
}

// begin starts the stream if it does not run, and sets its phase.
func (s *sticks) begin(phase stickPhase, v situation) {
	if s.phase == stickOff {
		s.since, s.next, s.sent = v.now, v.now, axes{z: rest(v.view)}
	}
	s.phase = phase
}

// end ends the stream, if it runs. A live receiver has its sticks back at once.
func (s *sticks) end(v situation) {
	if s.phase == stickOff {
		return
	}
	s.phase, s.since = stickOff, v.now
	if s.src.live(v.firmware) {
		s.acts.release = true
		s.src.hide(v.now.Add(stickEvery + v.trip)) // our own still show in RC_CHANNELS until then
		return
	}
	s.src.hide(v.now.Add(overrideTimeout))
}

// rest is the throttle that nobody gave: it holds the height in the air, stands on wheels, and is low on the ground.
func rest(v view) int16 {
	if v.flying() || v.drives() {
		return 500
	}
	return 0
}

// centred are the axes without a client. In manual mode, armed, they are level with the
// throttle as it was: a centred one would drop the vehicle or shoot it up. On wheels it stands. Disarmed the
// throttle is low: a raised one would forbid arming.
func (s *sticks) centred(v situation) axes {
	if v.shown() == ModeManual && v.armed && s.phase != stickOff && !v.drives() {
		return axes{z: s.axes.z}
	}
	return axes{z: rest(v.view)}
}

// park takes the stream from the client, and keeps it going if it runs. On PX4 in a mode that
// flies without sticks the axes stay as they are: moving them would make PX4 leave it.
func (s *sticks) park(v situation) {
	if s.phase == stickOff {
		return
	}
	s.phase = stickNobody
	if v.firmware != px4 || v.shown().flownBySticks() {
		s.set(s.centred(v), v.now)
	}
}

// flies reports whether the stream flies the drone: in a stick mode, or in one that is being
// entered or may have been.
func (s *sticks) flies(v situation) bool {
	return s.phase != stickOff && (v.mode.flownBySticks() || v.entering)
}

// mustRest reports whether the stream must come to rest before PX4 is sent another mode.
// entering means that the other mode is a stick mode.
func (s *sticks) mustRest(v situation, entering bool) bool {
	leaves := v.shown().flownBySticks() && !entering
	offCentre := !v.shown().flownBySticks() && entering && s.axes != s.centred(v)
	return s.phase != stickOff && (leaves || offCentre)
}

// ready is when the sticks allow a step; zero: now. needsStream means that a stream, if one runs,
// must have run for a while before the step.
func (s *sticks) ready(needsStream bool, v situation, arming bool) time.Time {
	switch {
	case s.phase == stickOff && arming && v.firmware == px4:
		return s.since.Add(stickGone)
	case s.phase == stickOff || !needsStream:
		return time.Time{}
	case arming && v.firmware.ardupilot() && s.src.receiver == receiverNone:
		return s.since.Add(stickArms)
	}
	return s.since.Add(stickLead)
}

// enter starts the stream that a stick mode or an arming needs, or centres the one that runs. Where
// our sticks can't act it does neither. Another program's sticks alone are no reason: they only pause
// the stream. A receiver in use gets its sticks back.
func (s *sticks) enter(v situation) {
	s.client.spoke = v.now
	s.taken = s.taken && v.mode.flownBySticks() // somebody else's stick mode stays his until the new one shows
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

// streamForArming is enter where no stream runs. One that runs, even the client's, stays as it is.
func (s *sticks) streamForArming(v situation) {
	if s.phase == stickOff {
		s.enter(v)
	}
	s.client.spoke = v.now
}

// giveToClient records that a client's stick mode is in force. The client has the sticks for 3 s.
func (s *sticks) giveToClient(v situation, client netip.Addr) {
	s.taken, s.client.spoke = false, v.now
	s.client.from, s.client.until, s.client.kind = client, v.now.Add(silentClient), v.stickKind()
	s.src.oursFirst = s.src.oursFirst || s.src.transmitterAt.IsZero()
}

// switched ends the client's sticks: a pilot or a failsafe set the mode. A switch that PX4 leaves
// again at once, for a stick mode, was undone by our moving sticks.
func (s *sticks) switched(v situation) {
	s.taken = true
	moving := s.phase != stickOff && v.movementOverrides() && v.now.Sub(s.moved) < stickStill
	switch {
	case !v.shown().flownBySticks():
		s.switchedTo = shownMode{custom: v.custom, at: v.now}
	case moving && v.now.Sub(s.switchedTo.at) <= undoneIn:
		_, name := px4.reported(s.switchedTo.custom)
		s.acts.notice = fmt.Sprintf("the client's moving sticks undid the pilot's switch to %s. The client's sticks have ended: 2 s from now a switch will stay in force. With COM_RC_OVERRIDE 0 every switch does", name)
	}
	s.set(s.sent, v.now) // what went out last: a movement that toSend held back never goes out
	s.park(v)
	switch {
	case s.src.inUse(v.firmware):
		s.end(v)
	case s.phase != stickOff && s.src.live(v.firmware) && v.flying():
		s.acts.notice = "centred sticks go on, lest the drone sink under a transmitter that nobody holds; moving any switch of the transmitter frees its sticks"
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
		s.acts.notice = "another program moves the sticks of this vehicle: the client's sticks have ended; set the mode again to take the sticks back"
	}
	s.park(v)
	if s.src.inUse(v.firmware) {
		s.end(v)
		s.acts.release = false
	}
}

// hearChannels takes RC_CHANNELS. A switch of the transmitter that moves gives the pilot his sticks.
func (s *sticks) hearChannels(v situation, c channels) {
	switch {
	case v.firmware == px4:
		s.src.hearTransmitter(v.now)
	case v.firmware.ardupilot() && s.src.switchMoves(c, v.now) && s.phase != stickOff:
		s.src.receiver = max(s.src.receiver, receiverIdle) // it may have come on under our stream
		s.taken, s.acts.takeover = true, s.flies(v)
		s.end(v)
		s.acts.notice = "a switch of the transmitter moved: the pilot has the sticks; set the mode again to take them back"
	}
}

// hearReceiver takes what SYS_STATUS says about the receiver, which our stream hides; throttle is
// that of RC_CHANNELS, in µs.
func (s *sticks) hearReceiver(v situation, live bool, throttle uint16) {
	if s.phase != stickOff || v.now.Before(s.src.validFrom) {
		return
	}
	s.src.known, s.src.receiver = true, receiverNone
	if live {
		s.src.hearTransmitter(v.now)
		s.src.receiver = receiverIdle
		if throttle > idleBelow {
			s.src.receiver = receiverInUse
		}
	}
}

// disarmed ends the stream outside a stick mode: there it only kept the vehicle from falling.
func (s *sticks) disarmed(v situation) {
	if !v.mode.flownBySticks() {
		s.end(v)
	}
}

// input takes the client's sticks, to be written at once.
func (s *sticks) input(v situation, a axes, from netip.Addr, timeout time.Duration) {
	s.begin(stickClient, v)
	s.set(a, v.now)
	s.client.from, s.client.until, s.client.kind = from, v.now.Add(timeout), v.stickKind()
	s.client.spoke, s.next = v.now, v.now.Add(stickEvery)
	s.acts.send = true
}

// otherKind reports whether the vehicle has gone over to another kind since the client took the sticks: forward
// is down on a wing.
func (s *sticks) otherKind(v situation) bool {
	now := v.stickKind()
	return s.client.kind != kindUnknown && now != kindUnknown && now != s.client.kind
}

// held is the client that has the sticks; invalid if none has.
func (s *sticks) held(v situation) netip.Addr {
	if !v.mode.flownBySticks() || s.taken || !v.now.Before(s.client.until) || s.src.denied(v.view).given() {
		return netip.Addr{}
	}
	return s.client.from
}

// tick does what is due, and returns when it is to be called next; zero: there is no stream.
func (s *sticks) tick(v situation) (next time.Time) {
	if !v.armed {
		s.src.heardInFlight = s.src.transmits(v.now)
	}
	askedHold := s.client.holdAsked.After(s.client.spoke)
	switch {
	case !v.online && v.mode.flownBySticks(): // when the link is back somebody else may fly
		s.client.spoke, s.client.lost = time.Time{}, v.now
	case v.busy && !askedHold: // with a command under way no client is silent; after askedHold it may be our hold
		s.client.spoke = v.now
	}
	if s.phase == stickClient && s.otherKind(v) {
		s.client.until = v.now
		s.acts.notice = fmt.Sprintf("the vehicle has gone over to %s, where sticks mean something else: the client's sticks have ended; set the mode again to take them back", kindNames[v.stickKind()])
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
		s.client.holdAsked, s.acts.hold = v.now, true
	}
	if s.driftsSinceOutage(v) {
		s.client.lost = time.Time{}
		s.acts.notice = fmt.Sprintf("the link to the autopilot was lost in %s mode: nobody has the sticks, the drone drifts, "+
			"and mavrest does not hold it; set a mode (hold), or send sticks", v.mode)
	}
	if !v.now.Before(s.next) {
		s.next = v.now.Add(stickEvery)
		s.acts.send = v.now.Sub(s.src.foreignAt) >= othersPause
	}
	return s.next
}

// mayEnd reports whether the stream that no client moves may end, for one of three reasons: ArduPilot's
// receiver is in use; it is live and a mode without sticks was set here; the vehicle is disarmed and
// the client silent for stickIdle. It may end offline too: perhaps only we hear nothing.
func (s *sticks) mayEnd(v situation) bool {
	toReceiver := s.src.inUse(v.firmware) || s.src.live(v.firmware) && !v.shown().flownBySticks() && !s.taken
	idle := !v.armed && v.now.Sub(s.client.spoke) >= stickIdle
	return !v.entering && (toReceiver || idle)
}

// drifts reports whether the drone flies by our stream and nobody moves it. Not in position mode, where the
// centred stream holds unless the vehicle is on its wing, nor where PX4 may obey a transmitter.
func (s *sticks) drifts(v situation) bool {
	byStream := s.phase == stickNobody && !s.taken && !(v.firmware == px4 && s.src.denied(v.view).given())
	drifts := v.mode == ModeManual || v.mode == ModeAltitude || (v.mode == ModePosition && v.onWing())
	return byStream && drifts && v.flying()
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

// restarted forgets everything: the autopilot has started again. ArduPilot may have done so in the air:
// a stream that kept it from falling goes on without its client, as after any takeover.
func (s *sticks) restarted(v situation) {
	was := *s
	*s = sticks{}
	if v.armed && was.phase != stickOff && v.firmware.ardupilot() {
		*s = sticks{taken: true, phase: stickNobody, axes: was.axes, sent: was.axes}
		s.src.receiver = was.src.receiver
	}
	s.src.hide(v.now.Add(overrideTimeout))
}

// stop leaves the sticks for the program's end: released to a live receiver, else parked
// (docs/design.md, "SIGTERM in the air").
func (s *sticks) stop(v situation) {
	if s.src.live(v.firmware) {
		s.end(v)
	}
	s.park(v)
	s.acts.send = true
}
