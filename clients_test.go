package main

// Programs that repeat requests by themselves: what they do with each answer of the contract, and what becomes of
// a flight then.

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// repeater is the rule by which a program repeats a POST: its own where it repeats one by default, else with the
// option that makes it do so. retryAfter: the answer has a Retry-After.
type repeater struct {
	name    string
	repeats func(status int, retryAfter bool) bool
}

func oneOf(list ...int) func(int, bool) bool {
	return func(status int, _ bool) bool { return slices.Contains(list, status) }
}

var repeaters = []repeater{
	{"curl --retry, 8.17 (before: without 522 and 524)", oneOf(408, 429, 500, 502, 503, 504, 522, 524)},
	{"urllib3 2, allowed_methods with POST and a status_forcelist as its manual has it",
		func(status int, retryAfter bool) bool {
			byHeader := retryAfter && slices.Contains([]int{413, 429, 503}, status)
			return byHeader || slices.Contains([]int{429, 500, 502, 503, 504}, status)
		}},
	{"axios-retry 4, isRetryableError", func(status int, _ bool) bool { return status == 429 || status/100 == 5 }},
	{"Go's retryablehttp 0.7, its default", func(status int, _ bool) bool {
		return status == 429 || status == 0 || (status >= 500 && status != 501)
	}},
	{"Polly, HandleTransientHttpError", func(status int, _ bool) bool { return status == 408 || status >= 500 }},
	{".NET's standard resilience handler, its default",
		func(status int, _ bool) bool { return status == 408 || status == 429 || status >= 500 }},
}

// repeated names who repeats an answer; "" for nobody.
func repeated(status int, retryAfter bool) string {
	for _, r := range repeaters {
		if r.repeats(status, retryAfter) {
			return r.name
		}
	}
	return ""
}

// errorRow is a row of the table of errors in docs/openapi.yaml.
type errorRow struct {
	status int
	code   string
	sent   string // "no", or anything else
}

func errorTable(t *testing.T) (rows []errorRow) {
	row := regexp.MustCompile(`(?m)^ +\| (\d{3}) \| (\w+) \| (\w+)[^|]* \| [^|]+ \|$`)
	for _, m := range row.FindAllStringSubmatch(pageText(t, "openapi.yaml"), -1) {
		status, _ := strconv.Atoi(m[1])
		rows = append(rows, errorRow{status, m[2], m[3]})
	}
	return rows
}

func TestTheTableOfErrorsHasEachStatusWithEachCode(t *testing.T) {
	served := make(map[int][]string)
	for _, row := range errorTable(t) {
		served[row.status] = append(served[row.status], row.code)
	}
	for _, status := range slices.Sorted(maps.Keys(errorContract)) {
		same(t, fmt.Sprint(status), slices.Sorted(slices.Values(served[status])),
			slices.Sorted(slices.Values(errorContract[status])))
	}
}

func TestNoAnswerAfterSomethingWasSentIsOneThatProgramsRepeat(t *testing.T) {
	repeats := 0
	for _, row := range errorTable(t) {
		who := repeated(row.status, row.status == http.StatusServiceUnavailable)
		if who != "" && row.sent != "no" {
			t.Errorf("%s repeats %d %s, and something may have been sent (%s)", who, row.status, row.code, row.sent)
		}
		if who != "" {
			repeats++
		}
	}
	if repeats < 3 {
		t.Errorf("only %d answers are repeated by anybody", repeats)
	}
}

// Where an answer of a vehicle is lost, or the vehicle does not know a command, something was sent.
func TestAnUnansweredCommandIsNotRepeatedByAnyProgram(t *testing.T) {
	noAck := func(*common.MessageCommandAck) []simAnswer { return nil }
	for name, misbehaves := range map[string]func(hf *httpFlight){
		"it answers nothing":  func(hf *httpFlight) { hf.answer(noAck) },
		"it does nothing":     func(hf *httpFlight) { hf.ignores() },
		"it knows no command": func(hf *httpFlight) { hf.refuse(common.MAV_RESULT_UNSUPPORTED) },
		"its cable is pulled": func(hf *httpFlight) { hf.sim.unplug() },
		"it is silent for 10 s": func(hf *httpFlight) {
			hf.sim.change(func() { hf.sim.switches().muted = true })
			time.Sleep(10 * time.Second)
		},
		"nothing, and waits 2 s": func(hf *httpFlight) {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, flavour := range []simFlavour{simPX4, simArduPilot} {
				flyHTTP(t, flavour, func(hf *httpFlight) {
					hf.fly("hold")
					misbehaves(hf)
					for path, body := range map[string]string{
						"/api/drone/goto": `{"altitude":80,"wait":2}`,
						"/api/drone/mode": `{"mode":"rtl","wait":2}`,
						"/api/drone/land": `{"wait":0.5}`,
					} {
						r := hf.post(path, body)
						r.checkForm(hf.T)
						if who := repeated(r.status, r.header.Get("Retry-After") != ""); r.status == 200 || who != "" {
							hf.Errorf("%s: %s repeats %d %s", path, who, r.status, r.body)
						}
					}
				})
			}
		})
	}
}

