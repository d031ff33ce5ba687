package main

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The laws of the random world: what is always true of a flight, whatever happens in it. Each reads the book.
var laws = []law{
	{"after a takeover no command goes out, and no stick moves, until a client asks for a command",
		"Rule 4: After a takeover", handsOff},
	{"what mavrest sends by itself follows a report that left after it was due", "Time", followsProof},
	{"after a takeover no client's sticks are taken until a client asks for a command",
		"A pilot's switch takes them", noSticksTaken},
	{"after a disarming that nobody asked for here nothing arms or takes off until a client asks",
		"Rule 4: After a takeover", staysDisarmed},
	{"the mode is the reported one, or one that a client asked for and that this report can stand for",
		"Rule 2: Commanded", modeIsTrue},
	{"a 200 comes after a report of the mode and the armed bit that were asked for; where nobody meddles it was in it",
		"Rule 6: 200 means that the vehicle shows it", answerIsShown},
	{"a 200 of a command that no report proves comes after its own ack; where none is forged or 1 s late it was obeyed",
		"Rule 6: 200 means that the vehicle shows it", answerIsAcked},
	{"an interrupted comes only after a mode that was not commanded, a disarming, a failsafe or somebody else's act",
		"Rule 4: After a takeover", interruptedIsTrue},
	{"a superseded comes only after another request: a client's, or mavrest's own for a client that is silent for 3 s",
		"The newest request wins", supersededIsTrue},
	{"each request is answered, within 6 s where nothing was sent and nothing, as a late line, was to be waited for",
		"Rule 5: Before each step a report", answersInTime},
	{"while the port of a line that was not late is away each request is answered within 8 s, that of mavrest itself " +
		"before it included",
		"The link", answersWithoutPort},
	{"a status that programs repeat says that nothing was sent, and that the vehicle is not heard and disarmed",
		"Statuses that programs repeat", repeatedIsUnsent},
	{"no error is an internal one, and each has its words", "Reasons", errorsHaveWords},
	{"a copy goes out 0.3 s or more after the one before, for 2 s, never after an ack, and never arms an armed vehicle",
		"Commands", copiesAreSpaced},
	{"after a command that was repeated the next one with its number waits 1 s, but a mode change or an arming",
		"Commands", lateAcksPass},
	{"no copy and no step goes out while a number is kept, but an urgent request's first step after 0.5 s",
		"Reports", nothingWhileKept},
	{"no step of a request goes out twice but as a copy", "Commands", stepsGoOnce},
	{"each step but an urgent request's first follows a report of the last 0.2 s, each later one a report of its own",
		"Rule 5: Before each step a report", stepsFollowReports},
	{"mavrest commands by itself only the landing over its place, and in the air what follows a client silent for 3 s",
		"A silent client leaves a hold", actsForSomebody},
	{"3 s after a client's last word, or at its sticks' end, mavrest commands a hold where the stream flies on",
		"A silent client leaves a hold", holdsForSilent},
	{"sticks have a client's values only until their timeout, and nobody's are off centre",
		"Who has the sticks", sticksAreTheClients},
	{"accepted sticks go out at once, and then every 40 ms", "Who has the sticks", sticksComeInTime},
	{"sticks at rest stand on wheels", "Who has the sticks", sticksRest},
	{"nothing is sent to a client's place before the drone is clear of the ground",
		"Rule 11: Nothing flies sideways at the ground", clearFirst},
	{"what has not shown what it is gets no sticks, and only what makes it safe in the air", "Who it is", familyFirst},
	{"a landing at a place begins over the place", "Rule 9: A landing at a place", landsAtItsPlace},
	{"PX4 is asked for home before a takeoff and a goto to a height above home",
		"Rule 5: Before each step a report", homeIsAsked},
	{"every number that goes to an ArduPilot is finite", "Commands", numbersAreFinite},
	{"a command carries what its client asked for", "Rule 10: A hold and a goto", carriesWhatWasAsked},
	{"metres lead from where the vehicle last said that it is", "Time", metresCountFromHere},
	{"a manoeuvre that is done is complete", "Rule 8: A manoeuvre has an end", doneIsTrue},
	{"a wait ends when the manoeuvre is complete, or when it is over", "Rule 8: A manoeuvre has an end", waitsEnd},
	{"no kind of vehicle takes what it can't fly", "Rule 10: A hold and a goto", kindsRefuse},
	{"a client's sticks do not outlive a transition", "A transition that was not commanded here", transitionEndsSticks},
	{"the status fits its schema, and says what the vehicle said", "Robustness", statusIsTrue},
	{"what mavrest hears was sent, and what the vehicle hears mavrest has sent", "The link", noiseIsNoMessage},
}

func handsOff(b *book, wrong verdict) {
	for _, f := range b.takeovers() {
		when := func(s stamp) string {
			return fmt.Sprintf("%v after the report of %s", s.at.Sub(f.at), b.name(f.custom))
		}
		for _, c := range b.commands {
			if f.covers(c.stamp) {
				wrong(c.at, "%v was sent %s", c, when(c.stamp))
			}
		}
		last := axes{}
		for _, s := range b.sticks {
			if !s.at.After(f.at) {
				last = s.axes
			}
			centred := s.axes == axes{z: s.z} && (s.z == 0 || s.z == 500 || s.z == last.z)
			unmoved := b.firmware == px4 && s.axes == last
			if f.covers(s.stamp) && s.axes != released && !centred && !unmoved {
				wrong(s.at, "sticks %+v went out %s, after %+v", s.axes, when(s.stamp), last)
			}
		}
	}
}

func familyFirst(b *book, wrong verdict) {
	if !b.liar {
		return
	}
	for _, c := range b.commands {
		safe := slices.ContainsFunc([]Mode{ModeHold, ModeLand, ModeRTL}, func(m Mode) bool {
			return c.p[1] == float32(entered[copter][m])
		})
		brakes := c.p[1] == simArduBrake
		last := b.beatBefore(c.n)
		if c.cmd != common.MAV_CMD_DO_SET_MODE || !(safe || brakes) || last == nil || !last.armed {
			wrong(c.at, "%v was sent", c)
		}
	}
	for _, s := range b.sticks {
		wrong(s.at, "sticks went out")
	}
}

// followsProof: mavrest does by itself what it has heard, a copy that is due or a place that is reached. A switch that
// left the vehicle before that moment binds it, however late the line brings it.
func followsProof(b *book, wrong verdict) {
	for _, s := range b.troubles {
		if s.kind != foreignTrouble || !strings.HasPrefix(s.name, "a pilot's switch") {
			continue
		}
		is, until, ok := b.switched(s)
		// Then it may be mavrest's. A step explains what left up to 0.2 s before it, too.
		ok = ok && !slices.ContainsFunc(b.commands, func(c *seenCommand) bool {
			to, _ := b.goal(c)
			return to == is.custom && is.at.Sub(c.at) > -claimSlack && is.at.Sub(c.at) < followTime
		})
		for i, c := range b.commands {
			if !ok || !c.truth.armed || !c.at.After(is.at) || !until.IsZero() && c.at.After(until) {
				continue
			}
			due := b.dueByItself(i, is.stamp)
			if to, sets := b.goal(c); due.After(is.at) && (!sets || to != is.custom) {
				wrong(c.at, "%v was sent %v after the vehicle was in %s, and was due only %v after that", c,
					c.at.Sub(is.at), b.name(is.custom), due.Sub(is.at))
			}
		}
	}
}

