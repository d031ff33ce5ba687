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

func status() *drone.Status {
	r, err := client.GetStatusWithResponse(ctx)
	if err != nil || r.JSON200 == nil {
		log.Fatalf("status: %v, %s", err, r.Body)
	}
	return r.JSON200
}

// flown ends the program if a command's manoeuvre was not completed.
func flown(what string, a *drone.CommandAnswer, body []byte, err error) {
	if err != nil || a == nil || a.Done == nil || !*a.Done || *a.Took <= 0 {
		log.Fatalf("%s: %v, %s", what, err, body)
	}
	if s := status(); s.Done == nil || !*s.Done {
		log.Fatalf("%s: the status does not say that it is done", what)
	}
}

func main() {
	log.SetFlags(0)
	var err error
	if client, err = drone.NewClientWithResponses(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	for s := status(); s.Armable == nil || !*s.Armable; s = status() {
		time.Sleep(200 * time.Millisecond)
	}
	lat, wait, altitude := 47.0, 60.0, 3.0
	refused, err := client.GoToWithResponse(ctx, drone.GotoRequest{Lat: &lat})
	if err != nil || refused.JSON422 == nil || refused.JSON422.Code != drone.ErrorCodeOutOfRange {
		log.Fatalf("half a place: %v, %s", err, refused.Body)
	}

	// The status may be a second old: a takeoff that is still refused is tried again.
	up, err := client.TakeOffWithResponse(ctx, drone.TakeoffRequest{Altitude: &altitude, Wait: &wait})
	for n := 0; n < 50 && err == nil && up.JSON409 != nil && up.JSON409.Code == drone.ErrorCodeRefused; n++ {
		time.Sleep(200 * time.Millisecond)
		up, err = client.TakeOffWithResponse(ctx, drone.TakeoffRequest{Altitude: &altitude, Wait: &wait})
	}
	flown("takeoff", up.JSON200, up.Body, err)
	home := status().Home
	// A float32 can't hold this number: its steps are 0.4 m here.
	lat = math.Round((home.Lat+0.0001234)*1e7) / 1e7
	there, err := client.GoToWithResponse(ctx, drone.GotoRequest{Lat: &lat, Lon: &home.Lon, Wait: &wait})
	flown("goto", there.JSON200, there.Body, err)
	s := status()
	if s.Mode != drone.ModeHold || math.Abs(*s.Target.Lat-lat) > 2e-7 || *s.Target.Distance > 2 {
		log.Fatalf("goto %v: mode %s, target %v, %v m away", lat, s.Mode, *s.Target.Lat, *s.Target.Distance)
	}
	down, err := client.LandWithResponse(ctx, drone.LandRequest{Wait: &wait})
	flown("land", down.JSON200, down.Body, err)
	if s := status(); s.Mode != drone.ModeLand || *s.Armed || *s.State != "standby" {
		log.Fatalf("landed: mode %s, armed %v, state %s", s.Mode, *s.Armed, *s.State)
	}
	fmt.Println("flown, in", *up.JSON200.Took, "s up,", *there.JSON200.Took, "s there,", *down.JSON200.Took, "s down")
}
