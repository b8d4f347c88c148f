"""Whatever comes to /mcp that is no request, or none that can be kept: one clear message, and the server goes on."""

import json
from typing import Any

import httpx
import mcp.types as t
import pytest

from tests.e2e.server import Server

pytestmark = pytest.mark.slow

NEWEST = t.LATEST_PROTOCOL_VERSION
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
LONE = "the arguments must be valid Unicode: there is a lone surrogate, U+D800"


def post(server: Server, body: bytes, **headers: str) -> httpx.Response:
    with server.client() as client:
        return client.post("/mcp", content=body, headers={**HEADERS, **headers})


def call(server: Server, method: str, name: str, params: str) -> dict[str, Any]:
    """A request of the newer protocol, whose params are written as they are."""
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{json.dumps(META)},{params}}}}}'
    named = {"Mcp-Protocol-Version": NEWEST, "Mcp-Method": method, "Mcp-Name": name}
    answer: dict[str, Any] = post(server, body.encode(), **named).json()
    return answer


def still_answers(server: Server) -> None:
    told = call(server, "tools/call", "chat", '"name":"chat","arguments":{"message":"still there"}')
    assert told["result"]["structuredContent"]["text"] == "still there"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "Parse error: EOF while parsing a value at line 1 column 0"),
        (b'{"jsonrpc":', "Parse error: EOF while parsing a value at line 1 column 11"),
        (b'{"x":"\xff"}', "Parse error: invalid unicode code point at line 1 column 7"),
        (b'{"x":"\\ud800"}', "Parse error: unexpected end of hex escape at line 1 column 13"),
        (b'{"x":' + b"[" * 9000, "Parse error: recursion limit exceeded at line 1 column 206"),
        (b'{"x":' + b"9" * 5000 + b"}", "Parse error: number out of range at line 1 column 4307"),
    ],
    ids=["empty", "cut", "utf-8", "surrogate", "deep", "digits"],
)
def test_what_is_no_json_is_a_parse_error(server: Server, body: bytes, message: str) -> None:
    older, newer = post(server, body), post(server, body, **{"Mcp-Protocol-Version": NEWEST})
    assert (older.status_code, newer.status_code) == (400, 400)
    assert older.json()["error"] == {"code": t.PARSE_ERROR, "message": message}
    assert newer.json()["error"]["code"] in (t.PARSE_ERROR, t.INVALID_REQUEST)
    still_answers(server)


@pytest.mark.parametrize(
    ("arguments", "status", "limit"),
    [
        ({"message": "a", "x": [{"a": {}}] * 20_000}, 400, "50000 JSON values"),
        ({"message": "a" * (4 << 20)}, 413, "4194304 bytes"),
    ],
    ids=["values", "bytes"],
)
@pytest.mark.parametrize("version", ["2025-06-18", NEWEST])
def test_a_message_that_would_be_long_in_reading_is_refused_by_the_name_of_its_limit(
    server: Server, arguments: dict[str, Any], status: int, limit: str, version: str
) -> None:
    params = {"_meta": META, "name": "chat", "arguments": arguments}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {"Mcp-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "chat"}
    refused = post(server, body, **headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, t.INVALID_REQUEST)
    assert refused.json()["error"]["message"] == f"the message has more than {limit}"
    still_answers(server)


def test_a_text_of_a_mebibyte_reaches_the_chat(server: Server) -> None:
    answer = call(
        server, "tools/call", "chat", json.dumps({"name": "chat", "arguments": {"message": "a" * (1 << 20)}})[1:-1]
    )
    assert answer["result"]["content"][0]["text"].startswith("context_too_long: ")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("chat", '{"message":"a\\ud800"}', LONE),
        ("chat", '{"message":"a","tools":[{"name":"f","parameters":{"\\ud800":1}}]}', LONE),
        ("run_get", '{"run_id":"\\ud800"}', LONE),
        ("notes__put", '{"key":"a","text":"\\ud800"}', LONE),
        (
            "chat",
            '{"message":"a","tools":[{"name":"f","parameters":{}},{"name":"f","parameters":{}}]}',
            "tools[1].name: there are two tools named 'f'",
        ),
        (
            "chat",
            '{"message":"a","temperature":NaN}',
            "the arguments must be valid JSON: NaN and infinities are not allowed",
        ),
        (
            "chat",
            '{"message":"a","max_tokens":3000000000}',
            "the arguments are not valid: max_tokens: 3000000000 is greater than the maximum of 2147483647",
        ),
    ],
)
def test_what_cannot_be_kept_is_told_and_leaves_nothing(
    server: Server, name: str, arguments: str, message: str
) -> None:
    result = call(server, "tools/call", name, f'"name":"{name}","arguments":{arguments}')["result"]
    assert result["isError"]
    assert result["content"][0]["text"] == f"invalid_request: {message}"
    still_answers(server)
    assert "Traceback" not in server.log


def test_a_cursor_that_is_no_text_is_told(server: Server) -> None:
    error = call(server, "resources/list", "", '"cursor":"\\ud800"')["error"]
    message = "invalid_request: the cursor must be valid Unicode: there is a lone surrogate, U+D800"
    assert error == {"code": t.INVALID_PARAMS, "message": message}
    assert "Traceback" not in server.log
