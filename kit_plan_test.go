package main

// A vehicle, a request and the steps of a plan, in words.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The vehicle of the plans. When it flies it is 10 m over a home at 488.5 m AMSL.
const (
	testLat, testLon = 47.3977421, 8.5455938
	testHome         = 488.5
)

var nan32 = float32(math.NaN())

// px4Kinds are PX4's vehicles that are no multicopters.
var px4Kinds = map[string]common.MAV_TYPE{
	"px4-plane": common.MAV_TYPE_FIXED_WING, "px4-vtol": common.MAV_TYPE_VTOL_FIXEDROTOR,
	"px4-rover": common.MAV_TYPE_GROUND_ROVER,
	"px4-boat":  common.MAV_TYPE_SURFACE_BOAT, "px4-generic": common.MAV_TYPE_GENERIC,
}

// parseVehicle reads a vehicle: its firmware, its mode, and words for its state.
func parseVehicle(t *testing.T, s string) view {
	t.Helper()
	nan := math.NaN()
	w := strings.Fields(s)
	v := view{place: place{testLat, testLon, 0, testHome}, heading: 90, home: point{amsl: testHome}, landed: onGround}
	v.params = map[string]float64{"WPNAV_SPEED": 1000, "AIRSPEED_MIN": 9, "AIRSPEED_MAX": 22}
	v.firmware = map[string]firmware{"px4": px4, "copter": copter, "quadplane": quadPlane, "plane": plane,
		"rover": arduRover, "sub": arduSub, "stranger": firmwareUnknown}[w[0]]
	if typ, ok := px4Kinds[w[0]]; ok {
		v.firmware, v.typ, v.version = px4, typ, px4Drives
	}
	switch {
	case v.firmware == px4:
		v.autopilot = common.MAV_AUTOPILOT_PX4
	case v.firmware.ardupilot():
		v.autopilot = common.MAV_AUTOPILOT_ARDUPILOTMEGA
	}
	if v.firmware == quadPlane {
		v.vtol = common.MAV_VTOL_STATE_MC
	}
	if v.firmware != firmwareUnknown {
		v.custom = numberOf(t, v.firmware, w[1])
	}
	for _, flag := range w[2:] {
		switch flag {
		case "landed": // and it is disarmed
		case "armed":
			v.armed = true
		case "flying":
			v.armed, v.landed = true, landedState(common.MAV_LANDED_STATE_IN_AIR)
			v.place.amsl, v.place.altitude = testHome+10, 10
			v.height = 10
		case "climbing":
			v.landed = landedState(common.MAV_LANDED_STATE_TAKEOFF)
		case "landing":
			v.landed = landedState(common.MAV_LANDED_STATE_LANDING)
		case "undefined": // its landed state
			v.landed = landedState(common.MAV_LANDED_STATE_UNDEFINED)
		case "failsafe":
			v.critical = true
		case "uphill": // from its home
			v.place.amsl, v.place.altitude = testHome+6.5, 6.5
		case "homeless":
			v.home.amsl = nan
		case "southwest": // the way its nose points
			v.heading = 225
		case "at-180°":
			v.place.lat, v.place.lon = 60, 179.9999
		case "silent": // for 3 s
			v.place, v.heading = nowhere, nan
			v.now = time.Unix(1000, 0)
			v.placeAt = v.now.Add(-3 * time.Second)
		case "headless":
			v.heading = nan
		case "blind": // without GPS
			v.place, v.heading = nowhere, nan
		case "hovers": // in GUIDED
			v.params["Q_GUIDED_MODE"] = 1
		case "circles":
			v.params["Q_GUIDED_MODE"] = 0
		case "clear": // of the ground
			v.ground.clear = true
		case "moving":
			v.velocity.north = 2
		case "fast": // on a wing
			v.velocity.north = 20
		case "rising":
			v.velocity.down = -2
		case "low": // above the ground, which is higher than home
			v.height = 3
		case "hovering":
			v.vtol = common.MAV_VTOL_STATE_MC
		case "wing":
			v.vtol = common.MAV_VTOL_STATE_FW
		case "to-wing":
			v.vtol = common.MAV_VTOL_STATE_TRANSITION_TO_FW
		case "to-hover":
			v.vtol = common.MAV_VTOL_STATE_TRANSITION_TO_MC
		case "1.16":
			v.version = 1<<24 | 16<<16
		case "version=?":
			v.version = 0
		case "WPNAV_SPEED=750": // cm/s
			v.params["WPNAV_SPEED"] = 750
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
		r.verb, r.mode = entersMode, ModeTakeoff
	case "goto":
		r.verb = goesTo
	case "land":
		r.verb, r.mode = entersMode, ModeLand
	case "set":
	default:
		t.Fatalf("no such request: %q", s)
	}
	numbers := map[string]**float64{"lat": &r.lat, "lon": &r.lon, "altitude": &r.altitude,
		"altitude_msl": &r.altitudeMSL, "heading": &r.heading, "speed": &r.speed,
		"north": &r.offset.north, "east": &r.offset.east, "forward": &r.offset.forward, "right": &r.offset.right,
		"up": &r.offset.up}
	for _, field := range w[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "mode":
			r.verb, r.mode = entersMode, modeNamed(t, value)
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
// number, the parameters. "…0" and "…NaN" stand for all other parameters.
func describe(s *step) string {
	if s.asInt {
		return fmt.Sprintf("INT %d frame=%d %v x=%d y=%d z=%v", s.cmd, s.frame, s.p[:4], s.x, s.y, s.p[6])
	}
	var words []string
	for _, x := range s.p {
		words = append(words, fmt.Sprint(x))
	}
	last, end := words[len(words)-1], len(words)
	for end > 0 && words[end-1] == last {
		end--
	}
	if len(words)-end > 1 { // at the end several are equal
		words = append(words[:end], "…"+last)
	}
	return fmt.Sprintf("LONG %d %v", s.cmd, words)
}

// describeSteps writes a plan's commands, or the error of a refused one.
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
		prefix := ""
		if s.optional {
			prefix = "if it can: "
		}
		lines = append(lines, prefix+describe(s))
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
			v := parseVehicle(t, r.vehicle)
			got := describeSteps(parseRequest(t, r.request).placed(v).plan(v, nil))
			if !slices.Equal(got, r.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(r.want, "\n\t"))
			}
		})
	}
}

