"""What a front end may ask of the loop, whatever it speaks: turns, runs, approvals, sessions, tools and how all do."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from tenuto.pipelines.embedding import TextTokens, Vectors
from tenuto.runtime.loop.conversations import PartPage
from tenuto.runtime.loop.engine_line import EngineHealth
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.imported import DroppedLedger
from tenuto.runtime.loop.models import EmbeddingModel, Models
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.runtime.loop.raw import RawRequest, RawRun
from tenuto.runtime.loop.requests import KeepAs, Turn
from tenuto.runtime.loop.run import Run
from tenuto.sessions.items import Item
from tenuto.sessions.parts import NamedPart
from tenuto.sessions.principal import Principal
from tenuto.sessions.records import PauseRecord, SessionSummary
from tenuto.sessions.session import Session
from tenuto.sessions.tokens import Tokens
from tenuto.tools.asking import Reply
from tenuto.tools.host.requested import Requested, RequestedServer
from tenuto.tools.registry import Registry
from tenuto.tools.spec import Caller, ToolResult

Progress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told how far a tool is: so much, of how much, in words."""


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """How the loop does.

    `working` runs are at work, `waiting` ones wait for a client or a person. `memory` is about how many bytes each
    table takes of what may be forgotten, besides caches.
    """

    is_draining: bool
    store_trouble: str | None
    """Why the store cannot write; None where it can."""
    engines: Mapping[str, EngineHealth]
    working: int
    waiting: int
    sessions: int
    """How many are in memory."""
    memory: Mapping[str, int]


