package main

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// Whole flights with somebody else beside the client: a pilot, a failsafe, a
// restart, a lost link, a second client. A moment is where the client's command
// is when it happens; flight_pilot_px4_test.go and flight_pilot_ardupilot_test.go
// have the tables of them.
//
// The invariant of all: after a report that no command of ours explains, nothing
// is sent that commands or moves the vehicle until a client asks again, but for
// a stream that is centred, parked unmoved or released.

// pilotFlight is a flight with a client's command under way.
type pilotFlight struct {
	*flight
	order *pilotOrder // nil: none waits, nor is watched
}

// pilotOrder is a command that a client waits for.
type pilotOrder struct {
	ended chan struct{}
	at    time.Time // when the answer came
	code  int
	body  object
}

// moment brings a flight to a moment of a manoeuvre.
type moment struct {
	name  string
	bring func(p *pilotFlight)
	mode  string // that the flight has or comes to where nothing ends the command

	explained []uint32 // modes that nobody can tell from what was commanded
	waiting   bool     // the command is not answered yet
	acked     bool     // nor shown, but acknowledged
	silent    bool     // the command is mavrest's own, for a silent client
	disarmed  bool     // the vehicle stands on the ground, and is not armed yet
	without   []uint32 // modes that the vehicle itself does not stay in here
}

// post sends a command and does not wait for its answer.
func (p *pilotFlight) post(path, body string) {
	o := &pilotOrder{ended: make(chan struct{})}
	p.order = o
	go func() {
		o.code, o.body = p.call("POST", path, body)
		o.at = time.Now()
		close(o.ended)
	}()
}

// answered waits for the command's answer.
func (p *pilotFlight) answered(limit time.Duration) *pilotOrder {
	p.Helper()
	select {
	case <-p.order.ended:
	case <-time.After(limit):
		p.Fatalf("no answer in %v; status %v", limit, p.status())
	}
	return p.order
}

// wantAnswer checks how the command was answered; code "" is accepted.
func (p *pilotFlight) wantAnswer(limit time.Duration, code string) {
	p.Helper()
	if p.order == nil {
		return
	}
	if o := p.answered(limit); fmt.Sprint(o.body["code"]) != code && (code != "" || o.code != 200) {
		p.Errorf("answered %d %v, want %q", o.code, o.body, code)
	}
}

// acked waits until so many acks of a command went out from now on, and then a
// while.
func (p *pilotFlight) acked(id common.MAV_CMD, n int, begin func(), then time.Duration) {
	p.Helper()
	came := make(chan struct{})
	p.acks(id, func(a *common.MessageCommandAck) []simAnswer {
		if n--; n == 0 {
			close(came)
		}
		return []simAnswer{{ack: a}}
	})
	begin()
	select {
	case <-came:
	case <-time.After(30 * time.Second):
		p.Fatalf("no ack of %v; status %v", id, p.status())
	}
	time.Sleep(then)
}

// report is the last report that came, and when.
func (f *flight) report() (custom uint32, armed bool, at time.Time) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	b := &f.link.tel.beat
	return b.custom, b.armed, b.at
}

// reported waits until a heartbeat shows a mode, and tells when it came.
func (f *flight) reported(custom uint32, since time.Time, limit time.Duration) time.Time {
	f.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		if c, _, at := f.report(); c == custom && at.After(since) {
			return at
		}
		if time.Now().After(end) {
			f.Fatalf("no heartbeat shows %#x within %v; truth %+v", custom, limit, f.sim.truth())
		}
	}
}

// commandsSince lists what commanded the vehicle from a time on.
func (f *flight) commandsSince(since time.Time) (list []string) {
	for _, r := range f.sim.received() {
		if r.at.Before(since) {
			continue
		}
		var id common.MAV_CMD
		switch m := r.msg.(type) {
		case *common.MessageCommandLong:
			id = m.Command
		case *common.MessageCommandInt:
			id = m.Command
		case *common.MessageSetMode:
			list = append(list, "SET_MODE")
			continue
		default:
			continue
		}
		if id != common.MAV_CMD_SET_MESSAGE_INTERVAL && id != common.MAV_CMD_REQUEST_MESSAGE {
			list = append(list, fmt.Sprintf("%v %v after", id, r.at.Sub(since)))
		}
	}
	return list
}

// stream lists the different axes that were streamed from a time on, in their
// order.
func (f *flight) stream(since time.Time) (list []axes) {
	for _, r := range f.sticksSince(since) {
		m := r.msg.(*common.MessageManualControl)
		a := axes{m.X, m.Y, m.Z, m.R}
		if len(list) == 0 || list[len(list)-1] != a {
			list = append(list, a)
		}
	}
	return list
}

// streamed are the axes that were streamed last; ok: less than 0.2 s ago.
func (f *flight) streamed() (last axes, ok bool) {
	list := f.stream(time.Now().Add(-200 * time.Millisecond))
	if len(list) == 0 {
		return last, false
	}
	return list[len(list)-1], true
}

// wantHandsOff checks the invariant from a time on.
func (f *flight) wantHandsOff(since time.Time) {
	f.Helper()
	if list := f.commandsSince(since); len(list) > 0 {
		f.Errorf("commanded after somebody else took the drone: %q", list)
	}
}

