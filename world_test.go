package main

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// fuzzTime is the longest flight of FuzzPilot: the simulator remembers no longer.
const fuzzTime = 3 * time.Minute

// modeAt is a mode and when it was reported, entered or wished for. For a report that no command
// explains, until is when a client asked next.
type modeAt struct {
	custom uint32
	at     time.Time
	until  time.Time // zero: no client has asked since
}

// fuzzed is a flight whose acts are bytes, and what the fuzzer knows of it.
type fuzzed struct {
	*flight
	clients sync.WaitGroup
	began   time.Time
	begun   atomic.Bool // the flight has begun

	mu      sync.Mutex
	wrong   []string
	pending int       // commands that wait for their answers
	asked   time.Time // when the last one began
	ended   time.Time // when the last answer came
	// when mavrest heard the last restart, in ns since 1970; it forgets what was commanded
	forgot        atomic.Int64
	history       []modeAt                 // modes that the vehicle entered
	wishes        []modeAt                 // modes that clients asked for
	acceptedModes []modeAt                 // every mode that the last accepted command may set
	foreign       map[uint32]time.Time     // modes that the vehicle entered and no command explains
	heard         minimal.MessageHeartbeat // the last report

	reports   reports         // the reports that mavrest heard
	shown     shownMode       // the last of them
	windows   []modeAt        // reports that no command explains; between its at and its until nothing may be sent
	disarms   []modeAt        // reports that it was disarmed
	disarming int             // disarmings that wait for their answers
	newer     bool            // a client asked for something after these disarmings
	accepted  string          // the mode that the last accepted command led to
	known     map[uint32]bool // modes that were reported while a command waits
	tookOff   bool            // mavrest sent a NAV_TAKEOFF
	meddled   bool            // not only clients acted, or the line was bad
}

// note writes into the flight's diary what the fuzzer does and thinks.
func (z *fuzzed) note(format string, args ...any) { z.diary.note("fuzzer", format, args...) }

// fault notes what is wrong. The flight fails at its end: a hook that finds a fault may hold the simulator's
// mutex.
func (z *fuzzed) fault(format string, args ...any) {
	z.wrong = append(z.wrong, fmt.Sprintf(format, args...))
	z.note("WRONG: "+format, args...)
}

// clock is a moment in seconds of the flight, as in its diary.
func (z *fuzzed) clock(at time.Time) string {
	return fmt.Sprintf("%.3f", at.Sub(z.diary.began).Seconds())
}

// leads returns the mode that a command leads to. It notes a NAV_TAKEOFF in z.tookOff.
func (z *fuzzed) leads(m any) (custom uint32, ok bool) {
	switch m := m.(type) {
	case *common.MessageCommandLong:
		switch m.Command {
		case common.MAV_CMD_DO_SET_MODE:
			if z.firmware == px4 {
				return px4Custom(uint32(m.Param2), uint32(m.Param3)), true
			}
			return uint32(m.Param2), true
		case common.MAV_CMD_NAV_LAND:
			return entered[z.firmware][ModeLand], true
		case common.MAV_CMD_NAV_TAKEOFF:
			z.tookOff = true
			return entered[z.firmware][ModeTakeoff], true
		case common.MAV_CMD_DO_REPOSITION: // PX4's pause
			return entered[z.firmware][ModeHold], true
		}
	case *common.MessageCommandInt:
		return entered[z.firmware][ModeHold], true
	}
	return 0, false
}

// enters is the simulator's hook: the vehicle enters a mode. The simulator's lock is held.
func (z *fuzzed) enters(custom uint32) {
	z.mu.Lock()
	defer z.mu.Unlock()
	now, s := time.Now(), z.sim
	z.note("the vehicle enters %s", z.name(custom))
	if custom == s.mode {
		return
	}
	oldest := now.Add(-15 * time.Second) // older commands explain nothing, except the last accepted one
	since := oldest
	if z.pending == 0 && now.Sub(z.ended) > followTime+time.Second { // every command is over
		since = later(oldest, z.asked) // of them only the last one still explains a mode
	}
	explained := z.commanded(s.switches().record, custom, since) || z.firmware == px4 && z.tookOff &&
		custom == entered[px4][ModeHold]
	for i, r := range z.history { // a plan explains the mode that it began in
		lately := i == len(z.history)-1 || z.history[i+1].at.After(oldest) // in force at some time since then
		explained = explained || lately && z.pending > 0 && r.custom == custom
	}
	z.history = append(z.history, modeAt{custom: custom, at: now})
	delete(z.foreign, custom)
	if !explained && s.armed {
		z.foreign[custom] = now
	}
}

// commanded reports whether a command since a time, or the last accepted one, may explain a mode.
func (z *fuzzed) commanded(record []simReceived, custom uint32, since time.Time) (yes bool) {
	for _, r := range slices.Backward(record) {
		if r.at.Before(since) {
			break
		}
		to, ok := z.leads(r.msg)
		yes = yes || ok && to == custom
	}
	for _, w := range z.wishes { // a command that was lost on a bad line explains its mode, too
		yes = yes || w.custom == custom && !w.at.Before(since)
	}
	for _, w := range z.acceptedModes {
		yes = yes || w.custom == custom
	}
	return yes
}

