package main

import "testing"

// TestCopterPlans: heights are above home in frame 3 unless told AMSL, NAV_TAKEOFF
// is a COMMAND_LONG in GUIDED after arming, speed and yaw go after a goto, unset
// is 0.
func TestCopterPlans(t *testing.T) {
	const (
		guided = "LONG 176 [1 4 …0]"
		brake  = "LONG 176 [1 17 …0]"
		arm    = "LONG 400 [1 …0]"
		yaw    = "if it can: LONG 115 [90 …0]" // as it is
	)
	testPlans(t, []planRow{
		{"copter STABILIZE landed", "set mode=manual", []string{"LONG 176 [1 …0]"}},
		{"copter STABILIZE landed", "set mode=altitude", []string{"LONG 176 [1 2 …0]"}},
		{"copter STABILIZE landed", "set mode=position", []string{"LONG 176 [1 5 …0]"}},
		{"copter STABILIZE landed", "set mode=hold", []string{guided}},
		{"copter STABILIZE landed", "set mode=rtl", []string{"LONG 176 [1 6 …0]"}},
		{"copter STABILIZE landed", "set mode=rtgs", []string{"LONG 176 [1 6 …0]"}},
		{"copter STABILIZE landed", "set mode=land", []string{"LONG 21 […0]"}},
		{"copter STABILIZE landed", "set mode=takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter LOITER flying", "set mode=manual", []string{"LONG 176 [1 …0]"}},
		{"copter LOITER flying", "set mode=altitude", []string{"LONG 176 [1 2 …0]"}},
		{"copter LOITER flying", "set mode=position", []string{"LONG 176 [1 5 …0]"}},
		{"copter POSHOLD flying", "set mode=position", []string{"LONG 176 [1 5 …0]"}},
		{"copter LOITER flying", "set mode=hold", []string{guided}},
		{"copter LOITER flying", "set mode=rtl", []string{"LONG 176 [1 6 …0]"}},
		{"copter RTL flying", "set mode=rtgs", []string{"LONG 176 [1 6 …0]"}},

		{"copter STABILIZE landed", "set arm=true", []string{arm}},
		{"copter STABILIZE armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"copter STABILIZE landed", "set mode=position arm=true", []string{"LONG 176 [1 5 …0]", arm}},
		{"copter RTL flying failsafe", "set mode=position arm=true", []string{"LONG 176 [1 5 …0]", arm}},
		{"copter STABILIZE armed", "set mode=hold arm=false", []string{guided, "LONG 400 […0]"}},

		{"copter STABILIZE landed", "takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE landed", "takeoff altitude=25.5", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 25.5]"}},
		{"copter STABILIZE armed", "takeoff", []string{guided, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE armed undefined", "takeoff", []string{guided, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter GUIDED landed", "takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter STABILIZE landed homeless blind", "takeoff", []string{guided, arm, "LONG 22 [0 0 0 0 0 0 10]"}},
		{"copter LOITER flying", "takeoff altitude=30", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"copter GUIDED armed climbing", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},

		{"copter LOITER flying", "goto lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", yaw}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20", yaw}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510", yaw}},
		{"copter LOITER flying", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", yaw}},
		{"copter LOITER flying", "goto altitude=0", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=0", yaw}},
		{"copter LOITER flying", "goto altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=510", yaw}},
		{"copter LOITER flying", "goto heading=270", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10", "LONG 115 [270 …0]"}},
		{"copter LOITER flying", "goto heading=0", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=10", "LONG 115 […0]"}},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 speed=5", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", "LONG 178 [1 5 -1 …0]", yaw}},
		{"copter GUIDED flying", "goto lat=-33.8688 lon=151.2093 altitude=20 heading=45 speed=2.5", []string{"INT 192 frame=3 [-1 1 0 0] x=-338688000 y=1512093000 z=20", "LONG 178 [1 2.5 -1 …0]", "LONG 115 [45 …0]"}},
		{"copter GUIDED flying", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", yaw}},
		{"copter GUIDED flying sped", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", "if it can: LONG 178 [1 7.5 -1 …0]", yaw}},
		{"copter GUIDED flying sped", "goto altitude=20 speed=3", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", "LONG 178 [1 3 -1 …0]", yaw}},
		{"copter LOITER flying sped", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", yaw}}, // entering GUIDED resets it
		{"copter GUIDED flying sped", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", "if it can: LONG 178 [1 7.5 -1 …0]", "over it: LONG 21 […0]"}},
		{"copter LOITER flying headless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20"}},
		{"copter RTL flying failsafe headless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20"}},
		{"copter LOITER flying homeless", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20", yaw}},
		{"copter LOITER flying homeless blind", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510"}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20"}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546 altitude_msl=510", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510"}},
		{"copter LOITER flying blind", "goto lat=47.398 lon=8.546", []string{"refused: altitude: the autopilot's own height is not known yet; give altitude or altitude_msl"}},
		{"copter LOITER flying blind", "goto altitude=20", []string{"refused: the autopilot has no position yet: give lat and lon, or wait for its GPS"}},
		{"copter STABILIZE landed", "goto altitude=20", []string{notFlying}},
		{"copter GUIDED armed", "goto altitude=20", []string{notFlying}},

		{"copter LOITER flying", "land", []string{"LONG 21 […0]"}},
		{"copter LOITER flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", "over it: LONG 21 […0]"}},
		{"copter GUIDED flying", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", "over it: LONG 21 […0]"}},
		{"copter LOITER flying blind", "land lat=47.398 lon=8.546", []string{"refused: altitude: the autopilot's own height is not known yet; give altitude or altitude_msl"}},
		{"copter STABILIZE landed", "land lat=47.398 lon=8.546", []string{notFlying}},

		// BRAKE stops it; GUIDED asked for in GUIDED flies on.
		{"copter GUIDED flying", "set mode=hold", []string{brake, guided}},
		{"copter GUIDED flying blind", "set mode=hold", []string{brake, guided}},
		{"copter BRAKE flying", "set mode=hold", []string{guided}},
		{"copter ALT_HOLD flying streams", "set mode=hold", []string{guided}},
		{"copter GUIDED armed", "set mode=hold", []string{brake, guided}},          // a takeoff may be under way
		{"copter LOITER flying to-hold", "set mode=hold", []string{brake, guided}}, // it may fly somewhere
		{"copter LOITER armed", "set mode=hold", []string{guided}},
		{"copter GUIDED landed", "set mode=hold", []string{guided}},
	})
}

// circles is the refusal of a QuadPlane that does not hover in GUIDED.
func circles(what string) string {
	return "unsupported: " + what + ": this QuadPlane circles in GUIDED instead of hovering; set Q_GUIDED_MODE to 1"
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
		{"quadplane QLOITER flying hovers", "set mode=hold", []string{guided}},
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
		{"quadplane QLOITER flying hovers", "goto lat=47.398 lon=8.546 altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=20"}},
		{"quadplane QLOITER flying hovers", "goto lat=47.398 lon=8.546 altitude_msl=510 speed=5 heading=90", []string{"INT 192 frame=0 [-1 1 0 0] x=473980000 y=85460000 z=510", "LONG 178 [1 5 -1 …0]", "LONG 115 [90 …0]"}},
		{"quadplane QLOITER landed", "goto altitude=20", []string{notFlying}},
		{"quadplane QLOITER flying hovers", "land lat=47.398 lon=8.546", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=10", "over it: LONG 176 [1 20 …0]"}},
		{"quadplane GUIDED flying hovers", "set mode=hold", []string{here}},
		{"quadplane GUIDED flying hovers blind", "set mode=hold", []string{guided}},
		{"quadplane QLOITER flying hovers to-hold", "set mode=hold", []string{here}},
		{"quadplane GUIDED landed", "set mode=hold", []string{guided}},
		{"quadplane GUIDED flying hovers sped", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20"}},

		// Where GUIDED circles there is no place to hold, but for one on its wing.
		{"quadplane QLOITER flying", "set mode=hold", []string{circles("hold")}},
		{"quadplane QLOITER flying circles", "set mode=hold", []string{circles("hold")}},
		{"quadplane QLOITER flying circles", "goto altitude=20", []string{circles("goto")}},
		{"quadplane QLOITER flying", "land lat=47.398 lon=8.546", []string{circles("land")}},
		{"quadplane GUIDED flying", "set mode=hold", []string{circles("hold")}},
		{"quadplane GUIDED armed", "set mode=hold", []string{circles("hold")}},
		{"quadplane QLOITER landed", "set mode=hold", []string{guided}},
		{"quadplane FBWA flying wing", "set mode=hold", []string{guided}},
		{"quadplane GUIDED flying wing", "set mode=hold", []string{here}},
		{"quadplane FBWA flying wing circles", "goto altitude=20", []string{"INT 192 frame=3 [-1 1 0 0] x=473977421 y=85455938 z=20"}},

		{"plane FBWB flying", "set mode=manual", []string{"LONG 176 [1 …0]"}},
		{"plane FBWB flying", "set mode=altitude", []string{"LONG 176 [1 6 …0]"}},
		{"plane FBWB flying", "set mode=position", []string{`unsupported: mode: this vehicle has no mode for "position"`}},
		{"plane FBWB flying", "set mode=position arm=true", []string{`unsupported: mode: this vehicle has no mode for "position"`}},
		{"plane FBWB flying", "set mode=hold", []string{guided}},
		{"plane FBWB flying", "set mode=rtl", []string{"LONG 176 [1 11 …0]"}},
		{"plane FBWB flying", "set mode=rtgs", []string{"LONG 176 [1 11 …0]"}},
		{"plane FBWB flying", "set mode=land", []string{fixedWing}},
		{"plane FBWB flying", "land", []string{fixedWing}},
		{"plane FBWB flying", "land lat=47.398 lon=8.546", []string{fixedWing}},
		{"plane FBWB landed", "takeoff", []string{"LONG 176 [1 13 …0]", arm}},
		{"plane FBWB landed", "set mode=takeoff", []string{"LONG 176 [1 13 …0]", arm}},
		{"plane FBWB armed", "takeoff", []string{"LONG 176 [1 13 …0]"}},
		{"plane FBWB landed", "takeoff altitude=30", []string{"unsupported: altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out"}},
		{"plane FBWB flying", "takeoff", []string{"refused: takeoff: already flying; use goto to climb"}},
		{"plane FBWB landed", "set arm=true", []string{arm}},
		{"plane FBWB armed", "set arm=false", []string{"LONG 400 […0]"}},
		{"plane FBWB flying", "goto lat=47.398 lon=8.546 altitude=60", []string{"INT 192 frame=3 [-1 1 0 0] x=473980000 y=85460000 z=60"}},
		{"plane FBWB flying", "goto altitude_msl=600 speed=20", []string{"INT 192 frame=0 [-1 1 0 0] x=473977421 y=85455938 z=600", "LONG 178 [1 20 -1 …0]"}},
		{"plane FBWB flying", "goto lat=47.398 lon=8.546 heading=90", []string{"unsupported: heading: a fixed wing can't keep one at a place; leave it out"}},
		{"plane FBWB landed", "goto altitude=60", []string{notFlying}},
		{"plane GUIDED flying", "set mode=hold", []string{here}},
		{"plane GUIDED flying blind", "set mode=hold", []string{guided}},
	})
}

// TestArduPilotPlanTellsMachineAndSticksWhatItMeans: what each step needs of the
// sticks and leads to, and where the plan goes.
func TestArduPilotPlanTellsMachineAndSticksWhatItMeans(t *testing.T) {
	testMeanings(t, []meaningRow{
		{"copter GUIDED flying", "set mode=manual", "led manual by STABILIZE*"},
		{"copter GUIDED flying away", "set mode=altitude", "led altitude by ALT_HOLD*"},
		{"copter LOITER flying streams", "set mode=hold", "anyhow hold by GUIDED*"},
		{"copter GUIDED flying", "set mode=hold", "anyhow hold by BRAKE | anyhow hold by GUIDED*"},
		{"copter LOITER flying", "set mode=rtgs", "anyhow rtgs by RTL*; urgent"},
		{"copter LOITER flying", "land", "anyhow land by LAND*; urgent"},
		{"copter LOITER flying", "land lat=47.398 lon=8.546", "anyhow land by GUIDED*; over it land by LAND; urgent; at 47.398 8.546 10, 498.5 AMSL"},
		{"copter STABILIZE landed", "takeoff", "anyhow hold by GUIDED | led | anyhow takeoff by GUIDED*; to armed; at NaN NaN 10, 498.5 AMSL"},
		{"copter LOITER landed", "set arm=true", "led; to armed"},
		{"copter GUIDED landed", "set arm=true", "led; to armed"},
		{"copter STABILIZE landed", "set mode=position arm=true", "led position by LOITER* | led; to armed"},
		{"copter LOITER flying", "goto lat=47.398 lon=8.546 speed=5 heading=45", "anyhow hold by GUIDED* | anyhow | anyhow; at 47.398 8.546 10, 498.5 AMSL; facing 45"},
		{"copter LOITER flying", "goto altitude=20", "anyhow hold by GUIDED* | anyhow; at 47.3977421 8.5455938 20, 508.5 AMSL"}, // it keeps its heading, and no one asked it to

		{"quadplane QHOVER flying", "set mode=position", "led position by QLOITER*"},
		{"quadplane QHOVER flying hovers", "land lat=47.398 lon=8.546", "anyhow land by GUIDED*; over it land by QLAND; urgent; at 47.398 8.546 10, 498.5 AMSL"},
		{"quadplane QLOITER landed", "takeoff", "anyhow hold by GUIDED | led | anyhow takeoff by GUIDED*; to armed; at NaN NaN 10, 498.5 AMSL"},
		{"quadplane GUIDED flying hovers", "set mode=hold", "anyhow hold by GUIDED*; at 47.3977421 8.5455938 10, 498.5 AMSL"},
		{"plane FBWB flying", "set mode=manual", "led manual by MANUAL*"},
		{"plane MANUAL landed", "takeoff", "anyhow takeoff by TAKEOFF* | led; to armed"},
	})
}
