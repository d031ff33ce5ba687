package main

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of the handshake and of what is requested later (docs/design.md, "The mode
// machine").
const (
	handshakeAgain = 5 * time.Second         // after one that was not answered
	forgetful      = 5 * time.Second         // without an attitude: the autopilot has forgotten the streams
	liveAfter      = 1500 * time.Millisecond // without a live report, the vehicle has forgotten that too
	aheadFor       = 100 * time.Millisecond  // CURRENT_MODE is ahead of HEARTBEAT by 15 ms
	liveGap        = 500 * time.Millisecond  // between two HEARTBEATs that are live
	behindEvery    = 10 * time.Millisecond   // for a HEARTBEAT that shows what CURRENT_MODE did
	pollEvery      = 100 * time.Millisecond  // for a report, where none is live
	targetEvery    = time.Second             // for a target; and with a stick stream, to hear that it is heard
	messageWait    = 150 * time.Millisecond  // for a message that was requested; or two round trips
)

// stream is a message asked for by SET_MESSAGE_INTERVAL, in Hz.
type stream struct {
	id uint32
	hz float32
}

// streams take 1,500 bytes a second at most, under half of a link at 57600 baud.
var streams = []stream{
	{idPosition, 10},
	{idAttitude, 10},
	{idExtendedState, 4},
	{idHUD, 4},
	{idGPS, 2},
	{idSysStatus, 2},
	{idHome, 0.5},
}

// handshake is what a vehicle is asked when it comes online or has started again:
// live reports of its mode, the streams, what it sends only once, and its
// parameters. Later it requests what does not come by itself.
type handshake struct {
	craft  *aircraft
	params *parameters
	cmd    *commander
	clock  *clock
	wg     *sync.WaitGroup // of its goroutine
	slow   func() bool     // the link is slower than 115200 baud

	running bool
	again   bool      // it should begin anew
	left    []stream  // not acknowledged yet
	met     time.Time // when one began
	retry   time.Time // when an unanswered one begins anew

	promised bool      // the vehicle accepted to send live reports
	live     time.Time // when the last live report came
	beat     time.Time // when the last HEARTBEAT came

	polled, target, look time.Time // when a report, the target, the receiver's state were requested
}

// liveStream is the message by which a vehicle reports its mode live. PX4 sends
// CURRENT_MODE with every change; ArduPilot sends HEARTBEAT as often as it is asked.
func (h *handshake) liveStream() stream {
	switch {
	case h.craft.firmware == px4:
		return stream{idCurrentMode, 100}
	case h.slow():
		return stream{idHeartbeat, 10}
	}
	return stream{idHeartbeat, 20}
}

// begin asks the vehicle everything. What it told of its parameters counts until it
// tells them anew.
func (h *handshake) begin() {
	channels := stream{idRCChannels, 1} // PX4's show only that there is a transmitter
	if h.craft.firmware.ardupilot() {
		channels.hz = 4 // whose sticks are in force
	}
	h.left = append(append([]stream{h.liveStream()}, streams...), channels)
	if h.craft.firmware.ardupilot() {
		h.left = append(h.left, stream{idEstimate, 1}) // is there a place to take off from
	}
	h.again, h.promised = true, false
	h.start()
}

func (h *handshake) start() {
	if h.running || h.cmd.stopped {
		return
	}
	h.running, h.met = true, time.Now()
	h.wg.Go(h.run)
}

// hearCurrentMode and hearHeartbeat take reports, and note whether they are live.
func (h *handshake) hearCurrentMode(now time.Time) { h.live = now }

func (h *handshake) hearHeartbeat(now time.Time) {
	if h.craft.firmware.ardupilot() && now.Sub(h.beat) < liveGap {
		h.live = now
	}
	h.beat = now
}

// tick asks again what was not answered, begins anew with a vehicle that has
// forgotten what it was asked, requests what is due, and tells when it is to be
// called next. streams says that sticks are sent, flies that the vehicle may fly to a
// target, looks that the receiver is looked at, behind that HEARTBEAT shows an older
// mode than CURRENT_MODE.
func (h *handshake) tick(now time.Time, streams, flies, looks, behind bool) (next time.Time) {
	if !h.craft.online {
		return time.Time{}
	}
	next = h.request(now, streams, flies, looks, behind)
	if h.running {
		return next
	}
	if !h.retry.IsZero() && !now.Before(h.retry) {
		h.again = true
		h.start()
		return next
	}
	// An autopilot that started again within 3 s has forgotten the streams; another
	// program may have ended one.
	silent := func(g group) bool { return !g.at.IsZero() && now.Sub(g.at) > forgetful }
	tel := &h.craft.tel
	asked := []group{tel.attitude.group, tel.position.group, tel.landed.group, tel.battery.group}
	forgot := h.promised && now.Sub(h.live) >= liveAfter
	if (forgot || slices.ContainsFunc(asked, silent)) && now.Sub(h.met) > 2*forgetful {
		h.begin()
		return next
	}
	if h.promised {
		next = sooner(next, now.Add(liveAfter))
	}
	return sooner(next, h.retry)
}

// request requests what is due.
func (h *handshake) request(now time.Time, streams, flies, looks, behind bool) (next time.Time) {
	due := func(last *time.Time, every time.Duration, id uint32) {
		if !now.Before(last.Add(every)) {
			h.cmd.acks.request(id)
			*last = now
		}
		next = sooner(next, last.Add(every))
	}
	if flies {
		due(&h.target, targetEvery, idTarget)
	}
	if looks {
		due(&h.look, lookFor/5, idSysStatus)
	}
	switch live := h.promised && now.Sub(h.live) < liveAfter; {
	case behind:
		due(&h.polled, behindEvery, idHeartbeat)
	case !live && (h.craft.tel.beat.armed || !h.cmd.idle()):
		due(&h.polled, pollEvery, idHeartbeat)
	case now.Sub(h.beat) >= liveAfter:
		due(&h.polled, liveAfter/3, idHeartbeat)
	case streams:
		due(&h.polled, targetEvery, idHeartbeat)
	}
	return sooner(next, now.Add(liveAfter/3))
}

// run asks everything that is left, and again what was not answered.
func (h *handshake) run() {
	h.cmd.mu.Lock()
	defer h.cmd.mu.Unlock()
	defer func() { h.running = false }()
	for h.again && h.craft.online && !h.cmd.stopped {
		h.again, h.retry = false, time.Time{}
		h.ask()
		if len(h.left) > 0 && !h.again {
			h.retry = time.Now().Add(handshakeAgain)
			h.clock.poke()
		}
	}
}

// ask asks what is left, until something else is to be asked.
func (h *handshake) ask() {
	t := &task{by: h.cmd}
	names := h.params.names()
	for _, name := range names {
		h.params.request(name)
	}
	for _, s := range slices.Clone(h.left) {
		interval := h.craft.firmware.command(common.MAV_CMD_SET_MESSAGE_INTERVAL, float32(s.id), 1e6/s.hz)
		if t.waitFree(&interval) != nil {
			return
		}
		result, err := t.transact(&interval)
		if h.again || !h.craft.online || h.cmd.stopped {
			return
		}
		if err == nil {
			h.left = slices.DeleteFunc(h.left, func(o stream) bool { return o == s })
			if s == h.liveStream() {
				h.promised, h.live = result == uint8(common.MAV_RESULT_ACCEPTED), time.Now()
			}
		}
	}
	tel := &h.craft.tel
	began := time.Now()
	h.message(t, idHome, func() bool { return tel.home.at.After(began) })
	h.message(t, idVersion, func() bool { return tel.id.version != "" })
	for _, name := range names {
		h.params.sure(t, name)
	}
}

// message requests a message until it comes, at most three times.
func (h *handshake) message(t *task, id uint32, came func() bool) {
	for range 3 {
		h.cmd.acks.request(id)
		wait := max(messageWait, 2*h.cmd.acks.trip)
		if t.await(time.Now().Add(wait), came) == nil {
			return
		}
	}
}

// kind waits until a fixed wing has told whether it is a QuadPlane.
func (h *handshake) kind(t *task, r request) error {
	known := func() bool { return !r.setMode || h.craft.firmware != plane || !h.craft.tel.landed.at.IsZero() }
	for until := time.Now().Add(giveUp); !known() && time.Now().Before(until); {
		h.cmd.acks.request(idExtendedState)
		if err := unlessLate(t.await(time.Now().Add(showEvery), known)); err != nil {
			return err
		}
	}
	if !known() {
		return refuse(codeNoAck, "this vehicle has not told yet whether it is a QuadPlane; nothing was sent")
	}
	return nil
}

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
	px4:       {"COM_RC_IN_MODE", "COM_RC_OVERRIDE", "NAV_DLL_ACT"},
	copter:    {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABLE", "WPNAV_SPEED"},
	quadPlane: {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABL", "Q_GUIDED_MODE", "WP_LOITER_RAD"},
	plane:     {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABL", "WP_LOITER_RAD", "TKOFF_ALT"},
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
// that is not answered has its default; the error is the end of the task.
func (p *parameters) sure(t *task, name string) error {
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

// circle is the radius in metres of the circle that the vehicle flies round a
// place (WP_LOITER_RAD; it circles to the left where that is negative); 0: it stands
// still there.
func (p *parameters) circle() float64 {
	winged := p.craft.tel.id.vtol == uint8(common.MAV_VTOL_STATE_FW) && p.told["Q_GUIDED_MODE"] != 1
	if p.craft.firmware != plane && (p.craft.firmware != quadPlane || !winged) {
		return 0
	}
	if v := math.Abs(p.told["WP_LOITER_RAD"]); v > 0 {
		return v
	}
	return 60 // ArduPlane's default
}

// takeoffAltitude is where a fixed wing takes off to, in metres above home.
func (p *parameters) takeoffAltitude() float64 {
	if v := p.told["TKOFF_ALT"]; v > 0 {
		return v
	}
	return 50 // ArduPlane's default
}

// settings are the parameters that plans rest on.
func (p *parameters) settings() settings {
	s := settings{guidedHovers: p.told["Q_GUIDED_MODE"], cruise: 10}
	if v := p.told["WPNAV_SPEED"]; v > 0 {
		s.cruise = v / 100 // cm/s
	}
	return s
}
