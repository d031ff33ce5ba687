package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// captureHeard is a message of a flight, since the boot.
type captureHeard struct {
	at  time.Duration
	msg message.Message
}

// readCapture reads a .tlog: 8 bytes of big-endian microseconds before each frame.
func readCapture(t *testing.T, path string) (heard []captureHeard) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var first uint64
	for len(b) > 8 {
		at := binary.BigEndian.Uint64(b)
		if first == 0 {
			first = at
		}
		n := 12 + int(b[9])
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b[8 : 8+n])), DialectRW: simDialect()}
		f, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, captureHeard{time.Duration(at-first) * time.Microsecond, f.GetMessage()})
		b = b[8+n:]
	}
	return heard
}

// captureEvent is what changed in a flight, with all that matters of it.
type captureEvent struct {
	at   time.Duration
	what string
}

// captureBits are the bits of SYS_STATUS that the flight is about.
const captureBits = common.MAV_SYS_STATUS_PREARM_CHECK | common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER |
	common.MAV_SYS_STATUS_SENSOR_GPS | common.MAV_SYS_STATUS_SENSOR_BATTERY | common.MAV_SYS_STATUS_AHRS |
	common.MAV_SYS_STATUS_SENSOR_XY_POSITION_CONTROL | common.MAV_SYS_STATUS_SENSOR_Z_ALTITUDE_CONTROL

// captureEvents tells a flight in its changes.
func captureEvents(heard []captureHeard) (events []captureEvent) {
	last := map[string]string{}
	changed := func(at time.Duration, kind, what string) {
		if last[kind] != what {
			last[kind] = what
			events = append(events, captureEvent{at, kind + " " + what})
		}
	}
	var targetAt time.Duration
	for _, h := range heard {
		if targetAt != 0 && h.at-targetAt > 900*time.Millisecond { // at 2 Hz: it has ended
			changed(targetAt, "target", "none")
			targetAt = 0
		}
		switch m := h.msg.(type) {
		case *common.MessageHeartbeat:
			// On the ground again there are 0.3 s of armed standby, in which none of 1 Hz need fall.
			if m.SystemStatus == common.MAV_STATE_STANDBY && m.BaseMode&common.MAV_MODE_FLAG_SAFETY_ARMED != 0 && m.CustomMode == simArduRTL {
				continue
			}
			changed(h.at, "heartbeat", fmt.Sprint(m.Type, m.Autopilot, m.BaseMode, m.CustomMode, m.SystemStatus))
		case *common.MessageCommandAck:
			if m.Command != common.MAV_CMD_SET_MESSAGE_INTERVAL {
				events = append(events, captureEvent{h.at, fmt.Sprint("ack ", m.Command, m.Result, m.TargetSystem, m.TargetComponent)})
			}
		case *common.MessageStatustext:
			for _, text := range []string{"ArduPilot Ready", "Arm: Accels inconsistent", "Arming motors", "Disarming motors"} {
				if m.Text == text {
					events = append(events, captureEvent{h.at, fmt.Sprint("text ", m.Severity, m.Text)})
				}
			}
		case *common.MessageSysStatus:
			changed(h.at, "sensors", fmt.Sprintf("%x %x %x", uint32(m.OnboardControlSensorsPresent&captureBits),
				uint32(m.OnboardControlSensorsEnabled&captureBits), uint32(m.OnboardControlSensorsHealth&captureBits)))
		case *common.MessageRcChannels:
			changed(h.at, "channels", fmt.Sprint(m.Chancount, m.Rssi, m.Chan1Raw, m.Chan2Raw, m.Chan3Raw, m.Chan4Raw, m.Chan5Raw))
		case *common.MessageExtendedSysState:
			changed(h.at, "landed", fmt.Sprint(m.VtolState, m.LandedState))
		case *common.MessageGpsRawInt:
			if m.FixType != common.GPS_FIX_TYPE_NO_FIX { // one message long, with a place that is not one
				changed(h.at, "gps", fmt.Sprint(m.FixType, m.SatellitesVisible, m.Eph, m.Epv, m.Lat == 0))
			}
		case *common.MessageGlobalPositionInt:
			changed(h.at, "place", fmt.Sprint(m.Lat != 0 && m.Lon != 0, m.Alt > 480000))
		case *common.MessageHomePosition:
			changed(h.at, "home", fmt.Sprint(math.IsNaN(float64(m.Q[0])), m.Altitude > 480000))
		case *common.MessagePositionTargetGlobalInt:
			north, _ := simMetres(float64(m.LatInt)/1e7, float64(m.LonInt)/1e7)
			changed(h.at, "target", fmt.Sprint(m.CoordinateFrame, uint16(m.TypeMask), 5*math.Round(north/5), math.Round(float64(m.Alt)-simHomeAlt)))
			targetAt = h.at
		}
	}
	return events
}

