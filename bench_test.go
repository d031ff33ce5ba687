package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// BenchmarkStatus measures crowds that request the status. The largest crowd has more connections
// than the server keeps, so each of its requests needs a new one.
func BenchmarkStatus(b *testing.B) {
	for _, c := range []struct{ clients, turns int }{{1, 60}, {8, 60}, {64, 1}, {512, 1}} {
		b.Run(fmt.Sprintf("clients=%d", c.clients), func(b *testing.B) {
			address, body := telemetered(b)
			server := bareServer(bareAnswer(body))
			if c.clients >= maxConnections { // the baseline keeps as few connections
				bounded := newServer(nil, maxConnections)
				server.ConnContext, server.ConnState = bounded.ConnContext, bounded.ConnState
			}
			bareAddress := serveHere(b, server)
			clients, bareClients := connects(b, address, c.clients), connects(b, bareAddress, c.clients)
			const requests = 1536 // in each turn
			var whole, single pair
			for b.Loop() {
				for turn := range c.turns {
					whole.add(turn, func() time.Duration {
						d, all := crowd(b, clients, get("/status"), requests/c.clients)
						single.ours = append(single.ours, all...)
						return d
					}, func() time.Duration {
						d, all := crowd(b, bareClients, get("/status"), requests/c.clients)
						single.bare = append(single.bare, all...)
						return d
					})
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(medianRatio(whole.bare, whole.ours), "rps-of-bare")
			b.ReportMetric(requests/percentile(whole.ours, 50).Seconds(), "rps")
			b.ReportMetric(requests/percentile(whole.bare, 50).Seconds(), "bare-rps")
			b.ReportMetric(micros(percentile(single.ours, 99)), "p99-µs")
			b.ReportMetric(micros(percentile(single.bare, 99)), "bare-p99-µs")
			b.ReportMetric(heap(), "heap-MB")
		})
	}
}

func BenchmarkInput(b *testing.B) {
	line, bareLine := openPTY(b), openPTY(b)
	far, bareFar := newFarEnd(b, line.master), newFarEnd(b, bareLine.master)
	defer repeat(200*time.Millisecond, func() { line.master.Write(packet(0, 1, autopilotID, px4Beat())) })()
	_, handler := linked(b, line)
	ours := connect(b, serveHere(b, newServer(handler, maxConnections)))
	sticks := func(y int16) []byte {
		return post("/input", fmt.Sprintf(`{"roll":%.3f,"pitch":0.1,"yaw":0,"throttle":0.5}`, float64(y)/1000))
	}
	began := time.Now()
	for err := ours.do(sticks(0)); err != nil; err = ours.do(sticks(0)) {
		// Input is refused until it is known who has the sticks.
		if time.Sleep(100 * time.Millisecond); time.Since(began) > 30*time.Second {
			b.Fatal(err)
		}
	}

	tty := openTTY(b, bareLine)
	ready := packet(1, 1, componentID, &common.MessageManualControl{Target: 1, X: 100, Y: 200, Z: 500})
	bare := connect(b, serveHere(b, bareServer(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		tty.Write(ready)
		bareAnswer([]byte("OK"))(w, r)
	})))

	var p pair
	turn := 0
	for b.Loop() {
		y := int16(1 + turn%999)
		p.add(turn, func() time.Duration { return far.measure(b, ours, sticks(y), y) },
			func() time.Duration { return bareFar.measure(b, bare, sticks(y), 200) })
		turn++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(percentile(p.ours, 50)), "p50-µs")
	b.ReportMetric(micros(percentile(p.ours, 99)), "p99-µs")
	b.ReportMetric(micros(percentile(p.bare, 50)), "bare-p50-µs")
	b.ReportMetric(micros(percentile(p.bare, 99)), "bare-p99-µs")
	b.ReportMetric(micros(percentile(p.ours, 50)-percentile(p.bare, 50)), "p50-over-bare-µs")
}

func BenchmarkTelemetry(b *testing.B) {
	for _, name := range []string{"px4", "ardupilot"} {
		b.Run(name, func(b *testing.B) {
			stream, frames := captured(b, name)

			// What is built once is no frame's cost.
			stream = bytes.Repeat(stream, 10)
			frames *= 10
			known := len(checkedFrames(stream))

			// A Node does not count the frames that it can't read, so a frame of ours marks the end.
			marked := append(slices.Clone(stream), packet(1, 1, componentID, heartbeat(minimal.MAV_TYPE_GCS))...)
			source := &refilled{streams: make(chan []byte, 1), done: make(chan struct{})}
			node := &gomavlib.Node{
				Endpoints: []gomavlib.EndpointConf{gomavlib.EndpointCustomClient{Connect: source.connect}},
				Dialect:   common.Dialect, OutVersion: gomavlib.V2, OutSystemID: 1, HeartbeatDisable: true,
			}
			if err := node.Initialize(); err != nil {
				b.Fatal(err)
			}
			defer node.Close()

			var floor, ours, theirs cost
			rounds := 0
			for b.Loop() {
				floor.measure(func() { splitAndCheck(&replay{rest: stream}) })
				ours.measure(func() {
					d := mute()
					d.link.serve(context.Background(), &replay{rest: stream})
					if n := d.link.received.Load(); n != uint64(known) {
						b.Fatalf("read %d frames of %d that it knows", n, known)
					}
				})
				theirs.measure(func() {
					source.streams <- marked
					for {
						f, ok := (<-node.Events()).(*gomavlib.EventFrame)
						if ok && f.ComponentID() == componentID {
							break
						}
					}
				})
				rounds++
			}
			framesRead := float64(rounds * frames)
			hour := func(c cost) float64 {
				return c.cpu.Seconds() / float64(rounds*len(stream)) * fullLink * 3600
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(ours.cpu)/framesRead, "ns/frame")
			b.ReportMetric(float64(ours.bytes)/framesRead, "B/frame")
			b.ReportMetric(float64(ours.allocs)/framesRead, "allocs/frame")
			b.ReportMetric(float64(floor.cpu)/framesRead, "floor-ns/frame")
			b.ReportMetric(float64(theirs.cpu)/framesRead, "Node-ns/frame")
			b.ReportMetric(float64(theirs.bytes)/framesRead, "Node-B/frame")
			b.ReportMetric(float64(theirs.allocs)/framesRead, "Node-allocs/frame")
			b.ReportMetric(float64(ours.cpu)/float64(floor.cpu), "x-floor")
			b.ReportMetric(float64(theirs.cpu)/float64(ours.cpu), "Node-x-ours")
			b.ReportMetric(hour(ours), "cpu-s/h")
			b.ReportMetric(hour(theirs), "Node-cpu-s/h")
		})
	}
}

// BenchmarkScaleRate gives the program a stream at a tenth of a full link's rate, at the full rate
// and at ten times the full rate.
func BenchmarkScaleRate(b *testing.B) {
	t := build(b, runtime.GOARCH)
	stream, _ := captured(b, "px4")
	program, baseline := t.begins(b, ""), t.beginsBare(b, "")
	program.poured(b, t.far, stream, fullLink) // so that the handshake is over
	pourBefore := func(int) float64 { return math.NaN() }
	if t.before != "" {
		line := openPTY(b)
		far := newFarEnd(b, line.master).line
		earlier := beginsBinary(b, t.before, line.path)
		pourBefore = func(rate int) float64 { return earlier.poured(b, far, stream, rate) }
		pourBefore(fullLink)
	}
	for _, rate := range []int{fullLink / 10, fullLink, fullLink * 10} {
		b.Run(fmt.Sprintf("bytes/s=%d", rate), func(b *testing.B) {
			var ours, bare, before float64
			for b.Loop() {
				ours += program.poured(b, t.far, stream, rate)
				bare += baseline.poured(b, t.bare.master, stream, rate)
				before += pourBefore(rate)
			}
			b.ReportMetric(ours/before, "x-before")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ours/float64(b.N), "%-of-a-core")
			b.ReportMetric(bare/float64(b.N), "bare-%-of-a-core")
		})
	}
}

