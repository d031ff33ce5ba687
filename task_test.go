package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// A failsafe takes the drone even if it keeps the mode and ends within 50 ms.
func TestAShortFailsafeTakesTheDrone(t *testing.T) {
	for name, begin := range map[string]func(*flight){
		"from a landing at a place": func(f *flight) { toALandingPlace(f) },
		"from a client's sticks": func(f *flight) {
			(&player{flight: f}).plays("aloft, mode position, input pitch 0.3 timeout 5")
			f.sim.change(func() { f.sim.switches().muted = true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			fly(t, simPX4, nil, func(f *flight) {
				begin(f)
				d, since := f.drone, time.Now()
				for _, state := range []minimal.MAV_STATE{minimal.MAV_STATE_CRITICAL, minimal.MAV_STATE_ACTIVE} {
					d.mu.Lock()
					d.tel.id.version = 0 // unknown: it must count as new too (px4CriticalActs)
					d.hearMessage(onTime(flyingBeat(t, d.modeName(), state), time.Now()))
					d.mu.Unlock()
					time.Sleep(50 * time.Millisecond)
				}
				d.mu.Lock()
				lineEqual(t, "manoeuvre", d.cmd.manoeuvre, nil)
				lineEqual(t, "the client has the drone", d.cmd.clientActed, false)
				lineEqual(t, "the client's sticks act", d.sticks.phase == stickClient, false)
				d.mu.Unlock()
				f.sim.change(func() { f.sim.switches().muted = false })
				time.Sleep(20 * time.Second)
				f.wantHandsOff(since)
			})
		})
	}
}

func TestHomeIsForgottenAtARestart(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, px4Beat(), func(b *lineBench) { b.boot = 500000 })
		b.settle()
		at := func(amsl float64, boot uint32) {
			b.say(&common.MessageGlobalPositionInt{TimeBootMs: boot, Lat: 473977419, Lon: 85455937,
				Alt: int32(amsl * 1000)})
		}
		b.say(&common.MessageHomePosition{Latitude: 473977419, Longitude: 85455937, Altitude: 488300})
		at(488.3, 505000)
		b.change(func() { b.boot = 1000 }) // it starts again, 300 m lower
		time.Sleep(2 * time.Second)
		at(188.3, 2500)
		at(188.3, 2600)
		time.Sleep(50 * time.Millisecond)
		b.obeys(time.Millisecond, time.Millisecond)
		answer := b.command(request{verb: entersMode, mode: ModeTakeoff})
		time.Sleep(answerWait + time.Second) // the vehicle does not send its home
		sent := b.commands(common.MAV_CMD_NAV_TAKEOFF)
		if len(sent) == 0 {
			t.Fatal("no takeoff was sent")
		}
		if up := float64(sent[0].msg.(*common.MessageCommandLong).Param7) - 188.3; !differsLittle(up, 10, 1) {
			t.Errorf("a takeoff to 10 m climbs %.1f m", up)
		}
		<-answer
	})
}

// twicePort reads each datagram twice, as from a router with two ways to us.
type twicePort struct {
	port
	again []byte
}

func (p *twicePort) Read(b []byte) (int, error) {
	if p.again != nil {
		n := copy(b, p.again)
		p.again = nil
		return n, nil
	}
	n, err := p.port.Read(b)
	p.again = slices.Clone(b[:n])
	return n, err
}

func TestARefusalIsNotAcceptedOnALineThatBringsFramesTwice(t *testing.T) {
	twice := func(d *drone) {
		open := d.link.device.open
		d.link.device.lossy, d.link.device.datagrams = false, true
		d.link.device.open = func(ctx context.Context) (port, error) {
			p, err := open(ctx)
			return &twicePort{port: p}, err
		}
	}
	flyWith(t, simPX4, nil, twice, func(f *flight) {
		f.aloft()
		f.forbids(simPX4Posctl)
		f.refused("/mode", `{"mode":"position"}`, 409, "refused")
		f.wantMode("takeoff")
	})
}

