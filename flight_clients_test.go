package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// Whole flights with several commands at once, on lines on which the answer to one
// comes after the next has begun.

func TestARefusedCommandIsNotTakenBackOverANewerOne(t *testing.T) {
	for _, wait := range []time.Duration{850, 950, 1000, 1050, 1100, 1150, 1250, 1350} {
		t.Run(wait.String(), func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				f.aloft()
				f.accepted("/mode", `{"mode":"position"}`)
				time.Sleep(time.Second)
				f.sim.change(func() { f.sim.delay = 300 * time.Millisecond }) // a telemetry radio's
				time.Sleep(3 * time.Second)
				f.failAcks(common.MAV_CMD_CONDITION_YAW)
				p := &pilotFlight{flight: f}
				p.post("/goto", "{"+at(60, 0)+`,"heading":90}`)
				time.Sleep(wait * time.Millisecond)
				f.accepted("/land", "")
				f.wantTruth()
				time.Sleep(3 * time.Second)
				p.answered(time.Second)
				f.wantTruth()
				f.wantMode("land")
			})
		})
	}
}

func TestTheNewestLandingDoesNotJoinOneThatANewerCommandReplaces(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":1,"timeout":5}`)
		time.Sleep(500 * time.Millisecond)
		p := &pilotFlight{flight: f}
		p.post("/land", "")
		time.Sleep(10 * time.Millisecond)
		q := &pilotFlight{flight: f}
		q.post("/mode", `{"mode":"hold"}`)
		time.Sleep(10 * time.Millisecond)
		f.accepted("/land", "")
		p.answered(time.Second)
		q.answered(time.Second)
		f.wantMode("land")
	})
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
				older.post("/goto", "{"+at(60, 0)+`,"heading":90}`) // is refused, and taken back
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
		f.wantAt(0, 0, 10, 5)
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

func TestAnArmingInTheMiddleOfACommandEndsTheManoeuvreBeforeIt(t *testing.T) {
	both(t, func(f *flight) {
		climb := &pilotFlight{flight: f}
		climb.post("/takeoff", `{"altitude":40,"wait":60}`)
		time.Sleep(8 * time.Second)
		f.slowly(150 * time.Millisecond)
		p := &pilotFlight{flight: f}
		p.post("/mode", `{"mode":"rtl"}`)
		time.Sleep(50 * time.Millisecond)
		f.accepted("/mode", `{"arm":true}`)
		p.answered(time.Second)
		time.Sleep(2 * time.Second)
		f.wantMode("rtl")
		if s := f.status(); s["done"] != nil {
			f.Errorf("mode %v, done %v", s["mode"], s["done"])
		}
		climb.wantAnswer(time.Millisecond, "interrupted")
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

func TestAnArmingThatWaitsItsTurnIsNotSentAfterAPilotsSwitch(t *testing.T) {
	for _, first := range []string{`{"arm":false}`, `{"mode":"hold"}`} {
		t.Run(first, func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				f.accepted("/mode", `{"mode":"hold"}`)
				time.Sleep(time.Second)
				p := &pilotFlight{flight: f}
				f.accepted("/mode", first)
				p.post("/mode", `{"arm":true}`)
				time.Sleep(20 * time.Millisecond)
				f.sim.pilotMode(5)
				f.sim.change(func() { f.sim.send(f.sim.brain.message(0)) })
				taken := f.reported(5, time.Now().Add(-time.Millisecond), 200*time.Millisecond)
				time.Sleep(2 * time.Second)
				p.wantAnswer(time.Second, "interrupted")
				f.wantHandsOff(taken)
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
		since, m := time.Now(), d.cmd.man
		d.wg.Go(func() { d.conduct.landThere(m) }) // as watch does
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
				if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_DO_CHANGE_SPEED {
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

func TestTheFinalAckOfACommandInProgressIsNotTheNextOnes(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(10, 0)+"}")
		time.Sleep(8 * time.Second)
		n := 0
		f.acks(common.MAV_CMD_DO_REPOSITION, func(a *common.MessageCommandAck) []simAnswer {
			answer := *a
			if n++; n == 1 {
				answer.Result = common.MAV_RESULT_IN_PROGRESS
				return []simAnswer{{ack: &answer}, {ack: a, after: 4 * time.Second}}
			}
			answer.Result = common.MAV_RESULT_FAILED
			return []simAnswer{{ack: &answer, after: 60 * time.Millisecond}}
		})
		p := &pilotFlight{flight: f}
		p.post("/goto", "{"+at(20, 0)+"}")
		time.Sleep(3980 * time.Millisecond)
		f.refused("/goto", "{"+at(60, 0)+"}", 409, "refused")
		p.answered(20 * time.Second)
	})
}

func TestARefusedHeadingDoesNotEndTheWayToALanding(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/land", "{"+at(40, 0)+"}")
		time.Sleep(2 * time.Second)
		end := f.fails(common.MAV_CMD_CONDITION_YAW)
		f.refused("/goto", "{"+at(0, 60)+`,"heading":90}`, 409, "refused")
		end()
		f.wantMode("land")
		time.Sleep(90 * time.Second)
		f.wantMode("land")
		f.wantAt(40, 0, 0, 2)
	})
}

func TestARefusedHeadingDoesNotEndTheGotoBeforeIt(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		p := &pilotFlight{flight: f}
		p.post("/goto", "{"+at(40, 0)+`,"wait":60}`)
		time.Sleep(2 * time.Second)
		end := f.fails(common.MAV_CMD_CONDITION_YAW)
		f.refused("/goto", "{"+at(0, 60)+`,"heading":90}`, 409, "refused")
		end()
		p.wantAnswer(time.Minute, "")
		f.wantAt(40, 0, 10, 2)
	})
}

