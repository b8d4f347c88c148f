"""R5: how fast sequences decode while others are paused beside them, moved, or resumed / with nothing beside them.

The engine is driven without HTTP. Some sequences decode for as long as it takes; beside them as many as there are
slots are paused with their caches; or twice as many, of which one that has lost its slot gets a token twice a second,
so that a cache moves out and another one in each time; or one that has its slot gets a token. Cases are interleaved.

    python bench/bystanders.py [--model 125m] [--running 4] [--paused 8] [--seconds 6] [--rounds 3] [--quick]
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import cores

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import Round, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient

GOAL = 0.98
PROMPT, LENGTH, CELLS = 64, 600, 1024
EVERY_S = 0.5
OWNER = "bench"


class Bench:
    """An engine, and the sequences that are paused beside those that run."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._lengths: dict[str, list[int]] = {}

    async def pause(self, count: int) -> None:
        """Let so many sequences be paused, and no others."""
        for name in list(self._lengths):
            self._engine.release(name)
            del self._lengths[name]
        for number in range(count):
            tokens = [300 + (number * 7919 + at * 31) % 20_000 for at in range(LENGTH)]
            self._lengths[f"paused-{number}"] = tokens
            await self.resume(number)

    async def resume(self, number: int) -> None:
        """Let a paused one get one more token."""
        name = f"paused-{number}"
        tokens = self._lengths[name]
        async for event in self._engine.submit(name, tokens, Round(1, Sampling(), frozenset()), principal=OWNER):
            if isinstance(event, TokensSampled):
                tokens = [*tokens, *event.tokens]
        self._lengths[name] = tokens

    async def speed(self, running: int, seconds: float, beside: Callable[[int], int] | None) -> float:
        """Tokens a second of those that run; `beside` says which is resumed in which place, if any is."""
        times: list[list[float]] = [[] for _ in range(running)]

        async def decode(number: int) -> None:
            prompt = range(1000 + number, 1000 + number + PROMPT)
            limits = Round(CELLS - PROMPT - 8, Sampling(), frozenset())
            async for event in self._engine.submit(f"runs-{number}", prompt, limits, principal=OWNER):
                if isinstance(event, TokensSampled):
                    times[number] += [time.perf_counter()] * len(event.tokens)

        tasks = [asyncio.create_task(decode(number)) for number in range(running)]
        while not all(times):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        begin = time.perf_counter()
        at = 0
        while (left := begin + seconds - time.perf_counter()) > 0:
            if beside is not None:
                await self.resume(beside(at))
                at += 1
            await asyncio.sleep(min(left, EVERY_S))
        end = time.perf_counter()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in range(running):
            self._engine.release(f"runs-{number}")
        return sum(begin < stamp <= end for stamps in times for stamp in stamps) / (end - begin)


async def compare(path: Path, measure: Measure, running: int, paused: int, seconds: float, rounds: int) -> None:
    settings = LoadSettings(slots=running + paused, cells=CELLS, threads=cores(), cache_bytes=1 << 34)
    engine = EngineClient("bench", running + paused, Engine(load(str(path), settings)))
    bench = Bench(engine)
    cases: dict[str, tuple[int, Callable[[int], int] | None]] = {
        "nothing": (0, None),
        "paused": (paused, None),
        "resumed": (paused, lambda at: at % paused),
        "moved": (2 * paused, lambda at: at % (2 * paused)),
    }
    speeds: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case, (count, beside) in cases.items():
            await bench.pause(count)
            speeds[case].append(await bench.speed(running, seconds, beside))
    await engine.stop()
    for case, found in speeds.items():
        ratio = statistics.median(one / alone for one, alone in zip(found, speeds["nothing"], strict=True))
        measure.row(beside=case, running=running, sequences=cases[case][0], tokens_s=statistics.median(found))
        if case != "nothing":
            measure.figure(f"decode speed beside {case} / nothing", ratio, at_least=GOAL)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=MODELS, default="125m")
    parser.add_argument("--running", type=int, default=4)
    parser.add_argument("--paused", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.rounds = 4.0, 1
    measure = Measure("R5", "decode speed while others are paused, moved or resumed / alone", given.quick)
    uvloop.run(compare(model_file(given.model), measure, given.running, given.paused, given.seconds, given.rounds))
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
