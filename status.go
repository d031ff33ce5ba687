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
	"strconv"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// ownVersion is the version of this program: that of the newest heading of CHANGELOG.md, where deploy/version
// reads it.
const ownVersion = "v1.4.0"

// number is a number of an answer; NaN, which means unknown, is null.
type number float64

var null = []byte("null")

// MarshalJSON writes no exponent.
func (n number) MarshalJSON() ([]byte, error) {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return null, nil
	}
	return strconv.AppendFloat(nil, v, 'f', -1, 64), nil
}

// rounded is v rounded to that many decimals.
func rounded(v float64, decimals int) number {
	scale := math.Pow10(decimals)

	// + 0 turns −0 into 0
	return number(math.Round(v*scale)/scale + 0)
}

// ifKnown returns the address of v; nil, which is null in JSON, if it is not known.
func ifKnown[T any](known bool, v T) *T {
	if !known {
		return nil
	}
	return &v
}

// word returns the address of s; nil if it is empty.
func word(s string) *string { return ifKnown(s != "", s) }

// age returns the seconds since at; unknown if at is zero.
func age(now, at time.Time) number {
	if at.IsZero() {
		return number(math.NaN())
	}
	return rounded(now.Sub(at).Seconds(), 2)
}

// landedStates are the names of MAV_LANDED_STATE in the API. Any other number is unknown.
var landedStates = map[landedState]string{1: "on_ground", 2: "in_air", 3: "takeoff", 4: "landing"}

func (a *api) getStatus(w http.ResponseWriter, r *http.Request) response {
	w.Header().Add("Vary", "Accept")
	switch accept := r.Header["Accept"]; {
	case accepts(accept, "text/event-stream"):
		a.stream(w, r)
		return written
	case wantsPage(accept):
		return page(http.StatusOK, statusPage)
	}
	return success(a.drone.status(clientOf(r)))
}

// snapshot is the drone at one moment, for the status.
type snapshot struct {
	situation

	// began is when the program began.
	began time.Time

	tel      telemetry
	modeName string

	// armable: a takeoff could arm now; nil if unknown
	armable *bool

	// lacks is what keeps it from arming and is no unhealthy system.
	lacks []string

	// done: the last manoeuvre is complete; nil if there is none, or it ended incomplete
	done *bool

	target *place

	// by: who has the sticks; "" if nobody has
	by string

	// expires is when the client's sticks expire; zero if none are in force.
	expires time.Time

	// from: the client that has the sticks; invalid if none has
	from netip.Addr

	link linkState
}

// status is the status for a client. It is made with mu locked: the parameters, the texts and the batteries are the
// drone's own, and go on changing.
func (d *drone) status(client netip.Addr) (body *statusBody) {
	d.locked(func() {
		s := d.snapshot(time.Now())
		body = render(&s, client)
	})
	return body
}

// snapshot collects what a status shows. It is of use only while mu is locked.
func (d *drone) snapshot(now time.Time) snapshot {
	v := d.situation(now)
	s := snapshot{
		situation: v, began: d.began, tel: d.tel, modeName: d.modeName(),
		target: d.target(now), by: d.sticks.by(v), from: d.sticks.held(v), link: d.link.state(),
	}
	if s.link.fault == nil && d.online && d.handshake.answersNothing(now) {
		s.link.fault = s.link.unanswered()
	}

	// PX4 checks its present mode, which may need a receiver. A takeoff leaves that for hold, which needs none.
	leavesMode := v.firmware == px4 && v.shown() != ModeHold && v.shown() != ModeTakeoff
	armsOnOurStream := v.firmware.ardupilot() && d.sticks.src.receiver == receiverNone
	if v.canEnter(ModeTakeoff) {
		s.armable, s.lacks = d.tel.armable(now, v.armed, leavesMode || armsOnOurStream)
	}
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
		return m.plan.destination
	case !d.machine.report.armed || (d.machine.mode != ModeHold && d.machine.mode != ModeTakeoff):
		return nil

	// For targetNew after the acceptance the autopilot may still report its old target.
	case to.within(offlineAfter, now) && (m == nil || to.at.After(m.at.Add(targetNew))):
		return &place{to.lat, to.lon, to.amsl - d.tel.home.amsl, to.amsl}
	case m != nil && m.request.goTo && now.Sub(m.at) < targetNew+targetEvery && d.machine.commanded != nil:
		return m.plan.destination
	}
	return nil
}

