package main

import (
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// From 5 s on, when the clock is known, no message is taken for newer than it is, and none for much older.
func TestAMessageIsAsOldAsWhenItLeftTheVehicle(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	runsOver := func(since time.Duration) uint32 { return uint32(since.Milliseconds()) - 15000 }
	for name, c := range map[string]struct {
		line lateLine

		// newer and older are how far a message may be taken for newer and for older than it is.
		newer, older time.Duration
	}{
		"a quick line":        {lateLine{}, 0, 10 * ms},
		"it jitters by 80 ms": {lateLine{takes: jitter(80 * ms)}, lineJitter, lineJitter},
		"it grows to 0.2 s":   {lateLine{takes: grows(6*second, second, second/5)}, lineJitter, lineJitter},
		"it grows to 0.6 s in half a second": {
			lateLine{takes: grows(6*second, second/2, 3*second/5)}, lineJitter, second / 5},
		"it grows to 8 s": {lateLine{takes: grows(6*second, 10*second, 8*second)}, lineJitter, second / 5},
		"the same, and no question is answered": {
			lateLine{takes: grows(6*second, 10*second, 8*second), mute: true}, clockGap, second / 5},
		"1.5 s each way, from the start": {
			lateLine{takes: constant(3 * second / 2), up: 3 * second / 2}, lineJitter, lineJitter},
		"0.6 s each way, from the start": {
			lateLine{takes: constant(3 * second / 5), up: 3 * second / 5}, lineJitter, lineJitter},
		"it falls behind and catches up": {lateLine{takes: func(since time.Duration) time.Duration {
			return grows(6*second, 4*second, 4*second)(since) - grows(14*second, second, 4*second)(since)
		}}, lineJitter, second / 5},
		"the program stands still for 3 s": {
			lateLine{stands: [2]time.Duration{20*second + 20*ms, 23 * second}}, clockGap, clockGap},
		"the boot clock runs over": {lateLine{clock: runsOver}, 0, 10 * ms},
		"it runs over while it falls behind": {
			lateLine{clock: runsOver, takes: grows(12*second, 6*second, 6*second)}, lineJitter, second / 5},
		"it falls behind by 8 s at once": {
			lateLine{takes: grows(8*second, 1, 8*second)}, clockGap, lineJitter},
		"unheard the vehicle starts again, and its clock is ahead of the last one heard": {
			lateLine{lost: [2]time.Duration{8 * second, 32 * second}, clock: func(since time.Duration) uint32 {
				if since < 20*second {
					return uint32(since.Milliseconds())
				}
				return uint32((since - 20*second).Milliseconds())
			}}, 0, 10 * ms},
		"a clock of microseconds is none": {lateLine{clock: func(since time.Duration) uint32 {
			return uint32(since.Microseconds())
		}}, 0, 10 * ms},
		"a clock that stands is none": {lateLine{clock: func(time.Duration) uint32 { return 7 }}, 0, 10 * ms},
		"a clock that drifts by 100 ppm": {lateLine{clock: func(since time.Duration) uint32 {
			return uint32(since.Seconds() * 999.9)
		}}, 10 * ms, 10 * ms},
		"1.5 s each way, and a simulator that is 2 % slow": {lateLine{clock: func(since time.Duration) uint32 {
			return uint32(since.Seconds() * 980)
		}, takes: constant(3 * second / 2), up: 3 * second / 2}, lineJitter, lineJitter},
		"1.5 s each way, and a simulator that is 2 % fast": {lateLine{clock: func(since time.Duration) uint32 {
			return uint32(since.Seconds() * 1020)
		}, takes: constant(3 * second / 2), up: 3 * second / 2}, lineJitter, lineJitter},
		"it grows to 8 s, and a simulator that is 2 % slow": {lateLine{clock: func(since time.Duration) uint32 {
			return uint32(since.Seconds() * 980)
		}, takes: grows(6*second, 10*second, 8*second)}, lineJitter, 8 * second / 10},
		"a simulator that is 3 % slow": {lateLine{clock: func(since time.Duration) uint32 {
			return uint32(since.Seconds() * 970)
		}}, lineJitter, 2 * lineJitter},
	} {
		t.Run(name, func(t *testing.T) {
			newest, oldest := time.Duration(0), time.Duration(0)
			c.line.plays(40*second, func(lag *lineLag, m lineMsg, d departed) {
				if m.comes.Sub(epoch) >= 5*second {
					newest = max(newest, d.left.Sub(m.left))
					oldest = max(oldest, m.left.Sub(d.left))
				}
			})
			if newest > c.newer || oldest > c.older {
				t.Errorf("taken for up to %v newer and %v older, want %v and %v", newest, oldest, c.newer, c.older)
			}
		})
	}
}

func TestWhatIsSaidToHaveLeftAfterAMomentHasLeftAfterIt(t *testing.T) {
	const second = time.Second
	for name, line := range map[string]lateLine{
		"a quick line":           {},
		"it grows to 8 s":        {takes: grows(6*second, 10*second, 8*second)},
		"1.5 s each way":         {takes: constant(3 * second / 2), up: 3 * second / 2},
		"the program stands":     {stands: [2]time.Duration{20 * second, 23 * second}},
		"nothing answers":        {mute: true},
		"grows, nothing answers": {mute: true, takes: grows(8*second, 10*second, 8*second)},
	} {
		t.Run(name, func(t *testing.T) {
			var last time.Duration
			line.plays(40*second, func(lag *lineLag, m lineMsg, d departed) {
				slack := time.Duration(0)
				if line.mute {
					slack = clockGap
				}
				if early := d.after.Sub(m.left); early > slack {
					t.Errorf("at %v it left for certain after what is %v later", m.comes.Sub(epoch), early)
				}
				last = d.after.Sub(epoch)
			})
			if last < 25*second {
				t.Errorf("at the end nothing is proven after %v", last)
			}
		})
	}
}

func TestOnlyOurQuestionsAreAnsweredAndASilentVehicleIsAskedSeldom(t *testing.T) {
	var lag lineLag
	now := epoch
	question := lag.questions.question(now)
	lag.questions.sent(now)
	for name, m := range map[string]*common.MessageTimesync{
		"a question":       {Ts1: question.Ts1},
		"of the future":    {Tc1: 5, Ts1: question.Ts1 + 1000},
		"somebody else's":  {Tc1: 5, Ts1: now.UnixNano()},
		"a number of ours": {Tc1: 5, Ts1: question.Ts1 - 1},
	} {
		if d := lag.hear(m, true, now.Add(time.Second)); !d.after.IsZero() || d.trip != 0 {
			t.Errorf("%s proves %v", name, d)
		}
	}
	if d := lag.hear(&common.MessageTimesync{Tc1: 5, Ts1: question.Ts1}, false, now); !d.after.IsZero() {
		t.Error("an answer that came out of order proves something")
	}
	d := lag.hear(&common.MessageTimesync{Tc1: 5, Ts1: question.Ts1}, true, now.Add(30*time.Millisecond))
	if d.after != now || d.trip != 30*time.Millisecond {
		t.Errorf("the answer proves %v", d)
	}
	asked := 0
	for since := time.Duration(0); since < time.Minute; since += 10 * time.Millisecond {
		if at := now.Add(since); lag.askDue(true, at) {
			lag.questions.sent(at)
			asked++
		}
	}
	if most := int(timeLate/(10*time.Millisecond)) + 6 + 10; asked > most {
		t.Errorf("asked %d times in a minute, want %d at most", asked, most)
	}
}

func TestAQuestionThatWaitedOnTheBoardMeasuresNoRoundTrip(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		9 * time.Second: 9 * time.Second, 11 * time.Second: 0, time.Minute: 0,
	} {
		var lag lineLag
		question := lag.questions.question(epoch)
		lag.questions.sent(epoch)
		now := epoch.Add(took)
		d := lag.hear(&common.MessageTimesync{Tc1: 5, Ts1: question.Ts1}, true, now)
		if d.trip != want || lag.trip(now) != want || d.after != epoch {
			t.Errorf("an answer after %v measures %v, the longest is %v, and what comes left after %v", took, d.trip,
				lag.trip(now), d.after.Sub(epoch))
		}
	}
}

