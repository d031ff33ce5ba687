package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

const (
	simTextOpen  = 2500 * time.Millisecond // how long texts pass after a ground station's heartbeat
	simTextGap   = 50 * time.Millisecond   // between two texts
	simTextOld   = 5 * time.Second         // a text that waited longer is dropped
	simTextMost  = 10                      // texts that may wait
	simReportGap = 2 * time.Second         // between two reports that nobody requested
)

// simTrouble is a fault that keeps PX4 from arming.
type simTrouble struct {
	sensor common.MAV_SYS_STATUS_SENSOR // the system that the fault makes unhealthy; 0 if there is none
	text   string                       // the reason that a report names; "" if it names none
}

// simPX4Words is the state of PX4's texts, of its reports and of its ground station.
type simPX4Words struct {
	textUntil time.Time     // texts pass until then
	textNext  time.Time     // the next text is not sent before then
	texting   bool          // a timer for the next text runs
	held      []simHeldText // texts that wait
	gcsFrom   time.Time     // a ground station's first heartbeat on our link, or first after its loss; or zero
	gcsUntil  time.Time     // when that station counts as lost
	gcsLost   bool          // that station is lost
	reported  simReport
	reportAt  time.Time // last report; zero before the first one after boot
	glimpses  bool      // in this boot PREARM_CHECK is healthy for 0.9 s before the first report
}

type simHeldText struct {
	at       time.Time
	severity common.MAV_SEVERITY
	text     string
}

// simReport is what a report says. SYS_STATUS and HEARTBEAT show the last report.
type simReport struct {
	ready, located, sticks, hadSticks bool
	broken                            common.MAV_SYS_STATUS_SENSOR
}

// ---- Texts ----

func (b *simPX4Brain) text(severity common.MAV_SEVERITY, text string) {
	b.queueText(severity, text+"\t")
}

// queueText queues a text. PX4 sends it only while a ground station's heartbeats come on the
// link, and drops it when it is 5 s old.
func (b *simPX4Brain) queueText(severity common.MAV_SEVERITY, text string) {
	b.held = append(b.held, simHeldText{time.Now(), severity, text})
	b.held = b.held[max(0, len(b.held)-simTextMost):]
	b.sendNextText()
}

// sendNextText sends the first text that waits, if a ground station hears it.
func (b *simPX4Brain) sendNextText() {
	now := time.Now()
	b.held = slices.DeleteFunc(b.held, func(t simHeldText) bool { return now.Sub(t.at) > simTextOld })
	if b.texting || len(b.held) == 0 || now.After(b.textUntil) {
		return
	}
	if !now.Before(b.textNext) {
		t := b.held[0]
		b.held, b.textNext = b.held[1:], now.Add(simTextGap)
		b.sendText(t.severity, t.text, b.textID)
		b.textID++
	}
	b.texting = true
	b.after(b.textNext.Sub(now), func() {
		b.texting = false
		b.sendNextText()
	})
}

// ---- The ground station ----

func (b *simPX4Brain) hear(_ uint8, fromGCS bool, m *common.MessageHeartbeat) {
	switch {
	case m.Type != common.MAV_TYPE_GCS:
	case fromGCS:
		b.foreignGCS = true
	default:
		b.heardStation()
	}
}

// heardStation handles a ground station's heartbeat on our link. With a real station on another
// link dataLink is always true; then the heartbeat only opens our link for texts.
func (b *simPX4Brain) heardStation() {
	b.textUntil, b.gcsUntil = time.Now().Add(simTextOpen), time.Now().Add(b.between(12*time.Second, 13*time.Second))
	if b.gcsFrom.IsZero() || b.gcsLost {
		b.gcsFrom = time.Now()
	}
	if b.gcsLost {
		b.gcsLost = false
		b.text(common.MAV_SEVERITY_INFO, "GCS connection regained")
	}
	b.sendNextText()
}

func (b *simPX4Brain) dataLinkAct() float64 { return b.params[simDataLink] }

// dataLink reports whether PX4 believes that it has a ground station.
func (b *simPX4Brain) dataLink() bool {
	return b.foreignGCS || !b.gcsFrom.IsZero() && time.Now().Before(b.gcsUntil)
}

