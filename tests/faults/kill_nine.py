"""`make kill-nine`: kill -9 of the real server, again and again, under the load of the simulation's clients.

The server, its MCP servers, its disk and its clients' connections are real; only the model is a script. After each
restart the oracle of the simulation must find, over HTTP, all that was acknowledged.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tenuto.errors import TenutoError
from tenuto.sessions.items import UserItem, item_from_json
from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.patience import HANGS_S
from tests.simulation.clients import Known, Lost, perform
from tests.simulation.history import EVERYBODY, Op, make
from tests.simulation.invariants import item_problems
from tests.simulation.oracle import Oracle, Said
from tests.simulation.over_http import HttpServer
from tests.simulation.script import rules
from tests.simulation.server import Reply

T = TypeVar("T")

KEYS = {name: f"key-of-{name}" for name in (*EVERYBODY, "carol")}
MOST_LOAD_S, PATIENCE_S = 0.2, 20.0


class Load:
    """What the simulation's clients need to know of a history under way, here in real time and over HTTP."""

    def __init__(self, server: HttpServer, oracle: Oracle, known: Known) -> None:
        self.server, self.oracle, self.known = server, oracle, known
        self.now = time.monotonic
        self.begun: list[tuple[str, str]] = []
        self.decision = asyncio.Event()
        self.violations: list[str] = []
        self.answers = 0
        self._told = asyncio.Semaphore(0)

    async def ask(self, work: Callable[[Any], Coroutine[Any, Any, T]], aborts: float | None = None) -> T:
        """Send a request. Raises Lost where the server is gone before it answers."""
        try:
            async with asyncio.timeout(aborts):
                return await work(self.server)
        except (httpx.TransportError, TimeoutError):
            raise Lost from None

    async def under_way(self, answers: int) -> None:
        """Return after so many answers, so that a slow machine is killed under load too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(answers):
                    await self._told.acquire()

    def told(self, op: Op, error: TenutoError) -> None:
        """Every refusal is one that a client may get."""

    def answered(self, op: Op, reply: Reply, claim: Said | None) -> None:
        """A client got its answer."""
        self.answers += 1
        self._told.release()
        if claim is not None and reply.status in ("completed", "paused", "incomplete"):
            claim.answered(self.now())

    def wrong(self, text: str) -> None:
        """Something must not be so."""
        self.violations.append(text)


class Kills:
    """All of them, on one data folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.book = folder / "book.txt"
        self.book.touch()
        self.oracle, self.known = Oracle(time.monotonic), Known()
        self.chance = random.Random(seed)
        self.answers = 0
        arguments = ["--mcp-config", str(_mcp_config(folder, self.book))]
        for key in KEYS.values():
            arguments += ["--api-key", key]
        model = script(folder / "model.json", rules(), cells=8192, slots=8, batch_tokens=2048)
        self.server = Server(folder, model, tuple(arguments))

    async def once(self, number: int) -> list[str]:
        """Load the server, kill it in the middle, start it again and look at all that there is."""
        async with self._connected() as client:
            load = Load(HttpServer(client, KEYS), self.oracle, self.known)
            clients = [asyncio.ensure_future(perform(load, ops)) for ops in _ops(number)]  # type: ignore[arg-type]
            await load.under_way(self.chance.randrange(12))
            await asyncio.sleep(self.chance.uniform(0.0, MOST_LOAD_S))
            self.server.kill()
            _, late = await asyncio.wait(clients, timeout=5.0)
            for one in late:
                one.cancel()
            ended = await asyncio.gather(*clients, return_exceptions=True)
        failures = [repr(one) for one in ended if isinstance(one, Exception)]
        self.answers += load.answers
        self.known.documents[:] = self.known.documents[-8:]
        await asyncio.to_thread(self.server.start)
        return [*failures, *load.violations, *await self.look()]

    async def look(self) -> list[str]:
        """What of the invariants does not hold, as a client sees it."""
        wrong: list[str] = []
        async with self._connected() as client:
            server = HttpServer(client, KEYS)
            for principal in KEYS:
                for id in ("a", "b", "c", "fork-a", "fork-b"):
                    wrong += [f"{id} of {principal}: {one}" for one in await self._session(server, principal, id)]
        for effect, times in Counter(self.book.read_text().split()).items():
            word = effect.partition("/")[2]
            if times > self.oracle.effects(word):
                wrong.append(f"{effect} was put {times} times, and asked for {self.oracle.effects(word)} times")
        return wrong + [f"two answers to approval {pause} were taken" for pause in self.oracle.decided_twice()]

    async def _session(self, server: HttpServer, principal: str, id: str) -> list[str]:
        key = (principal, id)
        try:
            document = await server.export(principal, id)
        except TenutoError as error:
            lost = self.oracle.kept(key)
            return [f"{error}, and with it {sorted(lost)}"] if lost else []
        items = [item_from_json(json.dumps(item)) for item in document["items"]]
        problems = item_problems(items, waits=True)
        has = {item.text.split()[-1] for item in items if isinstance(item, UserItem)}
        if lost := self.oracle.kept(key) - has:
            problems.append(f"acknowledged and lost: {sorted(lost)}")
        if self.oracle.gone(key):
            problems.append("it is there although its end was acknowledged")
        return problems

    def _connected(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.server.url, timeout=HANGS_S)


def _ops(number: int) -> list[list[Op]]:
    """The clients of some histories at once, with words of their own."""
    clients: list[list[Op]] = []
    for seed in range(3 * number, 3 * number + 3):
        by_client: dict[int, list[Op]] = {}
        for op in make(seed).ops:
            if op.kind != "wait":
                by_client.setdefault(op.client, []).append(replace(op, word=f"{op.word}x{seed}"))
        clients += by_client.values()
    return clients


def _mcp_config(folder: Path, book: Path) -> Path:
    program = str(Path(__file__).with_name("book.py"))
    servers = {
        name: {**tool_server(program, str(book), name), "permission": permission}
        for name, permission in (("b", "auto"), ("g", "ask"))
    }
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


async def kill(kills: int, folder: Path, seed: int = 0) -> tuple[list[str], int]:
    """Kill so often; what was wrong after a restart, and how many answers there were."""
    run = Kills(folder, seed)
    wrong: list[str] = []
    await asyncio.to_thread(run.server.start)
    try:
        for number in range(kills):
            wrong += [f"kill {number + 1}: {one}" for one in await run.once(number)]
            if wrong:
                break
            if (number + 1) % 10 == 0:
                print(f"{number + 1} kills, {run.answers} answers", flush=True)
    finally:
        run.server.close()
    return wrong, run.answers


def main() -> int:
    """Returns 1 where something was lost or done twice."""
    parser = argparse.ArgumentParser(prog="make kill-nine", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tenuto-kill-nine-") as folder:
        wrong, answers = asyncio.run(kill(given.kills, Path(folder), given.seed))
    for one in wrong:
        print("VIOLATION", one)
    print(f"{given.kills} kills, {answers} answers: {len(wrong)} violations")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
