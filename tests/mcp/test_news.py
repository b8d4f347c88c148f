"""What clients are told of by themselves: changed tools, sessions that come and go, and new turns in a session.

Both eras, both transports.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp.types as t
import pytest
from mcp import Client
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ToolsListChanged

from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp.test_handles import connected, secret
from tests.mcp.test_http import answer_of
from tests.patience import HANGS_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:resources/subscribe"),  # the older protocol is what is tested
]

GROWING = Path(__file__).parent / "growing.py"
SESSION = "session://told"


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Server]:
    """A server with a tool that brings another one."""
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {"growing": {**tool_server(GROWING), "permission": "auto"}}})
    )
    server = Server(
        tmp_path,
        script(tmp_path / "model.json"),
        ("--mcp-config", str(tmp_path / "mcp.json"), "--api-key", "other"),
    )
    try:
        yield server.start()
    finally:
        server.close()


class Told:
    """What a client was told, whichever way it came."""

    def __init__(self) -> None:
        self.news: list[str] = []
        self._wake = anyio.Event()

    def note(self, what: str) -> None:
        self.news.append(what)
        wake, self._wake = self._wake, anyio.Event()
        wake.set()

    async def hear(self, message: object) -> None:
        """The handler of a client of the older protocol."""
        match message:
            case t.ToolListChangedNotification():
                self.note("tools")
            case t.ResourceListChangedNotification():
                self.note("sessions")
            case t.ResourceUpdatedNotification():
                self.note(str(message.params.uri))

    async def until(self, what: str) -> None:
        with anyio.fail_after(HANGS_S):
            while what not in self.news:
                await self._wake.wait()


@asynccontextmanager
async def listening(client: Client, mode: str, told: Told, *, sessions: bool = False) -> AsyncIterator[None]:
    """Let a client hear of the tools, of one session and, if wanted, of the list of them, as its era does."""
    if mode == "legacy":
        await client.list_tools()
        if sessions:
            await client.list_resources()
        await client.subscribe_resource(SESSION)
        yield
        return

    async def follow(subscription: Any) -> None:
        async for event in subscription:
            match event:
                case ToolsListChanged():
                    told.note("tools")
                case ResourcesListChanged():
                    told.note("sessions")
                case ResourceUpdated(uri=uri):
                    told.note(uri)

    async with (
        client.listen(
            tools_list_changed=True, resources_list_changed=sessions, resource_subscriptions=[SESSION]
        ) as subscription,
        anyio.create_task_group() as group,
    ):
        group.start_soon(follow, subscription)
        yield
        group.cancel_scope.cancel()


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_hears_of_new_tools_and_of_new_turns(mode: str, transport: str, owner: Server) -> None:
    told = Told()
    options: dict[str, Any] = {"message_handler": told.hear} if mode == "legacy" else {}
    async with connected(owner, transport, mode, **options) as client, listening(client, mode, told):
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed
        before = {tool.name for tool in (await client.list_tools()).tools}
        await client.call_tool("growing__grow", {})
        await told.until("tools")
        after = {tool.name for tool in (await client.list_tools()).tools}
        answer_of(await client.call_tool("chat", {"message": "x", "session_id": "unheard"}))
        answer_of(await client.call_tool("chat", {"message": "x", "session_id": "told"}))
        await told.until(SESSION)
    assert after - before == {"growing__grown"}
    assert set(told.news) == {"tools", SESSION}


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_hears_of_sessions_that_come_and_go(mode: str, transport: str, owner: Server) -> None:
    told = Told()
    options: dict[str, Any] = {"message_handler": told.hear} if mode == "legacy" else {}
    headers = {"Authorization": f"Bearer {secret(owner)}"}
    async with (
        connected(owner, transport, mode, **options) as client,
        listening(client, mode, told, sessions=True),
        httpx2.AsyncClient(base_url=owner.url, headers=headers, timeout=HANGS_S) as http,
    ):
        assert client.server_capabilities.resources is not None
        assert client.server_capabilities.resources.list_changed
        answer_of(await client.call_tool("chat", {"message": "x", "session_id": "new"}))
        await told.until("sessions")
        document = (await http.get("/v1/sessions/new")).raise_for_status().json()
        for change in (
            partial(client.call_tool, "session_fork", {"session_id": "new", "new_id": "other"}),
            partial(client.call_tool, "session_delete", {"session_id": "new"}),
            partial(http.put, "/v1/sessions/brought", json=document),
            partial(http.delete, "/v1/sessions/other"),
        ):
            told.news.clear()
            await change()
            await told.until("sessions")
        told.news.clear()
        answer_of(await client.call_tool("chat", {"message": "x", "session_id": "brought"}))
        answer_of(await client.call_tool("chat", {"message": "x", "session_id": "told"}))
        await told.until(SESSION)
        listed = [resource.name for resource in (await client.list_resources()).resources]
    assert listed == ["told", "brought", "model"]
    assert told.news.count("sessions") == 1, "a further turn of a session leaves the list as it is"


async def test_a_session_is_told_of_to_its_own_principal_alone(owner: Server) -> None:
    mine, others = Told(), Told()
    async with (
        connected(owner) as client,
        connected(owner, key="other") as other,
        listening(client, "auto", mine),
        listening(other, "auto", others),
    ):
        answer_of(await client.call_tool("chat", {"message": "x", "session_id": "told"}))
        await mine.until(SESSION)
        await client.call_tool("growing__grow", {})
        await others.until("tools")
    assert others.news == ["tools"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_proxy_tells_of_a_server_that_came_back(mode: str, owner: Server) -> None:
    told = Told()
    options: dict[str, Any] = {"message_handler": told.hear} if mode == "legacy" else {}
    async with connected(owner, "stdio", mode, **options) as client, listening(client, mode, told):
        owner.kill()
        owner.start()
        await client.list_tools()
        await told.until("tools")
        told.news.clear()
        await client.call_tool("growing__grow", {})
        await told.until("tools")