// wish notes the modes that a command may set, with its intermediate ones.
func (z *fuzzed) wish(path, body string) (all []modeAt) {
	out := []Mode{ModePosition, ModeAltitude} // they lead out of a stick mode
	modes := append(out, ModeHold, ModeTakeoff, ModeLand)
	for i, name := range modeNames[:ModeOther] {
		if strings.Contains(body, `"mode":"`+name+`"`) {
			modes = append(out, Mode(i))
		}
	}
	switch path {
	case "/takeoff":
		modes = []Mode{ModeHold, ModeTakeoff}
	case "/goto":
		modes = append(out, ModeHold)
	case "/land":
		modes = append(out, ModeHold, ModeLand)
	}
	for _, m := range modes {
		if (m == ModePosition || m == ModeAltitude) && z.firmware != px4 && !strings.Contains(body, m.String()) {
			continue // only PX4 leaves a stick mode through them
		}
		all = append(all, modeAt{custom: entered[z.firmware][m], at: time.Now()})
	}
	z.wishes = append(z.wishes, all...)
	return all
}

func (z *fuzzed) name(custom uint32) string {
	_, name := z.firmware.reported(custom)
	return name
}

// hears is called with every message that the drone hears.
func (z *fuzzed) hears(h heard) {
	z.drone.mu.Lock()
	trip, keepsNone := z.drone.cmd.acks.trip, !z.drone.cmd.reports.keeps()
	if !z.drone.machine.known {
		z.forgot.Store(h.at.UnixNano())
	}
	z.drone.mu.Unlock()
	switch m := h.msg.(type) {
	case *common.MessageAttitude, *common.MessageGlobalPositionInt:
		if keepsNone { // perhaps this message's clock showed a restart, which forgets the kept numbers
			z.reports.restart()
		}
	case *common.MessageCurrentMode:
		z.reports.hearMode(m.CustomMode, z.shown, h.at)
	case *minimal.MessageHeartbeat:
		armed := m.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0
		list := z.reports.hearHeartbeat(shownMode{custom: m.CustomMode, armed: armed}, z.shown, trip, h.at)
		for i, shown := range list {
			z.shown = shown
			b := *m
			b.CustomMode = shown.custom
			z.hearsReport(h, &b, i == len(list)-1)
		}
	}
}

// hearsReport takes one of the reports that a HEARTBEAT makes; last is true for the one that
// the drone shows.
func (z *fuzzed) hearsReport(h heard, b *minimal.MessageHeartbeat, last bool) {
	mode, vehicle := z.drone.mode()
	record := z.sim.received()
	z.mu.Lock()
	defer z.mu.Unlock()
	was := z.heard
	z.heard = *b
	armed := b.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0
	wasArmed := was.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0
	if b.CustomMode != was.CustomMode || armed != wasArmed {
		z.note("heard: %s, armed %v; mode %s", z.name(b.CustomMode), armed, mode)
	}
	// a failed plan disarms what it armed
	planDisarms := z.disarming == 0 && slices.ContainsFunc(record, func(r simReceived) bool {
		c, ok := r.msg.(*common.MessageCommandLong)
		return ok && c.Command == common.MAV_CMD_COMPONENT_ARM_DISARM && c.Param1 == 0 && h.at.Sub(r.at) < giveUp
	})
	mayArmAgain := z.disarming > 0 && z.newer // a client's newer command waits for the disarming
	if wasArmed && !armed && !mayArmAgain && !planDisarms {
		z.disarms = append(z.disarms, modeAt{at: h.at})
	}
	if last && vehicle != z.name(b.CustomMode) {
		z.fault("heard %s, and vehicle_mode is %s", z.name(b.CustomMode), vehicle)
	}
	at, unexplained := z.foreign[b.CustomMode]
	if z.known[b.CustomMode] { // a plan explains the mode that it began in
		unexplained = false
	}
	if z.pending > 0 {
		z.known[b.CustomMode] = true
	}
	if unexplained && z.commanded(record, b.CustomMode, at) { // a command of ours may explain it too
		delete(z.foreign, b.CustomMode)
		unexplained = false
	}
	if unexplained && armed && wasArmed && b.CustomMode != was.CustomMode && !h.at.Before(at) {
		delete(z.foreign, b.CustomMode)
		// else an answer of this instant may come from a newer report, and stays
		if last || z.ended.Before(time.Now()) {
			z.accepted, z.acceptedModes = "", nil
		}
		z.note("a report that nothing explains")
		for i := range z.windows { // the pilot's newest switch counts
			if z.windows[i].until.IsZero() {
				z.windows[i].until = h.at
			}
		}
		z.windows = append(z.windows, modeAt{custom: b.CustomMode, at: h.at})
		if want, _ := z.firmware.reported(b.CustomMode); last && mode != want {
			z.fault("after the report of %s the mode is %v", vehicle, mode)
		}
	}
}

// ask notes that a client asks for something. That closes every window, and every disarming.
func (z *fuzzed) ask() {
	z.asked = time.Now()
	for _, list := range [][]modeAt{z.windows, z.disarms} {
		for i := range list {
			if list[i].until.IsZero() {
				list[i].until = z.asked
			}
		}
	}
}

