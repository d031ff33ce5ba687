package main

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of the server (docs/design.md, "Robustness").
const (
	maxHeader      = 16 << 10 // bytes
	maxConnections = 64

	idleAfter   = 100 * time.Millisecond // without a new request
	readTimeout = 10 * time.Second       // from the beginning of a request to the end of its body
)

// admission says who may use the API: the names that this machine answers to, and the
// origins whose web pages may read and command.
type admission struct {
	hosts   hostNames
	origins []string
}

// Codes of the requests that guard rejects.
const (
	codeCrossOrigin errorCode = "cross_origin"
	codeWrongHost   errorCode = "wrong_host"
)

// guard rejects foreign web pages and host names; deny writes the answer.
func (a admission) guard(next http.Handler, deny func(http.ResponseWriter, error)) http.Handler {
	protection := http.NewCrossOriginProtection()
	for _, o := range a.origins {
		if err := protection.AddTrustedOrigin(o); err != nil {
			panic(err) // parseFlags has rejected these
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !a.hosts.has(r.Host):
			deny(w, refuse(codeWrongHost, "%s is not a name of this machine; use its address, or start mavrest with -host to allow this name", quote(r.Host)))
		case a.origins != nil && a.crossOrigin(w, r):
		case protection.Check(r) != nil:
			deny(w, refuse(codeCrossOrigin, "a page of another origin can't command the drone; start mavrest with -origin to allow it"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// quote returns a client's word in quotes, cut after 40 bytes.
func quote(s string) string {
	if len(s) > 40 {
		s = strings.ToValidUTF8(s[:40], "") + "…"
	}
	return strconv.Quote(s)
}

// crossOrigin sets the CORS headers for a page of an allowed origin, and answers its
// preflights.
func (a admission) crossOrigin(w http.ResponseWriter, r *http.Request) (answered bool) {
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !slices.Contains(a.origins, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
	h.Set("Access-Control-Allow-Headers", "Content-Type, Last-Event-ID")
	h.Set("Access-Control-Max-Age", "600")
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// hostNames are the names that this machine answers to, in lower case.
type hostNames []string

// ownHosts returns the machine's name, the name under each search domain of its
// resolver, and more.
func ownHosts(name string, domains, more []string) (names hostNames) {
	names = append(names, more...)
	if name != "" {
		names = append(names, name)
		for _, d := range domains {
			names = append(names, name+"."+strings.Trim(d, "."))
		}
	}
	for i, s := range names {
		names[i] = strings.ToLower(strings.TrimSuffix(s, "."))
	}
	return names
}

// searchDomains returns the search domains of a resolv.conf(5).
func searchDomains(conf string) (domains []string) {
	for line := range strings.Lines(conf) {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "search" || f[0] == "domain") {
			domains = append(domains, f[1:]...)
		}
	}
	return domains
}

// localSuffixes end names that no public resolver knows.
var localSuffixes = []string{".localhost", ".local", ".lan", ".home", ".home.arpa", ".internal", ".localdomain"}

// has reports whether a Host header is an address, a local name or one of ours. After DNS
// rebinding a browser sends the page's public name, which is none of these. A request
// without the header, which HTTP/1.0 allows, does not come from a browser.
func (h hostNames) has(host string) bool {
	if name, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return false
		}
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") && strings.Contains(host, ":") { // IPv6
		host = host[1 : len(host)-1]
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !strings.ContainsAny(host, ".:") { // a single label, such as localhost
		return !strings.ContainsAny(host, "[]/@")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return slices.Contains(h, host) ||
		slices.ContainsFunc(localSuffixes, func(suffix string) bool { return strings.HasSuffix(host, suffix) })
}

// connKey is the key of the connection in the context of its requests.
type connKey struct{}

// connOf returns the connection of a request; nil if the listener is not bounded.
func connOf(r *http.Request) *boundedConn {
	c, _ := r.Context().Value(connKey{}).(*boundedConn)
	return c
}

// clientOf returns the address of a client, without port and zone. IPv4 in IPv6
// becomes IPv4, and all loopback addresses become one.
func clientOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	a := from.Addr().Unmap().WithZone("")
	if a.IsLoopback() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return a
}

// newServer returns the HTTP server with its time-outs. WriteTimeout must be longer than
// the slowest plan.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    maxHeader - 4096, // net/http adds 4096 for its buffer
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: connState,
		// The mux answers OPTIONS * like any other path.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
}

// boundedListener keeps at most max connections. For one more it closes the connection
// that has been idle longest. If none is idle, it ends the oldest wait for a manoeuvre
// and closes that connection after its answer. If no connection waits for a manoeuvre, the
// new one waits until another ends. A connection is idle when it is not busy and no
// request has begun on it for idleAfter.
type boundedListener struct {
	net.Listener
	max int

	mu     sync.Mutex // guards all below
	free   sync.Cond  // signals that Accept may go on
	open   map[*boundedConn]bool
	closed bool
}

func newBoundedListener(l net.Listener, max int) *boundedListener {
	b := &boundedListener{Listener: l, max: max, open: make(map[*boundedConn]bool)}
	b.free.L = &b.mu
	return b
}

// boundedConn is one connection. from.mu guards all but Conn.
type boundedConn struct {
	net.Conn
	from      *boundedListener
	usedAt    time.Time // when its last request began; before the first, when it was accepted
	busy      bool      // a command is carried out, or events are sent
	endWait   func()    // ends its wait for a manoeuvre; nil if it has none
	waitEnded bool      // endWait was called: the connection is idle after its answer
}

// CloseWrite closes the sending side. net/http calls it before it closes a connection
// with an unread body, so that the answer arrives before the reset.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// gone reports whether the client has closed its side. net/http notices that too late.
func (c *boundedConn) gone() (closed bool) {
	if c == nil {
		return false
	}
	if tcp, ok := c.Conn.(syscall.Conn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				const closeWait = 8 // TCP_CLOSE_WAIT; the state is the first byte of TCP_INFO
				var info [4]byte
				v, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
				binary.NativeEndian.PutUint32(info[:], uint32(v))
				closed = err == nil && info[0] == closeWait
			})
		}
	}
	return closed
}

func (b *boundedListener) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.open) >= b.max && !b.closed {
		b.makeWay()
	}
	bc := &boundedConn{Conn: c, from: b, usedAt: time.Now()}
	b.open[bc] = true
	return bc, nil
}

