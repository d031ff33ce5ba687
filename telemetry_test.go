package main

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// What the telemetry keeps of each message, and four captured flights of real autopilots,
// replayed up to the status that they must lead to.

func TestEachMessageIsKeptInOurUnits(t *testing.T) {
	const (
		gps      = common.MAV_SYS_STATUS_SENSOR_GPS
		receiver = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
		prearm   = common.MAV_SYS_STATUS_PREARM_CHECK
		battery  = common.MAV_SYS_STATUS_SENSOR_BATTERY
		place    = common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL
		fence    = common.MAV_SYS_STATUS_GEOFENCE
	)
	home := &common.MessageHomePosition{Altitude: 488000}
	ekf := func(flags uint16) *MessageEkfStatusReport { return &MessageEkfStatusReport{Flags: flags} }
	fix := func(fix common.GPS_FIX_TYPE) *common.MessageGpsRawInt { return &common.MessageGpsRawInt{FixType: fix} }
	place1 := &common.MessageGlobalPositionInt{Lat: 10, Lon: 10, Alt: 9000, RelativeAlt: 2000}
	const knownPlace, unknownPlace = "0.0000010 0.0000010, 2.00 up, 9.00 AMSL, heading 0.00",
		"NaN NaN, 2.00 up, NaN AMSL, heading 0.00"
	version := func(t *telemetry) string { return t.id.version.String() }
	fenced := func(t *telemetry) string { return fmt.Sprint(t.health.fenced()) }
	sensors := func(present, enabled, healthy common.MAV_SYS_STATUS_SENSOR) *common.MessageSysStatus {
		return &common.MessageSysStatus{OnboardControlSensorsPresent: present, OnboardControlSensorsEnabled: enabled,
			OnboardControlSensorsHealth: healthy}
	}
	status := func(state minimal.MAV_STATE) *common.MessageHeartbeat {
		m := beatOf(common.MAV_AUTOPILOT_PX4, 7, true)
		m.SystemStatus = state
		return m
	}
	for _, c := range []struct {
		what string
		show func(*telemetry) string
		said []message.Message
		want string
	}{
		{"nothing", showPlace, nil, "NaN NaN, NaN up, NaN AMSL, heading NaN"},
		{"nothing", showVelocity, nil, "north NaN east NaN down NaN, ground NaN, air NaN, climb NaN"},
		{"nothing", showHealth, nil, "known false, armable null, receiver false, unhealthy null"},
		{"nothing", showTarget, nil, "NaN NaN NaN"},
		{"a position", showPlace, []message.Message{&common.MessageGlobalPositionInt{Lat: 473977419, Lon: -85455938,
			Alt: 500310, RelativeAlt: 12010, Hdg: 35999}},
			"47.3977419 -8.5455938, 12.01 up, 500.31 AMSL, heading 359.99"},
		{"no heading", showPlace, []message.Message{&common.MessageGlobalPositionInt{Lat: 1, Lon: 1, Hdg: 65535}},
			"0.0000001 0.0000001, 0.00 up, 0.00 AMSL, heading NaN"},
		{"before the first fix", showPlace,
			[]message.Message{&common.MessageGlobalPositionInt{Alt: -20, RelativeAlt: -30, Hdg: 100}},
			"NaN NaN, -0.03 up, NaN AMSL, heading 1.00"},
		{"on the equator", showPlace, []message.Message{&common.MessageGlobalPositionInt{Lon: 85455938, Alt: 1000}},
			"0.0000000 8.5455938, 0.00 up, 1.00 AMSL, heading 0.00"},
		{"on the meridian of Greenwich", showPlace,
			[]message.Message{&common.MessageGlobalPositionInt{Lat: 514779000, Alt: 1000}},
			"51.4779000 0.0000000, 0.00 up, 1.00 AMSL, heading 0.00"},
		{"the EKF and the GPS have no place", showPlace, []message.Message{ekf(167), fix(1), place1}, unknownPlace},
		{"that was long ago", showPlace, []message.Message{ekf(167), fix(1), pause(3 * time.Second), place1},
			knownPlace},
		{"only the GPS has one", showPlace, []message.Message{ekf(167), fix(3), place1}, knownPlace},
		{"it had one long ago", showPlace,
			[]message.Message{fix(3), pause(3 * time.Second), ekf(167), place1}, unknownPlace},
		{"only the EKF has one", showPlace, []message.Message{ekf(831), fix(1), place1}, knownPlace},
		{"a velocity", showVelocity, []message.Message{&common.MessageGlobalPositionInt{Lat: 1, Vx: 300, Vy: -400,
			Vz: -50}}, "north 3.00 east -4.00 down -0.50, ground 5.00, air NaN, climb 0.50"},
		{"the climb of VFR_HUD wins", showVelocity,
			[]message.Message{&common.MessageVfrHud{Airspeed: 7, Climb: 3, Groundspeed: 99},
				&common.MessageGlobalPositionInt{Lat: 1, Vz: -50}},
			"north 0.00 east 0.00 down -0.50, ground 0.00, air 7.00, climb 3.00"},
		{"an attitude", showAttitude, []message.Message{&common.MessageAttitude{Roll: 0.1, Pitch: -0.2, Yaw: 1}},
			"roll 5.7 pitch -11.5 yaw 57.3"},
		{"a yaw west of north", showAttitude, []message.Message{&common.MessageAttitude{Yaw: -math.Pi / 2}},
			"roll 0.0 pitch 0.0 yaw 270.0"},
		{"a battery", showBattery, []message.Message{&common.MessageSysStatus{VoltageBattery: 16200,
			CurrentBattery: 1234, BatteryRemaining: 99}}, "16.20 V 12.34 A 99 %"},
		{"a battery that is not measured", showBattery,
			[]message.Message{&common.MessageSysStatus{VoltageBattery: 65535, CurrentBattery: -1,
				BatteryRemaining: -1}}, "NaN V NaN A NaN %"},
		{"less than no current", showBattery, []message.Message{&common.MessageSysStatus{CurrentBattery: -100}},
			"0.00 V NaN A 0 %"},
		{"no current, and the most of the others", showBattery, []message.Message{&common.MessageSysStatus{
			VoltageBattery: 65534, BatteryRemaining: 100}}, "65.53 V 0.00 A 100 %"},
		{"a GPS", showGPS, []message.Message{&common.MessageGpsRawInt{FixType: 6, SatellitesVisible: 10, Eph: 121}},
			`"rtk_fixed", 10 satellites, 1.21`},
		{"a GPS with unknown values", showGPS,
			[]message.Message{&common.MessageGpsRawInt{FixType: 0, SatellitesVisible: 255, Eph: 65535}},
			`"no_gps", NaN satellites, NaN`},
		{"a second GPS beside one that works", showGPS, []message.Message{
			&common.MessageGpsRawInt{FixType: 3, SatellitesVisible: 9}, &common.MessageGps2Raw{FixType: 6},
		}, `"3d", 9 satellites, 0.00`},
		{"a second GPS, and the first is missing", showGPS, []message.Message{
			&common.MessageGps2Raw{FixType: 3, SatellitesVisible: 11, Eph: 70}, &common.MessageGpsRawInt{Eph: 65535},
		}, `"3d", 11 satellites, 0.70`},
		{"a second GPS, and the first is silent", showGPS, []message.Message{
			fix(3), pause(3 * time.Second), &common.MessageGps2Raw{FixType: 4, SatellitesVisible: 7},
		}, `"dgps", 7 satellites, 0.00`},
		{"a second GPS in its place", func(t *telemetry) string { return fmt.Sprint(t.gps.receiver) },
			[]message.Message{fix(1), &common.MessageGps2Raw{FixType: 3}}, "2"},
		{"two without a place", showGPS, []message.Message{
			&common.MessageGps2Raw{FixType: 2}, &common.MessageGpsRawInt{FixType: 1},
		}, `"no_fix", 0 satellites, 0.00`},
		{"only a second GPS", showGPS, []message.Message{&common.MessageGps2Raw{FixType: 1}},
			`"no_fix", 0 satellites, 0.00`},
		{"an unknown fix type", showGPS, []message.Message{&common.MessageGpsRawInt{FixType: 9}},
			`"", 0 satellites, 0.00`},
		{"a heartbeat", showBeat, []message.Message{beatOf(common.MAV_AUTOPILOT_PX4, 7, false)},
			"standby critical false"},
		{"an armed one", showBeat, []message.Message{beatOf(common.MAV_AUTOPILOT_PX4, 7, true)},
			"active critical false"},
		{"critical", showBeat, []message.Message{status(minimal.MAV_STATE_CRITICAL)}, "critical critical true"},
		{"emergency", showBeat, []message.Message{status(minimal.MAV_STATE_EMERGENCY)}, "emergency critical true"},
		{"flight termination", showBeat, []message.Message{status(minimal.MAV_STATE_FLIGHT_TERMINATION)},
			"flight_termination critical true"},
		{"a failsafe that has ended", showBeat, []message.Message{status(minimal.MAV_STATE_CRITICAL),
			status(minimal.MAV_STATE_ACTIVE)}, "active critical false"},
		{"all is well", showHealth, []message.Message{home,
			sensors(gps|receiver|prearm, gps|receiver|prearm, gps|receiver|prearm)},
			"known true, armable true, receiver true, unhealthy []"},
		{"PX4's bit in the health alone", showHealth, []message.Message{home, sensors(gps, gps, gps|prearm)},
			"known true, armable true, receiver false, unhealthy []"},
		{"what is not enabled is not unhealthy", showHealth, []message.Message{sensors(gps|battery, battery, 0)},
			"known true, armable null, receiver false, unhealthy [battery]"},
		{"a receiver that was lost", showHealth, []message.Message{sensors(receiver|prearm, receiver|prearm, 0)},
			"known true, armable false, receiver false, unhealthy [rc_receiver]"},
		{"a receiver that is not enabled", showHealth, []message.Message{sensors(gps, gps, gps|receiver)},
			"known true, armable null, receiver false, unhealthy []"},
		{"several, by bit", showHealth, []message.Message{sensors(gps|place|battery, 1|gps|place|battery, 0)},
			"known true, armable null, receiver false, unhealthy [3d_gyro gps xy_position_control battery]"},
		{"PX4's first report after a boot", showHealth, []message.Message{sensors(0, 0, gps|receiver|prearm)},
			"known false, armable null, receiver false, unhealthy null"},
		{"only what is enabled", showHealth, []message.Message{sensors(0, gps, 0)},
			"known true, armable null, receiver false, unhealthy [gps]"},
		{"a GPS that is where the EKF is", showHealth, []message.Message{sensors(gps, gps, gps), ekf(831)},
			"known true, armable null, receiver false, unhealthy []"},
		{"a fence", fenced, []message.Message{sensors(gps|fence, gps|fence, gps|fence)}, "true"},
		{"a fence that is switched off", fenced, []message.Message{sensors(gps|fence, gps, gps|fence)}, "false"},
		{"one is well again", showHealed, []message.Message{sensors(gps, gps, 0), sensors(gps, gps, gps)}, "1ms"},
		{"one is as ill as it was", showHealed,
			[]message.Message{sensors(gps, gps|place, place), sensors(gps, gps|place, place)}, "never"},
		{"no version", version, nil, ""},
		{"a version", version, []message.Message{&common.MessageAutopilotVersion{FlightSwVersion: 0x01110455}},
			"1.17.4"},
		{"who it is", func(t *telemetry) string { return fmt.Sprint(t.id.autopilot, t.id.typ) },
			[]message.Message{copterBeat()}, "MAV_AUTOPILOT_ARDUPILOTMEGA MAV_TYPE_QUADROTOR"},
		{"home", func(t *telemetry) string {
			return fmt.Sprintf("%.7f %.7f %.2f", t.home.lat, t.home.lon,
				t.home.amsl)
		}, []message.Message{&common.MessageHomePosition{Latitude: 473977420, Longitude: 85455940,
			Altitude: 488010, Q: [4]float32{nan32, nan32, nan32, nan32}}}, "47.3977420 8.5455940 488.01"},
		{"a target", func(t *telemetry) string {
			return fmt.Sprintf("%.7f %.7f %.2f", t.target.lat, t.target.lon, t.target.amsl)
		}, []message.Message{&common.MessagePositionTargetGlobalInt{LatInt: 473977420, LonInt: 85455940, Alt: 503.25,
			TypeMask: 0xfdf8}}, "47.3977420 8.5455940 503.25"},
		{"channels", func(t *telemetry) string { return fmt.Sprint(t.rc.channel) },
			[]message.Message{&common.MessageRcChannels{Chan1Raw: 1500, Chan2Raw: 1400, Chan3Raw: 1000, Chan4Raw: 1600,
				Chan5Raw: 5, Chan6Raw: 6, Chan7Raw: 7, Chan8Raw: 8, Chan9Raw: 9, Chan10Raw: 10, Chan11Raw: 11,
				Chan12Raw: 12, Chan13Raw: 13, Chan14Raw: 14, Chan15Raw: 15, Chan16Raw: 16, Chan17Raw: 17}},
			"[1500 1400 1000 1600 5 6 7 8 9 10 11 12 13 14 15 16]"},
		{"on the ground", func(t *telemetry) string { return fmt.Sprint(t.landed.state.inAir(), t.id.vtol) },
			[]message.Message{&common.MessageExtendedSysState{LandedState: 1, VtolState: 3}}, "false 3"},
		{"landing", func(t *telemetry) string { return fmt.Sprint(t.landed.state.inAir(), t.id.vtol) },
			[]message.Message{&common.MessageExtendedSysState{LandedState: 4}}, "true 0"},
		{"when each left", showTimes, []message.Message{px4Beat(), fix(3), place1, &common.MessageVfrHud{},
			&common.MessageAttitude{}, sensors(gps, gps, gps), ekf(831), home, &common.MessageRcChannels{},
			&common.MessagePositionTargetGlobalInt{}, &common.MessageExtendedSysState{}},
			"heartbeat 0s, GPS 1ms, position 2ms, velocity 2ms, HUD 3ms, attitude 4ms, battery 5ms, health 5ms, " +
				"EKF 6ms, home 7ms, channels 8ms, target 9ms, landed 10ms"},
		{"an unknown landed state (flying() counts it as in the air)",
			func(t *telemetry) string { return fmt.Sprint(t.landed.state.inAir()) },
			[]message.Message{&common.MessageExtendedSysState{}}, "false"},
	} {
		lineEqual(t, c.what, c.show(telemetryAfter(c.said...)), c.want)
	}
	for i, name := range strings.Fields("no_gps no_fix 2d 3d dgps rtk_float rtk_fixed static ppp") {
		lineEqual(t, fmt.Sprint("fix ", i), telemetryAfter(fix(common.GPS_FIX_TYPE(i))).gps.fix, name)
	}
}

