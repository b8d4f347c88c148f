"""A call as its tool's name and then the arguments as one JSON object."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallReader, Schemas
from tenuto.pipelines.formats.call_so_far import CallSoFar
from tenuto.pipelines.formats.json_call import JsonText, read_arguments
from tenuto.pipelines.formats.lark import Rules, in_order, one_of
from tenuto.pipelines.formats.streams import LONGEST_HEAD
from tenuto.pipelines.turns import CallArguments, CallFinished, TurnEvent
from tenuto.sessions.items import JsonObject


@dataclass(frozen=True, slots=True)
class NamedBody:
    """`ends`: the call ends with its arguments and `after`, and nothing else closes it."""

    before: str = ""
    """Before the name."""
    between: str = ""
    """Between the name, or the id where there is one, and the arguments."""
    after: str = ""
    """After the arguments."""
    id: tuple[str, str] | None = None
    """An id that may stand after the name: the text before it, and its pattern."""
    ends: bool = False
    first: str = ""
    """The pattern of an id that stands before everything else."""

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""
        return (self.before, self.between, self.after, self.id[0] if self.id else "")

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""
        del schemas
        return _NamedCall(self, alphabet, index)

    def begins(self, text: str, schemas: Schemas) -> bool | None:
        """Whether a text begins with a tool's name and what stands behind it. A name alone tells nothing."""
        heads = self.heads(list(schemas))
        return text.startswith(tuple(heads)) or (None if any(head.startswith(text) for head in heads) else False)

    def heads(self, names: Sequence[str]) -> Sequence[str]:
        """With which texts calls of these tools begin, where nothing else opens them."""
        return [f"{name}{self.between}" for name in names] if self.between else []

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""
        given = "" if self.id is None else in_order(rules.text(self.id[0]), f"/{self.id[1]}/")
        calls = [
            in_order(rules.text(name), given, rules.text(self.between), rules.json(f"arguments_{index}", schema))
            for index, (name, schema) in enumerate(tools.items())
        ]
        first = f"/{self.first}/" if self.first else ""
        return in_order(first, rules.text(self.before), one_of(calls), rules.text(self.after))

    def head(self, alphabet: Alphabet) -> re.Pattern[str]:
        """What stands before the arguments in the stream."""
        before, between = (re.escape(alphabet.stream(text).strip()) for text in (self.before, self.between))
        given = ""
        if self.id is not None:
            given = rf"(?:{re.escape(alphabet.stream(self.id[0]).strip())}\s*{self.id[1]}\s*)?"
        return re.compile(
            rf"\s*(?:{self.first})\s*(?:{before})\s*([^\s{{}}\"\ud800-\udfff]+?)\s*{given}(?:{between})\s*"
        )


class _NamedCall(CallSoFar):
    def __init__(self, body: NamedBody, alphabet: Alphabet, index: int) -> None:
        super().__init__(index)
        self._body = body
        self._head = body.head(alphabet)
        self._after = alphabet.stream(body.after).strip()
        self._odd = False
        self._arguments_at: int | None = None
        self._end: int | None = None
        self._json = JsonText()

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside of a JSON string."""
        return self._end is None and self._json.in_string

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""
        self._written.add(text)
        if self._arguments_at is None:
            return [] if self._odd else self._read_head()
        return self._read_arguments(text)

    def _read_head(self) -> list[TurnEvent]:
        text = self.text
        begin = self._brace(text[:LONGEST_HEAD])
        found = None if begin < 0 else self._head.fullmatch(text, 0, begin)
        if found is None:
            self._odd = begin >= 0 or len(text) >= LONGEST_HEAD
            return []
        self._arguments_at = begin
        return [self._tell_name(found[1]), *self._read_arguments(text[begin:])]

    def _read_arguments(self, piece: str) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        if self._end is None:
            end = self._json.follow(piece)
            if end is not None:
                self._end = len(self.text) - (len(piece) - end)
                piece = piece[:end]
            events.append(CallArguments(self._index, piece))
        if self._body.ends and self._end is not None:
            self._look_for_end(self._end)
        return events

    def _brace(self, text: str) -> int:
        """Where the arguments begin: before the name there may stand braces too."""
        begin = -1
        for _ in range(self._body.before.count("{") + 1):
            begin = text.find("{", begin + 1)
            if begin < 0:
                break
        return begin

    def _look_for_end(self, end: int) -> None:
        follows = self.text[end : end + LONGEST_HEAD]
        begun = follows.lstrip()
        if self._after and begun.startswith(self._after):
            self._cut(end + len(follows) - len(begun) + len(self._after))
        elif not self._after or not self._after.startswith(begun) or len(follows) == LONGEST_HEAD:
            self._cut(end)

    def _cut(self, place: int) -> None:
        text = self._written.take()
        self._written.add(text[:place])
        self.rest = text[place:]

    def close(self) -> list[TurnEvent]:
        """The call is whole."""
        try:
            arguments = self._read()
        except (ValueError, RecursionError) as error:
            return [self.broken(str(error) or type(error).__name__)]
        if self._name:
            return [CallFinished(self._index, self._name, arguments)]
        found = self._head.fullmatch(self.text)
        assert found is not None
        started = self._tell_name(found[1])
        return [started, CallArguments(self._index, "{}"), CallFinished(self._index, self._name, "{}")]

    def is_whole(self) -> bool:
        """Whether it could be closed here."""
        try:
            self._read()
        except (ValueError, RecursionError):
            return False
        return self._arguments_at is not None

    def _read(self) -> str:
        """The arguments of the whole call. Raises ValueError with the reason in words."""
        if self._arguments_at is None:
            if self._odd or not self._head.fullmatch(self.text):
                raise ValueError("the call is not a tool's name and a JSON object")
            return "{}"
        if self._end is None:
            raise ValueError("the arguments are not a whole JSON object")
        raw = self.text[self._arguments_at : self._end]
        tail = self.text[self._end :].strip()
        if tail and tail != self._after:
            raise ValueError("something else follows the arguments")
        try:
            return read_arguments(raw)
        except ValueError as error:
            raise ValueError(f"the arguments are not valid JSON: {error}") from None
