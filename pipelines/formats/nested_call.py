"""Reads a call whose arguments are tags in tags, and tells them when it is whole. Never raises."""

import json
import re
from typing import Any

from tenuto.pipelines.formats.alphabet import Alphabet
from tenuto.pipelines.formats.base import Schemas
from tenuto.pipelines.formats.call_so_far import CallReadWhole
from tenuto.pipelines.formats.tagged_call import as_json
from tenuto.pipelines.formats.values import Kind, described, kind_of
from tenuto.sessions.items import JsonObject

KEY = re.compile(r"[A-Za-z_][\w.-]*")
_NAME = r"\s*([^\s<>\"{}\ud800-\udfff]+)\s*"
_DEEPEST = 64
_ITEM = "item"

_Member = tuple[str, Any]
"""A key, and a text or a list of members."""


class NestedCall(CallReadWhole):
    """One call, without what opens and closes it."""

    in_string = False
    """Nothing in a value looks like the end of a call but in a vocabulary without the mark."""

    def __init__(self, mark: str, name_close: str, alphabet: Alphabet, index: int, schemas: Schemas) -> None:
        super().__init__(index, re.compile(_NAME + re.escape(name_close)))
        self._mark, self._name_close, self._alphabet, self._schemas = mark, name_close, alphabet, schemas

    def _arguments(self) -> str:
        """The arguments as the text of a JSON object. Raises ValueError with the reason in words."""
        if not self._name:
            raise ValueError("the call names no tool")
        tags = _Tags(self._mark, self.text.partition(self._name_close)[2])
        root = self._schemas.get(self._name, {})
        members = tags.members(0)
        if tags.left.strip():
            raise ValueError("something else stands between the arguments")
        return self._object(members, root, root)

    def _object(self, members: list[_Member], schema: Any, root: JsonObject) -> str:
        held = described(schema, root)
        properties = held.get("properties")
        known = properties if isinstance(properties, dict) else {}
        more = held.get("additionalProperties", {})
        parts = (
            f"{json.dumps(key, ensure_ascii=False)}: {self._value(value, known.get(key, more), root)}"
            for key, value in dict(members).items()  # as in JSON, the last of a name counts
        )
        return f"{{{', '.join(parts)}}}"

    def _value(self, value: str | list[_Member], schema: Any, root: JsonObject) -> str:
        kind, held = kind_of(schema, root), described(schema, root)
        if isinstance(value, str):
            text = self._alphabet.shown(value)
            if kind is Kind.TEXT:
                return json.dumps(text, ensure_ascii=False)
            if not text.strip() and held.get("type") in ("object", "array"):
                return "{}" if held["type"] == "object" else "[]"
            return as_json(text.strip(), kind) or json.dumps(text, ensure_ascii=False)
        if held.get("type") == "array" or (held.get("type") != "object" and all(key == _ITEM for key, _ in value)):
            return f"[{', '.join(self._value(each, held.get('items', {}), root) for _, each in value)}]"
        return self._object(value, schema, root)


class _Tags:
    """What is left of a text while its tags are read.

    No value holds the mark, so a closer closes what was opened last, whatever it names: where keys are free, no grammar
    can hold it to the same name.
    """

    def __init__(self, mark: str, text: str) -> None:
        self.left = text
        self._open = re.compile(rf"\s*{re.escape(mark)}<({KEY.pattern})>")
        self._closed = re.compile(rf"{re.escape(mark)}</{KEY.pattern}>")
        self._mark = mark

    def members(self, depth: int) -> list[_Member]:
        """The tags that follow each other here, with what stands in them."""
        if depth > _DEEPEST:
            raise ValueError("the arguments are nested too deeply")
        found: list[_Member] = []
        while opened := self._open.match(self.left):
            self.left = self.left[opened.end() :]
            key = opened[1]
            found.append((key, self._inside(key, depth)))
        return found

    def _inside(self, key: str, depth: int) -> str | list[_Member]:
        text, mark, _ = self.left.partition(self._mark)
        value: str | list[_Member] = text
        if mark and not self.left.startswith("</", len(text) + len(mark)):
            if text.strip():
                raise ValueError(f"text and tags stand in the argument {key} beside each other")
            value = self.members(depth + 1)
            text = self.left[: len(self.left) - len(self.left.lstrip())]
        closed = self._closed.match(self.left, len(text))
        if closed is None:
            raise ValueError(f"the argument {key} is not closed")
        self.left = self.left[closed.end() :]
        return value
