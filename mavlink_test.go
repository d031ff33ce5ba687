package main

// The link on a cable in virtual time: the port is kept open; frames, messages, our
// heartbeats and our ids.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

func TestSendingToAFullQueueIsAnErrorAtOnce(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil, func(b *lineBench) { b.stall = true })
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		var errs []error
		for range 100 {
			errs = append(errs, b.link.send(heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)))
		}
		lineEqual(t, "the first message's error", errs[0], nil)
		lineEqual(t, "the last message's error", errs[99], errQueueFull)
		lineEqual(t, "time that it took", time.Since(began), 0)
	})
}

func TestTheLinkSendsAHeartbeatEachSecondAsAComponentOfTheVehicle(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil, func(b *lineBench) { b.system = 42 })
		time.Sleep(3500 * time.Millisecond)
		b.say(px4Beat())
		time.Sleep(7 * time.Second)
		all := b.messages(isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		want := common.MessageHeartbeat{
			Type: common.MAV_TYPE_ONBOARD_CONTROLLER, Autopilot: common.MAV_AUTOPILOT_INVALID,
			SystemStatus: common.MAV_STATE_ACTIVE, MavlinkVersion: 3,
		}
		lineEqual(t, "heartbeats in 10.5 s", len(all), 10)
		for i, m := range all {
			system := byte(1)
			want.SystemStatus = common.MAV_STATE_UNINIT // a quiet one
			if m.at.Sub(b.start) > 3500*time.Millisecond {
				system = 42
				want.SystemStatus = common.MAV_STATE_ACTIVE
			}
			lineEqual(t, "heartbeat", *m.msg.(*common.MessageHeartbeat), want)
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{system, componentID})
			if i > 0 && m.at.Sub(all[i-1].at) > 1100*time.Millisecond {
				t.Errorf("%v between two heartbeats", m.at.Sub(all[i-1].at))
			}
		}
	})
}

func TestGCSSendsAGroundStationsHeartbeatEachSecond(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.link.gcs = true })
		time.Sleep(10500 * time.Millisecond)
		own := b.messages(isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		station := b.messages(isBeat(minimal.MAV_TYPE_GCS))
		lineEqual(t, "own heartbeats", len(own), 10)
		lineEqual(t, "ground station's heartbeats", len(station), 10)
		for _, m := range station {
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{1, 190})
		}
	})
}

// ---- The vehicle ----

func TestGapsInTheVehiclesSequenceAreLostFrames(t *testing.T) {
	at := func(seq, component byte) []byte { return packet(seq, 1, component, attitudeAt(1)) }
	for _, c := range []struct {
		name string
		said [][]byte
		lost uint64
	}{
		{"none", [][]byte{packet(7, 1, 1, px4Beat()), at(8, 1), at(9, 1)}, 0},
		{"two", [][]byte{packet(7, 1, 1, px4Beat()), at(10, 1), at(11, 1)}, 2},
		{"past 255", [][]byte{packet(254, 1, 1, px4Beat()), at(255, 1), at(0, 1), at(2, 1)}, 1},
		{"a late frame is not lost", [][]byte{packet(7, 1, 1, px4Beat()), at(9, 1), at(8, 1), at(10, 1)}, 0},
		{"in pairs", [][]byte{packet(7, 1, 1, px4Beat()), at(9, 1), at(8, 1), at(11, 1), at(10, 1), at(13, 1)}, 1},
		{"late past 255", [][]byte{packet(254, 1, 1, px4Beat()), at(1, 1), at(255, 1), at(0, 1), at(2, 1)}, 0},
		{"a late frame twice", [][]byte{packet(7, 1, 1, px4Beat()), at(10, 1), at(8, 1), at(8, 1)}, 1},
		{"each twice", [][]byte{packet(7, 1, 1, px4Beat()), packet(7, 1, 1, px4Beat()), at(8, 1), at(8, 1), at(10, 1),
			at(10, 1)}, 1},
		{"a late unknown message", [][]byte{packet(7, 1, 1, px4Beat()), at(9, 1), unknownPacket(8, 20), at(10, 1)}, 0},
		{"127 late", append([][]byte{packet(0, 1, 1, px4Beat()), at(128, 1)}, numbered127(at)...), 0},
		{"a sender that begins again", [][]byte{packet(200, 1, 1, px4Beat()), at(201, 1), at(0, 1), at(1, 1), at(2, 1)},
			54},
		{"before the first heartbeat", [][]byte{at(1, 1), at(90, 1), packet(7, 1, 1, px4Beat()), at(8, 1)}, 0},
		{"another sender's", [][]byte{packet(7, 1, 1, px4Beat()), at(90, 154), packet(3, 2, 1, px4Beat()), at(8, 1)},
			0},
		{"unknown messages are frames", [][]byte{packet(7, 1, 1, px4Beat()), unknownPacket(8, 20), at(9, 1)}, 0},
		{"a damaged frame is lost", [][]byte{packet(7, 1, 1, px4Beat()), append(at(8, 1)[:20], make([]byte, 20)...),
			at(9, 1)}, 1},
	} {
		e := newEarshot(0)
		e.feed(c.said...)
		lineEqual(t, c.name, e.lost.Load(), c.lost)
	}
}

