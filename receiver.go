package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// What tells of other sticks than ours (docs/design.md, "Who has the sticks").
const (
	overrideTimeout = 3500 * time.Millisecond // until ArduPilot has forgotten sticks that were not released
	othersFor       = 3 * time.Second         // somebody else's sticks are a source for so long
	switchesIn      = 3 * time.Second         // after the switches first had values they may still move by themselves
	idleBelow       = 1350                    // µs of RC_CHANNELS 3 (throttle); up to this the receiver counts as idle
	switchAway      = 100                     // µs between two successive RC_CHANNELS: a switch jumps, RSSI drifts
)

// receiverState is what is known of the vehicle's own RC receiver.
type receiverState uint8

const (
	receiverNone  receiverState = iota // never there, lost or unknown
	receiverIdle                       // live, its throttle low
	receiverInUse                      // live, and somebody flies by it
)

// firstSource is whose sticks came first since PX4 started.
type firstSource uint8

const (
	firstUnknown firstSource = iota
	firstOurs
	firstTransmitter
)

// sources is what is known of who else may move the sticks. PX4 and ArduPilot
// tell of the receiver only while no stream of ours runs.
type sources struct {
	validFrom time.Time // when the receiver's state counts: an earlier stream hides it until then
	receiver  receiverState
	known     bool // the receiver's state was heard
	heard     bool // a transmitter was
	first     firstSource

	transmitterAt time.Time // when RC_CHANNELS came last: on PX4 only a transmitter brings them
	foreignAt     time.Time // when another program's sticks came last
	last          channels  // the last RC_CHANNELS
	switches      time.Time // when channels 5 to 16 first had values

	rcIn, rcOverride float64         // PX4's COM_RC_IN_MODE and COM_RC_OVERRIDE
	version          firmwareVersion // 0 before the vehicle told it
	armedAt          time.Time       // when this flight's arming was reported; zero while disarmed
	gcsFailsafe      float64         // ArduPilot's FS_GCS_ENABLE; FS_GCS_ENABL on a plane
	alone            bool            // -gcs: there is no other ground station
}

// newSources is a vehicle that has told nothing: its parameters have their
// defaults.
func newSources(alone bool) sources { return sources{rcIn: 3, rcOverride: 1, alone: alone} }

// denied tells why our sticks can't act; "" where they can.
func (s *sources) denied(f firmware, now time.Time) string {
	switch {
	case f.ardupilot() && now.Sub(s.foreignAt) < othersFor:
		return "another program moves the sticks of this vehicle"
	case f.ardupilot() && s.gcsFailsafe > 0 && !s.alone:
		name := "FS_GCS_ENABL"
		if f == copter {
			name = "FS_GCS_ENABLE"
		}
		return fmt.Sprintf("%s is %g: to the autopilot these sticks are a ground station's heartbeat; set it to 0, or start mavrest with -gcs if there is no other ground station", name, s.gcsFailsafe)
	case f.ardupilot():
		return ""
	}
	switch why := s.noSticks(); {
	case why != "":
		return why
	case s.rcIn == 0:
		return "COM_RC_IN_MODE is 0: PX4 takes a transmitter's sticks only; " + s.rcInAdvice()
	case s.rcIn == 2 && s.transmitsInFlight(now):
		return "COM_RC_IN_MODE is 2, and a transmitter was on in this flight: these sticks would take it from the pilot, its kill switch too; to fly by them, land, switch it off and disarm"
	case s.rcIn == 3 && s.first == firstTransmitter: // until PX4 restarts
		return "COM_RC_IN_MODE is 3, and the transmitter has the sticks; to fly by these sticks, land, switch it off and restart PX4"
	case (s.rcIn == 5 || s.rcIn == 7) && s.transmits(now):
		return fmt.Sprintf("COM_RC_IN_MODE is %g, and the transmitter has the sticks; to fly by these sticks, land and switch it off", s.rcIn)
	}
	return ""
}

// px4SourceOrder is the first PX4 that knows COM_RC_IN_MODE 5 to 8 (docs/autopilots.md,
// "PX4: source of sticks"). In an older one they switch all sticks off. A version that
// is not known counts as an older one.
const px4SourceOrder = firmwareVersion(1<<24 | 17<<16)

// noSticks tells why nobody's sticks act on this PX4, a transmitter's neither; "" where
// somebody's do.
func (s *sources) noSticks() string {
	switch {
	case s.rcIn >= 5 && s.rcIn <= 8 && s.version < px4SourceOrder:
		return fmt.Sprintf("COM_RC_IN_MODE is %g on PX4 %s: before PX4 1.17 no sticks act then, a transmitter's and its kill switch included; %s", s.rcIn, cmp.Or(s.version.String(), "of unknown version"), s.rcInAdvice())
	case s.rcIn < 0 || s.rcIn == 4 || s.rcIn > 8:
		return fmt.Sprintf("COM_RC_IN_MODE is %g: no sticks act, a transmitter's and its kill switch included; %s", s.rcIn, s.rcInAdvice())
	}
	return ""
}

// rcInAdvice is what to set COM_RC_IN_MODE to, on this version of PX4.
func (s *sources) rcInAdvice() string {
	switch {
	case s.version >= px4SourceOrder:
		return "set it to 5 to let a transmitter come first and POST input act while it is off, or to 1 for a drone without a transmitter"
	case s.rcIn == 0:
		return "leave it for a drone with a transmitter, set it to 1 for one without"
	}
	return "set it to 0 for a drone with a transmitter (POST input is refused then), or to 1 for one without"
}

