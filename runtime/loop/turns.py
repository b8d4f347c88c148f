"""What begins or resumes a run: turns, admitted to their sessions once for each key, and answers to approvals."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from tenuto.errors import InvalidRequest, NotFound
from tenuto.runtime.loop import attach
from tenuto.runtime.loop.amounts import DIGESTED
from tenuto.runtime.loop.attach import Unread
from tenuto.runtime.loop.decisions import Decision, decide
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.inputs import answer, withdraw
from tenuto.runtime.loop.intake import Admitted, Found, Intake
from tenuto.runtime.loop.kept_legs import KeptLegs
from tenuto.runtime.loop.keys import Keys
from tenuto.runtime.loop.leg import Leg
from tenuto.runtime.loop.legs import Legs
from tenuto.runtime.loop.models import Model
from tenuto.runtime.loop.owners import Owners
from tenuto.runtime.loop.requests import KeepAs, Turn
from tenuto.runtime.loop.run import Run
from tenuto.runtime.loop.runs import Runs
from tenuto.runtime.loop.services import Services
from tenuto.runtime.loop.sessions import Sessions
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.sessions import transfer
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import PauseReason
from tenuto.sessions.session import Session
from tenuto.sessions.tokens import Tokens
from tenuto.tools.asking import Reply
from tenuto.tools.host.requested import Requested

F = TypeVar("F", bound=Follower | Found | None)
W = TypeVar("W")

GRACE_S = 60.0
"""How long a request with an Idempotency-Key goes on after its client has gone: clients that retry come sooner."""


class Turns:
    """Admits turns and decisions. Event-loop thread only; what changes a session is a command to its owner."""

    def __init__(
        self,
        services: Services,
        runs: Runs,
        owners: Owners,
        sessions: Sessions,
        legs: Legs,
        kept: KeptLegs,
        defaults: Defaults,
        group: TaskGroup,
    ) -> None:
        self._services, self._models, self._directory = services, services.models, services.directory
        self._runs, self._owners, self._sessions, self._legs, self._kept = runs, owners, sessions, legs, kept
        self._keys = Keys(services.store, services.clock)
        self._intake = Intake(services, runs, self._keys, defaults)
        self.repeats = Owners(group, "Idempotency-Key")
        """Lets the requests with one key wait for each other."""

    async def start(self, turn: Turn) -> Follower:
        """Admit a turn and begin or resume its run. A repeat of an Idempotency-Key gets the run that it began."""
        await _read(turn)
        if turn.idempotency_key is None:
            return await self._start(turn)
        # A repeat waits to see what the first has begun, even if the first's client has gone meanwhile.
        key = (turn.principal.id, turn.idempotency_key)
        return await self.repeats.ask(key, partial(self._start_once, turn), unheard=_leave)

    async def preview(self, turn: Turn) -> Tokens:
        """The tokens that the model would read of a turn."""
        self._models.find(turn.model)
        await _read(turn)
        return await self._with_named(turn, partial(self._preview, turn))

    async def _preview(self, turn: Turn) -> Tokens:
        model = self._models.find(turn.model)
        if turn.after is not None:
            return await self._intake.preview(turn, model, await self._after(turn, turn.after))
        if turn.session_id is None:
            return await self._intake.preview(turn, model, None)
        known = await self._sessions.fetch(turn.principal.id, turn.session_id)
        if known is None and turn.is_appended:
            raise NotFound("session", turn.session_id)
        # A copy: it may be read in a worker thread, while a leg goes on with the session itself.
        return await self._intake.preview(turn, model, _copy(turn, known))

    async def _after(self, turn: Turn, leg_id: str) -> Found:
        _, session_id = await self._kept.find(turn.principal.id, leg_id)
        found = await self._owners.ask((turn.principal.id, session_id), partial(self._kept.end_of, turn, leg_id))
        return replace(found, session=transfer.snapshot(found.session))

    async def decide(
        self,
        principal: Principal,
        pause_id: str,
        decision: Decision,
        keep_as: KeepAs | None = None,
        requested: Requested | None = None,
    ) -> Run:
        """Answer an approval; its run goes on. Raises NotFound and what `decide` of `decisions` does."""
        self._legs.check_open(principal.id)
        pause = await self._runs.pause(pause_id)
        if pause is None or pause.principal != principal.id or pause.reason is not PauseReason.APPROVAL:
            raise NotFound("approval", pause_id)
        run = await self._runs.find(pause.run_id, principal.id)
        answer = partial(decide, pause_id=pause_id, decision=decision, keep_as=keep_as, requested=requested)
        work = partial(self._decide, principal.id, run.id, answer)
        return await self._owners.ask((principal.id, run.session_id), work)

    async def answer(self, principal: Principal, pause_id: str, reply: Reply, keep_as: KeepAs | None = None) -> Run:
        """Answer a question; its run goes on. Raises NotFound and what `answer` of `inputs` does."""
        self._legs.check_open(principal.id)
        pause = await self._runs.pause(pause_id)
        if pause is None or pause.principal != principal.id or pause.reason is not PauseReason.INPUT:
            raise NotFound("question", pause_id)
        run = await self._runs.find(pause.run_id, principal.id)
        answered = partial(answer, pause_id=pause_id, reply=reply, keep_as=keep_as)
        work = partial(self._decide, principal.id, run.id, answered)
        return await self._owners.ask((principal.id, run.session_id), work)

    async def withdraw(self, run_id: str) -> None:
        """Let a run go on whose question nobody asks any more."""
        run = await self._runs.find(run_id)
        principal = run.record.principal
        await self._owners.ask((principal, run.session_id), partial(self._decide, principal, run_id, withdraw))

    async def _decide(
        self,
        principal: str,
        run_id: str,
        answer: Callable[[Services, Runs, Run, Session], Awaitable[Admitted | None]],
    ) -> Run:
        run = await self._runs.find(run_id)
        model = self._models.expect(run.model)
        model = self._models.shelf.of_run(run_id, model)
        with self._legs.admission(principal), model.uses.held():
            session = await self._runs.session(run)
            admitted = await answer(self._services, self._runs, run, session)
            if admitted is not None:
                self._legs.begin(admitted, session, model, of_request=False)
        return run

    async def _start_once(self, turn: Turn) -> Follower:
        return await self._repeated(turn) or await self._start(turn)

    async def _repeated(self, turn: Turn) -> Follower | None:
        run_id = await self._keys.run_of(turn)
        if run_id is None:
            return None
        try:
            return Follower(await self._runs.find(run_id, turn.principal.id))
        except NotFound:  # its session was in memory only, and is there no more
            return None

    async def _start(self, turn: Turn) -> Follower:
        self._models.find(turn.model)
        self._legs.check_open(turn.principal.id)
        return await self._with_named(turn, partial(self._begin, turn))

    async def _with_named(self, turn: Turn, work: Callable[[], Awaitable[W]]) -> W:
        """Do something with a turn, with what it names of MCP servers at hand.

        That is read while nothing is held: a server may take its time, and what a session has is not read again.
        """
        named = attach.named_last(turn.items)
        while True:
            await attach.read(self._services.offering, turn.principal.id, named, turn.brought)
            try:
                return await work()
            except Unread as unread:
                named = list(unread.named)

    async def _begin(self, turn: Turn) -> Follower:
        model = self._models.find(turn.model)
        self._legs.check_open(turn.principal.id)
        if turn.after is not None:
            return await self._start_after(turn, turn.after, model)
        if turn.session_id is not None:
            return await self._ask(turn, turn.session_id, partial(self._admit_named, turn, turn.session_id, model))
        found = await self._match(turn)
        if found is None:
            return await self._start_new(turn, model)
        session, at = found
        if session.stored is turn.is_stored:
            follower = await self._ask(turn, session.id, partial(self._go_on, turn, session, model))
            if follower is not None:
                return follower
        branch = await self._sessions.branch(turn, session, at)
        if branch is None:
            return await self._start_new(turn, model)
        return await self._ask(turn, branch.session.id, partial(self._admit, turn, model, branch))

    async def _start_after(self, turn: Turn, leg_id: str, model: Model) -> Follower:
        """Go on at the end of a leg: in its session, or in a fork of it where that has gone on or reads otherwise."""
        leg, session_id = await self._kept.find(turn.principal.id, leg_id)
        if turn.session_id not in (None, session_id):
            raise InvalidRequest(
                f"X-Tenuto-Session: the previous response belongs to session {session_id!r}", "X-Tenuto-Session"
            )
        begun = await self._ask(turn, session_id, partial(self._go_on_after, turn, leg.id, model))
        if isinstance(begun, Follower):
            return begun
        return await self._ask(turn, begun.session.id, partial(self._admit, turn, model, begun))

    async def _go_on_after(self, turn: Turn, leg_id: str, model: Model) -> Follower | Found:
        found = await self._kept.end_of(turn, leg_id)
        return found if found.begin else await self._admit(turn, model, found)

    async def _match(self, turn: Turn) -> tuple[Session, int] | None:
        """The session that a turn repeats, and how many of its items.

        What is in memory only stays there: a turn that is stored never goes on from it. One that is not may leave a
        session that is.
        """
        if not turn.match:
            return None
        match = partial(
            self._directory.match,
            turn.principal.id,
            turn.user,
            turn.request_items,
            self._sessions.fetch,
            hint=turn.hint,
        )
        if turn.is_stored:
            return await match()
        return await match(stored=False) or await match()

    async def _start_new(self, turn: Turn, model: Model) -> Follower:
        session = self._directory.new(turn.principal.id, user=turn.user, stored=turn.is_stored)
        return await self._ask(turn, session.id, partial(self._admit, turn, model, Found(session)))

    async def _ask(self, turn: Turn, session_id: str, work: Callable[[], Awaitable[F]]) -> F:
        """Let the owner of a session carry out a command that may begin a leg; a client that has gone leaves it."""
        return await self._owners.ask((turn.principal.id, session_id), work, unheard=_leave)

    async def _admit_named(self, turn: Turn, id: str, model: Model) -> Follower:
        if turn.is_appended:
            session = await self._sessions.expect(turn.principal.id, id)
        else:
            session = await self._directory.get_or_create(turn.principal.id, id, stored=turn.is_stored)
        turn.expect_stored_as(session)
        return await self._admit(turn, model, Found(session, is_named=turn.is_appended))

    async def _go_on(self, turn: Turn, session: Session, model: Model) -> Follower | None:
        """Go on with the session that was found by match, if it is still there and still fits."""
        if await self._directory.get(session.principal, session.id) is not session:
            return None
        if await self._intake.goes_on(turn, session):
            return await self._admit(turn, model, Found(session))
        return None

    async def _admit(self, turn: Turn, model: Model, found: Found) -> Follower:
        if found.session.stored:
            self._services.store.expect_to_write()
        if found.session.open_run is not None:
            model = self._models.shelf.of_run(found.session.open_run, model)
        with model.uses.held():
            return await self._admit_to(turn, model, found)

    async def _admit_to(self, turn: Turn, model: Model, found: Found) -> Follower:
        place = model.engine.reserve(turn.principal.id)
        leg: Leg | None = None
        try:
            with self._legs.admission(turn.principal.id):
                admitted = await self._intake.admit(turn, model, found)
                if turn.tools.requested is not None:
                    self._services.requested.give(turn.tools.requested, admitted.run.id)
                if not found.session.stored:
                    self._keys.remember(turn, admitted.run.id)
                grace_s = GRACE_S if turn.idempotency_key else 0.0
                leg = self._legs.begin(admitted, found.session, model, place=place, of_request=True, grace_s=grace_s)
        finally:
            if leg is None:
                place.give_back()
        return Follower(leg.run)


def _copy(turn: Turn, session: Session | None) -> Found | None:
    return None if session is None else Found(transfer.snapshot(session), is_named=turn.is_appended)


async def _leave(begun: Follower | Found | None) -> None:
    """Nobody waits for the leg that a command has begun."""
    if isinstance(begun, Follower):
        await begun.disconnected()


async def _read(turn: Turn) -> None:
    """Look at what a turn tells, in a worker thread where that is long."""
    if not DIGESTED.holds(turn.items):
        await anyio.to_thread.run_sync(turn.request_items.read)
