package main

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

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
		func(w *onlooker) { w.sim.change(func() { w.sim.onAck = w.onAck(name) }) },
		func(w *onlooker) { w.sim.change(func() { w.sim.onAck = w.onAck("") }) }}
}

var faults = []fault{
	{"noise 0.01 %", noise(0.0001), noise(0)},
	{"noise 0.1 %", noise(0.001), noise(0)},
	{"noise 1 %", noise(0.01), noise(0)},
	{"unplugged", func(w *onlooker) { w.sim.unplug() }, func(w *onlooker) { w.sim.plug() }},
	{"silent", func(w *onlooker) { w.sim.change(func() { w.sim.muted = true }) },
		func(w *onlooker) { w.sim.change(func() { w.sim.muted = false }) }},
	{"writes hang", func(w *onlooker) { w.sim.stallWrites(true) }, func(w *onlooker) { w.sim.stallWrites(false) }},
	{"heartbeats lost", func(w *onlooker) {
		until := time.Now().Add(time.Duration(w.rand.IntN(6000)) * time.Millisecond)
		w.sim.change(func() { w.sim.noBeatsUntil = until })
	}, nil},
	{"rebooted in flight", func(w *onlooker) { w.sim.reboot(true) }, nil},
	{"rebooted on the ground", func(w *onlooker) { w.sim.reboot(false) }, nil},
	{"failsafe", func(w *onlooker) { w.sim.failsafeReturn() }, nil},
	{"pilot's switch", func(w *onlooker) {
		modes := w.pilotModes()
		w.sim.pilotMode(modes[w.rand.IntN(len(modes))])
	}, nil},
	{"pilot disarms or arms", func(w *onlooker) { w.sim.pilotArm(w.rand.IntN(2) == 0) }, nil},
	{"acknowledges commands and does nothing", func(w *onlooker) { w.sim.change(func() { w.sim.idle = true }) },
		func(w *onlooker) { w.sim.change(func() { w.sim.idle = false }) }},
	{"in progress for ever",
		func(w *onlooker) { w.sim.change(func() { w.sim.neverDone[common.MAV_CMD_DO_REPOSITION] = true }) },
		func(w *onlooker) { w.sim.change(func() { clear(w.sim.neverDone) }) }},
	{"slow line", func(w *onlooker) { w.sim.change(func() { w.sim.delay = 400 * time.Millisecond }) },
		func(w *onlooker) { w.sim.change(func() { w.sim.delay = soakDelay }) }},
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
		f.sim.onAck = w.onAck("")
		f.sim.delay = soakDelay
		f.sim.onMode = func(custom uint32) {
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
	fly(t, simFlavour(seed%2), nil, func(f *flight) {
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
