package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/bluenviron/gomavlib/v3/pkg/dialect"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
	"github.com/bluenviron/gomavlib/v3/pkg/streamwriter"
	"github.com/bluenviron/gomavlib/v3/pkg/x25"
	"go.bug.st/serial"
)

// dialectRW holds only the messages that are used here: all of common costs
// half a megabyte more in the binary and 4 MB more in memory.
var dialectRW = newDialect(
	&minimal.MessageHeartbeat{},
	&common.MessageSysStatus{},
	&common.MessageParamRequestRead{},
	&common.MessageParamValue{},
	&common.MessageGpsRawInt{},
	&common.MessageAttitude{},
	&common.MessageGlobalPositionInt{},
	&common.MessageManualControl{},
	&common.MessageVfrHud{},
	&common.MessageCommandInt{},
	&common.MessageCommandLong{},
	&common.MessageCommandAck{},
	&common.MessageAutopilotVersion{},
	&common.MessageHomePosition{},
	&common.MessageExtendedSysState{},
	&common.MessageStatustext{},
)

func newDialect(messages ...message.Message) *dialect.ReadWriter {
	rw := &dialect.ReadWriter{Dialect: &dialect.Dialect{Version: 3, Messages: messages}}
	if err := rw.Initialize(); err != nil {
		panic(err) // the list above is wrong
	}
	return rw
}

// Times of the link, from DESIGN.md.
const (
	offlineAfter   = 3 * time.Second        // without a heartbeat
	silentAfter    = 5 * time.Second        // without a valid frame: reopen
	writeHangs     = 2 * time.Second        // a dead port
	backoffFirst   = 100 * time.Millisecond // before reopening, doubled each time
	backoffLast    = 2 * time.Second
	baudListen     = 1500 * time.Millisecond
	heartbeatEvery = time.Second
	frameGap       = 250 * time.Millisecond // a frame does not pause longer than this in its middle
	readEvery      = 20 * time.Millisecond  // a serial line on which much comes, if no ack is awaited
	readTurn       = 100 * time.Millisecond // after it the reader of a serial line sees that it is closed
	writeAgain     = time.Millisecond       // to a serial line that took no more

	secondAck     = 300 * time.Millisecond // PX4's second ack of DO_SET_MODE
	progressWait  = 10 * time.Second       // after IN_PROGRESS
	textsAfter    = 300 * time.Millisecond // STATUSTEXTs that still belong to a refusal
	chunkWait     = time.Second            // for the missing chunks of a STATUSTEXT
	landAgain     = time.Second            // between landings that nobody acknowledged
	freshPosition = 2 * time.Second        // a position that may start a landing

	stickEvery  = 40 * time.Millisecond  // 25 Hz
	stickLead   = 400 * time.Millisecond // of the stream, before a stick mode is asked for
	stickStill  = 2 * time.Second        // PX4 calls sticks moving for 1.6 s after they moved
	stickSilent = 5 * time.Second        // after the client's last command, in altitude and manual mode
	stickCentre = 500 * time.Millisecond // centred at least, before that silence
)

// ackWaits are the waits for an ack after each send of a command.
var ackWaits = [...]time.Duration{500 * time.Millisecond, 700 * time.Millisecond, 800 * time.Millisecond}

// bauds are tried in turn when no baud rate is given.
var bauds = []int{921600, 57600, 115200, 460800, 500000, 230400, 1500000}

// componentID is ours: MAV_COMP_ID_ONBOARD_COMPUTER. knockComponentID is the
// one that PX4 must hear a ground station from to send its texts.
const (
	componentID      = 191
	knockComponentID = 190
	autopilotID      = 1 // MAV_COMP_ID_AUTOPILOT1
)

// streams are the messages asked for by SET_MESSAGE_INTERVAL, in Hz. Together
// they take 1,300 bytes a second, a quarter of a link at 57600 baud.
var streams = []struct {
	id uint32
	hz float32
}{
	{33, 10},   // GLOBAL_POSITION_INT
	{30, 10},   // ATTITUDE
	{245, 4},   // EXTENDED_SYS_STATE
	{74, 4},    // VFR_HUD
	{24, 2},    // GPS_RAW_INT
	{1, 2},     // SYS_STATUS
	{242, 0.5}, // HOME_POSITION
}

// port carries bytes to and from the autopilot. Close ends a pending Read and
// Write.
type port interface{ io.ReadWriteCloser }

// device is a -device: how to open it, and what its ports are called.
type device struct {
	name string
	open func(ctx context.Context) (port, error)
	baud func() int // of the port that is open; 0 where there is none

	// check tells before the start what no waiting will mend.
	check func() error
	// noise counts the errors of a search for the baud rate; nil: there is none.
	noise func() uint64
}

// newDevice reads a -device other than the simulator.
func newDevice(name string, baud int) (device, error) {
	none := func() int { return 0 }
	fine := func() error { return nil }
	scheme, address, ok := strings.Cut(name, "://")
	if !ok {
		s := &serialDevice{path: name, fixed: baud}
		return device{name, s.open, func() int { return int(s.baud.Load()) }, s.check, s.noise.Load}, nil
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
		check := func() error {
			p, err := listenUDP(address)
			if err == nil {
				p.Close()
			}
			return err
		}
		return device{name: name, open: listen, baud: none, check: check}, nil
	case "udpout":
		return device{name: name, open: dial("udp"), baud: none, check: fine}, nil
	case "tcp":
		return device{name: name, open: dial("tcp"), baud: none, check: fine}, nil
	}
	return device{}, fmt.Errorf("-device %s: want a serial device, udpin://, udpout://, tcp://, sim or sim:ardupilot", name)
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
	file *os.File
	raw  syscall.RawConn // of file
	line serial.Port
	once sync.Once
}

