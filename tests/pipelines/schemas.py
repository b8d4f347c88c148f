"""Schemas of tools and answers from a seeded search of hypothesis, and the check that a value is valid by one."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tenuto.sessions.items import JsonObject

NAMES = st.sampled_from(["a", "b", "city", "zip code", "näme", 'q"uote', "x_1", "é🎵"])
CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])
CONSTANTS = st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text(CHARACTERS, max_size=5))
PATTERNS = ["^[a-z]{1,8}$", r"^\d{3}-\d{4}$", "^(yes|no|maybe)$", "^[A-F0-9]{2}(:[A-F0-9]{2}){0,3}$"]


def ranges(kind: str, strategy: st.SearchStrategy[int], low: str, high: str) -> st.SearchStrategy[JsonObject]:
    """Schemas of a kind with two bounds."""
    return st.tuples(strategy, strategy).map(lambda pair: {"type": kind, low: min(pair), high: max(pair)})


LEAVES: st.SearchStrategy[JsonObject] = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    ranges("integer", st.integers(-2000, 2000), "minimum", "maximum"),
    # Without a step a number may have digits without end, which a weak model writes.
    ranges("number", st.integers(-50, 50), "minimum", "maximum").map(lambda number: {**number, "multipleOf": 0.25}),
    ranges("string", st.integers(0, 12), "minLength", "maxLength"),
    st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern}),
    st.sampled_from(["date", "uuid", "ipv4"]).map(lambda form: {"type": "string", "format": form}),
    st.lists(CONSTANTS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    CONSTANTS.map(lambda value: {"const": value}),
)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[JsonObject]) -> JsonObject:
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    required = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[JsonObject]) -> JsonObject:
    least = draw(st.integers(0, 2))
    schema: JsonObject = {"type": "array", "minItems": least, "maxItems": least + draw(st.integers(0, 2))}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
    return {**schema, "items": draw(inner)}


@st.composite
def referring(draw: st.DrawFn, inner: st.SearchStrategy[JsonObject]) -> JsonObject:
    """An object two of whose members share a definition."""
    reference = {"$ref": "#/$defs/shared"}
    schema: JsonObject = {"type": "object", "properties": {"one": reference, "other": reference}}
    return {**schema, "required": ["one"], "additionalProperties": False, "$defs": {"shared": draw(inner)}}


INNER = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner), arrays(inner), st.lists(inner, min_size=1, max_size=3).map(lambda kinds: {"anyOf": kinds})
    ),
    max_leaves=4,
)
ANSWERS = st.one_of(objects(INNER), referring(LEAVES), arrays(INNER), LEAVES)
ARGUMENTS = st.one_of(objects(INNER), referring(LEAVES))
FREE: list[JsonObject] = [
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},
]
"""Arguments of any names, as those of a schema that cannot be held to are."""


def some(strategy: st.SearchStrategy[JsonObject], count: int, chosen: int = 20_26) -> list[JsonObject]:
    """So many different schemas, the same for the same seed."""
    found: dict[str, JsonObject] = {}

    @seed(chosen)
    @settings(
        max_examples=2 * count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def search(schema: JsonObject) -> None:
        found.setdefault(json.dumps(schema, sort_keys=True), schema)

    search()
    assert len(found) >= count
    return list(found.values())[-count:]  # the later ones are the larger ones


def check(schema: JsonObject, text: str) -> None:
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    value: Any = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    errors = [error.message for error in validator.iter_errors(value)]
    assert not errors, f"{text!r} is not valid by {json.dumps(schema)}: {errors}"
