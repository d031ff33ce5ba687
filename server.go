package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
)

// Limits of the server (docs/design.md, "Robustness").
const (
	// maxHeader is in bytes.
	maxHeader = 16 << 10

	maxConnections = 64

	// closeAfter is how long after its last request began a connection may be closed for a new one, and yieldAfter how
	// long new ones wait for that: then the connection goes whose last request is the oldest.
	closeAfter = 100 * time.Millisecond
	yieldAfter = 200 * time.Millisecond

	// readTimeout is the time from the beginning of a request to the end of its body.
	readTimeout = 10 * time.Second
)

// admission says who may use the API: the names that this machine answers to, and the
// origins whose web pages may read and command.
type admission struct {
	hosts   hostNames
	origins []string
}

// check returns an error for a foreign host name, and for a command of a foreign web page.
// It sets the CORS headers for a page of an allowed origin, and answers its preflights.
func (a admission) check(w http.ResponseWriter, r *http.Request) (answered bool, err error) {
	if !a.hosts.has(r.Host) {
		return false, refuse(codeWrongHost, "%.40q is not a name of this machine; use its address, or start "+
			"mavrest with -host to allow this name", r.Host)
	}
	h := w.Header()
	if a.origins != nil {
		h.Add("Vary", "Origin")
	}
	origin := r.Header.Get("Origin")
	preflight := r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
	if !slices.Contains(a.origins, origin) {
		return false, checkOrigin(r, preflight)
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if !preflight {
		return false, nil
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
	h.Set("Access-Control-Allow-Headers", "Content-Type, Last-Event-ID")
	h.Set("Access-Control-Max-Age", "600")
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	w.WriteHeader(http.StatusNoContent)
	return true, nil
}

// checkOrigin returns an error for a command of a page of another origin, and for its preflight, with
// which a browser asks whether it may send the command.
func checkOrigin(r *http.Request, preflight bool) error {
	asked := *r

	// OPTIONS itself is harmless.
	if preflight {
		asked.Method = http.MethodPost
	}
	if new(http.CrossOriginProtection).Check(&asked) == nil {
		return nil
	}
	if r.Header.Get("Origin") == "null" {
		return refuse(codeCrossOrigin, "a page that was opened from a file can't command the drone: serve its folder "+
			"(python3 -m http.server 3000), open http://localhost:3000, and start mavrest with "+
			"-origin http://localhost:3000 to allow it")
	}
	option := "-origin"
	if own, err := pageOrigin(r.Header.Get("Origin")); err == nil {
		option += " " + own
	}
	return refuse(codeCrossOrigin, "a page of another origin can't command the drone; start mavrest with %s to "+
		"allow it", option)
}

// pageOrigin returns an origin as browsers send it, for -origin: in small letters, without the scheme's
// own port, with an IPv6 address in its short form. Who copies one from a browser's address line has a slash more.
func pageOrigin(s string) (string, error) {
	s = strings.TrimSuffix(strings.ToLower(s), "/")
	if strings.Contains(s, "*") {
		return "", errors.New("an origin has no *: give each of them, -origin may be repeated")
	}
	if err := new(http.CrossOriginProtection).AddTrustedOrigin(s); err != nil {
		return "", err
	}
	for _, c := range s {
		if c > unicode.MaxASCII {
			return "", errors.New("a browser sends this name in ASCII: give that (xn--…)")
		}
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", err
	}
	host := u.Hostname()
	port := u.Port()
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" && port != ownPorts[u.Scheme] {
		host += ":" + port
	}
	return u.Scheme + "://" + host, nil
}

// ownPorts are the ports that an origin leaves out.
var ownPorts = map[string]string{"http": "80", "https": "443"}

// hostNames are the names that this machine answers to, in lower case.
type hostNames []string

// ownHosts returns the machine's name, that name under each search domain of its
// resolv.conf(5), and the names of -host.
func ownHosts(name, resolvConf string, given []string) hostNames {
	names := append(hostNames{name}, given...)
	for line := range strings.Lines(resolvConf) {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "search" || f[0] == "domain") {
			for _, domain := range f[1:] {
				names = append(names, name+"."+domain)
			}
		}
	}
	for i, s := range names {
		names[i] = strings.ToLower(strings.TrimSuffix(s, "."))
	}
	return names
}

// has reports whether a Host header is an address, a name without a dot, a local name or one
// of ours. After DNS rebinding a browser sends the page's public name, which is none of these.
func (names hostNames) has(host string) bool {
	name, port, err := net.SplitHostPort(host)

	// The address has no port.
	if err != nil {
		// The brackets of an IPv6 address.
		name = strings.Trim(host, "[]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	_, err = netip.ParseAddr(name)

	// It may be empty.
	_, badPort := strconv.ParseUint("0"+port, 10, 16)
	return badPort == nil && (err == nil || !strings.Contains(name, ".") || slices.Contains(names, name) ||
		slices.ContainsFunc(localSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) }))
}

