package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Reading and writing that wake as little of the program as they can: on a quiet line Go's runtime costs more than what
// is done with a frame (docs/performance.md).

// Times of a busy line.
const (
	// gatherFor is how long input gathers before it is read, at most: less where terminalKeeps bytes come sooner.
	gatherFor = 20 * time.Millisecond

	// terminalKeeps is how many bytes a terminal keeps at least until they are read; a socket keeps fifty times that.
	terminalKeeps = 4096

	// soon: what comes again within this time comes soon. A line is busy where that happens busyAfter times in a row: a
	// vehicle sends what is due each second in a short burst, for which gathering does not pay.
	soon      = gatherFor / 2
	busyAfter = 8

	// answersWithin is how long nothing gathers behind a question: what answers it is read as soon as it comes. A
	// vehicle answers within its own loop, 2.5 to 20 ms, and a USB converter holds that back for up to 16 ms.
	answersWithin = 50 * time.Millisecond
)

// descriptor is a socket or a terminal.
type descriptor interface {
	syscall.Conn
	io.Closer
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// streamPort is a port that carries bytes in order.
type streamPort struct{ *quietPort }

func newStreamPort(c descriptor) *streamPort { return &streamPort{newQuietPort(c)} }

func (p *streamPort) Read(b []byte) (int, error) {
	n, err := p.calls.read(b, nil)
	if g, ok := p.descriptor.(*gatherer); ok {
		g.came += n
	}
	switch {
	case err == nil && n == 0 && len(b) > 0:
		return n, io.EOF
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !ofSystem(err):
		// A raw read of a closed descriptor has an error of its own.
		return n, os.ErrClosed
	}
	return n, err
}

func (p *streamPort) Write(b []byte) (int, error) { return p.calls.write(b, nil) }

// quietPort is a port that is read and written by quietCalls.
type quietPort struct {
	descriptor
	emptied
	calls *quietCalls
}

// newQuietPort returns a port of c whose input gathers, and owns c.
func newQuietPort(c descriptor) *quietPort {
	p := &quietPort{descriptor: gather(c)}
	p.calls = newQuietCalls(p.descriptor, &p.emptied)
	return p
}

// hurry makes input be read as soon as it comes for a while: it may answer what was written.
func (p *quietPort) hurry() {
	if g, ok := p.descriptor.(*gatherer); ok {
		g.hurry()
	}
}

// kernelTick is by how much a kernel with 100 ticks a second rounds times, at most.
const kernelTick = 10 * time.Millisecond

// quietTCP is a TCP connection that is read and written by quietCalls.
type quietTCP struct {
	*net.TCPConn
	calls *quietCalls
}

func newQuietTCP(c *net.TCPConn) *quietTCP { return &quietTCP{c, newQuietCalls(c, nil)} }

func (c *quietTCP) Read(b []byte) (int, error) {
	n, err := c.calls.read(b, nil)
	if n == 0 && err == nil && len(b) > 0 {
		return n, io.EOF
	}
	return n, c.named("read", err)
}

func (c *quietTCP) Write(b []byte) (int, error) {
	n, err := c.calls.write(b, nil)
	return n, c.named("write", err)
}

// lastCame is the latest time at which the last bytes may have come: the kernel rounds. It is now where the kernel does
// not tell.
func (c *quietTCP) lastCame() time.Time {
	now := time.Now()
	var info syscall.TCPInfo
	size := uint32(unsafe.Sizeof(info))
	c.calls.raw.Control(func(fd uintptr) {
		syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})

	// It tells how many milliseconds ago that was.
	return sooner(now, now.Add(kernelTick-time.Duration(info.Last_data_recv)*time.Millisecond))
}

// named is an error of the system as net/http knows it.
func (c *quietTCP) named(op string, err error) error {
	if !ofSystem(err) {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// quietCalls read and write a descriptor by system calls that do not wait; where nothing has come a read waits as every
// Read does. The runtime watches each call that may wait, and in a program that was idle it wakes a thread for that:
// half of what a quiet line costs (docs/performance.md). One goroutine reads at a time, and one writes.
type quietCalls struct {
	raw syscall.RawConn

	// empty takes when a read found nothing; nil where nobody asks.
	empty *emptied

	in, out quietCall
}

// quietCall is a read or a write. What it uses is kept from one to the next, because it would be allocated each time.
type quietCall struct {
	// b is what is left of it to be read or written.
	b []byte

	// addr gets the sender of a datagram, empty when a read found nothing, or is its receiver; nil where nobody asks,
	// or the line has one end.
	addr *sockaddr

	// n is how many bytes have been read or written.
	n     int
	errno syscall.Errno

	// try is tryRead or tryWrite.
	try func(fd uintptr) bool
}

func newQuietCalls(c syscall.Conn, empty *emptied) *quietCalls {
	// It fails only without a connection.
	raw, _ := c.SyscallConn()
	q := &quietCalls{raw: raw, empty: empty}
	q.in.try = q.tryRead
	q.out.try = q.tryWrite
	return q
}

// read reads b. No bytes without an error are an empty datagram, or the end.
func (q *quietCalls) read(b []byte, from *sockaddr) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	q.in.b, q.in.addr = b, from
	err := q.raw.Read(q.in.try)

	// A program that stood still finds its deadline over, and what came meanwhile.
	if q.empty != nil && errors.Is(err, os.ErrDeadlineExceeded) && q.readsLate() {
		err = nil
	}
	return q.in.end(err)
}

// readsLate reads once without waiting, whatever the deadline, and reports whether something had come.
func (q *quietCalls) readsLate() (came bool) {
	q.raw.Control(func(fd uintptr) { came = q.in.try(fd) })
	return came
}

func (q *quietCalls) tryRead(fd uintptr) bool {
	c := &q.in
	var tried time.Time
	if q.empty != nil {
		tried = time.Now()
	}
	var n uintptr
	if c.addr == nil {
		n, _, c.errno = syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&c.b[0])), uintptr(len(c.b)))
	} else {
		size := uint32(len(c.addr))
		n, _, c.errno = syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&c.b[0])),
			uintptr(len(c.b)), 0, uintptr(unsafe.Pointer(c.addr)), uintptr(unsafe.Pointer(&size)))
	}
	switch {
	case c.errno == 0:
		c.n = int(n)
	case c.errno == syscall.EAGAIN && q.empty != nil:
		q.empty.found(tried)
	}
	return c.errno != syscall.EAGAIN
}