// post sends a command, and checks the answer when it comes.
func (z *fuzzed) post(path, body string) {
	z.mu.Lock()
	z.note("POST %s %s", path, body)
	z.ask()
	disarm := 0
	if strings.Contains(body, `"arm":false`) {
		disarm = 1
	}
	z.newer = disarm == 0
	z.disarming += disarm
	wishes := z.wish(path, body)
	if z.pending++; z.pending == 1 {
		z.known = map[uint32]bool{}
	}
	z.known[z.heard.CustomMode] = true
	n := len(z.windows)
	z.mu.Unlock()
	began := time.Now()
	z.clients.Go(func() {
		code, o := z.call("POST", path, body)
		mode, _ := z.drone.mode()
		truth := z.sim.truth().mode
		z.mu.Lock()
		defer z.mu.Unlock()
		z.note("%s %s: %d %v %v", path, body, code, o["code"], o["error"])
		if z.pending--; z.pending == 0 {
			z.known = nil
		}
		z.disarming -= disarm
		z.ended = time.Now()
		switch code {
		case 200:
			for i := range z.windows { // the vehicle obeyed the client after the pilot: the client's command is newer
				if z.windows[i].until.IsZero() {
					z.windows[i].until = time.Now()
				}
			}
			z.accepted, z.acceptedModes = o["mode"].(string), wishes
			if len(z.windows) == n { // no takeover since the request
				if armed := z.heard.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0; armed &&
					mode.String() != o["mode"] {
					z.fault("answered %v, and the mode is %v", o["mode"], mode)
				}
				wished := func(w modeAt) bool { return w.custom == truth && !w.at.Before(began) }
				if strings.Contains(body, `"arm":`) && !strings.Contains(body, `"mode":`) {
					break // it sets no mode
				}
				if !z.meddled && !slices.ContainsFunc(z.wishes, wished) {
					z.fault("answered %v, and the vehicle is in %s", o["mode"], z.name(truth))
				}
			}
		case 409, 422, 501, 503, 504: // 422: a speed that a wing does not fly
			if o["code"] == nil || o["error"] == nil {
				z.fault("%d %v", code, o)
			}
			if text, _ := o["error"].(string); strings.Contains(text, "the vehicle follows") {
				z.accepted, z.acceptedModes = mode.String(), wishes
			}
		default:
			z.fault("%d %v", code, o)
		}
		if took := time.Since(began); took > 50*time.Second {
			z.fault("%s took %v", path, took)
		}
	})
}

// input sends sticks, which must be refused while a pilot has them. A restart ends that.
func (z *fuzzed) input(body string) {
	code, o := z.call("POST", "/input", body)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.note("input %s: %d %v", body, code, o["code"])
	for i, w := range z.windows {
		if taken := code == 200 && w.until.IsZero(); taken && z.forgot.Load() > w.at.UnixNano() {
			z.windows[i].until = time.Now()
		} else if taken {
			z.fault("sticks are taken after the report of %s", z.name(w.custom))
		}
	}
	if code >= 500 && code != 503 && code != 501 {
		z.fault("input: %d %v", code, o)
	}
}

var fuzzWaits = []time.Duration{
	0, time.Millisecond, 4 * time.Millisecond, 11 * time.Millisecond, 25 * time.Millisecond, 60 * time.Millisecond,
	150 * time.Millisecond, 400 * time.Millisecond, 700 * time.Millisecond, time.Second, 2100 * time.Millisecond,
	3300 * time.Millisecond, 5200 * time.Millisecond, 11 * time.Second, 25 * time.Second, 30 * time.Millisecond,
}

