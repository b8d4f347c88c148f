"""A session's caches are taken away from every engine that may have them, also from those that take no requests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenuto.errors import StoreFailed
from tenuto.pipelines.backend import Sampling
from tenuto.runtime.engine.messages import Round
from tenuto.runtime.loop import kept_caches
from tenuto.runtime.loop.kept_caches import KeptCaches
from tenuto.runtime.loop.life.keeper import Keeper
from tenuto.runtime.loop.model import Model
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.shelf import LoadOptions
from tests.runtime.loop.keeping import GatedLoads, keeping, script, using


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    ready: asyncio.Future[Keeper] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def run() -> None:
        async with keeping(GatedLoads(tmp_path), [script(tmp_path, "a")]) as keeper:
            ready.set_result(keeper)
            await leave.wait()

    task = asyncio.create_task(run())
    yield await ready
    leave.set()
    await task


async def speak(model: Model, sequence: str) -> int:
    """Let a sequence have something; how many tokens."""
    tokens = model.codec.tokenize("hello")
    opened = model.engine.submit(sequence, tokens, Round(1, Sampling(), frozenset()), principal="alice")
    async for _ in opened:
        pass
    return len(tokens)


async def test_a_version_that_has_been_replaced_forgets_too(tmp_path: Path, keeper: Keeper) -> None:
    async with using(keeper, "a") as old:
        assert isinstance(old, Model)
        length = await speak(old, "uid/a")
        await keeper.load("a", "admin", LoadOptions(is_swap=True, source=script(tmp_path, "better")))
        assert keeper.loaded("a") is not old
        assert old.engine.holds("uid/a", length)
        await KeptCaches(Models(keeper), tmp_path / "caches").forget("uid")
        assert not old.engine.holds("uid/a", length)


async def test_one_that_is_about_to_be_unloaded_forgets_too(tmp_path: Path, keeper: Keeper) -> None:
    async with using(keeper, "a") as old:
        assert isinstance(old, Model)
        length = await speak(old, "uid/a")
        await keeper.unload("a", 0.0)
        assert keeper.loaded("a") is None
        assert old.engine.holds("uid/a", length)
        await KeptCaches(Models(keeper), tmp_path / "caches").forget("uid")
        assert not old.engine.holds("uid/a", length)


async def test_what_an_engine_that_ends_may_still_write_is_waited_for(
    tmp_path: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_caches, "FORGET_S", 0.05)
    async with using(keeper, "a") as model:
        pass
    assert isinstance(model, Model)
    caches = KeptCaches(Models(keeper), tmp_path / "caches")
    await caches.forget("uid")
    entry = keeper._entries["a"]
    assert entry.loaded is not None
    memory = entry.loaded.memory
    entry.leaving.append(memory)
    with pytest.raises(StoreFailed, match="does not end"):
        await caches.forget("uid")
    entry.leaving.remove(memory)
    await caches.forget("uid")
