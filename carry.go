package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// do carries a client's request out. It returns when the vehicle shows what the request leads
// to, or with a *commandError that says why it does not.
func (d *drone) do(r request) (a answer, err error) {
	sent := false
	defer func() {
		if v := recover(); v != nil {
			err = bug(d.log, v, sent)
		}
	}()
	d.changeMayWait(func(w waiter) {
		t := d.cmd.newTask(r, time.Now())
		defer func() { sent = t.command != nil }()
		d.arrive(w, t)
		err = d.perform(w, t)
		err = d.explained(w, err)
		err = withLag(err, t.answer.behind)
		err = d.withActed(err, t.command != nil)
		a = t.answer
	})
	return a, err
}

// arrive lets a request begin when it is its turn. What was heard since its last bytes came, before its client could
// know of it, ends it: what ended everything, and a disarming what leads to an armed vehicle, a place or a stick mode.
// A newer request that has begun before it supersedes it, unless it only makes the drone safe.
func (d *drone) arrive(w waiter, t *task) {
	c, r := d.cmd, t.request
	d.awaitTurn(w, r.came, r.due)
	switch {
	case c.newest.After(r.came.Add(kernelTick)) && (!r.urgent() || r.toPlace() || r.arms()):
		t.end(errSuperseded)
	case c.allEndedAt.After(r.came):
		t.end(c.allEnded)
	case c.disarmedAt.After(r.came) && (r.arms() || r.entersSticks() || r.toPlace()):
		t.end(interrupted(c.disarmedAt, "the vehicle was disarmed"))
	}
	t.askedAt = time.Now()
}

// awaitTurn waits, where the program has just stood still, until all was read that had come by then, and until what
// came before has begun: it waited for the program too, and Go runs last what came first. came is when the last bytes
// of a client's request came, due when they could be read: one that is read much later tells of a standstill in which
// nothing was due. It has arrived whatever happens, also by a panic, which do recovers: else each later one would wait
// for it.
func (d *drone) awaitTurn(w waiter, came, due time.Time) {
	c, now := d.cmd, time.Now()
	c.arriving = append(c.arriving, &came)
	defer func() {
		c.arriving = slices.DeleteFunc(c.arriving, func(other *time.Time) bool { return other == &came })
		c.bell.ring()
	}()
	c.stood.woke(d.dueAt, now)
	c.stood.woke(due, now)

	// Each wait begins with reading. By this one's end the others are here as well.
	w.wait(c.stood.over.Add(lateBy), func() bool { return false })
	w.wait(now.Add(2*readsFor), func() bool { return c.isOldest(came) })
}

// awaitEnd waits until a manoeuvre is complete, or returns what ended it (drone.watch looks each 0.2 s); began is when
// its request came. A client that goes away ends only its own wait, a lost link ends nothing, and at the program's end
// the vehicle flies on.
func (d *drone) awaitEnd(ctx context.Context, m *manoeuvre, began time.Time) (err error) {
	select {
	case <-m.over:
	case <-ctx.Done():
	case <-d.ended:
	}
	d.changeMayWait(func(w waiter) {
		if m.finished() {
			err = d.explained(w, m.why)
		} else {
			err = m.notDone(d.view(time.Now()), time.Since(began), d.able())
		}
	})
	return err
}

// perform takes a task from its arrival to its answer.
func (d *drone) perform(w waiter, t *task) error {
	err := t.mustEnd()
	if err == nil {
		err = d.inQueue(w, t)
	}

	// Only a client reads reasons.
	if e, ok := err.(*commandError); ok && e.refused != nil && !t.unasked() {
		err = d.reasons(w, t, e)
	}

	// Clients that repeat at once would supersede each other for ever.
	if code(err) == codeSuperseded {
		w.wait(time.Now().Add(giveUp), func() bool { return len(d.cmd.tasks) == 0 || d.cmd.quitting })
	}
	return d.leftBehind(t, err)
}

// inQueue takes a task through the queue. The task leaves it whatever happens, also by a panic, which do recovers: else
// no task would have its turn any more.
func (d *drone) inQueue(w waiter, t *task) error {
	defer d.cmd.leave(t)
	if err := d.takeTurn(w, t); err != nil {
		return err
	}
	err := d.carryOut(w, t)
	d.conclude(w, t, err)
	return err
}

