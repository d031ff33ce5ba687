package main

// docs/openapi.yaml held against the server: what the server has is in the
// file, and what the file says is so.

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// ---- The file's YAML ----

// yamlText reads the YAML that the file is written in: maps and lists, in
// blocks or in braces on one line; plain and double-quoted scalars on one line;
// literal blocks (|); comments on lines of their own. It panics at all else.
type yamlText struct {
	lines []string
	n     int // the next line
}

func readYAML(text string) (v any, err error) {
	y := &yamlText{lines: strings.Split(text, "\n")}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("line %d: %v", y.n, r)
		}
	}()
	v = y.block(0)
	if _, _, more := y.peek(); more {
		y.n++
		panic("not indented as what is around it")
	}
	return v, nil
}

// peek returns the next line that is not empty and no comment.
func (y *yamlText) peek() (indent int, text string, ok bool) {
	for ; y.n < len(y.lines); y.n++ {
		text = strings.TrimLeft(y.lines[y.n], " ")
		if text != "" && text[0] != '#' {
			if strings.Contains(text, "\t") || strings.HasSuffix(text, " ") {
				y.n++
				panic("a tab, or a space at the end")
			}
			return len(y.lines[y.n]) - len(text), text, true
		}
	}
	return 0, "", false
}

var yamlKey = regexp.MustCompile(`^("[^"\\]+"|[A-Za-z$/_][\w$/.-]*):(?: (.*))?$`)

// block reads the map or the list that begins in the next line.
func (y *yamlText) block(indent int) any {
	if at, text, _ := y.peek(); at != indent {
		y.n++
		panic("not indented as what is around it")
	} else if strings.HasPrefix(text, "- ") {
		return y.list(indent)
	}
	m := make(object)
	for {
		at, text, ok := y.peek()
		if !ok || at < indent {
			return m
		}
		y.n++
		key := yamlKey.FindStringSubmatch(text)
		if at > indent || key == nil {
			panic("not a key of the map around it")
		}
		name := strings.Trim(key[1], `"`)
		if _, twice := m[name]; twice {
			panic(name + " twice")
		}
		switch key[2] {
		case "":
			deeper, _, ok := y.peek()
			if !ok || deeper <= indent {
				panic(name + " has no value")
			}
			m[name] = y.block(deeper)
		case "|":
			m[name] = y.literal(indent)
		default:
			m[name] = yamlInline(key[2])
		}
	}
}

func (y *yamlText) list(indent int) any {
	l := []any{}
	for {
		at, text, ok := y.peek()
		if !ok || at < indent {
			return l
		}
		item, dash := strings.CutPrefix(text, "- ")
		if at > indent || !dash {
			y.n++
			panic("not an item of the list around it")
		}
		if yamlKey.MatchString(item) { // a map that begins beside its dash
			y.lines[y.n] = strings.Repeat(" ", indent+2) + item
			l = append(l, y.block(indent+2))
		} else {
			y.n++
			l = append(l, yamlInline(item))
		}
	}
}

func (y *yamlText) literal(indent int) any {
	var b strings.Builder
	within := -1
	for ; y.n < len(y.lines); y.n++ {
		line := y.lines[y.n]
		at := len(line) - len(strings.TrimLeft(line, " "))
		if line != "" && at <= indent {
			break
		}
		if within < 0 {
			within = at
		}
		b.WriteString(line[min(within, len(line)):] + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// yamlInline reads a value on one line.
func yamlInline(text string) any {
	v, rest := yamlFlow(text, false)
	if rest != "" {
		panic("left over: " + rest)
	}
	return v
}

var (
	yamlQuoted = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	yamlNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)
	yamlOdd    = regexp.MustCompile("^[-+.?:,\\[\\]{}#&*!|>'\"%@`~0-9]|: | #|:$|^(?i:yes|no|on|off|null|true|false)$")
)

// yamlFlow reads the value that text begins with. within tells that it is in
// braces, where a plain scalar ends at a comma or a bracket.
func yamlFlow(text string, within bool) (v any, rest string) {
	switch text[0] {
	case '{', '[':
		m, l, end := make(object), []any{}, "}"
		if text[0] == '[' {
			end = "]"
		}
		for rest = text[1:]; !strings.HasPrefix(rest, end); {
			name, after, keyed := strings.Cut(rest, ": ")
			if end == "}" {
				if !keyed || !yamlKey.MatchString(name+":") || m[name] != nil {
					panic("not a key: " + rest)
				}
				m[name], rest = yamlFlow(after, true)
			} else {
				v, rest = yamlFlow(rest, true)
				l = append(l, v)
			}
			if after, comma := strings.CutPrefix(rest, ", "); comma {
				rest = after
			} else if !strings.HasPrefix(rest, end) {
				panic("no " + end + " or comma: " + rest)
			}
		}
		if end == "]" {
			return l, rest[1:]
		}
		return m, rest[1:]
	case '"':
		q := yamlQuoted.FindString(text)
		var s string
		if err := json.Unmarshal([]byte(q), &s); err != nil {
			panic("not as JSON quotes it: " + text)
		}
		return s, text[len(q):]
	}
	end := len(text)
	if i := strings.IndexAny(text, ",[]{}"); within && i >= 0 {
		end = i
	}
	text, rest = text[:end], text[end:]
	switch {
	case text == "null":
		return nil, rest
	case text == "true", text == "false":
		return text == "true", rest
	case yamlNumber.MatchString(text):
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err)
		}
		return n, rest
	case text == "2d", text == "3d", text == "3.1.0": // strings in any YAML
		return text, rest
	case text == "" || strings.TrimSpace(text) != text || yamlOdd.MatchString(text):
		panic("quote it: " + text)
	}
	return text, rest
}

