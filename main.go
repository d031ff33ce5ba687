// Mavrest gives a drone a REST API. It runs on the companion board, speaks MAVLink to the
// flight controller and serves eight routes to the local network. README.md describes it.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	// So the link needs a fifth less CPU; the other cores stay free (docs/performance.md).
	runtime.GOMAXPROCS(1)

	// A board has little memory: a quarter of the default headroom (docs/performance.md).
	debug.SetGCPercent(25)
	stopSignals := []os.Signal{syscall.SIGTERM, os.Interrupt}

	// Under nohup SIGHUP is ignored; else it means that the terminal or ssh session has ended.
	if !signal.Ignored(syscall.SIGHUP) {
		stopSignals = append(stopSignals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals...)
	defer stop()

	// A closed log must not end the program in flight.
	signal.Ignore(syscall.SIGPIPE)
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mavrest:", err)
		os.Exit(1)
	}
}

type options struct {
	device string
	baud   int
	port   int
	bind   string
	system int
	gcs    bool

	// sign: the file with the key
	sign string

	// reach: kilometres
	reach float64

	// ceiling: metres above home
	ceiling float64

	// record: the folder of the flight recorder; "": none
	record string

	// recordMax: MB
	recordMax int

	hosts   []string
	origins []string
	verbose bool
	version bool
}

func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("mavrest", flag.ContinueOnError)

	// main prints the error, in one line
	f.SetOutput(io.Discard)
	f.StringVar(&o.device, "device", "", "")
	f.IntVar(&o.baud, "baud", 0, "")
	f.IntVar(&o.port, "port", 80, "")
	f.StringVar(&o.bind, "bind", "", "")
	f.IntVar(&o.system, "system", 0, "")
	f.BoolVar(&o.gcs, "gcs", false, "")
	f.StringVar(&o.sign, "sign", "", "")
	f.Float64Var(&o.reach, "reach", defaultReach/1000, "")
	f.Float64Var(&o.ceiling, "ceiling", defaultCeiling, "")
	f.StringVar(&o.record, "record", "", "")
	f.IntVar(&o.recordMax, "record-max", 256, "")
	admissionFlags(f, &o)
	f.BoolVar(&o.verbose, "v", false, "")
	f.BoolVar(&o.version, "version", false, "")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			io.WriteString(out, usage)
			return o, err
		}
		return o, fmt.Errorf("%w; see -help", err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; flags begin with -, see -help", f.Arg(0))
	}
	return o, o.fault()
}

// fault is what is wrong with the options; nil if nothing is.
func (o options) fault() error {
	switch {
	case o.version:
		return nil
	case o.device == "":
		return errors.New("no -device given; let mavrest look for the autopilot (-device auto), name its port " +
			"(-device /dev/serial0), or fly the built-in simulator (-device sim)")
	case o.baud < 0:
		return fmt.Errorf("-baud %d: want a baud rate, or 0 to find it", o.baud)
	case o.port < 0 || o.port > 65535:
		return fmt.Errorf("-port %d: want 1 to 65535, or 0 for any free port", o.port)
	case bindFault(o.bind) != nil:
		return fmt.Errorf("-bind %s: %w", o.bind, bindFault(o.bind))
	case o.system < 0 || o.system > 255:
		return fmt.Errorf("-system %d: want a MAVLink system id, 1 to 255, or 0 for the first vehicle heard",
			o.system)
	case !(o.reach > 0):
		// NaN is not either
		return fmt.Errorf("-reach %g: want kilometres, over 0", o.reach)
	case !(o.ceiling > 0):
		return fmt.Errorf("-ceiling %g: want metres above home, over 0", o.ceiling)
	case o.plays() && o.sign != "":
		return fmt.Errorf("-sign %s: a recorded flight has no signatures; leave -sign out", o.sign)
	case o.recordMax < leastRecords:
		return fmt.Errorf("-record-max %d: want MB for all recorded flights together, at least %d", o.recordMax,
			leastRecords)
	}
	return nil
}

// admissionFlags adds the flags that say who may use the API.
func admissionFlags(f *flag.FlagSet, o *options) {
	f.Func("host", "", func(s string) error {
		o.hosts = append(o.hosts, s)
		if s == "" || strings.ContainsAny(s, "/: ") {
			return errors.New("want only a name, without scheme or port")
		}
		return nil
	})
	f.Func("origin", "", func(s string) error {
		origin, err := pageOrigin(s)
		o.origins = append(o.origins, origin)
		return err
	})
}

