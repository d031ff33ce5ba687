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
	stickLead    = 400 * time.Millisecond  // of the stream, before a stick mode is commanded
	stickArms    = 2100 * time.Millisecond // of the stream, before ArduPilot arms on it alone
	stickStill   = 2 * time.Second         // after they moved: PX4 calls them moving for 1.6 s
	stickGone    = time.Second             // from a stream's end to an arming: PX4 notices the loss after 0.6 s, which is a failsafe if it is armed by then
	stickIdle    = 5 * time.Second         // after the client's last command a disarmed vehicle's stream ends
	silentClient = 3 * time.Second         // after the client's last input or command it is silent
	othersPause  = 500 * time.Millisecond  // after another program's last sticks ours go on
	undoneIn     = 500 * time.Millisecond  // a pilot's mode that showed for no longer was undone by our sticks; 277 ms were seen
)

// stickPhase is what the stick stream does.
type stickPhase uint8

const (
	stickOff    stickPhase = iota // silence
	stickClient                   // the client's sticks, until they expire
	stickNobody                   // centred; PX4's unmoved in a mode that flies without sticks
)

// stickOwner is who has the sticks of a stick mode.
type stickOwner uint8

const (
	ownerNone   stickOwner = iota // no stick mode was set yet
	ownerClient                   // a client set it here
	ownerPilot                    // a pilot, from his switch on until a stick mode is set here
	ownerOther                    // another program, in a mode that was set here; likewise
)

// axes are the numbers of MANUAL_CONTROL: x forward, y right, r clockwise, each
// ±1000; z thrust 0 to 1000, of which 500 holds the height.
type axes struct{ x, y, z, r int16 }

// released gives ArduPilot's receiver its sticks back.
var released = axes{math.MaxInt16, math.MaxInt16, math.MaxInt16, math.MaxInt16}

// stickActs is what the caller is to do for the sticks.
type stickActs struct {
	send    bool   // the axes, now
	release bool   // send released axes: the receiver gets its sticks back
	hold    bool   // command a hold: the client fell silent
	taken   bool   // somebody else took the sticks of a stick mode: end every task
	notice  string // for the user; "" if there is none
}

// stickHolder is the client that has the sticks, and how long it has been silent.
type stickHolder struct {
	from      netip.Addr // every other client's input is refused until its sticks expire
	until     time.Time  // when its sticks expire
	spoke     time.Time  // its last input or command; zero: its silence means nothing
	holdAsked time.Time  // when a hold for its silence was requested last; zero: it is not silent
}

// sticks is who has the sticks, their latest value, and what is streamed when (docs/design.md,
// "Who has the sticks"). Its methods are given the time and what happened; take returns what to
// do.
type sticks struct {
	src   sources
	owner stickOwner
	phase stickPhase
	axes  axes
	since time.Time // when the stream began, or ended
	moved time.Time // when axes last changed
	next  time.Time // when the next frame is due

	client stickHolder
	pilots keptMode // the mode of the last takeover while our sticks moved, and when it came
	sent   axes     // the axes that went out last
	acts   stickActs
}

// take returns what is to be done, and forgets it.
func (s *sticks) take() stickActs {
	acts := s.acts
	s.acts = stickActs{}
	return acts
}

// frame is the axes that go out now. While a number is kept the sticks do not move: the mode is
// about to change.
func (s *sticks) frame(kept bool) axes {
	if !kept {
		s.sent = s.axes
	}
	return s.sent
}

// taken reports whether somebody else has the sticks until a stick mode is set
// here again.
func (s *sticks) taken() bool { return s.owner == ownerPilot || s.owner == ownerOther }

func (s *sticks) set(a axes, now time.Time) {
	if s.axes != a {
		s.axes, s.moved = a, now
	}
}

// begin starts the stream if it does not run, and sets its phase.
func (s *sticks) begin(phase stickPhase, v view) {
	if s.phase == stickOff {
		s.since, s.next, s.sent = v.now, v.now, axes{z: rest(v)}
	}
	s.phase = phase
}

// end ends the stream. A live receiver has its sticks back at once.
func (s *sticks) end(v view) {
	s.phase, s.since = stickOff, v.now
	if s.src.live(v.firmware) {
		s.acts.release = true
		s.src.hiddenUntil(v.now.Add(stickEvery + v.trip)) // our own still show in RC_CHANNELS until then
		return
	}
	s.src.hiddenUntil(v.now.Add(overrideTimeout))
}

