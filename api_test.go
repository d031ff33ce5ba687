package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

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

// ---- Fields ----

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

func TestTheLogSaysAcceptedOnlyOfAcceptedCommands(t *testing.T) {
	flyHTTP(t, simArduPilot, func(hf *httpFlight) {
		hf.fly("hold")
		before := len(hf.diary.logged())
		hf.post("/api/drone/mode", `{"mode":"hold"}`).wantOK(hf.T)
		hf.loseAcks(common.MAV_CMD_DO_CHANGE_SPEED) // which sets the default speed after the next goto
		hf.post("/api/drone/goto", `{"altitude":90}`).wantOK(hf.T)
		hf.ignores()
		hf.post("/api/drone/goto", `{"altitude":80}`).want(hf.T, 409, "no_ack")
		asked := func(line string) bool { return strings.HasPrefix(line, "INFO request ") }
		log := slices.DeleteFunc(hf.diary.logged()[before:], asked)
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

// Neither a path that is only nearly right nor one of a cloud API (docs/openapi.yaml) leads anywhere.
func TestA404NamesThePathThatWasMeant(t *testing.T) {
	paths := map[string]string{
		"/api/drone/": "/api/drone", "/api/drone/status/": "/api/drone/status", "/status": "/api/drone/status",
		"/api/drone/rosie/status": "/api/drone/status", "/API/Drone/Mode": "/api/drone/mode",
		"/drone/takeoff": "/api/drone/takeoff", "/api/land/": "/api/drone/land",
		"//api/drone/mode": "/api/drone/mode", "/api/drone//takeoff": "/api/drone/takeoff",
	}
	for path := range strings.FieldsSeq("/ /api /favicon.ico /mission/1 /api/missions /api/drone/17 " +
		"/api/drone/statu /api/drone/status.json /api/drone;v=1 /api/drone%2F /api%2Fdrone /api/drone%00 " +
		"/api/drone/%7Bname%7D") {
		paths[path] = ""
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.untouched(func() {
			for path, meant := range paths {
				says := "; there are GET /api/drone, "
				if meant != "" {
					says = "no such path: " + meant + " was meant" + says
				}
				for _, method := range []string{"GET", "HEAD", "POST", "PUT", "OPTIONS"} {
					call(hf.handler, method, path, strings.NewReader("{}")).want(hf.T, 404, "not_found", says)
				}
			}
		})
		call(hf.handler, "GET", "/api/drone/missions", nil).want(hf.T, 404, "not_found", "no such path; there are")
	})
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

// ---- The stream ----

func TestAStreamIsTheStatusAtOnceAndWithEachChange(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		p, _ := serve(hf.T, hf.handler, maxConnections)
		time.Sleep(37 * time.Millisecond) // between two messages, where the stream and the poll see the same
		w := watchStatus(p)
		first := w.got()
		if len(first) != 1 || first[0].name != "status" || first[0].data+"\n" != hf.get("/api/drone/status").body {
			hf.Fatalf("the first events are %v", first)
		}
		if w.others != "retry: 1000\n\n" || w.header.Get("Content-Type") != "text/event-stream" ||
			w.header.Get("Cache-Control") != "no-store" {
			hf.Errorf("begins with %q, headers %v", w.others, w.header)
		}
		time.Sleep(150 * time.Millisecond)
		hf.post("/api/drone/mode", `{"arm":true}`).wantOK(hf.T)
		time.Sleep(eventEvery)
		if got := w.last(); !strings.Contains(got, `"armed":true`) {
			hf.Errorf("0.1 s after the answer the stream has %s", got)
		}
		time.Sleep(10 * time.Second)
		list := w.got()
		for i, e := range list {
			if strings.Contains(e.data, "\n") || !json.Valid([]byte(e.data)) {
				hf.Errorf("not one line of JSON: %q", e.data)
			}
			if i > 0 && e.at.Sub(list[i-1].at) < eventEvery {
				hf.Errorf("%v after the last event", e.at.Sub(list[i-1].at))
			}
		}
		if n := len(list); n < 90 || n > 105 {
			hf.Errorf("%d events in ten seconds of a vehicle that talks", n)
		}
	})
}

func TestAStreamOfASilentVehicleShowsItsAgesEachSecond(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		p, _ := serve(v.T, v.handler, maxConnections)
		v.say(holdingInAir)
		time.Sleep(3500 * time.Millisecond) // offline
		w := watchStatus(p)
		n := len(w.got())
		time.Sleep(time.Minute + 500*time.Millisecond)
		list := w.got()[n:]
		for i, e := range list {
			if i > 0 && e.at.Sub(list[i-1].at) > eventAtMost {
				v.Errorf("%v after the last event", e.at.Sub(list[i-1].at))
			}
		}
		// The silent port is reopened every few seconds, which is a change.
		if len(list) < 60 || len(list) > 100 {
			v.Errorf("%d events in a minute of silence", len(list))
		}
		if w.ended() {
			v.Errorf("the stream ended: %v", w.err)
		}
	})
}

