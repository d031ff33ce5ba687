package main

// Ports of a test: pseudo-terminals, sockets, folders of devices, and what must be left of them.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
	"go.bug.st/serial"
)

// pty is a pseudo-terminal: the master is the autopilot's end of the line.
type pty struct {
	master *os.File
	keeper *os.File // a slave that stays open: without one the master can't be read
	path   string   // of the slave
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	if err := c.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
	}); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

func openPTY(t testing.TB) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var unlocked, number int32
	err = errors.Join(ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)),
		ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&number)))
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{master: master, path: fmt.Sprintf("/dev/pts/%d", number)}
	if p.keeper, err = os.OpenFile(p.path, os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	// Raw, as a wire is: bytes that come before the link opens it are not echoed.
	var raw syscall.Termios
	if err := ioctl(p.keeper, syscall.TCGETS, unsafe.Pointer(&raw)); err != nil {
		t.Fatal(err)
	}
	raw.Iflag, raw.Oflag, raw.Lflag = 0, 0, 0
	if err := ioctl(p.keeper, syscall.TCSETS, unsafe.Pointer(&raw)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.unplug)
	return p
}

// unplug ends the line. It may be called twice.
func (p *pty) unplug() {
	p.master.Close()
	p.keeper.Close()
}

// speeds are the baud rates of the search by their CBAUD bits.
var speeds = map[uint32]int{
	syscall.B57600: 57600, syscall.B115200: 115200, syscall.B230400: 230400, syscall.B460800: 460800,
	syscall.B500000: 500000, syscall.B921600: 921600, syscall.B1500000: 1500000,
}

// speed is the slave's baud rate, as the link set it.
func (p *pty) speed(t *testing.T) int {
	t.Helper()
	var line syscall.Termios
	if err := ioctl(p.master, syscall.TCGETS, unsafe.Pointer(&line)); err != nil {
		t.Fatal(err)
	}
	const cbaud = 0o10017
	return speeds[line.Cflag&cbaud]
}

// fly puts a simulated autopilot at the master's end, until the test ends.
func (p *pty) fly(t *testing.T, s *simulator) (end func()) {
	t.Helper()
	cable, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { io.Copy(p.master, cable) })
	running.Go(func() { io.Copy(cable, p.master) })
	end = func() {
		cable.Close()
		p.unplug()
		running.Wait()
	}
	t.Cleanup(end)
	return end
}

// runDevice runs a drone on a device. end stops it and waits for it.
func runDevice(t testing.TB, dev device) (d *drone, end func()) {
	t.Helper()
	return runLogged(t, slog.Default(), dev)
}

// runLogged is runDevice with a log.
func runLogged(t testing.TB, log *slog.Logger, dev device) (d *drone, end func()) {
	t.Helper()
	d = newDrone(dev, 0, false, log)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("the link panicked: %v\n%s", r, debug.Stack())
			}
		}()
		d.run(ctx)
	})
	end = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(end)
	return d, end
}

