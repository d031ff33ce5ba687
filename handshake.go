package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of the handshake and of what is requested later (docs/design.md, "The vehicle").
const (
	// askEvery is the time between two questions for what is not answered yet, for as long as eagerFor. What a vehicle
	// did not send until then it seldom has, and each question costs a wakeup: it is asked each seldomEvery.
	askEvery    = 500 * time.Millisecond
	eagerFor    = 30 * time.Second
	seldomEvery = 5 * time.Second

	// warnAfter is how soon a warning may come.
	warnAfter = 3 * time.Second

	// defaultAfter is when an unanswered parameter has its default in a warning. A slow line brings each before.
	defaultAfter = 10 * time.Second

	// stationEvery is the age at which NAV_DLL_ACT is asked for again.
	stationEvery = 5 * time.Second

	// streamAgain is the time between two questions for a stream that was accepted. It doubles with each that brought
	// nothing, up to streamSeldom.
	streamAgain  = 10 * time.Second
	streamSeldom = time.Minute

	// streamLost is how long a stream is silent when another program or a restart has ended it.
	streamLost = 5 * time.Second

	// liveLost is the same for CURRENT_MODE, which comes twice a second by itself.
	liveLost = time.Second
)

// stream is a message that is requested with SET_MESSAGE_INTERVAL.
type stream struct {
	id uint32
	hz float32

	// least: lowest rate in Hz: below it the stream is requested again; 0: any rate will do
	least float32

	// answeredAt is when the vehicle accepted or denied the request first; zero: it did not yet
	answeredAt time.Time

	denied bool

	// slow: it came more slowly than least, or its message had to be requested
	slow bool

	// asked is when it was requested last; zero if it was not.
	asked time.Time

	// gap is the time to the next request, at least.
	gap time.Duration

	// heard is when its message came last; zero if it has not.
	heard time.Time

	// since is when the count began.
	since time.Time

	// count: of its messages
	count int
}

// streams are requested from every vehicle, after the one that brings live reports. They take
// 1,700 bytes a second at most, under half of a link at 57600 baud.
var streams = []stream{
	{id: idPosition, hz: 10, least: 5},
	{id: idAttitude, hz: 10, least: 5},
	{id: idExtendedState, hz: 4, least: 2},
	{id: idHUD, hz: 4},
	{id: idGPS, hz: 2},
	{id: idSysStatus, hz: 2},
	{id: idBattery, hz: 0.5},
	{id: idHome, hz: 0.5},
	{id: idRCChannels, hz: 4}, // whose sticks are in force
	{id: idSecondGPS, hz: 2},
}

// handshake is what a vehicle is asked when it comes online or has started again: live
// reports of its mode, the streams, what it sends only once, and its parameters. A stream
// that ends or becomes slow is requested again.
type handshake struct {
	params *parameters

	// firmware: the family when the handshake began
	firmware firmware

	// streams: the first one brings live reports
	streams []stream

	// open: the stream request that waits for its ack; nil: none does
	open *command

	// openFor: the stream that was requested
	openFor *stream

	began time.Time

	// kinds: the kinds of question that went out since then
	kinds map[questionKind]bool

	// answeredFrom is when the vehicle answered first since then; zero if it has not.
	answeredFrom time.Time

	// questioned is when askRound ran last.
	questioned time.Time

	// answered: the vehicle has acknowledged something since askRound ran last
	answered bool

	// unanswered is how often a parameter, by the first of its names, was not answered though other things were.
	unanswered map[string]int

	// targetAsked is when the target was requested last; zero: it is due at once.
	targetAsked time.Time

	// checksAsked is when PX4 was last asked to run its checks before arming; zero if it was not.
	checksAsked time.Time
}

// questionKind is a kind of question: the stream, the message or the parameter that is asked for.
type questionKind struct {
	stream, message uint32
	parameter       string
}

