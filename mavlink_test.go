package main

// The link: a port kept open, frames in, messages out, our heartbeat and our
// ids, on a cable in virtual time.

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// A serial line on which much comes is read 50 times a second, but at once when
// an ack is awaited.
func TestABusySerialLineIsReadSeldomAndAnAckAtOnce(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat(), func(b *lineBench) { b.serial = true })
		b.settle()
		b.follow(func(id uint16, _ int) {
			b.shows(4, true)
			b.ack(3*time.Millisecond, id, ackAccepted)
		})
		quiet := b.reads.Load()
		time.Sleep(time.Second)
		if n := b.reads.Load() - quiet; n > 5 {
			t.Errorf("%d reads in a second that brings a heartbeat", n)
		}
		stop := make(chan struct{})
		go func() {
			for ms := uint32(1); ; ms++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				b.say(attitudeAt(ms))
			}
		}()
		time.Sleep(time.Second)
		busy, received := b.reads.Load(), b.link.received.Load()
		time.Sleep(time.Second)
		if reads, frames := b.reads.Load()-busy, b.link.received.Load()-received; reads > 51 || frames < 980 {
			t.Errorf("%d reads in a second that brings 1,000 messages, of which %d were taken", reads, frames)
		}
		s := b.status()
		if age := s.now.Sub(s.tel.attitude.at); age > readEvery {
			t.Errorf("the attitude is %v old", age)
		}
		for i := range 7 {
			time.Sleep(time.Duration(100*i+11*i) * time.Millisecond) // anywhere between two reads
			o := <-b.command(armIt)
			lineEqual(t, "error", o.err, nil)
			lineEqual(t, "time until the answer", o.took, 3*time.Millisecond)
		}
		close(stop)
	})
}

func TestAFullQueueIsAnErrorAndNoWait(t *testing.T) {
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

func TestTheLinkBeatsEachSecondAsThePartOfTheVehicleThatItIs(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil, func(b *lineBench) { b.system = 42 })
		time.Sleep(3500 * time.Millisecond)
		b.say(px4Beat())
		time.Sleep(7 * time.Second)
		all := b.messages(func(m lineMessage) bool { _, ok := m.msg.(*common.MessageHeartbeat); return ok })
		want := common.MessageHeartbeat{
			Type: common.MAV_TYPE_ONBOARD_CONTROLLER, Autopilot: common.MAV_AUTOPILOT_INVALID,
			SystemStatus: common.MAV_STATE_ACTIVE, MavlinkVersion: 3,
		}
		// The port is reopened once in this time: nobody beats.
		if n := len(all); n < 10 || n > 12 {
			t.Errorf("%d heartbeats in 10.5 s", n)
		}
		for i, m := range all {
			system := byte(1)
			if m.at.Sub(b.start) > 3500*time.Millisecond {
				system = 42
			}
			lineEqual(t, "heartbeat", *m.msg.(*common.MessageHeartbeat), want)
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{system, componentID})
			if i > 0 && m.at.Sub(all[i-1].at) > 1100*time.Millisecond {
				t.Errorf("%v between two heartbeats", m.at.Sub(all[i-1].at))
			}
		}
	})
}

func TestGCSMakesTheLinkAGroundStationEachSecond(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.link.gcs = true })
		time.Sleep(10500 * time.Millisecond)
		own, station := b.messages(isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER)), b.messages(isBeat(minimal.MAV_TYPE_GCS))
		lineEqual(t, "own heartbeats", len(own), 11)
		lineEqual(t, "ground station's heartbeats", len(station), 11)
		for _, m := range station {
			lineEqual(t, "sender", [2]byte{m.system, m.component}, [2]byte{1, 190})
		}
	})
}

// ---- The vehicle ----

// earshot is a link whose reader is given bytes, and what it hands on.
type earshot struct {
	*link
	r     *reader
	now   time.Time
	heard []heard
}

func newEarshot(only byte) *earshot {
	quietLink()
	e := &earshot{now: time.Unix(1000, 0)}
	e.link = newLink(device{name: "none", baud: func() int { return 0 }}, only, false, func(h heard) { e.heard = append(e.heard, h) }, func() {})
	e.r = &reader{link: e.link, conn: &connection{}}
	return e
}

