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

// ackWaits are the waits for an ack after each send of a command.
var ackWaits = [...]time.Duration{500 * time.Millisecond, 700 * time.Millisecond, 800 * time.Millisecond}

// operation is a plan that is being carried out.
type operation struct {
	plan      plan
	began     time.Time
	busy      bool          // waits for acks; false on the way to a landing
	cancelled chan struct{} // closed when a newer command takes its place

	// A refused command must not end the landing that it interrupted, unless it
	// has moved the vehicle.
	landing *operation
	moved   bool // a step was accepted
	asked   bool // one was sent and is not answered: it may have been carried out

	accepted   uint16 // the command of the last accepted step
	unanswered bool   // a step was never acknowledged
}

// over is the channel that ends o; nil never ends.
func (o *operation) over() <-chan struct{} {
	if o == nil {
		return nil
	}
	return o.cancelled
}

var errStopping = &commandError{code: codeOffline, text: "mavrest is shutting down"}

// superseded is what the loser of two commands is told.
func superseded() error {
	return refuse(codeSuperseded, "a newer command took this one's place")
}

// pause waits, unless the operation is superseded or the link shuts down.
func (l *link) pause(op *operation, d time.Duration) error {
	if d <= 0 {
		d = 0
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-op.over():
		return superseded()
	case <-l.done:
		return errStopping
	}
}

// waiter waits for the acks of one command.
type waiter struct {
	acks   chan uint8    // MAV_RESULTs
	shown  chan struct{} // a heartbeat shows the custom mode
	custom uint32        // of a DO_SET_MODE
	skip   int           // acks that still belong to earlier sends of this command
}

func (w *waiter) show() {
	select {
	case w.shown <- struct{}{}:
	default:
	}
}

// owedAcks counts the acks of a command id that are still on their way: one
// that comes late must not answer the next command of that id.
type owedAcks struct {
	n     int
	until time.Time // by then they are lost
}

const owedFor = 3 * time.Second

// hearAck gives an ack to the one who waits for it. The target is the asker,
// or 0 from an autopilot that does not fill it in. l.mu is held.
func (l *link) hearAck(m *common.MessageCommandAck) {
	if m.TargetSystem != 0 && m.TargetSystem != l.ourSystem() ||
		m.TargetComponent != 0 && m.TargetComponent != componentID {
		return
	}
	id := uint16(m.Command)
	final := m.Result != common.MAV_RESULT_IN_PROGRESS
	if o := l.owed[id]; final && o.n > 0 {
		o.n--
		l.owed[id] = o
	}
	w := l.waiters[id]
	if w == nil {
		return
	}
	if w.skip > 0 {
		if final {
			w.skip--
		}
		return
	}
	select {
	case w.acks <- uint8(m.Result):
	default: // doubled over and over; the first ones tell
	}
}

// transact sends one command, repeats it until it is acknowledged, and returns
// the autopilot's MAV_RESULT.
func (l *link) transact(op *operation, s *step) (uint8, error) {
	id := uint16(s.cmd)
	l.mu.Lock()
	if op != nil && l.op != op { // the newer one's acks are not for us
		l.mu.Unlock()
		return 0, superseded()
	}
	px4SetMode := l.tel.firmware == px4 && s.cmd == common.MAV_CMD_DO_SET_MODE
	w := &waiter{acks: make(chan uint8, 8), shown: make(chan struct{}, 1)}
	if s.cmd == common.MAV_CMD_DO_SET_MODE {
		w.custom = s.custom(l.tel.firmware)
	}
	if o := l.owed[id]; time.Now().Before(o.until) {
		w.skip = o.n
	} else {
		delete(l.owed, id)
	}
	l.waiters[id] = w
	select {
	case l.hurry <- struct{}{}:
	default:
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		if l.waiters[id] == w {
			delete(l.waiters, id)
		}
		l.mu.Unlock()
	}()

	sent := false
	for try, wait := range ackWaits {
		if try == 1 { // what was late has come by now, or is lost
			l.mu.Lock()
			w.skip = 0
			l.mu.Unlock()
		}
		switch err := l.sendStep(op, s, uint8(try), px4SetMode); {
		case err == nil:
			sent = true
		case errors.As(err, new(*commandError)):
			return 0, err
		}
		result, err := l.await(op, w, wait)
		if errors.Is(err, errNoAnswer) {
			continue
		}
		if err == nil && result == uint8(common.MAV_RESULT_ACCEPTED) && px4SetMode {
			return l.awaitSecond(op, w, id)
		}
		if errors.Is(err, errInProgress) {
			break
		}
		return result, err
	}
	if !sent {
		return 0, refuse(codeOffline, "the port to the autopilot is down: %s was not sent", commandName(s))
	}
	return 0, &commandError{code: codeNoAck, command: id,
		text: fmt.Sprintf("%s was sent and never acknowledged; read the status to see whether it happened", commandName(s))}
}

