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
	"net/http"
	"os"
	"path"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// maxBody is the longest body of a request, in bytes.
const maxBody = 4 << 10

// api answers the eight routes for one drone.
type api struct {
	drone *drone

	// mu: guards the streams
	mu sync.Mutex

	// streams: oldest first
	streams []eventStream
}

// handler handles a request and returns the answer.
type handler func(http.ResponseWriter, *http.Request) response

// response is an answer.
type response struct {
	// status: 0: the handler has written its answer itself
	status int

	contentType string
	body        []byte

	// policy: of a page: what it may run
	policy string
}

// written is the response of a handler that has written its answer itself.
var written response

// success is the answer to what was done.
func success(body any) response { return asJSON(http.StatusOK, body) }

func asJSON(status int, body any) response {
	return response{status: status, contentType: "application/json", body: encode(body)}
}

// answers returns a handler for net/http that writes the answer of h. If h panics the answer is 500, log has
// the details, and the server goes on.
func (h handler) answers(log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				log.Error("panic in a handler", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
				failed(refuse(codeInternal, "a bug in mavrest; its log has the details")).write(w)
			}
		}()
		if answer := h(w, r); answer.status != 0 {
			answer.write(w)
		}
	})
}

// answerTimeout is how long a client may take to read its answer or an event. Then its
// connection is closed.
const answerTimeout = 2 * time.Second

func (a response) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	if a.policy != "" {
		h.Set("Content-Security-Policy", a.policy)
		h.Set("X-Content-Type-Options", "nosniff")
	}
	if a.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// apiRoute is one of the eight.
type apiRoute struct {
	method, path string
	handle       handler
}

func (a *api) routes() []apiRoute {
	return []apiRoute{
		{"GET", "/api/drone", a.getOK},
		{"GET", "/api/drone/status", a.getStatus},
		{"GET", "/api/drone/mode", a.getMode},
		{"POST", "/api/drone/mode", a.postMode},
		{"POST", "/api/drone/input", a.postInput},
		{"POST", "/api/drone/takeoff", a.postTakeoff},
		{"POST", "/api/drone/goto", a.postGoto},
		{"POST", "/api/drone/land", a.postLand},
	}
}

// newHandler returns the eight routes, behind the check of who may use them.
func newHandler(d *drone, allowed admission) http.Handler {
	a := &api{drone: d}
	mux := http.NewServeMux()
	allow := make(map[string][]string)
	for _, route := range a.routes() {
		mux.Handle(route.method+" "+route.path, route.handle.answers(d.log))
		allow[route.path] = append(allow[route.path], strings.Replace(route.method, "GET", "GET, HEAD", 1))
	}
	for pattern, list := range allow {
		methods := strings.Join(list, ", ")
		mux.Handle(pattern, handler(func(w http.ResponseWriter, r *http.Request) response {
			w.Header().Set("Allow", methods)
			return failed(refuse(codeMethod, "%s takes %s, not %s", pattern, methods, r.Method))
		}).answers(d.log))
	}
	mux.Handle("/", handler(notFound).answers(d.log))
	return handler(func(w http.ResponseWriter, r *http.Request) response {
		answered, err := allowed.check(w, r)

		// A browser shows its user no more than that it failed.
		if code(err) == codeCrossOrigin {
			d.log.Warn("a page was refused", "from", r.RemoteAddr, "origin", r.Header.Get("Origin"),
				"method", r.Method, "path", r.URL.Path, "error", err)
		}
		if err != nil {
			return failed(err)
		}
		if answered {
			return written
		}

		// ServeMux would redirect a path like that.
		if p := r.URL.Path; !path.IsAbs(p) || path.Clean(p) != p {
			return notFound(w, r)
		}
		mux.ServeHTTP(w, r)
		return written
	}).answers(d.log)
}

