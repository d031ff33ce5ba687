package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// transact sends one command, repeats it until it is answered, and returns the
// autopilot's MAV_RESULT.
func (op *operation) transact(s *step) (uint8, error) {
	c := op.by
	for s.enters && time.Now().Before(c.modeAt) { // also one that takes another back
		if err := op.await(c.modeAt, nil); !errors.Is(err, errTimeout) {
			return 0, err
		}
	}
	x := c.acks.open(s, c.machine.raw.custom)
	x.own = op.own
	defer c.acks.close(x)
	defer op.gap(x)
	began, every := time.Now(), c.acks.firstRepeat()
	for i, factor := range repeats {
		due := time.Duration(float64(every) * factor)
		if due >= giveUp || x.progress != (time.Time{}) {
			break
		}
		if i > 0 {
			c.acks.ask(0, time.Now()) // ahead of a repeat (rule 8a)
			if is, on := s.arms(); is && on && op.disarmed {
				break
			}
		}
		if err := op.send(x); errors.As(err, new(*commandError)) {
			return 0, err
		}
		end := giveUp - lastLook
		if i+1 < len(repeats) {
			end = min(end, time.Duration(float64(every)*repeats[i+1]))
		}
		if result, err := op.answer(x, began.Add(end)); !errors.Is(err, errTimeout) {
			return result, err
		}
	}
	if x.progress != (time.Time{}) {
		if result, err := op.answer(x, x.progress.Add(progressWait)); !errors.Is(err, errTimeout) {
			return result, err
		}
	}
	if x.copies == 0 {
		return 0, refuse(codeOffline, "the port to the autopilot is down: %s was not sent", commandName(s))
	}
	// The 504 tells with the freshest report (rule 8c).
	until := began.Add(giveUp)
	if !time.Now().Before(until) {
		until = time.Now().Add(lastLook)
	}
	if err := op.ask(until); err != nil && !errors.Is(err, errTimeout) {
		return 0, err
	}
	if x.answered() || x.refusal != nil || x.proven(c.machine.raw.custom) { // it came in the last moment
		return op.answer(x, time.Now())
	}
	if x.accepted > 0 && x.stands(c.machine.raw.custom) {
		return uint8(common.MAV_RESULT_ACCEPTED), nil
	}
	return 0, &commandError{code: codeNoAck, command: uint16(s.cmd),
		text: fmt.Sprintf("%s was sent and never acknowledged; read the status to see whether it happened", commandName(s))}
}

// send sends a copy, unless the operation has ended: nothing of it may go out
// behind a newer command or a pilot's switch.
func (op *operation) send(x *exchange) error {
	c := op.by
	if err := op.await(time.Now(), func() bool { return true }); err != nil {
		return err
	}
	if op.cleaning && op.taken {
		return op.interrupted()
	}
	if err := c.acks.send(x); err != nil {
		return err
	}
	if x.step.enters {
		if c.op == nil { // the plan that this one made way for has ended already
			c.machine.begin(nil)
		}
		c.machine.expect(x.step.number)
	}
	if op.leg != nil {
		c.machine.also(x.step.number)
	}
	op.asked = op.asked || x.step.moves()
	if x.step.enters {
		c.modeAt = time.Now().Add(modeUnacked)
	}
	return nil
}

// gap lets the next mode change go a while after the ack of this one.
func (op *operation) gap(x *exchange) {
	if x.step.enters && !x.first.IsZero() {
		op.by.modeAt = time.Now().Add(modeGap)
	}
}

// answer waits for what answers a command: its ack; of a mode change also the
// heartbeat that shows it. Where PX4's second ack is missing it asks for one.
func (op *operation) answer(x *exchange, until time.Time) (uint8, error) {
	c := op.by
	for {
		switch {
		case x.proven(c.machine.raw.custom):
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		case x.refusal != nil:
			return op.refused(x)
		case x.answered():
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		}
		next, before := until, x.accepted
		if x.twice && x.accepted > 0 {
			c.acks.ask(0, time.Now())
			if soon := time.Now().Add(showEvery); soon.Before(until) {
				next = soon
			}
		}
		err := op.await(next, func() bool {
			return x.accepted != before || x.refusal != nil || x.proven(c.machine.raw.custom)
		})
		if err != nil && !errors.Is(err, errTimeout) {
			return 0, err
		}
		if err != nil && !time.Now().Before(until) {
			return 0, errTimeout
		}
	}
}

// refused is a refusal among the acks of a command's copies. It is the answer,
// but where the heartbeat shows the mode: then another copy was accepted.
func (op *operation) refused(x *exchange) (uint8, error) {
	if x.step.enters && x.copies > 1 {
		if err := op.ask(time.Now().Add(secondAck)); err != nil && !errors.Is(err, errTimeout) {
			return 0, err
		}
		if x.shows(op.by.machine.raw.custom) {
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		}
	}
	return *x.refusal, nil
}

