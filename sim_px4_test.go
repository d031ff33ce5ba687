package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func simOnPX4(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simPX4, nil, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		test(b)
	})
}

func simOnPX4InAir(t *testing.T, test func(*simBoard)) {
	t.Helper()
	simOnPX4(t, func(b *simBoard) {
		b.placeInAir(10)
		test(b)
	})
}

// What needs no sticks is in the probes of "PX4: mode changes".
func TestPX4sModesAndArming(t *testing.T) {
	simFlies(t, []rule{
		{"stick modes are there while sticks come", "px4: mode {MANUAL|ALTCTL|POSCTL|ACRO|STABILIZED|AUTO.TAKEOFF}, sticks 0 0 0 0 for 400ms, arm = accepted, air 10, sticks 0 0 500 0 for 400ms, mode $1 = accepted accepted"},
		{"AUTO.RTL does not arm", "px4: mode AUTO.RTL, sticks 0 0 0 0 for 400ms, arm = rejected, air 10, sticks 0 0 500 0 for 400ms, mode AUTO.RTL = accepted accepted"},
		{"nor is there a mission or a setpoint", "px4: mode {AUTO.MISSION|OFFBOARD}, sticks 0 0 0 0 for 400ms, arm = rejected, air 10, sticks 0 0 500 0 for 400ms, mode $1 = accepted rejected"},
		{"a throttle above the centre", "px4: mode {POSCTL|ALTCTL}, sticks 0 0 501 0 for 400ms, knock, arm = rejected, says throttle above center"},
		{"a high throttle", "px4: mode {MANUAL|STABILIZED}, sticks 0 0 500 0 for 400ms, knock, arm = rejected, says high throttle"},
		{"by force", "px4: mode AUTO.LAND, sticks 0 0 0 0 for 400ms, knock, COMPONENT_ARM_DISARM 1 21196 = rejected, says Resolve system health failures first"},
		{"it leaves a landing for position mode if it came from there", "px4 air: sticks 0 0 500 0 for 400ms, mode POSCTL, NAV_LAND, until disarmed 60s, in POSCTL, knock, +60ms, says Landing detected, says Disarmed by landing"},
	})
}

func TestPX4TakesOffToAMSL(t *testing.T) {
	const up = "NAV_TAKEOFF nan nan nan nan nan nan "
	simFlies(t, []rule{
		{"metres above home are none", "px4: knock, " + up + "10 = accepted, says Already higher than takeoff altitude"},
		{"without an altitude it is its own", "px4: knock, " + up + "nan = accepted, arm, listen 4s, says Takeoff detected, +10s, alt 2.5 ±0.1"},
		{"in the air", fmt.Sprintf("px4 air: "+up+"%g, in AUTO.TAKEOFF, until in AUTO.LOITER 60s, alt 13.24 ±0.05, climb 0.88 ±0.05, +5s, alt 14 ±0.1", simHomeAlt+14)},
		{"a pilot's Hold in the climb stays there", fmt.Sprintf("px4: "+up+"%g, arm, until alt > 8 60s, pilot AUTO.LOITER, +10s, alt 8 ±1", simHomeAlt+40)},
	})
}

