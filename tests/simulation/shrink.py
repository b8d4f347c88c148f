"""The shortest history that still goes wrong in the same way: operations and faults are left out while it does."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.history import History
from tests.simulation.play import Verdict, play

_CHANGING = re.compile(r"\b(at \d+\.\d+ s: |\w+_[0-9a-f]{24,32}|[0-9a-f]{32}|w\d+|client \d+|item \d+|\d+)")


def kind(verdict: Verdict) -> str:
    """What went wrong first, without the names and numbers that change with every other history."""
    return _CHANGING.sub("_", verdict.violations[0]) if verdict.violations else ""


def shrink(history: History, seconds: float, fails: Callable[[History], str] = lambda one: kind(play(one))) -> History:
    """Leave out what is not needed, for at most so long."""
    until = time.perf_counter() + seconds
    wanted = fails(history)
    size = max(len(history.ops) // 2, 1)
    while time.perf_counter() < until:
        shorter = next((one for one in _shorter(history, size) if _still(one, wanted, fails, until)), None)
        if shorter is not None:
            history = shorter
        elif size == 1:
            break
        else:
            size //= 2
    return history


def _still(history: History, wanted: str, fails: Callable[[History], str], until: float) -> bool:
    return time.perf_counter() < until and fails(history) == wanted


def _shorter(history: History, size: int) -> Iterator[History]:
    for place in range(0, len(history.ops), size):
        yield replace(history, ops=history.ops[:place] + history.ops[place + size :])
    for place in range(len(history.faults)):
        yield replace(history, faults=history.faults[:place] + history.faults[place + 1 :])
    if size > 1:
        return
    for place, op in enumerate(history.ops):
        for plain in ({"twice": False}, {"key": False}, {"aborts": None}, {"leaves": None, "reads": None}):
            simpler = replace(op, **plain)
            if simpler != op:
                yield replace(history, ops=(*history.ops[:place], simpler, *history.ops[place + 1 :]))
