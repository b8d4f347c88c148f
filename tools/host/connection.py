"""One live connection to an MCP server: made anew for each start, owned by the task that opened it."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal

import anyio
import anyio.to_thread
from mcp import Client
from mcp.client.session import ClientRequestContext, ElicitationFnT, IncomingMessage, ListRootsFnT, SamplingFnT
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageRequestParams,
    ElicitRequestParams,
    ElicitResult,
    EmptyResult,
    ErrorData,
    Implementation,
    ListRootsResult,
    LoggingLevel,
    RootsListChangedNotification,
    SamplingCapability,
    SamplingContextCapability,
    SamplingToolsCapability,
    SetLevelRequest,
    SetLevelRequestParams,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from tenuto import __version__
from tenuto.tools.host.callbacks import ClientCallbacks, Offered, SampleResult
from tenuto.tools.host.mending import usable
from tenuto.tools.host.results import to_tool
from tenuto.tools.host.task_calls import made_as_tasks
from tenuto.tools.host.transport import Transport
from tenuto.tools.mcp_entry import Era
from tenuto.tools.spec import Tool

Mode = Literal["auto", "legacy"]
"""Which protocol a connection begins with: `auto` tries the newest."""
MODES: dict[Era, Mode] = {"auto": "auto", "legacy": "legacy", "modern": "auto"}
"""That of a server's entry."""

logger = logging.getLogger(__name__)

LOG_LEVEL: LoggingLevel = "info"
"""What servers are asked to log at the least."""
MAX_PAGES = 100
MAX_TOOLS = 2000
_LISTEN_AGAIN_S = 5.0
_CHANGES_APART_S = 0.2
"""A server that announces changes without end is listed no more often than this."""


class Connection:
    """A client that has shaken hands. Any task may call `client`; the owner alone opens and leaves."""

    def __init__(self, client: Client, transport: Transport, most_listed_bytes: int) -> None:
        self.client = client
        self._transport, self._most_listed_bytes = transport, most_listed_bytes
        self._changed = anyio.Event()
        self.made_as_tasks: frozenset[str] = frozenset()
        """The listed tools that are called as tasks, and in no other way."""
        self.watchers: list[Callable[[IncomingMessage], None]] = []
        """Told of whatever the server tells unasked."""

    @property
    def protocol(self) -> str:
        """The protocol version that was agreed on."""
        return self.client.protocol_version

    @property
    def ended(self) -> bool:
        """Whether nothing can be called any more, though the owner may not have noticed yet."""
        return self._transport.ended.is_set()

    @property
    def ending(self) -> str:
        """Why nothing can be called any more."""
        return self._transport.ending

    def give_up(self) -> None:
        """Say that nothing can be called any more; a caller may find that out before the owner."""
        self._transport.ended.set()

    @property
    def modern(self) -> bool:
        """Whether the server speaks the protocol without a handshake."""
        return self.protocol in MODERN_PROTOCOL_VERSIONS

    async def list_tools(self) -> list[Tool]:
        """All tools that can be worked with, page by page. A listing without an end is cut."""
        return await anyio.to_thread.run_sync(usable, await self._listed())

    async def _listed(self) -> list[Tool]:
        tools: list[Tool] = []
        self.made_as_tasks = frozenset()
        left = self._most_listed_bytes
        if self.client.server_capabilities.tools is None:
            return tools
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor)
            self.made_as_tasks |= made_as_tasks(page.tools)
            for tool in map(to_tool, page.tools):
                left -= len(tool.spec.description) + len(to_json((tool.spec.parameters, tool.icons, tool.meta)))
                if left < 0 or len(tools) == MAX_TOOLS:
                    logger.warning("a listing of tools is cut after %d: it goes on for too long", len(tools))
                    return tools
                tools.append(tool)
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    async def tell_roots_changed(self) -> None:
        """Let the server list the roots again. One of the newer protocol asks for them in each call."""
        if not self.modern:
            await self.client.session.send_notification(RootsListChangedNotification())

    def list_again(self) -> None:
        """Take it that the tools have changed."""
        self._changed.set()

    async def ask_for_logs(self) -> None:
        """Let a server of the older protocol log from a level on; one of the newer hears of it in each request."""
        if not self.modern and self.client.server_capabilities.logging is not None:
            with suppress(MCPError):  # then it logs what it likes
                wanted = SetLevelRequest(params=SetLevelRequestParams(level=LOG_LEVEL))
                await self.client.session.send_request(wanted, EmptyResult)

    async def changed(self) -> None:
        """Wait until the server says that its tools have changed; changes since the last wait count as one."""
        await self._changed.wait()
        await anyio.sleep(_CHANGES_APART_S)
        self._changed = anyio.Event()

    async def listen(self) -> None:
        """Hear of changes where the server tells them only to who listens. Returns at once where it does not."""
        capability = self.client.server_capabilities.tools
        if not self.modern or capability is None or not capability.list_changed:
            return
        while True:
            try:
                async with self.client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._changed.set()
            except ListenNotSupportedError:
                return
            except (SubscriptionLost, MCPError, TimeoutError):
                pass
            await anyio.sleep(_LISTEN_AGAIN_S)
            self._changed.set()  # nobody knows what was missed

    async def take(self, message: IncomingMessage) -> None:
        """Hear of changes where the server tells them unasked."""
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()
        for watcher in self.watchers:
            watcher(message)


@asynccontextmanager
async def connect(
    transport: Transport,
    mode: Mode,
    callbacks: ClientCallbacks | None,
    most_listed_bytes: int,
) -> AsyncGenerator[Connection, None]:
    """Open a connection; entered and left in one task. Without `callbacks` the server can ask nothing."""
    box: list[Connection] = []

    async def take(message: IncomingMessage) -> None:
        # What comes before the handshake is done is followed by a listing anyway.
        for connection in box:
            await connection.take(message)

    offered = Offered() if callbacks is None else callbacks.offered
    client = Client(
        transport.open(),
        mode=mode,
        cache=None,
        client_info=Implementation(name="tenuto", version=__version__),
        message_handler=take,
        logging_callback=None if callbacks is None else callbacks.logged,
        log_level=LOG_LEVEL,
        elicitation_callback=None if callbacks is None else _elicitation(callbacks),
        sampling_callback=_sampling(callbacks) if callbacks is not None and offered.sampling else None,
        sampling_capabilities=SamplingCapability(
            tools=SamplingToolsCapability(), context=SamplingContextCapability() if offered.context else None
        ),
        list_roots_callback=_roots(callbacks) if callbacks is not None and offered.roots else None,
    )
    async with client:
        box.append(Connection(client, transport, most_listed_bytes))
        await box[0].ask_for_logs()
        yield box[0]


# The SDK calls its callbacks with a context that does not tell the call; its protocols name both arguments.


def _elicitation(callbacks: ClientCallbacks) -> ElicitationFnT:
    async def answer(
        context: ClientRequestContext,  # noqa: ARG001
        params: ElicitRequestParams,
    ) -> ElicitResult | ErrorData:
        return await callbacks.elicit(params)

    return answer


def _sampling(callbacks: ClientCallbacks) -> SamplingFnT:
    async def answer(
        context: ClientRequestContext,  # noqa: ARG001
        params: CreateMessageRequestParams,
    ) -> SampleResult | ErrorData:
        return await callbacks.sample(params)

    return answer


def _roots(callbacks: ClientCallbacks) -> ListRootsFnT:
    async def answer(context: ClientRequestContext) -> ListRootsResult | ErrorData:  # noqa: ARG001
        return await callbacks.roots()

    return answer
