"""A call as its tool's name and its arguments one by one, each in tags of its own: the grammar."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallReader, Schemas
from tenuto.pipelines.formats.lark import Rules, in_order, one_of
from tenuto.pipelines.formats.opened_body import OpenedBody
from tenuto.pipelines.formats.tagged_call import TaggedCall, Tags
from tenuto.pipelines.formats.values import Kind, described, kind_of, members_of, types_of, value_rule
from tenuto.sessions.items import JsonObject

_ANY_KEY = "/[A-Za-z_][A-Za-z0-9_.-]*/"


@dataclass(frozen=True, slots=True)
class TaggedBody(OpenedBody):
    """Texts are as the model was trained on them."""

    tags: Tags

    @property
    def texts(self) -> Sequence[str]:
        """All texts in which markers may stand."""
        return self.tags.texts

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""
        return TaggedCall(self.tags, alphabet, index, schemas)

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""
        calls = [
            in_order(self._head(rules, name), self._arguments(rules, f"argument_{index}", name, schema))
            for index, (name, schema) in enumerate(tools.items())
        ]
        return in_order(one_of(calls), rules.text(self.tags.after))

    def _head(self, rules: Rules, name: str) -> str:
        if self.tags.name_extra is None:
            return rules.text(name + self.tags.name_close)
        text, pattern = self.tags.name_extra
        extra = f"/{pattern}/" if pattern else rules.text(name)
        return in_order(rules.text(name + text), extra, rules.text(self.tags.name_close))

    def _arguments(self, rules: Rules, rule: str, tool: str, schema: JsonObject) -> str:
        members = members_of(rules, tool, schema, self._can_write)
        parts: list[str] = []
        for place, (key, held, must) in enumerate(members):
            argument = self._argument(rules, f"{rule}_{place}", rules.text(key), held, schema)
            parts.append(argument if must else f"( {argument} )?")
        root, schema = schema, described(schema, schema)
        more = schema.get("additionalProperties", not members)
        if more is not False:
            key = rules.add(f"{rule.upper()}_KEY", _other_key([key for key, _, _ in members]))
            parts.append(f"( {self._argument(rules, f'{rule}_more', key, more, root)} )*")
        return in_order(*parts) if parts else ""

    def _argument(self, rules: Rules, rule: str, key: str, schema: Any, root: JsonObject) -> str:
        tags, kind = self.tags, kind_of(schema, root)
        kinds: tuple[Kind, ...] = (kind,)
        if (tags.other_key_close is not None or tags.key_type) and kind is Kind.ANY:
            kinds = (Kind.TEXT, Kind.JSON)
        found: list[str] = []
        for each in kinds:
            close = tags.key_close if each is not Kind.JSON or tags.other_key_close is None else tags.other_key_close
            own = schema if isinstance(schema, dict) else {}
            name = f"{rule}_{each.name.lower()}"
            value = value_rule(rules, name, own, root, tags.value_close, each)
            told = self._type(rules, each, own, root)
            found.append(in_order(rules.text(tags.key_open), key, told, rules.text(close), value))
        return one_of(found)

    def _type(self, rules: Rules, kind: Kind, schema: JsonObject, root: JsonObject) -> str:
        if not self.tags.key_type:
            return ""
        names = ["string"] if kind is Kind.TEXT else types_of(schema, root)
        return in_order(rules.text(self.tags.key_type), one_of([rules.text(name) for name in names]))

    def _can_write(self, key: str) -> bool:
        """Whether a key can stand where its tags close it."""
        return key == key.strip() != "" and not set(key) & {
            "\n",
            "\r",
            "<",
            (self.tags.key_type or self.tags.key_close).strip()[:1],
        }


def _other_key(known: Sequence[str]) -> str:
    """Any key but these."""
    return f"{_ANY_KEY} & ~/({'|'.join(map(re.escape, known))})/" if known else _ANY_KEY
