import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.patience import HANGS_S

ROOT = Path(__file__).parent.parent
ROOMS = ("runtime", "tools", "sessions", "pipelines")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=HANGS_S,
    )
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_nothing_else_of_the_repository(wheel: Path) -> None:
    """A checkout without links builds a wheel without our code, and says nothing (docs/decisions/0001)."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    modules = {f"tenuto/{path.relative_to(ROOT)}" for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert len(modules) > 50
    assert modules <= packed
    assert {name.split("/")[0] for name in packed} == {"tenuto", wheel.name.rpartition("-py3")[0] + ".dist-info"}


@pytest.mark.slow
def test_the_wheel_holds_the_embedded_model_and_the_licence(wheel: Path) -> None:
    packed = zipfile.ZipFile(wheel).namelist()
    assert "tenuto/py.typed" in packed
    assert any(name.endswith("embedded/tenuto-embedded.gguf") for name in packed)
    assert any(name.endswith("embedded/mlx/model.safetensors") for name in packed)
    assert any(name.endswith("licenses/LICENSE") for name in packed)