class LoopPort(Protocol):
    """The loop as front ends see it. Event-loop thread only.

    A principal's requests find what is its own: anything else is `NotFound`. Errors of these calls are TenutoErrors,
    raised before anything has changed, except where a method says otherwise.
    """

    models: Models
    registry: Registry
    """The tools that the server runs."""

    def health(self) -> LoopHealth:
        """How it does now."""

    # Turns.

    async def start(self, turn: Turn) -> Follower:
        """Admit a turn and begin or resume its run. A repeat of an Idempotency-Key gets the run that it began.

        Raises InvalidRequest and its kin, NotFound (the model), SessionBusy, SessionPaused, IdempotencyMismatch,
        Overloaded, ShuttingDown, StoreUnavailable. MissingToolResults keeps the results that came.
        """

    async def preview(self, turn: Turn) -> Tokens:
        """The tokens that the model would read of a turn. Raises what `start` does of a turn that is not valid."""

    def complete(self, request: RawRequest) -> RawRun:
        """Begin a raw completion, which whoever reads it must read to its end or close.

        Raises what `RawRun` does, NotFound (the model), Overloaded and ShuttingDown.
        """

    async def embed(self, principal: Principal, model: EmbeddingModel, texts: Sequence[TextTokens]) -> Vectors:
        """Vectors of texts, or scores of pairs: a row for each. Whoever asks has the model in use, until this returns.
        Whoever is cancelled gives up the rest of them.

        Raises InvalidRequest and ContextTooLong (`param` is `input[0]`), GenerationFailed, Overloaded, ShuttingDown.
        """

    # Runs.

    async def run(self, principal: Principal, run_id: str) -> Run:
        """A run by its id, at work, waiting or ended. Raises NotFound."""

    async def cancel(self, principal: Principal, run_id: str) -> Run:
        """Stop a run, the model within a step, tools by a cancel; give it when it has ended. Raises NotFound."""

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
        """Answer an approval; its run goes on, and what it answers can be asked for again where `keep_as` says so.

        `requested` are the servers that are the run's from then on, in the place of those that it had.

        Raises:
            NotFound: there is none.
            AlreadyDecided: it has been answered, has expired, or its run has ended.
            Conflict: it approves a call whose server came with a request, and is not known any more.
        """

    async def answer(self, principal: Principal, pause_id: str, reply: Reply, keep_as: KeepAs | None = None) -> Run:
        """Answer what a server asks in the middle of a call; its run goes on, and is kept as `decide` says.

        Raises:
            NotFound: there is no such question.
            InvalidRequest: the answer does not fit; the question stays open.
            AlreadyDecided: it has been answered, has expired, or its run has ended.
        """

    async def questions(self, principal: Principal) -> list[PauseRecord]:
        """What the principal's runs ask a person, the oldest first."""

    # Legs whose clients can ask for them again: those of turns and decisions with `keep_as`.

    async def leg(self, principal: Principal, id: str) -> Follower | PastLeg:
        """A kept leg by its id, under way or over. Raises LegNotFound."""

    async def cancel_leg(self, principal: Principal, id: str) -> Follower | PastLeg:
        """Stop a kept leg, where it is under way; give it when it is over. Raises LegNotFound, SessionBusy."""

    async def forget_leg(self, principal: Principal, id: str) -> None:
        """Stop a kept leg and forget it; its session keeps what was said. Raises LegNotFound, SessionBusy."""

    async def brought(self, principal: Principal, id: str) -> Sequence[Item]:
        """The items that the request of a kept leg has brought. Raises LegNotFound, Conflict (they are cut)."""

    # Sessions.

    async def list_sessions(
        self, principal: Principal, *, implicit: bool, limit: int, after: str | None
    ) -> list[SessionSummary]:
        """The principal's stored sessions, newest first."""

    async def run_ids(self, principal: Principal, session_id: str, *, limit: int) -> list[str]:
        """The ids of a session's stored runs, the newest first. Raises NotFound."""

    async def fork_session(self, principal: Principal, id: str, at: int | None, new_id: str | None) -> Session:
        """A session of its own over completed items. Raises NotFound, InvalidRequest, Conflict."""

    async def delete_session(self, principal: Principal, id: str) -> None:
        """Delete a session, also one that cannot be read; its open run is cancelled first. Raises NotFound."""

    async def snapshot(self, principal: Principal, id: str) -> Session:
        """A session as it is now, whatever becomes of it, to be read in any thread. Raises NotFound."""

    async def export_session(self, principal: Principal, id: str, *, raw: bool = False) -> dict[str, Any]:
        """A session as a document that `import_session` reads; `raw`: all rows of it as they are. Raises NotFound."""

    async def export_pages(self, principal: Principal, id: str) -> Iterator[bytes]:
        """The JSON text of the same document in pieces, made as they are asked for, in any thread. Raises NotFound."""

    async def import_session(
        self, principal: Principal, id: str, document: dict[str, Any]
    ) -> tuple[Session, list[DroppedLedger]]:
        """Import a session, replacing the one with that id; what of its ledgers is not believed is left out and told.

        Raises InvalidRequest, SessionBusy.
        """

    async def keep_imported(self, session: Session) -> tuple[Session, list[DroppedLedger]]:
        """The same of what `transfer.restore` has made of a document. Raises SessionBusy."""

    # Conversations: what is in a session, by the parts that have names.

    async def begin_session(
        self, principal: Principal, id: str, items: Sequence[Item], metadata: Mapping[str, str]
    ) -> Session:
        """A new session of this id with these items. Raises InvalidRequest, Conflict (there is one)."""

    async def session(self, principal: Principal, id: str) -> Session:
        """A session, of which only the row may be read. Raises NotFound."""

    async def describe_session(self, principal: Principal, id: str, metadata: Mapping[str, str]) -> Session:
        """Let a session have this metadata. Raises NotFound."""

    async def add_items(self, principal: Principal, id: str, items: Sequence[Item]) -> Sequence[NamedPart]:
        """Add items at a session's end, without an answer; the parts that they are.

        Raises NotFound, InvalidRequest, SessionBusy, SessionPaused.
        """

    async def parts(
        self, principal: Principal, id: str, after: str | None, limit: int, *, newest_first: bool
    ) -> PartPage:
        """Some parts of a session, those after one of this name. Raises NotFound, InvalidRequest (`after`)."""

    async def part(self, principal: Principal, id: str, name: str) -> NamedPart:
        """One part of a session. Raises NotFound."""

    async def remove_part(self, principal: Principal, id: str, name: str) -> Session:
        """Take a part out of a session, a call with its result. Raises NotFound, SessionBusy, SessionPaused."""

    # Tools.

    def connected(
        self, principal: Principal, servers: Sequence[RequestedServer]
    ) -> AbstractAsyncContextManager[Requested]:
        """The servers that a request brings by their URLs, connected. After the block they are let go, unless a run has
        begun with them: then they are the run's.

        Raises UnsupportedParameter and InvalidRequest (they may not be called), McpServerFailed, Overloaded,
        ShuttingDown.
        """

    def needs_word(self, principal: Principal, name: str) -> bool:
        """Whether a person must be asked before this principal calls a tool from outside any session."""

    async def call_tool(
        self,
        principal: Principal,
        name: str,
        arguments: dict[str, Any],
        caller: Caller,
        *,
        approved: bool = False,
    ) -> ToolResult:
        """Call a server's tool from outside any session. A person who asks for it has approved it; a denial stays one.

        `approved`: a person has been asked about this very call.
        """
