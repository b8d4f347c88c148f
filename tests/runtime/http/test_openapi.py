"""The API's description is complete, valid, and readable."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from starlette.routing import Route

from tenuto.errors import NotFound, SessionBusy
from tenuto.runtime.api import operations
from tenuto.runtime.api import routes as own
from tenuto.runtime.dialects.anthropic import dialect as anthropic
from tenuto.runtime.dialects.ollama import dialect as ollama
from tenuto.runtime.dialects.openai import dialect as openai
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.http.dialect import Dialect
from tenuto.runtime.http.docs_page import page
from tenuto.runtime.http.openapi import document
from tenuto.runtime.http.routes import Doc, DocumentedRoute
from tenuto.runtime.mcp import server_card
from tests.conftest import Start
from tests.e2e.server import Server, script

DESCRIPTIONS = {"/openapi.json", "/docs"}
"""They describe the others."""


async def endpoint(request: Any) -> Any:
    raise AssertionError("never called")


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The document and the page of a real server."""
    folder = tmp_path_factory.mktemp("openapi")
    server = Server(folder, script(folder / "model.json"))
    try:
        with server.start().client() as client:
            yield client.get("/openapi.json").raise_for_status(), client.get("/docs").raise_for_status(), server.url
    finally:
        server.close()


@pytest.fixture
def api(described: tuple[httpx.Response, httpx.Response, str]) -> Any:
    return described[0].json()


def described_of(*routes: Route) -> Any:
    """The paths in the document of these routes."""
    return document([Dialect("x", ERRORS, routes)])["paths"]


def operations_of(api: Any) -> list[tuple[str, str, Any]]:
    return [(path, method, operation) for path, item in api["paths"].items() for method, operation in item.items()]


def schema_of(api: Any, schema: Any) -> Any:
    """A schema with all that it refers to."""
    return {**schema, "components": api["components"]}


@pytest.mark.slow
def test_every_route_is_described(api: Any, described: tuple[httpx.Response, httpx.Response, str]) -> None:
    sources = [Path(str(module.__file__)).read_text() for module in (own, server_card, openai, anthropic, ollama)]
    declared = re.findall(r'Route\("([^"]+)"', "".join(sources))
    assert {re.sub(r":\w+}", "}", path) for path in declared} == set(api["paths"])
    assert {"/v1/chat/completions", "/v1/sessions/{id}", "/health"} <= set(api["paths"])


def test_a_route_without_a_description_is_left_out_of_the_document() -> None:
    assert set(described_of(Route("/plain", endpoint), DocumentedRoute("/told", endpoint, operations.HEALTH))) == {
        "/told"
    }


@pytest.mark.slow
def test_every_reference_leads_somewhere_and_every_schema_is_one(api: Any) -> None:
    names = set(re.findall(r"#/components/schemas/([^\"']+)", str(api)))
    assert names
    assert names <= set(api["components"]["schemas"])
    for schema in api["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.slow
def test_every_operation_says_what_it_takes_gives_and_refuses(api: Any) -> None:
    ids = [operation["operationId"] for _, _, operation in operations_of(api)]
    assert len(ids) == len(set(ids))
    for path, _, operation in operations_of(api):
        assert operation["summary"]
        in_path = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))
        assert {"200", "400", "403", "413", "500"} <= set(operation["responses"])
        assert ("401" in operation["responses"]) is (operation.get("security") != [])


