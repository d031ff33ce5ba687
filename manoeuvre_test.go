package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func TestAManoeuvreIsCompleteWhereTheVehicleShowsIt(t *testing.T) {
	type change = func(*view)
	n := math.NaN()
	north := func(m float64) change {
		return func(s *view) { s.place.lat, s.place.lon = moved(s.place.lat, s.place.lon, m, 0) }
	}
	up := func(m float64) change { return func(s *view) { s.place.altitude += m; s.place.amsl += m } }
	flying := func(north, down float64) change {
		return func(s *view) { s.velocity = motion{north, 0, down} }
	}
	grounded := func(s *view) { s.landed = onGround }
	stands := func(s *view) { s.ground.left = false }
	groundUnknown := func(s *view) { s.height = n }
	rises := func(s *view) { s.landed = takingOff }
	disarmed := func(s *view) { s.armed = false }
	unknownClimb := func(s *view) { s.velocity.down = n }
	unknownPlace := func(s *view) { s.place.lat, s.place.lon = n, n }
	unknownHeight := func(s *view) { s.place.amsl, s.place.altitude = n, n }
	unknownVelocity := func(s *view) { s.velocity = motion{n, n, n} }
	turned := func(deg float64) change { return func(s *view) { s.heading += deg } }

	here := &place{47.3977419, 8.5455938, 10, 498}
	takeoff := func(altitude float64) manoeuvre {
		return manoeuvre{request: request{verb: entersMode, mode: ModeTakeoff},
			plan: plan{destination: &place{n, n, altitude, 488 + altitude}}}
	}
	goTo := manoeuvre{request: request{verb: goesTo}, plan: plan{destination: here}}
	facing := goTo
	heading := 350.0
	facing.request.heading = &heading
	noAMSL := goTo
	noAMSL.plan.destination = &place{here.lat, here.lon, here.altitude, n}
	hold := manoeuvre{request: request{verb: entersMode, mode: ModeHold}}
	holdHere := manoeuvre{request: request{verb: entersMode, mode: ModeHold}, plan: plan{destination: here}}
	rtl := manoeuvre{request: request{verb: entersMode, mode: ModeRTL}}
	// A fixed wing over its home, at 20 m/s. It circles a place at a radius of 60 m.
	wing := func(changes ...change) view {
		return seen(append([]change{flying(20, 0), func(s *view) {
			s.firmware = plane
			s.home = point{lat: here.lat, lon: here.lon, amsl: 488}
			s.target = point{lat: here.lat, lon: here.lon, amsl: 498, group: group{s.now.Add(-time.Second / 2)}}
		}}, changes...)...)
	}
	aimsAt := func(m float64) change {
		return func(s *view) { s.target.lat, s.target.lon = moved(s.target.lat, s.target.lon, m, 0) }
	}
	aimsHigher := func(m float64) change { return func(s *view) { s.target.amsl += m } }
	aimedBefore := func(s *view) { s.target.at = s.now.Add(-time.Second) }
	landedSince := func(s *view) { s.landedAt = s.now }
	aimsNowhere := func(s *view) { s.target = unknownPoint }
	ofPX4 := func(typ common.MAV_TYPE, vtol common.MAV_VTOL_STATE, changes ...change) view {
		return wing(append([]change{func(s *view) {
			s.firmware, s.typ, s.vtol, s.version = px4, typ, vtol, px4Drives
		}}, changes...)...)
	}
	px4Plane := func(changes ...change) view { return ofPX4(common.MAV_TYPE_FIXED_WING, 0, changes...) }
	px4Rover := func(changes ...change) view {
		return ofPX4(common.MAV_TYPE_GROUND_ROVER, 0, append([]change{flying(0, 0)}, changes...)...)
	}
	px4VTOL := func(state common.MAV_VTOL_STATE, changes ...change) view {
		return ofPX4(common.MAV_TYPE_VTOL_FIXEDROTOR, state, changes...)
	}
	wingTakeoff := takeoff(50)
	noHome := func(s *view) { s.home = unknownPoint }
	onTheWing := func(s *view) { s.firmware, s.vtol = quadPlane, common.MAV_VTOL_STATE_FW }
	hovers := func(s *view) { s.firmware, s.vtol = quadPlane, common.MAV_VTOL_STATE_MC }
	for _, c := range []struct {
		name string
		m    manoeuvre
		s    view
		want bool
	}{
		{"takeoff: at its height, level", takeoff(10), seen(), true},
		{"takeoff: 1 m below", takeoff(10), seen(up(-1)), true},
		{"takeoff: more than 1 m below", takeoff(10), seen(up(-1.01)), false},
		{"takeoff: still climbing", takeoff(10), seen(flying(0, -0.5)), false},
		{"takeoff: hardly climbing", takeoff(10), seen(flying(0, -0.49)), true},
		{"takeoff: climb unknown", takeoff(10), seen(unknownClimb), false},
		{"takeoff: not in the air", takeoff(10), seen(grounded), false},
		{"takeoff: it calls itself in the air, and stands", takeoff(0.5), seen(up(-9.5), stands), false},
		{"takeoff: the ground is not known", takeoff(10), seen(stands, groundUnknown), true},
		{"takeoff: the ground is not known, and it takes off", takeoff(10), seen(stands, groundUnknown, rises), false},
		{"takeoff: height unknown", takeoff(10), seen(unknownHeight), false},
		{"takeoff to 2 m: at 1.5 m", takeoff(2), seen(up(-8.5)), true},
		{"takeoff to 2 m: on the way", takeoff(2), seen(up(-8.6)), false},
		{"takeoff to 100 m: 5 m below", takeoff(100), seen(up(85)), true},
		{"takeoff to 100 m: 6 m below", takeoff(100), seen(up(84)), false},
		{"goto: there", goTo, seen(), true},
		{"goto: 2 m away", goTo, seen(north(1.99)), true},
		{"goto: over 2 m away", goTo, seen(north(2.01)), false},
		{"goto: 1 m above", goTo, seen(up(1)), true},
		{"goto: over 1 m above", goTo, seen(up(1.01)), false},
		{"goto: passing", goTo, seen(flying(1, 0)), false},
		{"goto: slow", goTo, seen(flying(0.99, 0)), true},
		{"goto: sinking through", goTo, seen(flying(0.8, 0.8)), false},
		{"goto: place unknown", goTo, seen(unknownPlace), false},
		{"goto: velocity unknown", goTo, seen(unknownVelocity), false},
		{"goto: home was corrected", goTo, seen(func(s *view) { s.place.altitude += 5 }), true},
		{"goto: height only known above home", noAMSL, seen(func(s *view) { s.place.amsl = n }), true},
		{"goto: height only known above home, lower", noAMSL, seen(up(-2)), false},
		{"goto with a heading: not turned", facing, seen(), false},
		{"goto with a heading: over north", facing, seen(turned(-91)), true},
		{"goto with a heading: 10° off", facing, seen(turned(-110)), true},
		{"goto with a heading: 11° off", facing, seen(turned(-111)), false},
		{"goto with a heading: unknown", facing, seen(turned(n)), false},
		{"hold: still", hold, seen(), true},
		{"hold: 0.5 m/s", hold, seen(flying(0.5, 0)), false},
		{"hold: sinking", hold, seen(flying(0, 0.6)), false},
		{"hold: velocity unknown", hold, seen(unknownVelocity), false},
		{"hold at a place: past it, turning", holdHere, seen(north(2.01)), false},
		{"hold at a place: there", holdHere, seen(north(1.99)), true},
		{"hold at a place: place unknown", holdHere, seen(unknownPlace), false},
		{"hold: on the ground", hold, seen(unknownVelocity, disarmed), true},
		{"wing, takeoff: on its ground roll", wingTakeoff, wing(up(-9.9), flying(6, 0)), false},
		{"wing, takeoff: level half way up", wingTakeoff, wing(up(15)), false},
		{"wing, takeoff: climbing, 5 m below", wingTakeoff, wing(up(35), flying(20, -3)), true},
		{"wing, takeoff: 6 m below", wingTakeoff, wing(up(34)), false},
		{"wing, takeoff: above", wingTakeoff, wing(up(45)), true},
		{"wing, takeoff: to 10 m, 2 m below", takeoff(10), wing(up(-2)), true},
		{"wing, takeoff: to 10 m, 3 m below", takeoff(10), wing(up(-3)), false},
		{"wing, takeoff: height unknown", wingTakeoff, wing(unknownHeight), false},
		{"wing, takeoff: not in the air", wingTakeoff, wing(up(40), grounded), false},
		{"wing, hold: at once", hold, wing(), true},
		{"wing, goto: on its circle", goTo, wing(north(60)), true},
		{"wing, goto: one and a half radii", goTo, wing(north(89.9)), true},
		{"wing, goto: farther", goTo, wing(north(90.1)), false},
		{"wing, goto: 5 m above", goTo, wing(north(60), up(4.9)), true},
		{"wing, goto: farther above", goTo, wing(north(60), up(5.1)), false},
		{"wing, goto: place unknown", goTo, wing(unknownPlace), false},
		{"wing, goto: near, but its own target is another", goTo, wing(aimsAt(6)), false},
		{"wing, goto: near, its own target 5 m off", goTo, wing(aimsAt(4.9)), true},
		{"wing, goto: near, its own target unknown", goTo, wing(aimsNowhere), false},
		{"wing, goto: near, its own target 4.9 m higher", goTo, wing(aimsHigher(4.9)), true},
		{"wing, goto: near, its own target 6 m higher", goTo, wing(aimsHigher(6)), false},
		{"wing, goto: near, its own target of before", goTo, wing(aimedBefore), false},
		{"wing, rtl: near, but its own target is another", rtl, wing(aimsAt(6)), false},
		{"px4 plane, takeoff: on its ground roll", wingTakeoff, px4Plane(up(-9.9), flying(6, 0)), false},
		{"px4 plane, takeoff: 5 m below", wingTakeoff, px4Plane(up(35), flying(11, -2)), true},
		{"px4 plane, hold: at once", hold, px4Plane(), true},
		{"px4 plane, goto: on its circle", goTo, px4Plane(north(80)), true},
		{"px4 plane, goto: farther than one and a half times 80 m", goTo, px4Plane(north(121)), false},
		{"px4 plane, rtl: circling over home", rtl, px4Plane(north(80)), true},
		{"px4 vtol on its wing, goto", goTo, px4VTOL(common.MAV_VTOL_STATE_FW, north(80)), true},
		{"px4 vtol in a transition to its wing, goto", goTo,
			px4VTOL(common.MAV_VTOL_STATE_TRANSITION_TO_FW, north(80)), true},
		{"px4 vtol on its wing, rtl: it lands", rtl, px4VTOL(common.MAV_VTOL_STATE_FW), false},
		{"px4 vtol in hover, goto: 80 m off", goTo, px4VTOL(common.MAV_VTOL_STATE_MC, north(80), flying(0, 0)), false},
		{"px4 vtol in hover, goto: there", goTo, px4VTOL(common.MAV_VTOL_STATE_MC, flying(0, 0)), true},
		{"px4 rover, goto: there, 9 m below", goTo, px4Rover(up(-9)), true},
		{"px4 rover, goto: 3 m off", goTo, px4Rover(north(3)), false},
		{"wing, rtl: circling over home", rtl, wing(north(89.9)), true},
		{"wing, rtgs: circling over home", manoeuvre{request: request{verb: entersMode, mode: ModeRTGS}}, wing(), true},
		{"wing, rtl: on its way", rtl, wing(north(90.1)), false},
		{"wing, rtl: home unknown", rtl, wing(noHome), false},
		{"wing, rtl: on the ground", rtl, wing(grounded), false},
		{"wing, rtl: landed", rtl, wing(grounded, disarmed), true},
		{"quadplane on the wing, hold", hold, wing(onTheWing), true},
		{"quadplane on the wing, goto", goTo, wing(onTheWing, north(60)), true},
		{"quadplane on the wing, rtl: it lands", rtl, wing(onTheWing), false},
		{"quadplane that hovers, hold", hold, wing(hovers), false},
		{"quadplane that hovers, goto", goTo, wing(hovers, north(60)), false},
		{"land: armed", manoeuvre{request: request{verb: entersMode, mode: ModeLand}}, seen(grounded), false},
		{"land: disarmed", manoeuvre{request: request{verb: entersMode, mode: ModeLand}}, seen(grounded, disarmed),
			true},
		{"rtl: armed", manoeuvre{request: request{verb: entersMode, mode: ModeRTL}}, seen(), false},
		{"rtl: disarmed", manoeuvre{request: request{verb: entersMode, mode: ModeRTL}}, seen(disarmed), true},
		{"rtl: disarmed in the air", rtl, seen(disarmed, landedSince), false},
		{"rtl: disarmed on the ground", rtl, seen(disarmed, grounded, landedSince), true},
		{"px4 rover, rtl: it rolls on", rtl, px4Rover(disarmed, flying(0.5, 0)), false},
		{"px4 rover, rtl: it stands", rtl, px4Rover(disarmed, landedSince, flying(0.49, 0)), true},
		{"rtgs: disarmed", manoeuvre{request: request{verb: entersMode, mode: ModeRTGS}}, seen(disarmed), true},
	} {
		m := c.m
		m.over, m.at = make(chan struct{}), c.s.now.Add(-time.Second)
		m.watch(c.s)
		if m.done && c.m.request.verb == goesTo && c.s.circle() > 0 {
			t.Errorf("%s: done at once", c.name)
		}
		c.s.now = c.s.now.Add(time.Second) // a wing is watched for a second
		land, taken := m.watch(c.s)
		if m.done != c.want || land || taken != "" {
			t.Errorf("%s: done %t, land %t, taken %q", c.name, m.done, land, taken)
		}
	}
}

