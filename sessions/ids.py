"""What may name a session, and whom it is for: clients choose both."""

import re
from typing import Annotated

from pydantic import Field

from tenuto.errors import InvalidRequest

PATTERN = "^[A-Za-z0-9._-]{1,128}$"
"""The form of an id, as JSON schemas have it."""

MOST_USER_CHARACTERS = 512
"""Of a session's user, whom every list of sessions names."""
User = Annotated[str, Field(max_length=MOST_USER_CHARACTERS)]

_FORM = re.compile(PATTERN[1:-1])  # `$` would let a line break follow


def checked_session_id(session_id: str, param: str) -> str:
    """The id, if it may name a session.

    Raises:
        InvalidRequest: it may not.
    """
    if _FORM.fullmatch(session_id) is None:
        raise InvalidRequest(f"{param}: must have 1 to 128 letters, digits, '.', '_' or '-'", param)
    return session_id


def checked_new_session_id(session_id: str, param: str) -> str:
    """The id, if it may name a session that is made now: not `.` nor `..`, which clients take out of a path.

    Raises:
        InvalidRequest: it may not.
    """
    if session_id in (".", ".."):
        raise InvalidRequest(f"{param}: must not be '.' or '..', which cannot stand in a URL's path", param)
    return checked_session_id(session_id, param)
