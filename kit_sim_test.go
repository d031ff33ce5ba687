package main

// The simulator's switches for tests, a companion board that flies it without mavrest, and the noise of a line.

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

const (
	simAccepted    = common.MAV_RESULT_ACCEPTED
	simRejected    = common.MAV_RESULT_TEMPORARILY_REJECTED
	simDenied      = common.MAV_RESULT_DENIED
	simUnsupported = common.MAV_RESULT_UNSUPPORTED
	simFailed      = common.MAV_RESULT_FAILED

	simSetMode = common.MAV_CMD_DO_SET_MODE
	simArm     = common.MAV_CMD_COMPONENT_ARM_DISARM
	simTakeoff = common.MAV_CMD_NAV_TAKEOFF
	simGoto    = common.MAV_CMD_DO_REPOSITION
)

// wing moves a vehicle on its wing: the velocity follows at once, a climb by 2 m/s².
func (q *simQuad) wing(vn, ve, vu, dt float64) {
	q.an, q.ae = (vn-q.vn)/dt, (ve-q.ve)/dt
	q.vn, q.ve = vn, ve
	q.vu += max(-2*dt, min(2*dt, vu-q.vu))
	q.north += q.vn * dt
	q.east += q.ve * dt
	q.up += q.vu * dt
}

// ---- Switches of a simulator for tests ----

// simState is the vehicle's real state.
type simState struct {
	lat, lon, alt float64 // degrees, metres above home
	above         float64 // metres above the ground below it
	vn, ve, vd    float64 // m/s
	heading       float64 // degrees, 0…360
	armed         bool
	mode          uint32
	landed        common.MAV_LANDED_STATE
	failsafe      bool
}

// simSwitches are what tests change of the line and of the autopilot, before run or inside change.
type simSwitches struct {
	simLine
	of *simulator

	// onAck returns what is sent in place of an ack; nil: acks go out as they are.
	onAck func(ack *common.MessageCommandAck) []simAnswer

	// onMode is called when a mode is entered, also the present one.
	onMode func(custom uint32)

	// noBeatsUntil: it sends no heartbeats until then.
	noBeatsUntil time.Time

	// idle: it accepts flight commands and does nothing.
	idle bool

	// neverDone: it answers IN_PROGRESS for ever.
	neverDone map[common.MAV_CMD]bool

	// refuses: it answers FAILED and does nothing.
	refuses map[common.MAV_CMD]bool

	// refusesModes are ArduPilot's modes that it refuses, as without a position.
	refusesModes []uint32

	// record is what came from the companion, the oldest first.
	record []simReceived
}

// simRecord is how many received messages are kept.
const simRecord = 10_000

// simReceived is a message that came from the companion board.
type simReceived struct {
	at                time.Time
	system, component uint8
	msg               message.Message
}

// newTestSimulator returns a simulator with switches.
func newTestSimulator(flavour simFlavour) *simulator {
	s := newSimulator(flavour)
	s.meddler = &simSwitches{
		of:        s,
		neverDone: make(map[common.MAV_CMD]bool),
		refuses:   make(map[common.MAV_CMD]bool),
	}
	return s
}

// switches are the simulator's switches.
func (s *simulator) switches() *simSwitches { return s.meddler.(*simSwitches) }

func (w *simSwitches) line() *simLine { return &w.simLine }

func (w *simSwitches) heard(system, component uint8, msg message.Message) {
	if len(w.record) == simRecord {
		w.record = slices.Clone(w.record[simRecord/2:])
	}
	w.record = append(w.record, simReceived{time.Now(), system, component, msg})
}

func (w *simSwitches) entering(custom uint32) {
	if w.onMode != nil {
		w.onMode(custom)
	}
}

func (w *simSwitches) acked(ack *common.MessageCommandAck) []simAnswer {
	if w.onAck == nil {
		return []simAnswer{{ack: ack}}
	}
	return w.onAck(ack)
}