// begin starts the questions over; tick sends them. A parameter that is known stays known and
// is not requested again: the caller clears the ones that may have changed.
func (h *handshake) begin(now time.Time) {
	if h.open != nil {
		h.params.acks.close(h.open)
	}
	*h = handshake{params: h.params, kinds: make(map[questionKind]bool), unanswered: make(map[string]int)}
	h.firmware, h.began = h.params.tel.id.firmware(), now

	// ArduPilot sends it as often as it is asked
	live := stream{id: idHeartbeat, hz: 20}
	switch baud := h.params.acks.link.state().baud; {
	case h.firmware == px4:
		// It comes with every change, and twice a second.
		live = stream{id: idCurrentMode, hz: 100, least: 1.5}
	case baud > 0 && baud < 115200:
		live.hz = 10
	}
	h.streams = append([]stream{live}, streams...)

	// Whose sticks act? It comes only while some do.
	if h.firmware == px4 {
		h.streams = append(h.streams, stream{id: idManualControl, hz: 5})
	}

	// Has an ArduPilot a position, so that it can take off?
	if h.firmware.ardupilot() {
		h.streams = append(h.streams, stream{id: idEstimate, hz: 1})
	}
}

// countMessage records that a message came.
func (h *handshake) countMessage(id uint32, now time.Time) {
	for i := range h.streams {
		if h.streams[i].id == id {
			h.streams[i].heard = now
			h.streams[i].count++
		}
	}
}

// tick sends the requests that are due, and returns when it is to be called next.
func (h *handshake) tick(now time.Time) (next time.Time) {
	if !now.Before(h.roundDue(now)) {
		h.questioned = now
		h.askRound(now)
	}
	return sooner(h.roundDue(now), h.tickStreams(now))
}

// roundDue is when the next round of questions is.
func (h *handshake) roundDue(now time.Time) time.Time {
	due := h.questioned.Add(askEvery)
	if now.Sub(h.began) < eagerFor {
		return due
	}
	seldom := h.questioned.Add(seldomEvery)
	if station := h.params.stationAt; !station.IsZero() {
		seldom = sooner(seldom, station.Add(stationEvery))
	}
	return later(due, seldom)
}

// askRound requests home, the version and the parameters that are not known yet, and NAV_DLL_ACT again every 5 s.
func (h *handshake) askRound(now time.Time) {
	answered := h.answered
	h.answered = false
	p := h.params
	if answered {
		p.family.hearRound()
	}
	if !h.hasHeard(idHome) || !p.tel.home.received() {
		h.request(idHome)
	}
	if p.tel.id.version == 0 {
		h.request(idVersion)
	}

	// EXTENDED_SYS_STATE says whether a plane is a QuadPlane.
	if h.firmware == plane && !p.tel.landed.received() {
		h.request(idExtendedState)
	}
	known := func(name string) bool {
		return p.known(name) && (name != "NAV_DLL_ACT" || now.Sub(p.stationAt) < stationEvery)
	}
	for _, names := range slices.Concat(p.tel.id.parameterNames(), p.family.others(h.firmware)) {
		if slices.ContainsFunc(names, known) {
			continue
		}
		first := names[0]
		if answered && !slices.ContainsFunc(names, p.known) {
			h.unanswered[first]++
		}
		if h.unanswered[first] > lacksAfter {
			continue
		}
		for _, name := range names {
			h.kinds[questionKind{parameter: name}] = true
			p.request(name)
		}
	}
}

// lacksAfter is after how many requests that were not answered, though others were, a firmware counts as
// without a parameter: it is not asked for any more. A line that loses nine of ten frames does not lose so many.
const lacksAfter = 40

// request requests a message.
func (h *handshake) request(id uint32) {
	h.kinds[questionKind{message: id}] = true
	h.params.acks.requestMessage(id)
}

// hasHeard reports whether a stream's message has come since the questions began.
func (h *handshake) hasHeard(id uint32) bool {
	return slices.ContainsFunc(h.streams, func(s stream) bool { return s.id == id && !s.heard.IsZero() })
}

