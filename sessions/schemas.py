"""JSON schemas from outside: whether one is a schema, and whether it is small enough to work with. Pure.

Each limit is in its own unit, far above what honest tools have, and told in the error. Nothing here takes longer than
one look at each value.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from tenuto.errors import InvalidRequest

MOST_VALUES = 50_000
MOST_CHARACTERS = 1 << 20
MOST_DEPTH = 64
MOST_PROPERTIES = 2_500
MOST_ALTERNATIVES = 1_000
MOST_SUBSCHEMAS = 100_000
"""With what is referred to counted at each place that refers to it."""
_MOST_WORDS = 300

_DRAFTS = re.compile(r"https?://json-schema\.org/(draft-0[467]/schema|draft/20(19-09|20-12)/schema)#?")
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_APPLIED = frozenset(
    {"items", "additionalItems", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_ANYTHING: dict[str, Any] = {}


def expect_bounded(schema: Mapping[str, Any], param: str) -> None:
    """Raise InvalidRequest, with the limit in its words, where a schema is too large to work with."""
    if (limit := oversize(schema)) is not None:
        raise InvalidRequest(f"{param}: the schema is too large: {limit}", param)


def expect_valid(schema: Mapping[str, Any], param: str) -> None:
    """Raise InvalidRequest, with the place in its words, where what is small enough breaks the rules of its draft."""
    if (problem := malformed(schema)) is not None:
        raise InvalidRequest(f"{param}: not a JSON schema: {problem}", param)


def oversize(schema: Mapping[str, Any]) -> str | None:
    """The limit that a schema goes beyond, in words; None where it keeps to all."""
    values = characters = 0
    pending: list[tuple[Any, str, int]] = [(schema, "", 1)]
    while pending:
        value, key, depth = pending.pop()
        values += 1
        if depth > MOST_DEPTH:
            return f"it is nested more than {MOST_DEPTH} deep"
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            if key == "properties" and len(value) > MOST_PROPERTIES:
                return f"an object has {len(value)} properties; at most {MOST_PROPERTIES} are allowed"
            characters += sum(map(len, value))
            pending.extend((each, name, depth + 1) for name, each in value.items())
        elif isinstance(value, list):
            if key in _LISTED and len(value) > MOST_ALTERNATIVES:
                return f"{key} has {len(value)} schemas; at most {MOST_ALTERNATIVES} are allowed"
            pending.extend((each, "", depth + 1) for each in value)
        if values + len(pending) > MOST_VALUES:
            return f"it has more than {MOST_VALUES} values"
        if characters > MOST_CHARACTERS:
            return f"it has more than {MOST_CHARACTERS} characters"
    weight = subschemas(schema)
    if weight is not None and weight > MOST_SUBSCHEMAS:
        return f"it expands to more than {MOST_SUBSCHEMAS} schemas once its references are followed"
    return None


def subschemas(schema: Mapping[str, Any]) -> int | None:
    """How many schemas it stands for, with what is referred to counted at each place; None where that has no end, or
    cannot be known without following the values that it is applied to."""
    weights: dict[int, int | None] = {}
    pending: list[Any] = [schema]
    while pending:  # a walk in two passes: a schema comes to the top again when all that it leads to has been weighed
        top = pending[-1]
        if id(top) in weights and weights[id(top)] is not None:
            pending.pop()
            continue
        following = list(_leads_to(schema, top))
        if None in following:
            return None
        if id(top) not in weights:
            weights[id(top)] = None
            missing = [one for one in following if weights.get(id(one)) is None]
            if any(id(one) in weights for one in missing):
                return None  # it leads back to one that is being weighed
            pending.extend(missing)
            continue
        if any(weights.get(id(one)) is None for one in following):
            return None
        weights[id(top)] = 1 + sum(weights[id(one)] or 0 for one in following)
        pending.pop()
    return weights[id(schema)]


def _leads_to(root: Mapping[str, Any], schema: Any) -> Iterator[Any]:
    """The schemas that one applies; None for one that is not known."""
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key == "$ref":
            yield _resolved(root, value)
        elif key in ("$dynamicRef", "$recursiveRef", "$id", "id") and isinstance(value, str):
            yield None
        elif key in _NAMED and isinstance(value, dict):
            yield from (each for each in value.values() if isinstance(each, dict))
        elif key in _LISTED and isinstance(value, list):
            yield from (each for each in value if isinstance(each, dict))
        elif key in _APPLIED:
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))


def _resolved(root: Mapping[str, Any], reference: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#") or (reference[1:] and reference[1] != "/"):
        return None
    place: Any = root
    for step in unquote(reference).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = place.get(name)
        elif isinstance(place, list) and name.isdecimal() and len(name) < 9 and int(name) < len(place):
            place = place[int(name)]
        else:
            return None
    return place if isinstance(place, dict) else _ANYTHING if isinstance(place, bool) else None


def malformed(schema: Mapping[str, Any]) -> str | None:
    """What the rules of its draft, or of 2020-12, say against it."""
    draft = schema.get("$schema")
    if isinstance(draft, str) and not _DRAFTS.fullmatch(draft):
        schema = {key: value for key, value in schema.items() if key != "$schema"}  # nothing is fetched
    try:
        # Formats are left alone: patterns are ECMAScript's, of which no other engine knows all.
        jsonschema_rs.meta.validate(dict(schema))
    except jsonschema_rs.ValidationError as error:
        return f"{error.message[:_MOST_WORDS]} at {_json_path(error.instance_path)}"
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return str(error)[:_MOST_WORDS]
    return None


def _json_path(steps: list[str | int]) -> str:
    path = "$"
    for step in steps:
        plain = isinstance(step, str) and step.isidentifier()
        path += f".{step}" if plain else f"[{step!r}]"
    return path
