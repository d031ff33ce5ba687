package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// vehicleTypes are the MAV_TYPEs of vehicles. Whatever has another type, a ground station, a gimbal, a camera or
// one that is not in MAVLink yet, is never the vehicle, whatever its autopilot field, its system and component are.
var vehicleTypes = []minimal.MAV_TYPE{
	minimal.MAV_TYPE_GENERIC, // PX4 without an airframe
	minimal.MAV_TYPE_FIXED_WING, minimal.MAV_TYPE_QUADROTOR, minimal.MAV_TYPE_COAXIAL, minimal.MAV_TYPE_HELICOPTER,
	minimal.MAV_TYPE_AIRSHIP, minimal.MAV_TYPE_FREE_BALLOON, minimal.MAV_TYPE_ROCKET, minimal.MAV_TYPE_GROUND_ROVER,
	minimal.MAV_TYPE_SURFACE_BOAT, minimal.MAV_TYPE_SUBMARINE, minimal.MAV_TYPE_HEXAROTOR,
	minimal.MAV_TYPE_OCTOROTOR, minimal.MAV_TYPE_TRICOPTER, minimal.MAV_TYPE_FLAPPING_WING, minimal.MAV_TYPE_KITE,
	minimal.MAV_TYPE_VTOL_TAILSITTER_DUOROTOR, minimal.MAV_TYPE_VTOL_TAILSITTER_QUADROTOR,
	minimal.MAV_TYPE_VTOL_TILTROTOR, minimal.MAV_TYPE_VTOL_FIXEDROTOR, minimal.MAV_TYPE_VTOL_TAILSITTER,
	minimal.MAV_TYPE_VTOL_TILTWING, minimal.MAV_TYPE_VTOL_RESERVED5, minimal.MAV_TYPE_PARAFOIL,
	minimal.MAV_TYPE_DODECAROTOR, minimal.MAV_TYPE_DECAROTOR, minimal.MAV_TYPE_GENERIC_MULTIROTOR,
	minimal.MAV_TYPE_SPACECRAFT_ORBITER, minimal.MAV_TYPE_GROUND_QUADRUPED, minimal.MAV_TYPE_VTOL_GYRODYNE,
}

// isVehicle reports whether a heartbeat of component 1 is an autopilot's in a vehicle.
func isVehicle(b *minimal.MessageHeartbeat) bool {
	return b.Autopilot != minimal.MAV_AUTOPILOT_INVALID && slices.Contains(vehicleTypes, b.Type)
}

// isNewKind reports whether a heartbeat of component 1 is PX4's or ArduPilot's, with a MAV_TYPE that MAVLink does not
// have yet. Routers sign with such types too: what tells a vehicle from them is its attitude.
func isNewKind(b *minimal.MessageHeartbeat) bool {
	known := b.Autopilot == minimal.MAV_AUTOPILOT_PX4 || b.Autopilot == minimal.MAV_AUTOPILOT_ARDUPILOTMEGA
	return known && !hasName(b.Type)
}

// hasName reports whether MAVLink has a MAV_TYPE.
func hasName(typ minimal.MAV_TYPE) bool { return strings.HasPrefix(typ.String(), "MAV_TYPE_") }

// Times of the vehicle's address (docs/design.md, "The vehicle's address").
const (
	// addressSilent is how long an address must be silent before another one may follow it.
	addressSilent = 2 * time.Second

	// addressAsk is the silence after which the other address is asked who it is, and the time until it is asked
	// again.
	addressAsk = 500 * time.Millisecond

	// addressProof is how long the other one has to show that it is the same vehicle.
	addressProof = time.Second
)

// vehicleAddress is where the vehicle is heard on a port at which many addresses are heard: at one address at
// a time. Another one that sends with the vehicle's ids is the other until the vehicle's is silent. On any other
// port the only address is the zero one.
type vehicleAddress struct {
	at netip.AddrPort

	// heard is when a frame of the vehicle came from it last.
	heard time.Time

	// clock is what the vehicle's clock showed last.
	clock bootClock

	// behind is how far the line was behind then.
	behind time.Duration

	uid autopilotUID

	// said: the two addresses were reported
	said bool

	other otherAddress

	scatter
}

