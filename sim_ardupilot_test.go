package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

func TestArduPilotBootsWithStrayBytes(t *testing.T) {
	simFlight(t, simArduPilot, nil, func(b *simBoard) {
		p, _ := b.open()
		b.reboot(false)
		buf := make([]byte, 100)
		n, _ := p.Read(buf)
		if n < 6 || buf[0] == frame.V2MagicByte || bytes.IndexByte(buf[:n], frame.V2MagicByte) > 6 {
			t.Errorf("first bytes % x", buf[:n])
		}
	})
}

func TestArduPilotFlies(t *testing.T) {
	const flies = ", +12s, vn "
	simFlies(t, []rule{ // kit_sim_test.go, simFlies, and testdata/README.md explain the words of a script
		{"obeys sticks from the system that its parameter names",
			"copter air SYSID_MYGCS=none MAV_GCS_SYSID=42: mode LOITER, as 42, sticks 0 0 500 0 for 2s, climb 0 ±0.05"},
		{"arms whatever another system's throttle is",
			"copter: mode GUIDED, sticks 0 0 500 0 for 400ms, arm = accepted"},
		{"accepts a takeoff in LOITER, but does not climb",
			"copter: mode LOITER, arm, NAV_TAKEOFF 0 0 0 0 0 0 10 = accepted, +8s, at 0 0 0 ±0.01"},
		{"climbs 4 m further when BRAKE ends a climb",
			"copter air: goto 0 0 60, until climb > 2.4 30s, note, {mode BRAKE→BRAKE|mode BRAKE, mode " +
				"GUIDED→GUIDED}, +12s, climb 0 ±0.05, rose 4 ±0.6, in $1"},
		{"disarms by itself where a pilot ends its takeoff by BRAKE",
			"copter: mode GUIDED, arm, NAV_TAKEOFF 0 0 0 0 0 0 10, +1s, pilot BRAKE, +8700ms, armed, +600ms, " +
				"disarmed, at 0 0 0 ±0.01"},
		{"ignores every goto after a pause",
			"copter air: DO_PAUSE_CONTINUE 0 = accepted, goto 60 0 10 = accepted, +20s, at 0 0 10 ±0.2"},
		{"forgets a speed that comes before a goto, and keeps one that comes after it",
			"copter air: DO_CHANGE_SPEED 1 2 = accepted, goto 3000 0 10" + flies +
				"10 ±0.1, DO_CHANGE_SPEED 1 4, goto 3100 0 10" + flies + "4 ±0.1, mode GUIDED, goto 3200 0 10" + flies +
				"4 ±0.1, DO_CHANGE_SPEED 1 3, mode BRAKE, DO_CHANGE_SPEED 1 2 = failed, mode GUIDED, goto 3300 0 10" +
				flies + "10 ±0.1"},
		{"keeps a yaw until the next goto",
			"copter air: goto 0 400 10, +5s, heading 90 ±2, CONDITION_YAW 90 0 1 1 = accepted, +5s, heading 180 ±2, " +
				"goto 400 400 10, +8s, not heading 180 ±90, mode LAND, CONDITION_YAW 90 = failed"},
		{"refuses to disarm at the touch-down", "copter air: mode LAND, until alt < 0.01 60s, disarm = failed"},
	})
}

