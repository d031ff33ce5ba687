package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// A failing flight tells its diary: what clients asked and were answered, what went over the wire in
// both directions, what mavrest logged, in virtual time. A flight that passes pays for a copy of its
// bytes: they are read only when it fails.

const (
	diaryLines = 60
	diaryBytes = 4 << 20 // of the wire; older bytes are forgotten

	diariesAtMost = 3 // in a run: many failures have one cause
)

var (
	diariesTold atomic.Int32

	// Virtual time makes diaries comparable: the diff of a flight's diaries before and after a change
	// shows what the change does to it.
	everyDiary = flag.Bool("diary", false,
		"with -v: print the diary of each flight, to its begin, also of one that passes")
)

// diary is what happened in one flight.
type diary struct {
	began    time.Time
	firmware firmware

	home [2]float64 // places are metres from there; zero: from the simulator's

	tail int       // how many of its last lines a failure prints; 0 for diaryLines
	ends time.Time // what came later is not printed; zero: all is

	mu      sync.Mutex
	entries []entry
	size    int  // bytes of the wire in entries
	told    bool // it was printed
}

// entry is a line of the diary, or bytes that went over the wire.
type entry struct {
	at   time.Time
	who  string // script, world, client, log; toVehicle or fromVehicle: raw are bytes
	text string
	raw  []byte
}

const toVehicle, fromVehicle = "→ vehicle", "← vehicle"

func (d *diary) note(who, format string, args ...any) {
	d.add(entry{at: time.Now(), who: who, text: fmt.Sprintf(format, args...)})
}

func (d *diary) add(e entry) {
	if d == nil { // a flight without mavrest
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, e)
	if d.size += len(e.raw); d.size > diaryBytes {
		half := len(d.entries) / 2
		for _, old := range d.entries[:half] {
			d.size -= len(old.raw)
		}
		d.entries = slices.Clone(d.entries[half:])
	}
}

// tap is mavrest's port; it notes what goes through.
type tap struct {
	port
	diary *diary
}

func (t tap) Read(b []byte) (int, error) {
	n, err := t.port.Read(b)
	if n > 0 {
		t.diary.add(entry{at: time.Now(), who: fromVehicle, raw: bytes.Clone(b[:n])})
	}
	return n, err
}

func (t tap) Write(b []byte) (int, error) {
	t.diary.add(entry{at: time.Now(), who: toVehicle, raw: bytes.Clone(b)})
	n, err := t.port.Write(b)
	if err != nil {
		t.diary.note("line", "that did not go out: %v", err)
	}
	return n, err
}

// diaryLog writes what mavrest logs into the diary.
type diaryLog struct {
	diary *diary
	attrs string // of each line
}

// log is the logger of the flight's mavrest.
func (d *diary) log() *slog.Logger { return slog.New(diaryLog{diary: d}) }

// logged returns the lines of the log so far.
func (d *diary) logged() (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.who == "log" {
			lines = append(lines, e.text)
		}
	}
	return lines
}

func (h diaryLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h diaryLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message + h.attrs
	r.Attrs(func(a slog.Attr) bool {
		text += logAttr(a)
		return true
	})
	h.diary.add(entry{at: r.Time, who: "log", text: text})
	return nil
}

func (h diaryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += logAttr(a)
	}
	return h
}

func (h diaryLog) WithGroup(string) slog.Handler { return h } // mavrest has no groups

func logAttr(a slog.Attr) string {
	if a.Key == "stack" {
		return fmt.Sprintf(" %s=\n%s", a.Key, a.Value)
	}
	return fmt.Sprintf(" %s=%q", a.Key, a.Value)
}

// wasTold reports whether the diary was printed.
func (d *diary) wasTold() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told
}

// lines is how many lines a failure prints.
func (d *diary) lines() int { return cmp.Or(d.tail, diaryLines) }

