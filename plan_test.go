package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The vehicle of the plans: 10 m over a home at 488.5 m AMSL when it flies.
const (
	testLat, testLon = 47.3977421, 8.5455938
	testHome         = 488.5
)

// parseVehicle reads a vehicle: its firmware, its mode, and what is the case. It
// stands still, with a velocity that is fresh.
func parseVehicle(t *testing.T, s string) vehicle {
	t.Helper()
	nan := math.NaN()
	w := strings.Fields(s)
	v := vehicle{at: place{testLat, testLon, 0}, amsl: testHome, heading: 90, homeAMSL: testHome, landed: onGround}
	v.set = settings{guidedHovers: nan, cruise: 10}
	v.firmware = map[string]firmware{"px4": px4, "copter": copter, "quadplane": quadPlane, "plane": plane, "rover": firmwareUnknown}[w[0]]
	if v.firmware != firmwareUnknown {
		v.custom = numberOf(t, v.firmware, w[1])
	}
	for _, flag := range w[2:] {
		flag, value, _ := strings.Cut(flag, "=")
		var n [3]float64
		for i, s := range strings.Split(value, "/") {
			if x, err := strconv.ParseFloat(s, 64); err == nil {
				n[i] = x
			}
		}
		switch flag {
		case "landed": // and disarmed
		case "armed":
			v.armed = true
		case "flying":
			v.armed, v.landed, v.amsl, v.at.altitude = true, landedState(common.MAV_LANDED_STATE_IN_AIR), testHome+10, 10
		case "climbing":
			v.landed = landedState(common.MAV_LANDED_STATE_TAKEOFF)
		case "landing":
			v.landed = landedState(common.MAV_LANDED_STATE_LANDING)
		case "undefined": // whether it is on the ground
			v.landed = landedState(common.MAV_LANDED_STATE_UNDEFINED)
		case "failsafe":
			v.failsafe = true
		case "uphill": // of its home
			v.amsl, v.at.altitude = testHome+6.5, 6.5
		case "homeless":
			v.homeAMSL = nan
		case "headless":
			v.heading = nan
		case "blind": // without GPS
			v.at, v.amsl, v.heading = place{nan, nan, nan}, nan, nan
		case "moves": // north/east/down, in m/s
			v.velocity = motion{n[0], n[1], n[2]}
		case "stale": // its velocity
			v.velocity = motion{nan, nan, nan}
		case "to": // lat/lon/altitude of a goto
			v.target = &place{n[0], n[1], n[2]}
		case "hovers": // in GUIDED
			v.set.guidedHovers = 1
		case "circles":
			v.set.guidedHovers = 0
		case "wing":
			v.wing = true
		case "sped": // up, by a goto from here
			v.set.spedUp, v.set.cruise = true, 7.5
		case "streams": // the sticks of a stick mode
			v.streams = true
		case "away": // from the centre
			v.away = true
		default:
			t.Fatalf("%s: what is %q?", s, flag)
		}
	}
	return v
}

// parseRequest reads a request: "takeoff", "goto" or "land" for those routes,
// "set" for POST mode, and its fields.
func parseRequest(t *testing.T, s string) request {
	t.Helper()
	w := strings.Fields(s)
	var r request
	switch w[0] {
	case "takeoff":
		r.setMode, r.mode = true, ModeTakeoff
	case "goto":
		r.setMode, r.mode, r.goTo = true, ModeHold, true
	case "land":
		r.setMode, r.mode = true, ModeLand
	case "set":
	default:
		t.Fatalf("no such request: %q", s)
	}
	numbers := map[string]**float64{"lat": &r.lat, "lon": &r.lon, "altitude": &r.altitude, "altitude_msl": &r.altitudeMSL, "heading": &r.heading, "speed": &r.speed}
	for _, field := range w[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "mode":
			r.setMode, r.mode = true, modeNamed(t, value)
		case "arm":
			arm := value == "true"
			r.arm = &arm
		default:
			x, err := strconv.ParseFloat(value, 64)
			if err != nil || numbers[key] == nil {
				t.Fatalf("%s: %q: %v", s, field, err)
			}
			*numbers[key] = &x
		}
	}
	return r
}

// describe writes a step as the tables have it: "INT" or "LONG", the MAV_CMD
// number, the parameters. "…0" and "…NaN" say that all the others are that.
func describe(s *step) string {
	params := func(p []float32) string {
		end := len(p)
		for end > 0 && fmt.Sprint(p[end-1]) == fmt.Sprint(p[len(p)-1]) {
			end--
		}
		var words []string
		if rest := p[end:]; len(rest) > 1 {
			words = append(words, "…"+fmt.Sprint(rest[0]))
			p = p[:end]
		}
		all := ""
		for _, x := range p {
			all += fmt.Sprint(x) + " "
		}
		return "[" + strings.TrimSpace(all+strings.Join(words, "")) + "]"
	}
	var text string
	if s.asInt {
		words := make([]string, 4)
		for i := range words {
			words[i] = fmt.Sprint(s.p[i])
		}
		text = fmt.Sprintf("INT %d frame=%d [%s] x=%d y=%d z=%v", s.cmd, s.frame, strings.Join(words, " "), s.x, s.y, s.p[6])
	} else {
		text = fmt.Sprintf("LONG %d %s", s.cmd, params(s.p[:]))
	}
	if s.undo != nil {
		text += " undo " + describe(s.undo)
	}
	return text
}

