"""What MCP clients are told of by themselves: other tools, other sessions, and new turns in a session.

Clients of the newer protocol listen on a stream that they open; those of the older one are told over the connection
that they keep. A session's news goes to its own principal alone, whose clients may use the same ids as another's.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import mcp.types as t
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from tenuto.runtime.loop.run import Run
from tenuto.runtime.mcp.server_base import Context
from tenuto.runtime.mcp.uris import run_uri, session_uri
from tenuto.sessions.shares import Shares
from tenuto.tools.host.offers import Offers

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 1000
"""Connections of the older protocol that are remembered; of who has most the one silent for longest gives way."""
MOST_SUBSCRIPTIONS = 256
"""Resources that one of them may subscribe to."""
MOST_LISTENING = 256
"""Streams of one principal."""
TELLING_S = 5.0
"""How long one of them may take to be told."""


_Key = tuple[str, str]
"""A principal, and the id of one of its connections."""


@dataclass(slots=True)
class _Connection:
    """A connection of the older protocol. `session` is its last request's, which can tell it things at any time."""

    principal: str
    session: ServerSession
    knows_tools: bool = False
    knows_sessions: bool = False
    knows_prompts: bool = False
    log_level: t.LoggingLevel | None = None
    uris: set[str] = field(default_factory=set)


