package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// postRoutes are the routes that take a body, with a body that each accepts.
var postRoutes = map[string]string{
	"/api/drone/mode":    `{"mode":"position"}`,
	"/api/drone/input":   `{"roll":0.1}`,
	"/api/drone/takeoff": `{"altitude":30}`,
	"/api/drone/goto":    `{"lat":47.3980,"lon":8.5460}`,
	"/api/drone/land":    `{"lat":47.3980,"lon":8.5460}`,
}

// waitingRoutes are the routes that take a wait, with the other fields that they need.
var waitingRoutes = map[string]string{
	"/api/drone/mode":    `"mode":"hold",`,
	"/api/drone/takeoff": ``,
	"/api/drone/goto":    `"altitude":20,`,
	"/api/drone/land":    ``,
}

// errorContract is the table of errors of docs/openapi.yaml: the codes of each HTTP status.
var errorContract = map[int][]string{
	400: {"bad_request"},
	403: {"cross_origin"},
	404: {"not_found"},
	405: {"method_not_allowed"},
	409: {"wrong_mode", "refused", "superseded", "interrupted"},
	411: {"length_required"},
	413: {"too_large"},
	421: {"wrong_host"},
	422: {"out_of_range"},
	500: {"internal"},
	501: {"unsupported"},
	503: {"offline"},
	504: {"no_ack", "not_done"},
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	body   string
}

// failure is the body of an error answer.
type failure struct {
	Error      string
	Code       string
	Status     *string
	StatusCode *int `json:"status_code"`
	Command    *int
	Messages   []struct {
		Severity, Text string
		Age            float64
	}
	Mode *string
	Done *bool
	Took *float64
}

func (r reply) failure(t *testing.T) failure {
	t.Helper()
	var f failure
	if err := json.Unmarshal([]byte(r.body), &f); err != nil {
		t.Fatalf("%d %q: %v", r.status, r.body, err)
	}
	return f
}

// checkForm checks what docs/openapi.yaml says of every answer: it is JSON on one line, must
// not be stored, and no other origin may read it. An error has a sentence, and a code that
// belongs to its status.
func (r reply) checkForm(t *testing.T) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%d: %s is %q, want %q", r.status, name, got, want)
		}
	}
	for name := range r.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%d: %s opens the answer to other origins", r.status, name)
		}
	}
	if strings.Count(r.body, "\n") != 1 || !strings.HasSuffix(r.body, "}\n") || !json.Valid([]byte(r.body)) {
		t.Errorf("%d: not one JSON object and one newline: %q", r.status, r.body)
		return
	}
	if r.status == http.StatusOK {
		return
	}
	f := r.failure(t)
	if !slices.Contains(errorContract[r.status], f.Code) {
		t.Errorf("%d with code %q is not in the contract", r.status, f.Code)
	}
	if f.Error == "" {
		t.Errorf("%d %s has no sentence", r.status, f.Code)
	}
	retry := ""
	if r.status == http.StatusServiceUnavailable {
		retry = "1"
	}
	if got := r.header.Get("Retry-After"); got != retry {
		t.Errorf("%d: Retry-After is %q, want %q", r.status, got, retry)
	}
}

// want checks an error answer: its status, its code and words of its sentence.
func (r reply) want(t *testing.T, status int, code string, says ...string) {
	t.Helper()
	r.checkForm(t)
	if r.status != status {
		t.Errorf("got %d %s want %d %s", r.status, r.body, status, code)
		return
	}
	f := r.failure(t)
	if f.Code != code {
		t.Errorf("got %d %s want code %s", r.status, r.body, code)
	}
	for _, s := range says {
		if !strings.Contains(f.Error, s) {
			t.Errorf("%q does not say %q", f.Error, s)
		}
	}
}

// wantOK checks that a request was answered 200, with this body if one is given.
func (r reply) wantOK(t *testing.T, body ...string) {
	t.Helper()
	r.checkForm(t)
	if r.status != http.StatusOK {
		t.Errorf("got %d %s want 200", r.status, r.body)
	} else if len(body) > 0 && r.body != body[0]+"\n" {
		t.Errorf("got  %s want %s", r.body, body[0])
	}
}

// has checks that an answer has these words.
func (r reply) has(t *testing.T, words ...string) {
	t.Helper()
	for _, want := range words {
		if !strings.Contains(r.body, want) {
			t.Errorf("%s is not in %s", want, r.body)
		}
	}
}

