"""Which sessions stay in memory: the last used ones, and those that would be lost. No I/O."""

from collections import OrderedDict

from tenuto.errors import Overloaded
from tenuto.sessions.session import Session

Key = tuple[str, str]
"""A principal and the id of one of its sessions."""


class Shelf:
    """Holds sessions by last use, at most `max_stored` that the store has too and `max_unstored` that it has not.

    One with an open run stays over the limit and over its time. One that is in memory only stays until its time,
    `ttl_s` after its last use; so the next one is refused instead.
    """

    def __init__(self, max_stored: int, ttl_s: float, max_unstored: int) -> None:
        self._max_stored, self._max_unstored, self._ttl_s = max_stored, max_unstored, ttl_s
        self._stored: OrderedDict[str, tuple[Session, float]] = OrderedDict()
        self._unstored: OrderedDict[str, tuple[Session, float]] = OrderedDict()

    def put(self, session: Session, now: float) -> None:
        """Hold a session as the last used one."""
        row = self._row(session)
        row[session.uid] = (session, now)
        row.move_to_end(session.uid)
        self.trim(now)

    def touch(self, session: Session, now: float) -> None:
        """Mark a session as used, where it is held."""
        if session.uid in self._row(session):
            self.put(session, now)

    def drop(self, session: Session) -> None:
        """Let a session go."""
        self._row(session).pop(session.uid, None)

    def expect_room(self, now: float) -> None:
        """Raises Overloaded where no further session can be kept in memory only."""
        self.trim(now)
        if len(self._unstored) >= self._max_unstored:
            raise Overloaded("the memory for sessions that are not stored", self._ttl_s)

    def trim(self, now: float) -> None:
        """Let the sessions go that are idle for too long or too many."""
        self._trim(self._stored, self._max_stored, now)
        self._trim(self._unstored, None, now)

    def _trim(self, row: OrderedDict[str, tuple[Session, float]], most: int | None, now: float) -> None:
        # A session with an open run counts as used now: it goes to the end, so nothing is looked at twice.
        for _ in range(len(row)):
            uid, (session, used) = next(iter(row.items()))
            if used + self._ttl_s > now and (most is None or len(row) <= most):
                return
            if session.open_run is None:
                del row[uid]
            else:
                row[uid] = (session, now)
                row.move_to_end(uid)

    def _row(self, session: Session) -> OrderedDict[str, tuple[Session, float]]:
        return self._stored if session.stored else self._unstored
