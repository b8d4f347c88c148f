"""A stream of news on which others than its owner tell something, too, as soon as the client knows that it is open."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import anyio
import mcp.types as t
from mcp.server.session import ServerSession

from tenuto.runtime.mcp.server_base import Context

Listen = Callable[[Context, t.SubscriptionsListenRequestParams], Awaitable[t.SubscriptionsListenResult]]
"""Serves a stream until its client leaves."""


class Acknowledging:
    """A request's session that acknowledges more than its server does, and says when it has: nothing may be told
    before."""

    def __init__(self, session: ServerSession, more: Mapping[str, Any] | None = None) -> None:
        self._session, self._more = session, dict(more or {})
        self.acknowledged = anyio.Event()

    def within(self, context: Context) -> Context:
        """A request's context with this session."""
        return replace(context, session=self)  # type: ignore[arg-type]  # stands for it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(
        self, notification: t.ServerNotification, related_request_id: t.RequestId | None = None
    ) -> None:
        """As the session does."""
        if isinstance(notification, t.SubscriptionsAcknowledgedNotification):
            honoured = notification.params.notifications.model_copy(update=self._more)
            params = notification.params.model_copy(update={"notifications": honoured})
            await self._session.send_notification(
                notification.model_copy(update={"params": params}), related_request_id=related_request_id
            )
            self.acknowledged.set()
        else:
            await self._session.send_notification(notification, related_request_id=related_request_id)
