"""R9: what the server's own Python costs: processor time of the event loop for each streamed token and each request.

The model is scripted, so what is left is the server. Times are those of the event loop's thread, and of all threads, as
Linux counts them: a busy machine makes them somewhat longer, but waits are no part of them. A token's is the slope
between short and long answers to so many streams, from a model that is never waited for, and from one whose steps are
so many milliseconds apart; a request's is of unstreamed answers of one token, kept in the store. The load comes from a
process of its own.

    python bench/event_loop.py [--before CHECKOUT] [--streams 16] [--requests 2000] [--rounds 3] [--step-ms 4]
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness.results import Measure, arguments
from harness.servers import ROOT, tenuto

SHORT, LONG = 40, 440
GOAL_TOKEN_US, GOAL_REQUESTS_S = 30.0, 1500.0


@dataclass(frozen=True)
class Server:
    """`tenuto serve` of a checkout with a scripted model, and the processor time that it has taken."""

    url: str
    process: int

    def loop_s(self) -> float:
        """The processor time of the event loop's thread, which is the main one."""
        return _thread_s(self.process, str(self.process))

    def all_s(self) -> float:
        """The processor time of all threads that are there."""
        return sum(_thread_s(self.process, each.name) for each in Path(f"/proc/{self.process}/task").iterdir())


@contextmanager
def served(checkout: Path, folder: Path, step_ms: float) -> Iterator[Server]:
    texts = {"short": "x" * SHORT, "long": "x" * LONG}
    paced = [{"user_contains": f"paced {said}", "text": text, "delay_ms": step_ms} for said, text in texts.items()]
    rules = [*paced, *({"user_contains": said, "text": text} for said, text in (*texts.items(), ("", "y")))]
    (script := folder / "script.json").write_text(json.dumps({"rules": rules}))
    flags = ("--default-tools", "none", "--slots", "16")
    with tenuto(f"scripted:{script}", *flags, folder=folder, checkout=checkout) as server:
        yield Server(server.url, server.process)


def _thread_s(process: int, thread: str) -> float:
    return int(Path(f"/proc/{process}/task/{thread}/schedstat").read_text().split()[0]) / 1e9


@dataclass(frozen=True)
class Cost:
    """What one load took, in seconds."""

    loop_s: float
    all_s: float
    wall_s: float
    client_s: float


def cost(server: Server, said: str, requests: int, at_once: int, *, stream: bool) -> Cost:
    """Let a process of its own ask, and tell what that cost."""
    load = [sys.executable, __file__, "--load", server.url, said, str(requests), str(at_once), str(int(stream))]
    loop_s, all_s, began = server.loop_s(), server.all_s(), time.perf_counter()
    client_s = float(subprocess.run(load, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return Cost(server.loop_s() - loop_s, server.all_s() - all_s, time.perf_counter() - began, client_s)


async def ask(url: str, said: str, requests: int, at_once: int, *, stream: bool) -> None:
    """The load: so many requests over so many connections."""
    address = urlsplit(url)
    sent = {"messages": [{"role": "user", "content": said}], "stream": stream, "max_tokens": 2 * LONG}
    body = json.dumps(sent).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    left = iter(range(requests))

    async def go_on() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)
        for _ in left:
            writer.write(request)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not answer.startswith(b"http/1.1 200"):
                raise SystemExit(f"the server answered {answer!r}")
            if stream:
                await reader.readuntil(b"\r\n0\r\n\r\n")
            else:
                await reader.readexactly(int(answer.partition(b"content-length:")[2].split(b"\r\n")[0]))
        writer.close()

    await asyncio.gather(*(go_on() for _ in range(at_once)))


def measured(server: Server, streams: int, requests: int) -> dict[str, float]:
    """One round of figures."""
    one = cost(server, "one", requests, streams, stream=False)
    short, long = (cost(server, said, 4 * streams, streams, stream=True) for said in ("short", "long"))
    slow_short, slow_long = (cost(server, f"paced {said}", streams, streams, stream=True) for said in ("short", "long"))
    tokens = streams * (LONG - SHORT)
    return {
        "event loop us / token": 1e6 * (long.loop_s - short.loop_s) / (4 * tokens),
        "all threads us / token": 1e6 * (long.all_s - short.all_s) / (4 * tokens),
        "event loop us / paced token": 1e6 * (slow_long.loop_s - slow_short.loop_s) / tokens,
        "event loop us / request": 1e6 * one.loop_s / requests,
        "all threads us / request": 1e6 * one.all_s / requests,
        "requests / s": requests / one.wall_s,
        "load's share of a core": one.client_s / one.wall_s,
    }


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--before", type=Path, help="another checkout, measured in turn")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step-ms", type=float, default=4.0)
    parser.add_argument("--load", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        url, said, requests, at_once, stream = given.load
        asyncio.run(ask(url, said, int(requests), int(at_once), stream=stream == "1"))
        print(time.process_time())
        return 0
    if given.quick:
        given.requests, given.rounds = 500, 1
    measure = Measure("R9", "what the server's own Python costs, with a scripted model", given.quick)
    checkouts = {"now": ROOT} | ({} if given.before is None else {"before": given.before.resolve()})
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in checkouts}
    for _ in range(given.rounds):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as folder, served(checkout, Path(folder), given.step_ms) as server:
                for said in ("one", "short"):
                    cost(server, said, 20 * given.streams, given.streams, stream=said == "short")  # warm
                for what, value in measured(server, given.streams, given.requests).items():
                    found[name][what].append(value)
    for what in found["now"]:
        measure.row(what=what, **{name: statistics.median(found[name][what]) for name in checkouts})
    token, paced, second = (
        statistics.median(found["now"][what])
        for what in ("event loop us / token", "event loop us / paced token", "requests / s")
    )
    measure.figure("event loop, a token", token, "us", at_most=GOAL_TOKEN_US)
    measure.figure("event loop, a paced token", paced, "us", at_most=GOAL_TOKEN_US)
    measure.figure("requests a second", second, at_least=GOAL_REQUESTS_S)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
