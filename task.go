package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of a plan (docs/design.md, rule 5 and "The newest request wins").
const (
	// dueAtOnce: a first step that is due within this time of its request is due at once.
	dueAtOnce = 10 * time.Millisecond
)

// commander knows whose turn it is, sends a task's steps and waits until the vehicle shows
// them. Everything in it happens under the drone's mutex.
type commander struct {
	acks    *acks
	machine *machine
	reports reports

	// bell: rings when something came that a task may wait for
	bell bell

	// tasks: in the order in which they came; the first one is under way
	tasks []*task

	// manoeuvre: of the last accepted plan that set a mode, even if complete; nil: none, or ended
	manoeuvre *manoeuvre

	// clientActed: a client's step or sticks were accepted since the last takeover or disarming
	clientActed bool

	// portAway: the last request of HEARTBEAT could not be queued: the port is down, or its queue is full
	portAway bool

	// portAwayAt is when the port was last found down: no report from before that counts.
	portAwayAt time.Time

	// stopped: the program ends
	stopped bool
}

// answer is the result of an accepted request: the MAV_CMD number of the last command
// accepted, the mode it led to, and what is to be watched to its end.
type answer struct {
	command   uint16
	mode      Mode
	manoeuvre *manoeuvre
}

// task is a request from its arrival to its answer. What it is doing is its request. While it waits until the drone
// is clear of the ground it does nothing: any newer request ends it. Once its plan has failed it is the disarming
// of what it armed: who comes then waits for that.
type task struct {
	commander *commander
	request   request

	// doing: the request, or what stands for it now
	doing request

	plan plan

	// askedAt is when a client asked for it; zero: mavrest itself did.
	askedAt time.Time

	// firstLeg: for a landing's second leg: the manoeuvre that it continues; nil for any other task
	firstLeg *manoeuvre

	// was: the last report when its turn came
	was report

	// previous: the manoeuvre when its turn came; nil: there was none
	previous *manoeuvre

	// command: the command that went out last; nil: no command did
	command *command

	// answer is what was accepted so far.
	answer answer

	// armed: it sent an ARM to a disarmed vehicle, which did not refuse it
	armed bool

	// rests: it has centred the sticks, which stay as they are from then on
	rests bool

	// endedBy: a newer request, a takeover, a disarming, the program's end; nil: nothing
	endedBy *commandError
}

// What a task may be doing that is no request of a client's.
var (
	nothing   = request{}
	disarming = request{arm: new(bool)}
)

// newTask is a client's task or, where askedAt is zero, mavrest's own.
func (c *commander) newTask(r request, askedAt time.Time) *task {
	return &task{commander: c, request: r, doing: r, askedAt: askedAt}
}

// busy reports whether a task is under way. One that waits until the drone is clear of the ground is not: any
// newer command ends it, mavrest's own too.
func (c *commander) busy() bool {
	t := c.current()
	return t != nil && !t.doing.equals(nothing)
}

// idle reports whether mavrest may begin what it commands by itself: no task is under way, none of its own waits
// for the vehicle to be clear of the ground, and the program is not ending.
func (c *commander) idle() bool {
	return !c.busy() && !slices.ContainsFunc(c.tasks, (*task).unasked) && !c.stopped
}

// endUnasked ends what mavrest commands by itself.
func (c *commander) endUnasked() {
	for _, t := range c.tasks {
		if t.unasked() {
			t.end(errSuperseded)
		}
	}
}

// unasked reports whether no client asked for the task: it is mavrest's own.
func (t *task) unasked() bool { return t.askedAt.IsZero() }

// current is the task that is under way; nil if there is none.
func (c *commander) current() *task {
	if len(c.tasks) == 0 {
		return nil
	}
	return c.tasks[0]
}

// join puts a task behind those that came before it, and ends those that it supersedes.
func (c *commander) join(t *task, v view) {
	for _, o := range c.tasks {
		if t.supersedes(o, v) {
			o.end(errSuperseded)
		}
	}
	c.tasks = append(c.tasks, t)
}

