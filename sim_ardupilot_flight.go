package main

import (
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// How ArduPilot's multirotor flies, tuned until it stopped, sank and climbed as in
// docs/autopilots.md and in the captured flights.
const (
	simArduSlow    = 1.5   // m/s², the deceleration before a place
	simArduHard    = 2.5   // m/s², the deceleration of a stop
	simArduLift    = 1.0   // m/s², vertically, without sticks
	simArduGain    = 2.0   // 1/s: steer accelerates by this times (the wanted speed − the present one)
	simArduLag     = 0.35  // s, until an acceleration acts
	simArduBack    = 0.075 // s: after a stop the vehicle comes back by this times its earlier speed
	simArduLean    = 5.66  // m/s² at full stick: 30°
	simArduDrag    = 64.0  // m: at full stick 19 m/s
	simArduLoiter  = 2.16  // s, until LOITER reaches the speed of its stick
	simArduSinking = 1.5   // m/s, above 10 m and in gotos
	simArduTop     = 1.2   // a goto's top speed is this times √(1 + metres): 5.5 m/s for 20 m, 7.8 for 41 m
	simArduReturn  = 15.0  // m above home, RTL_ALT
)

// simLeg is a phase of a return.
type simLeg int

const (
	simLegUp simLeg = iota
	simLegHome
	simLegWait
	simLegLand
)

// simArduFlight is the state of the flight. The target is a field of the simulator.
type simArduFlight struct {
	going     bool       // it flies to target, in GUIDED
	topSpeed  float64    // m/s, for the way to the target
	paused    bool       // by DO_PAUSE_CONTINUE
	entry     [2]float64 // the velocity at which the stop began
	still     bool       // it has stopped, at the place rest
	rest      simTarget  // where it stopped; rest.up is the height of a return until level is set
	level     bool       // it has stopped climbing or sinking, at the height rest.up
	centredAt time.Time  // when LOITER's stick was centred; zero while it is deflected
	leg       simLeg
	legAt     time.Time  // when the leg began
	push      [3]float64 // the present acceleration: north, east, up
	runaway   float64    // the height to which it climbs by itself
}

// stay begins a stop. It forgets the target and its speed.
func (b *simArduBrain) stay() {
	q := &b.quad
	push, runaway := b.push, b.runaway
	b.simArduFlight = simArduFlight{entry: [2]float64{q.vn, q.ve}, push: push, runaway: runaway, legAt: time.Now()}
	b.rest = simTarget{north: q.north, east: q.east, up: max(simArduReturn, q.up), yaw: math.NaN(), speed: 1}
	b.target = simTarget{north: q.north, east: q.east, up: q.up, yaw: math.NaN(), speed: b.cruise()}
}

// cruise returns the default speed: WPNAV_SPEED, in cm/s, or WP_SPD, in m/s.
func (b *simArduBrain) cruise() float64 {
	if v := b.params["WP_SPD"]; v > 0 {
		return v
	}
	if v := b.params["WPNAV_SPEED"] / 100; v > 0 {
		return v
	}
	return 10
}

// flyTo begins a goto. The vehicle flies nose ahead, at the speed that was set since GUIDED was
// entered, else at cruise.
func (b *simArduBrain) flyTo(north, east, up float64) {
	yaw := math.NaN()
	q := &b.quad
	if n, e := north-q.north, east-q.east; math.Hypot(n, e) > 2 {
		yaw = math.Atan2(e, n)
	}
	b.climbing, b.going = false, true
	way := math.Hypot(north-q.north, east-q.east) + (q.vn*q.vn+q.ve*q.ve)/4 // it may have to stop and turn round
	b.topSpeed = simArduTop * math.Sqrt(1+way)
	b.target = simTarget{north: north, east: east, up: up, yaw: yaw, speed: b.target.speed}
}

func (b *simArduBrain) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	q := &b.quad
	x, y, z, r := b.axes()
	sin, cos := math.Sincos(q.heading)
	stickN, stickE := x*cos-y*sin, x*sin+y*cos // the stick's deflection to the north and east
	rise := max(z-0.5, 0)*2*b.stickUp - max(0.5-z, 0)*2*b.stickDown
	if q.up < b.runaway {
		rise = b.stickUp
	}
	switch flying := b.row(b.mode).flying; {
	case !b.armed:
		return 0, 0, -20, 0
	case b.climbing && now.Before(b.climbFrom):
		return 0, 0, 0, 0
	case b.climbing:
		t := b.target
		t.up = b.climbTo
		vn, ve, vu = b.towards(t)
	case flying == simHold:
		vn, ve, vu = b.guided()
		turn = q.turn(b.target.yaw)
		if r != 0 {
			turn = r // of the sticks only yaw acts
		}
	case flying == simDescend:
		vn, ve, _ = b.halt()
		vu = b.sink()
		if x != 0 || y != 0 { // pitch and roll shift a landing
			vn, ve, b.still = stickN*2, stickE*2, false
			b.entry = [2]float64{}
		}
	case flying == simReturn:
		vn, ve, vu = b.homeward(now)
	case flying == simVelocity:
		vn, ve = b.loiter(now, stickN, stickE)
		vu, turn = rise, r
	default: // to accelerate by a, it wants the present speed + a/simArduGain
		drag := math.Hypot(q.vn, q.ve) / simArduDrag
		vn = q.vn + (stickN*simArduLean-q.vn*drag)/simArduGain
		ve = q.ve + (stickE*simArduLean-q.ve*drag)/simArduGain
		vu, turn = rise, r
		if flying == simThrust {
			vu = b.thrust(z)
		}
	}
	return vn, ve, vu, turn
}

