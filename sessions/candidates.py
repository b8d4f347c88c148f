"""The sessions that a request may go on with, looked up by digests: in the store, or among those in memory only."""

from collections.abc import Sequence

from tenuto.sessions.live import LiveSessions
from tenuto.sessions.session import Key
from tenuto.sessions.storage.reads import MOST_CANDIDATES
from tenuto.sessions.storage.store import Store

Candidate = tuple[str, Key, int]
"""A session's uid, where it is found, and how many of its items the request repeats if it repeats it."""


async def candidates(
    store: Store, live: LiveSessions, principal: str, user: str | None, digests: Sequence[str], *, stored: bool
) -> list[Candidate]:
    """Those of the first digest that any has; none where they are too many to tell apart."""
    if not digests:
        return []
    if not stored:
        named = live.candidates(principal, user, digests, MOST_CANDIDATES)
        addresses = {uid: live.address(uid) for uid, _ in named}
    else:
        named = await store.candidates(principal, user, digests)
        addresses = {uid: await store.address(uid) for uid, _ in named} if len(named) < MOST_CANDIDATES else {}
    if len(named) >= MOST_CANDIDATES:
        return []
    return [(uid, key, at) for uid, at in named if (key := addresses[uid]) is not None]
