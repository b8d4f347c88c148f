"""A call that is a JSON object, or something else: its first character tells which."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallBody, CallReader, Schemas
from tenuto.pipelines.formats.lark import Rules, one_of
from tenuto.pipelines.turns import CallBroken, TurnEvent
from tenuto.sessions.items import JsonObject


@dataclass(frozen=True, slots=True)
class EitherBody:
    """`written`: the tools whose calls a model may be held to write in the other way."""

    json: CallBody
    other: CallBody
    written: frozenset[str] = frozenset()

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""
        return (*self.json.texts, *self.other.texts)

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""
        return _EitherCall(*(body.reader(alphabet, index, schemas) for body in (self.json, self.other)))

    def begins(self, text: str, schemas: Schemas) -> bool | None:
        """Whether a text without an opener begins a call of these tools; None where it cannot be told yet."""
        return (self.json if text.startswith("{") else self.other).begins(text, schemas)

    def heads(self, names: Sequence[str]) -> Sequence[str]:
        """With which texts calls of these tools begin."""
        return (*self.json.heads(names), *self.other.heads([name for name in names if name in self.written]))

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""
        others = {name: schema for name, schema in tools.items() if name in self.written}
        ways = [self.json.rule(rules, tools)]
        return one_of([*ways, self.other.rule(rules, others)] if others else ways)


class _EitherCall:
    """Reads by one of two readers, the first until the call has begun."""

    def __init__(self, json: CallReader, other: CallReader) -> None:
        self._reader, self._other = json, other
        self._begun = False

    @property
    def rest(self) -> str | None:
        """What was pushed beyond the call's own end; None while that has not come."""
        return self._reader.rest

    @property
    def text(self) -> str:
        """All that was written."""
        return self._reader.text

    @property
    def started(self) -> bool:
        """Whether the name was told."""
        return self._reader.started

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends where what seems to close the call is text of an argument."""
        return self._reader.in_string

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
            if self._begun and not text.startswith("{"):
                self._reader = self._other
        return self._reader.push(text)

    def close(self) -> list[TurnEvent]:
        """The call is whole; what was not told yet comes now."""
        return self._reader.close()

    def is_whole(self) -> bool:
        """Whether it could be closed here."""
        return self._reader.is_whole()

    def broken(self, reason: str) -> CallBroken:
        """What is to be told of a call that is none."""
        return self._reader.broken(reason)
