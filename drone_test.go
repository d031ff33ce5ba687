package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Why a command was not carried out, in whole flights (docs/design.md, "Reasons of
// a refusal").

// says checks the sentence of an error: what it must and must not say.
func says(t *testing.T, answer object, want string, not ...string) {
	t.Helper()
	text, _ := answer["error"].(string)
	if !strings.Contains(text, want) {
		t.Errorf("%q does not say %q", text, want)
	}
	for _, n := range not {
		if strings.Contains(text, n) {
			t.Errorf("%q says %q", text, n)
		}
	}
}

// Its text goes to ground stations only, of which there is none.
func TestPX4sMissingGroundStationIsNamed(t *testing.T) {
	for _, act := range []float64{1, 2, 3} {
		fly(t, simPX4, func(s *simulator) { s.params[simDataLink] = act }, func(f *flight) {
			for _, command := range []struct{ path, body string }{{"/takeoff", ""}, {"/mode", `{"arm":true}`}} {
				o := f.refused(command.path, command.body, 409, "refused")
				says(t, o, fmt.Sprintf("NAV_DLL_ACT is %g: PX4 arms only while it hears a ground station", act))
				time.Sleep(6 * time.Second)
			}
		})
	}
	fly(t, simPX4, func(s *simulator) { s.armableAfter = time.Hour }, func(f *flight) {
		says(t, f.refused("/takeoff", "", 409, "refused"), "xy_position_control", "NAV_DLL_ACT", "COM_RC_IN_MODE")
	})
}

// Where PX4 ignores our sticks and nobody else has them, a stick mode is not set.
func TestPX4sParameterThatIgnoresOurSticksIsNamed(t *testing.T) {
	for _, in := range []float64{0, 4} {
		fly(t, simPX4, func(s *simulator) { s.params[simStickSource] = in }, func(f *flight) {
			name := fmt.Sprintf("COM_RC_IN_MODE is %g", in)
			says(t, f.refused("/mode", `{"mode":"position"}`, 501, "unsupported"), name)
			f.sim.pilotMode(simPX4Posctl)
			time.Sleep(time.Second)
			says(t, f.refused("/mode", `{"arm":true}`, 409, "refused"), name)
			f.aloft()
			for _, mode := range []string{"position", "altitude", "manual"} {
				says(t, f.refused("/mode", `{"mode":"`+mode+`"}`, 501, "unsupported"), name)
				says(t, f.refused("/input", `{"roll":0.1,"throttle":0.5}`, 409, "wrong_mode"), name, "set mode", "first")
			}
			f.fails(common.MAV_CMD_COMPONENT_ARM_DISARM)
			says(t, f.refused("/mode", `{"arm":false}`, 409, "refused"), "disarming", "COM_RC_IN_MODE")
		})
	}
}

func TestATextOfBeforeTheCommandIsNoReason(t *testing.T) {
	both(t, func(f *flight) {
		say := func(words string) {
			f.sim.change(func() { f.sim.sendText(common.MAV_SEVERITY_CRITICAL, words, 0) })
		}
		say("PreArm: Compass not calibrated")
		time.Sleep(time.Second) // and it is mended
		f.fails(common.MAV_CMD_COMPONENT_ARM_DISARM)
		time.AfterFunc(100*time.Millisecond, func() {
			say("Radio Failsafe Cleared")
			say("Arm: Battery 1 low")
		})
		o := f.refused("/mode", `{"arm":true}`, 409, "refused")
		says(f.T, o, "Arm: Battery 1 low", "Compass", "Cleared", "unhealthy")
		if list := fmt.Sprint(o["messages"]); strings.Contains(list, "Compass") {
			f.Errorf("its messages are %s", list)
		}
	})
}

func TestARefusedModeWithoutATextNamesTheUnhealthySystems(t *testing.T) {
	fly(t, simPX4, func(s *simulator) { s.trouble = []simTrouble{{common.MAV_SYS_STATUS_SENSOR_BATTERY, ""}} }, func(f *flight) {
		f.fails(common.MAV_CMD_DO_SET_MODE)
		says(t, f.refused("/mode", `{"mode":"hold"}`, 409, "refused"), "unhealthy: ")
		says(t, f.refused("/mode", `{"mode":"hold"}`, 409, "refused"), "battery")
	})
}

func TestArduPilotsRefusedGotoWithoutATextSaysThatAFenceMayBeWhy(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.fails(common.MAV_CMD_DO_REPOSITION)
		says(t, f.refused("/goto", "{"+at(3000, 0)+"}", 409, "refused"), "a fence may be why")
	})
}