func (b *simPX4Brain) stepDataLink() {
	if b.gcsFrom.IsZero() || b.gcsLost || b.dataLink() {
		return
	}
	b.gcsLost = true
	b.text(common.MAV_SEVERITY_INFO, "Connection to ground station lost")
	if b.dataLinkAct() != 0 && b.armed && b.mode != simPX4RTL && b.mode != simPX4Land {
		b.dataLinkLoss()
	}
}

// dataLinkLoss begins the failsafe that NAV_DLL_ACT names: 1 holds, 2 returns, 3 lands.
func (b *simPX4Brain) dataLinkLoss() {
	then := map[float64]uint32{1: simPX4Loiter, 3: simPX4Land}[b.dataLinkAct()]
	b.beginFailsafe(cmp.Or(then, simPX4RTL))
}

// ---- Reports ----

// stepReport makes a report when its content has changed, at most every 2 s.
func (b *simPX4Brain) stepReport() {
	now := time.Now()
	switch first := b.reportAt.IsZero(); {
	case first && now.Sub(b.booted) < simReportGap:
	case first, b.nextReport() != b.reported && now.Sub(b.reportAt) >= simReportGap:
		b.report()
	}
}

func (b *simPX4Brain) nextReport() simReport {
	r := simReport{ready: b.canArm(), located: b.located(), sticks: b.streaming()}
	r.hadSticks = r.sticks || b.reported.hadSticks
	for _, t := range b.trouble {
		r.broken |= t.sensor
	}
	return r
}

// report makes a report: it updates SYS_STATUS and sends the reasons against arming. Missing
// sticks, a missing position and the mode have no text.
func (b *simPX4Brain) report() {
	b.reported, b.reportAt = b.nextReport(), time.Now()
	if b.armed {
		return
	}
	for _, t := range b.trouble {
		if t.text != "" {
			b.queueText(common.MAV_SEVERITY_WARNING, t.text)
		}
	}
	if b.dataLinkAct() != 0 && !b.dataLink() {
		b.queueText(common.MAV_SEVERITY_WARNING, "Preflight Fail: No connection to the GCS")
	}
}

// sensors returns the bits as captured. PREARM_CHECK is a bit of health only.
func (b *simPX4Brain) sensors() (present, enabled, health common.MAV_SYS_STATUS_SENSOR) {
	const (
		gps   = common.MAV_SYS_STATUS_SENSOR_GPS
		place = common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL
		rc    = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	)
	const simGlimpse = 900 * time.Millisecond
	switch {
	case b.reportAt.IsZero() && b.glimpses && time.Since(b.booted) >= simReportGap-simGlimpse:
		return 0x0300400f, 0x0301400f, 0x0320883f | common.MAV_SYS_STATUS_PREARM_CHECK // PX4 can't be armed yet
	case b.reportAt.IsZero():
		return 0, 0, 0x0321c83f
	}
	present, enabled, health = 0x0300400f, 0x0301400f, 0x0320883f
	r := b.reported
	if r.located {
		present, enabled, health = present|gps, enabled|gps, health|place
	}
	if r.hadSticks {
		present |= rc
	}
	if r.sticks {
		health |= rc
	}
	if r.ready {
		health |= common.MAV_SYS_STATUS_PREARM_CHECK
	}
	return present | r.broken, enabled | r.broken, health &^ r.broken
}

// ---- CURRENT_MODE ----

const simPX4Again = 500 * time.Millisecond // from one CURRENT_MODE to the next where nothing changes

// simPX4Live is the state of CURRENT_MODE. Once requested, CURRENT_MODE comes with every change
// of the vehicle's status, before the mode is in force and before a heartbeat shows it.
type simPX4Live struct {
	every  time.Duration // the requested interval; zero if none was requested
	wish   uint32        // the mode that the user wants; a failsafe does not change it
	shows  simPX4Status  // what the last CURRENT_MODE shows
	sentAt time.Time     // when it was sent
	due    bool          // a CURRENT_MODE waits until its interval is over
}

type simPX4Status struct {
	mode            uint32
	armed, failsafe bool
}

func (b *simPX4Brain) stepLive() {
	status := simPX4Status{b.shows.mode, b.armed, b.failsafe}
	if b.pending == nil {
		status.mode = b.mode
	}
	if status != b.shows || time.Since(b.sentAt) >= simPX4Again-simTick/2 {
		b.sendMode(status.mode)
	}
}

