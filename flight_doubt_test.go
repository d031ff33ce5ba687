package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Whole flights in which somebody would fall because mavrest did not know better:
// a stick mode that may be in force, what the line brings late, what does not come
// any more.

func TestAStickModeThatWasNeverAnsweredKeepsItsStream(t *testing.T) {
	for _, silence := range []time.Duration{2600 * time.Millisecond, 4 * time.Second} {
		t.Run(silence.String(), func(t *testing.T) {
			arduFly(t, simReceiverIdle, func(f *ardu) {
				f.hover()
				f.sim.change(func() {
					f.sim.onMode = func(uint32) {
						f.sim.muted = true
						f.sim.after(silence, func() { f.sim.muted = false })
					}
				})
				f.refused("/mode", `{"mode":"position"}`, 504, "no_ack")
				time.Sleep(4 * time.Second)
				f.wantMode("position")
				time.Sleep(6 * time.Second)
				if s := f.sim.truth(); s.alt < 18 || !f.streams() {
					t.Errorf("%.1f m up, mode %d, streams %v", s.alt, s.mode, f.streams())
				}
			})
		})
	}
}

func TestAStickModeThatARefusedGotoSupersededKeepsItsStream(t *testing.T) {
	for _, mode := range []string{"manual", "altitude", "position"} {
		t.Run(mode, func(t *testing.T) {
			arduFly(t, simReceiverIdle, func(f *ardu) {
				f.hover()
				f.slowly(200 * time.Millisecond)
				defer f.fails(common.MAV_CMD_DO_REPOSITION)()
				p, in := &pilotFlight{flight: f.flight}, make(chan struct{})
				f.sim.change(func() { f.sim.onMode = func(uint32) { close(in); f.sim.onMode = nil } })
				p.post("/mode", `{"mode":"`+mode+`"}`)
				<-in
				f.refused("/goto", "{"+at(50, 0)+"}", 409, "refused")
				p.answered(10 * time.Second)
				time.Sleep(time.Second)
				f.wantMode(mode)
				time.Sleep(10 * time.Second)
				if s := f.sim.truth(); s.alt < 15 {
					t.Errorf("%.1f m up, mode %d", s.alt, s.mode)
				}
			})
		})
	}
}

// A stick mode that was not obeyed: the stream that was kept for it ends.
func TestAStickModeThatWasNotObeyedGivesTheSticksBack(t *testing.T) {
	arduFly(t, simReceiverIdle, func(f *ardu) {
		f.hover()
		f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true })
		f.loseAcks(common.MAV_CMD_DO_SET_MODE)
		f.refused("/mode", `{"mode":"position"}`, 504, "no_ack")
		time.Sleep(8 * time.Second)
		if f.streams() {
			t.Errorf("streams %v", f.stream(time.Now().Add(-time.Second)))
		}
	})
}

func TestOurOwnSticksThatALineBringsLateAreNotTheReceivers(t *testing.T) {
	for _, delay := range []time.Duration{0, 60 * time.Millisecond, 150 * time.Millisecond} {
		for phase := time.Duration(0); phase < 250*time.Millisecond; phase += 50 * time.Millisecond {
			t.Run(fmt.Sprint(delay, phase), func(t *testing.T) {
				arduFly(t, simReceiverInHand, func(f *ardu) {
					f.hover()
					f.accepted("/mode", `{"mode":"position"}`)
					f.slowly(delay)
					f.accepted("/input", `{"throttle":0.2,"timeout":3}`)
					time.Sleep(time.Second + phase)
					f.sim.pilotSticks(0, 300, 500, 0)
					f.sim.pilotMode(2)
					time.Sleep(3 * time.Second)
					if f.streams() {
						t.Errorf("our stream stands over the pilot's hand; %v", f.status()["messages"])
					}
				})
			})
		}
	}
}

