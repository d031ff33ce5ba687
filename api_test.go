package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// errorContract is API.md's table of errors: the codes of each HTTP status.
var errorContract = map[int][]string{
	400: {"bad_request"},
	403: {"cross_origin"},
	404: {"not_found"},
	405: {"method_not_allowed"},
	409: {"wrong_mode", "refused", "superseded"},
	413: {"too_large"},
	421: {"wrong_host"},
	422: {"out_of_range"},
	500: {"internal"},
	501: {"unsupported"},
	503: {"offline"},
	504: {"no_ack"},
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
}

func (r reply) failure(t *testing.T) failure {
	t.Helper()
	var f failure
	if err := json.Unmarshal([]byte(r.body), &f); err != nil {
		t.Fatalf("%d %q: %v", r.status, r.body, err)
	}
	return f
}

// checkForm checks what API.md says of every answer: JSON on one line, not to
// be stored, readable by no other origin; an error has a sentence and a code
// that belongs to its status.
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

// call has a handler answer a request. Each header is a name and a value; Host
// is a header here too.
func call(h http.Handler, method, target string, body io.Reader, headers ...string) reply {
	req := httptest.NewRequest(method, target, body)
	req.Host = "192.0.2.7"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return reply{rec.Code, rec.Header(), rec.Body.String()}
}

// station is a client of the API that has a simulated vehicle behind it.
type station struct {
	*testing.T
	sim     *simulator
	link    *drone
	handler http.Handler
}

// atStation runs a test in virtual time, with a vehicle that has been online
// long enough to be armed. hosts are the names given with -host.
func atStation(t *testing.T, flavour simFlavour, test func(st *station), hosts ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		s := newSimulator(flavour)
		running.Go(func() { s.run(ctx) })
		l := newDrone(device{
			name: "sim",
			open: func(context.Context) (port, error) { return s.open() },
			baud: func() int { return 0 },
		}, 0, false)
		running.Go(func() { l.run(ctx) })
		time.Sleep(6 * time.Second)
		test(&station{t, s, l, newHandler(l, admission{hosts: ownHosts("", nil, hosts)})})
	})
}

func (st *station) get(path string) reply { return call(st.handler, "GET", path, nil) }

func (st *station) post(path, body string) reply {
	return call(st.handler, "POST", path, strings.NewReader(body))
}

// fly puts the vehicle into the air, and into a mode.
func (st *station) fly(mode string) {
	st.Helper()
	st.sim.placeInAir(100)
	time.Sleep(2 * time.Second)
	if mode != "hold" {
		st.post("/api/drone/mode", `{"mode":"`+mode+`"}`).wantOK(st.T)
	}
	st.wantMode(mode)
}

func (st *station) wantMode(mode string) {
	st.Helper()
	if got := st.get("/api/drone/mode").body; !strings.HasPrefix(got, `{"mode":"`+mode+`",`) {
		st.Errorf("got %s want mode %s", got, mode)
	}
}

