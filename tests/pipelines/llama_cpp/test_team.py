import os
import random
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.pipelines.llama_cpp.team import LARGE, Team, Teams, Worth

pytest.importorskip("llama_cpp")

from tenuto.pipelines.backend import Row
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, Model
from tenuto.pipelines.loader import find
from tests.patience import HANGS_S

BURN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def test_a_team_of_many_gives_way_little_by_little_and_comes_back() -> None:
    team = Team(16)
    sizes = []
    for presence in (1.0, 0.5, 0.5, 0.5, 0.5, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0):
        team.stepped(0.1, 0.1 * presence)
        sizes.append(team.threads)
    assert sizes == [16, 12, 9, 7, 6, 6, 7, 8, 10, 12, 15]


def test_short_steps_are_judged_together() -> None:
    team = Team(2)
    assert not any(team.stepped(0.01, 0.0) for _ in range(4))
    assert team.stepped(0.01, 0.01)
    assert team.threads == 1


@given(
    most=st.integers(1, 64), steps=st.lists(st.tuples(st.floats(0.001, 10), st.floats(0, 1)), min_size=1, max_size=200)
)
def test_a_team_is_never_empty_nor_larger_than_it_may_be(most: int, steps: list[tuple[float, float]]) -> None:
    team = Team(most)
    for wall_s, presence in steps:
        before = team.threads
        assert team.stepped(wall_s, wall_s * presence) == (team.threads != before)
        assert 1 <= team.threads <= most


def test_a_team_that_is_disturbed_whenever_it_grows_tries_ever_less_often() -> None:
    """As beside one busy process on two cores, where one thread is undisturbed and two are not."""
    team, sizes = Team(2), []
    for _ in range(400):
        team.stepped(0.1, 0.1 if team.threads == 1 else 0.06)
        sizes.append(team.threads)
    assert sizes[:8].count(2) >= 2
    assert sizes[200:].count(2) <= 10
    for _ in range(80):
        team.stepped(0.1, 0.1)
    assert team.threads == 2, "it comes back when the other has ended"


def worth_after(steps: int, slower: dict[int, float], seed: int, worth: Worth | None = None) -> tuple[Worth, float]:
    """Steps of a machine on which so many threads are so many times slower than the best number; what it has cost."""
    worth, chance, cost = worth or Worth(max(slower)), random.Random(seed), 0.0
    for _ in range(steps):
        takes = slower[worth.threads(worth.most)]
        cost += takes / steps
        noise = chance.uniform(0.9, 1.1) * (6 if chance.random() < 0.05 else 1)
        worth.stepped(worth.most, 1, takes * noise, is_disturbed=False)
    return worth, cost


@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 20))
def test_steps_get_one_thread_where_two_are_no_faster_and_two_where_they_are(seed: int) -> None:
    assert worth_after(60_000, {1: 1.0, 2: 1.2}, seed)[0].best == 1
    worth, cost = worth_after(60_000, {1: 1.3, 2: 1.0}, seed)
    assert worth.best == 2
    assert cost < 1.005, "and finding that out costs next to nothing"


@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 20))
def test_the_number_of_threads_follows_when_another_becomes_the_faster(seed: int) -> None:
    worth, _ = worth_after(20_000, {1: 1.0, 2: 1.3}, seed)
    assert worth.best == 1
    worth, _ = worth_after(3_000, {1: 1.6, 2: 1.0}, seed, worth)
    assert worth.best == 2


def test_a_large_team_finds_the_number_that_is_the_fastest() -> None:
    worth, _ = worth_after(200_000, {n: 1 + abs(n - 6) / 8 for n in range(1, 17)}, 1)
    assert 5 <= worth.best <= 7


def test_steps_that_decode_and_steps_that_feed_prompts_are_judged_apart() -> None:
    teams = Teams(2)
    for _ in range(4000):
        for tokens, slower in ((1, {1: 1.0, 2: 1.5}), (LARGE, {1: 2.0, 2: 1.0})):
            took_s = slower[teams.threads(tokens)] * 0.001
            teams.stepped(tokens, took_s, took_s)
    assert (teams.threads(1), teams.threads(LARGE)) == (1, 2)


def test_nothing_is_tried_while_others_want_the_processors() -> None:
    worth = Worth(2)
    for _ in range(3000):
        worth.stepped(1, 1, 1.0, is_disturbed=True)
        assert worth.threads(1) == 1
    assert (worth.best, worth.threads(2)) == (2, 2)


@pytest.mark.slow
def test_beside_busy_processes_a_model_does_not_wait_for_threads_that_have_no_processor() -> None:
    backend = LlamaBackend(Model(find("embedded:gguf").path), LlamaSettings(slots=1, cells=512, threads=2))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(5 * cores)]
    try:
        deadline = time.monotonic() + HANGS_S
        while backend.threads > 1 and time.monotonic() < deadline:
            backend.collect(backend.launch([Row(0, 0, [65] * 100)]))
            backend.release(0)
        assert backend.threads == 1
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()
        backend.close()


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "2000 None spin 2000 times, then sleep"),
        ({"OMP_WAIT_POLICY": "active"}, "None None as OMP_WAIT_POLICY=active says"),
        ({"GOMP_SPINCOUNT": "7"}, "7 7 as GOMP_SPINCOUNT=7 says"),
    ],
)
def test_threads_wait_as_the_user_says_and_else_sleep_soon(variables: dict[str, str], told: str) -> None:
    code = """
import builtins, os
name, seen, real = "GOMP_SPINCOUNT", [], builtins.__import__
def watched(module, *rest):
    if module == "llama_cpp" and not seen:
        seen.append(os.environ.get(name))
    return real(module, *rest)
builtins.__import__ = watched
from tenuto.pipelines.llama_cpp import openmp
print(seen[0], os.environ.get(name), openmp.wait_policy())
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_S, env={**environment, **variables}
    )
    assert (done.stdout.strip(), done.stderr) == (told, "")