// call makes a handler answer a request. Each header is a name and a value; Host
// and the client's address, From, are headers here too.
func call(h http.Handler, method, target string, body io.Reader, headers ...string) reply {
	req := httptest.NewRequest(method, target, body)
	req.Host = "192.0.2.7"
	for i := 0; i < len(headers); i += 2 {
		switch headers[i] {
		case "Host":
			req.Host = headers[i+1]
		case "From":
			req.RemoteAddr = headers[i+1]
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return reply{rec.Code, rec.Header(), rec.Body.String()}
}

// httpFlight is a flight whose client sees the bytes of the answers.
type httpFlight struct {
	*flight
	lingers bool // it waits at its end for what a 411 left
}

// flyHTTP runs a test with a vehicle that can be armed. hosts are the names given with -host.
func flyHTTP(t *testing.T, flavour simFlavour, test func(hf *httpFlight), hosts ...string) {
	t.Helper()
	fly(t, flavour, nil, func(f *flight) {
		f.handler = newHandler(f.drone, admission{hosts: ownHosts("", "", hosts)})
		test(&httpFlight{flight: f})
	})
}

func (hf *httpFlight) get(path string) reply { return call(hf.handler, "GET", path, nil) }

func (hf *httpFlight) post(path, body string) reply {
	return call(hf.handler, "POST", path, strings.NewReader(body))
}

// fly puts the vehicle into the air, and into a mode.
func (hf *httpFlight) fly(mode string) {
	hf.Helper()
	hf.sim.placeInAir(100)
	time.Sleep(2 * time.Second)
	if mode != "hold" {
		hf.post("/api/drone/mode", `{"mode":"`+mode+`"}`).wantOK(hf.T)
	}
	hf.wantMode(mode)
}

func (hf *httpFlight) wantMode(mode string) {
	hf.Helper()
	if got := hf.get("/api/drone/mode").body; !strings.HasPrefix(got, `{"mode":"`+mode+`",`) {
		hf.Errorf("got %s want mode %s", got, mode)
	}
}

// orders returns the commands that the vehicle received from the n-th message on, without
// requests for messages, and every position of the sticks that differs from the one before.
func (hf *httpFlight) orders(n int) []string {
	var list []string
	last := ""
	for i, r := range hf.sim.received() {
		switch m := r.msg.(type) {
		case *common.MessageCommandLong:
			request := m.Command == common.MAV_CMD_REQUEST_MESSAGE || m.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL
			if i >= n && !request {
				list = append(list, m.Command.String())
			}
		case *common.MessageCommandInt:
			if i >= n {
				list = append(list, m.Command.String())
			}
		case *common.MessageManualControl:
			now := fmt.Sprintf("sticks %d %d %d %d", m.X, m.Y, m.Z, m.R)
			if now != last && i >= n {
				list = append(list, now)
			}
			last = now
		}
	}
	return list
}

// untouched checks that f sends the vehicle no command and no new sticks.
func (hf *httpFlight) untouched(f func()) {
	hf.Helper()
	n := len(hf.sim.received())
	f()
	time.Sleep(200 * time.Millisecond)
	if got := hf.orders(n); len(got) != 0 {
		hf.Errorf("the vehicle was sent: %v", got)
	}
}

// answer changes how the vehicle acknowledges commands, except for requests for messages.
func (hf *httpFlight) answer(how func(ack *common.MessageCommandAck) []simAnswer) {
	hf.sim.change(func() {
		hf.sim.switches().onAck = func(ack *common.MessageCommandAck) []simAnswer {
			if ack.Command == common.MAV_CMD_REQUEST_MESSAGE {
				return []simAnswer{{ack: ack}}
			}
			return how(ack)
		}
	})
}

// refuse makes the vehicle acknowledge every command with this result.
func (hf *httpFlight) refuse(result common.MAV_RESULT) {
	hf.answer(func(ack *common.MessageCommandAck) []simAnswer {
		ack.Result = result
		return []simAnswer{{ack: ack}}
	})
}

// obey lets the vehicle obey again after answer, refuse or ignores (flight_test.go).
func (hf *httpFlight) obey() {
	hf.sim.change(func() { hf.sim.switches().idle, hf.sim.switches().onAck = false, nil })
}

// ---- The eight routes ----

func TestEachRouteAnswersAsTheContractShows(t *testing.T) {
	tests := []struct {
		name    string
		flavour simFlavour
		from    string // mode in the air; "" on the ground
		method  string
		path    string
		body    string
		want    string
	}{
		{"the vehicle is online", simPX4, "", "GET", "/api/drone", "",
			`{"status":"OK"}`},
		{"the mode of a drone that got no command yet", simPX4, "", "GET", "/api/drone/mode", "",
			`{"mode":"manual","vehicle_mode":"AUTO.LOITER"}`},
		{"the mode, with ArduPilot's own name", simArduPilot, "hold", "GET", "/api/drone/mode", "",
			`{"mode":"hold","vehicle_mode":"GUIDED"}`},
		{"set the mode", simPX4, "hold", "POST", "/api/drone/mode", `{"mode":"position"}`,
			`{"status":"accepted","status_code":0,"command":176,"mode":"position"}`},
		{"arm: the mode is then the one that the vehicle shows", simPX4, "", "POST", "/api/drone/mode", `{"arm":true}`,
			`{"status":"accepted","status_code":0,"command":400,"mode":"hold"}`},
		{"disarm on the ground", simPX4, "", "POST", "/api/drone/mode", `{"arm":false}`,
			`{"status":"accepted","status_code":0,"command":400,"mode":"manual"}`},
		{"set the mode, then arm", simPX4, "", "POST", "/api/drone/mode", `{"mode":"altitude","arm":true}`,
			`{"status":"accepted","status_code":0,"command":400,"mode":"altitude"}`},
		{"return to the ground station is reported as rtgs", simPX4, "hold", "POST", "/api/drone/mode",
			`{"mode":"rtgs"}`,
			`{"status":"accepted","status_code":0,"command":176,"mode":"rtgs"}`},
		{"takeoff as a mode", simArduPilot, "", "POST", "/api/drone/mode", `{"mode":"takeoff"}`,
			`{"status":"accepted","status_code":0,"command":22,"mode":"takeoff"}`},
		{"land as a mode", simPX4, "hold", "POST", "/api/drone/mode", `{"mode":"land"}`,
			`{"status":"accepted","status_code":0,"command":176,"mode":"land"}`},
		{"sticks, for half a second if nothing else is said", simPX4, "position", "POST", "/api/drone/input",
			`{"roll":0.2}`,
			`{"status":"OK","mode":"position","expires_in":0.5}`},
		{"sticks with a timeout", simPX4, "altitude", "POST", "/api/drone/input", `{"pitch":-0.1,"timeout":1.25}`,
			`{"status":"OK","mode":"altitude","expires_in":1.25}`},
		{"sticks in manual mode", simPX4, "manual", "POST", "/api/drone/input", `{"throttle":0.6}`,
			`{"status":"OK","mode":"manual","expires_in":0.5}`},
		{"takeoff on PX4: the last command was the climb", simPX4, "", "POST", "/api/drone/takeoff", `{"altitude":10}`,
			`{"status":"accepted","status_code":0,"command":22,"mode":"takeoff"}`},
		{"takeoff on ArduPilot: the last command was the climb", simArduPilot, "", "POST", "/api/drone/takeoff", "",
			`{"status":"accepted","status_code":0,"command":22,"mode":"takeoff"}`},
		{"goto", simPX4, "hold", "POST", "/api/drone/goto",
			`{"lat":47.3980,"lon":8.5460,"altitude":20,"heading":90,"speed":5}`,
			`{"status":"accepted","status_code":0,"command":192,"mode":"hold"}`},
		{"land here", simPX4, "hold", "POST", "/api/drone/land", "",
			`{"status":"accepted","status_code":0,"command":176,"mode":"land"}`},
		{"land at a place: the mode is land on the way too", simPX4, "hold", "POST", "/api/drone/land",
			`{"lat":47.3980,"lon":8.5460}`,
			`{"status":"accepted","status_code":0,"command":192,"mode":"land"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			flyHTTP(t, test.flavour, func(hf *httpFlight) {
				if test.from != "" {
					hf.fly(test.from)
				}
				call(hf.handler, test.method, test.path, strings.NewReader(test.body)).wantOK(hf.T, test.want)
			})
		})
	}
}

func TestHeadersWithKeysAndMailAddressesAreIgnored(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		for _, headers := range [][]string{
			{"api-key", "wrong", "email", "nobody@example.org"}, // as for a cloud API (docs/openapi.yaml)
			{"api-key", "", "X-User-Email", "", "Authorization", "Basic bm9ib2R5Og=="},
		} {
			call(hf.handler, "GET", "/api/drone/status", nil, headers...).wantOK(hf.T)
			body := strings.NewReader(`{"mode":"hold"}`)
			call(hf.handler, "POST", "/api/drone/mode", body, headers...).wantOK(hf.T)
		}
	})
}

// ---- Paths and methods ----

func TestAKnownPathWithAnotherMethodIs405(t *testing.T) {
	allow := map[string]string{
		"/api/drone":         "GET, HEAD",
		"/api/drone/status":  "GET, HEAD",
		"/api/drone/mode":    "GET, HEAD, POST",
		"/api/drone/input":   "POST",
		"/api/drone/takeoff": "POST",
		"/api/drone/goto":    "POST",
		"/api/drone/land":    "POST",
	}
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND",
		"post", "get"}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.untouched(func() {
			for path, methodsHere := range allow {
				for _, method := range methods {
					if slices.Contains(strings.Split(methodsHere, ", "), method) {
						continue
					}
					r := call(hf.handler, method, path, strings.NewReader(postRoutes[path]))
					r.want(hf.T, 405, "method_not_allowed", path)
					if got := r.header.Get("Allow"); got != methodsHere {
						hf.Errorf("%s %s: Allow is %q, want %q", method, path, got, methodsHere)
					}
				}
			}
		})
		hf.get("/api/drone").wantOK(hf.T)
	})
}

func TestAnyOtherPathIs404(t *testing.T) {
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"}
	paths := []string{
		// Routes of such a cloud API, which mavrest does not have (docs/openapi.yaml).
		"/mission", "/mission/1", "/ssh/open", "/ssh/close",
		"/api/drone/start", "/api/drone/stop", "/api/drone/falcon", "/api/drone/17",
		"/api/mission", "/api/mission/", "/api/mission/1", "/api/mission/1/start", "/api/missions",
		// That API has a drone's name in its paths.
		"/api/drone/falcon/status", "/api/drone/falcon/takeoff", "/api/drone/falcon/mode",
		// Paths that are only nearly right.
		"/", "/api", "/api/", "/drone", "/status", "/takeoff", "/favicon.ico", "/api/drones",
		"//api/drone", "/api//drone", "/api/drone/", "/api/drone//", "/api/drone/status/", "/api/drone/land/",
		"//api/drone/takeoff", "/api/drone//takeoff", "/api/./drone", "/api/x/../drone", "/../api/drone/land",
		"/API/drone", "/api/Drone", "/api/drone/Status", "/api/drone/statu", "/api/drone/status.json",
		"/api/drone%2Fstatus", "/api/drone%2F", "/api/%2e%2e/api/drone", "/api%2Fdrone", "/api/drone%00",
		"/api/drone;v=1",
		"/api/drone/{name}", "/api/drone/%7Bname%7D",
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.untouched(func() {
			for _, path := range paths {
				for _, method := range methods {
					r := call(hf.handler, method, path, strings.NewReader("{}"))
					r.want(hf.T, 404, "not_found", "GET and POST /api/drone/mode",
						"/api/drone/takeoff, /api/drone/goto and /api/drone/land")
					if hf.Failed() {
						hf.Fatalf("%s %s", method, path)
					}
				}
			}
		})
		hf.get("/api/drone").wantOK(hf.T)
	})
}

// ---- Bodies ----

const (
	swapped = `"lat":8.546,"lon":47.398`
	near    = `"lat":47.398,"lon":8.546`
)

// farPlaces are places that are too far from a drone 100 m above home, which is at 488.3 m above the sea.
var farPlaces = []struct{ path, body, says string }{
	{"goto", swapped, "lat, lon: the place is 5660 km from the drone and 5660 km from home; are lat and lon " +
		"swapped? A place may be 10 km away (-reach)"},
	{"land", swapped, "lat, lon: the place is 5660 km from the drone and 5660 km from home"},
	{"goto", swapped + `,"altitude":20,"speed":5,"wait":10`, "lat, lon: the place is "},
	{"land", `"lat":0,"lon":8.546`, "lat, lon: the place is "},
	{"goto", `"lat":47.398,"lon":0`, "lat, lon: the place is "},
	{"goto", `"lat":90,"lon":180`, "lat, lon: the place is "},
	{"goto", `"altitude_msl":50`, "altitude_msl: 50 m is 438 m below home, which is at 488 m above the sea, " +
		"and 538 m below the drone, " +
		`which is at 588 m; if it is meant, send "altitude":-438, which counts from home`},
	{"goto", near + `,"altitude_msl":50`, "altitude_msl: 50 m is 438 m below home"},
	{"goto", near + `,"altitude_msl":-100`, "which is at 588 m"}, // an altitude of -588 m is out of its range
}

// almostJSON are bodies that somebody sent, by mistake of a tool or of himself, and what they look like.
var almostJSON = []struct{ name, path, body, says string }{
	{"PowerShell's curl", "mode", `{mode:hold}`, "its names have no quotes: PowerShell and cmd remove them"},
	{"with spaces", "takeoff", `{ altitude : 10 }`, "its names have no quotes"},
	{"a relaxed JSON", "land", `{lat: 47.398, "lon": 8.546}`, "its names have no quotes"},
	{"single quotes", "mode", `{'mode':'hold'}`, "its quotes are single ones"},
	{"Python's str", "mode", `{'arm': True}`, "its quotes are single ones"},
	{"Python's True", "mode", `{"arm": True}`, "True, False and None are Python's"},
	{"Python's None", "takeoff", `{"altitude":None}`, "True, False and None are Python's"},
	{"json.dumps of a NaN", "land", `{"lat": NaN, "lon": 8.5}`, "NaN and Infinity are no JSON numbers"},
	{"an infinity", "takeoff", `{"altitude":-Infinity}`, "NaN and Infinity are no JSON numbers"},
	{"cmd's quotes", "mode", `'{"mode":"hold"}'`, "it is an object in quotes"},
	{"back quotes", "mode", "`{\"mode\":\"hold\"}`", "it is an object in quotes"},
	{"backslashes", "mode", `{\"mode\":\"hold\"}`, "its quotes have backslashes"},
	{"from a text processor", "mode", `{“mode”:“hold”}`, "its quotes are typographic ones"},
	{"a form", "takeoff", `altitude=5`, "it looks like a form: send JSON"},
	{"a form of two fields", "mode", `mode=hold&arm=true`, "it looks like a form: send JSON"},
	{"an escaped form", "takeoff", `%7B%22altitude%22%3A5%7D=`, "it looks like a form: send JSON"},
	{"curl -F", "takeoff", "--------------------------49894bae3ad74748\r\nContent-Disposition: form-data; " +
		"name=\"altitude\"\r\n\r\n5\r\n", "it looks like a form of several parts (curl -F)"},
	{"a file that was not read", "takeoff", `@body.json`, "it looks like the name of a file"},
	{"XML", "takeoff", `<altitude>5</altitude>`, "it looks like XML or HTML"},
	{"YAML", "takeoff", "altitude: 5\n", "it looks like YAML"},
	{"a decimal comma", "takeoff", `{"altitude":2,5}`, "a number has a decimal comma"},
	{"a comma too many", "mode", `{"mode":"hold",}`, "a comma stands before the brace"},
	{"a comment", "mode", `{"mode":"hold" /* now */}`, "JSON has no comments"},
	{"a length that is too small", "goto", `{"lat":47.398,"lon":8`, "it ends early; is the Content-Length too small?"},
	{"two objects", "takeoff", `{"altitude":5}{"altitude":6}`, "something follows the object"},
	{"UTF-16 with a mark", "takeoff", "\xff\xfe{\x00}\x00", "it looks like UTF-16"},
	{"UTF-16 without", "takeoff", "{\x00}\x00", "it looks like UTF-16"},
	{"UTF-16, big end first", "takeoff", "\x00{\x00}", "it looks like UTF-16"},
	{"gzip", "takeoff", "\x1f\x8b\x08\x00", "it is compressed"},
	{"Latin-1", "mode", "{\"mode\":\"h\xf6ld\" }\xf6", "something follows the object"},
	{"something else", "takeoff", "take off, please", "invalid character"},
	{"a byte order mark, then half an object", "takeoff", "\ufeff{\"altitude\":5",
		"it ends early; is the Content-Length too small?"},
}

// noObject are bodies that are JSON, and what they are.
var noObject = []struct{ body, says string }{
	{`[{"altitude":5}]`, ": it is an array"},
	{`"{\"altitude\":5}"`, ": it is an object in quotes, made JSON twice; send the object itself"},
	{`5`, ""},
}

// badRequest is a request that must change nothing, and the answer that it must get. Its path may have a query.
type badRequest struct {
	name, path, body string
	status           int
	says             string
}

// badRequests are all that a body can be wrong in. The drone flies in position mode, 100 m above home, where
// every one of the routes would act. Whoever finds another bad request adds it here.
func badRequests() []badRequest {
	var list []badRequest
	add := func(name, path, body string, status int, says string) {
		list = append(list, badRequest{name, path, body, status, says})
	}
	for path, good := range postRoutes {
		add("a query", path+"?altitude=10", good, 400, "the fields go into the body as JSON, not into the query")
		add("a query and no body", path+"?mode=land", ``, 400, "not into the query")
		add("not JSON", path, "takeoff", 400, "JSON")
		add("a form", path, "mode=land&altitude=10", 400, "JSON")
		add("half an object", path, `{"mode":"hold"`, 400, "JSON")
		add("a brace", path, `{`, 400, "JSON")
		add("a closing brace", path, `}`, 400, "JSON")
		add("single quotes", path, `{'mode':'hold'}`, 400, "JSON")
		add("a comma at the end", path, `{"mode":"hold",}`, 400, "JSON")
		add("no value", path, `{"mode"}`, 400, "JSON")
		add("a comment", path, `{} // land`, 400, "JSON")
		add("a byte order mark that does not begin it", path, " \ufeff{}", 400, "JSON")
		add("a zero byte", path, "{}\x00", 400, "JSON")
		add("an array", path, `[]`, 400, "object")
		add("an object in an array", path, `[{}]`, 400, "object")
		add("a number", path, `1`, 400, "object")
		add("a string", path, `"hold"`, 400, "object")
		add("true", path, `true`, 400, "object")
		add("null", path, `null`, 400, "object")
		add("text after the object", path, `{} land`, 400, "JSON")
		add("two objects", path, `{}{}`, 400, "JSON")
		add("two lines of objects", path, "{}\n{}", 400, "JSON")
		add("an unknown field", path, `{"speeed":5}`, 400, `"speeed"`)
		add("an unknown field that is null", path, `{"speeed":null}`, 400, `"speeed"`)
		add("an empty name", path, `{"":5}`, 400, `""`)
		add("a field in another letter case", path, `{"Altitude":5}`, 400, `"Altitude"`)
		for _, space := range []string{"\v", "\f", "\u0085", "\u00a0", " \u2003 "} {
			add("white space that JSON does not allow", path, space, 400, "JSON")
		}
		add("invalid UTF-8 in a name", path, "{\"mo\xc3(de\":1}", 400, `unknown field "mo�(de"`)
		add("4097 bytes", path, "{"+strings.Repeat(" ", 4095)+"}", 413, "4096")
		add("a megabyte", path, strings.Repeat("[", 1<<20), 413, "4096")
	}
	number := func(path, field, rest string) {
		with := func(value string) string { return `{` + rest + `"` + field + `":` + value + `}` }
		for _, v := range []string{`"1"`, `""`, `"NaN"`, `"Infinity"`, `true`, `false`, `{}`, `[]`, `[1]`} {
			add(field+" is not a number", path, with(v), 400, field)
		}
		for _, v := range []string{`NaN`, `nan`, `Infinity`, `-Infinity`, `+1`, `01`, `.5`, `1.`, `0x10`, `1e`, `1,5`,
			`--1`} {
			add(field+" is no JSON number", path, with(v), 400, "JSON")
		}
		add(field+" is null", path, with("null"), 422, field+": null is no value; leave it out or give a number, ")
		add(field+" is more than a float64 holds", path, with("1e999"), 422, field)
		add(field+" is less than a float64 holds", path, with("-1e999"), 422, field)
		add(field+" is given twice", path, with(`1,"`+field+`":1`), 400, field)
		add(field+" is given twice, once as null", path, with(`1,"`+field+`":null`), 400, field)
		add(field+" is given twice, once escaped", path,
			with(`1,"\u00`+strconv.FormatInt(int64(field[0]), 16)+field[1:]+`":1`), 400, field)
	}
	for _, field := range []string{"roll", "pitch", "yaw", "throttle", "timeout"} {
		number("/api/drone/input", field, "")
	}
	number("/api/drone/takeoff", "altitude", "")
	for _, field := range []string{"altitude", "altitude_msl", "heading", "speed"} {
		number("/api/drone/goto", field, `"lat":47.398,"lon":8.546,`)
	}
	for path, rest := range waitingRoutes {
		number(path, "wait", rest)
		add("a negative wait", path, `{`+rest+`"wait":-1}`, 422, "wait: want 0 to 600 seconds")
		add("a wait of over ten minutes", path, `{`+rest+`"wait":601}`, 422, "wait: want 0 to 600 seconds")
		add("a wait that is true", path, `{`+rest+`"wait":true}`, 400, "wait: want 0 to 600 seconds, got a JSON bool")
		add("a wait in words", path, `{`+rest+`"wait":"5"}`, 400, "wait: want 0 to 600 seconds, got a JSON string")
	}
	add("a wait for sticks", "/api/drone/input", `{"wait":5}`, 400, `"wait"`)
	for _, path := range []string{"/api/drone/goto", "/api/drone/land"} {
		number(path, "lat", `"lon":8.546,`)
		number(path, "lon", `"lat":47.398,`)
		add("lat without lon", path, `{"lat":47.398}`, 422, "lon")
		add("lon without lat", path, `{"lon":8.546}`, 422, "lat")
		add("a place of two nulls", path, `{"lat":null,"lon":null}`, 422,
			"lat: null is no value; leave it out or give a number, -90 to 90 degrees")
		for _, v := range []string{`"lat":0,"lon":0`, `"lat":0.0,"lon":-0.0`, `"lon":0,"lat":0e9`,
			`"lat":0.00000004,"lon":-0.00000004`} {
			add("a place of two empty fields", path, `{`+v+`}`, 422,
				"lat, lon: 0, 0 is no place that a drone is sent to")
		}
	}
	for _, v := range []string{`1`, `true`, `[]`, `{}`, `["hold"]`} {
		add("mode is not a string", "/api/drone/mode", `{"mode":`+v+`}`, 400,
			"mode: want one of manual, altitude, position, takeoff, hold, land, rtl, rtgs, got a JSON ")
	}
	for _, v := range []string{`1`, `0`, `"true"`, `""`, `[]`, `{}`} {
		add("arm is not true or false", "/api/drone/mode", `{"arm":`+v+`}`, 400, "arm: want true or false, got a JSON ")
	}
	add("mode is given twice", "/api/drone/mode", `{"mode":"hold","mode":"land"}`, 400, "mode")
	add("arm is given twice", "/api/drone/mode", `{"arm":true,"arm":true}`, 400, "arm")
	for _, v := range []string{"", "other", "Other", "AUTO.LOITER", "loiter", "hold ", " hold", "rtl or rtgs", "4",
		"mission", "hol\u0000d"} {
		name, _ := json.Marshal(v)
		add("a mode that is not in the list", "/api/drone/mode", `{"mode":`+string(name)+`}`, 422,
			"manual, altitude, position, takeoff, hold, land, rtl, rtgs, got")
	}
	add("a mode that is not in the list, and arm", "/api/drone/mode", `{"mode":"up","arm":true}`, 422, `rtgs, got "up"`)
	add("invalid UTF-8 in a mode", "/api/drone/mode", "{\"mode\":\"\xff\"}", 422, "rtgs, got \"�\"")
	long := strings.Repeat("é", 1000)
	add("a very long mode", "/api/drone/mode", `{"mode":"`+long+`"}`, 422, `rtgs, got "`+long[:80]+`"`)
	add("a very long field", "/api/drone/mode", `{"`+long+`":1}`, 400, `unknown field "`+long[:80]+`"; the`)
	add("no mode and no arm", "/api/drone/mode", ``, 422, "mode")
	add("an empty object", "/api/drone/mode", `{}`, 422, "mode")
	add("mode is null", "/api/drone/mode", `{"mode":null,"arm":true}`, 422,
		"mode: null is no value; leave it out or give one of manual, ")
	add("arm is null", "/api/drone/mode", `{"mode":"hold","arm":null}`, 422,
		"arm: null is no value; leave it out or give true or false")
	add("a takeoff's altitude is null", "/api/drone/takeoff", `{"altitude":null}`, 422,
		"metres above home; to climb to 10 m send {}")
	add("a landing's place is null", "/api/drone/land", `{"lat":null,"lon":null}`, 422,
		"-90 to 90 degrees; to land here send {}")
	add("half of a landing's place is null", "/api/drone/land", `{"lat":47.398,"lon":null}`, 422,
		"-180 to 180 degrees; to land here send {}")
	add("a height below every sea", "/api/drone/goto", `{"altitude_msl":-500.5}`, 422,
		"altitude_msl: want -500 to 10000 metres above mean sea level")
	add("a takeoff that disarms", "/api/drone/mode", `{"mode":"takeoff","arm":false}`, 422, "arm")
	add("nowhere to go", "/api/drone/goto", ``, 422, "lat")
	add("nowhere to go, in an object", "/api/drone/goto", `{}`, 422, "lat")
	add("everything null", "/api/drone/goto",
		`{"lat":null,"lon":null,"altitude":null,"altitude_msl":null,"heading":null,"speed":null}`, 422, "lat")
	add("a speed and nowhere to go", "/api/drone/goto", `{"speed":5}`, 422, "lat")
	add("both altitudes", "/api/drone/goto", `{"altitude":20,"altitude_msl":500}`, 422, "altitude_msl")
	add("both altitudes, with a place", "/api/drone/goto",
		`{"lat":47.398,"lon":8.546,"altitude":20,"altitude_msl":500}`, 422, "altitude_msl")
	for _, c := range farPlaces {
		add("a place that its client hardly means", "/api/drone/"+c.path, "{"+c.body+"}", 422, c.says)
	}
	for _, c := range almostJSON {
		add(c.name, "/api/drone/"+c.path, c.body, 400, "the body is not one JSON object: "+c.says)
	}
	for _, c := range noObject {
		add("no object", "/api/drone/takeoff", c.body, 400,
			"the body is JSON, but not an object"+c.says+`; want {"altitude":10}`)
	}
	add("a speed for a takeoff", "/api/drone/takeoff", `{"speed":5}`, 400, `"speed"`)
	add("an altitude for a landing", "/api/drone/land", `{"altitude":5}`, 400, `"altitude"`)
	return list
}

func TestABadRequestsAnswerSaysWhatIsWrongAndNothingChanges(t *testing.T) {
	codes := map[int]string{400: "bad_request", 413: "too_large", 422: "out_of_range"}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("position")
		hf.untouched(func() {
			for _, b := range badRequests() {
				hf.post(b.path, b.body).want(hf.T, b.status, codes[b.status], b.says)
				// again in chunks, without a length
				body := io.MultiReader(strings.NewReader(b.body))
				call(hf.handler, "POST", b.path, body).want(hf.T, b.status, codes[b.status], b.says)
				if hf.Failed() {
					hf.Fatalf("%s: POST %s %.80q", b.name, b.path, b.body)
				}
				hf.wantMode("position")
			}
		})
		hf.post("/api/drone/input", postRoutes["/api/drone/input"]).wantOK(hf.T)
		hf.get("/api/drone/status?pretty").wantOK(hf.T) // a query of a GET is nobody's command
	})
}

func TestAPlaceOutOfReachIsFlownToWhereThePilotAllowsIt(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("position")
		hf.post("/api/drone/goto", `{"altitude":-438}`).wantOK(hf.T) // as the refusal of altitude_msl 50 says
		hf.drone.change(func() { hf.drone.reach = 6000e3 })          // -reach 6000
		hf.post("/api/drone/goto", "{"+swapped+"}").wantOK(hf.T)
	})
}