// Where home is now stands in the position itself: HOME_POSITION may be older.
func TestHomeThatMovedIsToldFromThePosition(t *testing.T) {
	n := math.NaN()
	takeoff := manoeuvre{request: request{verb: entersMode, mode: ModeTakeoff},
		plan: plan{destination: &place{n, n, 3, 491}}}
	for _, c := range []struct {
		name                 string
		altitude, amsl, home float64 // home: HOME_POSITION's
		want                 string
	}{
		{"home stays", 3, 491, 488, ""},
		{"PX4 corrects home", 0.9, 491, 490.1, ""},
		{"home moved", 12, 491, 479, "home moved by 9.0 m meanwhile: 12.0 m above home"},
		{"home moved, HOME_POSITION is older", 12, 491, 488, "home moved by 9.0 m meanwhile: 12.0 m above home"},
		{"home moved back, HOME_POSITION is older", 3, 491, 479, ""},
		{"no height above the sea", 3, n, 488, ""},
	} {
		v := seen(func(v *view) { v.place.altitude, v.place.amsl, v.home.amsl = c.altitude, c.amsl, c.home })
		lineEqual(t, c.name, takeoff.homeMoved(v), c.want)
		goTo := manoeuvre{request: request{verb: goesTo}, plan: takeoff.plan}
		lineEqual(t, c.name+", a goto that keeps its height", goTo.homeMoved(v), "")
		goTo.request.altitude = &c.altitude
		lineEqual(t, c.name+", a goto to a height", goTo.homeMoved(v), c.want)
	}
}

