package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// scriptedVehicle is a vehicle that sends only what the test says, and the mavrest that hears it.
type scriptedVehicle struct {
	*testing.T
	drone   *drone
	handler http.Handler
	line    net.Conn // the vehicle's end of the open port
	sender  *sender
}

func withScript(t *testing.T, test func(v *scriptedVehicle)) {
	inLinkBubble(t, func(t *testing.T) {
		v := &scriptedVehicle{T: t, sender: newSender(1, 1)}
		v.drone, _ = runDevice(t, device{
			name: "/dev/serial0",
			open: func(context.Context) (port, error) {
				board, vehicle := net.Pipe()
				v.line = vehicle
				go io.Copy(io.Discard, vehicle) // until the link closes its end
				return board, nil
			},
			line: atBaud(921600),
		})
		v.handler = newHandler(v.drone, admission{})
		synctest.Wait()
		test(v)
	})
}

// say sends messages as the vehicle.
func (v *scriptedVehicle) say(messages ...message.Message) {
	v.Helper()
	for _, m := range messages {
		b, _ := v.sender.encode(m)
		if _, err := v.line.Write(b); err != nil {
			v.Fatal(err)
		}
	}
	synctest.Wait()
}

// wantStatus checks the whole status, except for its time and the count link.sent.
func (v *scriptedVehicle) wantStatus(want string) {
	v.Helper()
	r := call(v.handler, "GET", "/api/drone/status", nil)
	r.body = regexp.MustCompile(`"sent":\d+`).ReplaceAllString(r.body, `"sent":1`)
	r.body = regexp.MustCompile(`"time":[.\d]+`).ReplaceAllString(r.body, `"time":1`)
	r.wantOK(v.T, strings.ReplaceAll(want, "\n", ""))
}

var holdingInAir = &minimal.MessageHeartbeat{
	Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_PX4,
	BaseMode: minimal.MAV_MODE_FLAG_SAFETY_ARMED | minimal.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED, CustomMode: 4<<16 | 3<<24,
	SystemStatus: minimal.MAV_STATE_ACTIVE, MavlinkVersion: 3,
}

// neverHeard is the status before the first heartbeat: nothing is known.
var neverHeard = `{"version":"` + ownVersion + `","time":1,"online":false,"mode":"manual","vehicle_mode":null,
"armed":null,"in_air":null,"landed_state":null,"state":null,"failsafe":null,
"armable":null,"unhealthy":null,"done":null,
"vehicle":null,"position":null,"velocity":null,"attitude":null,"battery":null,"gps":null,"home":null,"target":null,
"input":{"active":false,"expires_in":null,"by":null,"from":null,"yours":false},
"messages":[],
"link":{"device":"/dev/serial0","baud":921600,"heartbeat_age":null,"received":0,"lost":0,"errors":0,
"sent":1,"error":null}}`

