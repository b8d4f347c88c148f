"""Which session does a request without a session id go on with? Pure: digests to look for, and the last word.

A session goes on only if the request repeats all of its visible items, at least one of them the assistant's, and then
has more. Sharing a cache needs none of this; that is proved by equal tokens.
"""

from collections.abc import Sequence

from tenuto.sessions.items import AssistantItem, Item
from tenuto.sessions.visible import canonical, difference, digests, visible


def wanted(request: Sequence[Item]) -> list[str]:
    """The digests of the sessions that the request could go on with, the longest first.

    Empty where it repeats no assistant item, as every first request does.
    """
    seen = visible(canonical(request))
    first = next((i for i, one in enumerate(seen) if isinstance(one.item, AssistantItem)), len(seen))
    return digests(seen)[first:-1][::-1]


def fits(session: Sequence[Item], request: Sequence[Item]) -> bool:
    """Whether the request repeats all visible items of the session, call ids included, and then has more."""
    mine, theirs = visible(session), visible(canonical(request))
    return (
        len(mine) < len(theirs)
        and any(isinstance(one.item, AssistantItem) for one in mine)
        and all(difference(one.item, other.item) is None for one, other in zip(mine, theirs, strict=False))
    )