func TestTheVehicleIsTheFirstAutopilotOrTheGivenSystem(t *testing.T) {
	station, gimbal := heartbeat(minimal.MAV_TYPE_GCS), heartbeat(minimal.MAV_TYPE_GIMBAL)
	noVehicles := [][]byte{
		packet(1, 3, 154, gimbal), packet(1, 255, 190, station), packet(1, 255, 1, station),
		packet(1, 5, 1, attitudeAt(1)),
		packet(1, 4, 2, px4Beat()), // not the autopilot's component
		packet(1, 0, 1, px4Beat()), // no vehicle has system id 0
	}
	seven := [][]byte{packet(1, 7, 1, px4Beat()), packet(2, 7, 1, attitudeAt(1))}
	others := [][]byte{
		packet(1, 7, 154, gimbal), packet(2, 7, 154, attitudeAt(1)),
		packet(3, 7, 154, &common.MessageStatustext{Text: "gimbal"}),
		packet(1, 8, 1, copterBeat()), packet(2, 8, 1, attitudeAt(1)),
	}
	for _, c := range []struct {
		name string
		only byte
		said [][]byte
		want string
	}{
		{"none yet", 0, noVehicles, "[]"},
		{"the first", 0, slices.Concat(noVehicles, seven, others), "[0 of 7 30 of 7]"},
		{"the given one", 8, slices.Concat(seven, others), "[0 of 8 30 of 8]"},
	} {
		e := newEarshot(c.only)
		lineEqual(t, c.name, fmt.Sprint(e.feed(c.said...)), c.want)
		if len(e.heard) > 0 {
			lineEqual(t, "its time", e.heard[0].at, e.now)
		}
	}
}

// Bonded links, and routers with two ways, bring frames twice. A number comes again after 255 others.
func TestWhatComesTwiceIsHeardOnce(t *testing.T) {
	for name, m := range map[string]message.Message{
		"an ack":  &common.MessageCommandAck{Command: common.MAV_CMD_DO_SET_MODE},
		"a text":  &common.MessageStatustext{Text: "Takeoff detected"},
		"a beat":  px4Beat(),
		"a clock": attitudeAt(1),
	} {
		t.Run(name, func(t *testing.T) {
			e := newEarshot(0)
			e.feed(packet(1, 1, 1, px4Beat()))
			heard := func(b ...[]byte) int { return len(e.feed(b...)) }
			one := packet(2, 1, 1, m)
			lineEqual(t, "twice", heard(one, one), 1)
			e.now = e.now.Add(1900 * time.Millisecond)
			lineEqual(t, "again 1.9 s later, behind others", heard(packet(3, 1, 1, px4Beat()),
				packet(4, 1, 1, px4Beat()), one), 2)
			lineEqual(t, "another one with that number", heard(packet(2, 1, 1, attitudeAt(7))), 1)
			lineEqual(t, "another one that says the same", heard(packet(5, 1, 1, m)), 1)
			lineEqual(t, "the same number 256 frames later", heard(append(numbered127(func(seq, _ byte) []byte {
				return packet(seq+5, 1, 1, px4Beat())
			}), numbered127(func(seq, _ byte) []byte { return packet(seq+132, 1, 1, px4Beat()) })...)...), 254)
			e.feed(packet(4, 1, 1, px4Beat()))
			lineEqual(t, "its number's next frame", heard(packet(5, 1, 1, m)), 1)
			e.now = e.now.Add(copyWithin)
			lineEqual(t, "of a sender that does not count", heard(packet(5, 1, 1, m)), 1)
		})
	}
}

func TestSticksOfOtherProgramsAreHandedOnAndEchoesOfOursAreNot(t *testing.T) {
	stick := func(target uint8) *common.MessageManualControl {
		return &common.MessageManualControl{Target: target, X: 100, Z: 500}
	}
	over := func(target uint8) *common.MessageRcChannelsOverride {
		return &common.MessageRcChannelsOverride{TargetSystem: target, TargetComponent: 1, Chan1Raw: 1500}
	}
	for _, c := range []struct {
		name string
		said []byte
		want string
	}{
		{"a ground station's joystick", packet(9, 255, 190, stick(1)), "[foreign sticks]"},
		{"its override", packet(9, 255, 190, over(1)), "[foreign sticks]"},
		{"of version 1", packet1(9, 255, 190, stick(1)), "[foreign sticks]"},
		{"a companion's", packet(9, 1, 191, stick(1)), "[foreign sticks]"},
		{"for another vehicle", packet(9, 255, 190, stick(2)), "[]"},
		{"an override for another vehicle", packet(9, 255, 190, over(2)), "[]"},
		{"the vehicle's own", packet(2, 1, 1, stick(1)), "[69 of 1]"},
	} {
		e := newEarshot(0)
		e.feed(packet(1, 1, 1, px4Beat()))
		lineEqual(t, c.name, fmt.Sprint(e.feed(c.said)), c.want)
	}

	e := newEarshot(0)
	lineEqual(t, "before there is a vehicle", fmt.Sprint(e.feed(packet(9, 255, 190, stick(0)))), "[]")
	e.feed(packet(1, 1, 1, copterBeat()))
	pilot := newSender(255, stationID)
	var sent [][]byte
	for range 91 {
		b, h := pilot.encode(stick(1))
		e.recent.add(h, e.now)
		sent = append(sent, b)
		e.now = e.now.Add(20 * time.Millisecond)
	}
	lineEqual(t, "our own, sent back 20 ms to 1.8 s late", fmt.Sprint(e.feed(sent...)), "[]")
	e.now = e.now.Add(echoWithin)
	lineEqual(t, "one that comes later than an echo", fmt.Sprint(e.feed(sent[90])), "[foreign sticks]")
}

