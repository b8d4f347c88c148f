"""R6, the engine: decode and prefill speed, driven without HTTP, / llama-batched-bench's of the same file and layout.

The peer samples nothing; what our choice of tokens costs is shown by bench/backend_speed.py. Decoding: the tokens of
the steps in which all sequences decode, from the first token that the last of them gets to the last token. Prefill:
as many prompts at once, until each has one token. The event loop is the server's, uvloop. Ratios are the medians of the
repetitions' own ratios, which a busy neighbour disturbs least. Build the peer with bench/peers.sh.

    python bench/engine_speed.py [--model 125m] [--sequences 1 4 8 16 32] [--repeat 3] [--quick]
"""

import asyncio
import statistics
import sys
import time
from pathlib import Path

import uvloop
from backend_speed import BATCH, CELLS, PROMPT, TOKENS, Peer, peers
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import cores, has_peer

from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.runtime.engine.engine import Engine
from tenuto.runtime.engine.messages import Round, TokensSampled
from tenuto.runtime.loop.engine_client import EngineClient

GOAL = 1.0


async def generate(engine: EngineClient, count: int, tokens: int, first: int) -> tuple[float, list[list[float]]]:
    """When so many sequences began, and when each got its tokens."""
    limits = Round(tokens, Sampling(), frozenset())
    times: list[list[float]] = [[] for _ in range(count)]

    async def follow(number: int) -> None:
        prompt = range(first + number, first + number + PROMPT)
        async for event in engine.submit(f"s{number}", prompt, limits, principal="bench"):
            if isinstance(event, TokensSampled):
                times[number].extend([time.perf_counter()] * len(event.tokens))

    began = time.perf_counter()
    await asyncio.gather(*(follow(number) for number in range(count)))
    for number in range(count):
        engine.release(f"s{number}")
    return began, times


async def ours(engine: EngineClient, count: int) -> Peer:
    """Tokens a second of so many sequences together."""
    began, times = await generate(engine, count, 1, 2000)
    prefill = count * PROMPT / (max(stamps[-1] for stamps in times) - began)
    _, times = await generate(engine, count, TOKENS + 1, 1000)
    begin, end = max(stamps[0] for stamps in times), min(stamps[-1] for stamps in times)
    tokens = sum(begin < stamp <= end for stamps in times for stamp in stamps)
    return Peer(prefill=prefill, decode=tokens / (end - begin))


async def compare(path: Path, measure: Measure, counts: list[int], threads: int, repeat: int) -> None:
    settings = LoadSettings(slots=max(counts), cells=CELLS, threads=threads, batch_tokens=BATCH, cache_bytes=1 << 34)
    engine = EngineClient("bench", max(counts), Engine(load(str(path), settings)))
    own: dict[int, list[Peer]] = {count: [] for count in counts}
    theirs: dict[int, list[Peer]] = {count: [] for count in counts}
    is_compared = has_peer("llama-batched-bench")
    for _ in range(repeat):
        for count in counts:
            if is_compared:
                found = await asyncio.to_thread(peers, path, [count], threads, max(counts))
                theirs[count].append(found[count])
            own[count].append(await ours(engine, count))
    await engine.stop()
    for count in counts:
        for what in ("decode", "prefill"):
            mine, others = ([getattr(each, what) for each in speeds] for speeds in (own[count], theirs[count]))
            measure.row(
                what=what,
                sequences=count,
                engine=statistics.median(mine),
                peer=statistics.median(others) if others else 0.0,
                pairs=" ".join(f"{one / other:.3f}" for one, other in zip(mine, others, strict=False)),
            )
            if others:
                ratio = statistics.median(one / other for one, other in zip(mine, others, strict=True))
                measure.figure(f"{what}, sequences: {count}: engine / llama-batched-bench", ratio, at_least=GOAL)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=MODELS, default="125m")
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    given = parser.parse_args()
    if given.quick:
        given.sequences, given.repeat = [1, 8, 16], 1
    measure = Measure("R6", f"the engine's speed / llama-batched-bench's, {given.model}", given.quick)
    uvloop.run(compare(model_file(given.model), measure, given.sequences, given.threads, given.repeat))
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
