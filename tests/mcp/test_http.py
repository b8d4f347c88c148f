import json
import socket
from typing import Any

import anyio
import httpx
import mcp.types as t
import pytest
from mcp import Client, MCPError

from tests.e2e.server import Server
from tests.mcp.conftest import LONG_TEXT, Connect
from tests.patience import HANGS_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:resources/subscribe"),  # the older protocol is tested too
]


def text_of(result: t.CallToolResult) -> str:
    first = result.content[0]
    assert isinstance(first, t.TextContent)
    return first.text


def answer_of(result: t.CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    structured: dict[str, Any] = result.structured_content
    return structured


async def test_every_tool_is_listed_with_our_own(connect: Connect) -> None:
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"chat", "session_get", "calculator__evaluate", "clock__now", "notes__put"} <= set(tools)
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools.values())


async def test_every_own_tool_says_what_it_does_and_answers(connect: Connect) -> None:
    """That it answers so is held by the SDK's client, which refuses a result that does not fit, in all other tests."""
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools if "__" not in tool.name}
    assert len(tools) == 9
    for name, tool in tools.items():
        assert tool.title, name
        assert tool.annotations is not None, name
        assert tool.annotations.read_only_hint is not None, name
        assert (tool.output_schema or {}).get("required"), name


async def test_chat_answers_and_keeps_the_conversation(connect: Connect) -> None:
    async with connect() as client:
        first = answer_of(await client.call_tool("chat", {"message": "one"}))
        second = answer_of(await client.call_tool("chat", {"message": "two", "session_id": first["session_id"]}))
        session = answer_of(await client.call_tool("session_get", {"session_id": first["session_id"]}))
    assert (first["text"], second["text"]) == ("one", "two")
    assert first["status"] == "completed"
    assert second["session_id"] == first["session_id"]
    assert [item.get("text") for item in session["items"]] == ["one", "one", "two", "two"]


async def test_the_second_turn_computes_only_what_is_new(connect: Connect) -> None:
    async with connect() as client:
        first = answer_of(await client.call_tool("chat", {"message": "a long beginning " * 20}))
        usage = answer_of(await client.call_tool("chat", {"message": "b", "session_id": first["session_id"]}))["usage"]
    assert usage["cached_tokens"] >= first["usage"]["prompt_tokens"]
    assert usage["computed_tokens"] < 100


async def test_a_server_tool_is_called_and_told_of(connect: Connect) -> None:
    async with connect() as client:
        answer = answer_of(await client.call_tool("chat", {"message": "time"}))
    assert answer["text"] == "It is 42."
    assert [(call["name"], call["status"]) for call in answer["tool_calls"]] == [("calculator__evaluate", "completed")]


async def test_progress_carries_the_whole_text_in_order(connect: Connect) -> None:
    seen: list[tuple[float, str]] = []

    async def see(progress: float, total: float | None = None, message: str | None = None) -> None:
        seen.append((progress, message or ""))

    async with connect() as client:
        answer = answer_of(await client.call_tool("chat", {"message": "slow"}, progress_callback=see))
    assert "".join(message for _, message in seen) == answer["text"] == LONG_TEXT
    assert 1 < len(seen) < 200
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


async def test_progress_tells_of_tool_calls(connect: Connect) -> None:
    seen: list[str] = []

    async def see(progress: float, total: float | None = None, message: str | None = None) -> None:
        seen.append(message or "")

    async with connect() as client:
        await client.call_tool("chat", {"message": "time"}, progress_callback=see)
    assert seen == ["[calling calculator__evaluate]", "[calculator__evaluate: completed]", "It is 42."]


async def test_a_client_tool_pauses_and_its_result_resumes(connect: Connect) -> None:
    weather = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    async with connect() as client:
        paused = answer_of(await client.call_tool("chat", {"message": "weather", "tools": [weather]}))
        call = paused["pause"]["calls"][0]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
        arguments = {"messages": [result], "session_id": paused["session_id"], "tools": [weather]}
        done = answer_of(await client.call_tool("chat", arguments))
    assert (paused["status"], paused["pause"]["reason"]) == ("paused", "client_tool")
    assert json.loads(call["arguments"]) == {"city": "Graz"}
    assert (done["status"], done["text"]) == ("completed", "Sunny in Graz.")


