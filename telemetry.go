package main

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

const (
	// offlineAfter is the time without HEARTBEAT and CURRENT_MODE after which the vehicle is
	// offline (docs/design.md, "Reports").
	offlineAfter = 3 * time.Second

	// freshFor is how long a position, a landed state or a SYS_STATUS counts.
	freshFor = 2 * time.Second

	// batteryFor is how long a BATTERY_STATUS counts: on a slow line the next one may be 10 s away.
	batteryFor = 30 * time.Second

	// heightFor is how long a height counts where one that is too low does no harm.
	heightFor = 5 * time.Second

	// checksAfter is when a restarted PX4's health begins to count: it reports good health for 0.9 s before its first
	// checks.
	checksAfter = time.Second

	// clockSlack is how far the boot clock may seem to step: UDP delivers frames late.
	clockSlack = time.Second

	// clockDay is how far ahead of the time that has passed a boot clock is that has started again after 25 to 49
	// days.
	clockDay = 24 * time.Hour

	// mostVoltage, in volts, is the most that SYS_STATUS has.
	mostVoltage = 65.5

	// chunkWait is how long a STATUSTEXT waits for its missing chunks.
	chunkWait = time.Second
)

// group is embedded in values that come together; at is when those that came last left the vehicle, zero if none came.
type group struct{ at time.Time }

// telemetry is the last value of everything that the vehicle reports, in the units of
// the status object. A number that it reported as unknown is NaN. Position, velocity, home
// and target are NaN until reported. It has no clock: each method gets the time.
type telemetry struct {
	id       identity
	beat     beat
	landed   landed
	position position
	velocity velocity
	attitude attitude

	// battery: the one that the status shows
	battery battery

	// gps: the receiver that the status shows
	gps gps

	home     point
	health   health
	estimate estimate
	rc       rcChannels

	// target: message 87: where the vehicle flies to
	target point

	texts  textLog
	ground lastGround

	// receivers: the first GPS receiver and the second
	receivers [2]gps

	// summary: SYS_STATUS's battery: PX4's worst, ArduPilot's first
	summary battery

	// batteries: each battery's BATTERY_STATUS, by id
	batteries []cellBattery

	// healthFrom: health counts after this time; zero: at once
	healthFrom time.Time

	// rebooted: the autopilot has restarted: its next SYS_STATUS sets healthFrom
	rebooted bool

	// healed is when a system last became healthy; zero if none has.
	healed time.Time

	boot bootClock

	// doubtedBoot: this and doubtedPosition wait for a second value to confirm them (see believe)
	doubtedBoot bootClock

	doubtedPosition position
}

type identity struct {
	// system: 0 before the first heartbeat
	system byte

	autopilot common.MAV_AUTOPILOT
	typ       common.MAV_TYPE

	// vtol: EXTENDED_SYS_STATE's MAV_VTOL_STATE; 0 if it is no VTOL
	vtol uint8

	version firmwareVersion
}

// firmwareVersion is AUTOPILOT_VERSION's flight_sw_version: major, minor, patch and
// type, a byte each. 0 if unknown.
type firmwareVersion uint32

// String returns "1.17.0"; "" if the version is unknown.
func (v firmwareVersion) String() string {
	if v == 0 {
		return ""
	}
	part := func(shift int) string { return strconv.Itoa(int(v >> shift & 0xff)) }
	return part(24) + "." + part(16) + "." + part(8)
}

// beat is what a HEARTBEAT says beside its mode, which is a report's (reports in mode.go).
type beat struct {
	group

	// state: MAV_STATE in lower case; "" if it has no name
	state string

	// critical: one of failsafeStates
	critical bool
}

type landed struct {
	group
	state landedState
}

// landedState is EXTENDED_SYS_STATE's MAV_LANDED_STATE; 0 is unknown.
type landedState uint8

const (
	onGround  = landedState(common.MAV_LANDED_STATE_ON_GROUND)
	inAir     = landedState(common.MAV_LANDED_STATE_IN_AIR)
	takingOff = landedState(common.MAV_LANDED_STATE_TAKEOFF)
	landing   = landedState(common.MAV_LANDED_STATE_LANDING)
)

func (s landedState) inAir() bool { return s > onGround }

// lastGround is the ground below the vehicle, as far as it is known: what it stood on last or, where it lands or has
// ended a landing since, where it was then. Heights above home are no measure: PX4 moves home by metres after a
// takeoff.
type lastGround struct {
	// amsl: metres above mean sea level; NaN if unknown
	amsl float64

	// relative: metres above home, at the same moment; NaN if unknown
	relative float64

	// assumed: it lands or has ended a landing there: the ground may be far below
	assumed bool

	// left: it has risen by liftedOff since it stood
	left bool

	// clear: it has risen so far that it may fly to a place, or a takeoff commanded here was complete above
	// lowTakeoff. A landing ends that, no other descent does.
	clear bool
}