// PX4's home sinks by metres on the ground: an altitude of 3 m may be a climb of 1.3 m.
func TestATakeoffIsCompleteWithinAQuarterOfItsClimb(t *testing.T) {
	n := math.NaN()
	for _, c := range []struct{ altitude, amsl, ground, want float64 }{
		{3, 491, 488, 0.75}, {3, 491, 489.8, 0.3}, {3, 491, n, 0.75}, {3, n, 488, 0.75}, {20, 508, 490, 1},
		{40, 528, 488, 2},
	} {
		m := manoeuvre{request: request{verb: entersMode, mode: ModeTakeoff},
			plan: plan{destination: &place{n, n, c.altitude, c.amsl}}}
		v := seen(func(v *view) { v.ground.amsl = c.ground })
		lineEqual(t, fmt.Sprint(c), fmt.Sprintf("%.4g", m.heightSlack(v)), fmt.Sprint(c.want))
	}
}

// The height that a goto without one keeps: that of the last takeoff or goto where the vehicle still has it.
func TestAGotoKeepsTheHeightOfWhatWasCommandedLast(t *testing.T) {
	n := math.NaN()
	takeoff := manoeuvre{request: request{verb: entersMode, mode: ModeTakeoff}, done: true,
		plan: plan{destination: &place{n, n, 10, 498}}}
	low := takeoff
	low.plan.destination = &place{n, n, 1, 489}
	goTo := manoeuvre{request: request{verb: goesTo}, done: true,
		plan: plan{destination: &place{47.4, 8.5, 20, 508}}}
	underWay, ended, stick := goTo, goTo, manoeuvre{request: request{verb: entersMode, mode: ModePosition}, done: true}
	underWay.done = false
	ended.done, ended.why = false, errSuperseded

	for _, c := range []struct {
		name           string
		of             manoeuvre
		altitude, amsl float64 // of the vehicle
		want           string  // the heights that are kept
	}{
		{"a takeoff that ended below its height", takeoff, 9.2, 497.2, "10.0 498.0"},
		{"a takeoff to 1 m that is complete at three quarters of it", low, 0.75, 488.75, "1.0 489.0"},
		{"home has moved since", takeoff, 12.2, 497.2, "13.0 498.0"},
		{"a goto", goTo, 20.5, 508.5, "20.0 508.0"},
		{"a goto without a height above the sea", goTo, 20.5, n, "20.0 NaN"},
		{"somebody else climbed since", goTo, 22, 510, "none"},
		{"nobody knows its height", goTo, n, n, "none"},
		{"a goto that is under way", underWay, 5, 493, "20.0 508.0"},
		{"a goto that was ended", ended, 20, 508, "none"},
		{"sticks", stick, 20, 508, "none"},
	} {
		v := seen(func(v *view) { v.place.altitude, v.place.amsl = c.altitude, c.amsl })
		got := "none"
		if aim := c.of.aim(v); aim != nil {
			got = fmt.Sprintf("%.1f %.1f", aim.altitude, aim.amsl)
		}
		lineEqual(t, c.name, got, c.want)
	}

	v := seen(func(v *view) { v.place.altitude, v.place.amsl = 9.2, 497.2 })
	if v.takesOff(takeoff.aim(v)) {
		t.Error("a takeoff that is complete still takes off")
	}
}