// BenchmarkUDP sends a recorded stream over UDP, with a frame in each datagram, to the program and at
// the same time to bareProgram: at the recorded rate, at ten times that rate, and at the rate of a
// full link.
func BenchmarkUDP(b *testing.B) {
	t := build(b, runtime.GOARCH)
	stream, _ := captured(b, "px4")
	capture := readTlog(b, "px4-flight.tlog")
	recorded := capture[len(capture)-1].at.Seconds()
	for _, speedup := range []float64{1, 10, fullLink * recorded / float64(len(stream))} {
		b.Run(fmt.Sprintf("times=%.0f", speedup), func(b *testing.B) {
			device, bareDevice := freeAddress(b, "udp"), freeAddress(b, "udp")
			program, baseline := t.begins(b, "udpin://"+device), t.beginsBare(b, bareDevice)
			defer program.end()
			defer baseline.end()
			vehicle := writers{newFarEnd(b, dialed(b, "udp", device)).line, dialed(b, "udp", bareDevice)}
			before := func() float64 { return math.NaN() }
			if t.before != "" {
				device := freeAddress(b, "udp")
				earlier := beginsBinary(b, t.before, "udpin://"+device)
				defer earlier.end()
				vehicle = append(vehicle, newFarEnd(b, dialed(b, "udp", device)).line)
				before = func() float64 { return float64(earlier.cpu(b)) }
			}
			stop := make(chan struct{})
			var playing sync.WaitGroup
			playing.Go(func() { play(vehicle, capture, speedup, stop) })
			defer playing.Wait()
			defer close(stop)
			time.Sleep(3 * time.Second) // so that the handshake is over
			const seconds = 10
			for b.Loop() {
				cpu, bareCPU, beforeCPU := program.cpu(b), baseline.cpu(b), before()
				time.Sleep(seconds * time.Second)
				cpu, bareCPU, beforeCPU = program.cpu(b)-cpu, baseline.cpu(b)-bareCPU, before()-beforeCPU
				b.ReportMetric(float64(cpu)/beforeCPU, "x-before")
				b.ReportMetric(cpu.Seconds()/seconds*100, "%-of-a-core")
				b.ReportMetric(bareCPU.Seconds()/seconds*100, "bare-%-of-a-core")
				b.ReportMetric(float64(cpu)/float64(bareCPU), "x-bare")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkFootprint measures the release binary on a terminal, and bareProgram.
func BenchmarkFootprint(b *testing.B) {
	targets := []string{"armv6", "armv7", "arm64", "amd64"}
	t := build(b, targets...)
	stream, _ := captured(b, "px4")

	var starts pair
	for b.Loop() {
		for turn := range 20 {
			starts.add(turn, func() time.Duration { return startTime(t.begins(b, "")) },
				func() time.Duration { return startTime(t.beginsBare(b, "")) })
		}
		program, baseline := t.begins(b, ""), t.beginsBare(b, "")
		b.ReportMetric(program.resident(b), "idle-MB")
		b.ReportMetric(baseline.resident(b), "bare-idle-MB")

		program.poured(b, t.far, stream, fullLink) // so that the handshake is over
		stop := make(chan struct{})
		var pouring sync.WaitGroup
		pouring.Go(func() { pour(t.far, stream, fullLink, math.MaxInt, stop) })
		for _, server := range []process{program, baseline} {
			crowd(b, connects(b, server.address, 8), get("/status"), 5000)
		}
		b.ReportMetric(program.resident(b), "load-MB")
		b.ReportMetric(baseline.resident(b), "bare-load-MB")
		close(stop)
		pouring.Wait()
		program.end()
		baseline.end()
	}
	for _, target := range targets {
		b.ReportMetric(size(b, t.dir, target)/1e6, target+"-MB")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(percentile(starts.ours, 50))/1e3, "start-ms")
	b.ReportMetric(micros(percentile(starts.bare, 50))/1e3, "bare-start-ms")
}

// BenchmarkMessageAllocations has gomavlib's codec alone as its baseline, which allocates each message and its
// text. For a heartbeat mavrest also allocates the words of the status.
func BenchmarkMessageAllocations(b *testing.B) {
	r := &reader{link: mute().link}
	var line bytes.Reader
	read := func(sent []byte, each func(rawFrame)) func() {
		return func() {
			line.Reset(sent)
			r.in.read(&line)
			for f, ok := r.in.next(); ok; f, ok = r.in.next() {
				each(f)
			}
		}
	}
	handle := func(f rawFrame) { r.handle(f, time.Time{}) }
	beat := &minimal.MessageHeartbeat{Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_PX4}
	read(packet(1, 1, autopilotID, beat), handle)()
	for _, m := range []message.Message{
		&common.MessageAttitude{Roll: 1}, &common.MessageGlobalPositionInt{Lat: 1}, &common.MessageVfrHud{Airspeed: 1},
		&common.MessageSysStatus{VoltageBattery: 1}, &common.MessageGpsRawInt{Eph: 1},
		&common.MessageExtendedSysState{LandedState: 1}, &common.MessageHomePosition{Latitude: 1},
		&common.MessageCommandAck{Command: 1}, &common.MessageStatustext{Text: "one"}, beat,
	} {
		_, name, _ := strings.Cut(fmt.Sprintf("%T", m), ".Message")
		b.Run(name, func(b *testing.B) {
			sent := packet(1, 1, autopilotID, m)
			reportAllocs(b, read(sent, handle), read(sent, func(f rawFrame) { f.decode() }))
		})
	}
	others := map[string][]byte{
		"of_another_component": packet(1, 1, 2, &common.MessageAttitude{}),
		// it is recognized by the frame after it
		"unknown": append(unknownPacket(1, 20), packet(1, 1, 2, &common.MessageAttitude{})...),
	}
	for name, sent := range others {
		b.Run(name, func(b *testing.B) { reportAllocs(b, read(sent, handle), read(sent, func(rawFrame) {})) })
	}
}

// BenchmarkRequestAllocations has as its baseline a handler that decodes the body and writes as long an answer.
func BenchmarkRequestAllocations(b *testing.B) {
	d := mute()
	stream, _ := captured(b, "px4")
	d.link.serve(b.Context(), &replay{rest: stream})
	d.cmd.quitting = false // undoes mute's quit, after which POST input would be refused
	d.online = true
	d.machine.mode, d.sticks.taken, d.sticks.src.known = ModePosition, false, true
	d.params.family.hear("RTL_RETURN_ALT", time.Now())
	ask := func(h http.Handler, method, path, body string) func() {
		in := strings.NewReader(body)
		r := httptest.NewRequest(method, "/api/drone"+path, in)
		r.Host = "192.168.1.2"
		return func() {
			in.Reset(body)
			w := &discarded{header: http.Header{}}
			h.ServeHTTP(w, r)
			if w.code != 0 && w.code != 200 {
				b.Fatalf("%s %s answered %d %s", method, path, w.code, w.wrote)
			}
		}
	}
	sticks := `{"roll":0.1,"pitch":0.2,"yaw":0.3,"throttle":0.5}`
	for _, c := range []struct{ name, method, path, body string }{
		{"status", "GET", "/status", ""}, {"input", "POST", "/input", sticks},
	} {
		b.Run(c.name, func(b *testing.B) {
			answer := bareAnswer([]byte("OK"))
			bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.body != "" {
					json.NewDecoder(r.Body).Decode(new(map[string]float64))
				}
				answer(w, r)
			})
			reportAllocs(b, ask(newHandler(d, admission{}), c.method, c.path, c.body),
				ask(bare, c.method, c.path, c.body))
		})
	}
}

// BenchmarkStream measures the CPU of the release binary on a full link with 16 streams of the
// status at 10 Hz, and with one client that asks for it ten times a second, in turns.
func BenchmarkStream(b *testing.B) {
	t := build(b, runtime.GOARCH)
	flight, _ := captured(b, "px4")
	p := t.begins(b, "")
	p.poured(b, t.far, flight, fullLink) // so that the handshake is over
	var pouring sync.WaitGroup
	stop := make(chan struct{})
	pouring.Go(func() { pour(t.far, flight, fullLink, math.MaxInt, stop) })
	defer pouring.Wait()
	defer close(stop)

	var single, all atomic.Int64 // events
	ways := []struct {
		name string
		ask  func(end <-chan struct{})
		took []time.Duration
	}{
		{name: "nobody", ask: func(end <-chan struct{}) { <-end }},
		{name: "poller", ask: func(end <-chan struct{}) { polls(b, p.address, end) }},
		{name: "1-stream", ask: func(end <-chan struct{}) { listens(b, p.address, 1, &single, end) }},
		{name: "16-streams", ask: func(end <-chan struct{}) { listens(b, p.address, maxStreams, &all, end) }},
	}
	const turns, seconds = 10, 2
	asked := 0.0 // the seconds in which clients asked
	for b.Loop() {
		for turn := range turns {
			for i := range ways {
				w := &ways[(turn+i)%len(ways)]
				w.took = append(w.took, p.ranWhile(b, seconds, w.ask))
			}
			asked += seconds + settles.Seconds()
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(all.Load())/maxStreams/asked, "events/s-of-each")
	for _, w := range ways {
		b.ReportMetric(percentile(w.took, 50).Seconds()/seconds*100, w.name+"-%-of-a-core")
	}
	nobody, poller, streams := ways[0].took, ways[1].took, ways[3].took
	b.ReportMetric(medianRatio(streams, poller), "x-poller") // of the whole CPU time
	added := func(d []time.Duration) float64 { return float64(percentile(d, 50) - percentile(nobody, 50)) }
	b.ReportMetric(added(streams)/added(poller), "x-poller-added") // of the CPU time above that without clients
}