func TestAClientThatStopsReadingIsCutOffAfterTwoSeconds(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		p, _ := serve(hf.T, hf.handler, maxConnections)
		w := p.connect()
		io.WriteString(w, "GET /api/drone/status HTTP/1.1\r\nHost: drone.local\r\nAccept: text/event-stream\r\n\r\n")
		io.ReadFull(w.in, make([]byte, 20))
		other := watchStatus(p)
		time.Sleep(2 * time.Second) // the next event comes within 0.2 s, and is not read
		n := len(other.got())
		time.Sleep(2 * eventEvery)
		w.SetReadDeadline(time.Now()) // read only what has come
		if _, err := io.Copy(io.Discard, w.in); err != nil {
			hf.Errorf("after 2 s it is not cut off: %v", err)
		}
		if len(other.got()) <= n || other.ended() {
			hf.Error("another stream suffers")
		}
	})
}

// In real time and on a real socket. Events in the system's buffers would count as read by a
// client that does not read.
func TestASocketBuffersLittleOfAStreamThatIsNotRead(t *testing.T) {
	t.Parallel()
	d := mute()
	d.ended = make(chan struct{}) // never closed
	for range 20 {
		d.notify(strings.Repeat("A text that makes an event longer. ", 6))
	}
	s := listen(t, newHandler(d, admission{}))
	w := dial(t, s.address)
	w.Conn.(*net.TCPConn).SetReadBuffer(4096)
	io.WriteString(w, "GET /api/drone/status HTTP/1.1\r\nHost: drone.local\r\nAccept: text/event-stream\r\n\r\n")
	tick := time.NewTicker(eventEvery / 4)
	defer tick.Stop()
	for began, cut := time.Now(), false; !cut; {
		select {
		case <-tick.C:
			d.changes.Add(1)
		case <-s.ended:
			cut = true
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal("it is not cut off")
		}
	}
	if n, _ := io.Copy(io.Discard, w.in); n < 5000 || n > 200_000 {
		t.Errorf("the system held %d bytes for a client that did not read", n)
	}
}

func TestStreamsEndWithTheProgramAndNotBefore(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		p, _ := serve(hf.T, hf.handler, maxConnections)
		w := watchStatus(p)
		time.Sleep(5 * time.Minute) // longer than every time-out of the server
		if w.ended() {
			hf.Fatalf("ended: %v", w.err)
		}
		if n := len(w.got()); n < 2990 {
			hf.Errorf("%d events in five minutes", n)
		}
		hf.drone.quit()
		if !w.ended() || !errors.Is(w.err, io.EOF) {
			hf.Errorf("after the end of the program: %v", w.err)
		}
	})
}

// ---- The page ----

// What browsers send when somebody opens an address.
var browsers = map[string]string{
	"Chromium": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng," +
		"*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
	"Firefox": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
	"Safari":  "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
	"Lynx":    "text/html, text/plain, text/sgml, text/css, application/xhtml+xml, */*;q=0.01",
}

func TestABrowserGetsThePage(t *testing.T) {
	for browser, accept := range browsers {
		r := call(silent(), "GET", "/api/drone/status", nil, "Accept", accept)
		if r.status != 200 || r.header.Get("Content-Type") != "text/html; charset=utf-8" ||
			!strings.HasPrefix(r.body, "<!doctype html>") {
			t.Errorf("%s got %d %v %.60q", browser, r.status, r.header, r.body)
		}
		if got := r.header.Get("Content-Length"); got != fmt.Sprint(len(r.body)) {
			t.Errorf("%s: Content-Length is %s of %d", browser, got, len(r.body))
		}
		if got := r.header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control is %q", browser, got)
		}
	}
}

