"""Who wants to hear of a server's resources: one subscription of each at the server, over all its connections.

A server of the older protocol is asked by `resources/subscribe`; one of the newer has a stream for each resource, so
that it says of each whether it tells of it.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp_types import (
    EmptyResult,
    ResourceUpdatedNotification,
    SubscribeRequest,
    SubscribeRequestParams,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)
from pydantic import ValidationError

from tenuto.errors import InvalidRequest, NotFound, Overloaded
from tenuto.sessions.shares import Shares
from tenuto.tools.host.answers import MOST_URI_CHARACTERS, answering
from tenuto.tools.host.connection import Connection

MOST = 256
"""Wishes to hear of a resource of one server, which principals share."""
MOST_AT_SERVER = 2 * MOST
"""Subscriptions at one server, with those that are being ended there."""
AGAIN_S, AGAIN_AT_MOST_S = 5.0, 300.0
"""Before a subscription that the server has ended is made again; and where it refuses that, again and again."""
_RETRY_AFTER_S = 5.0

logger = logging.getLogger(__name__)

_FAILURES = (
    MCPError,
    RuntimeError,
    TimeoutError,
    ValidationError,
    InvalidRequest,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
)


@dataclass(slots=True, eq=False)
class Watch:
    """Somebody's wish to hear of one resource. Both functions are called in the event loop and must not block.

    `tell` is given the server's own URI of what has changed: the resource, or one below it. `lost` is called where the
    wish has given way to others', and nothing is told any more.
    """

    principal: str
    uri: str
    tell: Callable[[str], None]
    lost: Callable[[], None]


@dataclass(slots=True, eq=False)
class _Word:
    """What the server says to a subscription. `failed` is why it has not taken it, once `came` is set."""

    came: anyio.Event = field(default_factory=anyio.Event)
    failed: Exception | None = None


@dataclass(slots=True, eq=False)
class _Resource:
    """One that somebody wants to hear of, or has wanted to until now."""

    uri: str
    watches: set[Watch] = field(default_factory=set)
    word: _Word = field(default_factory=_Word)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Of the subscription at the server, while somebody wants it."""
    is_kept: bool = False
    """Whether a task of the live connection sees to it."""
    has_stood: bool = False
    """Whether the server has taken it for those who want it now."""
    may_stand: bool = False
    """Whether a server of the older protocol may hold it: it has been asked, and has not refused."""

    def end_word(self, failed: Exception | None = None) -> None:
        """Wake those who wait for the server's word; whoever comes next waits for another."""
        self.word.failed = failed
        self.word.came.set()
        self.word, self.has_stood = _Word(), False


