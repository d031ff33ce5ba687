package main

// Commands to an autopilot that follows the test's script: acks, repeats, requests for a
// report, whose turn it is, and what a report proves.

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// requests returns the times at which a report was requested, counted from began.
func (b *lineBench) requests(began time.Time) (after []time.Duration) {
	for _, m := range b.commands(common.MAV_CMD_REQUEST_MESSAGE) {
		if c := m.msg.(*common.MessageCommandLong); c.Param1 == float32(idHeartbeat) && !m.at.Before(began) {
			lineEqual(b.t, "its confirmation, and to whom", [2]byte{c.Confirmation, c.TargetSystem}, [2]byte{0, 1})
			after = append(after, m.at.Sub(began))
		}
	}
	return after
}

// wantFewRequests checks that reports were requested at the beginning and at most every 20 ms after it.
// Two more are allowed: at the ack, and when the step began to wait.
func (b *lineBench) wantFewRequests(began time.Time, took time.Duration) {
	b.t.Helper()
	list := slices.DeleteFunc(b.requests(began), func(at time.Duration) bool { return at > took })
	if most := int(took/reportAgain) + 1 + sendings; len(list) == 0 || len(list) > most {
		b.t.Errorf("in %v reports were requested %d times, want 1 to %d: %v", took, len(list), most, list)
	}
}

// sendings is how often an unanswered command is sent on a fast line.
const sendings = 7

func TestACommandIsRepeatedEach300MillisecondsWithItsConfirmationRisingAndGivenUpAfterTwoSeconds(t *testing.T) {
	onBoth(t, func(t *testing.T, b *lineBench, v firmware) {
		began := time.Now()
		o := <-b.command(armIt)
		lineEqual(t, "code", o.code(), codeNoAck)
		lineEqual(t, "time until the answer", o.took, giveUp)
		sends := b.commands(common.MAV_CMD_COMPONENT_ARM_DISARM)
		lineEqual(t, "sends", fmt.Sprint(sentAfter(sends)), "[0s 300ms 600ms 900ms 1.2s 1.5s 1.8s]")
		for i, m := range sends {
			c := m.msg.(*common.MessageCommandLong)
			lineEqual(t, "confirmation", c.Confirmation, uint8(i))
			lineEqual(t, "target", [2]byte{c.TargetSystem, c.TargetComponent}, [2]byte{1, 1})
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{1, componentID})
		}
		b.wantFewRequests(began, o.took)
	})
}

