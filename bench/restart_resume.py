"""R4: the first token of a session's next turn after the server was killed and started again / without its cache.

Each round: a server with a session of so many tokens, whose cache it has written, is killed (kill -9) and started
again, and the session's next turn is streamed; then the same from a copy of the data folder that lacks the caches, and
whose turn is computed from the beginning. A turn of another session comes before, so that neither is the first of its
server. llama-server has no session to come back to: it does as the second.

    python bench/restart_resume.py [--models embedded 135m 0.5b] [--tokens 1000 4000] [--runs 3] [--quick]
"""

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.asking import Answer, ask, stream, text_of, user
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import tenuto

GOAL = 0.1
MOST = {"embedded": 3500}
WAIT_S = 120.0
ROOM = 512
FEW: dict[str, Any] = {"max_tokens": 8, "temperature": 0}


def wait_for_caches(data: Path) -> None:
    """Until they lie on the disk, and none was written for a second."""
    deadline = time.monotonic() + WAIT_S
    while (
        not (kept := list((data / "caches").glob("*/*.kv")))
        or time.time() - max(path.stat().st_mtime for path in kept) < 1
    ):
        if time.monotonic() > deadline:
            raise SystemExit("the cache is not written")
        time.sleep(0.1)


def next_turn(url: str) -> Answer:
    """Of the session, behind one of another."""
    ask(url, {**FEW, "session_id": "other", "messages": [user("Are you there?")]})
    return asyncio.run(stream(url, {**FEW, "session_id": "r4", "messages": [user("And then?")]}))


def once(model: str, tokens: int) -> tuple[float, float, int, str]:
    """The first token with the cache and without, how many tokens the conversation had, and where its cache was."""
    cells = min(tokens + ROOM, 4096) if model in MOST else tokens + ROOM
    flags = ("--default-tools", "none", "--slots", "2", "--context", str(cells))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tenuto(model_file(model), *flags, folder=folder / "kept") as server:
            text = text_of(server.url, tokens, beginning="A story. ")
            count = ask(server.url, {**FEW, "session_id": "r4", "messages": [user(text)]})["usage"]["total_tokens"]
            wait_for_caches(folder / "kept/data")
        lacking = shutil.ignore_patterns("caches")
        shutil.copytree(folder / "kept/data", folder / "without/data", ignore=lacking)
        answers = []
        for kind in ("kept", "without"):
            with tenuto(model_file(model), *flags, folder=folder / kind) as server:
                answers.append(next_turn(server.url))
    warm, cold = answers
    return warm.first_s, cold.first_s, count, warm.usage["tenuto"]["residency"]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--models", choices=MODELS, nargs="+", default=["embedded", "135m", "0.5b"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    if given.quick:
        given.tokens, given.runs = [min(given.tokens[0], 1000)], 1
    measure = Measure("R4", "the first token after kill -9 and a start / without the cache", given.quick)
    for model in given.models:
        for tokens in given.tokens:
            runs = [once(model, min(tokens, MOST.get(model, tokens))) for _ in range(given.runs)]
            warm, cold = statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)
            count, residency = runs[0][2:]
            measure.row(model=model, tokens=count, residency=residency, kept_ms=1000 * warm, without_ms=1000 * cold)
            measure.figure(f"{model}, {tokens} tokens: from disk / computed", warm / cold, at_most=GOAL)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
