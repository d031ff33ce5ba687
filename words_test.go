package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

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
