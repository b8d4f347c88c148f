"""Which session does a request without a session id go on with? Pure: digests to look for, and the last word.

A session goes on only if the request repeats all of its visible items, at least one of them the assistant's, and then
has more. Sharing a cache needs none of this; that is proved by equal tokens.
"""

from collections.abc import Sequence

from tenuto.sessions.items import Item
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.session import Session
from tenuto.sessions.visible import VisibleHistory, difference


def prefix_digests(request: RequestItems) -> list[str]:
    """The digests of the sessions that the request could go on with, the longest first.

    Empty where it repeats no assistant item, as every first request does.
    """
    return [digest.hex() for digest in request.history.digests[request.first_assistant : -1][::-1]]


def fits(session: Sequence[Item], history: VisibleHistory, request: RequestItems, at: int | None = None) -> bool:
    """Whether the request repeats all visible items of the session, call ids included, and then has more.

    `history` is the session's; `at`: only the first so many of its items are meant.
    """
    mine = history.prefix(session, len(session) if at is None else at)
    theirs, count = request.history, len(mine)
    return (
        request.first_assistant < count < len(theirs.visible)
        and mine.digest == theirs.digests[count - 1]
        and all(
            difference(mine.visible[place].item, theirs.visible[place].item) is None
            for place in request.to_compare
            if place < count
        )
    )


def choose(
    candidates: Sequence[tuple[Session, int]], request: RequestItems, hint: str | None = None
) -> tuple[Session, int] | None:
    """Of sessions and how many items of each a digest names, the one that the request repeats, and how many items.

    All of them, where one session fits as a whole; where several do, it is the only one of the request's hint, or none.
    Else all up to the end of a turn, of a session that has gone further; where several have, they must be the same up
    to there.
    """
    complete = {session.uid: session for session, _ in candidates if fits(session.items, session.history, request)}
    if complete:
        hinted = [session for session in complete.values() if hint is not None and session.hint == hint]
        (only, *others) = hinted or complete.values()
        return None if others else (only, len(only.items))
    further = [
        (session, at)
        for session, at in candidates
        if at < len(session.items) and fits(session.items, session.history, request, at)
    ]
    starts = [session.items[:at] for session, at in further]
    return further[0] if further and all(start == starts[0] for start in starts) else None