func TestOpenAPIReaderTakesItsYAMLAndNoOther(t *testing.T) {
	for _, test := range []struct{ yaml, want string }{
		{"a: 1\nb:\n  - x y\n  - {c: -0.5, d: [null, \"n: u\\\"\"]}\n  - e: true\n    \"404\": |\n      two\n\n        lines\n  # no\n/f: 3d\n",
			`{"/f":"3d","a":1,"b":["x y",{"c":-0.5,"d":[null,"n: u\""]},{"404":"two\n\n  lines\n","e":true}]}`},
		{"a: {}\nb: []\n", `{"a":{},"b":[]}`},
		{"a: 1\na: 2\n", ""}, {"a: {b: 1, b: 2}\n", ""},
		{"a:\n", ""}, {"a:\nb: 1\n", ""}, {"a: 1\n  b: 2\n", ""}, {"  a: 1\nb: 1\n", ""}, {"a:\n    b: 1\n  c: 2\n", ""},
		{"a: >\n  b\n", ""}, {"a: |-\n  b\n", ""}, {"a: &b 1\n", ""}, {"a: *b\n", ""}, {"a: !c 1\n", ""}, {"a: 'b'\n", ""},
		{"a: b: c\n", ""}, {"a: b # c\n", ""}, {"a: yes\n", ""}, {"a: ~\n", ""}, {"a: 0x1\n", ""}, {"a: 1e3\n", ""}, {"a: 01\n", ""}, {"a: 2020-01-01\n", ""},
		{"a: b\n  c\n", ""}, {"a: [1,\n  2]\n", ""}, {"a: [1 2\n", ""}, {"a: \"b\n", ""}, {"a: {b}\n", ""}, {"a:\tb\n", ""}, {"- a\nb: c\n", ""}, {"---\na: 1\n", ""},
	} {
		v, err := readYAML(test.yaml)
		got, _ := json.Marshal(v)
		if test.want == "" && err == nil || test.want != "" && string(got) != test.want {
			t.Errorf("%q is %s, %v; want %s", test.yaml, got, err, test.want)
		}
	}
}

// ---- The file's schemas ----

// description is docs/openapi.yaml, and what the server was heard to say.
type description struct {
	root object

	mu       sync.Mutex
	problems []string
	answers  map[string]bool // operation and status
	bodies   map[string]bool // without ages
	accepted map[string]bool // examples of commands
	seen     map[string]bool // what of the schemas the answers have shown
}

func readDescription(t *testing.T) *description {
	t.Helper()
	text, err := os.ReadFile("docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	root, err := readYAML(string(text))
	if err != nil {
		t.Fatal("docs/openapi.yaml: ", err)
	}
	return &description{
		root: root.(object), answers: make(map[string]bool), bodies: make(map[string]bool),
		accepted: make(map[string]bool), seen: make(map[string]bool),
	}
}

// follow returns what a $ref means, and where it is.
func (d *description) follow(where string, v any) (string, object) {
	o := v.(object)
	ref, ok := o["$ref"].(string)
	if !ok {
		return where, o
	}
	if len(o) > 1 {
		panic(where + ": more than a $ref")
	}
	var to any = d.root
	for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		if to, ok = to.(object)[name]; !ok {
			panic(where + ": there is no " + ref)
		}
	}
	return d.follow(ref, to)
}

// operationSpec is a method of a path of the file.
type operationSpec struct {
	path, method string
	object
}

// operations lists them in the file's order of names.
func (d *description) operations() []operationSpec {
	var list []operationSpec
	paths := d.root["paths"].(object)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		methods := paths[path].(object)
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			list = append(list, operationSpec{path, strings.ToUpper(method), methods[method].(object)})
		}
	}
	return list
}

func jsonContent(o object) object { return o["content"].(object)["application/json"].(object) }

// body returns the schema and the examples of an operation's body, nil for a
// GET.
func (d *description) body(op operationSpec) (where string, schema object, examples []any) {
	b, ok := op.object["requestBody"].(object)
	if !ok {
		return "", nil, nil
	}
	c := jsonContent(b)
	where, schema = d.follow(op.path, c["schema"])
	all := c["examples"].(object)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		examples = append(examples, all[name].(object)["value"])
	}
	return where, schema, examples
}

