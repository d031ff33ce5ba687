package main

import (
	"log/slog"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of a refusal's reasons (docs/design.md, "Reasons of a refusal").
const (
	textsAfter  = 300 * time.Millisecond // STATUSTEXTs that still belong to a refusal
	prearmEvery = 5 * time.Second        // between two reports of the pre-arm checks
	prearmQuiet = 200 * time.Millisecond // without a text: the report is over
	prearmMost  = 700 * time.Millisecond
	prearmHolds = 30 * time.Second // ArduPilot repeats what keeps it from arming
)

// reasons are the autopilot's own for what it refuses.
type reasons struct {
	craft    *aircraft
	acks     *acks
	reported time.Time // since when the last report of PX4's checks was asked for
}

// refusal is the error of a refused step, with what the autopilot says of it. Of
// an arming PX4 is asked for a report of its checks: a refusal alone brings no
// texts.
func (r *reasons) refusal(op *operation, s *step, result uint8, at time.Time) error {
	since, texts := op.began, &r.craft.tel.texts
	op.cleaning = true
	defer func() { op.cleaning = false }()
	if s.arms() && !r.craft.tel.beat.armed {
		since = r.checks(op)
	}
	op.sleep(at.Add(textsAfter))
	texts.flush(time.Now(), 0)
	var unhealthy []string
	if s.arms() {
		unhealthy = r.craft.tel.health.unhealthy()
	}
	return refusal(s, result, texts.since(since), unhealthy)
}

// checks has PX4 report why it can't be armed, and waits for it. It returns since
// when texts count: also those before it that still hold.
func (r *reasons) checks(op *operation) (since time.Time) {
	now, firmware, texts := time.Now(), r.craft.firmware, &r.craft.tel.texts
	if firmware != px4 {
		return now.Add(-prearmHolds)
	}
	if now.Sub(r.reported) < prearmEvery {
		return r.reported
	}
	r.reported = op.began
	run := firmware.command(common.MAV_CMD_RUN_PREARM_CHECKS)
	if _, err := op.transact(&run); err != nil {
		slog.Debug("no report of the pre-arm checks", "error", err)
		return op.began
	}
	r.acks.ask(1, time.Now()) // SYS_STATUS
	for end := time.Now().Add(prearmMost); time.Now().Before(end); {
		count := texts.count
		quiet := sooner(end, time.Now().Add(prearmQuiet))
		if op.await(quiet, func() bool { return texts.count != count }) != nil {
			break
		}
	}
	return op.began
}
