"""What goes on after a crash: the runs that were at work when the process ended, each where it stood.

A leg that is detached goes on after the last token that was kept. Others end as interrupted, with what was kept of
them, and so does one whose open round this process cannot go on with.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tenuto.errors import (
    ModelLoadFailed,
    NoRoomForModel,
    NotFound,
    Overloaded,
    RunUnreadable,
    SessionDamaged,
    StoreFailed,
    TenutoError,
)
from tenuto.runtime.loop import told
from tenuto.runtime.loop.decisions import take
from tenuto.runtime.loop.events import ClientCallStarted, RunEvent, ToolCalling, ToolReturned, ToolStatus
from tenuto.runtime.loop.ledgers import Prompt, fingerprint
from tenuto.runtime.loop.legs import Legs, Resumed
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.owners import Owners
from tenuto.runtime.loop.pending import PendingCall
from tenuto.runtime.loop.retries import MOST_TRIES, Retries, tries
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.run_states import RunTrigger
from tenuto.runtime.loop.runs import DUE, Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.sessions import Sessions
from tenuto.runtime.loop.unfinished import Progress, RoundStart, Said, items_then, logprobs_from, weights_of
from tenuto.runtime.loop.variables import with_variables
from tenuto.sessions.records import CallStatus, LegRecord, OpenRun, RunStatus, UnfinishedLeg
from tenuto.sessions.session import Session

logger = logging.getLogger(__name__)


class _CannotGoOn(Exception):
    """A leg that this process cannot go on with; the text says why."""


class Recovery:
    """Looks once, at the start, at what a crash has left open. Event-loop thread only."""

    def __init__(self, services: Services, runs: Runs, owners: Owners, sessions: Sessions, legs: Legs) -> None:
        self._services, self._runs, self._owners = services, runs, owners
        self._sessions, self._legs = sessions, legs
        self._retries = Retries(services.store)

    async def recover(self) -> None:
        """Runs that were at work go on or are closed as interrupted, those that wait go on waiting.

        What cannot be closed now is tried again by housekeeping.
        """
        for found in await self._services.store.open_runs():
            due = found.expires_at if found.status == RunStatus.PAUSED else DUE
            if due is not None and (due is not DUE or not await self._goes_on(found)):
                self._runs.deadlines[found.id] = (due, (found.principal, found.session_id))
        await self._sessions.close_overdue()

    async def _goes_on(self, found: OpenRun) -> bool:
        """Whether a run that was at work goes on, or has been closed."""
        resume = partial(self._resume, found.id)
        ask = partial(self._owners.ask, (found.principal, found.session_id), resume)
        try:
            return await self._services.models.with_loaded(ask, found.principal)
        except (ModelLoadFailed, NoRoomForModel) as failure:
            return await self._owners.ask((found.principal, found.session_id), partial(self._close, found.id, failure))
        except (NotFound, SessionDamaged, RunUnreadable, StoreFailed, Overloaded, ValueError) as failure:
            logger.warning("run %s does not go on: %s", found.id, failure)
        except Exception:  # what is wrong with one run keeps no other from going on
            logger.exception("run %s does not go on", found.id)
        return False

    async def _resume(self, run_id: str) -> bool:
        unfinished = await self._services.store.unfinished_leg(run_id)
        if unfinished is None:
            return False
        run = await self._runs.find(run_id)
        session = await self._runs.session(run)
        try:
            model = self._model(run)
            _expect_tries(unfinished)
            with model.uses.held():
                await with_variables(model.codec, run.options.variables)  # so that it is at hand from now on
                resumed = await self._where_it_stood(run, session, model, unfinished)
        except _CannotGoOn as why:
            logger.warning("run %s does not go on: %s", run_id, why)
            await self._runs.close(run, session, RunTrigger.INTERRUPT, str(why))
            return True
        turn = partial(self._retries.turn, model=model, unfinished=unfinished)
        self._legs.resume(run, session, model, resumed, turn)
        logger.info("run %s goes on after %d tokens of its round", run_id, len(unfinished.sampled))
        return True

    async def _close(self, run_id: str, why: TenutoError) -> bool:
        """Close a run whose model cannot be loaded."""
        logger.warning("run %s does not go on: %s", run_id, why)
        run = await self._runs.find(run_id)
        await self._runs.close(run, await self._runs.session(run), RunTrigger.INTERRUPT, str(why))
        return True

    def _model(self, run: Run) -> Model:
        model = self._services.models.get(run.model)
        if model is None:
            raise _CannotGoOn(f"the server was started again without the model {run.model}")
        return model

    async def _where_it_stood(self, run: Run, session: Session, model: Model, unfinished: UnfinishedLeg) -> Resumed:
        record, kept = unfinished.record, unfinished.record.progress or {}
        events = [event for piece in unfinished.told for event in told.load(piece)]
        progress = Progress.load(kept)
        resumed = Resumed(
            record=record,
            of_request=record.id.startswith(run.leg_ids),
            usage=kept.get("usage"),
            end=kept.get("end", {}),
            told=tuple(events),
            progress=progress,
            then=items_then(kept),
        )
        if progress.start is None:
            calls = await self._calls(run, session, record)
            untold = _untold(calls, events, record)
            return replace(resumed, calls=calls, told=(*events, *untold), untold=len(untold))
        said = Said(unfinished.sampled, logprobs_from(unfinished.logprobs), _calls_told(events, _rounds(kept) + 1))
        return replace(resumed, prompt=_prompt(run, session, model, progress.start, said), said=said)

    async def _calls(self, run: Run, session: Session, record: LegRecord) -> list[PendingCall]:
        """The calls of the last round, which have not all become items, as people have decided about them."""
        calls = await self._runs.calls(run, session)
        for pause in await self._services.store.run_pauses(run.id):
            take(calls, pause)
        rounds = _rounds(record.progress or {})
        for pending in calls if rounds else ():  # of a call that has no record yet, nothing else says of which it is
            pending.record = replace(pending.record, round=rounds)
        return calls


def _expect_tries(unfinished: UnfinishedLeg) -> None:
    if tries(unfinished) >= MOST_TRIES:
        raise _CannotGoOn(
            f"it was gone on with {MOST_TRIES} times, and each time the server stopped before it came further"
        )


def _rounds(kept: dict[str, object]) -> int:
    usage = kept.get("usage")
    return len(usage.get("rounds", ())) if isinstance(usage, dict) else 0


def _prompt(run: Run, session: Session, model: Model, start: RoundStart, said: Said) -> Prompt:
    """What the open round has read. Raises _CannotGoOn where this model would not read and go on with the same."""
    codec = run.options.codec_of(model.codec)
    same = start.fingerprint == fingerprint(codec, run.options.tools) and start.weights == weights_of(model)
    if not same:
        raise _CannotGoOn(f"the model {run.model} is not the one that had begun to answer")
    ledger, items = session.ledgers.get(start.fingerprint), len(session.items)
    if ledger is None or ledger.items != items:
        raise _CannotGoOn("the tokens of its session are not those that the model had read")
    run.computed_before = start.computed_before
    known = ledger.prefix(items)
    prompt = Prompt(start.fingerprint, items, known, (), start.opening, start.computed_before)
    if prompt.total + len(said.tokens) >= model.context:
        raise _CannotGoOn(f"it has {prompt.total + len(said.tokens)} tokens; the model now takes {model.context}")
    return prompt


def _calls_told(events: Sequence[RunEvent], round: int) -> tuple[str, ...]:
    """The ids of the client's calls that a round has told of."""
    return tuple(event.call_id for event in events if isinstance(event, ClientCallStarted) and event.round == round)


def _untold(calls: Sequence[PendingCall], events: Sequence[RunEvent], record: LegRecord) -> list[RunEvent]:
    """What was to be told of the results that the leg had kept when the process ended."""
    calling = {event.call.id for event in events if isinstance(event, ToolCalling)}
    returned = {event.call.id for event in events if isinstance(event, ToolReturned)}
    untold: list[RunEvent] = []
    for pending in calls:
        made, result = pending.record, pending.result
        is_ours = pending.call.server and (made.finished_at or 0.0) >= record.created_at
        if made.status is not CallStatus.FINISHED or result is None or not is_ours or pending.call.id in returned:
            continue
        if made.started_at is not None and pending.call.id not in calling:
            untold.append(ToolCalling(made.round, pending.call))
        status = ToolStatus.FAILED if result.is_error else ToolStatus.COMPLETED
        untold.append(ToolReturned(made.round, pending.call, status, result.text))
    return untold
