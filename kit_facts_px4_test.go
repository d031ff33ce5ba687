package main

// The probes of PX4, and the list of all.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func allProbes() []probe {
	ofPX4 := slices.Concat(px4LinkProbes, px4LiveProbes, px4ModeProbes(), px4ArmingProbes, px4FlightProbes,
		px4StickProbes, px4UndoProbes())
	for i := range ofPX4 {
		ofPX4[i].on = onPX4
	}
	ofCopter := slices.Concat(copterLinkProbes, copterModeProbes(), copterArmingProbes, copterGotoProbes(),
		copterParamProbes(), copterHoldProbes, copterStickProbes)
	for i := range ofCopter {
		ofCopter[i].on = onCopter
	}
	return slices.Concat(ofPX4, ofCopter, planeProbes, px4KindProbes, timeProbes)
}

// timeProbes are what the proof of when a report left rests on.
var timeProbes = []probe{
	{heading: "Both", on: onPX4, from: ground, fact: answersTime, run: (*probed).tellsTime},
	{heading: "Both", on: onCopter, from: ground, fact: answersTime, run: (*probed).tellsTime},
}

const answersTime = "TIMESYNC with tc1 0 is answered with our number and the vehicle's time"

func (v *probed) tellsTime() {
	last := int64(0)
	for i := range int64(20) {
		number, asked := 7_000_000_000_000+i, time.Now()
		v.ours.send(&common.MessageTimesync{Ts1: number})
		var answer *common.MessageTimesync
		came := v.first("answer", asked, time.Second, func(m message.Message) bool {
			t, ok := m.(*common.MessageTimesync)
			ok = ok && t.Ts1 == number && t.Tc1 != 0
			if ok {
				answer = t
			}
			return ok
		})
		v.ms("answer after", came.Sub(asked), 0, 66, 20)
		v.must(answer.Tc1 > last, "the vehicle's time went from %d to %d", last, answer.Tc1)
		last = answer.Tc1
		time.Sleep(110 * time.Millisecond)
	}
}

const runPrearm = common.MAV_CMD_RUN_PREARM_CHECKS

var px4LinkProbes = []probe{
	{heading: "PX4: link", from: ground, fact: "a sender with its own ids is ignored", run: func(v *probed) {
		began := time.Now()
		v.ours.sendAs(v.system, 1, factLong(v.system, runPrearm, 0))
		_, ok := v.await(v.ours, began, time.Second, factAck(runPrearm))
		v.equal("acknowledged", ok, false)
	}},
	{heading: "PX4: link", from: ground, fact: "component 0 is answered as component 1", run: func(v *probed) {
		m := factLong(v.system, runPrearm, 0)
		m.TargetComponent = 0
		v.equal("answer", v.exchange(v.ours, runPrearm, m).last(), simAccepted)
	}},
	{heading: "PX4: link", since: release{1, 16}, from: ground,
		fact: "a command for another component is not answered", run: func(v *probed) {
			v.equal("answers", v.misdirected(0, 100).results, "[]")
		}},
	{heading: "PX4: link", since: release{1, 16}, from: ground, fact: "a command for another system is not answered",
		run: func(v *probed) {
			v.equal("answers", v.misdirected(1, 1).results, "[]")
		}},
	{heading: "PX4: link", until: release{1, 15}, from: ground,
		fact: "a command for another component or system is FAILED", run: func(v *probed) {
			v.equal("component", v.misdirected(0, 100).results, []common.MAV_RESULT{simFailed})
			v.equal("system", v.misdirected(1, 1).results, []common.MAV_RESULT{simFailed})
		}},
	{heading: "PX4: link", from: ground, fact: "an ack's target is the command's sender", run: func(v *probed) {
		a := v.command(runPrearm, 0)
		acks := factSince[*common.MessageCommandAck](v.ours, a.sent)
		v.must(len(acks) > 0, "no ack")
		v.equal("target", [2]uint8{acks[0].TargetSystem, acks[0].TargetComponent}, [2]uint8{v.system, componentID})
	}},
	{heading: "PX4: link", from: ground, fact: "HEARTBEAT comes once a second", run: func(v *probed) {
		v.within("Hz", v.rate(v.ours, 0, 10), 1, 1, 0.25)
	}},
	{heading: "PX4: link", from: ground, fact: "HEARTBEAT has no other interval", run: func(v *probed) {
		v.equal("answer", v.command(simInterval, 0, 50000).last(), simFailed)
	}},
	{heading: "PX4: link", from: ground,
		fact: "a requested HEARTBEAT comes in about 1 ms, and so does the ack of its request", run: func(v *probed) {
			for range 6 {
				sent := time.Now()
				v.ours.send(factLong(v.system, common.MAV_CMD_REQUEST_MESSAGE, 0))
				beat := v.first("beat", sent, time.Second, func(m message.Message) bool { return m.GetID() == 0 })
				ack := v.first("ack", sent, time.Second, factAck(common.MAV_CMD_REQUEST_MESSAGE))
				v.ms("beat after", beat.Sub(sent), 0.5, 4, 10)
				v.ms("ack after the beat", ack.Sub(beat), 0, 3.5, 10)
				time.Sleep(130 * time.Millisecond)
			}
		}},
	{heading: "PX4: texts", from: ground, fact: "a companion computer hears no text", run: func(v *probed) {
		time.Sleep(3 * time.Second)
		v.setMode(simPX4RTL)
		a := v.command(simArm, 1)
		time.Sleep(2 * time.Second)
		v.equal("answer", a.last(), simRejected)
		v.equal("texts", v.texts(a.sent), "")
		v.setMode(simPX4Loiter)
	}},
	{heading: "PX4: texts", until: release{1, 14}, from: ground, fact: "a refused arming has no text of its own",
		run: func(v *probed) {
			v.setMode(simPX4RTL)
			began := time.Now()
			for range 3 {
				v.ours.sendAs(v.system, stationID, &common.MessageHeartbeat{Type: common.MAV_TYPE_GCS,
					Autopilot: common.MAV_AUTOPILOT_INVALID})
				time.Sleep(time.Second)
			}
			v.equal("answer", v.command(simArm, 1).last(), simRejected)
			v.setMode(simPX4RTGS)
			time.Sleep(time.Second)
			v.setMode(simPX4Loiter)
			v.equal("text of the refused arming", strings.Contains(v.texts(began), "Arming denied"), false)
			v.equal("text of the refused mode", strings.Contains(v.texts(began), "Unsupported auto mode"), true)
		}},
	{heading: "PX4: texts", since: release{1, 15}, from: ground,
		fact: "one heartbeat of a ground station brings a refusal's text at most 110 ms after its ack",
		run: func(v *probed) {
			v.setMode(simPX4RTL)
			time.Sleep(6 * time.Second)
			v.ours.sendAs(v.system, stationID, &common.MessageHeartbeat{Type: common.MAV_TYPE_GCS,
				Autopilot: common.MAV_AUTOPILOT_INVALID})
			time.Sleep(5 * time.Millisecond)
			a := v.command(simArm, 1)
			at, ok := v.await(v.ours, a.sent, time.Second, func(m message.Message) bool {
				s, ok := m.(*common.MessageStatustext)
				return ok && strings.HasPrefix(s.Text, "Arming denied")
			})
			v.setMode(simPX4Loiter)
			v.must(ok && len(a.after) > 0, "no text in %q", v.texts(a.sent))
			v.ms("after the ack", at.Sub(a.sent)-a.after[0], -5, 110, 10)
		}},
	{heading: "PX4: why it can't be armed", from: ground, fact: "RUN_PREARM_CHECKS is accepted in 4 to 17 ms",
		run: func(v *probed) {
			for range 5 {
				a := v.command(runPrearm, 0)
				v.must(a.last() == simAccepted, "answer %v", a.results)
				v.ms("ack", a.after[0], 4, 17, 15)
				time.Sleep(time.Second)
			}
		}},
	{heading: "PX4: why it can't be armed", from: ground, fact: "SYS_STATUS has PREARM_CHECK in health only",
		run: func(v *probed) {
			m := mustAsk[*common.MessageSysStatus](v)
			bit := common.MAV_SYS_STATUS_PREARM_CHECK
			v.equal("present, enabled, healthy", [3]bool{
				m.OnboardControlSensorsPresent&bit != 0, m.OnboardControlSensorsEnabled&bit != 0,
				m.OnboardControlSensorsHealth&bit != 0,
			}, [3]bool{false, false, true})
		}},
	{heading: "PX4: why it can't be armed", from: ground,
		fact: "without a receiver RC_RECEIVER is enabled and unhealthy, and PX4 arms", run: func(v *probed) {
			m := mustAsk[*common.MessageSysStatus](v)
			bit := common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
			v.equal("enabled, healthy", [2]bool{m.OnboardControlSensorsEnabled&bit != 0,
				m.OnboardControlSensorsHealth&bit != 0}, [2]bool{true, false})
			v.equal("arming", v.command(simArm, 1).last(), simAccepted)
			v.command(simArm, 0)
		}},
	{heading: "PX4: parameters", from: ground, fact: "an integer parameter is int32 in the float's bits",
		run: func(v *probed) {
			for name, most := range map[string]int32{"NAV_DLL_ACT": 6, "COM_RC_IN_MODE": 8} {
				value, ok := v.readParam(name)
				v.must(ok, "%s is not answered", name)
				v.within(name, float64(int32(math.Float32bits(float32(value)))), 0, float64(most), 0)
			}
		}},
	{heading: "PX4: parameters", until: release{1, 17}, from: ground, fact: "COM_RC_OVERRIDE is an int32",
		run: func(v *probed) {
			value, ok := v.readParam(simStickOverride)
			v.must(ok, "not answered")
			v.within(simStickOverride, float64(int32(math.Float32bits(float32(value)))), 0, 7, 0)
		}},
	{heading: "PX4: parameters", since: release{1, 18}, from: ground,
		fact: "COM_RC_OVERRIDE is not answered, MAN_OVERRIDE_SPD is 1, a REAL32", run: func(v *probed) {
			value, ok := v.readParam(simStickSpeed)
			v.must(ok, "not answered")
			v.within(simStickSpeed, value, 1, 1, 0)
			_, ok = v.readParam(simStickOverride)
			v.equal("COM_RC_OVERRIDE answered", ok, false)
		}},
}

