package main

// A disk in memory for records, and a flight that is recorded.

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// memoryDisk is a disk whose faults are set.
type memoryDisk struct {
	mu    sync.Mutex
	files map[string]*memoryFile

	prepares, creates, writes, syncs error

	takes time.Duration // each write

	sizes map[string]int64 // of files whose bytes are not kept

	room int64 // for all files together
}

type memoryFile struct {
	disk   *memoryDisk
	bytes  []byte
	safe   int // bytes at the last Sync
	closed bool
}

func newMemoryDisk() *memoryDisk {
	return &memoryDisk{files: map[string]*memoryFile{}, sizes: map[string]int64{}, room: 1 << 40}
}

func (d *memoryDisk) prepare() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.prepares
}

func (d *memoryDisk) list() (files []storedFile, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		files = append(files, storedFile{name, int64(len(d.files[name].bytes)) + d.sizes[name]})
	}
	return files, nil
}

func (d *memoryDisk) free() int64 {
	files, _ := d.list()
	free := d.room
	for _, f := range files {
		free -= f.size
	}
	return free
}

func (d *memoryDisk) create(name string) (recordFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.creates != nil {
		return nil, d.creates
	}
	if d.files[name] != nil {
		return nil, fs.ErrExist
	}
	d.files[name] = &memoryFile{disk: d}
	return d.files[name], nil
}

func (d *memoryDisk) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, name)
	return nil
}

// names are the files', the oldest first.
func (d *memoryDisk) names() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// only is the one file's bytes.
func (d *memoryDisk) only(t *testing.T) []byte {
	t.Helper()
	names := d.names()
	if len(names) != 1 {
		t.Fatalf("files %q, want one", names)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.Clone(d.files[names[0]].bytes)
}

func (f *memoryFile) Write(b []byte) (int, error) {
	time.Sleep(f.disk.takes)
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.writes != nil {
		// As a disk that becomes full in the middle.
		f.bytes = append(f.bytes, b[:len(b)/2]...)
		return len(b) / 2, f.disk.writes
	}
	f.bytes = append(f.bytes, b...)
	return len(b), nil
}

func (f *memoryFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.safe = len(f.bytes)
	return f.disk.syncs
}

func (f *memoryFile) Close() error {
	f.closed = true
	return nil
}

// recorded is one record of a log.
type recorded struct {
	at    time.Time
	frame rawFrame
	msg   message.Message
}

// readRecords reads a log to its end, or to a record that is torn.
func readRecords(t *testing.T, b []byte) (list []recorded) {
	t.Helper()
	var d deframer
	var messages decoder
	for len(b) > stampBytes {
		at := time.UnixMicro(int64(binary.BigEndian.Uint64(b)))
		f, size := d.candidate(bytes.Clone(b[stampBytes:min(len(b), stampBytes+maxFrame)]))
		if size == 0 {
			return list
		}
		if size < 0 || f.known == nil {
			t.Fatalf("record %d is no frame that mavrest knows", len(list))
		}
		if f.signed {
			t.Fatalf("record %d is signed", len(list))
		}
		list = append(list, recorded{at, f, copyOf(messages.decode(f))})
		b = b[stampBytes+size:]
	}
	return list
}

// texts are the texts of our own, whole.
func texts(list []recorded) (whole []string) {
	begun := ""
	for _, r := range list {
		m, ok := r.msg.(*common.MessageStatustext)
		if !ok || r.frame.component != componentID {
			continue
		}
		begun += m.Text
		if m.Id == 0 || len(m.Text) < 50 {
			whole = append(whole, begun)
			begun = ""
		}
	}
	return whole
}

// recordBubble runs a test in virtual time with a recorder that runs on a disk.
func recordBubble(t *testing.T, limit int64, do func(r *recorder, d *memoryDisk)) {
	t.Helper()
	inLinkBubble(t, func(t *testing.T) {
		d := newMemoryDisk()
		time.Sleep(time.Until(knownTime.AddDate(1, 0, 0)))
		r := newRecorder(d, limit)
		r.log = slog.New(slog.DiscardHandler)
		go r.run()
		defer r.close()
		do(r, d)
	})
}

// hears makes a frame of the vehicle's come.
func (r *recorder) hears(m message.Message) {
	b, _ := newSender(1, autopilotID).encode(m)
	var d deframer
	f, _ := d.candidate(b)
	f.came = time.Now()
	r.heard(f)
}

func must(b []byte, _ header) []byte { return b }

// flyRecorded flies with a recorder.
func flyRecorded(t *testing.T, flavour simFlavour, do func(f *flight, r *recorder, d *memoryDisk)) {
	t.Helper()
	disk := newMemoryDisk()
	var r *recorder
	flyWith(t, flavour, nil, func(d *drone) {
		r = newRecorder(disk, 256<<20)
		d.log = slog.New(recordedLog{Handler: d.log.Handler(), recorder: r})
		d.link.log = d.log
		r.log = d.log
		d.link.recorder = r
		go r.run()
	}, func(f *flight) {
		defer r.close()
		do(f, r, disk)
	})
}