// response returns one response of an operation.
func (d *description) response(op operationSpec, status string) (where string, response object, ok bool) {
	r, ok := op.object["responses"].(object)[status]
	if !ok {
		return "", nil, false
	}
	where, response = d.follow(op.method+" "+op.path+" "+status, r)
	return where, response, true
}

func jsonType(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// types are the types of a schema.
func types(schema object) []any {
	switch names := schema["type"].(type) {
	case string:
		return []any{names}
	case []any:
		return names
	}
	return nil
}

func hasType(schema object, v any) bool {
	names := types(schema)
	if n, ok := v.(float64); ok && n == math.Trunc(n) && slices.Contains(names, any("integer")) {
		return true
	}
	return len(names) == 0 || slices.Contains(names, any(jsonType(v)))
}

// validate holds a value against a schema. It returns what the value shows of
// the schema: fields given, null and absent, members of enums, branches taken. A
// keyword that it does not know is a panic.
func (d *description) validate(where string, schema, v any) (seen []string, err error) {
	where, s := d.follow(where, schema)
	show := func(format string, args ...any) { seen = append(seen, where+fmt.Sprintf(format, args...)) }
	fail := func(format string, args ...any) ([]string, error) {
		j, _ := json.Marshal(v)
		return nil, fmt.Errorf("%s: %s: %s", where, fmt.Sprintf(format, args...), j)
	}
	sub := func(at string, schema, v any) error {
		more, err := d.validate(where+at, schema, v)
		seen = append(seen, more...)
		return err
	}
	if !hasType(s, v) {
		return fail("not of type %v", s["type"])
	}
	fields, _ := v.(object)
	number, isNumber := v.(float64)
	text, isText := v.(string)
	items, _ := v.([]any)
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		switch k := s[keyword]; keyword {
		case "type", "description", "default", "examples":
		case "enum":
			if !slices.Contains(k.([]any), v) {
				return fail("not one of %v", k)
			}
			show(" is %v", v)
		case "const":
			if k != v {
				return fail("not %v", k)
			}
		case "minimum":
			if isNumber && number < k.(float64) {
				return fail("under %v", k)
			}
		case "maximum":
			if isNumber && number > k.(float64) {
				return fail("over %v", k)
			}
		case "maxItems":
			if float64(len(items)) > k.(float64) {
				return fail("over %v items", k)
			}
		case "pattern":
			if isText && !regexp.MustCompile(k.(string)).MatchString(text) {
				return fail("not like %v", k)
			}
		case "required":
			for _, name := range k.([]any) {
				if _, ok := fields[name.(string)]; fields != nil && !ok {
					return fail("%v is missing", name)
				}
			}
		case "dependentRequired":
			for name, others := range k.(object) {
				for _, other := range others.([]any) {
					if _, ok := fields[name]; !ok {
						continue
					}
					if _, ok := fields[other.(string)]; !ok {
						return fail("%s without %v", name, other)
					}
				}
			}
		case "properties":
			for name, property := range k.(object) {
				v, ok := fields[name]
				if !ok {
					show("/%s is absent", name)
					continue
				}
				if err := sub("/"+name, property, v); err != nil {
					return nil, err
				}
				if v == nil {
					show("/%s is null", name)
				} else {
					show("/%s is given", name)
				}
			}
		case "additionalProperties":
			if k != false {
				panic(where + ": additionalProperties is not false")
			}
			for name := range fields {
				if _, ok := s["properties"].(object)[name]; !ok {
					return fail("%s is not described", name)
				}
			}
		case "items":
			for _, item := range items {
				if err := sub("/items", k, item); err != nil {
					return nil, err
				}
			}
		case "allOf":
			for i, branch := range k.([]any) {
				if err := sub(fmt.Sprint("/allOf/", i), branch, v); err != nil {
					return nil, err
				}
			}
		case "oneOf", "anyOf":
			var errs []string
			n := 0
			for i, branch := range k.([]any) {
				at := fmt.Sprint("/", keyword, "/", i)
				if err := sub(at, branch, v); err != nil {
					errs = append(errs, err.Error())
				} else {
					show("%s", at)
					n++
				}
			}
			if n == 0 || n > 1 && keyword == "oneOf" {
				return fail("%d branches of %s fit (%s)", n, keyword, strings.Join(errs, "; "))
			}
		default:
			panic(where + ": the keyword " + keyword + " is not known here")
		}
	}
	return seen, nil
}

// alternatives lists all that validate can see of a schema.
func (d *description) alternatives(where string, schema any, all map[string]bool) {
	where, s := d.follow(where, schema)
	if all[where] {
		return
	}
	all[where] = true
	if enum, ok := s["enum"].([]any); ok {
		for _, v := range enum {
			all[fmt.Sprintf("%s is %v", where, v)] = true
		}
	}
	if properties, ok := s["properties"].(object); ok {
		for name, p := range properties {
			at := where + "/" + name
			_, property := d.follow(at, p)
			all[at+" is given"] = true
			if required, _ := s["required"].([]any); s["additionalProperties"] == false && !slices.Contains(required, any(name)) {
				all[at+" is absent"] = true
			}
			if slices.Contains(types(property), any("null")) {
				all[at+" is null"] = true
			}
			d.alternatives(at, p, all)
		}
	}
	if items, ok := s["items"]; ok {
		d.alternatives(where+"/items", items, all)
	}
	for _, keyword := range []string{"allOf", "oneOf", "anyOf"} {
		branches, _ := s[keyword].([]any)
		for i, branch := range branches {
			at := fmt.Sprint(where, "/", keyword, "/", i)
			d.alternatives(at, branch, all)
			if keyword != "allOf" {
				all[at] = true
			}
		}
	}
}

