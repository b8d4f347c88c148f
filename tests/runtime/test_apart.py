"""Work whose end nobody knows is done apart: it holds up nothing, and costs nobody but who asked for it."""

import os
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from tenuto.errors import InvalidRequest, TookTooLong
from tenuto.runtime.apart.checks import ArgumentChecks
from tenuto.runtime.apart.pool import Pool

pytestmark = pytest.mark.slow


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(most=1, memory_bytes=1 << 30)
    yield made
    await made.close()


def refuse(word: str) -> None:
    raise InvalidRequest(word, "param")


async def test_a_job_gives_what_it_gives(pool: Pool) -> None:
    assert await pool.do("a sum", sum, [1, 2, 3], seconds=20) == 6
    assert await pool.do("its process", os.getpid, seconds=20) != os.getpid()


async def test_a_job_that_never_ends_is_given_up_and_the_next_one_is_done(pool: Pool) -> None:
    first = await pool.do("its process", os.getpid, seconds=20)
    with pytest.raises(TookTooLong, match=r"a nap took more than 0\.1 s"):
        await pool.do("a nap", time.sleep, 3600, seconds=0.1)
    assert await pool.do("its process", os.getpid, seconds=20) != first
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@pytest.mark.skipif(os.name == "nt", reason="no signals")
async def test_a_job_that_ends_its_process_is_an_error_of_that_job_alone(pool: Pool) -> None:
    with pytest.raises(TookTooLong):
        await pool.do("a death", signal.raise_signal, signal.SIGKILL, seconds=20)
    with pytest.raises(TookTooLong):
        await pool.do("an exit", os._exit, 0, seconds=20)
    assert await pool.do("a sum", sum, [1], seconds=20) == 1


async def test_what_a_job_raises_is_raised_here(pool: Pool) -> None:
    with pytest.raises(InvalidRequest, match="no"):
        await pool.do("a refusal", refuse, "no", seconds=20)
    with pytest.raises(MemoryError):
        await pool.do("a large thing", bytes, 8 << 30, seconds=20)


async def test_one_who_goes_away_leaves_no_process_at_work(pool: Pool) -> None:
    with anyio.move_on_after(0.5):
        await pool.do("a nap", time.sleep, 3600, seconds=3600)
    assert await pool.do("a sum", sum, [1], seconds=20) == 1


DOUBLING: dict[str, Any] = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}
"""Each level of the arguments is looked at twice as often as the one above."""


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


async def test_arguments_that_a_schema_would_look_at_for_ever_are_given_up(pool: Pool) -> None:
    check = ArgumentChecks(pool)
    assert await check(DOUBLING, nested(3)) == []
    slowest = 0.0
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            nonlocal slowest
            while True:
                begun = anyio.current_time()
                await anyio.sleep(0.01)
                slowest = max(slowest, anyio.current_time() - begun)

        group.start_soon(watch)
        with pytest.raises(TookTooLong):
            await check(DOUBLING, nested(60))
        group.cancel_scope.cancel()
    assert slowest < 1, "nobody else has waited"
