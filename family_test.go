package main

// Who it is: what a vehicle shows of its family, and what goes out before that.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

func TestAFamilyIsProvenByAParameterThatOnlyItHas(t *testing.T) {
	const proven, awaited, stranger = errorCode(""), codeOffline, codeUnsupported
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		name    string
		claimed firmware
		params  string
		rounds  int
		silent  bool
		want    errorCode
		says    string
	}{
		{"PX4", px4, "COM_RC_IN_MODE", 0, false, proven, ""},
		{"a PX4 plane", px4, "NAV_LOITER_RAD", 0, false, proven, ""},
		{"Copter", copter, "SYSID_MYGCS RTL_ALT", 0, false, proven, ""},
		{"Copter from 4.7 on", copter, "RTL_ALT_M", 0, false, proven, ""},
		{"Plane", plane, "FS_GCS_ENABL", 0, false, proven, ""},
		{"QuadPlane", quadPlane, "FS_GCS_ENABL", 0, false, proven, ""},
		{"one that answers nothing later", copter, "RTL_ALT", 99, true, proven, ""},
		{"one that has answered nothing yet", copter, "", 1, false, awaited, "Copter, and has not shown it yet: its " +
			"answer to the parameter RTL_ALT is awaited; try again"},
		{"parameters that others have too", copter, "SYSID_MYGCS FS_GCS_ENABLE WPNAV_SPEED", 39, false, awaited, ""},
		{"for long", copter, "SYSID_MYGCS FS_GCS_ENABLE WPNAV_SPEED", 40, false, stranger,
			"has no parameter that only ArduPilot's Copter has"},
		{"INAV 9.1", copter, "", 0, true, stranger, "answers nothing that mavrest sends, as INAV does"},
		{"INAV's next, 19 rounds", copter, "", 19, false, awaited, ""},
		{"INAV's next, 20 rounds", copter, "", 20, false, stranger, "answers other questions but no parameter, as " +
			"INAV and Betaflight do: its state can be read, not commanded"},
		{"the same that calls itself PX4", px4, "", 20, false, stranger, "calls itself PX4"},
		{"a QuadPlane that calls itself a quadrotor", copter, "FS_GCS_ENABL", 0, false, stranger,
			"calls itself ArduPilot's Copter, and has parameters of ArduPilot's Plane"},
		{"a PX4 that calls itself ArduPilot", plane, "RTL_RETURN_ALT", 0, false, stranger, "parameters of PX4"},
		{"a Copter that calls itself PX4", px4, "RTL_ALT", 0, false, stranger, "parameters of ArduPilot's Copter"},
		{"two with one id", px4, "NAV_DLL_ACT RTL_ALT", 0, false, stranger, "parameters of ArduPilot's Copter"},
		{"a boat, which is never commanded", arduRover, "", 0, false, proven, ""},
		{"autopilot 0, the same", firmwareUnknown, "", 99, true, proven, ""},
	} {
		var f family
		for _, name := range strings.Fields(c.params) {
			f.hear(name, at)
		}
		for range c.rounds {
			f.hearRound()
		}
		err := f.doubt(c.claimed, time.Time{}, c.silent)
		lineEqual(t, c.name, code(err), c.want)
		if !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: says %v, want %q", c.name, err, c.says)
		}
	}
	for name := range strings.FieldsSeq("FS_GCS_ENABL WP_LOITER_RAD TKOFF_ALT ALT_HOLD_RTL RTL_ALTITUDE " +
		"ARSPD_FBW_MIN ARSPD_FBW_MAX Q_GUIDED_MODE Q_RTL_ALT") {
		lineEqual(t, name+" is of planes alone", whose(name), planes)
	}
}