func TestAPlaceGoesOutAsCommandIntAndIsRepeatedUnchanged(t *testing.T) {
	for name, beat := range map[string]*common.MessageHeartbeat{"px4": px4Beat(), "copter": copterBeat()} {
		t.Run(name, func(t *testing.T) {
			onLine(t, beat, func(t *testing.T, b *lineBench) {
				b.inTheAir()
				lat, lon := 47.3979216, 8.5456789
				began := time.Now()
				o := <-b.command(request{verb: goesTo, lat: &lat, lon: &lon})
				lineEqual(t, "code", o.code(), codeNoAck)
				// Before its ack no report proves a goto: one is requested for each copy, which follows it.
				reports := slices.DeleteFunc(b.requests(began), func(at time.Duration) bool { return at >= o.took })
				if most := 2*sendings + int(o.took/pollArmed); len(reports) > most {
					t.Errorf("reports were requested at %v", reports)
				}
				sends := b.commands(common.MAV_CMD_DO_REPOSITION)
				lineEqual(t, "sends", fmt.Sprint(sentAfter(sends)), "[0s 300ms 600ms 900ms 1.2s 1.5s 1.8s]")
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

// What was heard before the first copy went out answers something else: a late ack, or another program's command.
func TestAnAckFromBeforeTheFirstCopyAnswersNothing(t *testing.T) {
	for _, result := range []common.MAV_RESULT{common.MAV_RESULT_ACCEPTED, common.MAV_RESULT_FAILED} {
		now := time.Unix(1000, 0)
		a := newAcks(new(link), &telemetry{})
		arm := copter.armDisarm(true)
		c := &command{step: &arm}

		a.hear(arm.cmd, uint8(result), now)
		lineEqual(t, fmt.Sprint(result, " before a copy went out"), c.answered(), false)

		c.copies, c.sentAt = 1, now
		a.waiting[arm.cmd] = c
		a.hear(arm.cmd, uint8(result), now.Add(-time.Millisecond))
		lineEqual(t, fmt.Sprint(result, " heard before the first copy, and read after it"), c.answered(), false)

		a.hear(arm.cmd, uint8(result), now.Add(50*time.Millisecond))
		lineEqual(t, fmt.Sprint(result, " after it"), c.answered(), true)

		// An acceptance is as late as the line takes.
		took := map[bool]time.Duration{true: 50 * time.Millisecond}[result == common.MAV_RESULT_ACCEPTED]
		lineEqual(t, fmt.Sprint(result, ": the round trip"), a.roundTrip(), took)
		lineEqual(t, fmt.Sprint(result, ": the line's longest"), a.link.lag.trip(), took)
	}
}

// On a late line a report that left between two copies comes after the second one.
func TestAReportFromBeforeTheNewestCopyShowsWhatTheFirstOneDid(t *testing.T) {
	arm := copter.armDisarm(true)
	c := &command{step: &arm, copies: 2, sentAt: epoch, triedAt: epoch.Add(copyEvery)}
	c.see(report{shownMode: shownMode{armed: true, at: epoch.Add(-ms(1))}})
	lineEqual(t, "a report from before the first copy shows it", c.seen, false)
	c.see(report{shownMode: shownMode{armed: true, at: epoch.Add(ms(100))}})
	lineEqual(t, "one from between two copies does", c.seen, true)
}

// An ack may arrive before the function that sent the command has returned.
func TestAnAckAtOnceIsNotMissed(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		b.follow(func(id uint16, _ int) { b.say(&common.MessageCommandAck{Command: common.MAV_CMD(id)}) })
		lat, lon := 47.3979216, 8.5456789
		o := <-b.command(request{verb: goesTo, lat: &lat, lon: &lon})
		lineEqual(t, "error", o.err, nil)
		lineEqual(t, "time until the answer", o.took, time.Duration(0))
	})
}

func TestOnlyTheVehiclesOwnAckOfThisCommandToUsCounts(t *testing.T) {
	for _, c := range []struct {
		name              string
		system, component byte
		ack               common.MessageCommandAck
		counts            bool
	}{
		{"to us", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: componentID}, true},
		{"without a target", 1, 1, common.MessageCommandAck{Command: 400}, true},
		{"from another system", 2, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1,
			TargetComponent: componentID}, false},
		{"from another component", 1, 154, common.MessageCommandAck{Command: 400, TargetSystem: 1,
			TargetComponent: componentID}, false},
		{"of another command", 1, 1, common.MessageCommandAck{Command: 176, TargetSystem: 1,
			TargetComponent: componentID}, false},
		{"to a ground station", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 255, TargetComponent: 190},
			false},
		{"to another component", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 1, TargetComponent: 190},
			false},
		{"to another system's companion", 1, 1, common.MessageCommandAck{Command: 400, TargetSystem: 2,
			TargetComponent: componentID}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				// armed already: a report proves nothing
				b := newLineBench(t, beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 4, true))
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

func TestALateAckOfASupersededCommandDoesNotAnswerTheNextOneWithItsMAVCMD(t *testing.T) {
	for name, acks := range map[string][2]common.MAV_RESULT{
		"accepted": {ackAccepted, ackFailed}, "refused": {ackFailed, ackAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
				b.follow(func(id uint16, try int) { b.ack(300*time.Millisecond, id, acks[min(try, 1)]) })
				first := b.command(request{verb: entersMode, mode: ModeRTL, arm: &yes})
				time.Sleep(200 * time.Millisecond)
				second := b.command(request{verb: entersMode, mode: ModeHold})
				o := <-first
				lineEqual(t, "the first command's code", o.code(), codeSuperseded)
				o = <-second
				want := codeRefused
				if acks[1] == ackAccepted {
					want = ""
				}
				lineEqual(t, "the second command's code", o.code(), want)
			})
		})
	}
}

// ---- Acks that may come late ----

