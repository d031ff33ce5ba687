package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// farPlaces are places that are too far from a drone 100 m above home, which is at 488.3 m above the sea.
var farPlaces = []struct{ path, body, says string }{
	{"goto", swapped, "lat, lon: the place is 5660 km from the drone and 5660 km from home, and may be 10 km " +
		"away (-reach); are lat and lon swapped?"},
	{"land", swapped, "lat, lon: the place is 5660 km from the drone and 5660 km from home"},
	{"goto", swapped + `,"altitude":20,"speed":5,"wait":10`, "lat, lon: the place is "},
	{"land", `"lat":0,"lon":8.546`, "lat, lon: the place is "},
	{"goto", `"lat":47.398,"lon":0`, "lat, lon: the place is "},
	{"goto", `"lat":90,"lon":180`, "lat, lon: the place is "},
	{"goto", `"altitude_msl":50`, "altitude_msl: 50 m is 438 m below home, which is at 488 m above the sea, " +
		"and 538 m below the drone, " +
		`which is at 588 m; if it is meant, send "altitude":-438, which counts from home`},
	{"goto", near + `,"altitude_msl":50`, "altitude_msl: 50 m is 438 m below home"},
	{"goto", near + `,"altitude_msl":-100`, "which is at 588 m"}, // an altitude of -588 m is out of its range
}

// almostJSON are bodies that somebody sent, by mistake of a tool or of himself, and what they look like.
var almostJSON = []struct{ name, path, body, says string }{
	{"PowerShell's curl", "mode", `{mode:hold}`, "its names have no quotes: PowerShell and cmd remove them"},
	{"with spaces", "takeoff", `{ altitude : 10 }`, "its names have no quotes"},
	{"a relaxed JSON", "land", `{lat: 47.398, "lon": 8.546}`, "its names have no quotes"},
	{"single quotes", "mode", `{'mode':'hold'}`, "its quotes are single ones"},
	{"Python's str", "mode", `{'arm': True}`, "its quotes are single ones"},
	{"Python's True", "mode", `{"arm": True}`, "True, False and None are Python's"},
	{"Python's None", "takeoff", `{"altitude":None}`, "True, False and None are Python's"},
	{"json.dumps of a NaN", "land", `{"lat": NaN, "lon": 8.5}`, "NaN and Infinity are no JSON numbers"},
	{"an infinity", "takeoff", `{"altitude":-Infinity}`, "NaN and Infinity are no JSON numbers"},
	{"cmd's quotes", "mode", `'{"mode":"hold"}'`, "it is an object in quotes"},
	{"back quotes", "mode", "`{\"mode\":\"hold\"}`", "it is an object in quotes"},
	{"backslashes", "mode", `{\"mode\":\"hold\"}`, "its quotes have backslashes"},
	{"from a text processor", "mode", `{“mode”:“hold”}`, "its quotes are typographic ones"},
	{"a form", "takeoff", `altitude=5`, "it looks like a form: send JSON"},
	{"a form of two fields", "mode", `mode=hold&arm=true`, "it looks like a form: send JSON"},
	{"an escaped form", "takeoff", `%7B%22altitude%22%3A5%7D=`, "it looks like a form: send JSON"},
	{"curl -F", "takeoff", "--------------------------49894bae3ad74748\r\nContent-Disposition: form-data; " +
		"name=\"altitude\"\r\n\r\n5\r\n", "it looks like a form of several parts (curl -F)"},
	{"a file that was not read", "takeoff", `@body.json`, "it looks like the name of a file"},
	{"XML", "takeoff", `<altitude>5</altitude>`, "it looks like XML or HTML"},
	{"YAML", "takeoff", "altitude: 5\n", "it looks like YAML"},
	{"a decimal comma", "takeoff", `{"altitude":2,5}`, "a number has a decimal comma"},
	{"a comma too many", "mode", `{"mode":"hold",}`, "a comma stands before the brace"},
	{"a comment", "mode", `{"mode":"hold" /* now */}`, "JSON has no comments"},
	{"a length that is too small", "goto", `{"lat":47.398,"lon":8`, "it ends early; is the Content-Length too small?"},
	{"two objects", "takeoff", `{"altitude":5}{"altitude":6}`, "something follows the object"},
	{"UTF-16 with a mark", "takeoff", "\xff\xfe{\x00}\x00", "it looks like UTF-16"},
	{"UTF-16 without", "takeoff", "{\x00}\x00", "it looks like UTF-16"},
	{"UTF-16, big end first", "takeoff", "\x00{\x00}", "it looks like UTF-16"},
	{"a zero byte behind it", "mode", "{\"mode\":\"hold\"}\x00", "something follows the object"},
	{"gzip", "takeoff", "\x1f\x8b\x08\x00", "it is compressed"},
	{"Latin-1", "mode", "{\"mode\":\"h\xf6ld\" }\xf6", "something follows the object"},
	{"a word in Latin-1", "mode", "h\xf6ld", "it is no text in UTF-8"},
	{"something else", "takeoff", "take off, please", "invalid character"},
	{"a byte order mark, then half an object", "takeoff", "\ufeff{\"altitude\":5",
		"it ends early; is the Content-Length too small?"},
}

// noObject are bodies that are JSON, and what they are.
var noObject = []struct{ body, says string }{
	{`[{"altitude":5}]`, ": it is an array"},
	{`"{\"altitude\":5}"`, ": it is an object in quotes, made JSON twice; send the object itself"},
	{`5`, ""},
}

