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
	stickGone   = time.Second             // PX4 misses sticks 0.6 s after they stop: armed before, it is a failsafe
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
	quiet    time.Time // from then on a receiver is heard as it is
	receiver receiverState
	told     bool // the receiver's state was heard
	first    bool // it was live before our first stick
	ours     bool // a stream of ours ran since the autopilot started
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
	live := s.receiver != receiverNone
	switch in {
	case 0, 4:
		return fmt.Sprintf("COM_RC_IN_MODE is %g: PX4 ignores these sticks; set it to 5 to fly by transmitter and API", in)
	case 1, 6, 8:
		return ""
	case 3: // locked to its first source until it restarts
		live = s.first
	case 5, 7:
		if !s.channels.IsZero() && now.Sub(s.channels) < foreignFor {
			return fmt.Sprintf("COM_RC_IN_MODE is %g, and the transmitter has the sticks", in)
		}
	}
	if live {
		return fmt.Sprintf("COM_RC_IN_MODE is %g, and the transmitter was there first; set it to 1, 6 or 8 for these sticks to act", in)
	}
	return ""
}

// releases reports whether a live receiver takes the sticks that a stream gives
// back: PX4 has no way to give them.
func (s *sources) releases(f firmware) bool {
	return f.ardupilot() && s.receiver != receiverNone
}

// heardBy is from when on the receiver's state counts: a stream of an earlier
// process, or our own, hides it.
func (s *sources) heardBy() time.Time {
	at := s.opened.Add(overrides)
	if s.quiet.After(at) {
		at = s.quiet
	}
	return at
}

// hear takes the receiver's state, told while no stream of ours runs.
func (s *sources) hear(live bool, throttle uint16) {
	s.told = true
	switch {
	case !live:
		s.receiver = receiverNone
	case throttle > idleBelow:
		s.receiver = receiverInHand
	default:
		s.receiver = receiverIdle
	}
	s.first = s.first || live && !s.ours
}

// hearParam takes a parameter of the autopilot's.
func (s *sources) hearParam(name string, v float64) {
	switch name {
	case "COM_RC_IN_MODE":
		s.rcIn = v
	case "FS_GCS_ENABLE", "FS_GCS_ENABL":
		s.gcsFailsafe, s.gcsName = v, name
	}
}

// use says that our stream begins. It tells, once, what PX4 makes of its first
// source of sticks.
func (s *sources) use(f firmware) (notice string) {
	if f == px4 && !s.ours && (s.rcIn == 3 || math.IsNaN(s.rcIn)) {
		notice = "COM_RC_IN_MODE is 3: PX4 keeps to these sticks until it restarts, a transmitter's are dead; 5 gives a transmitter the first place"
	}
	s.ours = true
	return notice
}

// restarted forgets what the autopilot has forgotten.
func (s *sources) restarted(now time.Time) {
	s.opened, s.quiet, s.channels, s.foreign = now, time.Time{}, time.Time{}, time.Time{}
	s.receiver, s.told, s.first, s.ours = receiverNone, false, false, false
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
	aloft    bool          // armed, and not known to be on the ground
	hears    bool          // it answered us a moment ago
	trip     time.Duration // of the line, there and back
	perhaps  bool          // a plan that was not accepted may still have led to a stick mode
}

// stickActs is what is to be done for the sticks.
type stickActs struct {
	send    bool   // the axes, now
	release bool   // and the stream has ended
	hold    bool   // command a hold: the client fell silent
	notice  string // to be told
}

// stickNeed says how the stick stream must be before a command is sent.
type stickNeed uint8

const (
	sticksAnyhow stickNeed = iota
	sticksLed              // it runs for a while: a stick mode is asked for, or arming in one
	sticksStill            // PX4: no axis has moved for a while
)

// stickStream is what is streamed: one latest value, at stickEvery.
type stickStream struct {
	phase stickPhase
	axes  axes
	since time.Time // when it began
	moved time.Time // when axes last changed
	next  time.Time // when the next frame is due
	ended time.Time // when the last stream did
	doubt bool      // nobody knows yet whether the vehicle came into a stick mode
	watch channelWatch
}

func (s *stickStream) set(a axes, now time.Time) {
	if s.axes != a {
		s.axes, s.moved, s.watch.stood = a, now, nil
	}
}

func (s *stickStream) start(phase stickPhase, now time.Time) {
	if s.phase == stickOff {
		s.since, s.next = now, now
		s.watch = channelWatch{}
	}
	s.phase = phase
}