func TestALineThatStaysAsLateAsItHasBecomeHasNotFallenBehind(t *testing.T) {
	const second = time.Second
	slow := func(since time.Duration) uint32 { return uint32(since.Seconds() * 988) }
	for name, c := range map[string]struct {
		line lateLine

		// from and until: the time in which it has fallen behind
		from, until time.Duration
	}{
		"a quick line": {lateLine{}, 0, 0},
		"it stays 0.6 s later": {
			lateLine{takes: grows(8*second, second, 3*second/5)}, 9 * second, 19 * second},
		"it falls behind for half a minute": {
			lateLine{takes: grows(8*second, 30*second, 9*second)}, 10 * second, 53 * second},
		"a slow clock, 0.6 s each way": {
			lateLine{clock: slow, takes: constant(3 * second / 5), up: 3 * second / 5}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var from, until time.Duration
			c.line.plays(100*second, func(lag *lineLag, m lineMsg, _ departed) {
				if lag.fallen() >= fallenBy {
					until = m.comes.Sub(epoch)
					if from == 0 {
						from = until
					}
				}
			})
			if (from-c.from).Abs() > second || (until-c.until).Abs() > 5*second {
				t.Errorf("it has fallen behind from %v until %v, want %v and %v", from, until, c.from, c.until)
			}
		})
	}
}
