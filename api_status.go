package main

import (
	"math"
	"net/http"
	"slices"
	"time"
)

// statusBody is the status object (docs/openapi.yaml). A nil is null: never reported, or
// reported as unknown.
type statusBody struct {
	Version     string        `json:"version"`
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
	Autopilot string  `json:"autopilot"`
	Type      string  `json:"type"`
	Version   *string `json:"version"`
	SystemID  uint8   `json:"system_id"`
}

type positionBody struct {
	Lat         *float64 `json:"lat"`
	Lon         *float64 `json:"lon"`
	Altitude    *float64 `json:"altitude"`
	AltitudeMSL *float64 `json:"altitude_msl"`
	Heading     *float64 `json:"heading"`
	Age         *float64 `json:"age"`
}

type velocityBody struct {
	North       *float64 `json:"north"`
	East        *float64 `json:"east"`
	Down        *float64 `json:"down"`
	GroundSpeed *float64 `json:"ground_speed"`
	AirSpeed    *float64 `json:"air_speed"`
	Climb       *float64 `json:"climb"`
	Age         *float64 `json:"age"`
}

type attitudeBody struct {
	Roll  *float64 `json:"roll"`
	Pitch *float64 `json:"pitch"`
	Yaw   *float64 `json:"yaw"`
	Age   *float64 `json:"age"`
}

type batteryBody struct {
	Voltage   *float64 `json:"voltage"`
	Current   *float64 `json:"current"`
	Remaining *float64 `json:"remaining"`
	Age       *float64 `json:"age"`
}

type gpsBody struct {
	Fix        *string  `json:"fix"`
	Satellites *float64 `json:"satellites"`
	HDOP       *float64 `json:"hdop"`
	Age        *float64 `json:"age"`
}

type homeBody struct {
	Lat         *float64 `json:"lat"`
	Lon         *float64 `json:"lon"`
	AltitudeMSL *float64 `json:"altitude_msl"`
}

type targetBody struct {
	Lat      *float64 `json:"lat"`
	Lon      *float64 `json:"lon"`
	Altitude *float64 `json:"altitude"`
	Distance *float64 `json:"distance"`
}

type inputBody struct {
	Active    bool     `json:"active"`
	ExpiresIn *float64 `json:"expires_in"`
	By        *string  `json:"by"`
}

type linkBody struct {
	Device       string   `json:"device"`
	Baud         *int     `json:"baud"`
	HeartbeatAge *float64 `json:"heartbeat_age"`
	Received     uint64   `json:"received"`
	Lost         uint64   `json:"lost"`
	Errors       uint64   `json:"errors"`
	Sent         uint64   `json:"sent"`
	Error        *string  `json:"error"`
}

// number is v with so many decimals, null where it is unknown.
func number(v float64, decimals int) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	scale := math.Pow10(decimals)
	v = math.Round(v*scale) / scale
	if v == 0 {
		v = 0 // no minus before a zero
	}
	return &v
}

