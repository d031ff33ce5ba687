package main

// The handshake: what mavrest requests when a vehicle comes online or has restarted.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// requestCounts counts the handshake's requests for message intervals and messages.
func (b *lineBench) requestCounts() map[string]int {
	count := b.questionCounts()

	// commands request it too
	delete(count, "512 of 0")
	return count
}

// questionCounts counts all requests for message intervals and messages.
func (b *lineBench) questionCounts() map[string]int {
	count := make(map[string]int)
	for _, id := range []common.MAV_CMD{common.MAV_CMD_SET_MESSAGE_INTERVAL, common.MAV_CMD_REQUEST_MESSAGE} {
		for _, m := range b.commands(id) {
			count[fmt.Sprintf("%d of %g", id, m.msg.(*common.MessageCommandLong).Param1)]++
		}
	}
	return count
}

func TestTheHandshakeIsRepeatedWhenTheVehicleComesBackOrRestarts(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) {
			b.boot = 1000
			b.served[idHome] = &common.MessageHomePosition{}
			b.served[idVersion] = &common.MessageAutopilotVersion{FlightSwVersion: 1<<24 | 17<<16}
		})
		// CURRENT_MODE is denied, home and version are answered: each is requested once a handshake.
		// The attitude comes, and the other messages never come.
		want := func(when string, once, comes, others int) {
			t.Helper()
			asked := b.requestCounts()
			for what, n := range map[string]int{"511 of 436": once, "511 of 30": comes, "512 of 242": once,
				"512 of 148": once} {
				if asked[what] != n {
					t.Errorf("%s: asked %s %d times, want %d; all: %v", when, what, asked[what], n, asked)
				}
			}
			for _, what := range []string{"511 of 33", "511 of 245", "511 of 74", "511 of 24", "511 of 1",
				"511 of 242", "511 of 65", "511 of 69", "511 of 147", "511 of 124"} {
				if asked[what] != others {
					t.Errorf("%s: asked %s %d times, want %d; all: %v", when, what, asked[what], others, asked)
				}
			}
			if len(asked) != 14 {
				t.Errorf("%s: asked %v", when, asked)
			}
		}
		b.settle()
		want("at first", 1, 1, 1)
		time.Sleep(20 * time.Second)
		want("later", 1, 1, 2)

		b.change(func() { b.beat = nil })
		for range 35 {
			time.Sleep(100 * time.Millisecond)
			b.say(attitudeAt(90_000)) // the port is not silent
		}
		want("while offline", 1, 1, 2)
		b.change(func() { b.beat, b.boot = px4Beat(), 91_000 })
		time.Sleep(2 * time.Second)
		want("back online", 2, 2, 3)

		b.say(attitudeAt(95_000))
		b.say(attitudeAt(94_200)) // late on UDP
		b.change(func() { b.boot = 96_000 })
		time.Sleep(time.Second)
		want("a frame that came late", 2, 2, 3)
		b.change(func() { b.boot = 3000 })
		time.Sleep(2 * time.Second)
		want("the clock ran backwards", 3, 3, 4)
		time.Sleep(20 * time.Second)
		want("later still", 3, 3, 5)
		b.change(func() { b.boot = 0 })
		time.Sleep(12 * time.Second)
		want("the streams ended", 3, 4, 6)
	})
}

func TestAParameterWhoseValueIsNoNumberStaysUnknown(t *testing.T) {
	d := mute()
	d.tel.id = identity{autopilot: common.MAV_AUTOPILOT_ARDUPILOTMEGA, typ: common.MAV_TYPE_QUADROTOR}
	hear := func(v float64) bool {
		return d.params.hear(&common.MessageParamValue{
			ParamId: "WPNAV_SPEED", ParamValue: float32(v), ParamType: common.MAV_PARAM_TYPE_REAL32,
		}, time.Now())
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		lineEqual(t, fmt.Sprint(v, " is an answer"), hear(v), true)
		lineEqual(t, fmt.Sprint(v, " is known"), d.params.known("WPNAV_SPEED"), false)
	}
	hear(750)
	lineEqual(t, "WPNAV_SPEED", d.params.values["WPNAV_SPEED"], 750)
}

