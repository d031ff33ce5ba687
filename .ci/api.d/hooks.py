"""What schemathesis changes and leaves out, each with its reason."""

import time

import jsonschema_rs
import requests
import schemathesis

# The mode in which a command does more than be refused.
MODES = {"goTo": "hold", "sendInput": "position"}
last = None


def prepare(url, mode):
    """Flies, if the drone will: what comes is tried on the ground otherwise."""
    end = time.monotonic() + 15
    if not requests.get(url + "status").json()["in_air"]:
        requests.post(url + "takeoff", json={"altitude": 3})
    while not requests.get(url + "status").json()["in_air"] and time.monotonic() < end:
        time.sleep(0.1)
    requests.post(url + "mode", json={"mode": mode})


@schemathesis.hook
def before_call(context, case, kwargs):
    """No manoeuvre is waited for longer than 0.05 s, as the run has to end. When
    it is the turn of goto or input, the drone is brought to where they do
    something."""
    global last
    wait = case.body.get("wait") if isinstance(case.body, dict) else None
    if type(wait) in (int, float) and 0.05 < wait <= 600:
        case.body = {**case.body, "wait": 0.05}
    operation = case.operation.definition.raw["operationId"]
    if operation != last and operation in MODES and case.meta.phase.name.value != "stateful":
        prepare(case.operation.base_url + "/api/drone/", MODES[operation])
    last = operation


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Reads more than it tells clients to send: a field that is null is one that
    was not given, and a mode may be in capitals. What is wrong beside that has
    to be refused all the same."""
    if type(failure).__name__ != "AcceptedNegativeData" or not isinstance(case.body, dict):
        return True
    body = {name: value for name, value in case.body.items() if value is not None}
    if isinstance(body.get("mode"), str):
        body["mode"] = body["mode"].lower()
    document = case.operation.schema.raw_schema
    asked = document["paths"][case.operation.path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return not jsonschema_rs.is_valid({**asked, "components": document["components"]}, body)