func TestACommandWaitsAfterOneWithTheSameMAVCMDThatWasRepeatedOrNotAnswered(t *testing.T) {
	const speed = common.MAV_CMD_DO_CHANGE_SPEED
	inLinkBubble(t, func(t *testing.T) {
		l := newLink(device{}, 0, false, slog.Default(), events{})
		l.writer = &writer{queue: make(chan outgoing, 20)}
		a := newAcks(l, &telemetry{})
		s := step{cmd: speed}
		for _, c := range []struct {
			copies int
			acks   []common.MAV_RESULT
			want   time.Duration
		}{
			{1, nil, time.Second},
			{1, []common.MAV_RESULT{ackAccepted}, 0},
			{1, []common.MAV_RESULT{ackFailed}, 0},
			{1, []common.MAV_RESULT{ackInProgress}, time.Second},
			{2, []common.MAV_RESULT{ackAccepted}, time.Second},
		} {
			x := &command{step: &s}
			for range c.copies {
				time.Sleep(copyEvery)
				a.send(x)
			}
			for _, result := range c.acks {
				a.hear(speed, uint8(result), time.Now())
			}
			a.close(x)
			lineEqual(t, fmt.Sprint("the next one may go after ", c), max(0, time.Until(a.lateUntil(speed))), c.want)
			was := *x
			a.hear(speed, uint8(ackAccepted), time.Now())
			lineEqual(t, fmt.Sprint("when it is over a late ack still counts of ", c), *x != was, false)
			time.Sleep(2 * lateAck)
		}

		// The round trip that counts is the one of now: behind an outage it falls at once.
		x := &command{step: &s}
		a.send(x)
		a.trip = 8 * time.Second
		a.close(x)
		lineEqual(t, "the next one may go on a slow line after", time.Until(a.lateUntil(speed)), a.copyGap())
		a.trip = 0
		lineEqual(t, "the next one may go on a quick line after", time.Until(a.lateUntil(speed)), lateAck)
		time.Sleep(2 * lateAck)

		x = &command{step: &s}
		l.writer = &writer{queue: make(chan outgoing)}
		lineEqual(t, "a full queue is an error", a.send(x) != nil, true)
		a.hear(speed, uint8(ackAccepted), time.Now())
		lineEqual(t, "an ack answers what never went out", x.answered(), false)
		a.close(x)
		lineEqual(t, "the next one waits for an ack of what never went out", time.Until(a.lateUntil(speed)) > 0, false)
		l.writer = &writer{queue: make(chan outgoing, 20)}

		c := &command{step: &s}
		stale := time.Now().Add(-time.Millisecond)
		a.hear(speed, uint8(ackFailed), time.Now())
		a.send(c)
		a.hear(speed, uint8(ackFailed), stale)
		lineEqual(t, "refused by an ack from before it was sent", c.refusal != nil, false)
		a.close(c)
		d := newDrone(device{}, 0, false, slog.Default())
		d.cmd.acks = a
		lineEqual(t, "the next step goes after", time.Until(d.ready(&s)), lateAck)
	})
}

func TestTheRoundTripOfRepeatedCommandsGrowsStepByStep(t *testing.T) {
	const ms = time.Millisecond
	a := &acks{link: new(link)}
	for _, c := range []struct {
		copies, inRow int // how often each command was sent; how many such commands came in a row
		took, trip    time.Duration
	}{{2, 3, 900 * ms, 0}, {1, 1, 50 * ms, 50 * ms}, {2, 3, 900 * ms, 50 * ms}, {2, 1, 900 * ms, 300 * ms},
		{2, 4, 900 * ms, 600 * ms}, {2, 4, 900 * ms, 900 * ms}, {1, 1, 40 * ms, 40 * ms}} {
		for range c.inRow {
			a.measure(&command{copies: c.copies}, c.took)
		}
		lineEqual(t, "the round trip", a.trip, c.trip)
		lineEqual(t, "from copy to copy", a.copyGap(), max(300*ms, c.trip*3/2))
	}
	slow := &command{sentAt: epoch}
	lineEqual(t, "the wait for an answer on a slow line", slow.answerBy(3000*ms).Sub(epoch), 4000*ms)
	slow.ackedAt = epoch
	lineEqual(t, "the wait for a report behind its ack", slow.answerBy(3000*ms).Sub(epoch), 4000*ms)

	// Where questions for its time are answered their round trip counts.
	a.link.lag.proves = epoch
	a.measure(&command{copies: 1, ackedAt: epoch}, 900*ms)
	lineEqual(t, "the round trip of a vehicle that answers questions for its time", a.trip, 40*ms)
	a.link.lag.questions.unanswered = timeUnanswered
	a.measure(&command{copies: 1, ackedAt: epoch}, 30*ms)
	lineEqual(t, "the round trip once it does not answer them any more", a.trip, 30*ms)
	lineEqual(t, "it was measured at the ack", a.link.lag.longestFrom, epoch)
	a.behind = 5000 * ms
	lineEqual(t, "from copy to copy where the line is behind", a.copyGap(), 7500*ms)
}

// ---- Turns ----

// mavrest sends this landing itself. Unlike a client's landing it waits for a report.
func TestTheLandingOverAPlaceIsSentRightAfterAReport(t *testing.T) {
	onBoth(t, func(t *testing.T, b *lineBench, v firmware) {
		b.inTheAir()
		b.obeys(5*time.Millisecond, 4*time.Millisecond)
		here := place{lat: 47.397742, lon: 8.545594}
		o := <-b.command(request{verb: entersMode, mode: ModeLand, lat: &here.lat, lon: &here.lon})
		lineEqual(t, "error", o.err, nil)
		// from now on a report comes only each second
		b.change(func() { b.deaf = true })
		heartbeat := b.start.Add(time.Since(b.start).Truncate(time.Second) + time.Second) // the next one
		time.Sleep(time.Until(heartbeat.Add(100 * time.Millisecond)))
		b.say(&common.MessageGlobalPositionInt{Lat: 473977420, Lon: 85455940, Alt: 498000, RelativeAlt: 10000,
			Hdg: 9000})
		time.Sleep(5 * time.Second)
		sends := b.commands(common.MAV_CMD_DO_SET_MODE)
		if len(sends) == 0 {
			t.Fatal("it does not land")
		}
		lineEqual(t, "sent after a report", sends[0].at.Sub(b.start)%time.Second, 0)
	})
}