func TestTheParametersThatRulesNeedAreReadInTheHandshake(t *testing.T) {
	wing := beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 0, false)
	wing.Type = common.MAV_TYPE_FIXED_WING
	px4WingBeat := px4Beat()
	px4WingBeat.Type = common.MAV_TYPE_FIXED_WING
	vtol := beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 0, false)
	vtol.Type = common.MAV_TYPE_VTOL_TAILSITTER_QUADROTOR
	for _, c := range []struct {
		name   string
		beat   *common.MessageHeartbeat
		params map[string]float64
		asked  string
		known  string // the parameters, the system of our sticks, rcIn, movementOverrides, gcsFailsafe
	}{
		{"px4", px4Beat(), map[string]float64{"COM_RC_IN_MODE": 5, "COM_RC_OVERRIDE": 2, "NAV_DLL_ACT": 2,
			"RTL_RETURN_ALT": 30.5},
			"COM_RC_IN_MODE COM_RC_OVERRIDE MAN_OVERRIDE_SPD NAV_DLL_ACT RTL_RETURN_ALT",
			"map[COM_RC_IN_MODE:5 COM_RC_OVERRIDE:2 NAV_DLL_ACT:2 RTL_RETURN_ALT:30.5] sticks as 255, 5 false 0"},
		{"px4, a negative one", px4Beat(), map[string]float64{"COM_RC_IN_MODE": -1, "COM_RC_OVERRIDE": 3,
			"NAV_DLL_ACT": 0},
			"COM_RC_IN_MODE COM_RC_OVERRIDE MAN_OVERRIDE_SPD NAV_DLL_ACT RTL_RETURN_ALT",
			"map[COM_RC_IN_MODE:-1 COM_RC_OVERRIDE:3 NAV_DLL_ACT:0] sticks as 255, -1 true 0"},
		{"copter", copterBeat(), map[string]float64{"SYSID_MYGCS": 245, "FS_GCS_ENABLE": 1, "WPNAV_SPEED": 500,
			"RTL_ALT": 1500},
			"SYSID_MYGCS MAV_GCS_SYSID FS_GCS_ENABLE WPNAV_SPEED WP_SPD RTL_ALT RTL_ALT_M",
			"map[FS_GCS_ENABLE:1 RTL_ALT:1500 SYSID_MYGCS:245 WPNAV_SPEED:500] sticks as 245, 3 false 1"},
		{"a newer copter", copterBeat(), map[string]float64{"MAV_GCS_SYSID": 244, "FS_GCS_ENABLE": 0, "WP_SPD": 5,
			"RTL_ALT_M": 15},
			"SYSID_MYGCS MAV_GCS_SYSID FS_GCS_ENABLE WPNAV_SPEED WP_SPD RTL_ALT RTL_ALT_M",
			"map[FS_GCS_ENABLE:0 MAV_GCS_SYSID:244 RTL_ALT_M:15 WP_SPD:5] sticks as 244, 3 false 0"},
		{"a plane", wing, map[string]float64{"SYSID_MYGCS": 255, "MAV_GCS_SYSID": 255, "FS_GCS_ENABL": 1,
			"WP_LOITER_RAD": -80, "TKOFF_ALT": 30, "AIRSPEED_MIN": 9, "AIRSPEED_MAX": 22, "RTL_ALTITUDE": 100},
			"SYSID_MYGCS MAV_GCS_SYSID FS_GCS_ENABL WP_LOITER_RAD TKOFF_ALT ARSPD_FBW_MIN AIRSPEED_MIN " +
				"ARSPD_FBW_MAX AIRSPEED_MAX ALT_HOLD_RTL RTL_ALTITUDE",
			"map[AIRSPEED_MAX:22 AIRSPEED_MIN:9 FS_GCS_ENABL:1 MAV_GCS_SYSID:255 RTL_ALTITUDE:100 " +
				"SYSID_MYGCS:255 TKOFF_ALT:30 WP_LOITER_RAD:-80] sticks as 255, 3 false 1"},
		{"a quadplane", vtol, map[string]float64{"SYSID_MYGCS": 255, "MAV_GCS_SYSID": 255, "FS_GCS_ENABL": 0,
			"Q_GUIDED_MODE": 1, "WP_LOITER_RAD": 60, "ARSPD_FBW_MIN": 12, "ARSPD_FBW_MAX": 25,
			"Q_RTL_ALT": 15},
			"SYSID_MYGCS MAV_GCS_SYSID FS_GCS_ENABL Q_GUIDED_MODE WP_LOITER_RAD ARSPD_FBW_MIN AIRSPEED_MIN " +
				"ARSPD_FBW_MAX AIRSPEED_MAX Q_RTL_ALT", "map[ARSPD_FBW_MAX:25 ARSPD_FBW_MIN:12 FS_GCS_ENABL:0 " +
				"MAV_GCS_SYSID:255 Q_GUIDED_MODE:1 Q_RTL_ALT:15 SYSID_MYGCS:255 WP_LOITER_RAD:60] " +
				"sticks as 255, 3 false 0"},
		{"a px4 plane", px4WingBeat, map[string]float64{"COM_RC_IN_MODE": 5, "COM_RC_OVERRIDE": 2, "NAV_DLL_ACT": 2,
			"NAV_LOITER_RAD": 60.5, "RTL_LOITER_RAD": -70, "NAV_FORCE_VT": 0, "RTL_RETURN_ALT": 100},
			"COM_RC_IN_MODE COM_RC_OVERRIDE MAN_OVERRIDE_SPD NAV_DLL_ACT RTL_RETURN_ALT NAV_LOITER_RAD " +
				"RTL_LOITER_RAD NAV_FORCE_VT",
			"map[COM_RC_IN_MODE:5 COM_RC_OVERRIDE:2 NAV_DLL_ACT:2 NAV_FORCE_VT:0 NAV_LOITER_RAD:60.5 " +
				"RTL_LOITER_RAD:-70 RTL_RETURN_ALT:100] sticks as 255, 5 false 0"},
		{"no answer", copterBeat(), nil,
			"SYSID_MYGCS MAV_GCS_SYSID FS_GCS_ENABLE WPNAV_SPEED WP_SPD RTL_ALT RTL_ALT_M",
			"map[] sticks as 255, 3 false 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, c.beat, func(b *lineBench) { b.params = c.params })
				b.settle()
				time.Sleep(askEvery / 2) // between two rounds of questions
				var asked []string
				for _, m := range b.messages(func(m lineMessage) bool {
					_,
						ok := m.msg.(*common.MessageParamRequestRead)
					return ok
				}) {
					p := m.msg.(*common.MessageParamRequestRead)
					asked = append(asked, p.ParamId)
					lineEqual(t, "target and index of "+p.ParamId,
						[3]int16{int16(p.TargetSystem), int16(p.TargetComponent), p.ParamIndex}, [3]int16{1, 1, -1})
				}
				for n := len(asked); c.params != nil && n > 1 && asked[n-1] == asked[n-2]; n-- {
					asked = asked[:n-1] // an unanswered parameter is requested again
				}
				got := strings.Join(asked, " ")
				roundsOnly := strings.TrimSpace(strings.ReplaceAll(got, c.asked, "")) == ""
				others := " RTL_RETURN_ALT NAV_DLL_ACT FS_GCS_ENABL WP_LOITER_RAD"
				roundsOnly = roundsOnly || strings.TrimSpace(
					strings.NewReplacer(c.asked+others, "", c.asked, "").Replace(got)) == ""
				if c.params == nil && roundsOnly && len(got) > 5*len(c.asked) { // all of them, several times
					got = c.asked
				}
				lineEqual(t, "asked for", got, c.asked)
				b.drone.mu.Lock()
				defer b.drone.mu.Unlock()
				v := b.drone.view(time.Now())
				lineEqual(t, "known", fmt.Sprintf("%v sticks as %d, %v %v %v", v.params,
					b.drone.params.groundStation(), v.rcIn(), v.movementOverrides(), v.gcsFailsafe), c.known)
			})
		})
	}
}

