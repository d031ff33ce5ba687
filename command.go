package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of a command's copies (docs/design.md, "Commands").
const (
	// copyEvery is the time between two copies, if one and a half round trips are not longer.
	copyEvery = 300 * time.Millisecond

	// giveUp is how long after its first copy a command is repeated.
	giveUp = 2 * time.Second

	// slowAfter is how many commands in a row, answered only after a repeat, make a line slow.
	slowAfter = 4

	// lateAck is how long after a command's newest copy an ack of it may still come.
	lateAck = time.Second

	// modeGap is the time between a mode change's answer and the next mode change.
	modeGap = 20 * time.Millisecond

	// modeUnknown is the time between a mode change's newest copy and the next mode change, where neither an ack nor
	// a report came.
	modeUnknown = 500 * time.Millisecond

	// showWithin is how long after the ack a report must show it.
	showWithin = time.Second

	// tripMargin is how much longer than a round trip an answer or a report is waited for, where that is longer than
	// giveUp or answerWait.
	tripMargin = time.Second
)

// Times of a step's report (docs/design.md, rule 5).
const (
	// answerWait is how long a step waits for its report, and a plan for HOME_POSITION.
	answerWait = 1500 * time.Millisecond

	// ownHoldWait is how long the hold for a silent client waits for a report that proves enough. Then it goes
	// without: a drone that nobody flies drifts.
	ownHoldWait = 3 * time.Second

	// urgentWait is how long an urgent request's first step waits. Then it goes without a report.
	urgentWait = 100 * time.Millisecond

	// urgentKept is the same while a number is kept.
	urgentKept = 500 * time.Millisecond
)

// acks matches COMMAND_ACKs with commands. An ack has no number: it only names its command.
type acks struct {
	link *link
	tel  *telemetry

	waiting map[common.MAV_CMD]*command

	// late is when the newest copy went out of a command with that number whose ack may still come (lateUntil).
	late map[common.MAV_CMD]time.Time

	// trip is the round trip last measured, behind how far the line was behind then.
	trip, behind time.Duration

	// repeated: commands that were acknowledged after a repeat, since trip was set
	repeated int

	// modeFrom: no mode change goes out before it; zero: none was sent
	modeFrom time.Time

	// modeCmd: of the mode change sent last
	modeCmd common.MAV_CMD
}

// command is one MAVLink command with its copies and its answer.
type command struct {
	step *step

	// before: the last report when the first copy went out
	before report

	copies int

	// sentAt is when the first one was sent; zero if none was.
	sentAt time.Time

	// triedAt is when the newest one was to be sent; it may have been left out.
	triedAt time.Time

	// copyDue is when the next one is due.
	copyDue time.Time

	// blind: its copies follow no report: it makes the drone safe, and a client asked for it
	blind bool

	// asked: a report was requested since the first copy
	asked bool

	// ackedAt is when ACCEPTED came first; zero if it has not.
	ackedAt time.Time

	// seen: a report since the first copy has shown what it asks for. A mode may show for a moment only.
	seen bool

	// refusal: the first ack that is not ACCEPTED
	refusal *uint8

	// refusedAt is when that came; zero if none has.
	refusedAt time.Time
}

func (c *command) acked() bool { return !c.ackedAt.IsZero() }

// answered reports whether any ack came.
func (c *command) answered() bool { return c.acked() || c.refusal != nil }

// answerBy is the time at which the wait for an answer ends. After the refusal of a mode change
// or an arming a report may still show it: the refusal may be an earlier command's, or another
// copy was accepted.
func (c *command) answerBy(trip time.Duration) time.Time {
	switch {
	case c.refusal != nil && c.step.byReport():
		return c.refusedAt.Add(newerAfter(trip))
	case c.refusal != nil:
		return c.refusedAt
	case c.acked():
		return c.ackedAt.Add(showWithin)
	}
	return c.sentAt.Add(max(giveUp, trip+tripMargin))
}