// sendMode sends CURRENT_MODE at once, or when its interval is over.
func (b *simPX4Brain) sendMode(mode uint32) {
	b.shows = simPX4Status{mode, b.armed, b.failsafe}
	if b.every <= 0 || b.due {
		return
	}
	b.due = true
	b.after(max(0, b.every-time.Since(b.sentAt)), func() {
		b.due, b.sentAt = false, time.Now()
		if b.every > 0 {
			b.sendOn(false, b.message(436))
		}
	})
}

// ---- Messages of PX4's own ----

// message returns nil if there is nothing to send now.
func (b *simPX4Brain) message(id uint32) message.Message {
	switch id {
	case 1:
		m := b.sysStatus()
		m.OnboardControlSensorsPresent, m.OnboardControlSensorsEnabled, m.OnboardControlSensorsHealth = b.sensors()
		return m
	case 65:
		if !b.receiver.live() {
			return nil
		}
		pwm := func(axis int) uint16 { return uint16(1500 + int(b.rc[axis])/2) }
		none := uint16(math.MaxUint16)
		return &common.MessageRcChannels{
			TimeBootMs: uint32(time.Since(b.booted).Milliseconds()), Chancount: 16, Rssi: 255,
			Chan1Raw: pwm(1), Chan2Raw: pwm(0), Chan3Raw: uint16(1000 + int(b.rc[2])), Chan4Raw: pwm(3),
			Chan5Raw: b.rcSwitch, Chan6Raw: none, Chan7Raw: none, Chan8Raw: none,
		}
	case 87:
		return b.flyingTo()
	case 436:
		if b.noLiveMode || b.version < simPX4v15 {
			return nil
		}
		return &common.MessageCurrentMode{CustomMode: b.shows.mode, IntendedCustomMode: b.wish}
	}
	return b.simulator.message(id)
}

// setInterval refuses any interval for HEARTBEAT. It accepts messages 65 and 87 even
// if there is nothing to send now.
func (b *simPX4Brain) setInterval(c simCommand) {
	switch id := uint32(c.p[0]); {
	case id == 0, id == 436 && b.version < simPX4v15:
		b.ack(c, common.MAV_RESULT_FAILED)
	case id != 65 && id != 87 && b.message(id) == nil:
		b.ack(c, common.MAV_RESULT_DENIED)
	case id == 436:
		b.every = time.Duration(c.p[1]) * time.Microsecond
		b.ack(c, common.MAV_RESULT_ACCEPTED)
		b.sendMode(b.shows.mode)
	default:
		b.setStream(c, id)
	}
}

// requestMessage sends the message after 1 ms and then the ack.
func (b *simPX4Brain) requestMessage(c simCommand) {
	id := uint32(c.p[0])
	if b.message(id) == nil {
		b.ack(c, common.MAV_RESULT_DENIED)
		return
	}
	b.after(time.Millisecond, func() {
		if m := b.message(id); m != nil && (id != 0 || time.Now().After(b.noBeatsUntil)) {
			b.sendOn(c.fromGCS, m)
		}
		b.after(b.between(100*time.Microsecond, 3500*time.Microsecond), func() { b.ack(c, common.MAV_RESULT_ACCEPTED) })
	})
}

// flyingTo returns PX4's target, in AMSL; nil unless PX4 is armed in an AUTO mode.
func (b *simPX4Brain) flyingTo() message.Message {
	if !b.armed || !simPX4IsAuto(b.mode) {
		return nil
	}
	t := b.target
	alt := simHomeAlt + t.up
	switch far := math.Hypot(b.quad.north-b.home.north, b.quad.east-b.home.east) > 1; {
	case b.mode == simPX4Takeoff && b.climbing:
		alt = simHomeAlt + b.climbTo
	case b.mode == simPX4RTL && far:
		home := b.returning()
		alt = simHomeAlt + home.up
		if b.quad.up >= home.up-0.5 {
			t = home
		}
	case b.mode == simPX4RTL:
		t, alt = b.returning(), 0
	case b.mode == simPX4Land: // at sea level, some 500 m below home
		t.north, t.east, alt = b.quad.north, b.quad.east, 0
	}
	lat, lon := simPlace(t.north, t.east)
	m := &common.MessagePositionTargetGlobalInt{
		TimeBootMs: uint32(time.Since(b.booted).Milliseconds()), CoordinateFrame: common.MAV_FRAME_GLOBAL_INT,
		LatInt: simE7(lat), LonInt: simE7(lon), Alt: float32(alt),
		Vx: float32(b.quad.vn), Vy: float32(b.quad.ve), Vz: float32(-b.quad.vu), Yaw: float32(b.quad.heading),
	}
	if !b.airborne {
		nan := float32(math.NaN())
		m.Vx, m.Vy, m.Vz, m.Afz = nan, nan, nan, 100
	}
	return m
}

