package main

// Ports: a serial line on a pseudo-terminal, in real time because the kernel's clock is real; UDP
// and TCP over loopback; the names of devices, and the errors of those that can't be opened.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func TestACommandGoesOverARealSerialLine(t *testing.T) {
	t.Parallel()
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "ardupilot": simArduPilot} {
		t.Run(name, func(t *testing.T) {
			p := openPTY(t)
			p.fly(t, runSimulator(t, flavour))
			d, _ := runDevice(t, mustDevice(t, p.path, 57600))
			d.awaitStarted(t)
			a, err := d.do(request{verb: entersMode, mode: ModeHold})
			if err != nil || a.mode != ModeHold || a.command != cmdSetMode {
				t.Errorf("answered %+v, %v", a, err)
			}
			lineEqual(t, "line speed", p.speed(t), 57600)
			s := d.snapped()
			lineEqual(t, "baud in the status", s.link.baud, 57600)
			lineEqual(t, "device in the status", s.link.device, p.path)
			waitUntil(t, "a position came", func() bool { s := d.snapped(); return !math.IsNaN(s.tel.position.lat) })
		})
	}
}

func TestTheBaudRateSearchSendsOnlyAHeartbeatATurn(t *testing.T) {
	t.Parallel()
	b := newPortFolder(t)
	first := b.plug("serial0", openPTY(t))
	d, _ := runDevice(t, mustDevice(t, b.at("serial0"), 0))
	// heard returns what the link has sent so far; line keeps its bytes.
	heard := func(p *pty, line *[]byte) (list []lineMessage) {
		p.drain(line)
		for _, f := range checkedFrames(*line) {
			list = append(list, parseLine((*line)[f.offset:f.end])...)
		}
		return list
	}
	// The autopilot sends at 57600 baud; at another rate the link reads garbage, which may look like messages that
	// nobody knows. The search begins with 921600.
	noise := rand.New(rand.NewPCG(5, 6))
	var line []byte
	var before []lineMessage // until 57600 baud was set
	began := time.Now()
	waitUntil(t, "the link is at 57600 baud and has sent its heartbeat before that", func() bool {
		before = heard(first, &line)
		if first.speed(t) == 57600 && len(before) > 0 {
			return true
		}
		garbage := append(unknownPacket(1, 20), unknownPacket(2, 20)...)
		for range 40 {
			garbage = append(garbage, byte(noise.Uint32()))
		}
		first.master.Write(garbage)
		return false
	})
	size := 0
	for _, f := range checkedFrames(line) {
		size += f.end - f.offset
	}
	lineEqual(t, "bytes that are no frame", len(line)-size, 0)
	if turns := int(time.Since(began) / baudListen); len(before) > turns {
		t.Errorf("%d messages in %d turns", len(before), turns)
	}
	lineEqual(t, "bytes beside the allowed ones", loud(line), 0)
	for _, m := range before {
		lineEqual(t, "it is our heartbeat", isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)(m) &&
			m.component == componentID, true)
	}
	var seq byte
	waitUntil(t, "the link is online", func() bool {
		heard(first, &line)
		if first.speed(t) == 57600 {
			seq++
			first.master.Write(packet(seq, 1, 1, copterBeat()))
		}
		return d.hearsVehicle()
	})
	s := d.snapped()
	lineEqual(t, "baud in the status", s.link.baud, 57600)

	// The second line brings frames at every rate. The search begins with the last good rate.
	second := b.plug("serial0", openPTY(t))
	received := s.link.received
	first.unplug()
	waitUntil(t, "frames come again", func() bool {
		seq++
		second.master.Write(packet(seq, 1, 1, copterBeat()))
		second.drain(&line)
		return d.snapped().link.received > received
	})
	s = d.snapped()
	lineEqual(t, "baud in the status, the second time", s.link.baud, 57600)
}

func TestALineThatNobodyDrainsIsAbandonedAndLeavesNothing(t *testing.T) {
	nothingLeft(t, func(t *testing.T) {
		p := openPTY(t)
		dev, opens, _ := withCounts(mustDevice(t, p.path, 57600))
		d, end := runDevice(t, dev)
		var seq byte
		waitUntil(t, "the link has abandoned the port", func() bool {
			seq++
			p.master.Write(packet(seq, 1, 1, copterBeat())) // so that the port does not end by silence
			for d.link.send(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)) == nil {
			}
			return opens.Load() > 1
		})
		lineEqual(t, "the link hears its vehicle", d.hearsVehicle(), true)
		end()
		p.unplug()
	})
}

func TestALinkThatEndsWhileAWriteHangsLeavesNothing(t *testing.T) {
	nothingLeft(t, func(t *testing.T) {
		p := openPTY(t)
		d, end := runDevice(t, mustDevice(t, p.path, 57600))
		full := 0 // how often in a row the queue was full
		waitUntil(t, "a write hangs", func() bool {
			full++
			for d.link.send(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)) == nil {
				full = 0
			}
			return full > 20
		})
		end()
		p.unplug()
	})
}

