package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialect"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Component ids.
const (
	// componentID is ours. Other companions' programs use others (docs/install.md, 6).
	componentID = byte(minimal.MAV_COMP_ID_ONBOARD_COMPUTER3)

	// stationID is that of our ground station's heartbeat.
	stationID = byte(minimal.MAV_COMP_ID_MISSIONPLANNER)

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
	idSecondGPS     = (*common.MessageGps2Raw)(nil).GetID()
	idTarget        = (*common.MessagePositionTargetGlobalInt)(nil).GetID()
	idVersion       = (*common.MessageAutopilotVersion)(nil).GetID()
	idEstimate      = (*MessageEkfStatusReport)(nil).GetID()
	idBattery       = (*common.MessageBatteryStatus)(nil).GetID()
	idHome          = (*common.MessageHomePosition)(nil).GetID()
	idExtendedState = (*common.MessageExtendedSysState)(nil).GetID()
	idCurrentMode   = (*common.MessageCurrentMode)(nil).GetID()
	idRadioStatus   = (*common.MessageRadioStatus)(nil).GetID()
	idRadio         = (*MessageRadio)(nil).GetID()
	idSystemTime    = (*common.MessageSystemTime)(nil).GetID()
	idManualControl = (*common.MessageManualControl)(nil).GetID()
	idRCOverride    = (*common.MessageRcChannelsOverride)(nil).GetID()
)

// padding completes a broken frame. An autopilot waits for all bytes that a broken frame
// claims, up to 280, and reads whatever comes next as a part of it.
var padding [280]byte

// rawFrame is one frame from the line. Its payload is valid until the next read.
type rawFrame struct {
	header
	v2     bool
	signed bool

	// known: nil if the message is not in the dialect
	known *codec

	payload []byte

	// whole: as it is on the line, valid for as long as payload
	whole []byte

	// came is when its last byte was read: a broken frame before it may have kept it since.
	came time.Time
}

// header distinguishes a frame from the others of the last seconds.
type header struct {
	seq, system, component byte
	id                     uint32

	// sum: the checksum; 0 if the message is not in the dialect
	sum uint16
}

// maxFrame is the longest frame: MAVLink 2 with 255 bytes of payload, signed.
const maxFrame = 10 + 255 + 2 + 13

// deframer finds frames in a stream of bytes. gomavlib's reader believes the length
// of a broken frame and loses the good frames inside it. This one goes on at the next
// byte, so it reads the next whole frame after any noise. A broken frame that claims
// more bytes than have arrived delays the frames behind it until those bytes arrive;
// each still tells when it came itself.
//
// On UDP the datagrams of one sender are one stream: a bridge from a serial line cuts it where it likes. But a
// datagram that ends with a whole frame is read at once, whatever an earlier one lacked.
type deframer struct {
	buf []byte

	// rest: the bytes in buf that are not yet read as frames
	rest []byte

	// skipped: bytes dropped since the last frame
	skipped int

	// datagrams: a read brings a datagram
	datagrams bool

	// errors: places where bytes were not a frame; noise counts once in 256 bytes
	errors uint64

	// at is when the last read ended.
	at time.Time

	// arrivals are the reads that brought rest, the oldest first.
	arrivals []arrival

	// sender is who sent the datagram that was read last; nil where the port names no sender.
	sender func() netip.AddrPort

	// from: of the last datagram; invalid where the port names no sender
	from netip.AddrPort

	// vehicle: its piece makes room for no other sender's
	vehicle netip.AddrPort

	// pieces: beginnings of frames, one of each sender at most
	pieces []piece

	// tail: see tailLength; −1: not known yet
	tail int

	// babble: of a stream that is no datagrams
	babble babble
}

// How many beginnings of frames are kept, and for how long: datagrams with forged senders must not take memory.
const (
	keptPieces = 8
	pieceFor   = 500 * time.Millisecond
)

// arrival is a read that brought bytes.
type arrival struct {
	at time.Time

	// behind: bytes of the deframer's rest that came later
	behind int
}

// piece is the beginning of a frame whose end may come in the sender's next datagram.
type piece struct {
	from  netip.AddrPort
	at    time.Time
	bytes []byte
}