// runSimulator runs a simulator in real time until the test ends.
func runSimulator(t testing.TB, flavour simFlavour) *simulator {
	t.Helper()
	s := newTestSimulator(flavour)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// dialed is a connection that is closed when the test ends.
func dialed(t testing.TB, network, address string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// listenTCP listens on loopback until the test ends.
func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// freeAddress is an address on loopback with a free port; network is tcp or udp.
func freeAddress(t testing.TB, network string) string {
	t.Helper()
	if network == "tcp" {
		l := listenTCP(t)
		defer l.Close()
		return l.Addr().String()
	}
	c, err := net.ListenPacket(network, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}

func mustDevice(t testing.TB, name string, baud int) device {
	t.Helper()
	dev, err := newDevice(name, baud, 0)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// open opens the line as the link does, until the test ends.
func (p *pty) open(t *testing.T) port {
	t.Helper()
	d := mustDevice(t, p.path, 57600)
	q, err := d.open(t.Context())

	// A process that another test starts has the lock of a port that was just closed, until it is the other program.
	for n := 0; errors.Is(err, syscall.EAGAIN) && n < 1000; n++ {
		time.Sleep(10 * time.Millisecond)
		q, err = d.open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

// withCounts counts the openings of a device, and those that failed.
func withCounts(dev device) (c device, opens, failed *atomic.Int32) {
	c, opens, failed = dev, new(atomic.Int32), new(atomic.Int32)
	c.open = func(ctx context.Context) (port, error) {
		opens.Add(1)
		p, err := dev.open(ctx)
		if err != nil {
			failed.Add(1)
		}
		return p, err
	}
	return c, opens, failed
}

// hearsMore calls first, then waits until more frames come.
func (d *drone) hearsMore(t *testing.T, first func()) {
	t.Helper()
	first()
	received := d.snapped().link.received
	waitUntil(t, "frames come again", func() bool { return d.snapped().link.received > received })
}

// hearsVehicle reports whether the vehicle is online.
func (d *drone) hearsVehicle() bool {
	return d.snapped().online
}

// awaitStarted waits until the simulator's vehicle has started: an ArduPilot forgets a mode that is set before.
func (d *drone) awaitStarted(t *testing.T) {
	t.Helper()
	waitUntil(t, "the vehicle has started", func() bool { return d.snapped().tel.beat.state == "standby" })
}

// drain reads for 20 ms, and appends what the link sends or has sent.
func (p *pty) drain(into *[]byte) {
	p.master.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	b := make([]byte, 4096)
	for {
		n, err := p.master.Read(b)
		*into = append(*into, b[:n]...)
		if err != nil {
			return
		}
	}
}

// descriptors counts this process's open files.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// nothingLeft calls f and checks that f leaves no goroutine and no descriptor. It does so in a process of its own:
// there no other test begins or ends any, and here the others go on.
func nothingLeft(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	const inOwnProcess = "MAVREST_TEST_ALONE"
	if os.Getenv(inOwnProcess) == "" {
		t.Parallel()
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$",
			fmt.Sprint("-test.short=", testing.Short()), fmt.Sprint("-all=", *runAll))
		c.Env = append(os.Environ(), inOwnProcess+"=1")
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("in a process of its own: %v\n%s", err, out)
		}
		return
	}
	openPTY(t).unplug()                              // the first one opens the runtime's own poller
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would close forgotten files
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	f(t)
	waitUntil(t, fmt.Sprintf("there are %d goroutines and %d descriptors again", goroutines, files), func() bool {
		return runtime.NumGoroutine() <= goroutines && descriptors(t) <= files
	})
}

// waiting is how many bytes the link has not read yet.
func (p *pty) waiting(t *testing.T) (n int32) {
	t.Helper()
	if err := ioctl(p.keeper, syscall.TIOCINQ, unsafe.Pointer(&n)); err != nil {
		t.Fatal(err)
	}
	return n
}

// write writes to the line and waits until the link can read it.
func (p *pty) write(t *testing.T, b []byte) {
	t.Helper()
	if _, err := p.master.Write(b); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it is in the line", func() bool { return p.waiting(t) >= int32(len(b)) })
}

// stoppedLine is a line that takes no more bytes: its drain ends when the output is dropped.
type stoppedLine struct {
	serial.Port
	dropped context.Context
	drop    func()
}

func (l *stoppedLine) Drain() error { <-l.dropped.Done(); return nil }

func (l *stoppedLine) ResetOutputBuffer() error {
	l.drop()
	return nil
}

// hungLine is the line of a USB device that hangs: its driver drops no output, and its drain
// ends when the device is unplugged.
type hungLine struct {
	serial.Port
	unplugged, closed chan struct{}
}

func (l *hungLine) Drain() error { <-l.unplugged; return syscall.EIO }

func (l *hungLine) ResetOutputBuffer() error { return nil }

func (l *hungLine) Close() error {
	l.closed <- struct{}{}
	return l.Port.Close()
}

// asNobody runs f as a user who may open no device; root may open all.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	var done sync.WaitGroup
	done.Go(func() {
		if os.Getuid() != 0 {
			f()
			return
		}
		runtime.LockOSThread() // never unlocked: so the thread ends with this goroutine
		const nobody = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			t.Error(errno)
			return
		}
		f()
	})
	done.Wait()
}

// portFolder is a folder of ports, in which -device auto looks for names.
type portFolder struct {
	*testing.T
	dir   string
	names []string
}

// newPortFolder is a folder in which auto looks for these names; no port is there yet.
func newPortFolder(t *testing.T, names ...string) *portFolder {
	b := &portFolder{T: t, dir: t.TempDir()}
	for _, name := range names {
		b.names = append(b.names, b.at(name))
	}
	return b
}

func (b *portFolder) at(name string) string { return filepath.Join(b.dir, name) }

// plug gives a port a name; another port with that name loses it.
func (b *portFolder) plug(name string, p *pty) *pty {
	b.Helper()
	err := errors.Join(os.Symlink(p.path, b.at("new")), os.Rename(b.at("new"), b.at(name)))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// auto is -device auto in this folder. baud is the only rate to listen at; 0 searches for the rate.
func (b *portFolder) auto(baud int) device {
	a := &autoDevice{fixed: baud, line: new(lineState), ports: func() []string { return b.names },
		consoles: b.at("consoles")}
	return device{name: "auto", open: a.open, lossy: true, line: a.line}
}

// logIn makes a port a session's terminal, as a login does.
func (b *portFolder) logIn(p *pty) {
	b.Helper()
	c := exec.Command("sleep", "1000")
	c.Stdin = p.keeper
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
}

// untouched checks that nothing was written to a port.
func (b *portFolder) untouched(what string, p *pty) {
	b.Helper()
	var line []byte
	p.drain(&line)
	lineEqual(b.T, "bytes that were written to "+what, len(line), 0)
}

// allowed are the bytes that may go to a port on which no MAVLink was heard.
func allowed(c byte) bool { return c >= 0x80 || bytes.IndexByte([]byte{0, 1, 3, 8, 9, 18}, c) >= 0 }

// loud counts the bytes that are not allowed.
func loud(b []byte) (n int) {
	for _, c := range b {
		n += b2i(!allowed(c))
	}
	return n
}

// mutePort is silent, and keeps what is written to it.
type mutePort struct {
	*cable
	mu      sync.Mutex
	written []byte
	at      []time.Time
}

func (p *mutePort) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = append(p.written, b...)
	p.at = append(p.at, time.Now())
	return len(b), nil
}

// taken returns what was written since the last call, and when.
func (p *mutePort) taken() (written []byte, at []time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written, at = p.written, p.at
	p.written, p.at = nil, nil
	return written, at
}

// vehicleSocket is a vehicle at the other end of a network link.
type vehicleSocket struct {
	net.Conn
	seq byte
}

func (v *vehicleSocket) say(t *testing.T, m message.Message) {
	t.Helper()
	v.seq++
	if _, err := v.Write(packet(v.seq, 1, 1, m)); err != nil {
		t.Fatal(err)
	}
}

// hears reads until a message of the link for which f is true.
func (v *vehicleSocket) hears(t *testing.T, f func(lineMessage) bool) {
	t.Helper()
	v.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 4096)
	for {
		n, err := v.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(parseLine(b[:n]), f) {
			return
		}
	}
}

// datagramWaits reports whether a datagram waits at a socket.
func datagramWaits(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	waits := false
	raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_DONTWAIT|syscall.MSG_PEEK)
		waits = err == nil && n > 0
	})
	return waits
}

