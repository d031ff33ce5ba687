package main

// What a link hears and logs, and a second client beside mavrest.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// earshot is a link without a port, whose reader a test feeds, and what it tells of the last feed.
type earshot struct {
	*link
	r   *reader
	now time.Time

	// heard: the vehicle's messages
	heard []heard

	// told: all events, in words
	told []string
}

func newEarshot(only byte) *earshot {
	e := &earshot{now: time.Now()}
	e.link = newLink(device{name: "none"}, only, false, slog.Default(), events{
		hear: func(h heard) {
			e.heard = append(e.heard, h.copied())
			e.tells(fmt.Sprintf("%d of %d", h.msg.GetID(), h.system))
		},
		hearForeignSticks: func(time.Time) { e.tells("foreign sticks") },
		hearReplaced:      func(time.Time, func()) { e.tells("replaced") },
		hearNotice:        e.tells,
	})
	e.r = &reader{link: e.link}
	return e
}

func (e *earshot) tells(event string) { e.told = append(e.told, event) }

// feed makes the reader read each of b, and returns the events that it tells, in words.
func (e *earshot) feed(b ...[]byte) (list []string) {
	e.heard = nil
	e.told = nil
	for _, p := range b {
		e.r.in.read(bytes.NewReader(p))
		for f, ok := e.r.in.next(); ok; f, ok = e.r.in.next() {
			e.r.handle(f, e.now)
		}
	}
	return e.told
}

// numbered127 are the frames 1 to 127.
func numbered127(at func(seq, component byte) []byte) (list [][]byte) {
	for seq := byte(1); seq < 128; seq++ {
		list = append(list, at(seq, 1))
	}
	return list
}

// recordedPort keeps the last bytes that were written.
type recordedPort struct {
	port
	last []byte
}

func (p *recordedPort) SetWriteDeadline(time.Time) error { return nil }

func (p *recordedPort) Write(b []byte) (int, error) {
	p.last = slices.Clone(b)
	return len(b), nil
}

// wantReopened checks that the port was opened a second time, at since + after or up to 0.3 s later.
func (b *lineBench) wantReopened(since time.Time, after time.Duration) {
	b.t.Helper()
	b.change(func() {
		if len(b.opens) != 2 {
			b.t.Fatalf("opened %d times, want 2", len(b.opens))
		}
		if d := b.opens[1].Sub(since); d < after || d > after+300*time.Millisecond {
			b.t.Errorf("reopened after %v, want %v", d, after)
		}
	})
}

// halfDead is a port whose reads end and whose writes hang.
type halfDead struct {
	connPort
	ended chan struct{}
}

func (p *halfDead) Read([]byte) (int, error) { <-p.ended; return 0, io.EOF }

// logLines returns a logger, and what was logged with it.
func logLines() (log *slog.Logger, lines func() string) {
	var mu sync.Mutex
	var b strings.Builder
	log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &b}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return log, func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *strings.Builder
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

var mavsdkPython = flag.String("mavsdk", "",
	"TestMavrestFliesBesideAnotherClient: a python3 that has mavsdk; CI installs one")

// route is a router as people run it beside mavrest (docs/install.md). It sends the
// autopilot's frames to both clients, and a client's to the autopilot and the other client.
func route(t *testing.T, autopilot io.ReadWriteCloser, clients ...string) {
	t.Helper()
	var conns []net.Conn
	for _, address := range clients {
		conns = append(conns, dialed(t, "udp", address))
	}
	var running sync.WaitGroup
	pass := func(from io.Reader, to func(b []byte)) {
		running.Go(func() {
			b := make([]byte, simBuffer) // the simulator writes only whole frames
			for {
				n, err := from.Read(b)
				if err == nil {
					to(b[:n])
				} else if !errors.Is(err, syscall.ECONNREFUSED) { // a client that does not listen yet
					return
				}
			}
		})
	}
	pass(autopilot, func(b []byte) {
		for _, c := range conns {
			c.Write(b)
		}
	})
	for i, c := range conns {
		pass(c, func(b []byte) {
			autopilot.Write(b)
			for j, other := range conns {
				if i != j {
					other.Write(b)
				}
			}
		})
	}
	t.Cleanup(func() {
		autopilot.Close()
		for _, c := range conns {
			c.Close()
		}
		running.Wait()
	})
}

// shared is one drone with two clients: mavrest and MAVSDK.
type shared struct {
	*testing.T
	mavrest *program
	to      io.Writer      // MAVSDK's stdin
	from    *bufio.Scanner // its stdout
}

// post sends mavrest a command.
func (p *shared) post(route, body string) (code int, answer object) {
	p.Helper()
	code, text := p.mavrest.post(p.T, route, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		p.Fatal(err)
	}
	return code, answer
}

// mavsdk sends MAVSDK a command.
func (p *shared) mavsdk(command string, args ...any) object {
	p.Helper()
	fmt.Fprintln(p.to, append([]any{command}, args...)...)
	return p.heard()
}

func (p *shared) heard() (answer object) {
	p.Helper()
	if !p.from.Scan() {
		p.Fatal("MAVSDK ended")
	}
	if err := json.Unmarshal(p.from.Bytes(), &answer); err != nil {
		p.Fatalf("%q: %v", p.from.Text(), err)
	}
	return answer
}

// agree waits until both clients show the same.
func (p *shared) agree(what string, mavrest, mavsdk func(object) bool) {
	p.Helper()
	var one, other object
	for end := time.Now().Add(fliesWithin); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		one, other = nil, p.mavsdk("state")
		if err := json.Unmarshal([]byte(p.mavrest.get(p.T, "/status")), &one); err != nil {
			p.Fatal(err)
		}
		if mavrest(one) && mavsdk(other) {
			return
		}
	}
	p.Fatalf("never both %s: mavrest %v, MAVSDK %v", what, one, other)
}

// disagree makes both clients send the same command at once, with one parameter that is
// refused and one that is accepted. The ack to one client is no answer to the other.
func (p *shared) disagree() {
	p.Helper()
	fmt.Fprintln(p.to, "disarm")
	code, answer := p.post("/mode", `{"arm":true}`)
	if code != http.StatusOK || answer["status"] != "accepted" {
		p.Errorf("mavrest's arming of an armed drone: %d %v", code, answer)
	}
	if got := p.heard(); got["result"] == "SUCCESS" {
		p.Errorf("MAVSDK's disarming in the air: %v", got)
	}
	fmt.Fprintln(p.to, "arm")
	code, answer = p.post("/mode", `{"arm":false}`)
	if code != http.StatusConflict || answer["code"] != "refused" {
		p.Errorf("mavrest's disarming in the air: %d %v", code, answer)
	}
	if got := p.heard(); got["result"] != "SUCCESS" {
		p.Errorf("MAVSDK's arming of an armed drone: %v", got)
	}
}

// connect starts MAVSDK and waits until it hears the drone.
func (p *shared) connect(address string) {
	p.Helper()
	_, server, _ := net.SplitHostPort(freeAddress(p.T, "tcp"))
	client := exec.Command(*mavsdkPython, "testdata/second_client.py", address, server)
	var log bytes.Buffer
	client.Stderr = &log
	to, err := client.StdinPipe()
	if err != nil {
		p.Fatal(err)
	}
	from, err := client.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	if err := client.Start(); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		to.Close() // then it ends, and its server too
		client.Wait()
		if p.Failed() {
			os.Stderr.Write(log.Bytes())
		}
	})
	p.to, p.from = to, bufio.NewScanner(from)
	p.heard()
}
