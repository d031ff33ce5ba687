package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// What a manoeuvre's end looks like (docs/design.md, rules 7 and 9).

// seen is what the vehicle shows in flight, still at a place 10 m up; changes
// alter it.
func seen(changes ...func(*sighting)) sighting {
	n := math.NaN()
	s := sighting{
		vehicle: vehicle{
			armed: true, landed: landedState(common.MAV_LANDED_STATE_IN_AIR),
			at: place{47.3977419, 8.5455938, 10}, amsl: 498, heading: 90,
		},
		now: time.Unix(2000, 0),
		to:  point{lat: n, lon: n, amsl: n},
	}
	for _, f := range changes {
		f(&s)
	}
	return s
}

func TestAManoeuvreIsCompleteWhereTheVehicleShowsIt(t *testing.T) {
	type change = func(*sighting)
	n := math.NaN()
	north := func(m float64) change {
		return func(s *sighting) { s.at.lat, s.at.lon = moved(s.at.lat, s.at.lon, m, 0) }
	}
	up := func(m float64) change { return func(s *sighting) { s.at.altitude += m; s.amsl += m } }
	flying := func(north, down float64) change {
		return func(s *sighting) { s.velocity = motion{north, 0, down} }
	}
	grounded := func(s *sighting) { s.landed = onGround }
	disarmed := func(s *sighting) { s.armed = false }
	unknownClimb := func(s *sighting) { s.velocity.down = n }
	unknownPlace := func(s *sighting) { s.at.lat, s.at.lon = n, n }
	unknownHeight := func(s *sighting) { s.amsl, s.at.altitude = n, n }
	unknownVelocity := func(s *sighting) { s.velocity = motion{n, n, n} }
	turned := func(deg float64) change { return func(s *sighting) { s.heading += deg } }

	here := &place{47.3977419, 8.5455938, 10}
	takeoff := func(altitude float64) manoeuvre {
		return manoeuvre{request: request{mode: ModeTakeoff}, plan: plan{target: &place{n, n, altitude}, amsl: 488 + altitude}}
	}
	goTo := manoeuvre{request: request{mode: ModeHold, goTo: true}, plan: plan{target: here, amsl: 498, facing: n}}
	facing := goTo
	facing.plan.facing = 350
	noAMSL := goTo
	noAMSL.plan.amsl = n
	hold := manoeuvre{request: request{mode: ModeHold}}
	for _, c := range []struct {
		name string
		m    manoeuvre
		s    sighting
		want bool
	}{
		{"takeoff: there, and level", takeoff(10), seen(), true},
		{"takeoff: 1 m below", takeoff(10), seen(up(-1)), true},
		{"takeoff: more than 1 m below", takeoff(10), seen(up(-1.01)), false},
		{"takeoff: still climbing", takeoff(10), seen(flying(0, -0.5)), false},
		{"takeoff: hardly climbing", takeoff(10), seen(flying(0, -0.49)), true},
		{"takeoff: nobody knows whether it climbs", takeoff(10), seen(unknownClimb), false},
		{"takeoff: not in the air", takeoff(10), seen(grounded), false},
		{"takeoff: height unknown", takeoff(10), seen(unknownHeight), false},
		{"takeoff to 1 m: at 0.5 m", takeoff(1), seen(up(-9.5)), true},
		{"takeoff to 1 m: on the way", takeoff(1), seen(up(-9.6)), false},
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
		{"goto: home was corrected", goTo, seen(func(s *sighting) { s.at.altitude += 5 }), true},
		{"goto: told above home only", noAMSL, seen(func(s *sighting) { s.amsl = n }), true},
		{"goto: told above home only, lower", noAMSL, seen(up(-2)), false},
		{"goto with a heading: not turned", facing, seen(), false},
		{"goto with a heading: over north", facing, seen(turned(-91)), true},
		{"goto with a heading: 10° off", facing, seen(turned(-110)), true},
		{"goto with a heading: 11° off", facing, seen(turned(-111)), false},
		{"goto with a heading: unknown", facing, seen(turned(n)), false},
		{"hold: still", hold, seen(), true},
		{"hold: 0.5 m/s", hold, seen(flying(0.5, 0)), false},
		{"hold: sinking", hold, seen(flying(0, 0.6)), false},
		{"hold: velocity unknown", hold, seen(unknownVelocity), false},
		{"hold: on the ground", hold, seen(unknownVelocity, disarmed), true},
		{"land: armed", manoeuvre{request: request{mode: ModeLand}}, seen(grounded), false},
		{"land: disarmed", manoeuvre{request: request{mode: ModeLand}}, seen(grounded, disarmed), true},
		{"rtl: armed", manoeuvre{request: request{mode: ModeRTL}}, seen(), false},
		{"rtl: disarmed", manoeuvre{request: request{mode: ModeRTL}}, seen(disarmed), true},
		{"rtgs: disarmed", manoeuvre{request: request{mode: ModeRTGS}}, seen(disarmed), true},
	} {
		m := c.m
		m.over, m.at = make(chan struct{}), c.s.now.Add(-time.Second)
		land, taken := m.watch(c.s)
		if m.done != c.want || land || taken != "" {
			t.Errorf("%s: done %t, land %t, taken %q", c.name, m.done, land, taken)
		}
	}
}

