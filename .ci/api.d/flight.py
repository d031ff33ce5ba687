"""Flies with the client that openapi-python-client generates: flight.py URL"""

import sys
import time

from drone import Client
from drone.api.command import go_to, land, take_off
from drone.api.read import get_status
from drone.models import CommandAnswer, Error, ErrorCode, GotoRequest, LandRequest, Mode, Status, TakeoffRequest

client = Client(base_url=sys.argv[1], timeout=120)


def status():
    s = get_status.sync(client=client)
    assert isinstance(s, Status), s
    return s


def fly(command, body):
    answer = command.sync(client=client, body=body)
    assert isinstance(answer, CommandAnswer) and answer.done is True and answer.took > 0, answer
    assert status().done is True, status()


while not status().armable:
    time.sleep(0.2)
refused = go_to.sync(client=client, body=GotoRequest(lat=47.0))
assert isinstance(refused, Error) and refused.code is ErrorCode.OUT_OF_RANGE, refused

fly(take_off, TakeoffRequest(altitude=3.0, wait=60.0))
home = status().home
# A float32 can't hold this number: its steps are 0.4 m here.
lat, lon = round(home.lat + 0.0001234, 7), home.lon
fly(go_to, GotoRequest(lat=lat, lon=lon, wait=60.0))
s = status()
assert s.mode is Mode.HOLD and abs(s.target.lat - lat) < 2e-7 and s.target.distance < 2, s
fly(land, LandRequest(wait=60.0))
s = status()
assert s.mode is Mode.LAND and s.armed is False and s.state == "standby", s
print("flown:", [m.text for m in s.messages])
