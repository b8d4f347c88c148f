"""One process of the server, composed as app.py does it, and what its clients can ask of it.

The one file that knows by which names the loop is reached.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tenuto.errors import StoreFailed
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.sampling_defaults import GREEDY
from tenuto.runtime.engine.engine import DiskSettings, EngineSettings
from tenuto.runtime.engine.messages import State
from tenuto.runtime.engine.snapshots import Limits
from tenuto.runtime.engine.snapshots.folder import stem_of
from tenuto.runtime.http.disconnect import while_connected
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.models import Model, Models
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.policy import Policy
from tenuto.runtime.loop.requests import Turn
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runner import Runner
from tenuto.runtime.loop.services import Expiries, Services
from tenuto.runtime.loop.shelf import Fixed
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.runtime.metrics import Metrics
from tenuto.sessions.directory import Directory
from tenuto.sessions.principal import Principal
from tenuto.sessions.session import Session
from tenuto.tools.approvals import Permission, Rules
from tenuto.tools.registry import CallLimits, Registry
from tests.simulation.aborting_engine import AbortingEngine
from tests.simulation.journal import WatchedStore
from tests.simulation.loop import Process
from tests.simulation.script import FedBackend, codec
from tests.simulation.tools import Book
from tests.simulation.wire import Noted, NotedLoop, ask

if TYPE_CHECKING:
    from tests.simulation.play import Play

CALL_S, APPROVAL_S, CLIENT_S, IMPLICIT_S = 4.0, 20.0, 40.0, 50.0
Reader = Callable[[int], Awaitable[None]]
"""Takes one event more; how long that lasts is the client's affair."""
Receive = Callable[[], Awaitable[Any]]
"""Returns when the client has gone."""


@dataclass(frozen=True)
class Reply:
    """What a client was told of a run's leg."""

    run: str
    session: str
    status: str
    text: str
    stop_reason: str | None
    pause: str | None
    calls: tuple[str, ...]
    error: str | None