// orders returns the commands that the vehicle got from the n-th message on,
// and every position of the sticks that differs from the one before it.
func (st *station) orders(n int) []string {
	var list []string
	last := ""
	for i, r := range st.sim.received() {
		switch m := r.msg.(type) {
		case *common.MessageCommandLong:
			if i >= n {
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

// untouched checks that the vehicle is told nothing by what f does.
func (st *station) untouched(f func()) {
	st.Helper()
	n := len(st.sim.received())
	f()
	time.Sleep(200 * time.Millisecond)
	if got := st.orders(n); len(got) != 0 {
		st.Errorf("the vehicle was told: %v", got)
	}
}

// dropAcks keeps the vehicle's acks back; of these commands, or of all.
func (st *station) dropAcks(commands ...common.MAV_CMD) {
	st.sim.change(func() {
		st.sim.onAck = func(ack *common.MessageCommandAck) []simAnswer {
			if len(commands) == 0 || slices.Contains(commands, ack.Command) {
				return nil
			}
			return []simAnswer{{ack: ack}}
		}
	})
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
		{"anybody there", simPX4, "", "GET", "/api/drone", "",
			`{"status":"OK"}`},
		{"the mode of a drone that nobody asked anything", simPX4, "", "GET", "/api/drone/mode", "",
			`{"mode":"manual","vehicle_mode":"AUTO.LOITER"}`},
		{"the mode has ArduPilot's own name beside it", simArduPilot, "hold", "GET", "/api/drone/mode", "",
			`{"mode":"hold","vehicle_mode":"GUIDED"}`},
		{"set the mode", simPX4, "hold", "POST", "/api/drone/mode", `{"mode":"position"}`,
			`{"status":"accepted","status_code":0,"command":176,"mode":"position"}`},
		{"arm, the mode stays", simPX4, "", "POST", "/api/drone/mode", `{"arm":true}`,
			`{"status":"accepted","status_code":0,"command":400,"mode":"hold"}`},
		{"disarm on the ground", simPX4, "", "POST", "/api/drone/mode", `{"arm":false}`,
			`{"status":"accepted","status_code":0,"command":400,"mode":"manual"}`},
		{"set the mode, then arm", simPX4, "", "POST", "/api/drone/mode", `{"mode":"altitude","arm":true}`,
			`{"status":"accepted","status_code":0,"command":400,"mode":"altitude"}`},
		{"return to the ground station is reported as rtgs", simPX4, "hold", "POST", "/api/drone/mode", `{"mode":"rtgs"}`,
			`{"status":"accepted","status_code":0,"command":176,"mode":"rtgs"}`},
		{"takeoff as a mode", simArduPilot, "", "POST", "/api/drone/mode", `{"mode":"takeoff"}`,
			`{"status":"accepted","status_code":0,"command":22,"mode":"takeoff"}`},
		{"land as a mode", simPX4, "hold", "POST", "/api/drone/mode", `{"mode":"land"}`,
			`{"status":"accepted","status_code":0,"command":21,"mode":"land"}`},
		{"sticks, for half a second if nothing else is said", simPX4, "position", "POST", "/api/drone/input", `{"roll":0.2}`,
			`{"status":"OK","mode":"position","expires_in":0.5}`},
		{"sticks with a timeout", simPX4, "altitude", "POST", "/api/drone/input", `{"pitch":-0.1,"timeout":1.25}`,
			`{"status":"OK","mode":"altitude","expires_in":1.25}`},
		{"sticks in manual mode", simPX4, "manual", "POST", "/api/drone/input", `{"throttle":0.6}`,
			`{"status":"OK","mode":"manual","expires_in":0.5}`},
		{"takeoff: PX4 is armed last", simPX4, "", "POST", "/api/drone/takeoff", `{"altitude":10}`,
			`{"status":"accepted","status_code":0,"command":400,"mode":"takeoff"}`},
		{"takeoff: ArduPilot climbs last", simArduPilot, "", "POST", "/api/drone/takeoff", "",
			`{"status":"accepted","status_code":0,"command":22,"mode":"takeoff"}`},
		{"goto", simPX4, "hold", "POST", "/api/drone/goto", `{"lat":47.3980,"lon":8.5460,"altitude":20,"heading":90,"speed":5}`,
			`{"status":"accepted","status_code":0,"command":192,"mode":"hold"}`},
		{"land here", simPX4, "hold", "POST", "/api/drone/land", "",
			`{"status":"accepted","status_code":0,"command":21,"mode":"land"}`},
		{"land at a place: mode land through the transit", simPX4, "hold", "POST", "/api/drone/land", `{"lat":47.3980,"lon":8.5460}`,
			`{"status":"accepted","status_code":0,"command":192,"mode":"land"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			atStation(t, test.flavour, func(st *station) {
				if test.from != "" {
					st.fly(test.from)
				}
				call(st.handler, test.method, test.path, strings.NewReader(test.body)).wantOK(st.T, test.want)
			})
		})
	}
}

// scriptedVehicle is a link whose vehicle says what the test has it say, and
// answers nothing.
type scriptedVehicle struct {
	*testing.T
	handler http.Handler
	line    net.Conn
	sender  *sender
}

func withScript(t *testing.T, test func(v *scriptedVehicle)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		board, vehicle := net.Pipe()
		l := newDrone(device{
			name: "/dev/serial0",
			open: func(context.Context) (port, error) { return board, nil },
			baud: func() int { return 921600 },
		}, 0, false)
		running.Go(func() { l.run(ctx) })
		running.Go(func() { io.Copy(io.Discard, vehicle) })
		defer vehicle.Close()
		defer cancel()
		synctest.Wait()
		test(&scriptedVehicle{t, newHandler(l, admission{}), vehicle, newSender(1, 1)})
	})
}

// say sends messages as the vehicle.
func (v *scriptedVehicle) say(messages ...message.Message) {
	v.Helper()
	for _, m := range messages {
		b, err := v.sender.encode(m)
		if err == nil {
			_, err = v.line.Write(b)
		}
		if err != nil {
			v.Fatal(err)
		}
	}
	synctest.Wait()
}

func (v *scriptedVehicle) wantStatus(want string) {
	v.Helper()
	call(v.handler, "GET", "/api/drone/status", nil).wantOK(v.T, strings.ReplaceAll(want, "\n", ""))
}

var holdingInAir = &minimal.MessageHeartbeat{
	Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_PX4,
	BaseMode: minimal.MAV_MODE_FLAG_SAFETY_ARMED | minimal.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED, CustomMode: 4<<16 | 3<<24,
	SystemStatus: minimal.MAV_STATE_ACTIVE, MavlinkVersion: 3,
}

// neverHeard is the status before the first heartbeat: nothing is known.
const neverHeard = `{"online":false,"mode":"manual","vehicle_mode":null,
"armed":null,"in_air":null,"landed_state":null,"state":null,"failsafe":null,
"vehicle":null,"position":null,"velocity":null,"attitude":null,"battery":null,"gps":null,"home":null,"target":null,
"input":{"active":false,"expires_in":null},
"messages":[],
"link":{"device":"/dev/serial0","baud":921600,"heartbeat_age":null,"received":0,"lost":0,"errors":0,"sent":1}}`

func TestStatusBeforeTheFirstHeartbeatIsAllNull(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.wantStatus(neverHeard)
		call(v.handler, "GET", "/api/drone/mode", nil).wantOK(t, `{"mode":"manual","vehicle_mode":null}`)
	})
}

func TestStatusShowsEverythingThatTheVehicleReports(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir,
			&common.MessageAutopilotVersion{FlightSwVersion: 1<<24 | 17<<16 | 255},
			&common.MessageStatustext{Severity: common.MAV_SEVERITY_INFO, Text: "Takeoff detected"},
			&common.MessageHomePosition{Latitude: 473977419, Longitude: 85455937, Altitude: 488300})
		for range 11 {
			time.Sleep(time.Second)
			v.say(holdingInAir)
		}
		time.Sleep(700 * time.Millisecond)
		v.say(&common.MessageSysStatus{VoltageBattery: 16200, CurrentBattery: 1100, BatteryRemaining: 87})
		time.Sleep(200 * time.Millisecond)
		v.say(holdingInAir,
			&common.MessageGpsRawInt{FixType: common.GPS_FIX_TYPE_3D_FIX, SatellitesVisible: 14, Eph: 70},
			&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR})
		time.Sleep(300 * time.Millisecond)
		v.say(&common.MessageGlobalPositionInt{
			Lat: 473977421, Lon: 85455938, Alt: 498300, RelativeAlt: 10020, Vx: 0, Vy: 10, Vz: 0, Hdg: 18150,
		})
		time.Sleep(50 * time.Millisecond)
		v.say(&common.MessageAttitude{Roll: 0.4 * math.Pi / 180, Pitch: -1.1 * math.Pi / 180, Yaw: -178.5 * math.Pi / 180})
		time.Sleep(50 * time.Millisecond)
		v.wantStatus(`{"online":true,"mode":"hold","vehicle_mode":"AUTO.LOITER",
"armed":true,"in_air":true,"landed_state":"in_air","state":"active","failsafe":false,
"vehicle":{"autopilot":"px4","type":"quadrotor","version":"1.17.0","system_id":1},
"position":{"lat":47.3977421,"lon":8.5455938,"altitude":10.02,"altitude_msl":498.3,"heading":181.5,"age":0.1},
"velocity":{"north":0,"east":0.1,"down":0,"ground_speed":0.1,"air_speed":null,"climb":0,"age":0.1},
"attitude":{"roll":0.4,"pitch":-1.1,"yaw":181.5,"age":0.05},
"battery":{"voltage":16.2,"current":11,"remaining":87,"age":0.6},
"gps":{"fix":"3d","satellites":14,"hdop":0.7,"age":0.4},
"home":{"lat":47.3977419,"lon":8.5455937,"altitude_msl":488.3},
"target":null,
"input":{"active":false,"expires_in":null},
"messages":[{"severity":"info","text":"Takeoff detected","age":12.3}],
"link":{"device":"/dev/serial0","baud":921600,"heartbeat_age":0.4,"received":21,"lost":0,"errors":0,"sent":32}}`)
	})
}

func TestWhatTheVehicleDoesNotKnowIsNull(t *testing.T) {
	nan := float32(math.NaN())
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir,
			&common.MessageSysStatus{VoltageBattery: math.MaxUint16, CurrentBattery: -1, BatteryRemaining: -1},
			&common.MessageGpsRawInt{FixType: common.GPS_FIX_TYPE_NO_FIX, SatellitesVisible: math.MaxUint8, Eph: math.MaxUint16},
			&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_UNDEFINED},
			&common.MessageGlobalPositionInt{Alt: 0, RelativeAlt: 0, Hdg: math.MaxUint16},
			&common.MessageVfrHud{Airspeed: nan, Climb: nan},
			&common.MessageAttitude{Roll: nan, Pitch: nan, Yaw: nan})
		r := call(v.handler, "GET", "/api/drone/status", nil)
		r.wantOK(t)
		for _, want := range []string{
			`"in_air":null,"landed_state":null`,
			`"version":null,"system_id":1`,
			`"position":{"lat":null,"lon":null,`, `"heading":null,`,
			`"air_speed":null,"climb":null`,
			`"attitude":{"roll":null,"pitch":null,"yaw":null,`,
			`"battery":{"voltage":null,"current":null,"remaining":null,`,
			`"gps":{"fix":"no_fix","satellites":null,"hdop":null,`,
			`"home":null`,
		} {
			if !strings.Contains(r.body, want) {
				t.Errorf("%s is not in %s", want, r.body)
			}
		}
	})
}

// A vehicle that sends no VFR_HUD still climbs.
func TestClimbFollowsTheVelocityWithoutVFRHUD(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir, &common.MessageGlobalPositionInt{Lat: 1, Lon: 1, Vz: 0})
		time.Sleep(100 * time.Millisecond)
		v.say(&common.MessageGlobalPositionInt{Lat: 1, Lon: 1, Vz: -250})
		if r := call(v.handler, "GET", "/api/drone/status", nil); !strings.Contains(r.body, `"down":-2.5,`) || !strings.Contains(r.body, `"climb":2.5,`) {
			t.Errorf("climb is not 2.5 in %s", r.body)
		}
	})
}

func TestStatusOfALostVehicleIsItsLastKnownWithAges(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir, &common.MessageAttitude{Roll: 0.5})
		time.Sleep(2900 * time.Millisecond)
		if r := call(v.handler, "GET", "/api/drone/status", nil); !strings.HasPrefix(r.body, `{"online":true,`) {
			t.Errorf("offline 2.9 s after a heartbeat: %s", r.body)
		}
		time.Sleep(200 * time.Millisecond)
		r := call(v.handler, "GET", "/api/drone/status", nil)
		r.wantOK(t)
		for _, want := range []string{
			`{"online":false,"mode":"hold","vehicle_mode":"AUTO.LOITER","armed":true,`,
			`"attitude":{"roll":28.6,"pitch":0,"yaw":0,"age":3.1}`, `"heartbeat_age":3.1,`,
		} {
			if !strings.Contains(r.body, want) {
				t.Errorf("%s is not in %s", want, r.body)
			}
		}
		for path, body := range postRoutes {
			call(v.handler, "POST", path, strings.NewReader(body)).want(t, 503, "offline")
		}
	})
}

func TestStatusShowsTheTargetAndTheSticks(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		has := func(want string) {
			st.Helper()
			if r := st.get("/api/drone/status"); !strings.Contains(r.body, want) {
				st.Errorf("%s is not in %s", want, r.body)
			}
		}
		st.fly("hold")
		has(`"target":null,"input":{"active":false,"expires_in":null},`)
		st.post("/api/drone/goto", `{"lat":47.3980,"lon":8.5460,"altitude":20}`).wantOK(st.T)
		has(`"target":{"lat":47.398,"lon":8.546,"altitude":20},"input":{"active":false,"expires_in":null},`)
		st.post("/api/drone/mode", `{"mode":"position"}`).wantOK(st.T)
		st.post("/api/drone/input", `{"yaw":1,"timeout":2}`).wantOK(st.T)
		time.Sleep(500 * time.Millisecond)
		has(`"target":null,"input":{"active":true,"expires_in":1.5},`)
		time.Sleep(1600 * time.Millisecond)
		has(`"target":null,"input":{"active":false,"expires_in":null},`)
	})
}

func TestStatusHoldsTheLast20MessagesNewestLast(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		for i := range 25 {
			st.sim.emit(1, 1, &common.MessageStatustext{Severity: common.MAV_SEVERITY(i % 8), Text: fmt.Sprint("text ", i)})
			time.Sleep(time.Second)
		}
		var status struct {
			Messages []struct {
				Severity, Text string
				Age            float64
			}
		}
		r := st.get("/api/drone/status")
		if err := json.Unmarshal([]byte(r.body), &status); err != nil {
			st.Fatal(err)
		}
		names := []string{"emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"}
		if len(status.Messages) != 20 {
			st.Fatalf("%d messages: %s", len(status.Messages), r.body)
		}
		for i, m := range status.Messages {
			if n := i + 5; m.Text != fmt.Sprint("text ", n) || m.Severity != names[n%8] || m.Age != float64(25-n) {
				st.Errorf("message %d is %+v", i, m)
			}
		}
	})
}

// Section 5 of the spec: nothing is checked.
func TestKeysAndMailAddressesMeanNothing(t *testing.T) {
	for _, headers := range [][]string{
		{},
		{"api-key", "wrong", "email", "nobody@example.org"},
		{"api-key", "", "X-User-Email", "", "Authorization", "Basic bm9ib2R5Og=="},
	} {
		atStation(t, simPX4, func(st *station) {
			post := func(path, body string) {
				st.Helper()
				call(st.handler, "POST", path, strings.NewReader(body), headers...).wantOK(st.T)
			}
			call(st.handler, "GET", "/api/drone", nil, headers...).wantOK(st.T, `{"status":"OK"}`)
			call(st.handler, "GET", "/api/drone/mode", nil, headers...).wantOK(st.T, `{"mode":"manual","vehicle_mode":"AUTO.LOITER"}`)
			call(st.handler, "GET", "/api/drone/status", nil, headers...).wantOK(st.T)
			post("/api/drone/takeoff", ``)
			time.Sleep(20 * time.Second)
			post("/api/drone/goto", `{"lat":47.3980,"lon":8.5460}`)
			post("/api/drone/mode", `{"mode":"position"}`)
			post("/api/drone/input", `{"roll":0.2}`)
			post("/api/drone/land", ``)
		})
	}
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
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "post", "get"}
	atStation(t, simPX4, func(st *station) {
		st.untouched(func() {
			for path, methodsHere := range allow {
				for _, method := range methods {
					if slices.Contains(strings.Split(methodsHere, ", "), method) {
						continue
					}
					r := call(st.handler, method, path, strings.NewReader(postRoutes[path]))
					r.want(st.T, 405, "method_not_allowed", path)
					if got := r.header.Get("Allow"); got != methodsHere {
						st.Errorf("%s %s: Allow is %q, want %q", method, path, got, methodsHere)
					}
				}
			}
		})
		st.get("/api/drone").wantOK(st.T)
	})
}

func TestAnyOtherPathIs404(t *testing.T) {
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"}
	paths := []string{
		// Section 4.3 of the spec; POST /api/drone is a known path, so a 405.
		"/mission", "/mission/1", "/ssh/open", "/ssh/close",
		"/api/drone/start", "/api/drone/stop", "/api/drone/falcon", "/api/drone/17",
		"/api/mission", "/api/mission/", "/api/mission/1", "/api/mission/1/start", "/api/missions",
		// A drone's name, as the cloud has it.
		"/api/drone/falcon/status", "/api/drone/falcon/takeoff", "/api/drone/falcon/mode",
		// Paths that are only nearly right.
		"/", "/api", "/api/", "/drone", "/status", "/takeoff", "/favicon.ico", "/api/drones",
		"//api/drone", "/api//drone", "/api/drone/", "/api/drone//", "/api/drone/status/", "/api/drone/land/",
		"//api/drone/takeoff", "/api/drone//takeoff", "/api/./drone", "/api/x/../drone", "/../api/drone/land",
		"/API/drone", "/api/Drone", "/api/drone/Status", "/api/drone/statu", "/api/drone/status.json",
		"/api/drone%2Fstatus", "/api/drone%2F", "/api/%2e%2e/api/drone", "/api%2Fdrone", "/api/drone%00", "/api/drone;v=1",
		"/api/drone/{name}", "/api/drone/%7Bname%7D",
	}
	atStation(t, simPX4, func(st *station) {
		st.untouched(func() {
			for _, path := range paths {
				for _, method := range methods {
					r := call(st.handler, method, path, strings.NewReader("{}"))
					r.want(st.T, 404, "not_found")
					if st.Failed() {
						st.Fatalf("%s %s", method, path)
					}
				}
			}
		})
		st.get("/api/drone").wantOK(st.T)
	})
}

// ---- Bodies ----

// badBody is a body, and the answer that it deserves.
type badBody struct {
	name, path, body string
	status           int
	says             string
}

// badBodies are the bodies that must change nothing.
func badBodies() []badBody {
	var list []badBody
	add := func(name, path, body string, status int, says string) {
		list = append(list, badBody{name, path, body, status, says})
	}
	for path := range postRoutes {
		add("not JSON", path, "takeoff", 400, "JSON")
		add("a form", path, "mode=land&altitude=10", 400, "JSON")
		add("half an object", path, `{"mode":"hold"`, 400, "JSON")
		add("a brace", path, `{`, 400, "JSON")
		add("a closing brace", path, `}`, 400, "JSON")
		add("single quotes", path, `{'mode':'hold'}`, 400, "JSON")
		add("a comma at the end", path, `{"mode":"hold",}`, 400, "JSON")
		add("no value", path, `{"mode"}`, 400, "JSON")
		add("a comment", path, `{} // land`, 400, "JSON")
		add("a byte order mark", path, "\ufeff{}", 400, "JSON")
		add("a zero byte", path, "{}\x00", 400, "JSON")
		add("an array", path, `[]`, 400, "object")
		add("an object in an array", path, `[{}]`, 400, "object")
		add("a number", path, `1`, 400, "object")
		add("a string", path, `"hold"`, 400, "object")
		add("true", path, `true`, 400, "object")
		add("null", path, `null`, 400, "object")
		add("text after it", path, `{} land`, 400, "JSON")
		add("two objects", path, `{}{}`, 400, "JSON")
		add("two lines of objects", path, "{}\n{}", 400, "JSON")
		add("an unknown field", path, `{"speeed":5}`, 400, `"speeed"`)
		add("an unknown field that is null", path, `{"speeed":null}`, 400, `"speeed"`)
		add("an empty name", path, `{"":5}`, 400, `""`)
		add("a field in other letters", path, `{"Altitude":5}`, 400, `"Altitude"`)
		add("invalid UTF-8 in a value", path, "{\"mode\":\"\xff\"}", 400, "UTF-8")
		add("invalid UTF-8 in a name", path, "{\"mo\xc3(de\":1}", 400, "UTF-8")
		add("4097 bytes", path, "{"+strings.Repeat(" ", 4095)+"}", 413, "4096")
		add("a megabyte", path, strings.Repeat("[", 1<<20), 413, "4096")
	}
	number := func(path, field, rest string) {
		with := func(value string) string { return `{` + rest + `"` + field + `":` + value + `}` }
		for _, v := range []string{`"1"`, `""`, `"NaN"`, `"Infinity"`, `true`, `false`, `{}`, `[]`, `[1]`} {
			add(field+" is not a number", path, with(v), 400, field)
		}
		for _, v := range []string{`NaN`, `nan`, `Infinity`, `-Infinity`, `+1`, `01`, `.5`, `1.`, `0x10`, `1e`, `1,5`, `--1`} {
			add(field+" is no JSON number", path, with(v), 400, "JSON")
		}
		add(field+" is more than a float64 holds", path, with("1e999"), 422, field)
		add(field+" is less than a float64 holds", path, with("-1e999"), 422, field)
		add(field+" is given twice", path, with(`1,"`+field+`":1`), 400, field)
		add(field+" is given twice, once as null", path, with(`1,"`+field+`":null`), 400, field)
		add(field+" is given twice, once escaped", path, with(`1,"\u00`+strconv.FormatInt(int64(field[0]), 16)+field[1:]+`":1`), 400, field)
	}
	for _, field := range []string{"roll", "pitch", "yaw", "throttle", "timeout"} {
		number("/api/drone/input", field, "")
	}
	number("/api/drone/takeoff", "altitude", "")
	for _, field := range []string{"altitude", "altitude_msl", "heading", "speed"} {
		number("/api/drone/goto", field, `"lat":47.398,"lon":8.546,`)
	}
	for _, path := range []string{"/api/drone/goto", "/api/drone/land"} {
		number(path, "lat", `"lon":8.546,`)
		number(path, "lon", `"lat":47.398,`)
		add("lat without lon", path, `{"lat":47.398}`, 422, "lon")
		add("lon without lat", path, `{"lon":8.546}`, 422, "lat")
		add("lat with a lon that is null", path, `{"lat":47.398,"lon":null}`, 422, "lon")
	}
	for _, v := range []string{`1`, `true`, `[]`, `{}`, `["hold"]`} {
		add("mode is not a string", "/api/drone/mode", `{"mode":`+v+`}`, 400, "mode")
	}
	for _, v := range []string{`1`, `0`, `"true"`, `""`, `[]`, `{}`} {
		add("arm is not true or false", "/api/drone/mode", `{"arm":`+v+`}`, 400, "arm")
	}
	add("mode is given twice", "/api/drone/mode", `{"mode":"hold","mode":"land"}`, 400, "mode")
	add("arm is given twice", "/api/drone/mode", `{"arm":true,"arm":true}`, 400, "arm")
	for _, v := range []string{"", "other", "Other", "AUTO.LOITER", "loiter", "hold ", " hold", "rtl or rtgs", "4", "mission", "hol\u0000d"} {
		name, _ := json.Marshal(v)
		add("a mode that is not in the list", "/api/drone/mode", `{"mode":`+string(name)+`}`, 422, "manual, altitude, position, takeoff, hold, land, rtl, rtgs, got")
	}
	add("no mode and no arm", "/api/drone/mode", ``, 422, "mode")
	add("an empty object", "/api/drone/mode", `{}`, 422, "mode")
	add("mode and arm are null", "/api/drone/mode", `{"mode":null,"arm":null}`, 422, "mode")
	add("a takeoff that disarms", "/api/drone/mode", `{"mode":"takeoff","arm":false}`, 422, "arm")
	add("nowhere to go", "/api/drone/goto", ``, 422, "lat")
	add("nowhere to go, in an object", "/api/drone/goto", `{}`, 422, "lat")
	add("everything null", "/api/drone/goto", `{"lat":null,"lon":null,"altitude":null,"altitude_msl":null,"heading":null,"speed":null}`, 422, "lat")
	add("a speed and nowhere to go", "/api/drone/goto", `{"speed":5}`, 422, "lat")
	add("both altitudes", "/api/drone/goto", `{"altitude":20,"altitude_msl":500}`, 422, "altitude_msl")
	add("both altitudes, with a place", "/api/drone/goto", `{"lat":47.398,"lon":8.546,"altitude":20,"altitude_msl":500}`, 422, "altitude_msl")
	add("a speed for a takeoff", "/api/drone/takeoff", `{"speed":5}`, 400, `"speed"`)
	add("an altitude for a landing", "/api/drone/land", `{"altitude":5}`, 400, `"altitude"`)
	return list
}

// The drone flies in position mode, where every one of the routes would act.
func TestABadBodyIsToldWhatIsWrongAndChangesNothing(t *testing.T) {
	codes := map[int]string{400: "bad_request", 413: "too_large", 422: "out_of_range"}
	atStation(t, simPX4, func(st *station) {
		st.fly("position")
		for _, b := range badBodies() {
			st.untouched(func() {
				st.post(b.path, b.body).want(st.T, b.status, codes[b.status], b.says)
				if !st.Failed() { // chunked: no length is told
					body := io.MultiReader(strings.NewReader(b.body))
					call(st.handler, "POST", b.path, body).want(st.T, b.status, codes[b.status], b.says)
				}
			})
			if st.Failed() {
				st.Fatalf("%s: POST %s %.80q", b.name, b.path, b.body)
			}
		}
		st.wantMode("position")
		st.post("/api/drone/input", postRoutes["/api/drone/input"]).wantOK(st.T)
	})
}

func TestThrottleMustBeGivenInManualMode(t *testing.T) {
	for _, body := range []string{``, `{}`, `{"roll":0.5}`, `{"roll":0.5,"throttle":null}`} {
		atStation(t, simPX4, func(st *station) {
			st.fly("manual")
			st.untouched(func() { st.post("/api/drone/input", body).want(st.T, 422, "out_of_range", "throttle") })
			st.post("/api/drone/input", `{"throttle":0}`).wantOK(st.T)
		})
	}
}

func TestAQueryIsNoBody(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		st.fly("position")
		for path, body := range postRoutes {
			st.untouched(func() {
				st.post(path+"?altitude=10", body).want(st.T, 400, "bad_request", "body")
				st.post(path+"?mode=land", ``).want(st.T, 400, "bad_request", "body")
			})
		}
		st.get("/api/drone/status?pretty").wantOK(st.T)
	})
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
		{"/api/drone/goto", "lat", `"lon":8.546,`, -90, 90},
		{"/api/drone/goto", "lon", `"lat":47.398,`, -180, 180},
		{"/api/drone/goto", "altitude", ``, -500, 10000},
		{"/api/drone/goto", "altitude", place, -500, 10000},
		{"/api/drone/goto", "altitude_msl", ``, -500, 10000},
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
			t.Run(test.path+with(in), func(t *testing.T) {
				atStation(t, simPX4, func(st *station) {
					switch test.path {
					case "/api/drone/input":
						st.fly("position")
					case "/api/drone/takeoff":
					default:
						st.fly("hold")
					}
					outside := []float64{math.Inf(1), math.MaxFloat64}
					if in == test.min {
						outside = []float64{math.Inf(-1), -math.MaxFloat64}
					}
					outside = append(outside, math.Nextafter(in, outside[0]))
					for _, out := range outside[1:] {
						st.untouched(func() { st.post(test.path, with(out)).want(st.T, 422, "out_of_range", test.field+": ") })
					}
					n := len(st.sim.received())
					st.post(test.path, with(in)).wantOK(st.T)
					time.Sleep(100 * time.Millisecond)
					// Sticks in the middle, and a new timeout for them, are nothing new.
					if len(st.orders(n)) == 0 && test.field != "timeout" {
						st.Error("accepted, and the vehicle was told nothing")
					}
				})
			})
		}
	}
}

func TestAModeIsReadInAnyLetterCase(t *testing.T) {
	for _, mode := range []string{"manual", "altitude", "position", "takeoff", "hold", "land", "rtl", "rtgs"} {
		for _, written := range []string{strings.ToUpper(mode), strings.ToUpper(mode[:1]) + mode[1:], mode} {
			atStation(t, simPX4, func(st *station) {
				if mode != "takeoff" {
					st.fly("hold")
				}
				r := st.post("/api/drone/mode", `{"mode":"`+written+`"}`)
				r.wantOK(st.T)
				if !strings.HasSuffix(r.body, `,"mode":"`+mode+`"}`+"\n") {
					st.Errorf("%s: %s", written, r.body)
				}
				st.wantMode(mode)
			})
		}
	}
}

// takeoffAMSL is param7 of the last NAV_TAKEOFF that the vehicle got.
func (st *station) takeoffAMSL() float32 {
	z := float32(math.NaN())
	for _, r := range st.sim.received() {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_NAV_TAKEOFF {
			z = m.Param7
		}
	}
	return z
}

func TestAnEmptyBodyAndANullAreAsNothingGiven(t *testing.T) {
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
		{"a null", strings.NewReader(`{"altitude":null}`)},
		{"the default itself", strings.NewReader(`{"altitude":10}`)},
		{"an escaped name", strings.NewReader(`{"\u0061ltitude":1e1}`)},
		{"exactly 4096 bytes", strings.NewReader(`{"altitude":` + spaces + `10}`)},
		{"exactly 4096 bytes in chunks", io.MultiReader(strings.NewReader(`{"altitude":10`), strings.NewReader(spaces+`}`))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			atStation(t, simPX4, func(st *station) {
				call(st.handler, "POST", "/api/drone/takeoff", test.body).wantOK(st.T)
				if got := st.takeoffAMSL(); got != simHomeAlt+10 {
					st.Errorf("takeoff to %g m AMSL, want home and 10 m", got)
				}
			})
		})
	}
}

// curl -d calls its body a form.
func TestTheContentTypeOfABodyDoesNotMatter(t *testing.T) {
	for _, typ := range []string{"application/json", "application/x-www-form-urlencoded", "text/plain", "nonsense", ""} {
		atStation(t, simPX4, func(st *station) {
			call(st.handler, "POST", "/api/drone/mode", strings.NewReader(`{"mode":"hold"}`), "Content-Type", typ).wantOK(st.T)
		})
	}
}

func TestOnlyJSONsOwnWhiteSpaceIsAnEmptyBody(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		for path := range postRoutes {
			for _, body := range []string{"\v", "\f", "\u0085", "\u00a0", " \u2003 "} {
				st.untouched(func() { st.post(path, body).want(st.T, 400, "bad_request", "JSON") })
				if st.Failed() {
					st.Fatalf("POST %s %q", path, body)
				}
			}
		}
	})
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func TestABodyThatNeverEndsIsTooLarge(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		for path := range postRoutes {
			st.untouched(func() { call(st.handler, "POST", path, endless{}).want(st.T, 413, "too_large") })
		}
	})
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestABodyThatBreaksOffIsNotCarriedOut(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		st.fly("position")
		for path := range postRoutes {
			body := io.MultiReader(strings.NewReader("{}"), brokenBody{})
			st.untouched(func() { call(st.handler, "POST", path, body).want(st.T, 400, "bad_request") })
		}
	})
}

// ---- What the vehicle makes of it ----

func TestCommandsToASilentVehicleAreOffline(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		for path, body := range postRoutes {
			r := call(v.handler, "POST", path, strings.NewReader(body))
			r.want(t, 503, "offline", "/dev/serial0")
		}
		for _, bad := range badBodies() { // what can't be read is told all the same
			if r := call(v.handler, "POST", bad.path, strings.NewReader(bad.body)); r.status != bad.status {
				t.Errorf("%s: POST %s %.80q: got %d, want %d", bad.name, bad.path, bad.body, r.status, bad.status)
			}
		}
		time.Sleep(10 * time.Second)
		r := call(v.handler, "GET", "/api/drone/status", nil)
		r.wantOK(t)
		sent := regexp.MustCompile(`"sent":\d+`)
		if want := strings.ReplaceAll(neverHeard, "\n", ""); sent.ReplaceAllString(r.body, "") != sent.ReplaceAllString(want, "")+"\n" {
			t.Errorf("got  %s want %s", r.body, want)
		}
	})
}

func TestADeviceThatIsNotThereIsOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l := newDrone(device{
			name: "/dev/ttyUSB0",
			open: func(context.Context) (port, error) { return nil, errors.New("no such device") },
			baud: func() int { return 0 },
		}, 0, false)
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx) })
		defer running.Wait()
		defer cancel()
		time.Sleep(time.Minute)
		h := newHandler(l, admission{})
		for path, body := range postRoutes {
			call(h, "POST", path, strings.NewReader(body)).want(t, 503, "offline", "/dev/ttyUSB0")
		}
		want := strings.NewReplacer("\n", "", "serial0", "ttyUSB0", "921600", "null", `"sent":1`, `"sent":0`).Replace(neverHeard)
		call(h, "GET", "/api/drone/status", nil).wantOK(t, want)
		call(h, "GET", "/api/drone", nil).wantOK(t, `{"status":"OK"}`)
	})
}

func TestInputOutsideItsThreeModesIsWrongMode(t *testing.T) {
	for _, mode := range []string{"hold", "land", "rtl", "rtgs"} {
		for _, flavour := range []simFlavour{simPX4, simArduPilot} {
			atStation(t, flavour, func(st *station) {
				st.fly("hold")
				st.post("/api/drone/mode", `{"mode":"`+mode+`"}`).wantOK(st.T)
				st.untouched(func() {
					st.post("/api/drone/input", `{"roll":1,"throttle":1}`).want(st.T, 409, "wrong_mode", mode)
				})
				st.wantMode(mode)
			})
		}
	}
	atStation(t, simPX4, func(st *station) {
		st.post("/api/drone/takeoff", ``).wantOK(st.T)
		st.untouched(func() { st.post("/api/drone/input", `{}`).want(st.T, 409, "wrong_mode", "takeoff") })
		st.sim.pilotMode(simPX4Offboard)
		time.Sleep(2 * time.Second)
		st.wantMode("other")
		st.untouched(func() { st.post("/api/drone/input", `{}`).want(st.T, 409, "wrong_mode", "other") })
	})
}