func TestPX4Sticks(t *testing.T) {
	const stream = "px4 air: sticks 0 0 500 0 for 400ms, "
	simFlies(t, []rule{
		{"fly POSCTL", stream + "mode POSCTL, sticks 1000 32767 500 0 for 4s, vn 5 ±0.2, alt 10 ±0.1, sticks 0 0 500 0 for 3s, vn 0 ±0.1, sticks 0 0 1000 500 for 1s, climb > 1, heading > 20"},
		{"in ALTCTL it drifts on", stream + "mode ALTCTL, sticks 500 0 500 0 for 2s, speed > 1, sticks 0 0 500 0 for 3s, speed > 1"},
		{"are the thrust of MANUAL", stream + "mode MANUAL, sticks 0 0 700 0 for 1s, climb > 1"},
		{"land it and disarm it", stream + "mode POSCTL, sticks 0 0 0 0 for 30s, disarmed"},
		{"are lost where they come too seldom", "px4 air: sticks 0 0 500 0 for 1s, sticks 0 0 500 0 for 5s each 500ms, failing"},
		{"and not at 400 ms", "px4 air: sticks 0 0 500 0 for 1s, sticks 0 0 500 0 for 5s each 400ms, not failing"},
		{"that come back cancel nothing, a mode does", stream + "goto 100 0 10, sticks 0 0 500 0 for 4s, +450ms, mode AUTO.LOITER, knock, until failing 1s, sticks 0 0 500 0 for 4900ms, says Failsafe activated: entering Hold for 5 seconds, vn 0 ±0.1, in AUTO.LOITER, sticks 0 0 500 0 for 200ms, in AUTO.RTL, +1s, mode AUTO.LOITER, +10s, not failing, in AUTO.LOITER"},
		{"take over while they move, and 1.5 s later", stream + "mode POSCTL, sticks 1000 0 500 0 for 2s, sticks 0 0 500 0 for {40ms|1540ms}, knock, mode AUTO.LOITER, sticks 0 0 500 0 for 2s, in POSCTL, says Pilot took over using sticks"},
		{"not 2 s later", stream + "mode POSCTL, sticks 1000 0 500 0 for 2s, sticks 0 0 500 0 for 2040ms, mode AUTO.LOITER, sticks 0 0 500 0 for 2s, in AUTO.LOITER"},
		{"take over by a step of a tenth", "px4 air: sticks 0 0 500 0 for 2s, sticks {199→AUTO.LOITER|200→POSCTL} 0 500 0 for 100ms, in $1"},
		{"a transmitter that comes on takes nothing, and flies when it moves", "px4 air: mode POSCTL = accepted rejected, receiver hand, +2s, in AUTO.LOITER, pilot sticks 500 0 500 0, +100ms, in POSCTL, +4s, vn 2.5 ±0.1, pilot sticks 0 0 500 0, +3s, mode AUTO.LOITER, +3s, receiver lost, until failing 1s, in AUTO.LOITER"},
	})
}

func TestPX4sRepositionKeepsWhatItLeavesOpen(t *testing.T) {
	nan := math.NaN()
	lat, lon := simPlace(20, 5)
	const keep = math.MaxInt32
	for _, tt := range []struct {
		name             string
		x, y             int32
		z                float64
		north, east, alt float64
	}{
		{"the altitude", simE7(lat), simE7(lon), nan, 20, 5, 10},
		{"the place", keep, keep, simHomeAlt + 15, 0, 0, 15},
		{"both", keep, keep, nan, 0, 0, 10},
	} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.want(tt.name, b.exact(simGoto, 3, -1, 1, nan, tt.x, tt.y, tt.z), simResults(simAccepted))
			time.Sleep(25 * time.Second)
			b.wantPlace(tt.north, tt.east, tt.alt, 0.4)
		})
	}
}

func TestPX4RepositionOddities(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		lat, lon := simPlace(20, 0)
		b.want("COMMAND_LONG", b.long(simGoto, -1, 1, 0, math.NaN(), lat, lon, math.NaN()), simResults(simAccepted))
		time.Sleep(20 * time.Second)
		n, e, _ := b.place()
		b.near("COMMAND_LONG misses", math.Hypot(n-20, e), 1.1, 0.5)
		b.change(func() { b.fence = 50 })
		b.knock()
		b.want("outside the fence", b.fly(100, 0, 10), simResults(simAccepted))
		b.wantText("geofence")
		time.Sleep(10 * time.Second)
		b.near("not flown", b.truth().vn, 0, 0.1)
	})
}