// read reads from r once.
func (d *deframer) read(r io.Reader) error {
	if d.datagrams {
		return d.readDatagram(r)
	}
	if d.buf == nil {
		// A full 921600 line brings half of it while it gathers.
		d.buf = make([]byte, 4096)
	}
	kept := copy(d.buf, d.rest)
	n, err := r.Read(d.buf[kept:])
	d.at = time.Now()
	d.rest = d.buf[:kept+n]
	d.arrived(kept, n)
	d.babble.hear(d.buf[kept : kept+n])
	return err
}

// arrived takes that n bytes came now, behind those of rest that are kept.
func (d *deframer) arrived(kept, n int) {
	d.arrivals = slices.DeleteFunc(d.arrivals, func(a arrival) bool { return a.behind >= kept })
	for i := range d.arrivals {
		d.arrivals[i].behind += n
	}
	if n > 0 {
		d.arrivals = append(d.arrivals, arrival{at: d.at})
	}
}

// readDatagram reads a datagram behind what its sender's last one left.
func (d *deframer) readDatagram(r io.Reader) error {
	if d.buf == nil {
		// No datagram is longer.
		d.buf = make([]byte, maxFrame+math.MaxUint16)
	}
	d.keep()
	n, err := r.Read(d.buf[maxFrame:])
	d.at = time.Now()
	d.tail = -1
	if d.sender != nil {
		d.from = d.sender()
	}
	d.skipped = 0
	d.rest = d.buf[maxFrame : maxFrame+n]
	d.arrivals = append(d.arrivals[:0], arrival{at: d.at})
	i := slices.IndexFunc(d.pieces, func(p piece) bool { return p.from == d.from && len(p.bytes) > 0 })
	if n == 0 || i < 0 {
		return err
	}
	p := &d.pieces[i]

	// The end of that piece was lost.
	if d.at.Sub(p.at) > pieceFor || d.wholeFrames(d.rest) {
		d.errors++
	} else {
		begin := maxFrame - len(p.bytes)
		copy(d.buf[begin:], p.bytes)
		d.rest = d.buf[begin : maxFrame+n]
		d.arrivals = append(d.arrivals[:0], arrival{p.at, n}, arrival{at: d.at})
	}
	p.bytes = p.bytes[:0]
	return err
}

// keep keeps what the last datagram left, until its sender's next one. Where there is no room the oldest piece
// makes it, except the vehicle's.
func (d *deframer) keep() {
	if len(d.rest) == 0 {
		return
	}
	i := slices.IndexFunc(d.pieces, func(p piece) bool { return len(p.bytes) == 0 })
	if i < 0 && len(d.pieces) < keptPieces {
		i = len(d.pieces)
		d.pieces = append(d.pieces, piece{bytes: make([]byte, 0, maxFrame)})
	}
	if i < 0 {
		i = d.oldestPiece()
		d.errors++
	}
	p := &d.pieces[i]
	p.from = d.from
	p.at = d.at
	p.bytes = append(p.bytes[:0], d.rest...)
}

// oldestPiece is the index of the oldest piece that is not the vehicle's.
func (d *deframer) oldestPiece() (oldest int) {
	for i := range d.pieces {
		older := d.pieces[i].from != d.vehicle && d.pieces[i].at.Before(d.pieces[oldest].at)
		if d.pieces[oldest].from == d.vehicle || older {
			oldest = i
		}
	}
	return oldest
}

// next returns the next frame, with a good checksum if its message is known; false if more bytes are needed.
func (d *deframer) next() (rawFrame, bool) {
	for len(d.rest) > 0 {
		f, size := d.candidate(d.rest)
		switch {
		case size > 0:
			d.babble.over = d.babble.over || f.known != nil
			d.rest = d.rest[size:]
			f.came = d.came()
			d.skipped = 0
			return f, true
		case size == 0 && !(d.datagrams && d.tailLength() < len(d.rest)):
			// A frame may start here, but is not complete.
			return rawFrame{}, false
		case d.skipped%256 == 0:
			d.errors++
		}

		// No frame starts here.
		d.rest = d.rest[1:]
		d.skipped++
	}
	return rawFrame{}, false
}

// came is when the byte just ahead of rest came.
func (d *deframer) came() time.Time {
	for _, a := range d.arrivals {
		if a.behind <= len(d.rest) {
			return a.at
		}
	}
	return d.at
}

