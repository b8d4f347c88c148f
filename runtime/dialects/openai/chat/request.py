"""A chat completions request to a turn: what its fields mean, and which of them are refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.headers import body_digest, idempotency_key, session_of, wants_events
from tenuto.runtime.dialects.hints import hint_of
from tenuto.runtime.dialects.openai.chat.fields import LEFT_OUT, REFUSED
from tenuto.runtime.dialects.openai.chat.messages import read_messages
from tenuto.runtime.dialects.openai.chat.tools import read_format, read_tools, refuse_of_tools
from tenuto.runtime.dialects.openai.chat.wire import ChatBody
from tenuto.runtime.dialects.openai.sampling import read_sampling
from tenuto.runtime.dialects.openai.users import whole_user
from tenuto.runtime.dialects.priorities import priority_of
from tenuto.runtime.dialects.reasoning import template_variables
from tenuto.runtime.dialects.refusals import refuse
from tenuto.runtime.http.body import parse_object, validate
from tenuto.runtime.loop.prefill import Prefill, split
from tenuto.runtime.loop.requests import LeftOut, Limits, Reasoning, SessionMode, Turn
from tenuto.sessions.items import Item
from tenuto.sessions.principal import LOCAL, Principal
from tenuto.tools.roots import root


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request, understood, but for what only a model can tell."""

    turn: Turn
    stream: bool
    include_usage: bool
    n: int = 1


def read_chat(body: bytes, headers: Mapping[str, str], *, principal: Principal) -> ChatRequest:
    """Read a request's body and headers (lower-case names).

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
    """
    value = parse_object(body)
    refuse(value, REFUSED)
    refuse_of_tools(value.get("tools"))
    wire = validate(ChatBody, value)
    session_id = session_of(headers, wire.session_id)
    key = idempotency_key(headers)
    extended = any(field is not None for field in (session_id, wire.max_tool_rounds, wire.agent_permission))
    n = _choices(wire, session_id, key)
    tools, unknown_tools = read_tools(wire)
    items, prefill = _begun(wire)
    turn = Turn(
        principal=principal,
        model=wire.model or None,
        items=items,
        session_id=session_id,
        mode=wire.session_mode or SessionMode.AUTO,
        tools=tools,
        sampling=read_sampling(wire, logprobs=_logprobs(wire)),
        reasoning=Reasoning(effort=wire.reasoning_effort, budget=_thinking_tokens(wire)),
        variables=template_variables(wire.chat_template_kwargs),
        prefill=prefill,
        stop=tuple(wire.stop or ()),
        response=read_format(wire),
        limits=Limits(max_tokens=_max_tokens(wire), max_tool_rounds=wire.max_tool_rounds),
        permission=wire.agent_permission,
        priority=priority_of(wire.service_tier, wire.priority),
        roots=_roots(wire, principal),
        user=whole_user(wire.safety_identifier, wire.user),
        hint=hint_of(headers, wire.prompt_cache_key),
        stored=wire.store,
        match=wire.match != "off",
        wants_events=extended or wants_events(headers),
        left_out=(*_unused(value), *unknown_tools),
        idempotency_key=key,
        body_digest=None if key is None else body_digest(session_id, body),
    )
    include_usage = wire.stream_options is not None and wire.stream_options.include_usage is True
    return ChatRequest(turn, wire.stream is True, include_usage, n)


def _roots(wire: ChatBody, principal: Principal) -> tuple[str, ...]:
    """Servers open what they are told, with this machine's rights: so nobody else may tell them."""
    if not wire.roots:
        return ()
    if principal.id != LOCAL.id:
        raise InvalidRequest("roots: are taken from this machine's own user alone, and this key is another's", "roots")
    try:
        return tuple(root(each).uri for each in wire.roots)
    except ValueError as exc:
        raise InvalidRequest(f"roots: {exc}", "roots") from exc


def _unused(value: dict[str, Any]) -> list[LeftOut]:
    """What would change the answer if it were known here, and is asked for by clients that can do without."""
    return [LeftOut(name, words.words) for name, words in LEFT_OUT.items() if words.is_used(value.get(name))]


def _choices(wire: ChatBody, session_id: str | None, key: str | None) -> int:
    """How many answers are asked for. Several are stored nowhere, so nothing that is kept goes with them."""
    if (n := wire.n or 1) == 1:
        return n
    if session_id is not None:
        raise InvalidRequest("n: a session keeps one answer per turn; leave out session_id or n", "n")
    if key is not None:
        raise InvalidRequest("n: an Idempotency-Key covers one answer; leave out the header or n", "n")
    if any(tool.type == "mcp" for tool in wire.tools or ()):
        raise InvalidRequest("n: server tools cannot be used with several answers", "n")
    return n


def _logprobs(wire: ChatBody) -> int | None:
    if wire.logprobs:
        return wire.top_logprobs or 0
    if wire.top_logprobs:
        raise InvalidRequest("top_logprobs: requires logprobs: true", "top_logprobs")
    return None


def _begun(wire: ChatBody) -> tuple[tuple[Item, ...], Prefill | None]:
    """The items, and the beginning of the answer: as llama-server has it, and by vLLM's words for it."""
    items, goes_on = tuple(read_messages(wire.messages)), wire.continue_final_message
    if goes_on is False:
        return items, None
    before, prefill = split(items)
    if goes_on and wire.add_generation_prompt:
        raise InvalidRequest("continue_final_message: not with add_generation_prompt", "continue_final_message")
    if prefill is None and (goes_on or wire.add_generation_prompt is False):
        name = "continue_final_message" if goes_on else "add_generation_prompt"
        raise InvalidRequest(f"{name}: the last message is no text of the assistant's to go on from", name)
    return before, prefill


def _thinking_tokens(wire: ChatBody) -> int | None:
    """Below 0 there is no limit."""
    given = (wire.max_thinking_tokens, wire.thinking_budget_tokens, wire.reasoning_budget_tokens)
    limits = {value for value in given if value is not None and value >= 0}
    if len(limits) > 1:
        raise InvalidRequest("max_thinking_tokens and its other names differ; give only one", "max_thinking_tokens")
    return limits.pop() if limits else None


def _max_tokens(wire: ChatBody) -> int | None:
    """Clients that say -1 or 0 have no limit of their own."""
    limits = {value for value in (wire.max_completion_tokens, wire.max_tokens) if value is not None and value > 0}
    if len(limits) > 1:
        raise InvalidRequest("max_tokens and max_completion_tokens differ; give only one", "max_tokens")
    return limits.pop() if limits else None
