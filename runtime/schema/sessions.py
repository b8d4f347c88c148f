"""Sessions as Tenuto shows them, alike in every front end."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from pydantic import Field

from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.imported import DroppedLedger
from tenuto.sessions.records import SessionSummary
from tenuto.sessions.session import Session


class SummaryAnswer(Shape):
    """A session as a list shows it."""

    id: str
    object: Literal["session"]
    created_at: float
    updated_at: float
    implicit: bool = Field(description="No client gave it an id; by default it is kept for a day.")
    user: str | None
    expires_at: float | None
    open_run: str | None = Field(description="The run that is working or paused in it.")
    num_items: int


class SessionsAnswer(Shape):
    """A page of sessions."""

    object: Literal["list"]
    data: list[SummaryAnswer]
    last_id: str | None = Field(description="Pass it as `after` to get the next page.")
    has_more: bool


class OriginAnswer(Shape):
    """Where a fork comes from."""

    at: int


class SessionAnswer(Shape):
    """A session that was made."""

    id: str
    object: Literal["session"]
    created_at: float
    updated_at: float
    implicit: bool
    stored: bool
    expires_at: float | None
    num_items: int
    parent: OriginAnswer | None


class DroppedLedgerAnswer(Shape):
    """Tokens of a document that are not taken over: they could not be held to say what the items say."""

    fingerprint: str
    reason: str
    kept_items: int = Field(description="Number of items at the beginning whose tokens were imported.")


class ImportedAnswer(SessionAnswer):
    """A session that was made of a document."""

    dropped_ledgers: list[DroppedLedgerAnswer]


class DeletedAnswer(Shape):
    """A session that is no more."""

    id: str
    object: Literal["session.deleted"]
    deleted: Literal[True]


def session_answer(session: Session) -> SessionAnswer:
    """A session that was just made or changed, without its items."""
    return SessionAnswer(
        id=session.id,
        object="session",
        created_at=session.created_at,
        updated_at=session.updated_at,
        implicit=session.implicit,
        stored=session.stored,
        expires_at=session.expires_at,
        num_items=len(session.items),
        parent=None if session.parent is None else OriginAnswer(at=session.parent.at),
    )


def imported_answer(session: Session, dropped: Sequence[DroppedLedger]) -> ImportedAnswer:
    """A session that was made of a document, and what of it was not taken over."""
    ledgers = [DroppedLedgerAnswer(**asdict(each)) for each in dropped]
    return ImportedAnswer(**dict(session_answer(session)), dropped_ledgers=ledgers)


def summary_answer(summary: SessionSummary) -> SummaryAnswer:
    """A session as a list shows it."""
    return SummaryAnswer(
        id=summary.id,
        object="session",
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        implicit=summary.implicit,
        user=summary.user,
        expires_at=summary.expires_at,
        open_run=summary.open_run,
        num_items=summary.items,
    )


def session_page(found: Sequence[SessionSummary], limit: int) -> SessionsAnswer:
    """A page of a list of which one more than `limit` was asked for."""
    page = found[:limit]
    return SessionsAnswer(
        object="list",
        data=[summary_answer(each) for each in page],
        last_id=page[-1].id if page else None,
        has_more=len(found) > limit,
    )


def deleted_answer(id: str) -> DeletedAnswer:
    """A session that is no more."""
    return DeletedAnswer(id=id, object="session.deleted", deleted=True)
