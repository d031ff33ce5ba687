package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

// Times and sizes of the flight recorder (docs/design.md, "The flight recorder").
const (
	// beforeArming is how much of the time before the arming a log has.
	beforeArming = time.Minute

	// beforeBytes is how much of it is kept in memory: a minute of a full line at 921600 baud.
	beforeBytes = 6 << 20

	// afterDisarming is how much of the time behind the disarming a log has: of a crash that is the most of it.
	afterDisarming = 30 * time.Second

	// pendingBytes is how much may wait for the disk: ten seconds of a full line.
	pendingBytes = 1 << 20

	segmentBytes = 16 << 20

	// writeEvery is the time between two writes; lookEvery is that between two looks while nothing is written.
	writeEvery = 200 * time.Millisecond
	lookEvery  = time.Second

	syncEvery = time.Second

	// stampBytes is the size of the time ahead of each frame.
	stampBytes = 8

	// textMost is how much of one line of the log is recorded, in bytes.
	textMost = 2000

	// leastRecords is the least -record-max, in MB: the segment that is written, and one before it.
	leastRecords = 32
)

// knownTime is the time before which no clock is right: a board without one begins in 1970.
var knownTime = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// idSetupSigning is the message with the secret key; no log may have it.
const idSetupSigning = 256

// recorder is the flight recorder: it takes each frame that is heard or sent and each line of the log, and writes those
// of a flight to a file. What it takes goes into memory; a goroutine of its own has the disk. A nil recorder records
// nothing.
type recorder struct {
	disk disk

	// limit is how many bytes all files may have together.
	limit int64

	log   *slog.Logger
	began time.Time

	// ends, when closed, ends run; run closes done.
	ends, done chan struct{}

	// mu guards all below. Lock ordering: the last one, and it is never held for longer than a copy.
	mu sync.Mutex

	// pending are records that were not written yet; the time is in µs since began.
	pending []byte

	// newest is the time of the last record.
	newest uint64

	// dropped is how many records of this flight did not fit.
	dropped int

	// armed: the vehicle is; wasArmed: it was since the last look.
	armed, wasArmed bool

	// sender makes the texts.
	sender *sender

	// textID is that of the last text that went in chunks.
	textID uint16

	// vehicleBegan is when the recorder began by the vehicle's clock; zero: that is not known.
	vehicleBegan time.Time

	// complaint is what the drone is to say; complained what it said last.
	complaint, complained string
}

// newRecorder returns the recorder of a disk, which may take up to limit bytes. Its owner calls run and close.
func newRecorder(d disk, limit int64) *recorder {
	return &recorder{
		disk: d, limit: limit, log: slog.Default(), began: time.Now(), ends: make(chan struct{}),
		done: make(chan struct{}), sender: newSender(1, componentID),
	}
}

// heard takes a frame of a message that mavrest knows. Its time is that at which its last byte came.
func (r *recorder) heard(f rawFrame) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.id == idSystemTime && f.component == autopilotID && r.vehicleBegan.IsZero() {
		var usec [8]byte
		copy(usec[:], f.payload)
		now := time.UnixMicro(int64(binary.LittleEndian.Uint64(usec[:])))
		if now.After(knownTime) {
			r.vehicleBegan = now.Add(-f.came.Sub(r.began))
		}
	}
	r.addLocked(f.whole, f.came)
}

// sent takes a frame that went out.
func (r *recorder) sent(b []byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if system, component := b[5], b[6]; component == componentID {
		r.sender.system = system
	}
	r.addLocked(b, time.Now())
}

// setArmed takes whether the vehicle is armed.
func (r *recorder) setArmed(armed bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = armed
	r.wasArmed = r.wasArmed || armed
}

// addLocked takes a frame.
func (r *recorder) addLocked(b []byte, at time.Time) {
	if len(r.pending)+stampBytes+len(b) > pendingBytes {
		r.dropped++
		if r.dropped == 1 {
			r.complaint = "the flight recorder's disk is too slow: the log of this flight has gaps"
		}
		return
	}
	before := len(r.pending)
	r.newest = max(r.newest, uint64(max(0, at.Sub(r.began).Microseconds())))
	b, ok := withoutSignature(b)
	if !ok {
		return
	}
	r.pending = append(binary.BigEndian.AppendUint64(r.pending[:before], r.newest), b...)
}

