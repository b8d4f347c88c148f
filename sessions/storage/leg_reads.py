"""Questions to the store about legs: plain functions from a connection to facts. No change, no thread."""

import json

from sqlalchemy import Connection, bindparam, select

from tenuto.sessions.records import LegRecord, RunStatus
from tenuto.sessions.storage import tables


def leg(connection: Connection, id: str) -> LegRecord | None:
    """A leg by its id."""
    query = select(tables.legs).where(tables.legs.c.id == bindparam("named"))
    row = connection.execute(query, {"named": id}).mappings().first()
    if row is None:
        return None
    read = {name: None if row[name] is None else json.loads(row[name]) for name in ("request", "usage", "answer")}
    return LegRecord(**{**row, **read, "status": RunStatus(row["status"])})


def told(connection: Connection, id: str) -> list[str]:
    """What a leg has told, in the pieces in which it was kept."""
    table = tables.told
    query = select(table.c.events).where(table.c.leg_id == bindparam("named")).order_by(table.c.start)
    return list(connection.execute(query, {"named": id}).scalars())