// badRequests are all that a body can be wrong in. The drone flies in position mode, 100 m above home, where
// every one of the routes would act. Whoever finds another bad request adds it here.
func badRequests() []badRequest {
	var list []badRequest
	add := func(name, path, body string, status int, says string) {
		list = append(list, badRequest{name, path, body, status, says})
	}
	for path, good := range postRoutes {
		add("a query", path+"?altitude=10", good, 400, "the fields go into the body as JSON, not into the query")
		add("a query and no body", path+"?mode=land", ``, 400, "not into the query")
		add("not JSON", path, "takeoff", 400, "JSON")
		add("a form", path, "mode=land&altitude=10", 400, "JSON")
		add("half an object", path, `{"mode":"hold"`, 400, "JSON")
		add("a brace", path, `{`, 400, "JSON")
		add("a closing brace", path, `}`, 400, "JSON")
		add("single quotes", path, `{'mode':'hold'}`, 400, "JSON")
		add("a comma at the end", path, `{"mode":"hold",}`, 400, "JSON")
		add("no value", path, `{"mode"}`, 400, "JSON")
		add("a comment", path, `{} // land`, 400, "JSON")
		add("a byte order mark that does not begin it", path, " \ufeff{}", 400, "JSON")
		add("a zero byte", path, "{}\x00", 400, "JSON")
		add("an array", path, `[]`, 400, "object")
		add("an object in an array", path, `[{}]`, 400, "object")
		add("a number", path, `1`, 400, "object")
		add("a string", path, `"hold"`, 400, "object")
		add("true", path, `true`, 400, "object")
		add("null", path, `null`, 400, "object")
		add("text after the object", path, `{} land`, 400, "JSON")
		add("two objects", path, `{}{}`, 400, "JSON")
		add("two lines of objects", path, "{}\n{}", 400, "JSON")
		add("an unknown field", path, `{"speeed":5}`, 400, `"speeed"`)
		add("an unknown field that is null", path, `{"speeed":null}`, 400, `"speeed"`)
		add("an empty name", path, `{"":5}`, 400, `""`)
		add("a field in another letter case", path, `{"Altitude":5}`, 400, `"Altitude"`)
		for _, space := range []string{"\v", "\f", "\u0085", "\u00a0", " \u2003 "} {
			add("white space that JSON does not allow", path, space, 400, "JSON")
		}
		add("invalid UTF-8 in a name", path, "{\"mo\xc3(de\":1}", 400, `unknown field "mo�(de"`)
		add("4097 bytes", path, "{"+strings.Repeat(" ", 4095)+"}", 413, "4096")
		add("a megabyte", path, strings.Repeat("[", 1<<20), 413, "4096")
	}
	number := func(path, field, rest string) {
		with := func(value string) string { return `{` + rest + `"` + field + `":` + value + `}` }
		for _, v := range []string{`"1"`, `""`, `"NaN"`, `"Infinity"`, `true`, `false`, `{}`, `[]`, `[1]`} {
			add(field+" is not a number", path, with(v), 400, field)
		}
		for _, v := range []string{`NaN`, `nan`, `Infinity`, `-Infinity`, `+1`, `01`, `.5`, `1.`, `0x10`, `1e`, `1,5`,
			`--1`} {
			add(field+" is no JSON number", path, with(v), 400, "JSON")
		}
		add(field+" is null", path, with("null"), 422, field+": null is no value; leave it out or give a number, ")
		add(field+" is more than a float64 holds", path, with("1e999"), 422, ", got 1e999")
		add(field+" is less than a float64 holds", path, with("-1e999"), 422, ", got -1e999")
		add(field+" is given twice", path, with(`1,"`+field+`":1`), 400, field)
		add(field+" is given twice, once as null", path, with(`1,"`+field+`":null`), 400, field)
		add(field+" is given twice, once escaped", path,
			with(`1,"\u00`+strconv.FormatInt(int64(field[0]), 16)+field[1:]+`":1`), 400, field)
	}
	for _, field := range []string{"roll", "pitch", "yaw", "throttle", "timeout"} {
		number("/api/drone/input", field, "")
	}
	number("/api/drone/takeoff", "altitude", "")
	for _, field := range []string{"altitude", "altitude_msl", "up", "heading", "speed"} {
		number("/api/drone/goto", field, `"lat":47.398,"lon":8.546,`)
	}
	for path, rest := range waitingRoutes {
		number(path, "wait", rest)
		add("a negative wait", path, `{`+rest+`"wait":-1}`, 422, "wait: want 0 to 600 seconds")
		add("a wait of over ten minutes", path, `{`+rest+`"wait":601}`, 422, "wait: want 0 to 600 seconds")
		add("a wait that is true", path, `{`+rest+`"wait":true}`, 400, "wait: want 0 to 600 seconds, got a JSON bool")
		add("a wait in words", path, `{`+rest+`"wait":"5"}`, 400, "wait: want 0 to 600 seconds, got a JSON string")
	}
	add("a wait for sticks", "/api/drone/input", `{"wait":5}`, 400, `"wait"`)
	for _, path := range []string{"/api/drone/goto", "/api/drone/land"} {
		number(path, "lat", `"lon":8.546,`)
		number(path, "lon", `"lat":47.398,`)
		add("lat without lon", path, `{"lat":47.398}`, 422, "lon")
		add("lon without lat", path, `{"lon":8.546}`, 422, "lat")
		add("a place of two nulls", path, `{"lat":null,"lon":null}`, 422,
			"lat: null is no value; leave it out or give a number, -90 to 90 degrees")
		for _, v := range []string{`"lat":0,"lon":0`, `"lat":0.0,"lon":-0.0`, `"lon":0,"lat":0e9`,
			`"lat":0.00000004,"lon":-0.00000004`} {
			add("a place of two empty fields", path, `{`+v+`}`, 422,
				"lat, lon: 0, 0 is no place that a drone is sent to")
		}
	}
	for _, v := range []string{`1`, `true`, `[]`, `{}`, `["hold"]`} {
		add("mode is not a string", "/api/drone/mode", `{"mode":`+v+`}`, 400,
			"mode: want one of manual, altitude, position, takeoff, hold, land, rtl, rtgs, got a JSON ")
	}
	for _, v := range []string{`1`, `0`, `"true"`, `""`, `[]`, `{}`} {
		add("arm is not true or false", "/api/drone/mode", `{"arm":`+v+`}`, 400, "arm: want true or false, got a JSON ")
	}
	add("mode is given twice", "/api/drone/mode", `{"mode":"hold","mode":"land"}`, 400, "mode")
	add("arm is given twice", "/api/drone/mode", `{"arm":true,"arm":true}`, 400, "arm")
	for _, v := range []string{"", "other", "Other", "AUTO.LOITER", "loiter", "hold ", " hold", "rtl or rtgs", "4",
		"mission", "hol\u0000d"} {
		name, _ := json.Marshal(v)
		add("a mode that is not in the list", "/api/drone/mode", `{"mode":`+string(name)+`}`, 422,
			"manual, altitude, position, takeoff, hold, land, rtl, rtgs, got")
	}
	add("a mode that is not in the list, and arm", "/api/drone/mode", `{"mode":"up","arm":true}`, 422, `rtgs, got "up"`)
	add("invalid UTF-8 in a mode", "/api/drone/mode", "{\"mode\":\"\xff\"}", 422, "rtgs, got \"�\"")
	long := strings.Repeat("é", 1000)
	add("a very long mode", "/api/drone/mode", `{"mode":"`+long+`"}`, 422, `rtgs, got "`+long[:80]+`"`)
	add("a very long field", "/api/drone/mode", `{"`+long+`":1}`, 400, `unknown field "`+long[:80]+`"; the`)
	add("a field of another route", "/api/drone/takeoff", `{"lat":1}`, 400, `fields here are: "altitude", "wait"`)
	add("no mode and no arm", "/api/drone/mode", ``, 422, "mode")
	add("an empty object", "/api/drone/mode", `{}`, 422, "mode")
	add("mode is null", "/api/drone/mode", `{"mode":null,"arm":true}`, 422,
		"mode: null is no value; leave it out or give one of manual, ")
	add("arm is null", "/api/drone/mode", `{"mode":"hold","arm":null}`, 422,
		"arm: null is no value; leave it out or give true or false")
	add("a takeoff's altitude is null", "/api/drone/takeoff", `{"altitude":null}`, 422,
		"metres above home; to climb to 10 m send {}")
	add("a landing's place is null", "/api/drone/land", `{"lat":null,"lon":null}`, 422,
		"-90 to 90 degrees; to land here send {}")
	add("half of a landing's place is null", "/api/drone/land", `{"lat":47.398,"lon":null}`, 422,
		"-180 to 180 degrees; to land here send {}")
	add("a height below every sea", "/api/drone/goto", `{"altitude_msl":-500.5}`, 422,
		"altitude_msl: want -500 to 10000 metres above mean sea level")
	add("a takeoff that disarms", "/api/drone/mode", `{"mode":"takeoff","arm":false}`, 422, "arm")
	add("nowhere to go", "/api/drone/goto", ``, 422, "lat")
	add("nowhere to go, in an object", "/api/drone/goto", `{}`, 422, "lat")
	add("everything null", "/api/drone/goto",
		`{"lat":null,"lon":null,"altitude":null,"altitude_msl":null,"heading":null,"speed":null}`, 422, "lat")
	add("a speed and nowhere to go", "/api/drone/goto", `{"speed":5}`, 422, "lat")
	for _, field := range []string{"north", "east", "forward", "right"} {
		number("/api/drone/goto", field, "")
		add("a place in two ways", "/api/drone/goto", `{"`+field+`":1,"lat":47.398,"lon":8.546}`, 422,
			"lat and "+field+": give one of the two")
		add("half a place, and metres", "/api/drone/goto", `{"lon":8.546,"`+field+`":0}`, 422,
			"lon and "+field+": give one of the two")
	}
	for _, two := range [][2]string{{"north", "forward"}, {"north", "right"}, {"east", "forward"}, {"east", "right"},
		{"altitude", "up"}, {"altitude_msl", "up"}, {"altitude", "altitude_msl"}} {
		add("one thing in two ways", "/api/drone/goto", `{"`+two[1]+`":1,"`+two[0]+`":0}`, 422,
			two[0]+" and "+two[1]+": give one of the two")
	}
	add("metres over the ceiling", "/api/drone/goto", `{"north":3,"up":30}`, 422,
		"up: 30 m up is 130 m above home, and the ceiling is 120 m")
	add("metres for a landing", "/api/drone/land", `{"forward":3}`, 400, `"forward"`)
	add("both altitudes", "/api/drone/goto", `{"altitude":20,"altitude_msl":500}`, 422, "altitude_msl")
	add("both altitudes, with a place", "/api/drone/goto",
		`{"lat":47.398,"lon":8.546,"altitude":20,"altitude_msl":500}`, 422, "altitude_msl")
	for _, c := range farPlaces {
		add("a place that its client hardly means", "/api/drone/"+c.path, "{"+c.body+"}", 422, c.says)
	}
	for _, c := range almostJSON {
		add(c.name, "/api/drone/"+c.path, c.body, 400, "the body is not one JSON object: "+c.says)
	}
	for _, c := range noObject {
		add("no object", "/api/drone/takeoff", c.body, 400,
			"the body is JSON, but not an object"+c.says+`; want {"altitude":10}`)
	}
	add("a speed for a takeoff", "/api/drone/takeoff", `{"speed":5}`, 400, `"speed"`)
	add("an altitude for a landing", "/api/drone/land", `{"altitude":5}`, 400, `"altitude"`)
	return list
}