func TestALandingBeginsOverItsPlaceAndIsTriedAgainEachSecond(t *testing.T) {
	after := func(d time.Duration, metres, speed float64) view {
		return seen(func(s *view) {
			s.now = s.now.Add(d)
			s.place.lat, s.place.lon = moved(s.place.lat, s.place.lon, metres, 0)
			s.velocity = motion{speed, 0, 0}
		})
	}
	for _, c := range []struct {
		name string
		seen []view
		want string // for each view, whether it lands
	}{
		{"over it", []view{after(0, 20, 5), after(time.Second, 2.1, 0.5), after(2*time.Second, 1.9, 0.5)},
			"[false false true]"},
		{"passing over it", []view{after(0, 0, 1), after(time.Second, 0, 0.9)}, "[false true]"},
		{"kept 4 m off by the wind for 5 s", []view{after(0, 4, 0.2), after(4900*time.Millisecond, 4, 0.2),
			after(5*time.Second, 4, 0.2)}, "[false false true]"},
		{"kept 4 m off by the wind for 5 s, after it was blown farther off",
			[]view{after(0, 4, 0.2), after(3*time.Second, 6, 0.2), after(4*time.Second, 4, 0.2),
				after(8900*time.Millisecond, 4, 0.2), after(9*time.Second, 4, 0.2)}, "[false false false false true]"},
		{"6 m off is too far", []view{after(0, 6, 0), after(time.Minute, 6, 0)}, "[false false]"},
		{"an unknown place is too far", []view{after(0, math.NaN(), 0), after(time.Minute, math.NaN(), 0)},
			"[false false]"},
		{"an unknown speed is too fast", []view{after(0, 0, math.NaN()), after(time.Minute, 0, math.NaN())},
			"[false false]"},
		{"tried again", []view{after(0, 0, 0), after(900*time.Millisecond, 0, 0), after(time.Second, 0, 0)},
			"[true false true]"},
	} {
		m := landingThere()
		var got []bool
		for _, s := range c.seen {
			land, taken := m.watch(s)
			lineEqual(t, c.name+": taken", taken, "")
			if land {
				m.tried = s.now
			}
			got = append(got, land)
		}
		lineEqual(t, c.name, fmt.Sprint(got), c.want)
		lineEqual(t, c.name+": it is done", m.done, false)
	}
}