func TestAModeChangeGoesOut20MillisecondsAfterTheAnswerOfTheOneBefore(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		ack   time.Duration // of the first command; 0: it never comes; negative: a report shows the mode instead
		later request
		cmd   common.MAV_CMD
		at    time.Duration // when the later request comes
		sent  time.Duration // where the step had to wait: with a report that left after it was due (rule 5)
	}{
		{"rtl after the ack", 5 * ms, goHome, common.MAV_CMD_DO_SET_MODE, 10 * ms, 25 * ms},
		{"land after the ack", 5 * ms, landHere, common.MAV_CMD_DO_SET_MODE, 10 * ms, 25 * ms},
		{"rtl long after it", 5 * ms, goHome, common.MAV_CMD_DO_SET_MODE, 60 * ms, 60 * ms},
		{"rtl that came before the ack", 15 * ms, goHome, common.MAV_CMD_DO_SET_MODE, 10 * ms, 35 * ms},
		{"land that came before the ack", 15 * ms, landHere, common.MAV_CMD_DO_SET_MODE, 10 * ms, 35 * ms},
		{"rtl without an ack", 0, goHome, common.MAV_CMD_DO_SET_MODE, 10 * ms, 500 * ms},
		{"land without an ack", 0, landHere, common.MAV_CMD_DO_SET_MODE, 10 * ms, 500 * ms},
		{"land after two copies", 0, landHere, common.MAV_CMD_DO_SET_MODE, 310 * ms, 800 * ms},
		{"land after a report", -5 * ms, landHere, common.MAV_CMD_DO_SET_MODE, 60 * ms, 60 * ms},
		{"disarming is no mode change", 0, disarmIt, common.MAV_CMD_COMPONENT_ARM_DISARM, 10 * ms, 10 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			onLine(t, beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 0, false), func(t *testing.T, b *lineBench) {
				b.follow(func(id uint16, try int) {
					if c.ack > 0 && id == cmdSetMode && try == 0 {
						b.ack(c.ack, id, ackAccepted)
					} else if c.ack < 0 {
						b.shows(4, false)
					}
				})
				began := time.Now()
				b.command(request{verb: entersMode, mode: ModeHold, arm: &yes})
				time.Sleep(c.at)
				b.command(c.later)
				time.Sleep(c.sent - c.at + ms)
				sends := b.copiesSince(began, c.cmd)
				if len(sends) == 0 || sends[len(sends)-1] != c.sent {
					t.Errorf("sent at %v, want %v", sends, c.sent)
				}
				time.Sleep(5 * time.Second)
			})
		})
	}
}