// rest is the throttle that nobody gave.
func rest(f stickFacts) int16 {
	if f.aloft {
		return 500
	}
	return 0
}

// centred are the sticks of nobody: in manual mode level, with the throttle as it
// was, because a centred one would drop the vehicle or shoot it up, until another
// mode is in force. Disarmed there is nothing to drop, and a throttle that stands
// would forbid arming.
func (s *stickStream) centred(f stickFacts) axes {
	if f.mode == ModeManual && f.armed && s.phase != stickOff {
		return axes{z: s.axes.z}
	}
	return axes{z: rest(f)}
}

// led says that the mode that leads out of a stick mode is in force: PX4's POSCTL
// or ALTCTL, in which a throttle left over from manual mode would climb or sink.
func (s *stickStream) led(f stickFacts) {
	s.set(axes{z: rest(f)}, f.now)
}

// away reports whether the stream would move if it were centred.
func (s *stickStream) away(f stickFacts) bool {
	return s.phase != stickOff && s.axes != s.centred(f)
}

// flies reports whether the stream is what flies: in a stick mode, or in one that
// is entered now or may have been.
func (s *stickStream) flies(f stickFacts) bool {
	return f.mode.flownBySticks() || s.phase == stickCentred || s.doubt
}

// ready is when a step may be sent as far as the sticks go.
func (s *stickStream) ready(need stickNeed, f stickFacts, receiver receiverState, arming bool) time.Time {
	var at time.Time
	switch {
	case need == sticksLed && s.phase != stickOff:
		lead := stickLead
		if arming && f.firmware.ardupilot() && receiver == receiverNone {
			lead = stickArms
		}
		at = s.since.Add(lead)
	case need == sticksStill && s.phase != stickOff && f.firmware == px4:
		at = s.since.Add(stickLead)
		if still := s.moved.Add(stickStill); still.After(at) {
			at = still
		}
	}
	if gone := s.ended.Add(stickGone); arming && s.phase == stickOff && f.firmware == px4 && gone.After(at) {
		at = gone
	}
	return at
}

// due is when tick is to be called next; zero: the sticks need no time.
func (s *stickStream) due() time.Time {
	if s.phase == stickOff {
		return time.Time{}
	}
	return s.next
}

// channelWatch looks at RC_CHANNELS: after a release for nobody's sticks, in a
// stream of ours for somebody else's.
type channelWatch struct {
	until time.Time // of the look after a release
	stood *[4]uint16
	deaf  time.Time // when the vehicle did not hear us: then its channels are not ours
}

// moves reports whether the channels move while our axes stand.
func (w *channelWatch) moves(channel [4]uint16) bool {
	if w.stood == nil {
		w.stood = &channel
	}
	for i, v := range channel {
		if d := int(v) - int(w.stood[i]); d > foreignMove || d < -foreignMove {
			return true
		}
	}
	return false
}

// sticks is who has the sticks, the one latest value of them, and what is
// streamed when (docs/design.md, "Who has the sticks"). It has no clock: it is
// told the time and what happened, and take returns what to do.
type sticks struct {
	stickStream
	src    sources
	mine   bool      // this process set the stick mode that the vehicle is in
	taken  bool      // a pilot has them until a stick mode is set here again
	lent   bool      // the receiver in hand had them before the client
	flown  bool      // sent while armed: on PX4 silence is now a failsafe in every mode
	until  time.Time // when the client's sticks expire
	client time.Time // the client's last command; zero: its silence means nothing
	wish   time.Time // when a silent client's hold was asked for last
	acts   stickActs
}

// take returns what is to be done, once.
func (s *sticks) take() stickActs {
	acts := s.acts
	s.acts = stickActs{}
	return acts
}

// end ends the stream. A release gives a live receiver its sticks back at once,
// and looks whether a hand is on it.
func (s *sticks) end(f stickFacts, release bool) {
	s.phase, s.lent, s.doubt, s.ended = stickOff, false, false, f.now
	s.src.quiet = f.now.Add(overrides)
	if release {
		s.acts.release = true
		s.src.quiet = f.now.Add(stickEvery + f.trip) // what our own were is on the line until then
		if f.armed {
			s.watch.until = f.now.Add(lookFor + f.trip)
		}
	}
}

func (s *sticks) begin(phase stickPhase, f stickFacts) {
	if notice := s.src.use(f.firmware); notice != "" {
		s.acts.notice = notice
	}
	s.start(phase, f.now)
}

