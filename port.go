package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"go.bug.st/serial"
)

// bauds are tried in turn when no baud rate is given.
var bauds = []int{921600, 57600, 115200, 460800, 500000, 230400, 1500000}

// Times of a serial line.
const (
	baudListen = 1500 * time.Millisecond // at each rate
	readTurn   = 100 * time.Millisecond  // of a search, which looks whether it is to end
	writeAgain = time.Millisecond        // to a line that took no more
	writeHangs = 2 * time.Second         // a dead port
)

// port carries bytes to and from the autopilot. Close ends a pending Read and
// Write.
type port interface{ io.ReadWriteCloser }

// gatherer is a port that lets bytes gather while awaited says that no answer is;
// hurry ends that.
type gatherer interface {
	gather(awaited func() bool)
	hurry()
}

// device is a -device: how to open it, and what its ports are called.
type device struct {
	name string
	open func(ctx context.Context) (port, error)
	baud func() int // of the port that is open; 0 where there is none

	// noise counts the errors of a search for the baud rate; nil: there is none.
	noise func() uint64
}

// newDevice reads a -device other than the simulator.
func newDevice(name string, baud int) (device, error) {
	none := func() int { return 0 }
	if strings.HasPrefix(name, "sim:") {
		return device{}, fmt.Errorf("-device %s: no such simulator; there are sim, sim:ardupilot and sim:quadplane", name)
	}
	scheme, address, ok := strings.Cut(name, "://")
	if _, number, err := net.SplitHostPort(name); !ok && err == nil && number != "" && !strings.Contains(name, "/") {
		return device{}, fmt.Errorf("-device %s: that is an address; did you mean udpin://%s, udpout://%s or tcp://%s?", name, name, name, name)
	}
	if !ok && !strings.Contains(name, "/") {
		return device{}, fmt.Errorf("-device %s: no such device; did you mean /dev/%s, sim, sim:ardupilot or sim:quadplane?", name, name)
	}
	if !ok {
		s := &serialDevice{path: name, fixed: baud}
		return device{name, s.open, func() int { return int(s.baud.Load()) }, s.noise.Load}, nil
	}
	_, number, err := net.SplitHostPort(address)
	if _, perr := strconv.ParseUint(number, 10, 16); err != nil || perr != nil {
		return device{}, fmt.Errorf("-device %s: want %s://host:port, with a port up to 65535", name, scheme)
	}
	dial := func(ctx context.Context, network string) (*descriptor, error) {
		d := net.Dialer{Timeout: writeHangs}
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return unpolled(c)
	}
	switch scheme {
	case "udpin":
		listen := func(context.Context) (port, error) { return listenUDP(address) }
		return device{name: name, open: listen, baud: none}, nil
	case "udpout":
		talk := func(ctx context.Context) (port, error) {
			w, err := dial(ctx, "udp")
			if err != nil {
				return nil, err
			}
			w.take = takeDatagram
			return datagrams{w}, nil
		}
		return device{name: name, open: talk, baud: none}, nil
	case "tcp":
		connect := func(ctx context.Context) (port, error) { return dial(ctx, "tcp") }
		return device{name: name, open: connect, baud: none}, nil
	}
	return device{}, fmt.Errorf("-device %s: want a serial device, udpin://, udpout://, tcp://, sim, sim:ardupilot or sim:quadplane", name)
}

// datagrams is a port whose reads bring a datagram each, which may be empty.
type datagrams struct{ *descriptor }

// whole says that no frame goes on in the next read.
func (datagrams) whole() {}

// udpPort listens on an address and answers the peer that the vehicle's
// heartbeats last came from, so that a stray datagram can't steal the link.
type udpPort struct {
	datagrams
	local net.Addr
	from  socketAddress                 // of the last datagram; the reader's own
	peer  atomic.Pointer[socketAddress] // nil before the first heartbeat
}

// socketAddress is an address as the kernel has it.
type socketAddress struct {
	raw  syscall.RawSockaddrAny
	size uint32
}

func listenUDP(address string) (port, error) {
	addr, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	c, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	w, err := unpolled(c)
	if err != nil {
		return nil, err
	}
	p := &udpPort{datagrams: datagrams{w}, local: c.LocalAddr()}
	w.take = p.receive
	return p, nil
}

func (p *udpPort) receive(fd uintptr, b []byte) (int, error) {
	from := socketAddress{size: syscall.SizeofSockaddrAny}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&from.raw)), uintptr(unsafe.Pointer(&from.size)))
	if errno != 0 {
		return 0, errno
	}
	p.from = from
	return int(n), nil
}

// errNobody is no fault: the vehicle's first heartbeat tells where to send to.
var errNobody = errors.New("nobody is there to send to")

func (p *udpPort) Write(b []byte) (int, error) {
	to := p.peer.Load()
	if to == nil {
		return 0, errNobody
	}
	var errno syscall.Errno
	err := p.raw.Control(func(fd uintptr) {
		_, _, errno = syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_NOSIGNAL,
			uintptr(unsafe.Pointer(&to.raw)), uintptr(to.size))
	})
	switch {
	case err != nil:
		return 0, err
	case errno == syscall.EAGAIN: // a datagram may be lost
	case errno == syscall.ECONNREFUSED: // an answer to an earlier datagram: the peer restarts
	case errno != 0:
		return 0, errno
	}
	return len(b), nil
}

// heard says that the vehicle's heartbeat came with the last datagram.
func (p *udpPort) heard() {
	if peer := p.peer.Load(); peer == nil || *peer != p.from {
		from := p.from
		p.peer.Store(&from)
	}
}