// transmitsInFlight reports whether PX4 hears a transmitter, or heard one since it was
// armed.
func (s *sources) transmitsInFlight(now time.Time) bool {
	return s.transmits(now) || !s.armedAt.IsZero() && s.transmitterAt.After(s.armedAt.Add(-othersFor))
}

// transmits reports whether PX4 hears a transmitter.
func (s *sources) transmits(now time.Time) bool {
	return s.receiver != receiverNone || now.Sub(s.transmitterAt) < othersFor
}

// whyNobodyFlies tells why a stick mode would have nobody's sticks: ours can't act, and
// there are no others. "" where somebody's do.
func (s *sources) whyNobodyFlies(f firmware, now time.Time) string {
	why := s.denied(f, now)
	switch {
	case f.ardupilot() && (s.receiver == receiverInUse || now.Sub(s.foreignAt) < othersFor):
		return ""
	case !f.ardupilot() && s.noSticks() == "" && s.transmits(now):
		return ""
	}
	return why
}

// live reports whether a receiver takes over when our stream releases the sticks; PX4
// has no such release.
func (s *sources) live(f firmware) bool { return f.ardupilot() && s.receiver != receiverNone }

// inUse reports whether a pilot has ArduPilot's receiver in hand.
func (s *sources) inUse(f firmware) bool { return f.ardupilot() && s.receiver == receiverInUse }

// movementOverrides reports whether moving sticks make PX4 leave a mode that flies without them.
func (s *sources) movementOverrides(f firmware) bool { return f == px4 && int(s.rcOverride)&1 != 0 }

// hiddenUntil says that the receiver's state does not count before a time.
func (s *sources) hiddenUntil(at time.Time) {
	if at.After(s.validFrom) {
		s.validFrom = at
	}
}

// open says that the link was opened: an earlier process may have sent sticks.
func (s *sources) open(now time.Time) { s.hiddenUntil(now.Add(overrideTimeout)) }

// hear takes the receiver's state, told while no stream of ours runs.
func (s *sources) hear(live bool, throttle uint16) {
	s.known, s.heard = true, s.heard || live
	switch {
	case !live:
		s.receiver = receiverNone
	case throttle > idleBelow:
		s.receiver = receiverInUse
	default:
		s.receiver = receiverIdle
	}
	if live {
		s.hearTransmitter()
	}
}

// hearTransmitter says that a transmitter is on.
func (s *sources) hearTransmitter() {
	if s.first == firstUnknown {
		s.first = firstTransmitter
	}
}

// hearArmed takes the armed bit of a report.
func (s *sources) hearArmed(armed bool, now time.Time) {
	switch {
	case !armed:
		s.armedAt = time.Time{}
	case s.armedAt.IsZero():
		s.armedAt = now
	}
}

// hearParam takes a parameter of the autopilot's.
func (s *sources) hearParam(name string, v float64) {
	switch name {
	case "COM_RC_IN_MODE":
		s.rcIn = v
	case "COM_RC_OVERRIDE":
		s.rcOverride = v
	case "FS_GCS_ENABLE", "FS_GCS_ENABL":
		s.gcsFailsafe = v
	}
}

// accepted says that the vehicle has accepted a stick mode that our stream flies. PX4
// takes our sticks then: they are its first source, if a transmitter was not.
func (s *sources) accepted() {
	if s.first == firstUnknown {
		s.first = firstOurs
	}
}

// deafens tells how long PX4 does not listen to a transmitter once our sticks have come;
// "" where a transmitter comes first, or none is listened to anyway.
func (s *sources) deafens() string {
	until := ""
	switch s.rcIn {
	case 1:
		until = "always"
	case 2, 6, 8:
		until = "while these sticks come"
	case 3:
		until = "until PX4 restarts"
	default:
		return ""
	}
	return fmt.Sprintf("COM_RC_IN_MODE is %g: PX4 ignores a transmitter's sticks, its mode switch and its kill switch %s; %s", s.rcIn, until, s.rcInAdvice())
}

// restarted forgets what the autopilot has forgotten.
func (s *sources) restarted(now time.Time) {
	*s = sources{rcIn: s.rcIn, rcOverride: s.rcOverride, gcsFailsafe: s.gcsFailsafe, alone: s.alone}
	s.open(now)
}

// switchMoves reports whether one of the channels 5 to 16 jumps, which our stream does
// not move.
func (s *sources) switchMoves(c channels, now time.Time) bool {
	if s.switches.IsZero() && slices.ContainsFunc(c[4:], plausible) {
		s.switches = now
	}
	moves := apart(c[4:], s.last[4:], switchAway) && now.Sub(s.switches) > switchesIn
	s.last = c
	return moves
}

// plausible reports whether a channel has a value: 0 and 65535 are none.
func plausible(us uint16) bool { return us != 0 && us != math.MaxUint16 }

// apart reports whether any channel differs between a and b by more than most µs.
func apart(a, b []uint16, most int) bool {
	for i := range a {
		if d := int(a[i]) - int(b[i]); plausible(a[i]) && plausible(b[i]) && (d > most || d < -most) {
			return true
		}
	}
	return false
}
