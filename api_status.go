package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

//go:embed CHANGELOG.md
var changelog string

// ownVersion is the version of this program: the first heading of CHANGELOG.md.
// deploy/version reads it there too.
var ownVersion = newestVersion(changelog)

func newestVersion(changelog string) string {
	_, after, _ := strings.Cut(changelog, "\n## ")
	heading, _, _ := strings.Cut(after, "\n")
	version, _, _ := strings.Cut(heading, " ")
	return version
}

// statusBody is the status object (docs/openapi.yaml). A nil is null in JSON: the
// vehicle never reported the value, or reported it as unknown.
type statusBody struct {
	Version     string        `json:"version"`
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
	Autopilot string  `json:"autopilot"`
	Type      string  `json:"type"`
	Version   *string `json:"version"`
	SystemID  uint8   `json:"system_id"`
}

type positionBody struct {
	Lat         *float64 `json:"lat"`
	Lon         *float64 `json:"lon"`
	Altitude    *float64 `json:"altitude"`
	AltitudeMSL *float64 `json:"altitude_msl"`
	Heading     *float64 `json:"heading"`
	Age         *float64 `json:"age"`
}

type velocityBody struct {
	North       *float64 `json:"north"`
	East        *float64 `json:"east"`
	Down        *float64 `json:"down"`
	GroundSpeed *float64 `json:"ground_speed"`
	AirSpeed    *float64 `json:"air_speed"`
	Climb       *float64 `json:"climb"`
	Age         *float64 `json:"age"`
}

type attitudeBody struct {
	Roll  *float64 `json:"roll"`
	Pitch *float64 `json:"pitch"`
	Yaw   *float64 `json:"yaw"`
	Age   *float64 `json:"age"`
}

type batteryBody struct {
	Voltage   *float64 `json:"voltage"`
	Current   *float64 `json:"current"`
	Remaining *float64 `json:"remaining"`
	Age       *float64 `json:"age"`
}

type gpsBody struct {
	Fix        *string  `json:"fix"`
	Satellites *float64 `json:"satellites"`
	HDOP       *float64 `json:"hdop"`
	Age        *float64 `json:"age"`
}

type homeBody struct {
	Lat         *float64 `json:"lat"`
	Lon         *float64 `json:"lon"`
	AltitudeMSL *float64 `json:"altitude_msl"`
	Age         *float64 `json:"age"`
}

type targetBody struct {
	Lat      *float64 `json:"lat"`
	Lon      *float64 `json:"lon"`
	Altitude *float64 `json:"altitude"`
	Distance *float64 `json:"distance"`
}

type inputBody struct {
	Active    bool     `json:"active"`
	ExpiresIn *float64 `json:"expires_in"`
	By        *string  `json:"by"`
	From      *string  `json:"from"`
	Yours     bool     `json:"yours"`
}

type linkBody struct {
	Device       string   `json:"device"`
	Baud         *int     `json:"baud"`
	HeartbeatAge *float64 `json:"heartbeat_age"`
	Received     uint64   `json:"received"`
	Lost         uint64   `json:"lost"`
	Errors       uint64   `json:"errors"`
	Sent         uint64   `json:"sent"`
	Error        *string  `json:"error"`
}

// number returns v rounded to so many decimals; nil if v is NaN or infinite.
func number(v float64, decimals int) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	scale := math.Pow10(decimals)
	v = math.Round(v*scale)/scale + 0 // turns −0 into 0
	return &v
}

// orNull returns v; nil if it is not known.
func orNull[T any](known bool, v T) *T {
	if !known {
		return nil
	}
	return &v
}

// word returns s; nil if it is empty.
func word(s string) *string { return orNull(s != "", s) }

