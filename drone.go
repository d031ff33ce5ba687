package main

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Times of the vehicle (docs/design.md, "The vehicle").
const (
	offlineAfter = 3 * time.Second // without a heartbeat
	askAfter     = 1500 * time.Millisecond
	askEvery     = time.Second // for a target; and with a stream, whether it hears us
	askAgain     = 20 * time.Millisecond
	deafAfter    = 10 * time.Second // without an ack, with a stream
	chunkWait    = time.Second      // for the missing chunks of a STATUSTEXT
	farewellFor  = time.Second      // of the last command
)

// drone is the one vehicle: it hears what the link brings, asks for what does
// not come by itself, runs what is due, and answers what it knows. Its mutex
// guards all that it has, its commander's waiting included.
type drone struct {
	link    *link
	changes atomic.Uint64 // rises with everything that a status shows
	version atomic.Uint64 // rises with what a status must show at once: all but telemetry
	beat    atomic.Int64  // when the clock last ran, for the watchdog; Unix nanoseconds
	wake    chan struct{} // the clock has something to do now
	ended   chan struct{} // closed when everything that waits is to end

	mu       sync.Mutex // guards all below
	tel      telemetry
	firmware firmware
	online   bool
	machine  machine
	sticks   sticks
	sources  sources
	cmd      *commander
	greeting greeting
	asked    asked
	waiters  bell           // of those who wait for a manoeuvre: something else than its end
	wg       sync.WaitGroup // the goroutines of run
}

// newDrone makes the drone that device leads to; only is its system id, 0 for
// the first one that is heard.
func newDrone(dev device, only byte, gcs bool) *drone {
	n := math.NaN()
	d := &drone{tel: newTelemetry(), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	d.sources = sources{rcIn: n, gcsFailsafe: n, alone: gcs}
	d.link = newLink(dev, only, gcs, d.hear)
	d.cmd = &commander{
		mu: &d.mu, machine: &d.machine, owner: d,
		acks: newAcks(d.say, d.link.clear, func() byte { return d.tel.id.system }, func() firmware { return d.firmware }),
	}
	d.greeting = greeting{drone: d}
	return d
}

// run keeps the vehicle until ctx is done, leaves it as its sticks ask, and
// returns when every goroutine has ended.
func (d *drone) run(ctx context.Context) {
	lineCtx, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	d.wg.Go(func() { d.link.run(lineCtx) })
	d.wg.Go(func() { d.runClock(lineCtx) })
	<-ctx.Done()
	d.quit()
	d.farewell()
	cut()
	d.wg.Wait()
}

// quit ends everything that waits, and lets nothing new begin.
func (d *drone) quit() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.cmd.stopped {
		close(d.ended)
	}
	d.cmd.stop()
	d.tellWaiters()
}

// say sends a message from us to the vehicle; its answer is awaited.
func (d *drone) say(m message.Message) error {
	err := d.link.send(m)
	if err == nil {
		d.link.expect(max(questionWait, 2*d.cmd.acks.trip))
	}
	return err
}

// tell tells the user what mavrest did by itself.
func (d *drone) tell(text string) {
	slog.Warn(text)
	d.tel.texts.add(statusText{uint8(common.MAV_SEVERITY_NOTICE), "mavrest: " + text, time.Now()})
	d.version.Add(1)
	d.changes.Add(1)
}

// pokeClock makes the clock run now.
func (d *drone) pokeClock() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// runClock is everything that happens by time. It sleeps until the next thing is
// due.
func (d *drone) runClock(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.wake:
		}
		now := time.Now()
		d.beat.Store(now.UnixNano())
		d.mu.Lock()
		next := d.tick(now)
		d.mu.Unlock()
		timer.Reset(max(next.Sub(now), time.Millisecond))
	}
}

