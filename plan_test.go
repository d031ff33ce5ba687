package main

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The nose points east, where no word says otherwise. 100 m are 8993 steps of latitude and 13247 of longitude.
func TestAGotoInMetresFliesFromWhereTheVehicleIs(t *testing.T) {
	const (
		px4Flies, copterFlies = "px4 AUTO.LOITER flying", "copter GUIDED flying"
		unheaded              = ": the autopilot does not know where its nose points; give north and east"
		unplaced              = ": the autopilot has no position yet, and metres count from there; wait for its GPS"
		gone                  = ": the vehicle last said 3.0 s ago where it is, and metres count from where it is now"
		sideways              = "right: on its wing the vehicle can't fly sideways; "
	)
	px4To := func(x, y int, z float64) []string {
		return []string{fmt.Sprintf("INT 192 frame=0 [-1 1 0 NaN] x=%d y=%d z=%v", x, y, z)}
	}
	copterTo := func(x, y int, z float64) []string {
		return []string{fmt.Sprintf("INT 192 frame=3 [-1 1 0 0] x=%d y=%d z=%v", x, y, z),
			"if it can: LONG 178 [1 10 -1 …0]"}
	}
	refused := func(text string) []string { return []string{text} }
	testPlans(t, []planRow{
		{px4Flies, "goto north=100", px4To(473986416, 85455938, 498.5)},
		{px4Flies, "goto east=100", px4To(473977421, 85469185, 498.5)},
		{px4Flies, "goto forward=100", px4To(473977421, 85469185, 498.5)},
		{px4Flies, "goto right=-100", px4To(473986416, 85455938, 498.5)},
		{px4Flies, "goto north=100 east=100", px4To(473986415, 85469185, 498.5)},
		{px4Flies, "goto forward=100 right=-100 up=2.5", px4To(473986415, 85469185, 501)},
		{px4Flies + " southwest", "goto forward=-100", px4To(473983781, 85465305, 498.5)},
		{px4Flies + " southwest", "goto right=100", px4To(473983781, 85446571, 498.5)},
		{px4Flies, "goto up=5", px4To(473977421, 85455938, 503.5)},
		{px4Flies + " homeless", "goto up=-5", px4To(473977421, 85455938, 493.5)},
		{px4Flies, "goto north=0", px4To(473977421, 85455938, 498.5)},
		{px4Flies, "goto north=100 altitude=30", px4To(473986416, 85455938, 518.5)},
		{px4Flies, "goto lat=47.398 lon=8.546 up=5", px4To(473980000, 85460000, 503.5)},
		{px4Flies + " at-180°", "goto east=100", px4To(600000000, -1799983079, 498.5)},
		{px4Flies + " headless", "goto north=100", px4To(473986416, 85455938, 498.5)},
		{px4Flies + " headless", "goto forward=100", refused("refused: forward" + unheaded)},
		{px4Flies + " headless", "goto right=0 up=3", refused("refused: right" + unheaded)},
		{px4Flies + " blind", "goto east=100", refused("refused: east" + unplaced)},
		{px4Flies + " blind", "goto up=1", refused("refused: up" + unplaced)},
		{px4Flies + " silent", "goto forward=100", refused("refused: forward" + gone)},
		{"px4 AUTO.LOITER landed", "goto north=100", refused(notFlying)},
		{copterFlies, "goto north=100 up=2.5", copterTo(473986416, 85455938, 12.5)},
		{copterFlies + " homeless", "goto forward=100 up=-2", copterTo(473977421, 85469185, 8)},
		{"px4-plane AUTO.LOITER flying", "goto forward=100 up=5", px4To(473977421, 85469185, 503.5)},
		{"px4-plane AUTO.LOITER flying", "goto forward=100 right=0", px4To(473977421, 85469185, 498.5)},
		{"px4-plane AUTO.LOITER flying", "goto right=100", refused("unsupported: " + sideways + "leave it out")},
		{"px4-vtol AUTO.LOITER flying wing", "goto right=100",
			refused("wrong_mode: " + sideways + "bring it to hover first, or leave it out")},
		{"px4-vtol AUTO.LOITER flying hovering", "goto right=-100", px4To(473986416, 85455938, 498.5)},
		{"px4-rover AUTO.LOITER flying", "goto forward=100 up=0", px4To(473977421, 85469185, 498.5)},
		{"px4-rover AUTO.LOITER flying", "goto up=1", refused("unsupported: up: this vehicle drives; leave it out")},
	})
}

// Places are named by their metres north of home.
func TestAPlaceIsNearTheVehicleOrNearHome(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name           string
		vehicle, place float64 // metres north of home; NaN: the vehicle's is unknown, or no place is given
		homeless       bool
		reach          float64
		refused        bool
	}{
		{"in reach of both", 0, 9990, false, 10e3, false},
		{"out of reach of both", 0, 10010, false, 10e3, true},
		{"far, but in reach of the vehicle", 20e3, 29990, false, 10e3, false},
		{"far beyond the vehicle", 20e3, 30010, false, 10e3, true},
		{"the way home", 500e3, 0, false, 10e3, false},
		{"near home, from afar", 500e3, -9990, false, 10e3, false},
		{"beyond home, from afar", 500e3, -10010, false, 10e3, true},
		{"home is unknown: near the vehicle", 0, 9990, true, 10e3, false},
		{"home is unknown: far from the vehicle", 0, 10010, true, 10e3, true},
		{"the vehicle is unknown: near home", nan, 9990, false, 10e3, false},
		{"the vehicle is unknown: far from home", nan, 10010, false, 10e3, true},
		{"both are unknown", nan, 5000e3, true, 10e3, false},
		{"the owner's reach", 0, 49990, false, 50e3, false},
		{"beyond the owner's reach", 0, 50010, false, 50e3, true},
		{"a small reach", 0, 110, false, 100, true},
		{"no reach at all", 0, 19000e3, false, inf, false},
		{"no place: a goto from afar keeps its own", 500e3, nan, false, 10e3, false},
	} {
		at := func(north float64) (lat, lon float64) { return moved(testLat, testLon, north, 0) }
		for _, route := range []string{"goto altitude=20", "land"} {
			r, v := parseRequest(t, route), parseVehicle(t, "px4 AUTO.LOITER flying")
			v.place.lat, v.place.lon = at(c.vehicle)
			v.home.lat, v.home.lon = testLat, testLon
			if c.homeless {
				v.home = unknownPoint
			}
			if lat, lon := at(c.place); !math.IsNaN(lat) {
				r.lat, r.lon = &lat, &lon
			}
			err := r.checkReach(v.place, v.home, c.reach)
			lineEqual(t, route+": "+c.name, code(err) == codeOutOfRange, c.refused)
		}
	}
	for _, c := range []struct {
		lat, lon, home float64
		metres         bool
		says           string
	}{
		{0, 0, 0, true, "north: that comes to 0, 0"},
		{0, 0, 0, false, ""},
		{0, 1e-3, 0, true, ""},
		{1e-3, 0, 0, true, ""},
		{2e-8, -2e-8, 0, true, "north: that comes to 0, 0"},
		{1, 0, 0, true, "north: the place is 111.2 km from the drone and 111.2 km from home, and may be 10 km away"},
		{1, 0, nan, true, "north: the place is 111.2 km from the drone and an unknown distance from home"},
		{1, 0, 0, false, "lat, lon: the place is 111.2 km from the drone and 111.2 km from home, and may be"},
	} {
		r := request{verb: goesTo, lat: &c.lat, lon: &c.lon}
		if c.metres {
			r.offset.north = new(float64)
		}
		err := r.checkPlaceReach(place{}, point{lat: c.home}, 10e3)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, %v: %v, want %q", c.lat, c.lon, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "swapped") {
			t.Errorf("%v, %v: %v, and swapped they are as far", c.lat, c.lon, err)
		}
	}
}

