"""A burst of sub-agents: a session of so many tokens is forked, and all of its forks are asked at once.

llama-server, which knows no forks, gets as many requests at once that begin with the same history. What is told: until
the last has its first token, until the last answer ends, and how many tokens were computed for it.

    python bench/burst.py [--model 135m] [--tokens 2000] [--forks 8] [--runs 3] [--quick]
"""

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import httpx
from harness.asking import Answer, ask, stream, text_of, user
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import Running, has_peer, llama_server, tenuto

GOAL = 1.0
ASKED: dict[str, Any] = {"max_tokens": 32, "temperature": 0}
ROOM = 256


@dataclass(frozen=True)
class Burst:
    """Seconds to the last first token and to the end, and tokens that were computed."""

    first_s: float
    end_s: float
    computed: int


async def burst(url: str, bodies: list[dict[str, Any]]) -> list[Answer]:
    return await asyncio.gather(*(stream(url, body) for body in bodies))


def told(began: float, answers: list[Answer], computed: int) -> Burst:
    first = max(answer.pieces[0] for answer in answers) - began
    return Burst(first, max(answer.ended for answer in answers) - began, computed)


def task(number: int) -> dict[str, str]:
    return user(f"Task {number}: what happens to the ducks?")


def ours(server: Running, tokens: int, forks: int, run: int) -> Burst:
    """The forks are made within the time."""
    session, text = f"burst-{run}", text_of(server.url, tokens, beginning=f"Story {run}. ")
    ask(server.url, {**ASKED, "session_id": session, "messages": [user(text)]})
    began, bodies = time.perf_counter(), []
    for number in range(forks):
        made = httpx.post(f"{server.url}/v1/sessions/{session}/fork", json={}, timeout=60).raise_for_status().json()
        bodies.append({**ASKED, "session_id": made["id"], "messages": [task(number)]})
    answers = asyncio.run(burst(server.url, bodies))
    return told(began, answers, sum(answer.usage["tenuto"]["computed_tokens"] for answer in answers))


def theirs(server: Running, tokens: int, forks: int, run: int) -> Burst:
    text = text_of(server.url, tokens, beginning=f"Story {run}. ")
    said = ask(server.url, {**ASKED, "messages": [user(text)]})["choices"][0]["message"]["content"]
    history = [user(text), {"role": "assistant", "content": said}]
    began = time.perf_counter()
    bodies = [{**ASKED, "messages": [*history, task(number)]} for number in range(forks)]
    answers = asyncio.run(burst(server.url, bodies))
    cached = (answer.usage["prompt_tokens_details"]["cached_tokens"] for answer in answers)
    return told(began, answers, sum(answer.usage["prompt_tokens"] for answer in answers) - sum(cached))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=MODELS, default="135m")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--forks", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    if given.quick:
        given.tokens, given.runs = 600, 1
    measure = Measure("burst", f"one session forked into {given.forks}, all asked at once", given.quick)
    slots, cells, found = given.forks + 1, given.tokens + ROOM, dict[str, list[Burst]]()
    is_compared = has_peer()
    for run in range(given.runs):
        flags = ("--default-tools", "none", "--slots", str(slots), "--context", str(cells))
        with tenuto(model_file(given.model), *flags) as server:
            found.setdefault("tenuto", []).append(ours(server, given.tokens, given.forks, run))
        if is_compared:
            with llama_server(model_file(given.model), slots=slots, cells=cells) as server:
                found.setdefault("llama-server", []).append(theirs(server, given.tokens, given.forks, run))
    for kind, bursts in found.items():
        names = ("first_s", "end_s", "computed")
        measure.row(kind=kind, **{name: statistics.median(getattr(each, name) for each in bursts) for name in names})
    if is_compared:
        for name, what in (("first_s", "last first token"), ("end_s", "last answer")):
            pairs = zip(found["tenuto"], found["llama-server"], strict=True)
            ratio = statistics.median(getattr(one, name) / getattr(other, name) for one, other in pairs)
            measure.figure(f"{what} / llama-server's", ratio, at_most=GOAL)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
