package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// errorStatus is the HTTP status of each code that the link gives.
var errorStatus = map[errorCode]int{
	codeOutOfRange:  http.StatusUnprocessableEntity,
	codeWrongMode:   http.StatusConflict,
	codeRefused:     http.StatusConflict,
	codeSuperseded:  http.StatusConflict,
	codeUnsupported: http.StatusNotImplemented,
	codeOffline:     http.StatusServiceUnavailable,
	codeNoAck:       http.StatusGatewayTimeout,
}

// httpError is an error answer that needs no vehicle.
type httpError struct {
	status int
	code   errorCode
	text   string
}

func (e *httpError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &httpError{http.StatusBadRequest, "bad_request", fmt.Sprintf(format, args...)}
}

func outOfRange(format string, args ...any) error {
	return &httpError{http.StatusUnprocessableEntity, codeOutOfRange, fmt.Sprintf(format, args...)}
}

// api answers the eight routes of API.md for one link.
type api struct {
	link *link

	mu      sync.Mutex // guards the last status that was rendered
	version uint64     // of the link it shows
	tick    int64      // of statusTick
	status  *jsonBody
}

// statusTick is how old the telemetry and the ages in a status may be: within
// it, a status is not rendered again unless something else changed. A full link
// has 1,200 messages a second to render: a quarter more CPU for each GET.
const statusTick = 10 * time.Millisecond

// newHandler returns the eight routes behind the checks that keep strangers out.
// hosts are names of this machine beside those that every machine has.
func newHandler(l *link, hosts []string) http.Handler {
	a := &api{link: l}
	mux := http.NewServeMux()
	routes := []struct {
		method, path string
		handle       func(http.ResponseWriter, *http.Request) (any, error)
	}{
		{"GET", "/api/drone", a.getOK},
		{"GET", "/api/drone/status", a.getStatus},
		{"GET", "/api/drone/mode", a.getMode},
		{"POST", "/api/drone/mode", a.postMode},
		{"POST", "/api/drone/input", a.postInput},
		{"POST", "/api/drone/takeoff", a.postTakeoff},
		{"POST", "/api/drone/goto", a.postGoto},
		{"POST", "/api/drone/land", a.postLand},
	}
	allow := make(map[string]string)
	for _, r := range routes {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
			v, err := r.handle(w, req)
			if err != nil {
				writeError(w, err)
			} else {
				writeJSON(w, http.StatusOK, v)
			}
		})
		if allow[r.path] != "" {
			allow[r.path] += ", "
		}
		allow[r.path] += strings.Replace(r.method, "GET", "GET, HEAD", 1)
	}
	for path, methods := range allow {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", methods)
			writeError(w, &httpError{http.StatusMethodNotAllowed, "method_not_allowed",
				fmt.Sprintf("%s takes %s, not %s", path, methods, r.Method)})
		})
	}
	notFound := func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &httpError{http.StatusNotFound, "not_found",
			"no such path; the local API has /api/drone and status, mode, input, takeoff, goto and land below it, without a drone name"})
	}
	mux.HandleFunc("/", notFound)

	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &httpError{http.StatusForbidden, "cross_origin", "a page of another origin can't command the drone"})
	}))
	guarded := guard.Handler(mux)
	own := ownHosts(hosts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer recoverPanic(w, r)
		switch {
		case !own.has(r.Host):
			writeError(w, &httpError{http.StatusMisdirectedRequest, "wrong_host",
				fmt.Sprintf("%q is not a name of this machine; call it by address, or start mavrest with -host to allow the name", r.Host)})
		case !strings.HasPrefix(r.URL.Path, "/") || strings.Contains(r.URL.Path, "//") || strings.Contains(r.URL.Path, "/."):
			// No path of ours, and ServeMux would redirect.
			notFound(w, r)
		default:
			guarded.ServeHTTP(w, r)
		}
	})
}

