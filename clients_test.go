package main

// Programs that repeat requests by themselves: what they do with each answer of the contract, and what becomes of
// a flight then.

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The table of docs/openapi.yaml: no program repeats by itself what may have been sent.
func TestTheTableOfErrorsHasEachStatusWithEachCode(t *testing.T) {
	described, codes := make(map[int][]string), []string{}
	row := regexp.MustCompile(`(?m)^ +\| (\d{3}) \| (\w+) \| (\w+)[^|]* \| [^|]+ \|$`)
	for _, m := range row.FindAllStringSubmatch(pageText(t, "openapi.yaml"), -1) {
		status, _ := strconv.Atoi(m[1])
		described[status] = append(described[status], m[2])
		if who := repeated(status, status == http.StatusServiceUnavailable); who != "" && m[3] != "no" {
			t.Errorf("%s repeats %d %s, and something may have been sent (%s)", who, status, m[2], m[3])
		}
	}
	for _, status := range slices.Sorted(maps.Keys(errorContract)) {
		served := slices.Sorted(slices.Values(errorContract[status]))
		same(t, fmt.Sprint(status), slices.Sorted(slices.Values(described[status])), served)
		codes = append(codes, served...)
	}
	slices.Sort(codes)
	same(t, "the codes of its schema", readDescription(t).codes, slices.Compact(codes))
}

// Where an answer of a vehicle is lost, or the vehicle does not know a command, something was sent.
func TestAnUnansweredCommandIsNotRepeatedByAnyProgram(t *testing.T) {
	noAck := func(*common.MessageCommandAck) []simAnswer { return nil }
	for name, misbehaves := range map[string]func(hf *httpFlight){
		"it answers nothing":  func(hf *httpFlight) { hf.answer(noAck) },
		"it does nothing":     func(hf *httpFlight) { hf.ignores() },
		"it knows no command": func(hf *httpFlight) { hf.refuse(common.MAV_RESULT_UNSUPPORTED) },
		"its cable is pulled": func(hf *httpFlight) { hf.sim.unplug() },
		"it is silent for 10 s": func(hf *httpFlight) {
			hf.sim.change(func() { hf.sim.switches().muted = true })
			time.Sleep(10 * time.Second)
		},
		"nothing, and waits 2 s": func(hf *httpFlight) {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, flavour := range []simFlavour{simPX4, simArduPilot} {
				flyHTTP(t, flavour, func(hf *httpFlight) {
					hf.fly("hold")
					misbehaves(hf)
					for path, body := range map[string]string{
						"/api/drone/goto": `{"altitude":80,"wait":2}`,
						"/api/drone/mode": `{"mode":"rtl","wait":2}`,
						"/api/drone/land": `{"wait":0.5}`,
					} {
						r := hf.post(path, body)
						r.checkForm(hf.T)
						if who := repeated(r.status, r.header.Get("Retry-After") != ""); r.status == 200 || who != "" {
							hf.Errorf("%s: %s repeats %d %s", path, who, r.status, r.body)
						}
					}
				})
			}
		})
	}
}

// A vehicle that stands disarmed, and one that was never heard: nobody flies it, and a program may wait for it.
func TestAnOfflineVehicleThatStandsDisarmedIs503(t *testing.T) {
	call(silent(), "POST", "/api/drone/takeoff", nil).want(t, 503, "offline")
	both(t, func(f *flight) {
		f.sim.unplug()
		time.Sleep(5 * time.Second)
		for _, path := range []string{"/takeoff", "/land", "/input"} {
			f.refused(path, "", 503, "offline")
		}
	})
	both(t, func(f *flight) {
		f.aloft()
		f.sim.unplug()
		for range 2 {
			time.Sleep(5 * time.Second)
			for _, path := range []string{"/takeoff", "/land", "/input"} {
				f.refused(path, "", 409, "offline")
			}
		}
	})
}

