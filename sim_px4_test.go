package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// What needs no sticks, and what can't be armed or entered at all, is covered by the probes of "PX4: mode changes".
func TestPX4sModesAndArming(t *testing.T) {
	simFlies(t, []rule{
		{"modes that can be armed and entered while sticks come",
			"px4: mode {MANUAL|ALTCTL|POSCTL|ACRO|STABILIZED|AUTO.TAKEOFF}, sticks 0 0 0 0 for 400ms, arm = " +
				"accepted, air 10, sticks 0 0 500 0 for 400ms, mode $1 = accepted accepted"},
		{"POSCTL and ALTCTL do not arm with the throttle above the centre",
			"px4: mode {POSCTL|ALTCTL}, sticks 0 0 501 0 for 400ms, gcs beat, arm = rejected, says throttle above " +
				"center"},
		{"MANUAL and STABILIZED do not arm with the throttle in the centre",
			"px4: mode {MANUAL|STABILIZED}, sticks 0 0 500 0 for 400ms, gcs beat, arm = rejected, says high throttle"},
		{"a forced arming is refused too",
			"px4: mode AUTO.LAND, sticks 0 0 0 0 for 400ms, gcs beat, COMPONENT_ARM_DISARM 1 21196 = rejected, says " +
				"Resolve system health failures first"},
		{"a landing that began in POSCTL ends in POSCTL",
			"px4 air: sticks 0 0 500 0 for 400ms, mode POSCTL, NAV_LAND, until disarmed 60s, in POSCTL, gcs beat, " +
				"+60ms, says Landing detected, says Disarmed by landing"},
	})
}

func TestPX4TakesOffToAMSL(t *testing.T) {
	const up = "NAV_TAKEOFF nan nan nan nan nan nan "
	simFlies(t, []rule{
		{"a takeoff's altitude is not read as metres above home", "px4: gcs beat, " + up +
			"10 = accepted, says Already higher than takeoff altitude"},
		{"a takeoff without an altitude climbs to the default height", "px4: gcs beat, " + up +
			"nan = accepted, arm, gcs beats 4s, says Takeoff detected, +10s, alt 2.5 ±0.1"},
		{"a takeoff in the air climbs to its height",
			fmt.Sprintf("px4 air: "+up+"%g, in AUTO.TAKEOFF, until in AUTO.LOITER 60s, alt 13.24 ±0.05, climb 0.88 "+
				"±0.05, +5s, alt 14 ±0.1", simHomeAlt+14)},
		{"a pilot's Hold ends the climb", fmt.Sprintf("px4: "+
			up+"%g, arm, until alt > 8 60s, pilot AUTO.LOITER, +10s, alt 8 ±1", simHomeAlt+40)},
	})
}

func TestPX4Sticks(t *testing.T) {
	const stream = "px4 air: sticks 0 0 500 0 for 400ms, "
	simFlies(t, []rule{
		{"sticks fly the vehicle in POSCTL", stream +
			"mode POSCTL, sticks 1000 32767 500 0 for 4s, vn 5 ±0.2, alt 10 ±0.1, sticks 0 0 500 0 for 3s, vn 0 " +
			"±0.1, sticks 0 0 1000 500 for 1s, climb > 1, heading > 20"},
		{"with centred sticks it drifts on in ALTCTL", stream +
			"mode ALTCTL, sticks 500 0 500 0 for 2s, speed > 1, sticks 0 0 500 0 for 3s, speed > 1"},
		{"the throttle is thrust in MANUAL", stream + "mode MANUAL, sticks 0 0 700 0 for 1s, climb > 1"},
		{"a low throttle lands the vehicle, which then disarms", stream +
			"mode POSCTL, sticks 0 0 0 0 for 30s, disarmed"},
		{"sticks at 2 Hz count as lost",
			"px4 air: sticks 0 0 500 0 for 1s, sticks 0 0 500 0 for 5s each 500ms, failing"},
		{"sticks at 2.5 Hz do not count as lost",
			"px4 air: sticks 0 0 500 0 for 1s, sticks 0 0 500 0 for 5s each 400ms, not failing"},
		{"sticks that come back do not end the failsafe, a mode does", stream +
			"goto 100 0 10, sticks 0 0 500 0 for 4s, +450ms, mode AUTO.LOITER, gcs beat, until failing 1s, sticks 0 " +
			"0 500 0 for 4900ms, says Failsafe activated: entering Hold for 5 seconds, vn 0 ±0.1, in AUTO.LOITER, " +
			"sticks 0 0 500 0 for 200ms, in AUTO.RTL, +1s, mode AUTO.LOITER, +10s, not failing, in AUTO.LOITER"},
		{"sticks undo a mode while they move, and 1.5 s later", stream +
			"mode POSCTL, sticks 1000 0 500 0 for 2s, sticks 0 0 500 0 for {40ms|1540ms}, gcs beat, mode " +
			"AUTO.LOITER, sticks 0 0 500 0 for 2s, in POSCTL, says Pilot took over using sticks"},
		{"sticks that moved 2 s ago undo nothing", stream +
			"mode POSCTL, sticks 1000 0 500 0 for 2s, sticks 0 0 500 0 for 2040ms, mode AUTO.LOITER, sticks 0 0 500 " +
			"0 for 2s, in AUTO.LOITER"},
		{"a step of 200 undoes a mode, a step of 199 does not",
			"px4 air: sticks 0 0 500 0 for 2s, sticks {199→AUTO.LOITER|200→POSCTL} 0 500 0 for 100ms, in $1"},
		{"a transmitter that comes on undoes nothing until its sticks move",
			"px4 air: mode POSCTL = accepted rejected, receiver hand, +2s, in AUTO.LOITER, pilot sticks 500 0 500 " +
				"0, +100ms, in POSCTL, +4s, vn 2.5 ±0.1, pilot sticks 0 0 500 0, +3s, mode AUTO.LOITER, +3s, " +
				"receiver " +
				"lost, until failing 1s, in AUTO.LOITER"},
	})
}

