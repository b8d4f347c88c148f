"""A request for a response to a turn, or to the answer to an approval: what its fields mean, and which are refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.dialects.headers import body_digest, idempotency_key, session_of, wants_events
from tenuto.runtime.dialects.hints import hint_of
from tenuto.runtime.dialects.openai.functions import check_choice, response_format
from tenuto.runtime.dialects.openai.responses.asked import Asked, echo, renamed, tool_lists
from tenuto.runtime.dialects.openai.responses.choice import read_choice
from tenuto.runtime.dialects.openai.responses.fields import LEFT_OUT, REFUSED
from tenuto.runtime.dialects.openai.responses.ids import leg_id
from tenuto.runtime.dialects.openai.responses.input import Approval, Input, read_input
from tenuto.runtime.dialects.openai.responses.tools import Listed, Tools, read_tools, refuse_of_tools
from tenuto.runtime.dialects.openai.responses.wire import InputBody, ResponsesBody
from tenuto.runtime.dialects.openai.users import whole_user
from tenuto.runtime.dialects.priorities import priority_of
from tenuto.runtime.dialects.reasoning import template_variables
from tenuto.runtime.http.body import WireT, parse_object, validate
from tenuto.runtime.loop.requests import LeftOut, Limits, Reasoning, ResponseFormat, ToolSelection, Turn
from tenuto.sessions.items import Item, SystemItem
from tenuto.sessions.principal import Principal
from tenuto.sessions.priority import Priority
from tenuto.tools.host.requested import Requested, RequestedServer
from tenuto.tools.registry import by_server

_LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A request, understood.

    `approval`: it answers an approval and begins no turn.
    """

    turn: Turn
    stream: bool
    approval: Approval | None
    asked: Asked = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A request that brings servers by their URLs: it is understood when their tools are known."""

    servers: Sequence[RequestedServer] = field(repr=False)


def read_responses(
    body: bytes,
    headers: Mapping[str, str],
    *,
    principal: Principal,
    listed: Listed,
    requested: Requested | None = None,
) -> ResponseRequest | Unlisted:
    """Read a request's body and headers (lower-case names); `listed` are the server's tools, `requested` the servers
    that it brings, once they are connected.

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
    """
    value, wire = _read(body, ResponsesBody)
    brought = _brought(requested)
    said, tools = _said(wire, {**listed, **brought})
    if tools.requested and requested is None:
        return Unlisted(tools.requested)
    listed = {**listed, **brought}
    selection = replace(_selection(wire, tools, listed), requested=requested)
    named, session_id, key = session_of(headers), _session(wire, headers), idempotency_key(headers)
    _expect_stored(wire)
    turn = Turn(
        principal=principal,
        model=wire.model or None,
        items=_items(wire, said),
        session_id=session_id,
        tools=selection,
        sampling=AskedSampling(wire.temperature, top_p=wire.top_p, logprobs=_logprobs(wire)),
        reasoning=_reasoning(wire),
        variables=template_variables(wire.chat_template_kwargs),
        response=_format(wire),
        limits=Limits(max_tokens=_limit(wire.max_output_tokens), max_tool_rounds=wire.max_tool_calls),
        priority=priority_of(wire.service_tier, wire.priority),
        user=whole_user(wire.safety_identifier, wire.user),
        hint=hint_of(headers, wire.prompt_cache_key),
        stored=wire.store,
        # Who names a server's tools knows how to answer when it is asked for approval.
        wants_events=bool(tools.servers) or named is not None or wants_events(headers),
        left_out=(*said.left_out, *tools.left_out, *_unused(value)),
        is_appended=wire.conversation is not None,
        after=_previous(wire),
        is_instructed=bool(wire.instructions),
        idempotency_key=key,
        body_digest=None if key is None else body_digest(session_id, body),
    )
    asked = _asked(value, wire, said, tools, turn)
    asked = replace(asked, lists=tool_lists(tools, said.listed, listed), renamed=renamed(brought))
    return ResponseRequest(turn, wire.stream is True, said.approval, asked)


def _asked(value: dict[str, Any], wire: ResponsesBody, said: Input, tools: Tools, turn: Turn) -> Asked:
    """What the response shows of the request, but for the tools of servers."""
    return Asked(
        echo(value),
        tools.callables,
        holds_calls=bool(tools.servers) or not turn.tools.given,
        approved=None if said.approval is None else said.approval.request_id,
        conversation=None if wire.conversation is None else wire.conversation.id,
        background=wire.background is True,
        is_flex=turn.priority is Priority.BACKGROUND,
        parallel=turn.tools.parallel,
        temperature=wire.temperature,
        top_p=wire.top_p,
        top_logprobs=turn.sampling.logprobs or 0,
    )


def read_count(
    body: bytes,
    headers: Mapping[str, str],
    *,
    principal: Principal,
    listed: Listed,
    requested: Requested | None = None,
) -> Turn | Unlisted:
    """Read a request that asks how many tokens an input has. Raises as `read_responses` does."""
    return read_prompt(parse_object(body), headers, principal=principal, listed=listed, requested=requested)


def read_prompt(
    value: dict[str, Any],
    headers: Mapping[str, str],
    *,
    principal: Principal,
    listed: Listed,
    requested: Requested | None = None,
) -> Turn | Unlisted:
    """What a model reads of a request, and nothing of how it is to answer. Raises as `read_responses` does."""
    wire = _checked(value, InputBody)
    listed = {**listed, **_brought(requested)}
    said, tools = _said(wire, listed)
    if tools.requested and requested is None:
        return Unlisted(tools.requested)
    return Turn(
        principal=principal,
        model=wire.model or None,
        items=_items(wire, said),
        session_id=_session(wire, headers),
        tools=replace(_selection(wire, tools, listed), requested=requested),
        reasoning=_reasoning(wire),
        variables=template_variables(wire.chat_template_kwargs),
        response=_format(wire),
        is_appended=wire.conversation is not None,
        after=_previous(wire),
        is_instructed=bool(wire.instructions),
    )


def _expect_stored(wire: ResponsesBody) -> None:
    if wire.background and wire.store is False:
        raise InvalidRequest("background: a response that is made in the background is stored", "background")


def _reasoning(wire: InputBody) -> Reasoning:
    effort = None if wire.reasoning is None else wire.reasoning.effort
    bound = wire.max_thinking_tokens
    return Reasoning(effort=effort, budget=None if bound is None or bound < 0 else bound)


def _read(body: bytes, form: type[WireT]) -> tuple[dict[str, Any], WireT]:
    value = parse_object(body)
    return value, _checked(value, form)


def _checked(value: dict[str, Any], form: type[WireT]) -> WireT:
    for name, refusal in REFUSED.items():
        if name in value and refusal.is_used(value[name]):
            raise UnsupportedParameter(f"{name} is not supported; leave it out: {refusal.words}", name)
    refuse_of_tools(value.get("tools"))
    return validate(form, value)


def _brought(requested: Requested | None) -> Listed:
    """The tools of the servers that a request brings."""
    if requested is None:
        return {}
    return {server.label: [] for server in requested.servers} | by_server(requested.tools)


def _session(wire: InputBody, headers: Mapping[str, str]) -> str | None:
    """The session that a request names: a conversation is one."""
    if wire.conversation is None:
        return session_of(headers)
    if wire.previous_response_id is not None:
        raise InvalidRequest(
            "previous_response_id and conversation exclude each other: a response belongs to one conversation",
            "previous_response_id",
        )
    return session_of(headers, wire.conversation.id, "conversation")


def _said(wire: InputBody, listed: Listed) -> tuple[Input, Tools]:
    if not wire.input and wire.conversation is None:
        raise InvalidRequest("input: field required", "input")
    said = read_input(wire.input or ())
    given = [(f"tools[{index}]", tool) for index, tool in enumerate(wire.tools or ())]
    tools = read_tools([*given, *said.tools], listed)
    if said.approval is not None and said.items and wire.previous_response_id is not None:
        raise InvalidRequest(
            "input: an answer to an approval goes on with what was asked, and nothing else comes with it; send the rest"
            " with the next request",
            "input",
        )
    return said, tools


def _items(wire: InputBody, said: Input) -> tuple[Item, ...]:
    return tuple([SystemItem(wire.instructions), *said.items] if wire.instructions else said.items)


def _previous(wire: InputBody) -> str | None:
    return None if wire.previous_response_id is None else leg_id(wire.previous_response_id)


def _selection(wire: InputBody, tools: Tools, listed: Listed) -> ToolSelection:
    chosen = read_choice(wire.tool_choice, listed, tools.left_out)
    selection = ToolSelection(
        given=wire.tools is not None,
        client=tuple(tools.client.values()),
        servers=tools.servers,
        choice=chosen.choice,
        only=chosen.only,
        allowed=chosen.allowed,
        parallel=wire.parallel_tool_calls is not False,
        asks=tuple(tools.asks),
    )
    check_choice(selection, only="tool_choice.name", allowed="tool_choice.tools")
    return selection


def _unused(value: dict[str, Any]) -> list[LeftOut]:
    """What would change the answer if it were known here, and is asked for by clients that can do without."""
    return [LeftOut(name, words.words) for name, words in LEFT_OUT.items() if words.is_used(value.get(name))]


def _format(wire: InputBody) -> ResponseFormat | None:
    if wire.text is None or wire.text.format is None:
        return None
    form = wire.text.format
    return response_format(form.type, form.schema_, "text.format.schema", strict=form.strict)


def _logprobs(wire: ResponsesBody) -> int | None:
    if wire.top_logprobs is None and _LOGPROBS not in (wire.include or ()):
        return None
    return wire.top_logprobs or 0


def _limit(tokens: int | None) -> int | None:
    """Clients that say -1 or 0 have no limit of their own."""
    return tokens if tokens is not None and tokens > 0 else None
