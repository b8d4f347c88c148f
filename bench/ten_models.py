"""Ten models under a budget for three, asked at random: does any request fail, does the budget hold, do loads add up?

Writes ten random models of four sizes, and starts a server of its own with them and a budget for three of the largest.
Eight clients talk, stream, leave in the middle, hold sessions that change their model, load and unload, each whichever
model chance names. Ten times a second somebody else looks at what the accountant holds and what the process takes.
Then all is unloaded, and nothing may be left. Exit code 1 where something is wrong.

    .venv/bin/python bench/ten_models.py --seconds 300
"""

import argparse
import asyncio
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from random_model import OUT, Shape, write

READY = "tenuto ready on "
SIZES = {"m10": (2, 256, 2_000), "m25": (4, 384, 8_000), "m45": (6, 512, 12_000), "m80": (6, 768, 24_000)}
"""Layers, width and vocabulary, by name."""
COPIES = {"m10": 3, "m25": 3, "m45": 2, "m80": 2}
ROOM = 3
CACHE, HOST = 12 << 20, 8 << 20
CLIENTS, LOOK_S, WAIT_S = 8, 0.1, 120.0
WARM_S = 20.0
REST_BYTES = 32 << 20
"""How much more the process may take at rest, all unloaded, than after a short while of the same."""


class Wrong(Exception):
    """The server has done what it must not."""


def models(folder: Path) -> list[Path]:
    """The files; made where they are not there."""
    paths = []
    for seed, (size, copies) in enumerate(COPIES.items()):
        layers, width, vocabulary = SIZES[size]
        for copy in range(copies):
            path = folder / f"{size}-{copy}.gguf"
            if not path.exists():
                unfinished = path.with_suffix(".part")
                write(unfinished, Shape(layers, width, vocabulary), context=2048, seed=10 * seed + copy)
                unfinished.rename(path)
            paths.append(path)
    return paths


@dataclass
class Talker:
    """One client. What it has done is counted."""

    http: httpx.AsyncClient
    names: list[str]
    chance: random.Random
    done: Counter[str]
    slowest_s: float = 0.0

    async def talk(self, until: float) -> None:
        """Talk until the time is over."""
        actions = [self.chat, self.chat, self.session, self.stream, self.leave, self.unload, self.load]
        while time.monotonic() < until:
            action = self.chance.choice(actions)
            began = time.monotonic()
            try:
                await action(self.chance.choice(self.names))
            except httpx.HTTPError as error:
                raise Wrong(f"{action.__name__}: {error!r}") from error
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.done[action.__name__] += 1

    def body(self, model: str, text: str, **more: Any) -> dict[str, Any]:
        """A request for a few tokens."""
        most = self.chance.choice((4, 16, 48))
        return {"model": model, "max_tokens": most, "messages": [{"role": "user", "content": text}], **more}

    async def chat(self, model: str) -> None:
        """One turn."""
        await self.post("/v1/chat/completions", self.body(model, "what is it?"))

    async def session(self, model: str) -> None:
        """Two turns of a session, the second with another model at times; then it is deleted."""
        session = f"s{self.chance.getrandbits(60):x}"
        for name in (model, self.chance.choice([model, *self.names])):
            await self.post("/v1/chat/completions", self.body(name, "and then?", session_id=session))
        _right(await self.http.delete(f"/v1/sessions/{session}"))

    async def stream(self, model: str, leave_after: int | None = None) -> None:
        """Read a stream to its end, or leave it."""
        body = self.body(model, "tell me more", stream=True)
        async with self.http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                raise Wrong(f"{response.status_code}: {(await response.aread()).decode()}")
            lines, last = 0, ""
            async for line in response.aiter_lines():
                lines += 1
                last = line or last
                if '"error"' in line:
                    raise Wrong(line)
                if lines == leave_after:
                    return
            if last != "data: [DONE]":
                raise Wrong(f"a stream ended with {last!r}")

    async def leave(self, model: str) -> None:
        """Begin a stream and go away."""
        await self.stream(model, leave_after=self.chance.choice((1, 2, 6)))

    async def unload(self, model: str) -> None:
        """Unload a model by command, whatever others do with it."""
        response = await self.http.post(f"/v1/models/{model}/unload")
        if response.status_code != 409:  # it is being loaded
            _right(response)

    async def load(self, model: str) -> None:
        """Load a model by command."""
        await self.post(f"/v1/models/{model}/load", {})

    async def post(self, path: str, body: dict[str, Any]) -> None:
        """A request that must succeed."""
        _right(await self.http.post(path, json=body))


