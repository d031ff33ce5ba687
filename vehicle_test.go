package main

import (
	"testing"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func TestTheHeartbeatSaysWhichFirmwareFlies(t *testing.T) {
	ardupilot := map[common.MAV_TYPE]firmware{
		1: plane, 2: copter, 3: copter, 4: copter, 13: copter, 14: copter, 15: copter, 29: copter, 35: copter,
		19: quadPlane, 20: quadPlane, 21: quadPlane, 22: quadPlane, 23: quadPlane, 24: quadPlane, 25: quadPlane,
		10: arduRover, 11: arduRover, 12: arduSub,
	}
	for typ := common.MAV_TYPE(0); typ < 50; typ++ {
		if got, want := (identity{autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA, typ: typ}).firmware(),
			ardupilot[typ]; got != want {
			t.Errorf("ArduPilot on MAV_TYPE %d is %d, want %d", typ, got, want)
		}
		if got := (identity{autopilot: common.MAV_AUTOPILOT_PX4, typ: typ}).firmware(); got != px4 {
			t.Errorf("PX4 on MAV_TYPE %d is %d, want %d", typ, got, px4)
		}
		for _, other := range []common.MAV_AUTOPILOT{common.MAV_AUTOPILOT_GENERIC, common.MAV_AUTOPILOT_INVALID, 200} {
			if got := (identity{autopilot: other, typ: typ}).firmware(); got != firmwareUnknown {
				t.Errorf("autopilot %d on MAV_TYPE %d is %d, want unknown", other, typ, got)
			}
		}
	}
}
