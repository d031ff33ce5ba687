package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// A closed terminal ends the program as the service manager does: the drone is left in order.
func TestProgramServesTheSimulatorAndStopsOnSIGTERMAndSIGHUP(t *testing.T) {
	hungUp := make(chan os.Signal, 1)
	signal.Notify(hungUp, syscall.SIGHUP) // under nohup it is ignored, and the program would inherit that
	defer signal.Stop(hungUp)
	for _, stop := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		p := start(t, nil, "-device", "sim")
		if got := p.get(t, ""); got != "{\"status\":\"OK\"}\n" {
			t.Errorf("GET /api/drone answered %q", got)
		}
		p.until(t, `"online":true`)
		if got := p.get(t, "/status"); !strings.Contains(got, `"autopilot":"px4"`) {
			t.Errorf("status is %s", got)
		}
		p.Process.Signal(stop)
		if log := p.ended(t); strings.Contains(log, "WARN") || !strings.HasSuffix(log, "msg=stopping\n") {
			t.Errorf("%v: the log is\n%s", stop, log)
		}
	}
}

// The program must not leave the drone because its log is not read any more.
func TestProgramRunsOnWhenItsLogIsNotRead(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "-device", "sim")
	p.until(t, `"online":true`)
	p.stderr.Close()
	for range 3 {
		resp, err := http.Post(p.base+"/takeoff", "", nil) // it is logged
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	p.until(t, `"online":true`)
	p.Process.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A device may come and go, also at boot. Without it the program serves the API and says what
// to do.
func TestProgramStartsWithoutItsDevice(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ device, says string }{
		{"/dev/no-such-tty", "there is no such device; check the wiring"},
		{plain, "this is not a serial port"},
		{dir, "this is not a serial port"},
	} {
		p := start(t, nil, "-device", c.device)
		p.until(t, `"error":"-device `+c.device+`: `+c.says)
		if code, body := p.post(t, "/takeoff", ""); code != 503 || !strings.Contains(body, c.says) {
			t.Errorf("takeoff answered %d %s", code, body)
		}
		log := p.end(t)
		if strings.Count(log, "level=WARN") != 2 || strings.Count(log, "level=ERROR") != 0 ||
			!strings.Contains(log, c.says) || strings.Contains(log, "lost") {
			t.Errorf("%s: want one line about the device and one about the takeoff, the log is\n%s", c.device, log)
		}
	}
}

func TestProgramOpensItsDeviceWhenThatIsFree(t *testing.T) {
	t.Parallel()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, "-device", "udpin://"+udp.LocalAddr().String())
	p.until(t, "the port is in use by another program")
	udp.Close()
	p.until(t, `"error":"no autopilot was heard yet on udpin://`)
	log := p.end(t)
	var lines []string
	for line := range strings.Lines(log) {
		_, line, _ = strings.Cut(line, "level=")
		if !strings.Contains(line, "msg=listening") && !strings.Contains(line, "msg=\"open in") {
			lines = append(lines, line[:min(len(line), 20)])
		}
	}
	if want := []string{"WARN msg=\"no link to", "INFO msg=stopping\n"}; !slices.Equal(lines, want) {
		t.Errorf("the log is\n%swant %q", log, want)
	}
}

// In real time, because the program's own end is tested.
func TestSIGTERMAnswersClientsThatWait(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the simulated drone can be armed after 5 s")
	}
	p := start(t, nil, "-device", "sim")
	req, _ := http.NewRequest("GET", p.base+"/status", nil)
	req.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	events := bufio.NewScanner(stream.Body)
	for events.Scan() && !strings.Contains(events.Text(), `"armable":true`) {
	}
	answered := make(chan string, 1)
	go func() {
		code, body := p.post(t, "/takeoff", `{"altitude":50,"wait":60}`)
		answered <- fmt.Sprint(code, " ", body)
	}()
	for events.Scan() && !strings.Contains(events.Text(), `"armed":true`) {
	}
	for p.log.Scan() && !strings.Contains(p.log.Text(), "command accepted") {
	}
	asked := time.Now()
	go p.Process.Signal(syscall.SIGTERM)
	for events.Scan() {
	}
	if err := events.Err(); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	want := regexp.MustCompile(`^409 {"error":"takeoff was accepted; whether it is complete after [0-9.]+ s is not ` +
		`known, because mavrest is shutting down","code":"not_done",.*"mode":"takeoff","done":false,`)
	if got := <-answered; !want.MatchString(got) {
		t.Errorf("answered %s", got)
	}
	p.ended(t)
	if took := time.Since(asked); took > 10*time.Second {
		t.Errorf("the end took %v", took)
	}
}

