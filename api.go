package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
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
	codeInterrupted: http.StatusConflict,
	codeNotDone:     http.StatusGatewayTimeout,
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

// maxBody is what a command may have, in bytes.
const maxBody = 4 << 10

// api answers the eight routes for one drone.
type api struct {
	drone *drone

	mu      sync.Mutex      // guards all below
	streams []chan struct{} // the oldest first; closed to make way
}

// answered is returned by a handler that has written its answer itself.
var answered = &struct{}{}

// newHandler returns the eight routes behind the checks that keep strangers out.
func newHandler(d *drone, who admission) http.Handler {
	a := &api{drone: d}
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
			} else if v != answered {
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
	mux.HandleFunc("/", notFound)
	return outermost(who.guard(plainPaths(mux), func(w http.ResponseWriter, status int, code, text string) {
		writeError(w, &httpError{status, errorCode(code), text})
	}))
}

func notFound(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header().Add("Vary", "Accept")
		if wantsPage(r.Header["Accept"]) {
			writePage(w, http.StatusNotFound, rootPage)
			return
		}
	}
	writeError(w, &httpError{http.StatusNotFound, "not_found",
		"no such path; the local API has /api/drone and status, mode, input, takeoff, goto and land below it, without a drone name: see " + documented})
}

// documented is where the API is described, for whoever asks for what is not there.
const documented = "docs/openapi.yaml and README.md of mavrest"

// plainPaths keeps away what ServeMux would redirect: no path of ours.
func plainPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/") || strings.Contains(r.URL.Path, "//") || strings.Contains(r.URL.Path, "/.") {
			notFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// outermost answers 500 where anything below it panics; the server goes on.
func outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				slog.Error("panic in a handler", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
				writeError(w, &httpError{http.StatusInternalServerError, "internal", "a bug in mavrest; its log has the details"})
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// encode is json.Marshal with a newline and without HTML's escapes.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // an answer of ours holds what JSON has no word for
	}
	return b.Bytes()
}

// answerHangs ends a client that does not take its answer or its events.
const answerHangs = 2 * time.Second

func writeJSON(w http.ResponseWriter, status int, v any) {
	body := encode(v)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerHangs))
	w.WriteHeader(status)
	w.Write(body)
}

type errorBody struct {
	Error      string        `json:"error"`
	Code       errorCode     `json:"code"`
	Status     string        `json:"status,omitempty"`
	StatusCode *uint8        `json:"status_code,omitempty"`
	Command    uint16        `json:"command,omitempty"`
	Messages   []messageBody `json:"messages,omitzero"`
	Mode       string        `json:"mode,omitempty"`
	Done       *bool         `json:"done,omitempty"`
	Took       *float64      `json:"took,omitempty"`
}

type messageBody struct {
	Severity string  `json:"severity"`
	Text     string  `json:"text"`
	Age      float64 `json:"age"`
}

// severities are the names of MAV_SEVERITY in the API.
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
	switch e := err.(type) { // nobody wraps them
	case *notDoneError:
		status, body.Code = errorStatus[codeNotDone], codeNotDone
		c := e.command
		body.Status, body.StatusCode, body.Command, body.Mode, body.Done, body.Took = c.Status, &c.StatusCode, c.Command, c.Mode, c.Done, c.Took
	case *httpError:
		status, body.Code = e.status, e.code
	case *commandError:
		status, body.Code = errorStatus[e.code], e.code
		if e.answered {
			body.Status, body.StatusCode, body.Command = resultName(e.result), &e.result, e.command
			body.Messages = messages(e.messages, time.Now())
		}
		if e.code == codeOffline {
			w.Header().Set("Retry-After", "1")
		}
	}
	writeJSON(w, status, body)
}

