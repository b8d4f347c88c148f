"""The loop's front: takes turns, begins and resumes runs, and keeps house over them. Event-loop thread only."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Self

import anyio

from tenuto.errors import ServerUnreachable, ToolFailed
from tenuto.pipelines.embedding import TextTokens, Vectors
from tenuto.runtime.loop.conversations import Conversations, PartPage
from tenuto.runtime.loop.decisions import Decision
from tenuto.runtime.loop.draining import drain
from tenuto.runtime.loop.embeddings import Embeddings
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.imported import DroppedLedger, drop_unbelieved
from tenuto.runtime.loop.kept_caches import KeptCaches
from tenuto.runtime.loop.kept_legs import KeptLegs
from tenuto.runtime.loop.legs import Legs
from tenuto.runtime.loop.models import EmbeddingModel
from tenuto.runtime.loop.owners import Owners
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.port import LoopHealth, LoopPort
from tenuto.runtime.loop.raw import RawRequest, RawRun, RawRuns
from tenuto.runtime.loop.recovery import Recovery
from tenuto.runtime.loop.requests import KeepAs, Turn
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.sessions import Sessions
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.runtime.loop.turns import Turns
from tenuto.runtime.loop.withdrawals import Withdrawals
from tenuto.sessions import transfer
from tenuto.sessions.ids import new_call_id
from tenuto.sessions.items import Item
from tenuto.sessions.parts import NamedPart
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import PauseRecord, SessionSummary
from tenuto.sessions.session import Session
from tenuto.sessions.tokens import Tokens
from tenuto.tools.approvals import Permission
from tenuto.tools.asking import Reply
from tenuto.tools.host.requested import Requested, RequestedServer
from tenuto.tools.spec import Caller, ToolResult

logger = logging.getLogger(__name__)

TICK_S = 1.0
SWEEP_TICKS = 60
"""Sessions whose time is over are looked for once in so many ticks."""


class Runner(LoopPort):
    """Begins, resumes and ends runs. An async context manager: leaving it breaks off what is still under way.

    Whatever changes a session is a command to its owner (`owners`), and runs there one after the other.
    """

    def __init__(self, services: Services, defaults: Defaults) -> None:
        self.models = services.models
        self.directory = services.directory
        self.registry = services.registry
        self.watchers: list[Callable[[Run], None]] = []
        """Told whenever a run has begun to wait or has ended."""
        self._services, self._store = services, services.store
        self._defaults = defaults
        self._runs = Runs(services, self.watchers)
        self._raw = RawRuns(services.models)
        self._embeddings = Embeddings(services.models)

    async def __aenter__(self) -> Self:
        """Go on with what a crash left open, or close it, then take turns."""
        services, runs = self._services, self._runs
        self._group = group = await anyio.create_task_group().__aenter__()
        self._owners = Owners(group)
        self._sessions = Sessions(services, runs, self._owners, KeptCaches(services.models, services.caches_on_disk))
        self._legs = Legs(services, runs, group, self._defaults.max_runs, self.watchers)
        self._kept = KeptLegs(services, runs, self._owners)
        self._conversations = Conversations(services, runs, self._owners, self._sessions)
        self._turns = Turns(services, runs, self._owners, self._sessions, self._legs, self._kept, self._defaults, group)
        self.watchers.append(Withdrawals(services, runs, self._turns, group).look_at)
        try:
            await Recovery(services, runs, self._owners, self._sessions, self._legs).recover()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        group.start_soon(self._keep_house)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what is under way; each run is closed as interrupted, with what it has."""
        assert self._group is not None
        self._legs.is_closed = True
        self._group.cancel_scope.cancel()
        if isinstance(error, Exception):  # goes on as it is, not in a group: no run can have caused it
            kind = error = trace = None
        await self._group.__aexit__(kind, error, trace)

    async def drain(self, timeout_s: float) -> None:
        """Take no new turns, and let the runs under way wait or end; after so long they are interrupted."""
        await drain(self._legs, self._raw, self._embeddings, self.models, timeout_s)

    def health(self) -> LoopHealth:
        """How the loop and the engines do now."""
        engines = {model.id: model.engine for model in self.models.served()}
        sequences = sum(engine.remembered_bytes for engine in engines.values())
        return LoopHealth(
            is_draining=self._legs.is_closed,
            store_trouble=self._store.trouble,
            engines={id: engine.health for id, engine in engines.items()},
            working=len(self._runs.working()),
            waiting=self._runs.waiting(),
            sessions=self.directory.in_memory,
            memory={**self.directory.nbytes(), "runs": self._runs.nbytes, "sequences": sequences},
        )

    # Turns.

    async def start(self, turn: Turn) -> Follower:
        """Admit a turn and begin or resume its run."""
        return await self.models.with_loaded(partial(self._turns.start, turn), turn.principal.id)

    async def preview(self, turn: Turn) -> Tokens:
        """The tokens that the model would read of a turn."""
        return await self.models.with_loaded(partial(self._turns.preview, turn), turn.principal.id)

    async def decide(
        self,
        principal: Principal,
        pause_id: str,
        *,
        approve: bool,
        message: str | None,
        remember: bool,
        keep_as: KeepAs | None = None,
        requested: Requested | None = None,
    ) -> Run:
        """Answer an approval; its run goes on."""
        said = Decision(approve, message, remember)
        decide = partial(self._turns.decide, principal, pause_id, said, keep_as, requested)
        return await self.models.with_loaded(decide, principal.id)

    async def answer(self, principal: Principal, pause_id: str, reply: Reply, keep_as: KeepAs | None = None) -> Run:
        """Answer a question; its run goes on."""
        answer = partial(self._turns.answer, principal, pause_id, reply, keep_as)
        return await self.models.with_loaded(answer, principal.id)

    async def questions(self, principal: Principal) -> list[PauseRecord]:
        """What the principal's runs ask a person."""
        return await self._runs.questions(principal.id)

    def complete(self, request: RawRequest) -> RawRun:
        """Begin a raw completion, which whoever reads it must read to its end or close."""
        self._legs.check_open(request.principal.id)
        return self._raw.begin(request)

    async def embed(self, principal: Principal, model: EmbeddingModel, texts: Sequence[TextTokens]) -> Vectors:
        """Vectors of texts, or scores of pairs: a row for each. Whoever asks has the model in use."""
        self._legs.check_open(principal.id)
        return await self._embeddings.embed(principal, model, texts)

    # Runs.

    async def run(self, principal: Principal, run_id: str) -> Run:
        """A run by its id, at work, waiting or ended."""
        return await self._runs.find(run_id, principal.id)

    async def cancel(self, principal: Principal, run_id: str) -> Run:
        """Stop a run; give it when it has ended."""
        return await self._sessions.cancel(await self._runs.find(run_id, principal.id))

    # Legs whose clients can ask for them again.

    async def leg(self, principal: Principal, id: str) -> Follower | PastLeg:
        """A kept leg by its id, under way or over."""
        return await self._kept.leg(principal.id, id)

    async def cancel_leg(self, principal: Principal, id: str) -> Follower | PastLeg:
        """Stop a kept leg; give it when it is over."""
        return await self._kept.cancel(principal.id, id)

    async def forget_leg(self, principal: Principal, id: str) -> None:
        """Stop a kept leg and forget it."""
        await self._kept.forget(principal.id, id)

    async def brought(self, principal: Principal, id: str) -> Sequence[Item]:
        """The items that the request of a kept leg has brought."""
        return await self._kept.brought(principal.id, id)

    # Sessions.

    async def delete_session(self, principal: Principal, id: str) -> None:
        """Delete a session, also one that cannot be read; its open run is cancelled first."""
        await self._sessions.delete(principal.id, id)

    async def fork_session(self, principal: Principal, id: str, at: int | None, new_id: str | None) -> Session:
        """A session of its own over completed items."""
        return await self._sessions.fork(principal.id, id, at, new_id)

    async def snapshot(self, principal: Principal, id: str) -> Session:
        """A session as it is now, whatever becomes of it."""
        return await self._sessions.snapshot(principal.id, id)

    async def export_session(self, principal: Principal, id: str, *, raw: bool = False) -> dict[str, Any]:
        """A session as a document that `import_session` reads; `raw`: all rows of it as they are."""
        if raw:
            return await self._sessions.raw(principal.id, id)
        return await anyio.to_thread.run_sync(transfer.export, await self._sessions.snapshot(principal.id, id))

    async def export_pages(self, principal: Principal, id: str) -> Iterator[bytes]:
        """The JSON text of the same document in pieces, made as they are asked for, in any thread."""
        return transfer.pages(await self._sessions.snapshot(principal.id, id))

    async def import_session(
        self, principal: Principal, id: str, document: dict[str, Any]
    ) -> tuple[Session, list[DroppedLedger]]:
        """Import a session, replacing the one with that id."""
        return await self.keep_imported(transfer.restore(document, principal.id, id))

    async def keep_imported(self, session: Session) -> tuple[Session, list[DroppedLedger]]:
        """Put what `transfer.restore` made in the place of the session of that id."""
        dropped = await anyio.to_thread.run_sync(drop_unbelieved, session, [one.codec for one in self.models.list()])
        await self._sessions.install(session)
        return session, dropped

    async def list_sessions(
        self, principal: Principal, *, implicit: bool, limit: int, after: str | None
    ) -> list[SessionSummary]:
        """The principal's stored sessions, newest first."""
        return await self.directory.list(principal.id, implicit, limit=limit, after=after)

    async def run_ids(self, principal: Principal, session_id: str, *, limit: int) -> list[str]:
        """The ids of a session's stored runs, the newest first."""
        return await self._store.run_ids((await self.session(principal, session_id)).uid, limit)

    # Conversations.

    async def begin_session(
        self, principal: Principal, id: str, items: Sequence[Item], metadata: Mapping[str, str]
    ) -> Session:
        """A new session with these items."""
        return await self._conversations.begin(principal.id, id, items, metadata)

    async def session(self, principal: Principal, id: str) -> Session:
        """A session, of which only the row may be read."""
        return await self._conversations.get(principal.id, id)

    async def describe_session(self, principal: Principal, id: str, metadata: Mapping[str, str]) -> Session:
        """Let a session have this metadata."""
        return await self._conversations.describe(principal.id, id, metadata)

    async def add_items(self, principal: Principal, id: str, items: Sequence[Item]) -> Sequence[NamedPart]:
        """Add items at a session's end, without an answer."""
        return await self._conversations.add(principal.id, id, items)

    async def parts(
        self, principal: Principal, id: str, after: str | None, limit: int, *, newest_first: bool
    ) -> PartPage:
        """Some parts of a session."""
        return await self._conversations.page(principal.id, id, after, limit, newest_first=newest_first)

    async def part(self, principal: Principal, id: str, name: str) -> NamedPart:
        """One part of a session."""
        return await self._conversations.part(principal.id, id, name)

    async def remove_part(self, principal: Principal, id: str, name: str) -> Session:
        """Take a part out of a session."""
        return await self._conversations.remove(principal.id, id, name)

    # Tools.

    @asynccontextmanager
    async def connected(self, principal: Principal, servers: Sequence[RequestedServer]) -> AsyncIterator[Requested]:
        """The servers that a request brings, connected for the block, and longer where a run has got them."""
        self._legs.check_open(principal.id)
        requested = await self._services.requested.connect(principal.id, servers)
        try:
            yield requested
        finally:
            self._services.requested.let_go(requested)

    def needs_word(self, principal: Principal, name: str) -> bool:
        """Whether a person must be asked before this principal calls a tool from outside any session."""
        decision = self._services.policy.decide_direct(name, has_word=principal.is_person)
        return decision.permission is Permission.ASK

    async def call_tool(
        self,
        principal: Principal,
        name: str,
        arguments: dict[str, Any],
        caller: Caller,
        *,
        approved: bool = False,
    ) -> ToolResult:
        """Call a server's tool from outside any session."""
        decision = self._services.policy.decide_direct(name, has_word=principal.is_person or approved)
        if decision.permission is not Permission.AUTO:
            return ToolResult(decision.reason, is_error=True)
        context = caller.context(principal.id, new_call_id())
        try:
            return await self.registry.call(name, arguments, context)
        except (ToolFailed, ServerUnreachable) as error:
            return ToolResult(f"Error: {error}", is_error=True)

    # Housekeeping.

    async def _keep_house(self) -> None:
        for tick in count(1):
            await anyio.sleep(TICK_S)
            try:
                self._legs.stop_abandoned()
                await self.expire_pauses()
                if tick % SWEEP_TICKS == 0:
                    await self.expire_sessions()
            except Exception:  # it goes on with the next tick, whatever was wrong with this one
                logger.exception("housekeeping failed")

    async def expire_pauses(self) -> None:
        """End the runs that have waited for too long, or whose end could not be kept. Done every second by itself."""
        await self._sessions.close_overdue()

    async def expire_sessions(self) -> None:
        """Delete the sessions whose time is over, and let runs of long ago go. Done every minute by itself."""
        self._runs.forget_old()
        await self.directory.tidy()
        await self._sessions.expire()
        await self._store.sweep()