// sendStep sends a step once, unless its operation was superseded: nothing of
// an older command may go out behind a newer one.
func (l *link) sendStep(op *operation, s *step, confirmation uint8, twoAcks bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op != nil && l.op != op {
		return superseded()
	}
	if err := l.send(componentID, s.message(l.tel.system, confirmation)); err != nil {
		return err
	}
	if op != nil && s.moves() {
		op.asked = true
	}
	o := l.owed[uint16(s.cmd)]
	o.n++
	if twoAcks {
		o.n++
	}
	o.until = time.Now().Add(owedFor)
	l.owed[uint16(s.cmd)] = o
	return nil
}

var (
	errNoAnswer   = errors.New("no ack")
	errInProgress = errors.New("in progress for ever")
)

// await waits for a final ack. After IN_PROGRESS it waits longer, and the
// command is not to be repeated.
func (l *link) await(op *operation, w *waiter, wait time.Duration) (uint8, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	missing := errNoAnswer
	for {
		select {
		case r := <-w.acks:
			if r != uint8(common.MAV_RESULT_IN_PROGRESS) {
				return r, nil
			}
			if missing != errInProgress {
				missing = errInProgress
				timer.Reset(progressWait)
			}
		case <-timer.C:
			return 0, missing
		case <-op.over():
			return 0, superseded()
		case <-l.done:
			return 0, errStopping
		}
	}
}

// awaitSecond waits for the second ack of PX4's DO_SET_MODE, the true one: the
// first is ACCEPTED whatever happens. A heartbeat in the mode is as good.
func (l *link) awaitSecond(op *operation, w *waiter, id uint16) (uint8, error) {
	timer := time.NewTimer(secondAck)
	defer timer.Stop()
	for {
		select {
		case r := <-w.acks:
			if r != uint8(common.MAV_RESULT_IN_PROGRESS) {
				return r, nil
			}
			continue
		case <-w.shown:
		case <-timer.C:
			l.mu.Lock()
			delete(l.owed, id) // a firmware that acknowledges once
			l.mu.Unlock()
		case <-op.over():
			return 0, superseded()
		case <-l.done:
			return 0, errStopping
		}
		return uint8(common.MAV_RESULT_ACCEPTED), nil
	}
}

// answer is what an accepted command is told: the number of the last command
// acknowledged, and the mode it led to.
type answer struct {
	command uint16
	mode    Mode
}

// do carries a request out and returns when the autopilot has acknowledged
// every step of it, or refused one: then the error is a *commandError.
func (l *link) do(r request) (answer, error) {
	op, err := l.begin(r)
	if err != nil {
		return answer{}, err
	}
	defer l.end(op)
	if err := l.awaitSticks(op); err != nil {
		return answer{}, err
	}
	for i := range op.plan.steps {
		s := &op.plan.steps[i]
		result, err := l.transact(op, s)
		if err == nil {
			l.mu.Lock()
			op.asked = false
			l.mu.Unlock()
		}
		refused := err != nil || result != uint8(common.MAV_RESULT_ACCEPTED)
		if refused && !(s.wish && (err == nil || isNoAck(err))) {
			return answer{}, l.fail(op, i, result, err)
		}
		if refused {
			slog.Warn("the heading is not kept", "result", resultName(result), "error", err)
			continue
		}
		l.mu.Lock()
		op.accepted = uint16(s.cmd)
		op.moved = op.moved || s.moves()
		l.tel.acknowledged(s)
		l.mu.Unlock()
	}
	return l.accept(op)
}

