package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
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

// GetID implements message.Message.
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
	idHeartbeat          = (*minimal.MessageHeartbeat)(nil).GetID()
	idSysStatus          = (*common.MessageSysStatus)(nil).GetID()
	idGPS                = (*common.MessageGpsRawInt)(nil).GetID()
	idAttitude           = (*common.MessageAttitude)(nil).GetID()
	idPosition           = (*common.MessageGlobalPositionInt)(nil).GetID()
	idRCChannels         = (*common.MessageRcChannels)(nil).GetID()
	idHUD                = (*common.MessageVfrHud)(nil).GetID()
	idTarget             = (*common.MessagePositionTargetGlobalInt)(nil).GetID()
	idVersion            = (*common.MessageAutopilotVersion)(nil).GetID()
	idEstimate           = (*MessageEkfStatusReport)(nil).GetID()
	idHome               = (*common.MessageHomePosition)(nil).GetID()
	idExtendedState      = (*common.MessageExtendedSysState)(nil).GetID()
	idCurrentMode        = (*common.MessageCurrentMode)(nil).GetID()
	idCommandAck         = (*common.MessageCommandAck)(nil).GetID()
	idManualControl      = (*common.MessageManualControl)(nil).GetID()
	idRcChannelsOverride = (*common.MessageRcChannelsOverride)(nil).GetID()
)

// padding completes a broken frame. An autopilot waits for all bytes that a broken frame
// claims, up to 280, and takes whatever comes next for them.
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
	sum                    uint16 // the checksum
}

// headerOf returns the header of an unsigned MAVLink 2 frame.
func headerOf(b []byte) header {
	id := uint32(b[7]) | uint32(b[8])<<8 | uint32(b[9])<<16
	return header{b[4], b[5], b[6], id, binary.LittleEndian.Uint16(b[len(b)-2:])}
}

// recent remembers the headers of the last frames that were sent or received, and when:
// a router or a radio may repeat a frame.
type recent struct {
	last [64]struct {
		header
		at time.Time
	}
	n int
}

func (r *recent) add(h header, at time.Time) {
	slot := &r.last[r.n%len(r.last)]
	slot.header, slot.at = h, at
	r.n++
}

// has reports whether a frame was added after since.
func (r *recent) has(h header, since time.Time) bool {
	for i := range r.last {
		if r.last[i].header == h && r.last[i].at.After(since) {
			return true
		}
	}
	return false
}

// sequence finds gaps in the vehicle's frames.
type sequence struct {
	last  byte
	known bool
}

// lost returns how many frames are missing before this one. A number that steps back is
// a frame that UDP delivered late; it counts as no gap.
func (s *sequence) lost(seq byte) uint64 {
	gap := seq - s.last - 1
	switch {
	case !s.known:
		gap = 0
	case gap > 127:
		return 0
	}
	s.last, s.known = seq, true
	return uint64(gap)
}

// deframer finds frames in a stream of bytes. gomavlib's reader believes the length
// of a broken frame and loses the good frames inside it. This one goes on at the next
// byte, so it reads the next whole frame after any noise. A broken frame that claims
// more bytes than have arrived delays the frames behind it until they have.
type deframer struct {
	buf        [2048]byte
	start, end int    // of the bytes in buf that are not yet read as frames
	skipped    int    // bytes dropped since the last frame
	datagrams  bool   // a frame never continues in the next read
	errors     uint64 // places where bytes were not a frame; noise counts once in 256 bytes
}

// read reads from r once.
func (d *deframer) read(r io.Reader) error {
	d.end = copy(d.buf[:], d.buf[d.start:d.end])
	d.start = 0
	n, err := r.Read(d.buf[d.end:])
	d.end += n
	return err
}

