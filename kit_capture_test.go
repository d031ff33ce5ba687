package main

// A simulator gets the commands that the real autopilot got when testdata was captured, at the same times; what it
// does then is compared with what the autopilot did.

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// captureHeard is a message of a flight.
type captureHeard struct {
	at  time.Duration // since the capture began
	msg message.Message
}

func readCapture(t *testing.T, name string) (heard []captureHeard) {
	t.Helper()
	for _, e := range readTlog(t, name) {
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(e.bytes)), DialectRW: simDialect()}
		f, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, captureHeard{e.at, f.GetMessage()})
	}
	return heard
}

// captureBoard is the board of a flight whose times count from the captured flight's first message.
type captureBoard struct {
	*simBoard
	zero time.Time
}

// flyCaptured flies a script, and returns the messages that came.
func flyCaptured(b *simBoard, bootedBefore time.Duration, script func(*captureBoard)) (heard []captureHeard) {
	c := &captureBoard{b, b.began.Add(bootedBefore)}
	script(c)
	for _, h := range b.heard() {
		heard = append(heard, captureHeard{h.at.Sub(c.zero), h.msg})
	}
	return heard
}

func (c *captureBoard) at(seconds float64) {
	time.Sleep(time.Until(c.zero.Add(time.Duration(seconds * float64(time.Second)))))
}

// command sends a COMMAND_LONG at this time of the flight.
func (c *captureBoard) command(seconds float64, id common.MAV_CMD, p ...float64) {
	c.t.Helper()
	c.at(seconds)
	c.write(factLong(simSystem, id, p...))
}

// rates asks for messages, in Hz.
func (c *captureBoard) rates(hz map[float64]float64) {
	for id, hz := range hz {
		c.command(0, simInterval, id, 1e6/hz)
	}
}

// sticks sends sticks until a time. The captures do not contain the sticks; x is chosen to give
// the captured speed.
func (c *captureBoard) sticks(until float64, x int16) {
	end := c.zero.Add(time.Duration(until * float64(time.Second)))
	for ; time.Now().Before(end); time.Sleep(min(sim25Hz, time.Until(end))) {
		c.manual(x, 0, 500, 0)
	}
}

// captureRules say how a flight is compared with the captured one.
type captureRules struct {
	bits  common.MAV_SYS_STATUS_SENSOR // of SYS_STATUS
	texts []string                     // of STATUSTEXT; nil: all
	// late is how much earlier or later a change of each kind may come. Other kinds are not
	// compared.
	late map[string]func(at time.Duration) time.Duration
}

// captureEvent is what changed in a flight.
type captureEvent struct {
	at         time.Duration
	kind, what string
}

// events lists the changes of a flight, and every ack and text.
func (r captureRules) events(heard []captureHeard) (events []captureEvent) {
	last := map[string]string{}
	add := func(at time.Duration, kind string, what ...any) {
		events = append(events, captureEvent{at, kind, fmt.Sprint(what...)})
	}
	changed := func(at time.Duration, kind string, what ...any) {
		if now := fmt.Sprint(what...); last[kind] != now {
			last[kind] = now
			add(at, kind, now)
		}
	}
	var targetAt time.Duration
	for _, h := range heard {
		if targetAt != 0 && h.at-targetAt > 900*time.Millisecond { // it came at 2 Hz and has ended
			changed(targetAt, "target", "none")
			targetAt = 0
		}
		switch m := h.msg.(type) {
		case *common.MessageHeartbeat:
			// After a landing the state is armed standby for 0.3 s; a 1 Hz heartbeat may miss it.
			if m.SystemStatus == common.MAV_STATE_STANDBY && m.BaseMode&common.MAV_MODE_FLAG_SAFETY_ARMED != 0 &&
				m.CustomMode == simArduRTL {
				continue
			}
			changed(h.at, "heartbeat", m.Type, m.Autopilot, m.BaseMode, m.CustomMode, m.SystemStatus)
		case *common.MessageCommandAck:
			if m.Command != simInterval {
				add(h.at, "ack", m.Command, m.Result, m.TargetSystem, m.TargetComponent)
			}
		case *common.MessageStatustext:
			if r.texts == nil || slices.Contains(r.texts, m.Text) {
				add(h.at, "text", m.Severity, m.ChunkSeq, m.Text)
			}
		case *common.MessageSysStatus:
			changed(h.at, "sensors", m.OnboardControlSensorsPresent&r.bits, m.OnboardControlSensorsEnabled&r.bits,
				m.OnboardControlSensorsHealth&r.bits)
		case *common.MessageRcChannels:
			changed(h.at, "channels", m.Chancount, m.Rssi, m.Chan1Raw, m.Chan2Raw, m.Chan3Raw, m.Chan4Raw, m.Chan5Raw)
		case *common.MessageExtendedSysState:
			changed(h.at, "landed", m.VtolState, m.LandedState)
		case *common.MessageGpsRawInt:
			if m.FixType != common.GPS_FIX_TYPE_NO_FIX { // it comes in one message, with a false place
				changed(h.at, "gps", m.FixType, m.SatellitesVisible, m.Eph, m.Epv, m.Lat == 0)
			}
		case *common.MessageGlobalPositionInt:
			changed(h.at, "place", m.Lat != 0 && m.Lon != 0, m.Alt > 480000)
		case *common.MessageHomePosition:
			changed(h.at, "home", math.IsNaN(float64(m.Q[0])), m.Altitude > 480000)
		case *common.MessagePositionTargetGlobalInt:
			north, _ := simMetres(float64(m.LatInt)/1e7, float64(m.LonInt)/1e7)
			changed(h.at, "target", m.CoordinateFrame, uint16(m.TypeMask), 5*math.Round(north/5),
				math.Round(float64(m.Alt)-simHomeAlt))
			targetAt = h.at
		}
	}
	return events
}

