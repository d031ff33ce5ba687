package main

// The rule of drone.mu (CONTRIBUTING.md, "The mutex"), held by following the calls in the source.

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// lockers run what they are given with drone.mu locked. Only these lock it.
var lockers = []string{"locked", "change", "record", "changeMayWait"}

// unlockers may use the mutex too.
var unlockers = []string{"unlockChanged", "pause"}

// underMutex is what the calls of a package do with drone.mu.
type underMutex struct {
	info    *types.Info
	fset    *token.FileSet
	guarded []string        // the fields of drone that mu guards
	owns    map[string]bool // the maps, pointers and slices in them, by their types
	bodies  map[types.Object]ast.Node
	seen    map[visited]bool
	wrong   []string
}

// visited is a function that is called with drone.mu locked, or without.
type visited struct {
	function types.Object
	held     bool
}

// checkMutex returns what in some source breaks the rule.
func checkMutex(t *testing.T, sources map[string]string) []string {
	t.Helper()
	u := &underMutex{
		fset: token.NewFileSet(), bodies: make(map[types.Object]ast.Node), seen: make(map[visited]bool),
		owns: make(map[string]bool),
		info: &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object),
			Types: make(map[ast.Expr]types.TypeAndValue)},
	}
	var files []*ast.File
	for name, text := range sources {
		f, err := parser.ParseFile(u.fset, name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	// Other packages are not loaded: what comes from them has no type, which is an error here and no harm.
	conf := types.Config{Importer: noImporter{}, Error: func(error) {}}
	conf.Check("main", u.fset, files, u.info)

	used := make(map[types.Object]bool)
	for _, o := range u.info.Uses {
		used[o] = true
	}
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				u.bodies[u.info.Defs[d.Name]] = d.Body
			case *ast.GenDecl:
				u.readTypes(d)
			}
		}
	}
	for o, body := range u.bodies {
		if !used[o] { // main, and what net/http and the like call
			u.visit(body, o.Name(), false)
		}
	}
	slices.Sort(u.wrong)
	return slices.Compact(u.wrong)
}

type noImporter struct{}

func (noImporter) Import(string) (*types.Package, error) { return nil, fs.ErrNotExist }

// readTypes finds the fields that drone.mu guards, and waiters that are kept.
func (u *underMutex) readTypes(d *ast.GenDecl) {
	for _, s := range d.Specs {
		spec, ok := s.(*ast.TypeSpec)
		if !ok {
			continue
		}
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		below := false
		for _, field := range fields.Fields.List {
			if isNamed(u.info.Types[field.Type].Type, "waiter") {
				u.report(field, "%s keeps a waiter: it is given from function to function", spec.Name.Name)
			}
			for _, name := range field.Names {
				if spec.Name.Name == "drone" && below {
					u.guarded = append(u.guarded, name.Name)
					references(u.info.Types[field.Type].Type, nil, u.owns)
				}
				below = below || name.Name == "mu"
			}
		}
	}
}

func isNamed(t types.Type, name string) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := t.(*types.Named)
	return ok && n.Obj().Name() == name
}

func (u *underMutex) report(at ast.Node, format string, args ...any) {
	u.wrong = append(u.wrong, u.fset.Position(at.Pos()).String()+": "+fmt.Sprintf(format, args...))
}

// visit follows a body, in the function with that name. held means that drone.mu is locked when it begins.
func (u *underMutex) visit(body ast.Node, function string, held bool) {
	if body == nil {
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			u.visit(n.Call, function, false)
			return false
		case *ast.CallExpr:
			return u.call(n, function, held)
		case *ast.CompositeLit:
			if isNamed(u.info.Types[n].Type, "waiter") && function != "changeMayWait" {
				u.report(n, "%s makes a waiter", function)
			}
		case *ast.SelectorExpr:
			u.field(n, function, held)
		case *ast.Ident:
			u.follow(u.info.Uses[n], held)
		}
		return true
	})
}

