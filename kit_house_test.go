package main

// How the source is read for the tests of house_test.go: who calls what with drone.mu locked, the breaks, the list of
// files and what is pure.

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
	"sync"
	"testing"
)

// lockers run what they are given with drone.mu locked. Only these lock it.
var lockers = []string{"locked", "change", "changeQuietly", "changeMayWait"}

// unlockers may use the mutex too.
var unlockers = []string{"unlockChanged", "pause"}

// parsed is some source with its types, as far as they are its own.
type parsed struct {
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

// parse parses the source of a program, by the names of its files.
func parse(t *testing.T, sources map[string]string) parsed {
	t.Helper()
	p := parsed{
		fset: token.NewFileSet(),
		info: &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object),
			Types: make(map[ast.Expr]types.TypeAndValue)},
	}
	for name, text := range sources {
		f, err := parser.ParseFile(p.fset, name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, f)
	}

	// Other packages are not loaded: what comes from them has no type, which is an error here and no harm.
	conf := types.Config{Importer: noImporter{}, Error: func(error) {}}
	conf.Check("main", p.fset, p.files, p.info)
	return p
}

type noImporter struct{}

func (noImporter) Import(string) (*types.Package, error) { return nil, fs.ErrNotExist }

// programSources are the files of the program and of the simulator, by their names.
func programSources(t *testing.T) map[string]string {
	t.Helper()
	sources := make(map[string]string)
	names, _ := filepath.Glob("*.go")
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = string(text)
	}
	return sources
}

// underMutex is what the calls of a package do with drone.mu.
type underMutex struct {
	parsed
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
		parsed: parse(t, sources), bodies: make(map[types.Object]ast.Node), seen: make(map[visited]bool),
		owns: make(map[string]bool),
	}
	used := make(map[types.Object]bool)
	for _, o := range u.info.Uses {
		used[o] = true
	}
	for _, f := range u.files {
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
	return strings.Contains(testSources(), "\nfunc "+test+"(")
}

// testSources are all tests.
var testSources = sync.OnceValue(func() string {
	all := "\n"
	names, _ := filepath.Glob("*_test.go")
	for _, name := range names {
		source, _ := os.ReadFile(name)
		all += string(source)
	}
	return all
})

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

func isKit(file string) bool { return strings.HasPrefix(file, "kit_") }

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

// room is an item of the list of files in docs/design.md: its files, and what the page says of them.
type room struct {
	files []string
	says  string
}

// rooms are the items of the list, from the top of the house to the bottom.
func rooms(t *testing.T) (list []room) {
	t.Helper()
	_, house, _ := strings.Cut(pageText(t, "design.md"), "## The house")
	house, _, _ = strings.Cut(house, "\n### ")
	item := regexp.MustCompile("(?m)^- (`[a-z0-9_]+\\.go`(?:, `[a-z0-9_]+\\.go`)*): (.*)$")
	for _, m := range item.FindAllStringSubmatch(house, -1) {
		list = append(list, room{strings.Split(strings.ReplaceAll(m[1], "`", ""), ", "), m[2]})
	}
	return list
}

// mostShared is how many items of the list may have more than one file. Files of one item may use each other, so the
// more of them there are the less the order says.
const mostShared = 3

// wrongRooms returns where the list and the files of some source differ.
func wrongRooms(list []room, sources map[string]string) (wrong []string) {
	var listed []string
	shared := 0
	for _, r := range list {
		if len(r.files) > 1 {
			shared++
		}
		for _, name := range r.files {
			if slices.Contains(listed, name) {
				wrong = append(wrong, name+" is listed twice")
			}
			if sources[name] == "" {
				wrong = append(wrong, name+" is listed, and there is no such file")
			}
			listed = append(listed, name)
		}
	}
	if shared > mostShared {
		wrong = append(wrong, fmt.Sprintf("%d items have more than one file, at most %d may", shared, mostShared))
	}
	for name := range sources {
		if !slices.Contains(listed, name) {
			wrong = append(wrong, name+" is not listed")
		}
	}
	return wrong
}

// usesAbove returns what files of some source use of a file that stands above them in the list.
func usesAbove(list []room, p parsed) (wrong []string) {
	level := make(map[string]int)
	for i, r := range list {
		for _, name := range r.files {
			level[name] = i
		}
	}
	for id, o := range p.info.Uses {
		from, to := p.fset.Position(id.Pos()), p.fset.Position(o.Pos())
		if to.IsValid() && level[from.Filename] > level[to.Filename] {
			wrong = append(wrong, fmt.Sprintf("%s: %s uses %s of %s, which stands above it", from, from.Filename,
				id.Name, to.Filename))
		}
	}
	return wrong
}

