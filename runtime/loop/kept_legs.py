"""The legs for which their clients can ask by their ids: to read them again, to stop, forget or go on after them."""

from collections.abc import Sequence
from functools import partial

import anyio

from tenuto.errors import Conflict, LegNotFound, SessionBusy
from tenuto.runtime.loop import told
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.intake import Found
from tenuto.runtime.loop.owners import Owners
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.run import STOP_S, Run
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.sessions.changes import DeleteLeg, whole
from tenuto.sessions.fork import begin_as
from tenuto.sessions.items import Item, ToolResultItem
from tenuto.sessions.records import LegRecord, RunStatus
from tenuto.sessions.rounds import outstanding
from tenuto.sessions.session import Session


class KeptLegs:
    """Event-loop thread only. What changes a session, or goes on with it, is a command to its owner."""

    def __init__(self, services: Services, runs: Runs, owners: Owners) -> None:
        self._services, self._store, self._runs, self._owners = services, services.store, runs, owners

    async def find(self, principal: str, id: str) -> tuple[LegRecord, str]:
        """A leg, and the id of its session. Raises LegNotFound."""
        record = await self._store.leg(id)
        if record is None or record.principal != principal:
            raise LegNotFound(id)
        address = await self._store.address(record.session_uid)
        if address is None:
            raise LegNotFound(id)
        return record, address[1]

    async def leg(self, principal: str, id: str) -> Follower | PastLeg:
        """A leg: one that is in memory is followed as it goes on, of another there is what was kept."""
        record, session_id = await self.find(principal, id)
        run = self._in_memory(record)
        if run is not None:
            return Follower(run)
        pieces = await self._store.told(id)
        return PastLeg(record, session_id, [event for piece in pieces for event in told.load(piece)])

    async def cancel(self, principal: str, id: str) -> Follower | PastLeg:
        """Stop a leg that is under way; give it when it is over."""
        record, _ = await self.find(principal, id)
        await self._stop(record)
        return await self.leg(principal, id)

    async def forget(self, principal: str, id: str) -> None:
        """Stop a leg that is under way, and forget it."""
        record, session_id = await self.find(principal, id)
        await self._owners.ask((principal, session_id), partial(self._forget, record))

    async def _forget(self, record: LegRecord) -> None:
        await self._stop(record)
        await self._store.commit(DeleteLeg(record.id))

    async def brought(self, principal: str, id: str) -> Sequence[Item]:
        """The items that a leg's request has brought. Raises Conflict where the session has lost them."""
        record, session_id = await self.find(principal, id)
        return await self._owners.ask((principal, session_id), partial(self._brought, record))

    async def _brought(self, record: LegRecord) -> Sequence[Item]:
        session = await self._session(record)
        record, _ = await self.find(record.principal, record.id)
        if record.until is None and record.status is not RunStatus.RUNNING:
            raise _cut()
        return session.items[record.first_item : record.first_said]

    async def end_of(self, turn: Turn, id: str) -> Found:
        """The session at the end of a leg, where a turn goes on: its own, or else a fork with its first changes.

        Called by the session's owner.

        Raises:
            LegNotFound: it is gone.
            SessionBusy: it is under way.
            Conflict: its end is not in the session any more.
        """
        record, _ = await self.find(turn.principal.id, id)
        session = await self._session(record)
        run = self._in_memory(record)  # its end may be in the store, and not yet in the session
        if record.status is RunStatus.RUNNING or (run is not None and run.working):
            raise SessionBusy(session.id, record.run_id)
        if record.until is None:
            raise _cut()
        same = list(turn.instructions) == session.items[: session.instructed]
        if same and record.until == len(session.items) and session.stored is turn.is_stored:
            return Found(session, is_named=True)
        fork = self._services.directory.fork(session, record.until, implicit=True, stored=turn.is_stored)
        begin_as(fork, session, record.until, turn.instructions)
        self._services.directory.register(fork)
        return Found(fork, whole(fork), is_named=True, made=_made(session, record.until))

    async def _session(self, record: LegRecord) -> Session:
        address = await self._store.address(record.session_uid)
        session = None if address is None else await self._services.directory.get(*address)
        if session is None or session.uid != record.session_uid:
            raise LegNotFound(record.id)
        return session

    def _in_memory(self, record: LegRecord) -> Run | None:
        """The run whose present leg it is, where that is in memory."""
        run = self._runs.known(record.run_id)
        return run if run is not None and run.leg.answer.leg_id == record.id and run.leg.record is not None else None

    async def _stop(self, record: LegRecord) -> None:
        run = self._in_memory(record)
        if run is None:
            return
        with anyio.move_on_after(STOP_S):
            await run.stop(run.leg)
        if run.working:
            raise SessionBusy(run.session_id, run.id)


def _cut() -> Conflict:
    return Conflict("the conversation was changed before the end of this response, so that end is there no more")


def _made(session: Session, at: int) -> list[ToolResultItem]:
    """The results that the server has of the calls that waited there."""
    own = {call.id for call in outstanding(session.items[:at]) if call.server}
    after = session.items[at : at + len(outstanding(session.items[:at]))]
    return [item for item in after if isinstance(item, ToolResultItem) and item.call_id in own]
