package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// The words of testdata/flights.

type flightWord = scriptWord[*player]

var (
	flightTable *vocabulary[*player]
	flightOnce  sync.Once
)

func flightWords() *vocabulary[*player] {
	flightOnce.Do(func() {
		flightTable = newVocabulary("flights",
			section[*player]{"A client's commands, which must be accepted", false, requestWords()},
			section[*player]{"What else a client does, and time", false, clientWords()},
			section[*player]{"mavrest, the pilot, the autopilot and the line; " +
				"checks of what was sent look at what came since the last of these clauses", false, eventWords()},
			section[*player]{"The vehicle misbehaves", false, faultWords()},
			section[*player]{"Checks of what mavrest says", true, answerChecks()},
			section[*player]{"Checks of the vehicle", true, vehicleChecks()},
			section[*player]{"Checks of what was sent", true, wireChecks()},
			section[*player]{"Checks over time", true, timeChecks()},
		)
	})
	return flightTable
}

// done makes a word that can't be wrong of a function.
func done(do func(p *player, a []string)) func(*player, []string) string {
	return func(p *player, a []string) string {
		p.Helper()
		do(p, a)
		return ""
	}
}

// sim makes a word that changes the simulator of a function.
func changes(do func(s *simulator)) func(*player, []string) string {
	return done(func(p *player, _ []string) { p.sim.change(func() { do(p.sim) }) })
}

// unless is what is wrong if it is not ok.
func unless(ok bool, what string, now any) string {
	if ok {
		return ""
	}
	return strings.TrimPrefix(fmt.Sprintf("%s is %v", what, now), " is ")
}

func requestWords() []flightWord {
	asks := func(name string) func(*player, []string) string {
		return done(func(p *player, a []string) {
			path, body, err := clientRequest(append([]string{name}, a...))
			if err != nil {
				p.Fatal(err)
			}
			began := time.Now()
			p.answer = p.accepted(path, body)
			p.took = time.Since(began)
		})
	}
	return []flightWord{
		{"takeoff [N] [FIELD...]", "posts /takeoff; N is the altitude; other pairs are fields of the body",
			"takeoff 40 wait 60", asks("takeoff")},
		{"goto [N] [N] [FIELD...]", "posts /goto to a place in metres north and east of home",
			"goto 60 0 altitude 20 speed 2", asks("goto")},
		{"land [N] [N] [FIELD...]", "posts /land, here or at a place", "land 40 0", asks("land")},
		{"mode MODE [FIELD...]", "posts /mode", "mode position arm true", asks("mode")},
		{"arm [FIELD...]", "posts /mode with arm true", "arm", asks("arm")},
		{"disarm [FIELD...]", "posts /mode with arm false", "disarm", asks("disarm")},
		{"input FIELD...", "posts /input", "input pitch 0.5 timeout 2", asks("input")},
	}
}

func clientWords() []flightWord {
	return []flightWord{
		{"refused CODE REQUEST", "posts a command that must be answered with this error code",
			"refused no_ack goto 60 0", done(func(p *player, a []string) {
				path, body, _ := clientRequest(a[1:])
				began := time.Now()
				status, answer := p.call("POST", path, body)
				if p.answer = answer; !slices.Contains(errorContract[status], a[0]) || answer["code"] != a[0] {
					p.Fatalf("POST %s %s: %d %v, want %s", path, body, status, answer, a[0])
				}
				p.took = time.Since(began)
			})},
		{"post REQUEST", "posts a command and does not wait for the answer",
			"post goto 60 0", done(func(p *player, a []string) {
				path, body, _ := clientRequest(a)
				p.posts = append(p.posts, p.flight.post(path, body))
			})},
		{"answer CODE [TIME]", "the oldest post is answered with this code, within a time; ok: it is accepted; any: " +
			"it may be refused",
			"answer superseded 2s", done((*player).answered)},
		{"waits", "the last post is not answered yet",
			"waits", done(func(p *player, _ []string) { p.posts[len(p.posts)-1].stillWaits(p) })},
		{"entering MODE", "posts a mode, and waits until the vehicle enters it",
			"entering manual", done(func(p *player, a []string) { p.entering(a[0]) })},
		{"moves TIME", "moves the client's sticks at 10 Hz, until an input is refused",
			"moves 2s", done(func(p *player, a []string) {
				began := time.Now()
				p.answer = p.keepsMoving(p.duration(a[0]))
				p.took = time.Since(began)
			})},
		{"aloft", "takes off to 10 m, and waits there", "aloft", done(func(p *player, _ []string) { p.aloft() })},
		{"hover",
			"takes off to 20 m with the receiver in any state but, on PX4, in the pilot's hand, and waits there",
			"hover", done(func(p *player, _ []string) { p.hover() })},
		{"rise N", "takes off with the receiver in any state, and does not wait",
			"rise 40", done(func(p *player, a []string) { p.rise(p.number(a[0])) })},
		{"+TIME", "time passes", "+300ms", done(func(p *player, a []string) { time.Sleep(p.duration(a[0])) })},
		{"note", "remembers the height, for kept and rose",
			"note", done(func(p *player, _ []string) { p.noted = p.sim.truth().alt })},
		{"watch COMMAND N", "makes acked wait for the N-th ack of a command, counted from now",
			"watch DO_SET_MODE 2", done(func(p *player, a []string) { p.watch(p.id(a), int(p.number(a[1]))) })},
		{"acked", "waits for the ack that watch counts to", "acked",
			done(func(p *player, _ []string) { p.waitsForAck() })},
	}
}

// marks makes a word of a function, after which the checks of what was sent begin anew.
func marks(do func(p *player, a []string)) func(*player, []string) string {
	return done(func(p *player, a []string) {
		p.Helper()
		mark := time.Now()
		do(p, a)
		p.mark, p.seen = mark, len(p.sim.received())
	})
}