// takeTurn plans a task, so that one that can't be planned ends no other, waits until it is under way, and plans it
// again behind each wait: for the vehicle as it is then.
func (d *drone) takeTurn(w waiter, t *task) error {
	if err := d.makePlan(t); err != nil {
		return err
	}
	d.cmd.join(t, d.view(time.Now()))
	if _, err := t.loop(w, func(now time.Time) decision {
		// It waits for its turn without an end: this one moves on with each decision.
		return until(now.Add(time.Minute), t == d.cmd.current(), now)
	}, nil); err != nil {
		return err
	}
	if err := d.awaitFamily(w, t); err != nil {
		return err
	}

	// What it was planned for may have failed meanwhile, as a takeoff ahead of a goto.
	if err := d.planAnew(t); err != nil {
		return err
	}
	t.was = d.machine.last
	t.previous = d.cmd.manoeuvre
	if err := d.awaitClear(w, t); err != nil {
		return err
	}
	if err := d.restSticks(w, t); err != nil {
		return err
	}
	if err := d.askHome(w, t); err != nil {
		return err
	}
	return d.planAnew(t)
}

// planAnew makes a task's plan again, if anything has changed since it was made.
func (d *drone) planAnew(t *task) error {
	if t.plannedAt == d.changes.Load() {
		return nil
	}
	return d.makePlan(t)
}

// makePlan makes the plan of a request, for the vehicle as it is now. A fixed wing may be a
// QuadPlane until EXTENDED_SYS_STATE came.
func (d *drone) makePlan(t *task) (err error) {
	t.plannedAt = d.changes.Load()
	if m := t.continues; m != nil {
		t.plan = plan{steps: []step{*m.plan.second}, stop: d.view(time.Now()).stopFirst()}
		return nil
	}
	err = d.able()

	// mavrest's own steps may go out while the program ends.
	if t.unasked() && err == errQuitting {
		err = nil
	}
	if err == nil && t.request.setsMode() && d.firmware() == plane && !d.tel.landed.received() {
		err = refuse(codeOffline, "the vehicle has not reported yet whether it is a QuadPlane; try again")
	}
	v := d.view(time.Now())
	r := t.request.placed(v)
	if err == nil {
		err = d.checkLimits(r)
	}
	if err == nil {
		t.plan, err = r.plan(v, d.aim(t, v))
	}
	return err
}

// aim is the destination whose height a task's plan keeps: see task.climbed, or that of what was commanded here last;
// nil: there is none.
func (d *drone) aim(t *task, v view) *aim {
	if t.climbed != nil {
		return t.climbed
	}

	// A goto right behind a takeoff may come while that is still arming.
	if ahead := d.cmd.takeoffAhead(t); ahead != nil && t.request.toPlace() {
		return ahead
	}
	return d.cmd.aim(v)
}

// awaitFamily waits until the vehicle has shown that it is what it calls itself. Where it may be in the air what makes
// it safe goes out without that: mavrest may have started again, or what it sends may be lost on its way.
func (d *drone) awaitFamily(w waiter, t *task) error {
	doubt := func() error { return d.view(time.Now()).doubt }
	if doubt() == nil || t.continues != nil {
		return nil
	}
	request := func() {
		for _, name := range ownParameters[d.firmware().mates()] {
			d.params.request(name)
		}
	}
	judged := func() bool { return code(doubt()) != codeOffline }
	if err := t.ask(w, copyEvery, time.Now().Add(familyWait), request, judged); err != nil {
		return err
	}
	if err := d.mustProve(t); err != nil {
		return err
	}

	// It is due from now on.
	if t.request.urgent() && !t.unasked() {
		t.askedAt = time.Now()
	}
	return nil
}

