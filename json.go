package main

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
)

// appendJSON appends a value of one type as encoding/json would, which takes three times as long, most of it for the
// numbers: it checks each again.
type appendJSON func(b []byte, v reflect.Value) []byte

// jsonOf returns what appends a type whose fields are structs, pointers, slices, texts, numbers and bool, each with its
// name.
func jsonOf(t reflect.Type) appendJSON {
	switch t.Kind() {
	case reflect.Struct:
		return jsonOfStruct(t)
	case reflect.Pointer:
		elem := jsonOf(t.Elem())
		return func(b []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return append(b, null...)
			}
			return elem(b, v.Elem())
		}
	case reflect.Slice:
		return jsonOfSlice(jsonOf(t.Elem()))
	case reflect.String:
		return func(b []byte, v reflect.Value) []byte { return appendText(b, v.String()) }
	case reflect.Bool:
		return func(b []byte, v reflect.Value) []byte { return strconv.AppendBool(b, v.Bool()) }
	case reflect.Float64:
		return func(b []byte, v reflect.Value) []byte { return number(v.Float()).append(b) }
	case reflect.Int:
		return func(b []byte, v reflect.Value) []byte { return strconv.AppendInt(b, v.Int(), 10) }
	}
	return func(b []byte, v reflect.Value) []byte { return strconv.AppendUint(b, v.Uint(), 10) }
}

func jsonOfStruct(t reflect.Type) appendJSON {
	keys := make([]string, t.NumField())
	fields := make([]appendJSON, t.NumField())
	for i := range keys {
		keys[i] = "," + strconv.Quote(t.Field(i).Tag.Get("json")) + ":"
		fields[i] = jsonOf(t.Field(i).Type)
	}
	keys[0] = "{" + keys[0][1:]
	return func(b []byte, v reflect.Value) []byte {
		for i, field := range fields {
			b = field(append(b, keys[i]...), v.Field(i))
		}
		return append(b, '}')
	}
}

func jsonOfSlice(elem appendJSON) appendJSON {
	return func(b []byte, v reflect.Value) []byte {
		if v.IsNil() {
			return append(b, null...)
		}
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = elem(b, v.Index(i))
		}
		return append(b, ']')
	}
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
