"""Conversations as messages that a chat template takes: what it refuses as it stands is folded into what it takes.

Templates differ in whether system messages may be several or come late, and in whether a user may speak twice in a
row. What a template takes is written where it stands. Else system messages at the front are one, a later one is a note
in a user's message, and messages of users that follow each other are one. Each item keeps a place of its own, and what
has been written stays as it is whatever follows. No template here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tenuto.pipelines.placeholders import PlaceholderTable
from tenuto.sessions.items import AssistantItem, Item, SystemItem, UserItem

_BREAK = "\n\n"
_NOTE = "[system message]\n"


@dataclass(frozen=True, slots=True)
class Takes:
    """What a template takes as it stands: a system message at the front, several of them there, one that comes later,
    and two messages of the user in a row."""

    system: bool = True
    systems: bool = True
    late: bool = True
    users: bool = True


def found_out(writes: Callable[[Sequence[Item]], bool]) -> Takes:
    """What a template takes, by trying. `writes` tells whether it has a place for each item of a conversation."""
    system, user, assistant = SystemItem("s"), UserItem("u"), AssistantItem("a")
    late = ((user, system), (system, user, assistant, system, user), (user, assistant, user, system))
    return Takes(
        system=writes((system, user)),
        systems=writes((system, system, user)),
        late=all(writes(items) for items in late),
        users=writes((user, user)),
    )


def folded(table: PlaceholderTable, messages: Sequence[dict[str, Any]], takes: Takes) -> list[dict[str, Any]]:
    """Messages as a template takes them that takes so much."""
    leading = sum(1 for _ in takewhile(lambda message: message["role"] == "system", messages))
    done: list[dict[str, Any]] = []
    for index, each in enumerate(messages):
        message = each
        if message["role"] == "system" and not (takes.system if index < leading else takes.late):
            message = {"role": "user", "content": table.joined(_NOTE, message["content"])}
        if done and _is_one(done[-1]["role"], message["role"], takes):
            texts = [text for text in (done[-1]["content"], message["content"]) if text]
            done[-1]["content"] = table.joined(*_parted(texts)) if texts else ""
        else:
            done.append(message)
    return done


def _is_one(before: str, role: str, takes: Takes) -> bool:
    """Whether two messages that follow each other must be one."""
    return before == role and ((role == "user" and not takes.users) or (role == "system" and not takes.systems))


def _parted(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in (_BREAK, text)][1:]
