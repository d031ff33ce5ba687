package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// The random world: a whole mavrest beside a simulated vehicle of any kind. Clients, pilots, other programs and faults
// of the line, of the port and of the vehicle act in any order. What they may do is one table. FuzzPilot draws
// from it by bytes, TestSoak by dice; both are judged by one oracle (kit_oracle_test.go, kit_laws_test.go).

// soakDelay is the delay of a good line. It divides no other time, so two things hardly ever
// happen at the same moment, where the scheduler would decide their order.
const soakDelay = 371 * time.Microsecond

// worldTime is the longest flight of the world.
const worldTime = 5 * time.Minute

// world is a flight in which anything may happen.
type world struct {
	*flight
	book    *book
	clients sync.WaitGroup
	began   time.Time

	// onAck returns what is sent in place of an ack; nil: acks go out as they are.
	onAck func(*common.MessageCommandAck) []simAnswer
}

// worldKind is a vehicle of the world.
type worldKind struct {
	name    string
	flavour simFlavour
	params  map[string]float64
	inAir   bool   // a flight may begin in the air
	lacks   string // a parameter that the vehicle does not have, though what it calls itself has it
}

var worldKinds = []worldKind{
	{"px4", simPX4, nil, true, ""},
	{"copter", simArduPilot, nil, true, ""},
	{"px4-vtol", simPX4VTOL, nil, true, ""},
	{"quadplane that hovers at places", simQuadPlane, map[string]float64{"Q_GUIDED_MODE": 1}, true, ""},
	{"px4-rover", simPX4Rover, nil, false, ""},
	{"quadplane that circles places", simQuadPlane, map[string]float64{"Q_GUIDED_MODE": 0}, true, ""},
	{"px4-plane", simPX4Plane, nil, false, ""},
	{"px4 that obeys a transmitter first", simPX4, map[string]float64{"COM_RC_IN_MODE": 5}, true, ""},
}

// liarKind is not what it calls itself. It has the setups from liarSetup on.
var liarKind = worldKind{"another one that calls itself a copter", simArduPilot, nil, true, "RTL_ALT"}

const liarSetup = 192

// longUp is the bit of a setup of a vehicle that has been on for so long that its boot clock runs over in the flight.
const longUp = 64

// clockEnds is when a boot clock runs over: 2^32 ms, 49.7 days.
const clockEnds = (1 << 32) * time.Millisecond

// vehicle is the kind that a flight's setup chooses, its receiver, and whether it begins in the air.
func vehicle(setup byte) (k worldKind, receiver simReceiver, inAir bool) {
	if setup >= liarSetup {
		return liarKind, simReceiver(setup % 4), setup/4%2 == 0
	}
	n := byte(len(worldKinds))
	k = worldKinds[setup%n]
	return k, simReceiver(setup / n % 4), k.inAir && setup/n/4%2 == 0
}

// note writes into the flight's diary what the world does.
func (w *world) note(format string, args ...any) { w.diary.note("world", format, args...) }

// pass lets time pass, and looks at the status now and then.
func (w *world) pass(d time.Duration) {
	const every = 700 * time.Millisecond
	for ; d > every; d -= every {
		time.Sleep(every)
		w.look()
	}
	time.Sleep(d)
}

// look asks for the status.
func (w *world) look() {
	w.book.looked(w.book.call(w.flight, 0, "GET", "/status", ""))
}

// ask lets a client ask for something, and does not wait for the answer.
func (w *world) ask(client int, path, body string) {
	w.clients.Go(func() { w.book.call(w.flight, client, "POST", path, body) })
	time.Sleep(113 * time.Microsecond) // no two clients ask in one moment
}

// askAndWait waits for the answer, and looks meanwhile.
func (w *world) askAndWait(path, body string) (a *seenAsk) {
	answered := make(chan *seenAsk, 1)
	w.clients.Go(func() { answered <- w.book.call(w.flight, 0, "POST", path, body) })
	for {
		select {
		case a := <-answered:
			return a
		case <-time.After(700 * time.Millisecond):
			w.look()
		}
	}
}

// others lets others than the clients do something to the flight. What lasts does so until the book is told that
// it ends.
func (w *world) others(kind troubleKind, name string, lasts bool, do func()) *trouble {
	w.note("%s", name)
	t := w.book.begins(kind, name, lasts)
	do()
	return t
}

