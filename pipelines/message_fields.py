"""Items and tools as Hugging Face's chat templates expect them: message dictionaries, with placeholders in them."""

from collections.abc import Sequence
from typing import Any, assert_never

from tenuto.pipelines.placeholders import PlaceholderTable
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    SystemItem,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)


def message_fields(table: PlaceholderTable, index: int, item: Item, *, mapped: bool) -> dict[str, Any]:
    """An item in the form that templates expect, with placeholders for what others wrote."""
    match item:
        case SystemItem():
            return {"role": "system", "content": table.placeholder(item.text, index) if item.text else ""}
        case UserItem():
            return {"role": "user", "content": table.placeholder(_read(item.text, item.attachments), index)}
        case AssistantItem():
            return _assistant(table, index, item, mapped=mapped)
        case ToolResultItem():
            return {
                "role": "tool",
                "name": table.placeholder(item.name, index),
                "tool_call_id": table.placeholder(item.call_id, index),
                "content": table.placeholder(_result(item), index),
            }
        case _:
            assert_never(item)


def _result(item: ToolResultItem) -> str:
    """Where the server called the tool, the text names what came beside it."""
    return item.model_text if item.server else _read(item.model_text, item.attachments)


def _read(text: str, attachments: Sequence[Attachment]) -> str:
    """A text with a note for each thing beside it: no model of ours reads these yet."""
    notes = (f"[{one.kind}: {one.mime_type}, not shown: the model reads text only]" for one in attachments)
    return "\n".join((*((text,) if text else ()), *notes)) if attachments else text


def _assistant(table: PlaceholderTable, index: int, item: AssistantItem, *, mapped: bool) -> dict[str, Any]:
    # Templates test the truth of a content that comes with calls; without calls it must have a place in any case.
    content = table.placeholder(item.text, index) if item.text or not item.calls else ""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if item.reasoning:
        message["reasoning_content"] = table.placeholder(item.reasoning, index)
    if item.calls:
        message["tool_calls"] = [_call(table, index, call, mapped=mapped) for call in item.calls]
    return message


def _call(table: PlaceholderTable, index: int, call: ToolCall, *, mapped: bool) -> dict[str, Any]:
    text = call.arguments
    arguments = table.arguments(text, index) if mapped else table.placeholder(text, index, raw=True)
    function = {"name": table.placeholder(call.name, index), "arguments": arguments}
    return {"id": table.placeholder(call.id, index), "type": "function", "function": function}


def tool_fields(tool: ToolSpec, table: PlaceholderTable | None = None) -> dict[str, Any]:
    """A tool in the form that templates expect; a tool's own text is content too."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if table is not None:
        function = {key: table.fill(value, None) for key, value in function.items()}
    return {"type": "function", "function": function}
