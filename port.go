package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.bug.st/serial"
)

// bauds are the rates that a search tries, in this order.
var bauds = []int{921600, 57600, 115200, 460800, 500000, 230400, 1500000}

// Times of a serial line.
const (
	// baudListen is how long a search listens at each rate.
	baudListen = 1500 * time.Millisecond

	// writeTimeout is how long a write may take. A longer one means a dead port.
	writeTimeout = 2 * time.Second

	// drainTimeout is how long the written bytes of a port that is closed have to go out.
	drainTimeout = time.Second

	// refillsIn is how soon a flushed line is filled again from the sender's buffer (docs/autopilots.md, "PX4:
	// link").
	refillsIn = 60 * time.Millisecond
)

// port carries bytes to and from the autopilot. Close ends a pending Read.
type port interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error

	// emptyAt is when a Read found last that all was read that had come; zero if none has yet. It may be called
	// beside a Read.
	emptyAt() time.Time
}

// hurrier is a port whose input may gather before it is read.
type hurrier interface {
	// hurry makes what answers the last write be read as soon as it comes.
	hurry()
}

// device is what -device names: how to open it, and what its ports are like.
type device struct {
	name string
	open func(ctx context.Context) (port, error)

	// searches: opening it looks for the port or for its rate, so a silent one is opened again. Nothing else is: what
	// is silent may only sleep
	searches bool

	// lossy: bytes may be lost, as on a serial line
	lossy bool

	// datagrams: a read brings a datagram: what one sender sends is a stream of its own
	datagrams bool

	// mute is why what is written reaches nobody; nil: it may reach the vehicle
	mute error

	// line: nil until the link makes one
	line *lineState
}

// port returns the name of the port that auto found last, else the device's name.
func (d device) port() string {
	if found := d.line.found.Load(); found != nil {
		return *found
	}
	return d.name
}

// lineState is what was found out when a device was opened and read.
type lineState struct {
	// baud: the fixed rate, else the one that worked last; 0 if none did
	baud atomic.Int64

	// noise: counts places where bytes were not a frame
	noise atomic.Uint64

	// found: the port that auto found last; nil if none
	found atomic.Pointer[string]
}

// rateInName is a serial device with a baud rate behind it, as other programs spell it: /dev/ttyACM0:57600,
// /dev/ttyACM0,57600, serial:///dev/ttyACM0:57600, serial:/dev/ttyACM0?baudrate=57600.
var rateInName = regexp.MustCompile(`^(?:(?:serial|file|uart):(?://)?)?(/[^?]*?)` +
	`[:,;@? ](?:baud(?:rate)?=)?(\d{3,7})(?:[:,]\w*)?$`)

// newDevice parses a -device other than the simulator. system is -system.
func newDevice(name string, baud int, system byte) (device, error) {
	if m := rateInName.FindStringSubmatch(name); m != nil {
		// No device has that name, so it may be one with a baud rate behind it.
		if _, err := os.Lstat(name); err != nil {
			return device{}, fmt.Errorf("-device %s: the baud rate goes into -baud: -device %s -baud %s",
				name, m[1], m[2])
		}
	}
	if name == "auto" {
		a := &autoDevice{fixed: baud, line: new(lineState), ports: autoPorts, consoles: "/sys/class/tty/console/active"}
		return device{name: name, open: a.open, searches: true, lossy: true, line: a.line}, nil
	}
	if strings.HasPrefix(name, "/") || (strings.Contains(name, "/") && !strings.Contains(name, ":")) {
		s := &serialDevice{path: name, fixed: baud, lineState: new(lineState)}
		return device{name: name, open: s.open, searches: baud == 0, lossy: true, line: s.lineState}, nil
	}
	scheme, address, _ := strings.Cut(name, "://")
	noHost := strings.HasPrefix(address, ":") && scheme != "udpin"
	if !isAddress(address) || noHost {
		scheme = ""
	}
	switch scheme {
	case "udpin":
		open := func(context.Context) (port, error) { return listenUDP(address) }
		return device{name: name, datagrams: true, open: open}, nil
	case "udpout":
		u := newUDPOut(address, system)
		return device{name: name, datagrams: true, open: u.open}, nil
	case "tcp":
		open := func(ctx context.Context) (port, error) { return dialTCP(ctx, address) }
		return device{name: name, open: open}, nil
	}
	if meant := meantDevice(name); meant != "" {
		return device{}, fmt.Errorf("-device %s: mavrest spells it -device %s", name, meant)
	}
	return device{}, fmt.Errorf("-device %s: want auto, a serial device (/dev/serial0; a baud rate goes into "+
		"-baud), udpin://0.0.0.0:14550, udpout://host:port, tcp://host:port, sim, sim:ardupilot or replay:FILE; a "+
		"port is a number from 1 to 65535", name)
}

