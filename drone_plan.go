package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

const (
	receiverTold = 850 * time.Millisecond // the receiver's state, once it counts
	farewellFor  = time.Second            // of the last command
)

// ready is when the sticks let a step go.
func (d *drone) ready(s *step) time.Time {
	return d.sticks.ready(s.streamed, d.facts(time.Now()), s.arms())
}

// readies is what comes before a plan is made: on PX4 the sticks come to rest, and home is
// asked for. It unlocks mu while it waits.
func (d *drone) readies(t *task) error {
	if d.firmware() != px4 || !t.request.setMode {
		return nil
	}
	if err := d.restSticks(t); err != nil {
		return err
	}
	if t.request.mode != ModeTakeoff && t.request.altitude == nil {
		return nil
	}
	return d.askHome(t)
}

// restSticks centres our sticks before PX4 leaves a stick mode, or enters one with sticks
// that were left off centre, and waits until they have been still for stickStill: PX4 takes
// sticks that move for a pilot's. In the air it waits in POSCTL, or without a position in
// ALTCTL, where the drone stops (docs/design.md, "Leaving on PX4").
func (d *drone) restSticks(t *task) error {
	f := d.facts(time.Now())
	if !d.sticks.mustRest(f, t.request.entersSticks()) {
		return nil
	}
	d.sticks.leave(f)
	d.act()
	if through := d.stickModeAtRest(); f.flight == aloft && f.custom != through.to.number {
		t.plan.steps = []step{through}
		switch err := t.send(0); {
		case err == nil:
			t.accepted = uint16(through.cmd)
			d.machine.command(*through.to)
		case !t.fails(err):
			return err
		}
		d.sticks.leave(d.facts(time.Now()))
		d.act()
	}
	return t.sleep(d.sticks.moved.Add(stickStill))
}

// stickModeAtRest enters the stick mode of PX4 in which a drone with centred sticks stops;
// without a position it drifts.
func (d *drone) stickModeAtRest() step {
	if d.tel.position.within(freshFor, time.Now()) {
		return px4.enter(ModePosition)
	}
	return px4.enter(ModeAltitude)
}

// homeWait is how long HOME_POSITION is waited for.
const homeWait = 1500 * time.Millisecond

// askHome requests HOME_POSITION for a plan that needs home's height, and waits for it:
// another program may have moved home, or switched its stream off, and PX4 is told metres
// above the sea. Without an answer home is unknown.
func (d *drone) askHome(t *task) error {
	asked := time.Now()
	came := func() bool { return d.tel.home.at.After(asked) }
	for until := asked.Add(homeWait); !came(); {
		now := time.Now()
		if !now.Before(until) {
			d.tel.home = untold
			break
		}
		d.cmd.acks.request(idHome)
		next := now.Add(againAfter(d.cmd.acks.trip))
		if err := unlessLate(t.await(sooner(next, until), came)); err != nil {
			return err
		}
	}
	return nil
}

// prepare is what a plan needs before its first step: what the autopilot's
// parameters say, and the sticks where the plan wants them.
func (d *drone) prepare(t *task) error {
	sticks, arms := &d.sticks, t.request.arms()
	present, _ := d.firmware().reported(d.machine.last.custom)
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
	return nil
}

// took notes what changes, beside the mode, with a step that the vehicle took.
func (d *drone) took(t *task, s *step) { d.changes.Add(1) }

// onGround reports whether the vehicle says that it is on the ground.
func (d *drone) onGround() bool { return d.tel.stands(time.Now()) == onGround }

// closing is what follows a plan, accepted or not.
func (d *drone) closing(t *task, err error) {
	if err == nil && t.request.entersSticks() {
		d.sticks.entered(d.facts(time.Now()))
	}
	d.act()
	d.targetAsked = time.Time{}
	if isNoAck(err) {
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
		d.cmd.abandon(m.taken(now), "%s; the vehicle is in %s", taken, d.modeName())
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
	if err := d.cmd.doOwn(plan{steps: []step{*m.plan.second}}, m.request, m, time.Time{}); err != nil {
		slog.Warn("the landing at the place was not acknowledged; trying again", "error", err)
	}
}

// holdForSilent leaves a hold for a client that fell silent, unless a pilot, a client or a
// disarming came first.
func (d *drone) holdForSilent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.sticks.owes(d.facts(time.Now())) {
		return
	}
	d.hover(time.Time{})
}

// hover commands a hold for a client that is gone and, where that is refused, a landing.
// It may go on until then, though the program ends. It unlocks mu while it waits.
func (d *drone) hover(until time.Time) error {
	err := d.leave(ModeHold, until)
	if code(err) == codeRefused || code(err) == codeUnsupported {
		err = d.leave(ModeLand, until)
	}
	return err
}