func TestStatusShowsEverythingThatTheVehicleReports(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir,
			&common.MessageAutopilotVersion{FlightSwVersion: 1<<24 | 17<<16 | 255},
			&common.MessageParamValue{ParamId: "RTL_RETURN_ALT", ParamValue: 30.5,
				ParamType: common.MAV_PARAM_TYPE_REAL32},
			&common.MessageStatustext{Severity: common.MAV_SEVERITY_INFO, Text: "Takeoff detected"},
			&common.MessageHomePosition{Latitude: 473977419, Longitude: 85455937, Altitude: 488300})
		for range 11 {
			time.Sleep(time.Second)
			v.say(holdingInAir)
		}
		time.Sleep(700 * time.Millisecond)
		const (
			gyro   = common.MAV_SYS_STATUS_SENSOR_3D_GYRO
			gps    = common.MAV_SYS_STATUS_SENSOR_GPS
			prearm = common.MAV_SYS_STATUS_PREARM_CHECK
		)
		v.say(&common.MessageSysStatus{
			OnboardControlSensorsPresent: gyro | gps | prearm, OnboardControlSensorsEnabled: gyro | gps | prearm,
			OnboardControlSensorsHealth: gyro | prearm,
			VoltageBattery:              16200, CurrentBattery: 1100, BatteryRemaining: 87,
		})
		time.Sleep(200 * time.Millisecond)
		v.say(holdingInAir,
			&common.MessageGpsRawInt{FixType: common.GPS_FIX_TYPE_3D_FIX, SatellitesVisible: 14, Eph: 70},
			&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR})
		time.Sleep(300 * time.Millisecond)
		v.say(&common.MessageGlobalPositionInt{
			Lat: 473977421, Lon: 85455938, Alt: 498300, RelativeAlt: 10020, Vx: 0, Vy: 10, Vz: 0, Hdg: 18150,
		})
		time.Sleep(50 * time.Millisecond)
		v.say(&common.MessageAttitude{Roll: 0.4 * math.Pi / 180, Pitch: -1.1 * math.Pi / 180,
			Yaw: -178.5 * math.Pi / 180})
		time.Sleep(50 * time.Millisecond)
		v.wantStatus(`{"version":"` + ownVersion + `","time":1,"online":true,"mode":"hold","vehicle_mode":"AUTO.LOITER",
"armed":true,"in_air":true,"landed_state":"in_air","state":"active","failsafe":false,
"armable":true,"unhealthy":["gps"],"done":null,
"vehicle":{"autopilot":"px4","type":"quadrotor","version":"1.17.0","system_id":1,
"kind":"hover","circles":null,"modes":["manual","altitude","position","takeoff","hold","land","rtl","rtgs"],
"return_altitude":30.5},
"position":{"lat":47.3977421,"lon":8.5455938,"altitude":10.02,"altitude_msl":498.3,"heading":181.5,"age":0.1},
"velocity":{"north":0,"east":0.1,"down":0,"ground_speed":0.1,"air_speed":null,"climb":0,"age":0.1},
"attitude":{"roll":0.4,"pitch":-1.1,"yaw":181.5,"age":0.05},
"battery":{"voltage":16.2,"current":11,"remaining":87,"age":0.6},
"gps":{"fix":"3d","satellites":14,"hdop":0.7,"age":0.4},
"home":{"lat":47.3977419,"lon":8.5455937,"altitude_msl":488.3,"age":12.3},
"target":null,
"input":{"active":false,"expires_in":null,"by":null,"from":null,"yours":false},
"messages":[{"severity":"info","text":"Takeoff detected","age":12.3}],
"link":{"device":"/dev/serial0","baud":921600,"heartbeat_age":0.4,"received":22,"lost":0,"errors":0,
"sent":1,"error":null}}`)
	})
}

func TestWhatTheVehicleDoesNotKnowIsNull(t *testing.T) {
	nan := float32(math.NaN())
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir,
			&common.MessageSysStatus{VoltageBattery: math.MaxUint16, CurrentBattery: -1, BatteryRemaining: -1},
			&common.MessageGpsRawInt{FixType: common.GPS_FIX_TYPE_NO_FIX, SatellitesVisible: math.MaxUint8,
				Eph: math.MaxUint16},
			&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_UNDEFINED},
			&common.MessageGlobalPositionInt{Alt: 0, RelativeAlt: 0, Hdg: math.MaxUint16},
			&common.MessageVfrHud{Airspeed: nan, Climb: nan},
			&common.MessageAttitude{Roll: nan, Pitch: nan, Yaw: nan})
		r := call(v.handler, "GET", "/api/drone/status", nil)
		r.wantOK(t)
		r.has(t,
			`"in_air":null,"landed_state":null`,
			`"version":null,"system_id":1`,
			`"position":{"lat":null,"lon":null,`, `"heading":null,`,
			`"air_speed":null,"climb":null`,
			`"attitude":{"roll":null,"pitch":null,"yaw":null,`,
			`"battery":{"voltage":null,"current":null,"remaining":null,`,
			`"gps":{"fix":"no_fix","satellites":null,"hdop":null,`,
			`"home":null`)
	})
}

