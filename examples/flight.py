#!/usr/bin/env python3
"""Flies up, 30 m north, a little forward by the sticks, and home.

    examples/flight.py http://raspberrypi.local
"""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request

drone = (sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8080") + "/api/drone/"


def ask(path, body=None):
    """Send a request and return its answer. An error ends the script, not the flight, and prints
    the reason on one line. No request is repeated: a pilot may have taken the drone."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(drone + path, data, timeout=200) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(json.load(error)["error"])
    except (OSError, ValueError, http.client.HTTPException) as error:  # no connection, a timeout, no URL
        sys.exit(f"no answer from {drone}{path}: {error}")


while not ask("status")["armable"]:
    print("The drone can't take off yet.")
    time.sleep(2)
print(ask("takeoff", {"altitude": 10, "wait": 60}))
# A place 30 m north of home: a degree of latitude is 111,319.5 m.
home = ask("status")["home"]
print(ask("goto", {"lat": home["lat"] + 30 / 111319.5, "lon": home["lon"], "altitude": 15, "speed": 5, "wait": 60}))
ask("mode", {"mode": "position"})
ask("input", {"pitch": 0.5, "timeout": 1})
time.sleep(1)
print(ask("mode", {"mode": "hold", "wait": 30}))
print(ask("mode", {"mode": "rtl", "wait": 180}))
