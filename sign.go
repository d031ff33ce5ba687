package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Signatures (docs/design.md, "Signing"; the format is MAVLink's, "Message Signing").
const (
	// stampSize and ownSize are of a frame's last bytes: behind the link id the stamp, then the signature's own bytes.
	stampSize = 6
	ownSize   = 6

	// signLink is our link id, at each start the same: PX4 1.18 keeps 16 streams until it restarts.
	signLink = 0

	// stampUnit is what a stamp counts, from 2015 on.
	stampUnit = 10 * time.Microsecond

	// streamBehind is how far behind the newest stamp a new stream may begin.
	streamBehind = uint64(time.Minute / stampUnit)

	// mostStreams is how many streams are kept: only who has the key makes one.
	mostStreams = 64
)

var (
	stampFrom = time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC)

	// clockFrom and clockUntil are when this program may run. A board without a battery clock begins in 1970 or in the
	// year of its system; a stamp ahead of the time would shut out each ground station whose clock is right.
	clockFrom  = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	clockUntil = clockFrom.AddDate(15, 0, 0)
)

// signKey is what signs all that is on the line.
type signKey [32]byte

// refusal is why a frame is not taken.
type refusal int

const (
	// notRefused: it is taken
	notRefused refusal = iota
	unsigned

	// unsignable: it is of MAVLink 1
	unsignable
	otherKey

	// oldStamp: it came before, or its sender counts from an older stamp
	oldStamp
)

var refusalWords = [...]string{
	unsigned: "its frames are not signed, and mavrest takes only what is signed with the key of -sign: set this key " +
		"on the vehicle by its ground station, or start mavrest without -sign",
	unsignable: "it speaks MAVLink 1, which can't be signed, and mavrest takes only what is signed (-sign): set its " +
		"port to MAVLink 2 (PX4: MAV_PROTO_VER 2; ArduPilot: SERIALn_PROTOCOL 2)",
	otherKey: "its frames are signed with another key than that of -sign: give mavrest the vehicle's key, or set " +
		"this one on the vehicle by its ground station",
	oldStamp: "its signatures are older than what was heard before; it counts on from mavrest's as soon as it hears " +
		"them: check the wire from the board's TX to the autopilot's RX",
}

// signStream is who signs: each counts its own stamps.
type signStream struct{ system, component, link byte }

// signing signs what goes out with a key, and judges what comes. All of it is of one link.
type signing struct {
	key signKey

	// sent is the stamp of the last frame that was signed.
	sent uint64

	// heard is the newest stamp of an autopilot since the port was opened; 0: none came.
	heard uint64

	// newest is the same since the program began.
	newest uint64

	// streams: the newest stamp of each
	streams map[signStream]uint64

	// takenAt is when an autopilot's frame was taken last.
	takenAt time.Time

	// refused is how many frames were not taken.
	refused uint64

	// why and whyAt: the last refusal of an autopilot's frame, and when it came
	why   refusal
	whyAt time.Time
}

func newSigning(key signKey) *signing {
	return &signing{key: key, streams: make(map[signStream]uint64)}
}

// opened takes that the port was opened: the vehicle counts its stamps by link.
func (s *signing) opened() {
	if s != nil {
		s.heard = 0
	}
}

// hear judges a frame that comes, whole as it is on the line.
func (s *signing) hear(f rawFrame, now time.Time) refusal {
	why := s.judge(f)
	vehicle := f.component == autopilotID && f.known != nil
	switch {
	case why == notRefused && vehicle && f.signed:
		s.takenAt = now
	case why != notRefused && vehicle:
		s.why = why
		s.whyAt = now
	}
	if why != notRefused {
		s.refused++
	}
	return why
}

func (s *signing) judge(f rawFrame) refusal {
	switch {
	case f.id == idRadioStatus && !f.signed:
		// A radio has no key, and says only what its own reception is.
		return notRefused
	case !f.v2:
		return unsignable
	case !f.signed:
		return unsigned
	}
	signed, theirs := f.whole[:len(f.whole)-ownSize], f.whole[len(f.whole)-ownSize:]
	own := s.signature(signed)
	if subtle.ConstantTimeCompare(own[:], theirs) == 0 {
		return otherKey
	}
	at := len(signed) - stampSize
	var stamp [8]byte
	copy(stamp[:], signed[at:])
	return s.count(signStream{f.system, f.component, signed[at-1]}, binary.LittleEndian.Uint64(stamp[:]))
}