func TestARefusalTellsWhatTheAutopilotSaid(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		st.sim.change(func() { st.sim.armableAfter = time.Hour })
		st.sim.say(common.MAV_SEVERITY_CRITICAL, "An old story")
		st.post("/api/drone/mode", `{"mode":"hold"}`).wantOK(st.T) // a knock: the old text is out
		time.Sleep(time.Second)
		r := st.post("/api/drone/mode", `{"arm":true}`)
		const text = "Arming denied: Resolve system health failures first"
		r.want(st.T, 409, "refused", text)
		f := r.failure(st.T)
		if *f.Status != "temporarily_rejected" || *f.StatusCode != 1 || *f.Command != 400 {
			st.Errorf("got %s", r.body)
		}
		if len(f.Messages) != 1 || f.Messages[0].Severity != "critical" || f.Messages[0].Text != text {
			st.Errorf("messages of %s", r.body)
		}
		st.wantMode("hold")
	})
	atStation(t, simArduPilot, func(st *station) {
		st.sim.change(func() { st.sim.armableAfter = time.Hour })
		r := st.post("/api/drone/takeoff", ``)
		r.want(st.T, 409, "refused", "PreArm: Need Position Estimate")
		f := r.failure(st.T)
		if *f.Status != "failed" || *f.StatusCode != 4 || *f.Command != 400 || len(f.Messages) != 1 {
			st.Errorf("got %s", r.body)
		}
	})
}

