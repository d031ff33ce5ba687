package main

import (
	"fmt"
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// cruise flies north and returns while it is fast.
func (v *probed) cruise(speed float64) {
	lat, lon := v.e7(150, 0)
	v.exact(simGoto, common.MAV_FRAME_GLOBAL, speed, 1, math.NaN(), lat, lon, v.homeAlt()+probeHeight)
	time.Sleep(6 * time.Second)
}

// back watches a stop for so long, and returns how far it came back.
func (v *probed) comesBack(d time.Duration) (past, back float64) {
	began := time.Now()
	start, _, _, _ := v.place()
	far := start
	now := start
	for time.Since(began) < d {
		now, _, _, _ = v.place()
		far = max(far, now)
		time.Sleep(50 * time.Millisecond)
	}
	return far - start, far - now
}

var px4FlightProbes = []probe{
	{heading: "PX4: takeoff and land", from: air, fact: "NAV_LAND lands here whatever its place, disarms 2 s after the touch, and goes to AUTO.LOITER", run: func(v *probed) {
		v.command(simInterval, 245, 100000)
		north, east, _, _ := v.place()
		h := v.home()
		a := v.command(common.MAV_CMD_NAV_LAND, 0, 0, 0, math.NaN(), float64(h.Latitude)/1e7+25/simDegree, float64(h.Longitude)/1e7, 0)
		v.equal("answer", a.last(), simAccepted)
		v.equal("mode", v.mode(), uint32(simPX4Land))
		down, ok := v.await(v.ours, a.sent, 2*time.Minute, func(m message.Message) bool {
			e, ok := m.(*common.MessageExtendedSysState)
			return ok && e.LandedState == common.MAV_LANDED_STATE_ON_GROUND
		})
		v.must(ok, "it does not land")
		_, ok = v.until(10*time.Second, func() bool { return !v.armed() })
		v.must(ok, "it stays armed")
		v.within("s to the disarming", time.Since(down).Seconds(), 1.8, 2.3, 0.7)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
		n, e, _, _ := v.place()
		v.within("off by", math.Hypot(n-north, e-east), 0, 1, 1)
	}},
	{heading: "PX4: takeoff and land", from: air, fact: "RTL disarms on the ground and goes to AUTO.LOITER", run: func(v *probed) {
		v.equal("answer", v.setMode(simPX4RTL).last(), simAccepted)
		_, ok := v.until(3*time.Minute, func() bool { return !v.armed() })
		v.must(ok, "it does not land")
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
	}},
	{heading: "PX4: goto", from: air, fact: "DO_REPOSITION arrives within a metre", run: func(v *probed) {
		a := v.flyTo(20, 10, probeHeight+3)
		v.equal("answers", a.results, []common.MAV_RESULT{simAccepted})
		v.arrives(20, 10, probeHeight+3, 1.2)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
	}},
	{heading: "PX4: goto", from: air, fact: "its altitude is AMSL in frame 6 too", run: func(v *probed) {
		lat, lon := v.e7(0, 10)
		a := v.exact(simGoto, common.MAV_FRAME_GLOBAL_RELATIVE_ALT_INT, -1, 1, math.NaN(), lat, lon, v.homeAlt()+probeHeight)
		v.equal("answer", a.last(), simAccepted)
		v.arrives(0, 10, probeHeight, 1.2)
	}},
	{heading: "PX4: goto", from: air, fact: "param2 0 is UNSUPPORTED, and flown in AUTO.LOITER all the same", run: func(v *probed) {
		lat, lon := v.e7(10, 0)
		a := v.exact(simGoto, common.MAV_FRAME_GLOBAL, -1, 0, math.NaN(), lat, lon, v.homeAlt()+probeHeight)
		v.equal("answer", a.last(), simUnsupported)
		v.arrives(10, 0, probeHeight, 1.2)
	}},
	{heading: "PX4: goto", from: air, fact: "speed 3 flies 2.7 to 3 m/s", run: func(v *probed) {
		lat, lon := v.e7(60, 0)
		v.exact(simGoto, common.MAV_FRAME_GLOBAL, 3, 1, math.NaN(), lat, lon, v.homeAlt()+probeHeight)
		time.Sleep(8 * time.Second)
		_, _, _, speed := v.place()
		v.within("m/s", speed, 2.7, 3, 0.3)
	}},
	{heading: "PX4: goto", from: air, fact: "yaw is in radians", run: func(v *probed) {
		lat, lon := v.e7(0, 0)
		v.exact(simGoto, common.MAV_FRAME_GLOBAL, -1, 1, math.Pi/2, lat, lon, v.homeAlt()+probeHeight)
		time.Sleep(12 * time.Second)
		m, ok := v.ask(30).(*common.MessageAttitude)
		v.must(ok, "no attitude")
		v.within("rad", float64(m.Yaw), 1.5, 1.64, 0.1)
	}},
	{heading: "PX4: goto", from: ground, fact: "disarmed it is accepted, sets AUTO.LOITER and drops the target", run: func(v *probed) {
		v.setMode(simPX4RTL)
		v.equal("answer", v.flyTo(20, 0, 20).last(), simAccepted)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
		v.equal("target", v.ask(87), nil)
	}},
	{heading: "PX4: goto", from: air, fact: "a second target is shown 3 to 600 ms after its ack", run: func(v *probed) {
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
			v.must(ok, "the target stays")
			v.ms("shown", took+300*time.Millisecond, 300, 600, 250) // it is looked at from 0.3 s on
			time.Sleep(time.Second)
		}
	}},
	{heading: "PX4: target", from: air, fact: "message 87 has frame 5, AMSL and no mask", run: func(v *probed) {
		v.flyTo(10, 0, probeHeight)
		time.Sleep(time.Second)
		m, ok := v.ask(87).(*common.MessagePositionTargetGlobalInt)
		v.must(ok, "none comes")
		v.equal("frame, mask", [2]int{int(m.CoordinateFrame), int(m.TypeMask)}, [2]int{5, 0})
		v.within("height", float64(m.Alt)-v.homeAlt(), probeHeight, probeHeight, 0.5)
	}},
	{heading: "PX4: target", from: air, fact: "in AUTO.LAND it is some 500 m below", run: func(v *probed) {
		v.setMode(simPX4Land)
		time.Sleep(500 * time.Millisecond)
		m, ok := v.ask(87).(*common.MessagePositionTargetGlobalInt)
		v.setMode(simPX4Loiter)
		v.must(ok, "none comes")
		v.within("AMSL", float64(m.Alt), -30, 30, 30)
	}},
	{heading: "PX4: target", from: handed, fact: "there is none in POSCTL", run: func(v *probed) {
		v.stick(0, 0, 500, 0)
		time.Sleep(500 * time.Millisecond)
		v.must(v.setMode(simPX4Posctl).last() == simAccepted, "refused")
		time.Sleep(500 * time.Millisecond)
		v.equal("answer", v.command(common.MAV_CMD_REQUEST_MESSAGE, 87).last(), simDenied)
	}},
	{heading: "PX4: hold", from: air, fact: "AUTO.LOITER asked for during a goto is accepted twice and changes nothing", run: func(v *probed) {
		v.flyTo(40, 0, probeHeight)
		time.Sleep(2 * time.Second)
		v.equal("answers", v.setMode(simPX4Loiter).results, []common.MAV_RESULT{simAccepted, simAccepted})
		v.arrives(40, 0, probeHeight, 1.2)
	}},
	{heading: "PX4: hold", from: air, fact: "nor does a pilot's", run: func(v *probed) {
		v.flyTo(40, 0, probeHeight)
		time.Sleep(2 * time.Second)
		v.pilots(simPX4Loiter)
		v.arrives(40, 0, probeHeight, 1.2)
	}},
	{heading: "PX4: hold", from: air, fact: "the pause (all NaN) stops and comes back at most 2.2 m from 4 m/s", run: func(v *probed) {
		v.cruise(4)
		nan := math.NaN()
		v.equal("answer", v.command(simGoto, -1, 1, 0, nan, nan, nan, nan).last(), simAccepted)
		past, back := v.comesBack(20 * time.Second)
		v.within("past", past, 4, 10, 3)
		v.within("back", back, 1.2, 1.7, 1)
		_, _, up, _ := v.place()
		v.within("height", up, probeHeight, probeHeight, 1)
	}},
	{heading: "PX4: hold", from: air, fact: "DO_REPOSITION to the present place goes past it and comes all the way back", run: func(v *probed) {
		v.cruise(5)
		n, e, _, _ := v.place()
		v.flyTo(n, e, probeHeight)
		past, back := v.comesBack(25 * time.Second)
		v.within("past", past, 4, 13, 3)
		v.within("back", back/past, 0.9, 1.2, 0.4)
	}},
}