func TestOpenAPISchemasRefuseWhatTheyDoNotDescribe(t *testing.T) {
	d := &description{root: object{"components": object{"x": object{"type": "integer"}}}}
	for _, test := range []struct {
		schema    string
		good, bad []string
	}{
		{`{type: string}`, []string{`"a"`}, []string{`1`, `null`, `{}`}},
		{`{type: [integer, "null"]}`, []string{`1`, `null`}, []string{`1.5`, `true`}},
		{`{type: number, minimum: 0, maximum: 5}`, []string{`0`, `5`}, []string{`-0.1`, `5.1`}},
		{`{enum: [a, null]}`, []string{`"a"`, `null`}, []string{`"b"`, `0`}},
		{`{const: 0}`, []string{`0`}, []string{`1`, `null`, `false`}},
		{`{type: string, pattern: "^[0-9]+$"}`, []string{`"12"`}, []string{`"a1"`}},
		{`{type: array, maxItems: 1, items: {type: number}}`, []string{`[]`, `[1]`}, []string{`[1, 2]`, `["a"]`}},
		{`{type: object, additionalProperties: false, required: [a], properties: {a: {$ref: "#/components/x"}, b: {}}}`,
			[]string{`{"a":1}`, `{"a":1,"b":null}`}, []string{`{}`, `{"a":"1"}`, `{"a":1,"c":1}`}},
		{`{dependentRequired: {a: [b]}}`, []string{`{}`, `{"b":1}`, `{"a":1,"b":1}`}, []string{`{"a":1}`}},
		{`{allOf: [{type: number}, {minimum: 1}]}`, []string{`1`}, []string{`0`, `"a"`}},
		{`{oneOf: [{type: number}, {type: integer}, {type: "null"}]}`, []string{`null`, `1.5`}, []string{`1`, `"a"`}},
		{`{anyOf: [{type: number}, {type: integer}]}`, []string{`1`, `1.5`}, []string{`"a"`}},
	} {
		for i, j := range slices.Concat(test.good, test.bad) {
			var v any
			if err := json.Unmarshal([]byte(j), &v); err != nil {
				t.Fatal(err)
			}
			if _, err := d.validate("it", yamlInline(test.schema), v); (err == nil) != (i < len(test.good)) {
				t.Errorf("%s against %s: %v", j, test.schema, err)
			}
		}
	}
}

// ---- The routes ----

func TestOpenAPIHasTheServersRoutesAndNoOther(t *testing.T) {
	d := readDescription(t)
	h := d.watch(newHandler(silentLink(), nil))
	described := make(map[string]bool)
	paths := make(map[string]bool)
	for _, op := range d.operations() {
		described[op.method+" "+op.path] = true
		paths[op.path] = true
	}
	for path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"} {
			want := described[strings.Replace(method, "HEAD", "GET", 1)+" "+path]
			if r := call(h, method, path, nil); (r.status != 405) != want || r.status == 404 {
				t.Errorf("%s %s: %d; is it in the file? %v", method, path, r.status, want)
			}
		}
	}
	source, err := os.ReadFile("api.go")
	if err != nil {
		t.Fatal(err)
	}
	served := regexp.MustCompile(`\{"([A-Z]+)", "(/[^"]*)",`).FindAllStringSubmatch(string(source), -1)
	for _, route := range served {
		if !described[route[1]+" "+route[2]] {
			t.Errorf("%s %s is not in the file", route[1], route[2])
		}
	}
	for _, literal := range regexp.MustCompile(`"[A-Z ]*(/api[^" ]*)"`).FindAllStringSubmatch(string(source), -1) {
		if !paths[literal[1]] {
			t.Errorf("%s is not in the file", literal[1])
		}
	}
	if len(served) != 8 || len(described) != 8 {
		t.Errorf("%d routes in api.go, %d in the file, want 8", len(served), len(described))
	}
	d.report(t)
}

// silentLink is a link that never hears a vehicle.
func silentLink() *link {
	return newLink(device{name: "/dev/serial0", baud: func() int { return 0 }}, 0, false)
}

// ---- The answers ----

// watch holds every answer of a handler against the file.
func (d *description) watch(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		d.hear(r.Method, r.URL.Path, rec)
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes())
	})
}

