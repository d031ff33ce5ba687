package main

import (
	"math"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func simOnQuadPlane(t *testing.T, guided float64, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simQuadPlane, simWithReceiver, func(b *simBoard) {
		b.change(func() { b.params["Q_GUIDED_MODE"] = guided })
		time.Sleep(6 * time.Second)
		test(b)
	})
}

func (b *simBoard) vtolState() common.MAV_VTOL_STATE {
	b.forget()
	b.long(common.MAV_CMD_REQUEST_MESSAGE, 245)
	return simAll[*common.MessageExtendedSysState](b)[0].VtolState
}

func TestQuadPlaneIsAFixedWingWithAVtolState(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		b.want("type", simLast[*common.MessageHeartbeat](b).Type, common.MAV_TYPE_FIXED_WING)
		b.want("vtol_state of the first message", b.vtolState(), common.MAV_VTOL_STATE_MC)
		b.want("first mode", b.truth().mode, uint32(0))
		b.change(func() { b.params["Q_MAV_TYPE"] = 20 })
		b.want("another Q_MAV_TYPE", simLast[*common.MessageHeartbeat](b).Type, common.MAV_TYPE(20))
	})
}

func TestQuadPlaneAnswersForItsParameters(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		for name, value := range map[string]float32{"SYSID_MYGCS": 255, "FS_GCS_ENABL": 0, "Q_GUIDED_MODE": 0} {
			b.forget()
			b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: name, ParamIndex: -1})
			b.want(name, simLast[*common.MessageParamValue](b).ParamValue, value)
		}
		b.forget()
		b.write(&common.MessageParamRequestRead{TargetSystem: 1, TargetComponent: 1, ParamId: "FS_GCS_ENABLE", ParamIndex: -1})
		time.Sleep(50 * time.Millisecond)
		b.want("Copter's name", b.count(22), 0)
	})
}

func TestQuadPlanesGuidedCirclesForEver(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		b.setMode(simPlaneGuided)
		b.want("arm", b.long(simArm, 1), simResults(simAccepted))
		b.want("takeoff", b.long(simTakeoff, 0, 0, 0, 0, 0, 0, 20), simResults(simAccepted))
		time.Sleep(10 * time.Second)
		b.want("vtol_state in the climb", b.vtolState(), common.MAV_VTOL_STATE_MC)
		b.wantPlace(0, 0, b.truth().alt, 0.5)
		b.until("wing", time.Minute, func(s simState) bool { return math.Hypot(s.vn, s.ve) > 5 })
		b.want("vtol_state after it", b.vtolState(), common.MAV_VTOL_STATE_TRANSITION_TO_FW)
		time.Sleep(10 * time.Second)
		b.want("goto", b.fly(300, 0, 30), simResults(simAccepted))
		time.Sleep(time.Minute)
		b.want("vtol_state", b.vtolState(), common.MAV_VTOL_STATE_FW)
		for range 600 {
			if t.Failed() {
				return
			}
			time.Sleep(time.Second)
			n, e, alt := b.place()
			now := b.truth()
			b.near("metres off", math.Hypot(n-300, e), 75, 5)
			b.near("m/s", math.Hypot(now.vn, now.ve), 26, 0.1)
			b.near("height", alt, 30, 0.5)
		}
	})
}

func TestQuadPlanesGuidedHoversWhereItIsToldTo(t *testing.T) {
	simOnQuadPlane(t, 1, func(b *simBoard) {
		b.placeInAir(10)
		b.fly(60, 0, 10)
		time.Sleep(40 * time.Second)
		b.wantPlace(60, 0, 10, 0.1)
		b.want("vtol_state", b.vtolState(), common.MAV_VTOL_STATE_MC)
		b.want("QLAND", b.setMode(simPlaneQLand), simResults(simAccepted))
		d := b.until("disarmed", 2*time.Minute, func(s simState) bool { return !s.armed })
		b.near("seconds", d.Seconds(), 35, 2)
		b.wantPlace(60, 0, 0, 0.1)
		time.Sleep(5 * time.Second)
		b.want("mode", b.truth().mode, uint32(simPlaneQLand))
	})
}

func TestQuadPlaneLandsOutOfACircle(t *testing.T) {
	simOnQuadPlane(t, 0, func(b *simBoard) {
		b.placeInAir(30)
		time.Sleep(30 * time.Second)
		b.setMode(simPlaneQLand)
		b.want("vtol_state", b.vtolState(), common.MAV_VTOL_STATE_TRANSITION_TO_MC)
		b.until("disarmed", 3*time.Minute, func(s simState) bool { return !s.armed })
	})
}

func TestQuadPlaneReturnsInTwoWays(t *testing.T) {
	simOnQuadPlane(t, 1, func(b *simBoard) {
		b.placeInAir(30)
		b.placeAt(simPlace(100, 0))
		b.want("command", b.long(common.MAV_CMD_NAV_RETURN_TO_LAUNCH), simResults(simAccepted))
		b.want("is RTL", b.truth().mode, uint32(simPlaneRTL))
		time.Sleep(3 * time.Minute)
		n, e, _ := b.place()
		b.near("which circles", math.Hypot(n, e), 75, 5)
		b.want("QRTL", b.setMode(simPlaneQRTL), simResults(simAccepted))
		b.until("lands", 4*time.Minute, func(s simState) bool { return !s.armed })
		b.wantPlace(0, 0, 0, 0.5)
		b.want("mode", b.truth().mode, uint32(simPlaneQRTL))
	})
}

func TestQuadPlanesModeNumbersAreAPlanes(t *testing.T) {
	simOnQuadPlane(t, 1, func(b *simBoard) {
		b.placeInAir(40)
		b.want("17", b.setMode(17), simResults(simAccepted))
		time.Sleep(2 * time.Second)
		if vd := b.truth().vd; vd < 3 {
			t.Errorf("17 is QSTABILIZE, which falls; %.1f m/s", vd)
		}
		b.want("9", b.setMode(9), simResults(simFailed))
		b.want("NAV_LAND", b.long(common.MAV_CMD_NAV_LAND), simResults(simUnsupported))
		for custom, name := range map[uint32]string{18: "QHOVER", 19: "QLOITER", 20: "QLAND", 6: "FBWB", 11: "RTL"} {
			b.want(name, b.row(custom).name, name)
		}
	})
}

func TestQuadPlaneClaimsAReceiverThatWasNeverThere(t *testing.T) {
	simFlight(t, simQuadPlane, func(s *simulator) { s.receiver = simReceiverNone }, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		b.long(common.MAV_CMD_REQUEST_MESSAGE, 1)
		m, bit := simAll[*common.MessageSysStatus](b)[0], common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
		b.want("present", m.OnboardControlSensorsPresent&bit, bit)
		b.want("enabled", m.OnboardControlSensorsEnabled&bit, bit)
		b.want("healthy", m.OnboardControlSensorsHealth&bit, common.MAV_SYS_STATUS_SENSOR(0))
	})
}
