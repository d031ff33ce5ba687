package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

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

// newHandler returns the eight routes, behind the check of who may use them.
func newHandler(d *drone, allowed admission) http.Handler {
	a := &api{drone: d}
	mux := http.NewServeMux()
	allow := make(map[string][]string)
	for _, route := range a.routes() {
		handle := route.handle
		if route.method == http.MethodGet {
			handle = handle.commandsNothing()
		}
		mux.Handle(route.method+" "+route.path, handle.answers(d.log))
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

// answers returns a handler for net/http that writes the answer of h. If h panics the answer is 500, log has
// the details, and the server goes on.
func (h handler) answers(log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				failed(bug(log.With("path", r.URL.Path), v, false)).write(w)
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

// commandFields are the fields of the commands.
var commandFields = []string{
	"mode", "arm", "roll", "pitch", "yaw", "throttle", "timeout", "lat", "lon", "altitude", "altitude_msl", "north",
	"east", "forward", "right", "up", "heading", "speed", "wait",
}

// commandsNothing returns the handler of a GET. A command that its client sends as one, as curl -G does, would look
// as if it had been carried out.
func (h handler) commandsNothing() handler {
	return func(w http.ResponseWriter, r *http.Request) response {
		i := -1
		if r.URL.RawQuery != "" {
			i = slices.IndexFunc(commandFields, r.URL.Query().Has)
		}
		switch {
		case i >= 0:
			return failed(refuse(codeBadRequest, "a GET commands nothing: %s stands in its query; POST it, in "+
				"the body, as JSON", commandFields[i]))
		case r.ContentLength != 0:
			return failed(refuse(codeBadRequest, "a GET commands nothing, and this one has a body; POST it"))
		}
		return h(w, r)
	}
}

func notFound(w http.ResponseWriter, r *http.Request) response {
	if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header().Add("Vary", "Accept")
		if wantsPage(r.Header["Accept"]) {
			return page(http.StatusNotFound, rootPage)
		}
	}
	return failed(refuse(codeNotFound, "no such path%s; there are GET /api/drone, GET /api/drone/status, GET and "+
		"POST /api/drone/mode, and "+
		"POST /api/drone/input, /api/drone/takeoff, /api/drone/goto and /api/drone/land", meantPath(r.URL.Path)))
}

// meantPath names the route that a path was most likely meant to be: its last word is a route's.
func meantPath(p string) string {
	word := path.Base(strings.ToLower(p))
	switch word {
	case "drone":
		return ": /api/drone was meant"
	case "status", "mode", "input", "takeoff", "goto", "land":
		return ": /api/drone/" + word + " was meant"
	}
	return ""
}

type okBody struct {
	Status string `json:"status"`
}

// contractGzip is docs/openapi.yaml, by go test -run TestWhatIsEmbeddedIsUpToDate -write-embedded .
//
//go:embed docs/openapi.yaml.gz
var contractGzip []byte

// getOK answers OK or, who asks for YAML, with the contract: it describes the program that it comes from.
func (a *api) getOK(w http.ResponseWriter, r *http.Request) response {
	w.Header().Add("Vary", "Accept")
	if !accepts(r.Header["Accept"], "application/yaml") {
		return success(okBody{"OK"})
	}
	return response{status: http.StatusOK, contentType: "application/yaml", body: unzipped(contractGzip)}
}

type modeBody struct {
	Mode        string  `json:"mode"`
	VehicleMode *string `json:"vehicle_mode"`
}

func (a *api) getMode(http.ResponseWriter, *http.Request) response {
	mode, name := a.drone.mode()
	return success(modeBody{Mode: mode.String(), VehicleMode: word(name)})
}

func (a *api) postMode(w http.ResponseWriter, r *http.Request) response {
	var name *string
	req := request{from: clientOf(r)}
	return a.doRequest(w, r, &req, `{"mode":"hold"}`, []field{
		{"mode", &name, 0, 0, requestableModes, ""},
		{"arm", &req.arm, 0, 0, "true or false", ""},
	}, func() error {
		known := false
		if name != nil {
			req.verb = entersMode
			req.mode, known = parseMode(*name)
		}
		switch {
		case name == nil && req.arm == nil:
			return refuse(codeOutOfRange, "mode: missing; give mode, arm or both")
		case name != nil && !known:
			return refuse(codeOutOfRange, "mode: want %s, got %.40q", requestableModes, *name)
		case req.enters(ModeTakeoff) && req.endsDisarmed():
			return refuse(codeOutOfRange, "arm: a takeoff arms by itself; leave arm out")
		}
		return nil
	})
}

func (a *api) postTakeoff(w http.ResponseWriter, r *http.Request) response {
	req := request{verb: entersMode, mode: ModeTakeoff}
	return a.doRequest(w, r, &req, `{"altitude":10}`, []field{
		{"altitude", &req.altitude, 0.5, 1000, "metres above home", fmt.Sprintf("to climb to %g m send {}",
			defaultTakeoff)},
	}, func() error { return nil })
}

func (a *api) postGoto(w http.ResponseWriter, r *http.Request) response {
	req := request{verb: goesTo}
	o := &req.offset
	place := placeFields(&req, "")
	compass := []field{{"north", &o.north, -1000, 1000, "metres", ""}, {"east", &o.east, -1000, 1000, "metres", ""}}
	nose := []field{{"forward", &o.forward, -1000, 1000, "metres", ""}, {"right", &o.right, -1000, 1000, "metres", ""}}
	height := []field{
		{"altitude", &req.altitude, lowestAltitude, 10000, "metres above home", ""},
		{"altitude_msl", &req.altitudeMSL, -500, 10000, "metres above mean sea level", ""},
		{"up", &o.up, -500, 500, "metres", ""},
	}
	return a.doRequest(w, r, &req, `{"altitude":20}`, slices.Concat(place, compass, nose, height, []field{
		{"heading", &req.heading, 0, 360, "degrees", ""},
		{"speed", &req.speed, 0.1, 50, "metres per second", ""},
	}), func() error {
		err := cmp.Or(oneWay(place, compass, nose), oneWay(height[:1], height[1:2], height[2:]), checkPlace(&req))
		if err == nil && req.lat == nil && req.altitude == nil && req.altitudeMSL == nil && req.heading == nil &&
			!o.given() {
			err = refuse(codeOutOfRange, "nothing to do: give a place (lat and lon, north and east, or forward and "+
				"right), a height (altitude, altitude_msl or up) or a heading")
		}
		return err
	})
}

func (a *api) postLand(w http.ResponseWriter, r *http.Request) response {
	req := request{verb: entersMode, mode: ModeLand}
	fields := placeFields(&req, "to land here send {}")
	return a.doRequest(w, r, &req, `{} to land here`, fields, func() error { return checkPlace(&req) })
}

// lostBody is how long a takeoff without a body waits for one whose length its client did not give: in a segment of
// its own it comes later than the headers. A hold and a landing wait for nothing.
const lostBody = 120 * time.Millisecond

// errMadeWay ends a wait whose connection another client needs.
var errMadeWay = fmt.Errorf("all %d connections were in use, and another client needed one", maxConnections)

// doRequest reads the fields of a request (example is a body that works), checks that they fit together, lets the drone
// carry it out, waits for its manoeuvre if the client asked for that, and logs the answer.
func (a *api) doRequest(
	w http.ResponseWriter, r *http.Request, req *request, example string, fields []field, check func() error,
) response {
	var wait *float64
	patience := time.Duration(0)
	if req.enters(ModeTakeoff) && !lengthGiven(r) {
		patience = lostBody
	}

	// Where a body may still follow the request came before the wait for it.
	req.came, req.due = connOf(r).asked()
	body, err := readFields(w, r, example, append(fields, field{"wait", &wait, 0, 600, "seconds", ""}), patience)
	if err == nil {
		err = check()
	}
	log := a.drone.log.With("from", r.RemoteAddr, "route", r.URL.Path, "body", string(body))
	if err != nil {
		log.Info("request refused", "error", err)
		return failed(err)
	}
	log.Info("request")
	began := time.Now()
	if patience > 0 {
		// Until then its body might have come.
		req.due = later(req.due, req.came.Add(patience))
	} else {
		req.came, req.due = connOf(r).asked()
	}
	accepted, err := a.drone.do(*req)
	took := time.Since(began).Round(time.Millisecond)
	if err != nil {
		log.Warn("command failed", "took", took, "error", err)
		return failed(err)
	}
	log.Info("command accepted", "took", took, "command", accepted.command, "mode", accepted.mode)
	answer := commandBody{Status: resultName(0), Command: accepted.command, Mode: accepted.mode.String()}
	answer.Note = lateNote(accepted.behind)
	if req.offset.given() {
		answer.Target = accepted.target.body()
	}
	if or(wait, 0) == 0 {
		return success(answer)
	}
	return a.await(r, accepted.manoeuvre, answer, began, time.Duration(*wait*float64(time.Second)), log)
}

// commandBody is the answer to a request. Mode is empty unless it was accepted. Done says whether the
// manoeuvre is complete, Took after how many seconds the wait ended; both are nil unless the client waited. Note is
// what else is to be said, Target the place that the metres of a goto came to.
type commandBody struct {
	Status     string  `json:"status"`
	StatusCode uint8   `json:"status_code"`
	Command    uint16  `json:"command"`
	Mode       string  `json:"mode,omitempty"`
	Done       *bool   `json:"done,omitempty"`
	Took       *number `json:"took,omitempty"`
	Note       string  `json:"note,omitempty"`

	Target *placeBody `json:"target,omitempty"`
}

// placeBody is a place: degrees, and metres above home.
type placeBody struct {
	Lat      number `json:"lat"`
	Lon      number `json:"lon"`
	Altitude number `json:"altitude"`
}

func (p place) body() *placeBody {
	return &placeBody{rounded(p.lat, 7), rounded(p.lon, 7), rounded(p.altitude, 2)}
}

// await is the answer of an accepted request that waits for its manoeuvre; began is when it came.
func (a *api) await(
	r *http.Request, m *manoeuvre, answer commandBody, began time.Time, wait time.Duration, log *slog.Logger,
) (told response) {
	defer func() {
		if v := recover(); v != nil {
			told = failed(bug(log, v, true))
		}
	}()

	// No time-out ends a wait: net/http has no read deadline then, and write sets a new write deadline.
	limited, cancel := context.WithDeadline(r.Context(), began.Add(wait))
	defer cancel()
	ctx, end := context.WithCancelCause(limited)
	connOf(r).markBusy(func() { end(errMadeWay) })
	err := a.drone.awaitEnd(ctx, m, began)
	done := err == nil
	took := time.Since(began)
	seconds := rounded(took.Seconds(), 2)
	answer.Done = &done
	answer.Took = &seconds
	log = log.With("took", took.Round(time.Millisecond))
	if done {
		answer.Note = joined(answer.Note, m.note)
		log.Info("manoeuvre complete")
		return success(answer)
	}
	log.Info("manoeuvre not complete", "why", err)
	if code(err) != codeNotDone {
		err = fmt.Errorf("accepted, but not complete: %w", err)
	} else if context.Cause(ctx) == errMadeWay {
		err = fmt.Errorf("%w: %w", err, errMadeWay)
	}
	return failedLater(err, answer)
}

type inputAnswer struct {
	Status    string `json:"status"`
	Mode      string `json:"mode"`
	ExpiresIn number `json:"expires_in"`
}

func (a *api) postInput(w http.ResponseWriter, r *http.Request) response {
	var roll, pitch, yaw, throttle, timeout *float64
	body, err := readFields(w, r, `{"roll":0.2,"throttle":0.5}`, []field{
		{"roll", &roll, -1, 1, "of full stick (right is positive)", ""},
		{"pitch", &pitch, -1, 1, "of full stick (forward is positive)", ""},
		{"yaw", &yaw, -1, 1, "of full stick (clockwise is positive)", ""},
		{"throttle", &throttle, 0, 1, "of full throttle (0.5 holds the altitude, in manual mode it is thrust)", ""},
		{"timeout", &timeout, 0.05, 5, "seconds", ""},
	}, 0)
	say := func(how string, what any) {
		a.drone.log.Debug(stickLine, "from", r.RemoteAddr, "route", r.URL.Path, "body", string(body), how, what)
	}
	if err != nil {
		say("refused", err)
		return failed(err)
	}

	// seconds (docs/openapi.yaml)
	expires := or(timeout, 0.5)
	in := stickInput{
		roll: or(roll, 0), pitch: or(pitch, 0), yaw: or(yaw, 0), throttle: throttle,
		timeout: time.Duration(expires * float64(time.Second)), from: clientOf(r),
	}
	in.came, in.due = connOf(r).asked()
	mode, err := a.drone.input(in)
	if err != nil {
		say("refused", err)
		return failed(err)
	}
	say("mode", mode)
	left := max(time.Until(in.expires()).Round(10*time.Millisecond), 0)
	return success(inputAnswer{Status: "OK", Mode: mode.String(), ExpiresIn: number(left.Seconds())})
}

func (a *api) getStatus(w http.ResponseWriter, r *http.Request) response {
	w.Header().Add("Vary", "Accept")
	switch accept := r.Header["Accept"]; {
	case accepts(accept, "text/event-stream"):
		return a.stream(w, r)
	case wantsPage(accept):
		return page(http.StatusOK, statusPage())
	}
	conn := connOf(r)
	conn.answer = a.drone.status(clientOf(r)).append(conn.answer[:0])
	return jsonResponse(http.StatusOK, conn.answer)
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

	// eventUntaken is how long the network may take no data of a stream: its client may be gone without a word.
	eventUntaken = 5 * time.Second

	// eventBuffer is in bytes. The system's default would hold minutes of events for a client that does not read.
	eventBuffer = 16 << 10
)

// eventStream is a stream of the status. ctx is done when it has ended.
type eventStream struct {
	ctx context.Context
	end func()
	to  audience
}

// audience is who reads a stream: behind one address there may be a page that flies, and a program that looks on.
type audience struct {
	from    netip.Addr
	program string
}

// stream sends the status with each change, and at least once a second, until the
// client leaves or the program ends.
func (a *api) stream(w http.ResponseWriter, r *http.Request) response {
	ctx := r.Context()
	if r.Method != http.MethodHead {
		var err error
		if ctx, err = a.openStream(ctx, audience{clientOf(r), r.UserAgent()}); err != nil {
			return failed(err)
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")

	// nginx keeps events back otherwise.
	h.Set("X-Accel-Buffering", "no")
	if r.Method != http.MethodHead {
		a.sendEvents(ctx, w, r)
	}
	return written
}

func (a *api) sendEvents(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	conn := connOf(r)
	conn.markBusy(nil)
	conn.limitUntaken(eventBuffer, eventUntaken)
	var sent time.Time
	var shown uint64
	out := []byte("retry: 1000\n\n")
	for {
		changes := a.drone.changes.Load()
		pause := eventLook
		if now := time.Now(); changes != shown || now.Sub(sent) >= eventAtMost {
			out = append(out, "event: status\ndata: "...)
			out = append(a.drone.status(clientOf(r)).append(out), '\n')
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

// openStream adds a stream, which ends when the returned context is done. Where there are maxStreams, the oldest of the
// same audience makes way, or for the client who has the sticks anybody's. Else there is no room: who flies is
// not cut by who looks on.
func (a *api) openStream(client context.Context, to audience) (context.Context, error) {
	flyer := a.drone.flyer()
	flies := flyer.IsValid() && flyer == to.from
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams = slices.DeleteFunc(a.streams, func(s eventStream) bool { return s.ctx.Err() != nil })
	if len(a.streams) >= maxStreams {
		i := slices.IndexFunc(a.streams, func(s eventStream) bool { return s.to == to })
		if i < 0 && flies {
			i = max(0, slices.IndexFunc(a.streams, func(s eventStream) bool { return s.to.from != to.from }))
		}
		if i < 0 {
			return nil, refuse(codeTooManyStreams, "there are %d streams of the status already; try again when one "+
				"has ended", maxStreams)
		}
		a.streams[i].end()
		a.streams = slices.Delete(a.streams, i, i+1)
	}
	ctx, end := context.WithCancel(client)
	a.streams = append(a.streams, eventStream{ctx, end, to})
	return ctx, nil
}

// statusGzip is page/status.html, the page for people, with one script and one style; made as contractGzip.
//
//go:embed page/status.html.gz
var statusGzip []byte

// statusPage is status.html with the version that it belongs to.
func statusPage() string {
	return strings.Replace(string(unzipped(statusGzip)), "VERSION", ownVersion, 1)
}

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

// unzipped returns what an embedded file holds. TestWhatIsEmbeddedIsUpToDate reads each.
func unzipped(file []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		panic(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		panic(err)
	}
	return b
}

// wantsPage reports whether an Accept header is that of a browser that opens an
// address. A client that accepts JSON gets JSON.
func wantsPage(accept []string) bool {
	return accepts(accept, "text/html") && !accepts(accept, "application/json")
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

// errorBody is the answer to a request that failed. commandBody is nil unless the autopilot
// refused or accepted a command.
type errorBody struct {
	Error string    `json:"error"`
	Code  errorCode `json:"code"`
	*commandBody
	Messages []messageBody `json:"messages,omitzero"`
}

// failed is the answer to a request that failed.
func failed(err error) response {
	body := errorBody{Error: err.Error(), Code: cmp.Or(code(err), codeInternal)}
	if e, ok := err.(*commandError); ok && e.refused != nil {
		s := e.refused
		body.commandBody = &commandBody{Status: resultName(s.result), StatusCode: s.result, Command: uint16(s.step.cmd)}
		body.Messages = messages(s.messages, time.Now())
	}
	return jsonResponse(statusOf(err), encode(body))
}

// failedLater is the answer to a request that was accepted, and failed during the wait for its manoeuvre.
func failedLater(err error, accepted commandBody) response {
	body := errorBody{Error: err.Error(), Code: cmp.Or(code(err), codeInternal), commandBody: &accepted}
	return jsonResponse(statusOf(err), encode(body))
}

// success is the answer to what was done.
func success(body any) response { return jsonResponse(http.StatusOK, encode(body)) }

func jsonResponse(status int, body []byte) response {
	return response{status: status, contentType: "application/json", body: body}
}