var px4StickProbes = []probe{
	{heading: "PX4: sticks", from: air, fact: "0.4 s of a stream is enough for a stick mode", run: func(v *probed) {
		v.stick(0, 0, 500, 0)
		time.Sleep(400 * time.Millisecond)
		v.equal("answer", v.setMode(simPX4Altctl).last(), simAccepted)
		v.setMode(simPX4Posctl)
	}},
	{heading: "PX4: sticks", from: handed, fact: "z 500 holds the height in POSCTL", run: func(v *probed) {
		v.position()
		time.Sleep(8 * time.Second)
		_, _, up, _ := v.place()
		v.within("height", up, probeHeight-0.3, probeHeight+0.3, 0.7)
	}},
	{heading: "PX4: sticks", from: handed, fact: "x flies forward in POSCTL", run: func(v *probed) {
		v.position()
		v.stick(500, 0, 500, 0)
		time.Sleep(4 * time.Second)
		_, _, _, speed := v.place()
		v.within("m/s", speed, 1, 4, 1)
	}},
	{heading: "PX4: sticks", from: air, fact: "a stick for another system does nothing", run: func(v *probed) {
		for range 20 {
			v.ours.send(&common.MessageManualControl{Target: v.system + 1, Z: 500})
			time.Sleep(50 * time.Millisecond)
		}
		v.equal("POSCTL", v.setMode(simPX4Posctl).last(), simRejected)
	}},
	{heading: "PX4: sticks", from: handed, fact: "0.6 s of silence in POSCTL is Hold with a failsafe, and RTL 5 s later", run: func(v *probed) {
		v.live()
		v.position()
		v.loses()
	}},
	{heading: "PX4: sticks", from: handed, fact: "once seen, their loss is the same failsafe in AUTO.LOITER", run: func(v *probed) {
		v.live()
		v.position()
		time.Sleep(2 * time.Second)
		v.must(v.setMode(simPX4Loiter).last() == simAccepted, "refused")
		time.Sleep(time.Second)
		v.loses()
	}},
	{heading: "PX4: sticks", from: air, fact: "without sticks in this flight nothing happens", run: func(v *probed) {
		time.Sleep(8 * time.Second)
		b := v.beat()
		v.equal("mode", b.CustomMode, uint32(simPX4Loiter))
		v.equal("status", b.SystemStatus, common.MAV_STATE_ACTIVE)
	}},
	{heading: "PX4: sticks", from: handed, fact: "a step in AUTO.LOITER takes over to POSCTL", run: func(v *probed) {
		v.stick(0, 0, 500, 0)
		time.Sleep(2 * time.Second)
		v.live()
		v.stick(400, 0, 500, 0)
		at, ok := v.await(v.ours, time.Now(), time.Second, v.shows(simPX4Posctl))
		v.must(ok, "it holds")
		v.report = append(v.report, fmt.Sprint(at.IsZero()))
		v.stick(0, 0, 500, 0)
	}},
	{heading: "PX4: sticks", from: air, fact: "a constant stick never takes over", run: func(v *probed) {
		v.stick(0, 300, 500, 0)
		time.Sleep(6 * time.Second)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
	}},
	{heading: "PX4: leaving a stick mode", from: handed, fact: "0.2 s after moving sticks AUTO.LOITER is undone, 2 s after it stays", run: func(v *probed) {
		v.position()
		v.stick(1000, 0, 500, 0)
		time.Sleep(time.Second)
		v.stick(0, 0, 500, 0)
		time.Sleep(200 * time.Millisecond)
		v.setMode(simPX4Loiter)
		v.equal("0.5 s after", v.mode(), uint32(simPX4Posctl))
		time.Sleep(1500 * time.Millisecond)
		v.setMode(simPX4Loiter)
		time.Sleep(2 * time.Second)
		v.equal("4.3 s after", v.mode(), uint32(simPX4Loiter))
	}},
	{heading: "PX4: leaving a stick mode", from: handed, fact: "from ALTCTL POSCTL is in force within 0.2 s whatever the sticks did, and AUTO.LOITER stays 2.2 s later", run: func(v *probed) {
		v.live()
		v.stick(0, 0, 500, 0)
		time.Sleep(400 * time.Millisecond)
		v.must(v.setMode(simPX4Altctl).last() == simAccepted, "refused")
		v.stick(800, 0, 500, 0)
		time.Sleep(time.Second)
		v.stick(0, 0, 500, 0)
		sent := time.Now()
		v.ours.send(v.modeMessage(simPX4Posctl))
		at, ok := v.await(v.ours, sent, time.Second, v.shows(simPX4Posctl))
		v.must(ok, "no POSCTL")
		v.ms("POSCTL", at.Sub(sent), 9, 200, 0)
		time.Sleep(2200 * time.Millisecond)
		v.setMode(simPX4Loiter)
		time.Sleep(2 * time.Second)
		v.equal("mode", v.mode(), uint32(simPX4Loiter))
	}},
	{heading: "PX4: source of sticks", from: air, fact: "COM_RC_IN_MODE 4 ignores MANUAL_CONTROL", run: func(v *probed) {
		v.setParam("COM_RC_IN_MODE", 4)
		defer v.setParam("COM_RC_IN_MODE", 3)
		v.stick(0, 0, 500, 0)
		time.Sleep(time.Second)
		v.equal("POSCTL", v.setMode(simPX4Posctl).last(), simRejected)
	}},
	{heading: "PX4: source of sticks", from: air, fact: "COM_RC_IN_MODE 1 takes it", run: func(v *probed) {
		v.setParam("COM_RC_IN_MODE", 1)
		defer v.setParam("COM_RC_IN_MODE", 3)
		v.stick(0, 0, 500, 0)
		time.Sleep(time.Second)
		v.equal("POSCTL", v.setMode(simPX4Posctl).last(), simAccepted)
	}},
}

