package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func TestSticksBelongToTheAddressThatSentThemLast(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		flyHTTP(t, flavour, func(hf *httpFlight) {
			const a, again, b = "192.168.1.23:40000", "192.168.1.23:40001", "192.168.1.24:40000"
			post := func(from, path, body string) reply {
				return call(hf.handler, "POST", "/api/drone/"+path, strings.NewReader(body), "From", from)
			}
			refused := func(from, owner string) {
				hf.Helper()
				post(from, "input", `{"roll":-1}`).want(hf.T, 409, "wrong_mode", "another client ("+
					owner+") has the sticks; set the mode to take them")
			}
			has := func(client, want string) {
				hf.Helper()
				call(hf.handler, "GET", "/api/drone/status", nil, "From", client).has(hf.T, want)
			}
			hf.fly("hold")
			post(a, "mode", `{"mode":"position"}`).wantOK(hf.T)
			refused(b, "192.168.1.23") // the client that set the mode has 3 s to move the sticks
			post(a, "input", `{"roll":1,"timeout":1}`).wantOK(hf.T)
			post(again, "input", `{"roll":1,"timeout":1}`).wantOK(hf.T) // another port of the same address
			refused(b, "192.168.1.23")
			has(a, `"by":"client","from":"192.168.1.23","yours":true}`)
			has(b, `"by":"client","from":"192.168.1.23","yours":false}`)
			time.Sleep(1100 * time.Millisecond)
			has(a, `"by":null,"from":null,"yours":false}`)
			post(b, "input", `{"roll":-1,"timeout":1}`).wantOK(hf.T)
			refused(a, "192.168.1.24")
			// Setting the mode takes the sticks, and gives its client time to move them.
			post(a, "mode", `{"mode":"position"}`).wantOK(hf.T)
			has(a, `"by":null,"from":"192.168.1.23","yours":true}`)
			refused(b, "192.168.1.23")
			time.Sleep(2900 * time.Millisecond)
			refused(b, "192.168.1.23")
			time.Sleep(200 * time.Millisecond)
			post(b, "input", `{"roll":-1,"timeout":5}`).wantOK(hf.T)
			// Other commands are open to every address.
			post(a, "mode", `{"mode":"hold"}`).wantOK(hf.T)
			has(b, `"by":null,"from":null,"yours":false}`)
			post(a, "mode", `{"mode":"altitude"}`).wantOK(hf.T)
			post(a, "input", `{"roll":1}`).wantOK(hf.T)
		})
	}
}

func TestThrottleMustBeGivenInManualMode(t *testing.T) {
	for _, body := range []string{``, `{}`, `{"roll":0.5}`, `{"roll":0.5,"throttle":null}`} {
		flyHTTP(t, simPX4, func(hf *httpFlight) {
			hf.fly("manual")
			hf.untouched(func() { hf.post("/api/drone/input", body).want(hf.T, 422, "out_of_range", "throttle") })
			hf.post("/api/drone/input", `{"throttle":0}`).wantOK(hf.T)
		})
	}
}

func TestInputOutsideItsThreeModesIsWrongMode(t *testing.T) {
	for _, mode := range []string{"hold", "land", "rtl", "rtgs"} {
		for _, flavour := range []simFlavour{simPX4, simArduPilot} {
			flyHTTP(t, flavour, func(hf *httpFlight) {
				hf.fly("hold")
				hf.post("/api/drone/mode", `{"mode":"`+mode+`"}`).wantOK(hf.T)
				hf.untouched(func() {
					hf.post("/api/drone/input", `{"roll":1,"throttle":1}`).want(hf.T, 409, "wrong_mode", mode)
				})
				hf.wantMode(mode)
			})
		}
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.post("/api/drone/takeoff", ``).wantOK(hf.T)
		hf.untouched(func() { hf.post("/api/drone/input", `{}`).want(hf.T, 409, "wrong_mode", "takeoff") })
		hf.sim.pilotMode(simPX4Offboard)
		time.Sleep(2 * time.Second)
		hf.wantMode("other")
		hf.untouched(func() { hf.post("/api/drone/input", `{}`).want(hf.T, 409, "wrong_mode", "other") })
	})
}