// tick does what is due and tells when the next thing is.
func (d *drone) tick(now time.Time) time.Time {
	next := now.Add(offlineAfter)
	sooner := func(at time.Time) {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	sooner(d.link.tick(now))
	if d.online {
		if now.Sub(d.tel.beat.at) >= offlineAfter {
			d.lose()
		} else {
			sooner(d.tel.beat.at.Add(offlineAfter))
		}
	}
	if d.machine.tick(now) {
		d.taken("the autopilot acknowledged and did not follow")
		d.tell("the autopilot acknowledged a command and did not follow: it is in " + d.modeName())
	}
	sooner(d.machine.due())
	sooner(d.tel.texts.flush(now, chunkWait))
	sooner(d.watch(now))
	d.sticks.tick(d.stickFacts(now), &d.sources)
	d.actOnSticks()
	sooner(d.sticks.due())
	sooner(d.askDue(now))
	sooner(d.greeting.tick(now))
	return next
}

// lose says that the vehicle is offline.
func (d *drone) lose() {
	d.online = false
	d.machine.lose()
	d.sticks.lost()
	d.tellWaiters()
	d.version.Add(1)
	d.changes.Add(1)
	slog.Warn("vehicle offline: no heartbeat for 3 s", "system", d.tel.id.system)
}

// tellWaiters wakes those who wait for a manoeuvre, for what is not its end.
func (d *drone) tellWaiters() {
	d.waiters.ring()
	d.cmd.bell.ring()
}

// hear takes what the link hands on.
func (d *drone) hear(h heard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case h.notice != "":
		d.tell(h.notice)
	case h.msg == nil: // the port is open
		d.sources.opened = h.at
		d.version.Add(1)
		d.pokeClock()
	case h.foreign:
		d.sticks.foreigner(d.stickFacts(h.at), &d.sources)
		d.actOnSticks()
	default:
		d.tel.id.system = h.system
		d.take(h.msg, h.at)
	}
}

// take takes a message of the vehicle.
func (d *drone) take(m message.Message, now time.Time) {
	texts := d.tel.texts.count
	if d.tel.hear(m, now) {
		d.restarted(now)
	}
	d.changes.Add(1)
	outstanding := d.cmd.acks.question
	switch m := m.(type) {
	case *minimal.MessageHeartbeat:
		d.hearHeartbeat(now)
	case *common.MessageCommandAck:
		if d.link.addressed(m.TargetSystem, m.TargetComponent) {
			d.cmd.acks.hear(m.Command, uint8(m.Result), now)
			d.cmd.bell.ring()
		}
	case *common.MessageParamValue:
		d.greeting.hearParam(m)
	case *common.MessageSysStatus:
		throttle := uint16(0)
		if d.tel.rc.within(freshFor, now) {
			throttle = d.tel.rc.channel[2]
		}
		if !d.tel.health.at.IsZero() {
			d.sticks.hearReceiver(d.stickFacts(now), &d.sources, d.tel.health.receiverLive(), throttle)
			d.actOnSticks()
		}
	case *common.MessageRcChannels:
		d.sticks.hearChannels(d.stickFacts(now), &d.sources, d.tel.rc.channel)
		d.actOnSticks()
	case *common.MessageExtendedSysState:
		d.identify()
	case *common.MessageStatustext:
		if d.tel.texts.count != texts {
			s := d.tel.texts.last[(d.tel.texts.count-1)%len(d.tel.texts.last)]
			slog.Debug("statustext", "severity", s.severity, "text", s.text)
		}
		d.version.Add(1)
		d.cmd.bell.ring()
	}
	d.cmd.acks.came(m.GetID(), now)
	if d.cmd.acks.question != outstanding {
		d.cmd.bell.ring()
	}
}

// identify tells which family of autopilots it is; one that turns out to be
// another one is asked anew.
func (d *drone) identify() {
	f := firmwareOf(d.tel.id.autopilot, d.tel.id.typ, d.tel.id.vtol)
	if f != d.firmware && d.firmware != firmwareUnknown && d.online {
		d.greeting.begin()
	}
	d.firmware = f
}

func (d *drone) hearHeartbeat(now time.Time) {
	b := &d.tel.beat
	d.identify()
	before, failing := d.machine.mode, d.greeting.failsafe
	wasArmed := d.machine.raw.armed
	d.greeting.failsafe = b.failsafe
	mode, _ := d.firmware.reported(b.custom)
	r := report{custom: b.custom, mode: mode, armed: b.armed, amsl: math.NaN(), streamed: d.sticks.phase != stickOff}
	if d.tel.position.within(silentAfter, now) { // also a while ago: a climb goes up
		r.amsl = d.tel.position.amsl
	}
	if wasArmed && !b.armed {
		d.cmd.disarmed()
	}
	taken := d.machine.report(r)
	if taken {
		d.taken("the vehicle reports it")
	} else if d.machine.mode != before {
		d.logMode("the vehicle reports it")
	}
	if b.failsafe && !failing && b.armed && !taken {
		d.cmd.took(true)
	}
	if wasArmed && !b.armed {
		d.sticks.disarmed(d.stickFacts(now), &d.sources)
		d.actOnSticks()
	}
	if b.custom != entered[d.firmware][ModeHold] {
		d.greeting.spedUp = false // entering GUIDED anew resets it
	}
	if !d.online {
		d.online = true
		slog.Info("vehicle online", "system", d.tel.id.system, "mode", d.machine.mode, "vehicle_mode", d.modeName())
		d.greeting.begin()
	}
	d.version.Add(1)
	d.cmd.bell.ring()
}

