"""Forms that servers ask people to fill in: which are taken, and whether an answer fits. Pure, and bounded in time.

A form is flat: https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import json
from typing import Any

import jsonschema_rs
from jsonschema_rs import RegexOptions, ValidationError, ValidationErrorKind

from tenuto.sessions.items import JsonObject
from tenuto.sessions.schemas import malformed, oversize

MOST_FORM_BYTES = 64 << 10
MOST_FIELDS = 64
MOST_ANSWER_BYTES = 64 << 10
_PLAIN = ("string", "number", "integer", "boolean")
_PATTERN_BYTES = 1 << 20
_PATTERNS = RegexOptions(size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES)


def problem_of_form(schema: JsonObject) -> str | None:
    """Why a form cannot be shown; None where it can."""
    if len(json.dumps(schema)) > MOST_FORM_BYTES:
        return f"its schema has more than {MOST_FORM_BYTES} bytes"
    properties = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(properties, dict):
        return 'its schema is not {"type": "object", "properties": {...}}'
    if len(properties) > MOST_FIELDS:
        return f"it has more than {MOST_FIELDS} fields"
    for name, field in properties.items():
        if not isinstance(field, dict) or not (field.get("type") in _PLAIN or _is_choice(field)):
            return f"its field {name[:100]!r} is neither {', '.join(_PLAIN)} nor a choice of several"
    return oversize(schema) or malformed(schema) or _uncheckable(schema)


def with_defaults(schema: JsonObject, content: JsonObject) -> JsonObject:
    """The answer, with the form's defaults for what was left out (SEP-1034)."""
    fields: dict[str, Any] = schema.get("properties", {})
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {**defaults, **content}


def problem_of_answer(schema: JsonObject, content: JsonObject) -> tuple[str | None, str] | None:
    """The field with which an answer does not fit and what is wrong, without the value; None where it fits."""
    if len(json.dumps(content)) > MOST_ANSWER_BYTES:
        return None, f"it has more than {MOST_ANSWER_BYTES} bytes"
    fields: dict[str, Any] = schema.get("properties", {})
    for name in content:
        if name not in fields:
            return name[:100], "the form has no such field"
    for error in _validator(schema).iter_errors(content):
        return _told(error)
    return None


def _told(error: ValidationError) -> tuple[str | None, str]:
    kind = error.kind
    if isinstance(kind, ValidationErrorKind.Required):
        return str(kind.property), "it is missing"
    name = str(error.instance_path[0]) if error.instance_path else None
    rule = error.schema_path[-1] if error.schema_path else "schema"
    return name, f"it does not fit the form ({rule})"


def _is_choice(field: JsonObject) -> bool:
    items = field.get("items")
    return field.get("type") == "array" and isinstance(items, dict) and bool({"enum", "anyOf", "oneOf"} & items.keys())


def _uncheckable(schema: JsonObject) -> str | None:
    try:
        _validator(schema)
    except (ValueError, ValidationError, jsonschema_rs.ReferencingError):
        return "its schema is not valid, or has a pattern that cannot be matched in one pass"
    return None


def _validator(schema: JsonObject) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(schema, pattern_options=_PATTERNS, validate_formats=True, offline=True)
