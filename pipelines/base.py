"""What a pipeline is: a backend, and a codec, whose Protocol is here with the plain facts that pass through it.

A codec knows text and tokens and holds no weights; any thread may use it. No requests, no sessions, no HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from weakref import ReferenceType

from tenuto.pipelines.backend import Backend, Bitmask
from tenuto.pipelines.fit import Plan
from tenuto.pipelines.formats.base import TextOpeners
from tenuto.pipelines.images import ImageEncoder, Piece
from tenuto.pipelines.infill import InfillTokens
from tenuto.pipelines.reasoning_watch import ReasoningWatch
from tenuto.pipelines.sampling_defaults import USUAL, SamplingDefaults
from tenuto.pipelines.template_variables import TemplateVariables
from tenuto.pipelines.turns import TurnParser
from tenuto.sessions.items import Attachment, Item, JsonObject, ToolSpec

TOOL_DIGITS = 8
"""So many digits at the beginning of a codec's fingerprint name the tools, whatever the template's variables."""


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
    template: str = ""
    """The text of the chat template."""
    reasons: bool = False
    """Whether its turns may hold reasoning, apart from their text."""
    variables: frozenset[str] = frozenset()
    """What else its template looks at, as far as its text shows: `enable_thinking` may be among them."""
    tool_format: str = ""
    """How its turns are read and held, by the name that settings use, and why."""
    infill: InfillTokens | None = None
    """The tokens with which it fills in the middle of a text; None where its vocabulary has none."""


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
class ReasoningBound:
    """The most tokens of a round's reasoning, after which its closing marker is the only thing that may follow.

    `closing` are the tokens of the closing one, and `leading` those that lead from it to the answer.
    """

    tokens: int
    opener: str
    closer: str
    closing: tuple[int, ...]
    begun: bool = False
    """Whether the turn begins inside of it."""
    leading: tuple[int, ...] = ()
    back: frozenset[int] = frozenset()
    """What would lead back into it, if it came next."""


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """What holds a round's tokens to a form; plain data, made by a codec and compiled by it again in the engine.

    Without an `opener` the grammar holds from the first token to the end of the turn. With one, it begins after that
    token has been sampled, ends where the grammar ends, and may begin again unless `once`. Where `texts` open it, it
    begins with the first of them that the model writes; without a grammar none is ever written whole. `banned` tokens
    are never sampled.
    """

    lark: str = ""
    opener: int | None = None
    texts: TextOpeners | None = None
    once: bool = False
    banned: frozenset[int] = frozenset()
    unenforced: tuple[str, ...] = ()
    """In words, which strict tools it holds to any JSON object all the same, and why."""
    reasoning: ReasoningBound | None = None


class Constraint(Protocol):
    """A compiled grammar in the course of one round. Engine thread only."""

    def mask(self) -> Bitmask | None:
        """The tokens allowed next, valid until the next call; None where all are."""

    def accept(self, token: int) -> None:
        """Go on by a token that has been sampled."""

    def forced(self) -> Sequence[int]:
        """A guess at how the model spells what alone may follow; empty where more than one thing may."""


class TextDecoder(Protocol):
    """Tokens to text while they stream; never gives half a character."""

    def push(self, token: int) -> str:
        """The text that has become whole with this token. Control tokens give none."""

    def flush(self) -> str:
        """What is left, with the replacement character for a character that was cut."""


class Codec(Protocol):
    """Text and tokens of one model: immutable, without weights, safe for any thread."""

    @property
    def info(self) -> CodecInfo:
        """Facts that do not change."""

    @property
    def family(self) -> str:
        """Names tokeniser and template: what all its ledgers have in common, whatever the tools and the variables."""

    def fingerprint(self, tools: Sequence[ToolSpec]) -> str:
        """Names what a ledger's tokens depend on: tokeniser, template and tool block, and variables of the template's
        where these show in more than what opens a turn."""

    def with_variables(self, variables: TemplateVariables) -> "Codec":
        """The same codec, whose template is rendered with these variables too, those of them that it looks at.

        One that has been asked for before is at hand; else it takes some renderings.
        """

    def has_at_hand(self, variables: TemplateVariables) -> bool:
        """Whether `with_variables` takes no time."""

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

    def unseen(self, attachment: Attachment) -> str | None:
        """Why the model does not see what a message carries, in words; None where it sees it. May take a moment."""

    def pieces(self, items: Sequence[Item]) -> tuple[Piece, ...]:
        """The pieces of all images that the model sees in these items. May take a moment."""

    def tokenize(self, text: str) -> list[int]:
        """Text as content: no control and no marker token comes of it."""

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens included."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token, which may be part of a character; control tokens as their text."""

    def decoder(self) -> TextDecoder:
        """A fresh decoder."""

    def parser(self, *, calls: bool, tools: Sequence[ToolSpec] = ()) -> TurnParser:
        """A fresh parser of one turn; without `calls` everything is text.

        `tools`: those that may be called. Some formats tell a call from text by their names, and the type of an
        argument by their schemas.
        """

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

    def begun_with(self, text: str) -> tuple[int, ...]:
        """The tokens that stand for a turn's beginning where somebody else has written it, for what reads and holds
        the turn: behind the reasoning, where the template opens turns inside of it."""

    def bounded(self, source: GrammarSource | None, tokens: int, *, calls: bool) -> GrammarSource | None:
        """The same with a bound on the round's reasoning, where the model marks it. `calls`: it may go on to a call."""

    def reasoning_watch(self) -> ReasoningWatch | None:
        """What tells where a turn reasons, for a fresh turn; None where the model does not mark it."""

    def constraint(self, source: GrammarSource) -> Constraint:
        """Compile a source."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One backend's implementation of a model. `defaults` are what suits it where a request does not say."""

    codec: Codec
    backend: Backend
    defaults: SamplingDefaults = USUAL
    trial: str = "not needed"
    """In words, how it went when the model was opened in a process of its own first."""
    images: ImageEncoder | None = None
    """What makes embeddings of images, where the model sees some."""
    weights: ReferenceType[Any] | None = None
    """Leads to the weights for as long as somebody holds them; None where there are none to speak of."""
    layout: Plan | None = None
    """How it was fitted into memory, where that was planned."""
    cache_identity: str = ""
    """Names all that a snapshot of the cache depends on; empty where none is of use to a later process."""
