package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
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

// inject sends bytes to the companion as they are.
func (s *simulator) inject(b []byte) { s.change(func() { s.transmit(bytes.Clone(b)) }) }

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

// simFlies flies scripts of flight_test.go without mavrest: a companion board talks to the simulator, 6 s after
// its boot; with "air" in the header the vehicle is 10 m up. Its own clauses, beside those of flight_test.go:
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

// ---- Both flavours ----

func TestSimOfBothFlavours(t *testing.T) {
	simFlies(t, []rule{
		{"PX4 sends without a request, and stops on request",
			"px4: SET_MESSAGE_INTERVAL 33 {0→5|10000→100|-1→0} = accepted, mark, +1s, count 33 $1"},
		{"CURRENT_MODE comes on request, until a restart",
			"px4: count 436 0, SET_MESSAGE_INTERVAL 436 10000, not count 436 0, restart, +10ms, mark, +3s, " +
				"count 436 0"},
		{"an interval that was set for HEARTBEAT ends with a restart",
			"copter: SET_MESSAGE_INTERVAL 0 50000, restart, +2500ms, mark, +10s, count 0 10"},
		{"a restart forgets all but the parameters",
			"{px4|copter}: +14s, SET_MESSAGE_INTERVAL 245 20000, air 10, failsafe, +20ms, restart, not failing, alt " +
				"10 ±0.1, mark, +2s, count 245 < 4, clock < 3"},
		{"it has a top speed, and drifts on with centred sticks",
			"{px4: air 200, as 255, sticks 0 0 500 0 for 400ms, mode ALTCTL→500|px4: air 200, as 255, sticks 0 0 " +
				"550 0 for 400ms, mode MANUAL→550|" +
				"copter: air 200, as 255, sticks 0 0 500 0 for 400ms, mode ALT_HOLD→500|copter: air 200, as 255, " +
				"sticks " +
				"0 0 500 0 for 400ms, mode STABILIZE→500}, " +
				"sticks 1000 0 $1 0 for 40s, speed 19.5 ±1, sticks 0 0 $1 0 for 1s, speed 17 ±4"},
	})
}

// ---- Compared with captured flights ----

// A simulator gets the commands that the real autopilot got when testdata was captured, at the
// same times.

// captureHeard is a message of a flight.
type captureHeard struct {
	at  time.Duration // since the capture began
	msg message.Message
}

func readCapture(t *testing.T, name string) (heard []captureHeard) {
	t.Helper()
	for _, e := range readTlog(t, name) {
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(e.bytes)), DialectRW: simDialect()}
		f, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, captureHeard{e.at, f.GetMessage()})
	}
	return heard
}

// captureBoard is the board of a flight whose times count from the captured flight's first message.
type captureBoard struct {
	*simBoard
	zero time.Time
}

// flyCaptured flies a script, and returns the messages that came.
func flyCaptured(b *simBoard, bootedBefore time.Duration, script func(*captureBoard)) (heard []captureHeard) {
	c := &captureBoard{b, b.began.Add(bootedBefore)}
	script(c)
	for _, h := range b.heard() {
		heard = append(heard, captureHeard{h.at.Sub(c.zero), h.msg})
	}
	return heard
}

func (c *captureBoard) at(seconds float64) {
	time.Sleep(time.Until(c.zero.Add(time.Duration(seconds * float64(time.Second)))))
}

// command sends a COMMAND_LONG at this time of the flight.
func (c *captureBoard) command(seconds float64, id common.MAV_CMD, p ...float64) {
	c.t.Helper()
	c.at(seconds)
	c.write(factLong(simSystem, id, p...))
}

// rates asks for messages, in Hz.
func (c *captureBoard) rates(hz map[float64]float64) {
	for id, hz := range hz {
		c.command(0, simInterval, id, 1e6/hz)
	}
}

