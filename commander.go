package main

import (
	"errors"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Times of a plan (docs/design.md, rule 5 and "The newest command wins").
const (
	planEvery  = 100 * time.Millisecond // at most one plan begins in it
	atOnce     = 10 * time.Millisecond  // a plan that goes out in it did not wait
	reportWait = time.Second            // for the report before what nobody asked for at this moment
	landWait   = 100 * time.Millisecond // the same before a landing that a client asked for
	turnWait   = time.Second            // for a disarming that is carried out
)

// commander carries plans out, one at a time: sends their steps, waits until the
// vehicle shows them, takes back; the newest plan wins. Everything in it happens
// under the mutex of the one who has it, which await gives up while it waits.
type commander struct {
	mu      sync.Locker
	acks    *acks
	machine *machine
	owner   owner

	tasks     []*task   // one is carried out, disarmings perhaps beside it; the last may wait for its turn
	begun     time.Time // when the last plan began that takes turns
	manoeuvre *manoeuvre
	reports   int  // that were heard
	bell      bell // rings when something came that one may wait for
	stopped   bool // the program ends
}

// owner is whom a commander works for: it knows the sticks, the parameters and
// what the vehicle says.
type owner interface {
	ready(s *step) time.Time // when the sticks let a step go
	prepare(t *task) error   // before the first step of a plan
	sends(t *task, i int)    // right before step i
	took(t *task, s *step)   // after a step that the vehicle took
	closing(t *task)         // after a plan, accepted or not
	onGround() bool          // the vehicle says that it is
	refusal(t *task, s *step, result uint8, at time.Time) error
}

// bell wakes all that wait for it.
type bell struct{ rings chan struct{} }

// wait returns a channel that is closed when the bell rings next.
func (b *bell) wait() <-chan struct{} {
	if b.rings == nil {
		b.rings = make(chan struct{})
	}
	return b.rings
}

func (b *bell) ring() {
	if b.rings != nil {
		close(b.rings)
		b.rings = nil
	}
}

// answer is what an accepted command is told: the number of the last command
// acknowledged, the mode it led to, and what is to be watched to its end.
type answer struct {
	command   uint16
	mode      Mode
	manoeuvre *manoeuvre
}

var (
	errSuperseded = refuse(codeSuperseded, "a newer command took this one's place")
	errDisarmed   = refuse(codeInterrupted, "the vehicle was disarmed")
)

// task is a plan on its way, from its turn to its answer.
type task struct {
	by      *commander
	request request
	planned func() (plan, error) // plans anew, when it is its turn
	plan    plan
	came    time.Time // when a client asked for it; zero: nobody asks for it at this moment
	began   time.Time // when its first step was due
	until   time.Time // the farewell's: it may go on until then, though the program ends
	was     order     // what stood before it

	accepted uint16     // the number of the last accepted command; 0: none
	armed    bool       // an ARM of it was sent to a disarmed vehicle
	onWire   bool       // a step of it is, until it is answered
	moving   bool       // a step that sets a mode was sent and is not answered
	leads    *manoeuvre // what its goal leads to, once the vehicle took that
	endedBy  error      // what ended it: a newer command, a takeover, a disarming

	ended  chan struct{}
	answer answer // once ended
	err    error
}

// do carries a request out and returns when the vehicle shows what it leads to, or
// a step of it was refused: then the error is a *commandError. A landing or a
// disarming joins an equal one that is not answered yet.
func (c *commander) do(r request, planned func() (plan, error)) (answer, error) {
	for _, t := range c.tasks {
		if t.takesIn(r) {
			c.supersedeWaiting(t) // it is newer than that too
			c.mu.Unlock()
			<-t.ended
			c.mu.Lock()
			return t.answer, t.err
		}
	}
	t := &task{by: c, request: r, planned: planned, came: time.Now(), ended: make(chan struct{})}
	return t.run()
}

// idle reports whether nothing is under way, and something may be.
func (c *commander) idle() bool { return len(c.tasks) == 0 && !c.stopped }

// current is the task that is carried out; nil: none.
func (c *commander) current() *task {
	for _, t := range slices.Backward(c.tasks) {
		if !t.began.IsZero() {
			return t
		}
	}
	return nil
}

// disarms reports whether a disarming is what is carried out.
func (c *commander) disarms() bool { t := c.current(); return t != nil && t.request.disarms() }

// supersedeWaiting ends what waits for its turn, but the newest.
func (c *commander) supersedeWaiting(newest *task) {
	for _, t := range c.tasks {
		if t.began.IsZero() && t != newest {
			t.end(errSuperseded)
		}
	}
}

// doOwn carries out what no client asks for at this moment, unless one does.
func (c *commander) doOwn(p plan, r request) error {
	if !c.idle() {
		return errSuperseded
	}
	t := &task{by: c, request: r, ended: make(chan struct{}), planned: func() (plan, error) { return p, nil }}
	_, err := t.run()
	return err
}

// takesIn reports whether an equal request joins it, and gets its answer.
func (t *task) takesIn(r request) bool {
	return (r.setMode && r.mode == ModeLand || r.disarms()) && !t.came.IsZero() && t.endedBy == nil && reflect.DeepEqual(t.request, r)
}

// end ends a task from outside. The first reason counts, but a newer command also
// ends what still waits after a takeover.
func (t *task) end(why error) {
	if t.endedBy == nil || why == errSuperseded {
		t.endedBy = why
	}
	t.by.bell.ring()
}

// takeover ends every plan: a report came that no command of ours explains, or a
// failsafe. A plan whose step is on the wire first learns what the vehicle does with
// that step (rule 4).
func (c *commander) takeover(why string) {
	for _, t := range c.tasks {
		t.end(refuse(codeInterrupted, "%s", why))
	}
}

// disarmed ends plans that arm or need an armed vehicle, unless a command of ours
// disarms: what waits for that one has its turn.
func (c *commander) disarmed() {
	if c.disarms() {
		return
	}
	for _, t := range c.tasks {
		if t.request.arms() || t.plan.target != nil {
			t.end(errDisarmed)
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
	case t.onWire && code(t.endedBy) == codeInterrupted:
		return nil
	case t.accepted != 0 || t.moving:
		return t.interrupted("%s; nothing more was sent")
	}
	return t.interrupted("%s; nothing was sent")
}

// interrupted is what ended it, and how far it came then; nil where nothing did.
func (t *task) interrupted(format string, args ...any) error {
	if code(t.endedBy) != codeInterrupted {
		return t.endedBy
	}
	return refuse(codeInterrupted, format, append([]any{t.endedBy}, args...)...)
}

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

// newReport waits for a report that comes from now on, and requests one.
func (t *task) newReport(within time.Duration) error {
	c, until := t.by, time.Now().Add(within)
	for n := c.reports; ; {
		c.acks.request(idHeartbeat)
		next := time.Now().Add(max(showEvery, c.acks.trip))
		err := t.await(sooner(next, until), func() bool { return c.reports != n })
		if !errors.Is(err, errTimeout) || !time.Now().Before(until) {
			return err
		}
	}
}

// run is a task from its turn to its end.
func (t *task) run() (answer, error) {
	c := t.by
	var finish func() error
	if t.err = t.takeTurn(); t.err == nil {
		if t.answer, t.err, finish = t.carryOut(); t.err != nil {
			t.failed()
		}
		c.owner.closing(t)
	}
	c.tasks = slices.DeleteFunc(c.tasks, func(o *task) bool { return o == t })
	c.bell.ring()
	if t.err != nil {
		c.takeBack(t)
	}
	if finish != nil {
		t.err = finish()
	}
	close(t.ended)
	return t.answer, t.err
}

// takeTurn waits until it may begin, and takes the place of the plan before it.
// At most one plan begins in planEvery, and the newest waits; what is urgent
// skips that, and a disarming is waited for.
func (t *task) takeTurn() (err error) {
	c := t.by
	if t.plan, err = t.planned(); err != nil {
		return err
	}
	c.supersedeWaiting(t)
	c.tasks = append(c.tasks, t)
	if at := c.begun.Add(planEvery); !t.request.urgent() && time.Now().Before(at) {
		if err := t.sleep(at); err != nil {
			return err
		}
	}
	free := func() bool { return t.request.urgent() || !c.disarms() }
	if err := unlessLate(t.await(time.Now().Add(turnWait), free)); err != nil {
		return err
	}
	if t.plan, err = t.planned(); err != nil { // what was true when it came may not be now
		return err
	}
	if older := c.current(); older != nil && !c.disarms() {
		older.end(errSuperseded)
	}
	t.began, t.was = time.Now(), c.machine.standing()
	if !t.request.urgent() {
		c.begun = t.began
	}
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
		if err := t.approach(i); err != nil {
			if isNoAck(err) && s.optional && t.accepted != 0 && t.doneWith(i) { // what was asked for is accepted
				slog.Warn("a plan ends without its last steps", "error", err)
				break
			}
			return answer{}, err, nil
		}
		c.owner.sends(t, i)
		err := t.transact(s)
		refused := refusedWith(err)
		if refused != nil && s.to != nil {
			c.machine.refused(s.to)
		}
		if refused != nil && t.endedBy != nil { // the takeover is why
			err, refused = t.unfollowed(s), nil
		}
		if s.optional && (refused != nil || isNoAck(err)) {
			slog.Warn("a plan goes on without one of its steps", "error", err)
			continue
		}
		if refused != nil {
			at := time.Now()
			return answer{}, err, func() error { return c.owner.refusal(t, s, refused.result, at) }
		}
		if err != nil {
			return answer{}, err, nil
		}
		t.took(s)
		if code(t.endedBy) == codeInterrupted {
			if t.doneWith(i) {
				break
			}
			return answer{}, t.interrupted("%s; the vehicle follows %s, which was sent before; nothing more was sent", commandName(s)), nil
		}
	}
	if !t.request.setMode {
		return answer{t.accepted, c.machine.mode, doneAtOnce()}, nil, nil
	}
	return answer{t.accepted, c.machine.mode, t.leads}, nil, nil
}

// took makes what a step leads to the mode, and the plan's goal its manoeuvre.
func (t *task) took(s *step) {
	c := t.by
	t.accepted = uint16(s.cmd)
	if s.to != nil {
		c.machine.command(*s.to, time.Now())
		if t.request.setMode && s.to == t.plan.goal() {
			c.replace(t)
			t.leads = c.manoeuvre
			c.manoeuvre.failsafe = c.machine.last.failsafe // one that stands was there before it
		} else if c.manoeuvre != nil {
			c.manoeuvre.finish(errSuperseded)
			c.manoeuvre = nil
		}
	}
	c.owner.took(t, s)
}

// approach waits until step i may be sent: for the sticks, for the gap between
// two mode changes, for the acks of an equal command and, where no client asked for
// it at this very moment, for a report (rule 5).
func (t *task) approach(i int) error {
	c, s := t.by, &t.plan.steps[i]
	lands := s.to != nil && s.to.mode == ModeLand && t.plan.second == nil // the landing, not the way to its place
	if !lands {
		if err := t.waitFree(s); err != nil {
			return err
		}
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
	asked := !t.came.IsZero() && i == 0 && time.Since(t.came) <= atOnce
	if err := t.over(); err != nil || asked {
		return err
	}
	if err := t.reportBefore(s); err != nil {
		return err
	}
	t.replan(i)
	// explains would allow what a disarmed vehicle fell back to, too.
	if o := c.machine.order; i > 0 && s.arms() && o != nil && c.machine.last.custom != o.number {
		return refuse(codeInterrupted, "arming was not sent: the vehicle left the mode that was set for it")
	}
	return nil
}

// reportBefore waits for a report before a step that no client asks for at
// this moment (rule 5). A landing that a client asked for is sent in any case.
func (t *task) reportBefore(s *step) error {
	within := reportWait
	if !t.came.IsZero() && t.request.setMode && t.request.mode == ModeLand {
		within = landWait
	}
	err := t.newReport(within)
	if errors.Is(err, errTimeout) && within == reportWait {
		return refuse(codeNoAck, "the autopilot did not answer; %s was not sent", commandName(s))
	}
	return unlessLate(err)
}

// waitFree waits until the acks of an earlier command with this number came or are
// lost: they would answer this one.
func (t *task) waitFree(s *step) error {
	c := t.by
	for !s.byReport() && time.Now().Before(c.acks.freeAt(s.cmd)) {
		if err := t.over(); err != nil {
			return err
		}
		c.pause(c.acks.freeAt(s.cmd))
	}
	return nil
}

// replan plans a way anew that waited for its sticks: the place or height that it keeps
// is where the vehicle is now, not where it was when it was asked.
func (t *task) replan(i int) {
	if t.plan.steps[i].sticks != sticksStill || t.plan.target == nil {
		return
	}
	if p, err := t.planned(); err == nil && len(p.steps) == len(t.plan.steps)-i {
		copy(t.plan.steps[i:], p.steps)
		t.plan.target = p.target
	}
}

// failed is what follows a plan that ended before it was accepted.
func (t *task) failed() {
	c := t.by
	for _, s := range t.plan.steps {
		if s.to != nil {
			c.machine.ended(s.to, isNoAck(t.err), time.Now())
		}
	}
	if t.moving && c.manoeuvre != nil { // nobody knows whether it flies there
		c.abandon("a command that was not answered may have moved the drone: it is in %s", c.machine.mode)
	}
	if m := c.manoeuvre; m != nil && m.plan.goal() == t.plan.goal() { // the goto that it is: only its speed or heading was refused
		m.plan.facing = math.NaN()
	}
}

// doneWith reports whether only optional steps follow step i.
func (t *task) doneWith(i int) bool {
	return !slices.ContainsFunc(t.plan.steps[i+1:], func(s step) bool { return !s.optional })
}

// takeBack takes a plan back that was refused: it disarms what the plan armed and
// sets the mode again that it changed, on the ground only; one that ended a failsafe
// asks for its return again. After a plan that was not answered it only disarms
// (rule 7).
func (c *commander) takeBack(t *task) {
	refused := code(t.err) == codeRefused || code(t.err) == codeUnsupported
	if t.began.IsZero() || !refused && !isNoAck(t.err) {
		return
	}
	var steps []step
	ground := c.owner.onGround()
	if t.armed && ground {
		steps = append(steps, c.acks.tel.id.firmware().armDisarm(false))
	}
	back, may := t.was, ground && t.request.setMode
	if t.plan.endsFailsafe {
		back, may = *px4.enter(ModeRTL).to, t.accepted != 0
	}
	if refused && may && c.machine.last.custom != back.number {
		s := c.acks.tel.id.firmware().setMode(back.mode, back.number)
		s.to = &back
		steps = append(steps, s)
	}
	for _, s := range steps {
		if err := c.doOwn(plan{steps: []step{s}}, request{}); err != nil {
			slog.Warn("a refused command could not be taken back", "what", commandName(&s), "error", err)
			return
		}
	}
}

// transact sends one command, repeats it until it is answered, and returns why the
// vehicle did not take it.
func (t *task) transact(s *step) error {
	c := t.by
	x := c.acks.open(s, c.machine.last, c.reports)
	defer func() { c.acks.close(x); t.onWire = false }()
	gap := max(firstRepeat, c.acks.trip*3/2)
	began := time.Now()
	for i, factor := range repeats {
		due := time.Duration(float64(gap) * factor)
		if due >= giveUp || !x.progress.IsZero() || t.endedBy != nil || x.acked() {
			break
		}
		if err := t.sendCopy(x); err != nil {
			return err
		}
		if x.copies == 0 { // the port is away
			if err := t.sendLate(x); err != nil {
				return err
			}
			began = x.sent
		}
		end := giveUp
		if i+1 < len(repeats) {
			end = min(end, time.Duration(float64(gap)*repeats[i+1]))
		}
		if err := t.verdict(x, began.Add(end)); !errors.Is(err, errTimeout) {
			return err
		}
	}
	if !x.progress.IsZero() && !x.acked() {
		if err := t.verdict(x, x.progress.Add(progressWait)); !errors.Is(err, errTimeout) {
			return err
		}
	}
	switch {
	case t.endedBy != nil: // a takeover, and the vehicle does not show what was sent
		return t.unfollowed(s)
	case x.acked() && s.ackProves(c.acks.tel.id.firmware()):
		return nil
	case x.acked():
		return refuse(codeNoAck, "%s was acknowledged and did not show; read the status to see whether it happened", commandName(s))
	}
	return refuse(codeNoAck, "%s was sent and never acknowledged; read the status to see whether it happened", commandName(s))
}

// unfollowed is the end of a task whose step was on the wire when something else ended
// it.
func (t *task) unfollowed(s *step) error {
	return t.interrupted("%s; %s was sent, and no report shows that the vehicle follows it", commandName(s))
}

// sendCopy sends a copy, unless the task is over: nothing of it may go out behind a
// newer command or a takeover. A repeat of an ARM does not go to an armed vehicle.
func (t *task) sendCopy(x *command) error {
	c, s := t.by, x.step
	if err := t.over(); err != nil {
		return err
	}
	if x.copies > 0 && s.arms() && c.machine.last.armed {
		return nil
	}
	if err := c.acks.send(x); err != nil {
		return nil // the port is away, or full: the next copy may go
	}
	t.onWire = true
	t.armed = t.armed || s.arms() && !c.machine.last.armed
	if s.to != nil {
		c.machine.claim(s.to)
		t.moving = true
	}
	return nil
}

// sendLate sends the first copy of a command for which the port was away, as soon as
// it is back. Nobody asks for it at that moment.
func (t *task) sendLate(x *command) error {
	c := t.by
	down := refuse(codeOffline, "the port to the autopilot was down: %s was not sent", commandName(x.step))
	for until := time.Now().Add(giveUp); c.acks.request(idHeartbeat) != nil; {
		if !time.Now().Before(until) {
			return down
		}
		if err := t.sleep(time.Now().Add(showEvery)); err != nil {
			return err
		}
	}
	if err := t.reportBefore(x.step); err != nil {
		return err
	}
	x.before, x.reports = c.machine.last, c.reports
	if err := t.sendCopy(x); err != nil || x.copies > 0 {
		return err
	}
	return down
}

// verdict waits for what answers a command: a refusal, or a report that shows it, and
// where a report alone proves nothing, an ack too. What was acknowledged, or sent before a
// takeover, has showWithin to show; after that transact says what it means.
func (t *task) verdict(x *command, until time.Time) error {
	c := t.by
	var requested time.Time
	for {
		if err := t.over(); err != nil {
			return err
		}
		settle := max(showWithin, 2*c.acks.trip)
		switch shown := x.shown(c.machine.last, c.reports); {
		case shown && (x.step.byReport() || x.unsure || x.acked() || t.came.IsZero()):
			t.moving = false
			c.acks.answered(x.step)
			return nil
		case x.refusal != nil:
			t.moving = false
			return t.refused(x)
		case x.acked():
			t.moving = t.moving && !x.step.ackProves(c.acks.tel.id.firmware())
			until = x.ackedAt.Add(settle)
		case t.endedBy != nil: // by a takeover: nothing is repeated
			until = x.last.Add(settle)
		}
		now, next := time.Now(), until
		if !now.Before(until) {
			return errTimeout
		}
		if x.acked() || x.step.byReport() || x.unsure {
			if !now.Before(requested.Add(showEvery)) || x.ackedAt.After(requested) {
				c.acks.request(idHeartbeat)
				requested = now
			}
			next = sooner(until, requested.Add(showEvery))
		}
		c.pause(next)
	}
}

// refused is a refusal among the acks of a command. It is the answer, unless the
// next report shows what was asked for: then it was an earlier command's, or
// another copy was accepted.
func (t *task) refused(x *command) error {
	c := t.by
	if x.step.byReport() {
		if err := unlessLate(t.newReport(max(showEvery, 2*c.acks.trip))); err != nil {
			return err
		}
		if x.shown(c.machine.last, c.reports) {
			return nil
		}
	}
	return refusal(x.step, *x.refusal, evidence{})
}

// replace makes the plan the manoeuvre, when the vehicle has taken its goal. An equal
// manoeuvre goes on, on its second leg too: those who wait for it wait on.
func (c *commander) replace(t *task) {
	now := time.Now()
	if m := c.manoeuvre; m != nil && !m.finished() && reflect.DeepEqual(m.request, t.request) {
		m.plan, m.at, m.near, m.strange = t.plan, now, time.Time{}, time.Time{}
		return
	} else if m != nil {
		m.finish(errSuperseded)
	}
	if t.request.entersSticks() {
		c.manoeuvre = doneAtOnce()
		return
	}
	c.manoeuvre = &manoeuvre{request: t.request, plan: t.plan, at: now, over: make(chan struct{})}
}

// abandon ends the manoeuvre for a reason that a person can act on, and forgets
// it. A landing on its way is no longer what the vehicle does: the mode is the
// reported one.
func (c *commander) abandon(format string, args ...any) {
	if c.manoeuvre == nil {
		return
	}
	if c.transit() {
		c.machine.abandon()
	}
	c.manoeuvre.finish(refuse(codeInterrupted, format, args...))
	c.manoeuvre = nil
}

// transit reports whether a landing is still on its way to its place.
func (c *commander) transit() bool {
	return c.manoeuvre != nil && c.manoeuvre.plan.second != nil && !c.manoeuvre.finished()
}
