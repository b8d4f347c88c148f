"""`"instance": "session"`: sessions share nothing in a server, and their instances are bounded and come to an end."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tenuto.errors import ServerUnreachable, ToolFailed
from tenuto.tools.host import Host, McpServer, per_session
from tenuto.tools.mcp_config import HttpTarget, ServerConfig, StdioTarget
from tenuto.tools.spec import CallContext
from tests.patience import HANGS_S
from tests.tools.host.web import Web, serving

SERVERS = Path(__file__).parent.parent / "servers"


def of(session: str | None, principal: str = "ann") -> CallContext:
    return CallContext(principal=principal, session=session, run=None, call="call_1")


@asynccontextmanager
async def counting(file: Path) -> AsyncIterator[tuple[Host, McpServer]]:
    target = StdioTarget(sys.executable, (str(SERVERS / "counting.py"), str(file)))
    async with Host([ServerConfig("counting", target, instance="session")]) as host:
        assert await host.settled(HANGS_S)
        yield host, host.servers[0]


async def count(server: McpServer, context: CallContext) -> tuple[int, int]:
    """What the session's instance has counted, and its process."""
    number, pid = (await server.call("count", {}, context)).text.split()
    return int(number), int(pid)


async def gone(pid: int) -> None:
    with anyio.fail_after(HANGS_S):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await anyio.sleep(0.01)


@pytest.mark.slow
async def test_each_session_has_a_program_of_its_own(tmp_path: Path) -> None:
    async with counting(tmp_path / "pids") as (_, server):
        assert [tool.spec.name for tool in await server.list()] == ["count", "wait", "end"]
        one, other = await count(server, of("s1")), await count(server, of("s2"))
        assert (await count(server, of("s1")))[0] == 2
        assert [one[0], other[0]] == [1, 1]
        outside = await count(server, of(None)), await count(server, of(None, "bob")), await count(server, of(None))
        assert [number for number, _ in outside] == [1, 1, 2]
    for pid in (tmp_path / "pids").read_text().split():
        await gone(int(pid))


@pytest.mark.slow
async def test_a_session_that_is_over_has_no_program(tmp_path: Path) -> None:
    async with counting(tmp_path / "pids") as (host, server):
        _, pid = await count(server, of("s1"))
        host.forget("s1")
        host.forget("unknown")
        await gone(pid)
        assert (await count(server, of("s1")))[0] == 1


@pytest.mark.slow
async def test_a_call_whose_session_is_forgotten_ends(tmp_path: Path) -> None:
    async with counting(tmp_path / "pids") as (host, server):
        await count(server, of("s1"))
        with anyio.fail_after(HANGS_S):
            async with anyio.create_task_group() as tasks:

                async def wait() -> None:
                    with pytest.raises((ToolFailed, ServerUnreachable)):
                        await server.call("wait", {}, of("s1"))

                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                host.forget("s1")


@pytest.mark.slow
async def test_an_instance_that_crashes_is_its_sessions_affair(tmp_path: Path) -> None:
    async with counting(tmp_path / "pids") as (host, server):
        await count(server, of("s1"))
        with pytest.raises(ToolFailed):
            await server.call("end", {}, of("s2"))
        assert (await count(server, of("s1")))[0] == 2
        assert (await count(server, of("s2")))[0] == 1
        assert host.states[0].restarts == 0


@pytest.mark.slow
async def test_there_are_so_many_instances_and_a_principal_does_not_take_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_session, "MOST_INSTANCES", 2)
    async with counting(tmp_path / "pids") as (_, server):
        _, oldest = await count(server, of("s1"))
        await count(server, of("s2"))
        assert (await count(server, of("b1", "bob")))[0] == 1
        await gone(oldest)
        assert (await count(server, of("s2")))[0] == 2
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.call, "wait", {}, of("s2"))
            tasks.start_soon(server.call, "wait", {}, of("b1", "bob"))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ServerUnreachable, match="instances of counting"):
                await server.call("count", {}, of("s3"))
            tasks.cancel_scope.cancel()


@pytest.mark.slow
async def test_an_instance_that_nobody_calls_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_session, "IDLE_S", 0.01)
    async with counting(tmp_path / "pids") as (_, server):
        _, pid = await count(server, of("s1"))
        await gone(pid)
        assert (await count(server, of("s1")))[0] == 1


async def test_each_session_has_a_connection_of_its_own_over_http() -> None:
    web = Web()
    async with serving(web.app()) as port:
        config = ServerConfig("web", HttpTarget(f"http://127.0.0.1:{port}/mcp"), instance="session")
        async with Host([config]) as host:
            assert await host.settled(HANGS_S)
            for session in ("s1", "s2", "s1"):
                assert (await host.servers[0].call("echo", {}, of(session))).text == "echo"
            assert web.started == 3, "one lists, two are called"


async def test_one_that_is_switched_off_is_not_called() -> None:
    config = ServerConfig("off", StdioTarget("no-such-command"), disabled=True, instance="session")
    async with Host([config, replace(config, name="shared", instance="shared")]) as host:
        for server in host.servers:
            with pytest.raises(ServerUnreachable, match="disabled"):
                await server.call("count", {}, of("s1"))
