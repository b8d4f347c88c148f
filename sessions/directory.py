"""The sessions of this process: one object for each that is in use, loaded from the store and let go when idle."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from tenuto.errors import (
    CommitUnsettled,
    Conflict,
    InvalidRequest,
    NotFound,
    SessionBusy,
    SessionDamaged,
    StoreFailed,
    TenutoError,
)
from tenuto.sessions import match
from tenuto.sessions.changes import Beside, Change, DeleteSession, PutNote, whole
from tenuto.sessions.draft import Draft
from tenuto.sessions.ids import checked_session_id
from tenuto.sessions.notes import expect_room
from tenuto.sessions.reads import MOST_CANDIDATES
from tenuto.sessions.records import SessionSummary
from tenuto.sessions.rounds import completed, last_completed_turn
from tenuto.sessions.session import Parent, Session, new_uid
from tenuto.sessions.shelf import STORED_BYTES, UNSTORED_BYTES, Key, Shelf
from tenuto.sessions.store import Store
from tenuto.sessions.told import Told
from tenuto.sessions.watchers import tell

_REFRESH_S = 60
"""An implicit session's time is prolonged in the store when it is used and this much of it has gone."""
_COMMIT_S = 30.0
"""How long a commit is waited for, and then its outcome before the session is read again."""