// wantStream checks that nothing but these axes was streamed, without a gap that
// PX4 would call a loss; nil: nothing at all.
func (f *flight) wantStream(since time.Time, want *axes) {
	f.Helper()
	got := f.stream(since)
	switch {
	case want == nil && len(got) > 0:
		f.Errorf("streamed %v, want nothing", got)
	case want != nil && !slices.Equal(got, []axes{*want}):
		f.Errorf("streamed %v, want %v alone", got, *want)
	}
	for last := since; want != nil; {
		for _, r := range f.sticksSince(since) {
			if gap := r.at.Sub(last); gap > 200*time.Millisecond {
				f.Errorf("a gap of %v in the stream", gap)
			}
			last = r.at
		}
		return
	}
}

// wantTruth checks that mode and vehicle_mode are the vehicle's own.
func (f *flight) wantTruth() {
	f.Helper()
	mode, name := f.firmware.reported(f.sim.truth().mode)
	if _, o := f.call("GET", "/mode", ""); o["mode"] != mode.String() || o["vehicle_mode"] != name {
		f.Errorf("mode is %v, vehicle_mode %v; the vehicle is in %s (%s)", o["mode"], o["vehicle_mode"], name, mode)
	}
}

// wantNoInput checks that the client can't move the sticks.
func (f *flight) wantNoInput() {
	f.Helper()
	f.refused("/input", `{"pitch":1,"throttle":0.5}`, 409, "wrong_mode")
}

// speed is how fast the vehicle really is, over ground.
func (f *flight) speed() float64 {
	s := f.sim.truth()
	return math.Hypot(s.vn, s.ve)
}

// atMoments flies to each moment and has something happen there.
func atMoments(t *testing.T, flavour simFlavour, moments []moment, prepare func(*simulator), happens func(p *pilotFlight, m moment)) {
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			fly(t, flavour, prepare, func(f *flight) {
				p := &pilotFlight{flight: f}
				m.bring(p)
				happens(p, m)
				if p.order != nil {
					p.answered(10 * time.Minute)
				}
			})
		})
	}
}

// silentHoldIsRefused flies a copter whose client fell silent, to 60 ms after the
// refusal of the hold that mavrest asked for.
func silentHoldIsRefused(f *flight) {
	f.aloft()
	f.accepted("/mode", `{"mode":"altitude"}`)
	f.accepted("/input", `{"pitch":0.3}`)
	f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true })
	time.Sleep(4 * time.Second)
	f.until("the hold was sent", 10*time.Second, func() bool {
		return len(f.commandsSince(time.Now().Add(-50*time.Millisecond))) > 0
	})
	time.Sleep(60 * time.Millisecond)
}

func TestARefusedHoldForASilentClientIsNoLandingOverAPilot(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		silentHoldIsRefused(f)
		f.sim.pilotMode(16) // POSHOLD
		f.sim.change(func() { f.sim.send(f.sim.brain.message(0)) })
		taken := f.reported(16, time.Now().Add(-time.Millisecond), 200*time.Millisecond)
		f.wantMode("position")
		time.Sleep(10 * time.Second)
		f.wantHandsOff(taken)
	})
}

func TestARefusedHoldForASilentClientIsNoLandingOverANewCommand(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		silentHoldIsRefused(f)
		f.accepted("/goto", "{"+at(60, 0)+"}")
		time.Sleep(time.Millisecond) // the goto's own heading
		since := time.Now()
		time.Sleep(5 * time.Second)
		f.wantHandsOff(since)
		f.wantMode("hold")
	})
}

func TestAHoldForASilentClientIsNotSentOverAPilotWhoWasFirst(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3}`)
		time.Sleep(4500 * time.Millisecond)
		d := f.link
		f.sim.pilotMode(16)
		d.mu.Lock()
		since := time.Now()
		d.sticks.tick(d.sticks.facts(since.Add(time.Second))) // as drone.tick does, half a second early
		owed := d.sticks.act() && d.cmd.idle()
		d.wg.Go(d.conduct.holdForSilent)
		// The reader has the mutex before that goroutine.
		d.take(&minimal.MessageHeartbeat{
			Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA,
			BaseMode: 0xd9, CustomMode: 16, SystemStatus: minimal.MAV_STATE_ACTIVE,
		}, since)
		taken := d.sticks.taken
		d.mu.Unlock()
		if !owed || !taken {
			t.Fatalf("the hold is owed: %v, the pilot has the sticks: %v", owed, taken)
		}
		time.Sleep(5 * time.Second)
		f.wantHandsOff(since)
	})
}

func TestTheFarewellIsNotRepeatedOverAPilot(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
		time.Sleep(time.Second)
		f.loseAcks(common.MAV_CMD_DO_SET_MODE)
		f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = true }) // the first copy is lost
		stopping := time.Now()
		f.stop()
		time.Sleep(80 * time.Millisecond)
		if len(f.commandsSince(stopping)) == 0 {
			t.Fatal("no farewell was sent")
		}
		f.sim.change(func() { f.sim.refuses[common.MAV_CMD_DO_SET_MODE] = false })
		f.sim.pilotMode(16)
		f.sim.change(func() { f.sim.send(f.sim.brain.message(0)) })
		since := time.Now()
		time.Sleep(3 * time.Second)
		f.wantHandsOff(since)
	})
}

func TestTheFarewellIsNotSentOverAPilotWhomNoHeartbeatHasTold(t *testing.T) {
	fly(t, simArduPilot, nil, func(f *flight) {
		f.aloft()
		f.accepted("/mode", `{"mode":"altitude"}`)
		f.accepted("/input", `{"pitch":0.3,"timeout":5}`)
		time.Sleep(time.Second)
		since := time.Now()
		f.sim.pilotMode(16)
		f.stop()
		time.Sleep(3 * time.Second)
		f.wantHandsOff(since)
	})
}
