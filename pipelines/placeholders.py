"""Placeholders: what stands in place of content while a chat template is rendered, and how they are found again.

A template sees a private sentinel instead of each text that somebody else wrote, so nothing in such a text can change
what the template writes, and afterwards template text and content can be tokenised apart. No template here.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, SupportsIndex

from tenuto.sessions.items import Attachment

# Private-use characters: they stand in no template, and content that holds them is never rendered.
_OPEN, _CLOSE = "\ue000", "\ue001"
_SENTINEL = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")

# The values of "type" in a JSON schema; templates compare and rewrite them, and they carry nothing.
_TYPE_WORDS = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})

_WORD = re.compile(r"[A-Za-z0-9_.-]{0,64}")
"""Of these characters alone no control token is written."""


class Placeholder(str):
    """A string that prints as its sentinel, and compares and hashes as its content.

    So `{{ placeholder }}` and `placeholder + "x"` write the sentinel, while `placeholder == "string"` and a look-up by
    key see the content. It is always true: an empty content does not make a message vanish.
    """

    __slots__ = ("content", "image", "owner", "raw", "table")

    content: str
    image: Attachment | None
    """Where it stands for an image, and its content is empty."""
    owner: int | None
    raw: bool
    table: "PlaceholderTable"

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self.content == (other.content if isinstance(other, Placeholder) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.content)

    def __repr__(self) -> str:
        """As it stands in a list or a mapping that a template prints whole."""
        return f"'{self}'"


Part = str | Placeholder
"""Template text, or the placeholder of a content."""


class Json(Placeholder):
    """JSON that the template has made of placeholders. It may cut it: some leave out the last bracket."""

    __slots__ = ()

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            return self.table.placeholder(self.content[key], self.owner)
        return super().__getitem__(key)


class Arguments(dict[Any, Any]):
    """The arguments of a call for templates that walk them; `tojson` gives the text that the model wrote."""

    raw: Placeholder


class PlaceholderTable:
    """The placeholders of one rendering."""

    def __init__(self) -> None:
        self._placeholders: list[Placeholder] = []

    def placeholder(
        self, content: str, owner: int | None, *, raw: bool = False, kind: type[Placeholder] = Placeholder
    ) -> Placeholder:
        """A new placeholder. `owner` is its item, None for a tool's text; `tojson` does not quote `raw` JSON."""
        # All are equally long, so that a template that measures a text sees the same at any place. Nine characters
        # are what some templates demand of a call's id.
        placeholder = kind(f"{_OPEN}{len(self._placeholders):07}{_CLOSE}")
        placeholder.content, placeholder.owner, placeholder.raw, placeholder.table = content, owner, raw, self
        placeholder.image = None
        self._placeholders.append(placeholder)
        return placeholder

    def image(self, image: Attachment, owner: int) -> Placeholder:
        """A new placeholder of an image."""
        placeholder = self.placeholder("", owner)
        placeholder.image = image
        return placeholder

    def joined(self, *parts: str) -> Placeholder:
        """Texts, of which some are placeholders, as one that prints as all of them: each keeps its own place."""
        joined = Placeholder("".join(parts))
        joined.content = "".join(part.content if isinstance(part, Placeholder) else part for part in parts)
        owners = (part.owner for part in parts if isinstance(part, Placeholder))
        joined.owner, joined.raw, joined.table, joined.image = next(owners, None), False, self, None
        return joined

    def fill(self, value: Any, owner: int | None) -> Any:
        """JSON with a placeholder for every string in it, keys among them."""
        match value:
            case str():
                return self.placeholder(value, owner) if value and value not in _TYPE_WORDS else value
            case dict():
                return {self.placeholder(str(key), owner): self.fill(part, owner) for key, part in value.items()}
            case list() | tuple():
                return [self.fill(part, owner) for part in value]
            case _:
                return value

    def setting(self, value: Any) -> Any:
        """JSON that a template may look at: a word stays as it is, and no other text becomes template text."""
        match value:
            case str():
                return value if _WORD.fullmatch(value) else self.placeholder(value, None)
            case dict():
                return {self.setting(key): self.setting(part) for key, part in value.items()}
            case list():
                return [self.setting(part) for part in value]
            case _:
                return value

    def arguments(self, text: str, owner: int) -> Arguments:
        """A call's arguments as a mapping with placeholders for leaves; empty where the text is not a JSON object."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = {}
        arguments = Arguments(self.fill(value if isinstance(value, dict) else {}, owner))
        arguments.raw = self.placeholder(text, owner, raw=True)
        return arguments

    def split(self, text: str) -> list[str | Placeholder]:
        """Rendered text as template text and placeholders, in order, nothing empty.

        Raises:
            ValueError: the template has cut a placeholder into pieces.
        """
        parts: list[str | Placeholder] = []
        for position, part in enumerate(_SENTINEL.split(text)):
            if position % 2:
                parts.append(self._placeholders[int(part)])
            elif _OPEN in part or _CLOSE in part:
                raise ValueError("the chat template cuts the text of a message")
            elif part:
                parts.append(part)
        return parts


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The `tojson` of Hugging Face's templates: plain JSON, no HTML escapes. What holds a placeholder becomes one. What
    a filter yields is a list, as it is in llama.cpp's own templates."""
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, Arguments):
        return value.raw
    if isinstance(value, Placeholder) and value.raw:
        return value
    text = json.dumps(
        _real(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    first = next(_placeholders_in(value), None)
    return text if first is None else first.table.placeholder(text, first.owner, kind=Json)


def _real(value: Any) -> Any:
    match value:
        case Placeholder():
            return value.content
        case dict():
            return {_real(key): _real(part) for key, part in value.items()}
        case list() | tuple():
            return [_real(part) for part in value]
        case _:
            return value


def _placeholders_in(value: Any) -> Iterator[Placeholder]:
    match value:
        case Placeholder():
            yield value
        case dict():
            for key, part in value.items():
                yield from _placeholders_in(key)
                yield from _placeholders_in(part)
        case list() | tuple():
            for part in value:
                yield from _placeholders_in(part)
