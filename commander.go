package main

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of a plan (docs/design.md, rule 5 and "The newest command wins").
const (
	planEvery  = 100 * time.Millisecond // at most one plan begins in it
	atOnce     = 10 * time.Millisecond  // a plan that goes out in it did not wait
	lookWithin = time.Second            // the report before what nobody asked for at this moment
	landWithin = 100 * time.Millisecond // the same before a landing that a client asked for
)

// commander carries plans out, one at a time: sends their steps, waits until the
// vehicle shows them, takes back; the newest plan wins. Everything in it happens
// under the mutex of the one who has it, which await gives up while it waits.
type commander struct {
	mu      sync.Locker
	acks    *acks
	machine *machine
	owner   owner

	current *task     // is carried out
	running []*task   // it, and disarmings beside it
	next    *task     // waits for its turn
	begun   time.Time // when the last plan began that takes turns
	man     *manoeuvre
	reports int  // that were heard
	bell    bell // rings when something came that one may wait for
	stopped bool // the program ends
}

// owner is whom a commander works for: it knows the sticks, the parameters and
// what the vehicle says.
type owner interface {
	ready(s *step) time.Time    // when the sticks let a step go
	prepare(t *task) error      // before the first step of a plan
	sends(t *task, i int)       // right before step i
	took(t *task, s *step)      // after a step that the vehicle took
	closing(t *task, err error) // after a plan, accepted or not
	onGround() bool             // the vehicle says that it is
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
	errDisarmed   = refuse(codeInterrupted, "the vehicle was disarmed; nothing more was sent")
)

// task is a plan on its way, from its turn to its answer.
type task struct {
	by      *commander
	request request
	make    func() (plan, error) // plans anew, when it is its turn
	plan    plan
	came    time.Time // when a client asked for it; zero: nobody asks for it at this moment
	began   time.Time // when its first step was due
	until   time.Time // of one that goes on while the program ends
	was     order     // what stood before it

	accepted uint16   // the last command
	arming   *command // its ARM, once a copy is out
	wire     *command // its step on the wire, until it is answered
	moving   *command // a step that moves the vehicle, once a copy is out and until it is answered
	taken    string   // the takeover that came while it waited
	endedBy  error    // what ended it: a newer command, a takeover, a disarming

	ended  chan struct{}
	answer answer // once ended
	err    error
}

// do carries a request out and returns when the vehicle shows what it leads to, or
// a step of it was refused: then the error is a *commandError. A landing or a
// disarming joins an equal one that is not answered yet.
func (c *commander) do(r request, make_ func() (plan, error)) (answer, error) {
	for _, t := range append(slices.Clone(c.running), c.next) {
		if t == nil || !t.takesIn(r) {
			continue
		}
		if c.next != nil && c.next != t { // it is newer than that too
			c.next.end(errSuperseded)
		}
		c.mu.Unlock()
		<-t.ended
		c.mu.Lock()
		return t.answer, t.err
	}
	t := &task{by: c, request: r, make: make_, came: time.Now(), ended: make(chan struct{})}
	return t.run()
}

// idle reports whether nothing is under way, and something may be.
func (c *commander) idle() bool { return c.current == nil && c.next == nil && !c.stopped }

// doOwn carries out what no client asks for at this moment, unless one does.
func (c *commander) doOwn(p plan, r request) (answer, error) {
	if !c.idle() {
		return answer{}, errSuperseded
	}
	t := &task{by: c, request: r, ended: make(chan struct{}), make: func() (plan, error) { return p, nil }}
	return t.run()
}

// takesIn reports whether an equal request joins it, and gets its answer.
func (t *task) takesIn(r request) bool {
	lands := r.setMode && r.mode == ModeLand
	disarms := !r.setMode && r.arm != nil && !*r.arm
	return (lands || disarms) && !t.came.IsZero() && t.endedBy == nil && reflect.DeepEqual(t.request, r)
}

// disarms reports whether it only disarms: nothing supersedes that.
func (t *task) disarms() bool { return t.plan.goal == nil && t.plan.arm != nil && !*t.plan.arm }

func (t *task) arms() bool { return t.plan.arm != nil && *t.plan.arm }

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
	for _, t := range append(slices.Clone(c.running), c.next) {
		if t != nil && t.endedBy == nil {
			t.taken = why
		}
		switch {
		case t == nil:
		case t.wire != nil:
			t.end(refuse(codeInterrupted, "%s; %s was sent, and the vehicle did not follow it", why, commandName(t.wire.step)))
		case t.accepted != 0 || t.moving != nil:
			t.end(refuse(codeInterrupted, "%s; nothing more was sent", why))
		default:
			t.end(refuse(codeInterrupted, "%s; nothing was sent", why))
		}
	}
}

