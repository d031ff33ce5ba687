package main

// The probes of ArduPilot.

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

var copterLinkProbes = []probe{
	{heading: "ArduPilot: link", from: ground, fact: "component 0 is answered, another component or system is not",
		run: func(v *probed) {
			m := factLong(v.system, simSetMode, 1, simArduGuided)
			m.TargetComponent = 0
			v.equal("component 0", v.exchange(v.ours, simSetMode, m).last(), simAccepted)
			m.TargetComponent = 2
			v.equal("another component", len(v.exchange(v.ours, simSetMode, m).results), 0)
			v.equal("another system", len(v.exchange(v.ours, simSetMode,
				factLong(v.system+1, simSetMode, 1, simArduGuided)).results), 0)
		}},
	{heading: "ArduPilot: link", from: boot, fact: "a mode that is set before ArduPilot is ready is accepted and lost",
		run: func(v *probed) {
			time.Sleep(time.Second)
			v.equal("answer", v.setMode(simArduLand).last(), simAccepted)
			time.Sleep(2 * time.Second)
			v.equal("mode", v.mode(), uint32(simArduStabilize))
		}},
	{heading: "ArduPilot: streams", from: ground, fact: "no position comes without a request", run: func(v *probed) {
		v.equal("positions", v.rate(v.ours, 33, 3), 0.0)
		v.equal("SYS_STATUS", v.rate(v.ours, 1, 3), 0.0)
	}},
	{heading: "ArduPilot: streams", from: ground, fact: "SET_MESSAGE_INTERVAL is met at 1, 10 and 100 Hz",
		run: func(v *probed) {
			for _, hz := range []float64{1, 10, 100} {
				v.must(v.command(simInterval, 33, 1e6/hz).last() == simAccepted, "refused")
				time.Sleep(time.Second)
				v.within("Hz", v.rate(v.ours, 33, 5), hz, hz, 0.25+hz/20)
			}
			v.command(simInterval, 33, -1)
		}},
	{heading: "ArduPilot: streams", from: ground, fact: "an unknown message's interval is DENIED, its request FAILED",
		run: func(v *probed) {
			v.equal("interval", v.command(simInterval, 12345, 100000).last(), simDenied)
			v.equal("request", v.command(common.MAV_CMD_REQUEST_MESSAGE, 12345).last(), simFailed)
		}},
	{heading: "ArduPilot: live mode", from: ground,
		fact: "HEARTBEAT's interval is accepted and met: 20 ms, 50 ms, 100 ms", run: func(v *probed) {
			for _, ms := range []float64{20, 50, 100} {
				v.must(v.command(simInterval, 0, ms*1000).last() == simAccepted, "refused")
				time.Sleep(time.Second)
				v.within("Hz", v.rate(v.ours, 0, 5), 0.97*1000/ms, 1000/ms, 0.1*1000/ms)
			}
			v.command(simInterval, 0, 0)
			time.Sleep(time.Second)
			v.within("Hz at 0", v.rate(v.ours, 0, 10), 1, 1, 0.2)
		}},
	{heading: "ArduPilot: live mode", from: ground, fact: "HEARTBEAT's interval is for this link only",
		run: func(v *probed) {
			v.live()
			time.Sleep(time.Second)
			v.within("Hz of the other", v.rate(v.pilot, 0, 5), 1, 1, 0.3)
			v.command(simInterval, 0, 0)
		}},
	{heading: "ArduPilot: live mode", from: ground, fact: "the heartbeat that shows a mode comes with the ack",
		run: func(v *probed) {
			v.live()
			for i := range 10 {
				mode := []uint32{simArduStabilize, simArduGuided}[i%2]
				a := v.setMode(mode)
				v.must(a.last() == simAccepted, "refused")
				v.ms("after the ack", v.shown(mode, a.sent, time.Second).Sub(a.sent)-a.after[0], 0, 0.1, 10)
			}
			v.command(simInterval, 0, 0)
		}},
	{heading: "ArduPilot: live mode", from: ground, fact: "HEARTBEAT shows a switch from another link, and arming",
		run: func(v *probed) {
			v.live()
			sent := time.Now()
			v.pilot.send(v.modeMessage(simArduStabilize))
			v.ms("switch", v.shown(simArduStabilize, sent, time.Second).Sub(sent), 0, 10, 40)
			a := v.command(simArm, 1)
			v.must(a.last() == simAccepted, "not armed: %v", a.results)
			at := v.first("armed", a.sent, time.Second, beatIsArmed(true))
			v.ms("arming after its ack", at.Sub(a.sent)-a.after[0], 0, 50, 50)
			v.command(simArm, 0)
			v.command(simInterval, 0, 0)
		}},
	{heading: "ArduPilot: mode changes", from: ground,
		fact: "a requested HEARTBEAT comes 3 to 6 ms later, after its ack, in the mode that was acknowledged",
		run: func(v *probed) {
			for i := range 6 {
				mode := []uint32{simArduStabilize, simArduGuided}[i%2]
				v.setMode(mode)
				sent := time.Now()
				v.ours.send(factLong(v.system, common.MAV_CMD_REQUEST_MESSAGE, 0))
				ack := v.first("ack", sent, time.Second, factAck(common.MAV_CMD_REQUEST_MESSAGE))
				v.ms("after", v.shown(mode, ack, time.Second).Sub(sent), 3, 6, 10)
				time.Sleep(200 * time.Millisecond)
			}
		}},
	{heading: "ArduPilot: receiver", from: ground, fact: "a live receiver is healthy in SYS_STATUS",
		run: func(v *probed) {
			m := mustAsk[*common.MessageSysStatus](v)
			v.equal("healthy", m.OnboardControlSensorsHealth&common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER != 0, true)
		}},
	{heading: "ArduPilot: receiver", from: ground, fact: "RC_CHANNELS 3 is its throttle, 1000 idle",
		run: func(v *probed) {
			m := mustAsk[*common.MessageRcChannels](v)
			v.within("µs", float64(m.Chan3Raw), 1000, 1000, 20)
		}},
	{heading: "ArduPilot: arming", from: boot,
		fact: "STABILIZE can be armed after 24 s, GUIDED after 42, and EKF_STATUS_REPORT shows it",
		run: func(v *probed) {
			time.Sleep(30 * time.Second)
			v.equal("STABILIZE", v.command(simArm, 1).last(), simAccepted)
			v.command(simArm, 0)
			v.setMode(simArduGuided)
			a := v.command(simArm, 1)
			v.equal("GUIDED", a.last(), simFailed)
			v.equal("text", strings.Contains(v.texts(a.sent), "Need Position Estimate"), true)
			flags := func() uint16 {
				m := mustAsk[*MessageEkfStatusReport](v)
				return m.Flags
			}
			v.equal("bits 4 and 7", flags()&(1<<4|1<<7), uint16(1<<7))
			time.Sleep(12 * time.Second)
			v.equal("bits 4 and 7", flags()&(1<<4|1<<7), uint16(1<<4))
			v.equal("GUIDED", v.command(simArm, 1).last(), simAccepted)
		}},
}

