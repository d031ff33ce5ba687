package main

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Times and limits of other sticks than ours (docs/design.md, "Who has the sticks").
const (
	overrideTimeout = 3500 * time.Millisecond // until ArduPilot has forgotten sticks that were not released
	othersFor       = 3 * time.Second         // after their last frame somebody else's sticks count for this long
	switchesIn      = 3 * time.Second         // after channels 5 to 16 first had values they may still jump by themselves
	idleBelow       = 1350                    // µs of RC_CHANNELS 3 (throttle); up to this the receiver counts as idle
	switchJump      = 100                     // µs between two successive RC_CHANNELS: a switch jumps, RSSI drifts
)

// receiverState is what is known of the vehicle's own RC receiver.
type receiverState uint8

const (
	receiverNone  receiverState = iota // never there, lost or unknown
	receiverIdle                       // live, its throttle low
	receiverInUse                      // live, and somebody flies by it
)

// sources is what is known of who else may move the sticks. SYS_STATUS shows the receiver only
// while no stream of ours runs.
type sources struct {
	validFrom time.Time // from when on SYS_STATUS shows the receiver: an earlier stream hides it until then
	receiver  receiverState
	known     bool // the receiver's state was heard

	oursFirst     bool      // PX4 accepted a stick mode with our stream before a transmitter was heard
	heardInFlight bool      // a transmitter was heard since the arming; while disarmed: it is heard now
	transmitterAt time.Time // when a transmitter was heard last; PX4 sends RC_CHANNELS only while it hears one
	foreignAt     time.Time // when another program's sticks came last

	last          channels  // the last RC_CHANNELS
	switchesSince time.Time // when channels 5 to 16 first had values
}

// reason is why sticks do not act, or what their user must know. It is a value: its words are made when
// somebody reads them. The zero value is no reason.
type reason struct {
	kind    reasonKind
	param   string // the parameter's name
	value   float64
	version firmwareVersion // PX4's; the advice depends on it
}

type reasonKind uint8

const (
	noReason         reasonKind = iota
	otherProgram                // another program moves ArduPilot's sticks
	groundFailsafe              // ArduPilot takes our sticks for a ground station's heartbeat
	onlyTransmitter             // PX4 obeys only a transmitter
	transmitterWasOn            // PX4 heard a transmitter in this flight
	transmitterFirst            // PX4 heard a transmitter before our sticks
	transmitterOn               // PX4 hears a transmitter, which comes first
	nobodyBefore17              // nobody's sticks act on a PX4 before 1.17
	nobody                      // nobody's sticks act
	deafAlways                  // PX4 ignores a transmitter
	deafWhileSent               // PX4 ignores a transmitter while our sticks come
	deafUntilRestart            // PX4 ignores a transmitter until it restarts
	switchNotLive               // a pilot's switch that our sticks undo does not show
	kindNotSaid                 // PX4 is a MAV_TYPE_GENERIC
	switchUnseen                // a pilot's switch that our sticks undo may not show on a line so slow
)

func (r reason) given() bool { return r.kind != noReason }

// about is a reason of a parameter's value.
func (v view) about(kind reasonKind, param string, value float64) reason {
	return reason{kind: kind, param: param, value: value, version: v.version}
}

// aboutRcIn is a reason of PX4's COM_RC_IN_MODE.
func (v view) aboutRcIn(kind reasonKind) reason { return v.about(kind, "COM_RC_IN_MODE", v.rcIn()) }

// String is the reason in words; "" if there is none.
func (r reason) String() string {
	is := fmt.Sprintf("%s is %g", r.param, r.value)
	deaf := ": PX4 ignores a transmitter's sticks, its mode switch and its kill switch "
	switch r.kind {
	case otherProgram:
		return "another program moves the sticks of this vehicle"
	case groundFailsafe:
		return is + ": the autopilot takes these sticks for a ground station's heartbeat; set it to 0, or start mavrest with -gcs if there is no other ground station"
	case onlyTransmitter:
		return is + ": PX4 obeys only a transmitter's sticks; " + r.rcInAdvice()
	case transmitterWasOn:
		return is + ", and a transmitter was on in this flight: these sticks would take the drone and the kill switch from the pilot; to fly by these sticks, land, switch the transmitter off and disarm"
	case transmitterFirst:
		return is + ", and the transmitter has the sticks; to fly by these sticks, land, switch the transmitter off and restart PX4"
	case transmitterOn:
		return is + ", and the transmitter has the sticks; to fly by these sticks, land and switch the transmitter off"
	case nobodyBefore17:
		return is + fmt.Sprintf(" on PX4 %s: before PX4 1.17 nobody's sticks act then, nor a transmitter's kill switch; %s", cmp.Or(r.version.String(), "of unknown version"), r.rcInAdvice())
	case nobody:
		return is + ": nobody's sticks act, nor a transmitter's kill switch; " + r.rcInAdvice()
	case deafAlways:
		return is + deaf + "always; " + r.rcInAdvice()
	case deafWhileSent:
		return is + deaf + "while these sticks come; " + r.rcInAdvice()
	case deafUntilRestart:
		return is + deaf + "until PX4 restarts; " + r.rcInAdvice()
	case kindNotSaid:
		return "this PX4 does not say what kind of vehicle it is: mavrest takes it for a multicopter"
	case switchNotLive:
		return "this PX4 does not report its mode live: a pilot's switch that the client's moving sticks undo does not show; set COM_RC_OVERRIDE to 0"
	case switchUnseen:
		return fmt.Sprintf("at %.0f baud the client's moving sticks can undo a pilot's switch without mavrest noticing: set COM_RC_OVERRIDE to 0, or the line to 921600 baud", r.value)
	}
	return ""
}