// switched is when a pilot's switch showed on the vehicle, and when that was over: it left the mode, or a client asked
// for something else. ok is false where it never did, or shows nothing: of a disarmed vehicle, or to the mode that it
// was in.
func (b *book) switched(s *trouble) (is seenMode, until time.Time, ok bool) {
	for i, m := range b.entered {
		switch {
		case ok && m.custom != is.custom:
			return is, m.at, true
		case !ok && i > 0 && !m.at.Before(s.from) && m.at.Sub(s.from) < 100*time.Millisecond:
			beat := b.beatBefore(m.n)
			is, ok = m, m.custom != b.entered[i-1].custom && beat != nil && beat.armed
		}
	}
	return is, until, ok
}

// dueByItself is when a command could be due at the earliest that mavrest sends by itself: a copy, or the landing at a
// place that is reached. Zero where a client's newest request may have sent it, or is newer than a switch.
func (b *book) dueByItself(i int, switched stamp) (due time.Time) {
	c := b.commands[i]
	var asked *seenAsk
	for _, a := range b.asks {
		if a.isCommand() && a.began.n < c.n {
			asked = a
		}
	}
	if asked == nil || asked.began.n > switched.n {
		return due
	}
	mode, _ := asked.wishes()
	lands := mode == ModeLand && asked.has("lat")
	first := b.original(i)
	to, sets := b.goal(c)
	is, _ := b.firmware.reported(to)
	leads := sets && !c.fliesToPlace() && (is == ModeHold || is == ModeRTL || is == ModeLand)
	switch safe := mode == ModeHold || mode == ModeRTL || mode == ModeLand && !lands || asked.fields["arm"] == false; {
	case safe || first != i && leads || b.commands[first].n < asked.began.n:
		return due
	case first != i:
		for j := first; j < i; j++ {
			if b.original(j) == first {
				due = b.commands[j].at.Add(copyEvery)
			}
		}
		return due
	case lands && !c.fliesToPlace():
		n, e := simMetres(asked.number("lat"), asked.number("lon"))
		for _, p := range b.places {
			if p.n > asked.began.n && math.Hypot(p.north-n, p.east-e) < atPlace {
				return p.at
			}
		}
	}
	return due
}

func noSticksTaken(b *book, wrong verdict) {
	for _, f := range b.takeovers() {
		for _, a := range b.asks {
			rebooted := b.had(f.at, a.ended.at, "restart") // that forgets who has the sticks
			if a.isInput() && a.code == 200 && f.covers(a.began) && f.covers(a.ended) && !rebooted {
				wrong(a.ended.at, "sticks were taken after the report of %s", b.name(f.custom))
			}
		}
	}
}

func staysDisarmed(b *book, wrong verdict) {
	arming := func(c *seenCommand) bool { return c.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM && c.p[0] == 1 }
	disarming := func(c *seenCommand) bool { return c.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM && c.p[0] == 0 }
	for i := 1; i < len(b.beats); i++ {
		is := b.beats[i]
		if !b.beats[i-1].armed || is.armed {
			continue
		}
		ours := slices.ContainsFunc(b.commands, func(c *seenCommand) bool {
			return disarming(c) && c.n < is.n && is.at.Sub(c.at) < 6*time.Second
		}) || slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			return a.fields["arm"] == false && a.pending(is.stamp)
		})
		for _, c := range b.commands {
			asked := slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
				return a.isCommand() && a.began.n > is.n && a.began.n < c.n
			})
			if !ours && !asked && c.at.After(is.at) && (arming(c) || c.cmd == common.MAV_CMD_NAV_TAKEOFF) {
				wrong(c.at, "%v was sent %v after the vehicle was disarmed", c, c.at.Sub(is.at))
			}
		}
	}
}

// mayStandFor reports whether a mode that was asked for here is shown while the vehicle reports a number.
func (b *book) mayStandFor(mode Mode, x seenBeat) bool {
	reported, _ := b.firmware.reported(x.custom)
	hold := entered[b.firmware][ModeHold]
	switch mode {
	case reported:
		return true
	case ModeTakeoff, ModeLand:
		ends := mode == ModeLand && !x.armed
		return ends || x.custom == hold || x.custom == entered[b.firmware][mode]
	case ModeRTL, ModeRTGS:
		return !x.armed || x.custom == entered[b.firmware][ModeRTL]
	}
	return !x.armed // PX4 shows POSCTL for a while, or has not been heard yet
}

func modeIsTrue(b *book, wrong verdict) {
	for _, l := range b.looks {
		beat := b.beatBefore(l.n)
		if beat == nil {
			continue
		}
		mode, _ := parseMode(fmt.Sprint(l.status["mode"]))
		if l.status["mode"] == "other" {
			mode = ModeOther
		}
		asked := mode == ModeManual && !beat.armed || slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			wish, ok := a.wishes()
			return ok && wish == mode && a.isCommand() && a.began.n < l.n
		}) || mode == ModeHold || mode == ModeLand || mode == ModeRTL // mavrest sets these by itself
		reported, _ := b.firmware.reported(beat.custom)
		fresh := b.modeBefore(l.n)
		kept := fresh != nil && fresh.n > beat.n || b.hadKept(beat, l.stamp)
		posctl := b.firmware == px4 && !beat.armed && reported == ModePosition // some boots show it for our stream
		if mode == reported || kept || posctl || asked && b.mayStandFor(mode, *beat) {
			continue
		}
		wrong(l.at, "the mode is %v, the vehicle reports %s, armed %v", mode, b.name(beat.custom), beat.armed)
	}
}

// hadKept reports whether a CURRENT_MODE of another number came so shortly before a HEARTBEAT that this may be older.
func (b *book) hadKept(beat *seenBeat, until stamp) bool {
	return slices.ContainsFunc(b.modes, func(m seenMode) bool {
		return m.n < until.n && beat.at.Sub(m.at) < 2*time.Second && m.custom != beat.custom
	})
}

func answerIsShown(b *book, wrong verdict) {
	for _, a := range b.asks {
		if !a.isCommand() || a.code != 200 {
			continue
		}
		within := func(s stamp) bool { return s.n > a.began.n && s.n < a.ended.n }
		if list := b.shownBy(a); list != nil {
			heard := slices.ContainsFunc(b.beats, func(x seenBeat) bool {
				return within(x.stamp) && slices.Contains(list, x.custom)
			}) || slices.ContainsFunc(b.modes, func(x seenMode) bool {
				return within(x.stamp) && slices.Contains(list, x.custom)
			})
			really := false
			until := a.ended.at

			// A HEARTBEAT that disarms makes a report of a CURRENT_MODE's number, which may not be in force yet.
			if last := b.beatBefore(a.ended.n); last != nil && !last.armed && !slices.Contains(list, last.custom) {
				until = until.Add(20 * time.Millisecond)
			}
			for i, m := range b.entered {
				over := i+1 < len(b.entered) && b.entered[i+1].n < a.began.n
				really = really || slices.Contains(list, m.custom) && !m.at.After(until) && !over
			}
			alone := b.quiet(a.began.at.Add(-time.Second), a.ended.at, foreignTrouble, lineTrouble)
			if !heard || alone && !really {
				wrong(a.ended.at, "%v; reported: %v; the vehicle was in it: %v", a, heard, really)
			}
		}
		if arm, ok := a.fields["arm"].(bool); ok {
			heard := slices.ContainsFunc(b.beats, func(x seenBeat) bool { return within(x.stamp) && x.armed == arm })
			if !heard {
				wrong(a.ended.at, "%v; no report says armed %v", a, arm)
			}
		}
	}
}

