package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"
)

// Times of a plan (docs/design.md, rule 5 and "The newest command wins").
const (
	turnAtOnce = 10 * time.Millisecond   // a step that is due in it did not wait
	reportWait = 1500 * time.Millisecond // for the report before a step
	urgentWait = 100 * time.Millisecond  // the same where a client wants it for safety
	urgentKept = 500 * time.Millisecond  // and where a number is kept
	refusedFor = 50 * time.Millisecond   // or two round trips: a report may still show what an ack refused
	newerWait  = 2 * time.Second         // for the answer of the command that superseded this one
)

// commander carries plans out, one at a time: sends their steps, waits until the
// vehicle shows them, takes back; the newest plan wins. Everything in it happens
// under the mutex of the one who has it, which await gives up while it waits.
type commander struct {
	mu      sync.Locker
	acks    *acks
	machine *machine
	owner   owner

	tasks     []*task // in the order in which they came; the first one is under way
	manoeuvre *manoeuvre
	reports   reports
	client    bool // a client's command was accepted, and no takeover or disarming came since
	away      bool // the port was when HEARTBEAT was requested last
	bell      bell // rings when something came that one may wait for
	stopped   bool // the program ends
}

// owner is whom a commander works for: it knows the sticks, the parameters and
// what the vehicle says.
type owner interface {
	ready(s *step) time.Time                               // when the sticks let a step go
	readies(t *task) error                                 // before a plan is made, when it is its turn
	prepare(t *task) error                                 // before the first step of a plan
	took(t *task, s *step)                                 // after a step that the vehicle took
	closing(t *task, err error)                            // after a plan, accepted or not
	onGround() bool                                        // the vehicle says that it is
	refusal(t *task, s *step, refused *commandError) error // with its reasons
}

// answer is what an accepted command is told: the number of the last command
// acknowledged, the mode it led to, and what is to be watched to its end.
type answer struct {
	command   uint16
	mode      Mode
	manoeuvre *manoeuvre
}

var errSuperseded = &commandError{code: codeSuperseded, text: "a newer command took this one's place"}

// interruption is the error of what somebody else ended now.
func interruption(format string, args ...any) *commandError {
	return &commandError{code: codeInterrupted, text: fmt.Sprintf(format, args...), since: time.Now()}
}

// task is a plan on its way, from its arrival to its answer.
type task struct {
	by      *commander
	request request
	planned func() (plan, error) // plans anew, when it is its turn
	plan    plan
	came    time.Time // when a client asked for it; zero: nobody asks for it at this moment
	began   time.Time // when its turn came; zero: it waits
	until   time.Time // the farewell's: it may go on until then, though the program ends
	was     report    // the last one when its turn came

	accepted uint16        // the number of the last accepted command; 0: none
	sent     *step         // the last step that went out; nil: none
	armed    bool          // an ARM of it was sent to a disarmed vehicle
	onWire   bool          // a step of it is, until it is answered
	before   *manoeuvre    // what was under way when its first step that sets a mode went out
	leads    *manoeuvre    // what its goal leads to, once the vehicle took that; a second leg's from the start
	endedBy  *commandError // what ended it: a newer command, a takeover, a disarming
	newer    *task         // the command that superseded it
	answered bool
}

// do carries a request out and returns when the vehicle shows what it leads to, or
// a step of it was refused: then the error is a *commandError.
func (c *commander) do(r request, planned func() (plan, error)) (answer, error) {
	t := &task{by: c, request: r, planned: planned, came: time.Now()}
	return t.run()
}

// idle reports whether nothing is under way, and something may be.
func (c *commander) idle() bool { return len(c.tasks) == 0 && !c.stopped }

// current is the task that is carried out; nil: none.
func (c *commander) current() *task {
	if len(c.tasks) == 0 || c.tasks[0].began.IsZero() {
		return nil
	}
	return c.tasks[0]
}

// doOwn is the only way to the vehicle for what no client asks for at this moment. It
// refuses while a command is under way, and after a takeover or a disarming until a client's
// next command is accepted (rule 4). A second leg continues its manoeuvre. After the
// program's end it may go on until then.
func (c *commander) doOwn(p plan, r request, continues *manoeuvre, until time.Time) error {
	switch {
	case len(c.tasks) > 0:
		return errSuperseded
	case !c.client:
		return refuse(codeInterrupted, "no client has the drone")
	}
	t := &task{by: c, request: r, leads: continues, until: until, planned: func() (plan, error) { return p, nil }}
	_, err := t.run()
	return err
}

