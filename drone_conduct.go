package main

import (
	"log/slog"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

const (
	receiverTold = 850 * time.Millisecond // the receiver's state, once it counts
	farewellFor  = time.Second            // of the last command
)

// conduct is what goes before, between and after the steps of a plan on this
// vehicle, and the plans that nobody asks for at this moment.
type conduct struct {
	reasons
	sticks *hands
	params *parameters
	cmd    *commander
	link   *link
	clock  *clock
	asked  *asked
	wg     *sync.WaitGroup // of its own plans

	spedUp bool // a goto from here had a speed of its own, and it stands
}

// vehicle is what the plans need of it.
func (c *conduct) vehicle(now time.Time) vehicle {
	v := c.craft.vehicle(now)
	v.streams = c.sticks.phase == stickClient || c.sticks.phase == stickCentred
	v.away = c.sticks.away(c.sticks.facts(now))
	v.set = c.params.settings()
	v.set.spedUp = c.spedUp
	v.goes = c.craft.machine.maybe(entered[v.firmware][ModeHold])
	if m := c.cmd.man; m != nil && (m.request.goTo || c.cmd.transit()) {
		v.target, v.set.pace = m.plan.target, or(m.request.speed, v.set.cruise)
	}
	return v
}

// ready is when the sticks let a step go.
func (c *conduct) ready(s *step) time.Time {
	return c.sticks.ready(s.sticks, c.sticks.facts(time.Now()), c.sticks.src.receiver, s.arms())
}

// prepare is what a plan needs before its first step: what the autopilot's
// parameters say, and the sticks where the plan wants them.
func (c *conduct) prepare(op *operation) error {
	p, h := &op.plan, c.sticks
	if p.sticks == sticksEnter || p.sticks == sticksRun {
		told := func() bool { return h.src.told || h.phase != stickOff }
		if err := unlessLate(op.await(h.toldBy(), told)); err != nil {
			return err
		}
		if err := c.params.sure(&op.talk, sourceNames[c.craft.firmware]); err != nil {
			return err
		}
	}
	f := h.facts(time.Now())
	switch p.sticks {
	case sticksEnter:
		denied := h.src.denied(f.firmware, f.now)
		if denied != "" && f.firmware.ardupilot() && h.src.receiver != receiverInHand {
			return refuse(codeUnsupported, "mode: nobody would have the sticks: %s, and no hand is on a receiver", denied)
		}
		h.enter(f)
		if p.steps[0].through { // to centre them may take it there
			c.craft.machine.expect(p.steps[0].number)
		}
	case sticksRun:
		h.run(f)
	case sticksLeave:
		h.leave(f)
	}
	if p.arm != nil && *p.arm { // a stream must not end while it arms
		h.client = f.now
	}
	h.act()
	c.clock.poke()
	if f.firmware == px4 && p.arm != nil && *p.arm {
		delete(c.params.told, "NAV_DLL_ACT")
		return c.params.sure(&op.talk, "NAV_DLL_ACT")
	}
	return nil
}

// sends is what goes right before a step: before the first one a heartbeat as a
// ground station. PX4 sends its texts only to a link that it heard one on in the
// last 2.5 s. Where NAV_DLL_ACT is set, that knock would arm a failsafe.
func (c *conduct) sends(op *operation, i int) {
	act, known := c.params.told["NAV_DLL_ACT"]
	if i == 0 && c.craft.firmware == px4 && !c.link.gcs && known && act == 0 {
		c.link.sendAs(0, knockID, heartbeat(minimal.MAV_TYPE_GCS))
	}
	if op.plan.steps[i].cmd == common.MAV_CMD_DO_CHANGE_SPEED {
		c.spedUp = true // acknowledged or not
	}
}

// follow takes what an accepted step means beside the mode.
func (c *conduct) follow(op *operation, s *step) {
	if s.through {
		c.sticks.led(c.sticks.facts(time.Now()))
	}
	if s.cmd == common.MAV_CMD_DO_CHANGE_SPEED {
		c.spedUp = s.p[1] != float32(c.params.settings().cruise) // the default
	}
}

// closing is what follows a plan, accepted or not.
func (c *conduct) closing(op *operation, err error) {
	now := time.Now()
	f := c.sticks.facts(now)
	switch {
	case err == nil && op.plan.sticks == sticksEnter:
		c.sticks.entered(f)
	case err == nil && op.plan.sticks == sticksLeave:
		c.sticks.left(f)
	case err == nil && !op.plan.setsMode: // it may have taken the place of a plan that led elsewhere
		c.sticks.stayed(f)
	case err != nil && c.cmd.op == op:
		c.failed(op, err, now)
	case c.cmd.op == nil:
		c.craft.machine.refuse(now)
	}
	if m := c.cmd.man; err == nil && m != nil && op.plan.setsMode {
		m.failsafe = c.craft.tel.beat.failsafe // one that stands was there before it
	}
	c.sticks.act()
	c.asked.target = time.Time{}
	c.craft.changed()
	c.clock.poke()
}

// failed is what follows a plan that was not accepted, and whose place no newer
// one has taken.
func (c *conduct) failed(op *operation, err error, now time.Time) {
	m := &c.craft.machine
	was := m.mode
	if op.gone != nil || isNoAck(err) || op.heir {
		m.doubt(now)
	} else {
		m.refuse(now)
	}
	moved := op.moved && !(op.undone && op.plan.resumes)
	if (moved || op.asked || op.heir) && op.leg == nil && c.cmd.man != nil {
		landing := c.cmd.transit()
		c.cmd.abandon("a command that was not accepted may have moved the drone")
		if landing {
			m.abandon()
			c.craft.logMode("a command that was not accepted ended the way to the landing")
		}
	}
	shows := code(op.gone) != codeInterrupted && m.mode != was
	if f := c.sticks.facts(now); shows && f.mode.flownBySticks() && c.sticks.phase != stickOff {
		c.sticks.entered(f) // what an older plan or this one led to, unanswered
	} else {
		c.sticks.stayed(f)
	}
	if isNoAck(err) {
		c.acks.ask(87, now) // where does it fly to (rule 8c)
	}
}

// watch looks at the manoeuvre on the clock, and starts the second leg of a
// landing that is there. It tells when it wants to look again.
func (c *conduct) watch(now time.Time) time.Time {
	m := c.cmd.man
	if m == nil || m.finished() || !c.craft.online {
		return time.Time{}
	}
	land, taken := m.watch(c.craft.sighting(now))
	switch {
	case taken != "":
		transit := c.cmd.transit()
		c.cmd.abandon("%s: it is in %s", taken, c.craft.modeName())
		if transit {
			c.craft.machine.abandon()
			c.craft.logMode(taken)
			c.craft.tell("the landing at the place was given up: " + taken)
		}
	case land && c.cmd.idle():
		m.tried = now
		c.wg.Go(func() { c.landThere(m) })
	}
	if m.finished() {
		c.craft.changed()
	}
	return now.Add(watchEvery)
}

// landThere is the second leg of a landing at a place, over it.
func (c *conduct) landThere(m *manoeuvre) {
	c.cmd.mu.Lock()
	defer c.cmd.mu.Unlock()
	if c.cmd.man != m || m.finished() || c.craft.machine.order == nil {
		return
	}
	if c.craft.failsafe && !m.failsafe { // watch ends it
		return
	}
	land := *m.plan.second
	p := plan{
		steps: []step{land}, setsMode: true, sticks: sticksLeave, urgent: true,
		order: order{mode: ModeLand, numbers: []uint32{land.number}},
	}
	if _, err := c.cmd.doOwn(p, m.request, m); err != nil {
		slog.Warn("the landing at the place was not acknowledged; trying again", "error", err)
	}
}

// holdForSilent leaves a hold for a client that fell silent; where that is
// refused, a landing. Neither is owed any more once a pilot, a client or a
// disarming came first.
func (c *conduct) holdForSilent() {
	c.cmd.mu.Lock()
	defer c.cmd.mu.Unlock()
	r := request{setMode: true, mode: ModeHold}
	for !c.sticks.wish.IsZero() {
		p, err := r.plan(c.vehicle(time.Now()))
		if err == nil {
			_, err = c.cmd.doOwn(p, r, nil)
		}
		switch {
		case err == nil:
			slog.Info("mavrest holds for a silent client", "mode", r.mode)
			return
		case r.mode == ModeHold && (code(err) == codeRefused || code(err) == codeUnsupported):
			slog.Warn("a hold for a silent client was refused: landing", "error", err)
			r = request{setMode: true, mode: ModeLand}
		default:
			slog.Warn("no hold for a silent client", "error", err)
			return
		}
	}
}

// farewell leaves a vehicle in the air where it hovers or lands without sticks,
// when the program ends after them (docs/design.md, "SIGTERM in the air"), unless
// a pilot has it: nobody asked for that at this moment, so a heartbeat is looked
// at before (rule 8a).
func (c *conduct) farewell(f stickFacts) {
	look := max(farewellFor/2, 3*f.trip)
	t := &talk{by: c.cmd, last: f.now.Add(look + farewellFor/2)}
	c.cmd.goodbye = t
	if err := t.ask(f.now.Add(look)); err != nil {
		slog.Warn("stopping in the air after sticks: nothing was asked for", "why", err)
		return
	}
	r := request{setMode: true, mode: ModeHold}
	if f.firmware == quadPlane && c.params.settings().guidedHovers != 1 {
		r.mode = ModeLand
	}
	ask := func(s *step) (refused bool) {
		result, err := t.transact(s)
		slog.Warn("stopping in the air after sticks", "asked_for", commandName(s), "answer", inWords(result, err))
		return err == nil && result != 0
	}
	p, err := r.plan(c.vehicle(time.Now()))
	if err == nil && ask(&p.steps[len(p.steps)-1]) && r.mode == ModeHold { // it has no position
		if land, err := f.firmware.land(); err == nil {
			ask(&land)
		}
	}
}
