package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The decisions of a step, without a drone, a link or a goroutine: a script says what comes, and a loop like
// waiter.loop does what is decided, at once.

// The modes of the scripts, by the autopilot's number.
const (
	modeBefore = 10
	modeOurs   = 11
	modePilots = 12
	modeEnd    = 13 // of a takeoff
)

// following is what is known while a decision is followed, and what was done.
type following struct {
	now time.Time

	// machine has the last report, and what the reports are made of.
	machine

	taken   bool
	fallen  bool
	command *command

	// proves is when the question went out that was answered last.
	proves time.Time

	// stood is when the program's last standstill was over.
	stood time.Time

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
		f.reports.takeNumber(modePilots, f.last.shownMode, f.now, f.now)
		return
	case "announced": // ours is
		f.reports.takeNumber(modeOurs, f.last.shownMode, f.now, f.now)
		return
	case "away":
		f.reports.portAwayAt = f.now
		return
	case "answer": // to the newest question: what comes from now on left after that
		f.proves = f.reports.asked
		return
	case "proof": // that what comes from now on left after this moment
		f.proves = f.now
		return
	case "stands": // the program stood still until now
		f.stood = f.now
		return
	case "behind": // the line falls
		f.fallen = true
		return
	case "caught": // up
		f.fallen = false
		return
	case "ack", "refusal":
		cmd, result := f.command.step.cmd, map[string]common.MAV_RESULT{"ack": ackAccepted, "refusal": ackFailed}[what]
		a := &acks{link: new(link), waiting: map[common.MAV_CMD]*command{cmd: f.command}}
		a.hear(cmd, uint8(result), f.now)
		return
	default:
		panic(what)
	}
	for _, shown := range f.reports.takeHeartbeat(beat, f.last.shownMode,
		leaving{left: f.now, latest: f.now, after: f.proves}, f.now) {
		f.last = report{shownMode: shown, amsl: 100}
		if f.command != nil {
			f.command.see(f.last)
		}
	}
}

// plays follows a decision through a script: "5 ack, 25 shows", in ms. It ends when the step departs, too.
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
		case d.move.ends() || d.move == depart:
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
	return [...]string{"look", "ask", "go", "sendCopy", "leaveOut", "go on", "late", "low", "ended", "proven",
		"refused", "not shown", "not acked", "not obeying"}[m]
}

func (f *following) ask(move) {
	f.reports.ask(true, f.now)
	f.asks = append(f.asks, f.sinceEpoch())
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