// captureBoot is how long before its first message the captured one booted.
const captureBoot = 1036 * time.Millisecond

// flyCaptured does to the simulator what was done to the captured one, at the
// same times; what was asked for between two messages is taken for their middle.
func flyCaptured(b *simBoard) {
	booted := time.Now()
	at := func(seconds float64) {
		time.Sleep(time.Until(booted.Add(captureBoot + time.Duration(seconds*float64(time.Second)))))
	}
	command := func(id common.MAV_CMD, p ...float32) {
		p = append(p, make([]float32, 7-len(p))...)
		b.write(&common.MessageCommandLong{
			TargetSystem: 1, TargetComponent: 1, Command: id,
			Param1: p[0], Param2: p[1], Param3: p[2], Param4: p[3], Param5: p[4], Param6: p[5], Param7: p[6],
		})
	}
	b.as(1, 194)
	time.Sleep(time.Second) // it boots
	at(2.2)
	for id, hz := range map[float32]float32{1: 2, 24: 2, 33: 10, 65: 2, 74: 4, 87: 2, 242: 0.5, 245: 4} {
		command(common.MAV_CMD_SET_MESSAGE_INTERVAL, id, 1e6/hz)
	}
	at(5.49)
	command(simArm, 1)
	at(49.85)
	command(simSetMode, 1, simArduGuided)
	at(50.1)
	command(simArm, 1)
	at(50.36)
	command(simTakeoff, 0, 0, 0, 0, 0, 0, 12)
	at(59.61)
	lat, lon := simPlace(40.1, 0)
	b.write(&common.MessageCommandInt{
		TargetSystem: 1, TargetComponent: 1, Command: simGoto, Frame: common.MAV_FRAME_GLOBAL, Param1: -1, Param2: 1,
		Param4: float32(math.NaN()), X: simE7(lat), Y: simE7(lon), Z: simHomeAlt + 12,
	})
	at(59.81)
	command(common.MAV_CMD_DO_CHANGE_SPEED, 1, 4, -1)
	at(66.06)
	command(simSetMode, 1, simArduBrake)
	at(71.32)
	command(simSetMode, 1, simArduGuided)
	flyCapturedSticks(b, booted, at, func() { command(simSetMode, 1, simLoiter) })
	at(84.98)
	command(simSetMode, 1, simArduRTL)
	at(135)
}

// flyCapturedSticks is the part with sticks: our stream's, then the receiver's.
func flyCapturedSticks(b *simBoard, booted time.Time, at func(float64), loiter func()) {
	sticks := func(until float64, x int16) {
		b.as(255, 194)
		for ; time.Since(booted) < captureBoot+time.Duration(until*float64(time.Second)); time.Sleep(sim25Hz) {
			b.manual(x, 0, 500, 0)
		}
		b.as(1, 194)
	}
	at(72.6)
	sticks(73.09, 0)
	loiter()
	sticks(73.5, 0)
	sticks(76.5, 500)
	sticks(78.3, 0)
	b.pilotSticks(0, 0, 500, 0)
	sticks(78.8, 0)
	b.as(255, 194)
	for range 3 {
		b.manual(simLet, simLet, simLet, simLet)
	}
	b.as(1, 194)
	at(81)
	b.pilotSticks(200, 0, 500, 0)
	at(83)
	b.pilotSticks(0, 0, 500, 0)
}

func captureFlight(t *testing.T, test func(real, simulated []captureHeard)) {
	t.Helper()
	real := readCapture(t, "testdata/ardupilot-pilot.tlog")
	simFlight(t, simArduPilot, simSlowBoot, func(b *simBoard) {
		booted := time.Now()
		flyCaptured(b)
		b.mu.Lock()
		defer b.mu.Unlock()
		var simulated []captureHeard
		for _, h := range b.got {
			simulated = append(simulated, captureHeard{h.at.Sub(booted) - captureBoot, h.msg})
		}
		test(real, simulated)
	})
}