func TestAVehicleThatDoesNotAnswerTheHandshakeIsAskedUntilItDoes(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat(), func(b *lineBench) { b.deaf = true })
		time.Sleep(20 * time.Second)
		all := func(m lineMessage) bool { return m.system == b.drone.link.systemLocked() && m.component == componentID }
		before := len(b.messages(all))
		time.Sleep(40 * time.Second)

		// 8 rounds, each of its own heartbeats and 11 questions at most
		if n := len(b.messages(all)) - before; n < 8*8 || n > 8*16 {
			t.Errorf("a vehicle that answers nothing is sent %d messages in 40 s: %v", n, b.requestCounts())
		}
		lineEqual(t, "messages asked for, of which none is answered", len(b.requestCounts()), 14)
		b.change(func() { b.deaf = false })
		for range 60 {
			b.say(&common.MessageHomePosition{Altitude: 488000})
			time.Sleep(time.Second)
		}
		answered := b.requestCounts()
		for range 60 { // at the interval that was asked for
			b.say(&common.MessageHomePosition{Altitude: 488000})
			time.Sleep(time.Second)
		}
		for what, n := range b.requestCounts() {
			want, known := map[string]int{"511 of 0": 0, "511 of 242": 0, "512 of 242": 0, "512 of 148": 12}[what]
			if !known { // messages that never come are requested each minute
				want = 1
			}
			if got := n - answered[what]; got < want-1 || got > want+1 {
				t.Errorf("%s after the answers: %d times, want %d", what, got, want)
			}
		}
	})
}

