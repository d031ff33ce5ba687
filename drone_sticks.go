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
	cmd    *commander
}

func (h *hands) facts(now time.Time) stickFacts {
	b, t := &h.craft.tel.beat, h.cmd.current
	return stickFacts{
		now: now, firmware: h.craft.firmware, mode: h.craft.machine.mode, custom: b.custom,
		online: h.craft.online, armed: b.armed, failsafe: b.failsafe, aloft: b.armed && h.craft.tel.stands(now) != onGround,
		hears: now.Sub(h.acks.heard) < 2*targetEvery, trip: h.acks.trip,
		busy: t != nil || h.cmd.next != nil,
		entering: t != nil && t.plan.sticks == sticksEnter || h.craft.machine.open(now, func(number uint32) bool {
			mode, _ := h.craft.firmware.reported(number)
			return mode.flownBySticks()
		}),
	}
}

// act does what the sticks ask for, but for what needs a plan: that it reports.
func (h *hands) act() stickActs {
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
		o := h.outgoing(h.axes)
		h.link.move(&o)
	}
	if h.phase == stickOff {
		h.link.move(nil)
	}
	return acts
}

// outgoing is axes as they go out: ArduPilot takes them only from its ground
// station's system. The component is ours: a router that learned that we are
// its ground station's would keep the real one's messages from us.
func (h *hands) outgoing(a axes) outgoing {
	m := &common.MessageManualControl{Target: h.craft.tel.id.system, X: a.x, Y: a.y, Z: a.z, R: a.r}
	if h.craft.firmware.ardupilot() {
		return outgoing{system: h.params.groundStation(), msg: m}
	}
	return outgoing{msg: m}
}

// hear takes what tells of the receiver.
func (h *hands) hear(m message.Message, now time.Time) {
	tel := &h.craft.tel
	switch m := m.(type) {
	case *common.MessageCurrentMode:
		if h.hearMode(h.facts(now), m.CustomMode, m.IntendedCustomMode) {
			r := h.craft.report(true, now)
			r.custom = m.CustomMode
			r.mode, _ = h.craft.firmware.reported(r.custom)
			h.craft.machine.undone(r)
		}
	case *common.MessageSysStatus:
		if tel.health.at.IsZero() {
			return
		}
		live, throttle := tel.health.receiverLive(), uint16(0)
		if tel.rc.within(freshFor, now) {
			throttle = tel.rc.channel[2]
			if live && h.craft.firmware.ardupilot() && !tel.rc.at.After(h.src.from) { // of our own stream
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
	stick := f.mode.flownBySticks()
	switch {
	case f.firmware == firmwareUnknown:
		return 0, refuse(codeUnsupported, "input: this autopilot is neither PX4 nor ArduPilot Copter or Plane")
	case denied != "": // no mode that is set here can help
		return 0, refuse(codeWrongMode, "input: %s", denied)
	case stick && h.taken():
		return 0, refuse(codeWrongMode, "input: the pilot has the sticks; set mode %s here to take them", f.mode)
	case !stick && h.taken():
		return 0, refuse(codeWrongMode, "input: the pilot has the drone, in mode %s; set manual, altitude or position here to take the sticks", f.mode)
	case !stick:
		return 0, refuse(codeWrongMode, "input: the drone is in mode %s; set manual, altitude or position first", f.mode)
	case f.armed && !f.shown().flownBySticks(): // PX4 would take sticks that move now for a pilot's
		return 0, refuse(codeWrongMode, "input: the vehicle does not show mode %s yet", f.mode)
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
func (h *hands) toldBy() time.Time { return h.src.from.Add(receiverTold + h.acks.trip) }

// restarted says that the autopilot has started again. ArduPilot may have done so
// in the air: what kept it from falling goes on, for nobody, until it is disarmed or
// a pilot takes it.
func (h *hands) restarted(now time.Time) {
	f, was := h.facts(now), h.sticks
	h.sticks = sticks{src: was.src}
	h.src.restarted(now)
	if f.armed && was.phase != stickOff && f.firmware.ardupilot() && !was.src.inUse(f.firmware) {
		h.owner, h.phase, h.src.receiver = ownerPilot, stickNobody, was.src.receiver
		h.src.from = was.src.from // our stream hides the receiver, and its end tells until when
		h.axes, h.since, h.moved, h.next = was.axes, was.since, was.moved, was.next
	}
	h.act()
}

// farewell is what the sticks are left as when the program ends (docs/design.md,
// "SIGTERM in the air").
func (h *hands) farewell(f stickFacts) {
	if f.aloft {
		slog.Warn("stopping in the air after sticks: the autopilot's own failsafe for lost sticks may follow", "mode", f.mode)
	}
	if h.src.live(f.firmware) {
		h.end(f)
	} else {
		h.nobodys(f)
		h.acts.send = true
	}
	h.act()
}

// givePilot sets the mode for a pilot that our sticks took from him. His wish is
// older than every other, so that it is sent as what nobody asks for now.
func (c *conduct) givePilot(custom uint32) {
	c.cmd.mu.Lock()
	defer c.cmd.mu.Unlock()
	mode, name := px4.reported(custom)
	set := px4.setMode(mode, custom)
	set.sticks = sticksStill
	p := plan{steps: []step{set}, goal: set.to, sticks: sticksLeave, urgent: true}
	if _, err := c.cmd.doOwn(p, request{setMode: true, mode: mode}); err != nil {
		c.craft.tell("the pilot's mode " + name + " could not be set for him: " + err.Error())
	}
}
