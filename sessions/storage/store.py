"""The durable store of sessions, runs, calls, pauses, keys and notes. Awaited from event loops; SQL is elsewhere."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, Self, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from tenuto.errors import CommitUnsettled, Overloaded, StoreFailed
from tenuto.sessions.changes import Change
from tenuto.sessions.records import (
    CallRecord,
    KeyRecord,
    LegRecord,
    OpenRun,
    PauseRecord,
    RunRecord,
    SessionSummary,
    UnfinishedLeg,
)
from tenuto.sessions.session import Session
from tenuto.sessions.storage import leg_reads, pause_reads, reads
from tenuto.sessions.storage.bases import Bases
from tenuto.sessions.storage.database import READERS, Database
from tenuto.sessions.storage.writable import Writable
from tenuto.sessions.storage.writer import QUEUE_LIMIT, Writer
from tenuto.sessions.storage.writes import (
    TRIAL,
    Write,
    expiring_keys,
    merged,
    statements,
    sweeping,
    taken,
    trying,
    weight,
    writes,
)
from tenuto.threads import Drive, Thread

_WAITING_READS = 1000
_EXPIRED_AT_ONCE = 100
_SWEPT_AT_ONCE = 500
_TRY_AGAIN_S = 2.0

T = TypeVar("T")


class Store:
    """Everything that outlives the process. Its coroutines run on any one event loop, `open` and `close` block.

    Reads see every commit that has returned, and each read sees one state of the database.

    Every coroutine raises StoreFailed where the database fails, Overloaded where too many wait for it.
    """

    def __init__(self, database: Database, queue_limit: int = QUEUE_LIMIT, drive: Drive = Thread) -> None:
        self._database = database
        self._statements = statements(database.dialect)
        self._writable = Writable()
        self._writer = Writer(self._write, queue_limit, drive)
        self._readers = anyio.CapacityLimiter(READERS)
        self._reading = 0
        self._bases = Bases()
        self._swept = ""

    @classmethod
    def open(cls, url: str, *, durability: str = "process") -> Self:
        """Open the database at an SQLAlchemy URL and bring its tables up to date. Blocking.

        `durability`: `process` keeps every commit when the process dies, `full` also when the power fails.

        Raises:
            ConfigurationError: the URL or the database cannot be used.
        """
        return cls(Database(url, durability))

    async def commit(self, *changes: Change) -> None:
        """Keep all changes or none; return when they are durable. Cancelling the wait does not take them back.

        Values are taken before the first wait, so what is changed afterwards is not part of it.

        Raises:
            Overloaded: too many commits wait; nothing was kept.
            StoreFailed: nothing was kept.
            CommitUnsettled: the database was lost in the commit, and nobody knows.
        """
        await asyncio.shield(self.begin(*changes))

    def begin(self, *changes: Change) -> asyncio.Future[None]:
        """Queue a commit, with its values as they are now; the future has what becomes of it.

        It fails with StoreFailed: nothing was kept; or CommitUnsettled: nobody knows. Raises what `commit` does, where
        it is not even queued.
        """
        try:
            values = [value for change in changes for value in taken(change)]
        except Exception as exc:
            raise StoreFailed(f"a change cannot be written: {exc}") from exc
        if values:
            return self._writer.begin(partial(writes, values, self._bases))
        nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        nothing.set_result(None)
        return nothing

    async def session(self, principal: str, id: str) -> Session | None:
        """A whole session by what its client calls it."""
        return await self._read(lambda connection: reads.session(connection, principal, id))

    async def session_by_uid(self, uid: str) -> Session | None:
        """A whole session by its uid."""
        return await self._read(lambda connection: reads.session_by_uid(connection, uid))

    async def address(self, uid: str) -> tuple[str, str] | None:
        """The principal and id of a session."""
        return await self._read(lambda connection: reads.address(connection, uid))

    async def sessions(
        self, principal: str, *, implicit: bool = False, limit: int = 100, after: str | None = None
    ) -> list[SessionSummary]:
        """A principal's sessions, newest first, the implicit ones where asked for; `after` is the last id seen.

        Raises:
            InvalidRequest: there is no session `after`.
        """
        return await self._read(
            lambda connection: reads.summaries(connection, principal, implicit=implicit, limit=limit, after=after)
        )

    async def run(self, run_id: str) -> RunRecord | None:
        """A run by its id."""
        return await self._read(lambda connection: reads.run(connection, run_id))

    async def leg(self, id: str) -> LegRecord | None:
        """A leg by its id."""
        return await self._read(lambda connection: leg_reads.leg(connection, id))

    async def told(self, leg_id: str) -> list[str]:
        """What a leg has told, in the pieces in which it was kept."""
        return await self._read(lambda connection: leg_reads.told(connection, leg_id))

    async def unfinished_leg(self, run_id: str) -> UnfinishedLeg | None:
        """The leg of a run that was under way when its process ended, where it is one that goes on."""
        return await self._read(lambda connection: leg_reads.unfinished(connection, run_id))

    async def open_runs(self) -> list[OpenRun]:
        """Where to find each run that may still go on, the oldest first."""
        return await self._read(reads.open_runs)

    async def raw(self, uid: str) -> dict[str, Any]:
        """All rows of a session as they are, as JSON values: what can be had of one that makes no whole."""
        return await self._read(lambda connection: reads.raw(connection, uid))

    async def uid(self, principal: str, id: str) -> str | None:
        """The uid of a session, which may be one that cannot be read."""
        return await self._read(lambda connection: reads.uid(connection, principal, id))

    async def session_runs(self, uid: str) -> list[RunRecord]:
        """All runs of a session, the oldest first."""
        return await self._read(lambda connection: reads.session_runs(connection, uid))

    async def run_ids(self, uid: str, limit: int) -> list[str]:
        """The ids of so many runs of a session, the newest first."""
        return await self._read(lambda connection: leg_reads.run_ids(connection, uid, limit))

    async def calls(self, run_id: str) -> list[CallRecord]:
        """A run's calls, by round and position."""
        return await self._read(lambda connection: reads.calls(connection, run_id))

    async def pause(self, pause_id: str) -> PauseRecord | None:
        """An approval or question by its id."""
        return await self._read(lambda connection: pause_reads.pause(connection, pause_id))

    async def run_pauses(self, run_id: str) -> list[PauseRecord]:
        """All approvals and questions of a run, the oldest first."""
        return await self._read(lambda connection: pause_reads.run_pauses(connection, run_id))

    async def open_questions(self, principal: str, most: int) -> list[PauseRecord]:
        """What a principal's runs ask a person, the oldest first."""
        return await self._read(lambda connection: pause_reads.open_questions(connection, principal, most))

    async def open_pauses(self) -> list[PauseRecord]:
        """All approvals and questions that wait for an answer, the oldest first."""
        return await self._read(pause_reads.open_pauses)

    async def key(self, principal: str, key: str) -> KeyRecord | None:
        """What an Idempotency-Key stands for, even past its time while it is kept."""
        return await self._read(lambda connection: reads.key(connection, principal, key))

    async def notes(self, scope: str) -> dict[str, str]:
        """All notes of a scope, in the order in which their keys were first written."""
        return await self._read(lambda connection: reads.notes(connection, scope))

    async def candidates(self, principal: str, user: str | None, digests: Sequence[str]) -> list[tuple[str, int]]:
        """The sessions that have the first of `digests` that any has, and how many of their items it names.

        First those of which it names all, at most 16, then some of which it names all up to the end of a turn.
        """
        return await self._read(lambda connection: reads.candidates(connection, principal, user, digests))

    async def expired(self, now: float) -> list[tuple[str, str]]:
        """The principal and id of some sessions that are past their time and have no open run, the oldest first."""
        return await self._read(lambda connection: reads.expired(connection, now, _EXPIRED_AT_ONCE))

    async def expired_uid(self, principal: str, id: str, now: float) -> str | None:
        """The uid of a session, if it is past its time and has no open run."""
        return await self._read(lambda connection: reads.expired_uid(connection, principal, id, now))

    async def expire_keys(self, now: float) -> None:
        """Delete the Idempotency-Keys that are past their time."""
        await self._writer.commit(expiring_keys(now))

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written for now; None where it can."""
        return self._writable.trouble

    def expect_to_write(self) -> None:
        """Raises StoreUnavailable while nothing can be written, for those who would rather not begin then."""
        self._writable.check()

    async def keep_trying(self) -> NoReturn:
        """While nothing can be written, see every now and then whether it can again. Until cancelled."""
        while True:
            await anyio.sleep(_TRY_AGAIN_S)
            if self._writable.trouble is not None:
                with suppress(StoreFailed, Overloaded):
                    await self._writer.commit(trying(self._writable.size))
                    await self._writer.commit(sweeping([TRIAL]))

    async def sweep(self) -> None:
        """Delete what repeats no more: some of the blobs are looked at, the next ones when it is called again.

        The room that was freed by what has been deleted goes back to the disk, a part of it each time.
        """
        some = await self._read(lambda connection: reads.blobs_after(connection, self._swept, _SWEPT_AT_ONCE))
        self._swept = some[-1] if len(some) == _SWEPT_AT_ONCE else ""
        await self._writer.commit(sweeping(some))
        try:
            await anyio.to_thread.run_sync(self._database.shrink, limiter=self._readers)
        except (SQLAlchemyError, sqlite3.Error) as exc:
            raise StoreFailed(f"the store could not be made smaller: {getattr(exc, 'orig', None) or exc}") from exc

    def close(self) -> None:
        """Write what is queued and close the database. Blocking; more than once is fine."""
        self._writer.close()
        self._database.close()

    def _write(self, commits: Sequence[Sequence[Write]]) -> None:
        together = merged(commits)
        try:
            with self._database.writing() as connection:
                for write in together:
                    connection.execute(self._statements[write.statement], write.rows)
        except Exception as exc:
            cause = exc.__cause__ if isinstance(exc, CommitUnsettled) else exc
            self._writable.failed(cause, sum(map(weight, together)))
            raise
        self._writable.wrote()

    async def _read(self, question: Callable[[Connection], T]) -> T:
        def ask() -> T:
            with self._database.reading() as connection:
                return question(connection)

        if self._reading >= _WAITING_READS:
            raise Overloaded("the queue for the store", 1.0)
        self._reading += 1
        try:
            return await anyio.to_thread.run_sync(ask, limiter=self._readers)
        except (SQLAlchemyError, ValueError, TypeError, KeyError) as exc:  # the database, or what was read from it
            raise StoreFailed(f"the store could not be read: {getattr(exc, 'orig', None) or exc}") from exc
        finally:
            self._reading -= 1
