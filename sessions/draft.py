"""A session as a step would leave it: read and changed freely, kept by a commit, and only then the session's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tenuto.sessions.changes import (
    AddItems,
    AddSpans,
    Beside,
    Change,
    CutItems,
    CutSpans,
    MarkTurns,
    MovePlaces,
    SaveSession,
)
from tenuto.sessions.items import Item, item_bytes
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.parts import number_of
from tenuto.sessions.session import Session

Span = tuple[int, ...]

_MANY_ITEMS = 64
_MANY_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class _Growth:
    """Spans that a ledger gets; it had `start` items before."""

    fingerprint: str
    start: int
    spans: tuple[Span, ...]


class Draft:
    """What one step makes of a session. Event-loop thread only; one draft of a session is open at a time.

    `ahead` is the session's row as it will be: whoever sets a field of it calls `save`. Nothing of the session itself
    changes before `apply`, which comes after the commit of `changes`; a draft whose commit failed is either committed
    again with more in it, or dropped.
    """

    def __init__(self, session: Session, *first: Change) -> None:
        self.session = session
        self.ahead = replace(session)
        self._first = first
        self._kept = len(session.items)
        self._moves: list[MovePlaces] = []
        self._rewrites = False
        self._dropped: list[str] = []
        self._growth: list[_Growth] = []
        self._more: list[Beside] = []
        self._saves = False
        self._mark_since: int | None = None

    @property
    def items(self) -> list[Item]:
        """All items, those of the session and the new ones. Not to be changed."""
        return self.ahead.items

    @property
    def kept(self) -> int:
        """How many of the session's items stay as they are, with their tokens."""
        return self._kept

    @property
    def saves(self) -> bool:
        """Whether the session's row is part of it."""
        return self._saves

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        grown = self._saves or self._more or self._first or self._growth or self._dropped
        return not grown and self.ahead.items is self.session.items

    def save(self) -> None:
        """Let the session's row be written with the commit, as `ahead` has it by then."""
        self._saves = True

    def cut(self, keep: int) -> None:
        """Keep the first `keep` of the session's items, and of its tokens those of these."""
        assert not self._growth, "a draft is cut before it grows"
        if keep < self._kept:
            self._kept = keep
            self.ahead.items = self.session.items[:keep]

    def instruct(self, instructions: Sequence[Item]) -> bool:
        """Let the session begin with this item, or none, in place of what it was instructed by; whether it is another.

        All that comes after it stays, and is read anew.
        """
        had, has = int(self.session.instructed), len(instructions)
        if self.session.items[:had] == list(instructions):
            return False
        self.rewrite([*instructions, *self.session.items[had:]])
        if had != has:
            self._moves.append(MovePlaces(self.session.uid, had, has - had))
        self.ahead.instructed = has > 0
        self.save()
        return True

    def take_away(self, items: Sequence[Item], gone: Sequence[int]) -> None:
        """Let the session have these items: its own less those at the places `gone`, and others changed."""
        self.rewrite(items)
        uid, ahead = self.session.uid, self.ahead
        ahead.removed = tuple(sorted({*ahead.removed, *(number_of(self.session, place) for place in gone)}))
        # From the end: each place is one of before those behind it have moved.
        self._moves += [MovePlaces(uid, place + 1, -1) for place in sorted(gone, reverse=True)]
        self.save()

    def rewrite(self, items: Sequence[Item]) -> None:
        """Let the session have these items. Of its tokens it keeps those of the items with which both begin."""
        own = self.session.items
        pairs = enumerate(zip(own, items, strict=False))
        self.cut(next((place for place, (one, other) in pairs if one is not other), min(len(own), len(items))))
        self.ahead.items = [*items]
        self._rewrites = True

    def add(self, items: Sequence[Item]) -> None:
        """Add items at the end."""
        if items:
            self.ahead.items = [*self.ahead.items, *items]

    def drop_ledger(self, fingerprint: str) -> None:
        """Forget a ledger of the session."""
        self._dropped.append(fingerprint)

    def grow(self, fingerprint: str, spans: Sequence[Span]) -> None:
        """Add the tokens of further items to a ledger, which begins with these where the session has none."""
        if spans:
            self._growth.append(_Growth(fingerprint, self.covered(fingerprint), tuple(spans)))

    def covered(self, fingerprint: str) -> int:
        """How many items a ledger will cover."""
        ledger = self.session.ledgers.get(fingerprint)
        own = 0 if ledger is None else min(ledger.items, self._kept)
        return own + sum(len(grown.spans) for grown in self._growth if grown.fingerprint == fingerprint)

    def mark_turns(self, since: int) -> None:
        """Let requests find the session by the turns that end among its items from `since` on."""
        self._mark_since = since if self._mark_since is None else min(since, self._mark_since)

    def follow_apart(self) -> Callable[[], None] | None:
        """What looks at the new items for their digests, where they are many or large: any thread may do it before the
        commit.

        None where they are few, which are looked at when they are asked for.
        """
        new = self.ahead.items[self._kept :]
        if len(new) <= _MANY_ITEMS and sum(map(item_bytes, new)) <= _MANY_BYTES:
            return None
        # One of its own: others look at the session's meanwhile.
        self.ahead.history = self.session.history.copy()
        return partial(self.ahead.history.follow, self.ahead.items)

    def also(self, *changes: Beside) -> None:
        """Keep something else with it: runs, calls, pauses."""
        self._more += changes

    def changes(self) -> list[Change]:
        """What the commit keeps, in order."""
        uid, items = self.session.uid, self.ahead.items
        changes: list[Change] = [*self._first]
        if self._saves:
            changes.append(SaveSession(self.ahead))
        if self._kept < len(self.session.items):
            changes.append(CutItems(uid, self._kept, ends=not self._rewrites))
        changes += self._moves
        if self._kept < len(items):
            changes.append(AddItems(uid, self._kept, tuple(items[self._kept :])))
        changes += [CutSpans(uid, name, 0) for name in self._dropped]
        changes += [AddSpans(uid, grown.fingerprint, grown.start, grown.spans) for grown in self._growth]
        if self._mark_since is not None:
            changes.append(MarkTurns(self.ahead, self._mark_since))
        return [*changes, *self._more]

    def apply(self) -> None:
        """The commit has succeeded: the session is what the draft says."""
        session, ahead = self.session, self.ahead
        for name in self._dropped:
            session.ledgers.pop(name, None)
        if self._kept < len(session.items):
            del session.items[self._kept :]
            for ledger in session.ledgers.values():
                ledger.cut(self._kept)
        session.items += ahead.items[self._kept :]
        session.history = ahead.history
        for grown in self._growth:
            ledger = session.ledgers.setdefault(grown.fingerprint, Ledger(grown.fingerprint))
            assert ledger.items == grown.start, "a ledger grows at its end"
            for span in grown.spans:
                ledger.append(span)
        if self._saves:
            for name in _ROW:
                setattr(session, name, getattr(ahead, name))


_ROW = (
    *("updated_at", "implicit", "expires_at", "server_tools", "approved", "open_run", "hint"),
    *("server_instructions", "instructed", "removed"),
)
"""What of a session's row a step may change."""
