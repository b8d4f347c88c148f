"""What a tool-call format is. No grammar engine, no template engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tenuto.pipelines.turns import TurnParser
from tenuto.pipelines.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Marker:
    """A text with which a model opens or closes something; `id` where it is one token of its vocabulary."""

    text: str
    id: int | None

    @property
    def lark(self) -> str:
        """The marker in a grammar."""
        return lark_text(self.text) if self.id is None else f"<[{self.id}]>"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a format may judge by: a model's template and vocabulary."""

    template: str
    opening: str
    """The text with which the template opens a turn."""
    call: str
    """How the template writes a turn that calls `f` with {"a": "b"}; empty where it writes none."""
    vocabulary: Vocabulary

    def marker(self, text: str) -> Marker:
        """A marker as this vocabulary has it."""
        return Marker(text, self.vocabulary.markers.get(text))


class Format(Protocol):
    """How a family of models writes tool calls. Immutable, safe for any thread."""

    @property
    def opener(self) -> Marker | None:
        """What opens a call; None where the family has no calls."""

    @property
    def reasons(self) -> bool:
        """Whether turns may hold reasoning, apart from their text."""

    def parser(self, *, calls: bool) -> TurnParser:
        """A fresh parser of one turn; without `calls` a call is text like any other."""

    def call_rule(self, names: Sequence[str]) -> str:
        """Lark for one call after its opener, up to and including what closes it.

        The JSON of the arguments of the tool `names[i]` is the rule `arguments_i`, which somebody else defines.
        """

    def calls_rule(self, *, parallel: bool) -> str:
        """Lark for one or more calls; a call after its opener is the rule `call`."""

    def turn_rule(self, body: str) -> str:
        """Lark for a turn from its first token: the reasoning that the model may do, and then `body`."""


def lark_text(text: str) -> str:
    """A text as a literal of a Lark grammar."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'
