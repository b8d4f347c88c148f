"""Arguments that are written as text between tags: which of them are text as they stand, and how they are held."""

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from tenuto.pipelines.formats.lark import ANY_TEXT, Rules, in_order, lark_text, one_of
from tenuto.sessions.items import JsonObject

_MOST_REFERENCES = 8
_DAYS = "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])"
_DATE, _TIME = f"[1-9][0-9]{{3}}-({_DAYS})", r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "ipv4": rf"{_BYTE}(\.{_BYTE}){{3}}",
}
_ANYTHING = "(.|\n)*"
JSON_TYPES = ("number", "boolean", "object", "array", "null")
"""Those of values that are not text."""
_CLASSES = {r"\d": "0-9", r"\w": "A-Za-z0-9_"}
_DEFINITIONS = ("$defs", "definitions", "$schema")
# What an object says of its members beside these is not held to while they are written one by one.
_HELD = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema"}) | {
    "title", "description", "default", "examples", "$id", "$comment"
}  # fmt: skip


class Kind(Enum):
    """How a value is written."""

    TEXT = auto()
    """As it stands: it is a string."""
    JSON = auto()
    ANY = auto()
    """As JSON, or as it stands where it is none: nothing is known of it."""


def kind_of(schema: Any, root: Mapping[str, Any]) -> Kind:
    """How a value is written that is valid by a schema, which may refer to definitions of its root."""
    schema = resolved(schema, root)
    if not schema or not isinstance(schema, dict):
        return Kind.ANY
    if schema.get("type") in ("string", ["string"]):
        return Kind.TEXT
    values = (
        schema["enum"] if isinstance(schema.get("enum"), list) else [schema[key] for key in ("const",) if key in schema]
    )
    if "type" not in schema and values and all(isinstance(value, str) for value in values):
        return Kind.TEXT
    known = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "items", "$ref", "not"}
    return Kind.JSON if known & schema.keys() else Kind.ANY


def resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """A schema, or the definition of its root that it refers to."""
    for _ in range(_MOST_REFERENCES):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for key in reference[2:].split("/"):
            schema = schema.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(schema, dict) else None
    return schema


def described(schema: Any, root: Mapping[str, Any]) -> JsonObject:
    """What a schema says, or the definition that it refers to; nothing where that allows whatever there is."""
    found = resolved(schema, root)
    return found if isinstance(found, dict) else {}


def types_of(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """The types of which a value that is no text may be, as far as a schema tells."""
    told = described(schema, root).get("type")
    named = {"number" if one == "integer" else one for one in (told if isinstance(told, list) else [told])}
    return [one for one in JSON_TYPES if one in named] or list(JSON_TYPES)


def own_schema(schema: Any, root: JsonObject) -> JsonObject:
    """A member's schema with the definitions of its root that it may refer to."""
    own = schema if isinstance(schema, dict) else {}
    return {**{key: root[key] for key in _DEFINITIONS if key in root}, **own}


def members_of(
    rules: Rules, tool: str, schema: JsonObject, can_write: Callable[[str], Any]
) -> list[tuple[str, Any, bool]]:
    """The members of an object that are written one by one: key, schema, and whether it must be there.

    What the schema says of the whole object is not held to then, nor keys that cannot be written: that is noted.
    """
    schema = described(schema, schema)
    left = sorted(schema.keys() - _HELD)
    if left:
        rules.faults.append(f"of the schema of {tool} not enforced: {', '.join(left)}")
    required = [key for key in schema.get("required", ()) if isinstance(key, str)]
    properties: dict[str, Any] = {**schema.get("properties", {})}
    for key in required:
        properties.setdefault(key, {})
    members: list[tuple[str, Any, bool]] = []
    for key, held in properties.items():
        if held is not False and can_write(key):
            members.append((key, held, key in required))
        elif key in required:
            rules.faults.append(f"{tool} requires {key!r}, which cannot be written as it is")
    return members


def value_rule(rules: Rules, name: str, schema: Any, root: JsonObject, closer: str, kind: Kind) -> str:
    """Lark for a value and what closes it."""
    if kind is Kind.JSON:
        return in_order(rules.json(name, own_schema(schema, root)), rules.text(closer))
    schema = described(schema, root)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if kind is Kind.TEXT and values is not None:
        texts = [lark_text(value) if value else '""' for value in values if isinstance(value, str)]
        return in_order(one_of(texts), rules.text(closer))
    pattern = _pattern(schema) if kind is Kind.TEXT else None
    return _text_rule(rules, name, pattern, closer)


def _text_rule(rules: Rules, name: str, pattern: str | None, closer: str) -> str:
    """Text up to the first that closes it: the value holds no closer."""
    lead = closer[: len(closer) - len(closer.lstrip())]
    bare = closer.strip()
    trail = closer[len(lead) + len(bare) :]
    stream = rules.spelling.stream(bare)
    before = re.split("[\ud800-\udfff]", stream, maxsplit=1)[0]
    if before == bare:  # no token shows the end
        if pattern is None:
            text = rules.add(name, ANY_TEXT, f"[suffix={lark_text(bare)}]")
            return in_order(text, rules.text(trail))
        terminal = rules.add(name.upper(), f"{pattern} {lark_text(lead + bare)}")
        return in_order(terminal, rules.text(trail))
    if before or pattern is None:
        text = rules.add(name.upper(), f"{pattern or ANY_TEXT}{' ' + lark_text(lead + before) if before else ''}")
        return in_order(text, rules.text(bare[len(before) :] + trail))
    return in_order(rules.add(name.upper(), pattern), rules.text(closer))


def _pattern(schema: JsonObject) -> str | None:
    """What a string is held to, as a terminal that never holds what closes it; None where it may be any text."""
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    parts: list[str] = []
    if least or most is not None:
        parts.append(f"/[^<\\x00-\\x08]{{{least},{'' if most is None else most}}}/")
    if isinstance(schema.get("pattern"), str):
        parts.append(_lark_pattern(_anchored(schema["pattern"])))
    if schema.get("format") in _FORMATS:
        parts.append(_lark_pattern(_FORMATS[schema["format"]]))
    if not parts:
        return None
    return f"( {' & '.join([*parts, '/[^<]*/'])} )"


def _anchored(pattern: str) -> str:
    """A pattern that is looked for, as one that the whole text fits."""
    begin, end = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    inner = pattern[begin : len(pattern) - end]
    if _alternates(inner) and (begin or end):  # an anchor holds for one of them only
        return _ANYTHING
    return f"{'' if begin else _ANYTHING}({inner}){'' if end else _ANYTHING}"


def _alternates(pattern: str) -> bool:
    """Whether a pattern has alternatives at its top level."""
    depth = 0
    for character in re.sub(r"\\.", "", pattern):
        depth += (character == "(") - (character == ")")
        if character == "|" and not depth:
            return True
    return False


def _lark_pattern(pattern: str) -> str:
    """A regular expression of JSON Schema in a Lark grammar, whose classes are not ASCII's alone."""
    parts: list[str] = []
    in_class = False
    for found in re.finditer(r"\\?.", pattern, re.DOTALL):
        part = found[0]
        if (known := _CLASSES.get(part.lower())) and (part.islower() or not in_class):
            part = known if in_class else f"[{'' if part.islower() else '^'}{known}]"
        elif part in "[]":
            in_class = part == "["
        parts.append({"/": "\\/", "\n": "\\n"}.get(part, part))
    return "/" + "".join(parts) + "/"
