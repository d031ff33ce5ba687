package main

import (
	"slices"
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
		{"copter LOITER flying", true},
	} {
		v := parseVehicle(t, c.vehicle)
		lineEqual(t, c.vehicle+" has hold", slices.Contains(v.modes(), "hold"), c.want)
	}
}

// A rotor takes longer to come up to speed than propellers do.
func TestAHelicopterHasLongerToLeaveTheGround(t *testing.T) {
	helicopter, quad := view{typ: common.MAV_TYPE_HELICOPTER}, view{typ: common.MAV_TYPE_QUADROTOR}
	lineEqual(t, "a helicopter", helicopter.clearWithin(), 30*time.Second)
	lineEqual(t, "a quadrotor", quad.clearWithin(), 10*time.Second)
}

func TestARefusalWithoutATextHasAHint(t *testing.T) {
	const helicopter, quad = common.MAV_TYPE_HELICOPTER, common.MAV_TYPE_QUADROTOR
	takeoff, goTo := copter.step(common.MAV_CMD_NAV_TAKEOFF), copter.step(common.MAV_CMD_DO_REPOSITION)
	hold := goTo
	hold.holds = true
	for _, c := range []struct {
		name string
		f    firmware
		typ  common.MAV_TYPE
		s    step
		want string // a word of the hint
	}{
		{"a helicopter's takeoff", copter, helicopter, takeoff, "then raise the motor interlock"},
		{"a copter's takeoff", copter, quad, takeoff, "if it has a motor interlock"},
		{"a QuadPlane's takeoff", quadPlane, quad, takeoff, ""},
		{"a copter's goto", copter, quad, goTo, "fence"},
		{"a copter's hold", copter, quad, hold, ""},
		{"a PX4's goto", px4, quad, goTo, ""},
	} {
		got := hint(c.f, c.typ, &c.s, true)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	lineEqual(t, "without a fence", hint(copter, common.MAV_TYPE_QUADROTOR, &step{cmd: common.MAV_CMD_DO_REPOSITION},
		false), "")
}

func TestASpeedIsPartOfTheGotoThatItFollows(t *testing.T) {
	goTo, speed := plane.step(common.MAV_CMD_DO_REPOSITION), plane.step(common.MAV_CMD_DO_CHANGE_SPEED)
	hold := goTo
	hold.holds = true
	for _, c := range []struct {
		sent  step
		steps []step
		want  string
	}{
		{speed, []step{goTo, speed}, "the goto"},
		{speed, []step{hold, speed}, "the hold"},
		{goTo, []step{goTo, speed}, "the goto"},
	} {
		x := &task{plan: plan{steps: c.steps}, command: &command{step: &c.sent}}
		lineEqual(t, "sent", x.sentName(), c.want)
	}
}