// tailLength is the length of the shortest end of the datagram that is whole frames and begins with a checked
// one: whatever lacks bytes ahead of it has lost them. It is more than the datagram has if there is none.
func (d *deframer) tailLength() int {
	if d.tail >= 0 {
		return d.tail
	}
	d.tail = len(d.buf)
	for n := 1; n <= len(d.rest); n++ {
		b := d.rest[len(d.rest)-n:]
		if f, size := d.candidate(b); size > 0 && f.known != nil && d.wholeFrames(b[size:]) {
			d.tail = n
			break
		}
	}
	return d.tail
}

// wholeFrames reports whether b is frames from its first byte to its last. The checksum of one that is not in
// the dialect can't be checked.
func (d *deframer) wholeFrames(b []byte) bool {
	for len(b) > 0 {
		f, size := d.candidate(b)
		if f.known == nil {
			size = claimedSize(b)
		}
		if size <= 0 || size > len(b) {
			return false
		}
		b = b[size:]
	}
	return true
}

// candidate reads b as a frame. The size is −1 if b does not begin with a frame, 0 if
// the frame is not complete.
func (d *deframer) candidate(b []byte) (f rawFrame, size int) {
	// Where the payload begins.
	begin := 6
	if f.v2 = b[0] == frame.V2MagicByte; f.v2 {
		begin = 10
	}
	if size = claimedSize(b); size <= 0 {
		return f, size
	}
	end := begin + int(b[1])
	if f.v2 {
		f.signed = b[2] != 0
		f.header = header{seq: b[4], system: b[5], component: b[6], id: idOf(b)}
	} else {
		f.header = header{seq: b[2], system: b[3], component: b[4], id: uint32(b[5])}
	}
	f.known = codecOf(f.id)
	if f.known == nil {
		size = d.unknown(b, size)
		f.whole = b[:max(0, size)]
		return f, size
	}
	if len(b) < size {
		return f, 0
	}
	f.payload = b[begin:end]
	f.whole = b[:size]
	f.sum = binary.LittleEndian.Uint16(b[end:])
	if f.sum != checksum(b[1:end], f.known) {
		return f, -1
	}
	return f, size
}

// idOf is the message id of a frame of MAVLink 2.
func idOf(b []byte) uint32 { return uint32(b[7]) | uint32(b[8])<<8 | uint32(b[9])<<16 }