// feed gives the reader a burst, and returns what came of it, in words.
func (e *earshot) feed(b ...[]byte) (list []string) {
	e.heard = nil
	for _, p := range b {
		e.r.in.filled(copy(e.r.in.space(), p), e.now)
		for f, ok := e.r.in.next(); ok; f, ok = e.r.in.next() {
			e.r.take(f)
		}
	}
	for _, h := range e.heard {
		switch {
		case h.notice != "":
			list = append(list, h.notice)
		case h.foreign:
			list = append(list, fmt.Sprintf("foreign %d from %d", h.msg.GetID(), h.system))
		default:
			list = append(list, fmt.Sprintf("%d of %d", h.msg.GetID(), h.system))
		}
	}
	return list
}

func TestGapsInTheVehiclesSequenceAreLostFrames(t *testing.T) {
	at := func(seq, component byte) []byte { return packet(seq, 1, component, attitudeAt(1)) }
	for _, c := range []struct {
		name string
		said [][]byte
		lost uint64
	}{
		{"none", [][]byte{packet(7, 1, 1, px4Beat()), at(8, 1), at(9, 1)}, 0},
		{"two", [][]byte{packet(7, 1, 1, px4Beat()), at(10, 1), at(11, 1)}, 2},
		{"over the end", [][]byte{packet(254, 1, 1, px4Beat()), at(255, 1), at(0, 1), at(2, 1)}, 1},
		{"what came late is none", [][]byte{packet(7, 1, 1, px4Beat()), at(9, 1), at(8, 1), at(10, 1)}, 1},
		{"before the first heartbeat", [][]byte{at(1, 1), at(90, 1), packet(7, 1, 1, px4Beat()), at(8, 1)}, 0},
		{"somebody else's", [][]byte{packet(7, 1, 1, px4Beat()), at(90, 154), packet(3, 2, 1, px4Beat()), at(8, 1)}, 0},
		{"unknown messages are frames", [][]byte{packet(7, 1, 1, px4Beat()), unknownPacket(8, 20), at(9, 1)}, 0},
		{"a damaged frame is lost", [][]byte{packet(7, 1, 1, px4Beat()), append(at(8, 1)[:20], make([]byte, 20)...), at(9, 1)}, 1},
	} {
		e := newEarshot(0)
		e.feed(c.said...)
		lineEqual(t, c.name, e.lost.Load(), c.lost)
	}
}

func TestWhatIsHandedOnIsTheVehiclesAndHasItsTime(t *testing.T) {
	e := newEarshot(0)
	gimbal := packet(1, 1, 154, attitudeAt(1))
	lineEqual(t, "before the vehicle's heartbeat", fmt.Sprint(e.feed(packet(1, 1, 1, attitudeAt(1)), packet(1, 255, 190, heartbeat(minimal.MAV_TYPE_GCS)))), "[]")
	lineEqual(t, "the vehicle", fmt.Sprint(e.feed(packet(1, 7, 1, px4Beat()), packet(2, 7, 1, attitudeAt(1)), gimbal, packet(1, 1, 1, px4Beat()), packet(3, 1, 1, attitudeAt(1)))), "[0 of 7 30 of 7]")
	claim := wireFrame{seq: 3, system: 7, component: 1, claims: 255}.bytes()
	lineEqual(t, "behind a broken frame", fmt.Sprint(e.feed(claim, packet(4, 7, 1, px4Beat()))), "[]")
	then := e.now
	e.now = e.now.Add(4 * time.Second)
	lineEqual(t, "and later", fmt.Sprint(e.feed(packet(5, 7, 1, attitudeAt(1)))), "[0 of 7 30 of 7]")
	lineEqual(t, "the heartbeat's time", e.heard[0].at, then)
	lineEqual(t, "the attitude's time", e.heard[1].at, e.now)
	lineEqual(t, "the last valid frame's", e.r.conn.frameAt, e.now)
}

func TestSticksOfSomebodyElseAreHandedOnAndEchoesOfOursAreNot(t *testing.T) {
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
		{"a ground station's joystick", packet(9, 255, 190, stick(1)), "[foreign 69 from 255]"},
		{"its override", packet(9, 255, 190, over(1)), "[foreign 70 from 255]"},
		{"of version 1", packet1(9, 255, 190, stick(1)), "[foreign 69 from 255]"},
		{"a companion's", packet(9, 1, 191, stick(1)), "[foreign 69 from 1]"},
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
	pilot := newSender(255, knockID)
	var sent [][]byte
	for range 65 {
		b, err := pilot.encode(stick(1))
		if err != nil {
			t.Fatal(err)
		}
		e.who.echoes.add(echoOf(b))
		sent = append(sent, slices.Clone(b))
	}
	lineEqual(t, "our own, sent back", fmt.Sprint(e.feed(sent[1], sent[64], sent[30])), "[]")
	lineEqual(t, "one that is older than our last 64", fmt.Sprint(e.feed(sent[0])), "[foreign 69 from 255]")
}

