"""Schemathesis reads /openapi.json and sends what it allows, and what it forbids: no 500 and no undocumented answer.

Half a minute here; `make fuzz` takes ten.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server, script

SECONDS = int(os.environ.get("FUZZ_SECONDS", "30"))
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
)
RULES: list[dict[str, Any]] = [
    {"user": "tool", "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "6*7"}}]},
    {"tool_contains": "42", "text": "It is 42."},
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS * 2 + 240)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path, script(tmp_path / "model.json", RULES))
    try:
        yield running.start()
    finally:
        running.close()


def test_no_request_makes_an_error_of_the_server_or_an_answer_that_is_not_described(server: Server) -> None:
    pytest.importorskip(
        "schemathesis", reason="schemathesis is among the packages for checks and tests: make setup-dev"
    )
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
        *("run", f"{server.url}/openapi.json", "--checks", ",".join(CHECKS)),
        *("--max-time", str(SECONDS), "--request-timeout", "20", "--continue-on-failure", "--no-color"),
        *("--generation-database", "none"),
    ]
    done = subprocess.run(
        command,
        cwd=server.folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=SECONDS * 2 + 180,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-12000:]}\n{done.stderr[-2000:]}\n{server.log[-4000:]}"
    assert "Traceback" not in server.log, server.log[-8000:]
    with server.client() as client:
        assert client.get("/health").json() == {"status": "ok"}