// PX4 accepts it, says why not, and stays.
func TestAGotoOutsidePX4sFenceTellsOfTheFence(t *testing.T) {
	fly(t, simPX4, func(s *simulator) { s.fence = 50 }, func(f *flight) {
		f.aloft()
		w := f.waits("/goto", waitFor(at(100, 0), 100))
		w.want(t, 409, "interrupted", "Reposition is outside geofence")
		says(t, w.answer, "the autopilot says: ", "unhealthy")
	})
}

func TestAnInterruptedCommandTellsOfTheFailsafe(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		w := f.waits("/goto", waitFor(at(300, 0), 100))
		time.Sleep(5 * time.Second)
		f.sim.change(func() { f.sim.sendText(common.MAV_SEVERITY_CRITICAL, "Battery failsafe", 0) })
		time.Sleep(50 * time.Millisecond)
		f.sim.failsafeReturn()
		w.want(f.T, 409, "interrupted", "RTL", "the autopilot says: Battery failsafe")
	})
}

// text is a STATUSTEXT of a severity.
func text(severity common.MAV_SEVERITY, words string) statusText {
	return statusText{uint8(severity), words, time.Unix(1000, 0)}
}

func TestARefusalNamesEveryReasonTheMostSpecificFirst(t *testing.T) {
	const (
		info, notice      = common.MAV_SEVERITY_INFO, common.MAV_SEVERITY_NOTICE
		warning, critical = common.MAV_SEVERITY_WARNING, common.MAV_SEVERITY_CRITICAL
		denied            = "Arming denied: Resolve system health failures first"
		dll               = "NAV_DLL_ACT is 2: PX4 arms only while it hears a ground station"
	)
	arm := px4.armDisarm(true)
	for _, c := range []struct {
		name string
		why  evidence
		want string // behind "the autopilot refused arming (failed)"
	}{
		{"nothing is known", evidence{}, ""},
		{"one", evidence{texts: []statusText{text(critical, "Arm: RC not found")}}, ": Arm: RC not found"},
		{"several, one of them twice", evidence{texts: []statusText{text(critical, "Arm: RC not found"), text(critical, "Arm: Compass 1"), text(critical, "Arm: RC not found")}},
			": Arm: RC not found; Arm: Compass 1"},
		{"the general one comes last", evidence{texts: []statusText{text(critical, denied), text(warning, "Preflight Fail: GPS fix too low")}},
			": Preflight Fail: GPS fix too low; " + denied},
		{"a mode that can't be armed comes last", evidence{texts: []statusText{text(critical, "Arm: LAND mode not armable"), text(critical, "Arm: Battery 1 low")}},
			": Arm: Battery 1 low; Arm: LAND mode not armable"},
		{"of the checks, whatever its severity", evidence{texts: []statusText{text(info, "PreArm: Gyros not calibrated"), text(info, "EKF3 active")}},
			": PreArm: Gyros not calibrated"},
		{"mavrest's own", evidence{texts: []statusText{text(notice, "mavrest: something")}}, ""},
		{"all-clears", evidence{texts: []statusText{text(warning, "Radio Failsafe Cleared"), text(warning, "Throttle failsafe off"), text(critical, "GCS connection regained"), text(warning, "GPS Glitch cleared")}}, ""},
		{"an all-clear beside a cause", evidence{texts: []statusText{text(warning, "Throttle failsafe off"), text(critical, "Arm: Battery 1 low")}}, ": Arm: Battery 1 low"},
		{"a check that speaks of clearing", evidence{texts: []statusText{text(critical, "PreArm: Fence not cleared")}}, ": PreArm: Fence not cleared"},
		{"no text", evidence{unhealthy: []string{"gps", "battery"}}, ": unhealthy: gps, battery"},
		{"only the general one", evidence{texts: []statusText{text(critical, denied)}, unhealthy: []string{"gps"}}, ": unhealthy: gps; " + denied},
		{"a text tells", evidence{texts: []statusText{text(warning, "Preflight Fail: GPS fix too low")}, unhealthy: []string{"gps"}}, ": Preflight Fail: GPS fix too low"},
		{"an all-clear tells nothing", evidence{texts: []statusText{text(warning, "Radio Failsafe Cleared")}, unhealthy: []string{"gps"}}, ": unhealthy: gps"},
		{"a parameter", evidence{parameters: []string{dll}, unhealthy: []string{"rc_receiver"}}, ": " + dll + "; unhealthy: rc_receiver"},
		{"a mode that is not possible comes last", evidence{texts: []statusText{text(critical, "Switching to mode 'Position' is currently not possible")}, parameters: []string{dll}},
			": " + dll + "; Switching to mode 'Position' is currently not possible"},
		{"a parameter behind a text", evidence{texts: []statusText{text(critical, denied), text(warning, "Preflight Fail: GPS fix too low")}, parameters: []string{dll}},
			": Preflight Fail: GPS fix too low; " + dll + "; " + denied},
		{"a fence", evidence{fence: true}, ": it gives no reason; a fence may be why"},
		{"a fence, and a text tells something else", evidence{texts: []statusText{text(warning, "Mode change to GUIDED failed: requires position")}, fence: true},
			": Mode change to GUIDED failed: requires position"},
	} {
		err := refusal(&arm, uint8(common.MAV_RESULT_FAILED), c.why)
		lineEqual(t, c.name, err.Error(), "the autopilot refused arming (failed)"+c.want)
		lineEqual(t, c.name+": code", code(err), codeRefused)
	}
	err := refusal(&arm, uint8(common.MAV_RESULT_UNSUPPORTED), evidence{})
	lineEqual(t, "unsupported", code(err), codeUnsupported)
}