// unknownGround is the ground whose height is not known.
var unknownGround = lastGround{amsl: math.NaN(), relative: math.NaN()}

// liftedOff is the height in metres above the ground from which on the vehicle no longer stands: the estimate of
// a vehicle whose propellers speed up on the ground was 0.15 m off (docs/autopilots.md, "PX4: takeoff and land").
const liftedOff = 0.3

// lowTakeoff is the height in metres above the ground below which a drone is not clear of it though its takeoff is
// complete: it flies sideways a metre up at least, and PX4's estimate was 0.4 m off on the ground.
const lowTakeoff = 1.4

type position struct {
	group

	// lat, lon: degrees
	lat, lon float64

	// relative, amsl: metres above home, and above mean sea level
	relative, amsl float64

	// heading: degrees
	heading float64
}

type velocity struct {
	group

	// north, east, down, ground, air, climb: m/s
	north, east, down, ground, air, climb float64

	// hudAt is when VFR_HUD, which has air and climb, left last.
	hudAt time.Time
}

type attitude struct {
	group

	// roll, pitch, yaw: degrees
	roll, pitch, yaw float64
}

type battery struct {
	group

	// voltage, current, remaining: V, A, %
	voltage, current, remaining float64
}

// cellBattery is what a BATTERY_STATUS says of one battery.
type cellBattery struct {
	id uint8
	battery
}

type gps struct {
	group

	// receiver: the vehicle's first or second
	receiver int

	fix string

	// located: it knows a place and a height
	located          bool
	satellites, hdop float64
}

// point is a place and its height above the sea: degrees and metres.
type point struct {
	group
	lat, lon, amsl float64
}

// unknownPoint is the point of which nothing is known.
var unknownPoint = point{lat: math.NaN(), lon: math.NaN(), amsl: math.NaN()}

// unknownPosition is the position of which nothing is known.
var unknownPosition = position{
	lat: math.NaN(), lon: math.NaN(), relative: math.NaN(), amsl: math.NaN(), heading: math.NaN(),
}

// health is SYS_STATUS's view of the sensors, as MAV_SYS_STATUS_SENSOR bits.
type health struct {
	group
	enabled, healthy uint32
}

// estimate is ArduPilot's EKF_STATUS_REPORT: EKF_STATUS_FLAGS.
type estimate struct {
	group
	flags uint16
}

type rcChannels struct {
	group
	channel channels
}

// channels are RC_CHANNELS 1 to 16, in µs. The first four are roll, pitch, throttle and
// yaw, the others a transmitter's switches.
type channels [16]uint16

// statusText is one STATUSTEXT; severity is MAV_SEVERITY, 0 emergency to 7 debug.
type statusText struct {
	severity uint8
	text     string
	at       time.Time
}

// textLog holds the last texts, and the chunks of incomplete ones.
type textLog struct {
	// toLog: the texts of the autopilot that are complete and not logged yet
	toLog []statusText

	// kept: oldest first
	kept []statusText

	chunks map[uint16]*chunkedText
}

// chunkedText collects the chunks of a STATUSTEXT longer than 50 characters.
type chunkedText struct {
	severity uint8
	parts    []string
	began    time.Time
}

// bootClock is the autopilot's time since its start, in milliseconds, and when it left. It runs over after
// 2^32 ms: 49.7 days.
type bootClock struct {
	group
	ms uint32
}

