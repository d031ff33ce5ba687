package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// A companion board meets faults of the line, the port, the vehicle and the clients. These tests
// check what docs/reliability.md promises. Tests of single parts are in the files of the parts.

// ---- The line ----

// oneOfEach has one of each command.
var oneOfEach = []struct{ path, body, mode string }{
	{"/mode", `{"mode":"hold"}`, "hold"},
	{"/takeoff", "", "takeoff"},
	{"/goto", `{"lat":47.3980,"lon":8.5460,"altitude":20,"heading":90}`, "hold"},
	{"/mode", `{"mode":"position"}`, "position"},
	{"/input", `{"pitch":0.5,"throttle":0.5,"timeout":2}`, ""},
	{"/mode", `{"mode":"rtl"}`, "rtl"},
	{"/land", `{"lat":47.3979,"lon":8.5457}`, "land"},
	{"/land", "", "land"},
}

func TestABadSerialLineNeverLies(t *testing.T) {
	t.Parallel()
	g := newFigures(t)
	for i, rate := range []float64{0.0001, 0.001, 0.01, 0.05, 0.2} {
		t.Run(fmt.Sprintf("%g%%", rate*100), func(t *testing.T) {
			t.Parallel()
			s, d := newPTYAutopilot(t, uint64(i))
			s.line.spoil(rate, anyDamage(1, 0))
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				for range 2 {
					before := s.line.acked(cmdSetMode)
					_, err := d.do(holdHere)
					if err == nil && s.line.acked(cmdSetMode) == before {
						t.Error("accepted, but no ack came over the line")
					}
					g.add(fmt.Sprintf("commands accepted: %t", err == nil), 1)
				}
			}()
			for n, done := 0, false; !done || n < 300; n++ {
				select {
				case <-answered:
					done = true
				default:
				}
				s.beat()
				if list := s.neverSent(d); len(list) > 0 {
					t.Fatalf("the status shows what the vehicle never sent: %q", list)
				}
				runtime.Gosched()
				if n > 300 { // only the answer is missing
					time.Sleep(2 * time.Millisecond) // a real line
				}
			}
			s.line.spoil(0, simFault{})
			received := d.snapped().link.received
			waitUntil(t, "frames come again, and the vehicle is online", func() bool {
				s.beat()
				return d.snapped().link.received > received && d.hearsVehicle()
			})
			// An ack proves nothing while late acks of earlier commands may come.
			waitUntil(t, "no late ack can come any more", func() bool {
				s.beat()
				d.mu.Lock()
				defer d.mu.Unlock()
				return !time.Now().Before(d.cmd.acks.lateUntil(common.MAV_CMD_DO_SET_MODE))
			})
			if _, err := d.do(holdHere); err != nil {
				t.Errorf("on a good line: %v", err)
			}
			s.line.mu.Lock()
			defer s.line.mu.Unlock()
			g.add("bytes", s.line.bytes)
		})
	}
}

func TestAMegabyteOfNoiseOnASerialLineChangesNothing(t *testing.T) {
	t.Parallel()
	s, d := newPTYAutopilot(t, 1)
	before := d.snapped()
	for part := range slices.Chunk(noiseBytes(t, 1<<20), 49_000) { // 22 parts
		for few := range slices.Chunk(part, 1000) {
			s.mu.Lock()
			s.master.Write(few)
			s.mu.Unlock()
		}
		s.beat() // three frames: 63 between the parts, and 3 after the last one
	}
	if list, n := s.neverSent(d), d.snapped().link.received-before.link.received; len(list) > 0 || n < 50 {
		t.Errorf("of 63 frames in the noise %d came through; the status shows what the vehicle never sent: %q", n, list)
	}
	waitUntil(t, "online after the noise", func() bool {
		s.beat()
		now := d.snapped()
		return now.online && now.link.errors > before.link.errors && now.tel.attitude.at.After(before.tel.attitude.at)
	})
	if _, err := d.do(holdHere); err != nil {
		t.Error(err)
	}
}

