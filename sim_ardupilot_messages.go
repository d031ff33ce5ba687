package main

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialect"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// simDialect is what ArduPilot sends and the link does not know, beside what
// both know. A link without a simulator does not pay for it.
var simDialect = sync.OnceValue(func() *dialect.ReadWriter {
	return newDialect(append(slices.Clone(dialectRW.Dialect.Messages),
		&common.MessageTimesync{}, &MessageEkfStatusReport{})...)
})

// MessageEkfStatusReport is ArduPilot's own, and so not in the common dialect.
type MessageEkfStatusReport struct {
	Flags              uint16
	VelocityVariance   float32
	PosHorizVariance   float32
	PosVertVariance    float32
	CompassVariance    float32
	TerrainAltVariance float32
	AirspeedVariance   float32 `mavext:"true"`
}

// GetID implements message.Message.
func (*MessageEkfStatusReport) GetID() uint32 { return 193 }

// simArduKnown are the messages that it has, though some of them not always.
var simArduKnown = []uint32{0, 1, 24, 30, 33, 65, 74, 87, 111, 148, 193, 242, 245}

func (b *simArduBrain) setInterval(c simCommand) {
	id := uint32(c.p[0])
	if !slices.Contains(simArduKnown, id) {
		b.ack(c, common.MAV_RESULT_DENIED)
		b.text(common.MAV_SEVERITY_INFO, "No ap_message for mavlink id")
		return
	}
	b.pace(c, id)
}

// requestMessage: accepted even where then nothing comes.
func (b *simArduBrain) requestMessage(c simCommand) {
	id := uint32(c.p[0])
	if !slices.Contains(simArduKnown, id) {
		b.ack(c, common.MAV_RESULT_FAILED)
		b.text(common.MAV_SEVERITY_INFO, "No ap_message for mavlink id")
		return
	}
	b.ack(c, common.MAV_RESULT_ACCEPTED)
	b.after(simArduAnswer, func() {
		if m := b.brain.message(id); m != nil {
			b.send(m)
		}
	})
}

// message is nil where there is nothing to send now.
func (b *simArduBrain) message(id uint32) message.Message {
	m := b.simulator.message(id)
	boot := uint32(time.Since(b.booted).Milliseconds())
	switch m := m.(type) {
	case *common.MessageSysStatus:
		b.sensors(m)
	case *common.MessageGpsRawInt:
		m.FixType, m.SatellitesVisible, m.Eph, m.Epv = common.GPS_FIX_TYPE_RTK_FIXED, 10, 121, 200
		if !b.since(10) {
			return &common.MessageGpsRawInt{Eph: math.MaxUint16, Epv: math.MaxUint16}
		}
	case *common.MessageGlobalPositionInt:
		if !b.since(10) { // no place, and no height above sea either
			m.Lat, m.Lon, m.Alt, m.RelativeAlt = 0, 0, -20, -27
		}
	case *common.MessageVfrHud:
		b.hud(m)
	case *common.MessageHomePosition:
		if !b.since(20) {
			return nil
		}
	case *common.MessageExtendedSysState:
		m.VtolState, m.LandedState = common.MAV_VTOL_STATE_MC, b.landedState()
	}
	switch id {
	case 65:
		b.readChannels()
		c := b.channels
		return &common.MessageRcChannels{
			TimeBootMs: boot, Chancount: 16, Rssi: 255,
			Chan1Raw: c[0], Chan2Raw: c[1], Chan3Raw: c[2], Chan4Raw: c[3],
			Chan5Raw: 1800, Chan6Raw: 1000, Chan7Raw: 1000, Chan8Raw: 1800,
		}
	case 87:
		return b.positionTarget(boot)
	case 111:
		return &common.MessageTimesync{Ts1: time.Since(b.booted).Nanoseconds()}
	case 193:
		if b.positioned() {
			return &MessageEkfStatusReport{Flags: 831}
		}
		return &MessageEkfStatusReport{Flags: 167} // no place: bit 4 clear, bit 7 set
	}
	return m
}

func (b *simArduBrain) hud(m *common.MessageVfrHud) {
	switch {
	case b.airborne:
		m.Throttle = 34
	case b.armed:
		m.Throttle = 18
	}
	if !b.since(10) {
		m.Alt = -0.02
	}
}