func TestAnotherProgramWithOurIdsIsReportedOnce(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		notices := func() string {
			synctest.Wait()
			s := b.snapped()
			return strings.Join(said(&s.tel.texts), "|")
		}
		// A radio that sends our frames back is not another program.
		var echo []byte
		for _, m := range b.messages(func(m lineMessage) bool {
			return m.component == componentID && time.Since(m.at) < 1500*time.Millisecond
		}) {
			echo = append(echo, packet(m.seq, m.system, m.component, m.msg)...)
		}
		lineEqual(t, "there is an echo", len(echo) > 0, true)
		b.change(func() { b.feed(echo) })
		b.sayFrom(2, componentID, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		b.sayFrom(1, componentID-1, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		lineEqual(t, "messages", notices(), "")
		for range 2 {
			b.sayFrom(1, componentID, attitudeAt(1))
			lineEqual(t, "messages", notices(),
				"mavrest: another program uses mavrest's MAVLink ids, 1/193, and each takes the other's acks for "+
					"its own; give that program another component id (MAVROS: component_id, MAVSDK: its "+
					"Configuration, "+
					"pymavlink: source_component), or, if it is a second mavrest, stop one of them")
		}
		time.Sleep(1100 * time.Millisecond)
		list := b.messages(isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		lineEqual(t, "our component", list[len(list)-1].component, 193)
	})
}

// The hub echoes nothing. Each writer's sequence numbers begin at random. If two begin at the same one,
// their heartbeats are equal, and each takes the other's for echoes: of quiet ones, before
// MAVLink was heard, every fourth pair or so.
func TestTwoFreshProgramsWithOneIdOnAHubBothReportIt(t *testing.T) {
	var reported [2]int
	for range 50 {
		var sides [2]*earshot
		var writers [2]*writer
		var lines [2]recordedPort
		for i := range sides {
			sides[i] = newEarshot(0)
			writers[i] = newWriter(sides[i].link, &lines[i])
		}
		var heard [2]bool
		for range 3 {
			for i := range sides {
				if err := writers[i].beat(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range sides {
				for _, notice := range sides[i].feed(lines[1-i].last) {
					heard[i] = heard[i] || strings.Contains(notice, "another program uses mavrest's MAVLink ids, 1/193")
				}
			}
		}
		for i := range reported {
			if heard[i] {
				reported[i]++
			}
		}
	}
	if reported[0] < 25 || reported[1] < 25 {
		t.Errorf("of 50 pairs %v reported it", reported)
	}
}

// A pilot may have switched while the line was blocked.
func TestAMessageThatWaitedTooLongInTheQueueIsNotSent(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		for waited, want := range map[time.Duration]bool{300 * time.Millisecond: true, 301 * time.Millisecond: false} {
			var line recordedPort
			w := newWriter(newEarshot(0).link, &line)
			err := w.put(outgoing{msg: attitudeAt(1), at: time.Now().Add(-waited)})
			lineEqual(t, "the port's error", err, nil)
			lineEqual(t, fmt.Sprintf("it is sent after %v", waited), line.last != nil, want)
		}
	})
}

// The clock that a broken frame kept does not make the line late, nor what comes behind it old.
func TestWhatABrokenFrameKeptLeftWhenItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEarshot(0)
		seq := byte(0)
		next := func(m message.Message) []byte {
			seq++
			return packet(seq, 1, 1, m)
		}
		began := time.Now()
		clock := func() []byte { return next(attitudeAt(uint32(1000 + time.Since(began).Milliseconds()))) }
		feed := func(b ...[]byte) {
			e.now = time.Now()
			e.feed(b...)
		}
		for range 50 {
			feed(clock(), next(px4Beat()))
			time.Sleep(100 * time.Millisecond)
		}
		seq++
		feed(wireFrame{seq: seq, system: 1, component: 1, payload: []byte{1, 2, 3}, claims: 150}.bytes(), clock(),
			next(px4Beat()))
		if len(e.heard) > 0 {
			t.Fatal("the broken frame kept nothing")
		}
		came := time.Now()
		time.Sleep(400 * time.Millisecond)
		feed(slices.Repeat(next(px4Beat()), 8))
		if len(e.heard) < 3 {
			t.Fatalf("%d events", len(e.heard))
		}
		for i, want := range []time.Time{came, came, time.Now()} {
			if h := e.heard[i]; h.left.After(want) || !h.latest.Equal(want) || h.behind != 0 {
				t.Errorf("message %d left %v after it came, %v at the latest, %v behind", i, h.left.Sub(want),
					h.latest.Sub(want), h.behind)
			}
		}
	})
}