// The same changes in the same order, message kind by message kind. What comes
// of a command comes within 60 ms of the captured time: both answer within 10,
// a stick's 40 ms come on top. A stream tells a change late by up to its
// period. The boot's times are of that boot's sensors: 1 s. The way home lands
// 2.5 s early, and sensors and the first streams were asked for one by one.
func TestArduPilotChangesAsCaptured(t *testing.T) {
	tolerance := map[string]time.Duration{
		"ack": 60, "text": 60, "heartbeat": 1060, "channels": 560, "gps": 560, "place": 300,
		"landed": 310, "sensors": 560, "target": 560, "home": 2060,
	}
	early := 3 * time.Second // after the return began
	captureFlight(t, func(real, simulated []captureHeard) {
		want, got := captureEvents(real), captureEvents(simulated)
		for kind, ms := range tolerance {
			of := func(e captureEvent) bool { return !strings.HasPrefix(e.what, kind+" ") }
			want, got := slices.DeleteFunc(slices.Clone(want), of), slices.DeleteFunc(slices.Clone(got), of)
			if len(got) != len(want) || len(want) == 0 {
				t.Errorf("%s: %d changes, captured %d\n%v\n%v", kind, len(got), len(want), got, want)
				continue
			}
			for i, w := range want {
				most := ms * time.Millisecond
				switch {
				case i == 0 && kind != "ack":
					most = 3 * time.Second // asked for at another moment
				case w.at < 30*time.Second:
					most += time.Second
				case w.at > 89*time.Second:
					most += early
				}
				if got[i].what != w.what {
					t.Errorf("%v %q, captured %q", got[i].at, got[i].what, w.what)
				}
				if d := (got[i].at - w.at).Abs(); d > most {
					t.Errorf("%q at %v, captured at %v", w.what, got[i].at, w.at)
				}
			}
		}
	})
}

// It is where the captured one was, within 1 m along the way and 1.2 m in
// height. Only the way home, where ArduPilot limits its jerk, is flown up to 8 m
// ahead, and its landing so 2.5 s, or 3 m of a descent, early.
func TestArduPilotFliesAsCaptured(t *testing.T) {
	captureFlight(t, func(real, simulated []captureHeard) {
		type fix struct{ north, up, speed float64 }
		last := func(heard []captureHeard, at time.Duration) (f fix) {
			for _, h := range heard {
				if m, ok := h.msg.(*common.MessageGlobalPositionInt); ok && h.at <= at && m.Lat != 0 {
					north, _ := simMetres(float64(m.Lat)/1e7, float64(m.Lon)/1e7)
					f = fix{north, float64(m.RelativeAlt) / 1000, float64(m.Vx) / 100}
				}
			}
			return f
		}
		for at := 20 * time.Second; at < 132*time.Second; at += 500 * time.Millisecond {
			want, got := last(real, at), last(simulated, at)
			level, height := 1.0, 1.2
			switch {
			case at > 88*time.Second && at < 99*time.Second:
				level = 9
			case at > 101*time.Second:
				height = 3.5
			}
			if d := math.Abs(got.north - want.north); d > level {
				t.Errorf("%v: %.1f m north, captured %.1f", at, got.north, want.north)
			}
			if d := math.Abs(got.up - want.up); d > height {
				t.Errorf("%v: %.1f m up, captured %.1f", at, got.up, want.up)
			}
		}
	})
}

// captureSame are the fields that are held against the captured ones; the rest
// are clocks, and what sensors make of standing still.
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

// captureSlack is how much a number of theirs may differ: 2 m in degE7, home's
// height and the climb that each flight began at, millimetres, cm/s, m/s.
var captureSlack = map[string]float64{
	"Lat": 200, "Lon": 200, "Latitude": 200, "Longitude": 200, "RelativeAlt": 100,
	"Alt": 0.5, "Vx": 10, "Vy": 10, "Vz": 10, "Vel": 10, "Groundspeed": 0.1, "Climb": 0.1,
}

// The last message of each kind says the same in all its fields that matter.
func TestArduPilotsMessagesHaveTheCapturedFields(t *testing.T) {
	captureFlight(t, func(real, simulated []captureHeard) {
		for id, fields := range captureSame {
			of := func(h captureHeard) bool { return h.msg.GetID() != id }
			real, simulated := slices.DeleteFunc(slices.Clone(real), of), slices.DeleteFunc(slices.Clone(simulated), of)
			if len(real) == 0 || len(simulated) == 0 {
				t.Errorf("message %d: %d captured, %d here", id, len(real), len(simulated))
				continue
			}
			want := reflect.ValueOf(real[len(real)-1].msg).Elem()
			got := reflect.ValueOf(simulated[len(simulated)-1].msg).Elem()
			for _, name := range fields {
				w, g := want.FieldByName(name), got.FieldByName(name)
				if ws, gs := fmt.Sprint(w), fmt.Sprint(g); ws != gs && math.Abs(captureNumber(w)-captureNumber(g)) > captureSlack[name] {
					t.Errorf("%s.%s is %s, captured %s", want.Type().Name(), name, gs, ws)
				}
			}
		}
	})
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
