package main

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The table of docs/autopilots.md, "Kinds of vehicle".
func TestEachVehicleIsOfTheKindThatThePageNames(t *testing.T) {
	const (
		px4Pilot, arduPilot = common.MAV_AUTOPILOT_PX4, common.MAV_AUTOPILOT_ARDUPILOTMEGA
		unsaid              = common.MAV_VTOL_STATE_UNDEFINED
		inHover, wing       = common.MAV_VTOL_STATE_MC, common.MAV_VTOL_STATE_FW
		toWing, toHover     = common.MAV_VTOL_STATE_TRANSITION_TO_FW, common.MAV_VTOL_STATE_TRANSITION_TO_MC
		v16                 = 1<<24 | 16<<16
	)
	for _, c := range []struct {
		autopilot common.MAV_AUTOPILOT
		types     string // MAV_TYPEs
		vtol      common.MAV_VTOL_STATE
		version   firmwareVersion
		want      kind
	}{
		{px4Pilot, "QUADROTOR COAXIAL HEXAROTOR OCTOROTOR TRICOPTER DODECAROTOR DECAROTOR GENERIC", unsaid, px4Drives,
			hovering},
		{px4Pilot, "FIXED_WING", unsaid, px4Drives, onWing},
		{px4Pilot, "VTOL_FIXEDROTOR VTOL_TAILSITTER_DUOROTOR VTOL_TAILSITTER_QUADROTOR VTOL_TILTROTOR " +
			"VTOL_TAILSITTER VTOL_TILTWING", inHover, px4Drives, hovering},
		{px4Pilot, "VTOL_FIXEDROTOR", toHover, px4Drives, hovering},
		{px4Pilot, "VTOL_FIXEDROTOR", wing, px4Drives, onWing},
		{px4Pilot, "VTOL_FIXEDROTOR", toWing, px4Drives, onWing},
		{px4Pilot, "VTOL_FIXEDROTOR", unsaid, px4Drives, kindUnknown},
		{px4Pilot, "GROUND_ROVER", unsaid, px4Drives, driving},
		{px4Pilot, "GROUND_ROVER", unsaid, v16, onlyRead},
		{px4Pilot, "GROUND_ROVER", unsaid, 0, onlyRead},
		{px4Pilot, "SURFACE_BOAT SUBMARINE AIRSHIP HELICOPTER FREE_BALLOON ROCKET", unsaid, px4Drives, onlyRead},
		{arduPilot, "QUADROTOR HELICOPTER HEXAROTOR", unsaid, 0, hovering},
		{arduPilot, "FIXED_WING", unsaid, 0, onWing},
		{arduPilot, "FIXED_WING VTOL_TILTROTOR", inHover, 0, hovering},
		{arduPilot, "FIXED_WING VTOL_TILTROTOR", wing, 0, onWing},
		{arduPilot, "FIXED_WING", toWing, 0, onWing},
		{arduPilot, "VTOL_TILTROTOR", unsaid, 0, kindUnknown},
		{arduPilot, "GROUND_ROVER SURFACE_BOAT SUBMARINE AIRSHIP", unsaid, px4Drives, onlyRead},
		{common.MAV_AUTOPILOT_GENERIC, "QUADROTOR FIXED_WING", unsaid, 0, onlyRead},
	} {
		for _, name := range strings.Fields(c.types) {
			var typ common.MAV_TYPE
			if err := typ.UnmarshalText([]byte("MAV_TYPE_" + name)); err != nil {
				t.Fatal(err)
			}
			id := identity{autopilot: c.autopilot, typ: typ, vtol: uint8(c.vtol), version: c.version}
			v := view{firmware: id.firmware(), typ: typ, vtol: c.vtol, version: c.version}
			lineEqual(t, name+" with vtol_state "+c.vtol.String(), v.kind(), c.want)
			lineEqual(t, name+" can be commanded", v.readOnly() == nil, c.want != onlyRead)
		}
	}
}

