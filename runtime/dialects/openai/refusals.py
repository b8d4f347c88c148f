"""Fields that would change the answer and are not served: when one is used, and what is said of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """When a field is really used, and what to say of it."""

    is_used: Callable[[Any], bool]
    words: str