// rest is the throttle that nobody gave: it holds the height in the air, and is low on the ground.
func rest(v view) int16 {
	if v.flying() {
		return 500
	}
	return 0
}

// centred are the axes without a client. In manual mode, armed, they are level with the
// throttle as it was: a centred one would drop the vehicle or shoot it up. Disarmed the
// throttle is low: a raised one would forbid arming.
func (s *sticks) centred(v view) axes {
	if v.shown() == ModeManual && v.armed && s.phase != stickOff {
		return axes{z: s.axes.z}
	}
	return axes{z: rest(v)}
}

// park keeps the stream going without a client. On PX4 in a mode that flies without sticks
// the axes stay as they are: moving them would make PX4 leave it.
func (s *sticks) park(v view) {
	s.phase = stickNobody
	if v.firmware != px4 || v.shown().flownBySticks() {
		s.set(s.centred(v), v.now)
	}
}

// flies reports whether the stream flies the drone: in a stick mode, or in one that is being
// entered or may have been.
func (s *sticks) flies(v view) bool {
	return s.phase != stickOff && (v.mode.flownBySticks() || v.entering)
}

// mustRest reports whether the stream must come to rest before PX4 is sent another mode.
// entering means that this is a stick mode.
func (s *sticks) mustRest(v view, entering bool) bool {
	leaves := v.shown().flownBySticks() && !entering
	returns := !v.shown().flownBySticks() && entering && s.axes != s.centred(v)
	return s.phase != stickOff && (leaves || returns)
}

// ready is when the sticks allow a step. streamed means that a stream must have run for a while
// before it.
func (s *sticks) ready(streamed bool, v view, arming bool) (at time.Time) {
	switch {
	case s.phase == stickOff:
		if arming && v.firmware == px4 {
			at = s.since.Add(stickGone)
		}
	case streamed && arming && v.firmware.ardupilot() && s.src.receiver == receiverNone:
		at = s.since.Add(stickArms)
	case streamed:
		at = s.since.Add(stickLead)
	}
	return at
}

// enter starts the centred stream that a stick mode needs. A receiver in use keeps the sticks:
// there is no stream then.
func (s *sticks) enter(v view) {
	s.client.spoke, s.client.holdAsked = v.now, time.Time{}
	if !v.mode.flownBySticks() { // else the present mode keeps its owner until the new one shows
		s.owner = ownerClient
	}
	others := v.firmware.ardupilot() && v.now.Sub(s.src.foreignAt) < othersFor && v.gcsFailsafe == 0
	switch {
	case s.src.denied(v) != "" && !others: // after another program's sticks ours go on
	case s.src.inUse(v.firmware):
		if s.phase != stickOff {
			s.end(v)
		}
	default:
		s.set(s.centred(v), v.now)
		s.begin(stickNobody, v)
	}
}

// streamForArming starts the stream for an arming without a change of mode.
func (s *sticks) streamForArming(v view) {
	if s.phase == stickOff {
		s.enter(v)
	}
	s.client.spoke = v.now
}

// leave parks the sticks before a plan that leads out of the stick modes.
func (s *sticks) leave(v view) {
	if s.phase != stickOff {
		s.park(v)
	}
}

// entered records that a stick mode set here is in force.
func (s *sticks) entered(v view) {
	if s.phase != stickOff {
		s.src.accepted()
	}
	s.owner, s.client.spoke, s.client.holdAsked = ownerClient, v.now, time.Time{}
}

// switched ends the client's sticks: a pilot or a failsafe set the mode. A switch that PX4 leaves
// again at once, for a stick mode, was undone by our moving sticks.
func (s *sticks) switched(v view) {
	s.owner, s.client.holdAsked = ownerPilot, time.Time{}
	moving := s.phase != stickOff && v.movementOverrides() && v.now.Sub(s.moved) < stickStill
	switch {
	case !moving:
	case !v.shown().flownBySticks():
		s.pilots = keptMode{v.custom, v.now}
	case v.now.Sub(s.pilots.at) <= undoneIn:
		_, name := px4.reported(s.pilots.custom)
		s.acts.notice = fmt.Sprintf("the client's moving sticks undid the pilot's switch to %s. The client's sticks have ended. From 2 s on a switch holds; with COM_RC_OVERRIDE 0 every switch holds", name)
	}
	switch {
	case s.phase == stickOff:
	case s.src.inUse(v.firmware):
		s.end(v)
	default:
		s.park(v)
		if s.src.live(v.firmware) && v.flying() {
			s.acts.notice = "centred sticks go on, lest the drone sink under a transmitter that nobody holds; moving any switch of the transmitter frees its sticks"
		}
	}
}