class News:
    """Who wants to be told what. Event-loop thread only."""

    def __init__(self) -> None:
        self._buses: dict[str, InMemorySubscriptionBus] = {}
        self._listeners: dict[str, ListenHandler] = {}
        self._connections: dict[_Key, _Connection] = {}
        self._places: Shares[_Key] = Shares("the list of subscribers", MOST_CONNECTIONS, lambda _: True)
        self._rested: set[tuple[str, str]] = set()
        self._listed: set[str] = set()
        self._wake = anyio.Event()
        self._offers: tuple[Offers, ...] = ()

    async def listen(
        self, principal: str, context: Context, params: t.SubscriptionsListenRequestParams
    ) -> t.SubscriptionsListenResult:
        """A client's stream, open until it leaves or `close`.

        Raises:
            MCPError: it wants to hear of too many resources.
        """
        expect_few(len(params.notifications.resource_subscriptions or ()))
        if principal not in self._listeners:
            bus = self._buses[principal] = InMemorySubscriptionBus()
            self._listeners[principal] = ListenHandler(bus, max_subscriptions=MOST_LISTENING)
        return await self._listeners[principal](context, params)

    def has_listed_tools(self, principal: str, context: Context) -> None:
        """A client knows the list of tools from now on, and so wants to hear that it changed."""
        connection = self._connection(principal, context)
        if connection is not None:
            connection.knows_tools = True

    def has_listed_sessions(self, principal: str, context: Context) -> None:
        """A client knows the list of its sessions from now on."""
        connection = self._connection(principal, context)
        if connection is not None:
            connection.knows_sessions = True

    def has_listed_prompts(self, principal: str, context: Context) -> None:
        """A client knows the list of prompts from now on."""
        connection = self._connection(principal, context)
        if connection is not None:
            connection.knows_prompts = True

    def subscribe(self, principal: str, context: Context, uri: str) -> None:
        """A client of the older protocol wants to hear of a resource.

        Raises:
            MCPError: it wants to hear of too many.
        """
        connection = self._connection(principal, context)
        if connection is None:
            return
        expect_few(len(connection.uris | {uri}))
        connection.uris.add(uri)

    def unsubscribe(self, principal: str, context: Context, uri: str) -> None:
        """End a subscription to a resource."""
        connection = self._connection(principal, context)
        if connection is not None:
            connection.uris.discard(uri)

    def set_log_level(self, principal: str, context: Context, level: t.LoggingLevel) -> None:
        """A client of the older protocol wants to read messages of this level and above."""
        connection = self._connection(principal, context)
        if connection is not None:
            connection.log_level = level

    def log_level(self, principal: str, context: Context) -> t.LoggingLevel | None:
        """What the client behind a request has set for its connection, if it has one."""
        connection = self._connection(principal, context)
        return None if connection is None else connection.log_level

    async def tools_changed(self) -> None:
        """Tell everybody that the list of tools is another one."""
        for bus in list(self._buses.values()):
            await bus.publish(ToolsListChanged())
        await self._tell(lambda each: each.knows_tools, ServerSession.send_tool_list_changed)

    async def offers_are(self, offers: tuple[Offers, ...]) -> None:
        """Tell everybody where the prompts and resources of the servers behind are others than before."""
        if offers == self._offers:
            return
        self._offers = offers
        for bus in list(self._buses.values()):
            await bus.publish(PromptsListChanged())
            await bus.publish(ResourcesListChanged())
        await self._tell(lambda each: each.knows_prompts, ServerSession.send_prompt_list_changed)
        await self._tell(lambda each: each.knows_sessions, ServerSession.send_resource_list_changed)

    def run_rests(self, run: Run) -> None:
        """A run has begun to wait or has ended, so it has changed, and its session has."""
        self._rested.add((run.record.principal, session_uri(run.session_id)))
        self._rested.add((run.record.principal, run_uri(run.session_id, run.id)))
        self._wake.set()

    def sessions_listed(self, principal: str) -> None:
        """The list of a principal's sessions is another one."""
        self._listed.add(principal)
        self._wake.set()

    async def follow(self) -> None:
        """Tell of sessions that came and went, and whose runs have come to rest, until cancelled.

        News that wait are told once.
        """
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            rested, self._rested = self._rested, set()
            listed, self._listed = self._listed, set()
            for principal in listed:
                await self.sessions_changed(principal)
            for principal, uri in rested:
                await self.resource_changed(principal, uri)

    async def sessions_changed(self, principal: str) -> None:
        """Tell those of a principal who know the list of its sessions that it is another one."""
        if principal in self._buses:
            await self._buses[principal].publish(ResourcesListChanged())
        await self._tell(
            lambda each: each.principal == principal and each.knows_sessions,
            ServerSession.send_resource_list_changed,
        )

    async def resource_changed(self, principal: str, uri: str) -> None:
        """Tell those of a principal who wanted to hear of this resource that it has changed."""
        if principal in self._buses:
            await self._buses[principal].publish(ResourceUpdated(uri))
        await self._tell(
            lambda each: each.principal == principal and uri in each.uris,
            lambda session: session.send_resource_updated(uri),
        )

    def close(self) -> None:
        """End the streams in good order."""
        for listener in self._listeners.values():
            listener.close()

    async def _tell(
        self, wants: Callable[[_Connection], bool], tell: Callable[[ServerSession], Awaitable[None]]
    ) -> None:
        async with anyio.create_task_group() as group:
            for key, connection in list(self._connections.items()):
                if wants(connection):
                    group.start_soon(self._tell_one, key, connection, tell)

    async def _tell_one(
        self, key: _Key, connection: _Connection, tell: Callable[[ServerSession], Awaitable[None]]
    ) -> None:
        """One that cannot be told is gone, or does not read."""
        try:
            with anyio.fail_after(TELLING_S):
                await tell(connection.session)
        except (TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            logger.debug("an MCP client could not be told of a change", exc_info=True)
            if self._connections.get(key) is connection:
                del self._connections[key]
                self._places.remove(key)

    def _connection(self, principal: str, context: Context) -> _Connection | None:
        """The standing connection behind a request; None for the newer protocol, which has none."""
        id = context.request.headers.get("mcp-session-id") if context.request is not None else None
        if id is None:
            return None
        key = (principal, id)  # the newer protocol lets a client send any header
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = _Connection(principal, context.session)
        connection.session = context.session
        for gone in self._places.settle(key, principal):
            del self._connections[gone]
        return connection


def expect_few(resources: int) -> None:
    """Raises MCPError where a client wants to hear of too many resources."""
    if resources > MOST_SUBSCRIPTIONS:
        raise MCPError(code=t.INVALID_PARAMS, message=f"at most {MOST_SUBSCRIPTIONS} resources can be subscribed to")