// fail ends an operation whose step i was refused, never acknowledged or never
// sent: it takes the earlier steps back and says why.
func (op *operation) fail(i int, result uint8, err error) error {
	c := op.by
	op.leadThrough()
	switch {
	case c.stopped:
		return err
	case err == nil || isNoAck(err):
	case op.gone != nil: // nothing more is sent after a pilot's switch, nor before a mode that replaces this one
		if code(op.gone) != codeSuperseded || c.op != nil && c.op != op && c.op.plan.setsMode {
			return err
		}
	}
	at := time.Now()
	op.takeBack(i, err)
	if err != nil {
		return err
	}
	return c.refusal(op, &op.plan.steps[i], result, at)
}

// takeBack undoes the steps before step i, and i where it may have happened, in
// the reverse order, while the last report is one that the plan explains.
func (op *operation) takeBack(i int, err error) {
	undo := op.plan.steps[:min(i, len(op.plan.steps))]
	if isNoAck(err) && i > 0 && i < len(op.plan.steps) && op.asked {
		undo = op.plan.steps[:i+1]
	}
	op.cleaning = true
	defer func() { op.cleaning = false }()
	for _, s := range slices.Backward(undo) {
		if s.undo == nil || s.through {
			continue
		}
		if op.taken || op.ask(time.Now().Add(lookWithin)) != nil || op.taken {
			return
		}
		if r, uerr := op.transact(s.undo); uerr != nil || r != 0 {
			slog.Warn("a refused command could not be taken back", "what", commandName(s.undo), "answer", inWords(r, uerr))
			return // it may fly: the mode it has is better than the one before
		}
		op.by.follow(op, s.undo)
	}
}

// code is the code of a command's error; "" where it has none.
func code(err error) errorCode {
	var ce *commandError
	if errors.As(err, &ce) {
		return ce.code
	}
	return ""
}

func isNoAck(err error) bool { return code(err) == codeNoAck }

// general are texts that name no cause: they stand behind those that do.
var general = []string{"Resolve system health failures first", "not armable", "Arming denied"}

// refusal is the error of a step that the autopilot answered with anything but
// ACCEPTED. It names every reason, the most specific first, and the unhealthy
// systems where no text tells.
func refusal(s *step, result uint8, texts []statusText, unhealthy []string) error {
	e := &commandError{code: codeRefused, answered: true, command: uint16(s.cmd), result: result}
	var causes, others []string
	for _, t := range texts {
		preArm := strings.HasPrefix(t.text, "PreArm") || strings.HasPrefix(t.text, "Arm:") || strings.HasPrefix(t.text, "Preflight Fail")
		if t.severity > uint8(common.MAV_SEVERITY_WARNING) && !preArm {
			continue
		}
		e.messages = append(e.messages, t)
		isGeneral := slices.ContainsFunc(general, func(g string) bool { return strings.Contains(t.text, g) })
		switch {
		case slices.Contains(causes, t.text) || slices.Contains(others, t.text):
		case isGeneral:
			others = append(others, t.text)
		default:
			causes = append(causes, t.text)
		}
	}
	if len(causes) == 0 && len(unhealthy) > 0 {
		causes = append(causes, "unhealthy: "+strings.Join(unhealthy, ", "))
	}
	why := ""
	if list := append(causes, others...); len(list) > 0 {
		why = ": " + strings.Join(list, "; ")
	}
	verb := "refused"
	switch common.MAV_RESULT(result) {
	case common.MAV_RESULT_UNSUPPORTED, common.MAV_RESULT_COMMAND_INT_ONLY, common.MAV_RESULT_COMMAND_LONG_ONLY,
		common.MAV_RESULT_COMMAND_UNSUPPORTED_MAV_FRAME:
		e.code, verb = codeUnsupported, "does not know"
	}
	e.text = fmt.Sprintf("the autopilot %s %s (%s)%s", verb, commandName(s), resultName(result), why)
	return e
}

// resultName is a MAV_RESULT's name in lower case.
func resultName(result uint8) string {
	return lowerName(common.MAV_RESULT(result).String(), "MAV_RESULT_")
}

// inWords is how a command was answered, for the log: a MAV_RESULT's name, or why
// there is none.
func inWords(result uint8, err error) string {
	if err != nil {
		return err.Error()
	}
	return resultName(result)
}

// commandName is what a step is, in a sentence.
func commandName(s *step) string {
	switch s.cmd {
	case common.MAV_CMD_DO_SET_MODE:
		return "the mode change"
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		if s.p[0] == 0 {
			return "disarming"
		}
		return "arming"
	case common.MAV_CMD_NAV_TAKEOFF:
		return "the takeoff"
	case common.MAV_CMD_NAV_LAND:
		return "the landing"
	case common.MAV_CMD_DO_REPOSITION:
		if s.stays {
			return "the hold"
		}
		return "the goto"
	case common.MAV_CMD_DO_CHANGE_SPEED:
		return "the speed"
	case common.MAV_CMD_CONDITION_YAW:
		return "the heading"
	}
	return fmt.Sprintf("command %d", s.cmd)
}
