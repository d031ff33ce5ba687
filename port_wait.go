package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// readEvery is how long bytes may gather on a port on which much comes, if no
// answer is awaited.
const readEvery = 20 * time.Millisecond

// descriptor is the descriptor of a port, read so that much that comes wakes the
// program seldom (docs/performance.md, "What was done"). The runtime's poller gets
// an epoll instead that tells of the next bytes once, and of a timer, and then of
// nothing until it is armed again. All system calls are raw, which they may be as
// none of them waits.
type descriptor struct {
	file    *os.File                                      // in nobody's poller; it does not block
	raw     syscall.RawConn                               // of file
	bell    *os.File                                      // the epoll
	rung    syscall.RawConn                               // of bell
	timer   atomic.Uintptr                                // 0 before it is needed
	take    func(fd uintptr, b []byte) (n int, err error) // reads what is here
	awaited func() bool                                   // an answer is; nil: always
	pause   time.Duration                                 // of bytes that nobody awaits
	until   time.Time                                     // of a Read; the reader's own, as the next
	woken   time.Time                                     // by bytes, the last time
	once    sync.Once
}

// newDescriptor makes one of a descriptor, which is then its own.
func newDescriptor(fd int, name string) (*descriptor, error) {
	err := syscall.SetNonblock(fd, false) // os.NewFile polls what does not block
	d := &descriptor{file: os.NewFile(uintptr(fd), name), take: takeBytes, pause: readEvery}
	err = cmp.Or(err, syscall.SetNonblock(fd, true))
	if d.raw, _ = d.file.SyscallConn(); err == nil {
		err = d.hang(fd)
	}
	if err != nil {
		d.file.Close()
		return nil, err
	}
	return d, nil
}

// hang makes the bell, with the descriptor on it, not armed yet.
func (d *descriptor) hang(fd int) error {
	bell, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	err = errors.Join(
		syscall.EpollCtl(bell, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLONESHOT, Fd: int32(fd)}),
		syscall.SetNonblock(bell, true))
	d.bell = os.NewFile(uintptr(bell), "bell")
	d.rung, _ = d.bell.SyscallConn()
	if err != nil {
		d.bell.Close()
	}
	return err
}

// unpolled makes one of a socket of the runtime's.
func unpolled(c net.Conn) (*descriptor, error) {
	defer c.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd uintptr
	var errno syscall.Errno
	err = raw.Control(func(s uintptr) { fd, _, errno = syscall.Syscall(syscall.SYS_FCNTL, s, syscall.F_DUPFD_CLOEXEC, 0) })
	if err == nil && errno != 0 {
		err = os.NewSyscallError("fcntl", errno)
	}
	if err != nil {
		return nil, err
	}
	return newDescriptor(int(fd), c.LocalAddr().Network())
}

// takeDatagram reads one, which may be empty.
func takeDatagram(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// takeBytes reads from a stream, which may have ended.
func takeBytes(fd uintptr, b []byte) (n int, err error) {
	if n, err = takeDatagram(fd, b); n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Read reads what is here, or waits for it, and for more to gather: to be woken for
// every few bytes costs ten times what decoding them does.
func (d *descriptor) Read(b []byte) (n int, err error) {
	for {
		cerr := d.raw.Read(func(fd uintptr) bool {
			n, err = d.take(fd, b)
			return true
		})
		if err = cmp.Or(cerr, err); !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
			return n, err
		}
		if !d.until.IsZero() && !time.Now().Before(d.until) {
			return 0, os.ErrDeadlineExceeded
		}
		came, err := d.wait(d.until, true)
		if came {
			err = d.rest()
		}
		if err != nil {
			return 0, err
		}
	}
}

// rest lets bytes gather behind the first, if much comes and no answer is awaited.
func (d *descriptor) rest() (err error) {
	now := time.Now()
	busy := now.Sub(d.woken) < 2*d.pause
	d.woken = now
	if busy && d.awaited != nil && !d.awaited() {
		_, err = d.wait(now.Add(d.pause), false)
		d.woken = time.Now()
	}
	return err
}

// SetReadDeadline is for the reader, between two Reads.
func (d *descriptor) SetReadDeadline(t time.Time) error {
	d.until = t
	return nil
}

// wait waits until a time, zero for ever, or until bytes come if the bell is
// armed: here, or by hurry. It reports whether they did.
func (d *descriptor) wait(until time.Time, armed bool) (came bool, err error) {
	began := false
	cerr := d.rung.Read(func(bell uintptr) bool {
		if !began {
			began = true
			err = d.setTimer(bell, until)
			if armed {
				err = cmp.Or(err, d.arm(bell))
			}
		}
		var events [2]syscall.EpollEvent
		n, _, _ := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, bell, uintptr(unsafe.Pointer(&events)), uintptr(len(events)), 0, 0, 0)
		if int(n) <= 0 {
			return err != nil
		}
		for _, e := range events[:n] {
			came = came || uintptr(e.Fd) != d.timer.Load()
		}
		return true
	})
	return came, cmp.Or(cerr, err)
}

