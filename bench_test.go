package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
	"github.com/bluenviron/gomavlib/v3/pkg/x25"
)

// The benchmarks measure the program and a baseline in turns, so that other load on the machine
// slows both. Only their ratio counts. Those near the end count allocations.
// docs/performance.md explains the numbers.

// fullLink is what a link at 921600 baud carries, in bytes a second.
const fullLink = 921600 / 10

// captured returns the bytes of a capture in testdata, and the number of frames in them.
func captured(tb testing.TB, name string) (stream []byte, frames int) {
	tb.Helper()
	for _, e := range readTlog(tb, name+"-flight.tlog") {
		stream = append(stream, e.bytes...)
		frames++
	}
	return stream, frames
}

func frameSize(b []byte) int {
	if b[0] == 0xfe {
		return 8 + int(b[1])
	}
	return 12 + int(b[1]) + 13*int(b[2]&1)
}

// openTTY opens the link's end of a terminal as the program does.
func openTTY(tb testing.TB, of *pty) port {
	tb.Helper()
	p, err := (&serialDevice{path: of.path}).openAt(921600)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return p
}

// pour writes a stream over and over, rate bytes a second, until stop is closed or total bytes are written.
func pour(w io.Writer, stream []byte, rate, total int, stop <-chan struct{}) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for written := 0; written < total; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		due := min(int(time.Since(began).Seconds()*float64(rate)), total)
		for written < due {
			rest := stream[written%len(stream):]
			n := 0
			for n < min(due-written, len(rest)) { // only whole frames, since another writer writes between them
				n += frameSize(rest[n:])
			}
			n = min(n, total-written)
			if _, err := w.Write(rest[:n]); err != nil {
				return
			}
			written += n
		}
	}
}

// linked runs a drone on a line and returns it with its handler.
func linked(tb testing.TB, p *pty) (*drone, http.Handler) {
	tb.Helper()
	d, _ := runDevice(tb, mustDevice(tb, p.path, 921600))
	return d, newHandler(d, admission{})
}

// serveHere serves on loopback and returns the address.
func serveHere(tb testing.TB, s interface {
	Serve(net.Listener) error
	Close() error
}) string {
	tb.Helper()
	l := listenTCP(tb)
	address := l.Addr().String()
	var running sync.WaitGroup
	running.Go(func() { s.Serve(l) })
	tb.Cleanup(func() { s.Close(); running.Wait() })
	return address
}

// client is one keep-alive connection. It does as little work as it can.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte
}

func connect(tb testing.TB, address string) *client {
	tb.Helper()
	c := dialed(tb, "tcp", address)
	cl := &client{conn: c, in: bufio.NewReader(c)}
	tb.Cleanup(func() { cl.conn.Close() }) // insist may have replaced it
	return cl
}

func connects(tb testing.TB, address string, n int) (list []*client) {
	for range n {
		list = append(list, connect(tb, address))
	}
	return list
}

func get(path string) []byte {
	return []byte("GET /api/drone" + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

func post(path, body string) []byte {
	return fmt.Appendf(nil, "POST /api/drone%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path,
		len(body), body)
}

// answer reads an answer, its body into c.body. Any code but 200 is an error.
func (c *client) answer() error {
	first, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	ok := bytes.HasPrefix(first, []byte("HTTP/1.1 200"))
	length := 0
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if n, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(n)))
		}
	}
	c.body = slices.Grow(c.body[:0], length)[:length]
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: %s", errNot200, c.body)
	}
	return nil
}

var errNot200 = errors.New("not 200")

// insist repeats a request on a new connection while it gets no answer: the server closes idle
// connections when new ones come. An answer other than 200 is an error at once.
func (c *client) insist(request []byte) error {
	for {
		err := c.do(request)
		if err == nil || errors.Is(err, errNot200) {
			return err
		}
		address := c.conn.RemoteAddr().String()
		c.conn.Close()
		if c.conn, err = net.Dial("tcp", address); err != nil {
			return err
		}
		c.in.Reset(c.conn)
	}
}

func (c *client) do(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	return c.answer()
}

// pair has the measurements of the program and of the baseline, one each for every turn.
type pair struct{ ours, bare []time.Duration }