// awaitClear waits until the drone is clear of the ground, if the task flies to a place (rule 11). Where nothing lifts
// the drone the task sends it up first. The plan is made after that: home may have moved. A newer request that came
// while the task was in the queue ends it too.
func (d *drone) awaitClear(w waiter, t *task) error {
	if len(d.cmd.tasks) > 1 && t.plan.away() && !d.view(time.Now()).isClear() {
		t.end(errSuperseded)
	}
	for t.plan.away() && !d.view(time.Now()).isClear() {
		if d.mustClimb(t, time.Now()) {
			if err := d.climb(w, t); err != nil {
				return err
			}
			continue
		}
		if err := d.awaitLift(w, t); err != nil {
			return err
		}
	}
	return nil
}

// climb sends a vehicle straight up that is too near the ground to fly to a place, and that nothing lifts. The task
// then keeps that height, unless a takeoff led to one that is high enough to fly at.
func (d *drone) climb(w waiter, t *task) error {
	if err := d.restSticks(w, t); err != nil {
		return err
	}
	v := d.view(time.Now())
	p := planClimb(v)
	t.climbed = &aim{place: *p.destination}
	if last := d.cmd.aim(v); last != nil && last.reached && v.height+last.amsl-v.place.amsl >= lowTakeoff {
		t.climbed = last
	}
	for i := range p.steps {
		if err := d.doStep(w, t, &p.steps[i], false); err != nil {
			return err
		}
	}
	return nil
}

// lift is the wait of what flies to a place until the drone is clear of the ground: a vehicle that lifts off
// while it flies sideways tips over, or hits what stands beside it.
type lift struct {
	// within is how long it may last, on the ground and once more from the first report in the air on.
	within time.Duration

	end time.Time

	// left: the drone has left the ground
	left bool
}

// awaitLift waits until the drone is clear of the ground, or must be sent up.
func (d *drone) awaitLift(w waiter, t *task) error {
	v := d.view(time.Now())
	t.state = awaitsLift

	// A client that waits is heard when its request comes, and no longer.
	d.sticks.client.spoke = v.now
	l := lift{within: v.clearWithin()}
	end, err := t.loop(w, func(now time.Time) decision {
		v := d.view(now)
		return l.decide(v.isClear() || d.mustClimb(t, now), v.landed == onGround, v.online, now)
	}, nil)
	t.state = carriesOut
	switch end {
	case tooLate:
		return d.able()
	case tooNear:
		return d.view(time.Now()).tooLow(t.request.name())
	}
	return err
}