// bindFault says what is wrong with what looks like an address and is none, and with an interface; nil for any other
// name, which may have an address.
func bindFault(bind string) error {
	host, port, _ := net.SplitHostPort(bind)
	_, noPort := strconv.Atoi(port)
	bare := strings.Trim(bind, "[]")
	isIP := func(s string) bool { _, err := netip.ParseAddr(s); return err == nil }
	switch {
	case bind == "" || isIP(bind):
		return nil
	case isIP(bare):
		return fmt.Errorf("want an address without brackets: -bind %s", bare)
	case noPort == nil:
		return fmt.Errorf("want an address without a port: -bind %s -port %s", cmp.Or(host, "0.0.0.0"), port)
	case strings.ContainsAny(bind, "/: "):
		return errors.New("want an IP address of this board, such as 192.168.1.5 or ::1")
	}
	i, err := net.InterfaceByName(bind)
	if err != nil {
		return nil
	}

	// On an error only the interface is named.
	addresses, _ := i.Addrs()
	var list []string
	for _, a := range addresses {
		list = append(list, strings.Split(a.String(), "/")[0])
	}
	return fmt.Errorf("this is an interface; want one of its addresses: %s",
		cmp.Or(strings.Join(list, ", "), "it has none now"))
}

// what -help prints
//
//go:embed deploy/help.txt
var usage string

// buildVersion is what -version prints. The source is the module's version in the build
// information, which names the commit.
func buildVersion() string {
	// Whatever go builds from a module has it.
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("mavrest %s %s %s/%s, source %s",
		ownVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH, info.Main.Version)
}

// run is the program. It returns when ctx is done or the server has failed, and everything
// has ended. An error says why it can't start, or why the server failed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	if o.version {
		fmt.Fprintln(stdout, buildVersion())
		return nil
	}
	log := newLogWriter(stderr)
	defer log.close()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: o.logLevel()})))
	signing, err := o.signing()
	if err != nil {
		return err
	}
	recorder := startRecorder(o)
	defer recorder.close()

	var running sync.WaitGroup
	defer running.Wait()

	// The simulated drone flies on while the link ends, as a real one does.
	deviceCtx, unplug := context.WithCancel(context.WithoutCancel(ctx))
	defer unplug()
	dev, err := openDevice(deviceCtx, o, signing, &running)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(o.bind, strconv.Itoa(o.port))
	listener, err := net.Listen("tcp"+ipVersion(o.bind), address)
	if err != nil {
		return fmt.Errorf("the API can't listen on %s (-bind, -port): %w", address, openFault(address, err))
	}

	slog.Info("listening", "address", listener.Addr().String(), "device", dev.name)
	urls := &pageURLs{listen: listener.Addr().(*net.TCPAddr)}
	notifySystemd("READY=1\nSTATUS=" + strings.Join(urls.find(), " "))

	d := newDrone(dev, byte(o.system), o.gcs, slog.Default())
	d.link.signing = signing
	d.reach = o.reach * 1000
	d.ceiling = o.ceiling
	d.link.recorder = recorder
	droneCtx, stopDrone := context.WithCancelCause(ctx)
	defer stopDrone(nil)
	running.Go(func() { supervise(droneCtx, d, urls) })
	server := newServer(newHandler(d, o.admission()), maxConnections)
	running.Go(func() { stopDrone(server.Serve(listener)) })
	d.run(droneCtx)

	// d.run has left the vehicle safe and closed the port.
	endServing(server)

	// Nobody asked the program to end: the server has failed.
	if ctx.Err() == nil {
		return context.Cause(droneCtx)
	}
	return nil
}

// endServing gives the last answers 2 s to go out.
func endServing(server server) {
	limited, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if server.Shutdown(limited) != nil {
		server.Close()
	}
}

// plays reports whether -device is a recorded flight.
func (o options) plays() bool { return strings.HasPrefix(o.device, replayScheme) }

// startRecorder starts the recorder that -record asks for, which from now on has each line of the log; nil: none is.
func startRecorder(o options) *recorder {
	// A flight that is played was recorded before.
	if o.record == "" || o.plays() {
		return nil
	}
	r := newRecorder(recordFolder(o.record), int64(o.recordMax)<<20)
	r.log = slog.New(recordedLog{Handler: slog.Default().Handler(), recorder: r})
	slog.SetDefault(r.log)

	// close waits for it.
	go r.run()
	return r
}

