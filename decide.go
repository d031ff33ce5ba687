package main

import "time"

// What a task does next, decided from what is known at a moment: rules 5 and 6 of docs/design.md.
// waiter.follow does it, and waits.

// move is what is to be done now.
type move uint8

const (
	look     move = iota // nothing; decide again at the decision's time, or as soon as something came
	ask                  // request what is waited for
	sendCopy             // send a copy of the step
	leaveOut             // leave this copy of the step out

	// The moves from here on end the wait.

	goOn       // what was waited for is there, or need not be waited for
	tooLate    // it did not come in time
	tooNear    // the drone did not become clear of the ground in time
	stop       // the task was ended
	proven     // the step is shown, or acknowledged where that is enough
	refused    // the vehicle refused the step
	notShown   // the vehicle acknowledged the step, and no report shows it
	notAcked   // the vehicle did not acknowledge the step
	notObeying // a takeover ended the step's task, and no report shows the step
)

// decision is a move, and for look the time at which to decide again.
type decision struct {
	move move
	at   time.Time
}

// until decides a wait for something that needs no request.
func until(end time.Time, came bool, now time.Time) decision {
	switch {
	case came:
		return decision{move: goOn}
	case !now.Before(end):
		return decision{move: tooLate}
	}
	return decision{look, end}
}

// question is something that is requested again and again until it comes, or the time is over.
type question struct {
	every time.Duration
	end   time.Time
	asked time.Time // zero: not yet
}

func (q *question) decide(came bool, now time.Time) decision {
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
	within time.Duration // how long it may last, on the ground and once more from the first report in the air on
	end    time.Time
	left   bool // the drone has left the ground
}

// decide says goOn once the drone is clear. A vehicle that is offline shows nothing any more.
func (l *lift) decide(clear, grounded, online bool, now time.Time) decision {
	if l.end.IsZero() || !grounded && !l.left {
		l.end, l.left = now.Add(l.within), !grounded
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

// departure is a step that is due: it goes out after a report (rule 5), and to a place only once the drone is
// clear of the ground (rule 11).
type departure struct {
	due    time.Time // when it could first go
	atOnce bool      // it is the first step of a client's command, which was due at once
	urgent bool      // of a landing, a return, a hold or a disarming
	away   bool      // it flies to a place
	trip   time.Duration
	asked  bool // a report was requested since it is due
}

// decide says goOn once the step may go out. A report from before awayAt, when the port was last found down,
// does not count.
func (x departure) decide(r *reports, awayAt time.Time, clear bool, now time.Time) decision {
	if x.away && !clear { // it was when the step was planned, so the drone has touched the ground again
		return decision{move: tooNear}
	}

	oldest := x.due.Add(max(reportAgain, x.trip)) // an older report does not count: a pilot's switch may be newer
	if x.atOnce {
		oldest = x.due.Add(-reportFresh)
	}
	if !r.keeps() && !r.at.Before(oldest) && r.at.After(awayAt) {
		return decision{move: goOn}
	}

	again := r.dueAwaited(x.trip)
	if !x.asked || !now.Before(again) {
		return decision{move: ask}
	}

	end, atEnd := x.due.Add(answerWait), tooLate
	if blind := x.withoutReport(r.keeps(), awayAt); x.atOnce && x.urgent && blind.Before(end) {
		end, atEnd = blind, goOn
	}
	if !now.Before(end) {
		return decision{move: atEnd}
	}
	return decision{look, sooner(again, end)}
}

// withoutReport is when an urgent first step goes out without a report.
func (x departure) withoutReport(kept bool, awayAt time.Time) time.Time {
	wait := urgentWait
	if kept {
		wait = urgentKept
	}
	return later(x.due, awayAt).Add(wait)
}

// decide says what becomes of a command whose first copy went out (rule 6): last is the last report, taken
// means that a takeover ended its task.
func (c *command) decide(last report, r *reports, trip time.Duration, taken bool, now time.Time) decision {
	if c.shown(last, r.n) {
		return decision{move: proven}
	}

	end, repeats := c.answerBy(trip), !c.answered()
	if taken && repeats { // no copy goes out any more (rule 4)
		end, repeats = c.last.Add(showWithin), false
	}
	if !now.Before(end) {
		return decision{move: c.unproven(taken)}
	}

	next := end
	if repeats {
		if !now.Before(c.copyDue) {
			return decision{move: c.repeat(last, r)}
		}
		next = sooner(next, c.copyDue)
	}

	if c.acked() || c.step.byReport() { // else no report proves it yet
		again := r.dueAwaited(trip)
		if !c.asked || c.ackedAt.After(r.asked) || !now.Before(again) {
			return decision{move: ask}
		}
		next = sooner(next, again)
	}
	return decision{look, next}
}

// repeat is what to do when a copy is due again. None goes out while a number is kept: it may be a pilot's
// switch. None arms an armed vehicle: he may have disarmed it in between.
func (c *command) repeat(last report, r *reports) move {
	if r.keeps() || c.step.arms() && last.armed {
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