func newAcks(l *link, tel *telemetry) *acks {
	return &acks{
		link:    l,
		tel:     tel,
		waiting: make(map[common.MAV_CMD]*command),
		late:    make(map[common.MAV_CMD]time.Time),
	}
}

// open begins to wait for the acks of a step.
func (a *acks) open(s *step, before report) *command {
	c := &command{step: s, before: before}
	a.waiting[s.cmd] = c
	return c
}

// close ends the wait. Where the command was repeated or not answered, acks of it may still come.
func (a *acks) close(c *command) {
	delete(a.waiting, c.step.cmd)
	if c.copies > 1 || (c.copies == 1 && !c.answered()) {
		a.late[c.step.cmd] = c.triedAt
	}
}

// lateUntil is until when the ack of an earlier command with a number may come; zero: none may. It follows the round
// trip: behind an outage the first answers come late, and the next ones at once.
func (a *acks) lateUntil(cmd common.MAV_CMD) time.Time {
	tried, ok := a.late[cmd]
	if !ok {
		return time.Time{}
	}
	return tried.Add(max(lateAck, a.copyGap()))
}

// modeAnswered records the answer to the last mode change, an ack or a report, if cmd is its number.
func (a *acks) modeAnswered(cmd common.MAV_CMD) {
	if cmd == a.modeCmd {
		a.modeFrom = time.Now().Add(modeGap)
	}
}

// send sends a copy of the step. The command is waiting already: open comes first.
func (a *acks) send(c *command) error {
	now := time.Now()
	c.triedAt = now
	if c.copies > 0 {
		// gets the autopilot's parser out of a broken frame
		a.link.pad()
	}
	if err := a.link.send(c.step.message(a.tel.id.system, uint8(c.copies))); err != nil {
		return err
	}
	if c.copies == 0 {
		c.sentAt = now
	}
	c.copies++
	if c.step.to != nil {
		a.modeFrom = now.Add(modeUnknown)
		a.modeCmd = c.step.cmd
	}
	return nil
}

// hear takes an ack that the vehicle sent to us.
func (a *acks) hear(cmd common.MAV_CMD, result uint8, now time.Time) {
	// IN_PROGRESS: the answer is still to come.
	if result == uint8(common.MAV_RESULT_IN_PROGRESS) {
		return
	}
	a.modeAnswered(cmd)
	c, accepted := a.waiting[cmd], result == uint8(common.MAV_RESULT_ACCEPTED)
	switch {
	case c == nil || c.copies == 0 || now.Before(c.sentAt):
		// It answers no copy of a command that waits.
	case !accepted && c.refusal == nil:
		c.refusal = &result
		c.refusedAt = now
	case accepted && !c.acked():
		c.ackedAt = now
		a.measure(c, now.Sub(c.sentAt))
	}
}

// hearReport takes each report when it comes.
func (a *acks) hearReport(r report) {
	for _, c := range a.waiting {
		c.see(r)
	}
}

// see takes a report. Its number may have been kept since before the first copy: such a one shows nothing.
func (c *command) see(r report) {
	c.seen = c.seen || (!r.at.Before(c.sentAt) && c.shows(r))
}

// roundTrip is how long an answer takes now.
func (a *acks) roundTrip() time.Duration { return max(a.trip, a.behind) }

// measure takes the time from a command's first copy to its first ack. If the command was
// repeated, nobody knows which copy was answered: on a noisy line the first may be lost. So
// the round trip grows, step by step, only when slowAfter commands in a row were repeated. A vehicle that answers
// questions for its time measures it better: an ack may be that of an earlier command with the same number.
func (a *acks) measure(c *command, took time.Duration) {
	if a.link.answersTime(c.ackedAt) {
		return
	}
	a.repeated++
	switch {
	case c.copies == 1:
		a.trip = took
	case a.repeated == slowAfter:
		a.trip = min(took, max(2*a.trip, copyEvery))
	default:
		return
	}
	a.repeated = 0
	a.link.measured(a.trip, c.ackedAt)
}

// copyGap is the time between two copies of a command.
func (a *acks) copyGap() time.Duration { return max(copyEvery, a.roundTrip()*3/2) }