func TestAHeartbeatBehindANewerMessageShowsNoState(t *testing.T) {
	d := mute()
	now := time.Now()
	d.hear(onTime(&common.MessageHeartbeat{Autopilot: common.MAV_AUTOPILOT_PX4, Type: common.MAV_TYPE_QUADROTOR,
		SystemStatus: common.MAV_STATE_ACTIVE}, now))
	late := onTime(&common.MessageHeartbeat{Autopilot: common.MAV_AUTOPILOT_PX4, Type: common.MAV_TYPE_QUADROTOR,
		SystemStatus: common.MAV_STATE_CRITICAL}, now)
	late.ordered = false
	d.hear(late)
	lineEqual(t, "critical", d.tel.beat.critical, false)
	lineEqual(t, "state", d.tel.beat.state, "active")
}

// The status has one age for all velocities. An old VFR_HUD's climb and air speed must not
// show under the age of newer ones.
func TestAnOldVFRHUDDoesNotShow(t *testing.T) {
	tel, now := newTelemetry(), time.Unix(1000, 0)
	tel.hear(&common.MessageVfrHud{Airspeed: 7, Climb: 3}, now)
	tel.hear(&common.MessageGlobalPositionInt{Lat: 1, Vz: -50}, now.Add(freshFor))
	lineEqual(t, "while it is fresh", showVelocity(&tel),
		"north 0.00 east 0.00 down -0.50, ground 0.00, air 7.00, climb 3.00")
	tel.hear(&common.MessageGlobalPositionInt{Lat: 1, Vz: -50}, now.Add(freshFor+time.Millisecond))
	lineEqual(t, "when it is old", showVelocity(&tel),
		"north 0.00 east 0.00 down -0.50, ground 0.00, air NaN, climb 0.50")
}

func TestAnImpossiblePositionIsBelievedWhenItIsRepeated(t *testing.T) {
	here := &common.MessageGlobalPositionInt{TimeBootMs: 9000, Lat: 473977419, Lon: 85455938, Alt: 500000,
		RelativeAlt: 12000}
	with := func(change func(*common.MessageGlobalPositionInt)) *common.MessageGlobalPositionInt {
		m := *here
		change(&m)
		return &m
	}
	near := with(func(m *common.MessageGlobalPositionInt) { m.Lat += 10000 }) // 111 m
	far := with(func(m *common.MessageGlobalPositionInt) { m.Lat += 20000 })  // 222 m
	elsewhere := with(func(m *common.MessageGlobalPositionInt) { m.Lon = -m.Lon })
	high := with(func(m *common.MessageGlobalPositionInt) { m.Alt += 201000 })
	most := with(func(m *common.MessageGlobalPositionInt) { m.Alt, m.RelativeAlt = m.Alt+200000, m.RelativeAlt-200000 })
	deep := with(func(m *common.MessageGlobalPositionInt) { m.RelativeAlt -= 201000 })
	late := with(func(m *common.MessageGlobalPositionInt) { m.Lat, m.TimeBootMs = m.Lat+20000, 1 })
	for _, c := range []struct {
		name  string
		said  []*common.MessageGlobalPositionInt
		shown int // index in said
	}{
		{"near", []*common.MessageGlobalPositionInt{here, near}, 1},
		{"far", []*common.MessageGlobalPositionInt{here, far}, 0},
		{"high", []*common.MessageGlobalPositionInt{here, high}, 0},
		{"deep", []*common.MessageGlobalPositionInt{here, deep}, 0},
		{"200 m up, and home is that much higher", []*common.MessageGlobalPositionInt{here, most}, 1},
		{"once, and back", []*common.MessageGlobalPositionInt{here, far, here}, 2},
		{"confirmed", []*common.MessageGlobalPositionInt{here, far, far}, 2},
		{"two that differ", []*common.MessageGlobalPositionInt{here, far, elsewhere}, 0},
		{"two that differ, confirmed", []*common.MessageGlobalPositionInt{here, far, elsewhere, elsewhere}, 3},
		{"in steps", []*common.MessageGlobalPositionInt{here, near, far}, 2},
		{"with another clock", []*common.MessageGlobalPositionInt{here, late}, 0},
	} {
		tel, now := newTelemetry(), time.Unix(1000, 0)
		for _, m := range c.said {
			lineEqual(t, c.name+": the autopilot has started again", tel.hear(m, now), false)
			now = now.Add(100 * time.Millisecond)
		}
		lineEqual(t, c.name, showPlace(&tel), showPlace(telemetryAfter(c.said[c.shown])))
	}
	// After 2 s anywhere is possible.
	tel, now := newTelemetry(), time.Unix(1000, 0)
	tel.hear(here, now)
	tel.hear(elsewhere, now.Add(freshFor))
	lineEqual(t, "after a while", showPlace(&tel), showPlace(telemetryAfter(elsewhere)))
}

