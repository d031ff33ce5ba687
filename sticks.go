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
	stickLead    = 400 * time.Millisecond  // of the stream, before a stick mode is asked for
	stickArms    = 2100 * time.Millisecond // of the stream, before ArduPilot arms on it alone
	stickMoving  = 1600 * time.Millisecond // PX4 calls sticks moving for so long after they moved
	stickStill   = 2 * time.Second         // they stand still for certain
	stickGone    = time.Second             // from a stream's end to an arming: PX4 notices the loss after 0.6 s, and armed by then it is a failsafe
	stickIdle    = 5 * time.Second         // a disarmed vehicle's stream ends
	silentClient = 3 * time.Second         // after the client's last command, in altitude and manual mode
	holdAgain    = time.Second             // between holds that nobody acknowledged
	othersPause  = 500 * time.Millisecond  // after another program's last sticks ours go on
	stickTaken   = 3 * time.Second         // a client that set a stick mode has the sticks for so long before it moves them
	undoneIn     = 500 * time.Millisecond  // a pilot's mode that stood no longer was undone by our sticks; 277 ms were seen
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
	ownerNone   stickOwner = iota // nobody has set one yet
	ownerClient                   // this process set it
	ownerPilot                    // a pilot, from his switch on until a stick mode is set here
	ownerOther                    // another program, in a mode that this process set; likewise
)

// axes are the numbers of MANUAL_CONTROL: x forward, y right, r clockwise, each
// ±1000; z thrust 0 to 1000, of which 500 holds the height.
type axes struct{ x, y, z, r int16 }

// released gives ArduPilot's receiver its sticks back.
var released = axes{math.MaxInt16, math.MaxInt16, math.MaxInt16, math.MaxInt16}

// flightState is whether the vehicle could fall.
type flightState uint8

const (
	disarmed      flightState = iota
	armedOnGround             // armed, and reported on the ground; an unknown landed state counts as aloft
	aloft
)

// stickFacts is what the sticks must know of the vehicle.
type stickFacts struct {
	now      time.Time
	firmware firmware
	mode     Mode   // what GET mode answers
	custom   uint32 // what the vehicle reports
	online   bool
	flight   flightState
	trip     time.Duration // of the line, there and back
	busy     bool          // a plan is under way, or waits
	entering bool          // a command to enter a stick mode is under way or open (rule 3)
}

// shown is the mode that the vehicle reports.
func (f stickFacts) shown() Mode {
	mode, _ := f.firmware.reported(f.custom)
	return mode
}

// stickActs is what is to be done for the sticks.
type stickActs struct {
	send    bool   // the axes, now
	release bool   // send released axes: the receiver gets its sticks back
	hold    bool   // command a hold: the client fell silent
	notice  string // to be told
}

// sticks is who has the sticks, the one latest value of them, and what is
// streamed when (docs/design.md, "Who has the sticks"). It has no clock: it is
// told the time and what happened, and take returns what to do.
type sticks struct {
	src   sources
	owner stickOwner
	phase stickPhase
	axes  axes
	since time.Time // when the stream began, or ended
	moved time.Time // when axes last changed
	next  time.Time // when the next frame is due

	until     time.Time  // when the client's sticks expire
	from      netip.Addr // the client that has the sticks until then: to every other one they are refused
	client    time.Time  // the client's last command; zero: its silence means nothing
	holdAsked time.Time  // when a silent client's hold was asked for last

	pilots keptMode // the mode of the last takeover while our sticks moved
	sent   axes     // that went out last
	acts   stickActs
}

// take returns what is to be done, once.
func (s *sticks) take() stickActs {
	acts := s.acts
	s.acts = stickActs{}
	return acts
}

// taken reports whether somebody else has the sticks until a stick mode is set
// here again.
func (s *sticks) taken() bool { return s.owner == ownerPilot || s.owner == ownerOther }

func (s *sticks) set(a axes, now time.Time) {
	if s.axes != a {
		s.axes, s.moved = a, now
	}
}

// begin has the stream run in a phase, whether it runs already or not.
func (s *sticks) begin(phase stickPhase, f stickFacts) {
	if s.phase == stickOff {
		s.since, s.next, s.sent = f.now, f.now, axes{z: rest(f)}
	}
	s.phase = phase
}