// describeSteps writes a plan's commands, or why there is none.
func describeSteps(p plan, err error) []string {
	var ce *commandError
	switch {
	case errors.As(err, &ce):
		return []string{string(ce.code) + ": " + ce.text}
	case err != nil:
		return []string{err.Error()}
	}
	var lines []string
	for i := range p.steps {
		s := &p.steps[i]
		way := ""
		switch {
		case s.through:
			way = "through: "
		case s.wish:
			way = "if it can: "
		}
		lines = append(lines, way+describe(s))
	}
	if p.second != nil {
		lines = append(lines, "over it: "+describe(p.second))
	}
	return lines
}

// planRow is a vehicle, a request, and the commands that carry it out.
type planRow struct {
	vehicle, request string
	want             []string
}

func testPlans(t *testing.T, rows []planRow) {
	for _, r := range rows {
		t.Run(r.vehicle+": "+r.request, func(t *testing.T) {
			got := describeSteps(parseRequest(t, r.request).plan(parseVehicle(t, r.vehicle)))
			if !slices.Equal(got, r.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(r.want, "\n\t"))
			}
		})
	}
}

const (
	notFlying   = "refused: not flying: take off first"
	fixedWing   = "unsupported: land: a fixed wing lands by a mission, not by a command"
	unknownKind = "unsupported: this autopilot is neither PX4 nor ArduPilot Copter or Plane: its state can be read, not commanded"
)