// requestMessage asks for a message (REQUEST_MESSAGE, 512). Its ack means nothing.
func (a *acks) requestMessage(id uint32) error {
	s := a.tel.id.firmware().step(common.MAV_CMD_REQUEST_MESSAGE, float32(id))
	return a.link.send(s.message(a.tel.id.system, 0))
}

// shows reports whether the newest report shows what the command asks for. Where the vehicle showed the same before
// the first copy, the ack must have come before the report.
func (c *command) shows(r report) bool {
	shows := false

	// What the command asks for.
	showedBefore := false
	switch s, g := c.step, c.step.to; {
	case s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM:
		shows, showedBefore = r.armed == s.arms(), c.before.armed == s.arms()
	case g == nil:
		return false
	default:
		atEnd := g.atEnd(r) && c.before.custom != g.end

		// The vehicle does not climb.
		disarmedTakeoff := s.cmd == common.MAV_CMD_NAV_TAKEOFF && !r.armed
		shows = (r.custom == g.number || atEnd) && !disarmedTakeoff
		showedBefore = c.before.custom == g.number
	}
	if showedBefore {
		return shows && c.acked()
	}
	return shows
}

// proven reports whether the vehicle has done what the command asks for: by its ack alone where no report can show
// it, else by a report. After a takeover that must be the last one: a mode that showed before is over.
func (c *command) proven(last report, taken bool) bool {
	switch {
	case !c.step.isShown():
		return c.acked()
	case taken && !c.shows(last):
		return false
	}
	return c.seen && (c.acked() || c.step.byReport())
}

var errPortAway = errors.New("the port was away when a step was due")

// What a task does next, decided from what is known at a moment: rules 5 and 6 of docs/design.md.
// waiter.loop does it, and waits.

// move is what is to be done now.
type move uint8

const (
	// look: nothing; decide again at the decision's time, or as soon as something came
	look move = iota

	// ask: request what is waited for
	ask

	// sendCopy: send a copy of the step
	sendCopy

	// leaveOut: leave this copy of the step out
	leaveOut

	// The moves from here on end the wait.

	// goOn: what was waited for is there, or need not be waited for.
	goOn

	// tooLate: it did not come in time
	tooLate

	// tooNear: the drone did not become clear of the ground in time
	tooNear

	// stop: the task was ended
	stop

	// proven: the step is shown, or acknowledged where that is enough
	proven

	// refused: the vehicle refused the step
	refused

	// notShown: the vehicle acknowledged the step, and no report shows it
	notShown

	// notAcked: the vehicle did not acknowledge the step
	notAcked

	// notObeying: a takeover ended the step's task, and no report shows the step
	notObeying
)

// ends reports whether a move ends the wait: the order of the moves says it.
func (m move) ends() bool { return m >= goOn }

// decision is a move, and for look the time at which to decide again.
type decision struct {
	move move
	at   time.Time
}

// until decides a wait for something that needs no request.
func until(end time.Time, came bool, now time.Time) decision {
	if came {
		return decision{move: goOn}
	}
	if !now.Before(end) {
		return decision{move: tooLate}
	}
	return decision{look, end}
}

// asking is something that is requested again and again until it comes, or the time is over.
type asking struct {
	every time.Duration
	end   time.Time

	// asked: zero: not yet
	asked time.Time
}

func (q *asking) decide(came bool, now time.Time) decision {
	d := until(q.end, came, now)
	if d.move != look {
		return d
	}

	again := q.asked.Add(q.every)
	if !now.Before(again) {
		return decision{move: ask}
	}
	return decision{look, sooner(again, q.end)}
}

// lift is the wait of what flies to a place until the drone is clear of the ground: a vehicle that lifts off
// while it flies sideways tips over, or hits what stands beside it.
type lift struct {
	// within is how long it may last, on the ground and once more from the first report in the air on.
	within time.Duration

	end time.Time

	// left: the drone has left the ground
	left bool
}

