"""The sessions of this process: one object for each that is in use, loaded from the store and let go when idle."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4
from weakref import WeakValueDictionary

import anyio

from tenuto.errors import Conflict, InvalidRequest, NotFound, SessionBusy
from tenuto.sessions import match
from tenuto.sessions.changes import Change, CopyNotes, DeleteSession, PutNote, SaveSession, whole
from tenuto.sessions.items import Item
from tenuto.sessions.reads import MOST_CANDIDATES
from tenuto.sessions.records import SessionSummary
from tenuto.sessions.rounds import completed, last_completed_turn
from tenuto.sessions.session import Parent, Session
from tenuto.sessions.shelf import Key, Shelf
from tenuto.sessions.store import Store

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_REFRESH_S = 60
"""An implicit session's time is prolonged in the store when it is used and this much of it has gone."""


class Directory:
    """Finds, makes, forks and deletes sessions. Event-loop thread only.

    While anybody holds a session, everybody who asks gets the same object. A session that was found idle is let go
    after `ttl_s`, or earlier beyond `max_sessions`; one with an open run stays, and so does one that is in memory only
    before its time. `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        *,
        max_sessions: int = 1000,
        ttl_s: float = 3600,
        max_unstored: int = 1000,
        implicit_ttl_s: float = 24 * 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.watchers: list[Callable[[str], None]] = []
        """Told of a principal whenever the list of its named sessions is another one."""
        self._store = store
        self._shelf = Shelf(max_sessions, ttl_s, max_unstored)
        self._implicit_ttl_s = implicit_ttl_s
        self._clock = clock
        self._live: WeakValueDictionary[Key, Session] = WeakValueDictionary()
        self._locks: WeakValueDictionary[Key, anyio.Lock] = WeakValueDictionary()

    @property
    def in_memory(self) -> int:
        """How many sessions are in memory."""
        return len(self._live)

    async def get(self, principal: str, id: str) -> Session | None:
        """The principal's session of this id; using an implicit one prolongs its time."""
        async with self._lock((principal, id)):
            return await self._get(principal, id)

    async def get_or_create(self, principal: str, id: str, *, stored: bool = True) -> Session:
        """The session of this id, made where there is none; an implicit one becomes explicit by this use.

        What was made or changed is not in the store before the next commit that saves the session. `stored` is for
        one that is made.

        Raises:
            InvalidRequest: the id has characters that an id cannot have.
            Overloaded: too many sessions are kept in memory only.
        """
        _check_id(id, "session_id")
        async with self._lock((principal, id)):
            session = await self._get(principal, id)
            if session is None:
                if not stored:
                    self._shelf.expect_room(self._clock())
                return self._make(principal, id, implicit=False, user=None, stored=stored)
            self.promote(session)
            return session

    def new(self, principal: str, *, implicit: bool = True, user: str | None = None, stored: bool = True) -> Session:
        """A session with an id of our making, not in the store before the first commit that saves it.

        Raises:
            Overloaded: too many sessions are kept in memory only.
        """
        if not stored:
            self._shelf.expect_room(self._clock())
        return self._make(principal, f"session-{uuid4().hex}", implicit=implicit, user=user, stored=stored)

    def promote(self, session: Session) -> None:
        """Make an implicit session an explicit one, which stays until it is deleted."""
        session.implicit, session.expires_at = False, None

    async def match(self, principal: str, user: str | None, request: Sequence[Item]) -> tuple[Session, int] | None:
        """The stored session that a request without an id repeats, and how many of its items.

        All of them, where one session fits as a whole; where several do, it is none. Else all up to the end of a turn,
        of a session that has gone further; where several have, they must be the same up to there.
        """
        digests = match.wanted(request)
        found = await self._store.candidates(principal, user, digests) if digests else []
        if len(found) >= MOST_CANDIDATES:
            return None
        whole: dict[str, tuple[Session, int]] = {}
        further: list[tuple[Session, int]] = []
        for uid, at in found:
            session = await self._by_uid(uid)
            if session is None:
                continue
            if match.fits(session.items, request):
                whole[uid] = (session, len(session.items))
            elif at < len(session.items) and match.fits(session.items[:at], request):
                further.append((session, at))
        if whole:
            return next(iter(whole.values())) if len(whole) == 1 else None
        starts = [session.items[:at] for session, at in further]
        return further[0] if further and all(start == starts[0] for start in starts) else None

    async def commit(self, session: Session, *changes: Change) -> None:
        """Keep changes of a session; one that is in memory only is just marked as used.

        Raises:
            NotFound: the session has been deleted, or its time was over; nothing is kept.
            StoreFailed: nothing is kept.
        """
        key = (session.principal, session.id)
        if self._live.get(key) is not session:
            raise NotFound("session", session.id)
        if any(isinstance(change, SaveSession) for change in changes):
            session.updated_at = self._clock()
            self._prolong(session)
        if session.stored:
            await self._store.commit(*changes)
            self._list(session)
        if self._live.get(key) is session:
            self._shelf.put(session, self._clock())

    async def delete(self, principal: str, id: str) -> None:
        """Delete a session with all that belongs to it. Its open run, if any, is the caller's to cancel before.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        async with self._lock((principal, id)):
            session = await self._get(principal, id)
            if session is None:
                raise NotFound("session", id)
            if session.stored:
                await self._store.commit(DeleteSession(session.uid))
            self._forget(session)
            if session.listed:
                self._tell(principal)

    async def list(
        self, principal: str, implicit: bool = False, *, limit: int = 100, after: str | None = None
    ) -> list[SessionSummary]:
        """The principal's stored sessions, newest first; `after` is the last id of the page before."""
        return await self._store.sessions(principal, implicit=implicit, limit=limit, after=after)

    async def fork(
        self, session: Session, at: int | None = None, new_id: str | None = None, *, implicit: bool | None = None
    ) -> Session:
        """A session of its own over completed items, committed. Notes come along, approvals do not.

        `at`: how many items at most (default: up to the end of the last completed turn); a round whose calls are not
        all answered is left out. Without `new_id` the fork is implicit where its origin is.

        Raises:
            InvalidRequest: `at` or `new_id` is not valid.
            Conflict: there is a session `new_id`.
        """
        if at is not None and not 0 <= at <= len(session.items):
            raise InvalidRequest(f"at is {at}; the session has {len(session.items)} items", "at")
        if new_id is not None:
            _check_id(new_id, "new_id")
        keep = last_completed_turn(session.items) if at is None else completed(session.items, at)
        if implicit is None:
            implicit = session.implicit and new_id is None
        # Taken before the first wait: the origin may go on.
        now = self._clock()
        twin = self._twin(session, keep, new_id or f"session-{uuid4().hex}", implicit=implicit)
        if not twin.stored:
            self._shelf.expect_room(now)
        async with self._lock((twin.principal, twin.id)):
            if new_id is not None and await self._get(twin.principal, new_id) is not None:
                raise Conflict(f"there is a session {new_id!r} already")
            await self._add(twin, [*whole(twin), CopyNotes(session.uid, twin.uid)])
        return twin

    def branch(self, session: Session, at: int) -> tuple[Session, Sequence[Change]]:
        """A fork for a request that names no session: implicit, and not in the store before its first commit.

        The changes are to be the first of that commit.
        """
        twin = self._twin(session, completed(session.items, at), f"session-{uuid4().hex}", implicit=True)
        self._prolong(twin)
        self._live[twin.principal, twin.id] = twin
        return twin, [*whole(twin), CopyNotes(session.uid, twin.uid)]

    async def install(self, session: Session, notes: Mapping[str, str]) -> None:
        """Keep an imported session, in place of the one that has its id.

        Raises:
            InvalidRequest: its id is not valid.
            SessionBusy: the one that has its id has an open run.
        """
        _check_id(session.id, "session_id")
        async with self._lock((session.principal, session.id)):
            old = await self._get(session.principal, session.id)
            changes: list[Change] = []
            if old is not None:
                if old.open_run is not None:
                    raise SessionBusy(old.id, old.open_run)
                changes.append(DeleteSession(old.uid))
            changes += [*whole(session), *(PutNote(session.uid, key, text) for key, text in notes.items())]
            await self._add(session, changes)

    def discard(self, session: Session) -> None:
        """Let a session go from memory, because what is there is ahead of what is kept; the store's is loaded next."""
        self._forget(session)

    async def expire(self) -> Sequence[str]:
        """Delete the sessions whose time is over, and let idle ones go from memory; the deleted sessions' uids."""
        now = self._clock()
        gone = set(await self._store.expire(now))
        for session in list(self._live.values()):
            if session.uid in gone:
                self._forget(session)
        self._shelf.trim(now)
        return sorted(gone)

    def _twin(self, session: Session, keep: int, id: str, *, implicit: bool) -> Session:
        """A copy of a session's first items, with their tokens and without approvals."""
        now = self._clock()
        return Session(
            uid=uuid4().hex,
            principal=session.principal,
            id=id,
            created_at=now,
            updated_at=now,
            implicit=implicit,
            stored=session.stored,
            user=session.user,
            parent=Parent(session.uid, keep),
            items=session.items[:keep],
            ledgers={name: ledger.copy(keep) for name, ledger in session.ledgers.items()},
            server_tools=session.server_tools,
        )

    async def _by_uid(self, uid: str) -> Session | None:
        address = await self._store.address(uid)
        session = await self.get(*address) if address else None
        return session if session is not None and session.uid == uid else None

    async def _add(self, session: Session, changes: Sequence[Change]) -> None:
        """Commit a session that is new, then let it be found. The caller holds the lock of its id."""
        self._prolong(session)
        if session.stored:
            await self._store.commit(*changes)
            self._list(session)
        key = (session.principal, session.id)
        if (old := self._live.get(key)) is not None:
            self._forget(old)
        self._live[key] = session
        self._shelf.put(session, self._clock())

    async def _get(self, principal: str, id: str) -> Session | None:
        key = (principal, id)
        session = self._live.get(key)
        if session is None:
            session = await self._store.session(principal, id)
            if session is None:
                return None
            session.listed = not session.implicit
            self._live[key] = session
            self._shelf.put(session, self._clock())
        now = self._clock()
        if session.expires_at is not None and session.open_run is None:
            if session.expires_at <= now:
                if session.stored:
                    await self._store.commit(DeleteSession(session.uid))
                self._forget(session)
                return None
            if session.stored and session.expires_at < now + self._implicit_ttl_s - _REFRESH_S:
                self._prolong(session)
                await self._store.commit(SaveSession(session))
        self._shelf.touch(session, now)
        return session

    def _make(self, principal: str, id: str, *, implicit: bool, user: str | None, stored: bool) -> Session:
        now = self._clock()
        session = Session(uuid4().hex, principal, id, now, now, implicit=implicit, stored=stored, user=user)
        self._prolong(session)
        # Held by its maker alone before its first commit: a refused request leaves nothing behind.
        self._live[principal, id] = session
        return session

    def _prolong(self, session: Session) -> None:
        if session.implicit:
            session.expires_at = self._clock() + self._implicit_ttl_s

    def _list(self, session: Session) -> None:
        """A session has been committed: tell if that brings it into the list."""
        if not session.implicit and not session.listed:
            session.listed = True
            self._tell(session.principal)

    def _tell(self, principal: str) -> None:
        for watcher in self.watchers:
            watcher(principal)

    def _forget(self, session: Session) -> None:
        if self._live.get((session.principal, session.id)) is session:
            del self._live[session.principal, session.id]
            self._shelf.drop(session)

    def _lock(self, key: Key) -> anyio.Lock:
        """The lock of an id, one object while anybody holds it or waits for it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = anyio.Lock()
        return lock


def _check_id(id: str, param: str) -> None:
    if not _ID.fullmatch(id):
        raise InvalidRequest(f"{param} must have 1 to 128 letters, digits, dots, underscores or hyphens", param)