// sticks sends sticks until a time. The captures do not contain the sticks; x is chosen to give
// the captured speed.
func (c *captureBoard) sticks(until float64, x int16) {
	end := c.zero.Add(time.Duration(until * float64(time.Second)))
	for ; time.Now().Before(end); time.Sleep(min(sim25Hz, time.Until(end))) {
		c.manual(x, 0, 500, 0)
	}
}

// captureRules say how a flight is compared with the captured one.
type captureRules struct {
	bits  common.MAV_SYS_STATUS_SENSOR // of SYS_STATUS
	texts []string                     // of STATUSTEXT; nil: all
	// late is how much earlier or later a change of each kind may come. Other kinds are not
	// compared.
	late map[string]func(at time.Duration) time.Duration
}

// captureEvent is what changed in a flight.
type captureEvent struct {
	at         time.Duration
	kind, what string
}

// events lists the changes of a flight, and every ack and text.
func (r captureRules) events(heard []captureHeard) (events []captureEvent) {
	last := map[string]string{}
	add := func(at time.Duration, kind string, what ...any) {
		events = append(events, captureEvent{at, kind, fmt.Sprint(what...)})
	}
	changed := func(at time.Duration, kind string, what ...any) {
		if now := fmt.Sprint(what...); last[kind] != now {
			last[kind] = now
			add(at, kind, now)
		}
	}
	var targetAt time.Duration
	for _, h := range heard {
		if targetAt != 0 && h.at-targetAt > 900*time.Millisecond { // it came at 2 Hz and has ended
			changed(targetAt, "target", "none")
			targetAt = 0
		}
		switch m := h.msg.(type) {
		case *common.MessageHeartbeat:
			// After a landing the state is armed standby for 0.3 s; a 1 Hz heartbeat may miss it.
			if m.SystemStatus == common.MAV_STATE_STANDBY && m.BaseMode&common.MAV_MODE_FLAG_SAFETY_ARMED != 0 &&
				m.CustomMode == simArduRTL {
				continue
			}
			changed(h.at, "heartbeat", m.Type, m.Autopilot, m.BaseMode, m.CustomMode, m.SystemStatus)
		case *common.MessageCommandAck:
			if m.Command != simInterval {
				add(h.at, "ack", m.Command, m.Result, m.TargetSystem, m.TargetComponent)
			}
		case *common.MessageStatustext:
			if r.texts == nil || slices.Contains(r.texts, m.Text) {
				add(h.at, "text", m.Severity, m.ChunkSeq, m.Text)
			}
		case *common.MessageSysStatus:
			changed(h.at, "sensors", m.OnboardControlSensorsPresent&r.bits, m.OnboardControlSensorsEnabled&r.bits,
				m.OnboardControlSensorsHealth&r.bits)
		case *common.MessageRcChannels:
			changed(h.at, "channels", m.Chancount, m.Rssi, m.Chan1Raw, m.Chan2Raw, m.Chan3Raw, m.Chan4Raw, m.Chan5Raw)
		case *common.MessageExtendedSysState:
			changed(h.at, "landed", m.VtolState, m.LandedState)
		case *common.MessageGpsRawInt:
			if m.FixType != common.GPS_FIX_TYPE_NO_FIX { // it comes in one message, with a false place
				changed(h.at, "gps", m.FixType, m.SatellitesVisible, m.Eph, m.Epv, m.Lat == 0)
			}
		case *common.MessageGlobalPositionInt:
			changed(h.at, "place", m.Lat != 0 && m.Lon != 0, m.Alt > 480000)
		case *common.MessageHomePosition:
			changed(h.at, "home", math.IsNaN(float64(m.Q[0])), m.Altitude > 480000)
		case *common.MessagePositionTargetGlobalInt:
			north, _ := simMetres(float64(m.LatInt)/1e7, float64(m.LonInt)/1e7)
			changed(h.at, "target", m.CoordinateFrame, uint16(m.TypeMask), 5*math.Round(north/5),
				math.Round(float64(m.Alt)-simHomeAlt))
			targetAt = h.at
		}
	}
	return events
}

