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

// parseVehicle reads a vehicle: its firmware, its mode, and what is the case.
func parseVehicle(t *testing.T, s string) vehicle {
	t.Helper()
	nan := math.NaN()
	w := strings.Fields(s)
	v := vehicle{at: place{testLat, testLon, 0, testHome}, heading: 90, homeAMSL: testHome, landed: onGround}
	v.guidedMode, v.cruise = nan, 10
	v.firmware = map[string]firmware{"px4": px4, "copter": copter, "quadplane": quadPlane, "plane": plane, "rover": firmwareUnknown}[w[0]]
	if v.firmware != firmwareUnknown {
		v.custom = numberOf(t, v.firmware, w[1])
	}
	for _, flag := range w[2:] {
		switch flag {
		case "landed": // and disarmed
		case "armed":
			v.armed = true
		case "flying":
			v.armed, v.landed, v.at.amsl, v.at.altitude = true, landedState(common.MAV_LANDED_STATE_IN_AIR), testHome+10, 10
		case "climbing":
			v.landed = landedState(common.MAV_LANDED_STATE_TAKEOFF)
		case "landing":
			v.landed = landedState(common.MAV_LANDED_STATE_LANDING)
		case "undefined": // whether it is on the ground
			v.landed = landedState(common.MAV_LANDED_STATE_UNDEFINED)
		case "failsafe":
			v.failsafe = true
		case "uphill": // of its home
			v.at.amsl, v.at.altitude = testHome+6.5, 6.5
		case "homeless":
			v.homeAMSL = nan
		case "headless":
			v.heading = nan
		case "blind": // without GPS
			v.at, v.heading = place{nan, nan, nan, nan}, nan
		case "to-hold": // a step to the hold mode was not answered
			v.toHold = true
		case "hovers": // in GUIDED
			v.guidedMode = 1
		case "circles":
			v.guidedMode = 0
		case "wing":
			v.vtol = common.MAV_VTOL_STATE_FW
		case "sped": // up, by a goto from here
			v.spedUp, v.cruise = true, 7.5
		case "streams": // our sticks, centred
			v.stream = streamCentred
		case "away": // our sticks are, from the centre
			v.stream = streamAway
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
	if s.asInt {
		words := make([]string, 4)
		for i := range words {
			words[i] = fmt.Sprint(s.p[i])
		}
		return fmt.Sprintf("INT %d frame=%d [%s] x=%d y=%d z=%v", s.cmd, s.frame, strings.Join(words, " "), s.x, s.y, s.p[6])
	}
	return fmt.Sprintf("LONG %d %s", s.cmd, params(s.p[:]))
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
		if s.optional {
			way = "if it can: "
		}
		lines = append(lines, way+describe(s))
	}
	if p.second != nil {
		lines = append(lines, "over it: "+describe(p.second))
	}
	if p.endsFailsafe {
		lines = append(lines, endsFailsafe)
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
	endsFailsafe = "ends a failsafe"
	notFlying    = "refused: not flying: take off first"
	fixedWing    = "unsupported: land: a fixed wing lands by a mission, not by a command"
)

func TestAnUnknownAutopilotIsNotCommanded(t *testing.T) {
	const unknown = "unsupported: this autopilot is neither PX4 nor ArduPilot Copter or Plane: its state can be read, not commanded"
	testPlans(t, []planRow{
		{"rover MANUAL landed", "set mode=hold", []string{unknown}},
		{"rover MANUAL landed", "set arm=true", []string{unknown}},
		{"rover MANUAL landed", "takeoff", []string{unknown}},
		{"rover MANUAL armed", "goto altitude=20", []string{unknown}},
		{"rover MANUAL armed", "land", []string{unknown}},
	})
}

// meaningRow is a vehicle, a request, and what the plan means to the machine, the
// sticks and the manoeuvre.
type meaningRow struct{ vehicle, request, want string }

func testMeanings(t *testing.T, rows []meaningRow) {
	for _, r := range rows {
		t.Run(r.vehicle+": "+r.request, func(t *testing.T) {
			v := parseVehicle(t, r.vehicle)
			req := parseRequest(t, r.request)
			p, err := req.plan(v)
			if err != nil {
				t.Fatal(err)
			}
			if got := meaning(v, req, p); got != r.want {
				t.Errorf("\ngot  %s\nwant %s", got, r.want)
			}
		})
	}
}

// meaning writes what each step needs of the sticks and which mode it leads to, by
// the autopilot's own name, with a star at the goal; then what the whole plan leads to.
func meaning(v vehicle, r request, p plan) string {
	name := func(custom uint32) string { _, s := v.firmware.reported(custom); return s }
	var steps []string
	for _, s := range p.steps {
		step := [...]string{"anyhow", "led", "still"}[s.sticks]
		if s.to != nil {
			step += " " + s.to.mode.String() + " by " + name(s.to.number)
		}
		if s.to != nil && s.to == p.goal() {
			step += "*"
		}
		steps = append(steps, step)
	}
	got := strings.Join(steps, " | ")
	if p.second != nil {
		got += "; over it " + p.second.to.mode.String() + " by " + name(p.second.to.number)
	}
	switch {
	case r.arms():
		got += "; to armed"
	case r.disarms():
		got += "; to disarmed"
	}
	if o := p.goal(); o != nil && o.end != 0 {
		got += fmt.Sprintf("; ends in %s from %v", name(o.end), o.endAMSL)
	}
	if r.urgent() {
		got += "; urgent"
	}
	if p.target != nil {
		got += fmt.Sprintf("; at %v %v %v, %v AMSL", p.target.lat, p.target.lon, p.target.altitude, p.target.amsl)
	}
	if p.goal() != nil && !math.IsNaN(p.facing) {
		got += fmt.Sprintf("; facing %v", p.facing)
	}
	return got
}

// everyPlan calls f with the plans of many vehicles and requests.
func everyPlan(t *testing.T, f func(t *testing.T, v vehicle, r request, p plan)) {
	requests := []string{"takeoff altitude=50", "goto altitude=20 speed=3 heading=10", "goto altitude=20", "land", "land lat=47.398 lon=8.546", "set arm=true", "set arm=false"}
	for _, m := range requestable {
		requests = append(requests, "set mode="+m.String(), "set mode="+m.String()+" arm=true", "set mode="+m.String()+" arm=false")
	}
	for _, v := range []string{
		"px4 MANUAL landed", "px4 POSCTL armed", "px4 POSCTL flying", "px4 ALTCTL flying streams away", "px4 AUTO.LOITER flying away", "px4 AUTO.RTL flying failsafe",
		"copter STABILIZE landed", "copter GUIDED armed", "copter LOITER flying", "copter GUIDED flying sped",
		"quadplane QLOITER landed", "quadplane QLOITER flying hovers", "quadplane GUIDED flying hovers", "plane FBWB landed", "plane FBWB flying", "plane GUIDED flying",
	} {
		for _, r := range requests {
			t.Run(v+": "+r, func(t *testing.T) {
				veh, req := parseVehicle(t, v), parseRequest(t, r)
				if p, err := req.plan(veh); err == nil { // the tables say which are refused
					f(t, veh, req, p)
				}
			})
		}
	}
}

// TestOnlyAReturnLeadsToRTL: a report of a number that a plan has sent is no
// takeover. A failsafe's RTL must be one.
func TestOnlyAReturnLeadsToRTL(t *testing.T) {
	everyPlan(t, func(t *testing.T, v vehicle, r request, p plan) {
		for _, s := range p.steps {
			if r.mode == ModeRTL || r.mode == ModeRTGS || s.to == nil {
				continue
			}
			if mode, _ := v.firmware.reported(s.to.number); mode == ModeRTL || mode == ModeRTGS {
				t.Errorf("%s would hide a failsafe", describe(&s))
			}
		}
	})
}

// TestStepNamesTheModeItLeadsTo: the commander waits for a report of its number,
// and makes its mode the mode.
func TestStepNamesTheModeItLeadsTo(t *testing.T) {
	everyPlan(t, func(t *testing.T, v vehicle, r request, p plan) {
		steps := p.steps
		if p.second != nil {
			steps = append(slices.Clone(steps), *p.second)
		}
		for _, s := range steps {
			want, leads := uint32(0), true
			switch s.cmd {
			case common.MAV_CMD_DO_SET_MODE:
				want = uint32(s.p[1])
				if v.firmware == px4 {
					want = px4Custom(uint32(s.p[1]), uint32(s.p[2]))
				}
			case common.MAV_CMD_DO_REPOSITION:
				want = entered[v.firmware][ModeHold]
			case common.MAV_CMD_NAV_TAKEOFF:
				want = entered[v.firmware][ModeTakeoff]
			case common.MAV_CMD_NAV_LAND:
				want = entered[v.firmware][ModeLand]
			default:
				leads = false
			}
			if leads != (s.to != nil) || leads && s.to.number != want {
				t.Errorf("%s leads to %+v, want %d", describe(&s), s.to, want)
			}
		}
	})
}

// TestAPlansGoalIsItsLastMode: the manoeuvre begins with it, and is the request's.
func TestAPlansGoalIsItsLastMode(t *testing.T) {
	everyPlan(t, func(t *testing.T, v vehicle, r request, p plan) {
		switch last := p.goal(); {
		case r.setMode && last == nil:
			t.Error("it sets no mode")
		case r.setMode && last.mode != r.mode:
			t.Errorf("the goal is %v", last.mode)
		case !r.setMode && last != nil:
			t.Errorf("it only arms or disarms, and leads to %v", last.mode)
		}
	})
}

// TestSetModeAsksForTheModeThatItNames: what enters a mode is reported as that mode.
func TestSetModeAsksForTheModeThatItNames(t *testing.T) {
	for _, f := range []firmware{px4, copter, quadPlane, plane} {
		for m, custom := range entered[f] {
			s := f.setMode(m, custom)
			sent := uint32(s.p[1])
			if f == px4 {
				sent = px4Custom(uint32(s.p[1]), uint32(s.p[2]))
			}
			if s.to == nil || s.to.mode != m || s.to.number != custom || sent != custom || s.p[0] != 1 {
				t.Errorf("firmware %d, %v: asks for %d and says %+v, want %d", f, m, sent, s.to, custom)
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