// hear records a message and when it left the vehicle, and reports whether the autopilot has restarted:
// its clock ran backwards. docs/autopilots.md, "Both", has the values that mean unknown.
func (t *telemetry) hear(m any, left time.Time) (restarted bool) {
	switch m := m.(type) {
	case *minimal.MessageHeartbeat:
		t.id.autopilot = m.Autopilot
		t.id.typ = m.Type
		t.beat = beat{
			group:    group{left},
			state:    knownName(m.SystemStatus.String(), "MAV_STATE_"),
			critical: slices.Contains(failsafeStates, m.SystemStatus),
		}
	case *common.MessageGlobalPositionInt:
		return t.hearPosition(m, left) && t.clockRanBack(m.TimeBootMs, left)
	case *common.MessageVfrHud:
		t.velocity.hudAt = left
		t.velocity.air = finite(float64(m.Airspeed))
		t.velocity.climb = finite(float64(m.Climb))
	case *common.MessageAttitude:
		t.attitude = attitudeOf(m, left)
		return t.clockRanBack(m.TimeBootMs, left)
	case *common.MessageSysStatus:
		t.hearSysStatus(m, left)
	case *common.MessageBatteryStatus:
		t.hearBattery(m, left)
	case *MessageEkfStatusReport:
		t.estimate = estimate{group{left}, m.Flags}
	case *common.MessageGpsRawInt:
		t.hearGPS(1, gpsOf(m.FixType, m.SatellitesVisible, m.Eph, left), left)
	case *common.MessageGps2Raw:
		t.hearGPS(2, gpsOf(m.FixType, m.SatellitesVisible, m.Eph, left), left)
	case *common.MessageHomePosition:
		// A place that is not on earth is no home.
		if home := homeOf(m, left); onEarth(home.lat, home.lon) {
			t.home = home
		}
	case *common.MessageExtendedSysState:
		t.landed = landed{group{left}, landedState(m.LandedState)}
		t.id.vtol = uint8(m.VtolState)
	case *common.MessageAutopilotVersion:
		t.id.version = firmwareVersion(m.FlightSwVersion)
	case *common.MessageRcChannels:
		t.rc = rcChannels{group{left}, channels{
			m.Chan1Raw, m.Chan2Raw, m.Chan3Raw, m.Chan4Raw, m.Chan5Raw, m.Chan6Raw, m.Chan7Raw, m.Chan8Raw,
			m.Chan9Raw, m.Chan10Raw, m.Chan11Raw, m.Chan12Raw, m.Chan13Raw, m.Chan14Raw, m.Chan15Raw, m.Chan16Raw,
		}}
	case *common.MessagePositionTargetGlobalInt:
		t.target = targetOf(m, left)
	case *common.MessageStatustext:
		t.texts.hear(m, left)
	}
	return false
}

// failsafeStates are the states in which a failsafe is active. Any other, also an unknown one, is none.
var failsafeStates = []minimal.MAV_STATE{
	minimal.MAV_STATE_CRITICAL, minimal.MAV_STATE_EMERGENCY, minimal.MAV_STATE_FLIGHT_TERMINATION,
}

// hearPosition records the position and the velocity if the position is believed, and
// reports whether it is.
func (t *telemetry) hearPosition(m *common.MessageGlobalPositionInt, left time.Time) bool {
	lat, lon := float64(m.Lat)/1e7, float64(m.Lon)/1e7

	// ArduPilot before its first fix; its height above the sea is wrong too
	noFix := m.Lat == 0 && m.Lon == 0
	unknown := noFix || t.remembered(left) || !onEarth(lat, lon)
	next := position{
		group:    group{left},
		lat:      nanIf(unknown, lat),
		lon:      nanIf(unknown, lon),
		relative: float64(m.RelativeAlt) / 1000,
		amsl:     nanIf(unknown, float64(m.Alt)/1000),
		heading:  nanIf(m.Hdg > 36000, float64(m.Hdg)/100), // 65535 means unknown
	}
	if !believe(&t.position, &t.doubtedPosition, next, position.leadsTo) {
		return false
	}
	v := &t.velocity
	v.at = left
	v.north = float64(m.Vx) / 100
	v.east = float64(m.Vy) / 100
	v.down = float64(m.Vz) / 100
	v.ground = math.Hypot(v.north, v.east)
	if left.Sub(v.hudAt) > freshFor {
		v.climb = -v.down
		v.air = math.NaN()
	}
	return true
}

// remembered reports whether an ArduPilot only remembers its place: its EKF has none, and its GPS neither. It goes
// on sending the last place and its height above the sea, as if they were of now.
func (t *telemetry) remembered(left time.Time) bool {
	lost := t.estimate.within(freshFor, left) && !t.estimate.placed()
	return lost && !t.gps.knowsPlace(left)
}

// leadsTo reports whether a vehicle can fly from one position to the next: less than
// 200 m in 2 s. An unknown coordinate (NaN) is never a jump.
func (p position) leadsTo(next position) bool {
	// metres
	const most = 200
	jumped := distance(p.lat, p.lon, next.lat, next.lon) > most ||
		math.Abs(next.amsl-p.amsl) > most || math.Abs(next.relative-p.relative) > most
	return !jumped || next.at.Sub(p.at) >= freshFor
}

// clockRanBack records the autopilot's clock, and reports whether it ran backwards.
func (t *telemetry) clockRanBack(ms uint32, left time.Time) (restarted bool) {
	was := t.boot
	next := clockAt(ms, left)
	if !believe(&t.boot, &t.doubtedBoot, next, bootClock.leadsTo) || !was.received() {
		return false
	}
	step := was.ran(next)
	return step < -clockSlack || step-next.at.Sub(was.at) > clockDay
}