func TestStatusOfALostVehicleIsItsLastKnownWithAges(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir, &common.MessageAttitude{Roll: 0.5})
		time.Sleep(2900 * time.Millisecond)
		call(v.handler, "GET", "/api/drone/status", nil).has(t, `,"online":true,"mode":"hold",`)
		time.Sleep(200 * time.Millisecond)
		r := call(v.handler, "GET", "/api/drone/status", nil)
		r.wantOK(t)
		r.has(t, `,"online":false,"mode":"hold","vehicle_mode":"AUTO.LOITER","armed":true,`,
			`"attitude":{"roll":28.6,"pitch":0,"yaw":0,"age":3.1}`, `"heartbeat_age":3.1,`)
		for path, body := range postRoutes {
			call(v.handler, "POST", path, strings.NewReader(body)).want(t, 503, "offline")
		}
	})
}

// A client reads from it how old an event is.
func TestStatusHasTheTimeSinceTheStart(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		for _, want := range []string{`,"time":0,`, `,"time":1.25,`, `,"time":2.5,`} {
			call(v.handler, "GET", "/api/drone/status", nil).has(t, want)
			time.Sleep(1250 * time.Millisecond)
		}
		v.say(holdingInAir) // a vehicle that comes online changes nothing
		call(v.handler, "GET", "/api/drone/status", nil).has(t, `,"time":3.75,"online":true,`)
		v.say(attitudeAt(50_000), attitudeAt(1000), attitudeAt(1100)) // and neither does its restart
		call(v.handler, "GET", "/api/drone/status", nil).has(t, `,"time":3.75,`)
	})
}

func TestStatusShowsTheTargetAndTheSticks(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		has := func(want string) {
			hf.Helper()
			hf.get("/api/drone/status").has(hf.T, want)
		}
		hf.fly("hold")
		const nobody = `"input":{"active":false,"expires_in":null,"by":null,"from":null,"yours":false},`
		has(`"target":{"lat":47.3977419,"lon":8.5455937,"altitude":100,"distance":0},` + nobody)
		hf.post("/api/drone/goto", `{"lat":47.3980,"lon":8.5460,"altitude":20}`).wantOK(hf.T)
		has(`"target":{"lat":47.398,"lon":8.546,"altitude":20,"distance":41.9},` + nobody)
		hf.post("/api/drone/mode", `{"mode":"position"}`).wantOK(hf.T)
		has(`"target":null,"input":{"active":false,"expires_in":null,"by":null,"from":"192.0.2.1","yours":true},`)
		hf.post("/api/drone/input", `{"yaw":1,"timeout":2}`).wantOK(hf.T)
		time.Sleep(500 * time.Millisecond)
		has(`"target":null,"input":{"active":true,"expires_in":1.5,"by":"client","from":"192.0.2.1","yours":true},`)
		time.Sleep(1600 * time.Millisecond)
		has(`"target":null,` + nobody)
	})
}

func TestStatusHoldsTheLast20MessagesNewestLast(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		for i := range 25 {
			hf.sim.emit(1, 1, &common.MessageStatustext{Severity: common.MAV_SEVERITY(i % 8),
				Text: fmt.Sprint("text ", i)})
			time.Sleep(time.Second)
		}
		var status struct {
			Messages []struct {
				Severity, Text string
				Age            float64
			}
		}
		r := hf.get("/api/drone/status")
		if err := json.Unmarshal([]byte(r.body), &status); err != nil {
			hf.Fatal(err)
		}
		names := []string{"emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"}
		if len(status.Messages) != 20 {
			hf.Fatalf("%d messages: %s", len(status.Messages), r.body)
		}
		for i, m := range status.Messages {
			if n := i + 5; m.Text != fmt.Sprint("text ", n) || m.Severity != names[n%8] || m.Age != float64(25-n) {
				hf.Errorf("message %d is %+v", i, m)
			}
		}
	})
}

// ---- The stream ----

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