// Bytes that the kernel does not accept at once are written later.
func TestALongWriteGoesOutWhole(t *testing.T) {
	p := openPTY(t)
	q := p.open(t)
	long := make([]byte, 100_000)
	for i := range long {
		long[i] = byte(i % 251)
	}
	wrote := make(chan error, 1)
	go func() {
		n, err := q.Write(long)
		if n != len(long) && err == nil {
			err = fmt.Errorf("wrote %d of %d bytes", n, len(long))
		}
		wrote <- err
	}()
	got := make([]byte, len(long))
	p.master.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(p.master, got); err != nil || !bytes.Equal(got, long) {
		t.Errorf("other bytes came, %v", err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestManyOpensLeaveNothing(t *testing.T) {
	nothingLeft(t, func(t *testing.T) {
		p := openPTY(t)
		for _, path := range []string{p.path, "/dev/null", "/nowhere"} {
			d := serialDevice{path: path}
			for range 1000 {
				q, err := d.openAt(57600)
				if path == p.path && err != nil {
					t.Fatal(err)
				}
				if err == nil {
					q.Close()
				}
			}
		}
		p.unplug()
	})
}

// Bytes that waited in a line may be seconds old. When they are dropped, the sender's buffer
// refills the line with more of them.
func TestBytesThatWaitedInTheLineAreDroppedTwiceAtTheOpening(t *testing.T) {
	p := openPTY(t)
	d := serialDevice{path: p.path, fixed: 57600}
	stale, fresh := packet(1, 1, 1, px4Beat()), packet(2, 1, 1, attitudeAt(1))
	dropped := false
	for range 100 { // on a busy machine the refill may come too late: then try again
		p.write(t, stale)
		q, err := d.openAt(57600)
		if err != nil {
			t.Fatal(err)
		}
		var refilled time.Time
		var sender sync.WaitGroup
		began := time.Now()
		sender.Go(func() {
			waitUntil(t, "the line is empty", func() bool { return p.waiting(t) == 0 })
			p.write(t, stale)
			refilled = time.Now()
		})
		err = q.flush()
		took := time.Since(began)
		sender.Wait()
		if err != nil || took < refillsIn {
			t.Fatalf("flushed in %v, %v", took, err)
		}
		left := p.waiting(t)
		q.Close()
		if refilled.Sub(began) < refillsIn {
			lineEqual(t, "bytes that are left of the refill", left, 0)
			dropped = true
			break
		}
		if _, err := p.keeper.Read(make([]byte, 100)); err != nil { // takes the late refill out of the line
			t.Fatal(err)
		}
	}
	lineEqual(t, "the line was refilled in time", dropped, true)

	p.write(t, stale)
	q := p.open(t)
	p.write(t, fresh)
	got := make([]byte, 100)
	n, err := q.Read(got)
	if err != nil || !bytes.Equal(got[:n], fresh) {
		t.Errorf("read %x, %v; want %x", got[:n], err, fresh)
	}
}

func TestAPortKnowsWhenAllWasReadThatHadCome(t *testing.T) {
	for _, kind := range []string{"serial", "UDP"} {
		q, vehicle := openKind(t, kind)
		wrote := time.Now()
		vehicle.Write([]byte{1})
		time.Sleep(20 * time.Millisecond) // it has come
		if n, err := q.Read(make([]byte, 10)); n != 1 || err != nil {
			t.Fatal(kind, n, err)
		}
		lineEqual(t, kind+": a read that found something says that all was read", q.emptyAt().After(wrote), false)
		began := time.Now()
		q.SetReadDeadline(began.Add(20 * time.Millisecond))
		if _, err := q.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(kind, err)
		}
		lineEqual(t, kind+": so does one that found nothing", q.emptyAt().Before(began), false)
	}
}

// openKind opens a port, and returns the vehicle's end of its line.
func openKind(t *testing.T, kind string) (port, io.Writer) {
	t.Helper()
	if kind == "serial" {
		p := openPTY(t)
		return p.open(t), p.master
	}
	q := openUDP(t)
	return q, dialed(t, "udp", listensAt(t, q))
}

// busyLine is a port to which something comes each 0.1 ms, until the test ends.
func busyLine(t *testing.T, kind string) port {
	t.Helper()
	q, vehicle := openKind(t, kind)
	t.Cleanup(repeat(100*time.Microsecond, func() { vehicle.Write([]byte{1}) }))
	return q
}

// waits counts the reads of a port that wait, for some time: a read that does not wait wakes nothing.
func waits(t *testing.T, q port, lasts time.Duration) (n int) {
	t.Helper()
	b := make([]byte, 2048)
	for began := time.Now(); time.Since(began) < lasts; {
		from := time.Now()
		if _, err := q.Read(b); err != nil {
			t.Fatal(err)
		}
		if time.Since(from) >= time.Millisecond {
			n++
		}
	}
	return n
}

// On a busy machine there can only be fewer waits.
func TestABusyLineWakesItsReaderFiftyTimesASecond(t *testing.T) {
	for _, kind := range []string{"serial", "UDP"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			q := busyLine(t, kind)
			began := time.Now()
			n := waits(t, q, 30*gatherFor)
			if most := int(time.Since(began)/gatherFor) + busyAfter + 1; n > most || n == 0 {
				t.Errorf("waited %d times in %v, want 1 to %d", n, time.Since(began), most)
			}
		})
	}
}

// What comes behind a question may be its answer. Only the best try counts: other programs use the processor too. So
// would this program's other tests, and one slice of Go's scheduler is as long as what is measured: it runs alone.
func TestABusyLineIsReadAsSoonAsAnythingComesBehindAQuestion(t *testing.T) {
	q := busyLine(t, "serial")
	longest := time.Hour
	for try := 0; try < 20 && longest >= gatherFor/2; try++ {
		waits(t, q, 10*gatherFor)
		q.Write([]byte{1})
		q.(hurrier).hurry()
		longest = 0
		for asked := time.Now(); time.Since(asked) < answersWithin/2; {
			from := time.Now()
			if _, err := q.Read(make([]byte, 2048)); err != nil {
				t.Fatal(err)
			}
			longest = max(longest, time.Since(from))
		}
	}
	if longest >= gatherFor/2 {
		t.Errorf("a read behind a question took %v, want less than %v", longest, gatherFor/2)
	}
}

// hurriedPort counts how often what answers is awaited.
type hurriedPort struct {
	*cable
	hurried int
}

func (p *hurriedPort) hurry() { p.hurried++ }

// What nobody waits for would wake the reader of a full line with each burst for 50 ms.
func TestOnlyWhatAwaitsAnAnswerIsAnsweredAtOnce(t *testing.T) {
	asks := func(cmd common.MAV_CMD, id uint32) message.Message {
		return &common.MessageCommandLong{Command: cmd, Param1: float32(id)}
	}
	for _, row := range []struct {
		what string
		m    message.Message
		want int
	}{
		{"a HEARTBEAT", px4Beat(), 0},
		{"a question for a stream", asks(common.MAV_CMD_SET_MESSAGE_INTERVAL, idHeartbeat), 0},
		{"a question for a message", asks(common.MAV_CMD_REQUEST_MESSAGE, idSysStatus), 0},
		{"a question for the report", asks(common.MAV_CMD_REQUEST_MESSAGE, idHeartbeat), 1},
		{"a command", asks(common.MAV_CMD_NAV_TAKEOFF, 0), 1},
		{"a place", &common.MessageCommandInt{}, 1},
		{"a question for its time", &common.MessageTimesync{}, 1},
		{"a question for a parameter", &common.MessageParamRequestRead{ParamId: "A"}, 1},
		{"a stick", &common.MessageManualControl{}, 1},
	} {
		p := &hurriedPort{cable: newCable(func(lineMessage) {})}
		lineEqual(t, row.what+" is written", newWriter(mute().link, p).put(outgoing{msg: row.m}), nil)
		lineEqual(t, row.what+" awaits an answer", p.hurried, row.want)
	}
}