const (
	notFlying = "refused: not in the air: take off first, and wait until in_air is true"
	ownSpeed  = "unsupported: speed: a QuadPlane that hovers has only its own (Q_WP_SPEED); leave it out"
	tooSlow   = "out_of_range: speed: on its wing this vehicle flies 9 to 22 m/s through the air (AIRSPEED_MIN, " +
		"AIRSPEED_MAX)"
	noLanding = "unsupported: land: a fixed wing lands by a mission, not by a command"
)

// meaningRow is a vehicle, a request, and what the plan's steps need and lead to.
type meaningRow struct{ vehicle, request, want string }

func testMeanings(t *testing.T, rows []meaningRow) {
	for _, r := range rows {
		t.Run(r.vehicle+": "+r.request, func(t *testing.T) {
			v := parseVehicle(t, r.vehicle)
			req := parseRequest(t, r.request)
			p, err := req.plan(v, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := gist(v, req, p); got != r.want {
				t.Errorf("\ngot  %s\nwant %s", got, r.want)
			}
		})
	}
}

// gist writes for each step "streamed" if it needs our stream, else "anyhow"; the mode that it leads
// to, by the autopilot's own name, with a star at the goal; then what the whole plan leads to.
func gist(v view, r request, p plan) string {
	name := func(custom uint32) string { _, s := v.firmware.reported(custom); return s }
	var steps []string
	for _, s := range p.steps {
		step := "anyhow"
		if s.needsStream() {
			step = "streamed"
		}
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
	if p.destination != nil {
		to := p.destination
		got += fmt.Sprintf("; at %v %v %v, %v AMSL", to.lat, to.lon, to.altitude, to.amsl)
	}
	return got
}

func wantFinite(t *testing.T, what string, p plan) {
	t.Helper()
	steps := p.steps
	if p.second != nil {
		steps = append(slices.Clone(steps), *p.second)
	}
	for _, s := range steps {
		for _, x := range s.p {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Errorf("%s: %s", what, describe(&s))
			}
		}
		if s.asInt && !onEarth(float64(s.x)/1e7, float64(s.y)/1e7) {
			t.Errorf("%s: %s is no place", what, describe(&s))
		}
	}
}

// noHold is the refusal of a hold by a QuadPlane that does not hover in GUIDED.
const noHold = "unsupported: hold: this QuadPlane would go over to its wing and circle; land, or fly it by the " +
	"sticks; it holds where Q_GUIDED_MODE is 1"

// circles is the refusal of a QuadPlane that does not hover in GUIDED.
func circles(what string) string {
	return "unsupported: " + what + ": this QuadPlane circles in GUIDED instead of hovering; set Q_GUIDED_MODE to 1"
}
