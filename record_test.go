package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

func TestAFlightIsRecordedFromAMinuteBeforeItsArmingTo30SecondsBehindItsDisarming(t *testing.T) {
	recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
		began := time.Now()
		for second := range 400 {
			r.setArmed(second >= 200 && second < 250)
			r.hears(&common.MessageAttitude{TimeBootMs: uint32(second)})
			time.Sleep(time.Second)
		}
		list := readRecords(t, d.only(t))
		first, last := list[0].at.Sub(began).Seconds(), list[len(list)-1].at.Sub(began).Seconds()
		if first < 138 || first > 142 || last < 278 || last > 282 {
			t.Errorf("recorded from %.1f s to %.1f s, want 140 and 280", first, last)
		}
		for i, r := range list {
			if got := r.msg.(*common.MessageAttitude).TimeBootMs; i > 0 && got != uint32(i)+
				list[0].msg.(*common.MessageAttitude).TimeBootMs {
				t.Fatalf("record %d is that of second %d", i, got)
			}
		}
	})
}

func TestAVehicleThatWasArmedForAMomentIsRecorded(t *testing.T) {
	recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
		r.setArmed(true)
		r.setArmed(false)
		r.hears(&common.MessageAttitude{})
		time.Sleep(time.Minute)
		if n := len(readRecords(t, d.only(t))); n != 1 {
			t.Errorf("%d records, want 1", n)
		}
	})
}

func TestWhatWasRecordedASecondAgoIsSafeFromAPowerCut(t *testing.T) {
	recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
		r.setArmed(true)
		time.Sleep(2 * time.Second)
		for range 100 {
			before := time.Now()
			r.hears(&common.MessageAttitude{})
			time.Sleep(syncEvery + writeEvery + time.Millisecond)
			name := d.names()[0]
			list := readRecords(t, d.files[name].bytes[:d.files[name].safe])
			if len(list) == 0 || list[len(list)-1].at.Before(before.Truncate(time.Microsecond)) {
				t.Fatal("a record is not safe yet")
			}
			time.Sleep(37 * time.Millisecond)
		}
	})
}

func TestALogHasNoSignatureAndNoKey(t *testing.T) {
	recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
		r.setArmed(true)
		plain, _ := newSender(1, componentID).encode(&common.MessageAttitude{Roll: 1, TimeBootMs: 5})
		signed := bytes.Clone(plain)
		signed[2] = 1
		end := len(signed) - 2
		signed = binary.LittleEndian.AppendUint16(signed[:end], checksum(signed[1:end], codecOf(idAttitude)))
		signed = append(signed, "a signature.."...)
		r.sent(signed)
		var in deframer
		f, size := in.candidate(signed)
		if size != len(signed) {
			t.Fatalf("the signed frame has %d bytes, want %d", size, len(signed))
		}
		f.came = time.Now()
		r.heard(f)
		key := bytes.Clone(plain)
		key[7], key[8] = 0, 1
		r.sent(key)
		time.Sleep(2 * time.Second)
		got := d.only(t)
		record := stampBytes + len(plain)
		if len(got) != 2*record || !bytes.Equal(got[stampBytes:record], plain) ||
			!bytes.Equal(got[record+stampBytes:], plain) {
			t.Errorf("recorded % x, want twice % x behind its time", got, plain)
		}
	})
}

