package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var mavsdkPython = flag.String("mavsdk", "", "TestMavrestFliesBesideAnotherClient: a python3 that has mavsdk; CI installs one")

// route is a router that people run beside mavrest (docs/install.md): what the
// autopilot says goes to both clients, what one of them says to the autopilot
// and to the other.
func route(t *testing.T, autopilot io.ReadWriteCloser, clients ...string) {
	t.Helper()
	var conns []net.Conn
	for _, address := range clients {
		c, err := net.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	var running sync.WaitGroup
	pass := func(from io.Reader, to func(b []byte)) {
		running.Go(func() {
			b := make([]byte, simBuffer) // whole frames: the simulator puts no half ones
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

// freePort is a port that nobody has.
func freePort(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return strconv.Itoa(c.LocalAddr().(*net.UDPAddr).Port)
}

// shared is one drone with two clients: mavrest and MAVSDK.
type shared struct {
	*testing.T
	mavrest *program
	to      io.Writer
	from    *bufio.Scanner
}

// post gives mavrest a command.
func (p *shared) post(route, body string) (code int, answer object) {
	p.Helper()
	r, err := http.Post(p.mavrest.base+route, "application/json", strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		p.Fatal(err)
	}
	return r.StatusCode, answer
}

// mavsdk gives MAVSDK one.
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

// agree waits until both tell the same truth.
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

// A real second client in real time: it is another program, and keeps its own.
func TestMavrestFliesBesideAnotherClient(t *testing.T) {
	if *mavsdkPython == "" {
		t.Skip("it wants MAVSDK: -mavsdk python3")
	}
	mine, theirs := freePort(t), freePort(t)
	cable, err := runSimulator(t, simPX4).open()
	if err != nil {
		t.Fatal(err)
	}
	route(t, cable, "127.0.0.1:"+mine, "127.0.0.1:"+theirs)
	p := &shared{T: t, mavrest: start(t, nil, "-device", "udpin://127.0.0.1:"+mine)}
	go func() {
		for p.mavrest.log.Scan() { // it waits for nobody to read it
		}
	}()
	p.connect("udpin://127.0.0.1:" + theirs)

	// One takes off: both see it. The drone can't be armed in its first seconds.
	for end := time.Now().Add(fliesWithin); ; time.Sleep(time.Second) {
		code, answer := p.post("/takeoff", `{"altitude":10}`)
		if code == http.StatusOK {
			break
		} else if time.Now().After(end) {
			t.Fatalf("mavrest's takeoff: %d %v", code, answer)
		}
	}
	p.agree("aloft", func(s object) bool { return s["in_air"] == true && stands(s, "altitude", 10, 1) },
		func(s object) bool { return s["armed"] == true && s["in_air"] == true && s["mode"] == "HOLD" })

	// The other moves it. PX4's mode does not change with that, and so neither does
	// ours; where it is does.
	here := p.mavsdk("state")
	if got := p.mavsdk("goto_location", 47.3980, 8.5460, here["altitude_msl"].(float64)+10, 0); got["result"] != "SUCCESS" {
		t.Errorf("MAVSDK's goto: %v", got)
	}
	p.agree("there", func(s object) bool {
		return s["vehicle_mode"] == "AUTO.LOITER" && stands(s, "lat", 47.3980, 1e-5) && stands(s, "altitude", 20, 1)
	}, func(s object) bool { return s["altitude"].(float64) > 19 })

	for range 10 {
		p.disagree()
	}

	// The other returns it, mavrest lands it instead: the newest wins, and both
	// see the end.
	if got := p.mavsdk("return_to_launch"); got["result"] != "SUCCESS" {
		t.Errorf("MAVSDK's return: %v", got)
	}
	in := func(mode string) func(object) bool { return func(s object) bool { return s["mode"] == mode } }
	p.agree("on the way home", in("rtl"), in("RETURN_TO_LAUNCH"))
	if code, answer := p.post("/land", ""); code != http.StatusOK {
		t.Errorf("mavrest's land: %d %v", code, answer)
	}
	p.agree("landing", in("land"), in("LAND"))
	p.agree("landed", func(s object) bool { return s["armed"] == false && s["in_air"] == false && s["mode"] == "land" },
		func(s object) bool { return s["armed"] == false && s["in_air"] == false })
}

// disagree has both give the same command at once, one as it is refused and one as
// it is not: the ack of one is no answer to the other.
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
	client := exec.Command(*mavsdkPython, "testdata/second_client.py", address, freePort(p.T))
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
		to.Close() // it ends, and its server with it
		client.Wait()
		if p.Failed() {
			os.Stderr.Write(log.Bytes())
		}
	})
	p.to, p.from = to, bufio.NewScanner(from)
	p.heard()
}
