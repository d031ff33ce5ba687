package main

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

const (
	receiverTold = 850 * time.Millisecond // the receiver's state, once it counts
	farewellFor  = time.Second            // of the last command
)

// ready is when the sticks let a step go.
func (d *drone) ready(s *step) time.Time {
	return d.sticks.ready(s.sticks, d.facts(time.Now()), s.arms())
}

// prepare is what a plan needs before its first step: what the autopilot's
// parameters say, and the sticks where the plan wants them.
func (d *drone) prepare(t *task) error {
	sticks, arms := &d.sticks, t.request.arms()
	present, _ := d.firmware().reported(d.machine.number())
	runs := arms && !t.request.setMode && present.flownBySticks()
	// ArduPilot without a receiver arms only while sticks are streamed.
	alone := arms && d.firmware().ardupilot() && !d.tel.beat.armed
	if t.request.entersSticks() || runs || alone {
		told := func() bool { return sticks.src.told || sticks.phase != stickOff }
		if err := unlessLate(t.await(d.toldBy(), told)); err != nil {
			return err
		}
		if err := d.params.sure(t, sourceNames[d.firmware()]); err != nil {
			return err
		}
	}
	f := d.facts(time.Now())
	switch {
	case t.request.entersSticks():
		if why := sticks.src.nobodys(f.firmware, f.now); why != "" {
			return refuse(codeUnsupported, "mode: nobody would have the sticks: %s", why)
		}
		sticks.enter(f)
		if first := t.plan.steps[0]; first.optional { // centring them may take PX4 there
			d.machine.claim(first.to)
		}
	case runs:
		sticks.run(f)
	case t.request.setMode:
		sticks.leave(f)
	}
	if alone && sticks.src.receiver == receiverNone && sticks.src.denied(f.firmware, f.now) == "" {
		sticks.run(f)
	}
	if arms { // a stream must not end while it arms
		sticks.client = f.now
	}
	d.act()
	d.clock.poke()
	if f.firmware == px4 && arms {
		delete(d.params.told, "NAV_DLL_ACT")
		return d.params.sure(t, "NAV_DLL_ACT")
	}
	return nil
}

// sends is what goes right before a step: before the first one a heartbeat as a
// ground station. PX4 sends its texts only to a link that it heard one on in the
// last 2.5 s. Where NAV_DLL_ACT is set, that knock would arm a failsafe.
func (d *drone) sends(t *task, i int) {
	act, known := d.params.told["NAV_DLL_ACT"]
	if i == 0 && d.firmware() == px4 && !d.link.gcs && known && act == 0 {
		d.link.sendAs(0, knockID, heartbeat(minimal.MAV_TYPE_GCS))
	}
	if t.plan.steps[i].cmd == common.MAV_CMD_DO_CHANGE_SPEED {
		d.spedUp = true // acknowledged or not
	}
}

// took notes what changes, beside the mode, with a step that the vehicle took.
func (d *drone) took(t *task, s *step) {
	if s.cmd == common.MAV_CMD_DO_CHANGE_SPEED {
		d.spedUp = s.p[1] != float32(d.params.cruise()) // the default
	}
	d.changes.Add(1)
}

// onGround reports whether the vehicle says that it is on the ground.
func (d *drone) onGround() bool { return d.tel.stands(time.Now()) == onGround }

// closing is what follows a plan, accepted or not.
func (d *drone) closing(t *task) {
	if t.err == nil && t.request.entersSticks() {
		d.sticks.entered(d.facts(time.Now()))
	}
	d.act()
	d.targetAsked = time.Time{}
	if isNoAck(t.err) {
		d.cmd.acks.request(idTarget) // where does it fly to
	}
	d.changes.Add(1)
	d.clock.poke()
}

// watch looks at the manoeuvre on the clock, and commands a landing whose place is
// reached. It tells when it wants to look again.
func (d *drone) watch(now time.Time) time.Time {
	m := d.cmd.manoeuvre
	if m == nil || m.finished() || !d.online {
		return time.Time{}
	}
	land, taken := m.watch(d.sighting(now))
	switch {
	case taken != "":
		if d.cmd.transit() {
			d.tell("the landing at the place was given up: " + taken)
		}
		d.cmd.abandon("%s: it is in %s", taken, d.modeName())
	case land && d.cmd.idle():
		m.tried = now
		d.wg.Go(func() { d.landThere(m) })
	}
	if m.finished() {
		d.changes.Add(1)
	}
	return now.Add(watchEvery)
}

// landThere is the second leg of a landing at a place: the landing itself.
func (d *drone) landThere(m *manoeuvre) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd.manoeuvre != m || m.finished() {
		return
	}
	if err := d.cmd.doOwn(plan{steps: []step{*m.plan.second}}, m.request); err != nil {
		slog.Warn("the landing at the place was not acknowledged; trying again", "error", err)
	}
}

