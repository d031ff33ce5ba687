package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// TestPX4Plans: places and heights in DO_REPOSITION and NAV_TAKEOFF are AMSL
// whatever the frame says, yaw is in radians, unset is NaN.
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
		{"px4 MANUAL landed", "set mode=rtgs", []string{"LONG 176 [1 4 5 …NaN]"}}, // it refuses 4,7
		{"px4 MANUAL landed", "set mode=land", []string{"LONG 21 […NaN]"}},
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
		{"px4 MANUAL armed", "set arm=false", []string{"LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=position arm=true", []string{"LONG 176 [1 3 0 …NaN]", arm}},
		{"px4 MANUAL landed", "set mode=hold arm=false", []string{loiter, "LONG 400 [0 0 …NaN]"}},
		{"px4 MANUAL landed", "set mode=takeoff arm=true", []string{loiter, arm, climb}},
		{"px4 POSCTL flying", "set mode=land arm=false", []string{"refused: arm: not while flying; the mode was not set either"}},

		{"px4 MANUAL landed", "takeoff", []string{loiter, arm, climb}},
		{"px4 MANUAL landed", "takeoff altitude=25", []string{loiter, arm, "LONG 22 [NaN NaN NaN NaN NaN NaN 513.5]"}},
		{"px4 AUTO.LOITER landed", "takeoff", []string{arm, climb}},
		{"px4 AUTO.LOITER armed", "takeoff", []string{climb}},
		{"px4 AUTO.TAKEOFF landed", "takeoff", []string{loiter, arm, climb}},
		{"px4 MANUAL armed", "takeoff", []string{climb}},
		{"px4 POSCTL flying", "takeoff altitude=30", []string{"LONG 22 [NaN NaN NaN NaN NaN NaN 518.5]"}},
		{"px4 POSCTL flying", "takeoff", []string{"refused: altitude: the vehicle is already 10.0 m above home"}},
		{"px4 MANUAL landed uphill", "takeoff altitude=5", []string{"refused: altitude: the vehicle is already 6.5 m above home"}},
		{"px4 MANUAL landed uphill", "takeoff", []string{loiter, arm, climb}},
		{"px4 MANUAL landed homeless", "takeoff altitude=20", []string{loiter, arm, "LONG 22 [NaN NaN NaN NaN NaN NaN 508.5]"}},
		{"px4 POSCTL flying homeless", "takeoff altitude=20", []string{"refused: takeoff: the autopilot has no home position yet; wait for its GPS"}},
		{"px4 MANUAL landed homeless blind", "takeoff", []string{"refused: takeoff: the autopilot has no home position yet; wait for its GPS"}},

		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=498.5"}},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=508.5"}},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude_msl=600", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=600"}},
		{"px4 POSCTL flying", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5"}},
		{"px4 POSCTL flying", "goto altitude=-3", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=485.5"}},
		{"px4 POSCTL flying", "goto altitude_msl=0", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=0"}},
		{"px4 POSCTL flying", "goto heading=0", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=498.5"}},
		{"px4 POSCTL flying", "goto heading=180", []string{"INT 192 frame=0 [-1 1 0 3.1415927] x=473977421 y=85455938 z=498.5"}},
		{"px4 POSCTL flying", "goto heading=270", []string{"INT 192 frame=0 [-1 1 0 -1.5707964] x=473977421 y=85455938 z=498.5"}},
		{"px4 POSCTL flying", "goto heading=360", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=498.5"}},
		{"px4 POSCTL flying", "goto lat=-33.8688 lon=151.2093 altitude=20 heading=45 speed=5", []string{"INT 192 frame=0 [5 1 0 0.7853982] x=-338688000 y=1512093000 z=508.5"}},
		{"px4 POSCTL flying", "goto lat=-90 lon=-180", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=-900000000 y=-1800000000 z=498.5"}},
		{"px4 POSCTL flying", "goto lat=32.8 lon=8.5460009", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=328000000 y=85460009 z=498.5"}},
		{"px4 POSCTL flying headless", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5"}},
		{"px4 POSCTL armed climbing", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5"}},
		{"px4 POSCTL armed undefined", "goto altitude=20", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5"}},
		{"px4 POSCTL flying homeless", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473980000 y=85460000 z=498.5"}},
		{"px4 POSCTL flying homeless", "goto altitude_msl=520", []string{"INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=520"}},
		{"px4 POSCTL flying homeless", "goto altitude=20", []string{"refused: altitude: the autopilot has no home position yet; give altitude_msl, or wait for its GPS"}},
		{"px4 POSCTL flying blind", "goto altitude=20", []string{"refused: the autopilot has no position yet: give lat and lon, or wait for its GPS"}},
		{"px4 POSCTL flying blind", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=508.5"}},
		{"px4 MANUAL landed", "goto lat=47.398 lon=8.546 altitude=20", []string{notFlying}},
		{"px4 POSCTL armed", "goto lat=47.398 lon=8.546 altitude=20", []string{notFlying}},

		// Only DO_SET_MODE ends a failsafe; what is refused after it asks for the return again.
		{"px4 AUTO.LOITER flying failsafe", "goto altitude=20", []string{loiter, "INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5", endsFailsafe}},
		{"px4 AUTO.RTL flying failsafe", "goto altitude=20", []string{loiter, "INT 192 frame=0 [-1 1 0 1.5707964] x=473977421 y=85455938 z=508.5", endsFailsafe}},
		{"px4 AUTO.RTL flying failsafe", "land lat=47.398 lon=8.546", []string{loiter, "INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5", "over it: LONG 21 […NaN]", endsFailsafe}},
		{"px4 AUTO.RTL flying failsafe", "set mode=hold", []string{loiter, pause, endsFailsafe}},
		{"px4 POSCTL flying failsafe", "set mode=position arm=true", []string{"LONG 176 [1 3 0 …NaN]", arm, endsFailsafe}},
		{"px4 AUTO.RTL flying failsafe", "set mode=hold arm=true", []string{loiter, pause, arm, endsFailsafe}},
		// No failsafe was ended where the one mode change is refused, or there is none.
		{"px4 AUTO.RTL flying failsafe", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},
		{"px4 AUTO.RTL flying failsafe", "set mode=land arm=true", []string{"LONG 21 […NaN]", arm}},
		{"px4 AUTO.LOITER landed failsafe", "takeoff", []string{arm, climb}},
		{"px4 AUTO.LOITER armed failsafe", "set mode=hold arm=true", []string{loiter, pause, arm}},
		{"px4 AUTO.RTL landed failsafe", "set mode=position arm=true", []string{"LONG 176 [1 3 0 …NaN]", arm}},

		{"px4 POSCTL flying", "land", []string{"LONG 21 […NaN]"}},
		{"px4 AUTO.LAND flying landing", "land", []string{"LONG 21 […NaN]"}},
		{"px4 POSCTL flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5", "over it: LONG 21 […NaN]"}},
		{"px4 POSCTL flying homeless", "land lat=47.398 lon=8.546", []string{"INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5", "over it: LONG 21 […NaN]"}},
		{"px4 MANUAL landed", "land lat=47.398 lon=8.546", []string{notFlying}},

		// Asking again for the mode it is in would leave a goto's target standing.
		{"px4 AUTO.LOITER flying", "set mode=hold", []string{pause}},
		{"px4 AUTO.LOITER flying blind", "set mode=hold", []string{pause}},
		{"px4 AUTO.LOITER landed", "set mode=hold", []string{loiter}},
		{"px4 AUTO.LOITER armed", "set mode=hold", []string{pause}},
		{"px4 MANUAL armed", "set mode=hold", []string{pause}}, // a takeoff may be under way
		{"px4 MANUAL armed", "set mode=hold arm=false", []string{pause, "LONG 400 [0 0 …NaN]"}},
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
		if s := p.steps[len(p.steps)-1]; s.cmd != common.MAV_CMD_NAV_TAKEOFF || s.asInt || !math.IsNaN(float64(s.p[4])) || !math.IsNaN(float64(s.p[5])) || s.p[6] <= testHome {
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
		posctl   = "if it can: LONG 176 [1 3 0 …NaN]"
		altctl   = "if it can: LONG 176 [1 2 0 …NaN]"
		rtl      = "LONG 176 [1 4 5 …NaN]"
		loiter   = "LONG 176 [1 4 3 …NaN]"
		pause    = "LONG 192 [-1 1 0 …NaN]"
		manual   = "LONG 176 [1 1 0 …NaN]"
		altitude = "LONG 176 [1 2 0 …NaN]"
	)
	testPlans(t, []planRow{
		{"px4 ALTCTL flying streams", "set mode=rtl", []string{posctl, rtl}},
		{"px4 MANUAL flying streams", "set mode=rtl", []string{posctl, rtl}},
		{"px4 STABILIZED flying streams", "set mode=rtl", []string{posctl, rtl}},
		{"px4 ALTCTL flying streams", "set mode=hold", []string{posctl, pause}},
		{"px4 ALTCTL flying streams", "land", []string{posctl, "LONG 21 […NaN]"}},
		{"px4 ALTCTL flying streams headless", "goto altitude=20", []string{posctl, "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5"}},
		{"px4 ALTCTL flying streams headless failsafe", "goto altitude=20", []string{posctl, loiter, "INT 192 frame=0 [-1 1 0 NaN] x=473977421 y=85455938 z=508.5", endsFailsafe}},
		{"px4 MANUAL flying streams", "land lat=47.398 lon=8.546", []string{posctl, "INT 192 frame=0 [-1 1 0 NaN] x=473980000 y=85460000 z=498.5", "over it: LONG 21 […NaN]"}},
		{"px4 ALTCTL armed undefined streams", "takeoff altitude=30", []string{posctl, "LONG 22 [NaN NaN NaN NaN NaN NaN 518.5]"}},
		{"px4 POSCTL flying streams", "set mode=rtl", []string{rtl}},
		{"px4 POSCTL flying streams", "set mode=hold", []string{pause}},
		{"px4 MANUAL flying streams blind", "set mode=rtl", []string{altctl, rtl}},
		{"px4 ALTCTL flying streams blind", "set mode=rtl", []string{rtl}},
		// Where no sticks of ours move, or nothing flies, there is nothing to lead out of.
		{"px4 ALTCTL flying", "set mode=rtl", []string{rtl}},
		{"px4 ALTCTL armed streams", "set mode=rtl", []string{rtl}},
		{"px4 AUTO.LOITER flying streams", "set mode=rtl", []string{rtl}},
		{"copter ALT_HOLD flying streams", "set mode=rtl", []string{"LONG 176 [1 6 …0]"}},

		// From one stick mode to another nothing stands between.
		{"px4 ALTCTL flying streams away", "set mode=manual", []string{manual}},
		{"px4 MANUAL flying streams away", "set mode=altitude", []string{altitude}},
		{"px4 MANUAL flying streams away", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},

		// Centring the sticks in an AUTO mode leads to POSCTL anyway.
		{"px4 AUTO.LOITER flying away", "set mode=altitude", []string{posctl, altitude}},
		{"px4 AUTO.LOITER flying away", "set mode=manual", []string{posctl, manual}},
		{"px4 AUTO.LOITER flying away blind", "set mode=manual", []string{altctl, manual}},
		{"px4 AUTO.LOITER flying away", "set mode=position", []string{"LONG 176 [1 3 0 …NaN]"}},
		{"px4 AUTO.LOITER flying", "set mode=altitude", []string{altitude}},
		{"px4 AUTO.LOITER landed away", "set mode=altitude", []string{altitude}},
		{"copter GUIDED flying away", "set mode=altitude", []string{"LONG 176 [1 2 …0]"}},
	})
}

// TestPX4PlanTellsMachineAndSticksWhatItMeans: what each step needs of the sticks
// and leads to, and where the plan goes.
func TestPX4PlanTellsMachineAndSticksWhatItMeans(t *testing.T) {
	testMeanings(t, []meaningRow{
		{"px4 AUTO.LOITER flying", "set mode=manual", "led manual by MANUAL*"},
		{"px4 AUTO.LOITER flying", "set mode=altitude", "led altitude by ALTCTL*"},
		{"px4 AUTO.LOITER flying away", "set mode=altitude", "anyhow position by POSCTL | led altitude by ALTCTL*"},
		{"px4 AUTO.LOITER landed", "set mode=position arm=true", "led position by POSCTL* | led; to armed"},
		{"px4 AUTO.LOITER landed", "set mode=hold arm=true", "still hold by AUTO.LOITER* | led; to armed"},
		{"px4 POSCTL flying streams", "set mode=hold", "still hold by AUTO.LOITER*"},
		{"px4 ALTCTL flying streams", "set mode=hold", "anyhow position by POSCTL | still hold by AUTO.LOITER*"},
		{"px4 MANUAL flying streams blind", "set mode=hold", "anyhow altitude by ALTCTL | still hold by AUTO.LOITER*"},
		{"px4 AUTO.RTL flying failsafe", "set mode=hold", "still hold by AUTO.LOITER | anyhow hold by AUTO.LOITER*"},
		{"px4 POSCTL flying", "set mode=rtl", "still rtl by AUTO.RTL*; urgent"},
		{"px4 POSCTL flying", "set mode=rtgs", "still rtgs by AUTO.RTL*; urgent"},
		{"px4 POSCTL flying", "land", "still land by AUTO.LAND*; urgent"},
		{"px4 POSCTL flying", "land lat=47.398 lon=8.546", "still land by AUTO.LOITER*; over it land by AUTO.LAND; urgent; at 47.398 8.546 10, 498.5 AMSL"},
		{"px4 AUTO.RTL flying failsafe", "land lat=47.398 lon=8.546", "still hold by AUTO.LOITER | anyhow land by AUTO.LOITER*; over it land by AUTO.LAND; urgent; at 47.398 8.546 10, 498.5 AMSL"},
		{"px4 MANUAL landed", "takeoff", "still hold by AUTO.LOITER | led | anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 496.5; at NaN NaN 10, 498.5 AMSL"},
		{"px4 AUTO.LOITER landed", "takeoff", "still | anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 496.5; at NaN NaN 10, 498.5 AMSL"},
		{"px4 POSCTL flying", "takeoff altitude=30", "still takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 515.5; at NaN NaN 30, 518.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=40", "still takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 524.5; at NaN NaN 40, 528.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=20", "still takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 506.5; at NaN NaN 20, 508.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=4", "still takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 490.5; at NaN NaN 4, 492.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=3", "still takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 490; at NaN NaN 3, 491.5 AMSL"},
		{"px4 AUTO.LOITER armed", "takeoff altitude=1.5", "still takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 489.1; at NaN NaN 1.5, 490 AMSL"},
		{"px4 MANUAL landed uphill", "takeoff altitude=10", "still hold by AUTO.LOITER | led | anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 496.5; at NaN NaN 10, 498.5 AMSL"},
		{"px4 MANUAL landed homeless", "takeoff altitude=20", "still hold by AUTO.LOITER | led | anyhow takeoff by AUTO.TAKEOFF*; to armed; ends in AUTO.LOITER from 506.5; at NaN NaN 20, 508.5 AMSL"},
		{"px4 POSCTL flying", "goto lat=47.398 lon=8.546 altitude=20", "still hold by AUTO.LOITER*; at 47.398 8.546 20, 508.5 AMSL"},
		{"px4 POSCTL flying", "goto heading=270", "still hold by AUTO.LOITER*; at 47.3977421 8.5455938 10, 498.5 AMSL; facing 270"},
		{"px4 POSCTL flying homeless", "goto altitude_msl=508.5", "still hold by AUTO.LOITER*; at 47.3977421 8.5455938 NaN, 508.5 AMSL"},
		{"px4 AUTO.RTL flying failsafe", "goto altitude=20", "still hold by AUTO.LOITER | anyhow hold by AUTO.LOITER*; at 47.3977421 8.5455938 20, 508.5 AMSL"},
		{"px4 AUTO.LOITER landed", "set arm=true", "led; to armed"},
		{"px4 MANUAL landed", "set arm=true", "led; to armed"},
		{"px4 POSCTL landed", "set arm=true", "led; to armed"},
		{"px4 POSCTL armed", "set arm=false", "anyhow; to disarmed; urgent"},
	})
}