// A bug after a copy went out is no 500: the vehicle may be doing it.
func TestAPanicAfterSomethingWasSentIsNoAck(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		b.change(func() {})
		b.drone.locked(func() { b.drone.cmd.acks.late = nil }) // what closes an unanswered command panics
		r := call(newHandler(b.drone, admission{}), "POST", "/api/drone/mode", strings.NewReader(`{"mode":"rtl"}`))
		r.want(t, 409, "no_ack", "after something was sent")
		lineEqual(t, "it was sent", len(b.commands(common.MAV_CMD_DO_SET_MODE)) > 0, true)
	})
}

// ---- A body whose length its client did not give ----

// rawWire sends pieces of a request on a real socket, with pauses between them, and returns the answers' statuses.
func rawWire(t *testing.T, address string, pause time.Duration, answers int, pieces ...string) (list []int) {
	t.Helper()
	w := dial(t, address)
	defer w.Close()
	for i, piece := range pieces {
		if i > 0 {
			time.Sleep(pause)
		}
		if _, err := io.WriteString(w, piece); err != nil {
			t.Fatal(err)
		}
	}
	for range answers {
		r, err := w.receive("POST")
		if err != nil {
			t.Fatalf("%q: %v", pieces, err)
		}
		list = append(list, r.status)
	}
	return list
}

// A command that is taken is 503 here: no vehicle was ever heard. In real time, as segments exist in no other.
func TestABodyThatFollowsARequestWithoutALengthIs411(t *testing.T) {
	s := listen(t, silent())
	head := func(path, protocol string) string {
		return "POST /api/drone/" + path + " " + protocol + "\r\nHost: drone.local\r\n\r\n"
	}
	const body = `{"lat":47.398,"lon":8.546}`
	for _, protocol := range []string{"HTTP/1.1", "HTTP/1.0"} {
		for _, path := range []string{"mode", "input", "takeoff", "goto", "land"} {
			spaces := strings.Repeat(" ", 40)
			for _, body := range []string{body, "\n" + body, `"mode"`, "lat=1", "\ufeff{}", spaces + body} {
				if got := rawWire(t, s.address, 0, 1, head(path, protocol)+body); got[0] != 411 {
					t.Errorf("%s %s, %q in one segment: %v", path, protocol, body, got)
				}
			}
		}
		for _, pause := range []time.Duration{1, 20, 100} {
			got := rawWire(t, s.address, pause*time.Millisecond, 1, head("takeoff", protocol), body)
			if got[0] != 411 {
				t.Errorf("takeoff %s, its body %d ms behind: %v", protocol, pause, got)
			}
		}
		if got := rawWire(t, s.address, 300*time.Millisecond, 1, head("takeoff", protocol), body); got[0] != 503 {
			t.Errorf("takeoff %s, its body 0.3 s behind: %v", protocol, got)
		}
	}
	long := head("land", "HTTP/1.1")
	long = strings.Replace(long, "\r\n\r\n", "\r\nX-Long: "+strings.Repeat("x", 9000)+"\r\n\r\n", 1)
	if got := rawWire(t, s.address, 0, 1, long+body); got[0] != 411 {
		t.Errorf("headers that are longer than a buffer: %v", got)
	}
	// The second request of a connection, whose first one had a body with an empty line in it.
	first := "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: 6\r\n\r\n{\n\n\n\n}"
	if got := rawWire(t, s.address, 0, 2, first+head("land", "HTTP/1.1")+body); !slices.Equal(got, []int{503, 411}) {
		t.Errorf("behind a request with a body: %v", got)
	}
	if got := rawWire(t, s.address, 0, 2, first+"\r\n"+head("land", "HTTP/1.1")); !slices.Equal(got, []int{503, 503}) {
		t.Errorf("without one, behind a request with a body and a superfluous line end: %v", got)
	}
}