// udpBench is a link that listens on UDP.
type udpBench struct {
	*drone
	address atomic.Pointer[string]
	opens   atomic.Int32
}

func listenForVehicles(t *testing.T) *udpBench {
	t.Helper()
	b := &udpBench{}
	dev := device{name: "udpin", datagrams: true}
	dev.open = func(context.Context) (port, error) {
		p, err := listenUDP("127.0.0.1:0")
		if err == nil {
			address := listensAt(t, p)
			b.address.Store(&address)
			b.opens.Add(1)
		}
		return p, err
	}
	b.drone, _ = runDevice(t, dev)
	waitUntil(t, "the link listens", func() bool { return b.address.Load() != nil })
	return b
}

func (b *udpBench) dial(t *testing.T) *vehicleSocket {
	t.Helper()
	return &vehicleSocket{Conn: dialed(t, "udp", *b.address.Load())}
}

// seen waits until the link has heard everything that v sent so far, and then this pitch.
func (b *udpBench) seen(t *testing.T, v *vehicleSocket, pitch uint32) {
	t.Helper()
	v.say(t, &common.MessageAttitude{TimeBootMs: 1, Pitch: float32(pitch) / 100})
	waitUntil(t, fmt.Sprintf("pitch %d came", pitch), func() bool {
		s := b.snapped()
		return math.Round(s.tel.attitude.pitch*math.Pi/1.8) == float64(pitch)
	})
}

