package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// testdata/breaks.txt breaks the program on purpose, one rule at a time, and names the tests that must notice.
// A test that goes takes with it what it noticed: the breaks show that.

var (
	makeBreaks = flag.Bool("breaks", false,
		"make each break in a copy of the source, and run the tests that must notice it")
	findBreaks = flag.Bool("breaks-find", false, "with -breaks: run all tests, and print those that notice")
)

// breakage is a break of the program.
type breakage struct {
	name     string
	rule     string
	changes  []sourceChange
	noticers []noticer
}

// sourceChange replaces lines of a file, which stand there once.
type sourceChange struct{ file, old, new string }

// noticer is a test, or a file of scripts like TestFlights/landing, and how many of its runs fail at least.
type noticer struct {
	test string
	runs int
}

func readBreaks(t *testing.T) (list []*breakage) {
	t.Helper()
	const table = "testdata/breaks.txt"
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		bad := func() { t.Fatalf("%s:%d: what is this? %s", table, i+1, line) }
		if name, begins := strings.CutPrefix(line, "== "); begins {
			list = append(list, &breakage{name: name})
			continue
		}
		if len(list) == 0 {
			bad()
		}
		now := list[len(list)-1]
		change := func() *sourceChange {
			if len(now.changes) == 0 {
				bad()
			}
			return &now.changes[len(now.changes)-1]
		}
		w := strings.Fields(line)
		switch {
		case line[0] == '-':
			change().old += line[1:] + "\n"
		case line[0] == '+':
			change().new += line[1:] + "\n"
		case w[0] == "rule":
			now.rule = strings.Join(w[1:], " ")
		case w[0] == "in" && len(w) == 2:
			now.changes = append(now.changes, sourceChange{file: w[1]})
		case w[0] == "fails" && len(w) == 3:
			n, err := strconv.Atoi(w[2])
			if err != nil || n < 1 {
				bad()
			}
			now.noticers = append(now.noticers, noticer{w[1], n})
		default:
			bad()
		}
	}
	return list
}

// apply makes the break in a copy of the source.
func (b *breakage) apply(folder string) error {
	for _, c := range b.changes {
		file := filepath.Join(folder, c.file)
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if n := strings.Count("\n"+string(source), "\n"+c.old); n != 1 || c.old == "" {
			return fmt.Errorf("%s has these lines %d times, want once: the break must follow the source\n%s", c.file,
				n, c.old)
		}
		broken := strings.Replace("\n"+string(source), "\n"+c.old, "\n"+c.new, 1)[1:]
		if err := os.WriteFile(file, []byte(broken), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copySource copies what go test needs.
func copySource(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if out, err := exec.Command("cp", "-r", ".", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

// exists reports whether there is such a test, or such a file of scripts.
func (n noticer) exists() bool {
	test, file, isFile := strings.Cut(n.test, "/")
	if isFile {
		folder := strings.ToLower(strings.TrimPrefix(test, "Test"))
		_, err := os.Stat(filepath.Join("testdata", folder, file+".txt"))
		return err == nil
	}
	sources, _ := filepath.Glob("*_test.go")
	return slices.ContainsFunc(sources, func(name string) bool {
		source, _ := os.ReadFile(name)
		return strings.Contains(string(source), "\nfunc "+test+"(")
	})
}

var failedRun = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+) \(`)

// failures counts the runs that failed, by test and by file of scripts.
func failures(output string) map[string]int {
	var names []string
	for _, m := range failedRun.FindAllStringSubmatch(output, -1) {
		names = append(names, m[1])
	}
	counts := map[string]int{}
	for _, name := range names {
		if slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			continue // one of its runs failed
		}
		parts := strings.Split(name, "/")
		test := parts[0]
		if len(parts) > 1 && slices.Contains([]string{"TestFlights", "TestMachine", "TestSticks"}, test) {
			counts[test+"/"+parts[1]]++
		} else {
			counts[test]++
		}
	}
	return counts
}

func TestBreaksFollowTheSource(t *testing.T) {
	original := copySource(t)
	for _, b := range readBreaks(t) {
		t.Run(b.name, func(t *testing.T) {
			if b.rule == "" || len(b.changes) == 0 || len(b.noticers) == 0 {
				t.Error("it needs a rule, a change and a test that fails")
			}
			for _, n := range b.noticers {
				if !n.exists() {
					t.Errorf("there is no %s", n.test)
				}
			}
			folder := t.TempDir()
			for _, c := range b.changes {
				source, _ := os.ReadFile(filepath.Join(original, c.file))
				if err := os.WriteFile(filepath.Join(folder, c.file), source, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.apply(folder); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBreaksAreNoticed takes about half a minute for each break.
func TestBreaksAreNoticed(t *testing.T) {
	if !*makeBreaks {
		t.Skip("needs -breaks")
	}
	for _, b := range readBreaks(t) {
		t.Run(b.name, func(t *testing.T) {
			folder := copySource(t)
			if err := b.apply(folder); err != nil {
				t.Fatal(err)
			}
			args := []string{"test", "-vet=off", "-timeout", "30m", "-run", b.pattern(), "."}
			if *findBreaks {
				args = []string{"test", "-vet=off", "-timeout", "30m", "-skip", "TestBreaks", "."}
			}
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir = folder
			out, _ := cmd.CombinedOutput() // the tests fail: that is wanted
			seen := failures(string(out))
			if len(seen) == 0 {
				t.Fatalf("nothing fails; go test says:\n%.4000s", out)
			}
			for _, n := range b.noticers {
				if seen[n.test] < n.runs {
					t.Errorf("%s: %d runs fail, want %d", n.test, seen[n.test], n.runs)
				}
			}
			for test, n := range seen {
				if *findBreaks {
					t.Logf("fails %s %d", test, n)
				}
			}
		})
	}
}

// pattern is the -run of the tests that must notice.
func (b *breakage) pattern() string {
	var tests, files []string
	for _, n := range b.noticers {
		test, file, isFile := strings.Cut(n.test, "/")
		if tests = append(tests, test); isFile {
			files = append(files, file)
		}
	}
	pattern := "^(" + strings.Join(tests, "|") + ")$"
	if len(files) > 0 && len(files) == len(b.noticers) {
		pattern += "/^(" + strings.Join(files, "|") + ")$"
	}
	return pattern
}

func TestFailuresAreCountedByTheirRuns(t *testing.T) {
	output := "--- FAIL: TestFlights (1.2s)\n    --- FAIL: TestFlights/landing/a_b/px4 (0.1s)\n" +
		"    --- FAIL: TestFlights/landing/a_b/copter (0.1s)\n--- FAIL: TestOther (0.1s)\nFAIL\n"
	if got := fmt.Sprint(failures(output)); got != "map[TestFlights/landing:2 TestOther:1]" {
		t.Error(got)
	}
}