func TestALineOfTheLogIsRecordedInChunksThatGiveItBack(t *testing.T) {
	long := strings.Repeat("ü12345678 ", 30)
	full := strings.Repeat("x", 100-len(" from=here  took=1s"))
	for _, text := range []string{"", "short", strings.Repeat("x", 50), strings.Repeat("x", 100), full, long} {
		recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
			r.setArmed(true)
			r.sent(must(newSender(7, componentID).encode(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))))
			log := slog.New(recordedLog{Handler: slog.NewTextHandler(io.Discard, nil), recorder: r})
			log.With("from", "here\n").Warn(text, "took", time.Second)
			time.Sleep(2 * time.Second)
			list := readRecords(t, d.only(t))
			got := texts(list)
			want := text + " from=here  took=1s"
			if len(got) != 1 || strings.ReplaceAll(got[0], " ", "") != strings.ReplaceAll(want, " ", "") {
				t.Errorf("%q: recorded %q", want, got)
			}
			for i, r := range list[1:] {
				m := r.msg.(*common.MessageStatustext)
				if r.frame.system != 7 || m.Severity != common.MAV_SEVERITY_WARNING || int(m.ChunkSeq) != i ||
					(m.Id == 0) != (len(list) == 2) || !utf8.ValidString(m.Text) {
					t.Errorf("%q: chunk %d: %+v of system %d", want, i, m, r.frame.system)
				}
			}
		})
	}
}

func TestEachInputIsRecordedThoughTheLogHasItOnlyWithV(t *testing.T) {
	for level, logged := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 2} {
		recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
			r.setArmed(true)
			var out bytes.Buffer
			handler := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})
			log := slog.New(recordedLog{Handler: handler, recorder: r})
			log.Debug(stickLine, "body", "{}")
			log.Debug("something else")
			time.Sleep(2 * time.Second)
			if got := texts(readRecords(t, d.only(t))); len(got) != 1 || got[0] != "sticks body={}" {
				t.Errorf("recorded %q", got)
			}
			if n := strings.Count(out.String(), "\n"); n != logged {
				t.Errorf("%v: %d lines in the log, want %d", level, n, logged)
			}
		})
	}
}

func TestOurOldestFilesMakeRoomWithinAFlightTooAndNoOtherFileIsDeleted(t *testing.T) {
	recordBubble(t, 48<<20, func(r *recorder, d *memoryDisk) {
		others := []string{
			"0-a-flight.tlog", "mavrest-1-20260101T000000Z.tlog", "mavrest-000001-20260101T000000Z.tlog.gz",
		}
		for _, name := range others {
			d.files[name] = &memoryFile{disk: d}
			d.sizes[name] = 1 << 30
		}

		// The clock was wrong when this was made.
		d.files["mavrest-000007-20990101T000000Z.tlog"] = &memoryFile{disk: d, bytes: make([]byte, 10<<20)}
		r.setArmed(true)
		m := &common.MessageStatustext{Text: strings.Repeat("x", 50)}
		for range 10 * 8 {
			for range 12000 {
				r.hears(m)
			}
			time.Sleep(writeEvery)
		}
		time.Sleep(2 * time.Second)
		names := slices.DeleteFunc(d.names(), func(name string) bool { return slices.Contains(others, name) })
		if len(d.names()) != len(names)+len(others) {
			t.Errorf("files %q: others were deleted", d.names())
		}
		numbers := []string{}
		total := 0
		for _, name := range names {
			numbers = append(numbers, name[8:14])
			total += len(d.files[name].bytes)
			readRecords(t, d.files[name].bytes)
			if n := len(d.files[name].bytes); n > segmentBytes {
				t.Errorf("a segment has %d bytes", n)
			}
		}
		if want := []string{"000009", "000010", "000011"}; !slices.Equal(numbers, want) || total > 48<<20 {
			t.Errorf("files %q of %d bytes, want the numbers %q", names, total, want)
		}
	})
}

func TestOnASmallDiskTheNewestFlightsAreKept(t *testing.T) {
	recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
		d.room = 70 << 20
		for n := range 4 {
			d.files[recordName(n+1, time.Now())] = &memoryFile{disk: d, bytes: make([]byte, segmentBytes)}
		}
		r.setArmed(true)
		r.hears(&common.MessageAttitude{})
		time.Sleep(2 * time.Second)
		names := d.names()
		if len(names) != 4 || recordNumber(names[0]) != 2 || recordNumber(names[3]) != 5 {
			t.Errorf("files %q, want the numbers 2 to 5", names)
		}
	})
}