// mark makes the link send a message that differs from all others; the result matches it.
func (b *udpBench) mark(n int16) func(lineMessage) bool {
	b.link.send(&common.MessageManualControl{Target: 1, X: n})
	return func(m lineMessage) bool {
		c, ok := m.msg.(*common.MessageManualControl)
		return ok && c.X == n
	}
}

// openUDP opens a port that listens, until the test ends.
func openUDP(t *testing.T) *udpPort {
	t.Helper()
	p, err := listenUDP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p.(*udpPort)
}

// listensAt is a UDP port's own address.
func listensAt(t testing.TB, p port) string {
	t.Helper()
	raw, err := p.(*udpPort).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var name syscall.Sockaddr
	raw.Control(func(fd uintptr) { name, err = syscall.Getsockname(int(fd)) })
	switch a := name.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)).String()
	}
	t.Fatal(err)
	return ""
}

// flapping lets a device's other end come, speak and go some times; an end is a new one each time.
func flapping(t *testing.T, dev device, rounds int, up func() (speak func(m []byte), down func())) {
	d, end := runDevice(t, dev)
	var seq byte
	for range rounds {
		speak, down := up()
		before := d.snapped().link.received
		waitUntil(t, "frames come", func() bool {
			seq++
			speak(packet(seq, 1, 1, px4Beat()))
			return d.snapped().link.received > before
		})
		down()
	}
	end()
}

// router is a vehicle's router on UDP. As a PX4, it answers only the first addresses that it heard.
type router struct {
	net.PacketConn
	mu      sync.Mutex
	clients []net.Addr
	most    int
}

func newRouter(t *testing.T, most int) *router {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &router{PacketConn: c, most: most}
	var reading sync.WaitGroup
	reading.Go(func() {
		b := make([]byte, 4096)
		for {
			_, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			r.mu.Lock()
			known := slices.ContainsFunc(r.clients, func(a net.Addr) bool { return a.String() == from.String() })
			if !known && len(r.clients) < r.most {
				r.clients = append(r.clients, from)
			}
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		c.Close()
		reading.Wait()
	})
	return r
}

// speaks sends the vehicle's heartbeats until the result is called.
func (r *router) speaks() (stop func()) {
	var seq byte
	return repeat(100*time.Millisecond, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		seq++
		for _, c := range r.clients {
			r.WriteTo(packet(seq, 1, 1, px4Beat()), c)
		}
	})
}

// ignore makes a connection's end dead to what comes: it acknowledges nothing.
func ignore(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		const ret = 0x06 // of no byte

		//lint:ignore SA1019 what is to replace it is no part of the standard library
		err = syscall.AttachLsf(int(fd), []syscall.SockFilter{{Code: ret}})
	})
	if err != nil {
		t.Fatal(err)
	}
}