// end ends a task from outside. The first reason counts, but a newer command also
// ends what still waits after a takeover.
func (t *task) end(why *commandError) {
	if t.endedBy == nil || why == errSuperseded {
		t.endedBy = why
	}
	t.by.bell.ring()
}

// supersedes reports whether a command ends an older one, under way or waiting: every
// goto, takeoff, arming and stick mode. It waits for the answer of a landing, a return, a
// hold and a disarming; of equal ones only the newest waits. A disarming on the ground
// ends everything.
func (t *task) supersedes(o *task) bool {
	switch {
	case t.request.disarms() && t.by.owner.onGround():
		return true
	case o.request.arms() || o.request.goTo:
		return true
	case o.request.disarms() || !o.request.mode.flownBySticks():
		return o.began.IsZero() && o.request.equals(t.request)
	}
	return true
}

// takeover ends every plan: a report came that no command of ours explains, or a
// failsafe. A plan whose step is on the wire first learns what the vehicle does with
// that step (rule 4).
func (c *commander) takeover(why string) {
	c.client = false
	for _, t := range c.tasks {
		t.end(interruption("%s", why))
	}
}

// disarmed ends plans that arm or need an armed vehicle. Our own disarming ends nothing:
// what waits for it has its turn.
func (c *commander) disarmed() {
	c.client = false
	if t := c.current(); t != nil && t.request.disarms() {
		return
	}
	for _, t := range c.tasks {
		if t.request.arms() || t.plan.target != nil {
			t.end(interruption("the vehicle was disarmed"))
		}
	}
}

// stop ends everything that waits, and lets nothing new begin.
func (c *commander) stop() {
	c.stopped = true
	c.bell.ring()
}

// over is why a task may not go on; nil where it may. A task whose step is on the
// wire waits for that step's answer also after a takeover.
func (t *task) over() error {
	switch {
	case t.by.stopped && !time.Now().Before(t.until):
		return errStopping
	case t.endedBy == nil, t.onWire && t.taken():
		return nil
	case t.sent != nil:
		return t.ended("%s; %s was sent before; nothing more was sent", commandName(t.sent))
	}
	return t.ended("%s; nothing was sent")
}

// ended is what ended it, and how far it came then.
func (t *task) ended(format string, args ...any) error {
	e := *t.endedBy
	e.text = fmt.Sprintf(format, append([]any{e.text}, args...)...)
	return &e
}

// taken reports whether somebody else ended it: a takeover or a disarming.
func (t *task) taken() bool { return t.endedBy != nil && t.endedBy.code == codeInterrupted }

// pause waits until something came or the time is over. Whoever waits has the mutex,
// before and after.
func (c *commander) pause(until time.Time) {
	rings := c.bell.wait()
	c.mu.Unlock()
	defer c.mu.Lock()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-rings:
	case <-timer.C:
	}
}

// await waits for ok, at most until the deadline: then it returns errTimeout. A nil
// ok waits for the deadline.
func (t *task) await(until time.Time, ok func() bool) error {
	for {
		if err := t.over(); err != nil || ok != nil && ok() {
			return err
		}
		if !time.Now().Before(until) {
			return errTimeout
		}
		t.by.pause(until)
	}
}

// sleep waits for a time, unless the task ends before.
func (t *task) sleep(until time.Time) error { return unlessLate(t.await(until, nil)) }

// poll requests HEARTBEAT where it is due, and tells when it is due next. awaited says
// that a command waits for a report.
func (c *commander) poll(awaited bool, now time.Time) (next time.Time) {
	if !now.Before(c.reports.due(awaited, c.acks.trip)) {
		c.reports.asked = now
		c.away = c.acks.request(idHeartbeat) != nil
	}
	return c.reports.due(awaited, c.acks.trip)
}

// run is a task from its arrival to its answer.
func (t *task) run() (a answer, err error) {
	c := t.by
	var reasons func() error
	if err = t.takeTurn(); err == nil {
		if a, err, reasons = t.carryOut(); err != nil {
			t.failed(err)
		}
		c.owner.closing(t, err)
	}
	c.tasks = slices.DeleteFunc(c.tasks, func(o *task) bool { return o == t })
	c.bell.ring()
	if reasons != nil && !t.came.IsZero() { // nobody reads them else
		err = reasons()
	}
	for until := time.Now().Add(newerWait); code(err) == codeSuperseded && t.newer != nil && !t.newer.answered && !c.stopped && time.Now().Before(until); {
		c.pause(until)
	}
	t.answered = true
	c.bell.ring()
	return a, t.standing(err)
}