// A pseudo-terminal keeps some 12 kB: at ten times a full link's rate half of what comes in 20 ms would not be taken.
func TestWhatComesQuicklyGathersForLess(t *testing.T) {
	for _, row := range []struct {
		came       int
		span, want time.Duration
	}{
		{0, gatherFor, gatherFor},
		{1843, gatherFor, gatherFor},
		{9 * terminalKeeps, 9 * time.Millisecond, time.Millisecond},
	} {
		lineEqual(t, fmt.Sprint(row.came, " bytes"), (&gatherer{came: row.came, span: row.span}).gathering(), row.want)
	}
	p := openPTY(t)
	q := p.open(t)
	end := repeat(time.Millisecond, func() { p.master.Write(make([]byte, 4000)) })
	defer end()
	defer p.master.SetWriteDeadline(time.Now()) // a write that nobody reads waits
	g := q.(*serialPort).descriptor.(*gatherer)
	for began := time.Now(); g.came == 0 || g.gathering() == gatherFor; waits(t, q, gatherFor) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("what comes quickly gathers as long as what does not")
		}
	}
}

// The kernel can't watch a file.
func TestADescriptorThatCanNotBeWatchedIsReadThePlainWay(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	lineEqual(t, "the same descriptor", gather(f) == descriptor(f), true)
	_, err = f.WriteString("it is open")
	lineEqual(t, "a write", err, nil)
}

// A line that brings more than one read takes, ten times a full link, is read on at once: a terminal keeps no more than
// 4 kB. Only the ratio to a bare reader counts.
func TestAFastLineIsReadAsFastAsByABareReader(t *testing.T) {
	t.Parallel()
	stream, _ := captured(t, "px4")
	took := func(of func(*pty, port) io.Reader) time.Duration {
		p := openPTY(t)
		q := p.open(t)
		const total = fullLink * 5
		began := time.Now()
		var pouring sync.WaitGroup
		pouring.Go(func() { pour(p.master, stream, 10*fullLink, total, t.Context().Done()) })
		r, b := of(p, q), make([]byte, 2048)
		for got := 0; got < total; {
			n, err := r.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		pouring.Wait()
		return time.Since(began)
	}
	var ours, bare time.Duration
	for try := range 10 { // the quickest of each: others use the processor too
		b := took(func(p *pty, _ port) io.Reader { return p.keeper })
		o := took(func(_ *pty, q port) io.Reader { return q })
		if try == 0 {
			ours, bare = o, b
		}
		ours, bare = min(ours, o), min(bare, b)
		if ours <= 2*bare {
			return
		}
	}
	t.Errorf("took %v, a bare reader %v", ours, bare)
}

func TestTheSenderOfADatagramIsKnownInBothVersionsOfIP(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1:0": "127.0.0.1", "[::1]:0": "::1"} {
		l, err := listenUDP(listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		from := dialed(t, "udp", listensAt(t, l))
		from.Write([]byte("frame"))
		b := make([]byte, 10)
		n, err := l.Read(b)
		sender := l.(*udpPort).sender()
		port := from.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		if err != nil || string(b[:n]) != "frame" || sender != netip.AddrPortFrom(netip.MustParseAddr(want), port) {
			t.Errorf("%s: %q of %v, %v; want it of %s", listen, b[:n], sender, err, want)
		}
	}
	linkLocal := sockaddr{0: byte(syscall.AF_INET6), 2: 1, 3: 2, 8: 0xfe, 9: 0x80, 23: 7, 24: 3}
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		lineEqual(t, "with a zone", linkLocal.addrPort(), netip.MustParseAddrPort("[fe80::7%3]:258"))
	}
}

// What an allocation takes is 2 % of a quiet line.
func TestAReadOfADatagramAllocatesNothing(t *testing.T) {
	l, err := listenUDP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from := dialed(t, "udp", listensAt(t, l))
	b := make([]byte, 10)
	lineEqual(t, "allocations", testing.AllocsPerRun(100, func() {
		from.Write(b)
		l.Read(b)
	}), 0)
}

func TestASerialPortIsClosedWhenItsOutputIsSentOrTheLineHasStopped(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	q := p.open(t)
	last := packet(1, 255, componentID, &common.MessageManualControl{Target: 1, X: math.MaxInt16})
	for range 3 {
		q.Write(last)
	}
	q.Close()
	got := make([]byte, 3*len(last))
	p.master.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadFull(p.master, got); err != nil || !bytes.Equal(got, slices.Concat(last, last, last)) {
		t.Errorf("what was written before the close: %x, %v", got, err)
	}

	s := p.open(t).(*serialPort)
	dropped, drop := context.WithCancel(t.Context())
	s.line = &stoppedLine{s.line, dropped, drop}
	began := time.Now()
	if err := s.Close(); err != nil || time.Since(began) < drainTimeout {
		t.Errorf("closed in %v, %v", time.Since(began), err)
	}
}

func TestAPortThatHangsIsLeftAndItsLineClosesWhenItIsUnplugged(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	s := p.open(t).(*serialPort)
	line := &hungLine{s.line, make(chan struct{}), make(chan struct{}, 2)} // the cleanup closes it again
	s.line = line
	began := time.Now()
	if err := s.Close(); err != nil { // without an end the test times out
		t.Error(err)
	}
	if took := time.Since(began); took > 10*drainTimeout {
		t.Errorf("closed after %v, want %v and what a busy machine adds", took, 2*drainTimeout)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read after the close: %v", err)
	}
	select {
	case <-line.closed:
		t.Error("the line was closed while its driver still drains")
	default:
	}
	close(line.unplugged)
	<-line.closed
}

// The last good rate and the first one change places: no rate is tried twice.
func TestASearchTriesEachBaudRateOnceTheLastGoodOneFirst(t *testing.T) {
	for last, want := range map[int64]string{
		0:      "[921600 57600 115200 460800 500000 230400 1500000]",
		921600: "[921600 57600 115200 460800 500000 230400 1500000]",
		115200: "[115200 57600 921600 460800 500000 230400 1500000]",
	} {
		lineEqual(t, fmt.Sprintf("rates after %d", last), fmt.Sprint((&serialDevice{lineState: atBaud(last)}).rates()),
			want)
	}
	lineEqual(t, "a fixed rate", fmt.Sprint((&serialDevice{fixed: 38400, lineState: atBaud(38400)}).rates()), "[38400]")
}

