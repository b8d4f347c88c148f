"""A call as Python writes it: f(a="x", b=1). Read when it is whole; nothing of it is run."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallReader, Schemas
from tenuto.pipelines.formats.call_so_far import CallReadWhole
from tenuto.pipelines.formats.lark import Rules, in_order, one_of
from tenuto.pipelines.formats.values import members_of, own_schema
from tenuto.pipelines.turns import TurnEvent
from tenuto.sessions.items import JsonObject

_NAME = r"[A-Za-z_][\w.-]*"
_CALL = re.compile(rf"\s*({_NAME})\s*\(")
_BEFORE_CALL = re.compile(rf"\s*(?:{_NAME}\s*)?")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {"true": True, "false": False, "null": None}
_NO_CALL = "the call is not a tool's name and its arguments in brackets"


@dataclass(frozen=True, slots=True)
class PythonicBody:
    """The call ends with its bracket. `suffix` may stand between the name and the bracket."""

    suffix: str = ""
    texts: Sequence[str] = ()

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""
        del alphabet, schemas
        return _PythonicCall(index, self.suffix)

    def begins(self, text: str, schemas: Schemas) -> bool | None:
        """Whether a text begins a call of these tools; None where it cannot be told yet."""
        found = _CALL.match(text)
        if found:
            return not schemas or found[1] in schemas
        if schemas:
            return None if any(name.startswith(text.rstrip()) for name in schemas) else False
        return None if _BEFORE_CALL.fullmatch(text) else False

    def heads(self, names: Sequence[str]) -> Sequence[str]:
        """With which texts calls of these tools begin."""
        return [f"{name}{self.suffix}(" for name in names]

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""
        calls: list[str] = []
        for index, (name, schema) in enumerate(tools.items()):
            members = members_of(rules, name, schema, _KEY.fullmatch)
            arguments = [
                (
                    in_order(rules.text(f"{key}="), rules.json(f"argument_{index}_{place}", own_schema(held, schema))),
                    must,
                )
                for place, (key, held, must) in enumerate(members)
            ]
            calls.append(in_order(rules.text(f"{name}{self.suffix}("), listed(arguments), rules.text(")")))
        return one_of(calls)


def listed(members: Sequence[tuple[str, bool]], separator: str = '", "') -> str:
    """Lark for members in their order with separators between them; those that need not be there may be left out."""
    later: list[str] = []
    for member, must in members:
        later.append(f"{separator} {member}" if must else f"( {separator} {member} )?")
    ways: list[str] = []
    for place, (member, must) in enumerate(members):
        ways.append(in_order(member, *later[place + 1 :]))
        if must:
            return one_of(ways)
    return f"( {' | '.join(ways)} )?" if ways else ""


class _PythonicCall(CallReadWhole):
    def __init__(self, index: int, suffix: str) -> None:
        super().__init__(index, _head(suffix))
        self._quote = ""
        self._escaped = False
        self._depth = 0

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside of a string."""
        return bool(self._quote)

    def push(self, text: str) -> list[TurnEvent]:
        """Read on."""
        for place, character in enumerate(text):
            if self._follow(character):
                text, self.rest = text[: place + 1], text[place + 1 :]
                break
        return super().push(text)

    def _follow(self, character: str) -> bool:
        """Whether the call ends with this character."""
        if self._escaped:
            self._escaped = False
        elif self._quote:
            self._escaped = character == "\\"
            self._quote = "" if character == self._quote else self._quote
        elif character in "\"'":
            self._quote = character
        elif character in "([{":
            self._depth += 1
        elif character in ")]}":
            self._depth -= 1
            return self._depth <= 0
        return False

    def is_whole(self) -> bool:
        """Whether it could be closed here."""
        return self.rest is not None and self.started

    def _arguments(self) -> str:
        found = self._head.match(self.text)
        if found is None:
            raise ValueError(_NO_CALL)
        try:
            arguments = json.dumps(_arguments(self.text[found.end() :]), ensure_ascii=False, allow_nan=False)
        except (SyntaxError, MemoryError, TypeError) as error:
            raise ValueError(str(error) or type(error).__name__) from None
        arguments.encode()
        return arguments


def _head(suffix: str) -> re.Pattern[str]:
    """What stands before the arguments."""
    return re.compile(rf"\s*({_NAME}?)(?:{re.escape(suffix)})?\s*\(")


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call from the first on. Raises ValueError and what the reading of Python raises."""
    source = f"f({text}"  # a tool's name need not be one in Python
    call = ast.parse(source.strip(), mode="eval").body
    if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
        raise ValueError("the arguments are not all named")
    return {keyword.arg or "": _value(source, keyword.value) for keyword in call.keywords}


def _value(source: str, node: ast.expr) -> Any:
    """A value as JSON has it, or else as Python has it."""
    written = ast.get_source_segment(source, node) or ""
    try:
        return json.loads(written)
    except ValueError:
        pass
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    return ast.literal_eval(node)
