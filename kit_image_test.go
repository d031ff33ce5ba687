package main

// The card's board in qemu.

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A booting machine and its serial port run in real time. These limits are for a very slow machine;
// the test checks no other times.
const (
	bootsWithin = 3 * time.Minute
	fliesWithin = 3 * time.Minute
)

// board is a virtual machine that boots the card and has the simulated
// autopilot's line in its UART.
type board struct {
	*testing.T
	card, folder string
	line         *pty
	qemu         *exec.Cmd // nil while the power is off
	base         string    // the URL of the API
}

// unpack copies the files that a Pi's firmware loads from the card's boot partition.
func (b *board) unpack() {
	b.Helper()
	const partition = "8192s" // gokrazy's offset, in sectors
	for _, name := range []string{"vmlinuz", "cmdline.txt"} {
		copied := exec.Command("mcopy", "-n", "-i", b.card+"@@"+partition, "::/"+name, b.folder)
		if out, err := copied.CombinedOutput(); err != nil {
			b.Fatalf("mcopy %s: %v\n%s", name, err, out)
		}
	}
}

func (b *board) sum() []byte {
	b.Helper()
	f, err := os.Open(b.card)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		b.Fatal(err)
	}
	return h.Sum(nil)
}

// boot switches the board on.
func (b *board) boot() {
	b.Helper()
	address := freeAddress(b, "tcp")
	b.base = "http://" + address + "/api/drone"
	cmdline, err := os.ReadFile(filepath.Join(b.folder, "cmdline.txt"))
	if err != nil {
		b.Fatal(err)
	}
	b.qemu = exec.Command("qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a53", "-smp", "2", "-m", "512",
		"-display", "none", "-nodefaults", "-no-reboot",
		"-kernel", filepath.Join(b.folder, "vmlinuz"),
		// The screen's output goes to a file, which a failure shows.
		"-append", strings.TrimSpace(string(cmdline))+" console=hvc0",
		"-device", "virtio-serial-device", "-device", "virtconsole,chardev=screen",
		"-chardev", "file,id=screen,append=on,path="+b.file("screen"),
		"-drive", "if=none,id=card,format=raw,file="+b.card, "-device", "virtio-blk-device,drive=card",
		"-netdev", "user,id=lan,hostfwd=tcp:"+address+"-:80", "-device", "virtio-net-device,netdev=lan",
		"-chardev", "serial,id=uart,path="+b.line.path+",logfile="+b.file("uart"), "-serial", "chardev:uart")
	b.qemu.Stderr = os.Stderr
	if err := b.qemu.Start(); err != nil {
		b.Fatal(err)
	}
}

func (b *board) file(name string) string { return filepath.Join(b.folder, name) }

// pull cuts the power, as if the battery were pulled.
func (b *board) pull() {
	if b.qemu != nil {
		b.qemu.Process.Kill()
		b.qemu.Wait()
		b.qemu = nil
	}
}

// curl sends a request to the API through the forwarded port. err is not nil if no answer came.
func (b *board) curl(path string, more ...string) (code int, answer object, err error) {
	args := append([]string{"-s", "-m", "30", "-w", "\n%{http_code}", b.base + path}, more...)
	out, err := exec.Command("curl", args...).Output()
	if err != nil {
		return 0, nil, err
	}
	body, status, _ := strings.Cut(string(out), "\n\n") // the body's last newline, and -w's
	if _, err := fmt.Sscan(status, &code); err != nil {
		return 0, nil, fmt.Errorf("%q: %w", out, err)
	}
	return code, answer, json.Unmarshal([]byte(body), &answer)
}

// online waits until the API answers and the autopilot is online, and returns how long that took.
func (b *board) online() time.Duration {
	b.Helper()
	begin := time.Now()
	first := time.Duration(0)
	b.wait(bootsWithin, "online", func() (bool, object) {
		_, s, err := b.curl("/status")
		if err == nil && first == 0 {
			first = time.Since(begin)
		}
		return err == nil && s["online"] == true, s
	})
	took := time.Since(begin)
	b.Logf("answered %.1f s after power-on, online %.1f s after it", first.Seconds(), took.Seconds())
	return took
}

// noLogin checks that the UART sends MAVLink and no text. The kernel's messages or a login would go
// to the autopilot. Before mavrest has set the port, the UART echoes the autopilot's own bytes;
// these don't count.
func (b *board) noLogin() {
	b.Helper()
	sent, err := os.ReadFile(b.file("uart"))
	if err != nil {
		b.Fatal(err)
	}
	if text := consoleText.Find(sent); text != nil {
		b.Errorf("the UART is a console: it sent %q", text)
	}
	var in deframer
	in.read(bytes.NewReader(sent))
	if _, ok := in.next(); !ok {
		b.Errorf("no MAVLink came from the UART, but %q", sent[:min(len(sent), 200)])
	}
}

var consoleText = regexp.MustCompile(`Linux version|gokrazy|login:|\[ *\d+\.\d{6}\]`)

// accepted posts a command until the autopilot accepts it. In its first seconds the autopilot
// can't be armed.
func (b *board) accepted(route, body string) {
	b.Helper()
	b.wait(fliesWithin, route+" accepted", func() (bool, object) {
		code, answer, _ := b.curl("/"+route, "-d", body)
		return code == 200 && answer["status"] == "accepted", answer
	})
}

// until waits for a condition of the status.
func (b *board) until(what string, is func(status object) bool) {
	b.Helper()
	b.wait(fliesWithin, what, func() (bool, object) {
		_, s, err := b.curl("/status")
		return err == nil && s["online"] == true && is(s), s
	})
}

func (b *board) wait(within time.Duration, what string, is func() (bool, object)) {
	b.Helper()
	var last object
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		yes, s := is()
		if yes {
			return
		}
		last = s
	}
	screen, _ := os.ReadFile(b.file("screen"))
	b.Fatalf("not %s within %v; last: %v\nthe screen:\n%s", what, within, last, screen[max(0, len(screen)-4000):])
}

// positionNear reports whether a number of the status' position is within some metres or degrees of want.
func positionNear(s object, key string, want, within float64) bool {
	position, _ := s["position"].(object)
	got, ok := position[key].(float64)
	return ok && math.Abs(got-want) <= within
}
