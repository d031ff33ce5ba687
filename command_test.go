package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

func TestACommandIsSentThreeTimesAtMostWithItsConfirmationRising(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		o := <-b.command(armIt)
		lineEqual(t, "code", o.code(), codeNoAck)
		lineEqual(t, "time until the answer", o.took, 2*time.Second)
		sends := b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)
		lineEqual(t, "sends", fmt.Sprint(sentAfter(sends)), "[0s 500ms 1.2s]")
		for i, m := range sends {
			c := m.msg.(*common.MessageCommandLong)
			lineEqual(t, "confirmation", c.Confirmation, uint8(i))
			lineEqual(t, "target", [2]byte{c.TargetSystem, c.TargetComponent}, [2]byte{1, 1})
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{1, componentID})
		}
	})
}

// inTheAir makes the bench's vehicle fly 10 m above home.
func (b *lineBench) inTheAir() {
	b.change(func() { b.beat.BaseMode |= common.MAV_MODE_FLAG_SAFETY_ARMED })
	b.say(&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR})
	b.say(&common.MessageHomePosition{Latitude: 473977420, Longitude: 85455940, Altitude: 488000})
	b.say(&common.MessageGlobalPositionInt{Lat: 473977420, Lon: 85455940, Alt: 498000, RelativeAlt: 10000, Hdg: 9000})
	time.Sleep(1500 * time.Millisecond)
}

func TestAPlaceGoesOutAsCommandIntAndIsRepeatedUnchanged(t *testing.T) {
	for name, beat := range map[string]*common.MessageHeartbeat{"px4": px4Beat(), "copter": copterBeat()} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, beat)
				b.settle()
				b.inTheAir()
				lat, lon := 47.3979216, 8.5456789
				o := <-b.command(request{setMode: true, mode: ModeHold, goTo: true, lat: &lat, lon: &lon})
				lineEqual(t, "code", o.code(), codeNoAck)
				sends := b.commands(common.MAV_CMD_DO_REPOSITION)
				lineEqual(t, "sends", fmt.Sprint(sentAfter(sends)), "[0s 500ms 1.2s]")
				for _, m := range sends {
					c, ok := m.msg.(*common.MessageCommandInt)
					if !ok || c.X != 473979216 || c.Y != 85456789 {
						t.Errorf("sent %+v", m.msg)
					}
				}
			})
		})
	}
}

func TestAnAckEndsTheRepeats(t *testing.T) {
	for try := range 3 {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, copterBeat())
			b.settle()
			b.follow(func(id uint16, n int) {
				if n == try {
					b.ack(100*time.Millisecond, id, ackAccepted)
				}
			})
			o := <-b.command(armIt)
			lineEqual(t, "error", o.err, nil)
			lineEqual(t, "command", o.command, cmdArm)
			lineEqual(t, "time until the answer", o.took, [...]time.Duration{100, 600, 1300}[try]*time.Millisecond)
			time.Sleep(3 * time.Second)
			lineEqual(t, "sends", len(b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)), try+1)
		})
	}
}

// An ack may be there before the send has returned.
func TestAnAckAtOnceIsNotMissed(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.follow(func(id uint16, _ int) { b.ack(0, id, ackAccepted) })
		o := <-b.command(armIt)
		lineEqual(t, "error", o.err, nil)
		lineEqual(t, "time until the answer", o.took, 0)
	})
}

func TestACommandInProgressIsNeverRepeatedAndHasTenSeconds(t *testing.T) {
	for _, c := range []struct {
		name  string
		on    int           // the send that is answered IN_PROGRESS
		done  time.Duration // from then; 0 never
		again bool          // IN_PROGRESS each second
		code  errorCode
		took  time.Duration
	}{
		{"done after 9.9 s", 0, 9900 * time.Millisecond, false, "", 9950 * time.Millisecond},
		{"never done", 0, 0, false, codeNoAck, 10050 * time.Millisecond},
		{"in progress for ever", 0, 0, true, codeNoAck, 10050 * time.Millisecond},
		{"the second send is answered", 1, 3 * time.Second, false, "", 3550 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, copterBeat())
				b.settle()
				b.follow(func(id uint16, try int) {
					if try != c.on {
						return
					}
					const first = 50 * time.Millisecond
					b.ack(first, id, ackInProgress)
					if c.again {
						for i := range 30 {
							b.ack(first+time.Duration(i+1)*time.Second, id, ackInProgress)
						}
					}
					if c.done > 0 {
						b.ack(first+c.done, id, ackAccepted)
					}
				})
				o := <-b.command(armIt)
				lineEqual(t, "code", o.code(), c.code)
				lineEqual(t, "time until the answer", o.took, c.took)
				lineEqual(t, "sends", len(b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)), c.on+1)
			})
		})
	}
}

