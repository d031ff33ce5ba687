package main

import (
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// simWithSource flies in the air, with COM_RC_IN_MODE set.
func simWithSource(t *testing.T, mode float64, test func(*simBoard)) {
	t.Helper()
	simFlight(t, simPX4, func(s *simulator) { s.params[simStickSource] = mode }, func(b *simBoard) {
		time.Sleep(6 * time.Second)
		b.placeInAir(10)
		test(b)
	})
}

func TestPX4ChoosesWhoseSticksCount(t *testing.T) {
	const none, ours, theirs = "nobody's", "ours", "the transmitter's"
	tests := []struct {
		mode                                           float64
		oursAlone, theirsAlone, oursFirst, theirsFirst string
	}{
		{0, none, theirs, theirs, theirs},
		{1, ours, none, ours, ours},
		{2, ours, theirs, ours, theirs},
		{3, ours, theirs, ours, theirs},
		{4, none, none, none, none},
		{5, ours, theirs, theirs, theirs},
		{6, ours, theirs, ours, ours},
		{7, ours, theirs, theirs, theirs},
		{8, ours, theirs, ours, ours},
	}
	who := func(b *simBoard) string {
		b.simulator.mu.Lock()
		defer b.simulator.mu.Unlock()
		switch x, _, _, _ := b.brain.axes(); {
		case x > 0:
			return ours
		case x < 0:
			return theirs
		}
		return none
	}
	send := func(b *simBoard) { b.stick(time.Second, sim25Hz, 300, 0, 500, 0) }
	on := func(b *simBoard) { b.setReceiver(simReceiverInHand); b.pilotSticks(-300, 0, 500, 0) }
	for _, tt := range tests {
		check := func(what, want string, do ...func(*simBoard)) {
			simWithSource(t, tt.mode, func(b *simBoard) {
				for _, f := range do {
					f(b)
				}
				if got := who(b); got != want {
					t.Errorf("COM_RC_IN_MODE %v, %s: %q, want %q", tt.mode, what, got, want)
				}
			})
		}
		second := func(*simBoard) { time.Sleep(time.Second) }
		check("ours alone", tt.oursAlone, send)
		check("theirs alone", tt.theirsAlone, on, second)
		check("ours first", tt.oursFirst, send, on, send)
		check("theirs first", tt.theirsFirst, on, second, send)
	}
	simWithSource(t, 3, func(b *simBoard) {
		send(b)
		on(b)
		time.Sleep(5 * time.Second) // ours are silent
		b.want("locked for this boot", who(b), ours)
		b.reboot(true)
		time.Sleep(time.Second)
		b.want("after a restart", who(b), theirs)
	})
	simWithSource(t, 2, func(b *simBoard) {
		send(b)
		on(b)
		time.Sleep(time.Second)
		b.want("2 falls back when ours are lost", who(b), theirs)
		send(b)
		b.want("and stays there", who(b), theirs)
	})
}

func TestPX4TransmitterFliesAndTakesOver(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.want("POSCTL without any sticks", b.setMode(simPX4Posctl), simResults(simAccepted, simRejected))
		b.setReceiver(simReceiverInHand)
		time.Sleep(2 * time.Second)
		b.want("a transmitter that comes on takes nothing", b.truth().mode, uint32(simPX4Loiter))
		b.pilotSticks(199, 0, 500, 0)
		time.Sleep(200 * time.Millisecond)
		b.want("a small move", b.truth().mode, uint32(simPX4Loiter))
		time.Sleep(2 * time.Second)
		b.pilotSticks(500, 0, 500, 0)
		time.Sleep(100 * time.Millisecond)
		b.want("a move", b.truth().mode, uint32(simPX4Posctl))
		time.Sleep(4 * time.Second)
		b.near("its sticks fly", b.truth().vn, 2.5, 0.1)
		b.pilotSticks(0, 0, 500, 0)
		time.Sleep(3 * time.Second)
		b.setMode(simPX4Loiter)
		time.Sleep(3 * time.Second)
		b.setReceiver(simReceiverLost)
		b.until("failsafe", time.Second, func(s simState) bool { return s.failsafe })
		b.want("hold", b.truth().mode, uint32(simPX4Loiter))
	})
	simOnPX4InAir(t, func(b *simBoard) { // 3: ours came first
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.setReceiver(simReceiverInHand)
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.pilotSticks(1000, 0, 500, 0)
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		b.want("a locked-out transmitter", b.truth().mode, uint32(simPX4Loiter))
	})
}

func TestPX4TellsRCChannelsOnlyWithATransmitter(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		b.want("interval", b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 65, 1e6), simResults(simAccepted))
		b.forget()
		b.stick(3*time.Second, sim25Hz, 0, 0, 0, 0)
		b.want("with our sticks", b.count(65), 0)
		b.want("asked for", b.long(common.MAV_CMD_REQUEST_MESSAGE, 65), simResults(simDenied))
		b.setReceiver(simReceiverIdle)
		m := simLast[*common.MessageRcChannels](b)
		b.want("throttle of an idle one", m.Chan3Raw, uint16(1000))
		b.pilotSticks(1000, -1000, 500, 0)
		m = simLast[*common.MessageRcChannels](b)
		b.want("pitch, roll and throttle", [3]uint16{m.Chan2Raw, m.Chan1Raw, m.Chan3Raw}, [3]uint16{2000, 1000, 1500})
		b.setReceiver(simReceiverLost)
		b.forget()
		time.Sleep(3 * time.Second)
		b.want("when it is lost", b.count(65), 0)
	})
}

func TestPX4AnOrderIsNoPardonBeforeTheFailsafe(t *testing.T) {
	simOnPX4InAir(t, func(b *simBoard) {
		b.stick(time.Second, sim25Hz, 0, 0, 500, 0)
		time.Sleep(450 * time.Millisecond)
		b.setMode(simPX4Loiter) // between the last stick and its failsafe
		b.until("failsafe", time.Second, func(s simState) bool { return s.failsafe })
	})
}

func TestPX4AStreamOfNoThrottleMayGrabTheModeOnTheGround(t *testing.T) {
	grabbed := 0
	simFlight(t, simPX4, nil, func(b *simBoard) {
		for range 60 {
			b.reboot(false)
			time.Sleep(6 * time.Second)
			b.stick(500*time.Millisecond, sim25Hz, 0, 0, 0, 0)
			if b.truth().mode == simPX4Posctl {
				grabbed++
				time.Sleep(time.Second)
				b.want("arm after the stream", b.long(simArm, 1), simResults(simRejected))
				b.setMode(simPX4Loiter)
			}
			b.want("arm in LOITER", b.long(simArm, 1), simResults(simAccepted))
		}
		if grabbed < 25 || grabbed > 55 {
			t.Errorf("%d of 60 boots, want two in three", grabbed)
		}
		b.reboot(false)
		time.Sleep(6 * time.Second)
		b.stick(500*time.Millisecond, sim25Hz, 0, 0, 500, 0)
		b.want("with the throttle centred", b.truth().mode, uint32(simPX4Loiter))
	})
}