// localSuffixes end names that no public resolver knows.
var localSuffixes = []string{".localhost", ".local", ".lan", ".home", ".home.arpa", ".internal", ".localdomain"}

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

// server is the HTTP server. Its connections tell what waits behind a request.
type server struct{ *http.Server }

func (s server) Serve(l net.Listener) error { return s.Server.Serve(headListener{l}) }

// newServer returns the HTTP server, with its time-outs and at most max connections.
// WriteTimeout ends no plan: write and the stream of events set their own write deadlines.
func newServer(h http.Handler, max int) server {
	conns := &connections{max: max, open: make(map[net.Conn]*connection)}
	return server{&http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    maxHeader - 4096, // net/http adds 4096 for its buffer

		// net/http accepts no other connection before ConnContext returns: add can wait in it.
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conns.add(c))
		},
		ConnState: conns.stateChanged,
		// newHandler answers OPTIONS * with 404, as any path that it does not know.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}}
}

// connections keeps at most max connections open. For one more it closes the idle connection whose last request began
// first, once closeAfter has passed since then, or newcomers have waited for yieldAfter. If all are busy, it ends the
// oldest wait for a manoeuvre; that connection is idle from then on. If no connection waits for one, the new one waits
// until a command is answered.
type connections struct {
	max int

	// mu: guards all below, and the fields of each connection
	mu sync.Mutex

	open map[net.Conn]*connection

	// fullFrom is since when each newcomer has had to wait; zero: the last one did not. waitedAt is when one had waited
	// last, and with it those behind it; zero: none has. Only add uses them.
	fullFrom, waitedAt time.Time
}

// connection is one connection. It counts as idle while it is not busy.
type connection struct {
	net.Conn
	list *connections

	// usedAt is when its last request began, or makeRoom ended its wait; at first, when it was accepted.
	usedAt time.Time

	// freeAt is when its last request ended; at first, until when it may have waited for its place; zero: it has not.
	freeAt time.Time

	// busy: a command is carried out, or events are sent
	busy bool

	// madeWay: makeRoom has closed it
	madeWay bool

	// endWait: ends its wait for a manoeuvre; nil if it has none
	endWait func()

	// answer is room for the status, which would be made anew for each; its requests come one after the other.
	answer []byte
}

// lastCame is when its last bytes came: the end of its request, where no other follows it.
func (c *connection) lastCame() time.Time {
	if tcp, ok := c.socket().(*quietTCP); ok {
		return tcp.lastCame()
	}
	return time.Now()
}

// asked is when the last bytes of its request came, and when they could first be read.
func (c *connection) asked() (came, due time.Time) {
	c.list.mu.Lock()
	defer c.list.mu.Unlock()
	came = c.lastCame()
	return came, later(came, c.freeAt)
}

// add waits until there is room for a connection, and adds it.
func (l *connections) add(c net.Conn) *connection {
	if l.makeRoom(0) {
		l.fullFrom = time.Time{}
	} else {
		if l.fullFrom.IsZero() {
			l.fullFrom = time.Now()
		}
		const again = 10 * time.Millisecond
		for time.Sleep(again); !l.makeRoom(time.Since(l.fullFrom)); time.Sleep(again) {
		}
		l.waitedAt = time.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = &connection{Conn: c, list: l, usedAt: time.Now(), freeAt: l.waitedAt}
	return l.open[c]
}

// makeRoom reports whether there is room for one more connection, where newcomers have waited so long. If there is none
// it closes a connection, or ends a wait so that it can soon close one.
func (l *connections) makeRoom(waited time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) < l.max {
		return true
	}
	var idle, waiting *connection
	for _, c := range l.open {
		if !c.busy && (idle == nil || c.usedAt.Before(idle.usedAt)) {
			idle = c
		} else if c.endWait != nil && (waiting == nil || c.usedAt.Before(waiting.usedAt)) {
			waiting = c
		}
	}

	// The answer behind a wait that has just ended is still being written.
	yields := waited >= yieldAfter && idle != nil && idle.endWait == nil
	if yields || (idle != nil && time.Since(idle.usedAt) >= closeAfter) {
		// net/http notices, but a takeoff may still wait for its body
		idle.madeWay = true
		idle.Close()
		delete(l.open, idle.Conn)
		return true
	}
	if idle == nil && waiting != nil {
		waiting.endWait()
		waiting.busy = false
		waiting.usedAt = time.Now()
	}
	return false
}

// stateChanged records when requests begin and end on a connection, and when it is closed.
func (l *connections) stateChanged(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.open[conn]
	switch {
	case c == nil:
		// makeRoom has closed it
	case state == http.StateActive:
		c.usedAt = time.Now()
	case state == http.StateIdle:
		c.busy = false
		c.endWait = nil
		c.freeAt = time.Now()
	case state == http.StateClosed:
		delete(l.open, conn)
	}
}

