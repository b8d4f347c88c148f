"""The format of Gemma 4: call:f{a:<|"|>b<|"|>,n:1} between markers, with strings between markers of their own."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallReader, Schemas, Surroundings
from tenuto.pipelines.formats.block import Block
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of
from tenuto.pipelines.formats.call_so_far import CallReadWhole
from tenuto.pipelines.formats.lark import Rules, in_order, one_of
from tenuto.pipelines.formats.opened_body import OpenedBody
from tenuto.pipelines.formats.pythonic_body import listed
from tenuto.pipelines.formats.values import Kind, kind_of, members_of, own_schema, resolved, value_rule
from tenuto.sessions.items import JsonObject

_QUOTE = '<|"|>'
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_HEAD = re.compile(r"\s*call:\s*([\w.-]+)\s*\{")
_BARE = re.compile(r"[^,\[\]{}]*")
_DEEPEST = 32


def detect(surroundings: Surroundings) -> CallFormat | None:
    """The format, if this model's template speaks it."""
    return of(surroundings) if f"<|tool_call>call:f{{a:{_QUOTE}b{_QUOTE}}}" in surroundings.call else None


def of(surroundings: Surroundings) -> CallFormat:
    """The format as this model has it."""
    reasoning = reasoning_of(surroundings, "<|channel>thought\n", "<channel|>", mark="<|channel>")
    return CallFormat("gemma4", surroundings.vocabulary, (_BLOCK,), reasoning)


@dataclass(frozen=True, slots=True)
class GemmaBody(OpenedBody):
    """Read when it is whole."""

    texts: Sequence[str] = (_QUOTE,)

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""
        del schemas
        return _GemmaCall(alphabet, index)

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""
        calls = [
            in_order(rules.text(name), self._object(rules, f"argument_{index}", name, schema, schema, 0))
            for index, (name, schema) in enumerate(tools.items())
        ]
        return in_order(rules.text("call:"), one_of(calls))

    def _object(self, rules: Rules, rule: str, tool: str, schema: JsonObject, root: JsonObject, depth: int) -> str:
        members = [
            (in_order(rules.text(f"{key}:"), self._any(rules, f"{rule}_{place}", tool, held, root, depth)), must)
            for place, (key, held, must) in enumerate(
                members_of(rules, tool, {**own_schema(schema, root)}, _KEY.fullmatch)
            )
        ]
        return in_order(rules.text("{"), listed(members, '","'), rules.text("}"))

    def _any(self, rules: Rules, rule: str, tool: str, schema: Any, root: JsonObject, depth: int) -> str:
        held, kind = resolved(schema, root), kind_of(schema, root)
        if kind is Kind.TEXT:
            return in_order(rules.text(_QUOTE), value_rule(rules, rule, held, root, _QUOTE, Kind.TEXT))
        types = held.get("type") if isinstance(held, dict) else None
        if types in ("integer", "number", "boolean", "null"):
            return rules.json(rule, own_schema(held, root))
        if types == "object" and depth < _DEEPEST and "properties" in held:
            return self._object(rules, rule, tool, held, root, depth + 1)
        if types == "array" and depth < _DEEPEST and "items" in held:
            item = self._any(rules, f"{rule}_item", tool, held["items"], root, depth + 1)
            if held.keys() & {"minItems", "maxItems", "prefixItems", "contains", "uniqueItems"}:
                rules.faults.append(f"how many and which items lists have is not enforced for {tool}")
            return in_order(rules.text("["), f'( {item} ( "," {item} )* )?', rules.text("]"))
        rules.faults.append(f"a value of no single type is not enforced for {tool}")
        return self._free(rules)

    @staticmethod
    def _free(rules: Rules) -> str:
        """Any value."""
        if not any(line.startswith("any_value:") for line in rules.lines):
            text = value_rule(rules, "any_text", {}, {}, _QUOTE, Kind.TEXT)
            rules.add("any_text_value", in_order(rules.text(_QUOTE), text))
            rules.json("any_number", {"type": ["number", "boolean", "null"]})
            rules.add("any_member", '/[A-Za-z_][A-Za-z0-9_]*/ ":" any_value')
            rules.add("any_object", '"{" ( any_member ( "," any_member )* )? "}"')
            rules.add("any_list", '"[" ( any_value ( "," any_value )* )? "]"')
            rules.add("any_value", "any_text_value | any_number | any_object | any_list")
        return "any_value"


_BLOCK = Block(GemmaBody(), call_open="<|tool_call>", call_close="<tool_call|>", between="")


class _GemmaCall(CallReadWhole):
    def __init__(self, alphabet: Alphabet, index: int) -> None:
        super().__init__(index, _HEAD)
        self._alphabet = alphabet
        self._quote = alphabet.stream(_QUOTE)

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside of a string."""
        return self.text.count(self._quote) % 2 == 1

    def _arguments(self) -> str:
        if not self._name:
            raise ValueError("the call names no tool")
        text = self.text[self.text.index("{") :]
        value, end = self._value(text, 0)
        if text[end:].strip():
            raise ValueError("something else follows the arguments")
        return json.dumps(value, ensure_ascii=False)

    def _value(self, text: str, at: int) -> tuple[Any, int]:
        """A value, and where it ends."""
        at += len(text[at:]) - len(text[at:].lstrip())
        if text.startswith(self._quote, at):
            begin = at + len(self._quote)
            end = text.index(self._quote, begin)
            return self._alphabet.shown(text[begin:end]), end + len(self._quote)
        if text[at : at + 1] == "{":
            return self._members(text, at + 1)
        if text[at : at + 1] == "[":
            return self._items(text, at + 1)
        found = _BARE.match(text, at)
        assert found is not None
        word = self._alphabet.shown(found[0]).strip()
        try:
            return json.loads(word, parse_constant=_refuse), found.end()
        except ValueError:
            raise ValueError(f"{word!r} is not a value") from None

    def _members(self, text: str, at: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        while not text[at:].lstrip().startswith("}"):
            colon = text.index(":", at)
            key = text[at:colon].strip().removeprefix(self._quote).removesuffix(self._quote).strip('"')
            if not key or self._alphabet.shown(key) != key:
                raise ValueError("an argument has no name")
            members[key], at = self._value(text, colon + 1)
            at = _after_comma(text, at, "}")
        return members, text.index("}", at) + 1

    def _items(self, text: str, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while not text[at:].lstrip().startswith("]"):
            item, at = self._value(text, at)
            items.append(item)
            at = _after_comma(text, at, "]")
        return items, text.index("]", at) + 1


def _after_comma(text: str, at: int, closer: str) -> int:
    rest = text[at:].lstrip()
    at = len(text) - len(rest)
    if rest.startswith(","):
        return at + 1
    if not rest.startswith(closer):
        raise ValueError("the arguments are not closed")
    return at


def _refuse(name: str) -> None:
    raise ValueError(name)