// Times of PX4's stick handling (docs/autopilots.md, "PX4: sticks").
const (
	simStickGap    = 450 * time.Millisecond  // a longer gap ends the stream, so 2.5 Hz is enough and 2 Hz is not
	simStickProof  = 250 * time.Millisecond  // a stream counts from this age on
	simStickLoss   = 150 * time.Millisecond  // from the end of the stream to the failsafe, 0.6 s after the last stick
	simStickMoving = 1600 * time.Millisecond // for how long a stick that changed counts as moving
	simStickStep   = 200                     // of ±1000; a smaller change does not count
	simUndoCommand = 16 * time.Millisecond   // moving sticks undo a commanded mode after this time
	simUndoFrom    = 12 * time.Millisecond   // moving sticks undo a pilot's switch after at least this time
	simUndoTo      = 28 * time.Millisecond   // they undo it after at most this time and a tick
)

// simPX4Sticks is what PX4 knows about sticks.
type simPX4Sticks struct {
	mavlink     simStickStream
	transmitter simStickStream
	source      *simStickStream // the stream that acts; nil before any has acted
	seen        bool            // sticks came in this flight
	lostAt      time.Time       // when the sticks ended; zero if they did not end, or are not needed
	undoAt      time.Time       // when moving sticks undo the present mode; in the past if they do not
	grabs       bool            // in this boot a stream with z = 0 changes LOITER to POSCTL
	grabTried   bool            // the present stream has had its chance to do that
}

// simStick is one MANUAL_CONTROL: x, y, z, r.
type simStick struct {
	at   time.Time
	axis [4]int16
}

// simStickStream is one source of sticks.
type simStickStream struct {
	window []simStick // the MANUAL_CONTROLs of the last 1.6 s, and the last one before
	since  time.Time  // when the stream began
}

func (s *simStickStream) add(now time.Time, axis [4]int16) {
	if n := len(s.window); n == 0 || now.Sub(s.window[n-1].at) > simStickGap {
		s.window, s.since = nil, now
	}
	s.window = append(s.window, simStick{now, axis})
	for len(s.window) > 1 && now.Sub(s.window[1].at) >= simStickMoving {
		s.window = s.window[1:]
	}
}

// axis returns the last value of an axis; the centre if there is none.
func (s *simStickStream) axis(i int) int16 {
	if s == nil || len(s.window) == 0 {
		return [...]int16{0, 0, 500, 0}[i]
	}
	return s.window[len(s.window)-1].axis[i]
}

// live reports whether sticks come often enough, and have come for long enough.
func (s *simStickStream) live() bool {
	if s == nil || len(s.window) == 0 {
		return false
	}
	return time.Since(s.window[len(s.window)-1].at) <= simStickGap && time.Since(s.since) >= simStickProof
}

// moving reports whether an axis changed by 200 or more within the last 1.6 s, at once
// or gradually.
func (s *simStickStream) moving() bool {
	for axis := range 4 {
		low, high := int16(math.MaxInt16), int16(math.MinInt16)
		for i, st := range s.window {
			if i+1 < len(s.window) && time.Since(s.window[i+1].at) >= simStickMoving {
				continue // it was replaced over 1.6 s ago
			}
			low, high = min(low, st.axis[axis]), max(high, st.axis[axis])
		}
		if int(high)-int(low) >= simStickStep {
			return true
		}
	}
	return false
}

