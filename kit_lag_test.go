package main

import (
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// lateLine is a line of which the truth is known: what leaves the vehicle comes later, in the same order.
type lateLine struct {
	// takes is how long a message takes that leaves the vehicle at a time since the start; nil: no time.
	takes func(since time.Duration) time.Duration

	// up is how long a question takes.
	up time.Duration

	// mute: the vehicle answers no question
	mute bool

	// clock is what the boot clock shows, in ms; nil: the time since the start.
	clock func(since time.Duration) uint32

	// lost: what leaves from the first to the second is lost; unclocked: no clock leaves meanwhile.
	lost, unclocked [2]time.Duration

	// moves is when the vehicle is heard by another way: what was under way by the old one is lost.
	moves time.Duration

	// from is when the first message is judged where it is not 5 s, and lasts how long the line is watched where 40 s
	// are too short.
	from, lasts time.Duration

	// position: the clock is that of the position
	position bool

	// stands: the program stands still from the first to the second; what comes meanwhile is read at the second.
	stands [2]time.Duration
}

// lineMsg is a message that has left.
type lineMsg struct {
	left, comes time.Time
	msg         message.Message
}

// plays lets the vehicle send its clock ten times a second and a heartbeat at 20 Hz, asks for the time once a second,
// and calls see with each message that comes.
func (l lateLine) plays(lasts time.Duration, see func(lag *lineLag, m lineMsg, d leaving)) {
	const step = 10 * time.Millisecond
	var lag lineLag
	var line []lineMsg
	var asked []lineMsg
	for since := time.Duration(0); since < lasts; since += step {
		now := epoch.Add(since)
		if since > 0 && since == l.moves {
			line = nil
			lag.moved()
		}
		leaves := func(m message.Message) {
			comes := now
			if l.takes != nil {
				comes = now.Add(l.takes(since))
			}
			if len(line) > 0 {
				comes = later(comes, line[len(line)-1].comes)
			}
			if at := comes.Sub(epoch); at >= l.stands[0] && at < l.stands[1] {
				comes = epoch.Add(l.stands[1])
			}
			if since >= l.lost[0] && since < l.lost[1] {
				return
			}
			line = append(line, lineMsg{now, comes, m})
		}
		for len(asked) > 0 && !asked[0].comes.After(now) {
			leaves(asked[0].msg)
			asked = asked[1:]
		}
		if since%(100*time.Millisecond) == 0 {
			ms := uint32(since.Milliseconds())
			if l.clock != nil {
				ms = l.clock(since)
			}
			switch {
			case since >= l.unclocked[0] && since < l.unclocked[1]:
			case l.position:
				leaves(&common.MessageGlobalPositionInt{TimeBootMs: ms})
			default:
				leaves(&common.MessageAttitude{TimeBootMs: ms})
			}
		}
		if since%(50*time.Millisecond) == 3*step {
			leaves(&common.MessageHeartbeat{})
		}
		if since%time.Second == 0 && lag.askDue(false, now) {
			question := lag.questions.question(now)
			lag.questions.sent(now)
			if !l.mute {
				answer := &common.MessageTimesync{Tc1: 1, Ts1: question.Ts1}
				asked = append(asked, lineMsg{comes: now.Add(l.up), msg: answer})
			}
		}
		for len(line) > 0 && !line[0].comes.After(now) {
			m := line[0]
			line = line[1:]
			see(&lag, m, lag.hear(m.msg, true, now))
		}
	}
}

// grows is a delay that grows to most from one time on for another, and stays.
func grows(from, within, most time.Duration) func(time.Duration) time.Duration {
	return func(since time.Duration) time.Duration {
		part := min(1, max(0, (since-from).Seconds()/within.Seconds()))
		return time.Duration(part * float64(most))
	}
}

func constant(d time.Duration) func(time.Duration) time.Duration {
	return func(time.Duration) time.Duration { return d }
}

// jitter is a delay that is another one for each message, up to most.
func jitter(most time.Duration) func(time.Duration) time.Duration {
	return func(since time.Duration) time.Duration {
		return most * time.Duration(since/(10*time.Millisecond)*7%11) / 10
	}
}
