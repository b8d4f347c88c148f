"""How a request's items join a session's: appended, or spliced as a full history. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from tenuto.errors import InvalidRequest
from tenuto.sessions.items import AssistantItem, Item, SystemItem, ToolResultItem, UserItem
from tenuto.sessions.open_calls import identified
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.rounds import last_round, outstanding
from tenuto.sessions.visible import VisibleHistory, canonical, difference


@dataclass(frozen=True, slots=True)
class Splice:
    """The decision: keep the session's first `keep` items, then add `new`.

    `miss_reason` names the first visible item that differs, counted from 0; None where everything was kept. `is_whole`:
    the request is the whole history.
    """

    keep: int
    new: tuple[Item, ...]
    miss_reason: str | None = None
    is_whole: bool = field(default=False, compare=False)


def plan(mode: str, session: Sequence[Item], history: VisibleHistory, request: RequestItems) -> Splice:
    """Decide for `mode` `auto`, `append` or `replace` how the request's items join the session's; `history` is its own.

    `auto`: a body that holds an assistant item, or any body where the session has none, is a full history; a body
    without one is appended.

    Raises:
        InvalidRequest: an appended body changes the system item, a result belongs to no call, or there is nothing to
            answer.
    """
    full = _has_assistant(request.items) or not _has_assistant(session)
    if mode == "append" or (mode == "auto" and not full):
        decision = append(session, request.items)
    else:
        decision = splice(session, history, request)
    _expect_question(session, decision)
    return decision


def _expect_question(session: Sequence[Item], decision: Splice) -> None:
    last = decision.new[-1] if decision.new else session[decision.keep - 1] if decision.keep else None
    if last is None or (not decision.new and not isinstance(last, UserItem | ToolResultItem)):
        raise InvalidRequest("nothing to answer: the last message must be from a user or a tool", "messages")


def append(session: Sequence[Item], request: Sequence[Item]) -> Splice:
    """Add the request's items at the end. A system item that repeats the session's is left out.

    Raises:
        InvalidRequest: a system item differs, or a result belongs to no outstanding call.
    """
    start = 0
    if session:
        start = _leading_systems(request)
        given = request[:start]
        if start and list(given) != list(session[: _leading_systems(session)]):
            raise InvalidRequest(
                "the system message differs from the session's; to change it, send the whole history", "messages"
            )
    new = identified(session, request[start:])
    _check_results(session, new, outstanding_only=True)
    since = last_round(session)  # a result belongs to a call of that round, or of one that comes with it
    return Splice(len(session), tuple(canonical([*session[since:], *new])[len(session) - since :]))


def follow(session: Sequence[Item], request: Sequence[Item], made: Sequence[ToolResultItem] = ()) -> Splice:
    """Add the request's items at the end, and before them results that the server has of the last round's calls.

    Raises:
        InvalidRequest: a result belongs to no outstanding call, or there is nothing to answer.
    """
    decision = Splice(len(session), added(session, request, made))
    _expect_question(session, decision)
    return decision


def added(session: Sequence[Item], request: Sequence[Item], made: Sequence[ToolResultItem] = ()) -> tuple[Item, ...]:
    """The items as they come after the session's, as `follow` adds them; there need be nothing to answer.

    Raises:
        InvalidRequest: a result belongs to no outstanding call.
    """
    _check_results(session, request, outstanding_only=True)
    since = last_round(session)
    return tuple(canonical([*session[since:], *made, *request])[len(session) - since :])


def splice(session: Sequence[Item], history: VisibleHistory, request: RequestItems) -> Splice:
    """Take the request as the whole history: keep what it repeats, cut the session there, add the rest.

    Raises:
        InvalidRequest: a new result belongs to no call before it.
    """
    history.follow(session)
    given, mine, theirs = request.canonical, history.visible, request.history.visible
    same, reason = _divergence(history, request)
    keep = mine[same].start if same < len(mine) else len(session)
    new = identified(session[:keep], given[theirs[same].start :] if same < len(theirs) else [])
    _check_results(session[:keep], new, outstanding_only=False)
    keep, new = _replace_stand_ins(session, keep, new)
    return Splice(keep, tuple(new), reason, is_whole=True)


def _has_assistant(items: Sequence[Item]) -> bool:
    return any(isinstance(item, AssistantItem) and item.source is None for item in items)


def _leading_systems(items: Sequence[Item]) -> int:
    return next((i for i, item in enumerate(items) if not isinstance(item, SystemItem)), len(items))


def _divergence(history: VisibleHistory, request: RequestItems) -> tuple[int, str | None]:
    """How many visible items are the same, and what is wrong with the first that is not."""
    mine, theirs = history.visible, request.history.visible
    shorter = range(min(len(mine), len(theirs)))
    # Where two digests are equal, so are all before them.
    same = bisect_left(shorter, True, key=lambda place: history.digests[place] != request.history.digests[place])
    others = (place for place in request.to_compare if place < same)
    same = next((place for place in others if difference(mine[place].item, theirs[place].item) is not None), same)
    if same == len(mine):
        return same, None
    if same == len(theirs):
        return same, f"item {same} ({mine[same].item.kind}) is not in the request"
    what = difference(mine[same].item, theirs[same].item)
    return same, f"item {same} ({mine[same].item.kind}) differs: {what}"


def _replace_stand_ins(session: Sequence[Item], keep: int, new: list[Item]) -> tuple[int, list[Item]]:
    """Let results that the client brings now take the place of those that the runtime wrote for it."""
    brought = {item.call_id for item in new[: _leading_results(new)] if isinstance(item, ToolResultItem)}
    start = keep
    while start and isinstance(session[start - 1], ToolResultItem):
        start -= 1
    replaced = [i for i in range(start, keep) if _call_id(session[i]) in brought]
    if not replaced:
        return keep, new
    cut = replaced[0]
    others = [item for item in session[cut:keep] if _call_id(item) not in brought]
    joined = canonical([*session[:cut], *others, *new])
    return cut, joined[cut:]


def _leading_results(items: Sequence[Item]) -> int:
    return next((i for i, item in enumerate(items) if not isinstance(item, ToolResultItem)), len(items))


def _call_id(item: Item) -> str | None:
    return item.call_id if isinstance(item, ToolResultItem) else None


def _check_results(before: Sequence[Item], new: Sequence[Item], *, outstanding_only: bool) -> None:
    """Hold every new result to a client call before it: an outstanding one, or any one of the history."""
    if not any(isinstance(item, ToolResultItem) for item in new):
        return
    if outstanding_only:
        open_ids = {call.id for call in outstanding(before) if not call.server}
    else:
        calls = [call for item in before if isinstance(item, AssistantItem) for call in item.calls]
        open_ids = {call.id for call in calls if not call.server}
    for item in new:
        if isinstance(item, AssistantItem):
            open_ids.update(call.id for call in item.calls)
        elif isinstance(item, ToolResultItem):
            if item.call_id not in open_ids:
                raise InvalidRequest(f"there is no open tool call {item.call_id!r} for this result", "messages")
            if outstanding_only:
                open_ids.discard(item.call_id)
