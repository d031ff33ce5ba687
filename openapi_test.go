package main

// docs/openapi.yaml names every route, field and code of the server, and no other. .ci/api
// checks with the running program whether what it says of them is true.

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func TestOpenAPINamesEveryRouteAndNoOther(t *testing.T) {
	var served []string
	for _, r := range new(api).routes() {
		served = append(served, r.method+" "+r.path)
	}
	slices.Sort(served)
	same(t, "routes", readDescription(t).routes, served)
}

func TestOpenAPINamesEveryFieldOfARequestAndNoOther(t *testing.T) {
	d := readDescription(t)
	for path := range postRoutes {
		rec := httptest.NewRecorder()
		silent().ServeHTTP(rec, httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(`{"?":0}`)))
		_, names, _ := strings.Cut(rec.Body.String(), "the fields here are: ")
		var served []string
		for _, name := range regexp.MustCompile(`\\"(\w+)\\"`).FindAllStringSubmatch(names, -1) {
			served = append(served, name[1])
		}
		slices.Sort(served)
		last := strings.TrimPrefix(path, "/api/drone/")
		same(t, path, d.fields[strings.ToUpper(last[:1])+last[1:]+"Request"], served)
	}
}

// answerTypes are the types of the answers, by their schema. The type of a field has a schema too.
var answerTypes = map[string]any{
	"OK": okBody{}, "ModeAnswer": modeBody{}, "InputAnswer": inputAnswer{}, "CommandAnswer": commandBody{},
	"Error": errorBody{}, "Place": placeBody{},
	"Status": statusBody{}, "Vehicle": vehicleBody{}, "Position": positionBody{}, "Velocity": velocityBody{},
	"Attitude": attitudeBody{}, "Battery": batteryBody{}, "GPS": gpsBody{}, "Home": homeBody{}, "Target": targetBody{},
	"Input": inputBody{}, "Link": linkBody{}, "Message": messageBody{},
}

func TestOpenAPINamesEveryFieldOfAnAnswerAndNoOther(t *testing.T) {
	described := readDescription(t).fields
	belongs := make(map[reflect.Type]bool)
	for _, body := range answerTypes {
		belongs[reflect.TypeOf(body)] = true
	}
	for schema, body := range answerTypes {
		fields := jsonFields(reflect.TypeOf(body), func(field reflect.Type) {
			for field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice {
				field = field.Elem()
			}
			if field.Kind() == reflect.Struct && !belongs[field] {
				t.Errorf("%s has a field of the type %s, which has no schema", schema, field)
			}
		})
		same(t, schema, described[schema], fields)
	}
	for schema := range described {
		if _, ok := answerTypes[schema]; !ok && !strings.HasSuffix(schema, "Request") {
			t.Errorf("%s is described, and no type has its fields", schema)
		}
	}
}

// Of what is not known the name is served too.
func TestEveryFieldOfTheStatusIsServed(t *testing.T) {
	var status, link map[string]any
	body := []byte(call(silent(), "GET", "/api/drone/status", nil).body)
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatal(err)
	}
	same(t, "the status", readDescription(t).fields["Status"], slices.Sorted(maps.Keys(status)))
	link, _ = status["link"].(map[string]any)
	same(t, "the status's link", readDescription(t).fields["Link"], slices.Sorted(maps.Keys(link)))
}

func TestOpenAPIsExamplesOfErrorsAreTheProgramsOwnWords(t *testing.T) {
	text := pageText(t, "openapi.yaml")
	all, examples := sentences(t), 0
	errors := regexp.MustCompile(`\berror: ("(?:[^"\\]|\\.)*"|[a-z][^,{}\n]*)`)
	for _, m := range errors.FindAllStringSubmatch(text, -1) {
		said, err := strconv.Unquote(m[1])
		if err != nil {
			said = m[1]
		}
		if said == "null" {
			continue
		}
		said = strings.TrimPrefix(said, "-device /dev/serial0: ") // link.run adds it
		examples++
		if !slices.ContainsFunc(all, func(r *regexp.Regexp) bool { return r.MatchString(said) }) {
			t.Errorf("no sentence of the program reads %q", said)
		}
	}
	if examples < 20 {
		t.Errorf("only %d examples were found", examples)
	}
}

