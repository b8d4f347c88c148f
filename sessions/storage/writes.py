"""Changes as statements: what a commit means in SQL, and how many commits share one pass. No thread, no connection."""

import secrets
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, assert_never

from sqlalchemy import Column, Executable, Integer, Table, bindparam, case, delete, exists, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tenuto.sessions.blobs import TOOLS, Blob, Shared
from tenuto.sessions.changes import (
    AddItems,
    AddLedger,
    AddSampled,
    AddSpans,
    AddTold,
    BeginLeg,
    Change,
    CutItems,
    CutSpans,
    DeleteLeg,
    DeleteSession,
    Describe,
    EndLeg,
    MarkTurns,
    MovePlaces,
    PutNote,
    SaveCall,
    SaveKey,
    SavePause,
    SaveProgress,
    SaveRun,
    SaveSession,
)
from tenuto.sessions.items import item_to_json
from tenuto.sessions.records import RunStatus
from tenuto.sessions.storage import tables
from tenuto.sessions.storage.bases import Bases
from tenuto.sessions.storage.rows import (
    Row,
    call_row,
    end_row,
    leg_row,
    metadata_text,
    pause_row,
    progress_text,
    run_row,
    session_row,
    shortened,
)

OPEN = tuple(status.value for status in RunStatus if status.is_open)


@dataclass(slots=True)
class Write:
    """One statement, by its name, and the rows it is run for.

    `scope` names what the rows belong to: rows of different scopes can be written in any order, those of one scope
    only in theirs. None: everything before it comes first, everything after it later.
    """

    statement: str
    rows: list[Row]
    scope: str | None


Large = AddItems | AddSpans | AddLedger
"""What can be as long as a session is. Nothing of it changes any more, so it becomes rows only when it is written."""


def taken(change: Change) -> Sequence[Write | Large]:
    """A change with its values as they are now."""
    match change:
        case SaveSession(session=session):
            blobs = [] if session.server_tools is None else [TOOLS.of(session.server_tools).blob]
            return [*map(_save_blob, blobs), Write("save_session", [session_row(session)], session.uid)]
        case CutItems(uid=uid, keep=keep):
            names = ("cut_items", "cut_legs") if change.ends else ("cut_items",)
            return [Write(name, [{"of_uid": uid, "keep": keep}], uid) for name in names]
        case MovePlaces(uid=uid, since=since, by=by):
            return [Write("move_legs", [{"of_uid": uid, "since": since, "by": by}], uid)]
        case MarkTurns(session=session, since=since):
            key = {"uid": session.uid, "principal": session.principal}
            ends = session.history.turns(session.items, since)
            rows = [{**key, "position": end - 1, "digest": shortened(digest)} for end, digest in ends]
            return [Write("save_turns", rows, session.uid)]
        case CutSpans(uid=uid, fingerprint=name, keep=keep):
            return [Write("cut_spans", [{"of_uid": uid, "of_fingerprint": name, "keep": keep}], uid)]
        case SaveRun() | SaveCall() | SavePause() | SaveKey():
            return _of_run(change)
        case BeginLeg() | AddTold() | SaveProgress() | AddSampled() | EndLeg() | DeleteLeg():
            return _of_leg(change)
        case DeleteSession(uid=uid):
            return [Write("delete_session", [{"of_uid": uid}], None), Write("delete_notes", [{"of_uid": uid}], None)]
        case PutNote(scope=scope, key=key, text=note):
            return [Write("put_note", [{"of_scope": scope, "of_key": key, "new_text": note}], scope)]
        case Describe(uid=uid, metadata=metadata):
            return [Write("describe", [{"of_uid": uid, "new_metadata": metadata_text(metadata)}], uid)]
        case AddItems() | AddSpans() | AddLedger():
            return [change]
        case _:
            assert_never(change)


def _of_run(change: SaveRun | SaveCall | SavePause | SaveKey) -> list[Write]:
    match change:
        case SaveRun(run=run):
            shared = (value.blob for value in run.options.values() if isinstance(value, Shared))
            return [*map(_save_blob, shared), Write("save_run", [run_row(run)], run.id)]
        case SaveCall(call=call):
            return [Write("save_call", [call_row(call)], call.run_id)]
        case SavePause(pause=pause):
            return [Write("save_pause", [pause_row(pause)], pause.id)]
        case SaveKey():
            row = {name: getattr(change, name) for name in ("principal", "key", "run_id", "body_digest", "expires_at")}
            return [Write("save_key", [row], change.principal)]


