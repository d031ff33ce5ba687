package main

// Where the vehicle is heard: a port with many addresses, on virtual time, with simulated autopilots at some of
// them.

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func TestOfTwoVehiclesWithOneIdOnlyTheFirstAddressIsHeardAndCommanded(t *testing.T) {
	onEachUDP(t, func(f *flight, n *network) {
		other := f.another(f.sim.flavour)
		other.placeInAir(50)
		n.at(f.T, other, atOther)
		time.Sleep(3 * time.Second)
		for i := range 12 {
			f.accepted("/mode", `{"mode":"`+[]string{"hold", "rtl"}[i%2]+`"}`)
			time.Sleep(300 * time.Millisecond)
		}
		f.aloft() // its positions would show the other one's 50 m
		lineEqual(f.T, "commands to the other one", len(commandsOf(other.received())), 0)
		lineEqual(f.T, "frames to the other one", len(other.received()), 0)
		lineEqual(f.T, "it was heard to start again", len(f.messagesWith("started again")), 0)
		want := fmt.Sprintf("[mavrest: system 1 is heard from two addresses, %s and %s: two vehicles with one id, "+
			"or one on two links; %s is ignored]", atHome, atOther, atOther)
		lineEqual(f.T, "messages", fmt.Sprint(f.messagesWith("two addresses")), want)
	})
}

// Others' frames count from every address: another program with our ids, another program's sticks.
func TestOtherSystemsAndComponentsAreHeardFromEveryAddress(t *testing.T) {
	onEachUDP(t, func(f *flight, n *network) {
		n.in <- datagram{atOther, packet(0, 1, componentID, px4Beat())}
		time.Sleep(time.Second)
		lineEqual(f.T, "messages about our ids", len(f.messagesWith("mavrest's MAVLink ids")), 1)
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		time.Sleep(time.Second)
		for seq := range byte(20) {
			n.in <- datagram{atOther, packet(seq, 255, 190, &common.MessageManualControl{Target: 1, X: 100, Z: 500})}
			time.Sleep(50 * time.Millisecond)
		}
		want := 0
		if f.firmware.ardupilot() {
			want = 1
		}
		lineEqual(f.T, "messages about other sticks", len(f.messagesWith("another program moves the sticks")), want)
	})
}

// A restarted bridge has a new port. The flight, its landing at a place and the sticks go on.
func TestABridgeWithANewPortIsNoOutage(t *testing.T) {
	onEachUDP(t, func(f *flight, n *network) {
		f.aloft()
		landing := f.post("/land", "{"+at(60, 0)+`,"wait":200}`)
		time.Sleep(3 * time.Second)
		n.at(f.T, f.sim, atNewPort)
		for range 40 { // the whole time
			time.Sleep(100 * time.Millisecond)
			lineEqual(f.T, "online", f.status()["online"], true)
		}
		landing.want(f.T, 200, "")
		f.wantAt(60, 0, 0, 2)

		f.accepted("/takeoff", `{"altitude":10,"wait":60}`)
		f.accepted("/mode", `{"mode":"position"}`)
		f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
		n.at(f.T, f.sim, atHome)
		moved := time.Now()
		time.Sleep(3 * time.Second)
		if f.firmware == px4 { // PX4's own failsafe came meanwhile: sticks ended for 2 s
			return
		}
		lineEqual(f.T, "sticks go on", len(f.sticksSince(moved)) > 10, true)
		lineEqual(f.T, "mode", f.status()["mode"], "position")
		lineEqual(f.T, "it was heard to start again", len(f.messagesWith("started again")), 0)
	})
}

