package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// The oracle of the random world (world_test.go). It judges a flight from outside: by what mavrest sent and heard, by
// what its clients asked and were answered, by its status, and by where the simulated vehicle really was. It asks
// nothing of mavrest's insides. All that was seen stands in a book; when the flight is over each law reads the book.
//
// A law claims only what is always true, and says it in its sentence. A law that would need an exception claims less.

// stamp is when something was seen. n orders what was seen in one instant.
type stamp struct {
	at time.Time
	n  int
}

// seenCommand is a command that mavrest wrote to its port, and where the vehicle was at that moment.
type seenCommand struct {
	stamp
	cmd   common.MAV_CMD
	isInt bool
	p     [7]float32 // z of a COMMAND_INT is p[6]
	x, y  int32
	copy  uint8 // of a COMMAND_LONG: its confirmation
	truth simState
	clear bool // the drone was once clear of the ground since mavrest heard that it stood there
}

// seenSticks are sticks that mavrest wrote.
type seenSticks struct {
	stamp
	axes
}

// seenBeat is a HEARTBEAT that mavrest heard from its vehicle.
type seenBeat struct {
	stamp
	custom          uint32
	armed, critical bool
}

// seenMode is a CURRENT_MODE that mavrest heard.
type seenMode struct {
	stamp
	custom uint32
}

// seenAck is an ack of its vehicle that mavrest heard.
type seenAck struct {
	stamp
	cmd    common.MAV_CMD
	result common.MAV_RESULT
}

// seenHome is a HOME_POSITION that mavrest heard.
type seenHome struct {
	stamp
	amsl float64
}

// seenState is an EXTENDED_SYS_STATE that mavrest heard.
type seenState struct {
	stamp
	known  bool // it says how a VTOL flies
	wing   bool // a VTOL is on its wing, or on its way to it
	ground bool // it stands on the ground
}

// seenQuestion is a REQUEST_MESSAGE that mavrest wrote.
type seenQuestion struct {
	stamp
	id uint32
}

// seenPlace is a GLOBAL_POSITION_INT that mavrest heard, and its place in metres from the start.
type seenPlace struct {
	stamp
	north, east float64
	said        *common.MessageGlobalPositionInt
}

// seenAsk is a request of a client, with its answer.
type seenAsk struct {
	client       int
	method, path string
	body         string
	fields       object
	began, ended stamp // ended is zero while there is no answer
	code         int
	answer       object
	from, to     simState // the vehicle at the begin and at the end
	vtol, toVTOL common.MAV_VTOL_STATE
}

// seenLook is a status, and the vehicle at that moment.
type seenLook struct {
	stamp
	status object
	truth  simState
	unsaid []string // values of the status that are not those of the vehicle's last messages
}

// troubleKind is who makes trouble.
type troubleKind int

const (
	lineTrouble    troubleKind = iota // bytes or acks are lost, late or damaged, or the port fails
	craftTrouble                      // the vehicle refuses, does nothing, or starts again
	foreignTrouble                    // a pilot, a failsafe, another program
)

// trouble is something that others than the clients do to a flight.
type trouble struct {
	kind        troubleKind
	name        string
	from, until time.Time // until is zero while it lasts
}

// book is all that was seen of a flight.
type book struct {
	flavour  simFlavour
	firmware firmware
	liar     bool // the vehicle is not what it calls itself

	mu        sync.Mutex
	n         int
	commands  []*seenCommand
	questions []seenQuestion
	sticks    []seenSticks
	beats     []seenBeat
	modes     []seenMode
	acks      []seenAck
	homes     []seenHome
	states    []seenState
	last      map[uint32][2]message.Message // the last two of each kind that mavrest heard
	results   []seenAck                     // what the vehicle itself answered, whatever became of that
	asks      []*seenAsk
	looks     []seenLook
	entered   []seenMode // the modes that the vehicle really entered
	troubles  []*trouble
	clear     bool
	ground    float64         // the height at which it stood then, or landed
	landsAt   time.Time       // it said last that it lands; zero: it did not
	places    []seenPlace     // the places that mavrest heard
	emitted   map[uint64]bool // what somebody on the line sent to mavrest
	strange   []string        // what mavrest heard and nobody sent
	written   map[uint64]bool // what mavrest wrote
	forged    []string        // what the vehicle received and mavrest never wrote
}

