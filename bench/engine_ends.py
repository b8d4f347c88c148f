"""R11: the engine's process is killed in the middle of sixteen answers. How long is the pause, and does any fail?

The pause of a stream is the longest time between two of its pieces around the kill. It is told with what a load of the
model takes alone, which is part of it.

    python bench/engine_ends.py [--model embedded] [--streams 16] [--kills 5] [--quick]
"""

import asyncio
import json
import os
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import tenuto

from tenuto.pipelines.load_settings import LoadSettings
from tenuto.runtime.engine.own_process import EngineProcess, Order

GOAL_S = 3.0
TOKENS = 400
WAIT_S = 600.0
CHILD = b"tenuto.runtime.engine.own_process.child"


@dataclass
class Stream:
    """An answer, and when its pieces came."""

    number: int
    pieces: list[float] = field(default_factory=list)
    error: str = ""

    async def read(self, client: httpx.AsyncClient) -> None:
        said = f"Tell me a long story about the number {self.number} and {self.number + 1} ducks."
        # Held to as many characters, so that every model goes on for as long.
        form = {"type": "json_schema", "json_schema": {"name": "story", "schema": SCHEMA, "strict": True}}
        body = {"messages": [{"role": "user", "content": said}], "max_tokens": TOKENS, "stream": True}
        try:
            async with client.stream("POST", "/v1/chat/completions", json={**body, "response_format": form}) as answer:
                answer.raise_for_status()
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        told = json.loads(line.removeprefix("data: "))
                        if "error" in told:
                            self.error = str(told["error"])
                        self.pieces.append(time.perf_counter())
        except httpx.HTTPError as error:
            self.error = f"{type(error).__name__}: {error}"

    def pause(self, at: float) -> float:
        """The time from the last piece before a moment to the next one after it that came later than the restart."""
        before = [piece for piece in self.pieces if piece <= at]
        after = [piece for piece in self.pieces if piece > at]
        gaps = [late - early for early, late in zip([*before[-1:], *after], after, strict=False)]
        return max(gaps, default=0.0)


SCHEMA = {
    "type": "object",
    "properties": {"story": {"type": "string", "minLength": 2 * TOKENS}},
    "required": ["story"],
    "additionalProperties": False,
}


def engine_of(server: int) -> int:
    """The process of the one engine of a server."""
    children = (Path(f"/proc/{server}/task") / "").glob("*/children")
    found = [int(id) for each in children for id in each.read_text().split()]
    [engine] = [id for id in found if CHILD in Path(f"/proc/{id}/cmdline").read_bytes()]
    return engine


async def load_s(model: str) -> float:
    """What it takes to start a process that loads the model."""
    began = time.perf_counter()
    engine = await EngineProcess.open(Order(model, LoadSettings(), WAIT_S))
    took = time.perf_counter() - began
    await engine.stop(1.0)
    return took


async def kill_once(url: str, server: int, streams: int) -> tuple[list[float], list[str]]:
    """The pauses of the streams that were being read, and what errors there were."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_S, limits=limits) as client:
        all_streams = [Stream(number) for number in range(streams)]
        reads = [asyncio.create_task(one.read(client)) for one in all_streams]
        while sum(len(one.pieces) > 3 for one in all_streams) < min(streams, 8):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        at = time.perf_counter()
        os.kill(engine_of(server), signal.SIGABRT)
        await asyncio.gather(*reads)
    begun = [one for one in all_streams if one.pieces and one.pieces[0] <= at]
    return [one.pause(at) for one in begun], [one.error for one in all_streams if one.error]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=MODELS, default="embedded")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    kills = 2 if given.quick else given.kills
    measure = Measure("R11", f"SIGABRT to the engine under {given.streams} streams", given.quick)
    model = str(model_file(given.model))
    load = statistics.median(asyncio.run(load_s(model)) for _ in range(3))
    longest, failed = [], 0
    with tenuto(model, "--default-tools", "none", "--slots", str(given.streams)) as server:
        for kill in range(kills):
            pauses, errors = asyncio.run(kill_once(server.url, server.process, given.streams))
            failed += len(errors)
            longest.append(max(pauses))
            measure.row(kill=kill + 1, streams=len(pauses), longest_s=max(pauses), failed=len(errors))
            for error in errors[:2]:
                measure.note(error)
    measure.figure("a load alone", load, "s")
    measure.figure("streams that failed", failed, at_most=0)
    measure.figure("longest pause over the load", max(longest) - load, "s", at_most=GOAL_S)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
