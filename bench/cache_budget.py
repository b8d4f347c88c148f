"""R8: the most bytes of cache that are ever held / the budget, on the device, in host memory and on disk.

Sessions of random lengths take turns at random under budgets that hold a fraction of them; some are forked, some
deleted. What the server says of its caches is looked at all the time, and so are the files in its data folder.

    python bench/cache_budget.py [--model embedded] [--sessions 500] [--seconds 120] [--quick]
"""

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
from harness.asking import CHAT, SENTENCE, user
from harness.models import MODELS, model_file
from harness.results import Measure, arguments
from harness.servers import series, tenuto, total

GOAL = 1.0
MIB = 1 << 20
BUDGETS = {"device": 24 * MIB, "host": 12 * MIB, "disk": 24 * MIB}
FLAGS = {"device": "--cache-bytes", "host": "--host-cache-bytes", "disk": "--disk-cache-bytes"}
CLIENTS, LOOK_S = 8, 0.02


async def talk(
    client: httpx.AsyncClient, chance: random.Random, sessions: int, until: float, done: Counter[str]
) -> None:
    """One client: a turn of a session, a fork of it, or its end."""
    while time.monotonic() < until:
        session = f"r8-{chance.randrange(sessions)}"
        action = chance.choices(["turn", "fork", "delete"], [10, 1, 1])[0]
        if action == "turn":
            said = user(f"{session}: {SENTENCE * chance.randrange(1, 24)}")
            body = {"session_id": session, "messages": [said], "max_tokens": chance.randrange(1, 12)}
            answer = await client.post(CHAT, json=body)
            if answer.status_code == httpx.codes.BAD_REQUEST:  # it has become too long
                answer = await client.delete(f"/v1/sessions/{session}")
        elif action == "fork":
            answer = await client.post(f"/v1/sessions/{session}/fork", json={})
        else:
            answer = await client.delete(f"/v1/sessions/{session}")
        if answer.status_code not in (200, 204, 404, 409):
            answer.raise_for_status()
        done[f"{action} {answer.status_code}"] += 1


async def look(client: httpx.AsyncClient, caches: Path, most: dict[str, float], looks: list[int]) -> None:
    """Until it is cancelled."""
    while True:
        figures = series((await client.get("/metrics")).text)
        for tier in BUDGETS:
            held = total(figures, "tenuto_cache_bytes", f'residency="{tier}"')
            most[tier] = max(most[tier], held)
        most["files"] = max(most["files"], _held(caches))
        looks[0] += 1
        await asyncio.sleep(LOOK_S)


def _held(caches: Path) -> int:
    return sum(_size(path) for path in caches.glob("*/*"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def load(url: str, caches: Path, sessions: int, seconds: float) -> tuple[dict[str, float], int, Counter[str]]:
    most, looks, done = dict.fromkeys((*BUDGETS, "files"), 0.0), [0], Counter[str]()
    until = time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:
        looking = asyncio.create_task(look(client, caches, most, looks))
        talkers = (talk(client, random.Random(seed), sessions, until, done) for seed in range(CLIENTS))
        await asyncio.gather(*talkers)
        looking.cancel()
    return most, looks[0], done


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=MODELS, default="embedded")
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    seconds = 20.0 if given.quick else given.seconds
    measure = Measure("R8", "the most bytes of cache / the budget", given.quick)
    budgets = [word for tier, flag in FLAGS.items() for word in (flag, str(BUDGETS[tier]))]
    flags = ("--default-tools", "none", "--context", "1024", *budgets)
    with tempfile.TemporaryDirectory() as name, tenuto(model_file(given.model), *flags, folder=Path(name)) as server:
        caches = Path(name) / "data/caches"
        most, looks, done = asyncio.run(load(server.url, caches, given.sessions, seconds))
    measure.row(sessions=given.sessions, seconds=seconds, looks=looks, **dict(sorted(done.items())))
    for tier, budget in BUDGETS.items():
        measure.figure(f"{tier}: most held / budget", most[tier] / budget, at_most=GOAL)
    measure.figure("disk: files / budget", most["files"] / BUDGETS["disk"], at_most=GOAL)
    return measure.end()


if __name__ == "__main__":
    sys.exit(main())