func newBook(flavour simFlavour) *book {
	return &book{flavour: flavour, firmware: firmwares[flavour],
		last: map[uint32][2]message.Message{}, emitted: map[uint64]bool{}, written: map[uint64]bool{}}
}

// now is the next moment of the book. Its mutex is held.
func (b *book) now() stamp {
	b.n++
	return stamp{time.Now(), b.n}
}

func hashOf(id uint32, payload []byte) uint64 {
	h := fnv.New64a()
	h.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16)})
	h.Write(payload)
	return h.Sum64()
}

// messageHash is that of a message's payload, as version 2 sends it.
func messageHash(m message.Message) (hash uint64, ok bool) {
	rw := dialectRW.GetMessage(m.GetID())
	if _, raw := m.(*message.MessageRaw); raw || rw == nil {
		return 0, false
	}
	return hashOf(m.GetID(), rw.Write(m, true).Payload), true
}

// frameHash is the same of a frame on the line. A version 1 frame may end in zeros, which version 2 leaves out.
func frameHash(f wireFrame) uint64 {
	p := f.payload
	for len(p) > 1 && p[len(p)-1] == 0 {
		p = p[:len(p)-1]
	}
	return hashOf(f.id, p)
}

// wrote takes what mavrest writes to its port. truth is the vehicle now.
func (b *book) wrote(raw []byte, truth func() simState) {
	if len(raw) < 12 || raw[0] == 0 {
		return
	}
	for _, m := range parseLine(raw) {
		state := truth()
		b.mu.Lock()
		b.wroteMessage(m.msg, state)
		b.mu.Unlock()
	}
}

func (b *book) wroteMessage(m message.Message, truth simState) {
	at := b.now()
	if h, ok := messageHash(m); ok {
		b.written[h] = true
	}
	switch m := m.(type) {
	case *common.MessageManualControl:
		b.sticks = append(b.sticks, seenSticks{at, axes{m.X, m.Y, m.Z, m.R}})
	case *common.MessageCommandLong:
		switch m.Command {
		case common.MAV_CMD_REQUEST_MESSAGE:
			b.questions = append(b.questions, seenQuestion{at, uint32(m.Param1)})
		case common.MAV_CMD_SET_MESSAGE_INTERVAL, common.MAV_CMD_RUN_PREARM_CHECKS:
		default:
			b.commands = append(b.commands, &seenCommand{stamp: at, cmd: m.Command, copy: m.Confirmation, truth: truth,
				p: [7]float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Param5, m.Param6, m.Param7}, clear: b.clear})
		}
	case *common.MessageCommandInt:
		b.commands = append(b.commands, &seenCommand{stamp: at, cmd: m.Command, isInt: true, truth: truth,
			p: [7]float32{m.Param1, m.Param2, m.Param3, m.Param4, 0, 0, m.Z}, x: m.X, y: m.Y, clear: b.clear})
	}
}

// hears takes what mavrest hears from its vehicle, just before it does.
func (b *book) hears(h heard, truth simState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.now()
	if hash, ok := messageHash(h.msg); ok && !b.emitted[hash] {
		b.strange = append(b.strange, fmt.Sprintf("%T %+v", h.msg, h.msg))
	}
	b.last[h.msg.GetID()] = [2]message.Message{h.msg, b.last[h.msg.GetID()][0]}
	switch m := h.msg.(type) {
	case *minimal.MessageHeartbeat:
		if !h.ordered { // it may be older than the one before
			break
		}
		b.beats = append(b.beats, seenBeat{at, m.CustomMode, m.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0,
			m.SystemStatus >= minimal.MAV_STATE_CRITICAL})
	case *common.MessageCurrentMode:
		b.modes = append(b.modes, seenMode{at, m.CustomMode})
	case *common.MessageCommandAck:
		if m.TargetComponent != componentID && m.TargetComponent != 0 || m.TargetSystem > 1 {
			break // it answers somebody else
		}
		b.acks = append(b.acks, seenAck{at, m.Command, m.Result})
	case *common.MessageHomePosition:
		b.homes = append(b.homes, seenHome{at, float64(m.Altitude) / 1000})
	case *common.MessageExtendedSysState:
		if m.LandedState == common.MAV_LANDED_STATE_ON_GROUND {
			b.clear, b.ground = false, truth.alt
		}
		b.landsAt = time.Time{}
		if m.LandedState == common.MAV_LANDED_STATE_LANDING {
			b.landsAt = at.at
		}
		vtol := m.VtolState
		wing := vtol == common.MAV_VTOL_STATE_FW || vtol == common.MAV_VTOL_STATE_TRANSITION_TO_FW
		b.states = append(b.states, seenState{at, vtol != 0, wing, m.LandedState == common.MAV_LANDED_STATE_ON_GROUND})
	case *common.MessageGlobalPositionInt:
		n, e := simMetres(float64(m.Lat)/1e7, float64(m.Lon)/1e7)
		b.places = append(b.places, seenPlace{at, n, e, m})
		alt := truth.alt
		if !b.quiet(at.at.Add(-10*time.Second), at.at, lineTrouble) { // it may have left long ago
			alt = float64(m.Alt)/1000 - simHomeAlt
		}
		if at.at.Sub(b.landsAt) < freshFor {
			b.clear, b.ground = false, alt
		}
		b.ground = min(b.ground, alt) // the ground of a landing that has ended may be lower
		b.clear = b.clear || alt-b.ground > b.clearAt()-0.3
	}
}

