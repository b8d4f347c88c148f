"""A server by hand, without any library, for behaviour that no library would have. It knows the older protocol only.

Its first argument says what is odd: `strict` exits on a message before initialize, `rubbish` floods both outputs,
`malformed` lists tools that are none, `mute` never answers.
"""

import json
import sys

odd = sys.argv[1]
GOOD = {"name": "good", "inputSchema": {"type": "object"}}
MALFORMED = [
    GOOD,
    {"name": "untyped", "inputSchema": {"properties": {"a": {"type": "string"}}}},
    {"name": "no_object", "inputSchema": {"type": "string"}},
    {"name": "bad_extras", "inputSchema": {"type": "object"}, "annotations": "none", "outputSchema": 7},
    {"inputSchema": {"type": "object"}},
    "nothing",
]


def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


if odd == "rubbish":
    for number in range(2000):
        print("this is no message")
        print(f"complaint {number} " + "!" * 100, file=sys.stderr)
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if odd == "mute" or number is None:
        continue
    if method == "initialize":
        offer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        say({"id": number, "result": {**offer, "serverInfo": {"name": "raw", "version": "1"}}})
    elif method == "tools/list":
        say({"id": number, "result": {"tools": MALFORMED if odd == "malformed" else [GOOD]}})
    elif method == "tools/call":
        say({"id": number, "result": {"content": [{"type": "text", "text": "well"}]}})
    elif odd == "strict":
        sys.exit("initialize comes first")
    else:
        say({"id": number, "error": {"code": -32601, "message": "no such method"}})