func (d *description) hear(method, path string, rec *httptest.ResponseRecorder) {
	d.mu.Lock()
	defer d.mu.Unlock()
	complain := func(format string, args ...any) {
		d.problems = append(d.problems, fmt.Sprintf("%s %s: %d: %s", method, path, rec.Code, fmt.Sprintf(format, args...)))
	}
	var body any
	if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
		complain("%v", err)
		return
	}
	var where string
	var schema any = object{"$ref": "#/components/schemas/Error"} // of what is no operation
	for _, op := range d.operations() {
		if op.path != path || op.method != strings.Replace(method, "HEAD", "GET", 1) {
			continue
		}
		at, response, ok := d.response(op, strconv.Itoa(rec.Code))
		if !ok {
			complain("not in the file: %s", rec.Body)
			return
		}
		where, schema = at, jsonContent(response)["schema"]
		d.answers[fmt.Sprint(op.method, " ", path, " ", rec.Code)] = true
		headers, _ := response["headers"].(object)
		for name, h := range headers {
			n, err := strconv.ParseFloat(rec.Header().Get(name), 64)
			if err == nil {
				_, err = d.validate(name, h.(object)["schema"], n)
			}
			if err != nil {
				complain("%s: %v", name, err)
			}
		}
		if _, ok := headers["Retry-After"]; !ok && rec.Header().Get("Retry-After") != "" {
			complain("Retry-After is not in the file")
		}
	}
	if where == "" && !slices.Contains([]int{403, 404, 405, 421}, rec.Code) {
		complain("not in the file: %s", rec.Body)
	}
	seen, err := d.validate(where, schema, body)
	if err != nil {
		complain("%v in %s", err, rec.Body)
	}
	for _, s := range seen {
		d.seen[s] = true
	}
	d.bodies[ageless(body)] = true
}

func (d *description) report(t *testing.T) {
	t.Helper()
	slices.Sort(d.problems)
	for _, p := range slices.Compact(d.problems) {
		t.Error(p)
	}
	d.problems = nil
}

var ages = regexp.MustCompile(`"age":[0-9.]+`)

// ageless is an answer as JSON, with its keys in order and its ages alike.
func ageless(v any) string {
	b, err := encodeJSON(v)
	if err != nil {
		panic(err)
	}
	return ages.ReplaceAllString(strings.TrimSpace(string(b)), `"age":0`)
}

func TestOpenAPIDescribesEveryAnswer(t *testing.T) {
	d := readDescription(t)
	t.Run("the examples are accepted on the ground", func(t *testing.T) {
		both(t, func(f *flight) { d.fly(f, false) })
	})
	t.Run("the examples are accepted in the air", func(t *testing.T) {
		both(t, func(f *flight) { d.fly(f, true) })
	})
	for example, ok := range d.accepted {
		if !ok {
			t.Errorf("%s was never accepted", example)
		}
	}
	t.Run("a whole flight", func(t *testing.T) { both(t, d.wholeFlight) })
	t.Run("refusals", d.hearRefusals)
	t.Run("silence", d.hearSilence)
	t.Run("odd vehicles", d.hearOddVehicles)
	t.Run("odd clients", d.hearOddClients)
	d.report(t)

	// What the file describes was heard.
	want := make(map[string]bool)
	d.alternatives("#/components/schemas/Error", object{"$ref": "#/components/schemas/Error"}, want)
	for _, op := range d.operations() {
		for status := range op.object["responses"].(object) {
			if answer := op.method + " " + op.path + " " + status; !d.answers[answer] {
				t.Errorf("%s is in the file and was never answered", answer)
			}
			where, response, _ := d.response(op, status)
			c := jsonContent(response)
			d.alternatives(where, c["schema"], want)
			examples, _ := c["examples"].(object)
			if len(examples) == 0 {
				t.Errorf("%s has no example", where)
			}
			for name, example := range examples {
				value := example.(object)["value"]
				if _, err := d.validate(where, c["schema"], value); err != nil {
					t.Errorf("example %s: %v", name, err)
				}
				// Of a status in flight, no two are alike.
				if o := value.(object); o["online"] != true && !d.bodies[ageless(value)] {
					t.Errorf("%s: the example %s is no answer of this server", where, name)
				}
			}
		}
	}
	for _, s := range slices.Sorted(maps.Keys(want)) {
		if regexp.MustCompile(` is |(one|any)Of/\d$`).MatchString(s) && !d.seen[s] {
			t.Errorf("%s is in the file and was never seen", s)
		}
	}
}

// fly posts every example of the file to a vehicle on the ground or in the air.
func (d *description) fly(f *flight, aloft bool) {
	f.handler = d.watch(f.handler)
	f.call("GET", "", "")
	f.wantMode("manual")
	if aloft {
		f.aloft()
		f.call("POST", "/mode", `{"arm":false}`)
	}
	for _, op := range d.operations() {
		where, schema, examples := d.body(op)
		for _, example := range examples {
			if _, err := d.validate(where, schema, example); err != nil {
				f.Error(err)
			}
			path := strings.TrimPrefix(op.path, "/api/drone")
			if path == "/input" {
				f.call("POST", "/mode", `{"mode":"position"}`)
			}
			body := ageless(example)
			code, o := f.call(op.method, path, body)
			if code != 200 && code != 409 {
				f.Errorf("POST %s %s: %d %v", path, body, code, o)
			}
			d.accepted[path+body] = d.accepted[path+body] || code == 200
			f.status()
			time.Sleep(2 * time.Second)
			f.status()
		}
	}
}

