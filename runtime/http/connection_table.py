"""Who holds the server's connections, and which give way when all are taken. No I/O, no HTTP.

Connections that have shown no key give way first, so that they never keep out those who have one; among key holders, it
is who holds most. What is idle goes before what is under way, the oldest first. No key holder's request is broken off
that has wholly arrived, nor one that has not yet been asked for its key, unless strangers hold all that they may.
"""

from collections import defaultdict
from collections.abc import Callable
from operator import attrgetter
from typing import Protocol

KEPT_FOR_KEYS = 10
"""One in so many places is only for who has shown a key."""
_AT_ONCE = 32
"""One in so many places becomes free together, so that a storm of connections does not pay for a look at all each."""


class Held(Protocol):
    """A connection as the table sees it."""

    @property
    def holder(self) -> str | None:
        """The principal whose key its last request showed; None where there is none yet."""

    @property
    def is_busy(self) -> bool:
        """Whether a whole request has come and is under way."""

    @property
    def since(self) -> float:
        """When that became so."""

    def give_way(self) -> None:
        """Close it now."""


_by_age: Callable[[Held], float] = attrgetter("since")


class Table:
    """The connections of one server. Event-loop thread only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._for_strangers = most - most // KEPT_FOR_KEYS
        self._together = max(1, most // _AT_ONCE)
        self._held: set[Held] = set()

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, newcomer: Held) -> bool:
        """Take a connection, for which others may have to give way; false where none can, and it is one too many."""
        if len(self._held) >= self._for_strangers:
            self._make_room()
        self._held.add(newcomer)
        return len(self._held) <= self._most

    def leave(self, connection: Held) -> None:
        """It is closed."""
        self._held.discard(connection)

    def _make_room(self) -> None:
        holdings: dict[str | None, list[Held]] = defaultdict(list)
        for connection in self._held:
            holdings[connection.holder].append(connection)
        strangers = sorted(holdings.pop(None, []), key=lambda one: (one.is_busy, one.since))
        if len(strangers) >= self._for_strangers:
            self._close(strangers[: self._together])
        elif len(self._held) >= self._most and (waiting := [one for one in strangers if not one.is_busy]):
            self._close(waiting[: self._together])
        elif len(self._held) >= self._most:
            self._close(self._of_the_greatest(list(holdings.values())))

    def _of_the_greatest(self, holdings: list[list[Held]]) -> list[Held]:
        """Idle connections of whoever holds most, down to an equal share."""
        share = self._most / (len(holdings) + 1)  # the newcomer may be somebody who holds none yet
        for holding in sorted(holdings, key=len, reverse=True):
            above = int(len(holding) - share)
            idle = sorted((one for one in holding if not one.is_busy), key=_by_age)
            if above > 0 and idle:
                return idle[: min(above, self._together)]
        return []

    def _close(self, connections: list[Held]) -> None:
        for connection in connections:
            self._held.discard(connection)
            connection.give_way()