def _of_leg(change: BeginLeg | AddTold | SaveProgress | AddSampled | EndLeg | DeleteLeg) -> list[Write]:
    match change:
        case BeginLeg(leg=leg):
            return [Write("begin_leg", [leg_row(leg)], leg.session_uid)]
        case AddTold(leg_id=leg_id, session_uid=uid, start=start, events=events):
            return [Write("add_told", [{"leg_id": leg_id, "start": start, "events": events}], uid)]
        case SaveProgress(leg_id=leg_id, session_uid=uid, progress=progress):
            now = {"of_id": leg_id, "new_progress": progress_text(progress)}
            return [Write("save_progress", [now], uid), Write("close_round", [{"of_id": leg_id}], uid)]
        case AddSampled(leg_id=leg_id, session_uid=uid, start=start, tokens=tokens, logprobs=logprobs):
            row: Row = {"leg_id": leg_id, "start": start, "tokens": pack(tokens), "logprobs": logprobs}
            return [Write("add_sampled", [row], uid)]
        case EndLeg(end=end):
            of_run = {"of_run": end.run_id}
            return [Write("close_rounds", [of_run], end.session_uid), Write("end_leg", [end_row(end)], end.session_uid)]
        case DeleteLeg(id=id):
            return [Write("delete_leg", [{"of_id": id}], None)]


def writes(taken: Iterable[Write | Large], bases: Bases) -> list[Write]:
    """All statements of what was taken. The writer's thread only."""
    return [write for one in taken for write in ([one] if isinstance(one, Write) else _large(one, bases))]


def _large(change: Large, bases: Bases) -> list[Write]:
    match change:
        case AddItems(uid=uid, start=start, items=items):
            rows = [{"uid": uid, "position": start + i, "body": item_to_json(item)} for i, item in enumerate(items)]
            return [Write("add_items", rows, uid)]
        case AddSpans(uid=uid, fingerprint=name, start=start, spans=spans):
            return _add_spans(uid, name, start, spans, bases)
        case AddLedger(uid=uid, ledger=ledger):
            return _add_spans(uid, ledger.fingerprint, 0, map(ledger.span, range(ledger.items)), bases)
        case _:
            assert_never(change)


def expiring_keys(now: float) -> list[Write]:
    """Delete the Idempotency-Keys that are past their time."""
    return [Write("expire_keys", [{"now": now}], None)]


def sweeping(digests: Sequence[str]) -> list[Write]:
    """Delete those of the blobs that no row names."""
    return [Write("sweep_blobs", [{"of_digest": digest} for digest in digests], None)]


TRIAL = "trial"
"""A blob that is written to see whether anything can be. No row names it, and no other blob has such a name."""


def trying(size: int) -> list[Write]:
    """Write so many bytes."""
    return [_save_blob(Blob(TRIAL, secrets.token_bytes(size)))]


def weight(write: Write) -> int:
    """About how many bytes it writes."""
    values = (value for row in write.rows for value in row.values())
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in values)


def merged(commits: Iterable[Sequence[Write]]) -> list[Write]:
    """All writes of many commits with as few statements as their order allows."""
    done: list[Write] = []
    earliest: dict[str, int] = {}
    barrier = 0
    for write in (write for commit in commits for write in commit if write.rows):
        if write.scope is None:
            done.append(Write(write.statement, write.rows, None))
            barrier = len(done)
            continue
        start = max(barrier, earliest.get(write.scope, 0))
        index = next((i for i in range(start, len(done)) if done[i].statement == write.statement), len(done))
        if index == len(done):
            done.append(Write(write.statement, list(write.rows), write.scope))
        else:
            done[index].rows.extend(write.rows)
        earliest[write.scope] = index
    return done


def pack(span: Sequence[int]) -> bytes:
    """Token ids as little-endian uint32."""
    return struct.pack(f"<{len(span)}I", *span)


def unpack(blob: bytes) -> tuple[int, ...]:
    """Read what `pack` has written."""
    return struct.unpack(f"<{len(blob) // 4}I", blob)


def _save_blob(blob: Blob) -> Write:
    return Write("save_blob", [{"digest": blob.digest, "body": blob.body}], blob.digest)


def _add_spans(uid: str, fingerprint: str, start: int, spans: Iterable[Sequence[int]], bases: Bases) -> list[Write]:
    blobs: dict[str, Blob] = {}
    rows: list[Row] = []
    for position, span in enumerate(spans, start):
        cut = bases.cut((fingerprint, position == 0), pack(span))
        if cut.base is not None:
            blobs[cut.base.digest] = cut.base
        place = {"uid": uid, "position": position, "fingerprint": fingerprint}
        base = None if cut.base is None else cut.base.digest
        rows.append({**place, "tokens": cut.tokens, "base": base, "head": cut.head, "tail": cut.tail})
    return [*map(_save_blob, blobs.values()), Write("add_spans", rows, uid)]