func eventWords() []flightWord {
	sim := func(do func(s *simulator)) func(*player, []string) string {
		return marks(func(p *player, _ []string) { p.sim.change(func() { do(p.sim) }) })
	}
	return []flightWord{
		{"mark", "nothing happens: the checks of what was sent begin here", "mark", marks(func(*player, []string) {})},
		{"stop", "mavrest ends", "stop", marks(func(p *player, _ []string) { p.stop() })},
		{"start", "another mavrest starts", "start", marks(func(p *player, _ []string) { p.anew() })},
		{"pilot MODE", "the pilot sets a mode, by the autopilot's name or by ours, or by PX4's numbers: 12.0",
			"pilot RTL", marks(func(p *player, a []string) { p.sim.pilotMode(numberOf(p, p.firmware, a[0])) })},
		{"pilot sticks X Y Z R",
			"the pilot moves his sticks, in thousandths: pitch, roll, throttle (500 is its middle), yaw",
			"pilot sticks 0 300 500 0", marks(func(p *player, a []string) {
				s := p.axes(a)
				p.sim.pilotSticks(s.x, s.y, s.z, s.r)
			})},
		{"pilot switch N MODE", "the pilot moves his mode switch, to a pulse in µs, which sets the mode",
			"pilot switch 1100 ALT_HOLD", marks(func(p *player, a []string) {
				p.sim.pilotSwitch(uint16(p.number(a[0])), numberOf(p, p.firmware, a[1]))
			})},
		{"pilot arms", "the pilot arms", "pilot arms", marks(func(p *player, _ []string) { p.sim.pilotArm(true) })},
		{"pilot disarms", "the pilot disarms", "pilot disarms",
			marks(func(p *player, _ []string) { p.sim.pilotArm(false) })},
		{"switches before the ack of COMMAND",
			"a pilot will switch to LOITER 0.1 s before this command is acknowledged",
			"switches before the ack of CONDITION_YAW",
			done(func(p *player, a []string) { p.pilotSwitchesAt(p.id(a)) })},
		{"taken over by MODE", "a pilot sets a mode of PX4; nothing is sent for 12 s, and the stream is parked",
			"taken over by RTL", done(func(p *player, a []string) {
				custom := numberOf(p, p.firmware, a[0])
				p.px4Takeover(custom, moment{}, func() { p.sim.pilotMode(custom) })
			})},
		{"transition KIND", "another program makes a VTOL of PX4 go over to wing or hover",
			"transition wing", marks(func(p *player, a []string) {
				to := map[string]common.MAV_VTOL_STATE{"wing": common.MAV_VTOL_STATE_FW,
					"hover": common.MAV_VTOL_STATE_MC}[a[0]]
				p.sim.change(func() { p.sim.brain.(*simPX4KindBrain).goOver(to) })
			})},
		{"failsafe", "a failsafe of the autopilot begins a return",
			"failsafe", marks(func(p *player, _ []string) { p.sim.failsafeReturn() })},
		{"reports a failsafe", "the autopilot says that a failsafe is active, and flies as before",
			"reports a failsafe", changes(func(s *simulator) { s.failsafe = true })},
		{"begins a failsafe", "PX4 begins a failsafe: it holds, and will return",
			"begins a failsafe", changes(func(s *simulator) { s.brain.(*simPX4Brain).beginFailsafe(simPX4RTL) })},
		{"restart", "the autopilot restarts in flight", "restart",
			marks(func(p *player, _ []string) { p.sim.reboot(true) })},
		{"pauses", "another program pauses a Copter's goto", "pauses", done(func(p *player, _ []string) {
			p.sim.change(func() { p.sim.brain.(*simArduBrain).paused = true })
		})},
		{"steers", "another program stops a Copter by velocities", "steers", done(func(p *player, _ []string) {
			p.sim.change(func() { p.sim.brain.(*simArduBrain).going = false })
		})},
		{"restart grounded", "the autopilot restarts on the ground at home",
			"restart grounded", marks(func(p *player, _ []string) { p.sim.reboot(false) })},
		{"receiver RECEIVER", "the receiver of the transmitter is none, lost, idle or in the pilot's hand",
			"receiver idle", marks(func(p *player, a []string) { p.sim.setReceiver(scriptReceivers[a[0]]) })},
		{"placed in the air", "the vehicle is 20 m up, and 2 s pass",
			"placed in the air", done(func(p *player, _ []string) {
				p.sim.placeInAir(20)
				time.Sleep(2 * time.Second)
			})},
		{"reported", "waits until a report shows the vehicle's mode", "reported", done(func(p *player, _ []string) {
			mark := p.reported(p.sim.truth().mode, time.Now().Add(-time.Millisecond), 1100*time.Millisecond)
			p.mark = mark // the report, which may have come a moment ago
			since := func(r simReceived) bool { return !r.at.Before(mark) }
			p.seen = len(slices.DeleteFunc(p.sim.received(), since))
		})},
		{"after the report", "waits until a Copter's report of its mode must have come",
			"after the report", done(func(p *player, _ []string) {
				time.Sleep(2*arduShows + p.sim.switches().delay)
				p.mark, p.seen = time.Now(), len(p.sim.received())
			})},
		{"unplug", "the line is unplugged", "unplug", marks(func(p *player, _ []string) { p.sim.unplug() })},
		{"plug", "the line is plugged in again", "plug", marks(func(p *player, _ []string) { p.sim.plug() })},
		{"mute", "nothing comes from the vehicle any more", "mute",
			sim(func(s *simulator) { s.switches().muted = true })},
		{"unmute", "what the vehicle sends comes again", "unmute",
			sim(func(s *simulator) { s.switches().muted = false })},
		{"delay TIME", "the line delays each message from the vehicle",
			"delay 60ms", marks(func(p *player, a []string) {
				p.sim.change(func() { p.sim.switches().delay = p.duration(a[0]) })
			})},
		{"slow TIME", "as delay, and mavrest has the time to measure it",
			"slow 60ms", marks(func(p *player, a []string) { p.slowly(p.duration(a[0]), 0) })},
		{"far TIME", "as slow, and what mavrest sends is as late",
			"far 60ms", marks(func(p *player, a []string) { p.slowly(p.duration(a[0]), p.duration(a[0])) })},
		{"param PARAMETER N", "a parameter of the autopilot changes",
			"param COM_RC_IN_MODE 4", marks(func(p *player, a []string) {
				p.sim.change(func() { p.sim.params[a[0]] = p.number(a[1]) })
			})},
		{"gps lost", "the GPS of an ArduPilot has no fix from now on", "gps lost",
			marks(func(p *player, _ []string) { p.sim.change(func() { p.sim.noGPS = time.Now() }) })},
		{"gps back", "the GPS of an ArduPilot has a fix again", "gps back",
			marks(func(p *player, _ []string) { p.sim.change(func() { p.sim.noGPS = time.Time{} }) })},
		{"home N", "another program moves a PX4's home up by N metres, until its next takeoff",
			"home 9", marks(func(p *player, a []string) {
				p.sim.change(func() { p.sim.homeUp = p.number(a[0]) })
			})},
		{"text WORDS", "the autopilot sends this STATUSTEXT",
			"text Battery failsafe", marks(func(p *player, a []string) {
				p.sim.change(func() { p.sim.sendText(common.MAV_SEVERITY_CRITICAL, strings.Join(a, " "), 0) })
			})},
		{"trouble SYSTEM [WORD...]", "PX4 can't be armed: this system is unhealthy (0: none is), and its checks " +
			"name the words",
			"trouble BATTERY Battery is low", marks(func(p *player, a []string) {
				p.sim.change(func() {
					p.sim.trouble = append(p.sim.trouble,
						scriptTrouble(a[0], strings.Join(a[1:], " ")))
				})
			})},
		{"trouble none", "PX4 can be armed again", "trouble none", sim(func(s *simulator) { s.trouble = nil })},
		{"clock N", "a message shows this boot clock, in ms", "clock 3", done(func(p *player, a []string) {
			p.sim.change(func() { p.sim.send(attitudeAt(uint32(p.number(a[0])))) })
		})},
		{"beats", "the vehicle sends a HEARTBEAT now", "beats", done(func(p *player, _ []string) {
			p.sim.change(func() { p.sim.send(p.sim.sharedMessage(0)) })
			synctest.Wait()
		})},
		{"station joins", "a QGroundControl connects to the autopilot",
			"station joins", changes(func(s *simulator) { s.foreignGCS = true })},
		{"station leaves", "that QGroundControl leaves", "station leaves",
			changes(func(s *simulator) { s.foreignGCS = false })},
		{"joystick as MESSAGE", "another program sends sticks for 5 s, and the vehicle forwards them as this message",
			"joystick as MANUAL_CONTROL", done(func(p *player, a []string) {
				forwarded := map[string]message.Message{
					"MANUAL_CONTROL": joystickSticks,
					"RC_CHANNELS_OVERRIDE": &common.MessageRcChannelsOverride{TargetSystem: 1, TargetComponent: 1,
						Chan1Raw: 1600},
				}[a[0]]
				if forwarded == nil {
					p.Fatalf("no sticks: %s", a[0])
				}
				p.joystick(forwarded)
			})},
		{"joystick meanwhile", "as joystick as MANUAL_CONTROL, and the script goes on",
			"joystick meanwhile", done(func(p *player, _ []string) { go p.joystick(joystickSticks) })},
	}
}

