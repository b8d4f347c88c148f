"""JSON with comments and trailing commas: reading it, and setting members with all else left as it stands. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

MOST_DEPTH = 64
_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE = re.compile(r"(?:[ \t]++|/\*[^\r\n]*?\*/)*+(?://[^\r\n]*+)?(?=\r?\n)")
_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    start: int
    value: "_Value"


@dataclass(frozen=True, slots=True)
class _Value:
    """A value and where it stands in the text. Of an object, `after` is where its last member ends, comma included."""

    start: int
    end: int
    value: Any
    members: tuple[_Member, ...] = ()
    after: int = 0
    has_comma: bool = False

    def member(self, name: str) -> _Member | None:
        """The member of that name; of several, the last, which is the one that counts."""
        return next((each for each in reversed(self.members) if each.name == name), None)


def read(text: str) -> Any:
    """The value of a text; of one without any, an empty object.

    Raises:
        ValueError: it is not JSON, with or without comments; the message says where.
    """
    text = text.removeprefix(_MARK)
    try:
        return json.loads(text, parse_constant=_refuse_constant)  # most files have none, and some are large
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except json.JSONDecodeError:
        return _whole(text).value if _has_value(text) else {}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def with_members(text: str, members: Sequence[tuple[tuple[str, ...], Any]]) -> str:
    """The text with these members set, each named by the way to it; objects on the way are made where none are.

    Raises:
        ValueError: it is not JSON, or there is something else than an object on the way.
    """
    mark = _MARK if text.startswith(_MARK) else ""
    text = text.removeprefix(_MARK)
    for way, value in members:
        text = _with_member(text, way, value)
    return mark + text


def _with_member(text: str, way: tuple[str, ...], value: Any) -> str:
    if not _has_value(text):
        comments = text if not text or text.endswith("\n") else text + "\n"
        return comments + json.dumps(_nested(way, value), indent=2, ensure_ascii=False) + "\n"
    place = _whole(text)
    for step, name in enumerate(way):
        if not isinstance(place.value, dict):
            raise ValueError(f"{'.'.join(way[:step]) or 'it'} is not an object")
        found = place.member(name)
        if found is None:
            return _inserted(text, place, name, _nested(way[step + 1 :], value))
        place = found.value
    if place.value == value:
        return text
    return text[: place.start] + _dumped(text, value, _indent_at(text, place.start)) + text[place.end :]


def _nested(way: Sequence[str], value: Any) -> Any:
    for name in reversed(way):
        value = {name: value}
    return value


def _inserted(text: str, place: _Value, name: str, value: Any) -> str:
    """The text with a new member at the end of an object, behind the comment that belongs to the one before it."""
    end_of_line = _line_end(text)
    outer = _indent_at(text, place.start)
    own_lines = [each for each in place.members if not text[_line_start(text, each.start) : each.start].strip()]
    inner = _indent_at(text, own_lines[-1].start) if own_lines else outer + _unit(text)
    comma = "," if place.members and not place.has_comma else ""
    begin = place.after if place.members else place.start + 1
    rest = _REST_OF_LINE.match(text, begin)
    behind = begin if rest is None else rest.end()
    member = f"{json.dumps(name, ensure_ascii=False)}: {_dumped(text, value, inner)}"
    added = f"{end_of_line}{inner}{member}" + ("," if place.has_comma else "")
    if rest is None and "\n" not in text[behind : place.end - 1]:
        added += end_of_line + outer
    return text[:begin] + comma + text[begin:behind] + added + text[behind:]


def _dumped(text: str, value: Any, indent: str) -> str:
    dumped = json.dumps(value, indent=_unit(text), ensure_ascii=False)
    return dumped.replace("\n", _line_end(text) + indent)


def _unit(text: str) -> str:
    """What the text is indented by, a level."""
    found = re.search(r"^([ \t]+)[\"\]}]", text, re.MULTILINE)
    return found[1] if found else "  "


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _indent_at(text: str, position: int) -> str:
    """The white space that the line of a position begins with."""
    found = re.compile(r"[ \t]*").match(text, _line_start(text, position))
    return found[0] if found else ""


def _has_value(text: str) -> bool:
    gap = _GAP.match(text)
    return gap is None or gap.end() < len(text)


def _whole(text: str) -> _Value:
    reader = _Reader(text)
    value = reader.value(reader.gap(0), 0)
    end = reader.gap(value.end)
    if end != len(text):
        reader.refuse("there is more than one value", end)
    return value


@dataclass(slots=True)
class _Reader:
    """Reads one text from left to right."""

    text: str
    _scalars: json.JSONDecoder = field(default_factory=json.JSONDecoder)

    def gap(self, position: int) -> int:
        """Behind white space and comments."""
        found = _GAP.match(self.text, position)
        return found.end() if found else position

    def value(self, position: int, depth: int) -> _Value:
        """The value that begins there."""
        if depth > MOST_DEPTH:
            self.refuse(f"it is nested more than {MOST_DEPTH} deep", position)
        match self.text[position : position + 1]:
            case "{":
                return self._object(position, depth)
            case "[":
                return self._array(position, depth)
        return self._scalar(position)

    def _scalar(self, position: int) -> _Value:
        if not re.compile(r'"|-?[0-9]|true|false|null').match(self.text, position):
            self.refuse("a value is missing", position)
        try:
            value, end = self._scalars.raw_decode(self.text, position)
        except json.JSONDecodeError as exc:
            self.refuse(exc.msg, exc.pos)
        return _Value(position, end, value)

    def _object(self, start: int, depth: int) -> _Value:
        members: list[_Member] = []
        position, after, has_comma = self.gap(start + 1), start + 1, True
        while self.text[position : position + 1] != "}":
            if not has_comma:
                self.refuse("a comma is missing", position)
            if self.text[position : position + 1] != '"':
                self.refuse("a name in double quotes is missing", position)
            name = self._scalar(position)
            colon = self.gap(name.end)
            if self.text[colon : colon + 1] != ":":
                self.refuse("a colon is missing", colon)
            value = self.value(self.gap(colon + 1), depth + 1)
            members.append(_Member(name.value, position, value))
            position, after, has_comma = self._behind(value.end)
        whole = {each.name: each.value.value for each in members}
        return _Value(start, position + 1, whole, tuple(members), after, has_comma and bool(members))

    def _array(self, start: int, depth: int) -> _Value:
        items: list[Any] = []
        position, has_comma = self.gap(start + 1), True
        while self.text[position : position + 1] != "]":
            if not has_comma:
                self.refuse("a comma is missing", position)
            item = self.value(position, depth + 1)
            items.append(item.value)
            position, _, has_comma = self._behind(item.end)
        return _Value(start, position + 1, items)

    def _behind(self, end: int) -> tuple[int, int, bool]:
        """Behind a member or item: where the next thing is, where this one ends, and whether it has a comma."""
        position = self.gap(end)
        if self.text[position : position + 1] != ",":
            return position, end, False
        return self.gap(position + 1), position + 1, True

    def refuse(self, problem: str, position: int) -> NoReturn:
        """Say where the text is wrong. It may hold secrets, so none of it is repeated."""
        line = self.text.count("\n", 0, position) + 1
        column = position - _line_start(self.text, position) + 1
        raise ValueError(f"{problem} in line {line}, column {column}")


def leaves(members: Mapping[str, Any], way: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Objects within objects as the members that have to be set so that these come into what is there."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in members.items():
        below = isinstance(value, Mapping) and value
        found += leaves(value, (*way, name)) if below else [((*way, name), value)]
    return found
