"""Grammars in the form that llguidance reads: literals, JSON by a schema, and rules as they are gathered."""

import json
from typing import Protocol

from tenuto.sessions.items import JsonObject

# Models are trained on JSON with these separators, and with free white space weak ones write blanks without end.
_SPACING = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
ANY_TEXT = r"/(.|\n)*/"


class Spelling(Protocol):
    """How a vocabulary spells the texts of a format."""

    def lark(self, text: str) -> str:
        """A text of the format in a grammar; empty where it is."""

    def stream(self, text: str) -> str:
        """A text of the format as it comes in the stream."""


class Rules:
    """The rules of a grammar while it is written, and what of the schemas it does not hold, in words."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self.faults: list[str] = []
        self._bodies: dict[str, str] = {}

    @property
    def lines(self) -> list[str]:
        """All rules."""
        return [name + body for name, body in self._bodies.items()]

    def text(self, text: str) -> str:
        """A text of the format, each marker in it as the token that it is; empty where it is."""
        return self.spelling.lark(text)

    def add(self, name: str, body: str, attributes: str = "") -> str:
        """Define a rule; gives its name, which has a number where another rule has it already."""
        body, named = f"{attributes}: {body}", name
        for number in range(2, len(self._bodies) + 3):
            if self._bodies.setdefault(named, body) == body:
                break
            named = f"{name}_{number}"
        return named

    def json(self, name: str, schema: JsonObject) -> str:
        """Define a rule for a JSON value; gives its name."""
        return self.add(name, json_rule(schema))


def in_order(*parts: str) -> str:
    """Lark for what comes one after the other."""
    return " ".join(part for part in parts if part) or '""'


def one_of(parts: list[str]) -> str:
    """Lark for one of several."""
    return parts[0] if len(parts) == 1 else f"( {' | '.join(parts)} )"


def lark_text(text: str) -> str:
    """A text as a literal of a Lark grammar."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'


def json_rule(schema: JsonObject, *, coerce_one_of: bool = True) -> str:
    """JSON that is valid by a schema."""
    # `oneOf` taken for `anyOf` serves calls, whose arguments are checked before they are made.
    return "%json " + json.dumps({**schema, "x-guidance": {**_SPACING, "coerce_one_of": coerce_one_of}})
