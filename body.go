package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// field is a field of a request.
type field struct {
	name string

	// into: the address of a pointer to the value, which stays nil if the field is absent
	into any

	// min, max: the range of a number; both 0 for any other field
	min, max float64

	// unit: a number's unit; for any other field its values, in words
	unit string

	// without is how to send the command without this field; "" if there is no more to say than to leave it out.
	without string
}

// requestableModes are the modes that a client may ask for, in words.
var requestableModes = "one of " + strings.Join(modeNames[:ModeOther], ", ")

// placeFields are the fields of a place. without says how to send the command without one.
func placeFields(req *request, without string) []field {
	return []field{
		{"lat", &req.lat, -90, 90, "degrees", without},
		{"lon", &req.lon, -180, 180, "degrees", without},
	}
}

// checkPlace returns an error if only one of lat and lon was given, or if the place is 0, 0.
func checkPlace(req *request) error {
	switch {
	case req.lat != nil && req.lon == nil:
		return refuse(codeOutOfRange, "lon: missing; lat and lon come together")
	case req.lat == nil && req.lon != nil:
		return refuse(codeOutOfRange, "lat: missing; lat and lon come together")
	case req.lat != nil && isNowhere(*req.lat, *req.lon):
		return refuse(codeOutOfRange, "lat, lon: 0, 0 is no place that a drone is sent to: two empty fields are "+
			"sent as 0, 0")
	}
	return nil
}

// oneWay returns an error if a request says one thing in two ways, each of which has its fields.
func oneWay(ways ...[]field) error {
	said := ""
	for _, way := range ways {
		i := slices.IndexFunc(way, func(f field) bool { return !reflect.ValueOf(f.into).Elem().IsNil() })
		if i >= 0 && said != "" {
			return refuse(codeOutOfRange, "%s and %s: give one of the two", said, way[i].name)
		}
		if i >= 0 {
			said = way[i].name
		}
	}
	return nil
}

// maxBody is the longest body of a request, in bytes.
const maxBody = 4 << 10

// readFields reads the body, which is empty or one JSON object, into the route's fields. It returns
// the body for the log. example is a body that works; patience is how long a body whose length was not given may
// follow.
func readFields(
	w http.ResponseWriter, r *http.Request, example string, fields []field, patience time.Duration,
) ([]byte, error) {
	if r.URL.RawQuery != "" {
		return nil, refuse(codeBadRequest, "the fields go into the body as JSON, not into the query")
	}
	if err := checkLength(w, r, patience); err != nil {
		return nil, err
	}

	// With Expect: 100-continue the client has not sent the body yet.
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(codeBadRequest, "the whole body did not arrive within %.0f s", readTimeout.Seconds())
	case err != nil && r.ContentLength < 0:
		return nil, refuse(codeBadRequest, "the body ended early, or the size of one of its chunks is wrong")
	case err != nil:
		return nil, refuse(codeBadRequest, "the body ended early")
	case len(body) > maxBody:
		return nil, errTooLarge
	case connOf(r).gone(), !connOf(r).markBusy(nil):
		// An outage delayed the request, and its client has given up, or its connection has made way. From now on it
		// does not: the autopilot may take seconds to answer.
		return nil, errClosed
	}
	return body, decode(trimBody(body), example, fields)
}

var errClosed = refuse(codeBadRequest, "the connection was closed before the command was read: nothing was sent")

var errTooLarge = refuse(codeTooLarge, "the body is over %d bytes; a command needs far less", maxBody)

// lengthGiven reports whether a request says how long its body is: -1 for chunks, which say it themselves.
func lengthGiven(r *http.Request) bool {
	return r.ContentLength != 0 || r.Header["Content-Length"] != nil
}

// checkLength returns an error if a request announces a body and does not say how long it is, or if one follows it.
// HTTP then knows of no body: a takeoff to 3 m would climb to the default, a landing there would land
// here. The answer ends the connection: the body would be read as the next request.
func checkLength(w http.ResponseWriter, r *http.Request, patience time.Duration) error {
	header := announcesBody(r.Header)
	if lengthGiven(r) || (header == "" && !connOf(r).bodyFollows(patience)) {
		return nil
	}

	// A connection that is closed before the body came is reset, and the answer may be lost. After a
	// MaxBytesReader net/http closes only its own side, and waits for the client a while.
	http.MaxBytesReader(w, io.NopCloser(strings.NewReader("?")), 0).Read(make([]byte, 1))
	if header == "" {
		return refuse(codeLengthRequired, "a body follows the request, which has no Content-Length: say how long the "+
			"body is; nothing was sent")
	}
	return refuse(codeLengthRequired, "the request has the header %s and no Content-Length: say how long the body is, "+
		"or leave the %s out; nothing was sent", header, header)
}

