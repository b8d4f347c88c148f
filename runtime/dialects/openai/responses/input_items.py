"""A conversation's items as lists of them show them. Pure; the way back is `input`'s."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import JsonValue

from tenuto.runtime.dialects.openai.responses.callables import ClientTool, unwrapped
from tenuto.runtime.dialects.openai.responses.list_shapes import (
    CallOutputItem,
    InputMessageItem,
    InputPart,
    ListedItem,
)
from tenuto.runtime.dialects.openai.responses.shapes import (
    CustomCallItem,
    FunctionCallItem,
    ItemStatus,
    McpCallItem,
    McpError,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
)
from tenuto.sessions.items import AssistantItem, Attachment, Item, SystemItem, ToolCall, ToolResultItem, UserItem
from tenuto.tools.names import SEPARATOR


def items_of(items: Sequence[Item], name: str, callables: Mapping[str, ClientTool]) -> list[ListedItem]:
    """Items in their order. `name` makes their ids, `callables` are the client's tools by the model's names."""
    return [*_Listing(items, name, callables).all()]


class _Listing:
    def __init__(self, items: Sequence[Item], name: str, callables: Mapping[str, ClientTool]) -> None:
        self._items, self._name, self._callables = items, name, callables
        self._custom: set[str] = set()
        """The ids of the calls of custom tools."""
        self._number = 0

    def all(self) -> Iterator[ListedItem]:
        """All of them."""
        for place, item in enumerate(self._items):
            match item:
                case SystemItem(text=text):
                    yield self._message("system", [InputPart(type="input_text", text=text)])
                case UserItem():
                    yield self._message("user", _parts(item.text, item.attachments))
                case AssistantItem():
                    yield from self._said(item, self._items[place + 1 :])
                case ToolResultItem(server=False):
                    yield self._output(item)
                case ToolResultItem():
                    pass  # it stands with its call

    def _said(self, item: AssistantItem, after: Sequence[Item]) -> Iterator[ListedItem]:
        status: ItemStatus = "incomplete" if item.incomplete else "completed"
        if item.reasoning:
            thought = [ReasoningText(type="reasoning_text", text=item.reasoning)]
            yield ReasoningItem(id=self._id("rs"), type="reasoning", status=status, summary=[], content=thought)
        if item.text:
            said = [OutputText(type="output_text", text=item.text, annotations=[], logprobs=[])]
            yield MessageItem(id=self._id("msg"), type="message", role="assistant", status=status, content=said)
        for call in item.calls:
            yield self._server_call(call, after) if call.server else self._call(call)

    def _call(self, call: ToolCall) -> ListedItem:
        tool = self._callables.get(call.name) or ClientTool(call.name)
        named: dict[str, Any] = {} if tool.namespace is None else {"namespace": tool.namespace}
        if tool.is_custom:
            self._custom.add(call.id)
            return CustomCallItem(
                id=self._id("ctc"),
                type="custom_tool_call",
                status="completed",
                call_id=call.id,
                name=tool.name,
                input=unwrapped(call.arguments),
                **named,
            )
        return FunctionCallItem(
            id=self._id("fc"),
            type="function_call",
            status="completed",
            call_id=call.id,
            name=tool.name,
            arguments=call.arguments,
            **named,
        )

    def _server_call(self, call: ToolCall, after: Sequence[Item]) -> ListedItem:
        results = (one for one in after if isinstance(one, ToolResultItem) and one.call_id == call.id)
        result = next(results, None)
        label, _, name = call.name.partition(SEPARATOR)
        error = None
        if result is not None and result.is_error:
            error = McpError(type="mcp_tool_execution_error", content=[{"type": "text", "text": result.text}])
        return McpCallItem(
            id=self._id("mcp"),
            type="mcp_call",
            status="incomplete" if result is None else "completed" if error is None else "failed",
            server_label=label,
            name=name,
            arguments=call.arguments,
            approval_request_id=None,
            output=None if result is None or error is not None else result.text,
            error=error,
        )

    def _output(self, item: ToolResultItem) -> ListedItem:
        tool = self._callables.get(item.name)
        is_custom = item.call_id in self._custom or (tool is not None and tool.is_custom)
        return CallOutputItem(
            id=self._id("ctco" if is_custom else "fco"),
            type="custom_tool_call_output" if is_custom else "function_call_output",
            status="completed",
            call_id=item.call_id,
            output=_parts(item.text, item.attachments) if item.attachments else item.text,
        )

    def _message(self, role: Literal["user", "system"], content: list[InputPart]) -> ListedItem:
        return InputMessageItem(id=self._id("msg"), type="message", role=role, status="completed", content=content)

    def _id(self, kind: str) -> str:
        self._number += 1
        return f"{kind}_{self._name}i{self._number:04x}"


def _parts(text: str, attachments: Sequence[Attachment]) -> list[InputPart]:
    said = [InputPart(type="input_text", text=text)] if text or not attachments else []
    return [*said, *map(_carried, attachments)]


def _carried(one: Attachment) -> InputPart:
    address = one.uri or f"data:{one.mime_type};base64,{one.data}"
    match one.kind:
        case "image":
            return InputPart(type="input_image", image_url=address, detail="auto")
        case "audio":
            sound: dict[str, JsonValue] = {"data": one.data, "format": one.mime_type.partition("/")[2]}
            return InputPart(type="input_audio", input_audio=sound)
        case "file" if one.uri is not None:
            return InputPart(type="input_file", file_url=address)
        case "file":
            return InputPart(type="input_file", file_data=address)
