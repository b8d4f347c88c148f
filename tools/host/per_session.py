"""An MCP server that has an instance for each session: what a session leaves in it is seen by no other.

One more instance, which no call reaches, tells what the server has: its tools, prompts and resources, and when these
change.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio.abc import TaskGroup

from tenuto.errors import Overloaded, ServerUnreachable
from tenuto.sessions.shares import Shares
from tenuto.tools.host.results import MAX_TEXT_CHARACTERS
from tenuto.tools.host.server import McpServer
from tenuto.tools.mcp_config import ServerConfig
from tenuto.tools.spec import CallContext, ToolResult

MOST_INSTANCES = 64
"""Of one server, over all sessions."""
IDLE_S = 900.0
"""An instance that nobody has called for so long is ended; the session's next call begins another."""
_LOOK_S = 15.0
_RETRY_AFTER_S = 5.0

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Instance:
    server: McpServer
    key: str
    scope: anyio.CancelScope
    calls: int = 0
    """Under way."""
    used: float = 0.0


class PerSession(McpServer):
    """A configured server whose calls go to the instance of their session. Event-loop thread only.

    Calls from outside any session have one instance for each principal.
    """

    def __init__(
        self,
        config: ServerConfig,
        on_change: Callable[[], None] | None = None,
        max_text: int = MAX_TEXT_CHARACTERS,
    ) -> None:
        super().__init__(config, on_change, max_text)
        self._most_text = max_text
        self._tasks: TaskGroup | None = None
        self._of: dict[str, _Instance] = {}
        self._table: Shares[_Instance] = Shares(
            f"the table of instances of {config.name}", MOST_INSTANCES, lambda one: one.calls == 0
        )

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of all instances that there are now."""
        return (*super().stderr, *(line for one in self._of.values() for line in one.server.stderr))

    async def run(self) -> None:
        """Keep the instances until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                tasks.start_soon(self._end_idle_ones)
                await super().run()
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        """Call a tool of the session's own instance, which this may begin. Raises as `McpServer.call` does."""
        instance = self._instance(context)
        instance.calls += 1
        try:
            return await instance.server.call(name, arguments, context)
        finally:
            instance.calls -= 1
            instance.used = anyio.current_time()
            self._table.touch(instance)

    def forget(self, session: str) -> None:
        """A session is over, or nobody has it in mind any more: so is its instance."""
        if (instance := self._of.get(session)) is not None:
            self._end(instance)

    def _instance(self, context: CallContext) -> _Instance:
        """Raises ServerUnreachable: there is no place for one more, or no instance of any session runs."""
        key = context.session or f"principal {context.principal}"
        if (instance := self._of.get(key)) is not None:
            return instance
        if self._tasks is None:
            raise ServerUnreachable(f"the MCP server {self.name} is not connected: {self.state.status.value}")
        now = anyio.current_time()
        instance = _Instance(McpServer(self._config_now(), None, self._most_text), key, anyio.CancelScope(), used=now)
        try:
            gone = self._table.admit(instance, context.principal, now, _RETRY_AFTER_S)
        except Overloaded as exc:
            raise ServerUnreachable(f"{self.name} has no instance for this session: {exc}") from exc
        for other in gone:
            self._end(other)
        self._of[key] = instance
        instance.server.prepare()
        self._tasks.start_soon(self._keep, instance)
        return instance

    def _config_now(self) -> ServerConfig:
        """With what is known of the server by now: one that ends at the newer protocol is not asked for it again."""
        is_older = self.config.era == "auto" and self.state.era == "handshake"
        return replace(self.config, era="legacy") if is_older else self.config

    async def _keep(self, instance: _Instance) -> None:
        with instance.scope:
            await instance.server.run()

    def _end(self, instance: _Instance) -> None:
        if self._of.get(instance.key) is instance:
            del self._of[instance.key]
        self._table.remove(instance)
        instance.scope.cancel()
        logger.debug("an instance of the MCP server %s is ended", self.name)

    async def _end_idle_ones(self) -> None:
        while True:
            await anyio.sleep(min(_LOOK_S, IDLE_S))
            since = anyio.current_time() - IDLE_S
            for instance in [*self._of.values()]:
                if not instance.calls and instance.used <= since:
                    self._end(instance)