func TestABadRequestsAnswerSaysWhatIsWrongAndNothingChanges(t *testing.T) {
	codes := map[int]string{400: "bad_request", 413: "too_large", 422: "out_of_range"}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("position")
		hf.untouched(func() {
			for _, b := range badRequests() {
				hf.post(b.path, b.body).want(hf.T, b.status, codes[b.status], b.says)
				// again in chunks, without a length
				body := io.MultiReader(strings.NewReader(b.body))
				call(hf.handler, "POST", b.path, body).want(hf.T, b.status, codes[b.status], b.says)
				if hf.Failed() {
					hf.Fatalf("%s: POST %s %.80q", b.name, b.path, b.body)
				}
				hf.wantMode("position")
			}
		})
		hf.post("/api/drone/input", postRoutes["/api/drone/input"]).wantOK(hf.T)
		hf.get("/api/drone/status?pretty").wantOK(hf.T) // a query of a GET is nobody's command
	})
}

// A number's edges are accepted, and the next float64 beyond them is not.
func TestEachNumberHasItsRange(t *testing.T) {
	const place = `"lat":47.398,"lon":8.546,`
	tests := []struct {
		path, field, rest string
		min, max          float64
	}{
		{"/api/drone/input", "roll", ``, -1, 1},
		{"/api/drone/input", "pitch", ``, -1, 1},
		{"/api/drone/input", "yaw", ``, -1, 1},
		{"/api/drone/input", "throttle", ``, 0, 1},
		{"/api/drone/input", "timeout", ``, 0.05, 5},
		{"/api/drone/takeoff", "altitude", ``, 0.5, 1000},
		{"/api/drone/takeoff", "wait", ``, 0, 600},
		{"/api/drone/mode", "wait", `"mode":"hold",`, 0, 600},
		{"/api/drone/goto", "wait", `"altitude":20,`, 0, 600},
		{"/api/drone/land", "wait", ``, 0, 600},
		{"/api/drone/goto", "lat", `"lon":8.546,`, -90, 90},
		{"/api/drone/goto", "lon", `"lat":47.398,`, -180, 180},
		{"/api/drone/goto", "altitude", ``, -500, 10000},
		{"/api/drone/goto", "altitude", place, -500, 10000},
		{"/api/drone/goto", "altitude_msl", ``, math.NaN(), 10000}, // the lowest depends on home
		{"/api/drone/goto", "north", ``, -1000, 1000},
		{"/api/drone/goto", "east", ``, -1000, 1000},
		{"/api/drone/goto", "forward", `"right":1,`, -1000, 1000},
		{"/api/drone/goto", "right", ``, -1000, 1000},
		{"/api/drone/goto", "up", ``, math.NaN(), 500}, // so does it
		{"/api/drone/goto", "heading", ``, 0, 360},
		{"/api/drone/goto", "speed", place, 0.1, 50},
		{"/api/drone/land", "lat", `"lon":8.546,`, -90, 90},
		{"/api/drone/land", "lon", `"lat":47.398,`, -180, 180},
	}
	for _, test := range tests {
		with := func(v float64) string {
			return fmt.Sprintf(`{%s"%s":%s}`, test.rest, test.field, strconv.FormatFloat(v, 'g', -1, 64))
		}
		for _, in := range []float64{test.min, test.max} {
			if math.IsNaN(in) {
				continue
			}
			t.Run(test.path+with(in), func(t *testing.T) {
				flyHTTP(t, simPX4, func(hf *httpFlight) {
					hf.drone.reach, hf.drone.ceiling = math.Inf(1), math.Inf(1)
					switch test.path {
					case "/api/drone/input":
						hf.fly("position")
					case "/api/drone/takeoff":
					default:
						hf.fly("hold")
					}
					farthest := math.MaxFloat64
					if in == test.min {
						farthest = -math.MaxFloat64
					}
					for _, out := range []float64{farthest, math.Nextafter(in, farthest)} {
						hf.untouched(func() {
							hf.post(test.path, with(out)).want(hf.T, 422, "out_of_range",
								test.field+": ")
						})
					}
					n := len(hf.sim.received())
					hf.post(test.path, with(in)).wantOK(hf.T)
					time.Sleep(100 * time.Millisecond)
					// A timeout alone keeps the sticks centred, so nothing new is sent.
					if len(hf.orders(n)) == 0 && test.field != "timeout" {
						hf.Error("accepted, and nothing was sent to the vehicle")
					}
				})
			})
		}
	}
}

