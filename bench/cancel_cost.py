"""R7: steps that are begun for a sequence after it was cancelled.

In the engine, driven without HTTP: model steps that begin after the cancel was told. Through the server: steps that its
own figures show after it has answered to POST /v1/runs/{id}/cancel, and after a client has gone away and a moment has
passed.

    python bench/cancel_cost.py [--model embedded] [--times 50] [--quick]
"""

import asyncio
import sys
import time
from dataclasses import replace
from typing import Any, cast

import httpx
import uvloop
from harness.asking import CHAT, user
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import figures, tenuto, total

from tenuto.pipelines.backend import Backend, Sampling
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import Round, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient

GOAL = 1
MOMENT_S = 0.5
SCHEMA = {"type": "object", "properties": {"it": {"type": "string", "minLength": 2000}}, "required": ["it"]}
FORM = {"type": "json_schema", "json_schema": {"name": "long", "schema": SCHEMA}}


class Watched:
    """A backend, and when each of its steps began."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.begun: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def launch(self, *given: Any, **named: Any) -> Any:
        self.begun.append(time.perf_counter())
        return self._backend.launch(*given, **named)


async def in_the_engine(model: str, times: int) -> list[int]:
    """Steps after each cancel."""
    pipeline = load(str(model_file(model)), LoadSettings(slots=2, cells=1024))
    watched = Watched(pipeline.backend)
    engine = EngineClient("bench", 2, Engine(replace(pipeline, backend=cast("Backend", watched))))
    found = []
    for number in range(times):
        told = heard = 0.0
        opened = engine.submit(
            "s", range(300 + number, 350 + number), Round(900, Sampling(), frozenset()), principal="p"
        )
        async for event in opened:
            heard += isinstance(event, TokensSampled)
            if heard > 5 + number % 7 and not told:
                opened.cancel()
                told = time.perf_counter()
        await asyncio.sleep(0.02)
        found.append(sum(at > told for at in watched.begun))
    await engine.stop()
    return found


def steps(url: str) -> float:
    return total(figures(url), "tenuto_steps_total")


def through_the_server(url: str, times: int) -> tuple[list[int], list[int]]:
    """Steps after each answered cancel, and after each client that has gone."""
    cancelled, gone = [], []
    body = {"messages": [user("Tell me all of it.")], "response_format": FORM, "max_tokens": 900, "stream": True}
    with httpx.Client(base_url=url, timeout=60) as client:
        for number in range(2 * times):
            with client.stream("POST", CHAT, json=body) as answer:
                answer.raise_for_status()
                for at, _ in enumerate(answer.iter_lines()):
                    if at == 12:
                        break
                if number % 2:
                    client.post(f"/v1/runs/{answer.headers['x-tenuto-run-id']}/cancel").raise_for_status()
                    before = steps(url)
                    time.sleep(MOMENT_S)
                    cancelled.append(int(steps(url) - before))
                    continue
            time.sleep(MOMENT_S)
            before = steps(url)
            time.sleep(MOMENT_S)
            gone.append(int(steps(url) - before))
    return cancelled, gone


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=MODELS, default="embedded")
    parser.add_argument("--times", type=int, default=50)
    given = parser.parse_args()
    times = 10 if given.quick else given.times
    measure = Measure("R7", "steps that are begun after a cancel", given.quick)
    found = uvloop.run(in_the_engine(given.model, times))
    with tenuto(model_file(given.model), "--default-tools", "none") as server:
        cancelled, gone = through_the_server(server.url, max(3, times // 5))
    for what, each in (("told to the engine", found), ("answered", cancelled), ("of a client that went", gone)):
        measure.row(cancel=what, times=len(each), steps=" ".join(map(str, each)))
        measure.figure(f"most steps after a cancel {what}", max(each), at_most=GOAL)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
