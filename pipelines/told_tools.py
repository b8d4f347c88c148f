"""Tools, calls and results as plain messages, for a model whose chat template knows none of them.

The tools and how to call them stand in the system message, calls in the text of the model's turns, and results in
messages of the user. The tags are template text, so that each is the marker that it is in the vocabulary, if it is one;
what others wrote is content. No template here.
"""

import json
from collections.abc import Sequence
from typing import Any

from tenuto.pipelines.formats.generic import CLOSER, OPENER
from tenuto.pipelines.message_fields import Sight, message_fields, tool_fields
from tenuto.pipelines.placeholders import PlaceholderTable, to_json
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, ToolSpec

_BEFORE_TOOLS = """\
You can call tools. Each of them is described by a line of JSON with its name and the JSON schema of its arguments:
<tools>
"""
_AFTER_TOOLS = f"""
</tools>
To call a tool, write its name and its arguments as one JSON object, between tags as these:
{OPENER}{{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}{CLOSER}
Several calls may follow each other. End your turn after the last of them: the next message has their results between \
<tool_response> and </tool_response>, in the same order. Call a tool only where it helps; else answer in plain text."""
_RESULT_OPEN, _NAME_CLOSE, _RESULT_CLOSE = "<tool_response>\n", ":\n", "\n</tool_response>"
_BREAK = "\n\n"

HOW = "\n".join((_BEFORE_TOOLS, _AFTER_TOOLS, _RESULT_OPEN, _NAME_CLOSE, _RESULT_CLOSE))
"""All that is told whatever the tools are: with another text, a conversation has other tokens."""


def told(
    table: PlaceholderTable, items: Sequence[Item], tools: Sequence[ToolSpec], sight: Sight
) -> list[dict[str, Any]]:
    """The items as messages with no tools in them but what is said of them; the tools at the end of the instructions at
    the front."""
    messages = [_message(table, index, item, sight) for index, item in enumerate(items)]
    if not tools:
        return messages
    leading = next((place for place, each in enumerate(messages) if each["role"] != "system"), len(messages))
    if not leading:
        return [{"role": "system", "content": _instructions(table, tools)}, *messages]
    last = messages[leading - 1]
    before = [last["content"], _BREAK] if last["content"] else []
    last["content"] = table.joined(*before, _instructions(table, tools), _end(table, leading - 1))
    return messages


def _instructions(table: PlaceholderTable, tools: Sequence[ToolSpec]) -> str:
    lines = [table.placeholder(to_json(tool_fields(tool)["function"]), None) for tool in tools]
    parts = [part for line in lines for part in ("\n", line)][1:]
    return table.joined(_BEFORE_TOOLS, *parts, _AFTER_TOOLS)


def _message(table: PlaceholderTable, index: int, item: Item, sight: Sight) -> dict[str, Any]:
    message = message_fields(table, index, item, mapped=False, sight=sight)
    if isinstance(item, ToolResultItem):
        name, text = message["name"], message["content"]
        content = table.joined(_RESULT_OPEN, name, _NAME_CLOSE, text, _RESULT_CLOSE, _end(table, index))
        return {"role": "user", "content": content}
    if isinstance(item, AssistantItem) and item.calls:
        del message["tool_calls"]
        written = [_call(table, index, call) for call in item.calls]
        parts = [part for text in (message["content"], *written) if text for part in ("\n", text)][1:]
        message["content"] = table.joined(*parts, _end(table, index))
    return message


def _end(table: PlaceholderTable, index: int) -> str:
    """Nothing, which ends an item's content: what stands before it is a part of the item."""
    return table.placeholder("", index)


def _call(table: PlaceholderTable, index: int, call: ToolCall) -> str:
    name = table.placeholder(json.dumps(call.name, ensure_ascii=False), index)
    arguments = table.placeholder(call.arguments, index)
    return table.joined(OPENER, '{"name": ', name, ', "arguments": ', arguments, "}", CLOSER)