func TestSticksBelongToTheAddressThatSentThemLast(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		flyHTTP(t, flavour, func(hf *httpFlight) {
			const a, again, b = "192.168.1.23:40000", "192.168.1.23:40001", "192.168.1.24:40000"
			post := func(from, path, body string) reply {
				return call(hf.handler, "POST", "/api/drone/"+path, strings.NewReader(body), "From", from)
			}
			refused := func(from, owner string) {
				hf.Helper()
				post(from, "input", `{"roll":-1}`).want(hf.T, 409, "wrong_mode", "another client ("+
					owner+") has the sticks; set the mode to take them")
			}
			has := func(client, want string) {
				hf.Helper()
				call(hf.handler, "GET", "/api/drone/status", nil, "From", client).has(hf.T, want)
			}
			hf.fly("hold")
			post(a, "mode", `{"mode":"position"}`).wantOK(hf.T)
			refused(b, "192.168.1.23") // the client that set the mode has 3 s to move the sticks
			post(a, "input", `{"roll":1,"timeout":1}`).wantOK(hf.T)
			post(again, "input", `{"roll":1,"timeout":1}`).wantOK(hf.T) // another port of the same address
			refused(b, "192.168.1.23")
			has(a, `"by":"client","from":"192.168.1.23","yours":true}`)
			has(b, `"by":"client","from":"192.168.1.23","yours":false}`)
			time.Sleep(1100 * time.Millisecond)
			has(a, `"by":null,"from":null,"yours":false}`)
			post(b, "input", `{"roll":-1,"timeout":1}`).wantOK(hf.T)
			refused(a, "192.168.1.24")
			// Setting the mode takes the sticks, and gives its client time to move them.
			post(a, "mode", `{"mode":"position"}`).wantOK(hf.T)
			has(a, `"by":null,"from":"192.168.1.23","yours":true}`)
			refused(b, "192.168.1.23")
			time.Sleep(2900 * time.Millisecond)
			refused(b, "192.168.1.23")
			time.Sleep(200 * time.Millisecond)
			post(b, "input", `{"roll":-1,"timeout":5}`).wantOK(hf.T)
			// Other commands are open to every address.
			post(a, "mode", `{"mode":"hold"}`).wantOK(hf.T)
			has(b, `"by":null,"from":null,"yours":false}`)
			post(a, "mode", `{"mode":"altitude"}`).wantOK(hf.T)
			post(a, "input", `{"roll":1}`).wantOK(hf.T)
		})
	}
}