func TestAWayThatIsResumedHasItsOwnSpeed(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/land", "{"+at(200, 0)+"}")
		time.Sleep(5 * time.Second)
		before := f.speed()
		end := f.fails(common.MAV_CMD_CONDITION_YAW)
		f.refused("/goto", "{"+at(0, 60)+`,"heading":90,"speed":1}`, 409, "refused")
		end()
		time.Sleep(8 * time.Second)
		if v := f.speed(); v < before/2 {
			t.Errorf("the way to the landing goes on at %.1f m/s, was %.1f", v, before)
		}
	})
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
				if late := f.link.machine.late; late != nil {
					t.Errorf("late %v after a pilot's switch", late)
				}
			})
		})
	}
}

func TestTheFinalAckOfACommandInProgressIsNotTheThirdOnesEither(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(10, 0)+"}")
		time.Sleep(8 * time.Second)
		n := 0
		f.acks(common.MAV_CMD_DO_REPOSITION, func(a *common.MessageCommandAck) []simAnswer {
			answer := *a
			switch n++; n {
			case 1:
				answer.Result = common.MAV_RESULT_IN_PROGRESS
				return []simAnswer{{ack: &answer}, {ack: a, after: 5 * time.Second}}
			case 2:
				return []simAnswer{{ack: a}}
			}
			answer.Result = common.MAV_RESULT_FAILED
			return []simAnswer{{ack: &answer, after: 60 * time.Millisecond}}
		})
		p := &pilotFlight{flight: f}
		p.post("/goto", "{"+at(20, 0)+"}")
		time.Sleep(time.Second)
		f.call("POST", "/goto", "{"+at(40, 0)+"}")
		p.answered(20 * time.Second)
		time.Sleep(time.Until(f.link.cmd.begun.Add(3980 * time.Millisecond)))
		f.refused("/goto", "{"+at(60, 0)+"}", 409, "refused")
	})
}

func TestAGotoThatIsResumedHasItsOwnSpeed(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(200, 0)+`,"speed":2}`)
		time.Sleep(8 * time.Second)
		before := f.speed()
		end := f.fails(common.MAV_CMD_CONDITION_YAW)
		f.refused("/goto", "{"+at(0, 60)+`,"heading":90}`, 409, "refused")
		end()
		time.Sleep(8 * time.Second)
		if v := f.speed(); v > before*1.5 {
			t.Errorf("goes on at %.1f m/s, was %.1f: %v", v, before, f.commands())
		}
	})
}

func TestAGotoThatIsRefusedInAFailsafeIsTakenBack(t *testing.T) {
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(60, 0)+"}")
		time.Sleep(12 * time.Second)
		f.sim.failsafeReturn()
		time.Sleep(3 * time.Second)
		before := f.sim.truth()
		end := f.fails(common.MAV_CMD_DO_REPOSITION)
		f.refused("/goto", "{"+at(30, 30)+"}", 409, "refused")
		end()
		time.Sleep(3 * time.Second)
		if s := f.sim.truth(); s.mode != before.mode {
			t.Errorf("it was in %#x, is in %#x: %v", before.mode, s.mode, f.commands())
		}
	})
}

func TestARefusedWishDoesNotKeepAGotoFromBeingTakenBack(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			fly(t, simArduPilot, nil, func(f *flight) {
				f.aloft()
				f.accepted("/goto", "{"+at(40, 0)+`,"speed":3}`)
				time.Sleep(3 * time.Second)
				defer f.fails(common.MAV_CMD_CONDITION_YAW)()
				if lost {
					f.loseAcks(common.MAV_CMD_DO_CHANGE_SPEED)
				} else {
					defer f.fails(common.MAV_CMD_DO_CHANGE_SPEED)()
				}
				f.refused("/goto", "{"+at(0, 60)+`,"heading":90}`, 409, "refused")
				time.Sleep(60 * time.Second)
				f.wantAt(40, 0, 10, 3)
			})
		})
	}
}