// compare checks that each kind has the same changes in the same order.
func (r captureRules) compare(t *testing.T, real, simulated []captureHeard) {
	t.Helper()
	captured, flown := r.events(real), r.events(simulated)
	for kind, late := range r.late {
		other := func(e captureEvent) bool { return e.kind != kind }
		want, got := slices.DeleteFunc(slices.Clone(captured), other), slices.DeleteFunc(slices.Clone(flown), other)
		if len(got) != len(want) || len(want) == 0 {
			t.Errorf("%s: %d changes, captured %d\n%v\n%v", kind, len(got), len(want), got, want)
			continue
		}
		for i, w := range want {
			most := late(w.at)
			if i == 0 && kind != "ack" && kind != "text" {
				most = max(most, 3*time.Second) // it was requested at another moment
			}
			if got[i].what != w.what || (got[i].at-w.at).Abs() > most {
				t.Errorf("%s: %v %q, captured %v %q", kind, got[i].at, got[i].what, w.at, w.what)
			}
		}
	}
}

// captureFix is where a vehicle was at a time, and its target; NaN if it sent none.
type captureFix struct{ north, up, toNorth, toUp float64 }

func fixAt(heard []captureHeard, at time.Duration) captureFix {
	f := captureFix{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	ground := math.NaN()
	for _, h := range heard {
		if h.at > at {
			break
		}
		switch m := h.msg.(type) {
		case *common.MessageGlobalPositionInt:
			if m.Lat == 0 {
				continue
			}
			if h.at < 16*time.Second || math.IsNaN(ground) { // no captured flight takes off earlier
				ground = float64(m.Alt) / 1000
			}
			f.north, _ = simMetres(float64(m.Lat)/1e7, simHomeLon)
			f.up = float64(m.Alt)/1000 - ground
		case *common.MessagePositionTargetGlobalInt:
			f.toNorth, f.toUp = math.NaN(), math.NaN()
			if at-h.at < 600*time.Millisecond { // it comes at 2 Hz
				f.toNorth, _ = simMetres(float64(m.LatInt)/1e7, simHomeLon)
				f.toUp = float64(m.Alt) - ground
			}
		}
	}
	return f
}

func wantFix(t *testing.T, at time.Duration, what string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tolerance {
		t.Errorf("%v: %s is %.1f, captured %.1f", at, what, got, want)
	}
}

// px4Capture is px4-pilot.tlog's script.
func px4Capture(c *captureBoard) {
	const keep = math.MaxInt32
	nan := float32(math.NaN())
	lat, lon := simPlace(40, 0)
	c.as(1, 194)
	c.rates(map[float64]float64{1: 2, 24: 2, 30: 10, 33: 10, 74: 4, 87: 2, 245: 4})
	c.at(8.24)
	c.change(func() { c.params[simDataLink] = 2 })
	c.command(10.745, simArm, 1)
	c.command(10.975, simPrearm)
	c.at(12.239)
	c.gcsBeat()
	c.command(12.2405, simPrearm)
	c.at(13.506)
	c.change(func() { c.params[simDataLink] = 0 })
	c.at(16.5)
	c.gcsBeat()
	c.at(16.506)
	c.write(&common.MessageCommandInt{TargetSystem: 1, TargetComponent: 1, Command: simTakeoff, X: keep, Y: keep,
		Z: simHomeAlt + 12})
	c.command(16.764, simArm, 1)
	for i := range 5 {
		c.at(31.006 + 0.253*float64(i))
		c.request(0)
	}
	c.at(32.285)
	c.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param1: -1, Param2: 1, Param4: nan, X: simE7(lat),
		Y: simE7(lon), Z: nan,
	})
	c.command(37.279, simSetMode, 1, 4, 3)
	c.at(42.5)
	c.sticks(43.034, 0)
	c.command(43.034, simSetMode, 1, 2)
	c.sticks(43.4, 0)
	c.sticks(45.4, 300)
	c.sticks(45.897, 0)
	c.command(45.897, simSetMode, 1, 3)
	c.sticks(48.353, 0)
	c.command(48.353, simSetMode, 1, 4, 3)
	c.sticks(51.7, 0)
	c.pilotMode(simPX4RTL) // a second client sent it; its acks went elsewhere
	c.sticks(56.619, 0)
	c.command(56.619, common.MAV_CMD_NAV_LAND)
	c.sticks(106, 0) // the simulated vehicle lands a little later
}