func TestABareCommandStaysOne(t *testing.T) {
	t.Parallel()
	s := listen(t, silent())
	for _, headers := range []string{
		"", "\r\nContent-Length: 0", "\r\ncontent-length: 0", "\r\nContent-Type: application/json\r\nContent-Length: 0",
		"\r\nConnection: close", "\r\nConnection: keep-alive", "\r\nAccept: */*", "\r\nUser-Agent: curl/8.5.0",
		"\r\nContent-Type:", "\r\nContent-Length: 2\r\n\r\n{}", "\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
		"\r\nContent-Length: 1\r\n\r\n ", "\r\nTransfer-Encoding: chunked\r\n\r\n0",
		"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0", "\r\nOrigin: http://drone.local",
		"\r\nContent-Length: 5\r\n\r\n\ufeff{}",
	} {
		for _, path := range []string{"takeoff", "land"} {
			const second = "GET /api/drone HTTP/1.1\r\nHost: drone.local\r\n\r\n"
			for _, after := range []string{"", "\r\n", "\n", " \t\r\n", second} {
				raw := "POST /api/drone/" + path + " HTTP/1.1\r\nHost: drone.local" + headers + "\r\n\r\n" + after
				want := []int{503}
				if strings.HasPrefix(after, "GET") && !strings.Contains(headers, "close") {
					want = append(want, 200)
				}
				if got := rawWire(t, s.address, 0, len(want), raw); !slices.Equal(got, want) {
					t.Errorf("%q: %v, want %v", raw, got, want)
				}
			}
		}
	}
	for _, raw := range []string{
		"POST /api/drone/land HTTP/1.0\r\n\r\n", "POST /api/drone/land HTTP/1.0\r\nHost: drone.local\r\n\r\n",
		"POST /api/drone/land HTTP/1.1\nHost: drone.local\n\n",
	} {
		if got := rawWire(t, s.address, 0, 1, raw); got[0] != 503 {
			t.Errorf("%q: %v", raw, got)
		}
	}
}

// ---- What commands by GET ----

func TestAGETThatCommandsIsToldSo(t *testing.T) {
	get := func(target, body string) reply { return call(silent(), "GET", target, strings.NewReader(body)) }
	for _, path := range []string{"/api/drone", "/api/drone/mode", "/api/drone/status"} {
		for _, field := range commandFields {
			get(path+"?"+field+"=land", "").want(t, 400, "bad_request", field+" stands in its query", "POST it")
		}
		get(path+"?_=1&wait", "").want(t, 400, "bad_request", "wait stands in its query")
		get(path, `{"mode":"land"}`).want(t, 400, "bad_request", "this one has a body", "POST it")
		for _, query := range []string{"?_=1", "?", "?pretty", "?t=1&t=2", "?%zz", "?modes=1"} {
			get(path+query, "").wantOK(t)
		}
	}
	var described []string
	for schema, fields := range readDescription(t).fields {
		if strings.HasSuffix(schema, "Request") {
			described = append(described, fields...)
		}
	}
	slices.Sort(described)
	same(t, "the fields of commands", slices.Compact(described), slices.Sorted(slices.Values(commandFields)))
}

// ---- Many who look on ----

// lookOn opens a stream from an address, by a program, and returns after a moment.
func (p *pipes) lookOn(address, program string) *watcher {
	p.from = &net.TCPAddr{IP: net.ParseIP(address), Port: 40000}
	w := watchStatus(p, "User-Agent: "+program+"\r\n")
	time.Sleep(10 * time.Millisecond)
	return w
}

