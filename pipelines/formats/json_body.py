"""A call as one JSON object that holds its name and its arguments."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import CallReader, Schemas
from tenuto.pipelines.formats.json_call import USUAL, JsonCall, Keys
from tenuto.pipelines.formats.lark import Rules, in_order, one_of
from tenuto.pipelines.formats.streams import LONGEST_HEAD
from tenuto.sessions.items import JsonObject


@dataclass(frozen=True)
class JsonBody:
    """`ends`: the call ends with its object, and nothing closes it."""

    keys: Keys = USUAL
    ends: bool = False
    first: tuple[str, str] | None = None
    """A member with an id that stands before the name, and the pattern of the id."""
    last: tuple[str, str] | None = None
    """The same after the arguments."""
    full: bool = False
    """Whether an object without an opener is a call only with its arguments right behind its name."""
    inside: tuple[str, str] = ("", "")
    """White space before each of the call's own members, and before the bracket that closes it."""
    spaced: bool = True
    """Whether a space follows each colon and comma of the call's own members."""
    texts: Sequence[str] = ()

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""
        del alphabet, schemas
        return JsonCall(index, self.keys, ends=self.ends)

    def begins(self, text: str, schemas: Schemas) -> bool | None:
        """Whether a text begins a call of these tools; None where it cannot be told yet."""
        text = text[:LONGEST_HEAD]
        found = self.keys.name_at(text)
        if found is None:
            return None if len(text) < LONGEST_HEAD and self._to_name.fullmatch(text) else False
        if schemas and all(found[1] != json.dumps(name, ensure_ascii=False) for name in schemas):
            return False
        if not self.full or self.keys.arguments_at(text, found.end()) is not None:
            return True
        return None if len(text) < LONGEST_HEAD and self._to_arguments.fullmatch(text, found.end()) else False

    @cached_property
    def _to_name(self) -> re.Pattern[str]:
        """What may become the beginning of a call up to its name."""
        return _beginnings(r" \{", *_key(self.keys.name), " :", r' "(?:[^"\\\n]|\\.)*\\?')

    @cached_property
    def _to_arguments(self) -> re.Pattern[str]:
        """What may become, behind the name, the beginning of the arguments."""
        return _beginnings(" ,", *_key(self.keys.arguments), " :", r" \{")

    def heads(self, names: Sequence[str]) -> Sequence[str]:
        """With which texts calls of these tools begin."""
        space = " " * self.spaced
        return [f'{{"{self.keys.name}":{space}{json.dumps(name, ensure_ascii=False)}' for name in names]

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""
        space, (before, after) = " " * self.spaced, self.inside
        following = f",{before or space}"
        calls: list[str] = []
        for index, (name, schema) in enumerate(tools.items()):
            middle = f'{json.dumps(name, ensure_ascii=False)}{following}"{self.keys.arguments}":{space}'
            calls.append(in_order(rules.text(middle), rules.json(f"arguments_{index}", schema)))
        begin = f'"{self.keys.name}":{space}'
        opening = rules.text(f"{{{before}{begin}")
        if self.first is not None:
            key, pattern = self.first
            opening = in_order(
                rules.text(f'{{{before}"{key}":{space}"'), f"/{pattern}/", rules.text(f'"{following}{begin}')
            )
        closing = rules.text(f"{after}}}")
        if self.last is not None:
            key, pattern = self.last
            closing = in_order(rules.text(f'{following}"{key}":{space}"'), f"/{pattern}/", rules.text(f'"{after}}}'))
        return in_order(opening, one_of(calls), closing)


def _key(name: str) -> Sequence[str]:
    """The characters of a key as patterns."""
    first, *others = map(re.escape, json.dumps(name))
    return (f" {first}", *others)


def _beginnings(*patterns: str) -> re.Pattern[str]:
    """All beginnings of what fits these patterns in a row. Before one with a space in front there may be any."""
    whole = ""
    for pattern in reversed(patterns):
        spaced, pattern = pattern.startswith(" "), pattern.removeprefix(" ")
        whole = rf"\s*(?:{pattern}{whole})?" if spaced else f"(?:{pattern}{whole})?"
    return re.compile(whole)
