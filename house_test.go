package main

// What docs/design.md and CONTRIBUTING.md say of the source, held by reading it: the rule of drone.mu (CONTRIBUTING.md,
// "The mutex"), the breaks, the simulator's independence, the order of the files and what is pure.

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestTheMutexIsLockedByWhatItsNameSays(t *testing.T) {
	t.Parallel()
	sources := programSources(t)
	for _, wrong := range checkMutex(t, sources) {
		t.Error(wrong)
	}

	for from, c := range map[string]struct{ file, old, new string }{
		"hearMessage uses drone.tel and may be called without the mutex": {"drone.go",
			"d.change(func() { d.hearMessage(h) })", "d.hearMessage(h)"},
		"mode is called with the mutex locked, and locks it": {"carry.go", "	if d.cmd.manoeuvre != m ||",
			"	d.mode()\n	if d.cmd.manoeuvre != m ||"},
		"watch makes a waiter": {"drone.go",
			"d.wg.Go(func() { d.changeMayWait(func(w waiter) { d.landThere(w, m) }) })", "d.landThere(waiter{}, m)"},
		"commander keeps a waiter": {"task.go", "	acks *acks\n",
			"	acks *acks\n	w waiter\n"},
		"status uses the mutex itself": {"drone.go",
			"	d.locked(func() {\n		s := d.snapshot(",
			"	d.mu.Lock()\n	d.locked(func() {\n		s := d.snapshot("},
		// The status of v1.4.0's first days: a fatal concurrent read of a map, in flight.
		"status lets the drone's own map[string]float64 out of the mutex": {"drone.go",
			"	d.locked(func() {\n		s := d.snapshot(",
			"	var s snapshot\n	d.locked(func() {\n		s = d.snapshot("},
		"mode lets the drone's own []statusText out of the mutex": {"drone.go",
			"	d.locked(func() {\n		mode = d.machine.mode\n",
			"	var said []statusText\n	d.locked(func() {\n		said = d.tel.texts.kept\n" +
				"		mode = d.machine.mode\n"},
		"mode lets the drone's own *step out of the mutex": {"drone.go",
			"	d.locked(func() {\n		mode = d.machine.mode\n",
			"	var p plan\n	d.locked(func() {\n		p = d.cmd.current().plan\n" +
				"		mode = d.machine.mode\n"},
	} {
		broken := make(map[string]string)
		for name, text := range sources {
			broken[name] = text
		}
		if broken[c.file] = strings.Replace(sources[c.file], c.old, c.new, 1); broken[c.file] == sources[c.file] {
			t.Fatalf("%s has no %q", c.file, c.old)
		}
		if list := checkMutex(t, broken); !slices.ContainsFunc(list,
			func(s string) bool { return strings.Contains(s, from) }) {
			t.Errorf("not found: %s; only %q", from, list)
		}
	}
}

