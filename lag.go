package main

import (
	"math/rand/v2"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Times and limits of how far the line is behind (docs/design.md, "Time").
const (
	// clockGap is how much later than the newest boot clock a message may have left, because the vehicle sends its
	// clock ten times a second, in two messages.
	clockGap = 200 * time.Millisecond

	// lineJitter is how far a sound line may be behind: what is below it counts as no lag.
	lineJitter = 100 * time.Millisecond

	// clockProof is how long a boot clock must have run at a second a second, to a tenth, before it counts.
	clockProof = 2 * time.Second

	// clockGone is how long other messages must have come without a boot clock before it counts as ended; each counts
	// for clockGap at most.
	clockGone = time.Second

	// clockDrift: the vehicle's clock and ours may drift apart by the time divided by this: 200 ppm.
	clockDrift = 5000

	// clockFor is how long the newest clock tells how far the line is behind.
	clockFor = 5 * time.Second

	// clockAnother is how far a line can't fall behind in a silence. If its clock says so the vehicle started again,
	// and the new clock is ahead of the old one.
	clockAnother = 15 * time.Second

	// tripMost is the longest round trip that is one: a question that is answered later waited on the board, in a port
	// whose writes hung.
	tripMost = 10 * time.Second

	// clockWild is how many times faster than ours a clock runs that does not count milliseconds. One that catches up
	// is slower.
	clockWild = 100

	// quickWithin is by how much longer than the shortest a round trip is as quick, and how soon a clock comes behind
	// its answer: together less than counts as a lag.
	quickWithin = lineJitter / 2

	// timeEvery is the time between two questions for the time while nothing waits for the answer.
	timeEvery = time.Second

	// timeSilent is the same of a vehicle that does not answer them.
	timeSilent = 10 * time.Second

	// timeUnanswered is after how many questions that were not answered for timeLate a vehicle counts as one that
	// does not answer.
	timeUnanswered = 5

	timeLate = time.Second

	// fallenBy is by how much later than its quickest a line counts as fallen behind: a sound one jitters less.
	fallenBy = 250 * time.Millisecond

	// fallenFor is how long that quickest counts, at least, and twice as long at most: a line that stays as late as it
	// has become is a slow one, and a drone must not hover for ever.
	fallenFor = 5 * time.Second

	// tripFor is how long a long round trip counts, at least, where nothing can be proven.
	tripFor = time.Minute

	// tripLeast is the shortest round trip that counts there.
	tripLeast = 20 * time.Millisecond
)

// lineLag measures how far the line from the vehicle is behind, and so when each message left the vehicle.
//
// What comes later than the quickest message of the same boot clock is late by the difference. A delay that was there
// from the start does not show in that: TIMESYNC shows it, whose answer repeats the number of the question. Whatever
// comes behind that answer left after the question went out, however long the line takes.
type lineLag struct {
	// origin is what offsets count from: when the clock was first heard.
	origin time.Time

	// ms is the newest boot clock as it came; ran is how far it ran since the first one, over 2^32 ms too.
	ms  uint32
	ran time.Duration

	// at is when the newest boot clock came, zero if none did; heard is when any message did.
	at, heard time.Time

	// unclocked is for how long messages have come without a clock. A pause between two counts as clockGap at most:
	// it may be our own.
	unclocked time.Duration

	// proofFrom is since when the clock is watched for its rate; proofRan is how far it had run by then.
	proofFrom time.Time
	proofRan  time.Duration

	// runs: the clock runs at a second a second
	runs bool

	// most and least: the moment at which a clock left, less what it showed, is between them. least is known once a
	// question was answered.
	most, least time.Duration
	bounded     bool

	// quickest: the smallest offset of a clock since quickestFrom, and that of the fallenFor before
	quickest     [2]time.Duration
	quickestFrom time.Time

	// behind: the newest clock's lag
	behind time.Duration

	// left is when the last message left.
	left time.Time

	// proves is when the newest question went out whose answer came; zero if none did. due is the same until a clock
	// has come behind the answer.
	proves, due time.Time

	// shortest is the shortest round trip; 0: none was measured. quickAt is when the last answer came that was as
	// quick.
	shortest time.Duration
	quickAt  time.Time

	questions timeQuestions

	// longest: the longest round trip since longestFrom, and that of the tripFor before
	longest     [2]time.Duration
	longestFrom time.Time
}

// timeQuestions are the TIMESYNC questions that we have asked.
type timeQuestions struct {
	// base is the number of the moment began: nobody else asks with such numbers.
	base  int64
	began time.Time

	// asked is when the newest one went out; zero: none did.
	asked time.Time

	// unanswered: questions since the last answer, the first of them at since
	unanswered int
	since      time.Time
}

// leaving is when a message left the vehicle. Values, and how fresh the last report is, go by left; reports, kept
// numbers and claims by latest; what must be newer for certain by after.
type leaving struct {
	// left is about when. On a sound line it is when the message came, up to lineJitter later. Where the vehicle's
	// clocks are missing it may be too early: then latest is when it left if nothing held the message up since.
	left, latest time.Time

	// after is a moment after which it left for certain or, where the vehicle proves nothing, by its clock and the
	// longest round trip of late (trip). Zero if nothing is known.
	after time.Time

	// behind is how far the line is behind; 0 for a sound one.
	behind time.Duration

	// trip is the round trip that it has shown; 0 if it shows none.
	trip time.Duration
}

// hear takes a message of the vehicle; came is when its last byte did. ordered: it came in the order in which it left.
func (l *lineLag) hear(m message.Message, ordered bool, came time.Time) leaving {
	var trip time.Duration
	switch m := m.(type) {
	case *common.MessageAttitude:
		l.hearClock(m.TimeBootMs, came)
	case *common.MessageGlobalPositionInt:
		l.hearClock(m.TimeBootMs, came)
	case *common.MessageTimesync:
		if asked, ours := l.questions.answer(m); ours && ordered {
			l.proves = later(l.proves, asked)
			l.due = l.proves
			if took := came.Sub(asked); took < tripMost {
				trip = max(took, 1)
				l.measured(trip, came)
				if l.shortest == 0 || trip < l.shortest {
					l.shortest = trip
				}
				if trip < l.shortest+quickWithin {
					l.quickAt = came
				}
			}
		}
	default:
		l.unclocked += min(came.Sub(l.heard), clockGap)
	}
	l.heard = came
	d := leaving{left: l.leftAt(came), trip: trip}
	if l.tells() && l.behind >= lineJitter {
		d.behind = l.behind
	}
	d.latest = came.Add(-d.behind)

	// A jitter of the estimate turns no order round.
	if early := l.left.Sub(d.left); early > 0 && early < clockGap {
		d.left = l.left
	}
	l.left = d.left
	switch {
	case l.silent(came):
		d.after = d.left.Add(-max(l.trip(), tripLeast))
	case ordered:
		d.after = l.proves
	}
	return d
}

// hearClock takes a boot clock.
func (l *lineLag) hearClock(ms uint32, now time.Time) {
	step := clockStep(l.ms, ms)
	switch {
	case l.at.IsZero(), step < -clockSlack,
		now.Sub(l.at) >= clockFor && now.Sub(l.origin)-l.ran-step-l.most > clockAnother:
		// The first one, or the autopilot has started again.
		l.restart(ms, now)
		return
	case step < 0:
		// Delivered late, or of an older estimate than the message before.
		return
	}
	took := now.Sub(l.at)
	l.ms = ms
	l.ran += step
	l.at = now
	l.unclocked = 0
	l.bound(now.Sub(l.origin)-l.ran, took)
	l.judge(now)
}

// restart begins the measuring anew with a clock.
func (l *lineLag) restart(ms uint32, now time.Time) {
	*l = lineLag{
		questions: l.questions, proves: l.proves, left: l.left, longest: l.longest, longestFrom: l.longestFrom,
		shortest: l.shortest, origin: now, ms: ms, at: now, heard: now, proofFrom: now, quickestFrom: now,
	}
}

// bound takes when the newest clock came, less what it showed, and how long after the one before.
func (l *lineLag) bound(offset, took time.Duration) {
	if l.at.Sub(l.quickestFrom) >= fallenFor {
		l.quickest = [2]time.Duration{offset, l.quickest[0]}
		l.quickestFrom = l.at
	}
	l.quickest[0] = min(l.quickest[0], offset)
	drift := took / clockDrift
	l.most = min(l.most+drift, offset)
	l.least -= drift
	if !l.due.IsZero() {
		// It left after the question.
		left := l.due.Sub(l.origin) - l.ran
		quick := l.at.Sub(l.quickAt) < quickWithin
		if !l.bounded || left > l.least || quick {
			l.least = left
		}
		if quick {
			// The line is as quick as it ever was: what remains is the clock's own rate.
			l.most = max(l.most, offset)
		}
		l.bounded = true
		l.due = time.Time{}
	}
	from := l.most
	if l.bounded {
		l.least = min(l.least, offset)

		// The clock ran slowly.
		l.most = max(l.most, l.least)

		// Half of the quickest round trip counts as the way here.
		from = (l.most + l.least) / 2
	}
	l.behind = max(0, offset-from)
}

// judge says whether the clock counts. One that once ran right may show any rate while the line falls behind or catches
// up.
func (l *lineLag) judge(now time.Time) {
	took := now.Sub(l.proofFrom)
	ran := l.ran - l.proofRan
	if took < clockProof {
		return
	}
	right := (ran - took).Abs() < took/10
	l.runs = right || (l.runs && ran < clockWild*took)
	l.proofFrom = now
	l.proofRan = l.ran
}

// leftAt is about when a message left that comes now.
func (l *lineLag) leftAt(now time.Time) time.Time {
	since := now.Sub(l.at)
	switch {
	case !l.tells():
		return now
	case since > clockGap:
		return l.at.Add(clockGap - l.behind)
	case l.behind < lineJitter:
		return now
	}
	return now.Add(-l.behind)
}

// tells reports whether the boot clock tells how far the line is behind: it counts, and has not ended.
func (l *lineLag) tells() bool { return l.runs && l.unclocked < clockGone }

// answer returns when the question went out that a message answers; ok is false where it answers none of ours.
func (q *timeQuestions) answer(m *common.MessageTimesync) (asked time.Time, ok bool) {
	since := time.Duration(m.Ts1 - q.base)
	if m.Tc1 == 0 || q.base == 0 || since < 0 || since > q.asked.Sub(q.began) {
		return time.Time{}, false
	}
	q.unanswered = 0
	return q.began.Add(since), true
}

// measured takes a round trip.
func (l *lineLag) measured(trip time.Duration, now time.Time) {
	if since := now.Sub(l.longestFrom); since >= tripFor {
		l.longest = [2]time.Duration{1: l.longest[0]}
		if since >= 2*tripFor {
			l.longest[1] = 0
		}
		l.longestFrom = now
	}
	l.longest[0] = max(l.longest[0], trip)
}

// trip is the longest round trip of the last minute or two in which one was measured: a line on which nothing was
// measured since is no quicker for it. 0: none was measured.
func (l *lineLag) trip() time.Duration { return max(l.longest[0], l.longest[1]) }

// askDue reports whether the time is to be asked for now. waits: a step waits for the answer.
func (l *lineLag) askDue(waits bool, now time.Time) bool {
	switch {
	case l.silent(now):
		return now.Sub(l.questions.asked) >= timeSilent
	case waits:
		return true
	}
	return now.Sub(l.questions.asked) >= timeEvery
}

// silent reports whether the vehicle answers no question for the time: nothing can be proven.
func (l *lineLag) silent(now time.Time) bool { return l.questions.silent(l.trip(), now) }

// silent reports whether the vehicle does not answer. trip is the longest round trip.
func (q *timeQuestions) silent(trip time.Duration, now time.Time) bool {
	return q.unanswered >= timeUnanswered && now.Sub(q.since) >= timeLate+2*trip
}

// question is the question of a moment.
func (q *timeQuestions) question(now time.Time) *common.MessageTimesync {
	if q.base == 0 {
		q.base = 1 + rand.Int64N(1<<61)
		q.began = now
	}
	return &common.MessageTimesync{Ts1: q.base + now.Sub(q.began).Nanoseconds()}
}

// sent records that the question of a moment goes out.
func (q *timeQuestions) sent(now time.Time) {
	if q.unanswered == 0 {
		q.since = now
	}
	q.unanswered++
	q.asked = now
}

// now is how far the line is behind; known is false if no clock tells.
func (l *lineLag) now(now time.Time) (behind time.Duration, known bool) {
	return l.behind, l.runs && now.Sub(l.at) < clockFor
}

// fallen is by how much more the line is behind than it was at its quickest in the last seconds; 0 if no clock tells.
func (l *lineLag) fallen() time.Duration {
	if !l.tells() {
		return 0
	}
	return l.at.Sub(l.origin) - l.ran - min(l.quickest[0], l.quickest[1])
}

// moved is called when the vehicle is heard by another way, or the port was opened anew: an answer that came before
// proves nothing there, and what comes until the next clock is as old as it seems.
func (l *lineLag) moved() {
	l.proves = time.Time{}
	l.due = time.Time{}
	l.unclocked = clockGone
	l.questions = timeQuestions{}
	l.shortest = 0
}
