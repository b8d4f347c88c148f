"""Decode speed of the engine, driven without HTTP, against llama-batched-bench: same model, threads and layout.

The peer samples nothing; what our choice of tokens costs is shown by bench/backend_speed.py. Counted are the tokens of
the steps in which all sequences decode, from the first token that the last of them gets to the last token; the event
loop is the server's, uvloop. `paired` is the median of the repetitions' ratios, `of best`
compares each side's best repetition: both are less disturbed by a busy neighbour than the ratio of medians.
Build the peer with bench/peers.sh. Usage: python bench/engine_speed.py [MODEL.gguf] [--threads 2]
"""

import argparse
import asyncio
import statistics
import time
from pathlib import Path

import uvloop
from backend_speed import BATCH, CELLS, PROMPT, TOKENS, peers
from random_model import random_model

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import Round, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient


async def ours(engine: EngineClient, count: int) -> float:
    """Tokens a second of so many sequences that decode together."""
    limits = Round(TOKENS + 1, Sampling(), frozenset())
    times: list[list[float]] = [[] for _ in range(count)]

    async def follow(number: int) -> None:
        prompt = range(1000 + number, 1000 + number + PROMPT)
        async for event in engine.submit(f"s{number}", prompt, limits, principal="bench"):
            if isinstance(event, TokensSampled):
                times[number].extend([time.perf_counter()] * len(event.tokens))

    await asyncio.gather(*(follow(number) for number in range(count)))
    for number in range(count):
        engine.release(f"s{number}")
    begin = max(stamps[0] for stamps in times)
    end = min(stamps[-1] for stamps in times)
    tokens = sum(begin < stamp <= end for stamps in times for stamp in stamps)
    return tokens / (end - begin)


async def compare(pipeline: Pipeline, model: Path, counts: list[int], threads: int, repeat: int) -> None:
    engine = EngineClient("bench", pipeline.backend.info.slots, Engine(pipeline))
    peer: dict[int, list[float]] = {count: [] for count in counts}
    own: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(repeat):
        for count, speed in (await asyncio.to_thread(peers, model, counts, threads)).items():
            peer[count].append(speed)
        for count in counts:
            own[count].append(await ours(engine, count))
    await engine.stop()
    print(f"{model.name}, {threads} threads, medians of {repeat}; tokens/s of all sequences together")
    print(
        f"{'sequences':>9}{'peer':>10}{'engine':>10}{'ratio':>8}{'paired':>8}{'of best':>9}   ratios of each repetition"
    )
    for count in counts:
        theirs, mine = statistics.median(peer[count]), statistics.median(own[count])
        pairs = " ".join(f"{m / t:.3f}" for m, t in zip(own[count], peer[count], strict=True))
        best = max(own[count]) / max(peer[count])
        paired = statistics.median(m / t for m, t in zip(own[count], peer[count], strict=True))
        print(f"{count:>9}{theirs:>10.1f}{mine:>10.1f}{mine / theirs:>8.3f}{paired:>8.3f}{best:>9.3f}   {pairs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 16])
    given = parser.parse_args()
    path = given.model or random_model()
    settings = LoadSettings(
        slots=max(given.sequences), cells=CELLS, threads=given.threads, batch_tokens=BATCH, cache_bytes=1 << 34
    )
    uvloop.run(compare(load(str(path), settings), path, given.sequences, given.threads, given.repeat))


if __name__ == "__main__":
    main()
