"""A small MCP server on stdio whose one tool takes until it is told: it answers when a file is there.

Plain JSON-RPC, so that it is up in no time. Writes what happens to its calls, a line each, into a book.
Usage: slow.py GO BOOK
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

TOOL = {
    "name": "wait",
    "description": "Wait until the world is ready",
    "inputSchema": {"type": "object", "properties": {}},
}
POLL_S = 0.01

lock = threading.Lock()


def say(message: dict[str, Any]) -> None:
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def note(line: str) -> None:
    with lock, Path(sys.argv[2]).open("a") as book:
        book.write(f"{line}\n")


def call(id: int | str, cancelled: threading.Event) -> None:
    note("called")
    while not cancelled.wait(POLL_S):
        if Path(sys.argv[1]).exists():
            say({"id": id, "result": {"content": [{"type": "text", "text": "waited"}]}})
            note("answered")
            return
    note("cancelled")


def main() -> None:
    calls: dict[int | str, threading.Event] = {}
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "slow", "version": "1"},
                }
                say({"id": message["id"], "result": result})
            case "tools/list":
                say({"id": message["id"], "result": {"tools": [TOOL]}})
            case "tools/call":
                event = calls[message["id"]] = threading.Event()
                threading.Thread(target=call, args=(message["id"], event), daemon=True).start()
            case "notifications/cancelled":
                if (known := calls.get(message["params"]["requestId"])) is not None:
                    known.set()
            case "ping":
                say({"id": message["id"], "result": {}})
            case _ if "id" in message:
                say({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
    time.sleep(0.05)  # what is being written is written


if __name__ == "__main__":
    main()
