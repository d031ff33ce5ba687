// Flies with the client that oapi-codegen generates: flight URL
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"time"

	"flight/drone"
)

var (
	ctx    = context.Background()
	client *drone.ClientWithResponses
)

// must returns r. It ends the program if there was an error, for then r is nil.
func must[R any](r *R, err error) *R {
	if err != nil {
		log.Fatal(err)
	}
	return r
}

func status() *drone.Status {
	r := must(client.GetStatusWithResponse(ctx))
	if r.JSON200 == nil {
		log.Fatalf("status: %s", r.Body)
	}
	return r.JSON200
}

// flown ends the program if a command's manoeuvre was not completed.
func flown(what string, a *drone.CommandAnswer, body []byte) {
	if a == nil || a.Done == nil || !*a.Done || *a.Took <= 0 {
		log.Fatalf("%s: %s", what, body)
	}
	if s := status(); s.Done == nil || !*s.Done {
		log.Fatalf("%s: the status does not say that it is done", what)
	}
}

func main() {
	log.SetFlags(0)
	client = must(drone.NewClientWithResponses(os.Args[1]))
	for s := status(); s.Armable == nil || !*s.Armable; s = status() {
		time.Sleep(200 * time.Millisecond)
	}
	lat, wait, altitude := 47.0, 60.0, 3.0
	refused := must(client.GoToWithResponse(ctx, drone.GotoRequest{Lat: &lat}))
	if refused.JSON422 == nil || refused.JSON422.Code != drone.ErrorCodeOutOfRange {
		log.Fatalf("half a place: %s", refused.Body)
	}

	// The status may be a second old: a takeoff that is still refused is tried again.
	takeoff := drone.TakeoffRequest{Altitude: &altitude, Wait: &wait}
	up := must(client.TakeOffWithResponse(ctx, takeoff))
	for n := 0; n < 50 && up.JSON409 != nil && up.JSON409.Code == drone.ErrorCodeRefused; n++ {
		time.Sleep(200 * time.Millisecond)
		up = must(client.TakeOffWithResponse(ctx, takeoff))
	}
	flown("takeoff", up.JSON200, up.Body)
	home := status().Home
	// A float32 can't hold this number: its steps are 0.4 m here.
	lat = math.Round((home.Lat+0.0001234)*1e7) / 1e7
	there := must(client.GoToWithResponse(ctx, drone.GotoRequest{Lat: &lat, Lon: &home.Lon, Wait: &wait}))
	flown("goto", there.JSON200, there.Body)
	s := status()
	if s.Mode != drone.ModeHold || math.Abs(*s.Target.Lat-lat) > 2e-7 || *s.Target.Distance > 2 {
		log.Fatalf("goto %v: mode %s, target %v, %v m away", lat, s.Mode, *s.Target.Lat, *s.Target.Distance)
	}
	down := must(client.LandWithResponse(ctx, drone.LandRequest{Wait: &wait}))
	flown("land", down.JSON200, down.Body)
	if s := status(); s.Mode != drone.ModeLand || *s.Armed || *s.State != "standby" {
		log.Fatalf("landed: mode %s, armed %v, state %s", s.Mode, *s.Armed, *s.State)
	}
	fmt.Println("flown, in", *up.JSON200.Took, "s up,", *there.JSON200.Took, "s there,", *down.JSON200.Took, "s down")
}