func TestAHeightAboveTheSeaIsNotFarBelowHome(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name                string
		home, vehicle, amsl float64
		says                string // "": it is flown
	}{
		{"up", 488, 498, 520, ""},
		{"down, above home", 488, 520, 490, ""},
		{"a little below home", 488, 498, 458, ""},
		{"far below home", 488, 498, 457,
			`31 m below home, which is at 488 m above the sea, and 41 m below the drone, which is at 498 m; if it ` +
				`is meant, send "altitude":-31, which`},
		{"up, out of a valley", 488, 300, 301, ""},
		{"level, in a valley", 488, 300, 300, ""},
		{"down, in a valley", 488, 300, 299,
			`189 m below home, which is at 488 m above the sea, and 1 m below the drone, which is at 300 m; if it ` +
				`is meant, send "altitude":-189, which`},
		{"home is unknown", nan, 498, 50, ""},
		{"the vehicle's height is unknown", 488, nan, 50,
			`438 m below home, which is at 488 m above the sea; if it is meant, send "altitude":-438, which`},
		{"the vehicle's height is unknown, near home", 488, nan, 460, ""},
		{"nothing is known", nan, nan, 50, ""},
		{"below the lowest altitude", 3000, 3010, 50,
			"2950 m below home, which is at 3000 m above the sea, and 2960 m below the drone, which is at 3010 m"},
		{"home is below the sea", -400, -390, -431, "31 m below home, which is at -400 m above the sea"},
	} {
		v := parseVehicle(t, "px4 AUTO.LOITER flying")
		v.home.amsl, v.place.amsl = c.home, c.vehicle
		said := ""
		if err := (request{verb: goesTo, altitudeMSL: &c.amsl}).checkReach(v.place,
			v.home, defaultReach); err != nil {
			said = err.Error()
		}
		lineEqual(t, c.name+": refused", said != "", c.says != "")
		if !strings.Contains(said, c.says) || strings.Contains(c.name, "lowest") &&
			strings.Contains(said, `"altitude"`) {
			t.Errorf("%s: %q does not say %q", c.name, said, c.says)
		}
	}
	// A height above home is plain: it is never too low.
	low := lowestAltitude
	v := parseVehicle(t, "px4 AUTO.LOITER flying")
	lineEqual(t, "above home", (request{altitude: &low}).checkReach(v.place, v.home, defaultReach), nil)
}

// The drone is at a height above home, over ground that it left; home is 488 m above the sea.
func TestAGivenHeightHasACeilingAndAFloor(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name     string
		altitude float64 // NaN: not given
		amsl     float64 // NaN: not given
		at       float64 // above home
		above    float64 // the ground that it left
		home     float64
		says     string // "" where it is flown
	}{
		{"above the sea, given as above home", 508, nan, 10, 10, 488, "508 m above home, and the ceiling is 120 m"},
		{"a digit too much", 9999, nan, 10, 10, 488, "-ceiling 9999"},
		{"just over it", 120.4, nan, 10, 10, 488, "-ceiling 121"},
		{"at it", 120, nan, 10, 10, 488, ""},
		{"at it, in centimetres", 120.004, nan, 10, 10, 488, ""},
		{"a little over it", 120.04, nan, 10, 10, 488, "altitude: 120.04 m above home, and the ceiling is 120 m"},
		{"far over it", 10_000, nan, 10, 10, 488, "altitude: 10000 m above home"},
		{"above the sea, as it was meant", nan, 508, 10, 10, 488, ""},
		{"above the sea, over it", nan, 700, 10, 10, 488, "700 m above the sea is 212 m above home, and the ceiling"},
		{"over it, but down", 130, nan, 150, 150, 488, ""},
		{"over it, and where it is", 150, nan, 150, 150, 488, ""},
		{"over it, and up", 151, nan, 150, 150, 488, "the ceiling"},
		{"over it, but down, above the sea", nan, 618, 150, 150, 488, ""},
		{"over it, where its own height is not known", 130, nan, nan, nan, 488, "the ceiling"},
		{"home is not known: from the drone", nan, 620, 10, 10, nan, "122 m above the drone"},
		{"home is not known, and it goes down", nan, 400, 150, 150, nan, ""},
		{"home is not known, and it goes deep down", nan, 428, 10, 10, nan, ""},
		{"home is not known, above home", 20, nan, 10, 10, nan, ""},
		{"nothing is given", nan, nan, 150, 150, 488, ""},
		{"into the ground", -500, nan, 0.5, 0.5, 488, "500 m below home, and the drone is 0.5 m above the ground"},
		{"into the ground, above the sea", nan, 470, 0.5, 0.5, 488, "18 m below home"},
		{"down from a roof, beside it", -8, nan, 10, 10, 488, ""},
		{"at the roof", -8, nan, 1, 1, 488, "climb first"},
		{"home that sank by 1.1 m", 0.2, nan, 2.1, 1, 488, ""},
		{"home that rose by 1.1 m", -0.6, nan, -0.1, 1, 488, ""},
		{"home that rose by 1.1 m, and no further", -1, nan, -0.1, 1, 488, ""},
		{"up out of a valley", -20, nan, -29, 1, 488, ""},
		{"down a valley, from over it", -20, nan, -10, 30, 488, ""},
		{"the ground is not known", -20, nan, 1, nan, 488, ""},
	} {
		r := request{verb: goesTo}
		if !math.IsNaN(c.altitude) {
			r.altitude = &c.altitude
		}
		if !math.IsNaN(c.amsl) {
			r.altitudeMSL = &c.amsl
		}
		here := place{47, 8, c.at, 488 + c.at}
		if err := r.checkHeight(here, point{amsl: c.home}, c.above, false, defaultCeiling); err != nil {
			lineEqual(t, c.name+": code", code(err), codeOutOfRange)
			if c.says == "" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %q, want %q", c.name, err, c.says)
			}
		} else if c.says != "" {
			t.Errorf("%s: flown, want %q", c.name, c.says)
		}
	}
	low := -2.0
	err := request{verb: goesTo, altitude: &low}.checkHeight(place{47, 8, 20, 508}, point{amsl: 488}, 0, true,
		defaultCeiling)
	lineEqual(t, "down, behind a landing that was broken off in the air", fmt.Sprint(err), "altitude: 2 m below home, "+
		"and the drone was landing: the ground may be 0.0 m below it; climb first")
	for _, c := range []struct {
		up, home, above float64
		says            string
	}{
		{20, 488, 1, ""},
		{200, 488, 1, "up: 200 m up is 210 m above home, and the ceiling is 120 m"},
		{-60, 488, 1, "up: -60 m up is 50 m below home, and the drone is 1.0 m above the ground"},
		{-40, 488, 10, ""},
		{-41, 488, 10, "up: -41 m up is 31 m below home, which is deep; if it is meant, send " + `"altitude":-31.`},
		{-500, 488, 10, "up: -500 m up is 490 m below home"},
		{-500, 514, 10, "up: -500 m up is 516 m below home, which is deep."},
		{3, 540, 10, ""},
		{-60, nan, 10, ""},
	} {
		r := request{verb: goesTo, offset: offset{up: &c.up}}
		for _, altitude := range []float64{498 - c.home, nan} {
			err := r.checkHeight(place{47, 8, altitude, 498}, point{amsl: c.home}, c.above, false, defaultCeiling)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error()+".", c.says) {
				t.Errorf("%v m up, home at %v: %v, want %q", c.up, c.home, err, c.says)
			}
		}
	}
}

func TestOnALineThatIsTwoSecondsBehindOnlyWhatMakesTheDroneSafeIsSent(t *testing.T) {
	for asked, refused := range map[string]string{
		"set mode=hold": "", "set mode=rtl": "", "land": "", "set arm=false": "",
		"set arm=true":      "arm: the line from the autopilot is 2.0 s behind",
		"set mode=position": "position: the line",
		"takeoff":           "takeoff: the line",
		"goto altitude=20":  "goto: the line",
		"land lat=47 lon=8": "land: the line",

		"set mode=hold arm=true": "hold: the line", "set mode=hold arm=true, armed": "",
	} {
		asked, armed := strings.CutSuffix(asked, ", armed")
		r := parseRequest(t, asked)
		lineEqual(t, asked+", 1.9 s behind", r.checkLag(freshFor-100*time.Millisecond, armed), nil)
		says := ""
		if err := r.checkLag(freshFor, armed); err != nil {
			says = err.Error()
			lineEqual(t, asked+": code", code(err), codeRefused)
		}
		if !strings.HasPrefix(says, refused) || (says == "") != (refused == "") {
			t.Errorf("%s: %q, want %q", asked, says, refused)
		}
	}
}

func TestAnUnknownAutopilotIsNotCommanded(t *testing.T) {
	const (
		end      = ", and is neither PX4 nor ArduPilot Copter or Plane: its state can be read, not commanded"
		unknown  = "unsupported: this vehicle signs as autopilot ardupilot, generic" + end
		stranger = "unsupported: this vehicle signs as autopilot generic, generic, as INAV and Betaflight do" + end
	)
	testPlans(t, []planRow{
		{"rover MANUAL landed", "set mode=hold", []string{unknown}},
		{"rover MANUAL landed", "set arm=true", []string{unknown}},
		{"rover MANUAL landed", "takeoff", []string{unknown}},
		{"rover MANUAL armed", "goto altitude=20", []string{unknown}},
		{"rover MANUAL armed", "land", []string{unknown}},
		{"sub MANUAL armed", "set mode=rtl", []string{unknown}},
		{"stranger MANUAL armed", "set mode=rtl", []string{stranger}},
	})
}

