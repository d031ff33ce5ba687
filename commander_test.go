package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// Whole flights with several commands at once, on lines on which the answer to one
// comes after the next has begun.

// On the ground, refused or not answered (rule 7).
func TestWhatAPlanThatFailedArmedIsDisarmed(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse bool
		armed  bool // by somebody else, before
		state  common.MAV_LANDED_STATE
		sends  string // param1 of each
		code   errorCode
	}{
		{"refused", true, false, common.MAV_LANDED_STATE_ON_GROUND, "1 0", codeRefused},
		{"not answered", false, false, common.MAV_LANDED_STATE_ON_GROUND, "1 1 1 1 1 1 1 0 0 0 0 0 0 0", codeNoAck},
		{"in the air it stays", true, false, common.MAV_LANDED_STATE_IN_AIR, "1", codeRefused},
		{"what a pilot armed stays", true, true, common.MAV_LANDED_STATE_ON_GROUND, "1", codeRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, px4Beat())
				b.settle()
				b.shows(px4Custom(4, 3), c.armed)
				b.say(b.beat)
				landed := time.NewTicker(500 * time.Millisecond)
				defer landed.Stop()
				b.say(&common.MessageExtendedSysState{LandedState: c.state})
				time.Sleep(time.Millisecond)
				b.follow(func(id uint16, _ int) {
					if id == uint16(common.MAV_CMD_COMPONENT_ARM_DISARM) && c.refuse {
						b.ack(time.Millisecond, id, common.MAV_RESULT_DENIED)
					}
				})
				began, o := time.Now(), b.command(armIt)
				var out benchOutcome
				for waits := true; waits; {
					select {
					case out = <-o:
						waits = false
					case <-landed.C:
						b.say(&common.MessageExtendedSysState{LandedState: c.state})
					}
				}
				lineEqual(t, "code", out.code(), c.code)
				sends := ""
				for _, m := range b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM) {
					if m.at.Before(began) {
						continue
					}
					sends += fmt.Sprint(" ", m.msg.(*common.MessageCommandLong).Param1)
				}
				lineEqual(t, "sends", strings.TrimSpace(sends), c.sends)
			})
		})
	}
}

// slowly makes the line one of a telemetry radio, and lets the program learn it.
func (f *flight) slowly(oneWay time.Duration) {
	f.sim.change(func() { f.sim.delay = oneWay })
	time.Sleep(4 * time.Second)
}

func TestAnArmingThatWaitsDoesNotTakeTheNewestCommandsPlace(t *testing.T) {
	for _, c := range []struct {
		path, body string
		wait       time.Duration
	}{
		{"/land", "", 650}, {"/land", "", 800}, {"/land", "", 1000}, {"/land", "", 1300},
		{"/mode", `{"mode":"altitude"}`, 1000},
	} {
		t.Run(c.path+c.wait.String(), func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				f.aloft()
				f.accepted("/mode", `{"mode":"position"}`)
				time.Sleep(time.Second)
				f.slowly(300 * time.Millisecond)
				f.failAcks(common.MAV_CMD_CONDITION_YAW)
				older, arming := &pilotFlight{flight: f}, &pilotFlight{flight: f}
				older.post("/goto", "{"+at(60, 0)+`,"heading":90}`)
				time.Sleep(c.wait * time.Millisecond)
				arming.post("/mode", `{"arm":true}`)
				time.Sleep(20 * time.Millisecond)
				f.accepted(c.path, c.body)
				f.wantTruth()
				older.answered(5 * time.Second)
				arming.answered(5 * time.Second)
				f.wantTruth()
			})
		})
	}
}

func TestAHoldEndsAGotoThatIsNotAnsweredYet(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.slowly(150 * time.Millisecond)
		p := &pilotFlight{flight: f}
		p.post("/goto", "{"+at(200, 0)+"}")
		f.until("the goto is sent", 5*time.Second, func() bool {
			return len(f.commandsSince(time.Now().Add(-30*time.Millisecond))) > 0 && f.sim.truth().mode == entered[f.firmware][ModeHold]
		})
		f.accepted("/mode", `{"mode":"hold","wait":60}`)
		p.answered(time.Second)
		time.Sleep(20 * time.Second)
		f.wantMode("hold")
		f.wantAt(0, 0, 10, 12)
	})
}

func TestWhatARefusedCommandsPredecessorDidShows(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.slowly(150 * time.Millisecond)
		time.Sleep(2 * time.Second)
		p := &pilotFlight{flight: f}
		p.post("/goto", "{"+at(200, 0)+"}")
		f.until("the goto is sent", 5*time.Second, func() bool { return len(f.commandsSince(time.Now().Add(-100*time.Millisecond))) > 0 })
		f.refused("/mode", `{"arm":false}`, 409, "refused")
		p.answered(time.Second)
		time.Sleep(1200 * time.Millisecond)
		f.wantTruth()
		f.wantNoInput()
	})
}

func TestAStepThatWasAcceptedEndsTheManoeuvreBeforeItAlsoWhereTheNextOneIsRefused(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		goes := &pilotFlight{flight: f}
		goes.post("/goto", "{"+at(200, 0)+`,"wait":60}`)
		time.Sleep(5 * time.Second)
		f.acks(common.MAV_CMD_DO_SET_MODE, func(a *common.MessageCommandAck) []simAnswer { // BRAKE is accepted, GUIDED is not
			f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true
			return []simAnswer{{ack: a}}
		})
		f.refused("/mode", `{"mode":"hold"}`, 409, "refused")
		goes.wantAnswer(time.Millisecond, "superseded")
		if s := f.status(); s["mode"] != "hold" || s["done"] != nil {
			f.Errorf("mode %v, done %v", s["mode"], s["done"])
		}
	})
}

