"""What a run that waits asks the person behind an MCP client, and how it goes on with the answer. No transport."""

import mcp.types as t

from tenuto.runtime.loop.events import RunPaused
from tenuto.runtime.loop.held_calls import PAUSE as QUESTION
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import KeepAs
from tenuto.runtime.loop.run import Run
from tenuto.runtime.mcp import approval, questions
from tenuto.runtime.mcp.server_base import Context, can_ask
from tenuto.sessions.principal import Principal


def asked(context: Context, pause: RunPaused | None) -> t.ElicitRequestParams | None:
    """What to ask the person behind the client; None where nothing is asked, or the client cannot ask it."""
    if pause is not None and pause.question is not None and questions.can_relay(context, pause.question):
        return questions.elicitation(str(pause.pause_id), pause.question)
    return approval.form(pause) if pause is not None and approval.is_question(pause) and can_ask(context) else None


async def go_on(
    runner: LoopPort, principal: Principal, pause_id: str, reply: t.ElicitResult, keep_as: KeepAs | None = None
) -> Run | None:
    """Give a run what a person has answered; None where that decides nothing.

    Raises what `decide` and `answer` of the loop do.
    """
    if pause_id.startswith(QUESTION):
        return await runner.answer(principal, pause_id, questions.reply_of(reply), keep_as)
    decision = approval.decision(reply)
    if decision is None:
        return None
    return await runner.decide(
        principal,
        pause_id,
        approve=decision.approve,
        message=decision.message,
        remember=decision.remember,
        keep_as=keep_as,
    )