func TestPX4sSticksTakeOverAfterASlowRamp(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(2*time.Second, sim25Hz, 700, 0, 500, 0)
		for x := int16(700); x > 0; x -= 10 {
			b.stick(sim25Hz, sim25Hz, x, 0, 500, 0)
		}
		b.want("after a slow ramp", b.truth().mode, uint32(simPX4Posctl))
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

func simShows(custom uint32) func(message.Message) bool {
	return func(m message.Message) bool {
		h, ok := m.(*common.MessageHeartbeat)
		return ok && h.CustomMode == custom
	}
}

// simAckOf matches the nth ack of a command, from 1.
func simAckOf(id common.MAV_CMD, nth int) func(message.Message) bool {
	var seen []message.Message
	return func(m message.Message) bool {
		if a, ok := m.(*common.MessageCommandAck); !ok || a.Command != id {
			return false
		}
		if !slices.Contains(seen, m) {
			seen = append(seen, m)
		}
		return slices.Index(seen, m) == nth-1
	}
}

func TestPX4ShowsAModeAWhileAfterItsLastAck(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		send        *common.MessageCommandLong
		acks        int
		to          uint32
		first, last time.Duration
	}{
		{&common.MessageCommandLong{Command: simSetMode, Param1: 1, Param2: 4, Param3: 5}, 2, simPX4RTL, 12 * ms, 18 * ms},
		{&common.MessageCommandLong{Command: common.MAV_CMD_NAV_LAND}, 1, simPX4Land, 13 * ms, 16 * ms},
	} {
		for range 8 {
			simOnPX4InAir(t, func(b *simBoard) {
				time.Sleep(time.Duration(rand.IntN(20)) * ms)
				b.forget()
				sent := time.Now()
				tt.send.TargetSystem, tt.send.TargetComponent = 1, 1
				b.write(tt.send)
				for end := time.Now().Add(45 * ms); time.Now().Before(end); time.Sleep(ms / 2) {
					b.request(0)
				}
				acked := b.await("ack", 0, simAckOf(tt.send.Command, tt.acks))
				shown := b.await("mode", 0, simShows(tt.to)).Sub(acked)
				if shown < tt.first || shown > tt.last+ms {
					t.Errorf("%v: shown %v after the last ack", tt.send.Command, shown)
				}
				if d := acked.Sub(sent); tt.acks == 2 && (d < 8*ms || d > 10*ms) {
					t.Errorf("second ack after %v", d)
				}
				for _, h := range b.heard() {
					if simShows(simPX4Loiter)(h.msg) && h.at.After(acked.Add(shown)) {
						t.Errorf("the old mode again, %v after the ack", h.at.Sub(acked))
					}
				}
			})
		}
	}
}

func TestPX4TheNewestOrderWins(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 4, Param3: 5})
		time.Sleep(5 * time.Millisecond)
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: common.MAV_CMD_NAV_LAND})
		time.Sleep(100 * time.Millisecond)
		b.want("the later command", b.truth().mode, uint32(simPX4Land))
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 4, Param3: 5})
		time.Sleep(15 * time.Millisecond)
		b.pilotMode(simPX4Loiter)
		time.Sleep(100 * time.Millisecond)
		b.want("the pilot after a command", b.truth().mode, uint32(simPX4Loiter))
	})
}

func TestPX4SticksThatMoveBeforeTheModeIsInForceTakeOver(t *testing.T) {
	const ms = time.Millisecond
	for after, mode := range map[time.Duration]uint32{0: simPX4Posctl, 10 * ms: simPX4Posctl, 15 * ms: simPX4Altctl} {
		for range 6 {
			simOnPX4InAir(t, func(b *simBoard) {
				time.Sleep(time.Duration(rand.IntN(40)) * ms)
				b.stick(400*ms, sim25Hz, 0, 0, 500, 0)
				b.forget()
				b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simSetMode, Param1: 1, Param2: 2})
				b.await("second ack", 20*ms, simAckOf(simSetMode, 2))
				time.Sleep(after)
				b.stick(200*ms, sim25Hz, 500, 0, 500, 0)
				b.want("mode after moving "+after.String()+" after the ack", b.truth().mode, mode)
			})
		}
	}
}

