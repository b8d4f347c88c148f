"""Items and tools as Hugging Face's chat templates expect them: message dictionaries, with placeholders in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from tenuto.pipelines.placeholders import Placeholder, PlaceholderTable
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    NoteItem,
    SystemItem,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)


def _reads_text_only(_: Attachment) -> str | None:
    return "the model reads text only"


@dataclass(frozen=True, slots=True)
class Sight:
    """What a model sees of what messages carry. `hidden` says in words why it does not see something, or gives None."""

    hidden: Callable[[Attachment], str | None] = _reads_text_only
    in_results: bool = True
    """Whether the template has a place for images in the result of a tool."""

    def of_result(self, attachment: Attachment) -> str | None:
        """Why it does not see something in a tool's result."""
        why = self.hidden(attachment)
        return why or (None if self.in_results else "the model's chat template has no place for images here")


TEXT_ONLY = Sight()


def message_fields(
    table: PlaceholderTable, index: int, item: Item, *, mapped: bool, sight: Sight = TEXT_ONLY
) -> dict[str, Any]:
    """An item in the form that templates expect, with placeholders for what others wrote."""
    match item:
        case SystemItem():
            return {"role": "system", "content": table.placeholder(item.text, index) if item.text else ""}
        case UserItem():
            return {"role": "user", "content": _content(table, index, item.text, item.attachments, sight.hidden)}
        case NoteItem():
            return {"role": "user", "content": table.placeholder(item.text, index)}
        case AssistantItem():
            return _assistant(table, index, item, mapped=mapped)
        case ToolResultItem():
            return {
                "role": "tool",
                "name": table.placeholder(item.name, index),
                "tool_call_id": table.placeholder(item.call_id, index),
                "content": _result(table, index, item, sight),
            }
        case _:
            assert_never(item)


def _result(table: PlaceholderTable, index: int, item: ToolResultItem, sight: Sight) -> Placeholder:
    """Where the server called the tool, the text names what came beside it."""
    attachments = item.attachments
    if item.server:
        attachments = tuple(one for one in attachments if sight.of_result(one) is None)
    return _content(table, index, item.model_text, attachments, sight.of_result)


def _content(
    table: PlaceholderTable,
    index: int,
    text: str,
    attachments: Sequence[Attachment],
    hidden: Callable[[Attachment], str | None],
) -> Placeholder:
    """The images that the model sees, then the text, with a note for each thing that it does not see."""
    reasons = [(one, hidden(one)) for one in attachments]
    notes = (f"[{one.kind}: {one.mime_type}, not shown: {why}]" for one, why in reasons if why is not None)
    read = "\n".join((*((text,) if text else ()), *notes)) if attachments else text
    said = table.placeholder(read, index)
    images = [table.image(one, index) for one, why in reasons if why is None]
    return table.joined(*images, said) if images else said


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
