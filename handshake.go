package main

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of the handshake and of what is requested later (docs/design.md, "The mode
// machine").
const (
	handshakeAgain = 5 * time.Second        // after one that was not answered
	forgetful      = 5 * time.Second        // without an attitude: the autopilot has forgotten the streams
	liveLost       = time.Second            // without a live report, which comes twice a second by itself: it is asked for again
	liveGap        = 500 * time.Millisecond // between two HEARTBEATs that are live
	targetEvery    = time.Second            // for a target; and with a stick stream, to hear that it is heard
	askWait        = 150 * time.Millisecond // for what was requested; or two round trips
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
// parameters. Later it asks again what was not answered, or was forgotten.
type handshake struct {
	tel    *telemetry
	params *parameters
	cmd    *commander
	wg     *sync.WaitGroup // of its goroutine

	firmware firmware // of which the vehicle was asked
	running  bool
	again    bool      // it should begin anew
	left     []stream  // not acknowledged yet
	met      time.Time // when one began
	retry    time.Time // when an unanswered one begins anew

	promised bool      // the vehicle accepted to send live reports
	live     time.Time // when the last live report came
	beat     time.Time // when the last HEARTBEAT came

	counts   map[uint32]int // of the counted streams' messages
	counting time.Time      // since when
}

// liveStream is the message by which a vehicle reports its mode live. PX4 sends
// CURRENT_MODE with every change; ArduPilot sends HEARTBEAT as often as it is asked.
func (h *handshake) liveStream() stream {
	switch baud := h.cmd.acks.link.state().baud; {
	case h.firmware == px4:
		return stream{idCurrentMode, 100}
	case baud > 0 && baud < 115200:
		return stream{idHeartbeat, 10}
	}
	return stream{idHeartbeat, 20}
}

// refusedLive reports whether the vehicle has refused to send live reports.
func (h *handshake) refusedLive() bool {
	return !h.running && !h.promised && !slices.Contains(h.left, h.liveStream())
}

// begin asks the vehicle everything. What it told of its parameters counts until it
// tells them anew.
func (h *handshake) begin() {
	h.firmware = h.tel.id.firmware()
	h.left = append([]stream{h.liveStream()}, streams...)
	if h.firmware.ardupilot() { // whose sticks are in force, and is there a place to take off from
		h.left = append(h.left, stream{idRCChannels, 4}, stream{idEstimate, 1})
	} else {
		h.left = append(h.left, stream{idRCChannels, 1}) // only that there is a transmitter
	}
	h.again, h.promised, h.counting = true, false, time.Time{}
	h.start()
}

func (h *handshake) start() {
	if h.running || h.cmd.stopped {
		return
	}
	h.running, h.met = true, time.Now()
	h.wg.Go(h.run)
}

// hearHeartbeat notes whether HEARTBEAT is a live report.
func (h *handshake) hearHeartbeat(now time.Time) {
	if h.tel.id.firmware().ardupilot() && now.Sub(h.beat) < liveGap {
		h.live = now
	}
	h.beat = now
}

// lose says that the vehicle is offline: it is asked nothing more.
func (h *handshake) lose() { h.again, h.left = false, nil }

// tick asks again what was not answered, begins anew with a vehicle that has
// forgotten what it was asked, and tells when it is to be called next.
func (h *handshake) tick(now time.Time) (next time.Time) {
	if h.running {
		return time.Time{}
	}
	if !h.retry.IsZero() && !now.Before(h.retry) {
		h.again = true
		h.start()
		return time.Time{}
	}
	// An autopilot that started again within 3 s has forgotten the streams; another
	// program may have ended one.
	silent := func(g group) bool { return !g.at.IsZero() && now.Sub(g.at) > forgetful }
	asked := []group{h.tel.attitude.group, h.tel.position.group, h.tel.landed.group, h.tel.battery.group, h.tel.home.group, h.tel.gps.group, {h.tel.velocity.hudAt}}
	forgot := h.promised && now.Sub(h.live) >= liveLost
	if (forgot || h.slow(now) || slices.ContainsFunc(asked, silent)) && now.Sub(h.met) > 2*forgetful {
		h.begin()
		return time.Time{}
	}
	if h.promised {
		next = now.Add(liveLost)
	}
	return sooner(next, h.retry)
}

// counted are the streams whose rate is watched: rules rest on them.
var counted = []stream{{idPosition, 10}, {idAttitude, 10}, {idExtendedState, 4}}

// count counts a message of the vehicle.
func (h *handshake) count(id uint32) { h.counts[id]++ }

// slow reports, every 5 s, whether one of the counted streams comes at less than half of
// its rate: another program has slowed it.
func (h *handshake) slow(now time.Time) (slow bool) {
	if now.Sub(h.counting) < forgetful {
		return false
	}
	for _, s := range counted {
		n, within := h.counts[s.id], now.Sub(h.counting)
		slow = slow || n > 0 && !h.counting.IsZero() && float64(n) < float64(s.hz)*within.Seconds()/2
	}
	h.counts, h.counting = make(map[uint32]int), now
	return slow
}

// run asks everything that is left, and again what was not answered.
func (h *handshake) run() {
	h.cmd.mu.Lock()
	defer h.cmd.mu.Unlock()
	defer func() { h.running = false }()
	for h.again && !h.cmd.stopped {
		h.again, h.retry = false, time.Time{}
		h.ask()
		if len(h.left) > 0 && !h.again {
			h.retry = time.Now().Add(handshakeAgain)
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
		interval := h.firmware.command(common.MAV_CMD_SET_MESSAGE_INTERVAL, float32(s.id), 1e6/s.hz)
		if t.waitFree(&interval) != nil {
			return
		}
		err := t.transact(&interval)
		if h.again || h.left == nil || h.cmd.stopped {
			return
		}
		if err == nil || refusedWith(err) != nil {
			h.left = slices.DeleteFunc(h.left, func(o stream) bool { return o == s })
			if s == h.liveStream() {
				h.promised, h.live = err == nil, time.Now()
			}
		}
	}
	began := time.Now()
	t.ask(3, func() { h.cmd.acks.request(idHome) }, func() bool { return h.tel.home.at.After(began) })
	t.ask(3, func() { h.cmd.acks.request(idVersion) }, func() bool { return h.tel.id.version != 0 })
	for _, name := range names {
		h.params.sure(t, name)
	}
}

// ask requests something until it comes, at most so many times. The error is the end
// of the task.
func (t *task) ask(times int, request func(), came func() bool) error {
	for range times {
		request()
		wait := max(askWait, 2*t.by.acks.trip)
		if err := t.await(time.Now().Add(wait), came); !errors.Is(err, errTimeout) {
			return err
		}
	}
	return nil
}

// kind waits until a fixed wing has told whether it is a QuadPlane.
func (h *handshake) kind(t *task, r request) error {
	known := func() bool { return !r.setMode || h.tel.id.firmware() != plane || !h.tel.landed.at.IsZero() }
	for until := time.Now().Add(giveUp); !known() && time.Now().Before(until); {
		h.cmd.acks.request(idExtendedState)
		if err := unlessLate(t.await(time.Now().Add(askWait), known)); err != nil {
			return err
		}
	}
	if !known() {
		return refuse(codeNoAck, "this vehicle has not told yet whether it is a QuadPlane; nothing was sent")
	}
	return nil
}

// parameters are those of the autopilot that rules rest on.
type parameters struct {
	tel  *telemetry
	acks *acks
	told map[string]float64 // by the vehicle
}

// parameterNames are those of each vehicle, by their present and newer names.
var parameterNames = map[firmware][]string{
	px4:       {"COM_RC_IN_MODE", "COM_RC_OVERRIDE", "NAV_DLL_ACT"},
	copter:    {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABLE", "WPNAV_SPEED", "WP_SPD"},
	quadPlane: {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABL", "Q_GUIDED_MODE", "WP_LOITER_RAD"},
	plane:     {"SYSID_MYGCS", "MAV_GCS_SYSID", "FS_GCS_ENABL", "WP_LOITER_RAD", "TKOFF_ALT"},
}

func (p *parameters) names() []string { return parameterNames[p.tel.id.firmware()] }

// sourceNames are of the parameters that say whose sticks count.
var sourceNames = map[firmware]string{
	px4: "COM_RC_IN_MODE", copter: "FS_GCS_ENABLE", quadPlane: "FS_GCS_ENABL", plane: "FS_GCS_ENABL",
}

func (p *parameters) request(name string) {
	p.acks.link.send(&common.MessageParamRequestRead{
		TargetSystem: p.tel.id.system, TargetComponent: autopilotID, ParamId: name, ParamIndex: -1,
	})
}

// sure waits until a parameter is known, and asks for it where it is not. One
// that is not answered has its default; the error is the end of the task.
func (p *parameters) sure(t *task, name string) error {
	known := func() bool { _, ok := p.told[name]; return ok }
	if known() {
		return nil
	}
	return t.ask(2, func() { p.request(name) }, known)
}

// hear takes a PARAM_VALUE and returns it, if it is one of ours. PX4 puts an
// integer's bits into the float.
func (p *parameters) hear(m *common.MessageParamValue) (v float64, ours bool) {
	if !slices.Contains(p.names(), m.ParamId) {
		return 0, false
	}
	v = float64(m.ParamValue)
	if p.tel.id.firmware() == px4 && m.ParamType == common.MAV_PARAM_TYPE_INT32 {
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
	winged := p.tel.id.vtol == uint8(common.MAV_VTOL_STATE_FW) && p.told["Q_GUIDED_MODE"] != 1
	if f := p.tel.id.firmware(); f != plane && (f != quadPlane || !winged) {
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

// cruise is the speed of a goto on a Copter that names none, in m/s; NaN where it is not
// known.
func (p *parameters) cruise() float64 {
	if v := p.told["WP_SPD"]; v > 0 { // m/s, from 4.8-dev on
		return v
	}
	if v := p.told["WPNAV_SPEED"]; v > 0 { // cm/s
		return v / 100
	}
	return math.NaN()
}