// An autopilot may wait for the end of a broken frame.
func TestPaddingGoesAheadOfEachRepeatWhereBytesMayBeLost(t *testing.T) {
	for lossy, want := range map[bool]int{false: 2, true: 3} {
		d := newDrone(device{lossy: lossy}, 0, false, slog.Default())
		d.link.writer = newWriter(d.link, nil)
		x := &command{step: &step{}}
		d.cmd.acks.send(x)
		d.cmd.acks.send(x)
		lineEqual(t, "messages and padding", len(d.link.writer.queue), want)
	}
	p := simPort{toAutopilot: slices.Concat([]byte{frame.V2MagicByte, 255, frame.V2FlagSigned}, padding[:],
		packet(0, 1, componentID, attitudeAt(1)))}
	lineEqual(t, "a frame behind the longest broken one is read", p.next() != nil, true)
}

func TestSticksAndMessagesThatWaitGoOutWhenTheProgramEnds(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for range 20 { // the writer's select takes any of what is ready
		w := newWriter(newEarshot(0).link, new(recordedPort))
		w.sticks <- outgoing{msg: attitudeAt(1)}
		w.queue <- outgoing{msg: attitudeAt(2)}
		w.run(ended, ended)
		lineEqual(t, "frames", w.link.sent.Load(), 2)
	}
}

func TestASecondVehicleIsReportedOnceWithBothIds(t *testing.T) {
	one, two, three := packet(1, 1, 1, px4Beat()), packet(1, 2, 1, px4Beat()), packet(1, 3, 1, copterBeat())
	next, third := packet(2, 1, 1, px4Beat()), packet(3, 1, 1, px4Beat())
	station := packet(1, 2, 1, heartbeat(minimal.MAV_TYPE_GCS))
	const notice = "a second vehicle is on this line, system 2; mavrest flies system 1, which it heard first; start " +
		"mavrest with -system 1 or -system 2 to choose"
	for _, c := range []struct {
		name string
		only byte
		said [][]byte
		want string
	}{
		{"alone", 0, [][]byte{one, next, third}, "[0 of 1 0 of 1 0 of 1]"},
		{"a second one that is heard once", 0, [][]byte{one, two, next}, "[0 of 1 0 of 1]"},
		{"a second one that is heard again", 0, [][]byte{one, two, next, two, two}, "[0 of 1 0 of 1 " + notice + "]"},
		{"three", 0, [][]byte{one, two, three, two, three}, "[0 of 1 " + notice + "]"},
		{"-system chose one", 2, [][]byte{one, two, one, packet(2, 2, 1, px4Beat())}, "[0 of 2 0 of 2]"},
		{"no autopilots", 0, [][]byte{one, station, station}, "[0 of 1]"},
		{"another component", 0, [][]byte{one, packet(1, 2, 100, px4Beat()), packet(1, 2, 100, px4Beat())}, "[0 of 1]"},
	} {
		lineEqual(t, c.name, fmt.Sprint(newEarshot(c.only).feed(c.said...)), c.want)
	}
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.live = true })
		b.settle()
		for range 3 {
			b.sayFrom(2, 1, px4Beat())
		}
		synctest.Wait()
		s := b.snapped()
		lineEqual(t, "messages", strings.Join(said(&s.tel.texts), "|"), "mavrest: "+notice)
	})
}

func TestAWrongSystemIsNamedWhileNoOtherIsHeard(t *testing.T) {
	one, two, five := packet(1, 1, 1, px4Beat()), packet(1, 2, 1, px4Beat()), packet(1, 5, 1, px4Beat())
	const wrong = "system 1 is heard on this line, but -system 5 was asked for; start mavrest with -system 1"
	for _, c := range []struct {
		name string
		only byte
		said [][]byte
		want string
	}{
		{"no vehicle", 5, nil, "<nil>"},
		{"another one", 5, [][]byte{one}, wrong},
		{"two others", 5, [][]byte{two, one}, wrong},
		{"the right one too", 5, [][]byte{one, five}, "<nil>"},
		{"another component", 5, [][]byte{packet(1, 1, 100, px4Beat())}, "<nil>"},
		{"without -system", 0, [][]byte{one, two}, "<nil>"},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEarshot(c.only)
			e.feed(c.said...)
			lineEqual(t, c.name, fmt.Sprint(e.state().fault), c.want)
			time.Sleep(neighbourFor)
			lineEqual(t, c.name+", 10 s later", fmt.Sprint(e.state().fault), "<nil>")
		})
	}
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.link.only = 5 })
		time.Sleep(2 * time.Second)
		call(newHandler(b.drone, admission{}), "POST", "/api/drone/land", nil).want(t, 503, "offline", wrong)
	})
}