func TestAnotherProgramWithOurIdsMakesUsStepAside(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		told := func() string {
			s := b.status()
			return strings.Join(said(&s.tel.texts), "|")
		}
		us := func() byte {
			list := b.messages(isBeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
			return list[len(list)-1].component
		}
		// A radio that sends back what we sent is nobody.
		var echo []byte
		for _, m := range b.messages(func(m lineMessage) bool { return m.component == componentID })[3:9] {
			echo = append(echo, packet(m.seq, m.system, m.component, m.msg)...)
		}
		b.change(func() { b.feed(echo) })
		time.Sleep(1100 * time.Millisecond)
		lineEqual(t, "we are after echoes", us(), 194)
		b.sayFrom(2, 194, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		b.sayFrom(1, 193, heartbeat(minimal.MAV_TYPE_ONBOARD_CONTROLLER))
		time.Sleep(1100 * time.Millisecond)
		lineEqual(t, "we are beside another vehicle's, and a neighbour", us(), 194)
		lineEqual(t, "messages", told(), "")

		b.sayFrom(1, 194, attitudeAt(1))
		time.Sleep(1100 * time.Millisecond)
		lineEqual(t, "we are", us(), 193)
		first := "mavrest: another program uses our MAVLink ids 1/194: going on as component 193"
		lineEqual(t, "messages", told(), first)
		b.follow(func(id uint16, _ int) {
			b.say(&common.MessageCommandAck{Command: common.MAV_CMD(id), TargetSystem: 1, TargetComponent: 194})
		})
		o := <-b.command(armIt)
		lineEqual(t, "code on acks for the neighbour", o.code(), codeNoAck)

		b.sayFrom(1, 193, attitudeAt(1))
		time.Sleep(1100 * time.Millisecond)
		lineEqual(t, "we are at last", us(), 192)
		second := first + "|mavrest: another program uses our MAVLink ids 1/193: going on as component 192"
		lineEqual(t, "messages", told(), second)
		b.sayFrom(1, 192, attitudeAt(1))
		time.Sleep(1100 * time.Millisecond)
		lineEqual(t, "we stay", us(), 192)
		lineEqual(t, "messages", told(), second)
		b.follow(func(id uint16, _ int) {
			b.shows(4, true)
			b.say(&common.MessageCommandAck{Command: common.MAV_CMD(id), TargetSystem: 1, TargetComponent: 192})
		})
		o = <-b.command(armIt)
		lineEqual(t, "code on our ack", o.code(), "")
	})
}

func TestTheFirstAutopilotIsTheVehicleAndOthersAreIgnored(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil)
		time.Sleep(100 * time.Millisecond)
		gimbal := &common.MessageHeartbeat{Type: common.MAV_TYPE_GIMBAL, Autopilot: common.MAV_AUTOPILOT_INVALID, MavlinkVersion: 3}
		station := &common.MessageHeartbeat{Type: common.MAV_TYPE_GCS, Autopilot: common.MAV_AUTOPILOT_INVALID, MavlinkVersion: 3}
		b.sayFrom(3, 154, gimbal)
		b.sayFrom(255, 190, station)
		b.sayFrom(255, 1, station)
		b.sayFrom(4, 2, px4Beat())     // not the autopilot's component
		b.sayFrom(0, 1, px4Beat())     // nobody's system
		b.sayFrom(5, 1, attitudeAt(1)) // not a heartbeat
		time.Sleep(100 * time.Millisecond)
		s := b.status()
		lineEqual(t, "vehicle after heartbeats of no autopilot", s.tel.id.system, 0)
		lineEqual(t, "online", s.online, false)
		if !s.tel.attitude.at.IsZero() {
			t.Error("an attitude came from nobody")
		}

		b.sayFrom(7, 1, copterBeat())
		b.sayFrom(7, 1, &common.MessageGlobalPositionInt{Lat: 70000000, Lon: 80000000, RelativeAlt: 9000})
		b.sayFrom(8, 1, beatOf(common.MAV_AUTOPILOT_PX4, px4Custom(4, 5), true))
		b.sayFrom(8, 1, &common.MessageGlobalPositionInt{Lat: 10000000, Lon: 10000000})
		b.sayFrom(7, 154, gimbal)
		b.sayFrom(7, 154, &common.MessageGlobalPositionInt{Lat: 20000000, Lon: 10000000})
		b.sayFrom(7, 154, &common.MessageStatustext{Text: "gimbal"})
		time.Sleep(100 * time.Millisecond)
		s = b.status()
		lineEqual(t, "vehicle", s.tel.id.system, 7)
		lineEqual(t, "autopilot", s.tel.id.autopilot, common.MAV_AUTOPILOT_ARDUPILOTMEGA)
		lineEqual(t, "armed", s.tel.beat.armed, false)
		lineNear(t, "latitude", s.tel.position.lat, 7, 7)
		lineEqual(t, "texts", s.tel.texts.count, 0)
	})
}

