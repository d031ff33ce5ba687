#!/usr/bin/env python3
"""Flies a square of 20 m, from where it takes off, and home: examples/square.py http://raspberrypi.local"""
import json, sys, time, urllib.request

drone = (sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8080") + "/api/drone/"


def ask(path, **fields):  # An error ends the script, not the flight. Never repeat a goto in metres: it flies on.
    body = json.dumps(fields).encode() if fields else None
    return json.load(urllib.request.urlopen(drone + path, body, timeout=200))


while not ask("status")["armable"]:
    time.sleep(2)
ask("takeoff", altitude=10, wait=60)
for north, east in (20, 0), (0, 20), (-20, 0), (0, -20):
    print(ask("goto", north=north, east=east, wait=60)["target"])
    time.sleep(3)  # It is done within 2 m of its place, and the next one counts from where it is.
ask("mode", mode="rtl", wait=180)