// add measures both. In every other turn it measures the program first.
func (p *pair) add(turn int, ours, bare func() time.Duration) {
	if turn%2 == 0 {
		p.ours = append(p.ours, ours())
		p.bare = append(p.bare, bare())
	} else {
		p.bare = append(p.bare, bare())
		p.ours = append(p.ours, ours())
	}
}

// percentile returns the p-th percentile of some durations.
func percentile(d []time.Duration, p int) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)*p/100, len(d)-1)]
}

// medianRatio returns the median over the turns of a / b. Load that lasts longer than a turn
// slows both.
func medianRatio(a, b []time.Duration) float64 {
	each := make([]float64, len(a))
	for i := range each {
		each[i] = float64(a[i]) / float64(b[i])
	}
	slices.Sort(each)
	return each[len(each)/2]
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// bareServer returns a server for a bare handler. It has the program's time-outs, and no more of it.
func bareServer(h http.HandlerFunc) *http.Server {
	s := newServer(nil, maxConnections)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.ReadHeaderTimeout, ReadTimeout: s.ReadTimeout,
		WriteTimeout: s.WriteTimeout, IdleTimeout: s.IdleTimeout,
	}
}

// bareAnswer returns a handler that always writes the same bytes.
func bareAnswer(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	}
}

// crowd makes n requests with each client, with all clients at once. It returns the whole time and
// the time of each request.
func crowd(tb testing.TB, clients []*client, request []byte, n int) (whole time.Duration, each []time.Duration) {
	each = make([]time.Duration, n*len(clients))
	began := time.Now()
	var running sync.WaitGroup
	for i, c := range clients {
		running.Go(func() {
			for k := range n {
				at := time.Now()
				if err := c.insist(request); err != nil {
					tb.Error(err)
					return
				}
				each[i*n+k] = time.Since(at)
			}
		})
	}
	running.Wait()
	return time.Since(began), each
}

// telemetered starts a program whose link is full, so that its status changes all the time. It
// returns the program's address and one of its statuses.
func telemetered(tb testing.TB) (address string, body []byte) {
	tb.Helper()
	stream, _ := captured(tb, "px4")
	p := openPTY(tb)
	d, handler := linked(tb, p)
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { pour(p.master, stream, fullLink, math.MaxInt, stop) })
	running.Go(func() { io.Copy(io.Discard, p.master) })
	tb.Cleanup(func() { close(stop); p.unplug(); running.Wait() })
	address = serveHere(tb, newServer(handler, maxConnections))
	c := connect(tb, address)
	for d.link.received.Load() < 2000 {
		if err := c.do(get("/status")); err != nil {
			tb.Fatal(err)
		}
	}
	return address, bytes.Clone(c.body)
}

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

// farEnd is an autopilot at the far end of a line. It acknowledges every command, answers questions for its version
// and its parameters, and sends to came when sticks arrive.
type farEnd struct {
	line io.ReadWriteCloser
	came chan arrived
}

// arrived is the roll of a MANUAL_CONTROL, and when its last byte could be read.
type arrived struct {
	y  int16
	at time.Time
}

func newFarEnd(tb testing.TB, line io.ReadWriteCloser) *farEnd {
	f := &farEnd{line: line, came: make(chan arrived, 1000)}
	var running sync.WaitGroup
	running.Go(f.read)
	tb.Cleanup(func() { f.line.Close(); running.Wait() })
	return f
}

func (f *farEnd) read() {
	var in deframer
	out := newSender(1, autopilotID)
	answer := func(m message.Message) {
		b, _ := out.encode(m)
		f.line.Write(b)
	}
	for in.read(f.line) == nil {
		now := time.Now()
		for raw, ok := in.next(); ok; raw, ok = in.next() {
			switch m := raw.decode().(type) {
			case *common.MessageManualControl:
				f.came <- arrived{m.Y, now}
			case *common.MessageCommandLong:
				answer(&common.MessageCommandAck{Command: m.Command, TargetSystem: 1, TargetComponent: componentID})
				if m.Command == common.MAV_CMD_REQUEST_MESSAGE && uint32(m.Param1) == idVersion {
					answer(&common.MessageAutopilotVersion{FlightSwVersion: 1<<24 | 17<<16})
				}
			case *common.MessageParamRequestRead:
				answer(&common.MessageParamValue{ParamId: m.ParamId, ParamType: common.MAV_PARAM_TYPE_INT32})
			}
		}
	}
}

