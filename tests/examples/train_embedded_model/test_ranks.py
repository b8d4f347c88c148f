"""Processes that train together: one model comes of them, and they stop together."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
pytest.importorskip("torch", reason="needs tenuto[train]: make model-test")
pytest.importorskip("faker")
import torch
from train_embedded_model.ranks import Ranks, run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL = {
    "vocabulary": 512, "width": 32, "layers": 1, "heads": 1, "kv-heads": 1, "hidden": 64, "batch-tokens": 1024,
    "warm-steps": 5, "tokenizer-talks": 100, "evaluation-talks": 2,
}  # fmt: skip


def exchange(out: Path, ranks: Ranks) -> None:
    """What a process is given by the others."""
    gradients = [torch.full((2, 3), float(ranks.rank)), torch.full((5,), 10.0 * ranks.rank)]
    ranks.average(gradients)
    found = {
        "gradients": [each.tolist() for each in gradients],
        "least": ranks.least(7 + ranks.rank),
        "totals": ranks.totals(1 + ranks.rank, 10),
        "first": ranks.first,
    }
    (out / f"{ranks.rank}.json").write_text(json.dumps(found))


def test_every_process_gets_the_mean_of_all_gradients(tmp_path: Path) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    run_ranks(2, partial(exchange, tmp_path))
    both = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [found.pop("first") for found in both] == [True, False]
    assert both[0] == both[1] == {"gradients": [[[0.5] * 3] * 2, [5.0] * 5], "least": 7, "totals": [3, 20]}
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def fail(ranks: Ranks) -> None:
    """Work that fails in one process."""
    if ranks.rank:
        raise ValueError("as it should")


def test_a_process_that_fails_fails_the_whole() -> None:
    with pytest.raises(RuntimeError, match=r"these failed: \[1\]"):
        run_ranks(2, fail)


def test_a_training_of_two_processes_that_is_told_to_stop_keeps_what_it_has_done(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "train_embedded_model.train", "--out", str(tmp_path), "--ranks", "2"]
    run += ["--no-compile", *(f"--{name}={value}" for name, value in SMALL.items())]
    log = tmp_path / "log.jsonl"
    with subprocess.Popen(run, cwd=EXAMPLES, stdout=subprocess.DEVNULL) as training:
        until = time.monotonic() + 200
        while not log.exists() and time.monotonic() < until and training.poll() is None:
            time.sleep(0.1)
        os.kill(training.pid, signal.SIGTERM)
        assert training.wait(60) == 0
    kept = torch.load(tmp_path / "checkpoint.pt")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert kept["tokens"] / 1e6 == pytest.approx(lines[-1]["tokens"], abs=0.01)
    assert kept["pool"] % 2 == 0
    assert len([line for line in lines if line.get("step") == kept["step"] and "exact" in line]) == 2
