package main

import (
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// px4Crafts are PX4's vehicles that have probes of their own, by MAV_TYPE.
var px4Crafts = map[common.MAV_TYPE]craft{
	common.MAV_TYPE_FIXED_WING:               onPX4Plane,
	common.MAV_TYPE_VTOL_FIXEDROTOR:          onPX4VTOL,
	common.MAV_TYPE_VTOL_TAILSITTER_DUOROTOR: onPX4VTOL,
	common.MAV_TYPE_GROUND_ROVER:             onPX4Rover,
}

const simTransition = common.MAV_CMD_DO_VTOL_TRANSITION

// vtolState waits for a vtol_state.
func (v *probed) vtolState(want common.MAV_VTOL_STATE, most time.Duration) {
	_, ok := v.until(most, func() bool {
		m, ok := v.ask(245).(*common.MessageExtendedSysState)
		return ok && m.VtolState == want
	})
	v.equal("comes to "+want.String(), ok, true)
}

// landedState is the one that it reports now.
func (v *probed) landedState() common.MAV_LANDED_STATE {
	return mustAsk[*common.MessageExtendedSysState](v).LandedState
}

var px4KindProbes = []probe{
	{heading: "PX4: on a wing", on: onPX4VTOL, from: ground, fact: "a VTOL's vtol_state is 3 on the ground",
		run: func(v *probed) {
			v.equal("vtol_state", mustAsk[*common.MessageExtendedSysState](v).VtolState, common.MAV_VTOL_STATE_MC)
		}},
	{heading: "PX4: on a wing", on: onPX4VTOL, from: air,
		fact: "vtol_state is 1 within 0.3 s of a transition's ack and 4 at its end, back 2 and 3",
		run: func(v *probed) {
			v.equal("to the wing", v.command(simTransition, 4).last(), simAccepted)
			v.vtolState(common.MAV_VTOL_STATE_TRANSITION_TO_FW, 300*time.Millisecond)
			v.vtolState(common.MAV_VTOL_STATE_FW, 30*time.Second)
			v.equal("back", v.command(simTransition, 3).last(), simAccepted)
			v.vtolState(common.MAV_VTOL_STATE_TRANSITION_TO_MC, 300*time.Millisecond)
			v.vtolState(common.MAV_VTOL_STATE_MC, 60*time.Second)
		}},
	{heading: "PX4: on a wing", on: onPX4VTOL, from: ground,
		fact: "DO_VTOL_TRANSITION is TEMPORARILY_REJECTED in AUTO.TAKEOFF and AUTO.LAND", run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			v.must(v.takeOffHere(v.homeAlt()+20).last() == simAccepted, "no takeoff")
			v.until(30*time.Second, func() bool { return v.place().up > 5 })
			v.equal("in AUTO.TAKEOFF", v.command(simTransition, 4).last(), simRejected)
			v.must(v.setMode(simPX4Land).last() == simAccepted, "no landing")
			time.Sleep(time.Second)
			v.equal("in AUTO.LAND", v.command(simTransition, 4).last(), simRejected)
			v.disarms(2 * time.Minute)
		}},
	{heading: "PX4: on a wing", on: onPX4VTOL, from: air,
		fact: "on its wing a goto circles 70 to 90 m round its place", run: func(v *probed) {
			v.must(v.command(simTransition, 4).last() == simAccepted, "no transition")
			v.vtolState(common.MAV_VTOL_STATE_FW, 30*time.Second)
			v.flyTo(300, 0, 40)
			time.Sleep(90 * time.Second)
			s := v.place()
			v.within("off by", s.off(spot{north: 300}), 70, 90, 20)
			v.within("m/s", s.speed, 5, 25, 0)
			v.setMode(simPX4RTL)
			v.disarms(5 * time.Minute)
		}},
	{heading: "PX4: on a wing", on: onPX4Plane, from: ground,
		fact: "a plane's takeoff reports landed_state 3 on the roll, takes its height and ends in AUTO.LOITER; " +
			"AUTO.LAND lands it", run: func(v *probed) {
			v.equal("vtol_state", mustAsk[*common.MessageExtendedSysState](v).VtolState,
				common.MAV_VTOL_STATE_UNDEFINED)
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			v.must(v.takeOffHere(v.homeAlt()+30).last() == simAccepted, "no takeoff")
			rolled := false
			v.until(15*time.Second, func() bool {
				rolled = rolled || v.landedState() == common.MAV_LANDED_STATE_TAKEOFF && v.place().up < 1
				return rolled
			})
			v.equal("landed_state 3 on the roll", rolled, true)
			_, ends := v.until(time.Minute, func() bool { return v.beat().CustomMode == simPX4Loiter })
			v.equal("ends in AUTO.LOITER", ends, true)
			time.Sleep(20 * time.Second)
			s := v.place()
			v.within("height", s.up, 27, 33, 3)
			v.within("m/s", s.speed, 8, 20, 0)
			v.must(v.setMode(simPX4Land).last() == simAccepted, "no landing")
			v.disarms(4 * time.Minute)
		}},
	{heading: "PX4: on wheels", on: onPX4Rover, from: ground,
		fact: "with half a throttle MANUAL arms and the rover stands, with a lower one it drives backwards",
		run: func(v *probed) {
			here := v.place()
			v.keepSticks(400*time.Millisecond, 0, 0, 500, 0)
			v.must(v.setMode(simPX4Manual).last() == simAccepted, "no MANUAL")
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			time.Sleep(5 * time.Second)
			v.within("moved", v.place().off(here), 0, 0.5, 0.5)
			here = v.place()
			v.keepSticks(2*time.Second, 0, 0, 200, 0)
			v.within("moved with 200", v.place().off(here), 1, 10, 0)
			v.keepSticks(3*time.Second, 0, 0, 500, 0)
			v.within("m/s in the middle again", v.place().speed, 0, 0.5, 0.3)
			v.equal("disarming", v.command(simArm, 0).last(), simAccepted)
		}},
	{heading: "PX4: on wheels", on: onPX4Rover, from: ground,
		fact: "an armed rover is IN_AIR, and disarms when it is told to", run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			time.Sleep(3 * time.Second)
			v.equal("landed_state", v.landedState(), common.MAV_LANDED_STATE_IN_AIR)
			v.equal("disarming", v.command(simArm, 0).last(), simAccepted)
			time.Sleep(2 * time.Second)
			v.equal("landed_state", v.landedState(), common.MAV_LANDED_STATE_ON_GROUND)
		}},
	{heading: "PX4: on wheels", on: onPX4Rover, from: ground, fact: "a goto arrives whatever its height is",
		run: func(v *probed) {
			v.must(v.command(simArm, 1).last() == simAccepted, "not armed")
			v.flyTo(15, 5, 20)
			_, ok := v.until(time.Minute, func() bool { return v.place().off(spot{north: 15, east: 5}) < 1.5 })
			v.equal("arrives", ok, true)
			v.within("height", math.Abs(v.place().up), 0, 2, 1)
			v.command(simArm, 0)
		}},
}
