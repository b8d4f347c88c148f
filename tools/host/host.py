"""All configured MCP servers, started at once, each supervised in a task of its own."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from tenuto.tools.host.per_session import PerSession
from tenuto.tools.host.results import MAX_TEXT_CHARACTERS
from tenuto.tools.host.server import McpServer
from tenuto.tools.host.state import ServerState
from tenuto.tools.mcp_config import ServerConfig
from tenuto.tools.registry import CallLimits

_LATER_S = 1.0


class Host:
    """Runs servers for as long as `async with` lasts; entered and left in one task, like the task group inside.

    Entering waits for no server. `on_change` is called in the event loop whenever a server's state or tools changed;
    it must not block.
    """

    def __init__(
        self,
        configs: Sequence[ServerConfig],
        on_change: Callable[[], None] | None = None,
        max_text: int = MAX_TEXT_CHARACTERS,
    ) -> None:
        self.servers = tuple(
            (PerSession if config.instance == "session" else McpServer)(config, on_change, max_text)
            for config in configs
        )
        self._tasks: TaskGroup | None = None

    @property
    def states(self) -> list[ServerState]:
        """Where each server stands, in their order."""
        return [server.state for server in self.servers]

    @property
    def instructions(self) -> dict[str, str]:
        """What each server says to the model of how its tools are used, where its entry lets it."""
        return {
            server.name: server.offered.instructions
            for server in self.servers
            if server.config.instructions and server.offered.instructions
        }

    @property
    def limits(self) -> dict[str, CallLimits]:
        """What the registry shall hold each server to."""
        return {server.name: _limits(server.config) for server in self.servers}

    def forget(self, session: str) -> None:
        """A session, by its uid, is over or was let go from memory: so are the instances that servers had for it."""
        for server in self.servers:
            if isinstance(server, PerSession):
                server.forget(session)

    async def settled(self, timeout_s: float) -> bool:
        """Wait until each server's first start has succeeded or failed; false where the time was not enough."""
        with anyio.move_on_after(timeout_s) as scope:
            for server in self.servers:
                await server.settled()
        return not scope.cancelled_caught

    async def __aenter__(self) -> Self:
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        for server in self.servers:
            server.prepare()
            tasks.start_soon(server.run)
        self._tasks = tasks
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all servers. What the block raised goes on as it is, not in a group: no server can have caused it."""
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)


def _limits(config: ServerConfig) -> CallLimits:
    def of_tool(name: str) -> CallLimits:
        # The server's own deadline comes first: it alone knows whether a call was sent.
        return CallLimits(config.timeout_of(name) + _LATER_S, config.concurrency_of(name))

    return CallLimits(config.timeout_s + _LATER_S, config.max_concurrency, of_tool=of_tool)
