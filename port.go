package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"go.bug.st/serial"
)

// bauds are the rates that a search tries, in this order.
var bauds = []int{921600, 57600, 115200, 460800, 500000, 230400, 1500000}

// Times of a serial line.
const (
	baudListen   = 1500 * time.Millisecond // how long a search listens at each rate
	writeTimeout = 2 * time.Second         // a write that takes longer means a dead port
	drainTimeout = time.Second             // a drain that takes longer is given up
	gatherFor    = 10 * time.Millisecond   // how long bytes gather on a busy line before a read
)

// port carries bytes to and from the autopilot. Close ends a pending Read.
type port interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// device is what -device names: how to open it, and what its ports are like.
type device struct {
	name      string
	open      func(ctx context.Context) (port, error)
	lossy     bool       // bytes may be lost, as on a serial line
	datagrams bool       // a read brings a datagram, which holds whole frames
	line      *lineState // nil until the link makes one
}

// port returns the port's name: with auto that of the port found last, else the device's.
func (d device) port() string {
	if d.line != nil {
		if found := d.line.found.Load(); found != nil {
			return *found
		}
	}
	return d.name
}

// lineState is what is known of the bytes of a device.
type lineState struct {
	baud  atomic.Int64           // the rate that worked last; 0 if none did
	noise atomic.Uint64          // counts places where bytes were not a frame
	found atomic.Pointer[string] // the port that auto found last; nil if none
}

// newDevice parses a -device other than the simulator.
func newDevice(name string, baud int) (device, error) {
	fail := func(format string, args ...any) (device, error) {
		return device{}, fmt.Errorf("-device %s: %s", name, fmt.Sprintf(format, args...))
	}
	if name == "auto" {
		a := &autoDevice{fixed: baud, line: new(lineState), ports: autoPorts, consoles: "/sys/class/tty/console/active"}
		return device{name: name, open: a.open, lossy: true, line: a.line}, nil
	}
	if strings.HasPrefix(name, "sim:") {
		return fail("no such simulator; there are sim and sim:ardupilot")
	}
	scheme, address, ok := strings.Cut(name, "://")
	if !ok {
		if strings.HasPrefix(name, "/") || strings.Contains(name, "/") && !strings.Contains(name, ":") {
			s := &serialDevice{path: name, fixed: baud, lineState: new(lineState)}
			return device{name: name, open: s.open, lossy: true, line: s.lineState}, nil
		}
		return fail("%s", didYouMean(name))
	}
	_, number, err := net.SplitHostPort(address)
	if _, perr := strconv.ParseUint(number, 10, 16); err != nil || perr != nil {
		return fail("want %s://host:port, with a port up to 65535", scheme)
	}
	dial := func(network string) func(ctx context.Context) (port, error) {
		d := net.Dialer{Timeout: writeTimeout}
		return func(ctx context.Context) (port, error) { return d.DialContext(ctx, network, address) }
	}
	switch scheme {
	case "udpin":
		return device{name: name, datagrams: true, open: func(context.Context) (port, error) { return listenUDP(address) }}, nil
	case "udpout":
		return device{name: name, datagrams: true, open: dial("udp")}, nil
	case "tcp":
		return device{name: name, open: dial("tcp")}, nil
	}
	return fail("%s", didYouMean(name))
}

// didYouMean suggests what to write instead of a name that is not a device. Other tools
// write udpin:14550, udp://:14550 or serial:///dev/ttyACM0:57600.
func didYouMean(name string) string {
	kind, rest, _ := strings.Cut(name, ":")
	rest = strings.TrimPrefix(rest, "//")
	scheme, ok := map[string]string{"udpin": "udpin", "udp": "udpin", "udpout": "udpout", "tcp": "tcp"}[kind]
	host, number, err := net.SplitHostPort(rest)
	if _, perr := strconv.ParseUint(rest, 10, 16); perr == nil {
		host, number, err = "", rest, nil
	}
	switch {
	case ok && err == nil && scheme == "udpin":
		return fmt.Sprintf("did you mean udpin://%s?", net.JoinHostPort(cmp.Or(host, "0.0.0.0"), number))
	case ok && err == nil:
		return fmt.Sprintf("did you mean %s://%s?", scheme, net.JoinHostPort(cmp.Or(host, "127.0.0.1"), number))
	case strings.HasPrefix(rest, "/"):
		path, _, _ := strings.Cut(rest, ":")
		return fmt.Sprintf("did you mean %s?", path)
	case strings.Contains(name, "://"):
		return "want auto, a serial device, udpin://, udpout://, tcp://, sim or sim:ardupilot"
	}
	if _, number, err := net.SplitHostPort(name); err == nil && number != "" {
		return fmt.Sprintf("this is an address; did you mean udpin://%[1]s, udpout://%[1]s or tcp://%[1]s?", name)
	}
	return fmt.Sprintf("no such device; did you mean /dev/%s, auto, sim or sim:ardupilot?", name)
}

