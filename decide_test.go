package main

// The decisions of a step, without a drone, a link or a goroutine: a script says what comes, and a loop like
// waiter.follow does what is decided, at once.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The modes of the scripts, by the autopilot's number.
const (
	modeBefore = 10
	modeOurs   = 11
	modePilots = 12
	modeEnd    = 13 // of a takeoff
)

// following is what is known while a decision is followed, and what was done.
type following struct {
	now     time.Time
	reports reports
	last    report
	awayAt  time.Time
	taken   bool
	command *command

	copies, asks []int // in ms
	end          string
}

// epoch is the time 0 of a script.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func (f *following) sinceEpoch() int { return int(f.now.Sub(epoch) / time.Millisecond) }

// comes is one thing of a script.
func (f *following) comes(what string) {
	beat := f.last.shownMode
	switch what {
	case "report":
	case "arms":
		beat.armed = true
	case "disarms":
		beat.armed = false
	case "shows":
		beat.custom = modeOurs
	case "end":
		beat.custom = modeEnd
	case "pilot":
		beat.custom = modePilots
	case "taken":
		f.taken = true
		return
	case "number": // a CURRENT_MODE that is kept
		f.reports.hearMode(modePilots, f.last.shownMode, f.now)
		return
	case "away":
		f.awayAt = f.now
		return
	case "ack":
		if !f.command.acked() {
			f.command.ackedAt, f.command.reportsAtAck = f.now, f.reports.n
		}
		return
	case "refusal":
		if f.command.refusal == nil {
			f.command.refusal, f.command.refusedAt = new(uint8), f.now
		}
		return
	default:
		panic(what)
	}
	for _, shown := range f.reports.hearHeartbeat(beat, f.last.shownMode, 0, f.now) {
		f.last = report{shownMode: shown, amsl: 100}
	}
}

// plays follows a decision through a script: "5 ack, 25 shows", in ms.
func (f *following) plays(script string, decide func() decision, do func(move)) {
	type event struct {
		at   time.Time
		what string
	}
	var events []event
	for _, clause := range strings.FieldsFunc(script, func(r rune) bool { return r == ',' }) {
		at, what, _ := strings.Cut(strings.TrimSpace(clause), " ")
		n, err := strconv.Atoi(at)
		if err != nil {
			panic(err)
		}
		events = append(events, event{epoch.Add(ms(n)), what})
	}

	for range 10000 {
		for len(events) > 0 && !events[0].at.After(f.now) {
			if f.now = events[0].at; f.now.Before(epoch) {
				f.comes(events[0].what)
				f.now = epoch
			} else {
				f.comes(events[0].what)
			}
			events = events[1:]
		}

		switch d := decide(); {
		case d.move >= goOn:
			f.end = fmt.Sprint(d.move, " ", f.sinceEpoch())
			return
		case d.move != look:
			do(d.move)
		case len(events) > 0 && events[0].at.Before(d.at):
			f.now = events[0].at
		default:
			f.now = d.at
		}
	}
	panic("it never ends")
}

func (m move) String() string {
	return [...]string{"look", "ask", "sendCopy", "leaveOut", "go", "late", "low", "stop", "proven", "refused",
		"not shown", "not acked", "not obeying"}[m]
}

func (f *following) ask(move) {
	f.reports.asked = f.now
	f.asks = append(f.asks, f.sinceEpoch())
}

