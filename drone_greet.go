package main

import (
	"slices"
	"sync"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

const (
	greetAgain = 5 * time.Second // after a greeting that was not answered
	forgetful  = 5 * time.Second // without an attitude: the autopilot has forgotten the streams
)

// stream is a message asked for by SET_MESSAGE_INTERVAL, in Hz.
type stream struct {
	id uint32
	hz float32
}

// streams take 1,500 bytes a second at most, under half of a link at 57600 baud.
var streams = []stream{
	{33, 10},   // GLOBAL_POSITION_INT
	{30, 10},   // ATTITUDE
	{245, 4},   // EXTENDED_SYS_STATE
	{74, 4},    // VFR_HUD
	{24, 2},    // GPS_RAW_INT
	{1, 2},     // SYS_STATUS
	{242, 0.5}, // HOME_POSITION
}

// greeting is what a vehicle is asked when it comes online or has started again:
// the streams, what it sends only once, and its parameters.
type greeting struct {
	craft  *aircraft
	params *parameters
	cmd    *commander
	clock  *clock
	wg     *sync.WaitGroup // of its goroutine

	running bool
	left    []stream  // not acknowledged yet
	again   bool      // it should begin anew
	met     time.Time // when one began
	retry   time.Time // when an unanswered one begins anew
}

// begin greets the vehicle: it is asked everything. What it told of its parameters
// counts until it tells them anew.
func (g *greeting) begin() {
	channels := stream{65, 1} // RC_CHANNELS: PX4's show only that there is a transmitter
	if g.craft.firmware.ardupilot() {
		channels.hz = 4 // whose sticks are in force
	}
	g.left = append(slices.Clone(streams), channels)
	g.again = true
	g.start()
}

func (g *greeting) start() {
	if g.running || g.cmd.stopped {
		return
	}
	g.running, g.met = true, time.Now()
	g.wg.Go(g.run)
}

// tick asks again what was not answered, greets a vehicle that has forgotten the
// streams, and tells when it is to be called next.
func (g *greeting) tick(now time.Time) time.Time {
	if g.running || !g.craft.online {
		return time.Time{}
	}
	if !g.retry.IsZero() && !now.Before(g.retry) {
		g.again = true
		g.start()
		return time.Time{}
	}
	// An autopilot that started again within 3 s has forgotten the streams; another
	// program may have ended one.
	silent := func(g group) bool { return !g.at.IsZero() && now.Sub(g.at) > forgetful }
	tel := &g.craft.tel
	asked := []group{tel.attitude.group, tel.position.group, tel.landed.group, tel.battery.group}
	if slices.ContainsFunc(asked, silent) && now.Sub(g.met) > 2*forgetful {
		g.begin()
		return time.Time{}
	}
	return g.retry
}

// run asks everything that is left, and again what was not answered.
func (g *greeting) run() {
	g.cmd.mu.Lock()
	defer g.cmd.mu.Unlock()
	defer func() { g.running = false }()
	for g.again && g.craft.online && !g.cmd.stopped {
		g.again, g.retry = false, time.Time{}
		g.ask()
		if len(g.left) > 0 && !g.again {
			g.retry = time.Now().Add(greetAgain)
			g.clock.poke()
		}
	}
}

// ask asks what is left, until something else is to be asked.
func (g *greeting) ask() {
	t := &talk{by: g.cmd}
	names := g.params.names()
	for _, name := range names {
		g.params.request(name)
	}
	for _, s := range slices.Clone(g.left) {
		interval := g.craft.firmware.command(common.MAV_CMD_SET_MESSAGE_INTERVAL, float32(s.id), 1e6/s.hz)
		_, err := t.transact(&interval)
		if g.again || !g.craft.online || g.cmd.stopped {
			return
		}
		if err == nil {
			g.left = slices.DeleteFunc(g.left, func(o stream) bool { return o == s })
		}
	}
	for _, id := range []uint32{242, 148} { // HOME_POSITION, AUTOPILOT_VERSION
		for range 3 {
			if g.message(t, id) {
				break
			}
		}
	}
	for _, name := range names {
		g.params.sure(t, name)
	}
}

// message asks for a message once and waits for it.
func (g *greeting) message(t *talk, id uint32) bool {
	a := g.cmd.acks
	t.await(time.Now().Add(paramWait), func() bool { return a.question == nil })
	q := a.ask(id, time.Now())
	return q != nil && t.await(q.until, func() bool { return q.answer }) == nil
}