func TestSticksStandWhileANumberIsKeptAndAStreamsEndLeavesNothing(t *testing.T) {
	d, now := newDrone(device{}, 0, false, slog.Default()), time.Now()
	d.link.writer = newWriter(d.link, nil)
	d.hearMessage(onTime(beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 0, true), now))
	d.hearMessage(onTime(&common.MessageSysStatus{}, now))
	lineEqual(t, "the receiver is known by a SYS_STATUS without sensors", d.sticks.src.known, false)
	d.sticks.src.receiver, d.machine.reports.kept = receiverIdle, make([]shownMode, 1)
	d.sticks.clientMoves(d.situation(now), axes{z: 700}, netip.Addr{}, now.Add(time.Second))
	d.actForSticks()
	lineEqual(t, "the throttle that is sent while a number is kept", d.sticks.streamed.z, 500)
	d.hearMessage(onTime(&common.MessageRcChannels{Chan3Raw: 1500}, now)) // it may show our own throttle
	d.sticks.end(d.situation(now))
	queued := len(d.link.writer.queue)
	d.actForSticks()
	lineEqual(t, "released frames", len(d.link.writer.queue)-queued, 3)
	lineEqual(t, "stick frames that still wait", len(d.link.writer.sticks), 0) // they would override the receiver
	const live = common.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
	d.hearMessage(onTime(&common.MessageSysStatus{OnboardControlSensorsPresent: live,
		OnboardControlSensorsEnabled: live, OnboardControlSensorsHealth: live}, now.Add(100*time.Millisecond)))
	lineEqual(t, "the receiver", d.sticks.src.receiver, receiverIdle)
}

// A released stick must not be followed by one that waited for a busy port.
func TestTheStreamsEndDropsTheSticksThatWaitForThePort(t *testing.T) {
	d := newDrone(device{name: "none"}, 0, false, slog.Default())
	d.link.writer = newWriter(d.link, nil)
	for phase, wait := range map[stickPhase]int{stickOff: 0, stickClient: 1} {
		d.link.setSticks(&outgoing{})
		d.sticks.phase = phase
		d.actForSticks()
		lineEqual(t, "sticks that wait", len(d.link.writer.sticks), wait)
	}
}

// A PX4 has one of two parameters, and on a slow line it is read late.
func TestAdviceNamesTheParameterThatThisPX4HasOnceItIsRead(t *testing.T) {
	for _, c := range []struct {
		params map[string]float64
		warned string
	}{
		{map[string]float64{"COM_RC_OVERRIDE": 1}, "with COM_RC_OVERRIDE 0 none"},
		{map[string]float64{"MAN_OVERRIDE_SPD": 1.5}, "with MAN_OVERRIDE_SPD -1 none"},
		{map[string]float64{"MAN_OVERRIDE_SPD": 0}, "with MAN_OVERRIDE_SPD -1 none"},
		{map[string]float64{"MAN_OVERRIDE_SPD": -1}, ""},
		{nil, "with COM_RC_OVERRIDE 0 (or, from PX4 1.18 on, MAN_OVERRIDE_SPD -1) none"},
	} {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, px4Beat(), func(b *lineBench) {
				b.link.device.line = atBaud(57600)
				for name, value := range c.params {
					b.params[name] = value
				}
			})
			said := func() (n int) {
				for _, m := range b.snapped().tel.texts.kept {
					if !strings.Contains(m.text, "none is undone") {
						continue
					}
					if n++; !strings.Contains(m.text, c.warned) {
						t.Errorf("with %v: %q, want %q", c.params, m.text, c.warned)
					}
				}
				return n
			}
			b.settle()
			time.Sleep(warnAfter)
			read := len(c.params) > 0
			lineEqual(t, fmt.Sprintf("warnings after 3 s with %v", c.params), said(), b2i(read && c.warned != ""))
			time.Sleep(defaultAfter)
			lineEqual(t, fmt.Sprintf("warnings with %v", c.params), said(), b2i(c.warned != ""))
		})
	}
}

// Neither a line below 921600 baud nor a PX4 without CURRENT_MODE surely shows a mode that lasts 40 ms.
func TestAWarningSaysWhereSticksUndoAPilotsSwitchUnseen(t *testing.T) {
	for _, c := range []struct {
		baud     int64
		live     bool
		override float64
		warned   bool
	}{
		{57600, true, 1, true}, {115200, true, 3, true}, {57600, true, 2, false}, {921600, true, 1, false},
		{0, true, 1, false},
		{921600, false, 1, true}, {57600, false, 1, true}, {921600, false, 0, false},
	} {
		inLinkBubble(t, func(t *testing.T) {
			b := newLineBench(t, px4Beat(), func(b *lineBench) {
				b.link.device.line, b.live = atBaud(c.baud), c.live
				b.params["COM_RC_OVERRIDE"] = c.override
			})
			b.settle()
			for range 2 {
				b.say(b.param("COM_RC_OVERRIDE", c.override)) // requested by another program
			}
			time.Sleep(time.Second)
			n := 0
			for _, m := range b.snapped().tel.texts.kept {
				n += strings.Count(m.text, "COM_RC_OVERRIDE")
			}
			lineEqual(t, fmt.Sprintf("messages at %d baud, live %v, with %g", c.baud, c.live, c.override), n,
				b2i(c.warned))
		})
	}
}