// leg is a task whose plan has one step, which leads to the request's mode.
func leg(c *commander, r request, p plan) *task {
	s := step{}.leadingTo(r.mode, entered[px4][r.mode])
	p.steps = []step{s}
	return &task{commander: c, request: r, plan: p}
}

func TestTheSecondLegOfALandingContinuesIt(t *testing.T) {
	m := landingThere()
	m.watch(seen())
	c := &commander{queue: queue{manoeuvre: m}}
	second := leg(c, m.request, plan{})
	second.continues = m
	c.replace(second)
	lineEqual(t, "it is another manoeuvre", c.manoeuvre != m, false)
	lineEqual(t, "it has ended", m.finished(), false)
	lineEqual(t, "it is on its way", c.onWayToLand(), false)
	land, _ := m.watch(seen(func(s *view) { s.now = s.now.Add(time.Minute) }))
	lineEqual(t, "it lands once more", land, false)
	m.watch(seen(func(s *view) { s.armed = false }))
	lineEqual(t, "disarmed, it is done", m.done, true)
}

// On the way the vehicle is in its hold mode: when the landing has ended mavrest answers hold.
func TestWhatEndsALandingOnItsWayEndsItsMode(t *testing.T) {
	for _, r := range []struct {
		name     string
		onItsWay bool
		want     Mode
	}{
		{"on its way", true, ModeHold},
		{"over the place", false, ModeLand},
	} {
		m := landingThere()
		if !r.onItsWay {
			m.plan.second = nil
		}
		f := newHearing()
		f.hear(t, "reports position armed, plan accepted transit, reports hold armed")
		c := &commander{queue: queue{manoeuvre: m, machine: &f.machine}}
		c.endManoeuvre(interrupted(time.Now(), "the wind"))
		lineEqual(t, r.name+": the mode", f.mode, r.want)
		lineEqual(t, r.name+": the reason", fmt.Sprint(m.why), "the wind")
		lineEqual(t, r.name+": it is forgotten", c.manoeuvre == nil, true)
		c.endManoeuvre(interrupted(time.Now(), "the rain"))
		lineEqual(t, r.name+": the reason stays", fmt.Sprint(m.why), "the wind")
	}
}

