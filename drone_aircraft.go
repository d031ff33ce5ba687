package main

import (
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// aircraft is the vehicle as it shows itself: what it said, what it is, and the
// mode that it is in.
type aircraft struct {
	changes atomic.Uint64 // rises with everything that a status shows
	version atomic.Uint64 // rises with what a status must show at once: all but telemetry

	tel      telemetry
	firmware firmware
	online   bool
	failsafe bool // the heartbeat before said so
	machine  machine
}

// changed says that something changed which a status must show at once.
func (a *aircraft) changed() {
	a.version.Add(1)
	a.changes.Add(1)
}

// tell tells the user what mavrest did by itself.
func (a *aircraft) tell(text string) {
	slog.Warn(text)
	a.tel.texts.add(statusText{uint8(common.MAV_SEVERITY_NOTICE), "mavrest: " + text, time.Now()})
	a.changed()
}

// logMode logs a mode that nobody asked for here.
func (a *aircraft) logMode(why string) {
	a.version.Add(1)
	slog.Info("mode changed", "mode", a.machine.mode, "vehicle_mode", a.modeName(), "why", why)
}

// modeName is the autopilot's own name for its mode.
func (a *aircraft) modeName() string {
	_, name := a.firmware.reported(a.tel.beat.custom)
	return name
}

// report is the last heartbeat; streamed says that a stick stream of ours runs.
func (a *aircraft) report(streamed bool, now time.Time) report {
	b := &a.tel.beat
	mode, _ := a.firmware.reported(b.custom)
	r := report{custom: b.custom, mode: mode, armed: b.armed, amsl: math.NaN(), streamed: streamed && a.firmware == px4}
	if a.tel.position.within(silentAfter, now) { // also a while ago: a climb goes up
		r.amsl = a.tel.position.amsl
	}
	return r
}

// vehicle is what it shows of what a plan needs. A position that is not fresh is
// none: a hold would fly back to it.
func (a *aircraft) vehicle(now time.Time) vehicle {
	n := math.NaN()
	t, p := &a.tel, a.tel.position
	v := vehicle{
		firmware: a.firmware, custom: t.beat.custom, armed: t.beat.armed, landed: t.stands(now), failsafe: t.beat.failsafe,
		at: place{n, n, n}, amsl: n, heading: n, velocity: motion{n, n, n}, homeAMSL: t.home.amsl,
		wing: t.id.vtol == uint8(common.MAV_VTOL_STATE_FW),
	}
	if custom, ok := a.machine.awaited(); ok {
		v.custom = custom // acknowledged, and no heartbeat shows it yet
	}
	if p.within(freshFor, now) {
		v.at, v.amsl, v.heading = place{p.lat, p.lon, p.relative}, p.amsl, p.heading
	}
	if t.velocity.within(freshVelocity, now) {
		v.velocity = motion{t.velocity.north, t.velocity.east, t.velocity.down}
	}
	return v
}

// sighting is what it shows of a manoeuvre, for which an older velocity will do.
func (a *aircraft) sighting(now time.Time) sighting {
	t := &a.tel
	s := sighting{vehicle: a.vehicle(now), now: now, to: t.target}
	if t.velocity.within(freshFor, now) {
		s.velocity = motion{t.velocity.north, t.velocity.east, t.velocity.down}
	}
	return s
}
