"""Sessions that are in memory only, by digests of what is visible of them, as the store has the others. No I/O."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from tenuto.sessions.session import Session

Turn = tuple[int, str]
"""How many items there are up to the end of a turn, and the digest of what is visible of them."""
_Key = tuple[str, str | None, str]


@dataclass(slots=True)
class _Entry:
    principal: str
    user: str | None
    whole: str = ""
    turns: list[Turn] = field(default_factory=list)


class MemoryIndex:
    """Finds sessions by what a request repeats of them. Each takes room by the turns that it has."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._wholes: dict[_Key, dict[str, int]] = {}
        self._turns: dict[_Key, dict[str, int]] = {}

    def put(self, session: Session) -> None:
        """A session is as it is now."""
        entry = self._entries.setdefault(session.uid, _Entry(session.principal, session.user))
        self._unlink(self._wholes, session.uid, entry, entry.whole)
        entry.whole = session.history.digest(session.items)
        self._wholes.setdefault(_key(entry, entry.whole), {})[session.uid] = len(session.items)
        self._put_turns(session, entry)

    def drop(self, uid: str) -> None:
        """A session is gone."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._unlink(self._wholes, uid, entry, entry.whole)
            for _, digest in entry.turns:
                self._unlink(self._turns, uid, entry, digest)

    def candidates(self, principal: str, user: str | None, digests: Sequence[str], most: int) -> list[tuple[str, int]]:
        """The sessions that have the first of `digests` that any has, and how many of their items it names.

        First those of which it names all, then those of which it names all up to the end of a turn; at most so many.
        """
        for digest in digests:
            key = (principal, user, digest)
            wholes, turns = self._wholes.get(key, {}), self._turns.get(key, {})
            further = [(uid, at) for uid, at in turns.items() if uid not in wholes]
            if wholes or further:
                return [*wholes.items(), *further][:most]
        return []

    def _put_turns(self, session: Session, entry: _Entry) -> None:
        """Keep the turns that are still what they were, and look at the items after them."""
        while entry.turns and not _still_ends(session, *entry.turns[-1]):
            self._unlink(self._turns, session.uid, entry, entry.turns.pop()[1])
        since = entry.turns[-1][0] if entry.turns else 0
        for at, digest in session.history.turns(session.items, since):
            entry.turns.append((at, digest))
            self._turns.setdefault(_key(entry, digest), {})[session.uid] = at

    def _unlink(self, table: dict[_Key, dict[str, int]], uid: str, entry: _Entry, digest: str) -> None:
        key = _key(entry, digest)
        named = table.get(key, {})
        named.pop(uid, None)
        if not named:
            table.pop(key, None)


def _key(entry: _Entry, digest: str) -> _Key:
    return entry.principal, entry.user, digest


def _still_ends(session: Session, at: int, digest: str) -> bool:
    if at > len(session.items):
        return False
    seen = session.history.visible
    count = bisect_right(seen, at - 1, key=lambda one: one.start)
    return count > 0 and session.history.digests[count - 1].hex() == digest