// A program that stood still finds its deadline over, and what came meanwhile.
func TestWhatHasComeIsReadThoughTheDeadlineIsOver(t *testing.T) {
	t.Parallel()
	terminal := openPTY(t)
	serial := terminal.open(t)
	udp := openUDP(t)
	vehicle := dialed(t, "udp", listensAt(t, udp))
	for name, line := range map[string]struct {
		port port
		say  func(b []byte)
	}{
		"serial": {serial, func(b []byte) { terminal.write(t, b) }},
		"UDP":    {udp, func(b []byte) { vehicle.Write(b) }},
	} {
		line.port.SetReadDeadline(time.Now().Add(-time.Second))
		b := make([]byte, 10)
		for range 3 {
			line.say([]byte("frame"))
			n, err := line.port.Read(b)
			lineEqual(t, name+": what came", fmt.Sprintf("%q %v", b[:n], err), `"frame" <nil>`)
			_, err = line.port.Read(b)
			lineEqual(t, name+": nothing has come", err, os.ErrDeadlineExceeded)
		}
		line.port.Close()
		_, err := line.port.Read(b)
		lineEqual(t, name+": it is closed", errors.Is(err, os.ErrDeadlineExceeded), false)
	}
}

// Else what was heard just before a request would seem to come behind it.
func TestBytesCameNoEarlierThanTheyWereSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := dialed(t, "tcp", l.Addr().String())
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newQuietTCP(accepted.(*net.TCPConn))
	defer c.Close()
	for range 100 {
		sent := time.Now()
		client.Write([]byte{1})
		c.Read(make([]byte, 1))
		time.Sleep(300 * time.Microsecond)
		if came := c.lastCame(); came.Before(sent) {
			t.Fatalf("they came %v before they were sent", sent.Sub(came))
		}
	}
}

func TestASerialReadEndsAtItsDeadlineAndTheNextOneReadsOn(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	q := p.open(t)
	until := time.Now().Add(150 * time.Millisecond)
	q.SetReadDeadline(until)
	n, err := q.Read(make([]byte, 10))
	if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(until) {
		t.Errorf("read %d bytes, %v, %v before the deadline", n, err, time.Until(until))
	}
	q.SetReadDeadline(time.Now().Add(time.Hour))
	p.write(t, []byte{1, 2, 3})
	if n, err = q.Read(make([]byte, 10)); n != 3 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	q.SetReadDeadline(time.Time{})
	time.AfterFunc(250*time.Millisecond, func() { p.master.Write([]byte{4}) })
	if n, err = q.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("without a deadline: read %d bytes, %v", n, err)
	}
}

func TestADeviceThatCanNotBeOpenedSaysWhatToDo(t *testing.T) {
	t.Setenv("USER", "pilot")
	p, busy := openPTY(t), openPTY(t)
	busy.open(t)
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := os.Chmod(p.path, 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		device string
		nobody bool
		says   string
	}{
		{"/dev/nowhere", false, "there is no such device; check the wiring, and enable the board's serial port"},
		{"/dev/null", false, "this is not a serial port"},
		{dir, false, "this is not a serial port"},
		{busy.path, false, "in use by another program; stop that program first (fuser " + busy.path + " shows which)"},
		{p.path, true, "no permission; add this user to the device's group: sudo usermod -aG dialout pilot"},
		{"udpin://" + socket.LocalAddr().String(), false,
			"the port is in use by another program; stop that program, or use another port"},
		{"udpin://192.0.2.1:14550", false, "this board has no such address; 0.0.0.0 stands for all of its addresses"},
		{"udpin://127.0.0.1:1", true, "a port below 1024 needs root or CAP_NET_BIND_SERVICE (sudo setcap " +
			"cap_net_bind_service=+ep mavrest); use another port"},
		{"udpout://nobody.invalid:14550", false,
			"no computer of that name was found; check the name, or give its address"},
		{"tcp://" + freeAddress(t, "tcp"), false,
			"no program listens there; start the autopilot's side, or check the address and the port"},
	} {
		dev := mustDevice(t, c.device, 57600)
		open := func() {
			q, err := dev.open(t.Context())
			if err == nil {
				q.Close()
				t.Errorf("%s was opened", c.device)
				return
			}
			lineEqual(t, c.device, openFault(c.device, err).Error(), c.says)
		}
		switch {
		case c.nobody && strings.HasSuffix(c.device, ":1") && lowPortsNeedNoRights(): // nothing refuses it here
		case c.nobody:
			asNobody(t, open)
		default:
			open()
		}
	}
}

// The error is in the status and in every command's answer until the device opens.
func TestADeviceThatComesLaterIsWaitedForAndLinkErrorSaysWhy(t *testing.T) {
	t.Parallel()
	b := newPortFolder(t)
	d, _ := runDevice(t, mustDevice(t, b.at("serial0"), 57600))
	why := "-device " + b.at("serial0") +
		": there is no such device; check the wiring, and enable the board's serial port"
	waitUntil(t, "the status says why", func() bool { return fmt.Sprint(d.snapped().link.fault) == why })
	_, err := d.do(holdHere)
	lineEqual(t, "code", code(err), codeOffline)
	lineEqual(t, "a command's error", err.Error(), why)
	p := openPTY(t)
	p.fly(t, runSimulator(t, simPX4))
	b.plug("serial0", p)
	waitUntil(t, "the vehicle is online", d.hearsVehicle)
	lineEqual(t, "link.error", d.snapped().link.fault, nil)
}

// ---- -device auto ----

func TestAutoTakesTheFirstPortThatBringsMAVLinkAndLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	b := newPortFolder(t, "absent", "busy", "kernel", "login", "silent", "serial0", "again", "ttyTHS1")
	busy, kernel, login, silent := b.plug("busy", openPTY(t)), b.plug("kernel", openPTY(t)), b.plug("login",
		openPTY(t)), b.plug("silent", openPTY(t))
	busy.open(t)
	os.WriteFile(b.at("consoles"), []byte("tty1 "+filepath.Base(kernel.path)+"\n"), 0o644)
	b.logIn(login)
	d, _ := runDevice(t, b.auto(115200))
	why := fmt.Sprintf("-device auto: no autopilot found; tried %s (in use by another program; stop that program "+
		"first (fuser %[1]s shows which)), "+
		"%s (a console uses it; turn the console off), %s (a console uses it; turn the console off), %s (no MAVLink "+
		"at any baud rate that was tried)",
		b.at("busy"), b.at("kernel"), b.at("login"), b.at("silent"))
	waitUntil(t, "link.error says what was tried", func() bool { return d.snapped().link.fault.Error() == why })
	lineEqual(t, "link.device", d.snapped().link.device, "auto")
	_, err := d.do(holdHere)
	lineEqual(t, "a command's error", code(err), codeOffline)

	// The port comes later, and has two names.
	p, other := openPTY(t), openPTY(t)
	p.fly(t, runSimulator(t, simArduPilot))
	b.plug("serial0", p)
	b.plug("again", p)
	b.plug("ttyTHS1", other)
	d.awaitStarted(t)
	lineEqual(t, "link.error", d.snapped().link.fault, nil)
	lineEqual(t, "link.device", d.snapped().link.device, b.at("serial0"))
	lineEqual(t, "link.baud", d.snapped().link.baud, 115200)
	lineEqual(t, "line speed", p.speed(t), 115200)
	if _, err := d.do(holdHere); err != nil {
		t.Error(err)
	}
	for what, p := range map[string]*pty{"the busy one": busy, "the kernel's console": kernel, "the login": login,
		"the port after the autopilot's": other} {
		b.untouched(what, p)
	}
	var line []byte
	silent.drain(&line)
	for _, m := range parseLine(line) {
		lineEqual(t, "the silent port was sent our heartbeat", isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)(m), true)
	}
}

