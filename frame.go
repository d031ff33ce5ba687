package main

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialect"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
	"github.com/bluenviron/gomavlib/v3/pkg/x25"
)

// dialectRW holds only the messages that mavrest uses. All of common would cost half a
// megabyte in the binary and 4 MB of memory.
var dialectRW = newDialect(
	&minimal.MessageHeartbeat{},
	&common.MessageSysStatus{},
	&common.MessageParamRequestRead{},
	&common.MessageParamValue{},
	&common.MessageGpsRawInt{},
	&common.MessageAttitude{},
	&common.MessageGlobalPositionInt{},
	&common.MessageManualControl{},
	&common.MessageVfrHud{},
	&common.MessageCommandInt{},
	&common.MessageCommandLong{},
	&common.MessageCommandAck{},
	&common.MessageAutopilotVersion{},
	&common.MessageHomePosition{},
	&common.MessageRcChannels{},
	&common.MessageRcChannelsOverride{},
	&common.MessagePositionTargetGlobalInt{},
	&common.MessageExtendedSysState{},
	&common.MessageCurrentMode{},
	&common.MessageStatustext{},
	&MessageEkfStatusReport{},
)

// MessageEkfStatusReport is EKF_STATUS_REPORT of ArduPilot's dialect. The whole dialect
// would cost 130 KB in the binary.
type MessageEkfStatusReport struct {
	Flags              uint16
	VelocityVariance   float32
	PosHorizVariance   float32
	PosVertVariance    float32
	CompassVariance    float32
	TerrainAltVariance float32
	AirspeedVariance   float32 `mavext:"true"`
}

func (*MessageEkfStatusReport) GetID() uint32 { return 193 }

func newDialect(messages ...message.Message) *dialect.ReadWriter {
	rw := &dialect.ReadWriter{Dialect: &dialect.Dialect{Version: 3, Messages: messages}}
	if err := rw.Initialize(); err != nil {
		panic(err) // a mistake in the list of messages
	}
	return rw
}

// Component ids.
const (
	componentID = byte(minimal.MAV_COMP_ID_ONBOARD_COMPUTER4) // ours; MAVROS and other companions use others
	stationID   = byte(minimal.MAV_COMP_ID_MISSIONPLANNER)    // of our ground station's heartbeat
	autopilotID = byte(minimal.MAV_COMP_ID_AUTOPILOT1)
)

// Message ids that the code names.
var (
	idHeartbeat     = (*minimal.MessageHeartbeat)(nil).GetID()
	idSysStatus     = (*common.MessageSysStatus)(nil).GetID()
	idGPS           = (*common.MessageGpsRawInt)(nil).GetID()
	idAttitude      = (*common.MessageAttitude)(nil).GetID()
	idPosition      = (*common.MessageGlobalPositionInt)(nil).GetID()
	idRCChannels    = (*common.MessageRcChannels)(nil).GetID()
	idHUD           = (*common.MessageVfrHud)(nil).GetID()
	idTarget        = (*common.MessagePositionTargetGlobalInt)(nil).GetID()
	idVersion       = (*common.MessageAutopilotVersion)(nil).GetID()
	idEstimate      = (*MessageEkfStatusReport)(nil).GetID()
	idHome          = (*common.MessageHomePosition)(nil).GetID()
	idExtendedState = (*common.MessageExtendedSysState)(nil).GetID()
	idCurrentMode   = (*common.MessageCurrentMode)(nil).GetID()
	idCommandAck    = (*common.MessageCommandAck)(nil).GetID()
	idManualControl = (*common.MessageManualControl)(nil).GetID()
	idRCOverride    = (*common.MessageRcChannelsOverride)(nil).GetID()
)

// padding completes a broken frame. An autopilot waits for all bytes that a broken frame
// claims, up to 280, and reads whatever comes next as a part of it.
var padding [280]byte

// rawFrame is one frame from the line. Its payload is valid until the next read.
type rawFrame struct {
	header
	v2      bool
	known   *message.ReadWriter // nil if the message is not in the dialect
	payload []byte
}

// header distinguishes a frame from the others of the last seconds.
type header struct {
	seq, system, component byte
	id                     uint32
	sum                    uint16 // the checksum; 0 if the message is not in the dialect
}

// recent remembers the last frames that may come again: a router or a radio may send back
// what we wrote, or repeat an ack.
type recent struct {
	last [64]header
	at   [64]time.Time // when each was added
	n    int           // frames that were added
}

func (r *recent) add(h header, at time.Time) {
	i := r.n % len(r.last)
	r.last[i], r.at[i] = h, at
	r.n++
}

// has reports whether a frame was added after since.
func (r *recent) has(h header, since time.Time) bool {
	for i, last := range r.last {
		if last == h && r.at[i].After(since) {
			return true
		}
	}
	return false
}

// deframer finds frames in a stream of bytes. gomavlib's reader believes the length
// of a broken frame and loses the good frames inside it. This one goes on at the next
// byte, so it reads the next whole frame after any noise. A broken frame that claims
// more bytes than have arrived delays the frames behind it until those bytes arrive.
type deframer struct {
	buf       [2048]byte
	rest      []byte // the bytes in buf that are not yet read as frames
	skipped   int    // bytes dropped since the last frame
	datagrams bool   // a frame never continues in the next read
	errors    uint64 // places where bytes were not a frame; noise counts once in 256 bytes
}