// The simulated PX4 flies as the captured one. Not compared: the battery (the real one was
// drained fast), GPS quality, estimator noise, EVENT (410, which is not decoded here) and the
// PARAM_VALUEs that PX4 sends by itself at boot.
func TestSimFliesLikeTheCapturedPX4(t *testing.T) {
	real := readCapture(t, "px4-pilot.tlog")
	prepare := func(s *simulator) {
		s.armableAfter = 4150 * time.Millisecond // as captured
		s.homeSteps = true
	}
	simFlight(t, simPX4, prepare, func(b *simBoard) {
		simulated := flyCaptured(b, 494*time.Millisecond, px4Capture)
		kinds := func(heard []captureHeard) (ids []uint32) {
			for _, h := range heard {
				if id := h.msg.GetID(); id != 410 && id != 22 && !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			slices.Sort(ids)
			return ids
		}
		b.want("kinds of messages", kinds(simulated), kinds(real))
		// HEARTBEAT at 1 Hz and SYS_STATUS at 2 Hz show a change late. The estimator disturbed
		// the real landing; the climb is modelled in two pieces.
		within := func(most time.Duration) func(time.Duration) time.Duration {
			return func(at time.Duration) time.Duration {
				switch {
				case at > 90*time.Second:
					return 8 * time.Second
				case at > 28*time.Second && at < 31200*time.Millisecond:
					return 1500 * time.Millisecond
				}
				return most
			}
		}
		captureRules{bits: math.MaxUint32, late: map[string]func(time.Duration) time.Duration{
			"ack": func(time.Duration) time.Duration { return 20 * time.Millisecond },
			"text": func(at time.Duration) time.Duration { // with its cause, or 50 ms after the last text
				if at > 18*time.Second {
					return 500 * time.Millisecond // the propellers' run-up
				}
				return 30 * time.Millisecond
			},
			"heartbeat": within(1050 * time.Millisecond), "sensors": within(600 * time.Millisecond),
			"landed": within(500 * time.Millisecond),
		}}.compare(t, real, simulated)
		// In metres. The real vehicle flies up to 4.2 m/s, the simulated one 5; both climb 12 m in
		// 14 s and 11 m in the 5 s of the return. The target is not compared around its changes.
		for _, tenths := range []int{100, 160, 180, 250, 300, 320, 330, 370, 400, 425, 436, 450, 478, 490, 510, 530,
			560, 580, 700} {
			at := time.Duration(tenths)*100*time.Millisecond + 99*time.Millisecond // the end of that tenth
			got, want := fixAt(simulated, at), fixAt(real, at)
			if tenths < 570 {
				wantFix(t, at, "north", got.north, want.north, 9)
				wantFix(t, at, "height", got.up, want.up, 3)
			}
			if tenths != 370 && tenths != 425 {
				wantFix(t, at, "target's north", got.toNorth, want.toNorth, 5)
				wantFix(t, at, "target's height", got.toUp, want.toUp, 2) // in LAND 0 AMSL
			}
		}
	})
}

// arduPilotCapture is ardupilot-pilot.tlog's script. A request that went out between two
// captured messages is sent at the time half-way between them.
func arduPilotCapture(c *captureBoard) {
	c.as(1, 194)
	time.Sleep(time.Second) // it boots
	c.at(2.2)
	c.rates(map[float64]float64{1: 2, 24: 2, 33: 10, 65: 2, 74: 4, 87: 2, 242: 0.5, 245: 4})
	c.command(5.49, simArm, 1)
	c.command(49.85, simSetMode, 1, simArduGuided)
	c.command(50.1, simArm, 1)
	c.command(50.36, simTakeoff, 0, 0, 0, 0, 0, 0, 12)
	c.at(59.61)
	lat, lon := simPlace(40.1, 0)
	c.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simGoto, Frame: common.MAV_FRAME_GLOBAL, Param1: -1, Param2: 1,
		Param4: float32(math.NaN()), X: simE7(lat), Y: simE7(lon), Z: simHomeAlt + 12,
	})
	c.command(59.81, common.MAV_CMD_DO_CHANGE_SPEED, 1, 4, -1)
	c.command(66.06, simSetMode, 1, simArduBrake)
	c.command(71.32, simSetMode, 1, simArduGuided)
	c.at(72.6)
	c.as(255, 194)
	c.sticks(73.09, 0)
	c.as(1, 194)
	c.command(73.09, simSetMode, 1, simLoiter)
	c.as(255, 194)
	c.sticks(73.5, 0)
	c.sticks(76.5, 500)
	c.sticks(78.3, 0)
	c.pilotSticks(0, 0, 500, 0)
	c.sticks(78.8, 0)
	for range 3 {
		c.manual(simReleased, simReleased, simReleased, simReleased)
	}
	c.as(1, 194)
	c.at(81)
	c.pilotSticks(200, 0, 500, 0) // the receiver's
	c.at(83)
	c.pilotSticks(0, 0, 500, 0)
	c.command(84.98, simSetMode, 1, simArduRTL)
	c.at(135)
}

