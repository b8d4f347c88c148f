"""Many streaming sessions whose clients come and go, for a long time: what is left over, and do the counters add up?

Starts a server of its own with a scripted model. Its clients talk, stream, leave in the middle, let the server call
tools, run tools of their own, approve, deny, abandon, cancel, fork and delete, for several principals. Then all of
them go, and nothing may be left. All the while, the memory of the server and of the processes that it has started is
looked at: over the second half of the time it may not grow. Exit code 1 where something is wrong.

    .venv/bin/python bench/soak.py --minutes 20 --sessions 200
"""

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from harness.memory import Memory
from harness.results import Measure, arguments
from harness.servers import Running, series, tenuto, total

KEYS = ("one", "two", "three", "four")
QUIET_S = 30.0
WARM_S = 2.0
LOOKS = 10
SAMPLES = 240
BOUND = {"at_most": 8.0}
"""MiB by which a process may grow over the second half, by the slope of its samples."""
STORE = "sessions.db"
MOST_STORE_FILES = 15
"""The store opens a connection where one more is wanted, up to five, each with up to three files, and keeps it."""
RULES = [
    {
        "user_matches": r"^sum (?P<a>\d+) (?P<b>\d+)$",
        "calls": [{"name": "calculator__evaluate", "arguments": {"expression": "${a} + ${b}"}}],
    },
    {"user_matches": r"^mine (?P<word>\w+)$", "calls": [{"name": "mine", "arguments": {"word": "${word}"}}]},
    {"user_matches": r"^long (?P<word>\w+)$", "text": "${word} " + "and so on " * 60, "delay_ms": 1},
    {"tool_contains": "", "text": "told: ${tool}"},
]
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
MINE = {"type": "function", "function": {"name": "mine", "parameters": WORD}}
CALCULATOR = {"type": "mcp", "server_label": "calculator"}

Figures = dict[str, float]


class Wrong(Exception):
    """The server has answered what it must not."""


