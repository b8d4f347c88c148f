"""The tools of other people's servers, from their registries, called by a model through the whole loop."""

import pytest

from tests.third_party.cases import EVERYTHING
from tests.third_party.conftest import Peers

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(1800)]

TOOLS = (
    *("echo", "sum", "structured", "annotated", "env", "links", "reference", "gzip", "long", "logging", "updates"),
    *("sample", "roots", "research"),
)
ALONE = (
    *("convert", "log", "status", "fetch", "read", "think"),
    *(f"{server}-{tool}" for server in ("fastmcp2", "fastmcp4") for tool in ("add", "count")),
    *(f"{server}-ask" for server in ("fastmcp2", "fastmcp4-before")),
    *(f"{server}-{tool}" for server in EVERYTHING for tool in TOOLS),
)


@pytest.mark.parametrize("name", ALONE)
def test_a_forced_call_is_made_and_the_model_reads_its_result(peers: Peers, name: str) -> None:
    result, _ = peers.ask(name)
    assert peers.calls[name].expected in result


def test_a_call_has_its_effect(peers: Peers) -> None:
    result, _ = peers.ask("write")
    assert peers.calls["write"].expected in result
    assert (peers.folder / "files" / "new.txt").read_text() == "let go"


def test_a_server_keeps_its_state_between_calls(peers: Peers) -> None:
    peers.ask("learn")
    result, _ = peers.ask("recall")
    assert peers.calls["recall"].expected in result


def test_a_table_is_made_filled_and_read(peers: Peers) -> None:
    for name in ("make", "keep", "query"):
        result, _ = peers.ask(name)
        assert peers.calls[name].expected in result


@pytest.mark.parametrize("server", EVERYTHING)
def test_a_form_is_filled_in_by_a_person(peers: Peers, server: str) -> None:
    question, text = peers.asked(f"{server}-form", {"name": "Ann"})
    assert question["requested_schema"]["required"] == ["name"]
    assert "Name: Ann" in text


@pytest.mark.parametrize("server", EVERYTHING)
def test_a_link_is_opened_by_a_person(peers: Peers, server: str) -> None:
    question, text = peers.asked(f"{server}-page", None)
    assert question["url"] == peers.calls[f"{server}-page"].arguments["url"]
    assert peers.calls[f"{server}-page"].expected in text


@pytest.mark.parametrize("server", ["fastmcp2", "fastmcp4-before"])
def test_a_server_made_with_fastmcp_asks_for_a_name(peers: Peers, server: str) -> None:
    question, text = peers.asked(f"{server}-greet", {"value": "Ann"})
    assert question["message"] == "What is your name?"
    assert peers.calls[f"{server}-greet"].expected in text


@pytest.mark.parametrize("server", EVERYTHING)
def test_an_image_is_kept_in_the_session_and_named_to_the_model(peers: Peers, server: str) -> None:
    result, session = peers.ask(f"{server}-image")
    assert peers.calls[f"{server}-image"].expected in result
    (item,) = [item for item in session["items"] if item["kind"] == "tool_result"]
    (image,) = item["attachments"]
    assert (image["kind"], image["mime_type"]) == ("image", "image/png")
    assert image["data"].startswith("iVBORw0KGgo")


def test_every_server_is_shown_with_its_state(peers: Peers) -> None:
    states = peers.states()
    assert {name: (each["status"], each["transport"], each["era"]) for name, each in states.items()} == {
        "time": ("ready", "stdio", "modern"),
        "git": ("ready", "stdio", "modern"),
        "fetch": ("ready", "stdio", "modern"),
        "filesystem": ("ready", "stdio", "handshake"),
        "memory": ("ready", "stdio", "handshake"),
        "thinking": ("ready", "stdio", "handshake"),
        "sqlite": ("ready", "stdio", "handshake"),
        "fastmcp2": ("ready", "stdio", "handshake"),
        "fastmcp4": ("ready", "stdio", "modern"),
        "fastmcp4-before": ("ready", "stdio", "handshake"),
        "everything": ("ready", "stdio", "handshake"),
        "http": ("ready", "http", "handshake"),
        "sse": ("ready", "sse", "handshake"),
    }
    assert "time__convert_time" in states["time"]["tools"]
    assert any("running on stdio" in line for line in states["filesystem"]["stderr"])