class Subscriptions:
    """Those at one server. Event-loop thread only.

    `connected` gives the live connection and raises ServerUnreachable; `hidden` takes secrets out of a text.
    """

    def __init__(
        self,
        name: str,
        timeout_s: float,
        connected: Callable[[], Awaitable[Connection]],
        hidden: Callable[[str], str],
    ) -> None:
        self._name, self._timeout_s, self._connected, self._hidden = name, timeout_s, connected, hidden
        self._of: dict[str, _Resource] = {}
        self._table = f"the table of subscriptions at {name}"
        self._watches: Shares[Watch] = Shares(self._table, MOST, lambda one: one.principal != self._claimant)
        self._claimant = ""
        """Who wants a place. Its own wishes do not give way: it can end one, and would not hear that another has."""
        self._live: tuple[Connection, TaskGroup] | None = None

    async def watch(
        self, principal: str, uri: str, tell: Callable[[str], None], lost: Callable[[], None]
    ) -> Callable[[], None]:
        """Hear of a resource from now on; what ends that. Returns once the server has taken the subscription.

        Raises:
            NotFound, InvalidRequest: the server does not know the resource, or does not tell of it.
            Overloaded: others hold all places.
            ServerUnreachable, ToolFailed: the server is not there, or did not answer.
        """
        missing = NotFound("resource", uri[:200])
        if len(uri) > MOST_URI_CHARACTERS:
            raise missing
        watch = Watch(principal, uri, tell, lost)
        with answering(self._name, self._timeout_s, self._hidden, missing):
            await self._connected()
            resource = self._begin(watch)
            word = resource.word
            try:
                await word.came.wait()
                if word.failed is not None:
                    raise word.failed
                if watch not in resource.watches:  # it has given way while it waited
                    raise self._overloaded()
            except BaseException:
                self._end(watch)
                raise
        return lambda: self._end(watch)

    async def follow(self, connection: Connection) -> None:
        """Make the subscriptions that are wanted, for as long as the connection lasts."""
        if not connection.modern:
            connection.watchers.append(self._hear)
        async with anyio.create_task_group() as tasks:
            self._live = connection, tasks
            try:
                for resource in [*self._of.values()]:
                    self._start(resource)
                await anyio.sleep_forever()
            finally:
                self._live = None

    def _begin(self, watch: Watch) -> _Resource:
        """Raises Overloaded."""
        if watch.uri not in self._of and len(self._of) >= MOST_AT_SERVER:
            raise self._overloaded()
        self._claimant = watch.principal
        for other in self._watches.admit(watch, watch.principal, anyio.current_time(), _RETRY_AFTER_S):
            had_stood = self._of[other.uri].has_stood
            self._end(other)
            if had_stood:
                other.lost()
        resource = self._of.setdefault(watch.uri, _Resource(watch.uri))
        resource.watches.add(watch)
        self._start(resource)
        return resource

    def _end(self, watch: Watch) -> None:
        """Whoever it is does not want to hear of it any more."""
        self._watches.remove(watch)
        resource = self._of.get(watch.uri)
        if resource is None or watch not in resource.watches:
            return
        resource.watches.remove(watch)
        if not resource.watches:
            resource.end_word()
            resource.scope.cancel()
            if not resource.is_kept:
                del self._of[watch.uri]

    def _start(self, resource: _Resource) -> None:
        if self._live is not None and not resource.is_kept:
            connection, tasks = self._live
            resource.is_kept = True
            tasks.start_soon(self._keep, resource, connection)

    async def _keep(self, resource: _Resource, connection: Connection) -> None:
        """See to a resource for as long as anybody wants to hear of it. No other task does meanwhile."""
        resource.may_stand = False
        try:
            while resource.watches:
                with anyio.CancelScope() as resource.scope:
                    await self._stay(resource, connection)
                if resource.may_stand:
                    await self._unsubscribe(resource, connection)
        finally:
            resource.is_kept = False
            if not resource.watches:
                del self._of[resource.uri]

    async def _stay(self, resource: _Resource, connection: Connection) -> None:
        """Be subscribed until nobody wants that; returns where the server refuses it at once."""
        again_s, is_told = AGAIN_S, False
        while True:
            try:
                capability = connection.client.server_capabilities.resources
                if capability is None or not capability.subscribe:
                    raise InvalidRequest(f"{self._name} does not tell of changes of its resources")
                await (self._listened if connection.modern else self._subscribed)(resource, connection)
                again_s, is_told = AGAIN_S, False
            except _FAILURES as exc:
                if not resource.has_stood:
                    self._refuse(resource, exc)
                    return
                logger.debug("the MCP server %s did not take a subscription again", self._name, exc_info=True)
                if not is_told:
                    self._tell(resource, resource.uri)
                is_told = True
            await anyio.sleep(again_s)
            again_s = min(2 * again_s, AGAIN_AT_MOST_S)

    async def _subscribed(self, resource: _Resource, connection: Connection) -> None:
        """By the older protocol: until cancelled. Raises one of `_FAILURES`."""
        wanted = SubscribeRequest(params=SubscribeRequestParams(uri=resource.uri))
        resource.may_stand = True
        try:
            with anyio.fail_after(self._timeout_s):
                await connection.client.session.send_request(wanted, EmptyResult)
        except MCPError:
            resource.may_stand = False
            raise
        self._stands(resource)
        await anyio.sleep_forever()

    async def _unsubscribe(self, resource: _Resource, connection: Connection) -> None:
        resource.may_stand = False
        unwanted = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=resource.uri))
        try:
            with anyio.fail_after(self._timeout_s):
                await connection.client.session.send_request(unwanted, EmptyResult)
        except _FAILURES:
            logger.debug("a subscription at the MCP server %s could not be ended", self._name, exc_info=True)

    async def _listened(self, resource: _Resource, connection: Connection) -> None:
        """By the newer protocol: until the server ends the stream. Raises one of `_FAILURES`."""
        with anyio.fail_after(self._timeout_s) as bound:
            async with connection.client.listen(resource_subscriptions=[resource.uri]) as events:
                if not events.honored.resource_subscriptions:
                    raise InvalidRequest(f"{self._name} does not tell of changes of this resource")
                bound.deadline = math.inf
                self._stands(resource)
                with suppress(SubscriptionLost):
                    async for event in events:
                        if isinstance(event, ResourceUpdated) and _is_of(resource.uri, event.uri):
                            self._tell(resource, event.uri)

    def _stands(self, resource: _Resource) -> None:
        """The server has taken it; where it had before, nobody knows what was missed meanwhile."""
        if resource.has_stood:
            self._tell(resource, resource.uri)
        resource.has_stood = True
        resource.word.came.set()

    def _refuse(self, resource: _Resource, why: Exception) -> None:
        """The server has not taken it: those who wait for that hear why."""
        for watch in resource.watches:
            self._watches.remove(watch)
        resource.watches.clear()
        resource.end_word(why)

    def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            uri = str(message.params.uri)
            for resource in [*self._of.values()]:
                if resource.has_stood and _is_of(resource.uri, uri):
                    self._tell(resource, uri)

    def _tell(self, resource: _Resource, uri: str) -> None:
        for watch in [*resource.watches]:
            watch.tell(uri)

    def _overloaded(self) -> Overloaded:
        return Overloaded(self._table, _RETRY_AFTER_S)


def _is_of(subscribed: str, changed: str) -> bool:
    """Whether a URI is that of a resource, or of one below it, as servers may name those that have changed."""
    if not changed.startswith(subscribed) or len(changed) > MOST_URI_CHARACTERS:
        return False
    return changed == subscribed or subscribed.endswith("/") or changed[len(subscribed)] in "/?#"