// takeover releases and ends our stream: somebody else moves the sticks in an unchanged mode.
func (s *sticks) takeover(v view, by stickOwner, notice string) {
	if s.owner != ownerPilot {
		s.owner = by
	}
	s.client.holdAsked = time.Time{}
	s.acts.taken = s.flies(v)
	s.end(v)
	s.acts.release, s.acts.notice = true, notice
}

// hearForeign is called when another program moves the sticks. Ours pause, unreleased: the other
// program's are in force for 3 s, and a release would end them.
func (s *sticks) hearForeign(v view) {
	if !v.firmware.ardupilot() {
		return
	}
	s.src.foreignAt = v.now
	s.src.hiddenUntil(v.now.Add(overrideTimeout))
	if s.phase == stickOff {
		return
	}
	if !s.taken() {
		s.owner, s.acts.taken = ownerOther, v.mode.flownBySticks()
		s.acts.notice = "another program moves the sticks of this vehicle: the client's sticks have ended; set the mode again to take the sticks back"
	}
	s.client.holdAsked = time.Time{}
	if s.src.inUse(v.firmware) {
		s.phase, s.since = stickOff, v.now
		return
	}
	s.park(v)
}

// paused reports whether another program moves the sticks now.
func (s *sticks) paused(v view) bool {
	return v.firmware.ardupilot() && v.now.Sub(s.src.foreignAt) < othersPause
}

// hearChannels takes RC_CHANNELS. A switch of the transmitter that moves gives the pilot
// his sticks.
func (s *sticks) hearChannels(v view, c channels) {
	if v.firmware == px4 {
		s.src.hearTransmitter(v.now)
	}
	if !v.firmware.ardupilot() || !s.src.switchMoves(c, v.now) {
		return
	}
	switch {
	case s.phase != stickOff:
		if s.src.receiver == receiverNone { // it came on
			s.src.receiver = receiverIdle
		}
		s.takeover(v, ownerPilot, "a switch of the transmitter moved: the pilot has the sticks; set the mode again to take them back")
	case s.owner == ownerOther:
		s.owner = ownerPilot
	}
}

// hearReceiver takes what SYS_STATUS says about the receiver; throttle is that of RC_CHANNELS, in
// µs.
func (s *sticks) hearReceiver(v view, live bool, throttle uint16) {
	if s.phase != stickOff || v.now.Before(s.src.validFrom) {
		return
	}
	s.src.hear(live, throttle, v.now)
}

// disarmed ends a stream that only kept the vehicle from falling.
func (s *sticks) disarmed(v view) {
	s.client.holdAsked, s.pilots = time.Time{}, keptMode{}
	if s.phase == stickNobody && !v.mode.flownBySticks() {
		s.end(v)
	}
}

// lost cancels the hold for a silent client: the link is lost, and when it is back somebody else
// may fly.
func (s *sticks) lost(v view) {
	if v.mode.flownBySticks() {
		s.client.spoke, s.client.holdAsked = time.Time{}, time.Time{}
	}
}

// input takes the client's sticks, to be written at once.
func (s *sticks) input(v view, a axes, timeout time.Duration) {
	s.begin(stickClient, v)
	s.set(a, v.now)
	s.client.spoke, s.client.until, s.next = v.now, v.now.Add(timeout), v.now.Add(stickEvery)
	s.client.holdAsked = time.Time{}
	s.acts.send = true
}

// own gives the sticks to a client until a time.
func (s *sticks) own(client netip.Addr, until time.Time) {
	s.client.from, s.client.until = client, until
}

// held is the client that has the sticks; invalid if none has.
func (s *sticks) held(v view) netip.Addr {
	if !v.mode.flownBySticks() || s.taken() || !v.now.Before(s.client.until) || s.src.denied(v) != "" {
		return netip.Addr{}
	}
	return s.client.from
}

