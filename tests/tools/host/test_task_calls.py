"""Tools that are called as tasks alone: the call is begun, waited for and fetched, and a cancel reaches the task."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import pytest_asyncio

from tenuto.tools.host import Host, McpServer
from tenuto.tools.mcp_config import ServerConfig, StdioTarget
from tests.faults.test_questions import until
from tests.patience import HANGS_S
from tests.tools.host.test_host import CONTEXT

pytestmark = pytest.mark.asyncio
TASKED = Path(__file__).parent.parent / "servers" / "tasked.py"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tasked.log"


@pytest_asyncio.fixture
async def tasked(log: Path) -> AsyncIterator[McpServer]:
    entered, stop = asyncio.Event(), asyncio.Event()
    host = Host([ServerConfig("tasked", StdioTarget(sys.executable, (str(TASKED), str(log))), timeout_s=20)])

    async def own() -> None:
        async with host:
            assert await host.settled(20)
            entered.set()
            await stop.wait()

    owner = asyncio.create_task(own())
    await asyncio.wait_for(entered.wait(), HANGS_S)
    (server,) = host.servers
    assert isinstance(server, McpServer)
    yield server
    stop.set()
    await owner


@pytest.mark.parametrize(
    ("tool", "text", "is_error"),
    [
        ("well", "well after 3 looks", False),
        ("broken", "Error: broken after 3 looks", True),
        ("told", "at once", False),
    ],
)
async def test_a_call_is_begun_waited_for_and_fetched(tasked: McpServer, tool: str, text: str, is_error: bool) -> None:
    result = await tasked.call(tool, {}, CONTEXT)
    assert (result.text, result.is_error) == (text, is_error)


async def test_a_cancelled_call_cancels_its_task(tasked: McpServer, log: Path) -> None:
    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as group:
            group.start_soon(tasked.call, "slow", {}, CONTEXT)
            await anyio.to_thread.run_sync(until, lambda: "tasks/get" in log.read_text())
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(until, lambda: "tasks/cancel" in log.read_text())
    assert (await tasked.call("well", {}, CONTEXT)).text == "well after 3 looks"
