package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// This file makes the diary of a recorded flight: script_test.go makes that of a test's flight.

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

// TestDiary prints the diary of a recorded flight: go test -run TestDiary -tlog FILE.
func TestDiary(t *testing.T) {
	if *diaryTlog == "" {
		t.Skip("-tlog names a recorded flight")
	}
	b, err := os.ReadFile(*diaryTlog)
	if err != nil {
		t.Fatal(err)
	}
	d, begins := recordedDiary(b)
	if len(d.entries) == 0 {
		t.Fatalf("%s: want a telemetry log: no frame stands behind its first time", *diaryTlog)
	}
	fmt.Printf("%s, in seconds since then:\n%s", begins, d)
}

func TestARecordedFlightHasTheDiaryThatATestsFlightHas(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		flyRecorded(t, flavour, func(f *flight, r *recorder, d *memoryDisk) {
			f.diary.tail = math.MaxInt
			f.accepted("/takeoff", `{"altitude": 20, "wait": 60}`)
			f.accepted("/goto", `{"north": 30, "wait": 60}`)
			f.sim.pilotMode(pilots[f.firmware])
			time.Sleep(3 * time.Second)
			b := d.only(t)
			read, begins := recordedDiary(b)
			if read.firmware != f.firmware || !strings.Contains(begins, "system 1, ") {
				t.Errorf("the log is that of %s", begins)
			}
			want, got := wireLines(f.diary), wireLines(read)
			if len(want) < 10 || !slices.Equal(got, want) {
				t.Errorf("the log's diary has\n%s\nthe flight's own has\n%s", strings.Join(got, "\n"),
					strings.Join(want, "\n"))
			}
			if text := read.String(); !strings.Contains(text, "  client     request from=") ||
				!strings.Contains(text, "a pilot, another program or a failsafe changed the mode") {
				t.Errorf("no request or no pilot is in\n%s", text)
			}

			// As behind a power cut.
			if torn, _ := recordedDiary(b[:len(b)-5]); len(torn.entries) != len(read.entries)-1 {
				t.Errorf("a torn record: %d entries of %d", len(torn.entries), len(read.entries))
			}
		})
	}
}

// wireLines are the lines of a diary that say what was commanded and how it was answered, with the vehicle's mode and
// place.
func wireLines(d *diary) (list []string) {
	for line := range strings.Lines(d.String()) {
		line = strings.TrimSpace(line)
		_, line, _ = strings.Cut(line, " ")
		repeats := strings.Contains(line, "REQUEST_MESSAGE") || strings.Contains(line, "_INTERVAL")
		if strings.Contains(line, " vehicle  ") && !repeats {
			list = append(list, line)
		}
	}
	return list
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
