"""Progress of calls for clients that are slow to take it."""

import sys
from pathlib import Path

import anyio

from tenuto.tools.host import Host
from tenuto.tools.mcp_config import ServerConfig, StdioTarget
from tenuto.tools.spec import CallContext
from tests.patience import HANGS_S

TELLING = Path(__file__).parent.parent / "servers" / "telling.py"


async def test_whoever_does_not_take_progress_gets_its_last_alone_and_nothing_piles_up() -> None:
    heard: list[float] = []
    reads, has_last = anyio.Event(), anyio.Event()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)
        await reads.wait()
        if len(heard) == 2:
            has_last.set()

    async with Host([ServerConfig("telling", StdioTarget(sys.executable, (str(TELLING),)))]) as host:
        await host.settled(HANGS_S)
        (server,) = host.servers
        await server.call("chatter", {}, CallContext("ann", None, None, "call_1", progress))
        assert heard == [0]
        reads.set()
        with anyio.fail_after(HANGS_S):
            await has_last.wait()
    assert heard == [0, 1999]