// misdirected sends a command to another target: the vehicle's system id plus an offset, and a
// component.
func (v *probed) misdirected(offset, component uint8) factAnswer {
	m := factLong(v.system+offset, runPrearm, 0)
	m.TargetComponent = component
	return v.exchange(v.ours, runPrearm, m)
}

var px4LiveProbes = []probe{
	{heading: "PX4: live mode", since: release{1, 15}, from: ground,
		fact: "CURRENT_MODE's interval is accepted, and CURRENT_MODE comes 2 to 3 times a second",
		run: func(v *probed) {
			v.live()
			v.within("Hz", v.rate(v.ours, 436, 10), 2, 3, 0.3)
		}},
	{heading: "PX4: live mode", since: release{1, 15}, from: ground,
		fact: "CURRENT_MODE shows a commanded mode after 9 to 20 ms", run: func(v *probed) {
			v.showsSwitches(v.ours, simPX4Takeoff, 20)
		}},
	{heading: "PX4: live mode", since: release{1, 15}, from: ground,
		fact: "CURRENT_MODE shows a switch from another link after 9 to 31 ms", run: func(v *probed) {
			v.showsSwitches(v.pilot, simPX4RTL, 31)
		}},
	{heading: "PX4: live mode", since: release{1, 15}, from: ground,
		fact: "intended_custom_mode is the commanded mode", run: func(v *probed) {
			v.live()
			sent := time.Now()
			v.setMode(simPX4RTL)
			all := factSince[*common.MessageCurrentMode](v.ours, sent)
			v.setMode(simPX4Loiter)
			v.must(len(all) > 0, "none came")
			v.equal("intended", all[len(all)-1].IntendedCustomMode, uint32(simPX4RTL))
		}},
	{heading: "PX4: live mode", since: release{1, 15}, from: handed,
		fact: "a failsafe does not change intended_custom_mode", run: func(v *probed) {
			v.live()
			v.position()
			v.silence()
			began := time.Now()
			v.shown(simPX4Loiter, began, 3*time.Second)
			all := factSince[*common.MessageCurrentMode](v.ours, began)
			v.equal("intended", all[len(all)-1].IntendedCustomMode, uint32(simPX4Posctl))
		}},
	{heading: "PX4: live mode", since: release{1, 15}, from: air,
		fact: "at a landing's end CURRENT_MODE comes before the HEARTBEAT that says disarmed", run: func(v *probed) {
			v.live()
			v.command(common.MAV_CMD_NAV_LAND)
			time.Sleep(2 * time.Second)
			began := time.Now()
			beat := v.first("disarmed", began, 2*time.Minute, beatIsArmed(false))
			mode := v.shown(simPX4Loiter, began, 2*time.Second)
			v.ms("HEARTBEAT after CURRENT_MODE", beat.Sub(mode), 0, 1000, 50)
		}},
	{heading: "PX4: live mode", until: release{1, 14}, from: ground,
		fact: "CURRENT_MODE's interval is FAILED, and none comes", run: func(v *probed) {
			v.equal("answer", v.command(simInterval, 436, 10000).last(), simFailed)
			v.equal("Hz", v.rate(v.ours, 436, 3), 0)
		}},
}

// showsSwitches measures how late live reports show the modes that are set over a link.
func (v *probed) showsSwitches(l *factLink, mode uint32, most float64) {
	v.live()
	for i := range 10 {
		to := []uint32{mode, simPX4Loiter}[i%2]
		sent := time.Now()
		l.send(v.modeMessage(to))
		v.ms("shown", v.shown(to, sent, time.Second).Sub(sent), 9, most, 10)
		time.Sleep(700 * time.Millisecond)
	}
}