// Of the texts that come with an answer, those that explain it are told: warnings
// and worse, and any pre-arm text, until 0.3 s after it.
func TestARefusalTellsOnlyTheTextsThatExplainIt(t *testing.T) {
	texts := []struct {
		after    time.Duration // from the answer
		severity common.MAV_SEVERITY
		text     string
		told     bool
	}{
		{0, common.MAV_SEVERITY_EMERGENCY, "worst", true},
		{0, common.MAV_SEVERITY_WARNING, "just bad enough", true},
		{0, common.MAV_SEVERITY_NOTICE, "a notice", false},
		{0, common.MAV_SEVERITY_INFO, "PreArm: gyros", true},
		{0, common.MAV_SEVERITY_DEBUG, "debug", false},
		{250 * time.Millisecond, common.MAV_SEVERITY_ERROR, "late", true},
		{350 * time.Millisecond, common.MAV_SEVERITY_ERROR, "too late", false},
	}
	atStation(t, simArduPilot, func(st *station) {
		st.sim.emit(1, 1, &common.MessageStatustext{Severity: common.MAV_SEVERITY_CRITICAL, Text: "before the command"})
		time.Sleep(100 * time.Millisecond)
		st.sim.change(func() {
			st.sim.onAck = func(ack *common.MessageCommandAck) []simAnswer {
				ack.Result = common.MAV_RESULT_DENIED
				for _, text := range texts {
					st.sim.after(text.after, func() {
						st.sim.send(&common.MessageStatustext{Severity: text.severity, Text: text.text})
					})
				}
				return []simAnswer{{ack: ack}}
			}
		})
		r := st.post("/api/drone/mode", `{"arm":false}`)
		r.want(st.T, 409, "refused")
		var want, got []string
		for _, text := range texts {
			if text.told {
				want = append(want, text.text)
			}
		}
		for _, m := range r.failure(st.T).Messages {
			got = append(got, m.Text)
		}
		if !slices.Equal(got, want) {
			st.Errorf("got %q, want %q", got, want)
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
		{common.MAV_RESULT_CANCELLED, 409, "refused", "cancelled"},
	}
	for _, test := range tests {
		atStation(t, simArduPilot, func(st *station) {
			st.sim.change(func() {
				st.sim.onAck = func(ack *common.MessageCommandAck) []simAnswer {
					ack.Result = test.result
					return []simAnswer{{ack: ack}}
				}
			})
			r := st.post("/api/drone/mode", `{"mode":"hold"}`)
			r.want(st.T, test.status, test.code, test.name)
			want := fmt.Sprintf(`,"code":%q,"status":%q,"status_code":%d,"command":176,"messages":[]}`+"\n", test.code, test.name, test.result)
			if !strings.HasSuffix(r.body, want) {
				st.Errorf("got %s want …%s", r.body, want)
			}
			st.wantMode("manual")
		})
	}
}

// Both autopilots acknowledge a goto on the ground and drop it.
func TestAGotoOnTheGroundIsRefused(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		atStation(t, flavour, func(st *station) {
			st.untouched(func() {
				st.post("/api/drone/goto", postRoutes["/api/drone/goto"]).want(st.T, 409, "refused", "take off")
				st.post("/api/drone/land", postRoutes["/api/drone/land"]).want(st.T, 409, "refused", "take off")
			})
		})
	}
}

func TestAnErrorWithoutAnAnswerHasNoStatus(t *testing.T) {
	only := regexp.MustCompile(`^\{"error":"[^"]+","code":"[a-z_]+"\}\n$`)
	check := func(t *testing.T, r reply) {
		t.Helper()
		if !only.MatchString(r.body) {
			t.Errorf("more than a sentence and a code: %s", r.body)
		}
	}
	atStation(t, simPX4, func(st *station) {
		check(st.T, st.get("/api/mission"))
		check(st.T, st.get("/api/drone/land"))
		check(st.T, st.post("/api/drone/takeoff", `{"altitude":-1}`))
		st.dropAcks()
		check(st.T, st.post("/api/drone/land", ``))
		st.sim.unplug()
		time.Sleep(5 * time.Second)
		check(st.T, st.post("/api/drone/land", ``))
	})
}

func TestEveryLoserOfTenCommandsIsTold(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		st.fly("hold")
		st.sim.change(func() {
			st.sim.onAck = func(ack *common.MessageCommandAck) []simAnswer {
				return []simAnswer{{after: 400 * time.Millisecond, ack: ack}}
			}
		})
		var replies [10]reply
		var clients sync.WaitGroup
		for i := range replies {
			clients.Go(func() { replies[i] = st.post("/api/drone/goto", fmt.Sprintf(`{"altitude":%d}`, 50+i)) })
			time.Sleep(10 * time.Millisecond)
		}
		clients.Wait()
		for _, r := range replies[:9] {
			r.want(st.T, 409, "superseded")
		}
		replies[9].wantOK(st.T)
		time.Sleep(90 * time.Second)
		if alt := st.sim.truth().alt; math.Abs(alt-59) > 0.5 {
			st.Errorf("flies at %.1f m, not at the last client's 59", alt)
		}
	})
}

func TestLandNeverWaitsBehindAnything(t *testing.T) {
	atStation(t, simPX4, func(st *station) {
		st.fly("hold")
		st.sim.change(func() { st.sim.neverDone[common.MAV_CMD_DO_REPOSITION] = true })
		first := make(chan reply, 1)
		go func() { first <- st.post("/api/drone/goto", postRoutes["/api/drone/goto"]) }()
		time.Sleep(time.Second)
		asked := time.Now()
		st.post("/api/drone/land", ``).wantOK(st.T, `{"status":"accepted","status_code":0,"command":21,"mode":"land"}`)
		if took := time.Since(asked); took > 500*time.Millisecond {
			st.Errorf("land took %v", took)
		}
		r := <-first
		r.want(st.T, 409, "superseded")
		st.wantMode("land")
	})
}

func TestACommandThatIsNeverAcknowledgedIsNoAck(t *testing.T) {
	for path, body := range postRoutes {
		if path == "/api/drone/input" {
			continue // has no ack
		}
		atStation(t, simPX4, func(st *station) {
			if path != "/api/drone/takeoff" {
				st.fly("hold")
			}
			st.dropAcks()
			n := len(st.sim.received())
			st.post(path, body).want(st.T, 504, "no_ack")
			commands := slices.DeleteFunc(st.orders(n), func(s string) bool { return strings.HasPrefix(s, "sticks") })
			first := slices.DeleteFunc(slices.Clone(commands), func(s string) bool { return s != commands[0] })
			if len(first) < 3 {
				st.Errorf("POST %s was not repeated: %v", path, commands)
			}
			st.sim.change(func() { st.sim.onAck = nil })
			time.Sleep(5 * time.Second)
			st.post("/api/drone/land", ``).wantOK(st.T)
		})
	}
	atStation(t, simPX4, func(st *station) { // the vehicle speaks to us no more
		st.fly("hold")
		st.sim.change(func() { st.sim.muted = true })
		st.post("/api/drone/land", ``).want(st.T, 504, "no_ack")
	})
}

