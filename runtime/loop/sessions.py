"""What is done with sessions and with runs that do not work, each as a command to the session's owner."""

import logging
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from tenuto.errors import NotFound, Overloaded, RunUnreadable, SessionBusy, SessionDamaged, StoreFailed
from tenuto.runtime.loop.intake import Found
from tenuto.runtime.loop.kept_caches import KeptCaches
from tenuto.runtime.loop.owners import Key, Owners
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.run import STOP_S, Run
from tenuto.runtime.loop.run_states import RunTrigger
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.sessions import transfer
from tenuto.sessions.changes import whole
from tenuto.sessions.match import fits
from tenuto.sessions.records import RunStatus
from tenuto.sessions.session import Session

logger = logging.getLogger(__name__)


class Sessions:
    """The commands. Event-loop thread only; whoever calls them may leave, and what has begun comes to its end.

    `caches` are told of each session that is gone, of which no model keeps anything then.
    """

    def __init__(self, services: Services, runs: Runs, owners: Owners, caches: KeptCaches) -> None:
        self._directory, self._clock = services.directory, services.clock
        self._store, self._runs, self._owners = services.store, runs, owners
        self._caches = caches

    async def fetch(self, principal: str, id: str) -> Session | None:
        """A session, to be read."""
        return await self._owners.ask((principal, id), partial(self._directory.get, principal, id))

    async def branch(self, turn: Turn, session: Session, at: int) -> Found | None:
        """A fork of a session where a turn leaves it, to be kept as the turn is; None if that place is no more."""
        return await self._owners.ask((session.principal, session.id), partial(self._branch, turn, session, at))

    async def _branch(self, turn: Turn, session: Session, at: int) -> Found | None:
        there = await self._directory.get(session.principal, session.id) is session
        if not there or not fits(session.items, session.history, turn.request_items, at):
            return None
        fork = self._directory.fork(session, at, implicit=True, stored=turn.is_stored)
        self._directory.register(fork)
        return Found(fork, whole(fork))

    async def fork(self, principal: str, id: str, at: int | None, new_id: str | None) -> Session:
        """A session of its own over completed items, with the notes. Raises NotFound, InvalidRequest, Conflict."""
        fork = await self._owners.ask((principal, id), partial(self._forked, principal, id, at, new_id))
        await self._owners.ask((principal, fork.id), partial(self._directory.add, fork))
        return fork

    async def _forked(self, principal: str, id: str, at: int | None, new_id: str | None) -> Session:
        return self._directory.fork(await self.expect(principal, id), at, new_id)

    async def snapshot(self, principal: str, id: str) -> Session:
        """A session as it is now, to be exported. Raises NotFound, SessionDamaged."""
        return await self._owners.ask((principal, id), partial(self._snapshot, principal, id))

    async def _snapshot(self, principal: str, id: str) -> Session:
        return transfer.snapshot(await self.expect(principal, id))

    async def raw(self, principal: str, id: str) -> dict[str, Any]:
        """All rows of a session as they are. Raises NotFound."""
        return await self._owners.ask((principal, id), partial(self._raw, principal, id))

    async def _raw(self, principal: str, id: str) -> dict[str, Any]:
        uid = await self._store.uid(principal, id)
        if uid is None:
            raise NotFound("session", id)
        return await self._store.raw(uid)

    async def install(self, session: Session) -> None:
        """Put a session in the place of the one of its id. Raises SessionBusy."""
        await self._owners.ask((session.principal, session.id), partial(self._install, session))

    async def _install(self, session: Session) -> None:
        with suppress(SessionDamaged):
            old = await self._directory.get(session.principal, session.id)
            if old is not None:
                await self._close_unkept(old)
        replaced = await self._directory.install(session)
        if replaced is not None:
            await self._caches.forget_in_time(replaced)

    async def delete(self, principal: str, id: str) -> None:
        """Delete a session, also one that cannot be read; its open run is cancelled first.

        Raises:
            NotFound: there is none.
            StoreFailed: it is still there, or something of it is.
        """
        await self._owners.ask((principal, id), partial(self._delete, principal, id))

    async def _delete(self, principal: str, id: str) -> None:
        session: Session | None = None
        with suppress(SessionDamaged, NotFound):
            session = await self._directory.get(principal, id)
            if session is not None and session.open_run is not None:
                with suppress(StoreFailed):  # an end that cannot be kept goes with the session
                    await self._cancel(session.open_run)
        if session is not None and not session.stored:
            self._caches.release(session.uid)
        elif (uid := session.uid if session is not None else await self._store.uid(principal, id)) is not None:
            await self._caches.forget(uid)  # before: who is told that it is gone is told so of all
        await self._directory.delete(principal, id)
        self._runs.forget(principal, id)

    async def cancel(self, run: Run) -> Run:
        """Stop a run, whether it works or waits; give it when it has ended."""
        return await self._owners.ask((run.record.principal, run.session_id), partial(self._cancel, run.id))

    async def _cancel(self, run_id: str) -> Run:
        run = await self._runs.find(run_id)
        with anyio.move_on_after(STOP_S):
            await run.stop(run.leg)
        if run.working:
            raise SessionBusy(run.session_id, run.id)
        if run.is_in_doubt:
            run = await self._runs.find(run_id)
        if run.record.status.is_open:
            await self._close(run, RunTrigger.CANCEL)
        return run

    async def expire(self) -> None:
        """Delete the sessions whose time is over."""
        gone: list[Key] = []
        while overdue := await self._directory.overdue():
            before = len(gone)
            async with anyio.create_task_group() as group:
                for key in overdue:
                    group.start_soon(self._expire, key, gone)
            if len(gone) == before:
                break

    async def _expire(self, key: Key, gone: list[Key]) -> None:
        try:
            uid = await self._owners.ask(key, partial(self._directory.expire, *key))
        except (StoreFailed, Overloaded) as failure:
            logger.warning("session %r, whose time is over, could not be deleted: %s", key[1], failure)
            return
        if uid is not None:
            await self._caches.forget_in_time(uid)
            gone.append(key)

    async def close_overdue(self) -> None:
        """End the runs that have waited for too long, and those whose end could not be kept when it came."""
        for run_id, key in self._runs.overdue(self._clock()):
            if not await self._try_to_close(run_id, key):
                self._runs.put_off(run_id)
                return

    async def _try_to_close(self, run_id: str, key: Key) -> bool:
        """False where the store takes nothing now: it is tried again later, and so are the others."""
        try:
            await self._owners.ask(key, partial(self._close_if_overdue, run_id, key))
        except NotFound:  # deleted meanwhile
            self._runs.give_up(run_id)
        except (SessionDamaged, RunUnreadable) as failure:
            logger.error("run %s waits for ever: %s", run_id, failure)
            self._runs.give_up(run_id)
        except (StoreFailed, Overloaded) as failure:
            logger.warning("run %s could not be closed, which is tried again: %s", run_id, failure)
            return False
        except Exception:  # what is wrong with one run is not tried every second, and does not keep the others waiting
            logger.exception("run %s cannot be closed", run_id)
            self._runs.give_up(run_id)
        return True

    async def _close_if_overdue(self, run_id: str, key: Key) -> None:
        await self._directory.settle(*key)
        run = await self._runs.find(run_id)
        if run.working:
            return
        if run.record.status is RunStatus.RUNNING:
            await self._close(run, RunTrigger.INTERRUPT)
        elif run.record.status is not RunStatus.PAUSED or run.record.expires_at is None:
            self._runs.give_up(run_id)
        elif run.record.expires_at <= self._clock():
            await self._close(run, RunTrigger.EXPIRE)
        else:
            self._runs.expect(run)

    async def _close_unkept(self, session: Session) -> None:
        """If the session's open run has ended, and that could not be kept, keep it now."""
        if session.open_run is not None:
            run = await self._runs.find(session.open_run)
            if not run.working and run.record.status is RunStatus.RUNNING:
                await self._close(run, RunTrigger.INTERRUPT)

    async def _close(self, run: Run, trigger: RunTrigger) -> None:
        await self._runs.close(run, await self._runs.session(run), trigger)

    async def expect(self, principal: str, id: str) -> Session:
        """A session that is there, for its owner. Raises NotFound."""
        session = await self._directory.get(principal, id)
        if session is None:
            raise NotFound("session", id)
        return session
