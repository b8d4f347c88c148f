"""Whether a session's open run lets anybody else have the word: one that is over by now is closed on the way."""

import anyio

from tenuto.errors import SessionBusy, SessionPaused
from tenuto.runtime.loop.run import STOP_S, Run
from tenuto.runtime.loop.run_states import RunTrigger
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.sessions.records import PauseReason, RunStatus
from tenuto.sessions.rounds import outstanding
from tenuto.sessions.session import Session


async def waiting_run(services: Services, runs: Runs, session: Session) -> Run | None:
    """The session's open run if it waits for its client. Called by the session's owner.

    Raises:
        SessionBusy, SessionPaused: another run is open.
    """
    if session.open_run is None:
        return None
    run = await runs.find(session.open_run)
    if run.leg.is_abandoned:  # its client goes on without it
        with anyio.move_on_after(STOP_S):
            await run.stop(run.leg)
        run = await runs.find(run.id)
    if run.working:
        raise SessionBusy(session.id, run.id)
    if not run.record.status.is_open:
        return None
    if run.record.status is not RunStatus.PAUSED:
        await runs.close(run, session, RunTrigger.INTERRUPT)  # its end could not be kept
        return None
    if run.record.expires_at is not None and run.record.expires_at <= services.clock():
        await runs.close(run, session, RunTrigger.EXPIRE)
        return None
    if run.record.reason is not PauseReason.CLIENT_TOOL:
        pause = run.snapshot().pause
        pause_id = "" if pause is None else pause.pause_id or ""
        raise SessionPaused(session.id, run.id, pause_id, str(run.record.reason))
    return run


async def expect_at_rest(services: Services, runs: Runs, session: Session) -> None:
    """Raise SessionBusy or SessionPaused where a run is open, also one that waits for its client."""
    run = await waiting_run(services, runs, session)
    if run is not None:
        waited_for = ", ".join(call.id for call in outstanding(session.items))
        raise SessionPaused(session.id, run.id, waited_for, PauseReason.CLIENT_TOOL.value)
