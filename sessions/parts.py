"""The parts of a session's items that have names: each can be asked for, and taken away. Pure.

An item of the model's has several: what it thought, what it said, and each call. A part is named by what it says and by
its item's number, which is its place among all items that the conversation ever had. So a name means the same part for
ever, also after others were taken away; one whose items were cut has none.
"""

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tenuto.sessions.items import AssistantItem, Item, NoteItem, SystemItem, ToolCall, ToolResultItem, UserItem
from tenuto.sessions.session import Session

_DIGITS = 24
_NAME = re.compile(f"[0-9a-f]{{{_DIGITS}}}([0-9a-f]{{1,8}})")


@dataclass(frozen=True, slots=True)
class Part:
    """`result`: of a call that the server made, once it is there."""

    kind: Literal["message", "reasoning", "call", "result"]
    item: Item
    call: ToolCall | None = None
    result: ToolResultItem | None = None


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A part of a session, and its name there."""

    name: str
    part: Part


def parts_at(items: Sequence[Item], place: int) -> list[Part]:
    """The parts of one item, in their order. The result of a server's call is a part of the call."""
    item = items[place]
    match item:
        case SystemItem() | UserItem():
            return [Part("message", item)]
        case NoteItem():
            return []
        case ToolResultItem(server=server):
            return [] if server else [Part("result", item)]
        case AssistantItem(text=text, reasoning=reasoning, calls=calls):
            said = [Part("reasoning", item)] if reasoning else []
            said += [Part("message", item)] if text else []
            return [*said, *(Part("call", item, call, _result(items, place, call)) for call in calls)]


def named_parts(session: Session, place: int) -> list[NamedPart]:
    """The parts of one item with their names."""
    if place < session.instructed:
        return []
    number = number_of(session, place)
    return [NamedPart(_name(session.uid, number, part), part) for part in parts_at(session.items, place)]


def place_named(session: Session, name: str) -> int | None:
    """The place of the item that has a part of this name, if any has."""
    form = _NAME.fullmatch(name)
    return None if form is None else _place_of(session, int(form[1], 16))


def find(session: Session, name: str) -> tuple[int, Part] | None:
    """The place of an item, and the part of it that has this name."""
    place = place_named(session, name)
    parts = [] if place is None else named_parts(session, place)
    return next(((place, one.part) for one in parts if place is not None and one.name == name), None)


def number_of(session: Session, place: int) -> int:
    """The number of the item at a place."""
    number = place - session.instructed
    for removed in session.removed:
        if removed > number:
            break
        number += 1
    return number


def _place_of(session: Session, number: int) -> int | None:
    before = bisect_left(session.removed, number)
    if before < len(session.removed) and session.removed[before] == number:
        return None
    place = number - before + session.instructed
    return place if place < len(session.items) else None


def without(items: Sequence[Item], place: int, part: Part) -> tuple[list[Item], list[int]]:
    """The items less a part, and the places of those that are gone. A call goes with its result, and this with it."""
    left: dict[int, Item | None] = {place: None}
    item = items[place]
    call = part.call
    if isinstance(item, ToolResultItem):
        calling = next((at for at in range(place - 1, -1, -1) if _call(items[at], item.call_id) is not None), None)
        call = None if calling is None else _call(items[calling], item.call_id)
        if calling is not None and call is not None:
            left[calling] = _less(items[calling], "call", call)
    elif isinstance(item, AssistantItem):
        left[place] = _less(item, part.kind, call)
        answers = _result_place(items, place, call)
        if answers is not None:
            left[answers] = None
    kept = [left.get(at, one) for at, one in enumerate(items)]
    return [one for one in kept if one is not None], [at for at, one in left.items() if one is None]


def _less(item: Item, kind: str, call: ToolCall | None) -> Item | None:
    assert isinstance(item, AssistantItem)
    match kind:
        case "message":
            item = replace(item, text="")
        case "reasoning":
            item = replace(item, reasoning="")
        case _:
            item = replace(item, calls=tuple(one for one in item.calls if one is not call))
    return item if item.text or item.reasoning or item.calls else None


def _call(item: Item, id: str) -> ToolCall | None:
    calls = item.calls if isinstance(item, AssistantItem) else ()
    return next((call for call in calls if call.id == id), None)


def _result(items: Sequence[Item], place: int, call: ToolCall) -> ToolResultItem | None:
    """The result of a call that the server made."""
    found = _result_place(items, place, call) if call.server else None
    result = None if found is None else items[found]
    assert result is None or isinstance(result, ToolResultItem)
    return result


def _result_place(items: Sequence[Item], place: int, call: ToolCall | None) -> int | None:
    """Where the result of a call of the round at `place` stands: before anybody else has the word."""
    for at in range(place + 1, len(items)):
        item = items[at]
        if not isinstance(item, ToolResultItem):
            break
        if call is not None and item.call_id == call.id:
            return at
    return None


def _name(uid: str, number: int, part: Part) -> str:
    item, said = part.item, part.item.text
    carried: list[object] = []
    if part.call is not None:
        carried = [part.call.id, part.call.name, part.call.arguments]
    elif isinstance(item, AssistantItem):
        said = item.reasoning if part.kind == "reasoning" else item.text
    elif isinstance(item, UserItem | ToolResultItem):
        carried = [[one.mime_type, one.data, one.uri] for one in item.attachments]
    content = json.dumps([uid, number, item.kind, part.kind, said if part.call is None else "", carried])
    return f"{hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]}{number:x}"
