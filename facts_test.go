package main

// The probes are flown (kit_facts_test.go).

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

func TestFacts(t *testing.T) {
	if flyFacts != "" {
		flyTheFacts(t)
		return
	}
	t.Parallel()
	seen, chosen := map[string]bool{}, 0
	for _, p := range allProbes() {
		name := p.name()
		if seen[name] {
			t.Errorf("two facts are called %q", name)
		}
		seen[name] = true
		if !strings.Contains(name, *factsOnly) {
			continue
		}
		chosen++
		t.Run(name, func(t *testing.T) {
			inLinkBubble(t, func(t *testing.T) {
				v := p.simulate(t, nil)
				for _, f := range v.faults {
					t.Error(f)
				}
				if testing.Verbose() {
					t.Log(strings.Join(v.report, ", "), v.skipped)
				}
			})
		})
	}
	if chosen == 0 {
		t.Errorf("no fact's name contains %q", *factsOnly)
	}
}

// make facts takes the values of -device, udpin too: what it sends goes to where the vehicle's heartbeats come from.
func TestAFactIsAskedWhereTheHeartbeatsComeFrom(t *testing.T) {
	p, err := listenUDP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	far, err := net.Dial("udp", listensAt(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	asks, vehicle := newFactLink(p, simSystem, componentID), newFactLink(&connPort{Conn: far}, simSystem, autopilotID)
	var listening sync.WaitGroup
	listening.Go(asks.listen)
	defer listening.Wait()
	defer p.Close()

	asks.send(factLong(simSystem, common.MAV_CMD_REQUEST_MESSAGE, 148)) // nobody is known yet: it goes nowhere
	vehicle.send(heartbeat(minimal.MAV_TYPE_QUADROTOR))
	for asks.heardSystem() == 0 {
		time.Sleep(time.Millisecond) // a socket is real, and so is its time
	}
	asks.send(factLong(simSystem, common.MAV_CMD_REQUEST_MESSAGE, 148))
	_ = far.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := far.Read(make([]byte, 300)); err != nil {
		t.Errorf("the question does not come to the sender of the heartbeat: %v", err)
	}
}

func TestAProbeIsAboutItsReleases(t *testing.T) {
	for _, tt := range []struct {
		since, until release
		about        string // the releases that the probe is about
	}{
		{release{}, release{}, "1.9 1.16 1.17 4.6"},
		{release{1, 16}, release{}, "1.16 1.17 4.6"},
		{release{}, release{1, 16}, "1.9 1.16"},
		{release{1, 16}, release{1, 17}, "1.16 1.17"},
	} {
		var about []string
		for _, r := range []release{{1, 9}, {1, 16}, {1, 17}, {4, 6}} {
			if (probe{since: tt.since, until: tt.until}).about(r) {
				about = append(about, r.String())
			}
		}
		if got := strings.Join(about, " "); got != tt.about {
			t.Errorf("since %v until %v: %s, want %s", tt.since, tt.until, got, tt.about)
		}
	}
	if got := releaseOf(1<<24 | 17<<16 | 2<<8 | 255); got != (release{1, 17}) {
		t.Errorf("1.17.2 is release %v", got)
	}
}

// docs/autopilots.md has every probe, after a space, under its heading.
func TestThePageNamesEveryProbe(t *testing.T) {
	page := pageText(t, "autopilots.md")
	for _, p := range allProbes() {
		_, section, _ := strings.Cut(page, "\n## "+p.heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		ofAnyMode := modeOfPilot.ReplaceAllString(modeInFront.ReplaceAllString(p.fact, "MODE$1"), "a pilot's MODE")
		if !strings.Contains(section, " "+p.fact) && !strings.Contains(section, " "+ofAnyMode) {
			t.Errorf("docs/autopilots.md does not name this probe\t%s\t%s", p.heading, p.fact)
		}
	}
}

// A probe that passes on every mutant is blind.
func TestEachProbeCanFail(t *testing.T) {
	if !*factsMutants {
		t.Skip("-mutants")
	}
	killed, blind := map[string]int{}, []string{}
probes:
	for _, p := range allProbes() {
		if !strings.Contains(p.name(), *factsOnly) {
			continue
		}
		for _, m := range mutants {
			failed := false
			synctest.Test(t, func(t *testing.T) { failed = len(p.simulate(t, m.make).faults) > 0 })
			if failed {
				killed[m.name]++
				continue probes
			}
		}
		if slices.Contains(failedByHand, p.fact) {
			continue
		}
		blind = append(blind, p.name())
	}
	t.Log(killed)
	if len(blind) > 0 {
		t.Errorf("%d probes never fail:\n%s", len(blind), strings.Join(blind, "\n"))
	}
}
