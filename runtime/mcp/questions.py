"""What a server behind us asks, put to the person behind an MCP client as it is, in both eras of the protocol."""

import mcp.types as t

from tenuto.runtime.loop.events import RunPaused
from tenuto.runtime.mcp.server_base import Context, can_ask, can_open
from tenuto.sessions.questions import Question
from tenuto.tools.asking import Action, Reply


def can_relay(context: Context, question: Question) -> bool:
    """Whether the client shows people questions of this kind."""
    return can_ask(context) if question.url is None else can_open(context)


def elicitation(pause: RunPaused, question: Question) -> t.ElicitRequestParams:
    """The question in the protocol's form, with the name of who asks."""
    message = f"{question.server} asks: {question.message}"
    if question.url is not None:
        return t.ElicitRequestURLParams(message=message, url=question.url, elicitation_id=str(pause.pause_id))
    return t.ElicitRequestFormParams(message=message, requested_schema=question.schema or {})


async def ask(context: Context, params: t.ElicitRequestParams) -> t.ElicitResult:
    """Ask now and wait for the answer."""
    session, request = context.session, context.request_id
    if isinstance(params, t.ElicitRequestURLParams):
        id = str(params.elicitation_id)
        return await session.elicit_url(params.message, params.url, id, related_request_id=request)
    return await session.elicit_form(params.message, params.requested_schema, related_request_id=request)


def reply_of(result: t.ElicitResult) -> Reply:
    """What a person has answered."""
    action = Action(result.action)
    return Reply(action, dict(result.content) if result.content and action is Action.ACCEPT else None)