func TestTheVehicleIsOfflineAfterThreeSecondsWithoutAHeartbeat(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil)
		time.Sleep(50 * time.Millisecond)
		online := func() bool { s := b.snapped(); return s.online }
		for range 20 {
			b.say(px4Beat())
			for range 29 { // other messages don't count
				time.Sleep(100 * time.Millisecond)
				b.say(attitudeAt(1))
				synctest.Wait()
				if !online() {
					t.Fatal("offline within 2.9 s")
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		lineEqual(t, "online 3.1 s after the last heartbeat", online(), false)
		o := <-b.command(armIt)
		lineEqual(t, "a command's code while offline", o.code(), codeOffline)
		lineEqual(t, "its time", o.took, 0)
		b.say(px4Beat())
		synctest.Wait()
		lineEqual(t, "online at the next heartbeat", online(), true)
	})
}

// ---- The port ----

func TestAPortThatDoesNotOpenIsTriedAgainAfterLongerAndLongerTimes(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		var tries []time.Duration
		start := time.Now()
		d := newDrone(device{name: "none", open: func(ctx context.Context) (port, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			tries = append(tries, time.Since(start))
			return nil, os.ErrNotExist
		}}, 0, false, slog.Default())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		d.run(ctx)
		lineEqual(t, "tries", fmt.Sprint(tries), "[0s 100ms 300ms 700ms 1.5s 3.1s 5.1s 7.1s 9.1s]")
	})
}

// A line whose rate is searched is searched again; any other port stays open, because what is silent may sleep.
func TestASilentPortIsReopenedAfterFiveSecondsOnlyIfThatSearches(t *testing.T) {
	noise := []byte{frame.V2MagicByte, 9, 0, 1, 2, 3}
	for what, said := range map[string][]byte{
		"noise": noise, "what can't be checked": slices.Concat(unknownPacket(1, 9), unknownPacket(2, 9)),
		"bytes that look like frames": bytes.Repeat([]byte{frame.V1MagicByte}, 700),
	} {
		t.Run(what, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, nil, func(b *lineBench) { b.link.device.searches = true })
				for range 119 {
					time.Sleep(50 * time.Millisecond)
					b.change(func() { b.feed(said) })
				}
				b.wantReopened(b.start, 5*time.Second)
				lineEqual(t, "frames received", b.snapped().link.received, 0)
				b.change(func() { b.feed(padding[:]) }) // noise may claim what follows
				// A heartbeat each 4.9 s is enough.
				for range 10 {
					b.say(px4Beat())
					time.Sleep(4900 * time.Millisecond)
				}
				b.change(func() { lineEqual(t, "opened", len(b.opens), 2) })
			})
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, nil)
				time.Sleep(time.Hour)
				b.change(func() { lineEqual(t, "opened", len(b.opens), 1) })
				b.say(px4Beat())
				time.Sleep(time.Millisecond)
				lineEqual(t, "online", b.snapped().online, true)
			})
		})
	}
}

func TestAWriteThatHangsIsADeadPortAfterTwoSeconds(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.change(func() { b.cable.stalled.Store(true) })
		hung := time.Now()
		o := <-b.command(armIt)
		lineEqual(t, "code", o.code(), codeNoAck)
		lineEqual(t, "time until the answer", o.took, 500*time.Millisecond+giveUp) // it is sent after a report
		time.Sleep(time.Second)
		b.wantReopened(hung, 2*time.Second)
		b.obeys(time.Millisecond, time.Millisecond)
		time.Sleep(2 * time.Second)
		o = <-b.command(disarmIt)
		lineEqual(t, "code on the new port", o.code(), "")
	})
}