// slowPort is read slowly: other programs have the processor.
type slowPort struct{ *cable }

func (p slowPort) Read(b []byte) (int, error) {
	n, err := p.cable.Read(b)
	time.Sleep(3 * time.Millisecond)
	return n, err
}

func TestNothingIsDecidedUntilAllIsReadThatCameWhileTheProgramStood(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat(), func(b *lineBench) {
			open := b.link.device.open
			b.link.device.open = func(ctx context.Context) (port, error) {
				p, err := open(ctx)
				return slowPort{p.(*cable)}, err
			}
		})
		b.settle()
		s := standstill{link: b.link, over: time.Now(), reads: true}
		for i := range 20 {
			b.say(attitudeAt(uint32(i)))
		}
		for range 50 {
			if waiting := len(b.cable.toLink); waiting > 0 && !s.reading(time.Now()) {
				t.Fatalf("%d frames wait", waiting)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		lineEqual(t, "it is still reading", s.reading(time.Now()), false)
	})
}

// A sender that the full port held back goes on behind the first read that finds nothing.
func TestThePortMustStayEmptyForAWhileBehindAStandstill(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		s := standstill{link: b.link, over: time.Now(), reads: true}
		b.cable.found(time.Now())
		lineEqual(t, "reading, at once", s.reading(time.Now()), true)
		b.cable.found(time.Now())
		lineEqual(t, "reading, a while later", s.reading(time.Now().Add(readLook)), false)
	})
}

func TestTheProgramMayStandStillAgainWhileItReads(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		var over, decided time.Time
		s := standstill{link: b.link, over: time.Now(), reads: true}
		var mu sync.Mutex
		mu.Lock()
		w := waiter{mu: &mu, bell: new(bell), stood: &s, settle: func() {
			if over.IsZero() {
				time.Sleep(300 * time.Millisecond) // the port was empty meanwhile
				over = time.Now()
			}
		}}
		w.loop(func(now time.Time) decision {
			decided = now
			return decision{move: goOn}
		}, nil)
		if decided.Before(over.Add(readLook)) {
			t.Errorf("decided %v behind the second standstill", decided.Sub(over))
		}
	})
}

func TestWhatIsDoneOver50msLateTellsOfAStandstill(t *testing.T) {
	var s standstill
	s.woke(time.Time{}, epoch)
	s.woke(epoch, epoch.Add(ms(50)))
	lineEqual(t, "50 ms late, over", s.over, time.Time{})
	s.woke(epoch, epoch.Add(ms(51)))
	lineEqual(t, "51 ms late, over", s.over, epoch.Add(ms(51)))
}

func TestAnotherVehicleHasItsOwnParameters(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		b := newLineBench(t, copterBeat(), func(b *lineBench) { b.params["SYSID_MYGCS"] = 250; b.boot = 20000 })
		b.settle()
		time.Sleep(3 * time.Second)
		b.change(func() { b.deaf = true; b.beat = nil })
		time.Sleep(10 * time.Second)
		b.change(func() {
			b.deaf, b.beat, b.boot = false, copterBeat(), 60000
			delete(b.params, "SYSID_MYGCS")
			b.params["MAV_GCS_SYSID"] = 255
		})
		time.Sleep(10 * time.Second)
		b.drone.mu.Lock()
		defer b.drone.mu.Unlock()
		if got := b.drone.params.groundStation(); got != 255 {
			t.Errorf("sticks go out as system %d: %v", got, b.drone.params.values)
		}
	})
}

// A refused step explains no report, also where a failsafe has ended its plan.
func TestAPilotTakesTheDroneByTheModeThatWasRefusedInAFailsafe(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.fails(common.MAV_CMD_DO_SET_MODE)
		f.acks(common.MAV_CMD_DO_SET_MODE, func(a *common.MessageCommandAck) []simAnswer {
			f.sim.failsafe = true // a report of it comes before the refusal
			return []simAnswer{{after: 120 * time.Millisecond, ack: a}}
		})
		(&player{flight: f}).plays("post mode position, answer interrupted 5s")
		f.drone.mu.Lock()
		defer f.drone.mu.Unlock()
		if sent := f.drone.machine.claims; len(sent) > 0 {
			t.Errorf("a step is still claimed: %+v", *sent[0].to)
		}
	})
}