func TestAnotherClientsDisarmingEndsATakeoffsWait(t *testing.T) {
	both(t, func(f *flight) {
		climb := &pilotFlight{flight: f}
		climb.post("/takeoff", `{"altitude":40,"wait":60}`)
		f.until("it is armed", 10*time.Second, func() bool { return f.sim.truth().armed })
		time.Sleep(300 * time.Millisecond)
		f.accepted("/mode", `{"arm":false}`)
		climb.wantAnswer(2*time.Second, "interrupted")
	})
}

// A disarmed vehicle may leave these modes without a takeover (rule 3). It is not
// armed in the mode that it went to.
func TestAnArmingIsNotSentInAnotherModeThanTheOneThatWasSetForIt(t *testing.T) {
	for _, c := range []struct {
		name    string
		mode    Mode
		to      uint32
		streams bool
	}{
		{"return", ModeRTL, px4Custom(1, 0), false},
		{"hold, and our sticks took it to POSCTL", ModeHold, px4Custom(3, 0), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, px4Beat(), func(b *lineBench) {
					b.beat = beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(1, 0), false)
				})
				b.settle()
				if c.streams {
					b.drone.mu.Lock()
					b.drone.sticks.phase, b.drone.sticks.client = stickNobody, time.Now()
					b.drone.mu.Unlock()
				}
				b.follow(func(id uint16, try int) {
					b.ack(0, id, ackAccepted)
					time.AfterFunc(5*time.Millisecond, func() { // between two requests of a report
						b.shows(entered[px4][c.mode], false)
						b.say(b.beat)
						b.shows(c.to, false)
					})
				})
				r := request{setMode: true, mode: c.mode, arm: &yes}
				o := <-b.command(r)
				lineEqual(t, "code", o.code(), codeInterrupted)
				lineEqual(t, "armings", len(b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)), 0)
			})
		})
	}
}

func TestATakeoverInTheLastStepEndsTheWait(t *testing.T) {
	for _, c := range []struct {
		path, body string
		last       common.MAV_CMD
		pilots     uint32
	}{
		{"/goto", "{" + at(60, 0) + `,"heading":90,"wait":60}`, common.MAV_CMD_CONDITION_YAW, 5},
		{"/mode", `{"mode":"rtl","arm":true,"wait":60}`, common.MAV_CMD_COMPONENT_ARM_DISARM, 5},
		{"/goto", "{" + at(60, 0) + `,"heading":90}`, common.MAV_CMD_CONDITION_YAW, 5}, // nor is it accepted
		{"/mode", `{"mode":"rtl","arm":true}`, common.MAV_CMD_COMPONENT_ARM_DISARM, 5},
	} {
		t.Run(c.path, func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				f.aloft()
				f.slowly(150 * time.Millisecond)
				f.acks(c.last, func(a *common.MessageCommandAck) []simAnswer {
					f.sim.after(0, func() { f.sim.enter(c.pilots); f.sim.send(f.sim.brain.message(0)) })
					return []simAnswer{{ack: a, after: 100 * time.Millisecond}}
				})
				p := &pilotFlight{flight: f}
				p.post(c.path, c.body)
				p.wantAnswer(5*time.Second, "interrupted")
			})
		})
	}
}

func TestASecondLegIsNotSentOverAFailsafeThatWasFirst(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/land", "{"+at(40, 0)+"}")
		time.Sleep(5 * time.Second)
		d := f.link
		f.sim.change(func() { f.sim.muted = true })
		d.mu.Lock()
		since, m := time.Now(), d.cmd.manoeuvre
		d.wg.Go(func() { d.landThere(m) }) // as watch does
		// The reader has the mutex before that goroutine.
		d.take(&minimal.MessageHeartbeat{
			Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_PX4,
			BaseMode: 0xd9, CustomMode: px4Custom(4, 3), SystemStatus: minimal.MAV_STATE_CRITICAL,
		}, since)
		d.mu.Unlock()
		time.Sleep(2 * time.Second)
		f.wantHandsOff(since)
	})
}

func TestPX4TakeoffIsAnsweredWhenItShows(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(10, 0)+"}") // ends in the mode that a takeoff ends in
		time.Sleep(10 * time.Second)
		f.accepted("/takeoff", `{"altitude":40}`)
		if _, o := f.call("GET", "/mode", ""); o["vehicle_mode"] != "AUTO.TAKEOFF" {
			t.Errorf("answered 200, and vehicle_mode is %v", o["vehicle_mode"])
		}
	})
}

func TestPX4TakeoffOfAVehicleThatHasJustDisarmedItselfIsNoSuccess(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.accepted("/mode", `{"mode":"hold"}`)
		f.accepted("/mode", `{"arm":true}`)
		f.until("it disarms by itself", 20*time.Second, f.disarmed)
		f.refused("/takeoff", "", 409, "interrupted")
		f.accepted("/takeoff", `{"wait":60}`)
	})
}

func TestAGotosSpeedIsItsAloneAlsoWhereNobodyAnsweredIt(t *testing.T) {
	speedSent := func(f *flight) func() bool {
		return func() bool {
			for _, r := range f.sim.received() {
				if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_CHANGE_SPEED && m.Param2 == 2 {
					return true
				}
			}
			return false
		}
	}
	for name, slow := range map[string]func(f *flight){
		"its ack is lost": func(f *flight) {
			f.loseAcks(common.MAV_CMD_DO_CHANGE_SPEED)
			f.refused("/goto", "{"+at(100, 0)+`,"speed":2}`, 504, "no_ack")
			f.sim.change(func() { f.sim.onAck = nil })
			time.Sleep(5 * time.Second)
			f.accepted("/goto", "{"+at(200, 0)+"}")
		},
		"it is superseded": func(f *flight) {
			f.slowly(300 * time.Millisecond)
			p := &pilotFlight{flight: f}
			p.post("/goto", "{"+at(100, 0)+`,"speed":2}`)
			f.until("the speed is sent", 5*time.Second, speedSent(f))
			f.accepted("/goto", "{"+at(200, 0)+"}")
			p.answered(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				f.aloft()
				f.accepted("/goto", "{"+at(10, 0)+"}")
				time.Sleep(10 * time.Second)
				slow(f)
				time.Sleep(10 * time.Second)
				if v := f.speed(); v < 3 {
					t.Errorf("the next goto flies %.1f m/s", v)
				}
			})
		})
	}
}