// Every example of an answer fits, and the validator sees what does not.
func TestTheSchemaOfTheStatusIsReadAsItIsMeant(t *testing.T) {
	text := pageText(t, "openapi.yaml")
	page, err := readYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			schema, _ := v["schema"].(map[string]any)
			list, _ := v["examples"].(map[string]any)
			for name, example := range list {
				value, ok := example.(map[string]any)["value"].(map[string]any)
				if !ok || schema == nil {
					continue
				}
				examples++
				for _, fault := range fits(schema, value, name) {
					t.Error(fault)
				}
			}
			for _, value := range v {
				walk(value)
			}
		}
	}
	walk(page)
	if examples < 30 {
		t.Errorf("only %d examples were found", examples)
	}

	flying := page
	for _, key := range []string{"paths", "/api/drone/status", "get", "responses", "200", "content", "application/json",
		"examples", "flying", "value"} {
		flying = flying.(map[string]any)[key]
	}
	good, err := json.Marshal(flying)
	if err != nil {
		t.Fatal(err)
	}
	for old, damaged := range map[string]string{
		`"mode":"hold"`:           `"mode":"flying"`,
		`"online":true`:           `"online":null`,
		`"lat":47.3978177`:        `"lat":90.1`,
		`"satellites":12`:         `"satellites":12.5`,
		`"satellites":13`:         ``, // it is not there: nothing changes
		`"remaining":100`:         `"remaining":101`,
		`"remaining":1`:           `"remaining":-1`,
		`"unhealthy":[]`:          `"unhealthy":[1]`,
		`"severity":"info"`:       `"severity":"bad"`,
		`"done":false`:            `"done":false,"more":1`,
		`"system_id":1`:           `"system_id":0`,
		`"link":{`:                `"link":{"x":1,`,
		`"landed_state":"in_air"`: `"landed_state":5`,
		`,"yours":false`:          ``,
	} {
		text := strings.Replace(string(good), old, damaged, 1)
		if found := len(misfits("Status", []byte(text))) > 0; found != (text != string(good)) {
			t.Errorf("%s for %s: found %v, %v", damaged, old, found, misfits("Status", []byte(text)))
		}
	}
}

// Whatever comes in whole frames, the status fits its schema: random frames of every message of the dialect,
// from the autopilot and from others, of a vehicle that was found.
func TestWhateverComesInWholeFramesTheStatusFitsItsSchema(t *testing.T) {
	rounds := 60
	if *runAll {
		rounds = 1000
	}
	seen := map[string]bool{} // each kind of misfit once
	for round := range rounds {
		random := rand.New(rand.NewPCG(uint64(round), 9))
		d := newDrone(device{name: "random"}, 0, false, slog.New(slog.DiscardHandler))
		d.cmd.quitting = true // no handshake
		r := &reader{link: d.link}
		now := time.Now()
		feed := func(b []byte) {
			r.in.read(bytes.NewReader(b))
			for f, ok := r.in.next(); ok; f, ok = r.in.next() {
				r.handle(f, now)
			}
		}
		beat := []*common.MessageHeartbeat{px4Beat(), copterBeat()}[round%2]
		feed(packet(0, 1, autopilotID, beat))
		for i := range 60 {
			m := dialectRW.Dialect.Messages[random.IntN(len(dialectRW.Dialect.Messages))]
			f := wireFrame{
				seq: byte(i), system: 1, component: autopilotID, id: m.GetID(),
				payload: anyPayload(random, len(payloadOf(m, false))),
			}
			if f.id == idHeartbeat && random.IntN(2) == 0 { // of this vehicle, in a state of any number
				copy(f.payload[4:], []byte{byte(beat.Type), byte(beat.Autopilot)})
			}
			feed(f.bytes())
			now = now.Add(time.Duration(random.IntN(700)) * time.Millisecond)
			var s snapshot
			d.locked(func() { s = d.snapshot(now) })
			for _, misfit := range misfits("Status", encode(render(&s, netip.Addr{}))) {
				kind := regexp.MustCompile(`[0-9.e+-]+`).ReplaceAllString(misfit, "N")
				if !seen[kind] {
					t.Errorf("seed %d, after message %d (%x): %s", round, f.id, f.payload, misfit)
				}
				seen[kind] = true
			}
		}
	}
}