func TestTheOtherFamiliesAreAskedForFromTheSecondRoundOnWithoutProof(t *testing.T) {
	for _, c := range []struct {
		f     family
		other string
	}{
		{family{rounds: 1}, "[]"},
		{family{rounds: 2}, "[[RTL_RETURN_ALT NAV_DLL_ACT] [FS_GCS_ENABL WP_LOITER_RAD]]"},
		{family{rounds: 2, shown: copter}, "[]"},
	} {
		lineEqual(t, fmt.Sprintf("asked for after %d rounds, shown %v", c.f.rounds, c.f.shown),
			fmt.Sprint(c.f.others(copter)), c.other)
	}
}

func TestTheProofOutlivesASilenceOfTheSameVehicleOnly(t *testing.T) {
	at := time.Unix(1000, 0)
	second := at.Add(time.Second)
	shown := family{shown: copter, shownAt: at, answers: true}
	shown.heardAgain(true, second)
	lineEqual(t, "heard again in the air", shown.doubt(copter, at, false), nil)
	shown.heardAgain(false, second)
	lineEqual(t, "heard again", code(shown.doubt(copter, at, false)), codeOffline)
	lineEqual(t, "its clock goes on", shown.doubt(copter, second, false), nil)
	again := shown
	again.hear("RTL_ALT", second)
	lineEqual(t, "its parameter", again.doubt(copter, at, false), nil)

	one, other := autopilotUID{short: 7}, autopilotUID{short: 8}
	f := family{shown: copter, shownAt: at}
	f.hearUID(one)
	f.hearUID(one)
	lineEqual(t, "its uid", f.doubt(copter, at, false), nil)
	f.hearUID(other)
	lineEqual(t, "another uid", code(f.doubt(copter, at, false)), codeOffline)
}

// isQuestion reports whether a message that mavrest sent changes nothing in a flight.
func isQuestion(m lineMessage) bool {
	switch m := m.msg.(type) {
	case *minimal.MessageHeartbeat, *common.MessageTimesync, *common.MessageParamRequestRead:
		return true
	case *common.MessageCommandLong:
		return m.Command == common.MAV_CMD_REQUEST_MESSAGE || m.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL
	}
	return false
}

// notQuestions are what went out and is no question.
func (b *lineBench) notQuestions() []lineMessage {
	return b.messages(func(m lineMessage) bool { return !isQuestion(m) })
}

// deadEnds are requests that each move a drone.
var deadEnds = map[string]request{
	"arm": armIt, "disarm": disarmIt, "takeoff": {verb: entersMode, mode: ModeTakeoff}, "hold": holdHere,
	"land": landHere, "rtl": goHome, "position": {verb: entersMode, mode: ModePosition},
	"goto": {verb: goesTo, lat: new(float64), lon: new(float64)},
}

// liars call themselves what they are not.
var liars = map[string]struct {
	beat func() *common.MessageHeartbeat
	with func(b *lineBench)
	says string
}{
	"INAV 9.1 as ArduPilot": {copterBeat, func(b *lineBench) { b.deaf = true },
		"it calls itself ArduPilot's Copter, and answers nothing"},
	"INAV's next as ArduPilot": {copterBeat, func(b *lineBench) {
		b.params = nil
		b.served[idVersion] = &common.MessageAutopilotVersion{FlightSwVersion: 4<<24 | 7<<16, Capabilities: 2}
	}, "it calls itself ArduPilot's Copter, and answers other questions but no parameter"},
	"Betaflight as PX4": {px4Beat, func(b *lineBench) { b.params = nil },
		"it calls itself PX4, and answers other questions but no parameter"},
	"a QuadPlane as a quadrotor": {copterBeat, func(b *lineBench) {
		b.params = map[string]float64{"SYSID_MYGCS": 255, "FS_GCS_ENABL": 0, "WP_LOITER_RAD": 60}
	}, "it calls itself ArduPilot's Copter, and has parameters of ArduPilot's Plane"},
	"a PX4 as ArduPilot": {copterBeat, func(b *lineBench) { b.params = map[string]float64{"NAV_DLL_ACT": 0} },
		"it calls itself ArduPilot's Copter, and has parameters of PX4"},
	"a submarine as a quadrotor": {copterBeat, func(b *lineBench) {
		b.params = map[string]float64{"SYSID_MYGCS": 255, "FS_GCS_ENABLE": 0, "WPNAV_SPEED": 500}
	}, "it calls itself ArduPilot's Copter, and has no parameter that only ArduPilot's Copter has"},
}

