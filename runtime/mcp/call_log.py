"""What a server behind logs in a call that a client makes itself, told to that client by the level that it wants.

The server does not wait for the client to read: messages wait here, at a bounded rate, and the next one counts what is
over it. They are told before the call's result.
"""

import logging
from collections import deque
from collections.abc import Callable

import anyio
import mcp.types as t
from anyio.abc import TaskGroup

from tenuto.runtime.loop.tellings import MOST_CHARACTERS
from tenuto.runtime.mcp.logs import LEVELS, Rate, sender
from tenuto.runtime.mcp.server_base import Context
from tenuto.tools.host.results import shortened

logger = logging.getLogger(__name__)

Wanted = Callable[[Context], frozenset[t.LoggingLevel]]
"""The levels that the client behind a request wants to read."""
LOGGER = "tenuto.call"
TELLING_S = 5.0
"""How long a client may take to be told one message, and all that wait when the call has its result."""


class CallLog:
    """The log of one call. Event-loop thread only.

    `name` is the tool as the client knows it. `request` gives the client's request that waits for the call now, None
    where none does: then nobody is told. Messages are told in a task of `group`.
    """

    def __init__(self, group: TaskGroup, name: str, request: Callable[[], Context | None], wanted: Wanted) -> None:
        self._group, self._name, self._request, self._wanted = group, name, request, wanted
        self._waiting: deque[tuple[Context, t.LoggingLevel, str]] = deque()
        self._rate = Rate()
        self._told: anyio.Event | None = None
        """Set once nothing waits any more; None where nothing does."""

    def take(self, level: str, text: str) -> None:
        """A message has come from the server; a `Log`."""
        context = self._request()
        known = LEVELS[LEVELS.index(level)] if level in LEVELS else "info"
        if context is None or known not in self._wanted(context) or not self._rate.admits():
            return
        self._waiting.append((context, known, shortened(text, MOST_CHARACTERS)))
        if self._told is None:
            self._told = anyio.Event()
            self._group.start_soon(self._tell, self._told)

    async def flush(self) -> None:
        """Wait until what has come is told."""
        if self._told is not None:
            with anyio.move_on_after(TELLING_S):
                await self._told.wait()

    async def _tell(self, told: anyio.Event) -> None:
        try:
            while self._waiting:
                context, level, text = self._waiting.popleft()
                with anyio.fail_after(TELLING_S):
                    facts = {"event": "tool_told", "name": self._name, "text": text}
                    await sender(context, LOGGER)(level, {**facts, **self._rate.left_out()})
        except Exception:  # a client that has gone away ends no call of others: they share the task group
            logger.debug("an MCP client could not be told what its call's server logs", exc_info=True)
            self._waiting.clear()
        finally:
            self._told = None
            told.set()
