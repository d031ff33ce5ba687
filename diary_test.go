package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

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
