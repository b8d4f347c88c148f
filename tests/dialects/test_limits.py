"""What is too large is refused at once, by the name of its limit, and holds up nobody meanwhile."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.fuzz.machine import Stopwatch

pytestmark = [pytest.mark.slow, pytest.mark.alone]

CHAT = "/v1/chat/completions"
PARAMETERS = "tools[0].function.parameters"
SCHEMA = "response_format.json_schema.schema"
LONGEST_S = 1.0
"""On a busy machine; bench/hostile_input.py has the figures of a quiet one."""


class Health:
    """Asks /health all the time, and knows the longest that it took, without what the machine's host took of it."""

    def __init__(self, server: Server) -> None:
        self.longest = 0.0
        self._server, self._over = server, threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "Health":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        with self._server.client() as client:
            while not self._over.wait(0.01):
                watch = Stopwatch()
                assert client.get("/health").status_code == 200
                self.longest = max(self.longest, watch.took_here())


@contextmanager
def nobody_waits(server: Server) -> Iterator[None]:
    with Health(server) as health:
        yield
    assert health.longest < LONGEST_S


def properties(number: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(number)}}


def doubling(levels: int) -> dict[str, Any]:
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**twice, f"d{levels}": {}}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def tool(schema: Any, **more: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema, **more}}]}


def form(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}}


SCHEMAS = [
    (lambda: properties(10_000), "an object has 10000 properties; at most 2500 are allowed"),
    (lambda: {"type": "object", "anyOf": [{}] * 5000}, "anyOf has 5000 schemas; at most 1000 are allowed"),
    (lambda: {"type": "object", "enum": list(range(60_000))}, "it has more than 50000 values"),
    (lambda: {"type": "object", "title": "x" * (15 << 20)}, "it has more than 1048576 characters"),
    (lambda: nested(40), "it is nested more than 64 deep"),
    (lambda: doubling(28), "it expands to more than 100000 schemas once its references are followed"),
]


@pytest.mark.parametrize(("make", "limit"), SCHEMAS)
@pytest.mark.parametrize(("wrap", "param"), [(tool, PARAMETERS), (form, SCHEMA)])
def test_a_schema_that_is_too_large_is_refused_by_its_limit(
    server: Server, make: Callable[[], Any], limit: str, wrap: Callable[[Any], dict[str, Any]], param: str
) -> None:
    with nobody_waits(server), server.client() as client:
        answer = client.post(CHAT, json={"messages": [{"role": "user", "content": "a"}], **wrap(make())})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"] == f"{param}: the schema is too large: {limit}"


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (
            {"messages": [{"role": "user", "content": ""}] * 25_000},
            "messages",
            "messages: list should have at most 20000 items after validation, not 25000",
        ),
        (
            tool({}, description="x" * (14 << 20)),
            "tools[0].function.description",
            "tools[0].function.description: string should have at most 65536 characters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": f"f{n}"}} for n in range(1001)]},
            "tools",
            "tools: list should have at most 1000 items after validation, not 1001",
        ),
        (
            {"tools": [tool({}, name=f"f{n}", description="x" * 60_000)["tools"][0] for n in range(50)]},
            "tools",
            "tools: descriptions and schemas take more than 2097152 bytes",
        ),
        ({"metadata": {}, "stop": ["x"] * 100_001}, None, "the body has more than 100000 JSON values"),
    ],
    ids=["messages", "description", "tools", "all tools", "values"],
)
def test_what_a_request_has_too_much_of_is_refused_by_its_limit(
    server: Server, body: dict[str, Any], param: str | None, message: str
) -> None:
    content = json.dumps({"messages": [{"role": "user", "content": "a"}], **body})
    with nobody_waits(server), server.client() as client:
        answer = client.post(CHAT, content=content, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["message"]) == (400, param, message)


def test_what_looks_like_many_values_inside_a_text_is_a_text(server: Server, http: httpx.Client) -> None:
    text = '[{"a": "\\\\",' * 100_000
    answer = http.post("/tokenize", json={"content": text})
    assert answer.status_code == 200


def test_an_import_of_too_many_items_is_refused_by_its_limit(server: Server) -> None:
    item = {"kind": "user", "text": "hello", "attachments": []}
    document = {"version": 1, "created_at": 0, "updated_at": 0, "items": [item] * 150_000}
    with nobody_waits(server), server.client() as client:
        answer = client.put("/v1/sessions/large", json=document)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "items")
    assert "at most 20000 items" in error["message"]


def test_schemas_that_are_refused_are_not_kept(server: Server, http: httpx.Client) -> None:
    def resident() -> int:
        assert server.process is not None
        lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))

    def refuse(number: int) -> None:
        schema = {"type": "object", "title": f"{number}" + "x" * (15 << 20)}
        assert http.post(CHAT, json={"messages": [{"role": "user", "content": "a"}], **tool(schema)}).status_code == 400

    for number in range(8):
        refuse(number)
    before = resident()
    for number in range(8, 28):
        refuse(number)
    assert resident() - before < 100, "20 of them are 300 MB"