func TestADisarmingIsAnsweredByItsOwnAckBesideATakeoffThatIsTakenBack(t *testing.T) {
	for _, wait := range []time.Duration{70, 80, 90, 100, 120} {
		t.Run(wait.String(), func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				f.sim.change(func() { f.sim.delay = 20 * time.Millisecond })
				time.Sleep(3 * time.Second)
				p := &pilotFlight{flight: f}
				p.post("/takeoff", "")
				time.Sleep(wait * time.Millisecond)
				lose := 1
				f.acks(common.MAV_CMD_COMPONENT_ARM_DISARM, func(a *common.MessageCommandAck) []simAnswer {
					if lose--; lose >= 0 {
						return nil
					}
					return []simAnswer{{ack: a}}
				})
				f.accepted("/mode", `{"arm":false}`)
				p.answered(5 * time.Second)
			})
		})
	}
}

// In the air nothing of an accepted goto is taken back: the answer tells what it does
// without the step that was refused.
func TestARefusedSpeedOrHeadingLeavesTheGotoFlying(t *testing.T) {
	for name, c := range map[string]struct {
		refused common.MAV_CMD
		before  string // a command whose manoeuvre the goto ends
		body    string
		says    string
	}{
		"speed":                      {common.MAV_CMD_DO_CHANGE_SPEED, "/goto", `,"speed":3`, "it flies there at its own speed: the speed was refused"},
		"heading":                    {common.MAV_CMD_CONDITION_YAW, "/goto", `,"heading":200`, "it flies there with a heading of its own: the heading was refused"},
		"heading, after a landing":   {common.MAV_CMD_CONDITION_YAW, "/land", `,"heading":200`, "the heading was refused"},
		"speed beside a turn":        {common.MAV_CMD_DO_CHANGE_SPEED, "/goto", `,"speed":3,"heading":200`, "the speed was refused"},
		"heading beside a new speed": {common.MAV_CMD_CONDITION_YAW, "/goto", `,"speed":3,"heading":200`, "the heading was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				f.aloft()
				p := &pilotFlight{flight: f}
				p.post(c.before, "{"+at(40, 0)+`,"wait":60}`)
				time.Sleep(2 * time.Second)
				end := f.fails(c.refused)
				o := f.refused("/goto", "{"+at(0, 60)+c.body+"}", 409, "refused")
				end()
				if !strings.Contains(fmt.Sprint(o["error"]), c.says) {
					t.Errorf("the answer does not say %q: %v", c.says, o)
				}
				p.wantAnswer(time.Second, "superseded")
				f.wantMode("hold")
				time.Sleep(time.Minute)
				f.wantMode("hold")
				f.wantAt(0, 60, 10, 2)
				if done := f.status()["done"]; done != true {
					t.Errorf("done is %v there", done)
				}
			})
		})
	}
}

func TestAPilotInTheModeThatWasJustRefusedToAClientHasTheDrone(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		for _, near := range []float64{26, 26.5, 27, 27.25, 27.5} {
			t.Run(fmt.Sprint(flavour, near), func(t *testing.T) {
				fly(t, flavour, nil, func(f *flight) {
					f.aloft()
					p := &pilotFlight{flight: f}
					p.post("/land", "{"+at(30, 0)+`,"wait":100}`)
					f.until("it is near", time.Minute, func() bool {
						n, _ := simMetres(f.sim.truth().lat, f.sim.truth().lon)
						return n > near
					})
					end := f.fails(common.MAV_CMD_DO_SET_MODE)
					f.refused("/mode", `{"mode":"position"}`, 409, "refused")
					end()
					if flavour == simArduPilot {
						f.sim.setReceiver(simReceiverInHand)
					}
					his := entered[f.firmware][ModePosition]
					f.sim.pilotMode(his)
					taken := f.reported(his, time.Now(), 1100*time.Millisecond)
					time.Sleep(2 * time.Millisecond)
					f.wantTruth()
					time.Sleep(12 * time.Second)
					f.wantHandsOff(taken)
					f.wantTruth()
				})
			})
		}
	}
}

func TestNothingIsExcusedAfterAPilotTookTheDroneFromAnArmingThatWaits(t *testing.T) {
	for wait := 850 * time.Millisecond; wait <= time.Second; wait += 50 * time.Millisecond {
		t.Run(wait.String(), func(t *testing.T) {
			arduFly(t, simReceiverInHand, func(f *ardu) {
				f.hover()
				f.accepted("/mode", `{"mode":"position"}`)
				time.Sleep(time.Second)
				f.slowly(300 * time.Millisecond)
				f.failAcks(common.MAV_CMD_CONDITION_YAW)
				older, arming := &pilotFlight{flight: f.flight}, &pilotFlight{flight: f.flight}
				older.post("/goto", "{"+at(60, 0)+`,"heading":90}`)
				time.Sleep(wait)
				arming.post("/mode", `{"arm":true}`)
				time.Sleep(30 * time.Millisecond)
				f.sim.pilotMode(6)
				time.Sleep(2200 * time.Millisecond)
				older.answered(5 * time.Second)
				arming.answered(5 * time.Second)
				f.link.mu.Lock()
				defer f.link.mu.Unlock()
				if late := f.link.machine.sent; late != nil {
					t.Errorf("late %v after a pilot's switch", late)
				}
			})
		})
	}
}