func TestHalfAFrameOnASerialLineCostsOnlyItself(t *testing.T) {
	t.Parallel()
	s, d := newPTYAutopilot(t, 2)
	full := packet(77, 1, 1, copterBeat())
	longer := wireFrame{claims: 255, system: 1, component: 1, id: 33, payload: make([]byte, 28)}.bytes()
	for _, half := range [][]byte{full[:1], full[:9], full[:len(full)-1], longer} {
		received := d.snapped().link.received
		s.mu.Lock()
		s.master.Write(half)
		s.mu.Unlock()
		for range 20 { // more bytes than the half frame claims
			s.say(copterBeat())
		}
		waitUntil(t, "every heartbeat after the half frame is read",
			func() bool { return d.snapped().link.received >= received+20 })
	}
}

func TestNoiseAndHalvesInFlightChangeNothing(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		f.accepted("/goto", "{"+at(40, 0)+"}")
		s := f.drone.snapped()
		texts := s.tel.texts.count
		for rest := noiseBytes(f.T, 1<<20); len(rest) > 0; rest = rest[512:] { // 51,200 bytes a second
			f.sim.inject(rest[:512])
			time.Sleep(10 * time.Millisecond)
			if f.status()["online"] != true {
				f.Fatal("offline in the noise")
			}
		}
		f.wantMode("hold")
		f.wantAt(40, 0, 10, 0.5)
		now := f.drone.snapped()
		if n := now.tel.texts.count; n != texts || now.link.errors == s.link.errors {
			f.Errorf("%d texts came out of the noise, %d bad frames", n-texts, now.link.errors-s.link.errors)
		}
		f.accepted("/land", "")

		// Half a frame comes, then silence for so long that the vehicle is offline.
		beat := packet(1, 1, 1, beatOf(map[firmware]common.MAV_AUTOPILOT{px4: common.MAV_AUTOPILOT_PX4,
			copter: common.MAV_AUTOPILOT_ARDUPILOTMEGA}[f.firmware], f.sim.truth().mode, true))
		for _, half := range [][]byte{beat[:5], wireFrame{claims: 255, system: 1, component: 1, id: 33}.bytes()} {
			f.sim.inject(half)
			f.sim.change(func() { f.sim.switches().muted = true })
			time.Sleep(3500 * time.Millisecond)
			if f.status()["online"] != false {
				f.Error("online after 3.5 s of silence")
			}
			f.sim.change(func() { f.sim.switches().muted = false; f.sim.transmit(beat) })
			time.Sleep(time.Second)
			if f.status()["online"] != true {
				f.Error("offline a second after the vehicle sends again")
			}
			time.Sleep(3 * time.Second)
			f.wantMode("land")
		}
	})
}

// On the vehicle's line another autopilot, a gimbal and a third system send both versions of
// MAVLink, and unknown messages.
func TestTwoAutopilotsAndAGimbalOnOneLine(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		line := newBadLine(1)
		between := func(p port) port { return &badPort{port: p, line: line} }
		flyWith(t, flavour, nil, over(between), func(f *flight) {
			ended := make(chan struct{})
			var strangers sync.WaitGroup
			strangers.Go(func() {
				for n := 0; ; n++ {
					encode := packet1
					if n%2 == 1 {
						encode = packet
					}
					select {
					case <-ended:
						return
					case <-time.After(50 * time.Millisecond):
					}
					for _, who := range [][2]uint8{{2, 1}, {1, 154}, {9, 1}} {
						beat := beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(7, 0), n%2 == 0)
						if who[1] == 154 {
							beat.Type, beat.Autopilot = common.MAV_TYPE_GIMBAL, common.MAV_AUTOPILOT_INVALID
						}
						say := []message.Message{
							beat,
							&common.MessageGlobalPositionInt{TimeBootMs: 1, Lat: 1e7, Lon: 2e7, Alt: 3000,
								RelativeAlt: 4000, Hdg: 500, Vx: 600},
							&common.MessageAttitude{TimeBootMs: 1, Roll: 1.5, Pitch: 1.25, Yaw: 1},
							&common.MessageSysStatus{VoltageBattery: 1000, CurrentBattery: 100, BatteryRemaining: 1},
							&common.MessageHomePosition{Latitude: 1e7, Longitude: 1e7, Altitude: 1e6},
							&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_LANDING},
							&common.MessageStatustext{Severity: 2, Text: "a stranger's"},
							&common.MessageCommandAck{Command: common.MAV_CMD(cmdArm), Result: ackAccepted,
								TargetSystem: 1, TargetComponent: componentID},
							&common.MessageCommandAck{Command: common.MAV_CMD(cmdSetMode), Result: ackFailed,
								TargetSystem: 1, TargetComponent: componentID},
						}
						for i, m := range say {
							f.sim.inject(encode(byte(n+i), who[0], who[1], m))
						}
					}
					f.sim.inject(unknownPacket(byte(n), n%200))
					f.sim.change(func() { f.sim.switches().mavlink1 = n%20 < 10 })
				}
			})
			explained := map[string]bool{"manual": true}
			g := &figures{n: map[string]int{}}
			for _, c := range oneOfEach {
				explained[c.mode] = true
				f.commandOn(line, g, c.path, c.body)
				for range 10 {
					time.Sleep(500 * time.Millisecond)
					f.inspect(line, explained)
				}
			}
			if g.n["answered 200"] != len(oneOfEach) {
				f.Errorf("of %d commands on a good line: %v", len(oneOfEach), g.n)
			}
			f.until("landed", time.Minute, f.disarmed)
			time.Sleep(2 * time.Second) // until PX4 has left AUTO.LAND by itself
			// The strangers' heartbeats and acks say armed, but the vehicle is disarmed.
			f.sim.change(func() {
				f.sim.switches().idle = true
				f.sim.switches().onAck = func(*common.MessageCommandAck) []simAnswer { return nil }
			})
			f.refused("/mode", `{"arm":true}`, 409, "no_ack")
			for _, m := range f.status()["messages"].([]any) {
				if strings.Contains(m.(object)["text"].(string), "stranger") {
					f.Errorf("a stranger's text: %v", m)
				}
			}
			close(ended)
			strangers.Wait()
		})
	}
}

