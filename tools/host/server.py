"""An MCP server as a source of tools: its supervisor keeps a connection alive, and calls use whichever is there."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import ValidationError

from tenuto.errors import ServerUnreachable, ToolFailed
from tenuto.tools.gateway import Gateway
from tenuto.tools.host.backoff import Backoff
from tenuto.tools.host.calls import ServerCalls
from tenuto.tools.host.connection import MODES, Connection, Mode, connect
from tenuto.tools.host.failures import ConnectionEnded, failure_of, reason, says_closed
from tenuto.tools.host.http import HttpTransport, SseTransport, auth_of, kind_of
from tenuto.tools.host.oauth import LoginNeeded, OAuth
from tenuto.tools.host.offers import ServerOffers
from tenuto.tools.host.results import MAX_TEXT_CHARACTERS, to_result
from tenuto.tools.host.secrets import Secrets
from tenuto.tools.host.state import Failure, ServerState, Status
from tenuto.tools.host.stderr_tail import StderrTail
from tenuto.tools.host.stdio import StdioTransport
from tenuto.tools.host.transport import Fate, Transport, fate_of, is_closed
from tenuto.tools.mcp_config import HttpTarget, ServerConfig, StdioTarget
from tenuto.tools.spec import CallContext, Tool, ToolResult

MAX_TRIES = 3
"""Of one call: it is made again only where it cannot have had an effect, or may have it twice."""

logger = logging.getLogger(__name__)


class _Unsent(Exception):
    """A call has certainly not reached the server; the connection has ended."""


class McpServer:
    """One configured server; a `ToolServer`. `run` supervises it, in a task of its own. Event-loop thread only."""

    def __init__(
        self,
        config: ServerConfig,
        on_change: Callable[[], None] | None = None,
        max_text: int = MAX_TEXT_CHARACTERS,
    ) -> None:
        self.config = config
        self._max_text = max_text
        self._on_change = on_change or (lambda: None)
        self._tail = StderrTail()
        self._connection: Connection | None = None
        self._tools: list[Tool] = []
        self._repeatable: frozenset[str] = frozenset()
        self._secrets = Secrets(config.target)
        self._auth = auth_of(config.target, self._secrets.learn, self._want_login)
        self._login_wanted = anyio.Event()
        self._calls = ServerCalls(config, self._secrets.hidden)
        self._mode: Mode = MODES[config.era]
        self._ended_early = False
        self._refused = False
        self._refusal = ""
        self._backoff = Backoff()
        self._moved = anyio.Event()
        self._kind = kind_of(config.target)
        self.offered = ServerOffers(self.name, config.timeout_s, self._connected, self._secrets.hidden, self._on_change)
        status = Status.DISABLED if config.disabled else Status.STARTING
        self._state = ServerState(self.name, status, transport=self._kind)

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.config.name

    @property
    def gateway(self) -> Gateway:
        """What MCP clients see of it."""
        return self.config.gateway

    @property
    def state(self) -> ServerState:
        """Where it stands now."""
        return self._state

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines that it wrote to stderr, over all restarts, without the secrets of its configuration."""
        return self._secrets.hidden_in(self._tail.lines)

    async def list(self) -> list[Tool]:
        """Its tools. One that is started again keeps them until a start fails: calls wait for it so long."""
        return list(self._tools)

    async def settled(self) -> None:
        """Wait until its first start has succeeded or failed. The start has a deadline, and so has this."""
        while self._state.status is Status.STARTING and self._state.restarts == 0:
            await self._moved.wait()

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        """Call a tool within its time, which counts a short wait for a server that is being started.

        A call that was lost with its connection is made again where it cannot have reached the server, and where the
        server calls it repeatable. Cancelling it cancels the call at the server.

        Raises:
            ServerUnreachable: it is not connected, or did not take the call; nothing has run.
            ToolFailed: the connection or the time ended; it may have run.
        """
        limit = self.config.timeout_of(name)
        asked = False
        try:
            with anyio.fail_after(limit) as scope:
                context = context.timed_by(scope)
                for tries_left in reversed(range(MAX_TRIES)):
                    connection = await self._connected()
                    may_repeat, asked = name in self._repeatable, True
                    try:
                        return await self._call(connection, name, arguments, context)
                    except _Unsent as exc:
                        asked, why = False, str(exc)
                    except ToolFailed as exc:
                        if not (exc.may_have_run and may_repeat and tries_left):
                            raise
                raise ServerUnreachable(f"{self.name} did not take the call of {name}: {why}")
        except TimeoutError as exc:
            if not asked:
                raise ServerUnreachable(f"{self.name} was not ready within {limit:g} s") from exc
            message = f"{self.name} did not answer {name} within {limit:g} s; the call may have had an effect"
            raise ToolFailed(message, may_have_run=True) from exc

    def prepare(self) -> None:
        """It is about to be run, for the first time or again: calls wait for it from now on."""
        if not self.config.disabled:
            self._backoff.reset()
            self._move(replace(self._state, status=Status.STARTING, reason=""))

    async def run(self) -> None:
        """Keep a connection until cancelled, starting again after each end. Never raises for what a server does."""
        if self.config.disabled:
            return
        try:
            while True:
                await self._rest()
                self._move(replace(self._state, status=Status.STARTING, protocol=None))
                began = anyio.current_time()
                try:
                    await self._connect_once()
                # Whatever a foreign program makes the SDK raise ends here: the other servers share our task group.
                except Exception as exc:
                    if not self._falls_back(exc):
                        failure = failure_of(exc)
                        if failure is not Failure.LOGIN_REQUIRED and (self._refused or self._refusal):
                            failure = Failure.NO_ENDPOINT
                        self._failed(self._explained(exc, failure), failure, anyio.current_time() - began)
        finally:
            self._move(replace(self._state, status=Status.STOPPED, reason="the runtime is stopping", tools=0))

    async def _rest(self) -> None:
        """Until the next try is due, or somebody has logged in for it."""
        with anyio.CancelScope(deadline=self._backoff.at):
            if self._state.failure is Failure.LOGIN_REQUIRED and isinstance(self._auth, OAuth):
                await self._auth.changed()
            else:
                await anyio.sleep_forever()

    async def _connect_once(self) -> None:
        """Connect, list, and stay until the connection ends. Always raises."""
        transport = self._transport()
        deadline = anyio.current_time() + self.config.start_timeout_s
        try:
            # One scope around all: scopes nest, so the deadline is lifted instead of the scope left.
            with anyio.CancelScope(deadline=deadline) as scope:
                most = self.config.most_listed_bytes
                callbacks = self._calls if self.config.may_ask else None
                async with connect(transport, self._mode, callbacks, most) as connection:
                    tools = await connection.list_tools()
                    scope.deadline = float("inf")
                    await self._serve(connection, tools, transport)
            raise TimeoutError(f"it was not ready within {self.config.start_timeout_s:g} s")
        except Exception as exc:
            if self._connection is None and transport.login_needed:  # the SDK goes on with the older protocol
                raise LoginNeeded(transport.login_needed) from exc
            if self._connection is None and transport.ended.is_set() and says_closed(exc):
                raise ConnectionEnded(transport.ending) from exc  # the SDK only says that it was closed
            raise
        finally:
            self._ended_early = self._connection is None and transport.ended.is_set()
            self._refused = self._connection is None and transport.refused and not transport.login_needed
            self._connection = None

    async def _serve(self, connection: Connection, tools: Sequence[Tool], transport: Transport) -> None:
        if self.config.era == "modern" and not connection.modern:
            raise ConnectionError(f'it speaks {connection.protocol}, but its entry says "era": "modern"')
        if self.config.era == "auto":
            self._mode = "auto" if connection.modern else "legacy"
        self._connection, self._refusal, self._login_wanted = connection, "", anyio.Event()
        self.offered.meet(connection)
        self._take(tools)
        self._move(replace(self._state, status=Status.READY, reason="", failure=None, protocol=connection.protocol))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, connection)
            tasks.start_soon(connection.listen)
            tasks.start_soon(self.offered.follow, connection)
            tasks.start_soon(self._mind_logins, connection)
            await transport.ended.wait()
            tasks.cancel_scope.cancel()
        raise ConnectionEnded(transport.ending)

    async def _follow(self, connection: Connection) -> None:
        """List again after each change; a listing that fails leaves the last one."""
        while True:
            await connection.changed()
            try:
                with anyio.fail_after(self.config.start_timeout_s):
                    tools = await connection.list_tools()
            except (MCPError, ValidationError, TimeoutError) as exc:
                why = self._secrets.hidden(reason(exc))
                logger.warning("the MCP server %s could not list its tools again: %s", self.name, why)
            else:
                self._take(tools)
                self._move(self._state)

    def _want_login(self, why: str) -> None:
        """A request was refused for want of a login. Others may be taken, so the connection stays."""
        if self._state.status is Status.READY:
            self._move(replace(self._state, reason=self._secrets.hidden(why), failure=Failure.LOGIN_REQUIRED))
            self._login_wanted.set()

    async def _mind_logins(self, connection: Connection) -> None:
        """Once somebody has logged in for what was refused, that is no more said, and the tools are listed anew."""
        while isinstance(self._auth, OAuth):
            await self._login_wanted.wait()
            await self._auth.changed()
            self._login_wanted = anyio.Event()
            self._move(replace(self._state, reason="", failure=None))
            connection.list_again()

    def _take(self, tools: Sequence[Tool]) -> None:
        self._tools = [*tools]
        self._repeatable = frozenset(tool.spec.name for tool in tools if tool.annotations.repeatable)
        self._state = replace(self._state, tools=len(self._tools))

    def _transport(self) -> Transport:
        match self.config.target:
            case StdioTarget() as target:
                return StdioTransport(target, self._tail)
            case HttpTarget() as target:
                kind = SseTransport if self._kind == "sse" else HttpTransport
                return kind(target, self.config.longest_timeout_s, self._auth)

    def _falls_back(self, exc: Exception) -> bool:
        """Whether a failed start is to be tried again at once, by the older protocol or the older transport.

        Some servers exit on the first message of the newer one. A server that was started by the older protocol and
        fails gets the newer one at its next try: it may have been replaced.
        """
        if self._mode == "auto" and self.config.era == "auto" and self._ended_early and self._kind == "stdio":
            logger.info("the MCP server %s ended in the handshake (%s); trying the older one", self.name, reason(exc))
            self._mode = "legacy"
            return True
        if self._refused and isinstance(self.config.target, HttpTarget) and self.config.target.kind == "auto":
            logger.info("the MCP server %s refuses streamable HTTP (%s); trying SSE", self.name, reason(exc))
            self._kind, self._refusal = "sse", reason(exc)
            self._state = replace(self._state, transport="sse")
            return True
        if self._state.status is Status.STARTING:
            self._mode = MODES[self.config.era]
        return False

    def _explained(self, exc: Exception, failure: Failure) -> str:
        """Why it failed, in words without secrets. After a failed start the next one begins with the newest way."""
        why = reason(exc)
        if self._state.status is Status.STARTING:
            if self._refusal and failure is not Failure.LOGIN_REQUIRED:
                why = f"it supports neither streamable HTTP ({self._refusal}) nor SSE ({why})"
            self._kind, self._refusal = kind_of(self.config.target), ""
            self._state = replace(self._state, transport=self._kind)
        return self._secrets.hidden(why)

    def _failed(self, why: str, failure: Failure, lasted_s: float) -> None:
        if self._state.status is not Status.READY:
            self._take([])
            self.offered.forget()
            lasted_s = 0.0
        delay_s = self._backoff.fail(failure, lasted_s)
        # A server that stays away with one reason is told of once.
        level = logging.DEBUG if why == self._state.reason else logging.WARNING
        logger.log(level, "the MCP server %s: %s; next try in %g s", self.name, why, delay_s)
        for line in self.stderr[-5:]:
            logger.log(level, "the MCP server %s wrote: %s", self.name, line)
        restarts = self._state.restarts + 1
        state = replace(self._state, status=Status.WAITING, reason=why, last_error=why, failure=failure)
        self._move(replace(state, restarts=restarts))

    def _move(self, state: ServerState) -> None:
        """Take a state and wake who waits for one."""
        self._state = state
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
        self._on_change()

    async def _connected(self) -> Connection:
        """The live connection; waits for one that is near."""
        while self._connection is None or self._connection.ended:
            status = self._state.status
            near = status is Status.WAITING and self._backoff.is_near
            if status not in (Status.STARTING, Status.READY) and not near:
                why = self._state.reason or status.value
                raise ServerUnreachable(f"the MCP server {self.name} is not connected: {why}")
            await self._moved.wait()
        return self._connection

    async def _call(
        self, connection: Connection, name: str, arguments: dict[str, Any], context: CallContext
    ) -> ToolResult:
        try:
            return to_result(await self._calls.make(connection, name, arguments, context), self._max_text)
        except MCPError as exc:
            fate = fate_of(exc.error)
            if fate is Fate.UNSENT:
                raise _Unsent(self._secrets.hidden(exc.error.message)) from exc
            if fate is Fate.REFUSED:
                why = self._secrets.hidden(exc.error.message)
                raise ServerUnreachable(f"{self.name} did not take the call of {name}: {why}") from exc
            gone = fate is None and exc.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT)
            if gone or fate is Fate.LOST or self._connection is not connection:
                failed = self._lost(name, connection, exc.error.message)
                if is_closed(exc.error):
                    connection.give_up()
                raise failed from exc
            return ToolResult(f"Error: {self._secrets.hidden(exc.message)}", is_error=True)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as exc:
            raise self._lost(name, connection) from exc
        except (RuntimeError, ValidationError) as exc:
            if self._connection is not connection:
                raise self._lost(name, connection) from exc
            why, first_line = map(self._secrets.hidden, (reason(exc), str(exc).partition("\n")[0]))
            logger.warning("the MCP server %s answered %s with what it did not declare: %s", self.name, name, why)
            text = f"Error: {name} ran, but its result does not match its output schema: {first_line[:300]}"
            return ToolResult(text, is_error=True)

    def _lost(self, name: str, connection: Connection, told: str = "") -> ToolFailed:
        why = self._secrets.hidden(connection.ending if connection.ended else told)
        ended = f"the connection to {self.name} ended during the call of {name}{f' ({why})' if why else ''}"
        return ToolFailed(f"{ended}; it may have had an effect", may_have_run=True)
