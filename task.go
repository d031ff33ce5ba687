package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// queue knows whose turn it is, and what the last plan leads to. Everything in it happens under the drone's mutex.
type queue struct {
	machine *machine

	// bell: rings when something came that a task may wait for
	bell bell

	// arriving is when the requests came that have not begun (drone.awaitTurn).
	arriving []*time.Time

	// tasks: in the order in which they came; the first one is under way
	tasks []*task

	// manoeuvre: of the last accepted plan that set a mode, even if complete; nil: none, or ended
	manoeuvre *manoeuvre

	// clientActed: a client's step or sticks were accepted since the last takeover or disarming
	clientActed bool

	// quitting: the program ends
	quitting bool

	// allEnded is what ended everything last (endAll), and allEndedAt when that was heard; nil: nothing has.
	allEnded   *commandError
	allEndedAt time.Time

	// newest is when the newest request came that has joined the queue.
	newest time.Time

	// disarmedAt is when a disarming was heard last that is not ours.
	disarmedAt time.Time
}

// isOldest reports whether no request that is arriving came before this one.
func (q *queue) isOldest(came time.Time) bool {
	return !slices.ContainsFunc(q.arriving, func(other *time.Time) bool { return other.Before(came) })
}

// commander is the queue, and what the steps of the task that is under way are sent by (send.go, command.go).
type commander struct {
	queue

	acks *acks

	// stood is the last time that the program stood still.
	stood standstill
}

// answer is the result of an accepted request: the MAV_CMD number of the last command
// accepted, the mode it led to, and what is to be watched to its end.
type answer struct {
	command   uint16
	mode      Mode
	manoeuvre *manoeuvre

	// behind is how far the line was behind when the first step went out.
	behind time.Duration

	// target is the place that a goto flies to.
	target place
}

// taskState is what a task does. Who comes then ends it, or waits for it, by that.
type taskState uint8

const (
	// carriesOut: what its request asks for, or it waits for its turn
	carriesOut taskState = iota

	// awaitsLift: nothing: it waits until the drone is clear of the ground, and any newer request ends it
	awaitsLift

	// disarmsAgain: its plan has failed, and it disarms what it armed: who comes then waits for that
	disarmsAgain
)