// age returns the seconds since at; nil if at is zero.
func age(now, at time.Time) *float64 {
	if at.IsZero() {
		return nil
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
	return a.status(clientOf(r)), nil
}

// status returns the status object for a client.
func (a *api) status(client netip.Addr) statusBody {
	s := a.drone.status()
	b := render(s)
	b.Input.Yours = s.from.IsValid() && s.from == client
	return b
}

// render is the status object of a snapshot, but for what depends on who asks.
func render(s snapshot) statusBody {
	t, now := &s.tel, s.now
	shown, stands := t.beat.came(), t.stands(now)
	return statusBody{
		Version:     ownVersion,
		Online:      s.online,
		Mode:        s.mode.String(),
		VehicleMode: orNull(shown, s.modeName),
		Armed:       orNull(shown, t.beat.armed),
		InAir:       orNull(landedStates[stands] != "", stands.inAir()),
		LandedState: word(landedStates[stands]),
		State:       word(t.beat.state),
		Failsafe:    orNull(shown, t.beat.failsafe),
		Armable:     s.armable,
		Unhealthy:   t.health.unhealthy(),
		Done:        s.done,
		Vehicle:     orNull(shown, t.id.body()),
		Position:    orNull(t.position.came(), t.position.body(now)),
		Velocity:    orNull(t.velocity.came(), t.velocity.body(now)),
		Attitude:    orNull(t.attitude.came(), t.attitude.body(now)),
		Battery:     orNull(t.battery.came(), t.battery.body(now)),
		GPS:         orNull(t.gps.came(), t.gps.body(now)),
		Home:        orNull(t.home.came(), t.home.body(now)),
		Target:      s.targetBody(),
		Input:       s.inputBody(),
		Messages:    messages(t.texts.since(time.Time{}), now),
		Link:        s.link.body(age(now, t.beat.at)),
	}
}

func (id *identity) body() vehicleBody {
	return vehicleBody{
		Autopilot: autopilotName(id.autopilot),
		Type:      lowerName(id.typ.String(), "MAV_TYPE_"),
		Version:   word(id.version.String()),
		SystemID:  id.system,
	}
}

func (p *position) body(now time.Time) positionBody {
	return positionBody{
		Lat: number(p.lat, 7), Lon: number(p.lon, 7),
		Altitude: number(p.relative, 2), AltitudeMSL: number(p.amsl, 2),
		Heading: number(p.heading, 2),
		Age:     age(now, p.at),
	}
}

func (v *velocity) body(now time.Time) velocityBody {
	return velocityBody{
		North: number(v.north, 2), East: number(v.east, 2), Down: number(v.down, 2),
		GroundSpeed: number(v.ground, 2), AirSpeed: number(v.air, 2), Climb: number(v.climb, 2),
		Age: age(now, v.at),
	}
}

func (a *attitude) body(now time.Time) attitudeBody {
	return attitudeBody{Roll: number(a.roll, 1), Pitch: number(a.pitch, 1), Yaw: number(a.yaw, 1), Age: age(now, a.at)}
}

func (b *battery) body(now time.Time) batteryBody {
	return batteryBody{Voltage: number(b.voltage, 2), Current: number(b.current, 2), Remaining: number(b.remaining, 0), Age: age(now, b.at)}
}

func (g *gps) body(now time.Time) gpsBody {
	return gpsBody{Fix: word(g.fix), Satellites: number(g.satellites, 0), HDOP: number(g.hdop, 2), Age: age(now, g.at)}
}

func (home *point) body(now time.Time) homeBody {
	return homeBody{Lat: number(home.lat, 7), Lon: number(home.lon, 7), AltitudeMSL: number(home.amsl, 2), Age: age(now, home.at)}
}

// targetBody has no distance without a fresh position.
func (s *snapshot) targetBody() *targetBody {
	to, p := s.target, s.tel.position
	if to == nil {
		return nil
	}
	b := &targetBody{Lat: number(to.lat, 7), Lon: number(to.lon, 7), Altitude: number(to.altitude, 2)}
	if p.within(freshFor, s.now) {
		b.Distance = number(distance(p.lat, p.lon, to.lat, to.lon), 1)
	}
	return b
}

// inputBody leaves Yours to status, which knows who asks.
func (s *snapshot) inputBody() inputBody {
	left := s.expires.Sub(s.now)
	b := inputBody{Active: left > 0, By: word(s.by), From: orNull(s.from.IsValid(), s.from.String())}
	if b.Active {
		b.ExpiresIn = number(left.Seconds(), 2)
	}
	return b
}

func (l *linkState) body(heartbeatAge *float64) linkBody {
	b := linkBody{
		Device: l.device, Baud: orNull(l.baud != 0, l.baud), HeartbeatAge: heartbeatAge,
		Received: l.received, Lost: l.lost, Errors: l.errors, Sent: l.sent,
	}
	if l.fault != nil {
		b.Error = word(l.fault.Error())
	}
	return b
}

// Limits of the stream of the status (docs/openapi.yaml).
const (
	maxStreams  = 16
	eventEvery  = 100 * time.Millisecond // the shortest time between two events
	eventAtMost = time.Second            // the longest
	eventBuffer = 16 << 10               // bytes; the system's default would hold minutes of events for a client that does not read
)

// stream sends the status whenever it changed, until the client leaves or the
// program ends.
func (a *api) stream(w http.ResponseWriter, r *http.Request) (any, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	if r.Method == http.MethodHead {
		return nil, nil
	}
	end := a.openStream()
	defer a.closeStream(end)
	if conn := connOf(r); conn != nil {
		conn.markBusy(nil)
		if c, ok := conn.Conn.(interface{ SetWriteBuffer(int) error }); ok {
			c.SetWriteBuffer(eventBuffer)
		}
	}
	var sent time.Time
	var shown uint64
	client := clientOf(r)
	out := []byte("retry: 1000\n\n")
	for {
		changes := a.drone.changes.Load()
		if now := time.Now(); changes != shown || now.Sub(sent) >= eventAtMost {
			out = append(out, "event: status\ndata: "...)
			out = append(append(out, encode(a.status(client))...), '\n')
			rc.SetWriteDeadline(now.Add(answerHangs))
			if _, err := w.Write(out); err != nil || rc.Flush() != nil {
				return nil, nil
			}
			out, sent, shown = out[:0], now, changes
		}
		select {
		case <-time.After(eventEvery):
		case <-r.Context().Done():
			return nil, nil
		case <-end:
			return nil, nil
		case <-a.drone.ended:
			return nil, nil
		}
	}
}

// openStream adds a stream. If there are maxStreams it ends the oldest one. The
// stream ends when end is closed.
func (a *api) openStream() (end chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.streams) == maxStreams {
		close(a.streams[0])
		a.streams = a.streams[1:]
	}
	end = make(chan struct{})
	a.streams = append(a.streams, end)
	return end
}

