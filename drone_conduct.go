package main

import (
	"log/slog"
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// Times of a refusal's reasons (docs/design.md, "Reasons of a refusal").
const (
	textsAfter   = 300 * time.Millisecond // STATUSTEXTs that still belong to a refusal
	prearmEvery  = 5 * time.Second        // between two reports of the pre-arm checks
	prearmQuiet  = 200 * time.Millisecond // without a text: the report is over
	prearmMost   = 700 * time.Millisecond
	prearmHolds  = 30 * time.Second // ArduPilot repeats what keeps it from arming
	receiverTold = 600 * time.Millisecond
)

// prepare is what a plan needs before its first step: what the autopilot's
// parameters say, and the sticks where the plan wants them.
func (d *drone) prepare(op *operation) error {
	p := &op.plan
	if p.sticks == sticksEnter || p.sticks == sticksRun {
		until := d.sources.heardBy().Add(receiverTold)
		told := func() bool { return d.sources.told || d.sticks.phase != stickOff }
		if err := unlessLate(op.await(until, told)); err != nil {
			return err
		}
		if err := d.greeting.sure(&op.talk, d.greeting.sourceParam()); err != nil {
			return err
		}
		f := d.stickFacts(time.Now())
		denied := d.sources.denied(d.firmware, f.now)
		if p.sticks == sticksEnter && denied != "" && d.firmware.ardupilot() && d.sources.receiver != receiverInHand {
			return refuse(codeUnsupported, "mode: nobody would have the sticks: %s, and no hand is on a receiver", denied)
		}
		if p.sticks == sticksEnter {
			d.sticks.enter(f, &d.sources)
		} else {
			d.sticks.run(f, &d.sources)
		}
	}
	if p.sticks == sticksLeave {
		d.sticks.leave(d.stickFacts(time.Now()), &d.sources)
	}
	d.actOnSticks()
	d.pokeClock()
	if d.firmware == px4 && p.arm != nil && *p.arm {
		d.greeting.forget("NAV_DLL_ACT")
		return d.greeting.sure(&op.talk, "NAV_DLL_ACT")
	}
	return nil
}

// knock is one heartbeat as a ground station right before a plan's first
// command: PX4 sends its texts only to a link that it heard one on in the last
// 2.5 s. Where NAV_DLL_ACT is set, the knock would arm a failsafe.
func (d *drone) knock() {
	if act, known := d.greeting.params["NAV_DLL_ACT"]; d.firmware == px4 && !d.link.gcs && known && act == 0 {
		d.link.sendAs(0, knockID, heartbeat(minimal.MAV_TYPE_GCS))
	}
}

// follow takes what an accepted step means beside the mode.
func (d *drone) follow(op *operation, s *step) {
	if s.through {
		d.sticks.led(d.stickFacts(time.Now()))
	}
	if s.cmd == common.MAV_CMD_DO_CHANGE_SPEED {
		d.greeting.spedUp = op.request.speed != nil
	}
}

// closing is what follows a plan, accepted or not.
func (d *drone) closing(op *operation, err error) {
	now := time.Now()
	f := d.stickFacts(now)
	switch {
	case err == nil && op.plan.sticks == sticksEnter:
		d.sticks.entered(f)
	case err == nil && op.plan.sticks == sticksLeave:
		d.sticks.left(f, &d.sources)
	case err == nil && !op.plan.setsMode: // it may have taken the place of a plan that led elsewhere
		d.sticks.stayed(f, &d.sources)
	case err != nil && d.cmd.op == op:
		d.failed(op, err, now)
	case d.cmd.op == nil:
		d.machine.refuse(now)
	}
	d.actOnSticks()
	d.asked.target = time.Time{}
	d.version.Add(1)
	d.changes.Add(1)
	d.pokeClock()
}

// failed is what follows a plan that was not accepted, and whose place no newer
// one has taken.
func (d *drone) failed(op *operation, err error, now time.Time) {
	if op.gone != nil || isNoAck(err) {
		d.machine.doubt(now)
	} else {
		d.machine.refuse(now)
	}
	if (op.moved || op.asked) && op.leg == nil && d.cmd.man != nil {
		landing := d.cmd.transit()
		d.cmd.abandon(codeInterrupted, "a command that was not accepted may have moved the drone")
		if landing {
			d.machine.abandon()
			d.logMode("a command that was not accepted ended the way to the landing")
		}
	}
	d.sticks.stayed(d.stickFacts(now), &d.sources)
	if isNoAck(err) {
		d.cmd.acks.ask(87, now) // where does it fly to (rule 8c)
	}
}

// refusal is the error of a refused step, with what the autopilot says of it. Of
// an arming PX4 is asked for a report of its checks: a refusal alone brings no
// texts.
func (d *drone) refusal(op *operation, s *step, result uint8, at time.Time) error {
	arming, on := s.arms()
	since, texts := op.began, &d.tel.texts
	op.cleaning = true
	defer func() { op.cleaning = false }()
	if arming && on && !d.tel.beat.armed {
		since = d.prearm(op)
	}
	op.sleep(at.Add(textsAfter))
	texts.flush(time.Now(), 0)
	var unhealthy []string
	if arming && on {
		unhealthy = d.tel.health.unhealthy()
	}
	return refusal(s, result, texts.since(since), unhealthy)
}

// prearm has PX4 report why it can't be armed, and waits for it. It returns since
// when texts count: also those before it that still hold.
func (d *drone) prearm(op *operation) (since time.Time) {
	now, g := time.Now(), &d.greeting
	if d.firmware != px4 {
		return now.Add(-prearmHolds)
	}
	if now.Sub(g.prearmAt) < prearmEvery {
		return g.prearmAt
	}
	g.prearmAt = op.began
	run := d.firmware.command(common.MAV_CMD_RUN_PREARM_CHECKS)
	if _, err := op.transact(&run); err != nil {
		slog.Debug("no report of the pre-arm checks", "error", err)
		return op.began
	}
	d.cmd.acks.ask(1, time.Now()) // SYS_STATUS
	for end := time.Now().Add(prearmMost); time.Now().Before(end); {
		count := d.tel.texts.count
		quiet := time.Now().Add(prearmQuiet)
		if quiet.After(end) {
			quiet = end
		}
		if op.await(quiet, func() bool { return d.tel.texts.count != count }) != nil {
			break
		}
	}
	return op.began
}

// watch looks at the manoeuvre on the clock, and starts the second leg of a
// landing that is there. It tells when it wants to look again.
func (d *drone) watch(now time.Time) time.Time {
	m := d.cmd.man
	if m == nil || m.finished() || !d.online {
		return time.Time{}
	}
	land, taken := m.watch(d.sighting(now))
	switch {
	case taken != "":
		transit := d.cmd.transit()
		d.cmd.abandon(codeInterrupted, "%s: it is in %s", taken, d.modeName())
		if transit {
			d.machine.abandon()
			d.logMode(taken)
			d.tell("the landing at the place was given up: " + taken)
		}
	case land && d.cmd.op == nil && d.cmd.next == nil:
		m.tried = now
		d.wg.Go(func() { d.landThere(m) })
	}
	if m.finished() {
		d.version.Add(1)
		d.changes.Add(1)
	}
	return now.Add(watchEvery)
}

func (d *drone) sighting(now time.Time) sighting {
	t, n := &d.tel, math.NaN()
	v := d.vehicle(now)
	s := sighting{
		now: now, armed: t.beat.armed, failsafe: t.beat.failsafe, inAir: t.landed.inAir(),
		at: v.at, amsl: v.amsl, heading: v.heading, velocity: motion{n, n, n}, climb: n, to: t.target,
	}
	if t.velocity.within(freshFor, now) {
		s.velocity = motion{t.velocity.north, t.velocity.east, t.velocity.down}
		s.climb = -t.velocity.down
	}
	return s
}

// landThere is the second leg of a landing at a place, over it.
func (d *drone) landThere(m *manoeuvre) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd.man != m || m.finished() || d.machine.order == nil {
		return
	}
	land := *m.plan.second
	p := plan{
		steps: []step{land}, setsMode: true, sticks: sticksLeave, urgent: true,
		order: order{mode: ModeLand, numbers: []uint32{land.number}},
	}
	out := d.cmd.doOwn(p, m.request, m)
	if out.err != nil {
		slog.Warn("the landing at the place was not acknowledged; trying again", "error", out.err)
	}
}

// holdForSilent leaves a hold for a client that fell silent; where that is
// refused, a landing.
func (d *drone) holdForSilent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := request{setMode: true, mode: ModeHold}
	for {
		p, err := r.plan(d.vehicle(time.Now()))
		if err == nil {
			err = d.cmd.doOwn(p, r, nil).err
		}
		switch {
		case err == nil:
			slog.Info("mavrest holds for a silent client", "mode", r.mode)
			return
		case r.mode == ModeHold && (code(err) == codeRefused || code(err) == codeUnsupported):
			slog.Warn("a hold for a silent client was refused: landing", "error", err)
			r = request{setMode: true, mode: ModeLand}
		default:
			slog.Warn("a hold for a silent client is not acknowledged", "error", err)
			return
		}
	}
}
