"""How tokens are chosen, as OpenAI's requests say it: the fields that chat and text completions share.

The ranges are OpenAI's; `top_k`, `min_p`, `repetition_penalty` and `repeat_penalty` are those of local servers.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tenuto.errors import InvalidRequest
from tenuto.pipelines.sampling_defaults import AskedSampling
from tenuto.runtime.http.body import Wire, at_most

MOST_BIASES = 1024
"""How many tokens one request may bias: each costs something in every step."""
MOST_TOKENS = 2**31 - 1
MOST_CHOICES = 16
MOST_STOPS = 64
"""Each is looked for in every piece of text."""
MOST_TOP_LOGPROBS = 20


def strings(value: object) -> object:
    """One string is a list of one."""
    return [value] if isinstance(value, str) else value


Penalty = Annotated[float, Field(ge=-2, le=2)]
Repetition = Annotated[float, Field(ge=0, le=10)]
"""Some clients say 0 for none, and mean 1."""
Limit = Annotated[int, Field(ge=-1, le=MOST_TOKENS)]
"""A number of tokens; some clients of local servers say -1 for no limit, and others 0."""


class StreamOptions(Wire):
    """What a stream brings besides."""

    include_usage: bool | None = None


ServiceTier = Literal["auto", "default", "flex", "scale", "priority"]
"""OpenAI's: `flex` is cheaper and later."""
TIERS = "`flex`: in the background; `default`, `scale`, `priority`: interactive; `auto`: as if absent"


class PlainSamplingFields(Wire):
    """The fields that have the same form everywhere. None: not said."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Annotated[
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=MOST_STOPS)] | None,
        BeforeValidator(strings, json_schema_input_type=str | list[str] | None),
    ] = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Repetition | None = None
    repeat_penalty: Repetition | None = None


class SamplingFields(PlainSamplingFields):
    """All of OpenAI's. None: not said."""

    logit_bias: (
        Annotated[
            dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=MOST_BIASES), at_most(MOST_BIASES)
        ]
        | None
    ) = None


def read_sampling(wire: SamplingFields, *, logprobs: int | None) -> AskedSampling:
    """What the fields mean; what they do not say is left to who knows the model.

    Raises:
        InvalidRequest: they contradict each other, or a bias is named by no id.
    """
    repetition = {value or 1.0 for value in (wire.repetition_penalty, wire.repeat_penalty) if value is not None}
    if len(repetition) > 1:
        raise InvalidRequest("repetition_penalty and repeat_penalty differ; give only one", "repetition_penalty")
    return AskedSampling(
        temperature=wire.temperature,
        top_k=None if wire.top_k is None else max(0, wire.top_k),
        top_p=wire.top_p,
        min_p=wire.min_p,
        seed=wire.seed,
        presence_penalty=wire.presence_penalty or 0.0,
        frequency_penalty=wire.frequency_penalty or 0.0,
        repetition_penalty=repetition.pop() if repetition else None,
        logit_bias=tuple((_token(text), bias) for text, bias in (wire.logit_bias or {}).items()),
        logprobs=logprobs,
    )


def seeded(seed: int | None, number: int) -> int | None:
    """The seed of the answer of that number, so that several answers to one request differ and can be had again."""
    if seed is None:
        return None
    shifted = seed + number
    return shifted if shifted < 2**64 else shifted - 2**64


def _token(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        param = f"logit_bias.{text[:40]}"
        raise InvalidRequest(f"{param}: biases are keyed by token id", param)
    return int(text)
