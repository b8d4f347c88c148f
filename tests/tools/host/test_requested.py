"""The servers that requests bring: held for their runs, shared among principals, and let go."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenuto.errors import McpServerFailed, Overloaded
from tenuto.tools.egress import Egress
from tenuto.tools.host import requested
from tenuto.tools.host.requested import RequestedServer, RequestedServers
from tenuto.tools.spec import CallContext
from tests.dialects.outside import lying
from tests.patience import HANGS_S
from tests.tools.host.web import Web, serving

CONTEXT = CallContext(principal="ann", session=None, run=None, call="call_1")


@asynccontextmanager
async def bringing() -> AsyncIterator[tuple[RequestedServers, RequestedServer, Web]]:
    web = Web()
    async with serving(web.app()) as port, RequestedServers(Egress.ALL) as servers:
        yield servers, RequestedServer("out", f"http://127.0.0.1:{port}/mcp", {}, "url"), web


async def test_a_run_that_waits_and_goes_on_has_its_servers_again() -> None:
    async with bringing() as (servers, server, web):
        one = await servers.connect("ann", [server])
        assert [tool.name for tool in one.tools][:2] == ["out__echo", "out__cut"]
        servers.give(one, "run_1")
        servers.let_go(one)
        assert (await one.call("out__echo", {}, CONTEXT, HANGS_S)).text == "echo"
        servers.rest("run_1")
        assert not one.is_open
        servers.begin("run_1")
        assert (await one.call("out__echo", {}, CONTEXT, HANGS_S)).text == "echo"
        assert web.started == 2, "it was connected anew"
        servers.forget("run_1")
        assert (servers.of("run_1"), len(servers), one.is_open) == (None, 0, False)


async def test_what_no_run_has_got_is_let_go() -> None:
    async with bringing() as (servers, server, _):
        one = await servers.connect("ann", [server])
        servers.let_go(one)
        assert (len(servers), one.is_open) == (0, False)


async def test_those_of_runs_that_wait_give_way_and_those_at_work_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested, "MOST_SERVERS", 2)
    async with bringing() as (servers, server, _):
        for run in ("run_1", "run_2"):
            servers.give(await servers.connect("ann", [server]), run)
        with pytest.raises(Overloaded, match="MCP servers"):
            await servers.connect("ann", [server])
        servers.rest("run_1")
        servers.give(await servers.connect("bob", [server]), "run_3")
        assert servers.of("run_1") is None
        assert servers.of("run_2") is not None


async def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested, "START_S", 0.2)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = RequestedServer("out", f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", {}, "url")
        async with RequestedServers(Egress.ALL) as servers:
            with pytest.raises(McpServerFailed, match=r"not ready within 0\.2 s"):
                await servers.connect("ann", [server])
            assert len(servers) == 0


async def test_a_listing_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested, "MOST_TOOL_BYTES", 5_000)
    many = [{"name": f"t{n}", "description": "x" * 100, "inputSchema": {"type": "object"}} for n in range(500)]
    async with serving(lying(many)) as port, RequestedServers(Egress.ALL) as servers:
        one = await servers.connect("ann", [RequestedServer("out", f"http://127.0.0.1:{port}/mcp", {}, "url")])
        assert 0 < len(one.tools) < 50
        servers.let_go(one)


def test_the_place_of_a_server_is_named_without_what_changes() -> None:
    def identity(url: str) -> str:
        return RequestedServer("out", url, {}, "url").identity

    assert identity("https://a.org/mcp?key=1") == identity("https://A.org:443/mcp?key=2")
    places = ("https://a.org/mcp", "http://a.org/mcp", "https://b.org/mcp", "https://a.org:8443/mcp", "https://a.org/")
    assert len({identity(url) for url in places}) == len(places)