func TestPX4MovingSticksUndoAnOrderThirtyMillisecondsAfterItsAck(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		for range 10 {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(simPX4Posctl)
			b.stick(time.Second, sim25Hz, 1000, 0, 500, 0)
			b.forget()
			b.write(&common.MessageCommandInt{
				TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param1: -1, Param2: 1, X: math.MaxInt32, Y: math.MaxInt32, Z: simHomeAlt + 10,
			})
			acked := b.await("ack", time.Millisecond, simAckOf(simGoto, 1))
			b.until("hold", 20*time.Millisecond, func(s simState) bool { return s.mode == simPX4Loiter })
			b.until("the pilot's", time.Second, func(s simState) bool { return s.mode == simPX4Posctl })
			if d := time.Since(acked); d < 20*time.Millisecond || d > 54*time.Millisecond { // it is looked at each 20 ms
				t.Errorf("undone %v after the ack", d)
			}
			b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		}
	})
}

func TestPX4HomeIsWhereItLanded(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.placeAt(simPlace(40, 10))
		b.long(common.MAV_CMD_NAV_LAND)
		b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		h := simLast[*common.MessageHomePosition](b)
		n, e := simMetres(float64(h.Latitude)/1e7, float64(h.Longitude)/1e7)
		b.near("home", math.Hypot(n-40, e-10), 0, 0.3)
	})
}

const simPrearm = common.MAV_CMD_RUN_PREARM_CHECKS

// statusNow asks for SYS_STATUS.
func (b *simBoard) statusNow() *common.MessageSysStatus {
	b.t.Helper()
	return b.ask(1).(*common.MessageSysStatus)
}

// textTimes returns when the first chunk of each STATUSTEXT came.
func (b *simBoard) textTimes() (at []time.Time) {
	for _, h := range b.heard() {
		if m, ok := h.msg.(*common.MessageStatustext); ok && m.ChunkSeq == 0 {
			at = append(at, h.at)
		}
	}
	return at
}

func TestPX4sTextsAreForGroundStationsAndComeOneInFiftyMilliseconds(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4RTGS)
		b.want("texts before the knock", b.texts(), "")
		b.knock()
		b.want("held-back text", b.texts(), "Unsupported auto mode\t")
		b.forget()
		time.Sleep(2400 * time.Millisecond)
		b.say(common.MAV_SEVERITY_INFO, "soon enough")
		time.Sleep(200 * time.Millisecond)
		for range 12 {
			b.say(common.MAV_SEVERITY_INFO, "too late")
		}
		time.Sleep(time.Millisecond)
		b.want("texts", b.texts(), "soon enough\t")
		b.forget()
		b.knock()
		b.want("at once", len(b.textTimes()), 1)
		time.Sleep(2 * time.Second)
		at := b.textTimes()
		b.want("of twelve that were held", len(at), 10)
		for i := 1; i < len(at); i++ {
			b.near("ms between", float64(at[i].Sub(at[i-1]).Milliseconds()), 50, 1)
		}
		time.Sleep(3 * time.Second)
		b.say(common.MAV_SEVERITY_INFO, "old")
		time.Sleep(5100 * time.Millisecond)
		b.forget()
		b.knock()
		time.Sleep(time.Second)
		b.want("older than 5 s", b.texts(), "")
	})
}

func TestPX4LoneKnockMakesTwoTexts(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.knock()
		time.Sleep(11900 * time.Millisecond)
		b.knock() // within the time: nothing is lost
		b.want("texts in time", b.texts(), "")
		time.Sleep(13 * time.Second)
		b.knock()
		time.Sleep(100 * time.Millisecond)
		b.want("texts", b.texts(), "Connection to ground station lost\tGCS connection regained\t")
		b.want("armable all the same", b.long(simArm, 1), simResults(simAccepted))
	})
}

