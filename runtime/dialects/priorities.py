"""How urgent a request says it is, in the words that its dialect has for it."""

from typing import Annotated

from pydantic import Field

from tenuto.errors import InvalidRequest
from tenuto.sessions.priority import Priority

Urgency = Annotated[Priority, Field(strict=False)] | Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""A word of ours, or a number as vLLM has it: the greater, the later. 0 is what it has by itself."""

SERVED = (
    "Tenuto's: `interactive`, or `background` for what may wait: it is served with what the others leave, and a share"
    " of its own"
)
NUMBERS = "; a number, as vLLM has it: above 0 is `background`"


def priority_of(tier: str | None, urgency: Priority | int | None) -> Priority | None:
    """What `service_tier` and `priority` say together. None: nothing, or that it is left to the server.

    Raises:
        InvalidRequest: they contradict each other.
    """
    said = {_of_tier(tier), _of(urgency)} - {None}
    if len(said) > 1:
        raise InvalidRequest("priority and service_tier differ; give only one", "priority")
    return said.pop() if said else None


def _of_tier(tier: str | None) -> Priority | None:
    if tier in (None, "auto"):
        return None
    return Priority.BACKGROUND if tier == "flex" else Priority.INTERACTIVE


def _of(urgency: Priority | int | None) -> Priority | None:
    if urgency is None or isinstance(urgency, Priority):
        return urgency
    return Priority.BACKGROUND if urgency > 0 else Priority.INTERACTIVE
