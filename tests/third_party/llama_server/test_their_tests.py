"""llama-server's own tests, unmodified, against a server of ours: each passes, or docs/llama-server.md says why not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.third_party.installed import source_from_pypi
from tests.third_party.llama_server.table import Name, expected, modules

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[3]
RUN_S = 2000
PARTS = ("vendor/llama.cpp/tools/server/tests", "vendor/llama.cpp/models/templates")


@pytest.fixture(scope="module")
def theirs() -> Path:
    """The folder of their tests, of the version that is served with."""
    pinned = re.search(r"^llama_cpp_python==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    return source_from_pypi("llama-cpp-python", pinned[1], *PARTS) / PARTS[0]


@pytest.mark.parametrize("module", modules())
def test_each_of_their_tests_passes_or_the_page_says_why_not(theirs: Path, tmp_path: Path, module: str) -> None:
    report = tmp_path / "outcomes.json"
    loaded = ["-p", "tests.third_party.llama_server.plugin"]
    left_out = [word for name in ("randomly", "cacheprovider", "xdist", "asyncio") for word in ("-p", f"no:{name}")]
    options = ["-c", "pytest.ini", "--rootdir=.", "--timeout=300", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *loaded, *left_out, *options, "--outcomes", str(report), f"unit/{module}"],
        cwd=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert report.exists(), f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    told = json.loads(report.read_text())
    outcomes = {Name(*name): outcome for *name, outcome, _ in told}
    reasons = {Name(*name): reason for *name, _, reason in told}
    awaited = {name: outcome for name, outcome in expected().items() if name.module == module}
    differing = {name for name in outcomes.keys() | awaited.keys() if outcomes.get(name) != awaited.get(name)}
    words = [
        f"{name}: {awaited.get(name, 'not on the page')} -> {outcomes.get(name, 'not there')}\n{reasons.get(name, '')}"
        for name in sorted(differing, key=str)
    ]
    assert not differing, "\n".join(words)
