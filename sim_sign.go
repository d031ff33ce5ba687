package main

import (
	"bufio"
	"bytes"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// simSignature is how a vehicle signs, as PX4 1.18 was measured to do it (docs/autopilots.md, "Signing").
type simSignature struct {
	key frame.V2Key

	// counts: the stamp of the companion's cable and of the ground station's
	counts [2]uint64

	// streams: the newest stamp of each system, component and link id; a restart forgets them.
	streams map[[3]byte]uint64

	// dropped is how many frames were not taken.
	dropped int
}

const (
	// simSignStreams is how many streams a vehicle keeps.
	simSignStreams = 16

	// simSignBehind is how far a new stream may begin behind the cable's count, in 10 us.
	simSignBehind = uint64(time.Minute / (10 * time.Microsecond))

	// simSignKey is the stamp that a ground station gave with the key: of a day in 2025.
	simSignKey = uint64(10*365*24*time.Hour/(10*time.Microsecond)) + 1
)

// sign gives the vehicle a key.
func (s *simulator) sign(key [32]byte) {
	s.change(func() {
		s.signature = &simSignature{key: key}
		s.signature.restart()
	})
}

// restart forgets the streams. The count goes back to the one of the key.
func (x *simSignature) restart() {
	if x == nil {
		return
	}
	x.counts = [2]uint64{simSignKey, simSignKey}
	x.streams = make(map[[3]byte]uint64)
}

// cable is the index of a cable, and its link id.
func (x *simSignature) cable(gcs bool) int {
	if gcs {
		return 1
	}
	return 0
}

// signed returns a frame with its signature; one of MAVLink 1 as it is.
func (x *simSignature) signed(b []byte, toGCS bool) []byte {
	if x == nil || b[0] != frame.V2MagicByte {
		return b
	}
	r := frame.Reader{BufByteReader: bufio.NewReaderSize(bytes.NewReader(b), len(b))}
	read, err := r.Read()
	if err != nil {
		// The simulator's own writer wrote it.
		panic(err)
	}
	f := read.(*frame.V2Frame)
	codec := simDialect().GetMessage(f.Message.GetID())
	cable := x.cable(toGCS)
	x.counts[cable]++
	f.IncompatibilityFlag = frame.V2FlagSigned
	f.Checksum = f.GenerateChecksum(codec.CRCExtra())
	f.SignatureLinkID = byte(cable)
	f.SignatureTimestamp = x.counts[cable]
	f.Signature = f.GenerateSignature(&x.key)
	var out bytes.Buffer
	w := frame.Writer{ByteWriter: &out, DialectRW: simDialect()}
	if err := w.Initialize(); err != nil {
		panic(err)
	}
	if err := w.Write(f); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// takes reports whether a vehicle takes a frame. What it does not take it drops without a word.
func (x *simSignature) takes(f frame.Frame, fromGCS bool) bool {
	if x == nil {
		return true
	}
	if !x.right(f, fromGCS) {
		x.dropped++
		return false
	}
	return true
}

func (x *simSignature) right(f frame.Frame, fromGCS bool) bool {
	v2, ok := f.(*frame.V2Frame)
	if !ok || !v2.IsSigned() {
		return false
	}
	raw := *v2
	if _, ok := raw.Message.(*message.MessageRaw); !ok {
		raw.Message = simDialect().GetMessage(raw.Message.GetID()).Write(raw.Message, true)
	}
	count := &x.counts[x.cable(fromGCS)]
	stream := [3]byte{v2.SystemID, v2.ComponentID, v2.SignatureLinkID}
	last, known := x.streams[stream]
	stamp := v2.SignatureTimestamp
	switch {
	case *raw.GenerateSignature(&x.key) != *v2.Signature,
		known && stamp <= last,
		!known && (len(x.streams) >= simSignStreams || stamp+simSignBehind < *count):
		return false
	}
	x.streams[stream] = stamp
	*count = max(*count, stamp)
	return true
}
