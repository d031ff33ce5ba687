package main

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const evil = "http://evil.example"

// foreignPages are pages that command nothing and read nothing: a page of another origin can have its user's
// browser send all these. The origin of laptop is allowed in one of two flights.
var foreignPages = []caller{
	{"a form", []string{"Origin", evil, "Content-Type", "application/x-www-form-urlencoded"}},
	{"a form, over HTTPS", []string{"Origin", "https://evil.example", "Content-Type",
		"multipart/form-data; boundary=x"}},
	{"a form that holds JSON as text", []string{"Origin", evil, "Content-Type", "text/plain"}},
	{"a fetch without CORS", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors",
		"Content-Type", "text/plain"}},
	{"a fetch that hides its origin", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}},
	{"a beacon", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors",
		"Sec-Fetch-Dest", "empty"}},
	{"JSON without a preflight", []string{"Origin", evil, "Content-Type", "application/json"}},
	{"a sandboxed frame or a file", []string{"Origin", "null"}},
	{"a sandboxed frame, by its Sec-Fetch-Site", []string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}},
	{"a page of another port here", []string{"Host", "192.0.2.7:8080", "Origin", "http://192.0.2.7:3000"}},
	{"a page of another port here, by its Sec-Fetch-Site",
		[]string{"Origin", "http://192.0.2.7:3000", "Sec-Fetch-Site", "same-site"}},
	{"a page of the default port here", []string{"Host", "drone.local:8080", "Origin", "http://drone.local"}},
	{"a page of another machine on this network", []string{"Host", "drone.local", "Origin", "http://printer.local"}},
	{"a page of another address", []string{"Host", "[fe80::1]:8080", "Origin", "http://[fe80::2]:8080"}},
	{"a page whose name begins with ours", []string{"Host", "drone.local", "Origin",
		"http://drone.local.evil.example"}},
	{"a page whose name ends with ours", []string{"Host", "drone.local", "Origin", "http://evildrone.local"}},
	{"a page that has our name as its user", []string{"Host", "drone.local", "Origin",
		"http://drone.local@evil.example"}},
	{"a browser extension", []string{"Origin", "chrome-extension://abcdefgh"}},
	{"an origin that can't be read", []string{"Origin", "::"}},
	{"any origin", []string{"Origin", "*"}},
	{"an empty origin", []string{"Origin", "", "Sec-Fetch-Site", "cross-site"}},
	{"laptop without its port", []string{"Origin", "http://laptop.lan"}},
	{"another port of laptop", []string{"Origin", "http://laptop.lan:3001"}},
	{"a longer port", []string{"Origin", "http://laptop.lan:30000"}},
	{"laptop over HTTPS", []string{"Origin", "https://laptop.lan:3000"}},
	{"laptop in capitals, as no browser sends it", []string{"Origin", "http://Laptop.lan:3000"}},
	{"laptop with a path", []string{"Origin", "http://laptop.lan:3000/"}},
	{"a name under laptop's", []string{"Origin", "http://sub.laptop.lan:3000"}},
	{"a name that begins with laptop's", []string{"Origin", "http://laptop.lan:3000.evil.example"}},
}

func TestNoPageOfAnotherOriginReachesTheDrone(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) { hf.keepsOut(foreignPages) })
	atOrigin(t, func(hf *httpFlight) {
		hf.keepsOut(foreignPages)
		// A rebound name is refused from every origin.
		call(hf.handler, "POST", "/api/drone/land", nil, "Host", "evil.example", "Origin", laptop).want(hf.T, 421,
			"wrong_host")
	}, laptop)
}

const laptop = "http://laptop.lan:3000"

// atOrigin is flyHTTP with -origin.
func atOrigin(t *testing.T, test func(hf *httpFlight), origins ...string) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.handler = newHandler(hf.drone, admission{origins: origins})
		test(hf)
	})
}