// otherAddress is another address that sends with the vehicle's ids.
type otherAddress struct {
	at    netip.AddrPort
	since time.Time
	heard time.Time
	clock bootClock
	uid   autopilotUID

	// asked is when it was last asked who it is.
	asked time.Time
}

// autopilotUID is what AUTOPILOT_VERSION has to tell one autopilot from another; zero: unknown.
type autopilotUID struct {
	short uint64

	// long: ArduPilot has only this one
	long [18]byte
}

// scatterOf is how many datagrams in a row from as many addresses come from a sender that does not keep its port.
const scatterOf = 8

// scatter is the addresses of the last datagrams with the vehicle's ids, while none comes twice.
type scatter struct {
	from []netip.AddrPort

	// newest is when the last one came.
	newest time.Time
}

// origin says whose a frame with the vehicle's ids is, by the address that it came from.
type origin uint8

const (
	ofVehicle origin = iota

	// ofOther: another address than the vehicle's: the frame is dropped
	ofOther

	// ofMoved: the vehicle's new address: it is the same vehicle
	ofMoved

	// ofReplaced: a vehicle that has started again, or another one: the link follows it (events.hearReplaced)
	ofReplaced
)

// hear takes a frame with the vehicle's ids; m is nil if its message is not known.
func (a *vehicleAddress) hear(from netip.AddrPort, m message.Message, now time.Time) origin {
	a.scatter.hear(from, now)
	if from == a.at {
		was := a.clock
		a.heard = now
		if hasClock := read(m, &a.clock, &a.uid, now); hasClock && a.clock.jumpedAhead(was, a.behind) {
			a.other = otherAddress{at: from, heard: now, clock: a.clock}
			return ofReplaced
		}
		return ofVehicle
	}
	if !a.isOther(from, m, now) {
		return ofOther
	}
	o := &a.other
	o.heard = now
	read(m, &o.clock, &o.uid, now)
	same, known := a.same(now)
	if now.Sub(a.heard) < addressSilent || !known {
		return ofOther
	}
	if !same {
		return ofReplaced
	}
	was := *a
	a.adoptOther()
	if !a.clock.received() {
		a.clock = was.clock
	}
	if a.uid == (autopilotUID{}) {
		a.uid = was.uid
	}
	return ofMoved
}

func (s *scatter) hear(from netip.AddrPort, now time.Time) {
	i := slices.Index(s.from, from)
	switch {
	case i >= 0 && i == len(s.from)-1:
		// The same datagram has more frames, or the next one has its address: that of a sender that keeps it.
	case i >= 0, now.Sub(s.newest) >= neighbourFor:
		s.from = append(s.from[:0], from)
	case len(s.from) == scatterOf:
		s.from = append(slices.Delete(s.from, 0, 1), from)
	default:
		s.from = append(s.from, from)
	}
	s.newest = now
}

// isOther reports whether an address is the other one. There is one at a time: another one takes its place
// when it is silent, or when only this frame's clock is the vehicle's.
func (a *vehicleAddress) isOther(from netip.AddrPort, m message.Message, now time.Time) bool {
	o := &a.other
	if o.at == from {
		return true
	}
	var next otherAddress
	read(m, &next.clock, &next.uid, now)
	likelier := a.clock.goesOn(next.clock) && !a.clock.goesOn(o.clock)
	if now.Sub(o.heard) < addressSilent && !likelier {
		return false
	}
	*o = otherAddress{at: from, since: now}
	return true
}

// same reports whether the other address is the same vehicle, which has not started again since; known is false
// while that can't be told. A different uid is another vehicle. Else the boot clock tells: it goes on. The uid
// alone tells where no clock came: an autopilot keeps it when it starts again, and all simulated PX4 with one id
// have the same. What shows no proof in time is another vehicle.
func (a *vehicleAddress) same(now time.Time) (same, known bool) {
	o := &a.other
	late := now.Sub(o.since) >= addressProof
	equal, uidsKnown := a.uid.equals(o.uid)
	bothClocks := a.clock.received() && o.clock.received()
	switch {
	case uidsKnown && !equal:
		return false, true
	case bothClocks && !a.clock.goesOn(o.clock):
		return false, true
	case bothClocks:
		// It is asked.
		mayTell := a.uid != (autopilotUID{}) && o.uid == (autopilotUID{})
		return true, late || !mayTell
	}
	return uidsKnown, late
}