// thrust returns the climb rate under STABILIZE's throttle: 3 m/s with the stick in the
// middle. With a closed throttle the vehicle falls (14 m/s after 28 m).
func (b *simArduBrain) thrust(z float64) float64 {
	if !b.airborne {
		return z - 0.45 // a thrust above the weight lifts the vehicle
	}
	return max(-20, min(20, b.quad.vu+(12*(z-0.45)-0.2*b.quad.vu)/simArduGain))
}

// guided flies to the target, if there is one; else it stops. BRAKE slows down to 0.05 m/s before it
// holds the place, and does not come back.
func (b *simArduBrain) guided() (vn, ve, vu float64) {
	switch {
	case b.going && !b.paused:
		b.still, b.level = false, false
		b.entry = [2]float64{}
		t := b.target
		t.speed = min(t.speed, b.topSpeed)
		return b.towards(t)
	case b.row(b.mode).name == "BRAKE" && math.Hypot(b.quad.vn, b.quad.ve) > 0.05 && !b.still:
		_, _, vu = b.halt()                     // only for vu
		b.still = false                         // halt sets it below 0.2 m/s: too early for BRAKE
		const slower = 1 - 1/(1.65*simArduGain) // decelerates by speed / 1.65 s: exponentially
		return b.quad.vn * slower, b.quad.ve * slower, vu
	case b.row(b.mode).name == "BRAKE":
		b.entry = [2]float64{} // so halt does not come back
	}
	return b.halt()
}

// halt stops the vehicle. It then comes back a little, and holds its place and height.
func (b *simArduBrain) halt() (vn, ve, vu float64) {
	q := &b.quad
	if !b.still && math.Hypot(q.vn, q.ve) < 0.2 {
		b.still = true
		b.rest.north, b.rest.east = q.north-b.entry[0]*simArduBack, q.east-b.entry[1]*simArduBack
	}
	if !b.level && math.Abs(q.vu) < 0.1 {
		b.level, b.rest.up = true, q.up
	}
	vn, ve, vu = b.towards(b.rest)
	if !b.still {
		vn, ve = 0, 0
	}
	if !b.level {
		vu = 0
	}
	return vn, ve, vu
}