// fuzzActs are what a byte may do, by its value; the next byte is its argument.
var fuzzActs = []func(z *fuzzed, arg byte){
	func(z *fuzzed, arg byte) { time.Sleep(fuzzWaits[arg%16]) }, // 0: time passes
	func(z *fuzzed, arg byte) { time.Sleep(fuzzWaits[arg%16]) },
	func(z *fuzzed, arg byte) { // 2 to 8: a client's commands and sticks
		arm := []string{"", "", "", `,"arm":true`}[arg/8%4]
		z.post("/mode", `{"mode":"`+modeNames[arg%8]+`"`+arm+`}`)
	},
	func(z *fuzzed, arg byte) {
		z.post("/mode", `{"mode":"`+[]string{"manual", "altitude", "position"}[arg%3]+`"}`)
	},
	func(z *fuzzed, arg byte) { z.post("/mode", fmt.Sprintf(`{"arm":%v}`, arg%3 > 0)) },
	func(z *fuzzed, arg byte) { z.post("/takeoff", fmt.Sprintf(`{"altitude":%d}`, 5+arg%32)) },
	func(z *fuzzed, arg byte) {
		extra := []string{"", `,"speed":3`, `,"heading":90`, `,"altitude":30`, `,"wait":20`}[arg%5]
		z.post("/goto", "{"+at(float64(arg)-128, float64(arg%16))+extra+"}")
	},
	func(z *fuzzed, arg byte) {
		if arg%2 == 0 {
			z.post("/land", "")
		} else {
			z.post("/land", "{"+at(float64(arg)/4-32, 5)+"}")
		}
	},
	func(z *fuzzed, arg byte) {
		sticks := []string{`"pitch":1`, `"roll":-0.5`, `"yaw":0.3`, `"throttle":0.8`, `"pitch":0`}[arg%5]
		if arg%5 != 3 {
			sticks += `,"throttle":0.5`
		}
		z.input(`{` + sticks + `,"timeout":` + []string{"0.1", "0.5", "2", "5"}[arg/5%4] + `}`)
	},
	func(z *fuzzed, arg byte) { // 9: a pilot's switch
		modes := map[firmware][]uint32{
			px4: {px4Custom(1, 0), px4Custom(2, 0), px4Custom(3, 0), px4Custom(4, 3), px4Custom(4, 5),
				px4Custom(4, 6), px4Custom(7, 0), px4Custom(4, 4)},
			copter: {0, 2, 5, 16, 4, 6, 9, copterBrake}, quadPlane: {17, 18, 19, 15, 20, 21, 5, 11},
		}[z.firmware]
		z.sim.pilotMode(modes[arg%8])
	},
	func(z *fuzzed, arg byte) { // 10: a pilot's sticks
		z.sim.pilotSticks(int16(arg%3)*400-400, int16(arg/3%3)*400-400, int16(arg/9%3)*500, 0)
	},
	func(z *fuzzed, arg byte) { z.sim.setReceiver(simReceiver(arg % 4)) }, // 11: a receiver
	func(z *fuzzed, arg byte) { // 12: a pilot arms or disarms, or a failsafe
		if arg%4 == 0 {
			z.sim.pilotArm(arg%8 == 0)
		} else {
			z.sim.failsafeReturn()
		}
	},
	func(z *fuzzed, arg byte) { // 13: the line is cut for a while
		cuts := [][2]func(){
			{z.sim.unplug, z.sim.plug},
			{func() { z.sim.change(func() { z.sim.switches().muted = true }) },
				func() { z.sim.change(func() { z.sim.switches().muted = false }) }},
		}
		c := cuts[arg/16%2]
		c[0]()
		time.Sleep(fuzzWaits[arg%16])
		c[1]()
	},
	func(z *fuzzed, arg byte) { z.acksBecome(arg) }, // 14: acks
	func(z *fuzzed, arg byte) { // 15: a slower line
		delays := []time.Duration{soakDelay, 8 * time.Millisecond, 60 * time.Millisecond, 210 * time.Millisecond}
		z.sim.change(func() { // frames keep their order
			z.sim.switches().delay = max(z.sim.switches().delay, delays[arg%4])
		})
	},
	func(z *fuzzed, arg byte) { // 16: commands are refused
		ids := []common.MAV_CMD{
			common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_NAV_LAND, common.MAV_CMD_DO_REPOSITION,
			common.MAV_CMD_COMPONENT_ARM_DISARM, common.MAV_CMD_CONDITION_YAW, common.MAV_CMD_NAV_TAKEOFF,
		}
		z.sim.change(func() {
			clear(z.sim.switches().refuses)
			if arg%8 < 6 {
				z.sim.switches().refuses[ids[arg%8]] = true
			}
		})
	},
	func(z *fuzzed, arg byte) { // 17: heartbeats are lost
		z.sim.change(func() { z.sim.switches().noBeatsUntil = time.Now().Add(fuzzWaits[arg%16]) })
	},
	func(z *fuzzed, arg byte) { // 18: commands may do nothing
		z.sim.change(func() { z.sim.switches().idle = arg%3 == 0 })
	},
	func(z *fuzzed, arg byte) { // 19: a restart, or somebody else's sticks
		if arg%8 == 0 {
			z.sim.reboot(arg%16 == 0)
		} else {
			m := &common.MessageManualControl{Target: 1, X: int16(arg), Z: 500}
			z.sim.emit(255, 190, m)
		}
	},
}

// acksBecome loses, delays or changes the acks from now on.
func (z *fuzzed) acksBecome(arg byte) {
	n := int(arg / 5)
	late := fuzzWaits[arg/5%16]
	z.sim.change(func() {
		z.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
			question := a.Command == common.MAV_CMD_REQUEST_MESSAGE || a.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL
			switch arg % 5 {
			case 1: // some acks are lost
				if n--; n >= 0 && !question {
					return nil
				}
			case 2:
				return []simAnswer{{ack: a, after: late}}
			case 3:
				return []simAnswer{{ack: a}, {ack: a, after: late}}
			case 4: // acks of commands are lost
				if !question {
					return nil
				}
			}
			return []simAnswer{{ack: a}}
		}
	})
}

// judge checks what was sent after the reports that no command explained.
func (z *fuzzed) judge() {
	record := z.sim.received()
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, w := range z.windows {
		var last axes
		for _, r := range record {
			m, sticks := r.msg.(*common.MessageManualControl)
			if sticks && !r.at.After(w.at) {
				last = axes{m.X, m.Y, m.Z, m.R}
			}
			if !r.at.After(w.at) || !w.until.IsZero() && !r.at.Before(w.until) {
				continue
			}
			when := fmt.Sprintf("%s, %v after the report of %s at %s", z.clock(r.at), r.at.Sub(w.at), z.name(w.custom),
				z.clock(w.at))
			if c, ok := r.msg.(*common.MessageCommandLong); ok && !slices.Contains([]common.MAV_CMD{
				common.MAV_CMD_SET_MESSAGE_INTERVAL, common.MAV_CMD_REQUEST_MESSAGE, common.MAV_CMD_RUN_PREARM_CHECKS,
			}, c.Command) {
				z.fault("%s: command %d %g %g", when, c.Command, c.Param1, c.Param2)
			}
			if c, ok := r.msg.(*common.MessageCommandInt); ok {
				z.fault("%s: command %d", when, c.Command)
			}
			if !sticks {
				continue
			}
			a := axes{m.X, m.Y, m.Z, m.R}
			centred := a == axes{z: a.z} && (a.z == 0 || a.z == 500 || a.z == last.z)
			if a != released && !centred && !(z.firmware == px4 && a == last) {
				z.fault("%s: sticks %+v", when, a)
			}
		}
	}
	for _, w := range z.disarms {
		for _, r := range record {
			c, ok := r.msg.(*common.MessageCommandLong)
			if ok && c.Command == common.MAV_CMD_COMPONENT_ARM_DISARM && c.Param1 == 1 && r.at.After(w.at) &&
				(w.until.IsZero() || r.at.Before(w.until)) {
				z.fault("armed at %s after it was disarmed at %s", z.clock(r.at), z.clock(w.at))
			}
		}
	}
}

