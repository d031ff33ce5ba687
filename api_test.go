package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
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
