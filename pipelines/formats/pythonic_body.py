"""A call as Python writes it: f(a="x", b=1). Read when it is whole; nothing of it is run."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallReader, Schemas
from tenuto.pipelines.formats.lark import Rules, in_order, one_of
from tenuto.pipelines.formats.streams import LONGEST_HEAD, Written
from tenuto.pipelines.formats.values import members_of, own_schema
from tenuto.pipelines.turns import CallArguments, CallBroken, CallFinished, CallStarted, TurnEvent
from tenuto.sessions.items import JsonObject

_NAME = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*\(")
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
        found = _NAME.match(text)
        if found:
            return not schemas or found[1] in schemas
        if schemas:
            return None if any(name.startswith(text.rstrip()) for name in schemas) else False
        return None if re.fullmatch(r"\s*(?:[A-Za-z_][\w.-]*\s*)?", text) else False

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


class _PythonicCall:
    def __init__(self, index: int, suffix: str) -> None:
        self._written = Written()
        self._head = ""
        self.rest: str | None = None
        self._index, self._suffix = index, suffix
        self._name = ""
        self._read = 0
        self._quote = ""
        self._escaped = False
        self._depth = 0

    @property
    def text(self) -> str:
        """All that was written."""
        return str(self._written)

    @property
    def started(self) -> bool:
        """Whether the name was told."""
        return bool(self._name)

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
        self._written.add(text)
        if self._name or len(self._head) == LONGEST_HEAD:
            return []
        self._head = (self._head + text)[:LONGEST_HEAD]
        found = _NAME.match(self._head)
        if found is None:
            return []
        self._name = found[1].removesuffix(self._suffix) if self._suffix else found[1]
        return [CallStarted(self._index, self._name)]

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

    def close(self) -> list[TurnEvent]:
        """The call is whole."""
        try:
            arguments = json.dumps(_arguments(self.text), ensure_ascii=False, allow_nan=False)
            arguments.encode()
        except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError) as error:
            return [self.broken(str(error) or type(error).__name__)]
        return [CallArguments(self._index, arguments), CallFinished(self._index, self._name, arguments)]

    def is_whole(self) -> bool:
        """Whether it could be closed here."""
        return self.rest is not None and bool(self._name)

    def broken(self, reason: str) -> CallBroken:
        """What is to be told of a call that is none."""
        return CallBroken(text=self.text, reason=reason, index=self._index if self.started else None)


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a whole call. Raises ValueError and what the reading of Python raises."""
    found = _NAME.match(text)
    if found is None:
        raise ValueError(_NO_CALL)
    source = "f(" + text[found.end() :]  # a tool's name need not be one in Python
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
