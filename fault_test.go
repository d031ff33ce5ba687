package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// A companion board meets faults of the line, the port, the vehicle and the clients. These tests
// check what docs/reliability.md promises. Tests of single parts are in the files of the parts.

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

// TestNoiseAndSlowLines counts how single MAVLink commands are answered on slow lines, and on lines
// that damage bytes in both directions. docs/reliability.md has the table, which -all -v prints.
func TestNoiseAndSlowLines(t *testing.T) {
	t.Parallel()
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
					for _, answer := range c.falsely {
						t.Errorf("a false answer: %s", answer)
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