// takeTurn ends the older commands that it supersedes, and waits for the others.
func (t *task) takeTurn() (err error) {
	c := t.by
	if t.plan, err = t.planned(); err != nil {
		return err
	}
	for _, o := range c.tasks {
		if t.supersedes(o) {
			o.end(errSuperseded)
			o.newer = t
		}
	}
	c.tasks = append(c.tasks, t)
	for c.tasks[0] != t {
		if err := t.over(); err != nil {
			return err
		}
		c.pause(time.Now().Add(newerWait))
	}
	if err := t.over(); err != nil {
		return err
	}
	t.began = time.Now()
	if err := c.owner.readies(t); err != nil {
		return err
	}
	if t.plan, err = t.planned(); err != nil { // what was true when it came may not be now
		return err
	}
	t.was = c.machine.last
	return nil
}

// carryOut sends the steps. Where one was refused, finish gathers the reasons.
func (t *task) carryOut() (a answer, err error, finish func() error) {
	c := t.by
	if err := c.owner.prepare(t); err != nil {
		return answer{}, err, nil
	}
	for i := range t.plan.steps {
		s := &t.plan.steps[i]
		err := t.send(i)
		refused := refusedWith(err)
		if refused != nil && t.endedBy != nil { // the takeover is why
			err, refused = t.unfollowed(s), nil
		}
		if s.optional && (refused != nil || isNoAck(err)) {
			slog.Warn("a plan goes on without one of its steps", "error", err)
			continue
		}
		if refused != nil {
			return answer{}, err, func() error { return c.owner.refusal(t, s, refused) }
		}
		if err != nil {
			return answer{}, err, nil
		}
		t.took(s)
		if t.taken() {
			if t.doneWith(i) && t.shown() {
				break
			}
			return answer{}, t.ended("%s; the vehicle follows %s, which was sent before; nothing more was sent", commandName(s)), nil
		}
	}
	if !t.request.setMode {
		return answer{t.accepted, c.machine.mode, doneAtOnce()}, nil, nil
	}
	return answer{t.accepted, c.machine.mode, t.leads}, nil, nil
}

// send waits until step i may go out, and sends it; again where the port was away then.
func (t *task) send(i int) error {
	s := &t.plan.steps[i]
	for due := (time.Time{}); ; {
		if err := t.approach(s); err != nil {
			return err
		}
		if due.IsZero() {
			due = time.Now()
		}
		if err := t.reportBefore(i, due); err != nil {
			return err
		}
		// explains would allow what a disarmed vehicle fell back to, too.
		if o := t.by.machine.order; i > 0 && s.arms() && o != nil && t.by.machine.last.custom != o.number {
			return refuse(codeInterrupted, "arming was not sent: the vehicle left the mode that was set for it")
		}
		if err := t.transact(s); err != errAway {
			return err
		}
		t.by.away = true
	}
}

// took makes what a step leads to the mode, and the plan's goal its manoeuvre.
func (t *task) took(s *step) {
	c := t.by
	t.accepted = uint16(s.cmd)
	c.client = c.client || !t.came.IsZero() && !t.taken()
	if s.to != nil {
		c.machine.command(*s.to)
		if t.request.setMode && s.to == t.plan.goal() {
			c.replace(t)
			t.leads = c.manoeuvre
			c.manoeuvre.failsafe = c.machine.last.failsafe // one that is active already does not end it
		}
	}
	c.owner.took(t, s)
}

// approach waits until a step is due: for the acks of an equal command, for the sticks and
// for the gap between two mode changes.
func (t *task) approach(s *step) error {
	c := t.by
	if err := t.waitFree(s); err != nil {
		return err
	}
	for t.over() == nil {
		at := c.owner.ready(s)
		if s.to != nil && at.Before(c.acks.modeAt) {
			at = c.acks.modeAt
		}
		if !time.Now().Before(at) {
			break
		}
		c.pause(at)
	}
	return t.over()
}

