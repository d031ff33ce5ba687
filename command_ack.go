package main

import (
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Times of a command's copies and of questions (docs/design.md, "Commands and
// acks" and rule 8).
const (
	firstRepeat  = 150 * time.Millisecond // or one and a half round trips
	giveUp       = 2 * time.Second        // after the first copy
	lastLook     = 150 * time.Millisecond // of it, for the heartbeat that a 504 tells with
	lateCopy     = 250 * time.Millisecond // the last copy may have waited in the queue
	progressWait = 10 * time.Second       // after IN_PROGRESS
	modeGap      = 20 * time.Millisecond  // between the ack of a mode change and the next one
	modeUnacked  = 100 * time.Millisecond // after its last copy, where none came
	secondAck    = 300 * time.Millisecond // PX4's second ack of DO_SET_MODE
	questionWait = 50 * time.Millisecond  // or two round trips
	slowestTrip  = 200 * time.Millisecond // that is believed of a line that does not answer
)

// repeats are when the copies of a command go out, in first repeats after the
// first copy: gaps of 1, 5/3, 7/3 and 10/3.
var repeats = [...]float64{0, 1, 8. / 3, 5, 25. / 3}

// acks waits for COMMAND_ACKs, of commands and of questions (REQUEST_MESSAGE).
// An ack has no number: it names its command, and that is all.
type acks struct {
	say    func(message.Message) error // from us to the vehicle
	clear  func()                      // gets the autopilot's parser out of a broken frame
	system func() byte                 // the vehicle's
	vendor func() firmware

	waiting  map[common.MAV_CMD]*exchange
	owed     map[common.MAV_CMD]owedAcks
	trip     time.Duration // the round trip last measured
	question *question     // the one that is outstanding
	asked    time.Time     // when the last one was sent
	unheard  bool          // nothing answered it
	unsure   time.Time     // until then an answer may be an earlier one's
	heard    time.Time     // when the vehicle last answered anything of ours
	modeAt   time.Time     // not before it another mode change
}

// owedAcks counts the acks of a command id that are still on their way: until
// they came or are lost, an ack of that id says nothing of the next command.
type owedAcks struct {
	n     int
	until time.Time
}

// exchange is one command that waits for its acks.
type exchange struct {
	step   *step
	before uint32    // the mode's number when it was sent
	twice  bool      // PX4 acknowledges DO_SET_MODE twice; only the second ack tells
	own    bool      // no client asked for it: the mode alone tells
	skip   int       // acks that still belong to earlier commands
	until  time.Time // then they are lost
	copies int
	sent   time.Time // the first
	last   time.Time // the last

	accepted int
	refusal  *uint8    // the first ack that is not ACCEPTED
	first    time.Time // when the first ack came
	progress time.Time // when IN_PROGRESS came
}

func newAcks(say func(message.Message) error, clear func(), system func() byte, vendor func() firmware) *acks {
	return &acks{
		say: say, clear: clear, system: system, vendor: vendor,
		waiting: make(map[common.MAV_CMD]*exchange), owed: make(map[common.MAV_CMD]owedAcks),
	}
}

// open begins to wait for the acks of a step.
func (a *acks) open(s *step, before uint32) *exchange {
	x := &exchange{
		step: s, before: before,
		twice: s.cmd == common.MAV_CMD_DO_SET_MODE && a.vendor() == px4,
	}
	if o := a.owed[s.cmd]; time.Now().Before(o.until) {
		x.skip, x.until = o.n, o.until
	} else {
		delete(a.owed, s.cmd)
	}
	a.waiting[s.cmd] = x
	return x
}

// close ends the wait: what has not come is owed.
func (a *acks) close(x *exchange) {
	if a.waiting[x.step.cmd] == x {
		delete(a.waiting, x.step.cmd)
	}
	if x.step.enters && !x.first.IsZero() {
		a.modeAt = time.Now().Add(modeGap)
	}
}

// send sends a copy of the step. The waiter is there before.
func (a *acks) send(x *exchange) error {
	now := time.Now()
	if x.copies > 0 {
		a.clear()
	}
	if err := a.say(x.step.message(a.system(), uint8(x.copies))); err != nil {
		return err
	}
	if x.copies == 0 {
		x.sent = now
	}
	x.last = now
	x.copies++
	o := a.owed[x.step.cmd]
	o.n++
	if x.twice {
		o.n++
	}
	if until := x.sent.Add(giveUp + lateCopy); until.After(o.until) {
		o.until = until
	}
	a.owed[x.step.cmd] = o
	if x.step.enters {
		a.modeAt = now.Add(modeUnacked)
	}
	return nil
}

// hear takes an ack that the vehicle sent to us.
func (a *acks) hear(cmd common.MAV_CMD, result uint8, now time.Time) {
	a.heard = now
	if cmd == common.MAV_CMD_REQUEST_MESSAGE {
		a.hearAnswer(result, now)
		return
	}
	final := result != uint8(common.MAV_RESULT_IN_PROGRESS)
	if o := a.owed[cmd]; o.n > 0 {
		if final {
			o.n--
		} else {
			o.until = now.Add(progressWait)
		}
		a.owed[cmd] = o
	}
	x := a.waiting[cmd]
	if x != nil && !now.Before(x.until) {
		x.skip = 0
	}
	switch {
	case x == nil:
	case x.skip > 0 && final:
		x.skip--
	case x.skip > 0 || now.Before(x.sent): // an earlier command's
	case !final:
		if x.progress.IsZero() {
			x.progress = now
		}
	default:
		if x.first.IsZero() {
			x.first = now
			// Of several copies it may be the last one's; a question will tell.
			if trip := now.Sub(x.last); x.progress.IsZero() && (x.copies == 1 || trip > a.trip) {
				a.trip = trip
			}
		}
		if result == uint8(common.MAV_RESULT_ACCEPTED) {
			x.accepted++
		} else if x.refusal == nil {
			refusal := result // only this one is allocated
			x.refusal = &refusal
		}
	}
}

// hearAnswer takes the ack of a question. Soon after one that nobody answered in
// time it may be that one's, and only tells how long the line takes at least.
func (a *acks) hearAnswer(result uint8, now time.Time) {
	q, late := a.question, now.Before(a.unsure)
	trip := now.Sub(a.asked)
	switch {
	case trip < 0: // read from a line that stood still: it is of before
		return
	case late:
		a.trip = max(a.trip, min(trip, giveUp/2)) // a repeat must fit in
	case q != nil:
		a.trip = trip
	}
	if q != nil {
		a.unheard = false
		q.acked = true
		// PX4's message comes before the ack, ArduPilot's is the next one
		// (docs/autopilots.md, "PX4: heartbeat"). Refused, there is none.
		q.answer = result != uint8(common.MAV_RESULT_ACCEPTED) || q.came && a.vendor() == px4
		if q.answer { // else it waits for its message
			a.question = nil
		}
	}
}

// shows reports whether the vehicle has come into the step's mode since it was
// sent.
func (x *exchange) shows(custom uint32) bool {
	return x.step.enters && x.before != x.step.number && custom == x.step.number
}

// stands reports whether the vehicle is in the step's mode, new or not.
func (x *exchange) stands(custom uint32) bool { return x.step.enters && custom == x.step.number }

// proven reports whether the vehicle's mode answers the command: of a DO_SET_MODE
// or of mavrest's own command it is the answer, of another where an ack came too.
func (x *exchange) proven(custom uint32) bool {
	if x.stands(custom) && x.refusal == nil && x.accepted > 1 {
		return true
	}
	return x.shows(custom) && (x.own || x.step.cmd == common.MAV_CMD_DO_SET_MODE || x.accepted > 0 || x.refusal != nil)
}

// answered reports whether the acks alone are an answer.
func (x *exchange) answered() bool {
	if x.refusal != nil {
		return true
	}
	if x.twice && x.accepted < 2*x.copies {
		return false
	}
	return x.accepted > 0
}

// question is a REQUEST_MESSAGE (512). One of them is outstanding at a time: an
// ack does not tell which message it is of.
type question struct {
	message uint32
	at      time.Time // when it was sent
	until   time.Time // then it is given up
	came    bool      // the message, since
	acked   bool
	answer  bool // it is answered
}

// ask asks for a message, or returns nil while another question is outstanding
// or nothing can be sent.
func (a *acks) ask(id uint32, now time.Time) *question {
	a.tick(now)
	if a.question != nil {
		return nil
	}
	if a.unheard {
		a.clear()
	}
	s := a.vendor().command(common.MAV_CMD_REQUEST_MESSAGE, float32(id))
	if a.say(s.message(a.system(), 0)) != nil {
		return nil
	}
	a.asked = now
	a.question = &question{message: id, at: now, until: now.Add(max(questionWait, 2*a.trip))}
	return a.question
}

// came notes that a message came, asked for or not.
func (a *acks) came(id uint32, now time.Time) {
	q := a.question
	if q == nil || q.message != id || now.Before(q.at) {
		return
	}
	q.came = true
	if q.acked {
		q.answer = true
		a.heard = now
		a.question = nil
	}
}

// restarted forgets what the autopilot has forgotten: it answers nothing of before.
func (a *acks) restarted() {
	a.question = nil
	clear(a.owed)
}

// tick gives up a question that nobody answered. The line may be slower than it
// seemed, so the next one has more time.
func (a *acks) tick(now time.Time) {
	if q := a.question; q != nil && !now.Before(q.until) {
		if !q.acked {
			a.unheard, a.unsure = true, q.at.Add(giveUp)
			a.trip = min(max(2*a.trip, questionWait/2), max(slowestTrip, a.trip))
		}
		a.question = nil
	}
}