// clearAt is how high the vehicle is clear of the ground, at least.
func (b *book) clearAt() float64 {
	if b.flavour == simPX4Plane || b.flavour == simPlane {
		return 10
	}
	return 2
}

// readOnly reports whether the vehicle's values are shown as a stranger's: it has answered nothing.
func (l *seenLook) readOnly() bool {
	vehicle, _ := l.status["vehicle"].(object)
	modes, ok := vehicle["modes"].([]any)
	return ok && len(modes) == 0
}

// looked puts a status into the book. A message that was heard in its instant may be in it or not.
func (b *book) looked(a *seenAsk) {
	b.mu.Lock()
	defer b.mu.Unlock()
	values := sentValues{}
	for _, two := range b.last {
		values.addMessage(two[0])
		values.addMessage(two[1])
	}
	l := seenLook{a.ended, a.answer, a.to, nil}
	for _, unsaid := range values.neverSent(a.answer, 0) {
		reported := strings.HasPrefix(unsaid, "custom mode") || strings.HasPrefix(unsaid, "heartbeat")
		place := strings.HasPrefix(unsaid, "position") || strings.HasPrefix(unsaid, "velocity")
		unsure := place && (b.liar || l.readOnly())
		if !reported && !unsure { // these are reports: modeIsTrue, statusIsTrue
			l.unsaid = append(l.unsaid, unsaid)
		}
	}
	b.looks = append(b.looks, l)
}

// enters takes a mode that the vehicle really enters.
func (b *book) enters(custom uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entered = append(b.entered, seenMode{b.now(), custom})
}

// answers takes the vehicle's own answer to a command.
func (b *book) answers(a *common.MessageCommandAck) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results = append(b.results, seenAck{b.now(), a.Command, a.Result})
}

// received takes what came to the vehicle.
func (b *book) received(list []simReceived) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range list {
		if hash, ok := messageHash(r.msg); ok && !b.written[hash] {
			b.forged = append(b.forged, fmt.Sprintf("%T %+v", r.msg, r.msg))
		}
	}
}

// begins notes a trouble that lasts until ends, or for an instant.
func (b *book) begins(kind troubleKind, name string, lasts bool) *trouble {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &trouble{kind: kind, name: name, from: time.Now()}
	if !lasts {
		t.until = t.from
	}
	b.troubles = append(b.troubles, t)
	return t
}

// ends ends all troubles of these names that still last.
func (b *book) ends(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.troubles {
		if t.until.IsZero() && slices.Contains(names, t.name) {
			t.until = time.Now()
		}
	}
}

// aftermath is how long a trouble may still act after its end.
const aftermath = 6 * time.Second

// quiet reports whether there was no trouble of these kinds from a time until another, nor a moment before.
func (b *book) quiet(from, to time.Time, kinds ...troubleKind) bool {
	return !slices.ContainsFunc(b.troubles, func(t *trouble) bool {
		over := !t.until.IsZero() && t.until.Add(aftermath).Before(from)
		return slices.Contains(kinds, t.kind) && !over && !t.from.After(to)
	})
}

// calm reports whether there was no trouble at all since the flight began: then times are exact.
func (b *book) calm(to time.Time) bool {
	return b.quiet(time.Time{}, to, lineTrouble, craftTrouble, foreignTrouble)
}