// isAddress reports whether an address has a port that is a number, and not 0, which stands for any port.
func isAddress(address string) bool {
	_, number, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(number, 10, 16)
	return err == nil && bad == nil && n > 0
}

// foreignScheme is how other programs spell a link: udp:127.0.0.1:14550 (pymavlink, DroneKit), udp://:14540 (MAVSDK),
// udp://:14540@10.0.0.2:14557 (MAVROS). In all of them udp alone listens.
var foreignScheme = regexp.MustCompile(`(?i)^(udp|udpin|udpout|tcp|tcpout|serial):(?://)?([^@]+)(?:@.*)?$`)

// meantDevice returns mavrest's spelling of a device that is spelled as other programs spell it; "" if there is none.
func meantDevice(name string) string {
	m := foreignScheme.FindStringSubmatch(name)
	if m == nil {
		return ""
	}
	scheme, address := strings.ToLower(m[1]), m[2]
	listens := scheme == "udp" || scheme == "udpin"
	switch {
	case scheme == "serial" && strings.HasPrefix(address, "/"):
		return address
	case !isAddress(address):
		return ""
	case listens && strings.HasPrefix(address, ":"):
		return "udpin://0.0.0.0" + address
	case strings.HasPrefix(address, ":"):
		return ""
	case listens:
		return "udpin://" + address
	case scheme == "udpout":
		return "udpout://" + address
	}
	return "tcp://" + address
}

// acknowledgedIn is how long the other end of a TCP connection has to acknowledge what was sent: what acknowledges
// is there, though it may be silent.
const acknowledgedIn = 5 * time.Second

// userTimeout is TCP_USER_TIMEOUT in tcp(7), which package syscall lacks.
const userTimeout = 18

func dialTCP(ctx context.Context, address string) (port, error) {
	d := net.Dialer{Timeout: writeTimeout, Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, int(acknowledgedIn.Milliseconds()))
		})
		return err
	}}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newStreamPort(c.(*net.TCPConn)), nil
}

// addressedPort is a port at which many addresses are heard: each datagram has a sender, and what is written
// has a receiver.
type addressedPort interface {
	port

	// of the last datagram that was read; only the reader asks
	sender() netip.AddrPort

	writeTo(b []byte, to netip.AddrPort) (int, error)
}

// udpPort listens on an address. It has no peer of its own: the link says where each frame goes, so that no
// stray datagram can steal the link.
type udpPort struct {
	*quietPort

	// from: sender of the last datagram; only the reader uses it
	from sockaddr
}

func listenUDP(address string) (port, error) {
	// It was checked.
	host, _, _ := net.SplitHostPort(address)
	c, err := net.ListenPacket("udp"+ipVersion(host), address)
	if err != nil {
		return nil, err
	}
	return &udpPort{quietPort: newQuietPort(c.(*net.UDPConn))}, nil
}

func (p *udpPort) Read(b []byte) (int, error) {
	return p.calls.read(b, &p.from)
}

func (p *udpPort) sender() netip.AddrPort { return p.from.addrPort() }

// errNoPeer is not a fault: the vehicle's first heartbeat brings the address to send to.
var errNoPeer = errors.New("no address to send to yet")

// Write writes nothing: it has no receiver.
func (p *udpPort) Write([]byte) (int, error) { return 0, errNoPeer }

func (p *udpPort) writeTo(b []byte, to netip.AddrPort) (int, error) {
	if !to.IsValid() {
		return 0, errNoPeer
	}
	s := sockaddrOf(to)
	return p.calls.write(b, &s)
}

// ipVersion is 4 or 6 if host is an address: "udp4" and "tcp4" listen on 0.0.0.0 alone, "udp" on all of IPv6 too. It
// is "" for a name, and for no host.
func ipVersion(host string) string {
	a, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return ""
	case a.Is4():
		return "4"
	}
	return "6"
}