func TestABadDiskIsSaidOnceAndTheNextFlightIsTriedAgain(t *testing.T) {
	for name, fault := range map[string]func(d *memoryDisk, err error){
		"read-only": func(d *memoryDisk, err error) { d.prepares, d.creates = err, err },
		"full":      func(d *memoryDisk, err error) { d.writes = err },
		"no fsync":  func(d *memoryDisk, err error) { d.syncs = err },
	} {
		t.Run(name, func(t *testing.T) {
			recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
				flight := func() (said []string) {
					for second := range 120 {
						r.setArmed(second < 60)
						r.hears(&common.MessageAttitude{})
						if text := r.newComplaint(); text != "" {
							said = append(said, text)
						}
						time.Sleep(time.Second)
					}
					return said
				}
				d.mu.Lock()
				fault(d, syscall.EIO)
				d.mu.Unlock()
				first, again := flight(), flight()
				if len(first) != 1 || !strings.Contains(first[0], syscall.EIO.Error()) || len(again) != 0 {
					t.Errorf("said %q, then %q; want one text, then none", first, again)
				}
				d.mu.Lock()
				fault(d, nil)
				d.files = map[string]*memoryFile{}
				d.mu.Unlock()
				if said := flight(); len(said) != 0 || len(readRecords(t, d.only(t))) < 100 {
					t.Errorf("a good disk: said %q, %d records", said, len(readRecords(t, d.only(t))))
				}
			})
		})
	}
}

func TestAHangingDiskDelaysNobodyAndWhatIsDroppedIsSaidOnce(t *testing.T) {
	recordBubble(t, 256<<20, func(r *recorder, d *memoryDisk) {
		d.takes = 5 * time.Minute
		r.setArmed(true)
		began := time.Now()
		said := 0
		slept := time.Duration(0)
		for range 100 {
			for range 1000 {
				r.hears(&common.MessageStatustext{Text: strings.Repeat("x", 50)})
			}
			if r.newComplaint() != "" {
				said++
			}
			time.Sleep(time.Second)
			slept += time.Second
		}
		if took := time.Since(began); took != slept {
			t.Errorf("taking frames took %v", took-slept)
		}
		r.mu.Lock()
		size, dropped := len(r.pending), r.dropped
		r.mu.Unlock()
		if said != 1 || dropped == 0 || size > pendingBytes {
			t.Errorf("said %d times; %d dropped; %d bytes wait", said, dropped, size)
		}
		time.Sleep(2 * d.takes)
	})
}

func TestABoardWithoutAClockTakesTheVehiclesAndNoFileGoesBackwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Virtual time begins in 2000: as a board without a clock.
		d := newMemoryDisk()
		r := newRecorder(d, 256<<20)
		r.log = slog.New(slog.DiscardHandler)
		go r.run()
		defer r.close()
		utc := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
		r.hears(&common.MessageSystemTime{TimeUnixUsec: 0})
		r.hears(&common.MessageSystemTime{TimeUnixUsec: uint64(utc.UnixMicro())})
		time.Sleep(10 * time.Second)

		// A GPS that jumps.
		r.hears(&common.MessageSystemTime{TimeUnixUsec: uint64(utc.Add(-time.Hour).UnixMicro())})
		r.setArmed(true)
		time.Sleep(2 * time.Second)
		late := rawFrame{whole: must(newSender(1, 1).encode(&common.MessageAttitude{}))}
		late.came = time.Now().Add(-3 * time.Second)
		r.heard(late)
		time.Sleep(2 * time.Second)
		list := readRecords(t, d.only(t))
		if len(list) != 4 || !list[0].at.Equal(utc) || !list[2].at.Equal(utc.Add(10*time.Second)) {
			t.Errorf("%d records, from %v", len(list), list[0].at)
		}
		for i := range list[1:] {
			if list[i+1].at.Before(list[i].at) {
				t.Errorf("record %d is before the one ahead of it", i+1)
			}
		}
		if name := d.names()[0]; !strings.HasPrefix(name, "mavrest-000001-20260304T0506") {
			t.Errorf("the file is %s", name)
		}
	})
}