// write writes all of b.
func (q *quietCalls) write(b []byte, to *sockaddr) (int, error) {
	q.out.b, q.out.addr = b, to
	return q.out.end(q.raw.Write(q.out.try))
}

func (q *quietCalls) tryWrite(fd uintptr) bool {
	c := &q.out
	for c.errno = 0; len(c.b) > 0 && c.errno == 0; {
		var wrote uintptr
		if c.addr == nil {
			wrote, _, c.errno = syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&c.b[0])),
				uintptr(len(c.b)))
		} else {
			wrote, _, c.errno = syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&c.b[0])),
				uintptr(len(c.b)), 0, uintptr(unsafe.Pointer(c.addr)), c.addr.size())
		}
		if c.errno == 0 {
			c.n += int(wrote)
			c.b = c.b[wrote:]
		}
	}
	return c.errno != syscall.EAGAIN
}

// end is the result of a call that the runtime has ended with err. It forgets what was read or written.
func (c *quietCall) end(err error) (int, error) {
	n := c.n
	if err == nil && c.errno != 0 {
		err = c.errno
	}
	*c = quietCall{try: c.try}
	return n, err
}

// ofSystem reports whether an error of a call is the system's, not the runtime's.
func ofSystem(err error) bool {
	_, is := err.(syscall.Errno)
	return is
}

// emptied is when all was read last that had come. A mutex keeps it, because a pointer would be allocated at each read.
type emptied struct {
	emptyMu sync.Mutex
	at      time.Time
}

// found takes that a read that began then found nothing.
func (e *emptied) found(at time.Time) {
	e.emptyMu.Lock()
	defer e.emptyMu.Unlock()
	e.at = at
}

func (e *emptied) emptyAt() time.Time {
	e.emptyMu.Lock()
	defer e.emptyMu.Unlock()
	return e.at
}

