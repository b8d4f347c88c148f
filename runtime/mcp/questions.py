"""What a server behind us asks, put to the person behind an MCP client as it is, in both eras of the protocol."""

import mcp.types as t

from tenuto.runtime.mcp.server_base import Context, can_ask, can_open, put_now
from tenuto.sessions.questions import Question
from tenuto.tools.asking import Action, Reply


def can_relay(context: Context, question: Question) -> bool:
    """Whether the client shows people questions of this kind."""
    return can_ask(context) if question.url is None else can_open(context)


def elicitation(id: str, question: Question) -> t.ElicitRequestParams:
    """The question in the protocol's form, with the name of who asks. `id` names it."""
    message = f"{question.server} asks: {question.message}"
    if question.url is not None:
        return t.ElicitRequestURLParams(message=message, url=question.url, elicitation_id=id)
    return t.ElicitRequestFormParams(message=message, requested_schema=question.schema or {})


async def ask(context: Context, params: t.ElicitRequestParams) -> t.ElicitResult:
    """Ask now and wait for the answer."""
    answer = await put_now(context, t.ElicitRequest(params=params))
    assert isinstance(answer, t.ElicitResult)  # nothing else answers such a request
    return answer


def reply_of(result: t.ElicitResult) -> Reply:
    """What a person has answered."""
    action = Action(result.action)
    return Reply(action, dict(result.content) if result.content and action is Action.ACCEPT else None)