func TestARecordedFlightHasWhatWasAskedWhatWentOutAndWhoTookTheDrone(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		flyRecorded(t, flavour, func(f *flight, r *recorder, d *memoryDisk) {
			f.accepted("/takeoff", `{"altitude": 20, "wait": 60}`)
			f.sim.pilotMode(pilots[f.firmware])
			time.Sleep(3 * time.Second)
			var all []byte
			f.diary.mu.Lock()
			for _, e := range f.diary.entries {
				if e.who == toVehicle {
					all = append(all, e.raw...)
				}
			}
			f.diary.mu.Unlock()
			if strings.Contains(string(all), "command accepted") {
				t.Error("a line of the log went out to the vehicle")
			}
			list := readRecords(t, d.only(t))
			told := strings.Join(texts(list), "\n")
			for _, want := range []string{
				"request from=", `body={"altitude": 20, "wait": 60}`, "command accepted", "manoeuvre complete",
				"a pilot, another program or a failsafe changed the mode",
			} {
				if !strings.Contains(told, want) {
					t.Errorf("no text has %q:\n%s", want, told)
				}
			}
			commands, acks := 0, 0
			for _, r := range list {
				switch r.msg.(type) {
				case *common.MessageCommandLong:
					commands++
				case *common.MessageCommandAck:
					acks++
				}
			}
			if commands == 0 || acks == 0 {
				t.Errorf("%d commands and %d acks are recorded", commands, acks)
			}
		})
	}
}

func TestTheStatusSaysThatNothingIsRecorded(t *testing.T) {
	flyRecorded(t, simPX4, func(f *flight, r *recorder, d *memoryDisk) {
		d.mu.Lock()
		d.creates = errors.New("no room")
		d.mu.Unlock()
		f.accepted("/takeoff", `{"altitude": 20, "wait": 60}`)
		f.wantMessages("no room", 1)
	})
}

func TestAFolderThatWasDeletedIsMadeAgainForTheNextFlight(t *testing.T) {
	folder := recordFolder(filepath.Join(t.TempDir(), "flights"))
	r := newRecorder(folder, 256<<20)
	r.log = slog.New(slog.DiscardHandler)
	tape := &tape{recorder: r}
	for range 2 {
		tape.begin(time.Now())
		tape.end()
		if list, err := folder.list(); len(list) != 1 || r.newComplaint() != "" {
			t.Errorf("%d files, want 1: %v, %v", len(list), err, r.complaint)
		}
		if err := os.RemoveAll(string(folder)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "var", "flights")
	r := newRecorder(recordFolder(folder), 256<<20)
	r.log = slog.New(slog.DiscardHandler)
	go r.run()
	r.setArmed(true)
	r.hears(&common.MessageAttitude{})
	r.close()
	info, err := os.Stat(folder)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the folder: %v, %v", info.Mode(), err)
	}
	list, err := os.ReadDir(folder)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if info, _ := list[0].Info(); info.Mode() != 0o600 || recordNumber(info.Name()) != 1 {
		t.Errorf("%s has mode %v", info.Name(), info.Mode())
	}
	b, _ := os.ReadFile(filepath.Join(folder, list[0].Name()))
	if len(readRecords(t, b)) != 1 {
		t.Errorf("the file has % x", b)
	}
	if err := recordFolder("/proc/none").prepare(); err == nil {
		t.Error("a folder that can't be made can be written")
	}
}

// Sticks that a body says wrongly are in a record as all others are: who reads it sees that they were sent.
func TestSticksInABadBodyAreRecorded(t *testing.T) {
	log, lines := logLines()
	h := newHandler(newDrone(device{}, 0, false, log), admission{})
	call(h, "POST", "/api/drone/input", strings.NewReader(`{"roll":2}`)).want(t, 422, "out_of_range")
	if said := lines(); !strings.Contains(said, "msg="+stickLine) || !strings.Contains(said, "roll: want -1 to 1") {
		t.Errorf("the log is\n%s", said)
	}
}