func TestAutoSaysWhereItLookedWhereThereIsNoPort(t *testing.T) {
	_, err := newPortFolder(t).auto(0).open(t.Context())
	lineEqual(t, "link.error", openFault("auto", err).Error(),
		"no port to try: no autopilot in /dev/serial/by-id, and no "+
			"/dev/serial0, /dev/ttyAMA0, /dev/ttyTHS1, /dev/ttyTHS0; check the wiring, enable the board's serial "+
			"port, "+
			"or name the port with -device")
}

// The port that was found is tried first: another one may be another vehicle's.
func TestAutoGoesBackToThePortThatItLost(t *testing.T) {
	t.Parallel()
	s := runSimulator(t, simPX4)
	b := newPortFolder(t, "first", "second")
	p := b.plug("second", openPTY(t))
	end := p.fly(t, s)
	d, _ := runDevice(t, b.auto(0))
	waitUntil(t, "the vehicle is online", d.hearsVehicle)
	lineEqual(t, "link.device", d.snapped().link.device, b.at("second"))

	first := b.plug("first", openPTY(t))
	p = b.plug("second", openPTY(t))
	end()
	d.hearsMore(t, func() { end = p.fly(t, s) })
	lineEqual(t, "link.device after it was lost", d.snapped().link.device, b.at("second"))
	b.untouched("the other one", first)

	os.Remove(b.at("second"))
	end()
	d.hearsMore(t, func() { first.fly(t, s) })
	lineEqual(t, "link.device when it is gone", d.snapped().link.device, b.at("first"))
}

func TestOfTwoPortsWithMAVLinkAutoTakesTheFirst(t *testing.T) {
	t.Parallel()
	b := newPortFolder(t, "usb", "serial0")
	usb, serial0 := b.plug("usb", openPTY(t)), b.plug("serial0", openPTY(t))
	usb.fly(t, runSimulator(t, simPX4))
	defer repeat(100*time.Millisecond, func() { serial0.master.Write(packet(1, 2, 1, copterBeat())) })()
	d, _ := runDevice(t, b.auto(0))
	waitUntil(t, "the vehicle is online", d.hearsVehicle)
	lineEqual(t, "link.device", d.snapped().link.device, b.at("usb"))
	lineEqual(t, "its vehicle", d.snapped().tel.id.system, 1)
	b.untouched("the other one", serial0)
}

func TestAutoLeavesNothing(t *testing.T) {
	nothingLeft(t, func(t *testing.T) {
		b := newPortFolder(t, "busy", "silent", "plain")
		busy, silent := b.plug("busy", openPTY(t)), b.plug("silent", openPTY(t))
		held := busy.open(t)
		if err := os.WriteFile(b.at("plain"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := b.auto(57600).open(t.Context()); err == nil {
			t.Error("a port was found")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := b.auto(57600).open(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
		held.Close()
		busy.unplug()
		silent.unplug()
	})
}

// Names as udev makes them from the USB descriptors of PX4's and ArduPilot's boards.
func TestAutopilotsAreKnownByTheirUSBNames(t *testing.T) {
	for name, want := range map[string]bool{
		"usb-3D_Robotics_PX4_FMU_v2.x_0-if00":                      true,
		"usb-Auterion_PX4_FMU_v6X.x_0-if00":                        true,
		"usb-ArduPilot_Pixhawk1_390038000B51343132393437-if00":     true,
		"usb-ArduPilot_MatekH743_2C0031000E51303432323138-if02":    true,
		"usb-Hex_ProfiCNC_CubeBlack_1D0034000F51373430313637-if00": true,
		"usb-CubePilot_CubeOrange+_2D003A001651313132353335-if00":  true,
		"usb-mRo_mRoControlZeroH7_0-if00":                          true,
		"usb-ARK_ARK_FPV.x_0-if00":                                 true,
		"usb-3D_Robotics_PX4_BL_FMU_v2.x_0-if00":                   false, // its boot loader
		"usb-ArduPilot_Pixhawk1-BL_390038000B51343132393437-if00":  false,
		"usb-INAV_MatekH743_2C0031000E51303432323138-if00":         false,
		"usb-Betaflight_Matek_F405_0x8000000-if00":                 false,
		"usb-BETAFLIGHT_Holybro_Kakute_0x8000000-if00":             false,
		"usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0":             false,
		"usb-Silicon_Labs_CP2102_USB_to_UART_Bridge_0001-if00":     false,
		"usb-u-blox_AG_u-blox_GNSS_receiver-if00":                  false,
		"usb-Arduino__www.arduino.cc__0043_7573530323035150-if00":  false,
		"usb-SimTech__Incorporated_SimTech__SIM7600-if02-port0":    false,
		"usb-SPARKFUN_SPARK_0-if00":                                false,
	} {
		lineEqual(t, name, isBoard(name), want)
	}
}

// ---- Before MAVLink was heard ----

func TestUntilMAVLinkIsHeardOnlyQuietHeartbeatsGoOutAndNoneInTheFirstSecond(t *testing.T) {
	for _, only := range []byte{0, 35, 77} {
		inLinkBubble(t, func(t *testing.T) {
			p := &mutePort{cable: newCable(func(lineMessage) {})}
			open := func(context.Context) (port, error) { return p, nil }
			d := newDrone(device{name: "quiet", open: open}, only, true, slog.Default())
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { d.run(ctx) })
			began := time.Now()
			time.Sleep(4*time.Minute + 100*time.Millisecond)
			written, at := p.taken()
			lineEqual(t, "heartbeats in 4 minutes", len(at), 4*60)
			lineEqual(t, "the first one", at[0].Sub(began), time.Second)
			lineEqual(t, "bytes beside the allowed ones", loud(written), 0)
			for _, m := range parseLine(written) {
				lineEqual(t, "it is our heartbeat", isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)(m) &&
					m.component == componentID, true)
			}

			// PX4's USB begins to speak at a heartbeat of 9 bytes, of either version.
			lineEqual(t, "a heartbeat's begin", fmt.Sprint(written[:2]), "[253 9]")

			p.toLink <- packet(1, cmp.Or(only, 1), 1, px4Beat())
			time.Sleep(3 * time.Second)
			written, _ = p.taken()
			said := slices.ContainsFunc(parseLine(written), isBeat(minimal.MAV_TYPE_GCS))
			lineEqual(t, "then our heartbeats go out as ever", said, true)
			end()
			running.Wait()
		})
	}
}

func TestThePortThatSpeaksMSPIsNamedInTheStatus(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		p := &mutePort{cable: newCable(func(lineMessage) {})}
		open := func(context.Context) (port, error) { return p, nil }
		d := newDrone(device{name: "quiet", open: open}, 0, false, slog.Default())
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.run(ctx) })
		time.Sleep(time.Second)
		p.toLink <- []byte("$M>\x00$M>")
		time.Sleep(20 * time.Second)
		said := fmt.Sprint(d.snapped().link.fault)
		lineEqual(t, "link.error says it: "+said, strings.Contains(said, "INAV or Betaflight"), true)
		end()
		running.Wait()
	})
}