// withholds reports whether a message is not sent now: a heartbeat until noBeatsUntil.
func (w *simSwitches) withholds(id uint32) bool { return id == 0 && !time.Now().After(w.noBeatsUntil) }

func (w *simSwitches) obeyed(c simCommand) bool {
	asks := c.id == common.MAV_CMD_SET_MESSAGE_INTERVAL || c.id == common.MAV_CMD_REQUEST_MESSAGE
	setsMode := c.id == common.MAV_CMD_DO_SET_MODE
	switch {
	case w.neverDone[c.id]:
		w.of.ack(c, common.MAV_RESULT_IN_PROGRESS)
	case w.refuses[c.id] || (setsMode && slices.Contains(w.refusesModes, uint32(c.p[1]))):
		w.of.ack(c, common.MAV_RESULT_FAILED)
	case w.idle && !asks:
		w.of.ack(c, common.MAV_RESULT_ACCEPTED)
		if setsMode && w.of.isPX4() && w.of.version >= simPX4v16 {
			w.of.ack(c, common.MAV_RESULT_ACCEPTED) // PX4's second ack: see setMode
		}
	default:
		return false
	}
	return true
}

// openGCS returns the ground station's end of a cable to another port of the
// autopilot. It stays open until the simulator ends.
func (s *simulator) openGCS() port {
	s.change(func() {
		s.gcsPort = newSimPort(s)
		for id, every := range s.streams {
			s.streamOn(true, id, every) // true: on this cable
		}
	})
	return s.gcsPort
}

// reboot restarts the autopilot, on the ground at home. With inFlight the vehicle flies on, as
// after a watchdog reset.
func (s *simulator) reboot(inFlight bool) {
	s.change(func() {
		if !inFlight {
			s.reset()
		}
		s.boot()
	})
}

// pilotMode sets a mode as a pilot's switch does: without checks and without an ack.
func (s *simulator) pilotMode(custom uint32) {
	s.change(func() {
		s.failsafe, s.pending = false, nil
		s.enter(custom)
	})
}

// pilotSticks moves the pilot's own sticks: x, y, r ±1000, z 0…1000.
func (s *simulator) pilotSticks(x, y, z, r int16) {
	s.change(func() { s.rc = [4]int16{x, y, z, r} })
}

// pilotSwitch moves the transmitter's mode switch. PX4 obeys it while the transmitter is its
// source of sticks, ArduPilot while it hears the transmitter.
func (s *simulator) pilotSwitch(us uint16, custom uint32) {
	s.change(func() {
		s.rcSwitch = us
		px4, isPX4 := s.brain.(*simPX4Brain)
		if s.receiver.live() && (!isPX4 || px4.source == &px4.transmitter) {
			s.failsafe, s.pending = false, nil
			s.enter(custom)
		}
	})
}

// setReceiver changes the state of the vehicle's receiver. A transmitter that comes on has
// centred sticks; an idle one has a low throttle.
func (s *simulator) setReceiver(to simReceiver) {
	s.change(func() {
		s.receiver = to
		switch to {
		case simReceiverIdle:
			s.rc = [4]int16{}
		case simReceiverInHand:
			s.rc = [4]int16{0, 0, 500, 0}
		}
	})
}

// pilotArm arms or disarms as a pilot does, without checks.
func (s *simulator) pilotArm(arm bool) {
	s.change(func() {
		if arm {
			s.arm()
		} else {
			s.disarm()
		}
	})
}

// failsafeReturn begins a failsafe, as of the battery, that flies home.
func (s *simulator) failsafeReturn() {
	s.change(func() {
		s.pending, s.failsafe = nil, true
		s.enter(s.rtl)
		s.brain.text(common.MAV_SEVERITY_CRITICAL, "Failsafe: returning home")
	})
}

// placeInAir puts the vehicle over home at alt metres, armed and holding.
func (s *simulator) placeInAir(alt float64) {
	s.change(func() {
		s.reset()
		s.mode = s.hold
		s.quad.up = alt
		s.armed, s.armedAt, s.airborne = true, time.Now(), true
		s.flight.stay()
	})
}

