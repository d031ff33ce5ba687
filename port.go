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
	dial := func(network string) func(context.Context) (port, error) {
		return func(ctx context.Context) (port, error) {
			d := net.Dialer{Timeout: writeHangs}
			return d.DialContext(ctx, network, address)
		}
	}
	switch scheme {
	case "udpin":
		listen := func(context.Context) (port, error) { return listenUDP(address) }
		return device{name: name, open: listen, baud: none}, nil
	case "udpout":
		return device{name: name, open: dial("udp"), baud: none}, nil
	case "tcp":
		return device{name: name, open: dial("tcp"), baud: none}, nil
	}
	return device{}, fmt.Errorf("-device %s: want a serial device, udpin://, udpout://, tcp://, sim, sim:ardupilot or sim:quadplane", name)
}

// udpPort listens on an address and answers the peer that the vehicle's
// heartbeats last came from, so that a stray datagram can't steal the link.
type udpPort struct {
	*net.UDPConn
	from net.Addr                 // of the last datagram; the reader's own
	peer atomic.Pointer[net.Addr] // nil before the first heartbeat
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
	return &udpPort{UDPConn: c}, nil
}

func (p *udpPort) Read(b []byte) (int, error) {
	n, from, err := p.ReadFrom(b)
	if err == nil {
		p.from = from
	}
	return n, err
}

func (p *udpPort) Write(b []byte) (int, error) {
	peer := p.peer.Load()
	if peer == nil {
		return len(b), nil
	}
	n, err := p.WriteTo(b, *peer)
	if errors.Is(err, syscall.ECONNREFUSED) { // an answer to an earlier datagram: the peer restarts
		return len(b), nil
	}
	return n, err
}