// ---- The port ----

func TestEveryAnswerIsTrueAndInTimeWhileThePortFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin func(f *flight)
		later func(f *flight) // 0.3 s into the command
		code  string          // the answer to the command during which the port fails
	}{
		{"unplugged while it reads", func(f *flight) {
			f.sim.unplug()
			time.Sleep(time.Millisecond)
		}, nil, "offline"},
		{"unplugged while it writes", func(f *flight) { f.sim.stallWrites(true) }, func(f *flight) {
			f.sim.unplug()
			f.sim.stallWrites(false)
		}, "no_ack"},
		{"unplugged between send and ack", func(f *flight) { f.cutAtAck(common.MAV_CMD_DO_REPOSITION) }, nil, "no_ack"},
		{"a write that blocks", func(f *flight) { f.sim.stallWrites(true) }, nil, "no_ack"},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(f *flight) {
				f.aloft()
				c.begin(f)
				sent := len(f.commands())
				if c.later != nil {
					time.AfterFunc(300*time.Millisecond, func() { c.later(f) })
				}
				asked := time.Now()
				code, o := f.call("POST", "/goto", "{"+at(30, 0)+"}")
				if took := time.Since(asked); code != 409 || o["code"] != c.code || took > giveUp {
					f.Errorf("goto answered %d %v after %v, want %s within 2 s", code, o, took, c.code)
				}
				if c.code == "offline" && len(f.commands()) > sent {
					f.Errorf("answered %v, but the vehicle received %q", o, f.commands()[sent:])
				}
				for range 60 { // for a minute there is no line
					for _, path := range []string{"", "/mode", "/status"} {
						asked := time.Now()
						if code, _ := f.call("GET", path, ""); code != 200 || time.Since(asked) > 0 {
							f.Errorf("GET %s answered %d after %v", path, code, time.Since(asked))
						}
					}
					asked := time.Now()
					code, o := f.call("POST", "/land", "")
					lost := o["code"] == "offline" || o["code"] == "no_ack"
					if took := time.Since(asked); code != 409 || !lost || took > giveUp+answerWait {
						f.Errorf("land answered %d %v after %v", code, o, took)
					}
					time.Sleep(time.Second)
				}
				f.sim.change(func() { f.sim.switches().onAck = nil })
				f.sim.stallWrites(false)
				f.sim.plug()
				// The port is opened 2 s later at most, and a heartbeat comes each second.
				f.until("online", 3200*time.Millisecond,
					func() bool { return f.status()["online"] == true && f.drone.snapped().tel.beat.at.After(asked) })
				time.Sleep(2500 * time.Millisecond)
				asked = time.Now()
				f.accepted("/land", "")
				if took := time.Since(asked); took > 2500*time.Millisecond {
					f.Errorf("land on the new port took %v", took)
				}
				f.wantMode("land")
				f.until("landed", time.Minute, f.disarmed)
			})
		})
	}
}