func TestOnlyTheVehiclesOwnAckOfThisCommandToUsCounts(t *testing.T) {
	for _, c := range []struct {
		name              string
		system, component byte
		ack               common.MessageCommandAck
		counts            bool
	}{
		{"to us", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: componentID}, true},
		{"to nobody in particular", 1, 1, common.MessageCommandAck{Command: 400}, true},
		{"from another system", 2, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: componentID}, false},
		{"from another component", 1, 154, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: componentID}, false},
		{"of another command", 1, 1, common.MessageCommandAck{Command: 176, TargetSystem: 1, TargetComponent: componentID}, false},
		{"to a ground station", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 255, TargetComponent: 190}, false},
		{"to another component", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: 190}, false},
		{"to another system's companion", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 2, TargetComponent: componentID}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, copterBeat())
				b.settle()
				b.follow(func(uint16, int) { b.sayFrom(c.system, c.component, &c.ack) })
				want := codeNoAck
				if c.counts {
					want = ""
				}
				o := <-b.command(armIt)
				lineEqual(t, "code", o.code(), want)
			})
		})
	}
}

func TestALateAckOfASupersededCommandDoesNotAnswerTheNextOfItsID(t *testing.T) {
	for name, late := range map[string]common.MAV_RESULT{"accepted": ackAccepted, "refused": ackFailed} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, copterBeat())
				b.settle()
				truth := ackAccepted + ackFailed - late
				b.follow(func(id uint16, try int) {
					b.ack(300*time.Millisecond, id, [...]common.MAV_RESULT{late, truth}[min(try, 1)])
				})
				first := b.command(goHome)
				time.Sleep(200 * time.Millisecond)
				second := b.command(request{setMode: true, mode: ModeHold})
				o := <-first
				lineEqual(t, "the first command's code", o.code(), codeSuperseded)
				o = <-second
				want := codeRefused
				if truth == ackAccepted {
					want = ""
				}
				lineEqual(t, "the second command's code", o.code(), want)
			})
		})
	}
}

// A command that lost its place before its first step was sent leaves the acks
// to the one that took it.
func TestASupersededCommandDoesNotTakeTheAcksOfTheNewer(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.follow(func(id uint16, _ int) { b.ack(20*time.Millisecond, id, ackAccepted) })
		older, err := b.begin(holdHere)
		if err != nil {
			t.Fatal(err)
		}
		newer := b.command(goHome)
		time.Sleep(5 * time.Millisecond)
		_, err = b.transact(older, &older.plan.steps[0])
		lineEqual(t, "error of the older", benchOutcome{err: err}.code(), codeSuperseded)
		o := <-newer
		lineEqual(t, "error of the newer", o.err, nil)
		lineEqual(t, "time until the answer", o.took, 20*time.Millisecond)
		lineEqual(t, "sends", len(b.commands(common.MAV_CMD_DO_SET_MODE)), 1)
	})
}

// An unknown place is not near.
func TestNowhereIsNoArrival(t *testing.T) {
	l := newDrone(device{name: "none", baud: func() int { return 0 }}, 0, false)
	op := &operation{plan: plan{target: &place{47.4, 8.5, 10}}}
	l.op, l.machine.mode, l.tel.armed = op, ModeLand, true
	now := time.Now()
	var a arrival
	for ms := uint32(0); ms < 20_000; ms += 200 {
		now = now.Add(200 * time.Millisecond)
		l.hear(&common.MessageGlobalPositionInt{TimeBootMs: ms}, now)
		if l.arrived(op, &a, now) {
			t.Fatalf("arrived at %v, %v", l.tel.position.lat, l.tel.position.lon)
		}
	}
}

