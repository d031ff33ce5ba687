package main

import (
	"fmt"
	"log/slog"
	"slices"
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
	hs     *handshake
	wg     *sync.WaitGroup // of its own plans

	spedUp bool // a goto from here had a speed of its own, and it stands
}

// vehicle is what the plans need of it.
func (c *conduct) vehicle(now time.Time) vehicle {
	v := c.craft.vehicle(now)
	f := c.sticks.facts(now)
	v.streams, v.away = c.sticks.steals(f), c.sticks.away(f)
	v.set = c.params.settings()
	v.set.spedUp = c.spedUp
	v.toHold = c.craft.machine.open(now, func(number uint32) bool { return number == entered[v.firmware][ModeHold] })
	return v
}

// ready is when the sticks let a step go.
func (c *conduct) ready(s *step) time.Time {
	return c.sticks.ready(s.sticks, c.sticks.facts(time.Now()), s.arms())
}

// prepare is what a plan needs before its first step: what the autopilot's
// parameters say, and the sticks where the plan wants them.
func (c *conduct) prepare(t *task) error {
	p, h := &t.plan, c.sticks
	// ArduPilot without a receiver arms only while sticks are streamed.
	arms := c.craft.firmware.ardupilot() && t.arms() && !c.craft.tel.beat.armed
	if p.sticks == sticksEnter || p.sticks == sticksRun || arms {
		told := func() bool { return h.src.told || h.phase != stickOff }
		if err := unlessLate(t.await(h.toldBy(), told)); err != nil {
			return err
		}
		if err := c.params.sure(t, sourceNames[c.craft.firmware]); err != nil {
			return err
		}
	}
	f := h.facts(time.Now())
	switch p.sticks {
	case sticksEnter:
		if why := h.src.nobodys(f.firmware, f.now); why != "" {
			return refuse(codeUnsupported, "mode: nobody would have the sticks: %s", why)
		}
		h.enter(f)
		if to := p.steps[0].to; p.steps[0].wish { // centring them may take PX4 there
			c.craft.machine.claim(to)
		}
	case sticksRun:
		h.run(f)
	case sticksLeave:
		h.leave(f)
	}
	if arms && h.src.receiver == receiverNone && h.src.denied(f.firmware, f.now) == "" {
		h.run(f)
		for i := range p.steps {
			if p.steps[i].arms() {
				p.steps[i].sticks = sticksLed
			}
		}
	}
	if p.arm != nil && *p.arm { // a stream must not end while it arms
		h.client = f.now
	}
	h.act()
	c.clock.poke()
	if f.firmware == px4 && p.arm != nil && *p.arm {
		delete(c.params.told, "NAV_DLL_ACT")
		return c.params.sure(t, "NAV_DLL_ACT")
	}
	return nil
}

// sends is what goes right before a step: before the first one a heartbeat as a
// ground station. PX4 sends its texts only to a link that it heard one on in the
// last 2.5 s. Where NAV_DLL_ACT is set, that knock would arm a failsafe.
func (c *conduct) sends(t *task, i int) {
	act, known := c.params.told["NAV_DLL_ACT"]
	if i == 0 && c.craft.firmware == px4 && !c.link.gcs && known && act == 0 {
		c.link.sendAs(0, knockID, heartbeat(minimal.MAV_TYPE_GCS))
	}
	if t.plan.steps[i].cmd == common.MAV_CMD_DO_CHANGE_SPEED {
		c.spedUp = true // acknowledged or not
	}
}

// took notes what changes, beside the mode, with a step that the vehicle took.
func (c *conduct) took(t *task, s *step) {
	if s.cmd == common.MAV_CMD_DO_CHANGE_SPEED {
		c.spedUp = s.p[1] != float32(c.params.settings().cruise) // the default
	}
	if m := c.cmd.man; m != nil && s.to != nil && s.to == t.plan.goal {
		m.failsafe = c.craft.tel.beat.failsafe // one that is active now began before it
	}
	c.craft.changed()
}

// onGround reports whether the vehicle says that it is on the ground.
func (c *conduct) onGround() bool { return c.craft.tel.stands(time.Now()) == onGround }

// closing is what follows a plan, accepted or not.
func (c *conduct) closing(t *task, err error) {
	if err == nil && t.plan.sticks == sticksEnter {
		c.sticks.entered(c.sticks.facts(time.Now()))
	}
	c.sticks.act()
	c.hs.target = time.Time{}
	if isNoAck(err) {
		c.acks.request(idTarget) // where does it fly to
	}
	c.craft.changed()
	c.clock.poke()
}

// watch looks at the manoeuvre on the clock, and commands a landing whose place is
// reached. It tells when it wants to look again.
func (c *conduct) watch(now time.Time) time.Time {
	m := c.cmd.man
	if m == nil || m.finished() || !c.craft.online {
		return time.Time{}
	}
	land, taken := m.watch(c.craft.sighting(now, c.params))
	switch {
	case taken != "":
		if c.cmd.transit() {
			c.craft.tell("the landing at the place was given up: " + taken)
		}
		c.cmd.abandon("%s: it is in %s", taken, c.craft.modeName())
	case land && c.cmd.idle():
		m.tried = now
		c.wg.Go(func() { c.landThere(m) })
	}
	if m.finished() {
		c.craft.changed()
	}
	return now.Add(watchEvery)
}