// An outage of 4 s. A client's landing comes in it and is repeated by curl's rule; the pilot takes the drone before
// the line is back. What is repeated after that would land it under his hands.
func TestCurlsRetryDoesNotFlyOverAPilotWhoTookTheDroneInAnOutage(t *testing.T) {
	curl := repeaters[0]
	for _, path := range []string{"/land", "/mode", "/goto", "/takeoff"} {
		body := map[string]string{
			"/mode": `{"mode":"rtl"}`, "/goto": `{"altitude":30}`, "/takeoff": `{"altitude":40}`,
		}[path]
		for _, muted := range []bool{false, true} {
			for asked := range 4 {
				both(t, func(f *flight) {
					f.aloft()
					f.accepted("/mode", `{"mode":"hold"}`)
					mute := func(is bool) { f.sim.change(func() { f.sim.switches().muted = is }) }
					if muted {
						mute(true)
					} else {
						f.sim.unplug()
					}
					time.Sleep(time.Duration(asked)*time.Second + 500*time.Millisecond)
					began := time.Now()
					time.AfterFunc(time.Duration(4-asked)*time.Second-700*time.Millisecond, func() {
						f.sim.pilotMode(pilots[f.firmware])
					})
					time.AfterFunc(time.Duration(4-asked)*time.Second-500*time.Millisecond, func() {
						mute(false)
						f.sim.plug()
					})
					answers := []int{}
					for pause := time.Second; len(answers) < 7; pause *= 2 {
						code, o := f.call("POST", path, body)
						answers = append(answers, code)
						if !curl.repeats(code, code == 503) {
							break
						}
						f.Logf("%v: %d %v is repeated in %v", time.Since(began), code, o, pause)
						time.Sleep(pause)
					}
					time.Sleep(20 * time.Second)
					// The one request that its client sent may go out when the line is back (rule 5).
					if mode := f.sim.truth().mode; len(answers) > 1 && mode != pilots[f.firmware] {
						f.Errorf("%s, asked %d s into the outage: the vehicle is in %s after %v",
							path, asked, f.drone.nameOf(mode), answers)
					}
				})
			}
		}
	}
}

// pilots are the modes that a pilot sets.
var pilots = map[firmware]uint32{px4: entered[px4][ModePosition], copter: entered[copter][ModePosition]}

// A vehicle that stands disarmed, and one that was never heard: nobody flies it, and a program may wait for it.
func TestAnOfflineVehicleThatStandsDisarmedIs503(t *testing.T) {
	call(silent(), "POST", "/api/drone/takeoff", nil).want(t, 503, "offline")
	both(t, func(f *flight) {
		f.sim.unplug()
		time.Sleep(5 * time.Second)
		for _, path := range []string{"/takeoff", "/land", "/input"} {
			f.refused(path, "", 503, "offline")
		}
	})
	both(t, func(f *flight) {
		f.aloft()
		f.sim.unplug()
		for range 2 {
			time.Sleep(5 * time.Second)
			for _, path := range []string{"/takeoff", "/land", "/input"} {
				f.refused(path, "", 409, "offline")
			}
		}
	})
}

// A bug after a copy went out is no 500: the vehicle may be doing it.
func TestAPanicAfterSomethingWasSentIsNoAck(t *testing.T) {
	onLine(t, copterBeat(), func(t *testing.T, b *lineBench) {
		b.inTheAir()
		b.change(func() {})
		b.drone.locked(func() { b.drone.cmd.acks.late = nil }) // what closes an unanswered command panics
		r := call(newHandler(b.drone, admission{}), "POST", "/api/drone/mode", strings.NewReader(`{"mode":"rtl"}`))
		r.want(t, 409, "no_ack", "after something was sent")
		lineEqual(t, "it was sent", len(b.commands(common.MAV_CMD_DO_SET_MODE)) > 0, true)
	})
}