// enter brings the stream to where a stick mode can be asked for. A receiver in
// hand keeps the sticks: there is no stream then.
func (s *sticks) enter(f stickFacts) {
	s.client = f.now
	switch {
	case s.src.denied(f.firmware, f.now) != "":
	case f.firmware.ardupilot() && s.src.receiver == receiverInHand:
		if s.phase != stickOff {
			s.end(f, true)
		}
	default:
		s.set(s.centred(f), f.now)
		s.begin(stickCentred, f)
	}
}

// run is enter for arming in the stick mode that the vehicle is in.
func (s *sticks) run(f stickFacts) {
	if s.phase == stickOff {
		s.enter(f)
	}
	s.client = f.now
}

// leave centres the sticks before a plan that leads out of the stick modes.
func (s *sticks) leave(f stickFacts) {
	if !f.armed {
		s.client = f.now
	}
	again := s.phase == stickOff && s.flown && f.firmware == px4 && s.src.denied(px4, f.now) == ""
	if !again && s.phase != stickClient && s.phase != stickCentred {
		return
	}
	if f.mode.flownBySticks() { // else PX4 would call them moving
		s.set(s.centred(f), f.now)
	}
	s.begin(stickParked, f)
}

// entered says that a stick mode set here was acknowledged.
func (s *sticks) entered(f stickFacts) {
	s.mine, s.taken, s.doubt = true, false, false
	s.client, s.wish = f.now, time.Time{}
	if s.phase == stickParked {
		s.phase = stickCentred
	}
}

// left says that a plan out of the stick modes was acknowledged.
func (s *sticks) left(f stickFacts) {
	s.mine, s.doubt, s.wish = false, false, time.Time{}
	switch {
	case s.phase == stickOff:
	case s.src.releases(f.firmware):
		s.end(f, true)
	default:
		s.phase = stickParked
	}
}

// stayed says that a plan out of the stick modes, or into one, ended without
// changing the mode: the sticks are nobody's until the client moves them.
func (s *sticks) stayed(f stickFacts) {
	s.doubt = !f.mode.flownBySticks() && f.perhaps && s.phase != stickOff
	switch {
	case s.doubt: // it would fall without the stream
		s.phase = stickParked
	case !f.mode.flownBySticks(): // also: it was carried out, unacknowledged
		s.left(f)
	case s.phase != stickParked:
	case s.lent:
		s.end(f, true)
	default:
		s.phase = stickCentred
		if s.wish.IsZero() && !s.client.IsZero() { // else the client is silent already
			s.client = f.now
		}
	}
}

// lookedAt are ArduPilot's modes that sink into the ground under an idle
// receiver: ALT_HOLD, LOITER and POSHOLD, QHOVER and QLOITER.
var lookedAt = map[firmware][]uint32{copter: {2, 5, 16}, quadPlane: {18, 19}}

// switched says that a pilot or a failsafe set the mode: the client's sticks end.
func (s *sticks) switched(f stickFacts) {
	s.mine, s.taken, s.doubt, s.wish = false, true, false, time.Time{}
	switch {
	case s.phase == stickOff:
	case s.src.releases(f.firmware):
		s.end(f, true)
	case f.mode.flownBySticks():
		s.set(s.centred(f), f.now)
		s.phase = stickCentred
	case f.firmware == px4: // moving sticks would take the mode back
		s.phase = stickParked
	default:
		s.set(s.centred(f), f.now)
		s.phase = stickParked
	}
}

// foreigner says that somebody else moves the sticks: ours end.
func (s *sticks) foreigner(f stickFacts) {
	s.src.foreign = f.now
	if s.phase == stickOff {
		return
	}
	s.end(f, false)
	s.mine, s.taken = false, true
	s.acts.notice = "another program moves the sticks of this vehicle: ours have ended; set the mode again to take them"
}

// hearChannels takes RC_CHANNELS.
func (s *sticks) hearChannels(f stickFacts, channel [4]uint16) {
	s.src.channels = f.now
	switch {
	case s.phase == stickOff:
		looks := f.now.Before(s.watch.until) && f.now.After(s.src.quiet)
		if looks && slices.Contains(lookedAt[f.firmware], f.custom) && channel[2] < idleBelow {
			s.src.receiver = receiverIdle
			s.stepIn(f)
		}
	case !f.hears:
		s.watch.stood, s.watch.deaf = nil, f.now
	case !f.firmware.ardupilot() || f.now.Sub(s.moved) < stoodFor || f.now.Sub(s.since) < stoodFor || f.now.Sub(s.watch.deaf) < stoodFor:
	case s.watch.moves(channel):
		s.foreigner(f)
	}
}