// recoverPanic answers 500 for a bug of ours; the server goes on.
func recoverPanic(w http.ResponseWriter, r *http.Request) {
	if v := recover(); v != nil {
		slog.Error("panic in a handler", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
		writeError(w, &httpError{http.StatusInternalServerError, "internal", "a bug in mavrest; its log has the details"})
	}
}

// jsonBody is a body that is ready to be written, and its Content-Length.
type jsonBody struct {
	bytes  []byte
	length []string
}

func newJSONBody(v any) *jsonBody {
	b, err := encodeJSON(v)
	if err != nil {
		panic(err) // an answer of ours holds what JSON has no word for
	}
	return &jsonBody{b, []string{strconv.Itoa(len(b))}}
}

// The headers that every answer has. They are put into the map as they are:
// Header.Set and a length made anew are 3 % of what GET status costs, of 5 that
// it may.
var (
	contentType  = []string{"application/json"}
	cacheControl = []string{"no-store"}
)

// writeJSON answers with a value, or with a *jsonBody.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, ok := v.(*jsonBody)
	if !ok {
		body = newJSONBody(v)
	}
	h := w.Header()
	h["Content-Type"] = contentType
	h["Cache-Control"] = cacheControl
	if len(body.bytes) > 2048 { // net/http tells the length of a shorter one, for less
		h["Content-Length"] = body.length
	}
	w.WriteHeader(status)
	w.Write(body.bytes)
}

// encodeJSON is json.Marshal with a newline and without HTML's escapes.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// errorBody is the body of every error answer.
type errorBody struct {
	Error      string        `json:"error"`
	Code       errorCode     `json:"code"`
	Status     string        `json:"status,omitempty"`
	StatusCode *uint8        `json:"status_code,omitempty"`
	Command    uint16        `json:"command,omitempty"`
	Messages   []messageBody `json:"messages,omitzero"`
}

type messageBody struct {
	Severity string  `json:"severity"`
	Text     string  `json:"text"`
	Age      float64 `json:"age"`
}

// severities are the names of MAV_SEVERITY on the wire.
var severities = [...]string{"emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"}

func messages(texts []statusText, now time.Time) []messageBody {
	list := make([]messageBody, 0, len(texts))
	for _, t := range texts {
		list = append(list, messageBody{severities[min(int(t.severity), len(severities)-1)], t.text, *age(now, t.at)})
	}
	return list
}

// writeError answers with an error: the one place that gives codes their status.
func writeError(w http.ResponseWriter, err error) {
	status, body := http.StatusInternalServerError, errorBody{Error: err.Error(), Code: "internal"}
	var he *httpError
	var ce *commandError
	switch {
	case errors.As(err, &he):
		status, body.Code = he.status, he.code
	case errors.As(err, &ce):
		status, body.Code = errorStatus[ce.code], ce.code
		if ce.answered {
			body.Status, body.StatusCode, body.Command = resultName(ce.result), &ce.result, ce.command
			body.Messages = messages(ce.messages, time.Now())
		}
		if ce.code == codeOffline {
			w.Header().Set("Retry-After", "1")
		}
	}
	writeJSON(w, status, body)
}

// readFields reads a body of one JSON object, or of nothing, into the fields
// that the route has: pointers to pointers, which a field that is absent or
// null leaves nil.
func readFields(r *http.Request, fields map[string]any) ([]byte, error) {
	if r.URL.RawQuery != "" {
		return nil, badRequest("the fields go into the body as JSON, not into the query")
	}
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, badRequest("the body ended early: %v", err)
	}
	if len(body) > maxBody {
		return nil, errTooLarge
	}
	return body, decode(body, fields)
}

var errTooLarge = &httpError{http.StatusRequestEntityTooLarge, "too_large", "the body is over 4096 bytes; a command needs far less"}

func decode(body []byte, fields map[string]any) error {
	if len(bytes.Trim(body, " \t\r\n")) == 0 { // JSON's white space
		return nil
	}
	if !utf8.Valid(body) {
		return badRequest("the body is not UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return badRequest("the body is not one JSON object: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, _ := dec.Token(); t != json.Delim('{') {
		return badRequest("the body is JSON, but not an object; want {%s}", fieldNames(fields))
	}
	seen := make(map[string]bool)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return badRequest("the body is not one JSON object: %v", err)
		}
		name := t.(string)
		into, ok := fields[name]
		switch {
		case !ok:
			return badRequest("unknown field %q; the fields here are: %s", name, fieldNames(fields))
		case seen[name]:
			return badRequest("%s is given twice", name)
		}
		seen[name] = true
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return badRequest("%s: %v", name, err)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return wrongType(name, raw, into)
		}
	}
	return nil
}