// udpOut is -device udpout://. An autopilot may answer only the first port that it heard (docs/autopilots.md, "PX4:
// link"), so ours is one as long as the program runs, and the same one when it has started again.
type udpOut struct {
	host, number string

	// local is our port, once it was free, else the first one to try.
	local uint16

	// ours: local was free, and is ours
	ours bool

	// lookup finds the addresses of a name.
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// lookupFor is how long the lookup of a name may take.
const lookupFor = 5 * time.Second

// localPorts is how many ports there are below those that the kernel gives to programs that ask for none.
const localPorts = 4096

// newUDPOut returns a device whose local port depends on where it sends to and on -system: two programs on one board
// as a rule have two.
func newUDPOut(address string, system byte) *udpOut {
	// It was checked.
	host, number, _ := net.SplitHostPort(address)
	sum := fnv.New32a()
	fmt.Fprintf(sum, "%s %d", address, system)
	return &udpOut{
		host: host, number: number, local: firstLocalPort() + uint16(sum.Sum32()%localPorts),
		lookup: net.DefaultResolver.LookupNetIP,
	}
}

// firstLocalPort is the first of localPorts below the kernel's range.
func firstLocalPort() uint16 {
	// Its default, which counts where it can't be read (under systemd), or where there is no room below it.
	kernels := 32768
	const reserved = 1024
	b, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if f := strings.Fields(string(b)); len(f) == 2 {
		if low, err := strconv.Atoi(f[0]); err == nil && low >= reserved+localPorts && low <= math.MaxUint16 {
			kernels = low
		}
	}
	return uint16(kernels - localPorts)
}

func (u *udpOut) open(ctx context.Context) (port, error) {
	list, err := u.resolve(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		var c net.Conn
		if c, err = u.dial(ctx, net.JoinHostPort(a.String(), u.number)); err == nil {
			return &udpOutPort{newQuietPort(c.(*net.UDPConn)), u, a}, nil
		}
	}
	return nil, err
}

// resolve returns the addresses of the other end, at least one.
func (u *udpOut) resolve(ctx context.Context) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(u.host); err == nil {
		return []netip.Addr{a}, nil
	}
	limited, cancel := context.WithTimeout(ctx, lookupFor)
	defer cancel()
	list, err := u.lookup(limited, "ip", u.host)
	for i := range list {
		list[i] = list[i].Unmap()
	}
	return list, err
}

// dial connects from the local port. Where another program has it the next one will do.
func (u *udpOut) dial(ctx context.Context, address string) (c net.Conn, err error) {
	first := firstLocalPort()
	for range localPorts {
		d := net.Dialer{Timeout: writeTimeout, LocalAddr: &net.UDPAddr{Port: int(u.local)}}
		if c, err = d.DialContext(ctx, "udp", address); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		u.ours = false
		u.local = first + (u.local-first+1)%localPorts
	}
	if err == nil && !u.ours {
		u.ours = true
		slog.Info("the local UDP port", "port", u.local, "to", address)
	}
	return c, err
}

// udpOutPort sends to one address, and hears nothing from any other.
type udpOutPort struct {
	*quietPort
	device *udpOut
	to     netip.Addr
}

func (p *udpOutPort) Read(b []byte) (int, error) { return p.calls.read(b, nil) }

func (p *udpOutPort) Write(b []byte) (int, error) { return p.calls.write(b, nil) }

// moved reports whether the other end's name stands for other addresses now.
func (p *udpOutPort) moved(ctx context.Context) bool {
	list, err := p.device.resolve(ctx)
	return err == nil && !slices.Contains(list, p.to)
}

// serialDevice opens a serial port. go.bug.st/serial sets its rate. The bytes go
// through a file of our own, which has deadlines: the library's Write can't be
// interrupted, nor its Read if another program takes the bytes first.
type serialDevice struct {
	path string

	// fixed: baud rate; 0 to search for it
	fixed int

	// verify: opening fails unless MAVLink comes, at a fixed rate too
	verify bool

	*lineState
}

type serialPort struct {
	*streamPort
	line serial.Port
	mode *serial.Mode
}

// Close waits up to drainTimeout until all written bytes are out, then drops the rest. The
// kernel would wait half a minute. A USB driver whose device hangs drops nothing: Close
// returns after another drainTimeout, and the line is closed when the device is unplugged.
// Until then opening it fails: it is in use.
func (p *serialPort) Close() error {
	closed := make(chan error, 1)

	// Owns the line from here on.
	go func() {
		// An error means that the line is gone.
		p.line.Drain()
		closed <- p.line.Close()
	}()
	for range 2 {
		select {
		case err := <-closed:
			return errors.Join(p.streamPort.Close(), err)
		case <-time.After(drainTimeout):
			// ends Drain
			p.line.ResetOutputBuffer()
		}
	}
	return p.streamPort.Close()
}

