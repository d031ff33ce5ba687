package main

// The program as a process of its own.

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain is the program itself where a test starts it as a process.
func TestMain(m *testing.M) {
	if os.Getenv("MAVREST_PROGRAM") != "" {
		main()
		os.Exit(0)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	debug.SetGCPercent(400) // the simulated flights make much that is of no use a moment later
	flag.Parse()
	given := func(name string) string { return flag.Lookup("test." + name).Value.String() }
	if cores := runtime.GOMAXPROCS(0); given("fuzz") == "" && given("parallel") == strconv.Itoa(cores) {
		flag.Set("test.parallel", strconv.Itoa(8*cores)) // many wait in real time; the others: inBubbles
	}
	os.Exit(m.Run())
}

// program is mavrest as a process.
type program struct {
	*exec.Cmd
	stderr io.Closer
	log    *bufio.Scanner
	base   string          // of the API
	logged strings.Builder // the log until it listened
}

var listening = regexp.MustCompile(`msg=listening address=\S+:(\d+)`)

// commandLine is mavrest with these flags, not yet started.
func commandLine(t *testing.T, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), "MAVREST_PROGRAM=1")
	return c
}

// start runs mavrest on a free port until it listens.
func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: commandLine(t, append([]string{"-port", "0", "-bind", "127.0.0.1"}, args...)...)}
	p.Env = append(p.Env, env...)
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.stderr, p.log = stderr, bufio.NewScanner(stderr)
	for p.log.Scan() {
		p.logged.WriteString(p.log.Text() + "\n")
		if m := listening.FindStringSubmatch(p.log.Text()); m != nil {
			p.base = "http://127.0.0.1:" + m[1] + "/api/drone"
			return p
		}
	}
	t.Fatalf("it does not listen: %v", p.Wait())
	return nil
}

func (p *program) get(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(p.base + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// end stops the program as the service manager does, and returns its log.
func (p *program) end(t *testing.T) string {
	t.Helper()
	p.Process.Signal(syscall.SIGTERM)
	return p.ended(t)
}

// ended waits until a program that was signalled to end has ended, and returns its log.
func (p *program) ended(t *testing.T) string {
	t.Helper()
	for p.log.Scan() {
		p.logged.WriteString(p.log.Text() + "\n")
	}
	if err := p.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, &p.logged)
	}
	return p.logged.String()
}

// until asks for the status until it contains a text.
func (p *program) until(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got := p.get(t, "/status")
		if strings.Contains(got, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not in %s", text, got)
		}
	}
}

func (p *program) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(p.base+path, "", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// posts posts beside what follows, and returns where the answer comes.
func (p *program) posts(t *testing.T, path, body string) <-chan string {
	answered := make(chan string, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		code, answer := p.post(t, path, body)
		answered <- fmt.Sprint(code, " ", answer)
	})
	t.Cleanup(asking.Wait)
	return answered
}

// lowPortsNeedNoRights reports whether every user of this machine may use ports below 1024.
func lowPortsNeedNoRights() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	return err != nil || strings.TrimSpace(string(b)) == "0"
}

// copyForAll copies the test binary to a folder where every user may run it.
func copyForAll(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mavrest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "mavrest")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// supervised listens as systemd does and returns the notifications, in order.
func supervised(t *testing.T) (path string, notified <-chan string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	ch := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			ch <- string(b[:n])
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return path, ch
}

// flyUDP sends what a simulated autopilot says to an address, and takes what comes back, until the test ends.
func (s *simulator) flyUDP(t *testing.T, address string) {
	t.Helper()
	line := dialed(t, "udp", address)
	cable, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, 1024)
		for {
			n, err := cable.Read(b)
			if err != nil {
				return
			}
			line.Write(b[:n])
		}
	})
	running.Go(func() {
		b := make([]byte, 2048)
		for {
			n, err := line.Read(b)
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err == nil:
				cable.Write(b[:n])
			}
		}
	})
	t.Cleanup(func() {
		cable.Close()
		line.Close()
		running.Wait()
	})
}

// address is the API's host and port.
func (p *program) address() string {
	return strings.TrimSuffix(strings.TrimPrefix(p.base, "http://"), "/api/drone")
}

// stops stops a process, and waits until it stands still.
func (p *program) stops(t *testing.T) {
	p.Process.Signal(syscall.SIGSTOP)
	waitUntil(t, "the process stands still", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		return strings.Contains(string(stat), ") T ")
	})
}
