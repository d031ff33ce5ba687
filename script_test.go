package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Scripts are files: testdata/flights, testdata/machine and testdata/sticks. testdata/README.md
// explains them; flight_test.go, mode_test.go and sticks_test.go explain their words.

// script is one run: a script with one choice of each of its "each" lines, on one vehicle.
type script struct {
	name    string // of the test: file/sentence/choices/vehicle
	vehicle string
	with    []string // settings
	lines   []scriptLine
}

// scriptLine is a clause and where it stands.
type scriptLine struct {
	where string // file:line
	words []string
	text  string
	pass  int // in a repeat, from 1; else 0
}

func (l scriptLine) String() string {
	if l.pass > 0 {
		return fmt.Sprintf("%s: %s (pass %d)", l.where, l.text, l.pass)
	}
	return l.where + ": " + l.text
}

// choice is a line "each A B = a1 -> b1 | a2 -> b2".
type choice struct {
	names  []string
	values [][]string
}

// rawLine is a line of a script before its choices are made.
type rawLine struct {
	where, text string
}

// rawScript is what stands under one "== sentence".
type rawScript struct {
	sentence string
	vehicles []string
	with     []string
	choices  []choice
	lines    []rawLine
}

var (
	eachLine  = regexp.MustCompile(`^each ([A-Z][A-Z0-9 ]*?) *= *(.*)$`)
	condition = regexp.MustCompile(`^\[(!?)([^\]]+)\] *(.+)$`)
	variable  = regexp.MustCompile(`\$[A-Z][A-Z0-9]*`)
	comment   = regexp.MustCompile(`(^|\s+)#.*$`)
)

// loadScripts reads the scripts of a stage. What can't be read is an error with file and line, an unknown word
// too.
func loadScripts[S any](t testing.TB, words *vocabulary[S]) (list []script) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("testdata", words.folder, "*.txt"))
	if len(files) == 0 {
		t.Fatalf("no scripts in testdata/%s", words.folder)
	}
	wrong := map[string]bool{} // what was said already, of another choice
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raws, err := parseScripts(file, string(b))
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range raws {
			some, err := raw.variants(strings.TrimSuffix(filepath.Base(file), ".txt"))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, some...)
		}
	}
	for _, s := range list {
		for _, l := range s.lines {
			if err := words.check(l.words, false); err != nil && !wrong[l.String()] {
				wrong[l.String()] = true
				t.Errorf("%s: %v", l, err)
			}
		}
	}
	if len(wrong) > 0 {
		t.FailNow()
	}
	return list
}

// parseScripts reads one file.
func parseScripts(file, text string) (list []*rawScript, err error) {
	var common rawScript // what stands before the first sentence counts for the whole file
	now := &common
	var open *choice // an "each" that goes on with lines that begin with "|"
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		where := fmt.Sprintf("%s:%d", file, i+1)
		line := strings.TrimSpace(comment.ReplaceAllString(lines[i], ""))
		// A line that ends with a comma or a bar goes on in the next one.
		for (strings.HasSuffix(line, ",") || strings.HasSuffix(line, " |")) && i+1 < len(lines) {
			i++
			line += " " + strings.TrimSpace(comment.ReplaceAllString(lines[i], ""))
		}
		bad := func(why string) ([]*rawScript, error) { return nil, fmt.Errorf("%s: %s: %s", where, why, line) }
		if rest, more := strings.CutPrefix(line, "|"); more && open != nil {
			if !open.add(rest) {
				return bad("as many values as names are needed")
			}
			continue
		}
		open = nil
		w := strings.Fields(line)
		header := len(now.lines) == 0
		switch m := eachLine.FindStringSubmatch(line); {
		case len(w) == 0:
		case w[0] == "==":
			now = &rawScript{strings.Join(w[1:], " "), common.vehicles, slices.Clone(common.with),
				slices.Clone(common.choices), nil}
			list = append(list, now)
		case w[0] == "on" && header:
			now.vehicles = w[1:]
		case w[0] == "with" && header:
			now.with = append(now.with, w[1:]...)
		case m != nil && header:
			now.choices = append(now.choices, choice{names: strings.Fields(m[1])})
			open = &now.choices[len(now.choices)-1]
			if m[2] != "" && !open.add(m[2]) {
				return bad("as many values as names are needed")
			}
		case w[0] == "each":
			return bad(`want "each NAME = a | b" before the first clause`)
		case now == &common:
			return bad(`a clause before the first "== sentence"`)
		default:
			now.lines = append(now.lines, rawLine{where, line})
		}
	}
	return list, nil
}

