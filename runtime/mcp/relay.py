"""News from the server that owns the data folder, told on to the one client of a proxy, in its own protocol."""

import logging
from collections.abc import Awaitable, Callable

import anyio
import mcp.types as t
from anyio.abc import TaskGroup
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.types import SubscriptionFilter

from tenuto.runtime.mcp.server_base import Context

logger = logging.getLogger(__name__)

MOST_SUBSCRIPTIONS = 256
AGAIN_S = 1.0
"""Before a stream that the owner has ended is opened again on the same connection."""

Publish = Callable[[ServerEvent], Awaitable[None]]


class Relay:
    """Listens at the owner for what the client wants to hear of. Event-loop thread only.

    `connection` gives a client of the owner, other than one that is lost, as soon as there is one.
    """

    def __init__(self, connection: Callable[[Client | None], Awaitable[Client]], group: TaskGroup) -> None:
        self._connection, self._group = connection, group
        self._legacy: ServerSession | None = None
        self._scopes: dict[str, anyio.CancelScope] = {}

    async def listen(self, context: Context, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """The client's own stream, fed from one at the owner with the same wishes.

        Raises:
            MCPError: the owner refuses one of them.
        """
        await self._expect_heard(params.notifications)
        bus = InMemorySubscriptionBus()
        async with anyio.create_task_group() as group:
            group.start_soon(self._pump, params.notifications, bus.publish)
            result = await ListenHandler(bus)(context, params)
            group.cancel_scope.cancel()
        return result

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
        if sum(name.startswith("resource ") for name in self._scopes) >= MOST_SUBSCRIPTIONS:
            raise MCPError(
                code=t.INVALID_PARAMS, message=f"at most {MOST_SUBSCRIPTIONS} resources can be subscribed to"
            )
        wishes = SubscriptionFilter(resource_subscriptions=[uri])
        await self._expect_heard(wishes)
        self._tell(context, f"resource {uri}", wishes)

    def unsubscribe(self, uri: str) -> None:
        """End a subscription to a resource."""
        scope = self._scopes.pop(f"resource {uri}", None)
        if scope is not None:
            scope.cancel()

    async def _expect_heard(self, wishes: SubscriptionFilter) -> None:
        """Ask the owner once: the stream itself is opened by a task that can tell nobody of a refusal."""
        if wishes.resource_subscriptions:
            client = await self._connection(None)
            async with client.listen(resource_subscriptions=wishes.resource_subscriptions):
                pass

    def _tell(self, context: Context, name: str, wishes: SubscriptionFilter) -> None:
        self._legacy = context.session
        if name not in self._scopes:
            scope = self._scopes[name] = anyio.CancelScope()
            self._group.start_soon(self._pump, wishes, self._publish, scope)

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

    async def _pump(self, wishes: SubscriptionFilter, publish: Publish, scope: anyio.CancelScope | None = None) -> None:
        """Pass events on until cancelled, over all restarts of the owner."""
        lost: Client | None = None
        with scope or anyio.CancelScope():
            while True:
                client = await self._connection(lost)
                if lost is not None:  # whatever has changed while there was nobody to tell
                    for event in _all_of(wishes):
                        await publish(event)
                lost = await self._listen_once(client, wishes, publish)
                if lost is None:
                    await anyio.sleep(AGAIN_S)

    async def _listen_once(self, client: Client, wishes: SubscriptionFilter, publish: Publish) -> Client | None:
        """Pass on what one stream brings. The client, if its connection is lost."""
        try:
            async with client.listen(
                tools_list_changed=bool(wishes.tools_list_changed),
                resources_list_changed=bool(wishes.resources_list_changed),
                prompts_list_changed=bool(wishes.prompts_list_changed),
                resource_subscriptions=wishes.resource_subscriptions or (),
            ) as subscription:
                async for event in subscription:
                    await publish(event)
        except (SubscriptionLost, MCPError, TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            logger.debug("the stream of news from the server broke", exc_info=True)
            return client
        return None


def _all_of(wishes: SubscriptionFilter) -> list[ServerEvent]:
    events: list[ServerEvent] = [ToolsListChanged()] if wishes.tools_list_changed else []
    events += [PromptsListChanged()] if wishes.prompts_list_changed else []
    events += [ResourcesListChanged()] if wishes.resources_list_changed else []
    return [*events, *(ResourceUpdated(uri) for uri in wishes.resource_subscriptions or ())]
