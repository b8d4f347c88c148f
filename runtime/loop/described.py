"""Sessions and models as JSON values, alike in every front end."""

from typing import Any

from tenuto.runtime.loop.models import Model
from tenuto.sessions.records import SessionSummary
from tenuto.sessions.session import Session


def session_facts(session: Session) -> dict[str, Any]:
    """A session that was just made or changed, without its items."""
    return {
        "id": session.id,
        "object": "session",
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "implicit": session.implicit,
        "stored": session.stored,
        "expires_at": session.expires_at,
        "num_items": len(session.items),
        "parent": None if session.parent is None else {"at": session.parent.at},
    }


def summary_facts(summary: SessionSummary) -> dict[str, Any]:
    """A session as a list shows it."""
    return {
        "id": summary.id,
        "object": "session",
        "created_at": summary.created_at,
        "updated_at": summary.updated_at,
        "implicit": summary.implicit,
        "user": summary.user,
        "expires_at": summary.expires_at,
        "open_run": summary.open_run,
        "num_items": summary.items,
    }


def session_page(found: list[SessionSummary], limit: int) -> dict[str, Any]:
    """A page of a list of which one more than `limit` was asked for."""
    page = found[:limit]
    return {
        "object": "list",
        "data": [summary_facts(each) for each in page],
        "last_id": page[-1].id if page else None,
        "has_more": len(found) > limit,
    }


def model_facts(model: Model) -> dict[str, Any]:
    """A model that is served: what it is, what it has room for, and how much of that is in use."""
    backend, status = model.backend, model.engine.status
    return {
        "id": model.id,
        "object": "model",
        "created": int(model.created),
        "owned_by": "tenuto",
        "context_length": model.context,
        "description": backend.description,
        "backend": backend.runs_on,
        "can_batch": backend.can_batch,
        "capabilities": list(model.capabilities),
        "slots": backend.slots,
        "cache": {
            "capacity_bytes": backend.slots * backend.cells * backend.bytes_per_token,
            "used_bytes": {place.value: count for place, count in status.cache_bytes.items()},
        },
    }