// begin makes a plan of the request and takes the place of the command before
// it. What can't be planned changes nothing.
func (l *link) begin(r request) (*operation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return nil, err
	}
	now := time.Now()
	v := l.tel.vehicle(now)
	if custom, ok := entered[v.firmware][l.machine.awaited()]; ok {
		v.custom = custom // acknowledged, and no heartbeat shows it yet
	}
	v.target = l.target
	p, err := r.plan(v)
	if err != nil {
		return nil, err
	}
	op := &operation{plan: p, began: now, busy: true, cancelled: make(chan struct{})}
	if older := l.op; older != nil {
		close(older.cancelled)
		if older.busy {
			op.landing, op.moved = older.landing, older.moved || older.asked
		} else {
			op.landing = older
		}
	}
	l.op = op
	l.machine.begin(p.explains)
	l.prepareSticks(p, now)
	return op, nil
}

// ready reports why no command can be sent now. l.mu is held.
func (l *link) ready() error {
	switch {
	case l.stopped:
		return errStopping
	case l.tel.system == 0:
		return refuse(codeOffline, "no autopilot was heard yet on %s; check its wiring, baud rate and MAVLink settings", l.device.name)
	case !l.tel.online:
		return refuse(codeOffline, "the autopilot is offline: no heartbeat for %.0f s", time.Since(l.tel.heartbeatAt).Seconds())
	}
	return nil
}

// accept ends an operation whose every step was acknowledged.
func (l *link) accept(op *operation) (answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.op != op {
		return answer{}, superseded()
	}
	p := &op.plan
	op.busy = false
	l.op = nil
	l.version.Add(1)
	if !p.setsMode {
		l.machine.acceptArm(p.arm)
		l.resume(op)
	} else {
		transit := p.landed != nil && !l.stopped
		l.machine.accept(p.mode, transit, time.Now())
		l.target = p.target
		if transit {
			l.op = op
			l.wg.Go(func() { l.approach(op) })
		}
	}
	return answer{op.accepted, l.machine.mode}, nil
}

// end leaves nothing of an operation behind that did not come to its end.
func (l *link) end(op *operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.op == op && op.busy {
		op.busy = false
		l.op = nil
		if op.unanswered {
			l.machine.doubt()
		} else {
			l.machine.refuse(time.Now())
		}
		l.resume(op)
		l.version.Add(1)
	}
	l.pokeClock()
}

// resume goes on with the landing that op interrupted. l.mu is held.
func (l *link) resume(op *operation) {
	switch {
	case op.landing == nil || l.machine.mode != ModeLand || l.stopped:
	case op.moved || op.asked:
		l.machine.abandon()
		l.modeChanged("a command that was not accepted ended the way to the landing")
		l.target = nil
	default:
		l.op = &operation{plan: op.landing.plan, began: op.landing.began, cancelled: make(chan struct{})}
		again := l.op
		l.wg.Go(func() { l.approach(again) })
	}
}

// fail ends an operation whose step i was refused or never acknowledged: it
// takes the earlier steps back, and collects what the autopilot said of it.
func (l *link) fail(op *operation, i int, result uint8, err error) error {
	if err != nil && !isNoAck(err) {
		return err
	}
	at := time.Now()
	undo := op.plan.steps[:i]
	if err != nil && i > 0 { // it may have happened
		undo = op.plan.steps[:i+1]
	}
	for _, s := range slices.Backward(undo) {
		if s.undo == nil {
			continue
		}
		if r, uerr := l.transact(op, s.undo); uerr != nil || r != 0 {
			slog.Warn("a refused command could not be taken back", "command", s.undo.cmd, "result", r, "error", uerr)
			break // it may fly: the mode it has is better than the one before
		}
		l.mu.Lock()
		l.tel.acknowledged(s.undo)
		l.mu.Unlock()
	}
	if err != nil {
		l.mu.Lock()
		op.unanswered = true
		l.mu.Unlock()
		return err
	}
	l.pause(op, textsAfter-time.Since(at))
	l.mu.Lock()
	l.flushTexts(time.Now(), 0)
	texts := l.tel.recent(op.began)
	l.mu.Unlock()
	return refusal(&op.plan.steps[i], result, texts)
}

func isNoAck(err error) bool {
	var ce *commandError
	return errors.As(err, &ce) && ce.code == codeNoAck
}

