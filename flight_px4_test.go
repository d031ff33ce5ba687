package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// These flights repeat what flights with PX4's own firmware showed. flight_test.go explains the words.

// stationBeats checks how many heartbeats mavrest sent as a ground station.
func (p *player) stationBeats(least, most int) string {
	n := 0
	for _, r := range p.sim.received()[p.seen:] {
		if hb, ok := r.msg.(*minimal.MessageHeartbeat); ok && hb.Type == minimal.MAV_TYPE_GCS {
			n++
		}
	}
	if n < least || n > most {
		return fmt.Sprintf("%d heartbeats as a ground station, want %d to %d", n, least, most)
	}
	return ""
}

func TestAVersionThatWasNeverFlownIsLoggedOnce(t *testing.T) {
	for v, want := range map[uint32]int{1<<24 | 13<<16: 1, 1<<24 | 14<<16: 0, 1<<24 | 17<<16 | 5<<8: 0, 1<<24 |
		18<<16: 1} {
		fly(t, simPX4, func(s *simulator) { s.version = v }, func(f *flight) {
			before := len(f.diary.logged())
			f.sim.reboot(false)
			time.Sleep(20 * time.Second)
			log := strings.Join(f.diary.logged()[before:], "\n")
			if n := strings.Count(log, "never flown on this version"); n != want {
				f.Errorf("%#x is logged %d times, want %d", v, n, want)
			}
		})
	}
}

var px4PilotModes = []uint32{
	simPX4Manual, simPX4Altctl, simPX4Posctl, simPX4Loiter, simPX4RTL, simPX4Land, simPX4Stabilized,
}

// px4Visits returns PX4's moments, except those that a test leaves out.
func px4Visits(leaveOut func(m moment) bool) (visits []visit) {
	for _, m := range moments {
		if m.px4 != "" && (leaveOut == nil || !leaveOut(m)) {
			visits = append(visits, visit{moment: m})
		}
	}
	return visits
}

// px4Takeover lets somebody other than the client set a mode. It checks what follows while no
// client asks for anything.
func (p *player) px4Takeover(custom uint32, m moment, setMode func()) {
	p.Helper()
	before, streaming := p.streamed()
	began := time.Now()
	setMode()
	at := p.reported(custom, began, 1100*time.Millisecond)
	p.plays("truth")
	soon := time.Millisecond
	if m.waiting { // the command waits for the vehicle to follow its last step
		soon = showWithin + time.Millisecond
	}
	p.plays("no input")
	p.wantAnswer(soon+takenAfter, "interrupted")
	if done := p.status()["done"]; done != nil {
		p.Errorf("done is %v", done)
	}
	time.Sleep(12 * time.Second)
	p.wantHandsOff(at)
	p.plays("truth")
	if !streaming {
		p.wantStream(at.Add(time.Millisecond), nil)
		return
	}
	want := before // unmoved where no sticks fly
	if mode, _ := px4.reported(custom); mode == ModeManual {
		want = axes{z: before.z} // centred, except for the throttle
	} else if mode.flownBySticks() {
		want = axes{z: 500}
	}
	p.wantStream(at.Add(time.Millisecond), &want)
}

func TestPX4PilotsSwitchIsATakeoverAtEveryMoment(t *testing.T) {
	var cases []visit
	for _, custom := range px4PilotModes {
		for _, v := range px4Visits(func(m moment) bool {
			return slices.Contains(m.explained, custom) || slices.Contains(m.undone, custom)
		}) {
			v.custom = custom
			cases = append(cases, v)
		}
	}
	some := sampled(t, cases, len(cases)/3, func(v visit) any { return v.name },
		func(v visit) any { return [2]any{v.mode, v.custom} })
	atMoments(t, simPX4, some, nil, func(p *player, v visit) {
		p.px4Takeover(v.custom, v.moment, func() { p.sim.pilotMode(v.custom) })
	})
}

// A pilot who sets the commanded mode, or the mode before it, looks like the command itself. So
// the command goes on.
func TestPX4PilotsSwitchToTheCommandedModeEndsNothing(t *testing.T) {
	for _, custom := range px4PilotModes {
		_, name := px4.reported(custom)
		t.Run(name, func(t *testing.T) {
			visits := px4Visits(func(m moment) bool { return !slices.Contains(m.explained, custom) })
			atMoments(t, simPX4, visits, nil, func(p *player, m visit) {
				p.sim.pilotMode(custom)
				p.wantAnswer(5*time.Minute, "any")
				code := p.answer["code"] // nil: accepted
				pilotsMode, _ := px4.reported(custom)
				// the pilot's mode replaced the acknowledged one
				neverEntered := m.acked && pilotsMode.String() != m.mode
				neverArmed := m.disarmed && custom != simPX4Loiter // a takeoff arms in AUTO.LOITER
				switch {
				case neverEntered || neverArmed:
					if code == nil {
						p.Errorf("answered %v", p.answer)
					}
					p.plays("truth")
					return
				case code == "interrupted" && strings.HasSuffix(m.name, "before POSCTL is in force"):
					p.plays("truth") // CURRENT_MODE had shown the commanded mode
					return
				case code != nil:
					p.Errorf("answered %v", p.answer)
				}
				commanded, _ := parseMode(m.mode)
				if commanded.flownBySticks() && custom == entered[px4][commanded] {
					time.Sleep(1100 * time.Millisecond) // a silent client's hold comes later
					p.wantMode(m.mode)
					return
				}
				time.Sleep(followTime + 2*time.Second) // until mavrest gives up the command that the pilot undid
				if m.waiting && p.sim.truth().mode == custom {
					p.plays("truth")
				} else {
					p.wantMode(m.mode)
				}
			})
		})
	}
}