// wholeFlight looks at the status of every stage of a flight.
func (d *description) wholeFlight(f *flight) {
	f.handler = d.watch(f.handler)
	watch := func(span time.Duration) {
		for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			f.status()
			f.call("GET", "/mode", "")
		}
	}
	f.refused("/goto", `{"altitude":30}`, 409, "refused")
	f.refused("/land", `{"lat":47.398,"lon":8.546}`, 409, "refused")
	f.refused("/input", `{}`, 422, "out_of_range") // no throttle in manual mode
	f.accepted("/input", `{"throttle":0}`)
	f.accepted("/mode", `{"mode":"hold","arm":true}`)
	f.accepted("/takeoff", "")
	watch(15 * time.Second)
	f.accepted("/goto", `{"lat":47.398,"lon":8.546,"altitude":20,"heading":90,"speed":5}`)
	watch(3 * time.Second)
	f.accepted("/mode", `{"mode":"hold"}`)
	f.refused("/input", `{}`, 409, "wrong_mode")
	for _, mode := range []string{"position", "altitude", "manual"} {
		f.accepted("/mode", `{"mode":"`+mode+`"}`)
		f.accepted("/input", `{"roll":0.1,"throttle":0.5}`)
		watch(time.Second)
	}
	for _, mode := range []string{"rtl", "rtgs"} {
		f.accepted("/mode", `{"mode":"`+mode+`"}`)
		watch(2 * time.Second)
	}
	f.accepted("/land", `{"lat":47.3978,"lon":8.5456}`)
	for !f.disarmed() {
		watch(time.Second)
	}
	watch(2 * time.Second)
}

// hearRefusals has commands refused, superseded and not known.
func (d *description) hearRefusals(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		fly(t, flavour, func(s *simulator) { s.armableAfter = time.Hour }, func(f *flight) {
			f.handler = d.watch(f.handler)
			f.refused("/takeoff", "", 409, "refused")
			f.call("POST", "/mode", `{"mode":"hold","arm":true}`)
		})
		atStation(t, flavour, func(st *station) {
			st.handler = d.watch(st.handler)
			st.fly("hold")
			for result := common.MAV_RESULT_TEMPORARILY_REJECTED; result < 12; result++ {
				if result == common.MAV_RESULT_IN_PROGRESS {
					continue
				}
				st.sim.change(func() {
					st.sim.onAck = func(ack *common.MessageCommandAck) []simAnswer {
						ack.Result = result
						return []simAnswer{{ack: ack}}
					}
				})
				for path, body := range postRoutes {
					if path != "/api/drone/input" {
						st.post(path, body)
					}
				}
			}
			st.dropAcks()
			var first sync.WaitGroup
			first.Go(func() { st.post("/api/drone/goto", `{"altitude":120}`).want(st.T, 409, "superseded") })
			time.Sleep(100 * time.Millisecond)
			st.sim.change(func() { st.sim.onAck = nil })
			st.post("/api/drone/land", "").wantOK(st.T)
			first.Wait()
		})
	}
}

// hearSilence has commands not acknowledged, and the vehicle lost.
func (d *description) hearSilence(t *testing.T) {
	for path, body := range postRoutes {
		atStation(t, simPX4, func(st *station) {
			st.handler = d.watch(st.handler)
			if path != "/api/drone/takeoff" {
				st.fly("position")
			}
			st.dropAcks()
			if path != "/api/drone/input" {
				st.post(path, body).want(st.T, 504, "no_ack")
			}
			st.sim.unplug()
			time.Sleep(5 * time.Second)
			st.post(path, body).want(st.T, 503, "offline")
			st.get("/api/drone/status").wantOK(st.T)
		})
	}
	withScript(t, func(v *scriptedVehicle) {
		v.handler = d.watch(v.handler)
		call(v.handler, "GET", "/api/drone/status", nil).wantOK(t)
		call(v.handler, "GET", "/api/drone/mode", nil).wantOK(t)
		call(v.handler, "POST", "/api/drone/land", nil).want(t, 503, "offline")
		v.say(holdingInAir)
		time.Sleep(5 * time.Second)
		call(v.handler, "POST", "/api/drone/land", nil).want(t, 503, "offline")
	})
}

