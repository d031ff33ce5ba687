package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

//go:embed CHANGELOG.md
var changelog string

// ownVersion is the version of this program: the first word of the first "## " heading of
// CHANGELOG.md. deploy/version reads it there too.
var ownVersion = strings.Fields(strings.SplitN(changelog, "\n## ", 2)[1])[0]

// number returns v rounded to that many decimals. NaN, which means unknown, is null in JSON.
func number(v float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(v*scale)/scale + 0 // + 0 turns −0 into 0
}

// ifKnown returns v; nil, which is null in JSON, if it is not known.
func ifKnown(known bool, v any) any {
	if !known {
		return nil
	}
	return v
}

// word returns s; nil if it is empty.
func word(s string) any { return ifKnown(s != "", s) }

// age returns the seconds since at; NaN if at is zero.
func age(now, at time.Time) float64 {
	if at.IsZero() {
		return math.NaN()
	}
	return number(now.Sub(at).Seconds(), 2)
}

// landedStates are the names of MAV_LANDED_STATE in the API. Any other number is unknown.
var landedStates = map[landedState]string{1: "on_ground", 2: "in_air", 3: "takeoff", 4: "landing"}

func (a *api) getStatus(w http.ResponseWriter, r *http.Request) (any, error) {
	w.Header().Add("Vary", "Accept")
	switch accept := r.Header["Accept"]; {
	case accepts(accept, "text/event-stream"):
		return a.stream(w, r)
	case wantsPage(accept):
		writePage(w, http.StatusOK, statusPage)
		return nil, nil
	}
	return render(a.drone.status(), clientOf(r)), nil
}

// snapshot is the drone at one moment, for the status.
type snapshot struct {
	situation
	tel      telemetry
	modeName string
	armable  *bool // a takeoff could arm now; nil if unknown
	done     *bool // the last manoeuvre is complete; nil if there is none, or it ended incomplete
	target   *place
	by       string     // who has the sticks; "" if nobody has
	expires  time.Time  // when the client's sticks expire; zero if none are in force
	from     netip.Addr // the client that has the sticks; invalid if none has
	link     linkState
}

// status copies everything that a status shows.
func (d *drone) status() (s snapshot) {
	d.locked(func() { s = d.snapshot(time.Now()) })
	return s
}

func (d *drone) snapshot(now time.Time) snapshot {
	v := d.situation(now)
	s := snapshot{
		situation: v, tel: d.tel, modeName: d.modeName(),
		target: d.target(now), by: d.sticks.by(v), from: d.sticks.held(v), link: d.link.state(),
	}
	// PX4 checks its present mode, which may need a receiver. A takeoff leaves that for hold, which needs none.
	leavesMode := v.firmware == px4 && v.shown() != ModeHold && v.shown() != ModeTakeoff
	armsOnOurStream := v.firmware.ardupilot() && d.sticks.src.receiver == receiverNone
	s.armable = d.tel.armable(now, leavesMode || armsOnOurStream)
	if m := d.cmd.manoeuvre; m != nil {
		done := m.done
		s.done = &done
	}
	if d.sticks.phase == stickClient {
		s.expires = d.sticks.client.until
	}
	return s
}

// target returns the place that a landing is on its way to, else the target that the
// autopilot reports, else the place of a new goto while it is commanded; nil if there is none.
func (d *drone) target(now time.Time) *place {
	switch m, to := d.cmd.manoeuvre, &d.tel.target; {
	case d.cmd.onWayToLand():
		return m.plan.target
	case !d.machine.last.armed || d.machine.mode != ModeHold && d.machine.mode != ModeTakeoff:
		return nil
	// For targetNew after the acceptance the autopilot may still report its old target.
	case to.within(offlineAfter, now) && (m == nil || to.at.After(m.at.Add(targetNew))):
		return &place{to.lat, to.lon, to.amsl - d.tel.home.amsl, to.amsl}
	case m != nil && m.request.goTo && now.Sub(m.at) < targetNew+targetEvery && d.machine.order != nil:
		return m.plan.target
	}
	return nil
}

// summary is the vehicle's state in a line, for systemd.
func (d *drone) summary() (line string) {
	d.locked(func() { line = d.summaryLine() })
	return line
}