// equals reports whether two autopilots have the same uid; known is false where that can't be told.
func (u autopilotUID) equals(v autopilotUID) (equal, known bool) {
	unknown := [18]byte{}
	if u.long != unknown && v.long != unknown {
		return u.long == v.long, true
	}
	return u.short == v.short, u.short != 0 && v.short != 0
}

// adoptOther makes the other address the vehicle's.
func (a *vehicleAddress) adoptOther() {
	o := a.other
	*a = vehicleAddress{at: o.at, heard: o.heard, clock: o.clock, uid: o.uid, scatter: a.scatter}
}

// read takes the clock and the uid from a message that has them, and reports whether it has the clock.
func read(m message.Message, clock *bootClock, uid *autopilotUID, now time.Time) (hasClock bool) {
	switch m := m.(type) {
	case *common.MessageAttitude:
		*clock = clockAt(m.TimeBootMs, now)
		return true
	case *common.MessageGlobalPositionInt:
		*clock = clockAt(m.TimeBootMs, now)
		return true
	case *common.MessageAutopilotVersion:
		*uid = autopilotUID{m.Uid, m.Uid2}
	}
	return false
}

// bothHeard reports once that the vehicle's address and another one are heard side by side.
func (a *vehicleAddress) bothHeard(now time.Time) bool {
	o := &a.other
	sideBySide := o.at.IsValid() && a.heard.Sub(o.since) >= addressAsk && o.heard.Sub(o.since) >= addressAsk
	if a.said || !sideBySide || now.Sub(o.heard) >= addressSilent {
		return false
	}
	a.said = true
	return true
}

// mustAsk reports whether the other address is to be asked now for what it has not told yet, its clock or its
// uid: the vehicle's address is silent.
func (a *vehicleAddress) mustAsk(now time.Time) bool {
	o := &a.other
	told := o.clock.received() && o.uid != (autopilotUID{})
	if told || o.heard != now || now.Sub(a.heard) < addressAsk || now.Sub(o.asked) < addressAsk {
		return false
	}
	o.asked = now
	return true
}

// scattered reports whether the vehicle is heard, and each datagram comes from another address.
func (s *scatter) scattered(now time.Time) bool {
	return len(s.from) == scatterOf && now.Sub(s.newest) < offlineAfter
}

// last is the newest address. It needs one.
func (s *scatter) last() netip.AddrPort { return s.from[len(s.from)-1] }

// sequence counts the vehicle's frames by their numbers: those that are missing, and those that come twice.
type sequence struct {
	// next: the number of the next frame
	next byte

	// began: a frame came
	began bool

	// frames: by number
	frames [256]numbered
}

// numbered is what came with a number.
type numbered struct {
	id  uint32
	sum uint16

	// missing: nothing came with it, which counts as lost
	missing bool

	at time.Time
}

// hear takes a frame. lost is by how much it changes the number of lost ones: one that comes late takes its loss
// back. repeated reports whether it came before.
func (s *sequence) hear(h header, now time.Time) (lost int, repeated bool) {
	is := numbered{id: h.id, sum: h.sum, at: now}
	was := &s.frames[h.seq]
	ahead := h.seq - s.next
	switch {
	case !s.began || ahead < 128:
		lost = s.skip(h.seq)
	case was.missing:
		lost = -1
	case was.id == h.id && was.sum == h.sum && now.Sub(was.at) < copyWithin:
		return 0, true
	}
	*was = is
	return lost, false
}

// copyWithin is how long a frame may come again: by another link, or from a router that has two ways.
const copyWithin = 2 * time.Second

// skip goes on to a number, and returns how many are missing before it. The numbers in the other half count as new
// from then on.
func (s *sequence) skip(to byte) (missing int) {
	for s.began && s.next != to {
		s.frames[s.next] = numbered{missing: true}
		s.frames[s.next+128] = numbered{}
		s.next++
		missing++
	}
	s.frames[to+128] = numbered{}
	s.next = to + 1
	s.began = true
	return missing
}

// order is in which order the vehicle's frames come. Only checked ones count: what can't be checked may be noise, with
// any number.
type order struct {
	last byte

	// at is when the last frame came that was in order; zero: none did.
	at time.Time
}

