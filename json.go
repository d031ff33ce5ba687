package main

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
)

// jsonType is how a type is written, found out once. What it writes is what encoding/json writes, which takes three
// times as long, most of it for the numbers: it checks each again. It knows structs, each field of which has a name,
// pointers, slices, texts, numbers and bool.
type jsonType struct {
	kind reflect.Kind

	// elem: of a pointer or a slice
	elem *jsonType

	// keys, fields: of a struct; a key has quotes, a colon, and before it a brace or a comma.
	keys   []string
	fields []*jsonType
}

func jsonOf(t reflect.Type) *jsonType {
	j := &jsonType{kind: t.Kind()}
	switch j.kind {
	case reflect.Pointer, reflect.Slice:
		j.elem = jsonOf(t.Elem())
	case reflect.Struct:
		before := "{"
		for i := range t.NumField() {
			f := t.Field(i)
			j.keys = append(j.keys, before+`"`+f.Tag.Get("json")+`":`)
			j.fields = append(j.fields, jsonOf(f.Type))
			before = ","
		}
	}
	return j
}

func (j *jsonType) append(b []byte, v reflect.Value) []byte {
	switch j.kind {
	case reflect.Struct:
		for i, field := range j.fields {
			b = field.append(append(b, j.keys[i]...), v.Field(i))
		}
		return append(b, '}')
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, null...)
		}
		return j.elem.append(b, v.Elem())
	case reflect.Slice:
		return j.appendSlice(b, v)
	case reflect.String:
		return appendText(b, v.String())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Float64:
		return number(v.Float()).append(b)
	case reflect.Int:
		return strconv.AppendInt(b, v.Int(), 10)
	}
	return strconv.AppendUint(b, v.Uint(), 10)
}

func (j *jsonType) appendSlice(b []byte, v reflect.Value) []byte {
	if v.IsNil() {
		return append(b, null...)
	}
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		b = j.elem.append(b, v.Index(i))
	}
	return append(b, ']')
}

// appendText appends a string in quotes; only one of plain characters stands as it is.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, bytes.TrimSuffix(encode(s), []byte("\n"))...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// encode returns v as JSON with a newline, without HTML escapes.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// An answer has a value that JSON can't express: a bug.
		panic(err)
	}
	return b.Bytes()
}

// number is a number of an answer; NaN, which means unknown, is null.
type number float64

var null = []byte("null")

// MarshalJSON writes no exponent.
func (n number) MarshalJSON() ([]byte, error) { return n.append(nil), nil }

func (n number) append(b []byte) []byte {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, null...)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}