func TestAPageOfAnAllowedOriginReadsAndCommands(t *testing.T) {
	atOrigin(t, func(hf *httpFlight) {
		for _, origin := range []string{laptop, "https://fleet.example"} {
			for _, site := range []string{"cross-site", "same-site", ""} {
				page := []string{"Host", "drone.local:8080", "Origin", origin, "Sec-Fetch-Mode", "cors"}
				if site != "" {
					page = append(page, "Sec-Fetch-Site", site)
				}
				mayRead := func(r reply, status int) {
					hf.Helper()
					if r.status != status || r.header.Get("Access-Control-Allow-Origin") != origin ||
						!strings.Contains(r.header.Get("Vary"), "Origin") {
						hf.Errorf("%s: got %d %v %s", origin, r.status, r.header, r.body)
					}
					if r.header.Get("Access-Control-Allow-Credentials") != "" {
						hf.Errorf("%s may send its user's cookies", origin)
					}
				}
				mayRead(call(hf.handler, "GET", "/api/drone/status", nil, page...), 200)
				mayRead(call(hf.handler, "HEAD", "/api/drone/status", nil,
					append(page, "Accept", "text/event-stream")...), 200)
				mayRead(call(hf.handler, "POST", "/api/drone/mode", strings.NewReader(`{"mode":"hold"}`),
					append(page, "Content-Type", "application/json")...), 200)
				// It may read errors too.
				mayRead(call(hf.handler, "POST", "/api/drone/mode", strings.NewReader(`{"mode":"up"}`), page...), 422)
				mayRead(call(hf.handler, "POST", "/api/drone/goto", strings.NewReader(postRoutes["/api/drone/goto"]),
					page...), 409)
				mayRead(call(hf.handler, "GET", "/api/mission", nil, page...), 404)
				mayRead(call(hf.handler, "PUT", "/api/drone/mode", nil, page...), 405)
			}
		}
	}, laptop, "https://fleet.example")
}