// copterModeProbes check that a disarmed Copter accepts any mode, with one ack.
func copterModeProbes() (probes []probe) {
	for _, m := range []struct {
		mode uint32
		name string
		arms bool
	}{
		{0, "STABILIZE", true}, {1, "ACRO", true}, {2, "ALT_HOLD", true}, {4, "GUIDED", true}, {5, "LOITER", true},
		{6, "RTL", false}, {9, "LAND", false}, {16, "POSHOLD", true}, {17, "BRAKE", false}, {21, "SMART_RTL", false},
	} {
		probes = append(probes, probe{heading: "ArduPilot: mode changes", from: ground, fact: m.name +
			" while disarmed: one ack, and it can be armed: " + fmt.Sprint(m.arms), run: func(v *probed) {
			v.equal("answers", v.setMode(m.mode).results, []common.MAV_RESULT{simAccepted})
			v.equal("mode", v.mode(), m.mode)
			a := v.command(simArm, 1)
			want := simFailed
			if m.arms {
				want = simAccepted
			}
			v.equal("arming", a.last(), want)
			v.command(simArm, 0)
			if !m.arms {
				v.equal("text", strings.Contains(v.texts(a.sent), "Arm: "), true)
			}
		}})
	}
	return append(probes,
		probe{heading: "ArduPilot: mode changes", from: ground, fact: "an unknown mode is FAILED",
			run: func(v *probed) {
				v.equal("answer", v.setMode(99).last(), simFailed)
			}},
		probe{heading: "ArduPilot: mode changes", from: ground, fact: "without bit 0 of param1 a mode is not set",
			run: func(v *probed) {
				v.command(simSetMode, 0, simArduLand)
				v.equal("mode", v.mode(), uint32(simArduGuided))
			}},
		probe{heading: "ArduPilot: mode changes", from: ground, fact: "LAND on the ground disarms at once",
			run: func(v *probed) {
				v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
				time.Sleep(time.Second)
				v.equal("answer", v.setMode(simArduLand).last(), simAccepted)
				took := v.disarms(8 * time.Second)
				v.within("s", took.Seconds(), 0, 0.3, 2)
			}},
		probe{heading: "ArduPilot: mode changes", from: air, fact: "BRAKE stays BRAKE for 12 s", run: func(v *probed) {
			v.equal("answer", v.pilotSets(simArduBrake).last(), simAccepted)
			time.Sleep(12 * time.Second)
			v.equal("mode", v.mode(), uint32(simArduBrake))
		}})
}

