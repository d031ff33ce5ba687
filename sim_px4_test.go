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
func TestPX4sStickModesAreThereWhileSticksCome(t *testing.T) {
	for _, tt := range []struct {
		mode      uint32
		arms, air common.MAV_RESULT
	}{
		{simPX4Manual, simAccepted, simAccepted}, {simPX4Altctl, simAccepted, simAccepted}, {simPX4Posctl, simAccepted, simAccepted},
		{simPX4Acro, simAccepted, simAccepted}, {simPX4Stabilized, simAccepted, simAccepted}, {simPX4Takeoff, simAccepted, simAccepted},
		{simPX4RTL, simRejected, simAccepted}, {simPX4Mission, simRejected, simRejected}, {simPX4Offboard, simRejected, simRejected},
	} {
		simOnPX4(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 0, 0)
			b.want(fmt.Sprintf("arming in mode %#x", tt.mode), b.long(simArm, 1), simResults(tt.arms))
			b.placeInAir(10)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.want(fmt.Sprintf("mode %#x in the air", tt.mode), b.setMode(tt.mode), simResults(simAccepted, tt.air))
		})
	}
}

func TestPX4SaysWhyItDoesNotArm(t *testing.T) {
	for _, tt := range []struct {
		mode  uint32
		z     int16
		force float64
		text  string
	}{
		{simPX4Posctl, 501, 0, "throttle above center"},
		{simPX4Altctl, 501, 0, "throttle above center"},
		{simPX4Manual, 500, 0, "high throttle"},
		{simPX4Stabilized, 500, 0, "high throttle"},
		{simPX4Land, 0, 21196, "Resolve system health failures first"},
	} {
		simOnPX4(t, func(b *simBoard) {
			b.setMode(tt.mode)
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, tt.z, 0)
			b.knock()
			b.want(tt.text, b.long(simArm, 1, tt.force), simResults(simRejected))
			b.wantText(tt.text)
		})
	}
}

func TestPX4TakesOffToAMSL(t *testing.T) {
	nan := math.NaN()
	simOnPX4(t, func(b *simBoard) {
		b.knock()
		b.want("metres above home", b.long(simTakeoff, nan, nan, nan, nan, nan, nan, 10), simResults(simAccepted))
		b.wantText("Already higher than takeoff altitude")
		b.want("no altitude", b.long(simTakeoff, nan, nan, nan, nan, nan, nan, nan), simResults(simAccepted))
		b.long(simArm, 1)
		b.listenIn(4 * time.Second)
		b.wantText("Takeoff detected")
		time.Sleep(10 * time.Second)
		b.near("its own altitude", b.truth().alt, 2.5, 0.1)
		b.exact(simTakeoff, 6, 0, 0, nan, math.MaxInt32, math.MaxInt32, simHomeAlt+14)
		b.want("mode in the air", b.truth().mode, uint32(simPX4Takeoff))
		b.until("climb", time.Minute, func(s simState) bool { return s.mode == simPX4Loiter })
		b.near("below its end", 14-b.truth().alt, 0.76, 0.05)
		b.near("still climbs", -b.truth().vd, 0.88, 0.05)
		time.Sleep(5 * time.Second)
		b.near("reaches it in AUTO.LOITER", b.truth().alt, 14, 0.1)
	})
	simOnPX4(t, func(b *simBoard) {
		b.long(simTakeoff, nan, nan, nan, nan, nan, nan, simHomeAlt+40)
		b.long(simArm, 1)
		b.until("8 m", time.Minute, func(s simState) bool { return s.alt > 8 })
		b.pilotMode(simPX4Loiter)
		time.Sleep(10 * time.Second)
		b.near("a pilot's Hold in the climb stays there", b.truth().alt, 8, 1)
	})
}

func TestPX4LeavesLandForPositionModeIfItCameFromThere(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simPX4Posctl)
		b.long(common.MAV_CMD_NAV_LAND)
		b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.want("mode", b.truth().mode, uint32(simPX4Posctl))
		b.knock()
		time.Sleep(60 * time.Millisecond)
		b.wantText("Landing detected\tDisarmed by landing\t")
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

