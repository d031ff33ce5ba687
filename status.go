package main

import (
	"math"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// ownVersion is the version of this program: that of the newest heading of CHANGELOG.md, where deploy/version
// reads it.
const ownVersion = "v1.5.0"

// snapshot is the drone at one moment, for the status.
type snapshot struct {
	situation

	// began is when the program began.
	began time.Time

	tel      *telemetry
	modeName string

	// armable: a takeoff could arm now; nil if unknown
	armable *bool

	// lacks is what keeps it from arming and is no unhealthy system.
	lacks []string

	// done: the last manoeuvre is complete; nil if there is none, or it ended incomplete
	done *bool

	target *place

	// by: who has the sticks; "" if nobody has
	by string

	// expires is when the client's sticks expire; zero if none are in force.
	expires time.Time

	// from: the client that has the sticks; invalid if none has
	from netip.Addr

	link linkState
}

// statusBody is the status (docs/openapi.yaml, Status). A group or a value that the vehicle never reported is
// null, and so is a value that it reports as unknown.
type statusBody struct {
	Version     string        `json:"version"`
	Time        number        `json:"time"`
	Online      bool          `json:"online"`
	Mode        string        `json:"mode"`
	VehicleMode *string       `json:"vehicle_mode"`
	Armed       *bool         `json:"armed"`
	InAir       *bool         `json:"in_air"`
	LandedState *string       `json:"landed_state"`
	State       *string       `json:"state"`
	Failsafe    *bool         `json:"failsafe"`
	Armable     *bool         `json:"armable"`
	Unhealthy   []string      `json:"unhealthy"`
	Done        *bool         `json:"done"`
	Vehicle     *vehicleBody  `json:"vehicle"`
	Position    *positionBody `json:"position"`
	Velocity    *velocityBody `json:"velocity"`
	Attitude    *attitudeBody `json:"attitude"`
	Battery     *batteryBody  `json:"battery"`
	GPS         *gpsBody      `json:"gps"`
	Home        *homeBody     `json:"home"`
	Target      *targetBody   `json:"target"`
	Input       inputBody     `json:"input"`
	Messages    []messageBody `json:"messages"`
	Link        linkBody      `json:"link"`
}

type vehicleBody struct {
	Autopilot *string `json:"autopilot"`
	Type      *string `json:"type"`
	Version   *string `json:"version"`
	SystemID  byte    `json:"system_id"`

	// Kind is how it moves now.
	Kind *string `json:"kind"`

	// Circles: the radius of the circle that it flies round a place
	Circles *number `json:"circles"`

	// Modes: that it can be set to
	Modes []string `json:"modes"`

	// ReturnAltitude: the height to which a return climbs first
	ReturnAltitude *number `json:"return_altitude"`
}

type positionBody struct {
	Lat         number `json:"lat"`
	Lon         number `json:"lon"`
	Altitude    number `json:"altitude"`
	AltitudeMSL number `json:"altitude_msl"`
	Heading     number `json:"heading"`
	Age         number `json:"age"`
}

type velocityBody struct {
	North       number `json:"north"`
	East        number `json:"east"`
	Down        number `json:"down"`
	GroundSpeed number `json:"ground_speed"`
	AirSpeed    number `json:"air_speed"`
	Climb       number `json:"climb"`
	Age         number `json:"age"`
}

type attitudeBody struct {
	Roll  number `json:"roll"`
	Pitch number `json:"pitch"`
	Yaw   number `json:"yaw"`
	Age   number `json:"age"`
}

type batteryBody struct {
	Voltage   number `json:"voltage"`
	Current   number `json:"current"`
	Remaining number `json:"remaining"`
	Age       number `json:"age"`
}

type gpsBody struct {
	Receiver   int     `json:"receiver"`
	Fix        *string `json:"fix"`
	Satellites number  `json:"satellites"`
	HDOP       number  `json:"hdop"`
	Age        number  `json:"age"`
}

type homeBody struct {
	Lat         number `json:"lat"`
	Lon         number `json:"lon"`
	AltitudeMSL number `json:"altitude_msl"`
	Age         number `json:"age"`
}

// targetBody is where the vehicle flies to; Distance is null without a fresh position.
type targetBody struct {
	Lat      number `json:"lat"`
	Lon      number `json:"lon"`
	Altitude number `json:"altitude"`
	Distance number `json:"distance"`
}

type inputBody struct {
	Active    bool    `json:"active"`
	ExpiresIn *number `json:"expires_in"`
	By        *string `json:"by"`
	From      *string `json:"from"`
	Yours     bool    `json:"yours"`
}

type linkBody struct {
	Device       string  `json:"device"`
	Baud         *int    `json:"baud"`
	HeartbeatAge number  `json:"heartbeat_age"`
	Lag          number  `json:"lag"`
	Received     uint64  `json:"received"`
	Lost         *uint64 `json:"lost"`
	Errors       uint64  `json:"errors"`
	Sent         uint64  `json:"sent"`
	Error        *string `json:"error"`
}

// render is the status for a client.
func render(s *snapshot, client netip.Addr) *statusBody {
	t := s.tel
	now := s.now
	heard := t.beat.received()
	body := &statusBody{
		Version:     ownVersion,
		Time:        age(now, s.began),
		Online:      s.online,
		Mode:        s.mode.String(),
		VehicleMode: ifKnown(heard, s.modeName),
		Armed:       ifKnown(heard, s.armed),
		InAir:       ifKnown(landedStates[s.landed] != "" && s.knowsGround(), s.leftGround()),
		LandedState: word(landedStates[s.landed]),
		State:       word(t.beat.state),
		Failsafe:    ifKnown(heard, t.beat.critical),
		Armable:     s.armable,
		Unhealthy:   append(t.unhealthy(now), s.lacks...),
		Done:        s.done,
		Target:      s.targetBody(),
		Input:       s.inputBody(client),
		Messages:    messages(t.texts.since(time.Time{}), now),
		Link:        s.link.body(age(now, t.beat.at)),
	}
	if heard {
		body.Vehicle = s.vehicleBody()
	}
	renderFlight(body, t, now)
	if b := &t.battery; b.received() {
		body.Battery = b.body(now)
	}
	if g := &t.gps; g.received() {
		body.GPS = g.body(now)
	}
	if home := &t.home; home.received() {
		body.Home = home.body(now)
	}
	if heard && s.isForeign() {
		body.dropUnsure()
	}
	return body
}

// statusType: encoding/json was a fifth of what a poll costs (docs/performance.md).
var statusType = jsonOf(reflect.TypeFor[statusBody]())

// append appends the status as JSON, with a newline.
func (body *statusBody) append(b []byte) []byte {
	return append(statusType.append(b, reflect.ValueOf(body).Elem()), '\n')
}

// dropUnsure makes null what another autopilot than PX4 or ArduPilot may mean in another way (docs/autopilots.md, "INAV
// and Betaflight").
func (body *statusBody) dropUnsure() {
	unknown := number(math.NaN())
	body.Unhealthy = []string{}
	body.Link.Lost = nil
	if v := body.Vehicle; v != nil {
		v.Version = nil
	}
	if p := body.Position; p != nil {
		p.Altitude = unknown
	}
	if v := body.Velocity; v != nil {
		v.Down = unknown
	}
	if b := body.Battery; b != nil && b.Voltage == 0 {
		b.Voltage = unknown
		b.Remaining = unknown
	}
}

// landedStates are the names of MAV_LANDED_STATE in the API. Any other number is unknown.
var landedStates = map[landedState]string{1: "on_ground", 2: "in_air", 3: "takeoff", 4: "landing"}

func (s *snapshot) vehicleBody() *vehicleBody {
	id := &s.tel.id
	returns := s.returnAltitude()
	return &vehicleBody{
		Autopilot: word(autopilotName(id.autopilot)),
		Type:      word(knownName(id.typ.String(), "MAV_TYPE_")),
		Version:   word(id.version.String()),
		SystemID:  id.system,
		Kind:      word(kindNames[s.kind()]),
		Circles:   ifKnown(s.circle() > 0, rounded(s.circle(), 0)),
		Modes:     s.modes(),

		ReturnAltitude: ifKnown(!math.IsNaN(returns), rounded(returns, 1)),
	}
}

// autopilotName is a MAV_AUTOPILOT in the API: ardupilot stands for ardupilotmega. It is "" for one
// that has no name.
func autopilotName(a common.MAV_AUTOPILOT) string {
	return strings.TrimSuffix(knownName(a.String(), "MAV_AUTOPILOT_"), "mega")
}

// renderFlight adds where the vehicle is, how it moves and how it is tilted.
func renderFlight(body *statusBody, t *telemetry, now time.Time) {
	if p := &t.position; p.received() {
		body.Position = &positionBody{
			Lat:         rounded(p.lat, 7),
			Lon:         rounded(p.lon, 7),
			Altitude:    rounded(p.relative, 2),
			AltitudeMSL: rounded(p.amsl, 2),
			Heading:     rounded(p.heading, 2),
			Age:         age(now, p.at),
		}
	}
	if v := &t.velocity; v.received() {
		body.Velocity = &velocityBody{
			North:       rounded(v.north, 2),
			East:        rounded(v.east, 2),
			Down:        rounded(v.down, 2),
			GroundSpeed: rounded(v.ground, 2),
			AirSpeed:    rounded(v.air, 2),
			Climb:       rounded(v.climb, 2),
			Age:         age(now, v.at),
		}
	}
	if a := &t.attitude; a.received() {
		body.Attitude = &attitudeBody{
			Roll:  rounded(a.roll, 1),
			Pitch: rounded(a.pitch, 1),
			Yaw:   rounded(a.yaw, 1),
			Age:   age(now, a.at),
		}
	}
}

func (b *battery) body(now time.Time) *batteryBody {
	return &batteryBody{
		Voltage:   rounded(b.voltage, 2),
		Current:   rounded(b.current, 2),
		Remaining: rounded(b.remaining, 0),
		Age:       age(now, b.at),
	}
}

func (g *gps) body(now time.Time) *gpsBody {
	return &gpsBody{
		Receiver:   g.receiver,
		Fix:        word(g.fix),
		Satellites: rounded(g.satellites, 0),
		HDOP:       rounded(g.hdop, 2),
		Age:        age(now, g.at),
	}
}

// body is home in the status.
func (home *point) body(now time.Time) *homeBody {
	return &homeBody{
		Lat:         rounded(home.lat, 7),
		Lon:         rounded(home.lon, 7),
		AltitudeMSL: rounded(home.amsl, 2),
		Age:         age(now, home.at),
	}
}

func (s *snapshot) targetBody() *targetBody {
	to := s.target
	p := &s.tel.position
	metres := math.NaN()
	if to == nil {
		return nil
	}
	if p.within(freshFor, s.now) {
		metres = distance(p.lat, p.lon, to.lat, to.lon)
	}
	return &targetBody{
		Lat:      rounded(to.lat, 7),
		Lon:      rounded(to.lon, 7),
		Altitude: rounded(to.altitude, 2),
		Distance: rounded(metres, 1),
	}
}

func (s *snapshot) inputBody(client netip.Addr) inputBody {
	left := s.expires.Sub(s.now)
	return inputBody{
		Active:    left > 0,
		ExpiresIn: ifKnown(left > 0, rounded(left.Seconds(), 2)),
		By:        word(s.by),
		From:      ifKnown(s.from.IsValid(), s.from.String()),
		Yours:     s.from.IsValid() && s.from == client,
	}
}

func (l *linkState) body(heartbeatAge number) linkBody {
	// The address of l.lost would keep the snapshot that it is in.
	lost := l.lost
	return linkBody{
		Device:       l.device,
		Baud:         ifKnown(l.baud != 0, l.baud),
		HeartbeatAge: heartbeatAge,
		Lag:          rounded(l.behind(), 2),
		Received:     l.received,
		Lost:         &lost,
		Errors:       l.errors,
		Sent:         l.sent,
		Error:        errorText(l.fault),
	}
}

// errorText is what an error says; nil without one.
func errorText(err error) *string {
	if err == nil {
		return nil
	}
	return word(err.Error())
}

// behind is how far the line is behind, in seconds; NaN if unknown.
func (l *linkState) behind() float64 { return nanIf(!l.lagKnown, l.lag.Seconds()) }

// joined is both texts; either may be "".
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

type messageBody struct {
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Age      number `json:"age"`
}

// severities are the names of MAV_SEVERITY in the API.
var severities = [...]string{"emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"}

func messages(texts []statusText, now time.Time) []messageBody {
	list := make([]messageBody, 0, len(texts))
	for _, t := range texts {
		list = append(list, messageBody{severities[min(int(t.severity), len(severities)-1)], t.text, age(now, t.at)})
	}
	return list
}

// word returns the address of s; nil if it is empty.
func word(s string) *string { return ifKnown(s != "", s) }

// ifKnown returns the address of v; nil, which is null in JSON, if it is not known.
func ifKnown[T any](known bool, v T) *T {
	if !known {
		return nil
	}
	return &v
}

// age returns the seconds since at; unknown if at is zero.
func age(now, at time.Time) number {
	if at.IsZero() {
		return number(math.NaN())
	}
	return rounded(now.Sub(at).Seconds(), 2)
}

// rounded is v rounded to that many decimals.
func rounded(v float64, decimals int) number {
	scale := math.Pow10(decimals)

	// + 0 turns −0 into 0
	return number(math.Round(v*scale)/scale + 0)
}