// px4ModeProbes probe what the table of modes says without sticks; in the air only the refusals.
func px4ModeProbes() (probes []probe) {
	type row struct {
		mode   uint32
		name   string
		ground common.MAV_RESULT
		arms   bool
		air    common.MAV_RESULT
	}
	rows := []row{
		{simPX4Manual, "MANUAL", simAccepted, false, simRejected},
		{simPX4Altctl, "ALTCTL", simAccepted, false, simRejected},
		{simPX4Posctl, "POSCTL", simAccepted, false, simRejected},
		{simPX4Stabilized, "STABILIZED", simAccepted, false, simRejected},
		{simPX4Takeoff, "AUTO.TAKEOFF", simAccepted, true, simAccepted},
		{simPX4Loiter, "AUTO.LOITER", simAccepted, true, simAccepted},
		{simPX4RTL, "AUTO.RTL", simAccepted, false, simAccepted},
		{simPX4Land, "AUTO.LAND", simAccepted, false, simAccepted},
		{simPX4RTGS, "AUTO.RTGS", simRejected, false, simRejected},
		{simPX4Ready, "AUTO.READY", simRejected, false, simRejected},
		{simPX4VTOLUp, "AUTO.VTOL_TAKEOFF", simRejected, false, simRejected},
		{simPX4Mission, "AUTO.MISSION", simAccepted, false, simRejected},
		{simPX4Offboard, "OFFBOARD", simAccepted, false, simRejected},
	}
	const heading = "PX4: mode changes"
	add := func(from startState, fact string, run func(v *probed)) {
		probes = append(probes, probe{heading: heading, from: from, fact: fact, run: run})
	}
	for _, r := range rows {
		add(ground, r.name+" disarmed on the ground is "+
			map[bool]string{true: "accepted", false: "refused"}[r.ground == simAccepted], func(v *probed) {
			v.equal("answer", v.setMode(r.mode).last(), r.ground)
			v.setMode(simPX4Loiter)
		})
		if r.ground == simAccepted {
			add(ground, r.name+" can be armed: "+fmt.Sprint(r.arms), func(v *probed) {
				v.setMode(r.mode)
				a := v.command(simArm, 1)
				v.command(simArm, 0)
				v.setMode(simPX4Loiter)
				v.equal("armed", a.last() == simAccepted, r.arms)
			})
		}
		if r.air == simRejected {
			add(air, r.name+" in the air without sticks is refused and changes nothing", func(v *probed) {
				v.equal("answer", v.setMode(r.mode).last(), r.air)
				v.equal("mode", v.mode(), uint32(simPX4Loiter))
			})
		}
	}
	modeAnswers := []struct {
		mode uint32
		want common.MAV_RESULT
	}{{simPX4RTL, simAccepted}, {simPX4RTGS, simRejected}, {simPX4Loiter, simAccepted}}
	oneAck := func(v *probed) {
		for _, m := range modeAnswers {
			v.equal("answers", v.setMode(m.mode).results, []common.MAV_RESULT{m.want})
		}
	}
	probes = append(probes, probe{heading: heading, since: release{1, 16}, until: release{1, 17}, from: ground,
		fact: "a mode has two acks, the first always ACCEPTED, the second at most 10 ms later", run: func(v *probed) {
			for _, m := range modeAnswers {
				a := v.setMode(m.mode)
				v.must(len(a.results) == 2, "acks %v", a.results)
				v.equal("answers", a.results, []common.MAV_RESULT{simAccepted, m.want})
				v.ms("second ack after", a.after[1]-a.after[0], 0, 10, 15)
			}
		}}, probe{heading: heading, until: release{1, 15}, from: ground, fact: "a mode has one ack, with its result",
		run: oneAck}, probe{heading: heading, since: release{1, 18}, from: ground,
		fact: "a mode has one ack again, with its result", run: oneAck})
	add(ground, "a requested heartbeat shows the mode 20 to 28 ms after the command", func(v *probed) {
		for i := range 6 {
			mode := []uint32{simPX4RTL, simPX4Loiter}[i%2]
			sent := time.Now()
			v.ours.send(v.modeMessage(mode))
			for time.Since(sent) < 200*time.Millisecond {
				v.ours.send(factLong(v.system, common.MAV_CMD_REQUEST_MESSAGE, 0))
				time.Sleep(2 * time.Millisecond)
			}
			at := v.first("the heartbeat", sent, time.Second, func(m message.Message) bool {
				h, ok := m.(*common.MessageHeartbeat)
				return ok && h.CustomMode == mode
			})
			v.ms("shown", at.Sub(sent), 20, 28, 15)
			time.Sleep(500 * time.Millisecond)
		}
	})
	// The answer is ACCEPTED up to 1.17.0, TEMPORARILY_REJECTED later.
	either := []common.MAV_RESULT{simAccepted, simRejected}
	add(ground, "an unknown main mode is ignored", func(v *probed) {
		v.equal("ACCEPTED or TEMPORARILY_REJECTED", slices.Contains(either, v.command(simSetMode, 1, 99, 0).last()),
			true)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
	})
	add(ground, "a mode with base_mode 0 is ignored", func(v *probed) {
		v.equal("ACCEPTED or TEMPORARILY_REJECTED", slices.Contains(either, v.command(simSetMode, 0, 4, 5).last()),
			true)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
	})
	return probes
}

