"""Streams of the older protocol that break and are resumed: nothing is lost, nothing told to others, all bounded."""

import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server.streamable_http import EventMessage
from mcp.types import JSONRPCMessage, JSONRPCNotification

from tenuto.runtime.mcp.missed import Missed, Share
from tests.e2e.server import Server
from tests.mcp.conftest import LONG_TEXT
from tests.mcp.test_handles import owner
from tests.mcp.test_handles import secret as secret_of
from tests.patience import HANGS_S

__all__ = ["owner"]  # a fixture
ACCEPT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


async def events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The events of a stream with their ids; a priming one holds nothing."""
    id = ""
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            id = line[3:].strip()
        elif line.startswith("data:"):
            yield id, json.loads(line[5:]) if line[5:].strip() else {}


@asynccontextmanager
async def opened(server: Server, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {**ACCEPT, "Authorization": f"Bearer {key}"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=HANGS_S) as http:
        answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield http


@pytest.mark.slow
async def test_a_client_that_lost_its_stream_gets_what_it_missed_and_nobody_else_does(owner: Server) -> None:
    call = {"name": "chat", "arguments": {"message": "slow"}, "_meta": {"progressToken": 1}}
    request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}
    with anyio.fail_after(HANGS_S):
        async with opened(owner, secret_of(owner)) as http, opened(owner, "other") as other:
            seen: list[dict[str, Any]] = []
            async with http.stream("POST", "/mcp", json=request) as stream:
                async for last, event in events(stream):  # noqa: B007
                    seen.append(event)
                    if len(seen) == 3:
                        break
            async with other.stream("GET", "/mcp", headers={"Last-Event-ID": last}) as stream:
                assert [event async for _, event in events(stream)] == []
            async with http.stream("GET", "/mcp", headers={"Last-Event-ID": last}) as stream:
                async for _, event in events(stream):
                    seen.append(event)
                    if "result" in event:
                        break
            async with http.stream("GET", "/mcp", headers={"Last-Event-ID": last}) as stream:
                again = [event async for _, event in events(stream) if event]
            async with http.stream("GET", "/mcp", headers={"Last-Event-ID": "forged-1"}) as stream:
                assert [event async for _, event in events(stream)] == []
    assert seen[0] == {}, "a stream begins with an event that it can be resumed after"
    told = [event["params"]["message"] for event in seen if event.get("method") == "notifications/progress"]
    assert "".join(told) == LONG_TEXT
    assert seen[-1]["id"] == 7
    assert again[-1] == seen[-1]


def message(size: int) -> JSONRPCMessage:
    return JSONRPCNotification(jsonrpc="2.0", method="x", params={"text": "x" * size})


async def replayed(store: Missed, after: str) -> int:
    told: list[EventMessage] = []

    async def tell(event: EventMessage) -> None:
        told.append(event)

    await store.replay_events_after(after, tell)
    return len(told)


async def test_what_is_kept_is_bounded_by_events_by_bytes_and_by_principal() -> None:
    share = Share(most_bytes=20_000)
    few, small = Missed(share, most_events=3), Missed(share, most_bytes=5_000)
    ids = [await few.store_event("1", message(1)) for _ in range(10)]
    assert (await replayed(few, ids[6]), await replayed(few, ids[7])) == (0, 2)
    for _ in range(100):
        await small.store_event("1", message(1000))
    assert small.nbytes <= 5_000
    await small.store_event("1", message(10_000))
    assert small.nbytes <= 5_000
    others = [Missed(share) for _ in range(5)]
    for store in others:
        for _ in range(10):
            await store.store_event("1", message(1000))
    assert share.nbytes <= 20_000
    assert all(store.nbytes for store in others)
    del store, others
    gc.collect()
    assert share.nbytes == few.nbytes + small.nbytes


async def test_streams_of_one_connection_are_kept_apart() -> None:
    store = Missed(Share())
    first = await store.store_event("1", None)
    for stream in ("1", "2", "1", "2", "2"):
        await store.store_event(stream, message(1))
    assert await replayed(store, first) == 2
