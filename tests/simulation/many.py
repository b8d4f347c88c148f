"""Plays many histories, in as many processes as there are cores."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.simulation.history import make
from tests.simulation.play import play

CHUNK = 10
LIFE = 40
"""Chunks that a process plays before another takes its place, so that nothing gathers in it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one seed went."""

    seed: int
    violations: tuple[str, ...]
    digest: str


def outcomes(seeds: Sequence[int], processes: int | None = None) -> Iterator[Outcome]:
    """The outcomes of all seeds, in their order."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    number = processes or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with multiprocessing.get_context("spawn").Pool(min(number, len(chunks)), maxtasksperchild=LIFE) as pool:
        for chunk in pool.imap(_play, chunks):
            yield from chunk


def _play(seeds: Sequence[int]) -> list[Outcome]:
    verdicts = [(seed, play(make(seed))) for seed in seeds]
    return [Outcome(seed, tuple(verdict.violations), verdict.digest) for seed, verdict in verdicts]
