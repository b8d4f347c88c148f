"""All tools of all servers under the names that models see, and the one way to call them."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import anyio

from tenuto.errors import ConfigurationError, ServerUnreachable, TenutoError, ToolFailed
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.questions import Question
from tenuto.tools.asking import Ask, Reply
from tenuto.tools.gate import Gate, Place
from tenuto.tools.names import exported_name
from tenuto.tools.spec import CallContext, Tool, ToolResult, ToolServer
from tenuto.tools.validate import problems, without_nulls

Check = Callable[[dict[str, Any], dict[str, Any]], Awaitable[list[str]]]
"""Tells in words what is wrong with arguments by a schema; raises TenutoError where that takes too long."""

_LIST_TIMEOUT_S = 10.0
_MOST_NAMED = 100

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What holds for each tool of a server: seconds a call, calls at a time, and calls that may wait for a place.

    `of_tool` gives the limits of single tools, by the server's own names, where these differ.
    """

    timeout_s: float = 120.0
    concurrency: int = 8
    waiting: int = 64
    of_tool: "Callable[[str], CallLimits] | None" = None


@dataclass(frozen=True, slots=True)
class Exported:
    """A tool under the name that models and clients see. `spec` is what a model is told: its own under that name."""

    name: str
    server: str
    tool: Tool
    spec: ToolSpec


class Registry:
    """The tools of a fixed list of servers. Event-loop thread only.

    `limits` holds those of servers by name; the others have the defaults. `check` holds arguments to schemas; by
    default it does so at once, which is for servers whose schemas are known. `instructions` gives what servers say of
    how their tools are used, by their names. The listing is what `refresh` found last.

    Raises:
        ConfigurationError: two servers have one name.
    """

    def __init__(
        self,
        servers: Sequence[ToolServer],
        limits: Mapping[str, CallLimits] | None = None,
        check: Check | None = None,
        instructions: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        names = [server.name for server in servers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"two tool servers have the name {twice[0]!r}; rename one of them")
        self._servers = {server.name: server for server in servers}
        self._limits = {name: (limits or {}).get(name, CallLimits()) for name in names}
        self.check = check or _check_here
        self.instructions = instructions
        self._listed: dict[str, Exported] = {}
        self._seen: dict[str, Exported] = {}
        self._gates: dict[str, Gate] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of all servers."""
        return tuple(self._servers)

    async def refresh(self) -> None:
        """Ask every server for its tools. One that fails to say lists none, and the others are not affected."""
        tools: dict[str, list[Tool]] = {}

        async def ask(server: ToolServer) -> None:
            try:
                with anyio.move_on_after(_LIST_TIMEOUT_S):
                    tools[server.name] = await server.list()
            except Exception:
                logger.exception("the tool server %s could not list its tools", server.name)

        async with anyio.create_task_group() as group:
            for server in self._servers.values():
                group.start_soon(ask, server)
        self._listed = _export([(name, tools.get(name, [])) for name in self._servers])
        # What a server listed before it went away stays callable, so that the call tells why it is not there.
        self._seen = {name: each for name, each in self._seen.items() if not tools.get(each.server)} | self._listed

    def list(self) -> list[Exported]:
        """All tools, in the order of the servers and then of their listings."""
        return list(self._listed.values())

    def find(self, name: str) -> Exported | None:
        """The tool of that exported name, if it is listed now."""
        return self._listed.get(name)

    def known(self, name: str) -> Exported | None:
        """The tool of that exported name, listed now or before its server went away: what `call` would call."""
        return self._seen.get(name)

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        context: CallContext,
        timeout: float | None = None,
    ) -> ToolResult:
        """Call a tool by its exported name. `timeout`, in seconds, shortens its limit and counts the wait for a place.

        A name that is not known and arguments that do not fit are error results, for the model to read and mend.

        Raises:
            ServerUnreachable: its server is not there; nothing has run.
            ToolFailed: it could not be called, or did not answer in time; `may_have_run` tells which.
        """
        found = self._seen.get(name)
        if found is None:
            return ToolResult(f"Error: there is no tool {name[:100]!r}; the tools are: {self._named()}", is_error=True)
        arguments = without_nulls(found.tool.spec.parameters, arguments)
        try:
            wrong = await self.check(found.tool.spec.parameters, arguments)
        except TenutoError as exc:
            return ToolResult(f"Error: the arguments of {name} cannot be checked: {exc}", is_error=True)
        if wrong:
            return ToolResult(f"Error: the arguments of {name} are not valid: {'; '.join(wrong)}", is_error=True)
        limit = self._limits_of(found).timeout_s
        seconds = limit if timeout is None else min(timeout, limit)
        deadline = anyio.current_time() + seconds
        async with self._gate(found).enter(deadline) as place:
            with anyio.CancelScope(deadline=deadline) as scope:
                context = replace(context, ask=_without_a_place(context.ask, place))
                return await self._ask(found, arguments, context.timed_by(scope))
        assert scope.cancelled_caught
        raise ToolFailed(f"{name} did not answer within {seconds:g} s; it may have had an effect", may_have_run=True)

    def _named(self) -> str:
        """The tools by their names, so far as a model is to read them."""
        more = f" and {len(self._listed) - _MOST_NAMED} more" if len(self._listed) > _MOST_NAMED else ""
        return (", ".join(islice(self._listed, _MOST_NAMED)) or "none") + more

    async def _ask(self, found: Exported, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        try:
            return await self._servers[found.server].call(found.tool.spec.name, arguments, context)
        except (ToolFailed, ServerUnreachable):
            raise
        except Exception as exc:
            logger.exception("the tool %s failed", found.name)
            message = f"{found.name} failed inside ({type(exc).__name__}); it may have had an effect"
            raise ToolFailed(message, may_have_run=True) from exc

    def _limits_of(self, found: Exported) -> CallLimits:
        limits = self._limits[found.server]
        return limits if limits.of_tool is None else limits.of_tool(found.tool.spec.name)

    def _gate(self, found: Exported) -> Gate:
        gate = self._gates.get(found.name)
        if gate is None:
            limits = self._limits_of(found)
            gate = self._gates[found.name] = Gate(found.name, limits.concurrency, limits.waiting)
        return gate


def by_server(tools: Iterable[Exported]) -> dict[str, list[Exported]]:
    """Tools by the names of their servers, in their order."""
    found: dict[str, list[Exported]] = {}
    for tool in tools:
        found.setdefault(tool.server, []).append(tool)
    return found


def _without_a_place(ask: Ask | None, place: Place) -> Ask | None:
    """The same, while others may have the place: a person may take an hour."""
    if ask is None:
        return None

    async def asked(question: Question) -> Reply:
        async with place.given_up():
            return await ask(question)

    return asked


async def _check_here(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    return problems(schema, arguments)


def _export(listings: Sequence[tuple[str, Sequence[Tool]]]) -> dict[str, Exported]:
    """Name all tools. Of two with one name in one server the first stays."""
    exported: dict[str, Exported] = {}
    for server, tools in listings:
        own: set[str] = set()
        for tool in tools:
            if tool.spec.name in own:
                logger.warning("the tool server %s lists %r twice; the first is taken", server, tool.spec.name)
                continue
            own.add(tool.spec.name)
            name = _free_name(exported, server, tool.spec.name)
            exported[name] = Exported(name, server, tool, replace(tool.spec, name=name))
    return exported


def _free_name(taken: Mapping[str, Exported], server: str, tool: str) -> str:
    attempt = 0
    while (name := exported_name(server, tool, attempt)) in taken:
        attempt += 1
    return name
