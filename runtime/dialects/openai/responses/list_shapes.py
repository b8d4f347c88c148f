"""What lists of a conversation's items are, and what is told of one that was deleted. No meaning.

https://platform.openai.com/docs/api-reference/responses/input-items
"""

from typing import Literal

from pydantic import JsonValue

from tenuto.runtime.dialects.openai.responses.shapes import (
    CompactionItem,
    CustomCallItem,
    FunctionCallItem,
    ItemStatus,
    McpCallItem,
    MessageItem,
    ReasoningItem,
    ResponseUsage,
)
from tenuto.runtime.http.shape import Shape


class InputPart(Shape):
    """A part of what was brought: text, an image, sound or a file."""

    type: Literal["input_text", "input_image", "input_audio", "input_file"]
    text: str | None = None
    image_url: str | None = None
    detail: Literal["auto"] | None = None
    input_audio: dict[str, JsonValue] | None = None
    file_data: str | None = None
    file_url: str | None = None


class InputMessageItem(Shape):
    """A message of the user's, or one that instructs."""

    id: str
    type: Literal["message"]
    role: Literal["user", "system"]
    status: ItemStatus
    content: list[InputPart]


class CallOutputItem(Shape):
    """What a client's tool gave."""

    id: str
    type: Literal["function_call_output", "custom_tool_call_output"]
    status: ItemStatus
    call_id: str
    output: str | list[InputPart]


ListedItem = (
    InputMessageItem | MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem | CallOutputItem | McpCallItem
)


class ItemList(Shape):
    """A page of items. With `has_more`, `last_id` is the `after` of the next."""

    object: Literal["list"]
    data: list[ListedItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class CompactedAnswer(Shape):
    """A conversation in less room: the user's messages, and an item that holds a summary of all that was said."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[InputMessageItem | CompactionItem]
    usage: ResponseUsage


class DeletedResponse(Shape):
    """A response is deleted."""

    id: str
    object: Literal["response"]
    deleted: bool
