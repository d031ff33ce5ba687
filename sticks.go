package main

import (
	"log/slog"
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// stickPhase is what the stick stream does.
type stickPhase uint8

const (
	stickOff     stickPhase = iota // silence
	stickClient                    // the client's sticks, until they expire
	stickCentred                   // nobody's: in a stick mode
	stickParked                    // out of the stick modes: unmoved until disarmed
)

// axes are the numbers of MANUAL_CONTROL: x forward, y right, r clockwise, each
// ±1000; z thrust 0 to 1000, of which 500 holds the height.
type axes struct{ x, y, z, r int16 }

// sticks is the one latest value of the sticks and its life (DESIGN.md, "Sticks").
type sticks struct {
	phase  stickPhase
	axes   axes
	moved  time.Time // when axes last changed
	since  time.Time // when the stream began
	until  time.Time // when the client's sticks expire
	client time.Time // the client's last command
	parked time.Time
	next   time.Time // when the next frame is due
	flown  bool      // sent while armed: on PX4 silence is now a failsafe in every mode
}

// set moves the sticks.
func (s *sticks) set(a axes, now time.Time) {
	if s.axes != a {
		s.axes, s.moved = a, now
	}
}

// start makes sure that the stream runs.
func (s *sticks) start(phase stickPhase, now time.Time) {
	if s.phase == stickOff {
		s.since, s.next = now, now
	}
	s.phase = phase
}

// landed says that the vehicle was disarmed.
func (s *sticks) landed() {
	s.flown = false
	if s.phase == stickParked {
		s.phase = stickOff
	}
}

// restThrottle is the throttle that nobody gave.
func (l *link) restThrottle() int16 {
	if l.tel.aloft() {
		return 500
	}
	return 0
}

// centred are the sticks of nobody in a mode: in manual mode level, with the
// last throttle, because a centred one would drop it or shoot it up. Disarmed
// there is nothing to drop, and a throttle that stands would forbid arming.
func (l *link) centred(mode Mode) axes {
	if mode == ModeManual && l.tel.armedNow {
		return axes{z: l.stick.axes.z}
	}
	return axes{z: l.restThrottle()}
}

// prepareSticks brings the stream to where a plan needs it. l.mu is held.
func (l *link) prepareSticks(p plan, now time.Time) {
	s := &l.stick
	switch p.sticks {
	case sticksEnter:
		if s.phase == stickOff || !l.machine.mode.flownBySticks() || p.mode != ModeManual {
			s.set(axes{z: l.restThrottle()}, now)
		} else {
			s.set(l.centred(l.machine.mode), now)
		}
		s.start(stickCentred, now)
		s.client = now
	case sticksRun:
		if s.phase == stickOff {
			s.set(axes{z: l.restThrottle()}, now)
			s.start(stickCentred, now)
		}
		s.client = now
	case sticksLeave:
		switch {
		case s.phase == stickClient || s.phase == stickCentred:
			s.set(l.centred(l.machine.mode), now)
			s.start(stickParked, now)
			s.parked = now
		case s.phase == stickOff && s.flown:
			s.start(stickParked, now)
			s.parked = now
		}
	}
	l.pokeClock()
}

// awaitSticks waits until the stick stream is as the plan's first step needs
// it, and knocks.
func (l *link) awaitSticks(op *operation) error {
	l.mu.Lock()
	s := &l.stick
	now := time.Now()
	var wait time.Duration
	switch {
	case op.plan.sticks == sticksEnter || op.plan.sticks == sticksRun:
		wait = s.since.Add(stickLead).Sub(now)
	case op.plan.sticks == sticksLeave && s.phase != stickOff && l.tel.firmware == px4:
		wait = max(s.since.Add(stickLead).Sub(now), s.moved.Add(stickStill).Sub(now))
	}
	l.mu.Unlock()
	if wait > 0 {
		if err := l.pause(op, wait); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tel.firmware == px4 {
		l.knock()
	}
	return nil
}

// steer moves the sticks on with the time and writes them when they are due.
// It reports whether the stream runs. l.mu is held.
func (l *link) steer(now time.Time) bool {
	s := &l.stick
	mode := l.machine.mode
	busy := l.op != nil && l.op.busy && l.op.plan.setsMode
	if !busy {
		l.followMode(mode, now)
	}
	if s.phase == stickClient && !now.Before(s.until) {
		s.phase = stickCentred
		l.version.Add(1)
	}
	entering := busy && l.op.plan.sticks == sticksEnter
	switch {
	case s.phase == stickCentred && entering:
		s.set(l.centred(l.op.plan.mode), now)
	case s.phase == stickCentred:
		s.set(l.centred(mode), now)
		// A centred drone drifts here: the autopilot's own failsafe takes over.
		if mode != ModePosition && now.Sub(s.client) >= stickSilent && now.Sub(s.until) >= stickCentre {
			slog.Warn("no sticks from the client for 5 s: the stick stream ends", "mode", mode)
			s.phase = stickOff
		}
	case s.phase == stickParked && l.tel.firmware != px4 && !busy:
		s.set(axes{z: l.restThrottle()}, now)
	}
	if s.phase == stickOff {
		return false
	}
	if !now.Before(s.next) {
		s.next = now.Add(stickEvery)
		l.signalSticks()
	}
	return true
}

// followMode makes the stream fit a mode that changed without a command, and
// picks it up where a command left it.
func (l *link) followMode(mode Mode, now time.Time) {
	s := &l.stick
	switch s.phase {
	case stickClient, stickCentred:
		if mode.flownBySticks() {
			return
		}
		// On PX4 sticks that move now would take the mode back from the pilot
		// or the failsafe that set it.
		if l.tel.firmware != px4 {
			s.set(axes{z: l.restThrottle()}, now)
		}
		s.phase, s.parked = stickParked, now
	case stickParked:
		if mode.flownBySticks() {
			s.phase, s.client = stickCentred, now
		} else if !l.tel.armed && now.Sub(s.parked) > followTime {
			s.phase = stickOff
		}
	}
}

func (l *link) signalSticks() {
	if l.conn != nil {
		select {
		case l.conn.sticks <- struct{}{}:
		default: // the writer has not taken the last one: it will write the newest
		}
	}
}

// stickMessage is the sticks as they are now. ArduPilot takes them only from
// its ground station's system. l.mu is held.
func (l *link) stickMessage(m *common.MessageManualControl) (outgoing, bool) {
	s := &l.stick
	if s.phase == stickOff || l.tel.system == 0 {
		return outgoing{}, false
	}
	if l.tel.armedNow {
		s.flown = true
	}
	*m = common.MessageManualControl{Target: l.tel.system, X: s.axes.x, Y: s.axes.y, Z: s.axes.z, R: s.axes.r}
	if l.tel.firmware.ardupilot() {
		return outgoing{l.gcsID, knockComponentID, m}, true
	}
	return outgoing{l.ourSystem(), componentID, m}, true
}

// lastSticks is what the vehicle is left with when the link shuts down: nobody's
// sticks, if the client's were still standing. l.mu is held.
func (l *link) lastSticks(m *common.MessageManualControl) (outgoing, bool) {
	if l.stick.phase == stickClient {
		l.stick.set(l.centred(l.machine.mode), time.Now())
	}
	return l.stickMessage(m)
}

// stickInput is POST input: each of roll, pitch and yaw −1 to 1, throttle 0 to
// 1 or nil, timeout in seconds.
type stickInput struct {
	roll, pitch, yaw float64
	throttle         *float64
	timeout          time.Duration
}

// input takes the client's sticks and has them written at once. It returns the
// mode that they act in.
func (l *link) input(in stickInput) (Mode, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return 0, err
	}
	mode := l.machine.mode
	switch {
	case !mode.flownBySticks():
		return 0, refuse(codeWrongMode, "input: the drone is in mode %s; set manual, altitude or position first", mode)
	case l.op != nil && l.op.busy && l.op.plan.setsMode:
		return 0, refuse(codeWrongMode, "input: a command to enter %s is under way", l.op.plan.mode)
	case l.tel.firmware == firmwareUnknown:
		return 0, refuse(codeUnsupported, "input: this autopilot is neither PX4 nor ArduPilot Copter or Plane")
	}
	z := l.restThrottle()
	if in.throttle != nil {
		z = int16(math.Round(*in.throttle * 1000))
	} else if mode == ModeManual {
		return 0, refuse(codeOutOfRange, "throttle: it must be given in manual mode, where it is thrust: 0 to 1")
	}
	now := time.Now()
	s := &l.stick
	s.start(stickClient, now)
	s.set(axes{
		x: int16(math.Round(in.pitch * 1000)),
		y: int16(math.Round(in.roll * 1000)),
		z: z,
		r: int16(math.Round(in.yaw * 1000)),
	}, now)
	s.client, s.until, s.next = now, now.Add(in.timeout), now.Add(stickEvery)
	l.signalSticks()
	l.version.Add(1)
	l.pokeClock()
	return mode, nil
}