func answerIsAcked(b *book, wrong verdict) {
	for _, a := range b.asks {
		id, ok := a.answer["command"].(float64)
		cmd := common.MAV_CMD(id)
		byReport := cmd == common.MAV_CMD_DO_SET_MODE || cmd == common.MAV_CMD_COMPONENT_ARM_DISARM
		if !a.isCommand() || a.code != 200 || !ok || byReport {
			continue
		}
		sent := slices.IndexFunc(b.commands, func(c *seenCommand) bool { return c.n > a.began.n && c.cmd == cmd })
		acked := sent >= 0 && slices.ContainsFunc(b.acks, func(x seenAck) bool {
			return x.cmd == cmd && x.result == common.MAV_RESULT_ACCEPTED && x.n > b.commands[sent].n && x.n < a.ended.n
		})
		obeyed := sent >= 0 && slices.ContainsFunc(b.results, func(x seenAck) bool {
			return x.cmd == cmd && x.result == common.MAV_RESULT_ACCEPTED && x.n > b.commands[sent].n && x.n < a.ended.n
		}) || b.had(time.Time{}, a.ended.at, "very late acks", "acks of another command") ||
			b.had(time.Time{}, a.ended.at, "late acks", "doubled acks") && b.had(time.Time{}, a.ended.at, "a line of")
		if !acked || !obeyed {
			wrong(a.ended.at, "%v; an ack of %v came: %v; the vehicle obeyed it: %v", a, cmd, acked, obeyed)
		}
	}
}

func interruptedIsTrue(b *book, wrong verdict) {
	for _, a := range b.asks {
		if !a.isCommand() || a.answer["code"] != "interrupted" {
			continue
		}
		cause := !b.quiet(a.began.at, a.ended.at, foreignTrouble, craftTrouble) ||
			strings.Contains(fmt.Sprint(a.answer["error"]), "flies to another place") || // its own target says so
			b.had(a.began.at.Add(-time.Minute), a.ended.at, "restart") // one in an outage is seen late
		for i := 1; i < len(b.beats); i++ {
			was, is := b.beats[i-1], b.beats[i]
			if is.n < a.began.n || is.n > a.ended.n {
				continue
			}
			changed := is.custom != was.custom

			// Some boots of a PX4 that stands go over to POSCTL because of our stream.
			byItself := changed && b.firmware == px4 && !is.armed
			foreign := changed && !b.explains(is.custom, 0, is.stamp)
			cause = cause || byItself || foreign || was.armed && !is.armed || is.critical && !was.critical
		}
		if !cause {
			wrong(a.ended.at, "%v", a)
		}
	}
}

// almostSilent is the silence after which mavrest commands a hold, less what the line may have delayed the client's
// last word.
const almostSilent = 3*time.Second - 10*time.Millisecond

func supersededIsTrue(b *book, wrong verdict) {
	for _, a := range b.asks {
		newer := slices.ContainsFunc(b.asks, func(o *seenAsk) bool {
			return o.isCommand() && o.began.n > a.began.n && o.began.n < a.ended.n
		})
		silent := a.ended.at.Sub(b.lastWord(a.ended)) >= almostSilent
		if a.answer["code"] == "superseded" && !newer && !silent {
			wrong(a.ended.at, "%v", a)
		}
	}
}

// longest is how long an answer may take where nothing waits for anything else.
func (a *seenAsk) longest(calm bool) time.Duration {
	longest := 20 * time.Second
	if calm {
		longest = 5 * time.Second
	}
	mode, ok := a.wishes()
	flies := a.path == "/goto" || a.path == "/land" && a.has("lat")
	if a.from.alt < 12 && (flies || ok && mode != ModeTakeoff) { // it may wait until the drone is clear of the ground
		longest += 20 * time.Second
	}
	if a.has("wait") {
		longest += time.Duration(a.number("wait") * float64(time.Second))
	}
	return longest
}

// climbed reports whether a request sent the drone up first, which takes its time.
func (b *book) climbed(a *seenAsk) bool {
	return slices.ContainsFunc(b.commands, func(c *seenCommand) bool {
		return c.n > a.began.n && c.n < a.ended.n && b.climbsFirst(c)
	})
}

func answersInTime(b *book, wrong verdict) {
	for _, a := range b.asks {
		if a.ended.n == 0 {
			wrong(a.began.at, "%s %s %s was never answered", a.method, a.path, a.body)
			continue
		}
		took := a.ended.at.Sub(a.began.at)
		mode, sets := a.wishes()
		sends := slices.ContainsFunc(b.commands, func(c *seenCommand) bool {
			return c.n > a.began.n && c.n < a.ended.n
		})

		// For its sticks, or for the ground.
		sticksOrLift := sets && (mode.flownBySticks() || mode == ModeTakeoff)
		waits := a.from.alt < 12 || a.has("wait") || sticksOrLift
		most := 6 * time.Second
		if b.wasLate(a) {
			most += tripMost
		}
		switch {
		case a.isCommand() && b.alone(a) && !sends && !waits && took > most:
			wrong(a.ended.at, "%v took %v, and nothing was sent", a, took)
		case !a.isCommand() && took > 0 && !(a.isInput() && took <= urgentKept):
			// Sticks wait while a number is kept.
			wrong(a.ended.at, "%v took %v", a, took)
		case a.isCommand() && b.alone(a) && took > a.longest(b.calm(a.ended.at)) && !b.climbed(a):
			wrong(a.ended.at, "%v took %v", a, took)
		case a.isCommand() && !a.has("wait") && took > 60*time.Second:
			wrong(a.ended.at, "%v took %v", a, took)
		}
	}
}

// wasLate reports whether the line was late, or had been lately: its answers are waited for that much longer.
func (b *book) wasLate(a *seenAsk) bool {
	return b.had(a.began.at.Add(-2*tripFor), a.ended.at, "the line falls behind")
}

func answersWithoutPort(b *book, wrong verdict) {
	for _, a := range b.asks {
		if !a.isCommand() || !b.alone(a) || a.has("wait") || b.wasLate(a) {
			continue
		}
		for _, t := range b.troubles {
			away := t.name == "unplugged" || t.name == "writes hang"
			if away && t.from.Before(a.began.at) && (t.until.IsZero() || t.until.After(a.ended.at)) &&
				a.ended.at.Sub(a.began.at) > 8*time.Second {
				wrong(a.ended.at, "%v took %v while the port was away (%s)", a, a.ended.at.Sub(a.began.at), t.name)
			}
		}
	}
}

func errorsHaveWords(b *book, wrong verdict) {
	for _, a := range b.asks {
		switch a.code {
		case 200:
		case 409, 422, 501, 503:
			if a.answer["error"] == nil || a.answer["code"] == nil {
				wrong(a.ended.at, "%v %v", a, a.answer)
			}
		default:
			wrong(a.ended.at, "%v", a)
		}
	}
}