var px4ArmingProbes = []probe{
	{heading: "PX4: arming", from: ground, fact: "an armed vehicle that does not take off disarms after 10 s",
		run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "refused")
			began := time.Now()
			v.disarms(15 * time.Second)
			v.within("s", time.Since(began).Seconds(), 9.7, 10.3, 0.7)
		}},
	{heading: "PX4: arming", from: air, fact: "disarming in the air is TEMPORARILY_REJECTED", run: func(v *probed) {
		v.equal("answer", v.command(simArm, 0).last(), simRejected)
		v.equal("armed", v.armed(), true)
	}},
	{heading: "PX4: arming", from: ground, fact: "POSCTL arms with the throttle in the centre, but not above it",
		run: func(v *probed) {
			v.centre(time.Second)
			v.setMode(simPX4Posctl)
			time.Sleep(2 * time.Second)
			v.equal("centred", v.command(simArm, 1).last(), simAccepted)
			v.command(simArm, 0)
			v.keepSticks(time.Second, 0, 0, 800, 0)
			v.equal("above", v.command(simArm, 1).last(), simRejected)
			v.centre(200 * time.Millisecond)
			v.setMode(simPX4Loiter)
		}},
	{heading: "PX4: arming", from: ground, fact: "MANUAL arms only with the throttle at 0", run: func(v *probed) {
		v.centre(time.Second)
		v.setMode(simPX4Manual)
		time.Sleep(2 * time.Second)
		v.equal("centred", v.command(simArm, 1).last(), simRejected)
		v.keepSticks(time.Second, 0, 0, 0, 0)
		v.equal("at 0", v.command(simArm, 1).last(), simAccepted)
		v.command(simArm, 0)
		v.setMode(simPX4Loiter)
	}},
	{heading: "PX4: arming", from: ground, fact: "sticks make a stick mode armable", run: func(v *probed) {
		v.setMode(simPX4Altctl)
		v.equal("without", v.command(simArm, 1).last(), simRejected)
		v.centre(3 * time.Second)
		v.equal("with", v.command(simArm, 1).last(), simAccepted)
		v.command(simArm, 0)
		v.setMode(simPX4Loiter)
	}},
	{heading: "PX4: arming", from: boot, fact: "PX4 can't be armed before the estimator is ready",
		run: func(v *probed) {
			time.Sleep(1500 * time.Millisecond)
			v.equal("at 1.5 s", v.command(simArm, 1).last(), simRejected)
			_, ok := v.until(20*time.Second, func() bool { return v.command(simArm, 1).last() == simAccepted })
			v.must(ok, "never armed")
		}},
	{heading: "PX4: takeoff and land", from: ground,
		fact: "AUTO.LOITER, ARM, 22 climbs, and ends in AUTO.LOITER 11 to 13 s later at 10 m", run: func(v *probed) {
			v.live()
			v.must(v.command(simArm, 1).last() == simAccepted, "refused")
			sent := time.Now()
			a := v.takeOffHere(v.homeAlt() + 10)
			v.must(a.last() == simAccepted, "answers %v", a.results)
			at := v.shown(simPX4Takeoff, sent, time.Second)
			v.ms("acknowledged", a.after[0], 4, 7, 10)
			v.ms("AUTO.TAKEOFF after the ack", at.Sub(a.sent)-a.after[0], 12, 16, 15)
			at = v.shown(simPX4Loiter, at, 30*time.Second)
			v.within("s", at.Sub(a.sent).Seconds(), 11, 13, 2)
			time.Sleep(4 * time.Second)
			v.within("height", v.place().up, 9.5, 10.5, 0.7)
		}},
	{heading: "PX4: takeoff and land", until: release{1, 17}, from: ground,
		fact: "landed_state is takeoff 1.8 to 2.1 s after the arming, and the vehicle 0.3 m high after 4.5 to 5.5 s",
		run:  func(v *probed) { v.liftsOff(1.8, 2.1, 4.5, 5.5) }},
	{heading: "PX4: takeoff and land", since: release{1, 18}, from: ground,
		fact: "landed_state is takeoff 1.5 to 1.7 s after the arming, and the vehicle 0.3 m high after 2.8 to 3.8 s",
		run:  func(v *probed) { v.liftsOff(1.5, 1.7, 2.8, 3.8) }},
	{heading: "PX4: takeoff and land", from: ground,
		fact: "a goto before the lift-off ends the takeoff: the vehicle lifts off and flies sideways, 1 to 7 m at 1 m",
		run: func(v *probed) {
			_, stood := v.spinsUp()
			v.equal("goto", v.flyTo(stood.north+30, stood.east, stood.up+10).last(), simAccepted)
			_, ok := v.until(10*time.Second, func() bool { return v.place().up-stood.up >= 1 })
			v.must(ok, "it does not lift off")
			v.within("sideways, m", v.place().off(stood), 1, 7, 1)
		}},
	{heading: "PX4: takeoff and land", from: ground,
		fact: "22 while disarmed is accepted, sets AUTO.TAKEOFF and does not arm", run: func(v *probed) {
			a := v.takeOffHere(v.homeAlt() + 10)
			v.equal("answer", a.last(), simAccepted)
			v.equal("mode", v.mode(), uint32(simPX4Takeoff))
			v.equal("armed", v.armed(), false)
			v.setMode(simPX4Loiter)
		}},
	{heading: "PX4: takeoff and land", since: release{1, 17}, from: ground,
		fact: "disarmed in AUTO.TAKEOFF on the ground PX4 goes to AUTO.LOITER", run: func(v *probed) {
			v.endTakeoff()
			v.equal("mode", v.mode(), uint32(simPX4Loiter))
			v.equal("armed", v.armed(), false)
		}},
	{heading: "PX4: takeoff and land", until: release{1, 16}, from: ground,
		fact: "disarmed in AUTO.TAKEOFF on the ground PX4 stays there, and climbs 2 to 3 m when it is armed",
		run: func(v *probed) {
			v.endTakeoff()
			v.equal("mode", v.mode(), uint32(simPX4Takeoff))
			v.equal("armed", v.armed(), false)
			time.Sleep(3 * time.Second)
			before := v.place().up
			v.equal("arming", v.command(simArm, 1).last(), simAccepted)
			time.Sleep(12 * time.Second)
			v.within("climbed, m", v.place().up-before, 2, 3, 1)
		}},
	{heading: "PX4: takeoff and land", since: release{1, 18}, from: ground,
		fact: "with latitude and longitude 0 a takeoff climbs", run: func(v *probed) {
			v.command(simArm, 1)
			before := v.place().up
			v.equal("answer", v.command(simTakeoff, 0, 0, 0, math.NaN(), 0, 0, v.homeAlt()+10).last(), simAccepted)
			_, ok := v.until(20*time.Second, func() bool { return v.place().up-before >= 5 })
			v.equal("climbs", ok, true)
		}},
	{heading: "PX4: takeoff and land", until: release{1, 17}, from: ground,
		fact: "with latitude and longitude 0 a takeoff never lifts, and disarms after 10 s", run: func(v *probed) {
			v.command(simArm, 1)
			v.equal("answer", v.command(simTakeoff, 0, 0, 0, math.NaN(), 0, 0, v.homeAlt()+10).last(), simAccepted)
			took := v.disarms(15 * time.Second)
			v.within("s", took.Seconds(), 9, 10.3, 1)
		}},
	{heading: "PX4: takeoff and land", from: ground,
		fact: "a takeoff to below the present altitude is accepted, but does not climb", run: func(v *probed) {
			v.command(simArm, 1)
			before := v.place().up
			v.equal("answer", v.takeOffHere(v.homeAlt()-20).last(), simAccepted)
			time.Sleep(5 * time.Second)
			v.within("change of height, m", v.place().up-before, 0, 0.9, 0.8)
		}},
}

// liftsOff takes off and expects two times since the arming, in s: when the vehicle calls itself in the air, and when
// it is 0.3 m high.
func (v *probed) liftsOff(least, most, highLeast, highMost float64) {
	armed, stood := v.spinsUp()
	v.within("takeoff s", time.Since(armed).Seconds(), least, most, 0.3)
	v.within("still, m", v.place().up-stood.up, -0.13, 0.15, 0.1)
	_, ok := v.until(10*time.Second, func() bool { return v.place().up-stood.up >= 0.3 })
	v.must(ok, "it does not lift off")
	v.within("lifts off after s", time.Since(armed).Seconds(), highLeast, highMost, 1)
}

// spinsUp takes off to 10 m and returns when the vehicle calls itself in the air, with the moment of the arming and the
// place where it stood.
func (v *probed) spinsUp() (armed time.Time, stood spot) {
	v.must(v.command(simArm, 1).last() == simAccepted, "refused")
	armed, stood = time.Now(), v.place()
	v.must(v.takeOffHere(v.homeAlt()+10).last() == simAccepted, "refused")
	_, ok := v.until(5*time.Second, func() bool {
		return mustAsk[*common.MessageExtendedSysState](v).LandedState == common.MAV_LANDED_STATE_TAKEOFF
	})
	v.must(ok, "its landed_state is never takeoff")
	return armed, stood
}

// endTakeoff begins a takeoff and disarms before it lifts.
func (v *probed) endTakeoff() {
	v.live()
	v.command(simArm, 1)
	sent := time.Now()
	v.takeOffHere(v.homeAlt() + 10)
	v.shown(simPX4Takeoff, sent, time.Second)
	v.equal("answer", v.command(simArm, 0).last(), simAccepted)
	time.Sleep(300 * time.Millisecond)
}

// cruise begins a goto to the north, and returns when the vehicle is fast.
func (v *probed) cruise(speed float64) {
	v.reposition(common.MAV_FRAME_GLOBAL, speed, 1, math.NaN(), 150, 0, v.homeAlt()+probeHeight)
	time.Sleep(6 * time.Second)
}

// comesBack watches a stop. It returns how far the vehicle went on, and how far it came back.
func (v *probed) comesBack(d time.Duration) (past, back float64) {
	began := time.Now()
	start := v.place().north
	far, now := start, start
	for time.Since(began) < d {
		now = v.place().north
		far = max(far, now)
		time.Sleep(50 * time.Millisecond)
	}
	return far - start, far - now
}

