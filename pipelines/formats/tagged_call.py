"""Reads a call whose arguments stand in tags, and tells them as the text of a JSON object. Never raises."""

import ast
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import Schemas
from tenuto.pipelines.formats.call_so_far import CallSoFar
from tenuto.pipelines.formats.json_call import JsonText
from tenuto.pipelines.formats.streams import LONGEST_HEAD, Written, held_back
from tenuto.pipelines.formats.values import JSON_TYPES, Kind, kind_of, resolved
from tenuto.pipelines.turns import CallArguments, CallFinished, TurnEvent

_WORDS = {"True": "true", "False": "false", "None": "null"}
"""Values as Python writes them, as some models do."""
_LONGEST_LITERAL = 1 << 16


@dataclass(frozen=True, slots=True)
class Tags:
    """The texts of such a call, as the model was trained on them. A line break at the ends of a value's is no part of
    it."""

    name_close: str
    """After the name. White space alone where the first argument or the end of the call follows."""
    key_open: str
    key_close: str
    value_close: str
    after: str = ""
    """After the last argument."""
    other_key_close: str | None = None
    """What closes a key whose value is not text, where the two differ."""
    name_extra: tuple[str, str] | None = None
    """What stands between the name and `name_close`: a text, and the pattern of what follows it; or the name again."""
    key_type: str = ""
    """Between the key and the type of its value, in the words of JSON Schema, which `key_close` follows."""
    quotes: tuple[str, str] = ("", "")
    """Between which a value may stand that has what closes values in it."""

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""
        other = self.other_key_close or ""
        extra = self.name_extra[0] if self.name_extra else ""
        return (
            self.name_close,
            self.key_open,
            self.key_close,
            self.value_close,
            self.after,
            other,
            extra,
            self.key_type,
        )


class _Place(Enum):
    NAME = auto()
    BETWEEN = auto()
    KEY = auto()
    VALUE = auto()
    ODD = auto()