class Server:
    """One process. `serve` is its main task; the other coroutines are the handlers of requests."""

    def __init__(self, play: "Play", url: str) -> None:
        self.play, self.url = play, url
        self.process = Process(url)
        self.ready, self._leave = asyncio.Event(), asyncio.Event()
        self.over = asyncio.Event()
        """Set when it has ended, or is dead."""
        self.replies: set[asyncio.Future[Any]] = set()

    async def serve(self) -> None:
        """Compose all, serve until told to leave, and free all."""
        play = self.play
        self.store = WatchedStore(
            self.url, play.faults.drive_store, play.journal, self.process, lambda: play.crash(self)
        )
        try:
            await self._serve(play)
        finally:
            self.store.close()

    async def _serve(self, play: "Play") -> None:
        self.directory = Directory(self.store, implicit_ttl_s=IMPLICIT_S, clock=play.clock)
        servers = [Book(name, play.outside) for name in ("b", "g")]
        self.registry = Registry(servers, {one.name: CallLimits(timeout_s=CALL_S) for one in servers})
        await self.registry.refresh()
        reads = codec()

        def backend() -> FedBackend:
            return FedBackend(play.history.slots, play.seen, play.faults.fails, play.faults.touch, play.faults.aborts)

        info = backend().info
        engine = AbortingEngine(
            lambda: Pipeline(reads, backend(), cache_identity="simulated"),
            play.faults.drive_engine,
            EngineSettings(host_cache_bytes=play.history.host_bytes, disk=self._disk()),
        )
        self.engine = EngineClient("scripted", info.slots, engine)
        models = Models(Fixed([Model("scripted", reads, self.engine, info, play.clock(), GREEDY)]))
        rules = {"b": Rules.all(Permission.AUTO), "g": Rules.all(Permission.ASK)}
        policy = Policy(self.registry, rules)
        services = Services(
            self.store,
            self.directory,
            models,
            self.registry,
            policy,
            Metrics(),
            Expiries(CLIENT_S, APPROVAL_S),
            play.clock,
            caches_on_disk=play.caches if play.history.disk_bytes else None,
        )
        try:
            async with Runner(services, Defaults(deadline_s=60.0)) as self.runner:
                self.runner.watchers.append(lambda run: play.legs.update([run.id]))
                self.ready.set()
                await self._leave.wait()
        finally:
            await self.engine.stop()

    def _disk(self) -> DiskSettings | None:
        nbytes = self.play.history.disk_bytes
        return DiskSettings(self.play.caches, Limits(nbytes, nbytes, 1e9, spare_bytes=0)) if nbytes else None

    async def stop(self) -> None:
        """As SIGTERM does: let runs come to an end, for a while."""
        await self.runner.drain(2.0)
        self._leave.set()

    # What clients ask.

    async def chat(self, turn: Turn, gone: Receive, take: Reader | None, dialect: str) -> Reply:
        """A turn, streamed where the client reads events, else whole."""
        if dialect:
            loop = NotedLoop(self.runner, lambda follower: self._reader(turn, follower).left)
            await ask(self.play, dialect, loop, turn, gone, take)
            assert loop.answers is not None
            return _reply(loop.answers)
        follower = await self.runner.start(turn)
        reader = self._reader(turn, follower)
        if take is None:
            await while_connected(gone, reader, follower.answer)
        else:
            await while_connected(gone, reader, lambda: _read(follower.events(), take))
        return _reply(follower)

    def _reader(self, turn: Turn, follower: Follower) -> "_Reader":
        self.play.begun.append((turn.principal.id, follower.id))
        return _Reader(self.play, follower, self.play.legs[follower.id])

    async def decide(self, principal: str, pause: str, *, approve: bool, remember: bool) -> str:
        """Answer an approval; the id of its run."""
        run = await self.runner.decide(Principal(principal), pause, approve=approve, message=None, remember=remember)
        return run.id

    async def watch(self, principal: str, run_id: str) -> Reply:
        """Follow a run without holding it, from its first event on."""
        run = await self.runner.run(Principal(principal), run_id)
        await _read(run.events(0), None)
        return _reply(run)

    async def cancel(self, principal: str, run_id: str) -> str:
        """Cancel a run; how it stands then."""
        return (await self.runner.cancel(Principal(principal), run_id)).status.value

    async def delete(self, principal: str, id: str) -> None:
        uids = [one.uid for one in self.directory._live if (one.principal, one.id) == (principal, id)]
        await self.runner.delete_session(Principal(principal), id)
        for uid in uids:
            if any(self.play.caches.glob(f"*/{stem_of(uid)}*")):
                self.play.wrong(f"session {id} of {principal} was deleted, and its cache is on the disk")

    async def fork(self, principal: str, id: str, new: str) -> None:
        await self.runner.fork_session(Principal(principal), id, None, new)

    async def export(self, principal: str, id: str) -> dict[str, Any]:
        return await self.runner.export_session(Principal(principal), id)

    async def install(self, principal: str, id: str, document: dict[str, Any]) -> None:
        await self.runner.import_session(Principal(principal), id, document)

    # What the invariants look at.

    def working(self) -> int:
        """How many runs are under way."""
        return self.runner.health().working

    def unkept(self) -> int:
        """How many runs have ended, or were left open by a crash, which could not be kept yet."""
        return len(self.runner._runs.overdue(0.0))

    def held(self) -> list[str]:
        """What is held although nothing is under way."""
        held = [f"{name} is {value}" for name, value in self._holds().items() if value]
        states = self.engine.status.sequences
        return held + [f"{n} sequences are {state}" for state, n in states.items() if n and state is not State.PAUSED]

    def _holds(self) -> dict[str, Any]:
        return {
            "the number of runs at work": self.working(),
            "the number of ends that are not kept": self.unkept(),
            "the number of sessions with commands": self.runner._owners.busy,
            "the number of keys with requests": self.runner._turns.repeats.busy,
            "the number of places in the engine's queue": self.engine.places,
            "the number of held locks": self.directory._locks.busy,
            "the number of reads": self.store._reading,
            "the number of tool calls": sum(
                gate._waiting + 8 - gate._places.value for gate in self.registry._gates.values()
            ),
        }

    async def unlike(self) -> list[str]:
        """The sessions that are in memory otherwise than in the store."""
        found = []
        for session in self.directory._live:
            try:
                kept = await self.store.session_by_uid(session.uid)
            except StoreFailed as error:
                found.append(str(error))
                continue
            if session.stored and not _alike(session, kept):
                found.append(f"session {session.id} of {session.principal}: {_difference(session, kept)}")
        return found


@dataclass(frozen=True)
class _Reader:
    """Who reads a leg; if it goes away before the leg is over, that may end the run."""

    play: "Play"
    follower: Follower
    leg: int

    async def left(self, _: Follower) -> None:
        await self.disconnected()

    async def disconnected(self) -> None:
        if self.play.legs[self.follower.id] == self.leg:
            self.play.oracle.reasons.add(self.follower.id)
        await self.follower.disconnected()


def _alike(session: Session, kept: Session | None) -> bool:
    if kept is None:
        return not session.is_committed  # made for a request that was refused: nobody finds it, whoever holds it
    ledgers = {name: ledger for name, ledger in session.ledgers.items() if ledger.items}
    return kept == replace(session, ledgers=ledgers, updated_at=kept.updated_at, expires_at=kept.expires_at)


def _difference(session: Session, kept: Session | None) -> str:
    if kept is None:
        return f"the store has none of its {len(session.items)} items"
    names = [
        n for n in ("items", "ledgers", "open_run", "approved", "implicit") if getattr(session, n) != getattr(kept, n)
    ]
    return f"{', '.join(names)} differ: {len(session.items)} items in memory, {len(kept.items)} in the store"


async def _read(events: AsyncIterator[Any], take: Reader | None) -> None:
    number = 0
    async for _ in events:
        number += 1
        if take is not None:
            await take(number)


def _reply(run: Follower | Run | Noted | PastLeg) -> Reply:
    answer = run.snapshot()
    pause = answer.pause if answer.status.value == "paused" else None
    return Reply(
        run.id,
        run.session_id,
        answer.status.value,
        answer.text,
        answer.stop_reason,
        None if pause is None else pause.pause_id,
        () if pause is None or pause.pause_id else tuple(call.id for call in pause.calls),
        answer.error,
    )