// next returns the next frame with a good checksum; false if more bytes are needed.
func (d *deframer) next() (rawFrame, bool) {
	for d.start < d.end {
		f, size := d.candidate(d.buf[d.start:d.end])
		switch {
		case size < 0 || size == 0 && d.datagrams: // no frame starts here
			if d.skipped%256 == 0 {
				d.errors++
			}
			d.skipped++
			d.start++
		case size == 0: // a frame may start here, but is not complete
			return rawFrame{}, false
		default:
			d.start += size
			d.skipped = 0
			return f, true
		}
	}
	return rawFrame{}, false
}

// candidate reads b as a frame. The size is −1 if b does not begin with a frame, 0 if
// the frame is not complete. A message that is not in the dialect can't be checked: it
// counts as a frame only between two others, or between one and the datagram's end.
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
	size = end + 2
	if f.v2 {
		if b[2]&^frame.V2FlagSigned != 0 { // MAVLink forbids reading a frame with unknown incompatibility flags
			return f, -1
		}
		if b[2] != 0 {
			size += 13
		}
		f.header = headerOf(b[:begin])
	} else {
		f.header = header{seq: b[2], system: b[3], component: b[4], id: uint32(b[5])}
	}
	f.known = dialectRW.GetMessage(f.id)
	if len(b) >= end+2 {
		f.sum = binary.LittleEndian.Uint16(b[end:])
	}
	if f.known == nil {
		switch {
		case d.skipped > 0:
			return f, -1
		case d.datagrams && len(b) == size:
			return f, size
		case len(b) <= size:
			return f, 0
		case b[size] != frame.V1MagicByte && b[size] != frame.V2MagicByte:
			return f, -1
		}
		return f, size
	}
	if len(b) < size {
		return f, 0
	}
	var sum x25.X25
	sum.Reset()
	sum.Write(b[1:end])
	sum.Write([]byte{f.known.CRCExtra()})
	if f.sum != sum.Sum16() {
		return f, -1
	}
	f.payload = b[begin:end]
	return f, size
}

// decode returns the message of a known frame. It fails on a MAVLink 1 frame of the
// wrong length.
func (f rawFrame) decode() (message.Message, error) {
	var padded [255]byte // MAVLink 2 cuts trailing zeros off the payload
	payload := padded[:copy(padded[:], f.payload)]
	if f.v2 {
		payload = padded[:]
	}
	return f.known.Read(&message.MessageRaw{ID: f.id, Payload: payload}, f.v2)
}

// sender encodes messages of one system and component, with a sequence of its own.
// Only the writer goroutine uses it.
type sender struct {
	writer            frame.Writer
	system, component byte
	seq               byte         // of the next frame
	out               bytes.Buffer // holds the last frame
}

func newSender(system, component byte) *sender {
	s := &sender{system: system, component: component}
	s.writer = frame.Writer{ByteWriter: &s.out, DialectRW: dialectRW}
	if err := s.writer.Initialize(); err != nil {
		panic(err) // a mistake in the lines above
	}
	return s
}

// encode returns the frame of a message, valid until the next call.
func (s *sender) encode(m message.Message) ([]byte, error) {
	codec := dialectRW.GetMessage(m.GetID())
	if codec == nil {
		return nil, errors.New("the message is not in the dialect")
	}
	s.out.Reset()
	f := &frame.V2Frame{SequenceNumber: s.seq, SystemID: s.system, ComponentID: s.component, Message: codec.Write(m, true)}
	f.Checksum = f.GenerateChecksum(codec.CRCExtra())
	s.seq++
	if err := s.writer.Write(f); err != nil {
		return nil, err
	}
	return s.out.Bytes(), nil
}

func heartbeat(typ minimal.MAV_TYPE) *minimal.MessageHeartbeat {
	return &minimal.MessageHeartbeat{
		Type:           typ,
		Autopilot:      minimal.MAV_AUTOPILOT_INVALID,
		SystemStatus:   minimal.MAV_STATE_ACTIVE,
		MavlinkVersion: 3,
	}
}
