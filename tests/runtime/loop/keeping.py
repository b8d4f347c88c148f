"""Owners of models for tests: real ones on scripted models, whose loads can be held up and made to fail."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from tenuto.errors import ModelLoadFailed
from tenuto.runtime.config import Settings
from tenuto.runtime.loop.life.keeper import Keeper
from tenuto.runtime.loop.life.loading import Available, LifeSettings, Loaded, Prepared
from tenuto.runtime.loop.model import AnyModel
from tenuto.runtime.metrics import Metrics
from tenuto.runtime.model_loading import Loader

CELLS, SLOTS = 64, 2


def script(folder: Path, name: str, **settings: Any) -> str:
    """A small scripted model; what `--model` takes."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"rules": [], "cells": CELLS, "slots": SLOTS, **settings}))
    return f"scripted:{path}"


class GatedLoads:
    """The server's own loader, whose loads of some models wait until they are let go, or fail. `found` are those that
    have asked for room as soon as whoever waits for them goes on."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        given = {"data_dir": folder, "host_cache_bytes": 0, "model_memory": 1 << 40, **settings}
        self._loader = Loader(Settings(**given), Metrics(), 1)
        self.gates: dict[str, anyio.Event] = {}
        self.finding: dict[str, anyio.Event] = {}
        self.found: dict[str, anyio.Event] = {}
        self.began: dict[str, anyio.Event] = {}
        self.fails: set[str] = set()
        self.loads: list[str] = []

    async def prepare(self, available: Available, budget: int | None) -> Prepared:
        """As it is, once it may."""
        if available.id in self.finding:
            await self.finding[available.id].wait()
        prepared = await self._loader.prepare(available, budget)
        self.found.setdefault(available.id, anyio.Event()).set()
        return prepared

    async def load(self, prepared: Prepared, loaded: int) -> Loaded:
        """As it is, once it may."""
        id = prepared.available.id
        self.loads.append(id)
        self.began.setdefault(id, anyio.Event()).set()
        if id in self.gates:
            await self.gates[id].wait()
        if id in self.fails:
            raise ModelLoadFailed(f"{id} is broken")
        return await self._loader.load(prepared, loaded)


@asynccontextmanager
async def keeping(loads: GatedLoads, sources: Sequence[str], **settings: Any) -> AsyncIterator[Keeper]:
    """An owner of these models."""
    named = [Available(Path(one).stem, one) for one in sources]
    async with Keeper(loads, named, LifeSettings(**settings)) as keeper:
        yield keeper


async def size(folder: Path) -> int:
    """What one of the models of `script` takes."""
    prepared = await GatedLoads(folder).prepare(Available("size", script(folder, "size")), None)
    return prepared.nbytes


@asynccontextmanager
async def using(keeper: Keeper, id: str, principal: str = "alice") -> AsyncIterator[AnyModel]:
    """A model in use for the block."""
    model = await keeper.loaded_for(id, principal)
    try:
        yield model
    finally:
        model.uses.give_back()