var px4FlightProbes = []probe{
	{heading: "PX4: takeoff and land", from: air,
		fact: "NAV_LAND ignores its place, disarms 2 s after the touch, and goes to AUTO.LOITER", run: func(v *probed) {
			v.command(simInterval, 245, 100000)
			here := v.place()
			h := v.home()
			a := v.command(common.MAV_CMD_NAV_LAND, 0, 0, 0, math.NaN(), float64(h.Latitude)/1e7+25/simDegree,
				float64(h.Longitude)/1e7, 0)
			v.equal("answer", a.last(), simAccepted)
			v.equal("mode", v.mode(), uint32(simPX4Land))
			down, ok := v.await(v.ours, a.sent, 2*time.Minute, func(m message.Message) bool {
				e, ok := m.(*common.MessageExtendedSysState)
				return ok && e.LandedState == common.MAV_LANDED_STATE_ON_GROUND
			})
			v.must(ok, "it does not land")
			v.disarms(10 * time.Second)
			v.within("s to the disarming", time.Since(down).Seconds(), 1.8, 2.3, 0.7)
			v.equal("mode", v.mode(), uint32(simPX4Loiter))
			v.within("off by", v.place().off(here), 0, 1, 1)
		}},
	{heading: "PX4: takeoff and land", from: air, fact: "RTL disarms on the ground and goes to AUTO.LOITER",
		run: func(v *probed) {
			v.equal("answer", v.setMode(simPX4RTL).last(), simAccepted)
			v.disarms(3 * time.Minute)
			v.equal("mode", v.mode(), uint32(simPX4Loiter))
		}},
	{heading: "PX4: takeoff and land", from: air,
		fact: "RTL_RETURN_ALT is a REAL32 in metres above home: 20 m away RTL climbs to it, 6 m away it does not climb",
		run: func(v *probed) {
			to, ok := v.readParam("RTL_RETURN_ALT")
			v.must(ok && to > probeHeight+5 && to < 200, "RTL_RETURN_ALT is %v, %v", to, ok)
			v.flyTo(20, 0, probeHeight)
			v.arrives(20, 0, probeHeight, 2)
			v.within("from 20 m away, m", v.highestInRTL(simPX4RTL), to, to, 1.5)
			v.setMode(simPX4Loiter)
			v.flyTo(6, 0, probeHeight)
			v.arrives(6, 0, probeHeight, 1)
			time.Sleep(3 * time.Second)
			v.within("from 6 m away, m", v.highestInRTL(simPX4RTL), probeHeight, probeHeight, 1.5)
		}},
	{heading: "PX4: goto", from: air, fact: "DO_REPOSITION arrives within a metre", run: func(v *probed) {
		a := v.flyTo(20, 10, probeHeight+3)
		v.equal("answers", a.results, []common.MAV_RESULT{simAccepted})
		v.arrives(20, 10, probeHeight+3, 1.2)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
	}},
	{heading: "PX4: goto", from: air, fact: "DO_REPOSITION's altitude is AMSL in frame 6 too", run: func(v *probed) {
		a := v.reposition(common.MAV_FRAME_GLOBAL_RELATIVE_ALT_INT, -1, 1, math.NaN(), 0, 10, v.homeAlt()+probeHeight)
		v.equal("answer", a.last(), simAccepted)
		v.arrives(0, 10, probeHeight, 1.2)
	}},
	{heading: "PX4: goto", since: release{1, 18}, from: air,
		fact: "a goto with param2 0 is accepted in AUTO.LOITER, and flown", run: func(v *probed) {
			a := v.reposition(common.MAV_FRAME_GLOBAL, -1, 0, math.NaN(), 10, 0, v.homeAlt()+probeHeight)
			v.equal("answer", a.last(), simAccepted)
			v.arrives(10, 0, probeHeight, 1.2)
		}},
	{heading: "PX4: goto", until: release{1, 17}, from: air,
		fact: "a goto with param2 0 is UNSUPPORTED, but AUTO.LOITER flies it",
		run: func(v *probed) {
			a := v.reposition(common.MAV_FRAME_GLOBAL, -1, 0, math.NaN(), 10, 0, v.homeAlt()+probeHeight)
			v.equal("answer", a.last(), simUnsupported)
			v.arrives(10, 0, probeHeight, 1.2)
		}},
	{heading: "PX4: goto", from: air, fact: "a goto with speed 3 flies 2.7 to 3 m/s", run: func(v *probed) {
		v.reposition(common.MAV_FRAME_GLOBAL, 3, 1, math.NaN(), 60, 0, v.homeAlt()+probeHeight)
		time.Sleep(8 * time.Second)
		v.within("m/s", v.place().speed, 2.7, 3, 0.3)
	}},
	{heading: "PX4: goto", from: air, fact: "DO_REPOSITION's yaw is in radians", run: func(v *probed) {
		v.reposition(common.MAV_FRAME_GLOBAL, -1, 1, math.Pi/2, 0, 0, v.homeAlt()+probeHeight)
		time.Sleep(12 * time.Second)
		m := mustAsk[*common.MessageAttitude](v)
		v.within("rad", float64(m.Yaw), 1.5, 1.64, 0.1)
	}},
	{heading: "PX4: goto", from: ground,
		fact: "a goto while disarmed is accepted, sets AUTO.LOITER and leaves no target", run: func(v *probed) {
			v.setMode(simPX4RTL)
			v.equal("answer", v.flyTo(20, 0, 20).last(), simAccepted)
			v.equal("mode", v.mode(), uint32(simPX4Loiter))
			v.equal("target", v.ask(87), nil)
		}},
	{heading: "PX4: goto", from: air, fact: "a second goto's target is shown 3 to 600 ms after its ack",
		run: func(v *probed) {
			for i := range 6 {
				north := float64(5 + 10*(i%2))
				a := v.flyTo(north, 0, probeHeight)
				v.must(a.last() == simAccepted, "answers %v", a.results)
				took, ok := v.until(3*time.Second, func() bool {
					m, ok := v.ask(87).(*common.MessagePositionTargetGlobalInt)
					if !ok {
						return false
					}
					n, _ := v.metres(m.LatInt, m.LonInt)
					return math.Abs(n-north) < 1
				})
				v.must(ok, "the old target stays")
				// flyTo takes 0.3 s: an earlier target counts as 300 ms
				v.ms("shown", took+300*time.Millisecond, 300, 600, 250)
				time.Sleep(time.Second)
			}
		}},
	{heading: "PX4: target", from: air, fact: "message 87 has frame 5, AMSL and no mask", run: func(v *probed) {
		v.flyTo(10, 0, probeHeight)
		time.Sleep(time.Second)
		m := mustAsk[*common.MessagePositionTargetGlobalInt](v)
		v.equal("frame, mask", [2]int{int(m.CoordinateFrame), int(m.TypeMask)}, [2]int{5, 0})
		v.within("height", float64(m.Alt)-v.homeAlt(), probeHeight, probeHeight, 0.5)
	}},
	{heading: "PX4: target", from: air, fact: "in AUTO.LAND the target is some 500 m below", run: func(v *probed) {
		v.setMode(simPX4Land)
		time.Sleep(500 * time.Millisecond)
		m, ok := v.ask(87).(*common.MessagePositionTargetGlobalInt)
		v.setMode(simPX4Loiter)
		v.must(ok, "none comes")
		v.within("AMSL", float64(m.Alt), -30, 30, 30)
	}},
	{heading: "PX4: target", from: handed, fact: "POSCTL has no target", run: func(v *probed) {
		v.centre(500 * time.Millisecond)
		v.must(v.setMode(simPX4Posctl).last() == simAccepted, "refused")
		time.Sleep(500 * time.Millisecond)
		v.equal("answer", v.command(common.MAV_CMD_REQUEST_MESSAGE, 87).last(), simDenied)
	}},
	{heading: "PX4: hold", from: air, fact: "AUTO.LOITER during a goto is accepted and changes nothing",
		run: func(v *probed) {
			v.flyTo(40, 0, probeHeight)
			time.Sleep(2 * time.Second)
			v.equal("answer", v.setMode(simPX4Loiter).last(), simAccepted)
			v.arrives(40, 0, probeHeight, 1.2)
		}},
	{heading: "PX4: hold", from: air, fact: "a pilot's AUTO.LOITER during a goto changes nothing",
		run: func(v *probed) {
			v.flyTo(40, 0, probeHeight)
			time.Sleep(2 * time.Second)
			v.pilotSets(simPX4Loiter)
			v.arrives(40, 0, probeHeight, 1.2)
		}},
	{heading: "PX4: hold", from: air,
		fact: "the pause (all NaN) stops the vehicle, which comes back at most 1.7 m from 4 m/s", run: func(v *probed) {
			v.cruise(4)
			v.equal("answer", v.command(simGoto, -1, 1, 0, math.NaN(), math.NaN(), math.NaN(), math.NaN()).last(),
				simAccepted)
			past, back := v.comesBack(20 * time.Second)
			v.within("past", past, 4, 10, 3)
			v.within("back", back, 1.2, 1.7, 1)
			v.within("height", v.place().up, probeHeight, probeHeight, 1)
		}},
	{heading: "PX4: hold", from: air, fact: "a goto to the present place flies past it and comes all the way back",
		run: func(v *probed) {
			v.cruise(5)
			here := v.place()
			v.flyTo(here.north, here.east, probeHeight)
			past, back := v.comesBack(25 * time.Second)
			v.within("past", past, 4, 13, 3)
			v.within("back", back/past, 0.9, 1.2, 0.4)
		}},
}

