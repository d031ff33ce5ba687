#!/usr/bin/env python3
"""Flies up, 30 m north, a little forward by the sticks, and home.

    examples/flight.py http://raspberrypi.local
    API_KEY=… USER_EMAIL=… examples/flight.py https://HUB/api/drone/NAME

The second flies through the one address of many drones. Python does not know the certificate
of a hub that signed it itself: SSL_CERT_FILE=fleet.pem names it.
"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request

drone = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8080"
if "/api/drone/" not in drone:
    drone += "/api/drone"
headers = {}
if "API_KEY" in os.environ:
    headers = {"api-key": os.environ["API_KEY"], "user-email": os.environ["USER_EMAIL"]}


def ask(path, body=None):
    """Send a request and return its answer. An error ends the script, not the flight, and prints
    the reason on one line. No command is repeated, whatever its answer: a pilot may have taken the drone."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{drone}/{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=200) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(json.load(error)["error"])
    except (OSError, ValueError, http.client.HTTPException) as error:  # no connection, a timeout, no URL
        sys.exit(f"no answer from {drone}/{path}: {error}")


while not ask("status")["armable"]:
    print("The drone can't take off yet.")
    time.sleep(2)
print(ask("takeoff", {"altitude": 10, "wait": 60}))
# A place 30 m north of home: a degree of latitude is 111,319.5 m.
home = ask("status")["home"]
print(ask("goto", {"lat": home["lat"] + 30 / 111319.5, "lon": home["lon"], "altitude": 15, "speed": 5, "wait": 60}))
# In hover pitch flies forward; on a wing it sinks, and on wheels the throttle drives (vehicle.kind in the status).
ask("mode", {"mode": "position"})
ask("input", {"pitch": 0.5, "timeout": 1})
time.sleep(1)
print(ask("mode", {"mode": "hold", "wait": 30}))
print(ask("mode", {"mode": "rtl", "wait": 180}))
