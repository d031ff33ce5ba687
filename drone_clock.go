package main

import (
	"context"
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

// runClock is everything that happens by time. It sleeps until the next thing is
// due.
func (d *drone) runClock(ctx context.Context) {
	defer context.AfterFunc(ctx, d.alarm.ring)()
	for ctx.Err() == nil {
		now := time.Now()
		d.beat.Store(now.UnixNano())
		d.mu.Lock()
		next := d.tick(now)
		d.mu.Unlock()
		d.alarm.sleep(now.Add(max(next.Sub(now), time.Millisecond)))
	}
}