var px4StickProbes = []probe{
	{heading: "PX4: sticks", from: air, fact: "0.4 s of a stream is enough for a stick mode", run: func(v *probed) {
		v.centre(400 * time.Millisecond)
		v.equal("answer", v.setMode(simPX4Altctl).last(), simAccepted)
		v.setMode(simPX4Posctl)
	}},
	{heading: "PX4: sticks", from: handed, fact: "z 500 holds the height in POSCTL", run: func(v *probed) {
		v.position()
		before := v.place().up
		time.Sleep(8 * time.Second)
		v.within("change of height, m", v.place().up-before, -0.3, 0.3, 0.7)
	}},
	{heading: "PX4: sticks", from: handed, fact: "x flies forward in POSCTL", run: func(v *probed) {
		v.position()
		v.keepSticks(4*time.Second, 500, 0, 500, 0)
		v.within("m/s", v.place().speed, 1, 4, 1)
	}},
	{heading: "PX4: sticks", from: air, fact: "a stick for another system does nothing", run: func(v *probed) {
		for range 20 {
			v.ours.send(&common.MessageManualControl{Target: v.system + 1, Z: 500})
			time.Sleep(50 * time.Millisecond)
		}
		v.equal("POSCTL", v.setMode(simPX4Posctl).last(), simRejected)
	}},
	{heading: "PX4: sticks", from: handed,
		fact: "0.6 s without sticks in POSCTL brings a failsafe with Hold, and RTL 5 s later", run: func(v *probed) {
			v.live()
			v.position()
			v.losesSticks()
		}},
	{heading: "PX4: sticks", from: handed, fact: "losing sticks in AUTO.LOITER is the same failsafe",
		run: func(v *probed) {
			v.live()
			v.position()
			time.Sleep(2 * time.Second)
			v.must(v.setMode(simPX4Loiter).last() == simAccepted, "refused")
			time.Sleep(time.Second)
			v.losesSticks()
		}},
	{heading: "PX4: sticks", until: release{1, 14}, from: handed,
		fact: "losing sticks in AUTO.LAND is CRITICAL, and PX4 lands", run: func(v *probed) {
			v.landsWithoutSticks(common.MAV_STATE_CRITICAL)
		}},
	{heading: "PX4: sticks", since: release{1, 15}, from: handed,
		fact: "losing sticks in AUTO.LAND is ACTIVE, and PX4 lands", run: func(v *probed) {
			v.landsWithoutSticks(common.MAV_STATE_ACTIVE)
		}},
	{heading: "PX4: sticks", from: air, fact: "a flight without sticks has no failsafe", run: func(v *probed) {
		time.Sleep(8 * time.Second)
		b := v.beat()
		v.equal("mode", b.CustomMode, uint32(simPX4Loiter))
		v.equal("status", b.SystemStatus, common.MAV_STATE_ACTIVE)
	}},
	{heading: "PX4: sticks that move", since: release{1, 18}, from: handed,
		fact: "one or two steps in AUTO.LOITER change nothing, three one way bring POSCTL", run: func(v *probed) {
			v.centre(2 * time.Second)
			v.live()
			v.keepSticks(time.Second, 1000, 0, 500, 0)
			v.keepSticks(time.Second, -500, 0, 500, 0)
			v.keepSticks(time.Second, -1000, 0, 500, 0)
			v.equal("after two steps one way", v.mode(), uint32(simPX4Loiter))
			v.keepSticks(time.Second, 0, 0, 500, 0)
			began := time.Now()
			for _, x := range []int16{-300, -600, -900} {
				v.keepSticks(100*time.Millisecond, x, 0, 500, 0)
			}
			v.shown(simPX4Posctl, began, time.Second)
			v.stick(0, 0, 500, 0)
		}},
	{heading: "PX4: sticks that move", since: release{1, 18}, from: handed,
		fact: "with MAN_OVERRIDE_SPD 0 rest never ends that, a turn does at once", run: func(v *probed) {
			v.setParam(simStickSpeed, 0)
			defer v.setParam(simStickSpeed, 1)
			v.live()
			v.position()
			for _, x := range []int16{300, 600, 900} {
				v.keepSticks(100*time.Millisecond, x, 0, 500, 0)
			}
			time.Sleep(4 * time.Second)
			v.setMode(simPX4Loiter)
			v.equal("after 4 s of rest", v.mode(), uint32(simPX4Posctl))
			v.keepSticks(100*time.Millisecond, 899, 0, 500, 0)
			v.setMode(simPX4Loiter)
			time.Sleep(2 * time.Second)
			v.equal("after a turn by a thousandth", v.mode(), uint32(simPX4Loiter))
			v.keepSticks(100*time.Millisecond, 0, 0, 500, 0)
		}},
	{heading: "PX4: sticks", until: release{1, 17}, from: handed,
		fact: "a stick's step in AUTO.LOITER brings POSCTL", run: func(v *probed) {
			v.centre(2 * time.Second)
			v.live()
			v.stick(400, 0, 500, 0)
			v.shown(simPX4Posctl, time.Now(), time.Second)
			v.stick(0, 0, 500, 0)
		}},
	{heading: "PX4: sticks", from: air, fact: "a constant stick never brings POSCTL", run: func(v *probed) {
		v.keepSticks(6*time.Second, 0, 300, 500, 0)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
	}},
	{heading: "PX4: leaving a stick mode", since: release{1, 18}, from: handed,
		fact: "0.2 s after moving sticks AUTO.LOITER stays", run: func(v *probed) {
			v.position()
			for _, x := range []int16{300, 600, 900} {
				v.keepSticks(100*time.Millisecond, x, 0, 500, 0)
			}
			v.centre(200 * time.Millisecond)
			v.setMode(simPX4Loiter)
			time.Sleep(2 * time.Second)
			v.equal("mode", v.mode(), uint32(simPX4Loiter))
		}},
	{heading: "PX4: leaving a stick mode", until: release{1, 17}, from: handed,
		fact: "0.2 s after moving sticks AUTO.LOITER is undone, 2 s after it stays", run: func(v *probed) {
			v.position()
			v.keepSticks(time.Second, 1000, 0, 500, 0)
			v.centre(200 * time.Millisecond)
			v.setMode(simPX4Loiter)
			v.equal("0.2 s after", v.mode(), uint32(simPX4Posctl))
			time.Sleep(1500 * time.Millisecond) // with the 0.2 s above and setMode's 0.3 s it is 2 s
			v.setMode(simPX4Loiter)
			time.Sleep(2 * time.Second)
			v.equal("2 s after", v.mode(), uint32(simPX4Loiter))
		}},
	{heading: "PX4: leaving a stick mode", from: handed,
		fact: "from ALTCTL POSCTL is in force within 0.2 s whatever the sticks did, and AUTO.LOITER stays 2.2 s later",
		run: func(v *probed) {
			v.live()
			v.centre(400 * time.Millisecond)
			v.must(v.setMode(simPX4Altctl).last() == simAccepted, "refused")
			v.keepSticks(time.Second, 800, 0, 500, 0)
			v.stick(0, 0, 500, 0)
			sent := time.Now()
			v.ours.send(v.modeMessage(simPX4Posctl))
			v.ms("POSCTL", v.shown(simPX4Posctl, sent, time.Second).Sub(sent), 9, 200, 0)
			time.Sleep(2200 * time.Millisecond)
			v.setMode(simPX4Loiter)
			time.Sleep(2 * time.Second)
			v.equal("mode", v.mode(), uint32(simPX4Loiter))
		}},
	{heading: "PX4: source of sticks", from: air, fact: "COM_RC_IN_MODE 4 ignores MANUAL_CONTROL",
		run: func(v *probed) {
			v.equal("POSCTL", v.sticksWith(4), []common.MAV_RESULT{simRejected})
		}},
	{heading: "PX4: source of sticks", since: release{1, 17}, from: air,
		fact: "COM_RC_IN_MODE 5 to 8 obey MANUAL_CONTROL while there is no transmitter", run: func(v *probed) {
			v.equal("POSCTL", v.sticksWith(5, 6, 7, 8),
				[]common.MAV_RESULT{simAccepted, simAccepted, simAccepted, simAccepted})
		}},
	{heading: "PX4: source of sticks", until: release{1, 16}, from: air,
		fact: "with COM_RC_IN_MODE 5 to 8 no sticks act", run: func(v *probed) {
			v.equal("POSCTL", v.sticksWith(5, 6, 7, 8),
				[]common.MAV_RESULT{simRejected, simRejected, simRejected, simRejected})
		}},
	{heading: "PX4: source of sticks", from: air,
		fact: "with COM_RC_IN_MODE 1 the first program's sticks act until they end, and MANUAL_CONTROL has them",
		run: func(v *probed) {
			v.centre(500 * time.Millisecond) // with 3, whose came first act until PX4 restarts
			v.silence()
			v.setParam(simStickSource, 1)
			defer v.setParam(simStickSource, 3)
			v.equal("interval of MANUAL_CONTROL", v.command(simInterval, 69, 100000).last(), simAccepted)
			time.Sleep(2 * time.Second)
			before := factSince[*common.MessageManualControl](v.ours, time.Now().Add(-900*time.Millisecond))
			v.equal("without sticks", len(before), 0)
			end := repeat(50*time.Millisecond, func() {
				v.pilot.send(&common.MessageManualControl{Target: v.system, X: 100, Y: 0, Z: 500})
			})
			time.Sleep(time.Second)
			v.keepSticks(2*time.Second, -200, 0, 500, 0)
			v.within("both", v.actingPitch(), 98, 102, 0)
			end()
			v.keepSticks(2*time.Second, -200, 0, 500, 0)
			v.within("ours alone", v.actingPitch(), -202, -198, 0)
			v.centre(time.Second)
		}},
	{heading: "PX4: source of sticks", from: air, fact: "COM_RC_IN_MODE 1 obeys MANUAL_CONTROL", run: func(v *probed) {
		v.equal("POSCTL", v.sticksWith(1), []common.MAV_RESULT{simAccepted})
	}},
}