var worldWaits = []time.Duration{
	0, time.Millisecond, 4 * time.Millisecond, 11 * time.Millisecond, 25 * time.Millisecond, 60 * time.Millisecond,
	150 * time.Millisecond, 400 * time.Millisecond, 700 * time.Millisecond, time.Second, 2100 * time.Millisecond,
	3300 * time.Millisecond, 5200 * time.Millisecond, 11 * time.Second, 25 * time.Second, 30 * time.Millisecond,
}

// place is a place of a goto or a landing, as the fields of a body. A wing needs more room.
func (w *world) place(arg byte) string {
	scale := 0.5
	if w.book.flavour == simPX4Plane {
		scale = 4
	}
	return at((float64(arg)-128)*scale, float64(arg%16)*4*scale)
}

// height is that of a takeoff. A wing is clear of the ground 10 m above it.
func (w *world) height(arg byte) int {
	if w.book.flavour == simPX4Plane {
		return 15 + int(arg%25)
	}
	return 6 + int(arg%25)
}

// wait is a client's wait for its manoeuvre.
func (w *world) wait(arg byte) string { return []string{"", "", `,"wait":20`, `,"wait":60`}[arg/64] }

// act is something that may happen. Its argument says how.
type act struct {
	name string
	// calm, pilots, line: how often the dice of these weathers throw it
	calm, pilots, line int
	do                 func(w *world, arg byte)
}

// body is an object of fields.
func body(fields string) string { return "{" + strings.TrimPrefix(fields, ",") + "}" }

// pick chooses from a list by an argument.
func pick[T any](arg byte, list ...T) T { return list[int(arg)%len(list)] }