// Its firmware may know the command and not the message, or a router may answer for it.
func TestAVehicleThatAcknowledgesAndDoesNotSendIsAskedSeldom(t *testing.T) {
	for _, c := range []struct {
		name         string
		hollow, lost bool
		beats        [2]int // questions for HEARTBEAT in a minute: at least, at most
		streams      [2]int // the same for all streams
		target       [2]int // and for the target
	}{
		{"it sends nothing that it is asked for", true, false, [2]int{50, 70}, [2]int{8, 16}, [2]int{11, 13}},
		{"it sends HEARTBEAT and its target", false, false, [2]int{280, 301}, [2]int{8, 16}, [2]int{58, 61}},
		{"the same, and half of all frames are lost", false, true, [2]int{280, 301}, [2]int{8, 200}, [2]int{58, 61}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(4, 3), true), func(b *lineBench) {
					b.hollow = c.hollow
					b.served[idTarget] = &common.MessagePositionTargetGlobalInt{LatInt: 1, LonInt: 1}
					if c.lost {
						b.loses = rand.New(rand.NewPCG(1, 2))
					}
				})
				asks := func(what string, long time.Duration, want [2]int) {
					t.Helper()
					before := b.questionCounts()
					time.Sleep(long)
					n := 0
					for asked, count := range b.questionCounts() {
						if strings.HasPrefix(asked, what) {
							n += count - before[asked]
						}
					}
					if n < want[0] || n > want[1] {
						t.Errorf("%s was asked for %d times in %v, want %d to %d", what, n, long, want[0], want[1])
					}
				}
				time.Sleep(2 * time.Minute)
				asks("512 of 0", time.Minute, c.beats)
				asks("511 of ", time.Minute, c.streams)
				asks("512 of 87", time.Minute, c.target)
				b.change(func() { b.hollow = false })
				time.Sleep(2 * time.Second)
				asks("512 of 0", 10*time.Second, [2]int{35, 52})
			})
		})
	}
}

