package main

import "time"

// Times of the reports (docs/design.md, "Reports").
const (
	keptFor     = 100 * time.Millisecond  // or two round trips: a later HEARTBEAT is newer than a CURRENT_MODE
	reportFresh = 200 * time.Millisecond  // a client's command may follow a report of this age
	reportQuiet = 1500 * time.Millisecond // the same of a disarmed vehicle, where nothing waits for a report
	reportAgain = 20 * time.Millisecond   // or a round trip: between two requests of what is waited for
	reportMost  = 100 * time.Millisecond  // so long at most: on a slow line many are lost
)

// shownMode is what a HEARTBEAT shows.
type shownMode struct {
	custom          uint32 // the vehicle's own number of its mode
	armed, failsafe bool
	at              time.Time // when the number came
}

// keptMode is a number of CURRENT_MODE that no HEARTBEAT has shown yet.
type keptMode struct {
	custom uint32
	at     time.Time // when it came
}

// reports makes reports of HEARTBEATs and of PX4's CURRENT_MODEs. A CURRENT_MODE has no
// armed bit and comes up to 15 ms before its mode is in force, so its number is kept until
// a HEARTBEAT shows it. It is told the time.
type reports struct {
	last  shownMode  // of the last report
	at    time.Time  // when the last report came; zero: none yet
	n     int        // how many there were
	kept  []keptMode // the oldest first
	alive time.Time  // when a HEARTBEAT or CURRENT_MODE came last
	asked time.Time  // when a HEARTBEAT was requested last
}

// askNow has the next HEARTBEAT requested at once where one is waited for.
func (r *reports) askNow() { r.asked = time.Time{} }

// keeps reports whether a number is kept: the vehicle's mode is about to change.
func (r *reports) keeps() bool { return len(r.kept) > 0 }

// hearMode takes a CURRENT_MODE. It reports whether its number is kept.
func (r *reports) hearMode(custom uint32, now time.Time) bool {
	if r.at.IsZero() { // no HEARTBEAT has told yet what vehicle it is
		return false
	}
	r.alive = now
	newest := r.last.custom
	if r.keeps() {
		newest = r.kept[len(r.kept)-1].custom
	}
	if custom == newest {
		return false
	}
	r.kept = append(r.kept, keptMode{custom, now})
	r.askNow()
	return true
}

// hearHeartbeat takes a HEARTBEAT and returns the reports that it makes, the oldest
// first: none where it is older than the newest kept number. trip is the line's round trip.
func (r *reports) hearHeartbeat(b shownMode, trip time.Duration, now time.Time) (list []shownMode) {
	r.alive, b.at = now, now
	if r.keeps() {
		newest := r.kept[len(r.kept)-1]
		switch {
		case r.last.armed && !b.armed: // PX4 leaves LAND in the instant of disarming
			b.custom = newest.custom
		case b.custom != newest.custom && now.Sub(newest.at) <= max(keptFor, 2*trip):
			return nil
		}
		for _, k := range r.kept {
			list = append(list, shownMode{k.custom, b.armed, b.failsafe, k.at})
		}
		if b.custom != newest.custom {
			list = append(list, b)
		}
	} else {
		list = []shownMode{b}
	}
	r.last, r.at, r.kept, r.n = b, now, nil, r.n+len(list)
	return list
}

// againAfter is the time between two requests of what is waited for.
func againAfter(trip time.Duration) time.Duration { return min(max(reportAgain, trip), reportMost) }

// due is when HEARTBEAT is to be requested next. awaited says that a command waits for a
// report.
func (r *reports) due(awaited bool, trip time.Duration) time.Time {
	if awaited || r.keeps() {
		return r.asked.Add(againAfter(trip))
	}
	quiet := reportQuiet
	if r.last.armed {
		quiet = reportFresh
	}
	if again := r.asked.Add(reportFresh); again.After(r.at.Add(quiet)) {
		return again
	}
	return r.at.Add(quiet)
}

// restart forgets what was kept.
func (r *reports) restart() { r.kept = nil }
