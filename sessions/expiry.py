"""When the time of an implicit session is over: so long after its last use. Pure; the time is what the caller says."""

from tenuto.sessions.session import Session

_REFRESH_S = 60
"""A session's time is prolonged in the store when it is used and this much of it has gone."""


class Expiry:
    """Gives implicit sessions `ttl_s` seconds from their last use."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s

    def prolong(self, session: Session, now: float) -> None:
        """An implicit session is used now; others have all the time."""
        if session.implicit:
            session.expires_at = now + self._ttl_s

    def is_to_be_prolonged(self, session: Session, now: float) -> bool:
        """Whether what the store has of a session's time would be over too early."""
        return (
            session.stored
            and session.open_run is None
            and session.expires_at is not None
            and session.expires_at < now + self._ttl_s - _REFRESH_S
        )


def is_over(session: Session, now: float) -> bool:
    """Whether a session is to be deleted; one with an open run is not."""
    return session.expires_at is not None and session.expires_at <= now and session.open_run is None
