"""Every example runs, as it is, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "package"), [("gguf", "llama_cpp"), pytest.param("mlx", "mlx_lm", marks=pytest.mark.thorough)]
)
def test_the_demo_exits_0(form: str, package: str) -> None:
    pytest.importorskip(package)
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--model", f"embedded:{form}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.rstrip().endswith("All of it held.")
