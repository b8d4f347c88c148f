"""The suite's fixture as a server behind ours, whose tools and prompts have their own names at `/mcp`."""

import sys
import time
from typing import Any

from tests.conformance.fixture import NAMES
from tests.conformance.suite import ROOT
from tests.e2e.server import Server
from tests.patience import HANGS_S

ERAS = {"2025-11-25": "legacy", "2026-07-28": "modern"}
"""The era in which we talk to it, by that in which the suite talks to us."""


def config(revision: str) -> dict[str, Any]:
    """The file of servers."""
    entry = {
        "command": sys.executable,
        "args": ["-W", "ignore", "-m", "tests.conformance.fixture"],
        "env": {"PYTHONPATH": str(ROOT)},
        "era": ERAS[revision],
        "permission": "auto",
        "sampling": "allow",
        "gateway": {"names": {name: name for name in NAMES}, "schemes": ["test"]},
    }
    return {"mcpServers": {"suite": entry}}


def wait_until_listed(server: Server) -> None:
    """Wait until it is there with all that it has: templates are listed last."""
    deadline = time.monotonic() + HANGS_S
    with server.client() as http:
        while not http.get("/v1/mcp/resources/templates").raise_for_status().json()["data"]:
            assert time.monotonic() < deadline, server.log[-4000:]
            time.sleep(0.05)
