package main

// The rule of drone.mu (CONTRIBUTING.md, "The mutex"), held by following the calls in the source.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lockers run what they are given with drone.mu locked. Only these lock it.
var lockers = []string{"locked", "change", "changeMayWait"}

// unlockers may use the mutex too.
var unlockers = []string{"unlockChanged", "pause"}

// underMutex is what the calls of a package do with drone.mu.
type underMutex struct {
	info    *types.Info
	fset    *token.FileSet
	guarded []string // the fields of drone that mu guards
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
		"mode is called with the mutex locked, and locks it": {"drone_plan.go", "	if d.cmd.manoeuvre != m ||",
			"	d.mode()\n	if d.cmd.manoeuvre != m ||"},
		"watch makes a waiter": {"drone_plan.go",
			"d.wg.Go(func() { d.changeMayWait(func(w waiter) { d.landThere(w, m) }) })", "d.landThere(waiter{}, m)"},
		"commander keeps a waiter": {"commander.go", "	acks    *acks\n",
			"	acks    *acks\n	w waiter\n"},
		"status uses the mutex itself": {"api_status.go",
			"	d.locked(func() { s = d.snapshot(time.Now()) })", "	d.mu.Lock()"},
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
