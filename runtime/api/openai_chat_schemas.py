"""JSON schemas that a request brings: whether each is one. What a grammar can make of it is for the codec to say."""

from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from pydantic_core import from_json, to_json

from tenuto.errors import InvalidRequest

_MOST_WORDS = 300


def check_schema(schema: dict[str, Any], param: str) -> None:
    """Hold a schema to the rules of its own draft, or of 2020-12.

    Raises:
        InvalidRequest: it is none; the text says where.
    """
    problem = _problem(to_json(schema))
    if problem is not None:
        raise InvalidRequest(f"{param}: not a JSON schema: {problem}", param)


@lru_cache(maxsize=512)
def _problem(schema_json: bytes) -> str | None:
    """Clients send the same tools in every request, and looking at one takes a millisecond."""
    schema = from_json(schema_json)
    draft = validator_for(schema, default=Draft202012Validator)
    try:
        # Formats are left alone: patterns are ECMAScript's, of which Python does not know all.
        error = best_match(draft(draft.META_SCHEMA).iter_errors(schema))
    except RecursionError:
        return "it is nested too deeply"
    return None if error is None else f"{error.message[:_MOST_WORDS]} at {error.json_path}"
