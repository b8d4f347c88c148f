"""A small MCP server on stdio whose one tool has an effect that can be counted: it writes a line into a file.

Plain JSON-RPC, so that it is up in no time. Usage: effects.py FILE
"""

import json
import os
import sys
from typing import Any

TOOL = {
    "name": "write",
    "description": "Write a word into the book",
    "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}


def answer(method: str, params: dict[str, Any], book: int) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "effects", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            word = params["arguments"]["word"]
            os.write(book, f"{word}\n".encode())
            return {"content": [{"type": "text", "text": f"written {word}"}]}
    return None


def main() -> None:
    book = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}), book)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": f"no method {message['method']}"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
