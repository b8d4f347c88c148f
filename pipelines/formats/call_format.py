"""The one implementation of Format: a family is a value of it, and its file says which."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import Awaited, Reasoning, Surroundings, TextOpeners
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.lark import ANY_TEXT, Rules, in_order, lark_text, one_of
from tenuto.pipelines.formats.turn_reader import Reading, TurnReader
from tenuto.pipelines.turns import TurnParser
from tenuto.pipelines.vocabulary import Vocabulary
from tenuto.sessions.items import JsonObject, ToolSpec

_LINES = "/\\n{0,2}/"


@dataclass(frozen=True)
class CallFormat:
    """Implements Format. The first block is what the model is held to; the others are read as well."""

    name: str
    vocabulary: Vocabulary
    blocks: tuple[Block, ...] = ()
    reasoning: Reasoning | None = None
    unsaid: tuple[str, ...] = ()
    """Markers around a text that are no part of it."""
    around: tuple[str, str] = ("", "")
    """What may stand before the calls of a turn that says nothing besides, and after them."""
    spoken: tuple[str, str] = ("", "")
    """What may stand before and after what a turn says. That before is no part of it where a turn begins with it."""

    @property
    def calls(self) -> bool:
        """Whether it has calls."""
        return bool(self.blocks)

    @property
    def reasons(self) -> bool:
        """Whether turns may hold reasoning, apart from their text."""
        return self.reasoning is not None

    @cached_property
    def openers(self) -> frozenset[int]:
        """The tokens that open calls."""
        found = (self._alphabet.token(block.start) for block in self.blocks if block.start)
        return frozenset(token for token in found if token is not None)

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""
        thoughts = (self.reasoning.opener, self.reasoning.closer) if self.reasoning else ()
        return [
            *(text for block in self.blocks for text in block.texts),
            *thoughts,
            *self.unsaid,
            *self.around,
            *self.spoken,
        ]

    @cached_property
    def _alphabet(self) -> Alphabet:
        return Alphabet(self.vocabulary, self.texts)

    @cached_property
    def _reading(self) -> Reading:
        thoughts = self.reasoning or Reasoning("", "")
        return Reading(self._alphabet, self.blocks, thoughts, self.unsaid, self.spoken[0])

    def parser(self, *, calls: bool, tools: Sequence[ToolSpec] = ()) -> TurnParser:
        """A fresh parser of one turn; without `calls` a call is text like any other."""
        schemas = {tool.name: tool.parameters for tool in tools} if calls else {}
        return TurnReader(self._reading, calls=calls and self.calls, schemas=schemas)

    def rules(self) -> Rules:
        """An empty grammar in this vocabulary."""
        return Rules(self._alphabet)

    @cached_property
    def _opener(self) -> int | None:
        """The token that shows that the calls begin to which the model is held."""
        return self._alphabet.token(self.blocks[0].start)

    @cached_property
    def _held(self) -> Sequence[Block]:
        """The blocks to whose form a free turn is held."""
        return self.blocks[:1] if self._opener is not None else [block for block in self.blocks if block.held]

    def awaited(self, names: Sequence[str]) -> Awaited:
        """What shows that calls of these tools begin."""
        watched = [block for block in self.blocks if block.held]
        starts = dict.fromkeys(text for block in watched for text in block.openers(names))
        if self._opener is not None:
            starts = dict.fromkeys(start for start in starts if self._alphabet.token(start) is None)
        heads = tuple(head for block in watched if not block.start for head in block.heads(names))
        if not starts and not heads:
            return Awaited(self._opener)
        thoughts = self.reasoning or Reasoning("", "")
        chained = any(block.chained for block in watched)
        texts = TextOpeners(tuple(starts), heads, thoughts.opener, thoughts.closer, thoughts.begun, chained)
        return Awaited(self._opener, texts)

    @property
    def strangers(self) -> frozenset[int]:
        """The tokens that open calls of another form than that to which the model is held."""
        own = "".join(self._alphabet.stream(text) for block in self._held for text in block.texts)
        return frozenset(token for token in self.openers if (self._alphabet.sign(token) or "") not in own)

    def calls_rule(self, rules: Rules, tools: Mapping[str, JsonObject], *, parallel: bool) -> str:
        """Lark for one or more calls, from the opener on."""
        return _between(rules, self.around, self.blocks[0].whole(rules, tools, parallel=parallel))

    def awaited_rule(self, rules: Rules, tools: Mapping[str, JsonObject], *, parallel: bool) -> str:
        """Lark for what begins where an awaited token has come, after it, or an awaited text, with it."""
        begun = self._opener is not None
        return one_of([block.unit(rules, tools, parallel=parallel, begun=begun) for block in self._held])

    def turn_rule(self, rules: Rules, body: str) -> str:
        """Lark for a turn from its first token: the reasoning of a model that reasons, and then `body`."""
        if body.startswith("answer"):
            body = _between(rules, self.spoken, "answer") + body.removeprefix("answer")
        if self.reasoning is None:
            return body
        opener, closer = (self._alphabet.lark(text) for text in (self.reasoning.opener, self.reasoning.closer))
        thoughts = in_order(ANY_TEXT, closer, _LINES)
        if self._alphabet.stream(self.reasoning.closer)[0] not in self._alphabet.signs:
            thoughts = in_order(rules.add("thoughts", ANY_TEXT, f"[suffix={lark_text(self.reasoning.closer)}]"), _LINES)
        return f"{thoughts} ( {body} )" if self.reasoning.begun else f"( {opener} {thoughts} )? ( {body} )"


def _between(rules: Rules, texts: tuple[str, str], body: str) -> str:
    """Lark for a body between two texts, which may be left out."""
    before, after = (f"( {rules.text(text)} )?" if text else "" for text in texts)
    return in_order(before, body, after)


def reasoning_of(
    surroundings: Surroundings, opener: str = "<think>", closer: str = "</think>", mark: str | None = None
) -> Reasoning | None:
    """What a model puts its reasoning between, if it is known to reason; `mark`: what shows it, if not the opener."""
    mark = mark or opener
    if mark not in surroundings.vocabulary.markers and mark not in surroundings.template:
        return None
    begun = re.search(re.escape(opener) + r"\s*$", surroundings.opening) is not None
    return Reasoning(opener, closer, begun)