// Rule 5. Every step is due at 0.
func TestAStepGoesOutAfterAReport(t *testing.T) {
	client := task{askedAt: epoch}
	second := task{askedAt: epoch, command: &command{}}
	landing := task{continues: &manoeuvre{}}
	for _, c := range []struct {
		name    string
		task    task
		request request
		trip    int
		happens string
		end     string
	}{
		{"a first step: a report 200 ms old", client, goHome, 5, "-200 report", "go 0"},
		{"a first step: an older one", client, armIt, 5, "-201 report, 800 report", "go 800"},
		{"a first step: none", client, armIt, 5, "", "late 1500"},

		{"10 ms after the request it is still due at once", task{askedAt: epoch.Add(-ms(10))}, armIt, 5, "-200 report",
			"go 0"},
		{"11 ms after it is not", task{askedAt: epoch.Add(-ms(11))}, armIt, 5, "-1 report, 24 answer, 25 report",
			"go 25"},
		{"a second step: a report behind the answer to a question", second, armIt, 5,
			"-1 report, 3 report, 4 answer, 6 report", "go 6"},
		{"a second step: a report that proves nothing", second, armIt, 5,
			"5 report, 400 report, 900 report", "late 1500"},
		{"a second step: the answer, and no report", second, armIt, 5, "5 report, 6 answer", "late 1500"},
		{"on a slow line it waits a second more than a round trip", second, armIt, 3000, "", "late 4000"},
		{"mavrest's own landing", landing, landHere, 5, "-1 report, 3 report, 4 answer, 6 report", "go 6"},
		{"mavrest's own landing: none", landing, landHere, 5, "", "late 1500"},
		{"mavrest's own landing, the line falls behind", landing, landHere, 5, "2 behind, 4 answer, 6 report, 7 report",
			"late 1500"},
		{"mavrest's own landing, the line has caught up", landing, landHere, 5,
			"2 behind, 4 answer, 6 report, 90 caught", "go 90"},
		{"a client's second step, the line falls behind", second, armIt, 5, "2 behind, 4 answer, 6 report", "go 6"},

		{"the hold for a silent client", task{}, holdHere, 5, "-1 report, 3 report, 4 answer, 6 report", "go 6"},
		{"the hold for a silent client: without proof after 3 s", task{}, holdHere, 5,
			"10 report" + each(1000, 3000, "report"), "go 3000"},
		{"the hold for a silent client: nothing is heard any more", task{}, holdHere, 5, "10 report", "late 1520"},
		{"the hold for a silent client does not wait for the line", task{}, holdHere, 5,
			"2 behind, 4 answer, 6 report", "go 6"},
		{"the hold for a silent client, while a number is kept", task{}, holdHere, 5, "-1 number" +
			each(1000, 6000, "announced"), "late 6000"},

		{"urgent: without a report after 0.1 s", client, landHere, 5, "-201 report", "go 100"},
		{"a return too", client, goHome, 5, "", "go 100"},
		{"a hold too", client, holdHere, 5, "", "go 100"},
		{"a disarming too", client, disarmIt, 5, "", "go 100"},
		{"urgent: with one before", client, landHere, 5, "50 report", "go 50"},
		{"urgent, not at once", task{askedAt: epoch.Add(-ms(11))}, landHere, 5, "", "late 1500"},
		{"urgent, a second step", second, landHere, 5, "", "late 1500"},

		{"a number is kept", client, armIt, 5, "-100 report, -1 number", "late 1500"},
		{"a number is kept, until a HEARTBEAT makes it a report", client, armIt, 5, "-100 report, -1 number, 30 pilot",
			"go 30"},
		{"a number is kept, urgent: without a report after 0.5 s", client, landHere, 5, "-100 report, -1 number",
			"go 500"},

		{"the program stood still: what is read then may have come in it", client, armIt, 5,
			"-60 stands, -50 report, 4 answer, 6 report", "go 6"},
		{"it stood still, and was asked since", client, armIt, 5, "-60 stands, -55 proof, -50 report", "go 0"},
		{"it has read for 0.5 s since", client, armIt, 5, "-600 stands, -100 report", "go 0"},
		{"it stood still, urgent", client, landHere, 5, "-60 stands, -50 report", "go 100"},

		{"the port was away: an earlier report does not count", client, armIt, 5, "-100 report, -1 away, 40 report",
			"go 40"},
		{"the port was away, urgent: 0.1 s from its return", client, landHere, 5, "10 away", "go 110"},
		{"the port stays away", client, landHere, 5, "0 away" + each(90, 1500, "away"), "late 1500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.task.request, c.task.commander = c.request, &commander{acks: &acks{trip: ms(c.trip)}}
			x, f := c.task.departure(&step{}, epoch), &following{now: epoch}
			f.plays(first(c.happens), func() decision {
				x.stood = f.stood
				return x.decide(&f.reports, true, f.fallen, f.now)
			}, f.ask)
			lineEqual(t, "it ends", f.end, c.end)
			wantAsks(t, f, ms(c.trip))
		})
	}

	// A question follows none.
	checks := px4.step(common.MAV_CMD_RUN_PREARM_CHECKS)
	client.request, client.commander = armIt, &commander{acks: &acks{}}
	x, old := client.departure(&checks, epoch.Add(time.Hour)), reports{at: epoch}
	lineEqual(t, "PX4's checks, an hour after the last report", x.decide(&old, true, false, epoch.Add(time.Hour)),
		decision{move: depart})
}