// task is a request from its arrival to its answer.
type task struct {
	commander *commander
	request   request
	state     taskState

	// plan: as it was made last, when drone.changes had the value plannedAt
	plan      plan
	plannedAt uint64

	// askedAt is when a client asked for it; zero: mavrest itself did.
	askedAt time.Time

	// continues is the manoeuvre that a second leg continues: the landing at its place; nil for any other task.
	continues *manoeuvre

	// was: the last report when its turn came
	was report

	// previous: the manoeuvre when its turn came; nil: there was none
	previous *manoeuvre

	// climbed: it has sent the vehicle up before it flies to its place, and its plan keeps this destination's height;
	// nil: it has not
	climbed *aim

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

// newTask is a client's task or, where askedAt is zero, mavrest's own.
func (c *commander) newTask(r request, askedAt time.Time) *task {
	return &task{commander: c, request: r, askedAt: askedAt}
}

// takeoffAhead is the destination of a takeoff that is under way or waits before t; nil: there is none.
func (q *queue) takeoffAhead(t *task) *aim {
	for _, o := range q.tasks {
		if o == t {
			break
		}
		if o.endedBy == nil && o.setsMode() && o.request.enters(ModeTakeoff) {
			return &aim{place: *o.plan.destination}
		}
	}
	return nil
}

// aim is the destination of what was commanded here last; nil: there is none.
func (q *queue) aim(v view) *aim {
	if q.manoeuvre == nil {
		return nil
	}
	return q.manoeuvre.aim(v)
}

// join puts a task behind those that came before it, and ends those that it supersedes.
func (q *queue) join(t *task, v view) {
	for _, o := range q.tasks {
		if t.supersedes(o, v) {
			o.end(errSuperseded)
		}
	}
	q.tasks = append(q.tasks, t)
	q.newest = later(q.newest, t.request.came)
}

// supersedes reports whether t ends an older task o, under way or waiting. It does not end a landing, a
// return, a hold or a disarming, unless o also arms: t waits for o's answer. Of equal ones only the
// newest waits. A disarming on the ground ends everything. What has to wait until the drone is clear of the ground
// does not end a takeoff: that brings it there.
func (t *task) supersedes(o *task, v view) bool {
	switch {
	case t.request.disarms() && v.landed == onGround:
		return true
	case o.arms():
		return !t.plan.away() || v.isClear()
	case !o.urgent():
		return true
	}
	return o != t.commander.current() && o.request.equals(t.request)
}

// leave takes a task out of the queue: the next one has its turn.
func (q *queue) leave(t *task) {
	q.tasks = slices.DeleteFunc(q.tasks, func(o *task) bool { return o == t })
	q.bell.ring()
}

// What may be sent after a takeover, a disarming and the program's end is decided below: by
// mustEnd for a task, by mustNotAct for mavrest itself (docs/design.md, rule 4).

// endAll is called when no command of ours explains a report, a failsafe begins, the autopilot
// restarted, or somebody else moves the sticks of a stick mode. It ends every task and the manoeuvre:
// whoever took the drone keeps it, and one more step, or a copy, would undo a pilot's switch (rule 4).
// A task whose step is on the wire first learns what becomes of that step.
func (q *queue) endAll(why *commandError) {
	q.allEnded = why
	q.allEndedAt = time.Now()
	q.clientActed = false
	for _, t := range q.tasks {
		t.end(why)
	}
	q.endManoeuvre(why)
}

// endManoeuvre ends and forgets the manoeuvre. It also ends the task that began or continues it, if
// that is still under way. If a landing was on its way to its place, the mode is now the reported one.
func (q *queue) endManoeuvre(why *commandError) {
	if q.manoeuvre == nil {
		return
	}
	if t := q.current(); t != nil && (t.answer.manoeuvre == q.manoeuvre || t.continues == q.manoeuvre) {
		t.end(why)
	}
	if q.onWayToLand() {
		q.machine.abandon()
	}
	q.manoeuvre.finish(why)
	q.manoeuvre = nil
}

// replace makes t's plan the manoeuvre, once the vehicle has accepted its goal. A second leg
// continues the manoeuvre of the first: clients that wait for it wait on.
func (q *queue) replace(t *task) {
	if t.continues != nil {
		t.continues.plan = t.plan
		t.answer.manoeuvre = t.continues
		return
	}
	t.answer.manoeuvre = newManoeuvre(t.request, t.plan)
	q.manoeuvre = t.answer.manoeuvre
}

// onWayToLand reports whether a landing is still on its way to its place.
func (q *queue) onWayToLand() bool {
	return q.manoeuvre != nil && q.manoeuvre.plan.second != nil && !q.manoeuvre.finished()
}

// endUnasked ends what mavrest commands by itself.
func (q *queue) endUnasked() {
	for _, t := range q.tasks {
		if t.unasked() {
			t.end(errSuperseded)
		}
	}
}

// disarmed ends the tasks that arm, fly to a place or enter a stick mode, and those of mavrest itself; at is when the
// report left. Our own disarming ends none: those that waited for it go on. The manoeuvre is ended by watch.
func (q *queue) disarmed(at time.Time) {
	q.clientActed = false
	if t := q.current(); t != nil && t.endsDisarmed() {
		return
	}
	q.disarmedAt = time.Now()
	for _, t := range q.tasks {
		if t.arms() || t.entersSticks() || t.plan.destination != nil || t.unasked() {
			t.end(interrupted(at, "the vehicle was disarmed"))
		}
	}
}

// quit ends every task; no client's request begins any more. A step that was sent may still happen: no_ack.
func (q *queue) quit() {
	q.quitting = true
	for _, t := range q.tasks {
		why := *errQuitting
		if t.command != nil {
			why.code = codeNoAck
		}
		t.end(&why)
	}
	q.bell.ring()
}

// end ends a task from outside. A takeover or a disarming does not replace an earlier reason;
// a newer request and the program's end do.
func (t *task) end(why *commandError) {
	if t.endedBy == nil || why.code != codeInterrupted {
		t.endedBy = why
	}
	t.commander.bell.ring()
}

// mustNotAct is why mavrest may not send a command that no client asks for at this moment; nil:
// it may. It may not while a task is under way, and after a takeover or a disarming until
// a client's next step or sticks are accepted.
func (q *queue) mustNotAct() error {
	if q.busy() {
		return errSuperseded
	}
	if !q.clientActed {
		return refuse(codeInterrupted, "no client has commanded the drone since it was taken over or disarmed")
	}
	return nil
}

// idle reports whether mavrest may begin what it commands by itself: no task is under way, none of its own waits
// for the vehicle to be clear of the ground, and the program is not ending.
func (q *queue) idle() bool {
	return !q.busy() && !slices.ContainsFunc(q.tasks, (*task).unasked) && !q.quitting
}

// busy reports whether a task is under way. One that waits until the drone is clear of the ground is not: any
// newer command ends it, mavrest's own too.
func (q *queue) busy() bool {
	t := q.current()
	return t != nil && t.state != awaitsLift
}

// current is the task that is under way; nil if there is none.
func (q *queue) current() *task {
	if len(q.tasks) == 0 {
		return nil
	}
	return q.tasks[0]
}

// arms reports whether the task leads to an armed vehicle now.
func (t *task) arms() bool { return t.state == carriesOut && t.request.arms() }

// entersSticks reports whether the task enters a mode that is flown by sticks now.
func (t *task) entersSticks() bool { return t.state == carriesOut && t.request.entersSticks() }

// setsMode reports whether the task sets a mode now.
func (t *task) setsMode() bool { return t.state == carriesOut && t.request.setsMode() }

// urgent reports whether what the task does now is for safety: a newer request waits for its answer.
func (t *task) urgent() bool {
	return t.state == disarmsAgain || (t.state == carriesOut && t.request.urgent())
}

// endsDisarmed reports whether the last step of what the task does now disarms.
func (t *task) endsDisarmed() bool {
	return t.state == disarmsAgain || (t.state == carriesOut && t.request.endsDisarmed())
}

// unasked reports whether no client asked for the task: it is mavrest's own.
func (t *task) unasked() bool { return t.askedAt.IsZero() }

// askForReport requests HEARTBEAT. waits: a step waits for one that proves when it left.
func (c *commander) askForReport(waits bool, now time.Time) {
	r := &c.machine.reports
	r.ask(waits, now)
	c.acks.link.askTime(waits, now)
	if r.portAway = c.acks.requestMessage(idHeartbeat) != nil; r.portAway {
		r.portAwayAt = now
	}
}

// What a task does next is decided from what is known at a moment. waiter.loop does it, and waits.

// move is what is to be done now.
type move uint8

const (
	// look: nothing; decide again at the decision's time, or as soon as something came
	look move = iota

	// ask: request what is waited for
	ask

	// depart: send the first copy of the step
	depart

	// sendCopy: send another one
	sendCopy

	// leaveOut: leave this copy of the step out
	leaveOut

	// The moves from here on end the wait.

	// goOn: what was waited for is there, or need not be waited for.
	goOn

	// tooLate: it did not come in time
	tooLate

	// tooNear: the drone did not become clear of the ground in time
	tooNear

	// mustEnd: the task was ended from outside
	mustEnd

	// proven: the step is shown, or acknowledged where that is enough
	proven

	// refused: the vehicle refused the step
	refused

	// notShown: the vehicle acknowledged the step, and no report shows it
	notShown

	// notAcked: the vehicle did not acknowledge the step
	notAcked

	// notObeying: a takeover ended the step's task, and no report shows the step
	notObeying
)

// ends reports whether a move ends the wait: the order of the moves says it.
func (m move) ends() bool { return m >= goOn }

// decision is a move, and for look the time at which to decide again.
type decision struct {
	move move
	at   time.Time
}

// waiter is the permission to wait, and so to unlock the drone's mutex meanwhile. What is given one reads
// everything again after it has waited; a function without one runs undisturbed. Only drone.changeMayWait makes one
// (CONTRIBUTING.md, "The mutex").
type waiter struct {
	mu   *sync.Mutex
	bell *bell

	// settle is drone.settle.
	settle func()

	// stood is drone.cmd.stood.
	stood *standstill
}

// sleep waits until a time; an error means that the task was ended.
func (t *task) sleep(w waiter, until time.Time) error {
	return t.await(w, until, func() bool { return false })
}

// await waits until ok is true or the time is over; an error means that the task was ended.
func (t *task) await(w waiter, end time.Time, ok func() bool) error {
	_, err := t.loop(w, func(now time.Time) decision { return until(end, ok(), now) }, nil)
	return err
}

// ask repeats a request until its answer came or the time is over; an error means that the task was ended.
func (t *task) ask(w waiter, every time.Duration, end time.Time, request func(), came func() bool) error {
	q := asking{every: every, end: end}
	_, err := t.loop(w, func(now time.Time) decision { return q.decide(came(), now) }, func(move) error {
		q.asked = time.Now()
		request()
		return nil
	})
	return err
}

// asking is something that is requested again and again until it comes, or the time is over.
type asking struct {
	every time.Duration
	end   time.Time

	// asked: zero: not yet
	asked time.Time
}

func (q *asking) decide(came bool, now time.Time) decision {
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

// loop is the waiter's; an error means that the task was ended, or could not do what was decided.
func (t *task) loop(w waiter, decide func(now time.Time) decision, do func(move) error) (end move, err error) {
	end, err = w.loop(func(now time.Time) decision {
		if t.mustEnd() != nil {
			return decision{move: mustEnd}
		}
		return decide(now)
	}, do)
	if end == mustEnd {
		err = t.mustEnd()
	}
	return end, err
}

// mustEnd is why a task must end; nil: it may go on. After a takeover a task whose step is on
// the wire still waits for that step's answer, and sends no copy more (command.decide, send.go).
func (t *task) mustEnd() error {
	if t.endedBy == nil || (t.takenOver() && t.onWire()) {
		return nil
	}
	if t.command != nil {
		return t.endedBehind()
	}
	return t.ended("%s; nothing was sent")
}

// endedBehind is the error of a task that was ended behind a step of which no report tells more.
func (t *task) endedBehind() error {
	return t.ended("%s; %s was sent before; nothing more was sent", t.sentName())
}

// endedOnWire is the error of a task that a takeover ended while its step was on the wire. obeyed: the vehicle showed
// that it follows it, or acknowledged what no report can show.
func (t *task) endedOnWire(obeyed bool) error {
	s := t.command.step
	switch {
	case !s.isShown():
		return t.endedBehind()
	case obeyed:
		return t.ended("%s; the vehicle follows %s, which was sent before; nothing more was sent", commandName(s))
	}
	return t.ended("%s; %s was sent, and no report shows that the vehicle follows it", commandName(s))
}

// takenOver reports whether a takeover or a disarming ended the task.
func (t *task) takenOver() bool { return t.endedBy != nil && t.endedBy.code == codeInterrupted }

// onWire reports whether drone.send still waits for the outcome of the step that the task sent last.
func (t *task) onWire() bool {
	return t.command != nil && t.commander.acks.waiting[t.command.step.cmd] == t.command
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

// wait waits until ok is true or the time is over.
func (w waiter) wait(end time.Time, ok func() bool) {
	w.loop(func(now time.Time) decision { return until(end, ok(), now) }, nil)
}

// until decides a wait for something that needs no request.
func until(end time.Time, came bool, now time.Time) decision {
	if came {
		return decision{move: goOn}
	}
	if !now.Before(end) {
		return decision{move: tooLate}
	}
	return decision{look, end}
}

// loop is the one loop that waits: it does what decide says, until that says that the wait is over, or that can't be
// done.
func (w waiter) loop(decide func(now time.Time) decision, do func(move) error) (end move, err error) {
	for {
		if now := time.Now(); w.stood.reading(now) {
			again := now.Add(readLook)
			w.pause(again)
			w.stood.woke(again, time.Now())
			continue
		}
		switch d := decide(time.Now()); {
		case d.move == look:
			w.pause(d.at)
			w.stood.woke(d.at, time.Now())
		case d.move.ends():
			return d.move, nil
		default:
			if err := do(d.move); err != nil {
				return d.move, err
			}
		}
	}
}

// pause waits until the bell rings or the time is over. Only loop calls it.
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

// bell wakes all that pause: what each loop waits for is decided again.
type bell struct{ rings chan struct{} }

func (b *bell) ring() {
	if b.rings != nil {
		close(b.rings)
		b.rings = nil
	}
}

// standstill is the last time that the program stood still: its process was stopped, or waited for a disk. A step
// or a copy that was due meanwhile is due anew when it is over, and only once all was read that had come by then, in
// readsFor at most: a pilot's switch may be in that (docs/design.md, "Time").
type standstill struct {
	link *link

	// over is when it was noticed; zero: there was none.
	over time.Time

	// reads: what had come by then is still being read
	reads bool
}

// Times of a standstill.
const (
	// lateBy is how late something may be that was due by time. Later, the program stood still.
	lateBy = 50 * time.Millisecond

	// readsFor is for how long what has come is read, at most, before anything is decided.
	readsFor = 500 * time.Millisecond
)

// woke says that what was due by time is done now.
func (s *standstill) woke(due, now time.Time) {
	if !due.IsZero() && now.Sub(due) > lateBy {
		s.over = now
		s.reads = true
	}
}

// reading reports whether what came during the last standstill is still being read.
func (s *standstill) reading(now time.Time) bool {
	s.reads = s.reads && now.Sub(s.over) < readsFor && !s.link.hasReadSince(s.over, now)
	return s.reads
}

// dueAnew is when something that was due at a time is due now.
func (s *standstill) dueAnew(due time.Time) time.Time {
	if !due.IsZero() && due.Before(s.over) {
		return s.over
	}
	return due
}