@dataclass
class Talker:
    """One client with one session at a time. Everything that it does is counted in `done`."""

    url: str
    key: str
    name: str
    random: random.Random
    done: Counter[str]
    number: int = 0
    sessions: list[str] = field(default_factory=list)
    client: httpx.AsyncClient = field(init=False)

    @property
    def session(self) -> str:
        """The session that it talks in now."""
        return self.sessions[-1]

    async def talk(self, until: float) -> None:
        """Talk until the time is over, then delete every session."""
        async with self._connected():
            self._begin()
            while time.monotonic() < until:
                action = self.random.choice(ACTIONS)
                await action(self)
                self.done[action.__name__] += 1
            for session in [*self.sessions]:
                await self._delete(session)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=2)
        headers = {"Authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=120, limits=limits) as self.client:
            yield

    def _begin(self) -> None:
        self.number += 1
        self.sessions.append(f"{self.name}-{self.number}")

    def _body(self, *messages: dict[str, Any], **extra: Any) -> dict[str, Any]:
        return {"session_id": self.session, "tools": [CALCULATOR, MINE], "messages": [*messages], **extra}

    async def _say(self, text: str, **extra: Any) -> dict[str, Any]:
        return await self._ask(self._body({"role": "user", "content": text}, **extra))

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        while True:
            response = await self.client.post("/v1/chat/completions", json=body)
            if not await self._is_refused(response):
                return _json(response)

    async def _is_refused(self, response: httpx.Response) -> bool:
        """Whether to try again, as the server says: it is full, or the run that we left has not quite ended."""
        if response.status_code not in (409, 429):
            return False
        code = json.loads(await response.aread())["error"]["code"]
        if code not in ("overloaded", "session_busy"):
            return False
        self.done[f"refused: {code}"] += 1
        await asyncio.sleep(float(response.headers["retry-after"]) * self.random.uniform(0.1, 1))
        return True

    async def _stream(self, text: str, **extra: Any) -> AsyncIterator[dict[str, Any] | str]:
        """The run's id, then the chunks of a stream; `[DONE]` is not told."""
        body = self._body({"role": "user", "content": text}, stream=True, **extra)
        async with self.client.stream("POST", "/v1/chat/completions", json=body) as response:
            if await self._is_refused(response):
                return
            if response.status_code != 200:
                raise Wrong(f"{response.status_code}: {(await response.aread()).decode()}")
            yield response.headers["x-tenuto-run-id"]
            ended = False
            async for line in response.aiter_lines():
                ended = ended or line == "data: [DONE]"
                if line.startswith("data: {"):
                    yield json.loads(line[6:])
            if not ended:
                raise Wrong("a stream has ended without [DONE]")

    async def _text(self, text: str, leave_after: int | None = None) -> str | None:
        """What a stream says; None where we left before its end, or were refused."""
        said, chunks = "", 0
        async with aclosing(self._stream(text)) as stream:  # type: ignore[type-var]
            async for chunk in stream:
                if chunks == leave_after:
                    return None
                chunks += 1
                if isinstance(chunk, dict):
                    if "error" in chunk:
                        raise Wrong(str(chunk["error"]))
                    said += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
        return said if chunks else None

    # What it does.

    async def reads_a_stream(self) -> None:
        word = f"w{self.random.randrange(10**6)}"
        said = await self._text(f"long {word}")
        if said is not None:
            _expect(said, f"{word} " + ("and so on " * 60).rstrip())

    async def leaves_a_stream(self) -> None:
        if await self._text("long again", leave_after=self.random.randrange(60)) is None:
            self.done["disconnected"] += 1

    async def leaves_before_the_answer(self) -> None:
        # With a client of its own: a connection whose request is cancelled at its start stays in httpx's pool for ever.
        kept = self.client
        try:
            async with self._connected():
                await asyncio.wait_for(self._say("long gone"), self.random.uniform(0.001, 0.3))
        except TimeoutError:
            self.done["disconnected"] += 1
        finally:
            self.client = kept

    async def lets_the_server_call(self) -> None:
        a, b = self.random.randrange(1000), self.random.randrange(1000)
        said = await self._text(f"sum {a} {b}")
        if said is not None:
            _expect(said, f"told: {a + b}")

    async def calls_itself(self) -> None:
        answer = await self._say("mine own")
        call = answer["choices"][0]["message"]["tool_calls"][0]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "did it"}
        _expect(_content(await self._ask(self._body(result))), "told: did it")

    async def calls_nothing_and_goes_on(self) -> None:
        await self._say("mine own")
        _expect(_content(await self._say("hello")), "hello")

    async def decides(self) -> None:
        answer = await self._say("sum 20 22", agent_permission="ask")
        decision = self.random.choice(["approve", "deny"])
        path = f"/v1/agent/approvals/{answer['tenuto']['approval_id']}"
        _json(await self.client.post(path, json={"decision": decision}))
        run_id = answer["tenuto"]["run_id"]
        async with self.client.stream("GET", f"/v1/runs/{run_id}/events", params={"after": 0}) as events:
            async for _ in events.aiter_lines():
                pass
        run = _json(await self.client.get(f"/v1/runs/{run_id}"))
        _expect(run["status"], "completed")
        _expect(run["text"], "told: 42" if decision == "approve" else "told: The user denied this tool call.")

    async def abandons_an_approval(self) -> None:
        answer = await self._say("sum 20 22", agent_permission="ask")
        _json(await self.client.post(f"/v1/runs/{answer['tenuto']['run_id']}/cancel"))

    async def cancels(self) -> None:
        async with aclosing(self._stream("long stopped")) as stream:  # type: ignore[type-var]
            async for chunk in stream:
                if isinstance(chunk, str):
                    _json(await self.client.post(f"/v1/runs/{chunk}/cancel"))

    async def forks(self) -> None:
        _expect(_content(await self._say("hello")), "hello")
        fork = _json(await self.client.post(f"/v1/sessions/{self.session}/fork", json={}))["id"]
        self.sessions.insert(0, fork)
        self.sessions.append(fork)
        _expect(_content(await self._say("hello there")), "hello there")
        self.sessions.pop()
        await self._delete(fork)

    async def begins_anew(self) -> None:
        await self._delete(self.session)
        self._begin()

    async def asks_for_anothers(self) -> None:
        other = next(key for key in KEYS if key != self.key)
        headers = {"Authorization": f"Bearer {other}"}
        response = await self.client.get(f"/v1/sessions/{self.session}", headers=headers)
        _expect(response.status_code, 404)

    async def _delete(self, session: str) -> None:
        response = await self.client.delete(f"/v1/sessions/{session}")
        if response.status_code not in (200, 204, 404):  # 404: all that it said was refused or left too early
            raise Wrong(f"{response.status_code}: {response.text}")
        self.sessions.remove(session)