var copterArmingProbes = []probe{
	{heading: "ArduPilot: arming", from: ground, fact: "a throttle in the middle is refused, in GUIDED too",
		run: func(v *probed) {
			v.centre(500 * time.Millisecond)
			a := v.command(simArm, 1)
			v.equal("answer", a.last(), simFailed)
			v.equal("text", strings.Contains(v.texts(a.sent), "not neutral"), true)
			v.keepSticks(500*time.Millisecond, 0, 0, 0, 0)
			v.equal("at 0", v.command(simArm, 1).last(), simAccepted)
			v.command(simArm, 0)
		}},
	{heading: "ArduPilot: arming", from: air, fact: "disarming in the air is FAILED", run: func(v *probed) {
		v.equal("answer", v.command(simArm, 0).last(), simFailed)
		v.equal("armed", v.armed(), true)
	}},
	{heading: "ArduPilot: arming", from: ground, fact: "an armed vehicle that does not take off disarms after 10 s",
		run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			took := v.disarms(15 * time.Second)
			v.within("s", took.Seconds(), 9.5, 10.2, 0.8)
		}},
	{heading: "ArduPilot: takeoff and land", from: ground, fact: "22 while disarmed, in STABILIZE or to 0 is FAILED",
		run: func(v *probed) {
			v.equal("disarmed", v.command(simTakeoff, 0, 0, 0, 0, 0, 0, 10).last(), simFailed)
			v.setMode(simArduStabilize)
			v.command(simArm, 1)
			v.equal("STABILIZE", v.command(simTakeoff, 0, 0, 0, 0, 0, 0, 10).last(), simFailed)
			v.setMode(simArduGuided)
			v.equal("to 0", v.command(simTakeoff, 0, 0, 0, 0, 0, 0, 0).last(), simFailed)
			v.command(simArm, 0)
		}},
	{heading: "ArduPilot: takeoff and land", from: air, fact: "22 in the air is FAILED", run: func(v *probed) {
		v.equal("answer", v.command(simTakeoff, 0, 0, 0, 0, 0, 0, 30).last(), simFailed)
	}},
	{heading: "ArduPilot: takeoff and land", from: ground,
		fact: "GUIDED, ARM, 22 climbs to metres above home and stays GUIDED", run: func(v *probed) {
			v.takeOff(10)
			v.within("height", v.place().up, 9.8, 10.2, 0.8)
			v.equal("mode", v.mode(), uint32(simArduGuided))
		}},
	{heading: "ArduPilot: takeoff and land", from: ground,
		fact: "a goto before the lift-off is accepted and ends the takeoff on the ground", run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "refused")
			stood := v.place()
			v.must(v.command(simTakeoff, 0, 0, 0, 0, 0, 0, 10).last() == simAccepted, "refused")
			v.equal("goto", v.flyTo(stood.north+20, stood.east, 10).last(), simAccepted)
			v.within("disarms after s", v.disarms(15*time.Second).Seconds(), 9, 10.5, 1)
			v.within("height", v.place().up-stood.up, 0, 0.1, 0.3)
		}},
	{heading: "ArduPilot: takeoff and land", from: air, fact: "NAV_LAND ignores its place, and the mode stays LAND",
		run: func(v *probed) {
			here := v.place()
			h := v.home()
			a := v.command(common.MAV_CMD_NAV_LAND, 0, 0, 0, 0, float64(h.Latitude)/1e7+25/simDegree,
				float64(h.Longitude)/1e7, 0)
			v.equal("answer", a.last(), simAccepted)
			took := v.disarms(2 * time.Minute)
			v.within("s", took.Seconds(), 23, 32, 5) // 23 s from 10 m
			v.equal("mode", v.mode(), uint32(simArduLand))
			v.within("off by", v.place().off(here), 0, 1, 1)
		}},
	{heading: "ArduPilot: takeoff and land", from: air, fact: "RTL stays RTL to the ground and disarms",
		run: func(v *probed) {
			v.equal("answer", v.setMode(simArduRTL).last(), simAccepted)
			v.disarms(3 * time.Minute)
			v.equal("mode", v.mode(), uint32(simArduRTL))
		}},
	{heading: "ArduPilot: takeoff and land", until: release{4, 6}, from: air,
		fact: "RTL_ALT is in cm above home: 20 m away RTL climbs to it, 4 m away to three times the distance",
		run:  func(v *probed) { v.climbsInRTL("RTL_ALT", 0.01) }},
	{heading: "ArduPilot: takeoff and land", since: release{4, 7}, from: air,
		fact: "RTL_ALT_M is in m above home: 20 m away RTL climbs to it, 4 m away to three times the distance",
		run:  func(v *probed) { v.climbsInRTL("RTL_ALT_M", 1) }},
}

// climbsInRTL returns home from near and from far. metres is the unit of the parameter that has the height.
func (v *probed) climbsInRTL(name string, metres float64) {
	to, ok := v.readParam(name)
	to *= metres
	v.must(ok && to > 14 && to < 200, "%s is %v m, %v", name, to, ok)
	v.flyTo(20, 0, 8)
	v.arrives(20, 0, 8, 2)
	v.within("from 20 m away, m", v.highestInRTL(simArduRTL), to, to, 1.5)
	v.setMode(simArduGuided)
	v.flyTo(4, 0, 6)
	v.arrives(4, 0, 6, 0.5)
	time.Sleep(3 * time.Second)
	v.within("from 4 m away, m", v.highestInRTL(simArduRTL), 12, 12, 2)
}

