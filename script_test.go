package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
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

// add adds the values of "a -> b | c -> d", or the times of "300ms..1s/100ms": without -all only the first one,
// the one in the middle and the last one.
func (c *choice) add(s string) bool {
	list := scriptChoices(s)
	if strings.Contains(s, "..") && len(list) > 3 && !*runAll {
		list = []string{list[0], list[len(list)/2], list[len(list)-1]}
	}
	for _, value := range list {
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

// The words of scripts. Each of the three stages has a vocabulary: a table of its words. A script is checked
// against it before anything is played, and testdata/WORDS.md is the table in print.

// scriptWord is a word of a vocabulary: "pilot sticks X Y Z R" has the name "pilot sticks" and four arguments.
type scriptWord[S any] struct {
	// The name, then the arguments in capitals: TIME, N and those in argumentKinds are checked, any other may be
	// anything. [N] may be left out; N... are one or more, [N...] any number.
	usage   string
	means   string // a sentence without its full stop; "" if the word before says it
	example string // a clause with the word

	// does plays the word; a are its arguments. It returns what is wrong, or "".
	does func(on S, a []string) (wrong string)
}

// section is a part of a vocabulary under a title.
type section[S any] struct {
	title  string
	checks bool // "until", "stays" and "not" may stand before these words
	words  []scriptWord[S]
}

// vocabulary is the words of a stage.
type vocabulary[S any] struct {
	folder   string
	sections []section[S]
	named    map[string]*namedWord[S]
	longest  int // of the names, in words
}

// namedWord is a word and whether it is a check.
type namedWord[S any] struct {
	*scriptWord[S]
	check bool
}

// newVocabulary makes the vocabulary of a folder. No two of its words may have the same name.
func newVocabulary[S any](folder string, sections ...section[S]) *vocabulary[S] {
	v := &vocabulary[S]{folder: folder, sections: sections, named: map[string]*namedWord[S]{}}
	for _, s := range sections {
		for i := range s.words {
			name := s.words[i].name()
			if v.named[name] != nil {
				panic("two words: " + name)
			}
			v.named[name] = &namedWord[S]{&s.words[i], s.checks}
			v.longest = max(v.longest, len(strings.Fields(name)))
		}
	}
	return v
}

// argumentKinds are the arguments that are checked before a script is played.
var argumentKinds = map[string]func(string) bool{
	"TIME": func(s string) bool { _, err := time.ParseDuration(s); return err == nil },
	"N":    isNumber,
	"COMMAND": func(s string) bool {
		var id common.MAV_CMD
		return id.UnmarshalText([]byte("MAV_CMD_"+s)) == nil
	},
	"CODE":     func(s string) bool { return s == "ok" || s == "any" || errorStatus[errorCode(s)] != 0 },
	"RECEIVER": func(s string) bool { _, known := scriptReceivers[s]; return known },
	"BOUND":    func(s string) bool { return s == "<" || s == ">" || isNumber(s) },
	"LIMIT":    func(s string) bool { return isNumber(strings.TrimPrefix(s, "±")) },
	"±N":       func(s string) bool { n, within := strings.CutPrefix(s, "±"); return within && isNumber(n) },
}

func isNumber(s string) bool { _, err := strconv.ParseFloat(s, 64); return err == nil }

// name is the word without its arguments.
func (w *scriptWord[S]) name() string { return strings.Join(w.split(0), " ") }

// split returns the parts of the usage that are the name (0) or the arguments (1).
func (w *scriptWord[S]) split(which int) []string {
	parts := clauseWords(w.usage)
	i := slices.IndexFunc(parts, func(s string) bool { return strings.ToUpper(s) == s && s != "+" })
	if i < 0 {
		i = len(parts)
	}
	return [][]string{parts[:i], parts[i:]}[which]
}

// find returns the word of a clause, the one with the longest name, and its arguments; nil if there is none.
func (v *vocabulary[S]) find(clause []string) (found *namedWord[S], a []string) {
	for n := min(v.longest, len(clause)); n > 0; n-- {
		if w := v.named[strings.Join(clause[:n], " ")]; w != nil {
			return w, clause[n:]
		}
	}
	return nil, nil
}

// clauseWords splits a clause. The word of "+300ms" is "+".
func clauseWords(clause string) []string {
	w := strings.Fields(clause)
	if len(w) > 0 && len(w[0]) > 1 && w[0][0] == '+' {
		return append([]string{"+", w[0][1:]}, w[1:]...)
	}
	return w
}

// check returns what is wrong with a clause: a word that the vocabulary does not have, or arguments that the
// word does not take.
func (v *vocabulary[S]) check(clause []string, onlyChecks bool) error {
	w, a := v.find(clause)
	switch {
	case w == nil:
		return fmt.Errorf("no such word: %q; testdata/WORDS.md has those of testdata/%s", strings.Join(clause, " "),
			v.folder)
	case onlyChecks && !w.check:
		return fmt.Errorf("%q is no check", w.name())
	}
	args := w.split(1)
	least := 0
	for _, arg := range args {
		if !strings.HasPrefix(arg, "[") {
			least++
		}
	}
	if len(a) < least {
		return fmt.Errorf("want %q", w.usage)
	}
	return v.checkArguments(w.scriptWord, args, a)
}

// checkArguments checks arguments against the usage. An argument of several words takes what the others leave.
func (v *vocabulary[S]) checkArguments(w *scriptWord[S], args, a []string) error {
	clause := append(w.split(0), a...)
	for i, arg := range args {
		kind := argumentKind(arg)
		is := argumentKinds[kind]
		optional := strings.HasPrefix(arg, "[")
		mine := a[:min(1, len(a))]
		switch {
		case manyWords(arg):
			mine = a[:max(0, len(a)-leftFor(args[i+1:], a))]
		case optional && len(mine) > 0 && is != nil && !is(mine[0]):
			mine = nil
		}
		a = a[len(mine):]

		var err error
		switch kind {
		case "CHECK":
			err = v.check(mine, true)
		case "REQUEST":
			_, _, err = clientRequest(mine)
		case "FIELD":
			_, _, err = clientRequest(clause)
		}
		if err != nil {
			return err
		}
		for _, s := range mine {
			if is != nil && !is(s) {
				return fmt.Errorf("want %q; %q is no %s", w.usage, s, kind)
			}
		}
	}
	if len(a) > 0 {
		return fmt.Errorf("want %q", w.usage)
	}
	return nil
}

// argumentKind is an argument of a usage without its brackets and dots.
func argumentKind(arg string) string { return strings.TrimSuffix(strings.Trim(arg, "[]"), "...") }

// manyWords reports whether an argument takes several words.
func manyWords(arg string) bool {
	return strings.Contains(arg, "...") || slices.Contains([]string{"CHECK", "REQUEST", "WORDS"}, arg)
}

// leftFor returns how many of the last words an argument of several words leaves for those behind it.
func leftFor(args, a []string) (n int) {
	for _, arg := range slices.Backward(args) {
		is := argumentKinds[argumentKind(arg)]
		absent := n >= len(a) || is != nil && !is(a[len(a)-1-n])
		if !strings.HasPrefix(arg, "[") || !absent {
			n++
		}
	}
	return n
}

// plays plays a clause. It returns what is wrong, or "".
func (v *vocabulary[S]) plays(t testing.TB, on S, clause []string) (wrong string) {
	t.Helper()
	w, a := v.find(clause)
	if w == nil {
		t.Fatalf("no such word: %q", strings.Join(clause, " "))
	}
	return w.does(on, a)
}

// checkScript returns what is wrong with clauses, commas between them.
func (v *vocabulary[S]) checkScript(script string) error {
	for clause := range strings.SplitSeq(script, ",") {
		if err := v.check(clauseWords(clause), false); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(clause), err)
		}
	}
	return nil
}

