"""The items of a response while they come: each tells its beginning, its pieces and its end, and then is a shape."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal

from tenuto.runtime.dialects.openai.logprobs import TokenLogprobAnswer, chat_logprobs
from tenuto.runtime.dialects.openai.responses import events as e
from tenuto.runtime.dialects.openai.responses.callables import ClientTool, unwrapped
from tenuto.runtime.dialects.openai.responses.frames import Events, piece_head
from tenuto.runtime.dialects.openai.responses.shapes import (
    CallStatus,
    CustomCallItem,
    FunctionCallItem,
    ItemStatus,
    McpCallItem,
    McpError,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
)
from tenuto.runtime.http.sse import json_line
from tenuto.runtime.loop.events import TextLogprob, ToolStatus
from tenuto.sessions.items import ToolCall


@dataclass(slots=True)
class Growing(ABC):
    """An item at its place in the output."""

    events: Events
    id: str
    index: int
    is_whole: bool = field(default=False, init=False)

    @abstractmethod
    def shape(self) -> OutputItem:
        """It as it stands."""

    def begin(self) -> None:
        """Tell that it is there."""
        self.events.tell(e.ItemEvent, "response.output_item.added", output_index=self.index, item=self.shape())

    def end(self) -> None:
        """Tell that it is whole."""
        self.is_whole = True
        self.events.tell(e.ItemEvent, "response.output_item.done", output_index=self.index, item=self.shape())

    def _tell(self, kind: type[e.StreamEvent], name: str, **fields: object) -> None:
        self.events.tell(kind, name, item_id=self.id, output_index=self.index, **fields)


@dataclass(slots=True)
class Spoken(Growing):
    """Text of one round: what the model says."""

    round: int
    status: ItemStatus = "in_progress"
    _text: list[str] = field(default_factory=list)
    _logprobs: list[TokenLogprobAnswer] = field(default_factory=list)
    _head: bytes = b""

    def begin(self) -> None:
        """Tell that it is there, with nothing in it yet."""
        Growing.begin(self)
        self._head = piece_head("response.output_text.delta", self.id, self.index)
        self._tell(e.PartEvent, "response.content_part.added", content_index=0, part=self._part())

    def add(self, text: str, logprobs: tuple[TextLogprob, ...] = ()) -> None:
        """Add a piece of the text."""
        self._text.append(text)
        new = chat_logprobs(logprobs).content if logprobs else []
        self._logprobs += new
        self.events.tell_piece(self._head, text, b',"logprobs":' + (json_line(new) if new else b"[]"))

    def close(self, status: ItemStatus) -> None:
        """Nothing more is said."""
        self.status = status
        part = self._part()
        self._tell(e.TextDone, "response.output_text.done", content_index=0, text=part.text, logprobs=part.logprobs)
        self._tell(e.PartEvent, "response.content_part.done", content_index=0, part=part)
        self.end()

    def shape(self) -> MessageItem:
        """It as it stands."""
        content = [self._part()] if self._text else []
        return MessageItem(id=self.id, type="message", role="assistant", status=self.status, content=content)

    def _part(self) -> OutputText:
        return OutputText(type="output_text", text="".join(self._text), annotations=[], logprobs=[*self._logprobs])


@dataclass(slots=True)
class Thought(Growing):
    """Reasoning of one round."""

    round: int
    status: ItemStatus = "in_progress"
    _text: list[str] = field(default_factory=list)
    _head: bytes = b""

    def begin(self) -> None:
        """Tell that it is there, with nothing in it yet."""
        Growing.begin(self)
        self._head = piece_head("response.reasoning_text.delta", self.id, self.index)
        self._tell(e.PartEvent, "response.content_part.added", content_index=0, part=self._part())

    def add(self, text: str) -> None:
        """Add a piece of the reasoning."""
        self._text.append(text)
        self.events.tell_piece(self._head, text)

    def close(self, status: ItemStatus) -> None:
        """The model thinks no more."""
        self.status = status
        part = self._part()
        self._tell(e.ReasoningDone, "response.reasoning_text.done", content_index=0, text=part.text)
        self._tell(e.PartEvent, "response.content_part.done", content_index=0, part=part)
        self.end()

    def shape(self) -> ReasoningItem:
        """It as it stands."""
        content = [self._part()] if self._text else []
        return ReasoningItem(id=self.id, type="reasoning", status=self.status, summary=[], content=content)

    def _part(self) -> ReasoningText:
        return ReasoningText(type="reasoning_text", text="".join(self._text))


@dataclass(slots=True)
class ClientCall(Growing):
    """A call that the client is to make. The text of a custom tool's is told when it is whole."""

    call_id: str
    tool: ClientTool
    status: ItemStatus = "in_progress"
    _arguments: list[str] = field(default_factory=list)
    _head: bytes = b""

    def begin(self) -> None:
        """Tell that it is there, with nothing in it yet."""
        Growing.begin(self)
        self._head = piece_head("response.function_call_arguments.delta", self.id, self.index, has_parts=False)

    def add(self, text: str) -> None:
        """Add a piece of the arguments."""
        self._arguments.append(text)
        if not self.tool.is_custom:
            self.events.tell_piece(self._head, text)

    def close(self, status: ItemStatus) -> None:
        """It is whole, and to be made where it is `completed`."""
        self.status = status
        whole = "".join(self._arguments)
        if self.tool.is_custom:
            text = unwrapped(whole)
            self._tell(e.CallDelta, "response.custom_tool_call_input.delta", delta=text)
            self._tell(e.InputDone, "response.custom_tool_call_input.done", input=text)
        else:
            done = "response.function_call_arguments.done"
            self._tell(e.ArgumentsDone, done, arguments=whole)
        self.end()

    def shape(self) -> FunctionCallItem | CustomCallItem:
        """It as it stands."""
        whole = "".join(self._arguments)
        named: dict[str, Any] = {}
        if self.tool.namespace is not None:
            named["namespace"] = self.tool.namespace
        if self.tool.is_custom:
            return CustomCallItem(
                id=self.id,
                type="custom_tool_call",
                status=self.status,
                call_id=self.call_id,
                name=self.tool.name,
                input=unwrapped(whole) if whole else "",
                **named,
            )
        return FunctionCallItem(
            id=self.id,
            type="function_call",
            status=self.status,
            call_id=self.call_id,
            name=self.tool.name,
            arguments=whole,
            **named,
        )