// Rule 5. Every step is due at 0.
func TestAStepGoesOutAfterAReport(t *testing.T) {
	client := task{askedAt: epoch}
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
		{"11 ms after it is not", task{askedAt: epoch.Add(-ms(11))}, armIt, 5, "-1 report, 25 report", "go 25"},
		{"a second step: a report 20 ms after it was due", task{askedAt: epoch, sent: &command{}}, armIt, 5,
			"-1 report, 19 report, 20 report", "go 20"},
		{"mavrest's own step", task{}, landHere, 5, "-1 report, 19 report, 20 report", "go 20"},
		{"a round trip after it was due", task{}, landHere, 300, "299 report, 300 report", "go 300"},
		{"none", task{}, landHere, 5, "", "late 1500"},
		{"none since 20 ms after it was due", task{}, landHere, 5, "19 report", "late 1500"},

		{"urgent: without a report after 0.1 s", client, landHere, 5, "-201 report", "go 100"},
		{"a return too", client, goHome, 5, "", "go 100"},
		{"a hold too", client, holdHere, 5, "", "go 100"},
		{"a disarming too", client, disarmIt, 5, "", "go 100"},
		{"urgent: with one before", client, landHere, 5, "50 report", "go 50"},
		{"urgent, not at once", task{askedAt: epoch.Add(-ms(11))}, landHere, 5, "", "late 1500"},
		{"urgent, a second step", task{askedAt: epoch, sent: &command{}}, landHere, 5, "", "late 1500"},

		{"a number is kept", client, armIt, 5, "-100 report, -1 number", "late 1500"},
		{"a number is kept, until a HEARTBEAT makes it a report", client, armIt, 5, "-100 report, -1 number, 30 pilot",
			"go 30"},
		{"a number is kept, urgent: without a report after 0.5 s", client, landHere, 5, "-100 report, -1 number",
			"go 500"},

		{"the port was away: an earlier report does not count", client, armIt, 5, "-100 report, -1 away, 40 report",
			"go 40"},
		{"the port was away, urgent: 0.1 s from its return", client, landHere, 5, "10 away", "go 110"},
		{"the port stays away", client, landHere, 5, "0 away" + each(90, 1500, "away"), "late 1500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.task.request, c.task.commander = c.request, &commander{acks: &acks{trip: ms(c.trip)}}
			x, f := c.task.departure(&step{}, epoch), &following{now: epoch}
			f.plays(first(c.happens), func() decision { return x.decide(&f.reports, f.awayAt, true, f.now) },
				func(m move) { x.asked = true; f.ask(m) })
			lineEqual(t, "it ends", f.end, c.end)
			wantAsks(t, f, ms(c.trip))
		})
	}
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
		{"a step to a place, clear", true, true, false, goOn},
		{"a step to a place that touched the ground again", true, false, false, tooNear},
		{"a landing at a place that touched the ground again", true, false, true, tooNear},
		{"a hold at the ground", false, false, true, goOn},
		{"a takeoff", false, false, false, goOn},
	} {
		x := departure{due: epoch, atOnce: true, urgent: c.urgent, away: c.away}
		lineEqual(t, c.name, x.decide(&fresh, time.Time{}, c.clear, epoch).move, c.want)
	}
}

// each is a clause of a script, again and again.
func each(every, until int, what string) (script string) {
	for at := every; at <= until; at += every {
		script += fmt.Sprint(", ", at, " ", what)
	}
	return script
}

// first puts a report of the mode before long before a script.
func first(script string) string { return strings.Trim("-9000 report, "+script, ", ") }

// wantAsks checks that HEARTBEAT was requested at once and then every round trip, 20 ms to 0.1 s.
func wantAsks(t *testing.T, f *following, trip time.Duration) {
	t.Helper()
	for i, at := range f.asks {
		if gap := ms(at - f.asks[max(i-1, 0)]); i > 0 && gap != min(max(trip, ms(20)), ms(100)) || i == 0 && at != 0 {
			t.Errorf("requested at %v", f.asks)
			return
		}
	}
}

// Rule 6. The first copy goes out at 0.
func TestWhatBecomesOfAStep(t *testing.T) {
	mode := step{cmd: common.MAV_CMD_DO_SET_MODE, to: &order{number: modeOurs}}
	arm := step{cmd: common.MAV_CMD_COMPONENT_ARM_DISARM, p: [7]float32{1}}
	disarm := step{cmd: common.MAV_CMD_COMPONENT_ARM_DISARM}
	goesTo := step{cmd: common.MAV_CMD_DO_REPOSITION, to: &order{number: modeOurs}}
	climb := step{cmd: common.MAV_CMD_NAV_TAKEOFF, to: &order{number: modeOurs, end: modeEnd, endAMSL: 90}}
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
		{"shown before: a report without an ack", mode, "-10 shows, 5 report", all, "not acked 2000"},
		{"shown before: a report before the ack", mode, "-10 shows, 5 report, 10 ack", "[0]", "not shown 1010"},
		{"shown before: a report after the ack", mode, "-10 shows, 10 ack, 30 report", "[0]", "proven 30"},
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

		// A takeover: no copy any more, and 1 s from the last one to obey (rule 4).
		{"taken", mode, "20 taken, 20 pilot", "[0]", "not obeying 1000"},
		{"taken, after two copies", mode, "320 taken, 320 pilot", "[0 300]", "not obeying 1300"},
		{"taken, and obeyed", mode, "20 taken, 20 pilot, 330 shows", "[0]", "proven 330"},
		{"taken after its ack", mode, "5 ack, 20 taken, 20 pilot", "[0]", "not obeying 1005"},
		{"taken, and refused", mode, "20 taken, 120 refusal", "[0]", "not obeying 220"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &following{now: epoch}
			before, after := split(c.happens)
			f.plays(first(before), func() decision { return decision{move: goOn} }, nil)
			f.command = &command{step: &c.step, before: f.last, copies: 1, sent: epoch, last: epoch,
				copyDue: epoch.Add(copyEvery)}
			f.copies, f.reports.asked = []int{0}, time.Time{}
			f.plays(after, func() decision { return f.command.decide(f.last, &f.reports, 0, f.taken, f.now) },
				func(m move) {
					switch m {
					case ask:
						f.command.asked = true
						f.ask(m)
						return
					case sendCopy:
						f.copies = append(f.copies, f.sinceEpoch())
						f.command.copies, f.command.last = f.command.copies+1, f.now
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
