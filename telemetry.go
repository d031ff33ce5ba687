package main

import (
	"math"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// group is when a group of telemetry came; the zero time is never.
type group struct{ at time.Time }

// telemetry is the last of everything the vehicle said, in the units of the
// status object. A number that it never said, or said to be unknown, is NaN.
type telemetry struct {
	system   byte // latched; 0 before the first heartbeat
	firmware firmware
	seq      byte
	seqKnown bool

	online      bool
	heartbeatAt time.Time
	vehicleType string
	autopilot   string
	custom      uint32
	modeName    string
	armed       bool // the heartbeat's
	armedNow    bool // the heartbeat's, or a newer ack's
	state       string
	failsafe    bool
	landed      landedState
	version     string
	bootTime    uint32 // ms

	position struct {
		group
		lat, lon, relative, amsl, heading float64
	}
	velocity struct {
		group
		north, east, down, ground, air, climb float64
	}
	attitude struct {
		group
		roll, pitch, yaw float64
	}
	battery struct {
		group
		voltage, current, remaining float64
	}
	gps struct {
		group
		fix              string
		satellites, hdop float64
	}
	home struct {
		group
		lat, lon, amsl float64
	}

	hudAt        time.Time                        // of VFR_HUD, which tells the climb
	lastPosition *common.MessageGlobalPositionInt // that counted
	doubted      *common.MessageGlobalPositionInt // far from it, and not confirmed yet

	texts  [20]statusText // the newest at (count−1) modulo 20
	count  int
	chunks map[uint16]*chunkedText
}

// statusText is one STATUSTEXT; severity is MAV_SEVERITY, 0 emergency to 7 debug.
type statusText struct {
	severity uint8
	text     string
	at       time.Time
}

// chunkedText collects the chunks of a STATUSTEXT longer than 50 characters.
type chunkedText struct {
	severity uint8
	parts    map[uint8]string
	last     int // number of the chunk that ends it; −1 before it came
	began    time.Time
}

func newTelemetry() telemetry {
	t := telemetry{chunks: make(map[uint16]*chunkedText)}
	n := math.NaN()
	t.position.lat, t.position.lon, t.position.relative, t.position.amsl, t.position.heading = n, n, n, n, n
	t.velocity.air, t.velocity.climb, t.velocity.ground = n, n, n
	t.home.amsl = n
	return t
}

// vehicle is what the plans need of it. A position that is not fresh is none:
// a hold would fly back to it.
func (t *telemetry) vehicle(now time.Time) vehicle {
	v := vehicle{
		firmware: t.firmware, custom: t.custom, armed: t.armedNow, landed: t.landed, failsafe: t.failsafe,
		lat: t.position.lat, lon: t.position.lon,
		amsl: t.position.amsl, relative: t.position.relative, heading: t.position.heading,
		homeAMSL: t.home.amsl,
	}
	if now.Sub(t.position.at) > freshPosition {
		n := math.NaN()
		v.lat, v.lon, v.amsl, v.relative, v.heading = n, n, n, n, n
	}
	return v
}

// acknowledged takes what an accepted step says before a heartbeat does.
func (t *telemetry) acknowledged(s *step) {
	if s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM {
		t.armedNow = s.p[0] == 1
	}
}

// aloft reports whether sticks that nobody gave should hold the height.
func (t *telemetry) aloft() bool {
	return vehicle{armed: t.armedNow, landed: t.landed}.flying()
}

// lowerName makes a MAVLink name a word of the status object.
func lowerName(s, prefix string) string { return strings.ToLower(strings.TrimPrefix(s, prefix)) }

// known is v, or NaN where the vehicle says unknown.
func known(v float64, unknown bool) float64 {
	if unknown {
		return math.NaN()
	}
	return v
}

// degrees is an angle in radians as 0 to 360 degrees.
func degrees(rad float32) float64 {
	d := math.Mod(float64(rad)*180/math.Pi, 360)
	if d < 0 {
		d += 360
	}
	return d
}

// plausible reports whether a position may follow the last one. A frame whose
// damage its 16 bit checksum did not see (1 in 65,536) would send a hold or a
// landing to another continent; a real jump is confirmed by the next frame.
func (t *telemetry) plausible(m *common.MessageGlobalPositionInt, now time.Time) bool {
	fresh := t.lastPosition != nil && now.Sub(t.position.at) < freshPosition
	if fresh && farApart(t.lastPosition, m) && (t.doubted == nil || farApart(t.doubted, m)) {
		t.doubted = m
		return false
	}
	t.lastPosition, t.doubted = m, nil
	return true
}

// farApart reports whether no vehicle gets from a to b in 2 s: 200 m.
func farApart(a, b *common.MessageGlobalPositionInt) bool {
	return math.Abs(float64(a.Alt)-float64(b.Alt)) > 200e3 ||
		math.Abs(float64(a.RelativeAlt)-float64(b.RelativeAlt)) > 200e3 ||
		distance(float64(a.Lat)/1e7, float64(a.Lon)/1e7, float64(b.Lat)/1e7, float64(b.Lon)/1e7) > 200
}

// fixNames are the names of GPS_FIX_TYPE on the wire.
var fixNames = [...]string{"no_gps", "no_fix", "2d", "3d", "dgps", "rtk_float", "rtk_fixed", "static", "ppp"}

func fixName(fix uint64) string {
	if fix < uint64(len(fixNames)) {
		return fixNames[fix]
	}
	return ""
}

// fullChunk is the length of a STATUSTEXT's text; a shorter one is the last.
const fullChunk = 50

// join puts the chunks together; a missing one shows as an ellipsis.
func (c *chunkedText) join() string {
	end := c.last
	for seq := range c.parts {
		end = max(end, int(seq))
	}
	var b strings.Builder
	for i := range end + 1 {
		if part, ok := c.parts[uint8(i)]; ok {
			b.WriteString(part)
		} else {
			b.WriteString("…")
		}
	}
	return b.String()
}

// recent returns the texts since a time, oldest first.
func (t *telemetry) recent(since time.Time) []statusText {
	var list []statusText
	for i := max(0, t.count-len(t.texts)); i < t.count; i++ {
		if s := t.texts[i%len(t.texts)]; !s.at.Before(since) {
			list = append(list, s)
		}
	}
	return list
}