// flying reports whether the vehicle may be in the air.
func (d *drone) flying() (flying bool) {
	d.locked(func() { flying = d.view(time.Now()).flying() })
	return flying
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
	autopilot := autopilotName(id.autopilot)
	vehicle := lowerName(id.typ.String(), "MAV_TYPE_")
	armed := armedWord[d.machine.report.armed]
	return fmt.Sprintf("%s %s online, %s, mode %s", autopilot, vehicle, armed, d.machine.mode)
}

// autopilotName is a MAV_AUTOPILOT in the API: ardupilot stands for ardupilotmega. It is "" for one
// that has no name.
func autopilotName(a common.MAV_AUTOPILOT) string {
	return strings.TrimSuffix(knownName(a.String(), "MAV_AUTOPILOT_"), "mega")
}

// statusBody is the status (docs/openapi.yaml, Status). A group or a value that the vehicle never reported is
// null, and so is a value that it reports as unknown.
type statusBody struct {
	Version     string        `json:"version"`
	Time        number        `json:"time"`
	Online      bool          `json:"online"`
	Mode        string        `json:"mode"`
	VehicleMode *string       `json:"vehicle_mode"`
	Armed       *bool         `json:"armed"`
	InAir       *bool         `json:"in_air"`
	LandedState *string       `json:"landed_state"`
	State       *string       `json:"state"`
	Failsafe    *bool         `json:"failsafe"`
	Armable     *bool         `json:"armable"`
	Unhealthy   []string      `json:"unhealthy"`
	Done        *bool         `json:"done"`
	Vehicle     *vehicleBody  `json:"vehicle"`
	Position    *positionBody `json:"position"`
	Velocity    *velocityBody `json:"velocity"`
	Attitude    *attitudeBody `json:"attitude"`
	Battery     *batteryBody  `json:"battery"`
	GPS         *gpsBody      `json:"gps"`
	Home        *homeBody     `json:"home"`
	Target      *targetBody   `json:"target"`
	Input       inputBody     `json:"input"`
	Messages    []messageBody `json:"messages"`
	Link        linkBody      `json:"link"`
}

type vehicleBody struct {
	Autopilot *string `json:"autopilot"`
	Type      *string `json:"type"`
	Version   *string `json:"version"`
	SystemID  byte    `json:"system_id"`

	// Kind is how it moves now.
	Kind *string `json:"kind"`

	// Circles: the radius of the circle that it flies round a place
	Circles *number `json:"circles"`

	// Modes: that it can be set to
	Modes []string `json:"modes"`

	// ReturnAltitude: the height to which a return climbs first
	ReturnAltitude *number `json:"return_altitude"`
}

type positionBody struct {
	Lat         number `json:"lat"`
	Lon         number `json:"lon"`
	Altitude    number `json:"altitude"`
	AltitudeMSL number `json:"altitude_msl"`
	Heading     number `json:"heading"`
	Age         number `json:"age"`
}

type velocityBody struct {
	North       number `json:"north"`
	East        number `json:"east"`
	Down        number `json:"down"`
	GroundSpeed number `json:"ground_speed"`
	AirSpeed    number `json:"air_speed"`
	Climb       number `json:"climb"`
	Age         number `json:"age"`
}

type attitudeBody struct {
	Roll  number `json:"roll"`
	Pitch number `json:"pitch"`
	Yaw   number `json:"yaw"`
	Age   number `json:"age"`
}

type batteryBody struct {
	Voltage   number `json:"voltage"`
	Current   number `json:"current"`
	Remaining number `json:"remaining"`
	Age       number `json:"age"`
}

type gpsBody struct {
	Fix        *string `json:"fix"`
	Satellites number  `json:"satellites"`
	HDOP       number  `json:"hdop"`
	Age        number  `json:"age"`
}

type homeBody struct {
	Lat         number `json:"lat"`
	Lon         number `json:"lon"`
	AltitudeMSL number `json:"altitude_msl"`
	Age         number `json:"age"`
}

