"""A run's events as blocks of content, one after the other: whole answers and streams are made of the same. No I/O."""

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic_core import from_json

from tenuto.runtime.dialects.anthropic.messages.request import Shown
from tenuto.runtime.dialects.anthropic.messages.shapes import (
    AnswerBlock,
    McpToolResultBlock,
    McpToolUseBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from tenuto.runtime.loop.events import (
    Answer,
    ClientCallArguments,
    ClientCallStarted,
    ReasoningAdded,
    RunEvent,
    TextAdded,
    ToolCalling,
    ToolReturned,
    ToolStatus,
)
from tenuto.sessions.items import ToolCall
from tenuto.tools.names import parted


@dataclass(frozen=True, slots=True)
class Opened:
    """A block begins; it is empty yet."""

    index: int
    block: AnswerBlock


@dataclass(frozen=True, slots=True)
class Added:
    """More of the block that was opened last."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The block that was opened last is whole. Reasoning has its signature."""

    index: int
    signature: str | None = None


Piece = Opened | Added | Closed


@dataclass(slots=True)
class Blocks:
    """Turns events into pieces of blocks. Texts that follow each other are one block, also those of several rounds."""

    shown: Shown
    count: int = 0
    """How many blocks have begun."""
    _open: type[AnswerBlock] | None = None
    _reasoning: list[str] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)

    def take(self, event: RunEvent) -> Iterator[Piece]:
        """What an event adds; nothing where blocks show nothing of it."""
        match event:
            case TextAdded():
                if self._open is not TextBlock:
                    yield from self._begin(TextBlock(type="text", text=""))
                yield Added(self.count - 1, event.text)
            case ReasoningAdded() if self.shown.reasoning != "not":
                if self._open is not ThinkingBlock:
                    yield from self._begin(ThinkingBlock(type="thinking", thinking="", signature=""))
                self._reasoning.append(event.text)
                if self.shown.reasoning == "whole":
                    yield Added(self.count - 1, event.text)
            case ClientCallStarted():
                yield from self._begin(ToolUseBlock(type="tool_use", id=event.call_id, name=event.name, input={}))
            case ClientCallArguments():
                yield Added(self.count - 1, event.text)
            case ToolCalling() if self.shown.served is not None:
                yield from self._made(event.call, self.shown.served)
            case ToolReturned() if self.shown.served is not None:
                if event.call.id not in self._told:  # it was never made: somebody has said no
                    yield from self._made(event.call, self.shown.served)
                yield from self._begin(_result(event))
                yield from self.finish()

    def _made(self, call: ToolCall, served: Mapping[str, tuple[str, str]]) -> Iterator[Piece]:
        """A call that the server makes."""
        self._told.add(call.id)
        server, name = served.get(call.name) or parted(call.name)
        yield from self._begin(
            McpToolUseBlock(type="mcp_tool_use", id=call.id, name=name, server_name=server, input={})
        )
        yield Added(self.count - 1, call.arguments)
        yield from self.finish()

    def finish(self) -> Iterator[Piece]:
        """No more comes."""
        if self._open is not None:
            signature = _signature("".join(self._reasoning)) if self._open is ThinkingBlock else None
            self._open = None
            self._reasoning.clear()
            yield Closed(self.count - 1, signature)

    def _begin(self, block: AnswerBlock) -> Iterator[Piece]:
        yield from self.finish()
        self._open = type(block)
        self.count += 1
        yield Opened(self.count - 1, block)


def missed(answer: Answer) -> list[RunEvent]:
    """The events that an answer would have been told by, where those are gone."""
    events: list[RunEvent] = [ReasoningAdded(0, answer.reasoning)] if answer.reasoning else []
    if answer.text:
        events.append(TextAdded(0, answer.text))
    for index, call in enumerate(call for call in answer.calls if not call.server):
        events += [ClientCallStarted(0, index, call.id, call.name), ClientCallArguments(0, index, call.arguments)]
    return events


def whole(pieces: Iterable[Piece]) -> list[AnswerBlock]:
    """The blocks that the pieces make."""
    blocks: list[AnswerBlock] = []
    texts: list[str] = []
    for piece in pieces:
        match piece:
            case Opened():
                blocks.append(piece.block)
                texts = []
            case Added():
                texts.append(piece.text)
            case Closed():
                blocks[-1] = _filled(blocks[-1], "".join(texts), piece.signature)
    return blocks


def _filled(block: AnswerBlock, text: str, signature: str | None) -> AnswerBlock:
    match block:
        case TextBlock():
            return TextBlock(type="text", text=text)
        case ThinkingBlock():
            return ThinkingBlock(type="thinking", thinking=text, signature=signature or "")
        case ToolUseBlock():
            return ToolUseBlock(type="tool_use", id=block.id, name=block.name, input=_input(text))
        case McpToolUseBlock():
            return block.model_copy(update={"input": _input(text)})
        case McpToolResultBlock():
            return block


def _result(event: ToolReturned) -> McpToolResultBlock:
    said = [TextBlock(type="text", text=event.result)]
    is_error = event.status is not ToolStatus.COMPLETED
    return McpToolResultBlock(type="mcp_tool_result", tool_use_id=event.call.id, is_error=is_error, content=said)


def _input(text: str) -> dict[str, object]:
    """A call's arguments as an object, read as Anthropic's own clients read what they have of a stream."""
    try:
        value = from_json(text, allow_partial=True) if text.strip() else None
    except ValueError:  # `tenuto.diagnostics` tells of such a call
        value = None
    return value if isinstance(value, dict) else {}


def _signature(reasoning: str) -> str:
    return b64encode(hashlib.sha256(reasoning.encode()).digest()).decode()