// copterGotoProbes are about the frames of a goto, its speed and heading, and what is refused.
func copterGotoProbes() []probe {
	probes := []probe{
		{from: air, fact: "DO_REPOSITION as COMMAND_LONG is UNSUPPORTED", run: func(v *probed) {
			h := v.home()
			v.equal("answer", v.command(simGoto, -1, 1, 0, 0, float64(h.Latitude)/1e7, float64(h.Longitude)/1e7,
				15).last(), simUnsupported)
		}},
		{from: air, fact: "a place of 0/0 or INT32_MAX is DENIED", run: func(v *probed) {
			frame := common.MAV_FRAME_GLOBAL_RELATIVE_ALT
			v.equal("0/0", v.repositionTo(frame, -1, 1, 0, 0, 0, 15).last(), simDenied)
			v.equal("INT32_MAX", v.repositionTo(frame, -1, 1, 0, math.MaxInt32, math.MaxInt32, 15).last(), simDenied)
		}},
		{from: air, fact: "outside GUIDED param2 0 is DENIED, 1 sets GUIDED", run: func(v *probed) {
			v.setMode(simArduBrake)
			time.Sleep(100 * time.Millisecond)
			frame := common.MAV_FRAME_GLOBAL_RELATIVE_ALT
			v.equal("0", v.reposition(frame, -1, 0, 0, 5, 0, probeHeight).last(), simDenied)
			v.equal("1", v.reposition(frame, -1, 1, 0, 5, 0, probeHeight).last(), simAccepted)
			v.equal("mode", v.mode(), uint32(simArduGuided))
		}},
		{from: ground, fact: "a goto while disarmed is accepted and not flown", run: func(v *probed) {
			v.equal("answer", v.flyTo(20, 0, 20).last(), simAccepted)
			v.equal("armed", v.armed(), false)
		}},
		{from: air, fact: "DO_REPOSITION's speed is ignored", run: func(v *probed) {
			v.reposition(common.MAV_FRAME_GLOBAL_RELATIVE_ALT, 2, 1, 0, 60, 0, probeHeight)
			time.Sleep(6 * time.Second)
			v.within("m/s", v.place().speed, 5, 10, 1)
		}},
		{from: air, fact: "DO_CHANGE_SPEED after a goto's ack is flown within 0.1 m/s, and holds for the next goto",
			run: func(v *probed) {
				v.flyTo(60, 0, probeHeight)
				v.equal("answer", v.command(common.MAV_CMD_DO_CHANGE_SPEED, 1, 3).last(), simAccepted)
				time.Sleep(7 * time.Second)
				v.within("m/s", v.place().speed, 2.9, 3.1, 0.2)
				v.flyTo(0, 40, probeHeight)
				time.Sleep(6 * time.Second)
				v.within("m/s of the next", v.place().speed, 2.9, 3.1, 0.3)
			}},
		{from: air, until: release{4, 6}, fact: "a speed of −2, −1 or 0 is FAILED", run: func(v *probed) {
			v.flyTo(30, 0, probeHeight)
			for _, speed := range []float64{-2, -1, 0} {
				v.equal("answer", v.command(common.MAV_CMD_DO_CHANGE_SPEED, 1, speed).last(), simFailed)
			}
		}},
		{from: air, since: release{4, 7}, fact: "a speed of −2, −1 or 0 is DENIED", run: func(v *probed) {
			v.flyTo(30, 0, probeHeight)
			for _, speed := range []float64{-2, -1, 0} {
				v.equal("answer", v.command(common.MAV_CMD_DO_CHANGE_SPEED, 1, speed).last(), simDenied)
			}
		}},
		{from: air, fact: "CONDITION_YAW after a goto's ack turns the vehicle", run: func(v *probed) {
			v.flyTo(5, 0, probeHeight)
			v.equal("answer", v.command(common.MAV_CMD_CONDITION_YAW, 90, 0, 0, 0).last(), simAccepted)
			time.Sleep(12 * time.Second)
			m := mustAsk[*common.MessageAttitude](v)
			v.within("rad", float64(m.Yaw), 1.5, 1.64, 0.1)
		}},
	}
	for _, f := range []struct {
		frame common.MAV_FRAME
		name  string
		amsl  bool
	}{
		{common.MAV_FRAME_GLOBAL, "0, AMSL", true}, {common.MAV_FRAME_GLOBAL_INT, "5, AMSL", true},
		{common.MAV_FRAME_GLOBAL_RELATIVE_ALT, "3, above home", false},
		{common.MAV_FRAME_GLOBAL_RELATIVE_ALT_INT, "6, above home", false},
	} {
		probes = append(probes, probe{from: air, fact: "frame " + f.name, run: func(v *probed) {
			z := probeHeight + 2
			if f.amsl {
				z += v.homeAlt()
			}
			v.equal("answer", v.reposition(f.frame, -1, 1, 0, 10, 5, z).last(), simAccepted)
			v.arrives(10, 5, probeHeight+2, 1)
		}})
	}
	for i := range probes {
		probes[i].heading = "ArduPilot: goto"
	}
	return probes
}