func TestThePreflightOfAnAllowedOriginIsAnswered(t *testing.T) {
	atOrigin(t, func(hf *httpFlight) {
		preflight := []string{"Origin", laptop, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "content-type", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Site", "cross-site"}
		hf.untouched(func() {
			for path := range postRoutes {
				r := call(hf.handler, "OPTIONS", path, nil, preflight...)
				if r.status != 204 || r.body != "" || r.header.Get("Access-Control-Allow-Origin") != laptop ||
					!strings.Contains(r.header.Get("Access-Control-Allow-Methods"), "POST") ||
					!strings.Contains(r.header.Get("Access-Control-Allow-Headers"), "Content-Type") ||
					r.header.Get("Access-Control-Allow-Private-Network") != "" {
					hf.Errorf("%s: got %d %v %s", path, r.status, r.header, r.body)
				}
				r = call(hf.handler, "OPTIONS", path, nil,
					append(preflight, "Access-Control-Request-Private-Network", "true")...)
				if r.status != 204 || r.header.Get("Access-Control-Allow-Private-Network") != "true" {
					hf.Errorf("%s: got %d %v", path, r.status, r.header)
				}
			}
		})
		// OPTIONS without a preflight's headers is a method like any other.
		r := call(hf.handler, "OPTIONS", "/api/drone/land", nil, "Origin", laptop)
		if r.status != 405 {
			hf.Errorf("got %d %s", r.status, r.body)
		}
	}, laptop)
}

// A browser tells its user only that it failed.
func TestARefusedPageIsInTheLogWithTheOptionThatAllowsIt(t *testing.T) {
	atOrigin(t, func(hf *httpFlight) {
		for _, c := range []struct{ method, origin, option string }{
			{"OPTIONS", "http://tablet:3000", "start mavrest with -origin http://tablet:3000 to allow it"},
			{"POST", "http://tablet:3000", "start mavrest with -origin http://tablet:3000 to allow it"},
			{"OPTIONS", "null", "start mavrest with -origin http://localhost:3000 to allow it"},
		} {
			before := len(hf.diary.logged())
			r := call(hf.handler, c.method, "/api/drone/land", nil, "Origin", c.origin,
				"Access-Control-Request-Method", "POST")
			r.want(hf.T, 403, "cross_origin", c.option)
			log := strings.Join(hf.diary.logged()[before:], "\n")
			if !strings.Contains(log, "a page was refused") || !strings.Contains(log, c.origin) ||
				!strings.Contains(log, c.option) {
				hf.Errorf("%s from %s: the log is %q", c.method, c.origin, log)
			}
		}
		before := len(hf.diary.logged())
		call(hf.handler, "OPTIONS", "/api/drone/land", nil, "Origin", laptop, "Access-Control-Request-Method", "POST")
		call(hf.handler, "OPTIONS", "/api/drone/land", nil, "Access-Control-Request-Method", "POST") // of no page
		lineEqual(hf.T, "lines of the log", len(hf.diary.logged()[before:]), 0)
	}, laptop)
}

// Browsers write an origin in one way only, and -origin is compared with that.
func TestAnOriginIsReadAsBrowsersSendIt(t *testing.T) {
	for given, want := range map[string]string{
		"http://laptop:3000":        "http://laptop:3000",
		"http://LAPTOP":             "http://laptop",
		"HTTPS://Fleet.Example:444": "https://fleet.example:444",
		"http://laptop:80":          "http://laptop",
		"https://laptop:443":        "https://laptop",
		"https://laptop:80":         "https://laptop:80",
		"http://[FE80:0:0::1]:3000": "http://[fe80::1]:3000",
		"http://[FE80::1]:80":       "http://[fe80::1]",
		"http://192.168.1.2:80":     "http://192.168.1.2",
		"null":                      "", "*": "", "laptop:3000": "", "http://müller.lan": "",
		"http://laptop/": "http://laptop", "http://laptop:3000/": "http://laptop:3000", "http://laptop/page": "",
		"http://laptop//": "", "http://*.lan": "", "http://*": "", "": "", "/": "",
	} {
		o, err := parseFlags([]string{"-device", "sim", "-origin", given}, io.Discard)
		got := ""
		if err == nil {
			got = o.origins[0]
		}
		lineEqual(t, given, got, want)
	}
}

// After DNS rebinding a stranger's name points to this board. Only names that no stranger can have are ours.
func TestOfAllHostNamesOnlyOwnAndLocalOnesAreOurs(t *testing.T) {
	ours := map[string][]string{
		"an address": {"192.0.2.7", "192.0.2.7:8080", "[2001:db8::7]", "[2001:db8::7]:8080", "[fe80::1%eth0]:8080",
			"[::ffff:192.0.2.7]", "127.0.0.1:8080", "[::1]:8080"},
		"the board itself": {"localhost:8080", "drone.localhost:8080"},
		"mDNS": {"drone.local", "drone.local:8080", "drone.local.", "drone.local.:8080", "drone.local:",
			"Drone.Local"},
		"a name without a dot": {"drone", "drone:8080", "drone.:8080", "evilhome"},
		"a router's or company's name": {"drone.lan", "drone.home", "drone.localdomain:8080", "drone.home.arpa",
			"drone.fleet.internal:8080"},
		"the machine's own name, with its search domains": {"board7", "BOARD7:8080", "board7.fleet.example",
			"board7.fleet.example:80", "board7.lab.example.", "board7.office.example"},
		"a name of -host":      {"falcon.example.org", "FALCON.example.org.:8080"},
		"none, as in HTTP/1.0": {""},
	}
	foreign := map[string][]string{
		"a name of the net": {"evil.example", "evil.example:80", "evil.example:8080", "EVIL.EXAMPLE",
			"evil.example.", "evil.example.:80"},
		"one that begins or ends like a local one": {"drone.local.evil.example", "localhost.evil.example",
			"evil.example.local.example", "local.example", "evillocal.example", "evil.plan", "evil.athome",
			"evilhome.arpa"},
		"one that looks like an address": {"192.0.2.7.evil.example", "192.0.2.7.nip.example:8080",
			"7f000001.evil.example", "192.0.2", "192.0.2.7.8", "0x7f.0.0.1", "[::1].evil.example", "[evil.example]",
			"[evil.example]:80", "192.0.2.7:80:80"},
		"one near the machine's": {"fleet.example", "other.fleet.example", "board7.example", "x.board7.fleet.example",
			"board7.fleet.example.evil.example", "board7.falcon.example.org", "board7.192.0.2.1", "board7.by.hand",
			"board7.ndots:2", "board7.nothing"},
		"one near -host's":         {"notfalcon.example.org", "sub.falcon.example.org", "example.org"},
		"one with a port of words": {"drone:junk", "drone.local:99999", "192.0.2.7:-1", "[::1]:0x50"},
	}
	names := hostNamesOf()
	for why, hosts := range ours {
		for _, host := range hosts {
			lineEqual(t, strconv.Quote(host)+", "+why+", is ours", names.has(host), true)
		}
	}
	for why, hosts := range foreign {
		for _, host := range hosts {
			lineEqual(t, strconv.Quote(host)+", "+why+", is ours", names.has(host), false)
		}
	}
	lineEqual(t, "a domain is ours where the machine has no name",
		ownHosts("", "search fleet.example", nil).has("fleet.example"), false)
}

// ---- Connections ----

func TestHEADIsGETWithoutItsBody(t *testing.T) {
	s := listen(t, silent())
	w := dial(t, s.address)
	for _, path := range []string{"/api/drone", "/api/drone/mode", "/api/drone/status", "/api/mission"} {
		get, head := w.ask("GET", path, ""), w.ask("HEAD", path, "")
		get.checkForm(t)
		if head.body != "" || head.status != get.status {
			t.Errorf("HEAD %s: %d %q, GET is %d", path, head.status, head.body, get.status)
		}
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Allow"} {
			if path == "/api/drone/status" && name == "Content-Length" {
				continue // the time in it may have a digit more by now
			}
			if head.header.Get(name) != get.header.Get(name) {
				t.Errorf("HEAD %s: %s is %q, with GET it is %q", path, name, head.header.Get(name),
					get.header.Get(name))
			}
		}
	}
}

