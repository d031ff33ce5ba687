package main

// docs/openapi.yaml is read: the parts of YAML and of JSON Schema that the page uses.

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	text := pageText(t, "openapi.yaml")
	d := &described{fields: make(map[string][]string)}
	var section, name, part string // such as /api/drone, get, responses; or schemas, Status, properties
	for line := range strings.Lines(text) {
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

// Whether an answer fits docs/openapi.yaml: the parts of YAML and of JSON Schema that the page uses.

// yamlReader reads the YAML of openapi.yaml: block and flow collections, quoted, plain and block scalars.
type yamlReader struct {
	lines []string
	next  int // of the line that is read next
}

// readYAML returns the page as maps, lists, strings, numbers, booleans and nil.
func readYAML(text string) (any, error) {
	r := &yamlReader{lines: strings.Split(text, "\n")}
	v := r.block(0)
	if _, line, ok := r.line(); ok {
		return nil, fmt.Errorf("line %d: not read: %s", r.next+1, line)
	}
	return v, nil
}

// line is the next line that is not empty and no comment, and its indentation.
func (r *yamlReader) line() (indent int, text string, ok bool) {
	for ; r.next < len(r.lines); r.next++ {
		text = strings.TrimLeft(r.lines[r.next], " ")
		if text != "" && !strings.HasPrefix(text, "#") {
			return len(r.lines[r.next]) - len(text), text, true
		}
	}
	return 0, "", false
}

// block reads the collection whose lines have at least this indentation.
func (r *yamlReader) block(least int) any {
	indent, text, ok := r.line()
	if !ok || indent < least {
		return nil
	}
	if strings.HasPrefix(text, "- ") {
		list := []any{}
		for {
			i, item, ok := r.line()
			if !ok || i != indent || !strings.HasPrefix(item, "- ") {
				return list
			}
			item = strings.TrimLeft(item[2:], " ")
			if !yamlKey.MatchString(item) {
				r.next++
				list = append(list, r.scalar(item, indent))
				continue
			}
			r.lines[r.next] = strings.Repeat(" ", indent+2) + item // its first key; the others follow
			list = append(list, r.block(indent+2))
		}
	}
	object := map[string]any{}
	for {
		i, line, ok := r.line()
		if !ok || i != indent || !yamlKey.MatchString(line) {
			return object
		}
		r.next++
		m := yamlKey.FindStringSubmatch(line)
		key := strings.Trim(m[1], `"`)
		if m[2] == "" {
			object[key] = r.block(indent + 1)
		} else {
			object[key] = r.scalar(m[2], indent)
		}
	}
}

var yamlKey = regexp.MustCompile(`^("[^"]*"|[^\s"{\[\]}#&*!|>'%@,-][^:{\[]*?):(?: +(.*))?$`)

// scalar reads what stands behind a key or a dash at an indentation.
func (r *yamlReader) scalar(text string, indent int) any {
	if text == "|" {
		var b []string
		for ; r.next < len(r.lines); r.next++ {
			line := r.lines[r.next]
			if strings.TrimSpace(line) != "" && len(line)-len(strings.TrimLeft(line, " ")) <= indent {
				break
			}
			b = append(b, strings.TrimSpace(line))
		}
		return strings.Join(b, "\n")
	}
	v, rest := flow(text)
	if strings.TrimSpace(rest) != "" {
		return text // a plain scalar with a comma or a colon
	}
	return v
}

// flow reads a value on one line, and returns what is left of the line.
func flow(s string) (v any, rest string) {
	s = strings.TrimLeft(s, " ")
	switch {
	case s == "":
		return nil, ""
	case s[0] == '"':
		end := 1
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		text, err := strconv.Unquote(s[:end+1])
		if err != nil {
			return s[1:end], s[end+1:]
		}
		return text, s[end+1:]
	case s[0] == '[':
		list := []any{}
		for s = strings.TrimLeft(s[1:], " "); !strings.HasPrefix(s,
			"]"); s = strings.TrimLeft(strings.TrimPrefix(s, ","), " ") {
			v, s = flow(s)
			list = append(list, v)
			s = strings.TrimLeft(s, " ")
		}
		return list, s[1:]
	case s[0] == '{':
		object := map[string]any{}
		for s = strings.TrimLeft(s[1:], " "); !strings.HasPrefix(s,
			"}"); s = strings.TrimLeft(strings.TrimPrefix(s, ","), " ") {
			key, value, _ := strings.Cut(s, ":")
			v, s = flow(value)
			object[strings.Trim(key, `" `)] = v
			s = strings.TrimLeft(s, " ")
		}
		return object, s[1:]
	}
	end := strings.IndexAny(s, ",]}")
	if end < 0 {
		end = len(s)
	}
	return plain(strings.TrimRight(s[:end], " ")), s[end:]
}

// plain is a value without quotes.
func plain(s string) any {
	switch s {
	case "null", "~":
		return nil
	case "true", "false":
		return s == "true"
	}
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return n
	}
	return s
}

// schemas are those of docs/openapi.yaml.
var schemas = sync.OnceValue(func() map[string]any {
	text, err := os.ReadFile("docs/openapi.yaml")
	if err != nil {
		panic(err)
	}
	page, err := readYAML(string(text))
	if err != nil {
		panic(err)
	}
	return page.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
})