// sensors are the bits as captured; docs/autopilots.md has those of the
// receiver and of PREARM_CHECK.
func (b *simArduBrain) sensors(m *common.MessageSysStatus) {
	const (
		always = common.MAV_SYS_STATUS_SENSOR_3D_GYRO | common.MAV_SYS_STATUS_SENSOR_3D_ACCEL |
			common.MAV_SYS_STATUS_SENSOR_3D_MAG | common.MAV_SYS_STATUS_SENSOR_ABSOLUTE_PRESSURE |
			common.MAV_SYS_STATUS_SENSOR_ANGULAR_RATE_CONTROL | common.MAV_SYS_STATUS_SENSOR_ATTITUDE_STABILIZATION |
			common.MAV_SYS_STATUS_SENSOR_YAW_POSITION | common.MAV_SYS_STATUS_SENSOR_MOTOR_OUTPUTS |
			common.MAV_SYS_STATUS_TERRAIN | common.MAV_SYS_STATUS_SENSOR_BATTERY | common.MAV_SYS_STATUS_SENSOR_PROPULSION
		control = common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL | common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL
	)
	present := always | control | common.MAV_SYS_STATUS_GEOFENCE | common.MAV_SYS_STATUS_AHRS |
		common.MAV_SYS_STATUS_LOGGING | common.MAV_SYS_STATUS_PREARM_CHECK
	enabled := always | common.MAV_SYS_STATUS_PREARM_CHECK
	healthy := always | common.MAV_SYS_STATUS_GEOFENCE | common.MAV_SYS_STATUS_LOGGING | common.MAV_SYS_STATUS_SENSOR_PROXIMITY
	if b.since(10) {
		present |= common.MAV_SYS_STATUS_SENSOR_GPS
		enabled |= common.MAV_SYS_STATUS_SENSOR_GPS
		healthy |= common.MAV_SYS_STATUS_SENSOR_GPS
	}
	if b.since(22.5) {
		enabled |= common.MAV_SYS_STATUS_AHRS
		healthy |= common.MAV_SYS_STATUS_AHRS
	}
	if b.armed {
		enabled |= common.MAV_SYS_STATUS_LOGGING
	}
	switch row := b.row(b.mode); {
	case row.position || row.flying == simDescend:
		enabled |= control
		healthy |= control
	case row.flying == simTilt:
		enabled |= common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL
		healthy |= common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL
	}
	if b.canArm() {
		healthy |= common.MAV_SYS_STATUS_PREARM_CHECK
	}
	if b.receiver != simReceiverNone || !b.stickAt.IsZero() || b.flavour == simQuadPlane {
		present |= common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
		enabled |= common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	}
	if b.live() || !b.stickAt.IsZero() && time.Since(b.stickAt) < simArduRadio {
		healthy |= common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	}
	m.Load = 0
	m.OnboardControlSensorsPresent, m.OnboardControlSensorsEnabled, m.OnboardControlSensorsHealth = present, enabled, healthy
}

func (b *simArduBrain) landedState() common.MAV_LANDED_STATE {
	switch {
	case b.grounded():
		return common.MAV_LANDED_STATE_ON_GROUND
	case b.climbing:
		return common.MAV_LANDED_STATE_TAKEOFF
	case b.row(b.mode).flying == simDescend, b.row(b.mode).flying == simReturn && b.leg == simLegLand:
		return common.MAV_LANDED_STATE_LANDING
	}
	return common.MAV_LANDED_STATE_IN_AIR
}

// positionTarget comes in GUIDED on the way to a place, and in RTL until it
// lands.
func (b *simArduBrain) positionTarget(boot uint32) message.Message {
	t := b.target
	switch returns := b.row(b.mode).flying == simReturn; {
	case !b.canFly(), returns && b.leg == simLegLand, !returns && (b.mode != b.hold || !b.going):
		return nil
	case returns:
		t = b.returnTarget()
	}
	lat, lon := simPlace(t.north, t.east)
	return &common.MessagePositionTargetGlobalInt{
		TimeBootMs: boot, CoordinateFrame: common.MAV_FRAME_GLOBAL, TypeMask: 0xfdf8,
		LatInt: simE7(lat), LonInt: simE7(lon), Alt: float32(simHomeAlt + t.up),
	}
}