// What mavrest sends by itself (docs/design.md, rule 4).
func TestMavrestActsByItselfOnlyForAClientThatHasTheDrone(t *testing.T) {
	for name, happens := range map[string]func(c *commander){
		"no client's command was accepted": func(c *commander) { c.clientActed = false },
		"a takeover":                       func(c *commander) { c.endAll(interrupted(time.Now(), "a pilot")) },
		"a disarming":                      func(c *commander) { c.disarmed(time.Now()) },
	} {
		c := &commander{queue: queue{clientActed: true}}
		lineEqual(t, "before "+name, c.mustNotAct(), nil)
		happens(c)
		lineEqual(t, "after "+name, code(c.mustNotAct()), codeInterrupted)
	}
	d, own := newDrone(device{}, 0, false, slog.Default()), &task{}
	lineEqual(t, "the code of an own action without a client", code(d.doOwn(waiter{}, request{}, nil)), codeInterrupted)
	d.accepted(own, &step{})
	lineEqual(t, "its own step counts as a client's", d.cmd.clientActed, false)
	d.accepted(&task{askedAt: time.Now(), endedBy: interrupted(time.Now(), "a pilot")}, &step{})
	lineEqual(t, "a step that shows after a takeover gives the client the drone", d.cmd.clientActed, false)
	lands := d.cmd.newTask(landHere, time.Now())
	own.commander, own.request = d.cmd, landHere
	d.cmd.clientActed, d.cmd.tasks = true, []*task{own, lands}
	lineEqual(t, "the code while a command is under way", code(d.cmd.mustNotAct()), codeSuperseded)
	d.cmd.manoeuvre = newManoeuvre(landHere, plan{})
	own.continues = d.cmd.manoeuvre
	d.cmd.endManoeuvre(interrupted(time.Now(), "another target"))
	lineEqual(t, "a manoeuvre that ends takes its second leg with it", own.takenOver(), true)
	own.endedBy = nil
	d.cmd.disarmed(time.Now())
	lineEqual(t, "a disarming ends what mavrest sends itself", own.takenOver(), true)
	lineEqual(t, "a disarming ends a client's landing", lands.takenOver(), false)
	own.end(errSuperseded)
	own.end(interrupted(time.Now(), "a pilot")) // does not replace that reason
	lineEqual(t, "a newer command's reason replaces the disarming's", own.endedBy, errSuperseded)
}

func TestWhoSupersedesWhom(t *testing.T) {
	// The answers: does newer end an older that is under way, and one that waits?
	for _, r := range []struct{ newer, older, inAir, onGround string }{
		{"set mode=manual", "goto altitude=20", "yes yes", "yes yes"},
		{"takeoff", "set mode=hold arm=true", "yes yes", "yes yes"},
		{"set arm=true", "takeoff", "yes yes", "yes yes"},
		{"land", "set mode=rtl", "no no", "no no"},
		{"set arm=true", "set arm=false", "no no", "no no"},
		{"set mode=rtl", "set mode=rtl", "no yes", "no yes"},
		{"set mode=rtgs", "set mode=rtl", "no no", "no no"},
		{"land lat=47 lon=8", "land lat=47 lon=8", "no yes", "no yes"},
		{"land lat=47 lon=8", "land lat=47 lon=9", "no no", "no no"},
		{"set mode=hold arm=false", "set mode=hold", "no no", "no no"},
		{"set arm=false", "land", "no no", "yes yes"},
		{"set arm=false", "set arm=false", "no yes", "yes yes"},
	} {
		c, newer := &commander{}, parseRequest(t, r.newer)
		newer.from = netip.MustParseAddr("192.168.1.23") // requests are equal whoever asks
		for range 2 {
			c.tasks = append(c.tasks, c.newTask(parseRequest(t, r.older), time.Time{}))
		}
		for grounded, want := range map[bool]string{false: r.inAir, true: r.onGround} {
			newest, got, v := c.newTask(newer, time.Time{}), "", view{}
			if grounded {
				v.landed = onGround
			}
			for _, older := range c.tasks { // the first is under way, the second waits
				got += map[bool]string{true: " yes", false: " no"}[newest.supersedes(older, v)]
			}
			lineEqual(t, fmt.Sprintf("%s after %s, on the ground %t", r.newer, r.older, grounded), got, " "+want)
		}
	}
}