func TestAnAutopilotWhoseClockRunsBackwardsHasStartedAgain(t *testing.T) {
	at := func(ms uint32) message.Message { return attitudeAt(ms) }
	place := func(ms uint32) message.Message { return &common.MessageGlobalPositionInt{TimeBootMs: ms, Lat: 1} }
	far := func(ms uint32) message.Message { return &common.MessageGlobalPositionInt{TimeBootMs: ms, Lat: 1e6} }
	for _, c := range []struct {
		said []message.Message
		want string // after each message, whether the autopilot has started again
	}{
		// UDP delivers late
		{[]message.Message{at(0), at(1000), place(2000), at(1000), place(1000)}, "[false false false false false]"},
		{[]message.Message{at(5000), at(4500), at(3900), at(3950)}, "[false false false false]"},
		{[]message.Message{at(5000), at(3900), at(3950)}, "[false false true]"},
		{[]message.Message{place(5000), at(100), place(200), at(300)}, "[false false true false]"},
		// It runs over after 49.7 days.
		{[]message.Message{at(math.MaxUint32 - 50), at(49), at(149)}, "[false false false]"},
		// A restart after 30 days
		{[]message.Message{at(30 * 86_400_000), at(100), at(200)}, "[false false true]"},
		// A day ahead, and more than that
		{[]message.Message{at(0), at(86_400_000), at(86_400_000)}, "[false false false]"},
		{[]message.Message{at(0), at(86_400_001), at(86_400_001)}, "[false false true]"},
		{[]message.Message{at(5000), px4Beat(), &common.MessageStatustext{Text: "x"}, &common.MessageSysStatus{}},
			"[false false false false]"},
		// Damage that the checksum missed.
		{[]message.Message{at(5000), at(100), at(5100), at(5200)}, "[false false false false]"},
		{[]message.Message{at(5000), at(100), at(5100), at(100), at(5200)}, "[false false false false false]"},
		{[]message.Message{at(5000), at(4_000_000_000), at(5100), at(5200)}, "[false false false false]"},
		{[]message.Message{at(50_000), at(100), at(20_000), at(50_100)}, "[false false false false]"},
		// A position that is not believed has no clock.
		{[]message.Message{place(5000), far(100), at(150), at(5100)}, "[false false false false]"},
		// A second back, and a second ahead, is believed each time.
		{[]message.Message{at(5000), at(4000), at(3000), at(2900)}, "[false false false false]"},
		{[]message.Message{at(5000), at(6000), at(7000), at(5950), at(5900)}, "[false false false false true]"},
		// one damaged, then a restart
		{[]message.Message{at(50_000), at(20_000), at(100), at(200)}, "[false false false true]"},
		// After a pause of the link the clock is far ahead.
		{[]message.Message{at(5000), at(65_000), at(65_100), at(5200), at(5300)}, "[false false false false true]"},
	} {
		tel := newTelemetry()
		var got []bool
		for _, m := range c.said {
			got = append(got, tel.hear(m, time.Unix(1000, 0)))
		}
		lineEqual(t, fmt.Sprint(c.said), fmt.Sprint(got), c.want)
	}
}

func TestABootClockTellsTheSameVehicleFromAnother(t *testing.T) {
	const second, day = time.Second, 24 * time.Hour
	for _, c := range []struct {
		what           string
		silent         time.Duration
		ran            time.Duration
		behind         time.Duration // how far the line was behind
		goesOn, jumped bool
	}{
		{"it goes on", 4 * second, 4 * second, 0, true, false},
		{"a second behind", 4 * second, 3 * second, 0, true, false},
		{"more than that", 4 * second, 2999 * time.Millisecond, 0, false, false},
		{"a second ahead", 4 * second, 5 * second, 0, true, false},
		{"more than that", 4 * second, 5001 * time.Millisecond, 0, false, true},
		{"a line that was 2 s behind", 4 * second, 7 * second, 2 * second, false, false},
		{"more than that", 4 * second, 7001 * time.Millisecond, 2 * second, false, true},
		{"ahead, 3 s later", 3 * second, 60 * second, 0, false, true},
		{"ahead, and it was not silent", 2999 * time.Millisecond, 60 * second, 0, false, false},
		{"after a day without a word", day + 2*second, day + 2*second, 0, true, false},
	} {
		start := time.Unix(1000, 0)
		was, is := clockAt(5000, start), clockAt(5000+uint32(c.ran.Milliseconds()), start.Add(c.silent))
		lineEqual(t, c.what+": it goes on", was.goesOn(is), c.goesOn)
		lineEqual(t, c.what+": it jumped ahead", is.jumpedAhead(was, c.behind), c.jumped)
		tel := newTelemetry()
		tel.hear(attitudeAt(was.ms), was.at)
		lineEqual(t, c.what+": it has started again", tel.hear(attitudeAt(is.ms), is.at), false)
	}
	lineEqual(t, "no clock goes on", bootClock{}.goesOn(bootClock{}), false)
}

// ArduPilot without a receiver never reports that it can be armed, and arms on our stream.
func TestWithoutAReceiverOnlyThePlaceAndTheOtherSystemsCount(t *testing.T) {
	const gps, receiver = common.MAV_SYS_STATUS_SENSOR_GPS, common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	const terrain = common.MAV_SYS_STATUS_TERRAIN
	for _, c := range []struct {
		name    string
		healthy common.MAV_SYS_STATUS_SENSOR
		ekf     uint16 // the flags of EKF_STATUS_REPORT: 831 has a place, 167 does not
		want    bool
	}{
		{"a place, and all but the receiver is well", gps | terrain, 831, true},
		{"no map of the terrain", gps, 831, true},
		{"no place", gps | terrain, 167, false},
		{"no GPS", receiver | terrain, 831, false},
	} {
		tel, now := newTelemetry(), time.Unix(1000, 0)
		tel.hear(copterBeat(), now)
		enabled := gps | receiver | terrain | common.MAV_SYS_STATUS_PREARM_CHECK
		tel.hear(&common.MessageSysStatus{OnboardControlSensorsPresent: enabled, OnboardControlSensorsEnabled: enabled,
			OnboardControlSensorsHealth: c.healthy}, now)
		tel.hear(&MessageEkfStatusReport{Flags: c.ekf}, now)
		tel.hear(&common.MessageHomePosition{Altitude: 488000}, now)
		armable, _ := tel.armable(now, false, true)
		lineEqual(t, c.name, *armable, c.want)
		armable, _ = tel.armable(now, false, false)
		lineEqual(t, c.name+", by the autopilot's own report", *armable, false)
	}
}

// The autopilot's report is for its present mode. A takeoff also needs home's height on PX4,
// and a place on ArduPilot (EKF_STATUS_REPORT: bit 4 set, bit 7 clear).
func TestArmableIsNullWhereItIsNotKnown(t *testing.T) {
	const gps, prearm = common.MAV_SYS_STATUS_SENSOR_GPS, common.MAV_SYS_STATUS_PREARM_CHECK
	sys := func(healthy common.MAV_SYS_STATUS_SENSOR) *common.MessageSysStatus {
		return &common.MessageSysStatus{OnboardControlSensorsPresent: gps, OnboardControlSensorsEnabled: gps,
			OnboardControlSensorsHealth: healthy}
	}
	ekf := func(flags uint16) *MessageEkfStatusReport { return &MessageEkfStatusReport{Flags: flags} }
	passed, failed, placed := sys(gps|prearm), sys(gps), ekf(831)
	ardupilotFailed := &common.MessageSysStatus{OnboardControlSensorsPresent: gps, OnboardControlSensorsEnabled: gps |
		prearm, OnboardControlSensorsHealth: gps}
	home := &common.MessageHomePosition{Altitude: 488000}
	type event struct {
		ms int             // after the beginning
		m  message.Message // nil: a restart
	}
	for _, c := range []struct {
		name string
		beat message.Message
		said []event
		at   int // when it is asked
		want string
	}{
		{"PX4 passes", px4Beat(), []event{{0, home}, {0, passed}}, 100, "true"},
		{"PX4 passes, home unknown", px4Beat(), []event{{0, passed}}, 100, "false"},
		{"a restart forgets PX4's home", px4Beat(),
			[]event{{0, home}, {0, passed}, {100, nil}, {200, passed}, {1300, passed}}, 1400, "false"},
		{"PX4 does not pass", px4Beat(), []event{{0, passed}, {50, failed}}, 100, "false"},
		{"PX4, 2 s later", px4Beat(), []event{{0, home}, {0, passed}}, 2000, "true"},
		{"PX4, more than 2 s later", px4Beat(), []event{{0, passed}}, 2001, "null"},
		{"PX4 failed, more than 2 s ago", px4Beat(), []event{{0, failed}}, 2001, "null"},
		{"ArduPilot passes and has a place", copterBeat(), []event{{0, home}, {0, passed}, {0, placed}}, 100, "true"},
		{"ArduPilot passes, and its home is not set", copterBeat(), []event{{0, passed}, {0, placed}}, 100, "false"},
		{"ArduPilot passes without a place", copterBeat(), []event{{0, home}, {0, passed}, {0, ekf(167)}}, 100,
			"false"},
		{"ArduPilot passes with a predicted place", copterBeat(), []event{{0, home}, {0, passed}, {0, ekf(423)}}, 100,
			"true"},
		{"ArduPilot does not pass", copterBeat(), []event{{0, ardupilotFailed}, {0, placed}}, 100, "false"},
		{"ArduPilot does not pass, place unknown", copterBeat(), []event{{0, ardupilotFailed}}, 100, "false"},
		{"ArduPilot passes, place unknown", copterBeat(), []event{{0, home}, {0, passed}}, 100, "null"},
		{"ArduPilot passes, its place is old", copterBeat(), []event{{0, home}, {0, placed}, {1000, passed}}, 2001,
			"null"},
		{"a restart forgets PX4's report", px4Beat(), []event{{0, passed}, {100, nil}}, 200, "null"},
		{"PX4's first report after a restart does not count", px4Beat(),
			[]event{{0, passed}, {100, nil}, {3000, passed}}, 3100, "null"},
		{"PX4's report within 1 s of its first one does not count", px4Beat(),
			[]event{{0, passed}, {100, nil}, {3000, passed}, {4000, passed}}, 4100, "null"},
		{"PX4's report over 1 s later counts", px4Beat(),
			[]event{{0, passed}, {100, nil}, {3000, passed}, {4001, failed}}, 4100, "false"},
		{"a first one without a sensor does not count", px4Beat(),
			[]event{{100, nil}, {200, &common.MessageSysStatus{}}, {1500, passed}}, 1600, "null"},
		{"two restarts", px4Beat(), []event{{100, nil}, {200, passed}, {1000, nil}, {1500, passed}}, 1600, "null"},
		{"a restart forgets ArduPilot's place", copterBeat(),
			[]event{{0, home}, {0, passed}, {0, placed}, {100, nil}, {200, passed}, {1300, passed}}, 1400, "null"},
	} {
		tel, start := newTelemetry(), time.Unix(1000, 0)
		tel.hear(c.beat, start)
		for _, s := range c.said {
			if s.m == nil {
				tel.restart()
			} else {
				tel.hear(s.m, start.Add(time.Duration(s.ms)*time.Millisecond))
			}
		}
		lineEqual(t, c.name, showArmable(&tel, start.Add(time.Duration(c.at)*time.Millisecond)), c.want)
	}
}