func fieldNames(fields map[string]any) string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, strconv.Quote(name))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func wrongType(name string, raw json.RawMessage, into any) error {
	want := "a number"
	switch into.(type) {
	case **string:
		want = "a string"
	case **bool:
		want = "true or false"
	}
	got := "a number"
	switch raw[0] {
	case '"':
		got = "a string"
	case 't', 'f':
		got = "true or false"
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	}
	if want == got { // 1e999
		return outOfRange("%s: the number is too large", name)
	}
	return badRequest("%s: want %s, got %s", name, want, got)
}

// limit is what a number takes.
type limit struct {
	name     string
	min, max float64
	unit     string
}

var (
	limitLat         = limit{"lat", -90, 90, "degrees"}
	limitLon         = limit{"lon", -180, 180, "degrees"}
	limitTakeoff     = limit{"altitude", 0.5, 1000, "metres above home"}
	limitAltitude    = limit{"altitude", -500, 10000, "metres above home"}
	limitAltitudeMSL = limit{"altitude_msl", -500, 10000, "metres above mean sea level"}
	limitHeading     = limit{"heading", 0, 360, "degrees"}
	limitSpeed       = limit{"speed", 0.1, 50, "metres per second"}
	limitTimeout     = limit{"timeout", 0.05, 5, "seconds"}
	limitRoll        = limit{"roll", -1, 1, "of full stick, right positive"}
	limitPitch       = limit{"pitch", -1, 1, "of full stick, forward positive"}
	limitYaw         = limit{"yaw", -1, 1, "of full stick, clockwise positive"}
	limitThrottle    = limit{"throttle", 0, 1, "of full throttle, 0.5 holds the altitude"}
)

func (l limit) check(v *float64) error {
	if v == nil || *v >= l.min && *v <= l.max {
		return nil
	}
	return outOfRange("%s: want %g to %g %s, got %g", l.name, l.min, l.max, l.unit, *v)
}

// checkPlace checks the fields of a place.
func checkPlace(lat, lon *float64) error {
	if (lat == nil) != (lon == nil) {
		missing := "lon"
		if lat == nil {
			missing = "lat"
		}
		return outOfRange("%s: missing; lat and lon come together", missing)
	}
	return cmp.Or(limitLat.check(lat), limitLon.check(lon))
}

type statusOK struct {
	Status string `json:"status"`
}

func (a *api) getOK(http.ResponseWriter, *http.Request) (any, error) {
	return statusOK{"OK"}, nil
}

func (a *api) getMode(http.ResponseWriter, *http.Request) (any, error) {
	mode, name := a.link.mode()
	return struct {
		Mode        string  `json:"mode"`
		VehicleMode *string `json:"vehicle_mode"`
	}{mode.String(), word(name)}, nil
}

// commandBody is the answer to an accepted command.
type commandBody struct {
	Status     string `json:"status"`
	StatusCode uint8  `json:"status_code"`
	Command    uint16 `json:"command"`
	Mode       string `json:"mode"`
}

// command has the link carry out a request, and logs it.
func (a *api) command(r *http.Request, body []byte, req request) (any, error) {
	conn, bounded := r.Context().Value(connKey{}).(*boundedConn)
	if bounded { // its command may have to wait for the autopilot
		conn.wait()
	}
	began := time.Now()
	ans, err := a.link.do(req)
	if bounded { // a landing may wait for the place of a client that does not read
		conn.SetWriteDeadline(time.Now().Add(answerHangs))
	}
	log := slog.With("from", r.RemoteAddr, "route", r.URL.Path, "body", string(body), "took", time.Since(began).Round(time.Millisecond))
	if err != nil {
		log.Warn("command not carried out", "error", err)
		return nil, err
	}
	log.Info("command accepted", "command", ans.command, "mode", ans.mode)
	return commandBody{resultName(0), 0, ans.command, ans.mode.String()}, nil
}

