package main

import (
	"log/slog"
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// hands do what the sticks ask for: they have frames of them sent, and tell the
// user.
type hands struct {
	sticks
	craft  *aircraft
	link   *link
	acks   *acks
	params *parameters
}

func (h *hands) facts(now time.Time) stickFacts {
	b := &h.craft.tel.beat
	return stickFacts{
		now: now, firmware: h.craft.firmware, mode: h.craft.machine.mode, custom: b.custom,
		armed: b.armed, aloft: b.armed && h.craft.tel.stands(now) != onGround,
		hears: now.Sub(h.acks.heard) < 2*askEvery, trip: h.acks.trip,
		perhaps: !h.craft.online || h.craft.machine.perhaps(h.craft.firmware),
	}
}

// act does what the sticks ask for, but for a hold: that it reports.
func (h *hands) act() (hold bool) {
	acts := h.take()
	if acts.notice != "" {
		h.craft.tell(acts.notice)
	}
	if acts.release {
		h.link.move(nil)
		o := h.outgoing(released)
		for range 3 { // there is no ack
			h.link.sendAs(o.system, o.component, o.msg)
		}
	}
	if acts.send && h.phase != stickOff {
		if h.craft.tel.beat.armed {
			h.flown = true
		}
		o := h.outgoing(h.axes)
		h.link.move(&o)
	}
	if h.phase == stickOff {
		h.link.move(nil)
	}
	return acts.hold
}

// outgoing is axes as they go out: ArduPilot takes them only from its ground
// station's system.
func (h *hands) outgoing(a axes) outgoing {
	m := &common.MessageManualControl{Target: h.craft.tel.id.system, X: a.x, Y: a.y, Z: a.z, R: a.r}
	if h.craft.firmware.ardupilot() {
		return outgoing{system: h.params.groundStation(), component: knockID, msg: m}
	}
	return outgoing{msg: m}
}

// hear takes what tells of the receiver.
func (h *hands) hear(m message.Message, now time.Time) {
	tel := &h.craft.tel
	switch m.(type) {
	case *common.MessageSysStatus:
		if tel.health.at.IsZero() {
			return
		}
		live, throttle := tel.health.receiverLive(), uint16(0)
		if tel.rc.within(freshFor, now) {
			throttle = tel.rc.channel[2]
			if live && h.craft.firmware.ardupilot() && !tel.rc.at.After(h.src.heardBy()) { // of our own stream
				return
			}
		}
		h.hearReceiver(h.facts(now), live, throttle)
	case *common.MessageRcChannels:
		h.hearChannels(h.facts(now), tel.rc.channel)
	}
	h.act()
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

// fly takes the client's sticks and has them written at once. It returns the
// mode that they act in.
func (h *hands) fly(in stickInput) (Mode, error) {
	f := h.facts(time.Now())
	denied := h.src.denied(f.firmware, f.now)
	switch {
	case !f.mode.flownBySticks():
		return 0, refuse(codeWrongMode, "input: the drone is in mode %s; set manual, altitude or position first", f.mode)
	case h.taken:
		return 0, refuse(codeWrongMode, "input: the pilot has the sticks; set mode %s here to take them", f.mode)
	case f.firmware == firmwareUnknown:
		return 0, refuse(codeUnsupported, "input: this autopilot is neither PX4 nor ArduPilot Copter or Plane")
	case denied != "":
		return 0, refuse(codeWrongMode, "input: %s", denied)
	case !h.src.told && h.phase == stickOff && f.now.Before(h.toldBy()):
		return 0, refuse(codeWrongMode, "input: it is not known yet whether a receiver has the sticks; try again in a few seconds")
	case in.throttle == nil && f.mode == ModeManual:
		return 0, refuse(codeOutOfRange, "throttle: it must be given in manual mode, where it is thrust: 0 to 1")
	}
	h.input(f, in.axes(rest(f)), in.timeout)
	h.act()
	return f.mode, nil
}

// toldBy is when the receiver's state must have been heard.
func (h *hands) toldBy() time.Time { return h.src.heardBy().Add(receiverTold + h.acks.trip) }

// restarted says that the autopilot has started again. ArduPilot may have done so
// in the air: what kept it from falling goes on, for nobody, until it is disarmed or
// a pilot takes it.
func (h *hands) restarted(now time.Time) {
	f, stream, receiver := h.facts(now), h.stickStream, h.src.receiver
	h.sticks = sticks{src: h.src}
	h.src.restarted(now)
	if f.armed && stream.phase != stickOff && f.firmware.ardupilot() && receiver != receiverInHand {
		h.stickStream, h.taken, h.src.receiver = stream, true, receiver
		h.phase = stickCentred
	}
	h.act()
}

// farewell is what the sticks are left as when the program ends (docs/design.md,
// "SIGTERM in the air").
func (h *hands) farewell(f stickFacts) {
	if f.aloft {
		slog.Warn("stopping in the air after sticks: the autopilot's own failsafe for lost sticks may follow", "mode", f.mode)
	}
	switch {
	case h.src.releases(f.firmware):
		h.end(f, true)
	case f.mode.flownBySticks() || f.firmware.ardupilot():
		h.set(h.centred(f), f.now)
		h.acts.send = true
	default:
		h.acts.send = true // as they are: moving ones would take the mode back
	}
	h.act()
}
