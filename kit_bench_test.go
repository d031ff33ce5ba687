package main

// What the benchmarks share: clients, baselines, programs in processes of their own, and what one costs.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
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

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
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
				// It obeys a client's sticks: COM_RC_IN_MODE is 1.
				answer(&common.MessageParamValue{ParamId: m.ParamId, ParamValue: 1,
					ParamType: common.MAV_PARAM_TYPE_REAL32})
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
	emptied
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

// writers writes to each, and ignores their errors.
type writers []io.Writer

func (w writers) Write(b []byte) (int, error) {
	for _, each := range w {
		each.Write(b)
	}
	return len(b), nil
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

// discarded is a ResponseWriter that keeps only the status code and, for an error, what was written last.
type discarded struct {
	header http.Header
	code   int
	wrote  []byte
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(b []byte) (int, error) { d.wrote = b; return len(b), nil }
func (d *discarded) WriteHeader(code int)        { d.code = code }

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
