"""Questions to the store: plain functions from a connection to facts. No change, no thread."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Select, and_, bindparam, or_, select, union

from tenuto.errors import InvalidRequest, SessionDamaged
from tenuto.sessions.blobs import BLOCKS, SCHEMAS, TOOLS, Pool, Shared
from tenuto.sessions.items import Item, item_from_json
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.records import (
    CallRecord,
    CallStatus,
    KeyRecord,
    OpenRun,
    PauseReason,
    RunRecord,
    RunStatus,
    SessionSummary,
)
from tenuto.sessions.session import Parent, Session
from tenuto.sessions.storage import tables
from tenuto.sessions.storage.bases import joined
from tenuto.sessions.storage.rows import shortened
from tenuto.sessions.storage.writes import OPEN, is_working, unpack

T = TypeVar("T")

_DIGESTS_A_QUERY = 500

MOST_CANDIDATES = 16
"""How many sessions of one digest are named; so many are too many to tell apart."""

_MOST_FURTHER = 4
"""How many are named of those that have gone further: each is as good as the others, where they are the same so far."""


def _one(connection: Connection, query: Select[Any], **values: Any) -> RowMapping | None:
    return connection.execute(query, values).mappings().first()


def _all(connection: Connection, query: Select[Any], **values: Any) -> Sequence[RowMapping]:
    return connection.execute(query, values).mappings().all()


def session(connection: Connection, principal: str, id: str) -> Session | None:
    """A session by what its client calls it."""
    table = tables.sessions
    query = select(table).where(table.c.principal == bindparam("of"), table.c.id == bindparam("named"))
    row = _one(connection, query, of=principal, named=id)
    return _session(connection, row) if row else None


def session_by_uid(connection: Connection, uid: str) -> Session | None:
    """A session by its uid."""
    row = _one(connection, select(tables.sessions).where(tables.sessions.c.uid == bindparam("named")), named=uid)
    return _session(connection, row) if row else None


def address(connection: Connection, uid: str) -> tuple[str, str] | None:
    """The principal and id of a session."""
    table = tables.sessions
    row = _one(connection, select(table.c.principal, table.c.id).where(table.c.uid == bindparam("named")), named=uid)
    return (row["principal"], row["id"]) if row else None


def _session(connection: Connection, row: RowMapping) -> Session:
    try:
        return _whole_session(connection, row)
    except _Hole as exc:
        raise SessionDamaged(row["id"], str(exc)) from exc
    except (ValueError, TypeError, KeyError) as exc:  # what was written by another version, or by nobody of ours
        raise SessionDamaged(row["id"], f"what was stored cannot be read ({type(exc).__name__})") from exc


def _whole_session(connection: Connection, row: RowMapping) -> Session:
    uid, tools = row["uid"], row["server_tools"]
    parent = None if row["parent_uid"] is None else Parent(row["parent_uid"], row["parent_at"])
    names = (
        *("uid", "principal", "id", "created_at", "updated_at", "implicit", "user", "hint", "expires_at", "open_run"),
        "instructed",
    )
    items = _items(connection, uid)
    session = Session(
        **{name: row[name] for name in names},
        parent=parent,
        items=items,
        ledgers=_ledgers(connection, uid),
        server_tools=None if tools is None else _shared(connection, TOOLS, tools).value,
        server_instructions=json.loads(row["server_instructions"] or "{}"),
        approved=frozenset(json.loads(row["approved"])),
        metadata=json.loads(row["metadata"] or "{}"),
        removed=tuple(json.loads(row["removed"] or "[]")),
        notes=notes(connection, uid),
    )
    session.history.follow(items)  # here, in a reader's thread, and not when it is first asked for
    return session


def _shared(connection: Connection, pool: Pool[T], digest: str) -> Shared[T]:
    """What a row names by its digest."""
    known = pool.known(digest)
    if known is not None:
        return known
    query = select(tables.blobs.c.body).where(tables.blobs.c.digest == bindparam("named"))
    body = connection.execute(query, {"named": digest}).scalar_one_or_none()
    if body is None:
        raise _Hole(f"the blob {digest} is missing")
    return pool.read(digest, bytes(body))


def _items(connection: Connection, uid: str) -> list[Item]:
    table = tables.items
    query = select(table.c.position, table.c.body).where(table.c.uid == bindparam("named")).order_by(table.c.position)
    rows = connection.execute(query, {"named": uid}).all()
    _expect_positions("item", [row[0] for row in rows])
    return [item_from_json(row[1]) for row in rows]


def _ledgers(connection: Connection, uid: str) -> dict[str, Ledger]:
    table = tables.spans
    blobs = tables.blobs
    query = (
        select(table.c.fingerprint, table.c.position, table.c.tokens, table.c.base, table.c.head, table.c.tail)
        .add_columns(blobs.c.body)
        .outerjoin(blobs, blobs.c.digest == table.c.base)
        .where(table.c.uid == bindparam("named"))
        .order_by(table.c.fingerprint, table.c.position)
    )
    ledgers: dict[str, Ledger] = {}
    positions: dict[str, list[int]] = {}
    for name, position, tokens, base, head, tail, body in connection.execute(query, {"named": uid}):
        if base is not None and body is None:
            raise _Hole(f"the blob {base} is missing")
        ledgers.setdefault(name, Ledger(name)).append(unpack(joined(tokens, body, head, tail)))
        positions.setdefault(name, []).append(position)
    for name, found in positions.items():
        _expect_positions(f"span of {name}", found)
    return ledgers


class _Hole(Exception):
    """Something is missing in the middle of a session."""


def _expect_positions(what: str, positions: list[int]) -> None:
    """A hole would shift every later item; such a session is not used."""
    for expected, position in enumerate(positions):
        if expected != position:
            raise _Hole(f"{what} {expected} is missing")


def summaries(
    connection: Connection, principal: str, *, implicit: bool, limit: int, after: str | None
) -> list[SessionSummary]:
    """A principal's sessions, the newest first; `after` is the id of the last one of the page before.

    Raises:
        InvalidRequest: there is no session `after`.
    """
    table = tables.sessions
    names = ("uid", "id", "created_at", "updated_at", "implicit", "user", "expires_at", "open_run", "items")
    query = select(*(table.c[name] for name in names)).where(table.c.principal == principal)
    if not implicit:
        query = query.where(table.c.implicit.is_(False))
    if after is not None:
        last = select(table.c.created_at).where(table.c.principal == principal, table.c.id == after)
        created = connection.execute(last).scalar_one_or_none()
        if created is None:
            raise InvalidRequest(f"there is no session {after!r} to continue after", "after")
        older = table.c.created_at < created
        query = query.where(or_(older, and_(table.c.created_at == created, table.c.id < after)))
    query = query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit)
    return [SessionSummary(**row) for row in connection.execute(query).mappings()]


def run(connection: Connection, run_id: str) -> RunRecord | None:
    """A run by its id."""
    row = _one(connection, select(tables.runs).where(tables.runs.c.id == bindparam("named")), named=run_id)
    return _run(connection, row) if row else None


def open_runs(connection: Connection) -> list[OpenRun]:
    """Where to find each run that may still go on, the oldest first."""
    runs, sessions = tables.runs, tables.sessions
    query = (
        select(runs.c.id, sessions.c.principal, sessions.c.id.label("session_id"), runs.c.status, runs.c.expires_at)
        .join(sessions, sessions.c.uid == runs.c.session_uid)
        .where(runs.c.status.in_(OPEN))
        .order_by(runs.c.created_at, runs.c.id)
    )
    return [OpenRun(**row) for row in _all(connection, query)]


def session_runs(connection: Connection, uid: str) -> list[RunRecord]:
    """All runs of a session, the oldest first."""
    table = tables.runs
    query = select(table).where(table.c.session_uid == bindparam("named")).order_by(table.c.created_at, table.c.id)
    return [_run(connection, row) for row in _all(connection, query, named=uid)]


def _run(connection: Connection, row: RowMapping) -> RunRecord:
    values = dict(row)
    tools, schema = values.pop("tools"), values.pop("answer_schema")
    values["status"] = RunStatus(values["status"])
    values["reason"] = None if values["reason"] is None else PauseReason(values["reason"])
    values["options"], values["usage"] = json.loads(values["options"]), json.loads(values["usage"])
    values["answer"] = None if values["answer"] is None else json.loads(values["answer"])
    with suppress(_Hole, ValueError, TypeError, KeyError):  # then the run cannot go on, but be told of and ended
        if tools is not None:
            values["options"]["tools"] = _shared(connection, BLOCKS, tools)
        if schema is not None:
            values["options"]["answer_schema"] = _shared(connection, SCHEMAS, schema)
    return RunRecord(**values)


def calls(connection: Connection, run_id: str) -> list[CallRecord]:
    """A run's calls in the order in which the model made them."""
    table = tables.calls
    query = select(table).where(table.c.run_id == bindparam("named")).order_by(table.c.round, table.c.position)
    rows = _all(connection, query, named=run_id)
    return [CallRecord(**{**row, "status": CallStatus(row["status"])}) for row in rows]


