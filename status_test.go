package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func TestStatusShowsEverythingThatTheVehicleReports(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir,
			&common.MessageAutopilotVersion{FlightSwVersion: 1<<24 | 17<<16 | 255},
			&common.MessageParamValue{ParamId: "RTL_RETURN_ALT", ParamValue: 30.54,
				ParamType: common.MAV_PARAM_TYPE_REAL32},
			&common.MessageStatustext{Severity: common.MAV_SEVERITY_INFO, Text: "Takeoff detected"},
			&common.MessageHomePosition{Latitude: 473977419, Longitude: 85455937, Altitude: 488304})
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
			VoltageBattery:              16243, CurrentBattery: 1134, BatteryRemaining: 87,
		})
		time.Sleep(200 * time.Millisecond)
		v.say(holdingInAir,
			&common.MessageGpsRawInt{FixType: common.GPS_FIX_TYPE_3D_FIX, SatellitesVisible: 14, Eph: 70},
			&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR})
		time.Sleep(300 * time.Millisecond)
		v.say(&common.MessageVfrHud{Airspeed: 3.464, Climb: 0.524}, &common.MessageGlobalPositionInt{
			Lat: 473977421, Lon: 85455938, Alt: 498304, RelativeAlt: 10023, Vx: 123, Vy: 10, Vz: -57, Hdg: 18150,
		})
		time.Sleep(50 * time.Millisecond)
		v.say(&common.MessageAttitude{Roll: 0.42 * math.Pi / 180, Pitch: -1.13 * math.Pi / 180,
			Yaw: -178.54 * math.Pi / 180})
		time.Sleep(54 * time.Millisecond)
		v.wantStatus(`{"version":"` + ownVersion + `","time":1,"online":true,"mode":"hold","vehicle_mode":"AUTO.LOITER",
"armed":true,"in_air":true,"landed_state":"in_air","state":"active","failsafe":false,
"armable":true,"unhealthy":["gps"],"done":null,
"vehicle":{"autopilot":"px4","type":"quadrotor","version":"1.17.0","system_id":1,
"kind":"hover","circles":null,"modes":["manual","altitude","position","takeoff","hold","land","rtl","rtgs"],
"return_altitude":30.5},
"position":{"lat":47.3977421,"lon":8.5455938,"altitude":10.02,"altitude_msl":498.3,"heading":181.5,"age":0.1},
"velocity":{"north":1.23,"east":0.1,"down":-0.57,"ground_speed":1.23,"air_speed":3.46,"climb":0.52,"age":0.1},
"attitude":{"roll":0.4,"pitch":-1.1,"yaw":181.5,"age":0.05},
"battery":{"voltage":16.24,"current":11.34,"remaining":87,"age":0.6},
"gps":{"receiver":1,"fix":"3d","satellites":14,"hdop":0.7,"age":0.4},
"home":{"lat":47.3977419,"lon":8.5455937,"altitude_msl":488.3,"age":12.3},
"target":null,
"input":{"active":false,"expires_in":null,"by":null,"from":null,"yours":false},
"messages":[{"severity":"info","text":"Takeoff detected","age":12.3}],
"link":{"device":"/dev/serial0","baud":921600,"heartbeat_age":0.4,"lag":null,"received":23,"lost":0,"errors":0,
"sent":1,"error":"this autopilot answers no TIMESYNC: how old its reports are can't be proven; check that the router ` +
			`or the bridge passes TIMESYNC on in both directions"}}`)
	})
}