func TestPX4KnockArmsTheDataLinkFailsafe(t *testing.T) {
	dataLink := func(act float64, foreign bool, test func(b *simBoard)) {
		t.Helper()
		simFlight(t, simPX4, func(s *simulator) { s.params[simDataLink], s.foreignGCS = act, foreign }, func(b *simBoard) {
			time.Sleep(6 * time.Second)
			test(b)
		})
	}
	dataLink(2, false, func(b *simBoard) {
		b.want("arming without a ground station", b.long(simArm, 1), simResults(simRejected))
		b.knock()
		time.Sleep(11900 * time.Millisecond)
		b.want("arming 11.9 s after a knock", b.long(simArm, 1), simResults(simAccepted))
		b.long(simArm, 0)
		b.knock()
		time.Sleep(13100 * time.Millisecond)
		b.want("arming 13.1 s after a knock", b.long(simArm, 1), simResults(simRejected))
	})
	for act, mode := range map[float64]uint32{1: simPX4Loiter, 2: simPX4RTL, 3: simPX4Land} {
		dataLink(act, false, func(b *simBoard) {
			b.placeInAir(20)
			lat, lon := simPlace(500, 0)
			b.exact(simGoto, 0, 5, 1, math.NaN(), simE7(lat), simE7(lon), math.NaN())
			time.Sleep(15 * time.Second)
			b.want("never knocked", b.truth().failsafe, false)
			b.knock()
			d := b.until("failsafe", 14*time.Second, func(s simState) bool { return s.failsafe })
			if d < 12*time.Second || d > 13100*time.Millisecond {
				t.Errorf("failsafe %v after the knock", d)
			}
			b.want("mode", b.truth().mode, uint32(simPX4Loiter))
			time.Sleep(5500 * time.Millisecond)
			b.want("5 s later", b.truth().mode, mode)
			// A hold that knocks first cancels it, and arms it again.
			b.knock()
			b.setMode(simPX4Loiter)
			b.want("cancelled", b.truth().failsafe, false)
			d = b.until("failsafe again", 14*time.Second, func(s simState) bool { return s.failsafe })
			b.near("seconds until it is back", d.Seconds(), 12.5, 0.6)
		})
	}
	dataLink(2, false, func(b *simBoard) { // an arming in the same moment: the check still knew of none
		b.write(&common.MessageHeartbeat{Type: common.MAV_TYPE_GCS, Autopilot: common.MAV_AUTOPILOT_INVALID})
		time.Sleep(8 * time.Millisecond)
		b.want("arming", b.long(simArm, 1), simResults(simAccepted))
		b.want("failsafe at once", b.truth().failsafe, true)
		b.until("return", 6*time.Second, func(s simState) bool { return s.mode == simPX4RTL })
		b.until("disarm", 6*time.Second, func(s simState) bool { return !s.armed })
		b.setMode(simPX4Loiter)
		b.knock()
		time.Sleep(14 * time.Millisecond)
		b.long(simArm, 1)
		b.want("failsafe of an arming 15 ms later", b.truth().failsafe, false)
	})
	dataLink(2, true, func(b *simBoard) { // a real ground station is there
		b.want("arming", b.long(simArm, 1), simResults(simAccepted))
		b.placeInAir(20)
		b.knock()
		time.Sleep(13 * time.Second)
		b.forget()
		b.knock()
		time.Sleep(100 * time.Millisecond)
		b.want("failsafe beside a ground station", b.truth().failsafe, false)
		b.want("texts", b.texts(), "")
	})
}

