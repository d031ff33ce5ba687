package main

import (
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// This file has what several test files share.

var (
	runAll = flag.Bool("all", false,
		"run every moment, manoeuvre and pilot, and the long tests at full length, not a sample")
	simSeed = flag.Uint64("sim-seed", 2,
		"seed of the simulators' times. A flight that needs a HEARTBEAT in a window of milliseconds fails with "+
			"another one: such a flight passes by luck")
	sampleSeed = flag.Uint64("sample-seed", 1,
		"seed of the samples; 0 takes a new seed each time, which a failed test prints")
)

// sampled returns n of the cases in a random order, with -all all of them. Every value of every
// dimension is in the sample, which may therefore have more than n cases. Each test has its own
// sample.
func sampled[T any](t *testing.T, cases []T, n int, dimensions ...func(T) any) []T {
	t.Helper()
	if *runAll || len(cases) <= n {
		return cases
	}
	seed := *sampleSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	var needed, others []T
	seen := map[[2]any]bool{}
	name := fnv.New64()
	io.WriteString(name, t.Name())
	for _, at := range rand.New(rand.NewPCG(seed, name.Sum64())).Perm(len(cases)) {
		c, isNew := cases[at], false
		for i, dimension := range dimensions {
			if value := [2]any{i, dimension(c)}; !seen[value] {
				seen[value], isNew = true, true
			}
		}
		if isNew {
			needed = append(needed, c)
		} else {
			others = append(others, c)
		}
	}
	some := append(needed, others[:max(0, n-len(needed))]...)
	t.Logf("%d of %d cases: -sample-seed %d takes the same ones, -all takes all", len(some), len(cases), seed)
	return some
}

// walks is how many random walks are made: fewer with the race detector, which needs each line once and no more.
func walks(n int) int {
	if racing() {
		return n / 10
	}
	return n
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// notParallel lists the tests that must not call Parallel: they have called it, or they run alone.
var notParallel sync.Map

// inBubbles has a place for each bubble that may run: those take the processor, and what waits in real time beside
// them needs some of it soon.
var inBubbles = make(chan struct{}, 1+runtime.GOMAXPROCS(0))

// inLinkBubble runs f in virtual time, in parallel with other tests. The bubbles of one
// test run one after the other.
func inLinkBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if _, has := notParallel.LoadOrStore(t, true); !has {
		t.Cleanup(func() { notParallel.Delete(t) })
		t.Parallel()
	}
	inBubbles <- struct{}{}
	defer func() { <-inBubbles }()
	synctest.Test(t, f)
}

// tlogEntry is one frame of a .tlog.
type tlogEntry struct {
	at    time.Duration // since the first frame
	bytes []byte
}

// readTlog cuts a .tlog into its frames by their lengths.
func readTlog(t testing.TB, name string) []tlogEntry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	_, list := cutTlog(b)
	return list
}

// lineNear compares two values, rounded to some decimals.
func lineNear(t *testing.T, what string, got, want float64, decimals int) {
	t.Helper()
	if a, b := fmt.Sprintf("%.*f", decimals, got), fmt.Sprintf("%.*f", decimals, want); a != b {
		t.Errorf("%s is %s, want %s", what, a, b)
	}
}

// differsLittle reports whether two numbers differ by no more than within. NaN differs from all.
func differsLittle(got, want, within float64) bool { return math.Abs(got-want) <= within }

// lineEqual compares two values. The error calls them what.
func lineEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// sentAfter returns when messages were sent, counted from the first.
func sentAfter(list []lineMessage) []time.Duration {
	var after []time.Duration
	for _, m := range list {
		after = append(after, m.at.Sub(list[0].at))
	}
	return after
}

// waitUntil waits for a condition in real time. Its deadline is so long that only a test that
// fails reaches it.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(30 * time.Second)
	for !is() {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("waited half a minute until %s", what)
		}
	}
}

const metresPerDegree = earthRadius * math.Pi / 180

// moved returns the place some metres north and east of another.
func moved(lat, lon, north, east float64) (float64, float64) {
	return lat + north/metresPerDegree, lon + east/(metresPerDegree*math.Cos(lat*math.Pi/180))
}

// at returns a place in metres from home as the fields of a body.
func at(north, east float64) string {
	lat, lon := simPlace(north, east)
	return fmt.Sprintf(`"lat":%.7f,"lon":%.7f`, lat, lon)
}

// copied is what was heard, with a message of its own.
func (h heard) copied() heard {
	h.msg = copyOf(h.msg)
	return h
}

func copyOf(m message.Message) message.Message {
	own := reflect.New(reflect.TypeOf(m).Elem())
	own.Elem().Set(reflect.ValueOf(m).Elem())
	return own.Interface().(message.Message)
}

// onTime is a message that comes at the moment at which the vehicle sends it.
func onTime(m message.Message, now time.Time) heard {
	return heard{at: now, leaving: leaving{left: now, latest: now, after: now}, ordered: true, msg: m, system: 1}
}
