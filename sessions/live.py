"""The sessions in memory: one object for each, while anybody holds it and for a while after its last use. No I/O."""

from collections.abc import Callable, Iterator, Sequence
from weakref import WeakValueDictionary

from tenuto.errors import NotFound
from tenuto.sessions.recent import RecentSessions
from tenuto.sessions.session import Key, Session


class LiveSessions:
    """Finds the one object of a session. Event-loop thread only. `clock` gives seconds since the epoch.

    Whoever holds an object may find by `expect` that it is no longer the session's: it was deleted or replaced, or a
    commit of it went wrong in a way of which nobody knows what was kept, and the store is read again.
    """

    def __init__(self, recent: RecentSessions, clock: Callable[[], float]) -> None:
        self._recent, self._clock = recent, clock
        self._by_key: WeakValueDictionary[Key, Session] = WeakValueDictionary()
        self._by_uid: WeakValueDictionary[str, Session] = WeakValueDictionary()
        """The same, and those that are forgotten for as long as anybody holds them."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Session]:
        return iter([*self._by_key.values()])

    def nbytes(self) -> dict[str, int]:
        """About what the recent ones take, by whether the store has them too."""
        return self._recent.nbytes()

    def find(self, key: Key) -> Session | None:
        """The session of this id; one that was never committed is none, whoever holds it."""
        session = self._by_key.get(key)
        return session if session is not None and session.is_committed else None

    def by_uid(self, uid: str) -> Session:
        """The session of this uid.

        Raises:
            NotFound: it is not in memory, was never committed, or this is no longer its object.
        """
        session = self._by_uid.get(uid)
        if session is None or not session.is_committed:
            raise NotFound("session", uid)
        self.expect(session)
        return session

    def address(self, uid: str) -> Key | None:
        """Where the session of this uid is found; None where it is not in memory."""
        session = self._by_uid.get(uid)
        return None if session is None else session.key

    def expect(self, session: Session) -> None:
        """Raise NotFound where this is no longer the session's object."""
        if self._by_key.get(session.key) is not session:
            raise NotFound("session", session.id)

    def add(self, session: Session) -> None:
        """Make this the object of its session, for as long as anybody holds it."""
        self._by_key[session.key] = self._by_uid[session.uid] = session

    def used(self, session: Session) -> None:
        """Keep a session in memory as the last used one, unless it is forgotten already."""
        if self._by_key.get(session.key) is session:
            self._recent.put(session, self._clock())

    def touch(self, session: Session) -> None:
        """A session was used just now, where it is among the recent ones."""
        self._recent.touch(session, self._clock())

    def forget(self, session: Session) -> None:
        """Let this be the session's object no longer."""
        if self._by_key.get(session.key) is session:
            self.forget_key(session.key)

    def forget_key(self, key: Key) -> None:
        """Let whatever is the object of this session be that no longer."""
        session = self._by_key.pop(key, None)
        if session is not None:
            self._recent.drop(session)

    def expect_room(self, principal: str) -> None:
        """Raises Overloaded where the principal can have no further session in memory only."""
        self._recent.expect_room(principal, self._clock())

    def candidates(self, principal: str, user: str | None, digests: Sequence[str], most: int) -> list[tuple[str, int]]:
        """The uids of sessions that are in memory only and that a request may repeat, as `MemoryIndex` finds them."""
        return self._recent.index.candidates(principal, user, digests, most)

    def trim(self) -> None:
        """Let the sessions go that are idle for too long."""
        self._recent.trim(self._clock())
