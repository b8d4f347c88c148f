"""How tokens are chosen, as the options of Ollama's requests say it."""

from collections.abc import Iterable

from tenuto.errors import InvalidRequest
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.dialects.ollama.fields import OPTIONS_LEFT_OUT
from tenuto.runtime.dialects.ollama.wire import AskBody, OllamaOptions
from tenuto.runtime.loop.requests import LeftOut

_MOST = {"min_p": 1.0, "repeat_penalty": 10.0, "presence_penalty": 2.0, "frequency_penalty": 2.0}


def options_of(wire: AskBody) -> OllamaOptions:
    """The options, held to their ranges. Raises InvalidRequest."""
    options = wire.options or OllamaOptions()
    for name, most in _MOST.items():
        if abs(getattr(options, name) or 0.0) > most:
            raise InvalidRequest(f"options.{name}: must be at most {most:g} away from 0", f"options.{name}")
    return options


def read_sampling(wire: AskBody) -> AskedSampling:
    """What the fields mean; what they do not say is left to who knows the model. Raises InvalidRequest."""
    options = options_of(wire)
    return AskedSampling(
        temperature=options.temperature,
        top_k=None if options.top_k is None else max(0, options.top_k),
        top_p=None if options.top_p is None else min(1.0, options.top_p),
        min_p=options.min_p,
        seed=None if options.seed is None or options.seed < 0 else options.seed,
        presence_penalty=options.presence_penalty or 0.0,
        frequency_penalty=options.frequency_penalty or 0.0,
        repetition_penalty=None if options.repeat_penalty is None else options.repeat_penalty or 1.0,
        logprobs=_logprobs(wire),
    )


def max_tokens(options: OllamaOptions) -> int | None:
    """The limit of an answer; None: the client has none of its own."""
    return options.num_predict if options.num_predict is not None and options.num_predict > 0 else None


def left_out(options: OllamaOptions) -> Iterable[LeftOut]:
    """What would change the answer if it were known here."""
    for name, refusal in OPTIONS_LEFT_OUT.items():
        if refusal.is_used(getattr(options, name)):
            yield LeftOut(f"options.{name}", refusal.words)


def _logprobs(wire: AskBody) -> int | None:
    if wire.logprobs:
        return wire.top_logprobs or 0
    if wire.top_logprobs:
        raise InvalidRequest("top_logprobs: requires logprobs: true", "top_logprobs")
    return None