// towards returns the velocity to a place. The vehicle overshoots a little.
func (b *simArduBrain) towards(t simTarget) (vn, ve, vu float64) {
	q := &b.quad
	n, e := t.north-q.north, t.east-q.east
	if d := math.Hypot(n, e); d > 0.01 {
		near := 1.2
		if q.vn*n+q.ve*e < 0 {
			near = 0.7 // after an overshoot it comes back slowly
		}
		v := min(t.speed, math.Sqrt(2*simArduSlow*d), near*d)
		vn, ve = n/d*v, e/d*v
	}
	u := t.up - q.up
	vu = math.Copysign(min(math.Sqrt(math.Abs(u)), math.Abs(u)), u)
	return vn, ve, max(-simArduSinking, min(b.stickUp, vu))
}

// loiter returns LOITER's velocity, which follows the stick slowly. When the stick is centred
// the vehicle drifts on for a second, then stops.
func (b *simArduBrain) loiter(now time.Time, stickN, stickE float64) (vn, ve float64) {
	q := &b.quad
	var an, ae float64
	speed := math.Hypot(q.vn, q.ve)
	switch {
	case stickN != 0 || stickE != 0:
		b.centredAt, b.still = time.Time{}, false
		an, ae = (stickN*b.stickSpeed-q.vn)/simArduLoiter, (stickE*b.stickSpeed-q.ve)/simArduLoiter
	case b.centredAt.IsZero():
		b.centredAt = now
		b.entry = [2]float64{}
		fallthrough
	case now.Sub(b.centredAt) < time.Second && speed > 0.5:
		an, ae = -q.vn/4.5, -q.ve/4.5
	default:
		vn, ve, _ = b.halt()
		return vn, ve
	}
	return q.vn + an/simArduGain, q.ve + ae/simArduGain
}

// sink returns LAND's speed, which is slower below 10 m.
func (b *simArduBrain) sink() float64 {
	return -max(b.landSpeed, min(simArduSinking, b.landSpeed+b.quad.up-10.3))
}

// returnTarget returns the place to which the present leg of a return flies. b.target is
// where the return began.
func (b *simArduBrain) returnTarget() simTarget {
	t := simTarget{up: b.rest.up, yaw: math.NaN()}
	t.speed = min(b.cruise(), simArduTop*math.Sqrt(1+math.Hypot(b.target.north, b.target.east)))
	if b.leg == simLegUp {
		t.north, t.east = b.target.north, b.target.east
	}
	return t
}

// homeward climbs, flies home, waits 5 s and lands.
func (b *simArduBrain) homeward(now time.Time) (vn, ve, vu float64) {
	q := &b.quad
	vn, ve, vu = b.towards(b.returnTarget())
	next := false
	switch b.leg {
	case simLegUp:
		next = q.up > b.rest.up-0.1
	case simLegHome:
		next = math.Hypot(q.north, q.east) < 1 && math.Hypot(q.vn, q.ve) < 0.3
	case simLegWait:
		next = now.Sub(b.legAt) > 5*time.Second
	case simLegLand:
		vu = b.sink()
	}
	if next {
		b.leg++
		b.legAt = now
	}
	return vn, ve, vu
}

// steer changes the velocity, with the lag of a multirotor that must lean first.
func (b *simArduBrain) steer(vn, ve, vu, dt float64) {
	q := &b.quad
	if b.dead {
		return
	}
	horizontal, vertical := simArduHard, simArduLift // the most acceleration
	switch flying := b.row(b.mode).flying; {
	case !b.armed || flying == simThrust:
		horizontal, vertical = 12, 20
	case flying == simTilt:
		horizontal, vertical = 12, 2.5
	case flying == simVelocity:
		vertical = 2.5
	case flying == simReturn:
		vertical = 0.8
	case math.Abs(q.vu) > 3: // out of a fall
		vertical = 5
	}
	if !b.airborne || q.up == 0 {
		b.push = [3]float64{}
	}
	an, ae := (vn-q.vn)*simArduGain, (ve-q.ve)*simArduGain
	if a := math.Hypot(an, ae); a > horizontal {
		an, ae = an*horizontal/a, ae*horizontal/a
	}
	au := max(-vertical, min(vertical, (vu-q.vu)*simArduGain))
	k := min(1, dt/simArduLag)
	for i, a := range [3]float64{an, ae, au} {
		b.push[i] += (a - b.push[i]) * k
	}
	q.an, q.ae = b.push[0], b.push[1]
	q.vn += q.an * dt
	q.ve += q.ae * dt
	q.vu += b.push[2] * dt
	q.north += q.vn * dt
	q.east += q.ve * dt
	q.up += q.vu * dt
}