def key(connection: Connection, principal: str, key: str) -> KeyRecord | None:
    """What an Idempotency-Key stands for; the caller looks at the time."""
    table = tables.keys
    query = select(table.c.run_id, table.c.body_digest, table.c.expires_at).where(
        table.c.principal == bindparam("of"), table.c.key == bindparam("named")
    )
    row = _one(connection, query, of=principal, named=key)
    return KeyRecord(**row) if row else None


def notes(connection: Connection, scope: str) -> dict[str, str]:
    """All notes of a scope, in the order in which their keys were first written."""
    table = tables.notes
    query = select(table.c.key, table.c.text).where(table.c.scope == bindparam("of")).order_by(table.c.position)
    return {row["key"]: row["text"] for row in _all(connection, query, of=scope)}


def candidates(
    connection: Connection, principal: str, user: str | None, digests: Sequence[str]
) -> list[tuple[str, int]]:
    """The sessions that have the first of `digests` that any has, and how many of their items it names.

    First those of which it names all, at most MOST_CANDIDATES, then some of which it names all up to the end of a turn.
    """
    sessions, turns = tables.sessions, tables.turns
    same_user = sessions.c.user.is_(None) if user is None else sessions.c.user == user
    count, end = sessions.c["items"], turns.c.position + 1
    digests = [*map(shortened, digests)]
    whole = select(sessions.c.uid, count).where(sessions.c.principal == principal, same_user)
    further = (
        select(turns.c.uid, end)
        .join(sessions, sessions.c.uid == turns.c.uid)
        .where(turns.c.principal == principal, same_user, end < count)
    )
    for start in range(0, len(digests), _DIGESTS_A_QUERY):
        part = digests[start : start + _DIGESTS_A_QUERY]
        named = union(
            whole.with_only_columns(sessions.c.visible_digest).where(sessions.c.visible_digest.in_(part)),
            further.with_only_columns(turns.c.digest).where(turns.c.digest.in_(part)),
        )
        present = set(connection.execute(named).scalars())
        best = next((digest for digest in part if digest in present), None)
        if best is not None:
            all_of = whole.where(sessions.c.visible_digest == best).limit(MOST_CANDIDATES)
            part_of = further.where(turns.c.digest == best).limit(_MOST_FURTHER)
            rows = [*connection.execute(all_of), *connection.execute(part_of)]
            return [(uid, at) for uid, at in rows]
    return []