func TestTheSystemFlagChoosesTheVehicle(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.link.who.only = 7 })
		time.Sleep(2500 * time.Millisecond)
		s := b.status()
		lineEqual(t, "vehicle", s.tel.id.system, 0)
		b.sayFrom(7, 1, copterBeat())
		time.Sleep(100 * time.Millisecond)
		s = b.status()
		lineEqual(t, "vehicle", s.tel.id.system, 7)
		lineEqual(t, "autopilot", s.tel.id.autopilot, common.MAV_AUTOPILOT_ARDUPILOTMEGA)
		for _, m := range b.messages(func(m lineMessage) bool { return m.component == componentID }) {
			lineEqual(t, "our system", m.system, 7)
		}
	})
}

func TestTheVehicleIsOfflineAfterThreeSecondsWithoutAHeartbeat(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil)
		time.Sleep(50 * time.Millisecond)
		online := func() bool { s := b.status(); return s.online }
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

// asked counts what the greeting asked for: message intervals, and messages.
// ---- The port ----

func TestAPortThatDoesNotOpenIsTriedAgainAfterMoreAndMoreTime(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		var tries []time.Duration
		start := time.Now()
		l := newDrone(device{name: "none", open: func(ctx context.Context) (port, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			tries = append(tries, time.Since(start))
			return nil, os.ErrNotExist
		}, baud: func() int { return 0 }}, 0, false)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l.run(ctx)
		want := "[0s 100ms 300ms 700ms 1.5s 3.1s 5.1s 7.1s 9.1s]"
		lineEqual(t, "tries", fmt.Sprint(tries), want)
	})
}

func TestASilentPortIsReopenedAfterFiveSecondsThoughNoiseComes(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, nil)
		for range 119 {
			time.Sleep(50 * time.Millisecond)
			b.change(func() { b.feed([]byte{frame.V2MagicByte, 9, 0, 1, 2, 3}) })
		}
		b.change(func() {
			if len(b.opens) != 2 {
				t.Fatalf("opened %d times in 6 s", len(b.opens))
			}
			if d := b.opens[1].Sub(b.opens[0]); d < 5*time.Second || d > 5300*time.Millisecond {
				t.Errorf("reopened after %v", d)
			}
		})
		// A heartbeat each 4.9 s is enough.
		for range 10 {
			b.say(px4Beat())
			time.Sleep(4900 * time.Millisecond)
		}
		b.change(func() { lineEqual(t, "opened", len(b.opens), 2) })
	})
}

func TestAWriteThatHangsIsADeadPortAfterTwoSeconds(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.change(func() { b.cable.stall = make(chan struct{}) })
		hung := time.Now()
		o := <-b.command(armIt)
		lineEqual(t, "code", o.code(), codeNoAck)
		lineEqual(t, "time until the answer", o.took, giveUp)
		time.Sleep(time.Second)
		b.change(func() {
			if len(b.opens) != 2 {
				t.Fatalf("opened %d times", len(b.opens))
			}
			if d := b.opens[1].Sub(hung); d < 2*time.Second || d > 2300*time.Millisecond {
				t.Errorf("reopened %v after the write began to hang", d)
			}
		})
		b.follow(func(id uint16, _ int) { b.ack(time.Millisecond, id, ackAccepted) })
		time.Sleep(2 * time.Second)
		o = <-b.command(disarmIt)
		lineEqual(t, "code on the new port", o.code(), "")
	})
}