// withoutSignature returns a frame as a log may have it: MAVLink's page on signing asks for that. ok is false for a
// frame that may not be in a log.
func withoutSignature(b []byte) (plain []byte, ok bool) {
	if b[0] != frame.V2MagicByte {
		return b, true
	}
	id := idOf(b)
	codec := codecOf(id)
	switch {
	case id == idSetupSigning:
		return nil, false
	case b[2]&frame.V2FlagSigned == 0:
		return b, true
	case codec == nil:
		return nil, false
	}
	end := 10 + int(b[1])
	plain = bytes.Clone(b[:end])
	plain[2] &^= frame.V2FlagSigned
	return binary.LittleEndian.AppendUint16(plain, checksum(plain[1:], codec)), true
}

// say takes a line of the log: in a file it is a STATUSTEXT of ours, in chunks where it is long. It never goes out.
func (r *recorder) say(severity common.MAV_SEVERITY, text string) {
	text = strings.Map(func(c rune) rune {
		if c < ' ' {
			return ' '
		}
		return c
	}, text)
	r.mu.Lock()
	defer r.mu.Unlock()
	chunks := inChunks(text)
	m := common.MessageStatustext{Severity: severity}
	if len(chunks) > 1 {
		// 0 stands for a text of one chunk.
		r.textID = max(1, r.textID+1)
		m.Id = r.textID
	}
	for i, chunk := range chunks {
		m.Text = chunk
		m.ChunkSeq = uint8(i)
		b, _ := r.sender.encode(&m)
		r.addLocked(b, time.Now())
	}
}

// inChunks cuts a text as STATUSTEXT takes it, between two letters. One that is shorter than a STATUSTEXT ends it.
func inChunks(text string) (chunks []string) {
	const most = 50
	text = strings.ToValidUTF8(text[:min(len(text), textMost)], "")
	for len(text) > most {
		end := most
		for text[end]&0xc0 == 0x80 {
			end--
		}
		chunks = append(chunks, text[:end])

		// Whoever reads it takes what is shorter for the end: it is filled.
		if end < most {
			chunks[len(chunks)-1] += strings.Repeat(" ", most-end)
		}
		text = text[end:]
	}
	chunks = append(chunks, text)
	if len(chunks) > 1 && len(text) == most {
		chunks = append(chunks, "")
	}
	return chunks
}

// complain takes what is wrong with the disk, for the drone to say. What was said last is not said again.
func (r *recorder) complain(err error) {
	// Which call failed tells nobody anything.
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		err = errno
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complaint = fmt.Sprintf("the flight recorder can't write where -record says: %v; it tries again at the next "+
		"flight", err)
}

// newComplaint returns what is to be said now; "": nothing.
func (r *recorder) newComplaint() (text string) {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.complaint != r.complained {
		text = r.complaint
		r.complained = text
	}
	return text
}

// swap returns what has come since the last call, and whether the vehicle was armed meanwhile. What comes from now on
// goes into spare.
func (r *recorder) swap(spare []byte) (came []byte, armed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	came = r.pending
	r.pending = spare[:0]
	armed = r.armed || r.wasArmed
	r.wasArmed = false
	return came, armed
}

// zero returns when the recorder began: by the board's clock, or where that has no time by the vehicle's.
func (r *recorder) zero(now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()

	// Without its monotonic part: the clock may have been set meanwhile.
	board := now.Round(0).Add(-now.Sub(r.began))
	if board.Before(knownTime) && !r.vehicleBegan.IsZero() {
		return r.vehicleBegan
	}
	return board
}

// run writes until close is called.
func (r *recorder) run() {
	defer close(r.done)
	if err := r.disk.prepare(); err != nil {
		r.complain(err)
	}
	t := &tape{recorder: r}
	for ended := false; !ended; {
		pause := lookEvery
		if t.flight {
			pause = writeEvery
		}
		select {
		case <-time.After(pause):
		case <-r.ends:
			ended = true
		}
		t.look(time.Now())
	}
	t.end()
}

// close ends run, and waits for it for up to a second: a disk may hang.
func (r *recorder) close() {
	if r == nil {
		return
	}
	close(r.ends)
	select {
	case <-r.done:
	case <-time.After(time.Second):
	}
}

