package main

import (
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// paramWait is how long a PARAM_VALUE is waited for; or two round trips.
const paramWait = 150 * time.Millisecond

// parameters are those of the autopilot that rules rest on.
type parameters struct {
	craft *aircraft
	acks  *acks
	told  map[string]float64 // by the vehicle
}

// parameterNames are those of each vehicle, by their present and newer names.
var parameterNames = map[firmware][]string{
	px4:       {"COM_RC_IN_MODE", "NAV_DLL_ACT"},
	copter:    {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABLE", "WPNAV_SPEED"},
	quadPlane: {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABL", "Q_GUIDED_MODE"},
	plane:     {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABL"},
}

func (p *parameters) names() []string { return parameterNames[p.craft.firmware] }

// sourceNames are of the parameters that say whose sticks count.
var sourceNames = map[firmware]string{
	px4: "COM_RC_IN_MODE", copter: "FS_GCS_ENABLE", quadPlane: "FS_GCS_ENABL", plane: "FS_GCS_ENABL",
}

func (p *parameters) request(name string) {
	p.acks.say(&common.MessageParamRequestRead{
		TargetSystem: p.craft.tel.id.system, TargetComponent: autopilotID, ParamId: name, ParamIndex: -1,
	})
}

// sure waits until a parameter is known, and asks for it where it is not. One
// that is not answered has its default; the error is the end of the talk.
func (p *parameters) sure(t *talk, name string) error {
	known := func() bool { _, ok := p.told[name]; return ok }
	for range 2 {
		if known() {
			return nil
		}
		p.request(name)
		wait := max(paramWait, 2*p.acks.trip)
		if err := unlessLate(t.await(time.Now().Add(wait), known)); err != nil {
			return err
		}
	}
	return nil
}

// hear takes a PARAM_VALUE and returns it, if it is one of ours. PX4 puts an
// integer's bits into the float.
func (p *parameters) hear(m *common.MessageParamValue) (v float64, ours bool) {
	if !slices.Contains(p.names(), m.ParamId) {
		return 0, false
	}
	v = float64(m.ParamValue)
	if p.craft.firmware == px4 && m.ParamType == common.MAV_PARAM_TYPE_INT32 {
		v = float64(int32(math.Float32bits(m.ParamValue)))
	}
	p.told[m.ParamId] = v
	return v, true
}

// groundStation is the system that ArduPilot takes sticks from; 255 if it does
// not say.
func (p *parameters) groundStation() byte {
	for _, name := range []string{"SYSID_MYGCS", "MAV_GCS_SYSID"} {
		if v, ok := p.told[name]; ok && v >= 1 && v <= 255 {
			return byte(v)
		}
	}
	return 255
}

// settings are the parameters that plans rest on.
func (p *parameters) settings() settings {
	s := settings{guidedHovers: p.told["Q_GUIDED_MODE"], cruise: 10}
	if v := p.told["WPNAV_SPEED"]; v > 0 {
		s.cruise = v / 100 // cm/s
	}
	return s
}
