package main

// A vehicle that says what a test makes it say.

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// scriptedVehicle is a vehicle that sends only what the test says, and the mavrest that hears it.
type scriptedVehicle struct {
	*testing.T
	drone   *drone
	handler http.Handler
	line    net.Conn // the vehicle's end of the open port
	sender  *sender
}

func withScript(t *testing.T, test func(v *scriptedVehicle)) {
	inLinkBubble(t, func(t *testing.T) {
		v := &scriptedVehicle{T: t, sender: newSender(1, 1)}
		v.drone, _ = runDevice(t, device{
			name: "/dev/serial0",
			open: func(context.Context) (port, error) {
				board, vehicle := net.Pipe()
				v.line = vehicle
				go io.Copy(io.Discard, vehicle) // until the link closes its end
				return &connPort{Conn: board}, nil
			},
			line: atBaud(921600),
		})
		v.handler = newHandler(v.drone, admission{})
		synctest.Wait()
		test(v)
	})
}

// say sends messages as the vehicle.
func (v *scriptedVehicle) say(messages ...message.Message) {
	v.Helper()
	for _, m := range messages {
		b, _ := v.sender.encode(m)
		if _, err := v.line.Write(b); err != nil {
			v.Fatal(err)
		}
	}
	synctest.Wait()
}

// wantStatus checks the whole status, except for its time and the count link.sent.
func (v *scriptedVehicle) wantStatus(want string) {
	v.Helper()
	r := call(v.handler, "GET", "/api/drone/status", nil)
	r.body = regexp.MustCompile(`"sent":\d+`).ReplaceAllString(r.body, `"sent":1`)
	r.body = regexp.MustCompile(`"time":[.\d]+`).ReplaceAllString(r.body, `"time":1`)
	r.wantOK(v.T, strings.ReplaceAll(want, "\n", ""))
}

var holdingInAir = &minimal.MessageHeartbeat{
	Type: minimal.MAV_TYPE_QUADROTOR, Autopilot: minimal.MAV_AUTOPILOT_PX4,
	BaseMode: minimal.MAV_MODE_FLAG_SAFETY_ARMED | minimal.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED, CustomMode: 4<<16 | 3<<24,
	SystemStatus: minimal.MAV_STATE_ACTIVE, MavlinkVersion: 3,
}

// neverHeard is the status before the first heartbeat: nothing is known.
var neverHeard = `{"version":"` + ownVersion + `","time":1,"online":false,"mode":"manual","vehicle_mode":null,
"armed":null,"in_air":null,"landed_state":null,"state":null,"failsafe":null,
"armable":null,"unhealthy":null,"done":null,
"vehicle":null,"position":null,"velocity":null,"attitude":null,"battery":null,"gps":null,"home":null,"target":null,
"input":{"active":false,"expires_in":null,"by":null,"from":null,"yours":false},
"messages":[],
"link":{"device":"/dev/serial0","baud":921600,"heartbeat_age":null,"lag":null,"received":0,"lost":0,"errors":0,
"sent":1,"error":"no autopilot was heard yet on /dev/serial0; check the wiring, the baud rate or address, and the ` +
	`autopilot's MAVLink settings"}}`