// String is the diary's last lines.
func (d *diary) String() string {
	d.mu.Lock()
	entries := slices.Clone(d.entries)
	d.mu.Unlock()
	r := &diaryReader{d: d, shown: map[string]string{}, rest: map[string][]byte{}, runs: map[string]*diaryLine{}}
	for _, e := range entries {
		if !d.ends.IsZero() && e.at.After(d.ends) {
			break
		}
		r.quiet(e.at)
		if e.raw == nil {
			r.say(e.at, e.who, e.text, "")
			continue
		}
		r.read(e)
	}
	r.quiet(time.Now())
	var b strings.Builder
	lines := r.lines
	if i := slices.IndexFunc(lines, func(l *diaryLine) bool { return acts(l.who) && l.who != "client" }); i >= 0 {
		lines = lines[i:] // the boot and the handshake went well
	}
	first := max(0, len(lines)-d.lines())
	if *everyDiary {
		first = 0
	}
	for _, l := range lines[first:] {
		fmt.Fprintf(&b, "%9.3f  %-9s  %s", l.at.Sub(d.began).Seconds(), l.who, l.text)
		if l.n > 1 {
			fmt.Fprintf(&b, "   (%d times until %.3f)", l.n, l.last.Sub(d.began).Seconds())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// diaryLine is a line as it is printed.
type diaryLine struct {
	at, last time.Time
	who      string
	text     string
	n        int
}

// diaryReader makes lines of entries.
type diaryReader struct {
	d     *diary
	lines []*diaryLine
	shown map[string]string     // what each kind of message showed last
	rest  map[string][]byte     // of each direction: bytes of a frame that is not whole
	runs  map[string]*diaryLine // lines that stand for several equal ones
	stick time.Time             // the last MANUAL_CONTROL; zero if none is streamed
	where string                // where the vehicle is
}

// acts reports whether these lines say what a test does.
func acts(who string) bool {
	return slices.Contains([]string{"script", "world", "client"}, who)
}

// say adds a line. Lines with the same key within some seconds of each other are one, until a script
// or a client does something.
func (r *diaryReader) say(at time.Time, who, text, key string) {
	if l := r.runs[key]; key != "" && l != nil && at.Sub(l.last) < 2500*time.Millisecond {
		l.n, l.last = l.n+1, at
		return
	}
	if acts(who) {
		clear(r.runs)
	}
	l := &diaryLine{at, at, who, text, 1}
	r.lines = append(r.lines, l)
	if key != "" {
		r.runs[key] = l
	}
}

// changed says a message's values if they differ from the last ones.
func (r *diaryReader) changed(at time.Time, who, name, text string) {
	if r.shown[who+name] != text {
		r.shown[who+name] = text
		r.say(at, who, name+" "+text, "")
	}
}

// quiet says that the sticks' stream has ended.
func (r *diaryReader) quiet(now time.Time) {
	if !r.stick.IsZero() && now.Sub(r.stick) > 200*time.Millisecond {
		r.say(r.stick, toVehicle, "MANUAL_CONTROL was the last", "")
		r.stick = time.Time{}
		delete(r.shown, toVehicle+"MANUAL_CONTROL")
	}
}

// read reads the frames in an entry's bytes.
func (r *diaryReader) read(e entry) {
	b := append(r.rest[e.who], e.raw...)
	for len(b) >= 12 {
		size := 12 + int(b[1]) + 13*int(b[2]&1)
		if b[0] != frame.V2MagicByte {
			b = b[1:]
			continue
		}
		if len(b) < size {
			break
		}
		list := parseFrames(b[:size])
		if len(list) == 0 { // damaged
			b = b[1:]
			continue
		}
		r.tell(e.at, e.who, list[0])
		b = b[size:]
	}
	r.rest[e.who] = bytes.Clone(b)
}

func parseFrames(b []byte) (list []message.Message) {
	rd := frame.Reader{BufByteReader: bufio.NewReaderSize(bytes.NewReader(b), len(b)), DialectRW: simDialect()}
	f, err := rd.Read()
	if err != nil {
		return nil
	}
	return []message.Message{f.GetMessage()}
}

// metres are those of a place from the flight's home.
func (d *diary) metres(lat, lon float64) (north, east float64) {
	if d.home == [2]float64{} {
		return simMetres(lat, lon)
	}
	return (lat - d.home[0]) * simDegree, (lon - d.home[1]) * simDegree * math.Cos(d.home[0]*math.Pi/180)
}

func short(v fmt.Stringer, prefix string) string { return strings.TrimPrefix(v.String(), prefix) }

// tell makes a line of a message, or none where it says nothing new.
func (r *diaryReader) tell(at time.Time, who string, msg message.Message) {
	f := r.d.firmware
	mode := func(custom uint32) string {
		m, name := f.reported(custom)
		return cmp.Or(name, fmt.Sprint(m))
	}
	switch m := msg.(type) {
	case *common.MessageHeartbeat:
		r.heartbeat(at, who, m.Type, mode(m.CustomMode), uint8(m.BaseMode), m.SystemStatus)
	case *common.MessageCurrentMode:
		r.changed(at, who, "CURRENT_MODE", mode(m.CustomMode))
	case *common.MessageCommandLong:
		r.command(at, who, m.Command, int(m.Confirmation),
			[]float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Param5, m.Param6, m.Param7}, mode)
	case *common.MessageCommandInt:
		n, e := r.d.metres(float64(m.X)/1e7, float64(m.Y)/1e7)
		r.say(at, who, fmt.Sprintf("COMMAND_INT %s to %.1f m north, %.1f m east, z %.1f in %s; params %g %g %g %g%s",
			short(m.Command, "MAV_CMD_"), n, e, m.Z, short(m.Frame, "MAV_FRAME_"),
			m.Param1, m.Param2, m.Param3, m.Param4, r.where), "")
	case *common.MessageCommandAck:
		text := fmt.Sprintf("COMMAND_ACK %s %s", short(m.Command, "MAV_CMD_"), short(m.Result, "MAV_RESULT_"))
		if m.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL || m.Command == common.MAV_CMD_REQUEST_MESSAGE {
			r.say(at, who, text, text)
			return
		}
		r.say(at, who, text, "")
	case *common.MessageManualControl:
		r.stick = at
		r.changed(at, who, "MANUAL_CONTROL", fmt.Sprintf("x %d y %d z %d r %d", m.X, m.Y, m.Z, m.R))
	case *common.MessageRcChannelsOverride:
		r.say(at, who, "RC_CHANNELS_OVERRIDE", "override")
	case *common.MessageStatustext:
		r.say(at, who, fmt.Sprintf("STATUSTEXT %s %q", short(m.Severity, "MAV_SEVERITY_"), m.Text), "")
	case *common.MessageExtendedSysState:
		r.changed(at, who, "EXTENDED_SYS_STATE",
			short(m.LandedState, "MAV_LANDED_STATE_")+" "+short(m.VtolState, "MAV_VTOL_STATE_"))
	case *common.MessageSysStatus:
		r.changed(at, who, "SYS_STATUS", fmt.Sprintf("unhealthy %#x",
			uint32(m.OnboardControlSensorsEnabled&^m.OnboardControlSensorsHealth)))
	case *common.MessageHomePosition:
		r.changed(at, who, "HOME_POSITION", fmt.Sprintf("%.1f m AMSL", float64(m.Altitude)/1000))
	case *common.MessagePositionTargetGlobalInt:
		n, e := r.d.metres(float64(m.LatInt)/1e7, float64(m.LonInt)/1e7)
		r.changed(at, who, "POSITION_TARGET_GLOBAL_INT", fmt.Sprintf("%.0f m north, %.0f m east, %.0f up", n, e, m.Alt))
	case *common.MessageParamValue:
		r.changed(at, who, "PARAM_VALUE", fmt.Sprintf("%s %g", m.ParamId, m.ParamValue))
	case *common.MessageGlobalPositionInt:
		if who != fromVehicle {
			return
		}
		n, e := r.d.metres(float64(m.Lat)/1e7, float64(m.Lon)/1e7)
		r.where = fmt.Sprintf("   [%.1f m north, %.1f m east, %.1f m up, %.1f m/s]", n, e, float64(m.RelativeAlt)/1000,
			math.Hypot(float64(m.Vx), float64(m.Vy))/100)
	case *common.MessageAutopilotVersion:
		r.changed(at, who, "AUTOPILOT_VERSION", fmt.Sprintf("%#x", m.FlightSwVersion))
	}
}

func (r *diaryReader) heartbeat(at time.Time, who string, typ common.MAV_TYPE, mode string, base uint8,
	state fmt.Stringer) {
	armed := "disarmed"
	if base&uint8(common.MAV_MODE_FLAG_SAFETY_ARMED) != 0 {
		armed = "armed"
	}
	if who != fromVehicle { // ours, or another program's
		r.changed(at, who, "HEARTBEAT as "+short(typ, "MAV_TYPE_"), "each second")
		return
	}
	r.changed(at, who, "HEARTBEAT", fmt.Sprintf("%s %s %s", mode, armed, short(state, "MAV_STATE_")))
}

func (r *diaryReader) command(at time.Time, who string, cmd common.MAV_CMD, copy int, p []float32,
	mode func(uint32) string) {
	name, key := short(cmd, "MAV_CMD_"), ""
	switch cmd {
	case common.MAV_CMD_SET_MESSAGE_INTERVAL, common.MAV_CMD_REQUEST_MESSAGE:
		what := fmt.Sprint(int(p[0]))
		if m := simDialect().GetMessage(uint32(p[0])); m != nil {
			what = messageNames[uint32(p[0])]
		}
		name += " " + cmp.Or(what, fmt.Sprint(int(p[0])))
		key = name
	case common.MAV_CMD_DO_SET_MODE:
		custom := uint32(p[1])
		if r.d.firmware == px4 {
			custom = px4Custom(uint32(p[1]), uint32(p[2]))
		}
		name += fmt.Sprintf(" %s (%g %g %g)", mode(custom), p[0], p[1], p[2])
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		name += map[float32]string{0: " disarm", 1: " arm"}[p[0]]
	default:
		name += fmt.Sprint(" ", p)
	}
	if copy > 0 {
		name += fmt.Sprintf(", copy %d", copy)
	}
	if key == "" {
		name += r.where
	}
	r.say(at, who, name, key)
}

var messageNames = map[uint32]string{
	0: "HEARTBEAT", 1: "SYS_STATUS", 24: "GPS_RAW_INT", 30: "ATTITUDE", 33: "GLOBAL_POSITION_INT", 65: "RC_CHANNELS",
	69: "MANUAL_CONTROL", 70: "RC_CHANNELS_OVERRIDE", 74: "VFR_HUD", 87: "POSITION_TARGET_GLOBAL_INT",
	148: "AUTOPILOT_VERSION", 242: "HOME_POSITION", 245: "EXTENDED_SYS_STATE", 253: "STATUSTEXT", 436: "CURRENT_MODE",
}

// asked and answered note a request of a client, and its answer.
func (d *diary) asked(method, path, body string) {
	if method != "GET" {
		d.note("client", "%s %s %s", method, path, body)
	}
}

func (d *diary) answered(method, path string, code int, o object) {
	if method != "GET" {
		text, _ := json.Marshal(o)
		d.note("client", "%s %s is answered %d %s", method, path, code, text)
	}
}

// tell prints a failure of a flight: where in which script, when, what; and, once, the diary.
func (f *flight) tell(what string) {
	f.Helper()
	if f.diary == nil {
		f.T.Log(what)
		return
	}
	text := what
	if f.at != nil {
		text = f.at() + "\n    " + strings.ReplaceAll(what, "\n", "\n    ")
	}
	f.diary.mu.Lock()
	again := f.diary.told
	f.diary.told = true
	f.diary.mu.Unlock()
	text += fmt.Sprintf("\n    at %.3f s of the flight; the vehicle: %s", time.Since(f.diary.began).Seconds(),
		f.truthInWords())
	switch {
	case again:
	case diariesTold.Add(1) > diariesAtMost:
		text += fmt.Sprintf("\nits diary: go test -run '^%s$' .", runOnly(f.Name()))
	default:
		text += fmt.Sprintf("\nthe diary of this flight, its last %d lines, in seconds:\n%s", f.diary.lines(), f.diary)
	}
	f.T.Log(text)
}

// runOnly is the pattern of -run that runs one test, between quotes of a shell.
func runOnly(name string) string {
	return strings.NewReplacer("/", "$/^", "'", ".").Replace(regexp.QuoteMeta(name))
}

func (f *flight) truthInWords() string {
	s := f.sim.truth()
	n, e := simMetres(s.lat, s.lon)
	_, name := f.firmware.reported(s.mode)
	return fmt.Sprintf("%s, armed %v, %.1f m north, %.1f m east, %.1f m up, %.1f m/s", name, s.armed, n, e, s.alt,
		math.Hypot(s.vn, s.ve))
}

func (f *flight) Error(args ...any) {
	f.Helper()
	f.tell(strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	f.T.Fail()
}

func (f *flight) Errorf(format string, args ...any) {
	f.Helper()
	f.tell(fmt.Sprintf(format, args...))
	f.T.Fail()
}

func (f *flight) Fatal(args ...any) {
	f.Helper()
	f.tell(strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	f.T.FailNow()
}

func (f *flight) Fatalf(format string, args ...any) {
	f.Helper()
	f.tell(fmt.Sprintf(format, args...))
	f.T.FailNow()
}

// A recorded flight has the same diary as a test's flight.

var diaryTlog = flag.String("tlog", "", "the recorded flight (-record) whose diary TestDiary prints")

// recordedDiary is the diary of a log; begins says in words what it is of.
func recordedDiary(b []byte) (d *diary, begins string) {
	began, list := cutTlog(b)
	d = &diary{began: began, tail: math.MaxInt}
	var id identity
	var said string
	for _, e := range list {
		id.hear(d, e.bytes)
	}
	d.firmware = id.firmware()
	for _, e := range list {
		system, component := frameIDs(e.bytes)
		ours := component == componentID || component == stationID && system == id.system
		made := entry{at: began.Add(e.at), who: fmt.Sprintf("← %d.%d", system, component), raw: e.bytes}
		switch {
		case ours:
			made.who = toVehicle
			text, whole, isText := chunkOf(e.bytes)
			said += text
			if isText && !whole {
				continue
			}
			if isText {
				made.who, made.text, made.raw = logOrClient(said), said, nil
				said = ""
			}
		case component == autopilotID && system == id.system:
			made.who = fromVehicle
		}
		d.entries = append(d.entries, made)
	}
	return d, fmt.Sprintf("%s, %d frames, system %d, %v %v", began.UTC().Format(time.RFC3339Nano), len(list), id.system,
		id.autopilot, id.typ)
}

// frameIDs are the ids of a whole frame's sender.
func frameIDs(b []byte) (system, component byte) {
	if b[0] == 0xfe {
		return b[3], b[4]
	}
	return b[5], b[6]
}

// hear takes what a frame tells of the vehicle, and where its home is: places are metres from there.
func (i *identity) hear(d *diary, b []byte) {
	system, component := frameIDs(b)
	if component != autopilotID || (i.system != 0 && i.system != system) {
		return
	}
	for _, m := range parseFrames(b) {
		switch m := m.(type) {
		case *common.MessageHeartbeat:
			i.system, i.autopilot, i.typ = system, m.Autopilot, m.Type
		case *common.MessageExtendedSysState:
			i.vtol = uint8(m.VtolState)
		case *common.MessageHomePosition:
			if d.home == [2]float64{} {
				d.home = [2]float64{float64(m.Latitude) / 1e7, float64(m.Longitude) / 1e7}
			}
		}
	}
}

// chunkOf is a chunk of one of the log's lines; whole: it ends the line.
func chunkOf(b []byte) (text string, whole, isText bool) {
	for _, m := range parseFrames(b) {
		if m, ok := m.(*common.MessageStatustext); ok {
			level := ""
			if m.ChunkSeq == 0 {
				level = map[common.MAV_SEVERITY]string{common.MAV_SEVERITY_ERROR: "ERROR ",
					common.MAV_SEVERITY_WARNING: "WARN "}[m.Severity]
			}
			return level + m.Text, m.Id == 0 || len(m.Text) < 50, true
		}
	}
	return "", false, false
}

// logOrClient is who a line of the log tells of: those of a request name its route.
func logOrClient(line string) string {
	if strings.Contains(line, " route=/api/") {
		return "client"
	}
	return "log"
}

// cutTlog cuts a log into its frames by their lengths, to its end or to a record that is torn.
func cutTlog(b []byte) (began time.Time, list []tlogEntry) {
	for len(b) > stampBytes {
		size := claimedSize(b[stampBytes:])
		if size <= 0 || len(b) < stampBytes+size {
			return began, list
		}
		at := time.UnixMicro(int64(binary.BigEndian.Uint64(b)))
		if list == nil {
			began = at
		}
		list = append(list, tlogEntry{at.Sub(began), bytes.Clone(b[stampBytes : stampBytes+size])})
		b = b[stampBytes+size:]
	}
	return began, list
}