func TestArduPilotsSticksAndReceiver(t *testing.T) {
	const air = "as 255, air 10, "
	const stream = "sticks 0 0 500 0 for "
	simFlies(t, []rule{
		{"sticks fly LOITER as captured", "copter receiver=hand: " + air + stream +
			"400ms, mode LOITER, sticks 500 0 500 0 for 3s, vn 3.23 ±0.3, " + stream +
			"5s, sticks 1000 0 500 0 for 15s, vn 8.6 ±0.1, sticks -500 0 -1 0 for 1s, vn 8.6 ±0.2, sticks 32767 0 " +
			"500 0 for 10s, vn 0 ±0.1, sticks 0 0 1000 0 for 4s, climb 2.5 ±0.1"},
		{"centred sticks stop LOITER as captured", "copter receiver=hand: " + air + stream +
			"400ms, mode LOITER, sticks 500 0 500 0 for 3s, " + stream + "5s, north 9.65 ±1.5"},
		{"a failsafe comes 1 s after the last stick, in any mode", "copter receiver={none|lost}: " + air + stream +
			"400ms, mode {STABILIZE|GUIDED|LOITER|LAND}, " + stream +
			"2s, in $2, stick 0 0 500 0, +970ms, in $2, +60ms, in RTL, +10ms, says Radio Failsafe, state CRITICAL"},
		{"sticks prevent and clear the radio failsafe", "copter receiver=none: " + air + stream +
			"14s, in GUIDED, +1100ms, in RTL, mode GUIDED = accepted, +10s, in GUIDED, failing, " + stream +
			"1s, not failing, +1100ms, " + stream + "1s, in RTL, not failing"},
		{"a receiver prevents the radio failsafe too", "copter receiver=idle: " + air + stream +
			"1s, +20s, in GUIDED, receiver lost, +1100ms, in RTL, receiver hand, +100ms, not failing, in RTL"},
		{"a receiver acts where there is no stream",
			"copter {receiver=hand: as 255, air 60, mode LOITER→0|receiver=idle: as 255, air 60, mode " +
				"ALT_HOLD→-2.4|receiver=hand: as 255, air 60, mode ALT_HOLD→0|receiver=hand: as 255, air 60, mode " +
				"STABILIZE→3|receiver=idle: as 255, air 60, mode GUIDED→0}, +15s, climb $1 ±0.2"},
		{"STABILIZE falls under an idle receiver",
			"copter receiver=idle: as 255, air 28, mode STABILIZE, until climb < -13 60s, stays 5s climb > -15"},
		{"after a release the pilot's roll stick flies", "copter receiver=hand: " + air + stream +
			"1s, pilot LOITER, pilot sticks 0 500 500 0, " + stream +
			"8s, at 0 0 10 ±0.05, stick 32767 32767 32767 32767, stick 32767 32767 32767 32767, stick 32767 32767 " +
			"32767 32767, +15s, ve 4.3 ±0.1"},
		{"without a receiver it does not arm",
			"copter receiver={none|lost}: as 255, mode GUIDED, arm = failed, says Arm: RC not found"},
		{"without a receiver it arms after 2 s of a stream",
			"copter receiver=none: as 255, mode GUIDED, sticks 0 0 0 0 for {1s, arm = failed, says Arm: RC not " +
				"found|2100ms, arm = accepted}"},
		{"it does not arm with the throttle in the middle",
			"copter {receiver=none: as 255, mode GUIDED, sticks 0 0 500 0 for 2100ms|receiver=hand: as 255, pilot " +
				"sticks 0 0 500 0, mode GUIDED}, arm = failed, says Arm: Throttle (RC3) is not neutral"},
		{"sticks count as a ground station's heartbeat", "copter receiver=idle FS_GCS_ENABLE=1: " + air +
			"+10s, in GUIDED, " + stream + "3s, stick 32767 32767 32767 32767, +5050ms, in GUIDED, +100ms, in RTL, " +
			"+10ms, says GCS Failsafe, failing"},
		{"with FS_GCS_ENABLE 0 the end of sticks is no failsafe", "copter receiver=idle FS_GCS_ENABLE=0: " + air +
			stream + "3s, stick 32767 32767 32767 32767, +20s, in GUIDED"},
		{"in GUIDED sticks only turn the vehicle", "copter receiver=none: " + air +
			"sticks 1000 0 0 500 for 2s, at 0 0 10 ±0.1, heading > 30"},
		{"sticks shift a landing", "copter receiver=none: " + air + stream +
			"400ms, mode LAND, sticks 1000 0 500 0 for 3s, north > 2"},
	})
}

