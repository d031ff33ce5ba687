package main

import (
	"errors"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
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

// errPortAway: the first copy of a step could not be queued: the port is down, or its queue is full.
var errPortAway = errors.New("the port was away when a step was due")

// send waits until a step may go out, and sends it. If the port is away by then, it does both again.
func (d *drone) send(w waiter, t *task, s *step) error {
	// It is kept: on the second try the step is due since the first one, and does not wait for another 1.5 s.
	var x departure
	for {
		if err := d.awaitReport(w, t, s, &x); err != nil {
			return err
		}

		// Not machine.explains: that also accepts the mode that a disarmed vehicle falls back to.
		if g := d.machine.commanded; t.command != nil && s.arms() && g != nil && d.machine.last.custom != g.number {
			return refuse(codeInterrupted, "arming was not sent: the vehicle left the mode that was set for it")
		}
		if err := d.placeAnew(t, s); err != nil {
			return err
		}
		if err := t.transact(w, s); err != errPortAway {
			return err
		}
		d.machine.reports.portAwayAt = time.Now()
	}
}

// placeAnew makes the place of a step that flies to one in metres, by the report that the step follows: the vehicle
// has moved on since its plan was made. It goes out right behind that, and its copies fly to the same place. What
// height the plan keeps it keeps.
func (d *drone) placeAnew(t *task, s *step) error {
	if !t.request.offset.given() || !s.away || s.cmd != common.MAV_CMD_DO_REPOSITION {
		return nil
	}
	v := d.view(time.Now())
	r := t.request.placed(v)
	if err := d.checkLimits(r); err != nil {
		return err
	}
	to, err := r.destination(v, &aim{place: *t.plan.destination})
	if err != nil {
		return err
	}
	anew := r.reposition(v, to)
	s.x, s.y, s.p = anew.x, anew.y, anew.p
	t.plan.destination = &to
	return nil
}

// awaitReport waits for the report that step s must follow (rule 5). Where x is the zero value the step is due, and x
// its departure, once it is ready.
func (d *drone) awaitReport(w waiter, t *task, s *step, x *departure) error {
	reports := &d.machine.reports
	x.asked = false
	end := t.loop(w, func(now time.Time) decision {
		if x.due.IsZero() {
			if at := d.ready(s); now.Before(at) {
				return decision{look, at}
			}
			*x = t.departure(s, now)
		}
		x.dueAnew(d.cmd.stood.dueAnew(x.due))

		// hearProof asks at once, when an answer proves what comes from then on.
		reports.awaited = x.due
		return x.decide(reports, d.view(now).isClear(), d.link.hasFallen(), now)
	}, func(move) {
		x.asked = true
		d.cmd.askForReport(true, time.Now())
	})
	switch {
	case end == stop:
		return t.mustStop()
	case end == goOn:
		return nil
	case end == tooNear:
		return d.view(time.Now()).tooLow(t.request.name())
	case reports.portAway && t.command == nil:
		return refuse(codeOffline, "the port to the autopilot was down: %s was not sent", commandName(s))
	}
	return refuse(codeNoAck, "the autopilot did not answer; %s was not sent", commandName(s))
}

// ready is when a step may go out: its sticks were streamed for long enough, the last mode change
// is long enough ago, and no late ack of an earlier command can answer it.
func (d *drone) ready(s *step) time.Time {
	at := d.sticks.ready(s.needsStream(), d.situation(time.Now()), s.arms())
	acks := d.cmd.acks
	if s.to != nil {
		at = later(at, acks.modeFrom)
	}
	if !s.byReport() {
		at = later(at, acks.lateUntil(s.cmd))
	}
	return at
}

// departure is that of the task's next step, which could first go when it was due.
func (t *task) departure(s *step, due time.Time) departure {
	return departure{due: due, whose: t.departs(due), away: s.away, trip: t.commander.acks.roundTrip()}
}

// departs is whose the task's next step is.
func (t *task) departs(due time.Time) departs {
	switch {
	case t.firstLeg != nil:
		return ownLanding
	case t.unasked():
		return forSilentClient
	case t.command != nil || due.Sub(t.askedAt) > dueAtOnce:
		return laterStep
	case t.request.urgent():
		return firstToSafety
	}
	return firstStep
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

// askForReport requests HEARTBEAT. waits: a step waits for one that proves when it left.
func (c *commander) askForReport(waits bool, now time.Time) {
	r := &c.machine.reports
	r.ask(waits, now)
	c.acks.link.askTime(waits, now)
	if r.portAway = c.acks.requestMessage(idHeartbeat) != nil; r.portAway {
		r.portAwayAt = now
	}
}

// transact sends one command, repeats it until it is answered, and returns why the vehicle did
// not take it (rule 6).
func (t *task) transact(w waiter, s *step) error {
	c := t.commander
	x := c.acks.open(s, c.machine.last)
	defer c.acks.close(x)
	t.sendCopy(x)
	if x.copies == 0 {
		return errPortAway
	}
	x.copyDue = x.sentAt.Add(c.acks.copyGap())
	x.blind = t.request.urgent() && !t.request.toPlace() && !t.unasked()
	end := t.loop(w, func(now time.Time) decision {
		x.copyDue = c.stood.dueAnew(x.copyDue)
		if !x.blind && c.acks.link.hasFallen() {
			// The ack is on the way as well, and so may be a pilot's switch.
			x.copyDue = later(x.copyDue, now.Add(lineJitter))
		}
		c.machine.reports.awaited = x.copyDue
		return x.decide(c.machine, c.acks.roundTrip(), t.endedBy != nil, now)
	}, func(m move) {
		now := time.Now()
		switch m {
		case ask:
			x.asked = true
			c.askForReport(true, now)
			return
		case sendCopy:
			t.sendCopy(x)
		case leaveOut:
			// Its time passes. Those that were missed are not made up either.
		}
		x.copyDue = now.Add(c.acks.copyGap())
	})
	switch end {
	case stop:
		return t.mustStop()
	case proven:
		c.acks.modeAnswered(s.cmd)
		return nil
	}
	return t.failure(x, end)
}

// sendCopy sends a copy.
func (t *task) sendCopy(x *command) {
	c := t.commander
	s := x.step

	// The port is away or its queue full: this copy is left out.
	if c.acks.send(x) != nil {
		return
	}
	if t.command == nil {
		t.answer.behind = c.acks.behind
	}
	t.command = x
	t.armed = t.armed || (s.arms() && !c.machine.last.armed)
	if s.to != nil {
		c.machine.claim(s.to, time.Now())

		// A second leg does not end the manoeuvre that it continues.
		if c.manoeuvre != t.firstLeg {
			// An older task's, even if this step fails: t's own has not begun.
			c.endManoeuvre(errSuperseded)
		}
	}
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

// failure is the error of a command that was refused, or not shown in time. A refused step
// explains no later report, and armed nothing.
func (t *task) failure(x *command, why move) error {
	name := commandName(x.step)
	if x.refusal != nil {
		t.commander.machine.refused(x.step.to)

		// A later arming is somebody else's.
		t.armed = t.armed && !x.step.arms()
	}
	switch why {
	case notObeying:
		// The takeover is the answer, not the refusal.
		return t.ended("%s; %s was sent, and no report shows that the vehicle follows it", name)
	case refused:
		return x.refused()
	case notShown:
		return refuse(codeNoAck, "%s was acknowledged, but the vehicle never reported it; read the status to see "+
			"whether it happened", name)
	}
	return refuse(codeNoAck, "%s was sent and never acknowledged; read the status to see whether it happened", name)
}