func TestAThousandUnpluggingsOfTheSimulatorsCableLeaveNothing(t *testing.T) {
	alone(t)
	cycles := 1000
	if testing.Short() {
		cycles = 100
	}
	var opens atomic.Int64
	between := func(p port) port {
		opens.Add(1)
		return p
	}
	flyWith(t, simArduPilot, nil, over(between), func(f *flight) {
		f.sim.unplug()
		f.sim.plug()
		before, files := quietGoroutines(), descriptors(f.T)
		for i := range cycles {
			if i%3 == 0 {
				f.sim.stallWrites(true)
				time.Sleep(time.Second)
			}
			answered := make(chan int, 1)
			if i%5 == 0 {
				go func() {
					code, _ := f.call("POST", "/mode", `{"mode":"hold"}`)
					answered <- code
				}()
			} else {
				answered <- 503 // no command waits
			}
			time.Sleep(time.Duration(i%7) * time.Millisecond)
			f.sim.unplug()
			f.sim.stallWrites(false)
			synctest.Wait() // later frames come from a new port
			if code := <-answered; code != 200 && code != 503 && code != 409 {
				f.Fatalf("a command while the cable is pulled: %d", code)
			}
			received := f.drone.snapped().link.received
			f.sim.plug()
			f.until("frames come again", 4*time.Second,
				func() bool { return f.drone.snapped().link.received > received })
		}
		after := quietGoroutines()
		if n := opens.Load(); n < int64(cycles) {
			f.Errorf("the port was opened %d times", n)
		}
		if n := descriptors(f.T); after != before || n != files {
			f.Errorf("%d goroutines and %d descriptors, at first %d and %d", after, n, before, files)
		}
		f.accepted("/mode", `{"mode":"hold"}`)
	})
}

func TestAHundredLinksOnPseudoTerminalsLeaveNothing(t *testing.T) {
	cycles := 100
	if *runAll {
		cycles = 1000
	}
	nothingLeft(t, func(t *testing.T) {
		var workers sync.WaitGroup
		for k := range 8 { // in parallel, because each opening waits for refillsIn
			workers.Go(func() {
				for i := k; i < cycles; i += 8 {
					onceOnATerminal(t, i%3)
				}
			})
		}
		workers.Wait()
	})
}

// ---- The vehicle ----