// disarmed ends plans that arm or need an armed vehicle.
func (c *commander) disarmed() {
	for _, t := range append(slices.Clone(c.running), c.next) {
		if t != nil && (t.arms() || t.plan.target != nil) {
			t.end(errDisarmed)
		}
	}
}

// stop ends everything that waits, and lets nothing new begin.
func (c *commander) stop() {
	c.stopped = true
	if c.man != nil {
		c.man.finish(errStopping)
	}
	c.bell.ring()
}

// over is why a task may not go on; nil where it may. A task whose step is on the
// wire waits for that step's answer also after a takeover.
func (t *task) over() error {
	switch {
	case t.by.stopped && !time.Now().Before(t.until):
		return errStopping
	case t.endedBy != nil && t.wire != nil && code(t.endedBy) == codeInterrupted:
		return nil
	}
	return t.endedBy
}

// await waits for ok, at most until the deadline: then it returns errTimeout. The
// caller has the mutex, before and after. A nil ok waits for the deadline.
func (t *task) await(until time.Time, ok func() bool) error {
	c := t.by
	for {
		if err := t.over(); err != nil || ok != nil && ok() {
			return err
		}
		left := time.Until(until)
		if left <= 0 {
			return errTimeout
		}
		rings := c.bell.wait()
		c.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-rings:
		case <-timer.C:
		}
		timer.Stop()
		c.mu.Lock()
	}
}

// sleep waits for a time, unless the task ends before.
func (t *task) sleep(until time.Time) error { return unlessLate(t.await(until, nil)) }

// look waits for a report that comes from now on, and asks for one.
func (t *task) look(within time.Duration) error {
	c, until := t.by, time.Now().Add(within)
	for n := c.reports; ; {
		c.acks.request(0)
		next := time.Now().Add(max(showEvery, c.acks.trip))
		if next.After(until) {
			next = until
		}
		err := t.await(next, func() bool { return c.reports != n })
		if !errors.Is(err, errTimeout) || !time.Now().Before(until) {
			return err
		}
	}
}

// run is a task from its turn to its end.
func (t *task) run() (answer, error) {
	c := t.by
	if t.err = t.takeTurn(); t.err == nil {
		var finish func() error
		t.answer, t.err, finish = t.carryOut()
		c.owner.closing(t, t.err)
		c.running = slices.DeleteFunc(c.running, func(o *task) bool { return o == t })
		if c.current == t {
			c.current = nil
		}
		c.bell.ring()
		if t.err != nil {
			c.takeBack(t)
		}
		if finish != nil {
			t.err = finish()
		}
	} else if c.next == t {
		c.next = nil
	}
	close(t.ended)
	c.bell.ring()
	return t.answer, t.err
}

// takeTurn waits until it may begin, and takes the place of the plan before it.
// At most one plan begins in planEvery, and the newest waits; what is urgent
// skips that, and a disarming is waited for.
func (t *task) takeTurn() (err error) {
	c := t.by
	if t.plan, err = t.make(); err != nil {
		return err
	}
	if c.next != nil {
		c.next.end(errSuperseded)
	}
	c.next = t
	if at := c.begun.Add(planEvery); !t.plan.urgent && time.Now().Before(at) {
		if err := t.sleep(at); err != nil {
			return err
		}
	}
	free := func() bool { return t.plan.urgent || c.current == nil || !c.current.disarms() }
	if err := unlessLate(t.await(time.Now().Add(lookWithin), free)); err != nil {
		return err
	}
	if t.plan, err = t.make(); err != nil { // what was true when it came may not be now
		return err
	}
	if older := c.current; older != nil && !older.disarms() {
		older.end(errSuperseded)
	}
	c.next, c.current, c.running = nil, t, append(c.running, t)
	t.began, t.was = time.Now(), c.machine.standing()
	if !t.plan.urgent {
		c.begun = t.began
	}
	return nil
}