func faultWords() []flightWord {
	acks := func(result common.MAV_RESULT) func(*player, []string) string {
		return done(func(p *player, a []string) { p.failAcks(p.id(a), result) })
	}
	return []flightWord{
		{"fails COMMAND", "it refuses a command", "fails DO_REPOSITION",
			done(func(p *player, a []string) { p.fails(p.id(a)) })},
		{"nacks COMMAND", "it carries a command out, and refuses it in the ack",
			"nacks DO_REPOSITION", acks(common.MAV_RESULT_FAILED)},
		{"hides its kind", "a VTOL of PX4 reports vtol_state 0", "hides its kind",
			changes(func(s *simulator) { s.vtol = common.MAV_VTOL_STATE_UNDEFINED })},
		{"unknowns COMMAND", "it carries a command out, and acknowledges it as UNSUPPORTED",
			"unknowns DO_CHANGE_SPEED", acks(common.MAV_RESULT_UNSUPPORTED)},
		{"loses COMMAND... [N]", "it carries commands out, and their acks are lost; with N only the first ones",
			"loses DO_REPOSITION DO_SET_MODE", done((*player).losesAcks)},
		{"loses everything", "all acks are lost, also those of requests", "loses everything",
			changes(func(s *simulator) {
				s.switches().onAck = func(*common.MessageCommandAck) []simAnswer { return nil }
			})},
		{"accepts once COMMAND", "it accepts a command the next time, and refuses it from then on",
			"accepts once DO_SET_MODE", done(func(p *player, a []string) {
				id := p.id(a)
				p.acks(id, func(a *common.MessageCommandAck) []simAnswer {
					p.sim.switches().refuses[id] = true
					return []simAnswer{{ack: a}}
				})
			})},
		{"hides its takeoff", "the ack of a takeoff is lost, and each later arming or disarming is acknowledged as " +
			"failed",
			"hides its takeoff", done(func(p *player, _ []string) { p.hidesItsTakeoff() })},
		{"forbids MODE...", "it refuses these modes", "forbids POSCTL", done(func(p *player, a []string) {
			var modes []uint32
			for _, name := range a {
				modes = append(modes, numberOf(p, p.firmware, name))
			}
			p.forbids(modes...)
		})},
		{"silent TIME", "it sends nothing for this time after each mode that it enters",
			"silent 2s", done(func(p *player, a []string) {
				p.sim.change(func() {
					p.sim.switches().onMode = func(uint32) {
						p.sim.switches().muted = true
						p.sim.after(p.duration(a[0]), func() { p.sim.switches().muted = false })
					}
				})
			})},
		{"stops N", "it stops sending the message with this id", "stops 245", done(func(p *player, a []string) {
			p.sim.change(func() { p.sim.stream(uint32(p.number(a[0])), -1) })
		})},
		{"forgets its reports", "it stops sending the live reports of its mode",
			"forgets its reports", done(func(p *player, _ []string) { p.forgetsReports() })},
		{"heartless TIME", "it sends no heartbeats", "heartless 2500ms", done(func(p *player, a []string) {
			p.sim.change(func() { p.sim.switches().noBeatsUntil = time.Now().Add(p.duration(a[0])) })
		})},
		{"only acks", "it acknowledges commands, and does not carry them out", "only acks",
			changes(func(s *simulator) { s.switches().idle = true })},
		{"deaf", "it neither acknowledges commands nor carries them out; requests are answered",
			"deaf", done(func(p *player, _ []string) { p.ignores() })},
		{"forgets the source of sticks", "PX4 no longer knows whose sticks count",
			"forgets the source of sticks", changes(func(s *simulator) { s.brain.(*simPX4Brain).source = nil })},
		{"glimpses PREARM_CHECK", "PX4 shows a check before arming before it has run",
			"glimpses PREARM_CHECK", changes(func(s *simulator) { s.brain.(*simPX4Brain).glimpses = true })},
		{"cuts our stream", "mavrest's own stream of sticks ends, as if its board hung",
			"cuts our stream", done(func(p *player, _ []string) {
				p.drone.mu.Lock()
				defer p.drone.mu.Unlock()
				p.drone.sticks.phase = stickOff
				p.drone.link.setSticks(nil)
			})},
		{"recovers [COMMAND]", "all of these end, except forbids, stops and forgets; with a command its refusal ends",
			"recovers DO_REPOSITION", done(func(p *player, a []string) { p.recovers(a) })},
	}
}

