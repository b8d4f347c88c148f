from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.server import Server, script
from tests.patience import HANGS_S

ERAS = ("legacy", "auto")
"""Both eras of the protocol, as the SDK's client calls them: `auto` finds the newest."""

Connect = Callable[..., AbstractAsyncContextManager[Client]]

LONG_TEXT = "word " * 200 + "end"

RULES: list[dict[str, Any]] = [
    {"user": "time", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "6*7"}}]},
    {"tool_contains": "42", "text": "It is 42."},
    {"user": "slow", "text": LONG_TEXT, "delay_ms": 5},
    {"user": "weather", "calls": [{"name": "weather", "arguments": {"city": "Graz"}}]},
    {"tool_contains": "sunny", "text": "Sunny in Graz."},
    {"user_contains": "break", "fail": "forward", "text": "x"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a module's tests, which keep apart by their sessions."""
    folder: Path = tmp_path_factory.mktemp("mcp")
    server = Server(folder, script(folder / "model.json", RULES))
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(params=ERAS)
def connect(request: pytest.FixtureRequest, server: Server) -> Connect:
    """Connects the SDK's client to the server, in either era."""

    @asynccontextmanager
    async def connected(key: str | None = None, **options: Any) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=HANGS_S) as http,
            Client(
                streamable_http_client(f"{server.url}/mcp", http_client=http),
                mode=request.param,
                cache=None,
                read_timeout_seconds=20,
                **options,
            ) as client,
        ):
            yield client

    return connected
