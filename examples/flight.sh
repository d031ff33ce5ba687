#!/usr/bin/env bash
# Flies up, 30 m north, a little forward by the sticks, and home.
#   examples/flight.sh http://raspberrypi.local
set -euo pipefail
drone=${1:-http://localhost:8080}/api/drone

# order PATH BODY: sends a command. An error ends the script, not the flight, and prints the reason. No command is
# repeated: a 409 may mean that a pilot has taken the drone, and a lost answer says nothing.
order() { curl -sS --fail-with-body "$drone/$1" -d "$2"; }

# Waits until the drone can take off.
grep -qm1 '"armable":true' < <(curl -sN "$drone/status" -H 'Accept: text/event-stream') || {
	echo "no answer from $drone" >&2
	exit 1
}
order takeoff '{"altitude":10,"wait":60}'
# A place 30 m north of home: a degree of latitude is 111,319.5 m.
north=$(curl -sS "$drone/status" | grep -o '"home":{"lat":[-0-9.]*,"lon":[-0-9.]*' | awk -F'[:,]' '{ printf "\"lat\":%.7f,\"lon\":%s", $3 + 30 / 111319.5, $5 }')
order goto "{$north,\"altitude\":15,\"speed\":5,\"wait\":60}"
# In hover pitch flies forward; on a wing it sinks, and on wheels the throttle drives (vehicle.kind in the status).
order mode '{"mode":"position"}'
order input '{"pitch":0.5,"timeout":1}'
sleep 1
order mode '{"mode":"hold","wait":30}'
order mode '{"mode":"rtl","wait":180}'
