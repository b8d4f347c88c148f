"""Facts as rows: what of each is kept in which column. No statement, no thread."""

import json
from collections.abc import Mapping
from typing import Any

from tenuto.sessions.blobs import TOOLS, Shared
from tenuto.sessions.records import CallRecord, LegEnd, LegRecord, PauseRecord, RunRecord
from tenuto.sessions.session import Session
from tenuto.sessions.storage import tables

Row = dict[str, Any]

_DIGEST_DIGITS = 32


def shortened(digest: str) -> str:
    """As much of a digest of items as is kept: what it finds is compared item by item."""
    return digest[:_DIGEST_DIGITS]


def session_row(session: Session) -> Row:
    """A session's own row, without its items and ledgers."""
    tools, parent = session.server_tools, session.parent
    return {
        "uid": session.uid,
        "principal": session.principal,
        "id": session.id,
        "user": session.user,
        "implicit": session.implicit,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "expires_at": session.expires_at,
        "parent_uid": parent.uid if parent else None,
        "parent_at": parent.at if parent else None,
        "server_tools": None if tools is None else TOOLS.of(tools).blob.digest,
        "server_instructions": json.dumps(dict(session.server_instructions)) if session.server_instructions else None,
        "approved": json.dumps(sorted(session.approved)),
        "open_run": session.open_run,
        "items": len(session.items),
        "visible_digest": shortened(session.history.digest(session.items)),
        "hint": session.hint,
        "instructed": session.instructed,
        "metadata": metadata_text(session.metadata),
        "removed": json.dumps(session.removed) if session.removed else None,
    }


def metadata_text(metadata: Mapping[str, str]) -> str | None:
    """A session's metadata as it is kept."""
    return _compact({**metadata}) if metadata else None


def run_row(run: RunRecord) -> Row:
    """A run's row."""
    shared = {name: value.blob.digest for name, value in run.options.items() if isinstance(value, Shared)}
    return {
        "id": run.id,
        "session_uid": run.session_uid,
        "principal": run.principal,
        "model": run.model,
        "status": run.status.value,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "first_item": run.first_item,
        "options": _compact({name: value for name, value in run.options.items() if name not in shared}),
        "usage": _compact(run.usage),
        "reason": run.reason.value if run.reason else None,
        "stop_reason": run.stop_reason,
        "expires_at": run.expires_at,
        "error": run.error,
        "input_digest": run.input_digest,
        "answer": None if run.answer is None else _compact(run.answer),
        "tools": shared.pop("tools", None),
        "answer_schema": shared.pop("answer_schema", None),
    }


LEG_TEXTS = ("request", "usage", "answer", "progress")
"""The columns of a leg's row that hold JSON."""


def leg_row(leg: LegRecord) -> Row:
    """A leg's row."""
    row = {column.name: getattr(leg, column.name) for column in tables.legs.columns}
    texts = {name: None if row[name] is None else _compact(row[name]) for name in LEG_TEXTS}
    return row | texts | {"status": leg.status.value}


def end_row(end: LegEnd) -> Row:
    """What the end of a leg changes of its row, by the names of the statement's parameters."""
    return {
        "of_run": end.run_id,
        "new_until": end.until,
        "new_status": end.status.value,
        "new_ended_at": end.ended_at,
        "new_usage": None if end.usage is None else _compact(end.usage),
        "new_answer": _compact(end.answer),
    }


def progress_text(progress: Mapping[str, Any]) -> str:
    """Where a leg stands, as it is kept."""
    return _compact({**progress})


_COMPACT = json.JSONEncoder(separators=(",", ":"))


def _compact(value: Row) -> str:
    return _COMPACT.encode(value)


def call_row(call: CallRecord) -> Row:
    """A call's row."""
    row = {column.name: getattr(call, column.name) for column in tables.calls.columns}
    return row | {"status": call.status.value}


def pause_row(pause: PauseRecord) -> Row:
    """A pause's row."""
    row = {column.name: getattr(pause, column.name) for column in tables.pauses.columns}
    question = None if pause.question is None else json.dumps(pause.question.dump())
    return row | {"reason": pause.reason.value, "status": pause.status.value, "question": question}
