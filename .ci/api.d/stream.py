"""Checks the stream that curl -N read against the description: stream.py FILE"""

import json
import sys

import jsonschema_rs
import yaml

document = yaml.safe_load(open("docs/openapi.yaml"))
status = jsonschema_rs.validator_for({"$ref": "#/components/schemas/Status", "components": document["components"]})
first, *events, cut = open(sys.argv[1]).read().split("\n\n")  # cut: the event that curl's time-out cut short
assert first == "retry: 1000", first
assert len(events) > 2, events
for event in events:
    name, data = event.split("\n")
    assert name == "event: status" and data.startswith("data: "), event
    status.validate(json.loads(data.removeprefix("data: ")))
print(len(events), "events")