// repeatedIsUnsent looks for armings and takeoffs: nothing but a request sends them.
func repeatedIsUnsent(b *book, wrong verdict) {
	for _, a := range b.asks {
		if repeated(a.code, true) == "" || a.code == http.StatusNotImplemented {
			continue
		}
		for _, c := range b.commands {
			arms := c.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM || c.cmd == common.MAV_CMD_NAV_TAKEOFF
			if arms && b.alone(a) && c.n > a.began.n && c.n < a.ended.n {
				wrong(a.ended.at, "%v %v, and %v was sent", a, a.answer, c)
			}
		}
		heard := slices.DeleteFunc(slices.Clone(b.beats), func(beat seenBeat) bool { return beat.n > a.ended.n })

		// Of two that differ the newer one may be ignored.
		if n := len(heard); n > 1 && heard[n-1].armed && heard[n-2].armed {
			wrong(a.ended.at, "%v %v, and the vehicle was armed", a, a.answer)
		}
	}
}

func copiesAreSpaced(b *book, wrong verdict) {
	for i, c := range b.commands {
		first := b.original(i)
		if first == i {
			continue
		}
		o := b.commands[first]
		last := o
		for _, x := range b.commands[first:i] {
			if x.same(c) {
				last = x
			}
		}
		acked := b.acked(o, c)
		beat := b.beatBefore(c.n)
		arms := c.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM && c.p[0] == 1
		hangs := b.had(o.at.Add(-time.Second), c.at, "writes hang", "unplugged")
		again := slices.ContainsFunc(b.asks, func(a *seenAsk) bool { // for the same, whose first copy did not go out
			return a.isCommand() && a.began.n > o.n && a.began.n < c.n
		})
		most := 2 * time.Second
		if hangs {
			most += 400 * time.Millisecond
		}
		atOnce := 0 // a port that hung lets go what waited for 0.3 s at most
		for _, x := range b.commands[first : i+1] {
			if x.same(c) && c.at.Sub(x.at) < 5*time.Millisecond {
				atOnce++
			}
		}
		switch {
		case atOnce > 2:
			wrong(c.at, "%d copies of %v went out at once", atOnce, c)
		case c.at.Sub(last.at) < 299*time.Millisecond && !hangs:
			wrong(c.at, "a copy of %v came %v after the one before", c, c.at.Sub(last.at))
		case c.at.Sub(o.at) > most && !again:
			wrong(c.at, "a copy of %v came %v after the first", c, c.at.Sub(o.at))
		case acked && !hangs:
			wrong(c.at, "a copy of %v came after its ack", c)
		case arms && beat != nil && beat.armed && beat.at.Before(c.at):
			wrong(c.at, "an ARM was repeated, and the vehicle is armed")
		}
	}
}

func lateAcksPass(b *book, wrong verdict) {
	newest := map[common.MAV_CMD]*seenCommand{} // the newest copy of the last command with this number
	repeated := map[common.MAV_CMD]bool{}
	for i, c := range b.commands {
		byReport := c.cmd == common.MAV_CMD_DO_SET_MODE || c.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM
		last := newest[c.cmd]
		first := b.first(i)
		if first && repeated[c.cmd] && !byReport && !c.same(last) && c.at.Sub(last.at) < 999*time.Millisecond {
			wrong(c.at, "%v was sent %v after a copy of an earlier one, whose ack may still come", c, c.at.Sub(last.at))
		}
		newest[c.cmd], repeated[c.cmd] = c, !first
	}
}

// keptSince is when the newest CURRENT_MODE came that no HEARTBEAT has followed, if its number was new.
func (b *book) keptSince(s stamp) (at time.Time, ok bool) {
	m, beat := b.modeBefore(s.n), b.beatBefore(s.n)
	if m == nil || beat == nil || m.n < beat.n || m.custom == beat.custom {
		return at, false
	}
	for i := len(b.modes) - 1; i >= 0; i-- { // the oldest of them
		if x := b.modes[i]; x.n < s.n && x.n > beat.n && x.custom != beat.custom {
			at = x.at
		}
	}
	return at, true
}

// ignored reports whether a HEARTBEAT came so shortly behind a number that was kept, and is not its own, that mavrest
// takes it for the older one: the number stays kept.
func (b *book) ignored(beat seenBeat) bool {
	m, was := b.modeBefore(beat.n), b.beatBefore(beat.n)
	if m == nil || was == nil || m.custom == beat.custom || beat.at.Sub(m.at) > olderMost {
		return false
	}
	return m.n > was.n && m.custom != was.custom || b.ignored(*was)
}

func nothingWhileKept(b *book, wrong verdict) {
	for i, c := range b.commands {
		kept, ok := b.keptSince(c.stamp)
		if !ok || !c.at.After(kept) || !b.quiet(kept, c.at, lineTrouble) || b.had(kept, c.at, "restart") {
			continue
		}
		urgent := b.first(i) && c.at.Sub(kept) >= 499*time.Millisecond
		if !urgent {
			wrong(c.at, "%v was sent %v after a CURRENT_MODE of %s that no HEARTBEAT has shown", c, c.at.Sub(kept),
				b.name(b.modeBefore(c.n).custom))
		}
	}
}

func stepsGoOnce(b *book, wrong verdict) {
	for _, a := range b.asks {
		if !a.isCommand() || a.ended.n == 0 || a.has("wait") || !b.alone(a) ||
			!b.quiet(a.began.at, a.ended.at, lineTrouble) {
			continue
		}
		var steps []*seenCommand
		for i, c := range b.commands {
			if c.n < a.began.n || c.n > a.ended.n || !b.first(i) {
				continue
			}
			to, _ := b.goal(c)
			mode, _ := b.firmware.reported(to)
			through := b.firmware == px4 && mode.flownBySticks() // PX4 rests in them on the way to another mode
			if !through && slices.ContainsFunc(steps, c.same) {
				wrong(c.at, "%v was sent twice for %v", c, a)
			}
			steps = append(steps, c)
		}
	}
}

func stepsFollowReports(b *book, wrong verdict) {
	for i, c := range b.commands {
		if !b.first(i) || !b.quiet(c.at, c.at, lineTrouble, craftTrouble) {
			continue
		}
		beat := b.beatBefore(c.n)
		if beat == nil {
			continue
		}
		age := c.at.Sub(beat.at)
		urgent, later := false, i > 0 && c.at.Sub(b.commands[i-1].at) < time.Second
		for _, a := range b.asks {
			if a.isCommand() && a.pending(c.stamp) {
				urgent = true
				later = later && b.commands[max(0, i-1)].n > a.began.n
			}
		}
		alone := slices.IndexFunc(b.asks, func(a *seenAsk) bool { return a.pending(c.stamp) && b.alone(a) })
		switch {
		case !urgent && age > 210*time.Millisecond:
			wrong(c.at, "%v was sent %v after the last report, and no client asked", c, age)
		case age > 800*time.Millisecond:
			wrong(c.at, "%v was sent %v after the last report", c, age)
		case alone >= 0 && later && age > 5*time.Millisecond && b.calm(c.at):
			wrong(c.at, "%v, a later step, was sent %v after the last report", c, age)
		case alone >= 0 && !later && age > 301*time.Millisecond && b.calm(c.at):
			wrong(c.at, "%v, a first step, was sent %v after the last report", c, age)
		}
	}
}