func TestPX4PlansByKind(t *testing.T) {
	const (
		drives  = "unsupported: %s: this vehicle drives; it has no such mode"
		unknown = "wrong_mode: %s: this VTOL does not report now whether it hovers or is on its wing; try again. " +
			"hold, land without a place, and rtl go out"
		noHeading = "heading: on its wing the vehicle circles a place and can't keep one; "
		noLanding = "land: on its wing the vehicle circles a place and can't land there; "
		place     = "goto lat=47.398 lon=8.546"
		landThere = "land lat=47.398 lon=8.546"
		goTo      = "INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5"
		pause     = "LONG 192 [-1 1 0 …NaN]"
		readOnly  = "unsupported: this vehicle signs as autopilot px4, surface_boat, and is no multicopter, VTOL, " +
			"plane or rover: its state can be read, not commanded"
	)
	about := func(format, what string) []string { return []string{fmt.Sprintf(format, what)} }
	testPlans(t, []planRow{
		{"px4-plane AUTO.LOITER flying", place, []string{goTo}},
		{"px4-plane AUTO.LOITER flying", "set mode=hold", []string{pause}},
		{"px4-plane AUTO.LOITER flying low", "set mode=hold",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=505.5"}},
		{"px4-vtol AUTO.LOITER flying hovering low", "set mode=hold", []string{pause}},
		{"px4-vtol AUTO.LOITER flying", "goto altitude=20", about(unknown, "goto")},
		{"px4-plane AUTO.LOITER flying", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},
		{"px4-plane AUTO.LOITER flying", "land", []string{"LONG 176 [1 4 6 …NaN]"}},
		{"px4-plane AUTO.LOITER flying", place + " heading=90", []string{"unsupported: " + noHeading + "leave it out"}},
		{"px4-plane AUTO.LOITER flying", landThere, []string{"unsupported: " + noLanding + "land without lat and lon"}},
		{"px4-vtol AUTO.LOITER flying wing", place, []string{goTo}},
		{"px4-vtol AUTO.LOITER flying wing", place + " heading=90",
			[]string{"wrong_mode: " + noHeading + "bring it to hover first, or leave it out"}},
		{"px4-vtol AUTO.LOITER flying to-wing", place + " heading=90",
			[]string{"wrong_mode: " + noHeading + "bring it to hover first, or leave it out"}},
		{"px4-vtol AUTO.LOITER flying wing", landThere,
			[]string{"wrong_mode: " + noLanding + "bring it to hover first, or land without lat and lon"}},
		{"px4-vtol AUTO.LOITER flying hovering", place + " heading=90",
			[]string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=498.5"}},
		{"px4-vtol AUTO.LOITER flying to-hover", landThere, []string{goTo, "over it: LONG 176 [1 4 6 …NaN]"}},
		{"px4-vtol AUTO.LOITER flying", place, about(unknown, "goto")},
		{"px4-vtol AUTO.LOITER flying", landThere, about(unknown, "land")},
		{"px4-vtol AUTO.LOITER flying", "set mode=altitude", about(unknown, "altitude")},
		{"px4-vtol AUTO.LOITER flying", "set mode=hold", []string{pause}},
		{"px4-vtol AUTO.LOITER flying", "land", []string{"LONG 176 [1 4 6 …NaN]"}},
		{"px4-vtol AUTO.LOITER flying", "set mode=rtl", []string{"LONG 176 [1 4 5 …NaN]"}},
		{"px4-rover AUTO.LOITER landed", place, []string{"refused: not armed: arm it first"}},
		{"px4-rover AUTO.LOITER flying", place, []string{goTo}},
		{"px4-rover AUTO.LOITER flying", place + " altitude=5",
			[]string{"unsupported: altitude and altitude_msl: this vehicle drives; leave them out"}},
		{"px4-rover AUTO.LOITER flying", place + " altitude_msl=500",
			[]string{"unsupported: altitude and altitude_msl: this vehicle drives; leave them out"}},
		{"px4-rover AUTO.LOITER flying", place + " heading=5",
			[]string{"unsupported: heading: this vehicle stands as it came; leave it out"}},
		{"px4-rover AUTO.LOITER flying", landThere, []string{goTo, "over it: LONG 176 [1 4 6 …NaN]"}},
		{"px4-rover AUTO.LOITER landed", "takeoff", about(drives, "takeoff")},
		{"px4-rover AUTO.LOITER landed", "set mode=altitude", about(drives, "altitude")},
		{"px4-rover AUTO.LOITER landed", "set mode=position arm=true",
			[]string{"LONG 176 [1 3 0 …NaN]", "LONG 400 [1 0 …NaN]"}},
		{"px4-rover AUTO.LOITER flying", "set arm=false", []string{"LONG 400 [0 0 …NaN]"}},
		{"px4-rover AUTO.LOITER flying", "set mode=hold arm=false", []string{pause, "LONG 400 [0 0 …NaN]"}},
		{"px4-rover AUTO.LOITER landed 1.16", "set arm=true",
			[]string{"unsupported: a rover is commanded from PX4 1.17 on, and this one has 1.16.0: its state can be " +
				"read, not commanded"}},
		{"px4-rover AUTO.LOITER landed version=?", "set arm=true",
			[]string{"offline: this rover has not reported its version of PX4 yet; try again"}},
		{"px4-boat AUTO.LOITER landed", "set arm=true", []string{readOnly}},
		{"px4-boat AUTO.LOITER flying", "set mode=hold", []string{readOnly}},
		{"px4-generic AUTO.LOITER flying", place, []string{goTo}},
	})
}

// TestPX4Plans: heights in DO_REPOSITION and NAV_TAKEOFF are AMSL in every frame, yaw is in
// radians, an unset parameter is NaN.
func TestPX4Plans(t *testing.T) {
	const (
		loiter = "LONG 176 [1 4 3 …NaN]"
		pause  = "LONG 192 [-1 1 0 …NaN]"
		arm    = "LONG 400 [1 0 …NaN]"
		climb  = "LONG 22 [NaN NaN NaN NaN NaN NaN 498.5]"
	)
	testPlans(t, []planRow{
		{"px4 MANUAL landed", "set mode=manual", []string{"LONG 176 [1 1 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=hold", []string{loiter}},
		{"px4 MANUAL landed", "set mode=rtl", []string{"LONG 176 [1 4 5 …NaN]"}},
		{"px4 MANUAL landed", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]"}}, // PX4 refuses 4,7
		{"px4 MANUAL landed", "set mode=land", []string{"LONG 176 [1 4 6 …NaN]"}},
		{"px4 MANUAL landed", "set mode=takeoff", []string{loiter, arm, climb}},
		{"px4 POSCTL flying", "set mode=manual", []string{"LONG 176 [1 1 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=altitude", []string{"LONG 176 [1 2 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},
		{"px4 POSCTL flying", "set mode=hold", []string{pause}},
		{"px4 POSCTL flying blind", "set mode=hold", []string{pause}},
		{"px4 POSCTL flying", "set mode=rtl", []string{"LONG 176 [1 4 5 …NaN]"}},
		{"px4 POSCTL flying", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]"}},
		{"px4 AUTO.RTL flying", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]"}},
		{"px4 POSCTL.SLOW flying", "set mode=hold", []string{pause}},

		{"px4 MANUAL landed", "set arm=true", []string{arm}},
		{"px4 AUTO.MISSION landed", "set arm=false", []string{"LONG 400 [0 0 …NaN]"}},
		{"px4 AUTO.GUIDED_COURSE flying", "set mode=hold", []string{loiter, pause}},
		{"px4 9.9 flying", "set mode=hold", []string{loiter, pause}},
		{"px4 MANUAL landed uphill", "takeoff altitude=6.7",
			[]string{"refused: takeoff: to 6.7 m it would not leave the ground: the vehicle stands 6.5 m above home, " +
				"which has moved; take off to 8 m or more"}},
		{"px4 MANUAL armed", "set arm=false", []string{"LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL armed undefined", "set arm=false", []string{"LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed climbing", "set arm=false", []string{"LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=position arm=true", []string{"LONG 176 [1 3 0 …NaN]", arm}},
		{"px4 MANUAL landed", "set mode=hold arm=false", []string{loiter, "LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=takeoff arm=true", []string{loiter, arm, climb}},
		{"px4 POSCTL flying", "set mode=land arm=false",
			[]string{"refused: arm: the vehicle is in the air; land first; the mode was not set either"}},

		{"px4 MANUAL landed", "takeoff", []string{loiter, arm, climb}},
		{"px4 MANUAL landed", "takeoff altitude=25", []string{loiter, arm, "LONG 22 [NaN NaN NaN NaN NaN NaN 513.5]"}},
		{"px4 AUTO.LOITER landed", "takeoff", []string{arm, climb}},
		{"px4 AUTO.LOITER armed", "takeoff", []string{climb}},
		{"px4 AUTO.TAKEOFF landed", "takeoff", []string{loiter, arm, climb}},
		{"px4 MANUAL armed", "takeoff", []string{climb}},
		{"px4 POSCTL flying", "takeoff altitude=30", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 518.5]"}},
		{"px4 POSCTL flying", "takeoff",
			[]string{"refused: takeoff: to 10 m it would not climb: the vehicle is already 10.0 m above home; " +
				"post /takeoff with a higher altitude, or use goto"}},
		{"px4 MANUAL landed uphill", "takeoff altitude=5",
			[]string{"refused: takeoff: to 5 m it would not leave the ground: the vehicle stands 6.5 m above home, " +
				"which has moved; take off to 8 m or more"}},
		{"px4 MANUAL landed uphill", "takeoff", []string{loiter, arm, climb}},
		{"px4 MANUAL landed homeless", "takeoff altitude=20",
			[]string{loiter, arm, "LONG 22 [NaN NaN NaN NaN NaN NaN 508.5]"}},
		{"px4 POSCTL flying homeless", "takeoff altitude=20",
			[]string{"refused: takeoff: the autopilot has no home position yet; wait for its GPS"}},
		{"px4 MANUAL landed homeless blind", "takeoff",
			[]string{"refused: takeoff: the autopilot has no home position yet; wait for its GPS"}},

		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5"}},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude=20",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=508.5"}},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude_msl=600",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=600"}},
		{"px4 POSCTL flying", "goto altitude=20",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5"}},
		{"px4 POSCTL flying", "goto altitude=-3",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=485.5"}},
		{"px4 POSCTL flying", "goto altitude_msl=0",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=0"}},
		{"px4 POSCTL flying", "goto heading=0", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=498.5"}},
		{"px4 POSCTL flying", "goto heading=180",
			[]string{"INT 192 frame=0 [-1 1 0 3.1415927] x=473977421 y=85455938 z=498.5"}},
		{"px4 POSCTL flying", "goto heading=270",
			[]string{"INT 192 frame=0 [-1 1 0 -1.5707964] x=473977421 y=85455938 z=498.5"}},
		{"px4 POSCTL flying", "goto heading=360",
			[]string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=498.5"}},
		{"px4 POSCTL flying", "goto lat=-33.8688 lon=151.2093 altitude=20 heading=45 speed=5",
			[]string{"INT 192 frame=0 [5 1 0 0.7853982] x=-338688000 y=1512093000 z=508.5"}},
		{"px4 POSCTL flying", "goto lat=-90 lon=-180",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=-900000000 y=-1800000000 z=498.5"}},
		{"px4 POSCTL flying", "goto lat=32.8 lon=8.5460009",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=328000000 y=85460009 z=498.5"}},
		{"px4 POSCTL flying headless", "goto lat=47.398 lon=8.546",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5"}},
		{"px4 POSCTL armed climbing", "goto altitude=20",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5"}},
		{"px4 POSCTL armed undefined", "goto altitude=20",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5"}},
		{"px4 POSCTL flying homeless", "goto lat=47.398 lon=8.546",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5"}},
		{"px4 POSCTL flying homeless", "goto altitude_msl=520",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=520"}},
		{"px4 POSCTL flying homeless", "goto altitude=20",
			[]string{"refused: altitude: the autopilot has no home position yet; give altitude_msl, or wait for its " +
				"GPS"}},
		{"px4 POSCTL flying blind", "goto lat=47.398 lon=8.546",
			[]string{"refused: altitude: the vehicle's own height is not known now; wait for its position, or goto " +
				"with altitude or altitude_msl"}},
		{"px4 POSCTL flying blind", "goto altitude=20",
			[]string{"refused: the autopilot has no position yet: give lat and lon, or wait for its GPS"}},
		{"px4 POSCTL flying blind", "goto lat=47.398 lon=8.546 altitude=20",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=508.5"}},
		{"px4 MANUAL landed", "goto lat=47.398 lon=8.546 altitude=20", []string{notFlying}},
		{"px4 POSCTL armed", "goto lat=47.398 lon=8.546 altitude=20", []string{notFlying}},

		// Only DO_SET_MODE ends a failsafe, so the plan sets the mode first.
		{"px4 AUTO.LOITER flying failsafe", "goto altitude=20",
			[]string{"LONG 176 [1 4 3 …NaN]", "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5"}},
		{"px4 AUTO.RTL flying failsafe", "goto altitude=20",
			[]string{"LONG 176 [1 4 3 …NaN]", "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5"}},
		{"px4 AUTO.RTL flying failsafe", "land lat=47.398 lon=8.546",
			[]string{"LONG 176 [1 4 3 …NaN]", "INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5",
				"over it: LONG 176 [1 4 6 …NaN]"}},
		{"px4 AUTO.RTL flying failsafe", "set mode=hold", []string{loiter, pause}},
		{"px4 POSCTL flying failsafe", "set mode=position arm=true", []string{"LONG 176 [1 3 0 …NaN]", arm}},
		{"px4 AUTO.RTL flying failsafe", "set mode=hold arm=true", []string{loiter, pause, arm}},
		{"px4 AUTO.LOITER armed failsafe", "set mode=hold arm=true", []string{loiter, pause, arm}},
		// A plan that sets a mode, or stays on the ground in its mode, needs no further step.
		{"px4 AUTO.RTL flying failsafe", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},
		{"px4 AUTO.RTL flying failsafe", "set mode=land arm=true",
			[]string{"LONG 176 [1 4 6 …NaN]", "LONG 400 [1 0 …NaN]"}},
		{"px4 AUTO.LOITER landed failsafe", "takeoff", []string{arm, climb}},
		{"px4 AUTO.RTL landed failsafe", "set mode=position arm=true", []string{"LONG 176 [1 3 0 …NaN]", arm}},

		{"px4 POSCTL flying", "land", []string{"LONG 176 [1 4 6 …NaN]"}},
		{"px4 AUTO.LAND flying landing", "land", []string{"LONG 176 [1 4 6 …NaN]"}},
		{"px4 POSCTL flying", "land lat=47.398 lon=8.546",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5", "over it: LONG 176 [1 4 6 …NaN]"}},
		{"px4 POSCTL flying homeless", "land lat=47.398 lon=8.546",
			[]string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5", "over it: LONG 176 [1 4 6 …NaN]"}},
		{"px4 MANUAL landed", "land lat=47.398 lon=8.546", []string{notFlying}},

		// To set the present mode again would keep a goto's target.
		{"px4 AUTO.LOITER flying", "set mode=hold", []string{pause}},
		{"px4 AUTO.LOITER flying blind", "set mode=hold", []string{pause}},
		{"px4 AUTO.LOITER landed", "set mode=hold", []string{loiter}},
		{"px4 AUTO.LOITER armed", "set mode=hold", []string{pause}},
		{"px4 MANUAL armed", "set mode=hold", []string{pause}}, // a takeoff may be under way
		{"px4 MANUAL armed", "set mode=hold arm=false", []string{pause, "LONG 400 [0 0 …NaN]"}},
	})
}

// TestMeaningOfPX4Plans: what each step needs of the sticks and leads to, and where the plan
// goes.
func TestMeaningOfPX4Plans(t *testing.T) {
	testMeanings(t, []meaningRow{
		{"px4 AUTO.LOITER flying", "set mode=manual", "streamed manual by MANUAL*"},
		{"px4 AUTO.LOITER flying", "set mode=altitude", "streamed altitude by ALTCTL*"},
		{"px4 AUTO.LOITER landed", "set mode=position arm=true", "streamed position by POSCTL* | streamed; to armed"},
		{"px4 AUTO.LOITER landed", "set mode=hold arm=true",
			"anyhow hold by AUTO.LOITER* | streamed; to armed; urgent"},
		{"px4 AUTO.RTL flying failsafe", "set mode=hold",
			"anyhow hold by AUTO.LOITER | anyhow hold by AUTO.LOITER*; urgent"},
		{"px4 POSCTL flying", "set mode=rtl", "anyhow rtl by AUTO.RTL*; urgent"},
		{"px4 POSCTL flying", "set mode=rtgs", "anyhow rtgs by AUTO.RTL*; urgent"},
		{"px4 POSCTL flying", "land", "anyhow land by AUTO.LAND*; urgent"},
		{"px4 POSCTL flying", "land lat=47.398 lon=8.546",
			"anyhow land by AUTO.LOITER*; over it land by AUTO.LAND; urgent; at 47.398 8.546 10, 498.5 AMSL"},
		{"px4 AUTO.RTL flying failsafe", "land lat=47.398 lon=8.546",
			"anyhow hold by AUTO.LOITER | anyhow land by AUTO.LOITER*; over it land by AUTO.LAND; urgent; at 47.398 " +
				"8.546 10, 498.5 AMSL"},
		{"px4 MANUAL landed", "takeoff",
			"anyhow hold by AUTO.LOITER | streamed | anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER " +
				"from 496.5; at NaN NaN 10, 498.5 AMSL"},
		{"px4 AUTO.LOITER landed", "takeoff",
			"streamed | anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 496.5; at NaN NaN 10, " +
				"498.5 AMSL"},
		{"px4 POSCTL flying", "takeoff altitude=30",
			"anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 512.5; at NaN NaN 30, 518.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=40",
			"anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 520.5; at NaN NaN 40, 528.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=20",
			"anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 504.5; at NaN NaN 20, 508.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=4",
			"anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 491.5; at NaN NaN 4, 492.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=3",
			"anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 490.5; at NaN NaN 3, 491.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=1.5",
			"anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 489; at NaN NaN 1.5, 490 AMSL"},
		{"px4 MANUAL landed uphill", "takeoff altitude=10",
			"anyhow hold by AUTO.LOITER | streamed | anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER " +
				"from 496.5; at NaN NaN 10, 498.5 AMSL"},
		{"px4 MANUAL landed homeless", "takeoff altitude=20",
			"anyhow hold by AUTO.LOITER | streamed | anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER " +
				"from 504.5; at NaN NaN 20, 508.5 AMSL"},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude=20",
			"anyhow hold by AUTO.LOITER*; at 47.398 8.546 20, 508.5 AMSL"},
		{"px4 POSCTL flying", "goto heading=270",
			"anyhow hold by AUTO.LOITER*; at 47.3977421 8.5455938 10, 498.5 AMSL"},
		{"px4 POSCTL flying homeless", "goto altitude_msl=508.5",
			"anyhow hold by AUTO.LOITER*; at 47.3977421 8.5455938 NaN, 508.5 AMSL"},
		{"px4 AUTO.RTL flying failsafe", "goto altitude=20",
			"anyhow hold by AUTO.LOITER | anyhow hold by AUTO.LOITER*; at 47.3977421 8.5455938 20, 508.5 AMSL"},
		{"px4 AUTO.LOITER landed", "set arm=true", "streamed; to armed"},
		{"px4 MANUAL landed", "set arm=true", "streamed; to armed"},
		{"px4 POSCTL landed", "set arm=true", "streamed; to armed"},
		{"px4 POSCTL armed", "set arm=false", "anyhow; to disarmed; urgent"},
	})
}

// Whatever the vehicle does not know, and whatever the client left out.
func TestEveryNumberThatGoesToAnArduPilotIsFinite(t *testing.T) {
	requests := []string{"takeoff", "takeoff altitude=20", "goto heading=90", "goto altitude=20", "goto speed=12",
		"goto altitude_msl=510 heading=360 speed=12", "goto lat=47.398 lon=8.546",
		"goto lat=47.398 lon=8.546 altitude=20 heading=0 speed=12", "land", "land lat=47.398 lon=8.546", "set arm=true",
		"set arm=false", "set mode=hold arm=false", "set mode=position arm=true"}
	for _, mode := range modeNames {
		requests = append(requests, "set mode="+mode)
	}
	vehicles := map[string][]string{
		"copter":    {"STABILIZE", "LOITER", "GUIDED", "RTL", "LAND"},
		"quadplane": {"QLOITER", "QLOITER hovers", "GUIDED hovers", "GUIDED wing", "GUIDED circles", "QLAND"},
		"plane":     {"FBWB", "GUIDED", "RTL", "TAKEOFF"},
	}
	planned := 0
	for kind, modes := range vehicles {
		for _, mode := range modes {
			for _, state := range []string{"landed", "armed", "flying", "flying climbing", "flying clear"} {
				for _, unknown := range []string{"", "homeless", "headless", "blind", "homeless blind"} {
					for _, asked := range requests {
						vehicle := kind + " " + mode + " " + state + " " + unknown
						for _, params := range []map[string]float64{parseVehicle(t, vehicle).params, {}} {
							v := parseVehicle(t, vehicle)
							v.params = params
							p, err := parseRequest(t, asked).plan(v, nil)
							if err == nil {
								planned++
								wantFinite(t, vehicle+": "+asked, p)
							}
						}
					}
				}
			}
		}
	}
	if planned < 5000 {
		t.Errorf("only %d plans", planned)
	}
}

// TestCopterPlans: heights are above home in frame 3, unless the request gives AMSL.
// NAV_TAKEOFF is a COMMAND_LONG in GUIDED after arming. Speed and yaw follow a goto. An
// unset parameter is 0.
func TestCopterPlans(t *testing.T) {
	const (
		guided = "LONG 176 [1 4 …0]"
		brake  = "LONG 176 [1 17 …0]"
		arm    = "LONG 400 [1 …0]"
		speed  = "if it can: LONG 178 [1 10 -1 …0]" // the default
	)
	testPlans(t, []planRow{
		{"copter STABILIZE landed", "set mode=manual", []string{"LONG 176 [1 …0]"}},
		{"copter STABILIZE landed", "set mode=altitude", []string{"LONG 176 [1 2 …0]"}},
		{"copter STABILIZE landed", "set mode=position", []string{"LONG 176 [1 5 …0]"}},
		{"copter STABILIZE landed", "set mode=hold", []string{guided}},
		{"copter STABILIZE landed", "set mode=rtl", []string{"LONG 176 [1 6 …0]"}},
		{"copter STABILIZE landed", "set mode=rtgs", []string{"LONG 176 [1 6 …0]"}},
		{"copter STABILIZE landed", "set mode=land", []string{"LONG 176 [1 9 …0]"}},
		{"copter STABILIZE landed", "set mode=takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter LOITER flying", "set mode=manual", []string{"LONG 176 [1 …0]"}},
		{"copter LOITER flying", "set mode=altitude", []string{"LONG 176 [1 2 …0]"}},
		{"copter LOITER flying", "set mode=position", []string{"LONG 176 [1 5 …0]"}},
		{"copter POSHOLD flying", "set mode=position", []string{"LONG 176 [1 5 …0]"}},
		{"copter LOITER flying", "set mode=hold", []string{brake, guided}},
		{"copter LOITER flying", "set mode=rtl", []string{"LONG 176 [1 6 …0]"}},
		{"copter RTL flying", "set mode=rtgs", []string{"LONG 176 [1 6 …0]"}},

		{"copter STABILIZE landed", "set arm=true", []string{arm}},
		{"copter STABILIZE armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"copter STABILIZE landed", "set mode=position arm=true", []string{"LONG 176 [1 5 …0]", arm}},
		{"copter RTL flying failsafe", "set mode=position arm=true", []string{"LONG 176 [1 5 …0]", arm}},
		{"copter STABILIZE armed", "set mode=hold arm=false", []string{brake, guided, "LONG 400 […0]"}},

		{"copter STABILIZE landed", "takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE landed", "takeoff altitude=25.5", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 25.5]"}},
		{"copter STABILIZE armed", "takeoff", []string{guided, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE armed undefined", "takeoff", []string{guided, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter GUIDED landed", "takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE landed homeless blind", "takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter LOITER flying", "takeoff altitude=30",
			[]string{"refused: takeoff: already flying; use goto to climb"}},
		{"copter GUIDED armed climbing", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},

		{"copter LOITER flying", "goto lat=47.398 lon=8.546",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", speed}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20", speed}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 altitude_msl=510",
			[]string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510", speed}},
		{"copter LOITER flying", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", speed}},
		{"copter LOITER flying", "goto altitude=0",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=0", speed}},
		{"copter LOITER flying", "goto altitude_msl=510",
			[]string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=510", speed}},
		{"copter LOITER flying", "goto heading=270",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10", speed, "LONG 115 [270 …0]"}},
		{"copter LOITER flying", "goto heading=0",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10", speed, "LONG 115 […0]"}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 speed=5",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", "LONG 178 [1 5 -1 …0]"}},
		{"copter GUIDED flying", "goto lat=-33.8688 lon=151.2093 altitude=20 heading=45 speed=2.5",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=-338688000 y=1512093000 z=20", "LONG 178 [1 2.5 -1 …0]",
				"LONG 115 [45 …0]"}},
		{"copter GUIDED flying", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", speed}},
		{"copter GUIDED flying WPNAV_SPEED=750", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", "if it can: LONG 178 [1 7.5 -1 …0]"}},
		{"copter GUIDED flying WPNAV_SPEED=750", "goto altitude=20 speed=3",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", "LONG 178 [1 3 -1 …0]"}},
		{"copter LOITER flying WPNAV_SPEED=750", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", "if it can: LONG 178 [1 7.5 -1 …0]"}},
		{"copter GUIDED flying WPNAV_SPEED=750", "land lat=47.398 lon=8.546",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", "if it can: LONG 178 [1 7.5 -1 …0]",
				"over it: LONG 176 [1 9 …0]"}},
		{"copter LOITER flying headless", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", speed}},
		{"copter RTL flying failsafe headless", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", speed}},
		{"copter LOITER flying homeless", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", speed}},
		{"copter LOITER flying homeless blind", "goto lat=47.398 lon=8.546 altitude_msl=510",
			[]string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510", speed}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546 altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20", speed}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546 altitude_msl=510",
			[]string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510", speed}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546",
			[]string{"refused: altitude: the vehicle's own height is not known now; wait for its position, or goto " +
				"with altitude or altitude_msl"}},
		{"copter LOITER flying blind", "goto altitude=20",
			[]string{"refused: the autopilot has no position yet: give lat and lon, or wait for its GPS"}},
		{"copter STABILIZE landed", "goto altitude=20", []string{notFlying}},
		{"copter GUIDED armed", "goto altitude=20", []string{notFlying}},

		{"copter LOITER flying", "land", []string{"LONG 176 [1 9 …0]"}},
		{"copter LOITER flying", "land lat=47.398 lon=8.546",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", speed, "over it: LONG 176 [1 9 …0]"}},
		{"copter GUIDED flying", "land lat=47.398 lon=8.546",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", speed, "over it: LONG 176 [1 9 …0]"}},
		{"copter LOITER flying blind", "land lat=47.398 lon=8.546",
			[]string{"refused: altitude: the vehicle's own height is not known now; wait for its position, or goto " +
				"with altitude or altitude_msl"}},
		{"copter STABILIZE landed", "land lat=47.398 lon=8.546", []string{notFlying}},

		// BRAKE stops it; setting GUIDED in GUIDED would let it fly on.
		{"copter GUIDED flying", "set mode=hold", []string{brake, guided}},
		{"copter GUIDED flying blind", "set mode=hold", []string{brake, guided}},
		{"copter BRAKE flying", "set mode=hold", []string{brake, guided}},
		{"copter GUIDED armed", "set mode=hold", []string{brake, guided}}, // a takeoff may be under way
		{"copter LOITER armed", "set mode=hold", []string{brake, guided}},
		{"copter GUIDED landed", "set mode=hold", []string{guided}},
	})
}

func TestPlanePlans(t *testing.T) {
	const (
		here   = "INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10"
		guided = "LONG 176 [1 15 …0]"
		arm    = "LONG 400 [1 …0]"
	)
	testPlans(t, []planRow{
		{"quadplane QLOITER flying", "set mode=manual", []string{"LONG 176 [1 17 …0]"}},
		{"quadplane QLOITER flying", "set mode=altitude", []string{"LONG 176 [1 18 …0]"}},
		{"quadplane QLOITER flying", "set mode=position", []string{"LONG 176 [1 19 …0]"}},
		{"quadplane QLOITER flying hovers", "set mode=hold",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10"}},
		{"quadplane QLOITER flying", "set mode=rtl", []string{"LONG 176 [1 21 …0]"}},
		{"quadplane QLOITER flying", "set mode=rtgs", []string{"LONG 176 [1 21 …0]"}},
		{"quadplane QLOITER flying", "set mode=land", []string{"LONG 176 [1 20 …0]"}},
		{"quadplane QLAND flying", "land", []string{"LONG 176 [1 20 …0]"}},
		{"quadplane QLOITER landed", "set mode=takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"quadplane QLOITER landed", "takeoff altitude=25", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 25]"}},
		{"quadplane QLOITER armed", "takeoff", []string{guided, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"quadplane QLOITER flying", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"quadplane QLOITER landed", "set arm=true", []string{arm}},
		{"quadplane QLOITER armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"quadplane QSTABILIZE landed", "set mode=altitude arm=true", []string{"LONG 176 [1 18 …0]", arm}},
		{"quadplane QLOITER flying hovers", "goto lat=47.398 lon=8.546 altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20"}},
		{"quadplane QLOITER flying hovers", "goto lat=47.398 lon=8.546 altitude_msl=510 heading=90",
			[]string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510", "LONG 115 [90 …0]"}},
		{"quadplane QLOITER landed", "goto altitude=20", []string{notFlying}},
		{"quadplane QLOITER flying hovers", "land lat=47.398 lon=8.546",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", "over it: LONG 176 [1 20 …0]"}},
		{"quadplane GUIDED flying hovers", "set mode=hold", []string{here}},
		{"quadplane GUIDED flying hovers blind", "set mode=hold", []string{guided}},
		{"quadplane GUIDED landed", "set mode=hold", []string{guided}},
		{"quadplane GUIDED flying hovers WPNAV_SPEED=750", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20"}},

		// Where GUIDED circles, a hovering QuadPlane can't hold; one on its wing can.
		{"quadplane QLOITER flying", "set mode=hold", []string{noHold}},
		{"quadplane QLOITER flying circles", "set mode=hold", []string{noHold}},
		{"quadplane QLOITER flying circles", "goto altitude=20", []string{circles("goto")}},
		{"quadplane QLOITER flying", "land lat=47.398 lon=8.546", []string{circles("land")}},
		// After a takeoff it stands in GUIDED: GUIDED again leaves it there. In the climb it would climb on.
		{"quadplane GUIDED flying clear", "set mode=hold", []string{guided}},
		{"quadplane GUIDED flying clear rising", "set mode=hold", []string{noHold}},
		// It has just lifted off.
		{"quadplane GUIDED flying", "set mode=hold", []string{noHold}},
		{"quadplane GUIDED flying clear moving", "set mode=hold", []string{noHold}},
		{"quadplane GUIDED armed", "set mode=hold", []string{noHold}},
		{"quadplane GUIDED flying", "goto altitude=20", []string{circles("goto")}},
		{"quadplane QLOITER landed", "set mode=hold", []string{guided}},
		// It can't stop at once: 20²/6 + 6 m ahead.
		{"quadplane GUIDED flying clear hovers wing fast", "set mode=hold",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473983957 y=85455938 z=10"}},
		// It brakes for its place, and is fast still.
		{"quadplane GUIDED flying clear hovers to-hover fast", "set mode=hold",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473983957 y=85455938 z=10"}},
		{"quadplane GUIDED flying clear hovers moving", "set mode=hold", []string{here}},
		{"quadplane GUIDED flying clear wing fast", "set mode=hold",
			[]string{here, "if it can: LONG 178 [0 -2 …0]"}},
		{"quadplane FBWA flying wing", "set mode=hold",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10", "if it can: LONG 178 [0 -2 …0]"}},
		{"quadplane GUIDED flying wing hovers", "set mode=hold", []string{here}},
		{"quadplane GUIDED flying wing", "set mode=hold", []string{here, "if it can: LONG 178 [0 -2 …0]"}},
		{"quadplane FBWA flying wing circles", "land lat=47.398 lon=8.546", []string{circles("land")}},
		{"quadplane FBWA flying wing circles", "goto altitude=20",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", "if it can: LONG 178 [0 -2 …0]"}},

		{"plane FBWB flying", "set mode=manual", []string{"LONG 176 [1 …0]"}},
		{"plane FBWB flying", "set mode=altitude", []string{"LONG 176 [1 6 …0]"}},
		{"plane FBWB flying", "set mode=position",
			[]string{`unsupported: mode: this vehicle has no mode for "position"`}},
		{"plane FBWB flying", "set mode=position arm=true",
			[]string{`unsupported: mode: this vehicle has no mode for "position"`}},
		{"plane FBWB flying", "set mode=hold", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10",
			"if it can: LONG 178 [0 -2 …0]"}},
		{"plane FBWB flying", "set mode=rtl", []string{"LONG 176 [1 11 …0]"}},
		{"plane FBWB flying", "set mode=rtgs", []string{"LONG 176 [1 11 …0]"}},
		{"plane FBWB flying", "set mode=land", []string{noLanding}},
		{"plane FBWB flying", "land", []string{noLanding}},
		{"plane FBWB flying", "land lat=47.398 lon=8.546", []string{noLanding}},
		{"plane FBWB landed", "takeoff", []string{"LONG 176 [1 15 …0]", arm, "LONG 176 [1 13 …0]"}},
		{"plane FBWB landed", "set mode=takeoff", []string{"LONG 176 [1 15 …0]", arm, "LONG 176 [1 13 …0]"}},
		{"plane FBWB armed", "takeoff", []string{"LONG 176 [1 15 …0]", "LONG 176 [1 13 …0]"}},
		{"plane TAKEOFF landed", "set arm=true", []string{"LONG 176 [1 15 …0]", arm}},
		{"plane TAKEOFF landed", "set arm=false", []string{"LONG 400 […0]"}},
		{"plane TAKEOFF flying", "set arm=true", []string{arm}},
		{"plane FBWB landed", "takeoff altitude=30",
			[]string{"unsupported: altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out"}},
		{"plane FBWB flying", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"plane FBWB landed", "set arm=true", []string{arm}},
		{"plane FBWB armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"plane FBWB flying", "goto lat=47.398 lon=8.546 altitude=60",
			[]string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=60", "if it can: LONG 178 [0 -2 …0]"}},
		{"plane FBWB flying", "goto altitude_msl=600 speed=20",
			[]string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=600", "LONG 178 [0 20 …0]"}},
		{"plane FBWB flying", "goto altitude_msl=600 speed=9",
			[]string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=600", "LONG 178 [0 9 …0]"}},
		{"plane FBWB flying", "goto altitude_msl=600 speed=8.9", []string{tooSlow}},
		{"plane FBWB flying", "goto altitude_msl=600 speed=22.1", []string{tooSlow}},
		{"quadplane GUIDED flying wing", "goto altitude=20 speed=22.1", []string{tooSlow}},
		{"quadplane GUIDED flying hovers", "goto altitude=20 speed=5", []string{ownSpeed}},
		{"quadplane GUIDED flying wing hovers", "goto altitude=20 speed=15", []string{ownSpeed}},
		{"plane FBWB flying", "goto lat=47.398 lon=8.546 heading=90",
			[]string{"unsupported: heading: on its wing the vehicle circles a place and can't keep one; leave it out"}},
		{"plane FBWB landed", "goto altitude=60", []string{notFlying}},
		{"plane GUIDED flying", "set mode=hold", []string{here, "if it can: LONG 178 [0 -2 …0]"}},
		{"plane GUIDED flying blind", "set mode=hold", []string{guided}},
		{"plane GUIDED flying fast", "set mode=hold", []string{here, "if it can: LONG 178 [0 -2 …0]"}},
	})
}

// TestMeaningOfArduPilotPlans: what each step needs of the sticks and leads to, and where the
// plan goes.
func TestMeaningOfArduPilotPlans(t *testing.T) {
	testMeanings(t, []meaningRow{
		{"copter GUIDED flying", "set mode=manual", "streamed manual by STABILIZE*"},
		{"copter GUIDED flying", "set mode=hold", "anyhow hold by BRAKE | anyhow hold by GUIDED*; urgent"},
		{"copter LOITER flying", "set mode=rtgs", "anyhow rtgs by RTL*; urgent"},
		{"copter LOITER flying", "land", "anyhow land by LAND*; urgent"},
		{"copter LOITER flying", "land lat=47.398 lon=8.546",
			"anyhow land by GUIDED* | anyhow; over it land by LAND; urgent; at 47.398 8.546 10, 498.5 AMSL"},
		{"copter STABILIZE landed", "takeoff",
			"anyhow hold by GUIDED | streamed | anyhow takeoff by GUIDED*; to armed; at NaN NaN 10, 498.5 AMSL"},
		{"copter LOITER landed", "set arm=true", "streamed; to armed"},
		{"copter GUIDED landed", "set arm=true", "streamed; to armed"},
		{"copter STABILIZE landed", "set mode=position arm=true", "streamed position by LOITER* | streamed; to armed"},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 speed=5 heading=45",
			"anyhow hold by GUIDED* | anyhow | anyhow; at 47.398 8.546 10, 498.5 AMSL"},
		{"copter LOITER flying", "goto altitude=20",
			"anyhow hold by GUIDED* | anyhow; at 47.3977421 8.5455938 20, 508.5 AMSL"},

		{"quadplane QHOVER flying", "set mode=position", "streamed position by QLOITER*"},
		{"quadplane QHOVER flying hovers", "land lat=47.398 lon=8.546",
			"anyhow land by GUIDED*; over it land by QLAND; urgent; at 47.398 8.546 10, 498.5 AMSL"},
		{"quadplane QLOITER landed", "takeoff",
			"anyhow hold by GUIDED | streamed | anyhow takeoff by GUIDED*; to armed; at NaN NaN 10, 498.5 AMSL"},
		{"quadplane GUIDED flying hovers", "set mode=hold",
			"anyhow hold by GUIDED*; urgent; at 47.3977421 8.5455938 10, 498.5 AMSL"},
		{"plane FBWB flying", "set mode=manual", "streamed manual by MANUAL*"},
		{"plane MANUAL landed", "takeoff",
			"anyhow hold by GUIDED | streamed | anyhow takeoff by TAKEOFF*; to armed; at NaN NaN 50, 538.5 AMSL"},
	})
}

func TestARefusedInputNamesTheStickModesThatTheVehicleHas(t *testing.T) {
	for _, c := range []struct {
		v    view
		want string
	}{
		{view{firmware: px4}, "manual, altitude or position"},
		{view{firmware: plane}, "manual or altitude"},
		{view{firmware: px4, typ: common.MAV_TYPE_GROUND_ROVER, version: px4Drives}, "manual or position"},
	} {
		lineEqual(t, "stick modes", c.v.stickModes(), c.want)
	}
}

func TestAHoldIsAModeOfAQuadPlaneUnlessItWouldLeaveItsHover(t *testing.T) {
	for _, c := range []struct {
		vehicle string
		want    bool
	}{
		{"quadplane QLOITER flying", false},
		{"quadplane QLOITER flying hovers", true},
		{"quadplane QLOITER flying wing", true},
		{"quadplane QLOITER landed", true},
		// After a takeoff.
		{"quadplane GUIDED flying clear", true},
		{"quadplane GUIDED flying clear rising", false},
		{"quadplane GUIDED armed clear", false},
		{"quadplane QLOITER flying clear", false},
		{"px4-boat AUTO.LOITER flying", false},
		{"copter LOITER flying", true},
	} {
		v := parseVehicle(t, c.vehicle)
		lineEqual(t, c.vehicle+" has hold", slices.Contains(v.modes(), "hold"), c.want)
	}
}

// lag: it is refused where the line is far behind.
func TestARequestIsUrgentFliesToAPlaceOrArmsByWhatItAsksFor(t *testing.T) {
	for words, want := range map[string]string{
		"set arm=true":                   "arms lag",
		"set arm=false":                  "urgent",
		"set mode=manual":                "sticks lag",
		"set mode=position arm=true":     "arms sticks lag",
		"set mode=position arm=false":    "sticks lag",
		"set mode=takeoff":               "arms lag",
		"takeoff altitude=20":            "arms lag",
		"set mode=hold":                  "urgent stays",
		"set mode=rtl":                   "urgent stays",
		"set mode=land":                  "urgent stays",
		"set mode=land arm=false":        "urgent",
		"land lat=47.398 lon=8.546":      "urgent place lag",
		"goto altitude=20":               "place lag",
		"goto lat=47.398 lon=8.546":      "place lag",
		"goto north=1":                   "place over-ground lag",
		"goto east=1":                    "place over-ground lag",
		"goto forward=1":                 "place over-ground by-nose lag",
		"goto right=1":                   "place over-ground by-nose lag",
		"goto lat=47.398 lon=8.546 up=1": "place lag",
	} {
		t.Run(words, func(t *testing.T) {
			r := parseRequest(t, words)
			var is []string
			for _, p := range []struct {
				name string
				is   bool
			}{
				{"urgent", r.urgent()}, {"stays", r.stays()}, {"arms", r.arms()}, {"sticks", r.entersSticks()},
				{"place", r.toPlace()}, {"over-ground", r.offset.overGround()}, {"by-nose", r.offset.byNose()},
				{"lag", r.checkLag(freshFor, true) != nil},
			} {
				if p.is {
					is = append(is, p.name)
				}
			}
			lineEqual(t, "it is", strings.Join(is, " "), want)
			if err := r.checkLag(freshFor-1, true); err != nil {
				t.Errorf("at a line that is sound enough: %v", err)
			}
			other := r
			other.from = netip.MustParseAddr("192.0.2.1")
			refusal := refuse(codeRefused, "no")
			if err := withLag(refusal, 3*lateFrom/2); err.Error() != "no; it was sent by reports that were 1.5 s old" ||
				withLag(refusal, lateFrom-1) != refusal || withLag(nil, 2*lateFrom) != nil {
				t.Errorf("a refusal on a line that is behind: %v", err)
			}
			if !r.equals(other) || !other.equals(r) || r.equals(request{verb: entersMode, mode: ModeOther}) {
				t.Error("it does not equal another client's, or equals any")
			}
		})
	}
}

// Of each step: when it goes out, and whether it holds; then whether the vehicle is stopped before, and the height that
// the plan leads to, above home and above the sea.
func TestWhatAPlanWaitsForAndWhereItHolds(t *testing.T) {
	climb := &aim{place: place{math.NaN(), math.NaN(), 30, testHome + 30}}
	for _, c := range []struct {
		vehicle, request string
		aim              *aim
		want             string
	}{
		{"px4 AUTO.LOITER flying", "set mode=hold", nil, "at once hold"},
		{"px4 AUTO.LOITER flying", "set mode=rtl", nil, "at once"},
		{"px4 AUTO.LOITER armed climbing", "set mode=rtl", nil, "when clear"},
		{"px4 AUTO.TAKEOFF flying", "set mode=rtl", nil, "when clear"},
		{"px4 AUTO.LOITER armed", "set mode=rtgs", climb, "when clear"},
		{"px4 AUTO.TAKEOFF landed", "set mode=rtl", nil, "at once"},
		{"px4 AUTO.LOITER flying", "goto altitude=20", nil, "when clear, to 20 m / 508.5 m"},
		{"px4 AUTO.LOITER armed climbing", "goto lat=47.398 lon=8.546", climb, "when clear, to 30 m / 518.5 m"},
		{"px4 AUTO.LOITER flying", "land lat=47.398 lon=8.546", nil, "when clear, to 10 m / 498.5 m"},
		{"px4 AUTO.LOITER flying", "land", nil, "at once"},
		{"px4-plane AUTO.LOITER flying", "set mode=hold", nil, "when clear hold"},
		{"px4-plane AUTO.LOITER flying low", "set mode=hold", nil, "when clear hold, to 17 m / 505.5 m"},
		{"px4-plane AUTO.LAND flying landing", "set mode=hold", nil, "at once hold"},
		{"px4-plane AUTO.LAND flying landing", "set mode=rtl", nil, "at once"},
		{"px4-plane AUTO.LOITER armed", "set mode=hold", nil, "at once hold, to 10 m / 498.5 m"},
		{"px4-plane AUTO.LOITER armed", "set mode=hold", climb, "when clear hold, to 30 m / 518.5 m"},
		{"px4-plane AUTO.LOITER flying", "set mode=rtl", nil, "when clear"},
		{"px4-vtol AUTO.LOITER flying wing", "set mode=hold", nil, "when clear hold"},
		{"px4-vtol AUTO.LOITER flying hovering", "set mode=hold", nil, "at once hold"},
		{"plane GUIDED flying", "set mode=hold", nil, "when clear hold, at once, to 10 m / 498.5 m"},
		{"plane GUIDED flying", "set mode=rtl", nil, "when clear"},
		{"plane AUTOLAND flying", "set mode=hold", nil, "at once hold, at once, to 10 m / 498.5 m"},
		{"quadplane GUIDED flying hovers", "set mode=hold", nil, "at once hold, to 10 m / 498.5 m"},
		{"quadplane QLOITER armed climbing", "set mode=rtl", nil, "when clear"},
		{"copter GUIDED flying", "set mode=hold", nil, "at once, at once"},
		{"copter GUIDED flying", "set mode=rtl", nil, "at once"},
		{"copter GUIDED armed climbing", "set mode=rtl", nil, "when clear"},
		{"copter GUIDED flying", "goto altitude=20 speed=3 heading=10", nil,
			"when clear, at once, at once, to 20 m / 508.5 m"},
		{"px4 AUTO.LOITER armed", "goto lat=47.398 lon=8.546", climb, "when clear, to 30 m / 518.5 m"},
		{"px4 AUTO.LOITER flying", "goto altitude_msl=520", nil, "when clear, to 31.5 m / 520 m"},
		{"px4-rover POSCTL armed moving", "set arm=false", nil, "at once, stopped"},
		{"px4-rover POSCTL armed moving", "set mode=hold", nil, "at once hold"},
		{"px4-rover POSCTL armed moving", "set mode=land", nil, "at once, stopped"},
		{"px4-rover POSCTL armed", "set arm=false", nil, "at once"},
		{"px4-rover POSCTL landed moving", "set arm=false", nil, "at once"},
		{"px4-rover POSCTL armed climbing", "set mode=rtl", nil, "at once"},
		{"px4 POSCTL armed moving", "set arm=false", nil, "at once"},
	} {
		t.Run(c.vehicle+": "+c.request, func(t *testing.T) {
			v := parseVehicle(t, c.vehicle)
			p, err := parseRequest(t, c.request).placed(v).plan(v, c.aim)
			if err != nil {
				t.Fatal(err)
			}
			lineEqual(t, "it waits, holds and leads", stepsWait(p), c.want)
			lineEqual(t, "it flies away", p.away(), strings.Contains(c.want, "when clear"))
		})
	}
}

func stepsWait(p plan) string {
	var is []string
	for _, s := range p.steps {
		word := "at once"
		if s.away {
			word = "when clear"
		}
		if s.name == "the hold" {
			word += " hold"
		}
		is = append(is, word)
	}
	if p.stop != nil {
		is = append(is, "stopped")
	}
	if to := p.destination; to != nil {
		is = append(is, fmt.Sprintf("to %.4g m / %.4g m", to.altitude, to.amsl))
	}
	return strings.Join(is, ", ")
}

func TestAClimbEndsAPX4sFailsafeFirst(t *testing.T) {
	px4Climbs := "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z="
	for vehicle, want := range map[string][]string{
		"px4 AUTO.RTL flying failsafe":  {"LONG 176 [1 4 3 …NaN]", px4Climbs + "501.5"},
		"px4 POSCTL flying":             {px4Climbs + "501.5"},
		"px4-plane AUTO.LOITER flying":  {px4Climbs + "513.5"},
		"copter GUIDED flying failsafe": {"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=13"},
	} {
		v := parseVehicle(t, vehicle)
		p := planClimb(v)
		lineEqual(t, vehicle, strings.Join(describeSteps(p, nil), ", "), strings.Join(want, ", "))
		lineEqual(t, vehicle+" leads", *p.destination, v.climbTo())
	}
}

func TestEachNumberOfAStepIsInItsOwnFieldOfTheMessage(t *testing.T) {
	s := step{cmd: common.MAV_CMD_DO_REPOSITION, frame: common.MAV_FRAME_GLOBAL_RELATIVE_ALT,
		p: [7]float32{1, 2, 3, 4, 5, 6, 7}, x: 8, y: 9}
	lineEqual(t, "a COMMAND_LONG", *s.message(10, 11).(*common.MessageCommandLong), common.MessageCommandLong{
		TargetSystem: 10, TargetComponent: 1, Command: 192, Confirmation: 11,
		Param1: 1, Param2: 2, Param3: 3, Param4: 4, Param5: 5, Param6: 6, Param7: 7})
	s.asInt = true
	lineEqual(t, "a COMMAND_INT", *s.message(10, 11).(*common.MessageCommandInt), common.MessageCommandInt{
		TargetSystem: 10, TargetComponent: 1, Frame: 3, Command: 192,
		Param1: 1, Param2: 2, Param3: 3, Param4: 4, X: 8, Y: 9, Z: 7})
}