// clocks are the functions of the package time that have a clock.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"}

// purity finds what some source does that docs/design.md does not call pure.
type purity struct {
	parsed
	functions map[types.Object]*ast.FuncDecl

	// shared are the fields and variables that hold a mutex, a channel or a log.
	shared map[types.Object]bool
}

func newPurity(t *testing.T, sources map[string]string) *purity {
	t.Helper()
	p := &purity{
		parsed: parse(t, sources), functions: make(map[types.Object]*ast.FuncDecl), shared: make(map[types.Object]bool),
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				p.functions[p.info.Defs[n.Name]] = n
			case *ast.Field:
				if _, function := n.Type.(*ast.FuncType); function || p.direct(n.Type) == "" {
					break
				}
				for _, name := range n.Names {
					p.shared[p.info.Defs[name]] = true
				}
			}
			return true
		})
	}
	return p
}

// direct is what some source itself does that is not pure; "" if it is pure.
func (p *purity) direct(source ast.Node) (what string) {
	ast.Inspect(source, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "go"
		case *ast.ChanType:
			what = "chan"
		case *ast.Ident:
			if p.shared[p.info.Uses[n]] {
				what = n.Name
			}
		case *ast.SelectorExpr:
			x, _ := n.X.(*ast.Ident)
			if of, ok := p.info.Uses[x].(*types.PkgName); ok {
				switch path := of.Imported().Path(); path {
				case "log", "log/slog", "sync", "sync/atomic":
					what = path
				case "time":
					if slices.Contains(clocks, n.Sel.Name) {
						what = "time." + n.Sel.Name
					}
				}
			}
		}
		return what == ""
	})
	return what
}

// follow is what a function does that is not pure, with the functions that lead to it; "" if it is pure.
func (p *purity) follow(function types.Object, seen map[types.Object]bool) (what string) {
	f := p.functions[function]
	if f == nil || f.Body == nil || seen[function] {
		return ""
	}
	seen[function] = true
	if what = p.direct(f); what != "" {
		return what
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && what == "" {
			if what = p.follow(p.info.Uses[id], seen); what != "" {
				what = id.Name + ": " + what
			}
		}
		return what == ""
	})
	return what
}

// checkPure returns what is not pure of what the list calls pure: of a room's files all functions, or those that it
// names.
func checkPure(t *testing.T, list []room, sources map[string]string) (wrong []string) {
	t.Helper()
	p := newPurity(t, sources)
	word := regexp.MustCompile("`([a-zA-Z]+)`")
	for _, r := range list {
		_, says, pure := strings.Cut(r.says, ". Pure")
		if !pure {
			continue
		}
		missing := make(map[string]bool)
		for _, m := range word.FindAllStringSubmatch(says, -1) {
			missing[m[1]] = true
		}
		all := len(missing) == 0
		for o, f := range p.functions {
			if o == nil || !slices.Contains(r.files, p.fset.Position(f.Pos()).Filename) {
				continue
			}
			if _, named := missing[o.Name()]; !all && !named {
				continue
			}
			missing[o.Name()] = false
			if what := p.follow(o, make(map[types.Object]bool)); what != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s is not pure: %s", r.files[0], o.Name(), what))
			}
		}
		for name, is := range missing {
			if is {
				wrong = append(wrong, r.files[0]+" has no "+name)
			}
		}
	}
	return wrong
}

// strays are what stands in the wrong file of some source: a test in a kit, and a tool that another file uses in a
// file of tests.
func strays(p parsed) (wrong []string) {
	isTest := regexp.MustCompile("^(Test|Fuzz|Benchmark)[A-Z]")
	for _, f := range p.files {
		name := p.fset.Position(f.Pos()).Filename
		for _, function := range declared(f) {
			if isKit(name) && isTest.MatchString(function) && function != "TestMain" {
				wrong = append(wrong, fmt.Sprintf("%s is a kit and has %s", name, function))
			}
		}
	}
	for id, o := range p.info.Uses {
		from, to := p.fset.Position(id.Pos()).Filename, p.fset.Position(o.Pos())
		if to.IsValid() && from != to.Filename && strings.HasSuffix(to.Filename, "_test.go") && !isKit(to.Filename) {
			wrong = append(wrong, fmt.Sprintf("%s uses %s of %s, which is no kit", from, id.Name, to.Filename))
		}
	}
	return wrong
}