// lastWord is when a client last spoke to the drone before a moment: by sticks, or by a command that was under way
// until then.
func (b *book) lastWord(s stamp) (last time.Time) {
	for _, a := range b.asks {
		switch {
		case a.method != "POST" || a.began.n > s.n:
		case a.pending(s) && !a.has("wait"):
			return s.at
		case a.code != 200: // a refused one is no word
		case a.has("wait"):
			last = later(last, a.began.at)
		default:
			last = later(last, a.ended.at)
		}
	}
	return last
}

func actsForSomebody(b *book, wrong verdict) {
	for i, c := range b.commands {
		asked := slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			late := time.Duration(0)
			if !b.quiet(c.at, c.at, lineTrouble) { // what waited for a port that hung
				late = 400 * time.Millisecond
			}
			return a.isCommand() && a.began.n < c.n && (a.ended.n == 0 || !a.ended.at.Add(late).Before(c.at))
		})
		if asked || !b.first(i) {
			continue
		}
		to, ok := b.goal(c)
		mode, _ := b.firmware.reported(to)
		lands := slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			return a.path == "/land" && a.has("lat") && a.began.n < c.n
		})
		silence := c.at.Sub(b.lastWord(c.stamp))
		said := b.state(c.stamp)
		switch {
		case ok && mode == ModeLand && lands:
		case ok && mode == ModeTakeoff, !ok && c.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM && c.p[0] == 1:
			wrong(c.at, "%v was sent, and no client asked for it", c)
		case silence < almostSilent:
			wrong(c.at, "%v was sent %v after a client's last word", c, silence)
		case said.ground && c.at.Sub(said.at) < time.Second:
			wrong(c.at, "%v was sent on the ground, and no client asked for it", c)
		}
	}
}

func holdsForSilent(b *book, wrong verdict) {
	for i, a := range b.asks {
		if !a.isInput() || a.code != 200 || a.answer["mode"] == "position" && !b.winged(a) {
			continue
		}
		due := a.ended.at.Add(max(3*time.Second, a.timeout()))
		next := slices.ContainsFunc(b.asks[i+1:], func(o *seenAsk) bool {
			return o.method == "POST" && o.began.at.Before(due.Add(3*time.Second))
		}) || slices.ContainsFunc(b.asks[:i], func(o *seenAsk) bool { return o.pending(a.ended) })
		clear := 2.0
		if b.winged(a) {
			clear = 10
		}
		flew := false // all the time until then, armed and clear of the ground
		for _, l := range b.looks {
			if l.at.Before(a.ended.at) || l.at.After(due.Add(3*time.Second)) {
				continue
			}
			if flew = l.truth.armed && l.truth.alt > clear && l.truth.landed == common.MAV_LANDED_STATE_IN_AIR; !flew {
				break
			}
		}
		streams := slices.ContainsFunc(b.sticks, func(s seenSticks) bool { // else a transmitter has the sticks back
			return s.axes != released && s.at.After(due) && s.at.Sub(due) < 100*time.Millisecond
		})
		late := due.Add(300 * time.Millisecond)
		if b.firmware == px4 && a.answer["mode"] == "position" { // its sticks must first have been still for 2 s
			late = late.Add(2 * time.Second)
		}
		exact := b.quiet(time.Time{}, late, lineTrouble) && b.quiet(a.began.at, late, craftTrouble, foreignTrouble)
		if next || !flew || !streams || a.to.alt < 2 || b.flavour == simPX4Rover || b.endsBy(late) || !exact {
			continue
		}
		if !slices.ContainsFunc(b.commands, func(c *seenCommand) bool {
			return c.n > a.ended.n && c.at.Before(late)
		}) {
			wrong(due, "a client flew in %v and fell silent, and nothing was commanded until %v later",
				a.answer["mode"], late.Sub(due))
		}
	}
}

// endsBy reports whether the book ends before a time.
func (b *book) endsBy(at time.Time) bool {
	return len(b.looks) == 0 || b.looks[len(b.looks)-1].at.Before(at.Add(time.Second))
}

// winged reports whether the vehicle was on its wing at the end of a request.
func (b *book) winged(a *seenAsk) bool {
	return b.flavour == simPX4Plane || a.vtol == common.MAV_VTOL_STATE_FW
}

func sticksAreTheClients(b *book, wrong verdict) {
	for _, s := range b.sticks {
		if s.axes == released || s.x == 0 && s.y == 0 && s.r == 0 {
			continue
		}
		var last *seenAsk
		valid := false
		for _, a := range b.asks {
			if !a.isInput() || a.code != 200 && a.ended.n != 0 || a.began.n > s.n {
				continue
			}
			last = a
			until := a.began.at.Add(a.timeout() + 45*time.Millisecond)
			values := axes{x: scaledStick(a, "pitch"), y: scaledStick(a, "roll"), r: scaledStick(a, "yaw")}
			valid = valid || !s.at.After(until) && values == axes{x: s.x, y: s.y, r: s.r}
		}
		if valid {
			continue
		}
		// PX4 would take a movement for a pilot's: they stay as they are in a mode that flies without them.
		was := b.sticksBefore(s.n)
		beat := b.beatBefore(s.n)
		flown := false
		if beat != nil {
			row, _ := b.firmware.row(beat.custom)
			flown = row.sticks != unsteered

			// A disarmed POSCTL is no pilot's: the mode that is on its way may be in force already.
			flown = flown && (beat.armed || !b.leavesSticks(s.stamp))
		}
		unmoved := was != nil && was.axes == s.axes && b.firmware == px4
		_, kept := b.keptSince(s.stamp)
		kept = kept || beat != nil && b.ignored(*beat)
		if last != nil && unmoved && (!flown || kept) || !b.quiet(s.at, s.at, lineTrouble) {
			continue
		}
		wrong(s.at, "sticks %+v went out, the last input was %v", s.axes, last)
	}
}

// leavesSticks reports whether a request for a mode that ignores sticks is under way.
func (b *book) leavesSticks(at stamp) bool {
	return slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
		mode, ok := a.wishes()
		return ok && !mode.flownBySticks() && a.pending(at)
	})
}

// scaledStick is an axis of an input in MANUAL_CONTROL's units.
func scaledStick(a *seenAsk, axis string) int16 {
	if !a.has(axis) {
		return 0
	}
	return int16(math.Round(a.number(axis) * 1000))
}

func sticksComeInTime(b *book, wrong verdict) {
	for _, a := range b.asks {
		undisturbed := b.quiet(a.began.at, a.ended.at.Add(time.Second), lineTrouble, craftTrouble, foreignTrouble)
		if !a.isInput() || a.code != 200 || !undisturbed {
			continue
		}
		until := a.ended.at.Add(min(a.timeout(), time.Second))
		for _, o := range b.asks {
			if o.method == "POST" && o.began.n > a.began.n && o.began.at.Before(until) {
				until = o.began.at
			}
		}
		last := a.ended.at
		for _, s := range b.sticks {
			if s.at.Before(a.ended.at) || !s.at.Before(until) || s.n < a.began.n {
				continue
			}
			if gap := s.at.Sub(last); gap > 41*time.Millisecond {
				wrong(s.at, "no sticks for %v after %v", gap, a)
			} else if gap > time.Millisecond && gap < 39*time.Millisecond && last != a.ended.at {
				wrong(s.at, "two sticks within %v after %v", gap, a)
			}
			last = s.at
		}
		if gap := until.Sub(last); gap > 41*time.Millisecond && !b.endsBy(until) {
			wrong(until, "no sticks for %v after %v", gap, a)
		}
	}
}

