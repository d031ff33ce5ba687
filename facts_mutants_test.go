package main

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

var factsMutants = flag.Bool("mutants", false, "TestEachProbeCanFail: each probe on simulators that are wrong, a minute or two")

// mutants are simulators that are wrong in one thing.
var mutants = []struct {
	name string
	make func(s *simulator)
}{
	{"any mode can be armed, and those that can can't", func(s *simulator) { s.eachMode(func(m *simMode) { m.noArm = !m.noArm }) }},
	{"modes that are accepted on the ground only are accepted in the air", func(s *simulator) { s.eachMode(func(m *simMode) { m.ground, m.refused = false, false }) }},
	{"a mode is refused", func(s *simulator) { s.eachMode(func(m *simMode) { m.refused = true }) }},
	{"it sees no live mode", func(s *simulator) { s.noLiveMode = true }},
	{"sticks from others count", func(s *simulator) {
		s.params["COM_RC_OVERRIDE"], s.params["COM_RC_IN_MODE"], s.params["SYSID_MYGCS"] = 0, 1, simSystem
	}},
	{"it lands four times as fast and stops late", func(s *simulator) {
		s.landSpeed, s.brake, s.early, s.soft = 4*s.landSpeed, s.brake/4, 3, 0
		s.params["WPNAV_SPEED"] = 300
	}},
	{"its sticks are slow and it falls slowly", func(s *simulator) { s.stickSpeed, s.stickUp, s.stickDown = s.stickSpeed/4, 0.2, 0.2 }},
	{"it streams what nobody asked for", func(s *simulator) {
		s.streams = map[uint32]time.Duration{0: time.Second / 3, 33: time.Second / 10, 1: time.Second}
	}},
	{"frames are 100 ms late", func(s *simulator) { s.delay = 100 * time.Millisecond }},
	{"acknowledged and not done", func(s *simulator) { s.idle = true }},
	{"it is ready too soon", func(s *simulator) { s.armableAfter = time.Second }},
	{"commands of a flight are refused", func(s *simulator) {
		for _, id := range []common.MAV_CMD{simGoto, simTakeoff, common.MAV_CMD_NAV_LAND, common.MAV_CMD_DO_CHANGE_SPEED, common.MAV_CMD_CONDITION_YAW} {
			s.refuses[id] = true
		}
	}},
	{"its receiver is lost", func(s *simulator) { s.receiver = simReceiverLost }},
	{"its system is another", func(s *simulator) { s.system = 2 }},
	{"refused and accepted are exchanged", func(s *simulator) {
		s.onAck = func(a *common.MessageCommandAck) []simAnswer {
			flipped := *a
			flipped.Result = simAccepted
			if a.Result == simAccepted {
				flipped.Result = simFailed
			}
			return []simAnswer{{ack: &flipped}}
		}
	}},
}

func (s *simulator) eachMode(do func(*simMode)) {
	s.modes = append([]simMode(nil), s.modes...)
	for i := range s.modes {
		do(&s.modes[i])
	}
}

// These need a change of the simulator's source: the echo and the component in
// take, the case of no sticks in stepSticks, moving, and going in positionTarget.
var failedByHand = []string{
	"a sender with its own ids is ignored", "another component is silent",
	"without sticks in this flight nothing happens", "a constant stick never takes over",
	"none comes in BRAKE, and none in a GUIDED that has no goto",
}

// A probe that no mutant fails is blind.
func TestEachProbeCanFail(t *testing.T) {
	if !*factsMutants {
		t.Skip("-mutants")
	}
	killed, blind := map[string]int{}, []string{}
probes:
	for _, p := range allProbes() {
		for _, m := range mutants {
			failed := false
			synctest.Test(t, func(t *testing.T) { failed = len(p.simulate(t, m.make).faults) > 0 })
			if failed {
				killed[m.name]++
				continue probes
			}
		}
		if slices.Contains(failedByHand, p.fact) {
			continue
		}
		blind = append(blind, string(p.on)+"/"+p.heading+"/"+p.fact)
	}
	t.Log(killed)
	if len(blind) > 0 {
		t.Errorf("%d probes never fail:\n%s", len(blind), strings.Join(blind, "\n"))
	}
}