func answerChecks() []flightWord {
	return []flightWord{
		{"is MODE", "the mode that is answered", "is hold", func(p *player, a []string) string {
			_, o := p.call("GET", "/mode", "")
			now := fmt.Sprint(o["mode"], ", of the vehicle ", o["vehicle_mode"])
			return unless(o["mode"] == a[0], "the mode", now)
		}},
		{"truth", "the mode and vehicle_mode that are answered are the vehicle's", "truth",
			func(p *player, _ []string) string {
				mode, name := p.firmware.reported(p.sim.truth().mode)
				_, o := p.call("GET", "/mode", "")
				ok := o["mode"] == mode.String() && o["vehicle_mode"] == name
				return unless(ok, "the vehicle's mode "+name+", and the answer", o)
			}},
		{"shown as it is", "the status says online, and the vehicle's real mode and arming", "shown as it is",
			(*player).shownAsItIs},
		{"fresh", "position, attitude and battery are not older than 0.6 s", "fresh",
			func(p *player, _ []string) string {
				for _, group := range []string{"position", "attitude", "battery"} {
					if age := p.status()[group].(object)["age"].(float64); age > 0.6 {
						return fmt.Sprintf("%s is %v s old", group, age)
					}
				}
				return ""
			}},
		{"done", "the manoeuvre is complete", "done", func(p *player, _ []string) string {
			return unless(p.status()["done"] == true, "done", p.status()["done"])
		}},
		{"status NAME WORDS", "a field of the status: its value, null, or a bound",
			"status target.distance < 2", func(p *player, a []string) string { return p.field(p.status(), a) }},
		{"its NAME WORDS", "a field of the last answer",
			"its command 400", func(p *player, a []string) string { return p.field(p.answer, a) }},
		{"says WORDS", "the last error has these words", "says newer command", func(p *player, a []string) string {
			text, words := fmt.Sprint(p.answer["error"]), strings.Join(a, " ")
			return unless(strings.Contains(text, words), "the error", text)
		}},
		{"says not: WORDS", "the last answer does not have these words", "says not: fence",
			func(p *player, a []string) string {
				text, words := fmt.Sprint(p.answer), strings.Join(a, " ")
				return unless(!strings.Contains(text, words), "the answer", text)
			}},
		{"messages N WORDS", "so many messages of the status have these words",
			"messages 1 undid", func(p *player, a []string) string {
				texts, words := fmt.Sprint(p.status()["messages"]), strings.Join(a[1:], " ")
				n := strings.Count(texts, words)
				return unless(n == int(p.number(a[0])), "the number of messages", fmt.Sprintf("%d: %s", n, texts))
			}},
		{"no input", "the client's sticks are refused", "no input", func(p *player, _ []string) string {
			synctest.Wait()
			p.refused("/input", `{"pitch":1,"throttle":0.5}`, 409, "wrong_mode")
			return ""
		}},
		{"took BOUND TIME", "how long the last answer took", "took < 2s", func(p *player, a []string) string {
			return p.bounded(p.took.Seconds(), []string{"took", a[0], fmt.Sprint(p.duration(a[1]).Seconds())})
		}},
		{"claims nothing", "no report of a mode is expected any more", "claims nothing",
			func(p *player, _ []string) string {
				p.drone.mu.Lock()
				defer p.drone.mu.Unlock()
				sent := p.drone.machine.claims
				return unless(sent == nil, "what is expected", sent)
			}},
	}
}