func sticksRest(b *book, wrong verdict) {
	for _, s := range b.sticks {
		asked := slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			return a.isInput() && a.has("throttle") && a.began.n < s.n && s.at.Sub(a.began.at) < 10*time.Second
		})
		if b.flavour == simPX4Rover && s.z != 500 && !asked {
			wrong(s.at, "sticks %+v go out, and no client gave a throttle", s.axes)
		}
	}
}

// fliesToPlace reports whether a command flies to a place, here a client's or mavrest's own.
func (c *seenCommand) fliesToPlace() bool { return c.cmd == common.MAV_CMD_DO_REPOSITION && c.isInt }

// climbsFirst reports whether a command goes up from where a drone is, as where it is not clear of the ground: that is
// no client's place or height. mavrest may know of a landing sooner than the book does.
func (b *book) climbsFirst(c *seenCommand) bool {
	at := &c.truth
	n, e := simMetres(float64(c.x)/1e7, float64(c.y)/1e7)
	tn, te := simMetres(at.lat, at.lon)
	up := float64(c.p[6]) - at.alt
	if b.firmware == px4 {
		up -= simHomeAlt
	}
	known := 5 * time.Second / 2 // so old its place may be that mavrest knew when the first copy went out
	slack := 0.0
	if !b.quiet(c.at.Add(-10*time.Second), c.at, lineTrouble, foreignTrouble) { // it fell, or the line is behind
		known = 10 * time.Second
		slack = 40
	}
	near := math.Hypot(n-tn, e-te) < 10+math.Hypot(at.vn, at.ve)*known.Seconds()
	return c.fliesToPlace() && near && up > 2-slack && up < 17+slack
}

// takeoffHeight is how high a takeoff is to climb, in metres above home.
func (a *seenAsk) takeoffHeight() float64 {
	if !a.has("altitude") {
		return 10
	}
	return a.number("altitude")
}

func clearFirst(b *book, wrong verdict) {
	for i, c := range b.commands {
		asked := b.first(i) && slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			return a.has("lat") && a.began.n < c.n && simE7(a.number("lat")) == c.x && simE7(a.number("lon")) == c.y
		})

		// Then being in the air is enough.
		forgot := b.had(time.Time{}, c.at, "restart in the air")

		// A takeoff that is complete is enough, too.
		tookOff := slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			mode, ok := a.wishes()
			return ok && mode == ModeTakeoff && a.code == 200 && a.began.n < c.n &&
				c.truth.alt > 0.75*a.takeoffHeight()
		})
		toPlace := asked && c.fliesToPlace() && !b.climbsFirst(c)
		if toPlace && !c.clear && !forgot && !tookOff && b.flavour != simPX4Rover {
			wrong(c.at, "%v was sent, and the drone is %.1f m above home and was not clear of the ground", c,
				c.truth.alt)
		}
	}
}

func landsAtItsPlace(b *book, wrong verdict) {
	for _, c := range b.commands {
		to, _ := b.goal(c)
		asked := slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			mode, ok := a.wishes()
			return a.isCommand() && a.pending(c.stamp) && (ok && mode == ModeLand && !a.has("lat"))
		})
		if to != entered[b.firmware][ModeLand] || c.cmd != common.MAV_CMD_DO_SET_MODE || asked ||
			!b.quiet(c.at, c.at, lineTrouble, foreignTrouble) {
			continue
		}
		var a *seenAsk
		for _, o := range b.asks {
			mode, sets := o.wishes()
			came := c.at.Sub(o.began.at) > 50*time.Millisecond // else the landing before it may still begin
			if o.isCommand() && came && sets && (o.answer["status"] == "accepted" || o.pending(c.stamp)) {
				if a = o; mode != ModeLand || !o.has("lat") {
					a = nil
				}
			}
		}
		if a == nil { // a silent client's
			continue
		}
		n, e := simMetres(c.truth.lat, c.truth.lon)
		tn, te := simMetres(a.number("lat"), a.number("lon"))
		if away := math.Hypot(n-tn, e-te); away > 5.5 || away > 2.7 && !b.stayed(c.stamp, 4500*time.Millisecond) {
			wrong(c.at, "the landing of %v began %.1f m from its place", a, away)
		}
	}
}

// stayed reports whether the vehicle has hardly moved for some time.
func (b *book) stayed(s stamp, d time.Duration) bool {
	for _, l := range b.looks {
		if l.n < s.n && s.at.Sub(l.at) < d && math.Hypot(l.truth.vn, l.truth.ve) > 1.2 {
			return false
		}
	}
	return true
}

func homeIsAsked(b *book, wrong verdict) {
	for i, c := range b.commands {
		if b.firmware != px4 || !b.first(i) {
			continue
		}
		var a *seenAsk
		for _, o := range b.asks {
			toHeight := c.fliesToPlace() && !b.climbsFirst(c) && o.path == "/goto" && o.has("altitude")
			if mode, _ := o.wishes(); o.pending(c.stamp) && b.alone(o) && o.isCommand() &&
				(toHeight || mode == ModeTakeoff && c.cmd == common.MAV_CMD_NAV_TAKEOFF) {
				a = o
			}
		}
		if a == nil {
			continue
		}
		asked := slices.ContainsFunc(b.questions, func(q seenQuestion) bool {
			return q.id == 242 && q.n > a.began.n && q.n < c.n
		})
		if !asked && b.quiet(a.began.at, c.at, lineTrouble) {
			wrong(c.at, "%v was sent for %v, and home was not asked for", c, a)
		}
	}
}

func carriesWhatWasAsked(b *book, wrong verdict) {
	for i, c := range b.commands {
		var a *seenAsk
		for _, o := range b.asks {
			// No other client's request took its place, so what mavrest commanded by itself did.
			byOwn := o.answer["code"] == "superseded"
			if o.isCommand() && o.pending(c.stamp) && b.alone(o) && !byOwn {
				a = o
			}
		}
		if a == nil || slices.ContainsFunc(b.commands[:i], func(x *seenCommand) bool { // a copy of what was sent before
			return x.same(c) && x.n < a.began.n && c.at.Sub(x.at) < 2*time.Second
		}) {
			continue
		}
		home := before(b.homes, func(h *seenHome) stamp { return h.stamp }, c.n)
		altitude := a.number("altitude")
		if a.path == "/takeoff" {
			altitude = a.takeoffHeight()
		}
		want := altitude
		if b.firmware == px4 && home != nil {
			want += home.amsl
		}
		knows := b.firmware != px4 || home != nil && home.n > a.began.n

		// It may be at another place in that moment.
		restarts := b.had(c.at.Add(-time.Second), c.at, "restart")
		switch mode, _ := a.wishes(); {
		case c.cmd == common.MAV_CMD_NAV_TAKEOFF && mode == ModeTakeoff && knows && a.path == "/takeoff":
			if !differsLittle(float64(c.p[6]), want, 0.1) {
				wrong(c.at, "%v was sent for %v, want %.1f m", c, a, want)
			}
		case c.fliesToPlace() && (a.path == "/goto" || a.path == "/land") && !b.climbsFirst(c) && !restarts:
			if a.has("lat") && (c.x != simE7(a.number("lat")) || c.y != simE7(a.number("lon"))) {
				wrong(c.at, "%v to %d %d was sent for %v", c, c.x, c.y, a)
			}
			if a.has("altitude") && knows && !differsLittle(float64(c.p[6]), want, 0.1) {
				wrong(c.at, "%v was sent for %v, want %.1f m", c, a, want)
			}
		}
	}
}