ACTIONS: list[Callable[[Talker], Awaitable[None]]] = [
    *[Talker.reads_a_stream, Talker.leaves_a_stream, Talker.lets_the_server_call] * 3,
    Talker.leaves_before_the_answer,
    Talker.calls_itself,
    Talker.calls_nothing_and_goes_on,
    Talker.decides,
    Talker.abandons_an_approval,
    Talker.cancels,
    Talker.forks,
    Talker.begins_anew,
    Talker.asks_for_anothers,
]


def _json(response: httpx.Response) -> dict[str, Any]:
    if response.status_code >= 300:
        raise Wrong(f"{response.status_code}: {response.text}")
    value: dict[str, Any] = response.json()
    return value


def _content(answer: dict[str, Any]) -> str:
    content: str = answer["choices"][0]["message"]["content"]
    return content


def _expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise Wrong(f"{found!r} where {wanted!r} was to come")


@dataclass
class Server:
    """A server with a scripted model, and what can be seen of it from outside."""

    process: Running
    log: Path

    @property
    def url(self) -> str:
        return self.process.url

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> "Iterator[Server]":
        """With its engine in a process of its own where one can be: the scripted model's lives in a thread."""
        script = folder / "model.json"
        script.write_text(json.dumps({"rules": RULES, "slots": 32, "cells": 32 * 16384}))
        keys = [word for key in KEYS for word in ("--api-key", key)]
        with tenuto(f"scripted:{script}", *keys, "--queue-limit", "512", folder=folder) as running:
            yield cls(running, folder / "log")

    async def descriptors(self) -> int:
        """How many files and sockets it has open beside the store's, the fewest of some looks; 0 where that is unknown.

        Those of the store are counted only where they are too many.
        """
        counts = []
        for _ in range(LOOKS):  # a connection that was just closed by its client may have a moment left
            await asyncio.sleep(0.2)
            counts.append(self._descriptors_now())
        return min(counts)

    def _descriptors_now(self) -> int:
        folder = Path(f"/proc/{self.process.process}/fd")
        targets = [_target(link) for link in folder.iterdir()] if folder.is_dir() else []
        of_store = sum(STORE in target for target in targets)
        return len(targets) - min(of_store, MOST_STORE_FILES)

    async def delete_all_sessions(self) -> int:
        """Delete what is there once nothing is under way; how many.

        A request whose client has left it may be read after the one that deletes its session, and begin it anew.
        """
        count = 0
        while total(await self.figures(), "tenuto_runs", 'state="working"'):  # noqa: ASYNC110  (only the server knows)
            await asyncio.sleep(0.2)
        for key in KEYS:
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(base_url=self.url, headers=headers) as client:
                while found := _json(await client.get("/v1/sessions", params={"implicit": "true"}))["data"]:
                    for session in found:
                        _json(await client.delete(f"/v1/sessions/{session['id']}"))
                        count += 1
        return count

    async def figures(self) -> Figures:
        """Every series of /metrics."""
        async with httpx.AsyncClient(base_url=self.url, headers={"Authorization": f"Bearer {KEYS[0]}"}) as client:
            text = (await client.get("/metrics")).text
        return series(text)


def _target(link: Path) -> str:
    """What a descriptor leads to; nothing where it has just been closed."""
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


async def load(server: Server, sessions: int, seconds: float, seed: int) -> tuple[Counter[str], list[str]]:
    """Let everybody talk for so long; what was done, and what went wrong."""
    done: Counter[str] = Counter()
    until = time.monotonic() + seconds
    talkers = [
        Talker(server.url, KEYS[number % len(KEYS)], f"{seed}-{number}", random.Random(seed * 1000 + number), done)
        for number in range(sessions)
    ]
    ended = await asyncio.gather(*(talker.talk(until) for talker in talkers), return_exceptions=True)
    return done, [repr(one) for one in ended if isinstance(one, BaseException)]


def left_over(figures: Figures, at_start: Figures) -> list[str]:
    """What is there that was not at the start. What the server itself has read stays, and may lie in either memory."""
    names = ("tenuto_sequences", "tenuto_queue_depth", "tenuto_runs", "tenuto_sessions_in_memory")
    grown = [
        f"{key} is {value:g}"
        for key, value in figures.items()
        if key.partition("{")[0] in names and value > at_start.get(key, 0)
    ]
    held, before = _cache_bytes(figures), _cache_bytes(at_start)
    return [*grown, f"caches take {held:g} bytes, before {before:g}"] if held > before else grown


def _cache_bytes(figures: Figures) -> float:
    return sum(value for key, value in figures.items() if key.partition("{")[0] == "tenuto_cache_bytes")


