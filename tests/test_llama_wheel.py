"""`make setup` compiles llama.cpp once and keeps the wheel: which wheel a set-up takes, and which it does not."""

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import HANGS_S

ROOT = Path(__file__).parents[1]
(VERSION,) = (
    line.partition("==")[2]
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line.startswith("llama_cpp_python==")
)
PROGRAMS = (
    "basename",
    "bash",
    "cat",
    "find",
    "flock",
    "grep",
    "head",
    "mkdir",
    "mktemp",
    "rm",
    "sed",
    "sleep",
    "tail",
    "tr",
)


@dataclass(frozen=True)
class Machine:
    """One without a compiler, so that a set-up succeeds only with a wheel from the store."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def set_up(self, **variables: str) -> subprocess.CompletedProcess[str]:
        plain = {
            name: value for name, value in os.environ.items() if not name.endswith("FLAGS") and name != "CMAKE_ARGS"
        }
        return subprocess.run(
            [self.folder / "bin" / "bash", ROOT / ".ci" / "llama-wheel", self.python, self.folder / "store"],
            cwd=ROOT,
            env={**plain, "PATH": str(self.folder / "bin"), "CXX": "no-compiler", **variables},
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )

    def builds(self) -> set[Path]:
        return {path for path in (self.folder / "store").iterdir() if path.is_dir()}

    def keep(self, build: Path, mark: str) -> None:
        """A wheel in the place of one that was compiled: its module says which it is."""
        info = f"llama_cpp_python-{VERSION}.dist-info"
        with zipfile.ZipFile(build / f"llama_cpp_python-{VERSION}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("llama_cpp.py", f"MARK = {mark!r}\n")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: {VERSION}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")

    def installed(self) -> str:
        told = subprocess.run(
            [self.python, "-c", "import llama_cpp; print(llama_cpp.MARK)"],
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )
        return told.stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        if found:
            (tmp_path / "bin" / name).symlink_to(found)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=HANGS_S)
    return Machine(tmp_path)


@pytest.mark.slow
def test_a_set_up_takes_the_wheel_that_was_built_with_its_own_flags(machine: Machine) -> None:
    assert "no C++ compiler" in machine.set_up().stderr
    (plain,) = machine.builds()
    machine.keep(plain, "plain")
    assert machine.set_up().returncode == 0
    assert machine.installed() == "plain"

    with_cuda = machine.set_up(CMAKE_ARGS="-DGGML_CUDA=ON")
    assert (with_cuda.returncode, "no C++ compiler" in with_cuda.stderr) == (1, True), "another build's wheel was taken"
    (cuda,) = machine.builds() - {plain}
    machine.keep(cuda, "cuda")
    assert machine.set_up(CMAKE_ARGS="-DGGML_CUDA=ON").returncode == 0
    assert machine.installed() == "cuda", "the build that was installed before has stayed"
    assert machine.set_up().returncode == 0
    assert machine.installed() == "plain"


@pytest.mark.slow
def test_a_build_that_was_installed_by_hand_stays(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    machine.keep(tmp_path / "own", "own")
    (wheel,) = (tmp_path / "own").iterdir()
    subprocess.run([machine.python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True, timeout=HANGS_S)
    assert machine.set_up().returncode == 0
    assert machine.installed() == "own"