// serialDevice opens a serial port. go.bug.st/serial sets the line; the bytes
// go through a descriptor of our own that does not block: the library's Write
// can't be interrupted, nor can its Read when another program takes the bytes
// that it saw, and one that hangs would keep the port for ever.
type serialDevice struct {
	path  string
	fixed int          // baud rate; 0 searches
	baud  atomic.Int64 // the last that worked
	noise atomic.Uint64
}

type serialPort struct {
	*descriptor
	line serial.Port
	once sync.Once
}

// ResetInputBuffer drops what has come and was not read.
func (p *serialPort) ResetInputBuffer() error { return p.line.ResetInputBuffer() }

// Drain waits until everything written has left the board.
func (p *serialPort) Drain() error { return p.line.Drain() }

// Close drops what has not left the board: the kernel would wait half a minute
// for a line that stands still. It ends a Read under way.
func (p *serialPort) Close() (err error) {
	p.once.Do(func() {
		p.line.ResetOutputBuffer()
		err = errors.Join(p.descriptor.Close(), p.line.Close())
	})
	return err
}

func (d *serialDevice) open(ctx context.Context) (port, error) {
	baud := bauds[0]
	if d.fixed != 0 {
		baud = d.fixed
		d.baud.Store(int64(baud))
	}
	p, err := d.openAt(baud)
	if err != nil {
		return nil, err
	}
	err = p.flush(ctx)
	if err == nil && d.fixed == 0 {
		err = d.search(ctx, p)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// flushAgain is when the sender's buffer has refilled what a flush dropped
// (docs/autopilots.md, "PX4: link").
const flushAgain = 60 * time.Millisecond

// flush drops what waited in the line: heartbeats that are seconds old.
func (p *serialPort) flush(ctx context.Context) error {
	if err := p.line.ResetInputBuffer(); err != nil {
		return err
	}
	if err := sleepQuietly(ctx, flushAgain); err != nil {
		return err
	}
	return p.line.ResetInputBuffer()
}

func (d *serialDevice) openAt(baud int) (*serialPort, error) {
	fd, err := syscall.Open(d.path, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	// The library's exclusive mode does not bind root; this lock does.
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = syscall.EBUSY
		}
		return nil, errors.Join(&fs.PathError{Op: "open", Path: d.path, Err: err}, syscall.Close(fd))
	}
	line, err := serial.Open(d.path, &serial.Mode{BaudRate: baud}) // 8N1
	if err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("%s: %w", d.path, err)
	}
	w, err := newDescriptor(fd, d.path)
	if err != nil {
		return nil, errors.Join(err, line.Close())
	}
	return &serialPort{descriptor: w, line: line}, nil
}

// errNoBaud says that no rate brought a frame.
var errNoBaud = errors.New("nothing that reads as MAVLink at any baud rate")

// search listens at each baud rate until a checksummed frame arrives, the last
// good rate first. It sends nothing at a rate that is still a guess, but for
// one heartbeat at the end of each turn: PX4 on USB is silent until it hears one.
func (d *serialDevice) search(ctx context.Context, p *serialPort) error {
	order := bauds
	if last := int(d.baud.Load()); last != 0 {
		order = append([]int{last}, bauds...)
	}
	knock := newSender(1, componentID)
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
		if b, err := knock.encode(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)); err == nil {
			hung := time.AfterFunc(writeHangs, func() { p.Close() })
			_, err := p.Write(b)
			hung.Stop()
			if err != nil {
				return err
			}
		}
	}
	return errNoBaud
}

// listen reports whether a frame that checks comes within baudListen.
func (d *serialDevice) listen(ctx context.Context, p *serialPort) (bool, error) {
	var in deframer
	defer p.SetReadDeadline(time.Time{})
	for until := time.Now().Add(baudListen); time.Now().Before(until); {
		p.SetReadDeadline(time.Now().Add(readTurn))
		n, err := p.Read(in.space())
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return false, err
		}
		in.filled(n, time.Now())
		if f, ok := in.next(); ok && f.known != nil {
			return true, nil
		}
		d.noise.Add(in.errors)
		in.errors = 0
	}
	return false, nil
}

// explain says what to do about a device that can't be opened, where that is
// known: mavrest tries again all the while.
func (d device) explain(err error) error {
	var pe *serial.PortError
	kind := serial.PortErrorCode(-1)
	if errors.As(err, &pe) {
		kind = pe.Code()
	}
	switch name := d.name; {
	case errors.Is(err, os.ErrNotExist) || kind == serial.PortNotFound:
		return fmt.Errorf("-device %s: there is no such device; check the wiring, and that the board's serial port is enabled", name)
	case errors.Is(err, os.ErrPermission) || kind == serial.PermissionDenied:
		return fmt.Errorf("-device %s: no permission; add this user to the device's group: sudo usermod -aG dialout %s", name, cmp.Or(os.Getenv("USER"), strconv.Itoa(os.Getuid())))
	case errors.Is(err, syscall.EBUSY) || kind == serial.PortBusy:
		return fmt.Errorf("-device %s: in use by another program; stop it first (fuser %s shows which)", name, name)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("-device %s: the UDP port is in use by another program; stop it, or take another port", name)
	case kind == serial.InvalidSerialPort || errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("-device %s: this is not a serial port", name)
	case kind == serial.InvalidSpeed:
		return fmt.Errorf("-device %s: the port does not know that -baud", name)
	}
	return fmt.Errorf("-device %s: %w", d.name, err)
}