// word is s, null where it is empty.
func word(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// age is the time since at in seconds, null where it never was.
func age(now, at time.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	return number(now.Sub(at).Seconds(), 2)
}

// landedStates are the names of MAV_LANDED_STATE in the API; 0 is unknown.
var landedStates = [...]string{"", "on_ground", "in_air", "takeoff", "landing"}

func (a *api) getStatus(w http.ResponseWriter, r *http.Request) (any, error) {
	w.Header().Add("Vary", "Accept")
	switch accept := r.Header["Accept"]; {
	case accepts(accept, "text/event-stream"):
		return a.stream(w, r)
	case wantsPage(accept):
		writePage(w, http.StatusOK, statusPage())
		return answered, nil
	}
	return render(a.drone.status()), nil
}

// render is the status object of a snapshot.
func render(s snapshot) statusBody {
	t := &s.tel
	b := statusBody{
		Version:  ownVersion(),
		Online:   s.online,
		Mode:     s.mode.String(),
		Done:     s.done,
		Messages: messages(t.texts.since(time.Time{}), s.now),
		Input:    inputBody{By: word(s.by)},
		Link: linkBody{
			Device: s.link.device, HeartbeatAge: age(s.now, t.beat.at),
			Received: s.link.received, Lost: s.link.lost, Errors: s.link.errors, Sent: s.link.sent,
			Error: word(s.fault),
		},
	}
	if s.link.baud != 0 {
		b.Link.Baud = &s.link.baud
	}
	if !t.beat.at.IsZero() {
		b.VehicleMode, b.Armed, b.State, b.Failsafe = word(s.modeName), &t.beat.armed, word(t.beat.state), &t.beat.failsafe
		b.Vehicle = &vehicleBody{autopilotName(t.id.autopilot), lowerName(t.id.typ.String(), "MAV_TYPE_"), word(t.id.version), t.id.system}
	}
	if stands := t.stands(s.now); stands > 0 && int(stands) < len(landedStates) {
		inAir := stands.inAir()
		b.InAir, b.LandedState = &inAir, word(landedStates[stands])
	}
	if armable, known := t.armable(s.now); known {
		b.Armable = &armable
	}
	if !t.health.at.IsZero() {
		b.Unhealthy = t.health.unhealthy()
	}
	if left := s.expires.Sub(s.now); left > 0 {
		b.Input.Active, b.Input.ExpiresIn = true, number(left.Seconds(), 2)
	}
	if p := s.target; p != nil {
		b.Target = &targetBody{number(p.lat, 7), number(p.lon, 7), number(p.altitude, 2), nil}
		if t.position.within(freshFor, s.now) {
			b.Target.Distance = number(distance(t.position.lat, t.position.lon, p.lat, p.lon), 1)
		}
	}
	if p := &t.position; !p.at.IsZero() {
		b.Position = &positionBody{number(p.lat, 7), number(p.lon, 7), number(p.relative, 2), number(p.amsl, 2), number(p.heading, 2), age(s.now, p.at)}
	}
	if v := &t.velocity; !v.at.IsZero() {
		b.Velocity = &velocityBody{number(v.north, 2), number(v.east, 2), number(v.down, 2), number(v.ground, 2), number(v.air, 2), number(v.climb, 2), age(s.now, v.at)}
	}
	if v := &t.attitude; !v.at.IsZero() {
		b.Attitude = &attitudeBody{number(v.roll, 1), number(v.pitch, 1), number(v.yaw, 1), age(s.now, v.at)}
	}
	if v := &t.battery; !v.at.IsZero() {
		b.Battery = &batteryBody{number(v.voltage, 2), number(v.current, 2), number(v.remaining, 0), age(s.now, v.at)}
	}
	if g := &t.gps; !g.at.IsZero() {
		b.GPS = &gpsBody{word(g.fix), number(g.satellites, 0), number(g.hdop, 2), age(s.now, g.at)}
	}
	if h := &t.home; !h.at.IsZero() {
		b.Home = &homeBody{number(h.lat, 7), number(h.lon, 7), number(h.amsl, 2)}
	}
	return b
}

// Limits of the stream of the status (docs/openapi.yaml).
const (
	maxStreams  = 16
	eventEvery  = 100 * time.Millisecond // at most
	eventAtMost = time.Second            // without one
	eventBuffer = 16 << 10               // bytes; the system's own holds minutes of a client that does not read
)

// stream sends the status whenever something in it changed, until the client or
// the program goes away.
func (a *api) stream(w http.ResponseWriter, r *http.Request) (any, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	if r.Method == http.MethodHead {
		return answered, nil
	}
	end := a.openStream()
	defer a.closeStream(end)
	if conn, ok := r.Context().Value(connKey{}).(*boundedConn); ok {
		conn.hold(nil)
		if c, ok := conn.Conn.(interface{ SetWriteBuffer(int) error }); ok {
			c.SetWriteBuffer(eventBuffer)
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var sent time.Time
	var shown uint64
	out := []byte("retry: 1000\n\n")
	for {
		changes := a.drone.changes.Load()
		if now := time.Now(); changes != shown || now.Sub(sent) >= eventAtMost {
			out = append(out, "event: status\ndata: "...)
			out = append(append(out, encode(render(a.drone.status()))...), '\n')
			rc.SetWriteDeadline(now.Add(answerHangs))
			if _, err := w.Write(out); err != nil || rc.Flush() != nil {
				return answered, nil
			}
			out, sent, shown = out[:0], now, changes
		}
		timer.Reset(eventEvery)
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return answered, nil
		case <-end:
			return answered, nil
		case <-a.drone.ended:
			return answered, nil
		}
	}
}

// openStream takes a place among the streams, that of the oldest where none is
// free.
func (a *api) openStream() (end chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.streams) == maxStreams {
		close(a.streams[0])
		a.streams = a.streams[1:]
	}
	end = make(chan struct{})
	a.streams = append(a.streams, end)
	return end
}

func (a *api) closeStream(end chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams = slices.DeleteFunc(a.streams, func(o chan struct{}) bool { return o == end })
}
