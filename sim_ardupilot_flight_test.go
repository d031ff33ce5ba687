package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// runUp flies north until it is this fast.
func (b *simBoard) runUp(speed float64) {
	b.t.Helper()
	b.fly(2000, 0, b.truth().alt)
	b.long(common.MAV_CMD_DO_CHANGE_SPEED, 1, speed)
	time.Sleep(15 * time.Second)
	b.near("speed", b.truth().vn, speed, 0.1)
}

// farthest returns how far north it came from here, and how far it then came back.
func (b *simBoard) farthest(d time.Duration, do func()) (most, back float64) {
	from, _, _ := b.place()
	do()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(simTick) {
		n, _, _ := b.place()
		most = max(most, n-from)
	}
	n, _, _ := b.place()
	return most, most - (n - from)
}

func TestArduPilotStopsAsMeasured(t *testing.T) {
	for _, tt := range []struct {
		speed, most, back float64 // of BRAKE and then GUIDED
		repo              float64 // that a goto to the present place comes back
	}{{3, 3.1, 0.2, 2.9}, {7.9, 15.3, 0.6, 15.1}, {10.1, 24.8, 0.8, 24.7}} {
		simOnArduInAir(t, func(b *simBoard) {
			b.runUp(tt.speed)
			_, back := b.farthest(40*time.Second, func() {
				n, _, _ := b.place()
				b.fly(n, 0, 10)
			})
			b.near("a goto to the present place comes back", back, tt.repo, 0.15*tt.repo)
			b.near("to it", b.truth().vn, 0, 0.1)
			b.runUp(tt.speed)
			most, back := b.farthest(40*time.Second, func() {
				b.askMode(simArduBrake)
				time.Sleep(20 * time.Millisecond)
				b.askMode(simArduGuided)
			})
			b.near("BRAKE and GUIDED go on", most, tt.most, 0.15*tt.most)
			b.near("and come back", back, tt.back, 0.3)
			b.near("height", b.truth().alt, 10, 0.2)
		})
	}
}

func TestArduPilotsStopOutOfAClimb(t *testing.T) {
	climbing := func(b *simBoard, then ...uint32) (on float64) {
		b.fly(0, 0, 60)
		b.until("climb", 30*time.Second, func(s simState) bool { return s.vd < -2.4 })
		before := b.truth().alt
		for _, mode := range then {
			b.setMode(mode)
		}
		time.Sleep(12 * time.Second)
		b.near("vertical speed", b.truth().vd, 0, 0.05)
		return b.truth().alt - before
	}
	simOnArduInAir(t, func(b *simBoard) {
		b.near("BRAKE goes on", climbing(b, simArduBrake), 4, 0.6)
		b.want("and stays", b.truth().mode, uint32(simArduBrake))
	})
	simOnArduInAir(t, func(b *simBoard) {
		b.near("BRAKE and GUIDED go on", climbing(b, simArduBrake, simArduGuided), 4, 0.6)
	})
}

func TestArduPilotsBrakeByAPilotStaysAndForgetsTheGoto(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.runUp(4)
		most, back := b.farthest(20*time.Second, func() { b.pilotMode(simArduBrake) })
		b.near("BRAKE alone, as captured", most, 6.9, 0.7)
		b.near("comes back", back, 0, 0.1)
		b.want("mode", b.truth().mode, uint32(simArduBrake))
		most, _ = b.farthest(20*time.Second, func() { b.setMode(simArduGuided) })
		b.near("GUIDED resumes no goto", most, 0, 0.1)
	})
	simOnArdu(t, func(b *simBoard) {
		b.setMode(simArduGuided)
		b.long(simArm, 1)
		b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 10)
		time.Sleep(time.Second)
		b.pilotMode(simArduBrake)
		d := b.until("disarmed", 20*time.Second, func(s simState) bool { return !s.armed })
		b.near("seconds on the ground", d.Seconds(), 9, 0.3)
		b.wantPlace(0, 0, 0, 0)
	})
}

func TestArduPilotsGuidedInGuidedFliesOn(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.fly(60, 0, 10)
		time.Sleep(3 * time.Second)
		b.want("GUIDED", b.setMode(simArduGuided), simResults(simAccepted))
		time.Sleep(25 * time.Second)
		b.wantPlace(60, 0, 10, 0.5)
	})
}

func TestArduPilotsPauseIsATrap(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.want("pause", b.long(common.MAV_CMD_DO_PAUSE_CONTINUE, 0), simResults(simAccepted))
		b.want("goto", b.fly(60, 0, 10), simResults(simAccepted))
		time.Sleep(20 * time.Second)
		b.wantPlace(0, 0, 10, 0.2)
	})
}