// measure posts sticks whose roll at the far end is y. It returns how long they took to get there.
func (f *farEnd) measure(b *testing.B, c *client, request []byte, y int16) time.Duration {
	began := time.Now()
	if err := c.do(request); err != nil {
		b.Fatal(err)
	}
	for a := range f.came {
		if a.y == y {
			return a.at.Sub(began)
		}
	}
	return 0
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
	for ours.do(sticks(0)) != nil { // input is refused until it is known who has the sticks
		time.Sleep(100 * time.Millisecond)
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

// cost is the CPU time and the allocations of the whole process during some work.
type cost struct {
	cpu           time.Duration
	bytes, allocs uint64
}

func (c *cost) measure(work func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	work()
	c.cpu += cpuTime() - cpu
	runtime.ReadMemStats(&after)
	c.bytes += after.TotalAlloc - before.TotalAlloc
	c.allocs += after.Mallocs - before.Mallocs
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// replay is a port from which a stream is read, up to 512 bytes at a time.
type replay struct {
	noDeadlines
	rest []byte
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 512)], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (*replay) Write(b []byte) (int, error) { return len(b), nil }
func (*replay) Close() error                { return nil }

// mute returns a drone that has quit, so that it commands nothing.
func mute() *drone {
	d := newDrone(device{name: "replay"}, 0, false, slog.Default())
	d.quit()
	return d
}

// splitAndCheck does the least that reading frames takes: it finds their ends and computes their
// checksums.
func splitAndCheck(r io.Reader) (sum uint16) {
	var buf [2048]byte
	have := 0
	for {
		n, err := r.Read(buf[have:])
		if err != nil {
			return sum
		}
		have += n
		b := buf[:have]
		for len(b) > 3 && len(b) >= frameSize(b) {
			size := frameSize(b)
			var x x25.X25
			x.Reset()
			x.Write(b[1 : size-2])
			sum += x.Sum16()
			b = b[size:]
		}
		have = copy(buf[:], b)
	}
}

// refilled is a line from which a gomavlib Node reads one stream after the other. A Node sets no deadlines that
// end a read, and asks for no address.
type refilled struct {
	net.Conn
	streams chan []byte
	current replay
	done    chan struct{}
}

func (e *refilled) connect(context.Context) (net.Conn, error) { return e, nil }

func (e *refilled) Read(b []byte) (int, error) {
	if len(e.current.rest) == 0 {
		select {
		case e.current.rest = <-e.streams:
		case <-e.done:
			return 0, io.EOF
		}
	}
	return e.current.Read(b)
}

func (e *refilled) Write(b []byte) (int, error) { return len(b), nil }
func (e *refilled) Close() error                { close(e.done); return nil }

func (e *refilled) SetReadDeadline(time.Time) error  { return nil }
func (e *refilled) SetWriteDeadline(time.Time) error { return nil }

func BenchmarkTelemetry(b *testing.B) {
	for _, name := range []string{"px4", "ardupilot"} {
		b.Run(name, func(b *testing.B) {
			stream, frames := captured(b, name)
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
					// An unknown message in the last frame is counted only when another frame follows.
					if d.link.received.Load() < uint64(frames-1) {
						b.Fatalf("read %d frames of %d", d.link.received.Load(), frames)
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

// heap returns the memory in use, in MB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// built makes the release binaries of a source and returns their folder.
func built(tb testing.TB, source string, targets ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	args := []string{"-s", "-C", source, "DIST=" + dir, "VERSION=v0.0.0"}
	for _, t := range targets {
		args = append(args, filepath.Join(dir, "mavrest-linux-"+t))
	}
	if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		tb.Fatalf("make: %v\n%s", err, out)
	}
	return dir
}

// builtBefore makes the binary of the revision that make bench names in BEFORE; "" if it names none.
func builtBefore(tb testing.TB) string {
	tb.Helper()
	revision := os.Getenv("BEFORE")
	if revision == "" {
		return ""
	}
	source := tb.TempDir()
	cmd := exec.Command("sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", revision, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("git archive %s: %v\n%s", revision, err, out)
	}
	return binaryIn(built(tb, source, runtime.GOARCH))
}

func binaryIn(dir string) string { return filepath.Join(dir, "mavrest-linux-"+runtime.GOARCH) }

// bareProgram is a minimal net/http server. It also reads a terminal, or the datagrams that come
// to an address, and ignores what it reads.
const bareProgram = `package main

import ("io"; "net"; "net/http"; "os"; "syscall")

func main() {
	var in io.Reader
	var err error
	if os.Args[2][0] == '/' {
		in, err = os.OpenFile(os.Args[2], os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	} else {
		var c net.PacketConn
		c, err = net.ListenPacket("udp", os.Args[2])
		in, _ = c.(io.Reader)
	}
	if err != nil {
		panic(err)
	}
	go func() {
		b := make([]byte, 2048)
		for {
			in.Read(b)
		}
	}()
	panic(http.ListenAndServe(os.Args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "{}")
	})))
}
`

// process is a running program.
type process struct {
	*exec.Cmd
	address string
	took    time.Duration // from its start to its first answer
}

// begin starts a program that listens at an address. It sends requests until one is answered.
func begin(b *testing.B, args func(address string) []string) process {
	address := freeAddress(b, "tcp")
	a := args(address)
	p := process{Cmd: exec.Command(a[0], a[1:]...), address: address}
	began := time.Now()
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.end)
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			cl := &client{conn: c, in: bufio.NewReader(c)}
			err = cl.do(get(""))
			c.Close()
			if err != nil {
				b.Fatal(err)
			}
			p.took = time.Since(began)
			return p
		}
		if time.Since(began) > 10*time.Second {
			b.Fatal(err)
		}
		runtime.Gosched()
	}
}

// startTime ends a process and returns how long its first answer took.
func startTime(p process) time.Duration {
	p.end()
	return p.took
}

func (p process) end() {
	p.Process.Kill()
	p.Wait()
}

// resident returns the process' VmRSS in MB.
func (p process) resident(b *testing.B) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kb * 1024 / 1e6
}

// cpu returns how long the process' threads have run.
func (p process) cpu(b *testing.B) (sum time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.Process.Pid))
	for _, path := range threads {
		s, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		ns, _ := strconv.ParseInt(strings.Fields(string(s))[0], 10, 64)
		sum += time.Duration(ns)
	}
	return sum
}