// flyBytes is one flight: setup is the vehicle, acts are pairs of bytes.
func flyBytes(t *testing.T, setup byte, acts []byte) {
	flavour := []simFlavour{simPX4, simArduPilot, simQuadPlane}[setup%3]
	prepare := func(s *simulator) {
		s.receiver = simReceiver(setup / 3 % 4)
		s.switches().delay = soakDelay
		if flavour == simQuadPlane {
			s.params["Q_GUIDED_MODE"] = float64(setup / 12 % 2)
		}
	}
	z := &fuzzed{foreign: map[uint32]time.Time{}}
	start := func(d *drone) {
		hear := d.link.hear
		d.link.hear = func(h heard) {
			hear(h)
			if z.begun.Load() {
				z.hears(h)
			}
		}
	}
	flyWith(t, flavour, prepare, start, func(f *flight) {
		f.diary.tail = 200
		if setup/24%4 > 0 {
			f.sim.placeInAir(20)
		}
		time.Sleep(2500 * time.Millisecond)
		z.began = time.Now()
		f.sim.change(func() {
			z.flight = f
			z.heard = *f.sim.sharedMessage(0).(*minimal.MessageHeartbeat)
			z.heard.BaseMode, _ = f.sim.brain.state()
			z.reports = f.drone.cmd.reports
			z.reports.kept = slices.Clone(z.reports.kept)
			z.history = []modeAt{{custom: f.sim.mode, at: z.began}}
			f.sim.switches().onMode = z.enters
			z.begun.Store(true)
		})
		for ; len(acts) > 1 && time.Since(z.began) < fuzzTime && len(z.wrong) == 0; acts = acts[2:] {
			z.mu.Lock()
			act := int(acts[0]) % len(fuzzActs)
			z.note("act %d %d", act, acts[1])
			z.meddled = z.meddled || act > 8 && act != 15 && act != 16 // 15: a slower line, 16: refusals
			z.mu.Unlock()
			fuzzActs[act](z, acts[1])
			time.Sleep(137 * time.Microsecond)
		}
		f.sim.change(func() {
			f.sim.switches().muted, f.sim.switches().idle, f.sim.switches().onAck = false, false, nil
			f.sim.switches().delay, f.sim.switches().noBeatsUntil = soakDelay, time.Time{}
			clear(f.sim.switches().refuses)
		})
		f.sim.plug()
		time.Sleep(8 * time.Second)
		z.clients.Wait()
		z.judge()
		z.rests()
		if len(z.wrong) > 0 {
			f.Errorf("setup %d: %s", setup, strings.Join(z.wrong, "\n"))
		}
	})
}

// rests checks the flight when nothing more happens.
func (z *fuzzed) rests() {
	o := z.status()
	z.mu.Lock()
	defer z.mu.Unlock()
	custom, _ := z.firmware.reported(z.heard.CustomMode)
	if o["online"] != true {
		z.fault("it is not online: %v", o["link"])
	}
	m := o["mode"]
	returns := m == ModeRTGS.String() && custom == ModeRTL // rtgs is flown as the autopilot's own return
	if m != custom.String() && m != z.accepted && !returns && o["armed"] == true {
		z.fault("mode %v, the vehicle is in %v, accepted was %q", m, custom, z.accepted)
	}
	if b, ok := z.sim.brain.(*simArduBrain); ok && b.broken {
		z.fault("mode changes too close: an internal error")
	}
}

// FuzzPilot flies any order of commands, lost and late acks, a pilot's acts,
// sticks, lost lines and time against the whole program.
func FuzzPilot(f *testing.F) {
	for setup := range byte(24) {
		f.Add(24+setup, []byte{3, 2, 0, 9, 8, 0, 0, 7, 9, 1, 0, 10})
		f.Add(24+setup, []byte{6, 200, 0, 9, 9, 7, 0, 12, 2, 4, 0, 9, 13, 11, 0, 12})
		// sticks after a pilot's switch
		f.Add(24+setup, []byte{9, 0, 0, 9, 8, 1, 9, 1, 0, 9, 8, 2, 0, 10, 3, 1, 0, 9, 9, 2, 0, 5, 8, 5, 0, 10})
		f.Add(setup, []byte{5, 10, 0, 5, 9, 2, 0, 13, 7, 1, 14, 4, 0, 10, 9, 1, 0, 13})
	}
	for wait := range byte(16) { // a goto whose heading is refused, and a landing after it
		f.Add(byte(25), []byte{3, 2, 15, 3, 0, 9, 16, 4, 6, 202, 0, wait, 0, 8, 7, 0, 0, 13})
	}
	orders := uint64(60)
	if *runAll {
		orders = 300
	}
	for seed := range orders { // and random orders of all acts
		dice := rand.New(rand.NewPCG(seed, 7))
		acts := make([]byte, 2*(4+dice.IntN(40)))
		for i := range acts {
			acts[i] = byte(dice.Uint32())
		}
		f.Add(byte(dice.Uint32()), acts)
	}
	f.Fuzz(func(t *testing.T, setup byte, acts []byte) { flyBytes(t, setup, acts[:min(len(acts), 200)]) })
}

var (
	soakTime = flag.Duration("soak", 2*time.Hour, "simulated time of TestSoak; CI takes 24h")
	soakSeed = flag.Uint64("soak-seed", 0,
		"seed of TestSoak's first hour; each further hour has the next seed. Even seeds fly PX4, odd seeds ArduPilot")
)

