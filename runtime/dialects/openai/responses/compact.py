"""POST /v1/responses/compact: a conversation as its user's messages and a summary, with which it goes on in less room.

https://platform.openai.com/docs/api-reference/responses/compact
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import GenerationFailed, InvalidRequest, LegNotFound, UnknownPrevious
from tenuto.runtime.dialects.beginning import while_there
from tenuto.runtime.dialects.headers import run_headers
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.dialects.openai.responses.answer import usage_of
from tenuto.runtime.dialects.openai.responses.endpoint import following
from tenuto.runtime.dialects.openai.responses.ids import leg_id
from tenuto.runtime.dialects.openai.responses.input_items import items_of
from tenuto.runtime.dialects.openai.responses.list_shapes import CompactedAnswer, InputMessageItem
from tenuto.runtime.dialects.openai.responses.reading import asked_of, servers_tools
from tenuto.runtime.dialects.openai.responses.request import Unlisted, read_prompt
from tenuto.runtime.dialects.openai.responses.shapes import CompactionItem
from tenuto.runtime.dialects.openai.responses.summaries import packed
from tenuto.runtime.dialects.openai.responses.tools import Listed
from tenuto.runtime.dialects.openai.responses.wire import CompactBody
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import parse_object, read_body, understood, validate
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.loop.requests import Turn
from tenuto.sessions.items import UserItem
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import RunStatus

PROMPT = (
    "Summarize this conversation, so that you can go on from the summary alone, without what was said: what was asked,"
    " what was done and found out, with the names, numbers and decisions that matter, and what is still to do. Say"
    " nothing else."
)
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Before:
    """What a compaction takes over of the response that it names: instructions and tools. So the model reads the same
    beginning, and nothing of that is computed again."""

    instructions: str | None = None
    tools: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The endpoint."""

    runner: LoopPort

    async def create(self, request: Request) -> Response:
        """Let the model summarize a conversation, which stays as it is: it does so in a fork that is kept nowhere."""
        body, principal = await read_body(request), principal_of(request)
        wire = await understood(body, partial(_read, form=CompactBody))
        before = await self._before(principal, wire.previous_response_id)
        reader = partial(
            read_compaction,
            headers=request.headers,
            principal=principal,
            listed=servers_tools(self.runner),
            before=before,
        )
        turn = await understood(body, reader)
        with following(turn):
            run = await while_there(request.receive, turn, partial(self.runner.start, turn))
        answer = await while_connected(request.receive, run, run.answer)
        if answer.status is RunStatus.FAILED:
            status, error = ERRORS.told_of_run(answer.error, answer.error_code, run.id)
            return answered(error, status, run_headers(run))
        if not answer.text.strip():
            raise GenerationFailed("the model has written no summary")
        told = await self._users(principal, run)
        name = run.leg_id
        compacted = CompactedAnswer(
            id=f"resp_{name}",
            object="response.compaction",
            created_at=int(time.time()),
            output=[*told, CompactionItem(id=f"cmp_{name}", type="compaction", encrypted_content=packed(answer.text))],
            usage=usage_of(answer),
        )
        return answered(compacted, headers=run_headers(run))

    async def _before(self, principal: Principal, response: str | None) -> Before:
        if response is None:
            return Before()
        try:
            leg = await self.runner.leg(principal, leg_id(response))
            await leg.disconnected()
            echo = asked_of(leg).echo
        except LegNotFound:
            raise UnknownPrevious(
                f"Previous response with id {response!r} not found.", "previous_response_id"
            ) from None
        tools = echo.get("tools")
        # What the response's request has said of a server with a URL is not known any more.
        known = None if tools is None else [tool for tool in tools if "server_url" not in tool]
        return Before(echo.get("instructions"), known)

    async def _users(self, principal: Principal, run: Follower) -> list[InputMessageItem]:
        """The messages of the user, but for the last one, which is ours."""
        found: list[UserItem] = []
        after: str | None = None
        while True:
            page = await self.runner.parts(principal, run.session_id, after, _PAGE, newest_first=False)
            found += [part.part.item for part in page.parts if isinstance(part.part.item, UserItem)]
            if not page.has_more:
                break
            after = page.parts[-1].name
        shown = items_of(found[:-1], run.leg_id, {})
        return [item for item in shown if isinstance(item, InputMessageItem)]


def read_compaction(
    body: bytes, headers: Mapping[str, str], *, principal: Principal, listed: Listed, before: Before
) -> Turn:
    """The turn that asks for the summary. No tool may be called, though the model sees them.

    Raises:
        InvalidRequest: it cannot be understood, or there is nothing to compact.
    """
    value = parse_object(body)
    wire = validate(CompactBody, value)
    given = value.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    if not items and wire.previous_response_id is None:
        raise InvalidRequest("input: give what is to be compacted, or previous_response_id", "input")
    asked = {name: value[name] for name in ("model", "instructions", "previous_response_id") if value.get(name)}
    asked |= {"input": [*items, {"role": "user", "content": PROMPT}], "tool_choice": "none"}
    if before.instructions is not None:
        asked.setdefault("instructions", before.instructions)
    if before.tools is not None:
        asked["tools"] = before.tools
    turn = read_prompt(asked, headers, principal=principal, listed=listed)
    assert not isinstance(turn, Unlisted)
    return replace(turn, session_id=None, stored=False)


def _read(body: bytes, form: type[CompactBody]) -> CompactBody:
    return validate(form, parse_object(body))