func vehicleChecks() []flightWord {
	measure := func(name, means, example string, of func(p *player, s simState) float64) flightWord {
		return flightWord{name + " BOUND LIMIT", means, example, func(p *player, a []string) string {
			return p.bounded(of(p, p.sim.truth()), append([]string{name}, a...))
		}}
	}
	return []flightWord{
		{"in MODE", "the vehicle's real mode", "in AUTO.LOITER", func(p *player, a []string) string {
			mode := p.sim.truth().mode
			_, name := p.firmware.reported(mode)
			return unless(mode == numberOf(p, p.firmware, a[0]), "the vehicle's mode", name)
		}},
		{"armed", "it is armed", "armed",
			func(p *player, _ []string) string { return unless(p.sim.truth().armed, "armed", false) }},
		{"disarmed", "it is disarmed", "disarmed",
			func(p *player, _ []string) string { return unless(!p.sim.truth().armed, "armed", true) }},
		{"failing", "a failsafe is active", "failing",
			func(p *player, _ []string) string { return unless(p.sim.truth().failsafe, "failing", false) }},
		{"at N N N [±N]", "its place: metres north, east and up; within 0.5 m if nothing is said", "at 60 0 10 ±1",
			(*player).isAt},
		measure("alt", "metres above home; a bound is < 3, > 3 or 3 ±0.5", "alt > 10",
			func(_ *player, s simState) float64 { return s.alt }),
		measure("above", "metres above the ground below it", "above < 0.4",
			func(_ *player, s simState) float64 { return s.above }),
		measure("north", "metres north of home", "north > 24",
			func(_ *player, s simState) float64 { n, _ := simMetres(s.lat, s.lon); return n }),
		measure("east", "metres east of home", "east < 1",
			func(_ *player, s simState) float64 { _, e := simMetres(s.lat, s.lon); return e }),
		measure("climb", "metres a second up", "climb > 1", func(_ *player, s simState) float64 { return -s.vd }),
		measure("speed", "metres a second over ground", "speed < 0.5",
			func(_ *player, s simState) float64 { return math.Hypot(s.vn, s.ve) }),
		measure("vn", "metres a second to the north", "vn > 1.5", func(_ *player, s simState) float64 { return s.vn }),
		measure("ve", "metres a second to the east", "ve > 1.5", func(_ *player, s simState) float64 { return s.ve }),
		measure("heading", "degrees", "heading 90 ±2", func(_ *player, s simState) float64 { return s.heading }),
		measure("rose", "metres up since note", "rose 4 ±0.6",
			func(p *player, s simState) float64 { return s.alt - p.noted }),
		{"kept N", "the height is the noted one, within so many metres", "kept 0.3",
			func(p *player, a []string) string {
				alt := p.sim.truth().alt
				now := fmt.Sprint(alt, ", noted ", p.noted)
				return unless(math.Abs(alt-p.noted) <= p.number(a[0]), "the height", now)
			}},
		{"held", "it flies in GUIDED or BRAKE", "held", func(p *player, _ []string) string {
			s := p.sim.truth() // without a receiver a failsafe follows later
			return unless(s.mode == simArduGuided || s.mode == copterBrake, "the mode's number", s.mode)
		}},
		{"on propellers", "a QuadPlane obeyed, and its mode does not fly on the wing", "on propellers",
			(*player).onPropellers},
		{"circles N", "a fixed wing circles round a place so many metres north of home",
			"circles 600", func(p *player, a []string) string { p.circles(p.number(a[0])); return "" }},
		{"pilot's sticks act", "the pilot's sticks are full forward, and they fly", "pilot's sticks act",
			func(p *player, _ []string) (wrong string) {
				p.sim.change(func() {
					if x, y, _, _ := p.sim.obeyedAxes(); x != 1 || y != 0 {
						wrong = fmt.Sprintf("the vehicle's sticks are not the pilot's, but %g forward, %g right", x, y)
					}
				})
				return wrong
			}},
	}
}