func TestArduPilotsBootTakeoffAndGotos(t *testing.T) {
	modes := "STABILIZE"
	for _, m := range simArduPilot.modes[1:] {
		modes += "|" + m.name
	}
	const boot = "copter armable=42s: +24s, "
	simFlies(t, []rule{
		{"before the first fix VFR_HUD has no altitude", "copter armable=42s: hud -0.02"},
		{"without a position and disarmed it takes any mode", boot + "mode {" + modes + "} = accepted"},
		{"without a position and armed it takes no mode that needs one", boot +
			"mode STABILIZE, arm = accepted, mode {GUIDED|LOITER|RTL} = failed, says requires position, goto 10 0 " +
			"10 = failed"},
		{"a takeoff's height is above home, and it lifts once its propellers turn",
			"copter: mode GUIDED, arm, INT NAV_TAKEOFF 0 0 10 in 3 = accepted, +3s, at 0 0 0 ±0, until alt > 0 " +
				"400ms, +10s, at 0 0 10 ±0.15"},
		{"a takeoff in other frames is denied", "copter: mode GUIDED, arm, INT NAV_TAKEOFF 0 0 10 in {0|6} = denied"},
		{"a goto in a terrain frame flies into the ground",
			"copter air: INT DO_REPOSITION 20 5 15 in 11 = accepted, +30s, alt 0 ±0.3"},
		{"a return never sinks to RTL_ALT",
			"copter air RTL_ALT=2500: mode GUIDED, goto 40 0 30, +25s, mode RTL, +12s, alt 30 ±0.5"},
		{"a goto in a local frame is denied", "copter air: INT DO_REPOSITION 20 5 15 in 1 = denied, +30s, alt 10 ±0.3"},
		{"a goto on the ground is accepted, and does nothing",
			"copter: mode GUIDED, arm, goto 20 0 15 = accepted, +5s, at 0 0 0 ±0"},
	})
}

func TestArduPilotsInternalError(t *testing.T) {
	const changing = "copter: mode ALT_HOLD, ask mode STABILIZE, "
	simFlies(t, []rule{
		{"a mode change within 5 ms of another raises the error", changing +
			"+{1ms|5ms}, ask mode LOITER, +1s, mode GUIDED, arm = failed, says Arm: Internal errors 0x100000 l:297 " +
			"flow_of_ctrl, state CRITICAL, +1m, arm = failed, restart grounded, +6s, mode GUIDED, arm = accepted"},
		{"a mode change 7 ms after another does not raise the error", changing +
			"+{7ms|20ms}, ask mode LOITER, +1s, mode GUIDED, arm = accepted"},
		{"in the air the vehicle then climbs by itself",
			"copter air receiver=hand: ask mode STABILIZE, ask mode ALT_HOLD, +40s, says Internal Errors 0x100000, " +
				"alt 56 ±2"},
		{"a line that gathers bytes makes two mode changes arrive at once",
			"copter air: gathers 250ms, ask mode ALT_HOLD, +{200ms→CRITICAL|300ms→ACTIVE}, ask NAV_LAND, +1s, in " +
				"LAND, state $1"},
		{"bytes that a line gathers survive a restart",
			"copter air: gathers 250ms, ask mode ALT_HOLD, +100ms, restart, +1s, in ALT_HOLD"},
	})
}

func TestArduPilotStops(t *testing.T) {
	const runs = "copter air: goto 2000 0 10, DO_CHANGE_SPEED 1 "
	simFlies(t, []rule{
		{"BRAKE and then GUIDED comes back under 1 m", runs +
			"10.1, +15s, ask mode BRAKE, +20ms, ask mode GUIDED, comes back north 0.8 ±0.3, past 24.6 ±3.7, " +
			"alt 10 ±0.2"},
		{"a pilot's BRAKE stays and forgets the goto", runs +
			"4, +15s, pilot BRAKE, comes back north 0 ±0.1, past 6.9 ±0.7, in BRAKE, mode GUIDED, comes back north " +
			"0 ±0.1, past 0 ±0.1"},
	})
}