// end ends the stream. A live receiver has its sticks back at once.
func (s *sticks) end(f stickFacts) {
	s.phase, s.since = stickOff, f.now
	if s.src.live(f.firmware) {
		s.acts.release = true
		s.src.hiddenUntil(f.now.Add(stickEvery + f.trip)) // our own still show in RC_CHANNELS until then
		return
	}
	s.src.hiddenUntil(f.now.Add(overrideTimeout))
}

// rest is the throttle where a client gave none.
func rest(f stickFacts) int16 {
	if f.flight == aloft {
		return 500
	}
	return 0
}

// centred are the sticks of nobody: in manual mode level, with the throttle as it
// was, because a centred one would drop the vehicle or shoot it up, until another
// mode is in force. Disarmed there is nothing to drop, and a throttle that stands
// would forbid arming.
func (s *sticks) centred(f stickFacts) axes {
	if f.shown() == ModeManual && f.flight != disarmed && s.phase != stickOff {
		return axes{z: s.axes.z}
	}
	return axes{z: rest(f)}
}

// park keeps the stream going without a client. On PX4 in a mode that flies without sticks
// the axes stay as they are: moving them would make PX4 leave it.
func (s *sticks) park(f stickFacts) {
	s.phase = stickNobody
	if f.firmware != px4 || f.shown().flownBySticks() {
		s.set(s.centred(f), f.now)
	}
}

// flies reports whether the stream is what flies: in a stick mode, or in one that
// is entered now or may have been.
func (s *sticks) flies(f stickFacts) bool {
	return s.phase != stickOff && (f.mode.flownBySticks() || f.entering)
}

// mustRest reports whether the stream must come to rest before PX4 is told another mode,
// which leads into a stick mode or not.
func (s *sticks) mustRest(f stickFacts, entering bool) bool {
	leaves := f.shown().flownBySticks() && !entering
	returns := !f.shown().flownBySticks() && entering && s.axes != s.centred(f)
	return s.phase != stickOff && (leaves || returns)
}

// ready is when a step may be sent as far as the sticks go. streamed says that it rests on
// sticks that have been streamed for a while.
func (s *sticks) ready(streamed bool, f stickFacts, arming bool) (at time.Time) {
	switch {
	case s.phase == stickOff:
		if arming && f.firmware == px4 {
			at = s.since.Add(stickGone)
		}
	case streamed && arming && f.firmware.ardupilot() && s.src.receiver == receiverNone:
		at = s.since.Add(stickArms)
	case streamed:
		at = s.since.Add(stickLead)
	}
	return at
}

// enter brings the stream to where a stick mode can be asked for. A receiver in
// use keeps the sticks: there is no stream then.
func (s *sticks) enter(f stickFacts) {
	s.client, s.holdAsked = f.now, time.Time{}
	if !f.mode.flownBySticks() { // else the present mode keeps its owner until the new one shows
		s.owner = ownerClient
	}
	others := f.firmware.ardupilot() && f.now.Sub(s.src.foreignAt) < othersFor && (s.src.gcsFailsafe == 0 || s.src.alone)
	switch {
	case s.src.denied(f.firmware, f.now) != "" && !others: // after another program's sticks ours go on
	case s.src.inUse(f.firmware):
		if s.phase != stickOff {
			s.end(f)
		}
	default:
		s.set(s.centred(f), f.now)
		s.begin(stickNobody, f)
	}
}

// streamForArming is enter for arming in the stick mode that the vehicle is in.
func (s *sticks) streamForArming(f stickFacts) {
	if s.phase == stickOff {
		s.enter(f)
	}
	s.client = f.now
}

// leave centres the sticks before a plan that leads out of the stick modes.
func (s *sticks) leave(f stickFacts) {
	if s.phase != stickOff {
		s.park(f)
	}
}

// entered says that a stick mode set here is in force.
func (s *sticks) entered(f stickFacts) {
	if s.phase != stickOff {
		s.src.accepted()
	}
	s.owner, s.client, s.holdAsked = ownerClient, f.now, time.Time{}
}