// At any moment link.error says what the 503 says, and is never null while the vehicle is offline.
func TestLinkErrorAndThe503SayOneThingUntilAFrameComes(t *testing.T) {
	hangsUp := func(b *lineBench) {
		open := b.link.device.open
		b.link.device.open = func(ctx context.Context) (port, error) {
			p, err := open(ctx)
			time.AfterFunc(time.Second, func() { p.Close() })
			return p, err
		}
	}
	const never = "no autopilot was heard yet on %s; check"
	for _, c := range []struct {
		name string
		with func(*lineBench)
		says []string // in this order
	}{
		{"silent UDP", func(b *lineBench) { b.link.device.name, b.link.device.datagrams = "udpin://:14550", true },
			[]string{fmt.Sprintf(never, "udpin://:14550")}},
		{"silent TCP", func(b *lineBench) { b.link.device.name = "tcp://10.0.0.2:5760" },
			[]string{fmt.Sprintf(never, "tcp://10.0.0.2:5760")}},
		{"a silent line with -baud", func(b *lineBench) { b.link.device.name, b.link.device.lossy = "/dev/x", true },
			[]string{fmt.Sprintf(never, "/dev/x")}},
		{"a silent line without -baud", func(b *lineBench) {
			b.link.device.name, b.link.device.searches = "/dev/x", true
			open := b.link.device.open
			tries := 0
			b.link.device.open = func(ctx context.Context) (port, error) {
				if tries++; tries > 1 {
					time.Sleep(11 * time.Second)
					return nil, errNoMAVLink
				}
				return open(ctx)
			}
		}, []string{fmt.Sprintf(never, "/dev/x"), "-device /dev/x: no MAVLink for 5 s",
			"-device /dev/x: no MAVLink at any baud rate that was tried"}},
		{"a server that hangs up", func(b *lineBench) {
			b.link.device.name = "tcp://10.0.0.2:5760"
			hangsUp(b)
		}, []string{fmt.Sprintf(never, "tcp://10.0.0.2:5760"),
			"-device tcp://10.0.0.2:5760: the other end has closed the connection; mavrest connects again"}},
		{"a line that is unplugged", func(b *lineBench) {
			b.link.device.name, b.link.device.lossy = "/dev/x", true
			hangsUp(b)
		}, []string{fmt.Sprintf(never, "/dev/x"), "-device /dev/x: the device is gone"}},
		{"writes that hang", func(b *lineBench) { b.link.device.name, b.stall = "/dev/x", true },
			[]string{fmt.Sprintf(never, "/dev/x"), "-device /dev/x: a write to the port hung for 2 s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, nil, c.with)
				left := c.says
				for range 600 { // a minute
					time.Sleep(100*time.Millisecond - time.Microsecond)
					said := fmt.Sprint(b.snapped().link.fault)
					o := <-b.command(landHere)
					lineEqual(t, "the 503", fmt.Sprint(o.err), said)
					for len(left) > 0 && !strings.HasPrefix(said, left[0]) {
						left = left[1:]
					}
					if len(left) == 0 {
						t.Fatalf("after %v link.error is %s", time.Since(b.start), said)
					}
				}
				lineEqual(t, "what it may still say", len(left), 1)
			})
		})
	}
}

// It is no matter of a wire, though nothing is answered.
func TestAPortWhoseWritesHangIsNamedUntilTheVehicleAcknowledges(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.change(func() { b.stall = true })
		b.cable.stalled.Store(true)
		time.Sleep(3 * time.Second)
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			s := b.snapped()
			if !strings.HasPrefix(fmt.Sprint(s.link.fault), "-device cable: a write to the port hung for 2 s") {
				t.Fatalf("link.error is %v", s.link.fault)
			}
		}
		lineEqual(t, "online", b.snapped().online, true)
		b.change(func() {
			b.stall = false
			b.cable.stalled.Store(false)
		})
		b.obeys(time.Millisecond, time.Millisecond)
		time.Sleep(3 * time.Second)
		lineEqual(t, "once something was acknowledged", b.snapped().link.fault, nil)
	})
}

// A network damages no byte: who puts them there is named. What else is on the line decides nothing.
func TestWhatANetworksOtherEndDoesToBytesIsNamed(t *testing.T) {
	telnet := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte{0xff}, []byte{0xff, 0xff}) }
	flow := func(b []byte) []byte {
		return bytes.ReplaceAll(bytes.ReplaceAll(b, []byte{0x11}, nil), []byte{0x13}, nil)
	}
	wire := func(b []byte) []byte { return append(bytes.Clone(b), 0) }
	place := func(i int) *common.MessageGlobalPositionInt {
		return &common.MessageGlobalPositionInt{TimeBootMs: uint32(i), Lat: 0x11ffff13, Lon: -1, Hdg: 0x1311}
	}
	for _, c := range []struct {
		name            string
		does            func([]byte) []byte
		lossy, datagram bool
		named           bool
	}{
		{"telnet on TCP", telnet, false, false, true},
		{"flow control on TCP", flow, false, false, true},
		{"flow control on UDP", flow, false, true, true},
		{"a clean line", bytes.Clone, false, false, false},
		{"clean datagrams", bytes.Clone, false, true, false},
		{"a wire", wire, true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				b := newLineBench(t, px4Beat(), func(b *lineBench) {
					b.link.device.lossy, b.link.device.datagrams = c.lossy, c.datagram
				})
				b.settle()
				says := func(seconds int) bool {
					for i := range 10 * seconds {
						b.change(func() {
							b.feed(c.does(b.next(1, place(i))))
							b.feed(c.does(b.next(1, &common.MessageVfrHud{Airspeed: 1})))
						})
						time.Sleep(100 * time.Millisecond)
					}
					said := fmt.Sprint(b.snapped().link.fault)
					return strings.HasPrefix(said, "frames come damaged, which a network does not do")
				}
				lineEqual(t, "it is named", says(5), c.named)
				c.does = bytes.Clone
				lineEqual(t, "10 s after the last damaged byte", says(12), false)
			})
		})
	}
}