// placeAt moves the vehicle to a latitude and longitude, in degrees.
func (s *simulator) placeAt(lat, lon float64) {
	s.change(func() {
		s.quad.north, s.quad.east = simMetres(lat, lon)
		s.flight.stay()
	})
}

// obeyedAxes are the sticks that the autopilot obeys: −1 to 1, z 0 to 1 with 0.5 in the middle.
func (s *simulator) obeyedAxes() (x, y, z, r float64) {
	return s.brain.(interface{ axes() (x, y, z, r float64) }).axes()
}

// emit sends a message to the companion as if from these ids.
func (s *simulator) emit(system, component uint8, msg message.Message) {
	s.change(func() { s.sendFrom(system, component, false, msg) })
}

// say sends a STATUSTEXT as the autopilot would.
func (s *simulator) say(severity common.MAV_SEVERITY, text string) {
	s.change(func() { s.brain.text(severity, text) })
}

// received returns what came from the companion, oldest first.
func (s *simulator) received() []simReceived {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.switches().record)
}

// truth returns what the vehicle really does.
func (s *simulator) truth() simState {
	s.mu.Lock()
	defer s.mu.Unlock()
	lat, lon := simPlace(s.quad.north, s.quad.east)
	return simState{
		lat: lat, lon: lon, alt: s.quad.up, above: s.quad.up - s.ground(),
		vn: s.quad.vn, ve: s.quad.ve, vd: -s.quad.vu, heading: s.quad.degrees(),
		armed: s.armed, mode: s.mode, landed: s.landed(), failsafe: s.failsafe,
	}
}

func (s *simulator) plug() { s.change(func() { s.unplugged = false }) }

// stallWrites makes the companion's writes hang until it is called with false
// or the port is closed.
func (s *simulator) stallWrites(on bool) {
	s.change(func() {
		if s.switches().stall != nil {
			close(s.switches().stall)
			s.switches().stall = nil
		}
		if on {
			s.switches().stall = make(chan struct{})
		}
	})
}

// ---- The companion board of a test ----

// simBoard is a companion board at the other end of a simulator's line.
type simBoard struct {
	*simulator
	t                 *testing.T
	link              *factLink
	system, component uint8          // the ids that it sends with
	began             time.Time      // when the vehicle booted
	asked             common.MAV_CMD // the last command of a script
}

// simFlight runs test with a simulator that has booted, in virtual time.
// prepare, if any, sets switches before the boot.
func simFlight(t *testing.T, flavour simFlavour, prepare func(*simulator), test func(*simBoard)) {
	t.Helper()
	inLinkBubble(t, func(t *testing.T) {
		s := newTestSimulator(flavour)
		if prepare != nil {
			prepare(s)
		}
		end, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		b := &simBoard{simulator: s, t: t, link: newFactLink(end, 1, 191), began: time.Now()}
		b.as(1, 191)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		wg.Go(b.link.listen)
		defer wg.Wait()
		defer cancel()
		test(b)
	})
}

// heard returns the messages since the last forget, oldest first.
func (b *simBoard) heard() []factHeard { return b.link.since(b.began) }

// count returns how many messages with this id were heard.
func (b *simBoard) count(id uint32) (n int) {
	for _, h := range b.heard() {
		if h.msg.GetID() == id {
			n++
		}
	}
	return n
}

// forget drops the messages that were heard so far.
func (b *simBoard) forget() {
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	b.link.got = nil
}

func (b *simBoard) write(msg message.Message) { b.link.sendAs(b.system, b.component, msg) }

// simLast returns the newest message of type M, waiting 2.5 s for it first.
func simLast[M message.Message](b *simBoard) (m M) {
	b.t.Helper()
	time.Sleep(2500 * time.Millisecond)
	all := simAll[M](b)
	if len(all) == 0 {
		b.t.Fatalf("no %T", m)
	}
	return all[len(all)-1]
}