var copterHoldProbes = []probe{
	{heading: "ArduPilot: target", from: air, fact: "message 87 in GUIDED: frame 0, AMSL, type_mask 0xFDF8",
		run: func(v *probed) {
			v.flyTo(20, 0, probeHeight)
			time.Sleep(500 * time.Millisecond)
			m := mustAsk[*common.MessagePositionTargetGlobalInt](v)
			v.equal("frame, mask", [2]int{int(m.CoordinateFrame), int(m.TypeMask)}, [2]int{0, 0xfdf8})
			v.within("height", float64(m.Alt)-v.homeAlt(), probeHeight, probeHeight, 0.5)
		}},
	{heading: "ArduPilot: target", from: air, fact: "no message 87 comes in BRAKE, or in GUIDED without a goto",
		run: func(v *probed) {
			v.setMode(simArduBrake)
			time.Sleep(time.Second)
			v.equal("BRAKE", v.ask(87), nil)
			v.setMode(simArduGuided)
			time.Sleep(time.Second)
			v.equal("GUIDED", v.ask(87), nil)
		}},
	{heading: "ArduPilot: hold", from: air, fact: "BRAKE and GUIDED 20 ms later comes back at most 0.8 m",
		run: func(v *probed) {
			v.flyTo(120, 0, probeHeight)
			time.Sleep(6 * time.Second)
			v.within("from m/s", v.place().speed, 7, 10, 1)
			v.ours.send(v.modeMessage(simArduBrake))
			time.Sleep(20 * time.Millisecond)
			v.ours.send(v.modeMessage(simArduGuided))
			past, back := v.comesBack(12 * time.Second)
			v.within("past", past, 12, 25, 5)
			v.within("back", back, 0.2, 0.8, 0.6)
			v.equal("mode", v.mode(), uint32(simArduGuided))
		}},
	{heading: "ArduPilot: hold", from: air, fact: "a goto to the present place comes all the way back",
		run: func(v *probed) {
			v.flyTo(120, 0, probeHeight)
			time.Sleep(6 * time.Second)
			here := v.place()
			v.flyTo(here.north, here.east, probeHeight)
			past, back := v.comesBack(25 * time.Second)
			v.within("past", past, 5, 25, 3)
			v.within("back", back/past, 0.8, 1.1, 0.25)
		}},
	{heading: "ArduPilot: hold", from: air, fact: "GUIDED during a goto is accepted and changes nothing",
		run: func(v *probed) {
			v.flyTo(40, 0, probeHeight)
			time.Sleep(2 * time.Second)
			v.equal("answer", v.setMode(simArduGuided).last(), simAccepted)
			v.arrives(40, 0, probeHeight, 1)
		}},
}

// copterParamProbes are about the names and units of the parameters that mavrest reads.
func copterParamProbes() (probes []probe) {
	for _, p := range []struct {
		heading       string
		since, until  release
		name, unknown string // parameters that these releases have, and do not have
		value         float64
		fact          string
	}{
		{"ArduPilot: goto", release{}, release{4, 6}, "WPNAV_SPEED", "WP_SPD", 1000, "WPNAV_SPEED is 1000, in cm/s"},
		{"ArduPilot: goto", release{4, 7}, release{}, "WP_SPD", "WPNAV_SPEED", 10, "WP_SPD is 10, in m/s"},
		{"ArduPilot: sticks", release{}, release{4, 6}, "SYSID_MYGCS", "MAV_GCS_SYSID", 255, "SYSID_MYGCS is 255"},
		{"ArduPilot: sticks", release{4, 7}, release{}, "MAV_GCS_SYSID", "SYSID_MYGCS", 255, "MAV_GCS_SYSID is 255"},
	} {
		probes = append(probes, probe{heading: p.heading, since: p.since, until: p.until, from: ground, fact: p.fact,
			run: func(v *probed) {
				got, ok := v.readParam(p.name)
				v.must(ok, "%s is not answered", p.name)
				v.equal(p.name, got, p.value)
				_, ok = v.readParam(p.unknown)
				v.equal(p.unknown, ok, false)
			}})
	}
	return probes
}

