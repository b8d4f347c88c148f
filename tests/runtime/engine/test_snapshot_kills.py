"""Processes that are killed while they write snapshots: a hundred at any moment, and one at each call."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANGS_S
from tests.runtime.engine.snapshot_kills import WHILE_WRITING

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="no fork there")]


def test_what_killed_processes_leave_is_whole_or_gone(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.runtime.engine.snapshot_kills", tmp_path],
        capture_output=True,
        text=True,
        timeout=2 * HANGS_S,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert ran.returncode == 0, ran.stderr
    any_moment, _, calls = ran.stdout.rpartition(" ")
    seen = ast.literal_eval(any_moment)
    assert seen["found"] > 150, "they were killed before they had written anything"
    assert seen["partial"] > WHILE_WRITING, "none was killed while it wrote"
    assert int(calls) >= 5