func TestDisarmingEndsAManoeuvre(t *testing.T) {
	for _, r := range []struct {
		name  string
		req   request
		taken string // why the disarming ends it; "": it completes it
		done  bool
	}{
		{"takeoff", request{verb: entersMode, mode: ModeTakeoff}, "the vehicle was disarmed", false},
		{"goto", request{verb: goesTo}, "the vehicle was disarmed", false},
		{"hold", request{verb: entersMode, mode: ModeHold}, "", true},
		{"land", request{verb: entersMode, mode: ModeLand}, "", true},
		{"rtl", request{verb: entersMode, mode: ModeRTL}, "", true},
	} {
		s := seen()
		flown := plan{destination: &place{0, 0, 50, 538}}
		m := &manoeuvre{request: r.req, at: s.now, over: make(chan struct{}), plan: flown}
		moves := func(s *view) { s.velocity = motion{5, 0, 0} }
		_, taken := m.watch(seen(moves))
		lineEqual(t, r.name+": armed, taken", taken, "")
		lineEqual(t, r.name+": armed, done", m.done, false)
		_, taken = m.watch(seen(moves, func(s *view) { s.armed = false }))
		lineEqual(t, r.name+": taken", taken, r.taken)
		lineEqual(t, r.name+": done", m.done, r.done)
	}
	m := &manoeuvre{request: request{verb: goesTo}, over: make(chan struct{})}
	_, taken := m.watch(seen(func(s *view) { s.armed = false }))
	lineEqual(t, "a goto, disarmed before it was looked at", taken, "the vehicle was disarmed")
}

