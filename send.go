package main

import (
	"time"
)

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

// awaitReport waits for the report that step s must follow (rule 5). Where x is the zero value the step is due, and x
// its departure, once it is ready.
func (d *drone) awaitReport(w waiter, t *task, s *step, x *departure) error {
	reports := &d.machine.reports
	x.asked = false
	end := t.loop(w, func(now time.Time) decision {
		if at := d.ready(s); x.due.IsZero() && now.Before(at) {
			return decision{look, at}
		}
		if x.due.IsZero() {
			*x = t.departure(s, now)
		}
		x.dueAnew(d.cmd.stood.dueAnew(x.due))
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
