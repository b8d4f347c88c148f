"""A few items in place of a long past, for templates that write new items the same after either. Pure.

Most templates look no further back than to the last turn. Which do is found out by trying, in `looking_back`.
"""

from collections.abc import Callable, Sequence

from tenuto.sessions.items import AssistantItem, Item, NoteItem, SystemItem, UserItem


def stand_in(past: Sequence[Item]) -> Sequence[Item]:
    """The system items at the front, the last request, and everything from the last time the model spoke.

    An answer between these two is kept with them: templates that want roles to alternate count it, and not the round of
    calls after it. The past itself where nothing can be left out.
    """
    spoke = _last(past, _is_of_the_model, len(past))
    if spoke is None:
        return past
    systems = next((place for place, item in enumerate(past) if not isinstance(item, SystemItem)), len(past))
    asked = _last(past, _is_a_request, spoke)
    if asked is None:
        request = _noted(past, systems, spoke)
    else:
        answered = _last(past, _is_an_answer, spoke, asked)
        request = [past[place] for place in (asked, answered) if place is not None]
    short = [*past[:systems], *request, *past[spoke:]]
    return short if len(short) < len(past) else past


def _noted(past: Sequence[Item], begin: int, end: int) -> Sequence[Item]:
    """The last system item of a past in which nobody asked: a request for templates that take none so late.

    With the round before it, for at the front it would be no request.
    """
    noted = _last(past, _is_a_system_message, end, begin)
    if noted is None:
        return ()
    return past[_last(past, _is_of_the_model, noted, begin) or begin : noted + 1]


def _is_of_the_model(item: Item) -> bool:
    return isinstance(item, AssistantItem)


def _is_a_request(item: Item) -> bool:
    return isinstance(item, UserItem | NoteItem)


def _is_a_system_message(item: Item) -> bool:
    return isinstance(item, SystemItem)


def _is_an_answer(item: Item) -> bool:
    return isinstance(item, AssistantItem) and not item.calls


def _last(items: Sequence[Item], fits: Callable[[Item], bool], before: int, since: int = 0) -> int | None:
    return next((place for place in range(before - 1, since - 1, -1) if fits(items[place])), None)