// position enters POSCTL with centred sticks.
func (v *probed) position() {
	v.stick(0, 0, 500, 0)
	time.Sleep(500 * time.Millisecond)
	a := v.setMode(simPX4Posctl)
	v.must(a.last() == simAccepted, "POSCTL: %v", a.results)
	time.Sleep(time.Second)
}

// loses ends the stream and expects the failsafe.
func (v *probed) loses() {
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

// px4UndoProbes: a pilot's switch that moving sticks undo, or not.
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
			probes = append(probes, probe{heading: "PX4: moving sticks and a pilot", from: handed, fact: fact, run: func(v *probed) {
				v.setParam("COM_RC_OVERRIDE", override)
				defer v.setParam("COM_RC_OVERRIDE", 1)
				v.live()
				v.position()
				for i := range 10 {
					v.stick([]int16{500, -500}[i%2], 0, 500, 0)
					time.Sleep(100 * time.Millisecond)
				}
				sent := time.Now()
				v.pilot.send(v.modeMessage(to.mode))
				his, ok := v.await(v.ours, sent, time.Second, v.shows(to.mode))
				v.must(ok, "his mode was never shown")
				time.Sleep(300 * time.Millisecond)
				if override == 0 {
					v.equal("mode", v.mode(), to.mode)
					return
				}
				again, ok := v.await(v.ours, his, time.Second, v.shows(simPX4Posctl))
				v.must(ok, "it stayed")
				v.ms("it stood", again.Sub(his), 12, 48, 15)
			}})
		}
	}
	return probes
}