@dataclass
class Looker:
    """Looks at what is held."""

    http: httpx.AsyncClient
    process: int
    budget: int
    looks: int = 0
    most_held: int = 0
    most_rss: int = 0
    most_loaded: int = 0
    over: list[int] = field(default_factory=list)

    async def look(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            figures = await metrics(self.http)
            held, most = (int(figures[f'tenuto_models_bytes{{kind="{kind}"}}']) for kind in ("held", "most_held"))
            self.looks += 1
            self.most_held, self.most_rss = max(self.most_held, held), max(self.most_rss, rss(self.process))
            states = [model["state"] for model in (await self.http.get("/v1/models")).json()["data"]]
            self.most_loaded = max(self.most_loaded, states.count("loaded"))
            if max(held, most) > self.budget:
                self.over.append(max(held, most))


def rss(process: int) -> int:
    """The memory of a process, of its own."""
    text = Path(f"/proc/{process}/status").read_text()
    return sum(int(found) << 10 for found in re.findall(r"^RssAnon:\s+(\d+) kB", text, re.M))


async def metrics(http: httpx.AsyncClient) -> dict[str, float]:
    """The server's figures by name."""
    lines = [line for line in (await http.get("/metrics")).text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def _right(response: httpx.Response) -> None:
    if response.status_code != 200:
        raise Wrong(f"{response.request.url.path}: {response.status_code}: {response.text}")


def total(figures: dict[str, float], what: str) -> int:
    """A counter's sum over all models."""
    return int(sum(value for name, value in figures.items() if name.startswith(f"tenuto_model_{what}_total")))


async def together(talkers: list[Talker], seconds: float) -> list[BaseException | None]:
    """Let all talk for so long; what ended each too early."""
    until = time.monotonic() + seconds
    return await asyncio.gather(*(talker.talk(until) for talker in talkers), return_exceptions=True)


async def at_rest(http: httpx.AsyncClient, names: list[str]) -> None:
    """Unload all."""
    for name in names:
        _right(await http.post(f"/v1/models/{name}/unload"))


async def measure(url: str, process: int, names: list[str], budget: int, seconds: float, seed: int) -> list[str]:
    """Talk for so long; what was wrong, in words."""
    done: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=url, timeout=2 * WAIT_S, limits=httpx.Limits(max_connections=64)) as http:
        looker = Looker(http, process, budget)
        talkers = [Talker(http, names, random.Random(100 * seed + number), done) for number in range(CLIENTS)]
        looking = asyncio.create_task(looker.look())
        results = await together(talkers, WARM_S)
        await at_rest(http, names)
        before = rss(process)
        results += await together(talkers, seconds)
        looking.cancel()
        wrong = [f"{type(result).__name__}: {result}" for result in results if result is not None]
        if looking.done() and not looking.cancelled():
            wrong.append(f"the looker: {looking.exception()!r}")
        await at_rest(http, names)
        figures, rest = await metrics(http), rss(process)
    loads, unloads = total(figures, "loads"), total(figures, "unloads")
    held = int(figures['tenuto_models_bytes{kind="held"}'])
    print(f"requests: {sum(done.values())} ({', '.join(f'{name} {count}' for name, count in sorted(done.items()))})")
    print(f"slowest: {max(talker.slowest_s for talker in talkers):.1f} s")
    print(f"budget {budget / 1e6:.0f} MB, most held {looker.most_held / 1e6:.0f} MB in {looker.looks} looks,")
    print(f"most of the process {looker.most_rss / 1e6:.0f} MB, most models at once {looker.most_loaded}")
    print(f"loads {loads}, unloads {unloads}; held at the end {held} bytes; memory {before / 1e6:.0f} MB before,")
    print(f"{rest / 1e6:.0f} MB after")
    wrong += [f"over the budget: {over}" for over in looker.over[:3]]
    wrong += [] if loads == unloads else [f"{loads} loads and {unloads} unloads"]
    wrong += [] if held == 0 else [f"{held} bytes are still held"]
    wrong += [] if rest - before < REST_BYTES else [f"{(rest - before) / 1e6:.0f} MB of memory are left"]
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", type=Path, default=OUT / "ten")
    given = parser.parse_args()
    paths = models(given.models)
    largest = sorted(path.stat().st_size for path in paths)[-ROOM:]
    budget = sum(largest) + ROOM * (CACHE + HOST)
    words = [word for path in paths for word in ("--model", str(path))]
    words += ["--load", "request", "--model-memory", str(budget), "--cache-bytes", str(CACHE)]
    words += ["--host-cache-bytes", str(HOST), "--load-wait-s", str(WAIT_S)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tenuto", "serve", "--port", "0", "--data-dir", folder, *words]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith(READY):
                sys.exit(f"the server did not start: {line!r}")
            print(f"server: process {server.pid}", flush=True)
            names = [path.stem for path in paths]
            url = line.removeprefix(READY).strip()
            wrong = asyncio.run(measure(url, server.pid, names, budget, given.seconds, given.seed))
        finally:
            server.terminate()
            server.wait()
    print("\n".join(wrong) or "nothing was wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
