"""Fields that would change the answer and are not served: when one is used, and what is said of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.errors import UnsupportedParameter


@dataclass(frozen=True, slots=True)
class Refusal:
    """When a field is really used, and what to say of it."""

    is_used: Callable[[Any], bool]
    words: str


def refuse(value: Mapping[str, Any], refused: Mapping[str, Refusal]) -> None:
    """Refuse what a request asks for and is not served.

    Raises:
        UnsupportedParameter: `param` is the field.
    """
    for name, refusal in refused.items():
        if name in value and refusal.is_used(value[name]):
            raise UnsupportedParameter(f"{name} is not supported; leave it out: {refusal.words}", name)