// believe makes next the last value, and reports whether it did. Where the last value can't lead to
// next, it doubts next until a second message confirms it: a damaged frame may pass the 16 bit
// checksum (1 in 65,536), and would send a hold or a landing to another continent.
func believe[T interface{ received() bool }](last, doubted *T, next T, leadsTo func(a, b T) bool) bool {
	confirmed := (*doubted).received() && leadsTo(*doubted, next)
	if (*last).received() && !leadsTo(*last, next) && !confirmed {
		*doubted = next
		return false
	}
	*last, *doubted = next, *new(T)
	return true
}

// leadsTo reports whether the clock can have run to next in the time that has passed.
func (c bootClock) leadsTo(next bootClock) bool {
	step := c.ran(next)
	return step >= -clockSlack && step <= next.at.Sub(c.at)+clockSlack
}

func attitudeOf(m *common.MessageAttitude, left time.Time) attitude {
	const degree = math.Pi / 180

	// As a float32 half a turn is a little more than 180 degrees.
	const slack = 0.01

	return attitude{
		group: group{left},
		roll:  within(float64(m.Roll)/degree, 180+slack),
		pitch: within(float64(m.Pitch)/degree, 90+slack),
		yaw:   degrees(within(float64(m.Yaw)/degree, 360+slack)),
	}
}

func gpsOf(fix common.GPS_FIX_TYPE, satellites uint8, hdop uint16, left time.Time) gps {
	return gps{
		group:      group{left},
		fix:        fixNames[fix],
		located:    fix >= common.GPS_FIX_TYPE_3D_FIX,
		satellites: nanIf(satellites == math.MaxUint8, float64(satellites)),
		hdop:       nanIf(hdop == math.MaxUint16, float64(hdop)/100),
	}
}

var fixNames = map[common.GPS_FIX_TYPE]string{
	0: "no_gps", 1: "no_fix", 2: "2d", 3: "3d", 4: "dgps", 5: "rtk_float", 6: "rtk_fixed", 7: "static", 8: "ppp",
}

// hearGPS records what the nth receiver knows. The status shows the first one, and the second where only that
// knows a place: the vehicle flies by it.
func (t *telemetry) hearGPS(nth int, g gps, left time.Time) {
	g.receiver = nth
	t.receivers[nth-1] = g
	first, second := t.receivers[0], t.receivers[1]
	t.gps = first
	if !first.knowsPlace(left) && (second.knowsPlace(left) || !first.received()) {
		t.gps = second
	}
}

func (g *gps) knowsPlace(now time.Time) bool { return g.within(freshFor, now) && g.located }

func homeOf(m *common.MessageHomePosition, left time.Time) point {
	return point{
		group: group{left},
		lat:   float64(m.Latitude) / 1e7,
		lon:   float64(m.Longitude) / 1e7,
		amsl:  float64(m.Altitude) / 1000,
	}
}

// targetOf is the vehicle's target. Its place is unknown where it is not on earth.
func targetOf(m *common.MessagePositionTargetGlobalInt, left time.Time) point {
	target := point{
		group: group{left},
		lat:   float64(m.LatInt) / 1e7,
		lon:   float64(m.LonInt) / 1e7,
		amsl:  finite(float64(m.Alt)),
	}
	if !onEarth(target.lat, target.lon) {
		target.lat = math.NaN()
		target.lon = math.NaN()
	}
	return target
}

// hearSysStatus records the battery and the sensors. PX4's first messages after a boot have no sensor, and say that all
// are healthy: then nothing is known of them.
func (t *telemetry) hearSysStatus(m *common.MessageSysStatus, left time.Time) {
	t.summary = battery{
		group:     group{left},
		voltage:   nanIf(m.VoltageBattery == math.MaxUint16, float64(m.VoltageBattery)/1000),
		current:   nanIf(m.CurrentBattery < 0, float64(m.CurrentBattery)/100),
		remaining: percent(m.BatteryRemaining),
	}
	t.battery = t.worstBattery(left)
	present := uint32(m.OnboardControlSensorsPresent)
	enabled := uint32(m.OnboardControlSensorsEnabled)
	if present == 0 && enabled == 0 {
		// It has just started: what an earlier one said is over.
		t.health = health{}
		return
	}
	if t.rebooted {
		t.rebooted = false
		t.healthFrom = left.Add(checksAfter)
	}
	if !left.After(t.healthFrom) {
		return
	}
	was := t.health
	t.health = health{group{left}, enabled, uint32(m.OnboardControlSensorsHealth)}
	if was.enabled&^was.healthy&t.health.healthy != 0 {
		t.healed = left
	}
}