// What is heard from a new address, after the vehicle's was silent, and is not shown to be the same vehicle.
func TestAnotherVehicleAtANewAddressInheritsNothing(t *testing.T) {
	old := func(f *flight) *simulator { // it was started long before the first one
		s := f.another(f.sim.flavour)
		s.change(func() { s.booted = s.booted.Add(-10 * time.Minute) })
		return s
	}
	for name, next := range map[string]func(f *flight) *simulator{
		"one that started later":   func(f *flight) *simulator { return f.another(f.sim.flavour) },
		"one that started earlier": old,
		"the same one, which has started again": func(f *flight) *simulator {
			f.sim.reboot(true)
			return f.sim
		},
		"one that started at the same time": func(f *flight) *simulator {
			s := f.another(f.sim.flavour)
			s.change(func() { s.booted, s.uid = f.sim.booted, 8 })
			return s
		},
		"one whose clock is not heard": func(f *flight) *simulator {
			s := f.another(f.sim.flavour)
			s.change(func() {
				s.stream(idAttitude, 0)
				s.stream(idPosition, 0)
			})
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEachUDP(t, func(f *flight, n *network) {
				f.aloft()
				landing := f.post("/land", "{"+at(60, 0)+`,"wait":200}`)
				time.Sleep(3 * time.Second)
				n.away(f.sim)
				other := next(f)
				if other != f.sim {
					other.placeInAir(30)
				}
				n.at(f.T, other, atOther)
				began := time.Now()
				time.Sleep(8 * time.Second)
				lineEqual(f.T, "it is online", f.status()["online"], true)
				landing.want(f.T, 409, "interrupted",
					"the vehicle was silent, and has started again meanwhile or is another one")

				time.Sleep(60 * time.Second) // the other one would be at the landing's place, or the client silent
				received := slices.DeleteFunc(other.received(), func(r simReceived) bool { return r.at.Before(began) })
				lineEqual(f.T, "commands to it", fmt.Sprint(commandsOf(received)), "[]")
				lineEqual(f.T, "sticks to it", len(sticksOf(received)), 0)
				f.accepted("/mode", `{"mode":"rtl"}`)
				lineEqual(f.T, "a client's command reaches it", len(commandsOf(other.received())) > 0, true)
			})
		})
	}
}

// A client's moving sticks do not reach another vehicle.
func TestSticksDoNotGoToAnotherVehicleAtANewAddress(t *testing.T) {
	onEachUDP(t, func(f *flight, n *network) {
		f.aloft()
		f.accepted("/mode", `{"mode":"position"}`)
		other := f.another(f.sim.flavour)
		other.placeInAir(30)
		var clients sync.WaitGroup
		clients.Go(func() {
			for range 100 {
				f.call("POST", "/input", `{"pitch":1,"timeout":1}`)
				time.Sleep(100 * time.Millisecond)
			}
		})
		time.Sleep(2 * time.Second)
		n.away(f.sim)
		n.at(f.T, other, atOther)
		clients.Wait()
		lineEqual(f.T, "sticks to it", len(sticksOf(other.received())), 0)
		lineEqual(f.T, "commands to it", fmt.Sprint(commandsOf(other.received())), "[]")
		f.refused("/input", `{"pitch":1}`, 409, "wrong_mode")
	})
}

// On a line with one end a vehicle that comes later is seen by its clock, which can't have run so far.
func TestAnotherVehicleAtTheSameEndInheritsNothing(t *testing.T) {
	both(t, func(f *flight) {
		f.aloft()
		landing := f.post("/land", "{"+at(60, 0)+`,"wait":200}`)
		time.Sleep(3 * time.Second)
		f.sim.unplug()
		time.Sleep(7 * time.Second)
		f.sim.change(func() { f.sim.booted = f.sim.booted.Add(-10 * time.Minute) }) // as another one's
		f.sim.plug()
		began := time.Now()
		landing.want(f.T, 409, "interrupted",
			"the vehicle was silent, and has started again meanwhile or is another one")
		time.Sleep(60 * time.Second)
		lineEqual(f.T, "commands to it", fmt.Sprint(commandsOf(f.since(began))), "[]")
	})
}