// add adds the values of "a -> b | c -> d", or the times of "300ms..1s/100ms".
func (c *choice) add(s string) bool {
	for _, value := range scriptChoices(s) {
		values := strings.Split(value, "->")
		if len(values) != len(c.names) {
			return false
		}
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		c.values = append(c.values, values)
	}
	return true
}

// variants makes the runs of a script: each choice with each other, on each vehicle.
func (r *rawScript) variants(file string) (list []script, err error) {
	all := []map[string]string{{}}
	words := map[string]int{} // what a condition may name: the "each" that has it, counted from 1; -1 if two have it
	for i, c := range r.choices {
		for _, values := range c.values {
			if was := words[values[0]]; was != 0 && was != i+1 {
				words[values[0]] = -1
			} else {
				words[values[0]] = i + 1
			}
		}
		var next []map[string]string
		for _, before := range all {
			for _, values := range c.values {
				chosen := map[string]string{"": before[""]} // "" has the name
				for k, v := range before {
					chosen[k] = v
				}
				for i, name := range c.names {
					chosen[name] = values[i]
				}
				chosen[""] = strings.TrimPrefix(before[""]+","+values[0], ",")
				next = append(next, chosen)
			}
		}
		all = next
	}
	for _, chosen := range all {
		var replace func(where, s string) string
		replace = func(where, s string) string {
			return variable.ReplaceAllStringFunc(s, func(v string) string {
				value, known := chosen[v[1:]]
				if !known && err == nil {
					err = fmt.Errorf("%s: no \"each\" has the name %s", where, v)
				}
				if value == "nothing" || strings.Contains(value, v) {
					return ""
				}
				return replace(where, value) // a choice may have another one in it
			})
		}
		name := strings.Trim(file+"/"+r.sentence+"/"+chosen[""], "/")
		// "on" and "with" may both have a choice that is vehicles and settings: a setting has a "=".
		head := strings.Fields(replace(name, strings.Join(append(slices.Clone(r.vehicles), r.with...), " ")))
		isSetting := func(w string) bool { return strings.Contains(w, "=") || w == "gcs" }
		for _, vehicle := range head {
			if isSetting(vehicle) {
				continue
			}
			if _, known := scriptFlavours[vehicle]; !known {
				return nil, fmt.Errorf("%s: no such vehicle or setting: %s", name, vehicle)
			}
			s := script{name: name + "/" + vehicle, vehicle: vehicle}
			for _, w := range head {
				if isSetting(w) {
					s.with = append(s.with, w)
				}
			}
			holds := func(word string) bool {
				family, _, _ := strings.Cut(vehicle, "-")
				for _, c := range r.choices {
					if chosen[c.names[0]] == word {
						return true
					}
				}
				return word == vehicle || word == family
			}
			lines, rest, wrong := r.expand(r.lines, 0, replace, func(word string) (bool, error) {
				_, isVehicle := scriptFlavours[word]
				switch {
				case words[word] < 0 || words[word] > 0 && isVehicle:
					return false, fmt.Errorf("%q may mean two things", word)
				case words[word] == 0 && !isVehicle:
					return false, fmt.Errorf("%q is no vehicle and no choice", word)
				}
				return holds(word), nil
			})
			if err == nil {
				err = wrong
			}
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("%s: an \"end\" without a \"repeat\"", rest[0].where)
			}
			if err != nil {
				return nil, err
			}
			s.lines = lines
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no vehicle: %s", file, r.sentence)
	}
	return list, nil
}

