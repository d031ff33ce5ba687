package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Scripts are files: testdata/flights, testdata/machine and testdata/sticks. testdata/README.md
// explains them; kit_flight_words_test.go, kit_machine_test.go and kit_sticks_test.go have their words.

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
