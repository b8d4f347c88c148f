"""Which clients want to hear of which resources of the servers behind. No transport.

News of a resource that wait for a client are told to it once, and with a pause after them, so a server that tells too
much holds up nobody and takes no memory.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import anyio
import mcp.types as t
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from tenuto.runtime.mcp.acknowledging import Acknowledging, Listen
from tenuto.runtime.mcp.gateway import Behind
from tenuto.runtime.mcp.server_base import Context
from tenuto.sessions.principal import Principal

logger = logging.getLogger(__name__)

MOST_WAITING = 16
"""Resources below one that was subscribed to, of whose changes a client is told by their own URIs at a time."""
APART_S = 0.1
"""Between two times that a client is told of the same resource."""

Send = Callable[[str], Awaitable[None]]
"""Tells a client that a resource has changed."""


class Watched:
    """What clients of both protocols hear of. Works while `run` is entered. Event-loop thread only."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Tell what there is to tell."""
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            except Exception as exc:  # goes on as it is, not in a group: no client can have caused it
                failed = exc
            self._group = None
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def hold(self, who: Principal, uri: str, send: Send, ended: Callable[[], object]) -> Callable[[], None]:
        """Tell a client of the older protocol of a resource by `send` from now on; what ends that.

        `ended` is called where it ends of itself; the client, which no message can tell that, is told once more that
        the resource has changed. Raises as `Behind.watch` does.
        """

        def lost() -> None:
            ended()
            self._begin(partial(send, uri))

        return await self._watch(who, uri, send, lost)

    async def listen(
        self, who: Principal, context: Context, params: t.SubscriptionsListenRequestParams, plain: Listen
    ) -> t.SubscriptionsListenResult:
        """A stream of the newer protocol; `plain` tells it all but of the servers behind.

        It ends in good order where one of its resources is not told of any more. Raises as `Behind.watch` does.
        """
        wanted = dict.fromkeys(params.notifications.resource_subscriptions or ())
        theirs = [uri for uri in wanted if self._behind.is_theirs(uri)]
        if not theirs:
            return await plain(context, params)
        session, over = Acknowledging(context.session), anyio.CancelScope()
        meta = {SUBSCRIPTION_ID_META_KEY: context.request_id}

        async def send(uri: str) -> None:
            await session.acknowledged.wait()
            told = t.ResourceUpdatedNotificationParams.model_validate({"uri": uri, "_meta": meta})
            try:
                await context.session.send_notification(
                    t.ResourceUpdatedNotification(params=told), related_request_id=context.request_id
                )
            except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                over.cancel()

        with ExitStack() as holds:
            for uri in theirs:
                holds.callback(await self._watch(who, uri, send, over.cancel))
            with over:
                return await plain(session.within(context), params)
        return t.SubscriptionsListenResult.model_validate({"_meta": meta})

    async def _watch(self, who: Principal, uri: str, send: Send, ended: Callable[[], None]) -> Callable[[], None]:
        news = _Waiting(uri, send, self._begin)

        def lost() -> None:
            news.end()
            ended()

        end = await self._behind.watch(who, uri, news.hear, lost)

        def let_go() -> None:
            news.end()
            end()

        return let_go

    def _begin(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._group is not None:
            self._group.start_soon(_alone, work)


async def _alone(work: Callable[[], Awaitable[None]]) -> None:
    """What fails for one client is nothing to the others."""
    try:
        await work()
    except Exception:
        logger.exception("an MCP client could not be told of a change")


class _Waiting:
    """News of one resource for one client. `begin` starts work that goes on beside."""

    def __init__(self, uri: str, send: Send, begin: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
        self._uri, self._send, self._begin = uri, send, begin
        self._changed: dict[str, None] = {}
        self._is_telling = False
        self._scope = anyio.CancelScope()

    def hear(self, changed: str) -> None:
        """It has changed, or one below it has. Of too many of those it is told as of the resource itself."""
        if self._scope.cancel_called:
            return
        self._changed[changed if len(self._changed) < MOST_WAITING else self._uri] = None
        if not self._is_telling:
            self._is_telling = True
            self._scope = anyio.CancelScope()
            self._begin(self._tell)

    def end(self) -> None:
        """Tell nothing more."""
        self._scope.cancel()

    async def _tell(self) -> None:
        try:
            with self._scope:
                while self._changed:
                    changed, self._changed = self._changed, {}
                    for uri in changed:
                        await self._send(uri)
                    await anyio.sleep(APART_S)
        finally:
            self._is_telling = False  # also after one that could not be told: the next is tried
