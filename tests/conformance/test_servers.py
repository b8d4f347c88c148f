"""The official conformance suite's scenarios for servers, against the fixture that the product serves."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.served import PATH
from tests.e2e.server import Server, script
from tests.third_party.installed import modules_from_npm, new_node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
VERSION = "0.2.0-alpha.12"
SUITE_S = 300
_SCENARIO = re.compile(r"^(?P<sign>[✓✗]) (?P<name>[\w/.-]+): \d+ passed, \d+ failed$", re.MULTILINE)
_LEFT_OUT = re.compile(r"^  [✓✗] (?P<name>[\w/.-]+) \(", re.MULTILINE)


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


@pytest.mark.parametrize(("requirements", "scenarios"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_the_transport_meets_all_that_is_required_of_a_server(
    requirements: str, scenarios: int, server: Server, tmp_path: Path
) -> None:
    suite = modules_from_npm("@modelcontextprotocol/conformance", VERSION) / "dist" / "index.js"
    done = subprocess.run(
        [
            *(new_node(), str(suite), "server"),
            *("--url", f"{server.url}{PATH}", "--requirements", requirements, "-o", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        stdin=subprocess.DEVNULL,
    )
    told = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told[-4000:]
    unscored = {found["name"] for found in _LEFT_OUT.finditer(told)}
    required = {found["name"]: found["sign"] for found in _SCENARIO.finditer(told) if found["name"] not in unscored}
    assert required == dict.fromkeys(required, "✓")
    assert len(required) == scenarios
