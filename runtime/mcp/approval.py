"""Asking the person behind an MCP client whether a tool may be called, in both eras of the protocol.

Until 2025-11-25 the server sends an elicitation while the call waits. Since 2026-07-28 the call returns with the
question, and the client makes it again with the answer; its `request_state` names the pause. The server's middleware
seals it, so what comes back belongs to this call of this principal, and has not expired.

A tool that a client calls itself is asked about in the same ways. No run waits then: the state names the tool as it
described itself, which may be another one by the time of the answer.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import mcp.types as t
from pydantic import BaseModel, Field, ValidationError

from tenuto.errors import InvalidRequest
from tenuto.runtime.loop.events import RunPaused
from tenuto.runtime.mcp import questions
from tenuto.runtime.mcp.server_base import Context
from tenuto.sessions.records import PauseReason
from tenuto.tools.registry import Exported

_ANSWER = "approval"
_CHANGED = "this call retries one that asked for approval, but its tool has changed; call again from the start"
_UNANSWERED = "this call retries one that asked for approval, but carries no answer"
_APPROVE = {"type": "boolean", "title": "Allow the call", "description": "Whether the tool may be called."}
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approve": _APPROVE,
        "remember": {
            "type": "boolean",
            "title": "Do not ask again in this session",
            "default": False,
        },
        "message": {"type": "string", "title": "If denied, what to tell the model"},
    },
    "required": ["approve"],
}
_CALL_FORM: dict[str, Any] = {"type": "object", "properties": {"approve": _APPROVE}, "required": ["approve"]}


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """What a person answered."""

    approve: bool
    remember: bool
    message: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """A pause, and what a person said to it.

    `first` and `last` number the events that the call has told of so far.
    """

    pause_id: str
    reply: t.ElicitResult
    first: int
    last: int


class _State(BaseModel):
    """What a client carries from the question to its answer."""

    pause_id: str
    first: int = Field(ge=0)
    last: int = Field(ge=0)


def is_question(pause: RunPaused | None) -> bool:
    """Whether a pause is one that a person's yes or no ends."""
    return pause is not None and pause.reason is PauseReason.APPROVAL and pause.pause_id is not None


def form(pause: RunPaused) -> t.ElicitRequestFormParams:
    """The form that asks it."""
    return t.ElicitRequestFormParams(message=_question(pause), requested_schema=_FORM)


def question(pause: RunPaused, params: t.ElicitRequestParams, *, first: int, last: int) -> t.InputRequiredResult:
    """The question as a call's result, for clients that cannot be asked while they wait.

    `first` and `last` number the events that the call has told of.
    """
    state = _State(pause_id=str(pause.pause_id), first=first, last=last)
    return t.InputRequiredResult(
        input_requests={_ANSWER: t.ElicitRequest(params=params)}, request_state=state.model_dump_json()
    )


def answered(params: t.CallToolRequestParams) -> Answered | None:
    """What a repeated call answers; None for a first call.

    Raises:
        InvalidRequest: the state is not ours, or the answer is missing.
    """
    if params.request_state is None:
        return None
    reply = (params.input_responses or {}).get(_ANSWER)
    try:
        state = _State.model_validate_json(params.request_state)
    except ValidationError:
        state = None
    if state is None or not isinstance(reply, t.ElicitResult):
        raise InvalidRequest(_UNANSWERED)
    return Answered(state.pause_id, reply, state.first, state.last)


@dataclass(frozen=True, slots=True)
class CallQuestion:
    """Whether a tool may be called as a client asks for it, from outside any run."""

    name: str
    arguments: Mapping[str, Any]
    tool: Exported | None

    async def ask(self, context: Context) -> FormAnswer | None:
        """As `ask` does."""
        return decision(await questions.ask(context, self._form))

    def put(self) -> t.InputRequiredResult:
        """As `question` does."""
        return t.InputRequiredResult(
            input_requests={_ANSWER: t.ElicitRequest(params=self._form)}, request_state=self._digest
        )

    def answered(self, params: t.CallToolRequestParams) -> FormAnswer | None:
        """What the repeated call answers.

        Raises:
            InvalidRequest: it was asked about another tool, or the answer is missing.
        """
        if params.request_state != self._digest:
            raise InvalidRequest(_CHANGED)
        reply = (params.input_responses or {}).get(_ANSWER)
        if not isinstance(reply, t.ElicitResult):
            raise InvalidRequest(_UNANSWERED)
        return decision(reply)

    @property
    def _form(self) -> t.ElicitRequestFormParams:
        asked = f"A program wants to call {self.name} with {json.dumps(self.arguments, ensure_ascii=False)}"
        return t.ElicitRequestFormParams(message=asked, requested_schema=_CALL_FORM)

    @property
    def _digest(self) -> str:
        """Names what the tool says of itself."""
        tool = None if self.tool is None else asdict(self.tool)
        named = json.dumps(tool, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()


def _question(pause: RunPaused) -> str:
    call = pause.calls[0]
    return f"The model wants to call {call.name} with {call.arguments}"


def decision(reply: t.ElicitResult) -> FormAnswer | None:
    """A dismissed form decides nothing; a declined one, and an accepted one that says no, deny."""
    if reply.action == "cancel":
        return None
    content = reply.content or {}
    message = content.get("message")
    return FormAnswer(
        approve=reply.action == "accept" and content.get("approve") is True,
        remember=content.get("remember") is True,
        message=message if isinstance(message, str) and message else None,
    )