// A quick look at the rule, without flights: the vehicle is at A, and its clock shows 100 s at 0 s.
func TestTheVehiclesAddressByClockAndUID(t *testing.T) {
	a, b, c := addressed(1), addressed(2), addressed(3)
	for _, test := range []struct {
		name, heard string // address, seconds, the clock's seconds (- for a heartbeat, u and a uid)
		want        string
	}{
		{"it stays while it is heard", "A 0 100, B 0.1 5, A 1 101, B 1.1 6, A 2 102, B 2.5 7.4, A 3 103",
			"A o A o A o A"},
		{"silent for less than 2 s", "A 0 100, B 1.9 101.9, A 2 102", "A o A"},
		{"the clock goes on", "A 0 100, B 0.3 100.3, B 1.9 101.9, B 2 102, B 2.1 102.1", "A o o moved A"},
		{"the clock is late by 0.9 s", "A 0 100, B 1 100.1, B 2 101.1", "A o moved"},
		{"the clock is late by 1.1 s", "A 0 100, B 1 99.9, B 2 100.9", "A o replaced"},
		{"it started before", "A 0 100, B 1 501, B 2 502, B 2.1 502.1", "A o replaced A"},
		{"it started again", "A 0 100, B 1 2, B 2 3", "A o replaced"},
		{"an hour later", "A 0 100, B 3600 3700, B 3601 3701", "A moved A"},
		{"no clock", "A 0 100, B 1 -, B 2 -", "A o replaced"},
		{"no clock, and not long enough", "A 0 100, B 1.5 -, B 2 -, B 2.5 -", "A o o replaced"},
		{"no clock, and the uid is the same", "A 0 u7, B 1 u7, B 2 -", "A o moved"},
		{"no clock, and the uid is another one", "A 0 u7, B 1 u8, B 2 -", "A o replaced"},
		{"the clock goes on, and the uid is another one", "A 0 100, A 0 u7, B 1 101, B 1 u8, B 2 102",
			"A A o o replaced"},
		{"the clock does not go on, and the uid is the same", "A 0 100, A 0 u7, B 1 5, B 1 u7, B 2 6",
			"A A o o replaced"},
		{"the clock goes on, and the uid may be told yet", "A 0 100, A 0 u7, B 1.5 101.5, B 2 102, B 2.5 102.5",
			"A A o o moved"},
		{"a third one", "A 0 100, B 1 5, C 1.1 6, B 2 6", "A o o replaced"},
		{"a third one, whose clock goes on", "A 0 100, B 0.9 5, C 1 101, B 2 6, C 2 102", "A o o o moved"},
		{"forged ports", "A 0 100, B 0.1 -, C 0.2 -, B 0.3 -, A 1 101, C 1.1 -, A 2 102", "A o o o A o A"},
	} {
		v := vehicleAddress{at: a}
		var got []string
		for _, h := range strings.Split(test.heard, ", ") {
			var who, what string
			var seconds, clock float64
			fmt.Sscan(h, &who, &seconds, &what)
			now := time.Unix(1000, 0).Add(time.Duration(seconds*1000) * time.Millisecond)
			var m message.Message = px4Beat()
			if strings.HasPrefix(what, "u") {
				m = &common.MessageAutopilotVersion{Uid: uint64(what[1])}
			} else if what != "-" {
				fmt.Sscan(what, &clock)
				m = attitudeAt(uint32(math.Round(clock * 1000)))
			}
			from := map[string]netip.AddrPort{"A": a, "B": b, "C": c}[who]
			is := v.hear(from, m, now)
			if is == ofReplaced {
				v.adoptOther()
			}
			got = append(got, map[origin]string{ofVehicle: "A", ofOther: "o", ofMoved: "moved",
				ofReplaced: "replaced"}[is])
		}
		lineEqual(t, test.name, strings.Join(got, " "), test.want)
	}
}