// decide says goOn once the drone is clear. A vehicle that is offline shows nothing any more.
func (l *lift) decide(clear, grounded, online bool, now time.Time) decision {
	if l.end.IsZero() || (!grounded && !l.left) {
		l.end = now.Add(l.within)
		l.left = !grounded
	}
	switch {
	case !online:
		return decision{move: tooLate}
	case clear:
		return decision{move: goOn}
	case !now.Before(l.end):
		return decision{move: tooNear}
	}
	return decision{look, l.end}
}

// departs is whose step departs, and so which report it follows (rule 5).
type departs uint8

const (
	// laterStep: of a client, and not the first one that was due at once
	laterStep departs = iota

	// firstStep: the first step of a client's command, which was due at once
	firstStep

	// firstToSafety: the same of a landing, a return, a hold or a disarming
	firstToSafety

	// forSilentClient: mavrest's own: it leaves the drone safe for a client that is gone
	forSilentClient

	// ownLanding: mavrest's own landing over a place, where the drone stands still
	ownLanding
)

// departure is a step that is due: it goes out after a report (rule 5), and to a place only once the drone is
// clear of the ground (rule 11).
type departure struct {
	// due is when it could first go; zero if it could not yet.
	due time.Time

	// whose says what it waits for.
	whose departs

	// away: it flies to a place
	away bool

	trip time.Duration

	// asked: a report was requested since it is due
	asked bool
}

// dueAnew sets when the step is due. Where that is another time a report is to be requested again.
func (x *departure) dueAnew(due time.Time) {
	x.asked = x.asked && due.Equal(x.due)
	x.due = due
}

// decide says goOn once the step may go out. A report from before the port was last found down does not count. fallen
// says that the line has fallen behind.
func (x *departure) decide(r *reports, clear, fallen bool, now time.Time) decision {
	// The drone was clear when the step was planned, so it has touched the ground again.
	if x.away && !clear {
		return decision{move: tooNear}
	}

	// A lost link cancels a hold for a silent client: somebody else may fly when it is back.
	if x.whose == forSilentClient && now.Sub(later(r.alive, x.due)) >= answerWait {
		return decision{move: tooLate}
	}
	waits := r.keeps() || !r.at.After(r.portAwayAt) || (x.whose == ownLanding && fallen)
	if !waits && x.follows(r) {
		return decision{move: goOn}
	}

	again := r.dueAwaited(x.trip)
	if !x.asked || !now.Before(again) {
		return decision{move: ask}
	}

	end := x.due.Add(x.waitsFor())
	atEnd := tooLate
	if blind := x.withoutReport(r); !blind.IsZero() && blind.Before(end) {
		end = blind
		atEnd = goOn
	}
	if !now.Before(end) {
		return decision{move: atEnd}
	}
	return decision{look, sooner(again, end)}
}

// follows reports whether the last report is one that the step may follow. An older one does not count: a pilot's
// switch may be newer. A client's first step follows what its client may have seen; any other a report that left for
// certain after it was due.
func (x *departure) follows(r *reports) bool {
	if x.whose == firstStep || x.whose == firstToSafety {
		return !r.at.Before(x.due.Add(-reportFresh))
	}
	return !r.after.Before(x.due)
}

// waitsFor is how long the step waits for its report.
func (x *departure) waitsFor() time.Duration {
	if x.whose == forSilentClient {
		return 2 * ownHoldWait
	}
	return max(answerWait, x.trip+tripMargin)
}

// withoutReport is when the step goes out without a report; zero: never. A client's first one goes where it makes the
// drone safe, and mavrest's own hold.
func (x *departure) withoutReport(r *reports) time.Time {
	from := later(x.due, r.portAwayAt)
	switch {
	case x.whose == forSilentClient && !r.keeps():
		return from.Add(ownHoldWait)
	case x.whose == firstToSafety && r.keeps():
		return from.Add(urgentKept)
	case x.whose == firstToSafety:
		return from.Add(urgentWait)
	}
	return time.Time{}
}

