"""Questions to the store about legs: plain functions from a connection to facts. No change, no thread."""

import json

from sqlalchemy import Connection, RowMapping, bindparam, select

from tenuto.sessions.records import LegRecord, RunStatus, UnfinishedLeg
from tenuto.sessions.storage import tables
from tenuto.sessions.storage.rows import LEG_TEXTS
from tenuto.sessions.storage.writes import unpack


def leg(connection: Connection, id: str) -> LegRecord | None:
    """A leg by its id."""
    query = select(tables.legs).where(tables.legs.c.id == bindparam("named"))
    row = connection.execute(query, {"named": id}).mappings().first()
    return None if row is None else _leg(row)


def unfinished(connection: Connection, run_id: str) -> UnfinishedLeg | None:
    """The leg of a run that was under way when its process ended, where it is one that goes on."""
    table = tables.legs
    is_open = table.c.status == RunStatus.RUNNING.value
    query = select(table).where(table.c.run_id == bindparam("named"), is_open, table.c.progress.is_not(None))
    row = connection.execute(query, {"named": run_id}).mappings().first()
    if row is None:
        return None
    record = _leg(row)
    tokens: list[int] = []
    logprobs: list[str] = []
    sampled = tables.sampled
    pieces = select(sampled.c.tokens, sampled.c.logprobs).where(sampled.c.leg_id == bindparam("named"))
    for packed, of_piece in connection.execute(pieces.order_by(sampled.c.start), {"named": record.id}):
        tokens += unpack(packed)
        logprobs += [] if of_piece is None else [of_piece]
    return UnfinishedLeg(record, tuple(told(connection, record.id)), tuple(tokens), tuple(logprobs))


def told(connection: Connection, id: str) -> list[str]:
    """What a leg has told, in the pieces in which it was kept."""
    table = tables.told
    query = select(table.c.events).where(table.c.leg_id == bindparam("named")).order_by(table.c.start)
    return list(connection.execute(query, {"named": id}).scalars())


def _leg(row: RowMapping) -> LegRecord:
    read = {name: None if row[name] is None else json.loads(row[name]) for name in LEG_TEXTS}
    return LegRecord(**{**row, **read, "status": RunStatus(row["status"])})


def run_ids(connection: Connection, uid: str, limit: int) -> list[str]:
    """The ids of so many runs of a session, the newest first."""
    table = tables.runs
    query = select(table.c.id).where(table.c.session_uid == bindparam("named"))
    newest = query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit)
    return list(connection.execute(newest, {"named": uid}).scalars())
