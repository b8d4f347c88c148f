"""What a server behind asks before it fills a prompt: the client that wants the prompt answers.

Since 2026-07-28 a request ends with what is asked, and is made again with the answers; nothing is held here meanwhile.
A client of the older protocol is asked while its request waits.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import mcp.types as t
from mcp.shared.exceptions import MCPError

from tenuto.errors import InvalidRequest
from tenuto.runtime.mcp import questions
from tenuto.runtime.mcp.server_base import Context, put_now
from tenuto.tools.asking import CannotAsk
from tenuto.tools.host.questions import question_of

MOST_ASKED = 64
"""Of one request, at once and one after another."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers:
    """With what a request is made that has ended with questions."""

    responses: t.InputResponses | None = None
    state: str | None = None


NOTHING_ASKED = Answers()


@dataclass(frozen=True, slots=True)
class AskedFirst:
    """What a server asks before it has a result."""

    server: str
    asked: t.InputRequiredResult


def relayed(context: Context, first: AskedFirst) -> t.InputRequiredResult:
    """It as the client is asked, with the name of who asks.

    Raises:
        InvalidRequest: the client cannot show it to anybody, or it is nothing that a person is asked.
    """
    requests = first.asked.input_requests or {}
    if len(requests) > MOST_ASKED:
        raise InvalidRequest(f"{first.server} asks more than {MOST_ASKED} things at once")
    shown: t.InputRequests = {key: _shown(context, first.server, key, each) for key, each in requests.items()}
    return t.InputRequiredResult(input_requests=shown or None, request_state=first.asked.request_state)


def _shown(context: Context, server: str, key: str, request: t.InputRequest) -> t.ElicitRequest:
    if not isinstance(request, t.ElicitRequest):
        raise InvalidRequest(f"{server} asks for {request.method} first, which is not relayed outside calls of tools")
    try:
        question = question_of(server, request.params)
    except CannotAsk as exc:
        raise InvalidRequest(f"{server} asks something first: {exc}") from exc
    if not questions.can_relay(context, question):
        raise InvalidRequest(f"{server} asks something first, and the client can show nobody a {question.mode.value}")
    return t.ElicitRequest(params=questions.elicitation(key, question))


async def settled(
    context: Context,
    params: t.InputResponseRequestParams,
    make: Callable[[Answers], Awaitable[T | t.InputRequiredResult]],
) -> T | t.InputRequiredResult:
    """Make a request: its result, or what a client of the newer protocol is asked first.

    Raises:
        MCPError: it asks without end, or a client of the older protocol does not answer.
    """
    answers = Answers(params.input_responses, params.request_state)
    for _ in range(MOST_ASKED):
        found = await make(answers)
        if not isinstance(found, t.InputRequiredResult) or not context.session.can_send_request:
            return found
        requests = found.input_requests or {}
        responses = {key: await put_now(context, request) for key, request in requests.items()}
        answers = Answers(responses, found.request_state)
    raise MCPError(code=t.INTERNAL_ERROR, message=f"it was asked {MOST_ASKED} times, and is not asked again")