func TestPX4RefusesWithoutAReasonUntilAReport(t *testing.T) {
	low := simTrouble{common.MAV_SYS_STATUS_SENSOR_BATTERY, "Preflight Fail: low battery"}
	mute := simTrouble{}
	simOnPX4(t, func(b *simBoard) {
		b.change(func() { b.trouble = []simTrouble{low, mute} })
		time.Sleep(6 * time.Second) // the report of the change is over, its text too old
		b.knock()
		for range 3 {
			b.forget()
			b.want("arm", b.long(simArm, 1), simResults(simRejected))
			time.Sleep(2100 * time.Millisecond)
			b.want("texts of an unchanged state", b.texts(), "Arming denied: Resolve system health failures first\t")
			b.knock()
		}
		b.forget()
		sent := time.Now()
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simPrearm})
		acked := b.await("ack", 20*time.Millisecond, simAckOf(simPrearm, 1)).Sub(sent)
		if acked < 4*time.Millisecond || acked > 17*time.Millisecond {
			t.Errorf("ack after %v", acked)
		}
		time.Sleep(200 * time.Millisecond)
		b.want("texts of a report", b.texts(), "Preflight Fail: low battery")
		b.want("result", b.answers(simPrearm), simResults(simAccepted))
		h := b.statusNow()
		broken := h.OnboardControlSensorsEnabled &^ h.OnboardControlSensorsHealth
		b.want("unhealthy", broken, common.MAV_SYS_STATUS_SENSOR_BATTERY|common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER)

		b.change(func() { b.trouble = nil })
		b.long(simPrearm)
		b.want("arm when it is mended", b.long(simArm, 1), simResults(simAccepted))
		b.forget()
		b.want("a report while armed", b.long(simPrearm), simResults(simAccepted))
	})
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4Posctl)
		b.knock()
		b.long(simPrearm)
		time.Sleep(500 * time.Millisecond)
		b.want("texts of missing sticks", b.texts(), "")
	})
	simOnPX4(t, func(b *simBoard) { // a report's texts wait for a knock up to 5 s
		b.change(func() { b.trouble = []simTrouble{low} })
		time.Sleep(10 * time.Second)
		b.long(simPrearm)
		time.Sleep(4500 * time.Millisecond)
		b.want("before the knock", b.texts(), "")
		b.knock()
		b.want("after it", b.texts(), "Preflight Fail: low battery")
	})
}

func TestPX4SysStatusIsAsOldAsItsReport(t *testing.T) {
	const prearm = common.MAV_SYS_STATUS_PREARM_CHECK
	ready := func(b *simBoard) bool { return b.statusNow().OnboardControlSensorsHealth&prearm != 0 }
	for range 10 {
		simOnPX4(t, func(b *simBoard) {
			time.Sleep(3 * time.Second)
			b.setMode(simPX4RTL) // a change, and a report
			b.until("report", time.Second, func(simState) bool { return !ready(b) })
			b.setMode(simPX4Loiter)
			time.Sleep(1500 * time.Millisecond)
			b.want("within 2 s of a report", ready(b), false)
			time.Sleep(600 * time.Millisecond)
			b.want("after 2 s", ready(b), true)
			b.setMode(simPX4RTL)
			b.until("report", 3*time.Second, func(simState) bool { return !ready(b) })
			b.want("state", b.ask(0).(*common.MessageHeartbeat).SystemStatus, common.MAV_STATE_UNINIT)
			b.setMode(simPX4Loiter)
			time.Sleep(200 * time.Millisecond)
			b.forget()
			sent := time.Now()
			b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simPrearm})
			for range 80 {
				b.request(1)
				time.Sleep(500 * time.Microsecond)
			}
			d := b.await("healthy", 0, func(m message.Message) bool {
				s, ok := m.(*common.MessageSysStatus)
				return ok && s.OnboardControlSensorsHealth&prearm != 0
			}).Sub(sent)
			if d < 8*time.Millisecond || d > 32500*time.Microsecond {
				t.Errorf("right %v after a 401", d)
			}
		})
	}
}

// simWithSource flies in the air, with COM_RC_IN_MODE set.
func simWithSource(t *testing.T, mode float64, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simPX4, func(s *simulator) { s.params[simStickSource] = mode }, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		b.placeInAir(10)
		test(b)
	})
}