func TestWhyAVehicleIsOnlyReadIsSaid(t *testing.T) {
	const px4Pilot, old = common.MAV_AUTOPILOT_PX4, firmwareVersion(1<<24 | 16<<16)
	const quad, wheels, boat = common.MAV_TYPE_QUADROTOR, common.MAV_TYPE_GROUND_ROVER, common.MAV_TYPE_SURFACE_BOAT
	liar, unproven := refuse(codeUnsupported, "it is something else"), refuse(codeOffline, "its proof is awaited")
	for _, c := range []struct {
		id    identity
		doubt error
		want  errorCode
		says  string
	}{
		{identity{autopilot: px4Pilot, typ: quad}, nil, "", ""},
		{identity{autopilot: px4Pilot, typ: quad}, unproven, "", ""},
		{identity{autopilot: px4Pilot, typ: quad}, liar, codeUnsupported, "it is something else"},
		{identity{autopilot: px4Pilot, typ: wheels}, nil, codeOffline, "has not reported its version"},
		{identity{autopilot: px4Pilot, typ: wheels, version: old}, nil, codeUnsupported, "this one has 1.16.0"},
		{identity{autopilot: px4Pilot, typ: boat}, nil, codeUnsupported, "px4, surface_boat, and is no multicopter"},
		{identity{autopilot: common.MAV_AUTOPILOT_GENERIC, typ: quad}, nil, codeUnsupported,
			"generic, quadrotor, as INAV and Betaflight do, and is neither PX4 nor"},
		{identity{autopilot: common.MAV_AUTOPILOT_PPZ, typ: quad}, nil, codeUnsupported,
			"ppz, quadrotor, and is neither"},
	} {
		v := view{firmware: c.id.firmware(), autopilot: c.id.autopilot, typ: c.id.typ, version: c.id.version,
			doubt: c.doubt}
		err := v.readOnly()
		lineEqual(t, fmt.Sprintf("%+v, doubt %v", c.id, c.doubt), code(err), c.want)
		if !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%+v: says %v, want %q", c.id, err, c.says)
		}
	}
}

func TestAQuadPlanesSticksHoverInEachStickMode(t *testing.T) {
	for _, state := range []common.MAV_VTOL_STATE{common.MAV_VTOL_STATE_UNDEFINED, common.MAV_VTOL_STATE_MC,
		common.MAV_VTOL_STATE_FW, common.MAV_VTOL_STATE_TRANSITION_TO_MC} {
		v := view{firmware: quadPlane, typ: common.MAV_TYPE_FIXED_WING, vtol: state}
		lineEqual(t, "a QuadPlane with "+state.String(), v.stickKind(), hovering)
		v = view{firmware: px4, typ: common.MAV_TYPE_VTOL_FIXEDROTOR, vtol: state}
		lineEqual(t, "a PX4 VTOL with "+state.String(), v.stickKind(), v.kind())
	}
}

// A vtol_state that is old says nothing: another program may have commanded a transition meanwhile.
func TestAVTOLThatIsSilentAboutItsKindIsOfNone(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		beat := px4Beat()
		beat.Type = common.MAV_TYPE_VTOL_FIXEDROTOR
		b := newLineBench(t, beat)
		b.settle()
		b.say(&common.MessageExtendedSysState{VtolState: common.MAV_VTOL_STATE_FW})
		for _, c := range []struct {
			after time.Duration
			want  kind
		}{{time.Second, onWing}, {2 * time.Second, kindUnknown}} {
			time.Sleep(c.after)
			var now kind
			b.drone.locked(func() { now = b.drone.view(time.Now()).kind() })
			lineEqual(t, "its kind", now, c.want)
		}
	})
}

func TestARoverThatDrivesUphillHasNotLeftTheGround(t *testing.T) {
	uphill := lastGround{left: true, clear: true}
	for typ, left := range map[common.MAV_TYPE]bool{
		common.MAV_TYPE_GROUND_ROVER: false, common.MAV_TYPE_QUADROTOR: true,
	} {
		v := view{firmware: px4, typ: typ, version: px4Drives, landed: landedState(common.MAV_LANDED_STATE_IN_AIR),
			ground: uphill, height: 3}
		lineEqual(t, typ.String()+" has left the ground", v.leftGround(), left)
	}
}