func TestWhatTheVehicleDoesNotKnowIsNull(t *testing.T) {
	nan := float32(math.NaN())
	withScript(t, func(v *scriptedVehicle) {
		v.say(holdingInAir,
			&common.MessageSysStatus{VoltageBattery: math.MaxUint16, CurrentBattery: -1, BatteryRemaining: -1},
			&common.MessageGpsRawInt{FixType: common.GPS_FIX_TYPE_NO_FIX, SatellitesVisible: math.MaxUint8,
				Eph: math.MaxUint16},
			&common.MessageGlobalPositionInt{Alt: 0, RelativeAlt: 0, Hdg: math.MaxUint16},
			&common.MessageVfrHud{Airspeed: nan, Climb: nan},
			&common.MessageAttitude{Roll: nan, Pitch: nan, Yaw: nan})
		r := call(v.handler, "GET", "/api/drone/status", nil)
		r.wantOK(t)
		r.has(t,
			`"version":null,"system_id":1`,
			`"position":{"lat":null,"lon":null,`, `"heading":null,`,
			`"air_speed":null,"climb":null`,
			`"attitude":{"roll":null,"pitch":null,"yaw":null,`,
			`"battery":{"voltage":null,"current":null,"remaining":null,`,
			`"gps":{"receiver":1,"fix":"no_fix","satellites":null,"hdop":null,`,
			`"home":null`)
		for state, want := range map[common.MAV_LANDED_STATE]string{0: `null,"landed_state":null`,
			common.MAV_LANDED_STATE_LANDING: `true,"landed_state":"landing"`,
			common.MAV_LANDED_STATE_TAKEOFF: `null,"landed_state":"takeoff"`, 9: `null,"landed_state":null`} {
			v.say(&common.MessageExtendedSysState{LandedState: state})
			call(v.handler, "GET", "/api/drone/status", nil).has(t, `"in_air":`+want)
		}
		v.say(&common.MessageStatustext{Severity: 200, Text: "x"}, &common.MessageExtendedSysState{LandedState: 1})
		call(v.handler, "GET", "/api/drone/status", nil).has(t, `"in_air":false,"landed_state":"on_ground"`,
			`"messages":[{"severity":"debug","text":"x",`)
		lineEqual(t, "nobody's sticks are a nobody's", v.drone.status(netip.Addr{}).Input.Yours, false)
	})
}

func TestNumbersAndNotesOfAnAnswerAreShort(t *testing.T) {
	for _, c := range []struct {
		v        float64
		decimals int
		want     string
	}{
		{math.NaN(), 2, "null"}, {math.Inf(1), 2, "null"}, {math.Inf(-1), 2, "null"}, {-0.001, 2, "0"},
		{1.005e-7, 7, "0.0000001"}, {123456789.125, 2, "123456789.13"}, {-2.5, 0, "-3"},
	} {
		lineEqual(t, fmt.Sprint(c.v), string(encode(rounded(c.v, c.decimals))), c.want+"\n")
	}
	for _, c := range [][3]string{{"", "", ""}, {"a", "", "a"}, {"", "b", "b"}, {"a", "b", "a; b"}} {
		lineEqual(t, fmt.Sprintf("notes %q", c), joined(c[0], c[1]), c[2])
	}
}

func TestAPlanesStatusHasTheCircleThatItFlies(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		plane := copterBeat()
		plane.Type = common.MAV_TYPE_FIXED_WING
		v.say(plane)
		call(v.handler, "GET", "/api/drone/status", nil).has(t, `"circles":60,`)
		v.say(&common.MessageParamValue{ParamId: "WP_LOITER_RAD", ParamValue: -75.4,
			ParamType: common.MAV_PARAM_TYPE_REAL32})
		call(v.handler, "GET", "/api/drone/status", nil).has(t, `"circles":75,`)
	})
}

func TestTheStatusSaysWhatTheLinkCounts(t *testing.T) {
	l := linkState{device: "udp", lag: 1234 * time.Millisecond, lagKnown: true, received: 1, lost: 2, errors: 3,
		sent: 4, fault: errTooLarge}
	lineEqual(t, "link", string(encode(l.body(0.5))), `{"device":"udp","baud":null,"heartbeat_age":0.5,"lag":1.23,`+
		`"received":1,"lost":2,"errors":3,"sent":4,"error":"`+errTooLarge.Error()+"\"}\n")
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
			call(v.handler, "POST", path, strings.NewReader(body)).want(t, 409, "offline")
		}
	})
}

// A client reads from it how old an event is.
func TestStatusHasTheTimeSinceTheStart(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		for _, want := range []string{`,"time":0,`, `,"time":1.25,`, `,"time":2.5,`} {
			call(v.handler, "GET", "/api/drone/status", nil).has(t, want, `"unhealthy":null,`, `"heartbeat_age":null,`)
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
		hf.post("/api/drone/goto", `{"lat":47.39800002,"lon":8.54600002,"altitude":20.254}`).wantOK(hf.T)
		has(`"target":{"lat":47.398,"lon":8.546,"altitude":20.25,"distance":41.9},` + nobody)
		has(`"done":false,`)
		hf.post("/api/drone/mode", `{"mode":"position"}`).wantOK(hf.T)
		has(`"target":null,"input":{"active":false,"expires_in":null,"by":null,"from":"192.0.2.1","yours":true},`)
		hf.post("/api/drone/input", `{"yaw":1,"timeout":2}`).wantOK(hf.T)
		time.Sleep(504 * time.Millisecond)
		has(`"target":null,"input":{"active":true,"expires_in":1.5,"by":"client","from":"192.0.2.1","yours":true},`)
		other := netip.MustParseAddr("192.0.2.9")
		lineEqual(hf.T, "they are another client's", hf.drone.status(other).Input.Yours, false)
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