func TestALiarIsNeverSentAnythingButQuestions(t *testing.T) {
	for name, liar := range liars {
		for _, armed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/armed %v", name, armed), func(t *testing.T) {
				inLinkBubble(t, func(t *testing.T) {
					b := newLineBench(t, liar.beat(), liar.with)
					b.script = func(uint16, int) {}
					b.shows(b.beat.CustomMode, armed)
					time.Sleep(25 * time.Second)
					for what, r := range deadEnds {
						o := <-b.command(r)
						lineEqual(t, what, o.code(), codeUnsupported)
						if !strings.Contains(fmt.Sprint(o.err), liar.says) {
							t.Errorf("%s: %v", what, o.err)
						}
					}
					if _, err := b.drone.input(stickInput{}); code(err) != codeUnsupported {
						t.Errorf("sticks: %v", err)
					}
					lineEqual(t, "modes", len(b.snapped().modes()), 0)
					lineEqual(t, "sent and no question", fmt.Sprint(b.notQuestions()), "[]")
				})
			})
		}
	}
}

func TestBeforeAVehicleHasShownWhatItIsOnlyWhatMakesItSafeGoesOutAndOnlyInTheAir(t *testing.T) {
	place := 0.0
	for _, c := range []struct {
		name  string
		r     request
		air   bool
		after time.Duration // −1: never
		code  errorCode
	}{
		{"hold in the air", holdHere, true, familyWait, ""},
		{"land in the air", landHere, true, familyWait, ""},
		{"rtl in the air", goHome, true, familyWait, ""},
		{"hold on the ground", holdHere, false, -1, codeOffline},
		{"land at a place", request{verb: entersMode, mode: ModeLand, lat: &place, lon: &place}, true, -1, codeRefused},
		{"goto", deadEnds["goto"], true, -1, codeRefused},
		{"takeoff", deadEnds["takeoff"], false, -1, codeOffline},
		{"arm", armIt, false, -1, codeOffline},
		{"disarm, perhaps in the air", disarmIt, true, -1, codeOffline},
		{"position", deadEnds["position"], true, -1, codeOffline},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, copterBeat(), func(b *lineBench) { b.deaf, b.boot = true, 5000 })
				b.script = func(uint16, int) {}
				b.shows(4, c.air)
				time.Sleep(3 * time.Second) // mavrest has just started
				asked := time.Now()
				o := <-b.command(c.r)
				if c.after < 0 {
					lineEqual(t, "answer", o.code(), c.code)
					lineEqual(t, "it took a second at most", o.took <= familyWait, true)
					lineEqual(t, "sent and no question", len(b.notQuestions()), 0)
					return
				}
				sent := b.notQuestions()
				if len(sent) == 0 {
					t.Fatalf("nothing was sent: %v", o.err)
				}
				if after := sent[0].at.Sub(asked); after < c.after || after > c.after+urgentKept {
					t.Errorf("it went out after %v", after)
				}
			})
		})
	}
}

// A Copter's hold is BRAKE, then GUIDED. The first is what makes an unproven vehicle safe in the air.
func TestAHoldThatHasGoneOutWithoutTheProofEndsWhereTheVehicleIsOnTheGround(t *testing.T) {
	const guided, brake = 4, copterBrake
	for _, obeys := range []bool{false, true} {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, copterBeat(), func(b *lineBench) { b.deaf, b.boot = true, 5000 })
			b.script = func(id uint16, _ int) {
				if obeys {
					b.ack(0, id, ackAccepted)
					b.shows(brake, false)
				} else {
					b.shows(guided, false)
				}
				b.change(func() { b.feed(b.next(1, b.beat)) })
			}
			b.shows(guided, true)
			time.Sleep(3 * time.Second) // mavrest has just started
			o := <-b.command(holdHere)
			lineEqual(t, fmt.Sprint("obeys ", obeys, ": all that was sent"), len(b.notQuestions()), 1)
			lineEqual(t, "answer", o.code() == "", false)
		})
	}
}

