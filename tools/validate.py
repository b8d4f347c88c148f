"""Arguments of a call against its tool's schema, with problems told in words that a model can act on."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from json import dumps, loads
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_PROBLEMS = 5
MAX_PROBLEM_CHARACTERS = 200


def problems(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """What is wrong with the arguments, each naming its field; empty where nothing is.

    A schema that is none, or that refers to what is outside of it, settles nothing: then the tool's server judges.
    """
    validator = _validator(dumps(schema))
    if validator is None:
        return []
    try:
        found = islice(validator.iter_errors(arguments), MAX_PROBLEMS)
        return [problem for error in found for problem in _in_words(error)][:MAX_PROBLEMS]
    except (Unresolvable, RecursionError):
        return []


@lru_cache(maxsize=512)
def _validator(schema_json: str) -> Validator | None:
    """Compiling costs far more than validating, and the JSON text is a key that nobody can change afterwards."""
    schema = loads(schema_json)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError:
        return None
    # An empty registry: a reference never reaches the network or the disk.
    return kind(schema, registry=Registry())


def _in_words(error: ValidationError) -> Iterator[str]:
    place = ".".join(str(step) for step in error.absolute_path)
    if error.validator == "required" and isinstance(error.instance, dict):
        # One error stands for one missing name, but does not carry it.
        names: list[str] = error.validator_value  # type: ignore[assignment]  # an array of names in every draft
        for name in names:
            if name not in error.instance and error.message.startswith(repr(name)):
                yield f"{place}.{name} is missing" if place else f"{name} is missing"
        return
    text = error.message
    if len(text) > MAX_PROBLEM_CHARACTERS:
        # The message begins with the whole value; what is wrong stands at its end.
        text = f"{text[:60]} ... {text[-(MAX_PROBLEM_CHARACTERS - 60) :]}"
    yield f"{place}: {text}" if place else text