// gatherer is a descriptor whose input gathers while it is busy, and wakes nothing meanwhile. Go's poller hears each
// arrival at a descriptor that it knows, so it knows an epoll of ours instead: that hears the descriptor or, while
// input gathers, only a timer.
type gatherer struct {
	fd, timer int

	// epoll has the deadline of reads. Its Close waits for who uses fd.
	epoll *os.File
	raw   syscall.RawConn

	// call is what Read calls, and try tryRead: a new one for each read would be allocated.
	call func(fd uintptr) bool
	try  func(epoll uintptr) bool

	// waits is what the read that is under way waits for.
	waits readWait

	// soons is how many waits in a row have ended soon, or with what has gathered.
	soons int

	// woke is when the last read ended that had waited, and span how long after the one before.
	woke time.Time
	span time.Duration

	// came is how many bytes of a stream have been read since.
	came int

	// writeBy is the deadline of writes; only the writer uses it.
	writeBy time.Time

	// mu guards what follows: a question ends a gathering.
	mu sync.Mutex

	// deaf: the epoll does not hear the descriptor
	deaf bool

	// timed: the timer is set, or its time is over
	timed bool

	// asked is when something was written last whose answer is awaited; zero: never
	asked time.Time
}

// readWait is what a read waits for.
type readWait uint8

const (
	notYet readWait = iota
	forInput
	forTimer
)

// gather returns c with input that gathers, and owns c. Where the kernel refuses that it returns c.
func gather(c descriptor) descriptor {
	g, err := newGatherer(c)
	if err != nil {
		return c
	}
	c.Close()
	return g
}

func newGatherer(c descriptor) (*gatherer, error) {
	own, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}

	// Go's poller hears only what does not block.
	err = syscall.SetNonblock(poll, true)
	g := &gatherer{fd: -1, timer: -1, epoll: os.NewFile(uintptr(poll), "epoll")}
	g.try = g.tryRead
	if err == nil {
		err = g.open(own, poll)
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// open makes the epoll hear a descriptor of its own for what own is, and a timer.
func (g *gatherer) open(own syscall.RawConn, poll int) (err error) {
	// It fails where Go's poller does not hear the epoll.
	if err := g.epoll.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if g.raw, err = g.epoll.SyscallConn(); err != nil {
		return err
	}
	own.Control(func(fd uintptr) { g.fd, err = syscall.Dup(int(fd)) })
	if err != nil {
		return err
	}
	syscall.CloseOnExec(g.fd)
	if g.timer, err = newTimer(); err != nil {
		return err
	}
	for _, fd := range []int{g.fd, g.timer} {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
		if err := syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
			return err
		}
	}
	return nil
}