async def settled(server: Server, at_start: Figures) -> tuple[Figures, int, list[str]]:
    """The figures, the open descriptors and what is left over, once nothing is or the patience is at its end."""
    deadline = time.monotonic() + QUIET_S
    while True:
        figures = await server.figures()
        left = left_over(figures, at_start)
        if not left or time.monotonic() > deadline:
            descriptors = await server.descriptors()
            return await server.figures(), descriptors, left
        await asyncio.sleep(0.2)


def sums(figures: Figures, at_start: Figures) -> list[str]:
    """Which counters do not add up over what was done since the start."""

    def since(name: str, *labels: str) -> float:
        return total(figures, name, *labels) - total(at_start, name, *labels)

    pairs = [
        ("runs begun", since("tenuto_runs_started_total"), "ended", since("tenuto_requests_total")),
        *(
            (
                f"tokens {kind} for runs",
                since("tenuto_tokens_total", f'kind="{kind}"'),
                "in steps",
                since("tenuto_step_tokens_total", f'kind="{kind}"'),
            )
            for kind in ("computed", "sampled")
        ),
    ]
    return [f"{a} {x:g}, {b} {y:g}" for a, x, b, y in pairs if x != y]


async def soak(server: Server, sessions: int, seconds: float) -> dict[str, Any]:
    """The whole: warm up, take the measure, load, wait for quiet, compare."""
    at_start = await server.figures()
    _, problems = await load(server, sessions, min(WARM_S, seconds), seed=1)
    await server.delete_all_sessions()
    before, open_before, left = await settled(server, at_start)
    problems += left
    memory = Memory(server.process)
    looking = asyncio.create_task(memory.watch(max(0.2, seconds / SAMPLES)))
    done, wrong = await load(server, sessions, seconds, seed=2)
    looking.cancel()
    problems += wrong
    done["came after their session was deleted"] = await server.delete_all_sessions()
    after, open_after, left = await settled(server, at_start)
    problems += left + sums(after, at_start)
    if after["tenuto_tasks"] > before["tenuto_tasks"]:
        problems.append(f"{after['tenuto_tasks']:g} tasks, before {before['tenuto_tasks']:g}")
    if open_after > open_before:
        problems.append(f"{open_after} descriptors, before {open_before}")
    ends = {key.partition('status="')[2][:-2]: after[key] for key in after if key.startswith("tenuto_requests_total{")}
    return {
        "seconds": seconds,
        "sessions": sessions,
        "done": dict(sorted(done.items())),
        "runs": {"begun": total(after, "tenuto_runs_started_total"), **ends},
        "tokens": {kind: total(after, "tenuto_tokens_total", f'kind="{kind}"') for kind in ("computed", "sampled")},
        "tool_calls": total(after, "tenuto_tool_calls_total"),
        "steps": total(after, "tenuto_steps_total"),
        "tasks": [before["tenuto_tasks"], after["tenuto_tasks"]],
        "descriptors": [open_before, open_after],
        "memory": memory.told(),
        "problems": problems,
    }


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="tell what was found as JSON, and keep no result")
    given = parser.parse_args()
    minutes = 1.0 if given.quick else given.minutes
    measure = Measure("soak", f"{given.sessions} sessions that come and go for {minutes:g} minutes", given.quick)
    with tempfile.TemporaryDirectory() as name, Server.started(Path(name)) as server:
        report = asyncio.run(soak(server, given.sessions, 60 * minutes))
        os.kill(server.process.process, signal.SIGTERM)
        gone = time.monotonic() + 60
        while Path(f"/proc/{server.process.process}/fd").exists() and _has_files(server.process.process):
            if time.monotonic() > gone:
                report["problems"].append("the server does not end")
                break
            time.sleep(0.1)
        said = server.log.read_text()
        report["problems"] += [line for line in said.splitlines() if "Traceback" in line or "ERROR" in line][:20]
    if given.json:
        print(json.dumps(report))
        return int(bool(report["problems"]))
    memory = report.pop("memory")
    for problem in report["problems"]:
        measure.note(problem)
    measure.row(**report)
    for process, told in memory.items():
        measure.row(process=process, **told)
        growth = told["growth_mib"]
        # What is remembered of ended runs grows to its bound at first, and that takes minutes.
        measure.figure(f"{process}: growth over the second half", growth, "MiB", **({} if given.quick else BOUND))
    measure.figure("problems", len(report["problems"]), at_most=0)
    return measure.end()


def _has_files(process: int) -> bool:
    try:
        return any(Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