// decide says what becomes of a command whose first copy went out (rule 6): taken means that a takeover ended its task.
func (c *command) decide(m *machine, trip time.Duration, taken bool, now time.Time) decision {
	r := &m.reports
	if c.proven(m.last, taken) {
		return decision{move: proven}
	}

	end := c.answerBy(trip)
	repeats := !c.answered()

	// After a takeover no copy goes out any more (rule 4).
	if taken && repeats {
		end = c.triedAt.Add(showWithin)
		repeats = false
	}

	// On a slow line the answer is waited for longer than copies go out.
	repeats = repeats && now.Before(c.sentAt.Add(giveUp))
	if !now.Before(end) {
		return decision{move: c.unproven(taken)}
	}

	next := end
	copies := repeats && !now.Before(c.copyDue)
	waits := copies && !c.blind && r.after.Before(c.copyDue)
	if copies && !waits {
		return decision{move: c.repeat(m)}
	}
	if repeats && !copies {
		next = sooner(next, c.copyDue)
	}

	// A report may prove it now, or a copy waits for one.
	if waits || c.acked() || c.step.byReport() {
		again := r.dueAwaited(trip)
		asked := c.asked && !c.ackedAt.After(r.asked) && !(waits && r.askedProof.Before(c.copyDue))
		if !asked || !now.Before(again) {
			return decision{move: ask}
		}
		next = sooner(next, again)
	}
	return decision{look, next}
}

// repeat is what to do when a copy is due again. None goes out while a number is kept: it may be a pilot's
// switch. None arms an armed vehicle: he may have disarmed it in between.
func (c *command) repeat(m *machine) move {
	if m.reports.keeps() || (c.step.arms() && m.last.armed) {
		return leaveOut
	}
	return sendCopy
}

// unproven is why the wait for a command's proof is over.
func (c *command) unproven(taken bool) move {
	switch {
	case taken:
		return notObeying
	case c.refusal != nil:
		return refused
	case c.acked():
		return notShown
	}
	return notAcked
}

// refused is the error of a command that the autopilot answered with anything but ACCEPTED.
func (c *command) refused() error {
	result := *c.refusal
	e := &commandError{code: codeRefused, refused: &refusedStep{step: c.step, since: c.sentAt, result: result}}
	what := "the autopilot refused " + commandName(c.step)
	switch common.MAV_RESULT(result) {
	case common.MAV_RESULT_UNSUPPORTED, common.MAV_RESULT_COMMAND_INT_ONLY, common.MAV_RESULT_COMMAND_LONG_ONLY,
		common.MAV_RESULT_COMMAND_UNSUPPORTED_MAV_FRAME:
		e.code, what = codeUnsupported, "the autopilot does not know "+commandName(c.step)
	}

	// The goto was accepted and is not taken back (rule 7).
	switch c.step.cmd {
	case common.MAV_CMD_DO_CHANGE_SPEED:
		what = "it flies there at its own speed: the speed was refused"
	case common.MAV_CMD_CONDITION_YAW:
		what = "it flies there with a heading of its own: the heading was refused"
	}
	e.text = fmt.Sprintf("%s (%s)", what, resultName(result))
	return e
}

// hint is what is known to make ArduPilot refuse a step without a text (docs/autopilots.md). fenced: its fence is on.
func hint(f firmware, typ common.MAV_TYPE, s *step, fenced bool) string {
	switch {
	case !f.ardupilot():
	case typ == common.MAV_TYPE_HELICOPTER && s.cmd == common.MAV_CMD_NAV_TAKEOFF:
		return `; a helicopter takes off once its rotor turns: {"mode":"hold","arm":true}, ` +
			`then raise the motor interlock, then take off`
	case f == copter && s.cmd == common.MAV_CMD_NAV_TAKEOFF:
		return "; if it has a motor interlock: arm it in hold, raise the interlock, then take off"
	case s.cmd == common.MAV_CMD_DO_REPOSITION && !s.holds && fenced:
		return "; it refuses a place outside its fence"
	}
	return ""
}