func wireChecks() []flightWord {
	since := func(p *player) []string { return commandsOf(p.sim.received()[p.seen:]) }
	return []flightWord{
		{"hands off", "no command was sent", "hands off", func(p *player, _ []string) string {
			return unless(len(since(p)) == 0, "", since(p))
		}},
		{"sent WORDS", "these are all commands that were sent, with | between: the MAV_CMD's number and two " +
			"parameters, or frame and z of a COMMAND_INT, which may be 0.15 m off",
			"sent 176 1 4 | 192 frame 3 z 20.0", func(p *player, a []string) string {
				return unless(sameCommands(since(p), strings.Split(strings.Join(a, " "), " | ")), "", since(p))
			}},
		{"sends WORDS", "this is one of the commands that were sent", "sends 400 1 0",
			func(p *player, a []string) string {
				one := func(c string) bool { return sameCommands([]string{c}, []string{strings.Join(a, " ")}) }
				return unless(slices.ContainsFunc(since(p), one), "", since(p))
			}},
		{"apart COMMAND TIME", "in the whole flight the command went out twice or more, never sooner after the last " +
			"time", "apart DO_SET_MODE 20ms",
			func(p *player, a []string) string { return p.apart(p.id(a), p.duration(a[1])) }},
		{"requests all streams", "each stream was requested", "requests all streams",
			func(p *player, _ []string) string {
				n := p.asksForStreams(p.mark)
				return unless(n >= len(streams), "the number of requests", n)
			}},
		{"requests a stream", "some stream was requested", "requests a stream", func(p *player, _ []string) string {
			return unless(p.asksForStreams(p.mark) > 0, "the number of requests", 0)
		}},
		{"streams", "some sticks are streamed now", "streams", func(p *player, _ []string) string {
			_, streams := p.streamed()
			return unless(streams, "", "nothing is streamed")
		}},
		{"sticks X Y Z R", "these sticks are streamed now", "sticks 0 0 500 0", func(p *player, a []string) string {
			last, streams := p.streamed()
			return unless(streams && last == p.axes(a), "what is streamed", last)
		}},
		{"stream X Y Z R", "these are the only sticks that were streamed", "stream 0 0 500 0",
			func(p *player, a []string) string {
				got := p.stream(p.mark.Add(time.Millisecond))
				return unless(slices.Equal(got, []axes{p.axes(a)}), "", got)
			}},
		{"stream nothing", "no sticks were streamed", "stream nothing", func(p *player, _ []string) string {
			got := p.stream(p.mark.Add(time.Millisecond))
			return unless(len(got) == 0, "", got)
		}},
		{"stream centred", "sticks were streamed, none with pitch", "stream centred",
			func(p *player, _ []string) string {
				list := p.stream(p.mark)
				pitched := slices.ContainsFunc(list, func(a axes) bool { return a.x != 0 && a.x != math.MaxInt16 })
				return unless(len(list) > 0 && !pitched, "", list)
			}},
		{"stream unmoved", "the stream did not pause for 0.1 s, and its sticks did not move", "stream unmoved",
			(*player).streamUnmoved},
		{"stream only released", "what was streamed after the report releases the sticks", "stream only released",
			func(p *player, _ []string) string {
				_, sticks := p.flight.sent(p.mark)
				late := sticks[min(len(sticks), 15):] // the first 15 may have been sent before the report
				moved := slices.ContainsFunc(late, func(a axes) bool { return a != released })
				return unless(!moved, "", late)
			}},
		{"streamed N", "at least so many stick messages were sent", "streamed 10", func(p *player, a []string) string {
			n := len(p.sticksSince(p.mark))
			return unless(n >= int(p.number(a[0])), "the number of stick messages", n)
		}},
		{"ends released", "the last sticks that were sent release them", "ends released",
			func(p *player, _ []string) string { return p.endsWith(&released) }},
		{"ends centred", "the last sticks that were sent are centred", "ends centred",
			func(p *player, _ []string) string { return p.endsWith(&axes{z: 500}) }},
		{"ends silent", "no sticks were sent", "ends silent",
			func(p *player, _ []string) string { return p.endsWith(nil) }},
		{"sticks come from N", "sticks came from this system id, and nothing else did", "sticks come from 42",
			func(p *player, a []string) string { return p.sticksComeFrom(byte(p.number(a[0]))) }},
		{"station heartbeats none", "mavrest sent no heartbeat as a ground station", "station heartbeats none",
			func(p *player, _ []string) string { return p.stationBeats(0, 0) }},
		{"station heartbeats some", "mavrest sent ten or more heartbeats as a ground station",
			"station heartbeats some",
			func(p *player, _ []string) string { return p.stationBeats(10, 1000) }},
	}
}

func timeChecks() []flightWord {
	return []flightWord{
		{"not CHECK", "the check fails", "not armed", func(p *player, a []string) string {
			return unless(p.checks(a) != "", strings.Join(a, " "), "so")
		}},
		{"until CHECK TIME", "waits until a check passes, this time at most", "until disarmed 60s",
			func(p *player, a []string) string {
				limit := p.duration(a[len(a)-1])
				for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
					wrong := p.checks(a[:len(a)-1])
					if wrong == "" {
						return ""
					}
					if time.Now().After(end) {
						p.Fatalf("wanted: %s\nseen:   %s", p.clause, wrong)
					}
				}
			}},
		{"stays TIME CHECK", "repeats a check each 100 ms", "stays 10s is manual",
			func(p *player, a []string) (wrong string) {
				for end := time.Now().Add(p.duration(a[0])); time.Now().Before(end) &&
					wrong == ""; time.Sleep(100 * time.Millisecond) {
					wrong = p.checks(a[1:])
				}
				return wrong
			}},
		{"comes back DIRECTION BOUND LIMIT",
			"in 30 s it comes back so far from its furthest point to the north, south or up",
			"comes back north < 6", (*player).comesBack},
		{"past BOUND LIMIT", "in the last comes back: how far it first went on", "past 12 ±1",
			func(p *player, a []string) string { return p.bounded(p.past, append([]string{"past"}, a...)) }},
		{"strayed BOUND LIMIT", "in the last comes back: its largest difference in height", "strayed < 1",
			func(p *player, a []string) string { return p.bounded(p.strayed, append([]string{"strayed"}, a...)) }},
		{"fastest TIME BOUND LIMIT", "the highest speed over ground in this time", "fastest 10s 4 ±0.3",
			(*player).fastest},
		{"sideways TIME BOUND LIMIT", "how far it flies sideways in this time, less than 2 m above the ground",
			"sideways 10s < 0.1", (*player).sideways},
	}
}

// sameCommands compares lists of commands. The height of a COMMAND_INT was measured: it may differ by 0.15 m.
func sameCommands(got, want []string) bool {
	return slices.EqualFunc(got, want, func(g, w string) bool {
		command, z, isInt := strings.Cut(g, " z ")
		wanted, wantedZ, wantsInt := strings.Cut(w, " z ")
		var height, wantedHeight float64
		fmt.Sscan(z, &height)
		fmt.Sscan(wantedZ, &wantedHeight)
		return command == wanted && isInt == wantsInt && math.Abs(height-wantedHeight) < 0.151
	})
}

