package main

// docs/openapi.yaml names every route, field and code of the server, and no other. .ci/api
// checks with the running program whether what it says of them is true.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// described is what the OpenAPI file names.
type described struct {
	routes []string            // "GET /api/drone"
	fields map[string][]string // of a schema, sorted
	codes  []string
}

// readDescription reads the file's keys by their indentation.
func readDescription(t *testing.T) *described {
	text, err := os.ReadFile("docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &described{fields: make(map[string][]string)}
	var section, name, part string // such as /api/drone, get, responses; or schemas, Status, properties
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.HasPrefix(key, "#") {
			continue
		}
		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case indent == 2:
			section, name, part = key, "", ""
		case indent == 4:
			name, part = key, ""
			if strings.HasPrefix(section, "/") {
				d.routes = append(d.routes, strings.ToUpper(name)+" "+section)
			}
		case indent == 6:
			part = key
		case indent == 8 && section == "schemas" && part == "properties":
			d.fields[name] = append(d.fields[name], key)
		case indent == 8 && section == "schemas" && name == "ErrorCode" && part == "enum":
			d.codes = append(d.codes, strings.TrimPrefix(key, "- "))
		}
	}
	for _, list := range d.fields {
		slices.Sort(list)
	}
	slices.Sort(d.routes)
	slices.Sort(d.codes)
	return d
}

// sourceFiles are the program's own.
func sourceFiles() []string {
	names, _ := filepath.Glob("*.go")
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// source is the program's source.
func source(t *testing.T) string {
	var all strings.Builder
	for _, name := range sourceFiles() {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

func same(t *testing.T, what string, described, served []string) {
	t.Helper()
	if len(served) == 0 || !slices.Equal(described, served) {
		t.Errorf("%s\n described: %s\n    served: %s", what, strings.Join(described, ", "), strings.Join(served, ", "))
	}
}

func TestOpenAPINamesEveryRouteAndNoOther(t *testing.T) {
	var served []string
	for _, route := range regexp.MustCompile(`"(GET|POST)(?:", "| )(/api[a-z/]*)"`).FindAllStringSubmatch(source(t), -1) {
		served = append(served, route[1]+" "+route[2])
	}
	slices.Sort(served)
	same(t, "routes", readDescription(t).routes, served)
}

func TestOpenAPINamesEveryErrorCodeAndNoOther(t *testing.T) {
	served := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(errorContract))...)))
	same(t, "codes", readDescription(t).codes, served)
}

func TestOpenAPINamesEveryFieldOfARequestAndNoOther(t *testing.T) {
	d := readDescription(t)
	for path := range postRoutes {
		rec := httptest.NewRecorder()
		silent().ServeHTTP(rec, httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(`{"?":0}`)))
		_, names, _ := strings.Cut(rec.Body.String(), "the fields here are: ")
		var served []string
		for _, name := range regexp.MustCompile(`\\"(\w+)\\"`).FindAllStringSubmatch(names, -1) {
			served = append(served, name[1])
		}
		slices.Sort(served)
		last := strings.TrimPrefix(path, "/api/drone/")
		same(t, path, d.fields[strings.ToUpper(last[:1])+last[1:]+"Request"], served)
	}
}

// An object of an answer is a jsonObject of the program, or a struct whose fields with tags
// are on adjacent lines. It has the fields of an embedded struct too.
func TestOpenAPINamesEveryFieldOfAnAnswerAndNoOther(t *testing.T) {
	var fields []string // of the struct that is being read
	var structs [][]string
	structName, byName := "", make(map[string][]string)
	for line := range strings.Lines(source(t)) {
		if typ := regexp.MustCompile(`^type (\w+) struct`).FindStringSubmatch(line); typ != nil {
			structName = typ[1]
		} else if tag := regexp.MustCompile("`json:\"(\\w+)|^\t(\\*\\w+Body)$").FindStringSubmatch(strings.TrimRight(line, "\n")); tag != nil {
			fields = append(fields, tag[1]+tag[2])
		} else if fields != nil {
			structs = append(structs, fields)
			byName["*"+structName] = fields
			fields = nil
		}
	}
	objects := make(map[string]bool) // by their fields; true: the file describes it
	inspect(t, func(n ast.Node) bool {
		o, ok := n.(*ast.CompositeLit)
		if !ok || fmt.Sprint(o.Type) != "jsonObject" {
			return true
		}
		var fields []string
		for i := 0; i < len(o.Elts); i += 2 {
			name, _ := strconv.Unquote(o.Elts[i].(*ast.BasicLit).Value)
			fields = append(fields, name)
		}
		slices.Sort(fields)
		objects[strings.Join(fields, ", ")] = false
		return true
	})
	for _, fields := range structs {
		var all []string
		for _, field := range fields {
			if embedded, ok := byName[field]; ok {
				all = append(all, embedded...)
			} else {
				all = append(all, field)
			}
		}
		slices.Sort(all)
		objects[strings.Join(all, ", ")] = false
	}
	for schema, fields := range readDescription(t).fields {
		if strings.HasSuffix(schema, "Request") {
			continue
		}
		list := strings.Join(fields, ", ")
		if _, ok := objects[list]; !ok {
			t.Errorf("%s is described with the fields %s, which no struct has", schema, list)
		}
		objects[list] = true
	}
	for list, ok := range objects {
		if !ok {
			t.Errorf("a struct has the fields %s, which no schema has", list)
		}
	}
}

// inspect looks at the program's source.
func inspect(t *testing.T, look func(ast.Node) bool) {
	for _, name := range sourceFiles() {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, look)
	}
}

// sentences are the program's texts as patterns: its string literals, joined, with a wildcard
// for every other operand.
func sentences(t *testing.T) (list []*regexp.Regexp) {
	var words func(e ast.Expr) string
	words = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, _ := strconv.Unquote(e.Value)
			return s
		case *ast.BinaryExpr:
			return words(e.X) + words(e.Y)
		}
		return "%v"
	}
	verb := regexp.MustCompile(`%[.0-9]*[a-z]`)
	inspect(t, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		parts := verb.Split(words(e), -1)
		if fixed := strings.Join(parts, ""); len(fixed) > 12 && strings.Contains(fixed, " ") {
			for i := range parts {
				parts[i] = regexp.QuoteMeta(parts[i])
			}
			list = append(list, regexp.MustCompile("^"+strings.Join(parts, ".*")+"$"))
		}
		return true
	})
	return list
}

func TestOpenAPIsExamplesOfErrorsAreTheProgramsOwnWords(t *testing.T) {
	text, err := os.ReadFile("docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, examples := sentences(t), 0
	for _, m := range regexp.MustCompile(`\berror: ("(?:[^"\\]|\\.)*"|[a-z][^,{}\n]*)`).FindAllStringSubmatch(string(text), -1) {
		said, err := strconv.Unquote(m[1])
		if err != nil {
			said = m[1]
		}
		if said == "null" {
			continue
		}
		said = strings.TrimPrefix(said, "-device /dev/serial0: ") // link.run adds it
		examples++
		if !slices.ContainsFunc(all, func(r *regexp.Regexp) bool { return r.MatchString(said) }) {
			t.Errorf("no sentence of the program reads %q", said)
		}
	}
	if examples < 20 {
		t.Errorf("only %d examples were found", examples)
	}
}