// soakDelay is the delay of a good line. It divides no other time, so two things hardly ever
// happen at the same moment, where the scheduler would decide their order.
const soakDelay = 371 * time.Microsecond

// onlooker watches one soak flight and knows which answers are true.
type onlooker struct {
	*flight
	seed    uint64
	clients sync.WaitGroup
	number  int       // how many clients there have been
	carried time.Time // when the vehicle was last put elsewhere

	// Every user of random numbers, each client too, has its own generator. With a shared one the
	// order of the goroutines would change what they do.
	rand, ackRand *rand.Rand

	mu        sync.Mutex
	acked     map[uint16]int       // ACCEPTED acks that really went out, by command
	copies    map[uint16]time.Time // until when a second copy of such an ack may arrive
	explained map[string]bool      // the modes that mavrest may answer
	figures   map[string]int
}

func (w *onlooker) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures[what]++
}

// note writes into the flight's diary what the soak does and sees.
func (w *onlooker) note(format string, args ...any) { w.diary.note("soak", format, args...) }

// explain notes that mavrest may answer a mode from now on.
func (w *onlooker) explain(mode string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.explained[mode] = true
}

// onAck returns the simulator's hook during a fault. It changes acks as the fault says, and remembers
// the acks that go out. The simulator's mutex is held while it runs.
func (w *onlooker) onAck(fault string) func(*common.MessageCommandAck) []simAnswer {
	return func(a *common.MessageCommandAck) []simAnswer {
		list := []simAnswer{{ack: a}}
		switch fault {
		case "acks lost":
			if w.ackRand.IntN(2) == 0 {
				w.note("ack of %d lost (%d)", a.Command, a.Result)
				w.count("acks that were lost")
				return nil
			}
		case "acks late":
			list[0].after = time.Duration(w.ackRand.IntN(900)) * time.Millisecond
		case "acks doubled":
			list = append(list, simAnswer{ack: a, after: time.Duration(w.ackRand.IntN(900)) * time.Millisecond})
		case "acks from strangers":
			other := *a
			other.Result = common.MAV_RESULT_ACCEPTED
			list = append([]simAnswer{{ack: &other, component: 100}, {ack: &other, system: 9}}, list...)
		}
		w.note("ack of %d: %d, %d answers, the last after %v", a.Command, a.Result, len(list), list[len(list)-1].after)
		if a.Result == common.MAV_RESULT_ACCEPTED {
			w.mu.Lock()
			w.acked[uint16(a.Command)]++
			if last := time.Now().Add(list[len(list)-1].after); last.After(w.copies[uint16(a.Command)]) {
				w.copies[uint16(a.Command)] = last
			}
			w.mu.Unlock()
		}
		return list
	}
}

// anyCommand returns a random command of a client, within the ranges of the API.
func anyCommand(r *rand.Rand) (path, body string) {
	place := at(float64(r.IntN(200)-100), float64(r.IntN(200)-100))
	modes := []string{"manual", "altitude", "position", "takeoff", "hold", "land", "rtl", "rtgs"}
	switch r.IntN(8) {
	case 0, 1:
		return "/mode", `{"mode":"` + modes[r.IntN(len(modes))] + `"}`
	case 2:
		return "/mode", fmt.Sprintf(`{"arm":%v}`, r.IntN(2) == 0)
	case 3:
		return "/takeoff", fmt.Sprintf(`{"altitude":%d}`, 5+r.IntN(30))
	case 4, 5:
		return "/goto", fmt.Sprintf(`{%s,"altitude":%d,"speed":%d}`, place, 5+r.IntN(30), 1+r.IntN(10))
	case 6:
		return "/land", "{" + place + "}"
	}
	return "/land", ""
}

// command sends one command and checks whether its answer is true.
func (w *onlooker) command(client int, r *rand.Rand) {
	path, body := anyCommand(r)
	w.note("client %d: POST %s %s", client, path, body)
	w.mu.Lock()
	before := maps.Clone(w.acked)
	w.mu.Unlock()
	began := time.Now()
	if path == "/land" { // the first leg's mode shows before the command is answered
		w.explain("land")
	}
	code, o := w.call("POST", path, body)
	took := time.Since(began)
	w.note("client %d: %d %v", client, code, o)
	w.count(fmt.Sprintf("answered %d", code))
	switch code {
	case 200:
		now := w.sim.truth()
		id := uint16(o["command"].(float64))
		w.mu.Lock()
		// Acks have no number. A late second copy of an ack looks like the answer to the next
		// command with its id.
		proven := w.acked[id] > before[id] || !began.After(w.copies[id])
		// A report proves a mode change, an arming and a disarming (docs/design.md, rule 6).
		wanted, _ := parseMode(o["mode"].(string))
		switch common.MAV_CMD(id) {
		case common.MAV_CMD_DO_SET_MODE:
			proven = proven || now.mode == entered[w.firmware][wanted]
		case common.MAV_CMD_COMPONENT_ARM_DISARM:
			proven = proven || now.armed == strings.Contains(body, `"arm":true`)
		}
		w.mu.Unlock()
		if !proven {
			w.Errorf("%v: POST %s %s answered %v, but no ack went out; the vehicle is in %d, armed %v", time.Now(),
				path, body, o, now.mode, now.armed)
		}
		w.explain(o["mode"].(string))
	case 409, 501, 503, 504:
		if o["error"] == nil || o["code"] == nil {
			w.Errorf("POST %s %s: %d %v", path, body, code, o)
		}
	default:
		w.Errorf("POST %s %s: %d %v", path, body, code, o)
	}
	if took > 50*time.Second { // the server's write time-out is 60 s
		w.Errorf("POST %s %s took %v", path, body, took)
	}
}

