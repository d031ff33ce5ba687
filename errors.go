package main

import (
	"cmp"
	"errors"
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
	codeTooManyStreams errorCode = "too_many_streams"
)

// Codes of the requests that admission rejects.
const (
	codeCrossOrigin errorCode = "cross_origin"
	codeWrongHost   errorCode = "wrong_host"
)

// errorStatus is the HTTP status of each code. That of one error may be another: statusOf.
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
	codeTooManyStreams: http.StatusServiceUnavailable,
	codeNoAck:          http.StatusConflict,
	codeNotDone:        http.StatusConflict,
}

// statusOf is the HTTP status of an error. Programs repeat 408, 429 and whatever is 500 or higher without being
// told to, some seconds later: by then a pilot may have the drone. So these say that nothing was sent.
func statusOf(err error) int {
	var e *commandError
	acted := errors.As(err, &e) && e.acted
	status := errorStatus[cmp.Or(code(err), codeInternal)]
	if acted && status >= http.StatusInternalServerError {
		return http.StatusConflict
	}
	return status
}

// commandError is why a request was not carried out.
type commandError struct {
	code errorCode

	// text: a sentence that a person can act on
	text string

	// acted: something was sent, or a repeat could take the drone from a pilot: it was armed when it was last heard
	acted bool

	// refused: nil: the autopilot refused no step
	refused *refusedStep

	// interruption: nil: nobody took the drone
	interruption *interruption
}

// refusedStep is a step that the autopilot refused.
type refusedStep struct {
	step *step

	// since is when its first copy went out.
	since time.Time

	result uint8

	// messages: what the autopilot said about it
	messages []statusText
}

// interruption is that somebody else took the drone.
type interruption struct {
	at time.Time

	// failsafe: a failsafe did
	failsafe bool
}

func (e *commandError) Error() string { return e.text }

func refuse(code errorCode, format string, args ...any) error {
	return &commandError{code: code, text: fmt.Sprintf(format, args...)}
}

var errSuperseded = &commandError{code: codeSuperseded, text: "a newer command took this one's place"}

var errQuitting = &commandError{code: codeOffline, text: "mavrest is shutting down"}

// interrupted is the error of a request that somebody else ended.
func interrupted(at time.Time, why string) *commandError {
	return &commandError{code: codeInterrupted, text: why, interruption: &interruption{at: at}}
}

// withLag adds lateNote to an error.
func withLag(err error, behind time.Duration) error {
	e, ok := err.(*commandError)
	if note := lateNote(behind); ok && note != "" {
		full := *e
		full.text += "; " + note
		return &full
	}
	return err
}

// lateNote says how old what was known was when a command went out; "" where it was not old.
func lateNote(behind time.Duration) string {
	if behind < lateFrom {
		return ""
	}
	return fmt.Sprintf("it was sent by reports that were %.1f s old", behind.Seconds())
}

// code is the code of a command's error; "" where it has none.
func code(err error) errorCode {
	var e *commandError
	if errors.As(err, &e) {
		return e.code
	}
	return ""
}

// stepFailed reports whether the vehicle refused a step, or nobody knows whether it took it.
func stepFailed(err error) bool {
	var e *commandError
	return errors.As(err, &e) && (e.refused != nil || e.code == codeNoAck)
}

func resultName(result uint8) string {
	return lowerName(common.MAV_RESULT(result).String(), "MAV_RESULT_")
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