func TestALateAckOfAStreamsRequestDoesNotAnswerTheNextOne(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		// the first stream's request goes out twice, and is denied twice
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.lag = 400 * time.Millisecond })
		time.Sleep(20 * time.Second)
		b.drone.mu.Lock()
		defer b.drone.mu.Unlock()
		for _, s := range b.drone.handshake.streams[1:] {
			got := [2]bool{!s.answeredAt.IsZero(), s.denied}
			lineEqual(t, fmt.Sprint("answered and denied: ", s.id), got, [2]bool{true, false})
		}
		a := b.drone.cmd.acks
		open := &command{step: &step{cmd: 1}}
		a.send(open)
		b.drone.handshake.open = open
		b.drone.handshake.begin(time.Now())
		lineEqual(t, "waits for the ack of the handshake before", a.waiting[1], nil)
	})
}

func TestCircleRadiusAndTakeoffAltitudeByVehicle(t *testing.T) {
	const inHover, onTheWing = uint8(common.MAV_VTOL_STATE_MC), uint8(common.MAV_VTOL_STATE_FW)
	const ardupilot, wing = common.MAV_AUTOPILOT_ARDUPILOTMEGA, common.MAV_TYPE_FIXED_WING
	params := func(name string, v float64) map[string]float64 { return map[string]float64{name: v} }
	for _, c := range []struct {
		name            string
		vehicle         identity
		params          map[string]float64
		circle, takeoff float64
	}{
		{"a copter", identity{autopilot: ardupilot, typ: common.MAV_TYPE_QUADROTOR}, params("WP_LOITER_RAD", 80), 0,
			50},
		{"a PX4", identity{autopilot: common.MAV_AUTOPILOT_PX4}, nil, 0, 50},
		{"a plane without its parameters", identity{autopilot: ardupilot, typ: wing}, nil, 60, 50},
		{"a plane", identity{autopilot: ardupilot, typ: wing}, params("WP_LOITER_RAD", 80), 80, 50},
		{"a plane that circles to the left", identity{autopilot: ardupilot, typ: wing}, params("WP_LOITER_RAD", -80),
			80, 50},
		{"a plane that climbs", identity{autopilot: ardupilot, typ: wing}, params("TKOFF_ALT", 30), 60, 30},
		{"a quadplane on the wing", identity{autopilot: ardupilot, typ: wing, vtol: onTheWing},
			params("WP_LOITER_RAD", 75), 75, 50},
		{"a quadplane that hovers", identity{autopilot: ardupilot, typ: wing, vtol: inHover},
			params("WP_LOITER_RAD", 75), 0, 50},
		{"a quadplane on the wing that will hover", identity{autopilot: ardupilot, typ: wing, vtol: onTheWing},
			params("Q_GUIDED_MODE", 1), 0, 50},
	} {
		v := view{firmware: c.vehicle.firmware(), typ: c.vehicle.typ, vtol: common.MAV_VTOL_STATE(c.vehicle.vtol),
			params: c.params}
		lineEqual(t, c.name+": radius", v.circle(), c.circle)
		lineEqual(t, c.name+": takeoff", v.takeoffAltitude(), c.takeoff)
	}
}

func TestAPX4sCirclesHaveTheRadiiOfItsParameters(t *testing.T) {
	const wing, hover = common.MAV_VTOL_STATE_FW, common.MAV_VTOL_STATE_MC
	const fixed, standard = common.MAV_TYPE_FIXED_WING, common.MAV_TYPE_VTOL_FIXEDROTOR
	radii := func(goTo, home float64) map[string]float64 {
		return map[string]float64{"NAV_LOITER_RAD": goTo, "RTL_LOITER_RAD": home}
	}
	for _, c := range []struct {
		name         string
		v            view
		circle, home float64 // metres
	}{
		{"a plane that has sent none", view{typ: fixed}, 80, 80},
		{"a plane", view{typ: fixed, params: radii(60, 100)}, 60, 100},
		{"a plane that circles to the left", view{typ: fixed, params: radii(-60, -100)}, 60, 100},
		{"a VTOL on its wing", view{typ: standard, vtol: wing, params: radii(60, 100)}, 60, 100},
		{"a VTOL in hover", view{typ: standard, vtol: hover, params: radii(60, 100)}, 0, 100},
	} {
		c.v.firmware = px4
		lineEqual(t, c.name+": the circle", c.v.circle(), c.circle)
		lineEqual(t, c.name+": home's circle", c.v.homeCircle(), c.home)
	}
}

