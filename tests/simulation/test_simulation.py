"""The first seeds of the simulation, and that a history is the same whenever it is played."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.history import make
from tests.simulation.play import play
from tests.simulation.shrink import shrink

SEEDS = 150
AT_ONCE = 25
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_that_clients_tools_disks_and_crashes_do_at_once_breaks_a_promise(first: int) -> None:
    verdicts = {seed: play(make(seed)).violations for seed in range(first, first + AT_ONCE)}
    wrong = {seed: violations[0] for seed, violations in verdicts.items() if violations}
    assert not wrong, f'play one by: make simulate ARGS="--seed {min(wrong)} --verbose"; {wrong}'


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_history_is_the_same_in_every_process() -> None:
    program = "import sys; from tests.simulation.history import make; from tests.simulation.play import play\n"
    program += "for seed in map(int, sys.argv[1:]): print(seed, play(make(seed)).digest)"
    told = []
    for salt, seeds in (("1", ["7", "8", "9"]), ("2", ["9", "8", "7"])):
        environment = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", program, *seeds]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
        told.append(sorted(done.stdout.splitlines()))
    assert told[0] == told[1]


def test_a_history_goes_on_after_a_crash_with_what_the_files_have() -> None:
    crashed = next(history for history in map(make, range(1000)) if any(one.kind == "crash" for one in history.faults))
    verdict = play(crashed)
    assert any(line.endswith(" crash") for line in verdict.lines)
    assert not verdict.violations


def test_what_a_failing_history_does_not_need_is_left_out_of_it() -> None:
    history = make(3)
    needed = next(op for op in history.ops if op.client == 1)
    shortest = shrink(history, 10.0, lambda one: "wrong" if needed.word in {op.word for op in one.ops} else "")
    assert [op.word for op in shortest.ops] == [needed.word]
    assert shortest.faults == ()