// metresCountFromHere: the last place that came before the step is the one that its report was sent with. Where two
// come in one instant either may be the last.
func metresCountFromHere(b *book, wrong verdict) {
	for i, c := range b.commands {
		var a *seenAsk
		for _, o := range b.asks {
			if o.path == "/goto" && o.inMetres() && o.pending(c.stamp) && b.alone(o) {
				a = o
			}
		}
		if a == nil || !c.fliesToPlace() || !b.first(i) || b.climbsFirst(c) || a.answer["code"] == "superseded" {
			continue
		}
		last := before(b.places, func(p *seenPlace) stamp { return p.stamp }, c.n)
		if last == nil {
			wrong(c.at, "%v was sent for %v, and no place has come", c, a)
			continue
		}
		off := a.offFrom(last.said, c, b.firmware)
		if other := before(b.places, func(p *seenPlace) stamp { return p.stamp }, last.n); other != nil {
			off = min(off, a.offFrom(other.said, c, b.firmware))
		}
		if !(off < 0.1) {
			wrong(c.at, "%v to %d %d was sent for %v: %.2f m from where that is from %d %d", c, c.x, c.y, a, off,
				last.said.Lat, last.said.Lon)
		}
	}
}

// offFrom is how far a command leads from the place that a goto in metres comes to, where the vehicle was as it said.
// At the start a degree of latitude is 111,179 m on the ellipsoid, and one of longitude as much as 111,522 m at the
// equator would be.
func (a *seenAsk) offFrom(at *common.MessageGlobalPositionInt, c *seenCommand, f firmware) float64 {
	lat := float64(at.Lat) / 1e7
	north := (float64(c.x)/1e7 - lat) * 111_179
	east := (float64(c.y) - float64(at.Lon)) / 1e7 * 111_522 * math.Cos(lat*math.Pi/180)
	sin, cos := math.Sincos(float64(at.Hdg) / 100 * math.Pi / 180)
	if a.has("forward") || a.has("right") {
		north -= a.metres("forward")*cos - a.metres("right")*sin
		east -= a.metres("forward")*sin + a.metres("right")*cos
	}
	off := math.Hypot(north-a.metres("north"), east-a.metres("east"))
	height := float64(at.Alt) / 1000
	if f != px4 {
		height = float64(at.RelativeAlt) / 1000
	}
	if a.has("up") {
		off = max(off, math.Abs(float64(c.p[6])-height-a.number("up")))
	}
	return off
}

// away is how far the vehicle is from the place of a request, over ground.
func (a *seenAsk) away(at simState) float64 {
	lat, lon := a.number("lat"), a.number("lon")
	if to, ok := a.answer["target"].(object); ok {
		lat, lon = to["lat"].(float64), to["lon"].(float64)
	}
	n, e := simMetres(at.lat, at.lon)
	tn, te := simMetres(lat, lon)
	return math.Hypot(n-tn, e-te)
}

// overWing reports whether a VTOL was not in hover all the time.
func (a *seenAsk) overWing() bool {
	hovers := func(v common.MAV_VTOL_STATE) bool {
		return v == common.MAV_VTOL_STATE_UNDEFINED || v == common.MAV_VTOL_STATE_MC
	}
	return !hovers(a.vtol) || !hovers(a.toVTOL)
}

func doneIsTrue(b *book, wrong verdict) {
	for _, a := range b.asks {
		mode, ok := a.wishes()
		if a.code != 200 || a.answer["done"] != true || !ok {
			continue
		}
		at := a.to
		speed := math.Hypot(at.vn, at.ve)
		winged := b.flavour == simPX4Plane || b.flavour == simQuadPlane || a.overWing()
		low := a.number("altitude") - at.alt
		slack := 2.0
		if winged {
			slack = 7.5
		}
		steady := b.quiet(a.began.at, a.ended.at, foreignTrouble) // nobody moved home or armed it
		switch {
		case a.path == "/goto" && (a.has("lat") || a.inMetres()) && !winged && (a.away(at) > 3 || speed > 1.8):
			wrong(a.ended.at, "%v is done %.1f m from its place, at %.1f m/s", a, a.away(at), speed)
		case a.path == "/goto" && (a.has("lat") || a.inMetres()) && winged && a.away(at) > 1.5*80+15:
			wrong(a.ended.at, "%v is done %.1f m from its place", a, a.away(at))
		case a.path == "/goto" && a.has("altitude") && steady && math.Abs(low) > slack:
			wrong(a.ended.at, "%v is done at %.1f m", a, at.alt)
		case a.path == "/takeoff" && a.has("altitude") && steady && low > max(2, a.number("altitude")/10+1):
			wrong(a.ended.at, "%v is done at %.1f m", a, at.alt)
		case mode == ModeLand && at.armed && steady:
			wrong(a.ended.at, "%v is done, and the vehicle is armed", a)
		case (mode == ModeRTL || mode == ModeRTGS) && at.armed && steady && b.flavour != simPX4Plane &&
			b.flavour != simPlane:
			wrong(a.ended.at, "%v is done, and the vehicle is armed", a)
		case a.path == "/mode" && mode == ModeHold && at.armed && !winged && math.Hypot(speed, at.vd) > 1.2:
			wrong(a.ended.at, "%v is done at %.1f m/s", a, speed)
		}
	}
}

func waitsEnd(b *book, wrong verdict) {
	for _, a := range b.asks {
		if !a.has("wait") || !a.isCommand() || a.answer["code"] != "not_done" {
			continue
		}
		wait := time.Duration(a.number("wait") * float64(time.Second))
		if took := a.ended.at.Sub(a.began.at); took < wait {
			wrong(a.ended.at, "%v ended after %v", a, took)
		}
		there := 0
		for _, l := range b.looks {
			if l.n > a.ended.n || a.ended.at.Sub(l.at) > 4*time.Second || !l.at.After(a.began.at.Add(8*time.Second)) {
				continue
			}
			there++
			if !b.complete(a, l.truth) {
				there = -100
			}
		}
		if there >= 3 && b.calm(a.ended.at) && b.alone(a) {
			wrong(a.ended.at, "%v, and the vehicle has been there for 4 s: %.1f m from it, %.1f m up", a, a.away(a.to),
				a.to.alt)
		}
	}
}