// switched says that a pilot or a failsafe set the mode: the client's sticks end. A switch
// that PX4 leaves again at once, for a stick mode, was undone by our moving sticks.
func (s *sticks) switched(f stickFacts) {
	s.owner, s.holdAsked = ownerPilot, time.Time{}
	moving := s.phase != stickOff && s.src.movementOverrides(f.firmware) && f.now.Sub(s.moved) < stickMoving
	switch {
	case !moving:
	case !f.shown().flownBySticks():
		s.pilots = keptMode{f.custom, f.now}
	case f.now.Sub(s.pilots.at) <= undoneIn:
		_, name := px4.reported(s.pilots.custom)
		s.acts.notice = fmt.Sprintf("the client's moving sticks undid the pilot's switch to %s: they have ended, and his next switch stands from 2 s on; COM_RC_OVERRIDE 0 keeps sticks from doing that", name)
	}
	switch {
	case s.phase == stickOff:
	case s.src.inUse(f.firmware):
		s.end(f)
	default:
		s.park(f)
		if s.src.live(f.firmware) && f.flight == aloft {
			s.acts.notice = "mavrest sends centred sticks, so that the drone does not sink under a transmitter that nobody holds: moving any switch of the transmitter frees its sticks"
		}
	}
}

// takeover says that somebody else moves the sticks in an unchanged mode: our
// stream is released, and ends.
func (s *sticks) takeover(f stickFacts, by stickOwner, notice string) {
	if s.owner != ownerPilot {
		s.owner = by
	}
	s.holdAsked = time.Time{}
	s.end(f)
	s.acts.release, s.acts.notice = true, notice
}

// hearForeign says that another program moves the sticks. Ours pause, unreleased: what the
// other one sent stands for 3 s, and a release would end it.
func (s *sticks) hearForeign(f stickFacts) {
	if !f.firmware.ardupilot() {
		return
	}
	s.src.foreignAt = f.now
	s.src.hiddenUntil(f.now.Add(overrideTimeout))
	if s.phase == stickOff {
		return
	}
	if !s.taken() {
		s.owner = ownerOther
		s.acts.notice = "another program moves the sticks of this vehicle: the client's have ended; set the mode again to take them"
	}
	s.holdAsked = time.Time{}
	if s.src.inUse(f.firmware) {
		s.phase, s.since = stickOff, f.now
		return
	}
	s.park(f)
}

// paused reports whether another program moves the sticks now.
func (s *sticks) paused(f stickFacts) bool {
	return f.firmware.ardupilot() && f.now.Sub(s.src.foreignAt) < othersPause
}

// hearChannels takes RC_CHANNELS. A switch of the transmitter that moves gives the pilot
// his sticks.
func (s *sticks) hearChannels(f stickFacts, c channels) {
	s.src.transmitterAt = f.now
	s.src.heard = s.src.heard || f.firmware == px4
	if f.firmware == px4 {
		s.src.hearTransmitter()
	}
	if !f.firmware.ardupilot() || !s.src.switchMoves(c, f.now) {
		return
	}
	switch {
	case s.phase != stickOff:
		if s.src.receiver == receiverNone { // it came on
			s.src.receiver = receiverIdle
		}
		s.takeover(f, ownerPilot, "a switch of the transmitter moved: the pilot has the sticks, ours have ended; set the mode again to take them")
	case s.owner == ownerOther:
		s.owner = ownerPilot
	}
}

// hearReceiver takes what SYS_STATUS says of the receiver; throttle is the last
// of RC_CHANNELS, 0 where it is not known.
func (s *sticks) hearReceiver(f stickFacts, live bool, throttle uint16) {
	if s.phase != stickOff || f.now.Before(s.src.validFrom) {
		return
	}
	s.src.hear(live, throttle)
}

// disarmed says that the vehicle was disarmed: a stream that only kept it from
// falling ends.
func (s *sticks) disarmed(f stickFacts) {
	s.holdAsked, s.pilots = time.Time{}, keptMode{}
	if s.phase == stickNobody && !f.mode.flownBySticks() {
		s.end(f)
	}
}

// lost says that the link was lost: no hold is owed to a client that fell silent
// in the mode that shows. Whoever flies when it is back is not interrupted.
func (s *sticks) lost(f stickFacts) {
	if f.mode.flownBySticks() {
		s.client, s.holdAsked = time.Time{}, time.Time{}
	}
}