// schemaWords are the keywords that fits checks or may ignore. Any other is an error: it would check nothing.
var schemaWords = []string{
	"description", "format", "examples", "default", "$ref", "anyOf", "type", "enum", "const", "pattern", "minimum",
	"maximum", "items", "maxItems", "properties", "required", "additionalProperties", "dependentRequired", "not",
}

// fits returns where a value does not fit a schema, and why.
func fits(schema any, v any, at string) (faults []string) {
	s, ok := schema.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s: the schema is %v", at, schema)}
	}
	fault := func(format string, args ...any) {
		faults = append(faults, at+": "+fmt.Sprintf(format, args...))
	}
	for word := range s {
		if !slices.Contains(schemaWords, word) {
			fault("the schema's word %q is not known here", word)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		faults = append(faults, fits(schemas()[strings.TrimPrefix(ref, "#/components/schemas/")], v, at)...)
	}
	if any, ok := s["anyOf"].([]any); ok {
		var each []string
		for _, one := range any {
			misfits := fits(one, v, at)
			if len(misfits) == 0 {
				each = nil
				break
			}
			each = append(each, misfits...)
		}
		faults = append(faults, each...)
	}
	if not, ok := s["not"]; ok && len(fits(not, v, at)) == 0 {
		fault("%v is what it must not be", v)
	}
	if types, ok := s["type"]; ok && !ofType(types, v) {
		fault("%v (%T) is no %v", v, v, types)
	}
	if list, ok := s["enum"].([]any); ok && !slices.Contains(list, v) {
		fault("%v is none of %v", v, list)
	}
	if c, ok := s["const"]; ok && c != v {
		fault("%v is not %v", v, c)
	}
	switch v := v.(type) {
	case float64:
		if least, ok := s["minimum"].(float64); ok && v < least {
			fault("%v is less than %v", v, least)
		}
		if most, ok := s["maximum"].(float64); ok && v > most {
			fault("%v is more than %v", v, most)
		}
	case string:
		if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			fault("%q does not match %s", v, p)
		}
	case []any:
		if most, ok := s["maxItems"].(float64); ok && len(v) > int(most) {
			fault("%d items, more than %v", len(v), most)
		}
		for i, item := range v {
			if items, ok := s["items"]; ok {
				faults = append(faults, fits(items, item, fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
	case map[string]any:
		faults = append(faults, fieldsFit(s, v, at)...)
	}
	return faults
}

// fieldsFit is fits for the fields of an object.
func fieldsFit(s, v map[string]any, at string) (faults []string) {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			faults = append(faults, fmt.Sprintf("%s: %v is missing", at, name))
		}
	}
	for name, value := range v {
		schema, ok := properties[name]
		switch {
		case ok:
			faults = append(faults, fits(schema, value, at+"."+name)...)
		case s["additionalProperties"] == false:
			faults = append(faults, fmt.Sprintf("%s: %s is not described", at, name))
		}
	}
	dependents, _ := s["dependentRequired"].(map[string]any)
	for name, list := range dependents {
		for _, other := range list.([]any) {
			_, has := v[name]
			if _, ok := v[other.(string)]; has && !ok {
				faults = append(faults, fmt.Sprintf("%s: %s without %v", at, name, other))
			}
		}
	}
	return faults
}

// ofType reports whether a value has a type of JSON Schema, or one of several.
func ofType(types, v any) bool {
	if list, ok := types.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return ofType(one, v) })
	}
	is := ""
	switch v := v.(type) {
	case nil:
		is = "null"
	case bool:
		is = "boolean"
	case string:
		is = "string"
	case []any:
		is = "array"
	case map[string]any:
		is = "object"
	case float64:
		is = "number"
		if types == "integer" && v == math.Trunc(v) {
			is = "integer"
		}
	}
	return types == is || types == nil && is == "null" // YAML's null
}

// misfits returns where an answer in JSON does not fit a schema of the page.
func misfits(schema string, answer []byte) []string {
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		return []string{err.Error()}
	}
	return fits(map[string]any{"$ref": "#/components/schemas/" + schema}, v, schema)
}

// anyPayload is a payload of n bytes: random ones, runs of the least and greatest numbers, floats that are no
// numbers, and mostly zeros, which MAVLink 2 cuts off.
func anyPayload(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; {
		run := 1 + r.IntN(8)
		kind := r.IntN(8)
		for j := range min(run, n-i) {
			switch kind {
			case 0:
				b[i+j] = 0xff
			case 1:
				b[i+j] = []byte{0, 0, 0xc0, 0x7f}[(i+j)%4] // NaN
			case 2:
				b[i+j] = []byte{0, 0, 0x80, 0x7f}[(i+j)%4] // infinite
			case 3:
				b[i+j] = []byte{0xff, 0xff, 0xff, 0x7f}[(i+j)%4] // the greatest int32
			case 4:
				b[i+j] = []byte{0, 0, 0, 0x80}[(i+j)%4] // the least int32
			case 5, 6:
				b[i+j] = byte(r.Uint32())
			}
		}
		i += run
	}
	return b
}