func TestChunksOfATextAreJoinedInAnyOrderAndAMissingOneShows(t *testing.T) {
	full := strings.Repeat("x", 50)
	type chunk = common.MessageStatustext
	for name, c := range map[string]struct {
		chunks []chunk
		at     time.Duration // after the first chunk: when want is complete
		want   []string
	}{
		"one":      {[]chunk{{Text: "one"}}, 0, []string{"one"}},
		"in order": {[]chunk{{Text: full, Id: 5}, {Text: "end\t", Id: 5, ChunkSeq: 1}}, 0, []string{full + "end"}},
		"out of order": {[]chunk{{Text: "end", Id: 5, ChunkSeq: 2}, {Text: full, Id: 5},
			{Text: full, Id: 5, ChunkSeq: 1}}, 0, []string{full + full + "end"}},
		"two mixed": {[]chunk{{Text: full, Id: 5}, {Text: full, Id: 6}, {Text: "six", Id: 6, ChunkSeq: 1},
			{Text: "five", Id: 5, ChunkSeq: 1}},
			0, []string{full + "six", full + "five"}},
		"PX4's first after its boot": {[]chunk{{Text: full, Id: 0}, {Text: "end\t", Id: 0, ChunkSeq: 1}}, 0,
			[]string{full + "end"}},
		"PX4's first, and another at once": {[]chunk{{Text: full, Id: 0}, {Text: "five", Id: 5},
			{Text: "end\t", Id: 0, ChunkSeq: 1}}, 0, []string{"five", full + "end"}},
		"single ones": {[]chunk{{Text: "one", Id: 0}, {Text: "two", Id: 0}}, 0,
			[]string{"one", "two"}},
		"a full one with id 0": {[]chunk{{Text: full, Id: 0}}, chunkWait, []string{full}},
		"two full ones with id 0": {[]chunk{{Text: full, Id: 0}, {Text: full, Id: 0}}, chunkWait,
			[]string{full, full}},
		"first lost": {[]chunk{{Text: "end", Id: 5, ChunkSeq: 1}}, chunkWait, []string{"…end"}},
		"last lost":  {[]chunk{{Text: full, Id: 5}}, chunkWait, []string{full}},
		"the middle lost": {[]chunk{{Text: full, Id: 5}, {Text: "end", Id: 5, ChunkSeq: 2}},
			chunkWait, []string{full + "…end"}},
		"a chunk that came twice": {[]chunk{{Text: full, Id: 5}, {Text: full, Id: 5},
			{Text: "end", Id: 5, ChunkSeq: 1}}, 0, []string{full + "end"}},
		"no UTF-8":                         {[]chunk{{Text: "a\xffb"}}, 0, []string{"a\ufffdb"}},
		"trailing tabs, blanks, new lines": {[]chunk{{Text: "text \t\r\n"}}, 0, []string{"text"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := newTelemetry().texts, time.Unix(1000, 0)
			for _, m := range c.chunks {
				l.hear(&m, now)
			}
			due := l.flush(now, chunkWait)
			if c.at == 0 {
				lineEqual(t, "texts at once", fmt.Sprintf("%q", said(&l)), fmt.Sprintf("%q", c.want))
				lineEqual(t, "a chunk is still waited for", !due.IsZero(), false)
				return
			}
			lineEqual(t, "waits until", due, now.Add(c.at))
			l.flush(due.Add(-time.Millisecond), chunkWait)
			lineEqual(t, "the text is there too early", len(said(&l)) == len(c.want), false)
			lineEqual(t, "due after that", l.flush(due, chunkWait), time.Time{})
			lineEqual(t, "texts", fmt.Sprintf("%q", said(&l)), fmt.Sprintf("%q", c.want))
		})
	}
}

// As the status has it, not as the line carries it.
func TestALongTextIsLoggedAsOne(t *testing.T) {
	log, lines := logLines()
	d := newDrone(device{name: "none"}, 0, false, log)
	for _, m := range []*common.MessageStatustext{
		{Text: strings.Repeat("a", 50), Id: 7, Severity: 3}, {Text: "b", Id: 7, ChunkSeq: 1, Severity: 6},
	} {
		d.change(func() { d.hearMessage(onTime(m, time.Now())) })
	}
	lineEqual(t, "lines", strings.Count(lines(), "\n"), 1)
	lineEqual(t, "severity", d.tel.texts.kept[0].severity, 3)
	lineEqual(t, "the text is whole", strings.Contains(lines(), strings.Repeat("a", 50)+"b"), true)
}

func TestAFloodOfIncompleteTextsIsForgotten(t *testing.T) {
	l, now := newTelemetry().texts, time.Unix(1000, 0)
	for i := range uint16(1000) {
		l.hear(&common.MessageStatustext{Text: strings.Repeat("x", 50), Id: i + 1}, now)
		if len(l.chunks) > 8 {
			t.Fatalf("%d incomplete texts are kept", len(l.chunks))
		}
	}
}

func TestTextsThatOurOwnRequestsAndHeartbeatsCauseAreHidden(t *testing.T) {
	for _, c := range []struct {
		severity common.MAV_SEVERITY
		text     string
		shows    bool
	}{
		{common.MAV_SEVERITY_INFO, "Connection to ground station lost", false},
		{common.MAV_SEVERITY_INFO, "GCS connection regained", false},
		{common.MAV_SEVERITY_WARNING, "No ap_message for mavlink id (999)", false},
		{common.MAV_SEVERITY_CRITICAL, "Connection to ground station lost", true}, // a failsafe of it
		{common.MAV_SEVERITY_ERROR, "GCS connection regained", true},
		{common.MAV_SEVERITY_INFO, "The GCS connection regained", true},
		{common.MAV_SEVERITY_INFO, "Takeoff detected", true},
	} {
		l := newTelemetry().texts
		l.hear(&common.MessageStatustext{Severity: c.severity, Text: c.text}, time.Unix(1000, 0))
		lineEqual(t, fmt.Sprintf("%v %q shows", c.severity, c.text), len(said(&l)) == 1, c.shows)
	}
}

func TestTextsSinceATimeAreFound(t *testing.T) {
	l, start := newTelemetry().texts, time.Unix(1000, 0)
	for i := range 25 {
		l.hear(&common.MessageStatustext{Text: fmt.Sprint(i)}, start.Add(time.Duration(i)*time.Second))
	}
	lineEqual(t, "since the time of one", len(l.since(start.Add(22*time.Second))), 3)
	lineEqual(t, "since a moment later", len(l.since(start.Add(22*time.Second+1))), 2)
	lineEqual(t, "the older ones are kept", fmt.Sprint(said(&l)[0]), "5")
}

func TestTheZeroTimeIsNeverAndNotTheEarliest(t *testing.T) {
	never, one, two := time.Time{}, time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ a, b, sooner, later time.Time }{
		{never, never, never, never}, {never, one, one, one}, {one, never, one, one},
		{one, two, one, two}, {two, one, one, two},
	} {
		lineEqual(t, fmt.Sprint("the earlier of ", c.a.Unix(), ", ", c.b.Unix()), sooner(c.a, c.b), c.sooner)
		lineEqual(t, fmt.Sprint("the later of ", c.a.Unix(), ", ", c.b.Unix()), later(c.a, c.b), c.later)
	}
}

func TestTheCapturedPX4FlightLeadsToItsStatus(t *testing.T) {
	replays(t, "px4-flight.tlog", func(t *testing.T, r replayedFlight) {
		r.ends(t, 47.3977372, 8.5456148, 0.3, 16.2, 99)
		lineEqual(t, "autopilot", r.tel.id.autopilot, common.MAV_AUTOPILOT_PX4)
		lineEqual(t, "state", r.tel.beat.state, "standby")
		lineNear(t, "highest", r.highest, 15.6, 1)
		lineNear(t, "current", r.tel.battery.current, math.NaN(), 0)
		lineEqual(t, "GPS", showGPS(r.tel), `"3d", 10 satellites, 0.70`)
		lineEqual(t, "modes", strings.Join(r.modes, ", "),
			"AUTO.LOITER, POSCTL, AUTO.LOITER, AUTO.TAKEOFF, AUTO.TAKEOFF armed, "+
				"AUTO.LOITER armed, POSCTL armed, AUTO.LOITER armed, AUTO.LAND armed, AUTO.LOITER")
		// Disarmed at first contact, so manual; after that the vehicle's mode.
		lineEqual(t, "answers of GET mode", fmt.Sprint(r.answered),
			"[manual position hold takeoff hold position hold land hold]")
		lineEqual(t, "texts", strings.Join(autopilotsTexts(&r.tel.texts), "|"),
			"Arming denied: Resolve system health failures first|Armed by external command|"+
				"Takeoff detected|Landing detected|Disarmed by landing")
	})
}

func TestTheCapturedArduPilotFlightLeadsToItsStatus(t *testing.T) {
	replays(t, "ardupilot-flight.tlog", func(t *testing.T, r replayedFlight) {
		r.ends(t, 47.3977420, 8.5455941, 0, 12.6, 86)
		lineEqual(t, "autopilot", r.tel.id.autopilot, common.MAV_AUTOPILOT_ARDUPILOTMEGA)
		lineNear(t, "highest", r.highest, 15.05, 2)
		lineEqual(t, "GPS", showGPS(r.tel), `"rtk_fixed", 10 satellites, 1.21`)
		lineEqual(t, "modes", strings.Join(r.modes, ", "),
			"STABILIZE, LAND, GUIDED, GUIDED armed, LOITER armed, GUIDED armed, LAND armed, LAND")
		lineEqual(t, "answers of GET mode", fmt.Sprint(r.answered), "[manual land hold position hold land]")
		lineEqual(t, "a refusal's text is there", slices.Contains(said(&r.tel.texts), "Arm: LAND mode not armable"),
			true)
	})
}

// A second client and a pilot were on the line. The capture has an ALTCTL, a hold 2.4 s after
// POSCTL that is not undone, and an RTL that no client asked for.
func TestTheCapturedPX4FlightWithAPilotLeadsToItsStatus(t *testing.T) {
	replays(t, "px4-pilot.tlog", func(t *testing.T, r replayedFlight) {
		r.ends(t, 47.3981599, 8.5455941, -0.47, 16.2, 97)
		lineEqual(t, "modes", strings.Join(r.modes, ", "),
			"AUTO.LOITER, AUTO.TAKEOFF armed, AUTO.LOITER armed, ALTCTL armed, "+
				"POSCTL armed, AUTO.LOITER armed, AUTO.RTL armed, AUTO.LAND armed, AUTO.LOITER")
		lineEqual(t, "answers of GET mode", fmt.Sprint(r.answered),
			"[manual takeoff hold altitude position hold rtl land hold]")
		lineEqual(t, "armable and unhealthy", strings.Join(r.states, ", "),
			"false [xy_position_control rc_receiver], true [rc_receiver], false [rc_receiver], true [rc_receiver], "+
				"true []")
		// a new mode does not show the old one's target
		lineEqual(t, "targets", strings.Join(r.targets, ", "), "none, 0, none, 0, 40, none, 46, none")
		lineEqual(t, "texts", strings.Join(autopilotsTexts(&r.tel.texts), "|"),
			"Preflight Fail: No connection to the GCS|Arming denied: Resolve system health failures first|"+
				"Preflight Fail: No connection to the GCS|Armed by external command|Takeoff detected")
	})
}