func TestATargetThatIsNotOursEndsAManoeuvre(t *testing.T) {
	at := func(ms int, changes ...func(*view)) view { // ms −1000 is the acceptance (landingThere)
		first := func(s *view) { s.now = s.now.Add(time.Duration(ms) * time.Millisecond) }
		return seen(append(append([]func(*view){first}, changes...), func(s *view) {
			if !math.IsNaN(s.target.lat) {
				s.target.at = s.now
			}
		})...)
	}
	ours := func(s *view) { s.target = point{lat: s.place.lat, lon: s.place.lon, amsl: s.place.amsl} }
	away := func(s *view) {
		ours(s)
		s.target.lat, s.target.lon = moved(s.target.lat, s.target.lon, 6, 0)
	}
	above := func(s *view) {
		ours(s)
		s.target.amsl += 6
	}
	higher := func(s *view) {
		ours(s)
		s.target.amsl += 4
	}
	near := func(s *view) {
		ours(s)
		s.target.lat, s.target.lon = moved(s.target.lat, s.target.lon, 4, 0)
	}
	disarmed := func(s *view) { s.armed = false }
	onTheWing := func(s *view) { s.firmware, s.vtol = quadPlane, common.MAV_VTOL_STATE_FW }
	// The target of 100 ms was the last one.
	gone := func(s *view) {
		s.at, s.target.at = s.now, at(100).now
		s.custom = entered[copter][ModeHold]
	}
	before := func(s *view) { s.target.at = at(-1000).now }
	sticks := func(s *view) { s.custom = entered[copter][ModePosition] }
	landed := func(s *view) { s.landed = onGround }
	const (
		noTarget = "the autopilot flies to no place any more: another program flies it"
		from     = 100 + 2*int(targetEvery/time.Millisecond)
		until    = from + int(targetGone/time.Millisecond)
	)
	const elsewhere = "the autopilot flies to another place"
	for _, c := range []struct {
		name  string
		seen  []view
		taken string // why the last view ends the manoeuvre
	}{
		{"ours", []view{at(100, ours), at(1100, ours), at(2100, near)}, ""},
		{"not ours, now and then", []view{at(100, away), at(1000, ours), at(1200, away), at(2100, away)}, ""},
		{"4 m off", []view{at(100, near), at(1100, near)}, ""},
		{"4 m higher", []view{at(100, higher), at(1100, higher)}, ""},
		{"not ours for 1 s", []view{at(100, away), at(1000, away), at(1100, away)}, elsewhere},
		{"another height for 1 s", []view{at(100, above), at(1100, above)}, elsewhere},
		{"the same message, looked at twice", []view{at(100, away), at(100, away)}, ""},
		{"one from before the acceptance", []view{at(-5000, away), at(-4000, away)}, ""},
		{"one of the first second", []view{at(-900, away), at(0, away), at(900, away)}, ""},
		{"one while disarmed", []view{at(100, away, disarmed)}, "the vehicle was disarmed"},
		{"no target any more", []view{at(from, gone), at(until, gone)}, noTarget},
		{"no target any more, on the ground", []view{at(from, gone, landed), at(until, gone, landed)},
			"the vehicle stands on the ground, and a goto does not lift it: take off"},
		{"no target for less", []view{at(from-1, gone), at(until-1, gone)}, ""},
		{"no target in another mode", []view{at(from, gone, sticks), at(until, gone, sticks)}, ""},
		{"no target since before", []view{at(from, gone, before), at(until, gone, before)}, ""},
		{"no target, never", []view{at(from), at(until)}, ""},
		{"over to its wing", []view{at(0), at(1000, onTheWing)},
			"the vehicle has gone over to its wing and circles the place"},
		{"disarmed on the way", []view{at(0), at(1000, disarmed)}, "the vehicle was disarmed"},
	} {
		m := landingThere()
		var taken string
		for i, s := range c.seen {
			s.place.lat, s.place.lon = moved(s.place.lat, s.place.lon, 50, 0) // on its way
			_, taken = m.watch(s)
			if taken != "" && i < len(c.seen)-1 {
				t.Errorf("%s: %q already at the %dth view", c.name, taken, i)
			}
		}
		lineEqual(t, c.name, taken, c.taken)
	}
	// After a repeated request no target counts as strange for 1 s.
	m := landingThere()
	m.watch(at(100, away))
	c := &commander{queue: queue{manoeuvre: m}}
	c.replace(leg(c, m.request, m.plan))
	m = c.manoeuvre
	m.at = at(500).now
	_, taken := m.watch(at(1600, away))
	lineEqual(t, "asked for again", taken, "")
	_, taken = m.watch(at(2600, away))
	lineEqual(t, "asked for again, 1 s later", taken, elsewhere)
	// The acceptance was at 500. A target that is strange within 3 s of it is the autopilot's answer to the
	// command, so the manoeuvre was lost at the acceptance. Else it is lost now, at 9000.
	m.strange = time.Time{}
	lineEqual(t, "lost without a strange target", m.lostAt(at(9000).now), at(9000).now)
	for strangeFrom, lostAt := range map[int]int{3400: 500, 3600: 9000} {
		m.strange = at(strangeFrom).now
		lineEqual(t, fmt.Sprint("lost at, strange from ", strangeFrom), m.lostAt(at(9000).now), at(lostAt).now)
	}
	m.plan.destination = &place{lat: math.NaN()}
	_, taken = m.watch(at(9600, above))
	lineEqual(t, "a takeoff, which has no place", taken, "")
}

