package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Times of the sticks (docs/design.md, "Who has the sticks").
const (
	stickEvery  = 40 * time.Millisecond   // 25 Hz
	stickLead   = 400 * time.Millisecond  // of the stream, before a stick mode is asked for
	stickArms   = 2100 * time.Millisecond // of the stream, before ArduPilot arms on it alone
	stickStill  = 2 * time.Second         // PX4 calls sticks moving for 1.6 s after they moved
	stickIdle   = 5 * time.Second         // a stream that nobody needs ends
	silentAt    = 5 * time.Second         // after the client's last command, in altitude mode
	silentHand  = 2 * time.Second         // the same in manual mode
	holdAgain   = time.Second             // between holds that nobody acknowledged
	lookFor     = 500 * time.Millisecond  // after a release
	overrides   = 3500 * time.Millisecond // until ArduPilot has forgotten a stream that was not released
	foreignFor  = 3 * time.Second         // somebody else's sticks are a source for so long
	stoodFor    = 1500 * time.Millisecond // after it, channels that move are somebody else's
	idleBelow   = 1350                    // µs of RC_CHANNELS 3: nobody's hand is on the receiver
	foreignMove = 50                      // µs
)

// receiverState is what is known of the vehicle's own RC receiver.
type receiverState uint8

const (
	receiverNone   receiverState = iota // never there, lost or unknown
	receiverIdle                        // live, its throttle low
	receiverInHand                      // live, and somebody flies
)

// sources is what is known of who else may move the sticks. PX4 and ArduPilot
// tell it only while no stream of ours runs.
type sources struct {
	opened   time.Time // when the link was opened
	receiver receiverState
	told     bool // the receiver's state was heard
	channels time.Time
	foreign  time.Time // when somebody else's sticks came last

	rcIn        float64 // PX4's COM_RC_IN_MODE, NaN where it did not tell
	gcsFailsafe float64 // ArduPilot's FS_GCS_ENABLE, NaN where it did not tell
	gcsName     string  // of that parameter
	alone       bool    // -gcs: there is no other ground station
}

// denied tells why our sticks can't be the ones; "" where they can.
func (s *sources) denied(f firmware, now time.Time) string {
	if !s.foreign.IsZero() && now.Sub(s.foreign) < foreignFor {
		return "another program moves the sticks of this vehicle"
	}
	if f.ardupilot() {
		if s.gcsFailsafe > 0 && !s.alone {
			return fmt.Sprintf("%s is %g: to the autopilot these sticks are a ground station's heartbeat; set it to 0, or start mavrest with -gcs if there is no other ground station", s.gcsName, s.gcsFailsafe)
		}
		return ""
	}
	in := s.rcIn
	if math.IsNaN(in) {
		in = 3
	}
	switch in {
	case 0, 4:
		return fmt.Sprintf("COM_RC_IN_MODE is %g: PX4 ignores these sticks; set it to 5 to fly by transmitter and API", in)
	case 1, 6, 8:
		return ""
	case 5, 7:
		if !s.channels.IsZero() && now.Sub(s.channels) < foreignFor {
			return fmt.Sprintf("COM_RC_IN_MODE is %g, and the transmitter has the sticks", in)
		}
	}
	if s.receiver != receiverNone {
		return fmt.Sprintf("COM_RC_IN_MODE is %g, and the transmitter was there first; set it to 1, 6 or 8 for these sticks to act", in)
	}
	return ""
}

// stickPhase is what the stick stream does.
type stickPhase uint8

const (
	stickOff     stickPhase = iota // silence
	stickClient                    // the client's sticks, until they expire
	stickCentred                   // nobody's: in a stick mode
	stickParked                    // out of the stick modes: unmoved
)

// axes are the numbers of MANUAL_CONTROL: x forward, y right, r clockwise, each
// ±1000; z thrust 0 to 1000, of which 500 holds the height.
type axes struct{ x, y, z, r int16 }

// released gives ArduPilot's receiver its sticks back.
var released = axes{math.MaxInt16, math.MaxInt16, math.MaxInt16, math.MaxInt16}

// stickFacts is what the sticks must know of the vehicle.
type stickFacts struct {
	now      time.Time
	firmware firmware
	mode     Mode
	custom   uint32
	armed    bool
	aloft    bool // armed, and not known to be on the ground
	online   bool
	hears    bool // the vehicle answered us a moment ago
}

// stickActs is what is to be done for the sticks.
type stickActs struct {
	send    bool   // the axes, now
	release bool   // and the stream has ended
	hold    bool   // command a hold: the client fell silent
	notice  string // to be told
}