// carryOut sends the steps. Where one was refused, finish gathers the reasons.
func (t *task) carryOut() (a answer, err error, finish func() error) {
	c := t.by
	if err := cmp.Or(t.over(), c.owner.prepare(t)); err != nil {
		return answer{}, t.failed(nil, err), nil
	}
	for i := range t.plan.steps {
		s := &t.plan.steps[i]
		if err := t.approach(i); err != nil {
			return answer{}, t.failed(nil, err), nil
		}
		c.owner.sends(t, i)
		result, err := t.transact(s)
		refused := err == nil && result != uint8(common.MAV_RESULT_ACCEPTED)
		if refused && t.endedBy != nil { // because of the takeover
			err, refused = t.endedBy, false
		}
		if refused && s.to != nil {
			c.machine.refused(s.to)
		}
		if s.wish && (refused || isNoAck(err)) {
			slog.Warn("a plan goes on without one of its steps", "what", commandName(s), "answer", inWords(result, err))
			continue
		}
		if refused {
			at := time.Now()
			err := refusal(s, result, evidence{})
			return answer{}, t.failed(s, err), func() error { return c.owner.refusal(t, s, result, at) }
		}
		if err != nil {
			return answer{}, t.failed(s, err), nil
		}
		t.took(s)
		if code(t.endedBy) == codeInterrupted { // the vehicle follows what was sent before
			if t.wishesAfter(i) {
				break
			}
			t.endedBy = refuse(codeInterrupted, "%s; the vehicle follows %s, which was sent before; nothing more was sent", t.taken, commandName(s))
		}
	}
	if t.plan.goal == nil {
		return answer{t.accepted, c.machine.mode, doneAtOnce()}, nil, nil
	}
	return answer{t.accepted, c.machine.mode, c.man}, nil, nil
}

// took makes what a step leads to the mode, and the plan's goal its manoeuvre.
func (t *task) took(s *step) {
	c := t.by
	t.accepted = uint16(s.cmd)
	if s.to != nil {
		c.machine.command(*s.to, time.Now())
		if s.to == t.plan.goal {
			c.replace(t)
		} else if c.man != nil {
			c.man.finish(errSuperseded)
			c.man = nil
		}
	}
	c.owner.took(t, s)
}

// approach waits until step i may be sent: for the sticks, for the gap between
// two mode changes, for the acks of an equal command and, where no client asked for
// it at this very moment, for a report (rule 5).
func (t *task) approach(i int) error {
	c, s := t.by, &t.plan.steps[i]
	waited := t.came.IsZero() || i > 0 || time.Since(t.came) > atOnce
	if lands := s.to != nil && s.to.mode == ModeLand; !lands && time.Now().Before(c.acks.freeAt(s.cmd)) {
		waited = true
		if err := t.waitFree(s); err != nil {
			return err
		}
	}
	for {
		at := c.owner.ready(s)
		if s.to != nil && at.Before(c.acks.modeAt) {
			at = c.acks.modeAt
		}
		if !time.Now().Before(at) {
			break
		}
		waited = true
		gap := c.acks.modeAt
		if err := unlessLate(t.await(at, func() bool { return c.acks.modeAt != gap })); err != nil {
			return err
		}
	}
	if !waited {
		return t.over()
	}
	if err := t.lookBefore(s); err != nil {
		return err
	}
	t.replan(i)
	for _, before := range slices.Backward(t.plan.steps[:i]) {
		if before.to != nil && s.arms() && c.machine.last.custom != before.to.number {
			return refuse(codeInterrupted, "arming was not sent: the vehicle left the mode that was set for it")
		}
		if before.to != nil {
			break
		}
	}
	return t.over()
}

// lookBefore looks what the vehicle does before a step that no client asks for at
// this moment (rule 5). A landing that a client asked for is sent in any case.
func (t *task) lookBefore(s *step) error {
	within := lookWithin
	if t.plan.urgent && !t.came.IsZero() && t.plan.goal != nil && t.plan.goal.mode == ModeLand {
		within = landWithin
	}
	err := t.look(within)
	if errors.Is(err, errTimeout) && within == lookWithin {
		return refuse(codeNoAck, "the autopilot did not answer; %s was not sent", commandName(s))
	}
	return unlessLate(err)
}

// waitFree waits until the acks of an earlier command with this number came or are
// lost: they would answer this one.
func (t *task) waitFree(s *step) error {
	a := t.by.acks
	if s.byReport() {
		return nil
	}
	return unlessLate(t.await(a.freeAt(s.cmd), func() bool { return a.freeAt(s.cmd).IsZero() }))
}