func TestHeadersMayHave16KiBInAll(t *testing.T) {
	s := listen(t, silent())
	for size, want := range map[int]int{2000: 200, 16 << 10: 200, 16<<10 + 1: 431, 20_000: 431} {
		const begin, end = "GET /api/drone HTTP/1.1\r\nHost: drone.local\r\nCookie: ", "\r\n\r\n"
		w := dial(t, s.address)
		io.WriteString(w, begin+strings.Repeat("x", size-len(begin+end))+end)
		if r, err := w.receive("GET"); err != nil || r.status != want {
			t.Errorf("%d bytes: answered %d %s (%v), want %d", size, r.status, r.body, err, want)
		}
	}
}

// A client that has closed its side still gets an answer to a GET.
func TestAHalfClosedConnectionGetsItsAnswer(t *testing.T) {
	s := listen(t, silent())
	w := dial(t, s.address)
	w.send("GET", "/api/drone/mode", "")
	w.Conn.(*net.TCPConn).CloseWrite()
	r, err := w.receive("GET")
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, 200, "")
	w.gone()
}

func TestA65thConnectionTakesThePlaceOfTheLongestIdle(t *testing.T) {
	lineEqual(t, "connections that the program keeps", maxConnections, 64)
	atFull(t, maxConnections, func(t *testing.T, p *pipes, open []*wire) {
		p.connect().askThenPause("GET", "/api/drone", "").wantOK(t)
		open[0].gone()
		p.connect().askThenPause("POST", "/api/drone/land", "").want(t, 503, "offline")
		open[1].gone()
		for _, w := range open[2:] {
			w.ask("GET", "/api/drone", "").wantOK(t)
		}
	})
}

// A connection that polls the status is not idle.
func TestAConnectionThatAsksKeepsItsPlace(t *testing.T) {
	for _, request := range [][3]string{
		{"POST", "/api/drone/land", ""},
		{"POST", "/api/drone/input", "{}"},
		{"GET", "/api/drone/status", ""},
		{"GET", "/api/mission", ""},
	} {
		t.Run(request[0]+request[1], func(t *testing.T) {
			atFull(t, 3, func(t *testing.T, p *pipes, open []*wire) {
				open[0].askThenPause(request[0], request[1], request[2])
				p.connect().askThenPause("GET", "/api/drone", "").wantOK(t)
				open[0].ask("GET", "/api/drone", "").wantOK(t)
				open[1].gone()
			})
		})
	}
}