// had reports whether a trouble with one of these names touches a time.
func (b *book) had(from, to time.Time, names ...string) bool {
	return slices.ContainsFunc(b.troubles, func(t *trouble) bool {
		over := !t.until.IsZero() && t.until.Before(from)
		return !over && !t.from.After(to) && slices.ContainsFunc(names, func(n string) bool {
			return strings.HasPrefix(t.name, n)
		})
	})
}

// before is the last one of a list that was seen before a moment; nil if there is none.
func before[T any](list []T, when func(*T) stamp, n int) *T {
	i, _ := slices.BinarySearchFunc(list, n, func(x T, n int) int { return when(&x).n - n })
	if i == 0 {
		return nil
	}
	return &list[i-1]
}

func (b *book) beatBefore(n int) *seenBeat {
	return before(b.beats, func(x *seenBeat) stamp { return x.stamp }, n)
}

func (b *book) sticksBefore(n int) *seenSticks {
	return before(b.sticks, func(x *seenSticks) stamp { return x.stamp }, n)
}

func (b *book) modeBefore(n int) *seenMode {
	return before(b.modes, func(x *seenMode) stamp { return x.stamp }, n)
}

// state is what the vehicle said last of its wing and of the ground.
func (b *book) state(s stamp) seenState {
	last := before(b.states, func(x *seenState) stamp { return x.stamp }, s.n)
	if last == nil {
		return seenState{}
	}
	return *last
}

// onWing reports whether a VTOL said last that it is on its wing, or on its way to it.
func (b *book) onWing(s stamp) bool { return b.state(s).wing }

// name is the autopilot's own name of a mode.
func (b *book) name(custom uint32) string {
	_, name := b.firmware.reported(custom)
	return name
}

func (c *seenCommand) same(o *seenCommand) bool {
	same := c.cmd == o.cmd && c.isInt == o.isInt && c.x == o.x && c.y == o.y
	for i := range c.p {
		same = same && math.Float32bits(c.p[i]) == math.Float32bits(o.p[i])
	}
	return same
}

func (c *seenCommand) String() string {
	return fmt.Sprintf("%v %v", c.cmd, c.p)
}

// goal is the number of the mode that a command leads to; ok is false if it sets none.
func (b *book) goal(c *seenCommand) (custom uint32, ok bool) {
	switch {
	case c.cmd == common.MAV_CMD_DO_SET_MODE && b.firmware == px4:
		return px4Custom(uint32(c.p[1]), uint32(c.p[2])), true
	case c.cmd == common.MAV_CMD_DO_SET_MODE:
		return uint32(c.p[1]), true
	case c.cmd == common.MAV_CMD_NAV_TAKEOFF:
		return entered[b.firmware][ModeTakeoff], true
	case c.cmd == common.MAV_CMD_DO_REPOSITION:
		return entered[b.firmware][ModeHold], true
	}
	return 0, false
}

// first reports whether a command is no copy of the one before it.
func (b *book) first(i int) bool { return b.original(i) == i }

// acked reports whether an ack for a command's number came behind it, and before another one.
func (b *book) acked(o, next *seenCommand) bool {
	return slices.ContainsFunc(b.acks, func(x seenAck) bool {
		return x.cmd == o.cmd && x.result != common.MAV_RESULT_IN_PROGRESS && x.at.After(o.at) && x.at.Before(next.at)
	})
}

// original is the index of the command whose copy commands[i] is; i if it is none.
func (b *book) original(i int) int {
	c := b.commands[i]
	if !c.isInt && c.copy == 0 {
		return i
	}
	for j := i - 1; j >= 0 && c.at.Sub(b.commands[j].at) < 3*time.Second; j-- {
		o := b.commands[j]
		asked := slices.ContainsFunc(b.asks, func(a *seenAsk) bool {
			return a.isCommand() && a.began.n > o.n && a.began.n < c.n
		})
		if c.isInt && (asked || b.askedTwice(o, c) || c.at.Sub(o.at) > 900*time.Millisecond) {
			return i // another request's: it has no number
		}
		if c.isInt && (c.at.Sub(o.at) < copyEvery/2 || b.acked(o, c)) && b.climbsFirst(o) {
			return i // the goto, to where the drone has just been sent up
		}
		if o.same(c) {
			return b.original(j)
		}
	}
	return i
}

