"""What a pipeline is: the codec and backend Protocols and the plain facts that pass through them.

A codec knows text and tokens and holds no weights; any thread may use it. A backend holds the weights and the cache;
the engine's thread alone touches it. No requests, no sessions, no HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tenuto.sessions.items import Item, JsonObject, ToolSpec

Bitmask = NDArray[np.uint32]
"""One bit for each vocabulary entry, little end first, in ceil(vocabulary / 32) words; a set bit allows the token."""


# What a codec tells and makes.


@dataclass(frozen=True, slots=True)
class CodecInfo:
    """Facts about a model's tokens."""

    model: str
    vocabulary: int
    stop_tokens: frozenset[int]
    """The tokens that end a turn."""
    control_tokens: frozenset[int]
    """Control and marker ids, which content never becomes."""
    modalities: frozenset[str] = frozenset({"text"})
    """What it reads: `text`, and of `image`, `audio` and `file` those that its messages may carry."""
    bos: int | None = None
    """The token to put before a text that begins a sequence, where the model wants one."""
    longest_piece: int = 1 << 10
    """The bytes of the longest entry: a text has at least its bytes divided by this of tokens."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """New items as tokens: one list for each item, then the text that opens the assistant's turn.

    An item's tokens begin right after the content of the item before it, so a ledger can be cut at any item.
    """

    items: tuple[tuple[int, ...], ...]
    opening: tuple[int, ...]


class ToolChoice(StrEnum):
    """Whether the model may, must or must not call. A named tool is REQUIRED with a list of one."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """What holds a round's tokens to a form; plain data, made by a codec and compiled by it again in the engine.

    Without an `opener` the grammar holds from the first token to the end of the turn. With one, it begins after that
    token has been sampled, ends where the grammar ends, and may begin again unless `once`. `banned` tokens are never
    sampled.
    """

    lark: str = ""
    opener: int | None = None
    once: bool = False
    banned: frozenset[int] = frozenset()
    unenforced: tuple[str, ...] = ()
    """In words, which strict tools it holds to any JSON object all the same, and why."""


class Constraint(Protocol):
    """A compiled grammar in the course of one round. Engine thread only."""

    def mask(self) -> Bitmask | None:
        """The tokens allowed next, valid until the next call; None where all are."""

    def accept(self, token: int) -> None:
        """Go on by a token that has been sampled."""


class TextDecoder(Protocol):
    """Tokens to text while they stream; never gives half a character."""

    def push(self, token: int) -> str:
        """The text that has become whole with this token. Control tokens give none."""

    def flush(self) -> str:
        """What is left, with the replacement character for a character that was cut."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call has begun and its name is known. `index` counts the calls of the turn from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of the call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A tool call is whole. `arguments` is the JSON text, as the model wrote it."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallBroken:
    """What looked like a call is none, or was cut. `text` is what the model wrote; `index` is set if it was started."""

    text: str
    reason: str
    index: int | None = None


TurnEvent = TextDelta | ReasoningDelta | CallStarted | CallArguments | CallFinished | CallBroken


class TurnParser(Protocol):
    """One turn's tokens to events. The same for streamed and whole answers; never raises on what a model wrote."""

    def push(self, token: int) -> list[TurnEvent]:
        """Read the next sampled token."""

    def finish(self) -> list[TurnEvent]:
        """The turn has ended or was cut: give what was held back."""