// refusal is the error of a step that the autopilot answered with anything but
// ACCEPTED.
func refusal(s *step, result uint8, texts []statusText) error {
	e := &commandError{code: codeRefused, answered: true, command: uint16(s.cmd), result: result}
	why := ""
	for _, t := range texts {
		preArm := strings.HasPrefix(t.text, "PreArm") || strings.HasPrefix(t.text, "Arm:")
		if t.severity <= uint8(common.MAV_SEVERITY_WARNING) || preArm {
			e.messages = append(e.messages, t)
			why = ": " + t.text
		}
	}
	verb := "refused"
	switch common.MAV_RESULT(result) {
	case common.MAV_RESULT_UNSUPPORTED, common.MAV_RESULT_COMMAND_INT_ONLY, common.MAV_RESULT_COMMAND_LONG_ONLY,
		common.MAV_RESULT_COMMAND_UNSUPPORTED_MAV_FRAME:
		e.code, verb = codeUnsupported, "does not know"
	}
	e.text = fmt.Sprintf("the autopilot %s %s (%s)%s", verb, commandName(s), resultName(result), why)
	return e
}

// resultName is a MAV_RESULT's name in lower case.
func resultName(result uint8) string {
	return lowerName(common.MAV_RESULT(result).String(), "MAV_RESULT_")
}

// commandName is what a step is, in a sentence.
func commandName(s *step) string {
	switch s.cmd {
	case common.MAV_CMD_DO_SET_MODE:
		return "the mode change"
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		if s.p[0] == 0 {
			return "disarming"
		}
		return "arming"
	case common.MAV_CMD_NAV_TAKEOFF:
		return "the takeoff"
	case common.MAV_CMD_NAV_LAND:
		return "the landing"
	case common.MAV_CMD_DO_REPOSITION:
		return "the goto"
	case common.MAV_CMD_DO_CHANGE_SPEED:
		return "the speed"
	case common.MAV_CMD_CONDITION_YAW:
		return "the heading"
	}
	return fmt.Sprintf("command %d", s.cmd)
}

// approach is the way of a land to its place: it starts the landing over it. A
// newer command, a pilot's switch or a failsafe ends it before.
func (l *link) approach(op *operation) {
	timer := time.NewTicker(200 * time.Millisecond)
	defer timer.Stop()
	a := arrival{failsafe: true}
	for there := false; !there; {
		select {
		case <-timer.C:
		case <-op.cancelled:
			return
		case <-l.done:
			return
		}
		l.mu.Lock()
		there = l.arrived(op, &a, time.Now())
		gone := l.op != op
		l.mu.Unlock()
		if gone {
			return
		}
	}
	for {
		l.mu.Lock()
		gone := l.op != op || l.machine.mode != ModeLand || !l.tel.armed
		if !gone && l.tel.firmware == px4 {
			l.knock()
		}
		l.mu.Unlock()
		if gone {
			break
		}
		result, err := l.transact(op, op.plan.landed)
		if err == nil && result == uint8(common.MAV_RESULT_ACCEPTED) {
			l.mu.Lock()
			if l.op == op && l.machine.mode == ModeLand {
				l.machine.accept(ModeLand, false, time.Now())
			}
			l.mu.Unlock()
			break
		}
		slog.Warn("the landing at the place was not accepted; trying again", "result", resultName(result), "error", err)
		if l.pause(op, landAgain) != nil {
			return
		}
	}
	l.mu.Lock()
	if l.op == op {
		l.op = nil
	}
	l.mu.Unlock()
}

// arrival is what an approach remembers between two looks.
type arrival struct {
	near     time.Time // since when it is within 5 m and slow
	failsafe bool      // one that was there already
}

// arrived reports whether op's vehicle is over its place, and ends op when it
// will not get there. l.mu is held.
func (l *link) arrived(op *operation, a *arrival, now time.Time) bool {
	t := &l.tel
	switch {
	case l.op != op:
		return false
	case l.machine.mode != ModeLand || !t.armed:
		l.op = nil
		return false
	case t.failsafe && !a.failsafe:
		l.machine.abandon()
		l.modeChanged("a failsafe on the way to the landing")
		l.op = nil
		return false
	}
	a.failsafe = t.failsafe
	if now.Sub(t.position.at) > freshPosition {
		a.near = time.Time{}
		return false
	}
	away := distance(t.position.lat, t.position.lon, op.plan.target.lat, op.plan.target.lon)
	if near := away <= 5 && t.velocity.ground < 1; !near { // NaN is not near
		a.near = time.Time{}
		return false
	}
	if a.near.IsZero() {
		a.near = now
	}
	return away <= 2 || now.Sub(a.near) >= 5*time.Second
}