// String is the vocabulary in print.
func (v *vocabulary[S]) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## testdata/%s\n", v.folder)
	for _, s := range v.sections {
		fmt.Fprintf(&b, "\n### %s\n\n| word | what it does | example |\n| --- | --- | --- |\n", s.title)
		for _, w := range s.words {
			bar := strings.NewReplacer("|", `\|`).Replace
			fmt.Fprintf(&b, "| `%s` | %s | `%s` |\n", bar(w.usage), bar(w.means), bar(w.example))
		}
	}
	return b.String()
}

var writeWords = flag.Bool("write-words", false, "write testdata/WORDS.md")

func TestTheListOfWordsIsWhatTheStagesKnow(t *testing.T) {
	want := "# The words of scripts\n\n`go test -run TestTheListOfWords -write-words .` writes this page from the " +
		"tables: flight_words_test.go,\n" +
		"mode_test.go and sticks_test.go. [README.md](README.md) says how a script is written.\n\n" +
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

// eachWord checks the words of a vocabulary: each has an example that is right, and no word means in one stage
// what it does not mean in another.
func eachWord[S any](t *testing.T, v *vocabulary[S], meanings map[string]string) {
	for _, s := range v.sections {
		for _, w := range s.words {
			if w.means == "" || w.does == nil {
				t.Errorf("%s: %q has no meaning", v.folder, w.usage)
			}
			if found, _ := v.find(clauseWords(w.example)); found == nil || found.usage != w.usage {
				t.Errorf("%s: the example %q is not of %q", v.folder, w.example, w.usage)
			} else if err := v.check(clauseWords(w.example), false); err != nil {
				t.Errorf("%s: the example %q of %q: %v", v.folder, w.example, w.usage, err)
			}
			if other, is := meanings[w.name()]; is && other != w.means {
				t.Errorf("%q has two meanings: %q and %q", w.name(), other, w.means)
			}
			meanings[w.name()] = w.means
		}
	}
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

// A failing flight tells its diary: what clients asked and were answered, what went over the wire in
// both directions, what mavrest logged, in virtual time. A flight that passes pays for a copy of its
// bytes: they are read only when it fails.

const (
	diaryLines = 60
	diaryBytes = 4 << 20 // of the wire; older bytes are forgotten

	diariesAtMost = 3 // in a run: many failures have one cause
)

var (
	diariesTold atomic.Int32

	// Virtual time makes diaries comparable: the diff of a flight's diaries before and after a change
	// shows what the change does to it.
	everyDiary = flag.Bool("diary", false,
		"with -v: print the diary of each flight, to its begin, also of one that passes")
)

// diary is what happened in one flight.
type diary struct {
	began    time.Time
	firmware firmware

	home [2]float64 // places are metres from there; zero: from the simulator's

	tail int       // how many of its last lines a failure prints; 0 for diaryLines
	ends time.Time // what came later is not printed; zero: all is

	mu      sync.Mutex
	entries []entry
	size    int  // bytes of the wire in entries
	told    bool // it was printed
}

// entry is a line of the diary, or bytes that went over the wire.
type entry struct {
	at   time.Time
	who  string // script, world, client, log; toVehicle or fromVehicle: raw are bytes
	text string
	raw  []byte
}

const toVehicle, fromVehicle = "→ vehicle", "← vehicle"

func (d *diary) note(who, format string, args ...any) {
	d.add(entry{at: time.Now(), who: who, text: fmt.Sprintf(format, args...)})
}

func (d *diary) add(e entry) {
	if d == nil { // a flight without mavrest
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, e)
	if d.size += len(e.raw); d.size > diaryBytes {
		half := len(d.entries) / 2
		for _, old := range d.entries[:half] {
			d.size -= len(old.raw)
		}
		d.entries = slices.Clone(d.entries[half:])
	}
}

// tap is mavrest's port; it notes what goes through.
type tap struct {
	port
	diary *diary
}

func (t tap) Read(b []byte) (int, error) {
	n, err := t.port.Read(b)
	if n > 0 {
		t.diary.add(entry{at: time.Now(), who: fromVehicle, raw: bytes.Clone(b[:n])})
	}
	return n, err
}

func (t tap) Write(b []byte) (int, error) {
	t.diary.add(entry{at: time.Now(), who: toVehicle, raw: bytes.Clone(b)})
	n, err := t.port.Write(b)
	if err != nil {
		t.diary.note("line", "that did not go out: %v", err)
	}
	return n, err
}

// diaryLog writes what mavrest logs into the diary.
type diaryLog struct {
	diary *diary
	attrs string // of each line
}

// log is the logger of the flight's mavrest.
func (d *diary) log() *slog.Logger { return slog.New(diaryLog{diary: d}) }

// logged returns the lines of the log so far.
func (d *diary) logged() (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		if e.who == "log" {
			lines = append(lines, e.text)
		}
	}
	return lines
}

func (h diaryLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h diaryLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message + h.attrs
	r.Attrs(func(a slog.Attr) bool {
		text += logAttr(a)
		return true
	})
	h.diary.add(entry{at: r.Time, who: "log", text: text})
	return nil
}

func (h diaryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += logAttr(a)
	}
	return h
}