// Rule 11. The wait begins at 0 and may last 10 s.
func TestWhatFliesToAPlaceWaitsUntilTheDroneIsClear(t *testing.T) {
	for _, c := range []struct {
		name            string
		clear, grounded bool
		online          bool
		at              int
		want            decision
	}{
		{"clear", true, false, true, 0, decision{move: goOn}},
		{"not clear", false, false, true, 0, decision{look, epoch.Add(ms(10000))}},
		{"not clear for 9.999 s", false, false, true, 9999, decision{look, epoch.Add(ms(10000))}},
		{"not clear for 10 s", false, false, true, 10000, decision{move: tooNear}},
		{"clear at the last moment", true, false, true, 10000, decision{move: goOn}},
		{"on the ground for 10 s", false, true, true, 10000, decision{move: tooNear}},
		{"a lost link", false, false, false, 4000, decision{move: tooLate}},
		{"a lost link, though what was heard last is clear", true, false, false, 4000, decision{move: tooLate}},
	} {
		l := lift{within: 10 * time.Second}
		l.decide(false, c.grounded, true, epoch)
		lineEqual(t, c.name, l.decide(c.clear, c.grounded, c.online, epoch.Add(ms(c.at))), c.want)
	}
	l := lift{within: 10 * time.Second}
	l.decide(false, true, true, epoch)
	lineEqual(t, "it leaves the ground after 9 s", l.decide(false, false, true, epoch.Add(ms(9000))),
		decision{look, epoch.Add(ms(19000))})
	lineEqual(t, "it is on the ground again", l.decide(false, true, true, epoch.Add(ms(9500))),
		decision{look, epoch.Add(ms(19000))})
	lineEqual(t, "and leaves it again", l.decide(false, false, true, epoch.Add(ms(19000))), decision{move: tooNear})

	fresh := reports{at: epoch}
	for _, c := range []struct {
		name                string
		away, clear, urgent bool
		want                move
	}{
		{"a step to a place, clear", true, true, false, depart},
		{"a step to a place that touched the ground again", true, false, false, tooNear},
		{"a landing at a place that touched the ground again", true, false, true, tooNear},
		{"a hold at the ground", false, false, true, depart},
		{"a takeoff", false, false, false, depart},
	} {
		whose := firstStep
		if c.urgent {
			whose = firstToSafety
		}
		x := departure{due: epoch, whose: whose, away: c.away}
		lineEqual(t, c.name, x.decide(&fresh, c.clear, false, epoch).move, c.want)
	}
}

