"""A fork of a session: a copy of what is completed of it, with its tokens and notes. Pure."""

from collections.abc import Sequence

from tenuto.errors import InvalidRequest
from tenuto.sessions.ids import checked_new_session_id, new_hex
from tenuto.sessions.items import Item
from tenuto.sessions.rounds import completed, last_completed_turn
from tenuto.sessions.session import Parent, Session, new_uid
from tenuto.sessions.visible import VisibleHistory


def forked(
    session: Session,
    now: float,
    at: int | None = None,
    new_id: str | None = None,
    *,
    implicit: bool | None = None,
    stored: bool | None = None,
) -> Session:
    """A session of its own with completed items, their tokens, and the notes; nobody's approvals hold in it.

    `at`: how many items at most (default: up to the end of the last completed turn); a round whose calls are not
    all answered is left out. Without `implicit`, it is implicit where its origin is and it has no `new_id`; without
    `stored`, it is stored where its origin is.

    Raises:
        InvalidRequest: `at` or `new_id` is not valid.
    """
    if new_id is not None:
        checked_new_session_id(new_id, "new_id")
    if at is not None and not 0 <= at <= len(session.items):
        raise InvalidRequest(f"at is {at}; the session has {len(session.items)} items", "at")
    keep = last_completed_turn(session.items) if at is None else completed(session.items, at)
    return Session(
        uid=new_uid(now),
        principal=session.principal,
        id=new_id or f"session-{new_hex()}",
        created_at=now,
        updated_at=now,
        implicit=session.implicit and new_id is None if implicit is None else implicit,
        stored=session.stored if stored is None else stored,
        user=session.user,
        parent=Parent(session.uid, keep),
        items=session.items[:keep],
        ledgers={name: ledger.copy(keep) for name, ledger in session.ledgers.items()},
        server_tools=session.server_tools,
        server_instructions=session.server_instructions,
        instructed=session.instructed and keep > 0,
        notes={**session.notes},
        history=session.history.copy(),
    )


def begin_as(fork: Session, origin: Session, at: int, instructions: Sequence[Item]) -> None:
    """Let a fork that nobody has yet begin with the first `at` items of its origin as they are, calls that wait too.

    The first, where it was for one answer only, gives way to these instructions.
    """
    fork.parent = Parent(origin.uid, at)
    fork.items = [*instructions, *origin.items[origin.instructed : at]]
    fork.instructed = bool(instructions)
    is_same = list(instructions) == origin.items[: origin.instructed]
    fork.ledgers = {name: ledger.copy(at) for name, ledger in origin.ledgers.items()} if is_same else {}
    fork.history = origin.history.copy() if is_same else VisibleHistory()