// actingPitch is the pitch of the sticks that act, as the vehicle's own MANUAL_CONTROL has it.
func (v *probed) actingPitch() float64 {
	all := factSince[*common.MessageManualControl](v.ours, time.Now().Add(-500*time.Millisecond))
	v.must(len(all) > 0, "no MANUAL_CONTROL comes")
	return float64(all[len(all)-1].X)
}

// sticksWith returns how POSCTL is answered, with a stream and these values of COM_RC_IN_MODE.
func (v *probed) sticksWith(values ...float64) (answers []common.MAV_RESULT) {
	defer v.setParam("COM_RC_IN_MODE", 3)
	for _, in := range values {
		v.setParam("COM_RC_IN_MODE", in)
		v.centre(time.Second)
		answers = append(answers, v.setMode(simPX4Posctl).last())
		v.setMode(simPX4Loiter)
	}
	return answers
}

// position enters POSCTL with centred sticks.
func (v *probed) position() {
	v.centre(500 * time.Millisecond)
	a := v.setMode(simPX4Posctl)
	v.must(a.last() == simAccepted, "POSCTL: %v", a.results)
	time.Sleep(time.Second)
}

// landsWithoutSticks ends the stream during AUTO.LAND, and checks the state that PX4 then reports.
func (v *probed) landsWithoutSticks(state common.MAV_STATE) {
	v.position()
	time.Sleep(2 * time.Second) // sticks that moved would take over
	v.must(v.command(common.MAV_CMD_NAV_LAND).last() == simAccepted, "refused")
	time.Sleep(2 * time.Second)
	v.silence()
	time.Sleep(2 * time.Second)
	b := v.beat()
	v.equal("mode", b.CustomMode, uint32(simPX4Land))
	v.equal("status", b.SystemStatus, state)
	_, ok := v.until(time.Minute, func() bool { return !v.armed() })
	v.equal("lands", ok, true)
}

// losesSticks ends the stream and expects the failsafe.
func (v *probed) losesSticks() {
	v.silence()
	began := time.Now()
	took, ok := v.until(3*time.Second, func() bool { return v.beat().SystemStatus == common.MAV_STATE_CRITICAL })
	v.must(ok, "no failsafe")
	v.within("s to the failsafe", took.Seconds(), 0.5, 0.7, 0.3)
	v.equal("mode", v.mode(), uint32(simPX4Loiter))
	_, ok = v.until(8*time.Second, func() bool { return v.mode() == simPX4RTL })
	v.must(ok, "no return")
	v.within("s to the return", time.Since(began).Seconds(), 5.4, 5.9, 0.5)
	v.setMode(simPX4Loiter)
}

// px4UndoProbes are about a pilot's switch while sticks move.
func px4UndoProbes() (probes []probe) {
	for _, to := range []struct {
		name string
		mode uint32
	}{{"RTL", simPX4RTL}, {"LAND", simPX4Land}, {"Hold", simPX4Loiter}} {
		for _, override := range []float64{1, 0} {
			fact := "moving sticks undo a pilot's " + to.name + " after 12 to 48 ms"
			if override == 0 {
				fact = "with COM_RC_OVERRIDE 0 a pilot's " + to.name + " stays"
			}
			probes = append(probes, probe{heading: "PX4: moving sticks and a pilot", until: release{1, 17},
				from: handed, fact: fact, run: func(v *probed) {
					v.setParam("COM_RC_OVERRIDE", override)
					defer v.setParam("COM_RC_OVERRIDE", 1)
					v.live()
					v.position()
					for i := range 10 {
						v.keepSticks(100*time.Millisecond, []int16{500, -500}[i%2], 0, 500, 0)
					}
					sent := time.Now()
					v.pilot.send(v.modeMessage(to.mode))
					switched := v.shown(to.mode, sent, time.Second)
					time.Sleep(300 * time.Millisecond)
					if override == 0 {
						v.equal("mode", v.mode(), to.mode)
						return
					}
					again := v.shown(simPX4Posctl, switched, time.Second)
					v.ms("the switch lasted", again.Sub(switched), 12, 48, 15)
				}})
		}
		probes = append(probes, px4SpeedUndoProbes(to.name, to.mode)...)
	}
	return slices.Concat(probes, px4IgnoringProbes())
}