// setTimer has the bell rung at a time; zero: never.
func (d *descriptor) setTimer(bell uintptr, at time.Time) error {
	if d.timer.Load() == 0 {
		if at.IsZero() {
			return nil
		}
		timer, err := newTimer()
		if err != nil {
			return err
		}
		d.timer.Store(timer)
		err = syscall.EpollCtl(int(bell), syscall.EPOLL_CTL_ADD, int(timer), &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(timer)})
		if err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	setTimer(d.timer.Load(), at)
	return nil
}

// arm has the bell tell of the next bytes, or of those that are here.
func (d *descriptor) arm(bell uintptr) (err error) {
	cerr := d.raw.Control(func(fd uintptr) {
		e := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLONESHOT, Fd: int32(fd)}
		_, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_CTL, bell, syscall.EPOLL_CTL_MOD, fd, uintptr(unsafe.Pointer(&e)), 0, 0)
		if errno != 0 {
			err = os.NewSyscallError("epoll_ctl", errno)
		}
	})
	return cmp.Or(cerr, err)
}

// gather has bytes gather while awaited says that no answer is.
func (d *descriptor) gather(awaited func() bool) { d.awaited = awaited }

// hurry says that an answer is awaited from now on.
func (d *descriptor) hurry() { d.rung.Control(func(bell uintptr) { d.arm(bell) }) }

// Write writes all of b. The kernel may take a part of it at a time.
func (d *descriptor) Write(b []byte) (written int, err error) {
	for written < len(b) {
		var n uintptr
		var errno syscall.Errno
		err := d.raw.Control(func(fd uintptr) {
			n, _, errno = syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b[written])), uintptr(len(b)-written))
		})
		switch {
		case err != nil:
			return written, err
		case errno == syscall.EAGAIN:
			time.Sleep(writeAgain)
		case errno != 0:
			return written, errno
		default:
			written += int(n)
		}
	}
	return written, nil
}

// Close ends a Read under way.
func (d *descriptor) Close() (err error) {
	d.once.Do(func() {
		err = d.bell.Close() // waits until nobody looks at it
		if timer := d.timer.Load(); timer != 0 {
			err = errors.Join(err, syscall.Close(int(timer)))
		}
		err = errors.Join(err, d.file.Close())
	})
	return err
}

// newTimer is a timer of the kernel's. Read or in an epoll it does not block.
func newTimer() (uintptr, error) {
	const monotonic = 1
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return 0, os.NewSyscallError("timerfd_create", errno)
	}
	return fd, nil
}

// setTimer has it end at a time; zero: never.
func setTimer(timer uintptr, at time.Time) {
	var spec struct{ every, in syscall.Timespec }
	if !at.IsZero() {
		spec.in = syscall.NsecToTimespec(int64(max(time.Until(at), 1)))
	}
	syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, timer, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

// kernelAlarm is a timer of the kernel's that the runtime's poller waits for. For
// one of its own the runtime wakes up to a millisecond early, wakes its monitor,
// and has another thread look for more to do: five wake-ups instead of one.
type kernelAlarm struct {
	file *os.File
	raw  syscall.RawConn
	rung atomic.Bool
}

func newKernelAlarm() (*kernelAlarm, error) {
	fd, err := newTimer()
	if err != nil {
		return nil, err
	}
	a := &kernelAlarm{file: os.NewFile(fd, "alarm")}
	a.raw, err = a.file.SyscallConn()
	return a, err
}

func (a *kernelAlarm) sleep(until time.Time) {
	a.raw.Control(func(fd uintptr) { setTimer(fd, until) })
	if a.rung.Swap(false) {
		return
	}
	a.raw.Read(func(fd uintptr) bool {
		var expired uint64
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&expired)), unsafe.Sizeof(expired))
		return errno == 0
	})
	a.rung.Store(false)
}

func (a *kernelAlarm) ring() {
	a.rung.Store(true)
	a.raw.Control(func(fd uintptr) { setTimer(fd, time.Now()) })
}

func (a *kernelAlarm) close() { a.file.Close() }

// sleepQuietly sleeps for a while, or until ctx is done.
func sleepQuietly(ctx context.Context, d time.Duration) error {
	a, err := newKernelAlarm()
	if err != nil {
		return err
	}
	defer a.close()
	defer context.AfterFunc(ctx, a.ring)()
	a.sleep(time.Now().Add(d))
	return ctx.Err()
}
