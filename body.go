package main

import (
	"bytes"
	"regexp"
	"unicode/utf8"
)

// lookalike is a body that is almost JSON, and what is wrong with it.
type lookalike struct {
	like *regexp.Regexp
	says string
}

// lookalikes are tried in order. Each was sent by somebody: by a shell that removed the quotes, by
// curl without JSON, by Python's str of a dict.
var lookalikes = []lookalike{
	{regexp.MustCompile(`^--[^\n]*\r?\n(?i:content-disposition)`), "it looks like a form of several parts (curl -F): send JSON (curl -d)"},
	{regexp.MustCompile(`^[\w.%+-]+=`), "it looks like a form: send JSON"},
	{regexp.MustCompile(`^<`), "it looks like XML or HTML: send JSON"},
	{regexp.MustCompile(`^@`), "it looks like the name of a file, which the client did not read"},
	{regexp.MustCompile(`^['"\x60]\s*\{`), "it is an object in quotes: the shell left them in, or it was made JSON twice; send the object itself"},
	{regexp.MustCompile(`^\{\s*'`), "its quotes are single ones, as Python's str writes them (json.dumps writes JSON): JSON has double ones"},
	{regexp.MustCompile(`^\{\s*\\`), "its quotes have backslashes, which the shell left in"},
	{regexp.MustCompile(`^\{\s*[“”„«‘’]`), "its quotes are typographic ones: JSON has straight ones"},
	{regexp.MustCompile(`^\{\s*[\pL_$]`), "its names have no quotes: PowerShell and cmd remove them; put the body into a file, and send that (curl -d @FILE)"},
	{regexp.MustCompile(`:\s*[+-]?(NaN|nan|Infinity|inf)\b`), "NaN and Infinity are no JSON numbers"},
	{regexp.MustCompile(`:\s*(True|False|None)\b`), "True, False and None are Python's: JSON has true and false; json.dumps writes JSON"},
	{regexp.MustCompile(`:\s*-?\d+,\d+\s*[,}]`), "a number has a decimal comma: JSON has a point"},
	{regexp.MustCompile(`,\s*\}`), "a comma stands before the brace that ends it"},
	{regexp.MustCompile(`/[/*]`), "JSON has no comments"},
	{regexp.MustCompile(`^\w+:\s`), "it looks like YAML: send JSON"},
	{regexp.MustCompile(`^\{[^{}]*$`), "it ends early; is the Content-Length too small?"},
	{regexp.MustCompile(`^\{[^{}]*\}\s*\S`), "something follows the object"},
}

// lookOf says what a body that is not JSON looks like; "" if that is not known.
func lookOf(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte("\x1f\x8b")): // gzip
		return "it is compressed: send it as it is"
	case bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.HasPrefix(body, []byte("\xfe\xff")), bytes.Contains(body, []byte{0}):
		return "it looks like UTF-16, as PowerShell writes files: send UTF-8"
	}
	for _, l := range lookalikes {
		if l.like.Match(body) {
			return l.says
		}
	}
	if !utf8.Valid(body) {
		return "it is no text in UTF-8"
	}
	return ""
}

// byteOrderMark begins a file of UTF-8 that a Windows program wrote. It says nothing.
var byteOrderMark = []byte("\ufeff")

// trimBody returns the body without a byte order mark, and without the white space of JSON around it.
func trimBody(body []byte) []byte {
	return bytes.Trim(bytes.TrimPrefix(body, byteOrderMark), " \t\r\n")
}
