"""A text completions request to the raw completions that it asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tenuto.errors import ContextTooLong, InvalidRequest, UnsupportedParameter
from tenuto.json_bounds import MOST_PROMPT_VALUES
from tenuto.pipelines.base import Codec
from tenuto.pipelines.infill import Gap
from tenuto.runtime.dialects.openai.completions.wire import DEFAULT_TOKENS, MOST_COMPLETIONS, REFUSED, CompletionBody
from tenuto.runtime.dialects.openai.sampling import MOST_TOKENS, read_sampling, seeded
from tenuto.runtime.dialects.priorities import priority_of
from tenuto.runtime.dialects.prompts import infill_tokens, prompt_tokens
from tenuto.runtime.dialects.refusals import refuse
from tenuto.runtime.http.body import parse_object, validate
from tenuto.runtime.loop.models import Model, Models
from tenuto.runtime.loop.raw import RawRequest
from tenuto.runtime.loop.room import check_length
from tenuto.sessions.principal import Principal
from tenuto.sessions.priority import Priority


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One text: what to go on from, and the text that stands before what is new."""

    raw: RawRequest
    before: str = ""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request, understood: the texts in the order of their indices, those of one prompt together."""

    model: Model
    texts: tuple[TextRequest, ...]
    stream: bool
    include_usage: bool
    logprobs: bool


def read_completion(body: bytes, models: Models, principal: Principal) -> CompletionRequest:
    """Read the body of a principal's request.

    Raises:
        InvalidRequest: it cannot be understood; UnsupportedParameter for what is known and not served.
        NotFound: there is no such model.
    """
    value = parse_object(body, MOST_PROMPT_VALUES)
    refuse(value, REFUSED)
    return completion_of(validate(CompletionBody, value), models, principal)


def completion_of(wire: CompletionBody, models: Models, principal: Principal) -> CompletionRequest:
    """What a body means. Raises what `read_completion` does."""
    if wire.echo and wire.logprobs is not None:
        raise UnsupportedParameter("logprobs: not available for the prompt; leave out echo or logprobs", "logprobs")
    n = wire.n or 1
    if len(wire.prompt) * n > MOST_COMPLETIONS:
        raise InvalidRequest(f"prompt: {len(wire.prompt)} times {n} texts are more than {MOST_COMPLETIONS}", "prompt")
    model = models.find(wire.model or None)
    return CompletionRequest(
        model,
        tuple(text for prompt in wire.prompt for text in _texts(wire, prompt, model, n, principal)),
        stream=wire.stream is True,
        include_usage=wire.stream_options is not None and wire.stream_options.include_usage is True,
        logprobs=wire.logprobs is not None,
    )


def expect_room(codec: Codec, texts: Sequence[str], context: int) -> None:
    """Raises ContextTooLong where texts of a prompt are longer than the context could be in any tokens."""
    try:
        check_length(codec, texts, context)
    except ContextTooLong as exc:
        exc.param = "prompt"
        raise


def _texts(
    wire: CompletionBody, prompt: str | list[int], model: Model, n: int, principal: Principal
) -> list[TextRequest]:
    sampling = read_sampling(wire, logprobs=wire.logprobs).over(model.defaults)
    if wire.suffix:
        tokens = _around(wire, wire.suffix, prompt, model)
    else:
        if isinstance(prompt, str):
            expect_room(model.codec, [prompt], model.context)
        tokens = prompt_tokens(model.codec, prompt)
    priority = priority_of(wire.service_tier, wire.priority) or Priority.INTERACTIVE
    raw = RawRequest(principal, model.id, tokens, sampling, _max_tokens(wire), tuple(wire.stop or ()), priority)
    before = _echo(model.codec, prompt) if wire.echo else ""
    return [
        TextRequest(replace(raw, sampling=replace(sampling, seed=seeded(sampling.seed, number))), before)
        for number in range(n)
    ]


def _around(wire: CompletionBody, suffix: str, prompt: str | list[int], model: Model) -> tuple[int, ...]:
    if not isinstance(prompt, str):
        raise InvalidRequest("suffix: the prompt before a gap is a text, not token ids", "suffix")
    return infill_tokens(model, Gap(prompt, suffix), _max_tokens(wire), "suffix")


def _echo(codec: Codec, prompt: str | list[int]) -> str:
    if isinstance(prompt, str):
        return prompt
    size = codec.info.vocabulary
    if max(prompt) >= size:
        raise InvalidRequest(f"prompt: there is no token {max(prompt)}; token ids go from 0 to {size - 1}", "prompt")
    return codec.detokenize(prompt)


def _max_tokens(wire: CompletionBody) -> int:
    if wire.max_tokens == -1:
        return MOST_TOKENS
    return wire.max_tokens or DEFAULT_TOKENS
