package main

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// facts is what the sticks must know of the vehicle now.
func (d *drone) facts(now time.Time) stickFacts {
	b, t := &d.tel.beat, d.cmd.current()
	f := stickFacts{
		now: now, online: d.online, firmware: d.firmware(), mode: d.machine.mode, custom: b.custom,
		trip:     d.cmd.acks.trip,
		busy:     len(d.cmd.tasks) > 0,
		entering: t != nil && t.request.entersSticks() || d.machine.claimed(now, func(to *order) bool { return to.mode.flownBySticks() }) >= 0,
	}
	switch {
	case b.armed && d.tel.landedNow(now) != onGround:
		f.flight = aloft
	case b.armed:
		f.flight = armedOnGround
	}
	return f
}

// act does what the sticks ask for, but for what needs a plan: that it reports.
func (d *drone) act() stickActs {
	acts := d.sticks.take()
	if acts.notice != "" {
		d.notify(acts.notice)
	}
	if acts.release {
		d.link.move(nil)
		o := d.outgoing(released)
		for range 3 { // there is no ack
			d.link.sendAs(o.system, o.component, o.msg)
		}
	}
	if acts.send && d.sticks.phase != stickOff {
		if !d.cmd.reports.keeps() { // they move only while the mode is known
			d.sticks.sent = d.sticks.axes
		}
		o := d.outgoing(d.sticks.sent)
		d.link.move(&o)
	}
	if d.sticks.phase == stickOff {
		d.link.move(nil)
	}
	return acts
}

// outgoing is axes as they go out: ArduPilot takes them only from its ground
// station's system. The component is ours: a router that learned that we are
// its ground station's would keep the real one's messages from us.
func (d *drone) outgoing(a axes) outgoing {
	m := &common.MessageManualControl{Target: d.tel.id.system, X: a.x, Y: a.y, Z: a.z, R: a.r}
	if d.firmware().ardupilot() {
		return outgoing{system: d.params.groundStation(), msg: m}
	}
	return outgoing{msg: m}
}

// hearParam takes a parameter.
func (d *drone) hearParam(m *common.MessageParamValue) {
	if v, ours := d.params.hear(m); ours {
		d.sticks.src.hearParam(m.ParamId, v)
		d.speakAsStation()
	}
}

// warnings are what a pilot must know of how this PX4 is set, before he needs it.
func (d *drone) warnings() (list []string) {
	if d.firmware() != px4 {
		return nil
	}
	if why := d.sticks.src.noSticks(); why != "" {
		list = append(list, why)
	}
	if why := d.sticks.src.deafens(); why != "" && d.sticks.phase != stickOff {
		list = append(list, why)
	}
	if !d.sticks.src.movementOverrides(px4) {
		return list
	}
	// A switch that is undone stands for 40 ms at most (docs/autopilots.md, "PX4: moving
	// sticks and a pilot").
	switch baud := d.link.state().baud; {
	case d.handshake.refusedLive():
		list = append(list, "this PX4 does not report its mode live: a pilot's switch that the client's moving sticks undo does not show; set COM_RC_OVERRIDE to 0")
	case baud > 0 && baud < 921600:
		list = append(list, fmt.Sprintf("at %d baud a pilot's switch that the client's moving sticks undo rarely shows: set COM_RC_OVERRIDE to 0, or the line to 921600 baud", baud))
	}
	return list
}

// warn tells each warning once, until the autopilot restarts. What the vehicle has not
// answered by the end of the handshake has its default, and an unknown version is old.
func (d *drone) warn() {
	if !d.online || !d.handshake.over(time.Now()) {
		return
	}
	for _, text := range d.warnings() {
		if !slices.Contains(d.warned, text) {
			d.warned = append(d.warned, text)
			d.notify(text)
		}
	}
}

// hearReceiver takes what SYS_STATUS tells of the receiver.
func (d *drone) hearReceiver(now time.Time) {
	tel := &d.tel
	if tel.health.at.IsZero() {
		return
	}
	live, throttle := tel.health.receiverLive(), uint16(0)
	if tel.rc.within(freshFor, now) {
		throttle = tel.rc.channel[2]
		if live && d.firmware().ardupilot() && !tel.rc.at.After(d.sticks.src.validFrom) { // of our own stream
			return
		}
	}
	d.sticks.hearReceiver(d.facts(now), live, throttle)
	d.act()
}