// The capture begins at the boot, with a receiver. It has no place until the EKF has one, a
// BRAKE that is a hold, and a pilot's LOITER.
func TestTheCapturedArduPilotFlightWithAPilotLeadsToItsStatus(t *testing.T) {
	replays(t, "ardupilot-pilot.tlog", func(t *testing.T, r replayedFlight) {
		r.ends(t, 47.3977422, 8.5455938, 0, 12.6, 81)
		lineEqual(t, "it had its first place", r.placed.Round(100*time.Millisecond), 8800*time.Millisecond)
		lineEqual(t, "modes", strings.Join(r.modes, ", "),
			"STABILIZE, GUIDED, GUIDED armed, BRAKE armed, GUIDED armed, LOITER armed, RTL armed, RTL")
		lineEqual(t, "answers of GET mode", fmt.Sprint(r.answered), "[manual hold position rtl]")
		// it was not asked for EKF_STATUS_REPORT
		lineEqual(t, "armable and unhealthy", strings.Join(r.states, ", "), "false [], null []")
		lineEqual(t, "targets", strings.Join(r.targets, ", "), "none, 40, none")
		lineEqual(t, "a refusal's text is there", slices.Contains(said(&r.tel.texts), "Arm: Accels inconsistent"), true)
		lineEqual(t, "who has the sticks at the end", r.by, "")
	})
}

// Rule 11: clear from the first report on that is not on_ground and 2 m above the last one that was, until on_ground.
func TestADroneIsClearOfTheGround(t *testing.T) {
	const copterID, planeID = common.MAV_TYPE_QUADROTOR, common.MAV_TYPE_FIXED_WING
	for _, c := range []struct {
		name string
		typ  common.MAV_TYPE
		// Seconds, then a landed state, "home" and by how much it moves up, or a height above the sea. Before a height
		// stands what an ArduPilot knows: "none" for no place since its start, "lost" for one that it only
		// remembers, "raw" for one that only its GPS has.
		happens string
		want    string
	}{
		{"on the ground", copterID, "0 500, 0 on_ground", "ground"},
		{"it stands, and calls itself in the air", copterID, "0 500, 0 on_ground, 1 takeoff, 1 500.29", "stands"},
		{"it stands, and its height drifts", copterID, "0 500, 0 on_ground, 1 500.4, 1 takeoff", "stands"},
		{"it has left the ground", copterID, "0 500, 0 on_ground, 1 takeoff, 2 500.31", "low 0.3"},
		{"it left the ground, and is back at its height", copterID, "0 500, 0 on_ground, 1 in_air, 2 500.4, 3 500.1",
			"low 0.1"},
		{"just below 2 m", copterID, "0 500, 0 on_ground, 1 takeoff, 2 501.99", "low 2.0"},
		{"2 m", copterID, "0 500, 0 on_ground, 1 takeoff, 2 502", "clear"},
		{"a valley, not clear yet", copterID, "0 500, 0 on_ground, 1 in_air, 2 500.5, 3 495, 4 496", "low -4.0"},
		{"a commanded takeoff is complete", copterID, "0 500, 0 on_ground, 1 501.5, 1 in_air, 1 complete, 2 501.4",
			"clear"},
		{"the landed state is old", copterID, "0 500, 0 on_ground, 4 501", "low 1.0"},
		{"the landed state is old, 2 m", copterID, "0 500, 0 on_ground, 4 502", "clear"},

		{"clear stays clear: it comes down again", copterID, "0 500, 0 on_ground, 1 in_air, 2 503, 3 500.5", "clear"},
		{"clear stays clear: it flies down a hill", copterID, "0 500, 0 on_ground, 1 in_air, 2 503, 3 440", "clear"},
		{"until it lands", copterID, "0 500, 0 on_ground, 1 in_air, 2 503, 3 440, 3 on_ground", "ground"},
		{"the next takeoff counts from there", copterID,
			"0 500, 0 on_ground, 1 in_air, 2 503, 3 440, 3 on_ground, 4 in_air, 4 441", "low 1.0"},
		{"a touch and go", copterID, "0 500, 0 on_ground, 1 in_air, 2 503, 3 500.1, 3 on_ground, 3 in_air, 4 500.9",
			"low 0.8"},

		{"it lands on a hill", copterID, "0 500, 0 on_ground, 1 in_air, 2 520, 3 landing, 4 510", "low 0.0"},
		{"it lands in a valley", copterID, "0 500, 0 on_ground, 1 in_air, 2 520, 3 landing, 4 490", "low 0.0"},
		{"a landing that has just begun", copterID, "0 500, 0 on_ground, 1 in_air, 2 520, 2 landing", "low 20.0"},
		{"a landing that has ended", copterID,
			"0 500, 0 on_ground, 1 in_air, 2 520, 3 landing, 4 510, 5 in_air, 5 511.9", "low 1.9"},
		{"a landing that has ended, 2 m higher", copterID,
			"0 500, 0 on_ground, 1 in_air, 2 520, 3 landing, 4 510, 5 in_air, 5 512", "clear"},
		{"a landing that has ended, which sank on", copterID,
			"0 500, 0 on_ground, 1 in_air, 2 520, 3 landing, 4 510, 5 in_air, 5 509, 6 511", "clear"},
		{"a landing that has ended, which rose slowly", copterID,
			"0 500, 0 on_ground, 1 in_air, 2 520, 3 landing, 4 510, 5 in_air, 5 510.5, 6 511.9", "low 1.9"},
		{"a landing that has ended, and home moves", copterID,
			"0 500, 0 on_ground, 1 in_air, 2 520, 3 landing, 4 510, 5 in_air, 5 home 9, 5 511", "low 1.0"},
		{"it lands without a fix", copterID,
			"0 none 500, 0 on_ground, 1 in_air, 2 none 520, 3 landing, 4 none 510", "low 0.0"},
		{"it lands, and the ground was not known", copterID, "0 500, 0 in_air, 0 landing, 1 490", "low 0.0"},
		{"it lands, and no height is known", copterID, "0 in_air, 0 landing", "low NaN"},
		{"it takes off, and the ground is not known", copterID, "0 500, 0 takeoff, 1 510", "stands"},
		{"it took off, and the ground is not known", copterID, "0 500, 0 takeoff, 1 510, 2 in_air", "clear"},

		{"no on_ground was ever heard", copterID, "0 500, 0 in_air", "clear"},
		{"no height", copterID, "0 on_ground, 1 in_air", "clear"},
		{"no height on the ground", copterID, "0 on_ground, 1 in_air, 2 500.4", "clear"},
		{"home moves", copterID, "0 500, 0 on_ground, 1 in_air, 2 500.4, 3 home 9, 3 500.4", "low 0.4"},

		{"no fix since the start", copterID, "0 none 500, 0 on_ground, 1 in_air, 2 none 500.1", "stands"},
		{"no fix since the start, off the ground", copterID,
			"0 none 500, 0 on_ground, 1 in_air, 2 none 500.6", "low 0.6"},
		{"no fix since the start, 2 m", copterID, "0 none 500, 0 on_ground, 1 in_air, 2 none 502", "clear"},
		{"the first fix in the air", copterID, "0 none 500, 0 on_ground, 1 in_air, 2 none 500.6, 3 501", "low 1.0"},
		{"the fix is lost on the ground", copterID,
			"0 500, 0 on_ground, 1 lost 500, 1 on_ground, 2 in_air, 2 lost 500.6", "low 0.6"},
		{"the fix is lost on the ground, 2 m", copterID,
			"0 500, 0 on_ground, 1 lost 500, 2 in_air, 2 lost 502", "clear"},
		{"the fix is lost in the climb", copterID, "0 500, 0 on_ground, 1 in_air, 1 500.6, 2 lost 501.5", "low 1.5"},
		{"the fix is lost in the climb, 2 m", copterID,
			"0 500, 0 on_ground, 1 in_air, 1 500.6, 2 lost 502", "clear"},
		{"the fix is lost, and comes back in the air", copterID,
			"0 500, 0 on_ground, 1 lost 500, 1 on_ground, 2 in_air, 2 lost 500.6, 3 501.2", "low 1.2"},
		{"the EKF has no place, but the GPS has one", copterID, "0 500, 0 on_ground, 1 in_air, 2 raw 500.6", "low 0.6"},
		{"the position is silent for 5 s", copterID, "0 500, 0 on_ground, 1 in_air, 1 500.5, 6 in_air", "low 0.5"},
		{"the position is silent for longer", copterID, "0 500, 0 on_ground, 1 in_air, 1 500.5, 7 in_air", "clear"},
		// Its home is where it took off, so that its height above home is no more than that above the ground.
		{"the autopilot has restarted in the air", copterID,
			"0 home 10, 0 500, 0 on_ground, 1 in_air, 1 500.5, 2 restart, 3 in_air, 3 500.6", "clear"},

		{"a plane at 9.9 m", planeID, "0 500, 0 on_ground, 1 in_air, 2 509.9", "low 9.9"},
		{"a plane at 10 m", planeID, "0 500, 0 on_ground, 1 in_air, 2 510", "clear"},
	} {
		d := newDrone(device{name: "none"}, 0, false, slog.Default())
		now, home := epoch, 490.0
		hear := func(m message.Message) { d.hearMessage(onTime(m, now)) }
		reported := func(fix string, height float64) {
			m := &common.MessageGlobalPositionInt{Lat: 1, Lon: 1, Alt: int32(math.Round(height * 1000)),
				RelativeAlt: int32(math.Round((height - home) * 1000))}
			ekf, gps := uint16(831), common.GPS_FIX_TYPE_3D_FIX
			switch fix {
			case "none":
				m.Lat, m.Lon, m.Alt = 0, 0, -20_000
				ekf, gps = 167, common.GPS_FIX_TYPE_NO_GPS
			case "lost": // the height above the sea is the last one that it knew
				m.Alt = 500_000
				ekf, gps = 167, common.GPS_FIX_TYPE_NO_FIX
			case "raw":
				ekf = 39
			}
			hear(&MessageEkfStatusReport{Flags: ekf})
			hear(&common.MessageGpsRawInt{FixType: gps})
			hear(m)
		}
		hear(&minimal.MessageHeartbeat{Autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA, Type: c.typ,
			BaseMode: minimal.MAV_MODE_FLAG_SAFETY_ARMED})
		for clause := range strings.SplitSeq(c.happens, ", ") {
			at, what, _ := strings.Cut(clause, " ")
			n, _ := strconv.Atoi(at)
			now = epoch.Add(time.Duration(n) * time.Second)
			what, number, more := strings.Cut(what, " ")
			if !more {
				number = what
			}
			height, _ := strconv.ParseFloat(number, 64)
			switch state := slices.Index([]string{"", "on_ground", "in_air", "takeoff", "landing"}, what); {
			case what == "restart":
				d.tel.restart()
			case what == "complete":
				d.tel.ground.clear = true
			case state > 0:
				hear(&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE(state)})
			case what == "home":
				home += height
			default:
				reported(what, height)
			}
		}
		v, got := d.view(now), ""
		switch {
		case v.landed == onGround:
			got = "ground"
		case v.landed.inAir() && !v.leftGround():
			got = "stands"
		case v.isClear():
			got = "clear"
		default:
			got = fmt.Sprintf("low %.1f", v.height)
		}
		lineEqual(t, c.name, got, c.want)
	}
}

