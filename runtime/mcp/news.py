"""What MCP clients are told of by themselves: other tools, other sessions, and new turns in a session.

Clients of the newer protocol listen on a stream that they open; those of the older one are told over the connection
that they keep. A session's news goes to its own principal alone, whose clients may use the same ids as another's.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

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

Hold = Callable[[Callable[[str], Awaitable[None]], Callable[[], object]], Awaitable[Callable[[], None]]]
"""Begins what a subscription needs elsewhere, and gives what ends that. It gets what tells the client of a URI, and
what is to be called where the subscription ends of itself."""


@dataclass(slots=True)
class _Connection:
    """A connection of the older protocol. `session` is its last request's, which can tell it things at any time."""

    key: _Key
    session: ServerSession
    knows_tools: bool = False
    knows_sessions: bool = False
    knows_prompts: bool = False
    log_level: t.LoggingLevel | None = None
    uris: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What it has subscribed to, with what ends each."""


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
        self._rests: WeakValueDictionary[str, anyio.Event] = WeakValueDictionary()
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

    async def subscribe(self, principal: str, context: Context, uri: str, hold: Hold | None = None) -> None:
        """A client of the older protocol wants to hear of a resource, for which `hold` is held meanwhile.

        Raises:
            MCPError: it wants to hear of too many, or its connection has ended. And what `hold` raises.
        """
        connection = self._connection(principal, context)
        if connection is None:
            return
        expect_few(len({*connection.uris, uri}))
        if uri in connection.uris:
            return
        end = _nothing
        if hold is not None:
            key = connection.key
            end = await hold(partial(self._tell_of, key), partial(connection.uris.pop, uri, None))
            if self._connections.get(key) is not connection:
                end()
                raise MCPError(code=t.CONNECTION_CLOSED, message="the connection has ended")
            if uri in connection.uris or len(connection.uris) >= MOST_SUBSCRIPTIONS:  # by another request, meanwhile
                end()
                expect_few(len({*connection.uris, uri}))
                return
        connection.uris[uri] = end

    def unsubscribe(self, principal: str, context: Context, uri: str) -> None:
        """End a subscription to a resource."""
        connection = self._connection(principal, context)
        if connection is not None:
            connection.uris.pop(uri, _nothing)()

    def forget(self, principal: str, id: str) -> None:
        """A connection of the older protocol has ended."""
        self._places.remove((principal, id))
        self._let_go((principal, id))

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

    def next_rest(self, run_id: str) -> anyio.Event:
        """Is set when a run begins to wait or ends, the next time."""
        event = self._rests.get(run_id)
        if event is None:
            event = self._rests[run_id] = anyio.Event()
        return event

    def run_rests(self, run: Run) -> None:
        """A run has begun to wait or has ended, so it has changed, and its session has."""
        if (event := self._rests.pop(run.id, None)) is not None:
            event.set()
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
            lambda each: each.key[0] == principal and each.knows_sessions,
            ServerSession.send_resource_list_changed,
        )

    async def resource_changed(self, principal: str, uri: str) -> None:
        """Tell those of a principal who wanted to hear of this resource that it has changed."""
        if principal in self._buses:
            await self._buses[principal].publish(ResourceUpdated(uri))
        await self._tell(
            lambda each: each.key[0] == principal and uri in each.uris,
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
            for connection in list(self._connections.values()):
                if wants(connection):
                    group.start_soon(self._tell_one, connection, tell)

    async def _tell_one(self, connection: _Connection, tell: Callable[[ServerSession], Awaitable[None]]) -> None:
        """One that cannot be told is gone, or does not read."""
        try:
            with anyio.fail_after(TELLING_S):
                await tell(connection.session)
        except (TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            logger.debug("an MCP client could not be told of a change", exc_info=True)
            if self._connections.get(connection.key) is connection:
                self.forget(*connection.key)

    async def _tell_of(self, key: _Key, uri: str) -> None:
        """Tell one of them, as long as it is there, that a resource has changed."""
        if (connection := self._connections.get(key)) is not None:
            await self._tell_one(connection, lambda session: session.send_resource_updated(uri))

    def _let_go(self, key: _Key) -> None:
        connection = self._connections.pop(key, None)
        if connection is not None:
            for end in connection.uris.values():
                end()

    def _connection(self, principal: str, context: Context) -> _Connection | None:
        """The standing connection behind a request; None for the newer protocol, which has none."""
        id = context.request.headers.get("mcp-session-id") if context.request is not None else None
        if id is None:
            return None
        key = (principal, id)  # the newer protocol lets a client send any header
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = _Connection(key, context.session)
        connection.session = context.session
        for gone in self._places.settle(key, principal):
            self._let_go(gone)
        return connection


def expect_few(resources: int) -> None:
    """Raises MCPError where a client wants to hear of too many resources."""
    if resources > MOST_SUBSCRIPTIONS:
        raise MCPError(code=t.INVALID_PARAMS, message=f"at most {MOST_SUBSCRIPTIONS} resources can be subscribed to")


def _nothing() -> None:
    """Ends what needs no end."""