func TestOnlyTheOldestWaitMakesWayAndOnlyWhereNoConnectionIsIdle(t *testing.T) {
	ended, l := "", &connections{max: 2, open: map[net.Conn]*connection{}}
	for name, age := range map[string]time.Duration{"idle": 0, "older": 2 * time.Minute, "newer": time.Minute} {
		c := new(net.TCPConn)
		l.open[c] = &connection{Conn: c, usedAt: time.Now().Add(-age), busy: name != "idle",
			endWait: func() { ended += name }}
	}
	l.makeRoom(0)
	lineEqual(t, "ended while one is idle, though it asked just now", ended, "")
	maps.DeleteFunc(l.open, func(_ net.Conn, c *connection) bool { return !c.busy })
	// called twice, it ends one wait
	for range 2 {
		lineEqual(t, "there is room before its answer", l.makeRoom(0), false)
	}
	lineEqual(t, "ended where all are busy", ended, "older")
}

func TestAClosedConnectionFreesItsPlace(t *testing.T) {
	atFull(t, 5, func(t *testing.T, p *pipes, open []*wire) {
		open[2].Close()
		synctest.Wait()
		began := time.Now()
		late := p.connect()
		late.ask("GET", "/api/drone", "").wantOK(t)
		lineEqual(t, "time that the new one waited", time.Since(began), 0)
		for _, w := range append(slices.Delete(open, 2, 3), late) {
			w.ask("GET", "/api/drone", "").wantOK(t)
		}
	})
}

// While every connection is busy with a command, a new one waits for a place.
func TestTheFullServerAcceptsAgainWhenAPlaceIsFree(t *testing.T) {
	for _, closed := range []bool{false, true} {
		flyHTTP(t, simPX4, func(hf *httpFlight) {
			hf.fly("hold")
			hf.ignores()
			p, end := serve(hf.T, hf.handler, 1)
			p.lag = time.Millisecond // its answer must be written before its connection is closed
			lander := p.connect()
			lander.send("POST", "/api/drone/land", "")
			time.Sleep(100 * time.Millisecond) // the vehicle has the command
			answered := p.asks()
			time.Sleep(time.Second)
			if len(answered) > 0 {
				hf.Fatal("answered without a free place")
			}
			if closed {
				end() // returns when the server has ended
				return
			}
			hf.obey()
			r, err := lander.receive("POST")
			if err != nil {
				hf.Fatalf("a command was carried out and never answered: %v", err)
			}
			r.wantOK(hf.T)
			began := time.Now()
			if err := <-answered; err != nil || time.Since(began) > 10*time.Millisecond {
				hf.Errorf("answered %v after the place was free: %v", time.Since(began), err)
			}
		})
	}
}

func TestConnectionsThatNeverAskedAreClosedForNewOnes(t *testing.T) {
	for _, sent := range []string{"", "GET /api/drone HTTP/1.1\r\n",
		"POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: 9\r\n\r\n{"} {
		t.Run(fmt.Sprint(len(sent), "bytes"), func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				p, _ := serve(t, silent(), 4)
				for range 4 {
					io.WriteString(p.connect(), sent)
				}
				began := time.Now()
				p.connect().ask("POST", "/api/drone/land", "").want(t, 503, "offline")
				lineEqual(t, "time until the answer", time.Since(began), closeAfter)
			})
		})
	}
}

// The newcomer has waited for over yieldAfter by then.
func TestAWaitThatMakesWayIsAnsweredBeforeItsConnectionIsClosed(t *testing.T) {
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("hold")
		hf.ignores()
		p, _ := serve(hf.T, hf.handler, 1)
		p.lag = 15 * time.Millisecond
		waiter := p.connect()
		waiter.send("POST", "/api/drone/mode", `{"mode":"rtl","wait":60}`)
		time.Sleep(100 * time.Millisecond)
		answered := p.asks()
		time.Sleep(yieldAfter + 100*time.Millisecond)
		hf.obey()
		if _, err := waiter.receive("POST"); err != nil {
			hf.Errorf("a command was carried out and never answered: %v", err)
		}
		if err := <-answered; err != nil {
			hf.Error(err)
		}
	})
}

// Clients that poll without a pause leave no connection idle for closeAfter.
func TestANewClientHasAPlaceThoughAllOthersPollWithoutAPause(t *testing.T) {
	atFull(t, 4, func(t *testing.T, p *pipes, open []*wire) {
		var polling sync.WaitGroup
		began := time.Now()
		for _, w := range open {
			polling.Go(func() {
				for time.Since(began) < time.Second {
					time.Sleep(closeAfter / 3)
					w.send("GET", "/api/drone", "")
					if _, err := w.receive("GET"); err != nil {
						return
					}
				}
			})
		}
		p.connect().ask("POST", "/api/drone/land", "").want(t, 503, "offline")
		lineEqual(t, "time until the answer", time.Since(began), yieldAfter)
		p.connect().ask("POST", "/api/drone/land", "").want(t, 503, "offline")
		lineEqual(t, "time until the next one's", time.Since(began), yieldAfter+10*time.Millisecond)
		polling.Wait()
	})
}