// onTerminals has the release binary and bareProgram, each with a terminal.
type onTerminals struct {
	dir        string    // the binaries
	before     string    // the binary of the revision before; "": none is measured
	ours, bare *pty      // their lines
	far        io.Writer // the far end of ours, where every command is acknowledged
}

// begins starts the release binary on a device. "" means its terminal.
func (t onTerminals) begins(b *testing.B, device string) process {
	return beginsBinary(b, binaryIn(t.dir), cmp.Or(device, t.ours.path))
}

func beginsBinary(b *testing.B, binary, device string) process {
	return begin(b, func(address string) []string {
		host, port, _ := net.SplitHostPort(address)
		return []string{binary, "-device", device, "-baud", "921600", "-bind", host, "-port", port}
	})
}

// beginsBare starts bareProgram on a device. "" means its terminal.
func (t onTerminals) beginsBare(b *testing.B, device string) process {
	return begin(b, func(address string) []string {
		return []string{filepath.Join(t.dir, "bare"), address, cmp.Or(device, t.bare.path)}
	})
}

func build(b *testing.B, targets ...string) onTerminals {
	t := onTerminals{ours: openPTY(b), bare: openPTY(b)}
	t.dir = built(b, ".", targets...)
	t.before = builtBefore(b)
	bare := filepath.Join(t.dir, "bare")
	if err := os.WriteFile(bare+".go", []byte(bareProgram), 0o644); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-tags=nethttpomithttp2", "-ldflags=-s -w", "-o", bare, bare+".go")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	t.far = newFarEnd(b, t.ours.master).line
	return t
}