// stickInput is POST input: each of roll, pitch and yaw −1 to 1, throttle 0 to 1
// or nil.
type stickInput struct {
	roll, pitch, yaw float64
	throttle         *float64
	timeout          time.Duration
	from             netip.Addr // the client
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

// input takes the client's sticks and has them written at once. It returns the mode
// that they act in.
func (d *drone) input(in stickInput) (Mode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.able(); err != nil {
		return 0, err
	}
	if t := d.cmd.current(); t != nil && t.request.setMode {
		return 0, refuse(codeWrongMode, "input: a command to enter %s is under way", t.request.mode)
	}
	f := d.facts(time.Now())
	denied := d.sticks.src.denied(f.firmware, f.now)
	stick, held := f.mode.flownBySticks(), d.sticks.held(f)
	switch {
	case f.firmware == firmwareUnknown:
		return 0, refuse(codeUnsupported, "input: this autopilot is neither PX4 nor ArduPilot Copter or Plane")
	case denied != "": // no mode that is set here can help
		return 0, refuse(codeWrongMode, "input: %s", denied)
	case stick && d.sticks.taken():
		return 0, refuse(codeWrongMode, "input: a pilot, a failsafe or another program took the sticks; set mode %s here to take them back", f.mode)
	case !stick && d.sticks.taken() && d.machine.order == nil: // nobody set the mode here since
		return 0, refuse(codeWrongMode, "input: a pilot, a failsafe or another program took the drone, which is in mode %s; set manual, altitude or position here to take the sticks", f.mode)
	case !stick:
		return 0, refuse(codeWrongMode, "input: the drone is in mode %s; set manual, altitude or position first", f.mode)
	case f.flight != disarmed && !f.shown().flownBySticks(): // PX4 would take sticks that move now for a pilot's
		return 0, refuse(codeWrongMode, "input: the vehicle does not show mode %s yet", f.mode)
	case held.IsValid() && held != in.from:
		return 0, refuse(codeWrongMode, "another client (%s) has the sticks; set the mode to take them", held)
	case !d.sticks.src.known && d.sticks.phase == stickOff && f.now.Before(d.receiverDeadline()):
		return 0, refuse(codeWrongMode, "input: it is not known yet whether a receiver has the sticks; try again in a few seconds")
	case in.throttle == nil && f.mode == ModeManual:
		return 0, refuse(codeOutOfRange, "throttle: it must be given in manual mode, where it is thrust: 0 to 1")
	}
	d.sticks.input(f, in.axes(rest(f)), in.timeout)
	d.sticks.own(in.from, f.now.Add(in.timeout))
	d.act()
	d.changes.Add(1)
	d.clock.poke()
	return f.mode, nil
}

// receiverDeadline is when the receiver's state must have been heard.
func (d *drone) receiverDeadline() time.Time {
	return d.sticks.src.validFrom.Add(receiverTold + d.cmd.acks.trip)
}

// restartSticks says that the autopilot has started again. ArduPilot may have done so
// in the air: what kept it from falling goes on, for nobody, until it is disarmed or
// a pilot takes it.
func (d *drone) restartSticks(now time.Time) {
	f, was := d.facts(now), d.sticks
	d.sticks = sticks{src: was.src}
	d.sticks.src.restarted(now)
	if f.flight != disarmed && was.phase != stickOff && f.firmware.ardupilot() && !was.src.inUse(f.firmware) {
		d.sticks.owner, d.sticks.phase, d.sticks.src.receiver = ownerPilot, stickNobody, was.src.receiver
		d.sticks.src.validFrom = was.src.validFrom // our stream hides the receiver, and its end tells until when
		d.sticks.axes, d.sticks.since, d.sticks.moved, d.sticks.next = was.axes, was.since, was.moved, was.next
	}
	d.act()
}

// leaveSticks is what the sticks are left as when the program ends (docs/design.md,
// "SIGTERM in the air").
func (d *drone) leaveSticks(f stickFacts) {
	if d.sticks.src.live(f.firmware) {
		d.sticks.end(f)
	} else {
		if f.flight == aloft {
			slog.Warn("stopping in the air after sticks: the autopilot's own failsafe for lost sticks may follow", "mode", f.mode)
		}
		d.sticks.park(f)
		d.sticks.acts.send = true
	}
	d.act()
}
