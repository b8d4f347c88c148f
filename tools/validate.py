"""Arguments of a call against its tool's schema, with problems told in words that a model can act on.

Patterns are matched by an engine that does not go back: the time is in proportion to the text, whatever the pattern.
One that it has no way for (a look ahead, a reference back) is left out.
"""

import hashlib
import logging
from itertools import islice
from json import dumps
from typing import Any

import jsonschema_rs
from cachetools import LRUCache
from jsonschema_rs import RegexOptions, ValidationError

from tenuto.sessions.schemas import oversize, subschemas

MAX_PROBLEMS = 5
MAX_PROBLEM_CHARACTERS = 200
CHEAP_STEPS = 1_000_000
"""A schema that is applied to so many values takes some 50 ms at most."""
_CACHE_BYTES = 8 << 20
_PATTERN_BYTES = 1 << 20

logger = logging.getLogger(__name__)
_PATTERNS = RegexOptions(size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES)

_Known = tuple[jsonschema_rs.Validator | None, int]
_validators: LRUCache[bytes, _Known] = LRUCache(_CACHE_BYTES, getsizeof=lambda known: known[1])


def problems(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """What is wrong with the arguments, each naming its field; empty where nothing is.

    A schema that is not valid, or refers to something outside itself, is not checked: the tool's server decides.
    """
    validator = _validator(schema)
    if validator is None:
        return []
    try:
        found = islice(validator.iter_errors(arguments), MAX_PROBLEMS)
        return [_in_words(error) for error in found]
    except ValueError:  # nested too deeply, or no Unicode
        return []


def without_nulls(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that are null, but may not be and need not be there: models write null for absent."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or None not in arguments.values():
        return arguments
    needed = required if isinstance(required, list) else []
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in needed or not _refuses_null(properties.get(name))
    }


def _refuses_null(schema: Any) -> bool:
    """Whether a schema certainly does not take null; what cannot be told at a glance may."""
    if not isinstance(schema, dict):
        return False
    if "enum" in schema:
        return isinstance(schema["enum"], list) and None not in schema["enum"]
    if "type" in schema:
        return "null" not in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]])
    branches = schema.get("anyOf", schema.get("oneOf"))
    return isinstance(branches, list) and bool(branches) and all(_refuses_null(branch) for branch in branches)


def is_cheap(schema: dict[str, Any], arguments: dict[str, Any]) -> bool:
    """Whether `problems` takes a known, short time for these: the schema is bounded without a look at the values."""
    weight = subschemas(schema)
    return weight is not None and weight * _values(arguments, CHEAP_STEPS // weight) <= CHEAP_STEPS


def _values(value: Any, most: int) -> int:
    """How many values it holds, with itself, counted a little further than `most`; 50 characters count as one."""
    count = 0
    pending = [value]
    while pending and count <= most:
        one = pending.pop()
        count += 1
        if isinstance(one, str):
            count += len(one) // 50
        elif isinstance(one, dict):
            pending.extend(one.values())
        elif isinstance(one, list):
            pending.extend(one)
    return count


def _validator(schema: dict[str, Any]) -> jsonschema_rs.Validator | None:
    """Compiling costs far more than validating. What is refused is not kept."""
    text = dumps(schema).encode()
    key = hashlib.sha256(text).digest()
    known = _validators.get(key)
    if known is not None:
        return known[0]
    if oversize(schema) is not None:
        return None
    made = _compiled(schema)
    if made is not None and len(text) < _CACHE_BYTES:
        _validators[key] = made, len(text)
    return made


def _compiled(schema: dict[str, Any]) -> jsonschema_rs.Validator | None:
    try:
        kind = jsonschema_rs.validator_cls_for(schema)
    except (ValueError, jsonschema_rs.ReferencingError):
        kind = jsonschema_rs.Draft202012Validator
    try:
        # Offline: a reference never reaches the network or the disk.
        return kind(_without_unknown(schema), pattern_options=_PATTERNS, validate_formats=False, offline=True)
    except (ValueError, ValidationError, jsonschema_rs.ReferencingError):
        return None


def _without_unknown(value: Any) -> Any:
    """A schema without the patterns that cannot be matched."""
    if isinstance(value, list):
        return [_without_unknown(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, each in value.items():
        if key == "pattern" and isinstance(each, str) and not _can_match(each):
            continue
        if key == "patternProperties" and isinstance(each, dict):
            each = {pattern: schema for pattern, schema in each.items() if _can_match(pattern)}
        kept[key] = _without_unknown(each)
    return kept


def _can_match(pattern: str) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=_PATTERNS, offline=True)
    except (ValueError, ValidationError):
        logger.warning("the pattern %.200r of a tool's schema is not checked: it needs more than one pass", pattern)
        return False
    return True


def _in_words(error: ValidationError) -> str:
    place = ".".join(str(step) for step in error.instance_path)
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        name = error.kind.property
        return f"{place}.{name} is missing" if place else f"{name} is missing"
    text = error.message
    if len(text) > MAX_PROBLEM_CHARACTERS:
        # The message begins with the whole value; what is wrong stands at its end.
        text = f"{text[:60]} ... {text[-(MAX_PROBLEM_CHARACTERS - 60) :]}"
    return f"{place}: {text}" if place else text