var worldActs = []act{
	{"time passes", 14, 14, 14, func(w *world, arg byte) { w.pass(worldWaits[arg%16]) }},
	{"seconds pass", 6, 4, 4, func(w *world, arg byte) { w.pass(time.Duration(1+arg%9) * time.Second) }},

	// Clients

	{"mode", 5, 7, 7, func(w *world, arg byte) {
		w.ask(int(arg)%2, "/mode", body(`"mode":"`+modeNames[arg%8]+`"`+pick(arg/8, "", "", "", `,"arm":true`)))
	}},
	{"stick mode", 4, 5, 3, func(w *world, arg byte) {
		w.ask(int(arg/3)%2, "/mode", body(`"mode":"`+pick(arg, "manual", "altitude", "position")+`"`))
	}},
	{"arm", 2, 2, 2, func(w *world, arg byte) { w.ask(0, "/mode", fmt.Sprintf(`{"arm":%v}`, arg%3 > 0)) }},
	{"takeoff", 3, 3, 3, func(w *world, arg byte) {
		w.ask(0, "/takeoff", body(fmt.Sprintf(`"altitude":%d`, w.height(arg))+w.wait(arg)))
	}},
	{"goto", 6, 6, 6, func(w *world, arg byte) {
		extra := pick(arg, "", `,"speed":3`, `,"heading":90`, `,"altitude":30`, `,"speed":12`, "")
		w.ask(int(arg/6)%2, "/goto", body(w.place(arg)+extra+w.wait(arg)))
	}},
	{"goto of a height, a heading or metres", 5, 5, 5, func(w *world, arg byte) {
		metres := pick(arg/4, `"forward":30`, `"north":25,"east":-10`, `"up":6`, `"right":-20,"up":4`,
			`"forward":-15,"up":-3`, `"east":40,"speed":4`)
		w.ask(0, "/goto", body(pick(arg, fmt.Sprintf(`"altitude":%d`, 6+arg%32), `"heading":200`, metres, metres)+
			w.wait(arg)))
	}},
	{"takeoff to the default height", 1, 1, 1, func(w *world, arg byte) {
		if w.book.flavour != simPX4Plane {
			w.ask(0, "/takeoff", "")
		}
	}},
	{"land", 2, 2, 3, func(w *world, arg byte) { w.ask(0, "/land", body(w.wait(arg))) }},
	{"land at a place", 3, 3, 3, func(w *world, arg byte) { w.ask(0, "/land", body(w.place(arg)+w.wait(arg))) }},
	{"input", 6, 7, 5, func(w *world, arg byte) {
		sticks := pick(arg, `"pitch":1`, `"roll":-0.5`, `"yaw":0.3`, `"throttle":0.8`, `"pitch":0`, `"pitch":0.2`)
		if arg%6 != 3 && arg%6 != 5 {
			sticks += `,"throttle":0.5`
		}
		w.ask(int(arg/24)%2, "/input", body(sticks+`,"timeout":`+pick(arg/6, "0.1", "0.5", "2", "5")))
	}},

	// Clients with a plan: longer than one act, as people fly

	{"takes off, and waits", 6, 4, 3, func(w *world, arg byte) {
		w.askAndWait("/takeoff", body(fmt.Sprintf(`"altitude":%d,"wait":30`, w.height(arg))))
		w.pass(time.Second)
	}},
	{"takes off, and sends a goto right behind", 3, 2, 2, func(w *world, arg byte) {
		w.ask(0, "/takeoff", body(fmt.Sprintf(`"altitude":%d`, w.height(arg))))
		w.pass(worldWaits[arg%12])
		w.askAndWait("/goto", body(w.place(arg)))
	}},
	{"flies by sticks, and falls silent", 6, 4, 2, func(w *world, arg byte) {
		mode := pick(arg, "altitude", "manual", "position", "altitude")
		if w.askAndWait("/mode", body(`"mode":"`+mode+`"`)).code != 200 {
			return
		}
		for range 2 + arg/4%8 {
			w.ask(0, "/input", body(pick(arg, `"pitch":0.4`, `"roll":0.3`, `"yaw":-0.5`)+`,"throttle":0.52,"timeout":`+
				pick(arg/32, "0.5", "0.3", "4.2", "1")))
			w.pass(230 * time.Millisecond)
		}
		w.pass(pick(arg/64, 8*time.Second, 9*time.Second, 2*time.Second, 8*time.Second))
	}},
	{"waits at a place", 5, 2, 1, func(w *world, arg byte) {
		extra := pick(arg, `,"altitude":20`, `,"heading":45`, "", `,"altitude":12,"speed":4`)
		w.askAndWait("/goto", body(w.place(arg)+extra+`,"wait":70`))
	}},
	{"lands at a place, and waits", 3, 2, 1, func(w *world, arg byte) {
		w.askAndWait("/land", body(w.place(128+arg%40)+`,"wait":90`))
	}},
	{"lands or returns, and waits", 2, 2, 1, func(w *world, arg byte) {
		w.askAndWait("/mode", body(`"mode":"`+pick(arg, "land", "rtl", "rtgs", "hold")+`","wait":60`))
	}},
	{"goes over to its wing, or back", 4, 2, 1, func(w *world, arg byte) {
		w.transition(pick(arg, common.MAV_VTOL_STATE_FW, common.MAV_VTOL_STATE_MC, common.MAV_VTOL_STATE_FW))
	}},
	{"is asked while it goes over", 4, 1, 1, func(w *world, arg byte) {
		if !w.transition(pick(arg, common.MAV_VTOL_STATE_FW, common.MAV_VTOL_STATE_MC)) {
			return
		}
		w.pass(time.Second)
		w.ask(0, pick(arg/2, "/goto", "/land", "/mode"), pick(arg/2, body(w.place(arg)+`,"heading":90`),
			body(w.place(arg)), `{"mode":"altitude"}`))
		w.pass(4 * time.Second)
	}},
	{"goes over while a client flies by sticks", 4, 1, 0, func(w *world, arg byte) {
		if w.book.flavour != simPX4VTOL || w.askAndWait("/mode", `{"mode":"altitude"}`).code != 200 {
			return
		}
		w.ask(0, "/input", `{"pitch":0.2,"throttle":0.5,"timeout":5}`)
		w.transition(pick(arg, common.MAV_VTOL_STATE_FW, common.MAV_VTOL_STATE_MC))
		w.pass(700 * time.Millisecond)
		w.ask(0, "/input", `{"pitch":0.2,"throttle":0.5,"timeout":1}`)
		w.pass(7 * time.Second)
	}},

	// Pilots and other programs

	{"a pilot's switch", 0, 8, 2, func(w *world, arg byte) {
		w.pilotSwitches(pick(arg, pilotModes[w.firmware]...))
	}},
	{"a pilot's switch in the middle", 0, 14, 3, func(w *world, arg byte) {
		commands := []struct{ path, body string }{
			{"/takeoff", body(fmt.Sprintf(`"altitude":%d`, w.height(arg)))},
			{"/goto", body(w.place(arg))}, {"/land", body(w.place(arg))},
			{"/mode", `{"mode":"altitude"}`}, {"/mode", `{"mode":"hold"}`}, {"/mode", `{"mode":"rtl"}`},
			{"/mode", `{"mode":"position"}`}, {"/goto", `{"heading":90,"altitude":25}`},
		}
		if arg%16 < 8 { // it is not answered: copies go out
			w.neverDone()
		}
		c := pick(arg, commands...)
		w.ask(0, c.path, c.body)
		w.pass(worldWaits[1+arg/16%8])
		w.pilotSwitches(pick(arg/3, pilotModes[w.firmware]...))
		w.pass(2500 * time.Millisecond)
		w.obeysAgain()
	}},
	{"a pilot's switch to a mode that was commanded before his last switch", 0, 4, 1, func(w *world, arg byte) {
		modes := pick(arg, [2]Mode{ModeRTL, ModeLand}, [2]Mode{ModeLand, ModeRTL}, [2]Mode{ModeRTL, ModeHold})
		switches := func(to Mode) { w.pilotSwitches(entered[w.firmware][to]) }
		w.neverDone()
		w.ask(0, "/mode", body(`"mode":"`+modes[0].String()+`"`))
		w.pass(worldWaits[5+arg/4%5])
		switches(ModePosition)
		w.pass(worldWaits[4+arg/32%4])
		w.ask(0, "/mode", body(`"mode":"`+modes[1].String()+`"`))
		w.pass(350 * time.Millisecond)
		switches(modes[0])
		w.pass(2500 * time.Millisecond)
		w.obeysAgain()
	}},
	{"a pilot's switch while a client flies by sticks", 0, 8, 1, func(w *world, arg byte) {
		mode := pick(arg, "altitude", "manual", "position")
		if w.askAndWait("/mode", body(`"mode":"`+mode+`"`)).code != 200 {
			return
		}
		sticks := body(pick(arg/3, `"pitch":0.4`, `"roll":0.3`, `"yaw":-0.5`) + `,"throttle":0.52,"timeout":` +
			pick(arg/32, "0.5", "0.3", "4.2", "1"))
		w.ask(0, "/input", sticks)
		w.pass(worldWaits[arg/8%14])
		w.pilotSwitches(pick(arg/3, pilotModes[w.firmware]...))
		w.pass(worldWaits[arg%8])
		w.ask(0, "/input", sticks)
		w.pass(5 * time.Second)
	}},
	{"a pilot's sticks", 0, 2, 0, func(w *world, arg byte) {
		w.others(foreignTrouble, "a pilot's sticks", true, func() {
			w.sim.pilotSticks(int16(arg%3)*400-400, int16(arg/3%3)*400-400, int16(arg/9%3)*500, 0)
		})
	}},
	{"a receiver", 0, 2, 0, func(w *world, arg byte) {
		w.others(foreignTrouble, "a receiver", true, func() { w.sim.setReceiver(simReceiver(arg % 4)) })
	}},
	{"a pilot arms or disarms", 0, 2, 1, func(w *world, arg byte) {
		w.others(foreignTrouble, "a pilot arms or disarms", false, func() { w.sim.pilotArm(arg%2 == 0) })
	}},
	{"a failsafe", 0, 2, 1, func(w *world, arg byte) {
		w.others(foreignTrouble, "a failsafe", false, w.sim.failsafeReturn)
	}},
	{"another program's sticks", 0, 2, 0, func(w *world, arg byte) {
		w.others(foreignTrouble, "another program's sticks", false, func() {
			w.sim.emit(255, 190, &common.MessageManualControl{Target: 1, X: int16(arg), Z: 500})
		})
	}},

	// The line, the port and the vehicle

	{"the line is cut for a while", 0, 1, 3, func(w *world, arg byte) {
		name := pick(arg/16, "unplugged", "silent", "writes hang")
		w.others(lineTrouble, name, true, func() { w.cut(name, true) })
		w.pass(worldWaits[arg%16])
		w.cut(name, false)
		w.book.ends(name)
	}},
	{"the line is cut during a command", 0, 0, 3, func(w *world, arg byte) {
		name := pick(arg, "unplugged", "writes hang", "silent")
		w.ask(0, pick(arg/3, "/land", "/goto"), pick(arg/3, "", body(w.place(arg))))
		w.pass(worldWaits[arg/16%8])
		w.others(lineTrouble, name, true, func() { w.cut(name, true) })
		if arg/2%2 == 1 { // so shortly that what waits may still go out
			w.pass(1100 * time.Millisecond)
			w.cut(name, false)
			w.book.ends(name)
			return
		}
		w.pass(4 * time.Second)
		w.askAndWait(pick(arg/6, "/land", "/mode"), pick(arg/6, "", `{"mode":"hold"}`))
		w.pass(worldWaits[arg%14])
		w.cut(name, false)
		w.book.ends(name)
	}},
	{"acks", 0, 3, 5, (*world).acksBecome},
	{"a slower line", 0, 1, 2, func(w *world, arg byte) {
		delay := pick(arg, soakDelay, 8*time.Millisecond, 60*time.Millisecond, 210*time.Millisecond)
		w.others(lineTrouble, fmt.Sprint("a line of ", delay), true, func() {
			// never a shorter one: frames keep their order
			w.sim.change(func() { w.sim.switches().delay = max(w.sim.switches().delay, delay) })
		})
	}},
	{"the line falls behind", 0, 1, 2, func(w *world, arg byte) { w.fallsBehind(arg) }},
	{"the line falls behind, and a pilot switches", 0, 4, 6, func(w *world, arg byte) {
		w.fallsBehind(arg)
		w.pass(worldWaits[arg%12])
		switch arg / 4 % 4 {
		case 0:
			w.ask(0, "/land", body(w.place(128+arg%16)))
		case 1: // a client falls silent
			w.ask(0, "/mode", `{"mode":"position"}`)
		default: // copies go out
			w.neverDone()
			w.ask(0, pick(arg, "/goto", "/takeoff"), pick(arg, body(w.place(arg)), body(`"altitude":30`)))
		}
		w.pass(worldWaits[4+arg/16%8])
		w.pilotSwitches(pick(arg/3, pilotModes[w.firmware]...))
		w.pass(11 * time.Second)
		w.obeysAgain()
		w.catchesUp()
	}},
	{"noise", 0, 0, 5, func(w *world, arg byte) {
		rate := pick(arg, 0, 0.0001, 0.001, 0.01, 0.05, 0.2)
		w.others(lineTrouble, fmt.Sprint("noise ", rate), true, func() { w.noise(rate, uint64(arg)) })
	}},
	{"commands are refused", 1, 2, 2, func(w *world, arg byte) {
		ids := []common.MAV_CMD{
			common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_NAV_LAND, common.MAV_CMD_DO_REPOSITION,
			common.MAV_CMD_COMPONENT_ARM_DISARM, common.MAV_CMD_CONDITION_YAW, common.MAV_CMD_NAV_TAKEOFF,
		}
		w.others(craftTrouble, fmt.Sprint("commands are refused ", arg%8), true, func() {
			w.sim.change(func() {
				clear(w.sim.switches().refuses)
				if arg%8 < 6 {
					w.sim.switches().refuses[ids[arg%8]] = true
				}
			})
		})
	}},
	{"heartbeats are lost", 0, 1, 2, func(w *world, arg byte) {
		until := time.Now().Add(worldWaits[arg%16])
		t := w.others(lineTrouble, "heartbeats are lost", false, func() {
			w.sim.change(func() { w.sim.switches().noBeatsUntil = until })
		})
		w.book.mu.Lock()
		t.until = until
		w.book.mu.Unlock()
	}},
	{"commands do nothing", 0, 1, 2, func(w *world, arg byte) {
		w.others(craftTrouble, "commands do nothing", true, func() {
			w.sim.change(func() { w.sim.switches().idle = arg%3 == 0 })
		})
	}},
	{"it starts again", 0, 1, 1, func(w *world, arg byte) {
		if w.sim.uptime > 0 {
			w.note("its clock would look as if it had run over")
			return
		}
		inFlight := arg%2 == 0
		w.others(craftTrouble, pick(arg, "restart in the air", "restart on the ground"), false,
			func() { w.sim.reboot(inFlight) })
	}},
	{"all faults end", 2, 2, 3, func(w *world, arg byte) { w.calm() }},
}

