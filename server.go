package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of the server, from DESIGN.md.
const (
	maxBody        = 4 << 10  // bytes
	maxHeader      = 16 << 10 // bytes
	maxConnections = 64

	answerHangs = 2 * time.Second // a client that does not read the answer to its command
)

// hostNames are the names that this machine is called by.
type hostNames []string

func ownHosts(more []string) hostNames {
	names := hostNames{"localhost"}
	for _, name := range more {
		names = append(names, strings.ToLower(strings.TrimSuffix(name, ".")))
	}
	return names
}

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
	for _, suffix := range []string{".localhost", ".local", ".lan", ".home.arpa", ".internal"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return slices.Contains(h, host)
}

// newServer is the HTTP server with its time-outs. An answer may take as long
// as the slowest plan: three commands of 12 s, and the sticks before them.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       connContext,
		ConnState:         connState,
		// OPTIONS * is a path like any other here.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
}

// boundedListener keeps at most max connections. A new one takes the place of
// the one that asked longest ago, if that is answered or has had its askWithin;
// those whose command waits for the autopilot stay. While there is none it waits.
type boundedListener struct {
	net.Listener
	max int

	alive func()        // called by every turn of Accept's loop; may be nil
	every time.Duration // a turn lasts no longer

	mu     sync.Mutex // guards what follows
	free   sync.Cond  // a place may be free
	open   map[*boundedConn]bool
	closed bool
}

// askWithin is how long a connection keeps its place while it has not asked yet,
// or is not answered yet. Without it the members of a crowd throw each other out
// before they are served: 512 clients then dial ten times as often and wait three
// to seven times as long.
const askWithin = 20 * time.Millisecond

func newBoundedListener(l net.Listener, max int) *boundedListener {
	b := &boundedListener{Listener: l, max: max, open: make(map[*boundedConn]bool)}
	b.free.L = &b.mu
	return b
}

// boundedConn is one connection. from.mu guards all but Conn.
type boundedConn struct {
	net.Conn
	from *boundedListener
	used time.Time // the last request's beginning; before it, when it was accepted
	idle bool      // it is answered
	busy bool      // its command waits for the autopilot
}

func (b *boundedListener) Accept() (net.Conn, error) {
	c, err := b.accept()
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

// makeWay closes the connection that makes way, or waits until there may be
// one. b.mu is held.
func (b *boundedListener) makeWay() {
	var old *boundedConn
	wait := time.Duration(math.MaxInt64)
	now := time.Now()
	for c := range b.open {
		left := c.used.Add(askWithin).Sub(now)
		switch {
		case c.busy:
		case !c.idle && left > 0:
			wait = min(wait, left)
		case old == nil || c.used.Before(old.used):
			old = c
		}
	}
	if old != nil {
		old.Conn.Close() // the server then ends it
		delete(b.open, old)
		return
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
		b.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(b.every))
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

// wait says that the connection's command waits for the autopilot.
func (c *boundedConn) wait() {
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.busy = true
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
		c.busy = false
		c.from.free.Signal()
	} else {
		c.used = time.Now()
	}
}

type connKey struct{}

func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}