// hearBattery records one battery. Its voltage is the sum of its cells.
func (t *telemetry) hearBattery(m *common.MessageBatteryStatus, left time.Time) {
	sum := 0
	known := false
	for _, cell := range m.Voltages {
		// 65535 means that there is no such cell.
		if cell != math.MaxUint16 {
			sum = sum + int(cell)
			known = true
		}
	}

	// 0 if there is no such cell
	for _, cell := range m.VoltagesExt {
		if cell != math.MaxUint16 {
			sum += int(cell)
		}
	}
	b := cellBattery{m.Id, battery{
		group:     group{left},
		voltage:   nanIf(!known, float64(sum)/1000),
		current:   nanIf(m.CurrentBattery < 0, float64(m.CurrentBattery)/100),
		remaining: percent(m.BatteryRemaining),
	}}
	i, found := slices.BinarySearchFunc(t.batteries, m.Id, func(b cellBattery, id uint8) int {
		return int(b.id) - int(id)
	})
	if !found {
		t.batteries = slices.Insert(t.batteries, i, b)
	}
	t.batteries[i] = b
	t.battery = t.worstBattery(left)
}

// worstBattery returns the battery that has the least charge. All its numbers are of that battery:
// SYS_STATUS's count where it is about the same one. A sum of cells counts where SYS_STATUS has no
// voltage, or can't have it: its field ends at 65.5 V, and ArduPilot lets it run over.
func (t *telemetry) worstBattery(now time.Time) battery {
	recent := 0
	var worst battery
	for _, b := range t.batteries {
		if !b.within(batteryFor, now) {
			continue
		}
		recent++
		onlyThisKnown := math.IsNaN(worst.remaining) && !math.IsNaN(b.remaining)
		if recent == 1 || b.remaining < worst.remaining || onlyThisKnown {
			worst = b.battery
		}
	}

	// PX4's SYS_STATUS is about the worst battery, ArduPilot's about the first.
	same := recent == 1 || t.id.autopilot == common.MAV_AUTOPILOT_PX4 || t.summary.remaining == worst.remaining
	if recent == 0 {
		return t.summary
	}
	if !t.summary.received() || !same {
		return worst
	}
	shown := t.summary
	if math.IsNaN(shown.voltage) || worst.voltage > mostVoltage {
		shown.voltage = worst.voltage
	}
	if math.IsNaN(shown.current) {
		shown.current = worst.current
	}
	if math.IsNaN(shown.remaining) {
		shown.remaining = worst.remaining
	}
	return shown
}

// percent is a battery's remaining charge; NaN if it is no percentage. −1 means unknown.
func percent(remaining int8) float64 {
	return nanIf(remaining < 0 || remaining > 100, float64(remaining))
}

// hearLanded takes the landed state that has just come.
func (t *telemetry) hearLanded(left time.Time) {
	if t.landed.state == onGround {
		at := t.lastPosition(left)
		t.ground = lastGround{amsl: at.amsl, relative: at.relative}
	}
}

// hearHeight takes the position that has just come. lands says that the vehicle lands: then the ground may be just
// below it, on a hill or in a valley. clearAt says how far above the ground it is clear of it, in metres. It is asked
// only in a climb: positions come ten times a second.
func (t *telemetry) hearHeight(lands bool, clearAt func() float64, left time.Time) {
	at, up := t.lastPosition(left), t.height(left)
	switch {
	case t.landedNow(left) == onGround:
		return
	case lands:
		hasLeft := t.ground.left || math.IsNaN(up)
		t.ground = lastGround{amsl: at.amsl, relative: at.relative, assumed: true, left: hasLeft}
		return
	case t.ground.left && t.ground.clear:
		return
	}

	// It has gone on sinking: the ground is no higher than where it is.
	if t.ground.assumed && up < 0 {
		t.ground.amsl, t.ground.relative = at.amsl, at.relative
	}
	t.ground.left = t.ground.left || up >= liftedOff
	t.ground.clear = t.ground.clear || up >= clearAt()
}

// height is how far the vehicle is above the ground (lastGround), in metres; NaN if unknown. It compares heights above
// the sea. An ArduPilot without a place knows none, but goes on knowing how high it is above home.
func (t *telemetry) height(now time.Time) float64 {
	at := t.lastPosition(now)
	if up := at.amsl - t.ground.amsl; !math.IsNaN(up) {
		return up
	}
	return at.relative - t.ground.relative
}

// landedNow returns the landed state; 0 (unknown) if it is not fresh.
func (t *telemetry) landedNow(now time.Time) landedState {
	if !t.landed.within(freshFor, now) {
		return 0
	}
	return t.landed.state
}

// lastPosition is the last position; nothing of it is known if it is older than heightFor. A height that is old
// counts for a while: in a climb it is only too low.
func (t *telemetry) lastPosition(now time.Time) position {
	if !t.position.within(heightFor, now) {
		return unknownPosition
	}
	return t.position
}

