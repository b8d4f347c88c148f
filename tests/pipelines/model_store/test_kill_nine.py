"""kill -9 before each change of the disk: a whole version is left, whatever was going on, and can be gone on from."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANGS_S
from tests.pipelines.model_store import kills

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing forks there")


@pytest.mark.parametrize("name", kills.OPERATIONS)
def test_a_model_is_whole_wherever_its_change_was_killed(name: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pipelines.model_store.kills", name, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 5, "it changes the disk by more calls than this"