// entering posts a mode, and waits until the vehicle enters it.
func (p *player) entering(mode string) {
	in := make(chan struct{})
	p.sim.change(func() { p.sim.switches().onMode = func(uint32) { close(in); p.sim.switches().onMode = nil } })
	p.posts = append(p.posts, p.flight.post("/mode", `{"mode":"`+mode+`"}`))
	<-in
}

// waitsForAck waits for the ack that watch counts to.
func (p *player) waitsForAck() {
	p.Helper()
	select {
	case <-p.acked:
	case <-time.After(30 * time.Second):
		p.Fatalf("wanted: %s\nseen:   no ack in 30 s", p.clause)
	}
}

// hidesItsTakeoff loses the takeoff's ack, and acknowledges each later arming or disarming as failed.
func (p *player) hidesItsTakeoff() {
	takesOff := false
	p.sim.change(func() {
		p.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
			switch {
			case a.Command == common.MAV_CMD_NAV_TAKEOFF:
				takesOff = true
				return nil
			case a.Command == common.MAV_CMD_COMPONENT_ARM_DISARM && takesOff:
				a.Result = common.MAV_RESULT_FAILED
			}
			return []simAnswer{{ack: a}}
		}
	})
}

// forgetsReports ends the live reports of the vehicle's mode.
func (p *player) forgetsReports() {
	p.mark = time.Now()
	p.sim.change(func() {
		if b, ok := p.sim.brain.(*simPX4Brain); ok {
			b.every = -1
			return
		}
		p.sim.streamOn(false, 0, time.Second)
	})
}

// recovers ends what the vehicle does wrong, or the refusal of one command.
func (p *player) recovers(a []string) {
	s := p.sim
	if len(a) == 1 {
		id := p.id(a)
		s.change(func() { delete(s.switches().refuses, id) })
		return
	}
	s.change(func() {
		w := s.switches()
		w.idle = false
		w.onAck = nil
		w.onMode = nil
		w.noBeatsUntil = time.Time{}
		clear(w.refuses)
	})
}

// shownAsItIs checks that the status shows the vehicle.
func (p *player) shownAsItIs([]string) string {
	o, truth := p.status(), p.sim.truth()
	reported, name := p.firmware.reported(truth.mode)
	if o["vehicle_mode"] != name || o["armed"] != truth.armed || o["online"] != true {
		return fmt.Sprintf("the status shows %v, armed %v, online %v; the vehicle is in %s, armed %v",
			o["vehicle_mode"], o["armed"], o["online"], name, truth.armed)
	}
	// docs/design.md, rule 1
	if manual := !truth.armed && o["mode"] == "manual"; o["mode"] != reported.String() && !manual {
		return fmt.Sprintf("mode is %v; %v is reported", o["mode"], reported)
	}
	return ""
}

// onPropellers checks that a QuadPlane obeyed, or refused, in a mode that does not fly on the wing.
func (p *player) onPropellers([]string) string {
	onTheWing := []uint32{0, 6, simPlaneGuided, simPlaneRTL, simPlaneTakeoff} // 0: MANUAL, 6: FBWB
	mode, code := p.sim.truth().mode, p.answer["code"]
	if code == "no_ack" || code == nil && slices.Contains(onTheWing, mode) {
		return fmt.Sprintf("%v; it is in mode %d at %.0f m/s", p.answer, mode, p.speed())
	}
	return ""
}

// isAt checks a place.
func (p *player) isAt(a []string) string {
	s := p.sim.truth()
	n, e := simMetres(s.lat, s.lon)
	within := 0.5
	if len(a) == 4 {
		within = p.number(strings.TrimPrefix(a[3], "±"))
	}
	for i, is := range []float64{n, e, s.alt} {
		if !differsLittle(is, p.number(a[i]), within) {
			return fmt.Sprintf("it is %.1f m north, %.1f m east, %.1f m up", n, e, s.alt)
		}
	}
	return ""
}

// comesBack checks how far the vehicle comes back in 30 s from its furthest point to the north, to the south or
// up.
func (p *player) comesBack(w []string) string {
	along := func() float64 {
		s := p.sim.truth()
		n, _ := simMetres(s.lat, s.lon)
		return map[string]float64{"north": n, "south": -n, "up": s.alt}[w[0]]
	}
	from, height := along(), p.sim.truth().alt
	furthest := from
	p.strayed = 0
	for range 300 {
		time.Sleep(100 * time.Millisecond)
		p.strayed = max(p.strayed, math.Abs(p.sim.truth().alt-height))
		furthest = max(furthest, along())
	}
	p.past = furthest - from
	return p.bounded(furthest-along(), w)
}

// fastest checks the highest speed over ground in a time.
func (p *player) fastest(w []string) string {
	most := 0.0
	for end := time.Now().Add(p.duration(w[0])); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		most = max(most, p.speed())
	}
	return p.bounded(most, w)
}

// sideways checks how far the vehicle flies sideways in a time, while it is below 2 m.
func (p *player) sideways(w []string) string {
	p.Helper()
	place := func() (n, e, up float64) {
		s := p.sim.truth()
		n, e = simMetres(s.lat, s.lon)
		return n, e, s.above
	}
	n0, e0, _ := place()
	most := 0.0
	for end := time.Now().Add(p.duration(w[0])); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n, e, up := place(); up < 2 {
			most = max(most, math.Hypot(n-n0, e-e0))
		}
	}
	return p.bounded(most, w)
}