// hearReceiver takes what SYS_STATUS says of the receiver; throttle is the last
// of RC_CHANNELS, 0 where it is not known.
func (s *sticks) hearReceiver(f stickFacts, live bool, throttle uint16) {
	if s.phase != stickOff || f.now.Before(s.src.heardBy()) {
		return
	}
	s.src.hear(live, throttle)
	if !live && f.now.Before(s.watch.until) {
		s.stepIn(f)
	}
}

// stepIn brings the stream back: the receiver that it was released to has
// nobody's hand on it, or is gone.
func (s *sticks) stepIn(f stickFacts) {
	z := rest(f)
	phase := stickParked
	if f.mode.flownBySticks() {
		phase = stickCentred
		if f.mode == ModeManual {
			z = s.axes.z
		}
	}
	s.set(axes{z: z}, f.now)
	s.start(phase, f.now)
	s.client = f.now
	s.acts.notice = "nobody's hand is on the receiver's sticks: centred ones stand in"
}

// disarmed says that the vehicle was disarmed: a stream that only kept it from
// falling ends.
func (s *sticks) disarmed(f stickFacts) {
	s.flown, s.wish = false, time.Time{}
	if s.phase == stickParked {
		s.end(f, s.src.releases(f.firmware))
	}
}

// lost says that the link was lost: no hold is owed to a client that fell silent.
func (s *sticks) lost() { s.client, s.wish = time.Time{}, time.Time{} }

// input takes the client's sticks, to be written at once.
func (s *sticks) input(f stickFacts, a axes, timeout time.Duration) {
	if s.phase == stickOff {
		s.lent = f.firmware.ardupilot() && s.src.receiver == receiverInHand
	}
	s.begin(stickClient, f)
	s.set(a, f.now)
	s.client, s.until, s.next = f.now, f.now.Add(timeout), f.now.Add(stickEvery)
	s.wish = time.Time{}
	s.acts.send = true
}

// tick moves the sticks on with the time.
func (s *sticks) tick(f stickFacts) {
	if s.phase == stickClient && !f.now.Before(s.until) {
		s.phase = stickCentred
		if s.lent {
			s.end(f, true)
		}
	}
	if s.doubt && f.mode.flownBySticks() {
		s.entered(f)
	} else if s.doubt && !f.perhaps && s.phase == stickParked {
		s.left(f)
	}
	idle := !f.armed && f.now.Sub(s.client) >= stickIdle
	switch {
	case s.phase == stickOff:
		return
	case s.phase != stickClient && idle:
		s.end(f, s.src.releases(f.firmware))
		return
	case s.phase == stickCentred:
		s.set(s.centred(f), f.now)
		s.silence(f)
	case s.phase == stickParked && f.firmware != px4: // there moving sticks would take the mode back
		s.set(s.centred(f), f.now)
	}
	if !f.now.Before(s.next) {
		s.next = f.now.Add(stickEvery)
		s.acts.send = true
	}
}

// silence answers a client that fell silent with a hold, in the air and where our
// stream is what flies.
func (s *sticks) silence(f stickFacts) {
	after := silentAt
	switch f.mode {
	case ModeManual:
		after = silentHand
	case ModeAltitude:
	default:
		return
	}
	since := f.now.Sub(s.client)
	switch {
	case !s.mine || !f.aloft || s.client.IsZero() || since < after:
	case f.now.Sub(s.wish) < holdAgain:
	case f.firmware == px4 && s.src.denied(px4, f.now) != "": // PX4 obeys a transmitter
	default:
		if s.wish.IsZero() {
			s.acts.notice = fmt.Sprintf("no sticks from the client for %.0f s: holding", since.Seconds())
		}
		s.wish = f.now
		s.acts.hold = true
	}
}

// by is who has the sticks in a stick mode: "client", "receiver", or "" for
// nobody.
func (s *sticks) by(f stickFacts) string {
	switch {
	case !f.mode.flownBySticks():
		return ""
	case s.src.denied(f.firmware, f.now) != "", s.phase == stickOff && s.src.receiver != receiverNone:
		return "receiver"
	case s.phase == stickClient:
		return "client"
	}
	return ""
}
