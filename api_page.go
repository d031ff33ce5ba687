package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// statusHTML is the page for people. It has one script and one style.
//
//go:embed status.html
var statusHTML string

// page is an HTML answer and its Content-Security-Policy.
type page struct {
	html, policy string
}

// statusPage is status.html with the version that it belongs to.
var statusPage = sync.OnceValue(func() page {
	return newPage(strings.Replace(statusHTML, "VERSION", ownVersion(), 1))
})

// rootPage is what a browser gets at /, which is no route: the way to the page.
var rootPage = newPage(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>mavrest</title>
<p>There is nothing at this address. <a href="/api/drone/status">The drone is here.</a></p>
</html>
`)

// newPage returns a page that a browser lets load and run nothing but the script
// and the style that stand in it, and talk to nobody but this server. No page
// may frame it: what a stranger's page shows could be clicked by mistake.
func newPage(text string) page {
	policy := "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	for _, tag := range []string{"script", "style"} {
		if _, rest, ok := strings.Cut(text, "<"+tag+">"); ok {
			body, _, _ := strings.Cut(rest, "</"+tag+">")
			sum := sha256.Sum256([]byte(body))
			policy += "; " + tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
	}
	return page{text, policy}
}

func writePage(w http.ResponseWriter, status int, p page) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(p.html)))
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write([]byte(p.html))
}

// accepts reports whether an Accept header names a media type. Weights are not
// looked at.
func accepts(accept []string, mediaType string) bool {
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(kind), mediaType) {
				return true
			}
		}
	}
	return false
}

// wantsPage reports whether an Accept header is that of a browser that opens an
// address. A client that can read JSON gets JSON.
func wantsPage(accept []string) bool {
	return accepts(accept, "text/html") && !accepts(accept, "application/json")
}