// fault is something that goes wrong.
type fault struct {
	name  string
	begin func(w *onlooker)
	end   func(w *onlooker) // nil if the fault ends by itself
}

// noise makes both directions of the line bad.
func noise(rate float64) func(*onlooker) {
	return func(w *onlooker) {
		w.sim.change(func() { w.sim.setNoise(anyDamage(rate, 2*w.seed), anyDamage(rate, 2*w.seed+1)) })
	}
}

func ackFault(name string) fault {
	return fault{name,
		func(w *onlooker) { w.sim.change(func() { w.sim.switches().onAck = w.onAck(name) }) },
		func(w *onlooker) { w.sim.change(func() { w.sim.switches().onAck = w.onAck("") }) }}
}

var faults = []fault{
	{"noise 0.01 %", noise(0.0001), noise(0)},
	{"noise 0.1 %", noise(0.001), noise(0)},
	{"noise 1 %", noise(0.01), noise(0)},
	{"unplugged", func(w *onlooker) { w.sim.unplug() }, func(w *onlooker) { w.sim.plug() }},
	{"silent", func(w *onlooker) { w.sim.change(func() { w.sim.switches().muted = true }) },
		func(w *onlooker) { w.sim.change(func() { w.sim.switches().muted = false }) }},
	{"writes hang", func(w *onlooker) { w.sim.stallWrites(true) }, func(w *onlooker) { w.sim.stallWrites(false) }},
	{"heartbeats lost", func(w *onlooker) {
		until := time.Now().Add(time.Duration(w.rand.IntN(6000)) * time.Millisecond)
		w.sim.change(func() { w.sim.switches().noBeatsUntil = until })
	}, nil},
	{"rebooted in flight", func(w *onlooker) { w.sim.reboot(true) }, nil},
	{"rebooted on the ground", func(w *onlooker) { w.sim.reboot(false) }, nil},
	{"failsafe", func(w *onlooker) { w.sim.failsafeReturn() }, nil},
	{"pilot's switch", func(w *onlooker) {
		modes := w.pilotModes()
		w.sim.pilotMode(modes[w.rand.IntN(len(modes))])
	}, nil},
	{"pilot disarms or arms", func(w *onlooker) { w.sim.pilotArm(w.rand.IntN(2) == 0) }, nil},
	{"acknowledges commands and does nothing",
		func(w *onlooker) { w.sim.change(func() { w.sim.switches().idle = true }) },
		func(w *onlooker) { w.sim.change(func() { w.sim.switches().idle = false }) }},
	{"in progress for ever",
		func(w *onlooker) {
			w.sim.change(func() { w.sim.switches().neverDone[common.MAV_CMD_DO_REPOSITION] = true })
		},
		func(w *onlooker) { w.sim.change(func() { clear(w.sim.switches().neverDone) }) }},
	{"slow line", func(w *onlooker) { w.sim.change(func() { w.sim.switches().delay = 400 * time.Millisecond }) },
		func(w *onlooker) { w.sim.change(func() { w.sim.switches().delay = soakDelay }) }},
	ackFault("acks lost"), ackFault("acks late"), ackFault("acks doubled"), ackFault("acks from strangers"),
}

func (w *onlooker) pilotModes() []uint32 {
	if w.firmware == px4 {
		return []uint32{px4Custom(1, 0), px4Custom(2, 0), px4Custom(3, 0), px4Custom(4, 3), px4Custom(4, 5),
			px4Custom(4, 6), px4Custom(7, 0)}
	}
	return []uint32{0, 2, 5, 4, 6, 9, 17}
}

// look checks what must hold at every moment.
func (w *onlooker) look() {
	truth := w.sim.truth()
	mode, _ := w.firmware.reported(truth.mode)
	w.explain(mode.String())
	o := w.status()
	for _, misfit := range fits(map[string]any{"$ref": "#/components/schemas/Status"}, o, "status") {
		w.Error(misfit)
	}
	now := time.Now()
	synctest.Wait() // until a command that was just acknowledged is answered

	w.mu.Lock()
	ok := w.explained[o["mode"].(string)]
	w.mu.Unlock()
	if !ok {
		w.Errorf("%v: mode %v was neither commanded nor reported", now, o["mode"])
	}
	if p, ok := o["position"].(object); ok && p["lat"] != nil {
		n, e := simMetres(p["lat"].(float64), p["lon"].(float64))
		tn, te := simMetres(truth.lat, truth.lon)
		// In manual mode the vehicle flies some 20 m/s. A reboot on the ground puts it to home.
		allowed := 1 + 25*(p["age"].(float64)+0.5)
		if away := math.Hypot(n-tn, e-te); away > allowed && now.Sub(w.carried) >= 20*time.Second {
			w.Errorf("%v: position is %.1f m off and %v s old", now, away, p["age"])
			w.note("it is %.1f m north, %.1f m east, %.1f m up and flies %.1f, %.1f m/s", tn, te, truth.alt, truth.vn,
				truth.ve)
			w.note("status: %v", o)
		}
		if p["altitude"].(float64) < -5 || p["altitude"].(float64) > 200 {
			w.Errorf("%v: altitude %v", now, p["altitude"])
		}
	}
	if b, ok := o["battery"].(object); ok {
		if v := b["voltage"].(float64); v < 8 || v > 17 {
			w.Errorf("%v: battery %v V", now, v)
		}
	}
}

