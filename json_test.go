package main

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// encoding/json is the oracle.
func TestAStatusIsWrittenAsEncodingJSONDoes(t *testing.T) {
	for range 5000 {
		s := new(statusBody)
		fill(reflect.ValueOf(s).Elem())
		if got, want := string(s.append(nil)), string(encode(s)); got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
	}
}

// fill gives a value of the status any value.
func fill(v reflect.Value) {
	texts := []string{"", "a", "ä", `"`, `\`, "<&>", "\n\x00\x7f", "\u2028", "\xff", "Arm: Compass (2) not healthy"}
	numbers := []float64{0, math.NaN(), math.Inf(1), -1e-7, 47.3977419, 1e21, rand.NormFloat64()}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		if rand.N(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		}
	case reflect.Slice:
		if n := rand.N(4); n < 3 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString(texts[rand.N(len(texts))])
	case reflect.Bool:
		v.SetBool(rand.N(2) > 0)
	case reflect.Float64:
		v.SetFloat(numbers[rand.N(len(numbers))])
	case reflect.Int:
		v.SetInt(rand.Int64() - math.MaxInt64/2)
	default:
		v.SetUint(uint64(rand.N(256)))
	}
}