// askedTwice reports whether two requests with the same words were open when one of two commands went out.
func (b *book) askedTwice(o, c *seenCommand) bool {
	open := map[string]int{}
	for _, a := range b.asks {
		if a.isCommand() && a.began.n < c.n && (a.ended.n == 0 || a.ended.n > o.n) {
			open[a.path+" "+a.body]++
			if open[a.path+" "+a.body] > 1 {
				return true
			}
		}
	}
	return false
}

// explains reports whether a command of mavrest's since some moment may be the cause of a report. It says so too often
// rather than too rarely: of the commands of the last 5 s, and of the last one before them that the vehicle obeyed.
func (b *book) explains(custom uint32, since int, at stamp) bool {
	for i := len(b.commands) - 1; i >= 0; i-- {
		c := b.commands[i]
		to, ok := b.goal(c)
		if !ok || c.n > at.n {
			continue
		}
		if c.n < since {
			return false
		}
		ends := c.cmd == common.MAV_CMD_NAV_TAKEOFF && b.firmware == px4 && custom == entered[px4][ModeHold]
		if to == custom || ends {
			return true
		}
		if at.at.Sub(c.at) > 5200*time.Millisecond && b.obeyed(c, to, at) {
			return false
		}
	}
	return false
}

// obeyed reports whether an ack and a report showed that the vehicle obeyed a command.
func (b *book) obeyed(c *seenCommand, to uint32, until stamp) bool {
	acked := slices.ContainsFunc(b.acks, func(a seenAck) bool {
		return a.n > c.n && a.n < until.n && a.cmd == c.cmd && a.result == common.MAV_RESULT_ACCEPTED &&
			a.at.Sub(c.at) < time.Second
	})
	shown := slices.ContainsFunc(b.beats, func(x seenBeat) bool {
		return x.n > c.n && x.n < until.n && x.custom == to && x.at.Sub(c.at) < time.Second
	})
	return acked && shown
}

// foreignChange is a report that no command of mavrest's explains, while the vehicle is armed, or a failsafe.
type foreignChange struct {
	stamp
	custom uint32
	until  stamp // a client asked for a command then, or was told that it is obeyed; n is 0 if none
}

func (f foreignChange) covers(s stamp) bool {
	return s.at.After(f.at) && (f.until.n == 0 || s.n < f.until.n && s.at.Before(f.until.at))
}

// takeovers are the reports of which it is certain that mavrest must take them for a takeover.
func (b *book) takeovers() (list []foreignChange) {
	last := 0 // it ends the claims of all commands before it
	for i := 1; i < len(b.beats); i++ {
		was, is := b.beats[i-1], b.beats[i]
		other := slices.ContainsFunc(b.modes, func(m seenMode) bool { // then this HEARTBEAT may be the older one
			return m.n < is.n && is.at.Sub(m.at) < 2*time.Second && m.custom != is.custom
		})
		changed := is.custom != was.custom && !b.explains(is.custom, last, is.stamp) && !other
		failing := is.critical && !was.critical && !other
		if !was.armed || !is.armed || !(changed || failing) {
			continue
		}
		last = is.n
		f := foreignChange{stamp: is.stamp, custom: is.custom}
		for _, a := range b.asks {
			if !a.isCommand() {
				continue
			}
			obeyed := a.began.n < is.n && a.ended.n > is.n && a.code == 200 // the vehicle obeyed it after the pilot
			if a.began.n > is.n && (f.until.n == 0 || a.began.n < f.until.n) {
				f.until = a.began
			} else if obeyed && (f.until.n == 0 || a.ended.n < f.until.n) {
				f.until = a.ended
			}
		}
		if !b.quiet(is.at, is.at, lineTrouble) { // what waited for a port that hung goes out up to 0.3 s later
			f.at = f.at.Add(400 * time.Millisecond)
		}
		list = append(list, f)
	}
	return list
}

// isCommand reports whether a client asked for a command, not for a status and not by sticks.
func (a *seenAsk) isCommand() bool { return a.method == "POST" && a.path != "/input" }

// isInput reports whether it sent sticks.
func (a *seenAsk) isInput() bool { return a.path == "/input" }

// pending reports whether a request had no answer at a moment.
func (a *seenAsk) pending(s stamp) bool {
	return a.began.n < s.n && (a.ended.n == 0 || a.ended.n > s.n)
}

