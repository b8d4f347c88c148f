"""Reading bodies."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from tenuto.errors import InvalidRequest
from tenuto.runtime.http.body import field_path, parse_object


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "EOF"),
        (b'{"a": 1', "EOF"),
        (b"{'a': 1}", "line 1 column 2"),
        (b'{"a": NaN}', "line 1"),
        (b'{"a": "\xff"}', "unicode"),
        (b'{"a": "\\ud800"}', "escape"),
        (b'{"a": "\\udc00"}', "escape"),
        (b"[" * 100_000, "recursion"),
        (b'{"a":' * 100_000, "recursion"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "out of range"),
        (b"{} x", "trailing"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused_with_the_reason(body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        parse_object(body)


@given(st.binary())
def test_no_bytes_break_the_reader(body: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        assert isinstance(parse_object(body), dict)


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_json_arrives_exactly(value: dict[str, Any]) -> None:
    assert parse_object(to_json(value)) == value


@pytest.mark.parametrize(
    ("location", "path"),
    [((), ""), (("a",), "a"), (("a", 1, "b"), "a[1].b"), (("a", 0, 1), "a[0][1]"), (("a", "b", "c"), "a.b.c")],
)
def test_fields_are_named_as_people_write_them(location: tuple[int | str, ...], path: str) -> None:
    assert field_path(location) == path