// What a restarted or another vehicle keeps is a list; the rest is as of a vehicle that was never heard. The fields are
// compared by name, so a new one that is kept by accident shows.
func TestWhatSurvivesARestartIsAList(t *testing.T) {
	heard := func() telemetry {
		tel := telemetryAfter(px4Beat(), &common.MessageGlobalPositionInt{Lat: 1, Lon: 1, Alt: 500, TimeBootMs: 9},
			&common.MessageAttitude{Roll: 1, TimeBootMs: 9}, &common.MessageVfrHud{Airspeed: 1},
			&common.MessageSysStatus{OnboardControlSensorsPresent: 1, OnboardControlSensorsEnabled: 1},
			&common.MessageBatteryStatus{BatteryRemaining: 9}, &common.MessageGpsRawInt{FixType: 3},
			&common.MessageHomePosition{Latitude: 1, Longitude: 1}, &MessageEkfStatusReport{Flags: 1},
			&common.MessageExtendedSysState{VtolState: common.MAV_VTOL_STATE_MC, LandedState: 1},
			&common.MessageAutopilotVersion{FlightSwVersion: 7}, &common.MessageRcChannels{Chan1Raw: 9},
			&common.MessagePositionTargetGlobalInt{LatInt: 1}, &common.MessageStatustext{Text: "hello"})
		tel.id.system = 3
		tel.hearLanded(tel.landed.at)
		tel.healthFrom, tel.healed, tel.rebooted = tel.landed.at, tel.landed.at, true
		tel.doubtedBoot.at, tel.doubtedPosition.at = tel.landed.at, tel.landed.at
		return *tel
	}
	lineEqual(t, "a restart keeps", survivors(t, heard, newTelemetry(), (*telemetry).restart),
		"id beat texts rebooted boot")
	lineEqual(t, "another vehicle keeps", survivors(t, heard, newTelemetry(), (*telemetry).replace), "id beat texts")
	for _, c := range []struct {
		what    string
		forgets func(*telemetry)
		id      identity
	}{
		{"a restart", (*telemetry).restart, identity{3, common.MAV_AUTOPILOT_PX4, common.MAV_TYPE_QUADROTOR, 3, 0}},
		{"another vehicle", (*telemetry).replace,
			identity{3, common.MAV_AUTOPILOT_PX4, common.MAV_TYPE_QUADROTOR, 0, 0}},
	} {
		got := heard()
		c.forgets(&got)
		lineEqual(t, c.what+" keeps of who it is", got.id, c.id)
	}
}

// As above. ArduPilot may have started again in the air: a stream that keeps it from falling goes on.
func TestWhatARestartKeepsOfReportsParametersAndSticksIsAList(t *testing.T) {
	at := epoch
	reported := func() reports {
		return reports{at: at, after: at, kept: []shownMode{{}}, alive: at, asked: at, askedProof: at, open: true,
			vain: 1, awaited: at, proofFor: at, portAway: true, portAwayAt: at}
	}
	lineEqual(t, "a restart keeps of the reports", survivors(t, reported, reports{}, (*reports).restart),
		"at after alive asked askedProof open vain awaited proofFor portAway portAwayAt")

	lineEqual(t, "a restart keeps of the mode machine", survivors(t, func() machine {
		return machine{mode: ModeHold, commanded: &goal{}, reports: reported(), last: report{amsl: 1}, failsafeAt: at,
			known: true, claims: []claim{{}}}
	}, machine{}, (*machine).restart), "mode reports last failsafeAt")

	lineEqual(t, "a restart keeps of the parameters", survivors(t, func() parameters {
		return parameters{tel: &telemetry{}, acks: &acks{}, values: map[string]float64{"A": 1}, stationAt: at,
			family: family{doubtedAt: at}}
	}, parameters{}, (*parameters).restart), "tel acks stationAt")

	streaming := func() sticks {
		return sticks{src: sources{receiver: receiverIdle, known: true}, taken: true, phase: stickClient,
			axes: axes{x: 1}, since: at, moved: at, restsFrom: at, next: at, client: stickHolder{until: at},
			switchedTo: shownMode{custom: 1}, streamed: axes{x: 1}, sent: []sentAxes{{}}, acts: stickActs{send: true}}
	}
	inTheAir := situation{view: view{now: at, firmware: copter, shownMode: shownMode{armed: true}}}
	for _, c := range []struct {
		what           string
		v              situation
		keeps, sources string
	}{
		{"a disarmed copter", situation{view: view{now: at, firmware: copter}}, "src", "validFrom"},
		{"a PX4", situation{view: view{now: at, firmware: px4, shownMode: shownMode{armed: true}}}, "src", "validFrom"},
		{"a copter in the air", inTheAir, "src taken phase axes streamed", "validFrom receiver"},
	} {
		restart := func(s *sticks) { s.restarted(c.v) }
		lineEqual(t, "the restart of "+c.what+" keeps of the sticks", survivors(t, streaming, sticks{}, restart),
			c.keeps)
		lineEqual(t, "and of whose they are", survivors(t, func() sources {
			return sources{validFrom: at, receiver: receiverIdle, known: true, oursFirst: true, heardInFlight: true,
				transmitterAt: at, foreignAt: at, foreignAxes: axes{x: 1}, channels: channels{1}, switchesSince: at}
		}, sources{}, func(src *sources) {
			s := streaming()
			s.src = *src
			s.restarted(c.v)
			*src = s.src
		}), c.sources)
	}
}

func TestAPlaneThatTakesAQuadPlanesPlaceIsOne(t *testing.T) {
	beat := copterBeat()
	beat.Type = common.MAV_TYPE_FIXED_WING
	tel := telemetryAfter(beat, &common.MessageExtendedSysState{VtolState: common.MAV_VTOL_STATE_MC})
	lineEqual(t, "before", tel.id.firmware(), quadPlane)
	tel.replace()
	lineEqual(t, "another vehicle", tel.id.firmware(), plane)
}

// PX4's first SYS_STATUS after a boot has no sensor.
func TestASysStatusWithoutSensorsEndsWhatAnEarlierOneSaid(t *testing.T) {
	ready := &common.MessageSysStatus{OnboardControlSensorsPresent: 1, OnboardControlSensorsEnabled: 1,
		OnboardControlSensorsHealth: 1 | common.MAV_SYS_STATUS_PREARM_CHECK}
	home := &common.MessageHomePosition{Altitude: 488000}
	for _, c := range []struct {
		said []message.Message
		want bool
	}{
		{[]message.Message{px4Beat(), home, ready}, true},
		{[]message.Message{px4Beat(), home, ready, &common.MessageSysStatus{OnboardControlSensorsHealth: 1}}, false},
	} {
		armable, _ := telemetryAfter(c.said...).armable(time.Unix(1000, 0), false, false)
		lineEqual(t, "it is known whether it can be armed", armable != nil, c.want)
	}
}

// The numbers are those of the haversine formula on a sphere of 6,371 km.
func TestADistanceIsTrueFromCentimetresToTheOtherSide(t *testing.T) {
	for _, c := range []struct {
		lat1, lon1, lat2, lon2 float64
		want                   float64 // metres
	}{
		{47.3977421, 8.5455938, 47.3977421, 8.5455938, 0},
		{47.3977421, 8.5455938, 47.3977422, 8.5455938, 0.0111},
		{0, 0, 0, 1, 111194.9266},
		{0, 179.5, 0, -179.5, 111194.9266},
		{60, 8, 60, 9, 55596.9},     // half as far as on the equator
		{89.9, 0, 89.9, 180, 22239}, // over the pole
		{90, 0, -90, 0, 20015086.8},
		{-42.9539523, 121.8920525, 42.9539523, -58.107947499999995, 20015086.8}, // h is a little more than 1
		{47.3977421, 8.5455938, -47.3977421, -171.4544062, 20015086.8},
	} {
		got := distance(c.lat1, c.lon1, c.lat2, c.lon2)
		if !differsLittle(got, c.want, c.want*1e-4+1e-4) {
			t.Errorf("from %g, %g to %g, %g: %g m, want %g", c.lat1, c.lon1, c.lat2, c.lon2, got, c.want)
		}
	}
	lineEqual(t, "to an unknown place it is known", !math.IsNaN(distance(math.NaN(), 1, 2, 3)), false)
}