// leave takes a task out of the queue: the next one has its turn.
func (c *commander) leave(t *task) {
	c.tasks = slices.DeleteFunc(c.tasks, func(o *task) bool { return o == t })
	c.bell.ring()
}

// end ends a task from outside. A takeover or a disarming does not replace an earlier reason;
// a newer request and the program's end do.
func (t *task) end(why *commandError) {
	if t.endedBy == nil || why.code != codeInterrupted {
		t.endedBy = why
	}
	t.commander.bell.ring()
}

// supersedes reports whether t ends an older task o, under way or waiting. It does not end a landing, a
// return, a hold or a disarming, unless o also arms: t waits for o's answer. Of equal ones only the
// newest waits. A disarming on the ground ends everything. What has to wait until the drone is clear of the ground
// does not end a takeoff: that brings it there.
func (t *task) supersedes(o *task, v view) bool {
	switch {
	case t.request.disarms() && v.landed == onGround:
		return true
	case o.doing.arms():
		return !t.plan.away() || v.isClear()
	case !o.doing.urgent():
		return true
	}
	return o != t.commander.current() && o.request.equals(t.request)
}

// What may be sent after a takeover, a disarming and the program's end is decided below: by
// mustStop for a task, by mustNotAct for mavrest itself (docs/design.md, rule 4).

// takeover is called when no command of ours explains a report, a failsafe begins, the autopilot
// restarted, or somebody else moves the sticks of a stick mode. It ends every task and the manoeuvre:
// whoever took the drone keeps it, and one more step, or a copy, would undo a pilot's switch (rule 4).
// A task whose step is on the wire first learns what becomes of that step.
func (c *commander) takeover(why *commandError) {
	c.clientActed = false
	for _, t := range c.tasks {
		t.end(why)
	}
	c.endManoeuvre(why)
}

// disarmed ends the tasks that arm or fly to a place, and those of mavrest itself. Our own
// disarming ends none: those that waited for it go on.
func (c *commander) disarmed() {
	c.clientActed = false
	if t := c.current(); t != nil && t.doing.endsDisarmed() {
		return
	}
	for _, t := range c.tasks {
		if t.doing.arms() || t.plan.destination != nil || t.unasked() {
			t.end(interruption(time.Now(), "the vehicle was disarmed"))
		}
	}
}

// stop ends every task; no client's request begins any more. A step that was sent may still happen: no_ack.
func (c *commander) stop() {
	c.stopped = true
	for _, t := range c.tasks {
		why := *errStopping
		if t.command != nil {
			why.code = codeNoAck
		}
		t.end(&why)
	}
	c.bell.ring()
}

// mustNotAct is why mavrest may not send a command that no client asks for at this moment; nil:
// it may. It may not while a task is under way, and after a takeover or a disarming until
// a client's next step or sticks are accepted.
func (c *commander) mustNotAct() error {
	if c.busy() {
		return errSuperseded
	}
	if !c.clientActed {
		return refuse(codeInterrupted, "no client has commanded the drone since it was taken over or disarmed")
	}
	return nil
}

// mustStop is why a task may not go on; nil: it may. After a takeover a task whose step is on
// the wire still waits for that step's answer.
func (t *task) mustStop() error {
	if t.endedBy == nil || (t.takenOver() && t.onWire()) {
		return nil
	}
	if t.command != nil {
		return t.ended("%s; %s was sent before; nothing more was sent", t.sentName())
	}
	return t.ended("%s; nothing was sent")
}

// sentName is what the task has sent. A speed or a heading is part of the goto or the hold that it follows.
func (t *task) sentName() string {
	s := t.command.step
	if s.cmd == common.MAV_CMD_DO_CHANGE_SPEED || s.cmd == common.MAV_CMD_CONDITION_YAW {
		for i := range t.plan.steps {
			if goTo := &t.plan.steps[i]; goTo.cmd == common.MAV_CMD_DO_REPOSITION {
				return commandName(goTo)
			}
		}
	}
	return commandName(s)
}