func TestAcceptChoosesBetweenThePageTheStreamAndJSON(t *testing.T) {
	long := strings.Repeat("application/x-nothing;q=0.1, ", 146)
	if len(long) < 4<<10 {
		t.Fatal("the long Accept is not long")
	}
	const stream, page, object = "text/event-stream", "text/html; charset=utf-8", "application/json"
	for accept, want := range map[string]string{
		"text/event-stream":                     stream,
		"TEXT/Event-Stream":                     stream,
		"text/event-stream; charset=utf-8":      stream,
		"text/event-stream;q=0.1, */*":          stream,
		"text/event-stream, application/json":   stream,
		"text/html, ,text/event-stream,,":       stream,
		"text/event-stream;q=0":                 stream, // weights are ignored
		long + "text/event-stream":              stream,
		"text/html":                             page,
		" Text/HTML ;q=0.1":                     page,
		"text/html, application/problem+json":   page,
		"*/*, text/html;level=1":                page,
		long + "text/html":                      page,
		"text/html, application/json":           object,
		"application/json;q=0.1, text/html":     object,
		"":                                      object,
		"*/*":                                   object,
		"text/*":                                object,
		"application/json":                      object,
		"application/json, text/plain, */*":     object,
		"text/event-streams":                    object,
		"text/htmlx, xtext/html":                object,
		";;;,,,q=1;text/event-stream;text/html": object,
		"\x00\xff;q=text/html":                  object,
		long:                                    object,
	} {
		r := call(silent(), "HEAD", "/api/drone/status", nil, "Accept", accept)
		if got := r.header.Get("Content-Type"); r.status != 200 || got != want {
			t.Errorf("Accept: %.60q: %d %s, want %s", accept, r.status, got, want)
		}
		if got := r.header.Values("Vary"); len(got) != 1 || got[0] != "Accept" {
			t.Errorf("Accept: %.60q: Vary is %q", accept, got)
		}
	}
	if !accepts([]string{"text/plain", "text/html"}, "text/html") {
		t.Error("two lines of Accept are not one list")
	}
	if accepts(nil, "text/html") {
		t.Error("without an Accept header text/html is accepted")
	}
}

// The page has one address.
func TestEveryOtherRouteStaysJSONForABrowser(t *testing.T) {
	for _, path := range []string{"/api/drone", "/api/drone/mode", "/api", "/nothing", "/favicon.ico", "/api/drone/",
		"//"} {
		r := call(silent(), "GET", path, nil, "Accept", browsers["Firefox"])
		r.checkForm(t)
	}
	call(silent(), "POST", "/", nil, "Accept", browsers["Firefox"]).want(t, 404, "not_found")
	call(silent(), "POST", "/api/drone/status", nil, "Accept", browsers["Firefox"]).want(t, 405, "method_not_allowed")
	call(silent(), "GET", "/api/drone/status", nil, "Accept", browsers["Firefox"], "Host", "drone.example.org").want(t,
		421, "wrong_host")
}

// The whole policy is here, because a browser ignores words that it does not know.
func TestThePageMayLoadAndRunNothingButItself(t *testing.T) {
	r := call(silent(), "GET", "/api/drone/status", nil, "Accept", "text/html")
	hash := func(tag string) string {
		all := regexp.MustCompile(`(?s)<`+tag+`\b([^>]*)>(.*?)</`+tag+`>`).FindAllStringSubmatch(r.body, -1)
		if len(all) != 1 || all[0][1] != "" {
			t.Fatalf("%d of <%s>, or one with attributes", len(all), tag)
		}
		sum := sha256.Sum256([]byte(all[0][2]))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	want := "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'; " +
		"script-src 'sha256-" + hash("script") + "'; style-src 'sha256-" + hash("style") + "'"
	if got := r.header.Get("Content-Security-Policy"); got != want {
		t.Errorf("the policy is\n%s want\n%s", got, want)
	}
	if got := r.header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options is %q", got)
	}
}