// Whatever is no vehicle is never the vehicle: before one is heard, and with its ids.
func TestWhatIsNoVehicleIsNeverTheVehicle(t *testing.T) {
	named := 0
	for typ := range minimal.MAV_TYPE(255) {
		if _, err := strconv.Atoi(typ.String()); err != nil {
			named++
		}
	}
	lineEqual(t, "MAV_TYPEs with a name that are in one of the two lists", len(vehicleTypes)+len(notVehicles)-2, named)
	for _, typ := range notVehicles {
		for _, autopilot := range []minimal.MAV_AUTOPILOT{minimal.MAV_AUTOPILOT_GENERIC, minimal.MAV_AUTOPILOT_PX4,
			minimal.MAV_AUTOPILOT_ARDUPILOTMEGA} {
			beat := beatOf(autopilot, 0, true)
			beat.Type = typ
			for _, only := range []byte{0, 1} {
				e := newEarshot(only)
				name := fmt.Sprintf("%v of %v, -system %d", typ, autopilot, only)
				lineEqual(t, name+", first", fmt.Sprint(e.feed(packet(1, 125, 1, beat), packet(2, 1, 1, beat),
					packet(3, 1, 1, attitudeAt(1)))), "[]")
				lineEqual(t, name+", then a vehicle",
					fmt.Sprint(e.feed(packet(1, 1, 1, copterBeat()), packet(2, 1, 1, beat))), "[0 of 1]")
			}
		}
	}
	for _, typ := range vehicleTypes {
		beat := copterBeat()
		beat.Type = typ
		lineEqual(t, fmt.Sprint(typ), fmt.Sprint(newEarshot(0).feed(packet(1, 1, 1, beat))), "[0 of 1]")
	}
}

// What is heard is said, whenever MAVLink comes and the vehicle does not.
func TestWhatIsHeardInsteadOfTheVehicleIsSaid(t *testing.T) {
	radio := packet(1, 51, 68, &common.MessageRadioStatus{Rssi: 9})
	const check = "; check that the autopilot is on, and sends MAVLink on this line"
	const never = "no autopilot was heard yet on cable; check the wiring, the baud rate or address, and the " +
		"autopilot's MAVLink settings"
	for _, c := range []struct {
		name string
		only byte
		said [][]byte // three times a second, for 5 s
		want string
	}{
		{"nothing", 0, nil, never},
		{"what can't be checked", 0, [][]byte{unknownPacket(1, 9)}, never},
		{"the vehicle", 0, [][]byte{packet(1, 1, 1, px4Beat())}, "<nil>"},
		{"the vehicle and others", 0, [][]byte{packet(1, 1, 1, px4Beat()),
			packet(1, 1, 154, heartbeat(minimal.MAV_TYPE_GIMBAL))}, "<nil>"},
		{"an autopilot with another component", 0, [][]byte{packet(1, 1, 250, px4Beat())},
			"MAVLink is heard, but no autopilot: system 1 component 250 (quadrotor); an autopilot's component is 1" +
				check},
		{"its other messages too", 0, [][]byte{packet(1, 1, 250, typed(minimal.MAV_TYPE_HEXAROTOR)),
			packet(1, 1, 250, attitudeAt(1))},
			"MAVLink is heard, but no autopilot: system 1 component 250 (hexarotor); an autopilot's component is 1" +
				check},
		{"only a radio", 0, [][]byte{radio}, "MAVLink is heard, but no autopilot: system 51 component 68 (a radio)" +
			check},
		{"only a camera", 0, [][]byte{packet(1, 1, 100, heartbeat(minimal.MAV_TYPE_CAMERA))},
			"MAVLink is heard, but no autopilot: system 1 component 100 (camera)" + check},
		{"a ground station with component 1", 0, [][]byte{packet(1, 125, 1, typed(minimal.MAV_TYPE_GCS))},
			"MAVLink is heard, but no autopilot: system 125 component 1 (gcs)" + check},
		{"a type without a name", 0, [][]byte{packet(1, 1, 1, typed(77))},
			"MAVLink is heard, but no autopilot: system 1 component 1 (type 77)" + check},
		{"no heartbeats", 0, [][]byte{packet(1, 1, 1, attitudeAt(1)), packet(1, 1, 191, attitudeAt(1))},
			"MAVLink is heard, but no autopilot: system 1 component 1 (no heartbeat), system 1 component 191 (no " +
				"heartbeat)" + check},
		{"a wire from TX to RX", 0, [][]byte{packet(1, 1, componentID, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))},
			"MAVLink is heard, but no autopilot: system 1 component 193 (mavrest's own ids)" + check},
		{"-system and only a radio", 5, [][]byte{radio},
			"MAVLink is heard, but not system 5, which -system asks for: system 51 component 68 (a radio)"},
		{"-system and its camera", 5, [][]byte{packet(1, 5, 100, heartbeat(minimal.MAV_TYPE_CAMERA))},
			"MAVLink is heard, but not system 5, which -system asks for: system 5 component 100 (camera)"},
		{"-system and its autopilot with another component", 5, [][]byte{packet(1, 5, 2, px4Beat())},
			"MAVLink is heard, but not system 5, which -system asks for: system 5 component 2 (quadrotor); an " +
				"autopilot's component is 1"},
		{"-system of another vehicle", 5, [][]byte{packet(1, 1, 1, px4Beat()), radio},
			"system 1 is heard on this line, but -system 5 was asked for; start mavrest with -system 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, nil, func(b *lineBench) { b.link.only, b.link.device.datagrams = c.only, true })
				for i := range 15 {
					b.change(func() {
						for _, p := range c.said {
							b.feed(p)
						}
					})
					time.Sleep(333 * time.Millisecond)
					early := fmt.Sprint(b.snapped().link.fault)
					known := early == never || early == c.want
					if i < 7 && (!known || strings.HasPrefix(early, "MAVLink is heard")) {
						t.Errorf("%d/3 s after the start: %v", i+1, early)
					}
				}
				s := b.snapped()
				lineEqual(t, "link.error", fmt.Sprint(s.link.fault), c.want)
				o := <-b.command(landHere)
				if c.want != "<nil>" {
					lineEqual(t, "the 503", fmt.Sprint(o.code(), " ", o.err), "offline "+c.want)
				}
			})
		})
	}
}

