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

	readWithin = 10 * time.Second // a request, from its beginning to its body's end
)

// admission is who may ask: whose name this machine is called by, and which
// other origins' pages may read and command.
type admission struct {
	hosts   hostNames
	origins []string
}

// Codes of those who may not ask.
const (
	codeCrossOrigin errorCode = "cross_origin"
	codeWrongHost   errorCode = "wrong_host"
)

// guard lets through what may ask; deny answers the others.
func (a admission) guard(next http.Handler, deny func(http.ResponseWriter, error)) http.Handler {
	protection := http.NewCrossOriginProtection()
	for _, o := range a.origins {
		if err := protection.AddTrustedOrigin(o); err != nil {
			panic(err) // parseFlags lets no such one through
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !a.hosts.has(r.Host):
			deny(w, refuse(codeWrongHost, "%q is not a name of this machine; call it by address, or start mavrest with -host to allow this name", r.Host))
		case a.origins != nil && a.crossOrigin(w, r):
		case protection.Check(r) != nil:
			deny(w, refuse(codeCrossOrigin, "a page of another origin can't command the drone; start mavrest with -origin to allow it"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// crossOrigin gives a page of an allowed origin the headers that its browser
// wants, and answers its preflights.
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

// hostNames are the names that this machine is called by.
type hostNames []string

// ownHosts are the machine's own name, alone and under the search domains of its
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

// searchDomains reads the search domains of a resolv.conf(5).
func searchDomains(conf string) (domains []string) {
	for line := range strings.Lines(conf) {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "search" || f[0] == "domain") {
			domains = append(domains, f[1:]...)
		}
	}
	return domains
}

// localSuffixes are of names that no public resolver answers.
var localSuffixes = []string{".localhost", ".local", ".lan", ".home", ".home.arpa", ".internal", ".localdomain"}

// has reports whether a Host header names this machine or an address: a page
// whose name was rebound to our address has a public name. A request without
// the header, as HTTP/1.0 allows, is no browser's.
func (h hostNames) has(host string) bool {
	if !strings.Contains(host, ":") {
		// A name or an address alone; SplitHostPort would make an error of it.
	} else if name, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return false
		}
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if !strings.ContainsAny(host, ".:") { // a label alone, as localhost
		return !strings.ContainsAny(host, "[]/@")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return slices.Contains(h, host) ||
		slices.ContainsFunc(localSuffixes, func(suffix string) bool { return strings.HasSuffix(host, suffix) })
}

// connKey has the connection in the context of its requests.
type connKey struct{}

// connOf is the connection of a request; nil where none is bounded.
func connOf(r *http.Request) *boundedConn {
	c, _ := r.Context().Value(connKey{}).(*boundedConn)
	return c
}

// clientOf is the address of a request's client: without port and zone, IPv4 also
// where it came as IPv6, and one for all of the board's loopback addresses.
func clientOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	a := from.Addr().Unmap().WithZone("")
	if a.IsLoopback() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return a
}

// newServer is the HTTP server with its time-outs. An answer may take as long
// as the slowest plan: three commands of 12 s, and the sticks before them.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readWithin,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    maxHeader - 4096, // net/http adds 4096 for its buffer
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: connState,
		// OPTIONS * is a path like any other here.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
}

// boundedListener keeps at most max connections. When one more comes, the one that
// has been idle longest makes way; where none is idle, the one that has waited
// longest for a manoeuvre is answered, and then makes way. Where none of them waits,
// the new one has to.
type boundedListener struct {
	net.Listener
	max int

	mu     sync.Mutex // guards what follows
	free   sync.Cond  // a place may be free
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
	from  *boundedListener
	used  time.Time // its last request began; before that, it was accepted
	held  bool      // it is not idle: a command is carried out, or events go out
	end   func()    // ends its wait for a manoeuvre; nil where it has none
	ended bool      // that was called: it is idle when its answer is out
}

// CloseWrite ends what is sent: an answer to a body that was not read to its end
// arrives before the connection is reset.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// gone reports whether the client has closed its side. net/http notices only later.
func (c *boundedConn) gone() (closed bool) {
	if c == nil {
		return false
	}
	if tcp, ok := c.Conn.(syscall.Conn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				const closeWait = 8 // of linux/tcp_states.h; the state is the first byte of TCP_INFO
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
	bc := &boundedConn{Conn: c, from: b, used: time.Now()}
	b.open[bc] = true
	return bc, nil
}

// makeWay closes the connection that makes way, or waits until there may be one.
// b.mu is held.
func (b *boundedListener) makeWay() {
	var idle, waiting *boundedConn
	leaving := false
	for c := range b.open {
		leaving = leaving || c.ended
		switch {
		case !c.held && (idle == nil || c.used.Before(idle.used)):
			idle = c
		case c.end != nil && (waiting == nil || c.used.Before(waiting.used)):
			waiting = c
		}
	}
	if idle != nil {
		idle.Conn.Close() // the server then ends it
		delete(b.open, idle)
		return
	}
	if waiting != nil && !leaving {
		waiting.end()
		waiting.ended = true
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

func (c *boundedConn) Close() error {
	b := c.from
	b.mu.Lock()
	delete(b.open, c)
	b.free.Signal()
	b.mu.Unlock()
	return c.Conn.Close()
}

// hold says that the connection is not idle until its request is answered, and how
// to end what it waits for; nil: that can't be ended. Without a connection it says
// nothing.
func (c *boundedConn) hold(end func()) {
	if c == nil {
		return
	}
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.held, c.end = true, end
	c.from.free.Signal()
}

// connState follows the requests of a connection: it is idle again when its answer
// is out.
func connState(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*boundedConn)
	if !ok {
		return
	}
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	switch state {
	case http.StateActive:
		c.used = time.Now()
	case http.StateIdle:
		c.held, c.end, c.ended = false, nil, false
		c.from.free.Signal()
	}
}
