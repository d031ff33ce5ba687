package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

const simPrearm = common.MAV_CMD_RUN_PREARM_CHECKS

// statusNow asks for SYS_STATUS.
func (b *simBoard) statusNow() *common.MessageSysStatus {
	b.t.Helper()
	return b.ask(1).(*common.MessageSysStatus)
}

// textTimes returns when the first chunk of each STATUSTEXT came.
func (b *simBoard) textTimes() (at []time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.got {
		if m, ok := h.msg.(*common.MessageStatustext); ok && m.ChunkSeq == 0 {
			at = append(at, h.at)
		}
	}
	return at
}

func TestPX4TextsComeOneInFiftyMilliseconds(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		for range 12 {
			b.say(common.MAV_SEVERITY_INFO, "text")
		}
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
	simFlight(t, simPX4, func(s *simulator) { s.foreignGCS = true }, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		b.knock()
		time.Sleep(13 * time.Second)
		b.knock()
		time.Sleep(100 * time.Millisecond)
		b.want("texts beside a ground station", b.texts(), "")
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
			b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_CRITICAL)
			time.Sleep(3 * time.Second)
			b.want("5 s later", b.truth().mode, mode)
			// A hold that knocks first cancels it, and arms it again.
			b.knock()
			b.setMode(simPX4Loiter)
			b.want("cancelled", b.truth().failsafe, false)
			d = b.until("failsafe again", 14*time.Second, func(s simState) bool { return s.failsafe })
			b.near("seconds until it is back", d.Seconds(), 12.5, 0.6)
		})
	}
	dataLink(2, false, func(b *simBoard) { // the knock of a takeoff
		nan := math.NaN()
		b.write(&common.MessageHeartbeat{Type: common.MAV_TYPE_GCS, Autopilot: common.MAV_AUTOPILOT_INVALID})
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simTakeoff, Param5: float32(nan), Param6: float32(nan), Param7: simHomeAlt + 10})
		time.Sleep(8 * time.Millisecond)
		b.write(&common.MessageCommandLong{TargetSystem: 1, TargetComponent: 1, Command: simArm, Param1: 1})
		b.want("arming", b.answers(simArm), simResults(simAccepted))
		b.want("failsafe at once", b.truth().failsafe, true)
		time.Sleep(200 * time.Millisecond)
		b.wantText("Failsafe activated")
		b.until("return", 6*time.Second, func(s simState) bool { return s.mode == simPX4RTL })
		b.until("disarm", 6*time.Second, func(s simState) bool { return !s.armed })
		b.wantPlace(0, 0, 0, 0)
	})
	dataLink(2, false, func(b *simBoard) {
		b.knock()
		time.Sleep(15 * time.Millisecond)
		b.long(simArm, 1)
		b.want("failsafe of an arming 15 ms later", b.truth().failsafe, false)
	})
	dataLink(2, true, func(b *simBoard) { // a real ground station is there
		b.want("arming", b.long(simArm, 1), simResults(simAccepted))
		b.placeInAir(20)
		b.knock()
		time.Sleep(20 * time.Second)
		b.want("failsafe beside a ground station", b.truth().failsafe, false)
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
			time.Sleep(300 * time.Millisecond)
			b.want("state, too", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_UNINIT)

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

func TestPX4SysStatusBits(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		bits := func() [3]uint32 {
			m := b.statusNow()
			return [3]uint32{uint32(m.OnboardControlSensorsPresent), uint32(m.OnboardControlSensorsEnabled), uint32(m.OnboardControlSensorsHealth)}
		}
		b.want("before the first report", bits(), [3]uint32{0, 0, 0x0321c83f})
		time.Sleep(2100 * time.Millisecond)
		b.want("no position", bits(), [3]uint32{0x0300400f, 0x0301400f, 0x0320883f})
		time.Sleep(4 * time.Second)
		b.want("armable, no RC", bits(), [3]uint32{0x0300402f, 0x0301402f, 0x1320c83f})
		b.want("arm without RC", b.long(simArm, 1), simResults(simAccepted))
		b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("sticks of anybody", bits(), [3]uint32{0x0301402f, 0x0301402f, 0x1321c83f})
		b.change(func() { b.params[simDataLink] = 2 })
		time.Sleep(10 * time.Second)
		b.want("no ground station", bits(), [3]uint32{0x0301402f, 0x0301402f, 0x0320c83f})
		b.reboot(false)
		b.want("after a restart", bits(), [3]uint32{0, 0, 0x0321c83f})
	})
}

func TestPX4AReportWithoutTexts(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.setMode(simPX4Posctl)
		b.knock()
		b.long(simPrearm)
		time.Sleep(500 * time.Millisecond)
		b.want("no sticks", b.texts(), "")
	})
	simFlight(t, simPX4, func(s *simulator) { s.armableAfter = time.Hour }, func(b *simBoard) {
		time.Sleep(5 * time.Second)
		b.knock()
		b.want("arm", b.long(simArm, 1), simResults(simRejected))
		b.long(simPrearm)
		time.Sleep(500 * time.Millisecond)
		b.want("no position", strings.Contains(b.texts(), "Preflight"), false)
		h := b.statusNow()
		if broken := h.OnboardControlSensorsEnabled &^ h.OnboardControlSensorsHealth; broken&common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL == 0 {
			t.Errorf("unhealthy: %08x", uint32(broken))
		}
	})
}