func TestALostVehicleIsMissedWhileARadioIsHeard(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat())
		camera := heartbeat(minimal.MAV_TYPE_CAMERA)
		says := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				b.sayFrom(1, 100, camera)
			}
		}
		says(5 * time.Second)
		lineEqual(t, "beside the vehicle", b.snapped().link.fault, nil)
		b.change(func() { b.beat = nil })
		says(10 * time.Second)
		s := b.snapped()
		want := regexp.MustCompile(`^MAVLink is heard, but not the autopilot, system 1, for (9|10|11) s: system 1 ` +
			`component 100 \(camera\)$`)
		if s.link.fault == nil || !want.MatchString(s.link.fault.Error()) {
			t.Errorf("link.error is %v", s.link.fault)
		}
		b.change(func() { b.beat = px4Beat() })
		says(2 * time.Second)
		lineEqual(t, "it is back", b.snapped().link.fault, nil)
	})
}

// A sender with a port of its own for each datagram, as a script without a bound socket.
func TestASenderWhosePortChangesWithEachDatagramIsNamed(t *testing.T) {
	for _, c := range []struct {
		name  string
		ports int // that it uses in turn
		named bool
	}{
		{"each datagram", 10000, true},
		{"two links", 2, false},
		{"one", 1, false},
	} {
		for _, flavour := range []simFlavour{simPX4, simArduPilot} {
			t.Run(fmt.Sprint(c.name, flavour), func(t *testing.T) {
				flyOnUDP(t, flavour, nil, func(f *flight, n *network) {
					n.away(f.sim)
					time.Sleep(4 * time.Second)
					n.change(f.sim, c.ports)
					named := 0
					for range 100 {
						time.Sleep(100 * time.Millisecond)
						fault := fmt.Sprint(f.status()["link"].(object)["error"])
						if strings.HasPrefix(fault, "each datagram of system 1 comes from another address, the last "+
							"one from 10.0.0.1:") {
							named++
							f.refused("/land", "", 503, "offline")
						}
					}
					if (named > 80) != c.named || (named > 0) != c.named {
						f.Errorf("named in %d of 100 statuses, the last one %v", named, f.status()["link"])
					}
				})
			})
		}
	}
}

func TestManySendersAreEightNeighbours(t *testing.T) {
	var list neighbours
	now := time.Unix(1000, 0)
	for i := range 2000 {
		list.hear(rawFrame{header: header{system: byte(i % 200), component: 7, id: 30}},
			now.Add(time.Duration(i)*time.Millisecond))
	}
	lineEqual(t, "kept", len(list), neighboursKept)
}