func TestAGotoThatIsRefusedInAFailsafeSaysWhatStands(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(60, 0)+"}")
		time.Sleep(12 * time.Second)
		f.sim.failsafeReturn()
		time.Sleep(3 * time.Second)
		f.fails(common.MAV_CMD_DO_REPOSITION)
		o := f.refused("/goto", "{"+at(30, 30)+"}", 409, "refused")
		says(t, o, "; the failsafe's AUTO.RTL was ended; the vehicle is in AUTO.LOITER, armed")
		time.Sleep(3 * time.Second)
		if s := f.sim.truth(); s.mode != simPX4Loiter {
			t.Errorf("it is in %#x: %v", s.mode, f.commands())
		}
	})
}

// Whole flights in which somebody would fall because mavrest did not know better:
// a stick mode that may be in force, what the line brings late, what does not come
// any more.

// entering posts a mode and returns when the vehicle enters it.
func (f *flight) entering(mode string) *pilotFlight {
	p, in := &pilotFlight{flight: f}, make(chan struct{})
	f.sim.change(func() { f.sim.onMode = func(uint32) { close(in); f.sim.onMode = nil } })
	p.post("/mode", `{"mode":"`+mode+`"}`)
	<-in
	return p
}

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
				p := f.entering(mode)
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
					f.slowly(delay)
					f.accepted("/mode", `{"mode":"position"}`)
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
					f.entering(mode)
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
		f.sim.change(func() { f.sim.refusesModes = []uint32{4, copterBrake} })
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
	for flavour, modes := range map[simFlavour][]uint32{simArduPilot: {0, 2}, simPX4: {simPX4Manual, simPX4Altctl, simPX4Stabilized}} {
		for _, custom := range modes {
			t.Run(fmt.Sprint(flavour, custom), func(t *testing.T) {
				fly(t, flavour, nil, func(f *flight) {
					f.accepted("/mode", `{"mode":"position"}`)
					time.Sleep(time.Second)
					f.sim.pilotMode(custom)
					time.Sleep(1500 * time.Millisecond)
					f.wantTruth()
					f.wantNoInput()
					time.Sleep(20 * time.Second)
					f.wantTruth()
				})
			})
		}
	}
}

func TestAStickModeAfterOneThatFailedHasItsStream(t *testing.T) {
	for _, mode := range []string{"manual", "altitude"} {
		t.Run("refused, "+mode, func(t *testing.T) {
			arduFly(t, simReceiverIdle, func(f *ardu) {
				f.hover()
				end := f.fails(common.MAV_CMD_DO_SET_MODE)
				f.refused("/mode", `{"mode":"position"}`, 409, "refused")
				end()
				f.accepted("/mode", `{"mode":"`+mode+`"}`)
				time.Sleep(3 * time.Second)
				if s := f.sim.truth(); s.alt < 17 {
					t.Errorf("%.1f m up, mode %d, streams %v", s.alt, s.mode, f.streams())
				}
			})
		})
	}
	for after := 4400 * time.Millisecond; after <= 5*time.Second; after += 100 * time.Millisecond {
		t.Run("unanswered, "+after.String(), func(t *testing.T) {
			arduFly(t, simReceiverIdle, func(f *ardu) {
				f.hover()
				f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true })
				f.loseAcks(common.MAV_CMD_DO_SET_MODE)
				f.refused("/mode", `{"mode":"position"}`, 504, "no_ack")
				f.sim.change(func() {
					f.sim.onAck, f.sim.delay = nil, 200*time.Millisecond
					f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = false
				})
				time.Sleep(after)
				f.accepted("/mode", `{"mode":"manual"}`)
				time.Sleep(3 * time.Second)
				if s := f.sim.truth(); s.alt < 17 {
					t.Errorf("%.1f m up, mode %d, streams %v", s.alt, s.mode, f.streams())
				}
			})
		})
	}
}

// anew starts mavrest beside a vehicle that flies already.
func (f *flight) anew(then func()) {
	dev := device{name: "sim", lossy: true, open: func(context.Context) (port, error) { return f.sim.open() }}
	d := newDrone(dev, 0, false)
	f.link, f.handler = d, newHandler(d, admission{})
	ctx, end := context.WithCancel(f.Context())
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx) })
	then()
	end()
	running.Wait()
}

func TestAReceiverInHandIsHeardBeforeOurFirstStick(t *testing.T) {
	for wait := time.Duration(0); wait < 500*time.Millisecond; wait += 20 * time.Millisecond {
		t.Run("copter "+wait.String(), func(t *testing.T) {
			arduFly(t, simReceiverInHand, func(f *ardu) {
				f.hover()
				f.stop()
				time.Sleep(5*time.Second + wait)
				f.anew(func() {
					time.Sleep(2 * time.Second)
					f.accepted("/mode", `{"mode":"position"}`)
					time.Sleep(time.Second)
					if f.streams() {
						t.Errorf("our stream over the pilot's hand: input %v", f.status()["input"])
					}
				})
			})
		})
	}
	for wait := time.Duration(0); wait < time.Second; wait += 100 * time.Millisecond {
		t.Run("px4 "+wait.String(), func(t *testing.T) {
			fly(t, simPX4, func(s *simulator) { s.receiver = simReceiverInHand }, func(f *flight) {
				f.sim.reboot(false)
				time.Sleep(3*time.Second + wait)
				f.call("POST", "/mode", `{"mode":"position"}`)
				f.refused("/input", `{"pitch":1}`, 409, "wrong_mode")
			})
		})
	}
}

