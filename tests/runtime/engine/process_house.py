"""An engine in a process of its own, with who uses it, and its rounds as they are read. For tests."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tenuto.pipelines.base import Codec
from tenuto.pipelines.load_settings import LoadSettings
from tenuto.pipelines.loader import load_codec
from tenuto.runtime.engine.engine import EngineSettings
from tenuto.runtime.engine.messages import Failed, RoundEvent, Stopped, TokensSampled
from tenuto.runtime.engine.own_process import EngineProcess, Order
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.sessions.items import UserItem
from tests.patience import HANGS_S
from tests.runtime.engine.rig import round_of

ECHO: list[dict[str, Any]] = [{"user_matches": "(?s)(?P<said>.*)", "text": "${said}"}]
LONG = "one two three four five six seven eight nine ten"


@dataclass
class Reading:
    """A round that is read, and what has come of it."""

    opened: OpenRound
    events: list[RoundEvent] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.events if isinstance(event, TokensSampled) for token in event.tokens]

    async def follow(self) -> Stopped | Failed:
        async for event in self.opened:
            self.events.append(event)
            self.moved.set()
        last = self.events[-1]
        assert isinstance(last, Stopped | Failed)
        return last

    async def has_said(self, tokens: int) -> None:
        with anyio.fail_after(HANGS_S):
            while len(self.tokens) < tokens:
                self.moved.clear()
                await self.moved.wait()


@dataclass
class House:
    """An engine in a process, and who uses it."""

    codec: Codec
    process: EngineProcess
    client: EngineClient

    def prompt(self, text: str) -> list[int]:
        rendered = self.codec.suffix([], [UserItem(text)], [], ended=True)
        return [*(token for item in rendered.items for token in item), *rendered.opening]

    def begin(self, name: str, text: str, **more: Any) -> Reading:
        round = round_of(max_tokens=more.pop("max_tokens", 1000))
        return Reading(self.client.submit(name, self.prompt(text), round, principal="alice", **more))

    def kill(self, how: signal.Signals = signal.SIGABRT) -> None:
        assert self.process.process_id is not None
        os.kill(self.process.process_id, how)

    async def has_begun_again(self, times: int = 1) -> None:
        with anyio.fail_after(HANGS_S):
            await until(lambda: self.client.health.restarts >= times and self.process.process_id is not None)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what no event tells."""
    while not holds():  # noqa: ASYNC110
        await anyio.sleep(0.005)


def script(path: Path, rules: Sequence[dict[str, Any]] = ECHO, **more: Any) -> str:
    path.write_text(json.dumps({"rules": rules, **more}))
    return f"scripted:{path}"


@asynccontextmanager
async def house(
    model: str, settings: LoadSettings | None = None, engine: EngineSettings | None = None
) -> AsyncIterator[House]:
    settings = settings or LoadSettings()
    codec = load_codec(model, settings)
    assert codec is not None
    process = await EngineProcess.open(Order(model, settings, HANGS_S))
    limited = process.limited(engine or EngineSettings(), codec.info.vocabulary)
    client = EngineClient("it", process.opened.backend.slots, limited)
    try:
        yield House(codec, process, client)
    finally:
        await client.stop()


def text_of(house: House, reading: Reading) -> str:
    return house.codec.detokenize([token for token in reading.tokens if token not in house.codec.info.stop_tokens])