func TestThrottleMustBeGivenInManualMode(t *testing.T) {
	for _, body := range []string{``, `{}`, `{"roll":0.5}`, `{"roll":0.5,"throttle":null}`} {
		flyHTTP(t, simPX4, func(hf *httpFlight) {
			hf.fly("manual")
			hf.untouched(func() { hf.post("/api/drone/input", body).want(hf.T, 422, "out_of_range", "throttle") })
			hf.post("/api/drone/input", `{"throttle":0}`).wantOK(hf.T)
		})
	}
}

// A number's edges are accepted, and the next float64 beyond them is not.
func TestEachNumberHasItsRange(t *testing.T) {
	const place = `"lat":47.398,"lon":8.546,`
	tests := []struct {
		path, field, rest string
		min, max          float64
	}{
		{"/api/drone/input", "roll", ``, -1, 1},
		{"/api/drone/input", "pitch", ``, -1, 1},
		{"/api/drone/input", "yaw", ``, -1, 1},
		{"/api/drone/input", "throttle", ``, 0, 1},
		{"/api/drone/input", "timeout", ``, 0.05, 5},
		{"/api/drone/takeoff", "altitude", ``, 0.5, 1000},
		{"/api/drone/takeoff", "wait", ``, 0, 600},
		{"/api/drone/mode", "wait", `"mode":"hold",`, 0, 600},
		{"/api/drone/goto", "wait", `"altitude":20,`, 0, 600},
		{"/api/drone/land", "wait", ``, 0, 600},
		{"/api/drone/goto", "lat", `"lon":8.546,`, -90, 90},
		{"/api/drone/goto", "lon", `"lat":47.398,`, -180, 180},
		{"/api/drone/goto", "altitude", ``, -500, 10000},
		{"/api/drone/goto", "altitude", place, -500, 10000},
		{"/api/drone/goto", "altitude_msl", ``, math.NaN(), 10000}, // the lowest depends on home
		{"/api/drone/goto", "heading", ``, 0, 360},
		{"/api/drone/goto", "speed", place, 0.1, 50},
		{"/api/drone/land", "lat", `"lon":8.546,`, -90, 90},
		{"/api/drone/land", "lon", `"lat":47.398,`, -180, 180},
	}
	for _, test := range tests {
		with := func(v float64) string {
			return fmt.Sprintf(`{%s"%s":%s}`, test.rest, test.field, strconv.FormatFloat(v, 'g', -1, 64))
		}
		for _, in := range []float64{test.min, test.max} {
			if math.IsNaN(in) {
				continue
			}
			t.Run(test.path+with(in), func(t *testing.T) {
				flyHTTP(t, simPX4, func(hf *httpFlight) {
					hf.drone.reach = math.Inf(1)
					switch test.path {
					case "/api/drone/input":
						hf.fly("position")
					case "/api/drone/takeoff":
					default:
						hf.fly("hold")
					}
					farthest := math.MaxFloat64
					if in == test.min {
						farthest = -math.MaxFloat64
					}
					for _, out := range []float64{farthest, math.Nextafter(in, farthest)} {
						hf.untouched(func() {
							hf.post(test.path, with(out)).want(hf.T, 422, "out_of_range",
								test.field+": ")
						})
					}
					n := len(hf.sim.received())
					hf.post(test.path, with(in)).wantOK(hf.T)
					time.Sleep(100 * time.Millisecond)
					// A timeout alone keeps the sticks centred, so nothing new is sent.
					if len(hf.orders(n)) == 0 && test.field != "timeout" {
						hf.Error("accepted, and nothing was sent to the vehicle")
					}
				})
			})
		}
	}
}