// A plane's return is complete on the circle round home that is its own target; any other vehicle's when it is
// disarmed.
func TestAPlaneThatReturnsIsAskedForItsTarget(t *testing.T) {
	const fixed, standard = common.MAV_TYPE_FIXED_WING, common.MAV_TYPE_VTOL_FIXEDROTOR
	for typ, asked := range map[common.MAV_TYPE]bool{fixed: true, standard: false} {
		inLinkBubble(t, func(t *testing.T) {
			beat := px4Beat()
			beat.Type = typ
			b := newLineBench(t, beat)
			b.settle()
			b.shows(entered[px4][ModeRTL], true)
			time.Sleep(2 * time.Second)
			before := b.requestCounts()["512 of 87"]
			time.Sleep(5 * time.Second)
			lineEqual(t, typ.String()+" is asked for its target", b.requestCounts()["512 of 87"] > before, asked)
		})
	}
}

func TestTheHeightOfAReturnIsTheParameterOfTheKindThatFliesIt(t *testing.T) {
	const px, ap = common.MAV_AUTOPILOT_PX4, common.MAV_AUTOPILOT_ARDUPILOTMEGA
	const quad, wing, wheels = common.MAV_TYPE_QUADROTOR, common.MAV_TYPE_FIXED_WING, common.MAV_TYPE_GROUND_ROVER
	inHover, onTheWing := uint8(common.MAV_VTOL_STATE_MC), uint8(common.MAV_VTOL_STATE_FW)
	for _, c := range []struct {
		name    string
		vehicle identity
		params  map[string]float64
		want    float64 // negative: unknown
	}{
		{"a PX4", identity{autopilot: px, typ: quad}, map[string]float64{"RTL_RETURN_ALT": 30, "RTL_ALT": 1}, 30},
		{"a PX4 whose parameter is not known yet", identity{autopilot: px, typ: quad}, nil, -1},
		{"a PX4 plane", identity{autopilot: px, typ: wing}, map[string]float64{"RTL_RETURN_ALT": 100}, 100},
		{"a PX4 rover", identity{autopilot: px, typ: wheels}, map[string]float64{"RTL_RETURN_ALT": 30}, -1},
		{"a copter", identity{autopilot: ap, typ: quad}, map[string]float64{"RTL_ALT": 1550}, 15.5},
		{"a copter that returns at its own height", identity{autopilot: ap, typ: quad},
			map[string]float64{"RTL_ALT": 0}, 0},
		{"a newer copter", identity{autopilot: ap, typ: quad}, map[string]float64{"RTL_ALT_M": 20}, 20},
		{"a plane", identity{autopilot: ap, typ: wing}, map[string]float64{"ALT_HOLD_RTL": 10000}, 100},
		{"a newer plane", identity{autopilot: ap, typ: wing},
			map[string]float64{"RTL_ALTITUDE": 80, "Q_RTL_ALT": 15}, 80},
		{"a plane that keeps its height", identity{autopilot: ap, typ: wing},
			map[string]float64{"RTL_ALTITUDE": -1}, -1},
		{"an older plane that keeps its height", identity{autopilot: ap, typ: wing},
			map[string]float64{"ALT_HOLD_RTL": -1}, -1},
		{"a quadplane that hovers", identity{autopilot: ap, typ: wing, vtol: inHover},
			map[string]float64{"Q_RTL_ALT": 15, "RTL_ALTITUDE": 100}, 15},
		{"a quadplane on the wing", identity{autopilot: ap, typ: wing, vtol: onTheWing},
			map[string]float64{"Q_RTL_ALT": 15, "RTL_ALTITUDE": 100}, -1},
	} {
		v := view{firmware: c.vehicle.firmware(), typ: c.vehicle.typ, vtol: common.MAV_VTOL_STATE(c.vehicle.vtol),
			params: c.params}
		got := v.returnAltitude()
		if known := !math.IsNaN(got); known != (c.want >= 0) || (known && got != c.want) {
			t.Errorf("%s returns at %v m, want %v", c.name, got, c.want)
		}
	}
}