// The line was dead for two seconds, so that no ack came; then it is well.
func TestAcksThatWereLostDoNotCostTheNextCommandItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		beat *common.MessageHeartbeat
		r    request
		acks int
	}{
		"copter arms":       {copterBeat(), armIt, 1},
		"copter flies home": {copterBeat(), goHome, 1},
		"px4 flies home":    {px4Beat(), goHome, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, c.beat)
				b.settle()
				b.follow(func(id uint16, try int) {
					for i := range c.acks {
						if try >= len(ackWaits) {
							b.ack(time.Duration(5+5*i)*time.Millisecond, id, ackAccepted)
						}
					}
				})
				o := <-b.command(c.r)
				lineEqual(t, "code while no ack comes", o.code(), codeNoAck)
				o = <-b.command(c.r)
				lineEqual(t, "code when each send is acknowledged again", o.code(), "")
			})
		})
	}
}

func TestPX4sSecondAckOfAModeChangeDecides(t *testing.T) {
	for _, c := range []struct {
		name   string
		second common.MAV_RESULT
		after  time.Duration // of the second ack; 0: it never comes
		shown  time.Duration // a heartbeat in the mode; 0: none
		code   errorCode
		took   time.Duration // 0: not looked at
	}{
		{"refused", ackRejected, 10 * time.Millisecond, 0, codeRefused, 0},
		{"refused late", ackRejected, 250 * time.Millisecond, 0, codeRefused, 0},
		{"accepted", ackAccepted, 10 * time.Millisecond, 0, "", 11 * time.Millisecond},
		{"a heartbeat is as good", 0, 0, 100 * time.Millisecond, "", 100 * time.Millisecond},
		{"it never comes", 0, 0, 0, "", 301 * time.Millisecond},
		{"in progress is none", ackInProgress, 10 * time.Millisecond, 0, "", 301 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, px4Beat())
				b.settle()
				b.follow(func(id uint16, try int) {
					const first = time.Millisecond
					b.ack(first, id, ackAccepted)
					if c.after > 0 {
						b.ack(first+c.after, id, c.second)
					}
					if c.shown > 0 {
						time.AfterFunc(c.shown, func() { b.say(beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(4, 5), false)) })
					}
				})
				o := <-b.command(goHome)
				lineEqual(t, "code", o.code(), c.code)
				if c.took > 0 {
					lineEqual(t, "time until the answer", o.took, c.took)
				}
				lineEqual(t, "sends", len(b.commands(common.MAV_CMD_DO_SET_MODE)), 1)
				want := ModeRTL
				if c.code != "" {
					want = ModeManual
				}
				mode, _ := b.link.mode()
				lineEqual(t, "mode", mode, want)
			})
		})
	}
}

func TestTheKnockComesRightBeforeAPX4CommandAndNeverOnArduPilot(t *testing.T) {
	for name, c := range map[string]struct {
		beat   *common.MessageHeartbeat
		knocks int
	}{"px4": {px4Beat(), 1}, "copter": {copterBeat(), 0}} {
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, c.beat)
				b.settle()
				b.follow(func(id uint16, _ int) { b.ack(time.Millisecond, id, ackAccepted) })
				before := len(b.messages(isBeat(minimal.MAV_TYPE_GCS)))
				lineEqual(t, "knocks without a command", before, 0)
				o := <-b.command(armIt)
				lineEqual(t, "error", o.err, nil)
				all := b.messages(func(lineMessage) bool { return true })
				knocks := b.messages(isBeat(minimal.MAV_TYPE_GCS))
				lineEqual(t, "knocks", len(knocks), c.knocks)
				first := slices.IndexFunc(all, func(m lineMessage) bool {
					l, ok := m.msg.(*common.MessageCommandLong)
					return ok && uint16(l.Command) == cmdArm
				})
				if c.knocks > 0 {
					m := all[first-1]
					lineEqual(t, "the message before the command is a knock", isBeat(minimal.MAV_TYPE_GCS)(m), true)
					lineEqual(t, "its sender", [2]byte{m.system, m.component}, [2]byte{1, 190})
				}
			})
		})
	}
}