// call follows what a call does with the mutex, and reports whether its parts are still to be visited.
func (u *underMutex) call(n *ast.CallExpr, function string, held bool) bool {
	s, ok := n.Fun.(*ast.SelectorExpr)
	if !ok {
		return true
	}
	switch {
	case slices.Contains(lockers, s.Sel.Name) && isNamed(u.info.Types[s.X].Type, "drone"):
		if held {
			u.report(n, "%s is called with the mutex locked, and locks it", function)
		}
		u.follow(u.info.Uses[s.Sel], true) // it settles
		for _, arg := range n.Args {
			u.visit(arg, function, true)
			u.lettingOut(arg, function)
		}
		return false
	case s.Sel.Name == "Go" || s.Sel.Name == "AfterFunc": // another goroutine
		for _, arg := range n.Args {
			u.visit(arg, function, false)
		}
		return false
	}
	return true
}

// field checks the use of one of drone's fields.
func (u *underMutex) field(s *ast.SelectorExpr, function string, held bool) {
	of := u.info.Types[s.X].Type
	switch {
	case s.Sel.Name == "mu" && (isNamed(of, "drone") || isNamed(of, "waiter")):
		if !slices.Contains(slices.Concat(lockers, unlockers), function) {
			u.report(s, "%s uses the mutex itself", function)
		}
	case isNamed(of, "drone") && slices.Contains(u.guarded, s.Sel.Name) && !held &&
		!slices.Contains(append(lockers, "newDrone", "unlockChanged"), function):
		u.report(s, "%s uses drone.%s and may be called without the mutex", function, s.Sel.Name)
	}
}

// mayLeave are the types of the drone's own things that may be used without the mutex, each with the reason.
var mayLeave = map[string]string{
	"*manoeuvre": "whoever waits for one reads its channel, which never changes, and the rest with mu locked",
}

// lettingOut checks what a function that runs with mu locked assigns to variables of the function around it: a copy
// of a struct shares the maps, the slices and what its pointers point to, which go on changing.
func (u *underMutex) lettingOut(locked ast.Expr, function string) {
	ast.Inspect(locked, func(n ast.Node) bool {
		assigned, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for _, to := range assigned.Lhs {
			name, ok := to.(*ast.Ident)
			if !ok {
				continue
			}
			v := u.info.Uses[name]
			if v == nil || v.Pos() >= locked.Pos() && v.Pos() < locked.End() {
				continue
			}
			leaves := make(map[string]bool)
			references(v.Type(), mayLeave, leaves)
			for shared := range leaves {
				if u.owns[shared] {
					u.report(name, "%s lets the drone's own %s out of the mutex", function, shared)
				}
			}
		}
		return true
	})
}

// references finds the maps, the slices and the pointers that a value of a type leads to, by their types. Slices of
// and pointers to numbers and words do not count: answers are made of new ones. Nor does what is in without, and what
// that leads to.
func references(t types.Type, without map[string]string, found map[string]bool) {
	name := types.TypeString(t, func(*types.Package) string { return "" })
	if _, known := without[name]; known || found[name] {
		return
	}
	of := func(elem types.Type) {
		if _, basic := elem.Underlying().(*types.Basic); !basic {
			found[name] = true
		}
		references(elem, without, found)
	}
	switch t := t.(type) {
	case *types.Alias:
		references(types.Unalias(t), without, found)
	case *types.Named:
		references(t.Underlying(), without, found)
	case *types.Struct:
		for i := range t.NumFields() {
			references(t.Field(i).Type(), without, found)
		}
	case *types.Array:
		references(t.Elem(), without, found)
	case *types.Map:
		found[name] = true
		references(t.Elem(), without, found)
	case *types.Slice:
		of(t.Elem())
	case *types.Pointer:
		of(t.Elem())
	}
}

// follow visits a function that is called or referred to.
func (u *underMutex) follow(o types.Object, held bool) {
	body, ok := u.bodies[o]
	if v := (visited{o, held}); ok && !u.seen[v] {
		u.seen[v] = true
		u.visit(body, o.Name(), held)
	}
}