// takeoffAMSL is param7 of the last NAV_TAKEOFF that the vehicle received.
func (hf *httpFlight) takeoffAMSL() float32 {
	z := float32(math.NaN())
	for _, r := range hf.sim.received() {
		if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_NAV_TAKEOFF {
			z = m.Param7
		}
	}
	return z
}

func TestAnEmptyBodyMeansTheDefaults(t *testing.T) {
	spaces := strings.Repeat(" ", 4096-len(`{"altitude":10}`))
	tests := []struct {
		name string
		body io.Reader
	}{
		{"no body", nil},
		{"an empty body", strings.NewReader("")},
		{"an empty body in chunks", io.MultiReader(strings.NewReader(""))},
		{"white space", strings.NewReader(" \t\r\n")},
		{"an empty object", strings.NewReader("{}")},
		{"an empty object and a newline", strings.NewReader("{ }\n")},
		{"the default itself", strings.NewReader(`{"altitude":10}`)},
		{"an escaped name", strings.NewReader(`{"\u0061ltitude":1e1}`)},
		{"exactly 4096 bytes", strings.NewReader(`{"altitude":` + spaces + `10}`)},
		{"exactly 4096 bytes in chunks", io.MultiReader(strings.NewReader(`{"altitude":10`),
			strings.NewReader(spaces+`}`))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			flyHTTP(t, simPX4, func(hf *httpFlight) {
				call(hf.handler, "POST", "/api/drone/takeoff", test.body).wantOK(hf.T)
				if got := hf.takeoffAMSL(); got != simHomeAlt+10 {
					hf.Errorf("takeoff to %g m AMSL, want home and 10 m", got)
				}
			})
		})
	}
}

