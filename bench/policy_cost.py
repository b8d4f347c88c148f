"""What choosing which cache gives way costs: time of the policy / time of the steps, with more sequences than slots.

Sequences of the embedded model take turns with short pauses, so that nearly every round needs the slot of another. The
policy: who gives way and where to, on the device and in host memory, hints, and what is due to come back. All of
admission is told beside it, and the copies, which save the steps that computing again would take. Times are processor
time of the engine's thread, which a busy machine changes little.
Usage: python bench/policy_cost.py [--sequences 32] [--slots 16]
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.runtime.engine.counts import Family, families
from tenuto.runtime.engine.engine import Engine, EngineSettings
from tenuto.runtime.engine.messages import Report, Round
from tenuto.runtime.engine.worker import Worker
from tenuto.runtime.loop.engine_client import EngineClient

GOAL = 0.01
TURNS, PROMPT, NEW, TOKENS, CELLS = 12, 300, 20, 24, 2048
MOVES = ("snapshot", "restore", "fork", "release", "truncate")


class Clocks:
    """Seconds of its thread's processor time that methods take, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Count what a method takes."""
        work: Callable[..., Any] = getattr(owner, method)
        self.seconds.setdefault(name, 0.0)

        def timed(*args: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return work(*args, **named)
            finally:
                self.seconds[name] += time.thread_time() - began

        setattr(owner, method, timed)


class Watched(Engine):
    """An engine whose parts are timed."""

    def __init__(self, pipeline: Pipeline, settings: EngineSettings, clocks: Clocks) -> None:
        super().__init__(pipeline, settings)
        self._clocks = clocks
        for method in MOVES:
            clocks.watch(pipeline.backend, method, "moves")

    def _make_worker(self, report: Callable[[Report], None]) -> Any:
        worker = super()._make_worker(report)
        assert isinstance(worker, Worker)
        watch, residency = self._clocks.watch, worker._residency
        watch(worker, "_admit", "admission")
        watch(worker._returning, "bring_back", "returns")
        watch(worker._returning, "_copy_back", "copies back")
        watch(worker, "_expect", "hints")
        watch(residency._policy, "from_device", "victims")
        watch(residency._host._shares, "_order", "host memory")
        watch(worker._stepper, "step", "steps")
        return worker


async def session(client: EngineClient, number: int, dice: random.Random) -> None:
    """One sequence: a prompt, then turns after short pauses that are hinted."""
    tokens = [1000 + number, *(dice.randrange(300, 3000) for _ in range(PROMPT))]
    for _ in range(TURNS):
        held_to = Round(TOKENS, Sampling(), frozenset())
        async for event in client.submit(f"s{number}", tokens, held_to, principal="bench"):
            tokens += getattr(event, "tokens", ())
        pause_s = dice.choice([0.0, 0.01, 0.1])
        client.expect(f"s{number}", pause_s, pause_s / 10)
        await asyncio.sleep(pause_s)
        tokens += [dice.randrange(300, 3000) for _ in range(NEW)]


async def measure(sequences: int, slots: int, host: int) -> bool:
    """Print the figures of one run; whether the goal is reached."""
    clocks, dice = Clocks(), random.Random(1)
    pipeline = load("embedded", LoadSettings(slots=slots, cells=CELLS, threads=2))
    client = EngineClient("bench", slots, Watched(pipeline, EngineSettings(host_cache_bytes=host), clocks))
    await asyncio.gather(*(session(client, number, dice) for number in range(sequences)))
    status, spent = client.status, clocks.seconds
    await client.stop()
    moves = {name: count for name, count in families(status.counts)[Family.MOVES].items() if count}
    policy = sum(spent[name] for name in ("victims", "host memory", "hints", "returns")) - spent["copies back"]
    admission = spent["admission"] + spent["copies back"] - spent["moves"]
    share = policy / spent["steps"]
    print(f"{sequences} sequences, {slots} slots, {host >> 20} MiB of host memory: {status.steps} steps, moves {moves}")
    print(
        f"  steps {spent['steps']:.2f} s, moves {spent['moves']:.2f} s ({spent['moves'] / spent['steps']:.2%} of them)"
    )
    print(
        f"  policy {policy * 1e3:.1f} ms: {share:.3%} of the steps' time, {policy / status.steps * 1e6:.0f} us a step"
    )
    print(f"  all of admission but the copies {admission * 1e3:.1f} ms: {admission / spent['steps']:.3%}")
    return share < GOAL


def main() -> None:
    """Run it with room for all in host memory, and with room for few."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--slots", type=int, default=16)
    given = parser.parse_args()
    reached = [asyncio.run(measure(given.sequences, given.slots, host)) for host in (1 << 30, 1 << 24)]
    raise SystemExit(None if all(reached) else f"the policy takes more than {GOAL:.0%} of the steps' time")


if __name__ == "__main__":
    main()