// pilotModes are those that a pilot switches to.
var pilotModes = map[firmware][]uint32{
	px4: {px4Custom(1, 0), px4Custom(2, 0), px4Custom(3, 0), px4Custom(4, 3), px4Custom(4, 5),
		px4Custom(4, 6), px4Custom(7, 0), px4Custom(4, 4)},
	copter:    {0, 2, 5, 16, 4, 6, 9, copterBrake},
	quadPlane: {17, 18, 19, 15, 20, 21, 5, 11},
}

// transition lets somebody else command a VTOL to its wing or back to hover; ok is false if the vehicle is none.
func (w *world) transition(to common.MAV_VTOL_STATE) (ok bool) {
	if w.book.flavour != simPX4VTOL {
		return false
	}
	w.others(foreignTrouble, "transition", false, func() {
		w.sim.change(func() { w.sim.brain.(*simPX4KindBrain).transition(to) })
	})
	return true
}

// pilotSwitches lets a pilot switch to a mode.
func (w *world) pilotSwitches(custom uint32) {
	name := "a pilot's switch to " + w.book.name(custom)
	w.others(foreignTrouble, name, false, func() { w.sim.pilotMode(custom) })
}

const inProgress = "commands are in progress for ever"

// neverDone makes the vehicle answer commands by IN_PROGRESS and do nothing.
func (w *world) neverDone() {
	w.others(craftTrouble, inProgress, true, func() {
		w.sim.change(func() {
			for _, cmd := range []common.MAV_CMD{common.MAV_CMD_DO_REPOSITION, common.MAV_CMD_DO_SET_MODE,
				common.MAV_CMD_NAV_TAKEOFF} {
				w.sim.switches().neverDone[cmd] = true
			}
		})
	})
}