func (a *api) postMode(_ http.ResponseWriter, r *http.Request) (any, error) {
	var name *string
	var req request
	body, err := readFields(r, map[string]any{"mode": &name, "arm": &req.arm})
	if err != nil {
		return nil, err
	}
	if name != nil {
		var ok bool
		if req.mode, ok = parseMode(*name); !ok {
			return nil, outOfRange("mode: want one of %s, got %q", strings.Join(modeNames[:ModeOther], ", "), *name)
		}
		req.setMode = true
	}
	switch {
	case name == nil && req.arm == nil:
		return nil, outOfRange("mode: missing; give mode, arm or both")
	case req.setMode && req.mode == ModeTakeoff && req.arm != nil && !*req.arm:
		return nil, outOfRange("arm: a takeoff arms by itself; leave it out")
	}
	return a.command(r, body, req)
}

func (a *api) postTakeoff(_ http.ResponseWriter, r *http.Request) (any, error) {
	req := request{setMode: true, mode: ModeTakeoff}
	body, err := readFields(r, map[string]any{"altitude": &req.altitude})
	if err == nil {
		err = limitTakeoff.check(req.altitude)
	}
	if err != nil {
		return nil, err
	}
	return a.command(r, body, req)
}

func (a *api) postGoto(_ http.ResponseWriter, r *http.Request) (any, error) {
	req := request{setMode: true, mode: ModeHold, goTo: true}
	body, err := readFields(r, map[string]any{
		"lat": &req.lat, "lon": &req.lon,
		"altitude": &req.altitude, "altitude_msl": &req.altitudeMSL,
		"heading": &req.heading, "speed": &req.speed,
	})
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(
		checkPlace(req.lat, req.lon),
		limitAltitude.check(req.altitude), limitAltitudeMSL.check(req.altitudeMSL),
		limitHeading.check(req.heading), limitSpeed.check(req.speed),
	); err != nil {
		return nil, err
	}
	switch {
	case req.altitude != nil && req.altitudeMSL != nil:
		return nil, outOfRange("altitude and altitude_msl: give one of the two")
	case req.lat == nil && req.altitude == nil && req.altitudeMSL == nil && req.heading == nil:
		return nil, outOfRange("lat: missing; give lat and lon, altitude, altitude_msl or heading")
	}
	return a.command(r, body, req)
}

func (a *api) postLand(_ http.ResponseWriter, r *http.Request) (any, error) {
	req := request{setMode: true, mode: ModeLand}
	body, err := readFields(r, map[string]any{"lat": &req.lat, "lon": &req.lon})
	if err == nil {
		err = checkPlace(req.lat, req.lon)
	}
	if err != nil {
		return nil, err
	}
	return a.command(r, body, req)
}

// defaultTimeout is how long sticks stand without a timeout of their own, in
// seconds (API.md).
const defaultTimeout = 0.5

func (a *api) postInput(_ http.ResponseWriter, r *http.Request) (any, error) {
	var roll, pitch, yaw, throttle, timeout *float64
	_, err := readFields(r, map[string]any{
		"roll": &roll, "pitch": &pitch, "yaw": &yaw, "throttle": &throttle, "timeout": &timeout,
	})
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(
		limitRoll.check(roll), limitPitch.check(pitch), limitYaw.check(yaw),
		limitThrottle.check(throttle), limitTimeout.check(timeout),
	); err != nil {
		return nil, err
	}
	expires := or(timeout, defaultTimeout)
	mode, err := a.link.input(stickInput{
		roll: or(roll, 0), pitch: or(pitch, 0), yaw: or(yaw, 0), throttle: throttle,
		timeout: time.Duration(expires * float64(time.Second)),
	})
	if err != nil {
		return nil, err
	}
	slog.Debug("sticks", "from", r.RemoteAddr, "mode", mode)
	return struct {
		Status    string  `json:"status"`
		Mode      string  `json:"mode"`
		ExpiresIn float64 `json:"expires_in"`
	}{"OK", mode.String(), expires}, nil
}

func or(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}

// statusBody is the status object of API.md. A nil is null: never reported, or
// reported as unknown.
type statusBody struct {
	Online      bool          `json:"online"`
	Mode        string        `json:"mode"`
	VehicleMode *string       `json:"vehicle_mode"`
	Armed       *bool         `json:"armed"`
	InAir       *bool         `json:"in_air"`
	LandedState *string       `json:"landed_state"`
	State       *string       `json:"state"`
	Failsafe    *bool         `json:"failsafe"`
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
}