func (d *drone) summaryLine() string {
	if err := d.able(); err != nil {
		return err.Error()
	}
	id := &d.tel.id
	return fmt.Sprintf("%s %s online, %s, mode %s", autopilotName(id.autopilot), lowerName(id.typ.String(), "MAV_TYPE_"), armedWord[d.machine.last.armed], d.machine.mode)
}

// autopilotName is a MAV_AUTOPILOT in the API: ardupilot stands for ardupilotmega.
func autopilotName(a common.MAV_AUTOPILOT) string {
	return strings.TrimSuffix(lowerName(a.String(), "MAV_AUTOPILOT_"), "mega")
}

// render returns the status object (docs/openapi.yaml) for a client. A group or a value
// that the vehicle never reported is null, and so is a value that it reports as unknown.
func render(s snapshot, client netip.Addr) jsonObject {
	t, now := &s.tel, s.now
	heard, p, v, a, b, g, home := t.beat.received(), &t.position, &t.velocity, &t.attitude, &t.battery, &t.gps, &t.home
	return jsonObject{
		"version", ownVersion,
		"online", s.online,
		"mode", s.mode.String(),
		"vehicle_mode", ifKnown(heard, s.modeName),
		"armed", ifKnown(heard, s.armed),
		"in_air", ifKnown(landedStates[s.landed] != "", s.landed.inAir()),
		"landed_state", word(landedStates[s.landed]),
		"state", word(t.beat.state),
		"failsafe", ifKnown(heard, t.beat.critical),
		"armable", s.armable,
		"unhealthy", t.health.unhealthy(),
		"done", s.done,
		"vehicle", ifKnown(heard, jsonObject{
			"autopilot", autopilotName(t.id.autopilot),
			"type", lowerName(t.id.typ.String(), "MAV_TYPE_"),
			"version", word(t.id.version.String()),
			"system_id", t.id.system,
		}),
		"position", ifKnown(p.received(), jsonObject{
			"lat", number(p.lat, 7),
			"lon", number(p.lon, 7),
			"altitude", number(p.relative, 2),
			"altitude_msl", number(p.amsl, 2),
			"heading", number(p.heading, 2),
			"age", age(now, p.at),
		}),
		"velocity", ifKnown(v.received(), jsonObject{
			"north", number(v.north, 2),
			"east", number(v.east, 2),
			"down", number(v.down, 2),
			"ground_speed", number(v.ground, 2),
			"air_speed", number(v.air, 2),
			"climb", number(v.climb, 2),
			"age", age(now, v.at),
		}),
		"attitude", ifKnown(a.received(), jsonObject{
			"roll", number(a.roll, 1), "pitch", number(a.pitch, 1), "yaw", number(a.yaw, 1), "age", age(now, a.at),
		}),
		"battery", ifKnown(b.received(), jsonObject{
			"voltage", number(b.voltage, 2), "current", number(b.current, 2), "remaining", number(b.remaining, 0), "age", age(now, b.at),
		}),
		"gps", ifKnown(g.received(), jsonObject{
			"fix", word(g.fix), "satellites", number(g.satellites, 0), "hdop", number(g.hdop, 2), "age", age(now, g.at),
		}),
		"home", ifKnown(home.received(), jsonObject{
			"lat", number(home.lat, 7), "lon", number(home.lon, 7), "altitude_msl", number(home.amsl, 2), "age", age(now, home.at),
		}),
		"target", s.targetBody(),
		"input", s.inputBody(client),
		"messages", messages(t.texts.since(time.Time{}), now),
		"link", s.link.body(age(now, t.beat.at)),
	}
}

// targetBody returns the target; its distance is null without a fresh position.
func (s *snapshot) targetBody() any {
	to, p, metres := s.target, s.tel.position, math.NaN()
	if to == nil {
		return nil
	}
	if p.within(freshFor, s.now) {
		metres = distance(p.lat, p.lon, to.lat, to.lon)
	}
	return jsonObject{"lat", number(to.lat, 7), "lon", number(to.lon, 7), "altitude", number(to.altitude, 2), "distance", number(metres, 1)}
}