// ---- UDP and TCP ----

// In real time, on real sockets, as a read of nothing is only there: heard_test.go has what else a stranger sends.
func TestStrangersOnUDPDoNotStealTheLink(t *testing.T) {
	beat := px4Beat()
	for name, datagrams := range map[string][][]byte{
		"noise": {[]byte("GET / HTTP/1.1\r\n\r\n"),
			bytes.Repeat([]byte{frame.V2MagicByte}, 1400)},
		"nothing": {{}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			b := listenForVehicles(t)
			vehicle, stranger := b.dial(t), b.dial(t)
			stranger.Write(packet(1, 255, 190, heartbeat(minimal.MAV_TYPE_GCS)))
			vehicle.say(t, beat)
			b.seen(t, vehicle, 1)
			for range 3 {
				for _, d := range datagrams {
					stranger.Write(d)
					vehicle.say(t, beat)
				}
			}
			for _, d := range datagrams {
				stranger.Write(d)
			}
			b.seen(t, vehicle, 2)
			vehicle.hears(t, b.mark(77))
			lineEqual(t, "a datagram went to the stranger", datagramWaits(t, stranger.Conn), false)
			lineEqual(t, "times that the port was opened", b.opens.Load(), 1)
		})
	}
}

// A read that fails has no sender, and must not replace the last one.
func TestAFailedReadOfAUDPPortKeepsItsLastSender(t *testing.T) {
	p := openUDP(t)
	vehicle := dialed(t, "udp", listensAt(t, p))
	vehicle.Write([]byte{1})
	b := make([]byte, 10)
	if _, err := p.Read(b); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if n, err := p.Read(b); err == nil {
		t.Fatalf("read %d bytes from a closed port", n)
	}
	lineEqual(t, "the sender", p.sender().String(), vehicle.LocalAddr().String())
}

func TestAFrameCountsAsSentOnlyIfTheUDPPortHasAVehicle(t *testing.T) {
	p := openUDP(t)
	l := newLink(device{name: "udpin"}, 0, false, slog.Default(), events{})
	w := newWriter(l, p)
	beat := outgoing{system: 1, component: componentID, msg: heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)}
	lineEqual(t, "the error without a vehicle", w.put(beat), nil)
	lineEqual(t, "frames sent without a vehicle", l.sent.Load(), 0)

	vehicle := &vehicleSocket{Conn: dialed(t, "udp", listensAt(t, p))}
	vehicle.say(t, px4Beat())
	if _, err := p.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	l.address.at = p.sender()
	lineEqual(t, "the error with a vehicle", w.put(beat), nil)
	lineEqual(t, "frames sent to it", l.sent.Load(), 1)
	vehicle.hears(t, isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
}

// Most autopilots put each frame into a datagram of its own.
func TestUnknownMessagesInDatagramsOfTheirOwnAreHeardAndNotLost(t *testing.T) {
	b := listenForVehicles(t)
	vehicle := b.dial(t)
	vehicle.say(t, px4Beat())
	for range 50 {
		vehicle.seq++
		vehicle.Write(unknownPacket(vehicle.seq, 20))
		vehicle.say(t, attitudeAt(1))
	}
	b.seen(t, vehicle, 1)
	s := b.snapped()
	lineEqual(t, "frames received", s.link.received, 52) // the others can't be checked
	lineEqual(t, "frames lost", s.link.lost, 0)
	lineEqual(t, "errors", s.link.errors, 0)
}

// In real time, on real sockets: heard_test.go has the cases.
func TestAVehicleThatComesFromAnotherUDPPortIsFollowed(t *testing.T) {
	t.Parallel()
	b := listenForVehicles(t)
	began := time.Now()
	for i := range 2 {
		vehicle := b.dial(t)
		waitUntil(t, "the vehicle is heard at its new port", func() bool {
			vehicle.say(t, px4Beat())
			vehicle.say(t, &common.MessageAttitude{TimeBootMs: uint32(time.Since(began).Milliseconds()),
				Pitch: float32(i+1) / 100})
			s := b.snapped()
			return math.Round(s.tel.attitude.pitch*math.Pi/1.8) == float64(i+1)
		})
		vehicle.hears(t, b.mark(int16(100+i)))
	}
	s := b.snapped()
	lineEqual(t, "texts of a restart", strings.Contains(strings.Join(said(&s.tel.texts), "|"), "started again"), false)
}

// Another program may change the settings of a line that is open. In real time: the line is the kernel's.
func TestASilentLineIsSetAnew(t *testing.T) {
	t.Parallel()
	p := openPTY(t)
	dev, opens, _ := withCounts(mustDevice(t, p.path, 57600))
	d, _ := runDevice(t, dev)
	waitUntil(t, "it is open", func() bool { return p.speed(t) == 57600 })
	var other syscall.Termios
	if err := ioctl(p.keeper, syscall.TCGETS, unsafe.Pointer(&other)); err != nil {
		t.Fatal(err)
	}
	other.Cflag = other.Cflag&^0o10017 | syscall.B115200
	if err := ioctl(p.keeper, syscall.TCSETS, unsafe.Pointer(&other)); err != nil {
		t.Fatal(err)
	}
	lineEqual(t, "another program's rate", p.speed(t), 115200)
	waitUntil(t, "its rate is ours again", func() bool { return p.speed(t) == 57600 })
	lineEqual(t, "times that it was opened", opens.Load(), 1)
	waitUntil(t, "a frame is heard", func() bool {
		p.master.Write(packet(1, 1, 1, px4Beat()))
		return d.hearsVehicle()
	})
}

