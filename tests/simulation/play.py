"""Plays one history: the server's processes and their clients on one loop, and what must hold while and after."""

import asyncio
import atexit
import contextlib
import gc
import logging
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import anyio

from tenuto.errors import CommitUnsettled, StoreFailed, TenutoError
from tenuto.runtime.http.disconnect import ClientGone
from tenuto.sessions.storage.store import Store
from tests.simulation.clients import Known, Lost, perform
from tests.simulation.faults import Faults
from tests.simulation.history import BYSTANDER, History, Op
from tests.simulation.invariants import check_decisions, check_effects, check_files
from tests.simulation.journal import Journal
from tests.simulation.loop import SimulatedLoop, Standstill
from tests.simulation.oracle import Oracle, Said
from tests.simulation.server import Reply, Server
from tests.simulation.tools import Outside
from tests.simulation.world import EPOCH, Log, is_injected, simulated

T = TypeVar("T")

REST_S, DOWN_S = 200.0, 0.05


@dataclass
class Verdict:
    """How a history went."""

    violations: list[str]
    digest: str
    steps: int
    seconds: float
    """Of virtual time."""
    lines: list[str] = field(default_factory=list)


def play(history: History, *, trace: bool = False) -> Verdict:
    """Play a history from its beginning."""
    empty = _empty()
    loop = SimulatedLoop(random.Random(f"{history.seed}/schedule"), history.haste)
    folder = Path(mkdtemp(prefix="history-", dir=_memory()))
    log = Log()
    chance = random.Random(f"{history.seed}/world")
    gc.disable()
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with simulated(loop, chance, log):
            one = Play(history, loop, folder, empty, chance, log, trace)
            return one.run()
    finally:
        gc.enable()
        sys.unraisablehook = unraisable
        shutil.rmtree(folder, ignore_errors=True)