func TestAModeIsReadInAnyLetterCase(t *testing.T) {
	for _, mode := range []string{"manual", "altitude", "position", "takeoff", "hold", "land", "rtl", "rtgs"} {
		for _, written := range []string{strings.ToUpper(mode), strings.ToUpper(mode[:1]) + mode[1:], mode} {
			flyHTTP(t, simPX4, func(hf *httpFlight) {
				if mode != "takeoff" {
					hf.fly("hold")
				}
				r := hf.post("/api/drone/mode", `{"mode":"`+written+`"}`)
				r.wantOK(hf.T)
				if !strings.HasSuffix(r.body, `,"mode":"`+mode+`"}`+"\n") {
					hf.Errorf("%s: %s", written, r.body)
				}
				hf.wantMode(mode)
			})
		}
	}
}

// takeoffAMSL is param7 of the last NAV_TAKEOFF that the vehicle received.
func (hf *httpFlight) takeoffAMSL() float32 {
	z := float32(math.NaN())
	for _, r := range hf.sim.received() {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_NAV_TAKEOFF {
			z = m.Param7
		}
	}
	return z
}

func TestAnEmptyBodyMeansTheDefaults(t *testing.T) {
	spaces := strings.Repeat(" ", 4096-len(`{"altitude":10}`))
	tests := []struct {
		name string
		body io.Reader
	}{
		{"no body", nil},
		{"an empty body", strings.NewReader("")},
		{"an empty body in chunks", io.MultiReader(strings.NewReader(""))},
		{"white space", strings.NewReader(" \t\r\n")},
		{"an empty object", strings.NewReader("{}")},
		{"an empty object and a newline", strings.NewReader("{ }\n")},
		{"the default itself", strings.NewReader(`{"altitude":10}`)},
		{"an escaped name", strings.NewReader(`{"\u0061ltitude":1e1}`)},
		{"exactly 4096 bytes", strings.NewReader(`{"altitude":` + spaces + `10}`)},
		{"exactly 4096 bytes in chunks", io.MultiReader(strings.NewReader(`{"altitude":10`),
			strings.NewReader(spaces+`}`))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			flyHTTP(t, simPX4, func(hf *httpFlight) {
				call(hf.handler, "POST", "/api/drone/takeoff", test.body).wantOK(hf.T)
				if got := hf.takeoffAMSL(); got != simHomeAlt+10 {
					hf.Errorf("takeoff to %g m AMSL, want home and 10 m", got)
				}
			})
		})
	}
}

func TestTheExampleOfABadBodyWorks(t *testing.T) {
	for path := range postRoutes {
		flyHTTP(t, simPX4, func(hf *httpFlight) {
			if path != "/api/drone/takeoff" {
				hf.fly("position")
			}
			f := hf.post(path, "?").failure(hf.T)
			example := regexp.MustCompile(`; want (\{.*\})`).FindStringSubmatch(f.Error)
			if example == nil {
				hf.Fatalf("%s: no example in %q", path, f.Error)
			}
			hf.post(path, example[1]).wantOK(hf.T)
			time.Sleep(100 * time.Millisecond)
		})
	}
}

// Windows programs begin a file of UTF-8 with a byte order mark.
func TestAByteOrderMarkIsIgnored(t *testing.T) {
	for _, body := range []string{"\ufeff{\"altitude\":3}", "\ufeff \r\n{\"altitude\":3}\r\n"} {
		flyHTTP(t, simPX4, func(hf *httpFlight) {
			hf.post("/api/drone/takeoff", body).wantOK(hf.T)
			if got := hf.takeoffAMSL(); got != simHomeAlt+3 {
				hf.Errorf("takeoff to %g m AMSL, want home and 3 m", got)
			}
		})
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.post("/api/drone/takeoff", "\ufeff").wantOK(hf.T) // as an empty body
	})
}

// onWire sends a request as it stands, and returns its answer.
func (hf *httpFlight) onWire(text string) reply {
	hf.Helper()
	p, end := serve(hf.T, hf.handler, maxConnections)
	defer end()
	w := p.connect()
	defer w.Close()
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() { io.WriteString(w, text) })
	r, err := w.receive("POST")
	if err == nil && r.status == http.StatusContinue {
		r, err = w.receive("POST")
	}
	if err != nil {
		hf.Fatalf("%q: %v", text, err)
	}
	if r.status == http.StatusLengthRequired && !hf.lingers {
		hf.lingers = true
		hf.Cleanup(func() { time.Sleep(time.Second) }) // net/http waits a while for the client of a 411
	}
	return r
}