func TestWhatTheVehicleHasNoModeForIsUnsupported(t *testing.T) {
	atStation(t, simArduPilot, func(st *station) {
		st.sim.change(func() { st.sim.heartless = time.Now().Add(time.Hour) })
		st.sim.emit(1, 1, &minimal.MessageHeartbeat{
			Type: minimal.MAV_TYPE_FIXED_WING, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA, MavlinkVersion: 3,
			BaseMode: minimal.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED, SystemStatus: minimal.MAV_STATE_STANDBY,
		})
		time.Sleep(100 * time.Millisecond)
		st.untouched(func() {
			st.post("/api/drone/mode", `{"mode":"position"}`).want(st.T, 501, "unsupported", "position")
			st.post("/api/drone/mode", `{"mode":"land"}`).want(st.T, 501, "unsupported", "land")
			st.post("/api/drone/land", ``).want(st.T, 501, "unsupported", "land")
			st.post("/api/drone/takeoff", `{"altitude":10}`).want(st.T, 501, "unsupported", "altitude")
		})
	})
}

func TestAnAutopilotThatNobodyKnowsCanOnlyBeRead(t *testing.T) {
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

// ---- Strangers ----

// caller is somebody with a browser or with curl.
type caller struct {
	name    string
	headers []string
}

// A page of another origin can have its user's browser send all these.
func TestNoPageOfAnotherOriginReachesTheDrone(t *testing.T) {
	const evil = "http://evil.example"
	pages := []caller{
		{"a form", []string{"Origin", evil, "Content-Type", "application/x-www-form-urlencoded"}},
		{"a form, over HTTPS", []string{"Origin", "https://evil.example", "Content-Type", "multipart/form-data; boundary=x"}},
		{"a form that holds JSON as text", []string{"Origin", evil, "Content-Type", "text/plain"}},
		{"a fetch without CORS", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Content-Type", "text/plain"}},
		{"a fetch that hides its origin", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}},
		{"a beacon", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "empty"}},
		{"JSON without a preflight", []string{"Origin", evil, "Content-Type", "application/json"}},
		{"a sandboxed frame or a file", []string{"Origin", "null"}},
		{"a sandboxed frame, told by Sec-Fetch-Site", []string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}},
		{"a page of another port here", []string{"Host", "192.0.2.7:8080", "Origin", "http://192.0.2.7:3000"}},
		{"a page of another port here, told by Sec-Fetch-Site", []string{"Origin", "http://192.0.2.7:3000", "Sec-Fetch-Site", "same-site"}},
		{"a page of the default port here", []string{"Host", "drone.local:8080", "Origin", "http://drone.local"}},
		{"a page of another machine on this network", []string{"Host", "drone.local", "Origin", "http://printer.local"}},
		{"a page of another address", []string{"Host", "[fe80::1]:8080", "Origin", "http://[fe80::2]:8080"}},
		{"a page whose name begins with ours", []string{"Host", "drone.local", "Origin", "http://drone.local.evil.example"}},
		{"a page whose name ends with ours", []string{"Host", "drone.local", "Origin", "http://evildrone.local"}},
		{"a page that has our name as its user", []string{"Host", "drone.local", "Origin", "http://drone.local@evil.example"}},
		{"a browser extension", []string{"Origin", "chrome-extension://abcdefgh"}},
		{"an origin that can't be read", []string{"Origin", "::"}},
	}
	atStation(t, simPX4, func(st *station) {
		st.untouched(func() {
			for _, page := range pages {
				for path, body := range postRoutes {
					call(st.handler, "POST", path, strings.NewReader(body), page.headers...).want(st.T, 403, "cross_origin")
				}
				for _, method := range []string{"PUT", "DELETE", "PATCH"} {
					call(st.handler, method, "/api/drone/land", nil, page.headers...).want(st.T, 403, "cross_origin")
				}
				// The answer to a preflight allows nothing: see checkForm.
				preflight := append([]string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type",
					"Access-Control-Request-Private-Network", "true"}, page.headers...)
				call(st.handler, "OPTIONS", "/api/drone/land", nil, preflight...).want(st.T, 405, "method_not_allowed")
				// Reading changes nothing, and the page does not get to see it.
				call(st.handler, "GET", "/api/drone/status", nil, page.headers...).wantOK(st.T)
				if st.Failed() {
					st.Fatal(page.name)
				}
			}
		})
		if st.sim.truth().armed {
			st.Error("a stranger armed the drone")
		}
	})
}

// A name that a stranger owns was made to point here.
func TestAReboundNameIsRefused(t *testing.T) {
	hosts := []string{
		"evil.example", "evil.example:80", "evil.example:8080", "EVIL.EXAMPLE", "evil.example.", "evil.example.:80",
		"drone.local.evil.example", "localhost.evil.example", "evil.example.local.example", "local.example", "evillocal.example",
		"192.0.2.7.evil.example", "192.0.2.7.nip.example:8080", "7f000001.evil.example", "192.0.2", "192.0.2.7.8", "0x7f.0.0.1",
		"notfalcon.example.org", "sub.falcon.example.org", "example.org",
		"[::1].evil.example", "[evil.example]", "[evil.example]:80", "192.0.2.7:80:80", "drone.local:port", "drone.local:99999",
	}
	atStation(t, simPX4, func(st *station) {
		st.untouched(func() {
			for _, host := range hosts {
				origin := "http://" + host // to the browser, the page is ours
				for path, body := range postRoutes {
					call(st.handler, "POST", path, strings.NewReader(body), "Host", host).want(st.T, 421, "wrong_host")
					call(st.handler, "POST", path, strings.NewReader(body), "Host", host, "Origin", origin, "Sec-Fetch-Site", "same-origin").
						want(st.T, 421, "wrong_host")
				}
				for _, path := range []string{"/api/drone", "/api/drone/status", "/api/drone/mode", "/api/mission", "//api/drone"} {
					call(st.handler, "GET", path, nil, "Host", host).want(st.T, 421, "wrong_host", strconv.Quote(host))
				}
				if st.Failed() {
					st.Fatal(host)
				}
			}
		})
	}, "falcon.example.org")
}

func TestWhoeverMayCallIsServed(t *testing.T) {
	callers := []caller{
		{"curl by address", []string{"Host", "192.0.2.7"}},
		{"curl by address and port", []string{"Host", "192.0.2.7:8080", "User-Agent", "curl/8.5.0", "Content-Type", "application/x-www-form-urlencoded"}},
		{"curl by IPv6 address", []string{"Host", "[2001:db8::7]"}},
		{"curl by IPv6 address and port", []string{"Host", "[2001:db8::7]:8080"}},
		{"curl by link-local address", []string{"Host", "[fe80::1%eth0]:8080"}},
		{"curl on the board", []string{"Host", "localhost:8080"}},
		{"curl on the board by address", []string{"Host", "127.0.0.1:8080"}},
		{"curl on the board by IPv6 address", []string{"Host", "[::1]:8080"}},
		{"any name of the board itself", []string{"Host", "drone.localhost:8080"}},
		{"mDNS", []string{"Host", "drone.local"}},
		{"mDNS with a port", []string{"Host", "drone.local:8080"}},
		{"mDNS with a dot at the end", []string{"Host", "drone.local."}},
		{"mDNS with a dot and a port", []string{"Host", "drone.local.:8080"}},
		{"mDNS in capitals", []string{"Host", "Drone.Local"}},
		{"a single label", []string{"Host", "drone"}},
		{"a single label with a port", []string{"Host", "drone:8080"}},
		{"a single label with a dot", []string{"Host", "drone.:8080"}},
		{"a router's name", []string{"Host", "drone.lan"}},
		{"a home network's name", []string{"Host", "drone.home.arpa"}},
		{"a company's internal name", []string{"Host", "drone.fleet.internal:8080"}},
		{"the machine's host name", []string{"Host", "board7.fleet.example"}},
		{"the machine's host name with a port", []string{"Host", "board7.fleet.example:8080"}},
		{"a name of -host", []string{"Host", "falcon.example.org"}},
		{"a name of -host in capitals, with a dot", []string{"Host", "FALCON.example.org.:8080"}},
		{"HTTP/1.0 without a Host", []string{"Host", ""}},
		{"a page of ours", []string{"Host", "drone.local:8080", "Origin", "http://drone.local:8080"}},
		{"a page of ours, told by Sec-Fetch-Site", []string{"Host", "drone.local", "Origin", "http://drone.local", "Sec-Fetch-Site", "same-origin"}},
		{"a page of ours by IPv6 address", []string{"Host", "[fe80::1]:8080", "Origin", "http://[fe80::1]:8080"}},
		{"the address bar", []string{"Sec-Fetch-Site", "none"}},
		{"a script without Origin", []string{"User-Agent", "python-requests/2.31"}},
	}
	atStation(t, simPX4, func(st *station) {
		for _, c := range callers {
			call(st.handler, "GET", "/api/drone/status", nil, c.headers...).wantOK(st.T)
			call(st.handler, "POST", "/api/drone/mode", strings.NewReader(`{"mode":"hold"}`), c.headers...).wantOK(st.T)
			if st.Failed() {
				st.Fatal(c.name)
			}
		}
	}, "board7.fleet.example", "Falcon.Example.Org.")
}

// ---- The server, over TCP ----

// served is a server of the test's: it tells of each connection when it has
// ended it, and when it has answered it and waits for its next request.
type served struct {
	address     string
	ended, idle chan net.Conn
}

// listen serves a handler as the program does.
func listen(t *testing.T, h http.Handler) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{l.Addr().String(), make(chan net.Conn, 10000), make(chan net.Conn, 10000)}
	server := newServer(h)
	own := server.ConnState
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if own != nil {
			own(c, state)
		}
		switch state {
		case http.StateIdle:
			s.idle <- c
		case http.StateClosed:
			s.ended <- c
		}
	}
	var running sync.WaitGroup
	running.Go(func() { server.Serve(newBoundedListener(l, maxConnections)) })
	t.Cleanup(running.Wait)
	t.Cleanup(func() { server.Close() })
	return s
}