func TestTheMutexIsLockedByWhatItsNameSays(t *testing.T) {
	sources := make(map[string]string)
	names, _ := filepath.Glob("*.go")
	for _, name := range slices.DeleteFunc(names,
		func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = string(text)
	}
	for _, wrong := range checkMutex(t, sources) {
		t.Error(wrong)
	}

	for from, c := range map[string]struct{ file, old, new string }{
		"take uses drone.tel and may be called without the mutex": {"drone.go", "d.change(func() { d.take(h) })",
			"d.take(h)"},
		"mode is called with the mutex locked, and locks it": {"carry.go", "	if d.cmd.manoeuvre != m ||",
			"	d.mode()\n	if d.cmd.manoeuvre != m ||"},
		"watch makes a waiter": {"carry.go",
			"d.wg.Go(func() { d.changeMayWait(func(w waiter) { d.landThere(w, m) }) })", "d.landThere(waiter{}, m)"},
		"commander keeps a waiter": {"task.go", "	acks    *acks\n",
			"	acks    *acks\n	w waiter\n"},
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

// pageText is the text of a page in docs.
func pageText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// hasHeading reports whether a page has a heading of any level.
func hasHeading(page, heading string) bool { return strings.Contains(page, "# "+heading+"\n") }

func TestBreaksFollowTheSource(t *testing.T) {
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

// simulatorUses are what the simulated autopilots use of the program: its codec, and what it calls a port. They share
// no more with it, because they could not find wrong what they share.
var simulatorUses = []string{"MessageEkfStatusReport", "dialectRW", "newDialect", "port"}

// parseSources parses the files of the program and of the simulator, by their names.
func parseSources(t *testing.T) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]*ast.File)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	return files
}

func isSimulator(file string) bool { return strings.HasPrefix(file, "sim") }

// declared returns the names that a file declares at its top level, methods aside.
func declared(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// usedNames returns the names that a file uses and does not declare: no selectors, fields or keys.
func usedNames(f *ast.File) map[string]bool {
	used := make(map[string]bool)
	skip := make(map[*ast.Ident]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			skip[n.Sel] = true
		case *ast.FuncDecl:
			skip[n.Name] = true
		case *ast.Field:
			for _, name := range n.Names {
				skip[name] = true
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				skip[key] = true
			}
		case *ast.Ident:
			if !skip[n] && n.Obj == nil { // the file itself does not declare it
				used[n.Name] = true
			}
		}
		return true
	})
	return used
}

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

// rooms are the files of the program as docs/design.md lists them, a list item each, from the top of the house to the
// bottom. Files of one item share a room, and may use each other.
func rooms(t *testing.T) (level map[string]int) {
	t.Helper()
	_, house, _ := strings.Cut(pageText(t, "design.md"), "## The house")
	house, _, _ = strings.Cut(house, "\n### ")
	level = make(map[string]int)
	item := regexp.MustCompile("(?m)^- (`[a-z0-9_]+\\.go`(?:, `[a-z0-9_]+\\.go`)*):")
	for i, m := range item.FindAllStringSubmatch(house, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			level[strings.Trim(name, "`")] = i
		}
	}
	return level
}

// usesAbove returns what a file of some source uses of a file that stands above it.
func usesAbove(sources map[string]string, level map[string]int) (wrong []string) {
	fset := token.NewFileSet()
	var files []*ast.File
	for name, text := range sources {
		f, err := parser.ParseFile(fset, name, text, 0)
		if err != nil {
			return []string{err.Error()}
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: noImporter{}, Error: func(error) {}}
	conf.Check("main", fset, files, info)
	for id, o := range info.Uses {
		from, to := fset.Position(id.Pos()), fset.Position(o.Pos())
		if to.IsValid() && level[from.Filename] > level[to.Filename] {
			wrong = append(wrong, fmt.Sprintf("%s uses %s of %s, which stands above it", from, id.Name, to.Filename))
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestAFileUsesOnlyWhatStandsBelowIt(t *testing.T) {
	level := rooms(t)
	sources := make(map[string]string)
	names, _ := filepath.Glob("*.go")
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if _, has := level[name]; !has {
			t.Errorf("docs/design.md, The house, does not list %s", name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = string(text)
	}
	for _, wrong := range usesAbove(sources, level) {
		t.Error(wrong)
	}

	// It can fail.
	sources["frame.go"] += "\nvar up = offlineAfter\n"
	if len(usesAbove(sources, level)) != 1 {
		t.Error("a use of what stands above is not found")
	}
}
