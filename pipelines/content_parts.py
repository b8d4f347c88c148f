"""Chat templates that read a message's content as a list of parts alone: for which roles, and such messages. Pure.

A text is one part of it, and the images that stand before it are in that part, as in a text that is read as it stands.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolCall, ToolResultItem, UserItem

Places = Callable[[Sequence[Item], Collection[str]], bool]
"""Whether a template has a place for each item of a conversation, where the contents of these roles are lists."""

_USER, _SAID = UserItem("x"), AssistantItem("x")
_CALLED = (_USER, AssistantItem(calls=(ToolCall("call_0", "f", '{"a": "b"}'),)), ToolResultItem("call_0", "f", "x"))
_TALKS: tuple[tuple[str, Sequence[Item]], ...] = (
    ("assistant", (_USER, _SAID, _USER)),
    ("system", (SystemItem("x"), _USER)),
    ("tool", _CALLED),
)


def found_out(places: Places) -> frozenset[str]:
    """The roles whose contents have to be lists, by trying. What is read as it stands is left as it is."""
    roles: frozenset[str] = frozenset()
    for role, talk in (("user", (_USER,)), *_TALKS):
        if not places(talk, roles) and places(talk, roles | {role}):
            roles |= {role}
        elif role == "user":
            break
    return roles


def parted(messages: Sequence[dict[str, Any]], roles: Collection[str]) -> list[dict[str, Any]]:
    """Messages in which the contents of these roles are lists."""
    if not roles:
        return list(messages)
    return [{**one, "content": _parts(one["content"])} if one["role"] in roles else one for one in messages]


def shows_list(text: str) -> bool:
    """Whether a list of parts has been written as such, by a template that takes texts."""
    return "'type': 'text'" in text or '"type": "text"' in text


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