// Whatever happens to a command's acks, mavrest answers what the vehicle did.
func TestAnAnswerIsTrueWhateverHappensToTheAcks(t *testing.T) {
	type hook = func(a *common.MessageCommandAck, nth int) []simAnswer
	// one replaces an ack by an answer with a copy of the ack. change, which may be nil, changes
	// the copy.
	one := func(as simAnswer, change func(*common.MessageCommandAck)) hook {
		return func(a *common.MessageCommandAck, _ int) []simAnswer {
			answer, b := as, *a
			answer.ack = &b
			if change != nil {
				change(&b)
			}
			return []simAnswer{answer}
		}
	}
	// each becomes the other
	flip := func(b *common.MessageCommandAck) { b.Result = ackAccepted + ackFailed - b.Result }
	toAnotherTarget := func(b *common.MessageCommandAck) { b.TargetSystem, b.TargetComponent = 255, 190 }
	ofAnotherCommand := func(b *common.MessageCommandAck) { b.Command++ }
	inProgress := func(b *common.MessageCommandAck) { b.Result = ackInProgress }
	opposite := one(simAnswer{}, flip)
	then := func(first, second hook) hook {
		return func(a *common.MessageCommandAck, nth int) []simAnswer {
			return append(first(a, nth), second(a, nth)...)
		}
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		hook hook
		code string        // "": accepted
		took time.Duration // at most
	}{
		{"unchanged", one(simAnswer{}, nil), "", 100 * ms},
		{"0.4 s late", one(simAnswer{after: 400 * ms}, nil), "", 720 * ms},
		{"2.2 s late", one(simAnswer{after: 2200 * ms}, nil), "no_ack", 2 * time.Second},
		{"the first two lost", func(a *common.MessageCommandAck, nth int) []simAnswer {
			if nth < 2 {
				return nil
			}
			return []simAnswer{{ack: a}}
		}, "", 1300 * ms},
		{"all lost", func(*common.MessageCommandAck, int) []simAnswer { return nil }, "no_ack", 2 * time.Second},
		{"doubled ten times", func(a *common.MessageCommandAck, _ int) (list []simAnswer) {
			for i := range 10 {
				list = append(list, simAnswer{ack: a, after: time.Duration(i*i) * ms})
			}
			return list
		}, "", 100 * ms},
		{"accepted, then refused", then(one(simAnswer{}, nil), one(simAnswer{after: 50 * ms}, flip)), "", 100 * ms},
		{"refused, then accepted", then(opposite, one(simAnswer{after: 50 * ms}, nil)), "refused", time.Second},
		{"from another component", one(simAnswer{component: 154}, nil), "no_ack", 2 * time.Second},
		{"from another system", one(simAnswer{system: 9}, nil), "no_ack", 2 * time.Second},
		{"to another target", one(simAnswer{}, toAnotherTarget), "no_ack", 2 * time.Second},
		{"for another command", one(simAnswer{}, ofAnotherCommand), "no_ack", 2 * time.Second},
		{"in progress for ever", one(simAnswer{}, inProgress), "no_ack", 2 * time.Second},
		{"in progress, then accepted", then(one(simAnswer{}, inProgress), one(simAnswer{after: 1500 * ms}, nil)), "",
			1850 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(f *flight) {
				f.aloft()
				for _, command := range []struct {
					path, body string
					id         common.MAV_CMD
				}{
					{"/goto", `{"altitude":25}`, common.MAV_CMD_DO_REPOSITION},
					{"/land", "", common.MAV_CMD_DO_SET_MODE},
				} {
					acks := 0 // of this command
					f.sim.change(func() {
						f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
							if a.Command != command.id {
								return []simAnswer{{ack: a}}
							}
							acks++
							return c.hook(a, acks-1)
						}
					})
					asked := time.Now()
					_, o := f.call("POST", command.path, command.body)
					code, _ := o["code"].(string)
					want := c.code
					if command.id == common.MAV_CMD_DO_SET_MODE { // a report proves it
						want = ""
					}
					// 20 ms for the request of PX4's home
					if took := time.Since(asked); code != want || took > c.took+20*time.Millisecond {
						f.Errorf("%s answered %v after %v, want %q within %v", command.path, o, took, want, c.took)
					}
					time.Sleep(500 * time.Millisecond)
					f.sim.change(func() { f.sim.switches().onAck = nil })
					// The next command with this id is refused. A late ack must not answer it.
					if c.code == "no_ack" && command.path == "/goto" && f.firmware == px4 {
						f.sim.change(func() {
							f.sim.switches().onAck = func(a *common.MessageCommandAck) []simAnswer {
								return opposite(a, 0)
							}
						})
						f.refused("/goto", `{"altitude":30}`, 409, "refused")
						f.sim.change(func() { f.sim.switches().onAck = nil })
					}
					time.Sleep(4 * time.Second)
				}
				f.accepted("/mode", `{"mode":"rtl"}`)
				f.wantMode("rtl")
			})
		})
	}
}

// ---- The clients ----