// captureSame lists, for each kind of message, the fields of its last one that are compared with
// the captured one. The other fields are clocks and sensor noise.
var captureSame = map[uint32][]string{
	0:   {"Type", "Autopilot", "MavlinkVersion"},
	24:  {"Lat", "Lon", "FixType", "SatellitesVisible", "Eph", "Epv", "Vel"},
	33:  {"Lat", "Lon", "RelativeAlt", "Vx", "Vy", "Vz"},
	65:  {"Chancount", "Rssi", "Chan5Raw", "Chan6Raw", "Chan7Raw", "Chan8Raw", "Chan9Raw", "Chan18Raw"},
	74:  {"Groundspeed", "Throttle", "Climb"},
	87:  {"CoordinateFrame", "TypeMask", "Alt", "Vx", "Afx", "Yaw", "YawRate"},
	242: {"Latitude", "Longitude", "Q"},
	245: {"VtolState", "LandedState"},
}

// captureSlack is how much a number of captureSame may differ, in the field's own unit. Places may
// differ by 2 m. Heights may differ because the two flights began at different ones.
var captureSlack = map[string]float64{
	"Lat": 200, "Lon": 200, "Latitude": 200, "Longitude": 200, "RelativeAlt": 100,
	"Alt": 0.5, "Vx": 10, "Vy": 10, "Vz": 10, "Vel": 10, "Groundspeed": 0.1, "Climb": 0.1,
}