// expand makes clauses of lines, up to an "end". It returns the lines that follow the end.
func (r *rawScript) expand(lines []rawLine, pass int, replace func(where, s string) string,
	holds func(string) (bool, error)) (list []scriptLine, rest []rawLine, err error) {
	for len(lines) > 0 {
		l := lines[0]
		lines = lines[1:]
		text := l.text
		if text == "end" {
			return list, append([]rawLine{l}, lines...), nil
		}
		text, plays, err := r.conditions(text, holds)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %v", l.where, err)
		}
		if !plays {
			continue
		}
		text = replace(l.where, text)
		w := strings.Fields(text)
		if len(w) == 2 && w[0] == "repeat" {
			n, err := strconv.Atoi(w[1])
			if err != nil || n < 1 {
				return nil, nil, fmt.Errorf("%s: how often? %s", l.where, text)
			}
			var after []rawLine
			for i := range n {
				var body []scriptLine
				if body, after, err = r.expand(lines, i+1, replace, holds); err != nil {
					return nil, nil, err
				}
				list = append(list, body...)
			}
			if len(after) == 0 {
				return nil, nil, fmt.Errorf("%s: a \"repeat\" without an \"end\"", l.where)
			}
			lines = after[1:]
			continue
		}
		for clause := range strings.SplitSeq(text, ", ") {
			if w := strings.Fields(clause); len(w) > 0 { // a choice may be nothing
				list = append(list, scriptLine{l.where, clauseWords(clause), strings.TrimSpace(clause), pass})
			}
		}
	}
	return list, nil, nil
}

// conditions takes [px4] and [!CHOICE] from the begin of a line. plays is false if one does not hold.
func (r *rawScript) conditions(text string, holds func(string) (bool, error)) (rest string, plays bool, err error) {
	plays = true
	for {
		m := condition.FindStringSubmatch(text)
		if m == nil {
			return text, plays, nil
		}
		is, err := holds(m[2])
		if err != nil {
			return "", false, err
		}
		plays = plays && is != (m[1] == "!")
		text = m[3]
	}
}

// TestFlights plays testdata/flights: whole flights of mavrest beside a simulated vehicle.
func TestFlights(t *testing.T) {
	for _, s := range loadScripts(t, flightWords()) {
		t.Run(s.name, func(t *testing.T) {
			flavour, prepare := scriptVehicle(t, s.vehicle, s.with)
			gcs := func(d *drone) { d.link.gcs = slices.Contains(s.with, "gcs") }
			flyWith(t, flavour, prepare, gcs, func(f *flight) { (&player{flight: f}).follows(s) })
		})
	}
}

// follows plays a script, up to its first failure.
func (p *player) follows(s script) {
	p.Helper()
	for _, l := range s.lines {
		p.script, p.clause = s.name, l.text
		p.at = l.String
		p.diary.note("script", "%s", strings.TrimPrefix(l.String(), "testdata/flights/"))
		if wrong := p.does(l.words); wrong != "" {
			p.Errorf("wanted: %s\nseen:   %s", l.text, wrong)
		}
		if p.Failed() {
			return
		}
	}
}

// stage is what a script of a part of the program plays on: the mode machine or the sticks alone.
type stage interface {
	does(t *testing.T, w []string) (wrong string)
	clock() time.Time
	now() string // its state, in words
}

// playsOn plays the scripts of a folder, each on a stage of its own.
func playsOn[S stage](t *testing.T, words *vocabulary[S], begin func(t *testing.T, s script) S) {
	for _, s := range loadScripts(t, words) {
		t.Run(s.name, func(t *testing.T) {
			on := begin(t, s)
			began := on.clock()
			var log []string
			for _, l := range s.lines {
				at := on.clock().Sub(began).Seconds()
				wrong := on.does(t, l.words)
				log = append(log, fmt.Sprintf("%9.3f  %-30s  %s", at, l.text, on.now()))
				if wrong != "" {
					t.Fatalf("%s\n    wanted: %s\n    seen:   %s\nthe script so far, in seconds, and the state "+
						"after each clause:\n%s",
						l, l.text, wrong, strings.Join(log, "\n"))
				}
			}
		})
	}
}

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

func TestNoLineOfATestIsOver120Columns(t *testing.T) {
	sources, _ := filepath.Glob("*_test.go")
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