func TestTheProofCostsAClientNoTimeOnAVehicleThatAnswers(t *testing.T) {
	for _, armed := range []bool{false, true} {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, px4Beat(), func(b *lineBench) { b.lag = 20 * time.Millisecond })
			b.script = func(id uint16, _ int) { b.ack(b.lag, id, ackAccepted) }
			b.shows(b.beat.CustomMode, armed)
			for !b.snapped().online {
				time.Sleep(time.Millisecond)
			}
			o := <-b.command(goHome)
			sent := b.notQuestions()
			if len(sent) == 0 {
				t.Fatalf("armed %v: nothing was sent: %v", armed, o.err)
			}
			if late := sent[0].at.Sub(b.start); late > 150*time.Millisecond {
				t.Errorf("armed %v: the first command of all went out after %v", armed, late)
			}
		})
	}
}

func TestAfterAnOutageOfSevenSecondsTheSameVehicleIsCommandedAtOnce(t *testing.T) {
	for _, armed := range []bool{false, true} {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, copterBeat(), func(b *lineBench) { b.boot = 5000 })
			b.script = func(uint16, int) {}
			b.shows(4, armed)
			b.settle()
			beat := b.beat
			b.change(func() { b.beat, b.deaf = nil, true })
			time.Sleep(7 * time.Second)
			b.change(func() { b.beat, b.boot = beat, b.boot+7000 })
			for !b.snapped().online {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
			lineEqual(t, fmt.Sprint("armed ", armed, ": proven, though it answers nothing"), b.snapped().doubt, nil)

			b.change(func() { b.boot = 100 })
			time.Sleep(1100 * time.Millisecond)
			lineEqual(t, "its clock ran back", code(b.snapped().doubt), codeOffline)
		})
	}
}

// Half of all frames are lost, in both directions: what makes a drone safe goes out all the same, and the proof comes.
// In one of these lines it comes later than a hold waits for it.
func TestWhereHalfOfAllFramesAreLostAHoldGoesOutAndTheProofComes(t *testing.T) {
	for seed := range uint64(walks(10)) {
		inLinkBubble(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1))
			b := newLineBench(t, copterBeat(), func(b *lineBench) {
				b.boot, b.loses = 5000, dice
				delete(b.params, "NAV_DLL_ACT") // it is asked for where the proof is late, and no Copter has it
			})
			b.script = func(uint16, int) {}
			b.shows(4, true)
			for !b.snapped().online {
				time.Sleep(time.Millisecond)
			}
			asked := time.Now()
			<-b.command(holdHere)
			if sent := b.notQuestions(); len(sent) == 0 || sent[0].at.Sub(asked) > familyWait+urgentKept {
				t.Errorf("seed %d: the hold went out at %v: %v", seed, asked, sent)
			}
			time.Sleep(15 * time.Second)
			lineEqual(t, fmt.Sprint("seed ", seed, ": proven"), b.snapped().doubt, nil)
		})
	}
}

