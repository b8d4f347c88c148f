"""A session as a model or a person reads it: what was said, called and answered, without tokens. Pure.

It is told from its end backwards, in pages that a client's limits for one message take.
"""

from itertools import islice
from typing import Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.sessions.items import (
    AssistantItem,
    Attachment,
    Item,
    McpPrompt,
    McpResource,
    ToolResultItem,
    UserItem,
    source_of,
)
from tenuto.sessions.session import Session
from tenuto.tools.host.results import shortened

PAGE = 100
MOST_ITEMS = 500
_MOST_CHARACTERS = 100_000
"""Of one text: what is over it is left out in its middle."""
_PAGE_CHARACTERS = 400_000


class AttachmentAnswer(Shape):
    """What there is besides text, by its size or where it lies."""

    kind: Literal["image", "audio", "file"]
    mime_type: str
    bytes: int = 0
    uri: str | None = None


class CallAnswer(Shape):
    """A tool call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class ItemAnswer(Shape):
    """An item. `index` is its place in the session."""

    index: int
    kind: Literal["system", "user", "note", "assistant", "tool_result"]
    text: str
    reasoning: str = ""
    calls: list[CallAnswer] = Field(default_factory=list)
    incomplete: bool = Field(False, description="It was cut before its end.")
    call_id: str = Field("", description="The call that a tool's result answers.")
    name: str = Field("", description="The tool whose result it is.")
    is_error: bool = False
    attachments: list[AttachmentAnswer] = Field(default_factory=list)
    source: McpResource | McpPrompt | None = Field(None, description="What of an MCP server it is.")


class TranscriptAnswer(Shape):
    """A page of a session's items."""

    id: str
    object: Literal["transcript"]
    created_at: float
    updated_at: float
    num_items: int
    first: int = Field(description="The index of the first item here: there are earlier ones where it is not 0.")
    items: list[ItemAnswer]


def transcript_answer(session: Session, *, before: int | None = None, limit: int = PAGE) -> TranscriptAnswer:
    """The last items, or the last of those with a smaller index than `before`: as many as fit a page, but one at
    least."""
    end = len(session.items) if before is None else min(before, len(session.items))
    told: list[ItemAnswer] = []
    room = _PAGE_CHARACTERS
    for index in islice(range(end - 1, -1, -1), limit):
        item = _told(index, session.items[index])
        room -= _characters(item)
        if told and room < 0:
            break
        told.append(item)
    return TranscriptAnswer(
        id=session.id,
        object="transcript",
        created_at=session.created_at,
        updated_at=session.updated_at,
        num_items=len(session.items),
        first=end - len(told),
        items=told[::-1],
    )


def _told(index: int, item: Item) -> ItemAnswer:
    plain = ItemAnswer(index=index, kind=item.kind, text=_shortened(item.text))
    if (source := source_of(item)) is not None:
        plain = plain.model_copy(update={"source": source})
    match item:
        case UserItem(attachments=attachments) if attachments:
            return plain.model_copy(update={"attachments": _attached(attachments)})
        case AssistantItem():
            calls = [CallAnswer(id=one.id, name=one.name, arguments=_shortened(one.arguments)) for one in item.calls]
            said = {"reasoning": _shortened(item.reasoning), "calls": calls, "incomplete": item.incomplete}
            return plain.model_copy(update={name: value for name, value in said.items() if value})
        case ToolResultItem():
            attached = {"attachments": _attached(item.attachments)} if item.attachments else {}
            result = {"call_id": item.call_id, "name": item.name, "is_error": item.is_error}
            return plain.model_copy(update={**result, **attached})
        case _:
            return plain


def _attached(attachments: tuple[Attachment, ...]) -> list[AttachmentAnswer]:
    return [
        AttachmentAnswer(kind=one.kind, mime_type=one.mime_type, uri=one.uri)
        if one.data is None
        else AttachmentAnswer(kind=one.kind, mime_type=one.mime_type, bytes=_size(one.data))
        for one in attachments
    ]


def _size(base64_text: str) -> int:
    return len(base64_text) * 3 // 4 - base64_text[-2:].count("=")


def _characters(item: ItemAnswer) -> int:
    return len(item.text) + len(item.reasoning) + sum(len(call.arguments) for call in item.calls)


def _shortened(text: str) -> str:
    return shortened(text, _MOST_CHARACTERS)
