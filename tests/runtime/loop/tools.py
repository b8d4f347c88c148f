"""Small tool servers in this process, for tests that must see when a tool is called and decide when it answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from tenuto.errors import ToolFailed
from tenuto.sessions.items import JsonObject, ToolSpec
from tenuto.tools.spec import Annotations, CallContext, Tool, ToolResult


def spec(name: str, /, **properties: str) -> ToolSpec:
    """A tool whose parameters are all required."""
    schema: JsonObject = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return ToolSpec(name, f"The tool {name}.", schema, strict=True)


@dataclass
class Counting:
    """The server `count`: `add` has an effect, `peek` has none. `on_call` sees the world at the moment of a call."""

    name: str = "count"
    value: int = 0
    contexts: list[CallContext] = field(default_factory=list)
    on_call: Callable[[], None] = lambda: None

    async def list(self) -> list[Tool]:
        return [Tool(spec("add", by="integer")), Tool(spec("peek"), Annotations(read_only=True))]

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        self.on_call()
        self.contexts.append(context)
        self.value += arguments.get("by", 0)
        return ToolResult(str(self.value))


@dataclass
class Slow:
    """The server `slow`: `wait` answers when the test lets it; `begun` and `cancelled` count its calls."""

    name: str = "slow"
    begun: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)
    cancelled: int = 0

    async def list(self) -> list[Tool]:
        return [Tool(spec("wait", name="string"))]

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        self.begun.set()
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return ToolResult(f"waited for {arguments['name']}")


class Broken:
    """The server `broken`: `refuse` cannot be called, `crash` is a bug, `deny` answers with an error, `half` with half
    a character."""

    name = "broken"

    async def list(self) -> list[Tool]:
        return [Tool(spec("refuse")), Tool(spec("crash")), Tool(spec("deny")), Tool(spec("half"))]

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        match name:
            case "refuse":
                raise ToolFailed("the server cannot be reached", may_have_run=False)
            case "crash":
                raise RuntimeError("a bug")
            case "half":
                return ToolResult("half \ud83d", structured={"half": ["\udc00"]})
        return ToolResult("it is not allowed", is_error=True)


class Big:
    """The server `big`: `read` answers with so many characters, of which no two neighbours are the same."""

    name = "big"

    async def list(self) -> list[Tool]:
        return [Tool(spec("read", size="integer"))]

    async def call(self, name: str, arguments: dict[str, Any], context: CallContext) -> ToolResult:
        return ToolResult(text(arguments["size"]))


def text(size: int) -> str:
    """So many characters, with numbers that tell where in it one is."""
    return "".join(f"{number:05} " for number in range(size // 6 + 1))[:size]


@dataclass
class Tools:
    """All of them, as one process has them."""

    count: Counting = field(default_factory=Counting)
    slow: Slow = field(default_factory=Slow)
    broken: Broken = field(default_factory=Broken)
    big: Big = field(default_factory=Big)