// halfDead is a port whose other end has ended and takes nothing more.
type halfDead struct {
	ended, closed chan struct{}
	once          sync.Once
}

// Sticks that come while the port is down are a message like any other when the
// writer of the lost port meets them.
func TestSticksThatComeBetweenTwoPortsHaveTheirIds(t *testing.T) {
	for range 40 { // the writer may see either first: the end, or the sticks
		p, err := newSimulator(simPX4).open()
		if err != nil {
			t.Fatal(err)
		}
		l := newLink(device{name: "sim"}, 0, false, func(heard) {}, func() {})
		l.move(&outgoing{msg: &common.MessageManualControl{Target: 1}})
		c := &connection{port: p, queue: make(chan outgoing), newest: make(chan struct{}, 1), opened: time.Now()}
		c.newest <- struct{}{}
		broken, end := context.WithCancel(t.Context())
		end()
		l.write(t.Context(), broken, c)
	}
}

func (p *halfDead) Read([]byte) (int, error)  { <-p.ended; return 0, io.EOF }
func (p *halfDead) Write([]byte) (int, error) { <-p.closed; return 0, io.ErrClosedPipe }
func (p *halfDead) Close() error              { p.once.Do(func() { close(p.closed) }); return nil }

func TestAPortThatEndsWhileAWriteHangsIsOpenedAgain(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		p := &halfDead{ended: make(chan struct{}), closed: make(chan struct{})}
		var opens atomic.Int64
		l := newDrone(device{name: "half", baud: func() int { return 0 }, open: func(context.Context) (port, error) {
			if opens.Add(1) == 1 {
				return p, nil
			}
			return nil, io.EOF
		}}, 0, false)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx) })
		time.Sleep(500 * time.Millisecond) // the first heartbeat hangs
		close(p.ended)
		time.Sleep(writeHangs + time.Second)
		if opens.Load() < 2 {
			t.Errorf("opened %d times", opens.Load())
		}
		cancel()
		running.Wait()
	})
}

func TestAPortLostBetweenSendAndAckIsNoAckAndTheNextCommandWorks(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.follow(func(uint16, int) { b.change(func() { b.cable.Close() }) })
		o := <-b.command(armIt)
		lineEqual(t, "code", o.code(), codeNoAck)
		lineEqual(t, "time until the answer", o.took, giveUp-lastLook)
		b.follow(func(id uint16, _ int) { b.ack(time.Millisecond, id, ackAccepted) })
		time.Sleep(5 * time.Second)
		o = <-b.command(landHere)
		lineEqual(t, "code on the new port", o.code(), "")
	})
}

// A broken frame claims what never comes, and then the line falls silent: what is
// behind it shows at once, and as old as it is.
func TestWhatABrokenFrameHeldBackIsAsOldAsItIs(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.change(func() {
			b.beat, b.deaf = nil, true
			b.feed(wireFrame{seq: b.seq + 1, system: 1, component: 1, claims: 255}.bytes())
			b.seq++
			b.feed(b.next(1, &common.MessageGlobalPositionInt{Lat: 473977420, Lon: 85455940}))
			b.feed(b.next(1, copterBeat()))
		})
		began := time.Now()
		time.Sleep(frameGap - time.Millisecond)
		synctest.Wait()
		lineEqual(t, "a position before the gap is over", b.status().tel.position.at.IsZero(), true)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		lineEqual(t, "the position's time", b.status().tel.position.at, began)
		time.Sleep(time.Until(began.Add(offlineAfter - time.Millisecond)))
		lineEqual(t, "online for 3 s after that heartbeat", b.status().online, true)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		lineEqual(t, "and no longer", b.status().online, false)
	})
}

// What came before a question was sent does not answer it.
func TestAnOldHeartbeatAnswersNoQuestion(t *testing.T) {
	for _, vendor := range []firmware{px4, copter} {
		now := time.Unix(1000, 0)
		a := newAcks(func(message.Message) error { return nil }, func() {}, func() byte { return 1 }, func() firmware { return vendor })
		q := a.ask(0, now)
		a.came(0, now.Add(-time.Second))
		a.hear(common.MAV_CMD_REQUEST_MESSAGE, 0, now.Add(-time.Second))
		a.came(0, now.Add(-time.Second))
		if q.answer || q.came || a.question != q || a.trip != 0 {
			t.Errorf("firmware %d: answered by what is a second older: %+v, round trip %v", vendor, q, a.trip)
		}
		now = now.Add(3 * time.Millisecond)
		if vendor == px4 {
			a.came(0, now)
		}
		a.hear(common.MAV_CMD_REQUEST_MESSAGE, 0, now)
		if vendor != px4 {
			a.came(0, now)
		}
		lineEqual(t, "then it is answered", q.answer, true)
		lineEqual(t, "round trip", a.trip, 3*time.Millisecond)
	}
}

