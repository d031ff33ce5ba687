package main

import (
	"cmp"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of a step's report (docs/design.md, rule 5).
const (
	// dueAtOnce: a first step that is due within this time of its request is due at once.
	dueAtOnce = 10 * time.Millisecond

	// reportFresh is the age at which a report still allows a client's first step.
	reportFresh = 200 * time.Millisecond

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

// send takes a step its whole way, and returns why it was not sent, or why the vehicle did not take it: it waits until
// the step may go (rule 5), sends it, and repeats it until it is proven (rule 6).
func (d *drone) send(w waiter, t *task, s *step) error {
	var x departure
	c := &command{step: s, blind: t.request.urgent() && !t.request.toPlace() && !t.unasked()}
	defer d.cmd.acks.close(c)
	end, err := t.loop(w, func(now time.Time) decision {
		if c.copies == 0 {
			return d.untilGone(t, s, &x, now)
		}
		return d.untilProven(t, c, now)
	}, func(m move) error { return d.carryOn(t, c, m) })
	switch {
	case err != nil:
		return err
	case end == proven:
		d.cmd.acks.modeAnswered(s.cmd)
		return nil
	case c.copies == 0:
		return d.notSent(t, s, end)
	}
	return t.failure(c, end)
}

// untilGone decides for a step until its first copy has gone. x is its departure, the zero value until the step is
// ready: then it is due.
func (d *drone) untilGone(t *task, s *step, x *departure, now time.Time) decision {
	if x.due.IsZero() {
		if at := d.ready(s); now.Before(at) {
			return decision{look, at}
		}
		*x = t.departure(s, now)
	}
	x.due = d.cmd.stood.dueAnew(x.due)
	x.stood = d.cmd.stood.over

	// hearProof lets the loop ask at once, when an answer proves what comes from then on.
	reports := &d.machine.reports
	reports.awaited = x.due
	return x.decide(reports, d.view(now).isClear(), d.link.hasFallen(), now)
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

// departure is a step that is due: it goes out after a report (rule 5), and to a place only once the drone is
// clear of the ground (rule 11).
type departure struct {
	// due is when it could first go; zero if it could not yet.
	due time.Time

	// whose says what it waits for.
	whose whoseStep

	// away: it flies to a place
	away bool

	trip time.Duration

	// stood is when the program's last standstill was over; zero: there was none.
	stood time.Time
}

// departure is that of the task's next step, which could first go when it was due.
func (t *task) departure(s *step, due time.Time) departure {
	return departure{due: due, whose: t.whoseStep(s, due), away: s.away, trip: t.commander.acks.roundTrip()}
}

// whoseStep is whose step departs, and so which report it follows (rule 5).
type whoseStep uint8

const (
	// laterStep: of a client, and not the first one that was due at once
	laterStep whoseStep = iota

	// firstStep: the first step of a client's command, which was due at once
	firstStep

	// firstToSafety: the same of a landing, a return, a hold or a disarming
	firstToSafety

	// forSilentClient: mavrest's own: it leaves the drone safe for a client that is gone
	forSilentClient

	// ownLanding: mavrest's own landing over a place, where the drone stands still
	ownLanding

	// question: it changes nothing in the flight
	question
)

// whoseStep is whose the task's next step is.
func (t *task) whoseStep(s *step, due time.Time) whoseStep {
	switch {
	case s.asks():
		return question
	case t.continues != nil:
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

// decide says depart once the step may go out. A report from before the port was last found down does not count. fallen
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
		return decision{move: depart}
	}

	again := r.dueAwaited(x.trip)
	if !r.askedSince(x.due) || !now.Before(again) {
		return decision{move: ask}
	}

	end := x.due.Add(x.waitsFor())
	atEnd := tooLate
	if blind := x.withoutReport(r); !blind.IsZero() && blind.Before(end) {
		end = blind
		atEnd = depart
	}
	if !now.Before(end) {
		return decision{move: atEnd}
	}
	return decision{look, sooner(again, end)}
}

// follows reports whether the last report is one that the step may follow. An older one does not count: a pilot's
// switch may be newer. A client's first step follows what its client may have seen; any other a report that left for
// certain after it was due, or by what is assumed of a vehicle that proves nothing (leaving.after). A question follows
// none.
func (x *departure) follows(r *reports) bool {
	switch x.whose {
	case question:
		return true
	case firstStep, firstToSafety:
		// What is read behind a standstill may have come in it, and what came later may be lost.
		late := r.at.Before(x.stood.Add(readsFor)) && r.after.Before(x.stood)
		return !late && !r.at.Before(x.due.Add(-reportFresh))
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

// untilProven decides for a step from its first copy on.
func (d *drone) untilProven(t *task, c *command, now time.Time) decision {
	c.copyDue = d.cmd.stood.dueAnew(c.copyDue)
	if (!c.blind && d.link.hasFallen()) || d.mustProve(t) != nil {
		// The ack is on the way as well, and so may be a pilot's switch; or the vehicle has landed, and has not shown
		// what it is.
		c.copyDue = later(c.copyDue, now.Add(lineJitter))
	}
	d.machine.reports.awaited = c.copyDue
	return c.decide(&d.machine, d.cmd.acks.roundTrip(), t.takenOver(), now)
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
		end = c.triedAt.Add(trip + showWithin)
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
		asked := r.askedSince(c.sentAt) && !c.ackedAt.After(r.asked) && !(waits && r.askedProof.Before(c.copyDue))
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

// carryOn does what was decided for a step.
func (d *drone) carryOn(t *task, c *command, m move) (err error) {
	switch m {
	case ask:
		d.cmd.askForReport(true, time.Now())
		return nil
	case depart:
		err = d.depart(t, c)
	case sendCopy:
		t.sendCopy(c)
	case leaveOut:
		// Its time passes. Those that were missed are not made up either.
	}
	c.copyDue = time.Now().Add(d.cmd.acks.copyGap())
	return err
}

// depart sends a step's first copy. If the port is away by then the step waits for another report. It stays due since
// before, and so does not wait for another 1.5 s.
func (d *drone) depart(t *task, c *command) error {
	s := c.step

	// Not machine.explains: that also accepts the mode that a disarmed vehicle falls back to.
	if g := d.machine.commanded; t.command != nil && s.arms() && g != nil && d.machine.last.custom != g.number {
		return refuse(codeInterrupted, "arming was not sent: the vehicle left the mode that was set for it")
	}

	// It may have landed, or shown that it is something else, behind the step before.
	if err := d.mustProve(t); err != nil {
		return err
	}
	if err := d.placeAnew(t, s); err != nil {
		return err
	}
	c.before = d.machine.last
	if t.sendCopy(c); c.copies == 0 {
		d.machine.reports.portAwayAt = time.Now()
		d.machine.reports.askNow()
	}
	return nil
}

// placeAnew makes the place of a goto's step that names none, or metres, by the report that the step follows: the
// vehicle has moved on since its plan was made. It goes out right behind that, and its copies fly to the same place.
// What height the plan keeps it keeps.
func (d *drone) placeAnew(t *task, s *step) error {
	if t.request.verb != goesTo || t.request.lat != nil || !s.away || s.cmd != common.MAV_CMD_DO_REPOSITION {
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

// checkLimits is why a request is not carried out now, wherever its vehicle could fly: the line is too far behind, or
// its client hardly means the place or the height.
func (d *drone) checkLimits(r request) error {
	at := d.tel.position
	here := place{at.lat, at.lon, at.relative, at.amsl}
	return cmp.Or(r.checkLag(d.cmd.acks.behind, d.machine.last.armed), r.checkReach(here, d.tel.home, d.reach),
		r.checkHeight(here, d.tel.home, d.tel.height(time.Now()), d.tel.ground.assumed, d.ceiling))
}

// sendCopy sends a copy: from then on its mode may show, and the manoeuvre before it has ended.
func (t *task) sendCopy(c *command) {
	q := t.commander
	s := c.step

	// The port is away or its queue full: this copy is left out.
	if q.acks.send(c) != nil {
		return
	}
	if t.command == nil {
		t.answer.behind = q.acks.behind
	}
	t.command = c
	t.armed = t.armed || (s.arms() && !q.machine.last.armed)
	if s.to != nil {
		q.machine.claim(s.to, time.Now())

		// A second leg does not end the manoeuvre that it continues.
		if q.manoeuvre != t.continues {
			// An older task's, even if this step fails: t's own has not begun.
			q.endManoeuvre(errSuperseded)
		}
	}
}

// notSent is the error of a step that could not go.
func (d *drone) notSent(t *task, s *step, why move) error {
	switch {
	case why == tooNear:
		return d.view(time.Now()).tooLow(t.request.name())
	case d.machine.reports.portAway && t.command == nil:
		return refuse(codeOffline, "the port to the autopilot was down: %s was not sent", commandName(s))
	}
	return refuse(codeNoAck, "the autopilot did not answer; %s was not sent", commandName(s))
}

// failure is the error of a command that was refused, or not shown in time. A refused step
// explains no later report, and armed nothing.
func (t *task) failure(c *command, why move) error {
	name := commandName(c.step)
	if c.refusal != nil {
		t.commander.machine.refused(c.step.to)

		// A later arming is somebody else's.
		t.armed = t.armed && !c.step.arms()
	}
	switch why {
	case notObeying:
		// The takeover is the answer, not the refusal.
		return t.endedOnWire(false)
	case refused:
		return c.refused()
	case notShown:
		return refuse(codeNoAck, "%s was acknowledged, but the vehicle never reported it; read the status to see "+
			"whether it happened", name)
	}
	return refuse(codeNoAck, "%s was sent and never acknowledged; read the status to see whether it happened", name)
}