// simAll returns the messages of type M that were heard, oldest first.
func simAll[M message.Message](b *simBoard) []M { return factSince[M](b.link, b.began) }

// texts joins the STATUSTEXTs that were heard.
func (b *simBoard) texts() string {
	var text strings.Builder
	for _, m := range simAll[*common.MessageStatustext](b) {
		text.WriteString(m.Text)
	}
	return text.String()
}

// acks returns when the acks of a command came.
func (b *simBoard) acks(id common.MAV_CMD) (at []time.Time) {
	for _, h := range b.heard() {
		if factAck(id)(h.msg) {
			at = append(at, h.at)
		}
	}
	return at
}

// exchange sends a command and returns the results of its acks within 50 ms.
func (b *simBoard) exchange(id common.MAV_CMD, msg message.Message) (results []common.MAV_RESULT) {
	b.forget()
	b.write(msg)
	time.Sleep(50 * time.Millisecond)
	for _, m := range simAll[*common.MessageCommandAck](b) {
		if m.Command == id {
			results = append(results, m.Result)
		}
	}
	return results
}

// stick sends sticks at a rate for a time.
func (b *simBoard) stick(d, every time.Duration, x, y, z, r int16) {
	b.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		b.write(&common.MessageManualControl{Target: 1, X: x, Y: y, Z: z, R: r})
	}
}

const sim25Hz = 40 * time.Millisecond

func (b *simBoard) as(system, component uint8) { b.system, b.component = system, component }

func (b *simBoard) gcsBeat() {
	b.t.Helper()
	b.write(&common.MessageHeartbeat{Type: common.MAV_TYPE_GCS, Autopilot: common.MAV_AUTOPILOT_INVALID})
	time.Sleep(time.Millisecond)
}

// gcsBeats sends a ground station's heartbeat each second for a time.
func (b *simBoard) gcsBeats(d time.Duration) {
	b.t.Helper()
	for ; d > 0; d -= time.Second {
		b.gcsBeat()
		time.Sleep(min(d, time.Second) - time.Millisecond)
	}
}

// request requests a message once and does not wait.
func (b *simBoard) request(id uint32) {
	b.write(factLong(b.simulator.system, common.MAV_CMD_REQUEST_MESSAGE, float64(id)))
}

// fetch requests a message and returns it; nil if it does not come.
func (b *simBoard) fetch(id uint32) (m message.Message) {
	b.forget()
	b.request(id)
	time.Sleep(10 * time.Millisecond)
	for _, h := range b.heard() {
		if h.msg.GetID() == id {
			m = h.msg
		}
	}
	return m
}

// modeMessage makes the command that sets a mode.
func (b *simBoard) modeMessage(custom uint32) message.Message {
	if b.flavour == simPX4 {
		return factLong(simSystem, simSetMode, 1, float64(custom>>16&0xff), float64(custom>>24))
	}
	return factLong(simSystem, simSetMode, 1, float64(custom))
}

// newest returns the message that the autopilot would send now.
func (b *simBoard) newest(id uint32) (m message.Message) {
	b.change(func() { m = b.brain.message(id) })
	return m
}

func (b *simBoard) manual(x, y, z, r int16) {
	b.write(&common.MessageManualControl{Target: simSystem, X: x, Y: y, Z: z, R: r})
}