// bounded checks a number by a clause: "x < 3", "x > 3" or "x 3 ±0.5".
func (p *player) bounded(is float64, w []string) string {
	p.Helper()
	ok := false
	switch bound := strings.TrimPrefix(w[2], "±"); w[1] {
	case "<":
		ok = is < p.number(bound)
	case ">":
		ok = is > p.number(bound)
	default:
		ok = math.Abs(is-p.number(w[1])) <= p.number(bound)
	}
	return unless(ok, "it", fmt.Sprintf("%.2f", is))
}

// field checks a field of an object: its value, or a bound with < or >.
func (p *player) field(o object, w []string) string {
	p.Helper()
	var v any = o
	for key := range strings.SplitSeq(w[0], ".") {
		group, _ := v.(object)
		v = group[key]
	}
	now := strings.Replace(fmt.Sprint(v), "<nil>", "null", 1)
	ok := now == strings.Join(w[1:], " ")
	if len(w) == 3 && (w[1] == "<" || w[1] == ">") {
		is, known := v.(float64)
		ok = known && p.bounded(is, w) == ""
	}
	return unless(ok, w[0], now)
}

// apart checks that a command went out twice or more in the flight, never sooner than least after the last time.
func (p *player) apart(id common.MAV_CMD, least time.Duration) string {
	var last time.Time
	n := 0
	for _, r := range p.sim.received() {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == id {
			if n++; r.at.Sub(last) < least {
				return fmt.Sprintf("two are %v apart", r.at.Sub(last))
			}
			last = r.at
		}
	}
	return unless(n >= 2, "their number", n)
}

// streamUnmoved checks the stream since the mark.
func (p *player) streamUnmoved([]string) string {
	sticks := p.sticksSince(p.mark)
	for i, s := range sticks {
		if i > 0 && s.at.Sub(sticks[i-1].at) > 100*time.Millisecond {
			return fmt.Sprintf("the stream paused for %v", s.at.Sub(sticks[i-1].at))
		}
		if m := s.msg.(*common.MessageManualControl); *m != *sticks[0].msg.(*common.MessageManualControl) {
			return fmt.Sprintf("the parked sticks moved: %+v", m)
		}
	}
	return ""
}

// endsWith checks the last sticks since the mark. A nil want means that there are none.
func (p *player) endsWith(want *axes) string {
	_, sticks := p.flight.sent(p.mark)
	if want == nil && len(sticks) > 0 || want != nil && (len(sticks) == 0 || sticks[len(sticks)-1] != *want) {
		return fmt.Sprintf("%d sticks, the last ones %+v", len(sticks), slices.Compact(sticks))
	}
	return ""
}

// sticksComeFrom checks which system id our sticks have, and that nothing else has it.
func (p *player) sticksComeFrom(system byte) string {
	for _, r := range p.sim.received() {
		if _, sticks := r.msg.(*common.MessageManualControl); sticks != (r.system == system) ||
			r.component != componentID {
			return fmt.Sprintf("%T came from %d/%d", r.msg, r.system, r.component)
		}
	}
	return ""
}

// clientRequest returns the path and the body of a client's command.
func clientRequest(w []string) (path, body string, err error) {
	if len(w) == 0 {
		return "", "", fmt.Errorf("no such request: nothing")
	}
	verb, rest := w[0], w[1:]
	var fields []string
	numbers := 0
	for numbers < len(rest) && isNumber(rest[numbers]) {
		numbers++
	}
	switch {
	case verb == "takeoff" && numbers == 1:
		fields, rest = append(fields, `"altitude":`+rest[0]), rest[1:]
	case (verb == "goto" || verb == "land") && numbers == 2:
		var north, east float64
		fmt.Sscan(rest[0], &north)
		fmt.Sscan(rest[1], &east)
		fields, rest = append(fields, at(north, east)), rest[2:]
	case verb == "mode" && len(rest) > 0:
		fields, rest = append(fields, `"mode":"`+rest[0]+`"`), rest[1:]
	case verb == "arm" || verb == "disarm":
		fields = append(fields, fmt.Sprintf(`"arm":%v`, verb == "arm"))
		verb = "mode"
	case !slices.Contains([]string{"takeoff", "goto", "land", "input"}, verb):
		return "", "", fmt.Errorf("no such request: %q", strings.Join(w, " "))
	case numbers > 0:
		return "", "", fmt.Errorf("%q: too few or too many numbers", strings.Join(w, " "))
	}
	if len(rest)%2 != 0 {
		return "", "", fmt.Errorf("%q: a field and its value come together", strings.Join(w, " "))
	}
	for ; len(rest) > 0; rest = rest[2:] {
		fields = append(fields, fmt.Sprintf("%q:%s", rest[0], rest[1]))
	}
	return "/" + verb, "{" + strings.Join(fields, ",") + "}", nil
}

// answered waits for the answer of the oldest post.
func (p *player) answered(w []string) {
	p.Helper()
	if len(p.posts) == 0 {
		p.Fatalf("%s: nothing was posted", p.clause)
	}
	limit := 10 * time.Minute
	if len(w) > 1 {
		limit = p.duration(w[1])
	}
	post := p.posts[0]
	p.posts = p.posts[1:]
	select {
	case <-post.over:
	case <-time.After(limit):
		p.Fatalf("wanted: %s\nseen:   no answer in %v", p.clause, limit)
	}
	p.answer, p.took = post.answer, post.answered.Sub(post.asked)
	switch code, _ := p.answer["code"].(string); {
	case w[0] != "any" && cmp.Or(code, "ok") != w[0]:
		p.Errorf("wanted: %s\nseen:   %d %v", p.clause, post.code, p.answer)
	case code != "":
		if post.want(p, post.code, code); !slices.Contains(errorContract[post.code], code) {
			p.Errorf("%d with code %s is not in the contract", post.code, code)
		}
	case p.answer["done"] != nil:
		post.want(p, 200, "")
	}
}
