"""A person's answer to an approval: commits it, and gives the calls with which the run goes on."""

from dataclasses import dataclass

from tenuto.errors import AlreadyDecided
from tenuto.runtime.loop.pending import PendingCall
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_states import Happening, advanced, possible
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.sessions.changes import SavePause, SaveRun
from tenuto.sessions.draft import Draft
from tenuto.sessions.records import PauseRecord, PauseStatus
from tenuto.sessions.session import Session

DENIED = "The user denied this tool call."


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person has said. `message` is for the model to read where the call is denied; `remember` lets the tool,
    as it is defined now, be called without asking for the rest of the session."""

    approve: bool
    message: str | None = None
    remember: bool = False


async def decide(
    services: Services, runs: Runs, run: Run, session: Session, pause_id: str, decision: Decision
) -> list[PendingCall]:
    """Commit a decision. Called by the session's owner.

    Raises:
        AlreadyDecided: the approval has been answered, has expired, or its run has ended.
        RunUnreadable: another version of tenuto asked, and this one cannot go on with the run.
    """
    pause = await _open_pause(services, runs, run, session, pause_id)
    _ = run.options  # what cannot go on is not decided
    calls = await runs.calls(run, session)
    now = services.clock()
    draft = Draft(session)
    draft.save()
    if decision.approve and decision.remember:
        draft.ahead.approved |= {services.policy.remembered_as(pause.tool)}
    status = PauseStatus.APPROVED if decision.approve else PauseStatus.DENIED
    record = advanced(run.record, Happening.DECIDE, now)
    answered = pause.ended(status, now, decision.message, remember=decision.remember)
    with runs.unsettling(run):
        await services.directory.commit(draft, SavePause(answered), SaveRun(record))
    run.record, run.pending = record, []
    runs.end_pause(run, status)
    for pending in calls:
        if pending.call.id == pause.call_id:
            pending.approved = decision.approve
            pending.denial = None if decision.approve else " ".join(filter(None, (DENIED, decision.message)))
    return calls


async def _open_pause(services: Services, runs: Runs, run: Run, session: Session, pause_id: str) -> PauseRecord:
    pause = await runs.pause(pause_id)
    if pause is None or pause.status is not PauseStatus.OPEN or not possible(run.record.status, Happening.DECIDE):
        state = "over" if pause is None else pause.status.value
        raise AlreadyDecided(f"the approval {pause_id} is already {state}")
    if pause.expires_at <= services.clock():
        await runs.close(run, session, Happening.EXPIRE)
        raise AlreadyDecided(f"the approval {pause_id} has expired")
    return pause
