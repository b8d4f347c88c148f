"""What may name a session, and whom it is for: clients choose both. And what ids that are made here are made of."""

import os
import re
import threading
from typing import Annotated

from pydantic import Field

from tenuto.errors import InvalidRequest

PATTERN = "^[A-Za-z0-9._-]{1,128}$"
"""The form of an id, as JSON schemas have it."""

MOST_USER_CHARACTERS = 512
"""Of a session's user, whom every list of sessions names."""
User = Annotated[str, Field(max_length=MOST_USER_CHARACTERS)]

_FORM = re.compile(PATTERN[1:-1])  # `$` would let a line break follow
_OWN_CALL = re.compile("call_[0-9a-f]{24}")


class Digits:
    """Random hexadecimal digits that nobody can guess. Any thread.

    The system is asked for many at a time: each time takes as long as all else that makes an id.
    """

    _AT_ONCE = 2048

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = ""

    def take(self, count: int) -> str:
        """So many, which nobody gets again."""
        with self._lock:
            if len(self._left) < count:
                self._left = os.urandom(max(self._AT_ONCE, count)).hex()
            taken, self._left = self._left[:count], self._left[count:]
            return taken

    def drop(self) -> None:
        """Ask the system anew: for a process that was forked, since its parent has the same digits left."""
        self._lock, self._left = threading.Lock(), ""


_DIGITS = Digits()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_DIGITS.drop)


def new_hex(digits: int = 32) -> str:
    """What an id that nobody else has is made of: so many random hexadecimal digits."""
    return _DIGITS.take(digits)


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


def new_call_id() -> str:
    """An id for a call that a model of ours makes. No other call has it."""
    return f"call_{new_hex(24)}"


def is_own_call_id(call_id: str) -> bool:
    """Whether an id has the form of those that we give, so that it names one call and no other."""
    return _OWN_CALL.fullmatch(call_id) is not None
