package main

// docs/openapi.yaml names every route, field and code of the server, and no other. .ci/api
// checks with the running program whether what it says of them is true.

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
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

func same(t *testing.T, what string, described, served []string) {
	t.Helper()
	if len(served) == 0 || !slices.Equal(described, served) {
		t.Errorf("%s\n described: %s\n    served: %s", what, strings.Join(described, ", "), strings.Join(served, ", "))
	}
}

func TestOpenAPINamesEveryRouteAndNoOther(t *testing.T) {
	var served []string
	for _, r := range new(api).routes() {
		served = append(served, r.method+" "+r.path)
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

// answerTypes are the types of the answers, by their schema. The type of a field has a schema too.
var answerTypes = map[string]any{
	"OK": okBody{}, "ModeAnswer": modeBody{}, "InputAnswer": inputAnswer{}, "CommandAnswer": commandBody{},
	"Error":  errorBody{},
	"Status": statusBody{}, "Vehicle": vehicleBody{}, "Position": positionBody{}, "Velocity": velocityBody{},
	"Attitude": attitudeBody{}, "Battery": batteryBody{}, "GPS": gpsBody{}, "Home": homeBody{}, "Target": targetBody{},
	"Input": inputBody{}, "Link": linkBody{}, "Message": messageBody{},
}

// jsonFields are the names of a struct's fields in JSON, with those of an embedded struct. seen is called with
// the type of each field.
func jsonFields(t reflect.Type, seen func(reflect.Type)) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
		seen(f.Type)
	}
	slices.Sort(names)
	return names
}

func TestOpenAPINamesEveryFieldOfAnAnswerAndNoOther(t *testing.T) {
	described := readDescription(t).fields
	belongs := make(map[reflect.Type]bool)
	for _, body := range answerTypes {
		belongs[reflect.TypeOf(body)] = true
	}
	for schema, body := range answerTypes {
		fields := jsonFields(reflect.TypeOf(body), func(field reflect.Type) {
			for field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice {
				field = field.Elem()
			}
			if field.Kind() == reflect.Struct && !belongs[field] {
				t.Errorf("%s has a field of the type %s, which has no schema", schema, field)
			}
		})
		same(t, schema, described[schema], fields)
	}
	for schema := range described {
		if _, ok := answerTypes[schema]; !ok && !strings.HasSuffix(schema, "Request") {
			t.Errorf("%s is described, and no type has its fields", schema)
		}
	}
}

// Of what is not known the name is served too.
func TestEveryFieldOfTheStatusIsServed(t *testing.T) {
	var status, link map[string]any
	body := []byte(call(silent(), "GET", "/api/drone/status", nil).body)
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatal(err)
	}
	same(t, "the status", readDescription(t).fields["Status"], slices.Sorted(maps.Keys(status)))
	link, _ = status["link"].(map[string]any)
	same(t, "the status's link", readDescription(t).fields["Link"], slices.Sorted(maps.Keys(link)))
}

// sourceFiles are the program's own.
func sourceFiles() []string {
	names, _ := filepath.Glob("*.go")
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
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
	errors := regexp.MustCompile(`\berror: ("(?:[^"\\]|\\.)*"|[a-z][^,{}\n]*)`)
	for _, m := range errors.FindAllStringSubmatch(string(text), -1) {
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