// landingThere is a landing at a place, on its way.
func landingThere() *manoeuvre {
	s := seen()
	return &manoeuvre{
		request: request{mode: ModeLand}, at: s.now.Add(-time.Second), over: make(chan struct{}),
		plan: plan{target: &place{s.at.lat, s.at.lon, s.at.altitude}, amsl: s.amsl, second: &step{cmd: common.MAV_CMD_NAV_LAND}},
	}
}

func TestALandingBeginsOverItsPlaceAndIsTriedAgainEachSecond(t *testing.T) {
	after := func(d time.Duration, metres, speed float64) sighting {
		return seen(func(s *sighting) {
			s.now = s.now.Add(d)
			s.at.lat, s.at.lon = moved(s.at.lat, s.at.lon, metres, 0)
			s.velocity = motion{speed, 0, 0}
		})
	}
	for _, c := range []struct {
		name string
		seen []sighting
		want string // of each, whether it lands
	}{
		{"over it", []sighting{after(0, 20, 5), after(time.Second, 2.1, 0.5), after(2*time.Second, 1.9, 0.5)}, "[false false true]"},
		{"passing over it", []sighting{after(0, 0, 1), after(time.Second, 0, 0.9)}, "[false true]"},
		{"the wind keeps it 4 m off", []sighting{after(0, 4, 0.2), after(4900*time.Millisecond, 4, 0.2), after(5*time.Second, 4, 0.2)}, "[false false true]"},
		{"… and blew it away between", []sighting{after(0, 4, 0.2), after(3*time.Second, 6, 0.2), after(4*time.Second, 4, 0.2), after(8900*time.Millisecond, 4, 0.2), after(9*time.Second, 4, 0.2)}, "[false false false false true]"},
		{"6 m is not near", []sighting{after(0, 6, 0), after(time.Minute, 6, 0)}, "[false false]"},
		{"nowhere is not near", []sighting{after(0, math.NaN(), 0), after(time.Minute, math.NaN(), 0)}, "[false false]"},
		{"it may move for all that is known", []sighting{after(0, 0, math.NaN()), after(time.Minute, 0, math.NaN())}, "[false false]"},
		{"tried again", []sighting{after(0, 0, 0), after(900*time.Millisecond, 0, 0), after(time.Second, 0, 0)}, "[true false true]"},
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
	// Its second leg is acknowledged: now it is a landing like any other.
	m := landingThere()
	m.second = true
	land, _ := m.watch(seen())
	lineEqual(t, "it lands once more", land, false)
	m.watch(seen(func(s *sighting) { s.armed = false }))
	lineEqual(t, "disarmed, it is done", m.done, true)
}

func TestAFailsafeAndATargetThatIsNotOursEndAManoeuvre(t *testing.T) {
	at := func(ms int, changes ...func(*sighting)) sighting {
		return seen(append(changes, func(s *sighting) {
			s.now = s.now.Add(time.Duration(ms) * time.Millisecond)
			if !math.IsNaN(s.to.lat) {
				s.to.at = s.now
			}
		})...)
	}
	ours := func(s *sighting) { s.to = point{lat: s.at.lat, lon: s.at.lon, amsl: s.amsl} }
	away := func(s *sighting) {
		ours(s)
		s.to.lat, s.to.lon = moved(s.to.lat, s.to.lon, 6, 0)
	}
	above := func(s *sighting) {
		ours(s)
		s.to.amsl += 6
	}
	near := func(s *sighting) {
		ours(s)
		s.to.lat, s.to.lon = moved(s.to.lat, s.to.lon, 4, 0)
	}
	failsafe := func(s *sighting) { s.failsafe = true }
	disarmed := func(s *sighting) { s.armed = false }
	const elsewhere = "the autopilot flies to another place"
	for _, c := range []struct {
		name  string
		seen  []sighting
		taken string // by the last of them
	}{
		{"ours", []sighting{at(0, ours), at(1000, ours), at(2000, near)}, ""},
		{"not ours, once", []sighting{at(0, ours), at(1000, away), at(2000, ours), at(3000, away)}, ""},
		{"not ours, twice", []sighting{at(0, away), at(1000, away)}, elsewhere},
		{"another height, twice", []sighting{at(0, above), at(1000, above)}, elsewhere},
		{"the same one, looked at twice", []sighting{at(0, away), at(0, away)}, ""},
		{"a target from before it was accepted", []sighting{at(-5000, away), at(-4000, away)}, ""},
		{"a failsafe", []sighting{at(0), at(1000, failsafe)}, "a failsafe ended it"},
		{"disarmed on the way", []sighting{at(0), at(1000, disarmed)}, "it was disarmed on the way"},
	} {
		m := landingThere()
		m.plan.target = &place{m.plan.target.lat, m.plan.target.lon, 10}
		var taken string
		for i, s := range c.seen {
			s.at.lat, s.at.lon = moved(s.at.lat, s.at.lon, 50, 0) // on its way
			_, taken = m.watch(s)
			if taken != "" && i < len(c.seen)-1 {
				t.Errorf("%s: %q already at the %dth sighting", c.name, taken, i)
			}
		}
		lineEqual(t, c.name, taken, c.taken)
	}
	m := landingThere()
	m.failsafe = true
	_, taken := m.watch(seen(failsafe))
	lineEqual(t, "a failsafe that was there already", taken, "")
}