// targetBody is where the vehicle flies to; Distance is null without a fresh position.
type targetBody struct {
	Lat      number `json:"lat"`
	Lon      number `json:"lon"`
	Altitude number `json:"altitude"`
	Distance number `json:"distance"`
}

type inputBody struct {
	Active    bool    `json:"active"`
	ExpiresIn *number `json:"expires_in"`
	By        *string `json:"by"`
	From      *string `json:"from"`
	Yours     bool    `json:"yours"`
}

type linkBody struct {
	Device       string  `json:"device"`
	Baud         *int    `json:"baud"`
	HeartbeatAge number  `json:"heartbeat_age"`
	Received     uint64  `json:"received"`
	Lost         uint64  `json:"lost"`
	Errors       uint64  `json:"errors"`
	Sent         uint64  `json:"sent"`
	Error        *string `json:"error"`
}

// render is the status for a client.
func render(s *snapshot, client netip.Addr) *statusBody {
	t := &s.tel
	now := s.now
	heard := t.beat.received()
	body := &statusBody{
		Version:     ownVersion,
		Time:        age(now, s.began),
		Online:      s.online,
		Mode:        s.mode.String(),
		VehicleMode: ifKnown(heard, s.modeName),
		Armed:       ifKnown(heard, s.armed),
		InAir:       ifKnown(landedStates[s.landed] != "", s.leftGround()),
		LandedState: word(landedStates[s.landed]),
		State:       word(t.beat.state),
		Failsafe:    ifKnown(heard, t.beat.critical),
		Armable:     s.armable,
		Unhealthy:   append(t.health.unhealthy(), s.lacks...),
		Done:        s.done,
		Target:      s.targetBody(),
		Input:       s.inputBody(client),
		Messages:    messages(t.texts.since(time.Time{}), now),
		Link:        s.link.body(age(now, t.beat.at)),
	}
	if heard {
		body.Vehicle = s.vehicleBody()
	}
	renderFlight(body, t, now)
	if b := &t.battery; b.received() {
		body.Battery = b.body(now)
	}
	if g := &t.gps; g.received() {
		body.GPS = g.body(now)
	}
	if home := &t.home; home.received() {
		body.Home = home.body(now)
	}
	return body
}

func (s *snapshot) vehicleBody() *vehicleBody {
	id := &s.tel.id
	returns := s.returnAltitude()
	return &vehicleBody{
		Autopilot: word(autopilotName(id.autopilot)),
		Type:      word(knownName(id.typ.String(), "MAV_TYPE_")),
		Version:   word(id.version.String()),
		SystemID:  id.system,
		Kind:      word(kindNames[s.kind()]),
		Circles:   ifKnown(s.circle() > 0, rounded(s.circle(), 0)),
		Modes:     s.modes(),

		ReturnAltitude: ifKnown(!math.IsNaN(returns), rounded(returns, 1)),
	}
}

// renderFlight adds where the vehicle is, how it moves and how it is tilted.
func renderFlight(body *statusBody, t *telemetry, now time.Time) {
	if p := &t.position; p.received() {
		body.Position = &positionBody{
			Lat:         rounded(p.lat, 7),
			Lon:         rounded(p.lon, 7),
			Altitude:    rounded(p.relative, 2),
			AltitudeMSL: rounded(p.amsl, 2),
			Heading:     rounded(p.heading, 2),
			Age:         age(now, p.at),
		}
	}
	if v := &t.velocity; v.received() {
		body.Velocity = &velocityBody{
			North:       rounded(v.north, 2),
			East:        rounded(v.east, 2),
			Down:        rounded(v.down, 2),
			GroundSpeed: rounded(v.ground, 2),
			AirSpeed:    rounded(v.air, 2),
			Climb:       rounded(v.climb, 2),
			Age:         age(now, v.at),
		}
	}
	if a := &t.attitude; a.received() {
		body.Attitude = &attitudeBody{
			Roll:  rounded(a.roll, 1),
			Pitch: rounded(a.pitch, 1),
			Yaw:   rounded(a.yaw, 1),
			Age:   age(now, a.at),
		}
	}
}