// read reads from r once.
func (d *deframer) read(r io.Reader) error {
	kept := copy(d.buf[:], d.rest)
	n, err := r.Read(d.buf[kept:])
	d.rest = d.buf[:kept+n]
	return err
}

// next returns the next frame with a good checksum; false if more bytes are needed.
func (d *deframer) next() (rawFrame, bool) {
	for len(d.rest) > 0 {
		f, size := d.candidate(d.rest)
		switch {
		case size > 0:
			d.rest, d.skipped = d.rest[size:], 0
			return f, true
		case size == 0 && !d.datagrams: // a frame may start here, but is not complete
			return rawFrame{}, false
		case d.skipped%256 == 0:
			d.errors++
		}
		d.rest = d.rest[1:] // no frame starts here
		d.skipped++
	}
	return rawFrame{}, false
}

// candidate reads b as a frame. The size is −1 if b does not begin with a frame, 0 if
// the frame is not complete.
func (d *deframer) candidate(b []byte) (f rawFrame, size int) {
	begin := 6 // where the payload begins
	if f.v2 = b[0] == frame.V2MagicByte; f.v2 {
		begin = 10
	} else if b[0] != frame.V1MagicByte {
		return f, -1
	}
	if len(b) < begin {
		return f, 0
	}
	end := begin + int(b[1])
	size = end + 2 // the checksum
	if f.v2 {
		if b[2]&^frame.V2FlagSigned != 0 { // MAVLink forbids reading a frame with unknown incompatibility flags
			return f, -1
		}
		if b[2] != 0 {
			size += 13 // the signature
		}
		f.header = header{seq: b[4], system: b[5], component: b[6], id: uint32(b[7]) | uint32(b[8])<<8 | uint32(b[9])<<16}
	} else {
		f.header = header{seq: b[2], system: b[3], component: b[4], id: uint32(b[5])}
	}
	f.known = dialectRW.GetMessage(f.id)
	switch {
	case f.known == nil:
		return f, d.unknown(b, size)
	case len(b) < size:
		return f, 0
	}
	f.payload = b[begin:end]
	f.sum = binary.LittleEndian.Uint16(b[end:])
	if f.sum != checksum(b[1:end], f.known) {
		return f, -1
	}
	return f, size
}

// unknown returns the size of a frame whose message is not in the dialect, as candidate
// does. Its checksum can't be checked: it counts as a frame only between two others, or
// between one and the datagram's end.
func (d *deframer) unknown(b []byte, size int) int {
	switch {
	case d.skipped > 0:
		return -1
	case d.datagrams && len(b) == size:
		return size
	case len(b) <= size:
		return 0
	case b[size] != frame.V1MagicByte && b[size] != frame.V2MagicByte:
		return -1
	}
	return size
}

// checksum returns the checksum of a frame; b is the frame from its length to its payload.
func checksum(b []byte, codec *message.ReadWriter) uint16 {
	sum := x25.New()
	sum.Write(b)
	sum.Write([]byte{codec.CRCExtra()})
	return sum.Sum16()
}

// decode returns the message; nil if it is not in the dialect, or a MAVLink 1 message of
// the wrong length.
func (f rawFrame) decode() (m message.Message) {
	if f.known == nil {
		return nil
	}
	var padded [255]byte // MAVLink 2 cuts trailing zeros off the payload; gomavlib would allocate them
	n := copy(padded[:], f.payload)
	if f.v2 {
		n = len(padded)
	}
	m, _ = f.known.Read(&message.MessageRaw{ID: f.id, Payload: padded[:n]}, f.v2)
	return m
}

// sender encodes messages of one system and component, with a sequence of its own.
// Only one goroutine may use it.
type sender struct {
	system, component byte
	seq               byte // of the next frame
}

// newSender returns a sender whose sequence begins at random: two programs with our ids and
// the same numbers would take each other's frames for echoes of their own.
func newSender(system, component byte) *sender {
	return &sender{system, component, byte(rand.N(256))}
}

// encode returns the frame of a message, which must be in the dialect, and its header.
// gomavlib's writer needs a buffer of its own and more lines.
func (s *sender) encode(m message.Message) ([]byte, header) {
	codec := dialectRW.GetMessage(m.GetID())
	raw := codec.Write(m, true)
	h := header{seq: s.seq, system: s.system, component: s.component, id: raw.ID}
	b := []byte{frame.V2MagicByte, byte(len(raw.Payload)), 0, 0, h.seq, h.system, h.component, byte(h.id), byte(h.id >> 8), byte(h.id >> 16)}
	b = append(b, raw.Payload...)
	h.sum = checksum(b[1:], codec)
	s.seq++
	return binary.LittleEndian.AppendUint16(b, h.sum), h
}

func heartbeat(typ minimal.MAV_TYPE) *minimal.MessageHeartbeat {
	return &minimal.MessageHeartbeat{Type: typ, Autopilot: minimal.MAV_AUTOPILOT_INVALID, SystemStatus: minimal.MAV_STATE_ACTIVE, MavlinkVersion: 3}
}