func (h diaryLog) WithGroup(string) slog.Handler { return h } // mavrest has no groups

func logAttr(a slog.Attr) string {
	if a.Key == "stack" {
		return fmt.Sprintf(" %s=\n%s", a.Key, a.Value)
	}
	return fmt.Sprintf(" %s=%q", a.Key, a.Value)
}

// wasTold reports whether the diary was printed.
func (d *diary) wasTold() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told
}

// lines is how many lines a failure prints.
func (d *diary) lines() int { return cmp.Or(d.tail, diaryLines) }

// String is the diary's last lines.
func (d *diary) String() string {
	d.mu.Lock()
	entries := slices.Clone(d.entries)
	d.mu.Unlock()
	r := &diaryReader{d: d, shown: map[string]string{}, rest: map[string][]byte{}, runs: map[string]*diaryLine{}}
	for _, e := range entries {
		if !d.ends.IsZero() && e.at.After(d.ends) {
			break
		}
		r.quiet(e.at)
		if e.raw == nil {
			r.say(e.at, e.who, e.text, "")
			continue
		}
		r.read(e)
	}
	r.quiet(time.Now())
	var b strings.Builder
	lines := r.lines
	if i := slices.IndexFunc(lines, func(l *diaryLine) bool { return acts(l.who) && l.who != "client" }); i >= 0 {
		lines = lines[i:] // the boot and the handshake went well
	}
	first := max(0, len(lines)-d.lines())
	if *everyDiary {
		first = 0
	}
	for _, l := range lines[first:] {
		fmt.Fprintf(&b, "%9.3f  %-9s  %s", l.at.Sub(d.began).Seconds(), l.who, l.text)
		if l.n > 1 {
			fmt.Fprintf(&b, "   (%d times until %.3f)", l.n, l.last.Sub(d.began).Seconds())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// diaryLine is a line as it is printed.
type diaryLine struct {
	at, last time.Time
	who      string
	text     string
	n        int
}

// diaryReader makes lines of entries.
type diaryReader struct {
	d     *diary
	lines []*diaryLine
	shown map[string]string     // what each kind of message showed last
	rest  map[string][]byte     // of each direction: bytes of a frame that is not whole
	runs  map[string]*diaryLine // lines that stand for several equal ones
	stick time.Time             // the last MANUAL_CONTROL; zero if none is streamed
	where string                // where the vehicle is
}

// acts reports whether these lines say what a test does.
func acts(who string) bool {
	return slices.Contains([]string{"script", "world", "client"}, who)
}

// say adds a line. Lines with the same key within some seconds of each other are one, until a script
// or a client does something.
func (r *diaryReader) say(at time.Time, who, text, key string) {
	if l := r.runs[key]; key != "" && l != nil && at.Sub(l.last) < 2500*time.Millisecond {
		l.n, l.last = l.n+1, at
		return
	}
	if acts(who) {
		clear(r.runs)
	}
	l := &diaryLine{at, at, who, text, 1}
	r.lines = append(r.lines, l)
	if key != "" {
		r.runs[key] = l
	}
}

// changed says a message's values if they differ from the last ones.
func (r *diaryReader) changed(at time.Time, who, name, text string) {
	if r.shown[who+name] != text {
		r.shown[who+name] = text
		r.say(at, who, name+" "+text, "")
	}
}

// quiet says that the sticks' stream has ended.
func (r *diaryReader) quiet(now time.Time) {
	if !r.stick.IsZero() && now.Sub(r.stick) > 200*time.Millisecond {
		r.say(r.stick, toVehicle, "MANUAL_CONTROL was the last", "")
		r.stick = time.Time{}
		delete(r.shown, toVehicle+"MANUAL_CONTROL")
	}
}

// read reads the frames in an entry's bytes.
func (r *diaryReader) read(e entry) {
	b := append(r.rest[e.who], e.raw...)
	for len(b) >= 12 {
		size := 12 + int(b[1]) + 13*int(b[2]&1)
		if b[0] != frame.V2MagicByte {
			b = b[1:]
			continue
		}
		if len(b) < size {
			break
		}
		list := parseFrames(b[:size])
		if len(list) == 0 { // damaged
			b = b[1:]
			continue
		}
		r.tell(e.at, e.who, list[0])
		b = b[size:]
	}
	r.rest[e.who] = bytes.Clone(b)
}

func parseFrames(b []byte) (list []message.Message) {
	rd := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b)), DialectRW: simDialect()}
	f, err := rd.Read()
	if err != nil {
		return nil
	}
	return []message.Message{f.GetMessage()}
}