// input takes the client's sticks, to be written at once.
func (s *sticks) input(f stickFacts, a axes, timeout time.Duration) {
	s.begin(stickClient, f)
	s.set(a, f.now)
	s.client, s.until, s.next = f.now, f.now.Add(timeout), f.now.Add(stickEvery)
	s.holdAsked = time.Time{}
	s.acts.send = true
}

// own gives the sticks to a client until then.
func (s *sticks) own(client netip.Addr, until time.Time) { s.from, s.until = client, until }

// held is the client that has the sticks; invalid where none has.
func (s *sticks) held(f stickFacts) netip.Addr {
	if !f.mode.flownBySticks() || s.taken() || !f.now.Before(s.until) || s.src.denied(f.firmware, f.now) != "" {
		return netip.Addr{}
	}
	return s.from
}

// tick moves the sticks on with the time, and tells when it is to be called next;
// zero: they need no time.
func (s *sticks) tick(f stickFacts) (next time.Time) {
	s.src.hearArmed(f.flight != disarmed, f.now)
	if f.busy && s.holdAsked.IsZero() && !s.client.IsZero() { // a client that waits for its answer is not silent
		s.client = f.now
	}
	if s.phase == stickClient && !f.now.Before(s.until) {
		s.park(f)
	}
	switch {
	case s.phase == stickOff:
		return time.Time{}
	case s.phase == stickNobody && s.mayEnd(f):
		s.end(f)
		return time.Time{}
	case s.phase == stickNobody:
		s.park(f)
		s.silence(f)
	}
	if !f.now.Before(s.next) {
		s.next = f.now.Add(stickEvery)
		s.acts.send = !s.paused(f)
	}
	return s.next
}

// mayEnd reports whether the stream that no client moves may end: ArduPilot has a live receiver
// that is in use, or that can take over in a mode without sticks that was set here; or,
// with or without a receiver, the vehicle is disarmed and the client silent for stickIdle.
func (s *sticks) mayEnd(f stickFacts) bool {
	switch {
	case f.entering:
		return false
	case f.online && s.src.live(f.firmware) && (s.src.inUse(f.firmware) || !f.shown().flownBySticks() && !s.taken()):
		return true
	}
	return f.flight == disarmed && !f.busy && f.now.Sub(s.client) >= stickIdle
}

// holdPending reports whether a silent client's hold, or the landing in its place, is
// still to be asked for.
func (s *sticks) holdPending(f stickFacts) bool {
	return !s.holdAsked.IsZero() && (f.mode == ModeManual || f.mode == ModeAltitude)
}

// silence answers a client that fell silent with a hold, in the air and where our
// stream is what flies. In position mode the centred stream is the hold.
func (s *sticks) silence(f stickFacts) {
	if f.mode != ModeManual && f.mode != ModeAltitude {
		s.holdAsked = time.Time{}
		return
	}
	since := f.now.Sub(s.client)
	switch {
	case s.owner != ownerClient || f.flight != aloft || s.client.IsZero() || !f.online || since < silentClient:
	case f.now.Sub(s.holdAsked) < holdAgain:
	case f.firmware == px4 && s.src.denied(px4, f.now) != "": // PX4 obeys a transmitter
	default:
		if s.holdAsked.IsZero() {
			s.acts.notice = fmt.Sprintf("no sticks from the client for %.0f s: holding", since.Seconds())
		}
		s.holdAsked = f.now
		s.acts.hold = true
	}
}

// by is who has the sticks in a stick mode: "client", "receiver", "mavrest" where it sends
// centred ones after somebody else took the drone, or "" for nobody.
func (s *sticks) by(f stickFacts) string {
	switch {
	case !f.mode.flownBySticks():
		return ""
	case s.src.whyNobodyFlies(f.firmware, f.now) != "":
		return ""
	case s.src.denied(f.firmware, f.now) != "", s.phase == stickOff && s.src.receiver != receiverNone:
		return "receiver"
	case s.phase == stickClient:
		return "client"
	case s.phase == stickNobody && s.taken():
		return "mavrest"
	}
	return ""
}