// The drone's last commands are sent before its port is closed. A client whose request never
// ends must not delay them.
func TestThePortIsClosedBeforeTheServerAtTheEnd(t *testing.T) {
	t.Parallel()
	line := openPTY(t)
	p := start(t, nil, "-device", line.path, "-baud", "57600")
	w := dial(t, p.address())
	io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nExpect: "+
		"100-continue\r\nContent-Length: 9\r\n\r\n")
	if answer, err := w.in.ReadString('\n'); err != nil || !strings.Contains(answer, "100 Continue") {
		t.Fatalf("the body is not waited for: %q, %v", answer, err)
	}
	free := func() bool {
		q, err := (&serialDevice{path: line.path}).openAt(57600)
		if err == nil {
			q.Close()
		}
		return err == nil
	}
	waitUntil(t, "the program has the line", func() bool { return !free() })
	began := time.Now()
	p.Process.Signal(syscall.SIGTERM)
	waitUntil(t, "the line is free", free)
	if err := p.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the program had already ended when its port was free: %v", err)
	}
	p.ended(t)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("the end took %v while a client's request was open", took)
	}
}

// "tcp" and "udp" would listen on all of IPv6 too.
func TestAnIPv4AddressIsListenedOnByIPv4Alone(t *testing.T) {
	for host, want := range map[string]string{"0.0.0.0": "4", "127.0.0.1": "4", "::": "6", "::1": "6",
		"fe80::1%lo": "6", "": "", "localhost": ""} {
		lineEqual(t, host, ipVersion(host), want)
	}
	log := start(t, nil, "-device", "sim", "-bind", "0.0.0.0").end(t)
	if !strings.Contains(log, "address=0.0.0.0:") {
		t.Errorf("it listens elsewhere: %s", log)
	}
	u, err := listenUDP("0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if at := listensAt(t, u); !strings.HasPrefix(at, "0.0.0.0:") {
		t.Errorf("the autopilot's port is %s", at)
	}
}

