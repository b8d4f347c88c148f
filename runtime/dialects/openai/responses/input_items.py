"""A conversation's items as lists of them show them. Pure; the way back is `input`'s."""

from collections.abc import Mapping, Sequence
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
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    NoteItem,
    SystemItem,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from tenuto.sessions.parts import Part, parts_at
from tenuto.tools.names import parted


def items_of(items: Sequence[Item], name: str, callables: Mapping[str, ClientTool]) -> list[ListedItem]:
    """Items in their order. `name` makes their ids, `callables` are the client's tools by the model's names."""
    parts = (part for place in range(len(items)) for part in parts_at(items, place))
    return [listed(part, f"{name}i{number:04x}", callables) for number, part in enumerate(parts, 1)]


def listed(part: Part, name: str, callables: Mapping[str, ClientTool]) -> ListedItem:
    """A part of a conversation's items, as an item of its own. `name` makes its id."""
    item = part.item
    match item:
        case SystemItem(text=text):
            return _message("system", [InputPart(type="input_text", text=text)], name)
        case UserItem(text=text, attachments=attachments):
            return _message("user", _parts(text, attachments), name)
        case NoteItem():
            raise AssertionError("a note has no parts")
        case ToolResultItem():
            return _output(item, name, callables)
        case AssistantItem():
            if part.call is not None:
                return _call(part.call, part.result, name, callables)
            return _reasoning(item, name) if part.kind == "reasoning" else _said(item, name)


def _status(item: AssistantItem) -> ItemStatus:
    return "incomplete" if item.incomplete else "completed"


def _reasoning(item: AssistantItem, name: str) -> ReasoningItem:
    thought = [ReasoningText(type="reasoning_text", text=item.reasoning)]
    return ReasoningItem(id=f"rs_{name}", type="reasoning", status=_status(item), summary=[], content=thought)


def _said(item: AssistantItem, name: str) -> MessageItem:
    said = [OutputText(type="output_text", text=item.text, annotations=[], logprobs=[])]
    return MessageItem(id=f"msg_{name}", type="message", role="assistant", status=_status(item), content=said)


def _call(
    call: ToolCall, result: ToolResultItem | None, name: str, callables: Mapping[str, ClientTool]
) -> McpCallItem | CustomCallItem | FunctionCallItem:
    if call.server:
        return _server_call(call, result, name)
    tool = callables.get(call.name) or ClientTool(call.name)
    named: dict[str, Any] = {} if tool.namespace is None else {"namespace": tool.namespace}
    if tool.is_custom:
        return CustomCallItem(
            id=f"ctc_{name}",
            type="custom_tool_call",
            status="completed",
            call_id=call.id,
            name=tool.name,
            input=unwrapped(call.arguments),
            **named,
        )
    return FunctionCallItem(
        id=f"fc_{name}",
        type="function_call",
        status="completed",
        call_id=call.id,
        name=tool.name,
        arguments=call.arguments,
        **named,
    )


def _server_call(call: ToolCall, result: ToolResultItem | None, id: str) -> McpCallItem:
    label, name = parted(call.name)
    error = None
    if result is not None and result.is_error:
        error = McpError(type="mcp_tool_execution_error", content=[{"type": "text", "text": result.text}])
    return McpCallItem(
        id=f"mcp_{id}",
        type="mcp_call",
        status="incomplete" if result is None else "completed" if error is None else "failed",
        server_label=label,
        name=name,
        arguments=call.arguments,
        approval_request_id=None,
        output=None if result is None or error is not None else result.text,
        error=error,
    )


def _output(item: ToolResultItem, name: str, callables: Mapping[str, ClientTool]) -> CallOutputItem:
    tool = callables.get(item.name)
    is_custom = tool is not None and tool.is_custom
    return CallOutputItem(
        id=f"{'ctco' if is_custom else 'fco'}_{name}",
        type="custom_tool_call_output" if is_custom else "function_call_output",
        status="completed",
        call_id=item.call_id,
        output=_parts(item.text, item.attachments) if item.attachments else item.text,
    )


def _message(role: Literal["user", "system"], content: list[InputPart], name: str) -> InputMessageItem:
    return InputMessageItem(id=f"msg_{name}", type="message", role=role, status="completed", content=content)


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