func TestALineThatFlapsLeavesNothing(t *testing.T) {
	nothingLeft(t, func(t *testing.T) {
		rounds := 3
		if *runAll {
			rounds = 30
		}
		tcp := freeAddress(t, "tcp")
		flapping(t, mustDevice(t, "tcp://"+tcp, 0), rounds, func() (func([]byte), func()) {
			l, err := net.Listen("tcp", tcp)
			if err != nil {
				t.Fatal(err)
			}
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return func(b []byte) { c.Write(b) }, func() { c.Close(); l.Close() }
		})
		udp := freeAddress(t, "udp")
		flapping(t, mustDevice(t, "udpout://"+udp, 0), rounds, func() (func([]byte), func()) {
			c, err := net.ListenPacket("udp", udp)
			if err != nil {
				t.Fatal(err)
			}
			_, from, err := c.ReadFrom(make([]byte, 4096))
			if err != nil {
				t.Fatal(err)
			}
			return func(b []byte) { c.WriteTo(b, from) }, func() { c.Close() }
		})
		b := newPortFolder(t)
		flapping(t, mustDevice(t, b.at("serial0"), 57600), rounds, func() (func([]byte), func()) {
			p := b.plug("serial0", openPTY(t))
			return func(m []byte) { p.master.Write(m) }, p.unplug
		})
	})
}

func TestUDPOutSendsFirstAndKeepsRunningWithoutAVehicle(t *testing.T) {
	t.Parallel()
	address := freeAddress(t, "udp") // no program listens there yet
	dev, opens, _ := withCounts(mustDevice(t, "udpout://"+address, 0))
	d, _ := runDevice(t, dev)
	waitUntil(t, "link.error says why", func() bool {
		f := d.snapped().link.fault
		return f != nil && strings.Contains(f.Error(), "no program listens there")
	})
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Skipf("another program has taken the port: %v", err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 4096)
	n, from, err := c.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	heard := parseLine(b[:n])
	lineEqual(t, "the link's first message is its heartbeat", len(heard) == 1 &&
		isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)(heard[0]), true)
	c.WriteTo(packet(1, 1, 1, px4Beat()), from)
	waitUntil(t, "the link is online", d.hearsVehicle)
	lineEqual(t, "link.error", d.snapped().link.fault, nil)
	lineEqual(t, "times that the port was opened", opens.Load(), 1)
}

// In real time, on real sockets, as PX4's port is only there. Two programs send to one router, with one -system and
// with two. Each restarts in flight, and is silent for over silentAfter.
func TestEachProgramKeepsItsUDPPortThoughItRestartsOrHearsNothing(t *testing.T) {
	t.Parallel()
	wanted := make(map[uint16]bool)
	for name, systems := range map[string][2]byte{"one -system": {1, 1}, "two": {0, 1}} {
		r := newRouterOfFreePorts(t, systems, wanted)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stop := r.speaks()
			run := func(system byte) (d *drone, end func()) {
				dev, err := newDevice("udpout://"+r.LocalAddr().String(), 0, system)
				if err != nil {
					t.Fatal(err)
				}
				d, end = runDevice(t, dev)
				waitUntil(t, "it is online", d.hearsVehicle)
				return d, end
			}
			_, endFirst := run(systems[0])
			_, endSecond := run(systems[1])
			endFirst()
			first, _ := run(systems[0])
			endSecond()
			second, _ := run(systems[1])

			stop()
			time.Sleep(silentAfter + time.Second)
			lineEqual(t, "online in an outage", first.hearsVehicle() || second.hearsVehicle(), false)
			stop = r.speaks()
			waitUntil(t, "both are online again", func() bool { return first.hearsVehicle() && second.hearsVehicle() })
			stop()
			low := int(firstLocalPort())
			for _, c := range r.clients {
				if port := c.(*net.UDPAddr).Port; port < low || port >= low+localPorts {
					t.Errorf("port %d is not below the kernel's range", port)
				}
			}
		})
	}
}

// newRouterOfFreePorts returns a router of two programs whose local ports nobody has, and nobody wanted before: where
// another test's program, of this process or of another, has one and leaves it, a program that starts again takes it
// back, and is a third address.
func newRouterOfFreePorts(t *testing.T, systems [2]byte, wanted map[uint16]bool) *router {
	t.Helper()
	for {
		r := newRouter(t, len(systems))
		ports := make(map[uint16]bool)
		for i, system := range systems {
			// The second of one system takes the next port.
			local := newUDPOut(r.LocalAddr().String(), system).local
			ports[local] = true
			ports[local+uint16(i)] = true
		}
		free := true
		for port := range ports {
			c, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
			if err == nil {
				c.Close()
			}
			free = free && err == nil && !wanted[port]
			wanted[port] = true
		}
		if free {
			return r
		}
	}
}

func TestTheLocalUDPPortDependsOnTheOtherEndAndTheSystem(t *testing.T) {
	at := func(address string, system byte) uint16 { return newUDPOut(address, system).local }
	lineEqual(t, "the same twice", at("10.0.0.2:14550", 1), at("10.0.0.2:14550", 1))
	ports := make(map[uint16]bool)
	for system := range byte(20) {
		ports[at("10.0.0.2:14550", system)] = true
		ports[at("10.0.0.3:14550", system)] = true
	}
	if len(ports) < 36 {
		t.Errorf("40 programs have %d ports", len(ports))
	}
}

