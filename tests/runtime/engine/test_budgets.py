"""Five hundred sessions in any order: no budget of bytes is ever exceeded, and all of them come back."""

import asyncio
import json
import random
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from tenuto.pipelines.backend import Row, Snapshot
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.scripted import TEMPLATE, ScriptedBackend, ScriptedTokenizer, read_script
from tenuto.runtime.engine.counts import Family, Move, families
from tenuto.runtime.engine.engine import DiskSettings, Engine, EngineSettings
from tenuto.runtime.engine.messages import Failed, Report, Residency, Stopped, TokensSampled
from tenuto.runtime.engine.snapshots import Limits
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.sessions.items import UserItem
from tests.patience import HANGS_S
from tests.runtime.engine.rig import round_of

SESSIONS, AT_ONCE = 500, 24
SLOTS, CELLS, BYTES = 4, 1024, 4
HOST, DISK, QUEUE = 9_000, 30_000, 6_000
TOKEN_S = 0.0001
"""What a token of a prompt takes: slow enough that what is long is worth a file."""


class Slow(ScriptedBackend):
    """Takes its time, and knows which buffers that it gave out are alive."""

    def __init__(self, path: Path) -> None:
        super().__init__(read_script(path))
        self.alive: dict[int, int] = {}
        self.peak = 0

    def launch(self, rows: Sequence[Row]) -> Any:
        time.sleep(TOKEN_S * sum(len(row.tokens) for row in rows))
        return super().launch(rows)

    def snapshot(self, slot: int) -> Snapshot:
        snapshot = super().snapshot(slot)
        data = snapshot.data.copy()
        self.alive[id(data)] = data.nbytes
        weakref.finalize(data, self.alive.pop, id(data))
        self.peak = max(self.peak, sum(list(self.alive.values())))
        return Snapshot(snapshot.tokens, snapshot.nbytes, data)


class Watched(Engine):
    """Shows each report to a test before anybody else hears it."""

    look: Callable[[Report], None]

    def begin(self, heard: Callable[[Report], None], *others: Callable[[], None]) -> None:
        def looked(report: Report) -> None:
            self.look(report)
            heard(report)

        super().begin(looked, *others)


class Crowd:
    """Clients of one engine, and what was seen of its bytes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.folder = folder / "caches"
        path = folder / "script.json"
        path.write_text(json.dumps({"rules": [], "slots": SLOTS, "cells": CELLS, "batch_tokens": 512}))
        self.backend = Slow(path)
        self.codec = TemplateCodec("scripted", ScriptedTokenizer(), TEMPLATE)
        limits = Limits(DISK, QUEUE, 3600.0, spare_bytes=0)
        settings = EngineSettings(host_cache_bytes=HOST, disk=DiskSettings(self.folder, limits))
        engine = Watched(Pipeline(self.codec, self.backend, cache_identity="scripted"), settings)
        engine.look = self.look
        self.worst: dict[Residency, int] = {}
        self.reports = 0
        self.rounds = 0
        self.client = EngineClient("it", SLOTS, engine)

    def look(self, report: Report) -> None:
        for place, nbytes in report.status.cache_bytes.items():
            self.worst[place] = max(self.worst.get(place, 0), nbytes)
        self.reports += 1
        if self.reports % 25 == 0:
            self.worst[Residency.NONE] = max(self.worst.get(Residency.NONE, 0), self.on_disk())

    def on_disk(self) -> int:
        """What the files really take, those in the making among them."""
        total = 0
        for path in self.folder.glob("*/*"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
        return total

    async def session(self, name: str) -> None:
        """One session: turns, pauses that are hinted or not, rightly or wrongly, and some end."""
        dice, principal = self.dice, self.dice.choice(["alice", "alice", "bob"])
        stored = dice.random() < 0.7
        tokens = self.prompt(f"{name} says: " + "more words " * dice.choice([1, 1, 3, 30]))
        for _ in range(dice.randint(1, 3)):
            opened = self.client.submit(
                name, tokens, round_of(max_tokens=4), principal=principal, kept_as=name if stored else ""
            )
            if dice.random() < 0.1:
                opened.cancel()
            async for event in opened:
                match event:
                    case TokensSampled():
                        tokens = [*tokens, *event.tokens]
                    case Failed():
                        raise AssertionError(event)
                    case Stopped():
                        self.rounds += 1
            if dice.random() < 0.7:
                self.client.expect(name, dice.choice([0.0, 0.0, 0.02, 5.0, 3600.0]), dice.choice([0.0, 1.0]))
            await asyncio.sleep(dice.choice([0.0, 0.0, 0.01, 0.05]))
            tokens = [*tokens, *self.prompt("go on")]
        match dice.choice(["release", "forget", "forget", "stay"]):
            case "release":
                self.client.release(name)
            case "forget":
                await self.client.forget(name, name if stored else "")

    def prompt(self, text: str) -> list[int]:
        rendered = self.codec.suffix([], [UserItem(text)], [], ended=True)
        return [*(token for item in rendered.items for token in item), *rendered.opening]

    async def all(self) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with places:
                await self.session(f"s{number}")

        async with asyncio.TaskGroup() as group:
            for number in range(SESSIONS):
                group.create_task(one(number))
        for number in range(SESSIONS):
            await self.client.forget(f"s{number}", f"s{number}")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_budgets_hold_under_five_hundred_sessions_and_all_bytes_come_back(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, 18)
    try:
        with anyio.fail_after(4 * HANGS_S):
            await crowd.all()
        status = crowd.client.status
        counted = families(status.counts)
        assert crowd.rounds >= SESSIONS
        assert crowd.worst[Residency.DEVICE] <= SLOTS * CELLS * BYTES
        assert HOST / 2 < crowd.worst[Residency.HOST] <= HOST
        assert 0 < crowd.worst[Residency.DISK] <= DISK
        assert crowd.worst[Residency.NONE] <= DISK, "as the files say"
        assert crowd.backend.peak <= HOST + QUEUE + BYTES * CELLS, "what is alive, with what is just being copied"
        assert all(counted[Family.MOVES][move] for move in (Move.DEVICE_HOST, Move.HOST_DEVICE, Move.DROPPED)), counted
        assert counted[Family.SNAPSHOTS]["kept"] > 10
        assert counted[Family.SAVED_TOKENS]["host"] > 0
        assert set(status.cache_bytes.values()) == {0}
        assert set(status.sequences.values()) == {0}
        assert crowd.on_disk() == 0
    finally:
        await crowd.client.stop()
    assert sum(crowd.backend.alive.values()) == 0