// leave commands a mode for a client that is gone.
func (d *drone) leave(mode Mode, until time.Time) error {
	r := request{setMode: true, mode: mode}
	p, err := r.plan(d.vehicle(time.Now()))
	if err == nil {
		err = d.cmd.doOwn(p, r, nil, until)
	}
	if err == nil {
		slog.Info("mavrest leaves the drone without its client", "mode", mode)
	} else {
		slog.Warn("a drone without its client did not take a mode", "mode", mode, "error", err)
	}
	return err
}

// Times of the texts that belong to an answer (docs/design.md, "Reasons").
const (
	textsAfter  = 700 * time.Millisecond // the last answer of a refusal
	checksEvery = 5 * time.Second        // between two reports of PX4's checks; so long its texts count
	takenBefore = time.Second            // a takeover
	takenAfter  = 500 * time.Millisecond
)

// refusal is the error of a refused step, with what the autopilot says of it: the texts
// of warning or worse since its first copy, and those of the checks. After a refused arming
// PX4 is asked for them: a refusal alone brings none.
func (d *drone) refusal(t *task, s *step, refused *commandError) error {
	if s.arms() && !d.tel.beat.armed && d.firmware() == px4 && time.Since(d.checked) >= checksEvery {
		d.checked = time.Now()
		run := px4.command(common.MAV_CMD_RUN_PREARM_CHECKS)
		if err := t.transact(&run); err != nil {
			slog.Debug("no report of the checks before arming", "error", err)
		}
		d.cmd.acks.request(idSysStatus)
	}
	t.sleep(time.Now().Add(textsAfter))
	tel, now := &d.tel, time.Now()
	tel.texts.flush(now, 0)
	checked := now.Sub(d.checked) < checksEvery+textsAfter && !tel.healed.After(d.checked)
	e := *refused
	for _, text := range tel.texts.last {
		grave := text.ofChecks() || text.severity <= uint8(common.MAV_SEVERITY_WARNING)
		if grave && (!text.at.Before(e.since) || checked && text.ofChecks() && !text.at.Before(d.checked)) {
			e.messages = append(e.messages, text)
		}
	}
	reasons := words(e.messages)
	if list := d.unhealthy(); reasons == "" && len(list) > 0 && (s.arms() || s.to != nil) {
		reasons = "unhealthy: " + strings.Join(list, ", ")
	}
	if strings.Contains(reasons, "mode not armable") {
		reasons += `; set another mode with it ({"mode":"hold","arm":true}), or take off`
	}
	mode := d.machine.last.mode
	if s.to != nil {
		mode = s.to.mode
	}
	if why := d.sticks.src.nobodys(px4, now); why != "" && d.firmware() == px4 && (s.arms() || s.to != nil) && mode.flownBySticks() {
		reasons = strings.TrimPrefix(reasons+"; "+why, "; ")
	}
	if act := d.params.told["NAV_DLL_ACT"]; act > 0 && s.arms() && d.firmware() == px4 && !d.link.gcs {
		why := fmt.Sprintf("NAV_DLL_ACT is %g: PX4 arms only while it hears a ground station; connect one, start mavrest with -gcs, or set it to 0", act)
		reasons = strings.TrimPrefix(reasons+"; "+why, "; ")
	}
	return refusal(s, &e, reasons)
}

// unhealthy are the systems that may be the reason. The receiver is left out where no
// transmitter was ever heard.
func (d *drone) unhealthy() []string {
	return slices.DeleteFunc(d.tel.health.unhealthy(), func(name string) bool { return name == "rc_receiver" && !d.sticks.src.heard })
}

// explained adds to the error of an interrupted command what the autopilot said from 1 s
// before the takeover to 0.5 s after it. It unlocks mu while it waits for that.
func (d *drone) explained(err error) error {
	var e *commandError
	if !errors.As(err, &e) || e.code != codeInterrupted || e.since.IsZero() {
		return err
	}
	from, until := e.since.Add(-takenBefore), e.since.Add(takenAfter)
	for !d.cmd.stopped && time.Now().Before(until) {
		d.cmd.pause(until)
	}
	said := slices.DeleteFunc(d.tel.texts.since(from), func(t statusText) bool {
		return t.at.After(until) || t.severity > uint8(common.MAV_SEVERITY_NOTICE) || strings.HasPrefix(t.text, ownTexts)
	})
	if len(said) == 0 {
		return err
	}
	return refuse(codeInterrupted, "%s; the autopilot says: %s", err, words(said))
}
