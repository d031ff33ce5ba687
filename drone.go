package main

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Times of the vehicle (docs/design.md, "The vehicle").
const (
	offlineAfter = 3 * time.Second // without a heartbeat
	chunkWait    = time.Second     // for the missing chunks of a STATUSTEXT
)

// drone is the one vehicle: it hears what the link brings, asks for what does
// not come by itself, runs what is due, and answers what it knows. Its mutex
// guards all that it has, its commander's waiting included.
type drone struct {
	link  *link
	clock clock
	ended chan struct{} // closed when everything that waits is to end

	mu sync.Mutex // guards all below
	aircraft
	params   parameters
	sticks   hands
	cmd      *commander
	conduct  conduct
	greeting greeting
	asked    asked
	wg       sync.WaitGroup // the goroutines of run
}

// newDrone makes the drone that device leads to; only is its system id, 0 for
// the first one that is heard.
func newDrone(dev device, only byte, gcs bool) *drone {
	d := &drone{clock: clock{alarm: newAlarm()}, ended: make(chan struct{})}
	d.tel = newTelemetry()
	d.link = newLink(dev, only, gcs, d.hear, d.clock.poke)
	acks := newAcks(d.say, d.link.clear, func() byte { return d.tel.id.system }, func() firmware { return d.firmware })
	d.cmd = &commander{mu: &d.mu, acks: acks, machine: &d.machine, owner: &d.conduct}
	d.params = parameters{craft: &d.aircraft, acks: acks, told: make(map[string]float64)}
	d.sticks = hands{craft: &d.aircraft, link: d.link, acks: acks, params: &d.params}
	d.sticks.src = sources{rcIn: math.NaN(), gcsFailsafe: math.NaN(), alone: gcs}
	d.asked = asked{craft: &d.aircraft, acks: acks}
	d.conduct = conduct{
		reasons: reasons{craft: &d.aircraft, acks: acks}, sticks: &d.sticks, params: &d.params, cmd: d.cmd,
		link: d.link, clock: &d.clock, asked: &d.asked, wg: &d.wg,
	}
	d.greeting = greeting{craft: &d.aircraft, params: &d.params, cmd: d.cmd, clock: &d.clock, wg: &d.wg}
	return d
}

// run keeps the vehicle until ctx is done, leaves it as its sticks ask, and
// returns when every goroutine has ended.
func (d *drone) run(ctx context.Context) {
	lineCtx, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	d.wg.Go(func() { d.link.run(lineCtx) })
	d.wg.Go(func() { d.clock.run(lineCtx, d.tick) })
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
}

// say sends a message from us to the vehicle; its answer is awaited.
func (d *drone) say(m message.Message) error {
	err := d.link.send(m)
	if err == nil {
		d.link.expect(max(questionWait, 2*d.cmd.acks.trip))
	}
	return err
}

// farewell is what the vehicle is left with when the program ends after sticks
// (docs/design.md, "SIGTERM in the air").
func (d *drone) farewell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sticks.phase == stickOff || !d.online {
		return
	}
	f := d.sticks.facts(time.Now())
	if f.firmware.ardupilot() && f.aloft && d.sticks.flies(f) && !d.sticks.taken {
		d.conduct.farewell(f)
	}
	if d.sticks.phase != stickOff { // a pilot may have taken them meanwhile
		d.sticks.farewell(d.sticks.facts(time.Now()))
	}
}

// tick does what is due and tells when the next thing is.
func (d *drone) tick(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := sooner(now.Add(offlineAfter), d.link.tick(now))
	if d.online {
		if silent := d.tel.beat.at.Add(offlineAfter); now.Before(silent) {
			next = sooner(next, silent)
		} else {
			d.lose()
		}
	}
	if d.machine.tick(now) {
		d.taken("not the commanded mode for 5 s")
		d.tell("the vehicle is not in the mode that was commanded last: it is in " + d.modeName())
	}
	next = sooner(next, d.machine.due())
	next = sooner(next, d.tel.texts.flush(now, chunkWait))
	next = sooner(next, d.conduct.watch(now))
	d.sticks.tick(d.sticks.facts(now))
	if d.sticks.act() && d.cmd.idle() {
		d.wg.Go(d.conduct.holdForSilent)
	}
	next = sooner(next, d.sticks.due())
	flies := d.tel.beat.armed && (d.machine.mode == ModeHold || d.machine.mode == ModeTakeoff || d.cmd.transit())
	next = sooner(next, d.asked.tick(now, d.sticks.phase != stickOff, flies, now.Before(d.sticks.watch.until)))
	return sooner(next, d.greeting.tick(now))
}

