"""Items and tools as Hugging Face's chat templates expect them: message dictionaries, with placeholders in them."""

from typing import Any, assert_never

from tenuto.errors import TemplateFailed
from tenuto.pipelines.placeholders import PlaceholderTable
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, ToolSpec, UserItem


def message_fields(table: PlaceholderTable, index: int, item: Item, *, mapped: bool) -> dict[str, Any]:
    """An item in the form that templates expect, with placeholders for what others wrote.

    Raises:
        TemplateFailed: the item carries what no template of ours has a place for.
    """
    match item:
        case SystemItem():
            return {"role": "system", "content": table.placeholder(item.text, index) if item.text else ""}
        case UserItem(attachments=(first, *_)):
            raise TemplateFailed(
                f"the model cannot read the {first.kind} in the user message at item {index}", "messages"
            )
        case UserItem():
            return {"role": "user", "content": table.placeholder(item.text, index)}
        case AssistantItem():
            return _assistant(table, index, item, mapped=mapped)
        case ToolResultItem():
            return {
                "role": "tool",
                "name": table.placeholder(item.name, index),
                "tool_call_id": table.placeholder(item.call_id, index),
                "content": table.placeholder(item.model_text, index),
            }
        case _:
            assert_never(item)


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