func (s *snapshot) inputBody(client netip.Addr) jsonObject {
	left := s.expires.Sub(s.now)
	return jsonObject{
		"active", left > 0,
		"expires_in", ifKnown(left > 0, number(left.Seconds(), 2)),
		"by", word(s.by),
		"from", ifKnown(s.from.IsValid(), s.from.String()),
		"yours", s.from.IsValid() && s.from == client,
	}
}

func (l *linkState) body(heartbeatAge float64) jsonObject {
	return jsonObject{
		"device", l.device,
		"baud", ifKnown(l.baud != 0, l.baud),
		"heartbeat_age", heartbeatAge,
		"received", l.received,
		"lost", l.lost,
		"errors", l.errors,
		"sent", l.sent,
		"error", ifKnown(l.fault != nil, fmt.Sprint(l.fault)),
	}
}

// Limits of the stream of the status (docs/openapi.yaml).
const (
	maxStreams  = 16
	eventEvery  = 100 * time.Millisecond // the shortest time between two events
	eventLook   = 20 * time.Millisecond  // how often the stream looks whether the status has changed
	eventAtMost = time.Second            // the longest time between two events
	eventBuffer = 16 << 10               // bytes; the system's default would hold minutes of events for a client that does not read
)

// eventStream is a stream of the status. ctx is done when it has ended.
type eventStream struct {
	ctx context.Context
	end func()
}

// stream sends the status with each change, and at least once a second, until the
// client leaves or the program ends.
func (a *api) stream(w http.ResponseWriter, r *http.Request) (any, error) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	if r.Method == http.MethodHead {
		return nil, nil
	}
	ctx := a.openStream(r.Context())
	conn := connOf(r)
	conn.markBusy(nil)
	if c, ok := conn.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		c.SetWriteBuffer(eventBuffer)
	}
	var sent time.Time
	var shown uint64
	out := []byte("retry: 1000\n\n")
	for {
		changes, pause := a.drone.changes.Load(), eventLook
		if now := time.Now(); changes != shown || now.Sub(sent) >= eventAtMost {
			out = append(out, "event: status\ndata: "...)
			out = append(append(out, encode(render(a.drone.status(), clientOf(r)))...), '\n')
			rc.SetWriteDeadline(now.Add(answerTimeout))
			if _, err := w.Write(out); err != nil || rc.Flush() != nil {
				return nil, nil
			}
			out, sent, shown, pause = out[:0], now, changes, eventEvery
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, nil
		case <-a.drone.ended:
			return nil, nil
		}
	}
}

// openStream adds a stream, which ends when the returned context is done. If there are
// maxStreams it ends the oldest one.
func (a *api) openStream(client context.Context) context.Context {
	ctx, end := context.WithCancel(client)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams = slices.DeleteFunc(a.streams, func(s eventStream) bool { return s.ctx.Err() != nil })
	if len(a.streams) == maxStreams {
		a.streams[0].end()
	}
	a.streams = append(a.streams, eventStream{ctx, end})
	return ctx
}

//go:embed status.html
var statusHTML string // the page for people, with one script and one style

// statusPage is status.html with the version that it belongs to.
var statusPage = strings.Replace(statusHTML, "VERSION", ownVersion, 1)

// rootPage is what a browser gets at /: a link to the page.
const rootPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>mavrest</title>
<p>There is nothing at this address. <a href="/api/drone/status">The drone is here.</a></p>
</html>
`

// writePage answers with a page. It may run only its own script and style, and talk only to
// this server. No page may frame it: that could trick somebody into a click.
func writePage(w http.ResponseWriter, status int, html string) {
	policy := "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	for _, tag := range []string{"script", "style"} {
		if _, rest, ok := strings.Cut(html, "<"+tag+">"); ok {
			body, _, _ := strings.Cut(rest, "</"+tag+">")
			sum := sha256.Sum256([]byte(body))
			policy += "; " + tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
	}
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	write(w, status, "text/html; charset=utf-8", []byte(html))
}

// accepts reports whether an Accept header names a media type. It ignores q-values.
func accepts(accept []string, mediaType string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(kind), mediaType) {
			return true
		}
	}
	return false
}

// wantsPage reports whether an Accept header is that of a browser that opens an
// address. A client that accepts JSON gets JSON.
func wantsPage(accept []string) bool {
	return accepts(accept, "text/html") && !accepts(accept, "application/json")
}
