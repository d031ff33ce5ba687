package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Which of these a vehicle is: in the air, in a mode that a takeoff leaves before it arms, and about to go off by
// itself when it is armed.
func TestWhatAVehiclesModeAndItsLandedStateSayOfIt(t *testing.T) {
	for _, c := range []struct{ vehicle, want string }{
		{"px4 AUTO.LOITER landed", ""},
		{"px4 AUTO.LOITER armed", ""},
		{"px4 AUTO.LOITER armed undefined", "flies"},
		{"px4 AUTO.LOITER flying", "flies"},
		{"px4 AUTO.LOITER climbing", ""},
		{"px4 AUTO.TAKEOFF landed", ""},
		{"px4 POSCTL landed", "leaves"},
		{"px4 AUTO.MISSION landed", "leaves, sets off"},
		{"px4 AUTO.MISSION armed", "leaves"},
		{"px4 AUTO.RTL landed", "leaves"},
		{"px4 POSCTL.ORBIT landed", "leaves"},
		{"px4 9.0 landed", "leaves, sets off"},
		{"copter RTL landed", ""},
		{"copter LAND landed", ""},
		{"copter CIRCLE landed", ""},
		{"copter AUTO landed", "sets off"},
		{"plane RTL landed", "leaves"},
		{"plane AUTOLAND landed", "leaves"},
		{"quadplane QLAND landed", "leaves"},
		{"quadplane QHOVER landed", ""},
		{"plane AUTO landed", "sets off"},
	} {
		v := parseVehicle(t, c.vehicle)
		is := map[string]bool{"flies": v.flying(), "leaves": v.leavesCheckedMode(), "sets off": v.setsOff()}
		var words []string
		for _, word := range []string{"flies", "leaves", "sets off"} {
			if is[word] {
				words = append(words, word)
			}
		}
		lineEqual(t, c.vehicle+": it", strings.Join(words, ", "), c.want)
	}
}

func TestWhatWasKnownBeforeAMomentIsForgotten(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		name           string
		placed, landed time.Duration
		knows          bool
		want           landedState
	}{
		{"both later", 1, 1, true, inAir},
		{"both at that moment", 0, 0, false, 0},
		{"its landed state later", -1, 1, false, inAir},
		{"its place later", 1, -1, true, 0},
	} {
		v := parseVehicle(t, "px4 AUTO.LOITER flying moving")
		v.placeAt, v.landedAt = at.Add(c.placed), at.Add(c.landed)
		want := "{NaN NaN NaN NaN} NaN {NaN NaN NaN}"
		if c.knows {
			want = fmt.Sprint(v.place, v.heading, v.velocity)
		}
		v = v.since(at)
		lineEqual(t, c.name+": its place, heading and speed", fmt.Sprint(v.place, v.heading, v.velocity), want)
		lineEqual(t, c.name+": its landed state", v.landed, c.want)
	}
}

func TestAParameterThatWasNotReadHasItsDefault(t *testing.T) {
	unread := view{}
	read := view{params: map[string]float64{"COM_RC_IN_MODE": 1, "TKOFF_ALT": 30, "WPNAV_SPEED": 750}}
	lineEqual(t, "COM_RC_IN_MODE", fmt.Sprint(unread.rcIn(), read.rcIn()), "3 1")
	lineEqual(t, "TKOFF_ALT", fmt.Sprint(unread.takeoffAltitude(), read.takeoffAltitude()), "50 30")
	lineEqual(t, "a cruise of 750 cm/s", fmt.Sprint(unread.cruise(), read.cruise()), "NaN 7.5")
	read.params["WP_SPD"] = 6
	lineEqual(t, "a cruise of 6 m/s", read.cruise(), 6)
}

func TestTheGroundSpeedIsThatOfNorthAndEast(t *testing.T) {
	lineEqual(t, "3 m/s north, 4 east and 12 down", view{velocity: motion{3, 4, 12}}.groundSpeed(), 5)
}

// A rotor takes longer to come up to speed than propellers do.
func TestAHelicopterHasLongerToLeaveTheGround(t *testing.T) {
	helicopter, quad := view{typ: common.MAV_TYPE_HELICOPTER}, view{typ: common.MAV_TYPE_QUADROTOR}
	lineEqual(t, "a helicopter", helicopter.clearWithin(), 30*time.Second)
	lineEqual(t, "a quadrotor", quad.clearWithin(), 10*time.Second)
}