// readFields reads a body of one JSON object, or of nothing, into the fields
// that the route has: pointers to pointers, which a field that is absent or
// null leaves nil; check then looks at what they hold.
func readFields(r *http.Request, fields map[string]any, check func() error) ([]byte, error) {
	if r.URL.RawQuery != "" {
		return nil, badRequest("the fields go into the body as JSON, not into the query")
	}
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, badRequest("the body did not come whole within %.0f s", readWithin.Seconds())
	case err != nil:
		return nil, badRequest("the body ended early")
	case len(body) > maxBody:
		return nil, errTooLarge
	}
	if err := decode(body, fields); err != nil {
		return nil, err
	}
	return body, check()
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
		t, _ := dec.Token() // no error: the body was read as JSON before
		name := t.(string)
		into, ok := fields[name]
		switch {
		case !ok:
			return badRequest("unknown field %q; the fields here are: %s", name, fieldNames(fields))
		case seen[name]:
			return badRequest("%s is given twice", name)
		}
		seen[name] = true
		if err := dec.Decode(into); err != nil {
			return wrongType(name, err)
		}
	}
	return nil
}

func fieldNames(fields map[string]any) string {
	return `"` + strings.Join(slices.Sorted(maps.Keys(fields)), `", "`) + `"`
}

// typeWords are JSON's types and Go's in words.
var typeWords = map[string]string{
	"number": "a number", "float64": "a number", "string": "a string", "bool": "true or false",
	"object": "an object", "array": "an array",
}

func wrongType(name string, err error) error {
	e := err.(*json.UnmarshalTypeError)        // no other: it was read as JSON before
	if strings.HasPrefix(e.Value, "number ") { // and the number, which float64 does not hold
		return outOfRange("%s: the number is too large", name)
	}
	return badRequest("%s: want %s, got %s", name, typeWords[e.Type.Name()], typeWords[e.Value])
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
	limitWait        = limit{"wait", 0, 600, "seconds"}
)

func (l limit) check(v *float64) error {
	if v == nil || *v >= l.min && *v <= l.max {
		return nil
	}
	return outOfRange("%s: want %g to %g %s, got %g", l.name, l.min, l.max, l.unit, *v)
}

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
	mode, name := a.drone.mode()
	return struct {
		Mode        string  `json:"mode"`
		VehicleMode *string `json:"vehicle_mode"`
	}{mode.String(), word(name)}, nil
}

// commandBody is the answer to an accepted command. Done and Took come with a
// wait only: whether the manoeuvre is complete, and the seconds it took.
type commandBody struct {
	Status     string   `json:"status"`
	StatusCode uint8    `json:"status_code"`
	Command    uint16   `json:"command"`
	Mode       string   `json:"mode"`
	Done       *bool    `json:"done,omitempty"`
	Took       *float64 `json:"took,omitempty"`
}

// notDoneError is a wait whose time was over.
type notDoneError struct {
	error
	command commandBody
}