func TestArduPilotsSpeedIsLostBeforeAGotoAndStaysAfterOne(t *testing.T) {
	const change = common.MAV_CMD_DO_CHANGE_SPEED
	fast := func(b *simBoard, what string, north, want float64) {
		b.t.Helper()
		b.fly(north, 0, 10)
		time.Sleep(12 * time.Second)
		b.near(what, b.truth().vn, want, 0.1)
	}
	simOnArduInAir(t, func(b *simBoard) {
		b.want("speed before", b.long(change, 1, 2), simResults(simAccepted))
		fast(b, "it is lost", 3000, 10)
		b.want("speed after", b.long(change, 1, 2), simResults(simAccepted))
		time.Sleep(10 * time.Second)
		b.near("it is flown", b.truth().vn, 2, 0.1)
		fast(b, "the next goto", 3100, 2)
		b.want("speed on the way", b.long(change, 1, 4), simResults(simAccepted))
		fast(b, "the one after it", 3200, 4)
		for _, v := range []float64{-2, -1, 0} {
			b.want(fmt.Sprint("speed ", v), b.long(change, 1, v), simResults(simFailed))
		}
		b.setMode(simArduGuided)
		fast(b, "GUIDED in GUIDED changes nothing", 3300, 4)
		b.long(change, 1, b.params["WPNAV_SPEED"]/100)
		time.Sleep(8 * time.Second)
		b.near("WPNAV_SPEED restores the default", b.truth().vn, 10, 0.1)
		b.long(change, 1, 3)
		b.setMode(simArduBrake)
		b.want("speed outside GUIDED", b.long(change, 1, 2), simResults(simFailed))
		b.setMode(simArduGuided)
		fast(b, "and so does GUIDED entered anew", 3400, 10)
	})
}

func TestArduPilotLooksAheadAndYawIsACommandOfItsOwn(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.fly(0, 400, 10)
		time.Sleep(5 * time.Second)
		b.near("it looks ahead", b.truth().heading, 90, 2)
		b.want("yaw", b.long(common.MAV_CMD_CONDITION_YAW, 180), simResults(simAccepted))
		time.Sleep(5 * time.Second)
		b.near("heading", b.truth().heading, 180, 2)
		b.fly(400, 400, 10)
		time.Sleep(8 * time.Second)
		if h := b.truth().heading; h > 90 && h < 270 {
			t.Errorf("the next goto keeps the yaw: %.0f", h)
		}
		b.setMode(simArduLand)
		b.want("yaw outside GUIDED", b.long(common.MAV_CMD_CONDITION_YAW, 90), simResults(simFailed))
	})
}

func TestArduPilotLandStaysLand(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		lat, lon := simPlace(25, 0)
		b.want("land", b.long(common.MAV_CMD_NAV_LAND, 0, 0, 0, 0, lat, lon), simResults(simAccepted))
		b.until("ground", time.Minute, func(s simState) bool { return s.landed == common.MAV_LANDED_STATE_ON_GROUND })
		b.want("it is not believed at once", b.long(simArm, 0), simResults(simFailed))
		b.want("landed_state", b.says(245).(*common.MessageExtendedSysState).LandedState, common.MAV_LANDED_STATE_LANDING)
		d := b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds to disarm", d.Seconds(), 2, 0.3)
		time.Sleep(5 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduLand))
		b.wantPlace(0, 0, 0, 0.3)
	})
	simOnArduInAir(t, func(b *simBoard) {
		b.setMode(simArduLand)
		d := b.until("disarm", time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds from 10 m", d.Seconds(), 23, 1)
	})
}

func TestArduPilotRTLStaysRTL(t *testing.T) {
	simOnArduInAir(t, func(b *simBoard) {
		b.placeAt(simPlace(30, 0))
		b.want("RTL", b.setMode(simArduRTL), simResults(simAccepted))
		b.until("climbs first", 10*time.Second, func(s simState) bool { return s.alt > 14 })
		n, _, _ := b.place()
		b.near("north while it climbs", n, 30, 0.3)
		b.until("disarm", 2*time.Minute, func(s simState) bool { return !s.armed })
		b.wantPlace(0, 0, 0, 0.5)
		time.Sleep(5 * time.Second)
		b.want("mode", b.truth().mode, uint32(simArduRTL))
	})
}

func TestArduPilotTakesNothingForHeightBeforeItHasAPlace(t *testing.T) {
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		time.Sleep(25 * time.Second)
		b.want("STABILIZE armed", b.long(simArm, 1), simResults(simAccepted))
		b.want("goto", b.fly(10, 0, 10), simResults(simFailed))
		b.wantText("requires position")
	})
}

func TestArduPilotTakesOffOnceItsPropellersTurn(t *testing.T) {
	simOnArdu(t, func(b *simBoard) {
		b.setMode(simArduGuided)
		b.long(simArm, 1)
		b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 10)
		b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_STANDBY)
		d := b.until("lift", 10*time.Second, func(s simState) bool { return s.alt > 0 })
		b.near("seconds from arming", d.Seconds()+2.6, 3.3, 0.2)
		b.want("state", simLast[*common.MessageHeartbeat](b).SystemStatus, common.MAV_STATE_ACTIVE)
		b.want("landed_state", b.says(245).(*common.MessageExtendedSysState).LandedState, common.MAV_LANDED_STATE_TAKEOFF)
		time.Sleep(10 * time.Second)
		b.wantPlace(0, 0, 10, 0.15)
	})
}