// One battery at a time: never one's voltage beside another's percent.
func TestTheStatusShowsTheWorstBatteryAndNoOther(t *testing.T) {
	sys := func(mv uint16, ca int16, percent int8) message.Message {
		return &common.MessageSysStatus{VoltageBattery: mv, CurrentBattery: ca, BatteryRemaining: percent}
	}
	battery := func(id uint8, ca int16, percent int8, mv ...uint16) *common.MessageBatteryStatus {
		return &common.MessageBatteryStatus{Id: id, CurrentBattery: ca, BatteryRemaining: percent,
			Voltages: cells(mv...)}
	}
	more := func(b *common.MessageBatteryStatus, ext ...uint16) message.Message {
		copy(b.VoltagesExt[:], ext)
		return b
	}
	for _, c := range []struct {
		name string
		said []message.Message
		want string
	}{
		{"only SYS_STATUS", []message.Message{copterBeat(), sys(16200, 1234, 99)}, "16.20 V 12.34 A 99 %"},
		{"only BATTERY_STATUS", []message.Message{copterBeat(), battery(0, 500, 55, 4000, 4000, 4000)},
			"12.00 V 5.00 A 55 %"},
		{"no current, and full", []message.Message{copterBeat(), battery(0, 0, 100, 4194)}, "4.19 V 0.00 A 100 %"},
		{"one battery: SYS_STATUS's voltage", []message.Message{copterBeat(), battery(0, 500, 55, 12000),
			sys(12100, 490, 54)}, "12.10 V 4.90 A 54 %"},
		{"over 65.5 V: SYS_STATUS runs over", []message.Message{copterBeat(), battery(0, 500, 55, 65534, 66),
			sys(64, 490, 55)}, "65.60 V 4.90 A 55 %"},
		{"over 65.5 V: SYS_STATUS is full", []message.Message{copterBeat(), sys(65535, 490, 55),
			battery(0, 500, 55, 65534, 8866)}, "74.40 V 4.90 A 55 %"},
		{"over 131 V", []message.Message{copterBeat(), sys(65535, 490, 55), battery(0, 500, 55, 65534, 65534, 100)},
			"131.17 V 4.90 A 55 %"},
		{"just below", []message.Message{copterBeat(), battery(0, 500, 55, 65500), sys(65300, 490, 55)},
			"65.30 V 4.90 A 55 %"},
		{"SYS_STATUS without a voltage", []message.Message{copterBeat(), sys(65535, -1, -1),
			battery(0, 500, 55, 4000, 4000)}, "8.00 V 5.00 A 55 %"},
		{"14 cells", []message.Message{copterBeat(), sys(65535, 490, 55),
			more(battery(0, 500, 55, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000), 4000, 4000, 4000,
				4000)}, "56.00 V 4.90 A 55 %"},
		{"11 cells", []message.Message{copterBeat(), sys(65535, 490, 55),
			more(battery(0, 500, 55, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000), 4000,
				math.MaxUint16)}, "44.00 V 4.90 A 55 %"},
		{"cells that are unknown", []message.Message{copterBeat(), battery(0, 500, 55), sys(12100, 490, 54)},
			"12.10 V 4.90 A 54 %"},
		{"no voltage anywhere", []message.Message{copterBeat(), battery(0, -1, -1), sys(65535, -1, -1)},
			"NaN V NaN A NaN %"},
		{"no percentage", []message.Message{copterBeat(), sys(12100, 490, 101)}, "12.10 V 4.90 A NaN %"},
		{"ArduPilot's second is the worst", []message.Message{copterBeat(), sys(16000, 1000, 80),
			battery(0, 1000, 80, 16000), battery(1, 50, 4, 10500)}, "10.50 V 0.50 A 4 %"},
		{"in any order", []message.Message{copterBeat(), battery(1, 50, 4, 10500), battery(0, 1000, 80, 16000),
			sys(16000, 1000, 80)}, "10.50 V 0.50 A 4 %"},
		{"its voltage is unknown", []message.Message{copterBeat(), battery(1, 50, 4), battery(0, 1000, 80, 16000),
			sys(16000, 1000, 80)}, "NaN V 0.50 A 4 %"},
		{"ArduPilot's first is the worst", []message.Message{copterBeat(), battery(0, 1000, 20, 16000),
			battery(1, 50, 40, 10500), sys(16100, 990, 20)}, "16.10 V 9.90 A 20 %"},
		{"one whose charge is unknown is not the worst",
			[]message.Message{copterBeat(), battery(0, 1000, -1, 5000), battery(1, 50, 40, 10500),
				battery(2, 10, 101, 4000), sys(5000, 990, -1)}, "10.50 V 0.50 A 40 %"},
		{"the charge of both is unknown", []message.Message{copterBeat(), battery(0, 1000, -1, 16000),
			battery(1, 50, -1, 10500), sys(16100, 990, -1)}, "16.00 V 10.00 A NaN %"},
		{"of two that have as much the first", []message.Message{copterBeat(), battery(0, 1000, 40, 16000),
			battery(1, 50, 40, 10500)}, "16.00 V 10.00 A 40 %"},
		{"a worse one recovers", []message.Message{copterBeat(), battery(1, 50, 4, 10500), battery(0, 1000, 80, 16000),
			battery(1, 50, 90, 12500), sys(16100, 990, 80)}, "16.10 V 9.90 A 80 %"},
		{"PX4's SYS_STATUS is about the worst", []message.Message{px4Beat(), battery(0, 1000, 80, 16000),
			battery(1, 50, 5), sys(10400, 51, 4)}, "10.40 V 0.51 A 4 %"},
	} {
		lineEqual(t, c.name, showBattery(telemetryAfter(c.said...)), c.want)
	}
}

func TestABatteryThatIsNotReportedAnyMoreDoesNotShow(t *testing.T) {
	tel, now := newTelemetry(), time.Unix(1000, 0)
	sys := &common.MessageSysStatus{VoltageBattery: 16000, CurrentBattery: 1000, BatteryRemaining: 80}
	tel.hear(copterBeat(), now)
	tel.hear(&common.MessageBatteryStatus{Id: 1, CurrentBattery: 50, BatteryRemaining: 4, Voltages: cells(10500)}, now)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{batteryFor, "10.50 V 0.50 A 4 %"}, {batteryFor + 1, "16.00 V 10.00 A 80 %"}} {
		tel.hear(&common.MessageBatteryStatus{CurrentBattery: 1000, BatteryRemaining: 80, Voltages: cells(16000)},
			now.Add(c.after))
		tel.hear(sys, now.Add(c.after))
		lineEqual(t, fmt.Sprint(c.after, " later"), showBattery(&tel), c.want)
	}
}

// The flags are EKF_STATUS_FLAGS. A Copter that flies by optical flow has a relative position.
func TestAPositionIsAbsoluteOrRelativeAndOnTheGroundForetold(t *testing.T) {
	for _, c := range []struct {
		name            string
		flags           uint16
		disarmed, armed bool
	}{
		{"none", 0, false, false},
		{"before the first fix", 167, false, false},
		{"a GPS", 831, true, true},
		{"a GPS, and the position is held constant", 831 | 128, true, false},
		{"optical flow on the ground", 423, true, false},
		{"optical flow in the air", 303, true, true},
		{"absolute", 16, true, true},
		{"relative", 8, true, true},
		{"relative, held constant", 8 | 128, false, false},
		{"absolute, foretold", 512, true, false},
		{"relative, foretold", 256, true, false},
		{"only heights and speeds", 1 | 2 | 4 | 32 | 64, false, false},
		{"a GPS that jumps, and an EKF that has not begun", 1024 | 32768, false, false},
	} {
		e := estimate{flags: c.flags}
		lineEqual(t, c.name+", disarmed", e.positioned(false), c.disarmed)
		lineEqual(t, c.name+", armed", e.positioned(true), c.armed)
	}
}

func TestAGPSThatJumpsIsUnhealthyAndADoneSaysIt(t *testing.T) {
	tel := telemetryAfter(copterBeat(), &common.MessageSysStatus{OnboardControlSensorsPresent: 1},
		&MessageEkfStatusReport{Flags: 831 | 1<<15})
	at := time.Unix(1000, 0)
	lineEqual(t, "unhealthy", fmt.Sprint(tel.unhealthy(at)), "[gps_glitch]")
	lineEqual(t, "unhealthy, 2 s later", fmt.Sprint(tel.unhealthy(at.Add(2*time.Second))), "[gps_glitch]")
	lineEqual(t, "unhealthy, 3 s later", fmt.Sprint(tel.unhealthy(at.Add(3*time.Second))), "[]")
	early := telemetryAfter(copterBeat(), &MessageEkfStatusReport{Flags: 1 << 15})
	lineEqual(t, "it is known before the first SYS_STATUS", early.unhealthy(at) != nil, false)
	place := &place{47.3977419, 8.5455938, 10, 498}
	for _, c := range []struct {
		r    request
		want string
	}{
		{request{verb: goesTo}, "a GPS glitch"},
		{request{verb: entersMode, mode: ModeHold}, ""},
	} {
		m := manoeuvre{request: c.r, plan: plan{destination: place}, over: make(chan struct{})}
		m.watch(seen(func(v *view) { v.glitches, v.place.lat = true, 47.4 }))
		lineEqual(t, "it is done elsewhere", m.done, false)
		m.watch(seen(func(*view) {}))
		lineEqual(t, "it is done", m.done, true)
		if (m.note == "") != (c.want == "") || !strings.Contains(m.note, c.want) {
			t.Errorf("the note is %q, want %q in it", m.note, c.want)
		}
	}
}

func TestWhatKeepsItFromArmingIsNamed(t *testing.T) {
	const (
		gps      = common.MAV_SYS_STATUS_SENSOR_GPS
		receiver = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
		prearm   = common.MAV_SYS_STATUS_PREARM_CHECK
	)
	sys := func(enabled, healthy common.MAV_SYS_STATUS_SENSOR) message.Message {
		return &common.MessageSysStatus{OnboardControlSensorsPresent: enabled, OnboardControlSensorsEnabled: enabled,
			OnboardControlSensorsHealth: healthy}
	}
	ekf := func(flags uint16) message.Message { return &MessageEkfStatusReport{Flags: flags} }
	home := &common.MessageHomePosition{Altitude: 488000}
	for _, c := range []struct {
		name string
		said []message.Message
		want string
	}{
		{"ArduPilot is ready", []message.Message{copterBeat(), home, sys(gps|prearm, gps|prearm), ekf(831)}, "true []"},
		{"ArduPilot has no position", []message.Message{copterBeat(), home, sys(gps|prearm, gps|prearm), ekf(167)},
			"false [position_estimate]"},
		{"its check fails, and nothing is unhealthy",
			[]message.Message{copterBeat(), home, sys(gps|prearm, gps), ekf(831)}, "false [prearm_check]"},
		{"its check fails for its GPS", []message.Message{copterBeat(), home, sys(gps|prearm, 0), ekf(831)},
			"false []"},
		{"its check fails, and its position is unknown",
			[]message.Message{copterBeat(), home, sys(gps|prearm, gps)}, "false [prearm_check]"},
		{"both", []message.Message{copterBeat(), home, sys(gps|prearm, gps), ekf(167)},
			"false [prearm_check position_estimate]"},
		{"a receiver is no reason", []message.Message{copterBeat(), home, sys(gps|receiver|prearm, gps), ekf(831)},
			"false [prearm_check]"},
		{"ArduPilot by optical flow, without an origin",
			[]message.Message{copterBeat(), sys(gps|prearm, gps|prearm), ekf(367)}, "false [home_position]"},
		{"PX4 is ready", []message.Message{px4Beat(), home, sys(gps, gps|prearm)}, "true []"},
		{"PX4 has no home", []message.Message{px4Beat(), sys(gps, gps|prearm)}, "false [home_position]"},
		{"PX4's check fails, and nothing is unhealthy", []message.Message{px4Beat(), home, sys(gps, gps)},
			"false [prearm_check]"},
		{"an ArduPilot that has no check before arming",
			[]message.Message{copterBeat(), home, sys(gps, gps), ekf(831)}, "null []"},
		{"that, and it has no position", []message.Message{copterBeat(), home, sys(gps, gps), ekf(167)}, "null []"},
		{"an ArduPilot whose checks are switched off", []message.Message{copterBeat(), home,
			&common.MessageSysStatus{OnboardControlSensorsPresent: gps | prearm, OnboardControlSensorsEnabled: gps,
				OnboardControlSensorsHealth: gps}, ekf(831)}, "null []"},
	} {
		tel := telemetryAfter(c.said...)
		_, lacks := tel.armable(time.Unix(1000, 0), false, false)
		lineEqual(t, c.name, fmt.Sprint(showArmable(tel, time.Unix(1000, 0)), " ", lacks), c.want)
	}
}

