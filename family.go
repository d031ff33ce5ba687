package main

import (
	"slices"
	"strings"
	"time"
)

// What a vehicle has shown of its autopilot's family (docs/design.md, "Who it is"). Its heartbeat says only what it
// calls itself: INAV calls itself ArduPilot where its owner has set that, and obeys a goto with another height.

// family is what a vehicle has shown of its family.
type family struct {
	// shown: the families that alone have a parameter which it has answered
	shown firmware

	// shownAt is when it did last; zero if it did not.
	shownAt time.Time

	// answers: it has answered a parameter, of whichever family
	answers bool

	// rounds is how often it has answered other questions while it had shown no family.
	rounds int

	// doubtedAt is when it was heard again after a silence in which another one may have taken its place; zero if it
	// never was.
	doubtedAt time.Time

	uid autopilotUID
}

// Times and limits of the proof of a family.
const (
	// familyWait is how long a command waits for the proof.
	familyWait = time.Second

	// othersAfter is after how many rounds the other families' parameters are asked for too.
	othersAfter = 2

	// strangeAfter is after how many rounds a vehicle that has answered no parameter counts as one that has none. Of
	// one that has answered some other ones it takes lacksAfter.
	strangeAfter = 20
)

// familyNames are what a vehicle calls itself, of the families that are commanded.
var familyNames = map[firmware]string{
	px4: "PX4", copter: "ArduPilot's Copter", plane: "ArduPilot's Plane", quadPlane: "ArduPilot's QuadPlane",
}

// ardupilotsOwn are the parameters of ArduPilot's that only one of its families has (read in the sources of 4.6.3).
// Rovers and submarines share FS_GCS_ENABLE and WPNAV_SPEED with Copter, and SYSID_MYGCS is in all of them.
var ardupilotsOwn = map[string]firmware{
	"RTL_ALT": copter, "RTL_ALT_M": copter,
	"FS_GCS_ENABL": planes, "WP_LOITER_RAD": planes, "TKOFF_ALT": planes,
	"ALT_HOLD_RTL": planes, "RTL_ALTITUDE": planes,
	"ARSPD_FBW_MIN": planes, "ARSPD_FBW_MAX": planes, "Q_GUIDED_MODE": planes, "Q_RTL_ALT": planes,
}

// ownParameters are parameters of each family that tell it from the others.
var ownParameters = map[firmware][]string{
	px4: {"RTL_RETURN_ALT", "NAV_DLL_ACT"}, copter: {"RTL_ALT", "RTL_ALT_M"}, planes: {"FS_GCS_ENABL", "WP_LOITER_RAD"},
}

// hear takes the name of a parameter that the vehicle has sent.
func (f *family) hear(parameter string, now time.Time) {
	f.answers = true
	if own := whose(parameter); own != 0 {
		f.shown |= own
		f.shownAt = now
	}
}

// whose are the families that alone have a parameter; firmwareUnknown: none has it alone.
func whose(parameter string) firmware {
	ofPX4 := func(names []string) bool { return slices.Contains(names, parameter) }
	if slices.ContainsFunc(slices.Concat(familyParameters[px4], wingParameters), ofPX4) {
		return px4
	}
	return ardupilotsOwn[parameter]
}

// heardAgain takes that the vehicle has come online. One that flies is the same one.
func (f *family) heardAgain(armed bool, now time.Time) {
	if !armed {
		f.doubtedAt = now
	}
}

// hearUID takes an autopilot's uid: with another one it is another vehicle.
func (f *family) hearUID(uid autopilotUID) {
	if equal, known := f.uid.equals(uid); known && !equal {
		*f = family{}
	}
	f.uid = uid
}

// hearRound takes that the vehicle has answered since the last round of questions.
func (f *family) hearRound() {
	if f.shown == 0 {
		f.rounds++
	}
}

// others are parameters of the families that a vehicle does not call itself, once it has been slow to show its own.
func (f *family) others(claimed firmware) (names [][]string) {
	if f.shown != 0 || f.rounds < othersAfter {
		return nil
	}
	for _, other := range []firmware{px4, copter, planes} {
		if other != claimed.mates() {
			names = append(names, ownParameters[other])
		}
	}
	return names
}

// doubt is why a vehicle that calls itself one of a family is not commanded as one: 503 while the proof is awaited,
// 501 once it has shown that it is something else; nil: it is what it calls itself, or is never commanded. clockAt is
// when its boot clock was heard last, which has gone on: else all is forgotten. silent: it answers nothing.
func (f *family) doubt(claimed firmware, clockAt time.Time, silent bool) error {
	because, commanded := familyDoubts[claimed]
	other := f.shown &^ claimed.mates()
	limit := strangeAfter
	if f.answers {
		limit = lacksAfter
	}
	switch {
	case !commanded:
		return nil
	case other != 0:
		return refuse(codeUnsupported, "it calls itself %s, and has parameters of %s"+onlyReadNow,
			familyNames[claimed], other.names())
	case f.shown != 0 && later(f.shownAt, clockAt).Before(f.doubtedAt):
		return errNotTheSame
	case f.shown != 0:
		return nil
	case silent:
		return because.silent
	case f.rounds >= limit && f.answers:
		return because.lacksOwn
	case f.rounds >= limit:
		return because.lacksAll
	}
	return because.awaited
}

// familyDoubts are why a vehicle that calls itself one of a family is not commanded. Each view has such an error, so
// they are made once.
var familyDoubts = func() map[firmware]familyDoubt {
	doubts := make(map[firmware]familyDoubt)
	for claimed, is := range familyNames {
		doubts[claimed] = familyDoubt{
			awaited: refuse(codeOffline, "it calls itself %s, and has not shown it yet: its answer to the parameter "+
				"%s is awaited; try again", is, ownParameters[claimed.mates()][0]),
			silent: refuse(codeUnsupported, "it calls itself %s, and answers nothing that mavrest sends, as INAV "+
				"does, and as where only one wire is connected"+onlyReadNow, is),
			lacksOwn: refuse(codeUnsupported, "it calls itself %s, and has no parameter that only %s has"+onlyReadNow,
				is, is),
			lacksAll: refuse(codeUnsupported, "it calls itself %s, and answers other questions but no parameter, as "+
				"INAV and Betaflight do"+onlyReadNow, is),
		}
	}
	return doubts
}()

type familyDoubt struct{ awaited, silent, lacksOwn, lacksAll error }

const onlyReadNow = ": its state can be read, not commanded"

var errNotTheSame = refuse(codeOffline, "the vehicle was silent, and has not shown yet that it is the same one: its "+
	"clock is awaited; try again")

// names are the families of a set, in a sentence.
func (f firmware) names() string {
	var list []string
	for _, one := range []firmware{px4, copter, plane} {
		if f&one != 0 {
			list = append(list, familyNames[one])
		}
	}
	return strings.Join(list, " and ")
}

// mates are the families that have the same parameters.
func (f firmware) mates() firmware {
	if f&planes != 0 {
		return planes
	}
	return f
}