// landThere is the second leg of a landing at a place: the landing itself.
func (c *conduct) landThere(m *manoeuvre) {
	c.cmd.mu.Lock()
	defer c.cmd.mu.Unlock()
	if c.cmd.man != m || m.finished() {
		return
	}
	if c.craft.failsafe && !m.failsafe { // watch ends it
		return
	}
	land := *m.plan.second
	p := plan{steps: []step{land}, goal: land.to, sticks: sticksLeave, urgent: true}
	if _, err := c.cmd.doOwn(p, m.request); err != nil {
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
	for c.sticks.owes(c.sticks.facts(time.Now())) {
		p, err := r.plan(c.vehicle(time.Now()))
		if err == nil {
			_, err = c.cmd.doOwn(p, r)
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

// farewell sets a mode that hovers or lands without sticks, when the program ends
// after sticks in the air (docs/design.md, "SIGTERM in the air"), unless a pilot has
// the vehicle. Nobody asked for that at this moment, so a report is waited for
// before (rule 5).
func (c *conduct) farewell(f stickFacts) {
	look := max(farewellFor/2, 3*f.trip)
	t := &task{by: c.cmd, until: f.now.Add(look + farewellFor/2)}
	c.cmd.running = append(c.cmd.running, t) // a takeover ends it
	if err := t.look(look); err != nil {
		slog.Warn("stopping in the air after sticks: nothing was commanded", "why", err)
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

// Times of a refusal's reasons (docs/design.md, "Reasons of a refusal").
const (
	textsAfter  = 300 * time.Millisecond // STATUSTEXTs that still belong to a refusal
	prearmEvery = 5 * time.Second        // between two reports of the pre-arm checks
	prearmQuiet = 200 * time.Millisecond // without a text: the report is over
	prearmMost  = 700 * time.Millisecond
)

// reasons are the autopilot's own for what it refuses.
type reasons struct {
	craft    *aircraft
	acks     *acks
	params   *parameters
	station  bool      // mavrest is the vehicle's ground station: -gcs
	reported time.Time // when the plan began that last had PX4 report its checks
}

// refusal is the error of a refused step, with what the autopilot says of it. After
// a refused arming PX4 is asked for a report of its checks: a refusal alone brings
// no texts.
func (r *reasons) refusal(t *task, s *step, result uint8, at time.Time) error {
	since, texts := t.began, &r.craft.tel.texts
	if s.arms() && !r.craft.tel.beat.armed {
		since = r.checks(t)
	}
	t.sleep(at.Add(textsAfter))
	texts.flush(time.Now(), 0)
	// Of the texts before this plan only those of the checks still hold.
	told := slices.DeleteFunc(texts.since(since), func(s statusText) bool { return s.at.Before(t.began) && !s.ofPrearm() })
	return refusal(s, result, r.evidence(s, result, told))
}

// evidence is what is known beside the texts: the parameters that stand in the
// way, and the unhealthy systems.
func (r *reasons) evidence(s *step, result uint8, texts []statusText) evidence {
	tel, firmware := &r.craft.tel, r.craft.firmware
	why := evidence{texts: texts}
	if s.arms() || s.to != nil {
		why.unhealthy = tel.health.unhealthy()
	}
	if firmware.ardupilot() {
		denied := result == uint8(common.MAV_RESULT_FAILED) || result == uint8(common.MAV_RESULT_DENIED)
		why.fence = s.cmd == common.MAV_CMD_DO_REPOSITION && denied
		return why
	}
	mode, _ := firmware.reported(tel.beat.custom)
	if s.to != nil {
		mode = s.to.mode
	}
	if in, told := r.params.told["COM_RC_IN_MODE"]; told && (in == 0 || in == 4) && (s.arms() || s.to != nil) && mode.flownBySticks() {
		why.parameters = append(why.parameters, fmt.Sprintf("COM_RC_IN_MODE is %g: PX4 ignores the sticks of mavrest; set it to 5 to fly by transmitter and API", in))
	}
	if act := r.params.told["NAV_DLL_ACT"]; act > 0 && s.arms() && !r.station {
		why.parameters = append(why.parameters, fmt.Sprintf("NAV_DLL_ACT is %g: PX4 arms only while it hears a ground station; connect one, start mavrest with -gcs, or set it to 0", act))
	}
	return why
}

// checks has PX4 report why it can't be armed, and waits for it. It returns since
// when texts count: from the command's start on, or from the last report's, which
// can't be repeated yet. ArduPilot tells its reasons with the refusal.
func (r *reasons) checks(t *task) (since time.Time) {
	now, firmware, texts := time.Now(), r.craft.firmware, &r.craft.tel.texts
	if firmware != px4 {
		return t.began
	}
	if now.Sub(r.reported) < prearmEvery {
		return r.reported
	}
	r.reported = t.began
	run := firmware.command(common.MAV_CMD_RUN_PREARM_CHECKS)
	if _, err := t.transact(&run); err != nil {
		slog.Debug("no report of the pre-arm checks", "error", err)
		return t.began
	}
	r.acks.request(idSysStatus)
	for end := time.Now().Add(prearmMost); time.Now().Before(end); {
		count := texts.count
		quiet := sooner(end, time.Now().Add(prearmQuiet))
		if t.await(quiet, func() bool { return texts.count != count }) != nil {
			break
		}
	}
	return t.began
}

// explained is err; that of an interrupted command also names what the autopilot has
// said since the command began.
func (d *drone) explained(err error, began time.Time) error {
	if code(err) != codeInterrupted {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return withTexts(err, d.tel.texts.since(began), d.tel.beat.failsafe, d.tel.health.unhealthy())
}
