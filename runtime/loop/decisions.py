"""A person's answer to an approval: commits it, and gives the calls with which the run goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.errors import AlreadyDecided, Conflict
from tenuto.runtime.loop.intake import Admitted
from tenuto.runtime.loop.pending import PendingCall
from tenuto.runtime.loop.requests import KeepAs
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_states import RunTrigger, advanced, possible
from tenuto.runtime.loop.run_tools import RunTools
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.unfinished import at_begin
from tenuto.sessions.changes import BeginLeg, SavePause, SaveRun
from tenuto.sessions.draft import Draft
from tenuto.sessions.records import LegRecord, PauseReason, PauseRecord, PauseStatus
from tenuto.sessions.session import Session
from tenuto.tools.host.requested import Requested

DENIED = "The user denied this tool call."
PAUSE = "appr_"
"""What the ids of approvals begin with; the rest names the leg that answers one."""


def leg_after(pause_id: str) -> str:
    """The id of the leg that answers an approval or a question, where that is kept."""
    return pause_id.removeprefix(PAUSE)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person has said. `message` is for the model to read where the call is denied; `remember` lets the tool,
    as it is defined now, be called without asking for the rest of the session."""

    approve: bool
    message: str | None = None
    remember: bool = False


async def decide(
    services: Services,
    runs: Runs,
    run: Run,
    session: Session,
    pause_id: str,
    decision: Decision,
    keep_as: KeepAs | None = None,
    requested: Requested | None = None,
) -> Admitted:
    """Commit a decision, with which the run goes on. Called by the session's owner. `requested` are the servers that it
    brings by their URLs.

    Raises:
        AlreadyDecided: the approval has been answered, has expired, or its run has ended.
        Conflict: the call cannot be made, since its server came with a request and is not known any more.
        RunUnreadable: another version of tenuto asked, and this one cannot go on with the run.
    """
    pause = await open_pause(services, runs, run, session, pause_id)
    tools = RunTools(services, run, requested, session)
    if (missing := tools.missing(pause.tool)) is not None and decision.approve:  # what cannot go on is not decided
        raise Conflict(
            f"{pause.tool} cannot be called: {missing}. Answer with a request that brings the server again, as"
            " /v1/responses takes it, or deny the call"
        )
    draft = Draft(session)
    draft.save()
    if decision.approve and decision.remember:
        draft.ahead.approved |= {tools.remembered_as(pause.tool, pause.arguments)}
    status = PauseStatus.APPROVED if decision.approve else PauseStatus.DENIED
    answered = pause.ended(status, services.clock(), decision.message, remember=decision.remember)
    admitted = await go_on(services, runs, run, draft, answered, keep_as)
    if requested is not None:
        services.requested.give(requested, run.id)
    take(admitted.calls, answered)
    return admitted


async def go_on(
    services: Services, runs: Runs, run: Run, draft: Draft, ended: PauseRecord, keep_as: KeepAs | None = None
) -> Admitted:
    """Commit that what a run has asked is over; with what the run goes on then."""
    session = draft.session
    calls = await runs.calls(run, session)
    record = advanced(run.record, RunTrigger.DECIDE, services.clock())
    leg_id = run.leg.answer.leg_id if keep_as is None else leg_after(ended.id)
    leg = _leg(services, run, session, leg_id, keep_as) if session.stored else None
    begun = [] if leg is None else [BeginLeg(leg)]
    with runs.unsettling(run):
        await services.directory.commit(draft, SavePause(ended), SaveRun(record), *begun)
    run.record, run.pending = record, []
    runs.end_pause(run, ended.status)
    return Admitted(run, calls, leg_id, leg=leg, is_detached=keep_as is not None and keep_as.is_detached)


def take(calls: Sequence[PendingCall], pause: PauseRecord) -> None:
    """Let the call in question be approved or denied, as a person has said."""
    for pending in calls:
        if pending.call.id == pause.call_id and pause.reason is PauseReason.APPROVAL:
            pending.approved = pause.status is PauseStatus.APPROVED
            denied = pause.status is PauseStatus.DENIED
            pending.denial = " ".join(filter(None, (DENIED, pause.message))) if denied else None


def _leg(services: Services, run: Run, session: Session, id: str, keep_as: KeepAs | None) -> LegRecord | None:
    """The leg that the decision begins, where its client can ask for it again. It brings nothing."""
    if keep_as is None:
        return None
    items = len(session.items)
    return LegRecord(
        id=id,
        run_id=run.id,
        session_uid=session.uid,
        principal=session.principal,
        model=run.model,
        first_item=items,
        first_said=items,
        created_at=services.clock(),
        request=keep_as.request,
        progress=at_begin() if keep_as.is_detached else None,
    )


async def open_pause(services: Services, runs: Runs, run: Run, session: Session, pause_id: str) -> PauseRecord:
    """What a run asks, which is to be answered now. Raises AlreadyDecided."""
    pause = await runs.pause(pause_id)
    what = "question" if pause is not None and pause.reason is PauseReason.INPUT else "approval"
    if pause is None or pause.status is not PauseStatus.OPEN or not possible(run.record.status, RunTrigger.DECIDE):
        state = "over" if pause is None else pause.status.value
        raise AlreadyDecided(f"the {what} {pause_id} is already {state}")
    if pause.expires_at <= services.clock():
        await runs.close(run, session, RunTrigger.EXPIRE)
        raise AlreadyDecided(f"the {what} {pause_id} has expired")
    return pause
