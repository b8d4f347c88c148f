"""What a tool is to the runtime: the ToolServer Protocol, a call's context and its result. No model, no HTTP."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, Self

import anyio
from mcp_types import CallToolResult

from tenuto.sessions.items import Attachment, JsonObject, ToolSpec
from tenuto.tools.asking import Ask, Resumed, stopped
from tenuto.tools.roots import Root
from tenuto.tools.sampling import AskModel

Log = Callable[[str, str], None]
"""Told a level by syslog's names, and a text."""
Progress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told (done, total, message)."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """What a server says of its tool, by MCP's meaning: hints that decide about repeats, never about permission."""

    title: str | None = None
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = True
    open_world: bool = True

    @property
    def repeatable(self) -> bool:
        """Whether the call may be made again where nobody knows if it was made."""
        return self.read_only or self.idempotent


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as its server lists it. `spec.name` is the server's own name, without the server's prefix.

    `title`, `icons` and `meta` are for clients that show tools, in MCP's form; no model reads them.
    """

    spec: ToolSpec
    annotations: Annotations = field(default_factory=Annotations)
    output_schema: JsonObject | None = None
    title: str | None = None
    icons: tuple[JsonObject, ...] = ()
    meta: JsonObject | None = None


def digest(tool: Tool) -> str:
    """Names all that a server says of a tool, so that a person's word is for this very definition."""
    return hashlib.sha256(json.dumps(asdict(tool), sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class CallContext:
    """Who calls, for whom: typed, and never taken from what a model wrote.

    `session` is the session's uid, None for a call from outside any session; then session-bound tools keep their data
    under the principal. `ask` asks a person, `sample`
    the model; None: nobody is there. `resumed` is set of a call that has asked in an earlier process. `roots` are the
    folders that its session works in. `log` takes what the tool's server logs meanwhile.
    """

    principal: str
    session: str | None
    run: str | None
    call: str
    progress: Progress | None = None
    ask: Ask | None = None
    resumed: Resumed | None = None
    sample: AskModel | None = None
    roots: tuple[Root, ...] = ()
    log: Log | None = None
    clocks: tuple[anyio.CancelScope, ...] = ()
    """What bounds the call's time."""

    def timed_by(self, scope: anyio.CancelScope) -> Self:
        """The same, for a call whose time is that of a scope."""
        return replace(self, clocks=(*self.clocks, scope))

    def off_the_clock(self) -> AbstractContextManager[None]:
        """Let the call's time stand still while it waits for somebody's answer. One question at a time."""
        return stopped(self.clocks)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call from outside any run: it hears of its progress and its log, and answers what is asked in it."""

    progress: Progress | None = None
    ask: Ask | None = None
    sample: AskModel | None = None
    log: Log | None = None

    def context(self, principal: str, call: str) -> CallContext:
        """The call's."""
        return CallContext(principal, None, None, call, self.progress, self.ask, sample=self.sample, log=self.log)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered. A failure that the model should read is a result with `is_error`.

    `attachments` are kept with the result; the model reads what `text` says of them. `whole` is what an
    MCP server gave, for a client that called the tool itself; it is not kept.
    """

    text: str
    is_error: bool = False
    structured: Any = None
    attachments: tuple[Attachment, ...] = ()
    whole: CallToolResult | None = field(default=None, compare=False, repr=False)


class ToolServer(Protocol):
    """A source of tools: a built-in or a connection to an MCP server."""

    @property
    def name(self) -> str:
        """The prefix of its tools' names, `[a-zA-Z0-9_-]+`."""

    async def list(self) -> list[Tool]:
        """The tools that it has now; empty while it cannot be reached."""

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        """Call one of them by its own name. Arguments have been validated.

        Raises:
            ServerUnreachable: its server is not there; nothing has run.
            ToolFailed: it could not be called, or did not answer in time.
        """
