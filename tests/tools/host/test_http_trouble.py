"""Servers over HTTP that lose sessions, go away, refuse, or speak the older transport only."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from mcp.server.mcpserver import MCPServer
from starlette.responses import JSONResponse

from tenuto.errors import ServerUnreachable, ToolFailed
from tenuto.tools.host import Failure, Host, McpServer, Status
from tenuto.tools.mcp_config import HttpTarget, ServerConfig
from tenuto.tools.mcp_entry import HttpKind
from tenuto.tools.spec import CallContext, ToolResult
from tests.tools.host.web import Web, refusing, serving

pytestmark = [pytest.mark.slow]
CONTEXT = CallContext(principal="ann", session=None, run=None, call="call_1")


@asynccontextmanager
async def connected(port: int, path: str = "/mcp", kind: HttpKind = "auto") -> AsyncIterator[McpServer]:
    target = HttpTarget(f"http://127.0.0.1:{port}{path}", {"Authorization": "Bearer s3cret-key"}, kind)
    async with Host([ServerConfig("web", target, timeout_s=30)]) as host:
        assert await host.settled(15)
        yield host.servers[0]


def unread(why: str) -> ToolResult:
    return ToolResult(f"Error: the answer cannot be read: {why}", is_error=True)


@pytest.mark.parametrize("status", [404, 400])
async def test_a_forgotten_session_is_begun_anew_and_the_call_is_made_once(status: int) -> None:
    web = Web(forgotten_status=status)
    async with serving(web.app()) as port, connected(port) as server:
        web.sessions.clear()
        assert await server.call("echo", {}, CONTEXT) == ToolResult("echo")
        assert (web.made, web.started, server.state.restarts) == (["echo"], 2, 1)
        assert server.state.last_error == "the server has forgotten the session"


async def test_a_tool_that_speaks_of_sessions_costs_no_connection() -> None:
    web = Web()
    async with serving(web.app()) as port, connected(port) as server:
        assert await server.call("wrong", {}, CONTEXT) == ToolResult("Error: Session not found", is_error=True)
        assert (web.made, server.state.restarts) == (["wrong"], 0)


async def test_a_call_that_is_refused_in_a_living_session_costs_no_connection() -> None:
    web = Web()
    async with serving(web.app()) as port, connected(port) as server:
        refused = await server.call("refused", {}, CONTEXT)
        assert refused == ToolResult("Error: the session may not do this", is_error=True)
        assert (web.made, server.state.restarts) == (["refused"], 0)


async def test_a_call_whose_answer_is_cut_off_is_not_made_again() -> None:
    web = Web()
    async with serving(web.app()) as port, connected(port) as server:
        with pytest.raises(ToolFailed, match="ended during the call of cut") as caught:
            await server.call("cut", {}, CONTEXT)
        assert caught.value.may_have_run
        assert web.made == ["cut"]
        assert await server.call("echo", {}, CONTEXT) == ToolResult("echo")


async def test_a_read_only_call_whose_answer_is_cut_off_is_made_again() -> None:
    web = Web()
    async with serving(web.app()) as port, connected(port) as server:
        assert await server.call("cut_once", {}, CONTEXT) == ToolResult("cut_once")
        assert web.made == ["cut_once", "cut_once"]


async def test_a_call_to_a_server_that_is_away_has_not_run() -> None:
    web = Web()
    async with AsyncExitStack() as first:
        port = await first.enter_async_context(serving(web.app()))
        async with connected(port) as server:
            await first.aclose()
            with pytest.raises(ServerUnreachable, match="cannot be reached"):
                await server.call("echo", {}, CONTEXT)
            assert server.state.status is not Status.READY
            assert server.state.failure is Failure.UNREACHABLE
            assert web.made == []


async def test_a_refusal_is_named_by_its_status_without_the_key() -> None:
    async with serving(Web(refusal=refusing(401)).app()) as port, connected(port) as server:
        assert server.state.status is Status.WAITING
        assert server.state.reason.startswith("the server answered HTTP 401 Unauthorized: put a key that it takes into")
        assert server.state.failure is Failure.UNAUTHORIZED
        assert "s3cret" not in repr(server.state)


@pytest.mark.parametrize(
    "body",
    [
        {"detail": "no"},
        {"error": "invalid_token"},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Unauthorized"}},
        {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32001, "message": "Unauthorized"}},
    ],
    ids=repr,
)
async def test_a_refusal_in_json_that_answers_no_request_is_named_by_its_status_too(body: object) -> None:
    refusal = JSONResponse(body, 401)
    async with serving(Web(refusal=refusal).app()) as port, connected(port) as server:
        assert server.state.reason.startswith("the server answered HTTP 401 Unauthorized: put a key that it takes into")
        assert server.state.failure is Failure.UNAUTHORIZED


async def test_an_answer_that_is_too_large_is_an_error_that_the_model_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.tools.host.http_client.MAX_MESSAGE_BYTES", 100_000)
    web = Web()
    async with serving(web.app()) as port, connected(port) as server:
        result = await server.call("large", {}, CONTEXT)
        assert result.is_error
        assert "the answer cannot be read: it has more than 100000 bytes" in result.text
        assert await server.call("echo", {}, CONTEXT) == ToolResult("echo")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (r'{"content": [{"type": "text", "text": "cut \ud83d"}]}', ToolResult("cut \N{REPLACEMENT CHARACTER}")),
        ('{"content": [' + "0," * 1000 + "0]}", unread("it has 1001 parts of content, of which there may be 1000")),
        (f'{{"structuredContent": [{"0," * 50_000}0]}}', unread("it has more than 50000 JSON values")),
        ("7", unread("it is not a JSON-RPC message")),
    ],
    ids=["half a character", "many parts", "many values", "no result"],
)
async def test_an_answer_that_cannot_be_read_is_an_error_that_says_why(
    result: str, said: ToolResult, streamed: bool
) -> None:
    async with serving(Web().app()) as port, connected(port) as server:
        assert await server.call("raw", {"result": result, "streamed": streamed}, CONTEXT) == said
        assert await server.call("echo", {}, CONTEXT) == ToolResult("echo")


async def test_an_answer_over_the_older_transport_that_cannot_be_read_is_an_error_that_says_why() -> None:
    older = MCPServer("older")

    @older.tool(structured_output=False)
    def many() -> list[str]:
        return ["y"] * 1001

    async with serving(older.sse_app(host="127.0.0.1")) as port, connected(port, "/sse") as server:
        said = unread("it has 1001 parts of content, of which there may be 1000")
        assert await server.call("many", {}, CONTEXT) == said


@pytest.mark.parametrize("kind", ["auto", "sse"])
async def test_a_server_of_the_older_transport_is_found_and_called(kind: HttpKind) -> None:
    older = MCPServer("older")

    @older.tool(structured_output=False)
    def large() -> str:
        return "x" * 3_000_000

    @older.tool(structured_output=False)
    def add(a: int, b: int) -> str:
        return str(a + b)

    async with serving(older.sse_app(host="127.0.0.1")) as port, connected(port, "/sse", kind) as server:
        assert (server.state.status, server.state.transport, server.state.restarts) == (Status.READY, "sse", 0)
        assert await server.call("add", {"a": 20, "b": 22}, CONTEXT) == ToolResult("42")
        assert "characters omitted" in (await server.call("large", {}, CONTEXT)).text


async def test_a_server_of_the_older_transport_that_goes_away_and_comes_back_is_called_again() -> None:
    older = MCPServer("older")

    @older.tool(structured_output=False)
    def hello() -> str:
        return "hello"

    async with AsyncExitStack() as first:
        port = await first.enter_async_context(serving(older.sse_app(host="127.0.0.1")))
        async with connected(port, "/sse") as server:
            await first.aclose()
            async with serving(older.sse_app(host="127.0.0.1"), port):
                assert await server.call("hello", {}, CONTEXT) == ToolResult("hello")
                assert server.state.last_error


async def test_an_address_where_no_server_is_says_so_of_both_transports() -> None:
    async with serving(Web().app()) as port, connected(port, "/nothing") as server:
        assert server.state.reason.startswith("it supports neither streamable HTTP (")
        assert "404" in server.state.reason
        assert server.state.failure is Failure.NO_ENDPOINT