// heard says that the vehicle's heartbeat came with the last datagram.
func (p *udpPort) heard() {
	if peer := p.peer.Load(); peer == nil || (*peer).String() != p.from.String() {
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
	file   *os.File
	raw    syscall.RawConn // of file
	line   serial.Port
	closed *alarm
	until  time.Time // of a Read; the reader's own
	once   sync.Once
}

// alarm ends a wait for a descriptor: a pipe that can be read once it is rung.
type alarm struct {
	read, write *os.File
	raw         syscall.RawConn // of read
}

func newAlarm() (*alarm, error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	a := &alarm{read: os.NewFile(uintptr(fd[0]), "alarm"), write: os.NewFile(uintptr(fd[1]), "alarm")}
	var err error
	if a.raw, err = a.read.SyscallConn(); err != nil {
		return nil, errors.Join(err, a.ring())
	}
	return a, nil
}

// ring ends the wait, and every later one.
func (a *alarm) ring() error { return errors.Join(a.write.Close(), a.read.Close()) }

func (p *serialPort) Read(b []byte) (int, error) {
	for {
		within := time.Duration(-1)
		if !p.until.IsZero() {
			within = max(time.Until(p.until), 0)
		}
		n, err := p.read(b, within)
		if n > 0 || err != nil {
			return n, err
		}
		if within >= 0 && !time.Now().Before(p.until) {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// SetReadDeadline is for the reader, between two Reads.
func (p *serialPort) SetReadDeadline(t time.Time) error {
	p.until = t
	return nil
}

// read reads what comes within a time, which may be nothing; a negative one is
// for ever.
func (p *serialPort) read(b []byte, within time.Duration) (n int, err error) {
	// The descriptors stay ours while they are waited for, also if they are closed.
	cerr := p.raw.Read(func(fd uintptr) bool {
		aerr := p.closed.raw.Read(func(bell uintptr) bool {
			var ready bool
			if ready, err = readable(fd, bell, within); !ready {
				return true
			}
			n, err = syscall.Read(int(fd), b)
			if n == 0 && err == nil {
				err = io.EOF
			}
			return true
		})
		err = cmp.Or(aerr, err)
		return true
	})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = nil
	}
	return max(n, 0), cmp.Or(cerr, err)
}

// readable waits until a descriptor can be read; os.ErrClosed is that the bell
// rang.
func readable(fd, bell uintptr, within time.Duration) (bool, error) {
	var set syscall.FdSet
	const word = 8 * unsafe.Sizeof(set.Bits[0])
	if max(fd, bell) >= word*uintptr(len(set.Bits)) {
		return false, syscall.EMFILE // select(2) knows no more; we have a tenth of them
	}
	set.Bits[fd/word] |= 1 << (fd % word)
	set.Bits[bell/word] |= 1 << (bell % word)
	var limit *syscall.Timeval
	if within >= 0 {
		timeout := syscall.NsecToTimeval(int64(within))
		limit = &timeout
	}
	if n, err := syscall.Select(int(max(fd, bell))+1, &set, nil, nil, limit); n <= 0 || err != nil {
		return false, err
	}
	if set.Bits[bell/word]&(1<<(bell%word)) != 0 {
		return false, os.ErrClosed
	}
	return true, nil
}

func (p *serialPort) Write(b []byte) (n int, err error) {
	for {
		m, err := p.file.Write(b[n:])
		n += m
		if !errors.Is(err, syscall.EAGAIN) {
			return n, err
		}
		time.Sleep(writeAgain)
	}
}

// gathers says that its reader may let bytes gather.
func (p *serialPort) gathers() {}

// ResetInputBuffer drops what has come and was not read.
func (p *serialPort) ResetInputBuffer() error { return p.line.ResetInputBuffer() }

// Drain waits until everything written has left the board.
func (p *serialPort) Drain() error { return p.line.Drain() }

// Close drops what has not left the board: the kernel would wait half a minute
// for a line that stands still. It ends a Read under way.
func (p *serialPort) Close() (err error) {
	p.once.Do(func() {
		p.line.ResetOutputBuffer()
		err = errors.Join(p.closed.ring(), p.file.Close(), p.line.Close())
	})
	return err
}

func lineMode(baud int) *serial.Mode {
	return &serial.Mode{BaudRate: baud, DataBits: 8, Parity: serial.NoParity, StopBits: serial.OneStopBit}
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
	select {
	case <-time.After(flushAgain):
	case <-ctx.Done():
		return ctx.Err()
	}
	return p.line.ResetInputBuffer()
}

func (d *serialDevice) openAt(baud int) (*serialPort, error) {
	file, err := openUnpolled(d.path)
	if err != nil {
		return nil, err
	}
	// The library's exclusive mode does not bind root; this lock does.
	if err := lock(file); err != nil {
		file.Close()
		return nil, err
	}
	line, err := serial.Open(d.path, lineMode(baud))
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", d.path, err)
	}
	raw, err := file.SyscallConn()
	closed, aerr := newAlarm()
	if err = errors.Join(err, aerr); err != nil {
		return nil, errors.Join(err, file.Close(), line.Close())
	}
	return &serialPort{file: file, raw: raw, line: line, closed: closed}, nil
}

// openUnpolled opens a file that does not block: its Write returns EAGAIN
// instead. os.OpenFile would give it to the runtime's poller, and then every few
// bytes that come wake the program though nobody reads them there: half of what
// a full link costs.
func openUnpolled(path string) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	err = syscall.SetNonblock(fd, false) // os.NewFile polls what does not block
	f := os.NewFile(uintptr(fd), path)
	if err = errors.Join(err, syscall.SetNonblock(fd, true)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func lock(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := c.Control(func(fd uintptr) { err = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: syscall.EBUSY}
	}
	return errors.Join(cerr, err)
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
		if err := p.line.SetMode(lineMode(baud)); err != nil {
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
	for until := time.Now().Add(baudListen); time.Now().Before(until); {
		n, err := p.read(in.space(), readTurn)
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
		return fmt.Errorf("-device %s: no permission; add this user to the device's group: sudo usermod -aG dialout %s", name, userName())
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

func userName() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	return strconv.Itoa(os.Getuid())
}
