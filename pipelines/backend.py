"""What a backend is: the Protocol of weights and cache, and the plain facts that pass through it.

The engine's thread alone touches a backend. No text, no requests, no sessions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tenuto.pipelines.images import Embeddings

Bitmask = NDArray[np.uint32]
"""One bit for each vocabulary entry, little end first, in ceil(vocabulary / 32) words; a set bit allows the token."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen. Temperature 0 takes the likeliest that is left after bias, penalties and mask.

    Presence and frequency penalties count over what the round has sampled (OpenAI's definition), the repetition
    penalty over the last 64 tokens of the sequence, prompt included (llama.cpp's). `logit_bias` is added first.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    """None: none are told. Else those of each sampled token, and of so many of the likeliest beside it."""

    @property
    def shapes(self) -> bool:
        """Whether logits are changed before a token is chosen."""
        return bool(
            self.logit_bias or self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a sampled token was, and the likeliest there were, best first.

    Of the model's own distribution: before bias, penalties, temperature and masks. Minus infinity is what the model
    rules out.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Sampler(Protocol):
    """The sampling state of one round (random numbers among it), made by its backend. Engine thread only."""

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed."""

    def close(self) -> None:
        """Free it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a model's files say of its weights, as far as they do: empty and 0 stand for what they do not."""

    form: str = ""
    """`gguf`, `safetensors` or `script`."""
    architecture: str = ""
    quantisation: str = ""
    parameters: int = 0
    nbytes: int = 0
    width: int = 0
    """How many numbers stand for a token between two layers."""
    are_on_device: bool = False
    """Whether an accelerator of the machine holds them."""
    adapter: str = ""
    """Tells what is applied to them, and by how much, from any other adapter; empty: nothing is."""


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """Facts about a model's weights and cache.

    There are `slots` slots of `cells` tokens each; `context` is what one sequence may hold, `batch_tokens` what one
    launch may carry over all rows. Where its caches cannot batch, a launch's rows are computed one after the other.
    """

    context: int
    slots: int
    cells: int
    batch_tokens: int
    bytes_per_token: int
    can_truncate: bool = True
    can_batch: bool = True
    drafts: int = 0
    """How many drafted tokens one launch may carry over all rows; 0: it verifies none."""
    reads_images: bool = False
    description: str = ""
    runs_on: str = ""
    """What computes it, in words: `llama.cpp`, `MLX on Metal`."""
    weights: Weights = Weights()
    further: tuple[tuple[str, str], ...] = ()
    """Further facts for a person who asks, each with its name."""


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens to feed to one slot, which holds `start` tokens already.

    With a `sampler`, one token is sampled after the last of them, from those that `mask` allows. With `embeddings`, its
    tokens are the span that stands for them, and it is alone in its step.
    A `draft`, a guess of what will be sampled, is fed behind the tokens. `sample_after` samples behind each token of it
    that was right; what was wrong is to be cut off then.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    sampler: Sampler | None = None
    mask: Bitmask | None = None
    embeddings: Embeddings | None = None
    draft: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class RowFailed:
    """Sampling failed for this row alone; its tokens were fed."""

    error: Exception


Sampled = list[int | TokenLogprob | RowFailed | None]
"""For each row of the batch the token, with its logprobs where its sampling asks for them; None where no token was
asked for, or what went wrong for that row."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A slot's cache outside the backend. `data` is a buffer of `nbytes` bytes, which mean what the backend says.

    `extents` are the pieces of images in it that take fewer positions than tokens: begin, end, positions.
    """

    tokens: int
    nbytes: int
    data: Any = field(repr=False)
    extents: tuple[tuple[int, int, int], ...] = ()


class Pending(Protocol):
    """A step that is under way."""


class Backend(Protocol):
    """Weights and cache of one model. Engine thread only, but for construction.

    Any method may raise; a launch or collect that raises leaves the cache of the slots in its batch undefined and
    every other slot as it was.
    """

    @property
    def info(self) -> BackendInfo:
        """Facts that do not change."""

    @property
    def threads(self) -> int:
        """How many threads the next step gets; 0 where that is not the backend's affair."""

    def sampler(self, sampling: Sampling, before: Sequence[int] = (), said: Sequence[int] = ()) -> Sampler:
        """Sampling state for one round of a sequence that ended with the tokens `before`, as far as these matter.

        The round has sampled the tokens `said` so far: penalties count them, and of a seed's random numbers the next
        ones are those that come after them.
        """

    def launch(self, rows: Sequence[Row]) -> Pending:
        """Begin a step over rows of different slots."""

    def collect(self, pending: Pending) -> Sampled:
        """Wait for the step and read its tokens."""

    def sample_after(
        self, pending: Pending, row: int, drafted: int, mask: Bitmask | None
    ) -> int | TokenLogprob | RowFailed:
        """Sample behind the first `drafted` tokens of a row's draft, which are what has been sampled before them.

        After collect, in order, and until the next launch.
        """

    def fork(self, source: int, target: int, tokens: int) -> None:
        """Make `target`, which is empty, hold the first `tokens` of `source`."""

    def truncate(self, slot: int, tokens: int) -> bool:
        """Cut a slot back to its first `tokens`. False where the cache cannot: the slot is then as it was."""

    def release(self, slot: int) -> None:
        """Empty a slot."""

    def snapshot(self, slot: int) -> Snapshot:
        """Copy a slot's cache out, as a buffer of bytes that may be kept anywhere. The slot stays."""

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        """Copy a cache into a slot, which is empty. `data` may be any buffer of the bytes that `snapshot` gave."""

    def close(self) -> None:
        """Free all."""