// Which of these a vehicle is: clear of the ground, landing, off the ground, of a known ground, one that must climb
// before it flies to a place, and one that lands on its wing. "?" is a height above the ground that is not known.
func TestWhatAVehicleIsNearTheGround(t *testing.T) {
	nan := math.NaN()
	takeoff := &aim{place: place{nan, nan, 30, testHome + 30}}
	for _, c := range []struct {
		vehicle string
		change  string
		aim     *aim
		want    string
	}{
		{"px4 AUTO.LOITER landed", "", nil, "known"},
		{"px4 AUTO.LOITER landed clear", "left", nil, "known"},
		{"px4 AUTO.LOITER flying", "", nil, "known, climbs"},
		{"px4 AUTO.LOITER flying", "left", nil, "left, known, climbs"},
		{"px4 AUTO.LOITER flying clear", "left", nil, "clear, left, known, climbs"},
		{"px4 AUTO.LOITER flying", "?", nil, "clear, left, known, climbs"},
		{"px4 AUTO.LOITER armed climbing", "", nil, "known"},
		{"px4 AUTO.LOITER armed climbing", "?", nil, ""},
		{"px4 AUTO.LOITER armed", "unsaid", nil, ""},
		{"px4 AUTO.LOITER flying clear landing", "left", nil, "lands, left, known, climbs"},
		{"px4 AUTO.LAND flying clear", "left", nil, "lands, left, known, climbs"},
		{"px4 AUTO.LAND flying", "?", nil, "lands, left, known, climbs"},
		{"px4 AUTO.LOITER flying", "", takeoff, "known"},
		{"px4 AUTO.LOITER flying", "", &aim{place: takeoff.place, reached: true}, "known, climbs"},
		{"px4 AUTO.LOITER flying", "", &aim{place: place{testLat, testLon, 30, nan}}, "known, climbs"},
		{"px4 AUTO.TAKEOFF flying", "", nil, "known"},
		{"px4 POSCTL flying", "", nil, "known"},
		{"px4 POSCTL flying", "assumed", nil, "known, climbs"},
		{"px4 AUTO.LOITER flying blind", "", nil, "known"},
		{"px4 AUTO.LOITER flying", "no height above the sea", nil, "known"},
		{"copter GUIDED flying", "no height above the sea", nil, "known, climbs"},
		{"px4 AUTO.LOITER landed", "in the air", nil, "known"},
		{"px4 AUTO.LOITER armed climbing", "left", nil, "left, known"},
		{"px4-rover AUTO.LOITER armed", "", nil, "clear, known"},
		{"px4-rover AUTO.LOITER flying", "left", nil, "clear, known, climbs"},
		{"px4-vtol AUTO.LOITER flying wing", "", nil, "known, climbs"},
		{"px4-vtol AUTO.LOITER flying wing", "NAV_FORCE_VT", nil, "known, climbs, touches on its wing"},
		{"px4-plane AUTO.LOITER flying", "NAV_FORCE_VT", nil, "known, climbs"},
		{"quadplane QLOITER flying wing", "NAV_FORCE_VT", nil, "known"},
	} {
		v := parseVehicle(t, c.vehicle)
		switch c.change {
		case "left":
			v.ground.left = true
		case "assumed":
			v.ground.assumed = true
		case "?":
			v.height = nan
		case "unsaid":
			v.landed = 0
		case "in the air":
			v.landed = inAir
		case "no height above the sea":
			v.place.amsl = nan
		case "NAV_FORCE_VT":
			v.params[c.change] = 0
		}
		var is []string
		for _, p := range []struct {
			name string
			is   bool
		}{
			{"clear", v.isClear()}, {"lands", v.lands()}, {"left", v.leftGround()}, {"known", v.knowsGround()},
			{"climbs", v.mustClimb(c.aim)}, {"touches on its wing", v.landsOnWing()},
		} {
			if p.is {
				is = append(is, p.name)
			}
		}
		lineEqual(t, strings.TrimSpace(c.vehicle+" "+c.change)+": it", strings.Join(is, ", "), c.want)
	}
}

func TestAVehicleOnItsWingCirclesByItsOwnParameter(t *testing.T) {
	params := map[string]float64{"NAV_LOITER_RAD": -50, "RTL_LOITER_RAD": -51, "WP_LOITER_RAD": -52}
	for _, c := range []struct {
		vehicle      string
		params       map[string]float64
		circle, home float64
	}{
		{"px4-plane AUTO.LOITER flying", params, 50, 51},
		{"px4-plane AUTO.LOITER flying", nil, 80, 80},
		{"px4-vtol AUTO.LOITER flying hovering", params, 0, 51},
		{"copter GUIDED flying", params, 0, 0},
		{"quadplane GUIDED flying", params, 0, 0},
		{"quadplane GUIDED flying wing", params, 52, 52},
		{"quadplane GUIDED flying wing hovers", params, 0, 0},
		{"plane GUIDED flying hovers", params, 52, 52},
		{"plane GUIDED flying", nil, 60, 60},
	} {
		v := parseVehicle(t, c.vehicle)
		maps.Copy(v.params, c.params)
		lineEqual(t, c.vehicle+" circles by", v.circle(), c.circle)
		lineEqual(t, c.vehicle+" circles home by", v.homeCircle(), c.home)
	}
}
