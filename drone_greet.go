package main

import (
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

const (
	greetAgain = 5 * time.Second        // after a greeting that was not answered
	forgetful  = 5 * time.Second        // without an attitude: the autopilot has forgotten the streams
	paramWait  = 150 * time.Millisecond // for a PARAM_VALUE; or two round trips
)

// stream is a message asked for by SET_MESSAGE_INTERVAL, in Hz.
type stream struct {
	id uint32
	hz float32
}

// streams take 1,500 bytes a second at most, under half of a link at 57600 baud.
var streams = []stream{
	{33, 10},   // GLOBAL_POSITION_INT
	{30, 10},   // ATTITUDE
	{245, 4},   // EXTENDED_SYS_STATE
	{74, 4},    // VFR_HUD
	{24, 2},    // GPS_RAW_INT
	{1, 2},     // SYS_STATUS
	{242, 0.5}, // HOME_POSITION
}

// receiverHz is the rate of RC_CHANNELS: ArduPilot's shows whose sticks are in
// force, PX4's only that there is a transmitter.
func receiverHz(f firmware) float32 {
	if f.ardupilot() {
		return 4
	}
	return 1
}

// greeting is what a vehicle is asked when it comes online or has started again:
// the streams, what it sends only once, and the parameters that rules rest on.
type greeting struct {
	drone   *drone
	running bool
	left    []stream  // not acknowledged yet
	again   bool      // it should begin anew
	met     time.Time // when one began
	retry   time.Time // when an unanswered one begins anew

	params   map[string]float64 // as the vehicle told them
	spedUp   bool               // a goto from here had a speed of its own
	failsafe bool               // the last heartbeat's
	prearmAt time.Time          // of the last report of PX4's checks
}

// begin greets the vehicle: it is asked everything.
func (g *greeting) begin() {
	g.params = nil
	g.left = append(slices.Clone(streams), stream{65, receiverHz(g.drone.firmware)}) // RC_CHANNELS
	g.again = true
	g.start()
}

func (g *greeting) start() {
	if g.running || g.drone.cmd.stopped {
		return
	}
	g.running, g.met = true, time.Now()
	g.drone.wg.Go(g.run)
}

// tick asks again what was not answered, greets a vehicle that has forgotten the
// streams, and tells when it is to be called next.
func (g *greeting) tick(now time.Time) time.Time {
	d := g.drone
	if g.running || !d.online {
		return time.Time{}
	}
	if !g.retry.IsZero() && !now.Before(g.retry) {
		g.again = true
		g.start()
		return time.Time{}
	}
	// An autopilot that started again within 3 s has forgotten the streams.
	at := d.tel.attitude.at
	if !at.IsZero() && now.Sub(at) > forgetful && now.Sub(g.met) > 2*forgetful {
		g.begin()
		return time.Time{}
	}
	return g.retry
}

// run asks everything that is left, and again what was not answered.
func (g *greeting) run() {
	d := g.drone
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { g.running = false }()
	for g.again && d.online && !d.cmd.stopped {
		g.again, g.retry = false, time.Time{}
		g.ask()
		if len(g.left) > 0 && !g.again {
			g.retry = time.Now().Add(greetAgain)
			d.pokeClock()
		}
	}
}

// ask asks what is left, until something else is to be asked.
func (g *greeting) ask() {
	d := g.drone
	t := &talk{by: d.cmd}
	names := g.names()
	for _, name := range names {
		g.request(name)
	}
	for _, s := range slices.Clone(g.left) {
		interval := d.firmware.command(common.MAV_CMD_SET_MESSAGE_INTERVAL, float32(s.id), 1e6/s.hz)
		_, err := t.transact(&interval)
		if g.again || !d.online || d.cmd.stopped {
			return
		}
		if err == nil {
			g.left = slices.DeleteFunc(g.left, func(o stream) bool { return o == s })
		}
	}
	for _, id := range []uint32{242, 148} { // HOME_POSITION, AUTOPILOT_VERSION
		for range 3 {
			if g.message(t, id) {
				break
			}
		}
	}
	for _, name := range names {
		g.sure(t, name)
	}
}

// message asks for a message once and waits for it.
func (g *greeting) message(t *talk, id uint32) bool {
	a := g.drone.cmd.acks
	t.await(time.Now().Add(paramWait), func() bool { return a.question == nil })
	q := a.ask(id, time.Now())
	return q != nil && t.await(q.until, func() bool { return q.answer }) == nil
}

// names are the parameters of this vehicle, by their present and newer names.
func (g *greeting) names() []string {
	switch g.drone.firmware {
	case px4:
		return []string{"COM_RC_IN_MODE", "NAV_DLL_ACT"}
	case copter:
		return []string{"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABLE", "WPNAV_SPEED"}
	case quadPlane:
		return []string{"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABL", "Q_GUIDED_MODE"}
	case plane:
		return []string{"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABL"}
	}
	return nil
}

// sourceParam is the parameter that says whose sticks count.
func (g *greeting) sourceParam() string {
	switch g.drone.firmware {
	case px4:
		return "COM_RC_IN_MODE"
	case copter:
		return "FS_GCS_ENABLE"
	}
	return "FS_GCS_ENABL"
}

func (g *greeting) request(name string) {
	d := g.drone
	d.say(&common.MessageParamRequestRead{
		TargetSystem: d.tel.id.system, TargetComponent: autopilotID, ParamId: name, ParamIndex: -1,
	})
}

// sure waits until a parameter is known, and asks for it where it is not. One
// that is not answered has its default; the error is the end of the talk.
func (g *greeting) sure(t *talk, name string) error {
	known := func() bool { _, ok := g.params[name]; return ok }
	for range 2 {
		if known() {
			return nil
		}
		g.request(name)
		wait := max(paramWait, 2*g.drone.cmd.acks.trip)
		if err := unlessLate(t.await(time.Now().Add(wait), known)); err != nil {
			return err
		}
	}
	return nil
}

func (g *greeting) forget(name string) { delete(g.params, name) }

// hearParam takes a PARAM_VALUE. PX4 puts an integer's bits into the float.
func (g *greeting) hearParam(m *common.MessageParamValue) {
	v := float64(m.ParamValue)
	if g.drone.firmware == px4 && m.ParamType == common.MAV_PARAM_TYPE_INT32 {
		v = float64(int32(math.Float32bits(m.ParamValue)))
	}
	if !slices.Contains(g.names(), m.ParamId) {
		return
	}
	if g.params == nil {
		g.params = make(map[string]float64)
	}
	g.params[m.ParamId] = v
	src := &g.drone.sources
	switch m.ParamId {
	case "COM_RC_IN_MODE":
		src.rcIn = v
	case "FS_GCS_ENABLE", "FS_GCS_ENABL":
		src.gcsFailsafe, src.gcsName = v, m.ParamId
	}
	g.drone.cmd.bell.ring()
}

// groundStation is the system that ArduPilot takes sticks from; 255 if it does
// not say.
func (g *greeting) groundStation() byte {
	for _, name := range []string{"SYSID_MYGCS", "MAV_GCS_SYSID"} {
		if v, ok := g.params[name]; ok && v >= 1 && v <= 255 {
			return byte(v)
		}
	}
	return 255
}

// settings are the parameters that plans rest on.
func (g *greeting) settings() settings {
	s := settings{guidedHovers: math.NaN(), cruise: 10, spedUp: g.spedUp}
	if v, ok := g.params["Q_GUIDED_MODE"]; ok {
		s.guidedHovers = v
	}
	if v, ok := g.params["WPNAV_SPEED"]; ok && v > 0 {
		s.cruise = v / 100 // cm/s
	}
	return s
}