// makeWay closes the connection that has been idle longest. If none is idle it ends the
// oldest wait, unless it has ended one already, and waits for a signal of free. It needs
// b.mu, and unlocks it while it waits.
func (b *boundedListener) makeWay() {
	var idle, waiting *boundedConn
	oneLeaves := false
	for c := range b.open {
		oneLeaves = oneLeaves || c.waitEnded
		switch {
		case !c.busy && (idle == nil || c.usedAt.Before(idle.usedAt)):
			idle = c
		case c.endWait != nil && (waiting == nil || c.usedAt.Before(waiting.usedAt)):
			waiting = c
		}
	}
	if idle != nil {
		idleIn := idleAfter - time.Since(idle.usedAt)
		if idleIn <= 0 {
			idle.Conn.Close() // net/http notices and forgets it
			delete(b.open, idle)
			return
		}
		defer time.AfterFunc(idleIn, b.wakeAccept).Stop()
	} else if waiting != nil && !oneLeaves {
		waiting.endWait()
		waiting.waitEnded = true
	}
	b.free.Wait()
}

func (b *boundedListener) Close() error {
	b.mu.Lock()
	b.closed = true
	b.free.Broadcast()
	b.mu.Unlock()
	return b.Listener.Close()
}

// wakeAccept makes Accept look again. It locks b.mu, so that its signal can't come between
// a look and the wait after it.
func (b *boundedListener) wakeAccept() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free.Signal()
}

func (c *boundedConn) Close() error {
	b := c.from
	b.mu.Lock()
	delete(b.open, c)
	b.free.Signal()
	b.mu.Unlock()
	return c.Conn.Close()
}

// markBusy marks the connection as busy until its request is answered. endWait ends
// the request's wait; nil if it has none. On a nil connection markBusy does nothing.
func (c *boundedConn) markBusy(endWait func()) {
	if c == nil {
		return
	}
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.busy, c.endWait = true, endWait
	c.from.free.Signal()
}

// connState records when requests begin and end on a connection.
func connState(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*boundedConn)
	if !ok {
		return
	}
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	switch state {
	case http.StateActive:
		c.usedAt = time.Now()
	case http.StateIdle:
		c.busy, c.endWait, c.waitEnded = false, nil, false
		c.from.free.Signal()
	}
}
