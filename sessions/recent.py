"""Which sessions stay in memory: the last used ones of each principal, and those that would be lost. No I/O."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tenuto.sessions.items import item_bytes
from tenuto.sessions.memory_index import MemoryIndex
from tenuto.sessions.session import Session
from tenuto.sessions.shares import Shares

STORED_BYTES = 256 << 20
UNSTORED_BYTES = 64 << 20
RETRY_S = 5.0
"""Where every session has a run under way, one of them is likely to end by then."""

_SESSION_BYTES = 4096
_TOKEN_BYTES = 4


@dataclass(slots=True)
class _Entry:
    session: Session
    used: float
    items: int = 0
    """How many of its items are weighed."""
    weight: int = 0
    """What these weigh."""


class RecentSessions:
    """Sessions by last use, so many bytes of those that the store has too and of those that it has not.

    When there are more, those of the principal that holds most go first. One with an open run stays, over the limit
    and over its time, which is `ttl_s` after its last use. `on_gone` is told the uid of each that is let go.
    """

    def __init__(
        self,
        ttl_s: float,
        stored_bytes: int = STORED_BYTES,
        unstored_bytes: int = UNSTORED_BYTES,
        on_gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._ttl_s = ttl_s
        self._stored = _Table("the memory for sessions", stored_bytes, on_gone)
        self.index = MemoryIndex()
        """The sessions that are not stored, for requests that repeat them."""
        self._unstored = _Table("the memory for sessions that are not stored", unstored_bytes, on_gone, self.index)

    def nbytes(self) -> dict[str, int]:
        """About what they take in memory, those that are stored and those that are not."""
        return {"sessions": self._stored.shares.used, "unstored_sessions": self._unstored.shares.used}

    def put(self, session: Session, now: float) -> None:
        """A session was used just now; it joins where it is not among them."""
        self._table(session).put(session, now)

    def touch(self, session: Session, now: float) -> None:
        """A session was used just now, where it is among them."""
        table = self._table(session)
        if session.uid in table.entries:
            table.put(session, now)

    def drop(self, session: Session) -> None:
        """Let a session go."""
        self._table(session).drop(session.uid)

    def expect_room(self, principal: str, now: float) -> None:
        """Raises Overloaded where the principal can keep no further session in memory only."""
        self.trim(now)
        self._unstored.shares.expect_room(principal, now, RETRY_S, _SESSION_BYTES)

    def trim(self, now: float) -> None:
        """Let the sessions go that are idle for too long."""
        for table in (self._stored, self._unstored):
            table.expire(now, now - self._ttl_s)

    def _table(self, session: Session) -> "_Table":
        return self._stored if session.stored else self._unstored


class _Table:
    def __init__(self, what: str, size: int, on_gone: Callable[[str], None], index: MemoryIndex | None = None) -> None:
        self._on_gone, self._index = on_gone, index
        self.entries: OrderedDict[str, _Entry] = OrderedDict()
        self.shares: Shares[str] = Shares(what, size, lambda uid: self.entries[uid].session.open_run is None)

    def put(self, session: Session, now: float) -> None:
        entry = self.entries.setdefault(session.uid, _Entry(session, now))
        entry.used = now
        self.entries.move_to_end(session.uid)
        if self._index is not None:
            self._index.put(session)
        for uid in self.shares.settle(session.uid, session.principal, _weigh(entry)):
            self._forget(uid)

    def drop(self, uid: str) -> None:
        self.shares.remove(uid)
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        if self.entries.pop(uid, None) is not None:
            self._on_gone(uid)
        if self._index is not None:
            self._index.drop(uid)

    def expire(self, now: float, since: float) -> None:
        # A session with an open run counts as used now: it goes to the end, so nothing is looked at twice.
        for _ in range(len(self.entries)):
            uid, entry = next(iter(self.entries.items()))
            if entry.used > since:
                return
            if entry.session.open_run is None:
                self.drop(uid)
            else:
                entry.used = now
                self.entries.move_to_end(uid)


def _weigh(entry: _Entry) -> int:
    """About the bytes of a session; what is new of its items is looked at, and its tokens are counted."""
    items = entry.session.items
    if len(items) < entry.items:
        entry.items = entry.weight = 0
    entry.weight += sum(map(item_bytes, items[entry.items :]))
    entry.items = len(items)
    tokens = sum(len(ledger.tokens) for ledger in entry.session.ledgers.values())
    texts = (*entry.session.notes.items(), *entry.session.metadata.items())
    beside = sum(len(name) + len(text) for name, text in texts)
    return _SESSION_BYTES + entry.weight + _TOKEN_BYTES * tokens + beside
