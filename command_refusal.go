package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

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

var commandNames = map[common.MAV_CMD]string{
	common.MAV_CMD_DO_SET_MODE:          "the mode change",
	common.MAV_CMD_COMPONENT_ARM_DISARM: "disarming",
	common.MAV_CMD_NAV_TAKEOFF:          "the takeoff",
	common.MAV_CMD_NAV_LAND:             "the landing",
	common.MAV_CMD_DO_REPOSITION:        "the goto",
	common.MAV_CMD_DO_CHANGE_SPEED:      "the speed",
	common.MAV_CMD_CONDITION_YAW:        "the heading",
}

// commandName is what a step is, in a sentence.
func commandName(s *step) string {
	switch {
	case s.arms():
		return "arming"
	case s.stays:
		return "the hold"
	}
	return cmp.Or(commandNames[s.cmd], fmt.Sprintf("command %d", s.cmd))
}