// tickStreams requests one stream at a time, because an ack does not say which stream it is
// for: first the one whose request is the oldest. It returns when it is to be called next.
func (h *handshake) tickStreams(now time.Time) (next time.Time) {
	a := h.params.acks
	if x := h.open; x != nil {
		again := x.triedAt.Add(a.copyGap())
		switch {
		case x.answered():
			h.openFor.denied = !x.acked()
			if h.openFor.answeredAt.IsZero() {
				h.openFor.answeredAt = now
			}
		case now.Before(again):
			return again
		case now.Before(x.sentAt.Add(giveUp)):
			a.send(x)
			return now.Add(a.copyGap())
		}
		a.close(x)
		h.open = nil
	}
	if late := a.lateUntil(common.MAV_CMD_SET_MESSAGE_INTERVAL); now.Before(late) {
		return late
	}
	var first *stream
	for i := range h.streams {
		if s := &h.streams[i]; s.due(now) && (first == nil || s.asked.Before(first.asked)) {
			first = s
		}
	}
	if first == nil {
		return time.Time{}
	}
	if first.answeredAt.IsZero() || first.heard.After(first.asked) {
		first.gap = streamAgain
	} else {
		first.gap = min(2*first.gap, streamSeldom)
	}
	first.asked = now
	first.slow = false
	h.kinds[questionKind{stream: first.id}] = true
	request := h.firmware.step(common.MAV_CMD_SET_MESSAGE_INTERVAL, float32(first.id), 1e6/first.hz)
	h.open, h.openFor = &command{step: &request}, first
	a.send(h.open)
	return now.Add(a.copyGap())
}

// due reports whether the stream is to be requested. Every 5 s it judges whether another program
// has slowed it.
func (s *stream) due(now time.Time) bool {
	if took := now.Sub(s.since); took >= streamLost {
		s.slow = s.slow || float64(s.count) < float64(s.least)*took.Seconds()
		s.since = now
		s.count = 0
	}
	lost := streamLost
	if s.id == idCurrentMode {
		lost = liveLost
	}
	again := now.Sub(s.asked) >= s.gap && (s.slow || now.Sub(s.heard) >= lost)
	return !s.denied && (s.answeredAt.IsZero() || again)
}

// askTarget requests the vehicle's target if that is due, and returns when it is due next.
func (h *handshake) askTarget(now time.Time) (next time.Time) {
	every := targetEvery
	if !h.params.tel.target.received() && now.Sub(h.began) >= eagerFor {
		every = seldomEvery
	}
	if next = h.targetAsked.Add(every); now.Before(next) {
		return next
	}
	h.params.acks.requestMessage(idTarget)
	h.targetAsked = now
	return now.Add(every)
}

// targetChanges makes the target due at once: the vehicle may fly elsewhere now.
func (h *handshake) targetChanges() { h.targetAsked = time.Time{} }

// sends reports whether the vehicle took the request for a stream so long ago: where its message is missing since,
// there is nothing to send.
func (h *handshake) sends(id uint32, long time.Duration, now time.Time) bool {
	i := slices.IndexFunc(h.streams, func(s stream) bool { return s.id == id })
	return i >= 0 && !h.streams[i].denied && !h.streams[i].answeredAt.IsZero() &&
		now.Sub(h.streams[i].answeredAt) >= long
}

// lacks records that a message had to be requested because its stream did not bring it in time.
func (h *handshake) lacks(id uint32) {
	for i := range h.streams {
		h.streams[i].slow = h.streams[i].slow || h.streams[i].id == id
	}
}

// The vehicle answers nothing if so many kinds of question went unanswered for so long. Then it is asked each
// seldomEvery only: where one wire is connected it will never answer.
const (
	silentKinds = 5
	silentFor   = 10 * time.Second
)

// answersNothing reports whether the vehicle answers nothing that is sent, as where only one wire is connected.
func (h *handshake) answersNothing(now time.Time) bool {
	return h.answeredFrom.IsZero() && len(h.kinds) >= silentKinds && now.Sub(h.began) >= silentFor
}

// answersFor is for how long the vehicle has answered; 0 if it has not.
func (h *handshake) answersFor(now time.Time) time.Duration {
	if h.answeredFrom.IsZero() {
		return 0
	}
	return now.Sub(h.answeredFrom)
}

// hearAck takes that the vehicle has acknowledged something.
func (h *handshake) hearAck(now time.Time) {
	h.hearAnswer(now)
	h.answered = true
}

// hearAnswer takes that the vehicle has answered a question or a command.
func (h *handshake) hearAnswer(now time.Time) {
	if h.answeredFrom.IsZero() {
		h.answeredFrom = now
	}
}

// awaits reports whether the answer to all names of a parameter may still come.
func (h *handshake) awaits(now time.Time, names ...string) bool {
	return !slices.ContainsFunc(names, h.params.known) && now.Sub(h.began) < defaultAfter
}

