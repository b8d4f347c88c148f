"""What is asked of people, as it is read from the store. Each function is one read transaction's work."""

import json

from sqlalchemy import Connection, RowMapping, bindparam, select

from tenuto.sessions.questions import Question
from tenuto.sessions.records import PauseReason, PauseRecord, PauseStatus
from tenuto.sessions.storage import tables


def pause(connection: Connection, pause_id: str) -> PauseRecord | None:
    """A pause by its id."""
    query = select(tables.pauses).where(tables.pauses.c.id == bindparam("named"))
    row = connection.execute(query, {"named": pause_id}).mappings().first()
    return _pause(row) if row else None


def run_pauses(connection: Connection, run_id: str) -> list[PauseRecord]:
    """All pauses of a run, the oldest first."""
    table = tables.pauses
    query = select(table).where(table.c.run_id == bindparam("named")).order_by(table.c.created_at, table.c.id)
    return [_pause(row) for row in connection.execute(query, {"named": run_id}).mappings()]


def open_pauses(connection: Connection) -> list[PauseRecord]:
    """All pauses that wait for an answer, the oldest first."""
    table = tables.pauses
    query = select(table).where(table.c.status == PauseStatus.OPEN.value).order_by(table.c.created_at, table.c.id)
    return [_pause(row) for row in connection.execute(query).mappings()]


def open_questions(connection: Connection, principal: str, most: int) -> list[PauseRecord]:
    """What a principal's runs ask a person, the oldest first."""
    table = tables.pauses
    asked = (table.c.principal == bindparam("named"), table.c.reason == PauseReason.INPUT.value)
    query = select(table).where(*asked, table.c.status == PauseStatus.OPEN.value)
    query = query.order_by(table.c.created_at, table.c.id).limit(most)
    return [_pause(row) for row in connection.execute(query, {"named": principal}).mappings()]


def _pause(row: RowMapping) -> PauseRecord:
    question = None if row["question"] is None else Question.load(json.loads(row["question"]))
    kinds = {"reason": PauseReason(row["reason"]), "status": PauseStatus(row["status"])}
    return PauseRecord(**{**row, **kinds, "question": question})