// replan plans a goto anew that waited for its sticks: the place that it may keep is
// where the vehicle is now, not where it was when it was asked.
func (t *task) replan(i int) {
	if t.plan.steps[i].sticks != sticksStill || !t.request.goTo {
		return
	}
	if p, err := t.make(); err == nil && len(p.steps) == len(t.plan.steps)-i {
		copy(t.plan.steps[i:], p.steps)
		t.plan.goal, t.plan.target, t.plan.amsl = p.goal, p.target, p.amsl
	}
}

// failed is what follows a plan that ended before it was accepted.
func (t *task) failed(s *step, err error) error {
	c := t.by
	c.machine.ended(t.plan.steps, isNoAck(err), time.Now())
	if t.moving != nil && c.man != nil { // nobody knows whether it flies there
		c.abandon("a command that was not answered may have moved the drone: it is in %s", c.machine.mode)
	}
	if m := c.man; m != nil && m.plan.goal == t.plan.goal { // the goto that it is: only its heading was refused
		m.plan.facing = math.NaN()
	}
	return err
}

// wishesAfter reports whether only wishes follow step i.
func (t *task) wishesAfter(i int) bool {
	return !slices.ContainsFunc(t.plan.steps[i+1:], func(s step) bool { return !s.wish })
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
	var p plan
	ground := c.owner.onGround()
	if t.arming != nil && ground {
		p.steps = append(p.steps, c.acks.vendor().armDisarm(false))
	}
	may := ground
	if t.plan.backAloft { // else its first step has ended no failsafe
		may = t.accepted != 0
	}
	if back := t.plan.back; back != nil && refused && may && c.machine.last.custom != back.to.number {
		s, to := *back, *back.to
		if !t.plan.backAloft { // the mode of before, by the number that is sent
			to = t.was
			to.number = back.to.number
		}
		s.to = &to
		p.steps = append(p.steps, s)
	}
	for _, s := range p.steps {
		one := plan{steps: []step{s}}
		if _, err := c.doOwn(one, request{}); err != nil {
			slog.Warn("a refused command could not be taken back", "what", commandName(&s), "error", err)
			return
		}
	}
}

// transact sends one command, repeats it until it is answered, and returns the
// autopilot's MAV_RESULT.
func (t *task) transact(s *step) (uint8, error) {
	c := t.by
	x := c.acks.open(s, c.machine.last, c.reports)
	defer func() { c.acks.close(x); t.wire = nil }()
	every := max(firstRepeat, c.acks.trip*3/2)
	began := time.Now()
	for i, factor := range repeats {
		due := time.Duration(float64(every) * factor)
		if due >= giveUp || !x.progress.IsZero() || t.endedBy != nil || !x.ackedAt.IsZero() {
			break
		}
		if err := t.sendCopy(x); err != nil {
			return 0, err
		}
		if x.copies == 0 { // the port is away
			if err := t.sendLate(x); err != nil {
				return 0, err
			}
			began = x.sent
		}
		end := giveUp
		if i+1 < len(repeats) {
			end = min(end, time.Duration(float64(every)*repeats[i+1]))
		}
		if result, err := t.verdict(x, began.Add(end)); !errors.Is(err, errTimeout) {
			return result, err
		}
	}
	if !x.progress.IsZero() && x.ackedAt.IsZero() {
		if result, err := t.verdict(x, x.progress.Add(progressWait)); !errors.Is(err, errTimeout) {
			return result, err
		}
	}
	switch {
	case t.endedBy != nil: // a takeover, and the vehicle does not show what was sent
		return 0, t.endedBy
	case !x.ackedAt.IsZero() && s.ackProves(c.acks.vendor()):
		return uint8(common.MAV_RESULT_ACCEPTED), nil
	case !x.ackedAt.IsZero():
		return 0, refuse(codeNoAck, "%s was acknowledged and did not show; read the status to see whether it happened", commandName(s))
	}
	return 0, refuse(codeNoAck, "%s was sent and never acknowledged; read the status to see whether it happened", commandName(s))
}

// sendCopy sends a copy, unless the task is over: nothing of it may go out behind a
// newer command or a takeover. A repeat of an ARM does not go to an armed vehicle.
func (t *task) sendCopy(x *command) error {
	c, s := t.by, x.step
	if err := t.over(); err != nil {
		return err
	}
	if x.copies > 0 && (t.endedBy != nil || s.arms() && c.machine.last.armed) {
		return nil
	}
	if err := c.acks.send(x); err != nil {
		return nil // the port is away, or full: the next copy may go
	}
	if s.arms() {
		t.arming = x
	}
	t.wire = x
	if s.to != nil {
		c.machine.claim(s.to)
		t.moving = x
	}
	return nil
}

