"""A few items in place of a long past, for templates that write new items the same after either. Pure.

Most templates look no further back than to the last turn. Which do is found out by trying, in `looking_back`.
"""

from collections.abc import Sequence

from tenuto.sessions.items import AssistantItem, Item, SystemItem, UserItem


def stand_in(past: Sequence[Item]) -> Sequence[Item]:
    """The system items at the front, the last request, and everything from the last time the model spoke.

    The past itself where nothing can be left out.
    """
    spoke = _last(past, AssistantItem, len(past))
    if spoke is None:
        return past
    systems = next((place for place, item in enumerate(past) if not isinstance(item, SystemItem)), len(past))
    asked = _last(past, UserItem, spoke)
    request = () if asked is None else (past[asked],)
    short = [*past[:systems], *request, *past[spoke:]]
    return short if len(short) < len(past) else past


def _last(items: Sequence[Item], kind: type, before: int) -> int | None:
    return next((place for place in range(before - 1, -1, -1) if isinstance(items[place], kind)), None)
