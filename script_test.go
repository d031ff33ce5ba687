package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMachine plays testdata/machine: the mode machine alone.
func TestMachine(t *testing.T) {
	playsOn(t, machineWords(), func(t *testing.T, s script) *hearing {
		h := newHearing()
		h.firmware = firmwares[scriptFlavours[s.vehicle]]
		return h
	})
}

// TestSticks plays testdata/sticks: the sticks alone.
func TestSticks(t *testing.T) {
	playsOn(t, stickWords(), func(t *testing.T, s script) *stickFlight {
		about := s.vehicle
		for _, setting := range s.with { // receiver=hand, COM_RC_IN_MODE=3
			_, value, _ := strings.Cut(setting, "=")
			if value == "hand" {
				value = "in-use"
			}
			about += " " + value
		}
		return parseStickFlight(t, about)
	})
}

func TestWhatIsWrongInAScriptIsSaidWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"on px4\ntakeoff":                              `f:2: a clause before the first "== sentence"`,
		"== a\non px4\neach A = 1 | 2\nis $B":          `f:4: no "each" has the name $B`,
		"== a\non px4\neach A B = 1 | 2 -> 3":          "f:3: as many values as names",
		"== a\non px4\n[octopus] land":                 `f:3: "octopus" is no vehicle and no choice`,
		"== a\non px4\nrepeat 3\nland":                 `f:3: a "repeat" without an "end"`,
		"== a\non px4\nland\nend":                      `f:4: an "end" without a "repeat"`,
		"== a\non px4\nland\neach A = 1":               "f:4: want",
		"== a\nland":                                   "no vehicle",
		"on px4\n== a\n# b\neach A = x | y\n[x] land#": "",
	} {
		raws, err := parseScripts("f", text)
		for _, r := range raws {
			if err == nil {
				_, err = r.variants("f")
			}
		}
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestNoLineIsOver120Columns(t *testing.T) {
	sources, _ := filepath.Glob("*.go")
	scripts, _ := filepath.Glob("testdata/*/*.txt")
	for _, name := range append(sources, scripts...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if n := len([]rune(strings.ReplaceAll(line, "\t", "    "))); n > 120 {
				t.Errorf("%s:%d has %d columns", name, i+1, n)
			}
		}
	}
}

func TestTheListOfWordsIsWhatTheStagesKnow(t *testing.T) {
	want := "# The words of scripts\n\n`go test -run TestTheListOfWords -write-words .` writes this page from the " +
		"tables: kit_flight_words_test.go,\n" +
		"kit_machine_test.go and kit_sticks_test.go. [README.md](README.md) says how a script is written.\n\n" +
		flightWords().String() + "\n" + machineWords().String() + "\n" + stickWords().String()
	const page = "testdata/WORDS.md"
	if *writeWords {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(page); err != nil || string(is) != want {
		t.Errorf("%s is not the list of words (%v): go test -run %s -write-words .", page, err, t.Name())
	}
}

func TestEachWordIsCheckedAndHasOneMeaning(t *testing.T) {
	meanings := map[string]string{}
	eachWord(t, flightWords(), meanings)
	eachWord(t, machineWords(), meanings)
	eachWord(t, stickWords(), meanings)
}

func TestAClauseThatIsWrongIsSaid(t *testing.T) {
	for clause, want := range map[string]string{
		"takeof 10":                 "no such word",
		"+3":                        `"3" is no TIME`,
		"until pilot RTL 3s":        `"pilot" is no check`,
		"until is hold":             `want "is MODE"`,
		"not hand off":              "no such word",
		"loses DO_REPOSITON":        `is no COMMAND`,
		"refused bad_code land":     "is no CODE",
		"refused no_ack lnad":       "no such request",
		"post goto 60":              "goto",
		"pilot sticks 1 2 3":        `want "pilot sticks X Y Z R"`,
		"receiver gone":             "is no RECEIVER",
		"at 0 0":                    "want",
		"goto 60 0 wait 90":         "",
		"stays 5s not armed":        "",
		"until not at 0 0 10 ±2 1s": "",
	} {
		err := flightWords().check(clauseWords(clause), false)
		if (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, want %q", clause, err, want)
		}
	}
}
