"""What the configured servers have besides tools, over HTTP: listed by pages, read, filled in and completed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp import attaching, offering
from tests.mcp.behind import WAYS, ways

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with the same one behind it in each way, and two more that are shown in part or not at all."""
    folder = tmp_path_factory.mktemp("offers")
    own: dict[str, Any] = tool_server(Path(offering.__file__))
    more = {
        "part": {**own, "gateway": {"prompts": ["greet"], "resources": ["memo://?"], "keys": ["ann"]}},
        "shut": {**own, "gateway": False},
    }
    keys = [("ann", True), ("bob", False)]
    lines = [f'{{name = "{name}", key = "{name}", person = {str(person).lower()}}}' for name, person in keys]
    (folder / "tenuto.toml").write_text(f"keys = [{', '.join(lines)}]\n")
    with ways() as entries:
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {**entries, **more}}))
        more_arguments = ("--mcp-config", str(folder / "mcp.json"), "--config", str(folder / "tenuto.toml"))
        running = Server(folder, script(folder / "model.json"), more_arguments)
        try:
            yield running.start()
        finally:
            running.close()


@pytest.fixture
def ann(server: Server) -> Iterator[httpx.Client]:
    with server.client(headers={"Authorization": "Bearer ann"}) as client:
        yield client


@pytest.fixture
def bob(server: Server) -> Iterator[httpx.Client]:
    with server.client(headers={"Authorization": "Bearer bob"}) as client:
        yield client


def listed(client: httpx.Client, what: str, **query: Any) -> list[dict[str, Any]]:
    """A list by all its pages."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.get(f"/v1/mcp/{what}", params=query).raise_for_status().json()
        found += page["data"]
        if not page["has_more"]:
            return found
        query["after"] = page["last_id"]


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


@pytest.mark.parametrize("way", WAYS)
def test_prompts_and_resources_of_a_server_are_listed(way: str, ann: httpx.Client) -> None:
    prompts = listed(ann, "prompts", server=way)
    assert [each["name"] for each in prompts] == ["talk", "ends", "empty", "shows"]
    assert prompts[0]["arguments"][0] == {
        "name": "about",
        "title": None,
        "description": "What it is about",
        "required": True,
    }
    resources = listed(ann, "resources", server=way, limit=2)
    assert [(each["server"], each["uri"]) for each in resources] == [(way, uri) for uri in attaching.LISTED]
    (template,) = listed(ann, "resources/templates", server=way)
    assert template["uri_template"] == "memo://{name}"


@pytest.mark.parametrize("way", WAYS)
def test_a_resource_is_read_a_prompt_filled_in_and_an_argument_completed(way: str, ann: httpx.Client) -> None:
    uri = f"memo://of-{way}"
    read = ann.post("/v1/mcp/resources/read", json={"server": way, "uri": uri}).json()
    contents = {"uri": uri, "mime_type": "text/plain", "text": f"reading 1 of {uri}", "blob": None}
    assert read["contents"] == [contents]
    dot = ann.post("/v1/mcp/resources/read", json={"server": way, "uri": "memo://dot"}).json()
    assert dot["contents"][0]["blob"] == attaching.DOT
    body = {"server": way, "name": "talk", "arguments": {"about": "bread"}}
    filled = ann.post("/v1/mcp/prompts/get", json=body).json()
    assert filled["description"] == "A talk"
    assert filled["messages"][1] == {"role": "assistant", "content": {"type": "text", "text": "Gladly."}}
    argument = {"name": "about", "value": "ap"}
    of_prompt = ann.post("/v1/mcp/complete", json={"server": way, "name": "talk", "argument": argument}).json()
    assert of_prompt["values"] == ["apples", "apricots"]
    form = {"server": way, "uri_template": "memo://{name}", "argument": {"name": "name", "value": "as"}}
    assert ann.post("/v1/mcp/complete", json=form).json()["values"] == ["asked"]


def test_each_principal_sees_what_is_shown_to_it(ann: httpx.Client, bob: httpx.Client) -> None:
    assert {each["server"] for each in listed(bob, "prompts")} == {*WAYS}
    assert [each["name"] for each in listed(ann, "prompts", server="part")] == ["greet"]
    assert [each["uri"] for each in listed(ann, "resources", server="part")] == ["memo://a"]
    assert listed(ann, "resources/templates", server="shut") == []
    for client, body in ((bob, {"server": "part", "uri": "memo://a"}), (ann, {"server": "nobody", "uri": "memo://a"})):
        status, message = refused(client.post("/v1/mcp/resources/read", json=body))
        assert status == 404
        assert message.startswith(f"there is no MCP server {body['server']!r}; known: {WAYS[0]}")
    for server, uri in (("part", "memo://secret"), ("shut", "memo://a"), (WAYS[0], "memo://none")):
        answer = ann.post("/v1/mcp/resources/read", json={"server": server, "uri": uri})
        assert refused(answer) == (404, f"there is no resource {uri!r}")
    answer = ann.post("/v1/mcp/prompts/get", json={"server": "part", "name": "hidden"})
    assert refused(answer) == (404, "there is no prompt 'hidden'; known: greet")


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("prompts/get", {"server": WAYS[0], "name": "talk"}, "about is missing"),
        ("prompts/get", {"server": WAYS[0], "name": "talk", "arguments": {"about": 1}}, "arguments"),
        ("resources/read", {"server": WAYS[0]}, "uri: field required"),
        ("resources/read", {"server": WAYS[0], "uri": "x" * 5000}, "uri"),
        ("complete", {"server": WAYS[0], "argument": {"name": "a"}}, "give either name or uri_template"),
    ],
)
def test_bad_input_is_refused_by_its_name(path: str, body: dict[str, Any], message: str, ann: httpx.Client) -> None:
    status, told = refused(ann.post(f"/v1/mcp/{path}", json=body))
    assert status == 400
    assert message in told


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 101}, {"after": "x"}, {"after": -1}])
def test_a_page_that_there_is_not_is_refused(query: dict[str, Any], ann: httpx.Client) -> None:
    status, told = refused(ann.get("/v1/mcp/resources", params=query))
    assert status == 400
    assert next(iter(query)) in told