class Codec(Protocol):
    """Text and tokens of one model: immutable, without weights, safe for any thread."""

    @property
    def info(self) -> CodecInfo:
        """Facts that do not change."""

    def fingerprint(self, tools: Sequence[ToolSpec]) -> str:
        """Names what a ledger's tokens depend on: tokeniser, template and tool block."""

    @property
    def looks_back(self) -> str | None:
        """Why the whole conversation has to be rendered for what is new in it; None where a short stand-in will do.

        Found out when it is first asked for, which takes a moment.
        """

    def suffix(
        self,
        before: Sequence[Item],
        new: Sequence[Item],
        tools: Sequence[ToolSpec],
        *,
        ended: bool,
        said: Mapping[int, Sequence[int]] = ...,
    ) -> Rendered:
        """Render only what is new. `ended`: the tokens before it end with the end-of-turn token.

        `said`: tokens that the model has sampled elsewhere for some of the new items, by their places, each after what
        opened its turn. They stay as they are where such a turn is opened in the same way here.

        Raises:
            TemplateFailed: the chat template refused the conversation.
        """

    def tokenize(self, text: str) -> list[int]:
        """Text as content: no control and no marker token comes of it."""

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens included."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token, which may be part of a character; control tokens as their text."""

    def decoder(self) -> TextDecoder:
        """A fresh decoder."""

    def parser(self, *, calls: bool) -> TurnParser:
        """A fresh parser of one turn; without `calls` everything is text."""

    def grammar(
        self, tools: Sequence[ToolSpec], choice: ToolChoice, *, parallel: bool, answer: JsonObject | None = None
    ) -> GrammarSource | None:
        """What a round is held to, or None where nothing needs holding.

        Tools that are not `strict`, and those whose schema cannot be compiled, are held to any JSON object. With the
        schema of an `answer`, the text of a turn that does not call is one JSON value that is valid by it.

        Raises:
            InvalidRequest: what is asked for cannot be enforced: a call, where none is possible, or the answer.
        """

    def unenforced(self, tools: Sequence[ToolSpec], *, parallel: bool) -> tuple[str, ...] | None:
        """What `grammar` says so of where calls may be made; None where it is not at hand, and `grammar` compiles."""

    def constraint(self, source: GrammarSource) -> Constraint:
        """Compile a source."""


# What a backend does.


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
    description: str = ""
    runs_on: str = ""
    """What computes it, in words: `llama.cpp`, `MLX on Metal`."""
    further: tuple[tuple[str, str], ...] = ()
    """Further facts for a person who asks, each with its name."""


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens to feed to one slot, which holds `start` tokens already.

    With a `sampler`, one token is sampled after the last of them, from those that `mask` allows.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    sampler: Sampler | None = None
    mask: Bitmask | None = None


@dataclass(frozen=True, slots=True)
class RowFailed:
    """Sampling failed for this row alone; its tokens were fed."""

    error: Exception


Sampled = list[int | TokenLogprob | RowFailed | None]
"""For each row of the batch the token, with its logprobs where its sampling asks for them; None where no token was
asked for, or what went wrong for that row."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A slot's cache outside the backend. `data` is the backend's own affair."""

    tokens: int
    nbytes: int
    data: Any = field(repr=False)


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

    def sampler(self, sampling: Sampling, before: Sequence[int] = ()) -> Sampler:
        """Sampling state for one round of a sequence that ends with the tokens `before`, as far as these matter."""

    def launch(self, rows: Sequence[Row]) -> Pending:
        """Begin a step over rows of different slots."""

    def collect(self, pending: Pending) -> Sampled:
        """Wait for the step and read its tokens."""

    def fork(self, source: int, target: int, tokens: int) -> None:
        """Make `target`, which is empty, hold the first `tokens` of `source`."""

    def truncate(self, slot: int, tokens: int) -> bool:
        """Cut a slot back to its first `tokens`. False where the cache cannot: the slot is then as it was."""

    def release(self, slot: int) -> None:
        """Empty a slot."""

    def snapshot(self, slot: int) -> Snapshot:
        """Copy a slot's cache out. The slot stays."""

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        """Copy a cache into a slot, which is empty."""

    def close(self) -> None:
        """Free all."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One backend's implementation of a model. `temperature` is what suits it where a request names none."""

    codec: Codec
    backend: Backend
    temperature: float = 0.7
    trial: str = "not needed"
    """In words, how it went when the model was opened in a process of its own first."""