// TestPX4Plans: places and heights in DO_REPOSITION and NAV_TAKEOFF are AMSL
// whatever the frame says, yaw is in radians, unset is NaN.
func TestPX4Plans(t *testing.T) {
	const (
		back    = " undo LONG 176 [1 1 0 …NaN]" // MANUAL
		backPos = " undo LONG 176 [1 3 0 …NaN]" // POSCTL
		backRTL = " undo LONG 176 [1 4 5 …NaN]"
		here    = "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=498.5"
	)
	testPlans(t, []planRow{
		{"px4 MANUAL landed", "set mode=manual", []string{"LONG 176 [1 1 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN]" + back}},
		{"px4 MANUAL landed", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]" + back}},
		{"px4 MANUAL landed", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]" + back}},
		{"px4 MANUAL landed", "set mode=rtl", []string{"LONG 176 [1 4 5 …NaN]" + back}},
		{"px4 MANUAL landed", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]" + back}}, // it refuses 4,7
		{"px4 MANUAL landed", "set mode=land", []string{"LONG 21 […NaN]" + back}},
		{"px4 MANUAL landed", "set mode=takeoff", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=manual", []string{"LONG 176 [1 1 0 …NaN]" + backPos}},
		{"px4 POSCTL flying", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN]" + backPos}},
		{"px4 POSCTL flying", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=hold", []string{here + backPos}},
		{"px4 POSCTL flying stale", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]" + backPos}},
		{"px4 POSCTL flying blind", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]" + backPos}},
		{"px4 POSCTL flying streams", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]" + backPos}}, // it stood for 2 s
		{"px4 POSCTL flying", "set mode=rtl", []string{"LONG 176 [1 4 5 …NaN]" + backPos}},
		{"px4 POSCTL flying", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]" + backPos}},
		{"px4 AUTO.RTL flying", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]"}},
		{"px4 POSCTL.SLOW flying", "set mode=hold", []string{here + " undo LONG 176 [1 3 2 …NaN]"}},

		{"px4 MANUAL landed", "set arm=true", []string{"LONG 400 [1 0 …NaN]"}},
		{"px4 MANUAL armed", "set arm=false", []string{"LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=position arm=true", []string{"LONG 176 [1 3 0 …NaN]" + back, "LONG 400 [1 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=hold arm=false", []string{"LONG 176 [1 4 3 …NaN]" + back, "LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=takeoff arm=true", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=land arm=false", []string{"refused: arm: not while flying; the mode was not set either"}},

		{"px4 MANUAL landed", "takeoff", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "takeoff altitude=25", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 513.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL armed", "takeoff", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back}},
		{"px4 POSCTL flying", "takeoff altitude=30", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 518.5]" + backPos}},
		{"px4 POSCTL flying", "takeoff", []string{"refused: altitude: the vehicle is already 10.0 m above home"}},
		{"px4 MANUAL landed uphill", "takeoff altitude=5", []string{"refused: altitude: the vehicle is already 6.5 m above home"}},
		{"px4 MANUAL landed uphill", "takeoff", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed homeless", "takeoff altitude=20", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 508.5]" + back, "LONG 400 [1 0 …NaN] undo LONG 400 [0 0 …NaN]"}},
		{"px4 POSCTL flying homeless", "takeoff altitude=20", []string{"refused: takeoff: the autopilot has no home position yet; wait for its GPS"}},
		{"px4 MANUAL landed homeless blind", "takeoff", []string{"refused: takeoff: the autopilot has no home position yet; wait for its GPS"}},

		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=508.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude_msl=600", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=600" + backPos}},
		{"px4 POSCTL flying", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5" + backPos}},
		{"px4 POSCTL flying", "goto altitude=-3", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=485.5" + backPos}},
		{"px4 POSCTL flying", "goto altitude_msl=0", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=0" + backPos}},
		{"px4 POSCTL flying", "goto heading=0", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto heading=180", []string{"INT 192 frame=0 [-1 1 0 3.1415927] x=473977421 y=85455938 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto heading=270", []string{"INT 192 frame=0 [-1 1 0 -1.5707964] x=473977421 y=85455938 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto heading=360", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=-33.8688 lon=151.2093 altitude=20 heading=45 speed=5", []string{"INT 192 frame=0 [5 1 0 0.7853982] x=-338688000 y=1512093000 z=508.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=-90 lon=-180", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=-900000000 y=-1800000000 z=498.5" + backPos}},
		{"px4 POSCTL flying", "goto lat=32.8 lon=8.5460009", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=328000000 y=85460009 z=498.5" + backPos}},
		{"px4 POSCTL flying headless", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5" + backPos}},
		{"px4 POSCTL armed climbing", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5" + backPos}},
		{"px4 POSCTL armed undefined", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5" + backPos}},
		{"px4 POSCTL flying homeless", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=498.5" + backPos}},
		{"px4 POSCTL flying homeless", "goto altitude_msl=520", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=520" + backPos}},
		{"px4 POSCTL flying homeless", "goto altitude=20", []string{"refused: altitude: the autopilot has no home position yet; give altitude_msl, or wait for its GPS"}},
		{"px4 POSCTL flying blind", "goto altitude=20", []string{"refused: the autopilot has no position yet: give lat and lon, or wait for its GPS"}},
		{"px4 POSCTL flying blind", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=508.5" + backPos}},
		{"px4 MANUAL landed", "goto lat=47.398 lon=8.546 altitude=20", []string{notFlying}},
		{"px4 POSCTL armed", "goto lat=47.398 lon=8.546 altitude=20", []string{notFlying}},

		// Only DO_SET_MODE ends a failsafe.
		{"px4 AUTO.LOITER flying failsafe", "goto altitude=20", []string{"LONG 176 [1 4 3 …NaN]", "INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5 undo LONG 176 [1 4 3 …NaN]"}},
		{"px4 AUTO.RTL flying failsafe", "goto altitude=20", []string{"LONG 176 [1 4 3 …NaN]" + backRTL, "INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5" + backRTL}},
		{"px4 AUTO.RTL flying failsafe", "land lat=47.398 lon=8.546", []string{"LONG 176 [1 4 3 …NaN]" + backRTL, "INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5" + backRTL, "over it: LONG 21 […NaN]"}},
		{"px4 AUTO.RTL flying failsafe", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]" + backRTL, here + backRTL}},

		{"px4 POSCTL flying", "land", []string{"LONG 21 […NaN]" + backPos}},
		{"px4 AUTO.LAND flying landing", "land", []string{"LONG 21 […NaN] undo LONG 176 [1 4 6 …NaN]"}},
		{"px4 POSCTL flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5" + backPos, "over it: LONG 21 […NaN]"}},
		{"px4 POSCTL flying homeless", "land lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5" + backPos, "over it: LONG 21 […NaN]"}},
		{"px4 MANUAL landed", "land lat=47.398 lon=8.546", []string{notFlying}},

		// Asking again for the mode it is in would leave a goto's target standing.
		{"px4 AUTO.LOITER flying", "set mode=hold", []string{here + " undo LONG 176 [1 4 3 …NaN]"}},
		{"px4 AUTO.LOITER flying blind", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]"}},
		{"px4 AUTO.LOITER landed", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]"}},
		{"px4 AUTO.LOITER armed", "set mode=hold", []string{"LONG 176 [1 4 3 …NaN]"}},
	})
}

// TestCopterPlans: heights are above home in frame 3 unless told AMSL, NAV_TAKEOFF
// is a COMMAND_LONG in GUIDED after arming, speed and yaw go after a goto, unset
// is 0.
func TestCopterPlans(t *testing.T) {
	const (
		back     = " undo LONG 176 [1 …0]" // STABILIZE
		backHere = " undo INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10"
		backPos  = " undo LONG 176 [1 5 …0]"     // LOITER
		yaw      = "if it can: LONG 115 [90 …0]" // as it is
	)
	testPlans(t, []planRow{
		{"copter STABILIZE landed", "set mode=manual", []string{"LONG 176 [1 …0]"}},
		{"copter STABILIZE landed", "set mode=altitude", []string{"LONG 176 [1 2 …0]" + back}},
		{"copter STABILIZE landed", "set mode=position", []string{"LONG 176 [1 5 …0]" + back}},
		{"copter STABILIZE landed", "set mode=hold", []string{"LONG 176 [1 4 …0]" + back}},
		{"copter STABILIZE landed", "set mode=rtl", []string{"LONG 176 [1 6 …0]" + back}},
		{"copter STABILIZE landed", "set mode=rtgs", []string{"LONG 176 [1 6 …0]" + back}},
		{"copter STABILIZE landed", "set mode=land", []string{"LONG 21 […0]" + back}},
		{"copter STABILIZE landed", "set mode=takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter LOITER flying", "set mode=manual", []string{"LONG 176 [1 …0]" + backPos}},
		{"copter LOITER flying", "set mode=altitude", []string{"LONG 176 [1 2 …0]" + backPos}},
		{"copter LOITER flying", "set mode=position", []string{"LONG 176 [1 5 …0]"}},
		{"copter POSHOLD flying", "set mode=position", []string{"LONG 176 [1 5 …0] undo LONG 176 [1 16 …0]"}},
		{"copter LOITER flying", "set mode=hold", []string{"LONG 176 [1 4 …0]" + backPos}},
		{"copter LOITER flying", "set mode=rtl", []string{"LONG 176 [1 6 …0]" + backPos}},
		{"copter RTL flying", "set mode=rtgs", []string{"LONG 176 [1 6 …0]"}},

		{"copter STABILIZE landed", "set arm=true", []string{"LONG 400 [1 …0]"}},
		{"copter STABILIZE armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"copter STABILIZE landed", "set mode=position arm=true", []string{"LONG 176 [1 5 …0]" + back, "LONG 400 [1 …0]"}},
		{"copter STABILIZE armed", "set mode=hold arm=false", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 […0]"}},

		{"copter STABILIZE landed", "takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE landed", "takeoff altitude=25.5", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 25.5]"}},
		{"copter STABILIZE armed", "takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE armed undefined", "takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter GUIDED landed", "takeoff", []string{"LONG 176 [1 4 …0]", "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE landed homeless blind", "takeoff", []string{"LONG 176 [1 4 …0]" + back, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter LOITER flying", "takeoff altitude=30", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"copter GUIDED armed climbing", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},

		{"copter LOITER flying", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backPos, yaw}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20" + backPos, yaw}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510" + backPos, yaw}},
		{"copter LOITER flying", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backPos, yaw}},
		{"copter LOITER flying", "goto altitude=0", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=0" + backPos, yaw}},
		{"copter LOITER flying", "goto altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=510" + backPos, yaw}},
		{"copter LOITER flying", "goto heading=270", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10" + backPos, "LONG 115 [270 …0]"}},
		{"copter LOITER flying", "goto heading=0", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10" + backPos, "LONG 115 […0]"}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 speed=5", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backPos, "LONG 178 [1 5 -1 …0]", yaw}},
		{"copter GUIDED flying", "goto lat=-33.8688 lon=151.2093 altitude=20 heading=45 speed=2.5", []string{"INT 192 frame=3 [-1 1 0 0] x=-338688000 y=1512093000 z=20" + backHere, "LONG 178 [1 2.5 -1 …0]", "LONG 115 [45 …0]"}},
		{"copter GUIDED flying", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backHere, yaw}},
		{"copter GUIDED flying to=47.5/8.5/30", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20 undo INT 192 frame=3 [-1 1 0 0] x=475000000 y=85000000 z=30", yaw}},
		{"copter GUIDED flying sped", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backHere, "if it can: LONG 178 [1 7.5 -1 …0]", yaw}},
		{"copter GUIDED flying sped", "goto altitude=20 speed=3", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backHere, "LONG 178 [1 3 -1 …0]", yaw}},
		{"copter LOITER flying sped", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backPos, yaw}}, // entering GUIDED resets it
		{"copter GUIDED flying sped", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backHere, "if it can: LONG 178 [1 7.5 -1 …0]", "over it: LONG 21 […0]"}},
		{"copter LOITER flying headless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backPos}},
		{"copter RTL flying failsafe headless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20 undo LONG 176 [1 6 …0]"}},
		{"copter LOITER flying homeless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20" + backPos, yaw}},
		{"copter LOITER flying homeless blind", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510" + backPos}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20" + backPos}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510" + backPos}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546", []string{"refused: altitude: the autopilot's own height is not known yet; give altitude or altitude_msl"}},
		{"copter LOITER flying blind", "goto altitude=20", []string{"refused: the autopilot has no position yet: give lat and lon, or wait for its GPS"}},
		{"copter STABILIZE landed", "goto altitude=20", []string{notFlying}},
		{"copter GUIDED armed", "goto altitude=20", []string{notFlying}},

		{"copter LOITER flying", "land", []string{"LONG 21 […0]" + backPos}},
		{"copter LOITER flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backPos, "over it: LONG 21 […0]"}},
		{"copter GUIDED flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10 undo INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10", "over it: LONG 21 […0]"}},
		{"copter LOITER flying blind", "land lat=47.398 lon=8.546", []string{"refused: altitude: the autopilot's own height is not known yet; give altitude or altitude_msl"}},
		{"copter STABILIZE landed", "land lat=47.398 lon=8.546", []string{notFlying}},

		// BRAKE stops it where it can; GUIDED asked for in GUIDED flies on.
		{"copter GUIDED flying", "set mode=hold", []string{"LONG 176 [1 17 …0] undo LONG 176 [1 4 …0]", "LONG 176 [1 4 …0]"}},
		{"copter GUIDED flying blind moves=8/0/0", "set mode=hold", []string{"LONG 176 [1 17 …0] undo LONG 176 [1 4 …0]", "LONG 176 [1 4 …0]"}},
		{"copter BRAKE flying", "set mode=hold", []string{"LONG 176 [1 4 …0] undo LONG 176 [1 17 …0]"}},
		{"copter ALT_HOLD flying streams moves=8/0/0", "set mode=hold", []string{"LONG 176 [1 4 …0] undo LONG 176 [1 2 …0]"}},
		{"copter GUIDED armed", "set mode=hold", []string{"LONG 176 [1 4 …0]"}},
		{"copter GUIDED landed", "set mode=hold", []string{"LONG 176 [1 4 …0]"}},
	})
}

// circles is the refusal of a QuadPlane that does not hover in GUIDED.
func circles(what string) string {
	return "unsupported: " + what + ": this QuadPlane circles in GUIDED instead of hovering; set Q_GUIDED_MODE to 1"
}

func TestPlanePlans(t *testing.T) {
	const (
		backQ = " undo LONG 176 [1 19 …0]" // QLOITER
		here  = "INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10"
		backP = " undo LONG 176 [1 6 …0]" // FBWB
	)
	testPlans(t, []planRow{
		{"quadplane QLOITER flying", "set mode=manual", []string{"LONG 176 [1 17 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=altitude", []string{"LONG 176 [1 18 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=position", []string{"LONG 176 [1 19 …0]"}},
		{"quadplane QLOITER flying hovers", "set mode=hold", []string{"LONG 176 [1 15 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=rtl", []string{"LONG 176 [1 21 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=rtgs", []string{"LONG 176 [1 21 …0]" + backQ}},
		{"quadplane QLOITER flying", "set mode=land", []string{"LONG 176 [1 20 …0]" + backQ}},
		{"quadplane QLAND flying", "land", []string{"LONG 176 [1 20 …0]"}},
		{"quadplane QLOITER landed", "set mode=takeoff", []string{"LONG 176 [1 15 …0]" + backQ, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 10]"}},
		{"quadplane QLOITER landed", "takeoff altitude=25", []string{"LONG 176 [1 15 …0]" + backQ, "LONG 400 [1 …0] undo LONG 400 […0]", "LONG 22 [0 0 0 0 0 0 25]"}},
		{"quadplane QLOITER armed", "takeoff", []string{"LONG 176 [1 15 …0]" + backQ, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"quadplane QLOITER flying", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"quadplane QLOITER landed", "set arm=true", []string{"LONG 400 [1 …0]"}},
		{"quadplane QLOITER armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"quadplane QSTABILIZE landed", "set mode=altitude arm=true", []string{"LONG 176 [1 18 …0] undo LONG 176 [1 17 …0]", "LONG 400 [1 …0]"}},
		{"quadplane QLOITER flying hovers", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20" + backQ}},
		{"quadplane QLOITER flying hovers", "goto lat=47.398 lon=8.546 altitude_msl=510 speed=5 heading=90", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510" + backQ, "LONG 178 [1 5 -1 …0]", "LONG 115 [90 …0]"}},
		{"quadplane QLOITER landed", "goto altitude=20", []string{notFlying}},
		{"quadplane QLOITER flying hovers", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10" + backQ, "over it: LONG 176 [1 20 …0]"}},
		{"quadplane GUIDED flying hovers", "set mode=hold", []string{here + " undo LONG 176 [1 15 …0]"}},
		{"quadplane GUIDED flying hovers moves=3.5/0/0", "set mode=hold", []string{"INT 192 frame=3 [-1 1 0 0] x=473977736 y=85455938 z=10 undo LONG 176 [1 15 …0]"}},
		{"quadplane GUIDED flying hovers sped", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20 undo " + here}},

		// Where GUIDED circles there is no place to hold, but for one on its wing.
		{"quadplane QLOITER flying", "set mode=hold", []string{circles("hold")}},
		{"quadplane QLOITER flying circles", "set mode=hold", []string{circles("hold")}},
		{"quadplane QLOITER flying circles", "goto altitude=20", []string{circles("goto")}},
		{"quadplane QLOITER flying", "land lat=47.398 lon=8.546", []string{circles("land")}},
		{"quadplane GUIDED flying", "set mode=hold", []string{circles("hold")}},
		{"quadplane QLOITER landed", "set mode=hold", []string{"LONG 176 [1 15 …0]" + backQ}},
		{"quadplane FBWA flying wing", "set mode=hold", []string{"LONG 176 [1 15 …0] undo LONG 176 [1 5 …0]"}},
		{"quadplane GUIDED flying wing moves=20/0/0", "set mode=hold", []string{here + " undo LONG 176 [1 15 …0]"}},
		{"quadplane FBWA flying wing circles", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20 undo LONG 176 [1 5 …0]"}},

		{"plane FBWB flying", "set mode=manual", []string{"LONG 176 [1 …0]" + backP}},
		{"plane FBWB flying", "set mode=altitude", []string{"LONG 176 [1 6 …0]"}},
		{"plane FBWB flying", "set mode=position", []string{`unsupported: mode: this vehicle has no mode for "position"`}},
		{"plane FBWB flying", "set mode=position arm=true", []string{`unsupported: mode: this vehicle has no mode for "position"`}},
		{"plane FBWB flying", "set mode=hold", []string{"LONG 176 [1 15 …0]" + backP}},
		{"plane FBWB flying", "set mode=rtl", []string{"LONG 176 [1 11 …0]" + backP}},
		{"plane FBWB flying", "set mode=rtgs", []string{"LONG 176 [1 11 …0]" + backP}},
		{"plane FBWB flying", "set mode=land", []string{fixedWing}},
		{"plane FBWB flying", "land", []string{fixedWing}},
		{"plane FBWB flying", "land lat=47.398 lon=8.546", []string{fixedWing}},
		{"plane FBWB landed", "takeoff", []string{"LONG 176 [1 13 …0]" + backP, "LONG 400 [1 …0] undo LONG 400 […0]"}},
		{"plane FBWB landed", "set mode=takeoff", []string{"LONG 176 [1 13 …0]" + backP, "LONG 400 [1 …0] undo LONG 400 […0]"}},
		{"plane FBWB armed", "takeoff", []string{"LONG 176 [1 13 …0]" + backP}},
		{"plane FBWB landed", "takeoff altitude=30", []string{"unsupported: altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out"}},
		{"plane FBWB flying", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"plane FBWB landed", "set arm=true", []string{"LONG 400 [1 …0]"}},
		{"plane FBWB armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"plane FBWB flying", "goto lat=47.398 lon=8.546 altitude=60", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=60" + backP}},
		{"plane FBWB flying", "goto altitude_msl=600 speed=20", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=600" + backP, "LONG 178 [1 20 -1 …0]"}},
		{"plane FBWB flying", "goto lat=47.398 lon=8.546 heading=90", []string{"unsupported: heading: a fixed wing can't keep one at a place; leave it out"}},
		{"plane FBWB landed", "goto altitude=60", []string{notFlying}},
		{"plane GUIDED flying moves=20/0/0", "set mode=hold", []string{here + " undo LONG 176 [1 15 …0]"}},
		{"plane GUIDED flying blind", "set mode=hold", []string{"LONG 176 [1 15 …0]"}},

		{"rover MANUAL landed", "set mode=hold", []string{unknownKind}},
		{"rover MANUAL landed", "set arm=true", []string{unknownKind}},
		{"rover MANUAL landed", "takeoff", []string{unknownKind}},
		{"rover MANUAL armed", "goto altitude=20", []string{unknownKind}},
		{"rover MANUAL armed", "land", []string{unknownKind}},
	})
}

// What no reader of a table would notice: PX4 arms and stays on the ground at
// latitude and longitude 0, and flies degrees as radians.
func TestNoPX4PlanAsksForPlaceZeroOrDegrees(t *testing.T) {
	for _, altitude := range []string{"2.5", "10", "120"} {
		p, err := parseRequest(t, "takeoff altitude="+altitude).plan(parseVehicle(t, "px4 AUTO.LOITER landed"))
		if err != nil {
			t.Fatal(err)
		}
		if s := p.steps[0]; s.cmd != common.MAV_CMD_NAV_TAKEOFF || s.asInt || !math.IsNaN(float64(s.p[4])) || !math.IsNaN(float64(s.p[5])) || s.p[6] <= testHome {
			t.Errorf("takeoff to %s m: %s", altitude, describe(&s))
		}
	}
	for heading := range 361 {
		p, err := parseRequest(t, fmt.Sprintf("goto heading=%d", heading)).plan(parseVehicle(t, "px4 POSCTL flying"))
		if err != nil {
			t.Fatal(err)
		}
		yaw := float64(p.steps[0].p[3])
		if math.Abs(yaw) > math.Pi+1e-6 || math.Abs(math.Remainder(yaw*180/math.Pi-float64(heading), 360)) > 1e-4 {
			t.Errorf("heading %d is sent as %v", heading, yaw)
		}
	}
}

// TestPX4LeavesStickModeThroughOneThatSticksCantUndo: sticks that moved in the
// last 1.6 s take any mode back but POSCTL, and the drone stops in it.
func TestPX4LeavesStickModeThroughOneThatSticksCantUndo(t *testing.T) {
	const (
		posctl  = "through: LONG 176 [1 3 0 …NaN]"
		altctl  = "through: LONG 176 [1 2 0 …NaN]"
		backPos = " undo LONG 176 [1 3 0 …NaN]"
		backAlt = " undo LONG 176 [1 2 0 …NaN]"
		rtl     = "LONG 176 [1 4 5 …NaN]"
	)
	testPlans(t, []planRow{
		{"px4 ALTCTL flying streams", "set mode=rtl", []string{posctl, rtl + backPos}},
		{"px4 MANUAL flying streams", "set mode=rtl", []string{posctl, rtl + backPos}},
		{"px4 STABILIZED flying streams", "set mode=rtl", []string{posctl, rtl + backPos}},
		{"px4 ALTCTL flying streams", "set mode=hold", []string{posctl, "LONG 176 [1 4 3 …NaN]" + backPos}},
		{"px4 ALTCTL flying streams", "land", []string{posctl, "LONG 21 […NaN]" + backPos}},
		{"px4 ALTCTL flying streams headless", "goto altitude=20", []string{posctl, "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5" + backPos}},
		{"px4 ALTCTL flying streams headless failsafe", "goto altitude=20", []string{posctl, "LONG 176 [1 4 3 …NaN]" + backPos, "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5" + backPos}},
		{"px4 POSCTL flying streams", "set mode=rtl", []string{rtl + backPos}},
		{"px4 MANUAL flying streams blind", "set mode=rtl", []string{altctl, rtl + backAlt}},
		{"px4 ALTCTL flying streams blind", "set mode=rtl", []string{rtl + backAlt}},
		// Where no sticks of ours move, or nothing flies, there is nothing to lead out of.
		{"px4 ALTCTL flying", "set mode=rtl", []string{rtl + backAlt}},
		{"px4 ALTCTL armed streams", "set mode=rtl", []string{rtl + backAlt}},
		{"px4 AUTO.LOITER flying streams", "set mode=rtl", []string{rtl + " undo LONG 176 [1 4 3 …NaN]"}},
		{"copter ALT_HOLD flying streams", "set mode=rtl", []string{"LONG 176 [1 6 …0] undo LONG 176 [1 2 …0]"}},

		// From one stick mode to another nothing stands between.
		{"px4 ALTCTL flying streams away", "set mode=manual", []string{"LONG 176 [1 1 0 …NaN]" + backAlt}},
		{"px4 MANUAL flying streams away", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN] undo LONG 176 [1 1 0 …NaN]"}},

		// Centring the sticks in an AUTO mode leads to POSCTL anyway.
		{"px4 AUTO.LOITER flying away", "set mode=altitude", []string{posctl, "LONG 176 [1 2 0 …NaN]" + backPos}},
		{"px4 AUTO.LOITER flying away", "set mode=manual", []string{posctl, "LONG 176 [1 1 0 …NaN]" + backPos}},
		{"px4 AUTO.LOITER flying away blind", "set mode=manual", []string{altctl, "LONG 176 [1 1 0 …NaN]" + backAlt}},
		{"px4 AUTO.LOITER flying away", "set mode=position", []string{"LONG 176 [1 3 0 …NaN] undo LONG 176 [1 4 3 …NaN]"}},
		{"px4 AUTO.LOITER flying", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN] undo LONG 176 [1 4 3 …NaN]"}},
		{"px4 AUTO.LOITER landed away", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN] undo LONG 176 [1 4 3 …NaN]"}},
		{"copter GUIDED flying away", "set mode=altitude", []string{"LONG 176 [1 2 …0] undo LONG 176 [1 4 …0]"}},
	})
}

// TestHoldIsWhereTheDroneCanStop: v²/3.5 ahead along the velocity, climbing and
// sinking too.
func TestHoldIsWhereTheDroneCanStop(t *testing.T) {
	for _, r := range []struct {
		moves              string
		north, east, climb float64 // of the place, metres from here
		alone              bool    // where its mode stops it, the mode alone
	}{
		{"0/0/0", 0, 0, 0, false},
		{"2/0/0", 4 / stopping, 0, 0, false},
		{"0/-5/0", 0, -25 / stopping, 0, false},
		{"8/0/0", 64 / stopping, 0, 0, false},
		{"12/0/0", 144 / stopping, 0, 0, false},
		{"-3/4/0", -15 / stopping, 20 / stopping, 0, false},
		{"0/0/-2.5", 0, 0, 6.25 / stopping, false},
		{"0/0/1", 0, 0, -1 / stopping, false},
		{"6/0/-2.5", 6 * 6.5 / stopping, 0, 2.5 * 6.5 / stopping, false},
		{"12.1/0/0", 12.1 * 12.1 / stopping, 0, 0, true}, // faster than was measured
		{"12/0/-9", 12 * 15 / stopping, 0, 9 * 15 / stopping, true},
		{"NaN/0/0", 0, 0, 0, true}, // here
	} {
		for _, v := range []string{"px4 AUTO.LOITER", "px4 AUTO.MISSION", "quadplane GUIDED hovers"} {
			t.Run(v+" "+r.moves, func(t *testing.T) {
				p, err := parseRequest(t, "set mode=hold").plan(parseVehicle(t, v+" flying moves="+r.moves))
				if err != nil {
					t.Fatal(err)
				}
				last := p.steps[len(p.steps)-1]
				if r.alone && v == "px4 AUTO.MISSION" {
					if last.cmd != common.MAV_CMD_DO_SET_MODE || p.target != nil {
						t.Fatalf("it flies to a place that was guessed: %s", describe(&last))
					}
					return
				}
				if last.cmd != common.MAV_CMD_DO_REPOSITION || !last.stays {
					t.Fatalf("no place is held: %s", describe(&last))
				}
				lat, lon := moved(testLat, testLon, r.north, r.east)
				if off := distance(float64(last.x)/1e7, float64(last.y)/1e7, lat, lon); off > 0.02 {
					t.Errorf("the place is %.2f m off", off)
				}
				height := float64(last.p[6])
				if last.frame == common.MAV_FRAME_GLOBAL {
					height -= testHome
				}
				if math.Abs(height-10-r.climb) > 0.02 || math.Abs(p.target.altitude-10-r.climb) > 0.001 || math.Abs(p.amsl-testHome-10-r.climb) > 0.001 {
					t.Errorf("it is held at %.2f m, target %.2f, %.2f AMSL; want %.2f", height, p.target.altitude, p.amsl, 10+r.climb)
				}
			})
		}
	}
}

// TestPlanTellsMachineAndSticksWhatItMeans: the mode that the plan enters and the
// numbers of it, what its steps need of the sticks, where it goes.
func TestPlanTellsMachineAndSticksWhatItMeans(t *testing.T) {
	for _, r := range []struct{ vehicle, request, want string }{
		{"px4 AUTO.LOITER flying", "set mode=manual", "manual by MANUAL, sticks enter: led"},
		{"px4 AUTO.LOITER flying", "set mode=altitude", "altitude by ALTCTL, sticks enter: led"},
		{"px4 AUTO.LOITER flying away", "set mode=altitude", "altitude by ALTCTL, sticks enter: anyhow led"},
		{"px4 AUTO.LOITER landed", "set mode=position arm=true", "position by POSCTL, sticks enter: led led, to armed"},
		{"px4 POSCTL flying streams", "set mode=hold", "hold by AUTO.LOITER, sticks leave: still"},
		{"px4 ALTCTL flying streams", "set mode=hold", "hold by AUTO.LOITER, sticks leave: anyhow still"},
		{"px4 POSCTL flying", "set mode=rtl", "rtl by AUTO.RTL, sticks leave: still, urgent"},
		{"px4 POSCTL flying", "set mode=rtgs", "rtgs by AUTO.RTL, sticks leave: still, urgent"},
		{"px4 POSCTL flying", "land", "land by AUTO.LAND, sticks leave: still, urgent"},
		{"px4 POSCTL flying", "land lat=47.398 lon=8.546", "land by AUTO.LOITER, sticks leave: still, transit, urgent, at 47.398 8.546 10"},
		{"px4 MANUAL landed", "takeoff", "takeoff by AUTO.TAKEOFF, sticks leave: still anyhow, to armed, ends in AUTO.LOITER from 496.5, at NaN NaN 10"},
		{"px4 MANUAL landed", "takeoff altitude=40", "takeoff by AUTO.TAKEOFF, sticks leave: still anyhow, to armed, ends in AUTO.LOITER from 524.5, at NaN NaN 40"},
		{"px4 MANUAL landed uphill", "takeoff altitude=10", "takeoff by AUTO.TAKEOFF, sticks leave: still anyhow, to armed, ends in AUTO.LOITER from 496.5, at NaN NaN 10"},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude=20", "hold by AUTO.LOITER, sticks leave: still, at 47.398 8.546 20"},
		{"px4 POSCTL flying homeless", "goto altitude_msl=508.5", "hold by AUTO.LOITER, sticks leave: still, at 47.3977421 8.5455938 NaN"},
		{"px4 AUTO.RTL flying failsafe", "goto altitude=20", "hold by AUTO.LOITER, sticks leave: still anyhow, at 47.3977421 8.5455938 20"},
		{"px4 AUTO.LOITER landed", "set arm=true", "sticks as they are: anyhow, to armed"},
		{"px4 MANUAL landed", "set arm=true", "sticks run: led, to armed"},
		{"px4 POSCTL landed", "set arm=true", "sticks run: led, to armed"},
		{"px4 POSCTL armed", "set arm=false", "sticks as they are: anyhow, to disarmed, urgent"},

		{"copter GUIDED flying", "set mode=manual", "manual by STABILIZE, sticks enter: led"},
		{"copter GUIDED flying away", "set mode=altitude", "altitude by ALT_HOLD, sticks enter: led"},
		{"copter LOITER flying streams", "set mode=hold", "hold by GUIDED, sticks leave: anyhow"},
		{"copter GUIDED flying", "set mode=hold", "hold by GUIDED, sticks leave: anyhow anyhow"},
		{"copter LOITER flying", "set mode=rtgs", "rtgs by RTL, sticks leave: anyhow, urgent"},
		{"copter LOITER flying", "land", "land by LAND, sticks leave: anyhow, urgent"},
		{"copter LOITER flying", "land lat=47.398 lon=8.546", "land by GUIDED, sticks leave: anyhow, transit, urgent, at 47.398 8.546 10"},
		{"copter STABILIZE landed", "takeoff", "takeoff by GUIDED, sticks leave: anyhow anyhow anyhow, to armed, at NaN NaN 10"},
		{"copter LOITER landed", "set arm=true", "sticks run: led, to armed"},

		{"quadplane QHOVER flying", "set mode=position", "position by QLOITER, sticks enter: led"},
		{"quadplane QHOVER flying hovers", "land lat=47.398 lon=8.546", "land by GUIDED, sticks leave: anyhow, transit, urgent, at 47.398 8.546 10"},
		{"plane FBWB flying", "set mode=manual", "manual by MANUAL, sticks enter: led"},
		{"plane MANUAL landed", "takeoff", "takeoff by TAKEOFF, sticks leave: anyhow anyhow, to armed"},
	} {
		t.Run(r.vehicle+": "+r.request, func(t *testing.T) {
			v := parseVehicle(t, r.vehicle)
			p, err := parseRequest(t, r.request).plan(v)
			if err != nil {
				t.Fatal(err)
			}
			if got := meaning(v, p); got != r.want {
				t.Errorf("\ngot  %s\nwant %s", got, r.want)
			}
		})
	}
}

// meaning writes what a plan means to the machine and to the sticks.
func meaning(v vehicle, p plan) string {
	name := func(custom uint32) string { _, s := v.firmware.reported(custom); return s }
	got := ""
	if p.setsMode {
		got = p.order.mode.String() + " by"
		for _, n := range p.order.numbers {
			got += " " + name(n)
		}
		got += ", "
	}
	got += "sticks " + [...]string{"as they are", "enter", "run", "leave"}[p.sticks] + ":"
	for _, s := range p.steps {
		got += " " + [...]string{"anyhow", "led", "still"}[s.sticks]
	}
	if p.arm != nil {
		got += ", to " + map[bool]string{true: "armed", false: "disarmed"}[*p.arm]
	}
	if p.order.transit {
		got += ", transit"
	}
	if p.order.end != 0 {
		got += fmt.Sprintf(", ends in %s from %v", name(p.order.end), p.order.endAMSL)
	}
	if p.urgent {
		got += ", urgent"
	}
	if p.target != nil {
		got += fmt.Sprintf(", at %v %v %v", p.target.lat, p.target.lon, p.target.altitude)
	}
	return got
}

// TestOnlyAReturnLeadsToRTL: a number among a plan's own is hidden from the
// machine's user while it waits.
func TestOnlyAReturnLeadsToRTL(t *testing.T) {
	requests := []string{"takeoff altitude=50", "goto altitude=20", "land", "land lat=47.398 lon=8.546", "set arm=true", "set arm=false"}
	for _, m := range requestable {
		if m != ModeRTL && m != ModeRTGS && m != ModeTakeoff {
			requests = append(requests, "set mode="+m.String(), "set mode="+m.String()+" arm=true")
		}
	}
	for _, v := range []string{"px4 POSCTL flying", "px4 ALTCTL flying streams", "copter LOITER flying", "copter STABILIZE landed", "quadplane QLOITER flying hovers", "plane FBWB flying"} {
		for _, r := range requests {
			veh := parseVehicle(t, v)
			p, err := parseRequest(t, r).plan(veh)
			if err != nil {
				continue
			}
			for _, s := range p.steps {
				if mode, _ := veh.firmware.reported(s.number); s.enters && (mode == ModeRTL || mode == ModeRTGS) {
					t.Errorf("%s: %s would hide a failsafe", v, r)
				}
			}
		}
	}
}

// TestStepNamesTheModeItAsksFor: the machine and the commander compare it with
// the heartbeat's.
func TestStepNamesTheModeItAsksFor(t *testing.T) {
	for _, f := range []firmware{px4, copter, quadPlane, plane} {
		for m, custom := range entered[f] {
			s := f.setMode(custom)
			sent := uint32(s.p[1])
			if f == px4 {
				sent = px4Custom(uint32(s.p[1]), uint32(s.p[2]))
			}
			if !s.enters || s.number != custom || sent != custom || s.p[0] != 1 {
				t.Errorf("firmware %d, %v: asks for %d and says %d, want %d", f, m, sent, s.number, custom)
			}
			shows, _ := f.reported(custom)
			switch {
			case m == ModeRTGS && shows == ModeRTL, m == ModeTakeoff && shows == ModeHold: // as it is called there
			case shows != m:
				t.Errorf("firmware %d: what enters %v is reported as %v", f, m, shows)
			}
		}
	}
}