// hearOddVehicles has the status show all that a vehicle can report, and the
// commands meet one that can't be commanded.
func (d *description) hearOddVehicles(t *testing.T) {
	withScript(t, func(v *scriptedVehicle) {
		v.handler = d.watch(v.handler)
		look := func() {
			t.Helper()
			time.Sleep(20 * time.Millisecond)
			call(v.handler, "GET", "/api/drone/status", nil).wantOK(t)
			call(v.handler, "GET", "/api/drone/mode", nil).wantOK(t)
		}
		heartbeat := *holdingInAir
		for _, m := range px4Modes {
			heartbeat.CustomMode = m.custom
			v.say(&heartbeat)
			look()
		}
		for state := range minimal.MAV_STATE(11) {
			heartbeat.SystemStatus = state
			v.say(&heartbeat)
			look()
		}
		for landed := range common.MAV_LANDED_STATE(6) {
			v.say(&common.MessageExtendedSysState{LandedState: landed})
			look()
		}
		for fix := range common.GPS_FIX_TYPE(10) {
			v.say(&common.MessageGpsRawInt{FixType: fix, SatellitesVisible: 254, Eph: 65534})
			look()
		}
		for severity := range common.MAV_SEVERITY(9) {
			for range 5 { // more than a status holds
				v.say(&common.MessageStatustext{Severity: severity, Text: "text"})
			}
			look()
		}
		nan := float32(math.NaN())
		for _, extreme := range []float32{-math.Pi, math.Pi, nan} {
			v.say(&common.MessageAttitude{Roll: extreme, Pitch: extreme / 2, Yaw: extreme})
			look()
		}
		v.say(&common.MessageSysStatus{VoltageBattery: math.MaxUint16, CurrentBattery: -1, BatteryRemaining: -1},
			&common.MessageGpsRawInt{SatellitesVisible: math.MaxUint8, Eph: math.MaxUint16},
			&common.MessageGlobalPositionInt{Hdg: math.MaxUint16},
			&common.MessageVfrHud{Airspeed: nan, Climb: nan})
		look()
		v.say(&common.MessageGlobalPositionInt{Lat: -900000000, Lon: -1800000000, Alt: -400000, RelativeAlt: -1, Vx: -100, Hdg: 35999})
		look()
		v.say(&common.MessageHomePosition{Latitude: 900000000, Longitude: 1800000000, Altitude: -1})
		look()
	})
	withScript(t, func(v *scriptedVehicle) { // nobody knows it
		v.handler = d.watch(v.handler)
		v.say(&minimal.MessageHeartbeat{Autopilot: minimal.MAV_AUTOPILOT_GENERIC})
		for path, body := range postRoutes {
			if path == "/api/drone/input" {
				body = `{"throttle":0}`
			}
			call(v.handler, "POST", path, strings.NewReader(body)).want(t, 501, "unsupported")
		}
	})
	withScript(t, func(v *scriptedVehicle) { // a plane
		v.handler = d.watch(v.handler)
		v.say(&minimal.MessageHeartbeat{Type: minimal.MAV_TYPE_FIXED_WING, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA})
		call(v.handler, "POST", "/api/drone/mode", strings.NewReader(`{"mode":"position"}`)).want(t, 501, "unsupported")
	})
	// A goto above mean sea level, while nobody knows where home is.
	atStation(t, simPX4, func(st *station) {
		st.handler = d.watch(st.handler)
		st.fly("hold")
		st.link.mu.Lock()
		st.link.tel.home = newTelemetry().home
		st.link.mu.Unlock()
		st.post("/api/drone/goto", `{"altitude_msl":600}`).wantOK(st.T)
		st.get("/api/drone/status").wantOK(st.T)
	})
	// A baud rate that is looked for.
	link := silentLink()
	call(d.watch(newHandler(link, nil)), "GET", "/api/drone/status", nil).wantOK(t)
}

// hearOddClients has every route answer those that it does not serve.
func (d *description) hearOddClients(t *testing.T) {
	h, broken := d.watch(newHandler(silentLink(), nil)), d.watch(newHandler(nil, nil))
	call(h, "GET", "/api/mission", nil).want(t, 404, "not_found")
	call(h, "PUT", "/api/drone", nil).want(t, 405, "method_not_allowed")
	wrong := map[string]string{
		"/api/drone/mode": `{"mode":"loiter"}`, "/api/drone/input": `{"roll":2}`, "/api/drone/takeoff": `{"altitude":1500}`,
		"/api/drone/goto": `{"lat":47.3980}`, "/api/drone/land": `{"lat":47.3980}`,
	}
	for _, op := range d.operations() {
		call(h, op.method, op.path, nil, "Host", "drone.example").want(t, 421, "wrong_host")
		if op.path != "/api/drone" { // nothing there can break
			call(broken, op.method, op.path, strings.NewReader(postRoutes[op.path])).want(t, 500, "internal")
		}
		if op.method == "GET" {
			continue
		}
		post := func(target, body string, headers ...string) reply {
			return call(h, "POST", target, strings.NewReader(body), headers...)
		}
		post(op.path, "", "Sec-Fetch-Site", "cross-site").want(t, 403, "cross_origin")
		post(op.path, strings.Repeat(" ", maxBody+1)).want(t, 413, "too_large")
		post(op.path+"?altitude=10", "").want(t, 400, "bad_request")
		post(op.path, `{"alt":10}`).want(t, 400, "bad_request")
		post(op.path, `{"altitude":"10"}`).want(t, 400, "bad_request")
		post(op.path, wrong[op.path]).want(t, 422, "out_of_range")
	}
}