func notFound(w http.ResponseWriter, r *http.Request) response {
	if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header().Add("Vary", "Accept")
		if wantsPage(r.Header["Accept"]) {
			return page(http.StatusNotFound, rootPage)
		}
	}
	return failed(refuse(codeNotFound, "no such path; there are GET /api/drone, GET /api/drone/status, GET and "+
		"POST /api/drone/mode, and "+
		"POST /api/drone/input, /api/drone/takeoff, /api/drone/goto and /api/drone/land"))
}

// encode returns v as JSON with a newline, without HTML escapes.
func encode(v any) []byte {
	var b bytes.Buffer

	// A status takes less.
	b.Grow(2 << 10)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// An answer has a value that JSON can't express: a bug.
		panic(err)
	}
	return b.Bytes()
}

// errorBody is the answer to a request that failed. commandBody is nil unless the autopilot
// refused or accepted a command.
type errorBody struct {
	Error string    `json:"error"`
	Code  errorCode `json:"code"`
	*commandBody
	Messages []messageBody `json:"messages,omitzero"`
}

type messageBody struct {
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Age      number `json:"age"`
}

// severities are the names of MAV_SEVERITY in the API.
var severities = [...]string{"emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"}

func messages(texts []statusText, now time.Time) []messageBody {
	list := make([]messageBody, 0, len(texts))
	for _, t := range texts {
		list = append(list, messageBody{severities[min(int(t.severity), len(severities)-1)], t.text, age(now, t.at)})
	}
	return list
}

// failed is the answer to a request that failed.
func failed(err error) response {
	body := errorBody{Error: err.Error(), Code: cmp.Or(code(err), codeInternal)}
	if e, ok := err.(*commandError); ok && e.step != nil {
		body.commandBody = &commandBody{Status: resultName(e.result), StatusCode: e.result, Command: uint16(e.step.cmd)}
		body.Messages = messages(e.messages, time.Now())
	}
	return asJSON(errorStatus[body.Code], body)
}

// failedLater is the answer to a request that was accepted, and failed during the wait for its manoeuvre.
func failedLater(err error, accepted commandBody) response {
	body := errorBody{Error: err.Error(), Code: cmp.Or(code(err), codeInternal), commandBody: &accepted}
	return asJSON(errorStatus[body.Code], body)
}

// field is a field of a request.
type field struct {
	name string

	// into: the address of a pointer to the value, which stays nil if the field is absent
	into any

	// min, max: the range of a number; both 0 for any other field
	min, max float64

	// unit: a number's unit; for any other field its values, in words
	unit string

	// without is how to send the command without this field; "" if there is no more to say than to leave it out.
	without string
}

// requestableModes are the modes that a client may ask for, in words.
var requestableModes = "one of " + strings.Join(modeNames[:ModeOther], ", ")

// values returns what the field takes, in words.
func (f field) values() string {
	if f.min == f.max {
		return f.unit
	}
	return fmt.Sprintf("%g to %g %s", f.min, f.max, f.unit)
}

// readFields reads the body, which is empty or one JSON object, into the route's fields. It returns
// the body for the log. example is a body that works.
func readFields(w http.ResponseWriter, r *http.Request, example string, fields []field) ([]byte, error) {
	if r.URL.RawQuery != "" {
		return nil, refuse(codeBadRequest, "the fields go into the body as JSON, not into the query")
	}
	if err := checkLength(w, r); err != nil {
		return nil, err
	}

	// With Expect: 100-continue the client has not sent the body yet.
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(codeBadRequest, "the whole body did not arrive within %.0f s", readTimeout.Seconds())
	case err != nil:
		return nil, refuse(codeBadRequest, "the body ended early")
	case len(body) > maxBody:
		return nil, errTooLarge
	case connOf(r).gone():
		// An outage delayed the request, and its client has given up.
		return nil, refuse(codeBadRequest, "the connection was closed before the command was read: nothing was sent")
	}
	return body, decode(trimBody(body), example, fields)
}