def blobs_after(connection: Connection, digest: str, limit: int) -> list[str]:
    """The digests of blobs that come after one, in order."""
    table = tables.blobs
    query = select(table.c.digest).where(table.c.digest > digest).order_by(table.c.digest).limit(limit)
    return list(connection.execute(query).scalars())


def expired(connection: Connection, now: float, limit: int) -> list[tuple[str, str]]:
    """The principal and id of the sessions that are past their time and have no open run, the oldest first."""
    table = tables.sessions
    query = select(table.c.principal, table.c.id).where(table.c.expires_at <= now, ~is_working())
    rows = connection.execute(query.order_by(table.c.expires_at).limit(limit))
    return [(principal, id) for principal, id in rows]


def uid(connection: Connection, principal: str, id: str) -> str | None:
    """The uid of a session by what its client calls it."""
    table = tables.sessions
    query = select(table.c.uid).where(table.c.principal == principal, table.c.id == id)
    return connection.execute(query).scalar_one_or_none()


def expired_uid(connection: Connection, principal: str, id: str, now: float) -> str | None:
    """The uid of a session, if it is past its time and has no open run."""
    table = tables.sessions
    named = select(table.c.uid).where(table.c.principal == principal, table.c.id == id)
    return connection.execute(named.where(table.c.expires_at <= now, ~is_working())).scalar_one_or_none()


def raw(connection: Connection, uid: str) -> dict[str, Any]:
    """All rows of a session as they are, as JSON values; bytes are in hexadecimal digits."""
    found = {
        table.name: _all(connection, select(table).where(table.c[column] == bindparam("named")), named=uid)
        for table, column in (
            (tables.sessions, "uid"),
            (tables.items, "uid"),
            (tables.spans, "uid"),
            (tables.runs, "session_uid"),
            (tables.legs, "session_uid"),
            (tables.pauses, "session_uid"),
            (tables.notes, "scope"),
        )
    }
    return {name: [{key: _shown(value) for key, value in row.items()} for row in rows] for name, rows in found.items()}


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