// Forty programs look on, from one address and from many, and each that was cut or refused comes back after a
// second. A page flies by sticks, with -all for ten minutes, from the address of most of them.
func TestWhoLooksOnDoesNotCutWhoFlies(t *testing.T) {
	for _, test := range []struct {
		name    string
		address func(i int) string
	}{
		{"from the page's address", func(int) string { return "192.168.1.7" }},
		{"from their own", func(i int) string { return fmt.Sprintf("192.168.2.%d", i+1) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			flyHTTP(t, simPX4, func(hf *httpFlight) {
				p, _ := serve(hf.T, hf.handler, maxConnections)
				page := p.lookOn("192.168.1.7", "a page")
				hf.sim.placeInAir(50)
				time.Sleep(2 * time.Second)
				call(hf.handler, "POST", "/api/drone/mode", strings.NewReader(`{"mode":"position"}`),
					"From", "192.168.1.7:50000").wantOK(hf.T)
				others := make([]*watcher, 40)
				refused := 0
				seconds := 20
				if *runAll {
					seconds = 600
				}
				for range 2 * seconds {
					for i := range others {
						if others[i] == nil || others[i].ended() {
							if others[i] != nil {
								others[i].Close()
								refused++
							}
							others[i] = p.lookOn(test.address(i), "a program")
						}
					}
					for range 5 {
						r := call(hf.handler, "POST", "/api/drone/input", strings.NewReader(`{"roll":0.05}`),
							"From", "192.168.1.7:50000")
						r.wantOK(hf.T)
						time.Sleep(100 * time.Millisecond)
					}
				}
				if page.ended() {
					hf.Errorf("the page was cut: %v", page.err)
				}
				if refused < 24 {
					hf.Errorf("only %d of the others were cut or refused", refused)
				}
			})
		})
	}
}

func TestWhoHasTheSticksAlwaysGetsAStream(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		p, _ := serve(hf.T, hf.handler, maxConnections)
		hf.fly("hold")
		var open []*watcher
		for i := range maxStreams {
			open = append(open, p.lookOn(fmt.Sprintf("192.168.2.%d", i+1), "a program"))
		}
		stranger := p.lookOn("192.168.1.7", "a page")
		if !stranger.ended() || !strings.Contains(fmt.Sprint(stranger.err), "503") {
			hf.Errorf("a 17th client's stream: ended %v, %v", stranger.ended(), stranger.err)
		}
		call(hf.handler, "GET", "/api/drone/status", nil, "Accept", "text/event-stream", "From", "192.168.1.7:1",
			"User-Agent", "a page").want(hf.T, 503, "too_many_streams")
		call(hf.handler, "POST", "/api/drone/mode", strings.NewReader(`{"mode":"position"}`),
			"From", "192.168.1.7:50000").wantOK(hf.T)
		pilot := p.lookOn("192.168.1.7", "a page")
		for i, w := range open {
			if w.ended() != (i == 0) {
				hf.Errorf("stream %d: ended %v", i, w.ended())
			}
		}
		if pilot.ended() {
			hf.Errorf("who has the sticks was refused: %v", pilot.err)
		}
	})
}

