#!/usr/bin/env bash
# pymavlink 2.4.50 and node-mavlink 2.3.0 put extension fields into MAVLink 1 frames,
# and gomavlib 3.3.5 takes such a frame for a broken one.
#
# MAVLink's guide: extension fields are not sent when a message is encoded in MAVLink 1.
# So a COMMAND_ACK has 3 bytes of payload there (command, result), and so it has in
# pymavlink's own dialect of MAVLink 1. But its dialect of MAVLink 2 with
# force_mavlink1=True and node-mavlink's MavLinkProtocolV1 send 10: progress,
# result_param2 and the target too.
#
# gomavlib wants exactly 3 bytes in MAVLink 1, and returns an error for the frame: on
# its side the ack is lost, though the checksum is right.
#
# Seen:
#     pymavlink, dialect of MAVLink 1:            fe030001014d9001005b76
#     pymavlink, dialect of MAVLink 2, forced:    fe0a0001014d90010000000000000000cd01
#     node-mavlink, MavLinkProtocolV1:            fe0a0001014d90010000000000000000cd01
#     gomavlib reads fe030001014d9001005b76: MAV_CMD_COMPONENT_ARM_DISARM MAV_RESULT_ACCEPTED
#     gomavlib reads fe0a0001014d90010000000000000000cd01: unable to decode message: wrong size: expected 3, got 10
#
# Needs python3 with venv, node with npm, and Go 1.25.
set -euo pipefail
self=$(realpath "$0")
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pymavlink==2.4.50
cat >ack.py <<'EOF'
from pymavlink.dialects.v10 import common as one
from pymavlink.dialects.v20 import common as two
a = one.MAVLink(None, 1, 1)
print('pymavlink, dialect of MAVLink 1:           ', a.command_ack_encode(400, 0).pack(a).hex())
a = two.MAVLink(None, 1, 1)
print('pymavlink, dialect of MAVLink 2, forced:   ', a.command_ack_encode(400, 0).pack(a, force_mavlink1=True).hex())
EOF

npm install --silent --no-fund --no-audit --prefix node node-mavlink@2.3.0
cat >ack.js <<'EOF'
const { MavLinkProtocolV1, common } = require('node-mavlink')
const ack = Object.assign(new common.CommandAck(), { command: 400, result: 0 })
console.log('node-mavlink, MavLinkProtocolV1:           ', new MavLinkProtocolV1(1, 1).serialize(ack, 0).toString('hex'))
EOF

mkdir go
cat >go/main.go <<'EOF'
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/bluenviron/gomavlib/v3/pkg/dialect"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
)

func main() {
	d := &dialect.ReadWriter{Dialect: common.Dialect}
	if err := d.Initialize(); err != nil {
		panic(err)
	}
	for _, digits := range os.Args[1:] {
		b, _ := hex.DecodeString(digits)
		r := &frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b)), DialectRW: d}
		if err := r.Initialize(); err != nil {
			panic(err)
		}
		f, err := r.Read()
		if err != nil {
			fmt.Printf("gomavlib reads %s: %v\n", digits, err)
			continue
		}
		ack := f.GetMessage().(*common.MessageCommandAck)
		fmt.Printf("gomavlib reads %s: %v %v\n", digits, ack.Command, ack.Result)
	}
}
EOF
(cd go && go mod init finding && go get github.com/bluenviron/gomavlib/v3@v3.3.5 && go build -o ../read .) >go.log 2>&1 || { cat go.log; exit 1; }

{
	venv/bin/python ack.py
	NODE_PATH=node/node_modules node ack.js
	./read fe030001014d9001005b76 fe0a0001014d90010000000000000000cd01
} >seen
cat seen
sed -n '/^# Seen:$/,/^#$/s/^#     //p' "$self" >expected
diff expected seen
echo "as it was found"