// px4SpeedUndoProbes are about a pilot's switch while sticks move, from 1.18 on.
func px4SpeedUndoProbes(name string, mode uint32) (probes []probe) {
	for _, speed := range []float64{1, -1} {
		fact := "sticks that run one way undo a pilot's " + name
		if speed < 0 {
			fact = "with MAN_OVERRIDE_SPD -1 a pilot's " + name + " stays"
		}
		probes = append(probes, probe{heading: "PX4: moving sticks and a pilot", since: release{1, 18}, from: handed,
			fact: fact, run: func(v *probed) {
				v.setParam(simStickSpeed, speed)
				defer v.setParam(simStickSpeed, 1)
				v.live()
				v.position()
				for _, x := range []int16{-900, -800, -700, -600} {
					v.keepSticks(50*time.Millisecond, x, 0, 500, 0)
				}
				v.pilot.send(v.modeMessage(mode))
				for x := int16(-500); x <= 900; x += 100 {
					v.keepSticks(50*time.Millisecond, x, 0, 500, 0)
				}
				want := uint32(simPX4Posctl)
				if speed < 0 {
					want = mode
				}
				v.equal("mode", v.mode(), want)
				v.stick(0, 0, 500, 0)
			}})
	}
	return probes
}

// px4IgnoringProbes show that deflected sticks do nothing in modes that the program's list says ignore them.
func px4IgnoringProbes() (probes []probe) {
	for _, m := range []struct {
		name  string
		mode  uint32
		since release
		enter func(v *probed) factAnswer
	}{
		{"AUTO.TAKEOFF", simPX4Takeoff, release{},
			func(v *probed) factAnswer { return v.takeOffHere(v.homeAlt() + 40) }},
		{"AUTO.LOITER", simPX4Loiter, release{}, nil},
		{"AUTO.MISSION", simPX4Mission, release{}, (*probed).beginMission},
		{"AUTO.RTL", simPX4RTL, release{}, nil},
		{"AUTO.LAND", simPX4Land, release{}, nil},
		{"AUTO.PRECLAND", simPX4Precland, release{}, nil},
		{"AUTO.GUIDED_COURSE", simPX4Course, release{1, 18}, nil},
		{"OFFBOARD", simPX4Offboard, release{}, (*probed).beginOffboard},
	} {
		if m.enter == nil {
			m.enter = func(v *probed) factAnswer { return v.setMode(m.mode) }
		}
		probes = append(probes, probe{heading: "PX4: modes that ignore sticks", since: m.since, from: handed,
			fact: m.name + " ignores sticks that stand off centre", run: func(v *probed) {
				v.position()
				v.keepSticks(2500*time.Millisecond, 0, 300, 500, 0)
				v.must(m.enter(v).last() == simAccepted, "refused")
				v.keepSticks(3*time.Second, 0, 300, 500, 0)
				v.equal("mode", v.mode(), m.mode)
				from := v.place()
				v.keepSticks(2*time.Second, 0, 300, 500, 0)
				sin, cos := math.Sincos(float64(mustAsk[*common.MessageAttitude](v).Yaw))
				to := v.place()
				v.within("to the right, m", -sin*(to.north-from.north)+cos*(to.east-from.east), -0.8, 0.8, 1)
				v.setMode(simPX4Loiter)
			}})
	}
	return append(probes, px4SteeredProbes...)
}

// allows makes a simulator accept a mode for which a real PX4 needs what only a probe sends: a mission, setpoints.
func (v *probed) allows(mode uint32) {
	if v.sim != nil {
		v.sim.change(func() {
			v.sim.eachMode(func(m *simMode) { m.disarmedOnly = m.disarmedOnly && m.custom != mode })
		})
	}
}

// beginMission sends a mission of one item, which circles or hovers where the vehicle is, and begins it.
func (v *probed) beginMission() factAnswer {
	v.allows(simPX4Mission)
	if v.sim == nil {
		here := mustAsk[*common.MessageGlobalPositionInt](v)
		sent := time.Now()
		v.ours.send(&common.MessageMissionCount{TargetSystem: v.system, TargetComponent: 1, Count: 1})
		v.first("MISSION_REQUEST_INT", sent, 3*time.Second, func(m message.Message) bool {
			return m.GetID() == (*common.MessageMissionRequestInt)(nil).GetID() ||
				m.GetID() == (*common.MessageMissionRequest)(nil).GetID()
		})
		v.ours.send(&common.MessageMissionItemInt{
			TargetSystem: v.system, TargetComponent: 1, Frame: common.MAV_FRAME_GLOBAL_INT,
			Command: common.MAV_CMD_NAV_LOITER_UNLIM, Current: 1, Autocontinue: 1,
			X: here.Lat, Y: here.Lon, Z: float32(here.Alt) / 1000,
		})
		v.first("MISSION_ACK", sent, 3*time.Second, func(m message.Message) bool {
			ack, ok := m.(*common.MessageMissionAck)
			return ok && ack.Type == common.MAV_MISSION_ACCEPTED
		})
		time.Sleep(time.Second)
	}
	return v.setMode(simPX4Mission)
}

// beginOffboard streams a velocity of 0 until the probe ends, and enters OFFBOARD.
func (v *probed) beginOffboard() factAnswer {
	const onlyVelocity = 0xdc7
	v.allows(simPX4Offboard)
	v.setpoints = repeat(100*time.Millisecond, func() {
		v.ours.send(&common.MessageSetPositionTargetLocalNed{TargetSystem: v.system, TargetComponent: 1,
			CoordinateFrame: common.MAV_FRAME_LOCAL_NED, TypeMask: onlyVelocity})
	})
	time.Sleep(time.Second)
	return v.setMode(simPX4Offboard)
}

// px4SteeredProbes are about modes that sticks fly, and that are none of ours.
var px4SteeredProbes = []probe{
	{heading: "PX4: modes that ignore sticks", since: release{1, 17}, from: handed,
		fact: "ALTITUDE_CRUISE is flown by sticks", run: func(v *probed) {
			v.position()
			v.must(v.setMode(simPX4Cruise).last() == simAccepted, "refused")
			v.keepSticks(2*time.Second, 500, 0, 500, 0)
			v.within("m/s", v.place().speed, 1, 15, 3)
			v.centre(300 * time.Millisecond)
			v.setMode(simPX4Posctl)
			time.Sleep(3 * time.Second)
		}},
	{heading: "PX4: hold", since: release{1, 18}, from: air,
		fact: "in AUTO.GUIDED_COURSE the pause is accepted and changes nothing, AUTO.LOITER leaves it",
		run: func(v *probed) {
			v.must(v.setMode(simPX4Course).last() == simAccepted, "refused")
			a := v.command(simGoto, -1, 1, 0, math.NaN(), math.NaN(), math.NaN(), math.NaN())
			v.equal("the pause", a.last(), simAccepted)
			time.Sleep(time.Second)
			v.equal("mode", v.mode(), uint32(simPX4Course))
			v.equal("AUTO.LOITER", v.setMode(simPX4Loiter).last(), simAccepted)
			v.equal("mode", v.mode(), uint32(simPX4Loiter))
		}},
}