func (p *serialPort) Read(b []byte) (int, error) {
	for {
		n, err := p.read(b)
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// read reads what comes within readTurn, which may be nothing.
func (p *serialPort) read(b []byte) (n int, err error) {
	// The descriptor stays ours while it is waited for, also if it is closed.
	cerr := p.raw.Read(func(fd uintptr) bool {
		var ready bool
		if ready, err = readable(fd, readTurn); !ready {
			return true
		}
		n, err = syscall.Read(int(fd), b)
		if n == 0 && err == nil {
			err = io.EOF
		}
		return true
	})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = nil
	}
	return max(n, 0), cmp.Or(cerr, err)
}

// readable waits until a descriptor can be read.
func readable(fd uintptr, within time.Duration) (bool, error) {
	var set syscall.FdSet
	const word = 8 * unsafe.Sizeof(set.Bits[0])
	if fd >= word*uintptr(len(set.Bits)) {
		return false, syscall.EMFILE // select(2) knows no more; we have a tenth of them
	}
	set.Bits[fd/word] |= 1 << (fd % word)
	timeout := syscall.NsecToTimeval(int64(within))
	n, err := syscall.Select(int(fd)+1, &set, nil, nil, &timeout)
	return n > 0, err
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

// Drain waits until everything written has left the board.
func (p *serialPort) Drain() error { return p.line.Drain() }

// Close drops what has not left the board: the kernel would wait half a minute
// for a line that stands still. A Read under way keeps the descriptor, and with
// it the lock, for up to readTurn.
func (p *serialPort) Close() (err error) {
	p.once.Do(func() {
		p.line.ResetOutputBuffer()
		err = errors.Join(p.file.Close(), p.line.Close())
	})
	return err
}

func lineMode(baud int) *serial.Mode {
	return &serial.Mode{BaudRate: baud, DataBits: 8, Parity: serial.NoParity, StopBits: serial.OneStopBit}
}

// check opens the port once.
func (d *serialDevice) check() error {
	p, err := d.openAt(bauds[0])
	if err == nil {
		p.Close()
	}
	return err
}

func (d *serialDevice) open(ctx context.Context) (port, error) {
	if d.fixed != 0 {
		d.baud.Store(int64(d.fixed))
		return d.openAt(d.fixed)
	}
	p, err := d.openAt(bauds[0])
	if err != nil {
		return nil, err
	}
	if err := d.search(ctx, p); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
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
	if err != nil {
		return nil, errors.Join(err, file.Close(), line.Close())
	}
	return &serialPort{file: file, raw: raw, line: line}, nil
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
		n, err := p.read(in.space())
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

// rawFrame is one frame from the line. Its payload is only good until the next
// read.
type rawFrame struct {
	system, component, seq byte
	id                     uint32
	v2                     bool
	known                  *message.ReadWriter // nil for a message that is not in the dialect
	payload                []byte
}

// deframer finds frames in a stream of bytes. gomavlib's own reader takes the
// length of a broken frame at its word and loses the good ones behind its
// start; this one goes on at the next byte, so that after any noise the next
// whole frame is read.
type deframer struct {
	buf        [2048]byte
	start, end int       // what is received and not yet understood
	at         time.Time // when the last bytes came
	paused     int       // the bytes before it came before a pause
	astray     bool      // start is not where a frame ended
	datagrams  bool      // frames end where what one read brought ends
	skipped    int       // bytes since then
	errors     uint64    // places where bytes were no frame; one for each 256 of pure noise
}

// space is where the next bytes go.
func (d *deframer) space() []byte {
	if d.datagrams {
		d.start = d.end // another sender's may be next
	}
	if d.start > 0 {
		d.end = copy(d.buf[:], d.buf[d.start:d.end])
		d.paused -= d.start
		d.start = 0
	}
	return d.buf[d.end:]
}

// filled says that n bytes came into the space.
func (d *deframer) filled(n int, now time.Time) {
	if now.Sub(d.at) > frameGap {
		d.paused = d.end
	}
	d.end += n
	d.at = now
}

// skip gives up the byte at start.
func (d *deframer) skip() {
	if d.skipped%256 == 0 {
		d.errors++
	}
	d.skipped++
	d.astray = true
	d.start++
}

// next returns the next frame that checks, or false when more bytes are needed.
func (d *deframer) next() (rawFrame, bool) {
	for d.start < d.end {
		f, size := d.candidate(d.buf[d.start:d.end])
		switch {
		case size < 0: // no frame starts here
			d.skip()
		case size == 0 && d.start >= d.paused: // it may, and is not all here
			return rawFrame{}, false
		case size == 0 || d.start < d.paused && d.start+size > d.paused: // it paused in its middle
			d.skip()
		default:
			d.start += size
			d.astray, d.skipped = false, 0
			return f, true
		}
	}
	return rawFrame{}, false
}

// candidate looks at b as a frame. The size is −1 when it is none, 0 when it is
// not complete. A message that is not in the dialect can't be checked: it is
// taken for a frame only between two others.
func (d *deframer) candidate(b []byte) (f rawFrame, size int) {
	var header, payload int
	switch b[0] {
	case frame.V1MagicByte:
		if len(b) < 6 {
			return f, 0
		}
		f = rawFrame{seq: b[2], system: b[3], component: b[4], id: uint32(b[5])}
		header, payload = 6, int(b[1])
		size = header + payload + 2
	case frame.V2MagicByte:
		if len(b) < 10 {
			return f, 0
		}
		if b[2]&^frame.V2FlagSigned != 0 { // unknown incompatibility flags: not to be read
			return f, -1
		}
		f = rawFrame{v2: true, seq: b[4], system: b[5], component: b[6],
			id: uint32(b[7]) | uint32(b[8])<<8 | uint32(b[9])<<16}
		header, payload = 10, int(b[1])
		size = header + payload + 2
		if b[2] != 0 {
			size += 13
		}
	default:
		return f, -1
	}
	f.known = dialectRW.GetMessage(f.id)
	if f.known == nil {
		switch {
		case d.astray:
			return f, -1
		case d.datagrams && len(b) == size:
			return f, size
		case len(b) <= size:
			return f, 0
		case b[size] != frame.V1MagicByte && b[size] != frame.V2MagicByte:
			return f, -1
		}
		return f, size
	}
	if len(b) < size {
		return f, 0
	}
	var sum x25.X25
	sum.Reset()
	sum.Write(b[1 : header+payload])
	sum.Write([]byte{f.known.CRCExtra()})
	if got := uint16(b[header+payload]) | uint16(b[header+payload+1])<<8; got != sum.Sum16() {
		return f, -1
	}
	f.payload = b[header : header+payload]
	return f, size
}

// decoder turns checked frames into messages. It pads a version 2 payload,
// whose trailing zeros are not sent, in a buffer of its own.
type decoder struct {
	raw    message.MessageRaw
	padded [255]byte
}

func (d *decoder) decode(f rawFrame) (message.Message, error) {
	n := copy(d.padded[:], f.payload)
	d.raw = message.MessageRaw{ID: f.id, Payload: d.padded[:n]}
	if f.v2 {
		clear(d.padded[n:])
		d.raw.Payload = d.padded[:]
	}
	return f.known.Read(&d.raw, f.v2)
}

// sender encodes messages as one system and component, with a sequence of its
// own. It is the writer goroutine's.
type sender struct {
	stream streamwriter.Writer
	out    encoded
}

// encoded is an io.Writer that keeps the last frame.
type encoded struct{ b []byte }

func (e *encoded) Write(b []byte) (int, error) {
	e.b = append(e.b[:0], b...)
	return len(b), nil
}

func newSender(system, component byte) *sender {
	s := &sender{}
	fw := &frame.Writer{ByteWriter: &s.out, DialectRW: dialectRW}
	s.stream = streamwriter.Writer{FrameWriter: fw, Version: streamwriter.V2, SystemID: system, ComponentID: component}
	if err := errors.Join(fw.Initialize(), s.stream.Initialize()); err != nil {
		panic(err) // only for a system id of 0
	}
	return s
}

// encode returns the frame of a message; it is good until the next one.
func (s *sender) encode(m message.Message) ([]byte, error) {
	if err := s.stream.Write(m); err != nil {
		return nil, err
	}
	return s.out.b, nil
}

func heartbeat(typ minimal.MAV_TYPE) *minimal.MessageHeartbeat {
	return &minimal.MessageHeartbeat{
		Type:           typ,
		Autopilot:      minimal.MAV_AUTOPILOT_INVALID,
		SystemStatus:   minimal.MAV_STATE_ACTIVE,
		MavlinkVersion: 3,
	}
}

// outgoing is a message and who says it: a system and component id.
type outgoing struct {
	system, component byte
	msg               message.Message
}

// connection is one open port with the goroutine that owns its writing.
type connection struct {
	port    port
	queue   chan outgoing
	sticks  chan struct{} // the newest sticks wait to be written
	opened  time.Time
	frameAt time.Time    // of the last valid frame
	writing atomic.Int64 // when the pending write began, in nanoseconds since opened; 0: none
	why     error        // the link's own reason to close the port
	close   func()       // ends the writer, which closes the port
}

// link is the connection to one vehicle: it keeps the port open, knows the
// telemetry, runs the mode machine and carries out plans.
type link struct {
	device device
	system byte // only this vehicle's; 0 takes the first
	gcs    bool // be its ground station

	sent     atomic.Uint64
	received atomic.Uint64
	errors   atomic.Uint64
	lost     atomic.Uint64
	version  atomic.Uint64 // rises with what a status must show at once: all but telemetry
	beat     atomic.Int64  // when the link's clock last ran, for the watchdog; Unix nanoseconds

	mu       sync.Mutex // guards all below
	conn     *connection
	tel      telemetry
	machine  machine
	stick    sticks
	op       *operation // carrying out a plan, or on the way to a landing
	target   *place
	waiters  map[uint16]*waiter
	owed     map[uint16]owedAcks
	gcsID    byte // the system that ArduPilot takes sticks from
	gcsKnown bool // it said so itself
	stopped  bool // the link is shutting down

	wg       sync.WaitGroup // goroutines of link.run
	wake     chan struct{}  // the clock has something to do now
	hurry    chan struct{}  // an ack is awaited from now on
	done     chan struct{}  // closed when the link shuts down
	greeting bool           // a greet goroutine runs
	greet    bool           // it should begin again
	metAt    time.Time      // when one began
	nextBeat time.Time
	nextLog  time.Time
	logged   uint64
}

func newLink(d device, system byte, gcs bool) *link {
	return &link{
		device: d, system: system, gcs: gcs,
		tel:     newTelemetry(),
		waiters: make(map[uint16]*waiter),
		owed:    make(map[uint16]owedAcks),
		gcsID:   255,
		wake:    make(chan struct{}, 1),
		hurry:   make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
}

// run keeps the link until ctx is done, then centres the sticks and closes the
// port. It returns when every goroutine of the link has ended.
func (l *link) run(ctx context.Context) {
	clockStop := make(chan struct{})
	var clock sync.WaitGroup
	clock.Go(func() { l.runClock(clockStop) })
	defer clock.Wait()
	defer close(clockStop)

	stop := context.AfterFunc(ctx, l.shutDown)
	defer stop()
	backoff := backoffFirst
	complained := ""
	for {
		p, err := l.device.open(ctx)
		if ctx.Err() != nil {
			if err == nil {
				p.Close()
			}
			break
		}
		if err == nil {
			slog.Info("port open", "device", l.device.name, "baud", l.device.baud())
			complained = ""
			var heard bool
			if heard, err = l.serve(ctx, p); heard {
				backoff = backoffFirst
			}
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil && err.Error() != complained {
			complained = err.Error()
			slog.Warn("port lost; trying again until it is back", "device", l.device.name, "error", err)
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		backoff = min(2*backoff, backoffLast)
	}
	l.shutDown()
	l.wg.Wait()
}

// shutDown ends everything that waits, and lets nothing new begin.
func (l *link) shutDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.stopped = true
		close(l.done)
	}
}

// serve reads a port until it fails or ctx is done, and closes it.
func (l *link) serve(ctx context.Context, p port) (heard bool, err error) {
	now := time.Now()
	c := &connection{
		port: p, queue: make(chan outgoing, 64), sticks: make(chan struct{}, 1),
		opened: now, frameAt: now,
	}
	broken, cancel := context.WithCancel(ctx)
	c.close = cancel
	var writer sync.WaitGroup
	writer.Go(func() { l.write(ctx, broken, c) })
	l.mu.Lock()
	l.conn = c
	l.tel.seqKnown = false
	l.mu.Unlock()
	l.pokeClock()

	var in deframer
	var dec decoder
	var n int
	var last time.Time
	_, in.datagrams = p.(interface {
		ReadFromUDP([]byte) (int, *net.UDPAddr, error)
	})
	_, line := p.(interface{ Drain() error })
	for err == nil {
		space := in.space()
		n, err = p.Read(space)
		now := time.Now()
		in.filled(n, now)
		for {
			f, ok := in.next()
			if !ok {
				break
			}
			heard = true
			l.received.Add(1)
			l.take(c, &dec, f, now)
		}
		if in.errors > 0 {
			l.errors.Add(in.errors)
			in.errors = 0
		}
		if n == 0 && err == nil && !in.datagrams {
			err = io.ErrUnexpectedEOF
		}
		if line && now.Sub(last) < 2*readEvery && n < len(space) {
			l.gather(broken)
		}
		last = now
	}
	l.mu.Lock()
	l.conn = nil
	if c.why != nil {
		err = c.why
	}
	l.mu.Unlock()
	cancel()
	// The clock no longer sees a write that hangs.
	hung := time.AfterFunc(writeHangs, func() { p.Close() })
	defer hung.Stop()
	writer.Wait()
	return heard, err
}

// gather lets bytes come for readEvery: to be woken for every few of them costs
// ten times what decoding them does. An ack is not kept waiting.
func (l *link) gather(broken context.Context) {
	l.mu.Lock()
	awaited := len(l.waiters) > 0
	l.mu.Unlock()
	if awaited {
		return
	}
	timer := time.NewTimer(readEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.hurry:
	case <-broken.Done():
	}
}

// write owns the writing of a port until it is broken. When the link shuts down
// it writes the last sticks. It closes the port.
func (l *link) write(ctx, broken context.Context, c *connection) {
	defer c.port.Close()
	senders := make(map[[2]byte]*sender)
	put := func(o outgoing) bool {
		who := [2]byte{o.system, o.component}
		s := senders[who]
		if s == nil {
			s = newSender(o.system, o.component)
			senders[who] = s
		}
		b, err := s.encode(o.msg)
		if err != nil {
			slog.Error("a message can't be encoded", "message", fmt.Sprintf("%T", o.msg), "error", err)
			return true
		}
		c.writing.Store(int64(max(time.Since(c.opened), 1)))
		_, err = c.port.Write(b)
		if err != nil {
			slog.Debug("write failed", "device", l.device.name, "error", err)
			c.close()
			return false
		}
		c.writing.Store(0)
		l.sent.Add(1)
		return true
	}
	var manual common.MessageManualControl
	for {
		select {
		case <-broken.Done():
			if ctx.Err() == nil {
				return
			}
			l.mu.Lock()
			o, ok := l.lastSticks(&manual)
			l.mu.Unlock()
			if ok && put(o) {
				if p, ok := c.port.(interface{ Drain() error }); ok {
					c.writing.Store(int64(time.Since(c.opened)))
					p.Drain()
				}
			}
			return
		case <-c.sticks:
			l.mu.Lock()
			o, ok := l.stickMessage(&manual)
			l.mu.Unlock()
			if ok && !put(o) {
				return
			}
		case o := <-c.queue:
			if !put(o) {
				return
			}
		}
	}
}

var (
	errNoPort    = errors.New("the port is not open")
	errQueueFull = errors.New("the port takes no more messages")
	errWriteHung = errors.New("a write hung for 2 s")
	errSilent    = errors.New("nothing that reads as MAVLink for 5 s")
)

// send queues a message from our own system; it never waits. l.mu is held.
func (l *link) send(component byte, m message.Message) error {
	if l.conn == nil {
		return errNoPort
	}
	select {
	case l.conn.queue <- outgoing{l.ourSystem(), component, m}:
		return nil
	default:
		return errQueueFull
	}
}

// ourSystem is the vehicle's system id: we are a part of it.
func (l *link) ourSystem() byte {
	switch {
	case l.tel.system != 0:
		return l.tel.system
	case l.system != 0:
		return l.system
	}
	return 1
}

// pokeClock makes the clock run now.
func (l *link) pokeClock() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// runClock is everything that happens by time: heartbeats, sticks, the rules
// of the machine that wait, and the end of ports that hang or are silent.
func (l *link) runClock(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		case <-l.wake:
		}
		now := time.Now()
		l.beat.Store(now.UnixNano())
		l.mu.Lock()
		next := l.tick(now)
		var dead port
		if l.conn != nil && l.conn.why != nil {
			dead = l.conn.port
		}
		l.mu.Unlock()
		if dead != nil {
			dead.Close() // ends the reader and a write that hangs
		}
		timer.Reset(next)
	}
}

// tick does what is due and tells how long to wait for the next. l.mu is held.
func (l *link) tick(now time.Time) time.Duration {
	next := 100 * time.Millisecond
	if c := l.conn; c != nil {
		if began := c.writing.Load(); began != 0 && now.Sub(c.opened)-time.Duration(began) > writeHangs {
			c.why = errWriteHung
		} else if now.Sub(c.frameAt) > silentAfter {
			c.why = errSilent
		}
		if !now.Before(l.nextBeat) {
			l.nextBeat = now.Add(heartbeatEvery)
			l.send(componentID, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
			if l.gcs {
				l.knock()
			}
		}
		next = min(next, max(l.nextBeat.Sub(now), time.Millisecond))
	}
	if l.tel.online && now.Sub(l.tel.heartbeatAt) >= offlineAfter {
		l.tel.online = false
		l.machine.lose()
		l.version.Add(1)
		slog.Warn("vehicle offline: no heartbeat for 3 s", "system", l.tel.system)
	}
	if l.machine.tick(now) {
		l.modeChanged("the autopilot acknowledged and did not follow")
	}
	// An autopilot that started again within 3 s has forgotten the streams.
	if at := l.tel.attitude.at; l.tel.online && !l.greeting && !at.IsZero() && now.Sub(at) > silentAfter && now.Sub(l.metAt) > 2*silentAfter {
		l.meet()
	}
	l.flushTexts(now, chunkWait)
	if n := l.badPlaces(); n != l.logged && !now.Before(l.nextLog) {
		slog.Warn("bytes that are no MAVLink", "device", l.device.name, "since_last", n-l.logged, "in_all", n)
		l.logged, l.nextLog = n, now.Add(5*time.Second)
	}
	if l.steer(now) {
		next = min(next, max(l.stick.next.Sub(now), time.Millisecond))
	}
	return next
}

// badPlaces counts the places on the line where bytes were no frame.
func (l *link) badPlaces() uint64 {
	n := l.errors.Load()
	if l.device.noise != nil {
		n += l.device.noise()
	}
	return n
}

// knock is one heartbeat as a ground station: PX4 sends its texts only to a
// link that it heard one on in the last 2.5 s. l.mu is held.
func (l *link) knock() {
	l.send(knockComponentID, heartbeat(minimal.MAV_TYPE_GCS))
}

// modeChanged logs a mode that nobody asked for here. l.mu is held.
func (l *link) modeChanged(why string) {
	l.version.Add(1)
	slog.Info("mode changed", "mode", l.machine.mode, "vehicle_mode", l.tel.modeName, "why", why)
	if m := l.machine.mode; m != ModeHold && m != ModeLand {
		l.target = nil
	}
}

// group is when a group of telemetry came; the zero time is never.
type group struct{ at time.Time }

// telemetry is the last of everything the vehicle said, in the units of the
// status object. A number that it never said, or said to be unknown, is NaN.
type telemetry struct {
	system   byte // latched; 0 before the first heartbeat
	firmware firmware
	seq      byte
	seqKnown bool

	online      bool
	heartbeatAt time.Time
	vehicleType string
	autopilot   string
	custom      uint32
	modeName    string
	armed       bool // the heartbeat's
	armedNow    bool // the heartbeat's, or a newer ack's
	state       string
	failsafe    bool
	landed      landedState
	version     string
	bootTime    uint32 // ms

	position struct {
		group
		lat, lon, relative, amsl, heading float64
	}
	velocity struct {
		group
		north, east, down, ground, air, climb float64
	}
	attitude struct {
		group
		roll, pitch, yaw float64
	}
	battery struct {
		group
		voltage, current, remaining float64
	}
	gps struct {
		group
		fix              string
		satellites, hdop float64
	}
	home struct {
		group
		lat, lon, amsl float64
	}

	hudAt        time.Time                        // of VFR_HUD, which tells the climb
	lastPosition *common.MessageGlobalPositionInt // that counted
	doubted      *common.MessageGlobalPositionInt // far from it, and not confirmed yet

	texts  [20]statusText // the newest at (count−1) modulo 20
	count  int
	chunks map[uint16]*chunkedText
}

// statusText is one STATUSTEXT; severity is MAV_SEVERITY, 0 emergency to 7 debug.
type statusText struct {
	severity uint8
	text     string
	at       time.Time
}

// chunkedText collects the chunks of a STATUSTEXT longer than 50 characters.
type chunkedText struct {
	severity uint8
	parts    map[uint8]string
	last     int // number of the chunk that ends it; −1 before it came
	began    time.Time
}

func newTelemetry() telemetry {
	t := telemetry{chunks: make(map[uint16]*chunkedText)}
	n := math.NaN()
	t.position.lat, t.position.lon, t.position.relative, t.position.amsl, t.position.heading = n, n, n, n, n
	t.velocity.air, t.velocity.climb, t.velocity.ground = n, n, n
	t.home.amsl = n
	return t
}

// vehicle is what the plans need of it. A position that is not fresh is none:
// a hold would fly back to it.
func (t *telemetry) vehicle(now time.Time) vehicle {
	v := vehicle{
		firmware: t.firmware, custom: t.custom, armed: t.armedNow, landed: t.landed, failsafe: t.failsafe,
		lat: t.position.lat, lon: t.position.lon,
		amsl: t.position.amsl, relative: t.position.relative, heading: t.position.heading,
		homeAMSL: t.home.amsl,
	}
	if now.Sub(t.position.at) > freshPosition {
		n := math.NaN()
		v.lat, v.lon, v.amsl, v.relative, v.heading = n, n, n, n, n
	}
	return v
}

// acknowledged takes what an accepted step says before a heartbeat does.
func (t *telemetry) acknowledged(s *step) {
	if s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM {
		t.armedNow = s.p[0] == 1
	}
}

// aloft reports whether sticks that nobody gave should hold the height.
func (t *telemetry) aloft() bool {
	return vehicle{armed: t.armedNow, landed: t.landed}.flying()
}

// take takes one checked frame.
func (l *link) take(c *connection, dec *decoder, f rawFrame, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.frameAt = now
	if f.component != autopilotID {
		return
	}
	if f.id == 0 {
		if f.known == nil || !l.latch(c, dec, f, now) {
			return
		}
	} else if f.system != l.tel.system {
		return
	}
	l.countLost(f.seq)
	if f.known == nil || f.id == 0 {
		return
	}
	m, err := dec.decode(f)
	if err != nil { // a version 1 frame of another length
		l.errors.Add(1)
		return
	}
	l.hear(m, now)
}

// countLost counts the gaps in the vehicle's sequence. A step back is a frame
// that UDP delivered late.
func (l *link) countLost(seq byte) {
	gap := seq - l.tel.seq - 1
	if l.tel.seqKnown && gap > 127 {
		return
	}
	if l.tel.seqKnown {
		l.lost.Add(uint64(gap))
	}
	l.tel.seq, l.tel.seqKnown = seq, true
}

// latch takes a heartbeat, and the vehicle it is of if there is none yet. It
// reports whether the frame is the vehicle's.
func (l *link) latch(c *connection, dec *decoder, f rawFrame, now time.Time) bool {
	m, err := dec.decode(f)
	if err != nil {
		l.errors.Add(1)
		return false
	}
	hb, ok := m.(*minimal.MessageHeartbeat)
	if !ok || hb.Autopilot == minimal.MAV_AUTOPILOT_INVALID || f.system == 0 {
		return false
	}
	switch {
	case l.tel.system != 0:
		if f.system != l.tel.system {
			return false
		}
	case l.system != 0 && f.system != l.system:
		return false
	default:
		l.tel.system = f.system
		slog.Info("vehicle found", "system", f.system, "autopilot", hb.Autopilot, "type", hb.Type)
	}
	if p, ok := c.port.(*udpPort); ok {
		p.heard()
	}
	l.hearHeartbeat(hb, now)
	return true
}

func (l *link) hearHeartbeat(hb *minimal.MessageHeartbeat, now time.Time) {
	t := &l.tel
	wasArmed := t.armed
	t.firmware = firmwareOf(hb.Autopilot, hb.Type)
	t.autopilot = lowerName(hb.Autopilot.String(), "MAV_AUTOPILOT_")
	if t.autopilot == "ardupilotmega" {
		t.autopilot = "ardupilot"
	}
	t.vehicleType = lowerName(hb.Type.String(), "MAV_TYPE_")
	t.state = lowerName(hb.SystemStatus.String(), "MAV_STATE_")
	switch hb.SystemStatus {
	case minimal.MAV_STATE_CRITICAL, minimal.MAV_STATE_EMERGENCY, minimal.MAV_STATE_FLIGHT_TERMINATION:
		t.failsafe = true
	default:
		t.failsafe = false
	}
	t.armed = hb.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0
	t.armedNow = t.armed
	t.custom = hb.CustomMode
	t.heartbeatAt = now
	var mode Mode
	mode, t.modeName = t.firmware.reported(t.custom)

	before := l.machine.mode
	l.machine.report(report{mode, t.armed})
	if l.machine.mode != before {
		l.modeChanged("the vehicle reports it")
	}
	if wasArmed && !t.armed {
		l.stick.landed()
		l.target = nil
	}
	if w := l.waiters[uint16(common.MAV_CMD_DO_SET_MODE)]; w != nil && w.custom == t.custom {
		w.show()
	}
	if !t.online {
		t.online = true
		l.meet()
	}
	l.version.Add(1)
}

// lowerName makes a MAVLink name a word of the status object.
func lowerName(s, prefix string) string { return strings.ToLower(strings.TrimPrefix(s, prefix)) }

// known is v, or NaN where the vehicle says unknown.
func known(v float64, unknown bool) float64 {
	if unknown {
		return math.NaN()
	}
	return v
}

// degrees is an angle in radians as 0 to 360 degrees.
func degrees(rad float32) float64 {
	d := math.Mod(float64(rad)*180/math.Pi, 360)
	if d < 0 {
		d += 360
	}
	return d
}

// hear takes a message of the vehicle. What is unknown in it is told by the
// values of AUTOPILOTS.md, "Both".
func (l *link) hear(m message.Message, now time.Time) {
	t := &l.tel
	switch m := m.(type) {
	case *common.MessageGlobalPositionInt:
		if !t.plausible(m, now) {
			return
		}
		l.bootTime(m.TimeBootMs)
		p, v := &t.position, &t.velocity
		p.at, v.at = now, now
		nowhere := m.Lat == 0 && m.Lon == 0 // ArduPilot without a position
		p.lat, p.lon = known(float64(m.Lat)/1e7, nowhere), known(float64(m.Lon)/1e7, nowhere)
		p.amsl, p.relative = float64(m.Alt)/1000, float64(m.RelativeAlt)/1000
		p.heading = known(float64(m.Hdg)/100, m.Hdg == math.MaxUint16)
		v.north, v.east, v.down = float64(m.Vx)/100, float64(m.Vy)/100, float64(m.Vz)/100
		v.ground = math.Hypot(v.north, v.east)
		if now.Sub(t.hudAt) > freshPosition {
			v.climb, v.air = -v.down, math.NaN()
		}
	case *common.MessageVfrHud:
		t.hudAt = now
		t.velocity.air = float64(m.Airspeed)
		t.velocity.climb = float64(m.Climb)
	case *common.MessageAttitude:
		l.bootTime(m.TimeBootMs)
		a := &t.attitude
		a.at = now
		a.roll, a.pitch = float64(m.Roll)*180/math.Pi, float64(m.Pitch)*180/math.Pi
		a.yaw = degrees(m.Yaw)
	case *common.MessageSysStatus:
		b := &t.battery
		b.at = now
		b.voltage = known(float64(m.VoltageBattery)/1000, m.VoltageBattery == math.MaxUint16)
		b.current = known(float64(m.CurrentBattery)/100, m.CurrentBattery < 0)
		b.remaining = known(float64(m.BatteryRemaining), m.BatteryRemaining < 0)
	case *common.MessageGpsRawInt:
		g := &t.gps
		g.at = now
		g.fix = fixName(uint64(m.FixType))
		g.satellites = known(float64(m.SatellitesVisible), m.SatellitesVisible == math.MaxUint8)
		g.hdop = known(float64(m.Eph)/100, m.Eph == math.MaxUint16)
	case *common.MessageHomePosition:
		h := &t.home
		h.at = now
		h.lat, h.lon, h.amsl = float64(m.Latitude)/1e7, float64(m.Longitude)/1e7, float64(m.Altitude)/1000
	case *common.MessageExtendedSysState:
		t.landed = landedState(m.LandedState)
	case *common.MessageAutopilotVersion:
		v := m.FlightSwVersion
		t.version = fmt.Sprintf("%d.%d.%d", v>>24, v>>16&0xff, v>>8&0xff)
	case *common.MessageStatustext:
		l.hearText(m, now)
	case *common.MessageCommandAck:
		l.hearAck(m)
	case *common.MessageParamValue:
		if slices.Contains(gcsParams, m.ParamId) && m.ParamValue >= 1 && m.ParamValue <= 255 {
			l.gcsID, l.gcsKnown = byte(m.ParamValue), true
		}
	}
}

// plausible reports whether a position may follow the last one. A frame whose
// damage its 16 bit checksum did not see (1 in 65,536) would send a hold or a
// landing to another continent; a real jump is confirmed by the next frame.
func (t *telemetry) plausible(m *common.MessageGlobalPositionInt, now time.Time) bool {
	fresh := t.lastPosition != nil && now.Sub(t.position.at) < freshPosition
	if fresh && farApart(t.lastPosition, m) && (t.doubted == nil || farApart(t.doubted, m)) {
		t.doubted = m
		return false
	}
	t.lastPosition, t.doubted = m, nil
	return true
}

// farApart reports whether no vehicle gets from a to b in 2 s: 200 m.
func farApart(a, b *common.MessageGlobalPositionInt) bool {
	return math.Abs(float64(a.Alt)-float64(b.Alt)) > 200e3 ||
		math.Abs(float64(a.RelativeAlt)-float64(b.RelativeAlt)) > 200e3 ||
		distance(float64(a.Lat)/1e7, float64(a.Lon)/1e7, float64(b.Lat)/1e7, float64(b.Lon)/1e7) > 200
}

// fixNames are the names of GPS_FIX_TYPE on the wire.
var fixNames = [...]string{"no_gps", "no_fix", "2d", "3d", "dgps", "rtk_float", "rtk_fixed", "static", "ppp"}

func fixName(fix uint64) string {
	if fix < uint64(len(fixNames)) {
		return fixNames[fix]
	}
	return ""
}

// bootTime notices that the autopilot started again: its clock runs backwards.
// A second of it is left for frames that UDP delivered late.
func (l *link) bootTime(ms uint32) {
	if uint64(ms)+1000 < uint64(l.tel.bootTime) {
		slog.Warn("the autopilot has started again")
		l.machine.lose()
		l.tel.seqKnown = false
		l.meet()
	}
	l.tel.bootTime = ms
}

// hearText takes a STATUSTEXT, or one chunk of it. PX4 numbers its first long
// text after a boot 0, which should mean that there is one chunk only; so a full
// one waits for a second.
func (l *link) hearText(m *common.MessageStatustext, now time.Time) {
	c := l.tel.chunks[m.Id]
	if m.Id == 0 && m.ChunkSeq == 0 {
		if c != nil {
			l.endText(0, now)
		}
		if len(m.Text) < fullChunk {
			l.addText(statusText{uint8(m.Severity), m.Text, now})
			return
		}
		c = nil
	}
	if c == nil {
		if len(l.tel.chunks) >= 8 { // nobody sends so many at once: noise or a flood
			clear(l.tel.chunks)
		}
		c = &chunkedText{severity: uint8(m.Severity), parts: make(map[uint8]string), last: -1, began: now}
		l.tel.chunks[m.Id] = c
	}
	c.parts[m.ChunkSeq] = m.Text
	if len(m.Text) < fullChunk {
		c.last = int(m.ChunkSeq)
	}
	if c.last >= 0 && len(c.parts) > c.last {
		l.endText(m.Id, now)
	}
}

// fullChunk is the length of a STATUSTEXT's text; a shorter one is the last.
const fullChunk = 50

// endText takes a text as far as its chunks came.
func (l *link) endText(id uint16, now time.Time) {
	c := l.tel.chunks[id]
	delete(l.tel.chunks, id)
	l.addText(statusText{c.severity, c.join(), now})
}

// join puts the chunks together; a missing one shows as an ellipsis.
func (c *chunkedText) join() string {
	end := c.last
	for seq := range c.parts {
		end = max(end, int(seq))
	}
	var b strings.Builder
	for i := range end + 1 {
		if part, ok := c.parts[uint8(i)]; ok {
			b.WriteString(part)
		} else {
			b.WriteString("…")
		}
	}
	return b.String()
}

// flushTexts gives up waiting for chunks that were lost, and takes a text that
// ends with a full chunk.
func (l *link) flushTexts(now time.Time, wait time.Duration) {
	for id, c := range l.tel.chunks {
		if now.Sub(c.began) >= wait {
			l.endText(id, now)
		}
	}
}

func (l *link) addText(s statusText) {
	s.text = strings.ToValidUTF8(strings.TrimRight(s.text, "\t \r\n"), "�")
	// ArduPilot's answer to our own questions, not for the user's eyes.
	if strings.HasPrefix(s.text, "No ap_message") {
		return
	}
	l.tel.texts[l.tel.count%len(l.tel.texts)] = s
	l.tel.count++
	l.version.Add(1)
	slog.Debug("statustext", "severity", s.severity, "text", s.text)
}

// recent returns the texts since a time, oldest first.
func (t *telemetry) recent(since time.Time) []statusText {
	var list []statusText
	for i := max(0, t.count-len(t.texts)); i < t.count; i++ {
		if s := t.texts[i%len(t.texts)]; !s.at.Before(since) {
			list = append(list, s)
		}
	}
	return list
}

// gcsParams is the parameter that names the system ArduPilot takes sticks from,
// by its present and its newer name.
var gcsParams = []string{"SYSID_MYGCS", "MAV_GCS_SYSID"}

// meet asks a vehicle that came online or started again for what it does not
// send by itself. l.mu is held.
func (l *link) meet() {
	l.greet = true
	if l.greeting || l.stopped {
		return
	}
	l.greeting, l.metAt = true, time.Now()
	l.wg.Go(l.greetVehicle)
}

// greetVehicle asks until everything is acknowledged, as long as the vehicle is
// online.
func (l *link) greetVehicle() {
	for {
		l.mu.Lock()
		if !l.greet || !l.tel.online || l.stopped {
			l.greeting = false
			l.mu.Unlock()
			return
		}
		l.greet, l.gcsKnown = false, false
		f := l.tel.firmware
		l.mu.Unlock()

		complete := true
		for _, s := range f.questions() {
			if _, err := l.transact(nil, &s); err != nil {
				complete = false
			}
		}
		if f.ardupilot() {
			l.askGCS()
		}
		if !complete {
			if l.pause(nil, silentAfter) != nil {
				complete = true // shutting down
			}
			l.mu.Lock()
			l.greet = l.greet || !complete
			l.mu.Unlock()
		}
	}
}

// questions are the message intervals and the messages that come only when
// asked for.
func (f firmware) questions() []step {
	var list []step
	for _, s := range streams {
		list = append(list, f.command(common.MAV_CMD_SET_MESSAGE_INTERVAL, float32(s.id), 1e6/s.hz))
	}
	for _, id := range []float32{242, 148} { // HOME_POSITION, AUTOPILOT_VERSION
		list = append(list, f.command(common.MAV_CMD_REQUEST_MESSAGE, id))
	}
	return list
}

// askGCS asks ArduPilot which system may move its sticks; 255 if it does not say.
func (l *link) askGCS() {
	for _, wait := range ackWaits {
		l.mu.Lock()
		if l.gcsKnown {
			l.mu.Unlock()
			return
		}
		for _, name := range gcsParams {
			l.send(componentID, &common.MessageParamRequestRead{
				TargetSystem: l.tel.system, TargetComponent: autopilotID, ParamId: name, ParamIndex: -1,
			})
		}
		l.mu.Unlock()
		if l.pause(nil, wait) != nil {
			return
		}
	}
}

// operation is a plan that is being carried out.
type operation struct {
	plan      plan
	began     time.Time
	busy      bool          // waits for acks; false on the way to a landing
	cancelled chan struct{} // closed when a newer command takes its place

	// A refused command must not end the landing that it interrupted, unless it
	// has moved the vehicle.
	landing *operation
	moved   bool // a step was accepted
	asked   bool // one was sent and is not answered: it may have been carried out

	accepted   uint16 // the command of the last accepted step
	unanswered bool   // a step was never acknowledged
}

// over is the channel that ends o; nil never ends.
func (o *operation) over() <-chan struct{} {
	if o == nil {
		return nil
	}
	return o.cancelled
}

var errStopping = &commandError{code: codeOffline, text: "mavrest is shutting down"}

// superseded is what the loser of two commands is told.
func superseded() error {
	return refuse(codeSuperseded, "a newer command took this one's place")
}

// pause waits, unless the operation is superseded or the link shuts down.
func (l *link) pause(op *operation, d time.Duration) error {
	if d <= 0 {
		d = 0
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-op.over():
		return superseded()
	case <-l.done:
		return errStopping
	}
}

// waiter waits for the acks of one command.
type waiter struct {
	acks   chan uint8    // MAV_RESULTs
	shown  chan struct{} // a heartbeat shows the custom mode
	custom uint32        // of a DO_SET_MODE
	skip   int           // acks that still belong to earlier sends of this command
}

func (w *waiter) show() {
	select {
	case w.shown <- struct{}{}:
	default:
	}
}

// owedAcks counts the acks of a command id that are still on their way: one
// that comes late must not answer the next command of that id.
type owedAcks struct {
	n     int
	until time.Time // by then they are lost
}

const owedFor = 3 * time.Second

// hearAck gives an ack to the one who waits for it. The target is the asker,
// or 0 from an autopilot that does not fill it in. l.mu is held.
func (l *link) hearAck(m *common.MessageCommandAck) {
	if m.TargetSystem != 0 && m.TargetSystem != l.ourSystem() ||
		m.TargetComponent != 0 && m.TargetComponent != componentID {
		return
	}
	id := uint16(m.Command)
	final := m.Result != common.MAV_RESULT_IN_PROGRESS
	if o := l.owed[id]; final && o.n > 0 {
		o.n--
		l.owed[id] = o
	}
	w := l.waiters[id]
	if w == nil {
		return
	}
	if w.skip > 0 {
		if final {
			w.skip--
		}
		return
	}
	select {
	case w.acks <- uint8(m.Result):
	default: // doubled over and over; the first ones tell
	}
}

// transact sends one command, repeats it until it is acknowledged, and returns
// the autopilot's MAV_RESULT.
func (l *link) transact(op *operation, s *step) (uint8, error) {
	id := uint16(s.cmd)
	l.mu.Lock()
	if op != nil && l.op != op { // the newer one's acks are not for us
		l.mu.Unlock()
		return 0, superseded()
	}
	px4SetMode := l.tel.firmware == px4 && s.cmd == common.MAV_CMD_DO_SET_MODE
	w := &waiter{acks: make(chan uint8, 8), shown: make(chan struct{}, 1)}
	if s.cmd == common.MAV_CMD_DO_SET_MODE {
		w.custom = s.custom(l.tel.firmware)
	}
	if o := l.owed[id]; time.Now().Before(o.until) {
		w.skip = o.n
	} else {
		delete(l.owed, id)
	}
	l.waiters[id] = w
	select {
	case l.hurry <- struct{}{}:
	default:
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		if l.waiters[id] == w {
			delete(l.waiters, id)
		}
		l.mu.Unlock()
	}()

	sent := false
	for try, wait := range ackWaits {
		if try == 1 { // what was late has come by now, or is lost
			l.mu.Lock()
			w.skip = 0
			l.mu.Unlock()
		}
		switch err := l.sendStep(op, s, uint8(try), px4SetMode); {
		case err == nil:
			sent = true
		case errors.As(err, new(*commandError)):
			return 0, err
		}
		result, err := l.await(op, w, wait)
		if errors.Is(err, errNoAnswer) {
			continue
		}
		if err == nil && result == uint8(common.MAV_RESULT_ACCEPTED) && px4SetMode {
			return l.awaitSecond(op, w, id)
		}
		if errors.Is(err, errInProgress) {
			break
		}
		return result, err
	}
	if !sent {
		return 0, refuse(codeOffline, "the port to the autopilot is down: %s was not sent", commandName(s))
	}
	return 0, &commandError{code: codeNoAck, command: id,
		text: fmt.Sprintf("%s was sent and never acknowledged; read the status to see whether it happened", commandName(s))}
}

// sendStep sends a step once, unless its operation was superseded: nothing of
// an older command may go out behind a newer one.
func (l *link) sendStep(op *operation, s *step, confirmation uint8, twoAcks bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op != nil && l.op != op {
		return superseded()
	}
	if err := l.send(componentID, s.message(l.tel.system, confirmation)); err != nil {
		return err
	}
	if op != nil && s.moves() {
		op.asked = true
	}
	o := l.owed[uint16(s.cmd)]
	o.n++
	if twoAcks {
		o.n++
	}
	o.until = time.Now().Add(owedFor)
	l.owed[uint16(s.cmd)] = o
	return nil
}

// message is the step as it goes on the wire.
func (s *step) message(system byte, confirmation uint8) message.Message {
	if s.asInt {
		return &common.MessageCommandInt{
			TargetSystem: system, TargetComponent: autopilotID,
			Frame: s.frame, Command: s.cmd,
			Param1: s.p[0], Param2: s.p[1], Param3: s.p[2], Param4: s.p[3],
			X: s.x, Y: s.y, Z: s.p[6],
		}
	}
	return &common.MessageCommandLong{
		TargetSystem: system, TargetComponent: autopilotID,
		Command: s.cmd, Confirmation: confirmation,
		Param1: s.p[0], Param2: s.p[1], Param3: s.p[2], Param4: s.p[3],
		Param5: s.p[4], Param6: s.p[5], Param7: s.p[6],
	}
}

var (
	errNoAnswer   = errors.New("no ack")
	errInProgress = errors.New("in progress for ever")
)

// await waits for a final ack. After IN_PROGRESS it waits longer, and the
// command is not to be repeated.
func (l *link) await(op *operation, w *waiter, wait time.Duration) (uint8, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	missing := errNoAnswer
	for {
		select {
		case r := <-w.acks:
			if r != uint8(common.MAV_RESULT_IN_PROGRESS) {
				return r, nil
			}
			if missing != errInProgress {
				missing = errInProgress
				timer.Reset(progressWait)
			}
		case <-timer.C:
			return 0, missing
		case <-op.over():
			return 0, superseded()
		case <-l.done:
			return 0, errStopping
		}
	}
}

// awaitSecond waits for the second ack of PX4's DO_SET_MODE, the true one: the
// first is ACCEPTED whatever happens. A heartbeat in the mode is as good.
func (l *link) awaitSecond(op *operation, w *waiter, id uint16) (uint8, error) {
	timer := time.NewTimer(secondAck)
	defer timer.Stop()
	for {
		select {
		case r := <-w.acks:
			if r != uint8(common.MAV_RESULT_IN_PROGRESS) {
				return r, nil
			}
			continue
		case <-w.shown:
		case <-timer.C:
			l.mu.Lock()
			delete(l.owed, id) // a firmware that acknowledges once
			l.mu.Unlock()
		case <-op.over():
			return 0, superseded()
		case <-l.done:
			return 0, errStopping
		}
		return uint8(common.MAV_RESULT_ACCEPTED), nil
	}
}

// answer is what an accepted command is told: the number of the last command
// acknowledged, and the mode it led to.
type answer struct {
	command uint16
	mode    Mode
}

// do carries a request out and returns when the autopilot has acknowledged
// every step of it, or refused one: then the error is a *commandError.
func (l *link) do(r request) (answer, error) {
	op, err := l.begin(r)
	if err != nil {
		return answer{}, err
	}
	defer l.end(op)
	if err := l.awaitSticks(op); err != nil {
		return answer{}, err
	}
	for i := range op.plan.steps {
		s := &op.plan.steps[i]
		result, err := l.transact(op, s)
		if err == nil {
			l.mu.Lock()
			op.asked = false
			l.mu.Unlock()
		}
		refused := err != nil || result != uint8(common.MAV_RESULT_ACCEPTED)
		if refused && !(s.wish && (err == nil || isNoAck(err))) {
			return answer{}, l.fail(op, i, result, err)
		}
		if refused {
			slog.Warn("the heading is not kept", "result", resultName(result), "error", err)
			continue
		}
		l.mu.Lock()
		op.accepted = uint16(s.cmd)
		op.moved = op.moved || s.moves()
		l.tel.acknowledged(s)
		l.mu.Unlock()
	}
	return l.accept(op)
}

// begin makes a plan of the request and takes the place of the command before
// it. What can't be planned changes nothing.
func (l *link) begin(r request) (*operation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return nil, err
	}
	now := time.Now()
	v := l.tel.vehicle(now)
	if custom, ok := entered[v.firmware][l.machine.awaited()]; ok {
		v.custom = custom // acknowledged, and no heartbeat shows it yet
	}
	v.target = l.target
	p, err := r.plan(v)
	if err != nil {
		return nil, err
	}
	op := &operation{plan: p, began: now, busy: true, cancelled: make(chan struct{})}
	if older := l.op; older != nil {
		close(older.cancelled)
		if older.busy {
			op.landing, op.moved = older.landing, older.moved || older.asked
		} else {
			op.landing = older
		}
	}
	l.op = op
	l.machine.begin(p.explains)
	l.prepareSticks(p, now)
	return op, nil
}

// ready reports why no command can be sent now. l.mu is held.
func (l *link) ready() error {
	switch {
	case l.stopped:
		return errStopping
	case l.tel.system == 0:
		return refuse(codeOffline, "no autopilot was heard yet on %s; check its wiring, baud rate and MAVLink settings", l.device.name)
	case !l.tel.online:
		return refuse(codeOffline, "the autopilot is offline: no heartbeat for %.0f s", time.Since(l.tel.heartbeatAt).Seconds())
	}
	return nil
}

// accept ends an operation whose every step was acknowledged.
func (l *link) accept(op *operation) (answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.op != op {
		return answer{}, superseded()
	}
	p := &op.plan
	op.busy = false
	l.op = nil
	l.version.Add(1)
	if !p.setsMode {
		l.machine.acceptArm(p.arm)
		l.resume(op)
	} else {
		transit := p.landed != nil && !l.stopped
		l.machine.accept(p.mode, transit, time.Now())
		l.target = p.target
		if transit {
			l.op = op
			l.wg.Go(func() { l.approach(op) })
		}
	}
	return answer{op.accepted, l.machine.mode}, nil
}

// end leaves nothing of an operation behind that did not come to its end.
func (l *link) end(op *operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.op == op && op.busy {
		op.busy = false
		l.op = nil
		if op.unanswered {
			l.machine.doubt()
		} else {
			l.machine.refuse(time.Now())
		}
		l.resume(op)
		l.version.Add(1)
	}
	l.pokeClock()
}

// resume goes on with the landing that op interrupted. l.mu is held.
func (l *link) resume(op *operation) {
	switch {
	case op.landing == nil || l.machine.mode != ModeLand || l.stopped:
	case op.moved || op.asked:
		l.machine.abandon()
		l.modeChanged("a command that was not accepted ended the way to the landing")
		l.target = nil
	default:
		l.op = &operation{plan: op.landing.plan, began: op.landing.began, cancelled: make(chan struct{})}
		again := l.op
		l.wg.Go(func() { l.approach(again) })
	}
}

// fail ends an operation whose step i was refused or never acknowledged: it
// takes the earlier steps back, and collects what the autopilot said of it.
func (l *link) fail(op *operation, i int, result uint8, err error) error {
	if err != nil && !isNoAck(err) {
		return err
	}
	at := time.Now()
	undo := op.plan.steps[:i]
	if err != nil && i > 0 { // it may have happened
		undo = op.plan.steps[:i+1]
	}
	for _, s := range slices.Backward(undo) {
		if s.undo == nil {
			continue
		}
		if r, uerr := l.transact(op, s.undo); uerr != nil || r != 0 {
			slog.Warn("a refused command could not be taken back", "command", s.undo.cmd, "result", r, "error", uerr)
			break // it may fly: the mode it has is better than the one before
		}
		l.mu.Lock()
		l.tel.acknowledged(s.undo)
		l.mu.Unlock()
	}
	if err != nil {
		l.mu.Lock()
		op.unanswered = true
		l.mu.Unlock()
		return err
	}
	l.pause(op, textsAfter-time.Since(at))
	l.mu.Lock()
	l.flushTexts(time.Now(), 0)
	texts := l.tel.recent(op.began)
	l.mu.Unlock()
	return refusal(&op.plan.steps[i], result, texts)
}

func isNoAck(err error) bool {
	var ce *commandError
	return errors.As(err, &ce) && ce.code == codeNoAck
}

// refusal is the error of a step that the autopilot answered with anything but
// ACCEPTED.
func refusal(s *step, result uint8, texts []statusText) error {
	e := &commandError{code: codeRefused, answered: true, command: uint16(s.cmd), result: result}
	why := ""
	for _, t := range texts {
		preArm := strings.HasPrefix(t.text, "PreArm") || strings.HasPrefix(t.text, "Arm:")
		if t.severity <= uint8(common.MAV_SEVERITY_WARNING) || preArm {
			e.messages = append(e.messages, t)
			why = ": " + t.text
		}
	}
	verb := "refused"
	switch common.MAV_RESULT(result) {
	case common.MAV_RESULT_UNSUPPORTED, common.MAV_RESULT_COMMAND_INT_ONLY, common.MAV_RESULT_COMMAND_LONG_ONLY,
		common.MAV_RESULT_COMMAND_UNSUPPORTED_MAV_FRAME:
		e.code, verb = codeUnsupported, "does not know"
	}
	e.text = fmt.Sprintf("the autopilot %s %s (%s)%s", verb, commandName(s), resultName(result), why)
	return e
}

// resultName is a MAV_RESULT's name in lower case.
func resultName(result uint8) string {
	return lowerName(common.MAV_RESULT(result).String(), "MAV_RESULT_")
}

// commandName is what a step is, in a sentence.
func commandName(s *step) string {
	switch s.cmd {
	case common.MAV_CMD_DO_SET_MODE:
		return "the mode change"
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		if s.p[0] == 0 {
			return "disarming"
		}
		return "arming"
	case common.MAV_CMD_NAV_TAKEOFF:
		return "the takeoff"
	case common.MAV_CMD_NAV_LAND:
		return "the landing"
	case common.MAV_CMD_DO_REPOSITION:
		return "the goto"
	case common.MAV_CMD_DO_CHANGE_SPEED:
		return "the speed"
	case common.MAV_CMD_CONDITION_YAW:
		return "the heading"
	}
	return fmt.Sprintf("command %d", s.cmd)
}

// approach is the way of a land to its place: it starts the landing over it. A
// newer command, a pilot's switch or a failsafe ends it before.
func (l *link) approach(op *operation) {
	timer := time.NewTicker(200 * time.Millisecond)
	defer timer.Stop()
	a := arrival{failsafe: true}
	for there := false; !there; {
		select {
		case <-timer.C:
		case <-op.cancelled:
			return
		case <-l.done:
			return
		}
		l.mu.Lock()
		there = l.arrived(op, &a, time.Now())
		gone := l.op != op
		l.mu.Unlock()
		if gone {
			return
		}
	}
	for {
		l.mu.Lock()
		gone := l.op != op || l.machine.mode != ModeLand || !l.tel.armed
		if !gone && l.tel.firmware == px4 {
			l.knock()
		}
		l.mu.Unlock()
		if gone {
			break
		}
		result, err := l.transact(op, op.plan.landed)
		if err == nil && result == uint8(common.MAV_RESULT_ACCEPTED) {
			l.mu.Lock()
			if l.op == op && l.machine.mode == ModeLand {
				l.machine.accept(ModeLand, false, time.Now())
			}
			l.mu.Unlock()
			break
		}
		slog.Warn("the landing at the place was not accepted; trying again", "result", resultName(result), "error", err)
		if l.pause(op, landAgain) != nil {
			return
		}
	}
	l.mu.Lock()
	if l.op == op {
		l.op = nil
	}
	l.mu.Unlock()
}

// arrival is what an approach remembers between two looks.
type arrival struct {
	near     time.Time // since when it is within 5 m and slow
	failsafe bool      // one that was there already
}

// arrived reports whether op's vehicle is over its place, and ends op when it
// will not get there. l.mu is held.
func (l *link) arrived(op *operation, a *arrival, now time.Time) bool {
	t := &l.tel
	switch {
	case l.op != op:
		return false
	case l.machine.mode != ModeLand || !t.armed:
		l.op = nil
		return false
	case t.failsafe && !a.failsafe:
		l.machine.abandon()
		l.modeChanged("a failsafe on the way to the landing")
		l.op = nil
		return false
	}
	a.failsafe = t.failsafe
	if now.Sub(t.position.at) > freshPosition {
		a.near = time.Time{}
		return false
	}
	away := distance(t.position.lat, t.position.lon, op.plan.target.lat, op.plan.target.lon)
	if near := away <= 5 && t.velocity.ground < 1; !near { // NaN is not near
		a.near = time.Time{}
		return false
	}
	if a.near.IsZero() {
		a.near = now
	}
	return away <= 2 || now.Sub(a.near) >= 5*time.Second
}

// distance is the way over ground between two places a few kilometres apart,
// in metres.
func distance(lat1, lon1, lat2, lon2 float64) float64 {
	const metresPerDegree = 6371000 * math.Pi / 180
	north := (lat2 - lat1) * metresPerDegree
	east := math.Remainder(lon2-lon1, 360) * metresPerDegree * math.Cos(lat1*math.Pi/180)
	return math.Hypot(north, east)
}

// stickPhase is what the stick stream does.
type stickPhase uint8

const (
	stickOff     stickPhase = iota // silence
	stickClient                    // the client's sticks, until they expire
	stickCentred                   // nobody's: in a stick mode
	stickParked                    // out of the stick modes: unmoved until disarmed
)

// axes are the numbers of MANUAL_CONTROL: x forward, y right, r clockwise, each
// ±1000; z thrust 0 to 1000, of which 500 holds the height.
type axes struct{ x, y, z, r int16 }

// sticks is the one latest value of the sticks and its life (DESIGN.md, "Sticks").
type sticks struct {
	phase  stickPhase
	axes   axes
	moved  time.Time // when axes last changed
	since  time.Time // when the stream began
	until  time.Time // when the client's sticks expire
	client time.Time // the client's last command
	parked time.Time
	next   time.Time // when the next frame is due
	flown  bool      // sent while armed: on PX4 silence is now a failsafe in every mode
}

// set moves the sticks.
func (s *sticks) set(a axes, now time.Time) {
	if s.axes != a {
		s.axes, s.moved = a, now
	}
}

// start makes sure that the stream runs.
func (s *sticks) start(phase stickPhase, now time.Time) {
	if s.phase == stickOff {
		s.since, s.next = now, now
	}
	s.phase = phase
}

// landed says that the vehicle was disarmed.
func (s *sticks) landed() {
	s.flown = false
	if s.phase == stickParked {
		s.phase = stickOff
	}
}

// restThrottle is the throttle that nobody gave.
func (l *link) restThrottle() int16 {
	if l.tel.aloft() {
		return 500
	}
	return 0
}

// centred are the sticks of nobody in a mode: in manual mode level, with the
// last throttle, because a centred one would drop it or shoot it up. Disarmed
// there is nothing to drop, and a throttle that stands would forbid arming.
func (l *link) centred(mode Mode) axes {
	if mode == ModeManual && l.tel.armedNow {
		return axes{z: l.stick.axes.z}
	}
	return axes{z: l.restThrottle()}
}

// prepareSticks brings the stream to where a plan needs it. l.mu is held.
func (l *link) prepareSticks(p plan, now time.Time) {
	s := &l.stick
	switch p.sticks {
	case sticksEnter:
		if s.phase == stickOff || !l.machine.mode.flownBySticks() || p.mode != ModeManual {
			s.set(axes{z: l.restThrottle()}, now)
		} else {
			s.set(l.centred(l.machine.mode), now)
		}
		s.start(stickCentred, now)
		s.client = now
	case sticksRun:
		if s.phase == stickOff {
			s.set(axes{z: l.restThrottle()}, now)
			s.start(stickCentred, now)
		}
		s.client = now
	case sticksLeave:
		switch {
		case s.phase == stickClient || s.phase == stickCentred:
			s.set(l.centred(l.machine.mode), now)
			s.start(stickParked, now)
			s.parked = now
		case s.phase == stickOff && s.flown:
			s.start(stickParked, now)
			s.parked = now
		}
	}
	l.pokeClock()
}

// awaitSticks waits until the stick stream is as the plan's first step needs
// it, and knocks.
func (l *link) awaitSticks(op *operation) error {
	l.mu.Lock()
	s := &l.stick
	now := time.Now()
	var wait time.Duration
	switch {
	case op.plan.sticks == sticksEnter || op.plan.sticks == sticksRun:
		wait = s.since.Add(stickLead).Sub(now)
	case op.plan.sticks == sticksLeave && s.phase != stickOff && l.tel.firmware == px4:
		wait = max(s.since.Add(stickLead).Sub(now), s.moved.Add(stickStill).Sub(now))
	}
	l.mu.Unlock()
	if wait > 0 {
		if err := l.pause(op, wait); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tel.firmware == px4 {
		l.knock()
	}
	return nil
}

// steer moves the sticks on with the time and writes them when they are due.
// It reports whether the stream runs. l.mu is held.
func (l *link) steer(now time.Time) bool {
	s := &l.stick
	mode := l.machine.mode
	busy := l.op != nil && l.op.busy && l.op.plan.setsMode
	if !busy {
		l.followMode(mode, now)
	}
	if s.phase == stickClient && !now.Before(s.until) {
		s.phase = stickCentred
		l.version.Add(1)
	}
	entering := busy && l.op.plan.sticks == sticksEnter
	switch {
	case s.phase == stickCentred && entering:
		s.set(l.centred(l.op.plan.mode), now)
	case s.phase == stickCentred:
		s.set(l.centred(mode), now)
		// A centred drone drifts here: the autopilot's own failsafe takes over.
		if mode != ModePosition && now.Sub(s.client) >= stickSilent && now.Sub(s.until) >= stickCentre {
			slog.Warn("no sticks from the client for 5 s: the stick stream ends", "mode", mode)
			s.phase = stickOff
		}
	case s.phase == stickParked && l.tel.firmware != px4 && !busy:
		s.set(axes{z: l.restThrottle()}, now)
	}
	if s.phase == stickOff {
		return false
	}
	if !now.Before(s.next) {
		s.next = now.Add(stickEvery)
		l.signalSticks()
	}
	return true
}

// followMode makes the stream fit a mode that changed without a command, and
// picks it up where a command left it.
func (l *link) followMode(mode Mode, now time.Time) {
	s := &l.stick
	switch s.phase {
	case stickClient, stickCentred:
		if mode.flownBySticks() {
			return
		}
		// On PX4 sticks that move now would take the mode back from the pilot
		// or the failsafe that set it.
		if l.tel.firmware != px4 {
			s.set(axes{z: l.restThrottle()}, now)
		}
		s.phase, s.parked = stickParked, now
	case stickParked:
		if mode.flownBySticks() {
			s.phase, s.client = stickCentred, now
		} else if !l.tel.armed && now.Sub(s.parked) > followTime {
			s.phase = stickOff
		}
	}
}

func (l *link) signalSticks() {
	if l.conn != nil {
		select {
		case l.conn.sticks <- struct{}{}:
		default: // the writer has not taken the last one: it will write the newest
		}
	}
}

// stickMessage is the sticks as they are now. ArduPilot takes them only from
// its ground station's system. l.mu is held.
func (l *link) stickMessage(m *common.MessageManualControl) (outgoing, bool) {
	s := &l.stick
	if s.phase == stickOff || l.tel.system == 0 {
		return outgoing{}, false
	}
	if l.tel.armedNow {
		s.flown = true
	}
	*m = common.MessageManualControl{Target: l.tel.system, X: s.axes.x, Y: s.axes.y, Z: s.axes.z, R: s.axes.r}
	if l.tel.firmware.ardupilot() {
		return outgoing{l.gcsID, knockComponentID, m}, true
	}
	return outgoing{l.ourSystem(), componentID, m}, true
}

// lastSticks is what the vehicle is left with when the link shuts down: nobody's
// sticks, if the client's were still standing. l.mu is held.
func (l *link) lastSticks(m *common.MessageManualControl) (outgoing, bool) {
	if l.stick.phase == stickClient {
		l.stick.set(l.centred(l.machine.mode), time.Now())
	}
	return l.stickMessage(m)
}

// stickInput is POST input: each of roll, pitch and yaw −1 to 1, throttle 0 to
// 1 or nil, timeout in seconds.
type stickInput struct {
	roll, pitch, yaw float64
	throttle         *float64
	timeout          time.Duration
}

// input takes the client's sticks and has them written at once. It returns the
// mode that they act in.
func (l *link) input(in stickInput) (Mode, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return 0, err
	}
	mode := l.machine.mode
	switch {
	case !mode.flownBySticks():
		return 0, refuse(codeWrongMode, "input: the drone is in mode %s; set manual, altitude or position first", mode)
	case l.op != nil && l.op.busy && l.op.plan.setsMode:
		return 0, refuse(codeWrongMode, "input: a command to enter %s is under way", l.op.plan.mode)
	case l.tel.firmware == firmwareUnknown:
		return 0, refuse(codeUnsupported, "input: this autopilot is neither PX4 nor ArduPilot Copter or Plane")
	}
	z := l.restThrottle()
	if in.throttle != nil {
		z = int16(math.Round(*in.throttle * 1000))
	} else if mode == ModeManual {
		return 0, refuse(codeOutOfRange, "throttle: it must be given in manual mode, where it is thrust: 0 to 1")
	}
	now := time.Now()
	s := &l.stick
	s.start(stickClient, now)
	s.set(axes{
		x: int16(math.Round(in.pitch * 1000)),
		y: int16(math.Round(in.roll * 1000)),
		z: z,
		r: int16(math.Round(in.yaw * 1000)),
	}, now)
	s.client, s.until, s.next = now, now.Add(in.timeout), now.Add(stickEvery)
	l.signalSticks()
	l.version.Add(1)
	l.pokeClock()
	return mode, nil
}

// snapshot is the link at one moment, for the status.
type snapshot struct {
	now     time.Time
	tel     telemetry
	mode    Mode
	target  *place
	expires time.Time // of the client's sticks; zero where none stand
	device  string
	baud    int

	received, lost, errors, sent uint64
}

// status copies everything that a status shows.
func (l *link) status() snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := snapshot{
		now: time.Now(), tel: l.tel, mode: l.machine.mode, target: l.target,
		device: l.device.name, baud: l.device.baud(),
		received: l.received.Load(), lost: l.lost.Load(), errors: l.badPlaces(), sent: l.sent.Load(),
	}
	if l.stick.phase == stickClient {
		s.expires = l.stick.until
	}
	return s
}

// mode returns the mode and the autopilot's own name for its mode, "" before
// the first heartbeat.
func (l *link) mode() (Mode, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.mode, l.tel.modeName
}

// summary is the link's state in a line, for the supervisor.
func (l *link) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.tel
	switch {
	case t.system == 0:
		return "no autopilot heard yet on " + l.device.name
	case !t.online:
		return "autopilot offline on " + l.device.name
	}
	armed := "disarmed"
	if t.armed {
		armed = "armed"
	}
	return fmt.Sprintf("%s %s online, %s, mode %s", t.autopilot, t.vehicleType, armed, l.machine.mode)
}