// MAVLink's fields hold more than the status has a word or a range for.
func TestAValueOutOfItsRangeIsUnknown(t *testing.T) {
	position := func(lat, lon int32, heading uint16) message.Message {
		return &common.MessageGlobalPositionInt{Lat: lat, Lon: lon, Alt: 500000, Hdg: heading}
	}
	attitude := func(roll, pitch, yaw float32) message.Message {
		return &common.MessageAttitude{Roll: roll, Pitch: pitch, Yaw: yaw}
	}
	state := func(state minimal.MAV_STATE) message.Message {
		m := beatOf(common.MAV_AUTOPILOT_PX4, 7, true)
		m.SystemStatus = state
		return m
	}
	const half, inf = float32(math.Pi), float32(math.MaxFloat32)
	showHome := func(t *telemetry) string { return fmt.Sprint(t.home.received(), t.home.lat, t.home.lon) }
	home := func(lat, lon int32) message.Message {
		return &common.MessageHomePosition{Latitude: lat, Longitude: lon}
	}
	target := func(lat, lon int32, alt float32) message.Message {
		return &common.MessagePositionTargetGlobalInt{LatInt: lat, LonInt: lon, Alt: alt}
	}
	for _, c := range []struct {
		what string
		show func(*telemetry) string
		said message.Message
		want string
	}{
		{"a latitude", showPlace, position(900000001, 85455938, 0), "NaN NaN, 0.00 up, NaN AMSL, heading 0.00"},
		{"a longitude", showPlace, position(473977419, -1800000001, 0), "NaN NaN, 0.00 up, NaN AMSL, heading 0.00"},
		{"no place", showPlace, position(math.MaxInt32, math.MinInt32, 0), "NaN NaN, 0.00 up, NaN AMSL, heading 0.00"},
		{"the pole", showPlace, position(-900000000, 1800000000, 36000),
			"-90.0000000 180.0000000, 0.00 up, 500.00 AMSL, heading 360.00"},
		{"a heading", showPlace, position(1, 1, 36001), "0.0000001 0.0000001, 0.00 up, 500.00 AMSL, heading NaN"},
		{"half turns", showAttitude, attitude(half, -half/2, -half), "roll 180.0 pitch -90.0 yaw 180.0"},
		{"a roll", showAttitude, attitude(3.2, 0, 0), "roll NaN pitch 0.0 yaw 0.0"},
		{"a pitch", showAttitude, attitude(0, -1.6, 0), "roll 0.0 pitch NaN yaw 0.0"},
		{"a yaw", showAttitude, attitude(0, 0, 6.3), "roll 0.0 pitch 0.0 yaw NaN"},
		{"a whole turn", showAttitude, attitude(0, 0, -6.2832), "roll 0.0 pitch 0.0 yaw 360.0"},
		{"huge angles", showAttitude, attitude(inf, -inf, inf), "roll NaN pitch NaN yaw NaN"},
		{"an infinite climb", showVelocity, &common.MessageVfrHud{Airspeed: float32(math.Inf(1)),
			Climb: float32(math.Inf(-1))}, "north NaN east NaN down NaN, ground NaN, air NaN, climb NaN"},
		{"a home", showHome, home(473977419, 85455938), "true 47.3977419 8.5455938"},
		{"a home elsewhere", showHome, home(900000001, 0), "false NaN NaN"},
		{"a home elsewhere, too", showHome, home(0, math.MinInt32), "false NaN NaN"},
		{"a target elsewhere", showTarget, target(math.MaxInt32, math.MaxInt32, 500), "NaN NaN 500"},
		{"a target infinitely high", showTarget, target(0, 0, float32(math.Inf(1))), "0 0 NaN"},
		{"an unknown state is no failsafe", showBeat, state(9), " critical false"},
		{"neither is another one", showBeat, state(255), " critical false"},
		{"neither is a poweroff", showBeat, state(minimal.MAV_STATE_POWEROFF), "poweroff critical false"},
		{"what says that there are extended bits is no system", showHealth, &common.MessageSysStatus{
			OnboardControlSensorsPresent: 1 << 31, OnboardControlSensorsEnabled: 1 << 31},
			"known true, armable null, receiver false, unhealthy []"},
	} {
		lineEqual(t, c.what, c.show(telemetryAfter(c.said)), c.want)
	}
	lineEqual(t, "an autopilot without a name", autopilotName(200), "")
	lineEqual(t, "ArduPilot's name", autopilotName(common.MAV_AUTOPILOT_ARDUPILOTMEGA), "ardupilot")
}

// Both of PX4's beginnings count, though "Preflight Fail: …" keeps it from arming and "Preflight: …"
// only warns: seen on 1.17.0 without GPS.
func TestTheTextsOfTheChecksAreKnownByTheirBeginnings(t *testing.T) {
	for text, want := range map[string]bool{
		"Preflight Fail: vertical velocity unstable": true, "Preflight: GPS fix too low": true,
		"PreArm: Need Position Estimate": true, "Arm: LAND mode not armable": true,
		"Arming denied: Resolve system health failures first": false, "Armed by external command": false,
	} {
		if got := (statusText{text: text}).ofChecks(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// The places are those of GeographicLib's geodesics on WGS84 (Karney): metres by the azimuth and the length of their
// line. What comes out is within 1 cm of it for each 100 m.
func TestMetresLeadAlongTheEarthsEllipsoid(t *testing.T) {
	for _, c := range []struct{ lat, lon, north, east, wantLat, wantLon float64 }{
		{0, 0, 100, 0, 0.000904369, 0.000000000},
		{0, 0, 0, 100, 0.000000000, 0.000898315},
		{0, 0, 1000, 1000, 0.009043695, 0.008983153},
		{0, 0, -1000, 1000, -0.009043695, 0.008983153},
		{0, 0, -70.5, -30.25, -0.000637580, -0.000271740},
		{0, 0, 0, -1000, 0.000000000, -0.008983153},
		{47.3977421, 8.5455938, 100, 0, 47.398641554, 8.545593800},
		{47.3977421, 8.5455938, 0, 100, 47.397742092, 8.546918483},
		{47.3977421, 8.5455938, 1000, 1000, 47.406735864, 8.558842887},
		{47.3977421, 8.5455938, -1000, 1000, 47.388746791, 8.558838379},
		{47.3977421, 8.5455938, -70.5, -30.25, 47.397107984, 8.545193088},
		{47.3977421, 8.5455938, 0, -1000, 47.397741335, 8.532346967},
		{60, -179.9999, 100, 0, 60.000897567, -179.999900000},
		{60, -179.9999, 0, 100, 59.999999988, -179.998107885},
		{60, -179.9999, 1000, 1000, 60.008974448, -179.981973998},
		{60, -179.9999, -1000, 1000, 59.991023108, -179.981983707},
		{60, -179.9999, -70.5, -30.25, 59.999367214, 179.999557896},
		{60, -179.9999, 0, -1000, 59.999998784, 179.982178854},
		{-89, -170, 100, 0, -88.999104694, -170.000000000},
		{-89, -170, 0, 100, -88.999999599, -169.948700250},
		{-89, -170, 1000, 1000, -88.991007220, -169.491567380},
		{-89, -170, -1000, 1000, -89.008912626, -169.482382532},
		{-89, -170, -70.5, -30.25, -89.000631154, -170.015527978},
		{-89, -170, 0, -1000, -88.999959926, -170.512983931},
		{89.995, 0, 100, 0, 89.995895303, 0.000000000},
		{89.995, 0, 0, 100, 89.994920476, 10.151835187},
		{89.995, 0, 1000, 1000, 89.990213106, 113.822902061},
		{89.995, 0, -1000, 1000, 89.983421581, 32.686463211},
		{89.995, 0, -70.5, -30.25, 89.994362302, -2.753490824},
		{89.995, 0, 0, -1000, 89.989745400, -60.817956462},
		{90, 0, 100, 0, 89.999104697, 180.000000000},
		{90, 0, 0, 100, 89.999104697, 90.000000000},
		{90, 0, 1000, 1000, 89.987338498, 135.000000000},
		{90, 0, -1000, 1000, 89.987338498, 45.000000000},
		{90, 0, -70.5, -30.25, 89.999313161, -23.223107320},
		{90, 0, 0, -1000, 89.991046966, -90.000000000},
	} {
		lat, lon := displaced(c.lat, c.lon, c.north, c.east)
		off := math.Hypot((lat-c.wantLat)*111_700,
			math.Remainder(lon-c.wantLon, 360)*111_700*math.Cos(c.wantLat*math.Pi/180))
		if metres := math.Hypot(c.north, c.east); !(off <= metres/10_000) {
			t.Errorf("%g m north and %g m east of %g, %g come to %.9f, %.9f, %.3f m off", c.north, c.east, c.lat, c.lon,
				lat, lon, off)
		}
		if !onEarth(lat, lon) {
			t.Errorf("%.9f, %.9f is not on earth", lat, lon)
		}
	}
}