// Sticks before the transmitter was heard would make us believe that they count.
func TestPX4InputWaitsUntilItIsKnownWhoseSticksCount(t *testing.T) {
	inHand := func(s *simulator) { s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0} }
	fly(t, simPX4, inHand, func(f *flight) {
		f.sim.reboot(false)
		time.Sleep(1500 * time.Millisecond)
		f.refused("/input", `{"throttle":0}`, 409, "wrong_mode")
		time.Sleep(20 * time.Second)
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		since := time.Now()
		f.refused("/input", `{"pitch":0.5,"timeout":2}`, 409, "wrong_mode")
		f.sim.pilotSticks(0, 300, 500, 0)
		time.Sleep(10 * time.Second)
		f.wantHandsOff(since)
	})
}

func TestAPilotGetsHisSticksAfterARestartInTheAir(t *testing.T) {
	for _, r := range []simReceiver{simReceiverInHand, simReceiverIdle} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			arduFly(t, r, func(f *ardu) {
				f.hover()
				f.accepted("/mode", `{"mode":"position"}`)
				time.Sleep(2 * time.Second)
				f.accepted("/input", `{"pitch":0.1,"timeout":5}`)
				f.sim.reboot(true)
				for range 60 { // the restart shows after 5 s
					f.call("POST", "/input", `{"pitch":0.1,"timeout":1}`)
					time.Sleep(200 * time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				f.sim.setReceiver(simReceiverInHand)
				f.sim.pilotSticks(0, 300, 500, 0)
				f.sim.pilotSwitch(1100, 2)
				time.Sleep(5 * time.Second)
				if f.streams() {
					t.Errorf("our stream stands over the pilot's hand: %v", f.status()["input"])
				}
			})
		})
	}
}

func TestTheFarewellHoldsOnASlowLine(t *testing.T) {
	for _, r := range []simReceiver{simReceiverIdle, simReceiverInHand, simReceiverNone} {
		for _, delay := range []time.Duration{300, 450, 600} {
			t.Run(fmt.Sprint(r, delay*time.Millisecond), func(t *testing.T) {
				arduFly(t, r, func(f *ardu) {
					f.hover()
					f.accepted("/mode", `{"mode":"position"}`)
					f.slowly(delay * time.Millisecond)
					f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
					time.Sleep(time.Second)
					f.stop()
					time.Sleep(6 * time.Second)
					if s := f.sim.truth(); s.mode != 4 && s.mode != copterBrake && !s.failsafe {
						t.Errorf("%.1f m up, mode %d", s.alt, s.mode)
					}
				})
			})
		}
	}
}

func TestAHandshakeInTheAirForgetsNoParameter(t *testing.T) {
	prepare := func(s *simulator) { s.receiver, s.params["SYSID_MYGCS"] = simReceiverNone, 250 }
	fly(t, simArduPilot, prepare, func(fl *flight) {
		f := &ardu{fl, simReceiverNone}
		f.hover()
		f.accepted("/mode", `{"mode":"position"}`)
		time.Sleep(2 * time.Second)
		f.sim.change(func() { f.sim.stream(245, -1) }) // another program ends it
		time.Sleep(4600 * time.Millisecond)
		f.sim.change(func() { f.sim.muted = true })
		time.Sleep(2 * time.Second)
		f.sim.change(func() { f.sim.muted = false })
		time.Sleep(3 * time.Second)
		if s := f.sim.truth(); s.mode != 5 || s.failsafe {
			t.Errorf("a radio failsafe: mode %d", s.mode)
		}
	})
}

func TestAPositionThatComesNoMoreIsAskedForAgain(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/land", "{"+at(60, 0)+"}")
		time.Sleep(2 * time.Second)
		f.sim.change(func() { f.sim.stream(33, -1); f.sim.stream(1, -1) })
		f.until("it lands at the place", 3*time.Minute, f.disarmed)
		f.wantAt(60, 0, 0, 2)
	})
}

func TestHomeOfBeforeARestartIsNoHome(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.boot = 500000 })
		b.settle()
		at := func(amsl float64, boot uint32) {
			b.say(&common.MessageGlobalPositionInt{TimeBootMs: boot, Lat: 473977419, Lon: 85455937, Alt: int32(amsl * 1000)})
		}
		b.say(&common.MessageHomePosition{Latitude: 473977419, Longitude: 85455937, Altitude: 488300})
		at(488.3, 505000)
		b.change(func() { b.boot = 1000 }) // it starts again, 300 m lower
		time.Sleep(2 * time.Second)
		at(188.3, 2500)
		at(188.3, 2600)
		time.Sleep(50 * time.Millisecond)
		b.obeys(time.Millisecond, time.Millisecond)
		o := b.command(request{setMode: true, mode: ModeTakeoff})
		time.Sleep(homeWait + time.Second) // it does not tell its home
		sent := b.commands(common.MAV_CMD_NAV_TAKEOFF)
		if len(sent) == 0 {
			t.Fatal("no takeoff was sent")
		}
		if up := float64(sent[0].msg.(*common.MessageCommandLong).Param7) - 188.3; math.Abs(up-10) > 1 {
			t.Errorf("a takeoff to 10 m climbs %.1f m", up)
		}
		<-o
	})
}