// reportBefore waits for the report that step i, which was due then, follows (rule 5). What
// a client wants for safety goes out without one, where it was due at once.
func (t *task) reportBefore(i int, due time.Time) error {
	c, s := t.by, &t.plan.steps[i]
	atOnce := i == 0 && due.Sub(t.came) <= turnAtOnce // and a client asked for it
	since, back := due.Add(max(reportAgain, c.acks.trip)), due
	if atOnce {
		since = due.Add(-reportFresh)
	}
	for c.reports.asked = (time.Time{}); ; {
		if err := t.over(); err != nil {
			return err
		}
		now := time.Now()
		if c.away {
			since, back = now, now
		}
		if !c.away && !c.reports.keeps() && !c.reports.at.Before(since) {
			return nil
		}
		next, until := c.poll(true, now), due.Add(reportWait)
		if !now.Before(until) {
			break
		}
		if atOnce && t.request.urgent() && !c.away {
			until = back.Add(urgentWait)
			if c.reports.keeps() {
				until = due.Add(urgentKept)
			}
			if !now.Before(until) {
				return nil
			}
		}
		c.pause(sooner(next, until))
	}
	if c.away && t.sent == nil {
		return refuse(codeOffline, "the port to the autopilot was down: %s was not sent", commandName(s))
	}
	return refuse(codeNoAck, "the autopilot did not answer; %s was not sent", commandName(s))
}

// waitFree waits until the acks of an earlier command with this number came or are
// lost: they would answer this one.
func (t *task) waitFree(s *step) error {
	c := t.by
	for !s.byReport() && time.Now().Before(c.acks.late[s.cmd]) {
		if err := t.over(); err != nil {
			return err
		}
		c.pause(c.acks.late[s.cmd])
	}
	return nil
}

// failed is what follows a plan that ended before it was accepted. What it armed and
// was refused or not answered then is disarmed on the ground, before the next task begins.
func (t *task) failed(err error) {
	c := t.by
	if m := c.manoeuvre; m != nil && m.plan.goal() == t.plan.goal() { // the goto itself was accepted; forget its refused heading
		m.plan.facing = math.NaN()
	}
	if !t.armed || !t.fails(err) || !c.owner.onGround() {
		return
	}
	disarm := c.acks.tel.id.firmware().armDisarm(false)
	t.request, t.plan.steps = request{arm: new(bool)}, append(t.plan.steps, disarm)
	if failed := t.send(len(t.plan.steps) - 1); failed != nil {
		slog.Warn("what a failed command armed could not be disarmed", "error", failed)
	}
}

// fails reports whether err is the vehicle's: it refused a step, or did not answer.
func (t *task) fails(err error) bool {
	return (refusedWith(err) != nil || isNoAck(err)) && !t.taken()
}

// standing is the error of a plan that failed, with what it has changed before: that is
// not taken back.
func (t *task) standing(err error) error {
	now, f := t.by.machine.last, t.by.acks.tel.id.firmware()
	var ce *commandError
	if !t.fails(err) || !errors.As(err, &ce) {
		return err
	}
	said := *ce
	if t.before != nil {
		said.text += "; the " + t.before.request.name() + " before it has ended"
	} else if t.accepted == 0 || now.custom == t.was.custom && now.armed == t.was.armed {
		return err
	}
	if _, name := f.reported(t.was.custom); t.was.failsafe {
		said.text += "; the failsafe's " + name + " was ended"
	}
	_, name := f.reported(now.custom)
	armed := "disarmed"
	if now.armed {
		armed = "armed"
	}
	said.text += "; the vehicle is in " + name + ", " + armed
	return &said
}

// shown reports whether the last report shows what the plan leads to.
func (t *task) shown() bool {
	goal, last := t.plan.goal(), t.by.machine.last
	return goal == nil || last.custom == goal.number || goal.atEnd(last)
}

// doneWith reports whether only optional steps follow step i.
func (t *task) doneWith(i int) bool {
	return !slices.ContainsFunc(t.plan.steps[i+1:], func(s step) bool { return !s.optional })
}

// transact sends one command, repeats it until it is answered, and returns why the
// vehicle did not take it.
func (t *task) transact(s *step) error {
	c := t.by
	x := c.acks.open(s, c.machine.last, c.reports.n)
	defer func() { c.acks.close(x); t.onWire = false }()
	c.reports.asked = time.Time{} // a report is waited for from now on
	gap := max(copyEvery, c.acks.trip*3/2)
	for due := time.Duration(0); due < giveUp && t.endedBy == nil && !x.acked(); due += gap {
		if err := t.sendCopy(x); err != nil {
			return err
		}
		if x.copies == 0 {
			return errAway
		}
		if err := t.verdict(x, x.sent.Add(min(due+gap, giveUp))); !errors.Is(err, errTimeout) {
			return err
		}
	}
	switch {
	case t.endedBy != nil: // a takeover, and the vehicle does not show what was sent
		return t.unfollowed(s)
	case x.acked():
		return refuse(codeNoAck, "%s was acknowledged, but the vehicle never reported it; read the status to see whether it happened", commandName(s))
	}
	return refuse(codeNoAck, "%s was sent and never acknowledged; read the status to see whether it happened", commandName(s))
}