// compare checks that each kind has the same changes in the same order.
func (r captureRules) compare(t *testing.T, real, simulated []captureHeard) {
	t.Helper()
	captured, flown := r.events(real), r.events(simulated)
	for kind, late := range r.late {
		other := func(e captureEvent) bool { return e.kind != kind }
		want, got := slices.DeleteFunc(slices.Clone(captured), other), slices.DeleteFunc(slices.Clone(flown), other)
		if len(got) != len(want) || len(want) == 0 {
			t.Errorf("%s: %d changes, captured %d\n%v\n%v", kind, len(got), len(want), got, want)
			continue
		}
		for i, w := range want {
			most := late(w.at)
			if i == 0 && kind != "ack" && kind != "text" {
				most = max(most, 3*time.Second) // it was requested at another moment
			}
			if got[i].what != w.what || (got[i].at-w.at).Abs() > most {
				t.Errorf("%s: %v %q, captured %v %q", kind, got[i].at, got[i].what, w.at, w.what)
			}
		}
	}
}

// captureFix is where a vehicle was at a time, and its target; NaN if it sent none.
type captureFix struct{ north, up, toNorth, toUp float64 }

func fixAt(heard []captureHeard, at time.Duration) captureFix {
	f := captureFix{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	ground := math.NaN()
	for _, h := range heard {
		if h.at > at {
			break
		}
		switch m := h.msg.(type) {
		case *common.MessageGlobalPositionInt:
			if m.Lat == 0 {
				continue
			}
			if h.at < 16*time.Second || math.IsNaN(ground) { // no captured flight takes off earlier
				ground = float64(m.Alt) / 1000
			}
			f.north, _ = simMetres(float64(m.Lat)/1e7, simHomeLon)
			f.up = float64(m.Alt)/1000 - ground
		case *common.MessagePositionTargetGlobalInt:
			f.toNorth, f.toUp = math.NaN(), math.NaN()
			if at-h.at < 600*time.Millisecond { // it comes at 2 Hz
				f.toNorth, _ = simMetres(float64(m.LatInt)/1e7, simHomeLon)
				f.toUp = float64(m.Alt) - ground
			}
		}
	}
	return f
}

func wantFix(t *testing.T, at time.Duration, what string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tolerance {
		t.Errorf("%v: %s is %.1f, captured %.1f", at, what, got, want)
	}
}

// px4Capture is px4-pilot.tlog's script.
func px4Capture(c *captureBoard) {
	const keep = math.MaxInt32
	nan := float32(math.NaN())
	lat, lon := simPlace(40, 0)
	c.as(1, 194)
	c.rates(map[float64]float64{1: 2, 24: 2, 30: 10, 33: 10, 74: 4, 87: 2, 245: 4})
	c.at(8.24)
	c.change(func() { c.params[simDataLink] = 2 })
	c.command(10.745, simArm, 1)
	c.command(10.975, simPrearm)
	c.at(12.239)
	c.gcsBeat()
	c.command(12.2405, simPrearm)
	c.at(13.506)
	c.change(func() { c.params[simDataLink] = 0 })
	c.at(16.5)
	c.gcsBeat()
	c.at(16.506)
	c.write(&common.MessageCommandInt{TargetSystem: 1, TargetComponent: 1, Command: simTakeoff, X: keep, Y: keep,
		Z: simHomeAlt + 12})
	c.command(16.764, simArm, 1)
	for i := range 5 {
		c.at(31.006 + 0.253*float64(i))
		c.request(0)
	}
	c.at(32.285)
	c.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simGoto, Param1: -1, Param2: 1, Param4: nan, X: simE7(lat),
		Y: simE7(lon), Z: nan,
	})
	c.command(37.279, simSetMode, 1, 4, 3)
	c.at(42.5)
	c.sticks(43.034, 0)
	c.command(43.034, simSetMode, 1, 2)
	c.sticks(43.4, 0)
	c.sticks(45.4, 300)
	c.sticks(45.897, 0)
	c.command(45.897, simSetMode, 1, 3)
	c.sticks(48.353, 0)
	c.command(48.353, simSetMode, 1, 4, 3)
	c.sticks(51.7, 0)
	c.pilotMode(simPX4RTL) // a second client sent it; its acks went elsewhere
	c.sticks(56.619, 0)
	c.command(56.619, common.MAV_CMD_NAV_LAND)
	c.sticks(106, 0) // the simulated vehicle lands a little later
}

