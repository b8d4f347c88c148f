"""The mean of several models: each number of it, and what cannot be averaged."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
pytest.importorskip("torch", reason="needs tenuto[train]: make model-test")
import torch
from train_embedded_model.averaging import averaged

EXAMPLES = Path(__file__).parents[3] / "examples"


def checkpoint(path: Path, value: float, width: int = 4) -> Path:
    network = {"embedding.weight": torch.full((3, width), value), "norm.weight": torch.full((width,), -value)}
    torch.save({"network": network, "shape": {"width": width}, "tokens": int(value), "pool": 7}, path)
    return path


def test_every_number_is_the_mean_by_the_shares(tmp_path: Path) -> None:
    found = averaged([checkpoint(tmp_path / "a", 8.0), checkpoint(tmp_path / "b", 16.0)], [0.25, 0.75])
    assert torch.equal(found["network"]["embedding.weight"], torch.full((3, 4), 14.0))
    assert torch.equal(found["network"]["norm.weight"], torch.full((4,), -14.0))
    assert (found["shape"], found["tokens"], found["pool"]) == ({"width": 4}, 16, 7)


def test_models_of_several_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="another shape"):
        averaged([checkpoint(tmp_path / "a", 1.0), checkpoint(tmp_path / "b", 1.0, width=8)], [0.5, 0.5])


@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.6]])
def test_shares_that_do_not_come_to_1_are_refused(tmp_path: Path, shares: list[float]) -> None:
    with pytest.raises(ValueError, match="come to 1"):
        averaged([checkpoint(tmp_path / "a", 1.0), checkpoint(tmp_path / "b", 2.0)], shares)


def test_the_command_writes_the_mean_or_says_what_is_wrong(tmp_path: Path) -> None:
    paths = [str(checkpoint(tmp_path / "a", 2.0)), str(checkpoint(tmp_path / "b", 4.0))]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "train_embedded_model.averaging", str(tmp_path / "mean"), *arguments]
        return subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=60)

    assert run(paths[0], "0.5", paths[1], "0.5").returncode == 0
    assert torch.equal(torch.load(tmp_path / "mean")["network"]["norm.weight"], torch.full((4,), -3.0))
    assert "come to 1" in run(paths[0], "0.5", paths[1]).stderr
    assert "No such file or directory: 'missing'" in run("missing", "1").stderr.splitlines()[-1]