func TestAReceiverInHandGetsItsSticksBackHoweverOftenTheyWereLent(t *testing.T) {
	arduFly(t, simReceiverInHand, func(f *ardu) {
		f.hover()
		f.accepted("/mode", `{"mode":"position"}`)
		time.Sleep(3 * time.Second)
		for range 20 {
			f.accepted("/input", `{"throttle":0.3,"timeout":0.3}`)
			time.Sleep(420 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		if f.streams() {
			t.Errorf("streams %v over the pilot's hand; by %v", f.stream(time.Now().Add(-time.Second)), f.status()["input"])
		}
	})
}

func TestTheFarewellKnowsAStickModeThatIsJustEntered(t *testing.T) {
	for _, mode := range []string{"manual", "altitude", "position"} {
		for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
			t.Run(fmt.Sprint(mode, delay), func(t *testing.T) {
				arduFly(t, simReceiverIdle, func(f *ardu) {
					f.hover()
					f.slowly(delay)
					in := make(chan struct{})
					f.sim.change(func() { f.sim.onMode = func(uint32) { close(in); f.sim.onMode = nil } })
					p := &pilotFlight{flight: f.flight}
					p.post("/mode", `{"mode":"`+mode+`"}`)
					<-in
					time.Sleep(delay * 3 / 10)
					f.stop()
					time.Sleep(6 * time.Second)
					if s := f.sim.truth(); s.alt < 18 {
						t.Errorf("%.1f m up, mode %d", s.alt, s.mode)
					}
				})
			})
		}
	}
}

func TestTheFarewellLandsWhereAHoldIsRefused(t *testing.T) {
	arduFly(t, simReceiverIdle, func(f *ardu) {
		f.hover()
		f.accepted("/mode", `{"mode":"manual"}`)
		f.accepted("/input", `{"throttle":0.45,"timeout":5}`)
		time.Sleep(time.Second)
		defer f.fails(common.MAV_CMD_DO_SET_MODE)() // as without a position
		f.stop()
		time.Sleep(3 * time.Second)
		if s := f.sim.truth(); s.vd > 3 || s.mode != entered[copter][ModeLand] {
			t.Errorf("it falls at %.1f m/s, %.1f m up, mode %d", s.vd, s.alt, s.mode)
		}
	})
}

func TestALandedStateThatComesNoMoreIsUnknown(t *testing.T) {
	both(t, func(f *flight) {
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/mode", `{"arm":true}`)
		f.sim.change(func() { f.sim.stream(245, -1) }) // another program ends it
		for range 15 {
			f.accepted("/input", `{"throttle":1}`)
			time.Sleep(200 * time.Millisecond)
		}
		if o := f.status(); o["landed_state"] != nil || o["in_air"] != nil {
			t.Errorf("landed_state %v, in_air %v", o["landed_state"], o["in_air"])
		}
		top := f.sim.truth().alt
		time.Sleep(4 * time.Second)
		if s := f.sim.truth(); s.alt < top-1 {
			t.Errorf("%.1f m up, was %.1f; streamed %v", s.alt, top, f.stream(time.Now().Add(-time.Second)))
		}
		f.until("it is asked for again", 20*time.Second, func() bool { return f.status()["landed_state"] == "in_air" })
	})
}

func TestCopterThatRestartsInTheAirIsNotDropped(t *testing.T) {
	for _, r := range []simReceiver{simReceiverIdle, simReceiverNone} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			arduFly(t, r, func(f *ardu) {
				f.hover()
				f.accepted("/mode", `{"mode":"position"}`)
				time.Sleep(2 * time.Second)
				f.sim.reboot(true)
				time.Sleep(20 * time.Second)
				if s := f.sim.truth(); s.alt < 18 || s.failsafe {
					t.Errorf("%.1f m up, mode %d, failsafe %v", s.alt, s.mode, s.failsafe)
				}
			})
		})
	}
}

func TestPX4IsNotArmedOnAStreamThatEnds(t *testing.T) {
	for _, c := range []struct{ delay, after time.Duration }{
		{0, 5000 * time.Millisecond}, {200 * time.Millisecond, 4600 * time.Millisecond}, {200 * time.Millisecond, 4800 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				f.slowly(c.delay)
				f.accepted("/mode", `{"mode":"position"}`)
				f.accepted("/mode", `{"mode":"hold"}`)
				time.Sleep(time.Until(f.link.sticks.client.Add(c.after)))
				f.accepted("/mode", `{"arm":true}`)
				time.Sleep(1200 * time.Millisecond)
				if f.sim.truth().failsafe {
					t.Errorf("a failsafe; streamed last %v", f.stream(time.Now().Add(-2*time.Second)))
				}
			})
		})
	}
}

func TestAPilotsModeOnTheGroundShows(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.accepted("/mode", `{"mode":"position"}`)
		time.Sleep(time.Second)
		f.sim.pilotMode(0)
		time.Sleep(1500 * time.Millisecond)
		f.wantTruth()
		f.wantNoInput()
		time.Sleep(20 * time.Second)
		f.wantTruth()
	})
}