func TestLandIsInTimeWhile500DribbleAnd1000ASecondAskForTheStatus(t *testing.T) {
	seconds := 10
	if testing.Short() {
		seconds = 3
	}
	fly(t, simPX4, nil, func(f *flight) {
		f.aloft()
		p, end := serve(f.T, f.handler, maxConnections)
		ended := make(chan struct{})
		var clients sync.WaitGroup
		var bytes, answers, torn atomic.Int64
		for i := range 500 {
			clients.Go(func() { // sends a byte a second, never a whole request, and connects again when it is cut off
				request := "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: 2\r\n\r\n{}"
				time.Sleep(time.Duration(i) * 2 * time.Millisecond)
				var w *wire
				for n := i % 40; ; n++ {
					if w == nil {
						w = p.connect()
					}
					if _, err := io.WriteString(w, request[n%40:n%40+1]); err != nil {
						w.Close()
						w = nil
					} else {
						bytes.Add(1)
					}
					select {
					case <-ended:
						if w != nil {
							w.Close()
						}
						return
					case <-time.After(time.Second):
					}
				}
			})
		}
		for i := range 10 {
			clients.Go(func() { // asks a hundred times a second on one connection
				time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
				w := p.connect()
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for {
					w.send("GET", "/api/drone/status", "")
					if r, err := w.receive("GET"); err != nil {
						torn.Add(1)
						w.Close()
						w = p.connect()
					} else if r.status != 200 {
						f.Errorf("status answered %d", r.status)
					} else {
						answers.Add(1)
					}
					select {
					case <-ended:
						w.Close()
						return
					case <-tick.C:
					}
				}
			})
		}
		time.Sleep(2 * time.Second)
		for i := range seconds {
			// each landing at another phase of the clients' second
			time.Sleep(time.Second - time.Duration(37*i)*time.Millisecond)
			p.lands(longestLand)
		}
		close(ended)
		clients.Wait()
		end()
		f.wantMode("land")
		f.Logf("figures: %d bytes dribbled, %d status answered, %d torn, %d landings", bytes.Load(), answers.Load(),
			torn.Load(), seconds)
		if answers.Load() < int64(seconds*900) || torn.Load() > 0 {
			f.Errorf("%d answers in some %d s, %d connections torn", answers.Load(), seconds, torn.Load())
		}
	})
}