// restart forgets what a restarted autopilot has forgotten too. What the vehicle is survives, but for the version of
// its firmware, and so does its new clock.
func (t *telemetry) restart() {
	id := t.id
	id.version = 0
	t.keepOnly(id, t.boot)
	t.rebooted = true
}

// replace forgets a vehicle that may be another one.
func (t *telemetry) replace() {
	t.keepOnly(identity{system: t.id.system, autopilot: t.id.autopilot, typ: t.id.typ}, bootClock{})
}

// keepOnly forgets all but what it is given, the newest heartbeat, which the next one replaces, and the texts.
func (t *telemetry) keepOnly(id identity, boot bootClock) {
	was := *t
	*t = newTelemetry()
	t.id = id
	t.boot = boot
	t.beat = was.beat
	t.texts = was.texts
}

func newTelemetry() telemetry {
	t := telemetry{texts: textLog{chunks: make(map[uint16]*chunkedText)}}
	n := math.NaN()
	t.position = unknownPosition
	t.velocity = velocity{north: n, east: n, down: n, air: n, climb: n, ground: n}
	t.home = unknownPoint
	t.target = unknownPoint
	t.ground = unknownGround
	return t
}

const (
	sensorReceiver = uint32(common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER)
	sensorPrearm   = uint32(common.MAV_SYS_STATUS_PREARM_CHECK)

	// sensorTerrain is unhealthy while there is no map of the terrain, which keeps nothing from arming.
	sensorTerrain = uint32(common.MAV_SYS_STATUS_TERRAIN)

	// noSensor says that the extended bits are used.
	noSensor = uint32(common.MAV_SYS_STATUS_EXTENSION_USED)
)

// armable reports whether a takeoff could arm now; nil if that is unknown. The autopilot's
// PREARM_CHECK is about its present mode (PX4 sets it in the health bits only).
// receiverOptional: the takeoff needs no receiver, though the present mode may. A takeoff also needs
// home, ArduPilot's a position too: one by optical flow has no home until somebody sets its origin.
// lacks names what keeps it from arming and is no unhealthy system.
func (t *telemetry) armable(now time.Time, armed, receiverOptional bool) (armable *bool, lacks []string) {
	othersHealthy := t.health.enabled&^t.health.healthy&^(sensorPrearm|sensorReceiver|sensorTerrain) == 0
	passed := t.health.healthy&sensorPrearm != 0 || (receiverOptional && othersHealthy)
	hasHome := !math.IsNaN(t.home.amsl)
	positioned := true
	positionKnown := true
	if t.id.autopilot == common.MAV_AUTOPILOT_ARDUPILOTMEGA {
		positioned, positionKnown = t.estimate.positioned(armed), t.estimate.within(freshFor, now)
	}

	// PX4 has PREARM_CHECK in health only. An older ArduPilot has none at all, and one whose checks are
	// switched off has not enabled it.
	checked := t.id.autopilot == common.MAV_AUTOPILOT_PX4 || (t.health.enabled|t.health.healthy)&sensorPrearm != 0
	if !t.health.within(freshFor, now) || !checked || (passed && !positionKnown) {
		return nil, nil
	}

	if !passed && othersHealthy {
		lacks = append(lacks, "prearm_check")
	}
	if !positioned && positionKnown {
		lacks = append(lacks, "position_estimate")
	}
	if !hasHome {
		lacks = append(lacks, "home_position")
	}
	is := passed && positioned && hasHome
	return &is, lacks
}

// positioned reports whether a Copter can be flown by the EKF's position in GUIDED. A disarmed one needs only the
// prediction that it will have one in the air. It is Copter's own check before arming.
func (e estimate) positioned(armed bool) bool {
	const predictedRelative, predictedAbsolute = 1 << 8, 1 << 9
	willHave := e.flags&(predictedRelative|predictedAbsolute) != 0
	return e.placed() || (!armed && willHave)
}

// placed reports whether the EKF has a horizontal position, from a GPS or relative to its start (optical flow).
func (e estimate) placed() bool {
	const (
		relative, absolute = 1 << 3, 1 << 4

		// constant: it holds a constant position instead of knowing one
		constant = 1 << 7
	)
	return e.flags&(relative|absolute) != 0 && e.flags&constant == 0
}

// fenced reports whether the vehicle has a fence that is switched on.
func (h health) fenced() bool { return h.enabled&uint32(common.MAV_SYS_STATUS_GEOFENCE) != 0 }

func (h health) receiverLive() bool {
	return h.enabled&h.healthy&sensorReceiver != 0
}