type inputBody struct {
	Active    bool     `json:"active"`
	ExpiresIn *float64 `json:"expires_in"`
}

type linkBody struct {
	Device       string   `json:"device"`
	Baud         *int     `json:"baud"`
	HeartbeatAge *float64 `json:"heartbeat_age"`
	Received     uint64   `json:"received"`
	Lost         uint64   `json:"lost"`
	Errors       uint64   `json:"errors"`
	Sent         uint64   `json:"sent"`
}

// number is v with so many decimals, null where it is unknown.
func number(v float64, decimals int) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	scale := math.Pow10(decimals)
	v = math.Round(v*scale) / scale
	if v == 0 {
		v = 0 // no minus before a zero
	}
	return &v
}

// word is s, null where it is empty.
func word(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// age is the time since at in seconds, null where it never was.
func age(now, at time.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	return number(now.Sub(at).Seconds(), 2)
}

// landedStates are the names of MAV_LANDED_STATE on the wire; 0 is unknown.
var landedStates = [...]string{"", "on_ground", "in_air", "takeoff", "landing"}

func (a *api) getStatus(http.ResponseWriter, *http.Request) (any, error) {
	version, tick := a.link.version.Load(), time.Now().UnixNano()/int64(statusTick)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == nil || a.version != version || a.tick != tick {
		a.status, a.version, a.tick = newJSONBody(render(a.link.status())), version, tick
	}
	return a.status, nil
}

// render is the status object of a snapshot.
func render(s snapshot) statusBody {
	t := &s.tel
	b := statusBody{
		Online:   t.online,
		Mode:     s.mode.String(),
		Messages: messages(t.recent(time.Time{}), s.now),
		Link: linkBody{
			Device: s.device, HeartbeatAge: age(s.now, t.heartbeatAt),
			Received: s.received, Lost: s.lost, Errors: s.errors, Sent: s.sent,
		},
	}
	if s.baud != 0 {
		b.Link.Baud = &s.baud
	}
	if !t.heartbeatAt.IsZero() {
		b.VehicleMode, b.Armed, b.State, b.Failsafe = word(t.modeName), &t.armed, word(t.state), &t.failsafe
		b.Vehicle = &vehicleBody{t.autopilot, t.vehicleType, word(t.version), t.system}
	}
	if t.landed > 0 && int(t.landed) < len(landedStates) {
		inAir := t.landed != 1
		b.InAir, b.LandedState = &inAir, word(landedStates[t.landed])
	}
	if p := &t.position; !p.at.IsZero() {
		b.Position = &positionBody{number(p.lat, 7), number(p.lon, 7), number(p.relative, 2), number(p.amsl, 2), number(p.heading, 2), age(s.now, p.at)}
	}
	if v := &t.velocity; !v.at.IsZero() {
		b.Velocity = &velocityBody{number(v.north, 2), number(v.east, 2), number(v.down, 2), number(v.ground, 2), number(v.air, 2), number(v.climb, 2), age(s.now, v.at)}
	}
	if v := &t.attitude; !v.at.IsZero() {
		b.Attitude = &attitudeBody{number(v.roll, 1), number(v.pitch, 1), number(v.yaw, 1), age(s.now, v.at)}
	}
	if v := &t.battery; !v.at.IsZero() {
		b.Battery = &batteryBody{number(v.voltage, 2), number(v.current, 2), number(v.remaining, 0), age(s.now, v.at)}
	}
	if g := &t.gps; !g.at.IsZero() {
		b.GPS = &gpsBody{word(g.fix), number(g.satellites, 0), number(g.hdop, 2), age(s.now, g.at)}
	}
	if h := &t.home; !h.at.IsZero() {
		b.Home = &homeBody{number(h.lat, 7), number(h.lon, 7), number(h.amsl, 2)}
	}
	if p := s.target; p != nil {
		b.Target = &targetBody{number(p.lat, 7), number(p.lon, 7), number(p.altitude, 2)}
	}
	if left := s.expires.Sub(s.now); left > 0 {
		b.Input = inputBody{true, number(left.Seconds(), 2)}
	}
	return b
}