func TestProgramSaysWhyItCannotStart(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(listenTCP(t).Addr().String())
	for _, c := range []struct {
		args string
		says string // why, and what to do
	}{
		{"", "no -device given; let mavrest look for the autopilot (-device auto), name its port (-device " +
			"/dev/serial0), or fly the built-in simulator (-device sim)"},
		{"-device 127.0.0.1:14550", "-device 127.0.0.1:14550: want auto, a serial device (/dev/serial0; a baud rate " +
			"goes into -baud), udpin://0.0.0.0:14550"},
		{"-device sim -bind 192.0.2.1 -port 0",
			"the API can't listen on 192.0.2.1:0 (-bind, -port): this board has no such address"},
		{"-device sim -bind 127.0.0.1 -port " + port,
			"(-bind, -port): the port is in use by another program; stop that program, or use another port"},
		{"-device sim -bind [::1]", "-bind [::1]: want an address without brackets: -bind ::1"},
		{"-device sim -bind 127.0.0.1:8306",
			"-bind 127.0.0.1:8306: want an address without a port: -bind 127.0.0.1 -port 8306"},
		{"-device sim -bind :8306", "-bind :8306: want an address without a port: -bind 0.0.0.0 -port 8306"},
		{"-device sim -bind [::1]:80", "-bind [::1]:80: want an address without a port: -bind ::1 -port 80"},
		{"-device sim -bind http://10.0.0.2", "-bind http://10.0.0.2: want an IP address of this board, such as"},
		{"-device sim -bind 10.0.0.2/24", "-bind 10.0.0.2/24: want an IP address of this board, such as"},
		{"-device sim -bind lo", "-bind lo: this is an interface; want one of its addresses: 127.0.0.1"},
		{"-device sim -bind nobody.invalid -port 0",
			"no computer of that name was found; check the name, or give its address"},
		{"-device udp:127.0.0.1:14550",
			"-device udp:127.0.0.1:14550: mavrest spells it -device udpin://127.0.0.1:14550"},
		{"-device udpin://0.0.0.0:0", "a port is a number from 1 to 65535"},
		{"-device sim -port 70000", "-port 70000: want 1 to 65535"},
		{"-device sim -system 300", "-system 300: want a MAVLink system id"},
		{"-device sim -reach 0", "-reach 0: want kilometres, over 0"},
		{"-device sim -reach -5", "-reach -5: want kilometres"},
		{"-device sim -reach nan", "-reach NaN: want kilometres"},
		{"-device sim -ceiling 0", "-ceiling 0: want metres above home, over 0"},
		{"-device sim -record-max 16", "-record-max 16: want MB for all recorded flights together, at least 32"},
		{"-device replay:x -sign y", "-sign y: a recorded flight has no signatures; leave -sign out"},
		{"-device replay:/none -port 0", "-device replay:/none: open /none: no such file"},
		{"-device sim -ceiling -5", "-ceiling -5: want metres"},
		{"-device sim -ceiling nan", "-ceiling NaN: want metres"},
		{"-device sim -ceiling 200m", `invalid value "200m" for flag -ceiling`},
		{"-device sim -reach 10km", `invalid value "10km" for flag -reach`},
		{"-device sim -baud -1", "-baud -1: want a baud rate"},
		{"-device sim -origin *", "an origin has no *: give each of them"},
		{"-device sim -origin http://*.lan", "an origin has no *"},
		{"-device sim -origin null", `invalid origin "null"`},
		{"-device sim -host http://laptop", "want only a name"},
		{"-device sim -host laptop:8080", "want only a name"},
		{"-device sim -origin http://laptop/page", "path, query, and fragment are not allowed"},
		{"-device sim -origin http://laptop:3000 -origin http://laptop:3000/page",
			"path, query, and fragment are not allowed"},
		{"-device sim extra", `unexpected argument "extra"`},
		{"-device sim -frobnicate", "-frobnicate; see -help"},
	} {
		cmd := commandLine(t, strings.Fields(c.args)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run()
		line := stderr.String()
		if code := cmd.ProcessState.ExitCode(); err == nil || code != 1 {
			t.Errorf("mavrest %s: exit code %d, want 1", c.args, code)
		}
		if !strings.HasPrefix(line, "mavrest: ") || !strings.Contains(line, c.says) || strings.Count(line, "\n") != 1 {
			t.Errorf("mavrest %s says\n%swant one line with %q", c.args, line, c.says)
		}
	}
}

func TestAPortBelow1024NeedsACapability(t *testing.T) {
	cmd := commandLine(t, "-device", "sim", "-port", "1")
	if os.Getuid() == 0 {
		// A user without capabilities, who may not reach the test binary's folder.
		cmd.Path = copyForAll(t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if lowPortsNeedNoRights() {
		t.Skip("every port is open to everybody on this machine")
	}
	out, _ := cmd.CombinedOutput()
	if !strings.Contains(string(out), "a port below 1024 needs root or CAP_NET_BIND_SERVICE") ||
		cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}

func TestSystemdIsNotified(t *testing.T) {
	t.Parallel()
	path, notified := supervised(t)
	p := start(t, []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=10000000"}, "-device", "sim")
	open := p.base + "/status"
	want := []string{"READY=1\nSTATUS=" + open, "WATCHDOG=1", "STATUS=px4 quadrotor online, disarmed, mode manual; " +
		open}
	next := func() string {
		select {
		case got := <-notified:
			return got
		case <-time.After(30 * time.Second):
			t.Fatalf("systemd was told nothing for half a minute, and not yet %q", want)
			return ""
		}
	}
	for len(want) > 0 {
		got := next()
		want = slices.DeleteFunc(want, func(w string) bool { return strings.Contains(got, w) })
	}
	p.Process.Signal(syscall.SIGTERM)
	for want = []string{"STOPPING=1"}; next() != want[0]; {
	}
	p.ended(t)
}

// A new user first looks for the address.
func TestTheFirstLinesOfTheLogSayWhatToOpen(t *testing.T) {
	p := start(t, nil, "-device", "sim")
	lines := strings.SplitAfter(p.end(t), "\n")
	if len(lines) < 2 || !strings.Contains(lines[0], "msg=listening") ||
		!strings.HasSuffix(lines[1], ` msg="open in a browser, or with curl" url=`+p.base+"/status\n") {
		t.Errorf("the log begins with\n%s", strings.Join(lines, ""))
	}
	own := []net.Addr{}
	for _, a := range []string{"127.0.0.1/8", "192.168.1.7/24", "169.254.3.4/16", "10.0.0.2/8", "::1/128",
		"fd00::7/64", "fe80::1/64"} {
		ip, n, err := net.ParseCIDR(a)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	for _, c := range []struct{ listen, name, want string }{
		{"[::]:80", "drone.local", "http://drone.local http://192.168.1.7 http://169.254.3.4 http://10.0.0.2 " +
			"http://[fd00::7]"},
		{"[::]:8080", "drone", "http://drone:8080 http://192.168.1.7:8080 http://169.254.3.4:8080 " +
			"http://10.0.0.2:8080 http://[fd00::7]:8080"},
		{"0.0.0.0:80", "", "http://192.168.1.7 http://169.254.3.4 http://10.0.0.2"},
		{"127.0.0.1:8080", "drone", "http://127.0.0.1:8080"},
		{"192.168.1.7:80", "drone", "http://192.168.1.7"},
		{"[::1]:80", "drone", "http://[::1]"},
	} {
		listen, err := net.ResolveTCPAddr("tcp", c.listen)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Fields(c.want)
		for i := range want {
			want[i] += "/api/drone/status"
		}
		lineEqual(t, c.listen, fmt.Sprint(urlsOf(listen, own, c.name)), fmt.Sprint(want))
	}
}

// At boot the network comes later than mavrest.
func TestAnAddressThatComesLaterIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	lines := func() int {
		defer log.Reset()
		return strings.Count(log.String(), "msg=\"open in a browser, or with curl\" url=http://127.0.0.")
	}
	s := &pageURLs{listen: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}}
	s.find()
	lineEqual(t, "lines at the start", lines(), 1)
	s.find()
	lineEqual(t, "lines at the second look", lines(), 0)
	s.listen = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 80}
	s.find()
	lineEqual(t, "lines for a new address", lines(), 1)
}

func TestTheWatchdogIsNotFedWhenTheDronesClockHasStopped(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		d := newDrone(device{name: "none"}, 0, false, slog.Default())
		d.clock.beat.Store(time.Now().UnixNano())
		if sent := signOfLife(d, nil, 10*time.Second); !strings.Contains(sent, "WATCHDOG=1") {
			t.Errorf("sent %q while the clock runs", sent)
		}
		if sent := signOfLife(d, nil, 0); strings.Contains(sent, "WATCHDOG=1") {
			t.Errorf("sent %q, and there is no watchdog", sent)
		}
		time.Sleep(6 * time.Second) // the drone does not tick
		if sent := signOfLife(d, nil, 10*time.Second); strings.Contains(sent, "WATCHDOG=1") {
			t.Errorf("sent %q after the clock has stopped", sent)
		}
	})
}

