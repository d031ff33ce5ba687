package main

import (
	"fmt"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// mode returns the mode and the autopilot's own name for its mode, "" before the
// first heartbeat.
func (d *drone) mode() (Mode, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tel.beat.at.IsZero() {
		return d.machine.mode, ""
	}
	return d.machine.mode, d.modeName()
}

// summary is the link's state in a line, for the supervisor.
func (d *drone) summary() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &d.tel
	switch {
	case t.beat.at.IsZero():
		return "no autopilot heard yet on " + d.link.device.name
	case !d.online:
		return "autopilot offline on " + d.link.device.name
	}
	armed := "disarmed"
	if t.beat.armed {
		armed = "armed"
	}
	return fmt.Sprintf("%s %s online, %s, mode %s", autopilotName(t.id.autopilot), lowerName(t.id.typ.String(), "MAV_TYPE_"), armed, d.machine.mode)
}

// autopilotName is a MAV_AUTOPILOT on the wire.
func autopilotName(a common.MAV_AUTOPILOT) string {
	if a == common.MAV_AUTOPILOT_ARDUPILOTMEGA {
		return "ardupilot"
	}
	return lowerName(a.String(), "MAV_AUTOPILOT_")
}

// snapshot is the drone at one moment, for the status.
type snapshot struct {
	now      time.Time
	tel      telemetry
	online   bool
	mode     Mode
	modeName string
	done     *bool
	target   *place
	by       string    // who has the sticks, "" for nobody
	expires  time.Time // of the client's sticks; zero where none stand
	link     linkState
	fault    string // why the port is not open, or does not serve
}

// status copies everything that a status shows.
func (d *drone) status() snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	s := snapshot{
		now: now, tel: d.tel, online: d.online, mode: d.machine.mode, modeName: d.modeName(),
		target: d.target(now), by: d.sticks.by(d.sticks.facts(now)), link: d.link.state(),
	}
	if m := d.cmd.man; m != nil && m.why == nil {
		done := m.done
		s.done = &done
	}
	if d.sticks.phase == stickClient {
		s.expires = d.sticks.until
	}
	switch {
	case s.link.fault != nil:
		s.fault = s.link.fault.Error()
	case d.asked.deaf:
		s.fault = deafAdvice
	}
	return s
}

// target is where the autopilot itself says it is flying to, and the place of a
// landing on its way; nil where there is none.
func (d *drone) target(now time.Time) *place {
	m, to := d.cmd.man, &d.tel.target
	if d.cmd.transit() {
		return m.plan.target
	}
	if !d.tel.beat.armed || d.machine.mode != ModeHold && d.machine.mode != ModeTakeoff {
		return nil
	}
	if to.within(offlineAfter, now) && (m == nil || to.at.After(m.at)) {
		return &place{to.lat, to.lon, to.amsl - d.tel.home.amsl}
	}
	// Acknowledged a moment ago, and not told yet.
	if m != nil && m.request.goTo && now.Sub(m.at) < askEvery && d.machine.order != nil {
		return m.plan.target
	}
	return nil
}
