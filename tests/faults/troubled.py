"""A small MCP server on stdio that gets into trouble on demand, by the older protocol and without any library.

Usage: troubled.py [TROUBLE [FILE]]. The trouble is one at its start: `exits`, `hangs`, `rubbish`. Each tool is one in a
call; a line is written into FILE for each call that has come to it.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = ("well", "exit", "hang", "rubbish", "die", "die_once", "flood", "huge", "die_idle", "grow")
REPEATABLE = ("die_once",)
HUGE_BYTES = 50 * 2**20
trouble = sys.argv[1] if len(sys.argv) > 1 else "none"
book = sys.argv[2] if len(sys.argv) > 2 else os.devnull
grown = False


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def listing() -> list[dict[str, Any]]:
    names = (*TOOLS, "new") if grown else TOOLS
    return [
        {
            "name": name,
            "inputSchema": {"type": "object"},
            "annotations": {"idempotentHint": name in REPEATABLE},
        }
        for name in names
    ]


def noted(name: str) -> int:
    """Write the call down; how often it has come by now, in all processes."""
    with Path(book).open("a+") as file:
        file.write(f"{name}\n")
        file.flush()
        file.seek(0)
        return file.read().split().count(name)


def call(name: str) -> str:
    global grown
    times = noted(name)
    match name:
        case "exit":
            sys.exit("out of memory")
        case "hang":
            time.sleep(600)
        case "rubbish":
            for _ in range(1000):
                print("<html>this is no message</html>")
            sys.stdout.buffer.write(b"\xff\xfe\x00\n" * 100)
            sys.stdout.flush()
        case "die":
            os.kill(os.getpid(), 9)
        case "die_once" if times == 1:
            os.kill(os.getpid(), 9)
        case "flood":
            for number in range(10_000):
                print(f"complaint {number} {'!' * 200}", file=sys.stderr)
        case "huge":
            return "x" * HUGE_BYTES
        case "die_idle":
            if os.fork() == 0:
                time.sleep(0.2)
                os.kill(os.getppid(), 9)
                os._exit(0)
        case "grow":
            grown = True
            say({"method": "notifications/tools/list_changed"})
    return f"{name} {times}"


def answer(message: dict[str, Any]) -> None:
    method, number = message["method"], message["id"]
    if method == "initialize":
        offer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}}
        say({"id": number, "result": {**offer, "serverInfo": {"name": "troubled", "version": "1"}}})
    elif method == "tools/list":
        say({"id": number, "result": {"tools": listing()}})
    elif method == "tools/call":
        say({"id": number, "result": {"content": [{"type": "text", "text": call(message["params"]["name"])}]}})
    else:
        say({"id": number, "error": {"code": -32601, "message": f"no method {method}"}})


if trouble == "exits":
    sys.exit("no licence")
if trouble == "hangs":
    time.sleep(600)
while trouble == "rubbish":
    print("this is no message")
    time.sleep(0.001)
for line in sys.stdin:
    received = json.loads(line)
    if "id" in received:
        answer(received)