// ---- The bodies ----

// Without a vehicle, a body that is in order is answered 503.
func TestOpenAPIHasTheServersFieldsAndTypes(t *testing.T) {
	d := readDescription(t)
	h := d.watch(newHandler(silentLink(), nil))
	for _, op := range d.operations() {
		_, schema, _ := d.body(op)
		if schema == nil {
			continue
		}
		post := func(body string) reply { return call(h, "POST", op.path, strings.NewReader(body)) }
		fields := schema["properties"].(object)

		unknown := post(`{"nobody":1}`)
		unknown.want(t, 400, "bad_request")
		_, list, _ := strings.Cut(unknown.failure(t).Error, "the fields here are: ")
		for name := range strings.SplitSeq(list, ", ") {
			if _, ok := fields[strings.Trim(name, `"`)]; !ok {
				t.Errorf("%s takes %s; it is not in the file", op.path, name)
			}
		}
		if n := strings.Count(list, ", ") + 1; n != len(fields) || schema["additionalProperties"] != false {
			t.Errorf("%s takes %d fields (%s), the file has %d", op.path, n, list, len(fields))
		}

		want := 503
		if op.object["requestBody"].(object)["required"] != false {
			want = 422
		}
		if r := post(""); r.status != want {
			t.Errorf("POST %s without a body: %d, want %d", op.path, r.status, want)
		}

		for name, f := range fields {
			_, field := d.follow(name, f)
			if field["description"] == nil {
				t.Errorf("%s of %s has no description", name, op.path)
			}
			for _, j := range []string{`null`, `"x"`, `1`, `true`, `[]`, `{}`} {
				var v any
				if err := json.Unmarshal([]byte(j), &v); err != nil {
					t.Fatal(err)
				}
				body := fmt.Sprintf(`{%q:%s}`, name, j)
				if r := post(body); (r.status != 400) != hasType(field, v) {
					t.Errorf("POST %s %s: %d, and its type is %v", op.path, body, r.status, field["type"])
				}
			}
			enum, _ := field["enum"].([]any)
			for _, v := range append(slices.Clone(enum), "other") {
				s, ok := v.(string)
				if !ok || enum == nil {
					continue
				}
				for _, body := range []string{fmt.Sprintf(`{%q:%q}`, name, s), fmt.Sprintf(`{%q:%q}`, name, strings.ToUpper(s))} {
					if r := post(body); (r.status == 503) != slices.Contains(enum, v) {
						t.Errorf("POST %s %s: %d, and the file has %v", op.path, body, r.status, enum)
					}
				}
			}
			if enum != nil && len(enum) != len(modeNames[:ModeOther])+1 { // and null
				t.Errorf("%s of %s is one of %v, the server takes %v", name, op.path, enum, modeNames[:ModeOther])
			}
		}
	}
	d.report(t)
}

// Without a vehicle, a number in its range is answered 503, and the next number
// beyond it 422.
func TestOpenAPIHasTheServersRangesAndDefaults(t *testing.T) {
	d := readDescription(t)
	h := d.watch(newHandler(silentLink(), nil))
	defaults := make(object)
	for _, op := range d.operations() {
		_, schema, examples := d.body(op)
		if schema == nil {
			continue
		}
		for name, f := range schema["properties"].(object) {
			_, field := d.follow(name, f)
			if v, ok := field["default"]; ok {
				defaults[op.path+" "+name] = v
			}
			if !slices.Contains(types(field), any("number")) {
				continue
			}
			i := slices.IndexFunc(examples, func(e any) bool { _, ok := e.(object)[name]; return ok })
			least, ok1 := field["minimum"].(float64)
			most, ok2 := field["maximum"].(float64)
			if i < 0 || !ok1 || !ok2 {
				t.Errorf("%s of %s lacks a minimum, a maximum or an example", name, op.path)
				continue
			}
			for v, want := range map[float64]int{
				least: 503, most: 503, math.Nextafter(least, most): 503, math.Nextafter(most, least): 503,
				math.Nextafter(least, math.Inf(-1)): 422, math.Nextafter(most, math.Inf(1)): 422,
			} {
				body := maps.Clone(examples[i].(object))
				body[name] = v
				r := call(h, "POST", op.path, strings.NewReader(ageless(body)))
				if r.status != want || want == 422 && !strings.HasPrefix(r.failure(t).Error, name+": ") {
					t.Errorf("POST %s with %s %v: %s want %d", op.path, name, v, r.body, want)
				}
			}
		}
	}
	if want := (object{
		"/api/drone/input roll": 0.0, "/api/drone/input pitch": 0.0, "/api/drone/input yaw": 0.0,
		"/api/drone/input timeout": defaultTimeout, "/api/drone/takeoff altitude": defaultTakeoff,
	}); !maps.Equal(defaults, want) {
		t.Errorf("the defaults are %v, want %v", defaults, want)
	}
	d.report(t)
}