func (a *seenAsk) String() string {
	return fmt.Sprintf("%s %s %s: %d %v %v", a.method, a.path, a.body, a.code, a.answer["code"], a.answer["error"])
}

// has reports whether the body has a field.
func (a *seenAsk) has(name string) bool { return a.fields[name] != nil }

// number is a field of the body; NaN if it has none.
func (a *seenAsk) number(name string) float64 {
	v, ok := a.fields[name].(float64)
	if !ok {
		return math.NaN()
	}
	return v
}

// inMetres reports whether a goto counts from where the vehicle is.
func (a *seenAsk) inMetres() bool {
	return slices.ContainsFunc([]string{"north", "east", "forward", "right", "up"}, a.has)
}

// metres is a field of a goto in metres; 0 if it has none.
func (a *seenAsk) metres(name string) float64 {
	if !a.has(name) {
		return 0
	}
	return a.number(name)
}

// timeout is that of an input.
func (a *seenAsk) timeout() time.Duration {
	if !a.has("timeout") {
		return 500 * time.Millisecond
	}
	return time.Duration(a.number("timeout") * float64(time.Second))
}

// wishes is the mode that a request asks for; ok is false if it only arms.
func (a *seenAsk) wishes() (mode Mode, ok bool) {
	switch a.path {
	case "/takeoff":
		return ModeTakeoff, true
	case "/goto":
		return ModeHold, true
	case "/land":
		return ModeLand, true
	}
	name, _ := a.fields["mode"].(string)
	return parseMode(name)
}

// shownBy are the numbers that show that a request was obeyed.
func (b *book) shownBy(a *seenAsk) (list []uint32) {
	mode, ok := a.wishes()
	if !ok {
		return nil
	}
	list = []uint32{entered[b.firmware][mode]}
	if mode == ModeTakeoff && b.firmware == px4 || mode == ModeLand && a.has("lat") {
		list = append(list, entered[b.firmware][ModeHold])
	}
	return list
}

// alone reports whether no other command was under way while this one was.
func (b *book) alone(a *seenAsk) bool {
	return !slices.ContainsFunc(b.asks, func(o *seenAsk) bool {
		return o != a && o.isCommand() && o.began.n < a.ended.n && (o.ended.n == 0 || o.ended.n > a.began.n)
	})
}

// call makes a client's request and puts it into the book.
func (b *book) call(f *flight, client int, method, path, body string) *seenAsk {
	a := &seenAsk{client: client, method: method, path: path, body: body, from: f.sim.truth()}
	json.Unmarshal([]byte(body), &a.fields)
	f.sim.change(func() { a.vtol = f.sim.vtol })
	b.mu.Lock()
	b.asks = append(b.asks, a)
	a.began = b.now()
	b.mu.Unlock()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/api/drone"+path, strings.NewReader(body))
	r.Host = "localhost"
	r.RemoteAddr = fmt.Sprintf("192.0.2.%d:999", 1+client)
	f.diary.asked(method, path, body)
	f.handler.ServeHTTP(w, r)
	var o object
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
		f.Errorf("%s %s answered %q: %v", method, path, w.Body, err)
	}
	f.diary.answered(method, path, w.Code, o)
	truth := f.sim.truth()
	f.sim.change(func() { a.toVTOL = f.sim.vtol })
	b.mu.Lock()
	defer b.mu.Unlock()
	a.code, a.answer, a.to, a.ended = w.Code, o, truth, b.now()
	return a
}

// law is a rule that each flight must keep.
type law struct {
	says    string // what is always true
	heading string // of docs/design.md, where the rule stands
	judge   func(b *book, wrong verdict)
}

// verdict is told what was against a law, and when.
type verdict func(at time.Time, format string, args ...any)

// judge reads the book by each law, and returns what was wrong, and when that began.
func (b *book) judge(began time.Time) (wrongs []string, first time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range laws {
		n := 0
		l.judge(b, func(at time.Time, format string, args ...any) {
			if n++; n > 2 {
				return
			}
			if first.IsZero() || at.Before(first) {
				first = at
			}
			wrongs = append(wrongs, fmt.Sprintf("at %.3f: %s\n    the law: %s (docs/design.md, %q)",
				at.Sub(began).Seconds(), fmt.Sprintf(format, args...), l.says, l.heading))
		})
	}
	return wrongs, first
}