// unhealthy returns the unhealthy systems, and gps_glitch where the EKF's GPS has jumped; nil before the first
// SYS_STATUS.
func (t *telemetry) unhealthy(now time.Time) []string {
	list := t.health.unhealthy()
	if list != nil && t.glitches(now) {
		list = append(list, "gps_glitch")
	}
	return list
}

// unhealthy returns the systems that are enabled and not healthy, by their names in
// MAV_SYS_STATUS_SENSOR, in lower case; nil before the first SYS_STATUS.
func (h health) unhealthy() []string {
	if !h.received() {
		return nil
	}
	list := []string{}
	for set := h.enabled &^ h.healthy &^ (sensorPrearm | noSensor); set != 0; set &= set - 1 {
		list = append(list, systemNames[bits.TrailingZeros32(set)])
	}
	return list
}

// systemNames are the names of the bits of MAV_SYS_STATUS_SENSOR.
var systemNames = func() (names [32]string) {
	for i := range names {
		name := common.MAV_SYS_STATUS_SENSOR(1 << i).String()
		names[i] = strings.TrimPrefix(lowerName(name, "MAV_SYS_STATUS_"), "sensor_")
	}
	return names
}()

// glitches reports whether an ArduPilot's GPS is elsewhere than its EKF.
func (t *telemetry) glitches(now time.Time) bool {
	return t.estimate.within(freshFor, now) && t.estimate.glitches()
}

// glitches reports whether the EKF's GPS says that it is elsewhere.
func (e estimate) glitches() bool { return e.flags&(1<<15) != 0 }

// goesOn reports whether next is the same clock, as far as the time between the two can tell.
func (c bootClock) goesOn(next bootClock) bool {
	step := c.ran(next)
	took := next.at.Sub(c.at)
	return c.received() && next.received() && (step-took).Abs() <= clockSlack
}

// jumpedAhead reports whether the clock came back from a silence further ahead than the silence was long: it is
// another vehicle's. A clock that is behind may be a late frame's. behind is how far the line was behind before: it may
// have caught up meanwhile.
func (c bootClock) jumpedAhead(was bootClock, behind time.Duration) bool {
	took := c.at.Sub(was.at)
	return was.received() && took >= offlineAfter && was.ran(c) > took+behind+clockSlack
}

func clockAt(bootMs uint32, left time.Time) bootClock {
	return bootClock{group{left}, bootMs}
}

// ran is how far the clock ran until next. A restart after more than half of 2^32 ms looks like a jump ahead.
func (c bootClock) ran(next bootClock) time.Duration { return clockStep(c.ms, next.ms) }

// clockStep is how far a boot clock ran from one message to the next, forwards or backwards, over 2^32 ms too.
func clockStep(from, to uint32) time.Duration {
	return time.Duration(int32(to-from)) * time.Millisecond
}

const (
	// keptTexts is how many texts are kept (docs/openapi.yaml).
	keptTexts = 20

	// fullChunk is the length of a full chunk. A shorter one is a text's last.
	fullChunk = 50

	// missingChunk replaces a chunk that did not arrive.
	missingChunk = "…"
)

// hear records a STATUSTEXT or one chunk of it. Id 0 means a text of one chunk, but PX4's
// first long text after a boot has it too: a full chunk with id 0 waits for a second one.
func (l *textLog) hear(m *common.MessageStatustext, left time.Time) {
	if m.Id == 0 && m.ChunkSeq == 0 {
		l.end(0)
	}
	c := l.chunks[m.Id]
	if c == nil {
		// Nobody sends so many at once: noise or a flood.
		if len(l.chunks) >= 8 {
			clear(l.chunks)
		}
		c = &chunkedText{severity: uint8(m.Severity), began: left}
		l.chunks[m.Id] = c
	}
	for len(c.parts) <= int(m.ChunkSeq) {
		c.parts = append(c.parts, missingChunk)
	}
	c.parts[m.ChunkSeq] = m.Text
	if last := c.parts[len(c.parts)-1]; len(last) < fullChunk && !slices.Contains(c.parts, missingChunk) {
		l.end(m.Id)
	}
}

// flush ends the texts that have waited longer than wait: a chunk was lost, or the last
// one is as long as a full one. It returns when to call it next; zero if no text waits.
func (l *textLog) flush(now time.Time, wait time.Duration) (next time.Time) {
	for id, c := range l.chunks {
		if due := c.began.Add(wait); now.Before(due) {
			next = sooner(next, due)
		} else {
			l.end(id)
		}
	}
	return next
}

// end adds a text, complete or not, with a mark for each missing chunk.
func (l *textLog) end(id uint16) {
	if c := l.chunks[id]; c != nil {
		delete(l.chunks, id)
		l.complete(statusText{c.severity, strings.Join(c.parts, ""), c.began})
	}
}