// A stream begins in a frame each time that it is opened.
func TestALineThatIsOpenedOftenIsNotDamaged(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		for range 20 {
			b.change(func() { b.cable.Close() })
			time.Sleep(200 * time.Millisecond)
			b.change(func() { b.feed([]byte{1, 2, 3}) })
			b.say(copterBeat())
			time.Sleep(time.Second)
		}
		lineEqual(t, "link.error", b.snapped().link.fault, nil)
	})
}

// Noise of strangers, and one place, as where a stream begins in a frame, are no damage.
func TestNoiseOfStrangersIsNoDamageOfTheVehiclesBytes(t *testing.T) {
	flyOnUDP(t, simPX4, nil, func(f *flight, n *network) {
		n.in <- datagram{atHome, []byte("noise")}
		for range 50 {
			n.in <- datagram{atOther, []byte("GET / HTTP/1.1")}
			time.Sleep(100 * time.Millisecond)
		}
		lineEqual(f.T, "link.error", f.status()["link"].(object)["error"], nil)
	})
}

func TestAPortThatEndsWhileAWriteHangsIsOpenedAgain(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		near, _ := net.Pipe()
		p := &halfDead{connPort{Conn: near}, make(chan struct{})}
		var opens atomic.Int64
		runDevice(t, device{name: "half", open: func(context.Context) (port, error) {
			if opens.Add(1) == 1 {
				return p, nil
			}
			return nil, io.EOF
		}})
		time.Sleep(1500 * time.Millisecond) // the first heartbeat hangs
		close(p.ended)
		time.Sleep(writeTimeout + time.Second)
		if opens.Load() < 2 {
			t.Errorf("opened %d times", opens.Load())
		}
	})
}

func TestFramesMissedWhileThePortWasClosedAreNotLostOnTheLine(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.change(func() {
			b.cable.Close()
			b.seq += 50
		})
		time.Sleep(2 * time.Second)
		s := b.snapped()
		lineEqual(t, "online", s.online, true)
		lineEqual(t, "frames lost", s.link.lost, 0)
	})
}

func TestOnlyASerialLineHasABaudRateInTheLog(t *testing.T) {
	for baud, want := range map[int64]bool{0: false, 57600: true} {
		inLinkBubble(t, func(t *testing.T) {
			to, log := logLines()
			line := newCable(func(lineMessage) {})
			runLogged(t, to, device{name: "/dev/x", line: atBaud(baud),
				open: func(context.Context) (port, error) { return line, nil }})
			line.toLink <- packet(1, 1, autopilotID, px4Beat())
			synctest.Wait()
			lineEqual(t, "MAVLink was heard", strings.Contains(log(), "MAVLink heard"), true)
			lineEqual(t, fmt.Sprint("a baud rate is logged, ", baud), strings.Contains(log(), "baud="), want)
		})
	}
}

func TestADeviceThatFailsIsLoggedOnceAndOnceWhenItIsBack(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		to, log := logLines()
		var there, refused atomic.Bool
		var c atomic.Pointer[cable]
		d, end := runLogged(t, to, device{name: "/dev/x", open: func(context.Context) (port, error) {
			if !there.Load() {
				return nil, os.ErrNotExist
			}
			line := newCable(func(lineMessage) {})
			if refused.Load() { // as udpout:// does where no program listens
				line.Close()
			}
			c.Store(line)
			return line, nil
		}, line: atBaud(57600)})
		var want []string
		const down = `WARN msg="no link to the autopilot; trying again" device=/dev/x error=`
		const open = `INFO msg="MAVLink heard" device=/dev/x baud=57600`
		lines := func(what string, more ...string) { // checks that these were logged since the last call
			t.Helper()
			synctest.Wait()
			want = append(want, more...)
			got := slices.DeleteFunc(strings.Split(log(), "\n"),
				func(line string) bool { return !strings.Contains(line, "device=/dev/x") })
			ok := len(got) == len(want)
			for i := range min(len(got), len(want)) {
				ok = ok && strings.Contains(got[i], want[i])
			}
			if !ok {
				t.Errorf("%s: logged\n%s\nwant %q", what, strings.Join(got, "\n"), want)
			}
		}
		time.Sleep(time.Hour)
		lines("an hour without it", down+`"-device /dev/x: there is no such device`)
		fault := d.link.state().fault
		lineEqual(t, "the fault", fault != nil && strings.Contains(fault.Error(),
			"-device /dev/x: there is no such device"), true)
		there.Store(true)
		refused.Store(true)
		time.Sleep(time.Hour)
		const gone = down + `"-device /dev/x: the device is gone`
		const silent = down + `"no MAVLink for 5 s"`
		lines("there, and it ends each time", gone)
		lineEqual(t, "there is a fault", d.link.state().fault != nil, true)
		refused.Store(false)
		time.Sleep(time.Hour)
		lines("open, and silent", silent)
		c.Load().toLink <- packet(1, 1, 1, copterBeat())
		c.Load().toLink <- packet(2, 1, 1, copterBeat())
		lines("a frame came", open)
		lineEqual(t, "the fault of an open port", d.link.state().fault, nil)
		there.Store(false)
		c.Load().Close()
		time.Sleep(time.Hour)
		lines("unplugged for an hour", gone, down+`"-device /dev/x: there is no such device`)
		there.Store(true)
		time.Sleep(time.Hour)
		lines("plugged in again, and silent", silent)
		c.Load().toLink <- packet(3, 1, 1, copterBeat())
		lines("a frame came", open)
		time.Sleep(time.Hour)
		lines("nothing came any more", silent)
		end()
	})
}