async def test_a_tool_can_be_called_by_itself(connect: Connect) -> None:
    async with connect() as client:
        right = await client.call_tool("calculator__evaluate", {"expression": "2+3"})
        wrong = await client.call_tool("calculator__evaluate", {"expression": 5})
        with pytest.raises(MCPError, match="nowhere__nothing") as missing:
            await client.call_tool("nowhere__nothing", {})
    assert text_of(right) == "5"
    assert wrong.is_error
    assert "expression" in text_of(wrong)
    assert missing.value.code == t.INVALID_PARAMS


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "message"),
        ({"message": "a", "messages": [{"role": "user", "content": "b"}]}, "message"),
        ({"message": 3}, "message"),
        ({"message": "a", "temperature": 9}, "temperature"),
        ({"message": "a", "surprise": 1}, "surprise"),
        ({"message": "a", "session_id": "no spaces"}, "session_id"),
        ({"message": "a", "tools": ["nowhere__nothing"]}, "nowhere__nothing"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    ],
)
async def test_wrong_arguments_are_told_in_words(arguments: dict[str, Any], told: str, connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("chat", arguments)
    assert result.is_error
    assert told in text_of(result)


async def test_a_session_that_is_not_there_is_told_in_words(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("session_get", {"session_id": "nobodys"})
    assert result.is_error
    assert text_of(result).startswith("not_found: ")


async def test_a_failed_run_is_an_error_and_its_session_goes_on(connect: Connect) -> None:
    async with connect() as client:
        first = answer_of(await client.call_tool("chat", {"message": "before"}))
        failed = await client.call_tool("chat", {"message": "break", "session_id": first["session_id"]})
        after = answer_of(await client.call_tool("chat", {"message": "after", "session_id": first["session_id"]}))
    assert failed.is_error
    assert after["text"] == "after"


async def test_a_cancelled_call_cancels_its_run(connect: Connect, server: Server) -> None:
    began = anyio.Event()

    async def see(progress: float, total: float | None = None, message: str | None = None) -> None:
        began.set()

    session = "cancelled"
    async with connect() as client:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                arguments = {"message": "slow", "session_id": session}
                await client.call_tool("chat", arguments, progress_callback=see)

            group.start_soon(call)
            with anyio.fail_after(HANGS_S):
                await began.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(HANGS_S):
            # The session is free again as soon as the run has ended.
            while (result := await client.call_tool("chat", {"message": "next", "session_id": session})).is_error:
                assert text_of(result).startswith("session_busy: ")
        assert answer_of(result)["text"] == "next"
        await client.call_tool("session_get", {"session_id": session})
    with server.client() as http:
        http.delete(f"/v1/sessions/{session}").raise_for_status()


def test_a_foreign_host_or_origin_is_refused(server: Server) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with server.client() as client:
        host = client.post("/mcp", json=body, headers={"Host": "evil.example.com"})
        origin = client.post("/mcp", json=body, headers={"Origin": "https://evil.example.com"})
    assert host.status_code in (403, 421)
    assert origin.status_code == 403


def test_the_path_answers_without_a_redirect(server: Server) -> None:
    with server.client() as client:
        response = client.post("/mcp", content=b"{", headers={"Content-Type": "application/json"})
    assert response.status_code == 400


def test_a_body_that_is_too_large_is_refused(server: Server) -> None:
    def pieces() -> Any:
        for _ in range(20):
            yield b" " * (1 << 20)

    with server.client() as client:
        try:
            status = client.post("/mcp", content=pieces(), headers={"Content-Type": "application/json"}).status_code
        except httpx.TransportError:  # it may hang up before all has been sent
            return
    assert status == 413


# The endpoint, as clients have been seen to call it.


def raw(server: Server, path: str, headers: dict[str, str]) -> bytes:
    """The answer to a call of a tool by the newest protocol, its headers sent as they are written."""
    version = "2026-07-28"
    meta = {"protocolVersion": version, "clientCapabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    params = {
        "name": "calculator__evaluate",
        "arguments": {"expression": "2+3"},
        "_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    address = server.url.removeprefix("http://")
    sent = {
        "Host": address,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "calculator__evaluate",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=HANGS_S) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n{body}".encode())
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "//mcp"])
def test_the_endpoint_is_found_with_a_slash_more(path: str, server: Server) -> None:
    answer = raw(server, path, {})
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"text":"5"' in answer


def test_white_space_behind_a_header_is_no_part_of_it(server: Server) -> None:
    blanks = {
        "MCP-Protocol-Version": "2026-07-28 ",
        "Mcp-Method": "tools/call\t ",
        "Mcp-Name": "calculator__evaluate  ",
    }
    assert b'"text":"5"' in raw(server, "/mcp", blanks)


async def listen(client: Client, uri: str) -> None:
    async with client.listen(resource_subscriptions=[uri]):
        pass


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "session://", "session://no spaces", "session://a/b", "x"])
async def test_what_is_no_resource_cannot_be_subscribed_to(uri: str, connect: Connect) -> None:
    async with connect() as client:
        modern = client.protocol_version == "2026-07-28"
        with pytest.raises(MCPError) as refused:
            await (listen(client, uri) if modern else client.subscribe_resource(uri))
    assert refused.value.code == t.INVALID_PARAMS
    assert refused.value.error.data == {"uri": uri}
