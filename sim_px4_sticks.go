package main

import (
	"math"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Times of PX4's stick handling (docs/autopilots.md, "Sticks: MANUAL_CONTROL").
const (
	simStickGap    = 450 * time.Millisecond  // a gap this long ends the stream: 2.5 Hz passes, 2 Hz doesn't
	simStickProof  = 250 * time.Millisecond  // a stream this long counts
	simStickLoss   = 150 * time.Millisecond  // after the gap: the failsafe, 0.6 s after the last stick
	simStickMoving = 1600 * time.Millisecond // a change counts as moving for so long
	simStickStep   = 200                     // counts of ±1000 that are a change
	simTakeOver    = 16 * time.Millisecond   // 30 ms after the ack that it undoes
)

// simPX4Sticks is what PX4 knows of sticks.
type simPX4Sticks struct {
	mavlink     simStickStream
	transmitter simStickStream
	source      *simStickStream // whose sticks count; nil before any
	seen        bool            // they came in this flight
	lostAt      time.Time       // they ended, while they were needed
	takingAt    time.Time       // a take-over is under way until then
	grabs       bool            // in this boot a stream with z = 0 makes LOITER POSCTL
	grabbed     bool            // this stream did, or came too late to
}

// simStick is a MANUAL_CONTROL as it came: x, y, z, r.
type simStick struct {
	at   time.Time
	axis [4]int16
}

// simStickStream is one source of sticks.
type simStickStream struct {
	window []simStick // the last 1.6 s, and what was in force at their start
	since  time.Time  // it runs without a gap since then
}

func (s *simStickStream) add(now time.Time, axis [4]int16) {
	if n := len(s.window); n == 0 || now.Sub(s.window[n-1].at) > simStickGap {
		s.window, s.since = nil, now
	}
	s.window = append(s.window, simStick{now, axis})
	for len(s.window) > 1 && now.Sub(s.window[1].at) >= simStickMoving {
		s.window = s.window[1:]
	}
}

// axis returns an axis as it was last heard; centred before that.
func (s *simStickStream) axis(i int) int16 {
	if s == nil || len(s.window) == 0 {
		return [...]int16{0, 0, 500, 0}[i]
	}
	return s.window[len(s.window)-1].axis[i]
}

// live tells whether sticks come, often enough and long enough.
func (s *simStickStream) live() bool {
	if s == nil || len(s.window) == 0 {
		return false
	}
	return time.Since(s.window[len(s.window)-1].at) <= simStickGap && time.Since(s.since) >= simStickProof
}

// moving tells whether an axis changed by 200 or more within the last 1.6 s,
// at once or little by little. A constant value never moves.
func (s *simStickStream) moving() bool {
	for axis := range 4 {
		low, high := int16(math.MaxInt16), int16(math.MinInt16)
		for i, st := range s.window {
			if i+1 < len(s.window) && time.Since(s.window[i+1].at) >= simStickMoving {
				continue // was over before
			}
			low, high = min(low, st.axis[axis]), max(high, st.axis[axis])
		}
		if int(high)-int(low) >= simStickStep {
			return true
		}
	}
	return false
}

// sticks takes a MANUAL_CONTROL, whoever sent it. An axis out of range stays
// as it was.
func (b *simPX4Brain) sticks(_ uint8, m *common.MessageManualControl) {
	if m.Target != b.system {
		return
	}
	axis := [4]int16{m.X, m.Y, m.Z, m.R}
	for i, v := range axis {
		if v < -1000 || v > 1000 || i == 2 && v < 0 {
			axis[i] = b.mavlink.axis(i)
		}
	}
	b.mavlink.add(time.Now(), axis)
	b.choose()
	b.watch()
}

// choose says whose sticks count, by COM_RC_IN_MODE.
func (b *simPX4Brain) choose() {
	prefer := func(first, second *simStickStream) {
		switch {
		case first.live():
			b.source = first
		case second.live():
			b.source = second
		}
	}
	switch mode, ok := b.params[simStickSource]; {
	case ok && mode == 0:
		prefer(&b.transmitter, nil)
	case mode == 1:
		prefer(&b.mavlink, nil)
	case mode == 2: // the present one until it is lost
		if !b.source.live() {
			prefer(&b.transmitter, &b.mavlink)
		}
	case mode == 4:
		b.source = nil
	case mode == 5 || mode == 7:
		prefer(&b.transmitter, &b.mavlink)
	case mode == 6 || mode == 8:
		prefer(&b.mavlink, &b.transmitter)
	case b.source == nil: // 3: the first until the next boot
		prefer(&b.transmitter, &b.mavlink)
	}
}

func (b *simPX4Brain) streaming() bool { return b.source.live() }

func (b *simPX4Brain) stick(axis int) int16 { return b.source.axis(axis) }

func (b *simPX4Brain) axes() (x, y, z, r float64) {
	return float64(b.stick(0)) / 1000, float64(b.stick(1)) / 1000, float64(b.stick(2)) / 1000, float64(b.stick(3)) / 1000
}

func (b *simPX4Brain) stepSticks() {
	now := time.Now()
	if b.receiver.live() {
		b.transmitter.add(now, b.rc)
	}
	b.choose()
	b.grab()
	switch comingDown := b.mode == simPX4Land || b.mode == simPX4RTL; {
	case !b.armed || b.failsafe || comingDown:
		b.lostAt = time.Time{}
	case b.streaming():
		b.seen, b.lostAt = true, time.Time{}
	case !b.seen:
	case b.lostAt.IsZero():
		b.lostAt = now
	case now.Sub(b.lostAt) >= simStickLoss-simTick:
		b.failSafe(simPX4RTL)
		b.seen, b.lostAt = false, time.Time{}
	}
	b.watch()
}

// watch sees sticks that move in an AUTO mode; one that is acknowledged and
// not in force yet does not help. Sticks that come back don't end a failsafe,
// nor do they take over.
func (b *simPX4Brain) watch() {
	now := time.Now()
	if !b.armed || b.failsafe || !simPX4IsAuto(b.mode) || now.Before(b.takingAt) || !b.streaming() || !b.source.moving() {
		return
	}
	b.takingAt = now.Add(simTakeOver)
	b.after(simTakeOver, func() {
		if b.armed && !b.failsafe {
			b.text(common.MAV_SEVERITY_INFO, "Pilot took over using sticks")
			b.enter(simPX4Posctl)
		}
	})
}

// grab is the oddity of some boots: a stream with z = 0 that starts while it is
// disarmed in AUTO.LOITER makes it POSCTL.
func (b *simPX4Brain) grab() {
	if !b.mavlink.live() {
		b.grabbed = false
		return
	}
	if b.grabs && !b.grabbed && !b.armed && b.source == &b.mavlink && b.mode == simPX4Loiter && b.stick(2) == 0 {
		b.enter(simPX4Posctl)
	}
	b.grabbed = true
}
