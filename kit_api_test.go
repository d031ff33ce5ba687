package main

// What the tests of the routes share: a client without a socket, a whole mavrest that flies behind it, a reader of
// the stream, and the form of each error.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
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
	409: {"wrong_mode", "refused", "superseded", "interrupted", "no_ack", "not_done", "offline", "unsupported"},
	411: {"length_required"},
	413: {"too_large"},
	421: {"wrong_host"},
	422: {"out_of_range"},
	500: {"internal"},
	501: {"unsupported"},
	503: {"offline", "too_many_streams"},
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
	Mode   *string
	Done   *bool
	Took   *float64
	Target *struct{ Lat, Lon, Altitude float64 }
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

// obey lets the vehicle obey again after answer, refuse or ignores (kit_flight_test.go).
func (hf *httpFlight) obey() {
	hf.sim.change(func() { hf.sim.switches().idle, hf.sim.switches().onAck = false, nil })
}

// event is one event of a stream.
type event struct {
	at   time.Time
	name string
	data string
}

// watcher is a client that reads the status as a stream, in a goroutine.
type watcher struct {
	*wire
	mu     sync.Mutex
	header http.Header
	others string // the blocks that are no events
	events []event
	err    error // what ended it
	over   chan struct{}
}

// watchStatus opens a stream of the status, as a browser's EventSource does.
// headers are more lines of the request.
func watchStatus(p *pipes, headers ...string) *watcher {
	w := &watcher{wire: p.connect(), over: make(chan struct{})}
	go func() {
		defer close(w.over)
		err := w.read(headers)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
	}()
	return w
}

func (w *watcher) read(headers []string) error {
	fmt.Fprintf(w, "GET /api/drone/status HTTP/1.1\r\nHost: drone.local\r\nAccept: text/event-stream\r\n%s\r\n",
		strings.Join(headers, ""))
	resp, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return err
	}
	w.header = resp.Header
	if resp.StatusCode != 200 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	lines := bufio.NewReader(resp.Body)
	for {
		var block string
		for !strings.HasSuffix(block, "\n\n") {
			line, err := lines.ReadString('\n')
			if err != nil {
				return err
			}
			block += line
		}
		w.mu.Lock()
		name, data, _ := strings.Cut(strings.TrimSuffix(block, "\n\n"), "\ndata: ")
		if name, ok := strings.CutPrefix(name, "event: "); ok {
			w.events = append(w.events, event{time.Now(), name, data})
		} else {
			w.others += block
		}
		w.mu.Unlock()
	}
}

// got returns the events so far.
func (w *watcher) got() []event {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *watcher) last() string {
	if list := w.got(); len(list) > 0 {
		return list[len(list)-1].data
	}
	return ""
}

func (w *watcher) ended() bool {
	synctest.Wait()
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// repeater is the rule by which a program repeats a POST: its own where it repeats one by default, else with the
// option that makes it do so. retryAfter: the answer has a Retry-After.
type repeater struct {
	name    string
	repeats func(status int, retryAfter bool) bool
}

func oneOf(list ...int) func(int, bool) bool {
	return func(status int, _ bool) bool { return slices.Contains(list, status) }
}

var repeaters = []repeater{
	{"curl --retry, 8.17 (before: without 522 and 524)", oneOf(408, 429, 500, 502, 503, 504, 522, 524)},
	{"urllib3 2, allowed_methods with POST and a status_forcelist as its manual has it",
		func(status int, retryAfter bool) bool {
			byHeader := retryAfter && slices.Contains([]int{413, 429, 503}, status)
			return byHeader || slices.Contains([]int{429, 500, 502, 503, 504}, status)
		}},
	{"axios-retry 4, isRetryableError", func(status int, _ bool) bool { return status == 429 || status/100 == 5 }},
	{"Go's retryablehttp 0.7, its default", func(status int, _ bool) bool {
		return status == 429 || status == 0 || (status >= 500 && status != 501)
	}},
	{"Polly, HandleTransientHttpError", func(status int, _ bool) bool { return status == 408 || status >= 500 }},
	{".NET's standard resilience handler, its default",
		func(status int, _ bool) bool { return status == 408 || status == 429 || status >= 500 }},
}

// repeated names who repeats an answer; "" for nobody.
func repeated(status int, retryAfter bool) string {
	for _, r := range repeaters {
		if r.repeats(status, retryAfter) {
			return r.name
		}
	}
	return ""
}

const (
	swapped = `"lat":8.546,"lon":47.398`
	near    = `"lat":47.398,"lon":8.546`
)

// badRequest is a request that must change nothing, and the answer that it must get. Its path may have a query.
type badRequest struct {
	name, path, body string
	status           int
	says             string
}