// holdForSilent leaves a hold for a client that fell silent; where that is
// refused, a landing. Neither is owed any more once a pilot, a client or a
// disarming came first.
func (d *drone) holdForSilent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := request{setMode: true, mode: ModeHold}
	for d.sticks.owes(d.facts(time.Now())) {
		p, err := r.plan(d.vehicle(time.Now()))
		if err == nil {
			err = d.cmd.doOwn(p, r)
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

// leaveHovering sets a mode that hovers or lands without sticks, when the program
// ends after sticks in the air (docs/design.md, "SIGTERM in the air"), unless a pilot
// has the vehicle. Nobody asked for that at this moment, so a report is waited for
// before (rule 5).
func (d *drone) leaveHovering(f stickFacts) {
	within := max(farewellFor/2, 3*f.trip)
	t := &task{by: d.cmd, until: f.now.Add(within + farewellFor/2)}
	d.cmd.tasks = append(d.cmd.tasks, t) // a takeover ends it
	if err := t.newReport(within); err != nil {
		slog.Warn("stopping in the air after sticks: nothing was commanded", "why", err)
		return
	}
	r := request{setMode: true, mode: ModeHold}
	if f.firmware == quadPlane && d.params.told["Q_GUIDED_MODE"] != 1 {
		r.mode = ModeLand
	}
	ask := func(s *step) (refused bool) {
		err, answer := t.transact(s), "accepted"
		if err != nil {
			answer = err.Error()
		}
		slog.Warn("stopping in the air after sticks", "asked_for", commandName(s), "answer", answer)
		return refusedWith(err) != nil
	}
	p, err := r.plan(d.vehicle(time.Now()))
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

// refusal is the error of a refused step, with what the autopilot says of it. After
// a refused arming PX4 is asked for a report of its checks: a refusal alone brings
// no texts.
func (d *drone) refusal(t *task, s *step, result uint8, at time.Time) error {
	since, texts := t.began, &d.tel.texts
	if s.arms() && !d.tel.beat.armed {
		since = d.checks(t)
	}
	t.sleep(at.Add(textsAfter))
	texts.flush(time.Now(), 0)
	// Of the texts before this plan only those of the checks still hold.
	told := slices.DeleteFunc(texts.since(since), func(s statusText) bool { return s.at.Before(t.began) && !s.ofPrearm() })
	return refusal(s, result, d.evidence(s, result, told))
}

// evidence is what is known beside the texts: the parameters that stand in the
// way, and the unhealthy systems.
func (d *drone) evidence(s *step, result uint8, texts []statusText) evidence {
	tel, firmware := &d.tel, d.firmware()
	why := evidence{texts: texts}
	if s.arms() || s.to != nil {
		why.unhealthy = tel.health.unhealthy()
	}
	if firmware.ardupilot() {
		denied := result == uint8(common.MAV_RESULT_FAILED) || result == uint8(common.MAV_RESULT_DENIED)
		switch {
		case s.cmd == common.MAV_CMD_DO_REPOSITION && denied:
			why.guess = "it gives no reason; a fence may be why"
		case s.disarms() && !d.onGround():
			why.guess = "the vehicle is not on the ground"
		}
		return why
	}
	mode, _ := firmware.reported(tel.beat.custom)
	if s.to != nil {
		mode = s.to.mode
	}
	if nobodys := d.sticks.src.nobodys(px4, time.Now()); nobodys != "" && (s.arms() || s.to != nil) && mode.flownBySticks() {
		why.parameters = append(why.parameters, nobodys)
	}
	if act := d.params.told["NAV_DLL_ACT"]; act > 0 && s.arms() && !d.link.gcs {
		why.parameters = append(why.parameters, fmt.Sprintf("NAV_DLL_ACT is %g: PX4 arms only while it hears a ground station; connect one, start mavrest with -gcs, or set it to 0", act))
	}
	return why
}

// checks has PX4 report why it can't be armed, and waits for it. It returns since
// when texts count: from the command's start on, or from the last report's, which
// can't be repeated yet. ArduPilot tells its reasons with the refusal.
func (d *drone) checks(t *task) (since time.Time) {
	now, firmware, texts := time.Now(), d.firmware(), &d.tel.texts
	if firmware != px4 {
		return t.began
	}
	if now.Sub(d.checked) < prearmEvery {
		return d.checked
	}
	d.checked = t.began
	run := firmware.command(common.MAV_CMD_RUN_PREARM_CHECKS)
	if err := t.transact(&run); err != nil && refusedWith(err) == nil {
		slog.Debug("no report of the pre-arm checks", "error", err)
		return t.began
	}
	d.cmd.acks.request(idSysStatus)
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
	return withTexts(err, d.tel.texts.since(began), d.tel.beat.failsafe, d.tel.health.unhealthy())
}