// arduPilotCapture is ardupilot-pilot.tlog's script. A request that went out between two
// captured messages is sent at the time half-way between them.
func arduPilotCapture(c *captureBoard) {
	c.as(1, 194)
	time.Sleep(time.Second) // it boots
	c.at(2.2)
	c.rates(map[float64]float64{1: 2, 24: 2, 33: 10, 65: 2, 74: 4, 87: 2, 242: 0.5, 245: 4})
	c.command(5.49, simArm, 1)
	c.command(49.85, simSetMode, 1, simArduGuided)
	c.command(50.1, simArm, 1)
	c.command(50.36, simTakeoff, 0, 0, 0, 0, 0, 0, 12)
	c.at(59.61)
	lat, lon := simPlace(40.1, 0)
	c.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simGoto, Frame: common.MAV_FRAME_GLOBAL, Param1: -1, Param2: 1,
		Param4: float32(math.NaN()), X: simE7(lat), Y: simE7(lon), Z: simHomeAlt + 12,
	})
	c.command(59.81, common.MAV_CMD_DO_CHANGE_SPEED, 1, 4, -1)
	c.command(66.06, simSetMode, 1, simArduBrake)
	c.command(71.32, simSetMode, 1, simArduGuided)
	c.at(72.6)
	c.as(255, 194)
	c.sticks(73.09, 0)
	c.as(1, 194)
	c.command(73.09, simSetMode, 1, simLoiter)
	c.as(255, 194)
	c.sticks(73.5, 0)
	c.sticks(76.5, 500)
	c.sticks(78.3, 0)
	c.pilotSticks(0, 0, 500, 0)
	c.sticks(78.8, 0)
	for range 3 {
		c.manual(simReleased, simReleased, simReleased, simReleased)
	}
	c.as(1, 194)
	c.at(81)
	c.pilotSticks(200, 0, 500, 0) // the receiver's
	c.at(83)
	c.pilotSticks(0, 0, 500, 0)
	c.command(84.98, simSetMode, 1, simArduRTL)
	c.at(135)
}

// captureSame lists, for each kind of message, the fields of its last one that are compared with
// the captured one. The other fields are clocks and sensor noise.
var captureSame = map[uint32][]string{
	0:   {"Type", "Autopilot", "MavlinkVersion"},
	24:  {"Lat", "Lon", "FixType", "SatellitesVisible", "Eph", "Epv", "Vel"},
	33:  {"Lat", "Lon", "RelativeAlt", "Vx", "Vy", "Vz"},
	65:  {"Chancount", "Rssi", "Chan5Raw", "Chan6Raw", "Chan7Raw", "Chan8Raw", "Chan9Raw", "Chan18Raw"},
	74:  {"Groundspeed", "Throttle", "Climb"},
	87:  {"CoordinateFrame", "TypeMask", "Alt", "Vx", "Afx", "Yaw", "YawRate"},
	242: {"Latitude", "Longitude", "Q"},
	245: {"VtolState", "LandedState"},
}

// captureSlack is how much a number of captureSame may differ, in the field's own unit. Places may
// differ by 2 m. Heights may differ because the two flights began at different ones.
var captureSlack = map[string]float64{
	"Lat": 200, "Lon": 200, "Latitude": 200, "Longitude": 200, "RelativeAlt": 100,
	"Alt": 0.5, "Vx": 10, "Vy": 10, "Vz": 10, "Vel": 10, "Groundspeed": 0.1, "Climb": 0.1,
}

func captureNumber(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	}
	return math.NaN()
}