func TestSimFliesLikeTheCapturedArduPilot(t *testing.T) {
	real := readCapture(t, "ardupilot-pilot.tlog")
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		simulated := flyCaptured(b, 1036*time.Millisecond, arduPilotCapture)
		// A command's effect comes within 60 ms of the captured time: both answer within 10 ms,
		// and a stick adds 40 ms. A stream shows a change late by up to its period. The boot's
		// times depend on the sensors: 1 s. The return lands 2.5 s early.
		late := map[string]func(time.Duration) time.Duration{}
		for kind, ms := range map[string]time.Duration{
			"ack": 60, "text": 60, "heartbeat": 1060, "channels": 560, "gps": 560, "place": 300,
			"landed": 310, "sensors": 560, "target": 560, "home": 2060,
		} {
			late[kind] = func(at time.Duration) time.Duration {
				switch {
				case at < 30*time.Second:
					return ms*time.Millisecond + time.Second
				case at > 89*time.Second:
					return ms*time.Millisecond + 3*time.Second
				}
				return ms * time.Millisecond
			}
		}
		captureRules{
			bits: common.MAV_SYS_STATUS_PREARM_CHECK | common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER |
				common.MAV_SYS_STATUS_SENSOR_GPS |
				common.MAV_SYS_STATUS_SENSOR_BATTERY | common.MAV_SYS_STATUS_AHRS |
				common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL | common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL,
			texts: []string{"ArduPilot Ready", "Arm: Accels inconsistent", "Arming motors", "Disarming motors"},
			late:  late,
		}.compare(t, real, simulated)

		// The place is within 1 m along the way and 1.2 m in height. Only on the return, where
		// ArduPilot limits its jerk, the simulator is up to 8 m ahead, and so lands 2.5 s, or
		// 3 m of descent, early.
		for at := 20 * time.Second; at < 132*time.Second; at += 500 * time.Millisecond {
			want, got := fixAt(real, at), fixAt(simulated, at)
			level, height := 1.0, 1.2
			switch {
			case at > 88*time.Second && at < 99*time.Second:
				level = 9
			case at > 101*time.Second:
				height = 3.5
			}
			wantFix(t, at, "north", got.north, want.north, level)
			wantFix(t, at, "height", got.up, want.up, height)
		}

		last := map[uint32][2]reflect.Value{} // captured, simulated
		for i, heard := range [][]captureHeard{real, simulated} {
			for _, h := range heard {
				both := last[h.msg.GetID()]
				both[i] = reflect.ValueOf(h.msg).Elem()
				last[h.msg.GetID()] = both
			}
		}
		for id, fields := range captureSame {
			for _, name := range fields {
				want, got := last[id][0].FieldByName(name), last[id][1].FieldByName(name)
				// false if they are no numbers
				near := math.Abs(captureNumber(want)-captureNumber(got)) <= captureSlack[name]
				if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g && !near {
					t.Errorf("message %d: %s is %s, captured %s", id, name, g, w)
				}
			}
		}
	})
}

func captureNumber(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	}
	return math.NaN()
}

func TestSimCableReplacesAnOlderEnd(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		second, err := b.open()
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.link.port.Read(make([]byte, 1))
		b.want("read of the first end", err, io.EOF)
		b.unplug()
		_, err = second.Read(make([]byte, 1))
		b.want("read after unplug", err, io.EOF)
		_, err = b.open()
		b.want("open while unplugged", err, errSimUnplugged)
		b.plug()
		_, err = b.open()
		b.want("open after plug", err, error(nil))
	})
}

func TestSimReadEndsAtItsDeadline(t *testing.T) {
	simFlight(t, simPX4, func(s *simulator) { s.switches().muted = true }, func(b *simBoard) {
		p, _ := b.open()
		begin := time.Now()
		_ = p.(*simPort).SetReadDeadline(begin.Add(100 * time.Millisecond))
		n, err := p.Read(make([]byte, 10))
		b.want("bytes", n, 0)
		b.want("error", err, os.ErrDeadlineExceeded)
		b.want("time", time.Since(begin), 100*time.Millisecond)
		b.want("close", p.Close(), error(nil))
		_, err = p.Read(make([]byte, 10))
		b.want("read after close", err, io.ErrClosedPipe)
	})
}

func TestSimStalledWriteWaits(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		b.stallWrites(true)
		done := make(chan error, 1)
		write := func() { _, err := b.link.port.Write([]byte{1}); done <- err }
		go write()
		synctest.Wait()
		b.want("finished", len(done), 0)
		b.stallWrites(false)
		b.want("error", <-done, error(nil))
		b.stallWrites(true)
		go write()
		synctest.Wait()
		b.link.port.Close()
		b.want("error of a closed port", <-done, io.ErrClosedPipe)
	})
}

