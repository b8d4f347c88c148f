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
    spaced: bool = True
    """Whether a space follows each colon and comma of the call's own members."""
    texts: Sequence[str] = ()

    def reader(self, alphabet: Alphabet, index: int, schemas: Schemas) -> CallReader:
        """A fresh reader of the turn's call of this number."""
        del alphabet, schemas
        return JsonCall(index, self.keys, ends=self.ends)

    def begins(self, text: str, schemas: Schemas) -> bool | None:
        """Whether a text begins a call of these tools; None where it cannot be told yet."""
        found = self.keys.name_at(text[:LONGEST_HEAD])
        if found is not None:
            return not schemas or any(found[1] == json.dumps(name, ensure_ascii=False) for name in schemas)
        return None if len(text) < LONGEST_HEAD and self._partly.fullmatch(text) else False

    @cached_property
    def _partly(self) -> re.Pattern[str]:
        """What may become the beginning of a call up to its name."""
        pieces = [r"\{", *re.findall(".", json.dumps(self.keys.name)), ":", '"', r'(?:[^"\\\n]|\\.)*\\?']
        pattern = ""
        for place, piece in reversed(list(enumerate(pieces))):
            gap = r"\s*" if place in (0, 1, len(self.keys.name) + 3, len(self.keys.name) + 4) else ""
            pattern = rf"{gap}(?:{piece}{pattern})?"
        return re.compile(pattern)

    def heads(self, names: Sequence[str]) -> Sequence[str]:
        """With which texts calls of these tools begin."""
        space = " " * self.spaced
        return [f'{{"{self.keys.name}":{space}{json.dumps(name, ensure_ascii=False)}' for name in names]

    def rule(self, rules: Rules, tools: Mapping[str, JsonObject]) -> str:
        """Lark for one call of one of these tools, held to these schemas."""
        space = " " * self.spaced
        calls: list[str] = []
        for index, (name, schema) in enumerate(tools.items()):
            middle = f'{json.dumps(name, ensure_ascii=False)},{space}"{self.keys.arguments}":{space}'
            calls.append(in_order(rules.text(middle), rules.json(f"arguments_{index}", schema)))
        begin = f'"{self.keys.name}":{space}'
        if self.first is None:
            opening = rules.text("{" + begin)
        else:
            key, pattern = self.first
            opening = in_order(rules.text(f'{{"{key}":{space}"'), f"/{pattern}/", rules.text(f'",{space}{begin}'))
        closing = rules.text("}")
        if self.last is not None:
            key, pattern = self.last
            closing = in_order(rules.text(f',{space}"{key}":{space}"'), f"/{pattern}/", rules.text('"}'))
        return in_order(opening, one_of(calls), closing)