func TestA17thStreamTakesThePlaceOfTheOldest(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		p, _ := serve(hf.T, hf.handler, maxConnections)
		var open []*watcher
		for range maxStreams {
			open = append(open, watchStatus(p))
			time.Sleep(10 * time.Millisecond)
		}
		for i, w := range open {
			if w.ended() {
				hf.Fatalf("stream %d of 16 ended: %v", i, w.err)
			}
		}
		open = append(open, watchStatus(p))
		time.Sleep(time.Second)
		for i, w := range open {
			if w.ended() != (i == 0) {
				hf.Errorf("stream %d: ended %v", i, w.ended())
			}
		}
		if !errors.Is(open[0].err, io.EOF) {
			hf.Errorf("the oldest ended with %v, want a whole answer", open[0].err)
		}
		open[5].Close() // a client that disconnects frees its place
		time.Sleep(time.Second)
		open = append(open[1:], watchStatus(p))
		time.Sleep(time.Second)
		for i, w := range open {
			if w.ended() != (i == 4) { // open[5] disconnected; without open[0] it is number 4
				hf.Errorf("stream %d: ended %v", i+1, w.ended())
			}
		}
	})
}

func TestAFloodOfCommandsAnd16StreamsDoNotDelayEachOther(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("position")
		p, _ := serve(hf.T, hf.handler, maxConnections)
		var open []*watcher
		for range maxStreams {
			open = append(open, watchStatus(p))
		}
		time.Sleep(silentClient) // until now only the address that set the mode may move the sticks
		var flood sync.WaitGroup
		began := time.Now()
		clients := 32
		if racing() { // which needs each path once
			clients = 8
		}
		for client := range clients {
			w := p.connect()
			flood.Go(func() {
				for n := 0; time.Since(began) < 4*time.Second; n++ {
					asked := time.Now()
					path, body := "/api/drone/input", fmt.Sprintf(`{"roll":%g}`, float64(n%3)/10)
					if client == 0 && n%100 == 50 {
						path, body = "/api/drone/mode", `{"arm":true}`
					}
					w.ask("POST", path, body).wantOK(hf.T)
					if took := time.Since(asked); took > 200*time.Millisecond {
						hf.Errorf("%s was answered after %v", path, took)
					}
					time.Sleep(time.Duration(10+client) * time.Millisecond)
				}
			})
		}
		flood.Wait()
		for i, w := range open {
			last := began
			for _, e := range w.got() {
				if gap := e.at.Sub(last); gap > 2*eventEvery {
					hf.Errorf("stream %d had nothing for %v in a flood of commands", i, gap)
				}
				last = e.at
			}
			if w.ended() || time.Since(last) > 2*eventEvery {
				hf.Errorf("stream %d ended: %v, and had nothing for %v", i, w.ended(), time.Since(last))
			}
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
		if got := regexp.MustCompile(pattern).FindString(statusHTML); got != "" {
			t.Errorf("it has %s: %q", what, got)
		}
	}
	for i, line := range strings.Split(statusHTML, "\n") {
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

// A copy of the source may lack the history of git; CHANGELOG.md is in each.
func TestTheVersionIsTheNewestOfTheChanges(t *testing.T) {
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	var versions [][3]int
	for i, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1) {
		var v [3]int
		if n, _ := fmt.Sscanf(m[1], "v%d.%d.%d", &v[0], &v[1], &v[2]); n != 3 {
			t.Errorf("%q does not begin with a version", m[1])
		}
		if i > 0 && slices.Compare(v[:], versions[i-1][:]) >= 0 {
			t.Errorf("%v stands below %v", v, versions[i-1])
		}
		versions = append(versions, v)
	}
	if len(versions) == 0 || ownVersion != fmt.Sprintf("v%d.%d.%d", versions[0][0], versions[0][1], versions[0][2]) {
		t.Errorf("the version is %q, the changes begin with %v", ownVersion, versions)
	}
	out, err := exec.Command("deploy/version").Output()
	if err != nil || string(out) != ownVersion+"\n" {
		t.Errorf("deploy/version prints %q, %v; the program is %s", out, err, ownVersion)
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