// tape is what run writes; only its goroutine uses it.
type tape struct {
	recorder *recorder

	// came is what the last look brought.
	came []byte

	// before is what came while no flight is recorded, and beforeSize its bytes.
	before     []kept
	beforeSize int

	// flight: one is recorded, until a time
	flight bool
	until  time.Time

	// file is nil where it could not be written.
	file recordFile

	// offset is added to each time in this flight's files, in µs.
	offset uint64

	// size is of this segment, written that of all of the flight.
	size, written int64

	// syncedAt is when the file was last safe from a power cut; unsynced: bytes came since
	syncedAt time.Time
	unsynced bool
}

// kept are records of a time.
type kept struct {
	at      time.Time
	records []byte
}

// look takes what came, and writes it if it belongs to a flight.
func (t *tape) look(now time.Time) {
	came, armed := t.recorder.swap(t.came)
	t.came = came
	if armed {
		t.until = now.Add(afterDisarming)
	}
	if armed && !t.flight {
		t.begin(now)
	}
	if !t.flight {
		t.keep(now)
		return
	}
	t.write(t.came, now)
	if t.file != nil && t.unsynced && now.Sub(t.syncedAt) >= syncEvery {
		t.syncedAt = now
		t.unsynced = false
		if err := t.file.Sync(); err != nil {
			t.fail(err)
		}
	}
	if !now.Before(t.until) {
		t.end()
	}
}

// keep keeps what came for the next flight.
func (t *tape) keep(now time.Time) {
	if len(t.came) > 0 {
		t.before = append(t.before, kept{now, bytes.Clone(t.came)})
		t.beforeSize += len(t.came)
	}
	for len(t.before) > 0 && (t.beforeSize > beforeBytes || now.Sub(t.before[0].at) > beforeArming) {
		t.beforeSize -= len(t.before[0].records)
		t.before = slices.Delete(t.before, 0, 1)
	}
}

// begin begins a flight's log with what was kept.
func (t *tape) begin(now time.Time) {
	r := t.recorder
	t.flight = true
	t.written = 0
	t.syncedAt = now
	t.offset = uint64(r.zero(now).UnixMicro())
	r.mu.Lock()
	r.dropped = 0
	r.mu.Unlock()

	// Whoever deleted the flights may have deleted the folder too.
	if err := r.disk.prepare(); err != nil {
		t.fail(err)
	} else {
		t.open(now)
	}
	for _, k := range t.before {
		t.write(k.records, now)
	}
	t.before = nil
	t.beforeSize = 0
}

// open opens the flight's next segment.
func (t *tape) open(now time.Time) {
	began := time.UnixMicro(int64(t.offset)).Add(now.Sub(t.recorder.began))
	name, err := t.recorder.makeRoom(began)
	if err == nil {
		t.file, err = t.recorder.disk.create(name)
	}
	t.size = 0
	if err != nil {
		t.fail(err)
		return
	}
	t.recorder.log.Info("the flight is recorded", "file", name)
}

// write writes records at once.
func (t *tape) write(records []byte, now time.Time) {
	if t.file != nil && t.size+int64(len(records)) > segmentBytes {
		t.shut()
		t.open(now)
	}
	if t.file == nil || len(records) == 0 {
		return
	}
	for rest := records; len(rest) > 0; rest = rest[stampBytes+claimedSize(rest[stampBytes:]):] {
		binary.BigEndian.PutUint64(rest, binary.BigEndian.Uint64(rest)+t.offset)
	}
	n, err := t.file.Write(records)
	t.size += int64(n)
	t.written += int64(n)
	t.unsynced = true
	if err != nil {
		t.fail(err)
	}
}

// fail gives this flight up.
func (t *tape) fail(err error) {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
	t.recorder.complain(err)
}

// shut closes a segment, safe from a power cut.
func (t *tape) shut() {
	err := cmp.Or(t.file.Sync(), t.file.Close())
	t.file = nil
	if err != nil {
		t.fail(err)
	}
}

// end ends a flight's log.
func (t *tape) end() {
	if t.file != nil {
		t.shut()
	}
	r := t.recorder
	r.mu.Lock()
	dropped := r.dropped
	r.mu.Unlock()
	if t.flight {
		r.log.Info("the flight's record has ended", "bytes", t.written, "frames_dropped", dropped)
	}
	t.flight = false
}