func TestPX4SticksFly(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.setMode(simPX4Posctl)
		b.stick(4*time.Second, sim25Hz, 1000, 32767, 500, 0)
		b.near("POSCTL forward", b.truth().vn, 5, 0.2)
		b.near("500 holds", b.truth().alt, 10, 0.1)
		b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		b.near("POSCTL centred", b.truth().vn, 0, 0.1)
		b.stick(time.Second, sim25Hz, 0, 0, 1000, 500)
		if s := b.truth(); s.vd > -1 || s.heading < 20 {
			t.Errorf("climbs %.1f m/s, turned to %.0f°", -s.vd, s.heading)
		}
		b.setMode(simPX4Altctl)
		b.stick(2*time.Second, sim25Hz, 500, 0, 500, 0)
		speed := math.Hypot(b.truth().vn, b.truth().ve)
		b.stick(3*time.Second, sim25Hz, 0, 0, 500, 0)
		b.near("ALTCTL drifts on", math.Hypot(b.truth().vn, b.truth().ve), speed, 0.1)
		b.setMode(simPX4Manual)
		b.stick(time.Second, sim25Hz, 0, 0, 700, 0)
		if s := b.truth(); s.vd > -1 {
			t.Errorf("MANUAL thrust climbs %.1f m/s", -s.vd)
		}
		b.setMode(simPX4Posctl)
		b.stick(30*time.Second, sim25Hz, 0, 0, 0, 0)
		b.want("lands and disarms by sticks", b.truth().armed, false)
	})
}

func TestPX4LosesSlowOrSilentSticks(t *testing.T) {
	for every, lost := range map[time.Duration]bool{400 * time.Millisecond: false, 500 * time.Millisecond: true} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
			b.stick(5*time.Second, every, 0, 0, 500, 0)
			b.want("lost at "+every.String(), b.truth().failsafe, lost)
		})
	}
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.fly(100, 0, 10)
		b.stick(4*time.Second, sim25Hz, 0, 0, 500, 0)
		time.Sleep(450 * time.Millisecond)
		b.setMode(simPX4Loiter) // between the last stick and its failsafe: no pardon
		b.knock()
		b.until("failsafe", time.Second, func(s simState) bool { return s.failsafe })
		b.stick(4900*time.Millisecond, sim25Hz, 0, 0, 500, 0) // coming back cancels nothing
		b.wantText("Failsafe activated: entering Hold for 5 seconds\t")
		b.near("brakes", b.truth().vn, 0, 0.1)
		b.want("still in hold", b.truth().mode, uint32(simPX4Loiter))
		b.stick(200*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.want("then returns", b.truth().mode, uint32(simPX4RTL))
		time.Sleep(time.Second) // these sticks are forgotten
		b.setMode(simPX4Loiter)
		time.Sleep(10 * time.Second)
		b.want("DO_SET_MODE cancels", b.truth().failsafe, false)
		b.want("mode stays", b.truth().mode, uint32(simPX4Loiter))
	})
}

func TestPX4sSticksTakeOverWhileTheyMove(t *testing.T) {
	for quiet, taken := range map[time.Duration]bool{0: true, 1500 * time.Millisecond: true, 2 * time.Second: false} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(400*time.Millisecond, sim25Hz, 0, 0, 500, 0)
			b.setMode(simPX4Posctl)
			b.stick(2*time.Second, sim25Hz, 1000, 0, 500, 0)
			b.stick(sim25Hz+quiet, sim25Hz, 0, 0, 500, 0)
			b.knock()
			b.setMode(simPX4Loiter)
			b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
			b.want(quiet.String()+" after they moved", b.truth().mode == simPX4Posctl, taken)
			if taken {
				b.wantText("Pilot took over using sticks\t")
			}
		})
	}
	for x, taken := range map[int16]bool{199: false, 200: true} {
		simOnPX4InAir(t, func(b *simBoard) {
			b.stick(2*time.Second, sim25Hz, 0, 0, 500, 0)
			b.stick(100*time.Millisecond, sim25Hz, x, 0, 500, 0)
			b.want("a step", b.truth().mode == simPX4Posctl, taken)
		})
	}
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

func TestPX4TransmitterFliesAndTakesOver(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.want("POSCTL without any sticks", b.setMode(simPX4Posctl), simResults(simAccepted, simRejected))
		b.setReceiver(simReceiverInHand)
		time.Sleep(2 * time.Second)
		b.want("a transmitter that comes on takes nothing", b.truth().mode, uint32(simPX4Loiter))
		b.pilotSticks(500, 0, 500, 0)
		time.Sleep(100 * time.Millisecond)
		b.want("a move", b.truth().mode, uint32(simPX4Posctl))
		time.Sleep(4 * time.Second)
		b.near("its sticks fly", b.truth().vn, 2.5, 0.1)
		b.pilotSticks(0, 0, 500, 0)
		time.Sleep(3 * time.Second)
		b.setMode(simPX4Loiter)
		time.Sleep(3 * time.Second)
		b.setReceiver(simReceiverLost)
		b.until("failsafe", time.Second, func(s simState) bool { return s.failsafe })
		b.want("hold", b.truth().mode, uint32(simPX4Loiter))
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