// complete adds a text of the autopilot, which is to be logged, also where it is hidden.
func (l *textLog) complete(s statusText) {
	l.toLog = append(l.toLog, s)
	l.add(s)
}

// add keeps a text. It drops a hidden one, unless that is an error or worse.
func (l *textLog) add(s statusText) {
	s.text = strings.ToValidUTF8(strings.TrimRight(s.text, "\t \r\n"), "�")
	begins := func(beginning string) bool { return strings.HasPrefix(s.text, beginning) }
	if s.severity >= uint8(common.MAV_SEVERITY_WARNING) && slices.ContainsFunc(hidden, begins) {
		return
	}
	l.kept = append(l.kept, s)
	l.kept = l.kept[max(0, len(l.kept)-keptTexts):]
}

// hidden are the beginnings of texts about our own requests and heartbeats
// (docs/autopilots.md, "PX4: texts" and "ArduPilot: streams").
var hidden = []string{"No ap_message", "Connection to ground station lost", "GCS connection regained"}

// since returns a copy of the texts that came at t or later.
func (l *textLog) since(t time.Time) []statusText {
	return slices.DeleteFunc(slices.Clone(l.kept), func(s statusText) bool { return s.at.Before(t) })
}

// ofChecks reports whether a text is one of the checks before arming.
func (t statusText) ofChecks() bool {
	return strings.HasPrefix(t.text, "PreArm") ||
		strings.HasPrefix(t.text, "Arm:") ||
		strings.HasPrefix(t.text, "Preflight")
}

// within reports whether the values are no older than d. Those that never came are centuries old.
func (g group) within(d time.Duration, now time.Time) bool { return now.Sub(g.at) <= d }

func (g group) received() bool { return !g.at.IsZero() }

// knownName is lowerName of a name that the dialect has; "" for the number that stands for no name.
func knownName(s, prefix string) string {
	if !strings.HasPrefix(s, prefix) {
		return ""
	}
	return lowerName(s, prefix)
}

// lowerName turns a MAVLink name into a word of the status object.
func lowerName(s, prefix string) string { return strings.ToLower(strings.TrimPrefix(s, prefix)) }

// finite returns v; NaN if it is infinite.
func finite(v float64) float64 { return nanIf(math.IsInf(v, 0), v) }

// within returns v; NaN if it is farther from 0 than most.
func within(v, most float64) float64 { return nanIf(math.Abs(v) > most, v) }

// onEarth reports whether a latitude and a longitude, in degrees, are a place.
func onEarth(lat, lon float64) bool { return math.Abs(lat) <= 90 && math.Abs(lon) <= 180 }

// nanIf returns v; NaN, which means unknown here, if the vehicle reports it as unknown.
func nanIf(unknown bool, v float64) float64 {
	if unknown {
		return math.NaN()
	}
	return v
}

// degrees returns an angle in degrees as 0 to 360.
func degrees(angle float64) float64 {
	return math.Mod(math.Mod(angle, 360)+360, 360)
}

// distance returns the metres over ground between two places, on a sphere.
func distance(lat1, lon1, lat2, lon2 float64) float64 {
	const radian = math.Pi / 180
	north := math.Sin((lat2 - lat1) / 2 * radian)
	east := math.Sin((lon2 - lon1) / 2 * radian)

	// The haversine formula: exact for centimetres too.
	h := north*north + math.Cos(lat1*radian)*math.Cos(lat2*radian)*east*east
	return 2 * earthRadius * math.Asin(math.Min(1, math.Sqrt(h)))
}

// metres
const earthRadius = 6371000

// displaced is the place some metres north and east of another, up to a few kilometres off: on the plane that touches
// the ellipsoid there, with its two radii of curvature, seen from the plumb line's foot. Seen so, a pole and 180° are
// places as any other.
func displaced(lat, lon, north, east float64) (float64, float64) {
	const radian = math.Pi / 180
	sin, cos := math.Sincos(lat * radian)
	w := 1 - eccentricity2*sin*sin
	along := north * math.Pow(w, 1.5) / (equatorRadius * (1 - eccentricity2))
	across := east * math.Sqrt(w) / equatorRadius
	out := cos - along*sin
	return math.Atan2(sin+along*cos, math.Hypot(out, across)) / radian,
		math.Remainder(lon+math.Atan2(across, out)/radian, 360)
}

// Of the earth's ellipsoid (WGS84): its radius at the equator in metres, and its first eccentricity squared.
const (
	equatorRadius = 6378137
	eccentricity2 = 0.00669437999014
)

// sooner returns the earlier of two times; the zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