// hear takes a frame's number, and reports whether it left after all that came before it. Behind a silence of seqFor
// its number tells nothing, and it counts as in order.
func (o *order) hear(seq byte, now time.Time) bool {
	told := !o.at.IsZero() && now.Sub(o.at) < seqFor
	if told && seq-o.last-1 > 127 {
		return false
	}
	o.last = seq
	o.at = now
	return true
}

// seqFor is for how long the number of the last frame tells whether the next one is late.
const seqFor = 500 * time.Millisecond

// damage counts the places where bytes were no frame, until there were none for damageFor.
type damage struct {
	n  uint64
	at time.Time
}

// What counts as damage that lasts.
const (
	damageLeast = 5
	damageFor   = 10 * time.Second
)

func (d *damage) add(n uint64, now time.Time) {
	if now.Sub(d.at) >= damageFor {
		d.n = 0
	}
	d.n += n
	d.at = now
}

func (d *damage) lasts(now time.Time) bool { return d.n >= damageLeast && now.Sub(d.at) < damageFor }

// Limits of what is said to be heard where the vehicle is not.
const (
	neighboursKept = 8

	// neighbourFor is how long a sender that is silent counts as heard.
	neighbourFor = 10 * time.Second
)

// neighbour is a system and component that is heard and is not the vehicle.
type neighbour struct {
	system, component byte

	// typ: of its heartbeat
	typ minimal.MAV_TYPE

	// beats: it sends heartbeats
	beats bool

	// radio: it sends RADIO_STATUS, or RADIO as old radios do
	radio bool

	// attitudes: how many ATTITUDEs it has sent
	attitudes int

	// frames: one alone may be noise
	frames int

	at time.Time
}

// neighbours are what else is heard on the line, in the order in which it came.
type neighbours []neighbour

// hear takes a frame that is not the vehicle's.
func (list *neighbours) hear(f rawFrame, now time.Time) {
	i := slices.IndexFunc(*list, func(n neighbour) bool { return n.system == f.system && n.component == f.component })
	if i < 0 {
		if len(*list) == neighboursKept {
			oldest := slices.MinFunc(*list, func(a, b neighbour) int { return a.at.Compare(b.at) })
			*list = slices.DeleteFunc(*list, func(n neighbour) bool { return n == oldest })
		}
		i = len(*list)
		*list = append(*list, neighbour{system: f.system, component: f.component})
	}
	n := &(*list)[i]
	n.frames++
	n.at = now
	switch f.id {
	case idHeartbeat:
		n.beats = true
		n.typ = 0

		// MAVLink 2 cuts zeros off the end of a payload.
		if len(f.payload) > 4 {
			n.typ = minimal.MAV_TYPE(f.payload[4])
		}
	case idRadioStatus, idRadio:
		n.radio = true
	case idAttitude:
		n.attitudes++
	}
}

// isTilted reports whether an autopilot with a system id has sent its attitude, more than once.
func (list neighbours) isTilted(system byte, now time.Time) bool {
	return slices.ContainsFunc(list, func(n neighbour) bool {
		return n.system == system && n.component == autopilotID && n.attitudes > 1 && now.Sub(n.at) < neighbourFor
	})
}

// words lists who is heard, and what that may mean; "" if nobody is.
func (list neighbours) words(ownSystem byte, now time.Time) string {
	var names []string

	// A vehicle has another component than an autopilot's.
	elsewhere := false
	for _, n := range list {
		if n.frames < 2 || now.Sub(n.at) >= neighbourFor {
			continue
		}
		what := "no heartbeat"
		switch {
		case n.system == ownSystem && n.component == componentID:
			what = "mavrest's own ids"
		case n.radio:
			what = "a radio"
		case n.beats:
			what = typeName(n.typ)
		}
		names = append(names, fmt.Sprintf("system %d component %d (%s)", n.system, n.component, what))
		elsewhere = elsewhere || (n.beats && n.component != autopilotID && slices.Contains(vehicleTypes, n.typ))
	}
	said := strings.Join(names, ", ")
	if elsewhere {
		said += "; an autopilot's component is 1"
	}
	return said
}

// typeName is a MAV_TYPE in the API; "type 77" for one without a name.
func typeName(typ minimal.MAV_TYPE) string {
	name := lowerName(typ.String(), "MAV_TYPE_")
	if strings.Trim(name, "0123456789") == "" {
		return "type " + name
	}
	return name
}