// As INAV and Betaflight sign by default: autopilot 0.
func TestAForeignAutopilotIsReadAndNothingIsShownThatItMayMeanInAnotherWay(t *testing.T) {
	for _, answers := range []bool{false, true} {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, beatOf(common.MAV_AUTOPILOT_GENERIC, 0, false), func(b *lineBench) {
				b.deaf, b.params = !answers, nil
				b.served[idVersion] = &common.MessageAutopilotVersion{FlightSwVersion: 4<<24 | 7<<16}
			})
			time.Sleep(12 * time.Second)
			lineEqual(t, "battery, ahead of its first report", b.drone.status(netip.Addr{}).Battery, nil)
			b.say(&common.MessageGlobalPositionInt{Lat: 47e7, Lon: 8e7, Alt: 488000, RelativeAlt: 488090, Vz: 57})
			b.say(&common.MessageSysStatus{
				OnboardControlSensorsPresent: 7, OnboardControlSensorsEnabled: 7,
				BatteryRemaining: 100, CurrentBattery: -1,
			})
			time.Sleep(time.Millisecond)
			body := b.drone.status(netip.Addr{})
			lineEqual(t, "version", body.Vehicle.Version, nil)
			lineEqual(t, "unhealthy", len(body.Unhealthy), 0)
			lineEqual(t, "lost", body.Link.Lost, nil)
			for name, v := range map[string]number{
				"altitude": body.Position.Altitude, "down": body.Velocity.Down, "voltage": body.Battery.Voltage,
				"remaining": body.Battery.Remaining,
			} {
				lineEqual(t, name+" is unknown", math.IsNaN(float64(v)), true)
			}
			lineEqual(t, "altitude_msl", body.Position.AltitudeMSL, 488)
			b.say(&common.MessageSysStatus{VoltageBattery: 16200, BatteryRemaining: 60})
			time.Sleep(time.Millisecond)
			battery := b.drone.status(netip.Addr{}).Battery
			lineEqual(t, "a battery that is there", fmt.Sprint(battery.Voltage, battery.Remaining), "16.2 60")
			lineEqual(t, "link.error", body.Link.Error != nil, !answers)
			o := <-b.command(holdHere)
			lineEqual(t, "the 501", o.err.Error(), "this vehicle signs as autopilot generic, quadrotor, as INAV and "+
				"Betaflight do, and is neither PX4 nor ArduPilot Copter or Plane: its state can be read, not commanded")

			before := len(b.messages(isQuestion))
			time.Sleep(time.Minute)
			asked := len(b.messages(isQuestion)) - before - 60 // our heartbeats
			if !answers && asked > 12*10 {
				t.Errorf("one that answers nothing is asked %d times a minute", asked)
			}
			lineEqual(t, "sent and no question", len(b.notQuestions()), 0)
		})
	}
}

func TestAnAutopilotOfAKindThatMAVLinkLacksHasAStatusWhileNoOtherIsHeard(t *testing.T) {
	newKind := func(autopilot common.MAV_AUTOPILOT) *common.MessageHeartbeat {
		beat := beatOf(autopilot, 0, false)
		beat.Type = 250
		return beat
	}
	for _, c := range []struct {
		name      string
		beat      *common.MessageHeartbeat
		attitudes bool
		before    bool // a vehicle of a known kind is heard before
		want      byte // the system that is shown; 0: none
	}{
		{"ArduPilot with its attitude", newKind(common.MAV_AUTOPILOT_ARDUPILOTMEGA), true, false, 7},
		{"PX4 with its attitude", newKind(common.MAV_AUTOPILOT_PX4), true, false, 7},
		{"without: a router", newKind(common.MAV_AUTOPILOT_PX4), false, false, 0},
		{"another autopilot", newKind(common.MAV_AUTOPILOT_GENERIC), true, false, 0},
		{"beside a vehicle of a known kind", newKind(common.MAV_AUTOPILOT_PX4), true, true, 9},
	} {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, nil)
			send := func(beat *common.MessageHeartbeat, system byte, attitudes bool) {
				for i := range uint32(5) {
					b.sayFrom(system, 1, beat)
					if attitudes {
						b.sayFrom(system, 1, attitudeAt(1000*(i+1)))
					}
					time.Sleep(time.Second)
				}
			}
			if c.before {
				send(px4Beat(), 9, true)
			}
			send(c.beat, 7, c.attitudes)
			shown := byte(0)
			if s := b.snapped(); s.tel.beat.received() {
				shown = s.tel.id.system
			}
			lineEqual(t, c.name, shown, c.want)
			if c.want != 7 {
				return
			}
			o := <-b.command(holdHere)
			lineEqual(t, c.name+": a command", o.code(), codeUnsupported)
			send(px4Beat(), 9, true)
			s := b.snapped()
			lineEqual(t, c.name+": one of a known kind takes its place", s.tel.id.system, 9)
		})
	}
}
