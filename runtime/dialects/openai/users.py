"""Who a session is for, as OpenAI's requests say it. Pure."""

from tenuto.errors import InvalidRequest
from tenuto.sessions.ids import MOST_USER_CHARACTERS


def whole_user(safety_identifier: str | None, user: str | None) -> str | None:
    """Both fields name who a session is for: where both are given, both must fit. Raises InvalidRequest."""
    whole = "\n".join(name for name in (safety_identifier, user) if name)
    if len(whole) > MOST_USER_CHARACTERS:
        message = f"user: with safety_identifier, it should have at most {MOST_USER_CHARACTERS} characters"
        raise InvalidRequest(message, "user")
    return whole or None
