"""The official conformance suite's scenarios for servers, against the fixture that the product serves, and against the
product's own MCP server with the same fixture behind it.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import behind
from tests.conformance.served import PATH
from tests.conformance.suite import ROOT, SUITE_S, command, required, signs
from tests.e2e.server import Server, script

REVISIONS = ("2025-11-25", "2026-07-28")
MORE = {
    "2025-11-25": ["server-session-lifecycle", "json-schema-2020-12"],
    "2026-07-28": ["json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"],
}
"""What is not required, and passes at `/mcp` as well."""
NOT_RELAYED = {
    "2025-11-25": [],
    "2026-07-28": [
        # What a server behind may ask for is told to it by its entry, and not by what a client can do. Lists that are
        # announced as changed are read again, and clients hear of them only where they are others.
        "server-stateless",
        # Questions of a call are put one at a time, by a key of ours, and folders are not asked for.
        "input-required-result-basic-elicitation",
        "input-required-result-basic-list-roots",
        "input-required-result-multiple-input-requests",
    ],
}
"""What is required and does not pass at `/mcp`, as the fixture behind is seen there."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("conformance")
    running = Server(
        folder,
        script(folder / "model.json"),
        variables={"PYTHONPATH": str(ROOT)},
        program=("-W", "ignore", "-m", "tests.conformance.served"),
    )
    yield running.start()
    running.close()


def run(url: str, revision: str, out: Path) -> str:
    """All scenarios of a revision; what the suite says."""
    done = subprocess.run(
        command("server", "--url", url, "--requirements", revision, "-o", str(out)),
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        stdin=subprocess.DEVNULL,
    )
    return f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(("revision", "scenarios"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_the_transport_meets_all_that_is_required_of_a_server(
    revision: str, scenarios: int, server: Server, tmp_path: Path
) -> None:
    names = required("server", revision)
    assert len(names) == scenarios
    told = run(f"{server.url}{PATH}", revision, tmp_path)
    assert signs(told, names) == dict.fromkeys(names, "✓"), told[-4000:]


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_products_own_handlers_relay_what_a_server_behind_answers(revision: str, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps(behind.config(revision)))
    arguments = ("--mcp-config", str(tmp_path / "mcp.json"))
    server = Server(tmp_path, script(tmp_path / "model.json"), arguments)
    try:
        behind.wait_until_listed(server.start())
        told = run(f"{server.url}/mcp", revision, tmp_path / "out")
    finally:
        server.close()
    names = required("server", revision)
    expected = {name: "✗" if name in NOT_RELAYED[revision] else "✓" for name in (*names, *MORE[revision])}
    assert signs(told, list(expected)) == expected, told[-4000:]