func TestTheExampleOfABadBodyWorks(t *testing.T) {
	for path := range postRoutes {
		flyHTTP(t, simPX4, func(hf *httpFlight) {
			if path != "/api/drone/takeoff" {
				hf.fly("position")
			}
			f := hf.post(path, "?").failure(hf.T)
			example := regexp.MustCompile(`; want (\{.*\})`).FindStringSubmatch(f.Error)
			if example == nil {
				hf.Fatalf("%s: no example in %q", path, f.Error)
			}
			hf.post(path, example[1]).wantOK(hf.T)
			time.Sleep(100 * time.Millisecond)
		})
	}
}

// Windows programs begin a file of UTF-8 with a byte order mark.
func TestAByteOrderMarkIsIgnored(t *testing.T) {
	for _, body := range []string{"\ufeff{\"altitude\":3}", "\ufeff \r\n{\"altitude\":3}\r\n"} {
		flyHTTP(t, simPX4, func(hf *httpFlight) {
			hf.post("/api/drone/takeoff", body).wantOK(hf.T)
			if got := hf.takeoffAMSL(); got != simHomeAlt+3 {
				hf.Errorf("takeoff to %g m AMSL, want home and 3 m", got)
			}
		})
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.post("/api/drone/takeoff", "\ufeff").wantOK(hf.T) // as an empty body
	})
}

// onWire sends a request as it stands, and returns its answer.
func (hf *httpFlight) onWire(text string) reply {
	hf.Helper()
	p, end := serve(hf.T, hf.handler, maxConnections)
	defer end()
	w := p.connect()
	defer w.Close()
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() { io.WriteString(w, text) })
	r, err := w.receive("POST")
	if err == nil && r.status == http.StatusContinue {
		r, err = w.receive("POST")
	}
	if err != nil {
		hf.Fatalf("%q: %v", text, err)
	}
	if r.status == http.StatusLengthRequired && !hf.lingers {
		hf.lingers = true
		hf.Cleanup(func() { time.Sleep(time.Second) }) // net/http waits a while for the client of a 411
	}
	return r
}