// refusedLive reports whether the vehicle has refused to send live reports.
func (h *handshake) refusedLive() bool { return len(h.streams) > 0 && h.streams[0].denied }

// parameters are the autopilot's parameters that our rules need.
type parameters struct {
	tel  *telemetry
	acks *acks

	// values: the ones that the vehicle sent
	values map[string]float64

	// stationAt is when NAV_DLL_ACT came last; zero if it has not.
	stationAt time.Time

	// family is what the names of those that came show.
	family family
}

// hear takes a PARAM_VALUE, and reports whether it is one of ours. PX4 puts an integer's bits into the float. A
// value that is not finite is none: the parameter stays unknown.
func (p *parameters) hear(m *common.MessageParamValue, now time.Time) (ours bool) {
	v := float64(m.ParamValue)
	f := p.tel.id.firmware()
	p.family.hear(m.ParamId, now)
	if !slices.Contains(slices.Concat(p.tel.id.parameterNames()...), m.ParamId) {
		return false
	}
	if f == px4 && m.ParamType != common.MAV_PARAM_TYPE_REAL32 {
		v = float64(int32(math.Float32bits(m.ParamValue)))
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return true
	}
	p.values[m.ParamId] = v
	if m.ParamId == "NAV_DLL_ACT" {
		p.stationAt = now
	}
	return true
}

func (p *parameters) request(name string) {
	p.acks.link.send(&common.MessageParamRequestRead{
		TargetSystem: p.tel.id.system, TargetComponent: autopilotID, ParamId: name, ParamIndex: -1,
	})
}

func (p *parameters) known(name string) bool {
	_, known := p.values[name]
	return known
}

// restart forgets the parameters, and what their names show of the family. When the next NAV_DLL_ACT is due stays.
func (p *parameters) restart() {
	clear(p.values)
	*p = parameters{tel: p.tel, acks: p.acks, values: p.values, stationAt: p.stationAt}
}

// groundStation is the system id that ArduPilot takes sticks from; 255 if unknown.
func (p *parameters) groundStation() byte {
	return byte(cmp.Or(int(p.values["SYSID_MYGCS"]), int(p.values["MAV_GCS_SYSID"]), 255))
}

// parameterNames names the parameters that a vehicle is asked for.
func (i identity) parameterNames() [][]string {
	f := i.firmware()
	if f == px4 && i.airframe()&(vtol|fixedWing) != 0 {
		return slices.Concat(familyParameters[f], wingParameters)
	}
	return familyParameters[f]
}

// familyParameters names each family's parameters; of two names of one parameter the older comes first.
var familyParameters = map[firmware][][]string{
	px4: {
		{"COM_RC_IN_MODE"},
		{stickOverride, overrideSpeed},
		{"NAV_DLL_ACT"},
		{"RTL_RETURN_ALT"},
	},
	copter: {
		{"SYSID_MYGCS", "MAV_GCS_SYSID"},
		{"FS_GCS_ENABLE"},
		{"WPNAV_SPEED", "WP_SPD"},
		{"RTL_ALT", "RTL_ALT_M"},
	},
	quadPlane: {
		{"SYSID_MYGCS", "MAV_GCS_SYSID"},
		{"FS_GCS_ENABL"},
		{"Q_GUIDED_MODE"},
		{"WP_LOITER_RAD"},
		{"ARSPD_FBW_MIN", "AIRSPEED_MIN"},
		{"ARSPD_FBW_MAX", "AIRSPEED_MAX"},
		{"Q_RTL_ALT"},
	},
	plane: {
		{"SYSID_MYGCS", "MAV_GCS_SYSID"},
		{"FS_GCS_ENABL"},
		{"WP_LOITER_RAD"},
		{"TKOFF_ALT"},
		{"ARSPD_FBW_MIN", "AIRSPEED_MIN"},
		{"ARSPD_FBW_MAX", "AIRSPEED_MAX"},
		{"ALT_HOLD_RTL", "RTL_ALTITUDE"},
	},
}

// wingParameters are what PX4's planes and VTOLs are asked too: the radii of their circles, and how a VTOL lands.
var wingParameters = [][]string{{"NAV_LOITER_RAD"}, {"RTL_LOITER_RAD"}, {"NAV_FORCE_VT"}}