func TestPX4Repositions(t *testing.T) {
	lat, lon := simPlace(20, 0)
	simFlies(t, []rule{
		{"a goto keeps the place or the height that it leaves open",
			"px4 air: goto {20 5 nan→20 5 10|keep keep 15→0 0 15|keep keep nan→0 0 10} = accepted, +25s, at $1 ±0.4"},
		{"a COMMAND_LONG misses the place by a metre",
			fmt.Sprintf("px4 air: DO_REPOSITION -1 1 0 nan %.7f %.7f nan = accepted, +20s, at 20 0 10 ±1.6, not at "+
				"20 0 10 ±0.4", lat, lon)},
		{"a goto outside the fence is accepted, but not flown",
			"px4 air fence=50: gcs beat, goto 100 0 10 = accepted, says geofence, +10s, vn 0 ±0.1"},
		{"Hold stops where the vehicle can stop",
			"px4: air 10, pushed 3, pilot POSCTL, pilot AUTO.LOITER, +20s, north 2.57 ±0.5, air 10, pushed 8, pilot " +
				"POSCTL, pilot AUTO.LOITER, +20s, north 18.29 ±0.5"},
		{"the vehicle comes back from a pause as measured",
			"px4 air: pushed {1.7→0.35 ±0.3|6.8→3.75 ±0.63|9.8→7.5 ±1.25}, DO_REPOSITION -1 1 0 nan nan nan nan, " +
				"comes back north $1, alt 10 ±0.2"},
		{"home is the place of the last landing", "px4 air: placed 40 10, NAV_LAND, until disarmed 60s, home 40 10"},
		{"the newest command wins", "px4 air: ask mode AUTO.RTL, +5ms, ask NAV_LAND, +100ms, in AUTO.LAND, ask mode " +
			"AUTO.RTL, +15ms, pilot AUTO.LOITER, +100ms, in AUTO.LOITER"},
		{"a heartbeat shows a mode some ms after its last ack",
			"px4 air: +{0s..19ms/3ms}, ask {mode AUTO.RTL, acked 2, shown AUTO.RTL 12ms 19ms|NAV_LAND, acked 1, " +
				"shown AUTO.LAND 13ms 17ms}"},
	})
}

func TestPX4sSticksTakeOver(t *testing.T) {
	ramp := "px4 air: sticks 700 0 500 0 for 2s"
	for x := 700; x > 0; x -= 10 {
		ramp += fmt.Sprintf(", stick %d 0 500 0, +40ms", x)
	}
	const stream = "sticks 0 0 500 0 for 400ms, "
	undone := "px4 air: " + strings.Repeat(stream+"mode POSCTL, sticks 1000 0 500 0 for 1s, ask goto keep keep 10, "+
		"acked 1, +26ms, in AUTO.LOITER, +6ms, in POSCTL, sticks 0 0 500 0 for 3s, ", 10)
	simFlies(t, []rule{
		{"sticks that ramped down slowly undo a mode", ramp + ", in POSCTL"},
		{"sticks that move before a mode is in force undo it", "px4 air: +{0s..35ms/7ms}, " + stream +
			"ask mode ALTCTL, acked 2, +{0s→POSCTL|10ms→POSCTL|15ms→ALTCTL}, sticks 500 0 500 0 for 200ms, in $2"},
		{"sticks that moved undo a goto 30 ms after its ack", strings.TrimSuffix(undone, ", ")},
	})
}