// bareCommands are the headers of a POST without a body, as each client sends them. They were
// recorded, but PowerShell's.
var bareCommands = []struct{ client, headers string }{
	{"curl -X POST", "Accept: */*"},
	{"curl -d ''", "Accept: */*\nContent-Length: 0\nContent-Type: application/x-www-form-urlencoded"},
	{"curl --json ''", "Content-Type: application/json\nAccept: application/json\nContent-Length: 0"},
	{"curl -X POST -T /dev/null", "Accept: */*\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n0\n"},
	{"wget --post-data=", "Accept: */*\nConnection: Keep-Alive\nContent-Type: " +
		"application/x-www-form-urlencoded\nContent-Length: 0"},
	{"wget --method=POST", "Accept: */*\nConnection: Keep-Alive\nContent-Length: 0"},
	{"busybox wget --post-data ''",
		"Connection: close\nContent-Type: application/x-www-form-urlencoded\nContent-Length: 0"},
	{"HTTPie", "Accept: */*\nConnection: keep-alive\nContent-Length: 0"},
	{"HTTPie --form", "Accept: */*\nContent-Length: 0\nContent-Type: application/x-www-form-urlencoded; charset=utf-8"},
	{"Python requests", "Accept: */*\nConnection: keep-alive\nContent-Length: 0"},
	{"Python requests, with a type",
		"Accept: */*\nConnection: keep-alive\nContent-Type: application/json\nContent-Length: 0"},
	{"Python httpx", "Content-Length: 0\nAccept: */*\nConnection: keep-alive"},
	{"Python httpx, with a type", "Content-Length: 0\nAccept: */*\nConnection: keep-alive\nContent-Type: " +
		"application/json"},
	{"aiohttp", "Accept: */*\nContent-Length: 0\nContent-Type: application/octet-stream"},
	{"aiohttp, data=''", "Accept: */*\nContent-Length: 0\nContent-Type: text/plain; charset=utf-8"},
	{"Home Assistant's rest_command", "Content-Type: application/json\nAccept: */*\nContent-Length: 0"},
	{"Python urllib", "Content-Length: 0\nConnection: close"},
	{"Python urllib, data=b''",
		"Content-Type: application/x-www-form-urlencoded\nContent-Length: 0\nConnection: close"},
	{"axios", "Accept: application/json, text/plain, */*\nContent-Type: " +
		"application/x-www-form-urlencoded\nConnection: keep-alive\nContent-Length: 0"},
	{"axios, with a type", "Content-Type: application/json\nConnection: keep-alive\nContent-Length: 0"},
	{"fetch", "connection: keep-alive\naccept: */*\ncontent-length: 0"},
	{"fetch, with a type", "connection: keep-alive\nContent-Type: application/json\naccept: */*\ncontent-length: 0"},
	{"fetch, body: ''", "content-type: text/plain;charset=UTF-8\naccept: */*\ncontent-length: 0"},
	{"Node http", "Connection: keep-alive\nContent-Length: 0"},
	{"got, with a type", "content-type: application/json\nConnection: keep-alive\nContent-Length: 0"},
	{"Go http.Post(url, type, nil)", "Content-Length: 0\nContent-Type: application/json"},
	{"Go http.NewRequest", "Content-Length: 0"},
	{"Go http.PostForm(url, nil)", "Content-Length: 0\nContent-Type: application/x-www-form-urlencoded"},
	{"PowerShell 7 Invoke-RestMethod", "Content-Length: 0"},
	{"PowerShell 7 Invoke-RestMethod, with a type", "Content-Type: application/json\nContent-Length: 0"},
	{"Windows PowerShell Invoke-RestMethod",
		"Content-Type: application/x-www-form-urlencoded\nContent-Length: 0\nExpect: 100-continue"},
	{"Ruby Net::HTTP.post", "Accept: */*\nContent-Length: 0\nContent-Type: application/x-www-form-urlencoded"},
	{"Perl LWP", "TE: deflate,gzip;q=0.3\nConnection: TE, close\nContent-Length: 0\nContent-Type: " +
		"application/x-www-form-urlencoded"},
	{"PHP curl", "Accept: */*\nTransfer-Encoding: chunked\nContent-Type: application/x-www-form-urlencoded\nExpect: " +
		"100-continue\n\n0\n"},
	{"an empty type", "Content-Type:"},
	{"two empty types", "Content-Type:\nContent-Type: "},
	{"an empty object", "Content-Type: application/json\nContent-Length: 2\n\n{}"},
}

// rawPOST is a POST as it goes over the wire. The headers and the body are separated by newlines.
func rawPOST(path, protocol, headers string) string {
	head, body, _ := strings.Cut(headers, "\n\n")
	if strings.Contains(head, "chunked") {
		body = strings.ReplaceAll(body, "\n", "\r\n") + "\r\n"
	}
	return "POST /api/drone/" + path + " " + protocol + "\r\nHost: drone.local\r\n" +
		strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
}

func TestABareCommandOfAnyClientLandsEachTime(t *testing.T) {
	const want = `{"status":"accepted","status_code":0,"command":176,"mode":"land"}`
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("hold")
		for _, c := range bareCommands {
			for _, protocol := range []string{"HTTP/1.1", "HTTP/1.0"} {
				if protocol == "HTTP/1.0" && strings.Contains(c.headers, "chunked") {
					continue // HTTP/1.0 has no chunks
				}
				r := hf.onWire(rawPOST("land", protocol, c.headers))
				if r.status != 200 || r.body != want+"\n" {
					hf.Errorf("%s, %s: %d %s", c.client, protocol, r.status, r.body)
				}
				hf.wantMode("land")
				hf.post("/api/drone/mode", `{"mode":"hold"}`).wantOK(hf.T)
			}
		}
	})
}

// HTTP says of such a request that it has no body, though one follows.
func TestABodyWhoseLengthIsNotGivenIs411AndNothingIsSent(t *testing.T) {
	const body = `{"lat":47.398,"lon":8.546,"wait":60}`
	requests := []struct{ name, headers, says string }{
		{"a small board", "Content-Type: application/json\n\n" + body, "Content-Type"},
		{"a small board, without a body", "Content-Type: application/json", "Content-Type"},
		{"another type", "Content-Type: text/plain\n\n" + body, "Content-Type"},
		{"a form", "Content-Type: application/x-www-form-urlencoded\n\nlat=47.398&lon=8.546", "Content-Type"},
		{"a type that is empty, and one that is not", "Content-Type:\nContent-Type: application/json\n\n" + body,
			"Content-Type"},
		{"a type in small letters", "content-type: application/json\n\n" + body, "Content-Type"},
		{"a coding", "Content-Encoding: identity\n\n" + body, "Content-Encoding"},
		{"a disposition", "Content-Disposition: form-data\n\n" + body, "Content-Disposition"},
		{"a language and a digest", "Content-Language: de\nContent-Digest: sha-256=:A:\n\n" + body, "Content-Digest"},
		{"a client that waits for 100 Continue", "Expect: 100-continue\n\n" + body, "Expect"},
		{"a connection that it wants to keep", "Connection: keep-alive\nContent-Type: application/json\n\n" + body,
			"Content-Type"},
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("position")
		hf.untouched(func() {
			for _, c := range requests {
				for _, path := range []string{"mode", "input", "takeoff", "goto", "land"} {
					for _, protocol := range []string{"HTTP/1.1", "HTTP/1.0"} {
						r := hf.onWire(rawPOST(path, protocol, c.headers))
						r.want(hf.T, 411, "length_required", "say how long the body is, or leave the "+c.says+" out")
					}
				}
			}
		})
		hf.wantMode("position")
		// A GET is never judged, and neither is a path or a method that does not exist.
		call(hf.handler, "GET", "/api/drone/mode", nil, "Content-Type", "application/json").wantOK(hf.T)
		call(hf.handler, "POST", "/api/mission", nil, "Content-Type", "application/json").want(hf.T, 404, "not_found")
		call(hf.handler, "POST", "/api/drone/status", nil, "Content-Type", "application/json").want(hf.T, 405,
			"method_not_allowed")
		call(hf.handler, "POST", "/api/drone/land", nil, "Content-Type", "").wantOK(hf.T)
	})
}

// ---- What the vehicle answers ----

func TestCommandsToASilentVehicleAreOffline(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		for path, body := range postRoutes {
			r := call(v.handler, "POST", path, strings.NewReader(body))
			r.want(t, 503, "offline", "/dev/serial0")
		}
		time.Sleep(10 * time.Second)
		v.wantStatus(neverHeard)
		call(v.handler, "GET", "/api/drone/mode", nil).wantOK(t, `{"mode":"manual","vehicle_mode":null}`)
	})
}