func TestVersionAndHelpGoToStdout(t *testing.T) {
	for args, want := range map[string]string{"-version": "mavrest ", "-help": "-device name"} {
		var out, stderr bytes.Buffer
		err := run(context.Background(), []string{args}, &out, &stderr) // flag.ErrHelp for -help
		if args == "-version" && err != nil || !strings.Contains(out.String(), want) || stderr.Len() > 0 {
			t.Errorf("%s: %v, stdout %q, stderr %q", args, err, out.String(), stderr.String())
		}
	}
}

func TestALogThatIsNotReadBlocksNothingAndOneThatIsReadIsComplete(t *testing.T) {
	var out bytes.Buffer
	log := newLogWriter(&out)
	for i := range 100 {
		fmt.Fprintf(log, "line %d\n", i)
	}
	log.close()
	lineEqual(t, "lines", strings.Count(out.String(), "\n"), 100)
	inLinkBubble(t, func(t *testing.T) {
		r, w := io.Pipe()
		log := newLogWriter(w)
		for i := range 1000 {
			fmt.Fprintf(log, "line %d\n", i)
			synctest.Wait() // the first line hangs, 256 wait
		}
		go func() { log.close(); w.Close() }()
		synctest.Wait()
		read, _ := io.ReadAll(r)
		lineEqual(t, "log lines that count the dropped ones",
			strings.Count(string(read), "\n743 lines of the log were dropped"), 1)
	})
}