func TestPX4HomeMayStep(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.homeSteps = true }, func(b *simBoard) {
		seen := map[int32]bool{}
		for range 10 {
			p := simLast[*common.MessageGlobalPositionInt](b)
			seen[p.RelativeAlt] = true
			b.want("AMSL", p.Alt, int32(488300))
		}
		if len(seen) < 4 {
			t.Errorf("relative_alt takes %d values", len(seen))
		}
	})
}

func TestPX4sTextsAndReports(t *testing.T) {
	late := strings.Repeat("queues too late, ", 12)
	const low = "trouble BATTERY Preflight Fail: low battery, " // testdata/README.md explains "trouble"
	flat := strings.Repeat("arm = rejected, +2050ms, texts Arming denied: Resolve system health failures first, gcs "+
		"beat, ", 3)
	simFlies(t, []rule{
		{"PX4 sends texts while a ground station's heartbeats come",
			"px4: mode AUTO.RTGS, quiet, gcs beat, texts Unsupported auto mode, mark, +2400ms, queues soon enough, " +
				"+200ms, texts soon enough, " +
				"+3s, queues old, +5100ms, mark, gcs beat, +1s, quiet"},
		{"ten texts wait, and one is sent each 50 ms", "px4: gcs beat, +2600ms, " + late +
			"mark, gcs beat, count 253 1, +398ms, count 253 8, +50ms, count 253 9, +2s, count 253 10"},
		{"a single heartbeat of a ground station brings two texts",
			"px4: gcs beat, +11900ms, gcs beat, quiet, +13s, gcs beat, +100ms, texts Connection to ground station " +
				"lost; GCS connection regained, arm = accepted"},
		{"a refusal brings no reasons while the state is unchanged", "px4: " + low + "trouble 0, +6s, gcs beat, " +
			flat + "RUN_PREARM_CHECKS = accepted, +150ms, texts Preflight Fail: low battery, " +
			"sensor SENSOR_BATTERY 110, sensor SENSOR_RC_RECEIVER 010, trouble none, RUN_PREARM_CHECKS, arm = " +
			"accepted, RUN_PREARM_CHECKS = accepted"},
		{"missing sticks bring no text", "px4: mode POSCTL, gcs beat, RUN_PREARM_CHECKS, +450ms, quiet"},
		{"a report's texts wait for a ground station's heartbeat", "px4: " + low +
			"+10s, RUN_PREARM_CHECKS, +4450ms, quiet, gcs beat, texts Preflight Fail: low battery"},
		{"SYS_STATUS shows the last report",
			"px4: +3s, mode AUTO.RTL, until not sensor PREARM_CHECK 001 1s, mode AUTO.LOITER, +1450ms, not sensor " +
				"PREARM_CHECK 001, +600ms, sensor PREARM_CHECK 001, " +
				"mode AUTO.RTL, until not sensor PREARM_CHECK 001 3s, mode AUTO.LOITER, +150ms, ask " +
				"RUN_PREARM_CHECKS, " +
				"not sensor PREARM_CHECK 001, +23ms, sensor PREARM_CHECK 001, mode AUTO.RTL, +1s, state UNINIT"},
	})
}

func TestPX4sReturn(t *testing.T) {
	simFlies(t, []rule{
		{"never sinks to RTL_RETURN_ALT",
			"px4 air RTL_RETURN_ALT=25.5: goto 40 0 30, +25s, mode AUTO.RTL, +10s, alt 30 ±0.7"},
		{"nearer than 10 m climbs to its distance, at least to 4 m",
			"px4 air RTL_RETURN_ALT=25.5: goto {9 0 4→8.3|3 0 2→3.3}, +25s, mode AUTO.RTL, until alt > $1 " +
				"6s, not alt > 9.5"},
	})
}

func TestPX4sDataLinkFailsafe(t *testing.T) {
	const again = "+11850ms, not failing, until failing 1300ms"
	simFlies(t, []rule{
		{"a failsafe follows 12 s after a ground station's last heartbeat",
			"px4 NAV_DLL_ACT={1→AUTO.LOITER|2→AUTO.RTL|3→AUTO.LAND}: air 20, goto 500 0 20, +15s, not failing, gcs " +
				"beat, " + again + ", in AUTO.LOITER, +5500ms, in $1, gcs beat, mode AUTO.LOITER, not failing, " +
				again},
		{"PX4 arms only while it hears a ground station",
			"px4 NAV_DLL_ACT=2: arm = rejected, gcs beat, +11900ms, arm = accepted, disarm, gcs beat, +13100ms, arm " +
				"= rejected"},
		{"an arming within 10 ms of a ground station's first heartbeat is a failsafe",
			"px4 NAV_DLL_ACT=2: gcs beat, {+14ms|+7ms, arm = accepted, failing, until in AUTO.RTL 6s, until " +
				"disarmed 6s, mode AUTO.LOITER, gcs beat, +7ms}, arm = accepted, not failing"},
		{"a ground station on another link is never lost",
			"px4 NAV_DLL_ACT=2 station=yes: arm = accepted, air 20, gcs beat, +13s, mark, gcs beat, +100ms, not " +
				"failing, quiet"},
	})
}

