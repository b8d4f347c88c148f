"""A person's answer to what a server asks in the middle of a call, and the end of a question that nobody asks any more.

What is answered goes to the server alone: it is in memory until then, and neither kept nor logged.
"""

import logging

from tenuto.errors import InvalidRequest
from tenuto.runtime.loop.decisions import go_on, open_pause
from tenuto.runtime.loop.intake import Admitted
from tenuto.runtime.loop.requests import KeepAs
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.sessions.draft import Draft
from tenuto.sessions.questions import Question
from tenuto.sessions.records import PauseReason, PauseStatus, RunStatus
from tenuto.sessions.session import Session
from tenuto.tools.asking import Action, Reply
from tenuto.tools.forms import problem_of_answer, with_defaults

logger = logging.getLogger(__name__)

_STATUS = {
    Action.ACCEPT: PauseStatus.ACCEPTED,
    Action.DECLINE: PauseStatus.DECLINED,
    Action.CANCEL: PauseStatus.CANCELLED,
}


async def answer(
    services: Services,
    runs: Runs,
    run: Run,
    session: Session,
    pause_id: str,
    reply: Reply,
    keep_as: KeepAs | None = None,
) -> Admitted:
    """Commit that a question is answered, with which the run goes on. Called by the session's owner.

    A call that has ended with its process is made again with the answer, where its server can take it so.

    Raises:
        InvalidRequest: the answer does not fit the form; the question stays open.
        AlreadyDecided: it has been answered, has expired, or its run has ended.
    """
    pause = await open_pause(services, runs, run, session, pause_id)
    assert pause.question is not None
    reply = fitting(pause.question, reply)
    draft = Draft(session)
    draft.save()
    answered = pause.ended(_STATUS[reply.action], services.clock())
    admitted = await go_on(services, runs, run, draft, answered, keep_as)
    for pending in admitted.calls:
        if pending.call.id == pause.call_id:
            pending.answered = pause, reply
    return admitted


def fitting(question: Question, reply: Reply) -> Reply:
    """The reply as its server gets it. Raises InvalidRequest, which names the field."""
    if reply.action is not Action.ACCEPT or question.schema is None:
        if reply.content is not None:
            raise InvalidRequest("content is only for a form that is accepted", "content")
        return reply
    content = with_defaults(question.schema, reply.content or {})
    if (problem := problem_of_answer(question.schema, content)) is not None:
        field, why = problem
        param = "content" if field is None else f"content.{field}"
        raise InvalidRequest(f"{param}: {why}", param)
    return Reply(reply.action, content)


async def withdraw(services: Services, runs: Runs, run: Run, session: Session) -> Admitted | None:
    """Let a run go on whose call asks no more, since it has ended or its server has taken the question back.

    None where there is nothing to do. Called by the session's owner.
    """
    if run.working or run.record.status is not RunStatus.PAUSED or run.record.reason is not PauseReason.INPUT:
        return None
    pause = await runs.asked(run)
    held = None if pause is None else services.held.of(run.id, pause.call_id)
    if pause is None or held is None or (held.asks and held.pause_id == pause.id):
        return None
    logger.info("run %s goes on: %s asks no more", run.id, pause.tool)
    draft = Draft(session)
    draft.save()
    return await go_on(services, runs, run, draft, pause.ended(PauseStatus.CLOSED, services.clock()))