// bareCommands are the headers of a POST without a body, as each client sends them. They were
// recorded, but PowerShell's.
var bareCommands = []struct{ client, headers string }{
	{"curl -X POST", "Accept: */*"},
	{"curl -d ''", "Accept: */*\nContent-Length: 0\nContent-Type: application/x-www-form-urlencoded"},
	{"curl --json ''", "Content-Type: application/json\nAccept: application/json\nContent-Length: 0"},
	{"curl -X POST -T /dev/null", "Accept: */*\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n0\n"},
	{"wget --post-data=", "Accept: */*\nConnection: Keep-Alive\nContent-Type: " +
		"application/x-www-form-urlencoded\nContent-Length: 0"},
	{"wget --method=POST", "Accept: */*\nConnection: Keep-Alive\nContent-Length: 0"},
	{"busybox wget --post-data ''",
		"Connection: close\nContent-Type: application/x-www-form-urlencoded\nContent-Length: 0"},
	{"HTTPie", "Accept: */*\nConnection: keep-alive\nContent-Length: 0"},
	{"HTTPie --form", "Accept: */*\nContent-Length: 0\nContent-Type: application/x-www-form-urlencoded; charset=utf-8"},
	{"Python requests", "Accept: */*\nConnection: keep-alive\nContent-Length: 0"},
	{"Python requests, with a type",
		"Accept: */*\nConnection: keep-alive\nContent-Type: application/json\nContent-Length: 0"},
	{"Python httpx", "Content-Length: 0\nAccept: */*\nConnection: keep-alive"},
	{"Python httpx, with a type", "Content-Length: 0\nAccept: */*\nConnection: keep-alive\nContent-Type: " +
		"application/json"},
	{"aiohttp", "Accept: */*\nContent-Length: 0\nContent-Type: application/octet-stream"},
	{"aiohttp, data=''", "Accept: */*\nContent-Length: 0\nContent-Type: text/plain; charset=utf-8"},
	{"Home Assistant's rest_command", "Content-Type: application/json\nAccept: */*\nContent-Length: 0"},
	{"Python urllib", "Content-Length: 0\nConnection: close"},
	{"Python urllib, data=b''",
		"Content-Type: application/x-www-form-urlencoded\nContent-Length: 0\nConnection: close"},
	{"axios", "Accept: application/json, text/plain, */*\nContent-Type: " +
		"application/x-www-form-urlencoded\nConnection: keep-alive\nContent-Length: 0"},
	{"axios, with a type", "Content-Type: application/json\nConnection: keep-alive\nContent-Length: 0"},
	{"fetch", "connection: keep-alive\naccept: */*\ncontent-length: 0"},
	{"fetch, with a type", "connection: keep-alive\nContent-Type: application/json\naccept: */*\ncontent-length: 0"},
	{"fetch, body: ''", "content-type: text/plain;charset=UTF-8\naccept: */*\ncontent-length: 0"},
	{"Node http", "Connection: keep-alive\nContent-Length: 0"},
	{"got, with a type", "content-type: application/json\nConnection: keep-alive\nContent-Length: 0"},
	{"Go http.Post(url, type, nil)", "Content-Length: 0\nContent-Type: application/json"},
	{"Go http.NewRequest", "Content-Length: 0"},
	{"Go http.PostForm(url, nil)", "Content-Length: 0\nContent-Type: application/x-www-form-urlencoded"},
	{"PowerShell 7 Invoke-RestMethod", "Content-Length: 0"},
	{"PowerShell 7 Invoke-RestMethod, with a type", "Content-Type: application/json\nContent-Length: 0"},
	{"Windows PowerShell Invoke-RestMethod",
		"Content-Type: application/x-www-form-urlencoded\nContent-Length: 0\nExpect: 100-continue"},
	{"Ruby Net::HTTP.post", "Accept: */*\nContent-Length: 0\nContent-Type: application/x-www-form-urlencoded"},
	{"Perl LWP", "TE: deflate,gzip;q=0.3\nConnection: TE, close\nContent-Length: 0\nContent-Type: " +
		"application/x-www-form-urlencoded"},
	{"PHP curl", "Accept: */*\nTransfer-Encoding: chunked\nContent-Type: application/x-www-form-urlencoded\nExpect: " +
		"100-continue\n\n0\n"},
	{"an empty type", "Content-Type:"},
	{"two empty types", "Content-Type:\nContent-Type: "},
	{"an empty object", "Content-Type: application/json\nContent-Length: 2\n\n{}"},
}

// rawPOST is a POST as it goes over the wire. The headers and the body are separated by newlines.
func rawPOST(path, protocol, headers string) string {
	head, body, _ := strings.Cut(headers, "\n\n")
	if strings.Contains(head, "chunked") {
		body = strings.ReplaceAll(body, "\n", "\r\n") + "\r\n"
	}
	return "POST /api/drone/" + path + " " + protocol + "\r\nHost: drone.local\r\n" +
		strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
}

func TestABareCommandOfAnyClientLandsEachTime(t *testing.T) {
	const want = `{"status":"accepted","status_code":0,"command":176,"mode":"land"}`
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("hold")
		for _, c := range bareCommands {
			for _, protocol := range []string{"HTTP/1.1", "HTTP/1.0"} {
				if protocol == "HTTP/1.0" && strings.Contains(c.headers, "chunked") {
					continue // HTTP/1.0 has no chunks
				}
				r := hf.onWire(rawPOST("land", protocol, c.headers))
				if r.status != 200 || r.body != want+"\n" {
					hf.Errorf("%s, %s: %d %s", c.client, protocol, r.status, r.body)
				}
				hf.wantMode("land")
				hf.post("/api/drone/mode", `{"mode":"hold"}`).wantOK(hf.T)
			}
		}
	})
}

// HTTP says of such a request that it has no body, though one follows.
func TestABodyWhoseLengthIsNotGivenIs411AndNothingIsSent(t *testing.T) {
	const body = `{"lat":47.398,"lon":8.546,"wait":60}`
	requests := []struct{ name, headers, says string }{
		{"a small board", "Content-Type: application/json\n\n" + body, "Content-Type"},
		{"a small board, without a body", "Content-Type: application/json", "Content-Type"},
		{"another type", "Content-Type: text/plain\n\n" + body, "Content-Type"},
		{"a form", "Content-Type: application/x-www-form-urlencoded\n\nlat=47.398&lon=8.546", "Content-Type"},
		{"a type that is empty, and one that is not", "Content-Type:\nContent-Type: application/json\n\n" + body,
			"Content-Type"},
		{"a type in small letters", "content-type: application/json\n\n" + body, "Content-Type"},
		{"a coding", "Content-Encoding: identity\n\n" + body, "Content-Encoding"},
		{"a disposition", "Content-Disposition: form-data\n\n" + body, "Content-Disposition"},
		{"a language and a digest", "Content-Language: de\nContent-Digest: sha-256=:A:\n\n" + body, "Content-Digest"},
		{"a client that waits for 100 Continue", "Expect: 100-continue\n\n" + body, "Expect"},
		{"a connection that it wants to keep", "Connection: keep-alive\nContent-Type: application/json\n\n" + body,
			"Content-Type"},
	}
	flyHTTP(t, simPX4, func(hf *httpFlight) {
		hf.fly("position")
		hf.untouched(func() {
			for _, c := range requests {
				for _, path := range []string{"mode", "input", "takeoff", "goto", "land"} {
					for _, protocol := range []string{"HTTP/1.1", "HTTP/1.0"} {
						r := hf.onWire(rawPOST(path, protocol, c.headers))
						r.want(hf.T, 411, "length_required", "say how long the body is, or leave the "+c.says+" out")
					}
				}
			}
		})
		hf.wantMode("position")
		// A GET is never judged, and neither is a path or a method that does not exist.
		call(hf.handler, "GET", "/api/drone/mode", nil, "Content-Type", "application/json").wantOK(hf.T)
		call(hf.handler, "POST", "/api/mission", nil, "Content-Type", "application/json").want(hf.T, 404, "not_found")
		call(hf.handler, "POST", "/api/drone/status", nil, "Content-Type", "application/json").want(hf.T, 405,
			"method_not_allowed")
		call(hf.handler, "POST", "/api/drone/land", nil, "Content-Type", "").wantOK(hf.T)
	})
}