func TestPX4ChoosesWhoseSticksCount(t *testing.T) {
	const ours, theirs = "sticks 300 0 500 0 for 1s, ", "receiver hand, pilot sticks -300 0 500 0, "
	simFlies(t, []rule{
		{"only our sticks come", "px4 air COM_RC_IN_MODE={0→nobody|1→ours|2→ours|3→ours|4→nobody|" +
			"5→ours|6→ours|7→ours|8→ours}: " + ours + "flown by $1"},
		{"only the transmitter's sticks come",
			"px4 air COM_RC_IN_MODE={0→theirs|1→nobody|2→theirs|3→theirs|4→nobody|" +
				"5→theirs|6→theirs|7→theirs|8→theirs}: " + theirs + "+1s, flown by $1"},
		{"our sticks come first", "px4 air COM_RC_IN_MODE={0→theirs|1→ours|2→ours|3→ours|4→nobody|" +
			"5→theirs|6→ours|7→theirs|8→ours}: " + ours + theirs + ours + "flown by $1"},
		{"the transmitter's sticks come first",
			"px4 air COM_RC_IN_MODE={0→theirs|1→ours|2→theirs|3→theirs|4→nobody|5→theirs|6→ours|7→theirs|8→ours}: " +
				theirs + "+1s, " + ours + "flown by $1"},
		{"with 3 the first source stays until a restart", "px4 air COM_RC_IN_MODE=3: " + ours + theirs +
			"+5s, flown by ours, restart, +1s, flown by theirs"},
		{"with 2 the source changes when our sticks are lost, and then stays", "px4 air COM_RC_IN_MODE=2: " + ours +
			theirs + "+1s, flown by theirs, " + ours + "flown by theirs"},
		{"the transmitter's mode switch does nothing while our sticks are the source",
			"px4 air COM_RC_IN_MODE={1→AUTO.LOITER|3→AUTO.LOITER|5→AUTO.RTL|6→AUTO.LOITER}: sticks 0 0 500 0 for " +
				"1s, receiver hand, sticks 0 0 500 0 for 4s, " +
				"pilot switch 1100 AUTO.RTL, sticks 0 0 500 0 for 1s, in $1"},
		{"RC_CHANNELS come only with a transmitter",
			"px4: SET_MESSAGE_INTERVAL 65 1000000 = accepted, mark, sticks 0 0 0 0 for 3s, count 65 0, " +
				"REQUEST_MESSAGE 65 = denied, " +
				"receiver idle, channels 1500 1500 1000 1500, pilot sticks 1000 -1000 500 0, channels 1000 2000 1500 " +
				"1500, +2s, not count 65 0, receiver lost, mark, +3s, count 65 0"},
	})
}

func TestPX4AStreamOfNoThrottleMayGrabTheModeOnTheGround(t *testing.T) {
	simBoots(t, 60, 25, 55, func(b *simBoard) (grabbed bool) {
		time.Sleep(6 * time.Second)
		b.stick(500*time.Millisecond, sim25Hz, 0, 0, 0, 0)
		if grabbed = b.truth().mode == simPX4Posctl; grabbed {
			time.Sleep(time.Second)
			b.want("arm after the stream", b.tryArming(), simRejected)
			b.exchange(simSetMode, b.modeMessage(simPX4Loiter))
		}
		b.want("arm in LOITER", b.tryArming(), simAccepted)
		return grabbed
	})
	simBoots(t, 6, 0, 0, func(b *simBoard) bool {
		time.Sleep(6 * time.Second)
		b.stick(500*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		return b.truth().mode != simPX4Loiter
	})
}

func TestPX4MayShowPrearmHealthyBeforeItsFirstReport(t *testing.T) {
	simBoots(t, 210, 30, 90, func(b *simBoard) bool {
		time.Sleep(1500 * time.Millisecond)
		m := b.fetch(1).(*common.MessageSysStatus)
		healthy := m.OnboardControlSensorsHealth&common.MAV_SYS_STATUS_PREARM_CHECK != 0
		if healthy {
			b.want("arm", b.tryArming(), simRejected)
		}
		return healthy
	})
}