func (b *battery) body(now time.Time) *batteryBody {
	return &batteryBody{
		Voltage:   rounded(b.voltage, 2),
		Current:   rounded(b.current, 2),
		Remaining: rounded(b.remaining, 0),
		Age:       age(now, b.at),
	}
}

func (g *gps) body(now time.Time) *gpsBody {
	return &gpsBody{
		Fix:        word(g.fix),
		Satellites: rounded(g.satellites, 0),
		HDOP:       rounded(g.hdop, 2),
		Age:        age(now, g.at),
	}
}

// body is home in the status.
func (home *point) body(now time.Time) *homeBody {
	return &homeBody{
		Lat:         rounded(home.lat, 7),
		Lon:         rounded(home.lon, 7),
		AltitudeMSL: rounded(home.amsl, 2),
		Age:         age(now, home.at),
	}
}

func (s *snapshot) targetBody() *targetBody {
	to := s.target
	p := s.tel.position
	metres := math.NaN()
	if to == nil {
		return nil
	}
	if p.within(freshFor, s.now) {
		metres = distance(p.lat, p.lon, to.lat, to.lon)
	}
	return &targetBody{
		Lat:      rounded(to.lat, 7),
		Lon:      rounded(to.lon, 7),
		Altitude: rounded(to.altitude, 2),
		Distance: rounded(metres, 1),
	}
}

func (s *snapshot) inputBody(client netip.Addr) inputBody {
	left := s.expires.Sub(s.now)
	return inputBody{
		Active:    left > 0,
		ExpiresIn: ifKnown(left > 0, rounded(left.Seconds(), 2)),
		By:        word(s.by),
		From:      ifKnown(s.from.IsValid(), s.from.String()),
		Yours:     s.from.IsValid() && s.from == client,
	}
}

func (l *linkState) body(heartbeatAge number) linkBody {
	return linkBody{
		Device:       l.device,
		Baud:         ifKnown(l.baud != 0, l.baud),
		HeartbeatAge: heartbeatAge,
		Received:     l.received,
		Lost:         l.lost,
		Errors:       l.errors,
		Sent:         l.sent,
		Error:        ifKnown(l.fault != nil, fmt.Sprint(l.fault)),
	}
}

// Limits of the stream of the status (docs/openapi.yaml).
const (
	maxStreams = 16

	// eventEvery is the shortest time between two events.
	eventEvery = 100 * time.Millisecond

	// eventLook is how often the stream looks whether the status has changed.
	eventLook = 20 * time.Millisecond

	// eventAtMost is the longest time between two events.
	eventAtMost = time.Second

	// eventBuffer is in bytes. The system's default would hold minutes of events for a client that does not read.
	eventBuffer = 16 << 10
)

// eventStream is a stream of the status. ctx is done when it has ended.
type eventStream struct {
	ctx context.Context
	end func()
}

// stream sends the status with each change, and at least once a second, until the
// client leaves or the program ends.
func (a *api) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	if r.Method == http.MethodHead {
		return
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
		changes := a.drone.changes.Load()
		pause := eventLook
		if now := time.Now(); changes != shown || now.Sub(sent) >= eventAtMost {
			out = append(out, "event: status\ndata: "...)
			out = append(append(out, encode(a.drone.status(clientOf(r)))...), '\n')
			rc.SetWriteDeadline(now.Add(answerTimeout))
			if _, err := w.Write(out); err != nil || rc.Flush() != nil {
				return
			}
			out = out[:0]
			sent = now
			shown = changes
			pause = eventEvery
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		case <-a.drone.ended:
			return
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

// the page for people, with one script and one style
//
//go:embed page/status.html
var statusHTML string

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

// page is a page. It may run only its own script and style, and talk only to this server. No page may frame
// it: that could trick somebody into a click.
func page(status int, html string) response {
	policy := "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'"
	for _, tag := range []string{"script", "style"} {
		if _, rest, ok := strings.Cut(html, "<"+tag+">"); ok {
			body, _, _ := strings.Cut(rest, "</"+tag+">")
			sum := sha256.Sum256([]byte(body))
			policy += "; " + tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
	}
	return response{status: status, contentType: "text/html; charset=utf-8", body: []byte(html), policy: policy}
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