// FuzzBody posts any bytes to a drone that sends none of its plans. Every answer must be one of
// the contract, and no number out of range may be sent.
func FuzzBody(f *testing.F) {
	routes := []string{"/api/drone/mode", "/api/drone/input", "/api/drone/takeoff", "/api/drone/goto",
		"/api/drone/land"}
	for i, path := range routes {
		f.Add(uint8(i), []byte(postRoutes[path]))
	}
	for _, b := range badRequests() {
		path, _, _ := strings.Cut(b.path, "?")
		f.Add(uint8(slices.Index(routes, path)), []byte(b.body[:min(len(b.body), 4097)]))
	}
	for _, body := range []string{``, `{}`, `{"arm":false}`, `{"mode":"RTL","arm":true}`, `{"mode":"manual"}`,
		`{"mode":"altitude"}`} {
		f.Add(uint8(0), []byte(body))
	}
	f.Add(uint8(1), []byte(`{"roll":0.2,"pitch":-0.1,"yaw":0,"throttle":0.5,"timeout":0.5}`))
	f.Add(uint8(3), []byte(`{"lat":-47.3980,"lon":-180,"altitude_msl":5e2,"heading":359.99,"speed":0.1}`))
	d, sent := aloftAndMute(f)
	h := newHandler(d, admission{})
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		path := routes[int(route)%len(routes)]
		r := call(h, "POST", path, strings.NewReader(string(body)))
		r.checkForm(t)
		switch {
		case r.status == 500:
			t.Errorf("a bug: %s", r.body)
		case r.status == 413 != (len(body) > maxBody):
			t.Errorf("%d for %d bytes", r.status, len(body))
		case r.status != 200 && strings.Contains(r.failure(t).Error, "\n"):
			t.Errorf("not a sentence: %s", r.body)
		}
		for _, m := range sent() {
			if !inRange(m) {
				t.Errorf("the vehicle would be sent %+v", m)
			}
		}
		call(h, "GET", "/api/drone/status", nil).checkForm(t)
	})
}

// aloftAndMute is a copter in the air, flown by sticks. Its plans are made and never sent, so
// that no time passes. sent returns the messages that would have been sent since the last call.
func aloftAndMute(f *testing.F) (d *drone, sent func() []message.Message) {
	d = newDrone(device{name: "none"}, 0, false, slog.Default())
	d.sticks.src.known = true
	report := func() {
		for _, m := range []message.Message{
			&minimal.MessageHeartbeat{
				Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_ARDUPILOTMEGA, CustomMode: 5,
				BaseMode: minimal.MAV_MODE_FLAG_SAFETY_ARMED, SystemStatus: minimal.MAV_STATE_ACTIVE,
			},
			&common.MessageExtendedSysState{LandedState: common.MAV_LANDED_STATE_IN_AIR},
			&common.MessageHomePosition{Latitude: 473977419, Longitude: 85455937, Altitude: 488300},
			&common.MessageGlobalPositionInt{Lat: 473977421, Lon: 85455938, Alt: 498300, RelativeAlt: 10020},
		} {
			d.hear(heard{at: time.Now(), msg: m, system: 1})
		}
	}
	report()
	var list []message.Message
	var looking sync.WaitGroup
	ctx := f.Context()
	f.Cleanup(looking.Wait)
	looking.Go(func() { // notes every plan, and ends it before anything is sent
		for ctx.Err() == nil {
			d.mu.Lock()
			for _, t := range d.cmd.tasks {
				for _, s := range t.plan.steps {
					list = append(list, s.message(1, 0))
				}
				t.end(&commandError{code: codeRefused, text: "a test only looks"})
			}
			d.mu.Unlock()
			time.Sleep(10 * time.Microsecond)
		}
	})
	return d, func() []message.Message {
		d.mu.Lock()
		all := append(list, d.outgoing(d.sticks.axes).msg)
		list = nil
		d.mu.Unlock()
		report() // old telemetry would count as unknown
		return all
	}
}

// inRange reports whether every number of a message may be sent to a vehicle.
func inRange(m message.Message) bool {
	var numbers []float32
	ok := true
	switch m := m.(type) {
	case *common.MessageCommandLong:
		numbers = []float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Param5, m.Param6, m.Param7}
	case *common.MessageCommandInt:
		numbers = []float32{m.Param1, m.Param2, m.Param3, m.Param4, m.Z}
		ok = max(m.X, -m.X) <= 90e7 && max(m.Y, -m.Y) <= 180e7 && m.Z >= -500 && m.Z <= 10000
	case *common.MessageManualControl:
		ok = max(m.X, -m.X) <= 1000 && max(m.Y, -m.Y) <= 1000 && max(m.R, -m.R) <= 1000 && m.Z >= 0 && m.Z <= 1000
	}
	for _, n := range numbers {
		ok = ok && n >= -1e5 && n <= 1e5 // false for NaN
	}
	return ok
}