class TaggedCall(CallSoFar):
    """One call, without what opens and closes it."""

    def __init__(self, tags: Tags, alphabet: Alphabet, index: int, schemas: Schemas) -> None:
        super().__init__(index)
        self._alphabet, self._schemas = alphabet, schemas
        write = alphabet.stream
        self._name_close, self._key_open = write(tags.name_close).strip(), write(tags.key_open).strip()
        self._key_closes: dict[re.Pattern[str], Kind | None] = {_spaced(write(tags.key_close)): None}
        if tags.other_key_close is not None:
            self._key_closes = {
                _spaced(write(tags.key_close)): Kind.TEXT, _spaced(write(tags.other_key_close)): Kind.JSON
            }  # fmt: skip
        self._close = self._value_close = write(tags.value_close).strip()
        self._quotes, self._key_type = tags.quotes, write(tags.key_type)
        self._name_extra = write(tags.name_extra[0]) if tags.name_extra else ""
        self._drops_first, self._drops_last = tags.key_close.endswith("\n"), tags.value_close.startswith("\n")
        self._place = _Place.NAME
        self._why = ""
        self._unread = ""
        self._key = ""
        self._kind = Kind.ANY
        self._arguments = Written()
        self._told = False
        self._value = Written()
        self._begun = False
        self._followed: JsonText | None = None
        """Of a value that is JSON, while it may have strings."""
        self._unknown = False
        """Whether it is yet to be told if it has."""

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside of a value."""
        return self._place is _Place.VALUE

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""
        self._written.add(text)
        if self._place is _Place.ODD:
            return []
        self._unread += text
        steps: dict[_Place, Callable[[], list[TurnEvent] | None]] = {
            _Place.NAME: self._read_name, _Place.BETWEEN: self._read_between, _Place.KEY: self._read_key,
            _Place.VALUE: self._read_value, _Place.ODD: lambda: None,
        }  # fmt: skip
        events: list[TurnEvent] = []
        while (step := steps[self._place]()) is not None:
            events += step
        return events

    def close(self) -> list[TurnEvent]:
        """The call is whole."""
        events = self._last_name()
        why = self._fault()
        if why:
            return [*events, self.broken(why)]
        events += self._tell("}" if self._told else "{}")
        return [*events, CallFinished(self._index, self._name, str(self._arguments))]

    def is_whole(self) -> bool:
        """Whether it could be closed here."""
        return not self._fault() and bool(self._name)

    def _fault(self) -> str:
        if self._place is _Place.VALUE or self._place is _Place.KEY:
            return f"the argument {self._key} is not closed" if self._key else "an argument is not closed"
        if self._place is _Place.BETWEEN and self._unread.strip():
            return "something else stands between the arguments"
        return self._why or ("" if self._name else "the call names no tool")

    def _odd(self, why: str) -> list[TurnEvent]:
        self._why, self._place, self._unread = why, _Place.ODD, ""
        return []

    def _take(self, length: int) -> str:
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken

    def _read_name(self) -> list[TurnEvent] | None:
        mark = self._name_close or self._key_open
        at = self._unread.find(mark, 0, LONGEST_HEAD)
        if at < 0:
            return self._odd("the call names no tool") if len(self._unread) >= LONGEST_HEAD else None
        name = self._take(at)
        self._take(len(self._name_close))
        return self._start(name)

    def _last_name(self) -> list[TurnEvent]:
        """The name of a call without arguments, where nothing closes it."""
        if self._place is not _Place.NAME or self._name_close:
            return []
        return self._start(self._take(len(self._unread)))

    def _start(self, name: str) -> list[TurnEvent]:
        name = (name.partition(self._name_extra)[0] if self._name_extra else name).strip()
        if not name or any(character.isspace() or character in '<>"{}' for character in self._alphabet.shown(name)):
            return self._odd("the call names no tool")
        self._place = _Place.BETWEEN
        return [self._tell_name(name)]

    def _read_between(self) -> list[TurnEvent] | None:
        self._unread = self._unread.lstrip()
        if self._unread.startswith(self._key_open):
            self._take(len(self._key_open))
            self._place, self._key = _Place.KEY, ""
            return []
        return (
            None
            if self._key_open.startswith(self._unread)
            else self._odd("something else stands between the arguments")
        )

    def _read_key(self) -> list[TurnEvent] | None:
        text = self._unread[:LONGEST_HEAD]
        ends = [(found, kind) for close, kind in self._key_closes.items() if (found := close.search(text))]
        if not ends:
            return self._odd("the name of an argument is not closed") if len(text) == LONGEST_HEAD else None
        found, kind = min(ends, key=lambda end: end[0].start())
        key, self._unread = self._unread[: found.start()], self._unread[found.end() :]
        if self._key_type:
            key, _, told = key.partition(self._key_type)
            kind = Kind.TEXT if told == "string" else Kind.JSON if told in JSON_TYPES else None
        self._key = self._alphabet.shown(key).strip()
        self._kind = kind or self._kind_of(self._key)
        self._place, self._begun = _Place.VALUE, False
        self._followed, self._unknown = None, self._kind is Kind.JSON
        opening = ", " if self._told else "{"
        opening += json.dumps(self._key, ensure_ascii=False) + ": " + ('"' if self._kind is Kind.TEXT else "")
        return self._tell(opening)

    def _kind_of(self, key: str) -> Kind:
        root = self._schemas.get(self._name)
        if root is None:
            return Kind.ANY
        schema: Any = resolved(root, root)
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict):
            properties = {}
        more = schema.get("additionalProperties", {}) if isinstance(schema, dict) else {}
        return kind_of(properties.get(key, more), root)

    def _tell(self, piece: str) -> list[TurnEvent]:
        self._arguments.add(piece)
        self._told = True
        return [CallArguments(self._index, piece)]

    def _read_value(self) -> list[TurnEvent] | None:
        if not self._begun and not self._begin_value():
            return None
        at = self._unread.find(self._close)
        if self._kind is Kind.TEXT:
            return self._end_value(at) if at >= 0 else self._go_on()
        self._hold(self._take(at if at >= 0 else len(self._unread) - held_back(self._unread, self._close)))
        if at < 0:
            return None
        if self._followed is not None and self._followed.in_string:  # it stands in a string
            self._hold(self._take(1))
            return []
        return self._end_value(0)

    def _go_on(self) -> list[TurnEvent] | None:
        """Tell what has come of a text."""
        taken = len(self._unread) - held_back(self._unread, self._close)
        if self._drops_last and self._unread[:taken].endswith("\n"):
            taken -= 1
        return self._tell(self._escaped(self._take(taken))) if taken else None

    def _hold(self, piece: str) -> None:
        """Keep what has come of a value that is told when it is whole, and follow it where it is JSON."""
        self._value.add(piece)
        if self._unknown and piece.strip():
            self._unknown = False
            self._followed = JsonText() if piece.lstrip()[0] in '"{[' else None
        if self._followed is not None and self._followed.follow(piece) is not None:
            self._followed = None

    def _begin_value(self) -> bool:
        """Go over what stands before a value; False where more text has to come."""
        skipped = self._drops_first and self._unread[:1] == "\n"
        rest, (quote, unquote) = self._unread[skipped:], self._quotes
        if not self._unread or (len(rest) < len(quote) and quote.startswith(rest)):
            return False
        quoted = bool(quote) and rest.startswith(quote)
        self._take(skipped + len(quote) * quoted)
        self._close = unquote * quoted + self._value_close
        self._begun = True
        return True

    def _end_value(self, at: int) -> list[TurnEvent]:
        """The value is over, before what closes it in the text."""
        self._value.add(self._take(at))
        piece = self._value.take()
        self._take(len(self._close))
        self._place = _Place.BETWEEN
        if self._drops_last:
            piece = piece.removesuffix("\n")
        if self._kind is Kind.TEXT:
            return self._tell(self._escaped(piece) + '"')
        raw = self._alphabet.shown(piece)
        return self._tell(as_json(raw.strip(), self._kind) or json.dumps(raw, ensure_ascii=False))

    def _escaped(self, text: str) -> str:
        return json.dumps(self._alphabet.shown(text), ensure_ascii=False)[1:-1]


def as_json(raw: str, kind: Kind) -> str | None:
    """A value as JSON, which some models write as Python does; None where it is neither."""
    written = _WORDS.get(raw, raw)
    try:
        json.loads(written, parse_constant=_refuse)
        return written
    except (ValueError, RecursionError):
        if kind is not Kind.JSON or raw[:1] not in "[{(" or len(raw) > _LONGEST_LITERAL:
            return None
    try:
        found = json.dumps(ast.literal_eval(raw), ensure_ascii=False, allow_nan=False)
        found.encode()  # half a character cannot be sent to anybody
        return found
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _spaced(text: str) -> re.Pattern[str]:
    """A text with any white space where it has some between its words."""
    return re.compile(r"\s*".join(map(re.escape, text.split())))


def _refuse(name: str) -> None:
    raise ValueError(name)