func (b *simBoard) want(what string, got, want any) {
	b.t.Helper()
	if !reflect.DeepEqual(got, want) {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (b *simBoard) place() (north, east, alt float64) {
	now := b.truth()
	north, east = simMetres(now.lat, now.lon)
	return north, east, now.alt
}

// until waits for a condition, at most as long as most.
func (b *simBoard) until(what string, most time.Duration, done func() bool) {
	b.t.Helper()
	const look = 50 * time.Microsecond
	for end := time.Now().Add(most + look); !done(); time.Sleep(look) { // the last message may still be on its way
		if time.Now().After(end) {
			b.t.Fatalf("%s: not within %v", what, most)
		}
	}
}

// simFlies flies scripts like those of testdata/flights without mavrest: a companion board talks to the simulator, 6 s
// after its boot; with "air" in the header the vehicle is 10 m up. Its own clauses, beside those of testdata/WORDS.md:
//
//	arm = rejected, mode RTL = accepted accepted, NAV_TAKEOFF nan …
//	                      a command and its acks
//	goto 20 5 10, goto keep keep nan     DO_REPOSITION north, east and above home
//	INT NAV_TAKEOFF 0 0 10 in 3     … as a COMMAND_INT, in this frame
//	ask mode RTL, acked 2     sends a command without waiting; then waits for two acks of it
//	sticks 0 0 500 0 for 400ms each 500ms     a stream; at 25 Hz where no rate is given
//	stick 0 0 500 0       one MANUAL_CONTROL
//	as 255                the board sends with this system id
//	gcs beat, gcs beats 4s     one heartbeat of a ground station; one each second
//	air 60, placed 40 10, pushed 8     puts the vehicle 60 m up; puts it to this place; makes it
//	                      fly north at 8 m/s
//	gathers 250ms         the line delivers bytes only each 250 ms
//	queues Low battery    the autopilot has this text to send
//	says geofence         a text since the last command contains this word
//	texts A; B, quiet     these are all texts since the last command; there is none
//	count 65 0            how many messages 65 came since the last command or "mark"
//	shown RTL 12ms 18ms   a HEARTBEAT shows the mode 12 to 18 ms after the last ack
//	state CRITICAL, vtol FW, type 1, home 40 10, hud -0.02, clock < 3
//	                      these values are in the messages now
//	away 300 75 ±5        the vehicle is 75 m from the place 300 m north of home
//	sensor SENSOR_BATTERY 110     in SYS_STATUS: present, enabled, not healthy
//	channels 1500 1500 1000 1500     RC_CHANNELS 1 to 4
//	flown by ours         whose sticks act: ours, theirs (the transmitter's) or nobody
func simFlies(t *testing.T, rules []rule) {
	t.Helper()
	for _, r := range rules {
		for _, v := range variants(r.flight, 1) {
			head, script, _ := strings.Cut(v.script, ": ")
			w := strings.Fields(head)
			t.Run(strings.TrimSuffix(r.name+"/"+v.name, "/"), func(t *testing.T) {
				settings := slices.DeleteFunc(slices.Clone(w[1:]), func(s string) bool { return s == "air" })
				flavour, prepare := scriptVehicle(t, w[0], settings)
				simFlight(t, flavour, prepare, func(b *simBoard) {
					time.Sleep(6 * time.Second)
					if slices.Contains(w[1:], "air") {
						b.placeInAir(10)
					}
					f := &flight{T: b.t, sim: b.simulator, firmware: firmwares[flavour]}
					p := &player{flight: f, board: b}
					p.plays(script)
				})
			})
		}
	}
}

var simResultNames = map[common.MAV_RESULT]string{
	simAccepted: "accepted", simRejected: "rejected", simDenied: "denied", simFailed: "failed",
	simUnsupported: "unsupported",
}

// companion plays a clause of the companion board. It returns what is wrong.
func (p *player) companion(w []string) (wrong string, known bool) {
	p.Helper()
	b, want := p.board, []string(nil)
	if i := slices.Index(w, "="); i > 0 {
		w, want = w[:i], w[i+1:]
	}
	asks := w[0] == "ask"
	if asks {
		w = w[1:]
	}
	id, msg := p.boardCommand(w)
	switch {
	case msg == nil:
		return "", p.board.acts(p, w)
	case asks:
		b.asked = id
		b.forget()
		b.write(msg)
		return "", true
	}
	b.asked = id
	var list []string
	for _, r := range b.exchange(id, msg) {
		list = append(list, simResultNames[r])
	}
	if want != nil && !slices.Equal(list, want) {
		return fmt.Sprint("acks ", list), true
	}
	return "", true
}

// boardCommand returns the command of a clause; nil if the clause is no command.
func (p *player) boardCommand(w []string) (id common.MAV_CMD, msg message.Message) {
	p.Helper()
	b, frame := p.board, common.MAV_FRAME_GLOBAL
	switch {
	case w[0] == "mode":
		return simSetMode, b.modeMessage(numberOf(p, p.firmware, w[1]))
	case w[0] == "arm" || w[0] == "disarm":
		return simArm, factLong(simSystem, simArm, float64(b2i(w[0] == "arm")))
	case w[0] == "goto":
		return simGoto, p.commandInt(simGoto, frame, w[1:4], simHomeAlt)
	case w[0] == "INT":
		id = p.id(w[1:])
		return id, p.commandInt(id, common.MAV_FRAME(p.number(w[6])), w[2:5], 0)
	case id.UnmarshalText([]byte("MAV_CMD_"+w[0])) != nil: // else id is set now
		return 0, nil
	}
	var numbers []float64
	for _, s := range w[1:] {
		numbers = append(numbers, p.number(s))
	}
	return id, factLong(simSystem, id, numbers...)
}

// commandInt makes a COMMAND_INT with a place in metres north and east of home. above is added
// to its height.
func (p *player) commandInt(id common.MAV_CMD, frame common.MAV_FRAME, place []string, above float64) message.Message {
	p.Helper()
	m := &common.MessageCommandInt{
		TargetSystem: simSystem, TargetComponent: 1, Command: id, Frame: frame,
		Param1: -1, Param2: 1, Param4: float32(math.NaN()), X: math.MaxInt32, Y: math.MaxInt32,
		Z: float32(above + p.number(place[2])),
	}
	if place[0] != "keep" {
		lat, lon := simPlace(p.number(place[0]), p.number(place[1]))
		m.X, m.Y = simE7(lat), simE7(lon)
	}
	return m
}

// acts plays a clause of the board that is no command.
func (b *simBoard) acts(p *player, w []string) (known bool) {
	p.Helper()
	switch w[0] {
	case "acked":
		b.until("acked", time.Second, func() bool { return len(b.acks(b.asked)) >= int(p.number(w[1])) })
	case "as":
		b.as(uint8(p.number(w[1])), 191)
	case "gcs":
		if w[1] == "beat" {
			b.gcsBeat()
		} else {
			b.gcsBeats(p.duration(w[2]))
		}
	case "air":
		b.placeInAir(p.number(w[1]))
	case "placed":
		b.placeAt(simPlace(p.number(w[1]), p.number(w[2])))
	case "pushed":
		b.change(func() { b.quad.vn = p.number(w[1]) })
	case "gathers":
		b.change(func() { b.switches().gathers = p.duration(w[1]) })
	case "queues":
		b.say(common.MAV_SEVERITY_INFO, strings.Join(w[1:], " "))
	case "mark":
		b.forget()
		return false // player.happens handles the rest of a mark
	case "sticks":
		a, each := p.axes(w[1:5]), sim25Hz
		if len(w) > 8 {
			each = p.duration(w[8])
		}
		b.stick(p.duration(w[6]), each, a.x, a.y, a.z, a.r)
	case "stick":
		a := p.axes(w[1:5])
		b.manual(a.x, a.y, a.z, a.r)
	default:
		return false
	}
	return true
}

// sees plays a check of what the board heard. It returns what was heard instead.
func (b *simBoard) sees(p *player, w []string) (wrong string, known bool) {
	p.Helper()
	want, got := strings.Join(w[1:], " "), ""
	switch w[0] {
	case "says":
		if got = b.texts(); strings.Contains(got, want) {
			return "", true
		}
		return fmt.Sprintf("the texts are %q", got), true
	case "texts":
		got = strings.TrimSuffix(strings.ReplaceAll(b.texts(), "\t", "; "), "; ")
	case "quiet":
		got = b.texts()
	case "count":
		return p.field(object{w[1]: float64(b.count(uint32(p.number(w[1]))))}, w[1:]), true
	case "clock":
		boot := b.fetch(33).(*common.MessageGlobalPositionInt).TimeBootMs
		return p.field(object{"clock": float64(boot) / 1000}, w), true
	case "shown":
		return b.shownIn(numberOf(p, p.firmware, w[1]), p.duration(w[2]), p.duration(w[3])), true
	case "state":
		got = strings.TrimPrefix(simLast[*common.MessageHeartbeat](b).SystemStatus.String(), "MAV_STATE_")
	case "type":
		got = fmt.Sprint(int(simLast[*common.MessageHeartbeat](b).Type))
	case "vtol":
		got = strings.TrimPrefix(b.fetch(245).(*common.MessageExtendedSysState).VtolState.String(), "MAV_VTOL_STATE_")
	case "hud":
		got = fmt.Sprintf("%.2f", b.newest(74).(*common.MessageVfrHud).Alt)
	case "away":
		north, east, _ := b.place()
		return p.bounded(math.Hypot(north-p.number(w[1]), east), w[1:]), true
	case "home":
		h := b.fetch(242).(*common.MessageHomePosition)
		north, east := simMetres(float64(h.Latitude)/1e7, float64(h.Longitude)/1e7)
		got = fmt.Sprintf("%.0f %.0f", north, east)
	case "sensor":
		var is common.MAV_SYS_STATUS_SENSOR
		if is.UnmarshalText([]byte("MAV_SYS_STATUS_"+w[1])) != nil {
			p.bad()
		}
		m := b.fetch(1).(*common.MessageSysStatus)
		got = w[1] + " "
		for _, bits := range []common.MAV_SYS_STATUS_SENSOR{m.OnboardControlSensorsPresent,
			m.OnboardControlSensorsEnabled, m.OnboardControlSensorsHealth} {
			got += fmt.Sprint(b2i(bits&is != 0))
		}
	case "channels":
		m := b.newest(65).(*common.MessageRcChannels)
		got = fmt.Sprint(m.Chan1Raw, m.Chan2Raw, m.Chan3Raw, m.Chan4Raw)
	case "flown":
		b.change(func() {
			switch x, _, _, _ := b.obeyedAxes(); {
			case x > 0:
				got = "by ours"
			case x < 0:
				got = "by theirs"
			default:
				got = "by nobody"
			}
		})
	default:
		return "", false
	}
	if got == want {
		return "", true
	}
	return fmt.Sprintf("it is %q", got), true
}

// shownIn requests HEARTBEAT for 45 ms. The first heartbeat that shows the mode must come between
// first and last after the last ack. No later one may show another mode.
func (b *simBoard) shownIn(custom uint32, first, last time.Duration) string {
	for range 90 {
		b.request(0)
		time.Sleep(500 * time.Microsecond)
	}
	acks, shown := b.acks(b.asked), time.Time{}
	for _, h := range b.heard() {
		beat, is := h.msg.(*common.MessageHeartbeat)
		switch {
		case is && beat.CustomMode == custom && shown.IsZero():
			shown = h.at
		case is && beat.CustomMode != custom && !shown.IsZero():
			return "the old mode is shown again"
		}
	}
	if len(acks) == 0 || shown.IsZero() {
		return "it is not shown, or nothing is acknowledged"
	}
	if after := shown.Sub(acks[len(acks)-1]); after < first || after > last {
		return fmt.Sprintf("it is shown %v after the last ack", after)
	}
	return ""
}

// ackedHolds commands AUTO.LOITER n times and counts the acks.
func (b *simBoard) ackedHolds(n int) (acks int) {
	b.forget()
	for range n {
		b.write(b.modeMessage(simPX4Loiter))
	}
	time.Sleep(50 * time.Millisecond)
	return len(b.acks(simSetMode))
}

const simInterval = common.MAV_CMD_SET_MESSAGE_INTERVAL

// simFault is line noise, as probabilities per byte.
type simFault struct {
	drop, repeat, flip, insert float64
	seed                       uint64
}

func (f simFault) bad() bool { return f.drop+f.repeat+f.flip+f.insert > 0 }

// anyDamage has every kind of damage at one rate.
func anyDamage(rate float64, seed uint64) simFault {
	return simFault{drop: rate, repeat: rate, flip: rate, insert: rate, seed: seed}
}

// damages are the kinds of damage, each with the rate 1.
var damages = []struct {
	name  string
	fault simFault
}{
	{"lost", simFault{drop: 1}}, {"repeated", simFault{repeat: 1}}, {"flipped", simFault{flip: 1}},
	{"inserted", simFault{insert: 1}}, {"all of these", anyDamage(1, 0)},
}

// setNoise damages bytes from now on: in is towards the autopilot, out is from it.
func (s *simulator) setNoise(in, out simFault) {
	s.switches().noiseIn = bytes.Clone
	s.switches().noiseOut = bytes.Clone
	if !in.bad() && !out.bad() {
		return
	}
	var there, back simWire
	s.switches().noiseIn = func(b []byte) []byte { return there.carry(b, in) }
	s.switches().noiseOut = func(b []byte) []byte { return back.carry(b, out) }
}

// simWire is one direction of a line.
type simWire struct {
	before, after []byte // the last bytes, as sent and as received
	dice          rand.PCG
	rolledAt      time.Time // when bytes were last damaged at random
}

// carry returns b as it arrives. It makes no damage that a frame's 16 bit checksum would miss (1 in 65,536):
// a test would take it for a mistake of the receiver. Such a frame may span several writes.
func (w *simWire) carry(b []byte, f simFault) []byte {
	// The damage depends on the time alone, so that a flight can be repeated though its
	// goroutines take turns in another order.
	if now := time.Now(); !now.Equal(w.rolledAt) {
		w.rolledAt = now
		w.dice.Seed(f.seed, uint64(now.UnixNano()))
	}
	w.before = lastBytes(w.before, b)
	for tries := 0; ; tries++ {
		out := b
		if f.bad() {
			out = f.damage(b, rand.New(&w.dice))
		}
		if !w.forges(out) {
			w.after = lastBytes(w.after, out)
			return out
		}
		if !f.bad() || tries > 20 { // no dice help: b completes a frame that earlier damage began
			b = append([]byte{byte(w.dice.Uint64())}, b...) // one more byte, as noise may add it, breaks that frame
		}
	}
}

// lastBytes appends b to tail and keeps the last bytes, more than two frames can have.
func lastBytes(tail, b []byte) []byte {
	all := slices.Concat(tail, b)
	return all[max(0, len(all)-600):]
}

// forges reports whether these bytes contain a frame that was not sent and whose checksum is
// right. A signature is ignored: it may not have arrived yet, and damage to it changes nothing.
func (w *simWire) forges(out []byte) bool {
	const longest, signature = 267, 13 // bytes: of the longest frame without its signature; of the signature
	if bytes.Equal(lastBytes(w.after, out), w.before) {
		return false // no byte was damaged lately
	}
	tail := w.after[max(0, len(w.after)-longest):]
	line := slices.Concat(tail, out, make([]byte, signature))
	for _, f := range checkedFrames(line) {
		end := f.end - signature*int(f.incompat) // incompat is 1 with a signature, else 0
		if end > len(tail) && end <= len(line)-signature && !bytes.Contains(w.before, line[f.offset:end]) {
			return true
		}
	}
	return false
}

// damage rolls dice for each byte.
func (f simFault) damage(b []byte, dice *rand.Rand) []byte {
	hit := func(p float64) bool { return dice.Float64() < p }
	out := []byte{}
	for _, c := range b {
		if hit(f.insert) {
			out = append(out, byte(dice.Uint32()))
		}
		if hit(f.flip) {
			c ^= 1 << dice.IntN(8)
		}
		if !hit(f.drop) {
			out = append(out, c)
		}
		if hit(f.repeat) {
			out = append(out, c)
		}
	}
	return out
}