// obeysAgain ends what neverDone began.
func (w *world) obeysAgain() {
	w.sim.change(func() { clear(w.sim.switches().neverDone) })
	w.book.ends(inProgress)
}

// cut cuts the line in one of three ways, or mends it.
func (w *world) cut(name string, on bool) {
	switch {
	case name == "silent":
		w.sim.change(func() { w.sim.switches().muted = on })
	case name == "writes hang":
		w.sim.stallWrites(on)
	case on:
		w.sim.unplug()
	default:
		w.sim.plug()
	}
}

// noise damages bytes in both directions. The book reads what goes in before it is damaged.
func (w *world) noise(rate float64, seed uint64) {
	w.sim.change(func() {
		var there, back simWire
		w.sim.switches().noiseIn = func(b []byte) []byte { return there.carry(b, anyDamage(rate, 2*seed)) }
		w.sim.switches().noiseOut = func(b []byte) []byte {
			w.book.emits(b)
			return back.carry(b, anyDamage(rate, 2*seed+1))
		}
	})
}

// emits takes what the vehicle or somebody else sends to mavrest.
func (b *book) emits(raw []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range checkedFrames(raw) {
		b.emitted[frameHash(f)] = true
	}
}

// acksBecome loses, delays or changes the acks from now on.
func (w *world) acksBecome(arg byte) {
	n := int(arg / 8)
	late := worldWaits[arg/8%13]
	name := pick(arg, "acks as they are", "some acks are lost", "late acks", "doubled acks", "acks are lost",
		"acks of strangers", "acks for others", "acks of another command")
	if late > 900*time.Millisecond && (arg%8 == 2 || arg%8 == 3) {
		name = "very " + strings.Replace(name, "doubled", "late", 1)
	}
	w.others(lineTrouble, name, true, func() {})
	w.sim.change(func() {
		w.onAck = func(a *common.MessageCommandAck) []simAnswer {
			question := a.Command == common.MAV_CMD_REQUEST_MESSAGE || a.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL
			other := *a
			other.Result = common.MAV_RESULT_ACCEPTED
			as := []simAnswer{{ack: a}}
			switch arg % 8 {
			case 1:
				if n--; n >= 0 && !question {
					return nil
				}
			case 2:
				as[0].after = late
			case 3:
				return append(as, simAnswer{ack: a, after: late})
			case 4:
				if !question {
					return nil
				}
			case 5:
				return append([]simAnswer{{ack: &other, component: 100}, {ack: &other, system: 9}}, as...)
			case 6:
				other.TargetSystem, other.TargetComponent = 255, 190
				return append([]simAnswer{{ack: &other}}, simAnswer{ack: a, after: 150 * time.Millisecond})
			case 7:
				other.Command = pick(arg/8, common.MAV_CMD_DO_REPOSITION, common.MAV_CMD_NAV_TAKEOFF)
				return []simAnswer{{ack: &other}, {ack: a, after: 150 * time.Millisecond}}
			}
			return as
		}
	})
}

