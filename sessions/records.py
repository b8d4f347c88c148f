"""What is kept of runs, calls and pauses: plain frozen facts, one for each row of the store."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from tenuto.sessions.questions import Question


class RunStatus(StrEnum):
    """Where a run stands. The first two are open, the others ended."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"

    @property
    def is_open(self) -> bool:
        """Whether the run may still go on."""
        return self in (RunStatus.RUNNING, RunStatus.PAUSED)


class PauseReason(StrEnum):
    """What a paused run is waiting for."""

    CLIENT_TOOL = "client_tool"
    APPROVAL = "approval"
    INPUT = "input"


class CallStatus(StrEnum):
    """Where a tool call stands."""

    WAITING = "waiting"
    STARTED = "started"
    FINISHED = "finished"


class PauseStatus(StrEnum):
    """Where an approval or question stands."""

    OPEN = "open"
    APPROVED = "approved"
    DENIED = "denied"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run. Times are seconds since the epoch. `options` is what is needed to go on with it after a restart: JSON
    values, and as `Shared` the `tools` and the `answer_schema`, which repeat from run to run.

    `first_item` is the index, among the session's items, of the first item that the run's request brought.
    `usage` holds the figures of the rounds so far.
    """

    id: str
    session_uid: str
    principal: str
    model: str
    status: RunStatus
    created_at: float
    updated_at: float
    first_item: int
    options: dict[str, Any]
    usage: dict[str, Any]
    reason: PauseReason | None = None
    stop_reason: str | None = None
    expires_at: float | None = None
    error: str | None = None
    input_digest: str | None = None
    """Names the items that the request brought, to recognise an identical repeat while the run is open."""
    answer: dict[str, Any] | None = None
    """What the client was told at the end, for a repeat with the same Idempotency-Key."""


@dataclass(frozen=True, slots=True)
class LegRecord:
    """What one request led to, of a run that several may have answered. Only those are kept that a client can ask for
    by their ids. Times are seconds since the epoch.

    The request's own items are the session's from `first_item` up to `first_said`. `until` is how many items the
    session had at the leg's end; None while it is under way, and for good where its items have been cut from the
    session. `request` is what its front end wants to know of the request again.
    """

    id: str
    run_id: str
    session_uid: str
    principal: str
    model: str
    first_item: int
    first_said: int
    created_at: float
    request: dict[str, Any]
    until: int | None = None
    status: RunStatus = RunStatus.RUNNING
    ended_at: float | None = None
    usage: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None
    """What its client was told at the end besides its events."""
    progress: dict[str, Any] | None = None
    """Of one that goes on after a crash, while it is under way: where it stands, beside what it has told and
    sampled."""

    def ended(self, end: "LegEnd") -> "LegRecord":
        """The same, over."""
        return replace(
            self,
            until=end.until,
            status=end.status,
            ended_at=end.ended_at,
            usage=end.usage,
            answer=end.answer,
            progress=None,
        )


@dataclass(frozen=True, slots=True)
class UnfinishedLeg:
    """A leg that was under way when its process ended: what it has told, in the pieces in which it was kept, and the
    tokens of its open round that were sampled, with their logprobs where these are told."""

    record: LegRecord
    told: tuple[str, ...]
    sampled: tuple[int, ...]
    logprobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LegEnd:
    """How the leg that is under way in a run has ended. The fields are those of the leg's record."""

    run_id: str
    session_uid: str
    until: int
    status: RunStatus
    ended_at: float
    usage: dict[str, Any] | None
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OpenRun:
    """Where an open run is found: enough to close it, even where the rest of its row cannot be read."""

    id: str
    principal: str
    session_id: str
    status: str
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One tool call of a run. `position` counts the calls of its round. `repeatable`: it may be called again after a
    crash, because it is annotated read-only or idempotent. `result` is a stored tool-result item."""

    run_id: str
    call_id: str
    round: int
    position: int
    name: str
    arguments: str
    server: bool
    status: CallStatus
    repeatable: bool = False
    result: str | None = None
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class PauseRecord:
    """An approval asked of a person, or a question to one. It is answered once."""

    id: str
    run_id: str
    session_uid: str
    principal: str
    reason: PauseReason
    call_id: str
    tool: str
    arguments: str
    status: PauseStatus
    created_at: float
    expires_at: float
    message: str | None = None
    remember: bool = False
    decided_at: float | None = None
    question: Question | None = None
    """What is asked, where it is no approval. What is answered is not kept."""

    def ended(self, status: PauseStatus, now: float, message: str | None = None, *, remember: bool = False) -> Self:
        """The same, answered or over."""
        return replace(self, status=status, message=message, remember=remember, decided_at=now)


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What an Idempotency-Key stands for: a run, and the digest of the body that came with it."""

    run_id: str
    body_digest: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as a list shows it, without its items."""

    uid: str
    id: str
    created_at: float
    updated_at: float
    implicit: bool
    user: str | None
    expires_at: float | None
    open_run: str | None
    items: int
