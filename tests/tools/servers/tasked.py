"""A server by hand whose tools are called as tasks alone. It notes what it hears in the file that is its argument.

`well` takes three looks, `slow` never ends, `broken` fails, and `told` begins no task but answers at once.
"""

import json
import sys
from pathlib import Path
from typing import Any

TOOLS = ("well", "slow", "broken", "told")
LOG = Path(sys.argv[1])
looks: dict[str, int] = {}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(what: str) -> None:
    with LOG.open("a") as log:
        log.write(f"{what}\n")


def task(name: str) -> dict[str, Any]:
    looks[name] = looks.get(name, -1) + 1
    ended = {"well": "completed", "broken": "failed"}.get(name) if looks[name] >= 3 else None
    times = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-11-25T12:00:00Z")
    return {"taskId": name, "status": ended or "working", "ttl": 1000, "pollInterval": 1, **times}


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
            info = {"name": "tasked", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            needed = {"inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
            return {"tools": [{"name": name, **needed} for name in TOOLS]}
        case "tools/call" if params["name"] == "told":
            return text("at once")
        case "tools/call" if "task" in params:
            looks.clear()
            return {"task": task(params["name"])}
        case "tasks/get":
            return task(params["taskId"])
        case "tasks/cancel":
            return {**task(params["taskId"]), "status": "cancelled"}
        case "tasks/result":
            failed = {"isError": True} if params["taskId"] == "broken" else {}
            return {**text(f"{params['taskId']} after {looks[params['taskId']]} looks"), **failed}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    note(request["method"])
    answer = result(request["method"], request.get("params", {}))
    if answer is None:
        say({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
    else:
        say({"id": request["id"], "result": answer})
