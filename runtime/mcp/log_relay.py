"""Log messages from the server that owns the data folder, told on to the one client of a proxy. Event-loop thread only.

The owner sends what each call of ours asks for. Its messages name no call, so each goes with one that wants its level:
a message says itself which run it is of.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import anyio
import mcp.types as t
from mcp.server.connection import allowed_log_levels
from mcp.types import LOG_LEVEL_META_KEY, RequestParamsMeta

from tenuto.runtime.mcp.server_base import Context

logger = logging.getLogger(__name__)


class LogRelay:
    """`level` is what a client of the older protocol has set."""

    def __init__(self) -> None:
        self.level: t.LoggingLevel = "warning"
        self._calls: list[tuple[Context, frozenset[t.LoggingLevel]]] = []

    @contextmanager
    def of(self, context: Context) -> Iterator[RequestParamsMeta]:
        """A call is under way; what the owner is to be told of the messages that its client wants."""
        named = (context.meta or {}).get(LOG_LEVEL_META_KEY)
        level = self.level if context.session.can_send_request else named
        # The SDK's type names no key of the protocol's own.
        asked = cast("RequestParamsMeta", {} if level is None else {LOG_LEVEL_META_KEY: level})
        call = (context, allowed_log_levels(t.LATEST_PROTOCOL_VERSION, asked))
        self._calls.append(call)
        try:
            yield asked
        finally:
            self._calls.remove(call)

    async def take(self, params: t.LoggingMessageNotificationParams) -> None:
        """A message has come. One that cannot be told is lost with the call that it is of."""
        for context, levels in self._calls:
            if params.level in levels:
                try:
                    await context.session.send_notification(
                        t.LoggingMessageNotification(params=params), related_request_id=context.request_id
                    )
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    logger.debug("a message could not be told on", exc_info=True)
                return
