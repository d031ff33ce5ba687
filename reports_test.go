package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestReports plays scripts, clauses with commas between: "mode 5" is a CURRENT_MODE,
// "beat 5 armed" a HEARTBEAT, "+20ms" time, "restart" the autopilot's; "= 5 6 armed" are the
// reports of the last HEARTBEAT, "keeps" and "knows" whether a number is kept.
func TestReports(t *testing.T) {
	for name, script := range map[string]string{
		"a HEARTBEAT is a report":                           "beat 5 armed, = 5 armed, knows, beat 5 armed, = 5 armed",
		"before the first one nothing is kept":              "mode 6, knows, beat 5 armed, = 5 armed",
		"a new number is kept until a HEARTBEAT shows it":   "beat 5 armed, mode 6, keeps, beat 6 armed, = 6 armed, knows",
		"an older HEARTBEAT is no report":                   "beat 5 armed, mode 6, +15ms, beat 5 armed, =, keeps, +5ms, beat 6 armed, = 6 armed",
		"the same number again is not new":                  "beat 5 armed, mode 5, knows, mode 6, mode 6, beat 6 armed, = 6 armed",
		"a mode that stood for 12 ms is a report":           "beat 5 armed, mode 6, +12ms, mode 5, keeps, beat 5 armed, = 6 5 armed",
		"all that were kept, in their order":                "beat 5 armed, mode 6, mode 7, mode 8, beat 7 armed, =, beat 8 armed, = 6 7 8 armed",
		"a HEARTBEAT long after it is the newest":           "beat 5 armed, mode 6, +101ms, beat 7 armed, = 6 7 armed, knows",
		"also one that shows the mode of before":            "beat 5 armed, mode 6, +101ms, beat 5 armed, = 6 5 armed",
		"not within 100 ms":                                 "beat 5 armed, mode 6, +100ms, beat 7 armed, =",
		"on a slow line not within two round trips":         "trip 300ms, beat 5 armed, mode 6, +600ms, beat 5 armed, =, +1ms, beat 5 armed, = 6 5 armed",
		"one that disarms shows the newest":                 "beat 6 armed, mode 5, beat 6 disarmed, = 5 disarmed, knows",
		"one that disarms, and nothing is kept":             "beat 6 armed, beat 6 disarmed, = 6 disarmed",
		"one that was disarmed already shows an older mode": "beat 6 disarmed, mode 5, beat 6 disarmed, =, keeps",
		"a restart forgets":                                 "beat 5 armed, mode 6, restart, knows, beat 0 disarmed, = 0 disarmed",
	} {
		t.Run(name, func(t *testing.T) {
			var r reports
			now, trip, shown := time.Unix(1_700_000_000, 0), time.Duration(0), ""
			for clause := range strings.SplitSeq(script, ", ") {
				w := strings.Fields(clause)
				switch w[0] {
				case "mode":
					r.hearMode(uint32(w[1][0]), now)
				case "beat":
					shown = ""
					for _, b := range r.hearHeartbeat(shownMode{custom: uint32(w[1][0]), armed: w[2] == "armed"}, trip, now) {
						shown += " " + string(rune(b.custom))
						if b.armed != (w[2] == "armed") {
							t.Errorf("%q: armed %v", clause, b.armed)
						}
					}
				case "=":
					if want := strings.TrimSuffix(strings.TrimSuffix(clause, " armed"), " disarmed"); "="+shown != want {
						t.Errorf("%s: reports%s, want %s", script, shown, clause)
					}
				case "keeps", "knows":
					if r.keeps() != (w[0] == "keeps") {
						t.Errorf("%s: a number is kept: %v", script, r.keeps())
					}
				case "restart":
					r.restart()
				case "trip":
					trip, _ = time.ParseDuration(w[1])
				default:
					d, err := time.ParseDuration(w[0])
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(d)
				}
			}
		})
	}
}

// TestWhenHeartbeatIsRequested: where a number is kept or a command waits, at once and each
// 20 ms or round trip; else by the age of the last report.
func TestWhenHeartbeatIsRequested(t *testing.T) {
	const ms = time.Millisecond
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		armed, awaited, keeps bool
		trip, asked, want     time.Duration // after the last report
	}{
		{false, false, false, 0, -10 * time.Second, 1500 * ms},
		{true, false, false, 0, -10 * time.Second, 200 * ms},
		{true, false, false, 0, 150 * ms, 350 * ms},
		{false, true, false, 0, -10 * time.Second, -10*time.Second + 20*ms},
		{false, true, false, 0, 5 * ms, 25 * ms},
		{true, true, false, 80 * ms, 5 * ms, 85 * ms},
		{true, false, true, 0, 5 * ms, 25 * ms},
	} {
		r := reports{last: shownMode{armed: c.armed}, at: at, asked: at.Add(c.asked)}
		if c.keeps {
			r.kept = []keptMode{{custom: 5}}
		}
		if got := r.due(c.awaited, c.trip).Sub(at); got != c.want {
			t.Errorf("%s: due after %v", fmt.Sprintf("%+v", c), got)
		}
	}
}
