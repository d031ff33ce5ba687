package main

// Messages by what they show, and captured flights that are replayed.

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// pause is a time in which nothing comes, among messages.
type pause time.Duration

func (pause) GetID() uint32 { return math.MaxUint32 }

// telemetryAfter returns a telemetry that heard these messages, one each millisecond.
func telemetryAfter(list ...message.Message) *telemetry {
	t, at := newTelemetry(), time.Unix(1000, 0)
	for _, m := range list {
		if p, silent := m.(pause); silent {
			at = at.Add(time.Duration(p))
			continue
		}
		t.hear(m, at)
		at = at.Add(time.Millisecond)
	}
	return &t
}

// survivors names the fields that are not as never when all else was forgotten. Before that each of them must be
// something else than never.
func survivors[T any](t *testing.T, before func() T, never T, forgets func(*T)) string {
	t.Helper()
	was, is := before(), before()
	forgets(&is)
	var kept []string
	for i := range reflect.TypeFor[T]().NumField() {
		show := func(v *T) string { return fmt.Sprintf("%+v", reflect.ValueOf(v).Elem().Field(i)) }
		name := reflect.TypeFor[T]().Field(i).Name
		if show(&was) == show(&never) {
			t.Errorf("%s is as if it had never been heard: give it a value", name)
		}
		if show(&is) != show(&never) {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, " ")
}

// The groups of the telemetry, as a table's rows show them.
func showPlace(t *telemetry) string {
	p := t.position
	return fmt.Sprintf("%.7f %.7f, %.2f up, %.2f AMSL, heading %.2f", p.lat, p.lon, p.relative, p.amsl, p.heading)
}

func showVelocity(t *telemetry) string {
	v := t.velocity
	return fmt.Sprintf("north %.2f east %.2f down %.2f, ground %.2f, air %.2f, climb %.2f", v.north, v.east, v.down,
		v.ground, v.air, v.climb)
}

func showAttitude(t *telemetry) string {
	a := t.attitude
	return fmt.Sprintf("roll %.1f pitch %.1f yaw %.1f", a.roll, a.pitch, a.yaw)
}

func showBattery(t *telemetry) string {
	b := t.battery
	return fmt.Sprintf("%.2f V %.2f A %.0f %%", b.voltage, b.current, b.remaining)
}

func showGPS(t *telemetry) string {
	return fmt.Sprintf("%q, %.0f satellites, %.2f", t.gps.fix, t.gps.satellites, t.gps.hdop)
}

func showHealth(t *telemetry) string {
	h := t.health
	unhealthy := "null"
	if list := t.unhealthy(h.at); list != nil {
		unhealthy = fmt.Sprint(list)
	}
	return fmt.Sprintf("known %t, armable %s, receiver %t, unhealthy %s", !h.at.IsZero(), showArmable(t, h.at),
		h.receiverLive(), unhealthy)
}

func showHealed(t *telemetry) string {
	if t.healed.IsZero() {
		return "never"
	}
	return fmt.Sprint(t.healed.Sub(time.Unix(1000, 0)))
}

func showTarget(t *telemetry) string { return fmt.Sprint(t.target.lat, t.target.lon, t.target.amsl) }

// showTimes shows when the newest of each kind left the vehicle, from the first message on.
func showTimes(t *telemetry) string {
	var list []string
	for _, g := range []struct {
		name string
		at   time.Time
	}{
		{"heartbeat", t.beat.at}, {"GPS", t.gps.at}, {"position", t.position.at}, {"velocity", t.velocity.at},
		{"HUD", t.velocity.hudAt}, {"attitude", t.attitude.at}, {"battery", t.battery.at}, {"health", t.health.at},
		{"EKF", t.estimate.at}, {"home", t.home.at}, {"channels", t.rc.at}, {"target", t.target.at},
		{"landed", t.landed.at},
	} {
		list = append(list, fmt.Sprint(g.name, " ", g.at.Sub(time.Unix(1000, 0))))
	}
	return strings.Join(list, ", ")
}

func showArmable(t *telemetry, now time.Time) string {
	armable, _ := t.armable(now, false, false)
	if armable == nil {
		return "null"
	}
	return fmt.Sprint(*armable)
}

func showBeat(t *telemetry) string {
	return fmt.Sprintf("%s critical %t", t.beat.state, t.beat.critical)
}

// said are the texts that a log holds.
func said(l *textLog) []string {
	list := []string{}
	for _, s := range l.since(time.Time{}) {
		list = append(list, s.text)
	}
	return list
}

// replayedFlight is what the status showed during a captured flight.
type replayedFlight struct {
	snapshot
	modes    []string // "MODE NAME armed", each change
	answered []Mode   // what GET mode answered, each change
	states   []string // whether it is armable, and what is unhealthy, each change
	targets  []string // metres north of home, each change
	highest  float64
	placed   time.Duration // when it had its first place
	known    uint64        // frames whose checksum can be checked
	gaps     uint64        // in the file's own sequence
}

// replayTlog plays a file into a link at the file's own pace.
func replayTlog(t *testing.T, name string) replayedFlight {
	t.Helper()
	entries := readTlog(t, name)
	c := newCable(func(lineMessage) {})
	l, end := runDevice(t, device{name: name, open: func(context.Context) (port, error) { return c, nil },
		line: atBaud(57600)})
	var r replayedFlight
	start := time.Now()
	var seq byte
	heard := false
	for _, e := range entries {
		time.Sleep(time.Until(start.Add(e.at)))
		c.toLink <- e.bytes
		synctest.Wait()
		f := e.bytes
		s, id := f[4], uint32(f[7])|uint32(f[8])<<8|uint32(f[9])<<16
		if f[0] == frame.V1MagicByte {
			s, id = f[2], uint32(f[5])
		}
		_, known := crcExtras[id]
		if known && len(checkedFrames(f)) != 1 {
			t.Errorf("%v: frame %x does not check", e.at, f)
		}
		// If over half of a sequence's 256 numbers are missing, the next frame looks late.
		if gap := s - seq - 1; heard && gap <= 127 {
			r.gaps += uint64(gap)
			seq = s
		} else if !heard {
			seq, heard = s, id == 0 // the link counts from the first HEARTBEAT on
		}
		if known {
			r.known++
		}
		status := l.snapped()
		if !status.tel.beat.at.IsZero() {
			r.see(e.at, status)
		}
	}
	r.snapshot = l.snapped()
	end()
	return r
}

// changed appends now if it differs from the last one.
func changed[T comparable](list []T, now T) []T {
	if n := len(list); n > 0 && list[n-1] == now {
		return list
	}
	return append(list, now)
}

// see notes what the status shows at a time of the flight.
func (r *replayedFlight) see(at time.Duration, s snapshot) {
	mode := s.modeName
	if s.armed {
		mode += " armed"
	}
	r.modes, r.answered = changed(r.modes, mode), changed(r.answered, s.mode)
	if h := s.tel.health; !h.at.IsZero() {
		r.states = changed(r.states, fmt.Sprintf("%s %v", showArmable(s.tel, s.now), h.unhealthy()))
	}
	target := "none"
	if p := s.target; p != nil {
		target = fmt.Sprint(math.Round((p.lat-s.tel.home.lat)*metresPerDegree) + 0) // + 0 makes -0 a 0
	}
	r.targets = changed(r.targets, target)
	if up := s.tel.position.relative; up > r.highest {
		r.highest = up
	}
	if r.placed == 0 && !math.IsNaN(s.tel.position.lat) {
		r.placed = at
	}
}

// replays replays a file, of which no frame may be lost, and calls look.
func replays(t *testing.T, name string, look func(t *testing.T, r replayedFlight)) {
	inLinkBubble(t, func(t *testing.T) {
		r := replayTlog(t, name)
		lineEqual(t, "errors", r.link.errors, 0)
		lineEqual(t, "frames received", r.link.received, r.known)
		lineEqual(t, "frames lost", r.link.lost, r.gaps)
		lineEqual(t, "online", r.online, true)
		look(t, r)
	})
}

// ends checks the flight's last status.
func (r *replayedFlight) ends(t *testing.T, lat, lon, height, volts, percent float64) {
	t.Helper()
	lineEqual(t, "vehicle type", r.tel.id.typ, common.MAV_TYPE_QUADROTOR)
	lineEqual(t, "armed", r.armed, false)
	lineEqual(t, "failsafe", r.tel.beat.critical, false)
	lineEqual(t, "landed state", r.tel.landed.state, onGround)
	lineNear(t, "latitude", r.tel.position.lat, lat, 7)
	lineNear(t, "longitude", r.tel.position.lon, lon, 7)
	lineNear(t, "height", r.tel.position.relative, height, 1)
	lineNear(t, "voltage", r.tel.battery.voltage, volts, 1)
	lineNear(t, "remaining", r.tel.battery.remaining, percent, 0)
	lineEqual(t, "home is known", !r.tel.home.at.IsZero(), true)
}

// autopilotsTexts returns the autopilot's texts, without mavrest's own.
func autopilotsTexts(l *textLog) []string {
	return slices.DeleteFunc(said(l), func(text string) bool { return strings.HasPrefix(text, "mavrest: ") })
}

// cells are the voltages of a BATTERY_STATUS in mV.
func cells(mv ...uint16) (list [10]uint16) {
	for i := range list {
		list[i] = math.MaxUint16
	}
	copy(list[:], mv)
	return list
}

// seen returns the view of a vehicle that hovers 10 m up; changes alter the view.
func seen(changes ...func(*view)) view {
	n := math.NaN()
	s := view{
		now: time.Unix(2000, 0), firmware: copter, shownMode: shownMode{armed: true},
		landed: inAir, ground: lastGround{left: true},
		place: place{47.3977419, 8.5455938, 10, 498}, heading: 90,
		target: point{lat: n, lon: n, amsl: n}, params: map[string]float64{"WP_LOITER_RAD": 60, "TKOFF_ALT": 50},
	}
	for _, f := range changes {
		f(&s)
	}
	return s
}

// landingThere is a landing at a place that is still on its way.
func landingThere() *manoeuvre {
	s := seen()
	return &manoeuvre{
		request: request{verb: entersMode, mode: ModeLand, lat: &s.place.lat, lon: &s.place.lon},
		at:      s.now.Add(-time.Second), over: make(chan struct{}),
		plan: plan{destination: &s.place, second: &step{cmd: common.MAV_CMD_DO_SET_MODE}},
	}
}