func TestBreaksFollowTheSource(t *testing.T) {
	t.Parallel()
	original := copySource(t)
	design, facts, contract := pageText(t, "design.md"), pageText(t, "autopilots.md"), pageText(t, "openapi.yaml")
	isRule := func(rule string) bool {
		schema, ofContract := strings.CutPrefix(rule, "openapi.yaml, ")
		switch _, err := strconv.Atoi(rule); {
		case err == nil:
			return strings.Contains(design, "# Rule "+rule+": ")
		case ofContract:
			return strings.Contains(contract, "\n    "+schema+":\n")
		}
		return hasHeading(design, rule) || hasHeading(facts, rule)
	}
	for _, b := range readBreaks(t) {
		t.Run(b.name, func(t *testing.T) {
			if !isRule(b.rule) || len(b.changes) == 0 || len(b.noticers) == 0 {
				t.Errorf("it needs a rule that there is, not %q, a change and a test that fails", b.rule)
			}
			for _, n := range b.noticers {
				if !n.exists() {
					t.Errorf("there is no %s", n.test)
				}
			}
			folder := t.TempDir()
			for _, c := range b.changes {
				source, _ := os.ReadFile(filepath.Join(original, c.file))
				to := filepath.Join(folder, c.file)
				made := os.MkdirAll(filepath.Dir(to), 0o755)
				if err := errors.Join(made, os.WriteFile(to, source, 0o644)); err != nil {
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

func TestFailuresAreCountedByTheirRuns(t *testing.T) {
	output := "--- FAIL: TestFlights (1.2s)\n    --- FAIL: TestFlights/landing/a_b/px4 (0.1s)\n" +
		"    --- FAIL: TestFlights/landing/a_b/copter (0.1s)\n--- FAIL: TestOther (0.1s)\nFAIL\n"
	if got := fmt.Sprint(failures(output)); got != "map[TestFlights/landing:2 TestOther:1]" {
		t.Error(got)
	}
}

// simulatorUses are what the simulated autopilots use of the program: its codec, and what it calls a port. They share
// no more with it, because they could not find wrong what they share.
var simulatorUses = []string{"MessageEkfStatusReport", "dialectRW", "newDialect", "port", "emptied"}

func TestTheSimulatorUsesOnlyTheCodecOfTheProgram(t *testing.T) {
	program := make(map[string]bool)
	files := parseSources(t)
	for name, f := range files {
		if isSimulator(name) {
			continue
		}
		for _, name := range declared(f) {
			program[name] = true
		}
	}
	uses := make(map[string]bool)
	for file, f := range files {
		if !isSimulator(file) {
			continue
		}
		for name := range usedNames(f) {
			if program[name] && name != "main" && name != "init" {
				uses[name] = true
				if !slices.Contains(simulatorUses, name) {
					t.Errorf("%s uses %s of the program", file, name)
				}
			}
		}
	}
	for _, name := range simulatorUses {
		if !uses[name] {
			t.Errorf("nothing of the simulator uses %s: take it from simulatorUses", name)
		}
	}
}

// What both simulated autopilots share is a method of simulator. If one of them had a method of the same name, it
// would be hard to say which of the two is called.
func TestNoSimulatedAutopilotHidesWhatBothShare(t *testing.T) {
	methods := make(map[string][]string) // by the type
	for file, f := range parseSources(t) {
		if !isSimulator(file) {
			continue
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
				of := strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
				methods[of] = append(methods[of], d.Name.Name)
			}
		}
	}
	for _, autopilot := range []string{"simPX4Brain", "simArduBrain"} {
		if len(methods[autopilot]) == 0 {
			t.Fatalf("%s has no methods", autopilot)
		}
		for _, name := range methods[autopilot] {
			if slices.Contains(methods["simulator"], name) {
				t.Errorf("%s.%s hides simulator.%s", autopilot, name, name)
			}
		}
	}
}

func TestAFileUsesOnlyWhatStandsBelowIt(t *testing.T) {
	t.Parallel()
	list := rooms(t)
	sources := programSources(t)
	p := parse(t, sources)
	for _, wrong := range append(wrongRooms(list, sources), usesAbove(list, p)...) {
		t.Errorf("docs/design.md, The house: %s", wrong)
	}

	at := func(name string) int {
		return slices.IndexFunc(list, func(r room) bool { return slices.Contains(r.files, name) })
	}
	mode, vehicle, step := at("mode.go"), at("vehicle.go"), at("step.go")
	swapped := slices.Clone(list)
	swapped[mode], swapped[vehicle] = list[vehicle], list[mode]
	with := func(rooms ...room) []room { return append(slices.Clone(list), rooms...) }
	for says, wrong := range map[string][]room{
		"mode.go uses flies of vehicle.go, which stands above it": swapped,
		"step.go is not listed":                                   slices.Delete(slices.Clone(list), step, step+1),
		"step.go is listed twice":                                 with(room{files: []string{"step.go"}}),
		"steps.go is listed, and there is no such file":           with(room{files: []string{"steps.go"}}),
		"items have more than one file, at most 3 may": with(room{files: []string{"a.go", "b.go"}},
			room{files: []string{"c.go", "d.go"}}),
	} {
		found := append(wrongRooms(wrong, sources), usesAbove(wrong, p)...)
		if !slices.ContainsFunc(found, func(s string) bool { return strings.HasSuffix(s, says) }) {
			t.Errorf("not found: %s; only %q", says, found)
		}
	}
	sources["frame.go"] += "\nvar up = offlineAfter\n"
	if found := usesAbove(list, parse(t, sources)); len(found) != 1 ||
		!strings.HasSuffix(found[0], "frame.go uses offlineAfter of telemetry.go, which stands above it") {
		t.Errorf("a use of what stands above is not found: %q", found)
	}
}

func TestWhatIsCalledPureIsPure(t *testing.T) {
	t.Parallel()
	list := rooms(t)
	sources := programSources(t)
	for _, wrong := range checkPure(t, list, sources) {
		t.Errorf("docs/design.md, The house: %s", wrong)
	}
	for name, source := range map[string]string{
		"mode.go":    "func asksTheClock() time.Time { return time.Now() }\n\nfunc waits(c chan int) { <-c }",
		"heard.go":   "func counts() { helps() }\n\nfunc helps() { slog.Info(\"counted\") }",
		"sticks.go":  "func (s *sticks) locks(d *drone) { d.mu.Lock() }",
		"command.go": "func (s *step) proven() { go s.arms() }",
	} {
		sources[name] = strings.Replace(sources[name]+"\n"+source+"\n", "import (", "import (\n\t\"log/slog\"", 1)
	}
	found := checkPure(t, append(list, room{[]string{"task.go"}, "Its turn. Pure: `turns`"}), sources)
	slices.Sort(found)
	if want := []string{
		"command.go: proven is not pure: go",
		"heard.go: counts is not pure: helps: log/slog",
		"heard.go: helps is not pure: log/slog",
		"mode.go: asksTheClock is not pure: time.Now",
		"mode.go: waits is not pure: chan",
		"sticks.go: locks is not pure: mu",
		"task.go has no turns",
	}; !slices.Equal(found, want) {
		t.Errorf("found %q,\nwant %q", found, want)
	}
}

func TestWhatSeveralTestsUseStandsInAKit(t *testing.T) {
	t.Parallel()
	sources := programSources(t)
	names, _ := filepath.Glob("*_test.go")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = string(text)
	}
	for _, wrong := range strays(parse(t, sources)) {
		t.Errorf("CONTRIBUTING.md, Where tests and their tools stand: %s", wrong)
	}

	found := strays(parse(t, map[string]string{
		"kit_a_test.go": "package main\n\nfunc TestInAKit() { here() }\n\nfunc TestMain() { there() }\n\n" +
			"func there() {}",
		"b_test.go": "package main\n\nfunc here() { there() }\n\nfunc TestB() { here() }",
	}))
	slices.Sort(found)
	if want := []string{"kit_a_test.go is a kit and has TestInAKit",
		"kit_a_test.go uses here of b_test.go, which is no kit"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