// connKey is the key of the connection in the context of its requests.
type connKey struct{}

// connOf returns the connection of a request. A test that calls the handler without a
// server gets a connection that is in no list.
func connOf(r *http.Request) *connection {
	if c, ok := r.Context().Value(connKey{}).(*connection); ok {
		return c
	}
	return &connection{list: new(connections)}
}

// bodyFollows reports whether a body waits behind a request that has none, by its headers, or comes within a time of
// it. Another request may wait there too: that begins with the capital letters of its method, as no JSON does.
func (c *connection) bodyFollows(within time.Duration) bool {
	head, ok := c.Conn.(*headConn)
	for end := c.lastCame().Add(within); ok; time.Sleep(time.Millisecond) {
		b := bytes.TrimLeft(head.follows(), " \t\r\n")
		if len(b) > 0 {
			return b[0] < 'A' || b[0] > 'Z'
		}
		if !time.Now().Before(end) {
			return false
		}
	}
	return false
}

// gone reports whether the client has closed its side. net/http notices that too late.
func (c *connection) gone() bool {
	n, err := peek(c.socket(), make([]byte, 1))

	// The end of what the client sends.
	return (n == 0 && err == nil) || err == syscall.ECONNRESET
}

// markBusy marks the connection as busy until its request is answered, and reports whether it is there still: it may
// have made way for another client's. endWait ends the request's wait; nil if it has none.
func (c *connection) markBusy(endWait func()) bool {
	c.list.mu.Lock()
	defer c.list.mu.Unlock()
	c.busy = true
	c.endWait = endWait
	return !c.madeWay
}

// limitUntaken ends the connection when what was written was not taken for a time; the system keeps so many bytes.
func (c *connection) limitUntaken(bytes int, within time.Duration) {
	tcp, ok := c.socket().(*quietTCP)
	if !ok {
		return
	}
	tcp.SetWriteBuffer(bytes)
	if raw, err := tcp.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, int(within.Milliseconds()))
		})
	}
}

// socket is the connection itself.
func (c *connection) socket() net.Conn {
	if head, ok := c.Conn.(*headConn); ok {
		return head.Conn
	}
	return c.Conn
}

// headListener accepts connections whose requests can be told from what follows them.
type headListener struct{ net.Listener }

func (l headListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		c = newQuietTCP(tcp)
	}
	return &headConn{Conn: c}, nil
}

// headConn ends each Read behind an empty line, which ends a request's headers: net/http then has nothing of what
// follows in its buffer but the byte by which it looks for the connection's end.
type headConn struct {
	net.Conn

	// mu: guards all below
	mu sync.Mutex

	// held: has come, and net/http has not read it
	held []byte

	// behind: net/http has read it since the last empty line; its beginning
	behind []byte

	// ending: the last line so far is empty
	ending bool
}

func (c *headConn) Read(p []byte) (n int, err error) {
	c.mu.Lock()
	n = copy(p, c.held)
	c.mu.Unlock()
	came := n == 0
	if came {
		n, err = c.Conn.Read(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	to, ends := c.headEnd(p[:n])
	if came {
		c.held = append([]byte(nil), p[to:n]...)
	} else {
		c.held = c.held[to:]
	}
	if ends {
		c.behind = nil
	} else if len(c.behind) < peekAtMost {
		c.behind = append(c.behind, p[:to]...)
	}
	return to, err
}

// headEnd returns how much of b stands up to the end of an empty line, and whether there is one. mu is locked.
func (c *headConn) headEnd(b []byte) (to int, ends bool) {
	for i, ch := range b {
		switch {
		case ch == '\n' && c.ending:
			c.ending = false
			return i + 1, true
		case ch == '\n':
			c.ending = true
		case ch != '\r':
			c.ending = false
		}
	}
	return len(b), false
}

// CloseWrite closes the server's side: net/http does that where a client still sends.
func (c *headConn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// follows returns the beginning of what waits behind the request that is being answered.
func (c *headConn) follows() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := append(append([]byte(nil), c.behind...), c.held...)
	rest := make([]byte, peekAtMost)
	n, _ := peek(c.Conn, rest)
	return append(b, rest[:max(n, 0)]...)
}

// peekAtMost is how much of what waits is looked at, in bytes.
const peekAtMost = 64

// peek looks at what waits in a connection. At its end, n is 0 and err nil; where nothing waits n is below 0.
func peek(c net.Conn, b []byte) (n int, err error) {
	tcp, ok := c.(syscall.Conn)
	if !ok {
		return -1, nil
	}
	n = -1
	// fails only without a connection
	raw, _ := tcp.SyscallConn()
	raw.Control(func(fd uintptr) { n, _, err = syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT) })
	return n, err
}
