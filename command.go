package main

import (
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

	// showWithin is how much longer than a round trip a report has to show a command: from its ack on, and after a
	// takeover from its newest copy on.
	showWithin = time.Second

	// tripMargin is how much longer than a round trip an answer or a report is waited for, where that is longer than
	// giveUp or answerWait.
	tripMargin = time.Second
)

// acks matches COMMAND_ACKs with commands. An ack has no number: it only names its command.
type acks struct {
	link *link
	tel  *telemetry

	waiting map[common.MAV_CMD]*command

	// late is when the newest copy went out of a command with that number whose ack may still come (lateUntil).
	late map[common.MAV_CMD]time.Time

	// trip is the round trip last measured, behind how far the line is behind.
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

	// ackedAt is when ACCEPTED came first; zero if it has not.
	ackedAt time.Time

	// seen: a report since the first copy has shown what it asks for. A mode may show for a moment only.
	seen bool

	// refusal: the first ack that is not ACCEPTED
	refusal *uint8

	// refusedAt is when that came; zero if none has.
	refusedAt time.Time
}

func newAcks(l *link, tel *telemetry) *acks {
	return &acks{
		link:    l,
		tel:     tel,
		waiting: make(map[common.MAV_CMD]*command),
		late:    make(map[common.MAV_CMD]time.Time),
	}
}

// send sends a copy of the step. From the first one on the command waits for its acks. What can
// panic comes before the copy is on its way: else its client would be told that nothing was sent.
func (a *acks) send(c *command) error {
	now := time.Now()
	c.triedAt = now
	first := c.copies == 0
	if first {
		a.waiting[c.step.cmd] = c
	} else {
		// gets the autopilot's parser out of a broken frame
		a.link.pad()
	}
	if err := a.link.send(c.step.message(a.tel.id.system, uint8(c.copies))); err != nil {
		if first {
			a.forget(c)
		}
		return err
	}
	if first {
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
	case c == nil || now.Before(c.sentAt):
		// It answers no copy of a command that waits.
	case !accepted && c.refusal == nil:
		c.refusal = &result
		c.refusedAt = now
	case accepted && !c.acked():
		c.ackedAt = now
		a.measure(c, now.Sub(c.sentAt))
	}
}

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

// modeAnswered records the answer to the last mode change, an ack or a report, if cmd is its number.
func (a *acks) modeAnswered(cmd common.MAV_CMD) {
	if cmd == a.modeCmd {
		a.modeFrom = time.Now().Add(modeGap)
	}
}

// hearReport takes each report when it is judged.
func (a *acks) hearReport(r report) {
	for _, c := range a.waiting {
		c.see(r)
	}
}

// see takes a report. Its number may have been kept since before the first copy: such a one shows nothing.
func (c *command) see(r report) {
	c.seen = c.seen || (!r.at.Before(c.sentAt) && c.shows(r))
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

// shows reports whether a report shows what the command asks for. Where the vehicle showed the same before
// the first copy, the ack must have come before the report.
func (c *command) shows(r report) bool {
	// What the command asks for.
	var shows, showedBefore bool
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
	case s.cmd == common.MAV_CMD_DO_REPOSITION && s.name == "" && fenced:
		return "; it refuses a place outside its fence"
	}
	return ""
}

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
		return c.ackedAt.Add(trip + showWithin)
	}
	return c.sentAt.Add(max(giveUp, trip+tripMargin))
}

// close ends the wait. Where the command was repeated or not answered, acks of it may still come.
func (a *acks) close(c *command) {
	a.forget(c)
	if c.copies > 1 || (c.copies == 1 && !c.answered()) {
		a.late[c.step.cmd] = c.triedAt
	}
}

// forget ends that a command waits for its acks. Another one with its number may wait by now.
func (a *acks) forget(c *command) {
	if a.waiting[c.step.cmd] == c {
		delete(a.waiting, c.step.cmd)
	}
}

// lateUntil is until when the ack of an earlier command with a number may come; of one that was never sent it is long
// ago. It follows the round trip: behind an outage the first answers come late, and the next ones at once.
func (a *acks) lateUntil(cmd common.MAV_CMD) time.Time {
	return a.late[cmd].Add(max(lateAck, a.copyGap()))
}

// copyGap is the time between two copies of a command.
func (a *acks) copyGap() time.Duration { return max(copyEvery, a.roundTrip()*3/2) }

// roundTrip is how long an answer takes now.
func (a *acks) roundTrip() time.Duration { return max(a.trip, a.behind) }

// requestMessage asks for a message (REQUEST_MESSAGE, 512). Its ack does not mean that the message comes.
func (a *acks) requestMessage(id uint32) error {
	s := a.tel.id.firmware().step(common.MAV_CMD_REQUEST_MESSAGE, float32(id))
	return a.link.send(s.message(a.tel.id.system, 0))
}

// answered reports whether any ack came.
func (c *command) answered() bool { return c.acked() || c.refusal != nil }

func (c *command) acked() bool { return !c.ackedAt.IsZero() }