func TestREADMEShowsTheHelp(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(usage, "\n")[1:] {
		if !strings.Contains(string(readme), strings.TrimSpace(line)) {
			t.Errorf("README.md does not have %q", line)
		}
	}
}

// In real time, because only a real process can be stopped: in a bubble time goes on while something waits.
func TestAPilotsSwitchWhileTheProgramStandsStillIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("the vehicle and the program are watched for some seconds")
	}
	t.Parallel()
	for _, stands := range []time.Duration{
		60 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second,
	} {
		for path, body := range map[string]string{"/mode": `{"mode":"rtl"}`, "/goto": at(30, 0), "/land": ""} {
			t.Run(fmt.Sprintf("%s, %v", path[1:], stands), func(t *testing.T) {
				t.Parallel()
				standsStill(t, stands, path, "{"+strings.Trim(body, "{}")+"}")
			})
		}
	}
}

// In real time, as the test above.
func TestARequestThatWaitedForTheProgramDoesNotGoOutOverAPilotsSwitch(t *testing.T) {
	if testing.Short() {
		t.Skip("the program stands still for a second")
	}
	t.Parallel()
	for path, body := range map[string]string{"/mode": `{"mode":"rtl"}`, "/goto": "{" + at(30, 0) + "}", "/land": ""} {
		t.Run(path[1:], func(t *testing.T) {
			t.Parallel()
			p, s := startAloft(t)
			p.stops(t)
			answered := p.posts(t, path, body)
			time.Sleep(300 * time.Millisecond)
			s.pilotMode(px4Custom(3, 0))
			time.Sleep(700 * time.Millisecond)
			before := len(commandsOf(s.received()))
			p.Process.Signal(syscall.SIGCONT)
			answer := <-answered
			for _, part := range []string{"409 ", "interrupted", "to POSCTL; nothing was sent"} {
				if !strings.Contains(answer, part) {
					t.Errorf("it answered %s, want %s", answer, part)
				}
			}
			if list := commandsOf(s.received())[before:]; len(list) > 0 {
				t.Errorf("over the pilot's switch went out: %q", list)
			}

			// What is asked from then on is carried out.
			time.Sleep(readsFor)
			if code, answer := p.post(t, path, body); code != 200 {
				t.Errorf("a second later it answered %d %s", code, answer)
			}
			p.end(t)
		})
	}
}

// In real time, as the tests above.
func TestSticksThatWaitedForTheProgramAreRefusedOfADroneThatAPilotTook(t *testing.T) {
	if testing.Short() {
		t.Skip("the program stands still for a second")
	}
	t.Parallel()
	p, s := startAloft(t)
	if code, answer := p.post(t, "/mode", `{"mode":"position"}`); code != 200 {
		t.Fatalf("it answered %d %s", code, answer)
	}
	p.stops(t)
	answered := p.posts(t, "/input", `{"pitch":0.2,"timeout":2}`)
	time.Sleep(200 * time.Millisecond)
	s.pilotMode(px4Custom(2, 0))
	time.Sleep(800 * time.Millisecond)
	p.Process.Signal(syscall.SIGCONT)
	if answer := <-answered; !strings.Contains(answer, "409 ") || !strings.Contains(answer, "took the drone") {
		t.Errorf("it answered %s", answer)
	}
	p.end(t)
}

