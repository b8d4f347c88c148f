"""The short form of bench/soak.py: clients that come and go leave nothing behind, and the counters add up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SOAK = Path(__file__).parents[2] / "bench" / "soak.py"


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    done = subprocess.run(
        [sys.executable, str(SOAK), "--minutes", "0.2", "--sessions", "40", "--json"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert done.returncode == 0
    assert report["done"]["disconnected"] > 0
    assert report["runs"]["begun"] == sum(count for end, count in report["runs"].items() if end != "begun") > 40