// silent is a handler whose vehicle was never heard.
func silent() http.Handler {
	return newHandler(newDrone(device{name: "none", baud: func() int { return 0 }}, 0, false), admission{})
}

// wire is a client's connection.
type wire struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, address string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute)) // a test that fails does not hang
	return &wire{t, c, bufio.NewReader(c)}
}

// send writes a request whose body has a length.
func (w *wire) send(method, path, body string) {
	fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: drone.local\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
}

// receive reads the answer to a request of this method.
func (w *wire) receive(method string) (reply, error) {
	resp, err := http.ReadResponse(w.in, &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.Header.Get("Content-Type") == "application/json" && method != "HEAD" && resp.ContentLength != int64(len(body)) {
		return reply{}, fmt.Errorf("a body of %d bytes came with a length of %d", len(body), resp.ContentLength)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

func (w *wire) ask(method, path, body string) reply {
	w.Helper()
	w.send(method, path, body)
	r, err := w.receive(method)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// gone waits until the server has closed the connection.
func (w *wire) gone() {
	w.Helper()
	if _, err := w.in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		w.Fatalf("the connection is still open (%v)", err)
	}
}

func TestHEADIsGETWithoutItsBody(t *testing.T) {
	s := listen(t, silent())
	w := dial(t, s.address)
	for _, path := range []string{"/api/drone", "/api/drone/mode", "/api/drone/status", "/api/mission"} {
		get, head := w.ask("GET", path, ""), w.ask("HEAD", path, "")
		get.checkForm(t)
		if head.body != "" || head.status != get.status {
			t.Errorf("HEAD %s: %d %q, GET is %d", path, head.status, head.body, get.status)
		}
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Allow"} {
			if head.header.Get(name) != get.header.Get(name) {
				t.Errorf("HEAD %s: %s is %q, with GET it is %q", path, name, head.header.Get(name), get.header.Get(name))
			}
		}
	}
}

func TestAConnectionOutlivesBadRequests(t *testing.T) {
	s := listen(t, silent())
	w := dial(t, s.address)
	for _, b := range badBodies() {
		if len(b.body) > 64<<10 {
			continue // the server does not read all that
		}
		r := w.ask("POST", b.path, b.body)
		r.checkForm(t)
		if r.status != b.status {
			t.Fatalf("%s: POST %s %.80q: got %d %s want %d", b.name, b.path, b.body, r.status, r.body, b.status)
		}
	}
	w.ask("GET", "/api/drone", "").wantOK(t, `{"status":"OK"}`)
}

func TestChunksThatNeverEndAreAnswered413(t *testing.T) {
	s := listen(t, silent())
	for path := range postRoutes {
		w := dial(t, s.address)
		fmt.Fprintf(w, "POST %s HTTP/1.1\r\nHost: drone.local\r\nTransfer-Encoding: chunked\r\n\r\n", path)
		var writer sync.WaitGroup
		writer.Go(func() {
			for chunk := "400\r\n" + strings.Repeat(" ", 0x400) + "\r\n"; ; {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		})
		r, err := w.receive("POST")
		if err != nil {
			t.Error(err)
		}
		r.want(t, 413, "too_large")
		w.Close()
		writer.Wait()
	}
	dial(t, s.address).ask("GET", "/api/drone", "").wantOK(t)
}

func TestAHalfClosedConnectionGetsItsAnswer(t *testing.T) {
	s := listen(t, silent())
	w := dial(t, s.address)
	w.send("POST", "/api/drone/land", "")
	w.Conn.(*net.TCPConn).CloseWrite()
	r, err := w.receive("POST")
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, 503, "offline")
	w.gone()
}

// ask asks, and waits until the server waits again: what is asked next is later
// to the server too.
func (s *served) ask(w *wire, method, path, body string) reply {
	w.Helper()
	r := w.ask(method, path, body)
	<-s.idle
	return r
}

// full opens as many connections as the server keeps, each after the one
// before it was answered.
func (s *served) full(t *testing.T) []*wire {
	t.Helper()
	var open []*wire
	for range maxConnections {
		w := dial(t, s.address)
		s.ask(w, "GET", "/api/drone", "").wantOK(t)
		open = append(open, w)
	}
	return open
}

func TestTheServerKeeps64Connections(t *testing.T) {
	s := listen(t, silent())
	open := s.full(t)
	for _, w := range open {
		s.ask(w, "GET", "/api/drone", "").wantOK(t)
	}
	if len(s.ended) != 0 {
		t.Errorf("%d connections were closed", len(s.ended))
	}
}

func TestA65thConnectionTakesThePlaceOfTheLongestIdle(t *testing.T) {
	s := listen(t, silent())
	open := s.full(t)
	s.ask(dial(t, s.address), "GET", "/api/drone", "").wantOK(t)
	open[0].gone()
	s.ask(dial(t, s.address), "POST", "/api/drone/land", "").want(t, 503, "offline")
	open[1].gone()
	for _, w := range open[2:] {
		s.ask(w, "GET", "/api/drone", "").wantOK(t)
	}
	for range 2 {
		<-s.ended
	}
	if len(s.ended) != 0 {
		t.Errorf("%d more connections were closed", len(s.ended))
	}
}

// One that polls the status is not idle, whatever it asks.
func TestAConnectionThatAsksKeepsItsPlace(t *testing.T) {
	for _, request := range [][3]string{
		{"POST", "/api/drone/land", ""},
		{"POST", "/api/drone/input", "{}"},
		{"GET", "/api/drone/status", ""},
		{"GET", "/api/mission", ""},
	} {
		t.Run(request[0]+request[1], func(t *testing.T) {
			s := listen(t, silent())
			open := s.full(t)
			s.ask(open[0], request[0], request[1], request[2])
			s.ask(dial(t, s.address), "GET", "/api/drone", "").wantOK(t)
			<-s.ended // somebody went
			open[0].send("GET", "/api/drone", "")
			r, err := open[0].receive("GET")
			if err != nil {
				t.Fatalf("the connection that asked last was closed: %v", err)
			}
			r.wantOK(t)
			open[1].gone()
		})
	}
}

func TestAConnectionWhoseCommandWaitsStays(t *testing.T) {
	acks := make(chan bool)
	l, _ := eager(t, acks)
	s := listen(t, newHandler(l, admission{}))
	commander := dial(t, s.address)
	commander.send("POST", "/api/drone/land", "")
	acks <- false // the vehicle has the command
	for range 3 * maxConnections {
		dial(t, s.address).ask("GET", "/api/drone", "").wantOK(t)
	}
	close(acks)
	if _, err := commander.receive("POST"); err != nil {
		t.Fatalf("a command was not answered: %v", err)
	}
	commander.ask("GET", "/api/drone", "").wantOK(t)
}

// pipes is a listener whose connections the test makes.
type pipes struct {
	net.Listener
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// While every connection's command waits, a new one waits for a place.
func TestTheFullServerAcceptsAgainWhenAPlaceIsFree(t *testing.T) {
	tests := []struct {
		name   string
		end    func(b *boundedListener, first *boundedConn)
		server bool // goes on
	}{
		{"when a command is answered", func(_ *boundedListener, c *boundedConn) { connState(c, http.StateIdle) }, true},
		{"when a client goes", func(_ *boundedListener, c *boundedConn) { c.Close() }, true},
		{"when the server is closed", func(b *boundedListener, _ *boundedConn) { b.Close() }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pipes{conns: make(chan net.Conn, 3), closed: make(chan struct{})}
				b := newBoundedListener(p, 2)
				var open []*boundedConn
				for range 3 {
					c, client := net.Pipe()
					defer client.Close()
					p.conns <- c
				}
				for range 2 {
					c, err := b.Accept()
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					open = append(open, c.(*boundedConn))
					open[len(open)-1].wait()
				}
				var third, fourth error
				accepted := false
				go func() {
					_, third = b.Accept()
					accepted = true
					if !test.server {
						_, fourth = b.Accept()
					}
				}()
				synctest.Wait()
				if accepted {
					t.Fatal("accepted, and there was no place")
				}
				test.end(b, open[0])
				synctest.Wait()
				if !accepted {
					t.Fatal("still waits for a place")
				}
				if test.server && third != nil || !test.server && !errors.Is(errors.Join(third, fourth), net.ErrClosed) {
					t.Errorf("Accept returned %v, %v", third, fourth)
				}
			})
		})
	}
}

// slow is a connection that is slow to write.
type slow struct{ net.Conn }

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.Conn.Write(b)
}

// A client that waits for a place takes one whose answer is out.
func TestAnAnswerIsOutBeforeItsConnectionMakesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acks := make(chan bool)
		l, _ := eager(t, acks)
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := newServer(newHandler(l, admission{}))
		var running sync.WaitGroup
		running.Go(func() { server.Serve(newBoundedListener(p, 1)) })
		defer running.Wait()
		defer server.Close()
		connect := func() *wire {
			c, client := net.Pipe()
			p.conns <- slow{c}
			return &wire{t, client, bufio.NewReader(client)}
		}
		commander := connect()
		defer commander.Close()
		commander.send("POST", "/api/drone/land", "")
		acks <- false // the vehicle has the command
		late := connect()
		defer late.Close()
		synctest.Wait()
		acks <- true
		if r, err := commander.receive("POST"); err != nil {
			t.Errorf("a command was carried out and never answered: %v", err)
		} else {
			r.wantOK(t)
		}
		late.ask("GET", "/api/drone", "").wantOK(t)
	})
}

