package main

import (
	"log/slog"
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func (d *drone) stickFacts(now time.Time) stickFacts {
	b := &d.tel.beat
	return stickFacts{
		now: now, firmware: d.firmware, mode: d.machine.mode, custom: b.custom,
		armed: b.armed, aloft: b.armed && d.tel.landed != onGround,
		hears: now.Sub(d.cmd.acks.heard) < 2*askEvery,
	}
}

// actOnSticks does what the sticks ask for.
func (d *drone) actOnSticks() {
	acts := d.sticks.take()
	if acts.notice != "" {
		d.tell(acts.notice)
	}
	if acts.release {
		d.link.move(nil)
		for range 3 { // there is no ack
			d.sayAsPilot(released)
		}
	}
	if acts.send && d.sticks.phase != stickOff {
		if d.tel.beat.armed {
			d.sticks.flown = true
		}
		o := d.pilot(d.sticks.axes)
		d.link.move(&o)
	}
	if d.sticks.phase == stickOff {
		d.link.move(nil)
	}
	if acts.hold && d.cmd.op == nil && d.cmd.next == nil && !d.cmd.stopped {
		d.wg.Go(d.holdForSilent)
	}
}

// pilot is axes as they go out: ArduPilot takes them only from its ground
// station's system.
func (d *drone) pilot(a axes) outgoing {
	m := &common.MessageManualControl{Target: d.tel.id.system, X: a.x, Y: a.y, Z: a.z, R: a.r}
	if d.firmware.ardupilot() {
		return outgoing{system: d.greeting.groundStation(), component: knockID, msg: m}
	}
	return outgoing{msg: m}
}

func (d *drone) sayAsPilot(a axes) {
	o := d.pilot(a)
	d.link.sendAs(o.system, o.component, o.msg)
}

// ready is when the sticks let a step go.
func (d *drone) ready(s *step) time.Time {
	arming, _ := s.arms()
	return d.sticks.ready(s.sticks, d.stickFacts(time.Now()), &d.sources, arming)
}

// input takes the client's sticks and has them written at once. It returns the
// mode that they act in.
func (d *drone) input(in stickInput) (Mode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.able(); err != nil {
		return 0, err
	}
	f := d.stickFacts(time.Now())
	denied := d.sources.denied(d.firmware, f.now)
	op := d.cmd.op
	switch {
	case d.asked.deaf:
		return 0, refuse(codeOffline, "input: the autopilot hears us no more: it has not answered for 10 s; check the wire from the board's TX")
	case op != nil && op.plan.setsMode:
		return 0, refuse(codeWrongMode, "input: a command to enter %s is under way", op.plan.order.mode)
	case !f.mode.flownBySticks():
		return 0, refuse(codeWrongMode, "input: the drone is in mode %s; set manual, altitude or position first", f.mode)
	case d.sticks.taken:
		return 0, refuse(codeWrongMode, "input: the pilot has the sticks; set mode %s here to take them", f.mode)
	case d.firmware == firmwareUnknown:
		return 0, refuse(codeUnsupported, "input: this autopilot is neither PX4 nor ArduPilot Copter or Plane")
	case denied != "":
		return 0, refuse(codeWrongMode, "input: %s", denied)
	case in.throttle == nil && f.mode == ModeManual:
		return 0, refuse(codeOutOfRange, "throttle: it must be given in manual mode, where it is thrust: 0 to 1")
	}
	d.sticks.input(f, &d.sources, in.axes(rest(f)), in.timeout)
	d.actOnSticks()
	d.version.Add(1)
	d.changes.Add(1)
	d.pokeClock()
	return f.mode, nil
}

// stickInput is POST input: each of roll, pitch and yaw −1 to 1, throttle 0 to 1
// or nil.
type stickInput struct {
	roll, pitch, yaw float64
	throttle         *float64
	timeout          time.Duration
}

// axes are the sticks as MANUAL_CONTROL has them; z stands for a throttle that
// was not given.
func (in stickInput) axes(z int16) axes {
	scaled := func(v float64) int16 { return int16(math.Round(v * 1000)) }
	if in.throttle != nil {
		z = scaled(*in.throttle)
	}
	return axes{x: scaled(in.pitch), y: scaled(in.roll), r: scaled(in.yaw), z: z}
}

// farewell is what the vehicle is left with when the program ends after sticks
// (docs/design.md, "SIGTERM in the air").
func (d *drone) farewell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.stickFacts(time.Now())
	s := &d.sticks
	if s.phase == stickOff || !d.online {
		return
	}
	live := d.sources.receiver != receiverNone
	if f.firmware.ardupilot() && f.aloft && f.mode.flownBySticks() && !s.taken {
		r := request{setMode: true, mode: ModeHold}
		if f.firmware == quadPlane && d.greeting.settings().guidedHovers != 1 {
			r.mode = ModeLand
		}
		if p, err := r.plan(d.vehicle(f.now)); err == nil {
			t := &talk{by: d.cmd, last: f.now.Add(farewellFor)}
			result, err := t.transact(&p.steps[len(p.steps)-1])
			slog.Warn("stopping in the air after sticks", "asked_for", r.mode, "answer", inWords(result, err))
		}
	}
	if f.aloft {
		slog.Warn("stopping in the air after sticks: the autopilot's own failsafe for lost sticks may follow", "mode", f.mode)
	}
	switch {
	case f.firmware.ardupilot() && live:
		s.end(f, &d.sources, true)
	case f.mode.flownBySticks() || f.firmware.ardupilot():
		s.set(s.centred(f), f.now)
		s.acts.send = true
	default:
		s.acts.send = true // as they are: moving ones would take the mode back
	}
	d.actOnSticks()
}
