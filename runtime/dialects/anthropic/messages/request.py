"""A request for a message to a turn: what its fields mean, and which of them are refused."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.dialects.anthropic.messages.content import Conversation, read_conversation
from tenuto.runtime.dialects.anthropic.messages.fields import REFUSED
from tenuto.runtime.dialects.anthropic.messages.tools import Tools, read_format, read_tools
from tenuto.runtime.dialects.anthropic.messages.wire import MessagesBody, PromptBody, Thinking
from tenuto.runtime.dialects.headers import body_digest, idempotency_key, session_of, wants_events
from tenuto.runtime.dialects.hints import hint_of
from tenuto.runtime.dialects.priorities import priority_of
from tenuto.runtime.dialects.refusals import refuse
from tenuto.runtime.http.body import parse_object, validate
from tenuto.runtime.loop.requests import LeftOut, Limits, Reasoning, Turn
from tenuto.sessions.principal import Principal

Thought = Literal["whole", "signed", "not"]
"""How reasoning is shown: as it is, as a signature alone, or not at all."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer shows of its run besides text and the client's calls: reasoning, and the calls of servers, where
    `served` has these by the model's names for them."""

    reasoning: Thought = "not"
    served: Mapping[str, tuple[str, str]] | None = None


BodyT = TypeVar("BodyT", bound=PromptBody)


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """A request, understood, but for what only a server can tell.

    The turn's tools are yet without those of `tools.servers`. `carried` are the parts that are no text, each with its
    place.
    """

    turn: Turn
    tools: Tools
    stream: bool = False
    thinking: Thought = "not"
    carried: tuple[tuple[str, str], ...] = ()
    served: Mapping[str, tuple[str, str]] | None = field(default=None, repr=False)
    """The tools of servers by the model's names for them, each with its server and its own name; None where the request
    names no servers."""

    @property
    def shows(self) -> Shown:
        """What of the run its answer shows."""
        return Shown(self.thinking, self.served)


def read_message(body: bytes, headers: Mapping[str, str], *, principal: Principal) -> MessageRequest:
    """Read a request's body and headers (lower-case names).

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
    """
    wire = _wire(MessagesBody, body)
    said, tools = read_conversation(wire.system, wire.messages), read_tools(wire)
    session_id, key = session_of(headers), idempotency_key(headers)
    extended = any(field is not None for field in (session_id, wire.max_tool_rounds, wire.agent_permission))
    turn = Turn(
        principal=principal,
        model=wire.model or None,
        items=tuple(said.items),
        session_id=session_id,
        tools=tools.selection,
        sampling=AskedSampling(
            temperature=wire.temperature,
            top_k=None if wire.top_k is None else max(0, wire.top_k),
            top_p=wire.top_p,
        ),
        reasoning=_reasoning(wire),
        prefill=said.prefill,
        stop=tuple(wire.stop_sequences or ()),
        response=read_format(wire),
        limits=Limits(max_tokens=wire.max_tokens, max_tool_rounds=wire.max_tool_rounds),
        permission=wire.agent_permission,
        priority=priority_of(None, wire.priority),
        user=(wire.metadata.user_id if wire.metadata else None) or None,
        hint=hint_of(headers),
        stored=wire.store,
        match=wire.match != "off",
        wants_events=extended or wants_events(headers),
        left_out=tuple(_left_out(said, tools)),
        idempotency_key=key,
        body_digest=None if key is None else body_digest(session_id, body),
    )
    return MessageRequest(turn, tools, wire.stream is True, _shown(wire.thinking), tuple(said.carried))


def read_prompt(body: bytes, headers: Mapping[str, str], *, principal: Principal) -> MessageRequest:
    """Read what is only to be counted. Raises what `read_message` does."""
    wire = _wire(PromptBody, body)
    said, tools = read_conversation(wire.system, wire.messages), read_tools(wire)
    turn = Turn(
        principal=principal,
        model=wire.model or None,
        items=tuple(said.items),
        session_id=session_of(headers),
        tools=tools.selection,
        reasoning=_reasoning(wire),
        prefill=said.prefill,
        response=read_format(wire),
    )
    return MessageRequest(turn, tools)


def _wire(kind: type[BodyT], body: bytes) -> BodyT:
    value = parse_object(body)
    refuse(value, REFUSED)
    return validate(kind, value)


def _reasoning(wire: PromptBody) -> Reasoning:
    """What is said of the reasoning itself; whether it is shown is another question."""
    thinking, effort = wire.thinking, None if wire.output_config is None else wire.output_config.effort
    if thinking is None:
        return Reasoning(effort=effort)
    if thinking.type == "disabled":
        return Reasoning(is_on=False)
    return Reasoning(is_on=True, effort=effort, budget=thinking.budget_tokens)


def _shown(thinking: Thinking | None) -> Thought:
    """Clients that do not ask for reasoning mostly read the first block of an answer as its text."""
    if thinking is None or thinking.type == "disabled":
        return "not"
    return "signed" if thinking.display == "omitted" else "whole"


def _left_out(said: Conversation, tools: Tools) -> Iterable[LeftOut]:
    for what, place in tools.left_out:
        yield LeftOut(place, f"there are no tools of type {what!r} here")
    for what, place in dict(reversed(said.left_out)).items():  # the first of each type
        yield LeftOut(place, f"the model does not read blocks of type {what!r}")


def unseen(carried: Sequence[tuple[str, str]], modalities: Collection[str]) -> Iterable[LeftOut]:
    """What a model that reads these does not see of a request."""
    kinds = dict(reversed([(kind, place) for kind, place in carried if kind not in modalities]))
    for kind, place in kinds.items():  # the first of each kind
        yield LeftOut(place, f"the model does not read this {kind}: it reads a note that there is one")