func TestPX4FailsafeIsATakeoverAtEveryMoment(t *testing.T) {
	visits := px4Visits(func(m moment) bool {
		return m.disarmed || slices.Contains(m.undone, simPX4RTL) || m.waiting &&
			slices.Contains(m.explained, simPX4RTL)
	})
	atMoments(t, simPX4, visits, nil, func(p *player, m visit) {
		p.px4Takeover(simPX4RTL, m.moment, p.sim.failsafeReturn)
		if o := p.status(); o["failsafe"] != o["armed"] {
			p.Errorf("failsafe is %v", o["failsafe"])
		}
	})
}

// After a restart in flight no earlier command is in force.
func TestPX4RestartEndsEverythingAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Visits(nil), nil, func(p *player, m visit) {
		p.sim.reboot(true)
		time.Sleep(200 * time.Millisecond)
		at := time.Now()
		p.wantAnswer(showWithin, "interrupted")
		if m.disarmed {
			p.wantMode("manual")
		} else {
			p.plays("truth")
			p.plays("no input")
		}
		time.Sleep(12 * time.Second)
		p.wantHandsOff(at)
		p.wantStream(at, nil)
	})
}

// A pilot moves his transmitter's sticks in a mode that flies without sticks. PX4 then sets POSCTL.
func TestPX4TransmittersSticksAreATakeoverAtEveryMoment(t *testing.T) {
	hand := func(s *simulator) {
		s.params[simStickSource] = 5
		s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0}
	}
	visits := px4Visits(func(m moment) bool {
		mode, _ := parseMode(m.mode)
		return m.waiting || mode.flownBySticks() || m.silent
	})
	atMoments(t, simPX4, visits, hand, func(p *player, m visit) {
		p.px4Takeover(simPX4Posctl, m.moment, func() { p.sim.pilotSticks(600, 0, 500, 0) })
	})
}

// Arming ends no manoeuvre. It supersedes commands that are not answered yet, except for a
// landing, a return and a hold. A disarming in the air is refused and ends nothing.
func TestPX4SecondClientsArmingEndsOnlyUnansweredCommands(t *testing.T) {
	for _, c := range []struct {
		name    string
		command func(p *player)
	}{
		{"arming", func(p *player) { p.accepted("/mode", `{"arm":true}`) }},
		{"refused disarming", func(p *player) { p.refused("/mode", `{"arm":false}`, 409, "refused") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			visits := px4Visits(func(m moment) bool {
				return m.disarmed || m.name == "takeoff, armed and on the ground" || // a disarming is accepted there
					m.name == "goto, between its ack and its mode" // the goto is answered before the arming's turn
			})
			atMoments(t, simPX4, visits, nil, func(p *player, m visit) {
				c.command(p)
				urgent := slices.Contains([]string{"hold", "land", "rtl"}, strings.Fields(m.name)[0])
				switch {
				case m.waiting && c.name == "arming" && !urgent:
					p.wantAnswer(giveUp, "superseded")
					time.Sleep(7 * time.Second)
					p.plays("truth")
				case m.silent:
					time.Sleep(7 * time.Second)
					p.wantMode("hold")
				default:
					if !m.waiting {
						p.wantMode(m.mode)
					}
					p.wantAnswer(5*time.Minute, "")
					p.wantMode(m.mode)
				}
			})
		})
	}
}

// For 5 s the vehicle is not heard. It goes on with its manoeuvre. When it is heard again mavrest sends
// only the landing of a vehicle that has come to its place. A silent client gets no hold.
func TestPX4LostLinkAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Visits(nil), nil, func(p *player, m visit) {
		began := time.Now()
		p.sim.change(func() { p.sim.muted = true })
		time.Sleep(5 * time.Second)
		if p.status()["online"] != false {
			p.Error("still online")
		}
		p.sim.change(func() { p.sim.muted = false })
		if list := commandsOf(p.since(began)); len(list) > 0 {
			p.Errorf("sent to a vehicle that is not heard: %q", list)
		}
		back := time.Now()
		time.Sleep(1100 * time.Millisecond)
		if list := commandsOf(p.since(back)); len(list) > 0 && m.name != "land at a place, at the place" {
			p.Errorf("sent after the vehicle was heard again: %q", list)
		}
		switch {
		case m.acked: // an ack alone is no answer
			p.wantAnswer(time.Millisecond, "no_ack")
			p.wantMode(m.mode)
		case m.waiting:
			p.wantAnswer(time.Millisecond, "no_ack")
			if p.sim.truth().armed { // if disarmed, the first report changes nothing (docs/design.md, rule 1)
				p.plays("truth")
			}
		case m.silent:
			p.wantMode("position")
		default:
			p.wantMode(m.mode)
			p.wantAnswer(5*time.Minute, "") // its client still waits
		}
	})
}