func (d *serialDevice) open(ctx context.Context) (port, error) {
	// The status shows a fixed rate at once; a found one stays.
	d.baud.CompareAndSwap(0, int64(d.fixed))
	p, err := d.openAt(cmp.Or(d.fixed, bauds[0]))
	if err != nil {
		return nil, err
	}
	err = p.flush()
	if err == nil && (d.fixed == 0 || d.verify) {
		err = d.search(ctx, p)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// flush drops the bytes that wait in the line, among them heartbeats that are seconds old.
func (p *serialPort) flush() error {
	if err := p.line.ResetInputBuffer(); err != nil {
		return err
	}
	time.Sleep(refillsIn)
	return p.line.ResetInputBuffer()
}

// wake sets a silent line's rate and its other settings anew: another program may have changed them.
func (p *serialPort) wake() error { return p.line.SetMode(p.mode) }

func (d *serialDevice) openAt(baud int) (*serialPort, error) {
	f, err := os.OpenFile(d.path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var line serial.Port

	// 8N1
	mode := &serial.Mode{BaudRate: baud}
	if err = lock(f); err == nil {
		line, err = serial.Open(d.path, mode)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", d.path, err)
	}
	return &serialPort{streamPort: newStreamPort(f), line: line, mode: mode}, nil
}

// lock keeps out other programs that lock the port too. The library's exclusive mode does
// not keep out root.
func lock(f *os.File) (err error) {
	// Neither this nor Control fails: the file is open.
	c, _ := f.SyscallConn()
	c.Control(func(fd uintptr) { err = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
	return err
}

// rates returns the baud rates to try: the fixed one, else all, the last good one first.
func (d *serialDevice) rates() []int {
	if d.fixed != 0 {
		return []int{d.fixed}
	}
	list := slices.Clone(bauds)
	if last := slices.Index(list, int(d.baud.Load())); last > 0 {
		list[0], list[last] = list[last], list[0]
	}
	return list
}

// search listens at each baud rate until a frame with a good checksum arrives. After each
// rate without one it sends a quiet heartbeat and nothing else: PX4 on USB is silent until it hears one.
func (d *serialDevice) search(ctx context.Context, p *serialPort) error {
	probe := newSender(quietSystem, componentID)
	var says error
	for _, baud := range d.rates() {
		if err := p.line.SetMode(&serial.Mode{BaudRate: baud}); err != nil {
			slog.Debug("baud rate not supported", "device", d.path, "baud", baud, "error", err)
			continue
		}
		spoken, err := d.listen(ctx, p)
		says = cmp.Or(says, spoken)
		if err == nil {
			d.baud.Store(int64(baud))
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		beat, _ := quietBeat(probe)
		p.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := p.Write(beat); err != nil {
			return err
		}
	}
	return cmp.Or(says, errNoMAVLink)
}

var errNoMAVLink = errors.New("no MAVLink at any baud rate that was tried")

// listen returns nil when a frame with a good checksum comes, os.ErrDeadlineExceeded if
// none comes within baudListen. says is what the port speaks instead.
func (d *serialDevice) listen(ctx context.Context, p *serialPort) (says, err error) {
	var in deframer
	defer func() { d.noise.Add(in.errors) }()
	p.SetReadDeadline(time.Now().Add(baudListen))

	// ends the read when ctx is done
	stop := context.AfterFunc(ctx, func() { p.SetReadDeadline(time.Now()) })
	defer stop()
	for {
		if err := in.read(p); err != nil {
			return in.babble.says(), cmp.Or(ctx.Err(), err)
		}
		for f, ok := in.next(); ok; f, ok = in.next() {
			if f.known != nil {
				return nil, nil
			}
		}
	}
}

// autoDevice is -device auto: the first port that brings MAVLink. The port that was found
// last is tried first.
type autoDevice struct {
	// fixed: baud rate; 0 to search for it
	fixed int

	line *lineState

	// ports: names of ports to try, in order; they need not exist
	ports func() []string

	// consoles: file with the kernel's list of its consoles
	consoles string
}

// headerPorts are the serial ports on the header of a Raspberry Pi and of a Jetson.
var headerPorts = []string{"/dev/serial0", "/dev/ttyAMA0", "/dev/ttyTHS1", "/dev/ttyTHS0"}

// boardWords are words in the USB names of autopilots, mostly the maker's name. In its
// boot loader a board has another name, with "BL_".
var boardWords = []string{
	"PX4", "ArduPilot", "FMU", "Pixhawk", "CubePilot", "ProfiCNC", "Holybro", "CUAV", "mRo", "3DR",
	"usb-ARK_", "Matek", "MicoAir", "CORVON", "ThePeach", "ZeroOne", "X-MAV", "XC-FLY", "radiolink",
	"VOLOLAND", "Airvolute", "Horizon31", "Laser_Navigation", "Qiotek", "Swift-Flyer", "Aocoda", "Diatone",
}

// otherWords are words in the USB names of boards whose firmware is never commanded, and restarts by what it takes for
// typed.
var otherWords = []string{"INAV", "Betaflight", "Cleanflight", "EmuFlight"}

// autoPorts returns the ports of the autopilots on USB, then headerPorts.
func autoPorts() []string {
	// The only error is a bad pattern.
	usb, _ := filepath.Glob("/dev/serial/by-id/*")
	return append(slices.DeleteFunc(usb, func(name string) bool { return !isBoard(name) }), headerPorts...)
}

func isBoard(name string) bool {
	other := slices.ContainsFunc(otherWords, func(word string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(word))
	})
	return !strings.Contains(name, "BL_") &&
		!other && slices.ContainsFunc(boardWords, func(word string) bool { return strings.Contains(name, word) })
}

func (a *autoDevice) open(ctx context.Context) (port, error) {
	names := a.ports()
	if last := a.line.found.Load(); last != nil {
		names = append([]string{*last}, names...)
	}
	var tried, paths []string
	for _, name := range names {
		path, err := filepath.EvalSymlinks(name)

		// No such port, or one that was tried by another name.
		if err != nil || slices.Contains(paths, path) {
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
		tried = append(tried, fmt.Sprintf("%s (%v)", name, openFault(name, err)))
	}
	if len(tried) == 0 {
		return nil, errors.New("no port to try: no autopilot in /dev/serial/by-id, and no " +
			strings.Join(headerPorts, ", ") +
			"; check the wiring, enable the board's serial port, or name the port with -device")
	}
	return nil, errors.New("no autopilot found; tried " + strings.Join(tried, ", "))
}

// isConsole reports whether the kernel logs to a port, or a process has it as its
// terminal. Under systemd the program sees no other process; but a login on the port also
// takes away the program's permission to open the port.
func (a *autoDevice) isConsole(path string) bool {
	// Without this file there is no console.
	active, _ := os.ReadFile(a.consoles)
	if slices.Contains(strings.Fields(string(active)), filepath.Base(path)) {
		return true
	}
	var terminal syscall.Stat_t
	if syscall.Stat(path, &terminal) != nil {
		return false
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(processes, func(file string) bool {
		// The process may have ended.
		stat, _ := os.ReadFile(file)

		// The name before it may have spaces.
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)

		// tty_nr in proc(5)
		return len(fields) > 4 && fields[4] == strconv.FormatUint(uint64(terminal.Rdev), 10)
	})
}

// openFault returns why the autopilot's port or the API's can't be opened, and what to do about it.
func openFault(name string, err error) error {
	// Stays empty if err has none.
	operation := new(net.OpError)
	errors.As(err, &operation)
	switch {
	case errors.As(err, new(*net.DNSError)):
		return errors.New("no computer of that name was found; check the name, or give its address")
	case errors.Is(err, syscall.EADDRINUSE):
		return errors.New("the port is in use by another program; stop that program, or use another port")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return errors.New("this board has no such address; 0.0.0.0 stands for all of its addresses")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("no program listens there; start the autopilot's side, or check the address and the port")
	case !strings.Contains(name, "://") && (errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO)):
		return errors.New("the device is gone: it was unplugged, or has started again; mavrest opens it again")
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return errors.New("the other end has closed the connection; mavrest connects again")
	case errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.ETIMEDOUT),
		errors.Is(err, syscall.ENETUNREACH),
		operation.Op == "dial" && operation.Timeout():
		return errors.New("no answer from that address; check the network, the address and the port")
	case operation.Op == "listen" && errors.Is(err, os.ErrPermission):
		return errors.New("a port below 1024 needs root or CAP_NET_BIND_SERVICE (sudo setcap " +
			"cap_net_bind_service=+ep mavrest); use another port")
	case errors.Is(err, os.ErrNotExist):
		return errors.New("there is no such device; check the wiring, and enable the board's serial port")
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("no permission; add this user to the device's group: sudo usermod -aG dialout %s",
			cmp.Or(os.Getenv("USER"), strconv.Itoa(os.Getuid())))
	case errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("in use by another program; stop that program first (fuser %s shows which)", name)
	case errors.As(err, new(*serial.PortError)) || errors.Is(err, syscall.EISDIR):
		return errors.New("this is not a serial port")
	}
	return err
}