// claimedSize is the size of a frame by its header, the only part of b that it reads; −1 if b does not begin with
// a frame, 0 if its header is not complete.
func claimedSize(b []byte) int {
	switch {
	case b[0] == frame.V1MagicByte && len(b) < 6, b[0] == frame.V2MagicByte && len(b) < 10:
		return 0
	case b[0] == frame.V1MagicByte:
		return 6 + int(b[1]) + 2
	case b[0] != frame.V2MagicByte, b[2]&^frame.V2FlagSigned != 0:
		// MAVLink forbids reading unknown flags
		return -1
	case b[2] != 0:
		// The signature.
		return 10 + int(b[1]) + 2 + 13
	}
	return 10 + int(b[1]) + 2
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

// decoder reads the messages of the dialect, each into the one that it keeps of its kind: gomavlib's reflection and a
// new message each time took a third of what a frame costs.
type decoder struct{ layouts []*layout }

// layout is a message that is read again and again, and all of its fields.
type layout struct {
	msg    message.Message
	fields []wireField
}

// wireField is a number or a text of a message: where it stands in the payload, its bytes there, and a pointer to it,
// or the reflect.Value of a uint64, as which gomavlib keeps each enum.
type wireField struct {
	from, size int
	to         any
}

// decode returns the message of a frame, valid until the next of its kind; nil if it is not in the dialect, or a
// MAVLink 1 message that is too short. One that has extension fields, which MAVLink 1 does not know, is read as one of
// MAVLink 2: pymavlink and node-mavlink send such.
func (d *decoder) decode(f rawFrame) message.Message {
	if f.known == nil {
		return nil
	}

	// MAVLink 2 cuts trailing zeros off the payload.
	var payload [255]byte
	n := copy(payload[:], f.payload)
	if !f.v2 && n < f.known.sizeV1 {
		return nil
	}
	if d.layouts == nil {
		d.layouts = make([]*layout, len(codecs))
	}
	l := d.layouts[f.id]
	if l == nil {
		l = newLayout(f.known)
		d.layouts[f.id] = l
	}
	for i := range l.fields {
		l.fields[i].read(&payload)
	}
	return l.msg
}

// newLayout lays out a message as MAVLink sends it: large numbers first, of one size as they are declared, and
// extensions last. An array is so many numbers.
func newLayout(of *codec) *layout {
	v := reflect.New(reflect.TypeOf(of.Message).Elem())
	l := &layout{msg: v.Interface().(message.Message)}
	v = v.Elem()
	const extensions = 0
	groups := [9][]reflect.StructField{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		group := wireSize(f)
		if f.Tag.Get("mavext") != "" {
			group = extensions
		}
		groups[group] = append(groups[group], f)
	}
	for _, group := range []int{8, 4, 2, 1, extensions} {
		for _, f := range groups[group] {
			switch to := v.Field(f.Index[0]); to.Kind() {
			case reflect.String:
				length, _ := strconv.Atoi(f.Tag.Get("mavlen"))
				l.add(length, to)
			case reflect.Array:
				for n := range to.Len() {
					l.add(wireSize(f), to.Index(n))
				}
			default:
				l.add(wireSize(f), to)
			}
		}
	}
	return l
}

// add adds a field behind the others.
func (l *layout) add(size int, to reflect.Value) {
	pointer := to.Addr().Interface()
	if to.Kind() == reflect.Uint64 {
		// It may be an enum, each of which has a type of its own.
		pointer = to
	}
	from := 0
	if n := len(l.fields); n > 0 {
		from = l.fields[n-1].from + l.fields[n-1].size
	}
	l.fields = append(l.fields, wireField{from, size, pointer})
}

// wireSize is how many bytes a number or a character of a field has on the line. Of an enum a tag says it: uint8.
func wireSize(f reflect.StructField) int {
	if bits, isEnum := strings.CutPrefix(f.Tag.Get("mavenum"), "uint"); isEnum {
		n, _ := strconv.Atoi(bits)
		return n / 8
	}
	switch f.Type.Kind() {
	case reflect.String:
		return 1
	case reflect.Array:
		return int(f.Type.Elem().Size())
	}
	return int(f.Type.Size())
}

// read sets the field from a payload. FuzzMessages sees a type that is missing here.
func (f *wireField) read(payload *[255]byte) {
	b := payload[f.from : f.from+f.size]
	le := binary.LittleEndian
	switch to := f.to.(type) {
	case *uint8:
		*to = b[0]
	case *int8:
		*to = int8(b[0])
	case *uint16:
		*to = le.Uint16(b)
	case *int16:
		*to = int16(le.Uint16(b))
	case *uint32:
		*to = le.Uint32(b)
	case *int32:
		*to = int32(le.Uint32(b))
	case *int64:
		*to = int64(le.Uint64(b))
	case *float32:
		*to = math.Float32frombits(le.Uint32(b))
	case reflect.Value:
		var whole [8]byte
		copy(whole[:], b)
		to.SetUint(le.Uint64(whole[:]))
	case *string:
		text, _, _ := bytes.Cut(b, []byte{0})
		*to = string(text)
	}
}

// babble is what a stream of bytes is that has brought no MAVLink yet, as far as it names itself.
type babble struct {
	// tail: the end of what came last
	tail []byte

	// marks: how often each of babbles came
	marks [len(babbles)]int

	// over: MAVLink came
	over bool
}

// babbles are what flight controllers say on a port that is not set to MAVLink.
var babbles = [...]struct{ mark, says string }{
	{"$M>", "MSP, not MAVLink: it is a flight controller with INAV or Betaflight; switch MAVLink on, on another of " +
		"its ports (docs/autopilots.md, INAV and Betaflight)"},
	{"$M<", "MSP, and it asks: a configurator or a radio is connected here, not a flight controller"},
	{"$X>", "MSP 2, not MAVLink: it is a flight controller with INAV or Betaflight; switch MAVLink on, on another of " +
		"its ports (docs/autopilots.md, INAV and Betaflight)"},
	{"\r\n# ", "text, and shows a prompt (#): a command line is open there; close it with exit, and set the port to " +
		"MAVLink"},
	{"nsh> ", "text, and shows PX4's prompt (nsh>): set this port to MAVLink (MAV_0_CONFIG and so on)"},
	{"login: ", "text, and asks for a login: this is a computer's console, not a flight controller"},
}

// babbleLeast is how often a mark must come: noise may hold it once.
const babbleLeast = 2

func (b *babble) hear(came []byte) {
	if b.over {
		return
	}
	all := append(b.tail, came...)
	for i, known := range babbles {
		// What stood in the tail alone was counted before.
		b.marks[i] += bytes.Count(all, []byte(known.mark)) - bytes.Count(b.tail, []byte(known.mark))
	}
	const longest = 8
	b.tail = slices.Clone(all[max(0, len(all)-longest):])
}

// says is what the port speaks, if that is not MAVLink; nil: nothing says it.
func (b *babble) says() error {
	for i, known := range babbles {
		if b.marks[i] >= babbleLeast && !b.over {
			return errors.New("the port speaks " + known.says)
		}
	}
	return nil
}

// quietBeat is our heartbeat to a port on which no MAVLink was heard yet, and its header: whoever is there may take it
// for what is typed. So it is one whose every byte is quiet, the number and the checksum too.
func quietBeat(s *sender) ([]byte, header) {
	beat := heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)
	beat.SystemStatus = minimal.MAV_STATE_UNINIT
	for {
		b, h := s.encode(beat)
		if !slices.ContainsFunc(b, func(c byte) bool { return !isQuiet(c) }) {
			return b, h
		}
	}
}