// fallsBehind lets the line from the vehicle fall behind, ever more, for a while.
func (w *world) fallsBehind(arg byte) {
	most := pick(arg, 200*time.Millisecond, 600*time.Millisecond, 1500*time.Millisecond, 4*time.Second, 8*time.Second)
	from, within := time.Now(), worldWaits[6+arg/8%8]
	w.others(lineTrouble, fmt.Sprint("the line falls behind by ", most), true, func() {
		by := grows(0, within, most)
		w.sim.change(func() { w.sim.switches().behind = func(at time.Time) time.Duration { return by(at.Sub(from)) } })
	})
}

// catchesUp lets a line that has fallen behind be as quick as it was, once all has come that is on its way.
func (w *world) catchesUp() {
	w.note("the line catches up")
	w.sim.change(func() { w.sim.switches().behind = nil })
}

// calm ends all faults of the line, of the port and of the vehicle.
func (w *world) calm() {
	w.note("all faults end")
	over := time.Now()
	w.sim.change(func() {
		s := w.sim.switches()
		s.muted, s.idle, w.onAck = false, false, nil
		s.delay, s.behind, s.noBeatsUntil = soakDelay, nil, time.Time{}
		clear(s.refuses)
		clear(s.neverDone)
		over = later(over, w.sim.arrives) // what is on its way still comes late
	})
	w.sim.stallWrites(false)
	w.sim.plug()
	w.noise(0, 0)
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	for _, t := range w.book.troubles {
		if t.until.IsZero() && t.kind != foreignTrouble {
			t.until = over
		}
	}
}