// recordNumber is the number in the name of a file of ours; 0 for any other name.
func recordNumber(name string) int {
	const numberEnd = len("mavrest-000000")
	if len(name) != len(recordName(1, time.Time{})) {
		return 0
	}
	number, err := strconv.Atoi(strings.TrimPrefix(name[:numberEnd], "mavrest-"))
	at, badTime := time.Parse(recordTime, name[numberEnd:])
	if err != nil || badTime != nil || name != recordName(number, at) {
		return 0
	}
	return number
}

// recordTime is when a file began, in its name.
const recordTime = "-20060102T150405Z.tlog"

func recordName(number int, began time.Time) string {
	return fmt.Sprintf("mavrest-%06d%s", number, began.UTC().Format(recordTime))
}

// makeRoom deletes our oldest files until one more has room, by the limit and on the disk, and returns its name. The
// numbers tell which are the oldest: a board's clock may be wrong.
func (r *recorder) makeRoom(began time.Time) (name string, err error) {
	files, err := r.disk.list()
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(f storedFile) bool { return recordNumber(f.name) == 0 })
	size, number := int64(segmentBytes), 0
	for _, f := range files {
		size += f.size
		number = recordNumber(f.name)
	}
	free := r.disk.free()
	for ; len(files) > 0 && (size > r.limit || free < segmentBytes); files = files[1:] {
		if err := r.disk.remove(files[0].name); err != nil {
			return "", err
		}
		size -= files[0].size
		free += files[0].size
	}
	return recordName(number+1, began), nil
}

// disk is where the files are.
type disk interface {
	// prepare is called at the start and before each flight, and says why nothing can be written.
	prepare() error

	// list returns the files, ordered by name.
	list() ([]storedFile, error)

	// free is how many bytes more can be written.
	free() int64

	create(name string) (recordFile, error)
	remove(name string) error
}

type storedFile struct {
	name string
	size int64
}

type recordFile interface {
	io.WriteCloser
	Sync() error
}

// recordFolder is a folder as a disk.
type recordFolder string

func (d recordFolder) prepare() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	if err := syscall.Access(string(d), 2); err != nil {
		return &os.PathError{Op: "write into", Path: string(d), Err: err}
	}
	return nil
}

func (d recordFolder) list() (files []storedFile, err error) {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		// It may be gone meanwhile.
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, storedFile{e.Name(), info.Size()})
		}
	}
	return files, err
}

func (d recordFolder) free() int64 {
	var disk syscall.Statfs_t
	if syscall.Statfs(string(d), &disk) != nil {
		return math.MaxInt64
	}
	return int64(disk.Bavail) * int64(disk.Bsize)
}

func (d recordFolder) create(name string) (recordFile, error) {
	f, err := os.OpenFile(filepath.Join(string(d), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}

	// So that its name survives a power cut too. Not every file system can do that.
	if folder, err := os.Open(string(d)); err == nil {
		folder.Sync()
		folder.Close()
	}
	return f, nil
}

func (d recordFolder) remove(name string) error { return os.Remove(filepath.Join(string(d), name)) }

// recordedLog hands each line of the log to the recorder too.
type recordedLog struct {
	slog.Handler
	recorder *recorder

	// attrs are those of each line.
	attrs string
}

// stickLine is the log's line of a POST input. They come 25 times a second: the log has them only with -v, a record
// always.
const stickLine = "sticks"

// Enabled is true of what the log is to have, and of what may be a stickLine.
func (h recordedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level == slog.LevelDebug || h.Handler.Enabled(ctx, level)
}

func (h recordedLog) Handle(ctx context.Context, line slog.Record) error {
	if line.Level >= slog.LevelInfo || line.Message == stickLine {
		text := line.Message + h.attrs
		line.Attrs(func(a slog.Attr) bool {
			text += attrText(a)
			return true
		})
		h.recorder.say(severityOf(line.Level), text)
	}
	if !h.Handler.Enabled(ctx, line.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, line)
}

func (h recordedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		h.attrs += attrText(a)
	}
	return h
}

func attrText(a slog.Attr) string { return fmt.Sprintf(" %s=%v", a.Key, a.Value) }

func severityOf(level slog.Level) common.MAV_SEVERITY {
	switch {
	case level >= slog.LevelError:
		return common.MAV_SEVERITY_ERROR
	case level >= slog.LevelWarn:
		return common.MAV_SEVERITY_WARNING
	case level >= slog.LevelInfo:
		return common.MAV_SEVERITY_INFO
	}
	return common.MAV_SEVERITY_DEBUG
}
