package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of a command's copies (docs/design.md, "Commands").
const (
	copyEvery   = 300 * time.Millisecond // or one and a half round trips
	giveUp      = 2 * time.Second        // after the first copy
	slowAfter   = 4                      // commands in a row that were answered after a repeat: the line is slow
	lateAck     = time.Second            // this long after a command's last copy an ack of it may still come
	modeGap     = 20 * time.Millisecond  // between a mode change's answer and the next one
	modeUnknown = 500 * time.Millisecond // between a mode change's last copy and the next one, where neither ack nor report came
	showWithin  = time.Second            // after the ack, until a report shows it
)

// acks matches COMMAND_ACKs with commands. An ack has no number: it only names its command.
type acks struct {
	link *link
	tel  *telemetry

	waiting  map[common.MAV_CMD]*command
	late     map[common.MAV_CMD]time.Time // until then acks of an earlier command with that number may come
	trip     time.Duration                // the round trip last measured
	repeated int                          // commands that were acknowledged after a repeat, since trip was set
	modeFrom time.Time                    // no mode change goes out before it
	modeCmd  common.MAV_CMD               // of the mode change sent last

	asked    map[questionKind]bool // the kinds of question that went out since the handshake began
	answered bool                  // one of them was answered
}

// questionKind is a kind of question to the vehicle: a command, a message (REQUEST_MESSAGE), or a parameter.
type questionKind struct {
	cmd   common.MAV_CMD
	id    uint32
	param string
}

// command is one MAVLink command with its copies and its answer.
type command struct {
	step   *step
	before report // the last report when the first copy went out

	copies       int
	sent         time.Time // the first
	last         time.Time // the last that was tried
	copyDue      time.Time // when the next one is due
	asked        bool      // a report was requested since the first copy
	ackedAt      time.Time // when ACCEPTED came first
	reportsAtAck int       // reports heard before that ack
	refusal      *uint8    // the first ack that is not ACCEPTED
	refusedAt    time.Time // when that came
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
	return c.sent.Add(giveUp)
}

func newAcks(l *link, tel *telemetry) *acks {
	return &acks{link: l, tel: tel, waiting: make(map[common.MAV_CMD]*command), late: make(map[common.MAV_CMD]time.Time), asked: make(map[questionKind]bool)}
}

// byReport reports whether a report proves the command, whatever its acks are.
func (s *step) byReport() bool {
	return s.cmd == common.MAV_CMD_DO_SET_MODE || s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM
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
	if c.copies > 1 || c.copies == 1 && !c.answered() {
		a.late[c.step.cmd] = c.last.Add(lateAck)
	}
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
	c.last = now
	if c.copies > 0 {
		a.link.pad() // gets the autopilot's parser out of a broken frame
	}
	if err := a.link.send(c.step.message(a.tel.id.system, uint8(c.copies))); err != nil {
		return err
	}
	a.asked[questionKind{cmd: c.step.cmd}] = true
	if c.copies == 0 {
		c.sent = now
	}
	c.copies++
	if c.step.to != nil {
		a.modeFrom, a.modeCmd = now.Add(modeUnknown), c.step.cmd
	}
	return nil
}

// hear takes an ack that the vehicle sent to us; reports is the number of reports before it.
func (a *acks) hear(cmd common.MAV_CMD, result uint8, reports int, now time.Time) {
	a.answered = true
	if result == uint8(common.MAV_RESULT_IN_PROGRESS) { // the answer is still to come
		return
	}
	a.modeAnswered(cmd)
	c, accepted := a.waiting[cmd], result == uint8(common.MAV_RESULT_ACCEPTED)
	switch {
	case c == nil || c.copies == 0 || now.Before(c.sent): // it answers no copy of a command that waits
	case !accepted && c.refusal == nil:
		c.refusal, c.refusedAt = &result, now
	case accepted && !c.acked():
		c.ackedAt, c.reportsAtAck = now, reports
		a.measure(c, now.Sub(c.sent))
	}
}

// measure takes the time from a command's first copy to its first ack. If the command was
// repeated, nobody knows which copy was answered: on a noisy line the first may be lost. So
// the round trip grows, step by step, only when slowAfter commands in a row were repeated.
func (a *acks) measure(c *command, took time.Duration) {
	a.repeated++
	switch {
	case c.copies == 1:
		a.trip, a.repeated = took, 0
	case a.repeated == slowAfter:
		a.trip, a.repeated = min(took, max(2*a.trip, copyEvery)), 0
	}
}

