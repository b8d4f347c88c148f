"""Reading bodies."""

import asyncio
import contextlib
import importlib
import pkgutil
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import to_json

import tenuto.runtime
from tenuto.errors import InvalidRequest
from tenuto.runtime.http.body import LARGE_BYTES, Wire, field_path, parse_object, understood


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
        (b"[" * 50_000, "recursion"),
        (b'{"a":' * 50_000, "recursion"),
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


def wires(of: type[Wire] = Wire) -> Iterator[type[Wire]]:
    """All wire models of the dialects and of the server's own API."""
    for one in of.__subclasses__():
        yield one
        yield from wires(one)


def test_of_a_list_the_first_wrong_item_alone_is_told() -> None:
    for package in ("api", "dialects"):
        folder = importlib.import_module(f"{tenuto.runtime.__name__}.{package}")
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            importlib.import_module(module.name)
    found = [
        (errors(wire, {name: wrong}), f"{wire.__name__}.{name}")
        for wire in wires()
        for name in wire.model_fields
        for wrong in WRONG
    ]
    assert len(found) > 1000
    assert max(found)[0] < 50, max(found)


WRONG: list[Any] = [[object()] * 1000, [{}] * 1000, {str(n): object() for n in range(10_000)}]


def errors(wire: type[Wire], value: dict[str, Any]) -> int:
    """In how many places a value is wrong."""
    try:
        wire.model_validate(value)
    except ValidationError as refused:
        return refused.error_count()
    return 0


async def test_large_bodies_are_understood_one_at_a_time() -> None:
    inside, most, lock = 0, 0, threading.Lock()

    def read(body: bytes) -> int:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.01)
        with lock:
            inside -= 1
        return len(body)

    await asyncio.gather(*(understood(b" " * LARGE_BYTES, read) for _ in range(5)))
    assert most == 1
