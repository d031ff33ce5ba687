package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// What browsers send when somebody opens an address.
var browsers = map[string]string{
	"Chromium": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
	"Firefox":  "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
	"Safari":   "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
	"Lynx":     "text/html, text/plain, text/sgml, text/css, application/xhtml+xml, */*;q=0.01",
}

func TestABrowserGetsThePage(t *testing.T) {
	for browser, accept := range browsers {
		r := call(silent(), "GET", "/api/drone/status", nil, "Accept", accept)
		if r.status != 200 || r.header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(r.body, "<!doctype html>") {
			t.Errorf("%s got %d %v %.60q", browser, r.status, r.header, r.body)
		}
		if got := r.header.Get("Content-Length"); got != fmt.Sprint(len(r.body)) {
			t.Errorf("%s: Content-Length is %s of %d", browser, got, len(r.body))
		}
		if got := r.header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control is %q", browser, got)
		}
	}
}

func TestAcceptTellsWhichOfThreeIsWanted(t *testing.T) {
	long := strings.Repeat("application/x-nothing;q=0.1, ", 146)
	if len(long) < 4<<10 {
		t.Fatal("that is not long")
	}
	const stream, page, object = "text/event-stream", "text/html; charset=utf-8", "application/json"
	for accept, want := range map[string]string{
		"text/event-stream":                     stream,
		"TEXT/Event-Stream":                     stream,
		"text/event-stream; charset=utf-8":      stream,
		"text/event-stream;q=0.1, */*":          stream,
		"text/event-stream, application/json":   stream,
		"text/html, ,text/event-stream,,":       stream,
		"text/event-stream;q=0":                 stream, // no weights
		long + "text/event-stream":              stream,
		"text/html":                             page,
		" Text/HTML ;q=0.1":                     page,
		"text/html, application/problem+json":   page,
		"*/*, text/html;level=1":                page,
		long + "text/html":                      page,
		"text/html, application/json":           object,
		"application/json;q=0.1, text/html":     object,
		"":                                      object,
		"*/*":                                   object,
		"text/*":                                object,
		"application/json":                      object,
		"application/json, text/plain, */*":     object,
		"text/event-streams":                    object,
		"text/htmlx, xtext/html":                object,
		";;;,,,q=1;text/event-stream;text/html": object,
		"\x00\xff;q=text/html":                  object,
		long:                                    object,
	} {
		r := call(silent(), "HEAD", "/api/drone/status", nil, "Accept", accept)
		if got := r.header.Get("Content-Type"); r.status != 200 || got != want {
			t.Errorf("Accept: %.60q: %d %s, want %s", accept, r.status, got, want)
		}
		if got := r.header.Values("Vary"); len(got) != 1 || got[0] != "Accept" {
			t.Errorf("Accept: %.60q: Vary is %q", accept, got)
		}
	}
	if !accepts([]string{"text/plain", "text/html"}, "text/html") {
		t.Error("two lines of Accept are not one list")
	}
	if accepts(nil, "text/html") {
		t.Error("no Accept names a type")
	}
}

// The page stands at one address.
func TestEveryOtherRouteStaysJSONForABrowser(t *testing.T) {
	for _, path := range []string{"/api/drone", "/api/drone/mode", "/api", "/nothing", "/favicon.ico", "/api/drone/", "//"} {
		r := call(silent(), "GET", path, nil, "Accept", browsers["Firefox"])
		r.checkForm(t)
	}
	call(silent(), "POST", "/", nil, "Accept", browsers["Firefox"]).want(t, 404, "not_found")
	call(silent(), "POST", "/api/drone/status", nil, "Accept", browsers["Firefox"]).want(t, 405, "method_not_allowed")
	call(silent(), "GET", "/api/drone/status", nil, "Accept", browsers["Firefox"], "Host", "drone.example.org").want(t, 421, "wrong_host")
}

// The whole policy is written out here: a browser ignores a word that it does not know.
func TestThePageMayLoadAndRunNothingButItself(t *testing.T) {
	r := call(silent(), "GET", "/api/drone/status", nil, "Accept", "text/html")
	hash := func(tag string) string {
		all := regexp.MustCompile(`(?s)<`+tag+`\b([^>]*)>(.*?)</`+tag+`>`).FindAllStringSubmatch(r.body, -1)
		if len(all) != 1 || all[0][1] != "" {
			t.Fatalf("%d of <%s>, or one with attributes", len(all), tag)
		}
		sum := sha256.Sum256([]byte(all[0][2]))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	want := "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"script-src 'sha256-" + hash("script") + "'; style-src 'sha256-" + hash("style") + "'"
	if got := r.header.Get("Content-Security-Policy"); got != want {
		t.Errorf("the policy is\n%s want\n%s", got, want)
	}
	if got := r.header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options is %q", got)
	}
}

func TestStatusHTMLIsOneSmallReadableFile(t *testing.T) {
	if n := len(statusHTML); n >= 40_000 {
		t.Errorf("it has %d bytes, 40 kB or more", n)
	}
	for what, pattern := range map[string]string{
		"an attribute with a style or a script": `(?i)<[^>]*\s(style|on\w+)\s*=`,
		"a script or style from elsewhere":      `(?i)<(script|link|img|iframe|object|embed|base)\b[^>]*(src|href)\s*=\s*"?(https?:|//|/)`,
		"an import or a url":                    `(?i)@import|url\(|importScripts`,
		"a way for text to become HTML":         `innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\beval\(|new Function`,
	} {
		if got := regexp.MustCompile(pattern).FindString(statusHTML); got != "" {
			t.Errorf("it has %s: %q", what, got)
		}
	}
	for i, line := range strings.Split(statusHTML, "\n") {
		if len(line) > 320 {
			t.Errorf("line %d has %d bytes", i+1, len(line))
		}
	}
}

func TestThePageKnowsTheVersionThatItBelongsTo(t *testing.T) {
	var s struct{ Version string }
	if err := json.Unmarshal([]byte(call(silent(), "GET", "/api/drone/status", nil).body), &s); err != nil || s.Version == "" || s.Version != ownVersion() {
		t.Fatalf("the status tells version %q: %v", s.Version, err)
	}
	if !strings.HasPrefix(buildVersion(), "mavrest "+s.Version+" ") {
		t.Errorf("-version tells %q, the status %q", buildVersion(), s.Version)
	}
	page := call(silent(), "GET", "/api/drone/status", nil, "Accept", "text/html").body
	if want := `<meta name="version" content="` + s.Version + `">`; strings.Count(page, want) != 1 {
		t.Errorf("no %s in the page", want)
	}
}

func TestTheRootLeadsABrowserToThePage(t *testing.T) {
	for _, method := range []string{"GET", "HEAD"} {
		r := call(silent(), method, "/", nil, "Accept", browsers["Chromium"])
		if r.status != http.StatusNotFound || r.header.Get("Content-Type") != "text/html; charset=utf-8" || r.header.Get("Vary") != "Accept" {
			t.Errorf("%s / is %d %v", method, r.status, r.header)
		}
		if !strings.Contains(r.body, `<a href="/api/drone/status">`) || !strings.Contains(r.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s / is %v %q", method, r.header, r.body)
		}
	}
	r := call(silent(), "GET", "/", nil)
	r.want(t, 404, "not_found")
	if r.header.Get("Vary") != "Accept" {
		t.Errorf("Vary is %q", r.header.Get("Vary"))
	}
}
