"""A call as its tool's name and its arguments in tags of their names, objects and lists as tags in tags: the grammar.

An object's members have tags of their keys, a list's members are all `item`. Where a schema says more of a value than
that can be held to, the value is JSON, which is read too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallReader, Schemas
from tenuto.pipelines.formats.lark import Rules, in_order, one_of
from tenuto.pipelines.formats.nested_call import KEY, NestedCall
from tenuto.pipelines.formats.opened_body import OpenedBody
from tenuto.pipelines.formats.values import Kind, kind_of, members_of, resolved, value_rule
from tenuto.sessions.items import JsonObject

_DEEPEST = 4
_ANY_KEY = "/[A-Za-z_][A-Za-z0-9_.-]*/"
_NOTES = frozenset(
    {"title", "description", "default", "examples", "$defs", "definitions", "$schema", "$id", "$comment"}
)
_OF_OBJECTS = frozenset({"type", "properties", "required", "additionalProperties"}) | _NOTES
_OF_LISTS = frozenset({"type", "items", "minItems", "maxItems"}) | _NOTES


@dataclass(frozen=True, slots=True)
class NestedBody(OpenedBody):
    """`mark`: what stands before each tag."""

    mark: str
    name_close: str

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""
        return (self.mark, self.name_close)

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""
        return NestedCall(alphabet.stream(self.mark), self.name_close, alphabet, index, schemas)

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""
        return one_of(
            [
                in_order(
                    rules.text(name + self.name_close),
                    self._members(rules, f"argument_{index}", name, schema, schema, 0),
                )
                for index, (name, schema) in enumerate(tools.items())
            ]
        )

    def _members(self, rules: Rules, rule: str, tool: str, schema: Any, root: JsonObject, depth: int) -> str:
        held = {**root, **schema} if schema is not root else root
        members = members_of(rules, tool, held, KEY.fullmatch)
        parts: list[str] = []
        for place, (key, each, must) in enumerate(members):
            member = self._tagged(rules, f"{rule}_{place}", tool, key, each, root, depth)
            parts.append(member if must else f"( {member} )?")
        if not members and schema.get("additionalProperties", True) is not False:
            parts.append(f"( {self._any_member(rules)} )*")
        return in_order(*parts) if parts else ""

    def _any_member(self, rules: Rules) -> str:
        """A member of any name, with any text as its value."""
        value = value_rule(rules, "any_text", {}, {}, f"{self.mark}</", Kind.TEXT)
        key = rules.add("ANY_KEY", _ANY_KEY)
        return in_order(rules.text(f"{self.mark}<"), key, rules.text(">"), value, key, rules.text(">"))

    def _tagged(self, rules: Rules, rule: str, tool: str, key: str, schema: Any, root: JsonObject, depth: int) -> str:
        """A value between the tags of its key."""
        closer = f"{self.mark}</{key}>"
        held, kind = resolved(schema, root), kind_of(schema, root)
        held = held if isinstance(held, dict) else {}
        nested = None if kind is not Kind.JSON else self._nested(rules, rule, tool, held, root, depth)
        if nested is None:
            value = value_rule(rules, rule, held, root, closer, kind)
        else:
            value = in_order(nested, rules.text(closer))
        return in_order(rules.text(f"{self.mark}<{key}>"), value)

    def _nested(self, rules: Rules, rule: str, tool: str, held: JsonObject, root: JsonObject, depth: int) -> str | None:
        """An object or a list as tags in tags; None where it is held as JSON."""
        if depth >= _DEEPEST:
            return None
        if held.get("type") == "object" and held.get("properties") and held.keys() <= _OF_OBJECTS:
            if all(KEY.fullmatch(key) for key in (*held["properties"], *held.get("required", ()))):
                return self._members(rules, rule, tool, held, root, depth + 1)
        elif held.get("type") == "array" and isinstance(held.get("items"), dict) and held.keys() <= _OF_LISTS:
            item = self._tagged(rules, f"{rule}_item", tool, "item", held["items"], root, depth + 1)
            most = held.get("maxItems", "")
            return f"( {item} ){{{held.get('minItems', 0)},{most}}}"
        return None