// copyGap is the time between two copies of a command.
func (a *acks) copyGap() time.Duration { return max(copyEvery, a.trip*3/2) }

// request asks for a message (REQUEST_MESSAGE, 512). Its ack means nothing.
func (a *acks) request(id uint32) error {
	s := a.tel.id.firmware().step(common.MAV_CMD_REQUEST_MESSAGE, float32(id))
	a.asked[questionKind{cmd: s.cmd, id: id}] = true
	return a.link.send(s.message(a.tel.id.system, 0))
}

// shown reports whether the command is proven: by r, the last report, or by its ack alone where
// that is enough. reports is the number of reports so far. Where the vehicle showed the same
// before the first copy, r must have come after the ack.
func (c *command) shown(r report, reports int) bool {
	shows, showedBefore := false, false // what the command asks for
	switch s, o := c.step, c.step.to; {
	case s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM:
		shows, showedBefore = r.armed == s.arms(), c.before.armed == s.arms()
	case o == nil: // only its ack answers it
		return c.acked()
	default:
		atEnd := o.atEnd(r) && c.before.custom != o.end
		disarmedTakeoff := s.cmd == common.MAV_CMD_NAV_TAKEOFF && !r.armed // the vehicle does not climb
		shows = (r.custom == o.number || atEnd) && !disarmedTakeoff
		showedBefore = c.before.custom == o.number
	}
	if showedBefore {
		return shows && c.acked() && reports > c.reportsAtAck
	}
	return shows && (c.acked() || c.step.byReport())
}

var (
	errAway     = errors.New("the port was away when a step was due")
	errStopping = &commandError{code: codeOffline, text: "mavrest is shutting down"}
)

// code is the code of a command's error; "" where it has none.
func code(err error) errorCode {
	var e *commandError
	if errors.As(err, &e) {
		return e.code
	}
	return ""
}

// ofChecks reports whether a text is one of the checks before arming.
func (t statusText) ofChecks() bool {
	return strings.HasPrefix(t.text, "PreArm") || strings.HasPrefix(t.text, "Arm:") || strings.HasPrefix(t.text, "Preflight")
}

// words are the texts in a sentence, each once.
func words(texts []statusText) string {
	var list []string
	for _, t := range texts {
		if !slices.Contains(list, t.text) {
			list = append(list, t.text)
		}
	}
	return strings.Join(list, "; ")
}

// refused is the error of a command that the autopilot answered with anything but ACCEPTED.
func (c *command) refused() error {
	e := &commandError{code: codeRefused, since: c.sent, step: c.step, result: *c.refusal}
	what := "the autopilot refused " + commandName(c.step)
	switch common.MAV_RESULT(e.result) {
	case common.MAV_RESULT_UNSUPPORTED, common.MAV_RESULT_COMMAND_INT_ONLY, common.MAV_RESULT_COMMAND_LONG_ONLY,
		common.MAV_RESULT_COMMAND_UNSUPPORTED_MAV_FRAME:
		e.code, what = codeUnsupported, "the autopilot does not know "+commandName(c.step)
	}
	switch c.step.cmd { // the goto was accepted and is not taken back (rule 7)
	case common.MAV_CMD_DO_CHANGE_SPEED:
		what = "it flies there at its own speed: the speed was refused"
	case common.MAV_CMD_CONDITION_YAW:
		what = "it flies there with a heading of its own: the heading was refused"
	}
	e.text = fmt.Sprintf("%s (%s)", what, resultName(e.result))
	return e
}

func resultName(result uint8) string {
	return lowerName(common.MAV_RESULT(result).String(), "MAV_RESULT_")
}

var commandNames = map[common.MAV_CMD]string{
	common.MAV_CMD_DO_SET_MODE:          "the mode change",
	common.MAV_CMD_COMPONENT_ARM_DISARM: "disarming",
	common.MAV_CMD_NAV_TAKEOFF:          "the takeoff",
	common.MAV_CMD_DO_REPOSITION:        "the goto",
	common.MAV_CMD_DO_CHANGE_SPEED:      "the speed",
	common.MAV_CMD_CONDITION_YAW:        "the heading",
}

// commandName is what a step is, in a sentence.
func commandName(s *step) string {
	switch {
	case s.arms():
		return "arming"
	case s.holds:
		return "the hold"
	}
	return cmp.Or(commandNames[s.cmd], fmt.Sprintf("command %d", s.cmd))
}