// worldTap is mavrest's port; the book reads what is written.
type worldTap struct {
	port
	book  *book
	truth func() simState
}

func (t worldTap) Write(raw []byte) (int, error) {
	if !bytes.Equal(raw, padding[:]) {
		t.book.wrote(raw, t.truth)
	}
	return t.port.Write(raw)
}

// flyBytes is one flight: setup is the vehicle, what happens are pairs of bytes.
func flyBytes(t *testing.T, setup byte, happens []byte, again string) {
	kind, receiver, inAir := vehicle(setup)
	w := &world{book: newBook(kind.flavour)}
	w.book.liar = kind.lacks != ""
	var truth func() simState
	prepare := func(s *simulator) {
		truth = s.truth
		s.receiver = receiver
		s.switches().delay = soakDelay
		if setup&longUp > 0 && setup < liarSetup {
			s.uptime = clockEnds - 30*time.Second - time.Duration(setup%longUp)*4*time.Second
		}
		for name, value := range kind.params {
			s.params[name] = value
		}
		delete(s.params, kind.lacks)
		s.switches().onMode = w.book.enters
		s.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
			w.book.answers(a)
			if w.onAck == nil {
				return []simAnswer{{ack: a}}
			}
			return w.onAck(a)
		}
		s.switches().noiseIn = bytes.Clone
		s.switches().noiseOut = func(b []byte) []byte {
			w.book.emits(b)
			return b
		}
	}
	start := func(d *drone) {
		hear := d.link.drone.hear
		d.link.drone.hear = func(h heard) {
			w.book.hears(h.copied(), truth())
			hear(h)
		}
		over(func(p port) port { return worldTap{p, w.book, truth} })(d)
	}
	flyWith(t, kind.flavour, prepare, start, func(f *flight) {
		w.flight = f
		f.diary.tail = 200
		f.Cleanup(func() {
			if f.Failed() && again != "" {
				f.Logf("to fly this flight again: %s", again)
			}
		})
		w.note("%s, receiver %d, in the air: %v, on for %v", kind.name, receiver, inAir, f.sim.uptime)
		if inAir {
			w.book.begins(foreignTrouble, "placed in the air", false)
			f.sim.placeInAir(20)
			time.Sleep(8 * time.Second)
			w.book.forget()
		}
		w.book.enters(f.sim.truth().mode)
		time.Sleep(2500*time.Millisecond + 137*time.Microsecond)
		w.began = time.Now()
		for ; len(happens) > 1 && time.Since(w.began) < worldTime && !t.Failed(); happens = happens[2:] {
			a := worldActs[int(happens[0])%len(worldActs)]
			w.note("%s (%d)", a.name, happens[1])
			a.do(w, happens[1])
			time.Sleep(137 * time.Microsecond)
		}
		w.calm()
		w.pass(16 * time.Second) // what has stopped is asked for again
		w.clients.Wait()
		w.rests()
		w.book.received(slices.DeleteFunc(f.sim.received(), func(r simReceived) bool { return r.at.Before(w.began) }))
		if wrongs, first := w.book.judge(f.diary.began); len(wrongs) > 0 {
			f.diary.ends = first.Add(2 * time.Second)
			f.Errorf("%s, setup %d:\n%s", kind.name, setup, strings.Join(wrongs, "\n"))
		}
	})
}

