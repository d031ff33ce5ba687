package main

import (
	"fmt"
	"slices"
	"time"
)

// errorCode is the `code` of an error answer; api.go gives it its HTTP status.
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