// unfollowed is the end of a task whose step was on the wire when something else ended
// it.
func (t *task) unfollowed(s *step) error {
	return t.ended("%s; %s was sent, and no report shows that the vehicle follows it", commandName(s))
}

// sendCopy sends a copy, unless the task is over: nothing of it may go out behind a
// newer command or a takeover. A repeat of an ARM does not go to an armed vehicle.
func (t *task) sendCopy(x *command) error {
	c, s := t.by, x.step
	if err := t.over(); err != nil {
		return err
	}
	if x.copies > 0 && (c.reports.keeps() || s.arms() && c.machine.last.armed) {
		return nil
	}
	if err := c.acks.send(x); err != nil {
		return nil // the port is away, or full: the next copy may go
	}
	t.onWire, t.sent = true, s
	t.armed = t.armed || s.arms() && !c.machine.last.armed
	if s.to != nil {
		c.machine.claim(s.to, time.Now())
		if m := c.manoeuvre; m != t.leads { // whatever becomes of the step
			if m != nil && !m.finished() {
				t.before = m
			}
			c.endManoeuvre(errSuperseded)
		}
	}
	return nil
}

// verdict waits for what answers a command: a refusal, a report that shows it, or the ack
// where that alone proves it. What was acknowledged, or sent before a takeover, has
// showWithin to show; after that transact says what it means.
func (t *task) verdict(x *command, until time.Time) error {
	c := t.by
	for {
		if err := t.over(); err != nil {
			return err
		}
		switch {
		case x.shown(c.machine.last, c.reports.n):
			c.acks.answered(x.step)
			return nil
		case x.refusal != nil:
			return t.refused(x)
		case x.acked():
			until = x.ackedAt.Add(showWithin)
		case t.endedBy != nil: // by a takeover: nothing is repeated
			until = x.last.Add(showWithin)
		}
		now, next := time.Now(), until
		if !now.Before(until) {
			return errTimeout
		}
		if x.acked() || x.step.byReport() {
			if x.ackedAt.After(c.reports.asked) { // at once
				c.reports.asked = time.Time{}
			}
			next = sooner(until, c.poll(true, now))
		}
		c.pause(next)
	}
}

// refused is a refusal among the acks of a command. It is the answer, unless a report
// in the next moment shows what was asked for: then it was an earlier command's, or
// another copy was accepted.
func (t *task) refused(x *command) error {
	c := t.by
	for until := time.Now().Add(max(refusedFor, 2*c.acks.trip)); x.step.byReport() && time.Now().Before(until); {
		if err := t.over(); err != nil {
			return err
		}
		if x.shown(c.machine.last, c.reports.n) {
			return nil
		}
		c.pause(sooner(c.poll(true, time.Now()), until))
	}
	if x.step.to != nil {
		c.machine.refused(x.step.to)
	}
	return refusal(x.step, &commandError{code: codeRefused, answered: true, command: uint16(x.step.cmd), result: *x.refusal, since: x.sent}, "")
}

// replace makes the plan the manoeuvre, when the vehicle has taken its goal. A second
// leg continues the one that it belongs to: those who wait for it wait on.
func (c *commander) replace(t *task) {
	now := time.Now()
	switch m := t.leads; {
	case m != nil:
		m.plan, m.at, m.near, m.strange = t.plan, now, time.Time{}, time.Time{}
	case t.request.entersSticks():
		c.manoeuvre = doneAtOnce()
	default:
		c.manoeuvre = &manoeuvre{request: t.request, plan: t.plan, at: now, over: make(chan struct{})}
	}
}

// abandon ends the manoeuvre for a reason that a person can act on.
func (c *commander) abandon(since time.Time, format string, args ...any) {
	why := interruption(format, args...)
	why.since = since
	c.endManoeuvre(why)
}

// endManoeuvre ends the manoeuvre and forgets it. A landing on its way is no longer what
// the vehicle does: the mode is the reported one.
func (c *commander) endManoeuvre(why error) {
	if c.manoeuvre == nil {
		return
	}
	if c.transit() {
		c.machine.abandon()
	}
	c.manoeuvre.finish(why)
	c.manoeuvre = nil
}

// transit reports whether a landing is still on its way to its place.
func (c *commander) transit() bool {
	return c.manoeuvre != nil && c.manoeuvre.plan.second != nil && !c.manoeuvre.finished()
}
