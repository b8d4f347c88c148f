"""The servers that requests bring by their URLs: connected for one request, held for its run, and forgotten with it.

A connection and its supervision are those of a configured server. What a request has told of a server, its headers
above all, is in memory only, and for no longer than its run.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2
from anyio.abc import TaskGroup

from tenuto.errors import InvalidRequest, McpServerFailed, ServerUnreachable, UnsupportedParameter
from tenuto.sessions.shares import Shares
from tenuto.sessions.tool_limits import MOST_TOOL_BYTES
from tenuto.tools.egress import Egress
from tenuto.tools.host.host import Host
from tenuto.tools.host.state import Status
from tenuto.tools.mcp_config import HttpTarget, ServerConfig
from tenuto.tools.registry import Check, Exported, Registry
from tenuto.tools.spec import CallContext, ToolResult

MOST_SERVERS = 256
"""Of all requests and the runs that they have led to."""
START_S = 20.0
"""Until a server has listed its tools."""
RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class RequestedServer:
    """A server as a request brings it. `param` is the field that names it. Its URL and its headers may be secrets."""

    label: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    param: str

    @property
    def identity(self) -> str:
        """Names where it is, without what may change from request to request."""
        url = httpx2.URL(self.url)
        return hashlib.sha256(f"{url.scheme}://{url.netloc.decode()}{url.path}".encode()).hexdigest()[:16]


class Requested:
    """The servers of one request. Event-loop thread only.

    Their connections are there while it is open; closed, it knows how to open them again.
    """

    def __init__(self, servers: Sequence[RequestedServer], egress: Egress, check: Check | None) -> None:
        self.servers = servers
        self._host = Host([_config(server, egress) for server in servers])
        self.registry = Registry(self._host.servers, self._host.limits, check)
        self._identities = {server.label: server.identity for server in servers}
        self._closing, self._opened = anyio.Event(), anyio.Event()
        self._closing.set()
        self._one_at_a_time = anyio.Lock()
        self.tools: Sequence[Exported] = ()
        """What they have listed."""
        self.run: str | None = None
        """The run that has it."""

    @property
    def is_open(self) -> bool:
        """Whether its connections are wanted now."""
        return not self._closing.is_set()

    def identity_of(self, tool: Exported) -> str:
        """Names where a tool's server is."""
        return self._identities[tool.server]

    def open(self, tasks: TaskGroup) -> None:
        """Have connections from now on, each in a task of its own."""
        if not self.is_open:
            self._closing, self._opened = anyio.Event(), anyio.Event()
            tasks.start_soon(self._keep_open, self._closing, self._opened)

    def close(self) -> None:
        """Let go of the connections."""
        self._closing.set()

    async def _keep_open(self, closing: anyio.Event, opened: anyio.Event) -> None:
        async with self._one_at_a_time, self._host:  # it may still be closing, after the leg before
            opened.set()
            await closing.wait()

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext, timeout: float) -> ToolResult:
        """Call a tool by its exported name, while it is open. Raises what `Registry.call` does."""
        try:
            with anyio.fail_after(timeout):
                await self._opened.wait()
        except TimeoutError as exc:
            raise ServerUnreachable(f"the server of {tool} was not ready within {timeout:g} s") from exc
        return await self.registry.call(tool, arguments, context, timeout=timeout)

    async def list_tools(self) -> None:
        """Learn the tools of all. Raises McpServerFailed where one of them has not listed any in time."""
        await self._host.settled(START_S + 1)
        for server, state in zip(self.servers, self._host.states, strict=True):
            if state.status is not Status.READY:
                why = state.reason or f"it was not ready within {START_S:g} s"
                raise McpServerFailed(server.label, why, server.param)
        await self.registry.refresh()
        self.tools = self.registry.list()


class RequestedServers:
    """All of them. Event-loop thread only; an async context manager, entered and left in one task.

    `taken` are the names of the servers that are there without any request.
    """

    def __init__(self, egress: Egress, taken: Collection[str] = (), check: Check | None = None) -> None:
        self.egress, self.taken = egress, frozenset(taken)
        self._check = check
        self._table: Shares[Requested] = Shares(
            "the table of MCP servers of requests", MOST_SERVERS, lambda one: not one.is_open
        )
        self._of_runs: dict[str, Requested] = {}
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def __len__(self) -> int:
        return len(self._table)

    async def connect(self, principal: str, servers: Sequence[RequestedServer]) -> Requested:
        """Connect to servers and list their tools. Whoever has asked for it gives it to a run, or lets it go.

        Raises:
            UnsupportedParameter: requests may bring none.
            InvalidRequest: one has the name of a server that is there without any request.
            McpServerFailed: one of them cannot be used.
            Overloaded: there is no place for them.
        """
        self._expect_allowed(servers)
        assert self._tasks is not None
        requested = Requested(servers, self.egress, self._check)
        now = anyio.current_time()
        for gone in self._table.admit(requested, principal, now, RETRY_AFTER_S, weight=len(servers)):
            self._forget(gone)
        try:
            requested.open(self._tasks)
            await requested.list_tools()
        except BaseException:
            self.let_go(requested)
            raise
        return requested

    def of(self, run_id: str) -> Requested | None:
        """What a run has, as long as there is room for it."""
        return self._of_runs.get(run_id)

    def give(self, requested: Requested, run_id: str) -> None:
        """It is a run's from now on, in the place of what the run had."""
        if self._of_runs.get(run_id) is not requested:
            self.forget(run_id)
        requested.run = run_id
        self._of_runs[run_id] = requested

    def let_go(self, requested: Requested) -> None:
        """Nobody wants it any more, unless it is a run's."""
        if requested.run is None:
            self._forget(requested)

    def begin(self, run_id: str) -> None:
        """A leg of a run begins: what it has is connected."""
        if (requested := self._of_runs.get(run_id)) is not None:
            assert self._tasks is not None
            self._table.touch(requested)
            requested.open(self._tasks)

    def rest(self, run_id: str) -> None:
        """A run waits: what it has is not connected, and gives way where others need the room."""
        if (requested := self._of_runs.get(run_id)) is not None:
            requested.close()

    def forget(self, run_id: str) -> None:
        """A run has ended."""
        if (requested := self._of_runs.get(run_id)) is not None:
            self._forget(requested)

    def _expect_allowed(self, servers: Sequence[RequestedServer]) -> None:
        for server in servers:
            if self.egress is Egress.OFF:
                raise UnsupportedParameter(
                    f"{server.param}: this server calls no MCP servers that requests bring; name one that it has"
                    f" ({', '.join(sorted(self.taken))}), add one to the file of --mcp-config, or start it with"
                    " --egress public",
                    server.param,
                )
            if server.label in self.taken:
                raise InvalidRequest(
                    f"{server.param}: {server.label!r} is the name of a server of the configuration; choose another"
                    " one, or leave out the URL to use that server",
                    server.param,
                )

    def _forget(self, requested: Requested) -> None:
        requested.close()
        self._table.remove(requested)
        if requested.run is not None:
            self._of_runs.pop(requested.run, None)


def _config(server: RequestedServer, egress: Egress) -> ServerConfig:
    target = HttpTarget(server.url, server.headers, egress=egress)
    return ServerConfig(server.label, target, start_timeout_s=START_S, most_listed_bytes=MOST_TOOL_BYTES, may_ask=False)
