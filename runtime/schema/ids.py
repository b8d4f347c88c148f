"""The ids that clients choose: what may be one."""

import re

from tenuto.errors import InvalidRequest

_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def checked_session_id(session_id: str, param: str) -> str:
    """The id, if it may name a session.

    Raises:
        InvalidRequest: it may not.
    """
    if _SESSION_ID.fullmatch(session_id) is None:
        raise InvalidRequest(f"{param}: 1 to 128 of letters, digits, '.', '_' and '-'", param)
    return session_id