func TestArduPilotObeysSticksForItsOwnSystemOnly(t *testing.T) {
	simFlight(t, simArduPilot, func(s *simulator) { s.system = 7 }, func(b *simBoard) {
		b.as(255, 191)
		for _, c := range []struct {
			target  uint8
			forward float64
		}{{1, 0}, {7, 1}} {
			b.write(&common.MessageManualControl{Target: c.target, X: 1000, Z: 500})
			time.Sleep(50 * time.Millisecond)
			b.change(func() { // under the simulator's mutex
				x, _, _, _ := b.obeyedAxes()
				b.want("the stick after a MANUAL_CONTROL", x, c.forward)
			})
		}
	})
}

func TestArduPilotReportsItsReceiver(t *testing.T) {
	const free = "stick 32767 32767 32767 32767, "
	simFlies(t, []rule{
		{"a lost receiver's channels freeze",
			"copter air receiver=idle: as 255, stick 500 200 600 -400, pilot sticks -1000 0 500 0, +1s, channels " +
				"1600 1250 1600 1300, " + free +
				"+18ms, channels 1500 2000 1500 1500, receiver lost, pilot sticks 0 0 0 0, +10s, channels 1500 2000 " +
				"1500 1500, stick 0 0 500 0, +1ms, channels 1500 1500 1500 1500"},
		{"SYS_STATUS counts a stream as a receiver",
			"copter receiver={none→000|lost→110|idle→111|hand→111}: sensor SENSOR_RC_RECEIVER $1, as 255, sticks 0 " +
				"0 0 0 for 1s, sensor SENSOR_RC_RECEIVER 111"},
		{"a QuadPlane reports a receiver that was never there",
			"quadplane receiver=none: sensor SENSOR_RC_RECEIVER 110"},
	})
}

func TestQuadPlanes(t *testing.T) {
	simFlies(t, []rule{
		{"17 is QSTABILIZE, which falls",
			"quadplane Q_GUIDED_MODE=1: air 40, DO_SET_MODE 1 17 = accepted, +2s, climb < -3"},
		{"18 is QHOVER, which drifts on, and 19 QLOITER, which stops",
			"quadplane: air 40, as 255, DO_SET_MODE 1 {18→speed > 1|19→speed < 1} = accepted, sticks 500 0 500 0 " +
				"for 4s, sticks 0 0 500 0 for 8s, $1"},
		{"it refuses a Copter's LAND and NAV_LAND",
			"quadplane Q_GUIDED_MODE=1: air 40, DO_SET_MODE 1 9 = failed, NAV_LAND = unsupported"},
		{"Q_MAV_TYPE changes its type", "quadplane Q_MAV_TYPE=20: type 20"},
		{"QLAND takes over 33 s from 10 m",
			"quadplane Q_GUIDED_MODE=1: air 10, mode QLAND, +32950ms, armed, until disarmed 4s"},
		{"from a takeoff to its landing it flies on its wing and hovers",
			"quadplane: mode GUIDED, arm = accepted, NAV_TAKEOFF 0 0 0 0 0 0 20 = accepted, +1m, vtol MC, north 0 " +
				"±0.5, east 0 ±0.5, mode GUIDED = accepted, +1m, vtol MC, north 0 ±0.5, alt 20 ±0.5, " +
				"goto 300 0 30 = accepted, +3m, away 300 75 ±5, speed 26 ±0.1, vtol FW, alt 30 ±0.5, " +
				"NAV_RETURN_TO_LAUNCH = accepted, in RTL, +3m, away 0 75 ±5, speed 26 ±0.1, vtol FW, " +
				"mode QRTL = accepted, vtol TRANSITION_TO_MC, until disarmed 240s, at 0 0 0 ±0.5, in QRTL"},
	})
}