// countedPort counts what comes in.
type countedPort struct {
	port
	n *atomic.Int64
}

func (p countedPort) Read(b []byte) (int, error) {
	n, err := p.port.Read(b)
	p.n.Add(int64(n))
	return n, err
}

func TestASlowSerialLineHasItsReportsAtHalfTheRate(t *testing.T) {
	for rate, hz := range map[int64]float32{0: 20, 57600: 10, 115200: 20} {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, copterBeat(), func(b *lineBench) { b.link.device.line = atBaud(rate) })
			b.settle()
			first := b.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)[0].msg.(*common.MessageCommandLong)
			lineEqual(t, "message", first.Param1, float32(idHeartbeat))
			lineEqual(t, fmt.Sprintf("times a second at %d baud", rate), 1e6/first.Param2, hz)
		})
	}
}

func TestTheMessagesAskedForTakeLessThanHalfOfALinkAt57600(t *testing.T) {
	const half = 57600 / 10 / 2 // bytes a second
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		// The whole payload counts: trailing zeros are not sent, but may not be zeros.
		sizes := map[uint32]float64{0: 9, 1: 43, 24: 52, 30: 28, 33: 28, 74: 20, 124: 57, 242: 60, 245: 2, 65: 42,
			147: 54, 193: 26}
		sum := 1.0 * (9 + 12) // the HEARTBEAT that comes each second anyhow
		for _, m := range b.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL) {
			c := m.msg.(*common.MessageCommandLong)
			size, ok := sizes[uint32(c.Param1)]
			if !ok || c.Param2 <= 0 {
				t.Fatalf("asked for message %g each %g µs", c.Param1, c.Param2)
			}
			sum += (size + 12) * 1e6 / float64(c.Param2)
		}
		if sum >= half || sum < 500 {
			t.Errorf("%.0f bytes a second were asked for, want less than %d", sum, half)
		}
	})
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "ardupilot": simArduPilot} {
		t.Run(name, func(t *testing.T) {
			var count atomic.Int64
			counted := over(func(p port) port { return countedPort{p, &count} })
			flyWith(t, flavour, nil, counted, func(*flight) {
				before := count.Load()
				time.Sleep(20 * time.Second)
				if rate := (count.Load() - before) / 20; rate >= half || rate < 500 {
					t.Errorf("%d bytes a second, want less than %d", rate, half)
				}
			})
		})
	}
}

// A parameter that this firmware lacks is not asked for for ever. While nothing at all is answered it is: perhaps
// the vehicle does not hear us.
func TestAParameterThatTheFirmwareLacksIsNotAskedForForEver(t *testing.T) {
	for _, c := range []struct {
		name string
		deaf bool
		asks bool // it goes on
	}{
		{"others are answered", false, false},
		{"nothing is answered", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, copterBeat(), func(b *lineBench) {
					b.params = map[string]float64{"SYSID_MYGCS": 255, "FS_GCS_ENABLE": 0} // and no speed
					b.deaf = c.deaf
				})
				asked := func(name string, since time.Time) int {
					return len(b.messages(func(m lineMessage) bool {
						p, ok := m.msg.(*common.MessageParamRequestRead)
						return ok && p.ParamId == name && m.at.After(since)
					}))
				}
				began := time.Now()
				for range 12 * 60 {
					time.Sleep(500 * time.Millisecond)
					b.say(b.beat) // a deaf vehicle is heard too
				}
				if n := asked("WP_SPD", began); n < lacksAfter {
					t.Errorf("it was asked for %d times", n)
				}
				late := asked("WP_SPD", time.Now().Add(-time.Minute))
				lineEqual(t, "it is still asked for", late > 0, c.asks)
			})
		})
	}
}
