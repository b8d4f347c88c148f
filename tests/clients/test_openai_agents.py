"""openai-agents, as it is published: agents with tools of their own and of the server's, whole and streamed."""

import json
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import RUN_S, computed_is_new
from tests.clients.wire import Wire, listening
from tests.e2e.server import Server, environment, script
from tests.embedded import FORMS
from tests.third_party.installed import python_with

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("openai_agents.py")
RULES: list[dict[str, Any]] = [
    {"user_matches": r"weather in (?P<city>\w+)", "calls": [{"name": "weather", "arguments": {"city": "${city}"}}]},
    {"tool_contains": "sun", "text": "Take a hat: ${tool}"},
    {
        "user_contains": "17 * 23",
        "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "17 * 23"}}],
    },
    {"tool": "391", "text": "That makes 391."},
]


@pytest.fixture(scope="module", params=["scripted", *FORMS])
def wire(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    folder = tmp_path_factory.mktemp("openai-agents")
    scripted = script(folder / "model.json", RULES, cells=1 << 14)
    server = Server(folder, scripted if request.param == "scripted" else request.param).start()
    try:
        with listening(server.url) as wire:
            yield wire
    finally:
        server.close()


def test_agents_call_tools_and_go_on(wire: Wire, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    done = subprocess.run(
        [python_with("openai-agents", "0.24.0"), str(PROGRAM), wire.url, "default"],
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    made = json.loads(done.stdout)
    assert made["allowed"] == ["evaluate"]
    assert "391" in made["counted"]
    assert made["pointed"]
    assert {"raw_response_event", "run_item_stream_event"} <= {*made["kinds"]}
    answers = ("whole", "whole_again", "streamed", "chained", "at_once")
    if "scripted" in request.node.callspec.id:
        cities = [f"Take a hat: sun over {city}" for city in ("Ulm", "Bonn", "Kiel")]
        assert [made[each] for each in answers] == [cities[0], "thanks", cities[1], "thanks", cities[2]]
    assert all(made[each] for each in answers)

    said = wire.take()
    assert {one.path for one in said} == {"/v1/responses"}
    sessions = {name: [*ones] for name, ones in groupby(said, lambda one: one.session)}
    assert len(sessions) == 5, "each goes on in its own"
    for ones in sessions.values():
        computed_is_new(ones[1:])
