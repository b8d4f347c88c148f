"""The sessions of this process: one object for each that is in use, loaded from the store and let go when idle."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
import anyio.to_thread

from tenuto.errors import CommitUnsettled, Conflict, NotFound, SessionBusy, SessionDamaged, StoreFailed
from tenuto.sessions import match
from tenuto.sessions.candidates import candidates
from tenuto.sessions.changes import Beside, Change, DeleteSession, Describe, PutNote, whole
from tenuto.sessions.commits import Commits
from tenuto.sessions.draft import Draft
from tenuto.sessions.expiry import Expiry, is_over
from tenuto.sessions.fork import forked
from tenuto.sessions.ids import checked_new_session_id, checked_session_id, new_hex
from tenuto.sessions.live import LiveSessions
from tenuto.sessions.locks import Locks
from tenuto.sessions.notes import expect_room
from tenuto.sessions.recent import STORED_BYTES, UNSTORED_BYTES, RecentSessions
from tenuto.sessions.records import SessionSummary
from tenuto.sessions.request_items import RequestItems
from tenuto.sessions.session import Key, Session, new_uid
from tenuto.sessions.storage.store import Store
from tenuto.sessions.watchers import notify


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
        """RequestItems of a principal whenever the list of its named sessions is another one."""
        self.gone: list[Callable[[str], None]] = []
        """Told the uid of each session that is deleted, or is let go from memory."""
        self._store = store
        self._clock = clock
        self._expiry = Expiry(implicit_ttl_s)
        self._live = LiveSessions(
            RecentSessions(ttl_s, stored_bytes, unstored_bytes, lambda uid: notify(self.gone, uid)), clock
        )
        self._commits = Commits(store, self._live.forget_key)
        self._locks: Locks[Key] = Locks()

    @property
    def in_memory(self) -> int:
        """How many sessions are in memory."""
        return len(self._live)

    def nbytes(self) -> dict[str, int]:
        """About what the sessions in memory take, by whether the store has them too."""
        return self._live.nbytes()

    async def get(self, principal: str, id: str) -> Session | None:
        """The principal's session of this id; using an implicit one prolongs its time."""
        async with self._locks.of((principal, id)):
            return await self._get(principal, id)

    async def get_or_create(self, principal: str, id: str, *, stored: bool = True) -> Session:
        """The session of this id, made where there is none, which is in the store with its first commit.

        `stored` is for one that is made.

        Raises:
            InvalidRequest: the id has characters that an id cannot have.
            Overloaded: too many sessions are kept in memory only.
        """
        checked_session_id(id, "session_id")
        async with self._locks.of((principal, id)):
            session = await self._get(principal, id)
            if session is None:
                checked_new_session_id(id, "session_id")
                return self._make(principal, id, implicit=False, user=None, stored=stored)
            return session

    def new(self, principal: str, *, implicit: bool = True, user: str | None = None, stored: bool = True) -> Session:
        """A session with an id of our making, not in the store before the first commit that saves it.

        Raises:
            Overloaded: the memory for sessions that are not stored is full of such that are at work.
        """
        return self._make(principal, f"session-{new_hex()}", implicit=implicit, user=user, stored=stored)

    async def match(
        self,
        principal: str,
        user: str | None,
        request: RequestItems,
        fetch: Callable[[str, str], Awaitable[Session | None]] | None = None,
        *,
        hint: str | None = None,
        stored: bool = True,
    ) -> tuple[Session, int] | None:
        """The session that a request without an id repeats, and how many of its items; `hint`: its client's.

        It is a stored one, or one in memory only. `fetch` gets a session through its owner, by principal and id;
        without it nobody else may use this object.
        """
        found = []
        digests = match.prefix_digests(request)
        for uid, key, at in await candidates(self._store, self._live, principal, user, digests, stored=stored):
            session = await (fetch or self.get)(*key)
            if session is not None and session.uid == uid:
                found.append((session, at))
        return match.choose(found, request, hint)

    async def commit(self, draft: Draft, *changes: Beside) -> None:
        """Commit a draft with what belongs beside it, and let the session be what it says. Cancelling does not stop it.

        Raises:
            NotFound: the session has been deleted, or its time was over; nothing is kept.
            StoreFailed, Overloaded: nothing is kept, and the session is as it was.
            CommitUnsettled: nobody knows; this object of the session is given up.
        """
        session = draft.session
        if (look := draft.follow_apart()) is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(look)
        self._live.expect(session)
        if draft.saves:
            draft.ahead.updated_at = self._clock()
            self._expiry.prolong(draft.ahead, draft.ahead.updated_at)
        if session.stored:
            await self._commits.make(session.key, *draft.changes(), *changes)
        draft.apply()
        self._used(session)

    def notes(self, uid: str) -> Mapping[str, str]:
        """The notes of a session that is at work. Raises NotFound where it is gone."""
        return self._live.by_uid(uid).notes

    async def put_note(self, uid: str, key: str, text: str) -> None:
        """Keep a note of a session that is at work. A draft of it may be open: notes are no part of one.

        Raises:
            NotesFull: there is no room for it.
            NotFound and the others: as `commit` does.
        """
        session = self._live.by_uid(uid)
        async with self._locks.of(session.key):
            self._live.expect(session)
            expect_room(session.notes, key, text)
            if session.stored:
                await self._commits.make(session.key, PutNote(uid, key, text))
            session.notes[key] = text
            self._used(session)

    async def describe(self, session: Session, metadata: Mapping[str, str]) -> None:
        """Keep what a session's client keeps with it, which is no part of a draft either. Raises as `commit` does."""
        async with self._locks.of(session.key):
            self._live.expect(session)
            if session.stored:
                await self._commits.make(session.key, Describe(session.uid, metadata))
            session.metadata = metadata
            self._used(session)

    def _used(self, session: Session) -> None:
        """A session has been committed."""
        session.is_committed = True
        if session.stored and not session.implicit and not session.listed:
            session.listed = True
            notify(self.watchers, session.principal)
        self._live.used(session)

    async def delete(self, principal: str, id: str) -> str:
        """Delete a session with all that belongs to it, also one that cannot be read; gives its uid.

        Its open run, if any, is the caller's to cancel before.

        Raises:
            NotFound: there is none, or it is another principal's.
        """
        async with self._locks.of((principal, id)):
            session = self._live.find((principal, id))
            uid = await self._store.uid(principal, id) if session is None else session.uid
            if uid is None:
                raise NotFound("session", id)
            await self._erase(uid, session)
            if session is None or session.listed:
                notify(self.watchers, principal)
            return uid

    async def _erase(self, uid: str, session: Session | None) -> None:
        """Delete from the store and from memory, or from neither; where nobody knows, it is read again."""
        try:
            if session is None or session.stored:
                await self._store.commit(DeleteSession(uid))
        except StoreFailed as error:
            if session is not None and isinstance(error, CommitUnsettled):
                self._live.forget(session)
            raise
        if session is not None:
            self._live.forget(session)

    async def list(
        self, principal: str, implicit: bool = False, *, limit: int = 100, after: str | None = None
    ) -> list[SessionSummary]:
        """The principal's stored sessions, newest first; `after` is the last id of the page before."""
        return await self._store.sessions(principal, implicit=implicit, limit=limit, after=after)

    def fork(
        self,
        session: Session,
        at: int | None = None,
        new_id: str | None = None,
        *,
        implicit: bool | None = None,
        stored: bool | None = None,
    ) -> Session:
        """A fork as `forked` makes it; nobody finds it before it is added or registered.

        Raises:
            InvalidRequest: `at` or `new_id` is not valid.
        """
        now = self._clock()
        fork = forked(session, now, at, new_id, implicit=implicit, stored=stored)
        self._expiry.prolong(fork, now)
        return fork

    async def add(self, session: Session) -> None:
        """Commit a session that is new, then let it be found.

        Raises:
            Conflict: there is a session of its id.
            Overloaded: too many sessions are kept in memory only.
        """
        async with self._locks.of(session.key):
            if await self._get(session.principal, session.id) is not None:
                raise Conflict(f"there is a session {session.id!r} already")
            if not session.stored:
                self._live.expect_room(session.principal)
            await self._add(session, whole(session))

    def register(self, session: Session) -> None:
        """Let a session be committed to that is not in the store before its first commit; `whole` has what is first.

        Raises:
            Overloaded: it is in memory only, and the memory for such is full of those that are at work.
        """
        if not session.stored:
            self._live.expect_room(session.principal)
        self._live.add(session)

    async def install(self, session: Session) -> str | None:
        """Keep an imported session in place of the one that has its id, even if that cannot be read; gives its uid.

        Raises:
            InvalidRequest: its id is not valid.
            SessionBusy: the one that has its id has an open run.
        """
        checked_new_session_id(session.id, "session_id")
        async with self._locks.of(session.key):
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
        async with self._locks.of((principal, id)):
            session = self._live.find((principal, id))
            if session is not None and not is_over(session, now):
                return None
            uid = await self._store.expired_uid(principal, id, now)
            if uid is not None:
                await self._erase(uid, session)
            return uid

    async def tidy(self) -> None:
        """Let what is over go: idle sessions from memory, old Idempotency-Keys from the store."""
        self._live.trim()
        await self._store.expire_keys(self._clock())

    async def _add(self, session: Session, changes: Sequence[Change]) -> None:
        """Commit a session that is new, then let it be found. The caller holds the lock of its id."""
        if session.stored:
            await self._commits.make(session.key, *changes)
        self._live.forget_key(session.key)
        self.register(session)
        self._used(session)

    async def _get(self, principal: str, id: str) -> Session | None:
        key = (principal, id)
        session = self._live.find(key)
        if session is None:
            await self._commits.settle(key)
            session = await self._store.session(principal, id)
            if session is None:
                return None
            session.listed, session.is_committed = not session.implicit, True
            self.register(session)
            self._live.used(session)
        now = self._clock()
        if is_over(session, now):
            await self._erase(session.uid, session)
            return None
        if self._expiry.is_to_be_prolonged(session, now):
            draft = Draft(session)
            draft.save()
            await self.commit(draft)
        self._live.touch(session)
        return session

    async def settle(self, principal: str, id: str) -> None:
        """Wait for the outcome of a commit that nobody knew; nothing of the session is read before it is known.

        Raises:
            CommitUnsettled: it is not known yet.
        """
        await self._commits.settle((principal, id))

    def _make(self, principal: str, id: str, *, implicit: bool, user: str | None, stored: bool) -> Session:
        now = self._clock()
        session = Session(new_uid(now), principal, id, now, now, implicit=implicit, stored=stored, user=user)
        self._expiry.prolong(session, now)
        # Held by its maker alone before its first commit: a refused request leaves nothing behind.
        self.register(session)
        return session