class Directory:
    """Finds, makes, forks and deletes sessions. Event-loop thread only.

    What changes a session is called by its owner alone, one after the other. While anybody holds a session, everybody
    who asks gets the same object. A session that was found idle is let go after `ttl_s`, or earlier where there are
    more than so many bytes of them, with all that it was where it is in memory only; one with an open run stays.
    `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        *,
        ttl_s: float = 3600,
        stored_bytes: int = STORED_BYTES,
        unstored_bytes: int = UNSTORED_BYTES,
        implicit_ttl_s: float = 24 * 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.watchers: list[Callable[[str], None]] = []
        """Told of a principal whenever the list of its named sessions is another one."""
        self._store = store
        self._shelf = Shelf(ttl_s, stored_bytes, unstored_bytes)
        self._implicit_ttl_s = implicit_ttl_s
        self._clock = clock
        self._live: WeakValueDictionary[Key, Session] = WeakValueDictionary()
        self._by_uids: WeakValueDictionary[str, Session] = WeakValueDictionary()
        """The same, and those that are gone for as long as anybody holds them."""
        self._locks: WeakValueDictionary[Key, anyio.Lock] = WeakValueDictionary()
        self._unsettled: dict[Key, set[asyncio.Future[None]]] = {}
        """Commits of which nobody knows yet whether they were kept."""

    @property
    def in_memory(self) -> int:
        """How many sessions are in memory."""
        return len(self._live)

    def nbytes(self) -> dict[str, int]:
        """About what the sessions in memory take, by whether the store has them too."""
        return self._shelf.nbytes()

    async def get(self, principal: str, id: str) -> Session | None:
        """The principal's session of this id; using an implicit one prolongs its time."""
        async with self._lock((principal, id)):
            return await self._get(principal, id)

    async def get_or_create(self, principal: str, id: str, *, stored: bool = True) -> Session:
        """The session of this id, made where there is none, which is in the store with its first commit.

        `stored` is for one that is made.

        Raises:
            InvalidRequest: the id has characters that an id cannot have.
            Overloaded: too many sessions are kept in memory only.
        """
        checked_session_id(id, "session_id")
        async with self._lock((principal, id)):
            session = await self._get(principal, id)
            if session is None:
                if not stored:
                    self._shelf.expect_room(principal, self._clock())
                return self._make(principal, id, implicit=False, user=None, stored=stored)
            return session

    def new(self, principal: str, *, implicit: bool = True, user: str | None = None, stored: bool = True) -> Session:
        """A session with an id of our making, not in the store before the first commit that saves it.

        Raises:
            Overloaded: the memory for sessions that are not stored is full of such that are at work.
        """
        if not stored:
            self._shelf.expect_room(principal, self._clock())
        return self._make(principal, f"session-{uuid4().hex}", implicit=implicit, user=user, stored=stored)

    async def match(
        self,
        principal: str,
        user: str | None,
        request: Told,
        fetch: Callable[[str, str], Awaitable[Session | None]] | None = None,
    ) -> tuple[Session, int] | None:
        """The stored session that a request without an id repeats, and how many of its items.

        `fetch` gets a session through its owner, by principal and id; without it nobody else may use this object.
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
            session = await self._by_uid(uid, fetch or self.get)
            if session is None:
                continue
            if match.fits(session.items, session.trace, request):
                whole[uid] = (session, len(session.items))
            elif at < len(session.items) and match.fits(session.items, session.trace, request, at):
                further.append((session, at))
        if whole:
            return next(iter(whole.values())) if len(whole) == 1 else None
        starts = [session.items[:at] for session, at in further]
        return further[0] if further and all(start == starts[0] for start in starts) else None

    async def keep(self, draft: Draft, *changes: Beside) -> None:
        """Commit a draft with what belongs beside it, and let the session be what it says. Cancelling does not stop it.

        Raises:
            NotFound: the session has been deleted, or its time was over; nothing is kept.
            StoreFailed, Overloaded: nothing is kept, and the session is as it was.
            CommitUnsettled: nobody knows; this object of the session is given up.
        """
        session = draft.session
        if (look := draft.trace_apart()) is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(look)
        self._expect_live(session)
        if draft.saves:
            draft.ahead.updated_at = self._clock()
            self._prolong(draft.ahead)
        if session.stored:
            await self._commit(session, *draft.changes(), *changes)
        draft.apply()
        self._used(session)

    def notes(self, uid: str) -> Mapping[str, str]:
        """The notes of a session that is at work. Raises NotFound where it is gone."""
        return self._at_work(uid).notes

    async def put_note(self, uid: str, key: str, text: str) -> None:
        """Keep a note of a session that is at work. A draft of it may be open: notes are no part of one.

        Raises:
            NotesFull: there is no room for it.
            NotFound and the others: as `keep` does.
        """
        session = self._at_work(uid)
        async with self._lock((session.principal, session.id)):
            self._expect_live(session)
            expect_room(session.notes, key, text)
            if session.stored:
                await self._commit(session, PutNote(uid, key, text))
            session.notes[key] = text
            self._used(session)

    def _at_work(self, uid: str) -> Session:
        session = self._by_uids.get(uid)
        if session is None or not session.is_kept:
            raise NotFound("session", uid)
        self._expect_live(session)
        return session

    def _expect_live(self, session: Session) -> None:
        if self._live.get((session.principal, session.id)) is not session:
            raise NotFound("session", session.id)

    def _found(self, key: Key) -> Session | None:
        """The session in memory; one that was never committed is none, whoever still holds it."""
        session = self._live.get(key)
        return session if session is not None and session.is_kept else None

    def _used(self, session: Session) -> None:
        session.is_kept = True
        if session.stored:
            self._list(session)
        if self._live.get((session.principal, session.id)) is session:
            self._shelf.put(session, self._clock())

    async def _commit(self, session: Session, *changes: Change) -> None:
        """Wait for a commit until its outcome is known. If it stays unknown, the session is given up as it is here."""
        outcome = self._store.begin(*changes)
        try:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_COMMIT_S):
                await asyncio.shield(outcome)
                return
        except BaseException as error:
            if not isinstance(error, TenutoError) or isinstance(error, CommitUnsettled):
                self._give_up(session, outcome)
            raise
        self._give_up(session, outcome)
        raise CommitUnsettled(
            f"the store did not answer within {_COMMIT_S:g} s; whether this was kept is not known yet"
        )

    def _give_up(self, session: Session, outcome: asyncio.Future[None]) -> None:
        key = (session.principal, session.id)
        self._forget(self._live.get(key, session))  # an import may have been in the place of another
        if not outcome.done():
            self._unsettled.setdefault(key, set()).add(outcome)

    async def delete(self, principal: str, id: str) -> str:
        """Delete a session with all that belongs to it, also one that cannot be read; gives its uid.

        Its open run, if any, is the caller's to cancel before.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        async with self._lock((principal, id)):
            session = self._found((principal, id))
            uid = await self._store.uid(principal, id) if session is None else session.uid
            if uid is None:
                raise NotFound("session", id)
            await self._erase(uid, session)
            if session is None or session.listed:
                self._tell(principal)
            return uid

    async def _erase(self, uid: str, session: Session | None) -> None:
        """Delete from the store and from memory, or from neither; where nobody knows, it is read again."""
        try:
            if session is None or session.stored:
                await self._store.commit(DeleteSession(uid))
        except StoreFailed as error:
            if session is not None and isinstance(error, CommitUnsettled):
                self._forget(session)
            raise
        if session is not None:
            self._forget(session)

    async def raw(self, principal: str, id: str) -> dict[str, Any]:
        """All that the store has of a session, as it is; also of one that cannot be read.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        uid = await self._store.uid(principal, id)
        if uid is None:
            raise NotFound("session", id)
        return await self._store.raw(uid)

    async def list(
        self, principal: str, implicit: bool = False, *, limit: int = 100, after: str | None = None
    ) -> list[SessionSummary]:
        """The principal's stored sessions, newest first; `after` is the last id of the page before."""
        return await self._store.sessions(principal, implicit=implicit, limit=limit, after=after)

    def twin(
        self, session: Session, at: int | None = None, new_id: str | None = None, *, implicit: bool | None = None
    ) -> Session:
        """A copy of completed items with tokens and notes, not approvals; nobody finds it before it is added or held.

        `at`: how many items at most (default: up to the end of the last completed turn); a round whose calls are not
        all answered is left out. Without `new_id` it is implicit where its origin is.

        Raises:
            InvalidRequest: `at` or `new_id` is not valid.
        """
        if new_id is not None:
            checked_session_id(new_id, "new_id")
        if at is not None and not 0 <= at <= len(session.items):
            raise InvalidRequest(f"at is {at}; the session has {len(session.items)} items", "at")
        keep = last_completed_turn(session.items) if at is None else completed(session.items, at)
        now = self._clock()
        twin = Session(
            uid=new_uid(now),
            principal=session.principal,
            id=new_id or f"session-{uuid4().hex}",
            created_at=now,
            updated_at=now,
            implicit=session.implicit and new_id is None if implicit is None else implicit,
            stored=session.stored,
            user=session.user,
            parent=Parent(session.uid, keep),
            items=session.items[:keep],
            ledgers={name: ledger.copy(keep) for name, ledger in session.ledgers.items()},
            server_tools=session.server_tools,
            notes={**session.notes},
            trace=session.trace.copy(),
        )
        self._prolong(twin)
        return twin

    async def add(self, session: Session) -> None:
        """Commit a session that is new, then let it be found.

        Raises:
            Conflict: there is a session of its id.
            Overloaded: too many sessions are kept in memory only.
        """
        async with self._lock((session.principal, session.id)):
            if await self._get(session.principal, session.id) is not None:
                raise Conflict(f"there is a session {session.id!r} already")
            if not session.stored:
                self._shelf.expect_room(session.principal, self._clock())
            await self._add(session, whole(session))

    def hold(self, session: Session) -> None:
        """Let a session be committed to that is not in the store before its first commit; `whole` has what is first."""
        self._live[session.principal, session.id] = self._by_uids[session.uid] = session

    async def install(self, session: Session) -> str | None:
        """Keep an imported session in place of the one that has its id, even if that cannot be read; gives its uid.

        Raises:
            InvalidRequest: its id is not valid.
            SessionBusy: the one that has its id has an open run.
        """
        checked_session_id(session.id, "session_id")
        async with self._lock((session.principal, session.id)):
            old = await self._uid_to_replace(session)
            changes = [] if old is None else [DeleteSession(old)]
            await self._add(session, [*changes, *whole(session)])
            return old

    async def _uid_to_replace(self, session: Session) -> str | None:
        try:
            old = await self._get(session.principal, session.id)
        except SessionDamaged:
            return await self._store.uid(session.principal, session.id)
        if old is not None and old.open_run is not None:
            raise SessionBusy(old.id, old.open_run)
        return None if old is None else old.uid

    async def overdue(self) -> Sequence[Key]:
        """Some stored sessions whose time is over."""
        return await self._store.expired(self._clock())

    async def expire(self, principal: str, id: str) -> str | None:
        """Delete a session if its time is over; its uid if it was."""
        now = self._clock()
        async with self._lock((principal, id)):
            session = self._found((principal, id))
            if session is not None and not _is_over(session, now):
                return None
            uid = await self._store.expired_uid(principal, id, now)
            if uid is not None:
                await self._erase(uid, session)
            return uid

    async def tidy(self) -> None:
        """Let what is over go: idle sessions from memory, old Idempotency-Keys from the store."""
        self._shelf.trim(self._clock())
        await self._store.expire_keys(self._clock())

    async def _by_uid(self, uid: str, fetch: Callable[[str, str], Awaitable[Session | None]]) -> Session | None:
        address = await self._store.address(uid)
        session = await fetch(*address) if address else None
        return session if session is not None and session.uid == uid else None

    async def _add(self, session: Session, changes: Sequence[Change]) -> None:
        """Commit a session that is new, then let it be found. The caller holds the lock of its id."""
        if session.stored:
            await self._commit(session, *changes)
        key = (session.principal, session.id)
        if (old := self._live.get(key)) is not None:
            self._forget(old)
        self.hold(session)
        self._used(session)

    async def _get(self, principal: str, id: str) -> Session | None:
        key = (principal, id)
        session = self._found(key)
        if session is None:
            await self.settle(principal, id)
            session = await self._store.session(principal, id)
            if session is None:
                return None
            session.listed, session.is_kept = not session.implicit, True
            self.hold(session)
            self._shelf.put(session, self._clock())
        now = self._clock()
        if _is_over(session, now):
            await self._erase(session.uid, session)
            return None
        if self._is_to_be_prolonged(session, now):
            draft = Draft(session)
            draft.save()
            await self.keep(draft)
        self._shelf.touch(session, now)
        return session

    async def settle(self, principal: str, id: str) -> None:
        """Wait for the outcome of a commit that nobody knew; nothing of the session is read before it is known.

        Raises:
            CommitUnsettled: it is not known yet.
        """
        key = (principal, id)
        outcomes = self._unsettled.get(key)
        if outcomes is None:
            return
        with anyio.move_on_after(_COMMIT_S):
            await asyncio.wait(outcomes)
        if not all(outcome.done() for outcome in outcomes):
            raise CommitUnsettled(f"the store has not answered yet what became of the last change of {key[1]!r}")
        self._unsettled.pop(key, None)
        for outcome in outcomes:
            outcome.exception()  # whoever began it has been told that it is not known

    def _is_to_be_prolonged(self, session: Session, now: float) -> bool:
        return (
            session.stored
            and session.open_run is None
            and session.expires_at is not None
            and session.expires_at < now + self._implicit_ttl_s - _REFRESH_S
        )

    def _make(self, principal: str, id: str, *, implicit: bool, user: str | None, stored: bool) -> Session:
        now = self._clock()
        session = Session(new_uid(now), principal, id, now, now, implicit=implicit, stored=stored, user=user)
        self._prolong(session)
        # Held by its maker alone before its first commit: a refused request leaves nothing behind.
        self.hold(session)
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
        tell(self.watchers, principal)

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


def _is_over(session: Session, now: float) -> bool:
    return session.expires_at is not None and session.expires_at <= now and session.open_run is None