// sticks handles a MANUAL_CONTROL, from any sender. An axis out of range keeps its value.
func (b *simPX4Brain) sticks(_ uint8, m *common.MessageManualControl) {
	if m.Target != b.system {
		return
	}
	axis := [4]int16{m.X, m.Y, m.Z, m.R}
	for i, v := range axis {
		if v < -1000 || v > 1000 || i == 2 && v < 0 {
			axis[i] = b.mavlink.axis(i)
		}
	}
	b.mavlink.add(time.Now(), axis)
	b.choose()
	b.undo(b.between(simUndoFrom, simUndoTo))
}

// choose sets source as COM_RC_IN_MODE says.
func (b *simPX4Brain) choose() {
	prefer := func(first, second *simStickStream) {
		switch {
		case first.live():
			b.source = first
		case second.live():
			b.source = second
		}
	}
	switch mode, ok := b.params[simStickSource]; {
	case ok && mode == 0:
		prefer(&b.transmitter, nil)
	case mode == 1:
		prefer(&b.mavlink, nil)
	case mode == 2: // the present source, until it is lost
		if !b.source.live() {
			prefer(&b.transmitter, &b.mavlink)
		}
	case mode == 4, mode > 4 && b.version < simPX4v17: // a PX4 before 1.17 does not know 5 to 8: no sticks act
		b.source = nil
	case mode == 5 || mode == 7:
		prefer(&b.transmitter, &b.mavlink)
	case mode == 6 || mode == 8:
		prefer(&b.mavlink, &b.transmitter)
	case b.source == nil: // 3, or no parameter: the first source, until the next boot
		prefer(&b.transmitter, &b.mavlink)
	}
}

func (b *simPX4Brain) streaming() bool { return b.source.live() }

func (b *simPX4Brain) stick(axis int) int16 { return b.source.axis(axis) }

func (b *simPX4Brain) axes() (x, y, z, r float64) {
	return float64(b.stick(0)) / 1000, float64(b.stick(1)) / 1000, float64(b.stick(2)) / 1000, float64(b.stick(3)) / 1000
}

func (b *simPX4Brain) stepSticks() {
	now := time.Now()
	if b.receiver.live() {
		b.transmitter.add(now, b.rc)
	}
	b.choose()
	b.grab()
	switch {
	case !b.armed || b.failsafe || b.mode == simPX4RTL:
		b.lostAt = time.Time{}
	case b.streaming():
		b.seen, b.lostAt = true, time.Time{}
	case !b.seen:
	case b.lostAt.IsZero():
		b.lostAt = now
	case now.Sub(b.lostAt) < simStickLoss-simTick:
	case b.mode == simPX4Land: // only a warning; PX4 goes on landing
		b.failsafe = b.version < simPX4v15
		b.text(common.MAV_SEVERITY_CRITICAL, "Failsafe activated")
		b.seen, b.lostAt = false, time.Time{}
	default:
		b.beginFailsafe(simPX4RTL)
		b.seen, b.lostAt = false, time.Time{}
	}
	b.undo(b.between(simUndoFrom, simUndoTo))
}

// undo makes sticks that move in an AUTO mode change it to POSCTL after the given time. A
// pilot's switch stays in force for 12 to 48 ms: up to a tick until undo is called, then the
// given time. During a failsafe sticks undo nothing.
func (b *simPX4Brain) undo(after time.Duration) {
	now := time.Now()
	overrides := int(b.params[simStickOverride])&1 != 0 && b.streaming() && b.source.moving()
	if !overrides || !b.armed || b.failsafe || !simPX4IsAuto(b.mode) || now.Before(b.undoAt) {
		return
	}
	b.undoAt = now.Add(after)
	b.after(after, func() {
		if b.armed && !b.failsafe {
			b.text(common.MAV_SEVERITY_INFO, "Pilot took over using sticks")
			b.enter(simPX4Posctl)
		}
	})
}

// grab is an oddity of some boots. A stream with z = 0 that starts while PX4 is disarmed in
// AUTO.LOITER changes the mode to POSCTL.
func (b *simPX4Brain) grab() {
	if !b.mavlink.live() {
		b.grabTried = false
		return
	}
	if b.grabs && !b.grabTried && !b.armed && b.source == &b.mavlink && b.mode == simPX4Loiter && b.stick(2) == 0 {
		b.enter(simPX4Posctl)
	}
	b.grabTried = true
}