// lose says that the vehicle is offline.
func (d *drone) lose() {
	d.online = false
	d.machine.lose()
	d.sticks.lost()
	d.cmd.bell.ring()
	d.changed()
	level := slog.LevelWarn
	if d.link.state().fault != nil { // that was told, and why
		level = slog.LevelInfo
	}
	slog.Log(context.Background(), level, "vehicle offline: no heartbeat for 3 s", "system", d.tel.id.system)
}

// hear takes what the link hands on.
func (d *drone) hear(h heard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case h.notice != "":
		d.tell(h.notice)
	case h.msg == nil: // the port is open
		d.sticks.src.opened = h.at
		d.version.Add(1)
		d.clock.poke()
	case h.foreign:
		d.sticks.foreigner(d.sticks.facts(h.at))
		d.sticks.act()
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
		if v, ours := d.params.hear(m); ours {
			d.sticks.src.hearParam(m.ParamId, v)
			d.cmd.bell.ring()
		}
	case *common.MessageSysStatus, *common.MessageRcChannels:
		d.sticks.hear(m, now)
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

// identify finds out which family of autopilots it is, and greets it anew if it
// was taken for another one.
func (d *drone) identify() {
	was := d.firmware
	d.firmware = firmwareOf(d.tel.id.autopilot, d.tel.id.typ, d.tel.id.vtol)
	if d.online && was != d.firmware && was != firmwareUnknown {
		clear(d.params.told)
		d.greeting.begin()
	}
}

func (d *drone) hearHeartbeat(now time.Time) {
	b := &d.tel.beat
	d.identify()
	mode, failing := d.machine.mode, d.failsafe
	disarmed := d.machine.raw.armed && !b.armed
	d.failsafe = b.failsafe
	if disarmed {
		d.cmd.disarmed()
	}
	taken := d.machine.report(d.report(d.sticks.phase != stickOff, now))
	if taken {
		d.taken("the vehicle reports it")
	} else if d.machine.mode != mode {
		d.logMode("the vehicle reports it")
	}
	if b.failsafe && !failing && b.armed && !taken {
		d.cmd.took(true)
	}
	if disarmed {
		d.sticks.disarmed(d.sticks.facts(now))
		d.sticks.act()
	}
	if b.custom != entered[d.firmware][ModeHold] {
		d.conduct.spedUp = false // entering GUIDED anew resets it
	}
	if !d.online {
		d.online = true
		if !b.armed { // it may be another one
			clear(d.params.told)
		}
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
	d.cmd.abandon("something else took the drone (%s): it is in %s", why, d.modeName())
	d.tel.target.group, d.asked.target = group{}, time.Time{} // where it flies to is told anew
	d.sticks.switched(d.sticks.facts(now))
	d.sticks.act()
	d.logMode(why)
	d.clock.poke()
}

// restarted is what follows a restart of the autopilot.
func (d *drone) restarted(now time.Time) {
	slog.Warn("the autopilot has started again")
	d.machine.restart()
	d.tel.restart()
	d.cmd.took(true)
	d.cmd.abandon("the autopilot has started again")
	d.sticks.restarted(now)
	clear(d.params.told)
	d.greeting.begin()
	d.asked.beat = time.Time{}
	d.cmd.acks.restarted()
	d.cmd.acks.ask(0, now)
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
	if err := d.asked.kind(&talk{by: d.cmd}, r); err != nil {
		return answer{}, err
	}
	return d.cmd.do(r, func() (plan, error) {
		if err := d.able(); err != nil {
			return plan{}, err
		}
		return r.plan(d.conduct.vehicle(time.Now()))
	})
}

// wait waits until the manoeuvre of a command that began then is complete, or
// tells what ended it. A client that goes away ends its waiting and nothing else.
func (d *drone) wait(ctx context.Context, m *manoeuvre, began time.Time) error {
	for {
		d.mu.Lock()
		news, able := d.cmd.bell.wait(), d.able()
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
		case <-ctx.Done():
			return notDone(m, time.Since(began))
		}
	}
}

// input takes the client's sticks, and returns the mode that they act in.
func (d *drone) input(in stickInput) (Mode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.able(); err != nil {
		return 0, err
	}
	if d.asked.deaf {
		return 0, refuse(codeOffline, "input: %s", deafAdvice)
	}
	if op := d.cmd.op; op != nil && op.plan.setsMode {
		return 0, refuse(codeWrongMode, "input: a command to enter %s is under way", op.plan.order.mode)
	}
	mode, err := d.sticks.fly(in)
	if err == nil {
		d.changed()
		d.clock.poke()
	}
	return mode, err
}
