package main

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// streams are the messages asked for by SET_MESSAGE_INTERVAL, in Hz. Together
// they take 1,300 bytes a second, a quarter of a link at 57600 baud.
var streams = []struct {
	id uint32
	hz float32
}{
	{33, 10},   // GLOBAL_POSITION_INT
	{30, 10},   // ATTITUDE
	{245, 4},   // EXTENDED_SYS_STATE
	{74, 4},    // VFR_HUD
	{24, 2},    // GPS_RAW_INT
	{1, 2},     // SYS_STATUS
	{242, 0.5}, // HOME_POSITION
}

// pokeClock makes the clock run now.
func (l *link) pokeClock() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// runClock is everything that happens by time: heartbeats, sticks, the rules
// of the machine that wait, and the end of ports that hang or are silent.
func (l *link) runClock(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		case <-l.wake:
		}
		now := time.Now()
		l.beat.Store(now.UnixNano())
		l.mu.Lock()
		next := l.tick(now)
		var dead port
		if l.conn != nil && l.conn.why != nil {
			dead = l.conn.port
		}
		l.mu.Unlock()
		if dead != nil {
			dead.Close() // ends the reader and a write that hangs
		}
		timer.Reset(next)
	}
}

// tick does what is due and tells how long to wait for the next. l.mu is held.
func (l *link) tick(now time.Time) time.Duration {
	next := 100 * time.Millisecond
	if c := l.conn; c != nil {
		if began := c.writing.Load(); began != 0 && now.Sub(c.opened)-time.Duration(began) > writeHangs {
			c.why = errWriteHung
		} else if now.Sub(c.frameAt) > silentAfter {
			c.why = errSilent
		}
		if !now.Before(l.nextBeat) {
			l.nextBeat = now.Add(heartbeatEvery)
			l.send(componentID, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
			if l.gcs {
				l.knock()
			}
		}
		next = min(next, max(l.nextBeat.Sub(now), time.Millisecond))
	}
	if l.tel.online && now.Sub(l.tel.heartbeatAt) >= offlineAfter {
		l.tel.online = false
		l.machine.lose()
		l.version.Add(1)
		slog.Warn("vehicle offline: no heartbeat for 3 s", "system", l.tel.system)
	}
	if l.machine.tick(now) {
		l.modeChanged("the autopilot acknowledged and did not follow")
	}
	// An autopilot that started again within 3 s has forgotten the streams.
	if at := l.tel.attitude.at; l.tel.online && !l.greeting && !at.IsZero() && now.Sub(at) > silentAfter && now.Sub(l.metAt) > 2*silentAfter {
		l.meet()
	}
	l.flushTexts(now, chunkWait)
	if n := l.badPlaces(); n != l.logged && !now.Before(l.nextLog) {
		slog.Warn("bytes that are no MAVLink", "device", l.device.name, "since_last", n-l.logged, "in_all", n)
		l.logged, l.nextLog = n, now.Add(5*time.Second)
	}
	if l.steer(now) {
		next = min(next, max(l.stick.next.Sub(now), time.Millisecond))
	}
	return next
}

// knock is one heartbeat as a ground station: PX4 sends its texts only to a
// link that it heard one on in the last 2.5 s. l.mu is held.
func (l *link) knock() {
	l.send(knockComponentID, heartbeat(minimal.MAV_TYPE_GCS))
}

// modeChanged logs a mode that nobody asked for here. l.mu is held.
func (l *link) modeChanged(why string) {
	l.version.Add(1)
	slog.Info("mode changed", "mode", l.machine.mode, "vehicle_mode", l.tel.modeName, "why", why)
	if m := l.machine.mode; m != ModeHold && m != ModeLand {
		l.target = nil
	}
}

func (l *link) hearHeartbeat(hb *minimal.MessageHeartbeat, now time.Time) {
	t := &l.tel
	wasArmed := t.armed
	t.firmware = firmwareOf(hb.Autopilot, hb.Type)
	t.autopilot = lowerName(hb.Autopilot.String(), "MAV_AUTOPILOT_")
	if t.autopilot == "ardupilotmega" {
		t.autopilot = "ardupilot"
	}
	t.vehicleType = lowerName(hb.Type.String(), "MAV_TYPE_")
	t.state = lowerName(hb.SystemStatus.String(), "MAV_STATE_")
	switch hb.SystemStatus {
	case minimal.MAV_STATE_CRITICAL, minimal.MAV_STATE_EMERGENCY, minimal.MAV_STATE_FLIGHT_TERMINATION:
		t.failsafe = true
	default:
		t.failsafe = false
	}
	t.armed = hb.BaseMode&minimal.MAV_MODE_FLAG_SAFETY_ARMED != 0
	t.armedNow = t.armed
	t.custom = hb.CustomMode
	t.heartbeatAt = now
	var mode Mode
	mode, t.modeName = t.firmware.reported(t.custom)

	before := l.machine.mode
	l.machine.report(report{mode, t.armed})
	if l.machine.mode != before {
		l.modeChanged("the vehicle reports it")
	}
	if wasArmed && !t.armed {
		l.stick.landed()
		l.target = nil
	}
	if w := l.waiters[uint16(common.MAV_CMD_DO_SET_MODE)]; w != nil && w.custom == t.custom {
		w.show()
	}
	if !t.online {
		t.online = true
		l.meet()
	}
	l.version.Add(1)
}

// hear takes a message of the vehicle. What is unknown in it is told by the
// values of AUTOPILOTS.md, "Both".
func (l *link) hear(m message.Message, now time.Time) {
	t := &l.tel
	switch m := m.(type) {
	case *common.MessageGlobalPositionInt:
		if !t.plausible(m, now) {
			return
		}
		l.bootTime(m.TimeBootMs)
		p, v := &t.position, &t.velocity
		p.at, v.at = now, now
		nowhere := m.Lat == 0 && m.Lon == 0 // ArduPilot without a position
		p.lat, p.lon = known(float64(m.Lat)/1e7, nowhere), known(float64(m.Lon)/1e7, nowhere)
		p.amsl, p.relative = float64(m.Alt)/1000, float64(m.RelativeAlt)/1000
		p.heading = known(float64(m.Hdg)/100, m.Hdg == math.MaxUint16)
		v.north, v.east, v.down = float64(m.Vx)/100, float64(m.Vy)/100, float64(m.Vz)/100
		v.ground = math.Hypot(v.north, v.east)
		if now.Sub(t.hudAt) > freshPosition {
			v.climb, v.air = -v.down, math.NaN()
		}
	case *common.MessageVfrHud:
		t.hudAt = now
		t.velocity.air = float64(m.Airspeed)
		t.velocity.climb = float64(m.Climb)
	case *common.MessageAttitude:
		l.bootTime(m.TimeBootMs)
		a := &t.attitude
		a.at = now
		a.roll, a.pitch = float64(m.Roll)*180/math.Pi, float64(m.Pitch)*180/math.Pi
		a.yaw = degrees(m.Yaw)
	case *common.MessageSysStatus:
		b := &t.battery
		b.at = now
		b.voltage = known(float64(m.VoltageBattery)/1000, m.VoltageBattery == math.MaxUint16)
		b.current = known(float64(m.CurrentBattery)/100, m.CurrentBattery < 0)
		b.remaining = known(float64(m.BatteryRemaining), m.BatteryRemaining < 0)
	case *common.MessageGpsRawInt:
		g := &t.gps
		g.at = now
		g.fix = fixName(uint64(m.FixType))
		g.satellites = known(float64(m.SatellitesVisible), m.SatellitesVisible == math.MaxUint8)
		g.hdop = known(float64(m.Eph)/100, m.Eph == math.MaxUint16)
	case *common.MessageHomePosition:
		h := &t.home
		h.at = now
		h.lat, h.lon, h.amsl = float64(m.Latitude)/1e7, float64(m.Longitude)/1e7, float64(m.Altitude)/1000
	case *common.MessageExtendedSysState:
		t.landed = landedState(m.LandedState)
	case *common.MessageAutopilotVersion:
		v := m.FlightSwVersion
		t.version = fmt.Sprintf("%d.%d.%d", v>>24, v>>16&0xff, v>>8&0xff)
	case *common.MessageStatustext:
		l.hearText(m, now)
	case *common.MessageCommandAck:
		l.hearAck(m)
	case *common.MessageParamValue:
		if slices.Contains(gcsParams, m.ParamId) && m.ParamValue >= 1 && m.ParamValue <= 255 {
			l.gcsID, l.gcsKnown = byte(m.ParamValue), true
		}
	}
}

// bootTime notices that the autopilot started again: its clock runs backwards.
// A second of it is left for frames that UDP delivered late.
func (l *link) bootTime(ms uint32) {
	if uint64(ms)+1000 < uint64(l.tel.bootTime) {
		slog.Warn("the autopilot has started again")
		l.machine.lose()
		l.tel.seqKnown = false
		l.meet()
	}
	l.tel.bootTime = ms
}

// hearText takes a STATUSTEXT, or one chunk of it. PX4 numbers its first long
// text after a boot 0, which should mean that there is one chunk only; so a full
// one waits for a second.
func (l *link) hearText(m *common.MessageStatustext, now time.Time) {
	c := l.tel.chunks[m.Id]
	if m.Id == 0 && m.ChunkSeq == 0 {
		if c != nil {
			l.endText(0, now)
		}
		if len(m.Text) < fullChunk {
			l.addText(statusText{uint8(m.Severity), m.Text, now})
			return
		}
		c = nil
	}
	if c == nil {
		if len(l.tel.chunks) >= 8 { // nobody sends so many at once: noise or a flood
			clear(l.tel.chunks)
		}
		c = &chunkedText{severity: uint8(m.Severity), parts: make(map[uint8]string), last: -1, began: now}
		l.tel.chunks[m.Id] = c
	}
	c.parts[m.ChunkSeq] = m.Text
	if len(m.Text) < fullChunk {
		c.last = int(m.ChunkSeq)
	}
	if c.last >= 0 && len(c.parts) > c.last {
		l.endText(m.Id, now)
	}
}

// endText takes a text as far as its chunks came.
func (l *link) endText(id uint16, now time.Time) {
	c := l.tel.chunks[id]
	delete(l.tel.chunks, id)
	l.addText(statusText{c.severity, c.join(), now})
}

// flushTexts gives up waiting for chunks that were lost, and takes a text that
// ends with a full chunk.
func (l *link) flushTexts(now time.Time, wait time.Duration) {
	for id, c := range l.tel.chunks {
		if now.Sub(c.began) >= wait {
			l.endText(id, now)
		}
	}
}

func (l *link) addText(s statusText) {
	s.text = strings.ToValidUTF8(strings.TrimRight(s.text, "\t \r\n"), "�")
	// ArduPilot's answer to our own questions, not for the user's eyes.
	if strings.HasPrefix(s.text, "No ap_message") {
		return
	}
	l.tel.texts[l.tel.count%len(l.tel.texts)] = s
	l.tel.count++
	l.version.Add(1)
	slog.Debug("statustext", "severity", s.severity, "text", s.text)
}

// gcsParams is the parameter that names the system ArduPilot takes sticks from,
// by its present and its newer name.
var gcsParams = []string{"SYSID_MYGCS", "MAV_GCS_SYSID"}

// meet asks a vehicle that came online or started again for what it does not
// send by itself. l.mu is held.
func (l *link) meet() {
	l.greet = true
	if l.greeting || l.stopped {
		return
	}
	l.greeting, l.metAt = true, time.Now()
	l.wg.Go(l.greetVehicle)
}

// greetVehicle asks until everything is acknowledged, as long as the vehicle is
// online.
func (l *link) greetVehicle() {
	for {
		l.mu.Lock()
		if !l.greet || !l.tel.online || l.stopped {
			l.greeting = false
			l.mu.Unlock()
			return
		}
		l.greet, l.gcsKnown = false, false
		f := l.tel.firmware
		l.mu.Unlock()

		complete := true
		for _, s := range f.questions() {
			if _, err := l.transact(nil, &s); err != nil {
				complete = false
			}
		}
		if f.ardupilot() {
			l.askGCS()
		}
		if !complete {
			if l.pause(nil, silentAfter) != nil {
				complete = true // shutting down
			}
			l.mu.Lock()
			l.greet = l.greet || !complete
			l.mu.Unlock()
		}
	}
}

// questions are the message intervals and the messages that come only when
// asked for.
func (f firmware) questions() []step {
	var list []step
	for _, s := range streams {
		list = append(list, f.command(common.MAV_CMD_SET_MESSAGE_INTERVAL, float32(s.id), 1e6/s.hz))
	}
	for _, id := range []float32{242, 148} { // HOME_POSITION, AUTOPILOT_VERSION
		list = append(list, f.command(common.MAV_CMD_REQUEST_MESSAGE, id))
	}
	return list
}

// askGCS asks ArduPilot which system may move its sticks; 255 if it does not say.
func (l *link) askGCS() {
	for _, wait := range ackWaits {
		l.mu.Lock()
		if l.gcsKnown {
			l.mu.Unlock()
			return
		}
		for _, name := range gcsParams {
			l.send(componentID, &common.MessageParamRequestRead{
				TargetSystem: l.tel.system, TargetComponent: autopilotID, ParamId: name, ParamIndex: -1,
			})
		}
		l.mu.Unlock()
		if l.pause(nil, wait) != nil {
			return
		}
	}
}

// snapshot is the link at one moment, for the status.
type snapshot struct {
	now     time.Time
	tel     telemetry
	mode    Mode
	target  *place
	expires time.Time // of the client's sticks; zero where none stand
	device  string
	baud    int

	received, lost, errors, sent uint64
}

// status copies everything that a status shows.
func (l *link) status() snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := snapshot{
		now: time.Now(), tel: l.tel, mode: l.machine.mode, target: l.target,
		device: l.device.name, baud: l.device.baud(),
		received: l.received.Load(), lost: l.lost.Load(), errors: l.badPlaces(), sent: l.sent.Load(),
	}
	if l.stick.phase == stickClient {
		s.expires = l.stick.until
	}
	return s
}

// mode returns the mode and the autopilot's own name for its mode, "" before
// the first heartbeat.
func (l *link) mode() (Mode, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.mode, l.tel.modeName
}

// summary is the link's state in a line, for the supervisor.
func (l *link) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.tel
	switch {
	case t.system == 0:
		return "no autopilot heard yet on " + l.device.name
	case !t.online:
		return "autopilot offline on " + l.device.name
	}
	armed := "disarmed"
	if t.armed {
		armed = "armed"
	}
	return fmt.Sprintf("%s %s online, %s, mode %s", t.autopilot, t.vehicleType, armed, l.machine.mode)
}
