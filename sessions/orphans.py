"""Results whose calls a client has dropped from its history, as notes that a user's message can hold. Pure.

A template has a place for a result only after its call. What becomes of a result depends on the items before it alone,
so a client that repeats its history repeats the notes.
"""

from collections.abc import Iterable

from tenuto.sessions.items import AssistantItem, Item, ToolResultItem, UserItem
from tenuto.sessions.open_calls import OpenCalls


def adopted(items: Iterable[Item]) -> list[Item]:
    """The items of a whole history with a note for the results without a call, after all results beside them."""
    called: set[str] = set()
    waiting = OpenCalls()
    orphans: list[ToolResultItem] = []
    done: list[Item] = []
    for item in items:
        if isinstance(item, ToolResultItem):
            answered = waiting.take(item)
            if answered is None and not (item.call_id and item.call_id in called):
                orphans.append(item)
                continue
        if orphans and not isinstance(item, ToolResultItem):
            done.append(_note(orphans))
            orphans = []
        if isinstance(item, AssistantItem):
            called.update(call.id for call in item.calls)
            waiting = OpenCalls(item.calls)
        done.append(item)
    return [*done, _note(orphans)] if orphans else done


def _note(orphans: Iterable[ToolResultItem]) -> UserItem:
    texts = (f"[result of an earlier call{f' of {one.name}' if one.name else ''}]\n{one.text}" for one in orphans)
    attachments = (attachment for one in orphans for attachment in one.attachments)
    return UserItem("\n\n".join(texts), tuple(attachments))