// Whatever several clients ask for, in any order and up to the ends of each range, the
// autopilot's heartbeats go on, and no answer is "offline".
func TestNoCommandCostsTheAutopilotItsHeartbeat(t *testing.T) {
	both(t, func(f *flight) {
		dice := rand.New(rand.NewPCG(11, uint64(f.firmware)))
		number := func(name string, least, most float64) string {
			v := []float64{least, most, least + dice.Float64()*(most-least)}[dice.IntN(3)]
			return fmt.Sprintf("%q:%.9g", name, v)
		}
		some := func(fields ...string) string {
			dice.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
			return "{" + strings.Join(fields[:dice.IntN(len(fields)+1)], ",") + "}"
		}
		var clients sync.WaitGroup
		aloft, answers := 0, map[int]int{}
		var mu sync.Mutex
		for range 3000 {
			f.drone.reach = math.Inf(1)
			place := number("lat", -90, 90) + "," + number("lon", -180, 180)
			if dice.IntN(2) == 0 {
				place = at(dice.Float64()*200-100, dice.Float64()*200-100)
			}
			wait := fmt.Sprintf(`"wait":%g`, float64(dice.IntN(3))*dice.Float64())
			path, body := "/mode", some(fmt.Sprintf(`"mode":%q`, Mode(dice.IntN(int(ModeOther)))),
				fmt.Sprintf(`"arm":%v`, dice.IntN(3) > 0), wait)
			switch dice.IntN(6) {
			case 0:
				path, body = "/takeoff", some(number("altitude", 0.5, 1000), wait)
			case 1:
				path, body = "/goto", some(place, number("altitude", -500, 10000), number("heading", 0, 360),
					number("speed", 0.1, 50), wait)
			case 2:
				path, body = "/land", some(place, wait)
			case 3, 4:
				path, body = "/input", some(number("roll", -1, 1), number("pitch", -1, 1), number("yaw", -1, 1),
					number("throttle", 0, 1), number("timeout", 0.05, 5))
			}
			clients.Go(func() {
				code, o := f.call("POST", path, body)
				if code == 503 || code == 500 || code == 400 {
					f.Errorf("%s %s: %d %v", path, body, code, o)
				}
				mu.Lock()
				defer mu.Unlock()
				answers[code]++
			})
			time.Sleep(time.Duration(dice.ExpFloat64() * float64(300*time.Millisecond)))
			s := f.status()
			if s["in_air"] == true {
				aloft++
			}
			if age, _ := s["link"].(object)["heartbeat_age"].(float64); s["online"] != true || age > 1.1 {
				f.Fatalf("after %s %s: online %v, the last heartbeat %v s ago", path, body, s["online"], age)
			}
		}
		clients.Wait()
		if answers[200] < 500 || aloft < 500 {
			f.Errorf("little happened: aloft %d times, answers %v", aloft, answers)
		}
	})
}

func TestInputOutsideItsThreeModesIsWrongMode(t *testing.T) {
	for _, mode := range []string{"hold", "land", "rtl", "rtgs"} {
		for _, flavour := range []simFlavour{simPX4, simArduPilot} {
			flyHTTP(t, flavour, func(hf *httpFlight) {
				hf.fly("hold")
				hf.post("/api/drone/mode", `{"mode":"`+mode+`"}`).wantOK(hf.T)
				hf.untouched(func() {
					hf.post("/api/drone/input", `{"roll":1,"throttle":1}`).want(hf.T, 409, "wrong_mode", mode)
				})
				hf.wantMode(mode)
			})
		}
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.post("/api/drone/takeoff", ``).wantOK(hf.T)
		hf.untouched(func() { hf.post("/api/drone/input", `{}`).want(hf.T, 409, "wrong_mode", "takeoff") })
		hf.sim.pilotMode(simPX4Offboard)
		time.Sleep(2 * time.Second)
		hf.wantMode("other")
		hf.untouched(func() { hf.post("/api/drone/input", `{}`).want(hf.T, 409, "wrong_mode", "other") })
	})
}

func TestARefusalNamesWhatTheAutopilotSaid(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.sim.change(func() { hf.sim.armableAfter = time.Hour })
		hf.sim.say(common.MAV_SEVERITY_CRITICAL, "An old story")
		hf.post("/api/drone/mode", `{"mode":"hold"}`).wantOK(hf.T) // by now the old text has come
		time.Sleep(time.Second)
		r := hf.post("/api/drone/mode", `{"arm":true}`)
		const text = "Arming denied: Resolve system health failures first"
		r.want(hf.T, 409, "refused", text)
		f := r.failure(hf.T)
		if *f.Status != "temporarily_rejected" || *f.StatusCode != 1 || *f.Command != 400 {
			hf.Errorf("got %s", r.body)
		}
		if len(f.Messages) != 1 || f.Messages[0].Severity != "critical" || f.Messages[0].Text != text {
			hf.Errorf("messages of %s", r.body)
		}
		hf.wantMode("hold")
	})
	flyHTTP(t, simArduPilot, func(hf *httpFlight) {
		hf.sim.change(func() { hf.sim.armableAfter = time.Hour })
		r := hf.post("/api/drone/takeoff", ``)
		r.want(hf.T, 409, "refused", "Arm: Accels inconsistent; Arm: Need Position Estimate")
		f := r.failure(hf.T)
		if *f.Status != "failed" || *f.StatusCode != 4 || *f.Command != 400 || len(f.Messages) != 2 {
			hf.Errorf("got %s", r.body)
		}
	})
}

// A refusal names the texts of severity warning or worse that come until 0.7 s after it, and
// pre-arm texts of any severity.
func TestARefusalNamesOnlyTheTextsThatExplainIt(t *testing.T) {
	texts := []struct {
		after    time.Duration // from the answer
		severity common.MAV_SEVERITY
		text     string
		named    bool
	}{
		{0, common.MAV_SEVERITY_EMERGENCY, "worst", true},
		{0, common.MAV_SEVERITY_WARNING, "just bad enough", true},
		{0, common.MAV_SEVERITY_NOTICE, "a notice", false},
		{0, common.MAV_SEVERITY_INFO, "PreArm: gyros", true},
		{0, common.MAV_SEVERITY_DEBUG, "debug", false},
		{650 * time.Millisecond, common.MAV_SEVERITY_ERROR, "late", true},
		{850 * time.Millisecond, common.MAV_SEVERITY_ERROR, "too late", false},
	}
	flyHTTP(t, simArduPilot, func(hf *httpFlight) {
		hf.sim.emit(1, 1, &common.MessageStatustext{Severity: common.MAV_SEVERITY_CRITICAL, Text: "before the command"})
		time.Sleep(100 * time.Millisecond)
		hf.acks(simArm, func(ack *common.MessageCommandAck) []simAnswer {
			ack.Result = common.MAV_RESULT_DENIED
			for _, text := range texts {
				hf.sim.after(text.after, func() {
					hf.sim.send(&common.MessageStatustext{Severity: text.severity, Text: text.text})
				})
			}
			return []simAnswer{{ack: ack}}
		})
		r := hf.post("/api/drone/mode", `{"arm":false}`)
		r.want(hf.T, 409, "refused")
		var want, got []string
		for _, text := range texts {
			if text.named {
				want = append(want, text.text)
			}
		}
		for _, m := range r.failure(hf.T).Messages {
			got = append(got, m.Text)
		}
		if !slices.Equal(got, want) {
			hf.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestTheLogSaysAcceptedOnlyOfAcceptedCommands(t *testing.T) {
	flyHTTP(t, simArduPilot, func(hf *httpFlight) {
		hf.fly("hold")
		before := len(hf.diary.logged())
		hf.post("/api/drone/mode", `{"mode":"hold"}`).wantOK(hf.T)
		hf.loseAcks(common.MAV_CMD_DO_CHANGE_SPEED) // which sets the default speed after the next goto
		hf.post("/api/drone/goto", `{"altitude":90}`).wantOK(hf.T)
		hf.ignores()
		hf.post("/api/drone/goto", `{"altitude":80}`).want(hf.T, 504, "no_ack")
		log := hf.diary.logged()[before:]
		var skipped bool
		for _, line := range log {
			skipped = skipped || strings.Contains(line, "without one of its steps")
			if strings.HasPrefix(line, "INFO ") != strings.Contains(line, "accepted") {
				hf.Errorf("the log says %s", line)
			}
		}
		if !skipped || len(log) != 4 {
			hf.Errorf("the log is\n%s", strings.Join(log, "\n"))
		}
	})
}

func TestEachResultHasItsAnswer(t *testing.T) {
	tests := []struct {
		result common.MAV_RESULT
		status int
		code   string
		name   string
	}{
		{common.MAV_RESULT_TEMPORARILY_REJECTED, 409, "refused", "temporarily_rejected"},
		{common.MAV_RESULT_DENIED, 409, "refused", "denied"},
		{common.MAV_RESULT_UNSUPPORTED, 501, "unsupported", "unsupported"},
		{common.MAV_RESULT_FAILED, 409, "refused", "failed"},
		{common.MAV_RESULT_COMMAND_INT_ONLY, 501, "unsupported", "command_int_only"},
		{common.MAV_RESULT_CANCELLED, 409, "refused", "cancelled"},
	}
	for _, test := range tests {
		flyHTTP(t, simArduPilot, func(hf *httpFlight) {
			hf.refuse(test.result)
			r := hf.post("/api/drone/mode", `{"arm":false}`)
			r.want(hf.T, test.status, test.code, test.name)
			want := fmt.Sprintf(`,"code":%q,"status":%q,"status_code":%d,"command":400,"messages":[]}`+"\n", test.code,
				test.name, test.result)
			if !strings.HasSuffix(r.body, want) {
				hf.Errorf("got %s want …%s", r.body, want)
			}
			hf.wantMode("manual")
		})
	}
}

func TestAnErrorWithoutAnAckHasOnlyATextAndACode(t *testing.T) {
	only := regexp.MustCompile(`^\{"error":"[^"]+","code":"[a-z_]+"\}\n$`)
	check := func(t *testing.T, r reply) {
		t.Helper()
		if !only.MatchString(r.body) {
			t.Errorf("more than a sentence and a code: %s", r.body)
		}
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		check(hf.T, hf.get("/api/mission"))
		check(hf.T, hf.get("/api/drone/land"))
		check(hf.T, hf.post("/api/drone/takeoff", `{"altitude":-1}`))
		hf.ignores()
		check(hf.T, hf.post("/api/drone/land", ``))
		hf.sim.unplug()
		time.Sleep(5 * time.Second)
		check(hf.T, hf.post("/api/drone/land", ``))
	})
}

func TestACommandThatIsNeverAcknowledgedIsNoAck(t *testing.T) {
	for path, body := range postRoutes {
		if path == "/api/drone/input" {
			continue // input has no ack
		}
		flyHTTP(t, simPX4, func(hf *httpFlight) {
			if path != "/api/drone/takeoff" {
				hf.fly("hold")
			}
			hf.ignores()
			n := len(hf.sim.received())
			hf.post(path, body).want(hf.T, 504, "no_ack")
			commands := slices.DeleteFunc(hf.orders(n), func(s string) bool { return strings.HasPrefix(s, "sticks") })
			copies := slices.DeleteFunc(slices.Clone(commands), func(s string) bool { return s != commands[0] })
			if len(copies) < 3 {
				hf.Errorf("POST %s was not repeated: %v", path, commands)
			}
			hf.obey()
			time.Sleep(5 * time.Second)
			hf.post("/api/drone/land", ``).wantOK(hf.T)
		})
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) { // the vehicle falls silent
		hf.fly("hold")
		hf.sim.change(func() { hf.sim.switches().muted = true })
		hf.post("/api/drone/land", ``).want(hf.T, 504, "no_ack")
	})
}

func TestAModeThatTheVehicleLacksIsUnsupported(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.say(&minimal.MessageHeartbeat{
			Type: minimal.MAV_TYPE_FIXED_WING, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA, MavlinkVersion: 3,
			BaseMode: minimal.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED, SystemStatus: minimal.MAV_STATE_STANDBY,
		})
		call(v.handler, "POST", "/api/drone/land", nil).want(t, 503, "offline", "whether it is a QuadPlane")
		v.say(&common.MessageExtendedSysState{}) // it is no QuadPlane
		for _, c := range []struct{ path, body, names string }{
			{"/api/drone/mode", `{"mode":"position"}`, "position"},
			{"/api/drone/mode", `{"mode":"land"}`, "land"},
			{"/api/drone/land", ``, "land"},
			{"/api/drone/takeoff", `{"altitude":10}`, "altitude"},
		} {
			call(v.handler, "POST", c.path, strings.NewReader(c.body)).want(t, 501, "unsupported", c.names)
		}
	})
}