// command reads a request's fields, and the wait that every command has, has the
// drone carry it out, waits for its manoeuvre where that is asked for, and logs it.
func (a *api) command(r *http.Request, req *request, fields map[string]any, check func() error) (any, error) {
	var wait *float64
	fields["wait"] = &wait
	body, err := readFields(r, fields, func() error { return cmp.Or(check(), limitWait.check(wait)) })
	if err != nil {
		return nil, err
	}
	conn, bounded := r.Context().Value(connKey{}).(*boundedConn)
	if bounded { // its command may have to wait for the autopilot
		conn.hold(nil)
	}
	began := time.Now()
	ans, err := a.drone.do(*req)
	log := slog.With("from", r.RemoteAddr, "route", r.URL.Path, "body", string(body), "took", time.Since(began).Round(time.Millisecond))
	if err != nil {
		log.Warn("command not carried out", "error", err)
	} else {
		log.Info("command accepted", "command", ans.command, "mode", ans.mode)
	}
	answer := commandBody{Status: resultName(0), Command: ans.command, Mode: ans.mode.String()}
	if err == nil && or(wait, 0) > 0 {
		// The server's time-outs do not end a wait: net/http reads without one while a
		// handler runs, and the answer has a new one.
		ctx, cancel := context.WithDeadline(r.Context(), began.Add(time.Duration(*wait*float64(time.Second))))
		defer cancel()
		if bounded { // a crowd that needs its place does
			conn.hold(cancel)
		}
		err = a.drone.wait(ctx, ans.manoeuvre, began)
		done := err == nil
		answer.Done, answer.Took = &done, number(time.Since(began).Seconds(), 2)
		if code(err) == codeNotDone {
			err = &notDoneError{err, answer}
		}
	}
	if bounded { // its answer goes out first
		conn.hold(nil)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (a *api) postMode(_ http.ResponseWriter, r *http.Request) (any, error) {
	var name *string
	var req request
	return a.command(r, &req, map[string]any{"mode": &name, "arm": &req.arm}, func() error {
		if name != nil {
			req.mode, req.setMode = parseMode(*name)
		}
		switch {
		case name == nil && req.arm == nil:
			return outOfRange("mode: missing; give mode, arm or both")
		case name != nil && !req.setMode:
			return outOfRange("mode: want one of %s, got %q", strings.Join(modeNames[:ModeOther], ", "), *name)
		case req.setMode && req.mode == ModeTakeoff && req.arm != nil && !*req.arm:
			return outOfRange("arm: a takeoff arms by itself; leave it out")
		}
		return nil
	})
}

func (a *api) postTakeoff(_ http.ResponseWriter, r *http.Request) (any, error) {
	req := request{setMode: true, mode: ModeTakeoff}
	return a.command(r, &req, map[string]any{"altitude": &req.altitude}, func() error {
		return limitTakeoff.check(req.altitude)
	})
}

func (a *api) postGoto(_ http.ResponseWriter, r *http.Request) (any, error) {
	req := request{setMode: true, mode: ModeHold, goTo: true}
	return a.command(r, &req, map[string]any{
		"lat": &req.lat, "lon": &req.lon,
		"altitude": &req.altitude, "altitude_msl": &req.altitudeMSL,
		"heading": &req.heading, "speed": &req.speed,
	}, func() error {
		err := cmp.Or(
			checkPlace(req.lat, req.lon),
			limitAltitude.check(req.altitude), limitAltitudeMSL.check(req.altitudeMSL),
			limitHeading.check(req.heading), limitSpeed.check(req.speed),
		)
		switch {
		case err != nil:
			return err
		case req.altitude != nil && req.altitudeMSL != nil:
			return outOfRange("altitude and altitude_msl: give one of the two")
		case req.lat == nil && req.altitude == nil && req.altitudeMSL == nil && req.heading == nil:
			return outOfRange("lat: missing; give lat and lon, altitude, altitude_msl or heading")
		}
		return nil
	})
}

func (a *api) postLand(_ http.ResponseWriter, r *http.Request) (any, error) {
	req := request{setMode: true, mode: ModeLand}
	return a.command(r, &req, map[string]any{"lat": &req.lat, "lon": &req.lon}, func() error {
		return checkPlace(req.lat, req.lon)
	})
}

// defaultTimeout is how long sticks stand without a timeout of their own, in
// seconds (docs/openapi.yaml).
const defaultTimeout = 0.5

func (a *api) postInput(_ http.ResponseWriter, r *http.Request) (any, error) {
	var roll, pitch, yaw, throttle, timeout *float64
	_, err := readFields(r, map[string]any{
		"roll": &roll, "pitch": &pitch, "yaw": &yaw, "throttle": &throttle, "timeout": &timeout,
	}, func() error {
		return cmp.Or(
			limitRoll.check(roll), limitPitch.check(pitch), limitYaw.check(yaw),
			limitThrottle.check(throttle), limitTimeout.check(timeout),
		)
	})
	if err != nil {
		return nil, err
	}
	expires := or(timeout, defaultTimeout)
	mode, err := a.drone.input(stickInput{
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