func TestAnInterruptedCommandTellsWhatTheAutopilotSaid(t *testing.T) {
	const warning, info = common.MAV_SEVERITY_WARNING, common.MAV_SEVERITY_INFO
	interrupted := refuse(codeInterrupted, "it is in RTL")
	for _, c := range []struct {
		name      string
		texts     []statusText
		failsafe  bool
		unhealthy []string
		want      string
	}{
		{"nothing", nil, false, nil, "it is in RTL"},
		{"a fence", []statusText{text(info, "Takeoff detected"), text(warning, "Reposition is outside geofence")}, false, nil,
			"it is in RTL; the autopilot says: Reposition is outside geofence"},
		{"two", []statusText{text(warning, "Radio Failsafe"), text(warning, "RTL mode"), text(warning, "Radio Failsafe")}, true, []string{"rc_receiver"},
			"it is in RTL; the autopilot says: Radio Failsafe; RTL mode"},
		{"an all-clear", []statusText{text(warning, "GCS Failsafe Cleared")}, false, nil, "it is in RTL"},
		{"a failsafe without a text", nil, true, []string{"battery"}, "it is in RTL; unhealthy: battery"},
		{"a failsafe of which nothing is known", nil, true, nil, "it is in RTL"},
		{"no failsafe", nil, false, []string{"rc_receiver"}, "it is in RTL"},
	} {
		err := withTexts(interrupted, c.texts, c.failsafe, c.unhealthy)
		lineEqual(t, c.name, err.Error(), c.want)
		lineEqual(t, c.name+": code", code(err), codeInterrupted)
	}
}