// announcesBody returns the first header, by name, that only a request with a body has; "" if there is none.
func announcesBody(h http.Header) (first string) {
	for name, values := range h {
		aboutBody := name == "Expect" || strings.HasPrefix(name, "Content-")

		// An empty one counts as none.
		if aboutBody && strings.Join(values, "") != "" && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// trimBody returns the body without a byte order mark, and without the white space of JSON around it.
func trimBody(body []byte) []byte {
	return bytes.Trim(bytes.TrimPrefix(body, byteOrderMark), " \t\r\n")
}

// byteOrderMark begins a file of UTF-8 that a Windows program wrote. It says nothing.
var byteOrderMark = []byte("\ufeff")

// decode reads a trimmed body into the fields.
func decode(body []byte, example string, fields []field) error {
	if len(body) == 0 {
		return nil
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return refuse(codeBadRequest, "the body is not one JSON object: %s; want %s",
			cmp.Or(lookOf(body), err.Error()), example)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, _ := dec.Token(); t != json.Delim('{') {
		return refuse(codeBadRequest, "the body is JSON, but not an object%s; want %s", notAnObject(t), example)
	}
	seen := make(map[string]bool)
	for dec.More() {
		// No error: the whole body is valid JSON.
		t, _ := dec.Token()
		name := t.(string)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			return refuse(codeBadRequest, "unknown field %.40q; the fields here are: %s", name, fieldNames(fields))
		}
		if seen[name] {
			return refuse(codeBadRequest, "%s is given twice", name)
		}
		seen[name] = true
		if err := fields[i].decode(dec); err != nil {
			return err
		}
	}
	return nil
}

// notAnObject says more of JSON that is no object, by its first token.
func notAnObject(first json.Token) string {
	switch first := first.(type) {
	case json.Delim:
		return ": it is an array"
	case string:
		if strings.HasPrefix(strings.TrimSpace(first), "{") {
			return ": it is an object in quotes, made JSON twice; send the object itself"
		}
	}
	return ""
}

func fieldNames(fields []field) string {
	var names []string
	for _, f := range fields {
		names = append(names, strconv.Quote(f.name))
	}
	return strings.Join(names, ", ")
}

func (f field) decode(dec *json.Decoder) error {
	if err := dec.Decode(f.into); err != nil {
		// The only possible error: the JSON is valid.
		e := err.(*json.UnmarshalTypeError)

		// It is a number that float64 can't hold.
		if number, is := strings.CutPrefix(e.Value, "number "); is {
			return refuse(codeOutOfRange, "%s: want %s, got %.20s", f.name, f.values(), number)
		}
		return refuse(codeBadRequest, "%s: want %s, got a JSON %s", f.name, f.values(), e.Value)
	}

	// Only null leaves the pointer nil.
	if reflect.ValueOf(f.into).Elem().IsNil() {
		return f.isNull()
	}
	if v, ok := f.into.(**float64); ok && (**v < f.min || **v > f.max) {
		return refuse(codeOutOfRange, "%s: want %s, got %g", f.name, f.values(), **v)
	}
	return nil
}

// isNull is the answer to a field that is null. It may stand for a number that its sender has lost:
// JavaScript writes NaN as null.
func (f field) isNull() error {
	values := f.values()
	if f.min != f.max {
		values = "a number, " + values
	}
	err := fmt.Sprintf("%s: null is no value; leave it out or give %s", f.name, values)
	if f.without != "" {
		err += "; " + f.without
	}
	return refuse(codeOutOfRange, "%s", err)
}

// values returns what the field takes, in words.
func (f field) values() string {
	if f.min == f.max {
		return f.unit
	}
	return fmt.Sprintf("%g to %g %s", f.min, f.max, f.unit)
}

// lookOf says what a body that is not JSON looks like; "" if that is not known.
func lookOf(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte("\x1f\x8b")):
		// Gzip.
		return "it is compressed: send it as it is"
	case bytes.HasPrefix(body, []byte("\xff\xfe")),
		bytes.HasPrefix(body, []byte("\xfe\xff")),
		bytes.IndexByte(body, 0) == 0, bytes.IndexByte(body, 0) == 1:
		return "it looks like UTF-16, as PowerShell writes files: send UTF-8"
	}
	for _, l := range lookalikes {
		if regexp.MustCompile(l.like).Match(body) {
			return l.says
		}
	}
	if !utf8.Valid(body) {
		return "it is no text in UTF-8"
	}
	return ""
}

// lookalike is a body that is almost JSON, and what is wrong with it.
type lookalike struct {
	// like is a regular expression. It is compiled where it is asked for, which is seldom.
	like string
	says string
}

// lookalikes are tried in order. Each was sent by somebody: by a shell that removed the quotes, by
// curl without JSON, by Python's str of a dict.
var lookalikes = []lookalike{
	{`^--[^\n]*\r?\n(?i:content-disposition)`, "it looks like a form of several parts (curl " +
		"-F): send JSON (curl -d)"},
	{`^[\w.%+-]+=`, "it looks like a form: send JSON"},
	{`^<`, "it looks like XML or HTML: send JSON"},
	{`^@`, "it looks like the name of a file, which the client did not read"},
	{`^['"\x60]\s*\{`, "it is an object in quotes: the shell left them in, or it was made JSON " +
		"twice; send the object itself"},
	{`^\{\s*'`, "its quotes are single ones, as Python's str writes them (json.dumps writes " +
		"JSON): JSON has double ones"},
	{`^\{\s*\\`, "its quotes have backslashes, which the shell left in"},
	{`^\{\s*[“”„«‘’]`, "its quotes are typographic ones: JSON has straight ones"},
	{`^\{\s*[\pL_$]`, "its names have no quotes: PowerShell and cmd remove them; put the body " +
		"into a file, and send that (curl -d @FILE)"},
	{`:\s*[+-]?(NaN|nan|Infinity|inf)\b`, "NaN and Infinity are no JSON numbers"},
	{`:\s*(True|False|None)\b`, "True, False and None are Python's: JSON has true and false; " +
		"json.dumps writes JSON"},
	{`:\s*-?\d+,\d+\s*[,}]`, "a number has a decimal comma: JSON has a point"},
	{`,\s*\}`, "a comma stands before the brace that ends it"},
	{`/[/*]`, "JSON has no comments"},
	{`^\w+:\s`, "it looks like YAML: send JSON"},
	{`^\{[^{}]*$`, "it ends early; is the Content-Length too small?"},
	{`^\{[^{}]*\}\s*\S`, "something follows the object"},
}
