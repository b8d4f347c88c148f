"""Problems with arguments are told in words that name the field."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenuto.tools.validate import MAX_PROBLEM_CHARACTERS, MAX_PROBLEMS, problems, without_nulls

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}


def test_arguments_that_fit_have_no_problems() -> None:
    assert problems(SCHEMA, {"city": "Rome", "days": 2, "where": {"lat": 1.5}}) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, ["city is missing", "days is missing"]),
        ({"city": 5, "days": 1}, ['city: 5 is not of type "string"']),
        ({"city": "Rome", "days": 0}, ["days: 0 is less than the minimum of 1"]),
        ({"city": "Rome", "days": 1, "where": {}}, ["where.lat is missing"]),
        (
            {"city": "Rome", "days": 1, "moon": 1},
            ["Additional properties are not allowed ('moon' was unexpected)"],
        ),
    ],
)
def test_each_problem_names_its_field(arguments: dict[str, Any], told: list[str]) -> None:
    assert problems(SCHEMA, arguments) == told


def test_problems_are_bounded_in_number_and_length() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    told = problems(schema, {str(n): "x" * 10_000 for n in range(100)})
    assert len(told) == MAX_PROBLEMS
    assert all(len(problem) <= MAX_PROBLEM_CHARACTERS + 20 for problem in told)
    assert all(problem.endswith('is not of type "integer"') for problem in told)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
    ],
)
def test_a_schema_that_cannot_be_used_settles_nothing(schema: dict[str, Any]) -> None:
    assert problems(schema, {"a": 1}) == []


def test_references_inside_the_schema_are_followed() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    assert problems(schema, {"a": "1"}) == ['a: "1" is not of type "integer"']


@given(st.dictionaries(st.sampled_from(["city", "days", "where", "x"]), st.none() | st.integers() | st.text()))
def test_a_problem_is_told_exactly_where_arguments_do_not_fit(arguments: dict[str, Any]) -> None:
    days = arguments.get("days")
    fits = (
        arguments.keys() == {"city", "days"}
        and isinstance(arguments["city"], str)
        and isinstance(days, int)
        and days >= 1
    )
    assert (problems(SCHEMA, arguments) == []) == fits


NULLS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "needed": {"type": "string"},
        "may": {"type": ["string", "null"]},
        "one_of": {"enum": ["a", "b"]},
        "or_null": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "integer"}, {"enum": ["all"]}]},
        "number": {"type": "number"},
        "any": {},
        "elsewhere": {"$ref": "#/$defs/x"},
    },
    "required": ["needed"],
    "$defs": {"x": {"type": "null"}},
}


def test_null_is_left_out_where_it_may_not_stand_and_nothing_must() -> None:
    arguments = dict.fromkeys(NULLS["properties"]) | {"unknown": None}
    kept = without_nulls(NULLS, arguments)
    assert set(kept) == {"needed", "may", "or_null", "any", "elsewhere", "unknown"}
    assert problems(NULLS, kept) == ['needed: null is not of type "string"']


@given(st.dictionaries(st.sampled_from([*NULLS["properties"], "unknown"]), st.none() | st.integers() | st.text()))
def test_leaving_out_null_makes_nothing_wrong_and_takes_no_value(arguments: dict[str, Any]) -> None:
    before = problems(NULLS, arguments)
    assume(len(before) < MAX_PROBLEMS)  # of more, not all are told
    kept = without_nulls(NULLS, arguments)
    assert set(problems(NULLS, kept)) <= set(before)
    assert all(value is None for name, value in arguments.items() if name not in kept)