class Play:
    """A history under way. What it has found wrong is in `violations`."""

    def __init__(
        self,
        history: History,
        loop: SimulatedLoop,
        folder: Path,
        empty: Path,
        chance: random.Random,
        log: Log,
        trace: bool,
    ) -> None:
        self.history, self.loop, self.chance, self.log = history, loop, chance, log
        self.now = loop.time
        self.oracle = Oracle(loop.time)
        self.journal = Journal(history.faults, self.wrong)
        self.faults = Faults(history.faults, loop, chance, self.journal)
        self.outside = Outside(loop.time, self.faults.of_call)
        self.known = Known()
        self.begun: list[tuple[str, str]] = []
        self.legs: Counter[str] = Counter()
        self.seen: set[int] = set()
        self.violations: list[str] = []
        self.lines: list[str] = []
        self._trace, self._folder, self._empty = trace, folder, empty
        self.caches = folder / "caches"
        self._outside = Context()
        self._servers: list[Server] = []

    def run(self) -> Verdict:
        """Play it to its end."""
        try:
            asyncio.set_event_loop(None)
            self.loop.run_until_complete(self.loop.within(None, self._main()))
        except Standstill as error:
            self.wrong(str(error))
        except RuntimeError as error:
            if "Event loop stopped" not in str(error):
                raise
        self._check_log()
        steps, seconds = self.loop.steps, self.loop.time()
        self._bury()
        digest = sha256("\n".join([*self.lines, *self.violations, str(steps)]).encode()).hexdigest()[:16]
        return Verdict(self.violations, digest, steps, seconds, self.lines)

    # The course.

    async def _main(self) -> None:
        self.up, self.decision = asyncio.Event(), asyncio.Event()
        await self._begin(self._fresh())
        by_client: dict[int, list[Op]] = {}
        for op in self.history.ops:
            by_client.setdefault(op.client, []).append(op)
        for fault in self.history.faults:
            if fault.kind in ("crash", "restart"):
                self.loop.within(None, self._at(fault.seconds, fault.kind))
        clients = [self.loop.within(None, perform(self, ops)) for ops in by_client.values()]
        for client in clients:
            await client
        await self.up.wait()
        await self._rest()
        check_files(self, self.server.store, recovered=True)
        await self._restart()
        await self._rest()
        await self._stop()
        check_effects(self)
        check_decisions(self)

    async def _begin(self, url: str) -> None:
        self.server = server = Server(self, url)
        self._servers.append(server)
        main = self.loop.within(server.process, server.serve())
        main.add_done_callback(partial(self._ended, server), context=self._outside)
        ready = asyncio.ensure_future(server.ready.wait())
        await asyncio.wait([ready, main], return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and not server.process.dead:
            check_files(self, server.store, recovered=False)  # what could not be closed is tried again
            self.up.set()

    def _ended(self, server: Server, main: asyncio.Future[None]) -> None:
        server.over.set()
        error = None if main.cancelled() else main.exception()
        if error is not None or not server._leave.is_set():
            self.wrong(f"the server ended: {error!r}")
            self.loop.stop()

    async def _at(self, seconds: float, kind: str) -> None:
        await asyncio.sleep(seconds)
        await self.up.wait()
        if kind == "crash":
            self.crash(self.server)
        else:
            await self._restart()

    async def _restart(self) -> None:
        """As a service manager does: SIGTERM, and start again."""
        server = self.server
        if not self.up.is_set():
            return
        self.faults.touch()
        await self._stop()
        if server is self.server and not server.process.dead:  # else a crash in the drain has begun the next one
            await self._begin(server.url)

    async def _stop(self) -> None:
        server = self.server
        self.up.clear()
        self.loop.within(server.process, server.stop())
        await server.over.wait()
        await self._answered(server)

    async def _answered(self, server: Server) -> None:
        for _ in range(100):
            if not server.replies:
                return
            await asyncio.sleep(0.1)
        self.wrong("the server has ended, and requests were never answered")

    def crash(self, server: Server) -> None:
        """kill -9: what is in memory is gone, and what is in the files is as it is."""
        if server.process.dead or server is not self.server:
            return
        server.process.dead = True
        self.loop.call_soon(server.over.set, context=self._outside)
        self.faults.touch()
        self.up.clear()
        self.trace("crash")
        url = self._left_behind(server.url)
        for reply in list(server.replies):
            if not reply.done():
                reply.set_exception(Lost())
        self.loop.call_soon(lambda: self.loop.within(None, self._again(url)), context=self._outside)

    async def _again(self, url: str) -> None:
        await asyncio.sleep(DOWN_S)
        await self._begin(url)

    async def _rest(self) -> None:
        """Wait until nothing is under way; then nothing may be held, and memory is what the files are."""
        until = self.now() + REST_S
        await asyncio.sleep(1.0)
        quiet = 0
        while quiet < 6:  # housekeeping begins by itself, and what it does takes as long as a commit does
            await asyncio.sleep(0.5)
            under_way = [*self.server.held(), *(["requests are open"] if self.server.replies else [])]
            quiet = 0 if under_way else quiet + 1
            if under_way and self.now() > until:
                self.wrong(f"at rest, {', '.join(under_way)}")
                return
        for unlike in await self.ask(lambda server: server.unlike()):
            self.wrong(f"at rest, memory is not what is kept: {unlike}")

    # For clients.

    async def ask(self, work: Callable[[Server], Coroutine[Any, Any, T]], aborts: float | None = None) -> T:
        """Send a request. Raises what its handler raises, and Lost where the server goes away before it answers."""
        while not self.up.is_set():  # it may have gone again before this task could go on
            await self.up.wait()
        server = self.server
        reply: asyncio.Future[T] = self.loop.create_future()
        server.replies.add(reply)
        handler = self.loop.within(server.process, _handled(work(server), aborts))
        handler.add_done_callback(partial(_settle, reply), context=self._outside)
        try:
            return await reply
        except (TenutoError, Lost):
            raise
        except Exception as error:
            if not isinstance(error, ClientGone):
                self.wrong(f"a request failed inside: {error!r}")
                raise Lost from error
            raise
        finally:
            server.replies.discard(reply)

    def told(self, op: Op, error: TenutoError) -> None:
        """A client was told of an error."""
        self.trace(f"client {op.client} {op.kind}: {type(error).__name__}: {error}")
        unsettled = isinstance(error, CommitUnsettled) and any(one.seconds > 30 for one in self.history.faults)
        if isinstance(error, StoreFailed) and not (is_injected(error) or unsettled):
            self.wrong(f"client {op.client} was told, although no fault was made: {error}")
        if op.principal == BYSTANDER and not self.faults.touched:
            self.wrong(f"the bystander was told: {type(error).__name__}: {error}")

    def answered(self, op: Op, reply: Reply, claim: Said | None) -> None:
        """A client got its answer."""
        self.trace(f"client {op.client} {op.kind} {op.word}: {reply}")
        if reply.error is not None and "internal" in reply.error:
            self.wrong(f"client {op.client} was told of {reply.error!r}")
        if claim is not None and reply.status in ("completed", "paused", "incomplete"):
            claim.answered(self.now())
        if op.principal == BYSTANDER:
            expected = {"hello": f"hello {op.word}", "write": f"told: did {op.word}", "long": op.word + " and on" * 6}
            if not self.faults.touched and (reply.status, reply.text) != ("completed", expected[op.say]):
                self.wrong(f"the bystander got {reply.status} {reply.text!r} instead of {expected[op.say]!r}")

    def trace(self, line: str) -> None:
        """Note what happens."""
        self.lines.append(f"{self.now():9.4f} {line}")
        if self._trace:
            print(self.lines[-1])

    def wrong(self, text: str) -> None:
        """An invariant does not hold."""
        self.trace(f"VIOLATION {text}")
        self.violations.append(f"at {self.now():.3f} s: {text}")

    # For the server.

    def clock(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + self.now()

    # Files and remains.

    def _fresh(self) -> str:
        path = self._folder / "0.db"
        shutil.copyfile(self._empty, path)
        return f"sqlite:///{path}"

    def _left_behind(self, url: str) -> str:
        path = Path(url.removeprefix("sqlite:///"))
        left = self._folder / f"{len(self._servers)}.db"
        for suffix in ("", "-wal"):
            one = path.with_name(path.name + suffix)
            if one.exists():
                shutil.copyfile(one, left.with_name(left.name + suffix))
        return f"sqlite:///{left}"

    def _check_log(self) -> None:
        if self._trace:
            for record in self.log.records:
                print("LOG", logging.Formatter().format(record))
        for record in self.log.records:
            error = record.exc_info[1] if record.exc_info else None
            explained = isinstance(error, TenutoError | ExceptionGroup) or is_injected(error) or error is None
            if not explained and "a bug in a tool" not in str(error):
                self.wrong(f"logged: {record.getMessage()}: {error!r}")
        for details in self.loop.errors:
            if not is_injected(details.get("exception")):
                self.wrong(f"nobody has heard of: {details.get('message')} {details.get('exception')!r}")

    def _bury(self) -> None:
        """Let go of processes that died, without a word from them."""
        self.loop.set_exception_handler(lambda *_: None)
        for task in [*asyncio.all_tasks(self.loop), *(one for server in self._servers for one in server.process.tasks)]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done():
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        for server in self._servers:
            with contextlib.suppress(Exception):
                server.store.dispose()
        self.loop.close()


async def _handled(work: Coroutine[Any, Any, T], aborts: float | None) -> T:
    if aborts is None:
        return await work
    with anyio.move_on_after(aborts):
        return await work
    raise Lost


def _settle(reply: asyncio.Future[T], handler: asyncio.Future[T]) -> None:
    if handler.cancelled():
        error: BaseException | None = Lost()
    else:
        error = handler.exception()
    if reply.done():
        return
    if error is None:
        reply.set_result(handler.result())
    else:
        reply.set_exception(error)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@cache
def _empty() -> Path:
    """A database with all tables, made once for this process."""
    folder = Path(mkdtemp(prefix="tenuto-empty-", dir=_memory()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Store.open(f"sqlite:///{folder / 'empty.db'}").close()
    return folder / "empty.db"