// A QuadPlane calls itself a fixed wing until it has told its vtol_state.
func TestAQuadPlaneIsNotCommandedAsAPlaneBeforeItIsKnown(t *testing.T) {
	for _, c := range []struct {
		mode  string
		delay time.Duration
	}{{"manual", 0}, {"altitude", 0}, {"hold", 0}, {"hold", 200 * time.Millisecond}, {"rtl", 200 * time.Millisecond}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			fly(t, simQuadPlane, func(s *simulator) { s.params["Q_GUIDED_MODE"] = 1 }, func(f *flight) {
				f.accepted("/takeoff", `{"altitude":20}`)
				time.Sleep(20 * time.Second)
				f.accepted("/mode", `{"mode":"position"}`)
				time.Sleep(2 * time.Second)
				f.sim.setReceiver(simReceiverInHand)
				f.stop()
				time.Sleep(5 * time.Second)
				f.sim.pilotMode(19) // QLOITER
				time.Sleep(time.Second)
				f.sim.change(func() {
					f.sim.params["Q_GUIDED_MODE"], f.sim.delay = 0, c.delay
					f.sim.stream(245, -1)
				})
				f.anew(func() {
					f.until("it is online", 5*time.Second, func() bool { return f.status()["online"] == true })
					code, o := f.call("POST", "/mode", `{"mode":"`+c.mode+`"}`)
					time.Sleep(5 * time.Second)
					if s := f.sim.truth(); code == 200 && slices.Contains([]uint32{0, 6, 15, 11, 13}, s.mode) || o["code"] == "no_ack" {
						t.Errorf("%d %v; it is in mode %d at %.0f m/s", code, o, s.mode, f.speed())
					}
				})
			})
		})
	}
}

