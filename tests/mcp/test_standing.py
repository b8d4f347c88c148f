"""Standing connections of the older protocol: one client cannot take the places of all."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import mcp.types as t
import pytest
from mcp.server import Server
from starlette.requests import Request

from tenuto.runtime.mcp.http import SESSION_ID, Endpoint
from tenuto.runtime.mcp.standing import IDLE_S, Standing
from tenuto.sessions.principal import Principal

MOST = 8
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
CALL = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}


class Client:
    """Requests of one principal."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        headers = {"accept": "application/json, text/event-stream", "x-principal": name}
        transport = httpx.ASGITransport(endpoint)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=5)

    async def ask(self, body: dict[str, Any], id: str | None = None) -> httpx.Response:
        """A request, within a connection where there is an id."""
        return await self._http.post("/mcp", json=body, headers={} if id is None else {SESSION_ID: id})

    async def connect(self) -> str:
        """A new connection."""
        answer = await self.ask(HELLO)
        assert answer.status_code == 200, answer.text
        return answer.headers[SESSION_ID]

    async def leave(self, id: str) -> int:
        """End a connection; the status."""
        return (await self._http.delete("/mcp", headers={SESSION_ID: id})).status_code

    async def stands(self, id: str) -> bool:
        """Whether a connection is still there."""
        return (await self.ask(LIST, id)).status_code == 200


class Waiting:
    """A tool that takes until it is let go."""

    def __init__(self) -> None:
        self.begun, self.over = anyio.Event(), anyio.Event()

    async def call(self, _context: Any, _params: Any) -> t.CallToolResult:
        self.begun.set()
        await self.over.wait()
        return t.CallToolResult(content=[])

    async def list(self, _context: Any, _params: Any) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[])


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def ended() -> list[tuple[str, str]]:
    """The connections of which it was told that they have ended, each with its principal."""
    return []


@pytest.fixture
async def endpoint(waiting: Waiting, ended: list[tuple[str, str]]) -> AsyncIterator[Endpoint]:
    def principal_of(request: Request) -> Principal:
        return Principal(request.headers["x-principal"])

    server: Server[Any] = Server("test", on_list_tools=waiting.list, on_call_tool=waiting.call)
    made = Endpoint(
        server,
        principal_of=principal_of,
        max_body_bytes=1 << 20,
        most=MOST,
        on_end=lambda principal, id: ended.append((principal, id)),
    )
    begun, over = anyio.Event(), anyio.Event()

    async def hold() -> None:
        async with made.run():
            begun.set()
            await over.wait()

    task = asyncio.create_task(hold())
    await begun.wait()
    yield made
    over.set()
    await task


async def test_a_client_that_connects_a_thousand_times_ends_its_own_oldest_connections(endpoint: Endpoint) -> None:
    alice, bob = Client(endpoint, "alice"), Client(endpoint, "bob")
    kept = await bob.connect()
    mine = [await alice.connect() for _ in range(3 * MOST)]
    assert await bob.stands(kept)
    assert not await alice.stands(mine[0])
    assert all([await alice.stands(id) for id in mine[1 - MOST :]])
    assert [await bob.connect() for _ in range(MOST // 2 - 1)]
    assert await bob.stands(kept)


async def test_another_client_connects_while_one_holds_all_places(endpoint: Endpoint) -> None:
    alice, bob = Client(endpoint, "alice"), Client(endpoint, "bob")
    mine = [await alice.connect() for _ in range(MOST)]
    assert await bob.stands(await bob.connect())
    assert [await alice.stands(id) for id in mine] == [False] + [True] * (MOST - 1)


async def test_a_connection_with_a_request_open_does_not_end_for_others(endpoint: Endpoint, waiting: Waiting) -> None:
    alice, bob = Client(endpoint, "alice"), Client(endpoint, "bob")
    busy = await alice.connect()
    async with anyio.create_task_group() as group:
        group.start_soon(alice.ask, CALL, busy)
        await waiting.begun.wait()
        for _ in range(MOST):
            await alice.connect()
        await bob.connect()
        waiting.over.set()
    assert await alice.stands(busy)


async def test_where_all_connections_are_in_use_the_one_who_comes_is_told_when_to_come_back(
    endpoint: Endpoint, waiting: Waiting
) -> None:
    alice, bob = Client(endpoint, "alice"), Client(endpoint, "bob")
    mine = [await alice.connect() for _ in range(MOST)]
    async with anyio.create_task_group() as group:
        for id in mine:
            group.start_soon(alice.ask, CALL, id)
        await waiting.begun.wait()
        await anyio.wait_all_tasks_blocked()
        answer = await bob.ask(HELLO)
        waiting.over.set()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert answer.json()["error"]["message"].startswith("overloaded: the table of MCP connections is full")
    assert await bob.stands(await bob.connect())


async def test_the_end_of_a_connection_is_told_once_and_only_its_own_principal_can_end_it(
    endpoint: Endpoint, ended: list[tuple[str, str]]
) -> None:
    ann, bob = Client(endpoint, "ann"), Client(endpoint, "bob")
    left, kept = await ann.connect(), await ann.connect()
    assert await bob.leave(left) == 404
    assert ended == []
    assert await ann.leave(left) == 200
    assert await ann.leave(left) == 404
    assert ended == [("ann", left)]
    others = [await bob.connect() for _ in range(MOST)]
    assert ended[1:] == [("bob", id) for id in others[:1]]
    assert await ann.stands(kept)


def test_a_connection_that_nobody_has_used_for_long_is_told_of_as_ended() -> None:
    now = 0.0
    ended: list[tuple[str, str]] = []
    standing = Standing(lambda: now, MOST, lambda principal, id: ended.append((principal, id)))
    for id in ("rests", "works"):
        standing.begin(id, "ann")
    with standing.in_use("works"):
        now = IDLE_S
        standing.forget_ended()
    assert ended == [("ann", "rests")]
