"""One tool call that a model writes as a JSON object, read while it streams.

Tolerant: members may come in any order and with any white space. Never raises on what a model wrote.
"""

import json
import re
from typing import NoReturn

from tenuto.pipelines.turns import CallArguments, CallBroken, CallFinished, CallStarted, TurnEvent

_NAME = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\\n]|\\.)*")')
_ARGUMENTS = re.compile(r'\s*,\s*"arguments"\s*:\s*(?=\{)')
_SPACE = re.compile(r"\s*")


class _Json:
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


class JsonCall:
    """A call of the form {"name": NAME, "arguments": {...}}.

    The name and then the arguments are told as they come if they come in this order, else when the call is closed.
    """

    def __init__(self, index: int) -> None:
        self.text = ""
        """All that was written."""
        self._index = index
        self._name: str | None = None
        self._name_end = 0
        self._odd = False
        self._arguments_at: int | None = None
        self._arguments: str | None = None
        self._told = 0
        self._value = _Json()
        self._whole = _Json()

    @property
    def started(self) -> bool:
        """Whether the name was told."""
        return self._name is not None

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside of a JSON string."""
        return self._whole.in_string

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""
        self.text += text
        rest: str | None = text
        while rest:
            end = self._whole.follow(rest)
            rest = None if end is None else rest[end:]
        events = self._read_name()
        if self._name is not None and not self._odd:
            events += self._read_arguments()
        return events

    def close(self) -> list[TurnEvent]:
        """The call is whole; what was not told yet comes now."""
        try:
            name, arguments = _read_call(self.text)
        except (ValueError, RecursionError) as error:
            return [self.broken(str(error) or type(error).__name__)]
        events: list[TurnEvent] = []
        if self._name is None:
            self._name = name
            events.append(CallStarted(self._index, name))
        if self._arguments is None:
            self._arguments = arguments
            events.append(CallArguments(self._index, arguments))
        events.append(CallFinished(self._index, self._name, self._arguments))
        return events

    def is_whole(self) -> bool:
        """Whether it could be closed here."""
        try:
            _read_call(self.text)
        except (ValueError, RecursionError):
            return False
        return True

    def broken(self, reason: str) -> CallBroken:
        """What is to be told of a call that is none."""
        return CallBroken(text=self.text, reason=reason, index=self._index if self.started else None)

    def _read_name(self) -> list[TurnEvent]:
        if self._name is not None or self._odd:
            return []
        found = _NAME.match(self.text)
        if found is None:
            return []
        try:
            name = json.loads(found[1])
        except ValueError:
            name = ""
        if not name:
            self._odd = True
            return []
        self._name, self._name_end = name, found.end()
        return [CallStarted(self._index, name)]

    def _read_arguments(self) -> list[TurnEvent]:
        if self._arguments is not None:
            return []
        if self._arguments_at is None:
            found = _ARGUMENTS.match(self.text, self._name_end)
            if found is None:
                return []
            self._arguments_at = self._told = found.end()
        piece = self.text[self._told :]
        end = self._value.follow(piece)
        if end is not None:
            piece = piece[:end]
            self._arguments = self.text[self._arguments_at : self._told + end]
        self._told += len(piece)
        return [CallArguments(self._index, piece)] if piece else []


def _read_call(text: str) -> tuple[str, str]:
    """Name and arguments of a whole call. Raises ValueError with the reason in words."""
    members = _members(text)
    name = json.loads(members.get("name", "null"))
    if not isinstance(name, str) or not name:
        raise ValueError("the call names no tool")
    raw = members.get("arguments", "{}")
    arguments = json.loads(raw, parse_constant=_refuse_constant)
    if isinstance(arguments, str):
        # Some models write the arguments as JSON in a string.
        raw, arguments = arguments, json.loads(arguments, parse_constant=_refuse_constant)
    if arguments is None:
        raw, arguments = "{}", {}
    if not isinstance(arguments, dict):
        raise ValueError("the arguments are not a JSON object")
    return name, raw


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