// settle ends every fault, and checks that the vehicle then obeys and flies home.
func (w *onlooker) settle() {
	w.note("settle")
	for _, f := range faults {
		if f.end != nil {
			f.end(w)
		}
	}
	time.Sleep(6 * time.Second) // the port opens again, late acks arrive
	w.until("online again", 20*time.Second, func() bool { return w.status()["online"] == true })
	// A takeoff that was not answered ends in a mode that no client commanded. That mode would end
	// the return below, and rightly so.
	climbing := entered[px4][ModeTakeoff]
	w.until("no takeoff can end during the return", 5*time.Minute, func() bool {
		s := w.sim.truth()
		return w.firmware != px4 || s.mode != climbing || !s.armed
	})
	time.Sleep(2 * time.Second)
	w.accepted("/mode", `{"mode":"rtl"}`)
	w.until("rtl shows", 10*time.Second, func() bool { return w.status()["mode"] == "rtl" })
	w.until("home and disarmed", 5*time.Minute, func() bool {
		if truth := w.sim.truth(); truth.armed && truth.alt < 0.5 {
			w.sim.pilotArm(false) // it was armed on the ground
		}
		return w.disarmed()
	})
	time.Sleep(2 * time.Second)
	w.drone.mu.Lock()
	defer w.drone.mu.Unlock()
	d := w.drone
	a := d.cmd.acks
	if len(d.cmd.tasks) > 0 || len(a.waiting) > 1 || len(a.late) > 20 || len(d.tel.texts.chunks) > 8 ||
		d.sticks.phase == stickClient {
		w.Errorf("left over: %d tasks, %d waiting, %d late acks, %d chunks, sticks %v", len(d.cmd.tasks),
			len(a.waiting), len(a.late), len(d.tel.texts.chunks), d.sticks.phase)
	}
}

// dice returns the random generator of one user.
func (w *onlooker) dice(who uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, who)) }

// watch adds an onlooker to a flight.
func watch(f *flight, seed uint64, d time.Duration, figures map[string]int) *onlooker {
	w := &onlooker{
		flight: f, seed: seed, figures: figures,
		acked: map[uint16]int{}, copies: map[uint16]time.Time{}, explained: map[string]bool{},
	}
	w.rand, w.ackRand = w.dice(1), w.dice(2)
	f.diary.tail = 200
	f.sim.change(func() {
		f.sim.switches().onAck = w.onAck("")
		f.sim.switches().delay = soakDelay
		f.sim.switches().onMode = func(custom uint32) {
			mode, _ := w.firmware.reported(custom)
			w.explain(mode.String())
			w.note("the vehicle's mode is %v (%d)", mode, custom)
		}
	})
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("to fly this flight again: go test -run '^TestSoak$' -cpu 1 -soak %v -soak-seed %d .", d, seed)
		}
	})
	return w
}

// client starts a client, which sends a command. Now and then it starts another that sends sticks.
// No two clients send at the same moment.
func (w *onlooker) client() {
	w.number++
	n, dice := w.number, w.dice(uint64(100+w.number))
	time.Sleep(time.Duration(13+dice.IntN(50)) * time.Microsecond)
	w.clients.Go(func() { w.command(n, dice) })
	if w.rand.IntN(3) > 0 {
		return
	}
	time.Sleep(17 * time.Microsecond)
	w.clients.Go(func() {
		w.note("client %d: sticks", n)
		w.call("POST", "/input", `{"roll":0.5,"pitch":1,"throttle":0.6,"timeout":2}`)
	})
}

// suffer lets clients send commands during a fault.
func (w *onlooker) suffer(fault fault) {
	w.count(fault.name)
	if strings.HasPrefix(fault.name, "rebooted on") {
		w.carried = time.Now()
	}
	w.note("begins: %s", fault.name)
	fault.begin(w)
	for range 2 + w.rand.IntN(4) {
		w.client()
		for range w.rand.IntN(8) {
			time.Sleep(700 * time.Millisecond)
			synctest.Wait()
			w.look()
		}
	}
	if fault.end != nil {
		fault.end(w)
	}
	w.note("ends: %s", fault.name)
}

// soakFlight flies with commands and faults from a seed, for some time.
func soakFlight(t *testing.T, seed uint64, d time.Duration, figures map[string]int) {
	fly(t, []simFlavour{simPX4, simArduPilot}[seed%2], nil, func(f *flight) {
		w := watch(f, seed, d, figures)
		w.explain("manual")
		time.Sleep(1234567 * time.Nanosecond) // so that it acts at other moments than the link and the simulator
		for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); {
			w.accepted("/mode", `{"mode":"hold"}`)
			if code, _ := f.call("POST", "/takeoff", ""); code == 200 {
				w.explain("takeoff")
				time.Sleep(8 * time.Second)
			}
			for range 6 {
				w.suffer(faults[w.rand.IntN(len(faults))])
			}
			w.clients.Wait()
			w.settle()
			w.count("flights")
		}
	})
}

// TestSoak flies for as long as -soak says, through every fault.
func TestSoak(t *testing.T) {
	total := *soakTime
	if testing.Short() {
		total /= 4
	}
	const leg = time.Hour
	for i := range uint64((total + leg - 1) / leg) {
		seed, d := *soakSeed+i, min(leg, total-time.Duration(i)*leg)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			figures := map[string]int{}
			soakFlight(t, seed, d, figures)
			t.Logf("%v", figures)
		})
	}
}