func TestTheTimeThatAWaitTookIsReadable(t *testing.T) {
	for waited, want := range map[time.Duration]string{
		12 * time.Microsecond: "0 s", 66_500 * time.Microsecond: "0.07 s", 60_004 * time.Millisecond: "60 s",
		123_400 * time.Millisecond: "123 s",
	} {
		m := &manoeuvre{request: landHere}
		for _, unseen := range []error{nil, errors.New("x")} {
			text := m.notDone(view{}, waited, unseen).Error()
			lineEqual(t, fmt.Sprintf("%v is %q in %q", waited, want, text), strings.Contains(text, "after "+want), true)
		}
	}
}

func TestAVehicleThatStandsShortOfItsPlaceAndAGlitchAreSaid(t *testing.T) {
	here := seen().place
	goTo := request{verb: goesTo}
	for _, c := range []struct {
		name        string
		request     request
		north, up   float64
		speed, down float64
		glitches    bool
		want        string
	}{
		{"there", goTo, 0, 0, 0, 0, false, "done"},
		{"there, after a glitch", goTo, 0, 0, 0, 0, true,
			"done: the autopilot reported a GPS glitch: it may be elsewhere than it says"},
		{"3 m north", goTo, 3, 0, 0, 0, false, "the vehicle stands 3.0 m from its place; "},
		{"2 m below", goTo, 0, -2, 0.49, 0.49, false, "the vehicle stands 2.0 m from its height; "},
		{"flying", goTo, 3, 0, 0.5, 0, false, "under way"},
		{"sinking", goTo, 3, 0, 0, 0.5, false, "under way"},
		{"a hold", request{verb: entersMode, mode: ModeHold}, 3, 0, 0, 0, true, "under way"},
		{"a hold, there", request{verb: entersMode, mode: ModeHold}, 0, 0, 0, 0, true, "done"},
	} {
		m := newManoeuvre(c.request, plan{destination: &here})
		v := seen(func(v *view) {
			v.place.lat, v.place.lon = moved(here.lat, here.lon, c.north, 0)
			v.place.amsl += c.up
			v.velocity = motion{c.speed, 0, c.down}
			v.glitches, v.placeAt = c.glitches, v.now
		})
		m.watch(v)
		if err := m.notDone(v, time.Minute, nil); !strings.Contains(err.Error(), "under way") {
			t.Errorf("%s, at once: %v", c.name, err)
		}
		v.glitches = false
		v.placeAt = v.placeAt.Add(standsFor)
		v.now = v.placeAt
		m.watch(v)
		got := strings.TrimSuffix("done: "+m.note, ": ")
		if !m.done {
			got = m.notDone(v, time.Minute, nil).Error()
			unknown := m.notDone(v, time.Minute, errors.New("the port is away")).Error()
			if !strings.HasSuffix(unknown, "is not known, because the port is away") {
				t.Errorf("%s: %q", c.name, unknown)
			}
			m.plan.second = &step{}
			if stays := m.notDone(v, time.Minute, errQuitting).Error(); !strings.HasSuffix(stays, "nothing lands it") {
				t.Errorf("%s: %q", c.name, stays)
			}
			m.plan.second = nil
		}
		if !strings.Contains(got, c.want) || m.done && got != c.want || m.done != strings.HasPrefix(c.want, "done") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
