"""A small MCP server on stdio whose tool `meet` waits until so many of its calls are there at once.

It answers how many it has seen at most. Plain JSON-RPC, a thread for each call.
"""

import json
import sys
import threading
from typing import Any

TOOL = {
    "name": "meet",
    "inputSchema": {"type": "object", "properties": {"number": {"type": "integer"}, "who": {"type": "integer"}}},
}
OFFER = {"capabilities": {"tools": {}}, "serverInfo": {"name": "crowd", "version": "1"}}
MEETING_S = 20
turn = threading.Condition()
inside = most = met = 0


def say(message: dict[str, Any]) -> None:
    with turn:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def call(id: int | str, number: int) -> None:
    global inside, most, met
    with turn:
        inside += 1
        most = max(most, inside)
        if inside >= number:
            met += number
            turn.notify_all()
        turn.wait_for(lambda: met > 0, MEETING_S)
        met -= 1
        text = f"{most} at once"
        inside -= 1
    say({"id": id, "result": {"content": [{"type": "text", "text": text}]}})


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            version = message["params"]["protocolVersion"]
            say({"id": message["id"], "result": {**OFFER, "protocolVersion": version}})
        case "tools/list":
            say({"id": message["id"], "result": {"tools": [TOOL]}})
        case "tools/call":
            number = message["params"]["arguments"]["number"]
            threading.Thread(target=call, args=(message["id"], number), daemon=True).start()
        case _ if "id" in message:
            say({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