var copterStickProbes = []probe{
	{heading: "ArduPilot: sticks", from: air, fact: "a stick from another system than the ground station's is dropped",
		run: func(v *probed) {
			v.transmit(radioHand)
			defer v.transmit(radioIdle)
			time.Sleep(500 * time.Millisecond)
			v.must(v.setMode(simLoiter).last() == simAccepted, "no LOITER")
			for range 60 {
				v.ours.send(&common.MessageManualControl{Target: v.system, X: 500, Z: 500})
				time.Sleep(50 * time.Millisecond)
			}
			v.within("m/s", v.place().speed, 0, 0.1, 0.4)
		}},
	{heading: "ArduPilot: sticks", from: air,
		fact: "from 255, x 500 flies about 4.3 m/s in LOITER, and z 500 holds the height", run: func(v *probed) {
			v.centre(400 * time.Millisecond)
			v.must(v.setMode(simLoiter).last() == simAccepted, "no LOITER")
			v.keepSticks(8*time.Second, 500, 0, 500, 0)
			s := v.place()
			v.within("m/s", s.speed, 4, 4.5, 0.8)
			v.within("height", s.up, probeHeight-0.3, probeHeight+0.3, 1)
			v.setMode(simArduGuided)
		}},
	{heading: "ArduPilot: sticks", from: air, fact: "RC_CHANNELS shows the override, whose last value stays for 3 s",
		run: func(v *probed) {
			v.command(simInterval, 65, 20000)
			v.keepSticks(time.Second, 300, 0, 500, 0)
			m := mustAsk[*common.MessageRcChannels](v)
			v.within("throttle µs", float64(m.Chan3Raw), 1500, 1500, 30)
			v.silence()
			began := time.Now()
			at, ok := v.await(v.ours, began.Add(300*time.Millisecond), 6*time.Second, func(m message.Message) bool {
				c, ok := m.(*common.MessageRcChannels)
				return ok && c.Chan3Raw < 1100
			})
			v.command(simInterval, 65, -1)
			v.must(ok, "the last value stays")
			v.within("s", at.Sub(began).Seconds(), 2.9, 3, 0.2)
		}},
	{heading: "ArduPilot: release", from: air,
		fact: "32767 on all axes gives the receiver back its sticks in 9 to 18 ms", run: func(v *probed) {
			v.command(simInterval, 65, 10000)
			v.centre(time.Second)
			v.silence()
			free := int16(math.MaxInt16)
			sent := time.Now()
			v.ours.sendAs(255, componentID, &common.MessageManualControl{Target: v.system, X: free, Y: free, Z: free,
				R: free})
			at, ok := v.await(v.ours, sent, time.Second, func(m message.Message) bool {
				c, ok := m.(*common.MessageRcChannels)
				return ok && c.Chan3Raw < 1100
			})
			v.command(simInterval, 65, -1)
			v.must(ok, "not released")
			v.ms("released", at.Sub(sent), 9, 18, 40) // RC_CHANNELS comes each 10 to 20 ms
		}},
	{heading: "ArduPilot: release", from: air, fact: "an axis at 32767 follows the receiver", run: func(v *probed) {
		v.transmit(radioIdle)
		free := int16(math.MaxInt16)
		v.keepSticks(time.Second, free, free, 500, free)
		m := mustAsk[*common.MessageRcChannels](v)
		v.within("throttle µs", float64(m.Chan3Raw), 1500, 1500, 30)
		pitched := radioIdle
		pitched[1] = 1300
		v.transmit(pitched)
		time.Sleep(500 * time.Millisecond)
		m = mustAsk[*common.MessageRcChannels](v)
		v.transmit(radioIdle)
		v.within("pitch µs", math.Abs(float64(m.Chan2Raw)-1500), 200, 200, 30)
	}},
	{heading: "ArduPilot: release", from: air, fact: "channel 5, the mode switch, shows through an override",
		run: func(v *probed) {
			v.transmit(radioIdle)
			v.centre(time.Second)
			read := func() (throttle, mode float64) {
				m := mustAsk[*common.MessageRcChannels](v)
				return float64(m.Chan3Raw), float64(m.Chan5Raw)
			}
			_, before := read()
			moved := radioIdle
			moved[4], moved[2] = 1700, 1400
			v.transmit(moved)
			time.Sleep(500 * time.Millisecond)
			throttle, mode := read()
			v.transmit(radioIdle)
			time.Sleep(time.Second) // ArduPilot follows the switch back, and sets its mode
			v.within("switch moved by µs", math.Abs(mode-before), 100, 100, 20)
			v.within("throttle µs", throttle, 1500, 1500, 30)
		}},
	{heading: "ArduPilot: without a stream", from: air, fact: "LOITER under an idle receiver sinks 2.4 m/s",
		run: func(v *probed) {
			v.transmit(radioIdle)
			time.Sleep(4 * time.Second) // the last probe's sticks act for 3 s more
			v.must(v.setMode(simLoiter).last() == simAccepted, "no LOITER")
			time.Sleep(2 * time.Second)
			before := v.place().up
			began := time.Now()
			time.Sleep(2 * time.Second)
			v.within("m/s", (before-v.place().up)/time.Since(began).Seconds(), 2.3, 2.5, 0.5)
			v.setMode(simArduGuided)
		}},
	{heading: "ArduPilot: sticks", from: air, fact: "in GUIDED a centred stream has no effect", run: func(v *probed) {
		v.centre(5 * time.Second)
		s := v.place()
		v.within("off by", s.off(spot{}), 0, 1.5, 1.5)
		v.within("height", s.up, probeHeight-1, probeHeight+1, 0.5)
	}},
}

