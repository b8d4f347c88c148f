"""The official conformance suite's scenarios for clients, against Tenuto's own host."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.conformance.hosting import hosting
from tests.conformance.suite import SUITE_S, command, required, signs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RELAY = Path(__file__).with_name("relay.py")
BEYOND = [
    *("auth/client-credentials-basic", "auth/client-credentials-jwt", "auth/enterprise-managed-authorization"),
    "json-schema-2020-12-preservation",
]
"""What no revision requires, and passes. The rest of that concerns ways to log in that Tenuto does not know."""


@pytest.mark.parametrize(("revision", "scenarios"), [("2025-11-25", 18), ("2026-07-28", 32)])
async def test_the_host_meets_all_that_is_required_of_a_client(revision: str, scenarios: int, tmp_path: Path) -> None:
    names = required("client", revision)
    assert len(names) == scenarios
    options = ("--requirements", revision, "--timeout", str(SUITE_S * 1000), "-o", str(tmp_path))
    with anyio.fail_after(SUITE_S):
        async with hosting() as port:
            client = f"{sys.executable} -I -S {RELAY} {port}"
            done = await anyio.run_process(
                command("client", *options, "--command", client),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                check=False,
            )
    told = done.stdout.decode()
    assert signs(told, [*names, *BEYOND]) == dict.fromkeys([*names, *BEYOND], "✓"), told[-4000:]
    assert done.returncode == 0