// crowded serves connections that the test makes, in virtual time.
func crowded(t *testing.T) (connect func() *wire, end func()) {
	p := &pipes{conns: make(chan net.Conn, 1000), closed: make(chan struct{})}
	server := newServer(silent())
	var running sync.WaitGroup
	running.Go(func() { server.Serve(newBoundedListener(p, maxConnections)) })
	connect = func() *wire {
		c, client := net.Pipe()
		p.conns <- c
		return &wire{t, client, bufio.NewReader(client)}
	}
	return connect, func() { server.Close(); running.Wait() }
}

// 512 clients come at once: each is answered before its connection makes way.
func TestACrowdIsServedBeforeItMakesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connect, end := crowded(t)
		var clients sync.WaitGroup
		for range 512 {
			w := connect()
			clients.Go(func() {
				defer w.Close()
				w.send("GET", "/api/drone", "")
				if r, err := w.receive("GET"); err != nil || r.status != 200 {
					t.Errorf("answered %d, %v", r.status, err)
				}
				w.gone() // in favour of another, or by the end
			})
		}
		time.Sleep(time.Second)
		end()
		clients.Wait()
	})
}

// Those who do not ask, or not to the end, have their place for askWithin.
func TestTheSilentMakeWay(t *testing.T) {
	for _, sent := range []string{"", "GET /api/drone HTTP/1.1\r\n", "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: 9\r\n\r\n{"} {
		t.Run(fmt.Sprint(len(sent), "bytes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect, end := crowded(t)
				defer end()
				for range maxConnections {
					w := connect()
					defer w.Close()
					io.WriteString(w, sent)
				}
				began := time.Now()
				w := connect()
				defer w.Close()
				w.ask("POST", "/api/drone/land", "").want(t, 503, "offline")
				if took := time.Since(began); took > askWithin {
					t.Errorf("a place was free after %v, want %v", took, askWithin)
				}
			})
		})
	}
}

func TestEveryAnswerHasALength(t *testing.T) {
	for _, n := range []int{0, 2000, 2033, 2034, 2035, 2048, 5000} {
		s := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, http.StatusOK, statusOK{strings.Repeat("x", n)})
		}))
		w := dial(t, s.address)
		get, head := w.ask("GET", "/", ""), w.ask("HEAD", "/", "") // ask looks at GET's
		if want := strconv.Itoa(len(get.body)); head.header.Get("Content-Length") != want {
			t.Errorf("HEAD: a length of %q, want %s", head.header.Get("Content-Length"), want)
		}
	}
}

func TestAClosedConnectionFreesItsPlace(t *testing.T) {
	s := listen(t, silent())
	open := s.full(t)
	open[17].Close()
	<-s.ended
	open = append(slices.Delete(open, 17, 18), dial(t, s.address))
	for _, w := range open {
		w.ask("GET", "/api/drone", "").wantOK(t)
	}
	if len(s.ended) != 0 {
		t.Errorf("%d connections were closed", len(s.ended))
	}
}

func TestLandIsAnsweredWhile500ConnectionsDribble(t *testing.T) {
	s := listen(t, silent())
	for i := range 500 {
		w := dial(t, s.address)
		io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: 2\r\n\r\n{}"[:20+i%53])
	}
	dial(t, s.address).ask("POST", "/api/drone/land", "").want(t, 503, "offline")
}

func TestAPanicIsA500AndTheServerGoesOn(t *testing.T) {
	s := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer recoverPanic(w, r)
		if r.URL.Path == "/panic" {
			var nobody *drone
			nobody.mode()
		}
		writeJSON(w, http.StatusOK, statusOK{"OK"})
	}))
	w := dial(t, s.address)
	for range 3 {
		r := w.ask("POST", "/panic", "{}")
		r.want(t, 500, "internal")
		if strings.Contains(r.body, "nil pointer") || strings.Contains(r.body, "goroutine") {
			t.Errorf("the answer tells the insides: %s", r.body)
		}
		w.ask("GET", "/", "").wantOK(t)
	}
}

func TestAPanicInARouteIsA500(t *testing.T) {
	h := newHandler(newDrone(device{}, 0, false), admission{}) // a device without its functions
	for range 2 {
		call(h, "GET", "/api/drone/status", nil).want(t, 500, "internal")
		call(h, "GET", "/api/drone/mode", nil).wantOK(t)
	}
}

// ---- Fuzzing ----

// eager is a link whose vehicle, a copter in the air, acknowledges at once, in
// real time; where acks is not nil, after it has taken two values from it. bad
// gets what no vehicle should be told.
func eager(f testing.TB, acks <-chan bool) (l *drone, bad *atomic.Pointer[string]) {
	l = newDrone(device{name: "eager", baud: func() int { return 0 }}, 0, false)
	now := time.Now()
	queue := make(chan outgoing, 64)
	l.mu.Lock()
	l.conn = &connection{queue: queue, sticks: make(chan struct{}, 1)}
	l.greeting = true
	l.tel.system = 1
	l.hearHeartbeat(&minimal.MessageHeartbeat{
		Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA, CustomMode: 5,
		BaseMode: minimal.MAV_MODE_FLAG_SAFETY_ARMED, SystemStatus: minimal.MAV_STATE_ACTIVE,
	}, now)
	l.hear(&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR}, now)
	l.hear(&common.MessageHomePosition{Latitude: 473977419, Longitude: 85455937, Altitude: 488300}, now)
	l.hear(&common.MessageGlobalPositionInt{Lat: 473977421, Lon: 85455938, Alt: 498300, RelativeAlt: 10020}, now)
	l.stick.start(stickCentred, now.Add(-time.Hour)) // it need not be waited for
	l.mu.Unlock()

	bad = new(atomic.Pointer[string])
	var vehicle sync.WaitGroup
	vehicle.Go(func() {
		for {
			var o outgoing
			select {
			case o = <-queue:
			case <-l.done:
				return
			}
			var numbers []float32
			var command common.MAV_CMD
			switch m := o.msg.(type) {
			case *common.MessageCommandLong:
				command = m.Command
				numbers = []float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Param5, m.Param6, m.Param7}
			case *common.MessageCommandInt:
				command = m.Command
				numbers = []float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Z}
				if max(m.X, -m.X) > 90e7 || max(m.Y, -m.Y) > 180e7 || m.Z < -500 || m.Z > 10000 {
					text := fmt.Sprintf("%+v", m)
					bad.Store(&text)
				}
			default:
				continue
			}
			for _, n := range numbers {
				if n != n || n > 1e5 || n < -1e5 {
					text := fmt.Sprintf("%+v", o.msg)
					bad.Store(&text)
				}
			}
			for range 2 {
				if acks == nil {
					break
				}
				select {
				case <-acks:
				case <-l.done:
					return
				}
			}
			l.mu.Lock()
			l.hearAck(&common.MessageCommandAck{Command: command})
			l.mu.Unlock()
		}
	})
	f.Cleanup(func() {
		l.shutDown()
		l.wg.Wait()
		vehicle.Wait()
	})
	return l, bad
}

// FuzzBody posts any bytes to a vehicle that accepts everything: every answer
// is one of the contract, and nothing out of range comes through.
func FuzzBody(f *testing.F) {
	loud := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	f.Cleanup(func() { slog.SetDefault(loud) })
	routes := []string{"/api/drone/mode", "/api/drone/input", "/api/drone/takeoff", "/api/drone/goto", "/api/drone/land"}
	for i, path := range routes {
		f.Add(uint8(i), []byte(postRoutes[path]))
	}
	for i, b := range badBodies() {
		if len(b.body) < 100 {
			f.Add(uint8(slices.Index(routes, b.path)), []byte(b.body))
		} else if i < 30 {
			f.Add(uint8(i), []byte(b.body[:4097]))
		}
	}
	for _, body := range []string{``, `{}`, `{"arm":false}`, `{"mode":"RTL","arm":true}`, `{"mode":"manual"}`, `{"mode":"altitude"}`} {
		f.Add(uint8(0), []byte(body))
	}
	f.Add(uint8(1), []byte(`{"roll":0.2,"pitch":-0.1,"yaw":0,"throttle":0.5,"timeout":0.5}`))
	f.Add(uint8(3), []byte(`{"lat":-47.3980,"lon":-180,"altitude_msl":5e2,"heading":359.99,"speed":0.1}`))
	l, bad := eager(f, nil)
	h := newHandler(l, admission{})
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		path := routes[int(route)%len(routes)]
		r := call(h, "POST", path, strings.NewReader(string(body)))
		r.checkForm(t)
		switch {
		case r.status == 500:
			t.Errorf("a bug: %s", r.body)
		case r.status == 413 != (len(body) > 4096):
			t.Errorf("%d for %d bytes", r.status, len(body))
		case r.status != 200 && strings.Contains(r.failure(t).Error, "\n"):
			t.Errorf("not a sentence: %s", r.body)
		}
		if text := bad.Swap(nil); text != nil {
			t.Errorf("the vehicle was told %s", *text)
		}
		l.mu.Lock()
		a := l.stick.axes
		l.mu.Unlock()
		if max(a.x, -a.x) > 1000 || max(a.y, -a.y) > 1000 || max(a.r, -a.r) > 1000 || a.z < 0 || a.z > 1000 {
			t.Errorf("the sticks are at %+v", a)
		}
		call(h, "GET", "/api/drone/status", nil).checkForm(t)
	})
}