// simArduKnown are the ids of the messages that ArduPilot has. Some have no content at times.
var simArduKnown = []uint32{0, 1, 24, 30, 33, 65, 74, 87, 111, 147, 148, 193, 242, 245}

func (b *simArduBrain) setInterval(c simCommand) {
	id := uint32(c.p[0])
	if id == 0 && b.noLiveMode {
		b.ack(c, common.MAV_RESULT_FAILED)
		return
	}
	if !slices.Contains(simArduKnown, id) {
		b.ack(c, common.MAV_RESULT_DENIED)
		b.text(common.MAV_SEVERITY_INFO, "No ap_message for mavlink id")
		return
	}
	b.setStream(c, id)
}

// requestMessage accepts the request of a known message even if there is none to send now.
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
			b.sendOn(c.fromGCS, m)
		}
	})
}

// message returns nil if there is nothing to send now.
func (b *simArduBrain) message(id uint32) message.Message {
	m := b.simulator.message(id)
	boot := uint32(time.Since(b.booted).Milliseconds())
	switch m := m.(type) {
	case *common.MessageSysStatus:
		b.sensors(m)
	case *common.MessageGpsRawInt:
		m.FixType, m.SatellitesVisible, m.Eph, m.Epv = common.GPS_FIX_TYPE_RTK_FIXED, 10, 121, 200
		if !b.bootedFor(10) {
			return &common.MessageGpsRawInt{Eph: math.MaxUint16, Epv: math.MaxUint16}
		}
	case *common.MessageGlobalPositionInt:
		if !b.bootedFor(10) { // no position, and no height above the sea
			m.Lat, m.Lon, m.Alt, m.RelativeAlt = 0, 0, -20, -27
		}
	case *common.MessageVfrHud:
		b.hud(m)
	case *common.MessageHomePosition:
		if !b.bootedFor(20) {
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
			Chan5Raw: c[4], Chan6Raw: 1000, Chan7Raw: 1000, Chan8Raw: 1800,
		}
	case 87:
		return b.positionTarget(boot)
	case 111:
		return &common.MessageTimesync{Ts1: time.Since(b.booted).Nanoseconds()}
	case 193:
		if b.positioned() {
			return &MessageEkfStatusReport{Flags: 831}
		}
		return &MessageEkfStatusReport{Flags: 167} // no position: bit 4 clear, bit 7 set
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
	if !b.bootedFor(10) {
		m.Alt = -0.02
	}
}

// sensors sets the bits as captured. docs/autopilots.md explains the bits of the receiver and
// of PREARM_CHECK.
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
	if b.bootedFor(10) {
		present |= common.MAV_SYS_STATUS_SENSOR_GPS
		enabled |= common.MAV_SYS_STATUS_SENSOR_GPS
		healthy |= common.MAV_SYS_STATUS_SENSOR_GPS
	}
	if b.bootedFor(22.5) {
		enabled |= common.MAV_SYS_STATUS_AHRS
		healthy |= common.MAV_SYS_STATUS_AHRS
	}
	if b.armed {
		enabled |= common.MAV_SYS_STATUS_LOGGING
	}
	if b.fence > 0 {
		enabled |= common.MAV_SYS_STATUS_GEOFENCE
	}
	switch row := b.row(b.mode); {
	case row.needsPosition || row.flying == simDescend:
		enabled |= control
		healthy |= control
	case row.flying == simTilt:
		enabled |= common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL
		healthy |= common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL
	}
	if b.canArm() {
		healthy |= common.MAV_SYS_STATUS_PREARM_CHECK
	}
	if b.receiver != simReceiverNone || !b.stickAt.IsZero() || b.flavour != simArduPilot {
		present |= common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
		enabled |= common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	}
	if b.receiver.live() || !b.stickAt.IsZero() && time.Since(b.stickAt) < simArduRadio {
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

// positionTarget returns the target of a goto in GUIDED, or of RTL before its landing;
// otherwise nil.
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
