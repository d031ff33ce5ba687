package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// FuzzPilot flies any order of what the world does against the whole program.
func FuzzPilot(f *testing.F) {
	orders := uint64(40)
	if *runAll {
		orders = 300
	}
	orders = uint64(walks(int(orders)))
	for seed := range orders { // random orders of all acts
		dice := rand.New(rand.NewPCG(seed, 7))
		happens := make([]byte, 2*(4+dice.IntN(40)))
		for i := range happens {
			happens[i] = byte(dice.Uint32())
		}
		f.Add(byte(dice.Uint32()), happens)
	}
	f.Fuzz(func(t *testing.T, setup byte, happens []byte) {
		flyBytes(t, setup, happens[:min(len(happens), 200)], "")
	})
}

// TestSoak flies for as long as -soak says. Each seed is a flight.
func TestSoak(t *testing.T) {
	t.Parallel()
	total := *soakTime
	if testing.Short() {
		total /= 4
	}
	if racing() { // which needs each line once
		total /= 4
	}
	for i := range uint64((total + worldTime - 1) / worldTime) {
		seed := *soakSeed + i
		name, _ := weather(seed)
		setup, happens := thrown(seed)
		kind, _, _ := vehicle(setup)
		t.Run(fmt.Sprintf("seed %d, %s, %s", seed, kind.name, name), func(t *testing.T) {
			again := fmt.Sprintf("go test -run '^TestSoak$' -count 10 -soak 1s -soak-seed %d .", seed)
			flyBytes(t, setup, happens, again)
		})
	}
}

func TestEachLawHasItsHeadingInTheDesign(t *testing.T) {
	design := pageText(t, "design.md")
	for _, l := range laws {
		if !hasHeading(design, l.heading) {
			t.Errorf("%q: docs/design.md has no heading %q", l.says, l.heading)
		}
	}
}