func (a *api) closeStream(end chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams = slices.DeleteFunc(a.streams, func(o chan struct{}) bool { return o == end })
}

// statusHTML is the page for people. It has one script and one style.
//
//go:embed status.html
var statusHTML string

// page is an HTML answer and its Content-Security-Policy.
type page struct {
	html, policy string
}

// statusPage is status.html with the version that it belongs to.
var statusPage = newPage(strings.Replace(statusHTML, "VERSION", ownVersion, 1))

// rootPage is what a browser gets at /: a link to the page.
var rootPage = newPage(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>mavrest</title>
<p>There is nothing at this address. <a href="/api/drone/status">The drone is here.</a></p>
</html>
`)

// newPage returns a page with a Content-Security-Policy: it may run its own script and
// style only, talk to this server only, and be framed by no other page, which could
// trick somebody into a click.
func newPage(text string) page {
	policy := "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	for _, tag := range []string{"script", "style"} {
		if _, rest, ok := strings.Cut(text, "<"+tag+">"); ok {
			body, _, _ := strings.Cut(rest, "</"+tag+">")
			sum := sha256.Sum256([]byte(body))
			policy += "; " + tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
	}
	return page{text, policy}
}

func writePage(w http.ResponseWriter, status int, p page) {
	w.Header().Set("Content-Security-Policy", p.policy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	write(w, status, "text/html; charset=utf-8", []byte(p.html))
}

// accepts reports whether an Accept header names a media type. It ignores weights.
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