// A name that stands for another address is followed, from the same port, once its old address is silent.
func TestUDPOutFollowsANameToItsNewAddress(t *testing.T) {
	t.Parallel()
	old := newRouter(t, 1)
	next, err := net.ListenPacket("udp", "127.0.0.2:"+fmt.Sprint(old.LocalAddr().(*net.UDPAddr).Port))
	if err != nil {
		t.Skipf("no second address on this machine: %v", err)
	}
	defer next.Close()
	u := newUDPOut("drone.invalid:"+fmt.Sprint(old.LocalAddr().(*net.UDPAddr).Port), 0)
	var address atomic.Pointer[netip.Addr]
	move := func(to string) {
		a := netip.MustParseAddr(to)
		address.Store(&a)
	}
	move("127.0.0.1")
	u.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return []netip.Addr{*address.Load()}, nil }
	d, _ := runDevice(t, device{name: "udpout", datagrams: true, open: u.open})
	stop := old.speaks()
	waitUntil(t, "it is online", d.hearsVehicle)
	move("127.0.0.2")
	time.Sleep(silentAfter + time.Second)
	lineEqual(t, "online while the old address is heard", d.hearsVehicle(), true)
	stop()
	next.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 4096)
	_, from, err := next.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	lineEqual(t, "our port", from.(*net.UDPAddr).Port, old.clients[0].(*net.UDPAddr).Port)
	next.WriteTo(packet(200, 1, 1, px4Beat()), from)
	waitUntil(t, "it is online at the new address", d.hearsVehicle)
}

// A TCP connection of which nothing comes is kept while its other end acknowledges what is sent. In real time, as the
// kernel's acknowledgements are.
func TestASilentTCPConnectionIsKeptAndADeadOneIsNot(t *testing.T) {
	t.Parallel()
	listener := listenTCP(t)
	dev, opens, _ := withCounts(mustDevice(t, "tcp://"+listener.Addr().String(), 0))
	d, _ := runDevice(t, dev)
	c, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.Sleep(2 * silentAfter)
	lineEqual(t, "times that it was opened in silence", opens.Load(), 1)
	ignore(t, c)
	waitUntil(t, "it is opened again", func() bool { return opens.Load() > 1 })
	waitUntil(t, "link.error says why", func() bool {
		return strings.Contains(fmt.Sprint(d.snapped().link.fault), "no answer from that address")
	})
}

func TestAnInvalidDeviceNameIsAnErrorWithAHint(t *testing.T) {
	const hint = "want auto, a serial device (/dev/serial0; a baud rate goes into -baud), udpin://0.0.0.0:14550, " +
		"udpout://host:port, tcp://host:port, sim, sim:ardupilot or replay:FILE; a port is a number from 1 to 65535"
	for _, name := range strings.Fields("127.0.0.1:14550 :14550 [::1]:14550 drone.local:5760 ttyACM0 simulator " +
		"sim:px4 Auto" +
		" udpin:// udpin://host udpin://14540 udpout://1.2.3.4 udpout://1.2.3.4:65536 udpout://1.2.3.4:http tcp://" +
		" http://127.0.0.1:80 udp: udp:14550 tcp:host tcpin://0.0.0.0:5760 serial:ttyS0" +
		" udpin://0.0.0.0:0 udpin://:0 udpout://10.0.0.2:0 tcp://10.0.0.2:0 udpout://:14550 tcp://:5760") {
		_, err := newDevice(name, 0, 0)
		if want := "-device " + name + ": " + hint; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for name, meant := range map[string]string{
		"udp:127.0.0.1:14550": "udpin://127.0.0.1:14550", "udpin:127.0.0.1:14550": "udpin://127.0.0.1:14550",
		"udpin:14550": "", "udpin::14550": "udpin://0.0.0.0:14550", "udp:0.0.0.0:14540": "udpin://0.0.0.0:14540",
		"udp://:14540": "udpin://0.0.0.0:14540", "UDP://:14540": "udpin://0.0.0.0:14540",
		"udp://:14540@127.0.0.1:14557": "udpin://0.0.0.0:14540", "udpout:10.0.0.2:14550": "udpout://10.0.0.2:14550",
		"tcp:127.0.0.1:5760": "tcp://127.0.0.1:5760", "tcp:[::1]:5760": "tcp://[::1]:5760",
		"tcpout://10.0.0.2:5760": "tcp://10.0.0.2:5760", "serial:/dev/ttyS0": "/dev/ttyS0",
		"serial:///dev/ttyACM0": "/dev/ttyACM0", "udp:127.0.0.1:0": "", "tcp::5760": "", "udpout::14550": "",
	} {
		lineEqual(t, name, meantDevice(name), meant)
		if meant == "" {
			continue
		}
		_, err := newDevice(name, 0, 0)
		lineEqual(t, name, fmt.Sprint(err), "-device "+name+": mavrest spells it -device "+meant)
		mustDevice(t, meant, 0)
	}
	folder := t.TempDir()
	odd := folder + "/ttyACM0:57600" // a device may have such a name
	if err := os.WriteFile(odd, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	byPath := "/dev/serial/by-path/platform-fd500000.pcie-pci-0000:01:00.0-usb-0:1.4:1.0-port0"
	for _, name := range []string{odd, byPath, "/dev/ttyAMA0", "/dev/serial/by-id/usb-3D_Robotics:0", "udpin://:14550",
		"udpin://0.0.0.0:14550", "udpout://10.0.0.2:14550", "tcp://[::1]:5760"} {
		if dev, err := newDevice(name, 0, 0); err != nil || dev.name != name {
			t.Errorf("-device %s: %q, %v", name, dev.name, err)
		}
	}
}

func TestABaudRateBehindTheDeviceIsAnErrorThatNamesTheFlag(t *testing.T) {
	for _, name := range []string{
		"/dev/ttyACM0:57600", "/dev/ttyACM0,57600", "/dev/ttyACM0@57600", "/dev/ttyACM0;57600", "/dev/ttyACM0 57600",
		"/dev/ttyACM0:57600:8N1", "serial:/dev/ttyACM0:57600", "serial:///dev/ttyACM0:57600",
		"serial:/dev/ttyACM0,57600",
		"serial:/dev/ttyACM0?baudrate=57600", "serial:///dev/ttyACM0?baud=57600",
	} {
		_, err := newDevice(name, 0, 0)
		want := "-device " + name + ": the baud rate goes into -baud: -device /dev/ttyACM0 -baud 57600"
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := newDevice("serial:/dev/serial/by-id/usb-FTDI_FT232R-if00-port0:921600", 0, 0); err == nil ||
		!strings.Contains(err.Error(), "-device /dev/serial/by-id/usb-FTDI_FT232R-if00-port0 -baud 921600") {
		t.Error(err)
	}
}

func TestAnAddressIsWrittenToAsItWasRead(t *testing.T) {
	for _, address := range []string{
		"192.0.2.7:14550", "[2001:db8::7]:1", "[::ffff:192.0.2.7]:65535", "[fe80::7%3]:14550",
	} {
		want := netip.MustParseAddrPort(address)
		s := sockaddrOf(want)
		lineEqual(t, address, s.addrPort(), want)
		lineEqual(t, address+": IPv4", s.size() == syscall.SizeofSockaddrInet4, want.Addr().Is4())
	}
}
