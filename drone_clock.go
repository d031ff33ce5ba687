package main

import (
	"context"
	"sync/atomic"
	"time"
)

// alarm wakes the clock: Go's timer, or in the program the kernel's.
type alarm interface {
	sleep(until time.Time) // returns then, or when it is rung
	ring()                 // also before the sleep
}

// goAlarm is Go's own timer, whose time may be virtual.
type goAlarm chan struct{}

func newAlarm() goAlarm { return make(goAlarm, 1) }

func (a goAlarm) sleep(until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a:
	}
}

func (a goAlarm) ring() {
	select {
	case a <- struct{}{}:
	default:
	}
}

// clock runs what happens by time. It sleeps until the next thing is due.
type clock struct {
	alarm alarm        // that it sleeps by
	beat  atomic.Int64 // when it last ran, for the watchdog; Unix nanoseconds
}

// poke makes the clock run now.
func (c *clock) poke() { c.alarm.ring() }

// run calls tick whenever it is due, until ctx is done. tick tells when it is due
// next.
func (c *clock) run(ctx context.Context, tick func(now time.Time) time.Time) {
	defer context.AfterFunc(ctx, c.poke)()
	for ctx.Err() == nil {
		now := time.Now()
		c.beat.Store(now.UnixNano())
		c.alarm.sleep(now.Add(max(tick(now).Sub(now), time.Millisecond)))
	}
}
