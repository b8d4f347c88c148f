"""A small MCP server on stdio: `put` writes its word into a file, under the server's name; `get` has no effect.

Plain JSON-RPC, so that it is up in no time. Usage: book.py FILE NAME
"""

import json
import os
import sys
from typing import Any

WORD = {"type": "object", "properties": {"w": {"type": "string"}}, "required": ["w"]}
TOOLS = [
    {"name": "put", "description": "Put.", "inputSchema": WORD},
    {"name": "get", "description": "Get.", "inputSchema": WORD, "annotations": {"readOnlyHint": True}},
]


def answer(method: str, params: dict[str, Any], book: int) -> dict[str, Any] | None:
    match method:
        case "initialize":
            offer = {"capabilities": {"tools": {}}, "serverInfo": {"name": "book", "version": "1"}}
            return {**offer, "protocolVersion": params["protocolVersion"]}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            word = params["arguments"]["w"]
            if params["name"] == "put":
                os.write(book, f"{sys.argv[2]}/{word}\n".encode())
            return {"content": [{"type": "text", "text": f"did {word}"}]}
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