@dataclass(slots=True)
class ServerCall(Growing):
    """A call that the server makes."""

    call: ToolCall
    label: str
    name: str
    approval_request_id: str | None = None
    status: CallStatus = "in_progress"
    _result: str | None = None

    def begin(self) -> None:
        """Tell that it is being made."""
        Growing.begin(self)
        arguments = self.call.arguments
        self._tell(e.McpEvent, "response.mcp_call.in_progress")
        self._tell(e.CallDelta, "response.mcp_call_arguments.delta", delta=arguments)
        self._tell(e.ArgumentsDone, "response.mcp_call_arguments.done", arguments=arguments)

    def close(self, status: str, result: str | None) -> None:
        """It has a result, or never will."""
        self._result = result
        word: Literal["completed", "failed"] = "completed" if status == ToolStatus.COMPLETED else "failed"
        self.status = "incomplete" if result is None else word
        if result is not None:
            self._tell(e.McpEvent, f"response.mcp_call.{word}")
        self.end()

    def shape(self) -> McpCallItem:
        """It as it stands."""
        failed = self.status == "failed"
        return McpCallItem(
            id=self.id,
            type="mcp_call",
            status=self.status,
            server_label=self.label,
            name=self.name,
            arguments=self.call.arguments,
            approval_request_id=self.approval_request_id,
            output=None if failed else self._result,
            error=_error(self._result or "") if failed else None,
        )


@dataclass(slots=True)
class Whole(Growing):
    """An item that comes at once."""

    item: OutputItem

    def shape(self) -> OutputItem:
        """It."""
        return self.item


def _error(text: str) -> McpError:
    return McpError(type="mcp_tool_execution_error", content=[{"type": "text", "text": text}])