// metres are those of a place from the flight's home.
func (d *diary) metres(lat, lon float64) (north, east float64) {
	if d.home == [2]float64{} {
		return simMetres(lat, lon)
	}
	return (lat - d.home[0]) * simDegree, (lon - d.home[1]) * simDegree * math.Cos(d.home[0]*math.Pi/180)
}

func short(v fmt.Stringer, prefix string) string { return strings.TrimPrefix(v.String(), prefix) }

// tell makes a line of a message, or none where it says nothing new.
func (r *diaryReader) tell(at time.Time, who string, msg message.Message) {
	f := r.d.firmware
	mode := func(custom uint32) string {
		m, name := f.reported(custom)
		return cmp.Or(name, fmt.Sprint(m))
	}
	switch m := msg.(type) {
	case *common.MessageHeartbeat:
		r.heartbeat(at, who, m.Type, mode(m.CustomMode), uint8(m.BaseMode), m.SystemStatus)
	case *common.MessageCurrentMode:
		r.changed(at, who, "CURRENT_MODE", mode(m.CustomMode))
	case *common.MessageCommandLong:
		r.command(at, who, m.Command, int(m.Confirmation),
			[]float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Param5, m.Param6, m.Param7}, mode)
	case *common.MessageCommandInt:
		n, e := r.d.metres(float64(m.X)/1e7, float64(m.Y)/1e7)
		r.say(at, who, fmt.Sprintf("COMMAND_INT %s to %.1f m north, %.1f m east, z %.1f in %s; params %g %g %g %g%s",
			short(m.Command, "MAV_CMD_"), n, e, m.Z, short(m.Frame, "MAV_FRAME_"),
			m.Param1, m.Param2, m.Param3, m.Param4, r.where), "")
	case *common.MessageCommandAck:
		text := fmt.Sprintf("COMMAND_ACK %s %s", short(m.Command, "MAV_CMD_"), short(m.Result, "MAV_RESULT_"))
		if m.Command == common.MAV_CMD_SET_MESSAGE_INTERVAL || m.Command == common.MAV_CMD_REQUEST_MESSAGE {
			r.say(at, who, text, text)
			return
		}
		r.say(at, who, text, "")
	case *common.MessageManualControl:
		r.stick = at
		r.changed(at, who, "MANUAL_CONTROL", fmt.Sprintf("x %d y %d z %d r %d", m.X, m.Y, m.Z, m.R))
	case *common.MessageRcChannelsOverride:
		r.say(at, who, "RC_CHANNELS_OVERRIDE", "override")
	case *common.MessageStatustext:
		r.say(at, who, fmt.Sprintf("STATUSTEXT %s %q", short(m.Severity, "MAV_SEVERITY_"), m.Text), "")
	case *common.MessageExtendedSysState:
		r.changed(at, who, "EXTENDED_SYS_STATE",
			short(m.LandedState, "MAV_LANDED_STATE_")+" "+short(m.VtolState, "MAV_VTOL_STATE_"))
	case *common.MessageSysStatus:
		r.changed(at, who, "SYS_STATUS", fmt.Sprintf("unhealthy %#x",
			uint32(m.OnboardControlSensorsEnabled&^m.OnboardControlSensorsHealth)))
	case *common.MessageHomePosition:
		r.changed(at, who, "HOME_POSITION", fmt.Sprintf("%.1f m AMSL", float64(m.Altitude)/1000))
	case *common.MessagePositionTargetGlobalInt:
		n, e := r.d.metres(float64(m.LatInt)/1e7, float64(m.LonInt)/1e7)
		r.changed(at, who, "POSITION_TARGET_GLOBAL_INT", fmt.Sprintf("%.0f m north, %.0f m east, %.0f up", n, e, m.Alt))
	case *common.MessageParamValue:
		r.changed(at, who, "PARAM_VALUE", fmt.Sprintf("%s %g", m.ParamId, m.ParamValue))
	case *common.MessageGlobalPositionInt:
		if who != fromVehicle {
			return
		}
		n, e := r.d.metres(float64(m.Lat)/1e7, float64(m.Lon)/1e7)
		r.where = fmt.Sprintf("   [%.1f m north, %.1f m east, %.1f m up, %.1f m/s]", n, e, float64(m.RelativeAlt)/1000,
			math.Hypot(float64(m.Vx), float64(m.Vy))/100)
	case *common.MessageAutopilotVersion:
		r.changed(at, who, "AUTOPILOT_VERSION", fmt.Sprintf("%#x", m.FlightSwVersion))
	}
}