@cache
def statements(dialect: str) -> dict[str, Executable]:
    """Every statement by its name. SQLite and PostgreSQL share the form of an upsert, in two classes of SQLAlchemy."""
    insert: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert

    def upsert(table: Table, *but: Column[Any]) -> Executable:
        statement = insert(table)
        primary = list(table.primary_key.columns)
        left = {*primary, *but}
        others = {column.name: statement.excluded[column.name] for column in table.columns if column not in left}
        return statement.on_conflict_do_update(index_elements=primary, set_=others)  # type: ignore[no-any-return]

    sessions, items, spans, notes, legs = tables.sessions, tables.items, tables.spans, tables.notes, tables.legs
    name = bindparam("of_fingerprint", type_=spans.c.fingerprint.type)
    return {
        "save_blob": insert(tables.blobs).on_conflict_do_nothing(),
        "save_session": upsert(sessions, sessions.c.metadata),
        "describe": _describe(),
        "save_turns": upsert(tables.turns),
        "save_run": upsert(tables.runs),
        "add_told": upsert(tables.told),
        "add_sampled": upsert(tables.sampled),
        **_of_legs(insert),
        "cut_legs": update(legs)
        .where(legs.c.session_uid == bindparam("of_uid"), legs.c.until > bindparam("keep"))
        .values(until=None),
        "move_legs": _move_legs(),
        "save_call": upsert(tables.calls),
        "save_pause": upsert(tables.pauses),
        "save_key": upsert(tables.keys),
        "add_items": insert(items),
        "add_spans": insert(spans),
        "cut_items": delete(items).where(items.c.uid == bindparam("of_uid"), items.c.position >= bindparam("keep")),
        "cut_spans": delete(spans).where(
            spans.c.uid == bindparam("of_uid"),
            spans.c.position >= bindparam("keep"),
            or_(name.is_(None), spans.c.fingerprint == name),
        ),
        "delete_session": delete(tables.sessions).where(tables.sessions.c.uid == bindparam("of_uid")),
        "delete_notes": delete(notes).where(
            notes.c.scope == bindparam("of_uid"),
            ~exists(select(tables.sessions.c.uid).where(tables.sessions.c.uid == notes.c.scope)),
        ),
        "sweep_blobs": delete(tables.blobs).where(
            tables.blobs.c.digest == bindparam("of_digest"),
            *(~exists(select(name).where(name == tables.blobs.c.digest)) for name in tables.NAMES_OF_BLOBS),
        ),
        "expire_keys": delete(tables.keys).where(tables.keys.c.expires_at <= bindparam("now")),
        "put_note": _put_note(insert),
    }


def _describe() -> Executable:
    sessions = tables.sessions
    return update(sessions).where(sessions.c.uid == bindparam("of_uid")).values(metadata=bindparam("new_metadata"))


def _move_legs() -> Executable:
    legs, since, by = tables.legs, bindparam("since", type_=Integer), bindparam("by", type_=Integer)
    places = (legs.c.first_item, legs.c.first_said, legs.c.until)
    moved = {place.name: case((place >= since, place + by), else_=place) for place in places}
    return update(legs).where(legs.c.session_uid == bindparam("of_uid")).values(moved)


def _of_legs(insert: Any) -> dict[str, Executable]:
    legs, sampled = tables.legs, tables.sampled
    of_run = select(legs.c.id).where(legs.c.run_id == bindparam("of_run"))
    progress: dict[str, Any] = {"progress": bindparam("new_progress")}
    return {
        "begin_leg": insert(legs),
        "end_leg": _end_leg(),
        "delete_leg": delete(legs).where(legs.c.id == bindparam("of_id")),
        "save_progress": update(legs).where(legs.c.id == bindparam("of_id")).values(progress),
        "close_round": delete(sampled).where(sampled.c.leg_id == bindparam("of_id")),
        "close_rounds": delete(sampled).where(sampled.c.leg_id.in_(of_run)),
    }


def _end_leg() -> Executable:
    legs = tables.legs
    ended: dict[str, Any] = {
        name: bindparam(f"new_{name}") for name in ("until", "status", "ended_at", "usage", "answer")
    }
    ended["progress"] = None
    is_open = legs.c.status == RunStatus.RUNNING.value
    return update(legs).where(legs.c.run_id == bindparam("of_run"), is_open).values(ended)


def is_working() -> Any:
    """The condition that a row of sessions has an open run."""
    runs = tables.runs
    # Not in_(): a statement for many rows cannot have a list as a parameter.
    is_open = or_(*(runs.c.status == status for status in OPEN))
    return exists(select(runs.c.id).where(runs.c.session_uid == tables.sessions.c.uid, is_open))


def _put_note(insert: Any) -> Executable:
    notes = tables.notes
    others = notes.alias()
    last = select(func.coalesce(func.max(others.c.position), -1) + 1).where(others.c.scope == bindparam("of_scope"))
    statement = insert(notes).values(
        scope=bindparam("of_scope"),
        key=bindparam("of_key"),
        text=bindparam("new_text"),
        position=last.scalar_subquery(),
    )
    return _keep_text(statement)


def _keep_text(statement: Any) -> Executable:
    kept = {"text": statement.excluded.text}
    return statement.on_conflict_do_update(index_elements=["scope", "key"], set_=kept)  # type: ignore[no-any-return]