// sendLate sends the first copy of a command for which the port was away, as soon as
// it is back. Nobody asks for it at that moment.
func (t *task) sendLate(x *command) error {
	c := t.by
	down := refuse(codeOffline, "the port to the autopilot was down: %s was not sent", commandName(x.step))
	for until := time.Now().Add(giveUp); c.acks.request(0) != nil; {
		if !time.Now().Before(until) {
			return down
		}
		if err := t.sleep(time.Now().Add(showEvery)); err != nil {
			return err
		}
	}
	if err := t.lookBefore(x.step); err != nil {
		return err
	}
	x.before, x.reports = c.machine.last, c.reports
	if err := t.sendCopy(x); err != nil || x.copies > 0 {
		return err
	}
	return down
}

// verdict waits for what answers a command: a report that shows it, where an ack is
// needed beside its ack, or a refusal. What was acknowledged, or sent before a
// takeover, has showWithin to show; after that transact says what it means.
func (t *task) verdict(x *command, until time.Time) (uint8, error) {
	c := t.by
	var requested time.Time
	for {
		shown := x.copies > 0 && x.shown(c.machine.last, c.reports)
		acked, ended := !x.ackedAt.IsZero(), t.endedBy != nil
		switch {
		case shown && (x.step.byReport() || x.unsure || acked || t.came.IsZero()):
			t.moving = nil
			c.acks.answered(x.step)
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		case x.refusal != nil:
			t.moving = nil
			return t.refused(x)
		case acked:
			t.moving = nil
			until = x.ackedAt.Add(max(showWithin, 2*c.acks.trip))
		case t.endedBy != nil: // by a takeover: nothing is repeated
			until = x.last.Add(max(showWithin, 2*c.acks.trip))
		}
		next := until
		if x.copies > 0 && (acked || x.step.byReport() || x.unsure) {
			if !time.Now().Before(requested.Add(showEvery)) || x.ackedAt.After(requested) {
				c.acks.request(0)
				requested = time.Now()
			}
			next = sooner(until, requested.Add(showEvery))
		}
		n := c.reports
		err := t.await(next, func() bool {
			return c.reports != n || x.refusal != nil || acked != !x.ackedAt.IsZero() || ended != (t.endedBy != nil)
		})
		if unlessLate(err) != nil || err != nil && !time.Now().Before(until) {
			return 0, err
		}
	}
}

// refused is a refusal among the acks of a command. It is the answer, unless the
// next report shows what was asked for: then it was an earlier command's, or
// another copy was accepted.
func (t *task) refused(x *command) (uint8, error) {
	c := t.by
	if x.step.byReport() {
		if err := unlessLate(t.look(max(showEvery, 2*c.acks.trip))); err != nil {
			return 0, err
		}
		if x.copies > 0 && x.shown(c.machine.last, c.reports) {
			return uint8(common.MAV_RESULT_ACCEPTED), nil
		}
	}
	return *x.refusal, nil
}

// replace makes the plan the manoeuvre, when the vehicle has taken its goal. An equal
// manoeuvre goes on, on its second leg too: those who wait for it wait on.
func (c *commander) replace(t *task) {
	now := time.Now()
	if m := c.man; m != nil && !m.finished() && reflect.DeepEqual(m.request, t.request) {
		m.plan, m.at, m.near, m.strange = t.plan, now, time.Time{}, time.Time{}
		return
	} else if m != nil {
		m.finish(errSuperseded)
	}
	if t.plan.goal.mode.flownBySticks() {
		c.man = doneAtOnce()
		return
	}
	c.man = &manoeuvre{request: t.request, plan: t.plan, at: now, over: make(chan struct{})}
}

// abandon ends the manoeuvre for a reason that a person can act on, and forgets
// it. A landing on its way is no longer what the vehicle does: the mode is the
// reported one.
func (c *commander) abandon(format string, args ...any) {
	if c.man == nil {
		return
	}
	if c.transit() {
		c.machine.abandon()
	}
	c.man.finish(refuse(codeInterrupted, format, args...))
	c.man = nil
}

// transit reports whether a landing is still on its way to its place.
func (c *commander) transit() bool {
	return c.man != nil && c.man.plan.second != nil && !c.man.finished()
}