// ended is the error of a task that was ended. The format's first %s is what ended it; args are the others.
func (t *task) ended(format string, args ...any) error {
	e := *t.endedBy
	e.text = fmt.Sprintf(format, append([]any{e.text}, args...)...)
	return &e
}

// takenOver reports whether a takeover or a disarming ended the task.
func (t *task) takenOver() bool { return t.endedBy != nil && t.endedBy.code == codeInterrupted }

// onWire reports whether transact still waits for the outcome of the step that the task sent last.
func (t *task) onWire() bool {
	return t.command != nil && t.commander.acks.waiting[t.command.step.cmd] == t.command
}

// bell wakes all that pause.
type bell struct{ rings chan struct{} }

func (b *bell) ring() {
	if b.rings != nil {
		close(b.rings)
		b.rings = nil
	}
}

// waiter is the permission to wait, and so to unlock the drone's mutex meanwhile. What is given one reads
// everything again after it has waited; a function without one runs undisturbed. Only drone.changeMayWait makes one
// (CONTRIBUTING.md, "The mutex").
type waiter struct {
	mu   *sync.Mutex
	bell *bell

	// settle is drone.settle.
	settle func()
}

// pause waits until the bell rings or the time is over. Only follow calls it.
func (w waiter) pause(until time.Time) {
	if w.bell.rings == nil {
		w.bell.rings = make(chan struct{})
	}
	rings := w.bell.rings

	// This may ring.
	w.settle()
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-rings:
	case <-time.After(time.Until(until)):
	}
}

// follow is the one loop that waits: it does what decide says, until that says that the wait is over.
func (w waiter) follow(decide func(now time.Time) decision, do func(move)) move {
	for {
		switch d := decide(time.Now()); {
		case d.move == look:
			w.pause(d.at)
		case d.move >= goOn:
			return d.move
		default:
			do(d.move)
		}
	}
}

// wait waits until ok is true or the time is over.
func (w waiter) wait(end time.Time, ok func() bool) {
	w.follow(func(now time.Time) decision { return until(end, ok(), now) }, nil)
}

// follow is the waiter's, and stops when the task may not go on.
func (t *task) follow(w waiter, decide func(now time.Time) decision, do func(move)) move {
	return w.follow(func(now time.Time) decision {
		if t.mustStop() != nil {
			return decision{move: stop}
		}
		return decide(now)
	}, do)
}

// await waits until ok is true or the time is over; an error means that the task was ended.
func (t *task) await(w waiter, end time.Time, ok func() bool) error {
	t.follow(w, func(now time.Time) decision { return until(end, ok(), now) }, nil)
	return t.mustStop()
}

// ask repeats a request until its answer came or the time is over; an error means that the task was ended.
func (t *task) ask(w waiter, every time.Duration, end time.Time, request func(), came func() bool) error {
	q := question{every: every, end: end}
	t.follow(w, func(now time.Time) decision { return q.decide(came(), now) }, func(move) {
		q.asked = time.Now()
		request()
	})
	return t.mustStop()
}

// askForReport requests HEARTBEAT.
func (c *commander) askForReport(now time.Time) {
	c.reports.asked = now
	if c.portAway = c.acks.ask(idHeartbeat) != nil; c.portAway {
		c.portAwayAt = now
	}
}

// departure is that of the task's next step, which could first go when it was due.
func (t *task) departure(s *step, due time.Time) departure {
	first := t.command == nil && !t.unasked()
	return departure{
		due:    due,
		atOnce: first && due.Sub(t.askedAt) <= dueAtOnce,
		urgent: t.request.urgent(),
		away:   s.away,
		trip:   t.commander.acks.trip,
	}
}

