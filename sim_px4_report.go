package main

import (
	"math"
	"slices"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

const (
	simTextOpen  = 2500 * time.Millisecond // STATUSTEXT passes for so long after a ground station's heartbeat
	simTextGap   = 50 * time.Millisecond   // between two texts
	simTextOld   = 5 * time.Second         // a held text is dropped then
	simTextMost  = 10                      // of them are held
	simReportGap = 2 * time.Second         // between reports that nobody asked for
)

// simTrouble is something that keeps PX4 from arming until it is mended.
type simTrouble struct {
	sensor common.MAV_SYS_STATUS_SENSOR // unhealthy by it; 0 for none
	text   string                       // of the report; "" for none
}

// simPX4Words is what PX4 says, and what it knows of who listens.
type simPX4Words struct {
	textUntil time.Time     // STATUSTEXT passes until then
	textNext  time.Time     // not before then
	texting   bool          // a timer for it runs
	held      []simHeldText // texts that wait
	gcsAt     time.Time     // of the last ground station's heartbeat on our link
	gcsUntil  time.Time     // then the station is lost
	gcsLost   bool          // it was
	reported  simReport
	reportAt  time.Time // zero before the first after boot
}

type simHeldText struct {
	at       time.Time
	severity common.MAV_SEVERITY
	text     string
}

// simReport is what SYS_STATUS and HEARTBEAT tell: not how things are but how
// they were when a report was made.
type simReport struct {
	ready, located, sticks, hadSticks bool
	broken                            common.MAV_SYS_STATUS_SENSOR
}

// ---- Texts ----

func (b *simPX4Brain) text(severity common.MAV_SEVERITY, text string) { b.tell(severity, text+"\t") }

// tell queues a text. It is heard only while a ground station's heartbeat is
// on the link, and until it is 5 s old.
func (b *simPX4Brain) tell(severity common.MAV_SEVERITY, text string) {
	b.held = append(b.held, simHeldText{time.Now(), severity, text})
	b.held = b.held[max(0, len(b.held)-simTextMost):]
	b.release()
}

func (b *simPX4Brain) release() {
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
		b.release()
	})
}

// ---- The ground station ----

func (b *simPX4Brain) hear(_ uint8, m *common.MessageHeartbeat) {
	if m.Type == common.MAV_TYPE_GCS {
		b.knock()
	}
}

// knock is a heartbeat of MAV_TYPE_GCS on our link. Beside a real station,
// which is never lost, it opens the link for texts and does nothing else.
func (b *simPX4Brain) knock() {
	b.textUntil, b.gcsAt = time.Now().Add(simTextOpen), time.Now()
	b.gcsUntil = b.gcsAt.Add(b.between(12*time.Second, 13*time.Second))
	if b.gcsLost {
		b.gcsLost = false
		b.text(common.MAV_SEVERITY_INFO, "GCS connection regained")
	}
	b.release()
}

func (b *simPX4Brain) dataLinkAct() float64 { return b.params[simDataLink] }

// dataLink tells whether PX4 thinks that it has a ground station.
func (b *simPX4Brain) dataLink() bool {
	return b.foreignGCS || !b.gcsAt.IsZero() && time.Now().Before(b.gcsUntil)
}

func (b *simPX4Brain) stepDataLink() {
	if b.gcsAt.IsZero() || b.gcsLost || b.dataLink() {
		return
	}
	b.gcsLost = true
	b.text(common.MAV_SEVERITY_INFO, "Connection to ground station lost")
	if b.dataLinkAct() != 0 && b.armed && b.mode != simPX4RTL && b.mode != simPX4Land {
		b.dataLinkLoss()
	}
}

// dataLinkLoss is Hold, then what NAV_DLL_ACT says: 1 stays, 2 returns, 3 lands.
func (b *simPX4Brain) dataLinkLoss() {
	switch b.dataLinkAct() {
	case 1:
		b.failSafe(simPX4Loiter)
	case 3:
		b.failSafe(simPX4Land)
	default:
		b.failSafe(simPX4RTL)
	}
}

// ---- Reports ----

// stepReport makes a report when something changed, at most every 2 s.
func (b *simPX4Brain) stepReport() {
	now := time.Now()
	switch first := b.reportAt.IsZero(); {
	case first && now.Sub(b.booted) < simReportGap:
	case first, b.look() != b.reported && now.Sub(b.reportAt) >= simReportGap:
		b.report()
	}
}

func (b *simPX4Brain) look() simReport {
	r := simReport{ready: b.canArm(), located: b.located(), sticks: b.streaming()}
	r.hadSticks = r.sticks || b.reported.hadSticks
	for _, t := range b.trouble {
		r.broken |= t.sensor
	}
	return r
}

// report brings SYS_STATUS up to date and tells what keeps it from arming.
// Missing sticks, a missing position and the mode have no text.
func (b *simPX4Brain) report() {
	b.reported, b.reportAt = b.look(), time.Now()
	if b.armed {
		return
	}
	for _, t := range b.trouble {
		if t.text != "" {
			b.tell(common.MAV_SEVERITY_WARNING, t.text)
		}
	}
	if b.dataLinkAct() != 0 && !b.dataLink() {
		b.tell(common.MAV_SEVERITY_WARNING, "Preflight Fail: No connection to the GCS")
	}
}

// sensors are the bits as captured. PREARM_CHECK is in health only.
func (b *simPX4Brain) sensors() (present, enabled, health common.MAV_SYS_STATUS_SENSOR) {
	const (
		gps   = common.MAV_SYS_STATUS_SENSOR_GPS
		place = common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL
		rc    = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	)
	if b.reportAt.IsZero() {
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

// ---- Messages of PX4's own ----

// message is nil where there is nothing to send now.
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
			Chan5Raw: none, Chan6Raw: none, Chan7Raw: none, Chan8Raw: none,
		}
	case 87:
		if m := b.flyingTo(); m != nil {
			return m
		}
		return nil
	}
	return b.simulator.message(id)
}

// setInterval: heartbeats come at 1 Hz and no other; of what there is none now
// there may be later.
func (b *simPX4Brain) setInterval(c simCommand) {
	switch id := uint32(c.p[0]); {
	case id == 0:
		b.ack(c, common.MAV_RESULT_FAILED)
	case id != 65 && id != 87 && b.message(id) == nil:
		b.ack(c, common.MAV_RESULT_DENIED)
	default:
		b.pace(c, id)
	}
}

// requestMessage: the message in 1 ms, then the ack.
func (b *simPX4Brain) requestMessage(c simCommand) {
	id := uint32(c.p[0])
	if b.message(id) == nil {
		b.ack(c, common.MAV_RESULT_DENIED)
		return
	}
	b.after(time.Millisecond, func() {
		if m := b.message(id); m != nil && (id != 0 || time.Now().After(b.heartless)) {
			b.send(m)
		}
		b.after(b.between(100*time.Microsecond, 3500*time.Microsecond), func() { b.ack(c, common.MAV_RESULT_ACCEPTED) })
	})
}

// flyingTo is PX4's target: while armed in an AUTO mode, and AMSL.
func (b *simPX4Brain) flyingTo() *common.MessagePositionTargetGlobalInt {
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
	case b.mode == simPX4Land: // some 500 m below
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