func (r *diaryReader) heartbeat(at time.Time, who string, typ common.MAV_TYPE, mode string, base uint8,
	state fmt.Stringer) {
	armed := "disarmed"
	if base&uint8(common.MAV_MODE_FLAG_SAFETY_ARMED) != 0 {
		armed = "armed"
	}
	if who != fromVehicle { // ours, or another program's
		r.changed(at, who, "HEARTBEAT as "+short(typ, "MAV_TYPE_"), "each second")
		return
	}
	r.changed(at, who, "HEARTBEAT", fmt.Sprintf("%s %s %s", mode, armed, short(state, "MAV_STATE_")))
}

func (r *diaryReader) command(at time.Time, who string, cmd common.MAV_CMD, copy int, p []float32,
	mode func(uint32) string) {
	name, key := short(cmd, "MAV_CMD_"), ""
	switch cmd {
	case common.MAV_CMD_SET_MESSAGE_INTERVAL, common.MAV_CMD_REQUEST_MESSAGE:
		what := fmt.Sprint(int(p[0]))
		if m := simDialect().GetMessage(uint32(p[0])); m != nil {
			what = messageNames[uint32(p[0])]
		}
		name += " " + cmp.Or(what, fmt.Sprint(int(p[0])))
		key = name
	case common.MAV_CMD_DO_SET_MODE:
		custom := uint32(p[1])
		if r.d.firmware == px4 {
			custom = px4Custom(uint32(p[1]), uint32(p[2]))
		}
		name += fmt.Sprintf(" %s (%g %g %g)", mode(custom), p[0], p[1], p[2])
	case common.MAV_CMD_COMPONENT_ARM_DISARM:
		name += map[float32]string{0: " disarm", 1: " arm"}[p[0]]
	default:
		name += fmt.Sprint(" ", p)
	}
	if copy > 0 {
		name += fmt.Sprintf(", copy %d", copy)
	}
	if key == "" {
		name += r.where
	}
	r.say(at, who, name, key)
}