// In real time, as the kernel's is that tells when its bytes came. What waits for the program's own reasons tells of no
// standstill.
func TestARequestIsDueOnceItsConnectionHasAPlaceAndIsFree(t *testing.T) {
	t.Parallel()
	l := &connections{max: 1, open: make(map[net.Conn]*connection)}
	listener := listenTCP(t)
	asks := func() net.Conn {
		client := dialed(t, "tcp", listener.Addr().String())
		client.Write([]byte("GET"))
		served, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { served.Close() })
		return newQuietTCP(served.(*net.TCPConn))
	}
	const waits = 100 * time.Millisecond
	late := func(c *connection) bool {
		came, due := c.asked()
		return due.Sub(came) > waits/2
	}
	socket, next, behind := asks(), asks(), asks()
	first := l.add(socket)
	time.Sleep(waits)
	lineEqual(t, "it had a place at once, and nobody reads it", late(first), false)
	l.stateChanged(socket, http.StateIdle)
	lineEqual(t, "it waited behind another request", late(first), true)
	first.markBusy(nil)
	time.AfterFunc(waits, func() { l.stateChanged(socket, http.StateClosed) })
	lineEqual(t, "it waited for a place", late(l.add(next)), true)
	l.max = 2
	lineEqual(t, "it waited behind that", late(l.add(behind)), true)
}

func TestEveryAnswerHasALength(t *testing.T) {
	for _, n := range []int{0, 2000, 2033, 2034, 2035, 2048, 5000} {
		s := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			success(okBody{strings.Repeat("x", n)}).write(w)
		}))
		w := dial(t, s.address)
		get, head := w.ask("GET", "/", ""), w.ask("HEAD", "/", "") // ask checks the length of GET's
		if want := strconv.Itoa(len(get.body)); head.header.Get("Content-Length") != want {
			t.Errorf("HEAD: a length of %q, want %s", head.header.Get("Content-Length"), want)
		}
	}
}

func TestAPanicIsA500AndTheServerGoesOn(t *testing.T) {
	s := listen(t, handler(func(_ http.ResponseWriter, r *http.Request) response {
		if r.URL.Path == "/panic" {
			var nobody *drone
			nobody.mode()
		}
		return success(okBody{"OK"})
	}).answers(slog.Default()))
	w := dial(t, s.address)
	for range 3 {
		r := w.ask("POST", "/panic", "{}")
		r.want(t, 500, "internal")
		if strings.Contains(r.body, "nil pointer") || strings.Contains(r.body, "goroutine") {
			t.Errorf("the answer shows the panic: %s", r.body)
		}
		w.ask("GET", "/", "").wantOK(t)
	}
}

func TestAClientIsItsAddress(t *testing.T) {
	for from, want := range map[string]string{
		"192.168.1.23:40000":          "192.168.1.23",
		"[::ffff:192.168.1.23]:40000": "192.168.1.23",
		"[fe80::1%eth0]:40000":        "fe80::1",
		"[2001:db8::1]:40000":         "2001:db8::1",
		"127.0.0.1:40000":             "127.0.0.1",
		"127.0.1.1:40000":             "127.0.0.1",
		"[::1]:40000":                 "127.0.0.1",
		"[::ffff:127.0.0.1]:40000":    "127.0.0.1",
	} {
		if got := clientOf(&http.Request{RemoteAddr: from}).String(); got != want {
			t.Errorf("%s is %s, want %s", from, got, want)
		}
	}
}

func TestAConnectionThatItsClientHasResetIsGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, _ := net.Dial("tcp", l.Addr().String())
	served, _ := l.Accept()
	defer served.Close()
	client.(*net.TCPConn).SetLinger(0)
	client.Close()
	if !(&connection{Conn: served}).gone() { // only the first look finds the reset
		t.Error("it counts as open")
	}
}
