"""Idempotency-Keys: which run a repeated request gets. Kept with its run: in the store, or in memory only."""

from collections.abc import Callable

from tenuto.errors import IdempotencyMismatch
from tenuto.runtime.loop.requests import Turn
from tenuto.sessions.changes import SaveKey
from tenuto.sessions.records import KeyRecord
from tenuto.sessions.shares import Shares
from tenuto.sessions.storage.store import Store

KEPT_S = 24 * 3600.0
MOST_UNSTORED = 10_000
"""So many keys are remembered of runs that are in memory only."""


class Keys:
    """The keys of all principals. Event-loop thread only. `clock` gives seconds since the epoch."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._unstored: dict[tuple[str, str], KeyRecord] = {}  # the oldest first
        self._places: Shares[tuple[str, str]] = Shares("the table of idempotency keys", MOST_UNSTORED, lambda _: True)

    async def run_of(self, turn: Turn) -> str | None:
        """The id of the run that an earlier request with the turn's key has begun.

        Raises:
            IdempotencyMismatch: that request was another one.
        """
        key = turn.idempotency_key
        assert key is not None
        known = self._unstored.get((turn.principal.id, key)) or await self._store.key(turn.principal.id, key)
        if known is None or known.expires_at <= self._clock():
            return None
        if known.body_digest != _body_digest(turn):
            raise IdempotencyMismatch(f"the Idempotency-Key {key!r} came before with another body")
        return known.run_id

    def saving(self, turn: Turn, run_id: str) -> list[SaveKey]:
        """The change that lets the turn's key, if it has one, stand for a run."""
        if turn.idempotency_key is None:
            return []
        expires = self._clock() + KEPT_S
        return [SaveKey(turn.principal.id, turn.idempotency_key, run_id, _body_digest(turn), expires)]

    def remember(self, turn: Turn, run_id: str) -> None:
        """Let the turn's key, if it has one, stand for a run that is in memory only."""
        for key in self.saving(turn, run_id):
            self._forget_old()
            name = (key.principal, key.key)
            for gone in (name, *self._places.settle(name, key.principal)):
                self._unstored.pop(gone, None)
            self._unstored[name] = KeyRecord(key.run_id, key.body_digest, key.expires_at)

    def _forget_old(self) -> None:
        now = self._clock()
        while self._unstored:
            name, record = next(iter(self._unstored.items()))
            if record.expires_at > now:
                return
            del self._unstored[name]
            self._places.remove(name)


def _body_digest(turn: Turn) -> str:
    return turn.body_digest or turn.request_items.digest