func TestAPortThatWasAwayDoesNotSendOverAPilot(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"hold"}`)
		for phase := time.Duration(0); phase < time.Second; phase += 100 * time.Millisecond {
			time.Sleep(3*time.Second + phase)
			f.sim.unplug()
			time.Sleep(time.Millisecond)
			p := &pilotFlight{flight: f}
			p.post("/goto", "{"+at(60, 0)+"}")
			time.Sleep(300 * time.Millisecond)
			f.sim.pilotMode(entered[f.firmware][ModeRTL])
			taken := time.Now()
			f.sim.plug()
			p.answered(10 * time.Second)
			f.wantHandsOff(taken)
			f.until("the hold is back", 10*time.Second, func() bool {
				code, _ := f.call("POST", "/mode", `{"mode":"hold"}`)
				return code == 200
			})
		}
	})
}

// forbids makes the vehicle refuse modes.
func (f *flight) forbids(modes ...uint32) {
	f.sim.change(func() {
		f.sim.modes = slices.Clone(f.sim.modes)
		for i := range f.sim.modes {
			m := &f.sim.modes[i]
			m.refused = m.refused || slices.Contains(modes, m.custom)
		}
	})
}

func TestPX4LandsWherePOSCTLIsRefused(t *testing.T) {
	for _, mode := range []string{"manual", "altitude"} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, silent), func(t *testing.T) {
				fly(t, simPX4, nil, func(f *flight) {
					f.aloft()
					f.accepted("/mode", `{"mode":"`+mode+`"}`)
					f.accepted("/input", `{"pitch":0.1,"throttle":0.5,"timeout":1}`)
					time.Sleep(300 * time.Millisecond)
					f.forbids(simPX4Posctl, simPX4Loiter) // the position is no good any more
					if !silent {
						f.accepted("/land", "")
						return
					}
					time.Sleep(15 * time.Second)
					if s := f.sim.truth(); s.mode != simPX4Land && s.armed {
						t.Errorf("nobody flies it: in %#x, %.1f m up", s.mode, s.alt)
					}
				})
			})
		}
	}
}

// twicePort brings each datagram twice, as a router with two ways does.
type twicePort struct {
	port
	again []byte
}

func (p *twicePort) Read(b []byte) (int, error) {
	if p.again != nil {
		n := copy(b, p.again)
		p.again = nil
		return n, nil
	}
	n, err := p.port.Read(b)
	p.again = slices.Clone(b[:n])
	return n, err
}

func TestALineThatBringsFramesTwiceMakesNoAcceptance(t *testing.T) {
	twice := func(d *drone) {
		open := d.link.device.open
		d.link.device.lossy, d.link.device.datagrams = false, true
		d.link.device.open = func(ctx context.Context) (port, error) {
			p, err := open(ctx)
			return &twicePort{port: p}, err
		}
	}
	flyWith(t, simPX4, nil, twice, func(f *flight) {
		f.aloft()
		f.forbids(simPX4Posctl)
		f.refused("/mode", `{"mode":"position"}`, 409, "refused")
		f.wantMode("takeoff")
	})
}

func TestPX4GotoThatKeepsItsPlaceStaysThere(t *testing.T) {
	for _, mode := range []string{"position", "altitude"} {
		t.Run(mode, func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				f.aloft()
				f.accepted("/mode", `{"mode":"`+mode+`"}`)
				f.accepted("/input", `{"pitch":1,"throttle":0.5,"timeout":5}`)
				time.Sleep(4 * time.Second)
				f.accepted("/goto", `{"heading":90}`)
				came := f.back(func(s simState) float64 { n, _ := simMetres(s.lat, s.lon); return n })
				if came > 6 { // in altitude mode it drifts
					t.Errorf("came back %.1f m", came)
				}
			})
		})
	}
}

// A stream that is parked off centre takes PX4 to POSCTL when it is centred.
func TestPX4StickModeFromAStreamParkedOffCentre(t *testing.T) {
	for _, body := range []string{`{"mode":"altitude"}`, `{"mode":"altitude","arm":true}`} {
		for _, delay := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
			t.Run(fmt.Sprint(body, delay), func(t *testing.T) {
				fly(t, simPX4, nil, func(f *flight) {
					f.accepted("/mode", `{"mode":"position"}`) // a stream with z = 0
					f.aloft()                                  // parked with it
					f.slowly(delay)
					f.accepted("/mode", body)
				})
			})
		}
	}
}

func TestADoubtfulStickModeThatShowsInARefusedPlanIsHeldForASilentClient(t *testing.T) {
	for _, next := range []struct{ path, body string }{{"/goto", "{" + at(50, 0) + `,"altitude":20}`}, {"/mode", `{"mode":"position"}`}} {
		for _, mode := range []string{"altitude", "manual"} {
			for _, silence := range []time.Duration{2100, 2500, 3000, 3500} {
				t.Run(fmt.Sprint(next.path, mode, silence), func(t *testing.T) {
					arduFly(t, simReceiverIdle, func(f *ardu) {
						f.hover()
						f.sim.change(func() {
							f.sim.onMode = func(uint32) {
								f.sim.muted = true
								f.sim.after(silence*time.Millisecond, func() { f.sim.muted = false })
							}
						})
						f.refused("/mode", `{"mode":"`+mode+`"}`, 504, "no_ack")
						refuses := func(r bool) {
							f.sim.refuses[common.MAV_CMD_DO_REPOSITION] = r
							f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = r
						}
						f.sim.change(func() { f.sim.onMode = nil; refuses(true) })
						code, o := f.call("POST", next.path, next.body)
						f.sim.change(func() { refuses(false) })
						time.Sleep(15 * time.Second)
						if s := f.sim.truth(); s.mode != entered[copter][ModeHold] {
							t.Errorf("%d %v: nobody holds for a silent client: mode %d, %.1f m up", code, o["code"], s.mode, s.alt)
						}
					})
				})
			}
		}
	}
}

// unplugged posts a command to a drone in the air whose port is away, and waits.
func (f *flight) unplugged(path, body string, away time.Duration) (p *pilotFlight, posted time.Time) {
	f.aloft()
	f.accepted("/mode", `{"mode":"hold"}`)
	time.Sleep(3 * time.Second)
	f.sim.unplug()
	time.Sleep(time.Millisecond)
	p, posted = &pilotFlight{flight: f}, time.Now()
	p.post(path, body)
	time.Sleep(away)
	return p, posted
}

func TestALandOfAPortThatIsBackIsSentThoughNobodyAnswers(t *testing.T) {
	both(t, func(f *flight) {
		p, _ := f.unplugged("/land", "", 200*time.Millisecond)
		f.sim.change(func() { f.sim.muted = true })
		f.sim.plug()
		time.Sleep(1300 * time.Millisecond)
		f.sim.change(func() { f.sim.muted = false })
		o := p.answered(10 * time.Second)
		time.Sleep(20 * time.Second)
		if s := f.sim.truth(); s.armed && s.mode != entered[f.firmware][ModeLand] {
			f.Errorf("%d %v; mode %v", o.code, o.body, s.mode)
		}
	})
}

func TestAGotoOfAPortThatIsBackIsNotSentWhereNobodyAnswers(t *testing.T) {
	both(t, func(f *flight) {
		p, posted := f.unplugged("/goto", "{"+at(30, 0)+"}", 200*time.Millisecond)
		f.sim.change(func() { f.sim.muted = true })
		f.sim.plug()
		p.wantAnswer(3*time.Second, "no_ack")
		if sent := f.commandsSince(posted); len(sent) > 0 {
			f.Errorf("sent %v", sent)
		}
	})
}

func TestCopiesOfAPortThatIsBackAreApart(t *testing.T) {
	both(t, func(f *flight) {
		f.slowly(60 * time.Millisecond)
		p, since := f.unplugged("/mode", `{"mode":"rtl"}`, 300*time.Millisecond)
		f.sim.plug()
		p.answered(10 * time.Second)
		var last time.Time
		for _, r := range f.sim.received() {
			if m, ok := r.msg.(*common.MessageCommandLong); ok && !r.at.Before(since) && m.Command == common.MAV_CMD_DO_SET_MODE {
				if r.at.Sub(last) < 20*time.Millisecond {
					f.Errorf("copies %v apart, at %v", r.at.Sub(last), r.at.Sub(since))
				}
				last = r.at
			}
		}
	})
}

func TestAnotherVehicleHasItsOwnParameters(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat(), func(b *lineBench) { b.params["SYSID_MYGCS"] = 250; b.boot = 20000 })
		b.settle()
		time.Sleep(3 * time.Second)
		b.change(func() { b.deaf = true; b.beat = nil })
		time.Sleep(10 * time.Second)
		b.change(func() {
			b.deaf, b.beat, b.boot = false, copterBeat(), 60000
			delete(b.params, "SYSID_MYGCS")
			b.params["MAV_GCS_SYSID"] = 255
		})
		time.Sleep(10 * time.Second)
		b.drone.mu.Lock()
		defer b.drone.mu.Unlock()
		if got := b.drone.params.groundStation(); got != 255 {
			t.Errorf("sticks go out as system %d: %v", got, b.drone.params.told)
		}
	})
}

func TestAnOlderDoubtsEndDoesNotReleaseTheSticks(t *testing.T) {
	for wait := 4500 * time.Millisecond; wait < 5*time.Second; wait += 50 * time.Millisecond {
		t.Run(wait.String(), func(t *testing.T) {
			arduFly(t, simReceiverIdle, func(f *ardu) {
				f.hover()
				f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true })
				f.loseAcks(common.MAV_CMD_DO_SET_MODE)
				f.refused("/mode", `{"mode":"position"}`, 504, "no_ack")
				f.sim.change(func() {
					f.sim.onAck, f.sim.delay = nil, 200*time.Millisecond
					f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = false
				})
				time.Sleep(wait)
				defer f.fails(common.MAV_CMD_DO_REPOSITION)()
				p := f.entering("manual")
				f.refused("/goto", "{"+at(50, 0)+"}", 409, "refused")
				p.answered(10 * time.Second)
				time.Sleep(10 * time.Second)
				if s := f.sim.truth(); s.alt < 15 {
					t.Errorf("%.1f m up, mode %d, streams %v; %v", s.alt, s.mode, f.streams(), f.status()["messages"])
				}
			})
		})
	}
}

func TestASupersededStickModeIsHeldForASilentClient(t *testing.T) {
	for _, mode := range []string{"manual", "altitude"} {
		t.Run(mode, func(t *testing.T) {
			arduFly(t, simReceiverIdle, func(f *ardu) {
				f.hover()
				f.slowly(200 * time.Millisecond)
				end := f.fails(common.MAV_CMD_DO_REPOSITION)
				p := f.entering(mode)
				f.refused("/goto", "{"+at(50, 0)+"}", 409, "refused")
				end()
				p.answered(10 * time.Second)
				time.Sleep(15 * time.Second)
				if s := f.sim.truth(); s.mode != entered[copter][ModeHold] {
					t.Errorf("nobody holds: %.1f m up, mode %d", s.alt, s.mode)
				}
			})
		})
	}
}

func TestAFailsafeOnTheWayOutDoesNotGiveAClientThePilotsSticks(t *testing.T) {
	for _, wait := range []time.Duration{0, 100, 250, 500, 1000, 2200, 2500} {
		t.Run((wait * time.Millisecond).String(), func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				f.accepted("/takeoff", "")
				time.Sleep(25 * time.Second)
				f.accepted("/mode", `{"mode":"altitude"}`)
				time.Sleep(time.Second)
				f.sim.pilotMode(simPX4Manual)
				f.slowly(200 * time.Millisecond)
				f.wantNoInput()
				p := f.entering("rtl")
				time.Sleep(wait * time.Millisecond)
				f.sim.change(func() { f.sim.failsafe = true })
				p.answered(60 * time.Second)
				time.Sleep(time.Second)
				f.wantNoInput()
			})
		})
	}
}

// loseFirstAck has the first ack of a command lost; it is repeated, and acknowledged.
func (f *flight) loseFirstAck(id common.MAV_CMD) {
	lost := false
	f.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		if !lost {
			lost = true
			return nil
		}
		return []simAnswer{{ack: a}}
	})
}

// An ack of the repeated goto may still be on its way: the next one is not sent until
// none is, and is then answered by its own.
func TestALandingAtAPlaceRightAfterAGotoWhoseAckWasLost(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.loseFirstAck(common.MAV_CMD_DO_REPOSITION)
		f.accepted("/goto", "{"+at(60, 0)+"}")
		if o := f.accepted("/land", "{"+at(20, 0)+`,"wait":120}`); o["done"] != true {
			t.Errorf("answered %v", o)
		}
		f.wantAt(20, 0, 0, 2)
	})
}

// Nothing but a report can answer it then, also where the vehicle lands already.
func TestASecondLandingRightAfterOneWhoseAckWasLost(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.loseFirstAck(common.MAV_CMD_NAV_LAND)
		f.accepted("/land", "")
		f.accepted("/land", "")
		f.wantMode("land")
	})
}

// PX4's ack proves nothing: nobody knows whether it goes on to the place of a landing.
func TestAModeThatPX4AcknowledgedAndDidNotShowEndsTheWayToALanding(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/land", "{"+at(60, 0)+"}")
		time.Sleep(2 * time.Second)
		f.sim.change(func() { f.sim.idle = true })
		f.refused("/mode", `{"mode":"position"}`, 504, "no_ack")
		f.sim.change(func() { f.sim.idle = false })
		f.wantMode("hold")
		if done := f.status()["done"]; done != nil {
			t.Errorf("done is %v", done)
		}
		time.Sleep(time.Minute)
		f.wantMode("hold")
	})
}

// The newest command wins: it waits for the disarming, which does not end it.
func TestATakeoffRightAfterADisarming(t *testing.T) {
	both(t, func(f *flight) {
		f.accepted("/mode", `{"arm":true}`)
		f.sim.change(func() { f.sim.delay = 100 * time.Millisecond })
		p := &pilotFlight{flight: f}
		p.post("/mode", `{"arm":false}`)
		time.Sleep(20 * time.Millisecond)
		f.accepted("/takeoff", "")
		f.wantMode("takeoff")
		p.answered(time.Second)
	})
}

// A refusal ends its claim, also where a failsafe has ended the plan.
func TestAPilotInTheModeThatWasRefusedInAFailsafeHasTheDrone(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.fails(common.MAV_CMD_DO_SET_MODE)
		f.acks(common.MAV_CMD_DO_SET_MODE, func(a *common.MessageCommandAck) []simAnswer {
			f.sim.failsafe = true // a report of it comes before the refusal
			return []simAnswer{{after: 120 * time.Millisecond, ack: a}}
		})
		p := &pilotFlight{flight: f}
		p.post("/mode", `{"mode":"position"}`)
		p.wantAnswer(5*time.Second, "interrupted")
		f.link.mu.Lock()
		defer f.link.mu.Unlock()
		if sent := f.link.machine.sent; len(sent) > 0 {
			t.Errorf("a claim stands: %+v", *sent[0].to)
		}
	})
}

// It waited for its sticks while it climbed.
func TestALandingAtAPlaceIsFlownAtTheHeightThatItBeginsAt(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"throttle":1,"timeout":5}`)
		time.Sleep(3 * time.Second)
		f.accepted("/land", "{"+at(60, 0)+"}")
		up := f.sim.truth().alt
		time.Sleep(4 * time.Second)
		if now := f.sim.truth().alt; math.Abs(now-up) > 0.3 {
			t.Errorf("%.1f m up when it began, %.1f m on its way", up, now)
		}
	})
}