func TestSimDropsWholeFramesWhenNobodyReads(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		p, _ := b.open() // ends the reader of the first port
		time.Sleep(time.Minute)
		buf := make([]byte, 2*simBuffer)
		n, _ := p.Read(buf)
		if n > simBuffer || n < simBuffer-100 {
			t.Errorf("%d bytes were kept", n)
		}
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(buf[:n])), DialectRW: dialectRW}
		_ = r.Initialize()
		for {
			if _, err := r.Read(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
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

// Frame n goes out n ms after as many minutes as the seed. Time and seed set simWire.carry's dice. At these times
// the dice make a frame that nobody sent, by damaging one or by running two together: carry must roll them again.
func TestSimNoiseMakesNoFrameThatNobodySent(t *testing.T) {
	const frames = 256
	for seed, before := range map[uint64]int{3: 6 * 256, 20: 37 * 256} {
		inLinkBubble(t, func(t *testing.T) {
			time.Sleep(time.Duration(seed)*time.Minute + time.Duration(before)*time.Millisecond)
			s := newTestSimulator(simPX4)
			var w simWire
			var line []byte
			sent := map[string]bool{}
			for n := before + 1; n <= before+frames; n++ {
				time.Sleep(time.Millisecond)
				s.out.Reset()
				_ = s.writer.Write(&common.MessageCommandAck{
					Command: simArm, Result: common.MAV_RESULT(n%5 + 1), TargetSystem: 1, TargetComponent: uint8(n) | 1,
				})
				b := bytes.Clone(s.out.Bytes())
				sent[string(b)] = true
				line = append(line, w.carry(b, simFault{drop: 0.03, repeat: 0.01, flip: 0.03, insert: 0.01,
					seed: seed})...)
			}
			found := 0
			for i, c := range line {
				r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(line[i:])), DialectRW: dialectRW}
				_ = r.Initialize()
				f, err := r.Read()
				if c != frame.V2MagicByte && c != frame.V1MagicByte || err != nil ||
					dialectRW.GetMessage(f.GetMessage().GetID()) == nil {
					continue
				}
				if end := i + 12 + int(line[i+1]); end > len(line) || !sent[string(line[i:end])] {
					t.Errorf("seed %d: nobody sent %+v", seed, f)
				}
				found++
			}
			if found < frames/10 || found > frames/2 {
				t.Errorf("seed %d: %d of %d frames came through", seed, found, frames)
			}
		})
	}
}

func TestSimNoiseDependsOnTheMomentAndTheSeedOnly(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		f := anyDamage(0.05, 1)
		b := bytes.Repeat([]byte{7}, 100)
		var one, other simWire
		one.carry(b, f)
		time.Sleep(time.Millisecond)
		first := one.carry(b, f)
		if !bytes.Equal(first, other.carry(b, f)) {
			t.Error("earlier bytes changed the noise")
		}
		if bytes.Equal(first, one.carry(b, f)) {
			t.Error("two writes of one moment have the same noise")
		}
		f.seed = 2
		if other = (simWire{}); bytes.Equal(first, other.carry(b, f)) {
			t.Error("another seed makes the same noise")
		}
		for _, d := range damages {
			if bytes.Equal(b, new(simWire).carry(b, d.fault)) {
				t.Errorf("nothing is %s", d.name)
			}
		}
	})
}

func TestSimLosesAllThatABrokenFrameClaims(t *testing.T) {
	simFlight(t, simPX4, nil, func(b *simBoard) {
		_, _ = b.link.port.Write([]byte{frame.V2MagicByte, 255, 0, 0})
		time.Sleep(time.Minute) // the broken frame does not time out
		b.want("acks of commands inside of it", b.ackedHolds(6), 0)
		if n := b.ackedHolds(6); n < 2 {
			t.Errorf("%d acks of commands after it", n)
		}
	})
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
