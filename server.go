package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of the server (docs/design.md, "Robustness").
const (
	maxHeader      = 16 << 10 // bytes
	maxConnections = 64

	readWithin  = 10 * time.Second // a request, from its beginning to its body's end
	answerHangs = 2 * time.Second  // a client that does not take an answer
)

// admission is who may ask: whose name this machine is called by, and which
// other origins' pages may read and command.
type admission struct {
	hosts   hostNames
	origins []string
}

// guard lets through what may ask. deny answers the others: an HTTP status, a
// code and a sentence.
func (a admission) guard(next http.Handler, deny func(w http.ResponseWriter, status int, code, text string)) http.Handler {
	protection := http.NewCrossOriginProtection()
	for _, o := range a.origins {
		if err := protection.AddTrustedOrigin(o); err != nil {
			panic(err) // checkOrigin lets no such one through
		}
	}
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deny(w, http.StatusForbidden, "cross_origin", "a page of another origin can't command the drone; start mavrest with -origin to let it")
	}))
	guarded := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.hosts.has(r.Host) {
			deny(w, http.StatusMisdirectedRequest, "wrong_host",
				fmt.Sprintf("%q is not a name of this machine; call it by address, or start mavrest with -host to allow the name", r.Host))
			return
		}
		if a.origins != nil && a.crossOrigin(w, r) {
			return
		}
		guarded.ServeHTTP(w, r)
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

// checkOrigin reports why a -origin is none: a browser's Origin header is a
// scheme and a host, with a port where it is not the scheme's own.
func checkOrigin(s string) error {
	u, err := url.Parse(s)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && s == u.Scheme+"://"+u.Host {
		usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
		port, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16)
		odd := strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]") != "" || strings.HasSuffix(u.Host, ":")
		if err == nil && port > 0 && u.Port() != usual && u.Hostname() != "" && !odd {
			return nil
		}
	}
	return errors.New("want an origin as a browser sends it: http://host or http://host:port in lower case, without a path, a slash at its end or the scheme's usual port")
}

// hostNames are the names that this machine is called by.
type hostNames []string

// ownHosts are the machine's own name, alone and under the search domains of its
// resolver, and more.
func ownHosts(name string, domains, more []string) hostNames {
	names := hostNames{"localhost"}
	add := func(s string) { names = append(names, strings.ToLower(strings.TrimSuffix(s, "."))) }
	if name != "" {
		add(name)
		for _, d := range domains {
			add(name + "." + strings.Trim(d, "."))
		}
	}
	for _, s := range more {
		add(s)
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
	if !strings.ContainsAny(host, ".:") {
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

// boundedListener keeps at most max connections. A new one takes the place of
// the one that asked longest ago, if that is answered or has had its askWithin;
// then of the oldest stream; then of the oldest that waits for a manoeuvre, which
// is answered first. Those whose command waits for the autopilot stay. While
// there is none it waits.
type boundedListener struct {
	net.Listener
	max int

	alive func()        // called by every turn of Accept's loops; may be nil
	every time.Duration // a turn lasts no longer

	mu     sync.Mutex // guards what follows
	free   sync.Cond  // a place may be free
	open   map[*boundedConn]bool
	closed bool
}

// askWithin is how long a connection keeps its place while it has not asked yet,
// or is not answered yet. Without it the members of a crowd throw each other out
// before they are served.
const askWithin = 20 * time.Millisecond

func newBoundedListener(l net.Listener, max int) *boundedListener {
	b := &boundedListener{Listener: l, max: max, open: make(map[*boundedConn]bool)}
	b.free.L = &b.mu
	return b
}

// boundedConn is one connection. from.mu guards all but Conn.
type boundedConn struct {
	net.Conn
	from  *boundedListener
	used  time.Time // the last request's beginning; before it, when it was accepted
	idle  bool      // it is answered
	held  holding
	yield func()    // ends what it is held for; nil where nothing does
	asked time.Time // when that was called
}

// CloseWrite ends what is sent: an answer to a body that was not read to its end
// arrives before the connection is reset.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// holding is what a connection is held for.
type holding uint8

const (
	heldNot     holding = iota
	heldCommand         // its command waits for the autopilot
	heldStream          // events go out
	heldWait            // it waits for a manoeuvre
)

func (b *boundedListener) Accept() (net.Conn, error) {
	c, err := b.accept()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.open) >= b.max && !b.closed {
		b.makeWay()
		if b.alive != nil {
			b.mu.Unlock()
			b.alive()
			b.mu.Lock()
		}
	}
	bc := &boundedConn{Conn: c, from: b, used: time.Now()}
	b.open[bc] = true
	return bc, nil
}

// makeWay closes the connection that makes way, has it end what it is held for,
// or waits a turn until there may be one. b.mu is held.
func (b *boundedListener) makeWay() {
	oldest := make(map[holding]*boundedConn)
	wait := time.Duration(math.MaxInt64)
	now := time.Now()
	for c := range b.open {
		left, leaves := c.used.Add(askWithin).Sub(now), c.asked.Add(askWithin).Sub(now)
		switch o := oldest[c.held]; {
		case leaves > 0: // its answer is on its way
			wait = min(wait, leaves)
		case c.held == heldNot && !c.idle && left > 0:
			wait = min(wait, left)
		case c.held > heldCommand && c.yield == nil:
		case o == nil || c.used.Before(o.used):
			oldest[c.held] = c
		}
	}
	if c := oldest[heldNot]; c != nil {
		c.Conn.Close() // the server then ends it
		delete(b.open, c)
		return
	}
	for _, held := range []holding{heldStream, heldWait} {
		if c := oldest[held]; c != nil && wait == math.MaxInt64 {
			c.yield()
			c.yield, c.asked, wait = nil, now, askWithin // its place is free when it has ended
		}
	}
	if b.alive != nil {
		wait = min(wait, b.every)
	}
	timer := time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.free.Signal()
	})
	b.free.Wait()
	timer.Stop()
}

func (b *boundedListener) accept() (net.Conn, error) {
	if b.alive == nil {
		return b.Listener.Accept()
	}
	for {
		b.alive()
		b.Listener.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(b.every))
		c, err := b.Listener.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
	}
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

// hold says what the connection is held for, and how to end that.
func (c *boundedConn) hold(held holding, yield func()) {
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.held, c.yield = held, yield
	c.from.free.Signal()
}

// connState follows the requests of a connection: one that was held is free
// when its answer is out.
func connState(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*boundedConn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.idle = state == http.StateIdle
	if c.idle {
		c.held, c.yield, c.asked = heldNot, nil, time.Time{}
		c.from.free.Signal()
	} else {
		c.used = time.Now()
	}
}
