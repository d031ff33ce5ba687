"""A second client for TestMavrestFliesBesideAnotherClient, by MAVSDK: one command a line, one JSON
answer a line.

    python3 second_client.py SYSTEM-ADDRESS GRPC-PORT
"""

import asyncio
import json
import sys

from mavsdk import System
from mavsdk.action import ActionError


async def first(stream):
    async for value in stream:
        return value


async def state(drone):
    place = await first(drone.telemetry.position())
    return {
        "mode": str(await first(drone.telemetry.flight_mode())),
        "armed": await first(drone.telemetry.armed()),
        "in_air": await first(drone.telemetry.in_air()),
        "lat": place.latitude_deg,
        "lon": place.longitude_deg,
        "altitude": place.relative_altitude_m,
        "altitude_msl": place.absolute_altitude_m,
    }


async def do(drone, command, *args):
    if command == "state":
        return await state(drone)
    try:
        await getattr(drone.action, command)(*map(float, args))
    except ActionError as refused:
        return {"result": refused._result.result.name}
    return {"result": "SUCCESS"}


async def main():
    drone = System(port=int(sys.argv[2]))
    await drone.connect(sys.argv[1])
    async for link in drone.core.connection_state():
        if link.is_connected:
            break
    print(json.dumps({"result": "CONNECTED"}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await do(drone, *line.split())), flush=True)


asyncio.run(main())
