"""The official conformance suite's scenarios of tasks, against tools whose calls are the product's own."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import working
from tests.conformance.served import PATH
from tests.conformance.suite import ROOT, SUITE_S, command
from tests.e2e.server import Server, script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TASKS = (
    "lifecycle",
    "capability-negotiation",
    "wire-fields",
    "request-state-removal",
    "mrtr-input",
    "request-headers",
    "dispatch-and-envelope",
    "required-task-error",
    "mrtr-composition",
)
"""All but `status-notifications`, which the suite itself leaves out."""
NOT_OURS = {
    # What goes wrong in a run is a result that says so, so no task of ours fails by an error of the protocol.
    "lifecycle": "sep-2663-tasks-get-status-failed",
    # A run asks one thing at a time.
    "mrtr-input": "tasks-mrtr-partial-fulfillment",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("conformance")
    (folder / "mcp.json").write_text(json.dumps(working.CONFIG))
    running = Server(
        folder,
        script(folder / "model.json", working.RULES, cells=32768),
        ("--mcp-config", str(folder / "mcp.json")),
        variables={"PYTHONPATH": str(ROOT)},
        program=("-W", "ignore", "-m", "tests.conformance.served"),
    )
    yield running.start()
    running.close()


@pytest.mark.parametrize("scenario", TASKS)
def test_long_calls_become_tasks_as_the_extension_has_them(scenario: str, server: Server, tmp_path: Path) -> None:
    left_out = tmp_path / "left-out.yml"
    checks = [f"tasks-{scenario}:{NOT_OURS[scenario]}"] if scenario in NOT_OURS else []
    left_out.write_text(json.dumps({"server": checks}))
    where = ("--url", f"{server.url}{PATH}", "-o", str(tmp_path / "out"))
    done = subprocess.run(
        command("server", *where, "--scenario", f"tasks-{scenario}", "--expected-failures", str(left_out)),
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        stdin=subprocess.DEVNULL,
    )
    told = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told[-4000:]
    assert "Passed:" in told