// In real time, as the tests above. A connection is new, or was kept alive.
func TestOfRequestsThatWaitedForTheProgramTheNewestWins(t *testing.T) {
	if testing.Short() {
		t.Skip("the program stands still")
	}
	t.Parallel()
	p, _ := startAloft(t)
	dial := func() net.Conn { return dialed(t, "tcp", p.address()) }
	ask := func(c net.Conn, body string) {
		fmt.Fprintf(c, "POST /api/drone/mode HTTP/1.1\r\nHost: drone\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	answered := func(c net.Conn) {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
	}
	kept := [2]net.Conn{dial(), dial()}
	for _, c := range kept {
		ask(c, `{"mode":"hold"}`)
		answered(c)
	}
	for i := range 12 {
		bodies := [2]string{`{"mode":"rtl"}`, `{"mode":"hold"}`}
		if i%3 == 0 {
			slices.Reverse(bodies[:])
		}
		conns := kept
		for k := range conns {
			if i>>k&1 == 1 {
				conns[k] = dial()
			}
		}
		p.stops(t)
		for k, c := range conns {
			ask(c, bodies[k])
			time.Sleep(60 * time.Millisecond)
		}
		time.Sleep(130 * time.Millisecond)
		p.Process.Signal(syscall.SIGCONT)
		answered(conns[0])
		answered(conns[1])
		want := bodies[1][1 : len(bodies[1])-1]
		if got := p.get(t, "/mode"); !strings.Contains(got, want) {
			t.Errorf("%d: %q, 60 ms later %q: the mode is %s", i, bodies[0], bodies[1], got)
		}
	}
	p.end(t)
}

// In real time, as the tests above. The body of a takeoff that says no length may come within a moment of it, not of
// its reading.
func TestATakeoffWithoutABodyThatWaitedForTheProgramIsOlderThanALandingBehindIt(t *testing.T) {
	if testing.Short() {
		t.Skip("the program stands still for a second")
	}
	t.Parallel()
	address := freeAddress(t, "udp")
	p := start(t, nil, "-device", "udpin://"+address)
	s := runSimulator(t, simPX4)
	s.flyUDP(t, address)
	p.until(t, `"armable":true`)
	c := dialed(t, "tcp", p.address())
	p.stops(t)
	fmt.Fprint(c, "POST /api/drone/takeoff HTTP/1.1\r\nHost: drone\r\n\r\n")
	time.Sleep(400 * time.Millisecond)
	landing := p.posts(t, "/land", "{}")
	time.Sleep(400 * time.Millisecond)
	p.Process.Signal(syscall.SIGCONT)
	if answer := <-landing; !strings.HasPrefix(answer, "200 ") {
		t.Errorf("the landing was answered %s", answer)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), `"superseded"`) {
		t.Errorf("the takeoff was answered %s", body)
	}
	p.end(t)
}

// startAloft starts the program, and a simulated drone that flies and has shown its family.
func startAloft(t *testing.T) (*program, *simulator) {
	address := freeAddress(t, "udp")
	p := start(t, nil, "-device", "udpin://"+address)
	s := runSimulator(t, simPX4)
	s.placeInAir(20)
	s.flyUDP(t, address)
	p.until(t, `"modes":["`)
	return p, s
}

// standsStill lets a program stand still behind the first copy of a command that is not answered.
func standsStill(t *testing.T, stands time.Duration, path, body string) {
	p, s := startAloft(t)
	for _, cmd := range []common.MAV_CMD{common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_DO_REPOSITION} {
		s.change(func() { s.switches().neverDone[cmd] = true })
	}
	answered := p.posts(t, path, body)
	sent := func() int { return len(commandsOf(s.received())) }
	waitUntil(t, "the first copy has come", func() bool { return sent() > 0 })
	p.stops(t)
	stood := time.Now()
	time.Sleep(20 * time.Millisecond) // what was on its way has come
	before := sent()
	s.pilotMode(px4Custom(3, 0))
	time.Sleep(time.Until(stood.Add(stands)))
	p.Process.Signal(syscall.SIGCONT)
	answer := <-answered
	time.Sleep(500 * time.Millisecond)
	if list := commandsOf(s.received())[before:]; len(list) > 0 {
		t.Errorf("over the pilot's switch went out: %q", list)
	}
	if !strings.HasPrefix(answer, "409 ") || !strings.Contains(answer, "interrupted") {
		t.Errorf("it answered %s", answer)
	}
	p.end(t)
}
