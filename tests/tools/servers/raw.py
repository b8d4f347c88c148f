"""A server by hand, without any library, for behaviour that no library would have. It knows the older protocol only,
but where it is `terse`: then it knows the newer one, and does not say of its calls' results that they are complete.

Its first argument says what is odd: `strict` exits on a message before initialize, `rubbish` floods both outputs,
`malformed` lists tools that are none, `mute` never answers, `endless` sends a line without an end, `stubborn` does
not end when it is told to, `gruff` answers calls with an error of the SDK's own code, `careless` answers them with the
result that the call brings as text. A second argument names a file to which the process's id is written.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

odd = sys.argv[1]
GOOD: dict[str, Any] = {"name": "good", "inputSchema": {"type": "object"}}
MODERN: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
MALFORMED: list[Any] = [
    GOOD,
    {"name": "untyped", "inputSchema": {"properties": {"a": {"type": "string"}}}},
    {"name": "no_object", "inputSchema": {"type": "string"}},
    {"name": "bad_extras", "inputSchema": {"type": "object"}, "annotations": "none", "outputSchema": 7},
    {"inputSchema": {"type": "object"}},
    "nothing",
]


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


if len(sys.argv) > 2:
    Path(sys.argv[2]).write_text(str(os.getpid()))
if odd == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while odd == "endless":
    sys.stdout.write("x" * 2**20)
if odd == "rubbish":
    for number in range(2000):
        sys.stdout.write("this is no message\n")
        sys.stderr.write(f"complaint {number} {'!' * 100}\n")
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if odd == "mute" or number is None:
        continue
    if method == "server/discover" and odd == "terse":
        offer = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        say({"id": number, "result": {**MODERN, **offer, "serverInfo": {"name": "raw", "version": "1"}}})
    elif method == "initialize":
        offer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        say({"id": number, "result": {**offer, "serverInfo": {"name": "raw", "version": "1"}}})
    elif method == "tools/list":
        more = MODERN if odd == "terse" else {}
        say({"id": number, "result": {**more, "tools": MALFORMED if odd == "malformed" else [GOOD]}})
    elif method == "tools/call" and odd == "gruff":
        say({"id": number, "error": {"code": -32000, "message": "Connection closed", "data": {"tenuto": "unsent"}}})
    elif method == "tools/call" and odd == "careless":
        result = message["params"]["arguments"]["result"]
        sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {result}}}\n')
        sys.stdout.flush()
    elif method == "tools/call":
        if odd == "rubbish":
            sys.stderr.write("complaint, the last\n")
            sys.stderr.flush()
        say({"id": number, "result": {"content": [{"type": "text", "text": "well"}]}})
    elif odd == "strict":
        sys.exit("initialize comes first")
    else:
        say({"id": number, "error": {"code": -32601, "message": "no such method"}})
if odd == "stubborn":
    time.sleep(60)
