"""Raw completions: tokens in, what the model makes of them out. No session, no template, no tools."""

from dataclasses import dataclass

from tenuto.pipelines.base import Sampling
from tenuto.runtime.loop.events import TextLogprob


@dataclass(frozen=True, slots=True)
class RawRequest:
    """What to go on from, and what the going on is held to. `temperature` None in Turn has no counterpart here: what
    the sampling says is done. `model` None or `default` is the first."""

    model: str | None
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RawPiece:
    """A piece of the text, and the logprobs of the tokens that have come since the piece before."""

    text: str
    logprobs: tuple[TextLogprob, ...] = ()
