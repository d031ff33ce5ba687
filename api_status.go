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
	t, now, link := &s.tel, s.now, s.link
	p, v, a, bat, g, h := t.position, t.velocity, t.attitude, t.battery, t.gps, t.home
	shown, stands, left := t.beat.came(), t.stands(now), s.expires.Sub(now)
	b := statusBody{
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
		Vehicle:     orNull(shown, vehicleBody{autopilotName(t.id.autopilot), lowerName(t.id.typ.String(), "MAV_TYPE_"), word(t.id.version.String()), t.id.system}),
		Position:    orNull(p.came(), positionBody{number(p.lat, 7), number(p.lon, 7), number(p.relative, 2), number(p.amsl, 2), number(p.heading, 2), age(now, p.at)}),
		Velocity:    orNull(v.came(), velocityBody{number(v.north, 2), number(v.east, 2), number(v.down, 2), number(v.ground, 2), number(v.air, 2), number(v.climb, 2), age(now, v.at)}),
		Attitude:    orNull(a.came(), attitudeBody{number(a.roll, 1), number(a.pitch, 1), number(a.yaw, 1), age(now, a.at)}),
		Battery:     orNull(bat.came(), batteryBody{number(bat.voltage, 2), number(bat.current, 2), number(bat.remaining, 0), age(now, bat.at)}),
		GPS:         orNull(g.came(), gpsBody{word(g.fix), number(g.satellites, 0), number(g.hdop, 2), age(now, g.at)}),
		Home:        orNull(h.came(), homeBody{number(h.lat, 7), number(h.lon, 7), number(h.amsl, 2)}),
		Input:       inputBody{Active: left > 0, By: word(s.by), From: orNull(s.from.IsValid(), s.from.String())},
		Messages:    messages(t.texts.since(time.Time{}), now),
		Link: linkBody{
			Device: link.device, Baud: orNull(link.baud != 0, link.baud), HeartbeatAge: age(now, t.beat.at),
			Received: link.received, Lost: link.lost, Errors: link.errors, Sent: link.sent,
		},
	}
	if link.fault != nil {
		b.Link.Error = word(link.fault.Error())
	}
	if b.Input.Active {
		b.Input.ExpiresIn = number(left.Seconds(), 2)
	}
	if to := s.target; to != nil {
		b.Target = &targetBody{number(to.lat, 7), number(to.lon, 7), number(to.altitude, 2), nil}
		if p.within(freshFor, now) {
			b.Target.Distance = number(distance(p.lat, p.lon, to.lat, to.lon), 1)
		}
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
