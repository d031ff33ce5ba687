package main

import "testing"

func TestASampleHasEveryValueOfEveryDimension(t *testing.T) {
	defer func(all bool, seed uint64) { *runAll, *sampleSeed = all, seed }(*runAll, *sampleSeed)
	*runAll = false
	type moment struct{ manoeuvre, receiver, mode int }
	var cases []moment
	for i := range 19 * 4 * 8 {
		cases = append(cases, moment{i / 32, i / 8 % 4, i % 8})
	}
	for *sampleSeed = 1; *sampleSeed < 30; *sampleSeed++ {
		for _, n := range []int{0, 100} {
			seen := map[any]bool{} // the cases of the sample, and the values of both dimensions in it
			some := sampled(t, cases, n, func(m moment) any { return m.manoeuvre },
				func(m moment) any { return [2]int{m.receiver, m.mode} })
			for _, m := range some {
				seen[m], seen[m.manoeuvre], seen[[2]int{m.receiver, m.mode}] = true, true, true
			}
			if len(seen) != len(some)+19+4*8 || len(some) < n || len(some) > max(n, 19+4*8) {
				t.Fatalf("seed %d: %d cases with %d of %d values", *sampleSeed, len(some), len(seen)-len(some), 19+4*8)
			}
		}
	}
}