// taken is what follows a report that nothing here explains: a pilot, a failsafe
// or an autopilot that did not follow has the drone.
func (d *drone) taken(why string) {
	now := time.Now()
	d.cmd.took(d.tel.beat.armed)
	d.cmd.abandon(codeInterrupted, "something else took the drone (%s): it is in %s", why, d.modeName())
	d.tel.target.group, d.asked.target = group{}, time.Time{} // where it flies to is told anew
	d.sticks.switched(d.stickFacts(now), &d.sources)
	d.actOnSticks()
	d.logMode(why)
	d.pokeClock()
}

// logMode logs a mode that nobody asked for here.
func (d *drone) logMode(why string) {
	d.version.Add(1)
	slog.Info("mode changed", "mode", d.machine.mode, "vehicle_mode", d.modeName(), "why", why)
}

// modeName is the autopilot's own name for its mode.
func (d *drone) modeName() string {
	_, name := d.firmware.reported(d.tel.beat.custom)
	return name
}

// restarted is what follows a restart of the autopilot.
func (d *drone) restarted(now time.Time) {
	slog.Warn("the autopilot has started again")
	d.machine.restart()
	d.tel.restart()
	d.cmd.took(true)
	d.cmd.abandon(codeInterrupted, "the autopilot has started again")
	d.sticks = sticks{}
	d.sources.restarted(now)
	d.link.move(nil)
	d.greeting.begin()
	d.asked.beat = time.Time{}
	d.cmd.acks.restarted()
	d.cmd.acks.ask(0, now)
}

// vehicle is what the plans need of it. A position that is not fresh is none: a
// hold would fly back to it.
func (d *drone) vehicle(now time.Time) vehicle {
	n := math.NaN()
	t, p := &d.tel, d.tel.position
	v := vehicle{
		firmware: d.firmware, custom: t.beat.custom, armed: t.beat.armed, landed: t.landed, failsafe: t.beat.failsafe,
		at: place{n, n, n}, amsl: n, heading: n, velocity: motion{n, n, n}, homeAMSL: t.home.amsl,
		streams: d.sticks.phase == stickClient || d.sticks.phase == stickCentred, away: d.sticks.away(d.stickFacts(now)),
		set: d.greeting.settings(), wing: t.id.vtol == uint8(common.MAV_VTOL_STATE_FW),
	}
	if custom, ok := d.machine.awaited(); ok {
		v.custom = custom // acknowledged, and no heartbeat shows it yet
	}
	if p.within(freshFor, now) {
		v.at, v.amsl, v.heading = place{p.lat, p.lon, p.relative}, p.amsl, p.heading
	}
	if t.velocity.within(freshVelocity, now) {
		v.velocity = motion{t.velocity.north, t.velocity.east, t.velocity.down}
	}
	if m := d.cmd.man; m != nil && m.request.goTo {
		v.target = m.plan.target
	}
	return v
}

// able reports why no command can be sent now.
func (d *drone) able() error {
	switch {
	case d.cmd.stopped:
		return errStopping
	case d.online:
		return nil
	}
	s := d.link.state()
	switch {
	case s.fault != nil:
		return refuse(codeOffline, "%s", s.fault)
	case d.tel.id.autopilot == 0 && d.tel.beat.at.IsZero():
		return refuse(codeOffline, "no autopilot was heard yet on %s; check its wiring, baud rate and MAVLink settings", s.device)
	}
	return refuse(codeOffline, "the autopilot is offline: no heartbeat for %.0f s", time.Since(d.tel.beat.at).Seconds())
}

// do carries a request out and returns when the autopilot has acknowledged every
// step of it, or refused one: then the error is a *commandError.
func (d *drone) do(r request) (answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.able(); err != nil {
		return answer{}, err
	}
	out := d.cmd.do(r, func() (plan, error) {
		if err := d.able(); err != nil {
			return plan{}, err
		}
		return r.plan(d.vehicle(time.Now()))
	})
	return out.answer, out.err
}

// wait waits until the manoeuvre is complete, or tells what ended it. A client
// that goes away ends its waiting and nothing else.
func (d *drone) wait(ctx context.Context, m *manoeuvre, limit time.Duration) error {
	began := time.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		d.mu.Lock()
		news, able := d.waiters.wait(), d.able()
		done, why := m.done, m.why
		d.mu.Unlock()
		switch {
		case done:
			return nil
		case why != nil:
			return why
		case able != nil:
			return able
		}
		select {
		case <-m.over:
		case <-news:
		case <-timer.C:
			return notDone(m, time.Since(began))
		case <-ctx.Done():
			return notDone(m, time.Since(began))
		}
	}
}