// A client that waits for 100 Continue is told at once that its body is too long: it sends none.
func TestABodyThatIsAnnouncedTooLongIsNotWaitedFor(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		p, _ := serve(t, silent(), maxConnections)
		w := p.connect()
		io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nExpect: 100-continue\r\n"+
			"Content-Length: 4097\r\n\r\n")
		r, err := w.receive("POST")
		if err != nil {
			t.Fatal(err)
		}
		r.want(t, 413, "too_large")
	})
}

func TestChunksThatNeverEndAreAnswered413(t *testing.T) {
	s := listen(t, silent())
	for _, path := range []string{"/api/drone/land", "/api/drone/input"} {
		w := dial(t, s.address)
		fmt.Fprintf(w, "POST %s HTTP/1.1\r\nHost: drone.local\r\nTransfer-Encoding: chunked\r\n\r\n", path)
		var writer sync.WaitGroup
		writer.Go(func() {
			for chunk := "400\r\n" + strings.Repeat(" ", 0x400) + "\r\n"; ; {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		})
		r, err := w.receive("POST")
		if err != nil {
			t.Error(err)
		}
		r.want(t, 413, "too_large")
		w.Close()
		writer.Wait()
	}
	dial(t, s.address).ask("GET", "/api/drone", "").wantOK(t)
}

func TestAnIncompleteBodyIs400(t *testing.T) {
	const half = "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nContent-Length: 9\r\n\r\n{"
	want := func(t *testing.T, w *wire, says string) {
		r, err := w.receive("POST")
		if err != nil {
			t.Fatal(err)
		}
		r.want(t, 400, "bad_request")
		lineEqual(t, "the error", r.failure(t).Error, says)
	}
	t.Run("it stalls", func(t *testing.T) {
		inLinkBubble(t, func(t *testing.T) {
			p, _ := serve(t, silent(), maxConnections)
			w := p.connect()
			began := time.Now()
			io.WriteString(w, half)
			want(t, w, "the whole body did not arrive within 10 s")
			if took := time.Since(began); took != readTimeout {
				t.Errorf("answered after %v, want %v", took, readTimeout)
			}
		})
	})
	t.Run("it ends", func(t *testing.T) {
		w := dial(t, listen(t, silent()).address)
		io.WriteString(w, half)
		w.Conn.(*net.TCPConn).CloseWrite()
		want(t, w, "the body ended early")
	})
	t.Run("a chunk has no size", func(t *testing.T) {
		w := dial(t, listen(t, silent()).address)
		io.WriteString(w, "POST /api/drone/land HTTP/1.1\r\nHost: drone.local\r\nTransfer-Encoding: chunked\r\n\r\n"+
			"zz\r\n{}\r\n")
		want(t, w, "the body ended early, or the size of one of its chunks is wrong")
	})
}

// A small board sends its headers, and a moment later a body whose length it did not give. Its
// connection must not be reset by then, or the answer is lost.
func TestTheAnswer411IsReadThoughTheBodyComesLater(t *testing.T) {
	s := listen(t, silent())
	w := dial(t, s.address)
	io.WriteString(w, "POST /api/drone/takeoff HTTP/1.1\r\nHost: drone.local\r\nContent-Type: application/json\r\n\r\n")
	// In real time, as sockets work in no other: by now the server has answered, and closed its side.
	time.Sleep(100 * time.Millisecond)
	for range 10 {
		if _, err := io.WriteString(w, `{"altitude":3,"wait":60}`); err != nil {
			t.Fatalf("the connection was reset: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	r, err := w.receive("POST")
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, 411, "length_required")
	w.gone()
}

// A takeoff that waits for its body may be the longest idle one.
func TestACommandWhoseConnectionMadeWayIsNotCarriedOut(t *testing.T) {
	inLinkBubble(t, func(t *testing.T) {
		near, _ := net.Pipe()
		l := &connections{max: 1, open: make(map[net.Conn]*connection)}
		c := l.add(near)
		ask := func(path string) reply {
			r := httptest.NewRequest("POST", "http://192.0.2.7/api/drone"+path, nil)
			w := httptest.NewRecorder()
			silent().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), connKey{}, c)))
			return reply{w.Code, w.Header(), w.Body.String()}
		}
		ask("/land").want(t, 503, "offline")
		l.stateChanged(near, http.StateIdle)
		time.Sleep(closeAfter)
		lineEqual(t, "there is room", l.makeRoom(0), true)
		ask("/land").want(t, 400, "bad_request", "nothing was sent")
		ask("/input").want(t, 400, "bad_request", "nothing was sent")
	})
}

func TestACommandWhoseClientHasGoneIsNotCarriedOut(t *testing.T) {
	s := listen(t, silent())
	for path, body := range postRoutes {
		for _, test := range []struct {
			gone bool
			want int
		}{{true, 400}, {false, 503}} {
			w := dial(t, s.address)
			raw, err := w.Conn.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			// As after an outage, the request and the connection's end arrive together.
			raw.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, 1) })
			w.send("POST", path, body)
			if test.gone {
				w.Conn.(*net.TCPConn).CloseWrite()
			} else {
				raw.Control(func(fd uintptr) {
					syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK,
						0)
				})
			}
			if r, err := w.receive("POST"); err != nil || r.status != test.want {
				t.Errorf("%s, gone %v: got %d %s %v want %d", path, test.gone, r.status, r.body, err, test.want)
			}
			w.Close()
		}
	}
}