// Clients send requests and never read the answers, over connections without buffers.
func TestLandIsInTimeWhileClientsNeverRead(t *testing.T) {
	for _, c := range []struct{ name, method, path, body string }{
		{"status", "GET", "/api/drone/status", ""},
		{"a bad body", "POST", "/api/drone/goto", "{"},
		{"hold", "POST", "/api/drone/mode", `{"mode":"hold"}`},
		{"sticks", "POST", "/api/drone/input", `{"roll":0.1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				f.aloft()
				p, end := serve(f.T, f.handler, maxConnections)
				var clients sync.WaitGroup
				for range maxConnections {
					w := p.connect()
					clients.Go(func() { // without waiting for answers
						for {
							if _, err := fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: drone.local\r\nContent-Length: "+
								"%d\r\n\r\n%s", c.method, c.path, len(c.body), c.body); err != nil {
								return
							}
						}
					})
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				p.lands(longestLand)
				end()
				clients.Wait()
			})
		})
	}
}

func TestEndlessBodiesAndIncompleteRequestsBlockNothing(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		before := len(f.commands())
		p, end := serve(f.T, f.handler, maxConnections)
		var clients sync.WaitGroup
		for i := range 200 {
			w := p.connect()
			// As a kernel does, while the client still writes: a pipe has no buffer for the answer.
			clients.Go(func() { io.Copy(io.Discard, w) })
			clients.Go(func() {
				switch i % 4 {
				case 0: // blanks for ever, in chunks
					io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nTransfer-Encoding: "+
						"chunked\r\n\r\n")
					for {
						if _, err := io.WriteString(w, "10\r\n                \r\n"); err != nil {
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
				case 1: // the rest of the body never comes
					io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: "+
						"4000\r\n\r\n{")
				case 2: // closed in the middle of the body
					io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: "+
						"2\r\n\r\n{")
					w.Close()
				case 3: // headers for ever
					io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\n")
					for {
						if _, err := io.WriteString(w, "X: y\r\n"); err != nil {
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		if got := f.commands()[before:]; len(got) > 0 {
			f.Errorf("an incomplete request was carried out: %q", got)
		}
		p.lands(longestLand)
		time.Sleep(time.Minute) // every time-out has passed
		closed := make(chan struct{})
		go func() { clients.Wait(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
		default:
			f.Error("a connection is still open after a minute")
		}
		if got := f.commands()[before:]; len(got) != 1 {
			f.Errorf("one landing was requested, and the vehicle received %q", got)
		}
		end()
		<-closed
	})
}

// malformed changes a good body into one that every route must refuse.
func malformed(r *rand.Rand, good string) string {
	for {
		b := []byte(good)
		switch r.IntN(8) {
		case 0: // cut off
			b = b[:1+r.IntN(len(b)-1)]
		case 1: // one byte changed
			b[r.IntN(len(b))] = byte(r.Uint32())
		case 2: // one more byte
			i := r.IntN(len(b))
			b = append(b[:i], append([]byte{byte(r.Uint32())}, b[i:]...)...)
		case 3: // one byte less
			i := r.IntN(len(b))
			b = append(b[:i], b[i+1:]...)
		case 4: // several bytes changed
			for range 1 + r.IntN(10) {
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
		case 5: // more after the end
			b = append(b, good[r.IntN(len(good)):]...)
		case 6: // an unknown field
			return strings.Replace(good, "{", fmt.Sprintf(`{"x%x":1,`, r.Uint32()), 1)
		case 7: // a value of another kind
			kinds := []string{`[]`, `{}`, `[[[]]]`, `{"a":1}`, `[1]`}
			i := strings.Index(good, ":")
			return good[:i+1] + kinds[r.IntN(len(kinds))] + "}"
		}
		if !json.Valid(b) && strings.TrimSpace(string(b)) != "" {
			return string(b)
		}
	}
}

func TestMalformedRequestsDoNotReachTheVehicle(t *testing.T) {
	requests := 10_000
	if *runAll {
		requests = 100_000
	}
	good := []struct{ path, body string }{
		{"/api/drone/mode", `{"mode":"position"}`}, {"/api/drone/mode", `{"mode":"rtl"}`},
		{"/api/drone/mode", `{"arm":true}`},
		{"/api/drone/mode", `{"mode":"hold","arm":false}`},
		{"/api/drone/input", `{"roll":0.1,"pitch":-0.5,"throttle":0.5,"timeout":1}`},
		{"/api/drone/takeoff", `{"altitude":30}`},
		{"/api/drone/goto", `{"lat":47.3980,"lon":8.5460,"altitude":20,"heading":90,"speed":3}`},
		{"/api/drone/goto", `{"altitude_msl":510.5}`}, {"/api/drone/land", `{"lat":47.3980,"lon":8.5460}`},
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("position")
		r := rand.New(rand.NewPCG(4, 4))
		hf.untouched(func() {
			for range requests {
				g := good[r.IntN(len(good))]
				body := malformed(r, g.body)
				a := hf.post(g.path, body)
				a.want(hf.T, 400, "bad_request")
				if hf.Failed() {
					hf.Fatalf("POST %s %q", g.path, body)
				}
			}
		})
		hf.wantMode("position")
		hf.post("/api/drone/land", "").wantOK(hf.T)
	})
}

// TestNoiseAndSlowLines counts how single MAVLink commands are answered on slow lines, and on lines
// that damage bytes in both directions. docs/reliability.md has the table, which -all -v prints.
func TestNoiseAndSlowLines(t *testing.T) {
	n := 200
	if *runAll {
		n = 1000
	}
	lines := []struct {
		name                   string
		damaged                float64       // the share of the bytes that are damaged, in each direction
		trip                   time.Duration // the round trip
		leastOfAll, leastOfFew float64       // the least share that must be accepted; of few it varies more
	}{
		{"0.1 %", 0.001, 0, 0.998, 0.99}, {"0.5 %", 0.005, 0, 0.996, 0.98}, {"1 %", 0.01, 0, 0.98, 0.95},
		{"2 %", 0.02, 0, 0.8, 0.74}, {"5 %", 0.05, 0, 0.11, 0.04},
		{"20 ms", 0, 20 * time.Millisecond, 1, 1}, {"300 ms", 0, 300 * time.Millisecond, 1, 1},
		{"600 ms", 0, 600 * time.Millisecond, 1, 1},
	}
	t.Logf("seed %d", *noiseSeed)
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		for _, line := range lines {
			name := map[simFlavour]string{simPX4: "px4", simArduPilot: "ardupilot"}[flavour] + " " + line.name
			t.Run(name, func(t *testing.T) {
				// a Copter's goto is then followed by no speed
				oneCommand := func(s *simulator) { delete(s.params, "WPNAV_SPEED") }
				fly(t, flavour, oneCommand, func(f *flight) {
					c := answeredOn(f, n, line.damaged, line.trip)
					t.Logf("%s: %s", name, c)
					if c.falsely > 0 {
						t.Errorf("%d answers were false", c.falsely)
					}
					least := map[bool]float64{false: line.leastOfFew, true: line.leastOfAll}[*runAll]
					if got := float64(c.accepted) / float64(n); got < least {
						t.Errorf("%.3f of the commands were accepted, want %.3f; -noise-seed was %d", got, least,
							*noiseSeed)
					}
				})
			})
		}
	}
}