// Rule 6. The first copy goes out at 0.
func TestWhatBecomesOfAStep(t *testing.T) {
	mode := step{cmd: common.MAV_CMD_DO_SET_MODE, to: &goal{number: modeOurs}}
	arm := step{cmd: common.MAV_CMD_COMPONENT_ARM_DISARM, p: [7]float32{1}}
	disarm := step{cmd: common.MAV_CMD_COMPONENT_ARM_DISARM}
	goesTo := step{cmd: common.MAV_CMD_DO_REPOSITION, to: &goal{number: modeOurs}}
	climb := step{cmd: common.MAV_CMD_NAV_TAKEOFF, to: &goal{number: modeOurs, end: modeEnd, endAMSL: 90}}
	speed := step{cmd: common.MAV_CMD_DO_CHANGE_SPEED}
	const all = "[0 300 600 900 1200 1500 1800]"
	for _, c := range []struct {
		name    string
		step    step
		happens string // what was before 0 is what the vehicle showed before
		copies  string
		end     string
	}{
		// Copies
		{"nothing comes", mode, "", all, "not acked 2000"},
		{"an ack ends the copies", mode, "390 ack", "[0 300]", "not shown 1390"},
		{"so does a refusal", mode, "390 refusal", "[0 300]", "refused 490"},
		{"the last copy is answered", mode, "1990 shows", all, "proven 1990"},
		{"a number is kept at 300", mode, "290 number, 310 pilot", "[0 600 900 1200 1500 1800]", "not acked 2000"},
		{"no ARM is repeated to an armed vehicle", arm, "-10 arms", "[0]", "not acked 2000"},
		{"an ARM is repeated once it was disarmed", arm, "-10 arms, 400 disarms", "[0 600 900 1200 1500 1800]",
			"not acked 2000"},
		{"a disarming is repeated to an armed vehicle", disarm, "-10 arms", all, "not acked 2000"},

		// Modes are proven by a report after the first copy.
		{"a report, without any ack", mode, "100 shows", "[0]", "proven 100"},
		{"a report, and then a refusal", mode, "100 shows, 250 refusal", "[0]", "proven 100"},
		{"an ack, then a report", mode, "5 ack, 25 shows", "[0]", "proven 25"},
		{"an ack, and no report for 1 s", mode, "5 ack", "[0]", "not shown 1005"},
		{"an ack, and a report too late", mode, "5 ack, 1006 shows", "[0]", "not shown 1005"},
		{"an ack, and another mode", mode, "5 ack, 10 pilot", "[0]", "not shown 1005"},
		{"announced before, and another mode shows", mode, "-400 announced, 5 pilot", all, "not acked 2000"},
		{"shown before: a report without an ack", mode, "-10 shows, 5 report", all, "not acked 2000"},
		{"shown before: a report before the ack", mode, "-10 shows, 5 report, 10 ack", "[0]", "not shown 1010"},
		{"shown before: a report after the ack", mode, "-10 shows, 10 ack, 30 report", "[0]", "proven 30"},
		{"shown before: an ack, and another mode", mode, "-10 shows, 10 ack, 30 pilot", "[0]", "not shown 1010"},
		{"shown before: a refusal, then an ack and a report", mode, "-10 shows, 10 refusal, 50 ack, 60 report", "[0]",
			"proven 60"},

		// So are arming and disarming.
		{"armed", arm, "90 arms", "[0]", "proven 90"},
		{"disarmed", disarm, "-10 arms, 90 disarms", "[0]", "proven 90"},
		{"armed before: an ack and a report", arm, "-10 arms, 10 ack, 20 report", "[0]", "proven 20"},
		{"armed before: no report after the ack", arm, "-10 arms, 5 report, 10 ack", "[0]", "not shown 1010"},

		// A refusal is the answer unless a report shows it within 0.1 s.
		{"refused", mode, "10 refusal", "[0]", "refused 110"},
		{"refused, and shown", mode, "310 refusal, 320 shows", "[0 300]", "proven 320"},
		{"refused, and shown too late", mode, "310 refusal, 411 shows", "[0 300]", "refused 410"},
		{"refused twice", mode, "-10 shows, 10 refusal, 60 refusal, 70 report", "[0]", "refused 110"},
		{"acknowledged twice", mode, "5 ack, 100 ack", "[0]", "not shown 1005"},
		{"an arming refused", arm, "10 refusal", "[0]", "refused 110"},
		{"a disarming refused, and done", disarm, "-10 arms, 10 refusal, 10 disarms", "[0]", "proven 10"},
		{"acknowledged, then refused", mode, "1 ack, 11 refusal", "[0]", "refused 111"},

		// Every other command is proven by its ack and, where it leads to a mode, a report.
		{"a speed", speed, "10 ack", "[0]", "proven 10"},
		{"a speed refused", speed, "10 refusal", "[0]", "refused 10"},
		{"a speed refused, then acknowledged", speed, "10 refusal, 20 ack", "[0]", "refused 10"},
		{"a goto: a report without an ack", goesTo, "10 shows", all, "not acked 2000"},
		{"a goto: its ack and a report", goesTo, "10 shows, 20 ack", "[0]", "proven 20"},
		{"a goto: its ack and no report", goesTo, "20 ack", "[0]", "not shown 1020"},
		{"a takeoff of a disarmed vehicle", climb, "10 shows, 20 ack", "[0]", "not shown 1020"},
		{"a takeoff", climb, "-10 arms, 20 ack, 30 shows", "[0]", "proven 30"},
		{"a takeoff at its end", climb, "-10 arms, 20 ack, 30 end", "[0]", "proven 30"},
		{"a takeoff in its end's mode, as before", climb, "-20 arms, -10 end, 20 ack, 30 report", "[0]",
			"not shown 1020"},
		{"a takeoff that is over at once, in its end's mode as before", climb,
			"-20 arms, -10 end, 20 ack, 30 shows, 30 end", "[0]", "proven 30"},

		// A takeover: no copy any more, and 1 s from the last one to obey (rule 4).
		{"taken", mode, "20 taken, 20 pilot", "[0]", "not obeying 1000"},
		{"taken, after two copies", mode, "320 taken, 320 pilot", "[0 300]", "not obeying 1300"},
		{"taken, and obeyed", mode, "20 taken, 20 pilot, 330 shows", "[0]", "proven 330"},
		{"taken after its ack", mode, "5 ack, 20 taken, 20 pilot", "[0]", "not obeying 1005"},
		{"obeyed, then taken, and only then acknowledged", goesTo, "10 shows, 20 taken, 20 pilot, 30 ack", "[0]",
			"not obeying 1030"},
		{"taken, and refused", mode, "20 taken, 120 refusal", "[0]", "not obeying 220"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &following{now: epoch}
			before, after := split(c.happens)
			f.plays(first(before), func() decision { return decision{move: goOn} }, nil)
			f.command = &command{step: &c.step, before: f.last, copies: 1, sentAt: epoch, triedAt: epoch,
				copyDue: epoch.Add(copyEvery), blind: true}
			f.copies = []int{0}
			f.plays(after, func() decision { return f.command.decide(&f.machine, 0, f.taken, f.now) },
				func(m move) {
					switch m {
					case ask:
						f.ask(m)
						return
					case sendCopy:
						f.copies = append(f.copies, f.sinceEpoch())
						f.command.copies, f.command.triedAt = f.command.copies+1, f.now
					}
					f.command.copyDue = f.command.copyDue.Add(copyEvery)
				})
			lineEqual(t, "copies", fmt.Sprint(f.copies), c.copies)
			lineEqual(t, "it ends", f.end, c.end)
			if !c.step.byReport() && !f.command.acked() {
				lineEqual(t, "requests, which could prove nothing", len(f.asks), 0)
			}
			if i := slices.Index(f.asks, int(f.command.ackedAt.Sub(epoch)/time.Millisecond)); f.command.acked() &&
				!strings.HasPrefix(c.end, "proven") && i < 0 {
				t.Errorf("no report was requested at the ack, only at %v", f.asks)
			}
		})
	}
}