// forget forgets the troubles so far: the flight begins now.
func (b *book) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = nil
}

// rests checks that nothing is left over when nothing more happens.
func (w *world) rests() {
	o := w.status()
	if o["online"] != true {
		w.Errorf("it is not online: %v", o["link"])
	}

	// The vehicle sends its battery once a second by itself, and mavrest asks for no more where that was forgotten.
	for name, most := range map[string]float64{"position": 0.7, "attitude": 0.7, "battery": 1.2} {
		if group, ok := o[name].(object); !ok || group["age"].(float64) > most {
			w.Errorf("%s on a good line: %v", name, o[name])
		}
	}
	if b, ok := w.sim.brain.(*simArduBrain); ok && b.broken {
		w.Errorf("mode changes too close: an internal error of ArduPilot")
	}
	w.drone.mu.Lock()
	defer w.drone.mu.Unlock()
	d := w.drone
	a := d.cmd.acks
	tasks := slices.DeleteFunc(slices.Clone(d.cmd.tasks), (*task).unasked)
	if len(tasks) > 0 || len(a.waiting) > 1 || len(a.late) > 20 || len(d.tel.texts.chunks) > 8 {
		w.Errorf("left over: %d tasks, %d waiting, %d late acks, %d chunks", len(tasks), len(a.waiting),
			len(a.late), len(d.tel.texts.chunks))
	}
}

var (
	soakTime = flag.Duration("soak", 2*time.Hour, "simulated time of TestSoak, in flights of 5 minutes; CI takes 12h")
	soakSeed = flag.Uint64("soak-seed", 0, "seed of TestSoak's first flight; each further flight has the next seed")
)

// weather is how the dice are loaded.
func weather(seed uint64) (name string, weight func(act) int) {
	n := uint64(len(worldKinds))
	switch seed / n % 4 {
	case 0, 2:
		return "calm", func(a act) int { return a.calm }
	case 1:
		return "pilots", func(a act) int { return a.pilots }
	}
	return "a bad line", func(a act) int { return a.line }
}

// thrown is a flight that the dice throw.
func thrown(seed uint64) (setup byte, happens []byte) {
	dice := rand.New(rand.NewPCG(seed, 7))
	_, weight := weather(seed)
	total := 0
	for _, a := range worldActs {
		total += weight(a)
	}
	n := len(worldKinds)
	setup = byte(int(seed)%n + n*dice.IntN(8))
	if seed%12 == 8 {
		setup = liarSetup + setup%8
	} else if seed%7 == 3 {
		setup |= longUp
	}
	for range 150 {
		at := dice.IntN(total)
		for i, a := range worldActs {
			if at -= weight(a); at < 0 {
				happens = append(happens, byte(i), byte(dice.Uint32()))
				break
			}
		}
	}
	return setup, happens
}