// What waits until the drone is clear of the ground does not end the takeoff that brings it there.
func TestWhatWaitsForATakeoffDoesNotEndIt(t *testing.T) {
	near, clear := view{landed: onGround + 2}, view{landed: onGround + 2, ground: lastGround{clear: true}}
	for _, r := range []struct{ newer, older, near, clear string }{
		{"goto lat=47 lon=8", "takeoff", "no", "yes"},
		{"land lat=47 lon=8", "takeoff", "no", "yes"},
		{"goto lat=47 lon=8", "set mode=position arm=true", "no", "yes"},
		{"goto lat=47 lon=8", "goto lat=47 lon=9", "yes", "yes"},
		{"goto lat=47 lon=8", "set mode=position", "yes", "yes"},
		{"set mode=hold", "takeoff", "yes", "yes"},
		{"land", "takeoff", "yes", "yes"},
		{"takeoff", "takeoff", "yes", "yes"},
	} {
		c := &commander{}
		older, newer := c.newTask(parseRequest(t, r.older), time.Time{}), c.newTask(parseRequest(t, r.newer),
			time.Time{})
		c.tasks = []*task{older}
		newer.plan.steps = []step{{away: newer.request.verb == goesTo || newer.request.lat != nil}}
		ends := map[bool]string{true: "yes", false: "no"}
		lineEqual(t, r.newer+" ends "+r.older+", near the ground", ends[newer.supersedes(older, near)], r.near)
		lineEqual(t, r.newer+" ends "+r.older+", clear of it", ends[newer.supersedes(older, clear)], r.clear)
	}
}

// In the air a disarming is not sent.
func TestADisarmingEndsEverythingOnTheGroundAndNothingInTheAir(t *testing.T) {
	for _, aloft := range []bool{false, true} {
		onLine(t, beatOf(common.MAV_AUTOPILOT_ARDUPILOTMEGA, 5, true), func(t *testing.T, b *lineBench) {
			if aloft {
				b.inTheAir()
			} else {
				b.onTheGround()
			}
			landing := b.command(landHere)
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			b.obeys(5*time.Millisecond, 4*time.Millisecond)
			o := <-b.command(disarmIt)
			want, sends := codeSuperseded, 1
			if aloft {
				want, sends = errorCode(""), 0
				lineEqual(t, "code of the disarming", o.code(), codeRefused)
				lineEqual(t, "its error", fmt.Sprint(o.err), "arm: the vehicle is in the air; land first")
			} else {
				lineEqual(t, "error of the disarming", o.err, nil)
			}
			lineEqual(t, "code of the landing", (<-landing).code(), want)
			lineEqual(t, "disarmings sent", len(b.copiesSince(began, common.MAV_CMD_COMPONENT_ARM_DISARM)), sends)
		})
	}
}

func TestASpeedIsPartOfTheGotoThatItFollows(t *testing.T) {
	goTo, speed := plane.step(common.MAV_CMD_DO_REPOSITION), plane.step(common.MAV_CMD_DO_CHANGE_SPEED)
	hold := goTo
	hold.name = "the hold"
	for _, c := range []struct {
		sent  step
		steps []step
		want  string
	}{
		{speed, []step{goTo, speed}, "the goto"},
		{speed, []step{hold, speed}, "the hold"},
		{goTo, []step{goTo, speed}, "the goto"},
	} {
		x := &task{plan: plan{steps: c.steps}, command: &command{step: &c.sent}}
		lineEqual(t, "sent", x.sentName(), c.want)
	}
}