// split parts a script at the time 0.
func split(script string) (before, after string) {
	if script == "" {
		return "", ""
	}
	list := strings.Split(script, ", ")
	i := slices.IndexFunc(list, func(clause string) bool { return !strings.HasPrefix(clause, "-") })
	if i < 0 {
		i = len(list)
	}
	return strings.Join(list[:i], ", "), strings.Join(list[i:], ", ")
}

func TestARefusalWithoutATextHasAHint(t *testing.T) {
	const helicopter, quad = common.MAV_TYPE_HELICOPTER, common.MAV_TYPE_QUADROTOR
	takeoff, goTo := copter.step(common.MAV_CMD_NAV_TAKEOFF), copter.step(common.MAV_CMD_DO_REPOSITION)
	hold := goTo
	hold.name = "the hold"
	for _, c := range []struct {
		name string
		f    firmware
		typ  common.MAV_TYPE
		s    step
		want string // a word of the hint
	}{
		{"a helicopter's takeoff", copter, helicopter, takeoff, "then raise the motor interlock"},
		{"a copter's takeoff", copter, quad, takeoff, "if it has a motor interlock"},
		{"a QuadPlane's takeoff", quadPlane, quad, takeoff, ""},
		{"a copter's goto", copter, quad, goTo, "fence"},
		{"a helicopter's goto", copter, helicopter, goTo, "fence"},
		{"a copter's hold", copter, quad, hold, ""},
		{"a PX4's goto", px4, quad, goTo, ""},
	} {
		got := hint(c.f, c.typ, &c.s, true)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	lineEqual(t, "without a fence", hint(copter, common.MAV_TYPE_QUADROTOR, &step{cmd: common.MAV_CMD_DO_REPOSITION},
		false), "")
}

func TestEachResultHasItsAnswer(t *testing.T) {
	tests := []struct {
		result common.MAV_RESULT
		status int
		code   string
		name   string
	}{
		{common.MAV_RESULT_TEMPORARILY_REJECTED, 409, "refused", "temporarily_rejected"},
		{common.MAV_RESULT_DENIED, 409, "refused", "denied"},
		{common.MAV_RESULT_UNSUPPORTED, 409, "unsupported", "unsupported"},
		{common.MAV_RESULT_FAILED, 409, "refused", "failed"},
		{common.MAV_RESULT_COMMAND_INT_ONLY, 409, "unsupported", "command_int_only"},
		{common.MAV_RESULT_COMMAND_LONG_ONLY, 409, "unsupported", "command_long_only"},
		{common.MAV_RESULT_COMMAND_UNSUPPORTED_MAV_FRAME, 409, "unsupported", "command_unsupported_mav_frame"},
		{common.MAV_RESULT_CANCELLED, 409, "refused", "cancelled"},
	}
	for _, test := range tests {
		flyHTTP(t, simArduPilot, func(hf *httpFlight) {
			hf.refuse(test.result)
			r := hf.post("/api/drone/mode", `{"arm":false}`)
			said := map[string]string{"refused": "the autopilot refused disarming (",
				"unsupported": "the autopilot does not know disarming ("}[test.code]
			r.want(hf.T, test.status, test.code, said+test.name+")")
			want := fmt.Sprintf(`,"code":%q,"status":%q,"status_code":%d,"command":400,"messages":[]}`+"\n", test.code,
				test.name, test.result)
			if !strings.HasSuffix(r.body, want) {
				hf.Errorf("got %s want …%s", r.body, want)
			}
			hf.wantMode("manual")
		})
	}

	// A goto that was accepted is not taken back by what is refused behind it (rule 7).
	denied := uint8(common.MAV_RESULT_DENIED)
	for cmd, want := range map[common.MAV_CMD]string{
		common.MAV_CMD_DO_CHANGE_SPEED: "it flies there at its own speed: the speed was refused (denied)",
		common.MAV_CMD_CONDITION_YAW:   "it flies there with a heading of its own: the heading was refused (denied)",
	} {
		c := &command{step: &step{cmd: cmd}, refusal: &denied, sentAt: epoch}
		lineEqual(t, cmd.String(), c.refused().Error(), want)
		lineEqual(t, "the texts count that explain it from", c.refused().(*commandError).refused.since, epoch)
	}
}