// quietSystem is the system id of a quiet heartbeat: no other one is quiet for certain.
const quietSystem = 1

// isQuiet reports whether a flight controller's command line takes a byte for nothing: it is no letter, no sign and no
// control character that such a line knows (docs/autopilots.md, "INAV and Betaflight").
func isQuiet(c byte) bool { return c >= 0x80 || slices.Contains(quietLow, c) }

// quietLow are the bytes below 0x80 that a heartbeat can't do without.
var quietLow = []byte{0, 1, 3, 8, 9, 18}

func heartbeat(typ minimal.MAV_TYPE) *minimal.MessageHeartbeat {
	return &minimal.MessageHeartbeat{
		Type:           typ,
		Autopilot:      minimal.MAV_AUTOPILOT_INVALID,
		SystemStatus:   minimal.MAV_STATE_ACTIVE,
		MavlinkVersion: 3,
	}
}

// sender encodes messages of one system and component, with a sequence of its own.
// Only one goroutine may use it.
type sender struct {
	system, component byte

	// seq: of the next frame
	seq byte

	// flags: V2FlagSigned where a signature follows the frame
	flags byte
}

// newSender returns a sender whose sequence begins at random: two programs with our ids and
// the same numbers would take each other's frames for echoes of their own.
func newSender(system, component byte) *sender {
	return &sender{system: system, component: component, seq: byte(rand.N(256))}
}

// encode returns the frame of a message, which must be in the dialect, and its header.
// gomavlib's writer needs a buffer of its own and more lines.
func (s *sender) encode(m message.Message) ([]byte, header) {
	codec := codecOf(m.GetID())
	raw := codec.Write(m, true)
	h := header{seq: s.seq, system: s.system, component: s.component, id: raw.ID}
	b := []byte{
		frame.V2MagicByte, byte(len(raw.Payload)), s.flags, 0,
		h.seq, h.system, h.component, byte(h.id), byte(h.id >> 8), byte(h.id >> 16),
	}
	b = append(b, raw.Payload...)
	h.sum = checksum(b[1:], codec)
	s.seq++
	return binary.LittleEndian.AppendUint16(b, h.sum), h
}

// checksum returns the checksum of a frame; b is the frame from its length to its payload. gomavlib's goes bit by
// bit, and took a quarter of what a frame costs.
func checksum(b []byte, of *codec) uint16 {
	t := &crcTables
	sum := uint16(0xffff)
	for ; len(b) >= 4; b = b[4:] {
		sum = t[3][byte(sum)^b[0]] ^ t[2][byte(sum>>8)^b[1]] ^ t[1][b[2]] ^ t[0][b[3]]
	}
	for _, c := range b {
		sum = sum>>8 ^ t[0][byte(sum)^c]
	}
	return sum>>8 ^ t[0][byte(sum)^of.CRCExtra()]
}

