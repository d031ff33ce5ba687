package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// From 5 s on, when the clock is known, no message is taken for newer than it is, and none for much older.
func TestAMessageIsAsOldAsWhenItLeftTheVehicle(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	none := map[string]bool{
		"a clock of microseconds is none": true, "a clock that stands is none": true, "the clock ends": true,
		"a clock of milliseconds that becomes one of microseconds is none": true}
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
			lateLine{lost: [2]time.Duration{8 * second, 32 * second}, clock: startsAt(20 * second)}, 0, 10 * ms},
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
		"the clock is the position's, and it grows to 8 s": {
			lateLine{position: true, takes: grows(6*second, 10*second, 8*second)}, lineJitter, second / 5},
		"it grows to 20 s": {lateLine{takes: grows(6*second, 10*second, 20*second)}, lineJitter, second / 5},
		"it grows to 8 s after four minutes": {
			lateLine{takes: grows(240*second, 10*second, 8*second), lasts: 260 * second}, lineJitter, second / 5},
		"no clock comes for 0.9 s": {
			lateLine{unclocked: [2]time.Duration{20 * second, 20900 * ms}}, 0, 850 * ms},
		"no clock comes for 0.9 s, 3 s behind": {
			lateLine{unclocked: [2]time.Duration{20 * second, 20900 * ms}, takes: grows(6*second, 3*second, 3*second)},
			lineJitter, 9 * second / 10},
		"the clock ends":           {lateLine{unclocked: [2]time.Duration{20 * second, 60 * second}}, 0, second},
		"the vehicle starts again": {lateLine{clock: startsAt(20 * second)}, 0, 10 * ms},
		"it starts again, and no question is answered": {
			lateLine{clock: startsAt(20 * second), mute: true}, 0, 10 * ms},
		"unheard for 20 s, 3 s behind": {
			lateLine{lost: [2]time.Duration{15 * second, 35 * second}, takes: grows(6*second, 3*second, 3*second)},
			lineJitter, second / 5},
		"each second clock is an older estimate's, and it grows to 8 s": {
			lateLine{clock: func(since time.Duration) uint32 {
				return uint32((since - since/100/ms%2*150*ms).Milliseconds())
			}, takes: grows(6*second, 10*second, 8*second)}, 3 * lineJitter, second / 5},
		"a clock comes 0.9 s late each second": {lateLine{clock: func(since time.Duration) uint32 {
			if since%second == second/2 {
				since -= 9 * second / 10
			}
			return uint32(max(0, since).Milliseconds())
		}}, 0, 10 * ms},
		"a clock stands, runs from 10 s on, and it grows to 8 s": {lateLine{clock: func(since time.Duration) uint32 {
			return uint32(max(0, since-10*second).Milliseconds())
		}, takes: grows(20*second, 10*second, 8*second)}, lineJitter, second / 5},
		"8 s behind the vehicle is heard by a quick way": {lateLine{takes: func(since time.Duration) time.Duration {
			return grows(6*second, 10*second, 8*second)(since) - grows(20*second, 1, 8*second)(since)
		}, moves: 20*second + 10*ms}, lineJitter, second / 5},
		"8 s behind, for 3 s no clock comes": {
			lateLine{unclocked: [2]time.Duration{20 * second, 23 * second}, takes: grows(6*second, 10*second, 8*second),
				from: 32 * second}, lineJitter, second / 5},
		"a clock of milliseconds that becomes one of microseconds is none": {
			lateLine{clock: func(since time.Duration) uint32 {
				if since < 20*second {
					return uint32(since.Milliseconds())
				}
				return uint32(since.Microseconds())
			}}, 0, 10 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			newest, oldest := time.Duration(0), time.Duration(0)
			var before leaving
			known := false
			c.line.plays(max(40*second, c.line.lasts), func(lag *lineLag, m lineMsg, d leaving) {
				_, known = lag.now(m.comes)
				_, clocked := m.msg.(*common.MessageAttitude)
				if m.comes.Sub(epoch) >= max(5*second, c.line.from) {
					wrong := (m.comes.Sub(m.left) - d.behind).Abs()
					if clocked && wrong > max(c.newer, c.older)+lineJitter {
						t.Errorf("at %v the line is %v behind, wrong by %v", m.comes.Sub(epoch), d.behind, wrong)
					}
					newest = max(newest, d.left.Sub(m.left))
					oldest = max(oldest, m.left.Sub(d.left))
				}
				if back := before.left.Sub(d.left); back > 0 && back < clockGap {
					t.Errorf("at %v it left %v before the one before", m.comes.Sub(epoch), back)
				}
				before = d
				if d.behind != 0 && d.behind < lineJitter {
					t.Errorf("at %v a line counts as %v behind", m.comes.Sub(epoch), d.behind)
				}
				if d.left.Sub(d.latest) >= clockGap {
					t.Errorf("at %v it left %v, at the latest %v", m.comes.Sub(epoch), d.left.Sub(epoch),
						d.latest.Sub(epoch))
				}
				if wrong := (m.comes.Sub(d.latest) - d.behind).Abs(); wrong > 10*ms {
					t.Errorf("at %v it left %v", m.comes.Sub(epoch), d.latest.Sub(epoch))
				}
			})
			if known == none[name] {
				t.Errorf("a clock tells how far it is behind: %v", known)
			}
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
		"it starts again":        {clock: startsAt(20 * second)},
	} {
		t.Run(name, func(t *testing.T) {
			var last time.Duration
			var after time.Time
			line.plays(40*second, func(lag *lineLag, m lineMsg, d leaving) {
				slack := time.Duration(0)
				switch {
				case line.mute && line.takes == nil:
					slack = -tripLeast
				case line.mute:
					slack = clockGap
				}
				if !line.mute && d.after.Before(after) {
					t.Errorf("at %v it left after %v, before after %v", m.comes.Sub(epoch), d.after, after)
				}
				after = d.after
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
	others := map[string]*common.MessageTimesync{
		"a question":       {Ts1: question.Ts1},
		"of the future":    {Tc1: 5, Ts1: question.Ts1 + 1000},
		"somebody else's":  {Tc1: 5, Ts1: now.UnixNano()},
		"a number of ours": {Tc1: 5, Ts1: question.Ts1 - 1},
	}
	for name, m := range others {
		if d := lag.hear(m, true, now.Add(time.Second)); !d.after.IsZero() || d.trip != 0 {
			t.Errorf("%s proves %v", name, d)
		}
	}
	lag.hear(&common.MessageTimesync{Tc1: 5, Ts1: question.Ts1}, false, now)
	if d := lag.hear(nil, true, now); !d.after.IsZero() {
		t.Error("an answer that came out of order proves something")
	}
	d := lag.hear(&common.MessageTimesync{Tc1: 5, Ts1: question.Ts1}, true, now.Add(30*time.Millisecond))
	if d.after != now || d.trip != 30*time.Millisecond {
		t.Errorf("the answer proves %v", d)
	}
	for ms := range uint32(3) {
		lag.hear(&common.MessageAttitude{TimeBootMs: 1000 + ms}, true, now.Add(time.Second))
	}
	for name, m := range others {
		if lag.hear(m, true, now.Add(time.Second)); !lag.due.IsZero() {
			t.Errorf("the next clock comes behind %s", name)
		}
	}
	answered := lag
	answered.hear(&common.MessageTimesync{Tc1: 5, Ts1: question.Ts1}, true, now.Add(time.Second))
	answered.moved()
	d = answered.hear(&common.MessageTimesync{Tc1: 5, Ts1: question.Ts1}, true, now.Add(time.Second))
	if !d.after.IsZero() || !answered.due.IsZero() {
		t.Errorf("by another way the same answer proves %v", d)
	}
	for waits, want := range map[bool]int{
		// each 10 ms for a second and twice the round trip, then each 10 s
		true: 106 + 5,
		// five in 5 s, then each 10 s
		false: 5 + 5,
	} {
		lag, asked := lag, 0
		for since := time.Duration(0); since < time.Minute; since += 10 * time.Millisecond {
			if at := now.Add(time.Minute + since); lag.askDue(waits, at) {
				lag.questions.sent(at)
				asked++
			}
		}
		if asked != want {
			t.Errorf("asked %d times in a minute, want %d (waits: %v)", asked, want, waits)
		}
	}
}

func TestAQuestionThatWaitedOnTheBoardMeasuresNoRoundTrip(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 1, 9 * time.Second: 9 * time.Second, 11 * time.Second: 0, time.Minute: 0,
	} {
		var lag lineLag
		question := lag.questions.question(epoch)
		lag.questions.sent(epoch)
		now := epoch.Add(took)
		d := lag.hear(&common.MessageTimesync{Tc1: 5, Ts1: question.Ts1}, true, now)
		lag.hear(&common.MessageAttitude{}, true, now)
		if d.trip != want || lag.trip() != want || d.after != epoch {
			t.Errorf("an answer after %v measures %v, the longest is %v, and what comes left after %v", took, d.trip,
				lag.trip(), d.after.Sub(epoch))
		}
	}
}

func TestTheLongestRoundTripCountsUntilOthersWereMeasuredForAMinute(t *testing.T) {
	var lag lineLag
	for _, c := range []struct{ at, trip, want int }{
		{0, 600, 600}, {1, 300, 600}, {2, 1200, 1200}, {59, 50, 1200},

		// The minute before counts too.
		{60, 60, 1200}, {119, 50, 1200}, {120, 40, 60}, {180, 30, 40},

		// Where nothing was measured since, the line is no quicker.
		{181, 900, 900}, {239, 20, 900}, {3600, 10, 10},
	} {
		before := lag.trip()
		lag.measured(ms(c.trip), epoch.Add(time.Duration(c.at)*time.Second))
		lineEqual(t, fmt.Sprintf("the longest at %d s, %v before", c.at, before), lag.trip(), ms(c.want))
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
		"a clock that stands is none": {lateLine{clock: func(time.Duration) uint32 { return 7 }}, 0, 0},
		"it is quick between, while a window of 5 s lasts": {lateLine{takes: func(since time.Duration) time.Duration {
			part := grows(8*second, 1, 3*second/5)(since) - grows(11*second, 1, 3*second/5)(since)
			return part + grows(13*second, 1, 3*second/5)(since)
		}}, 8 * second, 20 * second},
		"0.6 s from the start, and quick for a second": {lateLine{takes: func(since time.Duration) time.Duration {
			return 3*second/5 - grows(11*second, 1, 3*second/5)(since) + grows(12*second, 1, 3*second/5)(since)
		}}, 12 * second, 20 * second},
		"a slow clock, 0.6 s each way": {
			lateLine{clock: slow, takes: constant(3 * second / 5), up: 3 * second / 5}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var from, until time.Duration
			c.line.plays(100*second, func(lag *lineLag, m lineMsg, _ leaving) {
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
	ended := lineLag{runs: true, unclocked: clockGone, origin: epoch, at: epoch.Add(second)}
	lineEqual(t, "it has fallen behind by a clock that has ended", ended.fallen(), 0)
}

// startsAt is the boot clock of a vehicle that starts again at a time.
func startsAt(at time.Duration) func(time.Duration) uint32 {
	return func(since time.Duration) uint32 {
		if since < at {
			return uint32(since.Milliseconds())
		}
		return uint32((since - at).Milliseconds())
	}
}
