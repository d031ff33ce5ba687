package main

import (
	"net/netip"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// Times of the vehicle's address (docs/design.md, "The vehicle's address").
const (
	addressSilent = 2 * time.Second        // an address that was silent for this long may be followed by another
	addressAsk    = 500 * time.Millisecond // after this silence the other one is asked who it is, and again
	addressProof  = time.Second            // how long the other one has to show that it is the same vehicle
)

// vehicleAddress is where the vehicle is heard on a port at which many addresses are heard: at one address at
// a time. Another one that sends with the vehicle's ids is the other until the vehicle's is silent. On any other
// port the only address is the zero one.
type vehicleAddress struct {
	at    netip.AddrPort
	heard time.Time // when a frame of the vehicle came from it last
	clock bootClock // what the vehicle's clock showed last
	uid   autopilotUID
	said  bool // the two addresses were reported

	other otherAddress
}

// otherAddress is another address that sends with the vehicle's ids.
type otherAddress struct {
	at    netip.AddrPort
	since time.Time
	heard time.Time
	clock bootClock
	uid   autopilotUID
	asked time.Time // when it was last asked who it is
}

// autopilotUID is what AUTOPILOT_VERSION has to tell one autopilot from another; zero: unknown.
type autopilotUID struct {
	short uint64
	long  [18]byte // ArduPilot has only this one
}

// equals reports whether two autopilots have the same uid; known is false where that can't be told.
func (u autopilotUID) equals(v autopilotUID) (equal, known bool) {
	unknown := [18]byte{}
	if u.long != unknown && v.long != unknown {
		return u.long == v.long, true
	}
	return u.short == v.short, u.short != 0 && v.short != 0
}

// origin says whose a frame with the vehicle's ids is, by the address that it came from.
type origin uint8

const (
	ofVehicle  origin = iota
	ofOther           // another address than the vehicle's: the frame is dropped
	ofMoved           // the vehicle's new address: it is the same vehicle
	ofReplaced        // a vehicle that has started again, or another one: follow makes its address the vehicle's
)

// hear takes a frame with the vehicle's ids; m is nil if its message is not known.
func (a *vehicleAddress) hear(from netip.AddrPort, m message.Message, now time.Time) origin {
	if from == a.at {
		was := a.clock
		a.heard = now
		read(m, &a.clock, &a.uid, now)
		if a.clock.jumpedAhead(was) {
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
	switch {
	case now.Sub(a.heard) < addressSilent || !known:
		return ofOther
	case !same:
		return ofReplaced
	}
	was := *a
	a.follow()
	if !a.clock.received() {
		a.clock = was.clock
	}
	if a.uid == (autopilotUID{}) {
		a.uid = was.uid
	}
	return ofMoved
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
		mayTell := a.uid != (autopilotUID{}) && o.uid == (autopilotUID{}) // it is asked
		return true, late || !mayTell
	}
	return uidsKnown, late
}

// follow makes the other address the vehicle's.
func (a *vehicleAddress) follow() {
	o := a.other
	*a = vehicleAddress{at: o.at, heard: o.heard, clock: o.clock, uid: o.uid}
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

// read takes the clock and the uid from a message that has them.
func read(m message.Message, clock *bootClock, uid *autopilotUID, now time.Time) {
	switch m := m.(type) {
	case *common.MessageAttitude:
		*clock = clockAt(m.TimeBootMs, now)
	case *common.MessageGlobalPositionInt:
		*clock = clockAt(m.TimeBootMs, now)
	case *common.MessageAutopilotVersion:
		*uid = autopilotUID{m.Uid, m.Uid2}
	}
}
