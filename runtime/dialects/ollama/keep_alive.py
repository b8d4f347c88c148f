"""Ollama's `keep_alive`: how long a model stays loaded after a request, as seconds or a duration in words."""

import math
import re

from tenuto.errors import InvalidRequest
from tenuto.runtime.loop.models import Models
from tenuto.sessions.principal import Principal

KeepAlive = int | float | str | None

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)"
_WHOLE = re.compile(rf"([+-]?)((?:{_PART})+)")
_MOST_CHARACTERS = 64


def seconds(value: int | float | str) -> float | None:
    """How long that is; None, where it is negative: until the room is needed.

    Raises:
        InvalidRequest: it is no duration, as Go writes them: 5m, 1h30m, 300ms.
    """
    if isinstance(value, str):
        found = _WHOLE.fullmatch(value) if len(value) <= _MOST_CHARACTERS else None
        if found is None and value != "0":
            raise InvalidRequest("keep_alive: not a number of seconds or a duration such as 5m", "keep_alive")
        parts = [] if found is None else re.findall(_PART, found[2])
        value = sum(float(number) * _UNITS[unit] for number, unit in parts) * (
            -1 if found is not None and found[1] == "-" else 1
        )
    return None if value < 0 or math.isinf(value) else float(value)


def keep(models: Models, model: str | None, wanted: KeepAlive, principal: Principal) -> None:
    """Let a model stay as long as a request says, where it comes from an admin: the model is everybody's.

    Raises NotFound, InvalidRequest.
    """
    if wanted is not None:
        keep_s = seconds(wanted)
        if principal.is_admin:
            models.shelf.keep(models.meant(model).id, keep_s)
