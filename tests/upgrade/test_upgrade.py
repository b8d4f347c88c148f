"""A data folder that an earlier version has written opens with every session, run and pause, and all of them go on."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client

from tests.e2e.server import Server, script
from tests.upgrade.write import WEATHER, ask, dump, get, shown

pytestmark = pytest.mark.slow

WRITTEN = sorted(Path(__file__).parent.glob("*.sql"))


@dataclass
class Upgraded:
    """This version's server on a folder that another version has left behind at its kill -9."""

    server: Server
    told: dict[str, Any]
    """What the other version said of it; see `write`."""

    @property
    def database(self) -> Path:
        return self.server.data_dir / "sessions.db"

    def run(self, name: str) -> str:
        run_id: str = self.told["runs"][name]["id"]
        return run_id


@pytest.fixture(params=WRITTEN, ids=[path.stem for path in WRITTEN])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upgraded]:
    """The folder before this version has opened it."""
    told = json.loads(request.param.with_suffix(".json").read_text())
    upgraded = Upgraded(Server(tmp_path, script(tmp_path / "model.json", told["rules"])), told)
    upgraded.server.data_dir.mkdir(mode=0o700)
    with closing(sqlite3.connect(upgraded.database)) as connection:
        connection.executescript(request.param.read_text())
    yield upgraded
    upgraded.server.close()


@pytest.fixture
def upgraded(folder: Upgraded) -> Upgraded:
    """The same with this version's server on it."""
    folder.server.start()
    return folder


@pytest.fixture
def client(upgraded: Upgraded) -> Iterator[httpx.Client]:
    with upgraded.server.client() as client:
        yield client


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def follow(client: httpx.Client, run_id: str) -> dict[str, Any]:
    """The run once it waits or has ended."""
    client.get(f"/v1/runs/{run_id}/events", params={"after": 0}).raise_for_status()
    run: dict[str, Any] = get(client, f"/v1/runs/{run_id}")
    return run


def assert_says(now: Any, then: Any, path: str = "") -> None:
    """All that an answer said then it says now; it may say more."""
    if isinstance(then, dict):
        for name, value in then.items():
            assert name in now, f"{path}.{name} is gone"
            assert_says(now[name], value, f"{path}.{name}")
    elif isinstance(then, list):
        assert len(now) == len(then), path
        for at, (one, other) in enumerate(zip(now, then, strict=True)):
            assert_says(one, other, f"{path}[{at}]")
    else:
        assert now == then, path


def test_every_session_is_there_with_all_that_it_had(upgraded: Upgraded, client: httpx.Client) -> None:
    then = upgraded.told["sessions"]
    assert {one["id"] for one in get(client, "/v1/sessions", implicit=1)["data"]} == set(then)
    for id, document in then.items():
        now = shown(get(client, f"/v1/sessions/{id}"))
        changed = {"updated_at"} if id == "generating" else set()
        assert_says(now, {name: value for name, value in document.items() if name not in changed}, id)


def test_every_run_is_there_and_the_one_that_was_cut_off_is_closed(upgraded: Upgraded, client: httpx.Client) -> None:
    for name, then in upgraded.told["runs"].items():
        now = get(client, f"/v1/runs/{then['id']}")
        if name == "generating":
            assert (then["status"], now["status"]) == ("running", "interrupted")
        else:
            assert_says(now, then, name)


@pytest.mark.parametrize(
    ("decision", "text"), [("approve", "the result: 42"), ("deny", "the result: The user denied this tool call.")]
)
def test_an_approval_that_was_asked_for_before_is_given_or_denied(
    upgraded: Upgraded, client: httpx.Client, decision: str, text: str
) -> None:
    approval = f"/v1/agent/approvals/{upgraded.told['pauses']['approval']}"
    client.post(approval, json={"decision": decision}).raise_for_status()
    run = follow(client, upgraded.run("approval"))
    assert (run["status"], run["text"]) == ("completed", text)
    assert client.post(approval, json={"decision": decision}).status_code == 409


def test_a_run_that_waited_for_its_client_takes_the_results(upgraded: Upgraded, client: httpx.Client) -> None:
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"} for call in upgraded.told["calls"]]
    body = {"session_id": "client", "messages": results, "tools": [WEATHER]}
    answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert text_of(answer) == "the result: sunny"
    assert answer["tenuto"]["run_id"] == upgraded.run("client")


def test_every_session_goes_on(upgraded: Upgraded, client: httpx.Client) -> None:
    assert text_of(ask(client, "hello", session_id="generating")) == "hello"
    for id in ("tools", "notes", "denied"):
        assert text_of(ask(client, "hello", session_id=id)) == "hello"
        assert get(client, f"/v1/sessions/{id}")["items"][:-2] == upgraded.told["sessions"][id]["items"]
    further = ask(client, "hello", "hello", "add", "the result: 42", "hello")
    assert (further["session_id"], text_of(further)) == (upgraded.told["implicit"], "hello")


def test_notes_are_read_in_their_session_and_outside_of_sessions(upgraded: Upgraded, client: httpx.Client) -> None:
    assert text_of(ask(client, "recall", session_id="notes")) == "the result: blue é"

    async def outside() -> str:
        async with Client(f"{upgraded.server.url}/mcp") as mcp:
            result = await mcp.call_tool("notes__get", {"key": "outside"})
            return str(result.content[0].text)  # type: ignore[union-attr]

    assert anyio.run(outside) == "green"


def test_an_approval_for_the_rest_of_a_session_is_asked_for_again_where_it_does_not_say_of_which_definition(
    upgraded: Upgraded, client: httpx.Client
) -> None:
    paused = ask(client, "add", session_id="remembered", agent_permission="ask")["tenuto"]
    assert paused["status"] == "paused"
    decision = {"decision": "approve", "remember_for_session": True}
    client.post(f"/v1/agent/approvals/{paused['approval_id']}", json=decision).raise_for_status()
    assert follow(client, paused["run_id"])["text"] == "the result: 42"
    assert text_of(ask(client, "add", session_id="remembered", agent_permission="ask")) == "the result: 42"


def test_a_folder_of_a_newer_version_is_refused_in_words_and_left_alone(folder: Upgraded) -> None:
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = dump(folder.database)
    with pytest.raises(AssertionError, match="instead of the ready line came ''"):
        folder.server.start()
    assert folder.server.ended() == 2
    assert "another version" in folder.server.log
    assert "Traceback" not in folder.server.log
    assert dump(folder.database) == before
