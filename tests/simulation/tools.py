"""The tool servers of the simulation: they live outside, remember every effect, and fail as they are told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from tenuto.errors import ToolFailed
from tenuto.sessions.items import ToolSpec
from tenuto.tools.spec import Annotations, CallContext, Tool, ToolResult

WORD = {"type": "object", "properties": {"w": {"type": "string"}}, "required": ["w"]}
FOREVER_S = 1e6


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that a tool has done in the world."""

    tool: str
    word: str
    call: str
    run: str | None
    session: str | None
    at: float


@dataclass
class Outside:
    """The world that tools have effects in; no crash takes them back. `fault` tells how the next call goes wrong."""

    now: Callable[[], float]
    fault: Callable[[], tuple[str, float] | None]
    effects: list[Effect] = field(default_factory=list)

    async def do(self, tool: str, word: str, context: CallContext, *, effect: bool) -> ToolResult:
        kind, seconds = self.fault() or ("", 0.0)
        match kind:
            case "late":
                await anyio.sleep(seconds)
            case "dies":
                raise ToolFailed(f"{tool} is not there", may_have_run=False)
            case "breaks":
                raise RuntimeError("a bug in a tool")
        if effect:
            self.effects.append(Effect(tool, word, context.call, context.run, context.session, self.now()))
        if kind == "dies_after":
            raise ToolFailed(f"{tool} has gone away", may_have_run=True)
        await anyio.sleep(FOREVER_S if kind == "hangs" else 0.003)
        return ToolResult(f"did {word}")


@dataclass
class Book:
    """A tool server. `put` has an effect; `get` has none, and says so."""

    name: str
    outside: Outside

    async def list(self) -> list[Tool]:
        write = ToolSpec("put", "Put.", WORD, strict=False)
        look = ToolSpec("get", "Get.", WORD, strict=False)
        return [Tool(write), Tool(look, Annotations(read_only=True))]

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        return await self.outside.do(f"{self.name}__{name}", arguments["w"], context, effect=name == "put")