// complete reports whether a manoeuvre is certainly complete.
func (b *book) complete(a *seenAsk, at simState) bool {
	mode, _ := a.wishes()
	speed := math.Hypot(math.Hypot(at.vn, at.ve), at.vd)
	circles := b.flavour == simPX4Plane || a.vtol == common.MAV_VTOL_STATE_FW
	switch {
	case a.path == "/goto" && !a.has("lat"):
		return false
	case a.path == "/goto" && circles:
		return math.Abs(a.away(at)-80) < 15 && (!a.has("altitude") || math.Abs(a.number("altitude")-at.alt) < 2)
	case a.path == "/goto":
		high := b.flavour == simPX4Rover || a.has("altitude") && math.Abs(a.number("altitude")-at.alt) < 0.5
		return a.away(at) < 1.5 && speed < 0.3 && high && !a.has("heading")
	case a.path == "/takeoff" && !circles:
		return a.has("altitude") && math.Abs(a.number("altitude")-at.alt) < 0.3 && speed < 0.2
	case a.path == "/takeoff":
		return a.has("altitude") && at.alt > a.number("altitude")-1
	case mode == ModeLand || (mode == ModeRTL || mode == ModeRTGS) && b.flavour != simPX4Plane:
		return !at.armed
	case mode == ModeHold:
		return speed < 0.2 || circles
	}
	return false
}

func kindsRefuse(b *book, wrong verdict) {
	for _, a := range b.asks {
		says := strings.Contains(fmt.Sprint(a.answer["error"]), "does not report now whether it hovers")
		last := b.state(a.began)
		forgot := b.had(last.at.Add(-2*time.Second), a.ended.at, "restart")

		// On a line that loses the vehicle's clocks a state counts as older than it may be.
		known := last.known && b.state(a.ended).known && b.quiet(last.at, a.ended.at, lineTrouble)
		if says && known && !forgot && a.ended.at.Sub(last.at) < time.Second {
			wrong(a.ended.at, "%v, and it has just reported that", a)
		}
		if !a.isCommand() || a.code != 200 {
			continue
		}
		mode, _ := a.wishes()
		plane := b.flavour == simPX4Plane
		wing := plane || b.flavour == simPX4VTOL && b.alone(a) && b.onWing(a.began) && b.onWing(a.ended)
		toPlace := a.path == "/land" && a.has("lat")
		switch {
		case b.flavour == simPX4Rover && (mode == ModeTakeoff || mode == ModeAltitude && a.has("mode")),
			b.flavour == simPX4Rover && (a.has("altitude") || a.has("heading") || a.metres("up") != 0):
			wrong(a.ended.at, "%v, of a vehicle on wheels", a)
		case wing && (a.has("heading") || toPlace || a.metres("right") != 0) && b.firmware == px4:
			wrong(a.ended.at, "%v, of a vehicle on its wing", a)
		}
	}
}

func transitionEndsSticks(b *book, wrong verdict) {
	for i, a := range b.asks {
		if b.flavour != simPX4VTOL || !a.isInput() || a.code != 200 {
			continue
		}
		var set *seenAsk // the sticks
		for _, o := range b.asks[:i] {
			mode, ok := o.wishes()
			if o.isCommand() && o.code == 200 && ok && mode.flownBySticks() && o.ended.n < a.began.n {
				set = o
			}
		}
		if set == nil {
			continue
		}
		was := b.onWing(set.ended)
		if b.onWing(a.began) != was && b.onWing(a.ended) != was {
			wrong(a.ended.at, "%v, and the vehicle has gone over since %v", a, set)
		}
	}
}

func statusIsTrue(b *book, wrong verdict) {
	for _, l := range b.looks {
		o := l.status
		for _, misfit := range fits(map[string]any{"$ref": "#/components/schemas/Status"}, o, "status") {
			wrong(l.at, "%s", misfit)
		}
		beat := b.beatBefore(l.n)
		if beat == nil {
			continue
		}
		mode := b.modeBefore(l.n)
		report := beat.at
		if mode != nil {
			report = later(report, mode.at)
		}
		silence := l.at.Sub(report)
		if online := o["online"] == true; online && silence > 3*time.Second+1100*time.Millisecond ||
			!online && silence < 3*time.Second-100*time.Millisecond && b.quiet(l.at, l.at, lineTrouble, craftTrouble) {
			wrong(l.at, "online is %v, %v after the last report", online, silence)
		}
		if kept := b.hadKept(beat, l.stamp); !kept && o["armed"] != beat.armed {
			wrong(l.at, "armed is %v, the last HEARTBEAT says %v", o["armed"], beat.armed)
		} else if !kept && o["vehicle_mode"] != b.name(beat.custom) {
			wrong(l.at, "vehicle_mode is %v, the last HEARTBEAT says %s", o["vehicle_mode"], b.name(beat.custom))
		}
		if len(l.unsaid) > 0 && !b.had(l.at.Add(-20*time.Second), l.at, "restart") {
			wrong(l.at, "the status shows what the vehicle did not say last: %q", l.unsaid)
		}
		b.placeIsTrue(l, wrong)
		input, _ := o["input"].(object)
		if input["by"] == "client" && !slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			return a.isInput() && a.began.n < l.n && l.at.Sub(a.began.at) <= a.timeout()+50*time.Millisecond
		}) {
			wrong(l.at, "the sticks are a client's, and no client has sent any lately")
		}
	}
}

// placeIsTrue compares the position of a status with where the vehicle is.
func (b *book) placeIsTrue(l seenLook, wrong verdict) {
	p, ok := l.status["position"].(object)
	lat, known := p["lat"].(float64)
	if !ok || !known || b.had(l.at.Add(-20*time.Second), l.at, "restart") {
		return
	}
	n, e := simMetres(lat, p["lon"].(float64))
	tn, te := simMetres(l.truth.lat, l.truth.lon)
	speed := max(6, 1.5*math.Hypot(l.truth.vn, l.truth.ve))
	if !b.quiet(l.at, l.at, lineTrouble) {
		// Half of a round trip counts as the way here, and may be all of it the other way: it is twice as old then.
		speed = 60
	}
	allowed := 1.5 + speed*(p["age"].(float64)+0.5)
	if away := math.Hypot(n-tn, e-te); away > allowed {
		wrong(l.at, "the position is %.1f m off and %v s old", away, p["age"])
	}
	if up := p["altitude_msl"].(float64) - simHomeAlt - l.truth.alt; math.Abs(up) > allowed {
		wrong(l.at, "the altitude is %.1f m off and %v s old", up, p["age"])
	}
	if battery, ok := l.status["battery"].(object); ok {
		if v, _ := battery["voltage"].(float64); v < 8 || v > 17 {
			wrong(l.at, "the battery has %v V", v)
		}
	}
}

func numbersAreFinite(b *book, wrong verdict) {
	for _, c := range b.commands {
		for _, x := range c.p {
			if b.firmware != px4 && (math.IsNaN(float64(x)) || math.IsInf(float64(x), 0)) {
				wrong(c.at, "%v was sent", c)
			}
		}
	}
}

func noiseIsNoMessage(b *book, wrong verdict) {
	for _, s := range b.strange {
		wrong(time.Now(), "mavrest heard what nobody sent: %s", s)
	}
	for _, s := range b.forged {
		wrong(time.Now(), "the vehicle received what mavrest never sent: %s", s)
	}
}