// udpPort listens on an address and sends to the peer that the vehicle's last
// heartbeat came from, so a stray datagram can't steal the link.
type udpPort struct {
	*net.UDPConn
	from netip.AddrPort                 // sender of the last datagram; only the reader uses it
	peer atomic.Pointer[netip.AddrPort] // nil before the first heartbeat
}

func listenUDP(address string) (port, error) {
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	return &udpPort{UDPConn: c.(*net.UDPConn)}, nil
}

func (p *udpPort) Read(b []byte) (int, error) {
	n, from, err := p.ReadFromUDPAddrPort(b)
	if err == nil {
		p.from = from
	}
	return n, err
}

// errNoPeer is not a fault: the vehicle's first heartbeat brings the address to send to.
var errNoPeer = errors.New("no address to send to yet")

func (p *udpPort) Write(b []byte) (int, error) {
	to := p.peer.Load()
	if to == nil {
		return 0, errNoPeer
	}
	return p.WriteToUDPAddrPort(b, *to)
}

// heard makes the sender of the last datagram the peer: it brought the vehicle's
// heartbeat.
func (p *udpPort) heard() {
	from := p.from
	p.peer.Store(&from)
}

// serialDevice opens a serial port. go.bug.st/serial sets the line. The bytes go
// through a file of our own, which has deadlines: the library's Write can't be
// interrupted, and neither can its Read if another program takes the bytes first.
type serialDevice struct {
	path   string
	fixed  int  // baud rate; 0 to search for it
	verify bool // opening fails unless MAVLink comes, at a fixed rate too
	*lineState
}

type serialPort struct {
	*os.File
	line   serial.Port
	readAt time.Time // when the last Read ended; only the reader uses it
}

// Read lets bytes gather on a busy line: waking up for every few bytes costs more than
// decoding them (docs/performance.md).
func (p *serialPort) Read(b []byte) (int, error) {
	if time.Since(p.readAt) < 2*gatherFor {
		time.Sleep(gatherFor)
	}
	n, err := p.File.Read(b)
	p.readAt = time.Now()
	return n, err
}

// Close waits until what was written is out, for drainTimeout at most. Then it drops the
// rest; the kernel would wait half a minute.
func (p *serialPort) Close() error {
	drained := make(chan error, 1)
	go func() { drained <- p.line.Drain() }()
	select {
	case <-drained: // an error means that the line is gone
	case <-time.After(drainTimeout):
		p.line.ResetOutputBuffer() // ends Drain
		<-drained
	}
	return errors.Join(p.File.Close(), p.line.Close())
}

