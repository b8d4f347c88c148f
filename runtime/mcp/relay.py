"""News from the server that owns the data folder, told on to the one client of a proxy, in its own protocol."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio
import mcp.types as t
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.server.session import ServerSession
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY, ServerEvent, event_to_notification
from mcp.types import SubscriptionFilter

from tenuto.runtime.mcp.server_base import Context

logger = logging.getLogger(__name__)

MOST_SUBSCRIPTIONS = 256
AGAIN_S, AGAIN_AT_MOST_S = 1.0, 30.0
"""Before a stream that has ended is opened again; and where the owner refuses that, again and again."""

_ENDED = (SubscriptionLost, MCPError, TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError)

Publish = Callable[[ServerEvent], Awaitable[None]]


class Relay:
    """Listens at the owner for what the client wants to hear of. Event-loop thread only.

    `connection` gives a client of the owner as soon as there is one.
    """

    def __init__(self, connection: Callable[[], Awaitable[Client]], group: TaskGroup) -> None:
        self._connection, self._group = connection, group
        self._legacy: ServerSession | None = None
        self._scopes: dict[str, anyio.CancelScope] = {}

    async def listen(self, context: Context, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """The client's own stream, fed from one at the owner with the same wishes, until the client leaves.

        Raises:
            MCPError: the owner refuses one of them.
        """
        acknowledged, meta = anyio.Event(), {SUBSCRIPTION_ID_META_KEY: context.request_id}

        async def tell(notification: t.ServerNotification) -> None:
            await context.session.send_notification(notification, related_request_id=context.request_id)

        async def publish(event: ServerEvent) -> None:
            await acknowledged.wait()
            await tell(event_to_notification(event, meta))

        scope = anyio.CancelScope()
        try:
            honoured = await self._group.start(self._pump, params.notifications, publish, scope)
            said = {"notifications": honoured.model_dump(by_alias=True, exclude_none=True), "_meta": meta}
            told = t.SubscriptionsAcknowledgedNotificationParams.model_validate(said)
            await tell(t.SubscriptionsAcknowledgedNotification(params=told))
            acknowledged.set()
            while True:
                await anyio.sleep_forever()
        finally:
            scope.cancel()

    def tools_are_known(self, context: Context) -> None:
        """A client of the older protocol has listed the tools; the newer one listens by itself."""
        if context.session.can_send_request:
            self._tell(context, "tools", SubscriptionFilter(tools_list_changed=True))

    def prompts_are_known(self, context: Context) -> None:
        """And the same for one that has listed the prompts."""
        if context.session.can_send_request:
            self._tell(context, "prompts", SubscriptionFilter(prompts_list_changed=True))

    def sessions_are_known(self, context: Context) -> None:
        """And the same for one that has listed the sessions."""
        if context.session.can_send_request:
            self._tell(context, "sessions", SubscriptionFilter(resources_list_changed=True))

    async def subscribe(self, context: Context, uri: str) -> None:
        """A client of the older protocol wants to hear of a resource.

        Raises:
            MCPError: it wants to hear of too many, or the owner refuses this one.
        """
        self._legacy, name = context.session, f"resource {uri}"
        if name in self._scopes:
            return
        if sum(each.startswith("resource ") for each in self._scopes) >= MOST_SUBSCRIPTIONS:
            raise MCPError(
                code=t.INVALID_PARAMS, message=f"at most {MOST_SUBSCRIPTIONS} resources can be subscribed to"
            )
        scope = self._scopes[name] = anyio.CancelScope()
        wishes = SubscriptionFilter(resource_subscriptions=[uri])
        try:
            await self._group.start(self._pump, wishes, self._publish, scope)
        except BaseException:
            if self._scopes.get(name) is scope:
                del self._scopes[name]
            raise

    def unsubscribe(self, uri: str) -> None:
        """End a subscription to a resource."""
        scope = self._scopes.pop(f"resource {uri}", None)
        if scope is not None:
            scope.cancel()

    def _tell(self, context: Context, name: str, wishes: SubscriptionFilter) -> None:
        self._legacy = context.session
        if name not in self._scopes:
            scope = self._scopes[name] = anyio.CancelScope()
            self._group.start_soon(self._pump, wishes, self._publish, scope, False)

    async def _publish(self, event: ServerEvent) -> None:
        assert self._legacy is not None
        match event:
            case ToolsListChanged():
                await self._legacy.send_tool_list_changed()
            case ResourcesListChanged():
                await self._legacy.send_resource_list_changed()
            case PromptsListChanged():
                await self._legacy.send_prompt_list_changed()
            case ResourceUpdated(uri=uri):
                await self._legacy.send_resource_updated(uri)
            case _:
                pass

    async def _pump(
        self,
        wishes: SubscriptionFilter,
        publish: Publish,
        scope: anyio.CancelScope,
        at_once: bool = True,
        *,
        task_status: TaskStatus[SubscriptionFilter] = TASK_STATUS_IGNORED,
    ) -> None:
        """Pass events on until cancelled, over all restarts of the owner. Starts when the owner has taken the wishes.

        Raises:
            MCPError: it does not take them `at_once`.
        """
        is_first, has_begun, again_s = True, False, AGAIN_S

        def begin(honoured: SubscriptionFilter) -> None:
            nonlocal has_begun, again_s
            again_s = AGAIN_S
            if not has_begun:
                has_begun = True
                task_status.started(honoured)

        with scope:
            while True:
                client = await self._connection()
                try:
                    await self._listen_once(client, wishes, publish, begin, [] if is_first else _all_of(wishes))
                except _ENDED as exc:
                    if at_once and not has_begun:
                        raise exc if isinstance(exc, MCPError) else _stopped() from exc
                    logger.debug("the stream of news from the server broke", exc_info=True)
                is_first = False
                await anyio.sleep(again_s)
                again_s = min(2 * again_s, AGAIN_AT_MOST_S)
        if at_once and not has_begun:  # it was cancelled meanwhile
            raise _stopped()

    async def _listen_once(
        self,
        client: Client,
        wishes: SubscriptionFilter,
        publish: Publish,
        begin: Callable[[SubscriptionFilter], None],
        missed: Sequence[ServerEvent],
    ) -> None:
        """Pass on what one stream brings, and before that what may have been missed. Raises one of `_ENDED`."""
        async with client.listen(
            tools_list_changed=bool(wishes.tools_list_changed),
            resources_list_changed=bool(wishes.resources_list_changed),
            prompts_list_changed=bool(wishes.prompts_list_changed),
            resource_subscriptions=wishes.resource_subscriptions or (),
        ) as subscription:
            begin(subscription.honored)
            for event in missed:
                await publish(event)
            async for event in subscription:
                await publish(event)


def _stopped() -> MCPError:
    return MCPError(code=t.INTERNAL_ERROR, message="the server stopped before it answered")


def _all_of(wishes: SubscriptionFilter) -> list[ServerEvent]:
    events: list[ServerEvent] = [ToolsListChanged()] if wishes.tools_list_changed else []
    events += [PromptsListChanged()] if wishes.prompts_list_changed else []
    events += [ResourcesListChanged()] if wishes.resources_list_changed else []
    return [*events, *(ResourceUpdated(uri) for uri in wishes.resource_subscriptions or ())]
