package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// errorCode is the `code` of an error answer. errorStatus has the HTTP status of each.
type errorCode string

const (
	codeOutOfRange  errorCode = "out_of_range"
	codeWrongMode   errorCode = "wrong_mode"
	codeRefused     errorCode = "refused"
	codeSuperseded  errorCode = "superseded"
	codeUnsupported errorCode = "unsupported"
	codeOffline     errorCode = "offline"
	codeNoAck       errorCode = "no_ack"
	codeInterrupted errorCode = "interrupted"
	codeNotDone     errorCode = "not_done"
)

// Codes of requests that never reach the vehicle.
const (
	codeBadRequest     errorCode = "bad_request"
	codeNotFound       errorCode = "not_found"
	codeMethod         errorCode = "method_not_allowed"
	codeLengthRequired errorCode = "length_required"
	codeTooLarge       errorCode = "too_large"
	codeInternal       errorCode = "internal"
)

// Codes of the requests that admission rejects.
const (
	codeCrossOrigin errorCode = "cross_origin"
	codeWrongHost   errorCode = "wrong_host"
)

// errorStatus is the HTTP status of each code.
var errorStatus = map[errorCode]int{
	codeBadRequest:     http.StatusBadRequest,
	codeCrossOrigin:    http.StatusForbidden,
	codeNotFound:       http.StatusNotFound,
	codeMethod:         http.StatusMethodNotAllowed,
	codeWrongMode:      http.StatusConflict,
	codeRefused:        http.StatusConflict,
	codeSuperseded:     http.StatusConflict,
	codeInterrupted:    http.StatusConflict,
	codeLengthRequired: http.StatusLengthRequired,
	codeTooLarge:       http.StatusRequestEntityTooLarge,
	codeWrongHost:      http.StatusMisdirectedRequest,
	codeOutOfRange:     http.StatusUnprocessableEntity,
	codeInternal:       http.StatusInternalServerError,
	codeUnsupported:    http.StatusNotImplemented,
	codeOffline:        http.StatusServiceUnavailable,
	codeNoAck:          http.StatusGatewayTimeout,
	codeNotDone:        http.StatusGatewayTimeout,
}

// commandError is why a request was not carried out.
type commandError struct {
	code errorCode

	// text: a sentence that a person can act on
	text string

	// since: of a refusal: its first copy; of an interruption: the takeover
	since time.Time

	// failsafe: a failsafe interrupted it
	failsafe bool

	// step: the refused one; nil: the autopilot refused none, and nothing below is set
	step *step

	result   uint8
	messages []statusText
}

func (e *commandError) Error() string { return e.text }

func refuse(code errorCode, format string, args ...any) error {
	return &commandError{code: code, text: fmt.Sprintf(format, args...)}
}

var errSuperseded = &commandError{code: codeSuperseded, text: "a newer command took this one's place"}

// interruption is the error of a request that somebody else ended; since is when.
func interruption(since time.Time, why string) *commandError {
	return &commandError{code: codeInterrupted, text: why, since: since}
}

// vehicleFailed reports whether the vehicle is the reason of an error: it refused a step or did not answer.
func vehicleFailed(err error) bool {
	return slices.Contains([]errorCode{codeRefused, codeUnsupported, codeNoAck}, code(err))
}

// refused is the error of a command that the autopilot answered with anything but ACCEPTED.
func (c *command) refused() error {
	e := &commandError{code: codeRefused, since: c.sentAt, step: c.step, result: *c.refusal}
	what := "the autopilot refused " + commandName(c.step)
	switch common.MAV_RESULT(e.result) {
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
	e.text = fmt.Sprintf("%s (%s)", what, resultName(e.result))
	return e
}

func resultName(result uint8) string {
	return lowerName(common.MAV_RESULT(result).String(), "MAV_RESULT_")
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