var planeProbes = []probe{
	{heading: "QuadPlane", on: onQuadPlane, from: ground,
		fact: "a QuadPlane reports type 1 and a vtol_state that is not 0: on the ground 4 in FBWA, 3 in QHOVER",
		run: func(v *probed) {
			v.equal("type", v.beat().Type, common.MAV_TYPE_FIXED_WING)
			for mode, want := range map[uint32]common.MAV_VTOL_STATE{
				simPlaneFBWA: common.MAV_VTOL_STATE_FW, simPlaneQHover: common.MAV_VTOL_STATE_MC,
			} {
				v.setMode(mode)
				time.Sleep(500 * time.Millisecond)
				m := mustAsk[*common.MessageExtendedSysState](v)
				v.equal(fmt.Sprint("vtol_state in mode ", mode), m.VtolState, want)
			}
		}},
	{heading: "QuadPlane", on: onQuadPlane, from: ground, fact: "NAV_TAKEOFF in GUIDED climbs and hovers",
		run: func(v *probed) {
			v.takeOff(15)
			time.Sleep(5 * time.Second)
			v.within("off by", v.place().off(spot{}), 0, 1, 1)
		}},
	{heading: "QuadPlane", on: onQuadPlane, from: ground,
		fact: "with Q_GUIDED_MODE 0 it hovers in GUIDED after NAV_TAKEOFF, and GUIDED again changes nothing",
		run: func(v *probed) {
			v.setParam("Q_GUIDED_MODE", 0)
			defer v.setParam("Q_GUIDED_MODE", 1)
			v.takeOff(15)
			v.equal("GUIDED again", v.setMode(simPlaneGuided).last(), simAccepted)
			time.Sleep(20 * time.Second)
			v.within("off by", v.place().off(spot{}), 0, 1, 1)
			v.within("height", v.place().up, 14, 16, 1)
			v.equal("vtol_state", mustAsk[*common.MessageExtendedSysState](v).VtolState, common.MAV_VTOL_STATE_MC)
			v.equal("NAV_TAKEOFF again", v.command(simTakeoff, 0, 0, 0, 0, 0, 0, 5).last(), simFailed)
		}},
	{heading: "QuadPlane", on: onQuadPlane, from: air, fact: "CONDITION_YAW is UNSUPPORTED", run: func(v *probed) {
		v.equal("answer", v.command(common.MAV_CMD_CONDITION_YAW, 90, 0, 0, 0).last(), simUnsupported)
	}},
	{heading: "QuadPlane", on: onQuadPlane, from: air, fact: "with Q_GUIDED_MODE 1 a goto hovers at its place",
		run: func(v *probed) {
			v.setParam("Q_GUIDED_MODE", 1)
			v.flyTo(30, 0, probeHeight)
			v.arrives(30, 0, probeHeight, 1.5)
		}},
	{heading: "QuadPlane", on: onQuadPlane, from: air, fact: "QLOITER with its sticks in the middle stays",
		run: func(v *probed) {
			v.centre(400 * time.Millisecond)
			v.must(v.setMode(simPlaneQLoiter).last() == simAccepted, "no QLOITER")
			time.Sleep(3 * time.Second)
			here := v.place()
			time.Sleep(15 * time.Second)
			v.within("off by", v.place().off(here), 0, 0.4, 1)
			v.within("m climbed", v.place().up-here.up, -0.2, 0.2, 0.5)
			v.setMode(simPlaneGuided)
		}},
	{heading: "QuadPlane", on: onQuadPlane, from: air,
		fact: "vtol_state is 1 on the way to the wing and 4 on it, and 3 again once QLOITER hovers",
		run: func(v *probed) {
			v.centre(400 * time.Millisecond)
			v.must(v.setMode(simPlaneCruise).last() == simAccepted, "no CRUISE")
			v.vtolState(common.MAV_VTOL_STATE_TRANSITION_TO_FW, 2*time.Second)
			v.vtolState(common.MAV_VTOL_STATE_FW, time.Minute)
			time.Sleep(3 * time.Second)
			v.within("m/s", v.place().speed, 17, 27, 3)
			v.must(v.setMode(simPlaneQLoiter).last() == simAccepted, "no QLOITER")
			v.vtolState(common.MAV_VTOL_STATE_MC, time.Minute)
			v.setMode(simPlaneGuided)
		}},
	{heading: "QuadPlane", on: onQuadPlane, from: air, fact: "QLAND lands at the present place", run: func(v *probed) {
		here := v.place()
		v.equal("answer", v.setMode(simPlaneQLand).last(), simAccepted)
		v.disarms(3 * time.Minute)
		v.within("off by", v.place().off(here), 0, 1, 1.5)
	}},
	{heading: "QuadPlane", on: onQuadPlane, from: air,
		fact: "with Q_GUIDED_MODE 0 a ground speed sets MIN_GROUNDSPEED, and an air speed does not",
		run: func(v *probed) {
			v.setParam("Q_GUIDED_MODE", 0)
			defer v.setParam("Q_GUIDED_MODE", 1)
			defer v.setParam("MIN_GROUNDSPEED", 0)
			v.flyTo(0, 0, 40)
			for _, c := range []struct{ kind, want float64 }{{0, 0}, {1, 15}} {
				v.equal("answer", v.command(common.MAV_CMD_DO_CHANGE_SPEED, c.kind, 15).last(), simAccepted)
				got, ok := v.readParam("MIN_GROUNDSPEED")
				v.must(ok, "MIN_GROUNDSPEED is not answered")
				v.equal("MIN_GROUNDSPEED", got, c.want)
			}
			v.command(common.MAV_CMD_DO_CHANGE_SPEED, 0, -2)
		}},
	{heading: "QuadPlane", on: onQuadPlane, from: air, fact: "with Q_GUIDED_MODE 0 a goto circles 75 m off at 26 m/s",
		run: func(v *probed) {
			v.setParam("Q_GUIDED_MODE", 0)
			defer v.setParam("Q_GUIDED_MODE", 1)
			v.flyTo(0, 0, 40)
			time.Sleep(60 * time.Second)
			s := v.place()
			v.within("m/s", s.speed, 24, 28, 4)
			v.within("off by", s.off(spot{}), 70, 90, 30)
		}},
	{heading: "Plane", on: onPlane, from: ground, fact: "a plane's vtol_state is 0, and it refuses NAV_TAKEOFF",
		run: func(v *probed) {
			m := mustAsk[*common.MessageExtendedSysState](v)
			v.equal("vtol_state", m.VtolState, common.MAV_VTOL_STATE_UNDEFINED)
			v.equal("22", v.command(simTakeoff, 0, 0, 0, 0, 0, 0, 20).last(), simFailed)
		}},
	{heading: "Plane", on: onPlane, from: ground,
		fact: "armed in GUIDED a plane stays; in TAKEOFF it is IN_AIR during the ground roll, climbs to TKOFF_ALT " +
			"and circles, in RTL over home", run: func(v *probed) {
			v.must(v.setMode(simPlaneGuided).last() == simAccepted, "no GUIDED")
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			time.Sleep(5 * time.Second)
			v.within("m/s, armed in GUIDED", v.place().speed, 0, 1, 0)
			v.must(v.setMode(simPlaneTakeoff).last() == simAccepted, "no TAKEOFF")
			rolled := false
			v.until(15*time.Second, func() bool {
				m, ok := v.ask(245).(*common.MessageExtendedSysState)
				s := v.place()
				rolled = rolled || ok && m.LandedState == common.MAV_LANDED_STATE_IN_AIR && s.up < 1 && s.speed > 3
				return rolled
			})
			v.equal("in the air on the runway", rolled, true)
			time.Sleep(70 * time.Second)
			s := v.place()
			v.within("height", s.up, 45, 55, 10)
			v.within("m/s", s.speed, 15, 28, 5)
			v.setMode(simPlaneRTL)
			time.Sleep(70 * time.Second)
			v.within("off home", v.place().off(spot{}), 50, 100, 40)
		}},
	{heading: "Plane", on: onPlane, from: air,
		fact: "an air speed is flown in GUIDED, holds for the next place too, and −2 is the vehicle's own again",
		run: func(v *probed) {
			flown := func(speed float64) float64 {
				if speed != 0 {
					v.equal("answer", v.command(common.MAV_CMD_DO_CHANGE_SPEED, 0, speed).last(), simAccepted)
				}
				time.Sleep(15 * time.Second)
				return v.place().speed
			}
			v.flyTo(3000, 0, 60)
			own := flown(0)
			v.within("m/s at 15", flown(15), 14.5, 16, 1)
			v.flyTo(6000, 0, 60)
			v.within("m/s to the next place", flown(0), 14.5, 16, 1)
			v.within("m/s less at −2", own-flown(-2), -1, 1, 1)
			v.setMode(simPlaneRTL)
		}},
	{heading: "Plane", on: onPlane, from: air, fact: "an air speed beyond AIRSPEED_MIN and AIRSPEED_MAX is FAILED",
		run: func(v *probed) {
			v.flyTo(0, 0, 60)
			for _, speed := range []float64{5, 45} {
				v.equal("answer", v.command(common.MAV_CMD_DO_CHANGE_SPEED, 0, speed).last(), simFailed)
			}
		}},
	{heading: "Plane", on: onPlane, from: air, fact: "a ground speed sets MIN_GROUNDSPEED, an air speed does not",
		run: func(v *probed) {
			minimum := func() float64 {
				got, ok := v.readParam("MIN_GROUNDSPEED")
				v.must(ok, "MIN_GROUNDSPEED is not answered")
				return got
			}
			v.flyTo(0, 0, 60)
			v.equal("before", minimum(), 0)
			v.equal("air speed", v.command(common.MAV_CMD_DO_CHANGE_SPEED, 0, 15).last(), simAccepted)
			v.equal("after an air speed", minimum(), 0)
			defer v.setParam("MIN_GROUNDSPEED", 0)
			v.equal("ground speed", v.command(common.MAV_CMD_DO_CHANGE_SPEED, 1, 15).last(), simAccepted)
			v.equal("after a ground speed", minimum(), 15)
			v.command(common.MAV_CMD_DO_CHANGE_SPEED, 0, -2)
		}},
	{heading: "Plane", on: onPlane, from: air, fact: "in FBWB the throttle is the speed, and the pitch the climb",
		run: func(v *probed) {
			v.centre(400 * time.Millisecond)
			v.must(v.setMode(6).last() == simAccepted, "no FBWB")
			v.keepSticks(8*time.Second, 0, 0, 500, 0)
			began := v.place()
			v.keepSticks(8*time.Second, 600, 0, 500, 0)
			low := v.place()
			v.within("m climbed by pitch 0.6", low.up-began.up, -10, -5, 3)
			v.keepSticks(10*time.Second, 0, 0, 900, 0)
			v.within("m/s faster by throttle 0.9", v.place().speed-low.speed, 6, 8, 2)
			v.setMode(simPlaneGuided)
		}},
}
