package main

// Connections to a server without a network, and how they end.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// caller is a browser or another client, with its headers.
type caller struct {
	name    string
	headers []string
}

// keepsOut checks that pages of other origins change nothing and read nothing.
func (hf *httpFlight) keepsOut(pages []caller) {
	hf.Helper()
	hf.untouched(func() {
		for _, page := range pages {
			for path, body := range postRoutes {
				call(hf.handler, "POST", path, strings.NewReader(body), page.headers...).want(hf.T, 403,
					"cross_origin", "-origin")
			}
			for _, method := range []string{"PUT", "DELETE", "PATCH"} {
				call(hf.handler, method, "/api/drone/land", nil, page.headers...).want(hf.T, 403, "cross_origin")
			}
			// The answer to a preflight allows nothing (see checkForm), and names the way out.
			preflight := append([]string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers",
				"content-type", "Access-Control-Request-Private-Network", "true"}, page.headers...)
			for _, path := range []string{"/api/drone/land", "/api/drone/status"} {
				call(hf.handler, "OPTIONS", path, nil, preflight...).want(hf.T, 403, "cross_origin", "-origin")
			}
			// Reading changes nothing, and the page does not get to see it.
			call(hf.handler, "GET", "/api/drone/status", nil, page.headers...).wantOK(hf.T)
			if hf.Failed() {
				hf.Fatal(page.name)
			}
		}
	})
}

// hostNamesOf are those of a machine Board7 with this resolv.conf, and one name of -host.
func hostNamesOf() hostNames {
	const conf = `# made by hand
domain	fleet.example
search lab.example. Office.Example
nameserver 192.0.2.1
options ndots:2
searching nothing
search
`
	return ownHosts("Board7", conf, []string{"Falcon.Example.Org."})
}

// served is a server on a real socket. The channel ended receives each connection when it has ended.
type served struct {
	address string
	ended   chan net.Conn
}

// listen serves a handler as the program does.
func listen(t *testing.T, h http.Handler) *served {
	t.Helper()
	l := listenTCP(t)
	s := &served{l.Addr().String(), make(chan net.Conn, 10000)}
	server := newServer(h, maxConnections)
	own := server.ConnState
	server.ConnState = func(c net.Conn, state http.ConnState) {
		own(c, state)
		if state == http.StateClosed {
			s.ended <- c
		}
	}
	var running sync.WaitGroup
	running.Go(func() { server.Serve(l) })
	t.Cleanup(running.Wait)
	t.Cleanup(func() { server.Close() })
	return s
}

// silent is a handler of a drone whose vehicle was never heard.
func silent() http.Handler {
	return newHandler(newDrone(device{name: "none"}, 0, false, slog.Default()), admission{})
}

// wire is a client's connection.
type wire struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, address string) *wire {
	t.Helper()
	c := dialed(t, "tcp", address)
	c.SetDeadline(time.Now().Add(time.Minute)) // so that a failed test does not hang
	return &wire{t, c, bufio.NewReader(c)}
}

// send writes a request whose body has a length.
func (w *wire) send(method, path, body string) {
	fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: drone.local\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
}

// receive reads the answer to a request of this method.
func (w *wire) receive(method string) (reply, error) {
	resp, err := http.ReadResponse(w.in, &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.Header.Get("Content-Type") == "application/json" && method != "HEAD" &&
		resp.ContentLength != int64(len(body)) {
		return reply{}, fmt.Errorf("a body of %d bytes came with a length of %d", len(body), resp.ContentLength)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

func (w *wire) ask(method, path, body string) reply {
	w.Helper()
	w.send(method, path, body)
	r, err := w.receive(method)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// gone waits until the server has closed the connection.
func (w *wire) gone() {
	w.Helper()
	if _, err := w.in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		w.Fatalf("the connection is still open (%v)", err)
	}
}

// askThenPause asks, and waits a moment, so that the next request has a later time.
func (w *wire) askThenPause(method, path, body string) reply {
	w.Helper()
	defer time.Sleep(time.Millisecond)
	return w.ask(method, path, body)
}

// atFull runs a test with as many connections as the server keeps. Each is opened when the
// one before has its answer.
func atFull(t *testing.T, most int, test func(t *testing.T, p *pipes, open []*wire)) {
	inLinkBubble(t, func(t *testing.T) {
		p, _ := serve(t, silent(), most)
		var open []*wire
		for range most {
			w := p.connect()
			w.askThenPause("GET", "/api/drone", "").wantOK(t)
			open = append(open, w)
		}
		test(t, p, open)
	})
}

// pipes is a listener whose connections are the test's pipes, so that a server on it works in
// virtual time.
type pipes struct {
	net.Listener
	test   *testing.T
	conns  chan net.Conn
	closed chan struct{}
	lag    time.Duration // of each write of the server
	from   net.Addr      // whose connections they are; nil: nobody's
}

func newPipes(t *testing.T) *pipes {
	return &pipes{test: t, conns: make(chan net.Conn, 1000), closed: make(chan struct{})}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) connect() *wire {
	c, client := net.Pipe()
	p.conns <- laggard{c, p.lag, p.from}
	return &wire{p.test, client, bufio.NewReader(client)}
}

// asks connects, and asks for something that is answered at once; the channel gets how that ended.
func (p *pipes) asks() <-chan error {
	w, answered := p.connect(), make(chan error, 1)
	go func() {
		w.send("GET", "/api/drone", "")
		_, err := w.receive("GET")
		answered <- err
	}()
	return answered
}

// laggard is a connection that is slow to write.
type laggard struct {
	net.Conn
	lag  time.Duration
	from net.Addr
}

func (l laggard) RemoteAddr() net.Addr {
	if l.from == nil {
		return l.Conn.RemoteAddr()
	}
	return l.from
}

func (l laggard) Write(b []byte) (int, error) {
	time.Sleep(l.lag)
	return l.Conn.Write(b)
}

// serve serves a handler on pipes, as the program does, until the test ends or calls end. end returns
// when each connection is over: net/http may keep one for a while after its last answer.
func serve(t *testing.T, h http.Handler, max int) (p *pipes, end func()) {
	p = newPipes(t)
	server := newServer(h, max)
	var running, open sync.WaitGroup
	own := server.ConnState
	server.ConnState = func(c net.Conn, state http.ConnState) {
		own(c, state)
		if state == http.StateNew {
			open.Add(1)
		}
		if state == http.StateClosed {
			open.Done()
		}
	}
	running.Go(func() { server.Serve(p) })
	end = sync.OnceFunc(func() {
		server.Close()
		running.Wait()
		open.Wait()
		for len(p.conns) > 0 { // they will not be accepted any more
			(<-p.conns).Close()
		}
	})
	t.Cleanup(end)
	return p, end
}