// crcTables are of the polynomial of MAVLink's checksum (CRC-16/MCRF4XX): what a byte does to a checksum from 0 to 3
// bytes behind it.
var crcTables = func() (t [4][256]uint16) {
	for i := range t[0] {
		c := uint16(i)
		for range 8 {
			c = c>>1 ^ c&1*0x8408
		}
		t[0][i] = c
	}
	for k := range t[1:] {
		for i, c := range t[k] {
			t[k+1][i] = c>>8 ^ t[0][byte(c)]
		}
	}
	return t
}()

// echoWithin is how long a router or a radio takes at most to send our frame back.
const echoWithin = 2 * time.Second

// recent remembers what we wrote within echoWithin, however much it was: a router or a radio may send it back. Later
// an equal frame is another program's with our ids.
type recent struct{ sent []sentFrame }

type sentFrame struct {
	header
	at time.Time
}

func (r *recent) add(h header, at time.Time) {
	old := slices.IndexFunc(r.sent, func(f sentFrame) bool { return at.Sub(f.at) < echoWithin })
	if old < 0 {
		old = len(r.sent)
	}
	r.sent = append(slices.Delete(r.sent, 0, old), sentFrame{h, at})
}

// has reports whether a frame is an echo of ours.
func (r *recent) has(h header, now time.Time) bool {
	return slices.ContainsFunc(r.sent, func(f sentFrame) bool { return f.header == h && now.Sub(f.at) < echoWithin })
}

// codecOf returns the codec of a message; nil if it is not in the dialect.
func codecOf(id uint32) *codec {
	if id >= uint32(len(codecs)) {
		return nil
	}
	return codecs[id]
}

// codec reads and writes a message of the dialect.
type codec struct {
	*message.ReadWriter

	// sizeV1: of a MAVLink 1 payload
	sizeV1 int
}

// codecs are the dialect's by the message's id; a larger id than the table has panics at the start. Each frame
// of the line is looked up here.
var codecs = func() (table [512]*codec) {
	for _, m := range dialectRW.Dialect.Messages {
		rw := dialectRW.GetMessage(m.GetID())
		table[m.GetID()] = &codec{rw, len(rw.Write(m, false).Payload)}
	}
	return table
}()

// dialectRW holds only the messages that mavrest uses. All of common would cost half a
// megabyte in the binary and 4 MB of memory.
var dialectRW = newDialect(
	&minimal.MessageHeartbeat{},
	&common.MessageSysStatus{},
	&common.MessageParamRequestRead{},
	&common.MessageParamValue{},
	&common.MessageGpsRawInt{},
	&common.MessageGps2Raw{},
	&common.MessageAttitude{},
	&common.MessageGlobalPositionInt{},
	&common.MessageManualControl{},
	&common.MessageVfrHud{},
	&common.MessageCommandInt{},
	&common.MessageCommandLong{},
	&common.MessageCommandAck{},
	&common.MessageTimesync{},
	&common.MessageSystemTime{},
	&common.MessageAutopilotVersion{},
	&common.MessageHomePosition{},
	&common.MessageRcChannels{},
	&common.MessageRcChannelsOverride{},
	&common.MessagePositionTargetGlobalInt{},
	&common.MessageRadioStatus{},
	&common.MessageExtendedSysState{},
	&common.MessageBatteryStatus{},
	&common.MessageCurrentMode{},
	&common.MessageStatustext{},
	&MessageEkfStatusReport{},
	&MessageRadio{},
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

// MessageRadio is RADIO of ArduPilot's dialect, which old radios send. As RADIO_STATUS, it says only what a radio is.
type MessageRadio struct {
	Rssi, Remrssi, Txbuf, Noise, Remnoise uint8
	Rxerrors, Fixed                       uint16
}

func (*MessageRadio) GetID() uint32 { return 166 }

func newDialect(messages ...message.Message) *dialect.ReadWriter {
	rw := &dialect.ReadWriter{Dialect: &dialect.Dialect{Messages: messages}}
	if err := rw.Initialize(); err != nil {
		// A mistake in the list of messages.
		panic(err)
	}
	return rw
}