// poured pours a stream into a process' terminal for some seconds. It returns how much of a core
// the process uses meanwhile, in percent.
func (p process) poured(b *testing.B, far io.Writer, stream []byte, rate int) float64 {
	const seconds = 3
	before := p.cpu(b)
	pour(far, stream, rate, seconds*rate, nil)
	return (p.cpu(b) - before).Seconds() / seconds * 100
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

// writers writes to each, and ignores their errors.
type writers []io.Writer

func (w writers) Write(b []byte) (int, error) {
	for _, each := range w {
		each.Write(b)
	}
	return len(b), nil
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

func size(tb testing.TB, dir, target string) float64 {
	tb.Helper()
	info, err := os.Stat(filepath.Join(dir, "mavrest-linux-"+target))
	if err != nil {
		tb.Fatal(err)
	}
	return float64(info.Size())
}

// play sends a capture over and over, with a frame in each datagram, until stop is closed. It
// divides the recorded times by speedup.
func play(w io.Writer, capture []tlogEntry, speedup float64, stop <-chan struct{}) {
	for {
		began := time.Now()
		for _, e := range capture {
			at := time.Duration(float64(e.at) / speedup)
			select {
			case <-stop:
				return
			case <-time.After(at - time.Since(began)):
			}
			w.Write(e.bytes)
		}
	}
}

// racing reports whether the race detector, which allocates by itself, is on.
func racing() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// reportAllocs reports the allocations of some work, and of the least that the same work takes. How many
// they are depends on the release of Go, so that no test has a budget of them.
func reportAllocs(b *testing.B, ours, bare func()) {
	var most, least float64
	for b.Loop() {
		most, least = testing.AllocsPerRun(100, ours), testing.AllocsPerRun(100, bare)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(most, "allocs")
	b.ReportMetric(least, "bare-allocs")
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
	d.cmd.stopped = false // undoes mute's quit, after which POST input would be refused
	d.online = true
	d.machine.mode, d.sticks.taken, d.sticks.src.known = ModePosition, false, true
	ask := func(h http.Handler, method, path, body string) func() {
		in := strings.NewReader(body)
		r := httptest.NewRequest(method, "/api/drone"+path, in)
		r.Host = "192.168.1.2"
		return func() {
			in.Reset(body)
			w := &discarded{header: http.Header{}}
			h.ServeHTTP(w, r)
			if w.code != 0 && w.code != 200 {
				b.Fatalf("%s %s answered %d", method, path, w.code)
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

// discarded is a ResponseWriter that keeps only the status code.
type discarded struct {
	header http.Header
	code   int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }
func (d *discarded) WriteHeader(code int)        { d.code = code }

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

// settles is how long the clients ask before the measurement begins.
const settles = 300 * time.Millisecond

// ranWhile returns the CPU time of a process in some seconds. asks runs from before these seconds
// until after them.
func (p process) ranWhile(b *testing.B, seconds int, asks func(end <-chan struct{})) time.Duration {
	end := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { asks(end) })
	time.Sleep(settles)
	before := p.cpu(b)
	time.Sleep(time.Duration(seconds) * time.Second)
	took := p.cpu(b) - before
	close(end)
	asking.Wait()
	return took
}

// polls requests the status ten times a second.
func polls(b *testing.B, address string, end <-chan struct{}) {
	c := connect(b, address)
	defer c.conn.Close()
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for {
		if err := c.do(get("/status")); err != nil {
			b.Error(err)
			return
		}
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
}

// listens reads some streams of the status and counts their events.
func listens(b *testing.B, address string, streams int, events *atomic.Int64, end <-chan struct{}) {
	request := []byte("GET /api/drone/status HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	var reading sync.WaitGroup
	defer reading.Wait()
	for range streams {
		c := connect(b, address)
		defer c.conn.Close()
		if _, err := c.conn.Write(request); err != nil {
			b.Error(err)
		}
		reading.Go(func() {
			for lines := bufio.NewScanner(c.in); lines.Scan(); {
				if bytes.HasPrefix(lines.Bytes(), []byte("event: ")) {
					events.Add(1)
				}
			}
		})
	}
	<-end
}
