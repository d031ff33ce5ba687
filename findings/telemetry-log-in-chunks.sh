#!/usr/bin/env bash
# node-mavlink 2.3.0 loses frames of a telemetry log (.tlog) that it reads from a file, and says nothing.
#
# A telemetry log is, for each frame, 8 bytes of time and the frame; pymavlink writes and reads it, and so do
# QGroundControl and Mission Planner. MavLinkTLogPacketSplitter finds a frame's first byte only where 8 bytes are ahead
# of it in what it holds. A stream of a file comes in chunks of 64 KiB: where one ends inside a time, the frame behind it
# is skipped. So about one frame in 3,000 is missing, in smaller chunks more. Whoever looks for the one ack or the one
# change of the mode in a log may not find it. One chunk with the whole file loses nothing.
#
# Seen:
#     pymavlink 2.4.50 reads 20000 of 20000 frames
#     node-mavlink 2.3.0 reads 19993 of 20000 frames, in chunks of 65536 bytes
#     node-mavlink 2.3.0 reads 19523 of 20000 frames, in chunks of 1024 bytes
#     node-mavlink 2.3.0 reads 20000 of 20000 frames, in one chunk
#
# Needs python3 with venv, and node with npm.
set -euo pipefail
self=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pymavlink==2.4.50
cat >log.py <<'EOF'
import os, struct
os.environ['MAVLINK20'] = '1'
from pymavlink import mavutil
mav = mavutil.mavlink.MAVLink(None, srcSystem=1, srcComponent=1)
with open('flight.tlog', 'wb') as log:
    for i in range(20000):
        frame = mavutil.mavlink.MAVLink_attitude_message(i * 10, 0.1, 0.2, 0.3, 0, 0, 0).pack(mav)
        log.write(struct.pack('>Q', 1764000000000000 + i * 10000) + frame)
log, frames = mavutil.mavlink_connection('flight.tlog'), 0
while log.recv_msg() is not None:
    frames += 1
print('pymavlink 2.4.50 reads', frames, 'of 20000 frames')
EOF

npm install --silent --no-fund --no-audit --prefix node node-mavlink@2.3.0
cat >log.js <<'EOF'
const { createReadStream } = require('fs')
const { MavLinkTLogPacketSplitter, MavLinkPacketParser } = require('node-mavlink')
const size = Number(process.argv[2])
let frames = 0
createReadStream('flight.tlog', { highWaterMark: size })
  .pipe(new MavLinkTLogPacketSplitter())
  .pipe(new MavLinkPacketParser())
  .on('data', () => frames++)
  .on('end', () => console.log('node-mavlink 2.3.0 reads', frames, 'of 20000 frames, in',
    size > 1e6 ? 'one chunk' : `chunks of ${size} bytes`))
EOF

{
	venv/bin/python log.py
	for size in 65536 1024 16777216; do NODE_PATH=node/node_modules node log.js $size; done
} >seen
cat seen
sed -n '/^# Seen:$/,/^#$/s/^#     //p' "$self" >expected
diff expected seen
echo "as it was found"