func TestPX4ChoosesWhoseSticksCount(t *testing.T) {
	const none, ours, theirs = "nobody's", "ours", "the transmitter's"
	tests := []struct {
		mode                                           float64
		oursAlone, theirsAlone, oursFirst, theirsFirst string
	}{
		{0, none, theirs, theirs, theirs},
		{1, ours, none, ours, ours},
		{2, ours, theirs, ours, theirs},
		{3, ours, theirs, ours, theirs},
		{4, none, none, none, none},
		{5, ours, theirs, theirs, theirs},
		{6, ours, theirs, ours, ours},
		{7, ours, theirs, theirs, theirs},
		{8, ours, theirs, ours, ours},
	}
	who := func(b *simBoard) string {
		b.simulator.mu.Lock()
		defer b.simulator.mu.Unlock()
		switch x, _, _, _ := b.brain.axes(); {
		case x > 0:
			return ours
		case x < 0:
			return theirs
		}
		return none
	}
	send := func(b *simBoard) { b.stick(time.Second, sim25Hz, 300, 0, 500, 0) }
	on := func(b *simBoard) { b.setReceiver(simReceiverInHand); b.pilotSticks(-300, 0, 500, 0) }
	for _, tt := range tests {
		check := func(what, want string, do ...func(*simBoard)) {
			simWithSource(t, tt.mode, func(b *simBoard) {
				for _, f := range do {
					f(b)
				}
				if got := who(b); got != want {
					t.Errorf("COM_RC_IN_MODE %v, %s: %q, want %q", tt.mode, what, got, want)
				}
			})
		}
		second := func(*simBoard) { time.Sleep(time.Second) }
		check("ours alone", tt.oursAlone, send)
		check("theirs alone", tt.theirsAlone, on, second)
		check("ours first", tt.oursFirst, send, on, send)
		check("theirs first", tt.theirsFirst, on, second, send)
	}
	simWithSource(t, 3, func(b *simBoard) {
		send(b)
		on(b)
		time.Sleep(5 * time.Second) // ours are silent
		b.want("locked for this boot", who(b), ours)
		b.reboot(true)
		time.Sleep(time.Second)
		b.want("after a restart", who(b), theirs)
	})
	simWithSource(t, 2, func(b *simBoard) {
		send(b)
		on(b)
		time.Sleep(time.Second)
		b.want("2 falls back when ours are lost", who(b), theirs)
		send(b)
		b.want("and stays there", who(b), theirs)
	})
}

func TestPX4TellsRCChannelsOnlyWithATransmitter(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.want("interval", b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 65, 1e6), simResults(simAccepted))
		b.forget()
		b.stick(3*time.Second, sim25Hz, 0, 0, 0, 0)
		b.want("with our sticks", b.count(65), 0)
		b.want("asked for", b.long(common.MAV_CMD_REQUEST_MESSAGE, 65), simResults(simDenied))
		b.setReceiver(simReceiverIdle)
		m := simLast[*common.MessageRcChannels](b)
		b.want("throttle of an idle one", m.Chan3Raw, uint16(1000))
		b.pilotSticks(1000, -1000, 500, 0)
		m = simLast[*common.MessageRcChannels](b)
		b.want("pitch, roll and throttle", [3]uint16{m.Chan2Raw, m.Chan1Raw, m.Chan3Raw}, [3]uint16{2000, 1000, 1500})
		b.setReceiver(simReceiverLost)
		b.forget()
		time.Sleep(3 * time.Second)
		b.want("when it is lost", b.count(65), 0)
	})
}

func TestPX4AStreamOfNoThrottleMayGrabTheModeOnTheGround(t *testing.T) {
	grabbed := 0
	simFlight(t, simPX4, nil, func(b *simBoard) {
		for range 60 {
			b.reboot(false)
			time.Sleep(6 * time.Second)
			b.stick(500*time.Millisecond, sim25Hz, 0, 0, 0, 0)
			if b.truth().mode == simPX4Posctl {
				grabbed++
				time.Sleep(time.Second)
				b.want("arm after the stream", b.long(simArm, 1), simResults(simRejected))
				b.setMode(simPX4Loiter)
			}
			b.want("arm in LOITER", b.long(simArm, 1), simResults(simAccepted))
		}
		if grabbed < 25 || grabbed > 55 {
			t.Errorf("%d of 60 boots, want two in three", grabbed)
		}
		b.reboot(false)
		time.Sleep(6 * time.Second)
		b.stick(500*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.want("with the throttle centred", b.truth().mode, uint32(simPX4Loiter))
	})
}
