"""Where rounds and turns end among a session's items, and which calls still wait. Pure."""

from collections.abc import Sequence

from tenuto.sessions.items import AssistantItem, Item, NoteItem, ToolCall, ToolResultItem


def last_round(items: Sequence[Item]) -> int:
    """Where the model spoke last; how many items there are where it has not."""
    places = range(len(items) - 1, -1, -1)
    return next((place for place in places if isinstance(items[place], AssistantItem)), len(items))


def outstanding(items: Sequence[Item]) -> list[ToolCall]:
    """The calls of the last round that have no result yet, the server's too, in call order."""
    for index in range(len(items) - 1, -1, -1):
        match items[index]:
            case AssistantItem(calls=calls):
                answered = {item.call_id for item in items[index + 1 :] if isinstance(item, ToolResultItem)}
                return [call for call in calls if call.id not in answered]
            case ToolResultItem():
                continue
            case _:
                return []
    return []


def completed(items: Sequence[Item], at: int) -> int:
    """How many of the first `at` items are complete: the last round has its results, was not cut, and has no note to
    go on with."""
    while at:
        last = next((i for i in range(at - 1, -1, -1) if isinstance(items[i], AssistantItem)), None)
        if last is None:
            return at
        item = items[last]
        cut = isinstance(item, AssistantItem) and item.incomplete and last == at - 1
        if not cut and not outstanding(items[:at]) and not isinstance(items[at - 1], NoteItem):
            return at
        at = last
    return 0


def ends_turn(items: Sequence[Item], place: int) -> bool:
    """Whether the model has ended a turn with this item, by itself, and was not told to go on."""
    item, follows = items[place], place + 1 < len(items) and isinstance(items[place + 1], NoteItem)
    if not isinstance(item, AssistantItem) or item.source is not None:
        return False
    return not item.calls and not item.incomplete and not follows


def last_completed_turn(items: Sequence[Item]) -> int:
    """How many items there are up to the end of the last turn that the model has ended by itself."""
    return next((index + 1 for index in range(len(items) - 1, -1, -1) if ends_turn(items, index)), 0)