func TestFramesMissedWhileThePortWasClosedAreNotLostOnTheLine(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat())
		b.settle()
		b.change(func() {
			b.cable.Close()
			b.seq += 50
		})
		time.Sleep(2 * time.Second)
		s := b.status()
		lineEqual(t, "online", s.online, true)
		lineEqual(t, "frames lost", s.link.lost, 0)
	})
}

// logLines collects what is logged from here on.
func logLines(t *testing.T) func() string {
	var mu sync.Mutex
	var b strings.Builder
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(lockedWriter{&mu, &b}, &slog.HandlerOptions{Level: slog.LevelInfo})))
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *strings.Builder
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func TestADeviceThatFailsIsLoggedOnceAndOnceWhenItIsBack(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		log := logLines(t)
		var there, refused atomic.Bool
		var c atomic.Pointer[cable]
		d := newDrone(device{name: "/dev/x", open: func(context.Context) (port, error) {
			if !there.Load() {
				return nil, os.ErrNotExist
			}
			line := newCable(func(lineMessage) {})
			if refused.Load() { // as udpout:// to nobody
				line.Close()
			}
			c.Store(line)
			return line, nil
		}, baud: func() int { return 57600 }}, 0, false)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.run(ctx) })
		var told []string
		const down, open = `WARN msg="no link to the autopilot; trying again until there is" device=/dev/x error=`, `INFO msg="port open" device=/dev/x baud=57600`
		lines := func(what string, more ...string) {
			t.Helper()
			synctest.Wait()
			told = append(told, more...)
			got := slices.DeleteFunc(strings.Split(log(), "\n"), func(line string) bool { return !strings.Contains(line, "device=/dev/x") })
			ok := len(got) == len(told)
			for i := range min(len(got), len(told)) {
				ok = ok && strings.Contains(got[i], told[i])
			}
			if !ok {
				t.Errorf("%s: logged\n%s\nwant %q", what, strings.Join(got, "\n"), told)
			}
		}
		time.Sleep(time.Hour)
		lines("an hour without it", down+`"-device /dev/x: there is no such device`)
		fault := d.link.state().fault
		lineEqual(t, "the fault", fault != nil && strings.Contains(fault.Error(), "-device /dev/x: there is no such device"), true)
		there.Store(true)
		refused.Store(true)
		time.Sleep(time.Hour)
		lines("there, and it ends each time", open, down+"EOF")
		lineEqual(t, "the fault now", d.link.state().fault, io.EOF)
		refused.Store(false)
		time.Sleep(time.Hour)
		lines("open, and silent")
		c.Load().toLink <- packet(1, 1, 1, copterBeat())
		c.Load().toLink <- packet(2, 1, 1, copterBeat())
		lines("a frame came", open)
		lineEqual(t, "the fault of an open port", d.link.state().fault, nil)
		there.Store(false)
		c.Load().Close()
		time.Sleep(time.Hour)
		lines("unplugged for an hour", down+"EOF")
		there.Store(true)
		time.Sleep(time.Hour)
		lines("plugged in again, and silent")
		c.Load().toLink <- packet(3, 1, 1, copterBeat())
		lines("a frame came", open)
		time.Sleep(time.Hour)
		lines("nothing came any more", down+`"nothing that reads as MAVLink for 5 s"`)
		cancel()
		running.Wait()
	})
}

func TestTheProgramEndsThoughAWriteHangs(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		c := newCable(func(lineMessage) {})
		c.stall = make(chan struct{})
		l := newDrone(device{name: "stalled", baud: func() int { return 0 }, open: func(context.Context) (port, error) { return c, nil }}, 0, false)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx) })
		time.Sleep(500 * time.Millisecond) // the first heartbeat hangs
		began := time.Now()
		cancel()
		running.Wait()
		lineEqual(t, "time that it took", time.Since(began), writeHangs)
	})
}