var messageNames = map[uint32]string{
	0: "HEARTBEAT", 1: "SYS_STATUS", 24: "GPS_RAW_INT", 30: "ATTITUDE", 33: "GLOBAL_POSITION_INT", 65: "RC_CHANNELS",
	69: "MANUAL_CONTROL", 70: "RC_CHANNELS_OVERRIDE", 74: "VFR_HUD", 87: "POSITION_TARGET_GLOBAL_INT",
	148: "AUTOPILOT_VERSION", 242: "HOME_POSITION", 245: "EXTENDED_SYS_STATE", 253: "STATUSTEXT", 436: "CURRENT_MODE",
}

// asked and answered note a request of a client, and its answer.
func (d *diary) asked(method, path, body string) {
	if method != "GET" {
		d.note("client", "%s %s %s", method, path, body)
	}
}

func (d *diary) answered(method, path string, code int, o object) {
	if method != "GET" {
		text, _ := json.Marshal(o)
		d.note("client", "%s %s is answered %d %s", method, path, code, text)
	}
}

// tell prints a failure of a flight: where in which script, when, what; and, once, the diary.
func (f *flight) tell(what string) {
	f.Helper()
	if f.diary == nil {
		f.T.Log(what)
		return
	}
	text := what
	if f.at != nil {
		text = f.at() + "\n    " + strings.ReplaceAll(what, "\n", "\n    ")
	}
	f.diary.mu.Lock()
	again := f.diary.told
	f.diary.told = true
	f.diary.mu.Unlock()
	text += fmt.Sprintf("\n    at %.3f s of the flight; the vehicle: %s", time.Since(f.diary.began).Seconds(),
		f.truthInWords())
	switch {
	case again:
	case diariesTold.Add(1) > diariesAtMost:
		text += fmt.Sprintf("\nits diary: go test -run '^%s$' .", runOnly(f.Name()))
	default:
		text += fmt.Sprintf("\nthe diary of this flight, its last %d lines, in seconds:\n%s", f.diary.lines(), f.diary)
	}
	f.T.Log(text)
}

// runOnly is the pattern of -run that runs one test, between quotes of a shell.
func runOnly(name string) string {
	return strings.NewReplacer("/", "$/^", "'", ".").Replace(regexp.QuoteMeta(name))
}

func (f *flight) truthInWords() string {
	s := f.sim.truth()
	n, e := simMetres(s.lat, s.lon)
	_, name := f.firmware.reported(s.mode)
	return fmt.Sprintf("%s, armed %v, %.1f m north, %.1f m east, %.1f m up, %.1f m/s", name, s.armed, n, e, s.alt,
		math.Hypot(s.vn, s.ve))
}

func (f *flight) Error(args ...any) {
	f.Helper()
	f.tell(strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	f.T.Fail()
}

func (f *flight) Errorf(format string, args ...any) {
	f.Helper()
	f.tell(fmt.Sprintf(format, args...))
	f.T.Fail()
}

func (f *flight) Fatal(args ...any) {
	f.Helper()
	f.tell(strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	f.T.FailNow()
}

func (f *flight) Fatalf(format string, args ...any) {
	f.Helper()
	f.tell(fmt.Sprintf(format, args...))
	f.T.FailNow()
}