// count takes a stamp that is signed right, unless it is an old one.
func (s *signing) count(stream signStream, stamp uint64) refusal {
	last, known := s.streams[stream]
	switch {
	case known && stamp <= last, !known && stamp+streamBehind < s.newest, !known && len(s.streams) >= mostStreams:
		return oldStamp
	}
	s.streams[stream] = stamp
	if stream.component == autopilotID {
		s.heard = max(s.heard, stamp)
		s.newest = max(s.newest, stamp)
	}
	return notRefused
}

// holds reports whether a message waits for the vehicle's stamp: before it only HEARTBEAT goes out, because the vehicle
// takes no stamp that is far behind its own.
func (s *signing) holds(m message.Message) bool {
	_, beat := m.(*minimal.MessageHeartbeat)
	return s != nil && s.heard == 0 && !beat
}

// sign returns a frame that has the flag for it, with its signature. The stamp is later than our last one and than what
// was heard, and our clock's where that is later still.
func (s *signing) sign(b []byte, now time.Time) []byte {
	s.sent = max(s.sent+1, s.heard+1, clockStamp(now))
	b = append(b, signLink)
	b = binary.LittleEndian.AppendUint64(b, s.sent)[:len(b)+stampSize]
	own := s.signature(b)
	return append(b, own[:]...)
}

// clockStamp is our clock's stamp; 0 where the clock can't be right.
func clockStamp(now time.Time) uint64 {
	if now.Before(clockFrom) || now.After(clockUntil) {
		return 0
	}
	return uint64(now.Sub(stampFrom) / stampUnit)
}

// signature is of a frame up to its stamp.
func (s *signing) signature(b []byte) (own [ownSize]byte) {
	var all [len(s.key) + maxFrame]byte
	n := copy(all[:], s.key[:])
	n += copy(all[n:], b)
	sum := sha256.Sum256(all[:n])
	copy(own[:], sum[:])
	return own
}

// fault is why no autopilot is heard that may be; nil where one is.
func (s *signing) fault(now time.Time) error {
	if s == nil || s.why == notRefused || now.Sub(s.whyAt) >= offlineAfter || now.Sub(s.takenAt) < offlineAfter {
		return nil
	}
	return errors.New("an autopilot is heard, and ignored: " + refusalWords[s.why])
}

// readKey reads -sign's file: one line with the passphrase as ground stations take it, whose SHA-256 is the key, or
// with the key's 64 hex digits. Only its owner may read it. credentials is the service manager's folder with what it
// gives the program, where a name without a folder is looked for; empty if there is none.
func readKey(name, credentials string) (key signKey, err error) {
	path, own := name, false
	if credentials != "" && filepath.Base(name) == name {
		path, own = filepath.Join(credentials, name), true
	}
	b, err := keyFile(path, own)
	if err != nil {
		var fault *fs.PathError
		if errors.As(err, &fault) {
			err = fault.Err
		}
		return key, fmt.Errorf("-sign %s: %w", name, err)
	}
	line := strings.TrimPrefix(string(b), "\ufeff")
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	switch {
	case line == "":
		return key, fmt.Errorf("-sign %s: it is empty; want one line with the passphrase, or with 64 hex digits", name)
	case strings.ContainsAny(line, "\r\n"):
		return key, fmt.Errorf("-sign %s: it has several lines; want one, with the passphrase or with 64 hex digits",
			name)
	case !utf8.ValidString(line):
		return key, fmt.Errorf("-sign %s: it is no text in UTF-8; want a passphrase, or 64 hex digits", name)
	}
	if digits, err := hex.DecodeString(line); err == nil && len(digits) == len(key) {
		return signKey(digits), nil
	}
	return sha256.Sum256([]byte(line)), nil
}

// keyFile returns the bytes of a file that only its owner may read; own: the service manager sees to that.
func keyFile(name string, own bool) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	const longest = 4096
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, errors.New("want a file with the key")
	case mode.Perm()&0o077 != 0 && !own:
		return nil, fmt.Errorf("others may read or change it (mode %04o): chmod 600 %s", mode.Perm(), name)
	case info.Size() > longest:
		return nil, errors.New("it is too long for a key; want one line")
	}
	return io.ReadAll(f)
}