// In real time: it is the system's network that takes nothing.
func TestStreamsWhoseNetworkIsGoneMakeRoomWithin6Seconds(t *testing.T) {
	t.Parallel()
	d := newDrone(device{name: "none"}, 0, false, slog.Default())
	s := listen(t, newHandler(d, admission{}))
	ends := make(chan struct{})
	var talks sync.WaitGroup
	talks.Go(func() { // as a vehicle's telemetry does
		for {
			select {
			case <-ends:
				return
			case <-time.After(50 * time.Millisecond):
				d.changeQuietly(func() {})
			}
		}
	})
	defer talks.Wait()
	defer close(ends)
	stream := func(program string) (*wire, int) {
		w := dial(t, s.address)
		fmt.Fprintf(w, "GET /api/drone/status HTTP/1.1\r\nHost: drone.local\r\nUser-Agent: %s\r\n"+
			"Accept: text/event-stream\r\n\r\n", program)
		resp, err := http.ReadResponse(w.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		return w, resp.StatusCode
	}
	for i := range maxStreams {
		w, status := stream(fmt.Sprintf("tablet %d", i))
		if status != 200 {
			t.Fatalf("stream %d: %d", i, status)
		}
		defer w.Close()
		ignore(t, w.Conn) // as a Wi-Fi that is cut without a word
	}
	cut := time.Now()
	refused := 0
	for {
		w, status := stream("page")
		defer w.Close()
		if status == 200 {
			break
		}
		refused++
		if status != 503 || time.Since(cut) > 6*time.Second {
			t.Fatalf("%v after the cut the page is answered %d", time.Since(cut), status)
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("live after %v, refused %d times", time.Since(cut), refused)
	if refused == 0 {
		t.Error("there was room at once")
	}
}

// ---- What the board serves ----

var writeEmbedded = flag.Bool("write-embedded", false, "write docs/openapi.yaml.gz and page/status.html.gz")

// commentLines are the page's: who reads them reads the repository, not the board.
var commentLines = regexp.MustCompile(`(?m)^[\t ]*//.*\n`)

func TestWhatIsEmbeddedIsUpToDate(t *testing.T) {
	for file, embedded := range map[string][]byte{
		"docs/openapi.yaml": contractGzip, "page/status.html": statusGzip,
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := commentLines.ReplaceAll(source, nil)
		switch {
		case *writeEmbedded:
			var b bytes.Buffer
			z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
			z.Write(want)
			if err := errors.Join(z.Close(), os.WriteFile(file+".gz", b.Bytes(), 0o644)); err != nil {
				t.Fatal(err)
			}
		case !bytes.Equal(unzipped(embedded), want):
			t.Errorf("%s.gz is not %s: go test -run %s -write-embedded .", file, file, t.Name())
		}
	}
}

func TestTheContractComesFromTheBoard(t *testing.T) {
	want := pageText(t, "openapi.yaml")
	for _, accept := range []string{"application/yaml", "text/html, application/yaml;q=0.9"} {
		r := call(silent(), "GET", "/api/drone", nil, "Accept", accept)
		if r.status != 200 || r.header.Get("Content-Type") != "application/yaml" || r.body != want {
			t.Fatalf("%d %s, %d bytes are not docs/openapi.yaml", r.status, r.header.Get("Content-Type"), len(r.body))
		}
	}
	for _, accept := range []string{"", "*/*", "application/json", "text/html", "application/yamlx"} {
		r := call(silent(), "GET", "/api/drone", nil, "Accept", accept)
		r.wantOK(t, `{"status":"OK"}`)
		lineEqual(t, "Vary", r.header.Get("Vary"), "Accept")
	}
}

func TestAPageThatIsOpenedFromAFileIsToldToServeIt(t *testing.T) {
	call(silent(), "POST", "/api/drone/land", nil, "Origin", "null", "Sec-Fetch-Site", "cross-site").want(t, 403,
		"cross_origin", "serve its folder", "-origin http://localhost:3000")
}

func TestEventsAreNotKeptBackByNginx(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		p, _ := serve(hf.T, hf.handler, maxConnections)
		w := p.lookOn("192.168.1.7", "nginx")
		w.got()
		lineEqual(hf.T, "X-Accel-Buffering", w.header.Get("X-Accel-Buffering"), "no")
	})
}

// ---- Two GPS receivers ----

func TestTheSecondGPSIsShownWhereOnlyItKnowsAPlace(t *testing.T) {
	flyHTTP(t, simArduPilot, func(hf *httpFlight) {
		time.Sleep(20 * time.Second)
		shows := func(want string) {
			hf.Helper()
			time.Sleep(3 * time.Second)
			hf.get("/api/drone/status").has(hf.T, `"gps":{"receiver":`+want)
		}
		shows(`1,"fix":"rtk_fixed","satellites":10,"hdop":1.21,`)
		hf.sim.change(func() { hf.sim.secondGPS = true })
		shows(`2,"fix":"rtk_fixed","satellites":10,"hdop":1.21,`)
		hf.post("/api/drone/takeoff", `{"altitude":5,"wait":60}`).wantOK(hf.T)
		hf.sim.change(func() { hf.sim.noGPS = time.Now() })
		shows(`1,"fix":"no_gps","satellites":0,"hdop":null,`)
	})
}
