"""A session as a model or a person reads it: what was said, called and answered, without tokens. Pure.

It is told from its end backwards, in pages that a client's limits for one message take.
"""

from itertools import islice
from typing import Any

from tenuto.sessions.items import AssistantItem, Attachment, Item, ToolResultItem, UserItem
from tenuto.sessions.session import Session
from tenuto.tools.host.results import shortened

PAGE = 100
MOST_ITEMS = 500
_MOST_CHARACTERS = 100_000
"""Of one text: what is over it is left out in its middle."""
_PAGE_CHARACTERS = 400_000


def transcript(session: Session, *, before: int | None = None, limit: int = PAGE) -> dict[str, Any]:
    """The last items, or the last of those with a smaller index than `before`, as many as fit a page but one at least.

    `first` is the index of the first of them: there are earlier ones where it is not 0.
    """
    end = len(session.items) if before is None else min(before, len(session.items))
    told: list[dict[str, Any]] = []
    room = _PAGE_CHARACTERS
    for index in islice(range(end - 1, -1, -1), limit):
        item = _told(index, session.items[index])
        room -= _characters(item)
        if told and room < 0:
            break
        told.append(item)
    return {
        "id": session.id,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "num_items": len(session.items),
        "first": end - len(told),
        "items": told[::-1],
    }


def _told(index: int, item: Item) -> dict[str, Any]:
    told: dict[str, Any] = {"index": index, "kind": item.kind, "text": shortened(item.text, _MOST_CHARACTERS)}
    match item:
        case UserItem(attachments=attachments):
            told |= _attached(attachments)
        case AssistantItem():
            if item.reasoning:
                told["reasoning"] = shortened(item.reasoning, _MOST_CHARACTERS)
            if item.calls:
                told["calls"] = [
                    {"id": call.id, "name": call.name, "arguments": shortened(call.arguments, _MOST_CHARACTERS)}
                    for call in item.calls
                ]
            if item.incomplete:
                told["incomplete"] = True
        case ToolResultItem():
            told |= {
                "call_id": item.call_id,
                "name": item.name,
                "is_error": item.is_error,
                **_attached(item.attachments),
            }
        case _:
            pass
    return told


def _attached(attachments: tuple[Attachment, ...]) -> dict[str, Any]:
    """What there is besides text, by its kind and size."""
    told = [
        {"kind": one.kind, "mime_type": one.mime_type, **({"uri": one.uri} if one.data is None else _size(one.data))}
        for one in attachments
    ]
    return {"attachments": told} if told else {}


def _size(base64_text: str) -> dict[str, int]:
    return {"bytes": len(base64_text) * 3 // 4 - base64_text[-2:].count("=")}


def _characters(item: dict[str, Any]) -> int:
    calls = sum(len(call["arguments"]) for call in item.get("calls", ()))
    return len(item["text"]) + len(item.get("reasoning", "")) + calls