// sticks is who has the sticks, the one latest value of them, and what is
// streamed when (docs/design.md, "Who has the sticks"). It has no clock: it is
// told the time and what happened, and take returns what to do.
type sticks struct {
	phase  stickPhase
	axes   axes
	mine   bool      // this process set the stick mode that the vehicle is in
	taken  bool      // a pilot has them until a stick mode is set here again
	lent   bool      // the receiver in hand had them before the client
	flown  bool      // sent while armed: on PX4 silence is now a failsafe in every mode
	warned bool      // that PX4 locks to the first source
	since  time.Time // when the stream began
	moved  time.Time // when axes last changed
	until  time.Time // when the client's sticks expire
	client time.Time // the client's last command
	next   time.Time // when the next frame is due
	quiet  time.Time // from then on a receiver is heard as it is
	wish   time.Time // when a silent client's hold was asked for last
	watch  channelWatch
	acts   stickActs
}

// channelWatch looks at RC_CHANNELS: after a release for nobody's sticks, in a
// stream of ours for somebody else's.
type channelWatch struct {
	until time.Time // of the look after a release
	stood *[4]uint16
	deaf  time.Time // when the vehicle did not hear us: its channels are not ours
}

// take returns what is to be done, once.
func (s *sticks) take() stickActs {
	acts := s.acts
	s.acts = stickActs{}
	return acts
}

// set moves the sticks.
func (s *sticks) set(a axes, now time.Time) {
	if s.axes != a {
		s.axes, s.moved, s.watch.stood = a, now, nil
	}
}

// start makes sure that the stream runs.
func (s *sticks) start(phase stickPhase, now time.Time) {
	if s.phase == stickOff {
		s.since, s.next = now, now
	}
	s.phase = phase
}

// end ends the stream; a release gives a live receiver its sticks back at once.
func (s *sticks) end(release bool, now time.Time) {
	s.phase, s.lent = stickOff, false
	s.quiet = now.Add(overrides)
	if release {
		s.acts.release = true
		s.quiet = now.Add(stickEvery)
	}
}

// rest is the throttle that nobody gave.
func rest(f stickFacts) int16 {
	if f.aloft {
		return 500
	}
	return 0
}

// centred are the sticks of nobody in a mode: in manual mode level, with the
// last throttle, because a centred one would drop it or shoot it up. Disarmed
// there is nothing to drop, and a throttle that stands would forbid arming.
func (s *sticks) centred(f stickFacts, mode Mode) axes {
	if mode == ModeManual && f.armed && s.phase != stickOff {
		return axes{z: s.axes.z}
	}
	return axes{z: rest(f)}
}

// enter brings the stream to where a stick mode can be asked for. A receiver in
// hand keeps the sticks: there is no stream then.
func (s *sticks) enter(f stickFacts, src *sources, mode Mode) {
	s.client = f.now
	if src.denied(f.firmware, f.now) != "" {
		return
	}
	if s.phase == stickOff && f.firmware.ardupilot() && src.receiver == receiverInHand {
		return
	}
	z := s.centred(f, mode)
	if !f.mode.flownBySticks() {
		z = axes{z: rest(f)}
	}
	s.set(z, f.now)
	s.start(stickCentred, f.now)
	s.first(f, src)
}

// run is enter for arming in the stick mode that the vehicle is in.
func (s *sticks) run(f stickFacts, src *sources) {
	if s.phase == stickOff {
		s.enter(f, src, f.mode)
	}
	s.client = f.now
}

// first tells, once, what PX4 makes of its first source of sticks.
func (s *sticks) first(f stickFacts, src *sources) {
	if f.firmware == px4 && !s.warned && (src.rcIn == 3 || math.IsNaN(src.rcIn)) {
		s.warned = true
		s.acts.notice = "COM_RC_IN_MODE is 3: PX4 keeps to these sticks until it restarts, a transmitter's are dead; 5 gives a transmitter the first place"
	}
}

// leave centres the sticks before a plan that leads out of the stick modes.
func (s *sticks) leave(f stickFacts) {
	switch {
	case s.phase == stickClient || s.phase == stickCentred:
		s.set(s.centred(f, f.mode), f.now)
		s.phase = stickParked
	case s.phase == stickOff && s.flown && f.firmware == px4:
		s.start(stickParked, f.now)
	}
}