// newTimer returns a descriptor that can be read once its time is over.
func newTimer() (int, error) {
	const monotonic = 1
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func (g *gatherer) SyscallConn() (syscall.RawConn, error) { return g, nil }

// Read calls f until it returns true, and waits in between until something has come: on a busy line until it has
// gathered.
func (g *gatherer) Read(f func(fd uintptr) bool) error {
	g.call, g.waits = f, notYet
	return g.raw.Read(g.try)
}

func (g *gatherer) tryRead(epoll uintptr) bool {
	if g.reads() {
		return true
	}

	// What came while the epoll was deaf may not have woken anybody.
	return g.listens(epoll) && g.reads()
}

func (g *gatherer) reads() bool {
	done := g.call(uintptr(g.fd))
	if done {
		g.ended()
	}
	return done
}

// listens makes the epoll hear what ends the wait: a busy line's timer, else input. It reports whether it hears input
// again that it was deaf to.
func (g *gatherer) listens(epoll uintptr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waits == notYet && g.soons >= busyAfter && time.Since(g.asked) >= answersWithin {
		g.waits = forTimer
		g.hearLocked(epoll, false)
		g.setTimerLocked(g.gathering())
		return false
	}
	g.waits = forInput
	g.hearLocked(epoll, true)
	gathered := g.timed
	if gathered {
		// A kernel before 5.5 wakes for ever where a timer whose time is over stays in the epoll.
		g.setTimerLocked(0)
	}
	return gathered
}

// gathering is how long input may gather: no more than a terminal keeps comes meanwhile, as quickly as of late.
func (g *gatherer) gathering() time.Duration {
	return min(gatherFor, g.span*terminalKeeps/time.Duration(max(g.came, 1)))
}

// setTimerLocked makes the timer's time be over in a while; 0: never.
func (g *gatherer) setTimerLocked(in time.Duration) {
	g.timed = in > 0
	spec := [2]syscall.Timespec{1: syscall.NsecToTimespec(int64(in))}
	syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(g.timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

// ended takes that a read has ended.
func (g *gatherer) ended() {
	if g.waits == notYet {
		return
	}
	now := time.Now()
	if g.waits == forTimer || now.Sub(g.woke) < soon {
		g.soons++
	} else {
		g.soons = 0
	}
	g.span = now.Sub(g.woke)
	g.woke = now
	g.came = 0
}

// hurry makes input be read as soon as it comes, for answersWithin.
func (g *gatherer) hurry() {
	g.raw.Control(func(epoll uintptr) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asked = time.Now()
		g.hearLocked(epoll, true)
	})
}

// Write calls f until it returns true. A line that takes nothing is tried again each millisecond.
func (g *gatherer) Write(f func(fd uintptr) bool) error {
	for written := false; ; time.Sleep(time.Millisecond) {
		err := g.Control(func(fd uintptr) { written = f(fd) })
		switch {
		case err != nil || written:
			return err
		case !g.writeBy.IsZero() && time.Now().After(g.writeBy):
			return os.ErrDeadlineExceeded
		}
	}
}

// hearLocked makes the epoll hear the descriptor, or not.
func (g *gatherer) hearLocked(epoll uintptr, hears bool) {
	if hears != g.deaf {
		return
	}
	g.deaf = !hears
	event := syscall.EpollEvent{Fd: int32(g.fd)}
	if hears {
		event.Events = syscall.EPOLLIN
	}
	syscall.EpollCtl(int(epoll), syscall.EPOLL_CTL_MOD, g.fd, &event)
}

// Control calls f with the descriptor, which is not closed meanwhile.
func (g *gatherer) Control(f func(fd uintptr)) error {
	return g.raw.Control(func(uintptr) { f(uintptr(g.fd)) })
}

func (g *gatherer) SetReadDeadline(t time.Time) error { return g.epoll.SetReadDeadline(t) }

func (g *gatherer) SetWriteDeadline(t time.Time) error {
	g.writeBy = t
	return nil
}

func (g *gatherer) Close() error {
	err := g.epoll.Close()
	if err == nil {
		err = errors.Join(syscall.Close(g.fd), syscall.Close(g.timer))
	}
	return err
}

// sockaddr is a sockaddr_in of ip(7) or a sockaddr_in6 of ipv6(7).
type sockaddr [28]byte

// addrPort is the address; invalid if there is none.
func (s *sockaddr) addrPort() netip.AddrPort {
	number := binary.BigEndian.Uint16(s[2:])
	switch binary.NativeEndian.Uint16(s[:]) {
	case 0:
		return netip.AddrPort{}
	case syscall.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s[4:8])), number)
	}
	a := netip.AddrFrom16([16]byte(s[8:24]))
	if scope := binary.NativeEndian.Uint32(s[24:]); scope != 0 {
		a = a.WithZone(strconv.FormatUint(uint64(scope), 10))
	}
	return netip.AddrPortFrom(a, number)
}

// sockaddrOf is addrPort's inverse: an address that a socket has read has its family.
func sockaddrOf(to netip.AddrPort) (s sockaddr) {
	binary.BigEndian.PutUint16(s[2:], to.Port())
	if to.Addr().Is4() {
		binary.NativeEndian.PutUint16(s[:], syscall.AF_INET)
		a := to.Addr().As4()
		copy(s[4:], a[:])
		return s
	}
	binary.NativeEndian.PutUint16(s[:], syscall.AF_INET6)
	a := to.Addr().As16()
	copy(s[8:], a[:])

	// addrPort made it a number.
	scope, _ := strconv.ParseUint(to.Addr().Zone(), 10, 32)
	binary.NativeEndian.PutUint32(s[24:], uint32(scope))
	return s
}

func (s *sockaddr) size() uintptr {
	if binary.NativeEndian.Uint16(s[:]) == syscall.AF_INET {
		return syscall.SizeofSockaddrInet4
	}
	return syscall.SizeofSockaddrInet6
}