// A vehicle that answers nothing: one wire, a bridge with one direction, an autopilot that signs.
func TestAVehicleThatAnswersNothingIsSaidToBeReadOnly(t *testing.T) {
	const read = "this vehicle is heard, and answers nothing that mavrest sends: it can be read, not commanded; "
	for _, c := range []struct {
		name          string
		lossy, signed bool
		want          string
	}{
		{"on a serial line", true, false, read +
			"check the wire from the board's TX to the autopilot's RX, and that its port is not half duplex"},
		{"on a network", false, false, read +
			"check that the router or the bridge passes on to the autopilot what mavrest sends"},
		{"and signs", true, true, read +
			"its frames are signed, and it ignores what is not: start mavrest with -sign and a file with the " +
			"vehicle's key (docs/install.md, Signing)"},
	} {
		for name, beat := range map[string]*common.MessageHeartbeat{"px4": px4Beat(), "ardupilot": copterBeat()} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				inLinkBubble(t, func(t *testing.T) {
					b := newLineBench(t, beat, func(b *lineBench) {
						b.deaf, b.link.device.lossy, b.signs = true, c.lossy, c.signed
						b.script = func(uint16, int) {}
					})
					time.Sleep(9500 * time.Millisecond)
					awaits := func() bool {
						return strings.Contains(fmt.Sprint(b.snapped().link.fault), "has not shown it yet")
					}
					lineEqual(t, "after 9.5 s its family is awaited", awaits(), true)
					time.Sleep(time.Second)
					lineEqual(t, "after 10.5 s", fmt.Sprint(b.snapped().link.fault), c.want)
					o := <-b.command(armIt)
					lineEqual(t, "a command, before it has shown what it is", o.code(), codeUnsupported)
					b.say(&common.MessageCommandAck{Command: 511, TargetSystem: 9, TargetComponent: 9})
					b.say(&common.MessageHomePosition{})
					time.Sleep(time.Millisecond)
					lineEqual(t, "another program's ack, and what comes by itself", fmt.Sprint(b.snapped().link.fault),
						c.want)
					b.say(&common.MessageCommandAck{Command: 511, TargetSystem: 1, TargetComponent: componentID})
					time.Sleep(time.Millisecond)
					lineEqual(t, "after one ack its family is awaited again", awaits(), true)
				})
			})
		}
	}
	onBoth(t, func(t *testing.T, b *lineBench, v firmware) {
		time.Sleep(20 * time.Second)
		lineEqual(t, "one that answers", b.snapped().link.fault, nil)
	})
}

// A command or a stick that waits for the port while the vehicle is replaced never goes to the new one.
func TestWhatWasQueuedGoesToTheAddressOfThatMoment(t *testing.T) {
	l := newEarshot(0).link
	port := &receivers{networkPort: &networkPort{}}
	l.writer = newWriter(l, port)
	l.address.at = atHome
	l.send(attitudeAt(1))
	l.setSticks(&outgoing{msg: attitudeAt(2)})
	l.address = vehicleAddress{at: atOther}
	l.writer.drain()
	l.writer.put(outgoing{msg: attitudeAt(3)}) // our heartbeat names no address
	lineEqual(t, "receivers", fmt.Sprint(port.to), fmt.Sprint([]netip.AddrPort{atHome, atHome, atOther}))
}

func TestAFrameThatStepsBackLeftBeforeTheOneThatCameBefore(t *testing.T) {
	for script, want := range map[string]string{
		"1 2 3": "[true true true]", "2 1 4 3": "[true false true false]", "1 1 2 2": "[true false true false]",
		"255 0 1": "[true true true]", "1 120 121": "[true true true]",
	} {
		var o order
		var got []bool
		for _, seq := range strings.Fields(script) {
			n, _ := strconv.Atoi(seq)
			got = append(got, o.hear(byte(n), epoch))
		}
		lineEqual(t, script, fmt.Sprint(got), want)
	}
	o := order{last: 200, at: epoch}
	lineEqual(t, "after half a second the number tells nothing", o.hear(100, epoch.Add(seqFor)), true)
}