// decide says goOn once the drone is clear. A vehicle that is offline shows nothing any more.
func (l *lift) decide(clear, grounded, online bool, now time.Time) decision {
	if l.end.IsZero() || (!grounded && !l.left) {
		l.end = now.Add(l.within)
		l.left = !grounded
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

// mustClimb reports whether the task has to send the drone up, and has not yet.
func (d *drone) mustClimb(t *task, now time.Time) bool {
	v := d.view(now)
	return t.climbed == nil && v.mustClimb(d.cmd.aim(v))
}

// restSticks centres our sticks before PX4 is sent another mode, if they must rest, and waits until they
// have been still for stickRest: PX4 takes moving sticks for a pilot's. In the air it waits in POSCTL,
// or without a position in ALTCTL, where the drone stops (docs/design.md, "Leaving on PX4").
func (d *drone) restSticks(w waiter, t *task) error {
	v := d.situation(time.Now())
	leaves := t.request.setsMode() || t.plan.stop != nil
	if v.firmware != px4 || !leaves || !d.sticks.mustRest(v, t.request.entersSticks()) {
		return nil
	}
	d.sticks.park(v)
	through := px4.enter(ModePosition)
	if math.IsNaN(v.place.lat) {
		through = px4.enter(ModeAltitude)
	}
	if v.flying() && v.custom != through.to.number {
		if err := d.doStep(w, t, &through, false); err != nil && !stepFailed(err) {
			return err
		}
		v = d.situation(time.Now())
		d.sticks.park(v)
	}

	// In an AUTO mode they stay off centre.
	t.rests = d.sticks.axes == d.sticks.centred(v)
	return t.sleep(w, d.sticks.restsFrom.Add(d.view(time.Now()).stickRest()))
}

// askHome requests HOME_POSITION for a plan that needs home's height, and waits for it: PX4 takes
// heights above the sea, and another program may have moved home or ended its stream. Without an
// answer home is unknown, and a report must show that the line is not the reason.
func (d *drone) askHome(w waiter, t *task) error {
	if d.firmware() != px4 || (!t.request.enters(ModeTakeoff) && t.request.altitude == nil) {
		return nil
	}
	asked := time.Now()
	came := func() bool { return d.tel.home.at.After(asked) }
	err := t.ask(w, againAfter(d.cmd.acks.roundTrip()), asked.Add(max(answerWait, d.cmd.acks.roundTrip()+tripMargin)),
		func() { d.cmd.acks.requestMessage(idHome) }, came)
	if err != nil || came() {
		return err
	}
	d.tel.home = unknownPoint
	return d.awaitLine(w, t, &t.plan.steps[0])
}

// awaitLine waits for a report that leaves from now on: without one the line is the reason why a question was not
// answered, and why a step can't be sent.
func (d *drone) awaitLine(w waiter, t *task, s *step) error {
	reports, trip, now := &d.machine.reports, d.cmd.acks.roundTrip(), time.Now()
	reports.awaited = now
	heard := func() bool { return !reports.after.Before(now) }
	err := t.ask(w, againAfter(trip), now.Add(max(answerWait, trip+tripMargin)), func() {
		d.cmd.askForReport(true, time.Now())
	}, heard)
	if err != nil || heard() {
		return err
	}
	return d.notSent(t, s, tooLate)
}

// carryOut sends the steps of a plan, each once the one before was accepted.
func (d *drone) carryOut(w waiter, t *task) error {
	if err := d.prepare(w, t); err != nil {
		return err
	}
	if err := d.stopFirst(w, t); err != nil {
		return err
	}
	for i := range t.plan.steps {
		s := &t.plan.steps[i]
		switch err := d.doStep(w, t, s, i == len(t.plan.steps)-1 && t.plan.second == nil); {
		case s.optional && stepFailed(err):
			d.log.Warn("a plan goes on without one of its steps", "error", err)
		case err != nil:
			return err
		}
	}
	t.answer.mode = d.machine.mode
	if to := t.plan.destination; to != nil {
		t.answer.target = *to
	}

	// The request only armed or disarmed: a wait for it ends at once, and no status shows it.
	if t.answer.manoeuvre == nil {
		t.answer.manoeuvre = newManoeuvre(t.request, t.plan)
	}
	return nil
}

// prepare provides what a plan needs before its first step: the receiver's state, the parameter
// that can forbid our sticks, and the stick stream.
func (d *drone) prepare(w waiter, t *task) error {
	sticks := &d.sticks
	arms := t.request.arms()
	armsInStickMode := arms && !t.request.setsMode() && d.machine.last.mode.flownBySticks()

	// ArduPilot without a receiver arms only while sticks are streamed.
	mayArmOnStream := arms && d.firmware().ardupilot() && !d.machine.last.armed
	if t.request.entersSticks() || armsInStickMode || mayArmOnStream {
		known := func() bool { return sticks.src.known || sticks.phase != stickOff }
		if err := t.await(w, d.receiverDeadline(), known); err != nil {
			return err
		}
		name := stickParams[d.firmware()]
		request := func() { d.params.request(name) }
		came := func() bool { return d.params.known(name) }
		err := t.ask(w, copyEvery, time.Now().Add(2*copyEvery), request, came)
		if err != nil {
			return err
		}
	}
	v := d.situation(time.Now())
	switch {
	case t.request.entersSticks():
		if why := sticks.src.whyNobodyFlies(v.view); why.given() {
			return refuse(codeUnsupported, "mode: no sticks could act: %s", why)
		}
		sticks.streamForMode(v)
	case armsInStickMode:
		sticks.streamForArming(v)
	case t.request.setsMode():
		sticks.park(v)
	}
	if mayArmOnStream && sticks.src.receiver == receiverNone {
		sticks.streamForArming(v)
	}
	return nil
}

// stopFirst stops what drives, before it is disarmed. Where that can't be done it is disarmed all the same.
func (d *drone) stopFirst(w waiter, t *task) error {
	if t.plan.stop == nil {
		return nil
	}
	if err := d.doStep(w, t, t.plan.stop, false); err != nil && !stepFailed(err) {
		return err
	}
	return t.await(w, time.Now().Add(stopsWithin), func() bool {
		v := d.view(time.Now())
		return !v.armed || v.groundSpeed() < still
	})
}

// stopsWithin is how long what drives may take to stand before it is disarmed.
const stopsWithin = 10 * time.Second

// doStep sends a step, and records that the vehicle accepted it. After a takeover that is an error, unless
// the step is the plan's last and the vehicle shows the plan's goal (rule 4).
func (d *drone) doStep(w waiter, t *task, s *step, lastStep bool) error {
	if err := d.send(w, t, s); err != nil {
		return err
	}
	goal := t.plan.goal()
	last := d.machine.last
	goalShown := goal == nil || last.custom == goal.number || goal.atEnd(last)
	if t.takenOver() && !(lastStep && goalShown) {
		return t.endedOnWire(true)
	}
	d.accepted(t, s)
	return nil
}

// accepted records an accepted step: its mode is commanded now, and the plan's goal begins the manoeuvre.
func (d *drone) accepted(t *task, s *step) {
	c := d.cmd
	t.answer.command = uint16(s.cmd)
	c.clientActed = c.clientActed || (!t.unasked() && t.endedBy == nil)
	if s.to == nil {
		return
	}
	d.machine.accepted(*s.to)
	// The same pointer: this step leads to the plan's last mode.
	if t.request.setsMode() && s.to == t.plan.goal() {
		c.replace(t)
	}
}

// conclude follows carryOut, before the next task begins. A failed plan disarms, on the ground,
// what it armed, or may have armed (rule 7). send stops the disarming after a takeover, as any step.
func (d *drone) conclude(w waiter, t *task, err error) {
	if err == nil && t.request.entersSticks() {
		d.sticks.giveToClient(d.situation(time.Now()), t.request.from)
	} else if stepFailed(err) && t.armed && d.onGround() {
		disarm := d.firmware().armDisarm(false)
		t.state = disarmsAgain
		if failed := d.send(w, t, &disarm); failed != nil {
			d.log.Warn("the vehicle that a failed command armed could not be disarmed", "error", failed)
		}
	}
	if m := t.answer.manoeuvre; err != nil && m != nil {
		// The goto was accepted, its heading was not.
		m.anyHeading = true
	}

	// request the target at once: is it the place of this plan?
	d.handshake.targetChanges()
}

// onGround reports whether the vehicle says that it is on the ground.
func (d *drone) onGround() bool { return d.tel.landedNow(time.Now()) == onGround }

// leftBehind adds to a failed plan's error what the plan had changed: that is not taken back (rule 7).
func (d *drone) leftBehind(t *task, err error) error {
	e, ok := err.(*commandError)

	// The error of an ended task says already what was sent.
	if !ok || t.endedBy != nil {
		return err
	}
	last := d.machine.last
	full := *e
	endedOther := t.previous != nil && t.previous.why == errSuperseded
	changed := t.answer.command != 0 && (last.custom != t.was.custom || last.armed != t.was.armed)
	if endedOther {
		full.text += "; mavrest gave up the " + t.previous.request.name() + " before it, which the autopilot may " +
			"still fly"
	} else if !changed {
		return err
	}
	if t.was.failsafe && t.answer.command != 0 {
		full.text += "; the failsafe's " + d.nameOf(t.was.custom) + " was ended"
	}
	full.text += "; the vehicle is in " + d.nameOf(last.custom) + ", " + armedWord[last.armed]
	return &full
}

// landThere is the second leg of a landing at a place: the landing itself.
func (d *drone) landThere(w waiter, m *manoeuvre) {
	if d.cmd.manoeuvre != m || !d.cmd.onWayToLand() {
		return
	}
	if err := d.doOwn(w, m.request, m); err != nil {
		d.log.Warn("the landing at the place was not accepted; trying again", "error", err)
	}
}

// holdForSilent commands a hold for a client that fell silent, unless a pilot, a client or a
// disarming came between doDue's request and now.
func (d *drone) holdForSilent(w waiter) {
	v := d.situation(time.Now())
	if !d.sticks.silent(v) {
		return
	}
	silence := v.now.Sub(d.sticks.client.spoke)
	if mode, ok := d.leaveSafe(w); ok {
		d.notify(fmt.Sprintf("no sticks from the client for %.0f s: %s", silence.Seconds(), leftWords[mode]))
	}
}

// leftWords say what was done for a client that is gone.
var leftWords = [...]string{
	ModeHold: "holding",
	ModeRTL:  "returning, because a hold was refused",
	ModeLand: "landing, because a hold was refused",
}

// leaveSafe commands a hold for a client that is gone and, where that is refused, what leftSafe says. It returns
// the mode that the vehicle accepted; ok is false if it accepted none.
func (d *drone) leaveSafe(w waiter) (mode Mode, ok bool) {
	for _, mode := range leftSafe[d.view(time.Now()).kind()] {
		err := d.doOwn(w, request{verb: entersMode, mode: mode}, nil)
		if err == nil {
			d.log.Info("no client flies any more: mavrest set a mode", "mode", mode)
			return mode, true
		}
		d.log.Warn("no client flies any more, and mavrest could not set a mode", "mode", mode, "error", err)
		if code(err) != codeRefused && code(err) != codeUnsupported {
			return 0, false
		}
	}
	return 0, false
}

// doOwn carries out what no client asked for: every such command but a question and a failed plan's disarming goes
// through it (rule 4).
// continues is the manoeuvre that a second leg continues; nil for anything else.
func (d *drone) doOwn(w waiter, r request, continues *manoeuvre) error {
	if err := d.cmd.mustNotAct(); err != nil {
		return err
	}
	t := d.cmd.newTask(r, time.Time{})
	t.continues = continues
	return d.perform(w, t)
}

// leftSafe are the modes that a client who is gone is followed by: where the first is refused the next is tried.
// A landing from the wing comes last: nobody knows what stands where it touches, up to a circle's width off.
var leftSafe = [...][]Mode{
	hovering:    {ModeHold, ModeLand},
	driving:     {ModeHold, ModeLand},
	kindUnknown: {ModeHold, ModeRTL, ModeLand},
	onWing:      {ModeHold, ModeRTL, ModeLand},
	onlyRead:    nil,
}

// Times of the texts that belong to an answer (docs/design.md, "Reasons").
const (
	// textsAfter is how long texts are collected after a refusal.
	textsAfter = 700 * time.Millisecond

	// checksEvery is the time between two questions for PX4's checks, and how long their texts count.
	checksEvery = 5 * time.Second

	// takenBefore is how long before a takeover texts count.
	takenBefore = time.Second

	// takenAfter is how long after it they do.
	takenAfter = 500 * time.Millisecond

	// failsafeBefore is the same before a failsafe: PX4 said "Low battery" 1.3 s before it changed the mode.
	failsafeBefore = 3 * time.Second
)

// reasons adds to the error of a refused step what the autopilot says about it: the texts of
// warning or worse since its first copy, and those of the checks before arming. PX4 sends the
// latter only on request: it is asked after a refused arming. Rule 4 allows that question.
func (d *drone) reasons(w waiter, t *task, why *commandError) error {
	refused := *why.refused
	s := refused.step
	asked := &d.handshake.checksAsked
	checksOld := time.Since(*asked) >= checksEvery || d.tel.healed.After(*asked)
	if s.arms() && !d.machine.last.armed && d.firmware() == px4 && checksOld {
		*asked = time.Now()
		run := px4.step(common.MAV_CMD_RUN_PREARM_CHECKS)
		if err := d.send(w, t, &run); err != nil {
			d.log.Debug("no report of the checks before arming", "error", err)
		}
		d.cmd.acks.requestMessage(idSysStatus)
	}
	t.sleep(w, time.Now().Add(textsAfter))
	tel := &d.tel
	now := time.Now()
	tel.texts.flush(now, 0)
	checksFresh := now.Sub(*asked) < checksEvery+textsAfter && !tel.healed.After(*asked)
	for _, text := range tel.texts.kept {
		grave := text.ofChecks() || text.severity <= uint8(common.MAV_SEVERITY_WARNING)
		ofLastChecks := checksFresh && text.ofChecks() && !text.at.Before(*asked)
		if grave && (ofLastChecks || !text.at.Before(refused.since)) {
			refused.messages = append(refused.messages, text)
		}
	}
	var said []string
	if texts := words(refused.messages); texts != "" {
		said = append(said, texts)
	}

	// PX4's text for a refused arming names no reason: only those of its checks do.
	named := (len(said) > 0 && !s.arms()) || slices.ContainsFunc(refused.messages, statusText.ofChecks)
	if unhealthy := d.unhealthy(); !named && len(unhealthy) > 0 && (s.arms() || s.to != nil) {
		said = append(said, "unhealthy: "+strings.Join(unhealthy, ", "))
	}
	e := *why
	e.refused = &refused
	if len(said) > 0 {
		e.text += ": " + strings.Join(said, "; ")
	}
	if len(refused.messages) == 0 {
		e.text += hint(d.firmware(), d.tel.id.typ, s, tel.health.fenced())
	}

	// Neither autopilot arms in them.
	if mode := d.machine.last.mode; s.arms() && (mode == ModeLand || mode == ModeRTL) {
		e.text += `; it does not arm in ` + d.modeName() +
			`: set another mode with it ({"mode":"hold","arm":true}), or take off`
	}
	if act := d.params.values["NAV_DLL_ACT"]; act > 0 && s.arms() && !d.link.gcs {
		e.text += fmt.Sprintf("; NAV_DLL_ACT is %g: PX4 arms only while it hears a ground station; connect one, "+
			"start mavrest with -gcs, or set it to 0", act)
	}
	return &e
}

// explained adds to the error of an interrupted request what the autopilot said from 1 s, before a failsafe 3 s,
// before the takeover to 0.5 s after it, and what a failsafe finds unhealthy.
func (d *drone) explained(w waiter, err error) error {
	e, ok := err.(*commandError)
	if !ok || e.interruption == nil {
		return err
	}
	taken := *e.interruption
	from := taken.at.Add(-takenBefore)
	until := taken.at.Add(takenAfter)
	if taken.failsafe {
		from = taken.at.Add(-failsafeBefore)
	}

	// They come as late as the report did.
	w.wait(until.Add(d.cmd.acks.behind), func() bool { return d.cmd.quitting })

	// A restart looks like a disarming until the clock shows it.
	restarted := func() bool { return d.restartedAt.After(taken.at) }
	w.wait(taken.at.Add(clockWithin), func() bool {
		return d.cmd.quitting || d.machine.last.armed || d.tel.boot.at.After(taken.at) || restarted()
	})
	text := e.text
	if restarted() {
		taken.failsafe = false
		text = restartedWhy + "; before that: " + text
	}
	said := slices.DeleteFunc(d.tel.texts.since(from), func(t statusText) bool {
		return t.at.After(until) ||
			t.severity > uint8(common.MAV_SEVERITY_NOTICE) ||
			strings.HasPrefix(t.text, ownTexts)
	})
	if act := d.params.values["NAV_DLL_ACT"]; taken.failsafe && act > 0 && !d.link.gcs {
		text += fmt.Sprintf("; NAV_DLL_ACT is %g: a PX4 that does not hear a ground station begins a failsafe", act)
	}
	if unhealthy := d.unhealthy(); taken.failsafe && len(unhealthy) > 0 {
		text += "; unhealthy: " + strings.Join(unhealthy, ", ")
	}
	if len(said) > 0 {
		text += "; the autopilot says: " + words(said)
	}
	return refuse(codeInterrupted, "%s", text)
}

// clockWithin is how long the clock may take to come after a restart. An ArduPilot's took 1.5 s (docs/autopilots.md,
// "ArduPilot: links and streams").
const clockWithin = 4 * time.Second

// unhealthy names the unhealthy systems, the receiver only where a transmitter was ever heard.
func (d *drone) unhealthy() []string {
	return slices.DeleteFunc(d.tel.unhealthy(time.Now()), func(name string) bool {
		return name == "rc_receiver" && d.sticks.src.transmitterAt.IsZero()
	})
}