// rcInAdvice says what to set COM_RC_IN_MODE to on this version of PX4.
func (r reason) rcInAdvice() string {
	if r.version >= px4SourceOrder {
		return "set it to 5 to let a transmitter come first and POST input act while it is off, or to 1 for a drone without a transmitter"
	}
	return "set it to 0 for a drone with a transmitter (POST input is refused then), or to 1 for one without"
}

// denied is why our sticks can't act; no reason if they can.
func (s *sources) denied(v view) reason {
	rcIn, noSticks := v.rcIn(), v.noSticks()
	switch {
	case s.foreign(v.now):
		return reason{kind: otherProgram}
	case v.gcsFailsafe > 0:
		return v.about(groundFailsafe, stickParams[v.firmware], v.gcsFailsafe)
	case v.firmware.ardupilot():
		return reason{}
	case noSticks.given():
		return noSticks
	case rcIn == 0:
		return v.aboutRcIn(onlyTransmitter)
	case rcIn == 2 && s.heardInFlight:
		return v.aboutRcIn(transmitterWasOn)
	case rcIn == 3 && !s.oursFirst && !s.transmitterAt.IsZero(): // until PX4 restarts
		return v.aboutRcIn(transmitterFirst)
	case (rcIn == 5 || rcIn == 7) && s.transmits(v.now):
		return v.aboutRcIn(transmitterOn)
	}
	return reason{}
}

// px4SourceOrder is the first PX4 in which sticks act with COM_RC_IN_MODE 5 to 8
// (docs/autopilots.md, "PX4: source of sticks"). An unknown version counts as an older one.
const px4SourceOrder = firmwareVersion(1<<24 | 17<<16)

// noSticks is why nobody's sticks act on this PX4, not even a transmitter's; no reason if somebody's do.
func (v view) noSticks() reason {
	switch {
	case v.rcIn() >= 5 && v.rcIn() <= 8 && v.version < px4SourceOrder:
		return v.aboutRcIn(nobodyBefore17)
	case v.rcIn() < 0 || v.rcIn() == 4 || v.rcIn() > 8:
		return v.aboutRcIn(nobody)
	}
	return reason{}
}

// foreign reports whether another program's sticks count on ArduPilot.
func (s *sources) foreign(now time.Time) bool { return now.Sub(s.foreignAt) < othersFor }

// transmits reports whether PX4 hears a transmitter.
func (s *sources) transmits(now time.Time) bool {
	return s.receiver != receiverNone || now.Sub(s.transmitterAt) < othersFor
}

// whyNobodyFlies is why a stick mode would have nobody's sticks: ours can't act, and there are
// no others. No reason if somebody's act.
func (s *sources) whyNobodyFlies(v view) reason {
	transmitter := !v.firmware.ardupilot() && s.transmits(v.now) && !v.noSticks().given()
	if transmitter || s.inUse(v.firmware) || s.foreign(v.now) {
		return reason{}
	}
	return s.denied(v)
}

// live reports whether a receiver takes over when our stream releases the sticks. PX4 has no such release.
func (s *sources) live(f firmware) bool { return f.ardupilot() && s.receiver != receiverNone }

// inUse reports whether a pilot flies by ArduPilot's receiver.
func (s *sources) inUse(f firmware) bool { return f.ardupilot() && s.receiver == receiverInUse }

// movementOverrides reports whether moving sticks make PX4 leave a mode that flies without them.
func (v view) movementOverrides() bool {
	return v.firmware == px4 && int(v.param("COM_RC_OVERRIDE", 1))&1 != 0
}

// hide records that our sticks or another program's may hide the receiver until a time.
func (s *sources) hide(until time.Time) { s.validFrom = later(s.validFrom, until) }

func (s *sources) hearTransmitter(now time.Time) { s.transmitterAt, s.heardInFlight = now, true }

// deafUntil says, by COM_RC_IN_MODE, how long PX4 ignores a transmitter once our sticks have come.
var deafUntil = map[float64]reasonKind{
	1: deafAlways, 2: deafWhileSent, 3: deafUntilRestart, 6: deafWhileSent, 8: deafWhileSent,
}

// deafens warns that PX4 ignores a transmitter once our sticks have come; no reason if a transmitter
// comes first, or if PX4 obeys nobody's sticks.
func (v view) deafens() reason {
	kind, deaf := deafUntil[v.rcIn()]
	if !deaf {
		return reason{}
	}
	return v.aboutRcIn(kind)
}

// switchMoves reports whether one of the channels 5 to 16 jumps. Our stream does not move them.
func (s *sources) switchMoves(c channels, now time.Time) (moves bool) {
	for i := 4; i < len(c); i++ {
		if !plausible(c[i]) {
			continue
		}
		if s.switchesSince.IsZero() {
			s.switchesSince = now
		}
		jump := max(c[i], s.last[i]) - min(c[i], s.last[i])
		moves = moves || plausible(s.last[i]) && jump > switchJump
	}
	s.last = c
	return moves && now.Sub(s.switchesSince) > switchesIn
}

// plausible reports whether a channel has a value: 0 and 65535 mean that it has none.
func plausible(us uint16) bool { return us != 0 && us != math.MaxUint16 }
