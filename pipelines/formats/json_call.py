"""One tool call that a model writes as a JSON object, read while it streams.

Tolerant: members may come in any order and with any white space. Never raises on what a model wrote.
"""

import json
import re
from dataclasses import dataclass
from typing import NoReturn

from pydantic_core import from_json

from tenuto.pipelines.formats.call_so_far import CallSoFar
from tenuto.pipelines.formats.streams import LONGEST_HEAD
from tenuto.pipelines.turns import CallArguments, CallFinished, TurnEvent

_SPACE = re.compile(r"\s*")
_STRING = r'"(?:[^"\\\n]|\\.)*"'


@dataclass(frozen=True, slots=True)
class Keys:
    """The members of a call, and those with strings that may stand before its name."""

    name: str = "name"
    arguments: str = "arguments"
    before: tuple[str, ...] = ()

    def name_at(self, text: str) -> re.Match[str] | None:
        """The call's name as JSON, where it begins with it."""
        skipped = "|".join(re.escape(json.dumps(key)) for key in self.before)
        skipped = rf"(?:(?:{skipped})\s*:\s*{_STRING}\s*,\s*)*" if skipped else ""
        return re.match(rf'\s*\{{\s*{skipped}"{self.name}"\s*:\s*({_STRING})', text)

    def arguments_at(self, text: str, place: int) -> re.Match[str] | None:
        """Where an object of arguments begins, right after the name."""
        return re.compile(rf'\s*,\s*"{self.arguments}"\s*:\s*(?=\{{)').match(text, place)


USUAL = Keys()


class JsonText:
    """Follows JSON text character by character: whether it is inside of a string, and how deep."""

    def __init__(self) -> None:
        self.in_string = False
        self._escaped = False
        self._depth = 0

    def follow(self, text: str) -> int | None:
        """Go on over a text; the offset right after the bracket that closes the outermost value, if it comes."""
        for offset, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self.in_string:
                # No JSON string holds a raw line break: one that seems to was never closed.
                self.in_string = character not in '"\n'
                self._escaped = character == "\\"
            elif character == '"':
                self.in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return offset + 1
        return None


class JsonCall(CallSoFar):
    """A call of the form {"name": NAME, "arguments": {...}}.

    The name and then the arguments are told as they come if they come in this order, else when the call is closed.
    `ends`: the call ends with its object.
    """

    def __init__(self, index: int, keys: Keys = USUAL, *, ends: bool = False) -> None:
        super().__init__(index)
        self._keys, self._ends = keys, ends
        self._name_end = 0
        self._odd = False
        self._arguments_at: int | None = None
        self._arguments: str | None = None
        self._value = JsonText()
        self._whole = JsonText()

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside of a JSON string."""
        return self._whole.in_string

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""
        rest: str | None = text
        while rest:
            end = self._whole.follow(rest)
            rest = None if end is None else rest[end:]
            if rest is not None and self._ends:
                text, self.rest = text[: len(text) - len(rest)], rest
                break
        self._written.add(text)
        return self._read_head() if self._arguments_at is None else self._read_arguments(text)

    def close(self) -> list[TurnEvent]:
        """The call is whole; what was not told yet comes now."""
        try:
            name, arguments = _read_call(self.text, self._keys)
        except (ValueError, RecursionError) as error:
            return [self.broken(str(error) or type(error).__name__)]
        events: list[TurnEvent] = []
        if not self.started:
            events.append(self._tell_name(name))
        if self._arguments is None:
            self._arguments = arguments
            events.append(CallArguments(self._index, arguments))
        events.append(CallFinished(self._index, self._name, self._arguments))
        return events

    def is_whole(self) -> bool:
        """Whether it could be closed here."""
        try:
            _read_call(self.text, self._keys)
        except (ValueError, RecursionError):
            return False
        return True

    def _read_head(self) -> list[TurnEvent]:
        """Read the name, and where the arguments begin."""
        if self._odd:
            return []
        text = self.text
        events: list[TurnEvent] = []
        if not self.started:
            found = self._keys.name_at(text[:LONGEST_HEAD])
            if found is None:
                self._odd = len(text) >= LONGEST_HEAD
                return []
            events = self._start(found)
        limit = self._name_end + LONGEST_HEAD
        found = None if self._odd else self._keys.arguments_at(text[:limit], self._name_end)
        if found is None:
            self._odd = self._odd or len(text) >= limit
            return events
        self._arguments_at = found.end()
        return events + self._read_arguments(text[found.end() :])

    def _start(self, found: re.Match[str]) -> list[TurnEvent]:
        try:
            name = from_json(found[1])
        except ValueError:
            name = ""
        if not name:
            self._odd = True
            return []
        self._name_end = found.end()
        return [self._tell_name(name)]

    def _read_arguments(self, piece: str) -> list[TurnEvent]:
        if self._arguments is not None:
            return []
        end = self._value.follow(piece)
        if end is not None:
            text = self.text
            self._arguments = text[self._arguments_at : len(text) - (len(piece) - end)]
            piece = piece[:end]
        return [CallArguments(self._index, piece)] if piece else []


def _read_call(text: str, keys: Keys) -> tuple[str, str]:
    """Name and arguments of a whole call. Raises ValueError with the reason in words."""
    members = _members(text)
    name = from_json(members.get(keys.name, "null"))  # which refuses half a character: it cannot be sent to anybody
    if not isinstance(name, str) or not name:
        raise ValueError("the call names no tool")
    return name, read_arguments(members.get(keys.arguments, "{}"))


def read_arguments(raw: str) -> str:
    """The arguments of a call as the text of a JSON object. Raises ValueError with the reason in words."""
    arguments = json.loads(raw, parse_constant=_refuse_constant)
    if isinstance(arguments, str):
        # Some models write the arguments as JSON in a string.
        raw, arguments = arguments, json.loads(arguments, parse_constant=_refuse_constant)
    if arguments is None:
        raw, arguments = "{}", {}
    if not isinstance(arguments, dict):
        raise ValueError("the arguments are not a JSON object")
    return raw


def _members(text: str) -> dict[str, str]:
    """The members of a JSON object as the texts of their values; the first of two with the same key."""
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the call is not valid JSON: {error}") from None
    if not isinstance(whole, dict):
        raise ValueError("the call is not a JSON object")
    decoder = json.JSONDecoder()
    members: dict[str, str] = {}
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        _, end = decoder.raw_decode(text, begin)
        members.setdefault(key, text[begin:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return members


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