func TestAnUnknownAutopilotCanOnlyBeRead(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.say(&minimal.MessageHeartbeat{Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_GENERIC})
		for path, body := range postRoutes {
			if path == "/api/drone/input" {
				body = `{"throttle":0}`
			}
			call(v.handler, "POST", path, strings.NewReader(body)).want(t, 501, "unsupported")
		}
		call(v.handler, "GET", "/api/drone/mode", nil).wantOK(t, `{"mode":"manual","vehicle_mode":"MODE 0"}`)
		call(v.handler, "GET", "/api/drone/status", nil).wantOK(t)
	})
}

// ---- Fuzzing ----

// FuzzBody posts any bytes to a drone that sends none of its plans. Every answer must be one of
// the contract, and no number out of range may be sent.
func FuzzBody(f *testing.F) {
	routes := []string{"/api/drone/mode", "/api/drone/input", "/api/drone/takeoff", "/api/drone/goto",
		"/api/drone/land"}
	for i, path := range routes {
		f.Add(uint8(i), []byte(postRoutes[path]))
	}
	for _, b := range badRequests() {
		path, _, _ := strings.Cut(b.path, "?")
		f.Add(uint8(slices.Index(routes, path)), []byte(b.body[:min(len(b.body), 4097)]))
	}
	for _, body := range []string{``, `{}`, `{"arm":false}`, `{"mode":"RTL","arm":true}`, `{"mode":"manual"}`,
		`{"mode":"altitude"}`} {
		f.Add(uint8(0), []byte(body))
	}
	f.Add(uint8(1), []byte(`{"roll":0.2,"pitch":-0.1,"yaw":0,"throttle":0.5,"timeout":0.5}`))
	f.Add(uint8(3), []byte(`{"lat":-47.3980,"lon":-180,"altitude_msl":5e2,"heading":359.99,"speed":0.1}`))
	d, sent := aloftAndMute(f)
	h := newHandler(d, admission{})
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		path := routes[int(route)%len(routes)]
		r := call(h, "POST", path, strings.NewReader(string(body)))
		r.checkForm(t)
		switch {
		case r.status == 500:
			t.Errorf("a bug: %s", r.body)
		case r.status == 413 != (len(body) > maxBody):
			t.Errorf("%d for %d bytes", r.status, len(body))
		case r.status != 200 && strings.Contains(r.failure(t).Error, "\n"):
			t.Errorf("not a sentence: %s", r.body)
		}
		for _, m := range sent() {
			if !inRange(m) {
				t.Errorf("the vehicle would be sent %+v", m)
			}
		}
		call(h, "GET", "/api/drone/status", nil).checkForm(t)
	})
}

// aloftAndMute is a copter in the air, flown by sticks. Its plans are made and never sent, so
// that no time passes. sent returns the messages that would have been sent since the last call.
func aloftAndMute(f *testing.F) (d *drone, sent func() []message.Message) {
	d = newDrone(device{name: "none"}, 0, false, slog.Default())
	d.sticks.src.known = true
	report := func() {
		for _, m := range []message.Message{
			&minimal.MessageHeartbeat{
				Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA, CustomMode: 5,
				BaseMode: minimal.MAV_MODE_FLAG_SAFETY_ARMED, SystemStatus: minimal.MAV_STATE_ACTIVE,
			},
			&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR},
			&common.MessageHomePosition{Latitude: 473977419, Longitude: 85455937, Altitude: 488300},
			&common.MessageGlobalPositionInt{Lat: 473977421, Lon: 85455938, Alt: 498300, RelativeAlt: 10020},
		} {
			d.hear(heard{at: time.Now(), msg: m, system: 1})
		}
	}
	report()
	var list []message.Message
	var looking sync.WaitGroup
	ctx := f.Context()
	f.Cleanup(looking.Wait)
	looking.Go(func() { // notes every plan, and ends it before anything is sent
		for ctx.Err() == nil {
			d.mu.Lock()
			for _, t := range d.cmd.tasks {
				for _, s := range t.plan.steps {
					list = append(list, s.message(1, 0))
				}
				t.end(&commandError{code: codeRefused, text: "a test only looks"})
			}
			d.mu.Unlock()
			time.Sleep(10 * time.Microsecond)
		}
	})
	return d, func() []message.Message {
		d.mu.Lock()
		all := append(list, d.outgoing(d.sticks.axes).msg)
		list = nil
		d.mu.Unlock()
		report() // old telemetry would count as unknown
		return all
	}
}

// inRange reports whether every number of a message may be sent to a vehicle.
func inRange(m message.Message) bool {
	var numbers []float32
	ok := true
	switch m := m.(type) {
	case *common.MessageCommandLong:
		numbers = []float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Param5, m.Param6, m.Param7}
	case *common.MessageCommandInt:
		numbers = []float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Z}
		ok = max(m.X, -m.X) <= 90e7 && max(m.Y, -m.Y) <= 180e7 && m.Z >= -500 && m.Z <= 10000
	case *common.MessageManualControl:
		ok = max(m.X, -m.X) <= 1000 && max(m.Y, -m.Y) <= 1000 && max(m.R, -m.R) <= 1000 && m.Z >= 0 && m.Z <= 1000
	}
	for _, n := range numbers {
		ok = ok && n >= -1e5 && n <= 1e5 // false for NaN
	}
	return ok
}