func TestTheProgramEndsThoughAWriteHangs(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		c := newCable(func(lineMessage) {})
		c.stalled.Store(true)
		_, end := runDevice(t, device{name: "stalled", open: func(context.Context) (port, error) { return c, nil }})
		began := time.Now()
		time.Sleep(1500 * time.Millisecond) // the first heartbeat hangs
		end()
		lineEqual(t, "time until the write that hung was over", time.Since(began), time.Second+writeTimeout)
	})
}

func TestSticksGoOutAsTheGroundStationsSystemAndOurComponent(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		time.Sleep(time.Millisecond) // not in the same moment as the drone's tick, which clears the sticks
		b.link.setSticks(&outgoing{system: 255, msg: &common.MessageManualControl{Target: 1, X: 7}})
		synctest.Wait()
		sticks := b.messages(func(m lineMessage) bool { _, ok := m.msg.(*common.MessageManualControl); return ok })
		if len(sticks) != 1 || sticks[0].system != 255 || sticks[0].component != componentID {
			t.Errorf("sent %+v", sticks)
		}
	})
}

// A real second client in real time: MAVSDK, another program with a clock of its own.
func TestMavrestFliesBesideAnotherClient(t *testing.T) {
	if *mavsdkPython == "" {
		t.Skip("it wants MAVSDK: -mavsdk python3")
	}
	mine, theirs := freeAddress(t, "udp"), freeAddress(t, "udp")
	cable, err := runSimulator(t, simPX4).open()
	if err != nil {
		t.Fatal(err)
	}
	route(t, cable, mine, theirs)
	p := &shared{T: t, mavrest: start(t, nil, "-device", "udpin://"+mine)}
	go func() {
		for p.mavrest.log.Scan() { // so that the pipe of its log does not fill up
		}
	}()
	p.connect("udpin://" + theirs)

	// mavrest takes off, and both see it. The drone can't be armed in its first seconds.
	for end := time.Now().Add(fliesWithin); ; time.Sleep(time.Second) {
		code, answer := p.post("/takeoff", `{"altitude":10}`)
		if code == http.StatusOK {
			break
		} else if time.Now().After(end) {
			t.Fatalf("mavrest's takeoff: %d %v", code, answer)
		}
	}
	p.agree("aloft", func(s object) bool { return s["in_air"] == true && positionNear(s, "altitude", 10, 1) },
		func(s object) bool { return s["armed"] == true && s["in_air"] == true && s["mode"] == "HOLD" })

	// MAVSDK moves it. That changes neither PX4's mode nor ours, only the place.
	here := p.mavsdk("state")
	if got := p.mavsdk("goto_location", 47.3980, 8.5460, here["altitude_msl"].(float64)+10,
		0); got["result"] != "SUCCESS" {
		t.Errorf("MAVSDK's goto: %v", got)
	}
	p.agree("there", func(s object) bool {
		return s["vehicle_mode"] == "AUTO.LOITER" && positionNear(s, "lat", 47.3980, 1e-5) &&
			positionNear(s, "altitude", 20, 1)
	}, func(s object) bool { return s["altitude"].(float64) > 19 })

	for range 10 {
		p.disagree()
	}

	// MAVSDK returns it, and mavrest lands it instead: the newest command wins, and both see
	// the landing.
	if got := p.mavsdk("return_to_launch"); got["result"] != "SUCCESS" {
		t.Errorf("MAVSDK's return: %v", got)
	}
	in := func(mode string) func(object) bool { return func(s object) bool { return s["mode"] == mode } }
	p.agree("on the way home", in("rtl"), in("RETURN_TO_LAUNCH"))
	if code, answer := p.post("/land", ""); code != http.StatusOK {
		t.Errorf("mavrest's land: %d %v", code, answer)
	}
	p.agree("landing", in("land"), in("LAND"))
	p.agree("landed", func(s object) bool { return s["armed"] == false && s["in_air"] == false && s["mode"] == "land" },
		func(s object) bool { return s["armed"] == false && s["in_air"] == false })
}