// ready is when a step may be sent as far as the sticks go.
func (s *sticks) ready(need stickNeed, f stickFacts, src *sources, arming bool) time.Time {
	var at time.Time
	switch {
	case need == sticksLed && s.phase != stickOff:
		lead := stickLead
		if arming && f.firmware.ardupilot() && src.receiver == receiverNone {
			lead = stickArms
		}
		at = s.since.Add(lead)
	case need == sticksStill && s.phase != stickOff && f.firmware == px4:
		at = s.since.Add(stickLead)
		if still := s.moved.Add(stickStill); still.After(at) {
			at = still
		}
	}
	return at
}

// heardBy is from when on the receiver's state counts: a stream of an earlier
// process, or our own, hides it.
func (s *sticks) heardBy(src *sources) time.Time {
	at := src.opened.Add(overrides)
	if s.quiet.After(at) {
		at = s.quiet
	}
	return at
}

// entered says that a stick mode set here was acknowledged.
func (s *sticks) entered(f stickFacts) {
	s.mine, s.taken, s.lent = true, false, false
	s.client, s.wish = f.now, time.Time{}
	if s.phase == stickParked {
		s.phase = stickCentred
	}
}

// left says that a plan out of the stick modes was acknowledged.
func (s *sticks) left(f stickFacts, src *sources) {
	s.mine, s.wish = false, time.Time{}
	if s.phase == stickOff {
		return
	}
	if f.firmware.ardupilot() && src.receiver != receiverNone {
		s.end(true, f.now)
		return
	}
	s.phase = stickParked
}

// stayed says that a plan out of the stick modes, or into one, was not carried
// out: the sticks are nobody's until the client moves them.
func (s *sticks) stayed(f stickFacts) {
	if !f.mode.flownBySticks() { // it was carried out, unacknowledged
		s.mine = false
	}
	if s.phase == stickParked && f.mode.flownBySticks() && !s.taken {
		s.phase = stickCentred
		if s.wish.IsZero() { // else the client is silent already
			s.client = f.now
		}
	}
}

// lookedAt are ArduPilot's modes that sink into the ground under an idle
// receiver: ALT_HOLD, LOITER and POSHOLD, QHOVER and QLOITER.
func lookedAt(f firmware, custom uint32) bool {
	switch f {
	case copter:
		return slices.Contains([]uint32{2, 5, 16}, custom)
	case quadPlane:
		return slices.Contains([]uint32{18, 19}, custom)
	}
	return false
}

// switched says that a pilot or a failsafe set the mode: the client's sticks end.
func (s *sticks) switched(f stickFacts, src *sources) {
	s.mine, s.taken, s.wish = false, true, time.Time{}
	switch {
	case s.phase == stickOff:
	case f.firmware.ardupilot() && src.receiver != receiverNone:
		s.giveBack(f)
	case f.mode.flownBySticks():
		s.set(s.centred(f, f.mode), f.now)
		s.phase = stickCentred
	case f.firmware == px4: // moving sticks would take the mode back
		s.phase = stickParked
	default:
		s.set(axes{z: rest(f)}, f.now)
		s.phase = stickParked
	}
}

// giveBack releases the sticks to the receiver, and looks whether a hand is on it.
func (s *sticks) giveBack(f stickFacts) {
	s.end(true, f.now)
	if f.armed && lookedAt(f.firmware, f.custom) {
		s.watch.until = f.now.Add(lookFor)
	}
}

// foreigner says that somebody else moves the sticks: ours end.
func (s *sticks) foreigner(f stickFacts, src *sources) {
	src.foreign = f.now
	if s.phase == stickOff {
		return
	}
	s.end(false, f.now)
	s.mine, s.taken = false, true
	s.acts.notice = "another program moves the sticks of this vehicle: ours have ended; set the mode again to take them"
}

// hearChannels takes RC_CHANNELS.
func (s *sticks) hearChannels(f stickFacts, src *sources, channel [4]uint16) {
	src.channels = f.now
	switch w := &s.watch; {
	case s.phase == stickOff:
		if f.now.Before(w.until) && f.now.After(s.quiet) && channel[2] < idleBelow {
			s.stepIn(f)
		}
	case !f.hears:
		w.stood, w.deaf = nil, f.now
	case !f.firmware.ardupilot() || f.now.Sub(s.moved) < stoodFor || f.now.Sub(s.since) < stoodFor || f.now.Sub(w.deaf) < stoodFor:
	case w.stood == nil:
		w.stood = &channel
	default:
		for i, v := range channel {
			if d := int(v) - int(w.stood[i]); d > foreignMove || d < -foreignMove {
				s.foreigner(f, src)
				return
			}
		}
	}
}

