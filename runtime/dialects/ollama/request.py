"""Requests for answers to turns: what their fields mean, and which of them are refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tenuto.errors import InvalidRequest, UnsupportedParameter
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.dialects.headers import body_digest, idempotency_key, session_of, wants_events
from tenuto.runtime.dialects.hints import hint_of
from tenuto.runtime.dialects.ollama.fields import CHAT_REFUSED, GENERATE_REFUSED
from tenuto.runtime.dialects.ollama.keep_alive import KeepAlive
from tenuto.runtime.dialects.ollama.messages import read_images, read_messages
from tenuto.runtime.dialects.ollama.sampling import left_out, max_tokens, options_of, read_sampling
from tenuto.runtime.dialects.ollama.tools import read_format, read_tools
from tenuto.runtime.dialects.ollama.wire import AskBody, GenerateBody, OllamaChatBody
from tenuto.runtime.dialects.refusals import Refusal, refuse
from tenuto.runtime.http.body import parse_object, validate
from tenuto.runtime.loop.prefill import split
from tenuto.runtime.loop.requests import LeftOut, Limits, Reasoning, ToolSelection, Turn
from tenuto.sessions.items import Item, SystemItem, UserItem
from tenuto.sessions.principal import Principal

BodyT = TypeVar("BodyT", bound=AskBody)


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A text to go on from. `max_tokens` None is whatever fits."""

    text: str
    sampling: AskedSampling
    stop: tuple[str, ...]
    max_tokens: int | None
    suffix: str = ""
    """What follows the text that is asked for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, understood: for a turn, for a text to go on from, or else only for a model to be there."""

    model: str | None
    turn: Turn | None = None
    raw: RawPrompt | None = None
    stream: bool = True
    shows_thinking: bool = True
    logprobs: bool = False
    keep_alive: KeepAlive = None


def read_chat(body: bytes, headers: Mapping[str, str], *, principal: Principal) -> Asked:
    """Read a request's body and headers (lower-case names).

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
    """
    wire = _wire(OllamaChatBody, body, CHAT_REFUSED)
    if not wire.messages:
        return _asked(wire)
    tools, unknown = read_tools(wire.tools)
    items, prefill = split(read_messages(wire.messages))
    turn = _turn(wire, items, tools, unknown, body, headers, principal)
    return _asked(wire, replace(turn, prefill=prefill))


def read_generate(body: bytes, headers: Mapping[str, str], *, principal: Principal) -> Asked:
    """The same for one prompt, which no tools go with."""
    wire = _wire(GenerateBody, body, GENERATE_REFUSED)
    if not wire.prompt and not wire.images:
        return _asked(wire)
    if wire.raw or wire.suffix:
        return _asked(wire, raw=_raw(wire))
    system = [SystemItem(wire.system)] if wire.system else []
    items: list[Item] = [*system, UserItem(wire.prompt or "", read_images(wire.images, "images"))]
    return _asked(wire, _turn(wire, items, ToolSelection(given=True), [], body, headers, principal))


def _wire(kind: type[BodyT], body: bytes, refused: Mapping[str, Refusal]) -> BodyT:
    value = parse_object(body)
    refuse(value, refused)
    return validate(kind, value)


def _asked(wire: AskBody, turn: Turn | None = None, raw: RawPrompt | None = None) -> Asked:
    return Asked(
        wire.model or None,
        turn,
        raw,
        wire.stream is not False,
        wire.think is not False,
        wire.logprobs is True,
        wire.keep_alive,
    )


def _turn(
    wire: AskBody,
    items: Sequence[Item],
    tools: ToolSelection,
    unknown_tools: list[LeftOut],
    body: bytes,
    headers: Mapping[str, str],
    principal: Principal,
) -> Turn:
    options, session_id, key = options_of(wire), session_of(headers), idempotency_key(headers)
    return Turn(
        principal=principal,
        model=wire.model or None,
        items=tuple(items),
        session_id=session_id,
        tools=tools,
        sampling=read_sampling(wire),
        reasoning=_reasoning(wire),
        stop=tuple(options.stop or ()),
        response=read_format(wire),
        limits=Limits(max_tokens=max_tokens(options)),
        hint=hint_of(headers),
        wants_events=session_id is not None or wants_events(headers),
        left_out=(*left_out(options), *unknown_tools),
        idempotency_key=key,
        body_digest=None if key is None else body_digest(session_id, body),
    )


def _reasoning(wire: AskBody) -> Reasoning:
    """`think` is a switch, or a word for how much."""
    if isinstance(wire.think, str):
        return Reasoning(is_on=True, effort=wire.think)
    return Reasoning(is_on=wire.think)


def _raw(wire: GenerateBody) -> RawPrompt:
    for name, why in (
        ("system", "without a template there is no place for it"),
        ("images", "raw texts carry none"),
        ("format", "raw texts cannot be constrained"),
    ):
        if getattr(wire, name):
            raise UnsupportedParameter(f"{name}: not with raw, nor with a suffix: {why}", name)
    if not wire.prompt:
        raise InvalidRequest("prompt: field required", "prompt")
    options = options_of(wire)
    for one in left_out(options):
        raise UnsupportedParameter(f"{one.what}: {one.reason}; leave it out", one.what)
    stop = tuple(options.stop or ())
    return RawPrompt(wire.prompt, read_sampling(wire), stop, max_tokens(options), wire.suffix or "")
