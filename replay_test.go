package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// playedStatus is what a status shows at a moment of a flight.
type playedStatus struct {
	after    time.Duration // since the log's first record
	mode     string
	armed    bool
	altitude float64
}

// readPlayed reads a status.
func readPlayed(h http.Handler, after time.Duration) playedStatus {
	var s struct {
		Mode     string `json:"vehicle_mode"`
		Armed    bool
		Position struct{ Altitude float64 }
	}
	json.Unmarshal([]byte(call(h, "GET", "/api/drone/status", nil).body), &s)
	return playedStatus{after, s.Mode, s.Armed, s.Position.Altitude}
}

// recordedFlight is a log of a takeoff and a landing, and what the status showed twice a second.
func recordedFlight(t *testing.T, flavour simFlavour) (log []byte, list []playedStatus) {
	t.Helper()
	var moments []time.Time
	flyRecorded(t, flavour, func(f *flight, r *recorder, d *memoryDisk) {
		f.accepted("/takeoff", `{"altitude": 15}`)
		for second := range 60 {
			if second == 20 {
				f.accepted("/land", "")
			}
			list = append(list, readPlayed(f.handler, 0))
			moments = append(moments, time.Now())
			time.Sleep(time.Second)
		}
		log = d.only(t)
	})
	began, _ := cutTlog(log)
	for i := range list {
		list[i].after = moments[i].Sub(began)
	}
	return log, list
}

// playRecorded runs mavrest beside a recorded flight, in virtual time.
func playRecorded(t *testing.T, log []byte, options string, do func(d *drone, h http.Handler)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "flight.tlog")
	if err := os.WriteFile(file, log, 0o600); err != nil {
		t.Fatal(err)
	}
	inLinkBubble(t, func(t *testing.T) {
		dev, err := newPlayback("replay:" + file + options)
		if err != nil {
			t.Fatal(err)
		}
		d := newDrone(dev, 0, false, slog.New(slog.DiscardHandler))
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.run(ctx) })
		defer running.Wait()
		defer end()
		do(d, newHandler(d, admission{}))
	})
}

func TestARecordedFlightIsPlayedAsItWasAtItsPaceOrFaster(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		log, list := recordedFlight(t, flavour)
		if top := list[19]; !top.armed || top.altitude < 12 {
			t.Fatalf("the flight was %+v", top)
		}
		for speed, options := range map[float64]string{1: "", 4: "?speed=4", 20: "?speed=20"} {
			playRecorded(t, log, options, func(d *drone, h http.Handler) {
				began := time.Now()
				for _, want := range list {
					time.Sleep(time.Until(began.Add(time.Duration(float64(want.after+60*time.Millisecond) / speed))))
					got := readPlayed(h, want.after)
					if got.mode != want.mode || got.armed != want.armed || math.Abs(got.altitude-want.altitude) > 0.7 {
						t.Errorf("played %g times as fast: %+v, and it was %+v", speed, got, want)
					}
				}
				if s := d.snapped(); s.link.lost != 0 || s.link.sent != 0 || s.link.errors != 0 {
					t.Errorf("%d frames were lost, %d sent, %d damaged", s.link.lost, s.link.sent, s.link.errors)
				}
			})
		}
	}
}

func TestARecordedFlightCanOnlyBeLookedAt(t *testing.T) {
	log, list := recordedFlight(t, simPX4)
	posts := map[string]string{"takeoff": "", "land": "", "goto": `{"altitude":20}`, "input": `{"throttle":0.5}`,
		"mode": `{"mode":"hold"}`}
	playRecorded(t, log, "", func(d *drone, h http.Handler) {
		const words = "this is a recorded flight, of 1 January 2000, 00:00:00 UTC: it can be looked at, not commanded"
		refused := func() {
			t.Helper()
			for path, body := range posts {
				began := time.Now()
				call(h, "POST", "/api/drone/"+path, strings.NewReader(body)).want(t, 501, "unsupported", words)
				if took := time.Since(began); took > 0 {
					t.Errorf("%s took %v", path, took)
				}
			}
		}
		refused()
		time.Sleep(list[15].after)
		refused()
		call(h, "GET", "/api/drone/status", nil).has(t, `"online":true`, `"modes":[]`, `"armable":null`,
			`"kind":"hover"`, `"error":"`+words)

		// It is over.
		time.Sleep(2 * time.Minute)
		refused()
		call(h, "GET", "/api/drone/status", nil).has(t, `"online":false`, "the recorded flight is over")
	})
}

func TestOnlyTheVehiclesMessagesArePlayed(t *testing.T) {
	var log []byte
	record := func(b []byte) {
		log = append(binary.BigEndian.AppendUint64(log, uint64(knownTime.UnixMicro())+uint64(len(log))), b...)
	}
	beat := px4Beat()
	record(packet(7, 3, componentID, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)))
	record(packet1(7, 3, 1, beat))
	record(packet(9, 3, componentID, &common.MessageCommandLong{}))
	record(packet(9, 3, 1, &common.MessageCommandAck{Result: common.MAV_RESULT_DENIED}))
	record(packet(9, 3, 1, &common.MessageTimesync{Tc1: 5}))
	record(unknownPacket(9, 20))
	record(packet(9, 255, stationID, beat))
	record(signedPacket(packet(77, 3, 1, beat)))
	for cut := range 6 {
		r := &playback{}
		began, err := r.load(log[:len(log)-cut])
		if err != nil || !began.After(knownTime) {
			t.Fatalf("%v, began %v", err, began)
		}
		var played []byte
		for _, f := range r.frames {
			played = append(played, f.bytes...)
		}
		want := packet1(0, 3, 1, beat)
		if cut == 0 {
			want = append(want, packet(1, 3, 1, beat)...)
		}
		if !bytes.Equal(played, want) {
			t.Errorf("a log without its last %d bytes plays\n% x, want\n% x", cut, played, want)
		}
	}
}

func TestABadRecordedFlightIsAnErrorThatSaysWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	ours := append(make([]byte, 8), packet(1, 1, componentID, px4Beat())...)
	for name, b := range map[string][]byte{"empty": nil, "noise": bytes.Repeat([]byte{0xfd}, 500), "ours": ours,
		"short": {1, 2, 3}, "good": append(make([]byte, 8), packet(1, 1, 1, px4Beat())...)} {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const noFlight = "want a telemetry log (.tlog): no message of an autopilot is in this file"
	for _, c := range []struct{ file, says string }{
		{"none", "no such file"}, {"", "is a directory"}, {"empty", "this file is empty: nothing was recorded"},
		{"noise", noFlight}, {"ours", noFlight}, {"short", noFlight},
		{"good?speed=", `speed: want 1 to 20 times as fast as it was, got ""`},
		{"good?speed=0.5", `speed: want 1 to 20 times as fast as it was, got "0.5"`},
		{"good?speed=21", `speed: want 1 to 20 times as fast as it was, got "21"`},
		{"good?speed=NaN", `speed: want 1 to 20 times as fast as it was, got "NaN"`},
		{"good?speed=4x", `speed: want 1 to 20 times as fast as it was, got "4x"`},
		{"good?speed=1", ""}, {"good?speed=20", ""}, {"good", ""},
	} {
		name := "replay:" + folder + "/" + c.file
		_, err := newPlayback(name)
		said := fmt.Sprint(err)
		if c.says == "" && err != nil ||
			c.says != "" && !(strings.HasPrefix(said, "-device "+name+": ") && strings.Contains(said, c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if _, err := newPlayback("replay:"); err == nil || !strings.Contains(err.Error(), "replay:FILE") {
		t.Errorf("replay: alone: %v", err)
	}
}