func (d *serialDevice) open(ctx context.Context) (port, error) {
	d.baud.CompareAndSwap(0, int64(d.fixed))
	p, err := d.openAt(cmp.Or(d.fixed, bauds[0]))
	if err != nil {
		return nil, err
	}
	err = p.flush(ctx)
	if err == nil && (d.fixed == 0 || d.verify) {
		err = d.search(ctx, p)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// flushAgain is the time in which the sender's buffer refills a flushed line
// (docs/autopilots.md, "PX4: link").
const flushAgain = 60 * time.Millisecond

// flush drops what waits in the line: heartbeats that are seconds old.
func (p *serialPort) flush(ctx context.Context) error {
	if err := p.line.ResetInputBuffer(); err != nil {
		return err
	}
	select {
	case <-time.After(flushAgain):
	case <-ctx.Done():
		return ctx.Err()
	}
	return p.line.ResetInputBuffer()
}

func (d *serialDevice) openAt(baud int) (*serialPort, error) {
	f, err := os.OpenFile(d.path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", d.path, err)
	}
	line, err := serial.Open(d.path, &serial.Mode{BaudRate: baud}) // 8N1
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", d.path, err)
	}
	return &serialPort{File: f, line: line}, nil
}

// lock keeps out other programs that lock the port too, also those of root, whom the
// library's exclusive mode does not stop.
func lock(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	err = c.Control(func(fd uintptr) { locked = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
	return cmp.Or(err, locked)
}

// search listens at each baud rate, the last good one first, until a frame with a good
// checksum arrives. After each rate it sends one heartbeat and nothing else: PX4 on USB
// is silent until it hears one.
func (d *serialDevice) search(ctx context.Context, p *serialPort) error {
	order := bauds
	if last := int(d.baud.Load()); d.fixed != 0 {
		order = []int{d.fixed}
	} else if last != 0 {
		order = append([]int{last}, bauds...)
	}
	probe := newSender(1, componentID)
	for _, baud := range order {
		if err := p.line.SetMode(&serial.Mode{BaudRate: baud}); err != nil {
			slog.Debug("baud rate not supported", "device", d.path, "baud", baud, "error", err)
			continue
		}
		if found, err := d.listen(ctx, p); err != nil {
			return err
		} else if found {
			d.baud.Store(int64(baud))
			return nil
		}
		if b, err := probe.encode(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)); err == nil {
			p.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := p.Write(b); err != nil {
				return err
			}
		}
	}
	return errors.New("no MAVLink at any baud rate that was tried")
}

// listen reports whether a frame with a good checksum comes within baudListen.
func (d *serialDevice) listen(ctx context.Context, p *serialPort) (bool, error) {
	var in deframer
	defer func() { d.noise.Add(in.errors) }()
	p.SetReadDeadline(time.Now().Add(baudListen))
	defer context.AfterFunc(ctx, func() { p.SetReadDeadline(time.Now()) })()
	for {
		err := in.read(p)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case err != nil:
			return false, err
		}
		for f, ok := in.next(); ok; f, ok = in.next() {
			if f.known != nil {
				return true, nil
			}
		}
	}
}

// autoDevice is -device auto: the first port that brings MAVLink. It tries the port that
// it found last first.
type autoDevice struct {
	fixed    int // baud rate; 0 to search for it
	line     *lineState
	ports    func() []string // names of ports to try, in order; they need not exist
	consoles string          // file with the kernel's list of its consoles
}

// headers are the serial ports on the header of a Raspberry Pi and of a Jetson.
var headers = []string{"/dev/serial0", "/dev/ttyAMA0", "/dev/ttyTHS1", "/dev/ttyTHS0"}

// boards are words in the USB names of autopilots, mostly the maker's. In its boot loader
// a board has another name, with "BL_".
var boards = []string{
	"PX4", "ArduPilot", "FMU", "Pixhawk", "CubePilot", "ProfiCNC", "Holybro", "CUAV", "mRo", "3DR",
	"usb-ARK_", "Matek", "MicoAir", "CORVON", "ThePeach", "ZeroOne", "X-MAV", "XC-FLY", "radiolink",
	"VOLOLAND", "Airvolute", "Horizon31", "Laser_Navigation", "Qiotek", "Swift-Flyer", "Aocoda", "Diatone",
}

// autoPorts returns the autopilots on USB, then the headers.
func autoPorts() []string {
	usb, _ := filepath.Glob("/dev/serial/by-id/*") // the only error is a bad pattern
	return append(slices.DeleteFunc(usb, func(name string) bool { return !isBoard(name) }), headers...)
}

func isBoard(name string) bool {
	return !strings.Contains(name, "BL_") &&
		slices.ContainsFunc(boards, func(word string) bool { return strings.Contains(name, word) })
}

func (a *autoDevice) open(ctx context.Context) (port, error) {
	names := a.ports()
	if last := a.line.found.Load(); last != nil {
		names = append([]string{*last}, names...)
	}
	var tried, paths []string
	for _, name := range names {
		path, err := filepath.EvalSymlinks(name)
		if err != nil || slices.Contains(paths, path) { // it does not exist, or is a port that was tried by another name
			continue
		}
		paths = append(paths, path)
		var p port
		if a.isConsole(path) {
			err = errors.New("a console uses it; turn the console off")
		} else {
			s := &serialDevice{path: name, fixed: a.fixed, verify: true, lineState: a.line}
			p, err = s.open(ctx)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			a.line.found.Store(&name)
			return p, nil
		}
		why := device{name: name}.explain(err).Error()
		tried = append(tried, fmt.Sprintf("%s (%s)", name, strings.TrimPrefix(why, "-device "+name+": ")))
	}
	if len(tried) == 0 {
		return nil, errors.New("no port to try: no autopilot in /dev/serial/by-id, and no " + strings.Join(headers, ", ") +
			"; check the wiring, enable the board's serial port, or name the port with -device")
	}
	return nil, errors.New("no autopilot found; tried " + strings.Join(tried, ", "))
}

// isConsole reports whether the kernel logs to a terminal, or a process has its session
// on it. The service manager may hide such processes; but a login also takes away the
// permission to open the terminal.
func (a *autoDevice) isConsole(path string) bool {
	active, _ := os.ReadFile(a.consoles) // without this file there is no console
	if slices.Contains(strings.Fields(string(active)), filepath.Base(path)) {
		return true
	}
	var terminal syscall.Stat_t
	if syscall.Stat(path, &terminal) != nil {
		return false
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(processes, func(file string) bool {
		stat, _ := os.ReadFile(file)                  // the process may have ended
		_, rest, _ := strings.Cut(string(stat), ") ") // the name before it may have spaces
		fields := strings.Fields(rest)
		return len(fields) > 4 && fields[4] == strconv.FormatUint(uint64(terminal.Rdev), 10)
	})
}

// explain adds to the error of a device that can't be opened what to do about it. mavrest
// keeps trying meanwhile.
func (d device) explain(err error) error {
	var pe *serial.PortError
	kind := serial.PortErrorCode(-1)
	if errors.As(err, &pe) {
		kind = pe.Code()
	}
	switch name, network := d.name, networkFault(err); {
	case network != "":
		return fmt.Errorf("-device %s: %s", name, network)
	case errors.Is(err, os.ErrNotExist) || kind == serial.PortNotFound:
		return fmt.Errorf("-device %s: there is no such device; check the wiring, and enable the board's serial port", name)
	case errors.Is(err, os.ErrPermission) || kind == serial.PermissionDenied:
		return fmt.Errorf("-device %s: no permission; add this user to the device's group: sudo usermod -aG dialout %s", name, cmp.Or(os.Getenv("USER"), strconv.Itoa(os.Getuid())))
	case errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EWOULDBLOCK) || kind == serial.PortBusy:
		return fmt.Errorf("-device %s: in use by another program; stop that program first (fuser %s shows which)", name, name)
	case kind == serial.InvalidSerialPort || errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("-device %s: this is not a serial port", name)
	case kind == serial.InvalidSpeed:
		return fmt.Errorf("-device %s: the port does not support this -baud", name)
	}
	return fmt.Errorf("-device %s: %w", d.name, err)
}

// networkFault says what to do about an error of UDP or TCP, "" about any other.
func networkFault(err error) string {
	var operation *net.OpError
	var lookup *net.DNSError
	switch {
	case !errors.As(err, &operation):
		return ""
	case errors.As(err, &lookup):
		return "no computer of that name was found; check the name, or give its address"
	case errors.Is(err, syscall.EADDRINUSE):
		return "the UDP port is in use by another program; stop that program, or use another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this board has no such address; udpin://0.0.0.0:port listens on all of its addresses"
	case operation.Op == "listen" && errors.Is(err, os.ErrPermission):
		return "a port below 1024 needs root or CAP_NET_BIND_SERVICE; use another port"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no program listens there; start the autopilot's side, or check the address and the port"
	case errors.Is(err, syscall.ECONNRESET):
		return "the other end has closed the connection; mavrest connects again"
	case operation.Op == "dial" && operation.Timeout(), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no answer from that address; check the network, the address and the port"
	}
	return ""
}