def closed(schema: Any) -> Any:
    """A schema by which an object has no field that is not described."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if "properties" in schema and "additionalProperties" not in schema else {}
    return {name: closed(value) for name, value in schema.items()} | more


@pytest.mark.slow
def test_answers_are_described_as_they_are_to_the_last_field(start: Start) -> None:
    """Once a call's `server` was described as text, and is true or false."""
    tool = {"type": "mcp", "server_label": "calculator"}
    sums = {"messages": [{"role": "user", "content": "12 * 7"}], "tools": [tool], "agent_permission": "ask"}
    rules = [{"user_contains": "12 * 7", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "1"}}]}]
    with start(rules=rules, cells=4096).client() as client:
        api = client.get("/openapi.json").json()
        asked = client.post("/v1/chat/completions", json={**sums, "session_id": "s"}).json()
        run = asked["tenuto"]["run_id"]
        answers = [
            ("/v1/chat/completions", "post", asked),
            ("/v1/runs/{id}", "get", client.get(f"/v1/runs/{run}").json()),
            ("/v1/sessions", "get", client.get("/v1/sessions").json()),
            ("/v1/models", "get", client.get("/v1/models").json()),
            ("/v1/mcp/servers", "get", client.get("/v1/mcp/servers").json()),
            ("/health", "get", client.get("/health").json()),
            ("/ready", "get", client.get("/ready").json()),
            ("/tokenize", "post", client.post("/tokenize", json={"content": "x", "with_pieces": True}).json()),
            ("/v1/completions", "post", client.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}).json()),
        ]
        assert answers[1][2]["pause"]["calls"][0]["server"] is True
    for path, method, answer in answers:
        schema = api["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator(closed(schema_of(api, schema))).validate(answer)


@pytest.mark.slow
def test_every_example_is_valid(api: Any) -> None:
    bodies = [
        op["requestBody"]["content"]["application/json"] for _, _, op in operations_of(api) if "requestBody" in op
    ]
    assert len(bodies) >= 4
    for body in bodies:
        jsonschema.Draft202012Validator(schema_of(api, body["schema"])).validate(body["example"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ("ChatBody", {"messages": [{"role": "user", "content": "text"}], "tool_choice": "auto", "stop": "x"}),
        ("ChatBody", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}),
        ("CompletionBody", {"prompt": "text"}),
        ("CompletionBody", {"prompt": [1, 2, 3]}),
        ("CompletionBody", {"prompt": ["a", [1]]}),
    ],
)
def test_the_short_forms_that_clients_send_are_described(shape: str, value: Any, api: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema_of(api, {"$ref": f"#/components/schemas/{shape}"}))
    validator.validate(value)


def test_the_statuses_come_from_the_errors() -> None:
    doc = Doc("X", "x", None, errors=(NotFound, SessionBusy))
    responses = described_of(DocumentedRoute("/x", endpoint, doc))["/x"]["get"]["responses"]
    assert set(responses) == {"200", "400", "401", "403", "404", "409", "413", "500"}
    assert "open run" in responses["409"]["description"]


class _Reader(HTMLParser):
    """What a browser would find: anchors, links, and what is loaded from elsewhere. Tags must close in order."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found["href"] or ""] if tag == "a" else []
        self.loads += [found["src"] or ""] if "src" in found else []
        self.loads += [tag] if tag in ("link", "script", "iframe") else []
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def close(self) -> None:
        super().close()
        assert self._open == []


def read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


@pytest.mark.slow
def test_the_page_is_whole_and_loads_nothing(described: tuple[httpx.Response, httpx.Response, str], api: Any) -> None:
    response, url = described[1], described[2]
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    reader = read(response.text)
    assert reader.loads == []
    assert len(reader.ids) == len(set(reader.ids))
    assert {link[1:] for link in reader.links if link.startswith("#")} <= set(reader.ids)
    assert {operation["operationId"] for _, _, operation in operations_of(api)} <= set(reader.ids)
    assert f"curl -X POST {url}/v1/chat/completions" in response.text


def test_what_stands_in_a_description_is_text_on_the_page() -> None:
    doc = Doc("X", "<script>alert(1)</script>", None, description="a `<b>` & c")
    html = page(document([Dialect("x", ERRORS, (DocumentedRoute("/x", endpoint, doc),))]), "http://x")
    assert read(html).loads == []
    assert "<code>&lt;b&gt;</code> &amp; c" in html


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/runs/{id}/events"])
def test_the_data_of_a_stream_is_described_with_its_failures_and_what_ends_it(api: Any, path: str) -> None:
    operation = next(iter(api["paths"][path].values()))
    event = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]
    data = event["properties"]["data"]
    told, *last = data.get("anyOf", [data])
    forms = schema_of(api, told["contentSchema"])
    jsonschema.validate({"error": {"message": "m", "type": "server_error", "param": None, "code": None}}, forms)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"neither": "form"}, forms)
    assert last == ([] if "runs" in path else [{"const": "[DONE]"}])


def test_a_path_that_several_have_is_described_as_those_find_it_who_send_no_mark() -> None:
    def dialect(name: str, *marks: str) -> Dialect:
        route = DocumentedRoute("/both", endpoint, Doc("T", name, None))
        return Dialect(name, ERRORS, (route,), frozenset(marks))

    both = document([dialect("marked", "a-mark"), dialect("unmarked")])["paths"]["/both"]
    assert both["get"]["summary"] == "unmarked"