func TestStatusHTMLIsOneReadableFile(t *testing.T) {
	for what, pattern := range map[string]string{
		"an attribute with a style or a script": `(?i)<[^>]*\s(style|on\w+)\s*=`,
		"a script or style from elsewhere": `(?i)<(script|link|img|iframe|object|embed|base)` +
			`\b[^>]*(src|href)\s*=\s*"?(https?:|//|/)`,
		"an import or a url": `(?i)@import|url\(|importScripts`,
		"a way for text to become HTML": `innerHTML|outerHTML|insertAdjacentHTML|document\.write|` +
			`DOMParser|srcdoc|\beval\(|new Function`,
	} {
		if got := regexp.MustCompile(pattern).FindString(statusPage()); got != "" {
			t.Errorf("it has %s: %q", what, got)
		}
	}
	for i, line := range strings.Split(statusPage(), "\n") {
		if n := utf8.RuneCountInString(line); n > 120 {
			t.Errorf("line %d has %d columns", i+1, n)
		}
	}
}

func TestThePageKnowsTheVersionThatItBelongsTo(t *testing.T) {
	var s struct{ Version string }
	if err := json.Unmarshal([]byte(call(silent(), "GET", "/api/drone/status", nil).body), &s); err != nil ||
		s.Version == "" || s.Version != ownVersion {
		t.Fatalf("the status has version %q: %v", s.Version, err)
	}
	if !strings.HasPrefix(buildVersion(), "mavrest "+s.Version+" ") {
		t.Errorf("-version prints %q, the status has %q", buildVersion(), s.Version)
	}
	page := call(silent(), "GET", "/api/drone/status", nil, "Accept", "text/html").body
	if want := `<meta name="version" content="` + s.Version + `">`; strings.Count(page, want) != 1 {
		t.Errorf("no %s in the page", want)
	}
}

func TestTheRootLeadsABrowserToThePage(t *testing.T) {
	for _, method := range []string{"GET", "HEAD"} {
		r := call(silent(), method, "/", nil, "Accept", browsers["Chromium"])
		if r.status != http.StatusNotFound || r.header.Get("Content-Type") != "text/html; charset=utf-8" ||
			r.header.Get("Vary") != "Accept" {
			t.Errorf("%s / is %d %v", method, r.status, r.header)
		}
		if !strings.Contains(r.body, `<a href="/api/drone/status">`) ||
			!strings.Contains(r.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s / is %v %q", method, r.header, r.body)
		}
	}
	r := call(silent(), "GET", "/", nil)
	r.want(t, 404, "not_found")
	if r.header.Get("Vary") != "Accept" {
		t.Errorf("Vary is %q", r.header.Get("Vary"))
	}
}

// The home of the simulated PX4 is at 47.3977419, 8.5455937; the drone stands 100 m above it.
func TestTheAnswerToAGotoInMetresAndTheStatusNameThePlaceThatCameOut(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("hold")
		hf.post("/api/drone/goto", `{"lat":47.398,"lon":8.546,"altitude":90}`).wantOK(hf.T,
			`{"status":"accepted","status_code":0,"command":192,"mode":"hold"}`)
		hf.post("/api/drone/goto", `{"lat":47.398,"lon":8.546,"altitude":90,"wait":60}`).wantOK(hf.T)
		r := hf.post("/api/drone/goto", `{"north":50,"east":-20,"up":5}`)
		r.wantOK(hf.T)
		var answer struct {
			Target *struct{ Lat, Lon, Altitude float64 }
		}
		if err := json.Unmarshal([]byte(r.body), &answer); err != nil || answer.Target == nil {
			hf.Fatalf("%s has no target: %v", r.body, err)
		}
		for range 2 {
			status := hf.status()["target"].(object)
			for name, want := range map[string]float64{"lat": 47.39845, "lon": 8.545735, "altitude": 95} {
				within := map[string]float64{"lat": 2e-5, "lon": 2e-5, "altitude": 1}[name]
				if got := status[name].(float64); math.Abs(got-want) > within {
					hf.Errorf("%s of the status's target is %v, want %v", name, got, want)
				}
			}
			away := distance(status["lat"].(float64), status["lon"].(float64), answer.Target.Lat, answer.Target.Lon)
			if away > 0.1 {
				hf.Errorf("the answer is %s, and the status's target %v, %.1f m from it", r.body, status, away)
			}
			time.Sleep(3 * time.Second)
		}
		hf.post("/api/drone/goto", `{"forward":100,"wait":1}`).has(hf.T, `"done":false`, `"target":{"lat":`)
	})
}