// transact sends one command, repeats it until it is answered, and returns why the vehicle did
// not take it (rule 6).
func (t *task) transact(w waiter, s *step) error {
	c := t.commander
	x := c.acks.open(s, c.machine.report)
	defer c.acks.close(x)
	t.sendCopy(x)
	if x.copies == 0 {
		return errPortAway
	}
	x.copyDue = x.sentAt.Add(c.acks.copyGap())
	end := t.follow(w, func(now time.Time) decision {
		return x.decide(c.machine.report, &c.reports, c.acks.trip, t.endedBy != nil, now)
	}, func(m move) {
		if m == ask {
			x.asked = true
			c.askForReport(time.Now())
			return
		}
		if m == sendCopy {
			t.sendCopy(x)
		}
		x.copyDue = x.copyDue.Add(c.acks.copyGap())
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
	t.command = x
	t.armed = t.armed || (s.arms() && !c.machine.report.armed)
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

// replace makes t's plan the manoeuvre, once the vehicle has accepted its goal. A second leg
// continues the manoeuvre of the first: clients that wait for it wait on.
func (c *commander) replace(t *task) {
	if t.firstLeg != nil {
		t.firstLeg.plan = t.plan
		t.answer.manoeuvre = t.firstLeg
		return
	}
	t.answer.manoeuvre = newManoeuvre(t.request, t.plan)
	c.manoeuvre = t.answer.manoeuvre
}

// endManoeuvre ends and forgets the manoeuvre. It also ends the task that began or continues it, if
// that is still under way. If a landing was on its way to its place, the mode is now the reported one.
func (c *commander) endManoeuvre(why *commandError) {
	if c.manoeuvre == nil {
		return
	}
	if t := c.current(); t != nil && (t.answer.manoeuvre == c.manoeuvre || t.firstLeg == c.manoeuvre) {
		t.end(why)
	}
	if c.onWayToLand() {
		c.machine.abandon()
	}
	c.manoeuvre.finish(why)
	c.manoeuvre = nil
}

// aim is the destination of what was commanded here last; nil: there is none.
func (c *commander) aim(v view) *aim {
	if c.manoeuvre == nil {
		return nil
	}
	return c.manoeuvre.aim(v)
}

// onWayToLand reports whether a landing is still on its way to its place.
func (c *commander) onWayToLand() bool {
	return c.manoeuvre != nil && c.manoeuvre.plan.second != nil && !c.manoeuvre.finished()
}

// do carries a client's request out. It returns when the vehicle shows what the request leads
// to, or with a *commandError that says why it does not.
func (d *drone) do(r request) (a answer, err error) {
	d.changeMayWait(func(w waiter) {
		t := d.cmd.newTask(r, time.Now())
		err = d.explained(w, d.perform(w, t))
		a = t.answer
	})
	return a, err
}

// doOwn carries out what no client asked for: every such command but a question goes through it (rule 4).
// firstLeg is the manoeuvre that a second leg continues; nil for anything else.
func (d *drone) doOwn(w waiter, r request, firstLeg *manoeuvre) error {
	if err := d.cmd.mustNotAct(); err != nil {
		return err
	}
	t := d.cmd.newTask(r, time.Time{})
	t.firstLeg = firstLeg
	return d.perform(w, t)
}

// perform takes a task from its arrival to its answer.
func (d *drone) perform(w waiter, t *task) error {
	err := d.inQueue(w, t)

	// Only a client reads reasons.
	if e, ok := err.(*commandError); ok && e.step != nil && !t.unasked() {
		err = d.reasons(w, t, e)
	}

	// Clients that repeat at once would supersede each other for ever.
	if code(err) == codeSuperseded {
		w.wait(time.Now().Add(giveUp), func() bool { return len(d.cmd.tasks) == 0 || d.cmd.stopped })
	}
	return d.leftBehind(t, err)
}

// inQueue takes a task through the queue. The task leaves it whatever happens, also by a panic, which
// net/http's handler recovers: else no task would have its turn any more.
func (d *drone) inQueue(w waiter, t *task) error {
	defer d.cmd.leave(t)
	if err := d.takeTurn(w, t); err != nil {
		return err
	}
	err := d.carryOut(w, t)
	d.conclude(w, t, err)
	return err
}

// makePlan makes the plan of a request, for the vehicle as it is now. A fixed wing may be a
// QuadPlane until EXTENDED_SYS_STATE came.
func (d *drone) makePlan(t *task) (err error) {
	if m := t.firstLeg; m != nil {
		t.plan = plan{steps: []step{*m.plan.second}}
		return nil
	}
	err = d.able()

	// mavrest's own steps may go out while the program ends.
	if t.unasked() && err == errStopping {
		err = nil
	}
	if err == nil && t.request.setMode && d.firmware() == plane && !d.tel.landed.received() {
		err = refuse(codeOffline, "the vehicle has not reported yet whether it is a QuadPlane; try again")
	}
	if at := d.tel.position; err == nil {
		err = t.request.checkReach(place{at.lat, at.lon, at.relative, at.amsl}, d.tel.home, d.reach)
	}
	if err == nil {
		v := d.view(time.Now())
		t.plan, err = t.request.plan(v, d.cmd.aim(v))
	}
	return err
}

// takeTurn plans a task, waits until it is under way, and plans it again. A request that can't
// be planned ends no other; the second plan is for the vehicle as it is then.
func (d *drone) takeTurn(w waiter, t *task) error {
	if err := d.makePlan(t); err != nil {
		return err
	}
	d.cmd.join(t, d.view(time.Now()))
	t.follow(w, func(now time.Time) decision {
		// It waits without an end.
		return until(now.Add(giveUp), t == d.cmd.current(), now)
	}, nil)
	if err := t.mustStop(); err != nil {
		return err
	}
	if err := d.awaitClear(w, t); err != nil {
		return err
	}
	t.was = d.machine.report
	t.previous = d.cmd.manoeuvre
	if err := d.restSticks(w, t); err != nil {
		return err
	}
	if err := d.askHome(w, t); err != nil {
		return err
	}
	return d.makePlan(t)
}

// awaitClear waits until the drone is clear of the ground, if the task flies to a place (rule 11). The plan is made
// after that: home may have moved. A newer request that came while the task was in the queue ends it too.
func (d *drone) awaitClear(w waiter, t *task) error {
	v := d.view(time.Now())
	if !t.plan.away() || v.isClear() {
		return nil
	}
	if len(d.cmd.tasks) > 1 {
		t.end(errSuperseded)
	}
	t.doing = nothing

	// A client that waits is heard when its request comes, and no longer.
	d.sticks.client.spoke = v.now
	l := lift{within: v.clearWithin()}
	end := t.follow(w, func(now time.Time) decision {
		v := d.view(now)
		return l.decide(v.isClear(), v.landed == onGround, v.online, now)
	}, nil)
	t.doing = t.request
	switch end {
	case tooLate:
		return d.able()
	case tooNear:
		return d.view(time.Now()).tooLow(t.request.name())
	}
	return t.mustStop()
}

// carryOut sends the steps of a plan, each once the one before was accepted.
func (d *drone) carryOut(w waiter, t *task) error {
	if err := d.prepare(w, t); err != nil {
		return err
	}
	for i := range t.plan.steps {
		s := &t.plan.steps[i]
		switch err := d.doStep(w, t, s, i == len(t.plan.steps)-1 && t.plan.second == nil); {
		case s.optional && vehicleFailed(err):
			d.log.Warn("a plan goes on without one of its steps", "error", err)
		case err != nil:
			return err
		}
	}
	t.answer.mode = d.machine.mode

	// The request only armed or disarmed: a wait for it ends at once, and no status shows it.
	if t.answer.manoeuvre == nil {
		t.answer.manoeuvre = newManoeuvre(t.request, t.plan)
	}
	return nil
}

// doStep sends a step, and records that the vehicle accepted it. After a takeover that is an error, unless
// the step is the plan's last and the vehicle shows the plan's goal (rule 4).
func (d *drone) doStep(w waiter, t *task, s *step, lastStep bool) error {
	if err := d.send(w, t, s); err != nil {
		return err
	}
	goal := t.plan.goal()
	last := d.machine.report
	goalShown := goal == nil || last.custom == goal.number || goal.atEnd(last)
	if t.takenOver() && !(lastStep && goalShown) {
		return t.ended("%s; the vehicle follows %s, which was sent before; nothing more was sent", commandName(s))
	}
	d.accepted(t, s)
	return nil
}

// send waits until a step may go out, and sends it. If the port is away by then, it does both again.
func (d *drone) send(w waiter, t *task, s *step) error {
	for due := (time.Time{}); ; {
		// If the task was ended, reportBefore says so.
		t.follow(w, func(now time.Time) decision { return until(d.ready(s), false, now) }, nil)

		// The second try keeps this time: the step does not wait for another 1.5 s.
		if due.IsZero() {
			due = time.Now()
		}
		if err := d.reportBefore(w, t, s, due); err != nil {
			return err
		}

		// Not machine.explains: that also accepts the mode that a disarmed vehicle falls back to.
		if g := d.machine.commanded; t.command != nil && s.arms() && g != nil && d.machine.report.custom != g.number {
			return refuse(codeInterrupted, "arming was not sent: the vehicle left the mode that was set for it")
		}
		if err := t.transact(w, s); err != errPortAway {
			return err
		}
		d.cmd.portAwayAt = time.Now()
	}
}

// reportBefore waits for the report that step s must follow (rule 5); due is when s could first go.
func (d *drone) reportBefore(w waiter, t *task, s *step, due time.Time) error {
	c := d.cmd
	x := t.departure(s, due)
	end := t.follow(w, func(now time.Time) decision {
		return x.decide(&c.reports, c.portAwayAt, d.view(now).isClear(), now)
	}, func(move) {
		x.asked = true
		c.askForReport(time.Now())
	})
	switch {
	case end == stop:
		return t.mustStop()
	case end == goOn:
		return nil
	case end == tooNear:
		return d.view(time.Now()).tooLow(t.request.name())
	case c.portAway && t.command == nil:
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
		at = later(at, acks.late[s.cmd])
	}
	return at
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
	if t.request.setMode && s.to == t.plan.goal() {
		c.replace(t)
	}
}

// conclude follows carryOut, before the next task begins. A failed plan disarms, on the ground,
// what it armed, or may have armed (rule 7). send stops the disarming after a takeover, as any step.
func (d *drone) conclude(w waiter, t *task, err error) {
	if err == nil && t.request.entersSticks() {
		d.sticks.giveToClient(d.situation(time.Now()), t.request.from)
	} else if vehicleFailed(err) && t.armed && d.onGround() {
		disarm := d.firmware().armDisarm(false)
		t.doing = disarming
		if failed := d.send(w, t, &disarm); failed != nil {
			d.log.Warn("the vehicle that a failed command armed could not be disarmed", "error", failed)
		}
	}
	if m := t.answer.manoeuvre; err != nil && m != nil {
		// The goto was accepted, its heading was not.
		m.anyHeading = true
	}

	// request the target at once: is it the place of this plan?
	d.targetAsked = time.Time{}
}

// leftBehind adds to a failed plan's error what the plan had changed: that is not taken back (rule 7).
func (d *drone) leftBehind(t *task, err error) error {
	e, ok := err.(*commandError)

	// The error of an ended task says already what was sent.
	if !ok || t.endedBy != nil {
		return err
	}
	last := d.machine.report
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

// restSticks centres our sticks before PX4 is sent another mode, if they must rest, and waits until they
// have been still for stickStill: PX4 takes moving sticks for a pilot's. In the air it waits in POSCTL,
// or without a position in ALTCTL, where the drone stops (docs/design.md, "Leaving on PX4").
func (d *drone) restSticks(w waiter, t *task) error {
	v := d.situation(time.Now())
	if v.firmware != px4 || !t.request.setMode || !d.sticks.mustRest(v, t.request.entersSticks()) {
		return nil
	}
	d.sticks.park(v)
	through := px4.enter(ModePosition)
	if math.IsNaN(v.place.lat) {
		through = px4.enter(ModeAltitude)
	}
	if v.flying() && v.custom != through.to.number {
		if err := d.doStep(w, t, &through, false); err != nil && !vehicleFailed(err) {
			return err
		}
		v = d.situation(time.Now())
		d.sticks.park(v)
	}

	// In an AUTO mode they stay off centre.
	t.rests = d.sticks.axes == d.sticks.centred(v)
	return t.sleep(w, d.sticks.moved.Add(stickStill))
}

// askHome requests HOME_POSITION for a plan that needs home's height, and waits for it: PX4 takes
// heights above the sea, and another program may have moved home or ended its stream. Without an
// answer home is unknown, and a report must show that the line is not the reason.
func (d *drone) askHome(w waiter, t *task) error {
	if d.firmware() != px4 || (t.request.mode != ModeTakeoff && t.request.altitude == nil) {
		return nil
	}
	asked := time.Now()
	came := func() bool { return d.tel.home.at.After(asked) }
	err := t.ask(w, againAfter(d.cmd.acks.trip), asked.Add(answerWait), func() { d.cmd.acks.ask(idHome) }, came)
	if err != nil || came() {
		return err
	}
	d.tel.home = unknownPoint
	return d.reportBefore(w, t, &t.plan.steps[0], time.Now())
}

// prepare provides what a plan needs before its first step: the receiver's state, the parameter
// that can forbid our sticks, and the stick stream.
func (d *drone) prepare(w waiter, t *task) error {
	sticks := &d.sticks
	arms := t.request.arms()
	armsInStickMode := arms && !t.request.setMode && d.machine.report.mode.flownBySticks()

	// ArduPilot without a receiver arms only while sticks are streamed.
	mayArmOnStream := arms && d.firmware().ardupilot() && !d.machine.report.armed
	if t.request.entersSticks() || armsInStickMode || mayArmOnStream {
		known := func() bool { return sticks.src.known || sticks.phase != stickOff }
		if err := t.await(w, d.receiverDeadline(), known); err != nil {
			return err
		}
		name := stickParams[d.firmware()]
		request := func() { d.params.ask(name) }
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
	case t.request.setMode:
		sticks.park(v)
	}
	if mayArmOnStream && sticks.src.receiver == receiverNone {
		sticks.streamForArming(v)
	}
	return nil
}

// sleep waits until a time; an error means that the task was ended.
func (t *task) sleep(w waiter, until time.Time) error {
	return t.await(w, until, func() bool { return false })
}

// onGround reports whether the vehicle says that it is on the ground.
func (d *drone) onGround() bool { return d.tel.landedNow(time.Now()) == onGround }

// watch looks at the manoeuvre, starts the landing whose place is reached, and returns when to look again.
func (d *drone) watch(v view) time.Time {
	m := d.cmd.manoeuvre
	now := v.now
	if m == nil || m.finished() || !d.online {
		return time.Time{}
	}

	// What came before its acceptance proves nothing.
	land, lost := m.watch(v.since(m.at))
	if lost != "" {
		if d.cmd.onWayToLand() {
			d.notify("the landing at the place was given up: " + lost)
		}
		d.cmd.endManoeuvre(interruption(m.lostAt(now), lost+"; the vehicle is in "+d.modeName()))
	} else if land && d.cmd.idle() {
		m.tried = now
		d.wg.Go(func() { d.changeMayWait(func(w waiter) { d.landThere(w, m) }) })
	}
	if m.note != "" {
		d.notify(m.request.name() + ": " + m.note)
	}

	// The drone is as high as it was told, however low that is.
	if m.done && m.request.mode == ModeTakeoff {
		d.tel.ground.clear = true
	}
	return now.Add(watchEvery)
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

// leftSafe are the modes that a client who is gone is followed by: where the first is refused the next is tried.
// A landing from the wing comes last: nobody knows what stands where it touches, up to a circle's width off.
var leftSafe = map[kind][]Mode{
	hovering:    {ModeHold, ModeLand},
	driving:     {ModeHold, ModeLand},
	kindUnknown: {ModeHold, ModeRTL, ModeLand},
	onWing:      {ModeHold, ModeRTL, ModeLand},
}

// leftWords say what was done for a client that is gone.
var leftWords = map[Mode]string{
	ModeHold: "holding",
	ModeRTL:  "returning, because a hold was refused",
	ModeLand: "landing, because a hold was refused",
}

// leaveSafe commands a hold for a client that is gone and, where that is refused, what leftSafe says. It returns
// the mode that the vehicle accepted; ok is false if it accepted none.
func (d *drone) leaveSafe(w waiter) (mode Mode, ok bool) {
	for _, mode := range leftSafe[d.view(time.Now()).kind()] {
		err := d.doOwn(w, request{setMode: true, mode: mode}, nil)
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
func (d *drone) reasons(w waiter, t *task, refused *commandError) error {
	s := refused.step
	checksOld := time.Since(d.checked) >= checksEvery || d.tel.healed.After(d.checked)
	if s.arms() && !d.machine.report.armed && d.firmware() == px4 && checksOld {
		d.checked = time.Now()
		run := px4.step(common.MAV_CMD_RUN_PREARM_CHECKS)
		if err := t.transact(w, &run); err != nil {
			d.log.Debug("no report of the checks before arming", "error", err)
		}
		d.cmd.acks.ask(idSysStatus)
	}
	t.sleep(w, time.Now().Add(textsAfter))
	tel := &d.tel
	now := time.Now()
	tel.texts.flush(now, 0)
	checksFresh := now.Sub(d.checked) < checksEvery+textsAfter && !tel.healed.After(d.checked)
	e := *refused
	for _, text := range tel.texts.kept {
		grave := text.ofChecks() || text.severity <= uint8(common.MAV_SEVERITY_WARNING)
		ofLastChecks := checksFresh && text.ofChecks() && !text.at.Before(d.checked)
		if grave && (ofLastChecks || !text.at.Before(e.since)) {
			e.messages = append(e.messages, text)
		}
	}
	var said []string
	if texts := words(e.messages); texts != "" {
		said = append(said, texts)
	}

	// PX4's text for a refused arming names no reason: only those of its checks do.
	named := (len(said) > 0 && !s.arms()) || slices.ContainsFunc(e.messages, statusText.ofChecks)
	if unhealthy := d.unhealthy(); !named && len(unhealthy) > 0 && (s.arms() || s.to != nil) {
		said = append(said, "unhealthy: "+strings.Join(unhealthy, ", "))
	}
	if len(said) > 0 {
		e.text += ": " + strings.Join(said, "; ")
	}
	if len(e.messages) == 0 {
		e.text += hint(d.firmware(), d.tel.id.typ, s, tel.health.fenced())
	}

	// Neither autopilot arms in them.
	if mode := d.machine.report.mode; s.arms() && (mode == ModeLand || mode == ModeRTL) {
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
	if !ok || e.code != codeInterrupted {
		return err
	}
	from := e.since.Add(-takenBefore)
	until := e.since.Add(takenAfter)
	if e.failsafe {
		from = e.since.Add(-failsafeBefore)
	}
	w.wait(until, func() bool { return d.cmd.stopped })
	said := slices.DeleteFunc(d.tel.texts.since(from), func(t statusText) bool {
		return t.at.After(until) ||
			t.severity > uint8(common.MAV_SEVERITY_NOTICE) ||
			strings.HasPrefix(t.text, ownTexts)
	})
	text := e.text
	if unhealthy := d.unhealthy(); e.failsafe && len(unhealthy) > 0 {
		text += "; unhealthy: " + strings.Join(unhealthy, ", ")
	}
	if len(said) > 0 {
		text += "; the autopilot says: " + words(said)
	}
	return refuse(codeInterrupted, "%s", text)
}

// unhealthy names the unhealthy systems, the receiver only where a transmitter was ever heard.
func (d *drone) unhealthy() []string {
	return slices.DeleteFunc(d.tel.health.unhealthy(), func(name string) bool {
		return name == "rc_receiver" && d.sticks.src.transmitterAt.IsZero()
	})
}