// hearReceiver takes what SYS_STATUS says of the receiver; throttle is the last
// of RC_CHANNELS, 0 where it is not known.
func (s *sticks) hearReceiver(f stickFacts, src *sources, live bool, throttle uint16) {
	if s.phase != stickOff || f.now.Before(s.heardBy(src)) {
		return
	}
	src.told = true
	switch {
	case !live:
		src.receiver = receiverNone
	case throttle > idleBelow:
		src.receiver = receiverInHand
	default:
		src.receiver = receiverIdle
	}
	if !live && f.now.Before(s.watch.until) {
		s.stepIn(f)
	}
}

// stepIn brings the centred stream back: the receiver that it was released to
// has nobody's hand on it.
func (s *sticks) stepIn(f stickFacts) {
	s.watch.until = time.Time{}
	s.set(axes{z: rest(f)}, f.now)
	s.start(stickCentred, f.now)
	s.client = f.now
	s.acts.notice = "nobody's hand is on the receiver's sticks: centred ones stand in"
}

// disarmed says that the vehicle was disarmed: a stream that only kept it from
// falling ends.
func (s *sticks) disarmed(f stickFacts, src *sources) {
	s.flown, s.wish = false, time.Time{}
	if s.phase == stickParked {
		s.end(f.firmware.ardupilot() && src.receiver != receiverNone, f.now)
	}
}

// restarted forgets everything: the autopilot has.
func (s *sticks) restarted(src *sources, now time.Time) {
	*s = sticks{}
	src.receiver, src.told, src.opened = receiverNone, false, now
	src.channels, src.foreign = time.Time{}, time.Time{}
}

// input takes the client's sticks, to be written at once.
func (s *sticks) input(f stickFacts, src *sources, a axes, timeout time.Duration) {
	if s.phase == stickOff {
		s.lent = f.firmware.ardupilot() && src.receiver == receiverInHand
		s.first(f, src)
	}
	s.start(stickClient, f.now)
	s.set(a, f.now)
	s.client, s.until, s.next = f.now, f.now.Add(timeout), f.now.Add(stickEvery)
	s.wish = time.Time{}
	s.acts.send = true
}

// due is when tick is to be called next; zero: the sticks need no time.
func (s *sticks) due() time.Time {
	if s.phase == stickOff {
		return time.Time{}
	}
	return s.next
}

// tick moves the sticks on with the time. entering is the stick mode that a plan
// is about to enter, ModeOther where there is none.
func (s *sticks) tick(f stickFacts, src *sources, entering Mode) {
	if s.phase == stickClient && !f.now.Before(s.until) {
		if s.lent {
			s.giveBack(f)
		} else {
			s.phase = stickCentred
		}
	}
	switch s.phase {
	case stickOff:
		return
	case stickCentred:
		mode := f.mode
		if entering != ModeOther {
			mode = entering
		}
		s.set(s.centred(f, mode), f.now)
		s.silence(f, src)
	case stickParked:
		if f.firmware != px4 && !f.mode.flownBySticks() {
			s.set(axes{z: rest(f)}, f.now)
		}
	}
	if s.phase != stickOff && !f.now.Before(s.next) {
		s.next = f.now.Add(stickEvery)
		s.acts.send = true
	}
}

// silence answers a client that fell silent: a hold in the air, the stream's end
// on the ground.
func (s *sticks) silence(f stickFacts, src *sources) {
	since := f.now.Sub(s.client)
	if !f.armed {
		if since >= stickIdle {
			s.end(f.firmware.ardupilot() && src.receiver != receiverNone, f.now)
		}
		return
	}
	if !f.online { // the client could not be heard either: it has its time anew
		s.client, s.wish = f.now, time.Time{}
		return
	}
	after := silentAt
	switch f.mode {
	case ModeManual:
		after = silentHand
	case ModeAltitude:
	default:
		return
	}
	if s.mine && f.aloft && since >= after && !f.now.Before(s.until) && f.now.Sub(s.wish) >= holdAgain {
		if s.wish.IsZero() {
			s.acts.notice = fmt.Sprintf("no sticks from the client for %.0f s: holding", since.Seconds())
		}
		s.wish = f.now
		s.acts.hold = true
	}
}

// by is who has the sticks in a stick mode: "client", "receiver", or "" for
// nobody.
func (s *sticks) by(f stickFacts, src *sources) string {
	switch {
	case !f.mode.flownBySticks():
		return ""
	case s.phase == stickClient:
		return "client"
	case src.denied(f.firmware, f.now) != "", s.phase == stickOff && src.receiver != receiverNone:
		return "receiver"
	}
	return ""
}
