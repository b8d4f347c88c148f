"""R5: decode speed of the others while sequences are paused, moved or resumed, and while long prompts are fed / none.

Some sequences decode all the time, and for some seconds each nothing else happens (none), others resume after 16 new
tokens and pause again after 8 sampled ones, each in its slot (resumes) or all of them in one slot, so that every resume
moves two caches (moves), or cold prompts are fed one after the other (prompts). These are interleaved. Resumes and
prompts are computed beside the others, so that their steps take longer: `--slowdown` bounds that, and `--unbounded` is
without a bound, as it was before. `fed` is what is computed of prompts in a second meanwhile.

    python bench/prefill_slowdown.py [MODEL.gguf] [--bystanders 4] [--slowdown 2] [--seconds 4] [--threads 2]
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from random_model import random_model

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Round, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient

CELLS, LONG, RESUMED, SAID = 2048, 1024, 16, 8
RESUMING = 4


@dataclass
class Engines:
    """An engine of one kind, and what was measured with it."""

    name: str
    engine: EngineClient
    speeds: dict[str, list[float]] = field(default_factory=dict)
    fed: dict[str, list[float]] = field(default_factory=dict)


async def said(engine: EngineClient, name: str, tokens: list[int], most: int) -> None:
    """Let a sequence read its tokens and say so many; `tokens` are all that it has seen afterwards."""
    limits = Round(most, Sampling(), frozenset())
    async for event in engine.submit(name, list(tokens), limits, principal="bench"):
        if isinstance(event, TokensSampled):
            tokens += event.tokens


async def prompts(engine: EngineClient) -> None:
    number = 0
    while True:
        number += 1
        await said(engine, "cold", [100 + (number * 7919 + at * 31) % 1000 for at in range(LONG)], 1)
        engine.release("cold")


async def resumes(engine: EngineClient, at_once: int) -> None:
    """Sequences that resume and pause, so many of them at a time."""
    turn = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        tokens = [100 + number * 100 + at for at in range(LONG // 4)]
        while True:
            async with turn:
                await said(engine, f"r{number}", tokens, SAID)
            tokens += [500 + number] * RESUMED
            if len(tokens) > CELLS - 100:
                engine.release(f"r{number}")
                del tokens[LONG // 4 :]

    await asyncio.gather(*(one(number) for number in range(RESUMING)))


async def measure(kind: Engines, what: str, beside: Callable[[], Awaitable[None]], count: int, seconds: float) -> None:
    """The tokens a second of so many sequences that decode, with something beside them."""
    engine, sampled = kind.engine, [0] * count

    async def decode(number: int) -> None:
        limits = Round(CELLS - 100, Sampling(), frozenset())
        async for event in engine.submit(f"d{number}", range(200 + number, 216 + number), limits, principal="bench"):
            if isinstance(event, TokensSampled):
                sampled[number] += len(event.tokens)

    decoding = [asyncio.create_task(decode(number)) for number in range(count)]
    while not all(sampled):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    other = asyncio.ensure_future(beside())
    await asyncio.sleep(0.2 * seconds)
    before, computed, began = sum(sampled), engine.status.computed, time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    assert not any(task.done() for task in decoding), "they decode all the time; take fewer seconds"
    kind.speeds.setdefault(what, []).append((sum(sampled) - before) / took)
    kind.fed.setdefault(what, []).append((engine.status.computed - computed) / took)
    other.cancel()
    for task in decoding:
        task.cancel()
    await asyncio.gather(other, *decoding, return_exceptions=True)
    for name in ("cold", *(f"r{number}" for number in range(RESUMING)), *(f"d{number}" for number in range(count))):
        engine.release(name)
    while engine.status.busy or any(engine.status.sequences.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def run(given: argparse.Namespace, path: Path) -> None:
    def begin(name: str, slots: int, slowdown: float | None) -> Engines:
        settings = LoadSettings(slots=slots, cells=CELLS, threads=given.threads, cache_bytes=1 << 34, drafts=0)
        limits = EngineSettings(prefill_slowdown=slowdown)
        return Engines(name, EngineClient(name, slots, Engine(load(str(path), settings), limits)))

    kinds = [("bounded", given.slowdown), ("unbounded", None)][: 2 if given.unbounded else 1]
    roomy = [begin(name, given.bystanders + RESUMING, slowdown) for name, slowdown in kinds]
    tight = [begin(name, given.bystanders + 1, slowdown) for name, slowdown in kinds]
    everything: list[tuple[str, list[Engines], Callable[[EngineClient], Awaitable[None]]]] = [
        ("none", roomy, lambda _: asyncio.sleep(0)),
        ("resumes", roomy, lambda engine: resumes(engine, RESUMING)),
        ("prompts", roomy, prompts),
        ("none, one slot more", tight, lambda _: asyncio.sleep(0)),
        ("moves", tight, lambda engine: resumes(engine, 1)),
    ]
    for _ in range(given.repeat):
        for what, engines, beside in everything:
            for kind in engines:
                await measure(kind, what, lambda: beside(kind.engine), given.bystanders, given.seconds)  # noqa: B023
    print(f"{path.name}, {given.threads} threads, {given.bystanders} decode; medians of {given.repeat}")
    print(f"{'':12}{'beside':22}{'tokens/s':>9}{'/ none':>8}{'fed/s':>9}{'slowdown of a step':>20}")
    for what, engines, _ in everything:
        for kind in engines:
            none = kind.speeds["none" if engines is roomy else "none, one slot more"]
            ratio = statistics.median(one / alone for one, alone in zip(kind.speeds[what], none, strict=True))
            speed, fed = statistics.median(kind.speeds[what]), statistics.median(kind.fed[what])
            slower = f"{kind.engine.status.prefill_slowdown:.2f}" if what in ("prompts", "moves") else ""
            print(f"{kind.name:12}{what:22}{speed:9.1f}{ratio:8.2f}{fed:9.0f}{slower:>20}")
    for kind in (*roomy, *tight):
        await kind.engine.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--bystanders", type=int, default=4)
    parser.add_argument("--slowdown", type=float, default=2.0)
    parser.add_argument("--unbounded", action="store_true", help="also without a bound")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    uvloop.run(run(given, given.model or random_model()))


if __name__ == "__main__":
    main()