// announcesBody returns the first header, by name, that only a request with a body has; "" if there is none.
func announcesBody(h http.Header) (first string) {
	for name, values := range h {
		aboutBody := name == "Expect" || strings.HasPrefix(name, "Content-")

		// An empty one counts as none.
		if aboutBody && strings.Join(values, "") != "" && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// checkLength returns an error if a request announces a body and does not say how long it is. HTTP
// then knows of no body: a takeoff to 3 m would climb to the default, a landing there would land
// here. The answer ends the connection: the body would be read as the next request.
func checkLength(w http.ResponseWriter, r *http.Request) error {
	// -1 for chunks
	lengthGiven := r.ContentLength != 0 || r.Header["Content-Length"] != nil
	header := announcesBody(r.Header)
	if lengthGiven || header == "" {
		return nil
	}

	// A connection that is closed before the body came is reset, and the answer may be lost. After a
	// MaxBytesReader net/http closes only its own side, and waits for the client a while.
	http.MaxBytesReader(w, io.NopCloser(strings.NewReader("?")), 0).Read(make([]byte, 1))
	return refuse(codeLengthRequired, "the request has the header %s and no Content-Length: say how long the body is, "+
		"or leave the %s out; nothing was sent", header, header)
}

var errTooLarge = refuse(codeTooLarge, "the body is over %d bytes; a command needs far less", maxBody)

// decode reads a trimmed body into the fields.
func decode(body []byte, example string, fields []field) error {
	if len(body) == 0 {
		return nil
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return refuse(codeBadRequest, "the body is not one JSON object: %s; want %s",
			cmp.Or(lookOf(body), err.Error()), example)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, _ := dec.Token(); t != json.Delim('{') {
		return refuse(codeBadRequest, "the body is JSON, but not an object%s; want %s", notAnObject(t), example)
	}
	seen := make(map[string]bool)
	for dec.More() {
		// No error: the whole body is valid JSON.
		t, _ := dec.Token()
		name := t.(string)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			return refuse(codeBadRequest, "unknown field %.40q; the fields here are: %s", name, fieldNames(fields))
		}
		if seen[name] {
			return refuse(codeBadRequest, "%s is given twice", name)
		}
		seen[name] = true
		if err := fields[i].decode(dec); err != nil {
			return err
		}
	}
	return nil
}

// notAnObject says more of JSON that is no object, by its first token.
func notAnObject(first json.Token) string {
	switch first := first.(type) {
	case json.Delim:
		return ": it is an array"
	case string:
		if strings.HasPrefix(strings.TrimSpace(first), "{") {
			return ": it is an object in quotes, made JSON twice; send the object itself"
		}
	}
	return ""
}

func fieldNames(fields []field) string {
	var names []string
	for _, f := range fields {
		names = append(names, strconv.Quote(f.name))
	}
	return strings.Join(names, ", ")
}

func (f field) decode(dec *json.Decoder) error {
	if err := dec.Decode(f.into); err != nil {
		// The only possible error: the JSON is valid.
		e := err.(*json.UnmarshalTypeError)

		// It is a number that float64 can't hold.
		if strings.HasPrefix(e.Value, "number ") {
			return refuse(codeOutOfRange, "%s: the number is too large", f.name)
		}
		return refuse(codeBadRequest, "%s: want %s, got a JSON %s", f.name, f.values(), e.Value)
	}

	// Only null leaves the pointer nil.
	if reflect.ValueOf(f.into).Elem().IsNil() {
		return f.isNull()
	}
	if v, ok := f.into.(**float64); ok && (**v < f.min || **v > f.max) {
		return refuse(codeOutOfRange, "%s: want %s, got %g", f.name, f.values(), **v)
	}
	return nil
}

// isNull is the answer to a field that is null. It may stand for a number that its sender has lost:
// JavaScript writes NaN as null.
func (f field) isNull() error {
	values := f.values()
	if f.min != f.max {
		values = "a number, " + values
	}
	err := fmt.Sprintf("%s: null is no value; leave it out or give %s", f.name, values)
	if f.without != "" {
		err += "; " + f.without
	}
	return refuse(codeOutOfRange, "%s", err)
}

// placeFields are the fields of a place. without says how to send the command without one.
func placeFields(req *request, without string) []field {
	return []field{
		{"lat", &req.lat, -90, 90, "degrees", without},
		{"lon", &req.lon, -180, 180, "degrees", without},
	}
}

// checkPlace returns an error if only one of lat and lon was given, or if the place is 0, 0: it lies
// in the sea, and is what a client sends that has no place.
func checkPlace(req *request) error {
	switch {
	case req.lat != nil && req.lon == nil:
		return refuse(codeOutOfRange, "lon: missing; lat and lon come together")
	case req.lat == nil && req.lon != nil:
		return refuse(codeOutOfRange, "lat: missing; lat and lon come together")
	case req.lat != nil && degE7(*req.lat) == 0 && degE7(*req.lon) == 0:
		return refuse(codeOutOfRange, "lat, lon: 0, 0 is no place that a drone is sent to: two empty fields are "+
			"sent as 0, 0")
	}
	return nil
}

type okBody struct {
	Status string `json:"status"`
}

func (a *api) getOK(http.ResponseWriter, *http.Request) response { return success(okBody{"OK"}) }

type modeBody struct {
	Mode        string  `json:"mode"`
	VehicleMode *string `json:"vehicle_mode"`
}

func (a *api) getMode(http.ResponseWriter, *http.Request) response {
	mode, name := a.drone.mode()
	return success(modeBody{Mode: mode.String(), VehicleMode: word(name)})
}

// commandBody is the answer to a request. Mode is empty unless it was accepted. Done says whether the
// manoeuvre is complete, Took after how many seconds the wait ended; both are nil unless the client waited. Note is
// what else is to be said.
type commandBody struct {
	Status     string  `json:"status"`
	StatusCode uint8   `json:"status_code"`
	Command    uint16  `json:"command"`
	Mode       string  `json:"mode,omitempty"`
	Done       *bool   `json:"done,omitempty"`
	Took       *number `json:"took,omitempty"`
	Note       string  `json:"note,omitempty"`
}

// errMadeWay ends a wait whose connection another client needs.
var errMadeWay = fmt.Errorf("all %d connections were in use, and another client needed one", maxConnections)

// doRequest reads the fields of a request (example is a body that works), checks that they fit together, lets the drone
// carry it out, waits for its manoeuvre if the client asked for that, and logs the answer.
func (a *api) doRequest(
	w http.ResponseWriter, r *http.Request, req *request, example string, fields []field, check func() error,
) response {
	var wait *float64
	body, err := readFields(w, r, example, append(fields, field{"wait", &wait, 0, 600, "seconds", ""}))
	if err == nil {
		err = check()
	}
	if err != nil {
		return failed(err)
	}
	conn := connOf(r)
	// the autopilot may take seconds to answer
	conn.markBusy(nil)
	began := time.Now()
	accepted, err := a.drone.do(*req)
	log := a.drone.log.With("from", r.RemoteAddr, "route", r.URL.Path, "body", string(body))
	took := func() time.Duration { return time.Since(began).Round(time.Millisecond) }
	if err != nil {
		log.Warn("command failed", "took", took(), "error", err)
		return failed(err)
	}
	log.Info("command accepted", "took", took(), "command", accepted.command, "mode", accepted.mode)
	answer := commandBody{Status: resultName(0), Command: accepted.command, Mode: accepted.mode.String()}
	if or(wait, 0) == 0 {
		return success(answer)
	}
	// No time-out ends a wait: net/http has no read deadline then, and write sets a new write deadline.
	limited, cancel := context.WithDeadline(r.Context(), began.Add(time.Duration(*wait*float64(time.Second))))
	defer cancel()
	ctx, end := context.WithCancelCause(limited)
	conn.markBusy(func() { end(errMadeWay) })
	err = a.drone.wait(ctx, accepted.manoeuvre, began)
	done := err == nil
	seconds := rounded(time.Since(began).Seconds(), 2)
	answer.Done = &done
	answer.Took = &seconds
	if done {
		answer.Note = accepted.manoeuvre.note
		log.Info("manoeuvre complete", "took", took())
		return success(answer)
	}
	log.Info("manoeuvre not complete", "took", took(), "why", err)
	if code(err) != codeNotDone {
		err = fmt.Errorf("accepted, but not complete: %w", err)
	} else if context.Cause(ctx) == errMadeWay {
		err = fmt.Errorf("%w: %w", err, errMadeWay)
	}
	return failedLater(err, answer)
}

func (a *api) postMode(w http.ResponseWriter, r *http.Request) response {
	var name *string
	req := request{from: clientOf(r)}
	return a.doRequest(w, r, &req, `{"mode":"hold"}`, []field{
		{"mode", &name, 0, 0, requestableModes, ""},
		{"arm", &req.arm, 0, 0, "true or false", ""},
	}, func() error {
		if name != nil {
			req.mode, req.setMode = parseMode(*name)
		}
		switch {
		case name == nil && req.arm == nil:
			return refuse(codeOutOfRange, "mode: missing; give mode, arm or both")
		case name != nil && !req.setMode:
			return refuse(codeOutOfRange, "mode: want %s, got %.40q", requestableModes, *name)
		case req.setMode && req.mode == ModeTakeoff && req.endsDisarmed():
			return refuse(codeOutOfRange, "arm: a takeoff arms by itself; leave arm out")
		}
		return nil
	})
}

func (a *api) postTakeoff(w http.ResponseWriter, r *http.Request) response {
	req := request{setMode: true, mode: ModeTakeoff}
	return a.doRequest(w, r, &req, `{"altitude":10}`, []field{
		{"altitude", &req.altitude, 0.5, 1000, "metres above home", fmt.Sprintf("to climb to %g m send {}",
			defaultTakeoff)},
	}, func() error { return nil })
}

func (a *api) postGoto(w http.ResponseWriter, r *http.Request) response {
	req := request{setMode: true, mode: ModeHold, goTo: true}
	return a.doRequest(w, r, &req, `{"altitude":20}`, append(placeFields(&req, ""), []field{
		{"altitude", &req.altitude, lowestAltitude, 10000, "metres above home", ""},
		{"altitude_msl", &req.altitudeMSL, -500, 10000, "metres above mean sea level", ""},
		{"heading", &req.heading, 0, 360, "degrees", ""},
		{"speed", &req.speed, 0.1, 50, "metres per second", ""},
	}...), func() error {
		switch err := checkPlace(&req); {
		case err != nil:
			return err
		case req.altitude != nil && req.altitudeMSL != nil:
			return refuse(codeOutOfRange, "altitude and altitude_msl: give one of the two")
		case req.lat == nil && req.altitude == nil && req.altitudeMSL == nil && req.heading == nil:
			return refuse(codeOutOfRange, "nothing to do: give lat and lon, an altitude (altitude or altitude_msl) "+
				"or a heading")
		}
		return nil
	})
}

func (a *api) postLand(w http.ResponseWriter, r *http.Request) response {
	req := request{setMode: true, mode: ModeLand}
	fields := placeFields(&req, "to land here send {}")
	return a.doRequest(w, r, &req, `{} to land here`, fields, func() error { return checkPlace(&req) })
}

type inputAnswer struct {
	Status    string `json:"status"`
	Mode      string `json:"mode"`
	ExpiresIn number `json:"expires_in"`
}

func (a *api) postInput(w http.ResponseWriter, r *http.Request) response {
	var roll, pitch, yaw, throttle, timeout *float64
	_, err := readFields(w, r, `{"roll":0.2,"throttle":0.5}`, []field{
		{"roll", &roll, -1, 1, "of full stick (right is positive)", ""},
		{"pitch", &pitch, -1, 1, "of full stick (forward is positive)", ""},
		{"yaw", &yaw, -1, 1, "of full stick (clockwise is positive)", ""},
		{"throttle", &throttle, 0, 1, "of full throttle (0.5 holds the altitude)", ""},
		{"timeout", &timeout, 0.05, 5, "seconds", ""},
	})
	if err != nil {
		return failed(err)
	}

	// seconds (docs/openapi.yaml)
	expires := or(timeout, 0.5)
	mode, err := a.drone.input(stickInput{
		roll: or(roll, 0), pitch: or(pitch, 0), yaw: or(yaw, 0), throttle: throttle,
		timeout: time.Duration(expires * float64(time.Second)), from: clientOf(r),
	})
	if err != nil {
		return failed(err)
	}
	a.drone.log.Debug("sticks", "from", r.RemoteAddr, "mode", mode)
	return success(inputAnswer{Status: "OK", Mode: mode.String(), ExpiresIn: number(expires)})
}

// lookalike is a body that is almost JSON, and what is wrong with it.
type lookalike struct {
	like *regexp.Regexp
	says string
}

// lookalikes are tried in order. Each was sent by somebody: by a shell that removed the quotes, by
// curl without JSON, by Python's str of a dict.
var lookalikes = []lookalike{
	{regexp.MustCompile(`^--[^\n]*\r?\n(?i:content-disposition)`), "it looks like a form of several parts (curl " +
		"-F): send JSON (curl -d)"},
	{regexp.MustCompile(`^[\w.%+-]+=`), "it looks like a form: send JSON"},
	{regexp.MustCompile(`^<`), "it looks like XML or HTML: send JSON"},
	{regexp.MustCompile(`^@`), "it looks like the name of a file, which the client did not read"},
	{regexp.MustCompile(`^['"\x60]\s*\{`), "it is an object in quotes: the shell left them in, or it was made JSON " +
		"twice; send the object itself"},
	{regexp.MustCompile(`^\{\s*'`), "its quotes are single ones, as Python's str writes them (json.dumps writes " +
		"JSON): JSON has double ones"},
	{regexp.MustCompile(`^\{\s*\\`), "its quotes have backslashes, which the shell left in"},
	{regexp.MustCompile(`^\{\s*[“”„«‘’]`), "its quotes are typographic ones: JSON has straight ones"},
	{regexp.MustCompile(`^\{\s*[\pL_$]`), "its names have no quotes: PowerShell and cmd remove them; put the body " +
		"into a file, and send that (curl -d @FILE)"},
	{regexp.MustCompile(`:\s*[+-]?(NaN|nan|Infinity|inf)\b`), "NaN and Infinity are no JSON numbers"},
	{regexp.MustCompile(`:\s*(True|False|None)\b`), "True, False and None are Python's: JSON has true and false; " +
		"json.dumps writes JSON"},
	{regexp.MustCompile(`:\s*-?\d+,\d+\s*[,}]`), "a number has a decimal comma: JSON has a point"},
	{regexp.MustCompile(`,\s*\}`), "a comma stands before the brace that ends it"},
	{regexp.MustCompile(`/[/*]`), "JSON has no comments"},
	{regexp.MustCompile(`^\w+:\s`), "it looks like YAML: send JSON"},
	{regexp.MustCompile(`^\{[^{}]*$`), "it ends early; is the Content-Length too small?"},
	{regexp.MustCompile(`^\{[^{}]*\}\s*\S`), "something follows the object"},
}

// lookOf says what a body that is not JSON looks like; "" if that is not known.
func lookOf(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte("\x1f\x8b")):
		// Gzip.
		return "it is compressed: send it as it is"
	case bytes.HasPrefix(body, []byte("\xff\xfe")),
		bytes.HasPrefix(body, []byte("\xfe\xff")),
		bytes.Contains(body, []byte{0}):
		return "it looks like UTF-16, as PowerShell writes files: send UTF-8"
	}
	for _, l := range lookalikes {
		if l.like.Match(body) {
			return l.says
		}
	}
	if !utf8.Valid(body) {
		return "it is no text in UTF-8"
	}
	return ""
}

// byteOrderMark begins a file of UTF-8 that a Windows program wrote. It says nothing.
var byteOrderMark = []byte("\ufeff")

// trimBody returns the body without a byte order mark, and without the white space of JSON around it.
func trimBody(body []byte) []byte {
	return bytes.Trim(bytes.TrimPrefix(body, byteOrderMark), " \t\r\n")
}
