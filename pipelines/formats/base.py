"""What a tool-call format is, and how the body of one call is read and held. No grammar engine, no template engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.lark import Rules
from tenuto.pipelines.turns import CallBroken, TurnEvent, TurnParser
from tenuto.pipelines.vocabulary import Vocabulary
from tenuto.sessions.items import JsonObject, ToolSpec

Schemas = Mapping[str, JsonObject]
"""The tools' parameters by the tools' names; empty where it is not known which tools there are."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a format may judge by: a model's template and vocabulary."""

    template: str
    opening: str
    """The text with which the template opens a turn."""
    call: str
    """How the template writes a turn that calls `f` with {"a": "b"}; empty where it writes none."""
    vocabulary: Vocabulary
    knows_tools: bool = True
    """Whether the template writes tools or calls in a way of its own."""


class CallReader(Protocol):
    """Reads one call while it streams. Never raises on what a model wrote."""

    @property
    def rest(self) -> str | None:
        """What was pushed beyond the call's own end; None while that has not come."""

    @property
    def text(self) -> str:
        """All that was written."""

    @property
    def started(self) -> bool:
        """Whether the name was told."""

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends where what seems to close the call is text of an argument."""

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""

    def close(self) -> list[TurnEvent]:
        """The call is whole; what was not told yet comes now."""

    def is_whole(self) -> bool:
        """Whether it could be closed here."""

    def broken(self, reason: str) -> CallBroken:
        """What is to be told of a call that is none."""


class CallBody(Protocol):
    """How one call is written between what opens and what closes it. Immutable."""

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""

    def begins(self, text: str, schemas: Schemas) -> bool | None:
        """Whether a text without an opener begins a call of these tools; None where it cannot be told yet."""

    def heads(self, names: Sequence[str]) -> Sequence[str]:
        """With which texts calls of these tools begin, where nothing else opens them."""

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""


@dataclass(frozen=True, slots=True)
class TextOpeners:
    """Texts one of which shows that calls begin, where no token of the vocabulary does."""

    texts: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    """Those that count only where a turn begins with them."""
    think: str = ""
    """Between this and `thought` they are the model's reasoning."""
    thought: str = ""
    begun: bool = False
    """The turn begins inside of the reasoning."""
    chained: bool = False
    """More calls may follow one that begins with a head."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """What shows that calls begin in a free turn: one token, or one of some texts, or either."""

    token: int | None = None
    """That with which the calls begin to which the model is held."""
    texts: TextOpeners | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model puts its reasoning between."""

    opener: str
    closer: str
    begun: bool = False
    """Whether the template begins every turn inside of it."""
    to_text: str = ""
    """What follows the closer where text comes next, in a family that needs it said."""
    to_any: str = ""
    """What follows it where text or a call comes next."""
    back: frozenset[int] = frozenset()
    """The tokens that lead back into it after `to_any`."""


class Format(Protocol):
    """How a family of models writes its turns. Immutable, safe for any thread."""

    @property
    def name(self) -> str:
        """What the family is called in settings."""

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""

    @property
    def calls(self) -> bool:
        """Whether it has calls."""

    @property
    def reasoning(self) -> Reasoning | None:
        """What the model puts its reasoning between; None where it does not mark any."""

    @property
    def reasons(self) -> bool:
        """Whether turns may hold reasoning, apart from their text."""

    @property
    def openers(self) -> frozenset[int]:
        """The tokens that open calls."""

    @property
    def strangers(self) -> frozenset[int]:
        """The tokens that open calls of another form than that to which the model is held."""

    def parser(self, *, calls: bool, tools: Sequence[ToolSpec] = ()) -> TurnParser:
        """A fresh parser of one turn; without `calls` a call is text like any other."""

    def awaited(self, names: Sequence[str]) -> Awaited:
        """What shows that calls of these tools begin."""

    def calls_rule(self, rules: Rules, tools: Mapping[str, JsonObject], *, parallel: bool) -> str:
        """Lark for one or more calls, from the opener on."""

    def awaited_rule(self, rules: Rules, tools: Mapping[str, JsonObject], *, parallel: bool) -> str:
        """Lark for what begins where an awaited token has come, after it, or an awaited text, with it."""

    def rules(self) -> Rules:
        """An empty grammar in this vocabulary."""

    def turn_rule(self, rules: Rules, body: str) -> str:
        """Lark for a turn from its first token: the reasoning that the model may do, and then `body`."""