// tick does what is due, and returns when it is to be called next; zero: there is no stream.
func (s *sticks) tick(v view) (next time.Time) {
	s.src.hearArmed(v.armed, v.now)
	if v.busy && s.client.holdAsked.IsZero() && !s.client.spoke.IsZero() { // a client that waits for its answer is not silent
		s.client.spoke = v.now
	}
	if s.phase == stickClient && !v.now.Before(s.client.until) {
		s.park(v)
	}
	switch {
	case s.phase == stickOff:
		return time.Time{}
	case s.phase == stickNobody && s.mayEnd(v):
		s.end(v)
		return time.Time{}
	case s.phase == stickNobody:
		s.park(v)
		s.silence(v)
	}
	if !v.now.Before(s.next) {
		s.next = v.now.Add(stickEvery)
		s.acts.send = !s.paused(v)
	}
	return s.next
}

// mayEnd reports whether the stream that no client moves may end. Either ArduPilot's receiver is
// in use, or is live and the mode, set here, flies without sticks; or the vehicle is disarmed
// and the client has been silent for stickIdle.
func (s *sticks) mayEnd(v view) bool {
	switch {
	case v.entering:
		return false
	case v.online && s.src.live(v.firmware) && (s.src.inUse(v.firmware) || !v.shown().flownBySticks() && !s.taken()):
		return true
	}
	return !v.armed && !v.busy && v.now.Sub(s.client.spoke) >= stickIdle
}

// holdPending reports whether a silent client's hold, or the landing in its place, is still due.
func (s *sticks) holdPending(v view) bool {
	return !s.client.holdAsked.IsZero() && (v.mode == ModeManual || v.mode == ModeAltitude)
}

// silence requests a hold for a client that fell silent in the air. In position mode the centred
// stream is the hold.
func (s *sticks) silence(v view) {
	if v.mode != ModeManual && v.mode != ModeAltitude {
		s.client.holdAsked = time.Time{}
		return
	}
	since := v.now.Sub(s.client.spoke)
	switch {
	case s.owner != ownerClient || !v.flying() || s.client.spoke.IsZero() || !v.online || since < silentClient:
	case v.now.Sub(s.client.holdAsked) < ownAgain:
	case v.firmware == px4 && s.src.denied(v) != "": // PX4 obeys a transmitter
	default:
		if s.client.holdAsked.IsZero() {
			s.acts.notice = fmt.Sprintf("no sticks from the client for %.0f s: holding", since.Seconds())
		}
		s.client.holdAsked = v.now
		s.acts.hold = true
	}
}

// by is who has the sticks in a stick mode: "client", "receiver", "mavrest" if it sends centred
// ones after somebody else took the drone, or "" if nobody has.
func (s *sticks) by(v view) string {
	switch {
	case !v.mode.flownBySticks():
		return ""
	case s.src.whyNobodyFlies(v) != "":
		return ""
	case s.src.denied(v) != "", s.phase == stickOff && s.src.receiver != receiverNone:
		return "receiver"
	case s.phase == stickClient:
		return "client"
	case s.phase == stickNobody && s.taken():
		return "mavrest"
	}
	return ""
}

// restarted forgets everything: the autopilot has started again. ArduPilot may have done so in
// the air: a stream that kept it from falling goes on, without a client, until it is disarmed
// or a pilot takes it.
func (s *sticks) restarted(v view) {
	was := *s
	*s = sticks{}
	s.src.open(v.now)
	if v.armed && was.phase != stickOff && v.firmware.ardupilot() && !was.src.inUse(v.firmware) {
		s.owner, s.phase, s.src.receiver = ownerPilot, stickNobody, was.src.receiver
		s.src.validFrom = was.src.validFrom // the stream goes on; its end will set a new one
		s.axes, s.since, s.moved, s.next = was.axes, was.since, was.moved, was.next
	}
}

// stop leaves the sticks as they stay when the program ends: released to a live receiver, else
// parked (docs/design.md, "SIGTERM in the air").
func (s *sticks) stop(v view) {
	switch {
	case s.phase == stickOff:
	case s.src.live(v.firmware):
		s.end(v)
	default:
		s.park(v)
		s.acts.send = true
	}
}
