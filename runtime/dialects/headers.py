"""What the headers of a request say beside its body: its session, its key, and whether its client reads our events."""

import hashlib
from collections.abc import Mapping

from tenuto.errors import InvalidRequest
from tenuto.runtime.loop.follower import Follower
from tenuto.runtime.loop.past_leg import PastLeg
from tenuto.sessions.ids import checked_session_id

SESSION_HEADER = "x-tenuto-session"
EVENTS_HEADER = "x-tenuto-events"
IDEMPOTENCY_HEADER = "idempotency-key"

_MAX_IDEMPOTENCY_KEY = 255


def session_of(headers: Mapping[str, str], of_body: str | None = None, field: str = "session_id") -> str | None:
    """The session that a request names in its header or in a field of its body. Raises InvalidRequest."""
    of_header = headers.get(SESSION_HEADER)
    if of_body is not None and of_header is not None and of_body != of_header:
        raise InvalidRequest(f"{field} and the header X-Tenuto-Session name different sessions", field)
    if of_body is not None:
        return checked_session_id(of_body, field)
    return None if of_header is None else checked_session_id(of_header, "X-Tenuto-Session")


def wants_events(headers: Mapping[str, str]) -> bool:
    """Whether the client asks for named events."""
    return headers.get(EVENTS_HEADER) == "1"


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    """The key under which a request is done once. Raises InvalidRequest."""
    key = headers.get(IDEMPOTENCY_HEADER)
    if key is not None and not 0 < len(key) <= _MAX_IDEMPOTENCY_KEY:
        raise InvalidRequest(f"Idempotency-Key: 1 to {_MAX_IDEMPOTENCY_KEY} characters", "Idempotency-Key")
    return key


def body_digest(session_id: str | None, body: bytes) -> str:
    """Names a whole request, for its key."""
    return hashlib.sha256(b"%s\0%s" % ((session_id or "").encode(), body)).hexdigest()


def run_headers(run: Follower | PastLeg) -> dict[str, str]:
    """Which session and run an answer belongs to."""
    return {SESSION_HEADER: run.session_id, "x-tenuto-run-id": run.id}