// logLevel is the level from which on lines are logged.
func (o options) logLevel() slog.Level {
	if o.verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// signing is by the key of -sign; nil without one.
func (o options) signing() (*signing, error) {
	if o.sign == "" {
		return nil, nil
	}
	key, err := readKey(o.sign, os.Getenv("CREDENTIALS_DIRECTORY"))
	if err != nil {
		return nil, err
	}
	return newSigning(key), nil
}

// admission is who may use the API.
func (o options) admission() admission {
	// On an error only addresses work.
	name, _ := os.Hostname()

	// On an error there are no search domains.
	conf, _ := os.ReadFile("/etc/resolv.conf")

	return admission{hosts: ownHosts(name, string(conf), o.hosts), origins: o.origins}
}

// openDevice returns the device that -device names, and starts it if it is the simulator, which has the key of -sign.
func openDevice(ctx context.Context, o options, signing *signing, running *sync.WaitGroup) (device, error) {
	flavours := map[string]simFlavour{"sim": simPX4, "sim:ardupilot": simArduPilot}
	flavour, ok := flavours[o.device]
	if o.plays() {
		return newPlayback(o.device)
	}
	if !ok {
		return newDevice(o.device, o.baud, byte(o.system))
	}
	s := newSimulator(flavour)
	if signing != nil {
		s.sign(signing.key)
	}
	running.Go(func() { s.run(ctx) })
	open := func(context.Context) (port, error) { return s.open() }

	// Like a serial line.
	return device{name: o.device, open: open, lossy: true}, nil
}

// pageURLs finds the URLs of the drone's page, and logs each once.
type pageURLs struct {
	listen *net.TCPAddr
	logged []string

	// found: the last ones
	found []string
}

// find returns the present URLs, and logs the new ones: at boot most addresses come later
// than the program.
func (p *pageURLs) find() []string {
	// On an error only the name is used.
	own, _ := net.InterfaceAddrs()
	name, _ := os.Hostname()
	if _, err := os.Stat("/run/avahi-daemon/socket"); err == nil && !strings.Contains(name, ".") {
		name += ".local"
	}
	p.found = urlsOf(p.listen, own, name)
	for _, url := range p.found {
		if !slices.Contains(p.logged, url) {
			p.logged = append(p.logged, url)
			slog.Info("open in a browser, or with curl", "url", url)
		}
	}
	return p.found
}

// urlsOf returns the URL of the address listened on. If the program listens on all addresses, it
// returns a URL with the machine's name and one with each address.
func urlsOf(listen *net.TCPAddr, own []net.Addr, name string) (list []string) {
	add := func(host string) {
		host = strings.TrimSuffix(net.JoinHostPort(host, strconv.Itoa(listen.Port)), ":80")
		list = append(list, "http://"+host+"/api/drone/status")
	}
	if !listen.IP.IsUnspecified() {
		add(listen.IP.String())
		return list
	}
	if name != "" {
		add(name)
	}

	// Linux lists the IPv4 addresses first
	for _, a := range own {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() {
			continue
		}

		// 0.0.0.0 listens on no IPv6 address. A link-local one needs a zone, which no browser accepts.
		if n.IP.To4() != nil || (listen.IP.To4() == nil && n.IP.IsGlobalUnicast()) {
			add(n.IP.String())
		}
	}
	return list
}

// lookForURLs is the time between two looks for new addresses of the board: each asks the kernel for all that it has.
const lookForURLs = 5 * time.Second

// supervise logs new addresses, on the ground, and sends signs of life to systemd each second, until the
// program stops.
func supervise(ctx context.Context, d *drone, urls *pageURLs) {
	// 0 if there is no watchdog
	usec, _ := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	watchdog := time.Duration(usec) * time.Microsecond
	look := time.Tick(lookForURLs)

	// nil: nobody waits for a sign
	var tick <-chan time.Time
	if underSystemd() {
		tick = time.Tick(time.Second)
	}
	for {
		select {
		case <-look:
			if !d.flying() {
				urls.find()
			}
		case <-tick:
			notifySystemd(signOfLife(d, urls.found, watchdog))
		case <-ctx.Done():
			slog.Info("stopping")
			notifySystemd("STOPPING=1")
			return
		}
	}
}

// notifySocket is where systemd hears a program that runs under it.
const notifySocket = "NOTIFY_SOCKET"

func underSystemd() bool { return os.Getenv(notifySocket) != "" }

// notifySystemd sends systemd a state as sd_notify(3) does, if the program runs under it.
func notifySystemd(state string) {
	if !underSystemd() {
		return
	}
	c, err := net.Dial("unixgram", os.Getenv(notifySocket))
	if err == nil {
		_, err = c.Write([]byte(state))
		c.Close()
	}
	if err != nil {
		slog.Warn("can't notify systemd", "state", state, "error", err)
	}
}

// signOfLife returns a notice for systemd: the drone's state and the URLs. It feeds the
// watchdog only if the drone's clock has run within half the watchdog's period.
func signOfLife(d *drone, urls []string, watchdog time.Duration) string {
	state := "STATUS=" + d.summary() + "; " + strings.Join(urls, " ")
	if time.Since(time.Unix(0, d.clock.beat.Load())) < watchdog/2 {
		state += "\nWATCHDOG=1"
	}
	return state
}

// logWriter writes the log in a goroutine of its own. A terminal that blocks must not
// stop the link: lines that do not fit are dropped and counted.
type logWriter struct {
	// lines: nil ends the goroutine
	lines chan []byte

	dropped atomic.Int64
	done    chan struct{}
}

// newLogWriter returns a writer to w that holds up to 256 lines.
func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{lines: make(chan []byte, 256), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for line := <-l.lines; line != nil; line = <-l.lines {
			w.Write(line)
			if n := l.dropped.Swap(0); n > 0 {
				fmt.Fprintf(w, "%d lines of the log were dropped because nobody read them\n", n)
			}
		}
	}()
	return l
}

func (l *logWriter) Write(b []byte) (int, error) {
	select {
	case l.lines <- bytes.Clone(b):
	default:
		l.dropped.Add(1)
	}
	return len(b), nil
}

// close writes the remaining lines, for up to a second.
func (l *logWriter) close() {
	late := time.After(time.Second)
	select {
	case l.lines <- nil:
		// waits for room, which Write does not
	case <-late:
		return
	}
	select {
	case <-l.done:
	case <-late:
	}
}
